// SPDX-License-Identifier: Apache-2.0
/* sb_channel: turns of the IO thread, pulls, the consumer that gets a message, and the hand-over of channels. */
#include "calls.h"
#include "channels.h"
#include "meanwhile.h"
#include "sb_disposal.h"
#include "sb_nodes.h"
#include "sb_notify.h"
#include "sb_wait.h"

/* The member was not notified, whatever lies in its queue. */
static void untell(sb_member *m) {
  (void)sb_node_move(t.c, m->s.node, SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED);
  SB_STORE(&member_node(m)->flagged, 0, SB_RELAXED);
  m->busy = false;
}
static bool flagged(const sb_member *m) { return SB_LOAD(&member_node(m)->flagged, SB_RELAXED) != 0; }
static void park(sb_member *m) {
  if (!sb_node_move(t.c, m->s.node, SB_IN(SB_NODE_INTERESTED) | SB_IN(SB_NODE_NOTIFIED), SB_NODE_NOT_INTERESTED))
    die("parking", (int)member_state(m));
}

/* ---- hand-over ---- */

static void expect_ready(const char *what, const sb_channel *first, const sb_channel *last) {
  expect(t.c->ready_first == first && t.c->ready_last == last, "%s: other channels are first or last", what);
  expect_is(t.c->ready, first != NULL, what);
  expect(first == NULL || (first->previous_ready == NULL && last->next_ready == NULL), "%s: the list has no end", what);
}
static void a_channel_is_handed_over_once(void) {
  begin_channels();
  if (declare(&t, "r", (sb_settings)FREELY) != SB_OK) die("declare", 0);
  sb_channel *b = open_channel(2), *c = open_channel(3);
  sb_queue *third = open_queue(&t, "r");
  (void)join_channel(ch, first_queue, 0, 0, 0);
  (void)join_channel(b, second_queue, 0, 0, 0);
  (void)join_channel(c, third, 0, 0, 0);
  uint32_t io = t.c->io_node;
  expect(!sb_channel_has_something(ch), "there is something");
  expect(!sb_channel_arm(ch) && !sb_channel_arm(b) && !sb_channel_arm(c), "there is something to give");
  arm_wake(io);
  stranger_puts(first_queue, 1);
  arm_wake(io);
  note_order(&t.c->ready);
  (void)sb_channel_pull(ch);
  int order = noted_order();
  if (has_steps()) expect_is(order, SB_SEQ_CST, "the order of the store before the ring");
  expect(sb_channel_has_something(ch), "there is nothing");
  expect(!ch->armed && ch->ready, "it is not handed over");
  expect_ready("the first", ch, ch);
  expect(was_rung(io), "the IO thread sleeps");
  stranger_puts(second_queue, 1);
  (void)sb_channel_pull(b);
  expect_ready("the second", ch, b);
  expect(ch->next_ready == b && b->previous_ready == ch, "they are not in a row");
  put(&t, third, 99);
  t.c->taking_turns = true;
  arm_wake(io);
  (void)sb_channel_pull(c);
  expect(!was_rung(io), "the IO thread was rung by itself");
  t.c->taking_turns = false;
  expect_ready("the third", ch, c);
  sb_channel_unready(b);
  expect(!b->ready, "it is still ready");
  expect(ch->next_ready == c && c->previous_ready == ch, "the others are not in a row");
  expect_ready("without the second", ch, c);
  sb_channel_unready(b);
  sb_channel_unready(open_channel(4));
  expect_ready("without it once more, and without one that never was", ch, c);
  sb_channel_unready(ch);
  expect_ready("without the first", c, c);
  ch->armed = true;
  stranger_puts(first_queue, 1);
  (void)sb_channel_pull(ch);
  expect_ready("the first once more", c, ch);
  expect(c->next_ready == ch && ch->previous_ready == c, "it is not behind the others");
  sb_channel_unready(ch);
  expect_ready("without the last", c, c);
  sb_channel_unready(c);
  expect_ready("none", NULL, NULL);
  stranger_puts(first_queue, 1);
  (void)sb_channel_pull(ch);
  expect_ready("what nobody asked for", NULL, NULL);
}

