// SPDX-License-Identifier: Apache-2.0
/* Cases of leases: what a reader sees of a message while another actor moves it. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "cases.h"
#include "plan.h"

static sb_queue *lease, *next_lease; /* of the one who moves */
static sb_queue *watched;            /* of the one who looks on */
static uint64_t seen;

/* Messages are numbered as they are put, so each one's sequence is one less than its number. */
static void look_into(sb_queue *keeps) {
  uint64_t position = 0, id;
  int64_t size;
  while ((size = sb_queue_browse(keeps, &position, held_b, BUFFER)) > 0) {
    sb_record r;
    memcpy(&r, held_b, sizeof r);
    memcpy(&id, held_b + size - r.body_length, sizeof id);
    expect(r.sequence == id - 1, "message %d has sequence %d", (int)id, (int)r.sequence);
    seen = seen * 10 + id;
  }
}
static void look(void) { look_into(watched); }

static sb_queue *made(const char *name) {
  sb_settings keeps = {{-1, -1, -1, 0, -1, -1}, SB_QUEUE_KEEPS};
  t.c = one.c;
  if (declare(&t, name, keeps) != SB_OK) die("sb_queue_declare", 0);
  return open_queue(&t, name);
}
static void watch(const char *name) {
  t.c = two.c;
  watched = open_queue(&t, name);
}

static void removed(sb_queue *gone) {
  int32_t holder;
  uint64_t count;
  (void)sb_queue_delete(gone, false, false, FOREVER, &holder, &count);
  (void)sb_queue_close(gone);
}

static void looked_away(void) { (void)sb_queue_close(watched); }

static void move_two(sb_queue *from, sb_queue *to) {
  sb_status status;
  uint64_t bytes = UINT64_MAX;
  int64_t moved = sb_queue_move(from, to, 2, &bytes, &status);
  expect(moved == 2, "%d were moved, status %d", (int)moved, (int)status);
}

static void leased(void) {
  lease = made("lease");
  watch("lease");
  for (uint64_t id = 1; id <= 3; id++) put_by(&three, id);
  expect(take(&three) == 1, "the oldest was not taken");
  meanwhile(ANYWHERE, look);
  move_two(one.q, lease);
  afterwards();
  seen = 0;
  look();
  expect(seen == 23, "left in the lease are %d, not 23", (int)seen);
  looked_away();
  removed(lease);
}

static void leased_again(void) {
  lease = made("lease");
  next_lease = made("next");
  watch("next");
  for (uint64_t id = 1; id <= 3; id++) put_by(&three, id);
  expect(take(&three) == 1, "the oldest was not taken");
  move_two(one.q, lease);
  meanwhile(ANYWHERE, look);
  move_two(lease, next_lease);
  afterwards();
  seen = 0;
  look();
  expect(seen == 23, "left in the next lease are %d, not 23", (int)seen);
  looked_away();
  removed(next_lease);
  removed(lease);
}

/* Takes as many as a page has cells, and keeps them. */
static uint64_t steps_of_a_page(sb_queue *from) {
  uint64_t before = steps_so_far;
  t.c = one.c;
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) expect(get(&t, from, held_a, false) != 0, "nothing is left to take");
  return steps_so_far - before;
}

static void taken_and_kept(void) {
  lease = made("lease");
  sb_status status;
  uint64_t bytes = UINT64_MAX, first, last = 0;
  for (uint64_t id = 1; id <= 12u * SB_PAGE_CELLS; id++) put_by(&three, id);
  (void)sb_queue_move(one.q, lease, UINT64_MAX, &bytes, &status);
  (void)steps_of_a_page(lease); /* opens what all of them need */
  first = steps_of_a_page(lease);
  for (unsigned page = 2; page < 12; page++) last = steps_of_a_page(lease);
  expect(last < first + first / 4, "a page of moved messages takes %d steps, and with ten others in hand %d",
         (int)first, (int)last);
  removed(lease);
}

static void end_here(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}
static void be_killed_putting(void) {
  actor victim = {0};
  attach(&t);
  join(&victim);
  meanwhile("ring.append.done", end_here);
  put_by(&victim, 1);
  _exit(0);
}
static void put_moved_twice(void) {
  int status;
  sb_status moved;
  uint64_t bytes = UINT64_MAX;
  lease = made("lease");
  pid_t pid = fork();
  if (pid == 0) be_killed_putting();
  (void)waitpid(pid, &status, 0);
  expect(WIFSIGNALED(status), "the producer was not killed");
  expect(sb_queue_move(one.q, lease, 1, &bytes, &moved) == 1, "it was not moved, status %d", (int)moved);
  expect(sb_queue_move(lease, one.q, 1, &bytes, &moved) == 1, "it was not moved back, status %d", (int)moved);
  while (sb_housekeeper_reap(keeper.c) > 0) {
  }
  expect_left(1);
  removed(lease);
}

static const test_case CASES[] = {
    {"put, moved twice", "a message whose producer was killed may be moved on and back before that is reaped", FREELY,
     put_moved_twice},
    {"leased", "a reader of a lease never sees a message without its sequence", FREELY, leased},
    {"taken and kept", "messages that were moved are taken in as many steps however many are in hand", FREELY,
     taken_and_kept},
    {"leased again", "the same where it comes from a lease", FREELY, leased_again},
};
const subject LEASE_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
