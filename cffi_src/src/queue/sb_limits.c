// SPDX-License-Identifier: Apache-2.0
#include "sb_limits.h"

#include "sb_release.h"
#include "sb_resume.h"
#include "sb_takers.h"
#include "sb_wait.h"

#define UNBOUNDED INT64_MAX

/* The number of ready messages before `position`: the number of positions from the base to there, minus `taken`. It may
 * be negative for a moment. */
static int64_t ready_before(const sb_queue_shm *q, uint64_t position, uint64_t taken) {
  return (int64_t)(position - SB_LOAD(&q->base, SB_RELAXED) - taken);
}
static int64_t ready_bytes(const sb_queue_shm *q) {
  return (int64_t)(SB_LOAD(&q->bytes_in, SB_SEQ_CST) - SB_LOAD(&q->bytes_out, SB_SEQ_CST));
}

typedef struct {
  int64_t overflow;
  int64_t length, bytes; /* max_length and max_bytes; -1 = none */
} limits;

/* P22 of sb_settings.h: reads the limits of a queue together with its overflow. While another process changes the
 * settings, each limit may be the old or the new one. If the call reads the old overflow, it reads no limit below the
 * old one; if it reads the new overflow, no limit below the new one. */
static limits limits_of(const sb_queue_shm *q) {
  limits l = {.overflow = SB_LOAD(&q->settings[SB_SETTING_OVERFLOW], SB_ACQUIRE)};
  int64_t before;
  do {
    before = l.overflow;
    l.length = SB_LOAD(&q->settings[SB_SETTING_MAX_LENGTH], SB_ACQUIRE);
    l.bytes = SB_LOAD(&q->settings[SB_SETTING_MAX_BYTES], SB_ACQUIRE);
    l.overflow = SB_LOAD(&q->settings[SB_SETTING_OVERFLOW], SB_ACQUIRE);
  } while (l.overflow != before);
  return l;
}
static bool refuses(const limits *l) { return l->overflow != SB_OVERFLOW_DROP_HEAD; }
/* True if the queue has no room of its own, and hands messages over to the consumers that wait (sb_takers.h). */
static bool hands_over(const limits *l) {
  return (l->length == 0 || l->bytes == 0) && (l->overflow == SB_OVERFLOW_DROP_HEAD || l->overflow == SB_OVERFLOW_DROP);
}

/* P38 of sb_resume.h: reads the hints. */
static sb_depth depth_of(const sb_queue_shm *q, const limits *l) {
  uint64_t admitted = SB_LOAD(&q->admitted, SB_SEQ_CST);
  int64_t ready = ready_before(q, admitted, SB_LOAD(&q->taken, SB_SEQ_CST));
  return (sb_depth){ready, ready_bytes(q), l->length, l->bytes};
}
/* True if producers that found the queue full wait until it has emptied (sb_resume.h). */
static bool resumes_later(const sb_queue_shm *q, const limits *l) {
  return l->overflow == SB_OVERFLOW_BLOCK && sb_resume_later(q);
}

bool sb_limits_room(const sb_queue_shm *q, uint64_t count, uint64_t bytes) {
  limits l = limits_of(q);
  if (!refuses(&l)) {
    return true;
  }
  sb_depth d = depth_of(q, &l);
  return (l.length < 0 || d.ready <= l.length - (int64_t)count) &&
         (l.bytes < 0 || d.bytes <= l.bytes - (int64_t)bytes) && !(resumes_later(q, &l) && sb_resume_stops(q, &d));
}

/* What a put returns that finds no room. */
static sb_status full_by(const limits *l) {
  switch (l->overflow) {
    case SB_OVERFLOW_DROP: return SB_DONE;
    case SB_OVERFLOW_REJECT_PUBLISH:
    case SB_OVERFLOW_REJECT_PUBLISH_DLX: return SB_REJECTED;
    default: return SB_FULL;
  }
}

