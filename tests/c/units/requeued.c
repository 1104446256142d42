// SPDX-License-Identifier: Apache-2.0
/* sb_requeued: bits from a leaf up to the root, and the search that they lead. The tree has three heights; its leaves
 * begin at 0, 64, 4096 and 4992, so each height has pages with several children. The cells are FREE: the bits are what
 * counts. */
#include "sb_requeued.h"

#include "cells.h"
#include "meanwhile.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define FAR 5000u
#define NO_WAY ((sb_requeued_way){.leaf = SB_NO_LEAF})

static sb_queue *q;
static sb_leaf_ref leaf;
static uint64_t position;
static sb_inner_shm elsewhere; /* a page that is none of the ring */

static sb_leaf_ref make_leaf(uint64_t where) {
  sb_leaf_ref made;
  while (sb_ring_locate(t.b, t.c, &q->lanes[0].ring, where, &made) == SB_GROW) (void)grow(t.b, t.path);
  return made;
}
static void begin(void) {
  q = begin_queue("q", FREE_SETTINGS, 0);
  (void)make_leaf(FAR);
  (void)make_leaf(4096);
  (void)make_leaf(70);
  (void)make_leaf(0);
  if (sb_link_height(SB_LOAD(q->lanes[0].ring.root, SB_RELAXED)) != 2) die("the height of the tree", 0);
}
static sb_page_ref page(unsigned height, uint64_t where) {
  sb_page_ref p;
  unsigned skip;
  if (sb_page_descend(t.b, NULL, &q->lanes[0].ring, where, height, &p, &skip) != SB_OK)
    die("sb_page_descend", (int)height);
  return p;
}
static uint64_t bits(unsigned height, uint64_t where) {
  return SB_LOAD(&page(height, where).page->requeued, SB_RELAXED);
}
static void set(unsigned height, uint64_t where, uint64_t to) {
  SB_STORE(&page(height, where).page->requeued, to, SB_RELAXED);
}
static void set_flag(uint64_t to) { SB_STORE(&q->shm->requeued, to, SB_RELAXED); }
static void clear_all(void) {
  const uint64_t leaves[] = {0, 70, 4096, FAR};
  for (unsigned i = 0; i < 4; i++) {
    for (unsigned height = 0; height <= 2; height++) set(height, leaves[i], 0);
  }
  set_flag(0);
}
static void mark_only(uint64_t where) {
  clear_all();
  mark(where);
}
/* The bits that lead to that position, and no other ones of these pages. */
static void expect_bits(uint64_t where, const char *what) {
  for (unsigned height = 0; height <= 2; height++)
    expect_is(bits(height, where), UINT64_C(1) << sb_page_index(height, where), what);
  expect_is(q->shm->requeued, 1, what);
}

/* ---- bits ---- */

