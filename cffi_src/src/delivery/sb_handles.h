// SPDX-License-Identifier: Apache-2.0
/* Handles: the queues that a connection has open.
 *
 * What: a handle owns a ledger of its queue, and keeps the object of a deleted queue alive (I20). The connection lets go of
 * the handles of deleted queues by itself: each of its calls, and each round of its IO thread, compares `queues_closed` of the
 * header with what it saw last, and looks at a few handles if that has changed. A handle that was let go stays valid for its
 * owner: it finds its queue deleted.
 *
 * Layout: process-local: `queues` of the connection, linked both ways; `handles_next` is where the next look begins.
 *
 * Invariants:
 *  I60 a handle is let go under the connection's lock, and only while nothing of its queue is held or consumed and `busy` is 0.
 *      A call that drops the lock, or reads without it, has raised `busy`, or verifies afterwards that the queue is open.
 *      Every call that takes the lock finds out before it uses the ledger.
 *
 * Ordering pairs: P17 a queue is CLOSED before `queues_closed` is raised (release); a connection reads the counter (acquire),
 *  then the states of its queues.
 *
 * Death (after -> state, repaired): queue CLOSED, counter not raised -> raised when its name is removed, by whoever does that.
 *  ledger left, holding still there -> the reaper finds that the ledger has no owner.  The connection -> the reaper
 *  disowns its ledgers (sb_recover.c).
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_HANDLES_H
#define SB_HANDLES_H

#include "sb_waiter.h"

/* The connection has another queue open. */
void sb_handle_add(sb_queue *q);
/* Whether nothing of its queue is held, consumed, or being used by a thread. */
bool sb_handle_is_idle(const sb_queue *q);
/* Gives up what the handle has in the shared memory; frees it if nobody calls with it any more. */
void sb_handle_leave(sb_queue *q);
/* What they remember of pages may be memory for bodies by now (P21). */
void sb_handles_forget_pages(sb_connection *c);
/* Looks at some handles, and lets go those of deleted queues. */
void sb_handles_look(sb_connection *c);
/* The same until each was looked at. */
void sb_handles_look_at_all(sb_connection *c);

/* Before every operation: may there be handles to let go? One load and one comparison. */
static inline bool sb_handles_stir(const sb_connection *c) {
  return SB_LOAD(&c->b->header->queues_closed, SB_ACQUIRE) != c->handles_calm; /* P17 acquire */
}

#endif
