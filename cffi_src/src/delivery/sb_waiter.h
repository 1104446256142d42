// SPDX-License-Identifier: Apache-2.0
/* Waiters: threads that wait inside get or put.
 *
 * What: a waiting get is a consumer of credit one that is INTERESTED only while it waits; a waiting put is a node of
 * the queue's room list, or of the broker's memory list. Each has its own wake word and acts in its own thread: spin
 * for a short time, become INTERESTED, look once more, sleep.
 *
 * Invariants: I30 and I31 hold for the nodes of waiting calls, too: a call whose node was NOTIFIED passes the baton
 * when it ends its wait.
 *
 * Ordering pairs: P3 (become INTERESTED, then look) and P6 (arm, then look), both seq_cst.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  any step of a wait -> the node of the call, in the holdings -> the reaper of the connection removes the node, and
 *   notifies another one.
 *
 * Concurrency: takes the connection's lock only for steps, never while it spins or sleeps.
 */
#ifndef SB_WAITER_H
#define SB_WAITER_H

#include "sb_consumer.h"

/* Waits for a message and takes it; SB_TIMEOUT at the deadline, SB_INTERRUPTED on a signal, SB_DELETED, SB_CLOSED.
 * SB_TICK at `look_ns` of `w`: the caller makes its checks and calls again, or ends the wait. The node keeps its
 * position in the list meanwhile, so that the call that waits longest is still served first. Another thread ends the
 * wait with SB_CLOSED if it sets `*ended` to 1 and wakes the node. If `ended` is NULL, other threads can end the wait
 * only by closing the connection, stopping the broker or deleting the queue. */
sb_status sb_waiter_get(sb_queue *q, sb_wait *w, const sb_half *ended, sb_taken *t);
/* Spins for a message for `limit_ns`, if the last messages came soon, and takes it. SB_EMPTY: none came, or spinning is
 * not worth it. */
sb_status sb_waiter_soon(sb_queue *q, uint64_t limit_ns, sb_taken *t);
/* Lock held. The call no longer waits: its node becomes NOT_INTERESTED, and passes the baton to another node (I31).
 * `flags`: those of the node that tell what it waits for (SB_NODE_ROOM, SB_NODE_MEMORY). */
void sb_waiter_leave(sb_queue *q, uint32_t node, uint32_t flags);
/* Lock held. Ends the wait: the node of the wait, if there is one, leaves its list. */
void sb_waiter_end(sb_queue *q, sb_wait *w);
/* Waits for room for a body of `bytes`: in the queue or, if `memory`, in the broker. SB_OK: there may be room now,
 * so the caller tries again. */
sb_status sb_waiter_room(sb_queue *q, bool memory, uint64_t bytes, uint64_t deadline_ns);
void sb_waiter_close(sb_queue *q);
/* Waits for a message in the row of a consumer. SB_OK: there is one, or all queues of the consumer are deleted. */
sb_status sb_waiter_row(sb_consumer *k, uint64_t deadline_ns);

#endif
