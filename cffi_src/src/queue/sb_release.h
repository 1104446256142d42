// SPDX-License-Identifier: Apache-2.0
/* Release: a message that was taken comes back to its place.
 *
 * What: the holder marks the way to the cell, and opens it again. What has expired meanwhile, or whose queue was deleted, is
 * settled instead.
 *
 * Layout: ACQUIRED(me) | REMOVING(me) -> AVAILABLE.
 *
 * Invariants: I18 of sb_returned.h, I22 of sb_take.h, I23 and I42 of sb_queue.h.
 *
 * Ordering pairs: P5 of sb_returned.h: bits, cell, bits. The flip (seq_cst) comes before the last look at the queue's
 *  state (sb_closing.h).
 *
 * Death (after -> state; the reaper of the connection repairs it):
 *  side record written, bits set -> released by the reaper.  flipped -> `taken` one too high -> reconciled.
 *
 * Concurrency: by the holder, under his connection's lock, beside everybody.
 */
#ifndef SB_RELEASE_H
#define SB_RELEASE_H

#include "sb_take.h"

/* Puts a held message back to its place. */
enum { SB_RELEASE_NACK = 0, SB_RELEASE_CLEAN = 1, SB_RELEASE_UNMARKED = 2 };
sb_status sb_release_message(sb_queue *q, uint64_t token, unsigned how);

#endif
