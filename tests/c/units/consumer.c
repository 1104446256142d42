// SPDX-License-Identifier: Apache-2.0
/* sb_consumer: credit, the row, turns, batches of acknowledgements, and the messages that a consumer returns. */
#include "sb_consumer.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "consuming.h"
#include "meanwhile.h"

/* ---- one message ---- */

static void a_message_goes_to_the_row(void) {
  sb_consumer *k = consume(1, 2, 0, ALONE);
  expect_is(consumer_state(k, 0), SB_NODE_INTERESTED, "the state of a consumer of an empty queue");
  expect_is(sb_consumer_deliver_one(k, k->subscriptions), SB_EMPTY, "the status of an empty queue");
  put_some(0, 1, 3);
  set_consumer_state(k, 0, SB_NODE_INTERESTED);
  expect_is(sb_consumer_deliver_one(k, k->subscriptions), SB_OK, "the status of the first message");
  expect_is(consumer_state(k, 0), SB_NODE_NOTIFIED, "the state of a consumer that is at work");
  expect_is(in_row(k), 1, "the messages in the row");
  expect_is(k->unacked, 1, "what is unacked");
  expect_is(consumer_node(k, 0)->unacked, 1, "what the node shows as unacked");
  expect_is(sb_consumer_credit(k), 1, "the credit");
  expect(!k->starved, "a consumer with credit is starved");
  expect_is(sb_consumer_deliver_one(k, k->subscriptions), SB_OK, "the status of the second message");
  expect_is(id_in_row(k, 0), 1, "the first of the row");
  expect_is(id_in_row(k, 1), 2, "the second of the row");
  expect(k->starved, "a consumer without credit is not starved");
  expect_is(consumer_state(k, 0), SB_NODE_NOT_INTERESTED, "the state of a consumer without credit");
  expect_is(consumer_node(k, 0)->unacked, 2, "what the node shows as unacked in the end");
  expect_is(k->free_ack_slot, 0, "the free places");
}
static void without_credit_nothing_is_taken(void) {
  sb_consumer *k = consume(1, 4, 0, ALONE);
  put_some(0, 1, 2);
  k->suspended = true;
  expect_is(sb_consumer_deliver_one(k, k->subscriptions), SB_NO_CREDIT, "the status of a suspended consumer");
  expect_is(in_row(k), 0, "what it has in the row");
  expect(k->starved, "a suspended consumer is not starved");
  expect_is(consumer_state(k, 0), SB_NODE_NOT_INTERESTED, "the state of a suspended consumer");
  set_consumer_state(k, 0, SB_NODE_INTERESTED); /* it is starved: its nodes were told already */
  expect_is(sb_consumer_deliver_one(k, k->subscriptions), SB_NO_CREDIT, "the status of a starved consumer");
  expect_is(consumer_state(k, 0), SB_NODE_INTERESTED, "the state of a node that was told already");
  expect_is(ready_in(0), 2, "the messages in the queue");
}
/* As a node is left that found no memory for its list entry when the credit was used up. */
static void a_node_that_kept_its_interest(void) {
  const unsigned states[] = {SB_NODE_NOTIFIED, SB_NODE_INTERESTED};
  sb_consumer *k = consume(1, 1, 0, ALONE);
  put_some(0, 1, 2);
  sb_consumer_pull(k);
  expect(k->starved, "a consumer without credit is not starved");
  for (unsigned i = 0; i < 2; i++) {
    set_consumer_state(k, 0, states[i]);
    expect(sb_consumer_wants_work(k), "it wants no turn in state %u", states[i]);
    expect(!sb_consumer_turn(k), "it wants another turn in state %u", states[i]);
    expect_is(consumer_state(k, 0), SB_NODE_NOT_INTERESTED, "the state of a node without credit");
    expect_is(in_row(k), 1, "the messages in the row");
  }
}
static void how_much_credit_there_is(void) {
  sb_consumer *k = consume(1, 4, 0, ALONE);
  for (uint32_t unacked = 0; unacked <= 5; unacked++) {
    k->unacked = unacked;
    expect_is(sb_consumer_credit(k), unacked < 4 ? 4 - unacked : 0, "the credit that is left");
  }
  k->unacked = 1;
  k->suspended = true;
  expect_is(sb_consumer_credit(k), 0, "the credit of a suspended consumer");
  k->suspended = false;
  k->closed = true;
  expect_is(sb_consumer_credit(k), 0, "the credit of a closed consumer");
}
static void threads_that_wait_for_the_row_are_woken(void) {
  sb_consumer *k = consume(1, 4, 0, ALONE);
  put_some(0, 1, 4);
  sb_consumer_signal(k);
  expect_is(local_of(k), 1, "the word that is woken");
  sb_consumer_deliver_one(k, k->subscriptions);
  expect_is(local_of(k), 2, "the word of a sleeper, with the first message");
  k->local = 1;
  sb_consumer_deliver_one(k, k->subscriptions);
  expect_is(local_of(k), 1, "the word of a sleeper, with another message");
  k->local = 2;
  k->row_first = k->row_end;
  sb_consumer_deliver_one(k, k->subscriptions);
  expect_is(local_of(k), 2, "the word that nobody sleeps on");
}
static uint64_t events(void) {
  uint64_t n = 0;
  return read(0, &n, sizeof n) == (ssize_t)sizeof n ? n : 0;
}
static void an_event_is_told_once(void) {
  sb_consumer *k = consume(1, 4, 0, ALONE);
  int fd = eventfd(0, EFD_NONBLOCK);
  if (dup2(fd, 0) != 0) die("dup2", fd);
  put_some(0, 1, 4);
  k->event_armed = 1;
  sb_consumer_deliver_one(k, k->subscriptions);
  expect_is(k->event_armed, 1, "whether a consumer without a descriptor is armed");
  k->event_fd = 0;
  sb_consumer_deliver_one(k, k->subscriptions);
  expect_is(k->event_armed, 1, "whether it is armed when the row was not empty");
  expect_is(events(), 0, "the events when the row was not empty");
  k->row_first = k->row_end;
  sb_consumer_deliver_one(k, k->subscriptions);
  expect_is(k->event_armed, 0, "whether it is armed when it was told");
  expect_is(events(), 1, "the events when the row was empty");
  k->row_first = k->row_end;
  sb_consumer_deliver_one(k, k->subscriptions);
  expect_is(events(), 0, "the events of what was not armed");
}