/* ---- foreign messages ---- */

static void foreign_messages_have_their_own_way(void) {
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 2, 0, SB_CONSUME_NO_LOCAL);
  expect_is(member_state(m), SB_NODE_NON_ACQUIRING, "the state of its node");
  expect_member(m, "at first", 0, 0, true);
  put(&t, first_queue, 77);
  expect_is(sb_channel_pull(ch), SB_OK, "the status of a pull of nothing");
  expect(!m->busy, "it is busy with a message of its own connection");
  stranger_puts(first_queue, 3);
  const sb_queue *overlooked = NULL;
  m->busy = false;
  expect_is(sb_channel_overlooked(ch, &overlooked), 0, "what is overlooked");
  (void)sb_channel_pull(ch);
  expect_member(m, "when its prefetch is used up", 2, 2, false);
  expect_is(member_state(m), SB_NODE_NOT_INTERESTED, "the state of its node without credit");
  expect(!m->busy, "it is busy without credit");
  m->busy = true;
  expect(!sb_channel_turn(ch), "there is more without credit");
  expect_member(m, "after a turn without credit", 2, 2, false);
  give_and_drop(ch, 2);
  sb_channel_resume(ch);
  expect_member(m, "all that is foreign", 1, 1, true);
  expect_is(member_state(m), SB_NODE_NON_ACQUIRING, "the state of its node when it went on");
  SB_STORE(&member_node(m)->flagged, 0, SB_RELAXED);
  (void)sb_node_move(t.c, m->s.node, SB_IN(SB_NODE_NON_ACQUIRING), SB_NODE_NOT_INTERESTED);
  (void)sb_channel_wants_work(ch);
  expect_is(member_state(m), SB_NODE_NON_ACQUIRING, "the state of its node after a look");
}

/* ---- pulls ---- */

static void what_a_pull_cannot_do(void) {
  begin_channels();
  stranger_puts(second_queue, 2);
  sb_member *full = join_channel(ch, second_queue, 1, 0, 0);
  (void)sb_channel_pull(ch);
  sb_member *m = join_channel(ch, first_queue, 0, 0, 0);
  stranger_puts(first_queue, 3);
  untell(m);
  untell(full);
  uint32_t rotation = ch->rotation;
  spoil_holdings();
  expect_is(sb_channel_pull(ch), SB_OK, "the status of a pull that is told of damage");
  expect_is(ch->rotation, rotation + 1, "where the next pull begins");
  expect(!m->busy && !flagged(m), "it is tried again beside damage");
  m->busy = true;
  expect(!sb_channel_turn(ch) && !m->busy && !t.c->must_grow, "its turn is tried again beside damage");
  expect_is(ch->rotation, rotation + 2, "where the next turn begins");
  mend_holdings();
  leave_no_place(ch);
  for (unsigned i = 0; i < 4; i++) {
    untell(m);
    expect_is(sb_channel_pull(ch), SB_SYSTEM, "the status without memory of the process");
    expect(m->busy && flagged(m), "it is not tried again without memory of the process");
    expect(!full->busy && !flagged(full), "what has no credit is tried again");
  }
  mend_places(ch);
  leave_no_holding(true);
  untell(m);
  expect_is(sb_channel_pull(ch), SB_GROW, "the status when the broker is to grow");
  expect(m->busy && flagged(m) && !t.c->must_grow, "it is not tried again when the broker grew");
  expect(sb_channel_turn(ch) && m->busy && t.c->must_grow, "the IO thread does not ask for more");
  t.c->must_grow = false;
  leave_no_holding(false);
  untell(m);
  expect_is(sb_channel_pull(ch), SB_NO_MEMORY, "the status without memory of the broker");
  expect(m->busy && flagged(m), "it is not tried again without memory of the broker");
  expect(!sb_channel_turn(ch) && !m->busy && !t.c->must_grow, "the IO thread asks for more than there may be");
  expect_member(m, "after all that", 0, 0, true);
}
static void a_pull_has_an_end(void) {
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 0, 0, 0);
  stranger_puts(first_queue, 300);
  untell(m);
  (void)sb_channel_pull(ch);
  expect_member(m, "after the first pull", 256, 256, true);
  expect(m->busy && flagged(m), "the IO thread does not go on");
  untell(m);
  (void)sb_channel_pull(ch);
  expect_member(m, "after the second pull", 300, 300, true);
  expect(!m->busy && !flagged(m), "the IO thread goes on with nothing");
}

