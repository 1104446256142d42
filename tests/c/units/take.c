// SPDX-License-Identifier: Apache-2.0
/* sb_take: which message is taken, what is written when it is taken, and what a search leaves. */
#include "sb_take.h"

#include "cells.h"
#include "meanwhile.h"
#include "sb_wait.h"
#include "system.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define EVICTING ((sb_settings){{100, -1, -1, 0, -1, -1}, 0})
#define REFUSING ((sb_settings){{-1, 100, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0})
#define UNLIMITED ((sb_settings){{-1, -1, -1, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0})

static sb_queue *q;
static sb_taken taken;
static uint64_t token;

static void begin(sb_settings settings, unsigned messages) {
  q = begin_queue("q", settings, messages);
  token = new_token();
  taken = (sb_taken){.ref = 31};
}
/* A handle whose search has come to that cell. */
static void search_from(uint64_t number) {
  q->lanes[0].cursor = at(number);
  q->lanes[0].head_leaf = SB_NO_LEAF;
}
static sb_status take_before(uint64_t before) { return sb_take_oldest(q, SB_CELL_ACQUIRED, before, token, &taken); }
static sb_status take(void) { return take_before(SB_ANY_POSITION); }
static void expect_taken(uint64_t number, unsigned state, unsigned ref, const char *what) {
  uint64_t gen = sb_slot_gen(SB_LOAD(sb_slot_header(t.b, slot_of(number)), SB_RELAXED));
  expect_is(taken.token, token, what);
  expect_is(taken.position, at(number), what);
  expect_is(taken.slot, slot_of(number), what);
  expect_is(taken.ref, ref, what);
  expect_is(taken.gen, gen, what);
  expect(taken.message == message_of(number), "%s: another message", what);
  sb_leaf_ref leaf = leaf_of(number);
  expect_is(word_of(number), sb_cell_owned(state, slot_of(number), ref, t.c->id, leaf.gen), what);
  expect_is(SB_LOAD(&cell(number)->side, SB_RELAXED), taken.side, what);
  expect_is(held_by(token), sb_holding_what(SB_HOLD_CELL, q->slot, leaf.slot), what);
  expect_is(SB_LOAD(&sb_holding_at(t.b, token)->where, SB_RELAXED), at(number), what);
}
static uint32_t holding(void) { return (uint32_t)SB_LOAD(&q->ledger->holding, SB_RELAXED); }

/* ---- what is written ---- */

static void a_message_is_taken(void) {
  begin(FREE_SETTINGS, 3);
  uint64_t gen = leaf_of(0).gen;
  set_word(0, sb_cell_open(SB_CELL_AVAILABLE, slot_of(0), 5, gen));
  set_references(0, 1u << 5);
  SB_STORE(&cell(0)->side, sb_side_word(1, 7, SB_SIDE_REDELIVERED), SB_RELAXED);
  SB_STORE(&q->shm->last_take, 77, SB_RELAXED);
  expect_is(take(), SB_OK, "the status");
  expect_taken(0, SB_CELL_ACQUIRED, 5, "what was taken");
  expect_is(taken.side, sb_side_word(taken.gen, 8, SB_SIDE_REDELIVERED), "the side record");
  expect_is(holding(), 1, "the messages that are held");
  expect_is(q->shm->last_take, at(0), "the last acquisition");
  expect_is(word_of(1), cell_word(1, SB_CELL_AVAILABLE, 0), "the next message");
}
/* The taker of a message that is to go counts no delivery. */
static void a_message_is_removed(void) {
  begin(FREE_SETTINGS, 3);
  SB_STORE(&cell(0)->side, sb_side_word(1, 7, 0), SB_RELAXED);
  SB_STORE(&q->shm->last_take, 77, SB_RELAXED);
  expect_is(sb_take_oldest(q, SB_CELL_REMOVING, SB_ANY_POSITION, token, &taken), SB_OK, "the status");
  expect_taken(0, SB_CELL_REMOVING, 0, "what was taken");
  expect_is(taken.side, sb_side_word(taken.gen, 7, 0), "the side record");
  expect_is(holding(), 1, "the messages that are held");
  expect_is(q->shm->last_take, 77, "the last acquisition");
}

