// SPDX-License-Identifier: Apache-2.0
/* sb_api_consumers: consumers that are created, cancelled and freed. */
#include <malloc.h>
#include <string.h>

#include "consuming.h"
#include "heap.h"
#include "meanwhile.h"
#include "sb_api.h"
#include "surroundings.h"

#define BATCH 3u

static sb_queue *open_queues(uint32_t count) {
  for (uint32_t i = 0; i < count; i++) (void)queue_number(i);
  return queues[0];
}
static sb_consumer *make(uint32_t count, uint32_t prefetch, uint32_t batch, sb_status *status) {
  return sb_consumer_open(t.c, queues, count, prefetch, 4, batch, PATIENCE, status);
}
static uint64_t acked(unsigned which) { return counted(queues[which], SB_COUNT_ACKED); }

/* ---- its beginning ---- */

static void a_new_consumer(void) {
  sb_status status = SB_CORRUPT;
  open_queues(2);
  put_some(1, 1, 1);
  uint32_t handles = SB_LOAD(&t.c->handles, SB_RELAXED);
  sb_consumer *k = make(2, 5, BATCH, &status);
  expect_is(status, SB_OK, "the status");
  expect_is(SB_LOAD(&t.c->handles, SB_RELAXED), handles + 1, "the handles of the connection");
  expect(k->c == t.c && k->target.c == t.c && k->target.listed, "it is no target of the connection");
  expect_is(k->prefetch, 5, "its prefetch");
  expect_is(k->ack_batch, BATCH, "its batch");
  expect_is(k->ack_interval_ns, PATIENCE, "its interval");
  expect_is(k->priority, 4, "its priority");
  expect_is((unsigned)(k->event_fd + 1), 0, "its descriptor: none");
  expect_is(k->free_ack_slot, 1, "its first place");
  for (uint32_t i = 0; i < 5; i++) expect_is(k->ack_slots[i].next_free, i < 4 ? i + 2 : 0, "the place after a place");
  expect_is(k->unacked | k->ack_count | k->delivered | k->closed | k->starved | k->suspended, 0, "what it did");
  expect_is(k->subscription_count, 2, "its queues");
  for (uint32_t i = 0; i < 2; i++) {
    sb_node_shm *n = consumer_node(k, i);
    expect(k->subscriptions[i].q == queues[i], "a queue is another one");
    expect_is(k->subscriptions[i].priority, 4, "the priority of a subscription");
    expect_is(n->flags, SB_NODE_COUNTED, "the flags of a node");
    expect_is(n->priority, 4, "the priority of a node");
    expect_is(n->target, k->target.number, "the target of a node");
    expect_is(n->prefetch, 5, "the prefetch of a node");
    expect_is(queues[i]->shm->consumers, 1, "the consumers of a queue");
  }
  expect_is(consumer_state(k, 0), SB_NODE_INTERESTED, "the state beside an empty queue");
  expect_is(consumer_state(k, 1), SB_NODE_NOTIFIED, "the state beside a message");
  expect_is(consumer_node(k, 1)->wakes, 1, "how often it was told of a message");
  for (unsigned i = 0; i < SB_MAX_CLASSES; i++) expect_is(t.c->cache[i].mask, 0, "the slots that are kept");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
}
static void a_batch_is_no_larger_than_the_prefetch(void) {
  sb_status status;
  open_queues(1);
  sb_consumer *k = make(1, 2, 7, &status);
  expect_is(k->ack_batch, 2, "a batch that was to be larger than the prefetch");
  expect_is(k->ack_slots[0].next_free, 2, "the place after the first");
  expect_is(k->ack_slots[1].next_free, 0, "the place after the last");
}
static void its_kind(void) {
  const sb_queue *queue = NULL;
  sb_consumer *k = consume(1, 4, 0, ALONE);
  sb_target *target = &k->target;
  expect(target->kind->is_consumer && !target->kind->is_channel, "it is no consumer");
  expect(!target->kind->wants_work(target), "it wants a turn beside an empty queue");
  expect(!target->kind->turn(target), "it has more to do beside an empty queue");
  put_some(0, 1, 1);
  expect(target->kind->wants_work(target), "it wants no turn beside a message");
  SB_STORE(&consumer_node(k, 0)->flagged, 0, SB_RELAXED);
  expect(target->kind->overlooked(target, &queue) != 0 && queue == queues[0], "it was not overlooked beside a message");
  expect(target->kind->turn(target), "it has nothing more to do after a message");
  expect_is(in_row(k), 1, "the messages in its row");
  uint32_t local = local_of(k);
  target->kind->signal(target);
  expect_is(local_of(k), local + 1, "the word of threads that wait, when it was signalled");
  target->kind->end(target);
  expect(k->closed && !target->listed, "it is not closed by its end");
  expect_is(ready_in(0), 1, "the messages in the queue");
}

