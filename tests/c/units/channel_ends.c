// SPDX-License-Identifier: Apache-2.0
/* sb_channel: consumers that are added and removed, and the end of a channel. */
#include <string.h>

#include "calls.h"
#include "channels.h"
#include "heap.h"
#include "meanwhile.h"
#include "sb_wait.h"

#define UNTOUCHED 77u

static bool flagged(const sb_member *m) { return SB_LOAD(&member_node(m)->flagged, SB_RELAXED) != 0; }
static bool nothing_is_dealt(void) {
  for (unsigned i = 0; i < SB_ROUND_ROBINS; i++) {
    if (t.c->round_robins[i] != NULL) return false;
  }
  return true;
}
/* The queue of the handle seems to be deleted, or not any more. */
static void flip(sb_queue *at) { at->state ^= UINT64_C(1) << 63; }
/* A consumer of the other connection, with credit for one. */
static sb_member *strangers_consumer(void) {
  sb_status status;
  uint32_t number;
  sb_channel *of = sb_channel_open(stranger.c, 1, &status);
  if (sb_channel_consume(of, strangers_queue, 1, 0, 0, &number) != SB_OK) die("sb_channel_consume", 0);
  return of->members[number];
}
/* With how many deliveries: one that was not given counts as if it had never been pulled. */
static void expect_stranger_gets(uint64_t id, unsigned deliveries, const char *what) {
  expect_is(get(&stranger, strangers_queue, last_record, true), id, what);
  expect_is(((const sb_record *)(const void *)last_record)->delivery_count, deliveries, what);
}

/* ---- one that comes ---- */

static void a_consumer_comes(void) {
  begin_channels();
  expect(nothing_is_dealt(), "something is dealt before the first");
  sb_member *a = join_channel(ch, first_queue, 0, 0, 0);
  expect_is(first_queue->busy, 1, "what the handle is used by");
  expect_is(ch->member_count, 1, "consumers of the channel");
  expect(ch->members[a->number] == a, "it is not in its place");
  expect_member(a, "beside nothing", 0, 0, true);
  expect(!a->busy && !flagged(a), "it has a turn beside nothing");
  stranger_puts(second_queue, 1);
  sb_member *b = join_channel(ch, second_queue, 0, 0, 0);
  expect_is(ch->member_count, 2, "consumers of the channel when another one came");
  expect(b->willing && b->busy && flagged(b), "it has no turn beside a message");
  ch->limit = ch->unacked = 1;
  sb_channel_limits_changed(t.c, ch);
  sb_member *c = join_channel(ch, second_queue, 0, 0, 0);
  expect_member(c, "in a channel that is stopped", 0, 0, false);
  expect(!c->busy && !flagged(c), "it has a turn in a channel that is stopped");
}

/* ---- one that goes ---- */

