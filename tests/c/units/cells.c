// SPDX-License-Identifier: Apache-2.0
#include "cells.h"

#define SLOTS 512u

static sb_queue *q;
static uint32_t slots[SLOTS];

sb_queue *begin_queue_of(const char *name, sb_settings settings, unsigned messages, uint64_t bytes) {
  if (messages > SLOTS || declare(&t, name, settings) != SB_OK) die("declare", (int)messages);
  q = open_queue(&t, name);
  for (unsigned i = 0; i < messages; i++) {
    sb_put_options none = {0};
    sb_status status = put_sized(&t, q, i + 1, bytes, &none);
    if (status != SB_OK) die("put", (int)status);
    slots[i] = sb_cell_slot(word_of(i));
  }
  return q;
}

sb_queue *begin_queue(const char *name, sb_settings settings, unsigned messages) {
  return begin_queue_of(name, settings, messages, BYTES);
}

uint64_t at(uint64_t number) { return q->base + number; }

sb_leaf_ref leaf_of(uint64_t number) {
  sb_leaf_ref leaf;
  sb_status status = sb_ring_locate(t.b, NULL, &q->lanes[0].ring, at(number), &leaf);
  if (status != SB_OK) die("sb_ring_locate", (int)status);
  return leaf;
}

sb_cell_shm *cell(uint64_t number) {
  sb_leaf_ref leaf = leaf_of(number);
  return sb_leaf_cell(&leaf, at(number));
}

uint64_t word_of(uint64_t number) { return SB_LOAD(&cell(number)->word, SB_RELAXED); }
uint32_t slot_of(uint64_t number) { return slots[number]; }
sb_message_shm *message_of(uint64_t number) { return sb_slot_at(t.b, slots[number]); }

uint64_t cell_word(uint64_t number, unsigned state, unsigned owner) {
  uint64_t gen = leaf_of(number).gen;
  switch (state) {
    case SB_CELL_AVAILABLE:
    case SB_CELL_SCHEDULED: return sb_cell_open(state, slots[number], 0, gen);
    case SB_CELL_ACQUIRED:
    case SB_CELL_REMOVING:
    case SB_CELL_STAGED: return sb_cell_owned(state, slots[number], 0, owner, gen);
    default: return sb_cell_bare(state, gen);
  }
}

void set_cell(uint64_t number, unsigned state, unsigned owner) { set_word(number, cell_word(number, state, owner)); }
void set_word(uint64_t number, uint64_t word) { SB_STORE(&cell(number)->word, word, SB_RELAXED); }

void set_references(uint64_t number, uint64_t references) {
  sb_word *header = sb_slot_header(t.b, slots[number]);
  uint64_t gen = sb_slot_gen(SB_LOAD(header, SB_RELAXED));
  SB_STORE(header, sb_slot_word(SB_SLOT_PUBLISHED, references, gen), SB_RELAXED);
}

void mark(uint64_t number) { sb_requeued_mark(t.b, &q->lanes[0].ring, at(number)); }
uint64_t bits_of(uint64_t number) { return SB_LOAD(&leaf_of(number).leaf->page.requeued, SB_RELAXED); }
void set_bits(uint64_t number, uint64_t bits) { SB_STORE(&leaf_of(number).leaf->page.requeued, bits, SB_RELAXED); }

uint64_t new_token(void) {
  uint64_t token;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  return token;
}
uint64_t held_by(uint64_t token) { return SB_LOAD(&sb_holding_at(t.b, token)->what, SB_RELAXED); }

uint32_t hinting_depth(void) { return (uint32_t)SB_LOAD(&q->ledger->hinting, SB_RELAXED); }
uint32_t hinting_raised(void) { return (uint32_t)(SB_LOAD(&q->ledger->hinting, SB_RELAXED) >> 32); }
