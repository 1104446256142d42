// SPDX-License-Identifier: Apache-2.0
/* Limits: how many messages and bytes a queue may hold, and what happens beyond that.
 *
 * What: `admit` takes room before a message is published (overflow block, drop, reject). `enforce` removes the oldest
 * messages after one was published (ring_size, overflow drop-head). Both use the queue's hints `tail`, `admitted` and
 * `taken`.
 *
 * Invariants: I23 of sb_queue.h, I24 of sb_take.h. The bound of a ring that was shrunk without trimming is the
 *  number of messages that were pending at that time. It falls with the number of pending messages, never below
 *  ring_size.
 *
 * Ordering pairs: none here; each step is one seq_cst operation on one word.
 *
 * Death (after -> state, repaired): room admitted, not published -> the limit is that much lower -> reconciled.
 *  `taken` raised for a victim that was not taken -> the ring may hold one more -> the next put, get without waiting,
 *  browse, count or commit is in doubt, finds the dead connection by its ledger, and reaps it (sb_api_bound.c).
 *  published, not enforced -> pending > bound -> the same. Before that, a consumer or a waiting get may take a message
 *  that should have been evicted; it counts as taken.
 *
 * Concurrency: any process, with its connection's lock.
 */
#ifndef SB_LIMITS_H
#define SB_LIMITS_H

#include "sb_dispose.h"

/* Takes room for `count` messages with `bytes` in all. SB_FULL: there is none. SB_TOO_LARGE: there never can be. */
sb_status sb_limits_admit(sb_queue *q, uint64_t count, uint64_t bytes);
/* After sb_limits_admit: the caller has put the messages into the queue. */
void sb_limits_published(sb_queue *q);
/* After sb_limits_admit: gives back the room of messages that will not be published. */
void sb_limits_unadmit(sb_queue *q, uint64_t count, uint64_t bytes);
bool sb_limits_room(const sb_queue_shm *q, uint64_t count, uint64_t bytes);
/* Evicts the oldest messages while more messages or bytes are pending than the limits allow. Returns how many it
 * evicted. */
uint64_t sb_limits_enforce(sb_queue *q);
/* The same; adds the number to *removed. True: the queue certainly keeps its limits. False: the counts say so, but they
 * may be wrong (sb_limits_in_doubt). */
bool sb_limits_keep(sb_queue *q, uint64_t *removed);
/* True if more messages may be pending than the bound, although the counts deny it: a process may have been killed
 * between two changes of the counts. Costs a few loads, unless another process puts or takes at this moment. */
bool sb_limits_in_doubt(sb_queue *q);
/* Sets the bound after a new ring_size: with `trim` to 0, so that ring_size applies at once; else to the number of
 * pending messages. */
void sb_limits_set_bound(sb_queue *q, bool trim);
/* Takes the AVAILABLE messages at positions below `end`, at most `limit` of them, and ends them for `reason`. Returns
 * how many. */
uint64_t sb_limits_remove(sb_queue *q, sb_reason reason, uint64_t end, uint64_t limit);

#endif
