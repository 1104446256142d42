// SPDX-License-Identifier: Apache-2.0
/* sb_page: pages that are retired when everything in them is finished: by the process that finished the last cell, by
 * the reaper of one that died there, and by a sweep. The tree has three heights; its leaves begin at 0, 64 and 4096. */
#include "cells.h"
#include "sb_requeued.h"
#include "sb_page.h"
#include "sb_slab.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define FULL ~UINT64_C(0)

static sb_queue *q;
static sb_page_ref leaf, other, far, inner, outer,
    root; /* the leaves, the pages above `leaf` and above `far`, the root */

static sb_page_ref page(uint64_t position, unsigned height) {
  sb_page_ref p;
  unsigned skip;
  sb_status status;
  while ((status = sb_page_descend(t.b, t.c, &q->lanes[0].ring, position, height, &p, &skip)) == SB_GROW)
    (void)grow(t.b, t.path);
  if (status != SB_OK) die("sb_page_descend", (int)status);
  return p;
}
static void begin(void) {
  q = begin_queue("q", FREE_SETTINGS, 0);
  far = page(4096, 0);
  leaf = page(0, 0);
  other = page(64, 0);
  inner = page(0, 1);
  outer = page(4096, 1);
  root = page(0, 2);
}
static uint64_t child(const sb_page_ref *of, unsigned i) { return SB_LOAD(&sb_page_children(of)[i], SB_RELAXED); }
static void set_child(const sb_page_ref *of, unsigned i, uint64_t link) {
  SB_STORE(&sb_page_children(of)[i], link, SB_RELAXED);
}
static void finish_cells(const sb_page_ref *p) {
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++)
    SB_STORE(&((sb_leaf_shm *)p->page)->cells[i].word, sb_cell_bare(SB_CELL_TOMBSTONE, p->gen), SB_RELAXED);
}
/* All links of that page but the first ones are done. */
static void finish_links(const sb_page_ref *p, unsigned from) {
  for (unsigned i = from; i < SB_PAGE_CELLS; i++) set_child(p, i, SB_LINK_DONE);
  SB_STORE(&p->page->done, FULL << from, SB_RELAXED);
}
static void set_done(const sb_page_ref *p, uint64_t bits) { SB_STORE(&p->page->done, bits, SB_RELAXED); }
static bool is_there(const sb_page_ref *p) {
  uint64_t header = SB_LOAD(sb_slot_header(t.b, p->slot), SB_RELAXED);
  return sb_slot_gen(header) == p->gen && sb_slot_state(header) != SB_SLOT_FREE;
}
static void expect_retired(const sb_page_ref *p, const sb_page_ref *parent, unsigned i, const char *what) {
  expect(!is_there(p), "%s is still there", what);
  expect_is(child(parent, i), SB_LINK_DONE, what);
  expect_is(parent->page->done >> i & 1, 1, what);
}
static void expect_there(const sb_page_ref *p, const sb_page_ref *parent, unsigned i, const char *what) {
  expect(is_there(p), "%s is gone", what);
  expect_is(child(parent, i), sb_link_word(p->height, p->slot, p->gen), what);
  expect_is(parent->page->done >> i & 1, 0, what);
}

/* ---- by the one that finished the last of it ---- */

