// SPDX-License-Identifier: Apache-2.0
#include "slabs.h"

#include <string.h>

uint64_t header_of(uint32_t slot) { return SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED); }
void set_header(uint32_t slot, unsigned state, uint64_t field) {
  SB_STORE(sb_slot_header(t.b, slot), sb_slot_word(state, field, GEN), SB_RELAXED);
}
uint64_t chunk_word(uint32_t chunk) { return SB_LOAD(&t.b->chunks[chunk], SB_RELAXED); }
void set_chunk(uint32_t chunk, unsigned state, unsigned cls, unsigned run) {
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(state, 0, cls, run), SB_RELAXED);
}
void set_chunks(uint32_t first, uint32_t end, unsigned state, unsigned cls) {
  for (uint32_t chunk = first; chunk < end; chunk++) set_chunk(chunk, state, cls, 0);
}
uint64_t hints(uint32_t word) { return SB_LOAD(&sb_chunk_meta(t.b, CHUNK)->hints[word], SB_RELAXED); }
void no_hints(void) { memset(sb_chunk_meta(t.b, CHUNK)->hints, 0, sizeof sb_chunk_meta(t.b, CHUNK)->hints); }
void begin_slab(void) {
  grow_to(BROKER_CHUNKS - 1);
  for (uint32_t i = 0; i < SB_MAX_CHUNKS; i++) SB_STORE(&t.b->chunks[i], 0, SB_RELAXED);
  memset(t.c->cache, 0, sizeof t.c->cache);
  memset(&t.c->freed, 0, sizeof t.c->freed);
  for (unsigned cls = 0; cls < SB_MAX_CLASSES; cls++) {
    SB_STORE(&t.b->classes[cls].groups, 0, SB_RELAXED);
    SB_STORE(&t.b->classes[cls].hint_chunk, 0u, SB_RELAXED);
  }
}
void fill_chunk(uint32_t chunk, unsigned state, uint64_t field) {
  for (uint32_t i = 0; i < SB_CHUNK_UNITS; i++) set_header(chunk * SB_CHUNK_UNITS + i, state, field);
}
void open_chunk(unsigned cls) {
  set_chunk(CHUNK, SB_CHUNK_CLASS, cls, 0);
  memset(sb_slot_at(t.b, CHUNK * SB_CHUNK_UNITS), 0, SB_CHUNK_BYTES);
  fill_chunk(CHUNK, SB_SLOT_FREE, 0);
  no_hints();
}
