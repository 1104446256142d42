// SPDX-License-Identifier: Apache-2.0
#include "sb_chunk.h"

#include <string.h>
#include <sys/mman.h>

#include "sb_floors.h"
#include "sb_peek.h"
#include "sb_wait.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The lengths of the slots in units, and their reciprocals times 2^32, rounded up. There is no class 0. First come the
 * message classes: from 4 to 1024 units a doubling has four classes, so that a body leaves at most a fifth of its slot
 * unused; the longest classes divide a chunk into 6, 5, 4, 3, 2 slots or 1. Then come the kinds of structures. */
#define CLASS(units) {units, (UINT64_C(1) << 32) / (units) + 1}
static const struct {
  uint64_t units, reciprocal;
} CLASSES[] = {
    // clang-format off
    {0, 0},
    CLASS(1), CLASS(2), CLASS(3), CLASS(4), CLASS(5), CLASS(6), CLASS(7), CLASS(8), CLASS(10), CLASS(12), CLASS(14),
    CLASS(16), CLASS(20), CLASS(24), CLASS(28), CLASS(32), CLASS(40), CLASS(48), CLASS(56), CLASS(64), CLASS(80),
    CLASS(96), CLASS(112), CLASS(128), CLASS(160), CLASS(192), CLASS(224), CLASS(256), CLASS(320), CLASS(384),
    CLASS(448), CLASS(512), CLASS(640), CLASS(768), CLASS(896), CLASS(1024), CLASS(1360), CLASS(1632), CLASS(2048),
    CLASS(2728), CLASS(4096), CLASS(8192),
    CLASS(SB_LEAF_UNITS), CLASS(3), CLASS(SB_QUEUE_UNITS), CLASS(1), CLASS(1), CLASS(1), CLASS(6), CLASS(16),
    CLASS(SB_LONG_LEAF_UNITS), CLASS(SB_LONG_QUEUE_UNITS), CLASS(1), CLASS(SB_GROUPS_UNITS),
    CLASS(1), CLASS(SB_IDS_UNITS),
    // clang-format on
};
#define CLASS_COUNT (sizeof CLASSES / sizeof CLASSES[0])
_Static_assert(SB_MESSAGE_CLASSES + SB_KIND_COUNT == CLASS_COUNT, "classes");
_Static_assert(CLASS_COUNT <= SB_MAX_CLASSES, "classes");

void sb_class_format(sb_class_shm *classes) {
  for (unsigned cls = 1; cls < CLASS_COUNT; cls++) {
    unsigned kind = cls <= SB_MESSAGE_CLASSES ? (unsigned)SB_KIND_MESSAGE : cls - (unsigned)SB_MESSAGE_CLASSES;
    SB_STORE(&classes[cls].units, (uint32_t)CLASSES[cls].units, SB_RELAXED);
    SB_STORE(&classes[cls].kind, kind, SB_RELAXED);
    SB_STORE(&classes[cls].slots_per_chunk, (uint32_t)(SB_CHUNK_UNITS / CLASSES[cls].units), SB_RELAXED);
  }
}

