// SPDX-License-Identifier: Apache-2.0
/* Waiters: threads that wait inside get or put.
 *
 * What: a waiting get is a consumer of credit one that is INTERESTED only while it waits; a waiting put is a node of the
 * queue's room list, or of the broker's memory list. Each has its own wake word and acts in its own thread: spin a
 * little, become INTERESTED, look once more, sleep.
 *
 * Invariants: I30 and I31 hold for these nodes too: one that was NOTIFIED and leaves passes the baton.
 *
 * Ordering pairs: P3 (become INTERESTED, then look) and P6 (arm, then look), both seq_cst.
 *
 * Death: the node is in the connection's holdings; its reaper removes it and notifies another.
 *
 * Concurrency: takes the connection's lock only for steps, never while it spins or sleeps.
 */
#ifndef SB_WAITER_H
#define SB_WAITER_H

#include "sb_consumer.h"

/* Waits for a message and takes it; SB_TIMEOUT at the deadline, SB_INTERRUPTED on a signal, SB_DELETED, SB_CLOSED.
 * SB_TICK at `look_ns`: the caller looks around and calls again, or ends the wait. Its node stays where it is in the
 * list meanwhile, so that who waits longest is still served first. `ended` becomes 1 when the wait is to end with SB_CLOSED,
 * and then its node is rung; NULL: only with the connection. */
sb_status sb_waiter_get(sb_queue *q, sb_wait *w, const sb_half *ended, sb_taken *t);
/* Looks for a message for a moment, if the last ones came soon; SB_EMPTY when none came, or it is not worth it. */
sb_status sb_waiter_soon(sb_queue *q, uint64_t limit_ns, sb_taken *t);
/* Lock held. The node of somebody who waits no more: others are told of what it was told. */
void sb_waiter_leave(sb_queue *q, uint32_t node, uint32_t flags);
/* Lock held. Gives the place up, if there is one. */
void sb_waiter_end(sb_queue *q, sb_wait *w);
/* Waits until there may be room for `bytes` (memory: in the broker): the caller tries again. */
sb_status sb_waiter_room(sb_queue *q, bool memory, uint64_t bytes, uint64_t deadline_ns);
void sb_waiter_close(sb_queue *q);
/* Waits for the row of a consumer. */
sb_status sb_waiter_row(sb_consumer *k, uint64_t deadline_ns);

#endif
