// SPDX-License-Identifier: Apache-2.0
#include "dead_operations.h"

#include "child.h"
#include "sb_agenda.h"

#define A_SECOND UINT64_C(1000000000)

static sb_queue_memory memory;
static sb_dead_batch batch;

void reject_two(void) {
  for (unsigned i = 0; i < 2; i++) {
    get_one();
    settle(SB_REJECT);
  }
}

void run_timers(void) {
  sb_queue *queues[] = {q};
  (void)sb_housekeeper_new_timers(queues, &memory, 1);
  (void)sb_housekeeper_run_timers(queues, &memory, 1, 0, UINT64_MAX - 1, A_SECOND);
}

static void carry_out_with(const sb_dead_plan *plan) {
  const sb_dead_plan *plans[SB_DEAD_MOST];
  for (unsigned kind = 0; kind < SB_DEAD_MOST; kind++) plans[kind] = plan;
  sb_status status;
  run_timers();
  while (sb_dead_take_batch(q, &memory, false, &batch) != SB_OK && batch.count == 0) {
    if (!again(SB_GROW)) return;
  }
  do status = sb_dead_carry_out(q, &batch, plans, 0, batch.count);
  while (again(status));
  (void)sb_dead_end_batch(q, &memory, &batch);
}
void carry_out_batch(void) {
  static sb_dead_part part;
  part = (sb_dead_part){.targets = &other, .target_count = 1};
  sb_dead_plan plan = {
      .key = "other", .key_length = 5, .headers = "\1xV", .headers_length = 3, .part_count = 1, .parts = &part};
  carry_out_with(&plan);
}
void give_batch_up(void) {
  sb_dead_plan plan = {.part_count = 0};
  carry_out_with(&plan);
}
void give_batch_back(void) { carry_out_with(NULL); }
void die_with_a_batch(void) {
  reject_two();
  carry_out_batch();
}
