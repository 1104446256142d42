// SPDX-License-Identifier: Apache-2.0
/* Scenarios of a queue with message groups. Messages without a group are one group where groups are shared. */
#include "roles.h"
#include "scenarios.h"
#include "sb_groups.h"

#define GROUPED(how) \
  {{-1, -1, -1, SB_OVERFLOW_BLOCK, -1, -1, [SB_SETTING_MESSAGE_GROUPS] = (how), [SB_SETTING_GROUP_BUCKETS] = 1}, 0}
#define SHARED GROUPED(SB_GROUPS_SHARED)

/* ---- before ---- */

/* The object of the groups exists, and nobody has a claim. */
static void groups_are_there(void) {
  put_by_keeper(1, 1);
  act_as(1);
  (void)get_and_ack(me()->q);
}
static void two_in_a_group(void) {
  groups_are_there();
  put_by_keeper(2, 3);
}
static void three_in_a_group(void) {
  groups_are_there();
  put_by_keeper(2, 4);
}
static void first_has_the_group(void) {
  three_in_a_group();
  act_as(0);
  (void)get_message(me()->q, me()->first);
}
/* The second has passed what is there: it finds the messages only when the group is free. */
static void first_has_what_the_second_passed(void) {
  first_has_the_group();
  act_as(1);
  if (get_message(me()->q, me()->first) != 0) complain("two have the group");
}
static void two_consume(void) {
  groups_are_there();
  consume_as(1, 1, 0);
  consume_as(2, 1, 0);
}

/* ---- roles ---- */

static void put_5(void) { (void)put_message(5); }

/* The messages of a group come one by one, and in order. */
static uint64_t took(uint64_t id) {
  static const char *const names[] = {"", "1", "2", "3", "4"};
  if (id > 0 && id < 5) scheduler_note(names[id]);
  return id;
}
static void take_in_order(void) {
  if (took(get_message(me()->q, me()->first)) != 0) ack(me()->q, me()->first);
}
static void take_all_in_order(void) {
  for (unsigned i = 0; i < 3; i++) take_in_order();
}
static void wait_in_order(void) {
  if (took(wait_for_message(me()->q, me()->first)) != 0) ack(me()->q, me()->first);
}
static void take_and_return(void) {
  if (get_message(me()->q, me()->first) != 0) nack(me()->q, me()->first);
}
static void cancel(void) {
  sb_consumer_cancel(me()->consumer, true);
  if (me()->consumer->closed) scheduler_note("cancelled");
}

/* ---- with priorities: a message of id i has priority i % 3 ---- */

#define RANKED_GROUPS \
  {{-1, -1, -1, SB_OVERFLOW_BLOCK, -1, -1, 2, [SB_SETTING_MESSAGE_GROUPS] = SB_GROUPS_SHARED, \
    [SB_SETTING_GROUP_BUCKETS] = 1}, \
   0}
static void ranked_are_there(void) {
  any_order();
  groups_are_there();
}
static void ranked_one_is_held(void) {
  any_order();
  first_has_what_the_second_passed();
}
static void take_ranked(void) {
  if (get_message(me()->q, me()->first) != 0) ack(me()->q, me()->first);
}
static void wait_ranked(void) {
  if (wait_for_message(me()->q, me()->first) != 0) ack(me()->q, me()->first);
}
static void wait_ranked_twice(void) {
  wait_ranked();
  wait_ranked();
}

/* A consumer has the group, and has acknowledged nothing: what comes is told to it alone. */
static void one_of_two_has_the_group(void) {
  groups_are_there();
  consume_as(1, 1, 0);
  consume_as(2, 2, 0);
  put_by_keeper(2, 2);
}

/* ---- afterwards ---- */

/* A claim whose consumer holds nothing keeps the group from all others. */
static void nothing_is_claimed(void) {
  const sb_groups_shm *g = sb_groups_at(me()->t.b, SB_LOAD(&me()->q->shm->groups, SB_ACQUIRE));
  if (g != NULL && SB_LOAD(&g->claims[0], SB_ACQUIRE) != 0) complain("a claim is left");
}

