// SPDX-License-Identifier: Apache-2.0
/* Departure: which leaves of stored queues leave the memory, and how messages come back from rows of the store.
 *
 * What: the storekeeper lets leaves leave when memory runs short (sb_paged.h has the protocol), the newest ones of a queue
 * first: consumers need them last. A connection that needs a message that is not in the memory makes its leaf again, from
 * the rows that the store has for it.
 *
 * Layout: rows, see sb_row.h.
 *
 * Invariants: those of sb_paged.h, and
 *  I130 a queue whose messages are found by something else than a search along its ring keeps them in the memory: one with
 *      message groups, last values, a sort key, one that is non-destructive, and one that tracks (sb_queue_tracks), since
 *      its hints are corrected by what the cells say. So does a queue of leased messages (SB_QUEUE_KEEPS): other programs
 *      have references to the slots of these. So does a leaf whose bodies have more than a SB_LEAF_SHARE of the memory, and
 *      one with a message that is delayed, dead, or expires soon. A leaf with a message that expires later
 *      leaves. The storekeeper then knows the time, and lets the leaf come back; its messages are scheduled again, and the
 *      housekeeper ends those that have expired. A storekeeper that was killed knew the times alone: the next one looks
 *      into the store.
 *  I135 a leaf leaves only if the store has its transient messages as well. The storekeeper knows from which position on
 *      it has left some out, and lets no leaf leave that ends behind it. It has to know: to read the properties of 64 messages
 *      beside their consumers costs more than all else that a departure looks at. A storekeeper that has just begun
 *      looks at everything (I120 of sb_changed.h), and so finds what the store lacks.
 *
 * Ordering pairs: P45 of sb_paged.h.
 *
 * Death: see sb_paged.h.
 *
 * Concurrency: the storekeeper lets leaves leave; any connection, under its lock, lets them come back.
 */
#ifndef SB_DEPARTURE_H
#define SB_DEPARTURE_H

#include "sb_paged.h"
#include "sb_queue.h"
#include "sb_row.h"

#define SB_SOON_NS UINT64_C(1000000000) /* a message that expires before this time has passed keeps its leaf */

/* Lets up to `most` leaves of a ring leave, the last ones first; only such that lie between two positions, as a whole.
 * Returns how many have left. *expiring: as of sb_store_leave, but with the first position of each leaf; may be NULL. */
uint32_t sb_departure_run(sb_queue *q, const sb_ring *r, uint64_t from, uint64_t end, uint32_t most,
                          sb_expiring *expiring, uint32_t *count);

#endif
