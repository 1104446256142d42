// SPDX-License-Identifier: Apache-2.0
#include "dead.h"

#include <unistd.h>

#include "sb_recover.h"

test_broker d;
sb_reap_context w;

void begin_dead(void) {
  d = t;
  d.c = connect_to(&d);
  w = (sb_reap_context){t.c, t.b, d.c->id, false};
}

sb_holding_shm *hold(uint64_t what, uint64_t where) {
  uint64_t token;
  sb_status status = sb_holding_take(d.c, &token);
  if (status != SB_OK) die("sb_holding_take", (int)status);
  sb_holding_set(t.b, token, what, where);
  return sb_holding_at(t.b, token);
}

void process_is_gone(void) {
  sb_process_shm *p = &t.b->processes[GONE];
  uint64_t word = SB_LOAD(&t.b->connections[d.c->id], SB_RELAXED);
  SB_STORE(&p->word, SB_PROC_LIVE | SB_FIELD(3, 2), SB_RELAXED);
  SB_STORE(&p->pid, (int32_t)getpid(), SB_RELAXED); /* which this process has now: it began at another time */
  SB_STORE(&p->start_ticks, 1, SB_RELAXED);
  SB_STORE(&p->pid_namespace, t.b->pid_namespace, SB_RELAXED);
  SB_STORE(&d.c->shm->process, GONE, SB_RELAXED);
  SB_STORE(&t.b->connections[d.c->id], sb_conn_word(sb_conn_state(word), GONE, sb_conn_slot(word), sb_conn_epoch(word)),
           SB_RELAXED);
}

void recover_dead(void) {
  process_is_gone();
  expect(sb_recover_process(t.c, GONE), "the process was not recovered");
}

sb_queue *queue_of_dead(const char *name, sb_settings settings) {
  sb_status status = declare(&t, name, settings);
  if (status != SB_OK) die("declare", (int)status);
  sb_queue *q = open_queue(&d, name);
  if (q == NULL) die("open_queue", 0);
  return q;
}

uint32_t put_by_dead(sb_queue *q, uint64_t bytes) {
  sb_put_options none = {0};
  uint64_t n = q->lanes[0].tail_cursor > q->base ? q->lanes[0].tail_cursor - q->base : 0;
  sb_status status = put_sized(&d, q, 1, bytes, &none);
  if (status != SB_OK) die("put_sized", (int)status);
  return sb_cell_slot(word_in(q, n));
}

sb_leaf_ref leaf_in(sb_queue *q, uint64_t n) {
  sb_leaf_ref leaf;
  sb_status status = sb_ring_locate(t.b, NULL, &q->lanes[0].ring, q->base + n, &leaf);
  if (status != SB_OK) die("sb_ring_locate", (int)status);
  return leaf;
}
sb_cell_shm *cell_in(sb_queue *q, uint64_t n) {
  sb_leaf_ref leaf = leaf_in(q, n);
  return sb_leaf_cell(&leaf, q->base + n);
}
uint64_t word_in(sb_queue *q, uint64_t n) { return SB_LOAD(&cell_in(q, n)->word, SB_RELAXED); }
void set_word_in(sb_queue *q, uint64_t n, uint64_t word) { SB_STORE(&cell_in(q, n)->word, word, SB_RELAXED); }
uint64_t owned_in(sb_queue *q, uint64_t n, unsigned state, unsigned owner) {
  uint64_t is = word_in(q, n);
  return sb_cell_owned(state, sb_cell_slot(is), sb_cell_ref(is), owner, leaf_in(q, n).gen);
}
bool finished_in(sb_queue *q, uint64_t n) {
  return ((const _Atomic uint8_t *)(const void *)leaf_in(q, n).leaf->finished)[(q->base + n) % SB_PAGE_CELLS] != 0;
}
bool marked_in(sb_queue *q, uint64_t n) { return sb_requeued_is_marked(t.b, &q->lanes[0].ring, q->base + n); }
uint64_t slot_word(uint32_t slot) { return SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED); }
void set_slot_word(uint32_t slot, uint64_t word) { SB_STORE(sb_slot_header(t.b, slot), word, SB_RELAXED); }