unsigned sb_class_for(const sb_broker *b, uint64_t bytes) {
  (void)b;
  uint64_t units = (bytes + SB_UNIT - 1) / SB_UNIT;
  if (units <= 8) { /* classes 1 to 8: the number of units is the number of the class */
    return units == 0 ? 1 : (unsigned)units;
  }
  unsigned low = 0, high = SB_MESSAGE_CLASSES;
  while (low < high) {
    unsigned middle = (low + high) / 2;
    if (CLASSES[middle + 1].units < units) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < SB_MESSAGE_CLASSES ? low + 1 : 0;
}
unsigned sb_class_of_kind(const sb_broker *b, unsigned kind) {
  (void)b;
  return (unsigned)SB_MESSAGE_CLASSES + kind;
}
unsigned sb_class_units(unsigned cls) { return (unsigned)CLASSES[cls].units; }
/* A multiplication, since each message needs this three times, and a division takes up to 20 cycles. It is exact: the
 * reciprocal is at most 1 too large, and in_chunk * units is far below 2^32. */
uint32_t sb_class_index(unsigned cls, uint32_t in_chunk) {
  return (uint32_t)(in_chunk * CLASSES[cls].reciprocal >> 32);
}
bool sb_class_begins(unsigned cls, uint32_t in_chunk) {
  uint32_t units = sb_class_units(cls);
  return sb_class_index(cls, in_chunk) * units == in_chunk && in_chunk + units <= SB_CHUNK_UNITS;
}

/* ---- hints ---- */

void sb_chunk_hint_set(sb_broker *b, unsigned cls, uint32_t chunk, uint32_t word, uint64_t bits) {
  sb_chunk_meta_shm *meta = sb_chunk_meta(b, chunk);
  sb_class_shm *k = &b->classes[cls];
  uint64_t before = SB_OR(&meta->hints[word], bits, SB_RELEASE);
  if (before == 0 || (SB_LOAD(&meta->summary[word / 64], SB_RELAXED) >> (word % 64) & 1) == 0) {
    (void)SB_OR(&meta->summary[word / 64], UINT64_C(1) << (word % 64), SB_RELEASE);
  }
  uint64_t group = UINT64_C(1) << (chunk >> b->groups_shift);
  if ((SB_LOAD(&k->groups, SB_RELAXED) & group) == 0) {
    (void)SB_OR(&k->groups, group, SB_RELEASE);
  }
  if (SB_LOAD(&k->hint_chunk, SB_RELAXED) != chunk + 1) {
    SB_STORE(&k->hint_chunk, chunk + 1, SB_RELAXED);
  }
}

void sb_chunk_freed(sb_broker *b, uint32_t slot) {
  uint32_t chunk = slot / SB_CHUNK_UNITS;
  uint64_t word = SB_LOAD(&b->chunks[chunk], SB_RELAXED);
  unsigned cls = sb_chunk_class(word);
  if (sb_chunk_state(word) == SB_CHUNK_CLASS && cls >= 1 && cls < SB_MESSAGE_CLASSES + SB_KIND_COUNT) {
    uint32_t index = sb_class_index(cls, slot % SB_CHUNK_UNITS);
    sb_chunk_hint_set(b, cls, chunk, index / 64, UINT64_C(1) << (index % 64));
  }
}

/* Linux maps so many bytes around a page that a process reads for the first time (fault-around). For a page that a
 * process writes first, it maps only this one: 2 microseconds a page, in place of a quarter. */
#define MAPPED_AROUND UINT64_C(65536)

/* Maps the pages of these bytes of the arena. Some process has prepared their chunk, so the pages exist. */
static void map_by_reading(const sb_broker *b, uint64_t begin, uint64_t end) {
  for (uint64_t at = begin; at < end; at = (at | (MAPPED_AROUND - 1)) + 1) {
    (void)sb_peek_word((const uint64_t *)(const void *)(b->arena + at));
  }
}

/* Maps the slots of some hint bits. Bits of damaged hints, behind the last slot, map nothing. */
static void map_slots(const sb_broker *b, unsigned cls, uint32_t chunk, uint32_t word, uint64_t bits) {
  uint64_t bytes = (uint64_t)sb_class_units(cls) * SB_UNIT, from = chunk * SB_CHUNK_BYTES;
  uint64_t first = word * 64 + (uint32_t)__builtin_ctzll(bits),
           behind = word * 64 + 64 - (uint32_t)__builtin_clzll(bits);
  uint64_t end = behind * bytes < SB_CHUNK_BYTES ? behind * bytes : SB_CHUNK_BYTES;
  map_by_reading(b, from + first * bytes, from + end);
}

/* Moves hint bits of one word of the chunk into the connection's cache: one bit if the slots are long or the chunk is
 * OF_RESERVE, else all bits. False: the chunk has no hint for the class, or none that the connection may take. */
static bool hint_take(sb_connection *c, unsigned cls, uint32_t chunk) {
  sb_broker *b = c->b;
  if (!sb_chunk_ready(b, chunk)) {
    return false;
  }
  uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
  if (sb_chunk_state(word) != SB_CHUNK_CLASS || sb_chunk_class(word) != cls) {
    return false;
  }
  bool reserved = (word & SB_CHUNK_OF_RESERVE) != 0;
  if (reserved && !sb_reserve_allows(c, chunk, SB_CHUNK_UNITS / sb_class_units(cls))) {
    /* keeps the group's bit set: a call whose use may take these slots (sb_reserve.h) must still find the chunk */
    (void)SB_OR(&b->classes[cls].groups, UINT64_C(1) << (chunk >> b->groups_shift), SB_RELEASE);
    return false;
  }
  sb_chunk_meta_shm *meta = sb_chunk_meta(b, chunk);
  for (uint32_t half = 0; half < 2; half++) {
    uint64_t summary = SB_LOAD(&meta->summary[half], SB_ACQUIRE);
    while (summary != 0) {
      uint32_t at = half * 64 + (uint32_t)__builtin_ctzll(summary);
      summary &= summary - 1;
      SB_STORE(&c->shm->claims[cls], chunk * 128 + at + 1, SB_RELEASE);
      uint64_t bits = SB_LOAD(&meta->hints[at], SB_ACQUIRE);
      if (bits != 0 && (reserved || sb_class_units(cls) >= SB_SINGLE_CLAIM_UNITS)) {
        bits &= 0 - bits;
        bits &= SB_AND(&meta->hints[at], ~bits, SB_ACQ_REL);
      } else if (bits != 0) {
        bits = SB_SWAP(&meta->hints[at], 0, SB_ACQ_REL);
      }
      if (SB_LOAD(&meta->hints[at], SB_RELAXED) == 0) {
        (void)SB_AND(&meta->summary[half], ~(UINT64_C(1) << (at % 64)), SB_ACQ_REL);
        if (SB_LOAD(&meta->hints[at], SB_ACQUIRE) != 0) { /* another process set a hint before the bit was cleared */
          (void)SB_OR(&meta->summary[half], UINT64_C(1) << (at % 64), SB_RELEASE);
        }
      }
      if (bits != 0) {
        c->cache[cls] = (sb_slab_cache){bits, chunk, at};
        map_slots(b, cls, chunk, at, bits);
        return true;
      }
    }
  }
  return false;
}

bool sb_chunk_hint_search(sb_connection *c, unsigned cls) {
  sb_broker *b = c->b;
  sb_class_shm *k = &b->classes[cls];
  uint32_t hint = SB_LOAD(&k->hint_chunk, SB_RELAXED);
  /* structures search from the lowest chunk on, so that the higher chunks become empty in the course of time */
  bool anywhere = cls <= SB_MESSAGE_CLASSES;
  if (anywhere && hint != 0 && hint - 1 < b->chunk_limit && hint_take(c, cls, hint - 1)) {
    return true;
  }
  uint64_t groups = SB_LOAD(&k->groups, SB_ACQUIRE);
  while (groups != 0) {
    unsigned g = (unsigned)__builtin_ctzll(groups);
    groups &= groups - 1;
    for (unsigned pass = 0; pass < 2; pass++) {
      uint32_t end = (uint32_t)((g + 1) << b->groups_shift);
      for (uint32_t chunk = (uint32_t)(g << b->groups_shift); chunk < end && chunk < b->chunk_limit; chunk++) {
        if (sb_chunk_state(SB_LOAD(&b->chunks[chunk], SB_RELAXED)) == SB_CHUNK_CLASS && hint_take(c, cls, chunk)) {
          if (pass == 1) (void)SB_OR(&k->groups, UINT64_C(1) << g, SB_RELEASE);
          return true;
        }
      }
      if (pass == 0) {
        /* the second pass finds hints that another process set before the bit was cleared */
        (void)SB_AND(&k->groups, ~(UINT64_C(1) << g), SB_ACQ_REL);
      }
    }
  }
  return false;
}

/* ---- chunks ---- */

bool sb_chunk_may_grow(sb_broker *b) {
  uint64_t again = SB_LOAD(&b->grow_again_ns, SB_RELAXED);
  return sb_chunk_count(b) < b->chunk_limit && (again == 0 || sb_now_ns() >= again);
}

/* Maps all pages of a chunk in a fraction of the time that faults would take. `written`: the pages exist. */
static void populate(sb_broker *b, uint32_t chunk, bool written) {
  uint64_t bit = UINT64_C(1) << (chunk % 64), begin = chunk * SB_CHUNK_BYTES;
  /* relaxed: process-local, and a second call does no harm */
  if ((SB_OR(&b->populated[chunk / 64], bit, SB_RELAXED) & bit) != 0) {
    return;
  }
  if (written) {
    map_by_reading(b, begin, begin + SB_CHUNK_BYTES);
  } else {
    (void)madvise(b->arena + begin, SB_CHUNK_BYTES, MADV_POPULATE_WRITE);
  }
}

void sb_chunk_prepare(sb_broker *b, uint32_t chunk, bool structures) {
  sb_chunk_meta_shm *meta = sb_chunk_meta(b, chunk);
  bool written = SB_LOAD(&meta->written, SB_RELAXED) != 0;
  SB_STORE(&meta->written, 1, SB_RELAXED); /* before anything else is written there, see sb_chunk.h */
  if (!structures || written) populate(b, chunk, written);
  if (structures && written) memset(b->arena + chunk * SB_CHUNK_BYTES, 0, SB_CHUNK_BYTES);
}

static void chunk_fill(sb_broker *b, unsigned cls, uint32_t chunk) {
  sb_chunk_meta_shm *meta = sb_chunk_meta(b, chunk);
  bool structures = cls > SB_MESSAGE_CLASSES;
  sb_chunk_prepare(b, chunk, structures);
  /* A new structure continues from numbers in its slot, for example its incarnation. In a chunk that is opened again,
   * these numbers begin at the chunk's floors (sb_floors.h). */
  if (structures) sb_floors_apply(b, chunk, cls - SB_MESSAGE_CLASSES, sb_class_units(cls));
  unsigned units = sb_class_units(cls), slots = SB_CHUNK_UNITS / units;
  for (unsigned i = 0; i < slots; i++) {
    uint64_t h = SB_LOAD(&meta->headers[i * units], SB_RELAXED);
    SB_STORE(&meta->headers[i * units], sb_slot_word(SB_SLOT_FREE, 0, sb_slot_gen(h) + 1), SB_RELAXED);
  }
  for (unsigned w = 0; w < SB_CHUNK_UNITS / 64; w++) {
    uint64_t bits = w * 64 + 64 <= slots ? ~UINT64_C(0) : w * 64 < slots ? (UINT64_C(1) << (slots - w * 64)) - 1 : 0;
    SB_STORE(&meta->hints[w], bits, SB_RELAXED);
  }
  if (chunk == 0) { /* slot 0 is never used: its number means "none" everywhere */
    SB_STORE(&meta->headers[0], sb_slot_word(SB_SLOT_ALLOC, 0, 0), SB_RELAXED);
    SB_STORE(&meta->hints[0], SB_LOAD(&meta->hints[0], SB_RELAXED) & ~UINT64_C(1), SB_RELAXED);
  }
  unsigned words = (slots + 63) / 64;
  SB_STORE(&meta->summary[0], words >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << words) - 1, SB_RELAXED);
  SB_STORE(&meta->summary[1],
           words >= 128 ? ~UINT64_C(0)
           : words > 64 ? (UINT64_C(1) << (words - 64)) - 1
                        : 0,
           SB_RELAXED);
}

