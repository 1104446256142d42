// SPDX-License-Identifier: Apache-2.0
/* sb_closing: the states of the cell that a deletion appends. The cell has number 2, after two messages. */
#include "sb_closing.h"

#include "calls.h"
#include "cells.h"
#include "meanwhile.h"

#define CLOSING 2u
#define BEHIND (64 * SB_PAGE_CELLS) /* a position whose page was never made */

static sb_queue *q;

static void begin(void) { q = begin_queue("q", UNLIMITED, 4); }
static bool resolve(uint64_t number) { return sb_closing_resolve(t.b, t.c, q->shm, &q->lanes[0].ring, at(number)); }
static bool finished(void) { return (leaf_of(0).leaf->finished[0] >> 8 * CLOSING & 1) != 0; }
static void set_state(unsigned state) { SB_STORE(&q->shm->state, q->state - SB_QUEUE_OPEN + state, SB_RELAXED); }
/* Of a deletion with these conditions. */
static void expect_decided(uint64_t conditions, bool closed, const char *what) {
  set_state(SB_QUEUE_OPEN);
  SB_STORE(&leaf_of(0).leaf->finished[0], 0, SB_RELAXED);
  set_word(CLOSING, cell_word(CLOSING, SB_CELL_CLOSING, 0) | conditions);
  expect(resolve(CLOSING), "%s: there is no cell", what);
  uint64_t should = cell_word(CLOSING, closed ? SB_CELL_CLOSED : SB_CELL_TOMBSTONE, 0);
  expect(word_of(CLOSING) == should, "%s: the word is %llx", what, (unsigned long long)word_of(CLOSING));
  expect(q->shm->state == q->state + (closed ? SB_QUEUE_CLOSED - SB_QUEUE_OPEN : 0), "%s: the queue's state is wrong",
         what);
  expect(finished() == !closed, "%s: the cell is finished, or not", what);
}

static void a_deletion_without_conditions(void) {
  begin();
  SB_STORE(&q->shm->consumers, 1, SB_RELAXED);
  expect_decided(0, true, "no condition");
}
static void a_deletion_if_unused(void) {
  begin();
  SB_STORE(&q->shm->consumers, 1, SB_RELAXED);
  expect_decided(SB_CLOSING_IF_UNUSED, false, "a consumer");
  SB_STORE(&q->shm->consumers, 0, SB_RELAXED);
  expect_decided(SB_CLOSING_IF_UNUSED, true, "no consumer");
}
/* Messages that a connection holds go with the queue, those that come later are none of it. */
static void a_deletion_if_empty(void) {
  const struct {
    unsigned state;
    bool closed;
  } cases[] = {{SB_CELL_AVAILABLE, false}, {SB_CELL_SCHEDULED, false}, {SB_CELL_STAGED, false},
               {SB_CELL_ACQUIRED, true},   {SB_CELL_REMOVING, true},   {SB_CELL_TOMBSTONE, true}};
  begin();
  for (unsigned i = 0; i < 6; i++) {
    set_cell(0, SB_CELL_TOMBSTONE, 0);
    set_cell(1, cases[i].state, OTHER);
    expect_decided(SB_CLOSING_IF_EMPTY, cases[i].closed, "a cell before it");
  }
  SB_STORE(&q->shm->consumers, 1, SB_RELAXED);
  expect_decided(SB_CLOSING_IF_EMPTY, true, "a consumer of an empty queue");
  expect_decided(SB_CLOSING_IF_EMPTY | SB_CLOSING_IF_UNUSED, false, "a consumer, and both conditions");
}

