// SPDX-License-Identifier: Apache-2.0
/* sb_requeued in a stored queue: bits that lead to a leaf which leaves the memory, or has left it. */
#include "meanwhile.h"
#include "paging.h"
#include "queues.h"
#include "sb_requeued.h"

#define ALL ~UINT64_C(0)

static sb_queue *q;
static sb_leaf_ref leaf, found_leaf;
static uint64_t position;

static void begin(void) {
  q = begin_stored(STORED, 2 * LEAF + 1);
  store_everything();
  leaf = leaf_numbered(0);
}
static void freeze_it(void) {
  if (!sb_paged_freeze(t.c, stored_ring(), &leaf)) die("the leaf does not freeze", 0);
}
static void let_it_leave(void) {
  freeze_it();
  if (!sb_paged_leave(t.c, stored_ring(), &leaf)) die("the leaf stays", 0);
}
static void decide(void) {
  freeze_it();
  SB_STORE(&leaf.leaf->page.paging, SB_PAGING_LEFT, SB_RELAXED);
}
static void mark_cell(unsigned n) { sb_requeued_mark(t.b, stored_ring(), q->base + n); }
static bool is_marked(unsigned n) { return sb_requeued_is_marked(t.b, stored_ring(), q->base + n); }
static bool is_marked_link(void) { return (link_of(0) & (3 | SB_LINK_MARKED)) == (SB_LINK_PAGED | SB_LINK_MARKED); }
static uint64_t bits(void) { return SB_LOAD(&leaf.leaf->page.requeued, SB_RELAXED); }
static sb_page_ref parent(void) {
  sb_page_ref p;
  unsigned skip;
  if (sb_page_descend(t.b, NULL, stored_ring(), q->base, 1, &p, &skip) != SB_OK) die("sb_page_descend", 0);
  return p;
}
static uint64_t bits_above(void) { return SB_LOAD(&parent().page->requeued, SB_RELAXED); }
static bool next(uint64_t from) {
  found_leaf = (sb_leaf_ref){.slot = 1};
  return sb_requeued_next(t.b, stored_ring(), q->base + from, &found_leaf, &position);
}

/* ---- marking ---- */

static void marks_of_a_leaf_that_left(void) {
  begin();
  let_it_leave();
  expect(!is_marked(5), "what nobody marked is marked");
  mark_cell(5);
  expect(is_marked_link(), "the link is not marked");
  expect_is(bits_above() & 1, 1, "the bit above the leaf");
  expect_is(SB_LOAD(&q->shm->requeued, SB_RELAXED), 1, "whether there are bits");
  expect(is_marked(5) && is_marked(9), "a leaf with a marked link is not marked");
  SB_STORE(&parent().page->requeued, 0, SB_RELAXED);
  expect(!is_marked(5), "it is marked without the bit above");
}
static void marks_while_a_leaf_leaves(void) {
  begin();
  freeze_it();
  mark_cell(5);
  expect_is(SB_LOAD(&leaf.leaf->page.paging, SB_RELAXED), SB_PAGING_STAYS, "the state of the leaf");
  expect_is(bits(), 32, "its bits");
  expect(is_marked(5), "the cell is not marked");
}
static void marks_when_a_leaf_has_left(void) {
  begin();
  decide();
  mark_cell(5);
  expect(is_marked_link(), "the link is not marked");
  expect_is(cell_state(q, LEAF), SB_CELL_AVAILABLE, "the state of a cell of another leaf");
}
/* The storekeeper looks at the bits before the bit is set, and decides before the other looks at the state. */
static void marks_beside_the_decision(void) {
  begin();
  meanwhile(&leaf.leaf->page.requeued, BEFORE_CHANGE, 1, decide);
  mark_cell(5);
  if (has_acted()) expect(is_marked_link(), "the link is not marked");
}
static void freed_before_the_bit(void) {
  begin();
  meanwhile(&leaf.leaf->page.requeued, BEFORE_CHANGE, 1, let_it_leave);
  mark_cell(5);
  if (has_acted()) expect(is_marked_link(), "the link is not marked");
}
static void it_comes_back(void) {
  if (let_come_back(0) != SB_OK) die("the leaf does not come back", 0);
}
static void marks_beside_a_load(void) {
  begin();
  let_it_leave();
  meanwhile(link_to(0), BEFORE_CAS, 1, it_comes_back);
  mark_cell(5);
  if (!has_acted()) return;
  leaf = leaf_numbered(0);
  expect_is(bits(), 32, "the bits of the leaf that came back");
  expect(is_marked(5), "the cell is not marked");
}
static void marks_of_leaves(void) {
  begin();
  sb_requeued_mark_leaf(t.b, stored_ring(), q->base + 7);
  expect_is(bits(), ALL, "the bits of a leaf");
  expect_is(bits_above(), 1, "the bit above");
}

