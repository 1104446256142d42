// SPDX-License-Identifier: Apache-2.0
/* sb_waits: what the consumers of a stored queue wait for, how far they have come, and which the housekeeper finds still.
 * Also the misses that sb_take and sb_choice count. Leaf 0 has the messages 1 to 64. */
#include "sb_waits.h"

#include "calls.h"
#include "consuming.h"
#include "paging.h"
#include "queues.h"
#include "selecting.h"
#include "system.h"

#define SECOND UINT64_C(1000000000)

static sb_queue *q;
static char record[BUFFER];

static sb_consumer *open_one(uint32_t prefetch, int32_t priority, bool chooses) {
  coded wanted = program_of();
  op_property(&wanted, SB_PROPERTY_PRIORITY);
  op_integer(&wanted, 5); /* `put` gives at most 2 */
  op(&wanted, SB_OP_GREATER_OR_EQUAL);
  sb_consumer_options o = {.prefetch = prefetch, .ack_batch = 1, .priority = priority};
  if (chooses) {
    o.selector = (const char *)wanted.bytes;
    o.selector_length = wanted.length;
  }
  sb_status status;
  sb_consumer *k = sb_consumer_open_with(t.c, &q, 1, &o, &status);
  if (k == NULL) die("sb_consumer_open_with", (int)status);
  return k;
}
/* Takes any message. */
static sb_consumer *plain_one(void) { return open_one(4, 0, false); }
/* Wants the priorities from 5 on. */
static sb_consumer *chooser(void) { return open_one(4, 0, true); }

static int64_t take(sb_consumer *k) { return sb_consumer_next(k, record, false); }
static unsigned waits_of(const sb_consumer *k) {
  return (unsigned)sb_waits_of(t.b, q->slot, consumer_node(k, 0), sb_waits_look(t.b, q->slot));
}
static void expect_waits(const sb_consumer *k, sb_waits_for should, const char *when) {
  expect_is(waits_of(k), should, when);
}
static void put_ranked(uint8_t priority) {
  static const char body[64];
  const sb_put_options o = {.priority = priority};
  sb_status status = sb_queue_put_with(q, body, sizeof body, &o);
  expect_is(status, SB_OK, "the status of a put");
}
static uint64_t misses(void) { return SB_LOAD(&q->shm->misses, SB_RELAXED); }

/* ---- what it waits for ---- */