static void bits_are_set(void) {
  begin();
  mark(FAR);
  expect_bits(FAR, "the bits of a position");
  expect_is(bits(0, 70), 0, "the bits of another leaf");
  expect_is(bits(1, 70), 0, "the bits of another page");
  mark(70);
  expect_is(bits(0, 70), 64, "the bit in the leaf");
  expect_is(bits(1, 70), 2, "the bit in the page above");
  expect_is(bits(2, 70), 3, "the bits in the root");
  clear_all();
  mark(200); /* it has no leaf */
  for (unsigned height = 1; height <= 2; height++) expect_is(bits(height, 200), 0, "the bits of what has no leaf");
  expect_is(q->shm->requeued, 1, "whether there are bits");
}
static void what_is_marked(void) {
  begin();
  mark(FAR);
  expect(sb_requeued_is_marked(t.b, &q->lanes[0].ring, FAR), "what was marked is not");
  expect(!sb_requeued_is_marked(t.b, &q->lanes[0].ring, FAR + 1), "its neighbour is marked");
  expect(!sb_requeued_is_marked(t.b, &q->lanes[0].ring, 200), "what has no leaf is marked");
  set_flag(0);
  expect(!sb_requeued_is_marked(t.b, &q->lanes[0].ring, FAR), "it is marked without the flag");
  set_flag(1);
  for (unsigned height = 0; height <= 2; height++) {
    uint64_t is = bits(height, FAR);
    set(height, FAR, ~is);
    expect(!sb_requeued_is_marked(t.b, &q->lanes[0].ring, FAR), "it is marked without the bit of height %u", height);
    set(height, FAR, is);
  }
}
static void a_bit_is_cleared(void) {
  begin();
  leaf = make_leaf(70);
  set(0, 70, 64 | 32);
  sb_requeued_clear(t.b, &leaf, 70);
  expect_is(bits(0, 70), 32, "the bits");
  set(0, 70, 64 | 32);
  sb_requeued_took(&leaf, 70);
  expect_is(bits(0, 70), 32, "the bits beside what was taken");
  sb_requeued_took(&leaf, 70);
  expect_is(bits(0, 70), 32, "the bits when it was taken without a bit");
}
/* The page was used again, perhaps by another queue: the bit is the new page's, and goes back. */
static void a_bit_of_another_page(void) {
  begin();
  leaf = make_leaf(70);
  leaf.gen--;
  sb_page_shm *p = &leaf.leaf->page;
  set(0, 70, 64);
  sb_requeued_clear(t.b, &leaf, 70);
  expect_is(bits(0, 70), 64, "the bit of the page that was cleared");
  expect_is(bits(1, 70), 2, "the bits above");
  expect_is(bits(2, 70), 1, "the bits of the root");
  expect_is(q->shm->requeued, 1, "whether there are bits");
  clear_all();
  sb_requeued_clear(t.b, &leaf, 70);
  expect_is(bits(0, 70) | bits(1, 70) | q->shm->requeued, 0, "the bits when there was none to clear");
  SB_STORE(&p->ring, SB_RING_CELLS | 1u << 8, SB_RELAXED); /* it is an inner page */
  set(0, 70, 64);
  sb_requeued_clear(t.b, &leaf, 70);
  expect_is(bits(0, 70), 64, "the bits of an inner page");
  expect_is(bits(1, 70), 2, "the bits from its height on");
  clear_all();
  SB_STORE(&p->ring, SB_RING_ALL, SB_RELAXED); /* nothing returns to a list */
  set(0, 70, 64);
  sb_requeued_clear(t.b, &leaf, 70);
  SB_STORE(&p->ring, SB_RING_CELLS, SB_RELAXED);
  SB_STORE(&p->object, slot_of(0), SB_RELAXED);
  sb_requeued_clear(t.b, &leaf, 70);
  expect_is(bits(0, 70), 64, "the bits of a page that is no queue's");
  expect_is(bits(1, 70) | q->shm->requeued, 0, "the bits above a page that is no queue's");
}

/* ---- ways ---- */

