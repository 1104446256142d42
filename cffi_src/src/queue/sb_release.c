// SPDX-License-Identifier: Apache-2.0
#include "sb_release.h"

#include "sb_wait.h"

/* Makes the message of holding `token` AVAILABLE again. `delivered`: a consumer got the message. The function then
 * marks the message redelivered, and if `disposition` is SB_UNDELIVER, it does not count that delivery. Without
 * `delivered`, it ignores `disposition`. SB_SETTLED: the connection does not hold the message. */
static sb_status release(sb_queue *q, uint64_t token, bool delivered, sb_disposition disposition) {
  sb_connection *c = q->c;
  sb_leaf_ref leaf;
  sb_taken t;
  if (!sb_settle_find(c, token, &t, &leaf)) {
    return SB_SETTLED;
  }
  sb_cell_shm *cell = sb_leaf_cell(&leaf, t.position);
  sb_lane *lane = sb_queue_lane(q, t.position);
  if (!sb_queue_is_open(q)) {
    return sb_dispose(q, token, SB_REASON_KILLED);
  }
  uint64_t bytes = t.message->body_length;
  if (t.message->expires_ns != 0 && t.message->expires_ns <= sb_now_ns()) {
    return sb_dispose(q, token, SB_REASON_EXPIRED);
  }
  unsigned count = sb_side_count(t.side);
  if (delivered) {
    count -= disposition == SB_UNDELIVER && count > 0 ? 1u : 0u;
    SB_STORE(&cell->side, sb_side_word(t.gen, count, SB_SIDE_REDELIVERED), SB_RELEASE);
  }
  bool tracked = sb_queue_tracks(q->shm);
  if (tracked) sb_ledger_hinting(q->ledger, 1);
  sb_requeued_mark_owned(c->b, lane, &leaf, t.position); /* P5: first the bits, then the cell */
  SB_CRASHPOINT("queue.release.marked");
  (void)SB_SWAP(&cell->word, sb_cell_open(SB_CELL_AVAILABLE, t.slot, t.ref, leaf.gen),
                SB_SEQ_CST); /* linearisation point */
  SB_CRASHPOINT("queue.release.flipped");
  if (!sb_requeued_stays_marked(c->b, lane, t.position)) {
    /* a searcher cleared a bit meanwhile. If the searcher looked at the cell after the flip, it takes the cell. If it
     * looked before the flip, it missed the cell: if the cell is still AVAILABLE, it needs its bits again */
    uint64_t word = SB_LOAD(&cell->word, SB_SEQ_CST);
    if (sb_cell_of(word, leaf.gen) && sb_cell_state(word) == SB_CELL_AVAILABLE) {
      sb_requeued_mark(c->b, &lane->ring, t.position);
    }
  }
  sb_ledger_hold(q->ledger, -1);
  if (tracked) {
    sb_hints_untaken(q->shm, 1, bytes);
    sb_ledger_hinting(q->ledger, -1);
  }
  sb_holding_give(c, token);
  if (!sb_queue_is_open(q)) { /* the queue was closed meanwhile: its disposal may have missed this message */
    uint64_t again;
    if (sb_holding_take(c, &again) == SB_OK) {
      if (sb_take_at(q, t.position, SB_CELL_AVAILABLE, again, &t) == SB_OK) {
        (void)sb_dispose(q, again, SB_REASON_KILLED);
      } else {
        sb_holding_give(c, again);
      }
    }
  }
  return SB_OK;
}

sb_status sb_release_message(sb_queue *q, uint64_t token, sb_disposition disposition) {
  return release(q, token, true, disposition);
}

sb_status sb_release_unmarked(sb_queue *q, uint64_t token) { return release(q, token, false, SB_UNDELIVER); }