static void any_message_in_the_memory(void) {
  q = begin_stored(STORED, 0);
  sb_consumer *k = plain_one();
  expect_waits(k, SB_WAITS_PRODUCER, "at an empty queue");
  put_up_to(q, 1);
  expect_waits(k, SB_WAITS_DISPATCH, "with a message");
  expect(take(k) > 0, "it is not taken");
  expect_waits(k, SB_WAITS_PRODUCER, "behind it");
}
static void any_message_in_the_store(void) {
  q = begin_left(STORED, LEAF + 1);
  sb_consumer *k = plain_one();
  expect_waits(k, SB_WAITS_LOAD, "with a leaf that has left");
  expect_is(let_come_back(0), SB_OK, "the status of the load");
  expect_waits(k, SB_WAITS_DISPATCH, "when it is back");
}
static void a_frozen_message(void) {
  q = begin_stored(STORED, LEAF + 1);
  store_everything();
  sb_leaf_ref leaf = leaf_numbered(0);
  sb_consumer *k = plain_one();
  if (!sb_paged_freeze(t.c, stored_ring(), &leaf)) die("the leaf does not freeze", 0);
  expect_waits(k, SB_WAITS_DISPATCH, "with messages that may leave");
  expect_is(cell_state(q, 0), SB_CELL_FROZEN, "the state of a cell that was looked at");
}
static void a_message_that_returned(void) {
  q = begin_stored(STORED, 0);
  put_up_to(q, 3);
  for (unsigned i = 0; i < 3; i++) (void)get(&t, q, record, false);
  SB_STORE(&q->shm->head, q->base + 3, SB_RELAXED);
  sb_consumer *k = plain_one();
  expect_waits(k, SB_WAITS_PRODUCER, "behind what a get has");
  expect_is(sb_queue_settle(q, record, SB_REQUEUE), SB_OK, "the status of the return");
  expect_waits(k, SB_WAITS_DISPATCH, "with a message before the head");
}
static void a_mark_of_a_leaf_that_left(void) {
  q = begin_left(STORED, LEAF + 1);
  SB_STORE(&q->shm->head, q->base + LEAF, SB_RELAXED);
  sb_consumer *k = plain_one();
  expect_waits(k, SB_WAITS_DISPATCH, "with a message at the head");
  sb_requeued_mark(t.b, stored_ring(), q->base);
  expect_waits(k, SB_WAITS_LOAD, "with a leaf before it that searches have passed");
}
static void bits_without_messages(void) {
  q = begin_stored(STORED, 0);
  put_up_to(q, 2);
  (void)get(&t, q, record, false);
  sb_requeued_mark(t.b, stored_ring(), q->base);
  sb_consumer *k = plain_one();
  expect_waits(k, SB_WAITS_DISPATCH, "behind a bit of a message that is held");
  (void)get(&t, q, record, false);
  sb_requeued_mark(t.b, stored_ring(), q->base);
  expect_waits(k, SB_WAITS_PRODUCER, "with nothing but such bits");
}
static void without_credit(void) {
  q = begin_stored(STORED, 0);
  put_up_to(q, 3);
  sb_consumer *k = open_one(1, 0, false);
  expect(take(k) > 0, "it takes nothing");
  expect_waits(k, SB_WAITS_CONSUMER, "with all its credit used");
  SB_STORE(&consumer_node(k, 0)->flags, SB_NODE_COUNTED | SB_NODE_STANDBY, SB_RELAXED);
  expect_waits(k, SB_WAITS_DISPATCH, "when it stands by");
}
static void a_choice(void) {
  q = begin_stored(STORED, 0);
  sb_consumer *k = chooser();
  sb_node_shm *n = consumer_node(k, 0);
  expect_is(take(k), -(int64_t)SB_EMPTY, "the status at an empty queue");
  put_ranked(0);
  expect_is(SB_LOAD(&n->flagged, SB_RELAXED), 1, "whether it is told");
  expect_waits(k, SB_WAITS_DISPATCH, "with a message that it has not looked at");
  expect_is(take(k), -(int64_t)SB_EMPTY, "the status with a message for others");
  expect_waits(k, SB_WAITS_PRODUCER, "behind a message for others");
  expect_is(SB_LOAD(&n->searched, SB_RELAXED), SB_SEARCHED_ALL, "how its search ended");
  put_ranked(5);
  expect(take(k) > 0, "it does not take what it wants");
  expect_is(SB_LOAD(&n->reached, SB_RELAXED), q->base + 2 + 1, "how far it came");
}
static void a_choice_in_the_store(void) {
  q = begin_left(STORED, LEAF + 1);
  sb_consumer *k = chooser();
  sb_node_shm *n = consumer_node(k, 0);
  expect_waits(k, SB_WAITS_LOAD, "before it has searched");
  expect_is(take(k), -(int64_t)SB_GROW, "the status of its search");
  expect_is(SB_LOAD(&n->searched, SB_RELAXED), SB_SEARCHED_LACKED, "how its search ended");
  expect_is(SB_LOAD(&n->away, SB_RELAXED), q->base + 1, "what it needs");
  SB_STORE(&n->flagged, 0, SB_RELAXED);
  expect_waits(k, SB_WAITS_LOAD, "after a search");
  expect_is(let_come_back(0), SB_OK, "the status of the load");
  SB_STORE(&n->flagged, 0, SB_RELAXED);
  expect_waits(k, SB_WAITS_DISPATCH, "when the leaf is back");
  expect_is(take(k), -(int64_t)SB_EMPTY, "the status of the next search");
  expect_is(SB_LOAD(&n->away, SB_RELAXED), 0, "what it needs then");
  expect_waits(k, SB_WAITS_PRODUCER, "behind all messages");
}
/* One of a lower priority leaves to a rival what that wants. */
static void beside_a_rival(void) {
  q = begin_stored(STORED, 0);
  sb_consumer *rival = open_one(4, 1, true), *k = plain_one();
  expect_is(take(rival), -(int64_t)SB_EMPTY, "the status of the rival");
  put_ranked(5);
  expect_is(take(k), -(int64_t)SB_EMPTY, "the status with a message for the rival");
  SB_STORE(&consumer_node(k, 0)->flagged, 0, SB_RELAXED);
  set_consumer_state(k, 0, SB_NODE_INTERESTED);
  expect_waits(k, SB_WAITS_PRODUCER, "beside the rival");
  sb_consumer_cancel(rival, true);
  expect_waits(k, SB_WAITS_DISPATCH, "when the rival is gone");
}

/* ---- how far ---- */