static void expect_way(const sb_requeued_way *way, uint64_t where, const char *what) {
  expect_is(way->root, SB_LOAD(q->lanes[0].ring.root, SB_RELAXED), what);
  expect(way->leaf.leaf == make_leaf(where).leaf, "%s: another leaf", what);
  for (unsigned height = 0; height <= 2; height++)
    expect(way->pages[height] == page(height, where).page, "%s: another page at height %u", what, height);
}
/* A lane of the queue that keeps the way of a case. */
static sb_lane lane_with(const sb_requeued_way *way) { return (sb_lane){.ring = q->lanes[0].ring, .way = *way}; }
static void mark_owned(uint64_t where, sb_requeued_way *way) {
  sb_lane lane = lane_with(way);
  sb_requeued_mark_owned(t.b, &lane, &leaf, where);
  *way = lane.way;
}
static bool stays_marked(uint64_t where, const sb_requeued_way *way) {
  const sb_lane lane = lane_with(way);
  return sb_requeued_stays_marked(t.b, &lane, where);
}
static void a_way_is_kept(void) {
  sb_requeued_way way = {0};
  begin();
  leaf = make_leaf(FAR);
  mark_owned(FAR, &way);
  expect_bits(FAR, "the bits");
  expect_way(&way, FAR, "the way");
  mark_owned(FAR + 1, &way);
  expect_is(bits(0, FAR), UINT64_C(3) << FAR % 64, "the bits of two");
  set_flag(0);
  mark_owned(FAR, &way);
  expect_is(q->shm->requeued, 1, "whether there are bits");
  leaf = make_leaf(70);
  clear_all();
  mark_owned(70, &way);
  expect_bits(70, "the bits in another leaf");
  expect_way(&way, 70, "the way to another leaf");
}
/* Another root, another leaf, or another generation of it: the way is found anew. */
static void another_way(void) {
  for (unsigned i = 0; i < 3; i++) {
    if (i == 0) begin();
    clear_all();
    leaf = make_leaf(70);
    sb_requeued_way way = {.root = SB_LOAD(q->lanes[0].ring.root, SB_RELAXED), .leaf = leaf};
    for (unsigned height = 0; height <= 2; height++) way.pages[height] = &elsewhere.page;
    if (i == 0) way.root++;
    if (i == 1) way.leaf.gen--;
    if (i == 2) way.leaf.leaf = make_leaf(0).leaf;
    mark_owned(70, &way);
    expect_bits(70, "the bits");
    expect_way(&way, 70, "the way");
  }
}
/* A leaf that is not there any more is marked by its position, and has no way. */
static void a_way_to_nowhere(void) {
  begin();
  const uint64_t root = SB_LOAD(q->lanes[0].ring.root, SB_RELAXED);
  for (unsigned i = 0; i < 2; i++) {
    sb_requeued_way way = NO_WAY;
    leaf = make_leaf(0);
    mark_owned(0, &way);
    clear_all();
    leaf = make_leaf(70);
    if (i == 0) leaf.gen--;
    if (i == 1) leaf.slot++;
    mark_owned(70, &way);
    expect(way.leaf.leaf == NULL, "there is a way to a leaf that is not there");
    expect_is(way.root, root, "its root");
    expect_bits(70, "the bits");
  }
}
/* A link to a page that was used again, or to one of another height, is no way. */
static void broken_ways(void) {
  sb_requeued_way way = NO_WAY;
  begin();
  leaf = make_leaf(70);
  sb_word *header = sb_slot_header(t.b, leaf.slot);
  uint64_t is = SB_LOAD(header, SB_RELAXED);
  leaf.gen++;
  SB_STORE(header, sb_slot_word(SB_SLOT_PUBLISHED, 1, leaf.gen), SB_RELAXED);
  mark_owned(70, &way);
  expect(way.leaf.leaf == NULL, "a stale link is a way");
  SB_STORE(header, is, SB_RELAXED);
  leaf.gen--;
  mark_owned(70, &way);
  expect_way(&way, 70, "the way when the link is right");
  way = NO_WAY;
  sb_page_ref root = page(2, 70);
  sb_word *link = &sb_page_children(&root)[0];
  is = sb_link_word(0, leaf.slot, leaf.gen);
  SB_STORE(link, is, SB_RELAXED);
  SB_STORE(&leaf.leaf->finished[1], is, SB_RELAXED); /* where an inner page has the link of that leaf */
  mark_owned(70, &way);
  expect(way.leaf.leaf == NULL, "a link to a page of another height is a way");
}
static void what_stays_marked(void) {
  sb_requeued_way way = NO_WAY;
  begin();
  leaf = make_leaf(FAR);
  mark_owned(FAR, &way);
  expect(stays_marked(FAR, &way), "what was marked is not");
  expect(!stays_marked(FAR + 1, &way), "its neighbour is marked");
  set_flag(0);
  expect(!stays_marked(FAR, &way), "it is marked without the flag");
  set_flag(1);
  for (unsigned height = 0; height <= 2; height++) {
    uint64_t is = bits(height, FAR);
    set(height, FAR, ~is);
    expect(!stays_marked(FAR, &way), "it is marked without the bit of height %u", height);
    set(height, FAR, is);
  }
  sb_requeued_way none = {.root = way.root, .leaf = SB_NO_LEAF};
  expect(stays_marked(FAR, &none), "what was marked is not, without a way");
  expect(!stays_marked(FAR + 1, &none), "its neighbour is marked, without a way");
  (void)make_leaf(64 * 64 * 64); /* the root gets a parent */
  set(3, 0, 0);
  expect(!stays_marked(FAR, &way), "it is marked without a bit in the new root");
  set(3, 0, 1);
  expect(stays_marked(FAR, &way), "what was marked is not, below a new root");
}

