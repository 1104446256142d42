// SPDX-License-Identifier: Apache-2.0
/* sb_nodes: lists of nodes, which of their entries are live, and counts that are corrected from them. */
#include <string.h>

#include "consuming.h"
#include "sb_slab.h"

#define STATE SB_NODE_NON_ACQUIRING
#define EPOCH 7u

static uint32_t queue; /* slot of the queue whose lists a case makes; its nodes are those of another queue */
static uint32_t nodes[4];
static sb_ring list;

static void set_word(uint32_t node, unsigned state, uint32_t epoch) {
  SB_STORE(&node_shm(node)->word, sb_node_word(state, t.c->id, epoch), SB_RELAXED);
}
static void begin(uint32_t id) {
  queue = queue_number(0)->slot;
  for (unsigned i = 0; i < 4; i++) {
    nodes[i] = make_node(queue_number(1)->slot, 0, 0, 0, SB_NODE_NOT_INTERESTED);
    set_word(nodes[i], STATE, EPOCH);
  }
  if (!sb_ring_open(t.b, queue, id, &list)) die("sb_ring_open", (int)id);
}
static uint64_t append(uint32_t node, uint32_t epoch) {
  sb_leaf_ref cache = SB_NO_LEAF;
  uint64_t position = 0;
  if (sb_ring_append(t.c, &list, &cache, sb_entry_word(node, epoch), SB_APPEND_ENTRY, NULL, &position) != SB_OK)
    die("sb_ring_append", 0);
  return position;
}
static sb_leaf_ref leaf_at(uint64_t position) {
  sb_leaf_ref leaf;
  if (sb_ring_locate(t.b, NULL, &list, position, &leaf) != SB_OK) die("sb_ring_locate", 0);
  return leaf;
}
static sb_word *cell_at(uint64_t position) {
  sb_leaf_ref leaf = leaf_at(position);
  return &sb_leaf_cell(&leaf, position)->word;
}
static unsigned state_at(uint64_t position) { return sb_cell_state(SB_LOAD(cell_at(position), SB_RELAXED)); }
static uint64_t head(void) { return SB_LOAD(list.head, SB_RELAXED); }
static uint32_t live(unsigned state) { return (uint32_t)sb_nodes_census(t.b, &list, state, 0).all[SB_STATE_ALL]; }
static uint32_t next(uint64_t position, unsigned state) { return sb_nodes_next(t.c, &list, state, &position); }

/* ---- entries ---- */

/* What is believed of an entry: the one behind it is live. */
typedef enum { DEAD, PENDING, LIVE } belief;
static void expect_belief(unsigned state, uint32_t node, uint32_t epoch, belief should, const char *what) {
  uint64_t at = append(node, epoch), behind = append(nodes[3], EPOCH), position = 0;
  uint32_t counted = live(state);
  uint32_t found = sb_nodes_next(t.c, &list, state, &position);
  expect_is(counted, should == LIVE ? 2 : 1, what);
  expect_is(found, should == LIVE ? node : nodes[3], what);
  expect_is(position, (should == LIVE ? at : behind) + 1, what);
  expect_is(head(), should == DEAD ? behind : at, what);
  expect_is(state_at(at), should == DEAD ? SB_CELL_TOMBSTONE : SB_CELL_ENTRY, what);
  for (uint64_t i = at; i <= behind; i++) /* for the next one */
    SB_STORE(cell_at(i), sb_entry_word(queue, 0), SB_RELAXED);
  expect_is(next(0, state), 0, "what is left in the list");
  expect_is(head(), behind + 1, "the head of a list that has nothing");
}
static void entries_of_a_state(void) {
  begin(SB_RING_NON_ACQUIRING);
  expect_belief(STATE, nodes[0], EPOCH, LIVE, "an entry of this epoch and state");
  expect_belief(STATE, nodes[0], EPOCH - 1, DEAD, "an entry of the epoch before");
  expect_belief(STATE, nodes[0], EPOCH + 1, PENDING, "an entry of the next epoch");
  expect_belief(STATE, nodes[0], EPOCH + 2, DEAD, "an entry of the epoch after the next");
  expect_belief(STATE, queue, EPOCH, DEAD, "an entry of what is no node");
  set_word(nodes[0], SB_NODE_NOTIFIED, EPOCH);
  expect_belief(STATE, nodes[0], EPOCH, DEAD, "an entry of this epoch and another state");
  expect_belief(STATE, nodes[0], EPOCH + 1, PENDING, "an entry of the next epoch, beside another state");
}
/* Among all an entry has the epoch in which the node was registered. */
static void entries_among_all(void) {
  begin(SB_RING_ALL);
  SB_STORE(&node_shm(nodes[3])->registration, EPOCH, SB_RELAXED);
  SB_STORE(&node_shm(nodes[0])->registration, EPOCH - 2, SB_RELAXED);
  expect_belief(SB_STATE_ALL, nodes[0], EPOCH - 2, LIVE, "an entry of a node that moved since");
  expect_belief(SB_STATE_ALL, nodes[0], EPOCH - 1, DEAD, "an entry of another registration");
  set_word(nodes[0], SB_NODE_REMOVED, EPOCH);
  expect_belief(SB_STATE_ALL, nodes[0], EPOCH - 2, DEAD, "an entry of a node that was removed");
  SB_STORE(&node_shm(nodes[0])->registration, EPOCH, SB_RELAXED);
  expect_belief(SB_STATE_ALL, nodes[0], EPOCH, DEAD, "an entry of a node that was removed at once");
  SB_STORE(&node_shm(nodes[0])->registration, EPOCH + 1, SB_RELAXED);
  expect_belief(SB_STATE_ALL, nodes[0], EPOCH + 1, PENDING, "an entry of a node that is being registered");
}

