// SPDX-License-Identifier: Apache-2.0
/* Take: a ready message becomes somebody's.
 *
 * What: the oldest AVAILABLE cell, or the one at a given position, is taken by one CAS that writes the connection into it:
 * for a consumer (ACQUIRED), or to remove it (REMOVING: eviction, purge, expiry, move). The oldest is looked for first among
 * what came back (sb_returned.h), then from the handle's cursor on.
 *
 * Layout: AVAILABLE -> ACQUIRED(me) | REMOVING(me);  HELD -> REMOVING(me).
 *
 * Invariants:
 *  I22 only the owner of an ACQUIRED or REMOVING cell changes it (or, after its death, its reapers).
 *  I24 evictions are paid for in advance: `taken` is raised by CAS only while pending > bound.
 *      A victim is not taken if too little is pending just before: a consumer counted itself, and has or will have an
 *      older one. Else consumers would pass it over, and get it behind newer ones. Who counts itself later takes a newer
 *      one, and spares nothing. A victim is put back only if an older one came back meanwhile.
 *  I53 whoever passes a STAGED cell sets its `returned` bits first: what becomes of it is found. Whoever found one to take looks
 *      again at what was passed before it, so that the messages of a producer stay in order.
 *
 * Ordering pairs: P1, P2, P3, P5, P8 of other layers: the holding before the CAS; the cell before its message; a second look
 *  at a cell after its bit was cleared.
 *
 * Death (after -> state; the reaper of the connection repairs it):
 *  holding written -> nothing.  bit cleared -> AVAILABLE, listed -> marked again.
 *  acquire CAS -> ACQUIRED(dead) -> AVAILABLE, marked redelivered.  REMOVING(dead) -> AVAILABLE without mark or count.
 *
 * Concurrency: all of it by any number of processes; inside one connection under its lock.
 */
#ifndef SB_TAKE_H
#define SB_TAKE_H

#include "sb_settle.h"

/* Takes the oldest AVAILABLE message, of those before that position; `token` is a free holding that becomes the message's.
 * Who names a position and gets SB_EMPTY enforces the queue's limits afterwards (I42). */
#define SB_ANY_POSITION UINT64_MAX
sb_status sb_take_oldest(sb_queue *q, unsigned state, uint64_t before, uint64_t token, sb_taken *t);
/* Why a victim goes: just before it is taken the hints say that as many messages are ready, and as many bytes. */
typedef struct {
  bool paid; /* the victim is counted in `taken` already */
  int64_t least_ready, least_bytes;
} sb_excess;
/* Takes the oldest AVAILABLE message to evict it. SB_EMPTY: there is none. SB_DONE: the excess is gone, so it stays (I24). */
sb_status sb_take_victim(sb_queue *q, const sb_excess *excess, uint64_t token, sb_taken *t);
/* Takes the cell at that position, to remove it, if it still is in state `from`. */
sb_status sb_take_at(sb_queue *q, uint64_t position, unsigned from, uint64_t token, sb_taken *t);
/* Takes the oldest message for a consumer: expired ones are removed on the way; SB_EMPTY while paused. */
sb_status sb_take_for_consumer(sb_queue *q, uint64_t token, sb_taken *t);
/* Takes the ready message at that position for a consumer; `returned`: it was announced that it came back. As above (I42). */
sb_status sb_take_for_consumer_at(sb_queue *q, uint64_t position, bool returned, uint64_t token, sb_taken *t);
/* Goes past a STAGED cell; and may that have happened here? Then who found one to take looks again (I53). */
void sb_take_pass_staged(sb_queue *q, uint64_t position);
bool sb_take_passed_some(const sb_queue *q);

#endif
