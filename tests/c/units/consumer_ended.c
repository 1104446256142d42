// SPDX-License-Identifier: Apache-2.0
/* sb_consumer: batches of acknowledgements, the messages that a consumer returns, and its end. */
#include "consuming.h"
#include "sb_io.h"
#include "sb_wait.h"

/* A consumer that pulled messages 1 to `count`, which the application has got. */
static sb_consumer *handed_out(uint32_t prefetch, uint32_t batch, uint32_t count) {
  sb_consumer *k = consume(1, prefetch, 0, batch);
  put_some(0, 1, count);
  sb_consumer_pull(k);
  for (uint32_t i = 0; i < count; i++) (void)hand_out(k);
  return k;
}
static uint64_t acked(void) { return SB_LOAD(&queues[0]->ledger->counters[SB_COUNT_ACKED], SB_RELAXED); }

/* ---- acknowledgements ---- */

static void acknowledgements_wait_for_their_batch(void) {
  sb_consumer *k = handed_out(8, 3, 4);
  uint64_t before = sb_now_ns();
  expect_is(sb_consumer_ack(k, 2), SB_OK, "the status of an acknowledgement");
  expect_is(k->ack_slots[2].next_free, SB_ACK_WAITS, "the mark of a place that waits");
  expect(k->ack_slots[2].token != 0, "a place that waits is free");
  expect(k->acks_due_ns >= before + PATIENCE && k->acks_due_ns <= sb_now_ns() + PATIENCE, "it is due at another time");
  k->acks_due_ns = 5;
  expect_is(sb_consumer_ack(k, 0), SB_OK, "the status of the second one");
  expect_is(k->acks_due_ns, 5, "when the batch is due, which the first one says");
  expect_is(acked(), 0, "what was settled before the batch was full");
  expect_is(k->unacked, 4, "what is unacked before the batch was full");
  expect_is(sb_consumer_ack(k, 3), SB_OK, "the status of the third one");
  expect_is(acked(), 3, "what was settled with the batch");
  expect_is(k->unacked, 1, "what is unacked after the batch");
  expect_is(k->ack_count, 0, "what waits after the batch");
  expect_is(k->free_ack_slot, 4, "the free place: the last one that was acknowledged");
  expect_is(k->ack_slots[2].token | k->ack_slots[0].token | k->ack_slots[3].token, 0, "what is in the free places");
  expect(k->ack_slots[1].token != 0, "another place is free");
  sb_consumer_flush(k);
  expect_is(acked(), 3, "what is settled when nothing waits");
  expect_is(consumer_node(k, 0)->unacked, 1, "what the node shows as unacked");
  k->closed = true; /* from then on the slot of the node may be in another use */
  sb_consumer_ack(k, 1);
  expect_is(acked(), 4, "what a closed consumer settles");
  expect_is(consumer_node(k, 0)->unacked, 1, "what the node of a closed consumer shows");
}
static void a_batch_that_is_settled_resumes_and_makes_room(void) {
  sb_consumer *k = handed_out(2, 2, 2);
  uint32_t waits = make_node(0, 0, SB_NODE_ROOM | SB_NODE_MEMORY | SB_NODE_DIRECT, 0, SB_NODE_INTERESTED);
  expect(k->starved, "a consumer that holds what it may is not starved");
  sb_consumer_ack(k, 0);
  expect_is(node_state(waits), SB_NODE_INTERESTED, "a call that waits for memory, before the batch");
  sb_consumer_ack(k, 1);
  expect_is(node_state(waits), SB_NODE_NOTIFIED, "a call that waits for memory, after the batch");
  k->starved = true;
  put_some(0, 3, 4);
  sb_consumer_flush(k);
  expect_is(in_row(k), 2, "the messages that were pulled with the new credit");
  expect_is(id_in_row(k, 0), 3, "the first of them");
}
static sb_half *io_word(void) { return &node_shm(t.c->io_node)->wake; }
static bool rung(sb_consumer *k, uint32_t place) {
  (void)sb_wake_arm(io_word());
  sb_consumer_ack(k, place);
  return (SB_LOAD(io_word(), SB_RELAXED) & 3u) == SB_WAKE_NOTIFIED;
}
/* The IO thread looks as often as the least patient consumer wants. */
static void the_io_thread_is_told_of_a_batch(void) {
  if (sb_io_prepare(t.c) != SB_OK) die("sb_io_prepare", 0);
  sb_consumer *k = handed_out(8, 8, 5);
  expect(rung(k, 0), "the IO thread is not told of the first batch");
  expect_is(t.c->acks_tick_ns, PATIENCE, "how often it looks");
  expect(!rung(k, 1), "it is told of the second acknowledgement");
  sb_consumer_flush(k);
  expect(!rung(k, 2), "it is told of an interval that it knows");
  sb_consumer_flush(k);
  t.c->acks_tick_ns = PATIENCE - 1;
  expect(!rung(k, 3), "it is told of a longer interval");
  expect_is(t.c->acks_tick_ns, PATIENCE - 1, "how often it looks for one that is less patient");
  sb_consumer_flush(k);
  t.c->acks_tick_ns = PATIENCE + 1;
  expect(rung(k, 4), "it is not told of a shorter interval");
  expect_is(t.c->acks_tick_ns, PATIENCE, "how often it looks from then on");
}