/* ---- a walk ---- */

/* The head passes what is dead, up to the first entry that is live or pending. */
static void the_head_of_a_list(void) {
  begin(SB_RING_NON_ACQUIRING);
  const struct {
    uint32_t node, epoch;
  } entries[] = {{nodes[0], 1}, {nodes[0], 2},         {nodes[0], EPOCH}, {nodes[1], EPOCH + 1},
                 {nodes[2], 1}, {nodes[2], EPOCH + 1}, {nodes[3], EPOCH}};
  for (unsigned i = 0; i < 7; i++) expect_is(append(entries[i].node, entries[i].epoch), i, "the place of an entry");
  uint64_t position = 0;
  expect_is(sb_nodes_next(t.c, &list, STATE, &position), nodes[0], "the first node");
  expect_is(position, 3, "where to go on");
  expect_is(head(), 2, "the head: the first node");
  expect_is(sb_nodes_next(t.c, &list, STATE, &position), nodes[3], "the second node");
  expect_is(head(), 2, "the head, when the walk began behind it");
  expect_is(state_at(4), SB_CELL_TOMBSTONE, "a dead entry behind the head");
  expect_is(sb_nodes_next(t.c, &list, STATE, &position), 0, "a third node");
  expect_is(position, 7, "where the walk ended");
  expect_is(head(), 2, "the head, when the walk found nothing behind it");
  set_word(nodes[0], STATE, EPOCH + 5);
  expect_is(next(0, STATE), nodes[3], "the first node that is left");
  expect_is(head(), 3, "the head: the first entry that is pending");
  set_word(nodes[3], STATE, EPOCH + 5);
  expect_is(next(0, STATE), 0, "the first node, when all but what is pending is dead");
  expect_is(head(), 3, "the head, when only what is pending is left");
  set_word(nodes[1], STATE, EPOCH + 1);
  expect_is(next(0, STATE), nodes[1], "the node that was pending");
  expect_is(head(), 3, "the head: that node");
  SB_STORE(list.head, 4, SB_RELAXED);
  expect_is(next(0, STATE), 0, "a node before the head");
  expect_is(next(4, STATE), 0, "a node behind the head");
}
static void a_list_whose_page_is_full(void) {
  begin(SB_RING_NON_ACQUIRING);
  for (uint32_t i = 0; i < SB_PAGE_CELLS; i++) (void)append(nodes[0], i == 40 ? EPOCH + 1 : 1);
  expect_is(next(50, STATE), 0, "a node behind the 50th entry");
  expect_is(head(), 0, "the head, when the walk began behind it");
  expect_is(next(0, STATE), 0, "a node");
  expect_is(head(), 40, "the head: what is pending");
  set_word(nodes[0], STATE, EPOCH + 2);
  expect_is(next(0, STATE), 0, "a node when all is dead");
  expect_is(head(), SB_PAGE_CELLS, "the head of a list that has nothing");
}
/* A walk ends at the first cell that is FREE, or of an earlier life of the page. */
static void a_walk_ends(void) {
  begin(SB_RING_NON_ACQUIRING);
  for (unsigned i = 0; i < 3; i++) (void)append(nodes[i], EPOCH);
  sb_leaf_ref leaf = leaf_at(0);
  SB_STORE(cell_at(1), sb_cell_bare(SB_CELL_TOMBSTONE, leaf.gen), SB_RELAXED);
  expect_is(live(STATE), 2, "the nodes beside a tombstone");
  expect_is(next(1, STATE), nodes[2], "the node behind a tombstone");
  expect_is(SB_LOAD(&leaf.leaf->finished[0], SB_RELAXED), 0, "the marks of a tombstone: they are its owner's");
  SB_STORE(cell_at(1), sb_cell_bare(SB_CELL_TOMBSTONE, leaf.gen + 1), SB_RELAXED);
  expect_is(live(STATE), 1, "the nodes before a tombstone of another life");
  expect_is(next(1, STATE), 0, "the node behind a tombstone of another life");
  SB_STORE(cell_at(1), sb_cell_bare(SB_CELL_FREE, leaf.gen), SB_RELAXED);
  expect_is(live(STATE), 1, "the nodes before a free cell");
  expect_is(next(1, STATE), 0, "the node behind a free cell");
}
/* The generation of the page, in a tombstone, may be the number of a node: that is no entry. */
static void what_only_looks_like_an_entry(void) {
  begin(SB_RING_NON_ACQUIRING);
  for (unsigned i = 0; i < 2; i++) (void)append(nodes[i], EPOCH);
  sb_leaf_ref leaf = leaf_at(0);
  uint64_t gen = nodes[2] | SB_FIELD(EPOCH, 28), header = SB_LOAD(sb_slot_header(t.b, leaf.slot), SB_RELAXED);
  SB_STORE(sb_slot_header(t.b, leaf.slot), sb_slot_word(sb_slot_state(header), 1, gen), SB_RELAXED);
  SB_STORE(list.root, sb_link_word(0, leaf.slot, gen), SB_RELAXED);
  SB_STORE(cell_at(0), sb_cell_bare(SB_CELL_TOMBSTONE, gen), SB_RELAXED);
  for (uint64_t i = 2; i < SB_PAGE_CELLS; i++) SB_STORE(cell_at(i), sb_cell_bare(SB_CELL_FREE, gen), SB_RELAXED);
  expect_is(live(STATE), 1, "the nodes beside a tombstone");
  expect_is(next(0, STATE), nodes[1], "the node behind a tombstone");
}
/* The page is used for something else in the middle of a walk, at any step: what was read there is not believed. */
#define LOOKS 3u /* at the cell, the node, and the page, for each entry that is counted */
static unsigned steps_left;
static sb_word *page_header;
static void the_page_is_used_again(const char *site) {
  bool of_the_walk =
      strstr(site, "sb_nodes.c") != NULL || strstr(site, "sb_ring.h") != NULL; /* the check of the page */
  if (!of_the_walk || steps_left == 0 || --steps_left > 0) return;
  uint64_t is = SB_LOAD(page_header, SB_RELAXED);
  SB_STORE(page_header, sb_slot_word(sb_slot_state(is), 1, sb_slot_gen(is) + 1), SB_RELAXED);
}
static void a_page_that_is_used_again(void) {
  begin(SB_RING_NON_ACQUIRING);
  if (!has_steps()) return;
  (void)append(nodes[0], EPOCH);
  page_header = sb_slot_header(t.b, leaf_at(0).slot);
  uint64_t was = SB_LOAD(page_header, SB_RELAXED);
  for (unsigned counts = 0; counts < 2; counts++) {
    for (unsigned step = 1;; step++) {
      steps_left = step;
      at_step = the_page_is_used_again;
      uint32_t found = counts ? live(STATE) : next(0, STATE);
      at_step = NULL;
      if (steps_left > 0) break;
      if (counts && step > LOOKS) found--; /* it was another one only when the node had been counted */
      expect_is(found, 0, "what was found in a page that is another one");
      SB_STORE(page_header, was, SB_RELAXED);
    }
    expect_is(next(0, STATE), nodes[0], "what is found in the page as it was");
  }
}

