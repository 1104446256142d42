// SPDX-License-Identifier: Apache-2.0
/* sb_changes and sb_gather while a leaf leaves the memory: a storekeeper was killed, and its reaper goes on beside the next
 * one. What has left has not ended. */
#include "meanwhile.h"
#include "paging.h"
#include "queues.h"
#include "sb_changes.h"

#define MOST 8u

static sb_queue *q;
static sb_leaf_ref leaf;
static sb_store_change found[MOST];
static uint32_t count;

static void begin(void) {
  q = begin_stored(STORED, 2 * LEAF + 1);
  store_everything();
  leaf = leaf_numbered(0);
}
static void let_it_leave(void) {
  if (!sb_paged_freeze(t.c, stored_ring(), &leaf) || !sb_paged_leave(t.c, stored_ring(), &leaf))
    die("the leaf stays", 0);
}
static void decide(void) {
  if (!sb_paged_freeze(t.c, stored_ring(), &leaf)) die("the leaf does not freeze", 0);
  SB_STORE(&leaf.leaf->page.paging, SB_PAGING_LEFT, SB_RELAXED);
}
static void look(bool all) {
  count = 0;
  expect(sb_store_changes(q, 0, all, found, MOST, &count), "there are more changes");
  for (uint32_t i = 0; i < count; i++)
    expect(!found[i].whole && found[i].ended == 0, "messages from %llu on have ended",
           (unsigned long long)found[i].first);
}
static sb_page_ref parent(void) {
  sb_page_ref p;
  unsigned skip;
  if (sb_page_descend(t.b, NULL, stored_ring(), q->base, 1, &p, &skip) != SB_OK) die("sb_page_descend", 0);
  return p;
}

/* ---- changes ---- */

static void what_has_left_has_not_ended(void) {
  begin();
  let_it_leave();
  look(true);
  expect_is(count, 2, "the leaves that are there");
  expect_is(found[0].first, LEAF, "the first one of them");
  SB_STORE(&parent().page->changed, 1, SB_RELAXED);
  SB_STORE(&q->shm->changed, 1, SB_RELAXED);
  look(false);
  expect_is(count, 0, "the changes below a bit that leads to it");
}
static void what_leaves_has_not_ended(void) {
  begin();
  decide();
  look(true);
  expect_is(count, 3, "the leaves that are there");
  expect_is(found[0].live, ~UINT64_C(0), "the messages of the leaf that leaves");
}
/* Between the look at the link and the look at the leaf's cells. */
static void it_leaves_before_its_cells_are_read(void) {
  begin();
  meanwhile(&leaf.leaf->cells[5].word, BEFORE_LOAD, 1, let_it_leave);
  look(true);
  if (has_acted()) expect_is(count, 2, "the leaves that are there");
}
/* Between the look at the link, and the look at the page to which it led. */
static void it_leaves_before_it_is_found(void) {
  begin();
  meanwhile(sb_slot_header(t.b, leaf.slot), BEFORE_LOAD, 1, let_it_leave);
  look(true);
  if (has_acted()) expect_is(count, 2, "the leaves that are there");
}
static void leave_and_come_back(void) {
  let_it_leave();
  sb_page_fresh f;
  if (sb_page_renew_leaf(t.c, stored_ring(), q->base, link_of(0), &f) != SB_OK) die("sb_page_renew_leaf", 0);
  sb_leaf_shm *fresh = (sb_leaf_shm *)(void *)f.leaf.page;
  sb_paged_coming(&f);
  for (unsigned i = 0; i < LEAF; i++) /* all have ended */
    SB_STORE(&fresh->cells[i].word, sb_cell_bare(SB_CELL_TOMBSTONE, f.leaf.gen), SB_RELAXED);
  if (!sb_paged_arrive(t.c, &f)) die("sb_paged_arrive", 0);
  sb_paged_arrived(t.c, &f);
}
static void it_leaves_and_comes_back(void) {
  begin();
  meanwhile(&leaf.leaf->cells[5].word, BEFORE_LOAD, 1, leave_and_come_back);
  count = 0;
  expect(sb_store_changes(q, 0, true, found, MOST, &count), "there are more changes");
  if (!has_acted()) return;
  expect_is(count, 3, "the leaves that are there");
  expect(!found[0].whole, "the leaf that came back has ended as a whole");
  expect_is(found[0].ended, ~UINT64_C(0), "what ended in the leaf that came back");
}

/* ---- rows ---- */

static void no_row_of_what_is_not_there(void) {
  static char heads[16384], bodies[16384];
  sb_store_row row = {.heads = heads, .bodies = bodies, .heads_size = sizeof heads, .bodies_size = sizeof bodies};
  uint64_t at = 5;
  begin();
  decide();
  expect_is(sb_store_gather(q, &at, 6, &row), SB_OK, "the status of a FROZEN cell");
  expect_is(row.count, 0, "the messages: the store has them");
  expect_is(at, 6, "where it ends");
  sb_paged_recover_leaving(t.c, stored_ring(), leaf.slot, leaf.gen);
  at = 5;
  expect_is(sb_store_gather(q, &at, 6, &row), SB_OK, "the status in a leaf that has left");
  expect_is(row.count, 0, "the messages of a leaf that has left");
  expect_is(at, 6, "where it ends then");
  at = 5;
  expect_is(sb_store_gather(q, &at, 2 * LEAF, &row), SB_OK, "the status of a longer row");
  expect_is(at, LEAF, "where it ends behind the leaf");
}

static const test_case CASES[] = {
    {"stored paged: left", "what has left has not ended", what_has_left_has_not_ended},
    {"stored paged: leaves", "what leaves has not ended", what_leaves_has_not_ended},
    {"stored paged: cells", "nor what leaves before its cells are read", it_leaves_before_its_cells_are_read},
    {"stored paged: page", "nor what leaves before its page is found", it_leaves_before_it_is_found},
    {"stored paged: back", "a leaf that came back meanwhile is looked at", it_leaves_and_comes_back},
    {"stored paged: rows", "the store has what is FROZEN, or has left", no_row_of_what_is_not_there},
};
SUBJECT(CASES)
