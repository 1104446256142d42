// SPDX-License-Identifier: Apache-2.0
/* Firsts: which groups a consumer has had since it claimed their bucket (ActiveMQ: JMSXGroupFirstForConsumer, Artemis:
 * group-first-key).
 *
 * What: a consumer that gets a group may have to prepare for it, for example read its state. So it is told which message
 * is the first one of its group that it gets. A bucket has several groups, so the claim of the bucket alone does not say
 * it. A table of the connection has the hash of each group that one of its consumers has had, with the number of the
 * claim. Each claim has another number, so whatever ends a claim, the entries of its groups count no more: a consumer that
 * leaves, a rebalance, a message that closes its group, an acknowledgement of a shared group. A message that its consumer
 * returns, and that was the first one, is the first one again. A killed owner leaves nothing: the next owner has a table of
 * its own.
 *
 * Layout: nothing shared but the flag SB_SIDE_GROUP_FIRST in the side record of the cell of a held message. The table is
 * process-local. It grows with the groups of claims that last, up to SB_FIRSTS_PLACES places.
 *
 * Invariants:
 *  I115 the first message of a group that a consumer takes in a claim is marked. A later one is marked only if the table
 *      forgot the group: it had no memory, or more than half of SB_FIRSTS_PLACES groups at the same time. So a consumer
 *      that prepares for each mark is always prepared.
 *
 * Ordering pairs: none here.
 *
 * Death: a killed process leaves a held message with its mark -> a reaper returns the message -> the next take removes
 *  the mark.
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_FIRSTS_H
#define SB_FIRSTS_H

#include <stdbool.h>
#include <stdint.h>

#define SB_FIRSTS_PLACES 131072u
typedef struct {
  uint32_t hash;  /* of the group; 0: the place is free */
  uint32_t claim; /* the number of the claim; 0: none */
} sb_first;
typedef struct {
  sb_first *places; /* NULL: none yet */
  uint32_t count;   /* of the places, a power of two */
  uint32_t used;
} sb_firsts;
/* The claims that a connection has: the number of each bucket's claim, 0 = none. */
typedef struct {
  const uint32_t *numbers;
  uint32_t buckets;
} sb_firsts_claims;

/* Adds the group of `hash`, which is not 0, with the claim of its bucket. True: the claim did not have the group. */
bool sb_firsts_add(sb_firsts *f, uint32_t hash, sb_firsts_claims claims);
/* The next message of the group is the first one again. */
void sb_firsts_forget(sb_firsts *f, uint32_t hash);
void sb_firsts_free(sb_firsts *f);

#endif