static void a_page_is_retired(void) {
  begin();
  finish_cells(&leaf);
  sb_page_retire(t.c, &q->lanes[0].ring, leaf);
  expect_retired(&leaf, &inner, 0, "the leaf");
  expect_is(inner.page->done, 1, "what is done in the page above");
  expect_is(held_by(t.c->page_token), sb_holding_what(SB_HOLD_PAGE, leaf.slot, leaf.gen), "the holding");
  expect_is(SB_LOAD(&sb_holding_at(t.b, t.c->page_token)->where, SB_RELAXED), 0, "where it is");
  expect_there(&inner, &root, 0, "the page above");
}
/* The last page of its parent takes the parent along; the root stays. */
static void pages_above_are_retired(void) {
  begin();
  finish_cells(&far);
  finish_links(&outer, 1);
  finish_links(&root, 2);
  sb_page_retire(t.c, &q->lanes[0].ring, far);
  expect_retired(&far, &outer, 0, "the leaf");
  expect_retired(&outer, &root, 1, "the page above");
  expect(is_there(&root), "the root is gone");
  finish_cells(&leaf);
  finish_cells(&other);
  finish_links(&inner, 2);
  sb_page_retire(t.c, &q->lanes[0].ring, other);
  expect_retired(&other, &inner, 1, "the second leaf");
  expect_there(&inner, &root, 0, "the page above both");
  sb_page_retire(t.c, &q->lanes[0].ring, leaf);
  expect_retired(&inner, &root, 0, "the page above both, with the last leaf");
  expect(is_there(&root), "the root is gone, with all below it");
}
/* Whatever the done bits say: each cell, and each link, is looked at. */
static void what_is_not_finished_stays(void) {
  begin();
  for (unsigned i = 0; i < SB_PAGE_CELLS; i += 21) {
    finish_cells(&leaf);
    set_done(&leaf, FULL);
    SB_STORE(&((sb_leaf_shm *)leaf.page)->cells[i].word, sb_cell_bare(SB_CELL_FREE, leaf.gen), SB_RELAXED);
    sb_page_retire(t.c, &q->lanes[0].ring, leaf);
    expect_there(&leaf, &inner, 0, "a leaf with a free cell");
  }
  finish_cells(&leaf);
  SB_STORE(&((sb_leaf_shm *)leaf.page)->cells[7].word, sb_cell_bare(SB_CELL_TOMBSTONE, leaf.gen + 1), SB_RELAXED);
  sb_page_retire(t.c, &q->lanes[0].ring, leaf);
  expect_there(&leaf, &inner, 0, "a leaf with a cell of another generation");
  for (unsigned i = 0; i < SB_PAGE_CELLS; i += 21) {
    finish_links(&outer, 0);
    set_child(&outer, i, sb_link_empty(outer.gen));
    sb_page_retire(t.c, &q->lanes[0].ring, outer);
    expect_there(&outer, &root, 1, "a page with an empty link");
  }
  set_child(&outer, 63, sb_link_word(0, far.slot, far.gen));
  sb_page_retire(t.c, &q->lanes[0].ring, outer);
  expect_there(&outer, &root, 1, "a page with a leaf");
}
/* Another one has unlinked it: it is that one's to free. */
static void a_page_that_another_one_retires(void) {
  begin();
  finish_cells(&leaf);
  set_child(&inner, 0, SB_LINK_DONE);
  sb_page_retire(t.c, &q->lanes[0].ring, leaf);
  expect(is_there(&leaf), "the leaf is gone");
  expect_is(inner.page->done, 0, "what is done in the page above");
}

/* ---- by a reaper ---- */

static void expect_links(uint32_t slot, uint64_t gen, bool should, const char *what) {
  expect(sb_page_links(t.b, &q->lanes[0].ring, slot, gen) == should, "%s is%s linked", what, should ? " not" : "");
}
static void what_is_linked(void) {
  begin();
  expect_links(other.slot, other.gen, true, "a leaf");
  expect_links(outer.slot, outer.gen, true, "an inner page");
  expect_links(root.slot, root.gen, true, "the root");
  expect_links(other.slot, other.gen + 1, false, "a leaf of another generation");
  SB_STORE(&other.page->first, 0, SB_RELAXED);
  expect_links(other.slot, other.gen, false, "a leaf in another one's place");
  SB_STORE(&other.page->first, 192, SB_RELAXED);
  expect_links(other.slot, other.gen, false, "a leaf where none is");
  SB_STORE(&other.page->first, 64, SB_RELAXED);
  SB_STORE(&other.page->ring, SB_RING_CELLS | (SB_MAX_HEIGHT + 1) << 8, SB_RELAXED);
  expect_links(other.slot, other.gen, false, "a page that is too high");
}
/* What the call does not set itself leads nowhere: the stack has no page of an earlier call. */
__attribute__((noinline)) static void use_stack(void) {
  volatile unsigned char used[8192];
  for (unsigned i = 0; i < sizeof used; i++) used[i] = 0xee;
}
static void settle(const sb_page_ref *p) {
  use_stack();
  sb_page_settle(t.c, &q->lanes[0].ring, p->slot, p->gen);
}
static void what_a_reaper_retires(void) {
  begin();
  finish_cells(&leaf);
  set_done(&leaf, FULL);
  settle(&leaf);
  expect_retired(&leaf, &inner, 0, "a leaf that is finished");
  settle(&other);
  expect_there(&other, &inner, 1, "a leaf that is not finished");
}
/* The dead connection unlinked the page, and did not free it. Its parent may be finished with it. */
static void a_page_that_was_unlinked(void) {
  begin();
  set_child(&inner, 0, SB_LINK_DONE);
  set_child(&inner, 1, SB_LINK_DONE);
  sb_page_settle(t.c, &q->lanes[0].ring, other.slot, other.gen - 1);
  expect(is_there(&other), "a leaf of another generation is gone");
  expect_is(inner.page->done, 0, "what is done with another generation");
  settle(&other);
  expect_retired(&other, &inner, 1, "the leaf");
  expect_is(inner.page->done, 2, "what is done");
  expect_there(&inner, &root, 0, "the page above");
  finish_links(&inner, 0);
  set_done(&inner, FULL - 1);
  settle(&leaf);
  expect_retired(&leaf, &inner, 0, "the last leaf");
  expect_retired(&inner, &root, 0, "the page above");
}
/* The dead connection had not linked the page yet: a leaf, or a root, which has no parent. */
static void a_page_that_was_not_linked(void) {
  begin();
  set_child(&inner, 1, sb_link_empty(inner.gen));
  settle(&other);
  expect(!is_there(&other), "the leaf is still there");
  expect_is(inner.page->done, 0, "what is done");
  expect_is(child(&inner, 1), sb_link_empty(inner.gen), "the link");
  set_child(&root, 1, sb_link_word(1, inner.slot, inner.gen)); /* `outer` is no page of the ring any more */
  SB_STORE(&outer.page->ring, SB_RING_CELLS | 3 << 8, SB_RELAXED);
  SB_STORE(&outer.page->first, 0, SB_RELAXED);
  set_child(&root, 0, SB_LINK_DONE);
  settle(&outer);
  expect(!is_there(&outer), "the root that was not linked is still there");
  expect_is(root.page->done, 0, "what is done in the root");
}

