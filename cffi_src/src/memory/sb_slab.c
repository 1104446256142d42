// SPDX-License-Identifier: Apache-2.0
#include "sb_slab.h"

#include <string.h>

#include "sb_drained.h"
#include "sb_parts.h"
#include "sb_wait.h"

#define SWEEP_INTERVAL_NS UINT64_C(50000000)

/* ---- allocation ---- */

/* Takes `slot` if it is FREE; else returns false. The hint that led to the slot may be out of date. After the CAS the
 * function therefore checks that the chunk still has the class, or, if `cls` is 0, is still a run of `run` chunks. */
static bool take(sb_connection *c, uint32_t slot, unsigned cls, unsigned run, uint64_t token, uint64_t *gen) {
  sb_word *header = sb_slot_header(c->b, slot);
  uint64_t h = SB_LOAD(header, SB_RELAXED);
  if (sb_slot_state(h) != SB_SLOT_FREE) {
    return false;
  }
  *gen = sb_slot_gen(h);
  sb_holding_set(c->b, token, sb_holding_what(SB_HOLD_SLOT, slot, *gen), 0);
  uint64_t mine = sb_slot_word(SB_SLOT_ALLOC, c->id, *gen);
  if (!SB_CAS(header, &h, mine, SB_SEQ_CST)) {
    return false;
  }
  uint64_t chunk = SB_LOAD(&c->b->chunks[slot / SB_CHUNK_UNITS], SB_SEQ_CST);
  unsigned state = sb_chunk_state(chunk);
  /* I68 of sb_drained.h: in a chunk of structures that is DRAINING, no slot may be taken */
  bool with_slots = state == SB_CHUNK_CLASS || (state == SB_CHUNK_DRAINING && cls <= SB_MESSAGE_CLASSES);
  bool right =
      cls != 0 ? with_slots && sb_chunk_class(chunk) == cls : state == SB_CHUNK_RUN && sb_chunk_run(chunk) == run;
  if (!right) {
    (void)sb_slab_free(c->b, slot, mine);
  }
  /* I14: a connection that opens a chunk resets all slot headers, and then stores the chunk's word. If the reset came
   * after our CAS, the chunk's word is right, but the slot is not ours. */
  bool kept = SB_LOAD(header, SB_RELAXED) == mine;
  return right && kept;
}

SB_HOT bool take_cached(sb_connection *c, unsigned cls, uint64_t token, uint32_t *slot, uint64_t *gen) {
  sb_slab_cache *cache = &c->cache[cls];
  unsigned units = sb_class_units(cls);
  while (cache->mask != 0) {
    uint32_t index = cache->word * 64 + (uint32_t)__builtin_ctzll(cache->mask);
    cache->mask &= cache->mask - 1;
    if ((index + 1) * units > SB_CHUNK_UNITS) {
      continue;
    }
    *slot = cache->chunk * SB_CHUNK_UNITS + index * units;
    if (take(c, *slot, cls, 0, token, gen)) {
      /* the next slot may be in another processor's cache: prefetch it while the caller fills this one */
      if (cache->mask != 0) {
        uint32_t next =
            cache->chunk * SB_CHUNK_UNITS + (cache->word * 64 + (uint32_t)__builtin_ctzll(cache->mask)) * units;
        const char *memory = sb_slot_at(c->b, next);
        __builtin_prefetch((const void *)sb_slot_header(c->b, next), 1);
        __builtin_prefetch(memory, 1);
        __builtin_prefetch(memory + 64, 1);
      }
      return true;
    }
  }
  return false;
}

/* True if the connection has swept the chunks of the class in vain, less than SWEEP_INTERVAL_NS ago. */
static bool swept_lately(const sb_connection *c, unsigned cls) {
  return sb_now_ns() - c->swept_ns[cls] < SWEEP_INTERVAL_NS;
}

/* Searches without hints: reads the headers of all chunks of the class, takes a FREE slot, and sets the hints of the
 * other FREE slots. False: no slot was taken. */
