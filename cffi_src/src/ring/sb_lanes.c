// SPDX-License-Identifier: Apache-2.0
#include "sb_lanes.h"

#include "sb_slab.h"

static sb_lane_shm *lane_at(sb_broker *b, uint32_t slot) { return sb_slab_object(b, slot, SB_KIND_LANE); }

unsigned sb_lanes_next_ready(const sb_queue_shm *q, unsigned from, bool downwards) {
  for (unsigned n = 0; n < SB_LANES / 64; n++) {
    unsigned w = downwards ? from / 64 - n : from / 64 + n;
    if (w >= SB_LANES / 64) break;
    uint64_t bits = SB_LOAD(&q->ready[w], SB_SEQ_CST), mask = ~UINT64_C(0);
    if (n == 0) mask = downwards ? mask >> (63 - from % 64) : mask << from % 64;
    bits &= mask;
    if (bits != 0) return w * 64 + (unsigned)(downwards ? 63 - __builtin_clzll(bits) : __builtin_ctzll(bits));
  }
  return SB_LANES;
}

/* Finds the link to the first object whose number is not below `number`; *at: that object, 0 = none. NULL: the chain is
 * damaged. */
static sb_half *link_of(sb_broker *b, const sb_queue_shm *q, unsigned number, uint32_t *at) {
  const sb_half *link = &q->lanes;
  for (unsigned n = 0; n < SB_LANES; n++) {
    *at = SB_LOAD(link, SB_ACQUIRE);
    const sb_lane_shm *l = *at != 0 ? lane_at(b, *at) : NULL;
    if (*at != 0 && l == NULL) {
      return NULL;
    }
    if (*at == 0 || SB_LOAD(&l->number, SB_RELAXED) >= number) {
      return (sb_half *)(uintptr_t)link;
    }
    link = &l->next;
  }
  return NULL;
}

static bool is_number(sb_broker *b, uint32_t slot, unsigned number) {
  return slot != 0 && SB_LOAD(&lane_at(b, slot)->number, SB_RELAXED) == number;
}

uint32_t sb_lanes_find(sb_broker *b, const sb_queue_shm *q, unsigned number) {
  uint32_t at = 0;
  return link_of(b, q, number, &at) != NULL && is_number(b, at, number) ? at : 0;
}

/* The ring goes on after the positions of its earlier use (I78). */
static void start(sb_lane_shm *l, uint32_t queue, unsigned number) {
  uint64_t base = sb_position_in(number, SB_LOAD(&l->base, SB_RELAXED));
  SB_STORE(&l->queue, queue, SB_RELAXED);
  SB_STORE(&l->number, number, SB_RELAXED);
  SB_STORE(&l->requeued, 0, SB_RELAXED);
  SB_STORE(&l->changed, 0, SB_RELAXED);
  SB_STORE(&l->stored, base, SB_RELAXED);
  SB_STORE(&l->from, base, SB_RELAXED);
  SB_STORE(&l->base, base, SB_RELAXED);
  SB_STORE(&l->tail, base, SB_RELAXED);
  SB_STORE(&l->head, base, SB_RELAXED);
  SB_STORE(&l->root, sb_link_empty(base / SB_PAGE_CELLS), SB_RELAXED);
}

static sb_status make(sb_connection *c, uint32_t queue, unsigned number, uint64_t *token, uint32_t *slot,
                      uint64_t *gen) {
  sb_status status = sb_holding_object(c, SB_KIND_LANE, token, slot, gen);
  sb_slab_return_class(c, sb_class_of_kind(c->b, SB_KIND_LANE)); /* cached slots would lie idle: lanes are made once */
  if (status == SB_OK) {
    start(sb_slot_at(c->b, *slot), queue, number);
  } else {
    *slot = 0; /* a failed allocation may leave the number of a slot that another process took */
  }
  return status;
}

static void discard(sb_connection *c, uint64_t token, uint32_t slot, uint64_t gen) {
  if (slot != 0) {
    (void)sb_slab_free_gen(c->b, slot, gen);
    sb_holding_give(c, token);
  }
}