static void chunk_open(sb_broker *b, unsigned cls, uint32_t chunk, uint64_t flag) {
  SB_STORE(&b->chunks[chunk], sb_chunk_word(SB_CHUNK_CLASS, 0, cls, 0) | flag, SB_RELEASE);
  (void)SB_ADD(&b->classes[cls].chunks, 1, SB_RELAXED);
  (void)SB_OR(&b->classes[cls].groups, UINT64_C(1) << (chunk >> b->groups_shift), SB_RELEASE);
}

bool sb_chunk_claim(sb_connection *c, uint32_t chunk, unsigned cls, unsigned run) {
  uint64_t word = SB_LOAD(&c->b->chunks[chunk], SB_RELAXED);
  return sb_chunk_state(word) == SB_CHUNK_FREE &&
         SB_CAS(&c->b->chunks[chunk], &word, sb_chunk_word(SB_CHUNK_CLAIMED, c->id, cls, run), SB_SEQ_CST); /* P20 */
}

bool sb_chunk_claim_class(sb_connection *c, unsigned cls, uint64_t token) {
  return sb_chunk_claim_leaving(c, cls, sb_reserve_leave(c->b, c->use, cls), token);
}

bool sb_chunk_claim_leaving(sb_connection *c, unsigned cls, uint32_t leave, uint64_t token) {
  sb_broker *b = c->b;
  uint32_t n = sb_chunk_count(b);
  bool growing = sb_chunk_may_grow(b), objects = cls > SB_MESSAGE_CLASSES;
  bool will_grow = growing && SB_LOAD(&b->header->no_room, SB_RELAXED) == 0;
  if (will_grow && objects) leave = 0;
  if (sb_chunk_spare(b) <= leave) {
    return false; /* the chunks that are FREE now are left to calls with another use (sb_reserve.h) */
  }
  SB_CRASHPOINT("slab.chunk.counted");
  for (uint32_t k = 0; k < n; k++) {
    uint32_t chunk = objects || growing ? k : n - 1 - k;
    if (sb_chunk_state(SB_LOAD(&b->chunks[chunk], SB_RELAXED)) != SB_CHUNK_FREE || !sb_chunk_ready(b, chunk)) {
      continue;
    }
    sb_holding_set(b, token, sb_holding_what(SB_HOLD_CHUNK, 0, 0), chunk);
    if (sb_chunk_claim(c, chunk, cls, 0)) {
      SB_CRASHPOINT("slab.chunk.claimed");
      uint32_t left;
      /* another connection claimed the last chunk that this use may take */
      if (!sb_reserve_is_left(b, chunk, leave, &left)) {
        SB_STORE(&b->chunks[chunk], sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0), SB_RELEASE);
        return false;
      }
      chunk_fill(b, cls, chunk);
      if (cls > SB_MESSAGE_CLASSES &&
          sb_chunk_hint_search(c, cls)) { /* another connection made room: do not open a second chunk (sb_chunk.h) */
        SB_STORE(&b->chunks[chunk], sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0), SB_RELEASE);
        return true;
      }
      chunk_open(b, cls, chunk, !will_grow && left < sb_reserve_kept(b) ? SB_CHUNK_OF_RESERVE : 0);
      SB_STORE(&b->classes[cls].hint_chunk, chunk + 1, SB_RELAXED);
      return true;
    }
  }
  return false;
}

