// SPDX-License-Identifier: Apache-2.0
/* sb_channel: the limits of a consumer, its channel and its connection, and what happens when credit returns. */
#include "sb_channel.h"

#include "channels.h"
#include "sb_nodes.h"

/* ---- the limit of a consumer ---- */

static void a_consumer_has_its_prefetch(void) {
  begin_channels();
  stranger_puts(first_queue, 20);
  sb_member *m = join_channel(ch, first_queue, 5, 0, 0);
  expect_is(sb_channel_pull(ch), SB_OK, "the status of a pull");
  expect_member(m, "when its prefetch is used up", 5, 5, false);
  expect(m->starved && !ch->blocked && !t.c->limited, "more than the consumer is stopped");
  expect_is(member_state(m), SB_NODE_NOT_INTERESTED, "the state of its node");
  expect_is(ch->unacked, 5, "what the channel holds");
  expect_is(t.c->unacked, 5, "what the connection holds");
  expect_is(sb_channel_give(ch), 1, "the first tag");
  expect_member(m, "when one was given", 5, 4, false);
  expect_is(ch->delivered, 1, "what the channel delivered");
  expect_is(m->delivered, 1, "what the consumer delivered");
  expect_is(member_node(m)->delivered, 1, "what its node says it delivered");
  end_delivery(ch, 1);
  expect(m->starved && ch->woken == NULL, "less than half of its prefetch wakes it while messages wait");
  give_and_drop(ch, 1);
  expect_member(m, "when half of it is free", 3, 3, false);
  expect(!m->starved && ch->woken == m && !ch->several_woken, "half of its prefetch does not wake it");
  sb_channel_resume(ch);
  expect(ch->woken == NULL, "it is still to be woken");
  expect_member(m, "when it went on", 5, 5, false);
  expect_is(ch->unacked, 5, "what the channel holds when it went on");
  for (unsigned i = 0; i < 5; i++) (void)sb_channel_give(ch);
  expect(m->starved && ch->woken == NULL, "it is woken without credit");
  end_delivery(ch, 3);
  expect(!m->starved && ch->woken == m, "it is not woken with any credit when nothing waits");
  sb_channel_resume(ch);
  expect_member(m, "when it got one more", 5, 1, false);
  end_delivery(ch, 4);
  expect(m->starved, "it is woken with less than half of its prefetch while one waits");
  (void)sb_channel_give(ch);
  expect(!m->starved && ch->woken == m, "it is not woken when the last one that waited was given");
}
static void a_prefetch_of_one(void) {
  begin_channels();
  stranger_puts(first_queue, 3);
  sb_member *m = join_channel(ch, first_queue, 1, 0, 0);
  (void)sb_channel_pull(ch);
  expect_member(m, "one", 1, 1, false);
  (void)sb_channel_give(ch);
  expect(m->starved, "it has credit while it holds one");
  end_delivery(ch, 1);
  expect(!m->starved, "it has no credit");
}
/* It holds none, so no prefetch stops it. */
static void an_auto_ack_consumer_has_no_prefetch(void) {
  begin_channels();
  stranger_puts(first_queue, 5);
  sb_member *m = join_channel(ch, first_queue, 2, 0, SB_CONSUME_AUTO_ACK);
  (void)sb_channel_pull(ch);
  expect_member(m, "all", 5, 5, true);
  expect_is(sb_channel_give(ch), 1, "the first tag");
  expect_member(m, "when one was given", 4, 4, true);
  expect_is(ch->unacked, 4, "what the channel holds");
  expect_is(ch->deliveries.given.count, 0, "what is given and held");
  expect_is(ch->deliveries.last_tag, 1, "the last tag");
  expect_is(member_node(m)->delivered, 1, "what its node says it delivered");
}
static void what_is_taken_back_was_not_delivered(void) {
  begin_channels();
  stranger_puts(first_queue, 2);
  sb_member *m = join_channel(ch, first_queue, 2, 0, 0);
  (void)sb_channel_pull(ch);
  uint64_t tag = sb_channel_give(ch);
  sb_channel_take_back(ch, sb_deliveries_find(&ch->deliveries, tag));
  expect_member(m, "when it was taken back", 2, 2, false);
  expect_is(ch->delivered, 0, "what the channel delivered");
  expect_is(m->delivered, 0, "what the consumer delivered");
  expect_is(member_node(m)->delivered, 0, "what its node says it delivered");
  expect_is(ch->deliveries.row.count, 2, "what waits");
}
/* A delivery that ends while it waits in the row. */
static void what_waits_is_dropped(void) {
  begin_channels();
  stranger_puts(first_queue, 2);
  sb_member *m = join_channel(ch, first_queue, 2, 0, 0);
  (void)sb_channel_pull(ch);
  sb_channel_drop(ch, sb_deliveries_at(&ch->deliveries, ch->deliveries.row.first));
  expect_member(m, "when one was dropped", 1, 1, false);
  expect(ch->woken == m, "it is not woken");
}
/* One more delivery of it is over, when it had no credit. */
static void wake_again(sb_member *m) {
  uint64_t tag = sb_deliveries_got(&ch->deliveries, 77, first_queue);
  sb_deliveries_find(&ch->deliveries, tag)->of = m;
  m->starved = true;
  m->held++;
  end_delivery(ch, tag);
}
static void several_are_woken(void) {
  begin_channels();
  stranger_puts(first_queue, 8);
  stranger_puts(second_queue, 8);
  sb_member *a = join_channel(ch, first_queue, 2, 0, 0), *b = join_channel(ch, second_queue, 2, 0, 0);
  (void)sb_channel_pull(ch);
  for (unsigned i = 0; i < 4; i++) (void)sb_channel_give(ch);
  end_delivery(ch, 1);
  end_delivery(ch, 2);
  expect(ch->woken == a && !ch->several_woken, "one consumer counts as several");
  wake_again(a);
  expect(ch->woken == a && !ch->several_woken, "a consumer that is woken twice counts as several");
  end_delivery(ch, 3);
  expect(ch->woken == a && ch->several_woken, "two consumers do not count as several");
  wake_again(a);
  expect(ch->several_woken, "two consumers do not count as several when the first one is woken again");
  wake_again(b);
  expect(ch->woken == a && ch->several_woken, "two consumers do not count as several any more");
  sb_channel_resume(ch);
  expect(ch->woken == NULL && !ch->several_woken, "somebody is still to be woken");
  expect(a->waiting > 0 && b->waiting > 0, "one of them got nothing");
}
/* Each of these has messages at its queue, and has not looked yet: only what comes back may make it pull. */
static void only_what_was_stopped_pulls(void) {
  begin_channels();
  sb_channel *second = open_channel(2);
  sb_member *a = join_channel(ch, first_queue, 4, 0, 0), *b = join_channel(ch, second_queue, 0, 0, 0),
            *c = join_channel(second, first_queue, 0, 0, 0);
  stranger_puts(first_queue, 20);
  stranger_puts(second_queue, 20);
  sb_channel_resume(ch);
  expect_member(a, "a consumer of a channel that was not stopped", 0, 0, true);
  expect_member(b, "another one", 0, 0, true);
  expect(sb_channel_turn(ch), "there is no more");
  expect(a->held + b->held + c->held == 2, "a turn took %u, %u, %u", a->held, b->held, c->held);
  sb_channel_limits_changed(t.c, ch);
  expect_is(a->held + b->held + c->held, 2, "what is held after a limit changed that stopped nothing");
  sb_channel_limits_changed(t.c, NULL);
  expect_is(a->held + b->held + c->held, 2, "what is held after the connection's changed that stopped nothing");
  while (!a->starved) (void)sb_channel_turn(ch);
  uint32_t of_b = b->held, of_c = c->held;
  for (unsigned i = 0; i < of_b; i++) (void)sb_channel_give(ch);
  while (ch->deliveries.row.count > 0) give_and_drop(ch, 1);
  expect(ch->woken == a && !ch->several_woken, "another one was woken");
  sb_channel_resume(ch);
  expect_is(a->held, 4, "what the one that was woken holds");
  expect(b->held <= of_b, "another one of its channel pulled");
  expect(c->held >= of_c, "another channel lost something");
}
/* A consumer that was woken, but may not go on, pulls for none of the others at its queue. */
static void what_may_not_go_on_pulls_for_nobody(void) {
  begin_channels();
  sb_channel *second = open_channel(2);
  sb_member *a = join_channel(ch, first_queue, 0, 0, 0), *c = join_channel(second, first_queue, 0, 0, 0);
  stranger_puts(first_queue, 5);
  ch->limit = 1;
  (void)sb_channel_pull(ch);
  expect(ch->blocked && !a->willing, "the channel is not stopped");
  uint32_t held = c->held;
  stranger_puts(first_queue, 5);
  ch->woken = a;
  sb_channel_resume(ch);
  expect_is(c->held, held, "what another channel holds");
  ch->several_woken = true;
  sb_channel_resume(ch);
  expect_is(c->held, held, "what another channel holds after several were woken");
  expect(!a->willing, "it is willing while its channel is stopped");
}
static void what_goes_on_already_is_not_woken(void) {
  begin_channels();
  stranger_puts(first_queue, 20);
  sb_member *m = join_channel(ch, first_queue, 4, 0, 0);
  (void)sb_channel_pull(ch);
  give_and_drop(ch, 4);
  expect(ch->woken == m, "it is not to be woken");
  expect(sb_channel_turn(ch) || m->held == 1, "its turn brings nothing");
  m->busy = true;
  (void)sb_channel_turn(ch);
  uint32_t held = m->held;
  expect(m->willing && held > 0 && held < 4, "its turns have not begun");
  sb_channel_resume(ch);
  expect_is(m->held, held, "what it holds");
}

