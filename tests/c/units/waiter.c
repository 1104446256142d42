// SPDX-License-Identifier: Apache-2.0
/* sb_waiter: a thread that waits for a message: how long it spins, when it sleeps, what ends the wait, and what it
 * leaves. The case answers for the system, and acts while the waiter spins or sleeps. */
#include "sb_waiter.h"

#include <errno.h>

#include "sb_wait.h"
#include "waiting.h"

#define SPIN_MOST 50000u
#define SPIN_LEAST 500u
#define FIVE_SECONDS UINT64_C(5000000000)
#define FREE_SETTINGS ((sb_settings)FREELY)

static sb_wait w;
static sb_taken taken;
static unsigned at_pause; /* which pause a case acts at */

static void begin(void) {
  begin_waiting(FREE_SETTINGS);
  w = (sb_wait){.deadline_ns = says.now_ns + FIVE_SECONDS - 1, .look_ns = UINT64_MAX};
}
/* A queue where spinning never helped. */
static void begin_calm(void) {
  begin();
  q->spin_ns = 0;
}
static uint32_t spinners(void) { return SB_LOAD(&t.b->header->spinners, SB_RELAXED); }
static sb_status wait_for_message(void) { return sb_waiter_get(q, &w, NULL, &taken); }
static void expect_message(uint64_t number, const char *what) {
  expect_is(taken.position - q->base, number, what);
  expect_is(q->ledger->holding & UINT32_MAX, 1, "how many messages the connection holds");
}
static void put_at_that_pause(void) {
  expect_is(spinners(), 1, "how many spin");
  if (says.pauses == at_pause) {
    (void)put(&t, q, 1);
    ask_for_renewal();
  }
}

/* ---- spinning ---- */