/* ---- hints ---- */

typedef enum { OLDEST, AT, FOR_CONSUMER_AT, RETURNED_AT, METHODS } method;
static sb_status take_by(method how, uint64_t number) {
  switch (how) {
    case OLDEST: return take_before(at(number + 1));
    case AT: return sb_take_at(q, at(number), SB_CELL_AVAILABLE, token, &taken);
    case FOR_CONSUMER_AT: return sb_take_for_consumer_at(q, &q->lanes[0].head_leaf, at(number), false, token, &taken);
    default: return sb_take_for_consumer_at(q, &q->lanes[0].head_leaf, at(number), true, token, &taken);
  }
}
static void expect_hints(uint64_t counted, uint64_t bytes, const char *what) {
  expect_is(q->shm->taken, counted, what);
  expect_is(q->shm->bytes_out, bytes, what);
  expect_is(hinting_depth(), 0, what);
}
/* A queue that tracks counts the message and its bytes; one that evicts counts the bytes before. */
static void hints_of(sb_settings settings, bool tracks, bool evicts) {
  for (method how = 0; how < METHODS; how++) {
    char name[2] = {(char)('a' + (int)how + 4 * tracks + 8 * evicts), 0};
    q = begin_queue(name, settings, 1);
    if (how == RETURNED_AT) mark(0);
    token = new_token();
    taken = (sb_taken){.bytes_paid = !(tracks && evicts)};
    expect_is(take_by(how, 0), SB_OK, "the status");
    expect_hints(tracks, tracks ? BYTES : 0, "what was taken");
    expect_is(taken.bytes_paid, tracks && evicts, "whether its bytes were paid before");
    expect_is(hinting_raised(), 1u + tracks, "the changes of hints, with that of the put");
    token = new_token();
    expect_is(take_by(how, 0), SB_EMPTY, "the status of a second take");
    expect_hints(tracks, tracks ? BYTES : 0, "what was taken, after a second take");
    if (how != OLDEST) expect_is(take_by(how, 1000), SB_EMPTY, "the status of a take where no leaf is");
    expect_hints(tracks, tracks ? BYTES : 0, "what was taken, after a take where no leaf is");
  }
}
static void hints_of_takes(void) {
  hints_of(FREE_SETTINGS, false, false);
  hints_of(UNLIMITED, false, true);
  hints_of(REFUSING, true, false);
  hints_of(EVICTING, true, true);
}
/* A delayed message is counted as taken already: the one that removes it counts nothing. */
static void a_held_message_is_removed(void) {
  begin(EVICTING, 2);
  set_cell(0, SB_CELL_SCHEDULED, 0);
  taken.bytes_paid = true;
  expect_is(sb_take_at(q, at(0), SB_CELL_AVAILABLE, token, &taken), SB_EMPTY, "the status of another state");
  expect_is(word_of(0), cell_word(0, SB_CELL_SCHEDULED, 0), "the cell");
  uint32_t raised = hinting_raised();
  expect_is(sb_take_at(q, at(0), SB_CELL_SCHEDULED, token, &taken), SB_OK, "the status");
  expect_taken(0, SB_CELL_REMOVING, 0, "what was taken");
  expect_hints(0, 0, "what was counted");
  expect_is(hinting_raised(), raised, "the changes of hints");
  expect(!taken.bytes_paid, "its bytes count as paid");
}
/* The bound of a ring that was shrunk lazily falls with what is pending, except for a victim, which may go back. */
static void the_bound_falls(void) {
  begin(EVICTING, 6);
  sb_excess paid = {true, INT64_MIN, INT64_MIN}, unpaid = {false, INT64_MIN, INT64_MIN};
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], 2, SB_RELAXED);
  SB_STORE(&q->shm->bound, 6, SB_RELAXED);
  q->shm->taken++;
  expect_is(sb_take_victim(q, &paid, token, &taken), SB_OK, "the status of a victim that is paid");
  expect_is(q->shm->bound, 6, "the bound");
  expect_hints(1, BYTES, "what was counted of a victim that is paid");
  expect_is(sb_take_at(q, at(1), SB_CELL_AVAILABLE, token, &taken), SB_OK, "the status of one that is removed");
  expect_is(q->shm->bound, 6, "the bound when one was removed");
  expect_is(sb_take_for_consumer_at(q, &q->lanes[0].head_leaf, at(2), false, token, &taken), SB_OK, "the status");
  expect_is(q->shm->bound, 3, "the bound when one was taken from its place");
  expect_is(take(), SB_OK, "the status of the oldest");
  expect_is(q->shm->bound, 2, "the bound when the oldest was taken");
  SB_STORE(&q->shm->bound, 6, SB_RELAXED);
  expect_is(sb_take_victim(q, &unpaid, token, &taken), SB_OK, "the status of a victim");
  expect_is(q->shm->bound, 6, "the bound when a victim was taken");
  expect_hints(5, 5 * BYTES, "what was counted");
}

