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
 *      have references to the slots of these. So does a leaf with a message that has a timer, and one whose bodies have
 *      more than a SB_LEAF_SHARE of the memory.
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

/* Lets up to `most` leaves of a ring leave, the last ones first; only such that lie between two positions, as a whole.
 * Returns how many have left. */
uint32_t sb_departure_run(sb_queue *q, const sb_ring *r, uint64_t from, uint64_t end, uint32_t most);

#endif
