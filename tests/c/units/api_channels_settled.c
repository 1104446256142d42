// SPDX-License-Identifier: Apache-2.0
/* sb_api_channels: the ends of deliveries, calls that wait on a channel, and the hand-over of channels. */
#include "calls.h"
#include "channels.h"
#include "meanwhile.h"
#include "sb_ledger.h"
#include "sb_view.h"

#define AT_A_TIME 1024u /* number settled before other threads get the lock */

static uint64_t counted(unsigned counter) { return SB_LOAD(&first_queue->ledger->counters[counter], SB_RELAXED); }
static uint64_t held(void) { return (uint32_t)SB_LOAD(&first_queue->ledger->holding, SB_RELAXED); }
static sb_unacked *by_tag(uint64_t tag) { return sb_deliveries_find(&ch->deliveries, tag); }
static sb_member *m;
/* A consumer, to which this many messages were given. */
static void give(unsigned n) {
  begin_channels();
  m = join_channel(ch, first_queue, 0, 0, 0);
  stranger_puts(first_queue, n);
  for (unsigned i = 0; i < n; i++) {
    if (sb_channel_next(ch, last_record) < 0) die("sb_channel_next", 0);
  }
}
static void expect_given(const char *what, unsigned n, uint64_t first, uint64_t last) {
  const sb_unacked *a = sb_deliveries_at(&ch->deliveries, ch->deliveries.given.first),
                   *b = sb_deliveries_at(&ch->deliveries, ch->deliveries.given.last);
  expect(sb_channel_unacked(ch) == n, "%s: %u are given, not %u", what, sb_channel_unacked(ch), n);
  expect(n == 0 || (a->tag == first && b->tag == last), "%s: others are given", what);
  expect_is(held(), n + sb_channel_waiting(ch), what);
}

/* ---- settling ---- */

