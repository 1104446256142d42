// SPDX-License-Identifier: Apache-2.0
/* Release: a message that was taken becomes AVAILABLE again, at its old position.
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
 *  the cell became AVAILABLE -> `taken` may be one too high, and `bytes_out` too high by the body -> the reaper, or the
 *   housekeeper, lowers `taken`, and raises `bytes_in` so that it fits `bytes_out` (sb_hints_reconcile).
 *
 * Concurrency: the connection that holds the message calls, under its lock, beside any other operation.
 */
#ifndef SB_RELEASE_H
#define SB_RELEASE_H

#include "sb_take.h"

/* Makes the delivered message of holding `token` AVAILABLE again, marked redelivered. `disposition`: SB_UNDELIVER does
 * not count the delivery, SB_REQUEUE counts it. With SB_REQUEUE the message may rest for the redelivery_delay of its
 * queue first (sb_park.h), and it ends if its queue allows no further delivery. A dead message, which the connection
 * was about to carry out, is parked again. If the token is that of a reading (sb_reading.h), ends the reading; with
 * SB_REQUEUE its consumer gets the message again. SB_SETTLED: the connection does not hold the message. */
sb_status sb_release_message(sb_queue *q, uint64_t token, sb_disposition disposition);
/* True if the queue delivers a message no more that was delivered `count` times (max_delivery_attempts). */
bool sb_release_exhausts(const sb_queue_shm *q, unsigned count);
/* Makes the REMOVING message of holding `token` AVAILABLE again: the caller took the message, but keeps it in the
 * queue. No consumer got the message, so it is not marked redelivered. SB_SETTLED: the connection does not hold the
 * message. */
sb_status sb_release_unmarked(sb_queue *q, uint64_t token);

#endif
