// SPDX-License-Identifier: Apache-2.0
/* sb_queue: handles of queues, the number of ready messages, and the hints for it. */
#include "calls.h"
#include "cells.h"
#include "meanwhile.h"
#include "sb_reserve.h"

#define RING ((sb_settings){{3, -1, -1, 0, -1, -1}, 0})
#define LEAF SB_PAGE_CELLS

static sb_queue *q;
static sb_queue other; /* a second handle */

static void begin(unsigned messages) { q = begin_queue("q", UNLIMITED, messages); }
static uint64_t next_holding(void) {
  uint64_t next = new_token();
  sb_holding_give(t.c, next);
  return next;
}
static void set_state(unsigned state) { SB_STORE(&q->shm->state, (q->state & ~UINT64_C(3)) | state, SB_RELAXED); }
static sb_status open_other(bool even_closed) { return sb_queue_attach(t.c, q->slot, &other, even_closed); }

/* ---- handles ---- */

static void a_handle(void) {
  begin(0);
  const uint32_t flags[] = {0, SB_QUEUE_NOTES, SB_QUEUE_STAGE, SB_QUEUE_NOTES | SB_QUEUE_STAGE};
  const unsigned uses[] = {SB_USE_PLAIN, SB_USE_BOOKS, SB_USE_STAGE, SB_USE_BOOKS};
  SB_STORE(&q->shm->base, 640, SB_RELAXED);
  for (unsigned i = 0; i < 4; i++) {
    SB_STORE(&q->shm->flags, flags[i], SB_RELAXED);
    expect_is(open_other(false), SB_OK, "the status");
    expect(other.c == t.c && other.shm == q->shm && other.slot == q->slot, "the handle is of another queue");
    expect_is(other.state, q->state, "the state of the queue");
    expect_is(other.base, 640, "the first position");
    expect_is(other.use, uses[i], "what memory a put is taken for");
    expect_is(other.ledger->owner & 0xfff, t.c->id, "the owner of the ledger");
    expect(other.ledger != q->ledger, "two handles have one ledger");
    sb_ledger_shm *ledger = other.ledger;
    sb_queue_detach(&other);
    expect(other.ledger == NULL, "a handle that was left has a ledger");
    expect_is(ledger->owner & 0xfff, 0, "the owner of a ledger that was left");
    sb_queue_detach(&other);
  }
}
/* The queue closes while it is opened, and is freed: then the ledger that was adopted may be another queue's, and have
 * another owner. */
