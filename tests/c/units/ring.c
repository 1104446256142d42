// SPDX-License-Identifier: Apache-2.0
/* sb_ring: leaves that are found, the tail, and appends. The cases set the cells of the ring. Finished cells and
 * destroyed rings: ring_finished.c. */
#include "sb_ring.h"

#include "cells.h"
#include "meanwhile.h"

#define FREE_SETTINGS ((sb_settings)FREELY)

static sb_queue *q;
static sb_leaf_ref leaf;
static uint64_t position;

static sb_leaf_ref make_leaf(uint64_t where) {
  sb_leaf_ref made;
  while (sb_ring_locate(t.b, t.c, &q->lanes[0].ring, where, &made) == SB_GROW) (void)grow(t.b, t.path);
  return made;
}
static void begin(void) { q = begin_queue("q", FREE_SETTINGS, 0); }
/* The first cells are filled: they are ready, or have ended. */
static void fill(uint64_t from, uint64_t to) {
  for (uint64_t i = from; i < to; i++) {
    sb_leaf_ref ref = make_leaf(i);
    SB_STORE(&sb_leaf_cell(&ref, i)->word, sb_cell_bare(SB_CELL_TOMBSTONE, ref.gen), SB_RELAXED);
  }
}
static void set_tail(uint64_t to) { SB_STORE(q->lanes[0].ring.tail, to, SB_RELAXED); }
static uint64_t tail(void) { return SB_LOAD(q->lanes[0].ring.tail, SB_RELAXED); }
/* The first leaf is finished and gone; the next one is there. */
static void retire_first_leaf(void) {
  (void)make_leaf(64);
  leaf = make_leaf(0);
  for (uint64_t i = 0; i < SB_PAGE_CELLS; i++) sb_ring_finish(t.c, &q->lanes[0].ring, &leaf, i);
}

/* ---- finding leaves ---- */

static void leaves_are_found(void) {
  begin();
  sb_leaf_ref made = make_leaf(70);
  expect_is(sb_ring_locate(t.b, NULL, &q->lanes[0].ring, 100, &leaf), SB_OK, "the status");
  expect(leaf.leaf == made.leaf && leaf.gen == made.gen && leaf.slot == made.slot, "another leaf was found");
  expect_is(leaf.first, 64, "its first position");
  expect_is(sb_ring_locate(t.b, NULL, &q->lanes[0].ring, 0, &leaf), SB_EMPTY, "the status where no leaf is");
  expect(leaf.leaf == NULL, "there is a leaf where none is");
  expect_is(leaf.first, UINT64_MAX, "the first position of no leaf");
  retire_first_leaf();
  leaf = made;
  expect_is(sb_ring_locate(t.b, NULL, &q->lanes[0].ring, 7, &leaf), SB_DONE, "the status of a leaf that is gone");
  expect(leaf.leaf == NULL, "there is a leaf where one was");
  expect_is(leaf.first, 64, "the first position behind it");
}
static void leaves_in_turn(void) {
  begin();
  SB_STORE(q->lanes[0].ring.base, 128, SB_RELAXED);
  SB_STORE(q->lanes[0].ring.from, 128, SB_RELAXED);
  (void)make_leaf(300);
  expect(!sb_ring_next_leaf(t.b, &q->lanes[0].ring, 0, &leaf, &position),
         "there is a leaf behind one that was not made");
  (void)make_leaf(128);
  expect(sb_ring_next_leaf(t.b, &q->lanes[0].ring, 0, &leaf, &position),
         "no leaf was found from the first position on");
  expect_is(position, 128, "the position");
  expect_is(leaf.first, 128, "its first position");
  expect(sb_ring_next_leaf(t.b, &q->lanes[0].ring, 130, &leaf, &position), "no leaf was found within the leaf");
  expect_is(position, 130, "the position within the leaf");
}
static unsigned asked_for_state;
static bool is_it(uint64_t word) { return sb_cell_state(word) == asked_for_state; }
static bool has(uint64_t end, unsigned state) {
  asked_for_state = state;
  return sb_ring_has(t.b, &q->lanes[0].ring, end, is_it);
}
static void what_a_ring_has(void) {
  begin();
  fill(0, 70);
  (void)make_leaf(64);
  set_word(69, sb_cell_bare(SB_CELL_CLOSED, leaf_of(69).gen));
  set_word(5, sb_cell_bare(SB_CELL_CLOSING, leaf_of(5).gen + 1));
  expect(has(70, SB_CELL_CLOSED), "it has not what is before the end");
  expect(!has(69, SB_CELL_CLOSED), "it has what is at the end");
  expect(!has(64, SB_CELL_CLOSED), "it has what is behind the end of a leaf");
  expect(!has(70, SB_CELL_CLOSING), "it has a word of another page");
  expect(has(100, SB_CELL_FREE), "it has no free cell before the end");
  expect(!has(1000, SB_CELL_STAGED), "it has what is nowhere");
}

