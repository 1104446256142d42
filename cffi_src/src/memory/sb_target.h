// SPDX-License-Identifier: Apache-2.0
/* Targets: what a connection is told of work for (seed 002), and its IO thread gives turns to: consumers, channels, watches.
 *
 * What: a target has a number, which its nodes name; a notifier sets the bit of that number (modulo SB_MAX_TARGETS) in the
 * connection's record. There are more targets than bits when there are more than SB_MAX_TARGETS: those of one bit get
 * their turns together.
 *
 * Layout: process-local: for each bit a chain of targets, the oldest first.
 *
 * Invariants: a target is in the chain of its number from its first node to its end.
 *
 * Ordering pairs: none of its own; the bits are P9 of sb_notify.h.
 *
 * Death: nothing is shared.
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_TARGET_H
#define SB_TARGET_H

#include "sb_connection.h"

struct sb_target;
/* What it is, and what it does. */
typedef struct {
  bool (*turn)(struct sb_target *t);       /* true: there may be more to do */
  bool (*wants_work)(struct sb_target *t); /* believes no flag */
  /* A node of it that should be awake and was not flagged, as the entry of a list, and its queue; 0: none. NULL: it has none. */
  uint64_t (*overlooked)(struct sb_target *t, const struct sb_queue **q);
  void (*signal)(struct sb_target *t); /* the broker is going: whoever waits has to be told; NULL = nobody does */
  void (*end)(struct sb_target *t);    /* the connection is being closed */
  bool is_channel, is_consumer;
} sb_target_kind;

typedef struct sb_target {
  sb_connection *c;
  struct sb_target *next; /* of the same bit */
  const sb_target_kind *kind;
  uint32_t number;
  bool listed;
} sb_target;

/* Gives it a number: of a bit that nobody has yet, as long as there are such. */
void sb_target_add(sb_target *t);
void sb_target_remove(sb_target *t);
/* The next target after that one, NULL = the first; NULL at the end. */
sb_target *sb_target_after(const sb_connection *c, const sb_target *t);
/* Wakes the IO thread. */
void sb_target_ring_io(sb_connection *c);

#endif