/* ---- searches ---- */

static void a_search_finds_a_marked_link(void) {
  begin();
  let_it_leave();
  SB_STORE(&parent().page->requeued, 1, SB_RELAXED);
  SB_STORE(&q->shm->requeued, 1, SB_RELAXED);
  expect(!next(0), "one is found in a leaf whose link is not marked");
  expect_is(bits_above(), 0, "the bit above");
  mark_cell(5);
  sb_requeued_mark(t.b, stored_ring(), q->base + LEAF + 3);
  expect(next(0), "nothing is found");
  expect(found_leaf.leaf == NULL, "a leaf is found that has left");
  expect_is(position, q->base, "the position");
  expect(next(9), "nothing is found behind its beginning");
  expect_is(position, q->base + 9, "the position then");
  expect(next(LEAF), "the other leaf is not found");
  expect_is(position, q->base + LEAF + 3, "its position");
  expect(found_leaf.leaf != NULL, "it has left");
  expect_is(bits_above(), 3, "the bits above");
}
/* The search clears the bit that leads to the leaf, since the leaf has none; meanwhile the leaf leaves. */
static void a_search_beside(void (*what)(void)) {
  begin();
  SB_STORE(&parent().page->requeued, 1, SB_RELAXED);
  SB_STORE(&q->shm->requeued, 1, SB_RELAXED);
  meanwhile(&parent().page->requeued, BEFORE_CHANGE, 1, what);
}
static void a_search_beside_a_departure(void) {
  a_search_beside(let_it_leave);
  bool found = next(0);
  if (!has_acted()) return;
  expect(is_marked_link(), "the link is not marked");
  expect(found && found_leaf.leaf == NULL, "the search does not find the link");
}
static void a_search_beside_a_load(void) {
  begin();
  let_it_leave();
  SB_STORE(&parent().page->requeued, 1, SB_RELAXED);
  SB_STORE(&q->shm->requeued, 1, SB_RELAXED);
  meanwhile(&parent().page->requeued, BEFORE_CHANGE, 1, it_comes_back);
  bool found = next(0);
  if (!has_acted()) return;
  expect(found, "nothing is found");
  expect_is(position, q->base, "the position");
  leaf = leaf_numbered(0);
  expect_is(bits(), ALL, "the bits of the leaf that came back");
}

static const test_case CASES[] = {
    {"requeued paged: left", "what returns to a leaf that left marks the link", marks_of_a_leaf_that_left},
    {"requeued paged: leaves", "what returns makes a leaf stay", marks_while_a_leaf_leaves},
    {"requeued paged: has left", "what returns after the decision marks the link", marks_when_a_leaf_has_left},
    {"requeued paged: decision", "what returns beside the decision marks the link", marks_beside_the_decision},
    {"requeued paged: freed", "what returns before the bit is set marks the link", freed_before_the_bit},
    {"requeued paged: loaded", "what returns beside a load marks the leaf", marks_beside_a_load},
    {"requeued paged: leaf", "all cells of a leaf are marked", marks_of_leaves},
    {"requeued paged: search", "a search finds a marked link, and no other one", a_search_finds_a_marked_link},
    {"requeued paged: search, leaves", "a search that cleared a bit marks the link", a_search_beside_a_departure},
    {"requeued paged: search, loaded", "a search that cleared a bit marks the leaf", a_search_beside_a_load},
};
SUBJECT(CASES)
