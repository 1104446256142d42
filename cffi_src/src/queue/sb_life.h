// SPDX-License-Identifier: Apache-2.0
/* Life: how long a message lives that is put into a queue.
 *
 * What: a message has the life that its put gives it, or none: then it lives for ever. The settings of the queue change
 * that: expiry_delay is the life of a message without one; min_expiry_delay makes a shorter life longer;
 * max_expiry_delay and message_ttl, of which the shorter one counts, are the longest life, also of a message without
 * one. The longest life wins over the least one. With SB_QUEUE_NO_EXPIRY no message has a life.
 *
 * A message with a life of 0 is for a consumer that waits for it now (RabbitMQ: TTL 0). Here consumers pull, so such a
 * message lives for SB_LIFE_HAND_OVER if the consumers would take more messages than are ready (sb_takers.h); else it
 * expires immediately. Consumers that choose among messages count although the message may not be theirs.
 *
 * Layout: four numbers of `settings`, in ms. SB_QUEUE_TTL is set if one of them is given, or NO_EXPIRY: so a put into
 * any other queue reads none of them.
 *
 * Invariants: none.
 *
 * Ordering pairs: none. A put beside a change of the settings may use old and new ones together. A process that
 *  removes a setting clears the flag after it stored the number, so a put that finds the flag may find no number.
 *
 * Death: these functions only read. The consumer for which a message lives is killed, or stops, before it takes it -> the
 *  message expires when its life is over.
 *
 * Concurrency: any process, at any time.
 */
#ifndef SB_LIFE_H
#define SB_LIFE_H

#include "sb_queue.h"

#define SB_LIFE_NONE UINT64_C(1) /* ns: SB_TTL_NOW; it expires before any consumer can take it. 0 would mean: never */
#define SB_LIFE_HAND_OVER UINT64_C(1000000000)

/* The life that the settings of a queue with SB_QUEUE_TTL give a message, in ns; 0 = for ever. `ttl_ns`: its own. */
uint64_t sb_life_within(const sb_queue_shm *q, uint32_t flags, uint64_t ttl_ns) __attribute__((cold));
/* The life of a message that has none, in ns. */
uint64_t sb_life_for_takers(const sb_queue *q) __attribute__((cold));
/* The life of a message that is put into the queue, in ns; 0 = for ever. */
static inline uint64_t sb_life_of(const sb_queue *q, uint64_t ttl_ns) {
  uint32_t flags = SB_LOAD(&q->shm->flags, SB_RELAXED);
  uint64_t life = (flags & SB_QUEUE_TTL) == 0 ? ttl_ns : sb_life_within(q->shm, flags, ttl_ns);
  return life != SB_LIFE_NONE ? life : sb_life_for_takers(q);
}

#endif
