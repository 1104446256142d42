// SPDX-License-Identifier: Apache-2.0
/* Housekeeping: what the housekeeper does for each queue at each tick.
 *
 * What: the check for missed notifications, the correction of hints when traffic rests, timers. Corrections are counted
 * (I72). The housekeeper holds its byte lock while it serves; clients notice a free byte and start another housekeeper.
 *
 * Invariants: I37 the housekeeper notifies one more node of a queue where for a whole tick a message was ready, the
 *  same consumer slept, and no message was acquired, whatever `notified` says. It counts that as a rescue. A rescue is
 *  counted separately (`stopped_rescues`) if a process that has the queue open is stopped, or is dead and not reaped
 *  yet, or does not sleep. The caller decides the least length of a tick.
 *
 * Ordering pairs: none here.
 *
 * Death: each check reads the authoritative words again, so a killed housekeeper leaves nothing half done.
 *
 * Concurrency: beside all traffic; several housekeepers would only do the same work twice.
 */
#ifndef SB_HOUSEKEEPING_H
#define SB_HOUSEKEEPING_H

#include "sb_directory.h"
#include "sb_recover.h"

void sb_housekeeping_queue(sb_connection *by, uint32_t slot, sb_queue_memory *memory);
/* If a message is ready: parks the consumers of stopped processes (sb_stopped.h), and notifies another node. That
 * counts as a rescue, in `stopped_rescues`. True if it parked any. */
bool sb_housekeeping_pass_stopped(sb_connection *by, uint32_t slot);
/* True if the queue had no traffic for some ticks, and its counts are right. */
bool sb_housekeeping_rests(const sb_queue_memory *memory);
/* True if sb_housekeeping_timers would copy more: there is a schedule entry after the cursor, or a scan of all cells to
 * do. Costs two loads. */
bool sb_housekeeping_has_timers(const sb_queue *q, const uint64_t *cursors);
/* Copies up to `room` positions that schedule entries name, from the cursor on; after `timers_lost` changed, the
 * positions of all messages with a timer. Returns the number of positions copied. `cursors` has three words, zero at
 * first, in which the call notes how far it came. */
uint32_t sb_housekeeping_timers(sb_queue *q, uint64_t *cursors, uint64_t *positions, uint32_t room);
/* Drops the schedule entries of messages that need no timer any more. */
void sb_housekeeping_trim_schedule(sb_queue *q);

#endif
