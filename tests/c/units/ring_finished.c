// SPDX-License-Identifier: Apache-2.0
/* sb_ring: cells that are finished, rings that are destroyed, and how a ring is found. */
#include <string.h>

#include "cells.h"
#include "sb_consumer.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define FULL ~UINT64_C(0)
#define DIRT UINT64_C(0x5555555555555555)

static sb_queue *q;
static sb_leaf_ref leaf;

static sb_leaf_ref make_leaf(uint64_t where) {
  sb_leaf_ref made;
  while (sb_ring_locate(t.b, t.c, &q->lanes[0].ring, where, &made) == SB_GROW) (void)grow(t.b, t.path);
  return made;
}
static void begin(void) {
  q = begin_queue("q", FREE_SETTINGS, 0);
  leaf = make_leaf(0);
}
static uint64_t done(void) { return SB_LOAD(&leaf.leaf->page.done, SB_RELAXED); }
static unsigned finished(unsigned i) { return ((const uint8_t *)leaf.leaf->finished)[i]; }
static uint64_t tombstone(void) { return sb_cell_bare(SB_CELL_TOMBSTONE, leaf.gen); }
static bool is_there(const sb_leaf_ref *ref) {
  uint64_t header = SB_LOAD(sb_slot_header(t.b, ref->slot), SB_RELAXED);
  return sb_slot_gen(header) == ref->gen && sb_slot_state(header) != SB_SLOT_FREE;
}

/* ---- finishing ---- */

static void a_cell_is_finished(void) {
  begin();
  sb_ring_finish(t.c, &q->lanes[0].ring, &leaf, 9);
  expect_is(word_of(9), tombstone(), "the cell");
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) expect_is(finished(i), i == 9, "what is finished");
  expect_is(done(), 0, "what is done");
}
static void an_entry_is_dropped(void) {
  begin();
  uint64_t entry = sb_entry_word(7, 3);
  set_word(9, entry);
  expect(!sb_ring_drop(t.c, &q->lanes[0].ring, &leaf, 9, sb_entry_word(7, 4)), "another entry was dropped");
  expect_is(word_of(9), entry, "the entry");
  expect_is(finished(9), 0, "whether it is finished");
  expect(sb_ring_drop(t.c, &q->lanes[0].ring, &leaf, 9, entry), "the entry was not dropped");
  expect_is(word_of(9), tombstone(), "the cell");
  expect_is(finished(9), 1, "whether the cell is finished");
}
/* Cells are marked, except `first` of the first eight, `own` of the eight that cell 20 belongs to, and the `last` ones; then cell
 * 20 is finished. */
static uint64_t done_with(unsigned first, unsigned own, unsigned last) {
  uint8_t *byte = (uint8_t *)leaf.leaf->finished;
  memset(byte, 1, SB_PAGE_CELLS);
  memset(byte, 0, first);
  memset(byte + 16, 0, own);
  memset(byte + SB_PAGE_CELLS - last, 0, last);
  byte[20] = 0;
  SB_STORE(&leaf.leaf->page.done, 0, SB_RELAXED);
  sb_ring_redo(t.c, &q->lanes[0].ring, &leaf, 20);
  expect_is(byte[20], 1, "the mark of the cell");
  return done();
}
/* Close to the end of a leaf the done bits are set, too: with three cells left beside it, and eight in all. */
static void close_to_the_end(void) {
  const uint64_t bit = UINT64_C(1) << 20;
  begin();
  expect_is(done_with(0, 3, 0), bit, "what is done with three left beside it");
  expect_is(done_with(0, 4, 0), 0, "what is done with four left beside it");
  expect_is(done_with(8, 0, 0), bit, "what is done with eight left before it");
  expect_is(done_with(8, 0, 1), 0, "what is done with nine left");
  expect_is(done_with(0, 0, 8), bit, "what is done with eight left behind it");
  expect_is(done_with(0, 3, 5), bit, "what is done with eight left in all");
  expect_is(done_with(0, 3, 6), 0, "what is done with nine left in all");
  expect_is(done_with(1, 0, 0), bit, "what is done with one left");
  expect_is(done_with(0, 0, 1), bit, "what is done with the last one left");
}
/* The last one retires the leaf; a root stays, and says that all is done. */
static void the_last_one_retires(void) {
  for (unsigned i = 0; i < 2; i++) {
    if (i == 0) begin();
    if (i == 1) {
      q = begin_queue("second", FREE_SETTINGS, 0);
      (void)make_leaf(64);
      leaf = make_leaf(0);
    }
    for (unsigned n = 0; n < SB_PAGE_CELLS; n++) {
      expect(is_there(&leaf), "the leaf is gone before its last cell");
      sb_ring_finish(t.c, &q->lanes[0].ring, &leaf, n * 5 % SB_PAGE_CELLS);
    }
    expect_is(done(), FULL, "what is done");
    expect(is_there(&leaf) == (i == 0), "a root is gone, or another leaf is there");
  }
}

/* ---- destroying ---- */

