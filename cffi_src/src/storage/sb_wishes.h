// SPDX-License-Identifier: Apache-2.0
/* Wishes: messages that a process needs, and that another one is to read from the store.
 *
 * What: a process reads a leaf that has left the memory from the store itself (sb_departure.h). It must not as long as
 * nobody has verified the pages of the store (SB_STORES_UNVERIFIED): a damaged page may end whoever reads it. And it
 * cannot without access to the folder. Then it wishes for the leaf and asks for a turn. The storekeeper looks for wishes
 * after each turn, and loads.
 *
 * Layout: `wanted` of a queue: 1 + a sequence number; 0 = no wish. `wishes` of the header: how many were made.
 *
 * Invariants:
 *  I131 a wish is a hint. A queue has one: a later wish replaces an earlier one. A process that needs a leaf wishes for it
 *      again until the leaf is in the memory.
 *
 * Ordering pairs:
 *  P46 a process stores `wanted`, then raises `wishes`; the storekeeper reads `wishes`, then takes `wanted`. All are
 *     seq_cst. So a wish that the storekeeper did not take raises `wishes` after it was read: the storekeeper looks again.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  `wanted` was stored -> a wish that is not counted -> nobody: the storekeeper takes it with the next one of any queue.
 *  `wishes` was raised -> a leaf that nobody needs comes back -> it leaves again when memory is short.
 *  the storekeeper took the wish, and did not load -> the process wishes again.
 *
 * Concurrency: any thread wishes; the storekeeper takes.
 */
#ifndef SB_WISHES_H
#define SB_WISHES_H

#include "sb_queue.h"

/* P46: `wanted`, then `wishes`. */
static inline void sb_wishes_make(const sb_queue *q, uint64_t sequence) {
  SB_STORE(&q->shm->wanted, sequence + 1, SB_SEQ_CST);
  SB_CRASHPOINT("wishes.wanted");
  (void)SB_ADD(&q->c->b->header->wishes, 1u, SB_SEQ_CST);
}
static inline uint32_t sb_wishes_made(const sb_broker *b) { return SB_LOAD(&b->header->wishes, SB_SEQ_CST); }
/* True if there was a wish, with its sequence number. P46: called after sb_wishes_made. */
static inline bool sb_wishes_take(const sb_queue *q, uint64_t *sequence) {
  uint64_t wanted = SB_SWAP(&q->shm->wanted, UINT64_C(0), SB_SEQ_CST);
  if (wanted != 0) *sequence = wanted - 1;
  return wanted != 0;
}

#endif
