// SPDX-License-Identifier: Apache-2.0
#include "sb_no_local.h"

#include "sb_closing.h"
#include "sb_wait.h"

/* True if the connection of `q` published the message of a cell with the value `word`. If the slot was reused
 * meanwhile, the answer may be wrong, but then the cell has changed, too, and taking the message fails. */
static bool is_own(const sb_queue *q, uint64_t word) {
  uint32_t slot = sb_cell_slot(word);
  return sb_slot_in_range(q->c->b, slot) && sb_slot_ready(q->c->b, slot) &&
         sb_peek_message(q->c->b, slot).publisher == q->c->id;
}

static bool foreign_at(const sb_queue *q, const sb_leaf_ref *leaf, uint64_t position) {
  uint64_t word = SB_LOAD(&sb_leaf_cell(leaf, position)->word, SB_SEQ_CST);
  return sb_cell_of(word, leaf->gen) && sb_cell_state(word) == SB_CELL_AVAILABLE && !is_own(q, word);
}

static bool take_returned(sb_queue *q, sb_lane *lane, uint64_t before, uint64_t token, sb_taken *t) {
  uint64_t from = 0, position;
  sb_leaf_ref leaf;
  while (SB_LOAD(lane->ring.requeued, SB_SEQ_CST) != 0 &&
         sb_requeued_next_near(q->c->b, lane, from, &leaf, &position) && position < before) {
    if (foreign_at(q, &leaf, position) && sb_take_for_consumer_at(q, position, true, token, t) == SB_OK) {
      return true;
    }
    from = position + 1;
  }
  return false;
}

static sb_status take_next(sb_queue *q, sb_lane *lane, uint64_t *cursor, uint64_t token, sb_taken *t) {
  uint64_t base = SB_LOAD(lane->ring.base, SB_RELAXED), at = *cursor > base ? *cursor : base;
  sb_leaf_ref leaf;
  unsigned retries = 0;
  while (sb_ring_next_leaf(q->c->b, &lane->ring, at, &leaf, &at)) {
    while (sb_leaf_covers(&leaf, at)) {
      uint64_t word =
          SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST); /* P1, P2: acquire; P3: the consumer's look */
      unsigned state = sb_cell_state(word);
      *cursor = at;
      if (!sb_cell_of(word, leaf.gen)) { /* the page was reused: find the leaf again */
        if (++retries > SB_MAX_RETRIES) return SB_CORRUPT;
        break;
      }
      if (state == SB_CELL_FREE) {
        return SB_EMPTY;
      }
      if (state == SB_CELL_CLOSING) {
        if (!sb_closing_resolve(q->c->b, q->c, q->shm, &lane->ring, at) || ++retries > SB_MAX_RETRIES)
          return SB_CORRUPT;
        continue;
      }
      if (state == SB_CELL_CLOSED) {
        return SB_DELETED;
      }
      if (state == SB_CELL_STAGED) {
        sb_take_pass_staged(q, at);
      }
      if (state == SB_CELL_AVAILABLE && !is_own(q, word)) {
        if (sb_take_passed_some(q, lane) && take_returned(q, lane, at, token, t)) { /* I53 */
          return SB_OK;
        }
        if (sb_take_for_consumer_at(q, at, false, token, t) == SB_OK) {
          *cursor = at + 1;
          return SB_OK;
        }
        if (SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST) == word && ++retries > SB_MAX_RETRIES) {
          return SB_CORRUPT;
        }
        continue; /* another process was faster */
      }
      *cursor = ++at;
    }
  }
  return SB_EMPTY;
}

/* Searches one lane. The consumer has one cursor, so in a lane that the cursor is not in, the search begins at the
 * lane's head. */
static sb_status take_in_lane(sb_queue *q, sb_lane *lane, uint64_t *cursor, uint64_t token, sb_taken *t) {
  uint64_t head = SB_LOAD(lane->ring.head, SB_ACQUIRE);
  if (sb_position_lane(*cursor) != sb_position_lane(head)) *cursor = head;
  return take_returned(q, lane, *cursor, token, t) ? SB_OK : take_next(q, lane, cursor, token, t);
}

/* Searches the lanes by ascending number. Clears no ready bit: a lane may have messages for other consumers only. */
static sb_status take_in_lanes(sb_queue *q, uint64_t *cursor, uint64_t token, sb_taken *t) {
  sb_status status = SB_EMPTY;
  unsigned number = 0;
  while (status == SB_EMPTY && (number = sb_lanes_next_ready(q->shm, number, false)) <= q->last_lane) {
    status = take_in_lane(q, sb_queue_lane_of(q, number++), cursor, token, t);
  }
  return status;
}

sb_status sb_no_local_take(sb_queue *q, uint64_t *cursor, uint64_t token, sb_taken *t) {
  for (;;) {
    if (!sb_queue_is_open(q)) {
      return SB_DELETED;
    }
    if ((SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_PAUSED) != 0) {
      return SB_EMPTY;
    }
    sb_status status =
        sb_queue_has_lanes(q) ? take_in_lanes(q, cursor, token, t) : take_in_lane(q, &q->lanes[0], cursor, token, t);
    if (status != SB_OK || t->message->expires_ns == 0 || t->message->expires_ns > sb_now_ns()) {
      return status;
    }
    (void)sb_dispose(q, token, SB_REASON_EXPIRED); /* frees the holding `token` */
    status = sb_holding_take(q->c, &token);        /* gets the same holding: the one freed last is taken first */
    if (status != SB_OK) {
      return status;
    }
  }
}
