// SPDX-License-Identifier: Apache-2.0
/* Handles: the queues that a connection has open.
 *
 * What: a handle owns a ledger of its queue, and keeps the object of a deleted queue alive (I20 of sb_ledger.h). The
 * connection *detaches* the handles of deleted queues by itself: it releases what they have in shared memory. For that,
 * each of its calls, and each round of its IO thread, compares `queues_closed` of the header with the value that it saw
 * last. If the value changed, a call looks at a few handles, and the IO thread at all. A detached handle stays valid
 * for the application, whose calls find the queue deleted.
 *
 * Layout: process-local: `queues` of the connection, linked both ways; the next look begins at `handles_next`.
 *
 * Invariants:
 *  I60 a handle of an open connection is detached under the connection's lock, and only while the connection holds no
 *      message of the queue, no consumer uses the handle, and `busy` of the handle is 0. A call that drops the lock
 *      while it uses a handle, or reads without the lock, raises `busy` before, or verifies afterwards that the queue
 *      is open. Every call that takes the lock checks whether its handle was detached before it uses the handle's
 *      ledger. sb_connection_release detaches the handles of a closed connection without looking at them, since no
 *      thread uses that connection any more.
 *
 * Ordering pairs: P17 a queue is CLOSED before `queues_closed` is raised (release); a connection reads the counter
 *  (acquire), then the states of its queues.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  making a queue CLOSED, before raising `queues_closed` -> handles of the queue that stay attached -> the process that
 *   removes the queue's name raises `queues_closed`.
 *  leaving a ledger, before freeing the ledger's holding -> a holding that names a ledger of no owner -> nothing to
 *   repair: the reaper sees that the dead connection does not own the ledger.
 *  opening a queue -> a ledger that the dead connection owns -> the reaper takes the ledger over, looks after the
 *   queue, and leaves the ledger (sb_recover.c).
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_HANDLES_H
#define SB_HANDLES_H

#include "sb_waiter.h"

/* Adds a new handle to the list `queues` of its connection. */
void sb_handle_add(sb_queue *q);
/* True if the queue of a new handle has message groups. All handles of a connection at one queue share what it knows of
 * them (sb_groups.h). */
bool sb_handle_needs_groups(const sb_queue *q);
/* What another handle of the queue has; NULL: there is no other. */
sb_groups *sb_handle_groups_of_another(const sb_queue *q);
/* The last of these handles that leaves frees `groups`. */
void sb_handle_use_groups(sb_queue *q, sb_groups *groups);
/* True if the handle may be detached (I60): the connection holds no message of the queue, no consumer uses the handle,
 * and `busy` of the handle is 0 (sb_queue.h says what raises it). */
bool sb_handle_is_idle(const sb_queue *q);
/* Detaches the handle: releases what it has in shared memory. Frees the handle if no call uses it any more
 * (`orphaned`). */
void sb_handle_leave(sb_queue *q);
/* Drops the pages that the handles of the connection remember: the memory of the pages may hold bodies now (P21 of
 * sb_grace.h). */
void sb_handles_forget_pages(sb_connection *c);
/* Checks the next few handles of the connection, and detaches those that are idle and whose queue is deleted. The next
 * calls check the other handles. */
void sb_handles_look(sb_connection *c);
/* Like sb_handles_look, but also checks the handles that sb_handles_look would leave to later calls. */
void sb_handles_look_at_all(sb_connection *c);

/* True if there may be handles to detach. Called before each operation, so it costs only one load and one
 * comparison. */
static inline bool sb_handles_stir(const sb_connection *c) {
  return SB_LOAD(&c->b->header->queues_closed, SB_ACQUIRE) != c->handles_calm; /* P17 acquire */
}

#endif
