// SPDX-License-Identifier: Apache-2.0
/* sb_atomic, sb_words and sb_peek: a search for words that are not 0, the fields of packed words, and the copy of bytes
 * that another process may be writing. */
#include "sb_words.h"

#include <string.h>

#include "cases.h"
#include "sb_peek.h"

static const unsigned SLOT_STATES[] = {SB_SLOT_FREE, SB_SLOT_ALLOC, SB_SLOT_PUBLISHED, SB_SLOT_READ};
#define STATES (sizeof SLOT_STATES / sizeof SLOT_STATES[0])

/* While a slot is READ its reader's number stands where the higher references are. */
static void references_of_a_slot(void) {
  uint64_t all = (1u << SB_MAX_REFS) - 1, low = (1u << SB_READ_REFS) - 1;
  for (unsigned i = 0; i < STATES; i++) {
    uint64_t should = SLOT_STATES[i] == SB_SLOT_READ ? low : all;
    expect_is(sb_slot_refs(sb_slot_word(SLOT_STATES[i], all, 3)), should, "the references");
  }
}
static void which_slots_are_special(void) {
  uint64_t in_parts = UINT64_C(1) << SB_PARTS_REF;
  for (unsigned i = 0; i < STATES; i++) {
    unsigned state = SLOT_STATES[i];
    bool alloc = state == SB_SLOT_ALLOC, published = state == SB_SLOT_PUBLISHED;
    expect(sb_slot_in_parts(sb_slot_word(state, in_parts, 3)) == (alloc || published), "state %u: in parts", state);
    expect(!sb_slot_in_parts(sb_slot_word(state, ~in_parts & 0xffffff, 3)), "state %u: in parts without the bit",
           state);
    expect(sb_slot_is_part(sb_slot_word(state, SB_SLOT_PART, 3)) == alloc, "state %u: a part", state);
    expect(!sb_slot_is_part(sb_slot_word(state, SB_SLOT_PART | 1, 3)), "state %u: a part with an owner", state);
    expect(sb_slot_is_drained(sb_slot_word(state, SB_SLOT_DRAINED | 5, 3)) == alloc, "state %u: drained", state);
    expect(!sb_slot_is_drained(sb_slot_word(state, 5, 3)), "state %u: drained without the bit", state);
    expect(sb_slot_is_published(sb_slot_word(state, 1, 3)) == (published || state == SB_SLOT_READ),
           "state %u: published", state);
  }
}

static void which_cells_have_a_message(void) {
  for (unsigned state = 0; state < 16; state++) {
    bool owned = state == SB_CELL_ACQUIRED || state == SB_CELL_REMOVING || state == SB_CELL_STAGED;
    bool message = owned || state == SB_CELL_AVAILABLE || state == SB_CELL_SCHEDULED || state == SB_CELL_FROZEN;
    expect(sb_cell_is_owned(state) == owned, "state %u: owned", state);
    expect(sb_cell_has_message(state) == message, "state %u: a message", state);
  }
}
/* A cell keeps as many low bits of the generation as it has room for; an entry of a list is right in any. */
static void which_cells_are_of_a_page(void) {
  const uint64_t gen = (UINT64_C(1) << 38) - 5;
  for (unsigned state = SB_CELL_FREE; state <= SB_CELL_FROZEN; state++) {
    uint64_t word = sb_cell_is_owned(state)      ? sb_cell_owned(state, 7, 3, 9, gen)
                    : sb_cell_has_message(state) ? sb_cell_open(state, 7, 3, gen)
                    : state == SB_CELL_ENTRY     ? sb_entry_word(7, 9)
                                                 : sb_cell_bare(state, gen);
    expect(sb_cell_of(word, gen), "state %u: not of its page", state);
    expect(sb_cell_of(word, gen - 1) == (state == SB_CELL_ENTRY), "state %u: of an older page", state);
  }
}