static void an_event_of_what_comes_back(void) {
  sb_consumer *k = consume(1, 4, 0, ALONE);
  int fd = eventfd(0, EFD_NONBLOCK);
  if (dup2(fd, 0) != 0) die("dup2", fd);
  put_some(0, 1, 2);
  sb_consumer_pull(k);
  uint32_t slots[2] = {k->row[0], k->row[1]};
  k->row_first = k->row_end;
  k->delivered = 2;
  sb_node_shm *node = sb_slot_at(t.b, k->subscriptions[0].node);
  node->delivered = 2;
  k->event_fd = 0;
  k->event_armed = 1;
  sb_consumer_take_back(k, slots[1]);
  expect_is(k->event_armed, 0, "whether it is armed when it was told");
  expect_is(events(), 1, "the events when the row was empty");
  k->event_armed = 1;
  sb_consumer_take_back(k, slots[0]);
  expect_is(k->event_armed, 1, "whether it is armed when the row was not empty");
  expect(k->row[k->row_first % 4] == slots[0] && k->row[(k->row_first + 1) % 4] == slots[1], "their order");
  expect_is(k->delivered, 0, "what was delivered");
  expect_is(node->delivered, 0, "what the node says was delivered");
}

/* Writes the events of `k` to descriptor 0, and arms it. */
static void arm(sb_consumer *k) {
  int fd = eventfd(0, EFD_NONBLOCK);
  if (dup2(fd, 0) != 0) die("dup2", fd);
  k->event_fd = 0;
  k->event_armed = 1;
}
static void an_event_of_a_broker_that_stops(void) {
  sb_consumer *k = consume(1, 4, 0, ALONE);
  arm(k);
  k->target.kind->signal(&k->target);
  expect_is(events(), 1, "the events of who is armed");
  expect_is(k->event_armed, 0, "whether it is armed when it was told");
  expect_is(local_of(k), 1, "the word of threads that wait");
  k->target.kind->signal(&k->target);
  expect_is(events(), 0, "the events of what was not armed");
}
static void an_event_of_a_deleted_queue(void) {
  sb_consumer *k = consume(2, 4, 0, ALONE);
  remove_queue(0);
  arm(k);
  (void)sb_consumer_turn(k);
  expect_is(events(), 0, "the events of a consumer that still has a queue");
  remove_queue(1);
  (void)sb_consumer_turn(k);
  expect_is(events(), 1, "the events when the last queue is deleted");
  k->event_armed = 1;
  k->suspended = true;
  k->local = 1;
  (void)sb_consumer_turn(k);
  expect_is(events(), 1, "the events of a consumer without credit");
  expect_is(local_of(k), 2, "the word of threads of a consumer without credit");
}
/* The application closes the descriptor after the end: nothing may be written then, its number may have a new owner. */
static void no_event_of_an_end(void) {
  sb_consumer *k = consume(1, 4, 0, ALONE);
  arm(k);
  sb_consumer_detach(k);
  expect_is(local_of(k), 1, "the word of threads that wait");
  expect_is(events(), 0, "the events of an end");
}