/* ---- the search ---- */

static bool next(uint64_t from, sb_requeued_way *way) {
  position = UINT64_MAX;
  leaf = SB_NO_LEAF;
  if (way == NULL) return sb_requeued_next(t.b, &q->lanes[0].ring, from, &leaf, &position);
  sb_lane lane = lane_with(way);
  bool found = sb_requeued_next_near(t.b, &lane, from, &leaf, &position);
  *way = lane.way;
  return found;
}
static void expect_next(uint64_t from, sb_requeued_way *way, uint64_t should, const char *what) {
  expect(next(from, way), "%s: nothing is found", what);
  expect_is(position, should, what);
  sb_leaf_ref real = make_leaf(should);
  expect(leaf.leaf == real.leaf, "%s: another leaf", what);
  expect_is(leaf.first, real.first, what);
  expect_is(leaf.gen, real.gen, what);
  expect_is(leaf.slot, real.slot, what);
}
static void the_lowest_is_found(void) {
  begin();
  const uint64_t marked[] = {3, 70, 75, 4096, FAR};
  for (unsigned i = 0; i < 5; i++) mark(marked[i]);
  uint64_t from = 0;
  for (unsigned i = 0; i < 5; from = marked[i++] + 1) {
    expect_next(from, NULL, marked[i], "the next one");
    expect_next(marked[i], NULL, marked[i], "the one at the position");
  }
  expect(!next(FAR + 1, NULL), "one is found behind the last");
  for (unsigned i = 0; i < 5; i++) expect(sb_requeued_is_marked(t.b, &q->lanes[0].ring, marked[i]), "a bit is gone");
  set_flag(0);
  expect(!next(0, NULL), "one is found without the flag");
}
/* The root of a ring with a high base begins there, not at position 0. */
static void a_root_at_the_base(void) {
  q = begin_queue("q", FREE_SETTINGS, 0);
  SB_STORE(q->lanes[0].ring.base, 4992, SB_RELAXED);
  SB_STORE(q->lanes[0].ring.root, sb_link_empty(4992 / SB_PAGE_CELLS), SB_RELAXED);
  (void)make_leaf(FAR);
  for (unsigned height = 0; height <= 1; height++) {
    expect_is(sb_link_height(SB_LOAD(q->lanes[0].ring.root, SB_RELAXED)), height, "the height of the root");
    mark(FAR);
    expect_next(0, NULL, FAR, "the next one");
    expect_next(FAR, NULL, FAR, "the one at the position");
    expect(!next(FAR + 1, NULL), "one is found behind it");
    (void)make_leaf(FAR + 64);
  }
}
/* Bits below which nothing is are cleared, and in the end the flag. */
static void bits_that_lead_nowhere(void) {
  begin();
  mark_only(70);
  set(0, 70, 0);
  expect(!next(71, NULL), "one is found from a later position");
  expect_is(bits(1, 70), 2, "the bit of a page that begins before the position");
  expect(!next(64, NULL), "one is found from the page's first position");
  expect_is(bits(1, 70), 0, "the bit of a page without bits");
  expect_is(bits(2, 70), 1, "the bit of the root, whose child begins before");
  expect_is(q->shm->requeued, 1, "whether there are bits");
  expect(!next(0, NULL), "one is found");
  expect_is(bits(2, 70), 0, "the bits of the root");
  expect_is(q->shm->requeued, 0, "whether there are bits at last");
  set_flag(1);
  expect(!next(1, NULL), "one is found from a later position");
  expect_is(q->shm->requeued, 1, "whether there are bits, after a look that began later");
}
/* No leaf was made there yet; or the link leads to a page of another height. */
static void bits_without_a_page(void) {
  begin();
  set(1, 200, 8);
  set(2, 200, 1);
  set_flag(1);
  expect(!next(150, NULL), "one is found where no leaf is");
  expect_is(bits(1, 200), 0, "the bit of a leaf that is not there");
  clear_all();
  sb_leaf_ref far = make_leaf(FAR);
  sb_page_ref root = page(2, 0);
  mark(FAR);
  uint64_t link = SB_LOAD(&sb_page_children(&root)[1], SB_RELAXED);
  SB_STORE(&sb_page_children(&root)[1], sb_link_word(0, far.slot, far.gen), SB_RELAXED);
  expect(!next(0, NULL), "one is found below a page of another height");
  expect_is(SB_LOAD(&root.page->requeued, SB_RELAXED), 0, "the bits of the root");
  SB_STORE(&sb_page_children(&root)[1], link, SB_RELAXED);
  mark(FAR);
  SB_STORE(&sb_page_children(&root)[1], link + (UINT64_C(1) << 34), SB_RELAXED);
  expect(!next(0, NULL), "one is found below a page of another generation");
  expect_is(SB_LOAD(&root.page->requeued, SB_RELAXED), 0, "the bits of the root");
  SB_STORE(&sb_page_children(&root)[1], link, SB_RELAXED);
  mark(70);
  mark(FAR);
  expect_next(0, NULL, 70, "the first, with links that are right");
  expect_next(71, NULL, FAR, "the second, with links that are right");
  SB_STORE(q->lanes[0].ring.root, sb_link_empty(0), SB_RELAXED);
  set_flag(1);
  expect(!next(0, NULL), "one is found without a root");
}
static void a_search_follows_the_way(void) {
  sb_requeued_way way = {0};
  begin();
  mark(75);
  mark(FAR);
  expect_next(0, &way, 75, "the first");
  expect_way(&way, 75, "the way to the first");
  mark(70);
  expect_next(0, &way, 70, "a lower one of the same leaf");
  expect_next(64, &way, 70, "the same from the first position of the leaf on");
  expect_next(71, &way, 75, "the one behind it");
  mark(64);
  expect_next(0, &way, 64, "the first of the leaf");
  mark(3);
  expect_next(0, &way, 3, "a lower one of another leaf");
  expect_way(&way, 3, "the way to it");
  mark_only(FAR);
  leaf = make_leaf(FAR);
  mark_owned(FAR, &way);
  mark(4096);
  expect_next(0, &way, 4096, "a lower one of a page beside");
  leaf = make_leaf(4096);
  mark_owned(4096, &way);
  mark(3);
  expect_next(0, &way, 3, "a lower one of a page below another child of the root");
}
/* The way leads to a leaf without bits, to one that was used again, or begins at another root. */
static void ways_that_are_not_followed(void) {
  sb_requeued_way way = NO_WAY;
  begin();
  leaf = make_leaf(70);
  mark_owned(70, &way);
  set(0, 70, 0);
  expect(!next(0, &way), "one is found in a leaf without bits");
  expect_is(q->shm->requeued, 0, "whether there are bits");
  mark(70);
  sb_requeued_way stale = way;
  stale.leaf.gen--;
  expect_next(0, &stale, 70, "the one whose leaf was used again");
  stale = (sb_requeued_way){.root = way.root, .leaf = SB_NO_LEAF};
  expect_next(0, &stale, 70, "the one without a way");
  mark_only(3);
  stale = (sb_requeued_way){.root = way.root - 1, .leaf = make_leaf(0)};
  for (unsigned height = 0; height <= 2; height++) stale.pages[height] = &elsewhere.page;
  elsewhere.page.requeued = 1;
  expect_next(0, &stale, 3, "the one below another root");
}

