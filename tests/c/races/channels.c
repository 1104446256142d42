// SPDX-License-Identifier: Apache-2.0
/* Scenarios of channels: hand-over, dealing, claims, succession, and the end of channels. */
#include "roles.h"
#include "scenarios.h"

#define SINGLE {{-1, -1, -1, 0, -1, -1}, SB_QUEUE_SINGLE_ACTIVE}

/* ---- before ---- */

static sb_channel *open_channel(uint64_t user) {
  sb_status status;
  sb_channel *channel = sb_channel_open(me()->t.c, user, &status);
  if (channel == NULL) die("sb_channel_open", (int)status);
  return channel;
}
static bool consume(sb_channel *channel, uint32_t prefetch, uint32_t flags) {
  consumers_may_return();
  sb_status status = sb_channel_consume(channel, me()->q, prefetch, 0, flags, &me()->subscription);
  if (status != SB_OK && status != SB_ACCESS) complain("sb_channel_consume: %d", (int)status);
  scheduler_note(status == SB_OK ? "consumes" : "refused");
  return status == SB_OK;
}
/* It is interested: what the IO thread would do first is done. */
static void join_as(unsigned player, uint32_t prefetch) {
  act_as(player);
  me()->channel = open_channel(player + 1);
  me()->consumes = consume(me()->channel, prefetch, 0);
  (void)sb_channel_pull(me()->channel);
  (void)sb_channel_arm(me()->channel);
}
static void second_joins(void) { join_as(1, 0); }
static void second_holds_one_of_one(void) {
  put_by_keeper(1, 1);
  join_as(1, 1);
  if (next_delivery(me()->channel, me()->first) != 1 || sb_channel_arm(me()->channel)) die("the first delivery", 0);
}
/* Two channels, the first of which is asked first. */
static void second_consumes_twice(void) {
  join_as(1, 0);
  me()->second_channel = open_channel(20);
  (void)consume(me()->second_channel, 0, 0);
  (void)sb_channel_pull(me()->second_channel);
}
static void three_open(void) {
  for (unsigned i = 0; i < 3; i++) {
    act_as(i);
    me()->channel = open_channel(i + 1);
  }
}
static void second_opens(void) {
  act_as(1);
  consumers_may_return();
  me()->channel = open_channel(2);
}
static void second_is_active(void) {
  join_as(1, 0);
  join_as(2, 0);
}
/* The second message waits for the consumer that is active then. */
static void active_and_newcomer(void) {
  put_by_keeper(1, 2);
  join_as(1, 1);
  (void)next_delivery(me()->channel, me()->first);
  act_as(2);
  me()->channel = open_channel(3);
}
static void third_was_active_and_died(void) {
  join_as(2, 0);
  put_by_keeper(1, 1);
  act_as(2);
  (void)next_delivery(me()->channel, me()->first);
  join_as(1, 0);
  player_dies(2);
}

/* ---- roles ---- */

static void put_9(void) { (void)put_message(9); }
static void work(sb_channel *channel, char *record) {
  uint32_t cancelled;
  do {
    while (next_delivery(channel, record) != 0) ack_delivery(channel, record);
    if (sb_channel_next_cancelled(channel, &cancelled)) {
      me()->consumes = false;
      scheduler_note("told-of-the-end");
    }
  } while (!sb_channel_arm(channel) ? false : sb_channel_waiting(channel) > 0 || channel->cancelled_first != NULL);
}
/* The IO thread, which works off what it is handed itself. */
static void work_off(void) {
  while (sb_connection_run_io(me()->t.c) == SB_READY) {
    uint64_t user;
    while ((user = sb_connection_next_ready(me()->t.c)) != 0) {
      if (user != me()->channel->number) complain("somebody else is handed over: %llu", (unsigned long long)user);
      work(me()->channel, me()->second);
    }
  }
}
/* The IO thread alone: deliveries stay in their rows. */
static void pull_only(void) {
  while (sb_connection_run_io(me()->t.c) == SB_READY) {
    while (sb_connection_next_ready(me()->t.c) != 0) scheduler_note("handed-over");
  }
}
static void look(void) { (void)next_delivery(me()->channel, me()->first); }
static void ack_first(void) { ack_delivery(me()->channel, me()->first); }
static void requeue_first(void) {
  uint64_t tag = ((const sb_record *)(const void *)me()->first)->tag;
  scheduler_note(sb_channel_settle(me()->channel, tag, false, SB_REQUEUE) == SB_OK ? "returned" : "not-returned");
}
static void cancel(void) {
  if (sb_channel_cancel(me()->channel, me()->subscription) == SB_OK) scheduler_note("cancelled");
  me()->consumes = false;
}
static void close_channel(void) {
  sb_channel_close(me()->channel);
  scheduler_note("closed");
  me()->consumes = false;
}
static void claim(void) { me()->consumes = consume(me()->channel, 0, SB_CONSUME_EXCLUSIVE); }
static void join(void) { me()->consumes = consume(me()->channel, 0, 0); }
static void claim_and_cancel(void) {
  claim();
  if (me()->consumes) cancel();
}
static void wait_in_get(void) {
  me()->waits = true;
  if (wait_for_delivery(me()->channel, me()->first) != 0) ack_delivery(me()->channel, me()->first);
  me()->waits = false;
}
static void join_and_serve(void) {
  join();
  (void)sb_channel_arm(me()->channel);
  work_off();
}