/* The time is looked at after 16 looks at the queue. */
static void a_spin_in_vain(void) {
  begin();
  says.step_ns = SPIN_MOST / 4;
  expect_is(wait_for_message(), SB_TIMEOUT, "the status");
  expect_is(says.pauses, 4 * 16, "how often it paused");
  expect_is(spinners(), 0, "how many spin afterwards");
  expect_is(q->spin_ns, SPIN_MOST / 2, "how long the next one spins");
  expect_is(says.sleeps, 1, "how often it slept");
  w.deadline_ns = says.now_ns + FIVE_SECONDS - 1;
  (void)wait_for_message();
  expect_is(says.pauses, (4 + 2) * 16, "how often it paused in half of the time");
  expect_is(says.counts, 1, "how often it asked for the number of processors");
}
static void a_message_comes_while_it_spins(void) {
  begin();
  q->spin_ns = 1000;
  at_pause = 5;
  says.paused = put_at_that_pause;
  expect_is(wait_for_message(), SB_OK, "the status");
  expect_message(0, "the number of the message");
  expect_is(says.pauses, 5, "how often it paused");
  expect_is(renewed, 1, "how often it took the lock");
  expect_unlocked("afterwards");
  expect_is(says.sleeps, 0, "how often it slept");
  expect_is(q->spin_ns, SPIN_MOST, "how long the next one spins");
  expect(w.node == 0 && q->busy == 0 && q->waiter_count == 0, "it has a node");
}
static void close_at_a_pause(void) {
  if (says.pauses == 3) close_queue();
}
static void the_queue_is_closed_while_it_spins(void) {
  begin();
  uint64_t free_holding = next_holding();
  says.paused = close_at_a_pause;
  expect_is(wait_for_message(), SB_DELETED, "the status");
  expect_is(says.pauses, 3, "how often it paused");
  expect_is(next_holding(), free_holding, "the next holding");
  expect_unlocked("afterwards");
}
/* What it saw is gone when it has the lock. */
static void another_one_took_it(void) {
  begin();
  SB_STORE(&q->shm->requeued, 1, SB_RELAXED);
  expect_is(wait_for_message(), SB_TIMEOUT, "the status");
  expect_is(says.pauses, 0, "how often it paused");
  expect_is(q->spin_ns, SPIN_MOST, "how long the next one spins");
  expect_is(says.sleeps, 1, "how often it slept");
  expect_unlocked("afterwards");
}
static unsigned pauses_of_a_wait(void) {
  says.pauses = 0;
  w.deadline_ns = says.now_ns + FIVE_SECONDS - 1;
  (void)wait_for_message();
  return says.pauses;
}
static void when_a_spin_is_worth_it(void) {
  begin();
  says.step_ns = SPIN_MOST;
  q->spin_ns = SPIN_LEAST - 1;
  expect_is(pauses_of_a_wait(), 0, "the pauses of a spin that is too short");
  expect_is(q->spin_ns, SPIN_LEAST + 31, "how long the next one spins");
  q->spin_ns = SPIN_LEAST;
  expect_is(pauses_of_a_wait(), 16, "the pauses of the shortest spin");
  q->spin_ns = SPIN_LEAST;
  SB_STORE(&t.b->header->spinners, 1u, SB_RELAXED);
  expect_is(pauses_of_a_wait(), 16, "the pauses beside one that spins, with two processors");
  q->spin_ns = SPIN_LEAST;
  SB_STORE(&t.b->header->spinners, 2u, SB_RELAXED);
  expect_is(pauses_of_a_wait(), 0, "the pauses beside two that spin");
  expect_is(spinners(), 2, "how many spin afterwards");
  expect_is(q->spin_ns, SPIN_LEAST / 2, "how long the next one spins");
  q->spin_ns = SPIN_LEAST;
  SB_STORE(&t.b->header->spinners, 0u, SB_RELAXED);
  SB_STORE(&q->shm->interested, 1, SB_RELAXED);
  expect_is(pauses_of_a_wait(), 0, "the pauses beside one that waits");
  expect_is(q->spin_ns, SPIN_LEAST, "how long the next one spins, as before");
}
static void no_spin_past_the_deadline(void) {
  begin();
  says.step_ns = SPIN_LEAST;
  q->spin_ns = SPIN_LEAST;
  w.deadline_ns = says.now_ns + SPIN_LEAST;
  (void)wait_for_message();
  expect_is(says.pauses, 16, "the pauses of a spin up to the deadline");
  says.pauses = 0;
  q->spin_ns = SPIN_LEAST;
  w.deadline_ns = says.now_ns + SPIN_LEAST - 1;
  (void)wait_for_message();
  expect_is(says.pauses, 0, "the pauses of a spin past the deadline");
  expect_is(q->spin_ns, SPIN_LEAST + 32, "how long the next one spins");
}
static void no_spin_on_one_processor(void) {
  begin();
  says.cores = 1;
  says.step_ns = SPIN_MOST;
  expect_is(pauses_of_a_wait(), 0, "the pauses");
  expect_is(q->spin_ns, SPIN_MOST, "how long the next one spins at most");
  (void)put(&t, q, 1);
  expect_is(sb_waiter_soon(q, 1000, &taken), SB_EMPTY, "the status of a short look");
}

/* ---- waiting for an answer ---- */

#define AT_REST 100000u
#define JUST_NOW 20000u

