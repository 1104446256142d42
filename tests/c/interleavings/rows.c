// SPDX-License-Identifier: Apache-2.0
/* Cases of rows: 64 messages go to the queue "q" by one CAS, and another actor puts, takes or begins to wait at any step
 * of that. */
#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_requeued.h"

#define ROW SB_PAGE_CELLS
#define BEHIND 3u /* messages that are left in the source */

static sb_queue *source, *its_source; /* of the one who moves; of the other one */
static uint64_t seen[3 * ROW];        /* how often each message came */
static int64_t moved;

static void see(uint64_t id) {
  if (id != 0 && id < 3 * ROW) seen[id]++;
}
static uint64_t take_of(actor *a, sb_queue *from) {
  t.c = a->c;
  return get(&t, from, buffer, true);
}

/* The tail of "q" is at its second page; the source has the messages 1 to 67. */
static void begin_row(void) {
  t.c = one.c;
  if (declare(&t, "source", (sb_settings)FREELY) != SB_OK) die("sb_queue_declare", 0);
  source = open_queue(&t, "source");
  t.c = two.c;
  its_source = open_queue(&t, "source");
  t.c = one.c;
  for (unsigned i = 0; i < ROW; i++) put_by(&one, 1);
  for (unsigned i = 0; i < ROW; i++) (void)take(&one);
  for (uint64_t id = 1; id <= ROW + BEHIND; id++) (void)put(&t, source, id);
  for (unsigned i = 0; i < 3 * ROW; i++) seen[i] = 0;
}
static void move_row(void) {
  sb_status status;
  uint64_t bytes = UINT64_MAX;
  t.c = one.c;
  moved = sb_queue_move(source, one.q, ROW, &bytes, &status);
}
/* Every message was seen once, or comes now. */
static void end_row(uint64_t last) {
  uint64_t id, before = 0;
  while ((id = take_of(&keeper, keeper.q)) != 0) {
    see(id);
    expect(id > before || id > ROW + BEHIND, "message %d comes after %d", (int)id, (int)before);
    if (id <= ROW + BEHIND) before = id;
  }
  while ((id = take_of(&one, source)) != 0) see(id);
  for (uint64_t i = 1; i <= last; i++) expect(seen[i] == 1, "message %d came %d times", (int)i, (int)seen[i]);
  int32_t holder;
  uint64_t count;
  (void)sb_queue_close(its_source);
  (void)sb_queue_delete(source, false, false, FOREVER, &holder, &count);
  (void)sb_queue_close(source);
}

static void put_there(void) {
  t.c = two.c;
  put_by(&two, ROW + BEHIND + 1);
}
static void beside_a_producer(void) {
  begin_row();
  meanwhile(ANYWHERE, put_there);
  move_row();
  afterwards();
  expect(moved == (int64_t)ROW, "%d were moved", (int)moved);
  end_row(ROW + BEHIND + 1);
}

static void take_here(void) {
  for (unsigned i = 0; i < 2; i++) see(take_of(&two, its_source));
}
static void beside_a_consumer_of_the_source(void) {
  begin_row();
  meanwhile(ANYWHERE, take_here);
  move_row();
  afterwards();
  end_row(ROW + BEHIND);
}

static void take_there(void) {
  for (unsigned i = 0; i < ROW; i++) see(take_of(&two, two.q));
}
static void beside_a_consumer_of_the_target(void) {
  begin_row();
  meanwhile(ANYWHERE, take_there);
  move_row();
  afterwards();
  expect(moved == (int64_t)ROW, "%d were moved", (int)moved);
  end_row(ROW + BEHIND);
}

/* P3 of sb_notify.h: a consumer that comes at any step finds the messages, or is told. */
static void begin_to_wait(void) {
  waiting = consume(&two, 0);
  see(next(waiting));
}
static void beside_a_consumer_that_waits(void) {
  begin_row();
  meanwhile(ANYWHERE, begin_to_wait);
  move_row();
  afterwards();
  uint64_t first = 0;
  for (unsigned i = 1; i < 3 * ROW; i++) first += seen[i];
  expect(first == 1 || told(waiting), "the consumer sleeps beside %d messages", (int)moved);
  sb_consumer_cancel(waiting, true);
  sb_consumer_free(waiting);
  end_row(ROW + BEHIND);
}

static const test_case CASES[] = {
    {"row: producer", "a message that is put meanwhile comes once, and the row stays in order", FREELY,
     beside_a_producer},
    {"row: source", "what is taken from the source meanwhile does not come again", FREELY,
     beside_a_consumer_of_the_source},
    {"row: target", "what is taken from the target meanwhile does not come again", FREELY,
     beside_a_consumer_of_the_target},
    {"row: waits", "a consumer that begins to wait meanwhile is told", FREELY, beside_a_consumer_that_waits},
};
const subject ROW_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
