// SPDX-License-Identifier: Apache-2.0
/* Scenarios of commits and transactions. */
#include <string.h>

#include "roles.h"
#include "sb_slab.h"
#include "scenarios.h"

#define FRONT 128u /* of a body without properties: message header, viewers' words */

/* ---- before ---- */

static void both_hold_a_shared_body(void) {
  act_as(KEEPER);
  (void)commit_message(1, LONG_BODY, NULL, 0);
  act_as(0);
  (void)get_message(me()->q, me()->first);
  act_as(1);
  (void)get_message(me()->other, me()->first);
}
static void first_holds_a_shared_one(void) {
  act_as(KEEPER);
  (void)commit_message(1, LONG_BODY, NULL, 0);
  hold_newest();
}
static void first_holds_the_only_one(void) {
  one_ready();
  act_as(0);
  (void)get_message(me()->q, me()->first);
}

/* ---- roles ---- */

static void commit_9(void) { (void)commit_message(9, 64, NULL, 0); }
static void commit_9_or_not(void) { /* to a queue that is deleted it does not go */
  may_go(9);
  commit_9();
}
static void commit_9_put_10(void) {
  commit_9();
  (void)put_message(10);
}
static void commit_9_10(void) {
  commit_9();
  (void)commit_message(10, 64, NULL, 0);
}
/* With locks these two would wait for each other. */
static void commit_2_the_other_way(void) {
  sb_queue *q = me()->q;
  me()->q = me()->other;
  me()->other = q;
  (void)commit_message(2, 64, NULL, 0);
  me()->other = me()->q;
  me()->q = q;
}
static void commit_9_and_ack(void) { (void)commit_with_ack(9, me()->first); }
/* The second of two acknowledgements is one too many: it is found out when all is staged. */
static void commit_in_vain(void) {
  uint64_t token = token_of_record(me()->first);
  sb_settlement ends[2] = {{me()->q, token, SB_ACK}, {me()->q, token, SB_ACK}};
  if (commit_message(9, 64, ends, 2) == SB_OK) complain("a message is acknowledged twice");
}
static void look_then_end(char *record, sb_queue *q) {
  const sb_record *r = (const sb_record *)(const void *)record;
  uint64_t view, id;
  if (sb_view_begin(me()->t.c, r->tag, r->sequence, r->body_address, &view) == SB_OK) {
    scheduler_note("viewed");
    ack(q, record);
    memcpy(&id, (const char *)(uintptr_t)r->body_address + LONG_BODY - LONG_BODY % 8 - 8, sizeof id);
    uint32_t slot = sb_slot_of(me()->t.b, (const char *)(uintptr_t)r->body_address - FRONT);
    if (id != 1 || sb_slot_state(SB_LOAD(sb_slot_header(me()->t.b, slot), SB_ACQUIRE)) != SB_SLOT_PUBLISHED)
      complain("the shared body that is looked at is not kept");
    if (sb_view_end(me()->t.c, view) == SB_OK) scheduler_note("looked-away");
  }
}
static void look_at_shared(void) { look_then_end(me()->first, me()->q); }
static void look_at_shared_in_other(void) { look_then_end(me()->first, me()->other); }
static void take_other_twice(void) {
  take_from_other();
  take_from_other();
}
static void purge_all(void) {
  everything_may_go();
  for (int64_t n = purge_count(me()->q); n > 0; n--) scheduler_note("purged");
}
static void take_long_from_other(void) { take_long_from(me()->other); }

/* ---- afterwards ---- */