/* ---- afterwards ---- */

static bool lives(unsigned player) { return !player_is_dead(player); }

/* Looked at before the ticks, which would rescue. */
static void nobody_sleeps(void) {
  for (unsigned i = 0; i < ACTORS; i++) {
    if (scheduler_state(i) == ACTOR_ASLEEP && ready_messages() > 0 && !scheduler_somebody_died())
      complain("somebody sleeps beside messages");
  }
  have_ticks();
}

/* The actor that serves it sleeps by now, or died. */
static void nothing_waits(void) {
  const player *p = &players[1];
  if (lives(1) && (p->channel->deliveries.row.count > 0 || p->channel->ready)) complain("a hand-over is lost");
  nobody_sleeps();
}
static void the_end_is_reported(void) {
  nothing_waits();
  if (lives(0) && lives(1) && players[1].consumes) complain("nobody was told of the end of the queue");
}
static void dealt_in_turn(void) {
  const player *p = &players[1];
  uint64_t first = p->channel->deliveries.row.count + p->channel->delivered;
  uint64_t second = p->second_channel->deliveries.row.count + p->second_channel->delivered;
  if (lives(1) && first != second && first != second + 1)
    complain("%llu are dealt to the first, %llu to the second", (unsigned long long)first, (unsigned long long)second);
  nobody_sleeps();
}
static unsigned how_many_consume(void) {
  unsigned n = 0;
  for (unsigned i = 0; i < KEEPER; i++) n += lives(i) && players[i].consumes;
  return n;
}
static void one_claim_stands(void) {
  unsigned n = how_many_consume();
  if (n > 1 || (n == 0 && !scheduler_somebody_died())) complain("%u of two claims stand", n);
  nobody_sleeps();
}
static void claim_stands_alone(void) {
  if (lives(0) && players[0].consumes && how_many_consume() > 1) complain("an exclusive consumer has company");
  if (how_many_consume() == 0 && !scheduler_somebody_died()) complain("nobody may consume");
  nobody_sleeps();
}
static void nobody_waits(void) {
  for (unsigned i = 0; i < ACTORS; i++) {
    if (lives(1) && players[1].waits && scheduler_state(i) == ACTOR_ASLEEP) complain("a get waits on a closed channel");
  }
  nobody_sleeps();
}
/* The active consumer has all of it; no other one has anything in its row. */
static void one_is_active(void) {
  const player *a = &players[1], *b = &players[2];
  if (lives(1) && lives(2) && a->consumes && b->channel->delivered + b->channel->deliveries.row.count > 0)
    complain("two are active");
  nobody_sleeps();
}

