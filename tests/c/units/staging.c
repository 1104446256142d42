// SPDX-License-Identifier: Apache-2.0
#include "staging.h"

sb_transaction_plan plan;
sb_transaction_body bodies[2];
sb_transaction_cell cells[3];
sb_transaction_end finish[2];
sb_connection *reaper;
sb_reap_context walk;

sb_word *staged_word(unsigned i) { return &sb_leaf_cell(&cells[i].leaf, cells[i].position)->word; }
unsigned staged_state(unsigned i) { return sb_cell_state(SB_LOAD(staged_word(i), SB_RELAXED)); }
uint64_t body_header(unsigned i) { return SB_LOAD(sb_slot_header(t.b, bodies[i].slot), SB_RELAXED); }
/* One body for this many queues, which is filled in. */
void begin_commit(unsigned count, sb_settings settings, const sb_put_options *o) {
  sb_reservation r;
  reaper = connect_to(&t);
  make_targets(count, settings);
  for (unsigned i = 0; i < count; i++) put_into(i);
  note_rest(target[0]);
  expect_is(sb_api_claim_slot(t.c, 2 * BYTES + 64, &r), SB_OK, "the status of a slot");
  sb_api_fill(t.c, &r, BYTES, o, o->ttl_ns, 0);
  const sb_message_shm *m = sb_slot_at(t.b, r.slot);
  bodies[0] = (sb_transaction_body){
      .token = r.token, .gen = r.gen, .bytes = BYTES, .slot = r.slot, .scheduled = m->due_ns != 0};
  plan = (sb_transaction_plan){
      .c = t.c, .bodies = bodies, .cells = cells, .ends = finish, .body_count = 1, .cell_count = count};
  for (unsigned i = 0; i < count; i++) {
    cells[i] = (sb_transaction_cell){.q = target[i], .body = bodies, .ref = i};
    cells[i].admitted = sb_limits_admit(target[i], BYTES) == SB_OK;
    expect(cells[i].admitted, "there is no room");
  }
  walk = (sb_reap_context){.by = reaper, .b = t.b, .id = t.c->id};
}
const sb_put_options NONE, LATE = {.delay_ns = UINT64_C(1) << 50}, EXPIRING = {.ttl_ns = UINT64_C(1) << 50};
const sb_settings LIMITED = {{-1, 9, 999, 0, -1, -1}, 0}, EVICTING = {{-1, -1, -1, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0};
void stage_all(void) {
  uint32_t failed = 99;
  expect_is(sb_transaction_stage(&plan, &failed), SB_OK, "the status of staging");
}
void each_holding(void (*visit)(sb_reap_context *w, uint64_t what, uint64_t where)) {
  sb_holdings_walk h;
  for (sb_holdings_shm *k = sb_holdings_first(&h, t.b, t.c->shm, t.c->id); k != NULL; k = sb_holdings_next(&h, k)) {
    for (uint32_t i = SB_HOLDINGS_FIRST; i < sb_holdings_used(k); i++)
      visit(&walk, SB_LOAD(&k->entries[i].what, SB_RELAXED), SB_LOAD(&k->entries[i].where, SB_RELAXED));
  }
}
int64_t taken_in(unsigned i) { return (int64_t)SB_LOAD(&target[i]->shm->taken, SB_RELAXED); }
/* The word of cell `base` + n of that queue. */
sb_leaf_ref staged_leaf(unsigned i, uint64_t n) {
  sb_leaf_ref leaf;
  if (sb_ring_locate(t.b, NULL, &target[i]->lanes[0].ring, target[i]->base + n, &leaf) != SB_OK)
    die("sb_ring_locate", 0);
  return leaf;
}
sb_word *staged_cell(unsigned i, uint64_t n) {
  sb_leaf_ref leaf = staged_leaf(i, n);
  return &sb_leaf_cell(&leaf, target[i]->base + n)->word;
}
void set_bare(uint64_t n, unsigned state, uint64_t conditions) {
  SB_STORE(staged_cell(0, n), sb_cell_bare(state, staged_leaf(0, n).gen) | conditions, SB_RELAXED);
}
bool is_finished(uint64_t n) {
  uint64_t i = (target[0]->base + n) % SB_PAGE_CELLS;
  return (SB_LOAD(&staged_leaf(0, n).leaf->finished[i / 8], SB_RELAXED) >> 8 * (i % 8) & 1) != 0;
}