static void one_is_settled(void) {
  give(5);
  expect_is(sb_channel_settle(ch, 3, false, SB_ACK), SB_OK, "the status");
  expect_given("when one is settled", 4, 1, 5);
  expect(by_tag(3) == NULL, "it is still given");
  expect_is(counted(SB_COUNT_ACKED), 1, "what was settled");
  expect_is(sb_channel_settle(ch, 3, false, SB_ACK), SB_SETTLED, "the status of what is settled");
  expect_is(sb_channel_settle(ch, 0, false, SB_ACK), SB_SETTLED, "the status of no tag");
  expect_is(sb_channel_settle(ch, 9, false, SB_ACK), SB_SETTLED, "the status of a tag that was never given");
  expect_is(sb_channel_settle(ch, 1, false, SB_REJECT), SB_OK, "the status of what is rejected");
  expect_is(counted(SB_COUNT_DROPPED), 1, "what was rejected");
  expect_given("when one was rejected", 3, 2, 5);
  expect_is(t.c->lock, 0, "the lock");
  sb_dispose(first_queue, by_tag(2)->token, SB_REASON_ACKED);
  expect_is(sb_channel_settle(ch, 2, false, SB_ACK), SB_OK, "the status of what was settled elsewhere");
  expect_given("when one was settled elsewhere", 2, 4, 5);
}
static void several_are_settled(void) {
  give(6);
  expect_is(sb_channel_settle(ch, 9, true, SB_ACK), SB_SETTLED, "the status up to a tag that was never given");
  expect_given("when none was settled", 6, 1, 6);
  expect_is(sb_channel_settle(ch, 2, true, SB_ACK), SB_OK, "the status up to one of them");
  expect_given("when two are settled", 4, 3, 6);
  expect_is(sb_channel_settle(ch, 1, true, SB_ACK), SB_SETTLED, "the status up to one that is settled");
  expect_is(sb_channel_settle(ch, 6, true, SB_ACK), SB_OK, "the status up to the last one");
  expect_given("when all are settled", 0, 0, 0);
  expect_is(counted(SB_COUNT_ACKED), 6, "what was settled");
  expect_is(sb_channel_settle(ch, 0, true, SB_ACK), SB_OK, "the status of all of none");
  stranger_puts(first_queue, 2);
  (void)sb_channel_next(ch, last_record);
  (void)sb_channel_next(ch, last_record);
  expect_is(sb_channel_settle(ch, 0, true, SB_REQUEUE), SB_OK, "the status of all");
  expect_is(sb_channel_unacked(ch), 0, "what is given when all went back");
  refuse(t.c, SB_STOPPING);
  expect_is(sb_channel_settle(ch, 0, true, 1), SB_STOPPING, "the status of a refused one");
  refuse(t.c, SB_OK);
  expect_is(sb_channel_settle(ch, 0, true, 1), SB_OK, "the status of none");
}
/* The application never saw it. */
static void what_was_not_seen(void) {
  give(4);
  expect_is(sb_channel_settle(ch, 4, false, SB_UNDELIVER), SB_OK, "the status");
  expect_member(m, "when the last one was taken back", 4, 1, true);
  expect_is(ch->deliveries.last_tag, 3, "the last tag");
  expect_is(next_of(ch), 4, "the next one");
  ch->deliveries.last_tag = 10;
  stranger_puts(first_queue, 3);
  expect(sb_channel_get(ch, first_queue, last_record, false) > 0, "nothing is got");
  expect(sb_channel_get(ch, first_queue, last_record, false) > 0, "nothing is got");
  expect_is(ch->deliveries.last_tag, 12, "the last tag of what was got");
  expect_is(sb_channel_settle(ch, 11, false, SB_UNDELIVER), SB_OK, "the status of what was got");
  expect_is(ch->deliveries.last_tag, 12, "the last tag when another one went back");
  expect_is(sb_channel_settle(ch, 12, false, SB_UNDELIVER), SB_OK, "the status of what was got last");
  expect_is(ch->deliveries.last_tag, 11, "the last tag when the last one went back");
  expect(by_tag(11) == NULL && by_tag(12) == NULL, "what was got is held");
  expect_is(sb_channel_cancel(ch, m->number), SB_OK, "the status of a cancel");
  expect_is(sb_channel_settle(ch, 1, false, SB_UNDELIVER), SB_OK, "the status of one whose consumer ended");
  expect_given("when its consumer ended", 3, 2, 4);
  expect_is(sb_channel_waiting(ch), 0, "what waits for no consumer");
}
/* Other threads get the lock for a moment after this many. */
static unsigned locks;
static bool closes;
static void count_lock(void) {
  locks++;
  if (closes && locks == 2) SB_STORE(&ch->closed, 1u, SB_RELAXED);
  meanwhile(&t.c->lock, BEFORE_CAS, 1, count_lock);
}
static void many_are_settled(void) {
  give(2 * AT_A_TIME + 3);
  if (!has_steps()) return;
  meanwhile(&t.c->lock, BEFORE_CAS, 1, count_lock);
  expect_is(sb_channel_settle(ch, 2 * AT_A_TIME + 1, true, SB_ACK), SB_OK, "the status");
  meanwhile(NULL, BEFORE_CAS, 1, NULL);
  expect_is(locks, 3, "how often the lock was taken");
  expect_given("when many are settled", 2, 2 * AT_A_TIME + 2, 2 * AT_A_TIME + 3);
  expect_is(ch->deliveries.room, 16, "the room for two");
  expect_is(t.c->lock, 0, "the lock");
}
static void closed_while_many_are_settled(void) {
  give(AT_A_TIME + 3);
  if (!has_steps()) return;
  closes = true;
  meanwhile(&t.c->lock, BEFORE_CAS, 1, count_lock);
  expect_is(sb_channel_settle(ch, 0, true, SB_ACK), SB_CLOSED, "the status");
  meanwhile(NULL, BEFORE_CAS, 1, NULL);
  expect_is(sb_channel_unacked(ch), 3, "what was not settled");
  expect_is(ch->deliveries.room, 2 * AT_A_TIME, "the room of a channel that is closed");
  expect_is(t.c->lock, 0, "the lock");
}

/* ---- what a commit settles ---- */

