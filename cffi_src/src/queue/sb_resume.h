// SPDX-License-Identifier: Apache-2.0
/* Resume: lets producers of a queue that was full continue only when it has emptied to a share of its limits.
 *
 * What: a queue with the overflow "block" and resume_at below 100 has a *share* for each limit: resume_at percent of
 * max_length and of max_bytes, rounded down. A put that finds no room while the queue holds more than a share *stops* the
 * queue. While it is stopped and holds more than a share, no put is admitted, whoever makes it. The first put that finds
 * it at or below its shares ends the stop, and is admitted as ever. A producer that waits in the room list needs the
 * same: it is woken by the get that empties the queue far enough (sb_notify.h), and not before. No process has to end a stop
 * for others: whether it counts is decided anew at each look, from the hints.
 *
 * Layout: `stops` of the queue is a count: odd = stopped. Each beginning and each end of a stop raises it by one.
 *
 * Invariants:
 *  I116 a put that is admitted saw, after it looked at the hints, an even `stops`; or it saw the hints at or below the
 *       shares, and raised the odd value that it had seen, before its admission.
 *
 * Ordering pairs:
 *  P38 a look loads the hints, then `stops` (seq_cst). A put raises `stops` before it raises `admitted` (seq_cst). So if
 *      a producer that waits sees an odd `stops`, and hints above a share, after which a put ends the stop, then the get
 *      that emptied the queue for this put came after that look at the hints: it sees the producer in the list.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  a stop began -> a stopped queue, which may hold less than its shares by now -> nobody: the next look finds that.
 *  a stop ended, before the admission -> a queue with less than its shares, in which producers may sleep -> the reaper
 *   of the connection wakes one, as after each admission.
 *
 * Concurrency: any process, without a lock. The limits stay exact: a stop only refuses what they would admit.
 */
#ifndef SB_RESUME_H
#define SB_RESUME_H

#include "sb_layout.h"

/* What a queue holds, and its limits; a negative limit is none. The caller fills in the first two from the hints before
 * it calls one of the functions (P38). */
typedef struct {
  int64_t ready, bytes;
  int64_t max_length, max_bytes;
} sb_depth;

/* True if the queue has shares: the caller has checked that its overflow is "block". */
static inline bool sb_resume_later(const sb_queue_shm *q) {
  int64_t percent = sb_setting(q, SB_SETTING_RESUME_AT);
  return percent > 0 && percent < 100;
}
/* True if the queue is stopped, and holds more than a share. */
bool sb_resume_stops(const sb_queue_shm *q, const sb_depth *d);
/* For a put: ends a stop if the queue holds no more than its shares. False: the put must wait. *again:
 * another put changed `stops` meanwhile, so the caller reads the hints anew, and calls again. */
bool sb_resume_passes(sb_queue_shm *q, const sb_depth *d, bool *again);
/* After a put found no room: stops the queue, if it holds more than a share. */
void sb_resume_stop(sb_queue_shm *q, const sb_depth *d);

#endif
