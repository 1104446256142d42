// SPDX-License-Identifier: Apache-2.0
/* Lifetime: queues that end by themselves.
 *
 * What: an exclusive queue ends with the connection that declared it, an auto-delete queue with its last consumer, and
 * one with `expires` when it was unused for so long: without a consumer, a declaration or a get.
 *
 * Layout: `owner_connection` and `owner_epoch` (low bits of the connection's epoch), `had_consumer`, `expires_ms` and
 * `used_ns` of sb_queue_shm, beside the flags that say which of them count.
 *
 * Invariants:
 *  I44 an ending queue is closed like a deleted one (I25), by whoever sees first that its time has come: who cancels its
 *      last consumer, who closes its owner, the reaper of either, the housekeeper. Its name goes with the next sweep,
 *      which the housekeeper is told of, and until then nobody finds a closed queue by it.
 *
 *  I73 whoever declared an exclusive queue and used it has a handle of it, and so a ledger, until it disconnects or the
 *      queue is deleted: so its disconnecting, or the reaper of its death, ends the queue. Whoever opens one that
 *      outlived its owner all the same (killed before it had a handle) ends it first: nobody puts into a queue that is
 *      about to go.
 *
 * Ordering pairs: a node is gone, and counted out (seq_cst), before its queue's time is looked at; a consumer is counted
 *  (seq_cst) before it looks whether the queue is open. So of a last consumer and a new one, one sees the other.
 *
 * Death (after -> state, repaired): consumer gone, queue not closed -> the housekeeper's tick closes it.
 *  CLOSING appended -> resolved by whoever meets it.  closed, housekeeper not told -> it sees so at its next tick.
 *
 * Concurrency: all of it by anybody who has the queue open.
 */
#ifndef SB_LIFETIME_H
#define SB_LIFETIME_H

#include "sb_consumer.h"
#include "sb_wait.h"

/* Somebody declares, reads or consumes: the time that `expires` counts begins anew. */
static inline void sb_lifetime_used(sb_queue_shm *q) {
  if ((SB_LOAD(&q->flags, SB_RELAXED) & SB_QUEUE_EXPIRES) != 0) {
    SB_STORE(&q->used_ns, sb_now_ns(), SB_RELAXED); /* relaxed: a time */
  }
}
/* The same of a handle whose queue may be gone. */
static inline void sb_lifetime_consumed(const sb_queue *q) {
  if ((SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_EXPIRES) != 0 && sb_queue_is_open(q)) sb_lifetime_used(q->shm);
}
/* Notes whose it is. Before anybody can find it. */
void sb_lifetime_own(sb_queue_shm *q, const sb_connection *owner);
/* Is it an exclusive queue of somebody else who lives? */
bool sb_lifetime_locked(sb_broker *b, const sb_queue_shm *q, unsigned connection);
/* Is it an exclusive queue of ours? Then a handle of it stays until the connection ends, and the queue with it (I73). */
bool sb_lifetime_owned(const sb_queue *q);
/* Is it an exclusive queue whose owner is gone, or is `dead`? Nobody opens it any more: who tries ends it. */
bool sb_lifetime_orphaned(sb_broker *b, const sb_queue_shm *q, unsigned dead);
/* May it end by itself? */
bool sb_lifetime_limited(const sb_queue_shm *q);
/* Has its time come? `dead`: a connection that is ending, 0 = none. */
bool sb_lifetime_over(sb_broker *b, const sb_queue_shm *q, unsigned dead);
/* Closes it if its time has come; true when it did. */
bool sb_lifetime_end(sb_queue *q, unsigned dead);

#endif
