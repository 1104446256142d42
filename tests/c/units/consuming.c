// SPDX-License-Identifier: Apache-2.0
#include "consuming.h"

sb_queue *queues[3];

sb_queue *new_queue(const char *name, sb_settings settings) {
  sb_status status = declare(&t, name, settings);
  if (status != SB_OK) die("declare", (int)status);
  sb_queue *q = open_queue(&t, name);
  if (q == NULL) die("open", 0);
  return q;
}
sb_queue *queue_number(unsigned which) {
  static const char *names[] = {"a", "b", "c"};
  if (queues[which] == NULL) queues[which] = new_queue(names[which], (sb_settings)FREELY);
  return queues[which];
}
sb_consumer *consume(uint32_t count, uint32_t prefetch, int32_t priority, uint32_t batch) {
  sb_status status;
  sb_consumer *k;
  for (uint32_t i = 0; i < count; i++) (void)queue_number(i);
  do {
    k = sb_consumer_open(t.c, queues, count, prefetch, priority, batch, PATIENCE, &status);
  } while (status == SB_GROW && grow(t.b, t.path));
  if (k == NULL) die("sb_consumer_open", (int)status);
  return k;
}
void put_some(unsigned which, uint64_t first, uint64_t last) {
  for (uint64_t id = first; id <= last; id++) expect_is(put(&t, queue_number(which), id), SB_OK, "the status of a put");
}
uint64_t ready_in(unsigned which) { return sb_queue_count_ready(t.b, queue_number(which)->shm); }
void remove_queue(unsigned which) {
  uint64_t removed;
  int32_t holder;
  expect_is(sb_queue_delete(queues[which], false, false, FOREVER, &holder, &removed), SB_OK,
            "the status of a deletion");
}

sb_node_shm *node_shm(uint32_t node) { return sb_slot_at(t.b, node); }
uint32_t node_epoch(uint32_t node) { return sb_node_epoch(SB_LOAD(&node_shm(node)->word, SB_RELAXED)); }
void set_node_state(uint32_t node, unsigned state) {
  if (node_state(node) != state && !sb_node_move(t.c, node, SB_ANY_STATE, state)) die("sb_node_move", (int)state);
}
sb_node_shm *consumer_node(const sb_consumer *k, uint32_t i) { return node_shm(k->subscriptions[i].node); }
unsigned consumer_state(const sb_consumer *k, uint32_t i) { return node_state(k->subscriptions[i].node); }
void set_consumer_state(const sb_consumer *k, uint32_t i, unsigned state) {
  set_node_state(k->subscriptions[i].node, state);
}
uint32_t make_node(uint32_t queue, int32_t priority, uint32_t flags, uint32_t prefetch, unsigned state) {
  uint32_t node;
  uint64_t token;
  sb_status status;
  do {
    status = sb_node_create(t.c, queue, priority, flags, 0, prefetch, &node, &token);
  } while (status == SB_GROW && grow(t.b, t.path));
  if (status != SB_OK) die("sb_node_create", (int)status);
  set_node_state(node, state);
  return node;
}

uint32_t in_row(const sb_consumer *k) { return (uint32_t)(k->row_end - k->row_first); }
uint32_t place_in_row(const sb_consumer *k, uint64_t i) { return k->row[(k->row_first + i) % k->prefetch]; }
uint64_t id_in_row(const sb_consumer *k, uint64_t i) {
  sb_taken taken;
  sb_leaf_ref leaf;
  if (!sb_settle_find(t.c, k->ack_slots[place_in_row(k, i)].token, &taken, &leaf)) return 0;
  return id_at((const char *)taken.message + taken.message->body_offset, taken.message->body_length);
}
uint32_t hand_out(sb_consumer *k) {
  uint32_t place = place_in_row(k, 0);
  k->row_first++;
  return place;
}
uint32_t local_of(const sb_consumer *k) { return SB_LOAD(&k->local, SB_RELAXED); }