static bool sweep(sb_connection *c, unsigned cls, uint64_t token, uint32_t *slot, uint64_t *gen) {
  if (swept_lately(c, cls)) {
    return false;
  }
  sb_broker *b = c->b;
  unsigned units = sb_class_units(cls);
  uint32_t n = sb_chunk_count(b);
  bool found = false;
  for (uint32_t chunk = 0; chunk < n; chunk++) {
    uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
    if (sb_chunk_state(word) != SB_CHUNK_CLASS || sb_chunk_class(word) != cls || !sb_chunk_ready(b, chunk)) {
      continue;
    }
    bool ours = (word & SB_CHUNK_OF_RESERVE) == 0 || c->use < SB_USE_STAGE;
    for (unsigned i = 0; i + units <= SB_CHUNK_UNITS; i += units) {
      if (sb_slot_state(SB_LOAD(&sb_chunk_meta(b, chunk)->headers[i], SB_RELAXED)) != SB_SLOT_FREE) {
        continue;
      }
      if (ours && !found && take(c, chunk * SB_CHUNK_UNITS + i, cls, 0, token, gen)) {
        *slot = chunk * SB_CHUNK_UNITS + i;
        found = true;
      } else {
        sb_chunk_hint_set(b, cls, chunk, i / units / 64, UINT64_C(1) << (i / units % 64));
      }
    }
  }
  if (!found) {
    c->swept_ns[cls] = sb_now_ns();
  }
  return found;
}

/* The last resort of a plain put that needs a structure (I65 of sb_reserve.h): opens the first chunk of its class out of
 * the reserve. True: as sb_chunk_claim_class. */
static bool claim_first(sb_connection *c, unsigned cls, uint64_t token) {
  if (c->use != SB_USE_PLAIN || cls <= SB_MESSAGE_CLASSES) {
    return false;
  }
  bool lends = sb_reserve_lends(c->b, cls);
  return sb_chunk_hint_search(c, cls) || /* another connection may have opened one since this one searched */
         (lends && sb_chunk_claim_leaving(c, cls, sb_reserve_leave(c->b, SB_USE_BOOKS, cls), token));
}

static sb_status alloc(sb_connection *c, unsigned cls, uint64_t token, uint32_t *slot, uint64_t *gen) {
  sb_broker *b = c->b;
  for (;;) {
    if (take_cached(c, cls, token, slot, gen)) {
      return SB_OK;
    }
    sb_slab_flush_freed(c);
    if (sb_chunk_hint_search(c, cls) || sb_chunk_claim_class(c, cls, token)) {
      continue;
    }
    if (sb_chunk_may_grow(b) && sb_reserve_below_mark(c)) {
      return SB_GROW;
    }
    if (sb_chunk_drain_any(c, token)) {
      continue;
    }
    if (sweep(c, cls, token, slot, gen)) {
      return SB_OK;
    }
    if (!claim_first(c, cls, token) && !sb_drained_take_over(c, cls, token)) {
      return SB_NO_MEMORY;
    }
  }
}

sb_status sb_slab_alloc(sb_connection *c, unsigned cls, uint64_t token, uint32_t *slot, uint64_t *gen) {
  sb_status status = SB_NO_MEMORY;
  if (c->use == SB_USE_STAGE && c->cache[cls].mask == 0 && !swept_lately(c, cls)) {
    c->use = SB_USE_PLAIN; /* memory that needs no reserve comes first (sb_reserve.h) */
    status = alloc(c, cls, token, slot, gen);
    c->use = SB_USE_STAGE;
  }
  return status == SB_NO_MEMORY ? alloc(c, cls, token, slot, gen) : status;
}

bool sb_slab_alloc_spare(sb_connection *c, unsigned cls, bool thoroughly, uint64_t token, uint32_t *slot,
                         uint64_t *gen) {
  do {
    if (take_cached(c, cls, token, slot, gen)) {
      return true;
    }
    sb_slab_flush_freed(c);
  } while (sb_chunk_hint_search(c, cls));
  return thoroughly && sweep(c, cls, token, slot, gen);
}