sb_status sb_lanes_make(sb_connection *c, uint32_t queue, unsigned number, uint32_t *slot) {
  sb_broker *b = c->b;
  sb_queue_shm *q = sb_slot_at(b, queue);
  uint64_t token = 0, gen = 0;
  uint32_t fresh = 0, at = 0;
  for (;;) {
    sb_half *link = link_of(b, q, number, &at);
    sb_status status = link == NULL ? SB_CORRUPT : SB_OK;
    bool there = link != NULL && is_number(b, at, number);
    if (status == SB_OK && !there && fresh == 0) status = make(c, queue, number, &token, &fresh, &gen);
    if (status != SB_OK || there) {
      discard(c, token, fresh, gen);
      *slot = at;
      return status;
    }
    SB_STORE(&((sb_lane_shm *)sb_slot_at(b, fresh))->next, at, SB_RELAXED);
    if (SB_CAS(link, &at, fresh, SB_SEQ_CST)) { /* I78 */
      break;
    }
  }
  SB_CRASHPOINT("lanes.linked");
  uint64_t mine = sb_slot_word(SB_SLOT_ALLOC, c->id, gen);
  (void)SB_CAS(sb_slot_header(b, fresh), &mine, sb_slot_word(SB_SLOT_PUBLISHED, 1, gen), SB_ACQ_REL);
  sb_holding_give(c, token);
  *slot = fresh;
  return SB_OK;
}

bool sb_lanes_links(sb_broker *b, uint32_t slot) {
  const sb_lane_shm *l = sb_slot_at(b, slot);
  const sb_queue_shm *q = sb_slab_queue(b, SB_LOAD(&l->queue, SB_RELAXED));
  return q != NULL && sb_lanes_find(b, q, SB_LOAD(&l->number, SB_RELAXED)) == slot;
}

bool sb_lanes_ring(sb_broker *b, uint32_t queue, uint64_t position, sb_ring *r) {
  unsigned number = sb_position_lane(position);
  if (number == 0) {
    return sb_ring_open(b, queue, SB_RING_CELLS, r);
  }
  const sb_queue_shm *q = sb_slab_queue(b, queue);
  uint32_t slot = q != NULL ? sb_lanes_find(b, q, number) : 0;
  return slot != 0 && sb_ring_open(b, slot, SB_RING_LANE, r);
}

uint64_t sb_lanes_sequence(sb_broker *b, uint32_t queue, uint64_t position) {
  sb_ring r;
  return sb_lanes_ring(b, queue, position, &r)
             ? sb_position_in(sb_position_lane(position), position - SB_LOAD(r.base, SB_RELAXED))
             : UINT64_MAX;
}

bool sb_lanes_next(sb_lanes_walk *w, sb_ring *r) {
  if (w->count++ == 0) {
    const sb_queue_shm *q = sb_slab_queue(w->b, w->queue);
    w->at = q != NULL && sb_lanes_several(q) ? SB_LOAD(&q->lanes, SB_ACQUIRE) : 0;
    return sb_ring_open(w->b, w->queue, SB_RING_CELLS, r);
  }
  const sb_lane_shm *l = w->at != 0 && w->count <= SB_LANES ? lane_at(w->b, w->at) : NULL;
  if (l == NULL || !sb_ring_open(w->b, w->at, SB_RING_LANE, r)) {
    return false;
  }
  w->at = SB_LOAD(&l->next, SB_ACQUIRE);
  return true;
}

uint64_t sb_lanes_count(sb_broker *b, uint32_t queue) {
  uint64_t sum = 0;
  sb_ring r;
  for (sb_lanes_walk all = sb_lanes_of(b, queue); sb_lanes_next(&all, &r);) {
    sum += sb_ring_exact_tail(b, &r) - (r.id == SB_RING_CELLS ? 0 : SB_LOAD(r.base, SB_RELAXED));
  }
  return sum;
}