/* Takes the room that the limits leave, or returns `full`. */
SB_HOT sb_status reserve(sb_queue_shm *q, const limits *l, uint64_t bytes, sb_status full) {
  uint64_t admitted = SB_LOAD(&q->admitted, SB_SEQ_CST);
  do {
    if (l->length >= 0 && ready_before(q, admitted, SB_LOAD(&q->taken, SB_SEQ_CST)) >= l->length) {
      return full;
    }
  } while (!SB_CAS(&q->admitted, &admitted, admitted + 1, SB_SEQ_CST));
  uint64_t in = SB_LOAD(&q->bytes_in, SB_SEQ_CST);
  do {
    if (l->bytes >= 0 && (int64_t)(in - SB_LOAD(&q->bytes_out, SB_SEQ_CST)) > l->bytes - (int64_t)bytes) {
      (void)SB_SUB(&q->admitted, 1, SB_SEQ_CST);
      return full;
    }
  } while (!SB_CAS(&q->bytes_in, &in, in + bytes, SB_SEQ_CST));
  return SB_OK;
}

/* As reserve, in a queue whose producers resume later. */
static sb_status reserve_or_stop(sb_queue_shm *q, const limits *l, uint64_t bytes, sb_status full) {
  bool again, passes;
  sb_depth d;
  do {
    d = depth_of(q, l);
    passes = sb_resume_passes(q, &d, &again);
  } while (again);
  if (!passes) {
    return full;
  }
  SB_CRASHPOINT("limits.admit.resumed");
  sb_status status = reserve(q, l, bytes, full);
  if (status == full) {
    d = depth_of(q, l);
    sb_resume_stop(q, &d);
  }
  return status;
}

/* Admits in a queue that hands messages over, has a limit of 0, or resumes later. Apart from other queues, so that their
 * puts have none of these steps. */
SB_COLD sb_status admit_specially(sb_queue *q, limits l, uint64_t bytes, sb_status full) {
  if (hands_over(&l) && (l.length == 0 || bytes > 0)) { /* else no byte needs no room in a queue of no bytes */
    l.length = sb_takers(q);
    if (l.bytes == 0) l.bytes = -1;
  }
  if ((l.length == 0 && full == SB_FULL) || (l.bytes >= 0 && (int64_t)bytes > l.bytes)) {
    return full == SB_REJECTED ? full : SB_TOO_LARGE;
  }
  return resumes_later(q->shm, &l) ? reserve_or_stop(q->shm, &l, bytes, full) : reserve(q->shm, &l, bytes, full);
}

/* Apart from sb_limits_admit, which so needs few registers in a queue without limits. */
static sb_status admit(sb_queue *q, uint64_t bytes) __attribute__((noinline));
static sb_status admit(sb_queue *q, uint64_t bytes) {
  limits l = limits_of(q->shm);
  sb_status full = full_by(&l);
  if (!refuses(&l) || (l.length < 0 && l.bytes < 0)) {
    (void)SB_ADD(&q->shm->admitted, 1, SB_RELEASE); /* I23: a process that reads the hint then sees `hinting` raised */
    (void)SB_ADD(&q->shm->bytes_in, bytes, SB_RELEASE);
    return SB_OK;
  }
  if (l.length == 0 || l.bytes == 0 || resumes_later(q->shm, &l)) {
    return admit_specially(q, l, bytes, full);
  }
  if (l.bytes >= 0 && (int64_t)bytes > l.bytes) {
    return full == SB_REJECTED ? full : SB_TOO_LARGE;
  }
  return reserve(q->shm, &l, bytes, full);
}

sb_status sb_limits_admit(sb_queue *q, uint64_t bytes) {
  if (sb_queue_stores(q) && SB_LOAD(&q->c->b->header->store_full, SB_RELAXED) != 0) {
    return SB_STORE_FULL;
  }
  sb_ledger_reserve(q->ledger, 1, bytes);
  sb_ledger_hinting(q->ledger, 1); /* stays raised until sb_limits_published or sb_limits_unadmit */
  sb_status status = sb_queue_tracks(q->shm) ? admit(q, bytes) : SB_OK;
  if (status != SB_OK) sb_limits_published(q, bytes);
  return status;
}

