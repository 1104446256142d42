// SPDX-License-Identifier: Apache-2.0
/* Scenarios of dead letters: messages die in "q", and a housekeeper carries them out to "other". A message that is dead, and
 * that nobody has carried out, is carried out afterwards: it must then be in one of the two queues, once. */
#include "roles.h"
#include "sb_wait.h"
#include "scenarios.h"

#define DEADLY {{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DEAD_LETTERS}
#define EVICTING {{-1, 1, -1, SB_OVERFLOW_DROP_HEAD, -1, -1}, SB_QUEUE_DEAD_LETTERS}
#define A_SECOND UINT64_C(1000000000)

/* ---- before ---- */

/* The account does not know that the first one has message 1: its copy comes without a mark. */
static void first_holds_unseen(void) {
  one_ready();
  act_as(0);
  if (sb_queue_get(me()->q, me()->first, false) < 0) die("sb_queue_get", 0);
}
static void one_is_dead(void) {
  first_holds_unseen();
  if (sb_queue_settle(me()->q, me()->first, SB_REJECT) != SB_OK) die("sb_queue_settle", 0);
}
static void one_has_expired(void) {
  sb_put_options expires = {.ttl_ns = SB_TTL_NOW};
  act_as(KEEPER);
  (void)put_message_with(1, 64, &expires);
}
static void one_in_a_full_queue(void) {
  one_ready();
  any_order(); /* what was evicted comes last, from the other queue */
}
static void two_and_the_first_is_dead(void) {
  put_by_keeper(2, 2);
  one_is_dead();
}

/* ---- roles ---- */

static void reject(void) {
  scheduler_note(sb_queue_settle(me()->q, me()->first, SB_REJECT) == SB_OK ? "rejected" : "not-rejected");
}
/* What a housekeeper does that has just begun, and knows nothing yet. */
static void carry_out(void) {
  static sb_dead_batch batches[PLAYERS];
  sb_dead_batch *batch = &batches[me() - players];
  sb_queue_memory memory = {0};
  sb_queue *queues[] = {me()->q};
  const sb_dead_part part = {.targets = &me()->other, .target_count = 1};
  const sb_dead_plan plan = {
      .key = "other", .key_length = 5, .headers = "\1xV", .headers_length = 3, .part_count = 1, .parts = &part};
  const sb_dead_plan *plans[SB_DEAD_MOST];
  for (unsigned kind = 0; kind < SB_DEAD_MOST; kind++) plans[kind] = &plan;
  (void)sb_housekeeper_new_timers(queues, &memory, 1);
  (void)sb_housekeeper_run_timers(queues, &memory, 1, 0, sb_now_ns(), A_SECOND);
  (void)sb_dead_take_batch(me()->q, &memory, false, batch);
  if (batch->count == 0) {
    scheduler_note("none");
  } else {
    bool done = sb_dead_carry_out(me()->q, batch, plans, 0, batch->count) == SB_OK;
    scheduler_note(done ? "carried" : "not-carried");
  }
  (void)sb_dead_end_batch(me()->q, &memory, batch);
  sb_housekeeper_forget(&memory);
}
static void wait_for_letter(void) {
  if (wait_for_message(me()->other, me()->second) != 0) ack(me()->other, me()->second);
}

/* ---- afterwards ---- */

static void all_are_carried_out(void) {
  sb_queue_memory memory = {0};
  carry_out();
  (void)scheduler_go_on();
  for (int i = 0; i < 8 && scheduler_somebody_died(); i++) /* which left hints of the other queue wrong, perhaps */
    sb_housekeeper_tick(me()->t.c, me()->other->slot, &memory);
}
static void who_waits_has_it(void) {
  all_are_carried_out();
  for (unsigned i = 0; i < ACTORS; i++) {
    if (scheduler_state(i) == ACTOR_ASLEEP && !scheduler_somebody_died())
      complain("somebody sleeps beside a dead letter");
  }
}

/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
    {"dead, reject, carry", "what is rejected is carried out, now or later", DEADLY, first_holds_unseen,
     {{"reject", reject, 0, "rejected"}, {"carry", carry_out, 1, "carried"}}, all_are_carried_out, KEEPS_ALL},
    {"dead, two carry", "two housekeepers carry it out once", DEADLY, one_is_dead,
     {{"a", carry_out, 0, "carried"}, {"b", carry_out, 1, "none"}}, all_are_carried_out, KEEPS_ALL},
    {"dead, carry, wait", "whoever waits at the dead letters is woken", DEADLY, one_is_dead,
     {{"wait", wait_for_letter, 2, "slept got acked"}, {"carry", carry_out, 1, "carried"}}, who_waits_has_it, KEEPS_ALL},
    {"dead, expired, carry", "what expires is taken by nobody, or dies once", DEADLY, one_has_expired,
     {{"take", take_then_ack, 0, "nothing"}, {"carry", carry_out, 1, "carried"}}, all_are_carried_out, KEEPS_ALL},
    {"dead, evict, carry", "what a full queue evicts is carried out, now or later", EVICTING, one_in_a_full_queue,
     {{"put", put_2, 0, "put"}, {"carry", carry_out, 1, "carried"}}, all_are_carried_out, .bound = 1},
    {"dead, carry, take", "whoever takes what is ready is not held up", DEADLY, two_and_the_first_is_dead,
     {{"carry", carry_out, 1, "carried"}, {"take", take_then_ack, 2, "got acked"}}, all_are_carried_out, KEEPS_ALL},
};
/* clang-format on */
const subject LETTER_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
