// SPDX-License-Identifier: Apache-2.0
/* Limits: how much a queue may hold, and what happens beyond.
 *
 * What: `admit` takes places before a message is published (overflow block, drop, reject); `enforce` removes the oldest
 * after it was published (ring_size, overflow drop-head). Both work on the queue's hints `tail`, `admitted`, `taken`.
 *
 * Invariants: I23 of sb_queue.h, I24 of sb_take.h. The bound of a ring that was shrunk lazily is what was pending then; it falls
 *  with what is pending, never below ring_size.
 *
 * Ordering pairs: none of its own; every step is one seq_cst operation on one word.
 *
 * Death (after -> state, repaired): places admitted, not published -> the limit is that much lower -> reconciled.
 *  `taken` raised for a victim that was not taken -> the ring may hold one more -> the next put, get without a wait, look,
 *  count or commit is in doubt, finds the dead by its ledger, and reaps it (sb_api_bound.c).
 *  published, not enforced -> pending > bound -> the same pays; what consumers and waiting gets take before counts as taken.
 *
 * Concurrency: anybody, with the connection's lock.
 */
#ifndef SB_LIMITS_H
#define SB_LIMITS_H

#include "sb_queue.h"

/* Takes room for `count` messages of `bytes` in all; SB_FULL when there is none, SB_TOO_LARGE when there never can be. */
sb_status sb_limits_admit(sb_queue *q, uint64_t count, uint64_t bytes);
/* What was admitted is in the queue. */
void sb_limits_published(sb_queue *q);
/* ... or will not get there. */
void sb_limits_unadmit(sb_queue *q, uint64_t count, uint64_t bytes);
bool sb_limits_room(const sb_queue_shm *q, uint64_t count, uint64_t bytes);
/* Evicts while pending > bound; the number of messages removed. */
uint64_t sb_limits_enforce(sb_queue *q);
/* The same, which adds to *removed. True if there is no doubt that the queue keeps its bound, as in sb_limits_in_doubt. */
bool sb_limits_keep(sb_queue *q, uint64_t *removed);
/* Whether more may be pending than the bound, although the counts say otherwise: somebody may have been killed between two
 * changes of them. Costs a few loads, unless somebody puts or takes at this moment. */
bool sb_limits_in_doubt(sb_queue *q);
/* A new ring_size: what is pending now is the bound, unless `trim`. */
void sb_limits_set_bound(sb_queue *q, bool trim);
/* Takes and settles everything AVAILABLE below `end`, at most `limit`. */
uint64_t sb_limits_remove(sb_queue *q, unsigned counter, uint64_t end, uint64_t limit);

#endif
