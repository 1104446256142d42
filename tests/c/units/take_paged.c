// SPDX-License-Identifier: Apache-2.0
/* sb_take, sb_choice, sb_release and sb_queue in a stored queue: a leaf that leaves the memory while somebody looks at its
 * cells. Leaf 0 has the messages 1 to 64. */
#include <string.h>

#include "calls.h"
#include "dead.h"
#include "meanwhile.h"
#include "paging.h"
#include "queues.h"
#include "sb_take.h"

static sb_queue *q;
static char record[BUFFER];
static sb_leaf_ref leaf;
static uint32_t wanted_slot;
static uint64_t wanted;

static void begin(void) {
  q = begin_stored(STORED, LEAF + 1);
  store_everything();
  leaf = leaf_numbered(0);
}
static void freeze_it(void) {
  if (!sb_paged_freeze(t.c, stored_ring(), &leaf)) die("the leaf does not freeze", 0);
}
static void let_it_leave(void) { /* the caller has the connection's lock */
  freeze_it();
  if (!sb_paged_leave(t.c, stored_ring(), &leaf)) die("the leaf stays", 0);
}
static void decide(void) {
  freeze_it();
  SB_STORE(&leaf.leaf->page.paging, SB_PAGING_LEFT, SB_RELAXED);
}
static uint64_t paging(void) { return SB_LOAD(&leaf.leaf->page.paging, SB_RELAXED); }
static bool is_wanted(uint64_t should) {
  return sb_store_wanting(t.b, &wanted_slot, &wanted) && wanted == should && wanted_slot == q->slot;
}
static bool is_marked_link(void) { return (link_of(0) & (3 | SB_LINK_MARKED)) == (SB_LINK_PAGED | SB_LINK_MARKED); }
static void mark_cell(unsigned n) { sb_requeued_mark(t.b, stored_ring(), q->base + n); }
static void set_behind(void) { /* all searches have passed leaf 0 */
  SB_STORE(&q->shm->head, q->base + LEAF, SB_RELAXED);
  q->lanes[0].cursor = q->base + LEAF;
}
static sb_consumer *consumer;
static void consume(void) {
  sb_status status;
  consumer = sb_consumer_open(t.c, &q, 1, 4, 0, 1, 0, &status);
  if (consumer == NULL) die("sb_consumer_open", (int)status);
}
/* By a get, or by a consumer: which searches otherwise. */
static int64_t take(bool by_consumer) {
  return by_consumer ? sb_consumer_next(consumer, record, false) : sb_queue_get(q, record, false);
}
static void expect_taken(int64_t length, uint64_t id) {
  expect(length > 0, "message %llu was not taken: status %d", (unsigned long long)id, (int)-length);
  if (length > 0) expect_is(id_at(body_of(record, length), 64), id, "the message that was taken");
}

/* ---- along the ring ---- */

static void a_frozen_cell(bool by_consumer) {
  begin();
  if (by_consumer) consume();
  freeze_it();
  expect_taken(take(by_consumer), 1);
  expect_is(paging(), SB_PAGING_STAYS, "the state of the leaf");
}
static void get_finds_a_frozen_cell(void) { a_frozen_cell(false); }
static void consumer_finds_a_frozen_cell(void) { a_frozen_cell(true); }

static void a_leaf_that_left(bool by_consumer) {
  begin();
  if (by_consumer) consume();
  decide();
  expect_is(take(by_consumer), -(int64_t)SB_GROW, "the status");
  expect(is_wanted(0), "the leaf is not needed");
  expect_is(sb_link_state(link_of(0)), SB_LINK_PAGED, "the state of the link");
}
static void get_finds_a_leaf_that_left(void) { a_leaf_that_left(false); }
static void consumer_finds_a_leaf_that_left(void) { a_leaf_that_left(true); }

/* The handle remembers the leaf. */
static void a_leaf_that_is_remembered(bool by_consumer) {
  begin();
  if (by_consumer) consume();
  q->lanes[0].head_leaf = q->looked_leaf = leaf;
  let_it_leave();
  expect_is(take(by_consumer), -(int64_t)SB_GROW, "the status");
  expect(is_wanted(0), "the leaf is not needed");
}
static void get_remembers_a_leaf(void) { a_leaf_that_is_remembered(false); }
static void consumer_remembers_a_leaf(void) { a_leaf_that_is_remembered(true); }