/* ---- victims ---- */

static void expect_victim(sb_excess excess, sb_status should, const char *what) {
  uint64_t next = new_token();
  expect_is(sb_take_victim(q, &excess, next, &taken), should, what);
  sb_holding_give(t.c, next);
  expect_is(hinting_depth(), 0, what);
}
/* As many messages and as many bytes as the excess says: else the victim stays. */
static void when_a_victim_stays(void) {
  for (unsigned requeued = 0; requeued < 2; requeued++) {
    if (requeued == 0) begin(EVICTING, 4);
    uint64_t first = 2 * requeued;
    if (requeued) search_from(4);
    if (requeued) mark(2), mark(3);
    uint64_t bits = bits_of(0), counted = q->shm->taken, bytes = q->shm->bytes_out;
    int64_t ready = 4 - (int64_t)first, size = ready * BYTES;
    expect_victim((sb_excess){true, ready + 1, INT64_MIN}, SB_DONE, "a victim of a queue with less messages");
    expect_victim((sb_excess){true, INT64_MIN, size + 1}, SB_DONE, "a victim of a queue with less bytes");
    expect_is(word_of(first), cell_word(first, SB_CELL_AVAILABLE, 0), "the victim");
    expect_is(bits_of(0), bits, "the bits");
    expect_is(q->shm->taken, counted, "what is taken");
    expect_is(q->shm->bytes_out, bytes, "the bytes that are taken");
    expect_victim((sb_excess){true, ready, INT64_MIN}, SB_OK, "a victim of as many messages");
    expect_is(taken.position, at(first), "the victim");
    q->shm->taken++; /* it was paid */
    expect_victim((sb_excess){true, INT64_MIN, size - (int64_t)BYTES}, SB_OK, "a victim of as many bytes");
    expect_is(taken.position, at(first + 1), "the next victim");
    q->shm->taken++;
  }
  expect_victim((sb_excess){true, INT64_MIN, INT64_MIN}, SB_EMPTY, "a victim of an empty queue");
}

/* ---- messages that came back ---- */

