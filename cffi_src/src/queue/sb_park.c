// SPDX-License-Identifier: Apache-2.0
#include "sb_park.h"

#include "sb_changed.h"
#include "sb_groups.h"
#include "sb_target.h"

/* Makes the cell SCHEDULED, under an intent in the ledger of its owner. `known`: the housekeeper knows the position
 * already, so the function adds no schedule entry. */
static void flip(sb_queue *q, const sb_leaf_ref *leaf, uint64_t position, uint64_t word, uint64_t side, bool known) {
  sb_ledger_shm *l = q->ledger;
  sb_cell_shm *cell = sb_leaf_cell(leaf, position);
  uint32_t slot = sb_cell_slot(word);
  sb_ledger_begin_intent(l, SB_INTENT_PARK, SB_COUNT_SCHEDULED, position,
                         (uint64_t)slot | SB_FIELD(sb_cell_ref(word), 32), 0, 0);
  SB_STORE(&cell->side, side, SB_RELEASE); /* I80 */
  const sb_ring *r = &sb_queue_lane(q, position)->ring;
  if (r->changed != NULL) sb_changed_mark_cell(q->c->b, r, position); /* I119 of sb_changed.h */
  SB_CRASHPOINT("queue.park.described");
  uint64_t open = sb_cell_open(SB_CELL_SCHEDULED, slot, sb_cell_ref(word), leaf->gen);
  if (SB_CAS(&cell->word, &word, open, SB_SEQ_CST)) { /* the linearisation point; fails only beside another reaper */
    SB_CRASHPOINT("queue.park.flipped");
    sb_ledger_count(l, SB_COUNT_SCHEDULED, 1);
    if (!known) sb_queue_schedule(q, position);
  }
  sb_ledger_end_intent(l);
}

static sb_status park(sb_queue *q, uint64_t token, uint64_t side, bool keeps_count, bool known) {
  sb_connection *c = q->c;
  sb_leaf_ref leaf;
  sb_taken t;
  if (!sb_settle_find(c, token, &t, &leaf)) {
    return sb_settle_reading(c, token, false); /* a rejection by a consumer that only reads kills no message */
  }
  uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, t.position)->word, SB_RELAXED); /* nobody else changes it */
  if (keeps_count) side |= sb_side_word(t.gen, sb_side_count(t.side), t.side & SB_SIDE_REDELIVERED);
  unsigned ending = sb_groups_of(q, t.message, t.delivered);
  if (!keeps_count) ending &= ~SB_GROUP_LAST; /* it is delayed, so it did not end */
  flip(q, &leaf, t.position, word, side, known);
  sb_ledger_hold(q->ledger, -1);
  sb_holding_give(c, token);
  sb_groups_gone(q, ending);
  if (!known) sb_target_ring_housekeeper(c->b);
  return SB_OK;
}

sb_status sb_park_dead(sb_queue *q, uint64_t token, sb_why why) {
  return park(q, token, sb_side_why(why), true, false);
}

sb_status sb_park_again(sb_queue *q, uint64_t token, sb_why why) {
  return park(q, token, sb_side_why(why), true, true);
}

/* The end of a delay as the side record counts it. Rounds up, so that no delay ends too early; the latest end is
 * SB_GEN_MASK. */
static uint64_t end_of_delay(uint64_t due_ns) {
  uint64_t end = (due_ns + SB_DELAY_NS - 1) / SB_DELAY_NS;
  return end < SB_GEN_MASK ? end : SB_GEN_MASK;
}

sb_status sb_park_delayed(sb_queue *q, uint64_t token, unsigned count, uint64_t due_ns) {
  return park(q, token, sb_side_word(end_of_delay(due_ns), count, SB_SIDE_REDELIVERED | SB_SIDE_DELAYED), false, false);
}

void sb_park_for(sb_queue *q, const sb_leaf_ref *leaf, uint64_t position, uint64_t word, uint64_t side) {
  flip(q, leaf, position, word, side, false);
}