static sb_ledger_shm *adopted;
static void it_closes(void) { set_state(SB_QUEUE_CLOSED); }
static void it_is_anothers(void) { SB_STORE(&adopted->owner, OTHER | SB_FIELD(9, 12), SB_RELAXED); }
static void it_closes_and_is_anothers(void) {
  it_closes();
  meanwhile(&adopted->owner, AFTER_LOAD, 1, it_is_anothers);
}
static void begin_with_a_free_ledger(void) {
  begin(0);
  expect_is(open_other(false), SB_OK, "the status");
  adopted = other.ledger;
  sb_queue_detach(&other);
}
static void a_queue_that_closes_while_it_is_opened(void) {
  begin_with_a_free_ledger();
  const sb_word *words[] = {&adopted->holding, &adopted->hinting, &adopted->admitting};
  for (unsigned i = 0; i < 3; i++) {
    set_state(SB_QUEUE_OPEN);
    meanwhile(&adopted->owner, BEFORE_CAS, 1, it_closes);
    note_order(words[i]);
    sb_status status = open_other(false);
    int order = noted_order();
    if (!has_acted()) return;
    expect_is(status, SB_DELETED, "the status");
    expect(order < 0, "word %u of a ledger that may be another queue's was written", i);
    expect_is(adopted->owner & 0xfff, 0, "the owner");
  }
  set_state(SB_QUEUE_OPEN);
  meanwhile(&adopted->owner, BEFORE_CAS, 1, it_closes_and_is_anothers);
  expect_is(open_other(false), SB_DELETED, "the status");
  if (has_acted()) expect_is(adopted->owner & 0xfff, OTHER, "the owner of the ledger of another queue");
}
/* A handle is of an open queue; of a closed one only to clear up. */
static void states_of_a_queue(void) {
  begin(0);
  const struct {
    unsigned state;
    bool even_closed;
    sb_status status;
  } k[] = {{SB_QUEUE_OPEN, true, SB_OK},
           {SB_QUEUE_CLOSED, true, SB_OK},
           {SB_QUEUE_CLOSED, false, SB_DELETED},
           {SB_QUEUE_NONE, true, SB_DELETED},
           {SB_QUEUE_NONE, false, SB_DELETED}};
  uint64_t next = next_holding();
  for (unsigned i = 0; i < sizeof k / sizeof k[0]; i++) {
    set_state(k[i].state);
    expect_is(open_other(k[i].even_closed), k[i].status, "the status");
    expect((other.ledger != NULL) == (k[i].status == SB_OK), "%u: whether there is a ledger", i);
    sb_queue_detach(&other);
    expect_is(next_holding(), next, "the next holding");
  }
}
static void what_is_no_queue(void) {
  begin(0);
  uint64_t next = next_holding();
  sb_word *front = sb_slot_at(t.b, q->slot + 6); /* in the middle of another queue */
  SB_STORE(front, SB_QUEUE_OPEN, SB_RELAXED);
  expect_is(sb_queue_attach(t.c, q->slot + 6, &other, false), SB_DELETED, "the status of a slot that is no queue");
  expect_is(sb_queue_attach(t.c, BROKER_CHUNKS * SB_CHUNK_UNITS, &other, false), SB_CORRUPT,
            "the status of a slot behind the last");
  expect(other.ledger == NULL, "there is a ledger");
  expect_is(next_holding(), next, "the next holding");
}
static void close_it(void) { set_state(SB_QUEUE_CLOSED); }
/* As long as a connection has no ledger there, the queue may go. */
static void a_queue_that_is_closed_meanwhile(void) {
  begin(0);
  uint64_t next = next_holding();
  meanwhile(&q->shm->state, AFTER_LOAD, 1, close_it);
  sb_status status = open_other(false);
  if (!has_acted()) return;
  expect_is(status, SB_DELETED, "the status");
  expect(other.ledger == NULL, "there is a ledger");
  expect_is(next_holding(), next, "the next holding");
  for (sb_ledger_shm *l = sb_ledger_at(t.b, q->shm->ledgers); l != NULL; l = sb_ledger_at(t.b, l->next))
    expect(l == q->ledger || (l->owner & 0xfff) == 0, "a ledger has an owner");
  set_state(SB_QUEUE_OPEN);
  SB_STORE(&q->shm->ledgers, q->slot, SB_RELAXED); /* which is no ledger */
  meanwhile(&q->shm->state, AFTER_LOAD, 1, close_it);
  expect_is(open_other(false), SB_CORRUPT, "the status with a broken chain of ledgers");
  (void)has_acted();
}
static void handles_of_the_dead(void) {
  begin(0);
  sb_ledger_shm *l = q->ledger;
  uint64_t next = next_holding();
  SB_STORE(&l->owner, OTHER | SB_FIELD(7, 12), SB_RELAXED);
  set_state(SB_QUEUE_NONE);
  expect_is(sb_queue_inherit(t.c, q->slot, &other, l, OTHER), SB_DELETED, "the status of an heir to nothing");
  expect_is(sb_queue_stand_in(t.c, q->slot, &other, l), SB_DELETED, "the status of a stand-in for nothing");
  expect(other.ledger == NULL, "there is a ledger");
  set_state(SB_QUEUE_CLOSED);
  expect_is(sb_queue_inherit(t.c, q->slot, &other, l, OTHER + 1), SB_SETTLED, "the status of a wrong heir");
  expect(other.ledger == NULL, "there is a ledger of a wrong heir");
  expect_is(l->owner, OTHER | SB_FIELD(7, 12), "the owner of the ledger");
  expect_is(next_holding(), next, "the next holding");
  expect_is(sb_queue_stand_in(t.c, q->slot, &other, l), SB_OK, "the status of a stand-in");
  expect(other.ledger == l, "a stand-in has another ledger");
  expect_is(l->owner, OTHER | SB_FIELD(7, 12), "the owner of the ledger that is stood in for");
  expect_is(sb_queue_inherit(t.c, q->slot, &other, l, OTHER), SB_OK, "the status of an heir");
  expect(other.ledger == l, "an heir has another ledger");
  expect_is(l->owner, t.c->id | SB_FIELD(8, 12), "the owner of an inherited ledger");
  expect_is(held_by(other.ledger_token), sb_holding_what(SB_HOLD_LEDGER, q->slot, 0), "the holding of the ledger");
}

