// SPDX-License-Identifier: Apache-2.0
/* Groups: which consumer gets the messages of a message group (Qpid Broker-J: messageGroupType, Artemis: JMSXGroupID).
 *
 * What: the groups of a queue are spread over *buckets*, by a hash of the group's name. A consumer *claims* a bucket
 * before it takes a message of it. While it has the claim, all other consumers *pass* the messages of the bucket: their
 * searches go on behind them. So the messages of a group are with one consumer at a time, and in order. A queue with
 * "shared" groups ends a claim when its consumer holds no more messages of the bucket. A queue with "sticky" groups ends
 * it when the consumer leaves. A get is a consumer of its connection whose claims always end as those of "shared" groups.
 *
 * With sticky groups a consumer that has more than its share of the claims leaves an unclaimed bucket to others for
 * SB_GROUPS_PATIENCE_NS, if other consumers have credit. When a consumer comes, the others give up what is more than their
 * share, each bucket after the last message of it that they hold.
 *
 * In a queue with priorities (sb_lanes.h), and for a *picky* consumer, which does not want every message, a bucket has no
 * one place behind which all its messages lie. Such a consumer *walks again*: it remembers the buckets of which it passed
 * messages by a cursor, and when one of them is free, all its cursors return to the heads of the lanes. So it finds the
 * messages of a group by priority, and in order in each: a message of a higher priority overtakes those of its group that
 * no consumer holds.
 *
 * Layout: an object of the queue has four words for each bucket. `claims`: 0, or the connection that has the claim, with
 * its epoch, and the bit PASSED: another consumer has passed a message of the bucket since the claim began. `low`: where
 * the next claimant begins to search for messages that others passed. `high`: behind the last message that a consumer
 * passed with its cursor. `freed`: a bit for each bucket: the bucket may have no claim, and messages that were passed.
 * Which consumer of the connection has the claim, and how many messages it holds, only the connection knows.
 *
 * Invariants:
 *  I93 a consumer takes a message of a bucket only while it has the claim. A claim ends after each message that it was
 *      held for has ended, or is AVAILABLE again with its `requeued` bits. So no two consumers hold messages of a bucket.
 *  I94 each AVAILABLE message of a bucket has its `requeued` bits, or lies at or behind the cursors of all consumers, or
 *      at or behind `low` of its bucket (while there is a claim: where the claimant searches on). A consumer that passes
 *      such a message with its cursor raises `high` first. So a claimant finds all of them between `low` and `high`.
 *      Before it takes a message by its bits, it takes those that lie before it there: the bits may be those of a cell
 *      that was STAGED (I53 of sb_take.h).
 *  I95 a consumer that claims a bucket in the middle of a search begins this search again: the earlier claimant may have
 *      returned a message, or left one behind the cursor. It goes on if no cell of the lane has `requeued` bits, and
 *      `high` is not above `low`.
 *  I113 each AVAILABLE message of a queue with priorities has its `requeued` bits, or lies at or behind the consumer's
 *      cursor of its lane, or its bucket is one that the consumer remembers to have passed. While no consumer has the claim
 *      of such a bucket, its bit of `freed` is set, or the consumer that is about to set it tells all others. A claimant
 *      takes the bit over; the end of its claim sets it again, unless it could have taken any message, and found none.
 *  I114 a message that came into a bucket with a claim is told to the claimant; the end of the claim tells all others.
 *
 * Ordering pairs:
 *  P24 a consumer raises `high`, then sets PASSED by a CAS that expects the claim it saw. The claimant stores `low`, swaps
 *      the claim for 0, then reads `high`. All are seq_cst. If the CAS comes first, the claimant sees PASSED. If the swap
 *      comes first, the CAS fails, and the consumer looks at the claim again.
 *  P25 the claimant ends its claim, sets the bucket's bit of `freed`, then notifies the consumers. A consumer clears its
 *      flag (P9 of sb_notify.h), then looks at `freed`.
 *  P36 a producer appends a message, reads the claim of its bucket, and sets PASSED unless it is set. If the claimant's swap
 *      comes later, the claimant sees PASSED, and tells all consumers. If the swap comes first, the producer tells them.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the object was allocated, or linked -> as for a lane (sb_lanes.h).
 *  `high` was raised -> a claimant searches further than it needs -> nothing to repair.
 *  the bucket was claimed -> a claim of a dead connection -> the reaper makes the messages of the connection AVAILABLE,
 *   then ends its claims. `low` is that of an earlier end, so the next claimant searches more cells than it needs.
 *  the claim was swapped for 0, before the bit of `freed` -> passed messages that no consumer looks for -> the reaper sets
 *   the bit of each bucket that has no claim, then notifies the consumers.
 *  a producer has set PASSED, before it notified the claimant -> as in sb_notify.h.
 *
 * Concurrency: any process. A connection changes its claims under its lock.
 */