/* ---- the tail ---- */

static void a_hint_advances(void) {
  sb_word hint = 5;
  sb_ring_advance(&hint, 5, 9);
  expect_is(hint, 9, "the hint");
  sb_ring_advance(&hint, 7, 12); /* another process moved it since the caller loaded it */
  expect_is(hint, 12, "the hint that was moved");
  sb_ring_advance(&hint, 12, 8);
  expect_is(hint, 12, "the hint of an earlier position");
  hint = 5;
  sb_ring_advance(&hint, 7, 7);
  expect_is(hint, 5, "the hint when the caller saw it there");
}
static void expect_tail(uint64_t should, const char *what) {
  expect_is(sb_ring_exact_tail(t.b, &q->lanes[0].ring), should, what);
  expect_is(tail(), should, what);
}
static void the_tail_is_found(void) {
  const unsigned ends[] = {SB_CELL_FREE, SB_CELL_CLOSED, SB_CELL_CLOSING};
  begin();
  expect_tail(0, "the tail without a leaf");
  fill(0, 30);
  for (unsigned i = 0; i < 3; i++) {
    set_word(20, sb_cell_bare(ends[i], leaf_of(20).gen));
    set_tail(3);
    expect_tail(20, "the tail");
  }
  fill(20, 64);
  expect_tail(64, "the tail at the end of a leaf");
  retire_first_leaf();
  fill(64, 66);
  set_tail(3);
  expect_tail(66, "the tail behind a leaf that is gone");
}
static void the_tail_is_found_near_a_leaf(void) {
  begin();
  fill(0, 10);
  leaf = make_leaf(0);
  sb_leaf_ref near = leaf;
  near.gen--;
  expect_is(sb_ring_exact_tail_near(t.b, &q->lanes[0].ring, &near), 10, "the tail near a leaf that was used again");
  expect_is(near.gen, leaf.gen, "the generation of the leaf");
  set_word(4, sb_cell_bare(SB_CELL_TOMBSTONE, leaf.gen + 1));
  set_tail(0);
  expect_tail(4, "the tail before a word of another page");
}
static void whether_the_tail_is_exact(void) {
  begin();
  leaf = make_leaf(0);
  set_tail(5);
  expect(sb_ring_tail_is_exact(&q->lanes[0].ring, &leaf), "a tail at a free cell is not exact");
  fill(5, 6);
  expect(!sb_ring_tail_is_exact(&q->lanes[0].ring, &leaf), "a tail at a filled cell is exact");
  set_tail(70);
  expect(!sb_ring_tail_is_exact(&q->lanes[0].ring, &leaf), "a tail in another leaf is exact");
}

/* ---- appending ---- */