/* ---- turns ---- */

static void a_turn_takes_one_for_each_that_was_told(void) {
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 0, 0, 0), *k = join_channel(ch, second_queue, 0, 0, 0);
  expect(!sb_channel_turn(ch), "there is more when nobody was told");
  stranger_puts(first_queue, 3);
  expect(flagged(m) && member_state(m) == SB_NODE_NOTIFIED, "it was not told");
  ch->rotation = 0;
  SB_STORE(&member_node(k)->flagged, 1, SB_RELAXED); /* which finds nothing, after the first one found something */
  expect(sb_channel_turn(ch), "there is no more after one");
  expect(!flagged(m) && !flagged(k), "a flag was not cleared");
  expect_member(m, "after a turn", 1, 1, true);
  expect(m->busy && !k->busy, "the wrong one goes on");
  m->busy = false;
  (void)sb_channel_turn(ch);
  expect_member(m, "after a turn that its state alone told it of", 2, 2, true);
  untell(m);
  expect(!sb_channel_turn(ch), "there is more for one that was not told");
  expect_member(m, "when it was not told", 2, 2, true);
}
/* I61: a node that was parked while its process was stopped is interested again, and then it looks once more. */
static void a_parked_one_goes_on(void) {
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 1, 0, 0), *k = join_channel(ch, first_queue, 0, 0, 0);
  park(k);
  k->busy = true;
  expect(sb_channel_turn(ch) && k->busy, "it does not look once more");
  expect_is(member_state(k), SB_NODE_INTERESTED, "its state");
  expect(!sb_channel_turn(ch) && !k->busy, "it looks for ever");
  stranger_puts(first_queue, 1);
  (void)sb_channel_turn(ch);
  expect_member(m, "the first one", 1, 1, false);
  SB_STORE(&member_node(m)->flagged, 1, SB_RELAXED);
  expect(!sb_channel_turn(ch) && !m->busy, "what has no credit looks once more");
  expect_is(member_state(m), SB_NODE_NOT_INTERESTED, "the state of what has no credit");
  stranger_puts(first_queue, 1);
  park(k);
  k->busy = true;
  expect(sb_channel_turn(ch), "there is no more after one");
  expect_member(k, "a parked one that found something", 1, 1, true);
  expect_is(member_state(k), SB_NODE_NOT_INTERESTED, "its state while it finds something");
}

/* ---- whose message it is ---- */

