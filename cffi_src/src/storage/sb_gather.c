// SPDX-License-Identifier: Apache-2.0
#include "sb_gather.h"

#include <string.h>

#include "sb_duplicates.h"
#include "sb_parts.h"
#include "sb_peek.h"
#include "sb_properties.h"
#include "sb_schedule.h"
#include "sb_wait.h"

/* TAKEN: the row has the message. LATER: it has no room. NONE: there is no message. AGAIN: the cell changed. */
typedef enum { TAKEN, LATER, NONE, AGAIN, DAMAGED } outcome;

typedef struct {
  sb_broker *b;
  const sb_ring *ring;
  sb_leaf_ref leaf;
  sb_gathering *g;
  int64_t to_wall; /* what to add to a CLOCK_MONOTONIC time */
  uint64_t members;
  bool has_ids; /* the queue remembers ids */
} gatherer;

static uint64_t wall_of(const gatherer *t, uint64_t monotonic_ns) {
  int64_t wall = (int64_t)monotonic_ns + t->to_wall;
  return monotonic_ns == 0 ? 0 : wall > 0 ? (uint64_t)wall : 1;
}

static sb_row_entry entry_of(const gatherer *t, uint64_t position, uint64_t word, uint64_t side,
                             const sb_message_shm *m) {
  bool delayed = (side & SB_SIDE_DELAYED) != 0, scheduled = sb_cell_state(word) == SB_CELL_SCHEDULED;
  sb_word *origin = sb_ring_origin(t->b, &t->leaf, position);
  return (sb_row_entry){
      .body_length = m->body_length,
      .expires_ns = wall_of(t, m->expires_ns),
      .due_ns = scheduled || delayed ? wall_of(t, sb_schedule_due(side, m)) : 0,
      .timestamp_ns = m->timestamp_ns,
      .origin = origin != NULL ? SB_LOAD(origin, SB_ACQUIRE) : SB_NO_ORIGIN,
      .key_length = m->key_length,
      .properties_length = m->properties_length,
      .group_hash = m->group_hash,
      .exchange_length = m->exchange_length,
      .delivery_count = (uint16_t)sb_side_count(side),
      .index = (uint8_t)(position - t->g->first),
      .priority = m->priority,
      .flags = (uint8_t)(m->flags & ~SB_MESSAGE_IN_PARTS),
      .marks = (uint8_t)(((side & SB_SIDE_REDELIVERED) != 0 ? SB_ROW_REDELIVERED : 0u) |
                         (delayed ? SB_ROW_DELAYED : 0u) | (unsigned)sb_side_why_of(side) << SB_ROW_WHY),
  };
}

static uint64_t names_of(const sb_message_shm *m) {
  return (uint64_t)m->exchange_length + m->key_length + m->properties_length;
}

/* Copies exchange, routing key and properties behind the row. The lengths of *m were checked against its slot. False: its
 * parts are damaged. */
static bool copy_names(const gatherer *t, uint32_t slot, const sb_message_shm *m) {
  char *to = t->g->heads + t->g->heads_length + sizeof(sb_row_entry);
  if ((m->flags & SB_MESSAGE_IN_PARTS) != 0) {
    return sb_parts_copy(t->b, slot, 0, to, names_of(m));
  }
  sb_peek_bytes(to, (const uint8_t *)sb_slot_at(t->b, slot) + sizeof *m, names_of(m));
  return true;
}

/* The same for the body. */
static bool copy_body(const gatherer *t, uint32_t slot, const sb_message_shm *m) {
  char *body = t->g->bodies + t->g->bodies_length;
  if ((m->flags & SB_MESSAGE_IN_PARTS) != 0) {
    return sb_parts_copy(t->b, slot, names_of(m), body, m->body_length);
  }
  sb_peek_bytes(body, (const uint8_t *)sb_slot_at(t->b, slot) + m->body_offset, m->body_length);
  return true;
}

/* Whether the message whose names were copied last survives the loss of the memory. */
static bool is_transient(const gatherer *t, const sb_message_shm *m) {
  const char *behind = t->g->heads + t->g->heads_length + sizeof(sb_row_entry) + names_of(m);
  return sb_properties_are_transient(behind - m->properties_length, m->properties_length);
}

static bool is_wanted(const gatherer *t, bool transient) {
  return t->g->which == SB_GATHER_ALL || transient == (t->g->which == SB_GATHER_TRANSIENT);
}

/* Notes the duplicate id of the message that was copied last. */
static void note_id(const gatherer *t, const sb_message_shm *m) {
  sb_gathering *g = t->g;
  const char *properties = g->heads + g->heads_length - m->properties_length;
  sb_id id = sb_duplicates_id(properties, m->properties_length);
  if (sb_id_given(id)) g->ids[g->id_count++] = (sb_store_id){.low = id.low, .high = id.high};
}