static void deliveries_are_collected(void) {
  sb_settlement all[4] = {{0}};
  give(5);
  expect_is(sb_channel_collect(ch, 9, false, SB_ACK, all, 4), -(int64_t)SB_SETTLED, "how many there are of no tag");
  expect_is(sb_channel_collect(ch, 9, true, SB_ACK, all, 4), -(int64_t)SB_SETTLED, "how many there are up to no tag");
  expect(all[0].queue == NULL, "what is not there is collected");
  expect_is(sb_channel_collect(ch, 2, false, SB_REQUEUE, all, 4), 1, "how many there are of one tag");
  expect(all[0].queue == first_queue && all[0].token == by_tag(2)->token, "another one is collected");
  expect(all[0].disposition == SB_REQUEUE && all[0].delivery_tag == 2 && all[1].queue == NULL,
         "it is collected for something else");
  expect_is(sb_channel_collect(ch, 3, true, SB_REJECT, all, 2), 3, "how many there are up to a tag");
  expect(all[0].delivery_tag == 1 && all[1].delivery_tag == 2 && all[2].queue == NULL, "more is written than fits");
  expect_is(sb_channel_collect(ch, 0, true, SB_ACK, all, 4), 5, "how many there are");
  expect(all[3].delivery_tag == 4, "the fourth one is another one");
  expect_given("when they were collected", 5, 1, 5);
  expect_is(t.c->lock, 0, "the lock");
}
static void deliveries_are_forgotten(void) {
  give(70);
  expect_is(ch->deliveries.room, 128, "the room for 70");
  ch->limit = 70;
  stranger_puts(first_queue, 1);
  sb_channel_limits_changed(t.c, ch);
  sb_channel_forget(ch, 3, false);
  expect(by_tag(3) == NULL && sb_channel_unacked(ch) == 69, "it is not forgotten");
  expect_is(sb_channel_waiting(ch), 1, "what waits when there was credit");
  sb_channel_forget(ch, 68, true);
  expect_is(sb_channel_unacked(ch), 2, "what is given when many are forgotten");
  expect_is(ch->deliveries.room, 16, "the room for few");
  expect_is(held(), 70 + 1, "what is held: settling it is the commit's");
  expect_is(t.c->lock, 0, "the lock");
}

/* ---- calls that wait ---- */

static sb_channel_wait before, later;
static unsigned act_at;
static void nothing(void) {}
/* Another call waits on the channel since, and one did before. */
static void another_waits(void) {
  expect(ch->waits != NULL && ch->waits->next == &before && before.previous == ch->waits, "it is not before the other");
  expect(ch->waits->node != NULL && ch->waits->previous == NULL, "it has no node");
  later = (sb_channel_wait){.next = ch->waits};
  ch->waits->previous = &later;
  ch->waits = &later;
}
static void close_the_channel(void) { SB_STORE(&ch->closed, 1u, SB_SEQ_CST); }
static void close_the_connection(void) { SB_STORE(&t.c->closed, 1u, SB_SEQ_CST); }
static int64_t get_wait(uint64_t look_ns, unsigned nth_lock, void (*act)(void)) {
  static sb_wait wait;
  wait = (sb_wait){look_ns == UINT64_MAX ? AT_ONCE : UINT64_MAX, look_ns, 0, 0};
  act_at = nth_lock;
  meanwhile(&t.c->lock, BEFORE_CAS, nth_lock, act);
  int64_t length = sb_channel_get_wait(ch, first_queue, last_record, false, &wait);
  if (act != nothing) (void)has_acted();
  expect(wait.node == 0 || length == -(int64_t)SB_TICK, "its node is left");
  expect_is(t.c->lock, 0, "the lock");
  if (wait.node != 0) sb_queue_end_wait(first_queue, &wait);
  return length;
}
static void a_call_waits(void) {
  begin_channels();
  ch->waits = &before;
  expect_is(get_wait(UINT64_MAX, 2, another_waits), -(int64_t)SB_TIMEOUT, "the status of nothing");
  if (!has_steps()) return;
  expect(ch->waits == &later && later.next == &before && before.previous == &later, "it did not leave the middle");
  ch->waits = &before;
  before.previous = NULL;
  expect_is(get_wait(1, 1, nothing), -(int64_t)SB_TICK, "the status of a look");
  expect(ch->waits == &before && before.previous == NULL, "it did not leave the front");
  ch->waits = NULL;
  stranger_puts(first_queue, 2);
  expect_is(id_of_record(get_wait(UINT64_MAX, 3, nothing)), 1, "what is got");
  expect(has_acted(), "the lock was taken less than three times");
  expect(ch->waits == NULL, "it still waits");
  expect_is(by_tag(1)->tag, 1, "its tag");
}
/* What it took by then goes back, unless its connection has returned all. */
static void its_channel_is_closed(void) {
  begin_channels();
  if (!has_steps()) return;
  stranger_puts(first_queue, 1);
  expect_is(get_wait(UINT64_MAX, 3, close_the_channel), -(int64_t)SB_CLOSED, "the status with a message");
  expect_is(held(), 0, "what is held");
  expect_is(sb_channel_unacked(ch), 0, "what is given");
  expect(get(&stranger, strangers_queue, last_record, true) != 0, "it did not go back");
  SB_STORE(&ch->closed, 0u, SB_SEQ_CST);
  expect_is(get_wait(1, 3, close_the_channel), -(int64_t)SB_CLOSED, "the status beside nothing");
  SB_STORE(&ch->closed, 0u, SB_SEQ_CST);
  stranger_puts(first_queue, 1);
  expect_is(get_wait(UINT64_MAX, 3, close_the_connection), -(int64_t)SB_CLOSED, "the status of a closed connection");
  expect_is(held(), 1, "what is held by a connection that returned it");
}