/* ---- what is given back ---- */

static void expect_next(uint64_t should, const char *what) {
  static char record[BUFFER];
  const sb_record *r = (const sb_record *)(const void *)record;
  expect_is(get(&t, queues[0], record, true), should, what);
  if (should != 0) expect_is(r->delivery_count, 1, "how often it was delivered: what goes back so was not");
}
static void the_row_goes_back(void) {
  sb_consumer *k = consume(1, 4, 0, 3);
  put_some(0, 1, 6);
  sb_consumer_pull(k);
  uint32_t kept = hand_out(k), acknowledged = hand_out(k);
  sb_consumer_ack(k, acknowledged);
  k->closed = true;
  sb_consumer_return(k, false);
  expect_is(acked(), 1, "what was acknowledged is settled");
  expect_is(in_row(k), 0, "what is in the row");
  expect_is(k->unacked, 1, "what the application has");
  expect(k->ack_slots[kept].token != 0, "what the application has was given back");
  for (uint32_t place = 0; place < 4; place++)
    if (place != kept) expect_is(k->ack_slots[place].token, 0, "what is in a place that is free");
  expect_next(3, "the first that came back");
  expect_next(4, "the second that came back");
  expect_next(5, "the first that was not pulled");
}
static void everything_goes_back(void) {
  sb_consumer *k = consume(1, 5, 0, ALONE);
  put_some(0, 1, 5);
  sb_consumer_pull(k);
  (void)hand_out(k);
  k->closed = true;
  k->prefetch = 4; /* what lies behind the places is no place */
  sb_consumer_return(k, true);
  expect_is(in_row(k), 0, "what is in the row");
  expect_is(k->unacked, 0, "what is unacked");
  for (uint32_t place = 0; place < 4; place++) expect_is(k->ack_slots[place].token, 0, "what is in a place");
  expect(k->ack_slots[4].token != 0, "what lies behind the places was given back");
  for (uint64_t id = 1; id <= 4; id++) expect_next(id, "what came back");
  expect_next(0, "what did not come back");
}

/* ---- its end ---- */

/* Who is interested is told before the consumer is gone. */
static void a_consumer_that_ends_passes_the_baton(void) {
  sb_consumer *k = consume(2, 4, 0, ALONE);
  put_some(0, 1, 1);
  put_some(1, 1, 1);
  uint32_t nodes[] = {k->subscriptions[0].node, k->subscriptions[1].node};
  uint64_t tokens[] = {k->subscriptions[0].token, k->subscriptions[1].token};
  uint32_t others[] = {make_node(queues[0]->slot, 0, SB_NODE_DIRECT, 0, SB_NODE_INTERESTED),
                       make_node(queues[1]->slot, 0, SB_NODE_DIRECT, 0, SB_NODE_INTERESTED)};
  k->local = 4;
  sb_consumer_detach(k);
  expect(k->closed, "it is not closed");
  expect_is(k->subscription_count, 0, "its subscriptions");
  expect_is(local_of(k), 5, "the word of threads that wait");
  for (unsigned i = 0; i < 2; i++) {
    expect_is(node_state(others[i]), SB_NODE_NOTIFIED, "the state of another one");
    expect_is(sb_slot_state(SB_LOAD(sb_slot_header(t.b, nodes[i]), SB_RELAXED)), SB_SLOT_FREE, "the slot of its node");
    expect_is(sb_holding_kind(SB_LOAD(&sb_holding_at(t.b, tokens[i])->what, SB_RELAXED)), SB_HOLD_NONE, "its holding");
    expect_is(queues[i]->shm->consumers, 0, "how many consumers the queue has");
  }
}
static void a_single_active_consumer_has_a_successor(void) {
  queues[0] = new_queue("a", (sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_SINGLE_ACTIVE});
  sb_consumer *active = consume(1, 4, 0, ALONE), *next = consume(1, 4, 0, ALONE);
  expect_is(SB_LOAD(&queues[0]->shm->exclusive, SB_RELAXED) & ((1u << 28) - 1), active->subscriptions[0].node,
            "the active one");
  sb_consumer_detach(active);
  expect_is(SB_LOAD(&queues[0]->shm->exclusive, SB_RELAXED) & ((1u << 28) - 1), next->subscriptions[0].node,
            "its successor");
}

static const test_case CASES[] = {
    {"consumer: batch", "acknowledgements are settled when their batch is full", acknowledgements_wait_for_their_batch},
    {"consumer: flushed", "with a batch the consumer goes on, and who waits for memory is told",
     a_batch_that_is_settled_resumes_and_makes_room},
    {"consumer: interval", "the IO thread looks as often as the shortest interval", the_io_thread_is_told_of_a_batch},
    {"consumer: returned", "what the application has not got goes back in its order", the_row_goes_back},
    {"consumer: all returned", "what the application has got goes back, too", everything_goes_back},
    {"consumer: baton", "another consumer is told when one ends", a_consumer_that_ends_passes_the_baton},
    {"consumer: successor", "the next consumer is active when the active one ends",
     a_single_active_consumer_has_a_successor},
};
SUBJECT(CASES)