/* ---- orders ---- */

static void expect_order(const char *what) {
  int order = noted_order(); /* -1: in a build without steps */
  expect(order < 0 || order == SB_SEQ_CST, "%s is stored in order %d", what, order);
}
static void mark_and_note(void) {
  mark(70);
  note_order(&q->shm->requeued);
}
/* P5: the flag is stored before the cell is looked at again, also by a search that clears it, and gives it back. */
static void stores_that_all_see(void) {
  sb_requeued_way way = NO_WAY;
  begin();
  leaf = make_leaf(70);
  note_order(&q->shm->requeued);
  mark(70);
  expect_order("the flag of what is marked");
  clear_all();
  note_order(&q->shm->requeued);
  mark_owned(70, &way);
  expect_order("the flag of what is marked by its way");
  clear_all();
  set_flag(1);
  note_order(&q->shm->requeued);
  expect(!next(0, NULL), "one is found");
  expect_order("the flag that is cleared");
  clear_all();
  set_flag(1);
  meanwhile(q->lanes[0].ring.root, AFTER_LOAD, 2, mark_and_note);
  bool found = next(0, NULL);
  expect(found == has_acted(), "what was marked meanwhile is not found");
  expect_order("the flag that is given back");
}

/* A way that a handle keeps leads on although a link of the tree is broken. */
static void a_way_beside_a_broken_link(void) {
  begin();
  leaf = make_leaf(70);
  sb_requeued_way way = NO_WAY;
  clear_all();
  mark_owned(70, &way);
  sb_page_ref parent = page(1, 70);
  sb_word *link = &sb_page_children(&parent)[1];
  uint64_t right = SB_LOAD(link, SB_RELAXED);
  clear_all();
  SB_STORE(link, right + (UINT64_C(1) << 34), SB_RELAXED); /* of another generation */
  mark_owned(70, &way);
  expect_is(SB_LOAD(&leaf.leaf->page.requeued, SB_RELAXED), 64, "the bits of the leaf");
  expect(stays_marked(70, &way), "the position does not stay marked");
  for (uint64_t from = 0; from <= 64; from += 64) {
    expect(next(from, &way), "nothing was found");
    expect_is(position, 70, "the position");
    expect(leaf.leaf == way.leaf.leaf, "another leaf was found");
  }
  SB_STORE(link, right, SB_RELAXED);
}

