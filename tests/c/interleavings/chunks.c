// SPDX-License-Identifier: Apache-2.0
#include "chunks.h"

#include <string.h>

#include "plan.h"
#include "sb_slab.h"

#define FILLERS 64u
#define HELD (8 * SB_CHUNK_UNITS)

uint32_t body, pin;
static uint32_t filler[FILLERS], fillers, held[HELD], held_count;

unsigned class_of(unsigned kind) { return sb_class_of_kind(t.b, kind); }

int chunks_of(unsigned kind) {
  int n = 0;
  for (uint32_t i = 0; i < sb_chunk_count(t.b); i++) {
    uint64_t word = SB_LOAD(&t.b->chunks[i], SB_SEQ_CST);
    n += sb_chunk_state(word) == SB_CHUNK_CLASS && sb_chunk_class(word) == class_of(kind);
  }
  return n;
}

bool take_chunk(const actor *a, uint32_t *slot) {
  uint64_t gen;
  return sb_slab_alloc(a->c, sb_class_for(t.b, SB_CHUNK_BYTES), SB_TOKEN_BOOT, slot, &gen) == SB_OK;
}

void pin_short_bodies(void) {
  uint64_t gen;
  unsigned shortest = sb_class_for(t.b, 1);
  expect(sb_slab_alloc(keeper.c, shortest, SB_TOKEN_BOOT, &pin, &gen) == SB_OK, "no slot to keep");
}

void fill_all(void) {
  while (grow(t.b, t.path)) {
  }
  while (fillers < FILLERS && take_chunk(&keeper, &filler[fillers])) fillers++;
  body = 0;
}

void write_into_fillers(int byte) {
  for (unsigned i = 0; i < fillers; i++) memset(sb_slot_at(t.b, filler[i]), byte, SB_CHUNK_BYTES);
}

void free_one(void) { sb_slab_free_now(t.b, filler[--fillers]); }

void block_up_to(uint32_t chunk) {
  uint64_t blocked = sb_chunk_word(SB_CHUNK_CLAIMED, keeper.c->id, 0, 0),
           unused = sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0);
  for (uint32_t i = 0; i < sb_chunk_count(t.b); i++) {
    uint64_t word = SB_LOAD(&t.b->chunks[i], SB_SEQ_CST);
    if (word == blocked && i >= chunk) SB_STORE(&t.b->chunks[i], unused, SB_SEQ_CST);
    if (sb_chunk_state(word) == SB_CHUNK_FREE && i < chunk) SB_STORE(&t.b->chunks[i], blocked, SB_SEQ_CST);
  }
}

uint32_t hold_up_to_a_new_chunk(unsigned kind) {
  int chunks = chunks_of(kind);
  while (chunks_of(kind) == chunks) {
    uint64_t gen;
    sb_status status = sb_slab_alloc(keeper.c, class_of(kind), SB_TOKEN_BOOT, &held[held_count], &gen);
    if (status == SB_OK) {
      if (++held_count == HELD) die("more is free than can be held", (int)held_count);
    } else if (status != SB_GROW || !grow(t.b, t.path)) {
      die("no slot", (int)status);
    }
  }
  sb_slab_return_cache(keeper.c);
  return held[--held_count];
}

void give_held(void) {
  while (held_count > 0) sb_slab_free_now(t.b, held[--held_count]);
}

void empty(void) {
  if (body != 0) sb_slab_free_now(t.b, body);
  if (pin != 0) sb_slab_free_now(t.b, pin);
  body = pin = 0;
  while (fillers > 0) free_one();
  while (sb_chunk_drain_any(keeper.c, SB_TOKEN_BOOT)) {
  }
}

void reclaim(void) {
  for (int i = 0; i < 3; i++) (void)sb_housekeeper_reclaim(keeper.c);
}

bool take_body(void) { return body != 0 || take_chunk(&three, &body); }