/* ---- hand-over ---- */

static void a_channel_is_armed(void) {
  begin_channels();
  m = join_channel(ch, first_queue, 0, 0, 0);
  sb_channel *second = open_channel(2);
  expect_is(sb_connection_next_ready(t.c), 0, "what is ready at first");
  expect(!sb_channel_arm(ch) && ch->armed, "it is not armed");
  stranger_puts(first_queue, 1);
  (void)sb_channel_turn(ch);
  expect(ch->ready && !ch->armed, "it is not ready");
  ch->ready = true;
  expect(sb_channel_arm(ch) && !ch->armed, "it is armed beside something");
  expect_is(next_of(ch), 1, "what is there");
  expect(!sb_channel_arm(ch) && ch->armed && !ch->ready, "what was not collected is another hand-over");
  expect(t.c->ready_first == NULL, "it is still in the list");
  stranger_puts(first_queue, 1);
  (void)sb_channel_turn(ch);
  expect_is(sb_connection_next_ready(t.c), 1, "what is ready");
  expect(!ch->ready && t.c->ready_first == NULL, "it is ready twice");
  expect_is(sb_connection_next_ready(t.c), 0, "what is ready afterwards");
  expect_is(t.c->lock, 0, "the lock");
  expect(!sb_channel_arm(second), "there is something in another channel");
}

/* A thread gives its delivery back after the dispatcher found the row empty, and armed the channel. */
static void taken_back_when_armed(void) {
  give(1);
  expect(!sb_channel_arm(ch) && ch->armed, "it is not armed");
  expect_is(sb_channel_settle(ch, 1, false, SB_UNDELIVER), SB_OK, "the status");
  expect(ch->ready && !ch->armed, "it is not ready");
  expect_is(sb_connection_next_ready(t.c), 1, "what is ready");
  expect_is(next_of(ch), 1, "what is there");
}

static const test_case CASES[] = {
    {"api_channels_settled: one", "one delivery is settled", one_is_settled},
    {"api_channels_settled: several", "all up to a tag are settled", several_are_settled},
    {"api_channels_settled: unseen", "what the application never saw is the next one again", what_was_not_seen},
    {"api_channels_settled: many", "others have the lock while many are settled", many_are_settled},
    {"api_channels_settled: closed", "a channel is closed while many are settled", closed_while_many_are_settled},
    {"api_channels_settled: collected", "what a commit settles is collected", deliveries_are_collected},
    {"api_channels_settled: forgotten", "what a commit settled is forgotten", deliveries_are_forgotten},
    {"api_channels_settled: waits", "a call that waits is known to its channel", a_call_waits},
    {"api_channels_settled: waits, closed", "a call ends with the channel it waits on", its_channel_is_closed},
    {"api_channels_settled: armed", "a channel is handed over once it is armed", a_channel_is_armed},
    {"api_channels_settled: armed back", "a delivery that comes back makes an armed channel ready",
     taken_back_when_armed},
};
SUBJECT(CASES)
