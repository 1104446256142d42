// SPDX-License-Identifier: Apache-2.0
/* Move: a message goes from one queue to another.
 *
 * What: the slot stays where it is. It gets a second reference, for a cell of the target; then the source drops its
 * own.
 *
 * Layout: the source cell is REMOVING(me). So is the target cell, until the source is settled.
 *
 * Invariants: I38 of sb_view.h, I42 of sb_queue.h.
 *
 * Ordering pairs: none of its own.
 *
 * Death: see intent MOVE in sb_judge.c. The target cell is REMOVING(dead) until it has side record and origin: killed
 *  before, its reaper writes both, the origin from the source, which goes later.
 *
 * Concurrency: by anybody, with the connection's lock.
 */
#ifndef SB_MOVE_H
#define SB_MOVE_H

#include "sb_limits.h"

/* Moves the oldest ready message; SB_EMPTY when there is none below `end`. *size: of its body. */
sb_status sb_upkeep_move_one(sb_queue *q, sb_queue *target, uint64_t end, uint64_t *size);

#endif
