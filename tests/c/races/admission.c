// SPDX-License-Identifier: Apache-2.0
/* Scenarios of new consumers: the seats of a queue, and the gate that they open together. */
#include "roles.h"
#include "scenarios.h"

#define SEATED(n) {{-1, -1, -1, 0, -1, -1, [SB_SETTING_SEATS] = (n) + 1}, 0}
#define LEFT UINT32_MAX /* `subscription` of a consumer that has left */
#define GATED(n) {{-1, -1, -1, 0, -1, -1, [SB_SETTING_CONSUMERS_BEFORE_DISPATCH] = (n)}, 0}

/* ---- before ---- */

static void open_as(unsigned which) {
  sb_status status;
  act_as(which);
  me()->channel = sb_channel_open(me()->t.c, which + 1, &status);
  if (me()->channel == NULL) die("sb_channel_open", (int)status);
}
static void three_open(void) {
  for (unsigned i = 0; i < 3; i++) open_as(i);
}
static sb_status consume(void) {
  consumers_may_return();
  sb_status status = sb_channel_consume(me()->channel, me()->q, 0, 0, 0, &me()->subscription);
  me()->consumes = status == SB_OK;
  return status;
}
static sb_status consume_alone(void) {
  int32_t holder;
  sb_status status = sb_topology_begin(me()->t.c, FOREVER, &holder);
  if (status == SB_OK) {
    status = consume();
    sb_topology_end(me()->t.c);
  }
  return status;
}
static void sit_as(unsigned which) {
  act_as(which);
  if (consume_alone() != SB_OK) die("sit_as", (int)which);
}
static void have_seats(int64_t n) {
  sb_settings s = SEATED(n);
  int32_t holder;
  three_open();
  act_as(KEEPER);
  if (sb_queue_configure(me()->q, &s, false, FOREVER, &holder) != SB_OK) die("have_seats", (int)n);
}
static void one_seat_is_free(void) {
  have_seats(2);
  sit_as(2);
}
static void have_one_seat(void) { have_seats(1); }
static void third_sat_and_died(void) {
  have_seats(1);
  sit_as(2);
  player_dies(2);
}
static void attach_as(unsigned which) {
  act_as(which);
  if (consume() != SB_OK) die("attach_as", (int)which);
  (void)sb_channel_pull(me()->channel);
  (void)sb_channel_arm(me()->channel);
}
static void third_consumes(void) {
  three_open();
  attach_as(2);
}
static void third_waits(void) {
  three_open();
  put_by_keeper(1, 2);
  attach_as(2);
}
static void third_waited_and_died(void) {
  third_waits();
  player_dies(2);
}
static void two_get_messages(void) {
  three_open();
  put_by_keeper(1, 2);
  attach_as(1);
  attach_as(2);
}

/* ---- roles ---- */

static void sit(void) {
  sb_status status = consume();
  if (status == SB_UNLOCKED) status = consume_alone(); /* as the package does */
  if (status != SB_OK && status != SB_NO_SEAT) complain("sb_channel_consume: %d", (int)status);
  scheduler_note(status == SB_OK ? "sits" : "refused");
}
static void leave(void) {
  if (sb_channel_cancel(me()->channel, me()->subscription) == SB_OK) scheduler_note("left");
  me()->consumes = false;
  me()->subscription = LEFT;
}
static void sit_and_leave(void) {
  sit();
  if (me()->consumes) leave();
}
static void set_seats(int64_t n, const char *done) {
  sb_settings s = SEATED(n);
  int32_t holder;
  sb_status status = sb_queue_configure(me()->q, &s, false, FOREVER, &holder);
  if (status != SB_OK && status != SB_NO_SEAT) complain("sb_queue_configure: %d", (int)status);
  scheduler_note(status == SB_OK ? done : "too-few");
}
static void one_seat(void) { set_seats(1, "one-seat"); }
static void no_seat(void) { set_seats(0, "no-seat"); }
static void work(void) {
  sb_channel *channel = me()->channel;
  do {
    while (next_delivery(channel, me()->second) != 0) ack_delivery(channel, me()->second);
  } while (sb_channel_arm(channel) && sb_channel_waiting(channel) > 0);
}
static void serve_channel(void) {
  while (sb_connection_run_io(me()->t.c) == SB_READY) {
    while (sb_connection_next_ready(me()->t.c) != 0) work();
  }
}
static void come(void) {
  scheduler_note(consume() == SB_OK ? "came" : "refused");
  (void)sb_channel_arm(me()->channel);
  serve_channel();
}
/* If all others have left before, the gate is closed. */
static void come_after_others(void) {
  const sb_channel *channel = me()->channel;
  bool alone = (!players[1].consumes || players[1].subscription == LEFT) && players[2].subscription == LEFT;
  scheduler_note(consume() == SB_OK ? "came" : "refused");
  (void)sb_channel_pull(me()->channel);
  if (alone && channel->deliveries.row.count > 0) complain("one of two got messages");
  leave();
}

