// SPDX-License-Identifier: Apache-2.0
/* Schedule: messages that become ready later, and those that expire.
 *
 * What: what becomes of a message when the housekeeper comes to its entry in the schedule list: a due one becomes
 * ready, an expired one goes. sb_queue_schedule of sb_queue.h makes the entry.
 *
 * Layout: an entry of the schedule list is a position of the queue.
 *
 * Invariants:
 *  I26 a HELD message, and one that expires, has an entry (its position) in the schedule list before its put returns.
 *
 * Ordering pairs: none of its own.
 *
 * Death: a cell that was taken is REMOVING(dead): released or settled by the reaper. That one left HELD is counted
 *  under the intent DUE (sb_judge.c). Housekeeping is repeated from the start by the next housekeeper.
 *
 * Concurrency: by anybody, with the connection's lock.
 */
#ifndef SB_SCHEDULE_H
#define SB_SCHEDULE_H

#include "sb_take.h"

/* Takes a cell in that state; leaving HELD is counted under an intent. */
bool sb_schedule_take(sb_queue *q, uint64_t position, unsigned state, uint64_t token, sb_taken *t);
/* Becomes ready, for the first time or again. One that comes to a full ring loses by age; and I42. */
void sb_schedule_make_ready(sb_queue *q, uint64_t token);
/* Turns a due message AVAILABLE (or removes an expired one). Returns when it wants to be looked at again, 0 = never. */
uint64_t sb_upkeep_look_at(sb_queue *q, uint64_t position, uint64_t now_ns, bool *made_ready);

#endif