/* It was told, and kept others from being told: its node is INTERESTED when there is nothing for the one whose turn it is. */
static void the_told_one_steps_back(void) {
  begin_channels();
  sb_member *a = join_channel(ch, first_queue, 0, 0, 0), *b = join_channel(ch, first_queue, 0, 0, 0);
  (void)sb_node_move(t.c, b->s.node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED);
  expect(sb_round_robin_next(b->rank->deal) == a, "it is not the turn of the other one");
  expect(!sb_channel_turn(ch), "there is more");
  expect_is(member_state(b), SB_NODE_INTERESTED, "the state of the one that was told");
  expect_is(member_state(a), SB_NODE_INTERESTED, "the state of the other one");
  expect(a->held == 0 && b->held == 0 && !b->busy, "there was something");
}
/* A rescue takes although a better consumer exists; it goes to the one whose turn it is. */
static void a_rescue_goes_to_whose_turn_it_is(void) {
  sb_status status;
  uint32_t number;
  begin_channels();
  sb_channel *better = sb_channel_open(stranger.c, 1, &status);
  if (sb_channel_consume(better, strangers_queue, 1, 5, 0, &number) != SB_OK) die("sb_channel_consume", 0);
  sb_member *a = join_channel(ch, first_queue, 0, 0, 0), *b = join_channel(ch, first_queue, 0, 0, 0);
  stranger_puts(first_queue, 1);
  uint32_t flags_a = member_node(a)->flags, flags_b = member_node(b)->flags;
  b->busy = true;
  expect(!sb_channel_turn(ch), "there is more beside a better one");
  expect_member(a, "beside a better one", 0, 0, true);
  expect_is(member_node(a)->flags, flags_a, "its flags");
  SB_STORE(&member_node(b)->flags, flags_b | SB_NODE_RESCUED, SB_RELAXED);
  b->busy = true;
  (void)sb_channel_turn(ch);
  expect_member(a, "the one whose turn it was", 1, 1, true);
  expect_member(b, "the one that was told", 0, 0, true);
  expect_is(member_node(a)->flags, flags_a, "the flags of the one whose turn it was");
  expect_is(member_node(b)->flags, flags_b, "the flags of the one that was told");
}
static sb_member *whose, *told;
static unsigned attempts;
static void tell_again(void) {
  attempts++;
  (void)sb_node_move(t.c, told->s.node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED);
  meanwhile(&member_node(whose)->flags, AFTER_LOAD, 1, tell_again);
}
/* The one whose turn it is gives way to a better one each time, and another process tells the first one anew. */
static void attempts_have_an_end(void) {
  sb_status status;
  uint32_t number;
  begin_channels();
  sb_channel *better = sb_channel_open(stranger.c, 1, &status);
  if (sb_channel_consume(better, strangers_queue, 1, 5, 0, &number) != SB_OK) die("sb_channel_consume", 0);
  whose = join_channel(ch, first_queue, 0, 0, 0);
  told = join_channel(ch, first_queue, 0, 0, 0);
  stranger_puts(first_queue, 1);
  if (!has_steps()) return;
  told->busy = true;
  meanwhile(&member_node(whose)->flags, AFTER_LOAD, 1, tell_again);
  bool more = sb_channel_turn(ch);
  meanwhile(NULL, AFTER_LOAD, 1, NULL);
  expect(!more, "there is more for one that gave way");
  expect_is(attempts, SB_MAX_RETRIES, "how often it tried");
}
/* Of a queue with a single active consumer. */
static void what_stands_by_is_not_willing(void) {
  begin_channels();
  sb_settings single = FREELY;
  single.flags = SB_QUEUE_SINGLE_ACTIVE;
  if (declare(&t, "single", single) != SB_OK) die("declare", 0);
  sb_queue *at = open_queue(&t, "single");
  sb_member *a = join_channel(ch, at, 0, 0, 0), *b = join_channel(ch, at, 0, 0, 0);
  expect(a->willing && !b->willing, "the first one is not the active one");
  expect_is(member_state(b), SB_NODE_NOT_INTERESTED, "the state of what stands by");
  sb_channel_resume(ch);
  ch->limit = 1;
  ch->unacked = 1;
  sb_channel_limits_changed(t.c, ch);
  ch->unacked = 0;
  sb_channel_limits_changed(t.c, ch);
  expect(a->willing && !b->willing, "what stands by is willing");
  sb_channel_end_member(a);
  put(&t, at, 7);
  (void)sb_channel_turn(ch);
  expect_member(b, "when it is active", 1, 1, false);
}