static sb_page_ref page(uint64_t position, unsigned height) {
  sb_page_ref p;
  unsigned skip;
  if (sb_page_descend(t.b, NULL, &q->lanes[0].ring, position, height, &p, &skip) != SB_OK)
    die("sb_page_descend", (int)height);
  return p;
}
static bool page_is_there(const sb_page_ref *p) { return is_there(&(sb_leaf_ref){.slot = p->slot, .gen = p->gen}); }
/* Pages are freed; an actor that remembers one finds no free cell and no page below it. The ring goes on behind all positions. */
static void a_ring_is_destroyed(void) {
  begin();
  sb_leaf_ref far = make_leaf(5000), others;
  sb_page_ref inner = page(5000, 1), root = page(0, 2);
  uint64_t *behind = (uint64_t *)(far.leaf + 1), empty = sb_link_empty(inner.gen);
  *behind = DIRT;
  sb_queue *mine = q;
  q = begin_queue("another", FREE_SETTINGS, 0);
  others = make_leaf(0);
  q = mine;
  SB_STORE(&sb_page_children(&inner)[SB_PAGE_CELLS], sb_link_word(0, others.slot, others.gen), SB_RELAXED);
  SB_STORE(q->lanes[0].ring.tail, 5003, SB_RELAXED);
  sb_ring_destroy(t.c, &q->lanes[0].ring);
  expect(!is_there(&far) && !is_there(&leaf) && !page_is_there(&inner) && !page_is_there(&root), "a page is there");
  expect(is_there(&others), "a page of another ring is gone");
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    expect_is(far.leaf->cells[i].word, sb_cell_bare(SB_CELL_TOMBSTONE, far.gen), "a cell");
    expect_is(sb_page_children(&inner)[i], i == 14 ? SB_LINK_DONE : empty, "a link to a leaf");
    expect_is(sb_page_children(&root)[i], i < 2 ? SB_LINK_DONE : sb_link_empty(root.gen), "a link of the root");
  }
  expect_is(*behind, DIRT, "the word behind the cells");
  expect_is(*q->lanes[0].ring.base, 5056, "the base");
  expect_is(*q->lanes[0].ring.tail, 5056, "the tail");
  expect_is(*q->lanes[0].ring.head, 5056, "the head");
  expect_is(*q->lanes[0].ring.root, sb_link_empty(5056 / 64), "the root");
}
/* Links that lead upwards are damage; the rest is destroyed all the same. */
static void links_that_lead_upwards(void) {
  begin();
  sb_leaf_ref far = make_leaf(5000);
  sb_page_ref inner = page(5000, 1), root = page(0, 2);
  SB_STORE(&sb_page_children(&inner)[3], sb_link_word(1, inner.slot, inner.gen), SB_RELAXED);
  SB_STORE(&sb_page_children(&inner)[4], sb_link_word(2, root.slot, root.gen), SB_RELAXED);
  sb_ring_destroy(t.c, &q->lanes[0].ring);
  expect(!is_there(&far) && !page_is_there(&inner) && !page_is_there(&root), "a page is there");
}

/* ---- where a ring is ---- */

static void expect_ring(uint32_t object, uint32_t id, const sb_word *root, const sb_word *requeued, const char *what) {
  sb_ring r = {0};
  expect(sb_ring_open(t.b, object, id, &r), "%s is not found", what);
  expect(r.root == root, "%s has another root", what);
  expect(r.requeued == requeued, "%s has another flag", what);
  expect(r.tail != NULL && r.head != NULL && r.base != NULL, "%s has no words", what);
  expect_is(r.object, object, what);
  expect_is(r.id, id, what);
}
static void expect_no_ring(uint32_t object, uint32_t id, const char *what) {
  sb_ring r = {0};
  expect(!sb_ring_open(t.b, object, id, &r), "%s is found", what);
}
static void where_rings_are(void) {
  begin();
  sb_status status;
  while (sb_consumer_open(t.c, &q, 1, 1, 0, 0, 0, &status) == NULL && status == SB_GROW) (void)grow(t.b, t.path);
  uint32_t l = q->shm->consumer_levels, object = q->slot;
  sb_consumer_level_shm *level = sb_slot_at(t.b, l);
  expect_ring(object, SB_RING_CELLS, &q->shm->root, &q->shm->requeued, "the cells");
  expect_ring(object, SB_RING_ALL, &q->shm->all.root, NULL, "all consumers");
  expect_ring(object, SB_RING_NON_ACQUIRING, &q->shm->non_acquiring_list.root, NULL,
              "the list of consumers that take nothing");
  expect_ring(object, SB_RING_NOT_INTERESTED, &q->shm->not_interested_list.root, NULL,
              "the list of consumers not interested");
  expect_ring(object, SB_RING_ROOM, &q->shm->room.root, NULL, "the list of waiters for room");
  expect_ring(object, SB_RING_SCHEDULE, &q->shm->schedule.root, NULL, "the schedule");
  expect_ring(l, SB_RING_INTERESTED, &level->interested.root, NULL, "the list of interested consumers");
  expect_ring(l, SB_RING_NOTIFIED, &level->notified.root, NULL, "the list of notified consumers");
  expect_ring(0, SB_RING_MEMORY, &t.b->header->memory_root, NULL, "the list of waiters for memory");
  expect_no_ring(object, SB_RING_INTERESTED, "a list of a level in a queue");
  expect_no_ring(object, SB_RING_NOTIFIED, "another list of a level in a queue");
  expect_no_ring(l, SB_RING_CELLS, "cells in a level");
  expect_no_ring(object, SB_RING_MEMORY, "the list of the broker in a queue");
  expect_no_ring(object, SB_RING_MEMORY + 1, "a ring of no number");
}

static const test_case CASES[] = {
    {"finished: cell", "a cell that is finished is a tombstone, and marked", a_cell_is_finished},
    {"finished: dropped", "an entry is dropped if it is the same", an_entry_is_dropped},
    {"finished: close", "close to the end of a leaf the done bits are set", close_to_the_end},
    {"finished: last", "the last cell retires its leaf, but not the root", the_last_one_retires},
    {"destroyed: ring", "a ring that is destroyed has no pages, and goes on behind all positions", a_ring_is_destroyed},
    {"destroyed: upwards", "no link is followed upwards", links_that_lead_upwards},
    {"ring: where", "a ring is found by its object and number", where_rings_are},
};
SUBJECT(CASES)