/* This thread wakes another one, `ago` before now, and `rest` after its last wait had ended. */
static void wakes_another(uint64_t rest, uint64_t ago) {
  sb_half word = SB_WAKE_ARMED;
  says.woken = 1;
  q->waited_ns = says.now_ns - ago - rest;
  says.now_ns -= ago;
  (void)sb_wake_ring(&word);
  says.now_ns += ago;
  q->spin_ns = SPIN_MOST;
}
static void expect_look(uint64_t rest, uint64_t ago, sb_status should, const char *what) {
  wakes_another(rest, ago);
  expect_is(sb_waiter_soon(q, 1000, &taken), should, what);
}
static void after_it_woke_another(void) {
  begin();
  for (uint64_t i = 1; i <= 2; i++) (void)put(&t, q, i);
  expect_look(AT_REST + 1, 0, SB_EMPTY, "a short look just after a wake that follows a rest");
  expect_look(AT_REST + 1, JUST_NOW - 1, SB_EMPTY, "a short look soon after such a wake");
  expect_look(AT_REST + 1, JUST_NOW, SB_OK, "a short look long after such a wake");
  expect_look(AT_REST, 0, SB_OK, "a short look after a wake that follows no rest");
  wakes_another(AT_REST + 1, 0);
  expect_is(pauses_of_a_wait(), 0, "the pauses of a wait for an answer");
  expect_is(q->spin_ns, SPIN_MOST, "how long the next one spins, as before");
  expect_is(says.sleeps, 1, "how often it slept");
  wakes_another(AT_REST, 0);
  says.step_ns = SPIN_MOST;
  expect_is(pauses_of_a_wait(), 16, "the pauses of a wait between two that are at work");
}
/* Only a wait that brought a message ends a rest. */
static void when_its_last_wait_ended(void) {
  begin();
  at_pause = 5;
  says.paused = put_at_that_pause;
  (void)wait_for_message();
  expect_is(q->waited_ns, says.now_ns, "the end of a spin");
  says.now_ns += 1000;
  (void)put(&t, q, 1);
  (void)sb_waiter_soon(q, 300, &taken);
  expect_is(q->waited_ns, says.now_ns, "the end of a short look");
  says.now_ns += 1000;
  q->spin_ns = 0;
  (void)put(&t, q, 1);
  (void)wait_for_message();
  expect_is(q->waited_ns, says.now_ns, "the end of a wait");
  uint64_t before = q->waited_ns;
  w.deadline_ns = says.now_ns + 1000;
  (void)wait_for_message();
  (void)sb_waiter_soon(q, 0, &taken);
  expect_is(q->waited_ns, before, "the end of the last wait that brought a message");
}

/* ---- a short look ---- */

static void a_short_look(void) {
  begin();
  says.step_ns = 100;
  expect_is(sb_waiter_soon(q, 300, &taken), SB_EMPTY, "the status");
  expect_is(says.pauses, 3 * 16, "how often it paused");
  expect_is(q->spin_ns, SPIN_MOST, "how long the next one spins");
  (void)put(&t, q, 1);
  ask_for_renewal();
  expect_is(sb_waiter_soon(q, 300, &taken), SB_OK, "the status beside a message");
  expect_message(0, "the number of the message");
  expect_is(renewed, 1, "how often it took the lock");
  expect_unlocked("afterwards");
  (void)put(&t, q, 2);
  q->spin_ns = SPIN_MOST - 1;
  expect_is(sb_waiter_soon(q, 300, &taken), SB_EMPTY, "the status where a spin did not help");
  q->spin_ns = SPIN_MOST;
  SB_STORE(&q->shm->interested, 1, SB_RELAXED);
  expect_is(sb_waiter_soon(q, 300, &taken), SB_EMPTY, "the status beside one that waits");
}

/* ---- sleeping ---- */