static const sb_append OPEN = {SB_WORD_OPEN, SB_TAIL_EXACT, 0};
static sb_leaf_ref near;
static sb_word announced;
static sb_status append(uint64_t word, sb_append how) {
  position = 0;
  return sb_ring_append(t.c, &q->lanes[0].ring, &near, word, how, &announced, &position);
}
static void begin_append(void) {
  begin();
  (void)make_leaf(0);
  near = SB_NO_LEAF;
  announced = UINT64_MAX;
}
/* The word gets the generation where it belongs. */
static void words_that_are_appended(void) {
  begin_append();
  leaf = make_leaf(0);
  const uint64_t word = SB_CELL_AVAILABLE | UINT64_C(77) << 4;
  const sb_append how[] = {OPEN, {SB_WORD_OWNED, SB_TAIL_EXACT, 0}, SB_APPEND_CLOSING, SB_APPEND_ENTRY};
  const uint64_t should[] = {word | leaf.gen << 37, word | leaf.gen << 49, SB_CELL_CLOSING | leaf.gen << 4, word};
  for (unsigned i = 0; i < 4; i++) {
    expect_is(append(how[i].form == SB_WORD_BARE ? SB_CELL_CLOSING : word, how[i]), SB_OK, "the status");
    expect_is(position, i, "the position");
    expect_is(announced, i, "the position that was announced");
    expect_is(word_of(i), should[i], "the word");
    if (how[i].form != SB_WORD_BARE) continue;
    expect_is(tail(), i, "the tail, which passes no end that is not decided");
    fill(i, i + 1);
  }
  expect_is(tail(), 4, "the tail");
  expect(near.leaf == leaf.leaf && near.gen == leaf.gen, "another leaf is remembered");
  expect_is(sb_ring_append(t.c, &q->lanes[0].ring, &near, word, OPEN, NULL, &position), SB_OK, "the status");
  expect_is(position, 4, "the position that was not announced");
  expect_is(announced, 3, "what is announced");
}
static void a_tail_that_lags_behind(void) {
  begin_append();
  for (unsigned i = 0; i < 8; i++) {
    expect_is(append(SB_CELL_AVAILABLE, (sb_append){SB_WORD_OPEN, SB_TAIL_LAZY, 0}), SB_OK, "the status");
    expect_is(position, i, "the position");
    expect_is(tail(), i < 7 ? 0 : 8, "the tail");
  }
}
static void appended_behind_a_leaf(void) {
  begin_append();
  retire_first_leaf();
  set_tail(3);
  near = SB_NO_LEAF;
  expect_is(append(SB_CELL_AVAILABLE, OPEN), SB_OK, "the status behind a leaf that is gone");
  expect_is(position, 64, "the position");
  position = 130;
  expect_is(sb_ring_append(t.c, &q->lanes[0].ring, &near, SB_CELL_AVAILABLE, OPEN, NULL, &position), SB_OK,
            "the status in a leaf that is not made yet");
  expect_is(position, 130, "the position in a new leaf");
}
static void an_end_in_the_way(void) {
  const unsigned ends[] = {SB_CELL_CLOSED, SB_CELL_CLOSING};
  begin_append();
  fill(0, 5);
  for (unsigned i = 0; i < 2; i++) {
    uint64_t end = sb_cell_bare(ends[i], leaf_of(5).gen);
    set_word(5, end);
    expect_is(append(SB_CELL_AVAILABLE, OPEN), SB_CLOSED_CELL, "the status at an end");
    expect_is(position, 5, "the position of the end");
    expect_is(word_of(5), end, "the end");
    expect_is(announced, UINT64_MAX, "what was announced");
  }
}
static void a_leaf_that_was_used_again(void) {
  begin_append();
  leaf = make_leaf(0);
  near = leaf;
  near.gen--;
  expect_is(append(SB_CELL_AVAILABLE, OPEN), SB_OK, "the status near a leaf that was used again");
  expect_is(word_of(0), sb_cell_open(SB_CELL_AVAILABLE, 0, 0, leaf.gen), "the word");
  set_word(1, sb_cell_bare(SB_CELL_FREE, leaf.gen + 1));
  expect_is(append(SB_CELL_AVAILABLE, OPEN), SB_CORRUPT, "the status at a word of another page");
  expect_is(word_of(1), sb_cell_bare(SB_CELL_FREE, leaf.gen + 1), "the word of another page");
}
/* Another producer appends meanwhile: the next cell is announced, and filled. */
static void append_beside(void) { set_word(0, sb_cell_open(SB_CELL_AVAILABLE, 5, 0, leaf.gen)); }
static void two_that_append(void) {
  begin_append();
  leaf = make_leaf(0);
  meanwhile(&cell(0)->word, BEFORE_CAS, 1, append_beside);
  expect_is(append(SB_CELL_AVAILABLE, OPEN), SB_OK, "the status");
  bool beside = has_acted();
  expect_is(position, beside, "the position");
  expect_is(announced, beside, "the position that was announced");
  if (beside) expect_is(sb_cell_slot(word_of(0)), 5, "the word of the other producer");
  expect_is(word_of(beside), sb_cell_open(SB_CELL_AVAILABLE, 0, 0, leaf.gen), "the word");
}
static void no_memory_for_a_leaf(void) {
  uint64_t gen, token;
  uint32_t slot;
  begin_append();
  grow_to(BROKER_CHUNKS - 1);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    uint64_t none = sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0);
    (void)SB_CAS(&t.b->chunks[i], &none, sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_ACQ_REL);
  }
  token = new_token();
  while (sb_slab_alloc(t.c, sb_class_of_kind(t.b, SB_KIND_LEAF), token, &slot, &gen) == SB_OK) {
  }
  set_tail(64);
  expect_is(append(SB_CELL_AVAILABLE, OPEN), SB_NO_MEMORY, "the status without memory for a leaf");
  expect_is(tail(), 64, "the tail");
}

