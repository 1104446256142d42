// SPDX-License-Identifier: Apache-2.0
/* Subscriptions: a queue as one node of a consumer or a channel sees it (seed 002: setNotifyWorkDesired,
 * deliverSingleMessage).
 *
 * What: the node's part in telling and pulling, which is the same whoever it belongs to. What its owner decides: whether
 * there is credit, and where a pulled message goes.
 *
 * Invariants:
 *  I30 a node that is INTERESTED or NOTIFIED has credit; one without is NOT_INTERESTED.
 *  I31, I32 of sb_notify.h; I54 of sb_claim.h.
 *
 * Ordering pairs: P3 of sb_notify.h.
 *
 * Death: a node goes with its connection: REMOVED by the reaper, which passes the baton.
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_SUBSCRIPTION_H
#define SB_SUBSCRIPTION_H

#include "sb_claim.h"
#include "sb_upkeep.h"

typedef struct {
  sb_queue *q;
  uint64_t token; /* holding of the node */
  uint32_t node;
  int32_t priority;
} sb_subscription;

static inline sb_node_shm *sb_subscription_node(const sb_subscription *s) { return sb_slot_at(s->q->c->b, s->node); }
/* Does it not stand by (any more)? */
bool sb_subscription_may_want(const sb_subscription *s);
/* Its owner has credit: NOT_INTERESTED -> INTERESTED, unless it stands by. Whoever calls this looks at the queue (P3). */
bool sb_subscription_want(sb_subscription *s);
void set_notify_work_desired(sb_subscription *s, bool desired);
/* Takes a message for its owner, who has credit. SB_EMPTY: there is none, and the node is INTERESTED. */
sb_status sb_subscription_take(sb_subscription *s, sb_taken *t);
/* The same for one that takes nothing its own connection published, and is NON_ACQUIRING instead (sb_foreign.h). */
sb_status sb_subscription_take_foreign(sb_subscription *s, uint64_t *cursor, sb_taken *t);
/* Puts a message back that was pulled through it. */
sb_status sb_subscription_return(sb_queue *q, uint64_t token, unsigned how);

#endif
