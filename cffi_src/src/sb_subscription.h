// SPDX-License-Identifier: Apache-2.0
/* Subscriptions: a queue as one node of a consumer or a channel sees it (seed 002: setNotifyWorkDesired,
 * deliverSingleMessage).
 *
 * What: the node's part in telling and pulling, which is the same whoever it belongs to. What its owner decides: whether
 * there is credit, and where a pulled message goes.
 *
 * Invariants:
 *  I30 a node that is INTERESTED or NOTIFIED has credit; one without is NOT_INTERESTED.
 *  I31, I32 of sb_notify.h.
 *
 * Ordering pairs: P3 of sb_notify.h.
 *
 * Death: a node goes with its connection: REMOVED by the reaper, which passes the baton.
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_SUBSCRIPTION_H
#define SB_SUBSCRIPTION_H

#include "sb_notify.h"
#include "sb_upkeep.h"

typedef struct {
  sb_queue *q;
  uint64_t token; /* holding of the node */
  uint32_t node;
  int32_t priority;
} sb_subscription;

static inline sb_node_shm *sb_subscription_node(const sb_subscription *s) { return sb_slot_at(s->q->c->b, s->node); }
void set_notify_work_desired(sb_subscription *s, bool desired);
/* Takes a message for its owner, who has credit. SB_EMPTY: there is none, and the node is INTERESTED. */
sb_status sb_subscription_take(sb_subscription *s, sb_taken *t);
/* Puts a message back that was pulled through it. */
sb_status sb_subscription_return(sb_queue *q, uint64_t token, unsigned how);

#endif