/* ---- what a sleeper looks at ---- */

static void work_that_a_consumer_wants(void) {
  sb_consumer *k = consume(2, 4, 0, ALONE);
  expect(!sb_consumer_wants_work(k), "a consumer of empty queues wants a turn");
  put_some(1, 1, 1);
  set_consumer_state(k, 1, SB_NODE_INTERESTED);
  expect(sb_consumer_wants_work(k), "one that is interested, beside a message, wants no turn");
  set_consumer_state(k, 1, SB_NODE_NOTIFIED);
  expect(sb_consumer_wants_work(k), "one that is notified wants no turn");
  set_consumer_state(k, 0, SB_NODE_NOTIFIED);
  set_consumer_state(k, 1, SB_NODE_NON_ACQUIRING);
  expect(sb_consumer_wants_work(k), "one that is notified beside an empty queue wants no turn");
  set_consumer_state(k, 0, SB_NODE_NON_ACQUIRING);
  expect(!sb_consumer_wants_work(k), "one that takes nothing wants a turn");
}
/* NOT_INTERESTED in spite of its credit: there was no memory for its list entry, or it was parked. */
static void interest_that_was_lost(void) {
  sb_consumer *k = consume(1, 4, 0, ALONE);
  set_consumer_state(k, 0, SB_NODE_NOT_INTERESTED);
  expect(!sb_consumer_wants_work(k), "one that becomes interested in an empty queue wants a turn");
  expect_is(consumer_state(k, 0), SB_NODE_INTERESTED, "the state of one with credit");
  set_consumer_state(k, 0, SB_NODE_NOT_INTERESTED);
  k->starved = true;
  expect(!sb_consumer_wants_work(k), "a starved one wants a turn");
  expect_is(consumer_state(k, 0), SB_NODE_NOT_INTERESTED, "the state of a starved one");
  k->starved = false;
  k->suspended = true;
  expect(!sb_consumer_wants_work(k), "a suspended one wants a turn");
  expect_is(consumer_state(k, 0), SB_NODE_NOT_INTERESTED, "the state of a suspended one");
  k->suspended = false;
  k->unacked = 4;
  (void)sb_consumer_wants_work(k);
  expect_is(consumer_state(k, 0), SB_NODE_NOT_INTERESTED, "the state of one without credit");
}
static void a_node_that_was_overlooked(void) {
  sb_consumer *k = consume(2, 4, 0, ALONE);
  const sb_queue *q = NULL;
  expect_is(sb_consumer_overlooked(k, &q), 0, "what is overlooked in empty queues");
  put_some(0, 1, 1);
  put_some(1, 1, 1);
  for (uint32_t i = 0; i < 2; i++) {
    SB_STORE(&consumer_node(k, i)->flagged, 0, SB_RELAXED);
    expect_is(consumer_state(k, i), SB_NODE_NOTIFIED, "the state of who was told");
  }
  uint64_t first = sb_entry_word(k->subscriptions[0].node, sb_node_epoch(consumer_node(k, 0)->word));
  uint64_t second = sb_entry_word(k->subscriptions[1].node, sb_node_epoch(consumer_node(k, 1)->word));
  expect_is(sb_consumer_overlooked(k, &q), first, "what is overlooked first");
  expect(q == queues[0], "its queue is another one");
  SB_STORE(&consumer_node(k, 0)->flagged, 1, SB_RELAXED);
  expect_is(sb_consumer_overlooked(k, &q), second, "what is overlooked when the first is flagged");
  expect(q == queues[1], "the queue of the second is another one");
  SB_STORE(&consumer_node(k, 1)->flagged, 1, SB_RELAXED);
  SB_STORE(&consumer_node(k, 0)->flagged, 0, SB_RELAXED);
  expect_is(sb_consumer_overlooked(k, &q), first, "what is overlooked when the second is flagged");
}
static void a_consumer_whose_queues_are_deleted(void) {
  sb_consumer *k = consume(2, 4, 0, ALONE);
  expect(!sb_consumer_orphaned(k), "a consumer of two queues has none");
  remove_queue(0);
  expect(!sb_consumer_orphaned(k), "a consumer of one queue has none");
  expect_is(sb_consumer_deliver_one(k, &k->subscriptions[0]), SB_DELETED, "the status of a queue that is deleted");
  k->local = 0;
  expect(!sb_consumer_turn(k), "a turn beside a deleted queue has more to do");
  expect_is(local_of(k), 0, "the word of threads that still have a queue");
  k->subscription_count = 1;
  expect(sb_consumer_orphaned(k), "a consumer of a deleted queue alone has one");
  set_consumer_state(k, 0, SB_NODE_NOT_INTERESTED);
  expect(!sb_consumer_turn(k), "a turn of an orphan has more to do");
  expect_is(consumer_state(k, 0), SB_NODE_NOT_INTERESTED, "the state of an orphan");
  expect_is(local_of(k), 1, "the word of threads that wait for nothing");
  k->suspended = true;
  (void)sb_consumer_turn(k);
  expect_is(local_of(k), 2, "the word, after a turn without credit");
  k->subscription_count = 0;
  expect(!sb_consumer_turn(k), "a turn without a queue has more to do");
}