static uint32_t node; /* of the waiter */
static uint64_t token;
static void note_the_waiter(void) {
  node = w.node;
  token = w.token;
  expect_is(state_of(node), SB_NODE_INTERESTED, "the state of the node");
  expect_is(node_at(node)->flags, SB_NODE_DIRECT, "the flags of the node");
  expect_is(node_at(node)->prefetch, 1, "the credit of the node");
  expect_is(SB_LOAD(&node_at(node)->wake, SB_RELAXED) & 3u, SB_WAKE_ARMED, "the wake word");
  expect_is(q->busy, 1, "how many use the handle");
  expect_is(q->waiter_count, 0, "how many nodes are kept");
  expect_unlocked("while it sleeps");
  ask_for_renewal();
}
static void a_wait_that_times_out(void) {
  begin_calm();
  uint64_t free_holding = 0;
  says.slept = note_the_waiter;
  for (unsigned i = 0; i < 2; i++) {
    uint32_t first = node;
    uint64_t first_token = token;
    w = (sb_wait){.deadline_ns = says.now_ns + FIVE_SECONDS - 1, .look_ns = UINT64_MAX, .token = 77};
    t.c->use = SB_USE_PLAIN;
    renewed = 0;
    ask_for_renewal();
    expect_is(wait_for_message(), SB_TIMEOUT, "the status");
    expect_is(renewed, 2, "how often it took the lock");
    expect_unlocked("afterwards");
    expect_is(says.until_ns, w.deadline_ns, "how long it slept");
    expect_is(says.sleeps, i + 1, "how often it slept");
    expect_is(state_of(node), SB_NODE_NOT_INTERESTED, "the state of the node afterwards");
    expect_is(SB_LOAD(&node_at(node)->wake, SB_RELAXED) & 3u, SB_WAKE_RUN, "the wake word afterwards");
    expect(w.node == 0 && q->busy == 0 && q->waiter_count == 1, "the node was not given back");
    expect_is(q->waiters[0].node, node, "the node that is kept");
    expect_is(q->waiters[0].token, token, "the holding of the node that is kept");
    if (i == 0) {
      expect_is(t.c->use, SB_USE_DRAIN, "what memory is used for afterwards");
      free_holding = next_holding();
    } else {
      expect(node == first && token == first_token, "the node that was kept is not used");
      expect_is(next_holding(), free_holding, "the next holding");
    }
  }
}
static void it_sleeps_five_seconds_at_most(void) {
  begin_calm();
  const uint64_t deadlines[] = {UINT64_MAX, says.now_ns + FIVE_SECONDS + 1};
  for (unsigned i = 0; i < 2; i++) {
    w.deadline_ns = deadlines[i];
    says.error = EINTR;
    uint64_t now = says.now_ns;
    expect_is(wait_for_message(), SB_INTERRUPTED, "the status");
    expect_is(says.until_ns, now + FIVE_SECONDS, "the end of a sleep");
  }
}
static void a_deadline_that_is_over(void) {
  begin_calm();
  w.deadline_ns = says.now_ns;
  expect_is(wait_for_message(), SB_TIMEOUT, "the status");
  expect_is(says.sleeps, 0, "how often it slept");
  expect_is(q->spin_ns, 32, "how long the next one spins");
}
static void put_and_ring(void) {
  expect(q->waiter_count == 0 && q->busy == 1, "the node is not in use");
  (void)put(&t, q, 1);
  expect_is(state_of(w.node), SB_NODE_NOTIFIED, "the state of the node");
}
static void a_message_comes_while_it_sleeps(void) {
  const int ends[] = {0, ETIMEDOUT, EINTR};
  for (unsigned i = 0; i < 3; i++) {
    if (i == 0) begin_calm();
    q->spin_ns = 0;
    w = (sb_wait){.deadline_ns = says.now_ns + 1000, .look_ns = says.now_ns + 500};
    says.error = ends[i];
    says.slept = put_and_ring;
    says.sleeps = 0;
    expect_is(wait_for_message(), SB_OK, "the status");
    expect_is(taken.position - q->base, i, "the number of the message");
    expect_is(says.sleeps, 1, "how often it slept");
    expect(w.node == 0 && q->busy == 0, "the node was not given back");
  }
}
static void ring_in_vain(void) {
  if (says.sleeps == 1) {
    (void)sb_node_move(t.c, w.node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED);
    (void)sb_wake_ring(&node_at(w.node)->wake);
  }
  says.error = says.sleeps == 1 ? 0 : ETIMEDOUT;
  if (says.sleeps == 2) expect_is(state_of(w.node), SB_NODE_INTERESTED, "the state of the node once more");
}
static void rung_in_vain(void) {
  begin_calm();
  says.slept = ring_in_vain;
  expect_is(wait_for_message(), SB_TIMEOUT, "the status");
  expect_is(says.sleeps, 2, "how often it slept");
}
/* A caller that looks around keeps its place in the list. */
static void a_tick(void) {
  begin_calm();
  w.look_ns = says.now_ns + 10;
  expect_is(wait_for_message(), SB_TICK, "the status");
  expect_is(says.until_ns, w.look_ns, "how long it slept");
  expect(w.node != 0 && q->busy == 1, "the node was given back");
  expect_is(q->waiter_count, 0, "how many nodes are kept");
  expect_unlocked("afterwards");
  expect_is(SB_LOAD(&node_at(w.node)->wake, SB_RELAXED) & 3u, SB_WAKE_RUN, "the wake word");
  uint32_t first = w.node;
  uint64_t word = SB_LOAD(&node_at(first)->word, SB_RELAXED), first_token = w.token;
  expect_is(sb_node_state(word), SB_NODE_INTERESTED, "the state of the node");
  q->spin_ns = SPIN_MOST;
  SB_STORE(&q->shm->interested, 0, SB_RELAXED);
  w.look_ns = says.now_ns + 10;
  expect_is(wait_for_message(), SB_TICK, "the status of the next turn");
  expect_is(says.pauses, 0, "how often it paused");
  expect_is(SB_LOAD(&node_at(first)->word, SB_RELAXED), word, "the word of the node");
  expect(w.node == first && w.token == first_token, "another node is used");
  w.look_ns = w.deadline_ns;
  expect_is(wait_for_message(), SB_TIMEOUT, "the status at the deadline");
  expect(w.node == 0 && q->busy == 0 && q->waiter_count == 1, "the node was not given back");
}

