// SPDX-License-Identifier: Apache-2.0
#include "ranked.h"

#define HOUR UINT64_C(3600000000000)

static sb_status put_options(sb_queue *q, uint64_t id, const sb_put_options *o) {
  uint64_t body[BYTES / sizeof(uint64_t)];
  fill_body(body, sizeof body, id);
  return sb_queue_put_with(q, (const char *)body, sizeof body, o);
}
sb_status put_ranked(sb_queue *q, unsigned priority, uint64_t id) {
  sb_put_options o = {.priority = (uint8_t)priority};
  return put_options(q, id, &o);
}
void put_timed(sb_queue *q, unsigned priority, uint64_t id, uint64_t due, uint64_t expires) {
  sb_put_options o = {.priority = (uint8_t)priority, .delay_ns = due * HOUR, .ttl_ns = expires * HOUR};
  sb_status status = put_options(q, id, &o);
  if (status != SB_OK) die("put_timed", (int)status);
}
void put_several(sb_queue *q, unsigned priority, uint64_t count) {
  for (uint64_t id = 1; id <= count; id++) {
    sb_status status = put_ranked(q, priority, id);
    if (status != SB_OK) die("put_ranked", (int)status);
  }
}
uint64_t id_of(const sb_taken *taken) {
  return id_at((const char *)taken->message + taken->message->body_offset, taken->message->body_length);
}

uint32_t lane_slot(const sb_queue *q, unsigned number) {
  uint32_t slot = sb_lanes_find(t.b, q->shm, number);
  if (slot == 0) die("sb_lanes_find", (int)number);
  return slot;
}
sb_lane_shm *lane_of(const sb_queue *q, unsigned number) { return sb_slot_at(t.b, lane_slot(q, number)); }
sb_ring ring_of(const sb_queue *q, unsigned number) {
  sb_ring r;
  bool there = number == 0 ? sb_ring_open(t.b, q->slot, SB_RING_CELLS, &r)
                           : sb_ring_open(t.b, lane_slot(q, number), SB_RING_LANE, &r);
  if (!there) die("sb_ring_open", (int)number);
  return r;
}
uint64_t base_of(const sb_queue *q, unsigned number) { return SB_LOAD(ring_of(q, number).base, SB_RELAXED); }
sb_leaf_ref ranked_leaf(const sb_queue *q, unsigned number, uint64_t n) {
  sb_leaf_ref leaf;
  sb_ring r = ring_of(q, number);
  sb_status status = sb_ring_locate(t.b, NULL, &r, base_of(q, number) + n, &leaf);
  if (status != SB_OK) die("sb_ring_locate", (int)status);
  return leaf;
}
sb_cell_shm *ranked_cell(const sb_queue *q, unsigned number, uint64_t n) {
  sb_leaf_ref leaf = ranked_leaf(q, number, n);
  return sb_leaf_cell(&leaf, base_of(q, number) + n);
}
uint64_t ranked_word(const sb_queue *q, unsigned number, uint64_t n) {
  return SB_LOAD(&ranked_cell(q, number, n)->word, SB_RELAXED);
}
unsigned ranked_state(const sb_queue *q, unsigned number, uint64_t n) {
  return sb_cell_state(ranked_word(q, number, n));
}
void set_ranked(const sb_queue *q, unsigned number, uint64_t n, unsigned state, unsigned owner) {
  uint64_t gen = ranked_leaf(q, number, n).gen, word = ranked_word(q, number, n);
  uint32_t slot = sb_cell_slot(word);
  if (state == SB_CELL_AVAILABLE || state == SB_CELL_SCHEDULED) {
    word = sb_cell_open(state, slot, 0, gen);
  } else if (state >= SB_CELL_ACQUIRED && state <= SB_CELL_STAGED) {
    word = sb_cell_owned(state, slot, 0, owner, gen);
  } else {
    word = sb_cell_bare(state, gen);
  }
  SB_STORE(&ranked_cell(q, number, n)->word, word, SB_RELAXED);
}
sb_message_shm *ranked_message(const sb_queue *q, unsigned number, uint64_t n) {
  return sb_slot_at(t.b, sb_cell_slot(ranked_word(q, number, n)));
}
bool is_ready(const sb_queue *q, unsigned number) {
  return (SB_LOAD(&q->shm->ready[number / 64], SB_RELAXED) >> number % 64 & 1) != 0;
}
void set_ready(const sb_queue *q, unsigned number, bool ready) {
  uint64_t bit = UINT64_C(1) << number % 64;
  sb_word *word = &q->shm->ready[number / 64];
  if (ready) (void)SB_OR(word, bit, SB_RELAXED);
  if (!ready) (void)SB_AND(word, ~bit, SB_RELAXED);
}
