// SPDX-License-Identifier: Apache-2.0
#include "sb_settle.h"

#include "sb_groups.h"
#include "sb_parts.h"
#include "sb_reference.h"

SB_COLD bool is_sound_in_parts(sb_broker *b, uint32_t slot, const sb_message_shm *m) {
  uint64_t names = (uint64_t)m->exchange_length + m->key_length + m->properties_length;
  return sizeof *m + names <= SB_MAX_PREFIX && m->exchange_length <= SB_NAME_MAX && m->body_length <= SB_MAX_BODY &&
         sb_parts_room(b, slot) >= names + m->body_length;
}

bool sb_settle_is_sound(sb_broker *b, uint32_t slot, const sb_message_shm *m) {
  if ((m->flags & SB_MESSAGE_IN_PARTS) != 0) {
    return is_sound_in_parts(b, slot, m);
  }
  uint64_t room = sb_slab_slot_bytes(b, slot),
           prefix = sizeof *m + (uint64_t)m->exchange_length + m->key_length + m->properties_length;
  return prefix <= SB_MAX_PREFIX && m->exchange_length <= SB_NAME_MAX && prefix <= m->body_offset &&
         m->body_offset <= room && m->body_length <= room - m->body_offset;
}

SB_HOT bool find(sb_connection *c, uint64_t token, sb_taken *t, sb_leaf_ref *leaf) {
  sb_broker *b = c->b;
  if (token == 0 || token * sizeof(sb_holding_shm) >= b->arena_bytes || !sb_slot_ready(b, (uint32_t)(token / 16))) {
    return false;
  }
  sb_holding_shm *h = sb_holding_at(b, token);
  uint64_t what = SB_LOAD(&h->what, SB_RELAXED);
  if (sb_holding_kind(what) != SB_HOLD_CELL && sb_holding_kind(what) != SB_HOLD_SETTLING) {
    return false;
  }
  leaf->slot = sb_holding_leaf(what);
  if (!sb_slot_holds(b, leaf->slot, SB_LEAF_UNITS)) {
    return false;
  }
  leaf->leaf = sb_slot_at(b, leaf->slot);
  /* the leaf may have been reused. The check below excludes that: a leaf with a cell that this connection owns is not
   * freed */
  leaf->gen = sb_slot_gen(SB_LOAD(sb_slot_header(b, leaf->slot), SB_ACQUIRE));
  t->position = SB_LOAD(&h->where, SB_RELAXED);
  leaf->first = t->position / SB_PAGE_CELLS * SB_PAGE_CELLS;
  uint64_t word = SB_LOAD(&sb_leaf_cell(leaf, t->position)->word, SB_ACQUIRE);
  if (!sb_cell_is_owned(word) || sb_cell_owner(word) != c->id || !sb_slot_ready(b, sb_cell_slot(word))) {
    return false;
  }
  t->token = token;
  t->slot = sb_cell_slot(word);
  t->ref = sb_cell_ref(word);
  t->message = sb_slot_at(b, t->slot);
  t->side = SB_LOAD(&sb_leaf_cell(leaf, t->position)->side, SB_RELAXED);
  t->gen = sb_side_gen(t->side);
  t->delivered = sb_cell_state(word) == SB_CELL_ACQUIRED;
  return true;
}

bool sb_settle_find(sb_connection *c, uint64_t token, sb_taken *t, sb_leaf_ref *leaf) {
  return find(c, token, t, leaf);
}

SB_HOT void finish(sb_connection *c, const sb_ring *r, const sb_leaf_ref *leaf, const sb_taken *t) {
  uint64_t h = SB_LOAD(sb_slot_header(c->b, t->slot), SB_ACQUIRE);
  bool alone = t->message->body_length <= SB_INLINE_BODY && /* a longer body may be read in place (sb_reader.h) */
               t->ref < SB_MAX_REFS && h == sb_slot_word(SB_SLOT_PUBLISHED, UINT64_C(1) << t->ref, t->gen);
  if (alone) { /* in both branches the drop is the linearisation point of the ack */
    sb_slab_drop_last(c, t->slot, h);
  } else {
    sb_reference reference = {t->slot, t->ref, t->gen, r->object};
    (void)sb_reference_drop(c->b, &reference);
  }
  SB_CRASHPOINT("queue.settle.dropped");
  sb_ring_finish(c, r, leaf, t->position);
}

/* `moved`: the caller has begun the intent; else this function begins it. */
SB_HOT sb_status settle(sb_queue *q, uint64_t token, bool moved, unsigned counter) {
  sb_connection *c = q->c;
  sb_leaf_ref leaf;
  sb_taken t;
  if (!find(c, token, &t, &leaf)) {
    return moved ? SB_SETTLED : sb_settle_reading(c, token, false);
  }
  uint64_t bytes = t.message->body_length;
  unsigned ending = sb_groups_of(q, t.message, t.delivered);
  if (!moved)
    sb_ledger_begin_intent(q->ledger, SB_INTENT_SETTLE, counter, t.position, (uint64_t)t.slot | SB_FIELD(t.ref, 32),
                           t.gen, bytes);
  SB_CRASHPOINT("queue.settle.announced");
  finish(c, &sb_queue_lane(q, t.position)->ring, &leaf, &t);
  sb_ledger_count(q->ledger, SB_COUNT_REMOVED_BYTES, bytes);
  sb_ledger_count(q->ledger, counter, 1);
  sb_ledger_hold(q->ledger, -1);
  sb_ledger_end_intent(q->ledger);
  sb_holding_give(c, token);
  sb_groups_gone(q, ending);
  return SB_OK;
}

sb_status sb_settle_message(sb_queue *q, uint64_t token, unsigned counter) { return settle(q, token, false, counter); }

sb_status sb_settle_moved(sb_queue *q, uint64_t token) { return settle(q, token, true, SB_COUNT_MOVED); }