/* ---- what ends a wait ---- */

static void ends_of_a_wait(void) {
  begin_calm();
  sb_half ended = 1;
  (void)put(&t, q, 1);
  expect_is(sb_waiter_get(q, &w, &ended, &taken), SB_CLOSED, "the status of a wait that is to end");
  expect_is(q->waiter_count, 1, "how many nodes are kept");
  SB_STORE(&t.b->header->closing, 1u, SB_RELAXED);
  expect_is(wait_for_message(), SB_STOPPING, "the status in a broker that is stopped");
  SB_STORE(&t.c->closed, 1u, SB_RELAXED);
  expect_is(wait_for_message(), SB_CLOSED, "the status with a connection that is closed");
  expect_is(q->waiter_count, 0, "how many nodes are kept of a connection that is closed");
  expect_is(says.sleeps, 0, "how often it slept");
  expect_is(q->busy, 0, "how many use the handle");
  expect_unlocked("afterwards");
  SB_STORE(&t.c->closed, 0u, SB_RELAXED);
  SB_STORE(&t.b->header->closing, 0u, SB_RELAXED);
  ended = 0;
  expect_is(sb_waiter_get(q, &w, &ended, &taken), SB_OK, "the status of a wait that goes on");
}
/* No holding and no node is left of a wait at a queue that is closed. */
static void a_queue_that_is_closed(void) {
  begin_calm();
  close_queue();
  uint64_t free_holding = next_holding();
  expect_is(wait_for_message(), SB_DELETED, "the status");
  expect_is(next_holding(), free_holding, "the next holding");
  expect(w.node == 0 && q->busy == 0, "it has a node");
  open_again();
  (void)wait_for_message();
  close_queue();
  ask_for_renewal();
  renewed = 0;
  expect_is(wait_for_message(), SB_DELETED, "the status of the next one");
  expect_is(q->waiter_count, 1, "how many nodes are kept");
  expect_is(renewed, 1, "how often it took the lock");
  expect_unlocked("afterwards");
}
static void close_it(void) {
  close_queue();
  says.error = 0;
  (void)sb_wake_ring(&node_at(w.node)->wake);
}
static void the_queue_is_closed_while_it_sleeps(void) {
  begin_calm();
  uint64_t free_holding = next_holding();
  says.slept = close_it;
  expect_is(wait_for_message(), SB_DELETED, "the status");
  expect_is(q->waiter_count, 0, "how many nodes are kept");
  expect(w.node == 0 && q->busy == 0, "it has a node");
  expect_is(next_holding(), free_holding, "the next holding");
}

