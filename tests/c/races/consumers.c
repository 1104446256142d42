// SPDX-License-Identifier: Apache-2.0
/* Scenarios of waiting and notifying: waiting calls, consumers, priorities, credit. */
#include <string.h>

#include "roles.h"
#include "scenarios.h"

static bool subscribed; /* the consumer of player 2, in this run */

#define HANDS_OVER {{-1, -1, 0, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0}

/* ---- before ---- */

static void second_has_credit_of_two(void) {
  sb_settings none_kept = HANDS_OVER;
  int32_t holder;
  act_as(KEEPER);
  if (sb_queue_configure(me()->q, &none_kept, false, FOREVER, &holder) != SB_OK) die("sb_queue_configure", 0);
  consume_as(1, 2, 0);
  everything_may_go(); /* when the consumer leaves */
}
static void two_consume(void) {
  consume_as(1, 4, 0);
  consume_as(2, 4, 0);
}
static void high_and_low_consume(void) {
  consume_as(1, 4, 5);
  consume_as(2, 4, 0);
}
static void first_of_those_who_come(void) {
  subscribed = false;
  (void)SB_OR(&me()->q->shm->flags, SB_QUEUE_AUTO_DELETE, SB_SEQ_CST);
  consume_as(1, 4, 0);
  everything_may_go();
}
static void second_is_out_of_credit(void) {
  one_ready();
  consume_as(1, 1, 0);
  sb_consumer_pull(me()->consumer);
  (void)next_message(me()->first);
}

/* A message of this number of bytes fits beside one of 64 in a window, another one of 64 does not. */
#define SHORT 16u
#define WINDOW 100u
static void short_by_keeper(uint64_t id) {
  sb_put_options none = {0};
  act_as(KEEPER);
  (void)put_message_with(id, SHORT, &none);
}
static void consume_window_as(unsigned player) {
  const sb_consumer_options o = {.prefetch = 4, .prefetch_bytes = WINDOW};
  sb_status status;
  act_as(player);
  consumers_may_return();
  me()->consumer = sb_consumer_open_with(me()->t.c, &me()->q, 1, &o, &status);
  if (me()->consumer == NULL) die("sb_consumer_open_with", (int)status);
  (void)next_message(me()->first);
  (void)next_message(me()->second); /* in vain: it is held back */
  if (!sb_consumer_is_held_back(me()->consumer)) die("the consumer is not held back", 0);
}
/* Each of two consumers holds a long message; the next one is long, the one behind it is short. */
static void two_are_held_back(void) {
  put_by_keeper(1, 3);
  short_by_keeper(4);
  consume_window_as(1);
  consume_window_as(2);
  any_order();
}
/* The same, and the first player holds a short one that comes before all others. */
static void two_are_held_back_by_third(void) {
  short_by_keeper(8); /* as of another producer */
  act_as(0);
  (void)get_message(me()->q, me()->first);
  put_by_keeper(1, 3);
  consume_window_as(1);
  consume_window_as(2);
  any_order();
}

/* ---- roles ---- */

