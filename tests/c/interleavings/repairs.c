// SPDX-License-Identifier: Apache-2.0
/* Cases of repairs: upkeep corrects what it finds wrong beside processes that all sleep, and counts it as a defect
 * (I72). */
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_liveness.h"
#include "sb_repairs.h"

static uint32_t repairs[2][SB_REPAIRS]; /* before; [1]: explained */
static void begin(void) {
  for (unsigned kind = 0; kind < SB_REPAIRS; kind++) {
    repairs[0][kind] = t.b->header->repairs[kind];
    repairs[1][kind] = t.b->header->explained_repairs[kind];
  }
}
/* Since then one of that kind, and nothing else. */
static void expect_one(unsigned kind, bool explained) {
  for (unsigned i = 0; i < SB_REPAIRS; i++) {
    uint32_t defects = t.b->header->repairs[i] - repairs[0][i],
             others = t.b->header->explained_repairs[i] - repairs[1][i];
    expect(defects == (i == kind && !explained), "%d repairs of kind %d are defects", (int)defects, (int)i);
    expect(others == (i == kind && explained), "%d repairs of kind %d are explained", (int)others, (int)i);
  }
}
#define NONE SB_REPAIRS

/* Another connection has the queue open, and is always inside an operation. */
static pid_t busy;
static void somebody_is_busy(void) {
  int opened[2];
  char byte = 0;
  if (pipe(opened) != 0) die("pipe", 0);
  busy = fork();
  if (busy == 0) {
    actor other = {0};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    attach(&t);
    join(&other);
    ssize_t written = write(opened[1], "!", 1);
    for (volatile bool more = written == 1; more;) {
    }
    _exit(0);
  }
  (void)close(opened[1]);
  if (read(opened[0], &byte, 1) != 1) die("a child", 0);
  (void)close(opened[0]);
}
static void it_ends(void) {
  (void)kill(busy, SIGKILL);
  (void)waitpid(busy, NULL, 0);
  while (sb_housekeeper_reap(keeper.c) > 0) {
  }
}

static void tick_until_it_rests(void) {
  for (int i = 0; i < 8; i++) tick();
}

static void count_is(bool explained) {
  waiting = consume(&one, 0);
  expect(asleep(waiting), "there is no message, and the consumer is told");
  tick_until_it_rests();
  begin();
  (void)SB_SUB(&keeper.q->shm->interested, 1, SB_RELAXED);
  tick();
  expect(keeper.q->shm->interested == 1, "the count was not mended");
  expect_one(SB_REPAIR_COUNT, explained);
  begin();
  tick_until_it_rests();
  expect_one(NONE, explained);
  sb_consumer_cancel(waiting, true);
}
static void count_too_low(void) { count_is(false); }
static void count_too_low_beside_work(void) {
  somebody_is_busy();
  count_is(true);
  it_ends();
}
static void count_raised(void) {
  waiting = consume(&one, 0);
  tick_until_it_rests();
  begin();
  (void)SB_ADD(&keeper.q->shm->not_interested, 1, SB_RELAXED);
  for (int i = 0; i < 3; i++) tick();
  expect_one(NONE, false);
  tick();
  expect(keeper.q->shm->not_interested == 0, "the count was not mended");
  expect_one(SB_REPAIR_COUNT, false);
  sb_consumer_cancel(waiting, true);
}

static void account_wrong(void) {
  put_by(&one, 1);
  tick_until_it_rests();
  begin();
  (void)SB_ADD(&keeper.q->shm->taken, 1, SB_RELAXED);
  tick_until_it_rests();
  expect_one(NONE, false); /* nothing has happened since it was found right */
  put_by(&one, 2);
  tick_until_it_rests();
  expect(sb_queue_length(keeper.q) == 2, "the account was not mended");
  expect_one(SB_REPAIR_ACCOUNT, false);
  expect_left(12);
}
/* As when its limits came beside traffic without a gap. */
static void account_unsure(void) {
  begin();
  put_by(&one, 1);
  (void)SB_ADD(&keeper.q->shm->taken, 1, SB_RELAXED);
  SB_STORE(&keeper.q->shm->tracking, SB_TRACKING_UNSURE, SB_SEQ_CST);
  tick_until_it_rests();
  expect_one(SB_REPAIR_ACCOUNT, true);
  expect(keeper.q->shm->tracking == 1, "the accounts are still not believed");
  expect_left(1);
}