static void the_first_that_came_back(void) {
  begin(FREE_SETTINGS, 8);
  search_from(6);
  SB_STORE(&q->shm->head, at(2), SB_RELAXED);
  set_cell(0, SB_CELL_ACQUIRED, OTHER);
  set_cell(1, SB_CELL_TOMBSTONE, 0);
  set_cell(2, SB_CELL_SCHEDULED, 0);
  set_cell(7, SB_CELL_AVAILABLE, 0);
  for (unsigned n = 0; n < 5; n++) mark(n);
  mark(7);
  expect_is(take_before(at(3)), SB_EMPTY, "the status of a take before all that are ready");
  expect_is(bits_of(0), 1 | 4 | 8 | 16 | 128, "the bits of what is held, or not looked at");
  expect_is(take(), SB_OK, "the status");
  expect_taken(3, SB_CELL_ACQUIRED, 0, "the first that came back");
  expect_is(bits_of(0), 1 | 4 | 16 | 128, "the bits");
  token = new_token();
  expect_is(take(), SB_OK, "the status of the second");
  expect_taken(4, SB_CELL_ACQUIRED, 0, "the second that came back");
  token = new_token();
  expect_is(take(), SB_OK, "the status of the next");
  expect_taken(6, SB_CELL_ACQUIRED, 0, "the next, which is before the last one that came back");
  expect_is(bits_of(0), 1 | 4 | 128, "the bits of what lies before");
  token = new_token();
  expect_is(take(), SB_OK, "the status of the last");
  expect_taken(7, SB_CELL_ACQUIRED, 0, "the last that came back");
  expect_is(bits_of(0), 1 | 4, "the bit of what was taken by the cursor");
}
/* In a queue with commits the search looks once more at the cells before a ready message. */
static void beside_what_is_staged(void) {
  begin(FREE_SETTINGS, 6);
  search_from(6);
  SB_STORE(&q->shm->staged, 1, SB_RELAXED);
  set_cell(0, SB_CELL_STAGED, OTHER);
  set_cell(1, SB_CELL_ACQUIRED, OTHER);
  set_word(2, sb_cell_open(SB_CELL_AVAILABLE, slot_of(2), 0, leaf_of(2).gen + 1));
  for (unsigned n = 0; n < 5; n++) mark(n);
  expect_is(take_before(at(3)), SB_EMPTY, "the status of a take before all that are ready");
  expect_is(take(), SB_OK, "the status");
  expect_taken(3, SB_CELL_ACQUIRED, 0, "the first that is ready");
  expect_is(bits_of(0), 1 | 2 | 4 | 16, "the bits");
}
static void a_place_that_came_back(void) {
  const unsigned states[] = {SB_CELL_FREE, SB_CELL_SCHEDULED, SB_CELL_ACQUIRED, SB_CELL_TOMBSTONE, SB_CELL_STAGED};
  begin(FREE_SETTINGS, 8);
  for (unsigned i = 0; i < 5; i++) {
    bool goes = states[i] == SB_CELL_FREE || states[i] == SB_CELL_TOMBSTONE;
    set_cell(i, states[i], OTHER);
    mark(i);
    uint64_t word = word_of(i);
    expect_is(sb_take_for_consumer_at(q, &q->lanes[0].head_leaf, at(i), true, token, &taken), SB_EMPTY,
              "the status of what is not ready");
    expect_is(word_of(i), word, "the cell");
    expect_is(bits_of(0) >> i & 1, !goes, "its bit");
    expect_is(held_by(token), 0, "the holding");
  }
  set_word(5, sb_cell_open(SB_CELL_AVAILABLE, slot_of(5), 0, leaf_of(5).gen + 1));
  mark(5);
  uint64_t word = word_of(5);
  expect_is(sb_take_for_consumer_at(q, &q->lanes[0].head_leaf, at(5), true, token, &taken), SB_EMPTY,
            "the status of another page's cell");
  expect_is(word_of(5), word, "the cell of another page");
  expect_is(bits_of(0) >> 5 & 1, 1, "its bit");
  expect_is(sb_take_for_consumer_at(q, &q->lanes[0].head_leaf, at(5), false, token, &taken), SB_EMPTY,
            "the same, not announced");
  expect_is(word_of(5), word, "the cell of another page");
  SB_STORE(&q->shm->requeued, 0, SB_RELAXED);
  set_bits(0, 192);
  expect_is(sb_take_for_consumer_at(q, &q->lanes[0].head_leaf, at(6), true, token, &taken), SB_OK,
            "the status of a message");
  expect_taken(6, SB_CELL_ACQUIRED, 0, "what came back");
  expect_is(bits_of(0), 128, "the bits: its own is cleared whatever the queue says");
}
static void what_was_passed(void) {
  begin(FREE_SETTINGS, 1);
  for (unsigned i = 0; i < 4; i++) {
    SB_STORE(&q->shm->requeued, i & 1, SB_RELAXED);
    SB_STORE(&q->shm->staged, i >> 1, SB_RELAXED);
    expect_is(sb_take_passed_some(q, &q->lanes[0]), i == 3, "whether some were passed");
  }
}

