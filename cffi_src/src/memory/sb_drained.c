// SPDX-License-Identifier: Apache-2.0
#include "sb_drained.h"

#include "sb_floors.h"

/* True if the chunk's class is one of structures, but not of nodes. Chunks of nodes never become FREE: a list entry may
 * name a node long after the node was freed (I28 of sb_nodes.h), and a process may ring a node while no call of that
 * process is inside the core (I3 of sb_layout.h). */
static bool is_of_structures(uint64_t word) {
  unsigned cls = sb_chunk_class(word);
  return cls > SB_MESSAGE_CLASSES && cls < SB_MESSAGE_CLASSES + SB_KIND_COUNT &&
         cls != SB_MESSAGE_CLASSES + SB_KIND_NODE && sb_chunk_run(word) == 0;
}

static sb_word *header_at(sb_broker *b, uint32_t chunk, uint32_t unit) {
  return &sb_chunk_meta(b, chunk)->headers[unit];
}

bool sb_drained_may_begin(sb_broker *b, uint32_t chunk, uint64_t *used) {
  uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
  *used = 0;
  if (chunk == 0 || sb_chunk_state(word) != SB_CHUNK_CLASS || !is_of_structures(word) || !sb_chunk_ready(b, chunk)) {
    return false; /* chunk 0 is never drained: its slot 0 means "none", and is never free */
  }
  unsigned units = sb_class_units(sb_chunk_class(word));
  for (uint32_t u = 0; u + units <= SB_CHUNK_UNITS; u += units) {
    uint64_t h = SB_LOAD(header_at(b, chunk, u), SB_RELAXED); /* relaxed: the CAS of each header decides */
    if (sb_slot_state(h) != SB_SLOT_FREE) {
      return false;
    }
    *used += sb_slot_gen(h);
  }
  return true;
}

static void set_hints(sb_broker *b, uint32_t chunk, unsigned cls) {
  uint32_t slots = SB_CHUNK_UNITS / sb_class_units(cls);
  for (uint32_t at = 0; at < slots; at += 64) {
    sb_chunk_hint_set(b, cls, chunk, at / 64, slots - at >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << (slots - at)) - 1);
  }
}

/* Frees the drained slots that `owner` took, or with `of_all` all drained slots. The caller owns the chunk or these
 * slots, or reaps their owner. */
static void free_slots(sb_broker *b, uint32_t chunk, unsigned cls, unsigned owner, bool of_all) {
  unsigned units = sb_class_units(cls);
  for (uint32_t u = 0; u + units <= SB_CHUNK_UNITS; u += units) {
    uint64_t h = SB_LOAD(header_at(b, chunk, u), SB_ACQUIRE);
    if (sb_slot_is_drained(h) && (of_all || sb_slot_owner(h) == owner)) {
      (void)SB_CAS(header_at(b, chunk, u), &h, sb_slot_word(SB_SLOT_FREE, 0, sb_slot_gen(h) + 1), SB_ACQ_REL);
    }
  }
}

/* Returns a chunk to its class after `owner` took it over. */
static void back_to_class(sb_broker *b, uint32_t chunk, unsigned owner, unsigned cls) {
  free_slots(b, chunk, cls, owner, true);
  SB_CRASHPOINT("drained.freed");
  uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
  if (sb_chunk_state(word) == SB_CHUNK_DRAINING && sb_chunk_owner(word) == owner) {
    (void)SB_CAS(&b->chunks[chunk], &word, sb_chunk_word(SB_CHUNK_CLASS, 0, cls, 0) | (word & SB_CHUNK_OF_RESERVE),
                 SB_SEQ_CST);
  }
  set_hints(b, chunk, cls);
}

static bool take_over(sb_broker *b, uint32_t chunk, uint64_t word, unsigned owner) {
  unsigned cls = sb_chunk_class(word);
  uint64_t mine = sb_chunk_word(SB_CHUNK_DRAINING, owner, cls, 0) | SB_CHUNK_TAKEN_OVER | (word & SB_CHUNK_OF_RESERVE);
  if ((word & SB_CHUNK_TAKEN_OVER) != 0 || !SB_CAS(&b->chunks[chunk], &word, mine, SB_SEQ_CST)) {
    return false;
  }
  SB_CRASHPOINT("drained.taken_over");
  back_to_class(b, chunk, owner, cls);
  return true;
}

static bool take_all(sb_connection *c, uint32_t chunk, unsigned cls) {
  unsigned units = sb_class_units(cls);
  for (uint32_t u = 0; u + units <= SB_CHUNK_UNITS; u += units) {
    sb_word *header = header_at(c->b, chunk, u);
    uint64_t h = SB_LOAD(header, SB_ACQUIRE);
    uint64_t mine = sb_slot_word(SB_SLOT_ALLOC, c->id | SB_SLOT_DRAINED, sb_slot_gen(h));
    if (sb_slot_state(h) != SB_SLOT_FREE || !SB_CAS(header, &h, mine, SB_SEQ_CST)) {
      return false;
    }
  }
  return true;
}