/* ---- what is refused ---- */

static void expect_refused(uint32_t count, sb_status should, const char *what) {
  sb_status status = SB_OK;
  uint32_t handles = SB_LOAD(&t.c->handles, SB_RELAXED), targets = t.c->target_count;
  expect(make(count, 4, ALONE, &status) == NULL, "%s: there is a consumer", what);
  expect_is(status, should, what);
  expect_is(SB_LOAD(&t.c->handles, SB_RELAXED), handles, "the handles of the connection");
  expect_is(t.c->target_count, targets, "the targets of the connection");
  expect_is(queues[0]->shm->consumers, 0, "the consumers of the first queue");
}
static void a_connection_that_cannot_be_used(void) {
  open_queues(1);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_refused(1, REFUSAL[i], "the status of a connection that cannot be used");
    if (REFUSAL[i] != SB_STOPPING) expect_untouched(t.c, "a consumer that is refused");
    refuse(t.c, SB_OK);
  }
}
static unsigned moves;
static void count_moves(const char *site) { moves += strcmp(site, "nodes.move.moved") == 0; }
static void a_queue_that_is_deleted(void) {
  open_queues(2);
  remove_queue(1);
  at_step = count_moves;
  expect_refused(2, SB_DELETED, "the status of a queue that is deleted");
  at_step = NULL;
  if (has_steps()) expect_is(moves, 2, "the moves of the first node: made and removed, and never interested");
}
static void a_queue_that_another_has_to_itself(void) {
  open_queues(2);
  uint32_t owner = make_node(queues[1]->slot, 0, SB_NODE_COUNTED | SB_NODE_EXCLUSIVE, 0, SB_NODE_NOT_INTERESTED);
  expect_is(sb_exclusive_enter(t.c, queues[1]->slot, owner), SB_OK, "the status of an exclusive consumer");
  expect_refused(2, SB_ACCESS, "the status beside an exclusive consumer");
  expect_is(queues[1]->shm->consumers, 1, "the consumers of the second queue");
}
static void no_node_is_left(void) {
  open_queues(1);
  (void)make_node(queues[0]->slot, 4, SB_NODE_DIRECT, 0, SB_NODE_NOT_INTERESTED);
  leave_chunks(0);
  take_slots(sb_class_of_kind(t.b, SB_KIND_NODE));
  expect_refused(1, SB_NO_MEMORY, "the status without memory of the broker");
}
/* Its consumer of the first queue has an interest by then. */
static void no_page_is_left_for_its_interest(void) {
  open_queues(2);
  uint32_t node = make_node(queues[1]->slot, 4, SB_NODE_DIRECT, 0, SB_NODE_NOT_INTERESTED);
  sb_node_destroy(t.c, make_node(queues[0]->slot, 4, SB_NODE_DIRECT, 0, SB_NODE_INTERESTED), 0);
  leave_no_page_to(node, node_shm(node)->level, SB_RING_INTERESTED, SB_NODE_INTERESTED, true);
  expect_refused(2, SB_GROW, "the status without memory of the broker for its interest");
  expect_is(queues[1]->shm->consumers, 0, "the consumers of the second queue");
  expect_is(queues[0]->shm->had_consumer, 0, "whether the first queue has had a consumer");
}
static void memory_of_the_process(void) {
  sb_status status = SB_OK;
  open_queues(1);
  if (!heap_exhaust()) return;
  sb_consumer *k = make(1, 4, ALONE, &status);
  heap_relieve();
  expect(k == NULL, "there is a consumer without memory of the process");
  expect_is(status, SB_SYSTEM, "the status without memory of the process");
}
/* What it has already is freed, whichever piece is missing. */
#define MEGABYTE ((size_t)1 << 20)
static uint32_t queue_count, its_prefetch;
static size_t room;
static void one_that_lacks_memory(void) {
  sb_status status = SB_OK;
  if (!heap_limit(room)) return;
  sb_consumer *k = make(queue_count, its_prefetch, ALONE, &status);
  heap_unlimit();
  expect(k == NULL, "there is a consumer without memory");
  expect_is(status, SB_SYSTEM, "the status without memory");
}
static void pieces_of_memory(void) {
  static const struct {
    uint32_t count, prefetch;
    size_t room;
  } tries[] = {{1u << 20, 4, 8 * MEGABYTE},   /* no subscriptions */
               {1, 1u << 20, 12 * MEGABYTE},  /* no places; row and acks would have room */
               {1, 1u << 20, 18 * MEGABYTE},  /* no row */
               {1, 1u << 20, 22 * MEGABYTE}}; /* no acks */
  open_queues(1);
  (void)mallopt(M_MMAP_THRESHOLD, 1 << 17); /* else blocks of that size are kept in the heap later */
  uint32_t handles = SB_LOAD(&t.c->handles, SB_RELAXED);
  for (unsigned i = 0; i < 4; i++) {
    queue_count = tries[i].count;
    its_prefetch = tries[i].prefetch;
    room = tries[i].room;
    expect_is(heap_kept_by(one_that_lacks_memory), 0, "the memory that is kept");
  }
  expect_is(SB_LOAD(&t.c->handles, SB_RELAXED), handles, "the handles of the connection");
}

