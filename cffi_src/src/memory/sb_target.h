// SPDX-License-Identifier: Apache-2.0
/* Targets: the objects that an IO thread schedules: consumers, channels, watches (Qpid Broker-J: ConsumerTarget, see
 * docs/explanation/consumer-lists.md).
 *
 * What: a target has a number, and its nodes (sb_nodes.h) name that number. A notifier sets the bit of the number,
 * modulo SB_MAX_TARGETS, in the connection's record; the IO thread then gives the target a *turn*: it calls the
 * target's function `turn`, which pulls messages, or tells of them. With more targets than bits, targets that share a
 * bit get their turns together.
 *
 * Layout: process-local. Each bit has a chain of targets, the oldest first.
 *
 * Invariants: a target is in the chain of its bit from sb_target_add, which comes before its first node, until it ends.
 *
 * Ordering pairs: none here; P9 of sb_notify.h orders the bits.
 *
 * Death: nothing here is shared.
 *
 * Concurrency: all functions except those that ring need the connection's lock.
 */
#ifndef SB_TARGET_H
#define SB_TARGET_H

#include "sb_connection.h"

struct sb_target;
/* The kind of a target, and its functions. */
typedef struct {
  bool (*turn)(struct sb_target *t); /* true: another turn may be needed */
  /* True: the target needs a turn, judged by the words of its nodes and by its queues, whatever `flagged` of the nodes
   * and the bits say. May also change the interest of its nodes. */
  bool (*wants_work)(struct sb_target *t);
  /* Finds a node whose `flagged` (sb_node_shm) should be 1, but is 0. Returns the node's list entry (sb_entry_word); 0:
   * there is no such node. *q: the node's queue. `overlooked` is NULL for a kind whose missed notifications are not
   * counted. */
  uint64_t (*overlooked)(struct sb_target *t, const struct sb_queue **q);
  void (*signal)(struct sb_target *t); /* called when the broker is purged: wakes the waiters; NULL: there are none */
  void (*end)(struct sb_target *t);    /* called when the connection is closed: ends the target */
  bool is_channel, is_consumer;
} sb_target_kind;

typedef struct sb_target {
  sb_connection *c;
  struct sb_target *next; /* of the same bit */
  const sb_target_kind *kind;
  uint32_t number;
  bool listed;
} sb_target;

/* Gives the target a number, and appends it to the chain of the number's bit. If there are fewer than SB_MAX_TARGETS
 * targets, no other target has this bit yet. */
void sb_target_add(sb_target *t);
void sb_target_remove(sb_target *t);
/* The target after `t`; for NULL the first target. NULL at the end. */
sb_target *sb_target_after(const sb_connection *c, const sb_target *t);
/* Wakes the IO thread. */
void sb_target_ring_io(sb_connection *c);
/* Wakes the housekeeper, so that it acts on a change of the caller before its next tick is due. */
void sb_target_ring_housekeeper(sb_broker *b);

#endif