static void a_consumer_goes(void) {
  begin_channels();
  sb_member *a = join_channel(ch, first_queue, 0, 0, 0), *b = join_channel(ch, first_queue, 0, 0, 0);
  stranger_puts(first_queue, 6);
  for (unsigned i = 0; i < 6; i++) (void)sb_channel_turn(ch);
  expect_member(a, "half of all", 3, 3, true);
  (void)sb_channel_give(ch);
  (void)sb_channel_give(ch);
  SB_STORE(&member_node(a)->flagged, 0, SB_RELAXED);
  sb_node_shm *node = member_node(a);
  uint32_t number = a->number;
  sb_channel_end_member(a);
  expect(a->ended && !a->willing && a->rank == NULL, "it is not ended");
  expect_is(a->held, 1, "what it holds: what was given");
  expect_is(a->waiting, 0, "what waits for it");
  expect(ch->members[number] == NULL && ch->member_count == 1, "it is still a member");
  expect_is(first_queue->busy, 1, "what the handle is used by");
  expect_is(sb_node_state(SB_LOAD(&node->word, SB_RELAXED)), SB_NODE_REMOVED, "the state of its node");
  expect_is(ch->unacked, 4, "what the channel holds");
  expect_is(t.c->unacked, 4, "what the connection holds");
  expect_is(ch->deliveries.row.count, 2, "what waits in the row");
  expect_member(b, "another one", 3, 2, true);
  expect_stranger_gets(3, 1, "the first one that was not given");
  expect_stranger_gets(5, 1, "the second one that was not given");
  SB_STORE(&node->unacked, UNTOUCHED, SB_RELAXED); /* it may be another one's by now */
  end_delivery(ch, 1);
  expect_is(SB_LOAD(&node->unacked, SB_RELAXED), UNTOUCHED, "the node of what ended");
  expect_is(ch->unacked, 3, "what the channel holds when the last one of it was over");
  sb_channel_end_member(b);
  expect(nothing_is_dealt(), "something is dealt without a consumer");
  expect_is(first_queue->busy, 0, "what the handle is used by at last");
}
static void the_baton_goes_on(void) {
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 0, 0, 0), *another = strangers_consumer();
  stranger_puts(first_queue, 1);
  expect_is(member_state(m), SB_NODE_NOTIFIED, "the state of the one that was told");
  expect_is(member_state(another), SB_NODE_INTERESTED, "the state of another one");
  sb_channel_end_member(m);
  expect_is(member_state(another), SB_NODE_NOTIFIED, "the state of another one when the first one ended");
}
/* What a consumer held counts no more: others of its channel go on. */
static void others_go_on(void) {
  begin_channels();
  sb_member *a = join_channel(ch, first_queue, 0, 0, 0), *b = join_channel(ch, second_queue, 0, 0, 0);
  stranger_puts(first_queue, 2);
  stranger_puts(second_queue, 1);
  ch->limit = 2;
  ch->rotation = 0;
  (void)sb_channel_pull(ch);
  expect_member(b, "when the channel is full", 0, 0, false);
  sb_channel_end_member(a);
  expect_member(b, "when another one ended", 1, 1, true);
}
static void who_was_to_be_woken(void) {
  begin_channels();
  sb_member *a = join_channel(ch, first_queue, 1, 0, 0), *b = join_channel(ch, second_queue, 1, 0, 0),
            *c = join_channel(ch, second_queue, 1, 0, 0);
  stranger_puts(first_queue, 3);
  (void)sb_channel_turn(ch);
  (void)sb_channel_give(ch);
  end_delivery(ch, 1);
  expect(ch->woken == a, "it is not to be woken");
  sb_channel_end_member(c);
  expect_member(a, "when another one ended", 1, 1, false);
  stranger_puts(second_queue, 1);
  (void)sb_channel_turn(ch);
  (void)sb_channel_give(ch);
  sb_unacked *last = sb_deliveries_at(&ch->deliveries, ch->deliveries.given.last);
  last->of->held++; /* one of another life keeps it */
  uint64_t tag = last->tag;
  while (last != NULL && last->of != b) {
    (void)sb_channel_give(ch);
    last = sb_deliveries_at(&ch->deliveries, ch->deliveries.given.last);
  }
  if (last == NULL) die("giving", (int)tag);
  b->held = 2;
  b->prefetch = 2;
  sb_channel_drop(ch, last);
  expect(ch->woken == b, "the other one is not to be woken");
  sb_channel_end_member(b);
  expect(ch->woken == NULL && !b->willing, "what ended is to be woken");
}

/* ---- one whose queue was deleted ---- */

