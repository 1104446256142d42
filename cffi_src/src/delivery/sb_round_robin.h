// SPDX-License-Identifier: Apache-2.0
/* Round robin: decides which channel consumer (*member*) of a connection gets the next message of a queue.
 *
 * What: it does not matter which node of the connection was notified. The willing members (they have credit) with the
 * highest priority get the pulled messages in turn, one message each, across all channels of the connection. Among
 * connections the queue's lists decide (sb_notify.h). Consumers without a channel (sb_consumer.h), and members with
 * choosy subscriptions, take no part.
 *
 * Layout: process-local: queues by hash. A queue has its priorities (*ranks*) in descending order, and each rank has
 * its willing members (the *circle*).
 *
 * Invariants: a member that is not choosy is in the circle of its rank exactly while it is willing.
 *
 * Ordering pairs: none; nothing is shared.
 *
 * Death: nothing is left, since all of this is process-local.
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_ROUND_ROBIN_H
#define SB_ROUND_ROBIN_H

#include "sb_subscription.h"

typedef struct sb_round_robin_rank {
  struct sb_round_robin_rank *lower;
  struct sb_round_robin *deal;
  struct sb_member *first, *last; /* the circle: the willing members; the first one is served next */
  uint32_t members;               /* number of members, willing or not */
  int32_t priority;
} sb_round_robin_rank;

typedef struct sb_round_robin {
  struct sb_round_robin *next; /* the next queue with the same hash */
  sb_round_robin_rank *ranks;  /* the highest priority first */
  uint32_t queue;
} sb_round_robin;

/* A consumer of a channel. */
typedef struct sb_member {
  sb_subscription s;
  struct sb_channel *channel;
  sb_round_robin_rank *rank;
  struct sb_member *previous, *next; /* in the circle; `next` also links the channel's list of unreported members */
  uint64_t delivered;                /* messages given to the application */
  uint32_t number, prefetch;         /* prefetch: most messages that it may hold, if not auto_ack; 0 = no limit */
  uint32_t held, waiting;            /* held: messages in the channel's row or unacked; waiting: those in the row */
  bool auto_ack;
  bool starved, willing, ended;
  bool unreported; /* the broker cancelled the member, and the application does not know yet */
  bool busy;       /* needs another turn (sb_target.h): its last turn got a message, or needs a segment (SB_GROW) */
} sb_member;

/* Adds a member, which is not willing yet, to the rank of its priority at its queue. False: this process has no
 * memory. */
bool sb_round_robin_join(sb_member *m);
void sb_round_robin_leave(sb_member *m);
void sb_round_robin_willing(sb_member *m, bool willing);
/* Moves a member that got a message to the end of its circle. */
void sb_round_robin_served(sb_member *m);
/* The member whose turn it is; NULL: no member is willing. */
sb_member *sb_round_robin_next(const sb_round_robin *deal);

#endif
