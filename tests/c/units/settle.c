// SPDX-License-Identifier: Apache-2.0
/* sb_settle: what a holding names, and how a held message ends. */
#include "sb_settle.h"

#include <string.h>

#include "cells.h"
#include "meanwhile.h"
#include "sb_reader.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define UNMAPPED ((BROKER_CHUNKS - 1) * SB_CHUNK_UNITS)
#define BEHIND (BROKER_CHUNKS * SB_CHUNK_UNITS)

static sb_queue *q;
static sb_taken taken;
static sb_leaf_ref leaf;
static uint64_t token;

static void begin(unsigned messages) {
  q = begin_queue("q", FREE_SETTINGS, messages);
  token = new_token();
  if (messages > 0 && sb_take_oldest(q, SB_CELL_ACQUIRED, SB_ANY_POSITION, token, &taken) != SB_OK)
    die("sb_take_oldest", 0);
}
static sb_holding_shm *holding(void) { return sb_holding_at(t.b, token); }
static void set_what(uint64_t what) { SB_STORE(&holding()->what, what, SB_RELAXED); }
static uint64_t header(void) { return SB_LOAD(sb_slot_header(t.b, taken.slot), SB_RELAXED); }
static void set_header(unsigned state, uint64_t refs) {
  SB_STORE(sb_slot_header(t.b, taken.slot), sb_slot_word(state, refs, taken.gen), SB_RELAXED);
}
static uint64_t freed(void) { return sb_slot_word(SB_SLOT_FREE, 0, taken.gen + 1); }
static void expect_none(uint64_t which, const char *what) {
  sb_taken found;
  expect(!sb_settle_find(t.c, which, &found, &leaf), "%s is found", what);
}

/* ---- what a holding names ---- */

static void what_is_held(void) {
  sb_taken found = {0};
  begin(2);
  SB_STORE(&cell(0)->side, sb_side_word(taken.gen, 5, SB_SIDE_REDELIVERED), SB_RELAXED);
  const unsigned kinds[] = {SB_HOLD_CELL, SB_HOLD_SETTLING};
  for (unsigned i = 0; i < 2; i++) {
    set_what(sb_holding_what(kinds[i], q->slot, leaf_of(0).slot));
    expect(sb_settle_find(t.c, token, &found, &leaf), "what is held is not found");
    expect_is(found.token, token, "its token");
    expect_is(found.position, at(0), "its position");
    expect_is(found.slot, slot_of(0), "its slot");
    expect_is(found.ref, 0, "its reference");
    expect_is(found.gen, taken.gen, "its generation");
    expect_is(found.side, sb_side_word(taken.gen, 5, SB_SIDE_REDELIVERED), "its side record");
    expect(found.message == message_of(0), "another message");
    expect(leaf.leaf == leaf_of(0).leaf && leaf.gen == leaf_of(0).gen && leaf.first == at(0), "another leaf");
  }
  set_what(sb_holding_what(SB_HOLD_SLOT, q->slot, leaf_of(0).slot));
  expect_none(token, "a holding of a slot");
}
/* A token, as any number that a caller gives, may be none. */
static void what_is_no_token(void) {
  begin(1);
  sb_holding_shm *first = sb_holding_at(t.b, 0), was = *first;
  *first = *holding();
  expect_none(0, "token 0");
  *first = was;
  expect_none(BEHIND * (SB_UNIT / 16), "a token behind the arena");
  expect_none((UINT64_C(1) << 36) + token, "a token far behind the arena");
  expect_none(UNMAPPED * (SB_UNIT / 16), "a token in a segment that was not made");
}
static void what_is_not_held(void) {
  begin(1);
  uint64_t is = word_of(0), gen = leaf_of(0).gen;
  const struct {
    uint64_t word;
    const char *what;
  } words[] = {{cell_word(0, SB_CELL_ACQUIRED, OTHER), "what another connection holds"},
               {sb_cell_open(SB_CELL_AVAILABLE, slot_of(0), 0, t.c->id), "what is ready"},
               {sb_cell_owned(SB_CELL_ACQUIRED, UNMAPPED, 0, t.c->id, gen), "a slot whose segment was not made"},
               {sb_cell_owned(SB_CELL_ACQUIRED, BEHIND, 0, t.c->id, gen), "a slot behind the last"}};
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
    set_word(0, words[i].word);
    expect_none(token, words[i].what);
  }
  set_word(0, is);
  set_what(sb_holding_what(SB_HOLD_CELL, q->slot, UNMAPPED));
  expect_none(token, "a cell of a leaf whose segment was not made");
}