bool sb_drained_begin(sb_connection *c, uint64_t token, uint32_t chunk) {
  sb_broker *b = c->b;
  uint64_t word, used;
  if (!sb_drained_may_begin(b, chunk, &used)) {
    return false;
  }
  unsigned cls = sb_chunk_class(SB_LOAD(&b->chunks[chunk], SB_ACQUIRE));
  sb_holding_set(b, token, sb_holding_what(SB_HOLD_CHUNK, 0, 0), chunk);
  bool all = take_all(c, chunk, cls);
  SB_CRASHPOINT("drained.slots_taken");
  word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
  /* the CAS fails if another connection removes SB_CHUNK_OF_RESERVE: then try again */
  while (all && sb_chunk_state(word) == SB_CHUNK_CLASS && sb_chunk_class(word) == cls) {
    uint64_t mine = sb_chunk_word(SB_CHUNK_DRAINING, c->id, cls, 0) | (word & SB_CHUNK_OF_RESERVE);
    if (SB_CAS(&b->chunks[chunk], &word, mine, SB_SEQ_CST)) { /* P21: before the gates are asked */
      SB_CRASHPOINT("drained.begun");
      return true;
    }
  }
  free_slots(b, chunk, cls, c->id, false);
  set_hints(b, chunk, cls);
  return false;
}

static bool is_ours(uint64_t word, unsigned owner) {
  return sb_chunk_state(word) == SB_CHUNK_DRAINING && sb_chunk_owner(word) == owner && is_of_structures(word) &&
         (word & SB_CHUNK_TAKEN_OVER) == 0;
}

bool sb_drained_end(sb_connection *c, uint32_t chunk) {
  sb_broker *b = c->b;
  uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
  if (!is_ours(word, c->id)) {
    return false;
  }
  unsigned cls = sb_chunk_class(word), units = sb_class_units(cls);
  sb_floors_raise(b, chunk, cls - SB_MESSAGE_CLASSES, units);
  SB_CRASHPOINT("drained.floors");
  if (!SB_CAS(&b->chunks[chunk], &word, sb_chunk_word(SB_CHUNK_CLAIMED, c->id, cls, 0), SB_SEQ_CST)) {
    return false;
  }
  SB_CRASHPOINT("drained.claimed");
  sb_chunk_scrub(b, chunk, units);
  (void)SB_SUB(&b->classes[cls].chunks, 1, SB_RELAXED); /* a hint */
  SB_STORE(&b->chunks[chunk], sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0), SB_RELEASE);
  return true;
}

void sb_drained_give_up(sb_connection *c, uint32_t chunk) {
  uint64_t word = SB_LOAD(&c->b->chunks[chunk], SB_ACQUIRE);
  if (is_ours(word, c->id)) (void)take_over(c->b, chunk, word, c->id);
}

bool sb_drained_take_over(sb_connection *c, unsigned cls, uint64_t token) {
  sb_broker *b = c->b;
  uint32_t n = sb_chunk_count(b);
  for (uint32_t chunk = 0; cls > SB_MESSAGE_CLASSES && chunk < n; chunk++) {
    uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
    if (sb_chunk_state(word) == SB_CHUNK_DRAINING && sb_chunk_class(word) == cls && is_of_structures(word) &&
        sb_chunk_ready(b, chunk)) {
      sb_holding_set(b, token, sb_holding_what(SB_HOLD_CHUNK, 0, 0), chunk);
      if (take_over(b, chunk, word, c->id)) return true;
    }
  }
  return false;
}

void sb_drained_recover(sb_broker *b, unsigned owner, uint32_t chunk) {
  uint64_t word = chunk < b->chunk_limit && sb_chunk_ready(b, chunk) ? SB_LOAD(&b->chunks[chunk], SB_ACQUIRE) : 0;
  unsigned cls = sb_chunk_class(word);
  if (!is_of_structures(word)) {
    return;
  }
  if (sb_chunk_state(word) == SB_CHUNK_CLASS) {
    free_slots(b, chunk, cls, owner, false);
    set_hints(b, chunk, cls);
  } else if (sb_chunk_state(word) == SB_CHUNK_DRAINING && sb_chunk_owner(word) == owner) {
    if ((word & SB_CHUNK_TAKEN_OVER) != 0) {
      /* The dead connection took over the chunk; or an earlier reaper did so in its name, and was killed. */
      back_to_class(b, chunk, owner, cls);
    } else {
      (void)take_over(b, chunk, word, owner);
    }
  } else if (sb_chunk_state(word) == SB_CHUNK_CLAIMED && sb_chunk_owner(word) == owner) {
    sb_chunk_scrub(b, chunk, sb_class_units(cls)); /* sb_chunk_recover makes it FREE */
  }
}