void sb_chunk_scrub(sb_broker *b, uint32_t chunk, uint32_t slots_units) {
  sb_chunk_meta_shm *meta = sb_chunk_meta(b, chunk);
  for (uint32_t u = 0; u < SB_CHUNK_UNITS; u += slots_units) { /* ALLOC without owner and flags: no slot begins at u */
    uint64_t h = SB_LOAD(&meta->headers[u], SB_RELAXED);
    SB_STORE(&meta->headers[u], sb_slot_word(SB_SLOT_ALLOC, 0, sb_slot_gen(h)), SB_RELAXED);
  }
  for (unsigned w = 0; w < SB_CHUNK_UNITS / 64; w++) {
    SB_STORE(&meta->hints[w], 0, SB_RELAXED);
  }
  SB_STORE(&meta->summary[0], 0, SB_RELAXED);
  SB_STORE(&meta->summary[1], 0, SB_RELAXED);
  SB_STORE(&meta->parts, 0, SB_RELAXED); /* I64 of sb_parts.h: the caller owns all slots, so none is a part */
}

static bool all_free(sb_broker *b, uint32_t chunk, unsigned units) {
  sb_chunk_meta_shm *meta = sb_chunk_meta(b, chunk);
  for (unsigned i = 0; i + units <= SB_CHUNK_UNITS; i += units) {
    if (sb_slot_state(SB_LOAD(&meta->headers[i], SB_RELAXED)) != SB_SLOT_FREE) {
      return false;
    }
  }
  return true;
}