/* ---- the search from the cursor on ---- */

static void what_a_search_passes(void) {
  begin(FREE_SETTINGS, 7);
  set_cell(0, SB_CELL_ACQUIRED, OTHER);
  set_cell(1, SB_CELL_TOMBSTONE, 0);
  set_cell(2, SB_CELL_REMOVING, OTHER);
  set_cell(3, SB_CELL_SCHEDULED, 0);
  set_cell(4, SB_CELL_STAGED, OTHER);
  SB_STORE(&q->shm->staged, 1, SB_RELAXED);
  expect_is(take_before(at(4)), SB_EMPTY, "the status of a take before the one that is staged");
  expect_is(q->shm->requeued, 0, "whether there are bits");
  expect_is(take_before(at(5)), SB_EMPTY, "the status of a take before the ready ones");
  expect_is(word_of(5), cell_word(5, SB_CELL_AVAILABLE, 0), "the ready one");
  search_from(0);
  SB_STORE(&q->shm->head, at(0), SB_RELAXED);
  set_bits(0, 0);
  expect_is(take(), SB_OK, "the status");
  expect_taken(5, SB_CELL_ACQUIRED, 0, "the ready one");
  expect_is(bits_of(0), 16, "the bits: one leads to what is staged");
  expect_is(q->shm->requeued, 1, "whether there are bits");
  expect_is(q->lanes[0].cursor, at(6), "the cursor");
}
/* The search begins at the cursor of the handle, or at the hint that all share, whichever is later. */
static void where_a_search_begins(void) {
  begin(FREE_SETTINGS, 8);
  search_from(3);
  expect_is(take(), SB_OK, "the status from the cursor");
  expect_taken(3, SB_CELL_ACQUIRED, 0, "the message at the cursor");
  SB_STORE(&q->shm->head, at(6), SB_RELAXED);
  expect_is(take(), SB_OK, "the status from the hint");
  expect_taken(6, SB_CELL_ACQUIRED, 0, "the message at the hint");
}
/* The hint that all share moves in steps of eight, or when nothing is left. What was freed is hinted at then, too. */
static void what_a_search_leaves(void) {
  begin(FREE_SETTINGS, 12);
  SB_STORE(&q->shm->head, at(0), SB_RELAXED);
  t.c->freed = (sb_slab_cache){1, 0, 3};
  for (unsigned n = 1; n <= 8; n++) {
    token = new_token();
    expect_is(take(), SB_OK, "the status");
    expect_is(q->lanes[0].cursor, at(n), "the cursor");
    expect_is(q->shm->head, at(n < 8 ? 0 : 8), "the hint");
  }
  expect_is(take_before(at(9)), SB_OK, "the status of the ninth");
  expect_is(q->shm->head, at(8), "the hint after the ninth");
  expect_is(t.c->freed.mask, 1, "the hints of freed slots that are not given yet");
  t.c->freed_class = 1;
  expect_is(take_before(at(9)), SB_EMPTY, "the status where nothing is left");
  expect_is(q->shm->head, at(9), "the hint where nothing is left");
  expect_is(t.c->freed.mask, 0, "the hints of freed slots, given where nothing is left");
}
static void a_leaf_that_is_gone_is_passed(void) {
  begin(FREE_SETTINGS, 66);
  for (unsigned n = 0; n < 64; n++) {
    expect_is(take(), SB_OK, "the status");
    if (sb_dispose(q, token, SB_REASON_ACKED) != SB_OK) die("settle", (int)n);
    token = new_token();
  }
  sb_leaf_ref leaf;
  expect_is(sb_ring_locate(t.b, NULL, &q->lanes[0].ring, at(0), &leaf), SB_DONE, "the first leaf");
  SB_STORE(&q->shm->head, at(0), SB_RELAXED);
  search_from(0);
  expect_is(take(), SB_OK, "the status behind a leaf that is gone");
  expect_taken(64, SB_CELL_ACQUIRED, 0, "the message behind it");
}
static void a_leaf_that_was_used_again(void) {
  begin(FREE_SETTINGS, 2);
  q->lanes[0].head_leaf = leaf_of(0);
  q->lanes[0].head_leaf.gen--;
  expect_is(take(), SB_OK, "the status, with a leaf that was used again");
  expect_taken(0, SB_CELL_ACQUIRED, 0, "the message");
}

