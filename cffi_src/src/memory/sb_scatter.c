// SPDX-License-Identifier: Apache-2.0
#include "sb_scatter.h"

#include "sb_slab.h"

#define LONGEST SB_MESSAGE_CLASSES /* class of the longest slots */

/* Bytes assumed in front of a body in its slot: 64 each for message header, viewers' words, and names. */
#define HEAD 192u

typedef struct {
  sb_connection *c;
  uint64_t token;
  uint64_t empty; /* bit n set: the search found no free slot of class n */
  bool thoroughly, no_chunk;
  uint32_t slot;
  uint64_t gen;
} search;

static bool take(search *s, unsigned cls) {
  if ((s->empty >> cls & 1) != 0) {
    return false;
  }
  bool found = sb_slab_alloc_spare(s->c, cls, s->thoroughly, s->token, &s->slot, &s->gen);
  if (!found) s->empty |= UINT64_C(1) << cls;
  return found;
}

static bool take_from(search *s, unsigned cls) {
  for (; cls <= LONGEST; cls++) {
    if (take(s, cls)) return true;
  }
  return false;
}

bool sb_scatter_by_hints(sb_connection *c, unsigned cls, uint64_t token, uint32_t *slot, uint64_t *gen) {
  search s = {.c = c, .token = token};
  bool found = take_from(&s, cls);
  *slot = s.slot;
  *gen = s.gen;
  return found;
}

bool sb_scatter_larger(sb_connection *c, unsigned cls, uint64_t token, uint32_t *slot, uint64_t *gen) {
  search s = {.c = c, .token = token};
  bool found = take_from(&s, cls);
  if (!found) {
    s.empty = 0;
    s.thoroughly = true;
    found = take_from(&s, cls);
  }
  *slot = s.slot;
  *gen = s.gen;
  return found;
}

/* Takes a slot for the next part: one that holds all of the remaining `rest` bytes, or else the longest free slot.
 * Returns the class of the slot; 0: the search found no free slot. */
static unsigned take_part(search *s, uint64_t rest) {
  unsigned cls = sb_class_for(s->c->b, rest + sizeof(sb_part_shm));
  bool more = cls == 0; /* no class holds the rest: it fills a whole chunk, so opening a chunk is tried first */
  unsigned fits = more ? LONGEST : cls;
  if (more && !s->no_chunk) {
    s->no_chunk = sb_slab_alloc(s->c, LONGEST, s->token, &s->slot, &s->gen) != SB_OK;
    if (!s->no_chunk) return LONGEST;
  }
  for (cls = fits; cls <= LONGEST; cls++) {
    if (take(s, cls)) return cls;
  }
  for (cls = fits - 1; cls >= 1; cls--) {
    if (take(s, cls)) return cls;
  }
  return 0;
}

static sb_status gather(search *s, uint32_t head, uint64_t head_gen, uint64_t bytes) {
  while (bytes > 0) {
    unsigned cls = take_part(s, bytes);
    if (cls == 0 && s->thoroughly) {
      return SB_NO_MEMORY;
    }
    if (cls == 0) { /* search again without hints */
      s->thoroughly = true;
      s->empty = 0;
      continue;
    }
    uint64_t room = sb_parts_room_in(cls);
    sb_parts_add(s->c->b, head, head_gen, s->slot, s->gen);
    bytes -= bytes < room ? bytes : room;
  }
  return SB_OK;
}

static bool take_head(sb_connection *c, uint64_t prefix, uint64_t token, uint32_t *slot, uint64_t *gen) {
  unsigned cls = sb_class_for(c->b, prefix + sizeof(sb_parts_shm));
  return cls != 0 && (sb_scatter_larger(c, cls, token, slot, gen) || sb_slab_alloc(c, cls, token, slot, gen) == SB_OK);
}

sb_status sb_scatter_alloc(sb_connection *c, uint64_t prefix, uint64_t bytes, uint64_t token, uint32_t *slot,
                           uint64_t *gen) {
  search s = {.c = c};
  sb_status status = sb_holding_take(c, &s.token);
  if (status != SB_OK) {
    return status;
  }
  status = take_head(c, prefix, token, slot, gen) ? SB_OK : SB_NO_MEMORY;
  if (status == SB_OK) {
    sb_parts_begin(c, *slot, *gen);
    status = gather(&s, *slot, *gen, bytes);
    if (status != SB_OK) (void)sb_slab_free_gen(c->b, *slot, *gen);
  }
  sb_holding_give(c, s.token);
  return status;
}

/* How many bytes parts could hold: in all free slots, in the longest free slot, and in the shortest free slot. */
typedef struct {
  uint64_t bytes, longest, shortest;
} tally;

static void count(tally *t, unsigned cls, uint64_t slots) {
  uint64_t room = sb_parts_room_in(cls);
  if (slots == 0) return;
  t->bytes += slots * room;
  if (room > t->longest) t->longest = room;
  if (room < t->shortest) t->shortest = room;
}

static uint64_t free_slots(sb_broker *b, uint32_t chunk, unsigned cls) {
  unsigned units = sb_class_units(cls);
  uint64_t n = 0;
  for (unsigned i = 0; i + units <= SB_CHUNK_UNITS; i += units) {
    n += sb_slot_state(SB_LOAD(&sb_chunk_meta(b, chunk)->headers[i], SB_RELAXED)) == SB_SLOT_FREE;
  }
  return n;
}

uint64_t sb_scatter_room(sb_broker *b) {
  uint32_t n = sb_chunk_count(b), spare = b->chunk_limit - n; /* segments may be added */
  tally t = {.shortest = UINT64_MAX};
  for (uint32_t chunk = 0; chunk < n; chunk++) {
    uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
    unsigned cls = sb_chunk_class(word), state = sb_chunk_state(word);
    if (state == SB_CHUNK_FREE) {
      spare++;
    } else if (state == SB_CHUNK_RUN && sb_chunk_ready(b, chunk)) { /* a run whose slot is free can be drained */
      uint64_t h = SB_LOAD(&sb_chunk_meta(b, chunk)->headers[0], SB_RELAXED);
      if (sb_slot_state(h) == SB_SLOT_FREE) count(&t, LONGEST, sb_chunk_run(word));
    } else if (state == SB_CHUNK_CLASS && (word & SB_CHUNK_OF_RESERVE) == 0 && cls >= 1 && cls <= SB_MESSAGE_CLASSES &&
               sb_chunk_ready(b, chunk)) {
      count(&t, cls, free_slots(b, chunk, cls));
    }
  }
  uint32_t reserve = sb_reserve_kept_of_all(b);
  if (spare > reserve) count(&t, LONGEST, spare - reserve);
  if (t.bytes == 0) {
    return 0;
  }
  uint64_t parts = t.bytes - t.shortest, whole = t.longest - HEAD, room = parts > whole ? parts : whole;
  return room < SB_MAX_BODY ? room : SB_MAX_BODY;
}
