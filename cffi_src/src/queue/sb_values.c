// SPDX-License-Identifier: Apache-2.0
#include "sb_values.h"

#include "sb_park.h"
#include "sb_selector.h"
#include "sb_take.h"
#include "sb_wait.h"

/* ---- looking at a message ---- */

static bool read_key(const sb_queue *q, sb_properties *p, sb_value_key *key) {
  return p->length > 0 && sb_value_key_read(p, q->value_key, q->value_key_length, key);
}

/* Apart, for its stack. */
static __attribute__((noinline)) bool key_in_parts(const sb_queue *q, uint32_t slot, const sb_message_shm *m,
                                                   sb_value_key *key) {
  char memory[SB_MAX_PREFIX];
  sb_properties p;
  return sb_selector_properties(q->c->b, slot, m, memory, &p) && read_key(q, &p, key);
}

bool sb_values_key_of(const sb_queue *q, uint32_t slot, const sb_message_shm *m, sb_value_key *key) {
  sb_properties p;
  if ((m->flags & SB_MESSAGE_IN_PARTS) != 0) {
    return key_in_parts(q, slot, m, key);
  }
  return sb_selector_properties(q->c->b, slot, m, NULL, &p) && read_key(q, &p, key);
}

/* What is at a position. GONE: no message, or a dead one. HELD: a message that somebody took, and may return. RESTING: one
 * that becomes ready later: its key is settled then. */
typedef enum { GONE, READY, HELD, RESTING, CHANGED } standing;
typedef struct {
  standing is;
  bool keyed; /* it has the key `key` */
  bool sure;  /* of a message that is HELD: the key is its own, not that of a message that has its slot now */
  sb_value_key key;
  sb_leaf_ref leaf;
} view;

static standing standing_of(uint64_t word, uint64_t side, unsigned flags) {
  switch (sb_cell_state(word)) {
    case SB_CELL_AVAILABLE: return READY;
    case SB_CELL_ACQUIRED:
    case SB_CELL_REMOVING: return HELD;
    case SB_CELL_STAGED: return RESTING;
    case SB_CELL_SCHEDULED: return sb_park_why(side, flags) != SB_WHY_ALIVE ? GONE : RESTING;
    default: return GONE;
  }
}

/* Looks once: reads the key of the message, then looks at the cell again (I43 of sb_peek.h). */
static view look_once(sb_queue *q, uint64_t position) {
  sb_broker *b = q->c->b;
  view v = {.is = GONE, .leaf = SB_NO_LEAF};
  if (sb_ring_locate(b, NULL, &q->lanes[0].ring, position, &v.leaf) != SB_OK) {
    return v;
  }
  const sb_cell_shm *cell = sb_leaf_cell(&v.leaf, position);
  uint64_t word = SB_LOAD(&cell->word, SB_SEQ_CST);
  uint32_t slot = sb_cell_slot(word);
  if (!sb_cell_of(word, v.leaf.gen)) {
    v.is = CHANGED;
  } else if (sb_cell_has_message(word) && sb_slot_in_range(b, slot) && sb_slot_ready(b, slot)) {
    sb_message_shm m = sb_peek_message(b, slot);
    uint64_t side = SB_LOAD(&cell->side, SB_ACQUIRE);
    v.is = standing_of(word, side, m.flags);
    v.keyed = sb_values_key_of(q, slot, &m, &v.key);
    v.sure = (sb_slot_gen(SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE)) & SB_GEN_MASK) == sb_side_gen(side);
    if (SB_LOAD(&cell->word, SB_SEQ_CST) != word) v.is = CHANGED;
  }
  return v;
}

static view look_at(sb_queue *q, uint64_t position) {
  view v = look_once(q, position);
  for (unsigned retries = 0; v.is == CHANGED && retries < SB_MAX_RETRIES; retries++) v = look_once(q, position);
  return v;
}

/* Looks at the message that the word of `key` names: as look_at, but a message whose key has another path is GONE. It ended,
 * and its slot has another message: whoever ends a message frees its slot before the cell becomes a TOMBSTONE, and may be
 * killed in between. */
static view look_along(sb_queue *q, const sb_value_place *place, const sb_value_key *key, uint64_t position) {
  view v = look_at(q, position);
  if (v.is != CHANGED && (!v.keyed || !sb_value_index_leads(place, key, &v.key))) v.is = GONE;
  return v;
}

/* ---- replacing ---- */

static void end_taken(sb_queue *q, uint64_t token, const sb_message_shm *m) {
  bool expired = m->expires_ns != 0 && m->expires_ns <= sb_now_ns();
  (void)sb_dispose(q, token, expired ? SB_REASON_EXPIRED : SB_REASON_REPLACED);
}

/* Ends the message at `position`, if it is ready. `token`: a free holding; the call gives it back. */
static unsigned replace_by(sb_queue *q, uint64_t position, uint64_t token) {
  sb_taken t;
  if (sb_take_at(q, position, SB_CELL_AVAILABLE, token, &t) != SB_OK) {
    sb_holding_give(q->c, token);
    return 0;
  }
  SB_CRASHPOINT("values.taken");
  end_taken(q, token, t.message);
  return 1;
}

static void lose(sb_queue *q) { (void)SB_ADD(&q->shm->values_lost, 1, SB_SEQ_CST); }

static unsigned replace(sb_queue *q, uint64_t position) {
  uint64_t token;
  if (sb_holding_take(q->c, &token) != SB_OK) {
    lose(q);
    return 0;
  }
  return replace_by(q, position, token);
}