/* ---- its end ---- */

/* Messages 1 to 4: the application has the first, and acknowledged the second. */
static sb_consumer *in_the_middle(void) {
  sb_consumer *k = consume(2, 4, 0, BATCH);
  put_some(0, 1, 8);
  sb_consumer_pull(k);
  (void)hand_out(k);
  (void)sb_consumer_ack(k, hand_out(k));
  return k;
}
static void expect_gone(const sb_consumer *k, const char *what) {
  expect(k->closed && !k->target.listed, "%s: it is not closed", what);
  expect_is(k->subscription_count, 0, what);
  expect_is(queues[0]->shm->consumers + queues[1]->shm->consumers, 0, what);
  expect_is(t.c->target_count, 0, what);
}
static void what_was_not_given_goes_back(void) {
  sb_consumer *k = in_the_middle();
  uint32_t memory = make_node(0, 0, SB_NODE_ROOM | SB_NODE_MEMORY | SB_NODE_DIRECT, 1, SB_NODE_NOT_INTERESTED);
  sb_consumer_cancel(k, false);
  expect_gone(k, "a consumer that was cancelled");
  expect_is(ready_in(0), 6, "the messages in the queue: all but the first two");
  expect_is(acked(0), 1, "what was acknowledged is settled");
  expect_is(k->unacked, 1, "what the application has");
  uint32_t local = local_of(k);
  set_node_state(memory, SB_NODE_INTERESTED);
  sb_consumer_cancel(k, false);
  expect_is(local_of(k), local, "the word of threads that wait, when it is cancelled again");
  expect_is(node_state(memory), SB_NODE_INTERESTED, "a call that waits for memory, when it is cancelled again");
  sb_consumer_cancel(k, true);
  expect_is(ready_in(0), 7, "the messages in the queue when all goes back");
  expect_is(k->unacked, 0, "what the application has when all went back");
}
static void what_was_given_goes_back(void) {
  sb_consumer *k = in_the_middle();
  sb_consumer_cancel(k, true);
  expect_gone(k, "a consumer that was cancelled");
  expect_is(ready_in(0), 7, "the messages in the queue: all but one that was acknowledged");
  expect_is(k->unacked, 0, "what the application has");
}
/* The credit that its last acknowledgements bring pulls nothing. */
static void nothing_is_pulled_any_more(void) {
  sb_consumer *k = consume(1, 4, 0, 4);
  put_some(0, 1, 8);
  sb_consumer_pull(k);
  for (unsigned i = 0; i < 2; i++) (void)sb_consumer_ack(k, hand_out(k));
  sb_consumer_cancel(k, false);
  expect_is(counted(queues[0], SB_COUNT_DELIVERED), 4, "the messages that were pulled");
}
static void its_queue_ends_with_it(void) {
  queues[0] = make_queue("a", (sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_AUTO_DELETE});
  sb_consumer *k = consume(2, 4, 0, ALONE);
  sb_consumer_cancel(k, false);
  expect(!sb_queue_is_open(queues[0]), "a queue is open that nobody consumes any more");
  expect(sb_queue_is_open(queues[1]), "another queue is not open");
}
static void a_cancel_that_is_refused(void) {
  sb_consumer *k = in_the_middle();
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    sb_consumer_cancel(k, true);
    expect_untouched(t.c, "a cancel that is refused");
    expect(!k->closed, "it was closed by a cancel that is refused");
    refuse(t.c, SB_OK);
  }
}