/* ---- turns ---- */

static void a_turn_takes_one_of_each_queue(void) {
  sb_consumer *k = consume(2, 8, 0, ALONE);
  put_some(0, 11, 13);
  put_some(1, 21, 23);
  expect_is(consumer_node(k, 0)->flagged & consumer_node(k, 1)->flagged, 1, "the flags of who was told");
  note_order(&consumer_node(k, 0)->flagged);
  expect(sb_consumer_turn(k), "the first turn has nothing more to do");
  expect(noted_order() < 0, "a store clears the flag: the look that follows may come before it");
  expect_is(consumer_node(k, 0)->flagged | consumer_node(k, 1)->flagged, 0, "the flags after a turn");
  expect(sb_consumer_turn(k), "the second turn has nothing more to do");
  const uint64_t should[] = {11, 21, 22, 12, 13, 23}; /* in rotation */
  expect_is(k->rotation, 0, "the next queue");
  expect(sb_consumer_turn(k), "the third turn has nothing more to do");
  expect_is(k->rotation, 1, "the queue after that");
  expect_is(in_row(k), 6, "the messages in the row");
  for (uint64_t i = 0; i < 6; i++) expect_is(id_in_row(k, i), should[i], "a message of the row");
  expect(!sb_consumer_turn(k), "a turn at empty queues has more to do");
}
static void turns_end_with_the_credit(void) {
  sb_consumer *k = consume(2, 8, 0, ALONE);
  k->prefetch = 3;
  put_some(0, 11, 13);
  put_some(1, 21, 23);
  sb_consumer_pull(k);
  expect_is(in_row(k), 3, "the messages that the credit allows");
  expect(k->starved, "it is not starved");
  k->prefetch = 8; /* starved with credit: it waits until there is enough */
  k->unacked = 3;
  expect(!sb_consumer_turn(k), "a turn that begins starved has more to do");
  expect_is(in_row(k), 4, "the messages: a starved consumer tries one queue alone");
}
static void a_turn_of_one_that_was_parked(void) {
  sb_consumer *k = consume(1, 4, 0, ALONE);
  set_consumer_state(k, 0, SB_NODE_NOT_INTERESTED);
  expect(sb_consumer_turn(k), "one that was parked does not look again");
  expect_is(consumer_state(k, 0), SB_NODE_INTERESTED, "its state");
  expect(!sb_consumer_turn(k), "it looks a third time");
  set_consumer_state(k, 0, SB_NODE_NOT_INTERESTED);
  k->starved = true;
  expect(!sb_consumer_turn(k), "a starved one looks again");
  expect_is(consumer_state(k, 0), SB_NODE_NOT_INTERESTED, "the state of a starved one");
  k->starved = false;
  k->suspended = true;
  (void)sb_consumer_turn(k);
  expect_is(consumer_state(k, 0), SB_NODE_NOT_INTERESTED, "the state of one without credit");
}