static void ack_consumed(void) { ack_next(me()->first); }
static void cancel(void) {
  sb_consumer_cancel(me()->consumer, true);
  if (me()->consumer->closed) scheduler_note("cancelled");
}
static void suspend(void) {
  sb_consumer_suspend(me()->consumer, true);
  if (me()->consumer->suspended) scheduler_note("suspended");
}
static void subscribe(void) {
  consume_as(1, 4, 0);
  if (me()->consumer->subscription_count == 1) scheduler_note("subscribed");
}
static void come_to_a_queue_that_ends(void) {
  sb_status status;
  subscribed = false;
  me()->consumer = sb_consumer_open(me()->t.c, &me()->q, 1, 4, 0, 0, 0, &status);
  subscribed = me()->consumer != NULL;
  scheduler_note(subscribed ? "subscribed" : status == SB_DELETED ? "deleted" : "not-subscribed");
}
/* A queue does not end under a consumer that was admitted. */
static void is_there_for_its_consumer(void) {
  if (subscribed && !player_is_dead(2) && !sb_queue_is_open(players[2].q)) complain("the queue has ended");
}
/* The next message is too long for each consumer that lives. */
static void nobody_is_held_back_in_vain(void) {
  static char record[8192];
  uint64_t position = 0;
  sb_record next;
  act_as(KEEPER);
  if (sb_queue_browse(me()->q, &position, record, sizeof record) <= 0) return;
  memcpy(&next, record, sizeof next);
  for (unsigned i = 1; i <= 2; i++) {
    if (!player_is_dead(i) && sb_window_fits(&players[i].consumer->window, next.body_length))
      complain("player %u waits beside a message that fits", i);
  }
}
static void nothing_was_dropped(void) {
  sb_queue_facts f;
  act_as(KEEPER);
  if (sb_queue_describe(me()->t.c, me()->q->slot, &f) != SB_OK) die("sb_queue_describe", 0);
  if (f.dropped > 0 && !scheduler_somebody_died()) complain("%u messages were dropped", (unsigned)f.dropped);
}
/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
    {"wait, put", "whoever waits in get is woken", FREELY, nothing,
     {{"wait", wait_then_ack, 1, "slept got acked"}, {"put", put_1, 0, "put"}}, KEEPS_ALL},
    {"two wait, put", "each of two is woken for its own", FREELY, nothing,
     {{"b", wait_then_ack, 1, "slept got acked"}, {"c", wait_then_ack, 2, "slept got acked"},
      {"put", put_1_2, 0, "put put"}}, KEEPS_ALL},
    {"wait, nack", "whoever waits is woken by what comes back", FREELY, first_holds_one_behind,
     {{"b", wait_then_ack, 1, "got acked"}, {"c", wait_then_ack, 2, "slept got acked"},
      {"nack", nack_held, 0, "returned"}}, KEEPS_ALL},
    {"consumer, put", "a thread serves the consumer that is told", FREELY, second_consumes,
     {{"consumer", consume_one, 1, "slept got acked"}, {"io", serve, 1, "slept filled slept"},
      {"put", put_1, 0, "put"}},
     KEEPS_ALL},
    {"consumers, put", "each of two consumers is told, and one may take all", FREELY, two_consume,
     {{"b", serve, 1, "slept filled filled slept"}, {"c", serve, 2, "slept slept"}, {"put", put_1_2, 0, "put put"}},
     KEEPS_ALL},
    {"cancel, put", "whom the first does not serve, the other does", FREELY, two_consume,
     {{"put", put_1, 0, "put"}, {"cancel", cancel, 1, "cancelled"}, {"c", serve, 2, "filled slept"}}, KEEPS_ALL},
    {"suspend, put", "a lower priority is served when the higher one does not want to be", FREELY, high_and_low_consume,
     {{"put", put_1_2, 0, "put put"}, {"suspend", suspend, 1, "suspended"}, {"low", serve, 2, "filled filled slept"}},
     KEEPS_ALL},
    {"credit, put", "credit that comes back is used", FREELY, second_is_out_of_credit,
     {{"io", serve, 1, "slept filled slept"}, {"ack", ack_consumed, 1, "acked"}, {"put", put_2, 0, "put"}}, KEEPS_ALL},
    {"subscribe, put", "a new consumer sees what came before or after", FREELY, nothing,
     {{"subscribe", subscribe, 1, "subscribed"}, {"io", serve, 1, "slept filled slept"}, {"put", put_1, 0, "put"}},
     KEEPS_ALL},
    {"cancel, come", "a consumer comes while the last one of an auto-delete queue leaves", FREELY, first_of_those_who_come,
     {{"cancel", cancel, 1, "cancelled"}, {"come", come_to_a_queue_that_ends, 2, "deleted"}}, is_there_for_its_consumer,
     KEEPS_ALL, .idle = true},
    {"held back, get", "a get lets consumers that are held back look again", FREELY, two_are_held_back,
     {{"get", take_then_ack, 0, "got acked"}, {"b", serve, 1, "filled slept"}, {"c", serve, 2, "slept"}},
     nobody_is_held_back_in_vain, KEEPS_ALL, .idle = true},
    {"held back, nack", "a message that returns goes to a consumer that is held back", FREELY, two_are_held_back_by_third,
     {{"nack", nack_held, 0, "returned"}, {"b", serve, 1, "filled slept"}, {"c", serve, 2, "slept"}},
     nobody_is_held_back_in_vain, KEEPS_ALL, .idle = true},
    {"hand over, put", "a queue of no bytes keeps what its consumer has credit for", FREELY, second_has_credit_of_two,
     {{"put", put_1_2, 0, "put put"}, {"io", serve, 1, "filled filled slept"}}, nothing_was_dropped, KEEPS_ALL},
};
/* clang-format on */
const subject CONSUMER_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
