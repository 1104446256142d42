// SPDX-License-Identifier: Apache-2.0
/* Dispose: the one way in which a connection ends a message that it took.
 *
 * What: a message that a connection took ends for one of the reasons below. Each caller that ends a message calls
 * sb_dispose with the reason. The reason selects the counter of the ledger, here and nowhere else; sb_settle.h then
 * ends the message. A move does not end a message: it calls sb_settle_moved, under its own intent, to settle only the
 * source cell. A commit that publishes a copy elsewhere does end it, and counts it as moved.
 *
 * In a queue with dead letters, sb_dispose does not end a message that was rejected, has expired, was evicted or had its
 * last delivery: it parks the message (sb_park.h). A queue may have an exchange for expired messages alone, or let them
 * end although it has one for the others (sb_queue_carries). Two other functions end messages that a dead connection held: settle_for
 * (sb_transaction.c) and resolve_settle (sb_intent.c). An intent SETTLE is never written for a message that is parked. A
 * commit marks a message that it rejects with the counter DEAD_LETTERED, so settle_for parks it, too.
 *
 * Layout: none here.
 *
 * Invariants: I21 of sb_settle.h.
 *
 * Ordering pairs: P11 of sb_ledger.h, in sb_settle.c.
 *
 * Death (killed after -> what is left -> what the reaper of the connection does):
 *  the call began, before the intent -> the dead connection holds the message -> the reaper releases the message:
 *   it did not end.
 *  the intent SETTLE was written -> the dead connection still holds the message -> the reaper releases the message.
 *  the reference was dropped -> the message ended, its cell is still owned -> the reaper raises the counter that the
 *   intent names, and makes the cell TOMBSTONE.
 *  the cell became TOMBSTONE -> the message is not counted -> the reaper counts it, and retires the page if the page is
 *   finished.
 *  the counters were raised -> the intent is still there -> the reaper clears the intent.
 *
 * Concurrency: only the connection that holds the message calls sb_dispose, under its lock. Other connections may carry
 *  out any operation at the same time.
 */
#ifndef SB_DISPOSE_H
#define SB_DISPOSE_H

#include "sb_park.h"

/* Why a message ends. The low four bits of a reason are its counter; reasons that share a counter differ above them. */
typedef enum {
  SB_REASON_ACKED = SB_COUNT_ACKED,
  SB_REASON_EXPIRED = SB_COUNT_EXPIRED,
  SB_REASON_KILLED = SB_COUNT_KILLED, /* its queue was deleted */
  SB_REASON_PURGED = SB_COUNT_KILLED | 16,
  SB_REASON_REPLACED = SB_COUNT_REPLACED, /* newer messages fill the ring_size of the queue */
  SB_REASON_EVICTED = SB_COUNT_DROPPED,   /* the queue is full, and its overflow is drop-head */
  SB_REASON_REJECTED = SB_COUNT_DROPPED | 16,
  SB_REASON_UNREADABLE = SB_COUNT_DROPPED | 32, /* the message header is damaged */
  SB_REASON_EXHAUSTED = SB_COUNT_DROPPED | 48,  /* it was delivered as often as its queue allows */
  SB_REASON_CARRIED_OUT = SB_COUNT_DEAD_LETTERED,
  SB_REASON_TRANSFERRED = SB_COUNT_MOVED,    /* a commit published it elsewhere */
  SB_REASON_GIVEN_UP = SB_COUNT_DROPPED | 64 /* it was dead, and there was nowhere to carry it */
} sb_reason;
static inline unsigned sb_reason_counter(sb_reason reason) { return (unsigned)reason & 15u; }
/* Why a message that ends for the reason is dead. ALIVE: it never goes to a dead-letter exchange. */
static inline sb_why sb_reason_why(sb_reason reason) {
  switch (reason) {
    case SB_REASON_REJECTED: return SB_WHY_REJECTED;
    case SB_REASON_EXPIRED: return SB_WHY_EXPIRED;
    case SB_REASON_EVICTED: return SB_WHY_MAX_LENGTH;
    case SB_REASON_EXHAUSTED: return SB_WHY_DELIVERY_LIMIT;
    default: return SB_WHY_ALIVE;
  }
}
static inline bool sb_queue_has_dead_letters(const sb_queue_shm *q) {
  return (SB_LOAD(&q->flags, SB_RELAXED) & SB_QUEUE_DEAD_LETTERS) != 0;
}

/* True if the queue has an exchange for messages that are dead for the reason. */
static inline bool sb_queue_carries(const sb_queue_shm *q, sb_why why) {
  uint32_t flags = SB_LOAD(&q->flags, SB_RELAXED);
  if (why == SB_WHY_EXPIRED) {
    return (flags & (SB_QUEUE_DEAD_LETTERS | SB_QUEUE_EXPIRY_LETTERS)) != 0 && (flags & SB_QUEUE_DROPS_EXPIRED) == 0;
  }
  return why != SB_WHY_ALIVE && (flags & SB_QUEUE_DEAD_LETTERS) != 0;
}

/* Ends the message of holding `token`, or parks it, and gives the holding back. SB_SETTLED: the connection does not hold
 * the message. */
static inline sb_status sb_dispose(sb_queue *q, uint64_t token, sb_reason reason) {
  sb_why why = sb_reason_why(reason);
  if (why != SB_WHY_ALIVE && sb_queue_carries(q->shm, why) && sb_queue_is_open(q)) {
    return sb_park_dead(q, token, why);
  }
  return sb_settle_message(q, token, sb_reason_counter(reason));
}

#endif