/* After the look at the cell, before it is taken. */
static void a_leaf_that_freezes_before_the_take(bool by_consumer) {
  begin();
  if (by_consumer) consume();
  meanwhile(cell_at(q, 0), AFTER_LOAD, 1, freeze_it);
  int64_t length = take(by_consumer);
  if (!has_acted()) return;
  if (length == -(int64_t)SB_EMPTY) length = take(by_consumer); /* somebody else was faster, as it seemed */
  expect_taken(length, 1);
  expect_is(paging(), SB_PAGING_STAYS, "the state of the leaf");
}
static void it_freezes_before_a_get(void) { a_leaf_that_freezes_before_the_take(false); }
static void it_freezes_before_a_consumer(void) { a_leaf_that_freezes_before_the_take(true); }
static void it_leaves_before_a_consumer(void) {
  begin();
  consume();
  meanwhile(cell_at(q, 0), AFTER_LOAD, 1, let_it_leave);
  int64_t length = take(true);
  if (!has_acted()) return;
  if (length == -(int64_t)SB_EMPTY) length = take(true);
  expect_is(length, -(int64_t)SB_GROW, "the status");
}
static void a_cell_by_its_position(void) {
  sb_taken taken;
  uint64_t token;
  begin();
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  freeze_it();
  expect_is(sb_take_at(q, q->base + 5, SB_CELL_AVAILABLE, token, &taken), SB_OK, "the status of a FROZEN cell");
  expect_is(paging(), SB_PAGING_STAYS, "the state of the leaf");
  expect_is(sb_take_at(q, q->base + 5, SB_CELL_AVAILABLE, token, &taken), SB_EMPTY, "the status of a taken one");
}
static void a_cell_of_a_leaf_that_left(void) {
  sb_taken taken;
  uint64_t token;
  begin();
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  q->looked_leaf = q->lanes[0].head_leaf = leaf;
  let_it_leave();
  expect_is(sb_take_at(q, q->base + 5, SB_CELL_AVAILABLE, token, &taken), SB_GROW, "the status");
  expect(is_wanted(5), "the message is not needed");
}

/* ---- by the bits ---- */

static void (*after)(void);
static void when_cleared(const char *site) {
  if (strcmp(site, "queue.take.cleared") != 0) return;
  at_step = NULL;
  after();
}
/* The search has cleared the bit of a message, and nobody else knows of it. */
static void the_bit_was_cleared(bool by_consumer, void (*then)(void)) {
  begin();
  if (by_consumer) consume();
  set_behind();
  mark_cell(5);
  after = then;
  at_step = when_cleared;
  int64_t length = take(by_consumer);
  at_step = NULL;
  if (!has_steps()) return;
  if (then == freeze_it) {
    expect_taken(length, 6);
    expect_is(paging(), SB_PAGING_STAYS, "the state of the leaf");
  } else {
    expect_is(length, -(int64_t)SB_GROW, "the status");
    expect(is_marked_link(), "the link is not marked");
    expect_is(let_come_back(0), SB_OK, "the status of a load");
    expect(sb_requeued_is_marked(t.b, stored_ring(), q->base + 5), "the message is not marked when it is back");
    expect_taken(take(by_consumer), 1);
  }
}
static void get_cleared_it_and_it_freezes(void) { the_bit_was_cleared(false, freeze_it); }
static void get_cleared_it_and_it_leaves(void) { the_bit_was_cleared(false, let_it_leave); }
static void get_cleared_it_and_it_left(void) { the_bit_was_cleared(false, decide); }
static void consumer_cleared_it_and_it_freezes(void) { the_bit_was_cleared(true, freeze_it); }
static void consumer_cleared_it_and_it_leaves(void) { the_bit_was_cleared(true, let_it_leave); }

static void a_marked_link(bool by_consumer) {
  begin();
  if (by_consumer) consume();
  set_behind();
  let_it_leave();
  mark_cell(5);
  expect(is_marked_link(), "the link is not marked");
  expect_is(take(by_consumer), -(int64_t)SB_GROW, "the status");
  expect(is_wanted(0), "the leaf is not needed");
}
static void get_finds_a_marked_link(void) { a_marked_link(false); }
static void consumer_finds_a_marked_link(void) { a_marked_link(true); }

/* ---- returning ---- */

/* As a search and a storekeeper do after the message is AVAILABLE: the first clears its bit, the other stores its return. */
static void deal_with_its_bits(void) {
  SB_STORE(&leaf.leaf->page.requeued, 0, SB_RELAXED);
  SB_STORE(&leaf.leaf->page.changed, 0, SB_RELAXED);
}
static void when_flipped(const char *site) {
  if (strcmp(site, "queue.release.flipped") != 0) return;
  at_step = NULL;
  deal_with_its_bits();
  after();
}
static void a_message_returns_before(void (*what)(void)) {
  begin();
  expect_taken(take(false), 1);
  after = what;
  at_step = when_flipped;
  expect_is(sb_queue_settle(q, record, SB_UNDELIVER), SB_OK, "the status of a return");
  at_step = NULL;
}
static void it_leaves_after_a_return(void) {
  a_message_returns_before(let_it_leave);
  if (has_steps()) expect(is_marked_link(), "nothing says that a message returned");
}
static void it_has_left_after_a_return(void) {
  a_message_returns_before(decide);
  if (has_steps()) expect(is_marked_link(), "nothing says that a message returned");
}
static void it_freezes_after_a_return(void) {
  a_message_returns_before(freeze_it);
  if (!has_steps()) return;
  expect(sb_requeued_is_marked(t.b, stored_ring(), q->base), "the message is not marked");
  expect_is(paging(), SB_PAGING_STAYS, "the state of the leaf");
}

