// SPDX-License-Identifier: Apache-2.0
/* Repairs: counts what upkeep corrects, by kind and by whether a death or a stop explains it.
 *
 * What: *upkeep* looks for inconsistencies, and corrects each one that it finds. The housekeeper does it, and so do IO
 * threads, and searches that find no message although some are ready. A death explains an inconsistency, and so does a
 * process that is stopped, or gets no processor, between two steps that belong together. So do short memory (below) and
 * a watch for room (`room_watched` in sb_layout.h). Any other inconsistency is a defect, which the repair would hide;
 * such a repair is counted separately.
 *
 * Layout: `repairs` and `explained_repairs` of sb_header_shm, one number for each kind.
 *
 * Invariants:
 *  I72 a repair counts as a defect only if no process that has the queue open can have been between two steps. Upkeep
 *      sees the inconsistency, finds each of these processes asleep, and sees the same inconsistency again: a process
 *      that runs may be about to make its next step. Hints that `hinting` of a ledger guards (I23 of sb_queue.h) need
 *      no second look.
 *
 * Ordering pairs: none here; they are those of the modules whose words upkeep reads and corrects.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the repair was made but not counted, or counted but not made -> a count that is wrong by one -> no process: the
 *   count stays wrong.
 * A death explains the housekeeper's repairs of a queue until a tick finds the whole queue consistent. It explains
 * those of an IO thread until the thread's next look at its targets, and those of a search (sb_hints_rescan) until the
 * next such search by the same handle.
 *
 * Memory: in a broker that has only its reserve left, a notified process may find no memory for its next step. That
 *  explains all repairs there except SB_REPAIR_ACCOUNT: only a death, or SB_TRACKING_UNSURE, explains a wrong account.
 *
 * Concurrency: any process, at any time, without waiting.
 */
#ifndef SB_REPAIRS_H
#define SB_REPAIRS_H

#include "sb_ledger.h"
#include "sb_liveness.h"

enum {
  /* a consumer or waiting call slept although a message was ready: it was NOTIFIED, or no node of the queue was */
  SB_REPAIR_NOTIFICATION = 0,
  SB_REPAIR_ROOM,    /* a producer slept although the queue had room for its message */
  SB_REPAIR_COUNT,   /* a wrong count of nodes in the queue's lists: interested, room_waiting ... */
  SB_REPAIR_ACCOUNT, /* `taken`, `admitted`, or the byte hints */
  SB_REPAIR_MARK,    /* a hidden cell (sb_hints.h): a ready message that no search finds */
  SB_REPAIR_END,     /* an open queue that should have ended by itself (sb_lifetime.h) */
};
_Static_assert(SB_REPAIR_END + 1 == SB_REPAIRS, "kinds of repairs");

/* True if a process that has the queue open may be between two steps. Such a process is stopped, or is dead and not
 * reaped, or is not shown by /proc, or has a thread that runs, or waits for a processor or a disk. A waiting thread
 * counts, since a busy machine may delay it for longer than a tick of the housekeeper. */
bool sb_repairs_somebody_halted(sb_broker *b, const sb_queue_shm *q);
/* The number of reaped processes. If it changed since a queue was last found consistent, deaths explain the repairs of
 * that queue. */
uint64_t sb_repairs_deaths(const sb_broker *b);
#define SB_DEATHS_UNKNOWN UINT64_MAX
bool sb_repairs_explained(sb_broker *b, const sb_queue_shm *q, uint64_t deaths_before);
void sb_repairs_count(sb_broker *b, unsigned kind, bool explained);

#endif