/* ---- its handle ---- */

static void a_handle_is_freed(void) {
  sb_consumer *k = in_the_middle();
  uint32_t handles = SB_LOAD(&t.c->handles, SB_RELAXED);
  expect_locked_in(t.c, "sb_consumer.c");
  sb_consumer_free(k);
  was_locked("a consumer that is freed");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  expect_is(SB_LOAD(&t.c->handles, SB_RELAXED), handles - 1, "the handles of the connection");
  expect_is(ready_in(0), 7, "the messages in the queue: all but one that was acknowledged");
  expect_is(t.c->target_count, 0, "the targets of the connection");
}
static void a_handle_of_a_stopped_broker_is_freed(void) {
  sb_consumer *k = in_the_middle();
  SB_STORE(&t.b->header->closing, 1u, SB_RELAXED);
  sb_consumer_free(k);
  expect_is(t.c->target_count, 0, "the targets of the connection");
}
/* It is closed between the look and the lock. */
static void close_now(sb_connection *c) { SB_STORE(&c->closed, 1u, SB_RELAXED); }
static void a_handle_that_nobody_knows(void) {
  open_queues(2);
  for (unsigned i = 0; i < 3; i++) {
    sb_consumer *k = consume(2, 4, 0, BATCH);
    int32_t consumers = queues[0]->shm->consumers;
    if (i < 2) refuse(t.c, i == 0 ? SB_CLOSED : SB_FORKED);
    t.c->renew = i == 2 ? close_now : t.c->renew;
    ask_to_forget(t.c);
    sb_consumer_free(k);
    if (i < 2) expect_untouched(t.c, "a consumer of a closed connection, or in a child");
    expect_is(queues[0]->shm->consumers, consumers, "the consumers of the queue");
    expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
    refuse(t.c, SB_OK);
    answer(t.c);
  }
}
static void make_and_free(void) {
  sb_status status;
  sb_consumer_free(make(2, 100, ALONE, &status));
}
static void make_in_vain(void) {
  sb_status status;
  (void)make(2, 100, ALONE, &status);
}
static void memory_is_freed(void) {
  open_queues(2);
  expect_is(heap_kept_by(make_and_free), 0, "the memory that a consumer keeps");
  SB_STORE(&t.b->header->closing, 1u, SB_RELAXED);
  expect_is(heap_kept_by(make_in_vain), 0, "the memory that is kept when there is none");
}

