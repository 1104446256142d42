// SPDX-License-Identifier: Apache-2.0
/* sb_api_consumers: the next message and its end, waiting, suspending, and events. */
#include <string.h>

#include "channels.h"
#include "consuming.h"
#include "sb_api.h"
#include "surroundings.h"

#define BATCH 3u
#define INLINE SB_INLINE_BODY

static char buffer[BUFFER];
static sb_consumer *k;

static const sb_record *record(void) { return (const sb_record *)(const void *)buffer; }
static uint64_t next_id(bool auto_ack) {
  int64_t length = sb_consumer_next(k, buffer, auto_ack);
  return length > 0 ? id_at(body_of(buffer, length), record()->body_length) : 0;
}
static void expect_status(sb_status should, const char *what) {
  expect_is(-sb_consumer_next(k, buffer, false), should, what);
}
static uint64_t acked(void) { return counted(queues[0], SB_COUNT_ACKED); }
static uint64_t tag_of(uint32_t place) { return k->ack_slots[place].token | SB_FIELD(place, SB_TAG_ACK_SLOT); }
static sb_status settle(uint64_t tag, sb_disposition disposition) {
  char copy[sizeof(sb_record)];
  memcpy(copy, &tag, sizeof tag);
  return sb_consumer_settle(k, copy, disposition);
}
static void put_sized_one(uint64_t id, uint64_t bytes) {
  const sb_put_options none = {0};
  expect_is(put_sized(&t, queue_number(0), id, bytes, &none), SB_OK, "the status of a put");
}
static unsigned kind_of(uint64_t token) {
  return sb_holding_kind(SB_LOAD(&sb_holding_at(t.b, token)->what, SB_RELAXED));
}

/* ---- the next message ---- */

static void what_a_record_says(void) {
  k = consume(2, 4, 0, ALONE);
  put_some(1, 7, 8);
  expect_is(next_id(false), 7, "the first message");
  uint32_t place = (uint32_t)(record()->tag >> SB_TAG_ACK_SLOT);
  expect_is(record()->tag, tag_of(place), "its tag");
  expect_is(record()->subscription, 1, "its subscription");
  expect_is(sb_consumer_unacked(k), 2, "what is unacked");
  expect_is(sb_consumer_waiting(k), 1, "what waits in the row");
  expect_is(sb_consumer_delivered(k), 1, "what was delivered");
  expect_is(consumer_node(k, 1)->delivered, 1, "what its node delivered");
  expect_is(consumer_node(k, 0)->delivered, 0, "what the other node delivered");
  expect_is(next_id(true), 8, "the second message");
  expect_is(counted(queues[1], SB_COUNT_ACKED), 1, "what was acknowledged");
  expect_is(sb_consumer_unacked(k), 1, "what is unacked after a message that was settled when it was given");
  expect_is(sb_consumer_delivered(k), 2, "what was delivered in the end");
  expect_status(SB_EMPTY, "the status of an empty queue");
}
/* A long body that is settled when it is given is read through a view; a short one is copied. */
static void bodies_that_are_settled(void) {
  k = consume(1, 4, 0, ALONE);
  put_sized_one(1, INLINE);
  put_sized_one(2, INLINE + 8);
  put_sized_one(3, INLINE + 8);
  expect_is(next_id(true), 1, "the short one");
  expect_is(record()->body_address, 0, "where its body lies: in the record");
  expect(kind_of(record()->tag & SB_TAG_TOKEN) != SB_HOLD_VIEW, "it has a view");
  expect_is(next_id(true), 2, "the long one");
  expect_is(kind_of(record()->tag), SB_HOLD_VIEW, "its tag: a view");
  sb_view_drop(t.c, record()->tag);
  expect_is(next_id(false), 3, "the long one that is not settled");
  expect_is(kind_of(record()->tag & SB_TAG_TOKEN), SB_HOLD_CELL, "its tag: what is held");
}
static sb_message_shm *first_of_row(void) {
  sb_taken taken;
  sb_leaf_ref leaf;
  if (!sb_settle_find(t.c, k->ack_slots[place_in_row(k, 0)].token, &taken, &leaf)) die("sb_settle_find", 0);
  return taken.message;
}
/* What cannot be read ends; the next call goes on behind it. */
static void a_damaged_message(void) {
  k = consume(1, 4, 0, ALONE);
  put_sized_one(1, INLINE + 8);
  put_sized_one(2, 64);
  note_rest(queues[0]);
  sb_consumer_pull(k);
  first_of_row()->body_length = UINT64_MAX;
  expect_is(-sb_consumer_next(k, buffer, true), SB_CORRUPT, "the status");
  expect_is(counted(queues[0], SB_COUNT_DROPPED), 1, "what was dropped");
  expect_is(sb_consumer_delivered(k), 0, "what was delivered");
  expect_is(sb_consumer_unacked(k), 1, "what is unacked");
  expect_is(next_id(true), 2, "the next message");
  expect_calm("a message that cannot be read");
}
static void a_message_without_a_view(void) {
  k = consume(1, 4, 0, ALONE);
  put_sized_one(1, INLINE + 8);
  sb_consumer_pull(k);
  sb_word *header = sb_slot_header(t.b, sb_slot_of(t.b, first_of_row()));
  uint64_t before = SB_LOAD(header, SB_RELAXED);
  SB_STORE(header, before | SB_FIELD((1u << SB_MAX_REFS) - 1, 2), SB_RELAXED);
  expect_is(-sb_consumer_next(k, buffer, true), SB_LIMIT, "the status without a reference for a view");
  expect_is(in_row(k), 1, "the messages in the row");
  expect_is(sb_consumer_delivered(k), 0, "what was delivered");
  SB_STORE(header, before, SB_RELAXED);
  expect_is(next_id(true), 1, "the message when there is a reference");
}
/* The parts of a body break after they were found to be long enough. */
static uint32_t head;
static void break_them(void) { break_parts(head); }
static void parts_that_break(void) {
  char *memory = untouched(BUFFER);
  k = consume(1, 4, 0, ALONE);
  put_sized_one(1, INLINE / 2); /* there are short slots */
  leave_chunks(0);
  const sb_put_options o = {.properties = buffer, .properties_length = 30000};
  note_rest(queues[0]);
  expect_is(put_sized(&t, queues[0], 2, INLINE + 8, &o), SB_OK, "the status of a put");
  expect_is(next_id(true), 1, "the message in one piece");
  sb_consumer_pull(k);
  head = sb_slot_of(t.b, first_of_row());
  at_touch(memory, break_them);
  expect_is(-sb_consumer_next(k, memory, true), SB_CORRUPT, "the status");
  expect_is(touches, 1, "how often the record was written");
  expect_is(counted(queues[0], SB_COUNT_DROPPED), 1, "what was dropped");
  expect_calm("a message whose parts broke");
}

