// SPDX-License-Identifier: Apache-2.0
#include "sb_view.h"

#include "sb_reader.h"
#include "sb_slab.h"

_Atomic uint16_t *sb_view_words(sb_broker *b, uint32_t slot) {
  sb_message_shm m = sb_peek_message(b, slot); /* a copy: if a reaper calls, the slot may be reused meanwhile */
  uint64_t offset = m.body_offset;
  return m.body_length > SB_INLINE_BODY && offset % 64 == 0 && offset >= sizeof m + SB_VIEWERS_BYTES &&
                 offset < sb_slab_slot_bytes(b, slot)
             ? (_Atomic uint16_t *)(void *)((uint8_t *)sb_slot_at(b, slot) + offset - SB_VIEWERS_BYTES)
             : NULL;
}

void sb_view_not(sb_broker *b, uint32_t slot, unsigned ref) {
  _Atomic uint16_t *viewer = sb_view_words(b, slot);
  if (viewer != NULL) SB_STORE(&viewer[ref], 0, SB_RELAXED);
}

#define INDEX 46 /* the bit at which the queue's index in the block begins, in the word `where` of a holding */
static uint64_t where_of(const sb_reference *r) {
  return (uint64_t)r->ref | SB_FIELD(r->gen, 8) | (r->ref >= SB_REF_VIEW ? SB_FIELD(r->queue, INDEX) : 0);
}

sb_reference sb_view_of(uint64_t what, uint64_t where) {
  return (sb_reference){sb_holding_slot(what), (unsigned)(where & 0xffu), SB_BITS(where, 8, 38),
                        (uint32_t)(where >> INDEX)};
}

_Atomic uint16_t *sb_view_word(sb_broker *b, const sb_reference *r) {
  sb_block k;
  if (r->ref < SB_MAX_REFS) {
    _Atomic uint16_t *words = sb_view_words(b, r->slot);
    return words != NULL ? &words[r->ref] : NULL;
  }
  bool sound = r->ref > SB_REF_VIEW && r->ref < SB_REF_VIEW + SB_REFS_OF_QUEUE && sb_block_of(b, r->slot, &k);
  return sound && k.viewers != NULL && r->queue < k.count
             ? &k.viewers[r->queue * SB_REFS_OF_QUEUE + (r->ref - SB_REF_VIEW)]
             : NULL;
}

/* Chooses for a view a clear reference to the slot of message `t`, one that no other connection is allowed to add (I38;
 * I49 of sb_reference.h). `queue`: the slot of the message's queue. False: there is no such reference. */
static bool choose(sb_connection *c, const sb_taken *t, uint32_t queue, sb_reference *r) {
  sb_block k;
  *r = (sb_reference){.slot = t->slot, .gen = t->gen};
  if (t->ref != SB_REF_BLOCK) {
    r->ref = sb_reference_clear(c->b, t->slot, t->ref, c->id);
    return r->ref != SB_MAX_REFS;
  }
  if (!sb_block_of(c->b, t->slot, &k) || !sb_block_index(&k, queue, &r->queue)) {
    return false;
  }
  r->ref = SB_REF_VIEW + 1;
  while (r->ref < SB_REF_VIEW + SB_REFS_OF_QUEUE && sb_block_has(&k, r->queue, r->ref - SB_REF_VIEW)) r->ref++;
  return r->ref < SB_REF_VIEW + SB_REFS_OF_QUEUE;
}

static bool add(sb_broker *b, const sb_reference *r) {
  sb_block k;
  if (r->ref < SB_MAX_REFS) {
    return sb_slab_add(b, r->slot, r->ref);
  }
  bool found = sb_block_of(b, r->slot, &k);
  if (found) sb_block_set(&k, r->queue, r->ref - SB_REF_VIEW);
  return found;
}

sb_status sb_view_take(sb_connection *c, const sb_taken *t, uint64_t *token) {
  sb_broker *b = c->b;
  sb_reference r;
  uint32_t queue = sb_holding_slot(SB_LOAD(&sb_holding_at(b, t->token)->what, SB_RELAXED));
  sb_status status = sb_view_words(b, t->slot) != NULL ? sb_holding_take(c, token) : SB_CORRUPT;
  if (status != SB_OK) {
    return status;
  }
  _Atomic uint16_t *viewer =
      choose(c, t, queue, &r) ? sb_view_word(b, &r) : NULL; /* no other connection writes this word now (I38) */
  if (viewer == NULL) {
    sb_holding_give(c, *token);
    return SB_LIMIT;
  }
  sb_holding_set(b, *token, sb_holding_what(SB_HOLD_VIEW, t->slot, t->gen), where_of(&r));
  SB_STORE(viewer, (uint16_t)c->id, SB_RELAXED); /* I39 */
  SB_CRASHPOINT("view.announced");
  if (!add(b, &r)) {
    sb_holding_give(c, *token);
    return SB_LIMIT;
  }
  SB_CRASHPOINT("view.taken");
  return SB_OK;
}

static void drop(sb_connection *c, uint64_t what, uint64_t where) {
  sb_reference r = sb_view_of(what, where);
  if (!sb_slot_ready(c->b, r.slot)) {
    return;
  }
  if (r.ref == SB_REF_READER) {
    sb_reader_end(c->b, r.slot, r.gen, c->id);
  } else {
    (void)sb_reference_drop(c->b, &r);
  }
}

/* The word `what` of holding `token`; 0: this is not the holding of a view. The token comes from outside the core, so
 * it may be any number. */
static uint64_t held(sb_connection *c, uint64_t token) {
  sb_broker *b = c->b;
  if (token == 0 || token * sizeof(sb_holding_shm) >= b->arena_bytes ||
      !sb_slot_ready(b, (uint32_t)(token * sizeof(sb_holding_shm) / SB_UNIT))) {
    return 0;
  }
  uint64_t what = SB_LOAD(&sb_holding_at(b, token)->what, SB_RELAXED);
  return sb_holding_kind(what) == SB_HOLD_VIEW ? what : 0;
}

uint32_t sb_view_slot(sb_connection *c, uint64_t token) {
  uint32_t slot = sb_holding_slot(held(c, token));
  return sb_slot_ready(c->b, slot) ? slot : 0;
}

void sb_view_drop(sb_connection *c, uint64_t token) {
  uint64_t what = held(c, token);
  if (what != 0) {
    drop(c, what, SB_LOAD(&sb_holding_at(c->b, token)->where, SB_RELAXED));
    SB_CRASHPOINT("view.ended");
    sb_holding_give(c, token);
  }
}

void sb_view_recover(sb_broker *b, unsigned id, uint64_t what, uint64_t where) {
  sb_reference r = sb_view_of(what, where);
  if (!sb_slot_in_range(b, r.slot) || !sb_slot_ready(b, r.slot)) {
    return;
  }
  if (r.ref == SB_REF_READER) {
    sb_reader_end(b, r.slot, r.gen, id);
    return;
  }
  if (sb_reference_gone(b, &r)) {
    return;
  }
  uint64_t h = SB_LOAD(sb_slot_header(b, r.slot), SB_ACQUIRE);
  _Atomic uint16_t *viewer = sb_view_word(b, &r);
  if (viewer != NULL && sb_slot_is_published(h) && sb_slot_gen(h) == r.gen && sb_peek_viewer(viewer) == id) {
    (void)sb_reference_drop(b, &r);
  }
}
