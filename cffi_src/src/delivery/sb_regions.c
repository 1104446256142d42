// SPDX-License-Identifier: Apache-2.0
#include "sb_regions.h"

#include "sb_paged.h"
#include "sb_peek.h"

/* What a step may do: a leaf costs as many messages as it has, one that has left the memory costs one. */
#define WORK 32768u

/* The first position of the lane, from `from` on, at which a consumer, or a waiting get, goes on. Those that take any
 * message begin at the head; with `gap`, they come to no message after it. */
static uint64_t first_reached(sb_connection *c, uint32_t queue, const sb_ring *r, uint64_t from, bool gap) {
  uint64_t position = 0, least = UINT64_MAX, reached;
  unsigned lane = sb_position_lane(SB_LOAD(r->base, SB_RELAXED));
  uint32_t node;
  sb_ring list;
  if (!sb_ring_open(c->b, queue, SB_RING_ALL, &list)) {
    return least;
  }
  while ((node = sb_nodes_next(c, &list, SB_STATE_ALL, &position)) != 0) {
    const sb_node_shm *n = sb_slot_at(c->b, node);
    if ((SB_LOAD(&n->flags, SB_RELAXED) & (SB_NODE_COUNTED | SB_NODE_DIRECT)) == 0) continue;
    reached = SB_LOAD(&n->reached, SB_RELAXED);
    if (reached == 0) {
      if (!gap) return 0;
    } else if (sb_position_lane(reached - 1) == lane && reached - 1 >= from && reached - 1 < least) {
      least = reached - 1;
    }
  }
  return least;
}

/* `direct_from`: ready messages from there on are `direct`. */
static void add(sb_broker *b, const sb_leaf_ref *leaf, uint64_t at, uint64_t direct_from, sb_regions *f) {
  uint64_t word = SB_LOAD(&sb_leaf_cell(leaf, at)->word, SB_ACQUIRE);
  uint32_t slot = sb_cell_slot(word);
  unsigned state = sb_cell_state(word);
  if (!sb_cell_has_message(word) || state == SB_CELL_STAGED || !sb_cell_of(word, leaf->gen) ||
      !sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot)) {
    return;
  }
  uint64_t bytes = sb_peek_length(b, slot);
  if (state == SB_CELL_SCHEDULED) {
    f->scheduled += bytes;
  } else if (state != SB_CELL_AVAILABLE && state != SB_CELL_FROZEN) {
    f->acquired += bytes;
  } else if (at >= direct_from) {
    f->direct += bytes;
  } else if (f->gap == 0) {
    f->head += bytes;
  } else {
    f->pending += bytes;
  }
}

/* Goes on in one lane, from f->at on. True: the lane has more. */
static bool step_in(sb_connection *c, uint32_t queue, const sb_ring *r, sb_regions *f, uint32_t *work) {
  sb_leaf_ref leaf;
  sb_status status;
  uint64_t direct_from = 0;
  bool known = false; /* direct_from: since the last gap */
  while (*work < WORK) {
    status = sb_ring_find_leaf(c->b, r, f->at, &leaf, &f->at);
    if (status == SB_PAGED) {
      if (f->has_watermark == 0) f->watermark = sb_lanes_sequence(c->b, queue, f->at);
      f->has_watermark = f->gap = 1;
      f->at = f->run = (f->at / SB_PAGE_CELLS + 1) * SB_PAGE_CELLS;
      known = false;
      ++*work;
      continue;
    }
    if (status != SB_OK) {
      return false;
    }
    if (!known) direct_from = first_reached(c, queue, r, f->run, f->gap != 0);
    known = true;
    for (; sb_leaf_covers(&leaf, f->at); f->at++) add(c->b, &leaf, f->at, direct_from, f);
    *work += SB_PAGE_CELLS;
  }
  return true;
}

bool sb_regions_step(sb_connection *c, uint32_t queue, sb_regions *f) {
  const sb_queue_shm *q = sb_slab_queue(c->b, queue);
  uint64_t incarnation = q != NULL ? SB_LOAD(&q->state, SB_ACQUIRE) >> 2 : 0;
  uint32_t work = 0;
  sb_ring r;
  bool more = q != NULL && (f->incarnation == 0 || f->incarnation == incarnation);
  sb_lanes_walk all = sb_lanes_of(c->b, queue);
  while (more && sb_lanes_next(&all, &r)) {
    uint64_t base = SB_LOAD(r.base, SB_RELAXED);
    if (r.changed == NULL) {
      return false;
    }
    if (sb_position_lane(base) < sb_position_lane(f->at) && f->incarnation != 0)
      continue; /* an earlier step was there */
    if (f->incarnation == 0 || sb_position_lane(base) > sb_position_lane(f->at)) {
      f->at = f->run = base;
      f->gap = 0;
    }
    f->incarnation = incarnation;
    if (step_in(c, queue, &r, f, &work)) {
      return true;
    }
  }
  return false;
}
