// SPDX-License-Identifier: Apache-2.0
/* sb_housekeeping: the timers that the housekeeper finds, the position where it begins, and the schedule entries that
 * it drops. */
#include <string.h>

#include "calls.h"
#include "meanwhile.h"
#include "queues.h"
#include "sb_housekeeping.h"
#include "sb_slab.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define ROOM 100u
#define UNTOUCHED UINT64_C(12345)
#define AN_HOUR 3600u

static sb_queue *q;
static sb_ring schedule;
static uint64_t cursors[3], positions[ROOM];

static void begin(void) {
  q = queue_named("q", FREE_SETTINGS);
  if (!sb_ring_open(t.b, q->slot, SB_RING_SCHEDULE, &schedule)) die("sb_ring_open", 0);
  memset(cursors, 0, sizeof cursors);
}
static sb_leaf_ref leaf_in(const sb_ring *r, uint64_t position) {
  sb_leaf_ref leaf;
  if (sb_ring_locate(t.b, NULL, r, position, &leaf) != SB_OK) die("sb_ring_locate", (int)position);
  return leaf;
}
static sb_word *entry_at(uint64_t position) {
  sb_leaf_ref leaf = leaf_in(&schedule, position);
  return &sb_leaf_cell(&leaf, position)->word;
}
static uint64_t entry_of(uint64_t position) { return SB_CELL_ENTRY | SB_FIELD(position, 4); }
static void add_entry(uint64_t position) { sb_queue_schedule(q, position); }
static void set_entry(uint64_t at, uint64_t word) { SB_STORE(entry_at(at), word, SB_RELAXED); }
static uint64_t bare(unsigned state, uint64_t more) { return sb_cell_bare(state, leaf_in(&schedule, 0).gen + more); }

/* So many positions, and nothing behind them is written. */
static void expect_timers(uint32_t room, uint32_t count, const uint64_t *should, const char *what) {
  for (unsigned i = 0; i < ROOM; i++) positions[i] = UNTOUCHED;
  expect_is(sb_housekeeping_timers(q, cursors, positions, room), count, what);
  for (unsigned i = 0; i < count; i++) expect_is(positions[i], should[i], what);
  for (unsigned i = count; i < ROOM; i++) expect_is(positions[i], UNTOUCHED, what);
}
static void expect_cursors(uint64_t of_schedule, uint64_t of_cells, uint64_t lost) {
  expect_is(cursors[0], of_schedule, "the cursor of the schedule");
  expect_is(cursors[1], of_cells, "the cursor of the cells");
  expect_is(cursors[2], lost, "the timers that were lost");
}