static bool claim_run(sb_connection *c, uint32_t first, uint32_t run, uint64_t token, uint32_t *slot, uint64_t *gen) {
  sb_broker *b = c->b;
  sb_holding_set(b, token, sb_holding_what(SB_HOLD_CHUNK, 0, 0), first);
  uint32_t claimed = 0, left;
  while (claimed < run && sb_chunk_claim(c, first + claimed, 0, claimed == 0 ? run : 0)) claimed++;
  if (claimed < run || !sb_reserve_is_left(b, first + run - 1, sb_reserve_leave(b, c->use, 0), &left)) {
    while (claimed-- > 0) {
      SB_STORE(&b->chunks[first + claimed], sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0), SB_RELEASE);
    }
    return false;
  }
  SB_CRASHPOINT("slab.run.claimed");
  for (uint32_t i = 0; i < run; i++) {
    sb_chunk_prepare(b, first + i, false);
    if (i > 0)
      SB_STORE(&b->chunks[first + i], sb_chunk_word(SB_CHUNK_TAIL, 0, 0, i), SB_RELEASE); /* its distance to the head */
  }
  uint64_t h = SB_LOAD(sb_slot_header(b, first * SB_CHUNK_UNITS), SB_RELAXED);
  *slot = first * SB_CHUNK_UNITS;
  *gen = sb_slot_gen(h) + 1;
  SB_STORE(sb_slot_header(b, *slot), sb_slot_word(SB_SLOT_ALLOC, c->id, *gen), SB_RELEASE);
  SB_STORE(&b->chunks[first], sb_run_word(run, *gen), SB_RELEASE);
  /* `where` stays the chunk: until the new `what` is stored, a reaper reads the entry as a CHUNK */
  sb_holding_set(b, token, sb_holding_what(SB_HOLD_SLOT, *slot, *gen), first);
  return true;
}

/* True if structures leave enough chunks for the run; whether these are adjacent does not matter here. A chunk of
 * structures is usable, too, if all its slots are free, since it can become FREE. */
static bool may_ever_fit(const sb_connection *c, uint32_t run) {
  sb_broker *b = c->b;
  uint64_t used;
  uint32_t usable = 0;
  for (uint32_t chunk = 1; chunk < b->chunk_limit; chunk++) { /* no run contains chunk 0, see sb_slab_alloc_run */
    uint64_t word = SB_LOAD(&b->chunks[chunk], SB_RELAXED);
    bool kept = sb_chunk_state(word) == SB_CHUNK_CLASS && sb_chunk_class(word) > SB_MESSAGE_CLASSES &&
                !sb_drained_may_begin(b, chunk, &used);
    usable += !kept;
  }
  return usable >= run + sb_reserve_leave(b, c->use, 0);
}

sb_status sb_slab_alloc_run(sb_connection *c, uint64_t bytes, uint64_t token, uint32_t *slot, uint64_t *gen) {
  sb_broker *b = c->b;
  uint32_t run = (uint32_t)((bytes + SB_CHUNK_BYTES - 1) / SB_CHUNK_BYTES);
  for (unsigned pass = 0; pass < 2; pass++) {
    bool growing = sb_chunk_may_grow(b);
    uint32_t n = sb_chunk_count(b), free_run = 0;
    for (uint32_t k = 0; k < n; k++) {
      uint32_t chunk = growing ? k : n - 1 - k;
      uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
      if (sb_chunk_state(word) == SB_CHUNK_RUN && sb_chunk_run(word) == run && sb_chunk_ready(b, chunk + run - 1) &&
          take(c, chunk * SB_CHUNK_UNITS, 0, run, token, gen)) {
        *slot = chunk * SB_CHUNK_UNITS;
        return SB_OK;
      }
      /* chunk 0 cannot be in a run: the slot of a run that begins there would be 0, which means "none" */
      free_run = sb_chunk_state(word) == SB_CHUNK_FREE && chunk > 0 ? free_run + 1 : 0;
      uint32_t first = growing ? chunk + 1 - run : chunk;
      if (free_run == run && sb_chunk_ready(b, first + run - 1) &&
          sb_chunk_spare(b) >= run + sb_reserve_leave(b, c->use, 0)) {
        if (claim_run(c, first, run, token, slot, gen)) {
          return SB_OK;
        }
        free_run = 0;
      }
    }
    if (!may_ever_fit(c, run)) {
      return SB_TOO_LARGE;
    }
    if (sb_chunk_may_grow(b) && sb_reserve_below_mark(c)) {
      return SB_GROW;
    }
    for (uint32_t chunk = 0; pass == 0 && chunk < n; chunk++) {
      (void)sb_chunk_drain(c, token, chunk);
    }
  }
  return SB_NO_MEMORY;
}