/* ---- damage ---- */

/* A leaf that the caller remembers needs no way to it. */
static void leaves_below_a_broken_root(void) {
  begin();
  leaf = make_leaf(0);
  fill(0, 2);
  uint64_t root = SB_LOAD(q->lanes[0].ring.root, SB_RELAXED);
  SB_STORE(q->lanes[0].ring.root, root + (UINT64_C(1) << 34), SB_RELAXED); /* of another generation */
  set_tail(0);
  expect_is(sb_ring_exact_tail_near(t.b, &q->lanes[0].ring, &leaf), 2, "the tail");
  position = 0;
  sb_leaf_ref cache = leaf;
  expect_is(sb_ring_append(t.c, &q->lanes[0].ring, &cache, SB_CELL_AVAILABLE, OPEN, NULL, &position), SB_OK,
            "the status of an append");
  expect_is(position, 2, "its position");
  SB_STORE(q->lanes[0].ring.root, root, SB_RELAXED);
}
/* What lies before the base belongs to an earlier life of the object. */
static void leaves_before_the_base(void) {
  begin();
  (void)make_leaf(0);
  (void)make_leaf(64);
  SB_STORE(q->lanes[0].ring.base, 64, SB_RELAXED);
  SB_STORE(q->lanes[0].ring.from, 64, SB_RELAXED);
  expect(sb_ring_next_leaf(t.b, &q->lanes[0].ring, 0, &leaf, &position), "no leaf was found");
  expect_is(position, 64, "the position");
  SB_STORE(q->lanes[0].ring.base, 0, SB_RELAXED);
  SB_STORE(q->lanes[0].ring.from, 0, SB_RELAXED);
}

static const test_case CASES[] = {
    {"ring: found", "a leaf is found by its position, or what lies behind it", leaves_are_found},
    {"ring: in turn", "the next leaf is found from the base on", leaves_in_turn},
    {"ring: has", "a ring has what stands in cells of its pages before the end", what_a_ring_has},
    {"ring: hint", "a hint advances, and never goes back", a_hint_advances},
    {"ring: tail", "the tail is the first cell that is free or an end", the_tail_is_found},
    {"ring: near", "a remembered leaf of the tail is looked up again if it was used again",
     the_tail_is_found_near_a_leaf},
    {"ring: exact", "a tail at a free cell of its leaf is exact", whether_the_tail_is_exact},
    {"ring: appended", "what is appended gets its generation, and is announced before", words_that_are_appended},
    {"ring: lazily", "a lazy tail follows in steps of eight", a_tail_that_lags_behind},
    {"ring: behind", "an append goes on behind a leaf that is gone, and makes leaves", appended_behind_a_leaf},
    {"ring: end", "nothing is appended at an end", an_end_in_the_way},
    {"ring: used again", "nothing is appended to a page that was used again", a_leaf_that_was_used_again},
    {"ring: two", "of two that append at one cell one goes on", two_that_append},
    {"ring: no memory", "without memory for a leaf nothing is appended", no_memory_for_a_leaf},
    {"ring: remembered", "a leaf that is remembered needs no way", leaves_below_a_broken_root},
    {"ring: base", "no leaf before the base is found", leaves_before_the_base},
};
SUBJECT(CASES)