/* ---- the end of a queue ---- */

static void the_end_of_a_queue(void) {
  begin(FREE_SETTINGS, 3);
  set_cell(1, SB_CELL_CLOSED, 0);
  expect_is(take(), SB_OK, "the status before the end");
  expect_is(take(), SB_DELETED, "the status at the end");
  expect_is(q->lanes[0].cursor, at(1), "the cursor");
}
static void an_end_that_is_not_decided(void) {
  begin(FREE_SETTINGS, 3);
  uint64_t closing = cell_word(1, SB_CELL_CLOSING, 0);
  set_cell(0, SB_CELL_SCHEDULED, 0);
  set_word(1, closing | SB_CLOSING_IF_EMPTY);
  expect_is(take(), SB_OK, "the status behind an end that was refused");
  expect_taken(2, SB_CELL_ACQUIRED, 0, "the message behind it");
  expect_is(word_of(1), cell_word(1, SB_CELL_TOMBSTONE, 0), "the end that was refused");
  set_word(1, closing);
  search_from(0);
  expect_is(take(), SB_DELETED, "the status of an end without conditions");
  expect_is(word_of(1), cell_word(1, SB_CELL_CLOSED, 0), "the end");
  expect_is(SB_BITS(q->shm->state, 0, 2), SB_QUEUE_CLOSED, "the queue");
}

/* ---- damage ---- */

#define UNMAPPED ((BROKER_CHUNKS - 1) * SB_CHUNK_UNITS)
#define BEHIND (BROKER_CHUNKS * SB_CHUNK_UNITS)
static void a_slot_that_is_none(void) {
  const uint32_t none[] = {UNMAPPED, BEHIND};
  begin(FREE_SETTINGS, 2);
  for (unsigned i = 0; i < 2; i++) {
    uint64_t word = sb_cell_open(SB_CELL_AVAILABLE, none[i], 0, leaf_of(0).gen);
    set_word(0, word);
    search_from(0);
    expect_is(take(), SB_CORRUPT, "the status of a slot that is none");
    expect_is(sb_take_for_consumer_at(q, &q->lanes[0].head_leaf, at(0), false, token, &taken), SB_EMPTY,
              "the status of its place");
    expect_is(word_of(0), word, "its cell");
    expect_is(held_by(token), 0, "the holding");
  }
}
static void a_word_of_another_page(void) {
  begin(FREE_SETTINGS, 2);
  set_word(0, sb_cell_open(SB_CELL_AVAILABLE, slot_of(0), 0, leaf_of(0).gen + 1));
  expect_is(take(), SB_CORRUPT, "the status of a word that belongs to no page");
}
static void a_root_that_is_broken(void) {
  begin(FREE_SETTINGS, 2);
  q->lanes[0].head_leaf = leaf_of(0);
  set_cell(0, SB_CELL_CLOSING, 0);
  uint64_t root = SB_LOAD(q->lanes[0].ring.root, SB_RELAXED);
  SB_STORE(q->lanes[0].ring.root, sb_link_word(0, slot_of(0), 5), SB_RELAXED);
  expect_is(take(), SB_CORRUPT, "the status of an end that cannot be decided");
  search_from(0);
  expect_is(take(), SB_CORRUPT, "the status of a ring that cannot be walked");
  SB_STORE(q->lanes[0].ring.root, root, SB_RELAXED);
}

/* ---- for consumers ---- */