static void what_was_cancelled_is_reported_once(void) {
  begin_channels();
  uint32_t number = UNTOUCHED;
  sb_member *a = join_channel(ch, first_queue, 0, 0, 0), *b = join_channel(ch, first_queue, 0, 0, 0),
            *c = join_channel(ch, second_queue, 0, 0, 0);
  expect(!sb_channel_report(ch, &number) && number == UNTOUCHED, "one is reported where none was cancelled");
  stranger_puts(first_queue, 2);
  (void)sb_channel_turn(ch);
  (void)sb_channel_turn(ch);
  (void)sb_channel_give(ch);
  (void)sb_channel_give(ch);
  expect_is(sb_channel_set_prefetch(ch, 2), SB_OK,
            "the status of a limit"); /* which stops both while one is behind the other */
  expect_member(a, "what it holds", 1, 0, false);
  expect(!sb_channel_arm(ch), "there is something before");
  flip(first_queue);
  a->busy = b->busy = true;
  ch->rotation = b->number;
  (void)sb_channel_turn(ch);
  expect(ch->cancelled_first == b && b->next == a && a->next == NULL && ch->cancelled_last == a,
         "they were not cancelled in the order of their turns");
  expect(a->ended && b->ended && a->unreported && b->unreported, "they are not ended, and to be reported");
  expect(ch->ready && !ch->armed, "the channel is not handed over");
  expect(sb_channel_has_something(ch), "there is nothing to tell");
  expect_is(ch->member_count, 1, "consumers that are left");
  flip(second_queue);
  expect_is(sb_channel_pull(ch), SB_OK, "the status of a pull that cancels");
  expect(a->next == c && ch->cancelled_last == c && c->next == NULL, "the last one is not behind the others");
  end_delivery(ch, 1); /* of what was not reported yet */
  end_delivery(ch, 2);
  const uint32_t numbers[] = {b->number, a->number, c->number};
  for (unsigned i = 0; i < 3; i++) {
    expect(ch->cancelled_last == c, "another one is the last");
    expect(sb_channel_report(ch, &number), "one is not reported");
    expect_is(number, numbers[i], "the number that is reported");
  }
  expect(ch->cancelled_first == NULL && ch->cancelled_last == NULL, "one is left to report");
  expect(!sb_channel_report(ch, &number), "one too many is reported");
  expect(!sb_channel_has_something(ch), "there is something to tell");
  flip(first_queue);
  sb_member *d = join_channel(ch, first_queue, 0, 0, 0);
  flip(first_queue);
  d->busy = true;
  (void)sb_channel_turn(ch);
  expect(ch->cancelled_first == d && ch->cancelled_last == d, "one that came later is not cancelled");
  flip(first_queue);
  flip(second_queue);
}
/* One without credit, and one that takes foreign messages only, find the end of their queue, too. */
static void what_has_no_credit_is_cancelled(void) {
  begin_channels();
  uint32_t number;
  sb_member *a = join_channel(ch, first_queue, 1, 0, 0);
  stranger_puts(first_queue, 1);
  (void)sb_channel_turn(ch);
  a->busy = true;
  flip(first_queue);
  expect(!sb_channel_turn(ch), "there is more of a deleted queue");
  expect(sb_channel_report(ch, &number), "it is not cancelled");
  flip(first_queue);
}

/* ---- the end ---- */