/* ---- messages that no hint leads to ---- */

static void hide_messages(void) {
  SB_STORE(&q->shm->head, q->base + 1, SB_RELAXED);
  q->lanes[0].cursor = q->base + 1;
}
static void a_hidden_message_is_found(void) {
  begin_calm();
  (void)put(&t, q, 1);
  hide_messages();
  expect_is(wait_for_message(), SB_OK, "the status");
  expect_message(0, "the number of the message");
  expect_is(q->rescanned_ns, says.now_ns, "when it looked for hidden messages");
}
static void where_nothing_is_hidden(void) {
  begin_calm();
  expect_is(wait_for_message(), SB_TIMEOUT, "the status");
  expect_is(q->rescanned_ns, 0, "when it looked for hidden messages in an empty queue");
  for (uint64_t i = 1; i <= 3; i++) (void)put(&t, q, i);
  hide_messages();
  w.deadline_ns = says.now_ns + 1000;
  expect_is(wait_for_message(), SB_OK, "the status beside another message");
  expect_message(1, "the number of the message");
  expect_is(q->rescanned_ns, 0, "when it looked for hidden messages beside another one");
}

static const test_case CASES[] = {
    {"waiter: in vain", "a spin in vain halves the next one", a_spin_in_vain},
    {"waiter: found", "a message that comes during a spin is taken", a_message_comes_while_it_spins},
    {"waiter: closed", "a spin ends when the queue is closed", the_queue_is_closed_while_it_spins},
    {"waiter: too late", "a waiter whose message is gone goes to sleep", another_one_took_it},
    {"waiter: worth", "a waiter spins while a processor is left, and no other waiter is before it",
     when_a_spin_is_worth_it},
    {"waiter: no time", "a spin does not pass the deadline", no_spin_past_the_deadline},
    {"waiter: alone", "on one processor a waiter does not spin", no_spin_on_one_processor},
    {"waiter: answer", "a waiter that woke another one after a rest sleeps at once", after_it_woke_another},
    {"waiter: rest", "a wait that brought a message ends a rest", when_its_last_wait_ended},
    {"waiter: soon", "a short look takes a message where spinning helped", a_short_look},
    {"waiter: sleep", "a waiter sleeps until its deadline, and its node is kept", a_wait_that_times_out},
    {"waiter: bounded", "a sleep lasts five seconds at most", it_sleeps_five_seconds_at_most},
    {"waiter: over", "after the deadline a waiter does not sleep", a_deadline_that_is_over},
    {"waiter: woken", "a message that is there precedes all that ends a sleep", a_message_comes_while_it_sleeps},
    {"waiter: rung", "a waiter that was rung in vain is interested again", rung_in_vain},
    {"waiter: tick", "a waiter keeps its place between two looks around", a_tick},
    {"waiter: ends", "a connection, a broker and a wait end", ends_of_a_wait},
    {"waiter: deleted", "a waiter gets no node at a closed queue", a_queue_that_is_closed},
    {"waiter: deleted later", "the node of a closed queue is not kept", the_queue_is_closed_while_it_sleeps},
    {"waiter: hidden", "a message that no hint leads to is found", a_hidden_message_is_found},
    {"waiter: not hidden", "hidden messages are looked for when nothing else is there", where_nothing_is_hidden},
};
SUBJECT(CASES)