static sb_status consume(void) { return sb_take_for_consumer(q, token, &taken); }
static void a_queue_that_gives_nothing(void) {
  begin(FREE_SETTINGS, 2);
  SB_STORE(&q->shm->flags, SB_QUEUE_PAUSED | SB_QUEUE_TTL, SB_RELAXED);
  expect_is(consume(), SB_EMPTY, "the status while the queue is paused");
  q->state += 4;
  expect_is(consume(), SB_DELETED, "the status of a queue of another incarnation");
  expect_is(word_of(0), cell_word(0, SB_CELL_AVAILABLE, 0), "the message");
  q->state -= 4;
  SB_STORE(&q->shm->flags, SB_QUEUE_TTL, SB_RELAXED);
  expect_is(consume(), SB_OK, "the status");
  expect_taken(0, SB_CELL_ACQUIRED, 0, "what was taken");
}
static void expired_messages_are_passed(void) {
  begin(FREE_SETTINGS, 4);
  message_of(0)->expires_ns = 1;
  message_of(1)->expires_ns = sb_now_ns();
  message_of(2)->expires_ns = UINT64_MAX;
  expect_is(consume(), SB_OK, "the status");
  expect_taken(2, SB_CELL_ACQUIRED, 0, "the first that has not expired");
  expect_is(q->ledger->counters[SB_COUNT_EXPIRED], 2, "the messages that expired");
  expect_is(word_of(0), cell_word(0, SB_CELL_TOMBSTONE, 0), "the first that expired");
  expect_is(word_of(1), cell_word(1, SB_CELL_TOMBSTONE, 0), "the second that expired");
  expect_is(holding(), 1, "the messages that are held");
  message_of(3)->expires_ns = 1;
  uint64_t used = token;
  token = new_token();
  expect(token != used, "the holding of what was taken is free");
  expect_is(consume(), SB_EMPTY, "the status where all expired");
}

/* In the nanosecond that a message names it has expired. */
static void a_message_expires_now(void) {
  begin(FREE_SETTINGS, 1);
  answer_for_the_system();
  message_of(0)->expires_ns = sb_now_ns();
  expect_is(consume(), SB_EMPTY, "the status");
  expect_is(q->ledger->counters[SB_COUNT_EXPIRED], 1, "the messages that expired");
}

/* ---- damage beside what is staged, and below a broken link ---- */

/* Behind a staged cell a ready one names a slot that is none: the search goes on to the next one, and ends. */
static void no_slot_beside_what_is_staged(void) {
  const char *names[] = {"held", "staged"};
  for (unsigned staged = 0; staged < 2; staged++) {
    q = begin_queue(names[staged], FREE_SETTINGS, 5);
    token = new_token();
    search_from(5);
    SB_STORE(&q->shm->staged, 1, SB_RELAXED);
    set_cell(0, staged ? SB_CELL_STAGED : SB_CELL_ACQUIRED, OTHER);
    set_word(1, sb_cell_open(SB_CELL_AVAILABLE, BEHIND, 0, leaf_of(1).gen));
    for (unsigned n = 0; n < 4; n++) mark(n);
    expect_is(take(), SB_OK, "the status");
    expect_taken(2, SB_CELL_ACQUIRED, 0, "the first that can be taken");
  }
}
/* The handle remembers its leaf, so it needs no way to it. */
static void a_leaf_below_a_broken_root(void) {
  begin(FREE_SETTINGS, 3);
  expect_is(take(), SB_OK, "the status");
  uint64_t root = SB_LOAD(q->lanes[0].ring.root, SB_RELAXED);
  SB_STORE(q->lanes[0].ring.root, sb_link_word(0, slot_of(0), 5), SB_RELAXED);
  token = new_token();
  expect_is(take(), SB_OK, "the status below a broken root");
  SB_STORE(q->lanes[0].ring.root, root, SB_RELAXED);
  expect_taken(1, SB_CELL_ACQUIRED, 0, "the next message of the leaf");
}
/* The link says that the leaf is gone, but the handle remembers it: its end is never decided, and the search ends. */
static void an_end_below_a_link_that_is_done(void) {
  begin(FREE_SETTINGS, 66);
  expect_is(take(), SB_OK, "the status");
  set_word(1, cell_word(1, SB_CELL_CLOSING, 0));
  sb_page_ref parent;
  unsigned skip;
  if (sb_page_descend(t.b, NULL, &q->lanes[0].ring, at(0), 1, &parent, &skip) != SB_OK) die("sb_page_descend", 0);
  SB_STORE(&sb_page_children(&parent)[sb_page_index(1, at(0))], SB_LINK_DONE, SB_RELAXED);
  expect_is(take(), SB_CORRUPT, "the status of an end that cannot be decided");
}

