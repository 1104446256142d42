// SPDX-License-Identifier: Apache-2.0
/* Hints: what finds messages that no hint leads to, and sets hints right that are wrong.
 *
 * What: the cells and the ledgers are the truth. Here they are compared with the `returned` bits, and with `taken`,
 * `admitted` and the byte hints of a queue that tracks.
 *
 * Layout: none of its own. The hints are those of sb_queue.h, the bits those of sb_returned.h.
 *
 * Invariants: I23 of sb_queue.h, I18 of sb_returned.h, I72 of sb_repairs.h.
 *
 * Ordering pairs: none of its own.
 *
 * Death: a hint is set right by one CAS, a bit is marked by sb_returned_mark. Housekeeping is repeated from the start
 *  by the next housekeeper.
 *
 * Concurrency: by anybody, beside traffic.
 */
#ifndef SB_HINTS_H
#define SB_HINTS_H

#include "sb_queue.h"
#include "sb_repairs.h"

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

#endif