static sb_channel_wait waits[2];
static void a_channel_is_closed(void) {
  static const uint32_t nobody = 0;
  begin_channels();
  sb_half *of_nobody = &((sb_node_shm *)sb_slot_at(t.b, 0))->wake;
  uint32_t was = SB_LOAD(of_nobody, SB_RELAXED);
  sb_channel *second = open_channel(2);
  sb_member *m = join_channel(ch, first_queue, 0, 0, 0), *late = join_channel(ch, first_queue, 0, 0, 0),
            *another = join_channel(second, second_queue, 0, 0, 0);
  stranger_puts(first_queue, 4);
  stranger_puts(second_queue, 9);
  t.c->limit = 4;
  for (unsigned i = 0; i < 4; i++) (void)sb_channel_turn(ch);
  expect(m->held == 2 && late->held == 2 && t.c->limited, "the connection is not stopped");
  (void)sb_channel_give(ch);
  (void)sb_channel_give(ch);
  waits[0] = (sb_channel_wait){.next = &waits[1], .node = &nobody};
  waits[1] = (sb_channel_wait){.node = &t.c->io_node};
  ch->waits = waits;
  ch->armed = true;
  arm_wake(t.c->io_node);
  SB_STORE(of_nobody, SB_WAKE_ARMED, SB_RELAXED);
  note_order(&ch->closed);
  sb_channel_close_all(ch);
  int order = noted_order();
  if (has_steps()) expect_is(order, SB_SEQ_CST, "the order of the store before the rings");
  expect_is(SB_LOAD(of_nobody, SB_RELAXED), SB_WAKE_ARMED, "the wake word of nobody");
  SB_STORE(of_nobody, was, SB_RELAXED);
  expect(was_rung(t.c->io_node), "a call that waits was not rung");
  expect_is(ch->closed, 1, "whether it is closed");
  expect(!ch->armed && !ch->ready, "it is to be handed over");
  expect_is(ch->member_count, 0, "its consumers");
  expect_is(ch->unacked, 0, "what it holds");
  expect(ch->deliveries.slots == NULL && ch->deliveries.room == 0, "it has memory for deliveries");
  expect(!ch->target.listed, "it is still a target");
  expect(!t.c->limited || t.c->unacked == 4, "the connection did not go on");
  expect_member(another, "one of another channel", 4, 4, false);
  expect_stranger_gets(1, 2, "the first one that was given");
  expect_stranger_gets(2, 2, "the second one that was given");
  expect_stranger_gets(3, 1, "the first one that was not given");
  expect_stranger_gets(4, 1, "the second one that was not given");
  ch->armed = true;
  ch->waits = &waits[1];
  arm_wake(t.c->io_node);
  sb_channel_close_all(ch);
  expect(ch->armed && !was_rung(t.c->io_node), "it was closed twice");
}
static void what_is_to_be_told_goes_with_it(void) {
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 0, 0, 0), *k = join_channel(ch, first_queue, 0, 0, 0);
  flip(first_queue);
  m->busy = k->busy = true;
  ch->armed = true;
  (void)sb_channel_turn(ch);
  expect(ch->ready && t.c->ready_first == ch, "it is not handed over");
  sb_channel_close_all(ch);
  expect(!ch->ready && t.c->ready_first == NULL && t.c->ready_last == NULL, "it is handed over after its end");
  expect(ch->cancelled_first == NULL, "there is one to report");
  flip(first_queue);
}
/* The others of its connection are left alone, unless it was what stopped them. */
static void a_channel_that_stopped_nobody(void) {
  begin_channels();
  sb_channel *second = open_channel(2), *third = open_channel(3);
  sb_member *m = join_channel(second, second_queue, 0, 0, 0);
  (void)join_channel(ch, first_queue, 0, 0, 0);
  (void)join_channel(third, first_queue, 0, 0, 0);
  stranger_puts(second_queue, 5);
  sb_channel_close_all(ch);
  expect_member(m, "one that has not looked yet", 0, 0, true);
  t.c->limit = 3;
  (void)sb_channel_pull(second);
  expect_member(m, "one that used up the limit", 3, 3, false);
  sb_channel_close_all(third);
  expect(t.c->limited, "the connection goes on");
  expect_member(m, "one that used up the limit, when another channel ended", 3, 3, false);
}

/* ---- memory ---- */

