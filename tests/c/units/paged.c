// SPDX-License-Identifier: Apache-2.0
/* sb_paged: a leaf that leaves the memory, step by step, what others do meanwhile, and what a death leaves. How a leaf
 * comes back: paged_coming.c. */
#include "sb_paged.h"

#include <string.h>

#include "meanwhile.h"
#include "paging.h"
#include "queues.h"
#include "sb_slab.h"

#define OTHER 99u /* a connection that does not exist */
#define ALL ~UINT64_C(0)

static sb_queue *q;
static sb_leaf_ref leaf;
static uint64_t words[LEAF]; /* of its cells, before anything happens */

static void begin(void) {
  q = begin_stored(STORED, LEAF + 1);
  store_everything();
  leaf = leaf_numbered(0);
  for (unsigned i = 0; i < LEAF; i++) words[i] = word_at(q, i);
}
static sb_word *word_in_leaf(unsigned i) { return &leaf.leaf->cells[i].word; }
static unsigned state(unsigned i) { return sb_cell_state(SB_LOAD(word_in_leaf(i), SB_RELAXED)); }
static void set_state(unsigned i, unsigned to) {
  SB_STORE(word_in_leaf(i), (words[i] & ~UINT64_C(15)) | to, SB_RELAXED);
}
static void set_paging(uint64_t to) { SB_STORE(&leaf.leaf->page.paging, to, SB_RELAXED); }
static uint64_t paging(void) { return SB_LOAD(&leaf.leaf->page.paging, SB_RELAXED); }
static void finish(unsigned i, uint8_t marked) {
  SB_STORE(word_in_leaf(i), sb_cell_bare(SB_CELL_TOMBSTONE, leaf.gen), SB_RELAXED);
  SB_STORE((_Atomic uint8_t *)(void *)leaf.leaf->finished + i, marked, SB_RELAXED);
}
static bool may_leave(void) { return sb_paged_may_leave(t.b, stored_ring(), &leaf); }
static bool freeze(void) { return sb_paged_freeze(t.c, stored_ring(), &leaf); }
static bool leave(void) { return sb_paged_leave(t.c, stored_ring(), &leaf); }
static bool stay(void) { return sb_paged_stay(t.b, stored_ring(), &leaf); }
static void expect_states(unsigned should, const char *what) {
  for (unsigned i = 0; i < LEAF; i++) expect_is(state(i), should, what);
}
static bool is_current(void) { return sb_leaf_is_current(t.b, &leaf); }
static void expect_messages(unsigned should, const char *what) {
  for (unsigned i = 0; i < LEAF; i++) expect_is(state_of_slot(words[i]), should, what);
}

/* ---- what may leave ---- */

static void own_one(void) {
  SB_STORE(word_in_leaf(63), sb_cell_owned(SB_CELL_ACQUIRED, sb_cell_slot(words[63]), 0, OTHER, leaf.gen), SB_RELAXED);
}
static void stage_one(void) {
  SB_STORE(word_in_leaf(0), sb_cell_owned(SB_CELL_STAGED, sb_cell_slot(words[0]), 0, OTHER, leaf.gen), SB_RELAXED);
}
static void schedule_one(void) { set_state(5, SB_CELL_SCHEDULED); }
static void set_requeued(void) { SB_STORE(&leaf.leaf->page.requeued, 4, SB_RELAXED); }
static void set_changed(void) { SB_STORE(&leaf.leaf->page.changed, 8, SB_RELAXED); }
static void leave_unfinished(void) { finish(9, 0); }
static void leave_free(void) { SB_STORE(word_in_leaf(63), sb_cell_bare(SB_CELL_FREE, leaf.gen), SB_RELAXED); }
static void close_one(void) { SB_STORE(word_in_leaf(63), sb_cell_bare(SB_CELL_CLOSED, leaf.gen), SB_RELAXED); }
static void make_foreign(void) {
  SB_STORE(word_in_leaf(3), sb_cell_open(SB_CELL_AVAILABLE, 0, 0, leaf.gen + 1), SB_RELAXED);
}
static const struct {
  void (*make)(void);
  const char *what;
} OBSTACLES[] = {
    {own_one, "a cell with an owner"},
    {stage_one, "a STAGED cell"},
    {schedule_one, "a SCHEDULED cell"},
    {set_requeued, "a requeued bit"},
    {set_changed, "a changed bit"},
    {leave_unfinished, "a TOMBSTONE that is not finished"},
    {leave_free, "a FREE cell"},
    {close_one, "a CLOSED cell"},
    {make_foreign, "a cell of another page"},
};
#define OBSTACLE_COUNT (sizeof OBSTACLES / sizeof OBSTACLES[0])
static void take_obstacles_away(void) {
  for (unsigned i = 0; i < LEAF; i++) SB_STORE(word_in_leaf(i), words[i], SB_RELAXED);
  memset((void *)leaf.leaf->finished, 0, sizeof leaf.leaf->finished);
  SB_STORE(&leaf.leaf->page.requeued, 0, SB_RELAXED);
  SB_STORE(&leaf.leaf->page.changed, 0, SB_RELAXED);
}