static void undrain(sb_broker *b, unsigned owner, uint32_t chunk, unsigned cls, uint64_t flag) {
  unsigned units = sb_class_units(cls);
  sb_chunk_meta_shm *meta = sb_chunk_meta(b, chunk);
  for (unsigned i = 0; i + units <= SB_CHUNK_UNITS; i += units) {
    uint64_t h = SB_LOAD(&meta->headers[i], SB_ACQUIRE);
    bool scrubbed = sb_slot_owner(h) == 0 && !sb_slot_is_part(h) && (chunk != 0 || i != 0);
    if (sb_slot_state(h) == SB_SLOT_ALLOC && (sb_slot_owner(h) == owner || scrubbed)) {
      (void)SB_CAS(&meta->headers[i], &h, sb_slot_word(SB_SLOT_FREE, 0, sb_slot_gen(h) + 1), SB_ACQ_REL);
    }
    sb_chunk_hint_set(b, cls, chunk, i / units / 64, UINT64_C(1) << (i / units % 64));
  }
  uint64_t word = sb_chunk_word(SB_CHUNK_DRAINING, owner, cls, 0) | flag;
  (void)SB_CAS(&b->chunks[chunk], &word, sb_chunk_word(SB_CHUNK_CLASS, 0, cls, 0) | flag, SB_ACQ_REL);
}