static outcome gather(const gatherer *t, uint64_t position) {
  sb_gathering *g = t->g;
  sb_cell_shm *cell = sb_leaf_cell(&t->leaf, position);
  uint64_t word = SB_LOAD(&cell->word, SB_SEQ_CST);
  uint32_t slot = sb_cell_slot(word);
  if (!sb_cell_of(word, t->leaf.gen)) {
    return AGAIN;
  }
  if (sb_cell_state(word) == SB_CELL_STAGED) {
    g->staged |= UINT64_C(1) << (position - g->first); /* I122 */
    return NONE;
  }
  if (!sb_cell_has_message(word) ||
      sb_cell_state(word) == SB_CELL_FROZEN) { /* I126 of sb_paged.h: the store has what is FROZEN */
    return NONE;
  }
  if (!sb_slot_ready(t->b, slot)) {
    return DAMAGED;
  }
  uint64_t side = SB_LOAD(&cell->side, SB_ACQUIRE), gen = sb_slot_gen(SB_LOAD(sb_slot_header(t->b, slot), SB_ACQUIRE));
  sb_message_shm m = sb_peek_message(t->b, slot);
  uint64_t names = names_of(&m);
  bool sound = sb_settle_is_sound(t->b, slot, &m),
       fits = g->heads_size - g->heads_length >= sizeof(sb_row_entry) + names;
  bool transient = false, wanted = true;
  uint32_t flags = 0;
  if (sound && fits) {
    sound = copy_names(t, slot, &m);
    transient = sound && is_transient(t, &m);
    wanted = is_wanted(t, transient);
    fits = !wanted || g->bodies_size - g->bodies_length >= m.body_length;
  }
  if (sound && fits && wanted) {
    sb_row_entry entry = entry_of(t, position, word, side, &m);
    if (entry.due_ns != 0 || entry.marks >> SB_ROW_WHY != 0) flags |= SB_ROW_WAITS;
    if (entry.expires_ns != 0) flags |= SB_ROW_EXPIRES;
    memcpy(g->heads + g->heads_length, &entry, sizeof entry);
    sound = copy_body(t, slot, &m);
  }
  if (SB_LOAD(&cell->word, SB_SEQ_CST) != word || !sb_leaf_is_current(t->b, &t->leaf) ||
      sb_slot_gen(SB_LOAD(sb_slot_header(t->b, slot), SB_SEQ_CST)) != gen) {
    return AGAIN;
  }
  if (!sound) {
    return DAMAGED;
  }
  if (transient) g->transient |= UINT64_C(1) << (position - g->first);
  if (!wanted) {
    return NONE;
  }
  if (!fits) {
    if (g->count == 0) {
      g->heads_size = sizeof(sb_row_head) + sizeof(sb_row_entry) + names;
      g->bodies_size = m.body_length;
    }
    return LATER;
  }
  g->heads_length += sizeof(sb_row_entry) + names;
  g->bodies_length += m.body_length;
  g->count++;
  g->flags |= flags;
  if (t->has_ids) note_id(t, &m);
  return TAKEN;
}

static void write_head(const gatherer *t, uint64_t first_sequence) {
  sb_row_head head = {.format = SB_ROW_FORMAT,
                      .count = (uint16_t)t->g->count,
                      .flags = t->g->flags,
                      .first = first_sequence,
                      .members = t->members,
                      .bodies_length = t->g->bodies_length,
                      .written_ns = sb_wall_ns()};
  memcpy(t->g->heads, &head, sizeof head);
}

/* The row begins at a position. Returns the position behind its last one. */
static uint64_t begin_row(gatherer *t, uint64_t position, uint64_t end) {
  t->g->first = position;
  t->g->staged = t->g->transient = 0;
  uint64_t last = (position / SB_PAGE_CELLS + 1) * SB_PAGE_CELLS;
  return end < last ? end : last;
}

/* Whether a row that has nothing yet goes on in the next leaf. */
static bool passes_on(const gatherer *t) { return t->g->which == SB_GATHER_TRANSIENT && t->g->count == 0; }

sb_status sb_gather_row(sb_queue *q, uint64_t *position, uint64_t end, sb_gathering *g) {
  sb_broker *b = q->c->b;
  sb_ring ring;
  gatherer t = {.b = b, .ring = &ring, .leaf = SB_NO_LEAF, .g = g};
  t.to_wall = (int64_t)sb_wall_ns() - (int64_t)sb_now_ns();
  t.has_ids = g->ids != NULL && sb_duplicates_wanted(q->shm);
  *g = (sb_gathering){.heads = g->heads,
                      .bodies = g->bodies,
                      .heads_size = g->heads_size,
                      .bodies_size = g->bodies_size,
                      .heads_length = sizeof(sb_row_head),
                      .which = g->which,
                      .ids = g->ids};
  if (g->heads_size < sizeof(sb_row_head) || !sb_lanes_ring(b, q->slot, *position, &ring)) {
    return SB_CORRUPT;
  }
  uint64_t last = begin_row(&t, *position, end);
  for (unsigned retries = 0; *position < last || (passes_on(&t) && *position < end);) {
    if (*position == last) last = begin_row(&t, *position, end);
    if (!sb_leaf_covers(&t.leaf, *position)) {
      sb_status status = sb_ring_locate(b, NULL, &ring, *position, &t.leaf);
      if (status == SB_DONE || status == SB_PAGED) { /* all that was there has ended, or the store has it */
        *position = t.leaf.first < end ? t.leaf.first : end;
        if (!passes_on(&t)) break;
        last = begin_row(&t, *position, end);
        continue;
      }
      if (status != SB_OK) {
        return SB_CORRUPT;
      }
    }
    outcome o = gather(&t, *position);
    if (o == LATER) {
      if (g->count == 0) return SB_FULL;
      break;
    }
    if (o == AGAIN) {
      t.leaf = SB_NO_LEAF;
      if (++retries > SB_MAX_RETRIES) return SB_CORRUPT;
      continue;
    }
    g->damaged += o == DAMAGED;
    if (o == TAKEN) t.members |= UINT64_C(1) << (*position - g->first);
    ++*position;
    if (g->count == 0 && g->staged != 0) break; /* I122: the key of a row is that of its first position */
  }
  if (g->count > 0) write_head(&t, sb_lanes_sequence(b, q->slot, g->first));
  return SB_OK;
}