/* ---- freeing ---- */

bool sb_slab_free(sb_broker *b, uint32_t slot, uint64_t expected) {
  bool in_parts = sb_parts_is_head(b, slot, expected);
  /* I43 of sb_peek.h: a guess until the CAS finds the header unchanged */
  uint32_t part = in_parts ? sb_parts_first(b, slot) : 0;
  if (!SB_CAS(sb_slot_header(b, slot), &expected, sb_slot_word(SB_SLOT_FREE, 0, sb_slot_gen(expected) + 1),
              SB_ACQ_REL)) {
    return false;
  }
  SB_CRASHPOINT("slab.freed");
  sb_chunk_freed(b, slot);
  if (in_parts) sb_parts_free(b, slot, sb_slot_gen(expected), part);
  return true;
}

void sb_slab_flush_freed(sb_connection *c) {
  if (c->freed.mask != 0) {
    sb_chunk_hint_set(c->b, c->freed_class, c->freed.chunk, c->freed.word, c->freed.mask);
    c->freed.mask = 0;
  }
}

void sb_slab_drop_last(sb_connection *c, uint32_t slot, uint64_t header) {
  sb_broker *b = c->b;
  uint32_t chunk = slot / SB_CHUNK_UNITS;
  uint64_t word = SB_LOAD(&b->chunks[chunk], SB_RELAXED);
  unsigned cls = sb_chunk_class(word);
  bool hinted = sb_chunk_state(word) == SB_CHUNK_CLASS && cls >= 1 && cls <= SB_MESSAGE_CLASSES;
  uint32_t index = hinted ? sb_class_index(cls, slot % SB_CHUNK_UNITS) : 0;
  if (hinted && (c->freed.mask == 0 || c->freed.chunk != chunk || c->freed.word != index / 64)) {
    sb_slab_flush_freed(c);
    c->freed = (sb_slab_cache){0, chunk, index / 64};
    c->freed_class = cls;
    /* the hint is set later: if this process dies before that, the reaper sets all hints of the word in claims[0] */
    SB_STORE(&c->shm->claims[0], chunk * 128 + index / 64 + 1, SB_RELEASE);
  }
  SB_STORE(sb_slot_header(b, slot), sb_slot_word(SB_SLOT_FREE, 0, sb_slot_gen(header) + 1), SB_RELEASE);
  SB_CRASHPOINT("slab.freed");
  if (hinted) {
    c->freed.mask |= UINT64_C(1) << (index % 64);
    if (sb_class_units(cls) >= SB_SINGLE_CLAIM_UNITS || c->freed.mask == ~UINT64_C(0)) {
      sb_slab_flush_freed(c); /* long slots are scarce: another connection may wait for one. A full mask has no room */
    }
  }
}

bool sb_slab_free_gen(sb_broker *b, uint32_t slot, uint64_t gen) {
  uint64_t h = SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE);
  return sb_slot_state(h) != SB_SLOT_FREE && sb_slot_gen(h) == (gen & SB_GEN_MASK) && sb_slab_free(b, slot, h);
}