sb_status sb_limits_admit_dead(sb_queue *q, uint64_t bytes) {
  if (!sb_queue_has_dead_letters(q->shm)) {
    return SB_INVALID;
  }
  sb_ledger_reserve(q->ledger, 1, bytes);
  sb_ledger_hinting(q->ledger, 1);
  if (sb_queue_tracks(q->shm)) {
    (void)SB_ADD(&q->shm->admitted, 1, SB_SEQ_CST);
    (void)SB_ADD(&q->shm->bytes_in, bytes, SB_SEQ_CST);
  }
  return SB_OK;
}

void sb_limits_published(sb_queue *q, uint64_t bytes) {
  sb_ledger_hinting(q->ledger, -1);
  sb_ledger_reserve(q->ledger, -1, bytes);
}

void sb_limits_unadmit(sb_queue *q, uint64_t bytes) {
  if (sb_queue_tracks(q->shm)) {
    (void)SB_SUB(&q->shm->admitted, 1, SB_SEQ_CST);
    (void)SB_SUB(&q->shm->bytes_in, bytes, SB_SEQ_CST);
  }
  sb_limits_published(q, bytes);
}

/* The most messages that may be ready, `takers` of which the consumers would take now, if the queue hands messages over.
 * *reason: why a message beyond them ends. */
static int64_t bound(const sb_queue_shm *q, int64_t takers, sb_reason *reason) {
  int64_t ring = sb_setting(q, SB_SETTING_RING_SIZE), limit = UNBOUNDED;
  limits l = limits_of(q);
  *reason = SB_REASON_REPLACED;
  if (ring >= 0) {
    int64_t lazy = (int64_t)SB_LOAD(&q->bound, SB_RELAXED);
    limit = lazy > ring ? lazy : ring;
  }
  if (!refuses(&l) && l.length >= 0 && l.length < limit) {
    limit = l.length;
    *reason = SB_REASON_EVICTED;
  }
  if (limit == 0 && hands_over(&l)) limit = takers;
  return limit;
}
/* The same, after it asked the consumers, if that is needed. */
static int64_t bound_now(const sb_queue *q, sb_reason *reason) {
  int64_t limit = bound(q->shm, 0, reason);
  return limit != 0 ? limit : bound(q->shm, sb_takers(q), reason);
}

/* I24: the condition for an eviction, after the caller raised `taken` for the victim: at least `limit` messages are
 * ready beside the victim. Otherwise a consumer took a message meanwhile, and the excess is gone. */
static sb_excess too_many(int64_t limit) { return (sb_excess){true, limit, INT64_MIN}; }

/* The condition for an eviction by bytes. `paid`: the estimated size of the victim, which the caller added to
 * `bytes_out`. The victim is evicted only if the ready bytes and `paid` together exceed the limit. If the queue does
 * not evict by bytes any more, no victim is evicted. */
static sb_excess too_large(const sb_queue *q, uint64_t paid) {
  limits l = limits_of(q->shm);
  bool evicts = !refuses(&l) && l.bytes >= 0;
  return (sb_excess){false, INT64_MIN, evicts ? l.bytes - (int64_t)paid + 1 : INT64_MAX};
}

/* What evict did. NONE_FOUND: there was no victim, or no memory for a holding. STAYED: the excess was gone, so no
 * victim was taken. PASSED_OVER: a victim was taken, then put back, since an older message had returned; that also
 * lowered `taken`, which had counted the victim. */
enum outcome { NONE_FOUND, STAYED, PASSED_OVER, EVICTED };

/* Takes the oldest ready message, if the excess still exists, and ends it for `reason`, or as expired if it has
 * expired. *why: after NONE_FOUND, the status of the take. */