/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
    {"groups, first take", "two make the claims of a queue", SHARED, two_ready,
     {{"a", take_in_order, 0, "got 1 acked"}, {"b", take_in_order, 1, "got 2 acked"}}, nothing_is_claimed, KEEPS_ALL},
    {"groups, two takes", "a group is with one at a time", SHARED, three_in_a_group,
     {{"a", take_in_order, 0, "got 2 acked"}, {"b", take_all_in_order, 1, "got 3 acked got 4 acked nothing"}},
     nothing_is_claimed, KEEPS_ALL},
    {"groups, put, take", "what comes beside a search is found later", SHARED, groups_are_there,
     {{"put", put_2_3, 0, "put put"}, {"take", take_all_in_order, 1, "got 2 acked got 3 acked nothing"}},
     nothing_is_claimed, KEEPS_ALL},
    {"groups, ack, wait", "who waits for a group is told when it is free", SHARED, first_has_the_group,
     {{"wait", wait_in_order, 1, "slept got 3 acked"}, {"ack", ack_held, 0, "acked"}}, nothing_is_claimed, KEEPS_ALL},
    {"groups, ack, wait behind", "what was passed before is found", SHARED, first_has_what_the_second_passed,
     {{"wait", wait_in_order, 1, "slept got 3 acked"}, {"ack", ack_held, 0, "acked"}}, nothing_is_claimed, KEEPS_ALL},
    {"groups, nack, wait", "what comes back is first", SHARED, first_has_what_the_second_passed,
     {{"wait", wait_in_order, 1, "slept got 2 acked"}, {"nack", nack_held, 0, "returned"}}, nothing_is_claimed,
     KEEPS_ALL},
    {"groups, ack, two wait", "each of two is told in its turn", SHARED, first_has_what_the_second_passed,
     {{"b", wait_in_order, 1, "slept got 3 acked"}, {"c", wait_in_order, 2, "slept got 4 acked"},
      {"ack", ack_held, 0, "acked"}}, nothing_is_claimed, KEEPS_ALL},
    {"groups, return, wait", "who takes and returns keeps nothing from others", SHARED, two_in_a_group,
     {{"return", take_and_return, 0, "got returned"}, {"wait", wait_in_order, 1, "got 2 acked"}}, nothing_is_claimed,
     KEEPS_ALL},
    {"groups, consumers, put", "a group that is free is served", SHARED, two_consume,
     {{"b", serve, 1, "slept filled slept"}, {"c", serve, 2, "slept slept"}, {"put", put_2, 0, "put"}}, KEEPS_ALL},
    {"groups, claimed, put, cancel", "what the claimant alone was told of goes to the other one", SHARED,
     one_of_two_has_the_group, {{"put", put_3, 0, "put"}, {"b", serve, 1, "filled slept"},
      {"cancel", cancel, 1, "cancelled"}, {"c", serve, 2, "filled filled slept"}}, KEEPS_ALL},
    {"groups, claimed, put, ack", "what came into a claimed group is told of at its end", SHARED, first_has_the_group,
     {{"put", put_5, 2, "put"}, {"wait", wait_in_order, 1, "slept got 3 acked"}, {"ack", ack_held, 0, "acked"}},
     nothing_is_claimed, KEEPS_ALL},
    {"groups, ranked, ack, two wait", "each of two finds what it passed in other lanes", RANKED_GROUPS,
     ranked_one_is_held,
     {{"b", wait_ranked, 1, "slept got acked"}, {"c", wait_ranked, 2, "slept got acked"},
      {"ack", ack_held, 0, "acked"}}, nothing_is_claimed, KEEPS_ALL},
    {"groups, ranked, takes, wait", "what one passed is told of, although another one takes first", RANKED_GROUPS,
     ranked_one_is_held,
     {{"wait", wait_ranked_twice, 1, "slept got acked got acked"}, {"ack", ack_held, 0, "acked"},
      {"take", take_ranked, 2, "nothing"}}, nothing_is_claimed, KEEPS_ALL},
    {"groups, ranked, nack, wait", "what comes back in its lane is found", RANKED_GROUPS, ranked_one_is_held,
     {{"wait", wait_ranked, 1, "slept got acked"}, {"nack", nack_held, 0, "returned"}}, nothing_is_claimed, KEEPS_ALL},
    {"groups, ranked, put, take", "what comes beside a search is found later", RANKED_GROUPS, ranked_are_there,
     {{"put", put_2_3, 0, "put put"}, {"wait", wait_ranked_twice, 1, "got acked got acked"}}, nothing_is_claimed, KEEPS_ALL},
    {"groups, cancel, put", "who leaves keeps no group", GROUPED(SB_GROUPS_SHARED), two_consume,
     {{"put", put_2, 0, "put"}, {"cancel", cancel, 1, "cancelled"}, {"c", serve, 2, "filled slept"}}, KEEPS_ALL},
};
/* clang-format on */
const subject GROUP_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