static void what_lies_before_it(void) {
  uint64_t reached, watermark;
  q = begin_stored(STORED, 3 * LEAF + 1);
  store_everything();
  if (!let_leave(2)) die("the leaf does not leave", 0);
  sb_consumer *k = chooser(), *other = plain_one();
  expect(sb_waits_reached(t.b, q->slot, consumer_node(k, 0), &reached), "a place before the first search");
  expect_is(reached, q->base, "that place");
  expect(sb_waits_watermark(t.b, q->slot, reached, &watermark), "no watermark");
  expect_is(watermark, q->base + 2 * LEAF, "the watermark");
  expect_is(take(k), -(int64_t)SB_GROW, "the status of its search");
  expect(sb_waits_reached(t.b, q->slot, consumer_node(k, 0), &reached), "a place after it");
  expect_is(reached, q->base + 2 * LEAF, "that place");
  expect(sb_waits_reached(t.b, q->slot, consumer_node(other, 0), &reached), "the place of another one");
  expect_is(reached, q->base, "that place");
  expect_is(let_come_back(2), SB_OK, "the status of the load");
  expect(!sb_waits_watermark(t.b, q->slot, reached, &watermark), "a watermark when all is back");
}

/* ---- misses ---- */

static void misses_of_gets(void) {
  q = begin_left(STORED, LEAF + 1);
  for (unsigned i = 0; i < 3; i++) expect_is(sb_queue_get(q, record, false), -(int64_t)SB_GROW, "the status of a get");
  expect_is(misses(), 1, "the misses of one leaf");
  expect_is(let_come_back(0), SB_OK, "the status of the load");
  expect_is(get(&t, q, record, true), 1, "what was loaded");
  expect_is(misses(), 1, "the misses after the get");
  store_everything();
  expect(let_leave(0), "the leaf stays");
  uint64_t removed = 0;
  q->missed = 0;
  expect_is(sb_queue_purge(q, &removed), SB_GROW, "the status of a purge");
  expect_is(misses(), 1, "the misses after a purge");
}
static void misses_of_a_search(void) {
  q = begin_stored(STORED, 3 * LEAF);
  put_ranked(5);
  store_everything();
  sb_consumer *k = chooser();
  for (unsigned n = 0; n < 3; n++) expect(let_leave(n), "leaf %u stays", n);
  for (unsigned n = 0; n < 3; n++) {
    expect_is(take(k), -(int64_t)SB_GROW, "the status of a search");
    expect_is(let_come_back(n), SB_OK, "the status of the load");
    expect_is(misses(), 1, "the misses of one search");
  }
  expect(take(k) > 0, "it does not find what it wants");
  put_ranked(5);
  sb_choice *choice = &k->subscriptions[0].choice;
  expect(!choice->missed, "the next message counts as missed");
}

/* ---- no progress ---- */

static sb_waits_watched watch(bool anew) {
  sb_lock(t.c);
  sb_waits_watched found = sb_waits_watch(t.c, q->slot, anew);
  sb_unlock(t.c);
  return found;
}
static uint32_t tell(uint64_t until_ns) {
  sb_lock(t.c);
  uint32_t node = sb_waits_tell(t.c, q->slot, until_ns);
  sb_unlock(t.c);
  return node;
}
static void begin_still(unsigned messages) {
  q = begin_stored(STORED, messages);
  answer_for_the_system();
  says.now_ns = 100 * SECOND;
}
static void expect_watched(sb_waits_watched found, uint32_t still, uint32_t told, uint64_t next_ns) {
  expect_is(found.still, still, "how many wait");
  expect_is(found.told, told, "how many were told of");
  expect_is(found.next_ns, next_ns, "since when another one is still");
}

