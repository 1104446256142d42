// SPDX-License-Identifier: Apache-2.0
#include "sb_takers.h"

/* The credit of the node that an entry of the list names; 0: it waits for no message. */
static int64_t credit_of(sb_broker *b, uint64_t entry) {
  const sb_node_shm *n = sb_slab_object(b, sb_cell_slot(entry), SB_KIND_NODE);
  if (n == NULL || SB_LOAD(&n->registration, SB_RELAXED) != (uint32_t)(entry >> 32)) {
    return 0;
  }
  unsigned state = sb_node_state(SB_LOAD(&n->word, SB_SEQ_CST));
  if (state != SB_NODE_INTERESTED && state != SB_NODE_NOTIFIED) {
    return 0;
  }
  int64_t prefetch = SB_LOAD(&n->prefetch, SB_RELAXED), unacked = SB_LOAD(&n->unacked, SB_RELAXED);
  if (prefetch == 0) {
    return SB_TAKERS_MOST;
  }
  return prefetch > unacked ? prefetch - unacked : 0;
}

int64_t sb_takers(const sb_queue *q) {
  sb_broker *b = q->c->b;
  sb_ring all;
  sb_leaf_ref leaf;
  int64_t sum = 0;
  if ((SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_PAUSED) != 0 || !sb_ring_open(b, q->slot, SB_RING_ALL, &all)) {
    return 0;
  }
  uint64_t at = SB_LOAD(all.head, SB_ACQUIRE);
  while (sb_ring_next_leaf(b, &all, at, &leaf, &at)) {
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST);
      int64_t credit = sb_cell_state(word) == SB_CELL_ENTRY ? credit_of(b, word) : 0;
      if (!sb_leaf_is_current(b, &leaf)) {
        break; /* the page was reused, perhaps by another list: find the leaf again */
      }
      if (sb_cell_state(word) == SB_CELL_FREE || !sb_cell_of(word, leaf.gen)) {
        return sum;
      }
      sum += credit;
    }
  }
  return sum;
}
