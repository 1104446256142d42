// SPDX-License-Identifier: Apache-2.0
/* Scenarios of a queue whose messages have priorities. A message of id i has priority i % 3, of at most 2. */
#include "roles.h"
#include "scenarios.h"

#define RANKED(ring) {{(ring), -1, -1, SB_OVERFLOW_BLOCK, -1, -1, 2}, 0}

/* ---- before ---- */

static void none_yet(void) { any_order(); }
static void some_may_go(void) {
  any_order();
  everything_may_go();
}
static void low_and_high(void) {
  any_order();
  put_by_keeper(1, 2);
}
static void three_levels(void) {
  any_order();
  put_by_keeper(1, 3);
}
static void first_holds_the_highest(void) {
  low_and_high();
  act_as(0);
  (void)get_message(me()->q, me()->first);
}
/* Nothing is left in a lane, and its ready bit is still set. */
static void one_was_taken(void) {
  low_and_high();
  act_as(1);
  (void)get_and_ack(me()->q);
}

/* ---- roles ---- */

static void put_5(void) { (void)put_message(5); }
static void put_9(void) { (void)put_message(9); }
static void put_2_then_take(void) {
  if (put_message(2)) (void)get_and_ack(me()->q);
}
static void take_thrice(void) {
  take_twice();
  take_then_ack();
}
/* The highest there is: what another one puts meanwhile may be higher. */
static void take_what_is_highest(void) {
  uint64_t id = get_message(me()->q, me()->first);
  if (id == 1 || id == 3) complain("message %llu comes before one of a higher priority", (unsigned long long)id);
  if (id != 0) ack(me()->q, me()->first);
}
static void purge(void) {
  everything_may_go();
  for (int64_t n = purge_count(me()->q); n > 0; n--) scheduler_note("purged");
}

/* ---- afterwards ---- */

static void nothing_hides(void) {
  if (!scheduler_somebody_died() && ready_messages() > 0 && !sb_queue_looks_ready(me()->q))
    complain("no ready bit leads to what is left");
}

/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
    {"lanes, two puts", "both make the same lanes", RANKED(-1), none_yet,
     {{"a", put_1_2, 0, "put put"}, {"b", put_9, 1, "put"}}, nothing_hides, KEEPS_ALL},
    {"lanes, same lane", "one lane is made by two", RANKED(-1), none_yet,
     {{"a", put_3, 0, "put"}, {"b", put_9, 1, "put"}}, nothing_hides, KEEPS_ALL},
    {"lanes, put, take", "what was put is taken once, or there", RANKED(-1), none_yet,
     {{"put", put_1_2, 0, "put put"}, {"take", take_twice, 1, "got acked got acked"}}, nothing_hides, KEEPS_ALL},
    {"lanes, drained, put", "what comes while a bit is cleared is found", RANKED(-1), one_was_taken,
     {{"put", put_5, 0, "put"}, {"take", take_thrice, 1, "got acked got acked nothing"}}, nothing_hides, KEEPS_ALL},
    {"lanes, drained by two", "two clear one bit beside a put", RANKED(-1), one_was_taken,
     {{"put", put_5, 0, "put"}, {"a", take_then_ack, 1, "got acked"}, {"b", take_twice, 2, "got acked nothing"}},
     nothing_hides, KEEPS_ALL},
    {"lanes, two takes", "each message goes to one", RANKED(-1), three_levels,
     {{"a", take_then_ack, 0, "got acked"}, {"b", take_twice, 1, "got acked got acked"}}, nothing_hides, KEEPS_ALL},
    {"lanes, highest", "what was there before is taken by priority", RANKED(-1), three_levels,
     {{"take", take_what_is_highest, 0, "got acked"}, {"put", put_9, 1, "put"}}, nothing_hides, KEEPS_ALL},
    {"lanes, nack, take", "what comes back is found", RANKED(-1), first_holds_the_highest,
     {{"nack", nack_held, 0, "returned"}, {"take", take_thrice, 1, "got acked got acked nothing"}}, nothing_hides,
     KEEPS_ALL},
    {"lanes, wait", "who waits is told", RANKED(-1), none_yet,
     {{"wait", wait_then_ack, 0, "slept got acked"}, {"put", put_1, 1, "put"}}, nothing_hides, KEEPS_ALL},
    {"lanes, ring, put, take", "never more than one", RANKED(1), some_may_go,
     {{"put", put_2_3, 0, "put put"}, {"take", take_then_ack, 1, "got acked"}}, .bound = 1},
    {"lanes, ring, two puts", "never more than one", RANKED(1), some_may_go,
     {{"a", put_2, 0, "put"}, {"b", put_9, 1, "put"}}, .bound = 1},
    {"lanes, purge, put", "each is removed, or comes later and stays", RANKED(-1), three_levels,
     {{"purge", purge, 0, "purged purged purged"}, {"put", put_9, 1, "put"}}, nothing_hides, KEEPS_ALL},
    {"lanes, delete, put", "a put succeeds before, or fails", RANKED(-1), low_and_high,
     {{"put", put_3, 1, "put"}, {"delete", delete_queue, 0, "deleted"}}, KEEPS_ALL},
    {"lanes, put, delete if empty", "what was put stays, or the put fails", RANKED(-1), none_yet,
     {{"put", put_2, 1, "put"}, {"delete", delete_if_empty, 0, "not-empty"}}, KEEPS_ALL},
    {"lanes, delete if empty, put", "what was put is not deleted", RANKED(-1), none_yet,
     {{"put", put_2_then_take, 1, "put took"}, {"delete", delete_if_empty, 0, "deleted"}}, KEEPS_ALL},
};
/* clang-format on */
const subject LANE_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