/* ---- looks that believe no flag ---- */

static void what_wants_work(void) {
  begin_channels();
  sb_member *gone = join_channel(ch, second_queue, 0, 0, 0), *m = join_channel(ch, first_queue, 0, 0, 0);
  sb_channel_end_member(gone);
  expect(!sb_channel_wants_work(ch) && !m->busy, "work is wanted where there is none");
  park(m);
  expect(!sb_channel_wants_work(ch) && !m->busy, "a parked one has work");
  expect_is(member_state(m), SB_NODE_INTERESTED, "the state of a parked one after a look");
  park(m);
  sb_round_robin_willing(m, false);
  expect(!sb_channel_wants_work(ch), "one that may go on has work");
  expect(m->willing, "one that may go on is not willing");
  expect_is(member_state(m), SB_NODE_INTERESTED, "the state of one that goes on");
  (void)sb_node_move(t.c, m->s.node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED);
  expect(sb_channel_wants_work(ch) && m->busy, "one that is NOTIFIED has no work");
  stranger_puts(first_queue, 1);
  untell(m);
  expect(sb_channel_wants_work(ch) && m->busy, "one beside a message has no work");
  m->starved = true;
  park(m);
  sb_round_robin_willing(m, false);
  m->busy = false;
  expect(!sb_channel_wants_work(ch) && !m->busy, "one without credit has work");
  uint64_t removed;
  (void)sb_disposal_close(strangers_queue, false, false, &removed);
  expect(sb_channel_wants_work(ch) && m->busy, "one of a deleted queue has no work");
}
static void what_was_overlooked(void) {
  begin_channels();
  sb_member *a = join_channel(ch, first_queue, 0, 0, 0), *b = join_channel(ch, second_queue, 0, 0, 0);
  const sb_queue *where = NULL;
  expect_is(sb_channel_overlooked(ch, &where), 0, "what is overlooked beside nothing");
  stranger_puts(first_queue, 1);
  untell(a);
  uint64_t entry = sb_entry_word(a->s.node, sb_node_epoch(SB_LOAD(&member_node(a)->word, SB_RELAXED)));
  where = NULL;
  expect_is(sb_channel_overlooked(ch, &where), entry, "what is overlooked");
  expect(where == first_queue, "its queue is another one");
  expect_is(b->held, 0, "what another one holds");
  a->busy = true;
  expect_is(sb_channel_overlooked(ch, &where), 0, "what has a turn to come");
  a->busy = false;
  sb_round_robin_willing(a, false);
  expect_is(sb_channel_overlooked(ch, &where), 0, "what is not willing");
  sb_round_robin_willing(a, true);
  a->s.choosy = true;
  expect_is(sb_channel_overlooked(ch, &where), 0, "what has no turn among the others");
  a->s.choosy = false;
}

/* Each attempt tells one better consumer at most. */
static void a_pull_tells_one_better_consumer(void) {
  begin_channels();
  sb_channel *b = open_channel(2);
  sb_member *m = join_channel(ch, first_queue, 0, 0, 0), *turn = join_channel(b, first_queue, 0, 0, 0);
  uint32_t better[4], told = 0;
  uint64_t token;
  put(&t, first_queue, 1);
  for (unsigned i = 0; i < 4; i++) {
    if (sb_node_create(t.c, first_queue->slot, 5, SB_NODE_DIRECT, 0, 0, &better[i], &token) != SB_OK) die("node", 0);
    (void)sb_node_move(t.c, better[i], SB_ANY_STATE, SB_NODE_INTERESTED);
  }
  untell(m);
  untell(turn);
  sb_round_robin_served(m); /* it is the other one's turn */
  expect(sb_round_robin_next(m->rank->deal) == turn, "it is its own turn");
  for (unsigned i = 0; i < 2; i++) (void)sb_channel_pull(i == 0 ? ch : b);
  for (unsigned i = 0; i < 4; i++) told += node_state(better[i]) == SB_NODE_NOTIFIED;
  expect_is(told, 2, "how many of the better ones were told by two pulls");
}
/* What lies before the head and is not marked is the rescan's. */
static void foreign_messages_begin_at_the_head(void) {
  begin_channels();
  stranger_puts(first_queue, 3);
  SB_STORE(&first_queue->shm->head, first_queue->base + 2, SB_RELAXED);
  sb_member *m = join_channel(ch, first_queue, 0, 0, SB_CONSUME_NO_LOCAL);
  expect_is(m->s.choice.cursor, first_queue->base + 2, "where it begins");
  (void)sb_channel_pull(ch);
  expect_is(m->held, 1, "how many it took");
}