static void how_often_it_was_delivered(void) {
  expect_is(sb_side_count(sb_side_word(5, 0, 0)), 0, "no delivery");
  expect_is(sb_side_count(sb_side_word(5, 0xfffe, 0)), 0xfffe, "many deliveries");
  expect_is(sb_side_count(sb_side_word(5, 0xffff, 0)), 0xffff, "the most deliveries");
  expect_is(sb_side_word(5, 0x10000, SB_SIDE_REDELIVERED), sb_side_word(5, 0xffff, SB_SIDE_REDELIVERED),
            "more than fit");
  expect_is(sb_side_gen(sb_side_word(UINT64_MAX, 0x12345, 0)), SB_GEN_MASK, "the generation");
}

static void which_chunks_have_slots(void) {
  for (unsigned state = SB_CHUNK_FREE; state <= SB_CHUNK_CLAIMED; state++) {
    bool classed = state == SB_CHUNK_CLASS;
    expect(sb_chunk_has_slots(sb_chunk_word(state, 1, 2, 0)) == (classed || state == SB_CHUNK_DRAINING), "state %u",
           state);
    expect(sb_chunk_has_slots(sb_chunk_word(state, 1, 2, 3)) == classed, "state %u of a run", state);
  }
}

/* From any index, to any end, with a word that is not 0 at any place or at none; with and without steps. */
static void zeros_are_skipped(void) {
  sb_word words[36] = {0};
  for (uint32_t at = 0; at < 36; at++) {
    SB_STORE(&words[at], UINT64_C(1) << (at * 2 % 64), SB_RELAXED);
    for (uint32_t end = 0; end < 36; end++) {
      for (uint32_t index = 0; index <= end; index++) {
        uint32_t should = at >= index && at < end ? at : end;
        uint64_t bit = words[at];
        sb_test_aside = index % 2 == 0;
        expect(sb_skip_zeros(words, index, end) == should, "the word %u, looked for from %u to %u", at, index, end);
        expect(sb_skip_without(words, index, end, bit) == should, "the word %u by its bit, from %u to %u", at, index,
               end);
        expect(sb_skip_without(words, index, end, ~bit) == end, "another bit, from %u to %u", index, end);
      }
    }
    sb_test_aside = false;
    SB_STORE(&words[at], 0, SB_RELAXED);
  }
}

/* From any address, to any address, this many bytes and no more. What is copied ends where memory does. */
static void bytes_are_copied(void) {
  static uint64_t memory[8];
  uint8_t *source = (uint8_t *)memory;
  for (unsigned i = 0; i < sizeof memory; i++) source[i] = (uint8_t)(i + 1);
  for (unsigned from = 0; from < 9; from++) {
    for (unsigned length = 0; from + length <= 32; length++) {
      char to[40] = {0};
      sb_peek_bytes(to + 3, source + from, length);
      for (unsigned i = 0; i < sizeof to; i++) {
        char should = i >= 3 && i < 3 + length ? (char)source[from + i - 3] : 0;
        if (to[i] != should) complain("%u bytes from %u on: byte %u is %d, not %d", length, from, i, to[i], should);
      }
    }
  }
}

static const test_case CASES[] = {
    {"words: references", "a reader's number is no reference", references_of_a_slot},
    {"words: slots", "heads, parts and drained slots are known by state and bit", which_slots_are_special},
    {"words: cells", "cells have a message from AVAILABLE to STAGED, or FROZEN, and an owner from ACQUIRED to STAGED",
     which_cells_have_a_message},
    {"words: generations", "a cell is of the page whose generation it was written in", which_cells_are_of_a_page},
    {"words: deliveries", "a count of deliveries ends at the highest number it can hold", how_often_it_was_delivered},
    {"words: chunks", "a chunk that is drained has slots, a run has none", which_chunks_have_slots},
    {"atomic: zeros", "the first word that is not 0 is found, and none behind the end", zeros_are_skipped},
    {"peek: bytes", "so many bytes are copied, whatever lies on a boundary", bytes_are_copied},
};
SUBJECT(CASES)
