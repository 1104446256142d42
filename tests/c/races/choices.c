// SPDX-License-Identifier: Apache-2.0
/* Scenarios of consumers that do not take the next message: with a selector, beside such a one, and of a sorted queue. */
#include "../sort_operations.h"
#include "roles.h"
#include "scenarios.h"

#define WANTED 2 /* the priority that the selector selects: that of the messages 2, 5, 8 (put_sized) */
static const char SELECTOR[] = {
    SB_PROGRAM_VERSION, SB_OP_PROPERTY_U8, SB_PROPERTY_PRIORITY, SB_OP_INTEGER_I64, WANTED, 0, 0, 0, 0, 0, 0, 0,
    SB_OP_EQUAL};

/* ---- before ---- */

static void choose_as(unsigned player, int32_t priority) {
  const sb_consumer_options o = {
      .prefetch = 4, .priority = priority, .selector = SELECTOR, .selector_length = sizeof SELECTOR};
  sb_status status;
  act_as(player);
  consumers_may_return();
  any_order();
  me()->consumer = sb_consumer_open_with(me()->t.c, &me()->q, 1, &o, &status);
  if (me()->consumer == NULL) die("sb_consumer_open_with", (int)status);
}
static void wait_for_choice(void) {
  (void)sb_consumer_next(me()->consumer, me()->first, false); /* in vain: it wants one from now on */
}
static void one_chooses(void) {
  choose_as(1, 0);
  wait_for_choice();
}
/* A message that it does not want lies in front of one that it wants. */
static void two_and_one_chooses(void) {
  choose_as(1, 0);
  one_ready();
  put_by_keeper(8, 8);
}
/* What it wants came back behind its place, or does so during the run. */
static void first_holds_a_wanted_one(void) {
  put_by_keeper(2, 2);
  act_as(0);
  (void)get_message(me()->q, me()->first);
  put_by_keeper(9, 9);
  one_chooses();
}
static void one_chooses_before_another(void) {
  choose_as(1, 5);
  wait_for_choice();
  consume_as(2, 4, 0);
}
static void put_key(uint64_t id, unsigned key) {
  char properties[13];
  const sb_put_options o = sort_options(properties, key);
  (void)put_message_with(id, 64, &o);
}
static void two_are_sorted(void) {
  act_as(KEEPER);
  any_order();
  put_key(1, 4);
  put_key(2, 2);
}
static void first_holds_the_least(void) {
  two_are_sorted();
  act_as(0);
  if (get_message(me()->q, me()->first) != 2) die("the least message", 0);
}

/* ---- roles ---- */

/* The consumer takes what it wants, in the thread of the application. */
static void choose(void) {
  uint64_t id = next_message(me()->first);
  if (id == 0) return;
  if (id % 3 != WANTED) complain("the consumer got a message that it does not want");
  ack_next(me()->first);
}
static void stop_choosing(void) {
  sb_consumer_cancel(me()->consumer, true);
  if (me()->consumer->closed) scheduler_note("cancelled");
}
static void put_key_1(void) { put_key(8, 1); }
static void put_key_3(void) { put_key(8, 3); }
static void take_three(void) {
  take_twice();
  take_then_ack();
}

/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
    {"choose, take", "a scan passes what it does not want, and another one takes it", FREELY, two_and_one_chooses,
     {{"choose", choose, 1, "got acked"}, {"take", take_twice, 0, "got acked nothing"}}, NULL, KEEPS_ALL},
    {"choose, put", "a message that is wanted wakes who wants it", FREELY, one_chooses,
     {{"consumer", consume_one, 1, "slept got acked"}, {"io", serve, 1, "slept filled slept"},
      {"put", put_2, 0, "put"}}, NULL, KEEPS_ALL},
    {"choose, nack", "what comes back behind the scan is found", FREELY, first_holds_a_wanted_one,
     {{"consumer", consume_one, 1, "slept got acked"}, {"io", serve, 1, "slept filled slept"},
      {"nack", nack_held, 0, "returned"}}, NULL, KEEPS_ALL, .idle = true},
    {"choose, another, put", "a lower priority leaves what is wanted, and takes the rest", FREELY,
     one_chooses_before_another,
     {{"low", serve, 2, "slept filled slept"}, {"high", serve, 1, "slept filled slept"}, {"put", put_1_2, 0, "put put"}},
     NULL, KEEPS_ALL},
    {"choose, another, cancel", "what was left to one that leaves goes to the other", FREELY, one_chooses_before_another,
     {{"cancel", stop_choosing, 1, "cancelled"}, {"low", serve, 2, "slept filled slept"}, {"put", put_2, 0, "put"}},
     NULL, KEEPS_ALL},
    {"sorted, put, take", "who takes in order misses nothing that comes in front", SORTED, two_are_sorted,
     {{"put", put_key_1, 0, "put"}, {"take", take_three, 1, "got acked got acked got acked"}}, NULL, KEEPS_ALL},
    {"sorted, two take", "two take in order, each its own", SORTED, two_are_sorted,
     {{"a", take_twice, 0, "got acked got acked"}, {"b", take_twice, 1, "nothing nothing"}}, NULL, KEEPS_ALL},
    {"sorted, nack, take", "what comes back is found in its place", SORTED, first_holds_the_least,
     {{"nack", nack_held, 0, "returned"}, {"take", take_twice, 1, "got acked got acked"}, {"put", put_key_3, 2, "put"}},
     NULL, KEEPS_ALL},
};
/* clang-format on */
const subject CHOICE_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