/* Makes the index name `position` in place of the older message, which is held. *replaced: the older one returned
 * meanwhile, and was replaced. False: another process changed the word. */
static bool supersede(sb_queue *q, const sb_value_place *place, const sb_value_key *key, uint64_t position,
                      uint64_t older, const view *v, unsigned *replaced) {
  uint64_t token;
  if (sb_holding_take(q->c, &token) != SB_OK) {
    lose(q); /* and goes on: it is unlikely that the older one returns just now */
    return sb_value_index_set(q, place, key, position);
  }
  sb_holding_set(q->c->b, token, sb_holding_what(SB_HOLD_CELL, q->slot, v->leaf.slot), older); /* I103 */
  bool set = sb_value_index_set(q, place, key, position);
  SB_CRASHPOINT("values.superseded");
  if (set && look_at(q, older).is == READY) { /* P29 */
    *replaced += replace_by(q, older, token);
  } else {
    sb_holding_give(q->c, token);
  }
  return set;
}

/* ---- settling ---- */

/* One try. SB_EMPTY: another process changed what the call saw, or an older message was replaced. */
static sb_status settle(sb_queue *q, uint64_t position, const sb_value_key *key, const sb_value_place *place,
                        unsigned *replaced) {
  uint64_t other;
  bool names = sb_value_index_names(q, place->found, &other);
  if (names && other == position) {
    return SB_OK;
  }
  view v = {.is = GONE};
  if (names) v = look_along(q, place, key, other);
  if (v.is == CHANGED) {
    return SB_CORRUPT;
  }
  if (v.is == GONE) {
    return sb_value_index_set(q, place, key, position) ? SB_OK : SB_EMPTY;
  }
  if (!sb_hash_equal(&v.key, key)) {
    sb_status status = sb_value_index_split(q, place, &v.key);
    return status == SB_OK ? SB_EMPTY : status;
  }
  if (other > position) {
    *replaced += replace(q, position);
    return SB_OK;
  }
  if (v.is == READY) {
    *replaced += replace(q, other);
    return SB_EMPTY;
  }
  return supersede(q, place, key, position, other, &v, replaced) ? SB_OK : SB_EMPTY;
}

unsigned sb_values_came(sb_queue *q, uint64_t position, const sb_value_key *key) {
  unsigned replaced = 0, retries = 0;
  sb_status status;
  do {
    sb_value_place place;
    status = sb_value_index_find(q, key, &place);
    if (status == SB_OK) status = settle(q, position, key, &place, &replaced);
  } while (status == SB_EMPTY && ++retries < SB_MAX_RETRIES);
  SB_CRASHPOINT("values.settled");
  if (status != SB_OK) lose(q);
  return replaced;
}

unsigned sb_values_settle_at(sb_queue *q, uint64_t position) {
  view v = look_at(q, position);
  /* whoever took it writes the generation of its message after the cell */
  for (unsigned retries = 0; v.is == HELD && !v.sure && retries < SB_MAX_RETRIES; retries++) v = look_at(q, position);
  bool there = v.keyed && (v.is == READY || (v.is == HELD && v.sure));
  return there ? sb_values_came(q, position, &v.key) : 0;
}

unsigned sb_values_settle_all(sb_queue *q) {
  const sb_ring *r = &q->lanes[0].ring;
  unsigned replaced = 0;
  uint64_t at = SB_LOAD(r->base, SB_RELAXED);
  sb_leaf_ref leaf;
  while (sb_ring_next_leaf(q->c->b, r, at, &leaf, &at)) {
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST);
      if (!sb_cell_of(word, leaf.gen) || sb_cell_state(word) == SB_CELL_FREE) {
        return replaced;
      }
      if (sb_cell_state(word) == SB_CELL_AVAILABLE) replaced += sb_values_settle_at(q, at);
    }
  }
  return replaced;
}

bool sb_values_take(sb_queue *q, const sb_value_key *key, uint64_t *token) {
  sb_value_place place;
  uint64_t position;
  if (sb_value_index_look(q, key, &place) != SB_OK || !sb_value_index_names(q, place.found, &position) ||
      sb_holding_take(q->c, token) != SB_OK) {
    return false;
  }
  view v = look_at(q, position);
  sb_taken t;
  bool took_it = v.is == READY && v.keyed && sb_hash_equal(&v.key, key) &&
                 sb_take_at(q, position, SB_CELL_AVAILABLE, *token, &t) == SB_OK;
  if (!took_it) sb_holding_give(q->c, *token);
  return took_it;
}

void sb_values_end(sb_queue *q, uint64_t token) {
  sb_taken t;
  sb_leaf_ref leaf;
  if (sb_settle_find(q->c, token, &t, &leaf)) end_taken(q, token, t.message);
}

sb_status sb_values_prepare(sb_queue *q, const sb_value_key *key) {
  sb_value_place place;
  uint64_t other;
  sb_status status;
  while ((status = sb_value_index_find(q, key, &place)) == SB_OK && sb_value_index_names(q, place.found, &other) &&
         !sb_value_index_fits(place.found, key)) {
    view v = look_along(q, &place, key, other);
    if (v.is == GONE || v.is == CHANGED) {
      break;
    }
    status = sb_value_index_split(q, &place, &v.key);
    if (status != SB_OK) {
      break;
    }
  }
  return status;
}