/* ---- the limit of a channel ---- */

static void a_channel_has_its_limit(void) {
  begin_channels();
  stranger_puts(first_queue, 20);
  sb_member *a = join_channel(ch, first_queue, 0, 0, 0), *b = join_channel(ch, second_queue, 0, 0, 0);
  ch->limit = 5;
  (void)sb_channel_pull(ch);
  expect(ch->blocked && !t.c->limited, "something else than the channel is stopped");
  expect_member(a, "the one that took all", 5, 5, false);
  expect_member(b, "another one of the channel", 0, 0, false);
  expect(!a->starved && !b->starved, "a consumer is stopped by its own limit");
  expect_is(member_state(b), SB_NODE_NOT_INTERESTED, "the state of another node");
  sb_member *late = join_channel(ch, second_queue, 0, 0, 0);
  expect_member(late, "one that came later", 0, 0, false);
  give_and_drop(ch, 1);
  sb_channel_resume(ch);
  expect(ch->blocked, "less than half of the limit sets the channel going while messages wait");
  give_and_drop(ch, 1);
  sb_channel_resume(ch);
  expect_member(a, "when half of it was free", 5, 5, false);
  expect(ch->blocked, "the channel is not full again");
  for (unsigned i = 0; i < 5; i++) (void)sb_channel_give(ch);
  sb_channel_resume(ch);
  expect_is(ch->unacked, 5, "what the channel holds without credit");
  end_delivery(ch, 3);
  sb_channel_resume(ch);
  expect_member(a, "when any of it was free and nothing waited", 5, 1, false);
  stranger_puts(second_queue, 3);
  sb_channel_set_prefetch(ch, 100);
  expect(!ch->blocked, "the channel is stopped by a limit that was raised");
  expect_member(b, "another one of the channel, when its limit was raised", 2, 2, true);
  expect_member(late, "the one that came later", 1, 1, true);
  expect_is(ch->unacked, 5 + 12 + 3, "what the channel holds");
  sb_channel_set_prefetch(ch, 4);
  expect(ch->blocked && !b->willing, "the channel is not stopped by a limit that was lowered");
  give_and_drop(ch, 10);
  sb_channel_resume(ch);
  expect(ch->blocked, "the channel goes on above its limit");
  sb_channel_set_prefetch(ch, 0);
  expect(!ch->blocked && b->willing, "the channel is stopped without a limit");
}
static void a_row_has_its_length(void) {
  begin_channels();
  stranger_puts(first_queue, 1100);
  sb_member *m = join_channel(ch, first_queue, 0, 0, 0);
  for (unsigned i = 0; i < 3; i++) (void)sb_channel_pull(ch);
  expect_member(m, "after three pulls", 768, 768, true);
  for (unsigned i = 0; i < 2; i++) (void)sb_channel_pull(ch);
  expect_member(m, "a full row", SB_ROW_MAX, SB_ROW_MAX, false);
  expect(ch->blocked, "the channel is not stopped");
  for (unsigned i = 0; i < SB_ROW_MAX / 2 - 1; i++) (void)sb_channel_give(ch);
  sb_channel_resume(ch);
  expect_member(m, "more than half of a row", SB_ROW_MAX, SB_ROW_MAX / 2 + 1, false);
  (void)sb_channel_give(ch);
  sb_channel_resume(ch);
  expect_member(m, "half of a row", 1100, 600, true);
  expect(!ch->blocked, "the channel is stopped");
}
static void a_closed_channel_does_not_go_on(void) {
  begin_channels();
  sb_channel_close_all(ch);
  sb_channel_resume(ch);
  expect(ch->blocked, "it goes on");
}