/* ---- credit that comes back ---- */

/* Starved, with so much credit. */
static void starve(sb_consumer *k, uint32_t credit) {
  k->starved = true;
  k->unacked = k->prefetch - credit;
  for (uint32_t i = 0; i < k->subscription_count; i++) set_consumer_state(k, i, SB_NODE_NOT_INTERESTED);
}
static void expect_resumed(sb_consumer *k, uint32_t credit, bool should, const char *what) {
  uint32_t before = in_row(k);
  starve(k, credit);
  uint32_t epoch = node_epoch(k->subscriptions[0].node);
  sb_consumer_resume(k);
  expect(k->starved != should, "%s: %s", what, should ? "it is starved" : "it is not starved");
  expect_is(in_row(k) - before, 0, what);
  expect_is(consumer_state(k, 0), should ? SB_NODE_INTERESTED : SB_NODE_NOT_INTERESTED, what);
  expect_is(node_epoch(k->subscriptions[0].node) - epoch, should ? 1 : 0, what); /* not even for a moment */
}
static void pulling_goes_on_with_half_of_the_credit(void) {
  sb_consumer *k = consume(1, 4, 0, ALONE);
  put_some(0, 1, 1);
  sb_consumer_pull(k);
  expect_resumed(k, 0, false, "no credit");
  expect_resumed(k, 1, false, "a quarter of the credit, beside a message in the row");
  expect_resumed(k, 2, true, "half of the credit");
  hand_out(k);
  expect_resumed(k, 0, false, "no credit, with an empty row");
  expect_resumed(k, 1, true, "a quarter of the credit, with an empty row");
  k->prefetch = 1;
  expect_resumed(k, 0, false, "no credit of one");
  expect_resumed(k, 1, true, "the credit of one");
}
static void what_resumes_pulls(void) {
  sb_consumer *k = consume(1, 4, 0, ALONE);
  starve(k, 4);
  put_some(0, 1, 2);
  uint32_t epoch = node_epoch(k->subscriptions[0].node);
  sb_consumer_resume(k);
  expect_is(in_row(k), 2, "the messages that were pulled");
  expect_is(node_epoch(k->subscriptions[0].node) - epoch, 3, "its moves: interested, notified, and interested again");
  put_some(0, 3, 3);
  sb_consumer_resume(k);
  expect_is(in_row(k), 2, "the messages, when it was not starved");
}
static void a_place_is_used_again(void) {
  sb_consumer *k = consume(1, 2, 0, ALONE);
  put_some(0, 1, 3);
  sb_consumer_pull(k);
  uint32_t place = hand_out(k);
  (void)sb_dispose(queues[0], k->ack_slots[place].token, SB_REASON_ACKED);
  sb_consumer_free_ack_slot(k, place);
  expect_is(in_row(k), 2, "the messages in the row, with one more");
  expect_is(place_in_row(k, 1), place, "the place of the next one");
  expect_is(k->unacked, 2, "what is unacked");
  expect_is(consumer_node(k, 0)->unacked, 2, "what the node shows as unacked");
  sb_consumer_free_ack_slot(k, hand_out(k));
  expect_is(consumer_node(k, 0)->unacked, 1, "what the node shows when a message was settled");
  k->unacked = consumer_node(k, 0)->unacked = 0;
  k->starved = false;
  sb_consumer_free_ack_slot(k, place);
  expect_is(k->unacked, 0, "what is unacked, when nothing was");
  expect_is(consumer_node(k, 0)->unacked, 0, "what the node shows, when nothing was");
  expect_is(k->free_ack_slot, place + 1, "the free place");
  expect_is(k->ack_slots[place].token, 0, "what is in the free place");
}