static bool is_of_bodies(unsigned cls) { return cls >= 1 && cls <= SB_MESSAGE_CLASSES; }

/* Frees the first slot of the chunk if it is ALLOC with just this field: an owner, and perhaps SB_SLOT_OF_RUN. */
static void free_first(sb_broker *b, uint64_t field, uint32_t chunk) {
  sb_word *header = &sb_chunk_meta(b, chunk)->headers[0];
  uint64_t h = SB_LOAD(header, SB_ACQUIRE);
  if (h == sb_slot_word(SB_SLOT_ALLOC, field, sb_slot_gen(h)) &&
      SB_CAS(header, &h, sb_slot_word(SB_SLOT_FREE, 0, sb_slot_gen(h) + 1), SB_ACQ_REL)) {
    sb_chunk_freed(b, chunk * SB_CHUNK_UNITS);
  }
}

/* Makes a chunk of bodies FREE if all its slots are free. Of a run whose slot is free, makes all chunks FREE. */
bool sb_chunk_drain(sb_connection *c, uint64_t token, uint32_t chunk) {
  sb_broker *b = c->b;
  uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
  unsigned cls = sb_chunk_class(word), run = sb_chunk_run(word);
  uint64_t flag = word & SB_CHUNK_OF_RESERVE;
  if (!sb_chunk_ready(b, chunk)) {
    return false;
  }
  if (sb_chunk_state(word) == SB_CHUNK_CLASS && is_of_bodies(cls) && all_free(b, chunk, sb_class_units(cls))) {
    sb_holding_set(b, token, sb_holding_what(SB_HOLD_CHUNK, 0, 0), chunk);
    if (!SB_CAS(&b->chunks[chunk], &word, sb_chunk_word(SB_CHUNK_DRAINING, c->id, cls, 0) | flag, SB_ACQ_REL)) {
      return false;
    }
    SB_CRASHPOINT("slab.chunk.draining");
    unsigned units = sb_class_units(cls);
    for (unsigned i = 0; i + units <= SB_CHUNK_UNITS; i += units) {
      uint64_t h = SB_LOAD(&sb_chunk_meta(b, chunk)->headers[i], SB_ACQUIRE);
      if (sb_slot_state(h) != SB_SLOT_FREE || !SB_CAS(&sb_chunk_meta(b, chunk)->headers[i], &h,
                                                      sb_slot_word(SB_SLOT_ALLOC, c->id, sb_slot_gen(h)), SB_ACQ_REL)) {
        undrain(b, c->id, chunk, cls, flag);
        return false;
      }
    }
    sb_chunk_scrub(b, chunk, units);
    (void)SB_SUB(&b->classes[cls].chunks, 1, SB_RELAXED);
    SB_STORE(&b->chunks[chunk], sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0), SB_RELEASE);
    return true;
  }
  if (sb_chunk_state(word) == SB_CHUNK_RUN && run > 0 && chunk + run <= b->chunk_limit) {
    sb_word *header = &sb_chunk_meta(b, chunk)->headers[0];
    uint64_t h = SB_LOAD(header, SB_ACQUIRE);
    if (sb_slot_state(h) != SB_SLOT_FREE) {
      return false;
    }
    sb_holding_set(b, token, sb_holding_what(SB_HOLD_CHUNK, 0, 0), chunk);
    if (!SB_CAS(header, &h, sb_slot_word(SB_SLOT_ALLOC, c->id | SB_SLOT_OF_RUN, sb_slot_gen(h)), SB_ACQ_REL)) {
      return false;
    }
    SB_CRASHPOINT("slab.run.taken");
    if (!SB_CAS(&b->chunks[chunk], &word, sb_chunk_word(SB_CHUNK_DRAINING, c->id, 0, run), SB_SEQ_CST)) {
      /* I14: this connection read the chunk's word, then others drained the run, and use the chunk for something
       * else, or for another run */
      free_first(b, c->id | SB_SLOT_OF_RUN, chunk);
      return false;
    }
    SB_CRASHPOINT("slab.run.draining");
    sb_chunk_recover(b, c->id, chunk);
    return true;
  }
  return false;
}