static enum outcome evict(sb_queue *q, const sb_excess *excess, sb_reason reason, sb_status *why) {
  uint64_t token;
  sb_taken t;
  *why = sb_holding_take(q->c, &token);
  if (*why != SB_OK) {
    return NONE_FOUND;
  }
  *why = sb_take_victim(q, excess, token, &t);
  if (*why != SB_OK) {
    sb_holding_give(q->c, token);
    return *why == SB_DONE ? STAYED : NONE_FOUND;
  }
  if (sb_queue_older_ready(q, t.position)) {
    SB_CRASHPOINT("limits.evict.spared");
    (void)sb_release_unmarked(q, token);
    return PASSED_OVER;
  }
  bool expired = t.message->expires_ns != 0 && t.message->expires_ns <= sb_now_ns();
  (void)sb_dispose(q, token, expired ? SB_REASON_EXPIRED : reason);
  return EVICTED;
}

/* If more bytes are ready than the limit allows, adds the estimated size of the next victim to `bytes_out`; *paid: that
 * size. Other producers then do not see the same excess, so only one evicts for it. True: the size was added, and
 * `hinting` is raised. After the eviction the caller subtracts the size from `bytes_out`, and lowers `hinting`. */
static bool pay_bytes(sb_queue *q, uint64_t *paid) {
  limits l = limits_of(q->shm);
  if (refuses(&l) || l.bytes < 0 || ready_bytes(q->shm) <= l.bytes) {
    return false;
  }
  if (l.bytes == 0) {
    int64_t takers = sb_takers(q); /* before the depth: a take lowers the depth, then the credit */
    if (depth_of(q->shm, &l).ready <= takers) {
      return false;
    }
  }
  *paid = sb_queue_oldest_bytes(q);
  sb_ledger_hinting(q->ledger, 1);
  uint64_t out = SB_LOAD(&q->shm->bytes_out, SB_SEQ_CST);
  while ((int64_t)(SB_LOAD(&q->shm->bytes_in, SB_SEQ_CST) - out) > l.bytes) {
    if (SB_CAS(&q->shm->bytes_out, &out, out + *paid, SB_SEQ_CST)) {
      return true;
    }
  }
  sb_ledger_hinting(q->ledger, -1);
  return false;
}

/* Evicts one message if more are ready than the bound, and adds 1 to *removed. True: there may be more to evict. *why: as
 * of evict, if it was called. */
static bool enforce_length(sb_queue *q, uint64_t *removed, sb_status *why) {
  sb_reason reason;
  int64_t limit = bound_now(q, &reason);
  uint64_t came = sb_lanes_came(q->shm);
  uint64_t before = SB_LOAD(&q->shm->taken, SB_SEQ_CST);
  if (limit == UNBOUNDED || ready_before(q->shm, came, before) <= limit) {
    return false;
  }
  sb_ledger_hinting(q->ledger, 1);
  if (!SB_CAS(&q->shm->taken, &before, before + 1, SB_SEQ_CST)) { /* I24: pay first */
    sb_ledger_hinting(q->ledger, -1);
    return true;
  }
  SB_CRASHPOINT("limits.evict.paid");
  sb_excess excess = too_many(limit);
  enum outcome outcome = evict(q, &excess, reason, why);
  if (outcome == NONE_FOUND || outcome == STAYED) (void)SB_SUB(&q->shm->taken, 1, SB_SEQ_CST);
  sb_ledger_hinting(q->ledger, -1);
  *removed += outcome == EVICTED;
  return outcome != NONE_FOUND || sb_lanes_came(q->shm) != came; /* I42 of sb_queue.h */
}

/* Does for the byte limit what enforce_length does for the bound. First adds an estimate of the victim's size to
 * `bytes_out` (pay_bytes). The take itself adds the real size, so the estimate is subtracted afterwards. */