/* ---- by a sweep ---- */

static void a_sweep_retires_what_was_overlooked(void) {
  begin();
  finish_cells(&far);
  finish_links(&outer, 1);
  finish_cells(&other);
  sb_page_sweep(t.c, &q->lanes[0].ring);
  expect_retired(&far, &outer, 0, "a leaf");
  expect_retired(&outer, &root, 1, "the page above it");
  expect_retired(&other, &inner, 1, "a second leaf");
  expect_there(&leaf, &inner, 0, "a leaf with free cells");
  expect_there(&inner, &root, 0, "the page above");
  expect(is_there(&root), "the root is gone");
}
/* The links of a page, though none of its children was retired now. */
static void a_sweep_looks_at_inner_pages(void) {
  begin();
  finish_links(&outer, 0);
  sb_page_sweep(t.c, &q->lanes[0].ring);
  expect_retired(&outer, &root, 1, "an inner page");
}
static void a_sweep_does_not_go_upwards(void) {
  begin();
  finish_cells(&far);
  set_child(&outer, 9, sb_link_word(1, outer.slot, outer.gen));
  set_child(&outer, 10, sb_link_word(2, root.slot, root.gen));
  sb_page_sweep(t.c, &q->lanes[0].ring);
  expect_retired(&far, &outer, 0, "a leaf beside links that lead upwards");
}
static void a_sweep_passes_broken_links(void) {
  begin();
  finish_cells(&far);
  finish_cells(&other);
  set_child(&outer, 0, sb_link_word(0, far.slot, far.gen + 1));
  sb_page_sweep(t.c, &q->lanes[0].ring);
  expect(is_there(&far), "the leaf behind a link of another generation is gone");
  expect_is(child(&outer, 0), sb_link_word(0, far.slot, far.gen + 1), "its link");
  expect_retired(&other, &inner, 1, "a leaf beside it");
}
/* In the rest of the slot may be what a body left there, here a link to a finished leaf of another ring. */
static void a_sweep_does_not_go_behind_the_links(void) {
  begin();
  sb_queue *mine = q;
  q = begin_queue("q2", FREE_SETTINGS, 0);
  sb_page_ref foreign = page(0, 0);
  finish_cells(&foreign);
  q = mine;
  set_child(&inner, SB_PAGE_CELLS, sb_link_word(0, foreign.slot, foreign.gen));
  uint64_t held = held_by(t.c->page_token);
  sb_page_sweep(t.c, &q->lanes[0].ring);
  expect_is(held_by(t.c->page_token), held, "the page that was about to be retired");
  expect(is_there(&foreign), "the leaf of another ring is gone");
}