static void only_what_is_stored_may_leave(void) {
  begin();
  expect(may_leave(), "a full leaf may not leave");
  for (size_t i = 0; i < OBSTACLE_COUNT; i++) {
    OBSTACLES[i].make();
    expect(!may_leave(), "a leaf may leave in spite of %s", OBSTACLES[i].what);
    take_obstacles_away();
  }
  finish(9, 1);
  expect(may_leave(), "a leaf with a message that has ended may not leave");
  for (unsigned i = 0; i < LEAF; i++) finish(i, 1);
  expect(!may_leave(), "a leaf without a message may leave");
  take_obstacles_away();
  for (uint64_t is = SB_PAGING_THERE; is <= SB_PAGING_COMING; is++) {
    set_paging(is);
    expect(may_leave() == (is == SB_PAGING_THERE || is == SB_PAGING_LEAVING), "it may leave, or not, in state %u",
           (unsigned)is);
  }
  set_paging(SB_PAGING_THERE);
  leaf.gen--;
  expect(!may_leave(), "a leaf that was freed may leave");
  leaf.gen++;
  expect_is(paging(), SB_PAGING_THERE, "its state after all these looks");
}
static void a_root_stays(void) {
  q = begin_stored(STORED, LEAF);
  if (sb_ring_locate(t.b, NULL, stored_ring(), q->base, &leaf) != SB_OK) die("sb_ring_locate", 0);
  expect(!may_leave(), "a leaf that is the root may leave");
}

/* ---- freezing ---- */

static void a_leaf_freezes(void) {
  begin();
  finish(9, 1);
  SB_STORE(&t.b->header->departures, 41, SB_RELAXED);
  expect(freeze(), "the leaf stays");
  expect_is(paging(), SB_PAGING_LEAVING, "its state");
  for (unsigned i = 0; i < LEAF; i++)
    expect_is(SB_LOAD(word_in_leaf(i), SB_RELAXED),
              i == 9 ? sb_cell_bare(SB_CELL_TOMBSTONE, leaf.gen) : (words[i] & ~UINT64_C(15)) | SB_CELL_FROZEN,
              "a cell");
  expect_is(SB_LOAD(&leaf.leaf->page.departure, SB_RELAXED), 42, "the number of the departure");
  expect_is(SB_LOAD(&t.b->header->departures, SB_RELAXED), 42, "the number of departures");
  const sb_holding_shm *h = sb_holding_at(t.b, t.c->page_token);
  expect_is(SB_LOAD(&h->what, SB_RELAXED), sb_holding_what(SB_HOLD_LEAVING, leaf.slot, leaf.gen), "the holding");
  expect_is(SB_LOAD(&h->where, SB_RELAXED), leaf.first, "where the holding is");
  expect(freeze(), "a leaf that a dead storekeeper froze stays");
  expect_is(SB_LOAD(&t.b->header->departures, SB_RELAXED), 42, "the number of departures when it goes on");
}
static void a_leaf_that_does_not_freeze_stays(void) {
  begin();
  for (size_t i = 0; i < OBSTACLE_COUNT; i++) {
    OBSTACLES[i].make();
    expect(!freeze(), "a leaf freezes in spite of %s", OBSTACLES[i].what);
    expect_is(paging(), SB_PAGING_STAYS, "its state");
    for (unsigned n = 0; n < LEAF; n++)
      expect(state(n) != SB_CELL_FROZEN, "a cell is FROZEN after %s", OBSTACLES[i].what);
    take_obstacles_away();
    set_paging(SB_PAGING_THERE);
  }
  for (uint64_t is = SB_PAGING_STAYS; is <= SB_PAGING_COMING; is++) {
    set_paging(is);
    expect(!freeze(), "a leaf freezes in state %u", (unsigned)is);
    expect_is(paging(), is, "its state");
    expect_states(SB_CELL_AVAILABLE, "a cell of a leaf that stays");
  }
}
/* What others do after the storekeeper looked at the bits, and before all cells are FROZEN. */
static void obstacles_that_come_while_it_freezes(void) {
  void (*const comes[])(void) = {set_requeued, set_changed, own_one};
  begin();
  for (size_t i = 0; i < sizeof comes / sizeof comes[0]; i++) {
    meanwhile(word_in_leaf(63), BEFORE_CAS, 1, comes[i]);
    bool frozen = freeze();
    if (has_acted()) {
      expect(!frozen, "the leaf freezes, although obstacle %u came", (unsigned)i);
      for (unsigned n = 0; n < LEAF - 1; n++) expect_is(state(n), SB_CELL_AVAILABLE, "a cell then");
    }
    take_obstacles_away();
    set_paging(SB_PAGING_THERE);
  }
}
static void make_it_stay(void) { set_paging(SB_PAGING_STAYS); }
static void it_stays_before_it_begins(void) {
  begin();
  meanwhile(&leaf.leaf->page.paging, BEFORE_CAS, 1, make_it_stay);
  bool frozen = freeze();
  if (has_acted()) {
    expect(!frozen, "a leaf that stays freezes");
    expect_states(SB_CELL_AVAILABLE, "a cell");
  }
}

