// SPDX-License-Identifier: Apache-2.0
/* Subscriptions: one node of a consumer or a channel at one queue (Qpid Broker-J: setNotifyWorkDesired,
 * deliverSingleMessage).
 *
 * What: the node's part in notifying and pulling, which is the same for consumers and channels. The owner of the node,
 * a target (sb_target.h), gets turns from the IO thread. It decides whether there is credit, and where a pulled message
 * goes.
 *
 * Invariants:
 *  I30 a node that is INTERESTED or NOTIFIED has credit; a node without credit is NOT_INTERESTED. Without memory for
 *      the list entry a node that lost its credit stays as it is: its owner passes the baton, and tries again at each
 *      turn. A node whose interest begins without that memory stays NOT_INTERESTED: if the broker may grow, its consumer
 *      is refused with SB_GROW, so that a consumer that was admitted gets what is put from then on.
 *  I31, I32 of sb_notify.h; I54 of sb_exclusive.h.
 *
 * Ordering pairs: P3 of sb_notify.h.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  any step -> a node of a dead connection -> the reaper makes the node REMOVED, and passes the baton. That includes the
 *      node of a consumer that is being refused.
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_SUBSCRIPTION_H
#define SB_SUBSCRIPTION_H

#include "sb_choice.h"
#include "sb_admission.h"
#include "sb_following.h"
#include "sb_release.h"
#include "sb_hints.h"
#include "sb_limits.h"
#include "sb_rivals.h"

typedef struct {
  sb_queue *q;
  uint64_t token;      /* of the node's holding */
  uint64_t wish_token; /* of its selector, where consumers of lower priorities read it (sb_rivals.h); 0 = none */
  uint32_t node;
  int32_t priority;
  bool choosy; /* takes only some of the messages, or none. Its node is NON_ACQUIRING while it is interested */
  sb_choice choice;
  sb_following *following; /* at a non-destructive queue; NULL: it has no messages yet */
} sb_subscription;

/* A subscription to a queue, whose node the caller creates. `wish`: NULL, or one that outlives the subscription. */
sb_subscription sb_subscription_to(sb_queue *q, int32_t priority, bool no_local, sb_wish *wish);

static inline sb_node_shm *sb_subscription_node(const sb_subscription *s) { return sb_slot_at(s->q->c->b, s->node); }
/* True if the node may become INTERESTED. False only for a standby of a single active consumer, until the standby
 * succeeds that consumer, and for a consumer of a gated queue whose gate is closed (sb_dispatch.h). */
bool sb_subscription_may_want(const sb_subscription *s);
/* Makes a NOT_INTERESTED node INTERESTED (if choosy: NON_ACQUIRING), unless it stands by; leaves a node in any other state as it is. The owner of
 * the node must have credit. True: the node became INTERESTED, and the caller must look at the queue (P3). */
bool sb_subscription_want(sb_subscription *s);
/* Begins the interest of a node in messages; ends it if `desired` is false (Qpid: setNotifyWorkDesired). Ending may
 * find no memory (I30); the owner then ends it again at its next turn. */
void sb_subscription_set_interested(sb_subscription *s, bool desired);
/* Begins the interest of a node that its owner, which has credit, has registered just now. SB_GROW: there is no memory
 * for its list entry, and the broker may grow: the owner removes the node, and the caller repeats all when it has added a
 * segment. In a broker that is full the node stays NOT_INTERESTED, and the owner tries again at each turn (I30). */
sb_status sb_subscription_begin(sb_subscription *s);
/* Takes a message for the owner of the node. The owner must have credit. SB_EMPTY: there is no message for this node.
 * The call has then made a NOTIFIED node INTERESTED, unless there is no memory for its list entry. A node that stands
 * by (I54), or that another process parked (I61 of sb_stopped.h), stays NOT_INTERESTED. SB_NO_CREDIT: a message holds the
 * consumer back; the caller ends the interest of the node. */
sb_status sb_subscription_take(sb_subscription *s, sb_taken *t);
/* The same for a choosy subscription (sb_choice.h), whose node stays NON_ACQUIRING. */
sb_status sb_subscription_take_choosy(sb_subscription *s, sb_taken *t);
/* Takes a message for a subscription that takes any, but may have rivals, or has a window: one that no rival wants.
 * SB_NO_CREDIT: it does not fit. */
sb_status sb_subscription_take_beside(sb_subscription *s, sb_taken *t);
/* The message that comes next does not fit into the consumer's window: its node has become NOT_INTERESTED, and the
 * consumer takes nothing until the caller lets it go on (sb_window.h). */
static inline bool sb_subscription_is_held_back(const sb_subscription *s) { return s->choice.lacks != 0; }
/* Lets a consumer that was held back go on, or makes one INTERESTED that was not: as sb_subscription_want. */
bool sb_subscription_go_on(sb_subscription *s);
/* Called after the node was destroyed. The consumer of the subscription leaves: others may get the messages that were kept for it (sb_groups.h), and the indexes
 * that it used are freed (sb_sorted.h). */
