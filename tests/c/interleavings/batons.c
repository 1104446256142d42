// SPDX-License-Identifier: Apache-2.0
/* Cases of wakes: each event wakes the nodes that it serves, as many as it serves, and no others. No tick comes in
 * between, so a rescue cannot hide a missing notification. */
#include <stdlib.h>

#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_notify.h"
#include "sb_wait.h"
#include "sb_waiter.h"

#define SLEEPERS 4
#define LENGTH(n) {{-1, (n), -1, 0, -1, -1}, 0}
#define BYTES(n) {{-1, -1, (n), 0, -1, -1}, 0}

static struct {
  const actor *a;
  uint32_t node;
  uint64_t token;
} sleepers[SLEEPERS];

static sb_node_shm *node(unsigned i) { return sb_slot_at(t.b, sleepers[i].node); }
static void enter(unsigned i, const actor *a, int32_t priority, uint32_t flags, uint32_t bytes) {
  sb_status status = sb_node_create(a->c, a->q->slot, priority, SB_NODE_DIRECT | flags, 0, bytes, &sleepers[i].node,
                                    &sleepers[i].token);
  if (status != SB_OK) die("sb_node_create", (int)status);
  sleepers[i].a = a;
}
static void go_to_sleep(unsigned i, unsigned state) {
  expect(sb_node_move(sleepers[i].a->c, sleepers[i].node, SB_STATE_ALL, state), "sleeper %u cannot sleep", i);
}
static void sleep_as(unsigned i, const actor *a, int32_t priority, uint32_t flags, uint32_t bytes) {
  enter(i, a, priority, flags, bytes);
  go_to_sleep(i, SB_NODE_INTERESTED);
}
static void sleep_for_message(unsigned i, const actor *a) { sleep_as(i, a, 0, 0, 1); }
static void sleep_for_room(unsigned i, const actor *a, uint32_t bytes) { sleep_as(i, a, 0, SB_NODE_ROOM, bytes); }
static void sleep_for_memory(unsigned i, const actor *a) { sleep_as(i, a, 0, SB_NODE_ROOM | SB_NODE_MEMORY, 64); }
static void leave_bed(unsigned i) { sb_node_destroy(sleepers[i].a->c, sleepers[i].node, sleepers[i].token); }
static void leave_beds(unsigned count) {
  for (unsigned i = 0; i < count; i++) leave_bed(i);
}

/* Who is awake, as bits. Each of them was woken once. */
static unsigned awake(unsigned count) {
  unsigned bits = 0;
  for (unsigned i = 0; i < count; i++) {
    bool is_awake = state_of(sleepers[i].node) == SB_NODE_NOTIFIED;
    unsigned wakes = SB_LOAD(&node(i)->wakes, SB_RELAXED);
    expect(wakes == is_awake, "sleeper %u was woken %u times", i, wakes);
    bits |= is_awake ? 1u << i : 0;
  }
  return bits;
}
static void expect_awake(unsigned count, unsigned bits, const char *when) {
  unsigned are = awake(count);
  expect(are == bits, "%s: awake are %x, not %x", when, are, bits);
}

/* ---- room ---- */

static void purge_makes_room(void) {
  put_by(&one, 1);
  put_by(&one, 2);
  for (unsigned i = 0; i < 3; i++) sleep_for_room(i, &two, 64);
  expect(purge_count(one.q) == 2, "the purge does not remove both");
  expect_awake(3, 1, "after a purge");
  sb_waiter_leave(two.q, sleepers[0].node, SB_NODE_ROOM); /* with a place more: the baton */
  leave_bed(0);
  sleep_for_room(0, &two, 64);
  expect_awake(3, 2, "after the first left");
  leave_beds(3);
}
static void purge_of_none(void) {
  sleep_for_room(0, &two, 64); /* there is room, and it looks in a moment */
  expect(purge_count(one.q) == 0, "there was something");
  expect_awake(1, 0, "after a purge of nothing");
  leave_beds(1);
}
static void ack_makes_room(void) {
  put_by(&one, 1);
  sleep_for_room(0, &two, 64);
  expect(get(&t, three.q, held_a, false) == 1, "nothing to take");
  expect_awake(1, 1, "after a take");
  leave_beds(1);
  expect(sb_queue_settle(three.q, held_a, SB_ACK) == SB_OK, "nothing to acknowledge");
}
static void move_makes_room(void) {
  uint64_t bytes = UINT64_MAX, removed;
  int32_t holder;
  sb_status status;
  t.c = one.c;
  if (declare(&t, "target", (sb_settings)FREELY) != SB_OK) die("declare", 0);
  sb_queue *target = open_queue(&t, "target");
  put_by(&one, 1);
  sleep_for_room(0, &two, 64);
  expect(sb_queue_move(one.q, target, 1, &bytes, &status) == 1, "the message does not move");
  expect_awake(1, 1, "after a move");
  leave_beds(1);
  (void)sb_queue_delete(target, false, false, FOREVER, &holder, &removed);
  (void)sb_queue_close(target);
}
static void less_is_enough(void) {
  put_by(&one, 1);
  for (uint64_t id = 2; id <= 5; id++) put_small_by(&one, id);
  sleep_for_room(0, &two, 90);
  sleep_for_room(1, &two, 20);
  sleep_for_room(2, &two, 20);
  expect(take(&three) == 1, "nothing to take");
  expect_awake(3, 2, "68 bytes of room");
  leave_beds(3);
  (void)left();
}
static void memory_is_free(void) {
  put_by(&one, 1);
  put_by(&one, 2);
  sleep_for_memory(0, &two);
  sleep_for_memory(1, &two);
  expect(take(&three) == 1, "nothing to take");
  expect_awake(2, 1, "after a message is gone");
  expect(purge_count(one.q) == 1, "nothing to purge");
  expect_awake(2, 3, "after a purge");
  leave_beds(2);
}