/* clang-format off */
static const scenario SCENARIOS[] = {
    {"channel, put", "what comes to an armed channel is handed over", FREELY, second_joins,
     {{"io", work_off, 1, "slept pulled pulled got acked got acked nothing slept"}, {"put", put_1_2, 0, "put put"}},
     nothing_waits, KEEPS_ALL},
    {"channel, two put", "the same, of two producers", FREELY, second_joins,
     {{"io", work_off, 1, "slept pulled got acked nothing slept pulled got acked nothing slept"},
      {"put", put_1, 0, "put"}, {"put 9", put_9, 2, "put"}}, nothing_waits, KEEPS_ALL},
    {"channel, ack, put", "what another thread pulls is handed over", FREELY, second_holds_one_of_one,
     {{"io", work_off, 1, "slept got acked nothing slept"}, {"put", put_2, 0, "put"},
      {"ack", ack_first, 1, "pulled acked"}}, nothing_waits, KEEPS_ALL},
    {"channel, requeue, put", "what another thread returns comes again", FREELY, second_holds_one_of_one,
     {{"io", work_off, 1, "slept got pulled acked got acked nothing slept"}, {"put", put_2, 0, "put"},
      {"requeue", requeue_first, 1, "pulled returned"}}, nothing_waits, KEEPS_ALL},
    {"channel, cancel, put", "what a cancelled consumer was not given goes back", FREELY, second_joins,
     {{"io", work_off, 1, "slept pulled got acked nothing slept"}, {"put", put_1, 0, "put"},
      {"cancel", cancel, 1, "cancelled"}}, hints_are_set_right, KEEPS_ALL, .idle = true},
    {"channel, close, put", "what a closed channel had goes to another one", FREELY, second_is_active,
     {{"c", work_off, 2, "slept pulled got acked nothing slept"}, {"put", put_1, 0, "put"},
      {"close", close_channel, 1, "closed"}}, nobody_sleeps, KEEPS_ALL},
    {"channel, delete", "the end of a queue is reported", FREELY, second_joins,
     {{"io", work_off, 1, "slept nothing told-of-the-end slept"}, {"delete", delete_queue, 0, "deleted"}},
     the_end_is_reported, KEEPS_ALL},
    {"channel, consume, put", "a new consumer sees what came before or after", FREELY, second_opens,
     {{"consume", join, 1, "consumes"}, {"io", pull_only, 1, "slept pulled slept"}, {"put", put_1, 0, "put"}},
     nobody_sleeps, KEEPS_ALL},
    {"two pullers", "messages are dealt in turn, whoever pulls", FREELY, second_consumes_twice,
     {{"put", put_1_2, 0, "put put"}, {"next", look, 1, "pulled pulled got"},
      {"io", pull_only, 1, "handed-over slept"}}, dealt_in_turn, KEEPS_ALL},
    {"close, get", "a get that waits ends with its channel", FREELY, second_opens,
     {{"get", wait_in_get, 1, "slept closed"}, {"close", close_channel, 1, "closed"}}, nobody_waits, KEEPS_ALL},
    {"close, get, put", "what a get took whose channel is closed is there", FREELY, second_opens,
     {{"get", wait_in_get, 1, "slept got acked"}, {"put", put_1, 0, "put"}, {"close", close_channel, 1, "closed"}},
     nobody_waits, KEEPS_ALL},
    {"two claims", "one of two exclusive consumers succeeds", FREELY, three_open,
     {{"a", claim, 0, "consumes"}, {"b", claim, 1, "refused"}}, one_claim_stands, KEEPS_ALL},
    {"claim, consume", "an exclusive consumer has no company", FREELY, three_open,
     {{"a", claim, 0, "consumes"}, {"b", join, 1, "refused"}}, claim_stands_alone, KEEPS_ALL},
    {"claim, cancel, consume", "a claim that was given up keeps nobody out", FREELY, three_open,
     {{"a", claim_and_cancel, 0, "consumes cancelled"}, {"b", join, 1, "consumes"}, {"c", claim, 2, "refused"}},
     nobody_sleeps, KEEPS_ALL},
    {"single, cancel", "another one becomes active when the active one goes", SINGLE, second_is_active,
     {{"c", work_off, 2, "slept pulled got acked nothing slept"}, {"put", put_1, 0, "put"},
      {"cancel", cancel, 1, "cancelled"}}, one_is_active, KEEPS_ALL},
    {"single, joins", "who comes when the active one goes becomes active", SINGLE, active_and_newcomer,
     {{"c", join_and_serve, 2, "consumes slept pulled got acked nothing slept"}, {"cancel", cancel, 1, "cancelled"}},
     one_is_active, KEEPS_ALL},
    {"single, reaped", "another one becomes active when the active one is reaped", SINGLE, third_was_active_and_died,
     {{"io", work_off, 1, "slept pulled pulled got acked got acked nothing slept"}, {"put", put_2, 0, "put"},
      {"reaper", reap, LAST, "reaped"}}, nothing_waits, KEEPS_ALL, .reaped = true},
};
/* clang-format on */
const subject CHANNEL_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