static bool enforce_bytes(sb_queue *q, uint64_t *removed, sb_status *why) {
  uint64_t paid, came = sb_lanes_came(q->shm);
  if (!pay_bytes(q, &paid)) {
    return false;
  }
  SB_CRASHPOINT("limits.evict.paid_bytes");
  sb_excess excess = too_large(q, paid);
  enum outcome outcome = evict(q, &excess, SB_REASON_EVICTED, why);
  (void)SB_SUB(&q->shm->bytes_out, paid, SB_SEQ_CST);
  sb_ledger_hinting(q->ledger, -1);
  if (outcome == EVICTED) sb_queue_lower_bound(q);
  *removed += outcome == EVICTED;
  return outcome != NONE_FOUND || sb_lanes_came(q->shm) != came; /* I42 of sb_queue.h */
}

/* No cell below this position is AVAILABLE, except cells with `requeued` bits, and hidden cells (sb_hints.h). */
SB_HOT uint64_t lowest(const sb_lane *lane) {
  uint64_t head = SB_LOAD(lane->ring.head, SB_ACQUIRE);
  return head > lane->cursor ? head : lane->cursor;
}

/* The most cells of the lane before its tail that may be AVAILABLE: the positions between lowest() and the tail.
 * UNBOUNDED: a cell has `requeued` bits. Does not count what a killed process left: hidden cells (sb_hints.h), and a
 * message after a tail that a producer did not advance. */
SB_HOT int64_t most_in(const sb_lane *lane) {
  return SB_LOAD(lane->ring.requeued, SB_SEQ_CST) == 0 ? (int64_t)(SB_LOAD(lane->ring.tail, SB_SEQ_CST) - lowest(lane))
                                                       : UNBOUNDED;
}

/* The same for all lanes of a queue with priorities. */
static int64_t most_in_lanes(sb_queue *q) {
  int64_t sum = 0;
  for (unsigned number = 0; number <= q->last_lane && sum != UNBOUNDED; number++) {
    const sb_lane *lane = sb_queue_lane_of(q, number);
    int64_t most = number == 0 || lane != &q->lanes[0] ? most_in(lane) : 0;
    sum = most == UNBOUNDED ? UNBOUNDED : sum + most;
  }
  return sum;
}

/* True if at most `limit` messages are ready, judged by positions and bits. */
SB_HOT bool fits(sb_queue *q, int64_t limit) {
  int64_t most = sb_queue_has_lanes(q) ? most_in_lanes(q) : most_in(&q->lanes[0]);
  return most != UNBOUNDED && most <= limit;
}

/* True if the cells show that there is nothing to evict: the caller then does not read the counts, which cost more. In
 * a queue that refuses messages, max_length and max_bytes evict nothing, so the function ignores them. False if the
 * cells cannot show it, for example in a queue that evicts by bytes, or while `bound` is higher than ring_size; always
 * false in a queue with priorities, where the counts cost less than a look at each lane. */
SB_HOT bool surely_fits(sb_queue *q) {
  int64_t ring = sb_setting(q->shm, SB_SETTING_RING_SIZE), limit = ring >= 0 ? ring : UNBOUNDED;
  if (sb_queue_has_lanes(q) || (ring >= 0 && (int64_t)SB_LOAD(&q->shm->bound, SB_RELAXED) > ring)) {
    return false;
  }
  limits l = limits_of(q->shm);
  if (!refuses(&l)) {
    if (l.bytes >= 0) return false;
    if (l.length >= 0 && l.length < limit) limit = l.length;
  }
  return fits(q, limit);
}

/* As sb_limits_keep. Stops after `most` evictions. */
SB_HOT bool keep(sb_queue *q, uint64_t most, uint64_t *removed, sb_status *why) {
  if (!sb_queue_tracks(q->shm) || surely_fits(q)) {
    return true;
  }
  sb_queue_lower_bound(q);
  while (*removed < most && (enforce_length(q, removed, why) || enforce_bytes(q, removed, why))) {
    if (surely_fits(q)) return true;
  }
  return false;
}

