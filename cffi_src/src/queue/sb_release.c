// SPDX-License-Identifier: Apache-2.0
#include "sb_release.h"

#include "sb_changed.h"
#include "sb_groups.h"
#include "sb_values.h"
#include "sb_wait.h"

#define MOST_DELAY_MS INT64_C(315360000000)

/* A number from -1 to 1, another one for each message and moment. */
static double chance(uint64_t position) {
  uint64_t h = (sb_now_ns() ^ position << 32) * UINT64_C(0x9e3779b97f4a7c15);
  h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
  return (double)(h >> 11) / (double)(UINT64_C(1) << 52) - 1;
}

/* The delay before delivery number `count` + 1 of the message at `position`; 0: none. The delay after the first delivery
 * is redelivery_delay; each later one is longer by the multiplier. All are longer or shorter by chance, within the
 * collision factor, and none is longer than max_redelivery_delay. */
static uint64_t delay_of(const sb_queue_shm *q, unsigned count, uint64_t position) {
  int64_t delay_ms = sb_setting(q, SB_SETTING_REDELIVERY_DELAY_MS),
          most = sb_setting(q, SB_SETTING_MAX_REDELIVERY_DELAY_MS);
  if (delay_ms <= 0) {
    return 0;
  }
  if (most < 0) most = MOST_DELAY_MS;
  double ms = (double)delay_ms, times = (double)sb_setting(q, SB_SETTING_REDELIVERY_MULTIPLIER) / 1000;
  for (unsigned n = 1; n < count && times > 1 && ms < (double)most; n++) ms *= times;
  int64_t collision = sb_setting(q, SB_SETTING_REDELIVERY_COLLISION);
  if (collision > 0) ms += ms * (double)collision / 1000 * chance(position);
  return (uint64_t)((ms < (double)most ? ms : (double)most) * 1e6);
}

/* False if the queue is a ring that is full: a message that returns to it is replaced at once, or replaces an older one,
 * so it does not wait. */
static bool ring_has_room(const sb_queue *q) {
  int64_t ring = sb_setting(q->shm, SB_SETTING_RING_SIZE), bound = (int64_t)SB_LOAD(&q->shm->bound, SB_RELAXED);
  return ring < 0 || sb_queue_ready(q->c->b, q->shm) < (bound > ring ? bound : ring);
}

bool sb_release_exhausts(const sb_queue_shm *q, unsigned count) {
  int64_t most = sb_setting(q, SB_SETTING_MAX_DELIVERY_ATTEMPTS);
  return most > 0 && ((int64_t)count >= most || count >= SB_SIDE_MOST_COUNTED);
}

/* Makes the message of holding `token` AVAILABLE again. `delivered`: a consumer got the message. The function then
 * marks the message redelivered, and if `disposition` is SB_UNDELIVER, it does not count that delivery. Without
 * `delivered`, it ignores `disposition`. SB_SETTLED: the connection does not hold the message. */
static sb_status release(sb_queue *q, uint64_t token, bool delivered, sb_disposition disposition) {
  sb_connection *c = q->c;
  sb_leaf_ref leaf;
  sb_taken t;
  if (!sb_settle_find(c, token, &t, &leaf)) {
    return delivered ? sb_settle_reading(c, token, disposition == SB_REQUEUE) : SB_SETTLED;
  }
  sb_cell_shm *cell = sb_leaf_cell(&leaf, t.position);
  sb_lane *lane = sb_queue_lane(q, t.position);
  if (!sb_queue_is_open(q)) {
    return sb_dispose(q, token, SB_REASON_KILLED);
  }
  if (sb_side_why_of(t.side) != SB_WHY_ALIVE) { /* the connection was about to carry it out, and closes */
    return sb_park_dead(q, token, sb_side_why_of(t.side));
  }
  uint64_t bytes = t.message->body_length;
  if (t.message->expires_ns != 0 && t.message->expires_ns <= sb_now_ns()) {
    return sb_dispose(q, token, SB_REASON_EXPIRED);
  }
  unsigned count = sb_side_count(t.side);
  if (delivered) {
    count -= disposition == SB_UNDELIVER && count > 0 ? 1u : 0u;
    if (disposition == SB_REQUEUE && sb_release_exhausts(q->shm, count)) {
      return sb_dispose(q, token, SB_REASON_EXHAUSTED);
    }
    uint64_t delay = disposition == SB_REQUEUE ? delay_of(q->shm, count, t.position) : 0;
    if (delay != 0 && ring_has_room(q)) {
      return sb_park_delayed(q, token, count, sb_now_ns() + delay);
    }
    SB_STORE(&cell->side, sb_side_word(t.gen, count, SB_SIDE_REDELIVERED), SB_RELEASE);
    if (lane->ring.changed != NULL) sb_changed_mark_cell(c->b, &lane->ring, t.position); /* I119 of sb_changed.h */
  }
  unsigned ending = sb_groups_of(q, t.message, t.delivered) & ~SB_GROUP_LAST; /* the message did not end */
  sb_groups_returns(q, t.message, t.side);
  sb_value_key key;
  bool keyed = sb_queue_has_values(q) && sb_values_key_of(q, t.slot, t.message, &key);
  bool tracked = sb_queue_tracks(q->shm);
  if (tracked) sb_ledger_hinting(q->ledger, 1);
  sb_requeued_mark_owned(c->b, lane, &leaf, t.position); /* P5: first the bits, then the cell */
  SB_CRASHPOINT("queue.release.marked");
  (void)SB_SWAP(&cell->word, sb_cell_open(SB_CELL_AVAILABLE, t.slot, t.ref, leaf.gen),
                SB_SEQ_CST); /* linearisation point */
  SB_CRASHPOINT("queue.release.flipped");
  sb_requeued_returned(&lane->ring);
  /* in a stored queue the leaf may have left the memory meanwhile: then the bits that this call looks at are others */
  bool may_leave = lane->ring.changed != NULL;
  if (!sb_requeued_stays_marked(c->b, lane, t.position) || (may_leave && !sb_leaf_is_current(c->b, &leaf))) {
    /* a searcher cleared a bit meanwhile. If the searcher looked at the cell after the flip, it takes the cell. If it
     * looked before the flip, it missed the cell: if the cell is still AVAILABLE, it needs its bits again */
    uint64_t word = SB_LOAD(&cell->word, SB_SEQ_CST);
    bool left = may_leave && (!sb_cell_of(word, leaf.gen) || sb_cell_state(word) == SB_CELL_FROZEN);
    if (left || (sb_cell_of(word, leaf.gen) && sb_cell_state(word) == SB_CELL_AVAILABLE)) {
      sb_requeued_mark(c->b, &lane->ring, t.position);
    }
  }
  sb_ledger_hold(q->ledger, -1);
  if (tracked) {
    sb_hints_untaken(q->shm, 1, bytes);
    sb_ledger_hinting(q->ledger, -1);
  }
  if (keyed && sb_queue_is_open(q))
    (void)sb_values_came(q, t.position, &key); /* P29, I103 of sb_values.h: the holding lists the cell */
  sb_holding_give(c, token);
  sb_groups_gone(q, ending);  /* I93 of sb_groups.h: after the flip */
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