static const test_case CASES[] = {
    {"consumer: kept interest", "a node that could not end its interest ends it at the next turn",
     a_node_that_kept_its_interest},
    {"consumer: row", "a message goes to the row, and costs credit", a_message_goes_to_the_row},
    {"consumer: no credit", "without credit a consumer takes nothing", without_credit_nothing_is_taken},
    {"consumer: credit", "credit is what the prefetch leaves, unless suspended or closed", how_much_credit_there_is},
    {"consumer: woken", "the first message of the row wakes its sleepers", threads_that_wait_for_the_row_are_woken},
    {"consumer: event", "the first message of the row is told once to an armed descriptor", an_event_is_told_once},
    {"consumer: event back", "a message that comes back into an empty row wakes the application",
     an_event_of_what_comes_back},
    {"consumer: event stop", "a broker that stops is told to an armed descriptor", an_event_of_a_broker_that_stops},
    {"consumer: event orphan", "the end of the last queue is told to an armed descriptor, also without credit",
     an_event_of_a_deleted_queue},
    {"consumer: event end", "the end of a consumer is told to no descriptor", no_event_of_an_end},
    {"consumer: wants", "a consumer wants a turn if a node of it has work", work_that_a_consumer_wants},
    {"consumer: lost", "a node that lost its interest gets it back with credit", interest_that_was_lost},
    {"consumer: overlooked", "the first node that should be awake is told, with its queue", a_node_that_was_overlooked},
    {"consumer: orphan", "threads are told when the last queue is deleted", a_consumer_whose_queues_are_deleted},
    {"consumer: turn", "a turn takes one message of each queue, in rotation", a_turn_takes_one_of_each_queue},
    {"consumer: starved", "turns end with the credit", turns_end_with_the_credit},
    {"consumer: parked", "a consumer that was parked is interested again, and looks", a_turn_of_one_that_was_parked},
    {"consumer: half", "pulling goes on when half of the credit is back, or the row is empty",
     pulling_goes_on_with_half_of_the_credit},
    {"consumer: resumed", "what goes on pulls, and only then", what_resumes_pulls},
    {"consumer: place", "a place that is free takes the next message", a_place_is_used_again},
};
SUBJECT(CASES)