/* As a node is left that found no memory for its list entry when its member became unwilling. */
static void a_node_that_kept_its_interest(void) {
  const unsigned states[] = {SB_NODE_NOTIFIED, SB_NODE_INTERESTED};
  begin_channels();
  sb_member *m = join_channel(ch, first_queue, 1, 0, 0), *b = join_channel(ch, second_queue, 1, 0, SB_CONSUME_NO_LOCAL);
  stranger_puts(first_queue, 2);
  stranger_puts(second_queue, 2);
  (void)sb_channel_pull(ch);
  expect(m->starved && !m->willing && b->starved && !b->willing, "they are not starved");
  for (unsigned i = 0; i < 4; i++) {
    if (!sb_node_move(t.c, m->s.node, SB_ANY_STATE, states[i % 2]) ||
        !sb_node_move(t.c, b->s.node, SB_ANY_STATE, SB_NODE_NON_ACQUIRING))
      die("sb_node_move", 0);
    if (i < 2) {
      SB_STORE(&member_node(m)->flagged, 1, SB_RELAXED);
      SB_STORE(&member_node(b)->flagged, 1, SB_RELAXED);
      expect(!sb_channel_turn(ch), "it wants another turn");
    } else {
      (void)sb_channel_wants_work(ch);
    }
    expect_is(member_state(m), SB_NODE_NOT_INTERESTED, "the state of a node without credit");
    expect_is(member_state(b), SB_NODE_NOT_INTERESTED, "the state of a node without credit and without acquiring");
  }
  expect_member(m, "without credit", 1, 1, false);
}

static const test_case CASES[] = {
    {"channel_turns: kept interest", "a node that could not end its interest ends it later",
     a_node_that_kept_its_interest},
    {"channel_turns: ready", "a channel that is armed is handed over once, in order", a_channel_is_handed_over_once},
    {"channel_turns: foreign", "foreign messages have their own way", foreign_messages_have_their_own_way},
    {"channel_turns: failed", "what a pull has no memory for is tried again", what_a_pull_cannot_do},
    {"channel_turns: pull", "a pull has an end", a_pull_has_an_end},
    {"channel_turns: better", "a pull tells one better consumer", a_pull_tells_one_better_consumer},
    {"channel_turns: head", "foreign messages begin at the head", foreign_messages_begin_at_the_head},
    {"channel_turns: turn", "a turn takes one message for each that was told", a_turn_takes_one_for_each_that_was_told},
    {"channel_turns: parked", "a parked consumer looks once more", a_parked_one_goes_on},
    {"channel_turns: told", "the consumer that was told steps back", the_told_one_steps_back},
    {"channel_turns: rescue", "a rescue goes to the consumer whose turn it is", a_rescue_goes_to_whose_turn_it_is},
    {"channel_turns: attempts", "attempts have an end", attempts_have_an_end},
    {"channel_turns: single", "what stands by is not willing", what_stands_by_is_not_willing},
    {"channel_turns: wants", "a look that believes no flag finds what has work", what_wants_work},
    {"channel_turns: overlooked", "a willing consumer beside a message was overlooked", what_was_overlooked},
};
SUBJECT(CASES)
