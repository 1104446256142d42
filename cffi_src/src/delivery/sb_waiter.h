// SPDX-License-Identifier: Apache-2.0
/* Waiters: threads that wait inside get or put.
 *
 * What: a waiting get is a consumer of credit one that is INTERESTED only while it waits; a waiting put is a node of
 * the queue's room list, or of the broker's memory list. Each has its own wake word and acts in its own thread: spin
 * for a short time, become INTERESTED, look once more, sleep. A put of a batch does not spin. A put that waits for
 * memory does not spin or look: it becomes INTERESTED, and sleeps for at most 50 ms. Then its caller tries again. A
 * put that waits for room looks from time to time whether others pass it, and takes its turn then (sb_turn.h).
 *
 * Invariants: I30 of sb_subscription.h and I31 of sb_notify.h hold for the nodes of waiting calls, too: a call whose
 * node was NOTIFIED passes the baton when it ends its wait, by notifying another node.
 *
 * Ordering pairs: P3 of sb_notify.h (become INTERESTED, then look) and P6 of sb_wait.h (arm, then look), both seq_cst.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  any step of a wait -> the node of the call, in the holdings -> the reaper of the connection removes the node, and
 *   notifies another one.
 *  taking the turn (sb_turn.h) -> a turn that is over soon -> nobody.
 *  spinning -> `spinners` of the header is one too high -> nobody: after as many such deaths as there are cores,
 *   waiting calls sleep without spinning first.
 *
 * Concurrency: a thread holds the connection's lock for single steps, never while it spins or sleeps.
 */
#ifndef SB_WAITER_H
#define SB_WAITER_H

#include "sb_consumer.h"

/* Waits for a message and takes it. SB_TIMEOUT: the deadline came; SB_INTERRUPTED: a signal came; SB_CLOSED,
 * SB_STOPPING, SB_DELETED: the connection was closed, the broker stops, the queue was deleted; or an error. SB_TICK,
 * the only status that does not end the wait: the time `look_ns` of `w` came. The caller then makes its checks, and
 * calls again or ends the wait. Meanwhile the node keeps its position in the list, so that the call that waits longest
 * is still served first. Another thread ends the wait with SB_CLOSED if it sets `*ended` to 1 and wakes the node. If
 * `ended` is NULL, other threads can end the wait only by closing the connection, stopping the broker or deleting the
 * queue. */
sb_status sb_waiter_get(sb_queue *q, sb_wait *w, const sb_half *ended, sb_taken *t);
/* Spins for a message for at most `limit_ns`, and takes it. SB_EMPTY: no message came, or the call did not spin. It
 * does not spin on one core, if nodes wait in the queue's list, if this thread has just woken another one after a rest,
 * or if waiting calls of this handle spun in vain lately (`spin_ns`, which this call itself does not change). */
sb_status sb_waiter_soon(sb_queue *q, uint64_t limit_ns, sb_taken *t);
/* Lock held. Makes the node of a call that no longer waits, or of a watch that is disarmed, NOT_INTERESTED, and passes
 * the baton to another node (I31). `flags`: what the node waits for: SB_NODE_ROOM, with SB_NODE_MEMORY or without; 0 =
 * a message. With SB_NODE_MEMORY the caller passes the baton itself. */
void sb_waiter_leave(sb_queue *q, uint32_t node, uint32_t flags);
/* Lock held. Ends the wait. If the wait has a node, the node leaves its list and is given back; else nothing
 * happens. */
void sb_waiter_end(sb_queue *q, sb_wait *w);
/* Waits for room for a body of `bytes` bytes: in the queue or, if `memory`, in the memory of the broker. SB_OK: there
 * may be room now, so the caller tries again. SB_GROW: the broker must grow before the call can wait. Any other status
 * tells why the wait ended. */
sb_status sb_waiter_room(sb_queue *q, bool memory, uint64_t bytes, uint64_t deadline_ns);
/* Like sb_waiter_room, for room in the queue for `count` messages, `bytes` bytes in total. Does not spin. */
sb_status sb_waiter_batch(sb_queue *q, uint32_t count, uint64_t bytes, uint64_t deadline_ns);
void sb_waiter_close(sb_queue *q);
/* Waits for a message in the row of a consumer: the messages that were pulled for it (sb_consumer.h). SB_OK: there is
 * one, or all queues of the consumer are deleted. Any other status tells why the wait ended. */
sb_status sb_waiter_row(sb_consumer *k, uint64_t deadline_ns);

#endif
