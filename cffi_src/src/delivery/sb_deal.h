// SPDX-License-Identifier: Apache-2.0
/* Dealing: whose turn it is among the channel consumers that a connection has at one queue.
 *
 * What: whoever of them was told, a pulled message goes to the next one in turn of those that are willing (have credit) and
 * of the highest priority among them, one each; across all channels of the connection. Among connections the queue's lists
 * decide (sb_notify.h). Native consumers are not dealt to.
 *
 * Layout: process-local: queues by a hash, each with its priorities in descending order, each with its willing members.
 *
 * Invariants: a member is in the circle of its rank exactly while it is willing.
 *
 * Ordering pairs: none; nothing is shared.
 *
 * Death: nothing is left.
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_DEAL_H
#define SB_DEAL_H

#include "sb_subscription.h"

typedef struct sb_rank {
  struct sb_rank *lower;
  struct sb_deal *deal;
  struct sb_member *first, *last; /* those that are willing; whose turn it is first */
  uint32_t members;               /* willing or not */
  int32_t priority;
} sb_rank;

typedef struct sb_deal {
  struct sb_deal *next; /* of the same hash */
  sb_rank *ranks;       /* the highest priority first */
  uint32_t queue;
} sb_deal;

/* A consumer of a channel. */
typedef struct sb_member {
  sb_subscription s;
  struct sb_channel *channel;
  sb_rank *rank;
  struct sb_member *previous, *next; /* in its circle; next: of those that are ended and not reported */
  uint64_t delivered;                /* to the application */
  uint32_t number, prefetch;         /* 0: no limit of its own */
  uint32_t held, waiting;            /* messages it holds; those of them in the row */
  uint64_t cursor;                   /* see sb_foreign.h */
  bool auto_ack, no_local;           /* no_local: it has no turn among the others */
  bool starved, willing, ended;
  bool unreported; /* it was cancelled by the broker, and the application was not told yet */
  bool busy;       /* its last turn brought something, or failed */
} sb_member;

/* False: this process has no memory for it. */
bool sb_deal_join(sb_member *m);
void sb_deal_leave(sb_member *m);
void sb_deal_willing(sb_member *m, bool willing);
/* It got one: it is the last now. */
void sb_deal_served(sb_member *m);
/* Whose turn it is; NULL: nobody is willing. */
sb_member *sb_deal_next(const sb_deal *deal);

#endif