void sb_slab_free_now(sb_broker *b, uint32_t slot) {
  if (sb_slot_ready(b, slot)) {
    (void)sb_slab_free_gen(b, slot, sb_slot_gen(SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE)));
  }
}

bool sb_slab_drop(sb_broker *b, uint32_t slot, uint64_t gen, unsigned ref, bool *freed) {
  sb_word *header = sb_slot_header(b, slot);
  uint64_t h = SB_LOAD(header, SB_ACQUIRE), bit = UINT64_C(1) << ref;
  *freed = false;
  while (sb_slot_gen(h) == (gen & SB_GEN_MASK) && sb_slot_is_published(h) && (sb_slot_refs(h) & bit) != 0) {
    uint64_t others = sb_slot_refs(h) & ~bit; /* a guess until the CAS finds the header unchanged (I43 of sb_peek.h) */
    if (others == UINT64_C(1) << SB_PARTS_REF && sb_parts_is_head(b, slot, h)) others = 0;
    if (others == 0 && sb_slot_state(h) == SB_SLOT_PUBLISHED) {
      if (sb_slab_free(b, slot, h)) {
        *freed = true;
        return true;
      }
      h = SB_LOAD(header, SB_ACQUIRE);
    } else if (SB_CAS(header, &h, h & ~SB_FIELD(bit, 2), SB_ACQ_REL)) {
      return true;
    }
  }
  return false;
}

bool sb_slab_add(sb_broker *b, uint32_t slot, unsigned ref) {
  sb_word *header = sb_slot_header(b, slot);
  uint64_t h = SB_LOAD(header, SB_ACQUIRE);
  while (sb_slot_state(h) != SB_SLOT_READ || ref < SB_READ_REFS) {
    if (SB_CAS(header, &h, h | SB_FIELD(UINT64_C(1) << ref, 2), SB_ACQ_REL)) {
      return true;
    }
  }
  return false;
}

void sb_slab_return_class(sb_connection *c, unsigned cls) {
  sb_slab_cache *cache = &c->cache[cls];
  if (cache->mask != 0) {
    sb_chunk_hint_set(c->b, cls, cache->chunk, cache->word, cache->mask);
    cache->mask = 0;
  }
  SB_STORE(&c->shm->claims[cls], 0, SB_RELAXED);
}

void sb_slab_return_cache(sb_connection *c) {
  sb_slab_flush_freed(c);
  SB_STORE(&c->shm->claims[0], 0, SB_RELAXED);
  for (unsigned cls = 1; cls < SB_MESSAGE_CLASSES + SB_KIND_COUNT; cls++) sb_slab_return_class(c, cls);
}

void sb_slab_restore_claims(sb_broker *b, sb_connection_shm *dead) {
  for (unsigned i = 0; i < SB_MESSAGE_CLASSES + SB_KIND_COUNT; i++) {
    uint32_t at = SB_LOAD(&dead->claims[i], SB_ACQUIRE), chunk = (at - 1) / 128, word = (at - 1) % 128;
    if (at == 0 || chunk >= b->chunk_limit || !sb_chunk_ready(b, chunk)) {
      continue;
    }
    uint64_t owner = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
    unsigned cls = sb_chunk_class(owner);
    if (sb_chunk_state(owner) != SB_CHUNK_CLASS || cls < 1 || cls >= SB_MESSAGE_CLASSES + SB_KIND_COUNT) {
      continue;
    }
    uint32_t slots = SB_CHUNK_UNITS / sb_class_units(cls);
    if (word * 64 < slots) { /* a hint for a used slot costs one look; without a hint a free slot may stay unused */
      sb_chunk_hint_set(b, cls, chunk, word,
                        word * 64 + 64 <= slots ? ~UINT64_C(0) : (UINT64_C(1) << (slots - word * 64)) - 1);
    }
  }
}