static void eviction_frees_memory(void) {
  put_by(&one, 1);
  sleep_for_memory(0, &two);
  put_by(&one, 2);
  expect_awake(1, 1, "after an eviction");
  leave_beds(1);
  expect_left(2);
}

/* ---- messages ---- */

static void as_many_as_ready(void) {
  for (unsigned i = 0; i < 3; i++) sleep_for_message(i, &two);
  put_by(&one, 1);
  expect_awake(3, 1, "after one message");
  put_by(&one, 2);
  expect_awake(3, 3, "after two messages");
  (void)take(&three);
  (void)take(&three);
  put_by(&one, 3);
  expect_awake(3, 3, "one is ready, and two are awake");
  leave_beds(3);
  (void)left();
}
static void best_first(void) {
  sleep_as(0, &two, 0, 0, 1);
  sleep_as(1, &two, 5, 0, 1);
  sleep_as(2, &three, 5, 0, 1);
  put_by(&one, 1);
  expect_awake(3, 2, "after one message");
  put_by(&one, 2);
  expect_awake(3, 6, "after two messages");
  put_by(&one, 3);
  expect_awake(3, 6, "the lower one waits while higher ones are awake");
  expect(sb_notify_higher_wants(t.b, one.q->shm, 0), "nobody above 0 wants the message");
  expect(!sb_notify_higher_wants(t.b, one.q->shm, 5), "somebody above 5 wants the message");
  expect(sb_notify_better_wants(one.q, 0) && !sb_notify_better_wants(one.q, 5), "the lists say otherwise");
  expect(!sb_notify_above(keeper.c, keeper.q->slot, 0, false), "one of those who are awake is woken");
  expect(sb_notify_one(keeper.c, keeper.q->slot, true), "nobody is rescued");
  expect_awake(3, 7, "a rescue goes past those who are awake");
  expect((SB_LOAD(&node(0)->flags, SB_RELAXED) & SB_NODE_RESCUED) != 0, "a rescue does not say so");
  expect((SB_LOAD(&node(1)->flags, SB_RELAXED) & SB_NODE_RESCUED) == 0, "who was not rescued says so");
  leave_beds(3);
  (void)left();
}
static void interested_above(void) {
  sleep_as(0, &two, 5, 0, 1);
  expect(sb_notify_higher_wants(t.b, one.q->shm, 4), "who is interested does not want");
  expect(!sb_notify_higher_wants(t.b, one.q->shm, 5), "who is interested is above itself");
  expect(!sb_notify_above(keeper.c, keeper.q->slot, 5, false), "one is woken who is not above");
  expect_awake(1, 0, "above 5");
  expect(sb_notify_above(keeper.c, keeper.q->slot, 4, false), "the one above is not woken");
  expect_awake(1, 1, "above 4");
  leave_beds(1);
}
static void browser_too(void) {
  enter(0, &two, 0, 0, 1);
  go_to_sleep(0, SB_NODE_NON_ACQUIRING);
  sleep_for_message(1, &two);
  put_by(&one, 1);
  expect(SB_LOAD(&node(0)->wakes, SB_RELAXED) == 1, "the browser is not woken");
  expect(state_of(sleepers[1].node) == SB_NODE_NOTIFIED, "the consumer is not woken");
  leave_beds(2);
  (void)left();
}
static void configure_flags(uint32_t flags) {
  int32_t holder;
  sb_settings s = {{-1, -1, -1, 0, -1, -1}, flags};
  (void)sb_queue_configure(keeper.q, &s, false, FOREVER, &holder);
}
static void paused(void) {
  configure_flags(SB_QUEUE_PAUSED);
  for (unsigned i = 0; i < 3; i++) sleep_for_message(i, &two);
  put_by(&one, 1);
  put_by(&one, 2);
  expect_awake(3, 0, "the queue is paused");
  expect(!sb_notify_looks_ready(one.q), "a paused queue looks ready");
  configure_flags(0);
  for (unsigned i = 0; i < 3; i++) { /* each looks, since the settings are others */
    expect(SB_LOAD(&node(i)->wakes, SB_RELAXED) >= 1, "sleeper %u does not look", i);
    expect((state_of(sleepers[i].node) == SB_NODE_NOTIFIED) == (i < 2), "sleeper %u has the wrong state", i);
  }
  leave_beds(3);
  (void)left();
}
static void deleted(void) {
  int32_t holder;
  uint64_t removed;
  sleep_for_message(0, &two);
  sleep_for_room(1, &two, 64);
  sleep_for_memory(2, &three);
  put_by(&one, 1);
  expect_awake(3, 1, "after a message");
  (void)sb_queue_delete(one.q, false, false, FOREVER, &holder, &removed);
  expect(SB_LOAD(&node(0)->wakes, SB_RELAXED) == 2, "the consumer is not told");
  expect(state_of(sleepers[1].node) == SB_NODE_NOTIFIED, "who waits for room is not told");
  expect(state_of(sleepers[2].node) == SB_NODE_NOTIFIED, "who waits for memory is not told");
  leave_beds(3);
}
static void housekeeper_too(void) {
  sb_put_options delay = {.delay_ns = 3600000000000u};
  sb_header_shm *h = t.b->header;
  enter(0, &two, 0, 0, 1);
  SB_STORE(&h->housekeeper_waiter, sleepers[0].node, SB_SEQ_CST);
  SB_STORE(&h->next_due_ns, UINT64_MAX, SB_SEQ_CST);
  (void)sb_wake_arm(&node(0)->wake);
  put_by(&one, 1);
  expect((SB_LOAD(&node(0)->wake, SB_SEQ_CST) & 3u) == SB_WAKE_ARMED, "a message that is due wakes the housekeeper");
  expect(put_sized(&t, one.q, 2, 64, &delay) == SB_OK, "put failed");
  expect((SB_LOAD(&node(0)->wake, SB_SEQ_CST) & 3u) == SB_WAKE_NOTIFIED, "the housekeeper is not told of a timer");
  SB_STORE(&h->housekeeper_waiter, 0, SB_SEQ_CST);
  leave_beds(1);
  (void)left();
}

