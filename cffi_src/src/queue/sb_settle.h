// SPDX-License-Identifier: Apache-2.0
/* Settle: a message that was taken ends.
 *
 * What: acknowledged, rejected, expired, purged, evicted: the holder drops the cell's reference to the slot, and the cell is
 * finished. Which of them it was is a counter. What is to come back instead: sb_release.h.
 *
 * Layout: ACQUIRED(me) | REMOVING(me) -> TOMBSTONE.
 *
 * Invariants:
 *  I21 a cell that names a slot has its reference bit, until the holder drops it; the holder writes TOMBSTONE after that.
 *
 * Ordering pairs: P11 of sb_ledger.h.
 *
 * Death (after -> state; the reaper of the connection repairs it):
 *  intent SETTLE -> nothing.  reference dropped -> counted, TOMBSTONE.
 *
 * Concurrency: by the holder, under his connection's lock, beside everybody.
 */
#ifndef SB_SETTLE_H
#define SB_SETTLE_H

#include "sb_queue.h"

/* A message that somebody holds. */
typedef struct {
  uint64_t token, position, gen, side;
  sb_message_shm *message;
  uint32_t slot;
  unsigned ref;
  bool bytes_paid; /* its bytes were counted as gone before it was taken */
} sb_taken;

/* What a holding names; false when it is not a held message of this connection. */
bool sb_settle_find(sb_connection *c, uint64_t token, sb_taken *t, sb_leaf_ref *leaf);
/* Ends a message held under `token`, for the reason `counter`. */
sb_status sb_settle_message(sb_queue *q, uint64_t token, unsigned counter);
/* The same under an intent that stands already (a move). */
sb_status sb_settle_as(sb_queue *q, uint64_t token, unsigned intent, unsigned counter);

#endif