/* ---- beside puts ---- */

/* Another producer puts each time that the take counts itself back. */
static unsigned counted_back;
static void put_more(void) {
  (void)SB_ADD(&q->shm->tail, 1, SB_SEQ_CST);
  if (++counted_back < 5) meanwhile(&q->shm->taken, BEFORE_CHANGE, 2, put_more);
}
static void expect_one_try(sb_status should, uint64_t before, const char *what) {
  counted_back = 0;
  meanwhile(&q->shm->taken, BEFORE_CHANGE, 2, put_more);
  expect_is(take_before(before), should, what);
  expect(counted_back <= 1, "%s: it was tried %u times", what, counted_back);
}
/* What is put cannot help: the take ends, however fast the producers are. */
static void a_take_ends_beside_puts(void) {
  begin(EVICTING, 2);
  expect_one_try(SB_EMPTY, at(0), "a take before the first message");
  set_word(0, sb_cell_open(SB_CELL_AVAILABLE, slot_of(0), 0, leaf_of(0).gen + 1));
  expect_one_try(SB_CORRUPT, SB_ANY_POSITION, "a take at a broken cell");
}

static const test_case CASES[] = {
    {"take: taken", "a taken message has its owner in its cell, and a delivery more", a_message_is_taken},
    {"take: removed", "a message that is removed counts no delivery", a_message_is_removed},
    {"take: hints", "a queue that tracks counts what is taken, also after a take in vain", hints_of_takes},
    {"take: held", "a held message is removed without a change of hints", a_held_message_is_removed},
    {"take: bound", "the bound of a ring falls with takes, but not with victims", the_bound_falls},
    {"take: victims", "a victim goes while the excess is there, else it stays", when_a_victim_stays},
    {"take: came back", "a take begins with the oldest that came back before the cursor", the_first_that_came_back},
    {"take: staged", "what is staged is passed, and is no reason to search for ever", beside_what_is_staged},
    {"take: place", "a place that came back is taken if a message is ready there", a_place_that_came_back},
    {"take: passed some", "a staged cell may have been passed if both flags are set", what_was_passed},
    {"take: passes", "a search passes what is not ready, and marks what is staged", what_a_search_passes},
    {"take: begins", "a search begins at the cursor or at the shared hint", where_a_search_begins},
    {"take: leaves", "the shared hint follows in steps, and when nothing is left", what_a_search_leaves},
    {"take: gone leaf", "a search goes on behind a leaf that is gone", a_leaf_that_is_gone_is_passed},
    {"take: used again", "a remembered leaf that was used again is looked up", a_leaf_that_was_used_again},
    {"take: end", "nothing is taken behind the end of a queue", the_end_of_a_queue},
    {"take: undecided", "the search decides about an end that it meets", an_end_that_is_not_decided},
    {"take: no slot", "a cell that names no slot is not taken", a_slot_that_is_none},
    {"take: other page", "a word of no page ends the search", a_word_of_another_page},
    {"take: broken root", "a ring that cannot be walked ends the search", a_root_that_is_broken},
    {"take: paused", "a consumer gets nothing of a queue that is paused or deleted", a_queue_that_gives_nothing},
    {"take: expired", "a consumer's take settles expired messages on its way", expired_messages_are_passed},
    {"take: now", "a message expires in the nanosecond that it names", a_message_expires_now},
    {"take: staged, no slot", "behind what is staged a cell that names no slot is passed",
     no_slot_beside_what_is_staged},
    {"take: remembered", "a leaf that is remembered needs no way", a_leaf_below_a_broken_root},
    {"take: end, link", "an end that the ring does not lead to is damage", an_end_below_a_link_that_is_done},
    {"take: puts", "a take that puts cannot help is tried once", a_take_ends_beside_puts},
};
SUBJECT(CASES)
