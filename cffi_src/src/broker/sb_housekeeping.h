// SPDX-License-Identifier: Apache-2.0
/* Housekeeping: what the housekeeper does for each queue at each tick.
 *
 * What: the missed-notification check, setting hints right when traffic rests, timers. What it mends is counted (I72). It holds the housekeeper's byte
 * lock while it serves; clients notice a free byte and start another.
 *
 * Invariants: I37 a queue where for a whole tick something was ready, the same consumer slept, and nothing was acquired has
 *  one more notified, whatever `notified` says; that is counted as a rescue, apart when one of those who have the queue
 *  open is stopped, or dead and not reaped yet, or does not sleep. How long a tick is at least is the caller's.
 *
 * Ordering pairs: none of its own.
 *
 * Death: nothing is half done here: each check reads the truth anew.
 *
 * Concurrency: beside everything; several housekeepers would only do the same work twice.
 */
#ifndef SB_HOUSEKEEPING_H
#define SB_HOUSEKEEPING_H

#include "sb_directory.h"
#include "sb_recover.h"

/* What the housekeeper remembers of a queue from tick to tick, which its caller keeps. */
typedef struct {
  uint64_t last_take, tail, quiet_ticks, wrong_ticks;
  uint64_t cursors[3]; /* how far its timers are known, see sb_housekeeping_timers */
  uint64_t new_timers; /* 1: there are more */
  uint64_t known_tail; /* at the last tick: what came since, its producer may be about to tell of */
  uint64_t sleeper;    /* who would have been told then */
  uint64_t deaths; /* of processes, when all of the queue was right; SB_DEATHS_UNKNOWN: what we mended may be wrong */
} sb_queue_memory;
_Static_assert(sizeof(sb_queue_memory) == SB_MEMORY_WORDS * sizeof(uint64_t), "memory of a queue");

void sb_housekeeping_queue(sb_connection *by, uint32_t slot, sb_queue_memory *memory);
/* Where something is ready: parks the consumers of stopped processes (sb_stopped.h), and tells another one, which is a rescue of
 * those that are counted apart. True if there were such. */
bool sb_housekeeping_pass_stopped(sb_connection *by, uint32_t slot);
/* Has nothing happened for a while, and is everything right? */
bool sb_housekeeping_rests(const sb_queue_memory *memory);
/* Is there an entry behind the cursor of the schedule, or a scan of all cells to do? Two loads. */
bool sb_housekeeping_has_timers(const sb_queue *q, const uint64_t *cursors);
/* Copies positions of schedule entries from *cursor on; with timers_lost, of all cells that have a timer. */
uint32_t sb_housekeeping_timers(sb_queue *q, uint64_t *cursors, uint64_t *positions, uint32_t room);
/* Drops the schedule entries of messages that need no timer any more. */
void sb_housekeeping_trim_schedule(sb_queue *q);

#endif