static void whether_there_are_timers(void) {
  begin();
  expect(!sb_housekeeping_has_timers(q, cursors), "a fresh queue has timers");
  SB_STORE(&q->shm->timers_lost, 1, SB_RELAXED);
  expect(sb_housekeeping_has_timers(q, cursors), "a timer that was lost is none");
  cursors[2] = 1;
  expect(!sb_housekeeping_has_timers(q, cursors), "a timer that was looked for is there");
  cursors[1] = 5;
  expect(sb_housekeeping_has_timers(q, cursors), "a scan that was begun is over");
  cursors[1] = 0;
  SB_STORE(&q->shm->schedule.tail, 3, SB_RELAXED);
  cursors[0] = 2;
  expect(sb_housekeeping_has_timers(q, cursors), "an entry behind the cursor is none");
  cursors[0] = 3;
  expect(!sb_housekeeping_has_timers(q, cursors), "there is an entry behind the last");
}
static void timers_of_the_schedule(void) {
  const uint64_t three[] = {7, 8, 9};
  begin();
  for (unsigned i = 0; i < 3; i++) add_entry(three[i]);
  expect_timers(2, 2, three, "the first two");
  expect_cursors(2, 0, 0);
  expect_timers(2, 1, three + 2, "the third");
  expect_cursors(3, 0, 0);
  expect_timers(2, 0, NULL, "no more");
  expect_cursors(3, 0, 0);
  cursors[0] = 0;
  expect_timers(3, 3, three, "all that there is room for");
  expect_cursors(3, 0, 0);
  set_entry(1, bare(SB_CELL_TOMBSTONE, 0));
  cursors[0] = 0;
  expect_timers(ROOM, 2, (uint64_t[]){7, 9}, "those that were not dropped");
  SB_STORE(&q->shm->schedule.tail, 1, SB_RELAXED);
  cursors[0] = 0;
  expect_timers(ROOM, 2, (uint64_t[]){7, 9}, "those behind a tail that lags");
  expect_cursors(3, 0, 0);
}
static void timers_of_two_pages(void) {
  uint64_t many[SB_PAGE_CELLS + 6];
  begin();
  for (unsigned i = 0; i < SB_PAGE_CELLS + 6; i++) {
    many[i] = 3 * i;
    add_entry(many[i]);
  }
  expect_timers(ROOM, SB_PAGE_CELLS + 6, many, "those of two pages");
  expect_cursors(SB_PAGE_CELLS + 6, 0, 0);
}
/* A page that stays another one ends the look, but the cursor goes on. */
static void a_page_that_is_another(void) {
  begin();
  for (uint64_t i = 7; i <= 9; i++) add_entry(i);
  set_entry(1, bare(SB_CELL_TOMBSTONE, 1));
  expect_timers(ROOM, 1, (uint64_t[]){7}, "those before a cell of another page");
  expect_cursors(3, 0, 0);
}
/* One that is the same at the next look was only used again meanwhile. */
static unsigned looks;
static void put_back_at_third_look(const char *site) {
  if (strstr(site, "sb_housekeeping.c") != NULL && ++looks == 6) set_entry(1, entry_of(8));
}
static void a_page_that_was_used_again(void) {
  if (!has_steps()) return;
  begin();
  for (uint64_t i = 7; i <= 9; i++) add_entry(i);
  set_entry(1, bare(SB_CELL_TOMBSTONE, 1));
  looks = 0;
  at_step = put_back_at_third_look;
  expect_timers(ROOM, 3, (uint64_t[]){7, 8, 9}, "those of a page that is looked up anew");
  at_step = NULL;
}

/* ---- all cells ---- */