/* ---- the limit of a connection ---- */

static void a_connection_has_its_limit(void) {
  begin_channels();
  sb_channel *second = open_channel(2);
  stranger_puts(first_queue, 20);
  sb_member *a = join_channel(ch, first_queue, 0, 0, 0), *b = join_channel(second, second_queue, 0, 0, 0),
            *x = join_channel(second, second_queue, 0, 0, 0);
  second->members[x->number] = NULL; /* as if it were another target's */
  add_no_channel(x);
  expect_is(sb_connection_set_prefetch(t.c, 6), SB_OK, "the status");
  (void)sb_channel_pull(ch);
  expect(t.c->limited && !ch->blocked && !second->blocked, "something else than the connection is stopped");
  expect_is(t.c->unacked, 6, "what the connection holds");
  expect_member(a, "the one that took all", 6, 6, false);
  expect_member(b, "one of another channel", 0, 0, false);
  expect_member(x, "what is of no channel", 0, 0, true);
  sb_round_robin_willing(x, false);
  give_and_drop(ch, 2);
  b->s.q = second_queue;
  second->member_count = 0; /* no row of a channel without consumers waits for anything */
  sb_channel_resume(ch);
  expect(t.c->limited && t.c->unacked == 4, "less than half of the limit sets the connection going");
  second->member_count = 1;
  sb_deliveries_reserve(&second->deliveries);
  sb_deliveries_pulled(&second->deliveries, 1, second_queue, b);
  sb_channel_resume(ch);
  expect(t.c->limited && t.c->unacked == 4, "less than half of it sets it going when no row is empty");
  sb_deliveries_drop(&second->deliveries, sb_deliveries_at(&second->deliveries, second->deliveries.row.first));
  stranger_puts(second_queue, 3);
  sb_channel_resume(ch);
  expect_is(t.c->unacked, 6, "what the connection holds when a row was empty");
  expect(a->held + b->held == 6 && !x->willing, "what is of no channel was set going");
}
static void half_of_the_connections_limit(void) {
  begin_channels();
  stranger_puts(first_queue, 20);
  stranger_puts(second_queue, 20);
  sb_channel *second = open_channel(2);
  sb_member *a = join_channel(ch, first_queue, 0, 0, 0), *b = join_channel(second, second_queue, 2, 0, 0);
  (void)sb_channel_pull(second);
  expect_is(sb_connection_set_prefetch(t.c, 6), SB_OK, "the status");
  (void)sb_channel_pull(ch);
  expect_member(a, "the rest of the limit", 4, 4, false);
  give_and_drop(ch, 2);
  sb_channel_resume(ch);
  expect(t.c->limited && t.c->unacked == 4, "a third of the limit sets the connection going");
  give_and_drop(ch, 1);
  sb_channel_resume(ch);
  expect_member(a, "what it took again", 4, 4, false);
  expect_member(b, "what has no credit", 2, 2, false);
  for (unsigned i = 0; i < 4; i++) (void)sb_channel_give(ch);
  sb_channel_resume(ch);
  expect(t.c->limited && t.c->unacked == 6, "a full connection goes on when a row is empty");
  sb_channel_limits_changed(t.c, NULL);
  expect(t.c->limited && t.c->unacked == 6, "a full connection goes on when its limit was set");
  expect_is(sb_connection_set_prefetch(t.c, 8), SB_OK, "the status of a higher limit");
  expect_is(t.c->unacked, 8, "what the connection holds with a higher limit and an empty row");
  expect_is(sb_connection_set_prefetch(t.c, 0), SB_OK, "the status of no limit");
  expect(!t.c->limited, "the connection is stopped without a limit");
  expect_member(a, "what is ready", 17, 13, true);
  expect_is(sb_connection_set_prefetch(t.c, 19), SB_OK, "the status of a limit that is reached");
  expect(t.c->limited && !a->willing, "the connection is not stopped by a limit that was lowered");
  expect_is(sb_channel_set_prefetch(ch, 0), SB_OK, "the status of the channel's limit");
  expect(t.c->limited && !a->willing, "the connection goes on since a channel's limit changed");
}
/* A connection that goes on makes all its channels willing, and then lets them pull. */
static void only_channels_go_on(void) {
  begin_channels();
  sb_member *a = join_channel(ch, first_queue, 0, 0, 0), *x = join_channel(ch, second_queue, 0, 0, 0);
  stranger_puts(first_queue, 3);
  stranger_puts(second_queue, 3);
  ch->members[x->number] = NULL;
  add_no_channel(x);
  t.c->limited = true;
  sb_channel_limits_changed(t.c, NULL);
  expect_member(a, "what went on", 3, 3, true);
  expect_member(x, "what is of no channel", 0, 0, true);
  t.c->limit = 2;
  t.c->limited = true;
  sb_channel_limits_changed(t.c, NULL);
  expect(t.c->limited, "a connection above its limit goes on");
}