void sb_subscription_leave(sb_subscription *s);
/* True if the next message could not be read, and nobody will notify the node when it can. */
static inline bool sb_subscription_is_stuck(const sb_subscription *s) {
  return s->following != NULL && s->following->stuck;
}
/* Puts a message that was pulled through a subscription back into its queue. `disposition`: SB_REQUEUE counts the
 * delivery, SB_UNDELIVER does not. */
sb_status sb_subscription_return(sb_queue *q, uint64_t token, sb_disposition disposition);

/* Returns the list entry of the node if its `flagged` is 0, so that no turn was asked for, but should be 1; else 0. It
 * should be 1 if a message is ready, no node of a higher priority wants messages, and one of two cases holds: the node
 * is NOTIFIED; or it is INTERESTED, and no node of the queue is NOTIFIED. */
uint64_t sb_subscription_overlooked(const sb_subscription *s);

/* ---- on the path of every message ---- */

/* Called if the counts say that a node of a higher priority wants messages. Makes a NOTIFIED node of the subscription
 * INTERESTED, then checks the lists. False: the lists have no such node of a higher priority, and this node is NOTIFIED
 * again. True: the node must take no message now (I32). That is so if no message looks ready, if the node could not be
 * made NOTIFIED again, or if the lists have such a node of a higher priority. In the last case the function has called
 * sb_notify_above, so that one of those nodes is NOTIFIED. */
bool sb_subscription_gives_way(sb_subscription *s);
/* Called if the node's `flags` say that the node is rescued, stands by, or waits for the gate. False: the node stands by,
 * and is not active; or the gate is closed. Sets *rescued if the node is rescued: it may then take a message although a higher priority wants
 * messages. */
bool sb_subscription_may_try(sb_subscription *s, uint32_t flags, bool *rescued);

static inline void sb_subscription_took(sb_connection *c, sb_queue *q, const sb_taken *t) {
  sb_take_delivered(q, t);
  sb_notify_room_made(c, q->shm, q->slot);
}

SB_HOT sb_status sb_subscription_acquire(sb_connection *c, sb_queue *q, sb_taken *t) {
  uint64_t token;
  sb_status status = sb_holding_take(c, &token);
  if (status != SB_OK) {
    return status;
  }
  status = sb_choice_get(q, token, t);
  if (status != SB_OK) {
    sb_holding_give(c, token);
    if (status == SB_EMPTY && sb_queue_is_sorted(q) && sb_limits_enforce(q) > 0) /* I42 of sb_queue.h */
      sb_notify_room_made(c, q->shm, q->slot);
    sb_notify_ended(q);
    return status;
  }
  sb_subscription_took(c, q, t);
  return SB_OK;
}

/* Like sb_subscription_take, but the caller passes the connection, too. */
SB_HOT sb_status sb_subscription_take_now(sb_connection *c, sb_subscription *s, sb_taken *t) {
  sb_node_shm *node = sb_slot_at(c->b, s->node);
  if (s->choosy) {
    return sb_subscription_take_choosy(s, t);
  }
  if (!sb_queue_is_open(s->q)) {
    return SB_DELETED;
  }
  for (unsigned tries = 0; tries < SB_MAX_RETRIES; tries++) {
    uint32_t flags = SB_LOAD(&node->flags, SB_RELAXED);
    bool rescued = false;
    if ((flags & (SB_NODE_RESCUED | SB_NODE_STANDBY | SB_NODE_GATED)) != 0 &&
        !sb_subscription_may_try(s, flags, &rescued)) {
      return SB_EMPTY;
    }
    /* the list of levels begins with the highest priority: most of the time it is the node's own */
    bool highest = SB_LOAD(&s->q->shm->consumer_levels, SB_ACQUIRE) == SB_LOAD(&node->level, SB_RELAXED);
    if (!rescued && !highest && sb_notify_higher_wants(c->b, s->q->shm, s->priority) && sb_subscription_gives_way(s)) {
      return SB_EMPTY;
    }
    bool beside =
        s->choice.window != NULL || (!rescued && !highest && sb_rivals_possible(s->q, node)); /* I107 of sb_rivals.h */
    sb_status status = beside ? sb_subscription_take_beside(s, t) : sb_subscription_acquire(c, s->q, t);
    if (status != SB_EMPTY) {
      return status;
    }
    /* P3: the last attempt to take is made while the node is INTERESTED. If the queue still looks ready after that
     * attempt, a ready message may lack its `requeued` bits: sb_hints_rescan sets them. */
    if (!sb_node_move(c, s->node, SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED) &&
        (!sb_notify_looks_ready(s->q) || sb_hints_rescan(s->q) == 0)) {
      return SB_EMPTY;
    }
  }
  return SB_EMPTY; /* the hints promise a message, but no attempt found one: the housekeeper corrects the hints */
}

#endif
