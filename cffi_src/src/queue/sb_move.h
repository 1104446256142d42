// SPDX-License-Identifier: Apache-2.0
/* Move: moves a message from one queue to another.
 *
 * What: the message keeps its slot. The slot gets a second reference, for a cell of the target queue; then the source
 * cell drops its reference.
 *
 * Layout: the source cell is REMOVING(me). The target cell is REMOVING(me) as well, until the source is settled.
 *
 * Invariants: I38 of sb_view.h, I42 of sb_queue.h.
 *
 * Ordering pairs: none here.
 *
 * Death (killed after -> what is left -> what the reaper of the connection does, in resolve_move of sb_intent.c):
 *  the intent MOVE was written -> the slot perhaps has the second reference, and no target cell names it -> the reaper
 *   drops the second reference, and releases the source cell.
 *  the target cell was appended -> the target cell is REMOVING(dead), perhaps without side record and origin
 *   (sb_ring.h) -> the reaper writes the side record and the origin, both from the source cell, settles the source
 *   cell, then releases the target cell. The message keeps its delivery count, and is marked redelivered only if it was
 *   before.
 *  the source cell was settled -> the target cell is REMOVING(dead) -> the reaper releases the target cell.
 *
 * Concurrency: any process, with its connection's lock.
 */
#ifndef SB_MOVE_H
#define SB_MOVE_H

#include "sb_limits.h"

/* Moves the oldest ready message before position `end`, in the lane of `end`, to `target`. *size: the length of its body. SB_EMPTY:
 * there is no such message. Any other failure, for instance SB_FULL of `target`, leaves the message in `q`. */
sb_status sb_move_one(sb_queue *q, sb_queue *target, uint64_t end, uint64_t *size);
/* Moves the ready message at `position`, as above. SB_EMPTY: another process was faster. */
sb_status sb_move_at(sb_queue *q, sb_queue *target, uint64_t position, uint64_t *size);

#endif
