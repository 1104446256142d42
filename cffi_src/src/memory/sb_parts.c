// SPDX-License-Identifier: Apache-2.0
#include "sb_parts.h"

#include <string.h>

#include "sb_peek.h"

typedef struct {
  sb_part_shm names;
  uint64_t header, room;
  uint8_t *bytes;
} part;

/* The length of a slot of messages in bytes. 0: no such slot begins at the unit `slot`. */
static uint64_t slot_bytes(sb_broker *b, uint32_t slot) {
  if (slot == 0 || !sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot)) {
    return 0;
  }
  uint64_t word = SB_LOAD(&b->chunks[slot / SB_CHUNK_UNITS], SB_ACQUIRE);
  unsigned cls = sb_chunk_class(word);
  if (!sb_chunk_has_slots(word) || cls < 1 || cls > SB_MESSAGE_CLASSES) {
    return 0;
  }
  return sb_class_begins(cls, slot % SB_CHUNK_UNITS) ? (uint64_t)sb_class_units(cls) * SB_UNIT : 0;
}

/* Reads a part. False: the slot is no part. */
static bool look(sb_broker *b, uint32_t slot, part *p) {
  uint64_t bytes = slot_bytes(b, slot);
  if (bytes == 0) {
    return false;
  }
  p->header = SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE); /* P18 acquire */
  if (!sb_slot_is_part(p->header)) {
    return false;
  }
  p->bytes = (uint8_t *)sb_slot_at(b, slot) + sizeof p->names;
  p->room = bytes - sizeof p->names;
  sb_peek_bytes((char *)&p->names, p->bytes - sizeof p->names, sizeof p->names);
  return SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE) == p->header; /* P18: the second look (I43 of sb_peek.h) */
}

static bool is_part_of(sb_broker *b, uint32_t slot, uint32_t head, uint64_t gen, part *p) {
  return look(b, slot, p) && p->names.head == head && p->names.head_gen == gen;
}

static sb_parts_shm *parts_of(sb_broker *b, uint32_t head, uint64_t bytes) {
  return (sb_parts_shm *)(void *)((uint8_t *)sb_slot_at(b, head) + bytes - sizeof(sb_parts_shm));
}

bool sb_parts_is_head(sb_broker *b, uint32_t slot, uint64_t header) {
  return sb_slot_in_parts(header) && (sb_slot_state(header) == SB_SLOT_ALLOC ||
                                      (sb_peek_message(b, slot).flags & SB_MESSAGE_IN_PARTS) != 0); /* a hint */
}

/* ---- creating ---- */

void sb_parts_begin(sb_connection *c, uint32_t head, uint64_t gen) {
  sb_broker *b = c->b;
  SB_STORE(&parts_of(b, head, slot_bytes(b, head))->first, 0u, SB_RELAXED); /* before the header announces parts */
  SB_STORE(sb_slot_header(b, head), sb_slot_word(SB_SLOT_ALLOC, c->id | UINT64_C(1) << SB_PARTS_REF, gen), SB_RELEASE);
  SB_CRASHPOINT("parts.begun");
  if (SB_LOAD(&b->header->scattered, SB_RELAXED) == 0) SB_STORE(&b->header->scattered, 1u, SB_SEQ_CST);
}

void sb_parts_add(sb_broker *b, uint32_t head, uint64_t head_gen, uint32_t slot, uint64_t gen) {
  sb_parts_shm *parts = parts_of(b, head, slot_bytes(b, head));
  sb_chunk_meta_shm *meta = sb_chunk_meta(b, slot / SB_CHUNK_UNITS);
  sb_part_shm names = {head, SB_LOAD(&parts->first, SB_RELAXED), head_gen};
  /* I64: `parts` is set before the slot becomes a part */
  if (SB_LOAD(&meta->parts, SB_RELAXED) == 0) SB_STORE(&meta->parts, 1, SB_SEQ_CST);
  memcpy(sb_slot_at(b, slot), &names, sizeof names);
  SB_STORE(sb_slot_header(b, slot), sb_slot_word(SB_SLOT_ALLOC, SB_SLOT_PART, gen), SB_RELEASE); /* P18 release */
  SB_CRASHPOINT("parts.named");
  SB_STORE(&parts->first, slot, SB_RELEASE);
  SB_CRASHPOINT("parts.added");
}

/* ---- reading and writing ---- */

/* A walk over the parts of a head. */
typedef struct {
  sb_broker *b;
  uint32_t head, next;
  uint64_t gen;
} walk;

static bool begin(walk *w, sb_broker *b, uint32_t head) {
  uint64_t bytes = slot_bytes(b, head), h = bytes != 0 ? SB_LOAD(sb_slot_header(b, head), SB_ACQUIRE) : 0;
  bool good = bytes != 0 && sb_slot_in_parts(h);
  if (good) *w = (walk){b, head, SB_LOAD(&parts_of(b, head, bytes)->first, SB_ACQUIRE), sb_slot_gen(h)};
  return good;
}

