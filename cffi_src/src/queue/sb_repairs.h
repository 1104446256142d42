// SPDX-License-Identifier: Apache-2.0
/* Repairs: what upkeep mends although nobody should have left it so, counted by kind.
 *
 * What: upkeep mends whatever it finds wrong. A death explains that; so does a process that is stopped, or gets no processor,
 * in the middle of what it owes. Anything else is a defect that the repair hides: it is counted apart.
 *
 * Layout: `repairs` and `explained_repairs` of sb_header_shm, one number for each kind.
 *
 * Invariants:
 *  I72 a repair of what may be under way counts as a defect only if the same was seen wrong before and after a look at all who
 *      have the queue open, and that look found each of them asleep: whoever had owed the next step would have made it. What
 *      belongs together under `hinting` (I23) needs no such look.
 *
 * Ordering pairs: none of its own; what is looked at is read as its owner reads it.
 *
 * Death: counted after it was mended, or not at all. What a death may have left behind is explained until a tick has found
 *  all of the queue right since.
 *
 * Memory: in a broker that has nothing left but its reserve whoever was told may find no room for what it owes. That explains
 *  all repairs there.
 *
 * Concurrency: anybody, at any time; nobody waits.
 */
#ifndef SB_REPAIRS_H
#define SB_REPAIRS_H

#include "sb_ledger.h"
#include "sb_liveness.h"

enum {
  SB_REPAIR_NOTIFICATION = 0, /* a consumer, or a call that waits, slept beside a message it had been chosen for */
  SB_REPAIR_ROOM,             /* a producer slept beside room */
  SB_REPAIR_COUNT,            /* of the lists of consumers: interested, notified ... */
  SB_REPAIR_ACCOUNT,          /* `taken`, `admitted`, or the bytes */
  SB_REPAIR_MARK,             /* a message to which no `returned` bit led */
  SB_REPAIR_END,              /* a queue whose life was over, and which was still there */
};
_Static_assert(SB_REPAIR_END + 1 == SB_REPAIRS, "kinds of repairs");

/* May somebody who has the queue open be in the middle of what he owes? A process is stopped, or dead and not reaped yet,
 * cannot be seen, or a thread of it runs, or would if the machine let it: a busy machine, or the host of a virtual one, may
 * hold it up for longer than a tick. */
bool sb_repairs_somebody_halted(sb_broker *b, const sb_queue_shm *q);
/* How many dead were reaped; another number than when the queue was found right explains what is wrong by now. */
uint64_t sb_repairs_deaths(const sb_broker *b);
#define SB_DEATHS_UNKNOWN UINT64_MAX
bool sb_repairs_explained(sb_broker *b, const sb_queue_shm *q, uint64_t deaths_before);
void sb_repairs_count(sb_broker *b, unsigned kind, bool explained);

#endif