#ifndef SB_GROUPS_H
#define SB_GROUPS_H

#include "sb_firsts.h"
#include "sb_queue.h"

#define SB_NO_BUCKET SB_BUCKETS
#define SB_GROUPS_BITS (SB_BUCKETS / 64)
/* The consumer of the gets of a connection; the consumers of the application have other numbers. */
#define SB_GROUPS_GETS 0u
#define SB_GROUPS_PATIENCE_NS UINT64_C(10000000)

/* What a connection knows of the buckets of a queue. All handles of the queue share it. Bit b of a bitmap: bucket b. */
typedef struct sb_groups {
  sb_groups_shm *shm;                         /* NULL: not needed yet */
  void (*tell)(sb_queue *q);                  /* notifies all consumers of the queue; of a higher layer */
  uint32_t handles, consumers;                /* consumers: how many the connection ever had at the queue */
  struct sb_choice *get;                      /* of its gets (sb_choice.h) */
  uint64_t patient_until_ns;                  /* while it leaves buckets to others; 0 = it does not */
  uint32_t patient;                           /* the consumer that began to */
  bool left_some;                             /* this search left a bucket to others */
  uint32_t joins;                             /* of the object, as last seen */
  uint64_t claim;                             /* what the connection writes into `claims` */
  uint32_t unused_count, behind_count;        /* bits of `unused` and `behind` */
  uint32_t claim_count;                       /* claims that the connection has made */
  sb_firsts firsts;                           /* the groups that it has had */
  uint64_t mine[SB_GROUPS_BITS];              /* the connection has the claim */
  uint64_t unused[SB_GROUPS_BITS];            /* ... and has taken no message for it */
  uint64_t leaving[SB_GROUPS_BITS];           /* ... and ends it when it holds no more messages of the bucket */
  uint64_t behind[SB_GROUPS_BITS];            /* ... and has not searched for all messages that others passed */
  uint32_t number[SB_BUCKETS];                /* of the claim, from 1; 0: the connection has none */
  uint32_t consumer[SB_BUCKETS];              /* the number of the consumer that has the claim */
  uint32_t held[SB_BUCKETS];                  /* messages that it holds */
  uint64_t next[SB_BUCKETS], end[SB_BUCKETS]; /* it searches from `next` on; the messages that were passed end there */
} sb_groups;

static inline bool sb_groups_has(const uint64_t *bits, unsigned bucket) {
  return (bits[bucket / 64] >> bucket % 64 & 1) != 0;
}
/* The first bucket with a bit, from `from` on. SB_NO_BUCKET: there is none. */
unsigned sb_groups_next_bit(const uint64_t *bits, unsigned from);
/* The object in a slot; NULL: there is none. */
sb_groups_shm *sb_groups_at(sb_broker *b, uint32_t slot);
/* True if the object is linked in the queue that it names. */
bool sb_groups_links(sb_broker *b, uint32_t slot);
/* Finds the object of the queue, or makes it; the first call of a handle's search. */
sb_status sb_groups_find(sb_queue *q);
/* Stores the hash of the group that a message names in its header JMSXGroupID, and SB_MESSAGE_LAST. `m` is not published
 * yet. Every put of a broker that has a queue with groups calls this, so that a message can be moved there later. */
void sb_groups_describe(sb_message_shm *m, const char *properties, uint32_t length);
static inline unsigned sb_groups_buckets(const sb_queue_shm *q) {
  int64_t buckets = sb_setting(q, SB_SETTING_GROUP_BUCKETS);
  return buckets >= 1 && buckets <= SB_BUCKETS ? (unsigned)buckets : SB_BUCKETS;
}
/* The bucket of a message with the hash `hash`; SB_NO_BUCKET: the message may go to any consumer. */
static inline unsigned sb_groups_bucket_of(const sb_queue_shm *q, uint32_t hash) {
  if (hash == 0 && sb_setting(q, SB_SETTING_MESSAGE_GROUPS) != SB_GROUPS_SHARED) {
    return SB_NO_BUCKET;
  }
  return hash % sb_groups_buckets(q);
}
static inline unsigned sb_groups_bucket(const sb_queue *q, const sb_message_shm *m) {
  return sb_groups_bucket_of(q->shm, m->group_hash);
}

/* ---- the search of a consumer (sb_choice.h) ---- */

/* Begins a search: claims the buckets that are free and may have messages that were passed. A picky consumer, which does
 * not want every message, claims none here: what it does not want, another one may. `passed`: the buckets of which a
 * consumer that walks again has passed messages (sb_choice.h). True: one of them is free, or was claimed. */
