// SPDX-License-Identifier: Apache-2.0
/* Housekeeping: what the housekeeper does for each queue at each tick.
 *
 * What: ends queues whose time has come (sb_lifetime.h), checks for missed notifications, corrects hints when a queue
 * has no traffic, and finds messages with a timer. Corrections are counted (I72 of sb_repairs.h), except those of
 * counts of nodes while nodes move, and of the count of nodes that wait for memory. The housekeeper holds a lock on a
 * byte of the lock file while it serves; a client that finds the byte unlocked starts another housekeeper.
 *
 * Invariants: I37 the housekeeper notifies one more node of a queue if during a whole tick a message was ready, the
 *  same consumer slept, and no message was acquired. It does so even if the count `notified` says that nodes are
 *  notified already, and counts that as a rescue: in `stopped_rescues` if another cause than a lost notification is
 *  likely, else in `rescues`. Such a cause is a process that has the queue open and is stopped, or is dead and not
 *  reaped yet, or is awake and may just be slow. A whole tick is the time between two calls of sb_housekeeping_queue
 *  for the queue; the caller decides its least length.
 *
 * Ordering pairs: none here.
 *
 * Death: the next housekeeper, or a reaper, finishes what a killed housekeeper left half done. The next housekeeper
 * needs no record of that, since each check reads the authoritative words again.
 *
 * Concurrency: beside all traffic; several housekeepers would only do the same work twice.
 */
#ifndef SB_HOUSEKEEPING_H
#define SB_HOUSEKEEPING_H

#include "sb_directory.h"
#include "sb_recover.h"

void sb_housekeeping_queue(sb_connection *by, uint32_t slot, sb_queue_memory *memory);
/* Parks the consumers of stopped processes at a queue that has a ready message (sb_stopped.h). If it parked any,
 * notifies another node, counts that as a rescue in `stopped_rescues`, and returns true. */
bool sb_housekeeping_pass_stopped(sb_connection *by, uint32_t slot);
/* True if the queue had no traffic for REST_TICKS (16) ticks or more, and the last recount found no wrong count of its
 * nodes. */
bool sb_housekeeping_rests(const sb_queue_memory *memory);
/* Drops dead entries of the list of nodes that wait for memory, and frees its finished pages. Then corrects the count
 * of these nodes, if this call and the previous one found the same wrong count. */
void sb_housekeeping_scrub_waiting(sb_connection *by);
/* True if sb_housekeeping_timers may find positions to copy: the schedule list has an entry at cursors[0] or after it,
 * or a scan of all cells is due or not finished. Costs two loads. */
bool sb_housekeeping_has_timers(const sb_queue *q, const uint64_t *cursors);
/* Copies up to `room` positions of messages with a timer, and returns how many it copied. The positions come from the
 * schedule list; after `timers_lost` changed, from a scan of all cells. `cursors` has three words, zero at first, in
 * which a call notes where the next call continues. */
uint32_t sb_housekeeping_timers(sb_queue *q, uint64_t *cursors, uint64_t *positions, uint32_t room);
/* Drops the schedule entries whose position has no message any more. */
void sb_housekeeping_trim_schedule(sb_queue *q);

#endif