static const test_case CASES[] = {
    {"requeued: set", "the bits from the leaf up to the root are set, and the flag", bits_are_set},
    {"requeued: marked", "a position is marked while all its bits and the flag are set", what_is_marked},
    {"requeued: cleared", "the bit of one position in its leaf is cleared", a_bit_is_cleared},
    {"requeued: stolen", "a bit that was cleared in a page that was used again goes back", a_bit_of_another_page},
    {"requeued: way", "the way to a leaf is kept, and found for another leaf", a_way_is_kept},
    {"requeued: another way", "a way of another root or generation is found anew", another_way},
    {"requeued: nowhere", "a leaf that is gone is marked by its position", a_way_to_nowhere},
    {"requeued: broken way", "stale links are no way", broken_ways},
    {"requeued: stays", "a position stays marked while the bits of its way and of a new root are set",
     what_stays_marked},
    {"requeued: lowest", "the search finds the lowest position with a bit", the_lowest_is_found},
    {"requeued: base", "the search begins at the root's first position", a_root_at_the_base},
    {"requeued: no more", "the search clears bits that lead nowhere, and the flag", bits_that_lead_nowhere},
    {"requeued: no page", "a bit without a page below it is cleared", bits_without_a_page},
    {"requeued: followed", "the search follows a way if nothing lies before its leaf", a_search_follows_the_way},
    {"requeued: orders", "the flag is stored so that all processes see it in order", stores_that_all_see},
    {"requeued: not followed", "a way that leads to nothing is not followed", ways_that_are_not_followed},
    {"requeued: broken link", "a way that is kept leads past a broken link", a_way_beside_a_broken_link},
};
SUBJECT(CASES)