bool sb_groups_begin(sb_queue *q, uint32_t consumer, bool picky, const uint64_t *passed);
/* Whether a consumer may take the AVAILABLE message at `position`, of `bucket`. PASSED: another consumer has the claim, and
 * the search goes on behind the message. CLAIMED: this call claimed the bucket, and the search begins again (I95).
 * `by_cursor`: the message has no `requeued` bits that others find it by. */
typedef enum { SB_GROUP_MINE, SB_GROUP_PASSED, SB_GROUP_CLAIMED } sb_group_verdict;
sb_group_verdict sb_groups_admits(sb_queue *q, uint32_t consumer, unsigned bucket, uint64_t position, bool by_cursor);
/* Whether sb_groups_admits would claim `bucket` for the consumer, as far as one look can say. */
bool sb_groups_would_claim(sb_queue *q, uint32_t consumer, unsigned bucket);
/* The next bucket from `from` on that the consumer claimed, and in which it has to search for messages that others
 * passed, before `cursor`. SB_NO_BUCKET: there is none. */
unsigned sb_groups_behind(sb_queue *q, uint32_t consumer, unsigned from, uint64_t cursor);
/* Called when the consumer took a message of `bucket`. `next`: behind it, if the search came there by position. `delivers`:
 * it has not expired; a claim for a message that ends instead ends with the search. */
void sb_groups_took(sb_queue *q, unsigned bucket, uint64_t next, bool delivers);
/* True if the message, which the consumer has just taken, is the first one of its group for it (sb_firsts.h). */
bool sb_groups_first(sb_queue *q, const sb_message_shm *m);
/* Ends a search: ends the claims for which no message was taken. `searched_all`: of all messages of these buckets, the
 * consumer could have had none. */
void sb_groups_end(sb_queue *q, bool searched_all);

/* ---- the arrival of a message ---- */

/* The id of the connection that has the claim on the bucket of a message with the hash `hash`; 0: none has it. */
unsigned sb_groups_claimant(sb_broker *b, const sb_queue_shm *q, uint32_t hash);
/* Passes a message that is in the queue for the consumers of all other connections than `claimant`: the end of its claim
 * tells them (P36). False: the claim has ended. */
bool sb_groups_pass_for_others(sb_broker *b, const sb_queue_shm *q, uint32_t hash, unsigned claimant);

/* ---- the end of claims ---- */

/* Called after a message that the connection held has ended, or was returned; `ending`: sb_groups_of the message
 * before. */
void sb_groups_ended(sb_queue *q, unsigned ending);
/* A consumer comes; returns its number. */
uint32_t sb_groups_join(sb_queue *q);
/* Called after a search: the patience of the consumer ends if the search left no bucket to others. */
void sb_groups_ends_patience(sb_queue *q, uint32_t consumer);
/* True if the last search left a message to other consumers, and its consumer must search again. */
bool sb_groups_searches_again(const sb_queue *q);
/* The consumer leaves: its claims end, at once or with the last message that the connection holds of the bucket. */
void sb_groups_leave(sb_queue *q, uint32_t consumer);
/* The connection leaves the queue, and holds no message of it. */
void sb_groups_leave_all(sb_queue *q);
/* Ends the claims of the dead connection `id`, whose messages are AVAILABLE again. The caller then notifies the
 * consumers. */
void sb_groups_end_dead(sb_broker *b, const sb_queue_shm *q, unsigned id);

/* The bucket of a message that the caller is about to settle or return, with SB_GROUP_LAST if the message ends its group
 * (JMSXGroupSeq -1): the claim then ends, so that the next message of the group may go to another consumer. `delivered`: a
 * consumer had the message. */
#define SB_GROUP_LAST 1024u
static inline unsigned sb_groups_of(const sb_queue *q, const sb_message_shm *m, bool delivered) {
  if (q->groups == NULL || !delivered) {
    return SB_NO_BUCKET;
  }
  return sb_groups_bucket(q, m) | ((m->flags & SB_MESSAGE_LAST) != 0 ? SB_GROUP_LAST : 0u);
}
/* Called before the message returns to its place: if it was the first one of its group, it is so again. */
static inline void sb_groups_returns(const sb_queue *q, const sb_message_shm *m, uint64_t side) {
  if (q->groups != NULL && (side & SB_SIDE_GROUP_FIRST) != 0) sb_firsts_forget(&q->groups->firsts, m->group_hash);
}
static inline void sb_groups_gone(sb_queue *q, unsigned ending) {
  if (ending != SB_NO_BUCKET) sb_groups_ended(q, ending);
}

#endif