static void a_row_that_is_not_empty(void) {
  k = consume(1, 4, 0, ALONE);
  put_some(0, 1, 1);
  sb_consumer_pull(k);
  put_some(0, 2, 2);
  expect_is(next_id(false), 1, "the message of the row");
  expect_is(sb_consumer_unacked(k), 1, "what was pulled: nothing, as long as the row is not empty");
  expect_is(next_id(false), 2, "the message that was pulled then");
}
/* A message is ready, but there is no memory to hold it. The caller hears which memory is missing; the IO thread adds a
 * segment, and the consumer takes another turn then. */
static void expect_lacking(sb_status should, const char *what) {
  leave_no_holding(should == SB_GROW);
  expect_status(should, what);
  t.c->must_grow = false;
  expect_is(k->target.kind->turn(&k->target), should == SB_GROW, "whether it takes another turn");
  expect_is(t.c->must_grow, should == SB_GROW, "whether the IO thread adds a segment");
}
static void no_memory_to_hold_a_message(void) {
  k = consume(1, 4, 0, ALONE);
  put_some(0, 1, 1);
  expect_lacking(SB_NO_MEMORY, "the status where no segment may be added");
  expect_lacking(SB_GROW, "the status where a segment may be added");
  sb_consumer_suspend(k, true);
  expect_status(SB_EMPTY, "the status of a suspended consumer");
}
static void what_an_earlier_turn_lacked(void) {
  k = consume(1, 4, 0, ALONE);
  k->lacks = SB_NO_MEMORY;
  expect_status(SB_EMPTY, "the status of a turn that lacks nothing");
}
static void a_suspended_consumer(void) {
  k = consume(1, 4, 0, BATCH);
  put_some(0, 1, 2);
  expect_is(next_id(false), 1, "the first message");
  expect_is(sb_consumer_settle(k, buffer, SB_ACK), SB_OK, "the status of an acknowledgement");
  sb_consumer_suspend(k, true);
  expect_is(next_id(false), 2, "what was pulled before");
  expect_status(SB_EMPTY, "the status of a suspended consumer");
  expect(!k->starved, "it is starved");
  expect_is(acked(), 0, "what was settled");
}
/* Without credit an acknowledgement is settled immediately; with credit it waits for its batch. */
static void credit_that_waits_for_its_batch(void) {
  k = consume(1, 2, 0, 2);
  put_some(0, 1, 4);
  expect_is(next_id(false), 1, "the first message");
  expect_is(sb_consumer_settle(k, buffer, SB_ACK), SB_OK, "the status of an acknowledgement");
  expect_is(next_id(false), 2, "the second message");
  expect_is(acked(), 0, "what was settled while the row was not empty");
  expect_is(next_id(false), 3, "the message that needs the credit");
  expect_is(acked(), 1, "what was settled");
  expect_status(SB_EMPTY, "the status without credit");
}
static void credit_that_is_left(void) {
  k = consume(1, 4, 0, BATCH);
  put_some(0, 1, 1);
  expect_is(next_id(false), 1, "the first message");
  expect_is(sb_consumer_settle(k, buffer, SB_ACK), SB_OK, "the status of an acknowledgement");
  expect_status(SB_EMPTY, "the status of an empty queue");
  expect_is(acked(), 0, "what was settled although there is credit");
}
static void a_starved_consumer_goes_on(void) {
  k = consume(1, 4, 0, ALONE);
  k->starved = true;
  set_consumer_state(k, 0, SB_NODE_NOT_INTERESTED);
  put_some(0, 1, 3);
  expect_is(next_id(false), 1, "the first message");
  expect(!k->starved, "it is starved with credit");
  expect_is(in_row(k), 2, "what it pulled beside it");
}
static void there_will_be_none(void) {
  k = consume(1, 4, 0, ALONE);
  remove_queue(0);
  expect_status(SB_DELETED, "the status of a deleted queue");
  k->closed = true;
  expect_status(SB_CLOSED, "the status of a closed consumer");
  expect(!k->starved, "a closed consumer looked for messages");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_status(REFUSAL[i], "the status of a connection that cannot be used");
    expect_untouched(t.c, "a next that is refused");
    refuse(t.c, SB_OK);
  }
}

