// SPDX-License-Identifier: Apache-2.0
/* Upkeep: what keeps a queue right beside the traffic, and how it ends.
 *
 * What: closing (delete), finding cells that no hint leads to, setting drifted hints right, scheduled and expiring
 * messages, moving messages to another queue, freeing a closed queue that nobody has open.
 *
 * Invariants:
 *  I26 a HELD message, and one that expires, has an entry (its position) in the schedule list before its put returns.
 *
 * Ordering pairs: none of its own; those of sb_closing.h when a queue ends.
 *
 * Death: CLOSING appended: see sb_closing.h. CLOSED, messages left -> removed by the next who looks.
 *  A move: see intent MOVE in sb_judge.c. Its target cell is REMOVING(dead) until it has side record and origin: killed
 *  before, its reaper writes both, the origin from the source, which goes later. Housekeeping is repeated from the start
 *  by the next housekeeper.
 *
 * Concurrency: close and free under the topology lock; the rest by anybody.
 */
#ifndef SB_UPKEEP_H
#define SB_UPKEEP_H

#include "sb_limits.h"
#include "sb_repairs.h"

/* Closes the queue; SB_IN_USE or SB_NOT_EMPTY when a condition does not hold. *removed: ready messages that went. */
sb_status sb_upkeep_close(sb_queue *q, bool if_unused, bool if_empty, uint64_t *removed);
/* Removes what is left in a closed queue: ready and held messages. */
uint64_t sb_upkeep_dispose(sb_queue *q);
/* Marks AVAILABLE cells below the head that no bit leads to, and counts that as a repair (sb_repairs.h); returns how many. */
uint64_t sb_upkeep_resurface(sb_broker *b, const sb_queue_shm *q, const sb_ring *r, uint64_t deaths_before);
/* Is there such a cell? */
bool sb_upkeep_hides(sb_broker *b, const sb_ring *r);
/* Is a message before `end` ready? Asks the cells, since the accounts may be wrong for as long as somebody is stopped. */
bool sb_upkeep_has_ready(sb_broker *b, const sb_ring *r, uint64_t end);
/* Resurfaces for a consumer that found nothing although the hints say there is something; at most once per tick. */
uint64_t sb_upkeep_rescan(sb_queue *q);
/* Sets `taken`, `admitted` and the byte hints right if two readings of the ledgers agree; BUSY: somebody is changing them. */
typedef enum { SB_HINTS_RIGHT, SB_HINTS_SET_RIGHT, SB_HINTS_BUSY } sb_hints;
sb_hints sb_upkeep_reconcile(sb_broker *b, sb_queue_shm *q);
/* After a queue got limits for the first time: its hints begin to mean something. */
void sb_upkeep_start_tracking(sb_broker *b, sb_queue_shm *q);
/* Turns a due message AVAILABLE (or removes an expired one). Returns when it wants to be looked at again, 0 = never. */
uint64_t sb_upkeep_look_at(sb_queue *q, uint64_t position, uint64_t now_ns, bool *made_ready);
/* Moves the oldest ready message; SB_EMPTY when there is none below `end`. *size: of its body. */
sb_status sb_upkeep_move_one(sb_queue *q, sb_queue *target, uint64_t end, uint64_t *size);
/* Frees a CLOSED queue that nobody has open and that holds nothing; true when it is gone. */
bool sb_upkeep_free(sb_connection *c, uint32_t slot);

#endif