/* The root of a ring with a high base begins there, not at position 0. */
static void pages_far_from_the_first_position(void) {
  q = begin_queue("q", FREE_SETTINGS, 0);
  SB_STORE(q->lanes[0].ring.base, 4160, SB_RELAXED);
  SB_STORE(q->lanes[0].ring.root, sb_link_empty(4160 / SB_PAGE_CELLS), SB_RELAXED);
  leaf = page(4160, 0);
  finish_cells(&leaf);
  set_done(&leaf, FULL);
  other = page(4224, 0);
  root = page(4224, 1);
  expect_is(root.page->first, 4096, "the first position of the root");
  expect_retired(&leaf, &root, 1, "the old root, which was finished");
  finish_cells(&other);
  sb_page_sweep(t.c, &q->lanes[0].ring);
  expect_retired(&other, &root, 2, "a leaf that a sweep finds");
}
/* A root of the greatest height, which no position needs, but a broken word may claim. */
static void the_highest_root(void) {
  begin();
  uint64_t link = SB_LOAD(q->lanes[0].ring.root, SB_RELAXED), token, gen;
  uint32_t slot = 0;
  for (unsigned height = 3; height <= SB_MAX_HEIGHT; height++) {
    if (sb_holding_object(t.c, SB_KIND_INNER, &token, &slot, &gen) != SB_OK) die("sb_holding_object", (int)height);
    sb_inner_shm *page = sb_slot_at(t.b, slot);
    SB_STORE(&page->page.ring, SB_RING_CELLS | height << 8, SB_RELAXED);
    SB_STORE(&page->page.first, 0, SB_RELAXED);
    SB_STORE(&page->page.requeued, 0, SB_RELAXED);
    for (unsigned i = 1; i < SB_PAGE_CELLS; i++) SB_STORE(&page->children[i], sb_link_empty(gen), SB_RELAXED);
    SB_STORE(&page->children[0], link, SB_RELAXED);
    link = sb_link_word(height, slot, gen);
  }
  SB_STORE(q->lanes[0].ring.root, link, SB_RELAXED);
  expect(sb_page_links(t.b, &q->lanes[0].ring, slot, gen), "it is not linked");
  sb_requeued_mark(t.b, &q->lanes[0].ring, 0);
  expect_is(SB_LOAD(&((sb_page_shm *)sb_slot_at(t.b, slot))->requeued, SB_RELAXED), 1, "its bits");
  expect(sb_requeued_is_marked(t.b, &q->lanes[0].ring, 0), "a position below it is not marked");
  SB_STORE(&((sb_page_shm *)sb_slot_at(t.b, slot))->requeued, 0, SB_RELAXED);
  expect(!sb_requeued_is_marked(t.b, &q->lanes[0].ring, 0), "a position is marked without its bit");
  finish_cells(&far);
  sb_page_sweep(t.c, &q->lanes[0].ring);
  expect_retired(&far, &outer, 0, "a leaf below it");
}
/* The header of a page is damaged: its link stays as it is. */
static void a_page_of_another_generation(void) {
  begin();
  finish_cells(&far);
  uint64_t link = child(&outer, 0), header = SB_LOAD(sb_slot_header(t.b, far.slot), SB_RELAXED);
  SB_STORE(sb_slot_header(t.b, far.slot), header + (UINT64_C(1) << 26), SB_RELAXED);
  sb_page_retire(t.c, &q->lanes[0].ring, far);
  expect_is(child(&outer, 0), link, "the link");
}

static const test_case CASES[] = {
    {"retired: page", "a page whose cells are finished is unlinked and freed", a_page_is_retired},
    {"retired: above", "pages above go with the last page below them, but the root stays", pages_above_are_retired},
    {"retired: unfinished", "a page with an unfinished cell or link stays", what_is_not_finished_stays},
    {"retired: another", "a page that another connection retires is left to it", a_page_that_another_one_retires},
    {"retired: linked", "a page is linked if the walk to it ends there", what_is_linked},
    {"retired: reaped", "a reaper retires a linked page that is finished", what_a_reaper_retires},
    {"retired: unlinked", "a reaper frees an unlinked page, and finishes its parent", a_page_that_was_unlinked},
    {"retired: never linked", "a reaper frees a page that was never linked", a_page_that_was_not_linked},
    {"retired: sweep", "a sweep retires all finished pages", a_sweep_retires_what_was_overlooked},
    {"retired: sweep above", "a sweep retires inner pages whose links are done", a_sweep_looks_at_inner_pages},
    {"retired: upwards", "a sweep follows no link upwards", a_sweep_does_not_go_upwards},
    {"retired: broken", "a sweep passes links that are broken", a_sweep_passes_broken_links},
    {"retired: behind", "a sweep follows no link behind those of a page", a_sweep_does_not_go_behind_the_links},
    {"retired: base", "pages of a ring with a high base are retired", pages_far_from_the_first_position},
    {"retired: highest", "a root of the greatest height is walked from, marked and swept", the_highest_root},
    {"retired: generation", "a page of another generation is not unlinked", a_page_of_another_generation},
};
SUBJECT(CASES)
