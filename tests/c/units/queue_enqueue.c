// SPDX-License-Identifier: Apache-2.0
/* sb_queue: the append of a message: what is announced, written and counted, and what is undone if it fails. */
#include <string.h>

#include "calls.h"
#include "cells.h"
#include "queues.h"
#include "sb_parts.h"
#include "sb_slab.h"

#define TRACKED ((sb_settings){{-1, 100, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0})
#define LENGTH 100u
#define PARTS SB_FIELD(1u, 2 + SB_PARTS_REF)

static sb_queue *q;
static uint32_t slot;
static uint64_t gen, position;

/* A slot with a message that is not in the queue yet. */
static void begin(sb_settings settings, unsigned messages) {
  q = begin_queue("q", settings, messages);
  uint64_t token = new_token();
  while (sb_slab_alloc(t.c, 1, token, &slot, &gen) == SB_GROW) (void)grow(t.b, t.path);
  memset(sb_slot_at(t.b, slot), 0, sizeof(sb_message_shm));
}
static uint64_t header(void) { return SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED); }
static sb_status enqueue(bool held) { return sb_queue_enqueue(q, slot, gen, LENGTH, held, 0, &position); }
static unsigned scheduled(void) {
  sb_ring r;
  unsigned n = 0;
  uint64_t from = 0, found;
  sb_leaf_ref leaf;
  if (!sb_ring_open(t.b, q->slot, SB_RING_SCHEDULE, &r)) die("sb_ring_open", 0);
  while (sb_ring_next_leaf(t.b, &r, from, &leaf, &found)) {
    for (from = found; sb_leaf_covers(&leaf, from); from++)
      n += sb_leaf_cell(&leaf, from)->word == (SB_CELL_ENTRY | SB_FIELD(position, 4));
  }
  return n;
}

static void a_message_is_appended(void) {
  begin(UNLIMITED, 2);
  sb_ledger_shm *l = q->ledger;
  uint64_t sequence = l->kind >> 16;
  SB_STORE(&l->counters[SB_COUNT_SCHEDULED], 5, SB_RELAXED);
  SB_STORE(&l->target_queue, 77, SB_RELAXED);
  SB_STORE(sb_slot_header(t.b, slot), header() | PARTS, SB_RELAXED);
  q->lanes[0].tail_cursor = at(1);
  expect_is(enqueue(false), SB_OK, "the status");
  expect_is(position, at(2), "the position");
  expect_is(q->lanes[0].tail_cursor, at(3), "where the next one goes");
  expect_is(word_of(2), sb_cell_open(SB_CELL_AVAILABLE, slot, 0, leaf_of(2).gen), "the cell");
  expect_is(header(), sb_slot_word(SB_SLOT_PUBLISHED, 1, gen) | PARTS, "the header, which keeps its parts");
  expect_is(l->counters[SB_COUNT_ADDED], 3, "how many were added");
  expect_is(l->counters[SB_COUNT_ADDED_BYTES], 2 * BYTES + LENGTH, "how many bytes were added");
  expect_is(l->counters[SB_COUNT_SCHEDULED], 5, "how many were scheduled");
  expect_is(l->kind, (sequence + 1) << 16, "the intent that ended");
  expect_is(l->position, at(2), "its position");
  expect_is(l->slot, slot, "its slot");
  expect_is(l->gen, gen, "its generation");
  expect_is(l->before, 2, "how many were added before");
  expect_is(l->before_bytes, 2 * BYTES, "how many bytes were added before");
  expect_is(l->bytes, LENGTH, "its bytes");
  expect_is(l->target_queue, 0, "whether it is held");
  expect_is(l->target_position, 5, "how many were scheduled before");
  expect_is(q->shm->taken, 0, "what was taken of a queue that does not track");
  expect_is(q->shm->tail, q->base, "the tail of a queue that does not track, which lags behind");
  expect_is(scheduled(), 0, "the entries of its schedule");
}
static void a_message_that_is_held(void) {
  begin(UNLIMITED, 0);
  expect_is(enqueue(true), SB_OK, "the status");
  expect_is(word_of(0), sb_cell_open(SB_CELL_SCHEDULED, slot, 0, leaf_of(0).gen), "the cell");
  expect_is(q->ledger->target_queue, 1, "whether it is held");
  expect_is(q->ledger->counters[SB_COUNT_SCHEDULED], 1, "how many were scheduled");
  expect_is(scheduled(), 1, "the entries of its schedule");
  expect_is(q->shm->taken, 0, "what was taken");
  expect_is(q->shm->bytes_out, 0, "the bytes that were taken");
}
static void a_message_that_is_held_in_a_queue_that_tracks(void) {
  begin(TRACKED, 0);
  expect_is(enqueue(true), SB_OK, "the status");
  expect_is(q->shm->taken, 1, "what was taken");
  expect_is(q->shm->bytes_out, LENGTH, "the bytes that were taken");
  expect_is(q->shm->tail, q->base + 1, "the tail, which is exact");
}
static void a_message_that_expires(void) {
  begin(TRACKED, 0);
  ((sb_message_shm *)sb_slot_at(t.b, slot))->expires_ns = 1;
  expect_is(enqueue(false), SB_OK, "the status");
  expect_is(scheduled(), 1, "the entries of its schedule");
  expect_is(q->ledger->counters[SB_COUNT_SCHEDULED], 0, "how many are held");
  expect_is(q->shm->taken, 0, "what was taken");
}
/* Without memory for its entry the housekeeper is asked to scan. */
static void a_timer_without_memory(void) {
  begin(UNLIMITED, 1);
  use_all_chunks();
  use_all_slots(SB_KIND_LEAF);
  expect_is(enqueue(true), SB_OK, "the status");
  expect_is(q->shm->timers_lost, 1, "how many timers were lost");
  expect_is(scheduled(), 0, "the entries of its schedule");
}

