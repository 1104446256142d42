// SPDX-License-Identifier: Apache-2.0
/* Public call: describes which slots and queues occupy the chunks of a broker, for the error text of a full broker. */
#include <string.h>

#include "sb_api.h"

#define RUNS 0u            /* used like a class, for bodies that have whole chunks to themselves (runs) */
#define LOOKS_AT_LEAST 16u /* looks (reads of a cell or a part) that each queue gets, even if no looks are left */

typedef struct {
  sb_broker *b;
  sb_chunk_facts *facts;
  uint64_t looks; /* looks that are left */
  bool cut;       /* of the current queue, something was not counted for want of looks */
  uint32_t counts[SB_MAX_CLASSES];
} survey;

static unsigned class_of(sb_broker *b, uint32_t slot) {
  uint64_t word = SB_LOAD(&b->chunks[slot / SB_CHUNK_UNITS], SB_ACQUIRE);
  unsigned cls = sb_chunk_has_slots(word) ? sb_chunk_class(word) : RUNS;
  return cls < SB_MESSAGE_CLASSES + SB_KIND_COUNT ? cls : RUNS;
}

/* ---- chunks ---- */

static bool in_use(sb_broker *b, uint32_t chunk, unsigned unit) {
  return sb_slot_state(SB_LOAD(&sb_chunk_meta(b, chunk)->headers[unit], SB_RELAXED)) != SB_SLOT_FREE;
}

static void count_chunks(survey *s) {
  uint32_t n = sb_chunk_count(s->b);
  for (uint32_t chunk = 0; chunk < n; chunk++) {
    uint64_t word = SB_LOAD(&s->b->chunks[chunk], SB_ACQUIRE);
    unsigned state = sb_chunk_state(word);
    if (state == SB_CHUNK_FREE || state == SB_CHUNK_CLAIMED || !sb_chunk_ready(s->b, chunk)) continue;
    unsigned cls = class_of(s->b, chunk * SB_CHUNK_UNITS);
    sb_chunk_facts *f = &s->facts[cls];
    f->chunks++;
    if (cls == RUNS) {
      bool head = state == SB_CHUNK_RUN;
      f->slots += head;
      f->used += head && in_use(s->b, chunk, 0);
      continue;
    }
    unsigned units = sb_class_units(cls);
    f->slot_bytes = (uint64_t)units * SB_UNIT;
    f->kind = cls > SB_MESSAGE_CLASSES ? cls - SB_MESSAGE_CLASSES : SB_KIND_MESSAGE;
    for (unsigned unit = 0; unit + units <= SB_CHUNK_UNITS; unit += units) {
      f->slots++;
      f->used += in_use(s->b, chunk, unit);
    }
  }
}

/* ---- queues ---- */

static bool may_look(survey *s) {
  s->cut = s->cut || s->looks == 0;
  s->looks -= s->looks > 0;
  return !s->cut;
}

static void count_message(survey *s, uint32_t slot) {
  if (!sb_slot_in_range(s->b, slot) || !sb_slot_ready(s->b, slot)) {
    return;
  }
  s->counts[class_of(s->b, slot)]++;
  uint64_t header = SB_LOAD(sb_slot_header(s->b, slot), SB_ACQUIRE);
  if (!sb_slot_in_parts(header)) {
    return;
  }
  uint64_t gen = sb_slot_gen(header);
  for (uint32_t part = sb_parts_first(s->b, slot), next; part != 0 && may_look(s); part = next) {
    if (!sb_parts_next(s->b, slot, gen, part, &next)) break;
    s->counts[class_of(s->b, part)]++;
  }
}

/* Counts the slots of the messages of a ring by class, in s->counts. If that needs more looks than are left, sets s->cut:
 * the counts may be too low then. */
static void count_ring(survey *s, const sb_ring *r) {
  sb_leaf_ref leaf;
  uint64_t at = 0;
  while (sb_ring_next_leaf(s->b, r, at, &leaf, &at)) {
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_ACQUIRE);
      if (!sb_cell_of(word, leaf.gen) || sb_cell_state(word) == SB_CELL_FREE || !may_look(s)) return;
      if (sb_cell_has_message(word)) count_message(s, sb_cell_slot(word));
    }
  }
}

static void count_cells(survey *s, uint32_t queue) {
  sb_ring r;
  for (sb_lanes_walk all = sb_lanes_of(s->b, queue); sb_lanes_next(&all, &r);) count_ring(s, &r);
}

static void count_queue(survey *s, uint32_t queue) {
  if (s->looks < LOOKS_AT_LEAST) s->looks = LOOKS_AT_LEAST;
  memset(s->counts, 0, sizeof s->counts);
  s->cut = false;
  count_cells(s, queue);
  for (unsigned cls = 0; cls < SB_MAX_CLASSES; cls++) {
    sb_chunk_facts *f = &s->facts[cls];
    if (s->counts[cls] > f->held) {
      f->held = s->counts[cls];
      f->queue = queue;
      f->whole = !s->cut;
    }
  }
}

/* Describes each class of slots in facts[class]: the number of its chunks and slots, and the queue whose messages
 * occupy the most of its slots. Reads at most `looks` cells and parts, but of each queue LOOKS_AT_LEAST in any case. */
sb_status sb_broker_describe_chunks(sb_connection *c, uint64_t looks, sb_chunk_facts *facts) {
  sb_status status = sb_usable(c);
  if (status == SB_OK) status = sb_segment_map(c->b);
  if (status == SB_OK) {
    survey s = {.b = c->b, .facts = facts, .looks = looks};
    memset(facts, 0, SB_CHUNK_FACTS * sizeof *facts);
    count_chunks(&s);
    for (uint32_t index = 0, queue; (queue = sb_directory_next(c->b, &index, false)) != 0;) count_queue(&s, queue);
  }
  return status;
}

_Static_assert(SB_CHUNK_FACTS == SB_MAX_CLASSES, "a row for each class");