bool sb_chunk_drain_any(sb_connection *c, uint64_t token) {
  uint32_t n = sb_chunk_count(c->b);
  bool any = false;
  for (uint32_t chunk = 0; chunk < n; chunk++) {
    any = sb_chunk_drain(c, token, chunk) || any;
    if (any && sb_chunk_state(SB_LOAD(&c->b->chunks[chunk], SB_RELAXED)) == SB_CHUNK_FREE) {
      return true;
    }
  }
  return any;
}

void sb_chunk_recover(sb_broker *b, unsigned owner, uint32_t chunk) {
  if (chunk >= b->chunk_limit || !sb_chunk_ready(b, chunk)) {
    return;
  }
  uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
  unsigned run = sb_chunk_run(word);
  bool bodies = sb_chunk_state(word) == SB_CHUNK_CLASS && is_of_bodies(sb_chunk_class(word));
  bool drains = sb_chunk_state(word) == SB_CHUNK_DRAINING && sb_chunk_owner(word) == owner;
  /* The dead connection may have taken the first slot to drain a run that is or was here. Its holdings then list the
   * chunk, not the slot. If the run is DRAINING, the code below also resets the slot's header. */
  if (!drains) free_first(b, owner | SB_SLOT_OF_RUN, chunk);
  if (sb_chunk_state(word) == SB_CHUNK_RUN || bodies) {
    free_first(b, owner, chunk); /* a run whose maker was killed before its holdings listed the slot */
    return;
  }
  if (sb_chunk_owner(word) != owner ||
      (sb_chunk_state(word) != SB_CHUNK_CLAIMED && sb_chunk_state(word) != SB_CHUNK_DRAINING)) {
    return;
  }
  if (sb_chunk_state(word) == SB_CHUNK_DRAINING && run == 0 && !is_of_bodies(sb_chunk_class(word))) {
    return; /* a chunk of structures: sb_drained_recover undoes the draining */
  }
  if (sb_chunk_state(word) == SB_CHUNK_DRAINING && run == 0) {
    undrain(b, owner, chunk, sb_chunk_class(word), word & SB_CHUNK_OF_RESERVE);
    return;
  }
  /* The head is freed last, since its word tells how many chunks follow: another reaper may have to finish the loop. */
  for (uint32_t i = 1; i < run && chunk + i < b->chunk_limit; i++) {
    uint64_t tail = SB_LOAD(&b->chunks[chunk + i], SB_ACQUIRE);
    bool ours = (sb_chunk_state(tail) == SB_CHUNK_TAIL && sb_chunk_run(tail) == i) ||
                (sb_chunk_state(tail) == SB_CHUNK_CLAIMED && sb_chunk_owner(tail) == owner);
    if (ours) {
      (void)SB_CAS(&b->chunks[chunk + i], &tail, sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0), SB_ACQ_REL);
    }
  }
  if (run > 0) {
    sb_word *header = &sb_chunk_meta(b, chunk)->headers[0];
    uint64_t h = SB_LOAD(header, SB_ACQUIRE);
    if (sb_slot_state(h) == SB_SLOT_ALLOC && sb_slot_owner(h) == owner) {
      (void)SB_CAS(header, &h, sb_slot_word(SB_SLOT_ALLOC, 0, sb_slot_gen(h)), SB_ACQ_REL);
    }
  }
  (void)SB_CAS(&b->chunks[chunk], &word, sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0), SB_ACQ_REL);
}
