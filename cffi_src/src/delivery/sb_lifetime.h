// SPDX-License-Identifier: Apache-2.0
/* Lifetime: ends exclusive, auto-delete and expiring queues without a call to delete.
 *
 * What: an exclusive queue ends with the connection that declared it, an auto-delete queue with its last consumer. A
 * queue with `expires` ends when it was unused for that time: without a consumer, a declaration, a get, a get that
 * waits, or an armed watch for messages. The *time* of a queue *has come* when its connection ended (exclusive), when
 * its last consumer left (auto-delete), or when it was unused for so long (`expires`).
 *
 * Layout: `owner_connection` and `owner_epoch` (low bits of the connection's epoch), `had_consumer`, `used_ns` and the
 * setting SB_SETTING_EXPIRES_MS of sb_queue_shm. The flags of the queue say which of them are valid.
 *
 * Invariants:
 *  I44 a queue that ends is closed like a deleted one (see I25 of sb_closing.h), by the first process that sees that
 *      the time of the queue has come. That is the process that cancels the last consumer of the queue, the process
 *      that closes the connection that owns the queue, the reaper of either process, a process that opens a queue
 *      whose owner is gone (I73), or the housekeeper. The process that closes the queue notifies the housekeeper, and
 *      the next sweep removes the queue's name. Even before that, no process finds a closed queue by its name.
 *
 *  I73 a connection that declared an exclusive queue and used it has a handle of it, and so a ledger, until it
 *      disconnects or the queue is deleted. So the queue ends when the connection disconnects, or is reaped. A queue
 *      may outlive its owner all the same, if the owner was killed before it had a handle. A process that opens such a
 *      queue ends it first: no process puts into a queue that is about to end.
 *
 * Ordering pairs: a process removes a node and lowers `consumers` (seq_cst) before it looks whether the time of the
 *  queue has come. So of several processes that remove nodes, the last one sees that none is left. A process that
 *  closes the queue stores its state (seq_cst), then wakes each node in the list All. A new consumer enters that list
 *  and raises `consumers` (seq_cst), then looks whether the queue is open. So the consumer is woken, or sees by itself
 *  that the queue is closed, even if it came after the process had read `consumers`.
 *
 * The owner of a node that waits stores `used_ns` before it makes the node INTERESTED again, and before the node leaves
 *  (both moves change the counts, seq_cst). A process that finds the node in no count loads `used_ns` afterwards, so it
 *  sees the new time.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  waiting in a get, or arming a watch, however long ago -> a node of a dead connection, and a `used_ns` from before
 *   the wait -> the reaper stores `used_ns` before it removes the node: the queue was used until then.
 *  removing the last consumer, before closing the queue -> an open queue whose time has come -> the reaper closes it,
 *   or the housekeeper at its next tick.
 *  appending the CLOSING cell -> an undecided cell -> the next process that meets the cell decides it (sb_closing.h).
 *  closing the queue, before notifying the housekeeper -> a closed queue that has a name -> the housekeeper sees at its
 *   next tick that queues changed or a process was reaped, and removes the name.
 *
 * Concurrency: any process, whether it has the queue open or not. A function that takes a handle (sb_queue) needs the
 *  lock of the handle's connection.
 */
#ifndef SB_LIFETIME_H
#define SB_LIFETIME_H

#include "sb_consumer.h"
#include "sb_wait.h"

/* Restarts the time after which an unused queue expires. Called by a declare, by a get, before a get waits or a watch
 * is armed, and when the wait is over. If a consumer leaves, or the process of a consumer, a waiting get or an armed
 * watch is killed, sb_node_destroy does the same. */
static inline void sb_lifetime_used(sb_queue_shm *q) {
  if ((SB_LOAD(&q->flags, SB_RELAXED) & SB_QUEUE_EXPIRES) != 0) {
    SB_STORE(&q->used_ns, sb_now_ns(), SB_RELAXED); /* relaxed: a time */
  }
}
/* Like sb_lifetime_used, for the queue of a handle. Does nothing if that queue was deleted. */
static inline void sb_lifetime_consumed(const sb_queue *q) {
  if ((SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_EXPIRES) != 0 && sb_queue_is_open(q)) sb_lifetime_used(q->shm);
}
/* Stores the owner of a queue, before any process can find the queue. */
void sb_lifetime_own(sb_queue_shm *q, const sb_connection *owner);
/* True if the queue is exclusive, and its owner is a living connection other than `connection`. */
bool sb_lifetime_locked(sb_broker *b, const sb_queue_shm *q, unsigned connection);
/* True if the queue is exclusive and belongs to the connection of the handle. Such a handle stays until the connection
 * ends; then the queue ends, too (I73). */
bool sb_lifetime_owned(const sb_queue *q);
/* True if the queue is exclusive and its owner is gone. `dead`: a connection that is ending, and counts as gone; 0 =
 * none. A process that opens such a queue ends it. */
bool sb_lifetime_orphaned(sb_broker *b, const sb_queue_shm *q, unsigned dead);
/* True if the queue may end without a call to delete: it is exclusive, auto-delete, or expiring. */
bool sb_lifetime_limited(const sb_queue_shm *q);
/* True if the time of the queue has come, so that it must be closed. `dead`: a connection that is ending, and counts as
 * gone; 0 = none. */
bool sb_lifetime_over(sb_broker *b, const sb_queue_shm *q, unsigned dead);
/* Closes the queue if its time has come. True: this call closed the queue. `dead`: as for sb_lifetime_over. */
bool sb_lifetime_end(sb_queue *q, unsigned dead);

#endif