static void ring_is_not_empty(void) {
  if (ready_messages() == 0 && !scheduler_somebody_died()) complain("a message was evicted for one that never came");
}
static void nothing_was_killed(void) {
  uint64_t killed = sb_ledger_sum(me()->t.b, me()->q->shm, SB_COUNT_KILLED);
  if (killed != 0) complain("a queue that was to be deleted if empty was not: %u messages", (unsigned)killed);
}
/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
    {"commit, takes", "what is staged is passed, and found", FREELY, nothing,
     {{"commit", commit_9, 0, "committed"}, {"q", take_twice, 1, "got acked nothing"},
      {"other", take_other_twice, 2, "took nothing"}}, KEEPS_ALL},
    {"two commits, take", "each is in both queues", FREELY, nothing,
     {{"a", commit_9, 0, "committed"}, {"b", commit_2_the_other_way, 1, "committed"},
      {"take", take_then_ack, 2, "got acked"}}, KEEPS_ALL},
    {"commit, put, take", "who put later may come first, and nothing is lost", FREELY, nothing,
     {{"commit", commit_9, 0, "committed"}, {"put", put_1, 1, "put"}, {"take", take_twice, 2, "got acked got acked"}},
     KEEPS_ALL},
    {"commit then put, take", "messages of one producer stay in order", FREELY, nothing,
     {{"commit", commit_9_put_10, 0, "committed put"}, {"take", take_twice, 1, "got acked got acked"}}, KEEPS_ALL},
    {"two commits of one, takes", "and those of several who take them", FREELY, nothing,
     {{"commit", commit_9_10, 0, "committed committed"}, {"other", take_then_ack, 2, "got acked"},
      {"take", take_twice, 1, "got acked nothing"}}, KEEPS_ALL},
    {"commit, wait", "whoever waits is woken when it is decided", FREELY, nothing,
     {{"wait", wait_then_ack, 1, "slept got acked"}, {"commit", commit_9, 0, "committed"}}, KEEPS_ALL},
    {"commit, two wait", "each of two is woken for its own", FREELY, nothing,
     {{"b", wait_then_ack, 1, "slept got acked"}, {"c", wait_then_ack, 2, "slept got acked"},
      {"commit", commit_9_10, 0, "committed committed"}}, KEEPS_ALL},
    {"commit, consumer", "the consumer that is told finds it", FREELY, second_consumes,
     {{"consumer", consume_one, 1, "slept got acked"}, {"io", serve, 1, "slept filled slept"},
      {"commit", commit_9, 0, "committed"}}, KEEPS_ALL},
    {"transaction, take", "the new one is there, or the old one", FREELY, first_holds_the_only_one,
     {{"commit", commit_9_and_ack, 0, "committed acked"}, {"take", take_twice, 1, "got acked nothing"}}, KEEPS_ALL},
    {"commit, limit", "a place that is staged is taken", ONE_AT_MOST, nothing,
     {{"commit", commit_9, 0, "committed"}, {"put", put_1, 1, "full"}, {"take", take_then_ack, 2, "got acked"}},
     .bound = 1},
    {"commit, ring", "never more than one", RING(1), one_in_a_ring,
     {{"commit", commit_9, 0, "committed"}, {"put", put_2, 1, "put"}, {"take", take_then_ack, 2, "got acked"}},
     newest_is_there, .bound = 1},
    {"commit in vain, takes", "what was staged was never there", FREELY, first_holds_the_only_one,
     {{"commit", commit_in_vain, 0, "not-committed"}, {"put", put_2, 1, "put"},
      {"take", take_twice, 2, "got acked nothing"}}, KEEPS_ALL},
    {"commit in vain, room", "whoever waits is told of a place that was staged", ONE_AT_MOST, first_holds_the_only_one,
     {{"commit", commit_in_vain, 0, "not-committed"}, {"put", put_2_when_room, 1, "put"}},
     nobody_sleeps_beside_room, .bound = 1, .idle = true},
    {"commit in vain, ring", "and nothing is evicted for it", RING(1), first_holds_one_of_a_ring,
     {{"commit", commit_in_vain, 0, "not-committed"}, {"put", put_3, 1, "put"}}, ring_is_not_empty, .bound = 1},
    {"commit, delete", "what is left in a deleted queue goes", FREELY, one_ready,
     {{"commit", commit_9, 0, "committed"}, {"delete", delete_queue, 1, "deleted"}}, KEEPS_ALL},
    {"commit, delete if empty", "what is staged is not deleted", FREELY, nothing,
     {{"commit", commit_9_or_not, 0, "committed"}, {"delete", delete_if_empty, 1, "not-empty"}},
     nothing_was_killed, KEEPS_ALL},
    {"commit, purge", "each is removed, or stays", FREELY, one_ready,
     {{"commit", commit_9, 0, "committed"}, {"purge", purge_all, 1, "purged purged"}}, KEEPS_ALL},
    {"commit, browse", "who reads sees what is ready", FREELY, one_ready,
     {{"commit", commit_9, 0, "committed"}, {"browse", browse, 1, "saw saw"}}, KEEPS_ALL},
    {"two look at a shared body", "it stays for both, and goes after both", FREELY, both_hold_a_shared_body,
     {{"a", look_at_shared, 0, "viewed acked looked-away"},
      {"b", look_at_shared_in_other, 1, "viewed acked looked-away"}}, KEEPS_ALL},
    {"shared, ack, take", "a body goes with its last reference", FREELY, first_holds_a_shared_one,
     {{"ack", ack_held, 0, "acked"}, {"take", take_long_from_other, 1, "took"},
      {"put", put_long, 2, "put in-the-same-slot"}}, KEEPS_ALL},
    {"commit, tick", "hints are set right beside a commit", RING(1), hint_is_wrong,
     {{"tick", have_tick, 0, "reconciled"}, {"commit", commit_9, 1, "committed"},
      {"take", take_then_ack, 2, "got acked"}}, newest_is_there_in_time, .bound = 1},
};
/* clang-format on */
const subject COMMIT_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