/* ---- what becomes of it ---- */

static void messages_are_settled(void) {
  k = consume(1, 8, 0, ALONE);
  put_some(0, 1, 5);
  uint64_t tags[5];
  for (unsigned i = 0; i < 5; i++) {
    expect_is(next_id(false), i + 1, "a message");
    tags[i] = record()->tag;
  }
  expect_is(settle(tags[0], SB_ACK), SB_OK, "the status of an acknowledgement");
  expect_is(acked(), 1, "what was acknowledged");
  expect_is(settle(tags[0], SB_ACK), SB_SETTLED, "the status of another acknowledgement");
  expect_is(settle(tags[1], SB_REJECT), SB_OK, "the status of a rejection");
  expect_is(counted(queues[0], SB_COUNT_DROPPED), 1, "what was dropped");
  expect_is(settle(tags[2], SB_REQUEUE), SB_OK, "the status of a requeue");
  expect_is(sb_consumer_unacked(k), 2, "what is unacked");
  expect_is(next_id(false), 3, "the message that was requeued");
  expect_is(record()->marks, 1, "whether it was given before");
  (void)sb_dispose(queues[0], tags[4] & SB_TAG_TOKEN, SB_REASON_ACKED);
  expect_is(settle(tags[4], SB_ACK), SB_SETTLED, "the status of a message that was settled elsewhere");
}
static void tags_of_nothing(void) {
  k = consume(1, 4, 0, BATCH);
  put_some(0, 1, 4);
  sb_consumer_pull(k);
  uint64_t tag = tag_of(hand_out(k)), last;
  (void)hand_out(k);
  (void)hand_out(k);
  last = tag_of(hand_out(k));
  uint32_t place = (uint32_t)(tag >> SB_TAG_ACK_SLOT), last_place = (uint32_t)(last >> SB_TAG_ACK_SLOT);
  expect_is(last_place, 3, "the last place");
  k->prefetch = 3;
  expect_is(settle(last, SB_REQUEUE), SB_SETTLED, "the status of a place behind the last");
  k->prefetch = 4;
  expect_is(settle(SB_FIELD(4, SB_TAG_ACK_SLOT), SB_REQUEUE), SB_SETTLED, "the status of a place that is none");
  expect_is(settle(tag + 1, SB_REQUEUE), SB_SETTLED, "the status of another token");
  expect_is(settle((tag & SB_TAG_TOKEN) | SB_FIELD(last_place, SB_TAG_ACK_SLOT), SB_REQUEUE), SB_SETTLED,
            "the status of another place");
  expect_is(k->unacked, 4, "what is unacked");
  expect_is(settle(tag, SB_ACK), SB_OK, "the status of an acknowledgement");
  expect_is(settle(tag, SB_ACK), SB_SETTLED, "the status of another acknowledgement before the batch is full");
  expect_is(settle(tag, SB_REQUEUE), SB_SETTLED, "the status of a requeue after an acknowledgement");
  expect_is(k->ack_count, 1, "what waits for the batch");
  expect_is(k->ack_slots[place].token, tag & SB_TAG_TOKEN, "what is in the place");
  sb_consumer_flush(k);
  expect_is(settle(SB_FIELD(place, SB_TAG_ACK_SLOT), SB_REQUEUE), SB_SETTLED, "the status of a free place");
  expect_is(k->free_ack_slot, place + 1, "the free place");
  expect_is(k->unacked, 3, "what is unacked beside a free place");
  expect_is(settle(last, SB_REQUEUE), SB_OK, "the status of a requeue beside a batch");
  expect_is(k->ack_count, 0, "what waits for the batch after a requeue");
}
static void what_the_application_never_saw(void) {
  k = consume(1, 4, 0, ALONE);
  put_some(0, 1, 2);
  expect_is(next_id(false), 1, "the first message");
  uint64_t first = record()->tag;
  expect_is(next_id(false), 2, "the second message");
  uint64_t second = record()->tag;
  expect_is(settle(first, SB_UNDELIVER), SB_OK, "the status of the first one alone");
  expect_is(next_id(false), 1, "the first message again, although the second one was given");
  expect_is(settle(second, SB_UNDELIVER), SB_OK, "the status");
  expect_is(in_row(k), 1, "the messages in the row");
  expect_is(sb_consumer_delivered(k), 1, "what was delivered");
  expect_is(k->unacked, 2, "what is unacked");
  expect_is(settle(first, SB_UNDELIVER), SB_OK, "the status of the one before");
  expect_is(next_id(false), 1, "the first message again");
  expect_is(next_id(false), 2, "the second message again");
  sb_consumer_cancel(k, false);
  expect_is(settle(second, SB_UNDELIVER), SB_OK, "the status when it is closed");
  expect_is(ready_in(0), 1, "the messages in the queue");
}
static void settled_after_the_end(void) {
  k = consume(1, 4, 0, ALONE);
  put_some(0, 1, 2);
  expect_is(next_id(false), 1, "the first message");
  uint64_t tag = record()->tag;
  uint32_t place = (uint32_t)(tag >> SB_TAG_ACK_SLOT);
  sb_consumer_cancel(k, false);
  uint32_t free_place = k->free_ack_slot;
  expect_is(settle(tag, SB_REJECT), SB_OK, "the status");
  expect_is(counted(queues[0], SB_COUNT_DROPPED), 1, "what was dropped");
  expect_is(k->ack_slots[place].token, 0, "what is in its place");
  expect_is(k->free_ack_slot, free_place, "the free places");
  expect_is(k->unacked, 1, "what is unacked, which nobody needs any more");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(settle(tag, SB_ACK), REFUSAL[i], "the status of a connection that cannot be used");
    expect_untouched(t.c, "a settlement that is refused");
    refuse(t.c, SB_OK);
  }
}

