// SPDX-License-Identifier: Apache-2.0
/* Settle: ends a message that was taken.
 *
 * What: the holder of the message drops the cell's reference to the slot, makes the cell TOMBSTONE, and counts the end.
 * sb_dispose.h has the reasons for which a message ends; sb_release.h returns a message to the queue instead.
 *
 * Layout: ACQUIRED(me) | REMOVING(me) -> TOMBSTONE.
 *
 * Invariants:
 *  I21 a cell that names a slot has a reference to that slot until the holder of the message drops the reference. Then
 *      the holder makes the cell TOMBSTONE.
 *
 * Ordering pairs: P11 of sb_ledger.h.
 *
 * Death (killed after -> what is left -> what the reaper of the connection does):
 *  the intent SETTLE was written -> the dead connection holds the message -> the reaper releases the message, which did
 *   not end.
 *  the reference was dropped -> the message ended, its cell is still owned -> the reaper counts the end, and makes the
 *   cell TOMBSTONE.
 *
 * Concurrency: the holder, under its connection's lock, beside any other operation.
 */
#ifndef SB_SETTLE_H
#define SB_SETTLE_H

#include "sb_queue.h"

/* A message that a connection holds. */
typedef struct {
  uint64_t token, position, gen, side;
  sb_message_shm *message;
  uint32_t slot;
  unsigned ref;
  bool bytes_paid; /* `bytes_out` counted its bytes before it was taken */
} sb_taken;

/* Finds the message of holding `token`, and the leaf of its cell. False: the connection holds no message there. */
bool sb_settle_find(sb_connection *c, uint64_t token, sb_taken *t, sb_leaf_ref *leaf);
/* Ends the message of holding `token`. Only sb_dispose calls this function; it chooses the counter (sb_dispose.h). */
sb_status sb_settle_message(sb_queue *q, uint64_t token, unsigned counter);
/* The same. Intent MOVE: the caller began the intent already; intent SETTLE: the function begins it. */
sb_status sb_settle_as(sb_queue *q, uint64_t token, unsigned intent, unsigned counter);

#endif