void *sb_slab_object(sb_broker *b, uint32_t slot, unsigned kind) {
  uint32_t chunk = slot / SB_CHUNK_UNITS;
  if (slot == 0 || chunk >= b->chunk_limit || !sb_chunk_ready(b, chunk)) {
    return NULL;
  }
  uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
  unsigned cls = (unsigned)SB_MESSAGE_CLASSES + kind;
  bool fits = sb_chunk_state(word) == SB_CHUNK_CLASS && sb_chunk_class(word) == cls &&
              sb_class_begins(cls, slot % SB_CHUNK_UNITS);
  return fits ? sb_slot_at(b, slot) : NULL;
}

sb_queue_shm *sb_slab_queue(sb_broker *b, uint32_t slot) {
  sb_queue_shm *q = sb_slab_object(b, slot, SB_KIND_QUEUE);
  return q != NULL ? q : sb_slab_object(b, slot, SB_KIND_LONG_QUEUE);
}

/* ---- facts ---- */

void sb_slab_kept(sb_broker *b, uint64_t *structures, uint64_t *bodies) {
  uint32_t n = sb_chunk_count(b), spare = sb_chunk_spare(b);
  uint32_t reserve = sb_reserve_chunks(b), reserved = spare < reserve ? spare : reserve, kept = reserved;
  for (uint32_t chunk = 0; chunk < n; chunk++) {
    uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
    kept += sb_chunk_has_slots(word) && sb_chunk_class(word) > SB_MESSAGE_CLASSES;
  }
  uint32_t taken = n - spare + reserved;
  *structures = kept * SB_CHUNK_BYTES;
  *bodies = (taken > kept ? taken - kept : 0) * SB_CHUNK_BYTES;
}

uint64_t sb_slab_used(sb_broker *b) {
  uint64_t used = 0;
  uint32_t n = sb_chunk_count(b);
  for (uint32_t chunk = 0; chunk < n; chunk++) {
    uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
    unsigned state = sb_chunk_state(word);
    if (state == SB_CHUNK_FREE || !sb_chunk_ready(b, chunk)) {
      continue;
    }
    if (state != SB_CHUNK_CLASS) {
      bool free_run = state == SB_CHUNK_RUN &&
                      sb_slot_state(SB_LOAD(&sb_chunk_meta(b, chunk)->headers[0], SB_RELAXED)) == SB_SLOT_FREE;
      if (free_run) {
        chunk += sb_chunk_run(word) > 0 ? sb_chunk_run(word) - 1 : 0;
      } else {
        used += SB_CHUNK_BYTES;
      }
      continue;
    }
    unsigned cls = sb_chunk_class(word);
    if (cls < 1 || cls >= SB_MESSAGE_CLASSES + SB_KIND_COUNT) {
      continue;
    }
    unsigned units = sb_class_units(cls);
    for (unsigned i = 0; i + units <= SB_CHUNK_UNITS; i += units) {
      if (sb_slot_state(SB_LOAD(&sb_chunk_meta(b, chunk)->headers[i], SB_RELAXED)) != SB_SLOT_FREE) {
        used += (uint64_t)units * SB_UNIT;
      }
    }
  }
  return used;
}

uint64_t sb_slab_slot_bytes(sb_broker *b, uint32_t slot) {
  uint32_t chunk = slot / SB_CHUNK_UNITS;
  if (chunk >= b->chunk_limit) {
    return 0;
  }
  uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
  if (sb_chunk_state(word) == SB_CHUNK_RUN) {
    uint32_t run = sb_chunk_run(word); /* the run may extend into a segment that this process has not mapped yet */
    return slot % SB_CHUNK_UNITS == 0 && run > 0 && sb_chunk_ready(b, chunk + run - 1) ? run * SB_CHUNK_BYTES : 0;
  }
  unsigned cls = sb_chunk_class(word);
  if (!sb_chunk_has_slots(word) || cls < 1 || cls >= SB_MESSAGE_CLASSES + SB_KIND_COUNT) {
    return 0;
  }
  return sb_class_begins(cls, slot % SB_CHUNK_UNITS) ? (uint64_t)sb_class_units(cls) * SB_UNIT : 0;
}