/* The page gets that generation, and none of its cells was used. */
static void give_generation(uint64_t gen) {
  sb_leaf_ref leaf = leaf_in(&q->lanes[0].ring, q->base);
  SB_STORE(sb_slot_header(t.b, leaf.slot), sb_slot_word(SB_SLOT_PUBLISHED, 1, gen), SB_RELAXED);
  SB_STORE(q->lanes[0].ring.root, sb_link_word(0, leaf.slot, gen), SB_RELAXED);
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++)
    SB_STORE(&leaf.leaf->cells[i].word, sb_cell_bare(SB_CELL_FREE, gen), SB_RELAXED);
}
/* After an entry was lost all cells are looked at, once. */
static void timers_of_all_cells(void) {
  begin();
  put_with(q, 1, AN_HOUR, 0);
  put_with(q, 2, 0, AN_HOUR);
  (void)put(&t, q, 3);
  put_with(q, 4, 0, AN_HOUR);
  expect_is(q->base, 0, "the first position");
  set_cell_word(q, 3,
                sb_cell_owned(SB_CELL_ACQUIRED, sb_cell_slot(word_at(q, 3)), 0, 77, leaf_in(&q->lanes[0].ring, 0).gen));
  SB_STORE(&q->shm->timers_lost, 1, SB_RELAXED);
  cursors[0] = 3;
  expect_timers(1, 1, (uint64_t[]){0}, "the first cell with a timer");
  expect_cursors(3, 2, 1);
  expect_timers(1, 1, (uint64_t[]){1}, "the second one");
  expect_cursors(3, 3, 1);
  expect_timers(ROOM, 1, (uint64_t[]){3}, "the one that another connection has");
  expect_cursors(3, 0, 1);
  expect_timers(ROOM, 0, NULL, "no more: the entries before the cursor are known");
  expect_cursors(3, 0, 1);
  SB_STORE(&q->shm->timers_lost, 2, SB_RELAXED);
  expect_timers(ROOM, 3, (uint64_t[]){0, 1, 3}, "those after another loss");
  expect_cursors(3, 0, 2);
  SB_STORE(&q->shm->timers_lost, 3, SB_RELAXED);
  expect_timers(1, 1, (uint64_t[]){0}, "the first one");
  SB_STORE(&q->shm->timers_lost, 4, SB_RELAXED);
  expect_timers(1, 1, (uint64_t[]){0}, "the first one again, after one more loss");
}
static void cells_without_a_timer(void) {
  if (declare(&t, "q", FREE_SETTINGS) != SB_OK) die("sb_queue_declare", 0);
  q = open_queue(&t, "q"); /* only the first segment exists */
  memset(cursors, 0, sizeof cursors);
  put_with(q, 1, 0, AN_HOUR);
  uint32_t slot = sb_cell_slot(word_at(q, 0)), behind = t.b->chunk_limit * SB_CHUNK_UNITS;
  uint32_t slots[] = {behind, behind - SB_CHUNK_UNITS};
  for (unsigned i = 0; i < 2; i++) {
    set_cell_word(q, 0, open_word(q, 0, SB_CELL_AVAILABLE, slots[i]));
    SB_STORE(&q->shm->timers_lost, (int32_t)i + 1, SB_RELAXED);
    expect_timers(ROOM, 0, NULL, "a slot that does not exist, or is not mapped");
  }
  give_generation(slot); /* a number that would be the slot of the message */
  set_cell_word(q, 0, sb_cell_bare(SB_CELL_TOMBSTONE, slot));
  SB_STORE(&q->shm->timers_lost, 5, SB_RELAXED);
  expect_timers(ROOM, 0, NULL, "a finished cell");
}
/* Just after a look at a queue that has timers. */
static void a_slot_that_is_no_queue(void) {
  begin();
  put_with(q, 1, AN_HOUR, 0);
  sb_queue none = *q;
  none.slot = sb_cell_slot(word_at(q, 0));
  uint64_t at[3] = {0, 0, 0};
  expect_is(sb_housekeeping_timers(q, cursors, positions, ROOM), 1, "the timers of the queue");
  expect_is(sb_housekeeping_timers(&none, at, positions, ROOM), 0, "the timers of what is no queue");
  sb_word *entry = entry_at(0);
  sb_housekeeping_trim_schedule(q);
  atomic_store_explicit(entry, entry_of(1000), memory_order_relaxed); /* no call comes between the two */
  sb_housekeeping_trim_schedule(&none);
  expect_is(*entry, entry_of(1000), "an entry of the queue");
}

/* The handle was detached: its queue was deleted and freed after a timer was lost there. */
static void a_queue_that_is_gone(void) {
  begin();
  put_with(q, 1, AN_HOUR, 0);
  sb_queue none = *q;
  none.slot = sb_cell_slot(word_at(q, 0));
  cursors[0] = 1;
  for (uint64_t scan = 0; scan < 3; scan++) {
    SB_STORE(&q->shm->timers_lost, (int32_t)scan, SB_RELAXED);
    cursors[1] = scan; /* 0: there is no scan; 1: one begins; 2: one goes on */
    cursors[2] = scan != 1 ? scan : 0;
    expect_is(sb_housekeeping_timers(&none, cursors, positions, ROOM), 0, "the timers of a queue that is gone");
    expect_cursors(1, 0, scan);
  }
}

/* ---- trimming ---- */