/* ---- acknowledgements that are sent, and waiting ---- */

static void one_acknowledged(uint32_t batch) {
  k = consume(1, 4, 0, batch);
  put_some(0, 1, 2);
  sb_consumer_pull(k);
  (void)sb_consumer_ack(k, hand_out(k));
}
static void close_now(sb_connection *c) { SB_STORE(&c->closed, 1u, SB_RELAXED); }
static void acknowledgements_are_sent(void) {
  one_acknowledged(BATCH);
  for (unsigned i = 0; i < 2; i++) { /* those that a broker being stopped sends */
    refuse(t.c, REFUSAL[i]);
    sb_consumer_send_acks(k);
    expect_untouched(t.c, "acknowledgements of a connection that cannot be used");
    refuse(t.c, SB_OK);
  }
  expect_is(acked(), 0, "what was settled");
  t.c->renew = close_now;
  ask_to_forget(t.c);
  sb_consumer_send_acks(k);
  expect_is(acked(), 0, "what was settled when it was closed before the lock was taken");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  refuse(t.c, SB_OK);
  answer(t.c);
  expect_locked_in(t.c, "sb_consumer.c");
  sb_consumer_send_acks(k);
  was_locked("acknowledgements that are sent");
  expect_is(acked(), 1, "what was settled in the end");
}
static void acknowledgements_without_a_batch(void) {
  k = consume(1, 4, 0, ALONE);
  begin_watching(t.c);
  sb_consumer_send_acks(k);
  expect_untouched(t.c, "acknowledgements without a batch");
}
static void a_wait_sends_acknowledgements(void) {
  one_acknowledged(BATCH);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_consumer_wait(k, AT_ONCE), REFUSAL[i], "the status of a connection that cannot be used");
    refuse(t.c, SB_OK);
  }
  sb_consumer_wait(k, AT_ONCE);
  expect_is(acked(), 1, "what was settled");
  expect_is(sb_consumer_wait(k, AT_ONCE), SB_OK, "the status beside a message");
  (void)hand_out(k);
  expect_is(sb_consumer_wait(k, AT_ONCE), SB_TIMEOUT, "the status without a message");
}