bool sb_limits_keep(sb_queue *q, uint64_t *removed) {
  sb_status why = SB_OK;
  return keep(q, UINT64_MAX, removed, &why);
}

sb_status sb_limits_trim(sb_queue *q, uint64_t most, uint64_t *removed) {
  sb_status why = SB_OK;
  *removed = 0;
  bool stops = !keep(q, most, removed, &why) && *removed < most;
  /* SB_EMPTY: the counts say more than there is; SB_DONE, SB_OK: the excess is gone */
  return stops && why != SB_EMPTY && why != SB_DONE ? why : SB_OK;
}

uint64_t sb_limits_enforce(sb_queue *q) {
  uint64_t removed = 0;
  (void)sb_limits_keep(q, &removed);
  return removed;
}

/* Moves the handle's cursor past taken cells, as a search does. A later call of fits() then counts fewer positions. */
static void pass_taken(sb_queue *q, sb_lane *lane) {
  uint64_t at = lowest(lane);
  sb_leaf_ref *leaf = &lane->head_leaf;
  for (;;) {
    sb_status status = sb_leaf_covers(leaf, at) ? SB_OK : sb_ring_locate(q->c->b, NULL, &lane->ring, at, leaf);
    if (status == SB_DONE) {
      at = leaf->first;
      continue;
    }
    uint64_t word = status == SB_OK ? SB_LOAD(&sb_leaf_cell(leaf, at)->word, SB_SEQ_CST) : 0;
    unsigned state = sb_cell_state(word);
    bool taken = state == SB_CELL_ACQUIRED || state == SB_CELL_REMOVING || state == SB_CELL_TOMBSTONE;
    if (status != SB_OK || !sb_cell_of(word, leaf->gen) || !taken) {
      break;
    }
    at++;
  }
  lane->cursor = at;
}

bool sb_limits_in_doubt(sb_queue *q) {
  sb_reason reason;
  /* a queue that hands messages over may have any number of them for a moment */
  int64_t limit = sb_queue_tracks(q->shm) ? bound(q->shm, UNBOUNDED, &reason) : UNBOUNDED;
  if (limit == UNBOUNDED || fits(q, limit)) {
    return false;
  }
  pass_taken(q, &q->lanes[0]);
  for (unsigned number = 1; number <= q->last_lane; number++) {
    sb_lane *lane = sb_queue_other_lane(q, number);
    if (lane != &q->lanes[0]) pass_taken(q, lane);
  }
  return !fits(q, limit);
}

bool sb_limits_hand_over(const sb_queue_shm *q) {
  limits l = limits_of(q);
  return sb_queue_tracks(q) && hands_over(&l);
}

bool sb_limits_exceeded(const sb_queue_shm *q, uint64_t ready) {
  sb_reason reason;
  return sb_queue_tracks(q) && (int64_t)ready > bound(q, UNBOUNDED, &reason);
}

void sb_limits_set_bound(sb_queue *q, bool trim) {
  SB_STORE(&q->shm->bound, trim ? 0 : (uint64_t)sb_queue_ready(q->c->b, q->shm), SB_SEQ_CST);
}

sb_status sb_limits_remove(sb_queue *q, sb_reason reason, uint64_t end, uint64_t limit, uint64_t *removed) {
  for (uint64_t n = 0; n < limit; n++) {
    uint64_t token;
    sb_taken t;
    sb_status status = sb_holding_take(q->c, &token);
    if (status != SB_OK) {
      return status;
    }
    status = sb_take_oldest(q, SB_CELL_REMOVING, end, token, &t);
    if (status != SB_OK) {
      sb_holding_give(q->c, token);
      (void)sb_limits_enforce(q); /* I42 of sb_queue.h */
      return status;
    }
    (void)sb_dispose(q, token, reason);
    ++*removed;
  }
  sb_queue_lower_bound(q);
  return SB_OK;
}
