// SPDX-License-Identifier: Apache-2.0
/* Scenarios of work beside the traffic: names, connections, timers, ticks, reaping. */
#include "roles.h"
#include "sb_disposal.h"
#include "sb_recover.h"
#include "sb_topology.h"
#include "scenarios.h"

/* ---- before ---- */

static void third_died_with_one(void) {
  two_ready();
  act_as(2);
  (void)get_message(me()->q, me()->first);
  player_dies(2);
}
static void third_died_with_the_only_one(void) {
  one_ready();
  act_as(2);
  (void)get_message(me()->q, me()->first);
  player_dies(2);
}
static void third_died_in_a_ring(void) {
  third_died_with_the_only_one();
  everything_may_go();
}
static uint64_t due_position;
static void some_are_due(uint64_t count) {
  sb_put_options due = {.delay_ns = 1};
  act_as(KEEPER);
  due_position = sb_ring_exact_tail(me()->t.b, &me()->q->lanes[0].ring);
  for (uint64_t id = 1; id <= count; id++) (void)put_message_with(id, 64, &due);
}
static void one_is_due(void) { some_are_due(1); }
static void two_are_due(void) {
  some_are_due(2);
  any_order(); /* whichever is found first */
}
static void one_is_due_in_a_ring(void) {
  some_are_due(1);
  everything_may_go();
}
static void consumer_sleeps(void) {
  consume_as(1, 4, 0);
  come_to_rest();
  have_tick(); /* who sleeps is known since */
}
/* A queue that was deleted is there, and nobody has it open. */
static uint32_t closed_slot;
static void one_is_closed(void) {
  sb_settings settings = FREELY;
  int32_t holder;
  uint64_t removed;
  act_as(KEEPER);
  if (declare(&me()->t, "closed", settings) != SB_OK) die("sb_queue_declare", 0);
  sb_queue *q = open_queue(&me()->t, "closed");
  closed_slot = q->slot;
  if (sb_queue_delete(q, false, false, UINT64_MAX, &holder, &removed) != SB_OK) die("sb_queue_delete", 0);
  sb_queue_close(q);
}

/* ---- roles ---- */

/* What a sweep of the directory does with it; that goes through all names. */
static void free_the_closed_one(void) {
  int32_t holder;
  if (sb_topology_lock(me()->t.b, UINT64_MAX, &holder) != SB_OK) return;
  sb_lock(me()->t.c);
  scheduler_note(sb_disposal_free(me()->t.c, closed_slot) ? "freed" : "left");
  sb_unlock(me()->t.c);
  sb_topology_unlock(me()->t.b, false);
}
static void recover_the_closed_one(void) {
  sb_lock(me()->t.c);
  sb_recover_queue(me()->t.c, closed_slot);
  sb_unlock(me()->t.c);
  scheduler_note("recovered");
}
static void declare_q2(void) {
  sb_status status = declare(&me()->t, "q2", (sb_settings)FREELY);
  scheduler_note(status == SB_OK ? "declared" : status == SB_EXISTS ? "exists" : "not-declared");
  if (status == SB_OK) {
    sb_queue *q = open_queue(&me()->t, "q2");
    scheduler_note(q != NULL ? "opened" : "not-opened");
    if (q == NULL) complain("the queue that was declared is not there");
  }
}
static void leave_with(sb_connection *c) {
  (void)sb_connection_close(c);
  if (sb_connection_release(c)) scheduler_note("left");
}
static void disconnect(void) { leave_with(me()->t.c); }
static void connect_once_more(void) {
  sb_connection *c = connect_to(&me()->t);
  scheduler_note("connected");
  leave_with(c);
}
static void look_whether_due(uint64_t position) {
  uint64_t before = ready_messages();
  (void)sb_housekeeper_look_at(me()->q, position);
  scheduler_note(ready_messages() > before ? "made-ready" : "looked");
}
static void become_due(void) {
  for (int i = 0; i < 3; i++) look_whether_due(due_position);
}
static void become_due_second_first(void) {
  look_whether_due(due_position + 1);
  become_due();
}