/* ---- how much is ready ---- */

static void how_much_is_ready(void) {
  begin(4);
  expect_is(sb_queue_ready(t.b, q->shm), 4, "how many are ready");
  sb_ledger_count(q->ledger, SB_COUNT_ACKED, 5);
  expect_is(sb_queue_count_ready(t.b, q->shm), 0, "how many are ready when more went than came");
  expect_is(sb_queue_ready(t.b, q->shm), 0, "the same, of a queue that does not track");
  SB_STORE(&q->shm->tracking, 1, SB_RELAXED);
  SB_STORE(&q->shm->tail, q->base + 9, SB_RELAXED);
  SB_STORE(&q->shm->taken, 2, SB_RELAXED);
  expect_is(sb_queue_ready(t.b, q->shm), 7, "how many are ready in a queue that tracks");
  SB_STORE(&q->shm->taken, 10, SB_RELAXED);
  expect_is(sb_queue_ready(t.b, q->shm), 0, "how many are ready when too many were taken");
}
static void a_ring_of_no_message(void) {
  begin(0);
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], 0, SB_RELAXED);
  expect(sb_queue_evicts(q->shm), "a ring of no message does not evict");
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], -1, SB_RELAXED);
  expect(!sb_queue_evicts(q->shm), "a queue without limits evicts");
}

/* ---- what looks ready ---- */

static void search_from(uint64_t head, uint64_t cursor) {
  SB_STORE(&q->shm->head, at(head), SB_RELAXED);
  q->lanes[0].cursor = at(cursor);
  q->lanes[0].head_leaf = SB_NO_LEAF;
}
static bool looks_ready(void) {
  sb_leaf_ref leaf = SB_NO_LEAF;
  bool looks = sb_queue_looks_ready(q), seems = sb_queue_seems_ready(q, &leaf);
  expect(looks == seems, "it looks ready: %d, and it seems so: %d", looks, seems);
  return looks;
}
static void what_looks_ready(void) {
  begin(2);
  expect(looks_ready(), "a message does not look ready");
  set_cell(0, SB_CELL_ACQUIRED, OTHER);
  expect(looks_ready(), "a message behind one that is held does not look ready");
  set_cell(0, SB_CELL_CLOSED, 0);
  expect(!looks_ready(), "a message behind the end of the queue looks ready");
  set_cell(0, SB_CELL_FREE, 0);
  expect(!looks_ready(), "a message behind a free cell looks ready");
  set_word(0, sb_cell_bare(SB_CELL_FREE, leaf_of(0).gen + 1));
  expect(looks_ready(), "a cell of another page is not looked at closer");
  set_cell(0, SB_CELL_FREE, 0);
  SB_STORE(&q->shm->requeued, 1, SB_RELAXED);
  expect(looks_ready(), "a message that may have come back does not look ready");
}
static void where_it_looks(void) {
  begin(1);
  search_from(0, 1);
  expect(!sb_queue_looks_ready(q), "a message before the cursor looks ready");
  search_from(1, 0);
  expect(!sb_queue_looks_ready(q), "a message before the head looks ready");
  search_from(0, 0);
  expect(sb_queue_looks_ready(q), "a message does not look ready");
}
/* So many cells are looked at; behind them it is not known. */
static void a_page_of_cells_is_looked_at(void) {
  begin(LEAF);
  for (uint64_t i = 0; i < LEAF; i++) set_cell(i, SB_CELL_ACQUIRED, OTHER);
  expect(looks_ready(), "what lies behind a page is known");
  search_from(1, 1);
  expect(!looks_ready(), "a queue that is all held looks ready");
}
static void pages_that_are_finished(void) {
  static char record[BUFFER];
  begin(LEAF + 1);
  for (uint64_t i = 0; i < LEAF; i++) (void)get(&t, q, record, true);
  search_from(0, 0);
  expect(looks_ready(), "a message behind a page that is finished does not look ready");
  (void)get(&t, q, record, true);
  search_from(0, 0);
  expect(!looks_ready(), "a queue whose messages are gone looks ready");
}
/* A caller without the lock keeps the leaf where it looked last, until it looks closer. */
static void the_leaf_that_a_caller_keeps(void) {
  static sb_leaf_shm page;
  begin(1);
  sb_leaf_ref leaf = {&page, at(0), 9, 77}, kept = leaf;
  SB_STORE(&page.cells[0].word, sb_cell_bare(SB_CELL_FREE, 9), SB_RELAXED);
  expect(!sb_queue_seems_ready(q, &leaf), "another leaf was looked at");
  expect(leaf.leaf == kept.leaf && leaf.slot == kept.slot, "the leaf was not kept");
  SB_STORE(&page.cells[0].word, sb_cell_open(SB_CELL_AVAILABLE, 5, 0, 9), SB_RELAXED);
  expect(sb_queue_seems_ready(q, &leaf), "the message does not look ready");
  expect(leaf.leaf == NULL, "the leaf of a message was kept");
}