/* ---- counts ---- */

static sb_queue_shm *shm;
static uint32_t room, wants;
static uint32_t low, high; /* levels */

/* Consumers of two priorities, a call that waits for a message, and one that waits for room. */
static void begin_counts(void) {
  queue = queue_number(0)->slot;
  shm = queues[0]->shm;
  (void)make_node(queue, 5, SB_NODE_COUNTED, 0, SB_NODE_NOTIFIED);
  (void)make_node(queue, 5, SB_NODE_COUNTED, 0, SB_NODE_INTERESTED);
  wants = make_node(queue, 3, SB_NODE_COUNTED, 0, SB_NODE_INTERESTED);
  (void)make_node(queue, 3, SB_NODE_DIRECT, 0, SB_NODE_INTERESTED);
  (void)make_node(queue, 3, SB_NODE_DIRECT, 0, SB_NODE_NOT_INTERESTED);
  (void)make_node(queue, 3, SB_NODE_COUNTED, 0, SB_NODE_NOT_INTERESTED);
  (void)make_node(queue, 3, SB_NODE_COUNTED, 0, SB_NODE_NON_ACQUIRING);
  room = make_node(queue, 0, SB_NODE_ROOM, 64, SB_NODE_INTERESTED);
  high = SB_LOAD(&shm->consumer_levels, SB_RELAXED);
  low = SB_LOAD(&sb_consumer_level_at(t.b, high)->next, SB_RELAXED);
}
static void expect_recount(sb_recount how, bool right, bool mended, const char *what) {
  sb_recounted n = sb_nodes_recount(t.b, queue, how);
  expect_is(n.right, right, what);
  expect_is(n.mended, mended, what);
}
static void counts_that_are_right(void) {
  begin_counts();
  expect_is(shm->interested, 3, "those that are interested");
  expect_is(shm->notified, 1, "those that are notified");
  expect_is(shm->not_interested, 1, "those that are not interested");
  expect_is(shm->non_acquiring, 1, "those that browse");
  expect_is(shm->consumers, 5, "the consumers");
  expect_is(shm->room_waiting, 1, "those that wait for room");
  expect_recount(SB_RECOUNT_LOOK, true, false, "a look at what is right");
  expect_recount(SB_RECOUNT_HARMFUL, true, false, "the harmful of what is right");
  expect_recount(SB_RECOUNT_ALL, true, false, "all that is right");
  SB_STORE(&sb_consumer_level_at(t.b, low)->next, low, SB_RELAXED); /* a damaged list of levels has an end */
  expect_recount(SB_RECOUNT_ALL, true, false, "levels in a circle");
}
/* One that is too low may suppress a wake, of those that are told one that is too high. */
static void counts_that_are_wrong(void) {
  begin_counts();
  sb_consumer_level_shm *levels[] = {sb_consumer_level_at(t.b, high), sb_consumer_level_at(t.b, low)};
  struct {
    _Atomic int32_t *hint;
    bool high_is_harmless;
  } hints[] = {{&shm->interested, true},
               {&shm->notified, false},
               {&shm->not_interested, true},
               {&shm->non_acquiring, true},
               {&shm->consumers, true},
               {&shm->room_waiting, true},
               {&levels[0]->interested_count, true},
               {&levels[0]->notified_count, false},
               {&levels[1]->interested_count, true},
               {&levels[1]->notified_count, false}};
  for (unsigned i = 0; i < sizeof hints / sizeof hints[0]; i++) {
    int32_t right = SB_LOAD(hints[i].hint, SB_RELAXED);
    for (int32_t by = -1; by <= 1; by += 2) {
      bool harmful = (by > 0) != hints[i].high_is_harmless;
      SB_STORE(hints[i].hint, right + by, SB_RELAXED);
      expect_recount(SB_RECOUNT_LOOK, false, false, "a look at a count that is wrong");
      expect_is(SB_LOAD(hints[i].hint, SB_RELAXED), right + by, "a count that was looked at");
      expect_recount(SB_RECOUNT_HARMFUL, false, harmful, "the harmful of a count that is wrong");
      expect_is(SB_LOAD(hints[i].hint, SB_RELAXED), harmful ? right : right + by, "a count that may be harmful");
      SB_STORE(hints[i].hint, right + by, SB_RELAXED);
      expect_recount(SB_RECOUNT_ALL, false, true, "all of a count that is wrong");
      expect_is(SB_LOAD(hints[i].hint, SB_RELAXED), right, "a count that was mended");
    }
  }
}
static uint64_t seen(void) { return sb_nodes_recount(t.b, queue, SB_RECOUNT_LOOK).seen; }
/* Two looks see the same if nothing was moved in between, not even there and back. */
static void what_a_recount_saw(void) {
  begin_counts();
  uint64_t before = seen();
  expect_is(seen(), before, "what is seen twice");
  set_node_state(wants, SB_NODE_NOTIFIED);
  set_node_state(wants, SB_NODE_INTERESTED);
  uint64_t moved = seen();
  expect(moved != before, "a node that moved there and back is not seen");
  set_node_state(room, SB_NODE_NOTIFIED);
  set_node_state(room, SB_NODE_INTERESTED);
  uint64_t room_moved = seen();
  expect(room_moved != moved, "one that waits for room again is not seen");
  SB_STORE(&shm->interested, 4, SB_RELAXED);
  expect(seen() != room_moved, "another count is not seen");
}
/* Others change the count all the time: it is left to them. */
static void the_count_changes(const char *site) {
  if (strstr(site, "sb_nodes.c") != NULL) (void)SB_ADD(&shm->notified, 1, SB_RELAXED);
}
static void counts_that_change(void) {
  begin_counts();
  if (!has_steps()) return;
  SB_STORE(&shm->notified, 100, SB_RELAXED);
  at_step = the_count_changes;
  expect_recount(SB_RECOUNT_ALL, false, false, "a count that others change");
  SB_STORE(&shm->interested, 100, SB_RELAXED);
  expect_recount(SB_RECOUNT_ALL, false, true, "a count that was mended, beside one that others change");
  at_step = NULL;
  expect_is(shm->interested, 3, "the count that was mended");
  expect(shm->notified > 100, "the count that others change was mended");
}