/* ---- leaving ---- */

static void a_leaf_leaves(void) {
  begin();
  uint64_t parent = 0;
  sb_page_ref above;
  unsigned skip;
  finish(9, 1);
  if (sb_page_descend(t.b, NULL, stored_ring(), leaf.first, 1, &above, &skip) == SB_OK) parent = above.gen;
  for (unsigned i = 0; i < LEAF; i++) leaf.leaf->cells[i].side = 0; /* whatever it is, it is noted anew */
  SB_STORE(&t.b->header->departures, 6, SB_RELAXED);
  expect(freeze() && leave(), "the leaf stays");
  expect_is(link_of(0), sb_link_paged(parent, 7), "the link");
  expect_is(link_of(1) & 3, SB_LINK_PAGE, "the state of another link");
  expect(!is_current(), "the leaf is not freed");
  for (unsigned i = 0; i < LEAF; i++)
    expect(i == 9 || state_of_slot(words[i]) == SB_SLOT_FREE, "message %u is not freed", i);
  expect_is(paging(), SB_PAGING_EMPTYING, "its state");
  expect_is(state(0), SB_CELL_FROZEN, "the state of a cell that a late search sees");
  expect(!stay(), "a leaf that is gone stays");
  expect_is(state(0), SB_CELL_FROZEN, "the state of a cell, then");
  expect(sb_ring_locate(t.b, NULL, stored_ring(), leaf.first, &leaf) == SB_PAGED, "its positions are found otherwise");
  expect_is(leaf.first, q->base + LEAF, "the first position behind it");
}
static void freeze_one_late(void) { /* as the storekeeper does, who was stopped before it */
  (void)stay();
  set_state(7, SB_CELL_FROZEN);
}
static void a_search_ends_the_departure(void) {
  begin();
  expect(freeze(), "the leaf stays at once");
  freeze_one_late();
  expect(!leave(), "a leaf that stays leaves");
  expect_is(paging(), SB_PAGING_STAYS, "its state");
  expect_states(SB_CELL_AVAILABLE, "a cell of a leaf that stays");
  expect(is_current(), "a leaf that stays was freed");
  expect_is(link_of(0), sb_link_word(0, leaf.slot, leaf.gen), "its link");
  expect(!may_leave() && !freeze(), "a leaf that stays leaves later");
}

/* ---- others ---- */

