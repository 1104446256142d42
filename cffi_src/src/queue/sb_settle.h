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
 *      the holder makes the cell TOMBSTONE. A cell of a row whose leaf was linked has none any more (I76 of
 *      sb_move_page.h).
 *
 * Ordering pairs: P11 of sb_ledger.h.
 *
 * Death (killed after -> what is left -> what the reaper of the connection does):
 *  the intent SETTLE was written -> the dead connection holds the message -> the reaper releases the message, which did
 *   not end.
 *  the reference was dropped -> the message ended, its cell is still owned -> the reaper counts the end, and makes the
 *   cell TOMBSTONE.
 *
 * Concurrency: the connection that holds the message calls, under its lock, beside any other operation.
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
  bool bytes_paid; /* the bytes of the message were added to `bytes_out` before the take */
  bool delivered;  /* the cell is ACQUIRED: the message was taken for a consumer */
} sb_taken;

/* Finds the message that holding `token` of connection `c` lists: fills *t, except `bytes_paid`, and *leaf with the
 * leaf of its cell. False: `c` holds no such message; `token` may be any number. */
bool sb_settle_find(sb_connection *c, uint64_t token, sb_taken *t, sb_leaf_ref *leaf);
/* True if the header of a message fits its slot, so that its names and its body can be read. `m`: the header, or a copy
 * of it. */
bool sb_settle_is_sound(sb_broker *b, uint32_t slot, const sb_message_shm *m);
/* Ends what holding `token` says that a consumer reads; `again`: the consumer gets the message once more (sb_reading.h). For
 * those who found no message under the token. SB_SETTLED: it reads nothing either. */
static inline sb_status sb_settle_reading(sb_connection *c, uint64_t token, bool again) {
  return c->end_reading != NULL ? c->end_reading(c, token, again) : SB_SETTLED;
}
/* Ends the message of holding `token`, and raises the counter `counter` of the ledger. Only sb_dispose calls this
 * function: it knows which counter belongs to the reason of the end (sb_dispose.h). SB_SETTLED: the connection does not
 * hold the message. If the token is that of a reading (sb_reading.h), ends the reading, and no message. */
sb_status sb_settle_message(sb_queue *q, uint64_t token, unsigned counter);
/* As sb_settle_message, for a message that was moved to another queue: counts it as MOVED, under the intent MOVE that
 * the caller has begun, and ends that intent. But if it returns SB_SETTLED, it does not end the intent. */
sb_status sb_settle_moved(sb_queue *q, uint64_t token);

#endif