/* ---- how it ends ---- */

static void a_message_is_settled(void) {
  begin(2);
  sb_ledger_shm *l = q->ledger;
  uint64_t next = l->kind >> 16;
  expect_is(sb_settle_message(q, token, SB_COUNT_EXPIRED), SB_OK, "the status");
  expect_is(word_of(0), cell_word(0, SB_CELL_TOMBSTONE, 0), "the cell");
  expect_is(header(), freed(), "the header of its slot");
  expect_is(l->counters[SB_COUNT_EXPIRED], 1, "what expired");
  expect_is(l->counters[SB_COUNT_REMOVED_BYTES], BYTES, "the bytes that were removed");
  expect_is((uint32_t)l->holding, 0, "what is held");
  expect_is(l->kind, (next + 1) << 16, "the intent: it is over");
  expect_is(l->position, at(0), "the position of the intent");
  expect_is(l->slot, slot_of(0), "the slot of the intent");
  expect_is(l->gen, taken.gen, "the generation of the intent");
  expect_is(l->bytes, BYTES, "the bytes of the intent");
  expect_is(held_by(token), 0, "the holding");
  expect_is(new_token(), token, "the next holding");
  expect_is(sb_settle_message(q, token, SB_COUNT_EXPIRED), SB_SETTLED, "the status of a second time");
  expect_is(l->counters[SB_COUNT_EXPIRED], 1, "what expired, after a second time");
}
/* The intent of a move stands already. */
static void settled_by_a_move(void) {
  begin(1);
  sb_ledger_shm *l = q->ledger;
  sb_ledger_begin_intent(l, SB_INTENT_MOVE, SB_COUNT_MOVED, 777, 1, 2, 3);
  expect_is(sb_settle_moved(q, token), SB_OK, "the status");
  expect_is(l->position, 777, "the position of the intent");
  expect_is(SB_BITS(l->kind, 0, 16), SB_INTENT_NONE, "the intent: it is over");
  expect_is(l->counters[SB_COUNT_MOVED], 1, "what was moved");
}
static void a_message_with_other_references(void) {
  begin(1);
  set_header(SB_SLOT_PUBLISHED, 5);
  expect_is(sb_settle_message(q, token, SB_COUNT_ACKED), SB_OK, "the status");
  expect_is(header(), sb_slot_word(SB_SLOT_PUBLISHED, 4, taken.gen), "the header");
}
/* A long body may be about to be read by another connection, which has looked at the header before. */
static void read_it(void) { set_header(SB_SLOT_READ, 1 | SB_FIELD(OTHER, SB_READ_REFS)); }
static void a_long_message_is_read(void) {
  sb_put_options none = {0};
  begin(0);
  while (put_sized(&t, q, 1, SB_INLINE_BODY + 8, &none) == SB_GROW) (void)grow(t.b, t.path);
  if (sb_take_oldest(q, SB_CELL_ACQUIRED, SB_ANY_POSITION, token, &taken) != SB_OK) die("sb_take_oldest", 0);
  meanwhile(sb_slot_header(t.b, taken.slot), AFTER_LOAD, 1, read_it);
  expect_is(sb_settle_message(q, token, SB_COUNT_ACKED), SB_OK, "the status");
  uint64_t reader = sb_slot_word(SB_SLOT_READ, SB_FIELD(OTHER, SB_READ_REFS), taken.gen);
  expect_is(header(), has_acted() ? reader : freed(), "the header");
}

static const test_case CASES[] = {
    {"settle: held", "a holding names a message that the connection holds", what_is_held},
    {"settle: token", "a token that is none names nothing", what_is_no_token},
    {"settle: not held", "a cell that the connection does not own is not found", what_is_not_held},
    {"settle: settled", "a message that ends is counted, and its slot and holding are free", a_message_is_settled},
    {"settle: moved", "the intent of a move stays as it is", settled_by_a_move},
    {"settle: references", "other references keep the slot", a_message_with_other_references},
    {"settle: read", "a reader keeps the slot", a_long_message_is_read},
};
SUBJECT(CASES)