/* ---- tables ---- */

/* The member behind the table is ready to be seen: willing, told, beside a message. */
static void the_table_has_an_end(void) {
  begin_channels();
  sb_channel *second = open_channel(2);
  sb_member *a = join_channel(ch, first_queue, 0, 0, 0), *x = join_channel(second, second_queue, 0, 0, 0);
  const sb_queue *overlooked = NULL;
  stranger_puts(second_queue, 1);
  second->members[x->number] = NULL;
  put_behind(ch, x);
  x->busy = false;
  expect(!sb_channel_wants_work(ch), "what is behind the table wants work");
  SB_STORE(&member_node(x)->flagged, 0, SB_RELAXED);
  expect_is(sb_channel_overlooked(ch, &overlooked), 0, "what is overlooked");
  t.c->limit = 1;
  t.c->unacked = 1;
  sb_channel_limits_changed(t.c, ch);
  expect(!a->willing && x->willing, "what is behind the table was stopped by the connection");
  t.c->unacked = 0;
  sb_channel_limits_changed(t.c, ch);
  expect_member(x, "what is behind the table when the connection goes on", 0, 0, true);
  ch->limit = 1;
  ch->unacked = 1;
  sb_channel_limits_changed(t.c, ch);
  expect(!a->willing && x->willing, "what is behind the table was stopped by the channel");
  sb_round_robin_willing(x, false);
  ch->unacked = 0;
  sb_channel_limits_changed(t.c, ch);
  expect(a->willing && !x->willing, "what is behind the table was made willing");
}