static void who_meets_a_frozen_cell(void) {
  begin();
  expect(freeze(), "the leaf stays at once");
  expect(stay(), "the leaf has left");
  expect_is(paging(), SB_PAGING_STAYS, "its state");
  expect_states(SB_CELL_AVAILABLE, "a cell");
  set_state(7, SB_CELL_FROZEN);
  SB_STORE(word_in_leaf(8), sb_cell_open(SB_CELL_FROZEN, sb_cell_slot(words[8]), 0, leaf.gen + 1), SB_RELAXED);
  own_one();
  expect(stay(), "a leaf that stays has left");
  expect_is(state(7), SB_CELL_AVAILABLE, "a cell that was frozen late");
  expect_is(state(8), SB_CELL_FROZEN, "a cell of another page");
  expect_is(state(63), SB_CELL_ACQUIRED, "a cell with an owner");
}
static void who_meets_a_leaf_that_left(void) {
  begin();
  for (uint64_t is = SB_PAGING_LEFT; is <= SB_PAGING_EMPTYING; is++) {
    SB_STORE(link_to(0), sb_link_word(0, leaf.slot, leaf.gen), SB_RELAXED);
    set_paging(SB_PAGING_THERE);
    expect(freeze(), "the leaf stays");
    set_paging(is);
    expect(!stay(), "a leaf that has left stays");
    expect_is(link_of(0) & (3 | SB_LINK_MARKED), SB_LINK_PAGED, "the state of the link");
    expect_is(link_of(0) >> 32, SB_LOAD(&leaf.leaf->page.departure, SB_RELAXED), "the number in the link");
    expect_is(paging(), is, "its state");
    expect_states(SB_CELL_FROZEN, "a cell");
    uint64_t link = link_of(0) | SB_LINK_MARKED;
    SB_STORE(link_to(0), link, SB_RELAXED);
    expect(!stay(), "a leaf that has left stays, the second time");
    expect_is(link_of(0), link, "a link that was changed already");
  }
}
/* A reaper that was stopped between its look and what follows must not touch the next attempt. */
static void who_finds_no_departure(void) {
  const uint64_t others[] = {SB_PAGING_THERE, SB_PAGING_COMING};
  begin();
  for (unsigned i = 0; i < 2; i++) {
    set_paging(others[i]);
    set_state(7, SB_CELL_FROZEN);
    expect(stay(), "a leaf that is there has left");
    expect_is(paging(), others[i], "its state");
    expect_is(state(7), SB_CELL_FROZEN, "a cell that somebody freezes later");
  }
  set_paging(SB_PAGING_LEAVING);
  leaf.gen--;
  expect(!stay(), "a leaf that was freed stays");
}
static void words_of_cells(void) {
  begin();
  expect_is(sb_paged_word(t.b, stored_ring(), &leaf, leaf.first), words[0], "a word");
  expect(freeze(), "the leaf stays at once");
  expect_is(sb_paged_word(t.b, stored_ring(), &leaf, leaf.first), words[0], "a word that was FROZEN");
  set_paging(SB_PAGING_THERE);
  expect(freeze() && leave(), "the leaf does not leave");
  expect_is(sb_cell_state(sb_paged_word(t.b, stored_ring(), &leaf, leaf.first)), SB_CELL_FROZEN,
            "that of one that left");
}

/* ---- links ---- */

static void marks_of_links(void) {
  const sb_ring *r;
  uint64_t link = 5, first;
  begin();
  r = stored_ring();
  first = leaf.first;
  expect(!sb_paged_is_at(t.b, r, first, &link), "a leaf that is there has left");
  expect(!sb_paged_mark(t.b, r, first), "a leaf that is there was marked");
  expect_is(link_of(0), sb_link_word(0, leaf.slot, leaf.gen), "its link");
  expect(freeze() && leave(), "the leaf does not leave");
  const uint64_t left = link_of(0);
  expect(sb_paged_is_at(t.b, r, first + 63, &link), "a leaf that has left is there");
  expect_is(link, left, "its link");
  for (unsigned i = 0; i < 2; i++) {
    expect(sb_paged_mark(t.b, r, first + 63), "a leaf that has left was not marked");
    expect_is(link_of(0), left | SB_LINK_MARKED, "the link that was marked");
  }
  const uint64_t others[] = {SB_LINK_DONE, sb_link_empty(3)};
  for (unsigned i = 0; i < 2; i++) {
    SB_STORE(link_to(0), others[i], SB_RELAXED);
    expect(sb_paged_mark(t.b, r, first), "a message without a leaf must be marked");
    expect(!sb_paged_is_at(t.b, r, first, &link), "a leaf without a page has left");
    expect_is(link_of(0), others[i], "that link");
  }
}
static void a_link_that_changes_while_it_is_marked(void) {
  begin();
  expect(freeze() && leave(), "the leaf does not leave");
  uint64_t link = link_of(0), number = link + (UINT64_C(1) << 32);
  SB_STORE(link_to(0), number, SB_RELAXED);
  expect(sb_paged_mark(t.b, stored_ring(), leaf.first), "it was not marked");
  expect_is(link_of(0), number | SB_LINK_MARKED, "the link");
}
static void a_ring_without_links(void) {
  uint64_t link;
  q = begin_stored(STORED, 1);
  expect(!sb_paged_is_at(t.b, stored_ring(), q->base, &link), "a leaf that is the root has left");
  expect(sb_paged_mark(t.b, stored_ring(), q->base), "something must be marked above the root");
  sb_paged_end(t.c, stored_ring(), q->base);
  expect_is(cell_state(q, 0), SB_CELL_AVAILABLE, "the state of its cell");
}

