// SPDX-License-Identifier: Apache-2.0
#include "waiting.h"

#include "sb_chunk.h"
#include "sb_holdings.h"
#include "sb_slab.h"

sb_queue *q;
unsigned renewed;

static void count_renewal(sb_connection *c) {
  (void)c;
  renewed++;
}

void begin_waiting(sb_settings settings) {
  if (declare(&t, "q", settings) != SB_OK) die("declare", 0);
  q = open_queue(&t, "q");
  if (q == NULL) die("open_queue", 0);
  t.c->renew = count_renewal;
  answer_for_the_system();
}

void ask_for_renewal(void) { ask_to_forget(t.c); }

void expect_unlocked(const char *what) {
  expect(SB_LOAD(&t.c->lock, SB_RELAXED) == 0 && SB_LOAD(&t.c->gate->inside, SB_RELAXED) == 0, "%s: the lock is held",
         what);
}

sb_node_shm *node_at(uint32_t node) { return sb_slot_at(t.b, node); }
unsigned state_of(uint32_t node) { return sb_node_state(SB_LOAD(&node_at(node)->word, SB_RELAXED)); }

uint32_t another_waits(uint32_t flags, uint32_t bytes) {
  uint32_t node;
  uint64_t token;
  sb_status status = sb_node_create(t.c, q->slot, 0, SB_NODE_DIRECT | flags, 0, bytes, &node, &token);
  if (status != SB_OK) die("sb_node_create", (int)status);
  if (!sb_node_move(t.c, node, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED)) die("sb_node_move", 0);
  return node;
}

uint64_t next_holding(void) {
  uint64_t next;
  if (sb_holding_take(t.c, &next) != SB_OK) die("sb_holding_take", 0);
  sb_holding_give(t.c, next);
  return next;
}

void close_queue(void) { SB_STORE(&q->shm->state, q->state + SB_QUEUE_CLOSED - SB_QUEUE_OPEN, SB_RELAXED); }
void open_again(void) { SB_STORE(&q->shm->state, q->state, SB_RELAXED); }

void use_up_chunks(void) {
  grow_to(BROKER_CHUNKS - 1);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    uint64_t none = sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0);
    (void)SB_CAS(&t.b->chunks[i], &none, sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_RELAXED);
  }
}

void use_up_slots(unsigned cls) {
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    uint64_t word = SB_LOAD(&t.b->chunks[i], SB_RELAXED);
    if (sb_chunk_state(word) != SB_CHUNK_CLASS || sb_chunk_class(word) != cls) continue;
    for (uint32_t at = 0; at + sb_class_units(cls) <= SB_CHUNK_UNITS; at += sb_class_units(cls)) {
      sb_word *header = sb_slot_header(t.b, i * SB_CHUNK_UNITS + at);
      uint64_t is = SB_LOAD(header, SB_RELAXED);
      if (sb_slot_state(is) == SB_SLOT_FREE) {
        SB_STORE(header, sb_slot_word(SB_SLOT_ALLOC, t.c->id, sb_slot_gen(is)), SB_RELAXED);
      }
    }
  }
}