static bool next(walk *w, part *p) {
  bool good = w->next != 0 && is_part_of(w->b, w->next, w->head, w->gen, p);
  if (good) w->next = p->names.next;
  return good;
}

bool sb_parts_write(sb_broker *b, uint32_t head, uint64_t from, const void *bytes, uint64_t length) {
  walk w;
  part p;
  const char *at = bytes;
  bool good = begin(&w, b, head);
  while (good && length > 0 && (good = next(&w, &p))) {
    uint64_t skipped = from < p.room ? from : p.room, room = p.room - skipped, n = length < room ? length : room;
    if (n > 0) memcpy(p.bytes + skipped, at, n);
    from -= skipped;
    at += n;
    length -= n;
  }
  return good;
}

bool sb_parts_copy(sb_broker *b, uint32_t head, uint64_t from, char *to, uint64_t length) {
  walk w;
  part p;
  bool good = begin(&w, b, head);
  while (good && length > 0 && (good = next(&w, &p))) {
    uint64_t skipped = from < p.room ? from : p.room, room = p.room - skipped, n = length < room ? length : room;
    sb_peek_bytes(to, p.bytes + skipped, n);
    from -= skipped;
    to += n;
    length -= n;
  }
  return good;
}

uint64_t sb_parts_room(sb_broker *b, uint32_t head) {
  walk w;
  part p;
  uint64_t room = 0;
  if (begin(&w, b, head)) {
    while (room <= SB_MAX_BODY + SB_CHUNK_BYTES && next(&w, &p)) room += p.room; /* the bound also ends a cycle */
  }
  return room;
}

/* ---- freeing ---- */

uint32_t sb_parts_first(sb_broker *b, uint32_t head) {
  uint64_t bytes = slot_bytes(b, head);
  return bytes != 0 ? SB_LOAD(&parts_of(b, head, bytes)->first, SB_ACQUIRE) : 0;
}

bool sb_parts_next(sb_broker *b, uint32_t head, uint64_t gen, uint32_t slot, uint32_t *following) {
  part p;
  bool good = is_part_of(b, slot, head, gen, &p);
  if (good) *following = p.names.next;
  return good;
}

static void free_part(sb_broker *b, uint32_t slot, uint64_t header) {
  uint64_t freed = sb_slot_word(SB_SLOT_FREE, 0, sb_slot_gen(header) + 1);
  if (SB_CAS(sb_slot_header(b, slot), &header, freed, SB_ACQ_REL)) {
    SB_CRASHPOINT("parts.freed");
    sb_chunk_freed(b, slot);
  }
}

void sb_parts_free(sb_broker *b, uint32_t head, uint64_t gen, uint32_t first) {
  part p;
  uint32_t at = first;
  for (; at != 0 && is_part_of(b, at, head, gen, &p); at = p.names.next) free_part(b, at, p.header);
  if (at != 0) sb_parts_sweep(b);
}

/* True if the head was freed; this stays true, since a generation never repeats (I3 of sb_layout.h). False also if the
 * head may lie in a segment that this process cannot map. */
static bool is_gone(sb_broker *b, uint32_t head, uint64_t gen) {
  if (!sb_segments_ready(b)) {
    return false;
  }
  if (slot_bytes(b, head) == 0) {
    return true;
  }
  uint64_t h = SB_LOAD(sb_slot_header(b, head), SB_ACQUIRE);
  return sb_slot_gen(h) != gen || !sb_slot_in_parts(h);
}

bool sb_parts_is_orphan(sb_broker *b, uint32_t slot) {
  part p;
  return look(b, slot, &p) && is_gone(b, p.names.head, p.names.head_gen);
}

static void sweep_chunk(sb_broker *b, uint32_t chunk) {
  uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
  unsigned cls = sb_chunk_class(word);
  if (!sb_chunk_has_slots(word) || cls < 1 || cls > SB_MESSAGE_CLASSES) {
    return;
  }
  unsigned units = sb_class_units(cls);
  for (unsigned i = 0; i + units <= SB_CHUNK_UNITS; i += units) {
    uint32_t slot = chunk * SB_CHUNK_UNITS + i;
    part p;
    if (sb_slot_is_part(SB_LOAD(sb_slot_header(b, slot), SB_RELAXED)) && look(b, slot, &p) &&
        is_gone(b, p.names.head, p.names.head_gen)) {
      free_part(b, slot, p.header);
    }
  }
}

void sb_parts_sweep(sb_broker *b) {
  if (SB_LOAD(&b->header->scattered, SB_SEQ_CST) == 0) {
    return;
  }
  uint32_t n = sb_chunk_count(b);
  for (uint32_t chunk = 0; chunk < n; chunk++) {
    if (sb_chunk_ready(b, chunk) && SB_LOAD(&sb_chunk_meta(b, chunk)->parts, SB_SEQ_CST) != 0) sweep_chunk(b, chunk);
  }
}