static void return_first(void) {
  for (int i = 1; i <= 3; i++) put_by(&one, (uint64_t)i);
  (void)get(&t, one.q, held_a, false);
  (void)take(&one);
  (void)take(&one);
  waiting = consume(&two, 0);
  expect(asleep(waiting), "there is no message, and the consumer is told");
  tick_until_it_rests();
  (void)sb_queue_settle(one.q, held_a, SB_REQUEUE);
}
static void mark_lost(void) {
  sb_leaf_ref leaf;
  uint64_t position;
  return_first();
  position = SB_LOAD(&keeper.q->shm->base, SB_RELAXED);
  (void)sb_ring_locate(t.b, NULL, &keeper.q->lanes[0].ring, position, &leaf);
  sb_requeued_clear(t.b, &leaf, position);
  begin();
  expect(sb_hints_hide_ready(t.b, &keeper.q->lanes[0].ring), "it is not hidden");
  expect(sb_hints_resurface(t.b, keeper.q->shm, &keeper.q->lanes[0].ring, sb_repairs_deaths(t.b)) == 1,
         "it is not found");
  expect_one(SB_REPAIR_MARK, false);
  expect(next(waiting) == 1, "the message is not delivered");
  sb_consumer_cancel(waiting, true);
}

static sb_node_shm *node_of(const sb_consumer *k) { return sb_slot_at(t.b, k->subscriptions[0].node); }

/* It was chosen, and not rung. */
static void chosen_and_not_rung(bool explained) {
  waiting = consume(&one, 0);
  expect(asleep(waiting), "there is no message, and the consumer is told");
  tick_until_it_rests();
  (void)sb_node_move(keeper.c, waiting->subscriptions[0].node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED);
  put_by(&two, 5);
  uint64_t wakes = node_of(waiting)->wakes;
  begin();
  tick();
  expect_one(NONE, explained); /* it came since the last look */
  tick();
  expect(node_of(waiting)->wakes > wakes, "it was not rung");
  expect_one(SB_REPAIR_NOTIFICATION, explained);
  expect(next(waiting) == 5, "the message is not delivered");
  sb_consumer_cancel(waiting, true);
}
static void not_rung(void) { chosen_and_not_rung(false); }
static void not_rung_beside_work(void) {
  somebody_is_busy();
  chosen_and_not_rung(true);
  it_ends();
}

static void not_rung_without_memory(void) {
  put_by(&two, 1); /* there is a slot for the next one */
  (void)take(&two);
  fill_up_to(sb_reserve_chunks(t.b));
  chosen_and_not_rung(true);
  empty_again();
}

static void beside_room(bool watched) {
  uint32_t node;
  uint64_t token;
  put_by(&one, 1);
  sb_status status = sb_node_create(two.c, two.q->slot, 0, SB_NODE_DIRECT | SB_NODE_ROOM, 0, 64, &node, &token);
  if (status != SB_OK) die("sb_node_create", (int)status);
  tick_until_it_rests();
  begin();
  (void)take(&one);
  (void)sb_node_move(two.c, node, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED); /* and did not look */
  SB_STORE(&keeper.q->shm->room_watched, (uint32_t)watched, SB_RELAXED);
  tick();
  expect(state_of(node) == SB_NODE_NOTIFIED, "the producer was not told of room");
  expect_one(SB_REPAIR_ROOM, watched);
  sb_node_destroy(two.c, node, token);
}
static void slept_beside_room(void) { beside_room(false); }
static void slept_beside_a_watch(void) { beside_room(true); }

static void not_ended(void) {
  begin();
  (void)SB_OR(&keeper.q->shm->flags, SB_QUEUE_AUTO_DELETE, SB_RELAXED);
  tick();
  expect(sb_queue_is_open(keeper.q), "it has had no consumer, and is ended");
  SB_STORE(&keeper.q->shm->had_consumer, 1u, SB_RELEASE);
  tick();
  expect(!sb_queue_is_open(keeper.q), "it was not ended");
  expect_one(SB_REPAIR_END, false);
}

static const test_case CASES[] = {
    {"count too low", "is mended when all sleep, and a defect", FREELY, count_too_low},
    {"count too low beside work", "is explained by somebody who runs", FREELY, count_too_low_beside_work},
    {"count raised", "is mended when it has lasted, and a defect", FREELY, count_raised},
    {"account wrong", "is mended when traffic rests, and a defect", RING(5), account_wrong},
    {"account unsure", "accounts that begin beside traffic are to be mended", RING(5), account_unsure},
    {"mark lost", "a message that no bit leads to is found, and a defect", FREELY, mark_lost},
    {"not rung", "a consumer that was chosen and is not rung is rung, and a defect", FREELY, not_rung},
    {"not rung beside work", "is explained by somebody who runs", FREELY, not_rung_beside_work},
    {"not rung without memory", "is explained by a broker that is full", FREELY, not_rung_without_memory},
    {"slept beside room", "a producer is told of room, and a defect", {{-1, 1, -1, 0, -1, -1}, 0}, slept_beside_room},
    {"slept beside a watch",
     "room that a watch was told of may lie there",
     {{-1, 1, -1, 0, -1, -1}, 0},
     slept_beside_a_watch},
    {"not ended", "a queue whose life is over is ended, and a defect", FREELY, not_ended},
};
const subject REPAIR_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