/* A row that goes back is for others: its own node does not count among those that want it. */
static void others_are_told_of_what_goes_back(void) {
  sb_consumer *k = consume(1, 4, 0, ALONE);
  uint32_t waits[2];
  put_some(0, 1, 1);
  sb_consumer_pull(k);
  set_consumer_state(k, 0, SB_NODE_NOT_INTERESTED);
  for (unsigned i = 0; i < 2; i++) waits[i] = make_node(queues[0]->slot, 0, SB_NODE_DIRECT, 0, SB_NODE_INTERESTED);
  set_consumer_state(k, 0, SB_NODE_INTERESTED);
  sb_consumer_cancel(k, false);
  expect_is(ready_in(0), 1, "the messages in the queue");
  expect_is(node_state(waits[0]), SB_NODE_NOTIFIED, "the state of the first that waits");
  expect_is(node_state(waits[1]), SB_NODE_INTERESTED, "the state of the second, for whom there is nothing");
}
/* One that is refused at another queue was none: an auto-delete queue ends with the last one that was admitted. */
static void a_queue_stays_when_one_is_refused(void) {
  sb_status status;
  queues[0] = new_queue("a", (sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_AUTO_DELETE});
  remove_queue((open_queues(2), 1));
  expect(make(2, 4, ALONE, &status) == NULL, "there is a consumer");
  expect_is(status, SB_DELETED, "the status");
  expect(sb_queue_is_open(queues[0]), "a queue ends that has had no consumer");
  sb_consumer *k = consume(1, 4, 0, ALONE);
  expect_is(queues[0]->shm->had_consumer, 1, "whether it has had a consumer");
  sb_consumer_cancel(k, true);
  expect(!sb_queue_is_open(queues[0]), "a queue stays that ends with its last consumer");
}
static void close_the_connection(void) { (void)sb_connection_close(t.c); }
/* It is over before the lock is given up: what closes the connection then does not find it. */
static void one_that_is_refused_is_over_under_the_lock(void) {
  sb_status status;
  open_queues(2);
  remove_queue(1);
  uint32_t consumers = (uint32_t)queues[0]->shm->consumers;
  sb_queue_shm *shm = queues[0]->shm;
  meanwhile(&t.c->closed, BEFORE_LOAD, 4, close_the_connection);
  expect(make(2, 4, ALONE, &status) == NULL, "there is a consumer");
  (void)has_acted();
  expect_is((uint32_t)shm->consumers, consumers, "the consumers of the queue");
}

static const test_case CASES[] = {
    {"api_consumers: new", "a new consumer has its nodes, and all its credit", a_new_consumer},
    {"api_consumers: batch", "a batch is no larger than the prefetch", a_batch_is_no_larger_than_the_prefetch},
    {"api_consumers: kind", "the IO thread gives it turns, signals and ends it", its_kind},
    {"api_consumers: refused", "nobody consumes with a connection that cannot be used",
     a_connection_that_cannot_be_used},
    {"api_consumers: deleted", "a consumer of a deleted queue is refused, and leaves the others",
     a_queue_that_is_deleted},
    {"api_consumers: exclusive", "a consumer beside an exclusive one is refused", a_queue_that_another_has_to_itself},
    {"api_consumers: node", "a consumer without a node is refused", no_node_is_left},
    {"api_consumers: interest", "a consumer that cannot say that it wants messages is refused, too",
     no_page_is_left_for_its_interest},
    {"api_consumers: heap", "without memory of the process there is no consumer", memory_of_the_process},
    {"api_consumers: pieces", "a consumer that lacks a piece of memory keeps none", pieces_of_memory},
    {"api_consumers: cancelled", "what was not given goes back", what_was_not_given_goes_back},
    {"api_consumers: all", "what was given goes back, too, if that is asked for", what_was_given_goes_back},
    {"api_consumers: pulled", "a consumer that is cancelled pulls nothing", nothing_is_pulled_any_more},
    {"api_consumers: auto-delete", "an auto-delete queue ends with its last consumer", its_queue_ends_with_it},
    {"api_consumers: not cancelled", "a cancel with a connection that cannot be used does nothing",
     a_cancel_that_is_refused},
    {"api_consumers: for others", "what goes back is told to others only", others_are_told_of_what_goes_back},
    {"api_consumers: for a moment", "an auto-delete queue does not end with a consumer that is refused",
     a_queue_stays_when_one_is_refused},
    {"api_consumers: under the lock", "a consumer that is refused is over before others have the lock",
     one_that_is_refused_is_over_under_the_lock},
    {"api_consumers: freed", "a consumer that is freed is cancelled, under the lock", a_handle_is_freed},
    {"api_consumers: stopped", "a consumer is cancelled while its broker stops", a_handle_of_a_stopped_broker_is_freed},
    {"api_consumers: unknown", "nothing is cancelled that is closed, or a parent's", a_handle_that_nobody_knows},
    {"api_consumers: memory", "a consumer that is freed keeps no memory", memory_is_freed},
};
SUBJECT(CASES)