static void messages_that_end_in_the_store(void) {
  begin();
  sb_paged_end(t.c, stored_ring(), leaf.first);
  expect_is(link_of(0), sb_link_word(0, leaf.slot, leaf.gen), "the link of a leaf that is there");
  expect(freeze() && leave(), "the leaf does not leave");
  sb_page_ref parent;
  unsigned skip;
  if (sb_page_descend(t.b, NULL, stored_ring(), leaf.first, 1, &parent, &skip) != SB_OK) die("sb_page_descend", 0);
  SB_STORE(&parent.page->done, ALL & ~UINT64_C(5), SB_RELAXED);
  sb_paged_end(t.c, stored_ring(), leaf.first);
  expect_is(link_of(0), SB_LINK_DONE, "the link");
  expect_is(SB_LOAD(&parent.page->done, SB_RELAXED), ALL & ~UINT64_C(4), "what is done");
}
static void the_last_messages_of_a_page_end(void) {
  q = begin_stored(STORED, LEAF * LEAF + 1);
  store_everything();
  sb_page_ref parent;
  unsigned skip;
  leaf = leaf_numbered(0);
  expect(freeze() && leave(), "the leaf does not leave");
  if (sb_page_descend(t.b, NULL, stored_ring(), leaf.first, 1, &parent, &skip) != SB_OK) die("sb_page_descend", 0);
  for (unsigned i = 1; i < LEAF; i++) SB_STORE(&sb_page_children(&parent)[i], SB_LINK_DONE, SB_RELAXED);
  SB_STORE(&parent.page->done, ALL - 1, SB_RELAXED);
  sb_paged_end(t.c, stored_ring(), leaf.first);
  expect(!sb_page_is_current(t.b, &parent), "the page is not retired");
}

/* ---- what a call needs ---- */

static void a_call_that_needs_messages(void) {
  uint32_t slot;
  uint64_t sequence;
  sb_settings ranked = {{-1, -1, -1, 0, -1, -1, 9}, SB_QUEUE_DURABLE};
  begin();
  expect(!sb_store_wanting(t.b, &slot, &sequence), "a call needs messages");
  expect_is(sb_paged_want(t.c, stored_ring(), leaf.first + 70), SB_GROW, "the status");
  expect(sb_store_wanting(t.b, &slot, &sequence), "no call needs messages");
  expect_is(slot, q->slot, "the queue");
  expect_is(sequence, 70, "the sequence number");
  expect(!sb_store_wanting(t.b, &slot, &sequence), "a call needs messages twice");
  sb_queue *lanes = queue_named("lanes", ranked);
  sb_put_options low = {.priority = 0};
  if (sb_queue_put_with(lanes, "12345678", 8, &low) != SB_OK) die("sb_queue_put_with", 0);
  const sb_ring *lane = &sb_queue_lane_of(lanes, 9)->ring;
  expect_is(sb_paged_want(t.c, lane, SB_LOAD(lane->base, SB_RELAXED) + 3), SB_GROW, "the status of a lane");
  expect(sb_store_wanting(t.b, &slot, &sequence), "no call needs messages of a lane");
  expect_is(slot, lanes->slot, "the queue of the lane");
  expect_is(sequence, sb_position_in(9, 3), "the sequence number in the lane");
  SB_STORE(&t.b->wanting, q->slot, SB_RELAXED);
  SB_STORE(&t.b->wanting_at, q->base - 1, SB_RELAXED);
  expect(!sb_store_wanting(t.b, &slot, &sequence), "a position before the base is wanted");
  SB_STORE(&t.b->wanting, 1, SB_RELAXED);
  expect(!sb_store_wanting(t.b, &slot, &sequence), "messages of what is no queue are wanted");
}

/* ---- deaths ---- */