/* ---- afterwards ---- */

static bool lives(unsigned which) { return !player_is_dead(which); }
static unsigned how_many_consume(void) {
  unsigned n = 0;
  for (unsigned i = 0; i < KEEPER; i++) n += lives(i) && players[i].consumes;
  return n;
}
static void seats_are_enough(int64_t seats) {
  unsigned n = how_many_consume();
  if (n > seats) complain("%u consumers have %d seats", n, (int)seats);
  have_ticks();
}
static void at_most_one_sits(void) { seats_are_enough(1); }
static void two_sit(void) {
  if (how_many_consume() < 2 && !scheduler_somebody_died()) complain("a seat is free");
  seats_are_enough(2);
}
static void seats_as_set(void) {
  int64_t seats = SB_LOAD(&players[KEEPER].q->shm->settings[SB_SETTING_SEATS], SB_ACQUIRE);
  seats_are_enough(seats > 0 ? seats - 1 : INT64_MAX);
}
static bool knows(unsigned which) {
  const player *p = &players[which];
  const sb_node_shm *n = sb_subscription_node(&p->channel->members[p->subscription]->s);
  return (n->flags & SB_NODE_GATED) == 0 || n->ticket >= p->q->shm->open_before;
}
/* Looked at before the ticks. */
static void nobody_waits_for_the_gate(void) {
  for (unsigned i = 0; i < 3; i++) {
    if (!scheduler_somebody_died() && players[i].consumes && !knows(i))
      complain("nobody told one that the gate is open");
  }
  if (!scheduler_somebody_died() && ready_messages() > 0) complain("messages are left beside an open gate");
  have_ticks();
}

/* clang-format off */
static const scenario SCENARIOS[] = {
    {"seats, two", "one of two gets the last seat", FREELY, one_seat_is_free,
     {{"a", sit, 0, "sits"}, {"b", sit, 1, "refused"}}, two_sit, KEEPS_ALL},
    {"seats, leave", "a seat that was left is free", FREELY, have_one_seat,
     {{"a", sit_and_leave, 0, "sits left"}, {"b", sit, 1, "sits"}}, at_most_one_sits, KEEPS_ALL, .idle = true},
    {"seats, begin", "a queue that gets a seat has no more consumers than that", FREELY, third_consumes,
     {{"configure", one_seat, 1, "one-seat"}, {"a", sit, 0, "refused"}}, seats_as_set, KEEPS_ALL},
    {"seats, begin, empty", "the same, if there is no consumer before", FREELY, three_open,
     {{"configure", no_seat, 1, "no-seat"}, {"a", sit, 0, "refused"}}, seats_as_set, KEEPS_ALL},
    {"seats, reaped", "the seat of a dead consumer is free when it is reaped", FREELY, third_sat_and_died,
     {{"a", sit, 0, "sits"}, {"reaper", reap, LAST, ""}}, at_most_one_sits, KEEPS_ALL, .reaped = true},
    {"gate, two", "two that come at the same time get messages", GATED(2), three_open,
     {{"a", come, 0, "came slept slept pulled pulled got acked got acked nothing slept"},
      {"b", come, 1, "came slept slept"}, {"put", put_1_2, 2, "put put"}},
     nobody_waits_for_the_gate, KEEPS_ALL, .idle = true},
    {"gate, second", "one that waits gets messages when another comes", GATED(2), third_waits,
     {{"c", serve_channel, 2, "slept slept"},
      {"a", come, 0, "came pulled pulled got acked got acked nothing slept"}}, nobody_waits_for_the_gate, KEEPS_ALL,
     .idle = true},
    {"gate, leave, come", "one that comes after all have left waits", GATED(2), two_get_messages,
     {{"b", leave, 1, "left"}, {"c", leave, 2, "left"}, {"a", come_after_others, 0, "came left"}}, have_ticks, KEEPS_ALL,
     .idle = true},
    {"gate, one by one", "two of whom one leaves before the other comes wait", GATED(2), third_waits,
     {{"c", leave, 2, "left"}, {"a", come_after_others, 0, "came left"}}, have_ticks, KEEPS_ALL, .idle = true},
    {"gate, reaped", "a consumer that died does not count when it is reaped", GATED(2), third_waited_and_died,
     {{"reaper", reap, LAST, "reaped"}, {"a", come, 0, "came slept"}}, have_ticks, KEEPS_ALL,
     .idle = true, .reaped = true},
};
/* clang-format on */
const subject ADMISSION_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