static void come_and_go(void) {
  uint32_t number;
  sb_channel *of = open_channel(9);
  sb_member *a = join_channel(of, first_queue, 2, 0, 0), *b = join_channel(of, first_queue, 2, 0, 0),
            *c = join_channel(of, first_queue, 2, 0, 0), *d = join_channel(of, first_queue, 2, 0, 0);
  stranger_puts(first_queue, 8);
  (void)sb_channel_pull(of);
  for (unsigned i = 0; i < 4; i++) (void)sb_channel_give(of);
  sb_channel_end_member(a); /* holds one */
  end_delivery(of, 1);
  sb_channel_end_member(b); /* holds one until the channel is closed */
  flip(first_queue);
  c->busy = d->busy = true;
  (void)sb_channel_turn(of); /* both are to be reported, and hold one */
  flip(first_queue);
  if (!sb_channel_report(of, &number)) die("sb_channel_report", 0);
  sb_channel_free(of);
  while (get(&stranger, strangers_queue, last_record, true) != 0) {
  }
}
static void pull_and_close(void) {
  sb_channel *of = open_channel(9);
  sb_member *a = join_channel(of, first_queue, 40, 0, 0);
  stranger_puts(first_queue, 40);
  (void)sb_channel_pull(of);
  (void)sb_channel_end_member(a); /* holds none */
  (void)join_channel(of, first_queue, 40, 0, 0);
  (void)sb_channel_pull(of);
  sb_channel_free(of);
  while (get(&stranger, strangers_queue, last_record, true) != 0) {
  }
}
static void memory_goes_back(void) {
  begin_channels();
  expect_is(heap_kept_by(come_and_go), 0, "what is kept of consumers");
  expect_is(heap_kept_by(pull_and_close), 0, "what is kept of a channel");
}

/* The row of a channel holds all that the connection may, of a queue that is deleted. */
static void what_was_cancelled_stops_nobody(void) {
  for (unsigned pulls = 0; pulls < 2; pulls++) {
    if (pulls == 0) begin_channels();
    sb_channel *other = open_channel(2);
    sb_member *a = join_channel(ch, first_queue, 0, 0, 0), *b = join_channel(other, second_queue, 0, 0, 0);
    t.c->limit = 2;
    stranger_puts(first_queue, 2);
    (void)sb_channel_pull(ch);
    stranger_puts(second_queue, 1);
    expect(t.c->limited && !b->willing && a->waiting == 2, "the connection is not full");
    flip(first_queue);
    SB_STORE(&member_node(a)->flagged, 1, SB_RELAXED);
    if (pulls == 0) {
      (void)sb_channel_turn(ch);
    } else {
      (void)sb_channel_pull(ch);
    }
    expect(a->ended && !t.c->limited, "the connection is limited by what was cancelled");
    expect_member(b, "one of another channel", 1, 1, true);
    flip(first_queue);
    give_and_drop(other, b->waiting);
    sb_channel_free(other);
    while (get(&stranger, strangers_queue, last_record, true) != 0) {
    }
  }
}

static const test_case CASES[] = {
    {"channel_ends: comes", "a consumer that comes beside a message has a turn", a_consumer_comes},
    {"channel_ends: goes", "what a consumer pulled goes back, what was given stays", a_consumer_goes},
    {"channel_ends: baton", "a consumer that ends passes the baton", the_baton_goes_on},
    {"channel_ends: others", "what a consumer held counts no more", others_go_on},
    {"channel_ends: woken", "a consumer that ended is not woken", who_was_to_be_woken},
    {"channel_ends: cancelled", "a consumer that was cancelled is reported once", what_was_cancelled_is_reported_once},
    {"channel_ends: no credit", "a consumer without credit is cancelled", what_has_no_credit_is_cancelled},
    {"channel_ends: credit", "a consumer that is cancelled gives its credit to the other channels",
     what_was_cancelled_stops_nobody},
    {"channel_ends: closed", "a channel that is closed gives all back", a_channel_is_closed},
    {"channel_ends: told", "a closed channel has nothing to tell", what_is_to_be_told_goes_with_it},
    {"channel_ends: alone", "a closed channel leaves the others alone", a_channel_that_stopped_nobody},
    {"channel_ends: memory", "memory goes back to the process", memory_goes_back},
};
SUBJECT(CASES)