/* ---- batons ---- */

static sb_consumer *consume_one_at_a_time(actor *a) {
  sb_status status;
  sb_consumer *k = sb_consumer_open(a->c, &a->q, 1, 1, 0, 0, 0, &status);
  if (k == NULL) die("sb_consumer_open", (int)status);
  return k;
}
static void leaves_after(void (*how)(sb_consumer *)) {
  sb_consumer *first = consume(&one, 0), *second = consume(&two, 0);
  put_by(&three, 7);
  expect(told(first) && !told(second), "not the first one is told");
  how(first);
  expect(told(second), "the one that leaves does not tell the other");
  expect(next(second) == 7, "the message was not delivered");
  sb_consumer_cancel(first, true);
  sb_consumer_cancel(second, true);
  sb_consumer_free(first);
  sb_consumer_free(second);
}
static void cancel(sb_consumer *k) { sb_consumer_cancel(k, true); }
static void suspend(sb_consumer *k) {
  sb_consumer_suspend(k, true);
  expect(state_of(k->subscriptions[0].node) == SB_NODE_NOT_INTERESTED, "who is suspended is interested");
}
static void cancelled(void) { leaves_after(cancel); }
static void suspended(void) { leaves_after(suspend); }
static void closed(void) {
  actor victim = {0};
  join(&victim);
  sb_consumer *first = consume(&victim, 0), *second = consume(&two, 0);
  t.c = three.c;
  put_by(&three, 7);
  expect(told(first) && !told(second), "not the first one is told");
  (void)sb_connection_close(victim.c);
  expect(told(second), "a connection that closes does not tell the other");
  expect(next(second) == 7, "the message was not delivered");
  sb_consumer_cancel(second, true);
  sb_consumer_free(second);
  sb_consumer_free(first);
  sb_queue_free(victim.q);
  (void)sb_connection_release(victim.c);
  sb_connection_free(victim.c);
}
static void starved(void) {
  sb_consumer *first = consume_one_at_a_time(&one), *second = consume(&two, 0);
  put_by(&three, 7);
  expect(sb_consumer_next(first, held_a, false) > 0, "the message was not delivered");
  put_by(&three, 8);
  expect(told(second), "who has credit is not told");
  expect(next(second) == 8, "the message was not delivered");
  put_by(&three, 9);
  expect(next(second) == 9, "the message was not delivered");
  expect(sb_consumer_settle(first, held_a, SB_ACK) == SB_OK, "nothing to acknowledge");
  sb_consumer_cancel(second, true);
  put_by(&three, 6);
  expect(told(first) && next(first) == 6, "who has credit again is not told");
  sb_consumer_cancel(first, true);
  sb_consumer_free(first);
  sb_consumer_free(second);
}
static void waiter_leaves(void) {
  sleep_for_message(0, &two);
  sleep_for_message(1, &three);
  put_by(&one, 1);
  expect_awake(2, 1, "after one message");
  sb_waiter_leave(two.q, sleepers[0].node, 0);
  expect(state_of(sleepers[0].node) == SB_NODE_NOT_INTERESTED, "who left is still interested");
  expect(state_of(sleepers[1].node) == SB_NODE_NOTIFIED, "who leaves does not tell the other");
  leave_beds(2);
  (void)left();
}
static void browser_after_a_better_one(void) { /* which gave way to the one that leaves */
  enter(0, &two, 0, 0, 1);
  go_to_sleep(0, SB_NODE_NON_ACQUIRING);
  sb_consumer *k = consume(&one, 0);
  sb_consumer_cancel(k, true);
  expect(SB_LOAD(&node(0)->wakes, SB_RELAXED) == 1, "the browser is not told that the consumer leaves");
  sb_consumer_free(k);
  leave_beds(1);
}
static void consumer_with_nothing(void) {
  sleep_for_message(0, &two);
  sb_consumer *k = consume(&one, 0);
  sb_consumer_cancel(k, true);
  expect_awake(1, 0, "nothing is ready");
  sb_consumer_free(k);
  leave_beds(1);
}
static void nothing_to_pass_on(void) {
  sleep_for_message(0, &two);
  sleep_for_message(1, &three);
  put_by(&one, 1);
  (void)take(&keeper);
  sb_waiter_leave(two.q, sleepers[0].node, 0);
  expect(state_of(sleepers[1].node) == SB_NODE_INTERESTED, "the other is told of nothing");
  leave_beds(2);
}

