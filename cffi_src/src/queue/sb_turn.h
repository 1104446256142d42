// SPDX-License-Identifier: Apache-2.0
/* Turn: lets a producer have room that needs more of it than others, who would pass it for as long as they come.
 *
 * What: a producer that waits for room in a queue with the overflow "block" takes the queue's turn when others were
 * admitted while it waited. The turn names what the producer needs: a number of messages, and their bytes. While the
 * turn lasts, a put that needs less in a dimension that the queue limits waits, even if there is room for it. A put that
 * needs as much, or more, is admitted as ever: so the producer with the turn needs no name, and its own put is admitted.
 * That admission ends the turn. A turn lasts for SB_TURN_NS, and the producer prolongs it as long as it waits. The turn
 * decides who waits, never how much a queue holds: the limits do not depend on it.
 *
 * Layout: `turn_until_ns` of the queue: CLOCK_MONOTONIC; 0 = there is no turn. `turn_needs`: 32 bytes (at most
 * UINT32_MAX) | 32 messages.
 *
 * Invariants:
 *  I91 a put waits for a turn only until `turn_until_ns`. No process prolongs the turn of another one.
 *  I92 while a turn lasts, no put that is smaller than what `turn_needs` names is admitted after it read both words.
 *
 * Ordering pairs: none. A put may read the needs of an earlier turn for a moment, and then waits or is admitted as in
 *  that turn. So both words may be read in any order.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the turn was taken, before or after its needs were stored -> a turn that its owner does not prolong, perhaps with the
 *   needs of an earlier one -> nobody: it is over at `turn_until_ns`. Producers that it made wait look again then, or are
 *   woken by the reaper of the owner's node or by the housekeeper (sb_housekeeping.h).
 *  the message was admitted, before the turn ended -> the same.
 *  the turn ended, before another producer was woken -> a producer sleeps beside room -> the reaper of the connection, as
 *   after each admission.
 * The same holds for an owner that is stopped.
 *
 * Concurrency: any process, without a lock.
 */
#ifndef SB_TURN_H
#define SB_TURN_H

#include "sb_queue.h"

#define SB_TURN_NS UINT64_C(200000000)

/* True if the queue has a turn, or had one that nobody ended. */
static inline bool sb_turn_there(const sb_queue_shm *q) {
  return SB_LOAD(&q->turn_until_ns, SB_RELAXED) != 0; /* relaxed: see above */
}
/* True if the turn of another producer lasts, which needs more than `count` messages with `bytes` bytes in total. */
bool sb_turn_stops(const sb_queue_shm *q, uint64_t count, uint64_t bytes);
/* True if others that need less could pass a producer that needs room for so much. */
bool sb_turn_matters(const sb_queue_shm *q, uint64_t count, uint64_t bytes);
/* Takes the turn, or prolongs it. *mine: the end of the caller's turn; 0: it has none, which is also the result if
 * another producer has the turn. */
void sb_turn_take(sb_queue_shm *q, uint64_t count, uint64_t bytes, uint64_t *mine);
/* Ends the caller's turn, if it lasts: its wait ends without an admission. */
void sb_turn_give_up(sb_queue_shm *q, uint64_t mine);
/* Ends a turn whose needs are at most `count` messages with `bytes` bytes: these were admitted. True: it ended one, so
 * the caller wakes a producer. */
bool sb_turn_ends(sb_queue_shm *q, uint64_t count, uint64_t bytes);

#endif
