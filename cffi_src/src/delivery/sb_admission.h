// SPDX-License-Identifier: Apache-2.0
/* Admission: whether a queue admits a new consumer (Artemis: max-consumers).
 *
 * What: a queue with `max_consumers` (SB_QUEUE_SEATS) has that number of *seats*. Each consumer takes one, until its node
 * is REMOVED: the node is the seat, and there is no count beside it. A consumer that finds no seat is refused. Gets,
 * browsers and watches need none. The exclusive and the single active consumer (sb_exclusive.h) and the gate
 * (sb_dispatch.h) are asked after the seats.
 *
 * A consumer is *admitted* when all its queues admit it. Only then does an auto-delete queue end with its last consumer: one
 * that was refused, at this or at another queue, was none.
 *
 * At a queue with seats a consumer registers under the topology lock (sb_topology.h), as declarations do: so the seats
 * that it counts can only become fewer until it has its own. At all other queues it takes no lock.
 *
 * Layout: the flag SB_QUEUE_SEATS, and the setting SB_SETTING_SEATS: the number of seats plus one; 0 = no limit.
 *
 * Invariants:
 *  I101 at a queue with seats no more consumers are registered than there are seats, but for consumers that are about to
 *       leave: a consumer that registered without the lock, and sees the flag, leaves before it is INTERESTED, and begins
 *       again. A setting that allows fewer consumers than are registered is refused.
 *
 * Ordering pairs:
 *  P30 a consumer registers (seq_cst CAS of its node's word), then reads the flag. A process that gives a queue seats
 *      sets the flag (seq_cst), then counts the consumers. So the consumer sees the flag, and leaves; or it is counted.
 *
 *  A consumer registers (seq_cst), then decides a deletion that was asked for (sb_closing.h), and looks whether the queue
 *   is open. Who decides a deletion "if unused" reads the number of consumers before. So that one sees the consumer, or the
 *   consumer sees that the queue has ended.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  counting the seats, before registering -> the kernel releases the lock -> nothing to repair.
 *  registering -> a node of a dead connection, which counts until the reaper removes it. A process that finds no seat
 *   reaps dead processes, then counts again.
 *  registering, before `had_consumer` -> a queue that has had no consumer -> nothing to repair: the process of the consumer
 *   never knew that it was admitted.
 *  setting the flag, before the setting changed -> a queue whose consumers register under the lock, and without a limit
 *   -> nothing to repair; the next change of its settings makes the flag right.
 *
 * Concurrency: any process. sb_admission_prepare needs the topology lock.
 */
#ifndef SB_ADMISSION_H
#define SB_ADMISSION_H

#include "sb_dispatch.h"
#include "sb_exclusive.h"

/* Called before a consumer registers. `alone`: the calling thread holds the topology lock. SB_UNLOCKED: the queue has
 * seats, and the caller has not the lock. SB_NO_SEAT: all seats are taken. *flags: those that the node of the consumer
 * gets, besides others. */
sb_status sb_admission_begin(sb_connection *c, uint32_t queue, bool alone, uint32_t *flags);
/* Decides whether a consumer that just registered is admitted. SB_UNLOCKED, or a status of sb_exclusive_enter: it is
 * not, so the caller must remove it again. */
sb_status sb_admission_enter(sb_connection *c, uint32_t queue, uint32_t node, bool alone);
/* Whether a queue at which a consumer is registered has ended before. Called for each of its queues, then the next one. */
bool sb_admission_ended(sb_queue *q);
/* The consumer is admitted: an auto-delete queue ends with its last consumer from now on. */
static inline void sb_admission_done(sb_queue_shm *q) { SB_STORE(&q->had_consumer, 1u, SB_RELEASE); }
/* Called before the setting of a queue changes to `seats` (SB_SETTING_SEATS). Sets the flag SB_QUEUE_SEATS if the queue
 * will have seats. SB_NO_SEAT: more consumers are registered than that; the flag is then as before. */
sb_status sb_admission_prepare(sb_connection *c, uint32_t queue, int64_t seats);

#endif
