// SPDX-License-Identifier: Apache-2.0
#include "actors.h"

#include <string.h>

#include "plan.h"

test_broker t;
actor one, two, three, keeper;
char *buffer, *held_a, *held_b;
uint64_t got;
sb_queue_memory memory;
sb_consumer *waiting;

void join(actor *a) {
  if (a->c == NULL) a->c = connect_to(&t);
  t.c = a->c;
  a->q = open_queue(&t, "q");
}
void put_by(actor *a, uint64_t id) { expect(put(&t, a->q, id) == SB_OK, "put %d failed", (int)id); }
void put_small_by(actor *a, uint64_t id) {
  sb_put_options none = {0};
  expect(put_sized(&t, a->q, id, 8, &none) == SB_OK, "put %d failed", (int)id);
}
uint64_t take(actor *a) { return get(&t, a->q, buffer, true); }

uint64_t left(void) {
  uint64_t all = 0, id;
  while ((id = take(&keeper)) != 0) all = all * 10 + id;
  return all;
}
void expect_left(uint64_t should) {
  uint64_t is = left();
  expect(is == should, "left are %d, not %d", (int)is, (int)should);
}
void expect_at_most(int64_t bound) {
  int64_t n = sb_queue_length(keeper.q);
  expect(n <= bound, "the queue holds %d, not %d", (int)n, (int)bound);
}
unsigned state_of(uint32_t node) {
  return sb_node_state(SB_LOAD(&((sb_node_shm *)sb_slot_at(t.b, node))->word, SB_SEQ_CST));
}

sb_consumer *consume(actor *a, int32_t priority) {
  sb_status status;
  sb_consumer *k = sb_consumer_open(a->c, &a->q, 1, 10, priority, 0, 0, &status);
  if (k == NULL) die("sb_consumer_open", (int)status);
  return k;
}
uint64_t next(sb_consumer *k) {
  if (sb_consumer_next(k, buffer, true) < 0) return 0;
  uint64_t id;
  memcpy(&id, buffer + sizeof(sb_record), sizeof id);
  return id;
}
bool told(const sb_consumer *k) { return state_of(k->subscriptions[0].node) == SB_NODE_NOTIFIED; }
bool asleep(sb_consumer *k) { return next(k) == 0 && !told(k); }

void tick(void) { sb_housekeeper_tick(keeper.c, keeper.q->slot, &memory); }

static uint32_t filler[64], fillers;

void fill_up_to(uint32_t left) {
  uint64_t gen;
  while (grow(t.b, t.path)) {
  }
  while (sb_chunk_spare(t.b) > left && fillers < 64) {
    sb_status status =
        sb_slab_alloc(keeper.c, sb_class_for(t.b, SB_CHUNK_BYTES), SB_TOKEN_BOOT, &filler[fillers], &gen);
    expect(status == SB_OK, "no chunk to fill with");
    fillers++;
  }
}

void empty_again(void) {
  while (fillers > 0) sb_slab_free_now(t.b, filler[--fillers]);
  while (sb_chunk_drain_any(keeper.c, SB_TOKEN_BOOT)) {
  }
}