static const test_case CASES[] = {
    {"channel: prefetch", "a consumer holds as much as its prefetch, and goes on with half",
     a_consumer_has_its_prefetch},
    {"channel: one", "a prefetch of one is one message", a_prefetch_of_one},
    {"channel: auto-ack", "a prefetch does not stop an auto-ack consumer", an_auto_ack_consumer_has_no_prefetch},
    {"channel: back", "what is taken back was not delivered", what_is_taken_back_was_not_delivered},
    {"channel: dropped", "what is dropped does not wait any more", what_waits_is_dropped},
    {"channel: several", "several consumers that are woken all go on", several_are_woken},
    {"channel: stopped", "only a consumer that was stopped pulls", only_what_was_stopped_pulls},
    {"channel: may not", "a consumer that may not go on pulls for nobody", what_may_not_go_on_pulls_for_nobody},
    {"channel: goes on", "a consumer that goes on already does not pull", what_goes_on_already_is_not_woken},
    {"channel: limit", "a channel holds as much as its limit, and goes on with half", a_channel_has_its_limit},
    {"channel: row", "a row is not longer than it may be", a_row_has_its_length},
    {"channel: closed", "a closed channel does not go on", a_closed_channel_does_not_go_on},
    {"channel: connection", "a connection holds as much as its limit", a_connection_has_its_limit},
    {"channel: half", "a connection goes on with half of its limit, or for an empty row",
     half_of_the_connections_limit},
    {"channel: channels", "only channels go on with their connection", only_channels_go_on},
    {"channel: table", "no member behind the end of the table is touched", the_table_has_an_end},
};
SUBJECT(CASES)