/* ---- where it cannot go ---- */

static void close_at_the_tail(uint64_t flags) {
  uint64_t number = q->lanes[0].tail_cursor - q->base;
  set_word(number, sb_cell_bare(SB_CELL_CLOSING, leaf_of(number).gen) | flags);
}
static void a_closing_that_is_refused(void) {
  begin(UNLIMITED, 1);
  close_at_the_tail(SB_CLOSING_IF_EMPTY);
  expect_is(enqueue(false), SB_OK, "the status");
  expect_is(position, at(2), "the position behind a closing that was refused");
}
static void expect_taken_back(const char *what) {
  expect_is(header(), sb_slot_word(SB_SLOT_ALLOC, t.c->id, gen) | PARTS, what);
  expect_is(q->ledger->counters[SB_COUNT_ADDED], 1, what);
  expect_is(q->ledger->counters[SB_COUNT_ADDED_BYTES], BYTES, what);
  expect_is(q->ledger->counters[SB_COUNT_SCHEDULED], 0, what);
  expect_is(q->ledger->kind & 0xffff, 0, what);
}
static void a_queue_that_is_closed(void) {
  const struct {
    bool tracked, held;
  } k[] = {{false, true}, {true, true}, {true, false}};
  for (unsigned i = 0; i < 3; i++) {
    if (i == 0) begin(UNLIMITED, 1);
    SB_STORE(&q->shm->state, q->state, SB_RELAXED);
    SB_STORE(&q->shm->tracking, k[i].tracked, SB_RELAXED);
    SB_STORE(&q->shm->taken, 7, SB_RELAXED);
    SB_STORE(&q->shm->bytes_out, 700, SB_RELAXED);
    SB_STORE(sb_slot_header(t.b, slot), sb_slot_word(SB_SLOT_ALLOC, t.c->id, gen) | PARTS, SB_RELAXED);
    close_at_the_tail(0);
    expect_is(enqueue(k[i].held), SB_DELETED, "the status");
    expect_taken_back("what was taken back");
    expect_is(q->shm->taken, 7, "what was taken");
    expect_is(q->shm->bytes_out, 700, "the bytes that were taken");
    expect(!sb_queue_is_open(q), "the queue is open");
  }
}
/* The end that it found is none of this queue. */
static void a_page_that_is_not_there(void) {
  static sb_leaf_shm page;
  begin(UNLIMITED, 1);
  uint64_t number = 5 * SB_PAGE_CELLS;
  SB_STORE(sb_slot_header(t.b, slot), header() | PARTS, SB_RELAXED);
  SB_STORE(&page.cells[0].word, sb_cell_bare(SB_CELL_CLOSED, 9), SB_RELAXED);
  q->lanes[0].tail_leaf = (sb_leaf_ref){&page, at(number), 9, 77};
  q->lanes[0].tail_cursor = at(number);
  expect_is(enqueue(false), SB_CORRUPT, "the status");
  expect_taken_back("what was taken back");
}

/* The link says that the leaf is gone, but the handle remembers it: its end is never decided, and the put ends. */
static void an_end_below_a_link_that_is_done(void) {
  begin(UNLIMITED, 66);
  sb_page_ref parent;
  unsigned skip;
  set_word(66, sb_cell_bare(SB_CELL_CLOSING, leaf_of(66).gen));
  q->lanes[0].tail_leaf = leaf_of(66);
  if (sb_page_descend(t.b, NULL, &q->lanes[0].ring, at(66), 1, &parent, &skip) != SB_OK) die("sb_page_descend", 0);
  SB_STORE(&sb_page_children(&parent)[sb_page_index(1, at(66))], SB_LINK_DONE, SB_RELAXED);
  expect_is(enqueue(false), SB_CORRUPT, "the status");
}

static const test_case CASES[] = {
    {"queue_enqueue: appended", "an append announces, publishes, counts, and ends its intent", a_message_is_appended},
    {"queue_enqueue: held", "a message that is held has a schedule entry", a_message_that_is_held},
    {"queue_enqueue: tracked", "a message that is held counts as taken", a_message_that_is_held_in_a_queue_that_tracks},
    {"queue_enqueue: expires", "a message that expires has a schedule entry", a_message_that_expires},
    {"queue_enqueue: timer", "a timer without memory is counted as lost", a_timer_without_memory},
    {"queue_enqueue: refused", "a closing that is refused is passed by", a_closing_that_is_refused},
    {"queue_enqueue: closed", "at a closed queue all is taken back", a_queue_that_is_closed},
    {"queue_enqueue: corrupt", "an end in a page that does not exist is an error", a_page_that_is_not_there},
    {"queue_enqueue: end, link", "an end that the ring does not lead to is an error", an_end_below_a_link_that_is_done},
};
SUBJECT(CASES)
