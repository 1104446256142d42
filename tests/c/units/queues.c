// SPDX-License-Identifier: Apache-2.0
#include "queues.h"

#include "sb_slab.h"

#define MOST_HOLDINGS 80u
#define SECOND UINT64_C(1000000000)

sb_queue *queue_named(const char *name, sb_settings settings) {
  grow_to(BROKER_CHUNKS - 1);
  if (declare(&t, name, settings) != SB_OK) die("sb_queue_declare", 0);
  sb_queue *queue = open_queue(&t, name);
  if (queue == NULL) die("sb_queue_open", 0);
  return queue;
}

uint64_t gen_at(const sb_queue *queue, uint64_t number) {
  sb_leaf_ref leaf;
  if (sb_ring_locate(t.b, NULL, &queue->lanes[0].ring, queue->base + number, &leaf) != SB_OK) die("sb_ring_locate", 0);
  return leaf.gen;
}

uint64_t tombstone_at(const sb_queue *queue, uint64_t number) {
  return sb_cell_bare(SB_CELL_TOMBSTONE, gen_at(queue, number));
}

uint64_t foreign_word_at(const sb_queue *queue, uint64_t number) {
  return sb_cell_open(SB_CELL_AVAILABLE, sb_cell_slot(word_at(queue, 0)), 0, gen_at(queue, number) + 1);
}

void put_up_to(sb_queue *queue, uint64_t last) {
  for (uint64_t id = 1; id <= last; id++) (void)put(&t, queue, id);
}

sb_word *cell_at(const sb_queue *queue, uint64_t number) {
  sb_leaf_ref leaf;
  uint64_t position = queue->base + number;
  if (sb_ring_locate(t.b, NULL, &queue->lanes[0].ring, position, &leaf) != SB_OK) die("sb_ring_locate", (int)number);
  return &sb_leaf_cell(&leaf, position)->word;
}
uint64_t word_at(const sb_queue *queue, uint64_t number) { return SB_LOAD(cell_at(queue, number), SB_RELAXED); }
unsigned cell_state(const sb_queue *queue, uint64_t number) { return sb_cell_state(word_at(queue, number)); }
void set_cell_word(const sb_queue *queue, uint64_t number, uint64_t word) {
  SB_STORE(cell_at(queue, number), word, SB_RELAXED);
}
uint64_t open_word(const sb_queue *queue, uint64_t number, unsigned state, uint32_t slot) {
  sb_leaf_ref leaf;
  if (sb_ring_locate(t.b, NULL, &queue->lanes[0].ring, queue->base + number, &leaf) != SB_OK) die("sb_ring_locate", 0);
  return sb_cell_open(state, slot, 0, leaf.gen);
}
void put_with(sb_queue *queue, uint64_t id, uint64_t due_s, uint64_t expires_s) {
  sb_put_options options = {.ttl_ns = expires_s * SECOND, .delay_ns = due_s * SECOND};
  sb_status status = put_sized(&t, queue, id, 64, &options);
  if (status != SB_OK) die("sb_queue_put", (int)status);
}
sb_message_shm *message_at(const sb_queue *queue, uint64_t number) {
  return sb_slot_at(t.b, sb_cell_slot(word_at(queue, number)));
}
void take_from(sb_queue *queue) {
  static char buffer[BUFFER];
  if (get(&t, queue, buffer, true) == 0) die("sb_queue_get", 0);
}
void begin_to_close(sb_queue *queue, uint64_t flags) {
  sb_leaf_ref leaf = SB_NO_LEAF;
  uint64_t position = 0;
  sb_status status =
      sb_ring_append(t.c, &queue->lanes[0].ring, &leaf, SB_CELL_CLOSING | flags, SB_APPEND_CLOSING, NULL, &position);
  if (status != SB_OK) die("sb_ring_append", (int)status);
}

uint64_t counter_in(const sb_queue *queue, unsigned counter) {
  return SB_LOAD(&queue->ledger->counters[counter], SB_RELAXED);
}
uint64_t hints_raised(const sb_queue *queue) { return SB_LOAD(&queue->ledger->hinting, SB_RELAXED) >> 32; }
uint64_t depth_of_hints(const sb_queue *queue) {
  return SB_LOAD(&queue->ledger->hinting, SB_RELAXED) & SB_HINTING_DEPTH;
}
uint64_t intents_of(const sb_queue *queue) { return SB_LOAD(&queue->ledger->kind, SB_RELAXED) >> 16; }

void use_all_chunks(void) {
  sb_slab_return_cache(t.c);
  grow_to(BROKER_CHUNKS - 1);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    if (sb_chunk_state(SB_LOAD(&t.b->chunks[i], SB_RELAXED)) == SB_CHUNK_FREE)
      SB_STORE(&t.b->chunks[i], sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_RELAXED);
  }
}
void leave_holdings(unsigned count) {
  uint64_t tokens[MOST_HOLDINGS], token;
  if (count > MOST_HOLDINGS) die("holdings", (int)count);
  for (unsigned i = 0; i < count; i++) {
    if (sb_holding_take(t.c, &tokens[i]) != SB_OK) die("sb_holding_take", 0);
  }
  use_all_chunks();
  while (sb_holding_take(t.c, &token) == SB_OK) {
  }
  while (count > 0) sb_holding_give(t.c, tokens[--count]);
}
void use_all_slots(unsigned kind) {
  uint64_t token, gen;
  uint32_t slot;
  use_all_chunks();
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  while (sb_slab_alloc(t.c, sb_class_of_kind(t.b, kind), token, &slot, &gen) == SB_OK) {
  }
  sb_holding_give(t.c, token);
}
uint64_t free_holdings(void) {
  uint64_t count = SB_HOLDINGS_PER_CHUNK - SB_LOAD(&t.c->last->used, SB_RELAXED);
  for (uint64_t token = t.c->free_holding; token != 0 && count <= SB_HOLDINGS_PER_CHUNK; count++)
    token = SB_LOAD(&sb_holding_at(t.b, token)->where, SB_RELAXED);
  return count;
}
