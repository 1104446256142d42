// SPDX-License-Identifier: Apache-2.0
/* Park: a message that was taken rests at its position, until the housekeeper looks at it.
 *
 * What: the holder of a message makes the cell SCHEDULED again. The side record of the cell says why: the message is
 * *dead*, and waits to go to the dead-letter exchange of its queue, or it is *delayed*, and becomes ready at a time. A
 * parked message counts as scheduled. The housekeeper finds it by its schedule entry (sb_schedule.h). It makes a delayed
 * message ready, and carries a dead one out: its program publishes a copy, and ends the message, in one commit.
 *
 * A process that ends a message for a reason of the table below calls sb_dispose, as for any other end. If the queue has
 * dead letters (SB_QUEUE_DEAD_LETTERS), sb_dispose parks the message in place of ending it.
 *
 * Layout: ACQUIRED(me) | REMOVING(me) -> SCHEDULED. The side record (sb_words.h): SB_SIDE_WHY, or SB_SIDE_DELAYED with
 * the time of the end of the delay in place of the generation.
 *
 * Invariants:
 *  I80 the side record is written before the cell becomes SCHEDULED, and says why the message rests as long as the cell
 *      is SCHEDULED, or REMOVING by the process that carries the message out. In any other cell, these bits of the side
 *      record mean nothing.
 *  I90 a message whose header has SB_MESSAGE_REJECTED was dead when it was put: it is SCHEDULED from the start, and dead
 *      for MAX_LENGTH although its side record does not say so (sb_park_why). It never becomes AVAILABLE. A take
 *      writes the side record.
 *
 * Ordering pairs: P11 of sb_ledger.h. The side record is stored before the flip (seq_cst); who loads the cell as
 *  SCHEDULED (acquire) then reads the side record of this rest.
 *
 * Death (killed after -> what is left -> what the reaper of the connection does):
 *  the intent PARK was written -> the dead connection owns the cell -> if the side record says why, the reaper parks the
 *   message, else it releases it.
 *  the cell became SCHEDULED -> a message that is not counted as scheduled, perhaps without a schedule entry -> the
 *   reaper counts it, and raises `timers_lost`: the housekeeper scans all cells.
 *  nobody was killed, but the queue was closed before the flip, and its disposal missed the message -> a scheduled
 *   message in a closed queue -> the next sweep of the directory removes it.
 *  a message was taken to be carried out -> REMOVING(dead), whose side record or header says why -> the reaper parks it
 *   again.
 *  a message that is dead from the start was put, before its schedule entry -> as for a delayed message (sb_queue.h).
 *
 * Concurrency: the connection that holds the message calls, under its lock, beside any other operation.
 */
#ifndef SB_PARK_H
#define SB_PARK_H

#include "sb_settle.h"

/* Why a SCHEDULED message, or one that was SCHEDULED before it was taken, is dead: as its side record or its header says
 * (I90). `flags`: those of the header. */
static inline sb_why sb_park_why(uint64_t side, unsigned flags) {
  sb_why why = sb_side_why_of(side);
  return why == SB_WHY_ALIVE && (flags & SB_MESSAGE_REJECTED) != 0 ? SB_WHY_MAX_LENGTH : why;
}
/* Parks the message of holding `token` as dead: it waits to be carried out. SB_SETTLED: the connection does not hold the
 * message. */
sb_status sb_park_dead(sb_queue *q, uint64_t token, sb_why why);
/* For the housekeeper: parks a message again that it took to carry it out, but could not. The housekeeper has noted
 * itself when to try again, so this adds no schedule entry, and does not wake it: it would try again immediately, and
 * without end. If the housekeeper dies, the next one looks at all cells. One that was stopped, and for which this one stood
 * in, looks again at what this one had in hand (sb_schedule.h). */
sb_status sb_park_again(sb_queue *q, uint64_t token, sb_why why);
/* Parks the message of holding `token` until `due_ns`. `count`: its number of deliveries from now on. */
sb_status sb_park_delayed(sb_queue *q, uint64_t token, unsigned count, uint64_t due_ns);
/* For a reaper: parks the message of a cell that the dead owner of ledger `l` owns, and counts it in that ledger. `side`:
 * the side record, which says why. */
void sb_park_for(sb_queue *q, const sb_leaf_ref *leaf, uint64_t position, uint64_t word, uint64_t side);

#endif
