// SPDX-License-Identifier: Apache-2.0
#include "sb_move.h"

#include "sb_release.h"
#include "sb_schedule.h"
#include "sb_slab.h"
#include "sb_values.h"
#include "sb_view.h"

/* The sequence number of the message at `position`. The caller owns that cell, so its leaf is not freed. */
static uint64_t sequence_of(sb_queue *q, uint64_t position) {
  const sb_ring *r = &sb_queue_lane(q, position)->ring;
  sb_leaf_ref leaf;
  bool keeps = (SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_KEEPS) != 0;
  return keeps && sb_ring_locate(q->c->b, NULL, r, position, &leaf) == SB_OK
             ? sb_ring_sequence(q->c->b, r, &leaf, position)
             : sb_queue_sequence(q, position);
}

/* Takes two holdings: for the message where it is, and for where it goes. */
static sb_status take_holdings(sb_connection *c, uint64_t *token, uint64_t *target_token) {
  sb_status status = sb_holding_take(c, token);
  if (status != SB_OK) {
    return status;
  }
  status = sb_holding_take(c, target_token);
  if (status != SB_OK) sb_holding_give(c, *token);
  return status;
}

/* Gives the two holdings back, since the take into the first one failed. */
static void give_holdings(sb_queue *q, uint64_t token, uint64_t target_token) {
  sb_holding_give(q->c, target_token);
  sb_holding_give(q->c, token);
  (void)sb_limits_enforce(q); /* I42 */
}

/* Moves message *t, which was taken: `token` lists it, `target_token` is free. */
static sb_status move_taken(sb_queue *q, sb_queue *target, const sb_taken *taken, uint64_t token, uint64_t target_token,
                            uint64_t *size) {
  sb_connection *c = q->c;
  sb_broker *b = c->b;
  sb_taken t = *taken;
  uint64_t bytes = t.message->body_length, position = 0;
  unsigned ref = sb_reference_clear(b, t.slot, t.ref, c->id);
  sb_lane *lane = NULL;
  sb_status status = ref == SB_MAX_REFS ? SB_LIMIT : sb_queue_lane_for(target, t.message->priority, &lane);
  sb_value_key key;
  if (status == SB_OK && sb_queue_has_values(target) && sb_values_key_of(target, t.slot, t.message, &key)) {
    status = sb_values_prepare(target, &key);
  }
  if (status == SB_OK) status = sb_limits_admit(target, bytes);
  /* a message that is moved is not dropped or rejected: it stays in its queue */
  if (status == SB_DONE || status == SB_REJECTED || status == SB_STORE_FULL) status = SB_FULL;
  if (status != SB_OK) {
    sb_holding_give(c, target_token);
    sb_schedule_make_ready(q, token);
    return status;
  }
  sb_ledger_shm *from = q->ledger, *to = target->ledger;
  SB_STORE(&from->target_queue, target->slot, SB_RELAXED);
  SB_STORE(&from->target_position, UINT64_MAX, SB_RELAXED);
  SB_STORE(&from->target_ledger, sb_slot_of(b, to), SB_RELAXED);
  SB_STORE(&from->target_before, SB_LOAD(&to->counters[SB_COUNT_ADDED], SB_RELAXED), SB_RELAXED);
  SB_STORE(&from->target_before_bytes, SB_LOAD(&to->counters[SB_COUNT_ADDED_BYTES], SB_RELAXED), SB_RELAXED);
  sb_ledger_begin_intent(from, SB_INTENT_MOVE, SB_COUNT_MOVED, t.position,
                         (uint64_t)t.slot | SB_FIELD(t.ref, 32) | SB_FIELD(ref, 40), t.gen, bytes);
  sb_view_not(b, t.slot, ref);
  /* I38: only the holder of a cell adds references to its message; this connection holds the source cell */
  if (!sb_slab_add(b, t.slot, ref)) {
    sb_ledger_end_intent(from);
    sb_limits_unadmit(target, bytes);
    sb_holding_give(c, target_token);
    sb_schedule_make_ready(q, token);
    return SB_LIMIT;
  }
  bool tracked = sb_queue_tracks(target->shm);
  if (tracked) sb_hints_taken(target->shm, 1, bytes);
  uint64_t word = (uint64_t)SB_CELL_REMOVING | SB_FIELD(t.slot, 4) | SB_FIELD(ref, 32) | SB_FIELD(c->id, 37);
  sb_append how = {SB_WORD_OWNED, SB_TAIL_EXACT, sb_queue_spacing(target, bytes)};
  status = sb_queue_append(target, lane, word, how, &from->target_position, &position);
  if (status != SB_OK) {
    bool freed;
    (void)sb_slab_drop(b, t.slot, t.gen, ref, &freed);
    sb_ledger_end_intent(from);
    if (tracked) sb_hints_untaken(target->shm, 1, bytes);
    sb_limits_unadmit(target, bytes);
    sb_holding_give(c, target_token);
    (void)sb_limits_enforce(target); /* I42 */
    sb_schedule_make_ready(q, token);
    return status;
  }
  const sb_leaf_ref *leaf = &lane->tail_leaf; /* of the target cell; not freed while this connection owns the cell */
  SB_STORE(&sb_leaf_cell(leaf, position)->side,
           sb_side_word(t.gen, sb_side_count(t.side), t.side & SB_SIDE_REDELIVERED), SB_RELEASE);
  sb_word *origin = sb_ring_origin(b, leaf, position);
  if (origin != NULL) SB_STORE(origin, sequence_of(q, t.position), SB_RELEASE);
  SB_CRASHPOINT("queue.move.described");
  sb_holding_set(b, target_token, sb_holding_what(SB_HOLD_CELL, target->slot, leaf->slot), position);
  if (t.message->expires_ns != 0) sb_queue_schedule(target, position);
  SB_CRASHPOINT("queue.move.linked"); /* from the append on, a reaper finishes the move */
  sb_ledger_count(to, SB_COUNT_ADDED_BYTES, bytes);
  sb_ledger_count(to, SB_COUNT_ADDED, 1);
  sb_ledger_hold(to, 1);
  sb_limits_published(target, bytes);
  (void)sb_settle_moved(q, token);
  SB_CRASHPOINT("queue.move.settled");
  sb_queue_lower_bound(q);
  (void)sb_release_unmarked(target, target_token);
  *size = bytes;
  return SB_OK;
}

sb_status sb_move_one(sb_queue *q, sb_queue *target, uint64_t end, uint64_t *size) {
  uint64_t token, target_token;
  sb_taken t;
  sb_status status = take_holdings(q->c, &token, &target_token);
  if (status != SB_OK) {
    return status;
  }
  status = sb_take_oldest(q, SB_CELL_REMOVING, end, token, &t);
  if (status != SB_OK) {
    give_holdings(q, token, target_token);
    return status;
  }
  return move_taken(q, target, &t, token, target_token, size);
}

sb_status sb_move_at(sb_queue *q, sb_queue *target, uint64_t position, uint64_t *size) {
  uint64_t token, target_token;
  sb_taken t;
  sb_status status = take_holdings(q->c, &token, &target_token);
  if (status != SB_OK) {
    return status;
  }
  status = sb_take_at(q, position, SB_CELL_AVAILABLE, token, &t);
  if (status != SB_OK) {
    give_holdings(q, token, target_token);
    return status;
  }
  return move_taken(q, target, &t, token, target_token, size);
}