/* ---- afterwards ---- */

static void is_due(void) { become_due(); }
static void both_are_due(void) { become_due_second_first(); }
/* Hints are corrected while others change them, and may be wrong until a tick where that costs only a wake. */
static void no_rescue(void) {
  const sb_queue_shm *q = players[KEEPER].q->shm;
  if (q->rescues != 0) complain("a rescue was counted");
  have_ticks();
  if (q->rescues != 0 && !scheduler_somebody_died()) complain("somebody slept on, until a tick");
}
/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
    {"two declare", "one queue of a name", FREELY, nothing,
     {{"a", declare_q2, 0, "declared opened"}, {"b", declare_q2, 1, "exists"}}, KEEPS_ALL},
    {"two connect", "each gets a connection of its own", FREELY, nothing,
     {{"a", connect_once_more, 0, "connected left"}, {"b", connect_once_more, 1, "connected left"}}, KEEPS_ALL},
    {"free, recover", "a queue is not freed under somebody who has it open", FREELY, one_is_closed,
     {{"free", free_the_closed_one, 0, "freed"}, {"recover", recover_the_closed_one, 1, "recovered"}}, KEEPS_ALL},
    {"disconnect, take", "what is given up is found", FREELY, first_holds_one,
     {{"disconnect", disconnect, 0, "left"}, {"take", take_twice, 1, "got acked got acked"}}, KEEPS_ALL},
    {"due, take", "what becomes due is taken once", FREELY, one_is_due,
     {{"due", become_due, 0, "made-ready looked looked"}, {"take", take_then_ack, 1, "got acked"}}, is_due, KEEPS_ALL},
    {"two find it due", "and it becomes ready once", FREELY, two_are_due,
     {{"a", become_due, 0, "made-ready looked looked"},
      {"b", become_due_second_first, 1, "made-ready looked looked looked"}}, both_are_due, KEEPS_ALL},
    {"due, ring", "what becomes due in a ring leaves no room for two", RING(1), one_is_due_in_a_ring,
     {{"put", put_2, 1, "put"}, {"due", become_due, 0, "looked looked looked"}}, is_due, .bound = 1},
    {"tick, wait, put", "the housekeeper disturbs nobody", FREELY, come_to_rest,
     {{"wait", wait_then_ack, 2, "slept got acked"}, {"tick", have_tick, 0, "reconciled"}, {"put", put_1, 1, "put"}},
     no_rescue, KEEPS_ALL},
    {"tick, consumer, put", "it rescues nobody who is being told", FREELY, consumer_sleeps,
     {{"io", serve, 1, "slept filled slept"}, {"tick", have_tick, 0, "ticked"}, {"put", put_1, 2, "put"}},
     no_rescue, KEEPS_ALL},
    {"tick, ring", "hints are set right beside everybody", RING(1), hint_is_wrong,
     {{"tick", have_tick, 0, "reconciled"}, {"put", put_2_3, 1, "put put"}, {"take", take_then_ack, 2, "got acked"}},
     newest_is_there_in_time, .bound = 1},
    {"reap, take", "what a dead one held is found", FREELY, third_died_with_one,
     {{"reaper", reap, LAST, "reaped"}, {"take", take_twice, 0, "got acked got acked"}, {"put", put_3, 1, "put"}},
     hints_are_set_right, KEEPS_ALL, .reaped = true},
    {"reap, ring", "what a dead one held comes back to a ring", RING(1), third_died_in_a_ring,
     {{"put", put_2, 0, "put"}, {"reaper", reap, LAST, "reaped"}, {"take", take_then_ack, 1, "got acked"}},
     newest_is_there, .bound = 1, .reaped = true},
    {"reap, wait", "whoever waits is woken by what a dead one held", FREELY, third_died_with_the_only_one,
     {{"wait", wait_then_ack, 0, "slept got acked"}, {"reaper", reap, LAST, "reaped"}},
     no_rescue, KEEPS_ALL, .reaped = true},
};
/* clang-format on */
const subject HOUSEKEEPING_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