static const test_case CASES[] = {
    {"purge makes room", "a purge wakes a producer, which tells the next one if there is room for it", LENGTH(2),
     purge_makes_room},
    {"purge of none", "a purge that removes nothing wakes no producer", LENGTH(2), purge_of_none},
    {"ack makes room", "a take wakes a producer", LENGTH(1), ack_makes_room},
    {"move makes room", "a move wakes a producer", LENGTH(1), move_makes_room},
    {"less is enough", "room wakes one producer that can use it", BYTES(100), less_is_enough},
    {"memory is free", "memory that is given back wakes one that waits for it", FREELY, memory_is_free},
    {"ring frees memory", "what a ring replaces wakes one that waits for memory", RING(1), eviction_frees_memory},
    {"bytes free memory",
     "so does what is dropped by bytes",
     {{-1, -1, 100, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0},
     eviction_frees_memory},
    {"as many as ready", "as many consumers are awake as messages are ready", FREELY, as_many_as_ready},
    {"best first", "the best are woken first; a rescue goes past those who are awake", FREELY, best_first},
    {"interested above", "only those above are asked", FREELY, interested_above},
    {"browser too", "a message wakes each browser and one consumer", FREELY, browser_too},
    {"paused", "a paused queue wakes nobody until it is resumed", FREELY, paused},
    {"deleted", "a queue that is deleted wakes all who wait", LENGTH(1), deleted},
    {"housekeeper too", "a timer earlier than all others wakes the housekeeper", FREELY, housekeeper_too},
    {"cancelled", "a consumer that is cancelled tells another one", FREELY, cancelled},
    {"suspended", "a consumer that is suspended tells another one", FREELY, suspended},
    {"closed", "a connection that closes tells another consumer", FREELY, closed},
    {"starved", "a consumer without credit is not told, and told when it has some again", FREELY, starved},
    {"waiter leaves", "a waiting get that gives up tells another one", FREELY, waiter_leaves},
    {"browser after it", "a consumer that leaves tells browsers, if no consumer waits", FREELY,
     browser_after_a_better_one},
    {"leaves nothing", "a consumer that leaves an empty queue tells nobody", FREELY, consumer_with_nothing},
    {"nothing to pass on", "one that gives up beside an empty queue tells nobody", FREELY, nothing_to_pass_on},
};
const subject BATON_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
