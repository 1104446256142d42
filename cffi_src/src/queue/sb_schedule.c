// SPDX-License-Identifier: Apache-2.0
#include "sb_schedule.h"

#include "sb_limits.h"
#include "sb_release.h"

#define AGAIN_NS UINT64_C(100000000) /* until the next look at a message that could not be taken */

bool sb_schedule_take(sb_queue *q, uint64_t position, unsigned state, uint64_t token, sb_taken *t) {
  bool scheduled = state == SB_CELL_SCHEDULED;
  if (scheduled) {
    sb_ledger_begin_intent(q->ledger, SB_INTENT_DUE, SB_COUNT_UNSCHEDULED, position, 0, 0, 0);
  }
  bool got = sb_take_at(q, position, state, token, t) == SB_OK;
  if (scheduled) {
    if (got) sb_ledger_count(q->ledger, SB_COUNT_UNSCHEDULED, 1);
    sb_ledger_end_intent(q->ledger);
  }
  return got;
}

bool sb_schedule_limit(sb_queue *q, const sb_taken *t, uint64_t expires_ns) {
  sb_message_shm *m = sb_slot_at(q->c->b, t->slot);
  if (m->targets > 1 || (m->expires_ns != 0 && m->expires_ns <= expires_ns)) {
    return false;
  }
  m->expires_ns = expires_ns;
  SB_CRASHPOINT("schedule.limited");
  sb_queue_schedule(q, t->position);
  return true;
}

void sb_schedule_make_ready(sb_queue *q, uint64_t token) {
  (void)sb_release_unmarked(q, token);
  (void)sb_limits_enforce(q);
}

uint64_t sb_schedule_look_at(sb_queue *q, uint64_t position, uint64_t now_ns, bool *made_ready) {
  sb_broker *b = q->c->b;
  *made_ready = false;
  /* one that has left the memory may have come back as another one; it then has a new entry of the schedule list */
  if (!(sb_leaf_covers(&q->looked_leaf, position) && sb_leaf_is_current(b, &q->looked_leaf)) &&
      sb_ring_locate(b, NULL, &sb_queue_lane(q, position)->ring, position, &q->looked_leaf) != SB_OK) {
    return 0;
  }
  sb_leaf_ref leaf = q->looked_leaf;
  uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, position)->word, SB_ACQUIRE);
  if (!sb_cell_of(word, leaf.gen) || !sb_cell_has_message(word)) {
    return 0;
  }
  uint32_t slot = sb_cell_slot(word);
  if (!sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot)) {
    return 0;
  }
  sb_message_shm m = sb_peek_message(b, slot);
  uint64_t expires = m.expires_ns, side = SB_LOAD(&sb_leaf_cell(&leaf, position)->side, SB_ACQUIRE),
           due = sb_schedule_due(side, &m);
  if (SB_LOAD(&sb_leaf_cell(&leaf, position)->word, SB_ACQUIRE) != word) {
    return now_ns; /* the cell changed during the look: look again immediately */
  }
  bool keeps = (SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_KEEPS) != 0,
       scheduled = sb_cell_state(word) == SB_CELL_SCHEDULED;
  bool expired = expires != 0 && expires <= now_ns;
  if (scheduled && sb_park_why(side, m.flags) != SB_WHY_ALIVE) {
    return SB_SCHEDULE_DEAD;
  }
  if (sb_cell_state(word) == SB_CELL_REMOVING && sb_side_why_of(side) != SB_WHY_ALIVE) {
    /* another housekeeper carries it out. If it cannot, it parks the message without a schedule entry
     * (sb_park_again), and may end before it tries again: it stood in for this one, or it is killed */
    return now_ns + AGAIN_NS;
  }
  if (keeps && !scheduled) {
    return 0; /* no ready message expires in this queue; a move out of it adds an entry to the target's schedule list */
  }
  if (scheduled && due > now_ns && !expired) {
    return expires != 0 && expires < due ? expires : due;
  }
  if (!scheduled && !expired) {
    return expires;
  }
  if (sb_cell_state(word) == SB_CELL_FROZEN) {
    return now_ns + AGAIN_NS; /* it leaves the memory, or stays (sb_paged.h) */
  }
  if (!scheduled && sb_cell_state(word) != SB_CELL_AVAILABLE) {
    /* the owner of the cell ends the expired message; if the owner dies, the reaper makes the message AVAILABLE, and
     * asks for a scan of all cells (sb_intent_release_cell), which finds it. A commit adds an entry for a STAGED one */
    return 0;
  }
  uint64_t token;
  sb_taken t;
  if (sb_holding_take(q->c, &token) != SB_OK) {
    return now_ns + AGAIN_NS;
  }
  if (!sb_schedule_take(q, position, sb_cell_state(word), token, &t)) {
    sb_holding_give(q->c, token);
    (void)sb_limits_enforce(q); /* I42 of sb_queue.h */
    return now_ns;
  }
  if (sb_side_why_of(t.side) != SB_WHY_ALIVE) { /* beside another housekeeper it became ready, and died, meanwhile */
    (void)sb_park_dead(q, token, sb_side_why_of(t.side));
    return SB_SCHEDULE_DEAD;
  }
  if (expired) {
    (void)sb_dispose(q, token, SB_REASON_EXPIRED);
    return sb_queue_carries(q->shm, SB_WHY_EXPIRED) ? SB_SCHEDULE_DIED : 0;
  }
  sb_schedule_make_ready(q, token);
  *made_ready = true;
  return expires;
}