static void recover(void) { sb_paged_recover_leaving(t.c, stored_ring(), leaf.slot, leaf.gen); }
static void before_the_decision(void) {
  begin();
  recover();
  expect_is(paging(), SB_PAGING_THERE, "the state of a leaf that did not begin to leave");
  expect_states(SB_CELL_AVAILABLE, "its cells");
  expect(freeze(), "the leaf stays at once");
  for (unsigned i = 0; i < 2; i++) {
    recover();
    expect_is(paging(), SB_PAGING_STAYS, "the state");
    expect_states(SB_CELL_AVAILABLE, "a cell");
    expect(is_current(), "the leaf was freed");
  }
  expect_is(link_of(0), sb_link_word(0, leaf.slot, leaf.gen), "the link");
}
static void after_the_decision(void) {
  begin();
  expect(freeze(), "the leaf stays");
  set_paging(SB_PAGING_LEFT);
  for (unsigned i = 0; i < LEAF; i++) leaf.leaf->cells[i].side = 0;
  for (unsigned i = 0; i < 2; i++) {
    recover();
    expect_is(link_of(0) & (3 | SB_LINK_MARKED), SB_LINK_PAGED, "the state of the link");
    expect(!is_current(), "the leaf is not freed");
    expect_messages(SB_SLOT_FREE, "the slot of a message");
  }
}
/* The storekeeper has freed some of the messages, and their slots have others. */
static void while_it_was_emptied(void) {
  begin();
  expect(freeze(), "the leaf stays");
  set_paging(SB_PAGING_EMPTYING);
  for (unsigned i = 0; i < LEAF; i++) {
    uint64_t gen = sb_slot_gen(SB_LOAD(sb_slot_header(t.b, sb_cell_slot(words[i])), SB_RELAXED));
    SB_STORE(&leaf.leaf->cells[i].side, i < 5 ? gen - 1 : gen, SB_RELAXED);
  }
  recover();
  for (unsigned i = 0; i < LEAF; i++)
    expect_is(state_of_slot(words[i]), i < 5 ? SB_SLOT_PUBLISHED : SB_SLOT_FREE, "the slot of a message");
  expect(!is_current(), "the leaf is not freed");
}
static void of_a_leaf_that_is_gone(void) {
  begin();
  expect(freeze(), "the leaf stays");
  set_paging(SB_PAGING_LEFT);
  leaf.gen--;
  recover();
  leaf.gen++;
  expect(is_current(), "another leaf was freed");
  expect_messages(SB_SLOT_PUBLISHED, "the slot of a message");
}

static const test_case CASES[] = {
    {"paged: may leave", "only what the store has, and nobody holds", only_what_is_stored_may_leave},
    {"paged: root", "a leaf without a page above it stays", a_root_stays},
    {"paged: freeze", "a departure has a number, a holding, and FROZEN cells", a_leaf_freezes},
    {"paged: obstacles", "a leaf that cannot leave stays for ever", a_leaf_that_does_not_freeze_stays},
    {"paged: late obstacles", "what comes while a leaf freezes is seen", obstacles_that_come_while_it_freezes},
    {"paged: late stay", "a leaf that stays does not begin to leave", it_stays_before_it_begins},
    {"paged: leave", "the link says so, and the memory is free", a_leaf_leaves},
    {"paged: ended", "a search ends a departure", a_search_ends_the_departure},
    {"paged: stay", "FROZEN cells are AVAILABLE again", who_meets_a_frozen_cell},
    {"paged: help", "who meets a leaf that left changes its link", who_meets_a_leaf_that_left},
    {"paged: no departure", "cells change only after a leaf STAYS", who_finds_no_departure},
    {"paged: word", "a search does not see FROZEN, unless the leaf has left", words_of_cells},
    {"paged: marks", "a link is marked while it is PAGED", marks_of_links},
    {"paged: another link", "a later departure is marked, too", a_link_that_changes_while_it_is_marked},
    {"paged: no links", "a root has no link to mark", a_ring_without_links},
    {"paged: end", "messages end without a leaf", messages_that_end_in_the_store},
    {"paged: end of a page", "the page is retired with its last messages", the_last_messages_of_a_page_end},
    {"paged: want", "a call says which messages it needs", a_call_that_needs_messages},
    {"paged: death before", "the leaf stays", before_the_decision},
    {"paged: death after", "the leaf leaves", after_the_decision},
    {"paged: death while emptied", "only its own messages are freed", while_it_was_emptied},
    {"paged: death long ago", "another leaf in its place is left alone", of_a_leaf_that_is_gone},
};
SUBJECT(CASES)