/* Messages that a connection holds may return, so they count. */
static void a_deletion_if_settled(void) {
  begin();
  for (unsigned state = SB_CELL_AVAILABLE; state <= SB_CELL_TOMBSTONE; state++) {
    set_cell(0, SB_CELL_TOMBSTONE, 0);
    set_cell(1, state, OTHER);
    expect_decided(SB_CLOSING_IF_SETTLED, state == SB_CELL_TOMBSTONE, "a cell before it");
  }
  SB_STORE(&q->shm->consumers, 1, SB_RELAXED);
  expect_decided(SB_CLOSING_IF_SETTLED, true, "a consumer of a queue without messages");
  expect_decided(SB_CLOSING_IF_SETTLED | SB_CLOSING_IF_UNUSED, false, "a consumer, and both conditions");
}

static void cells_that_are_not_closing(void) {
  begin();
  expect(!resolve(BEHIND), "there is a cell where there is no page");
  const unsigned states[] = {SB_CELL_FREE, SB_CELL_AVAILABLE, SB_CELL_TOMBSTONE};
  for (unsigned i = 0; i < 3; i++) {
    set_cell(CLOSING, states[i], 0);
    uint64_t word = word_of(CLOSING);
    expect(resolve(CLOSING), "there is no cell");
    expect_is(word_of(CLOSING), word, "the word of a cell that does not close");
    expect_is(q->shm->state, q->state, "the state of the queue");
  }
  uint64_t other = sb_cell_bare(SB_CELL_CLOSING, leaf_of(0).gen + 1);
  set_word(CLOSING, other);
  expect(resolve(CLOSING), "there is no cell");
  expect_is(word_of(CLOSING), other, "the word of a cell of another page");
  expect_is(q->shm->state, q->state, "the state of the queue");
}
/* The process that closed the cell was killed before it closed the queue. */
static void the_queue_follows_its_cell(void) {
  begin();
  set_cell(CLOSING, SB_CELL_CLOSED, 0);
  expect(resolve(CLOSING), "there is no cell");
  expect_is(q->shm->state, q->state + SB_QUEUE_CLOSED - SB_QUEUE_OPEN, "the state of the queue");
  set_state(SB_QUEUE_NONE);
  expect(resolve(CLOSING), "there is no cell");
  expect_is(q->shm->state, q->state - SB_QUEUE_OPEN, "the state of a queue that is gone");
}

/* A consumer left since this process saw it, and another process closes the cell. */
static void another_closes_it(void) { set_cell(CLOSING, SB_CELL_CLOSED, 0); }
static void a_refusal_that_comes_too_late(void) {
  begin();
  SB_STORE(&q->shm->consumers, 1, SB_RELAXED);
  set_word(CLOSING, cell_word(CLOSING, SB_CELL_CLOSING, 0) | SB_CLOSING_IF_UNUSED);
  meanwhile(sb_leaf_cell(&(sb_leaf_ref){leaf_of(0).leaf, at(0), 0, 0}, at(CLOSING)), BEFORE_CAS, 1, another_closes_it);
  expect(resolve(CLOSING), "there is no cell");
  if (!has_acted()) return;
  expect(word_of(CLOSING) == cell_word(CLOSING, SB_CELL_CLOSED, 0), "the cell is not closed any more");
  expect_is(q->shm->state, q->state + SB_QUEUE_CLOSED - SB_QUEUE_OPEN, "the state of the queue");
}

static const test_case CASES[] = {
    {"closing: always", "a deletion without conditions closes the queue", a_deletion_without_conditions},
    {"closing: unused", "a deletion of an unused queue is refused beside a consumer", a_deletion_if_unused},
    {"closing: empty", "a deletion of an empty queue is refused behind a message", a_deletion_if_empty},
    {"closing: settled", "a deletion of a settled queue is refused behind a message that a connection holds",
     a_deletion_if_settled},
    {"closing: too late", "who wanted to refuse a deletion that another carried out closes the queue, too",
     a_refusal_that_comes_too_late},
    {"closing: others", "cells that are not closing stay as they are", cells_that_are_not_closing},
    {"closing: follows", "the queue is closed once its cell is", the_queue_follows_its_cell},
};
SUBJECT(CASES)
