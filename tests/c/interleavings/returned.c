// SPDX-License-Identifier: Apache-2.0
/* Cases of returned bits: what another actor marks, creates or frees between the steps of a mark or a search. The queue
 * is empty: only the bits matter. */
#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_requeued.h"

#define NEAR 200u
#define FAR (UINT64_C(1) << 30) /* the root must grow for it */

static const sb_ring *ring(void) { return &keeper.q->lanes[0].ring; }
static uint64_t at(uint64_t number) { return keeper.q->base + number; }
static sb_leaf_ref make_leaf(uint64_t number) {
  sb_leaf_ref made;
  t.c = two.c;
  while (sb_ring_locate(t.b, two.c, ring(), at(number), &made) == SB_GROW) (void)grow(t.b, t.path);
  return made;
}
static sb_word *bits_above(uint64_t number) { /* of the page that has the leaf of that position */
  sb_page_ref p;
  unsigned skip;
  if (sb_page_descend(t.b, NULL, ring(), at(number), 1, &p, &skip) != SB_OK) die("sb_page_descend", (int)number);
  return &p.page->requeued;
}
static bool marked(uint64_t number) { return sb_requeued_is_marked(t.b, ring(), at(number)); }
static bool flag(void) { return SB_LOAD(ring()->requeued, SB_SEQ_CST) != 0; }

/* ---- beside one that marks ---- */

static void grow_and_search(void) {
  sb_leaf_ref leaf;
  uint64_t position;
  (void)make_leaf(FAR);
  (void)sb_requeued_next(t.b, ring(), 0, &leaf, &position);
}
static void mark_beside_growth(void) {
  (void)make_leaf(0);
  SB_STORE(ring()->requeued, 1, SB_SEQ_CST); /* else nothing is searched */
  meanwhile(ANYWHERE, grow_and_search);
  sb_requeued_mark(t.b, ring(), at(0));
  afterwards();
  expect(marked(0), "a bit of the new root is missing");
}

/* ---- beside one that searches ---- */

static sb_leaf_ref leaf;
static uint64_t position;
static bool bit_was_clear, flag_was_clear;             /* when the other one marked */
static unsigned found_without_bit, found_without_flag; /* in how many runs */

static bool search(void) { return sb_requeued_next(t.b, ring(), 0, &leaf, &position); }
static void mark_near(void) {
  bit_was_clear = (SB_LOAD(bits_above(NEAR), SB_SEQ_CST) >> sb_page_index(1, at(NEAR)) & 1) == 0;
  flag_was_clear = !flag();
  sb_requeued_mark(t.b, ring(), at(NEAR));
}
static void forget_bits(void) {
  sb_leaf_ref near = make_leaf(NEAR);
  SB_STORE(&near.leaf->page.requeued, 0, SB_SEQ_CST);
}
/* Bits lead to a leaf that has none; then one of it is marked. The search finds it, or its bits stay. One that cleared a bit, or
 * the flag, and finds the mark when it looks again, goes on and finds the position. */
static void search_beside_mark(void) {
  if (plan.choice[0] == 0) found_without_bit = found_without_flag = 0;
  (void)make_leaf(NEAR);
  sb_requeued_mark(t.b, ring(), at(NEAR));
  forget_bits();
  bit_was_clear = flag_was_clear = false;
  meanwhile(ANYWHERE, mark_near);
  bool found = search();
  bool last = !plan.reached[0];
  afterwards();
  expect(!found || position == at(NEAR), "position %d was found", (int)position);
  expect(marked(NEAR), "a bit of what was marked is missing");
  found_without_bit += found && bit_was_clear && !flag_was_clear;
  found_without_flag += found && flag_was_clear;
  expect(!last || (found_without_bit > 0 && found_without_flag > 0),
         "in %d runs it was found without a bit, in %d without the flag", (int)found_without_bit,
         (int)found_without_flag);
}
static void make_and_mark(void) {
  (void)make_leaf(NEAR);
  sb_requeued_mark(t.b, ring(), at(NEAR));
}
static void search_beside_making(void) {
  (void)make_leaf(0);
  (void)make_leaf(NEAR + 64); /* the root has two heights at least */
  SB_STORE(bits_above(NEAR), UINT64_C(1) << sb_page_index(1, at(NEAR)), SB_SEQ_CST);
  sb_requeued_mark(t.b, ring(), at(0));
  leaf = make_leaf(0);
  SB_STORE(&leaf.leaf->page.requeued, 0, SB_SEQ_CST);
  meanwhile(ANYWHERE, make_and_mark);
  bool found = search();
  afterwards();
  expect(!found || position == at(NEAR), "position %d was found", (int)position);
  expect(marked(NEAR), "a bit of what was marked is missing");
}
static void grow_and_mark(void) {
  (void)make_leaf(FAR);
  sb_requeued_mark(t.b, ring(), at(FAR));
}
static void search_beside_growth(void) {
  (void)make_leaf(0);
  SB_STORE(ring()->requeued, 1, SB_SEQ_CST);
  meanwhile(ANYWHERE, grow_and_mark);
  bool found = search();
  afterwards();
  expect(!found || position == at(FAR), "position %d was found", (int)position);
  expect(marked(FAR), "a bit of what was marked is missing");
}
/* The leaf is freed and used again: bits that come then are no bits of its old positions. */
static uint64_t header;
static void use_again(void) {
  sb_word *word = sb_slot_header(t.b, leaf.slot);
  header = SB_LOAD(word, SB_SEQ_CST);
  SB_STORE(word, sb_slot_word(SB_SLOT_PUBLISHED, 1, leaf.gen + 1), SB_SEQ_CST);
  (void)SB_OR(&leaf.leaf->page.requeued, 2, SB_SEQ_CST);
}
static void search_beside_freeing(void) {
  sb_leaf_ref ref;
  leaf = make_leaf(NEAR);
  sb_requeued_mark(t.b, ring(), at(NEAR));
  forget_bits();
  meanwhile(ANYWHERE, use_again);
  bool found = sb_requeued_next(t.b, ring(), 0, &ref, &position);
  afterwards();
  expect(!found, "position %d was found in a leaf that was used again", (int)position);
  SB_STORE(sb_slot_header(t.b, leaf.slot), header, SB_SEQ_CST);
  SB_STORE(&leaf.leaf->page.requeued, 0, SB_SEQ_CST);
}

static const test_case CASES[] = {
    {"mark beside growth", "what is marked while the root gets a parent has a bit there, too", FREELY,
     mark_beside_growth},
    {"search beside a mark", "a search finds what is marked beside it, or leaves its bits", FREELY, search_beside_mark},
    {"search beside making", "the same where its leaf is made beside it", FREELY, search_beside_making},
    {"search beside growth", "the same where the root gets a parent for it", FREELY, search_beside_growth},
    {"search beside freeing", "a search believes no bits of a leaf that was used again", FREELY, search_beside_freeing},
};
const subject RETURNED_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