/* ---- the oldest message ---- */

/* Messages of 64, 128 and 192 bytes. */
static void begin_sizes(void) {
  begin(3);
  for (uint64_t i = 0; i < 3; i++) message_of(i)->body_length = 64 * (i + 1);
}
static void bytes_of_the_oldest(void) {
  begin_sizes();
  expect_is(sb_queue_oldest_bytes(q), 64, "the bytes of the oldest message");
  set_cell(0, SB_CELL_ACQUIRED, OTHER);
  expect_is(sb_queue_oldest_bytes(q), 128, "the bytes of the oldest message that is ready");
  set_cell(1, SB_CELL_FREE, 0);
  expect_is(sb_queue_oldest_bytes(q), 1, "the bytes before a free cell");
  set_word(1, sb_cell_open(SB_CELL_AVAILABLE, slot_of(1), 0, leaf_of(1).gen + 1));
  expect_is(sb_queue_oldest_bytes(q), 1, "the bytes in another page");
  set_word(1, sb_cell_open(SB_CELL_AVAILABLE, 40 * SB_CHUNK_UNITS, 0, leaf_of(1).gen)); /* no segment has it */
  expect_is(sb_queue_oldest_bytes(q), 192, "the bytes behind a slot that is not mapped");
  set_word(1, sb_cell_open(SB_CELL_AVAILABLE, UINT32_MAX >> 4, 0, leaf_of(1).gen));
  expect_is(sb_queue_oldest_bytes(q), 192, "the bytes behind a slot that does not exist");
}
static void bytes_that_cannot_be(void) {
  const uint64_t lengths[] = {0, SB_MAX_BODY, SB_MAX_BODY + 1}, bytes[] = {1, SB_MAX_BODY, 1};
  begin(1);
  for (unsigned i = 0; i < 3; i++) {
    message_of(0)->body_length = lengths[i];
    expect_is(sb_queue_oldest_bytes(q), bytes[i], "the bytes of the oldest message");
  }
  message_of(0)->body_length = 64;
}
static void take_it(void) { set_cell(0, SB_CELL_ACQUIRED, OTHER); }
static void bytes_of_what_is_taken_meanwhile(void) {
  begin_sizes();
  sb_word *word = &cell(0)->word;
  meanwhile(word, AFTER_LOAD, 1, take_it);
  uint64_t bytes = sb_queue_oldest_bytes(q);
  if (has_acted()) expect_is(bytes, 1, "the bytes of a message that was taken meanwhile");
}
static void bytes_of_what_came_back(void) {
  begin_sizes();
  search_from(2, 2);
  expect_is(sb_queue_oldest_bytes(q), 192, "the bytes at the head");
  set_bits(0, 1);
  expect_is(sb_queue_oldest_bytes(q), 192, "the bytes when no message is said to have come back");
  SB_STORE(&q->shm->requeued, 1, SB_RELAXED);
  expect_is(sb_queue_oldest_bytes(q), 64, "the bytes of a message that came back");
  set_bits(0, 4);
  search_from(0, 0);
  expect_is(sb_queue_oldest_bytes(q), 64, "the bytes at the head before one that came back");
  set_bits(0, 0);
  search_from(2, 2);
  expect_is(sb_queue_oldest_bytes(q), 192, "the bytes at the head when none came back");
}

/* ---- older messages that came back ---- */