/* ---- suspending ---- */

static uint32_t epoch(void) { return node_epoch(k->subscriptions[0].node); }
static void suspended_and_resumed(void) {
  k = consume(1, 4, 0, ALONE);
  sb_consumer_suspend(k, true);
  expect(k->suspended, "it is not suspended");
  expect_is(consumer_state(k, 0), SB_NODE_NOT_INTERESTED, "its state");
  put_some(0, 1, 2);
  uint32_t before = epoch();
  sb_consumer_suspend(k, true);
  expect_is(epoch(), before, "its moves when it is suspended once more");
  sb_consumer_suspend(k, false);
  expect(!k->suspended, "it is suspended");
  expect_is(consumer_state(k, 0), SB_NODE_NOTIFIED, "its state beside a message");
  set_consumer_state(k, 0, SB_NODE_NOT_INTERESTED);
  sb_consumer_suspend(k, false);
  expect_is(consumer_state(k, 0), SB_NODE_NOT_INTERESTED, "its state when it is resumed once more");
}
/* Its credit may have come back meanwhile, or not. */
static void resumed_with_and_without_credit(void) {
  k = consume(1, 4, 0, ALONE);
  put_some(0, 1, 6);
  sb_consumer_pull(k);
  sb_consumer_suspend(k, true);
  uint32_t before = epoch();
  sb_consumer_suspend(k, false);
  expect_is(epoch(), before, "its moves without credit");
  sb_consumer_suspend(k, true);
  for (unsigned i = 0; i < 2; i++) {
    uint32_t place = hand_out(k);
    (void)sb_dispose(queues[0], k->ack_slots[place].token, SB_REASON_ACKED);
    sb_consumer_free_ack_slot(k, place);
  }
  expect_is(in_row(k), 2, "the messages in the row while it is suspended");
  sb_consumer_suspend(k, false);
  expect_is(in_row(k), 4, "the messages in the row when it is resumed");
}
static void nobody_suspends_it(void) {
  k = consume(1, 4, 0, ALONE);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    sb_consumer_suspend(k, true);
    expect_untouched(t.c, "a suspension that is refused");
    refuse(t.c, SB_OK);
  }
  expect(!k->suspended, "it is suspended");
  k->closed = true;
  sb_consumer_suspend(k, true);
  expect(!k->suspended, "a closed one is suspended");
  expect_is(consumer_state(k, 0), SB_NODE_INTERESTED, "its state");
}

/* ---- events ---- */

