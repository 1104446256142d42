// SPDX-License-Identifier: Apache-2.0
/* Release: makes a message that was taken AVAILABLE again, at its old position.
 *
 * What: the holder of the message sets the `requeued` bits that lead to the cell, then makes the cell AVAILABLE. A
 * message that has expired, or whose queue was deleted, is settled instead.
 *
 * Layout: ACQUIRED(me) | REMOVING(me) -> AVAILABLE.
 *
 * Invariants: I18 of sb_requeued.h, I22 of sb_take.h, I23 and I42 of sb_queue.h.
 *
 * Ordering pairs: P5 of sb_requeued.h: the holder sets the bits, flips the cell, then looks at the bits again. The flip
 *  (seq_cst) comes before the last read of the queue's state (sb_closing.h).
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the side record was written, or the bits were set -> the dead connection still owns the cell -> the reaper releases
 *   the cell.
 *  the cell became AVAILABLE -> `taken` may be one too high -> the reaper, or the housekeeper, corrects `taken`
 *   (sb_hints_reconcile).
 *
 * Concurrency: the holder, under its connection's lock, beside any other operation.
 */
#ifndef SB_RELEASE_H
#define SB_RELEASE_H

#include "sb_take.h"

/* Makes a delivered message AVAILABLE again, marked redelivered. SB_UNDELIVER: the delivery is not counted; SB_REQUEUE:
 * it is. */
sb_status sb_release_message(sb_queue *q, uint64_t token, sb_disposition disposition);
/* Makes a message AVAILABLE again that was taken to remove it, and is not removed. It was not delivered. */
sb_status sb_release_unmarked(sb_queue *q, uint64_t token);

#endif