/* Damage: the queue's chunk is none of queues any more. */
static void counts_of_what_is_no_queue(void) {
  begin(SB_RING_ROOM);
  sb_queue_shm *q = sb_slot_at(t.b, queue);
  SB_STORE(&t.b->chunks[queue / SB_CHUNK_UNITS], sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0), SB_RELAXED);
  SB_STORE(&q->room_waiting, 5, SB_RELAXED);
  (void)sb_nodes_recount(t.b, queue, SB_RECOUNT_ALL);
  expect_is(SB_LOAD(&q->room_waiting, SB_RELAXED), 5, "a word of something else");
}

static const test_case CASES[] = {
    {"nodes_listed: state", "an entry is live, pending or dead by epoch and state", entries_of_a_state},
    {"nodes_listed: all", "an entry among all is live until its node is removed", entries_among_all},
    {"nodes_listed: head", "the head of a list passes what is dead", the_head_of_a_list},
    {"nodes_listed: full", "the head of a list passes a page that is full", a_list_whose_page_is_full},
    {"nodes_listed: end", "a walk ends at a free cell, or one of another life", a_walk_ends},
    {"nodes_listed: like", "what only looks like an entry is none", what_only_looks_like_an_entry},
    {"nodes_listed: again", "nothing is believed of a page that is used again", a_page_that_is_used_again},
    {"nodes_listed: right", "counts that are right stay", counts_that_are_right},
    {"nodes_listed: wrong", "counts that are wrong are set right, if that is asked for", counts_that_are_wrong},
    {"nodes_listed: seen", "two looks differ if something moved in between", what_a_recount_saw},
    {"nodes_listed: changing", "a count that others change is left to them", counts_that_change},
    {"nodes_listed: no queue", "what is no queue any more is left alone", counts_of_what_is_no_queue},
};
SUBJECT(CASES)
