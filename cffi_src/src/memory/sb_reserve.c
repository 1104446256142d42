// SPDX-License-Identifier: Apache-2.0
#include "sb_reserve.h"

#include "sb_wait.h"

#define CHUNKS_A_STEP 64u
/* How often a claimant counts again at most: the claimants that it waits for (P20) may be stopped, and never decide. */
#define PATIENCE 100u
#define CLASS_OF(kind) (SB_MESSAGE_CLASSES + (unsigned)(kind))

uint32_t sb_chunk_count(sb_broker *b) {
  uint64_t n = (uint64_t)SB_LOAD(&b->header->segments, SB_ACQUIRE) * b->chunks_per_segment;
  return n < b->chunk_limit ? (uint32_t)n : b->chunk_limit;
}

uint32_t sb_chunk_spare(sb_broker *b) {
  uint32_t n = sb_chunk_count(b), unused = 0;
  for (uint32_t chunk = 0; chunk < n; chunk++) {
    unused += sb_chunk_state(SB_LOAD(&b->chunks[chunk], SB_RELAXED)) == SB_CHUNK_FREE;
  }
  return unused;
}

uint32_t sb_reserve_chunks(const sb_broker *b) {
  uint32_t more = b->chunk_limit > CHUNKS_A_STEP ? (b->chunk_limit - 1) / CHUNKS_A_STEP : 0;
  uint32_t chunks = SB_RESERVE_LEAST + more;
  return chunks < SB_RESERVE_MOST ? chunks : SB_RESERVE_MOST;
}

#define WHOLE 1000u
static uint32_t share_of(const sb_broker *b, uint32_t thousandths) {
  return (uint32_t)((uint64_t)b->chunk_limit * (thousandths < WHOLE ? thousandths : WHOLE) / WHOLE);
}
/* The number of chunks above the high watermark. */
static uint32_t above(const sb_broker *b) {
  uint32_t mark = SB_LOAD(&b->header->memory_high_watermark, SB_RELAXED);
  return mark == 0 ? 0 : b->chunk_limit - share_of(b, mark);
}

uint32_t sb_reserve_kept_of_all(const sb_broker *b) {
  uint32_t reserve = sb_reserve_chunks(b), kept = above(b);
  return kept > reserve ? kept : reserve;
}

uint32_t sb_reserve_kept(sb_broker *b) {
  uint32_t reserve = sb_reserve_chunks(b), kept = above(b), to_come = b->chunk_limit - sb_chunk_count(b);
  kept = kept > to_come ? kept - to_come : 0;
  return kept > reserve ? kept : reserve;
}

bool sb_reserve_below_mark(const sb_connection *c) {
  sb_broker *b = c->b;
  uint32_t kept = c->use == SB_USE_PLAIN ? above(b) : 0;
  return kept == 0 || sb_chunk_spare(b) + b->chunk_limit - sb_chunk_count(b) > kept;
}

sb_memory_state sb_reserve_state(sb_broker *b) {
  uint32_t left = sb_chunk_spare(b) + b->chunk_limit - sb_chunk_count(b);
  uint32_t warning = SB_LOAD(&b->header->memory_warning, SB_RELAXED);
  if (left <= sb_reserve_kept_of_all(b)) {
    return SB_MEMORY_BLOCKED;
  }
  return warning != 0 && b->chunk_limit - left >= share_of(b, warning) ? SB_MEMORY_WARNING : SB_MEMORY_NORMAL;
}

/* True if the broker has a chunk for structures of the class whose word has none of the flags. If it has one, the search
 * is short: structures begin at the first chunk. */
static bool has_chunk(sb_broker *b, unsigned cls, uint64_t without) {
  uint32_t n = sb_chunk_count(b), chunk = 0;
  bool found = false;
  for (; chunk < n && !found; chunk++) {
    uint64_t word = SB_LOAD(&b->chunks[chunk], SB_RELAXED);
    found = sb_chunk_has_slots(word) && sb_chunk_class(word) == cls && (word & without) == 0;
  }
  return found;
}
bool sb_reserve_lends(sb_broker *b, unsigned cls) {
  return cls > SB_MESSAGE_CLASSES && !has_chunk(b, cls, SB_CHUNK_OF_RESERVE);
}

uint32_t sb_reserve_leave(sb_broker *b, unsigned use, unsigned cls) {
  switch (use) {
    case SB_USE_PLAIN: return sb_reserve_kept(b);
    case SB_USE_STAGE:
    case SB_USE_BOOKS: return 1;
    default: return cls == CLASS_OF(SB_KIND_INNER) && !has_chunk(b, CLASS_OF(SB_KIND_CONSUMER_LEVEL), 0) ? 1 : 0;
  }
}

bool sb_reserve_is_left(sb_broker *b, uint32_t claimed, uint32_t leave, uint32_t *left) {
  for (unsigned looks = 0;; looks++) {
    uint32_t n = sb_chunk_count(b), undecided = 0;
    *left = 0;
    for (uint32_t chunk = 0; chunk < n; chunk++) {
      unsigned state = sb_chunk_state(SB_LOAD(&b->chunks[chunk], SB_SEQ_CST)); /* P20 */
      *left += state == SB_CHUNK_FREE;
      undecided += state == SB_CHUNK_CLAIMED && chunk > claimed;
    }
    if (*left >= leave || *left + undecided < leave || looks == PATIENCE) {
      return *left >= leave;
    }
    sb_pause(); /* waits: claimants of higher chunks that count too few make their chunks FREE again (P20) */
  }
}

static uint32_t hinted(sb_broker *b, uint32_t chunk) {
  const sb_chunk_meta_shm *meta = sb_chunk_meta(b, chunk);
  uint32_t bits = 0;
  for (unsigned w = 0; w < SB_CHUNK_UNITS / 64; w++) {
    bits += (uint32_t)__builtin_popcountll(SB_LOAD(&meta->hints[w], SB_RELAXED));
  }
  return bits;
}

bool sb_reserve_allows(sb_connection *c, uint32_t chunk, uint32_t slots) {
  sb_broker *b = c->b;
  if (c->use < SB_USE_STAGE) {
    return true;
  }
  uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE), unmarked = word & ~SB_CHUNK_OF_RESERVE;
  if (sb_chunk_spare(b) > sb_reserve_kept(b) || sb_reserve_lends(b, sb_chunk_class(word))) {
    /* if the CAS fails, another connection may have removed the mark */
    return sb_chunk_state(word) != SB_CHUNK_CLASS || SB_CAS(&b->chunks[chunk], &word, unmarked, SB_ACQ_REL) ||
           word == unmarked;
  }
  /* staging leaves the last eighth of the slots to messages of the broker's internal queues */
  return c->use == SB_USE_STAGE && hinted(b, chunk) > slots / 8;
}
