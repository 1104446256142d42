// SPDX-License-Identifier: Apache-2.0
#include "sb_view.h"

#include "sb_slab.h"

_Atomic uint16_t *sb_view_words(sb_broker *b, uint32_t slot) {
  sb_message_shm m = sb_peek_message(b, slot); /* a reaper may find the slot filled anew */
  uint64_t offset = m.body_offset;
  return m.body_length > SB_INLINE_BODY && offset % 64 == 0 && offset >= sizeof m + SB_VIEWERS_BYTES &&
                 offset < sb_slab_slot_bytes(b, slot)
             ? (_Atomic uint16_t *)(void *)((uint8_t *)sb_slot_at(b, slot) + offset - SB_VIEWERS_BYTES)
             : NULL;
}

unsigned sb_view_clear_reference(uint64_t header, const sb_taken *t) {
  unsigned n = t->message->targets > 1 ? t->message->targets : 1;
  for (unsigned ref = t->ref % n + n; ref < SB_MAX_REFS; ref += n) { /* I38 */
    if ((sb_slot_refs(header) >> ref & 1) == 0) {
      return ref;
    }
  }
  return SB_MAX_REFS;
}

void sb_view_not(sb_broker *b, uint32_t slot, unsigned ref) {
  _Atomic uint16_t *viewer = sb_view_words(b, slot);
  if (viewer != NULL) SB_STORE(&viewer[ref], 0, SB_RELAXED);
}

sb_status sb_view_take(sb_connection *c, const sb_taken *t, uint64_t *token) {
  sb_broker *b = c->b;
  _Atomic uint16_t *viewer = sb_view_words(b, t->slot);
  sb_status status = viewer != NULL ? sb_holding_take(c, token) : SB_CORRUPT;
  if (status != SB_OK) {
    return status;
  }
  sb_word *header = sb_slot_header(b, t->slot);
  uint64_t h = SB_LOAD(header, SB_ACQUIRE);
  unsigned ref = sb_view_clear_reference(h, t); /* it stays clear: only we may add it */
  if (ref == SB_MAX_REFS) {
    sb_holding_give(c, *token);
    return SB_LIMIT;
  }
  sb_holding_set(b, *token, sb_holding_what(SB_HOLD_VIEW, t->slot, t->gen), (uint64_t)ref | SB_PUT(t->gen, 8));
  SB_STORE(&viewer[ref], (uint16_t)c->id, SB_RELAXED); /* I39 */
  SB_CRASHPOINT("view.announced");
  while (!SB_CAS(header, &h, h | SB_PUT(UINT64_C(1) << ref, 2), SB_ACQ_REL)) { /* other views end meanwhile */
  }
  SB_CRASHPOINT("view.taken");
  return SB_OK;
}

static void drop(sb_broker *b, uint64_t what, uint64_t where) {
  bool freed;
  if (sb_slot_ready(b, sb_holding_slot(what)))
    (void)sb_slab_drop(b, sb_holding_slot(what), where >> 8, (unsigned)(where & 0xffu) % SB_MAX_REFS, &freed);
}

void sb_view_end(sb_connection *c, uint64_t token) {
  sb_broker *b = c->b;
  if (token == 0 || token * sizeof(sb_holding_shm) >= b->arena_bytes ||
      !sb_slot_ready(b, (uint32_t)(token * sizeof(sb_holding_shm) / SB_UNIT))) {
    return;
  }
  sb_holding_shm *h = sb_holding_at(b, token);
  uint64_t what = SB_LOAD(&h->what, SB_RELAXED);
  if (sb_holding_kind(what) == SB_HOLD_VIEW) {
    drop(b, what, SB_LOAD(&h->where, SB_RELAXED));
    SB_CRASHPOINT("view.ended");
    sb_holding_give(c, token);
  }
}

void sb_view_recover(sb_broker *b, unsigned id, uint64_t what, uint64_t where) {
  uint32_t slot = sb_holding_slot(what);
  unsigned ref = (unsigned)(where & 0xffu) % SB_MAX_REFS;
  if (!sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot)) {
    return;
  }
  uint64_t h = SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE);
  _Atomic uint16_t *viewer = sb_view_words(b, slot);
  if (viewer != NULL && sb_slot_state(h) == SB_SLOT_PUBLISHED && sb_slot_gen(h) == where >> 8 &&
      (sb_slot_refs(h) >> ref & 1) != 0 && sb_peek_viewer(&viewer[ref]) == id) {
    drop(b, what, where);
  }
}
