// SPDX-License-Identifier: Apache-2.0
/* Scenarios of waiting and notifying: waiting calls, consumers, priorities, credit. */
#include "roles.h"
#include "scenarios.h"

/* ---- before ---- */

static void two_consume(void) {
  consume_as(1, 4, 0);
  consume_as(2, 4, 0);
}
static void high_and_low_consume(void) {
  consume_as(1, 4, 5);
  consume_as(2, 4, 0);
}
static void second_is_out_of_credit(void) {
  one_ready();
  consume_as(1, 1, 0);
  sb_consumer_pull(me()->consumer);
  (void)next_message(me()->first);
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
};
/* clang-format on */
const subject CONSUMER_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
