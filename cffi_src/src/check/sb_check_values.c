// SPDX-License-Identifier: Apache-2.0
/* The doctor's check of a queue with last values: the nodes of its index, and that the index names each ready message.
 * And that the flag of a sorted queue goes with the name of its header. */
#include "sb_check.h"
#include "sb_sorted.h"
#include "sb_values.h"

enum { NODE, WORD, SETTING, UNSETTLED, SORTING }; /* `which` of SB_BAD_VALUE */

#define LEVELS 32u

static void trouble(sb_checkup *k, uint32_t queue, uint32_t slot, unsigned which, uint64_t where, uint64_t found) {
  sb_check_found(k, (sb_finding){SB_BAD_VALUE, queue, slot, which, 0, where, found, 0});
}

/* The node in `slot`, if it is the one that word `branch` of the node `parent` should name; else NULL. */
static const sb_value_node_shm *node_of(sb_checkup *k, uint32_t queue, uint32_t slot, uint32_t parent,
                                        unsigned branch) {
  const sb_value_node_shm *node = sb_check_is(k, slot, SB_KIND_VALUE_NODE) ? sb_slot_at(k->b, slot) : NULL;
  bool fits = node != NULL && (k->seen[slot] & 1u) == 0 && SB_LOAD(&node->queue, SB_RELAXED) == queue &&
              SB_LOAD(&node->parent, SB_RELAXED) == parent && SB_LOAD(&node->branch, SB_RELAXED) == branch;
  if (!fits) {
    sb_check_found(
        k, (sb_finding){SB_BAD_VALUE, queue, slot, NODE, 0, parent, sb_check_kind(k, slot), SB_KIND_VALUE_NODE});
    return NULL;
  }
  k->seen[slot] |= 1u;
  return node;
}

static void check_word(sb_checkup *k, uint32_t queue, uint32_t slot, uint64_t word, uint64_t count) {
  bool good = word == 0 || ((word & 3u) == SB_VALUE_POSITION && SB_BITS(word, 2, 46) < count);
  if (!good) trouble(k, queue, slot, WORD, 0, word);
}

/* Walks the tree, without recursion: next[d] is the next word to look at in the node of level d. `count`: how many
 * positions the queue has. */
static void check_nodes(sb_checkup *k, uint32_t queue, uint32_t root, uint64_t count) {
  const sb_value_node_shm *nodes[LEVELS];
  uint32_t slots[LEVELS];
  unsigned next[LEVELS], depth = 0;
  if ((nodes[0] = node_of(k, queue, root, 0, 0)) == NULL) {
    return;
  }
  slots[0] = root;
  next[0] = 0;
  for (;;) {
    if (next[depth] == SB_VALUE_BRANCHES) {
      if (depth-- == 0) return;
      continue;
    }
    unsigned n = next[depth]++;
    uint64_t word = SB_LOAD(&nodes[depth]->words[n], SB_SEQ_CST);
    if ((word & 3u) != SB_VALUE_NODE || depth + 1 == LEVELS) {
      check_word(k, queue, slots[depth], word, count);
      continue;
    }
    uint32_t below = (uint32_t)SB_BITS(word, 2, 28);
    const sb_value_node_shm *node = node_of(k, queue, below, slots[depth], n);
    if (node != NULL) {
      depth++;
      nodes[depth] = node;
      slots[depth] = below;
      next[depth] = 0;
    }
  }
}

/* I103 of sb_values.h: the index names the ready message of this cell, if the message has a key. */
static void check_cell(sb_checkup *k, const sb_queue *q, const sb_leaf_ref *leaf, uint64_t position, uint64_t word) {
  uint32_t slot = sb_cell_slot(word);
  sb_value_key key;
  sb_value_place place = {.found = 0};
  uint64_t named = 0;
  if (sb_cell_state(word) != SB_CELL_AVAILABLE || !sb_check_is(k, slot, SB_KIND_MESSAGE)) {
    return;
  }
  sb_message_shm m = sb_peek_message(k->b, slot);
  if (!sb_values_key_of(q, slot, &m, &key)) {
    return;
  }
  bool settled = sb_value_index_look(q, &key, &place) == SB_OK && sb_value_index_names(q, place.found, &named) &&
                 named == position;
  if (!settled && SB_LOAD(&sb_leaf_cell(leaf, position)->word, SB_SEQ_CST) == word) {
    trouble(k, q->slot, slot, UNSETTLED, position, place.found);
  }
}

static void check_ready(sb_checkup *k, const sb_queue *q) {
  const sb_ring *r = &q->lanes[0].ring;
  uint64_t at = q->base, end = sb_ring_exact_tail(k->b, r);
  sb_leaf_ref leaf;
  while (at < end && sb_ring_next_leaf(k->b, r, at, &leaf, &at)) {
    for (; at < end && sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST);
      if (sb_cell_of(word, leaf.gen)) check_cell(k, q, &leaf, at, word);
    }
  }
}

void sb_check_values(sb_checkup *k, uint32_t slot, bool sound) {
  sb_queue_shm *shm = sb_slot_at(k->b, slot);
  bool keeps = (SB_LOAD(&shm->flags, SB_RELAXED) & SB_QUEUE_LAST_VALUE) != 0;
  uint32_t root = SB_LOAD(&shm->value_index, SB_ACQUIRE), before = k->count;
  sb_connection reader = {.b = k->b};
  sb_queue q = {.shm = NULL};
  bool open = sound && sb_queue_stand_in(&reader, slot, &q, NULL) == SB_OK;
  if (root != 0) check_nodes(k, slot, root, open ? sb_ring_exact_tail(k->b, &q.lanes[0].ring) - q.base : UINT64_MAX);
  if (!open) {
    return;
  }
  if (keeps != sb_queue_has_values(&q) || (root != 0 && !keeps)) {
    trouble(k, slot, root, SETTING, 0, keeps);
  } else if (keeps && k->count == before) {
    check_ready(k, &q);
  }
  bool sorts = (SB_LOAD(&shm->flags, SB_RELAXED) & SB_QUEUE_SORTED) != 0;
  if (sorts != sb_queue_is_sorted(&q)) trouble(k, slot, 0, SORTING, 0, sorts);
}