static void events_are_armed(void) {
  k = consume(1, 4, 0, ALONE);
  sb_consumer_set_event(k, 77);
  expect_is((unsigned)k->event_fd, 77, "the descriptor");
  refuse(t.c, SB_FORKED);
  expect(sb_consumer_arm_event(k), "a child is to wait");
  expect_untouched(t.c, "an event in a child");
  expect_is(k->event_armed, 0, "what is armed in a child");
  refuse(t.c, SB_OK);
  begin_watching(t.c);
  expect(!sb_consumer_arm_event(k), "something is there");
  expect_is(times_locked(), 1, "the lock");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock afterwards");
  expect_is(k->event_armed, 1, "what is armed");
  k->event_armed = 0;
  k->event_fd = -1;
  put_some(0, 1, 1);
  sb_consumer_pull(k);
  expect(sb_consumer_arm_event(k), "nothing is there");
  expect_is(k->event_armed, 1, "what is armed beside a message");
}
/* Who arms after the end was told looks once more, as no event follows. */
static void events_are_armed_too_late(void) {
  k = consume(2, 4, 0, ALONE);
  remove_queue(0);
  expect(!sb_consumer_arm_event(k), "a get does not wait for the queue that is left");
  SB_STORE(&t.b->header->closing, 1u, SB_RELAXED);
  expect(sb_consumer_arm_event(k), "a get would wait in a broker that stops");
  SB_STORE(&t.b->header->closing, 0u, SB_RELAXED);
  remove_queue(1);
  expect(sb_consumer_arm_event(k), "a get would wait when the last queue is deleted");
  refuse(t.c, SB_CLOSED);
  expect(sb_consumer_arm_event(k), "a get would wait in a closed connection");
  refuse(t.c, SB_OK);
}
/* The IO thread may be about to write the descriptor that the application closes next. */
static void a_descriptor_is_set_under_the_lock(void) {
  k = consume(1, 4, 0, ALONE);
  begin_watching(t.c);
  sb_consumer_set_event(k, 77);
  expect_is(times_locked(), 1, "the lock");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock afterwards");
  refuse(t.c, SB_FORKED);
  sb_consumer_set_event(k, -1);
  expect_untouched(t.c, "a descriptor in a child");
  refuse(t.c, SB_OK);
  expect_is((unsigned)(k->event_fd + 1), 0, "the descriptor that a child takes away");
}

static const test_case CASES[] = {
    {"api_consumers_calls: record", "the next message comes with its tag and subscription", what_a_record_says},
    {"api_consumers_calls: bodies", "a long body that is settled is read through a view", bodies_that_are_settled},
    {"api_consumers_calls: damaged", "a message that cannot be read ends", a_damaged_message},
    {"api_consumers_calls: view", "a message that gets no view stays the next one", a_message_without_a_view},
    {"api_consumers_calls: parts", "a message whose parts break ends, and its view", parts_that_break},
    {"api_consumers_calls: row", "nothing is pulled as long as the row is not empty", a_row_that_is_not_empty},
    {"api_consumers_calls: memory", "a consumer that cannot hold a message says which memory is missing",
     no_memory_to_hold_a_message},
    {"api_consumers_calls: lacked", "memory that was missing in an earlier turn is not asked for again",
     what_an_earlier_turn_lacked},
    {"api_consumers_calls: suspended", "a suspended consumer gives what is in its row", a_suspended_consumer},
    {"api_consumers_calls: batch", "without credit a batch is settled at once", credit_that_waits_for_its_batch},
    {"api_consumers_calls: credit", "with credit a batch waits", credit_that_is_left},
    {"api_consumers_calls: starved", "a consumer whose row is empty goes on with any credit",
     a_starved_consumer_goes_on},
    {"api_consumers_calls: none", "a consumer says why there will be no message", there_will_be_none},
    {"api_consumers_calls: settled", "a message is acknowledged, rejected or requeued once", messages_are_settled},
    {"api_consumers_calls: tags", "a tag of nothing settles nothing", tags_of_nothing},
    {"api_consumers_calls: never seen", "a message that the application never saw is the next one again",
     what_the_application_never_saw},
    {"api_consumers_calls: after", "what a cancelled consumer gave is settled", settled_after_the_end},
    {"api_consumers_calls: sent", "acknowledgements are sent under the lock", acknowledgements_are_sent},
    {"api_consumers_calls: no batch", "without a batch there is nothing to send", acknowledgements_without_a_batch},
    {"api_consumers_calls: wait", "a wait sends acknowledgements first", a_wait_sends_acknowledgements},
    {"api_consumers_calls: suspend", "a suspended consumer is not interested", suspended_and_resumed},
    {"api_consumers_calls: resume", "a consumer that is resumed pulls what its credit allows",
     resumed_with_and_without_credit},
    {"api_consumers_calls: not suspended", "what is closed is not suspended", nobody_suspends_it},
    {"api_consumers_calls: event", "an event is armed, and what is there is told", events_are_armed},
    {"api_consumers_calls: event late", "who arms after the end was told need not wait", events_are_armed_too_late},
    {"api_consumers_calls: descriptor", "a descriptor is set under the lock", a_descriptor_is_set_under_the_lock},
};
SUBJECT(CASES)