static unsigned finished(uint64_t at) { return ((const uint8_t *)leaf_in(&schedule, 0).leaf->finished)[at]; }
static void entries_are_dropped(void) {
  begin();
  put_with(q, 1, AN_HOUR, 0);
  for (uint64_t id = 2; id <= 4; id++) put_with(q, id, 0, AN_HOUR);
  add_entry(1000);
  add_entry(q->base + 9);
  add_entry(q->base);
  uint64_t gen = leaf_in(&q->lanes[0].ring, q->base).gen;
  set_cell_word(q, 1, sb_cell_bare(SB_CELL_TOMBSTONE, gen));
  set_cell_word(q, 2, sb_cell_open(SB_CELL_AVAILABLE, sb_cell_slot(word_at(q, 2)), 0, gen + 1));
  set_entry(3, bare(SB_CELL_TOMBSTONE, 0));
  sb_housekeeping_trim_schedule(q);
  const uint64_t dropped = bare(SB_CELL_TOMBSTONE, 0);
  expect_is(*entry_at(0), entry_of(q->base), "the entry of a message that is scheduled");
  expect_is(*entry_at(1), dropped, "the entry of a message that went");
  expect_is(*entry_at(2), dropped, "the entry of a cell of another page");
  expect_is(finished(3), 0, "what was dropped before is finished again");
  expect_is(*entry_at(4), dropped, "the entry of a position without a page");
  expect_is(*entry_at(5), dropped, "the entry of a cell that is FREE");
  expect_is(*entry_at(6), entry_of(q->base), "a second entry");
  expect_is(finished(1) & finished(2) & finished(4) & finished(5), 1, "what was dropped is not finished");
}
static void trimming_ends(void) {
  begin();
  for (unsigned i = 0; i < 3; i++) add_entry(1000);
  const uint64_t ends[] = {bare(SB_CELL_FREE, 0), bare(SB_CELL_TOMBSTONE, 1)};
  for (unsigned i = 0; i < 2; i++) {
    set_entry(0, entry_of(1000));
    set_entry(1, ends[i]);
    sb_housekeeping_trim_schedule(q);
    expect_is(*entry_at(0), bare(SB_CELL_TOMBSTONE, 0), "an entry before the end");
    expect_is(*entry_at(2), entry_of(1000), "an entry behind the end");
  }
}

/* The page of the schedule is finished, and becomes a page of a list of consumers. */
static void a_list_reuses_the_page(void) {
  uint64_t gen = leaf_in(&schedule, 0).gen;
  sb_word *header = sb_slot_header(t.b, leaf_in(&schedule, 0).slot);
  SB_STORE(entry_at(0), sb_entry_word(7, 1), SB_RELAXED);
  SB_STORE(header, sb_slot_word(SB_SLOT_PUBLISHED, 1, gen + 1), SB_RELEASE);
}
static void a_page_that_a_list_reuses(void) {
  begin();
  add_entry(1000);
  sb_word *entry = entry_at(0);
  meanwhile(entry, BEFORE_LOAD, 1, a_list_reuses_the_page);
  sb_housekeeping_trim_schedule(q);
  if (!has_acted()) return;
  expect_is(*entry, sb_entry_word(7, 1), "the entry of a consumer");
}

/* As a_page_that_a_list_reuses, while the timers are listed: the housekeeper was stopped, and its stand-in trimmed. */
static void a_page_that_a_list_reuses_meanwhile(void) {
  uint64_t positions[4] = {0}, cursors[3] = {0};
  begin();
  add_entry(1000);
  meanwhile(entry_at(0), BEFORE_LOAD, 1, a_list_reuses_the_page);
  expect_is(sb_housekeeping_timers(q, cursors, positions, 4), 0, "timers in a page of consumers");
  (void)has_acted();
}

static const test_case CASES[] = {
    {"timers: some", "a queue has timers behind its cursors, or when one was lost", whether_there_are_timers},
    {"timers: schedule", "entries come in their order, as many as there is room for", timers_of_the_schedule},
    {"timers: two pages", "entries of two pages come one after the other", timers_of_two_pages},
    {"timers: other page", "a cell of another page ends the look", a_page_that_is_another},
    {"timers: used again", "a page that was used again is looked up anew", a_page_that_was_used_again},
    {"timers: all cells", "after a loss all cells are looked at", timers_of_all_cells},
    {"timers: none", "a cell without a message in reach has no timer", cells_without_a_timer},
    {"timers: no queue", "a slot that is no queue has no timers", a_slot_that_is_no_queue},
    {"timers: queue gone", "a look at a queue that is gone ends, in the middle of a scan, too", a_queue_that_is_gone},
    {"timers: trimmed", "entries of what needs no timer are dropped", entries_are_dropped},
    {"timers: trimmed up to", "trimming ends at the end of the entries", trimming_ends},
    {"timers: reused", "no timer is found in a page that a list reuses", a_page_that_a_list_reuses_meanwhile},
    {"timers: trimmed, reused", "trimming drops nothing of a page that a list reuses", a_page_that_a_list_reuses},
};
SUBJECT(CASES)