/* ---- what a dead connection held ---- */

static void release(void) { sb_intent_release_cell(&w, q->slot, q->base + 5); }
static void a_cell_of_the_dead(void) {
  begin();
  begin_dead();
  freeze_it();
  release();
  expect_is(paging(), SB_PAGING_STAYS, "the state of a leaf with FROZEN cells");
  expect(sb_requeued_is_marked(t.b, stored_ring(), q->base + 5), "a cell that was FROZEN is not marked");
}
static void a_cell_of_the_dead_in_a_leaf_that_left(void) {
  begin();
  begin_dead();
  decide();
  release();
  expect(is_marked_link(), "the link of a leaf that has left is not marked");
}
static void a_cell_of_the_dead_that_is_gone(void) {
  begin();
  begin_dead();
  let_it_leave();
  release();
  expect(is_marked_link(), "the link of a leaf that is gone is not marked");
  SB_STORE(link_to(0), SB_LINK_DONE, SB_RELAXED);
  SB_STORE(&q->shm->requeued, 0, SB_RELAXED);
  release();
  expect_is(SB_LOAD(&q->shm->requeued, SB_RELAXED), 0, "whether there are bits when all messages have ended");
}

/* ---- waiting ---- */

static void who_waits_for_messages(void) {
  sb_leaf_ref remembered = SB_NO_LEAF;
  begin();
  let_it_leave();
  expect(sb_queue_looks_ready(q), "a queue with messages in the store has none");
  expect(sb_queue_seems_ready(q, &remembered), "a queue with messages in the store seems to have none");
}
static void who_waits_while_it_freezes(void) {
  sb_leaf_ref remembered = SB_NO_LEAF;
  begin();
  freeze_it();
  expect(sb_queue_looks_ready(q), "a queue with FROZEN cells has no message");
  expect(sb_queue_seems_ready(q, &remembered), "a queue with FROZEN cells seems to have no message");
}

static const test_case CASES[] = {
    {"take paged: frozen", "a get ends a departure", get_finds_a_frozen_cell},
    {"take paged: frozen, consumer", "a consumer ends a departure", consumer_finds_a_frozen_cell},
    {"take paged: left", "a get needs the leaf", get_finds_a_leaf_that_left},
    {"take paged: left, consumer", "a consumer needs the leaf", consumer_finds_a_leaf_that_left},
    {"take paged: remembered", "a get remembers no leaf that left", get_remembers_a_leaf},
    {"take paged: remembered, consumer", "a consumer remembers no leaf that left", consumer_remembers_a_leaf},
    {"take paged: freezes", "a get passes no cell that freezes", it_freezes_before_a_get},
    {"take paged: freezes, consumer", "a consumer passes no cell that freezes", it_freezes_before_a_consumer},
    {"take paged: leaves, consumer", "a consumer passes no cell that leaves", it_leaves_before_a_consumer},
    {"take paged: position", "a FROZEN cell is taken", a_cell_by_its_position},
    {"take paged: position, left", "the message of a position is needed", a_cell_of_a_leaf_that_left},
    {"take paged: bit, freezes", "what returned is found", get_cleared_it_and_it_freezes},
    {"take paged: bit, leaves", "the link says that something returned", get_cleared_it_and_it_leaves},
    {"take paged: bit, left", "the link says so before it is PAGED", get_cleared_it_and_it_left},
    {"take paged: bit, freezes, consumer", "what returned is found by a consumer", consumer_cleared_it_and_it_freezes},
    {"take paged: bit, leaves, consumer", "a consumer marks the link", consumer_cleared_it_and_it_leaves},
    {"take paged: marked", "a get needs a leaf behind its cursor", get_finds_a_marked_link},
    {"take paged: marked, consumer", "a consumer needs a leaf behind its cursor", consumer_finds_a_marked_link},
    {"take paged: returns, leaves", "who returns a message marks the link", it_leaves_after_a_return},
    {"take paged: returns, left", "who returns a message marks the link of a leaf that left",
     it_has_left_after_a_return},
    {"take paged: returns, freezes", "who returns a message makes the leaf stay", it_freezes_after_a_return},
    {"take paged: dead", "a reaper marks a FROZEN cell", a_cell_of_the_dead},
    {"take paged: dead, left", "a reaper marks the link", a_cell_of_the_dead_in_a_leaf_that_left},
    {"take paged: dead, gone", "a reaper marks only a link that is PAGED", a_cell_of_the_dead_that_is_gone},
    {"take paged: wait", "nobody waits while messages are in the store", who_waits_for_messages},
    {"take paged: wait, freezes", "nobody waits while messages are FROZEN", who_waits_while_it_freezes},
};
SUBJECT(CASES)