static bool older_than(uint64_t number) { return sb_queue_older_ready(q, at(number)); }
static void older_messages(void) {
  begin(4);
  SB_STORE(&q->shm->requeued, 1, SB_RELAXED);
  expect(!older_than(2), "a message came back without a bit");
  set_bits(0, 2);
  SB_STORE(&q->shm->requeued, 0, SB_RELAXED);
  expect(!older_than(2), "a message came back without the flag of the queue");
  mark(1);
  expect(older_than(2), "a message did not come back");
  expect(!older_than(1), "a message is older than itself");
  set_cell(1, SB_CELL_ACQUIRED, OTHER);
  expect(!older_than(2), "a message that is held is ready");
  mark(2);
  expect(older_than(3), "a message behind one that is held is not ready");
  expect(!older_than(2), "a message is older than itself, beside one that is held");
  set_word(2, sb_cell_open(SB_CELL_AVAILABLE, slot_of(2), 0, leaf_of(2).gen + 1));
  expect(!older_than(3), "a message of another page is ready");
  set_word(2, sb_cell_open(SB_CELL_AVAILABLE, 40 * SB_CHUNK_UNITS, 0, leaf_of(2).gen));
  expect(!older_than(3), "a message that is not mapped is ready");
}

/* ---- the bound of a ring ---- */

static uint64_t lowered(int64_t ring, uint64_t bound, uint64_t pending) {
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], ring, SB_RELAXED);
  SB_STORE(&q->shm->bound, bound, SB_RELAXED);
  SB_STORE(&q->shm->taken, 20 - pending, SB_RELAXED);
  sb_queue_lower_bound(q);
  return SB_LOAD(&q->shm->bound, SB_RELAXED);
}
static void begin_ring(void) {
  q = begin_queue("q", RING, 0);
  SB_STORE(&q->shm->tail, q->base + 20, SB_RELAXED);
}
static void the_bound_falls(void) {
  begin_ring();
  expect_is(lowered(3, 10, 5), 5, "the bound with five pending");
  expect_is(lowered(3, 10, 2), 3, "the bound with fewer pending than the ring has");
  expect_is(lowered(3, 10, 12), 10, "the bound with more pending");
  expect_is(lowered(3, 2, 5), 2, "a bound that is below the size of the ring");
  expect_is(lowered(0, 10, 0), 0, "the bound of a ring of no message");
  expect_is(lowered(-1, 10, 2), 10, "the bound of what is no ring");
}
static void lower_it_to_eight(void) { SB_STORE(&q->shm->bound, 8, SB_RELAXED); }
static void the_bound_falls_twice(void) {
  begin_ring();
  meanwhile(&q->shm->bound, BEFORE_CAS, 1, lower_it_to_eight);
  uint64_t bound = lowered(3, 10, 5);
  if (has_acted()) expect_is(bound, 5, "the bound that two lower");
}

static const test_case CASES[] = {
    {"queue: handle", "a handle has the queue's state, place and use of memory, and a ledger", a_handle},
    {"queue: closes", "a ledger is not written before it is known to be the queue's",
     a_queue_that_closes_while_it_is_opened},
    {"queue: states", "a closed queue is opened to clear up", states_of_a_queue},
    {"queue: none", "a slot that is no queue is not opened", what_is_no_queue},
    {"queue: meanwhile", "a queue that is closed while it is opened is left", a_queue_that_is_closed_meanwhile},
    {"queue: dead", "the ledger of a dead connection is inherited, or stood in for", handles_of_the_dead},
    {"queue: ready", "a queue counts what is ready by its hints or its ledgers", how_much_is_ready},
    {"queue: evicts", "a ring evicts, also one of no message", a_ring_of_no_message},
    {"queue: looks", "a queue looks ready where a message may be taken", what_looks_ready},
    {"queue: from", "the search begins behind cursor and head", where_it_looks},
    {"queue: page", "64 cells are looked at", a_page_of_cells_is_looked_at},
    {"queue: finished", "pages that are finished are passed over", pages_that_are_finished},
    {"queue: kept leaf", "a caller keeps its leaf", the_leaf_that_a_caller_keeps},
    {"queue: oldest", "the bytes of the oldest message that is ready are known", bytes_of_the_oldest},
    {"queue: no bytes", "a length that cannot be counts as 1", bytes_that_cannot_be},
    {"queue: taken", "the length of a message that was taken counts as 1", bytes_of_what_is_taken_meanwhile},
    {"queue: came back", "a message that came back is the oldest", bytes_of_what_came_back},
    {"queue: older", "an older message that came back is found", older_messages},
    {"queue: bound", "the bound of a ring falls with what is pending", the_bound_falls},
    {"queue: bound twice", "a bound that two lower is the lower one", the_bound_falls_twice},
};
SUBJECT(CASES)