static void one_that_is_still(void) {
  begin_still(5);
  sb_consumer *k = plain_one();
  expect_watched(watch(true), 1, 0, 100 * SECOND);
  says.now_ns = 107 * SECOND;
  expect_watched(watch(false), 1, 0, 100 * SECOND);
  expect_is(tell(100 * SECOND - 1), 0, "one that was told of too early");
  expect_is(tell(100 * SECOND), k->subscriptions[0].node, "the one that is told of");
  expect_is(tell(100 * SECOND), 0, "one that was told of twice");
  expect_watched(watch(false), 1, 1, 0);
  expect(take(k) > 0, "it takes nothing");
  put_up_to(q, 1); /* it has no credit */
  expect_watched(watch(false), 0, 0, 0);
  expect_is(SB_LOAD(&consumer_node(k, 0)->still_ns, SB_RELAXED), 0, "since when it is still");
}
static void one_that_goes_on(void) {
  begin_still(5);
  sb_consumer *k = open_one(100, 0, false);
  (void)watch(true);
  (void)tell(100 * SECOND);
  says.now_ns = 120 * SECOND;
  expect(take(k) > 0, "it takes nothing"); /* all of them */
  put_up_to(q, 2);
  expect_watched(watch(false), 1, 0, 120 * SECOND);
  expect_is(tell(120 * SECOND), k->subscriptions[0].node, "the one that is told of again");
}
static void others_at_the_head(void) {
  begin_still(5);
  (void)plain_one();
  (void)get(&t, q, record, false);
  (void)watch(true);
  says.now_ns = 120 * SECOND;
  (void)get(&t, q, record, false);
  expect_watched(watch(false), 1, 0, 120 * SECOND);
}
static void an_earlier_housekeeper(void) {
  begin_still(5);
  sb_consumer *k = plain_one();
  (void)watch(true);
  says.now_ns = 120 * SECOND;
  expect_watched(watch(true), 1, 0, 120 * SECOND);
  (void)tell(120 * SECOND);
  says.now_ns = 130 * SECOND;
  expect_watched(watch(true), 1, 1, 0);
  expect_is(SB_LOAD(&consumer_node(k, 0)->still_ns, SB_RELAXED), 130 * SECOND, "since when it is still");
}
static void those_that_others_hold_up(void) {
  begin_still(0);
  sb_consumer *full = open_one(1, 0, false), *k = chooser();
  (void)make_node(q->slot, 0, SB_NODE_DIRECT, 1, SB_NODE_INTERESTED); /* a get that waits */
  put_up_to(q, 3);
  expect(take(full) > 0, "it takes nothing");
  expect_is(take(k), -(int64_t)SB_EMPTY, "the status of a search");
  expect_watched(watch(true), 0, 0, 0);
  expect_is(tell(1000 * SECOND), 0, "one that was told of");
}
static void one_whose_message_went(void) {
  begin_still(5);
  sb_consumer *k = chooser(), *other = plain_one();
  sb_node_shm *n = consumer_node(k, 0);
  expect_watched(watch(true), 2, 0, 100 * SECOND);
  expect_is(take(k), -(int64_t)SB_EMPTY, "the status of a search");
  says.now_ns = 110 * SECOND;
  expect_watched(watch(false), 1, 0, 100 * SECOND);
  expect_is(SB_LOAD(&n->still_ns, SB_RELAXED), 0, "since when it is still");
  says.now_ns = 120 * SECOND;
  SB_STORE(&n->flagged, 1, SB_RELAXED);
  expect_watched(watch(false), 2, 0, 100 * SECOND);
  expect_is(SB_LOAD(&n->still_ns, SB_RELAXED), 120 * SECOND, "since when it is still again");
  expect_is(sb_waits_still_ns(q->shm, n, SB_WAITS_PRODUCER), 0, "since when, if it waits for a producer");
  (void)other;
}

static const test_case CASES[] = {
    {"waits: any", "one that takes any message waits for one in the memory", any_message_in_the_memory},
    {"waits: any, store", "it waits for the load of the first one", any_message_in_the_store},
    {"waits: any, frozen", "a FROZEN message is there, and stays FROZEN", a_frozen_message},
    {"waits: returned", "a message before the head is there", a_message_that_returned},
    {"waits: returned, left", "a mark before the head is to be loaded", a_mark_of_a_leaf_that_left},
    {"waits: returned, gone", "a bit of a message that is held is none", bits_without_messages},
    {"waits: credit", "without credit it waits for its application, unless it stands by", without_credit},
    {"waits: choice", "one that chooses is told, and then knows", a_choice},
    {"waits: choice, store", "it waits for the load of what it needs", a_choice_in_the_store},
    {"waits: rival", "what a rival wants is not for it", beside_a_rival},
    {"waits: place", "how far it has come, and what it must load", what_lies_before_it},
    {"waits: misses", "a leaf counts once, for a get", misses_of_gets},
    {"waits: misses, search", "a search counts once", misses_of_a_search},
    {"waits: still", "one that does nothing is told of once", one_that_is_still},
    {"waits: still, on", "one that goes on is told of again", one_that_goes_on},
    {"waits: still, head", "those that share the head go on together", others_at_the_head},
    {"waits: still, another", "another housekeeper counts anew, and tells of nobody twice", an_earlier_housekeeper},
    {"waits: still, held up", "nobody is told of who waits for others", those_that_others_hold_up},
    {"waits: still, gone", "one that needs nothing any more is not still", one_whose_message_went},
};
SUBJECT(CASES)
