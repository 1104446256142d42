// SPDX-License-Identifier: Apache-2.0
/* sb_waiter: a thread of the application that waits for the row of its consumer. The case answers for the system, and acts
 * while the thread spins or sleeps. */
#include <errno.h>

#include "sb_wait.h"
#include "sb_waiter.h"
#include "waiting.h"

#define SPIN_MOST 50000u
#define SPIN_LEAST 500u
#define FIVE_SECONDS UINT64_C(5000000000)
#define PREFETCH 4u
#define FREE_SETTINGS ((sb_settings)FREELY)

static sb_consumer *k;
static uint64_t deadline;

static void begin(void) {
  sb_status status;
  begin_waiting(FREE_SETTINGS);
  k = sb_consumer_open(t.c, &q, 1, PREFETCH, 0, 1, 0, &status);
  if (k == NULL) die("sb_consumer_open", (int)status);
  says.step_ns = SPIN_MOST;
  deadline = says.now_ns + FIVE_SECONDS;
}
static sb_status wait_for_row(void) { return sb_waiter_row(k, deadline); }
static uint32_t its_node(void) { return k->subscriptions[0].node; }

/* ---- spinning ---- */

static void put_at_a_pause(void) {
  expect_is(state_of(its_node()), SB_NODE_NOTIFIED, "the state of the node, which is at work");
  expect_unlocked("while it spins");
  if (says.pauses == 5) {
    (void)put(&t, q, 1);
    renewed = 0;
    ask_for_renewal();
  }
}
static void a_message_comes_while_it_spins(void) {
  begin();
  says.paused = put_at_a_pause;
  ask_for_renewal();
  expect_is(wait_for_row(), SB_OK, "the status");
  expect_is(says.pauses, 5, "how often it paused");
  expect_is(says.sleeps, 0, "how often it slept");
  expect_is(sb_consumer_waiting(k), 1, "how many messages are in the row");
  expect_is(k->local, 1, "the word that it would sleep on");
  expect_is(renewed, 1, "how often the lock was taken for the renewal");
  expect_is(q->spin_ns, SPIN_MOST, "how long the next one spins");
  expect_unlocked("afterwards");
}
static void renew_at_the_end(void) {
  if (says.pauses == 16) ask_for_renewal();
}
static void a_spin_in_vain(void) {
  begin();
  says.paused = renew_at_the_end;
  ask_for_renewal();
  expect_is(wait_for_row(), SB_TIMEOUT, "the status");
  expect_is(says.pauses, 16, "how often it paused");
  expect_is(renewed, 2, "how often the lock was taken for a renewal");
  expect_is(says.sleeps, 1, "how often it slept");
  expect_is(state_of(its_node()), SB_NODE_INTERESTED, "the state of the node");
  expect_is(q->spin_ns, SPIN_MOST / 2, "how long the next one spins");
}
static void close_the_consumer(void) { k->closed = true; }
static void close_the_connection(void) {
  if (says.pauses == 1) (void)put(&t, q, 1);
  SB_STORE(&t.c->closed, 1u, SB_RELAXED);
}
static void a_consumer_that_is_closed_while_it_spins(void) {
  begin();
  says.paused = close_the_consumer;
  expect_is(wait_for_row(), SB_CLOSED, "the status");
  expect(!k->starved, "a consumer that is closed pulls");
  expect_is(state_of(its_node()), SB_NODE_NOTIFIED, "the state of the node");
  expect_is(says.sleeps, 0, "how often it slept");
  expect_unlocked("afterwards");
}
static void a_connection_that_is_closed_while_it_spins(void) {
  begin();
  says.paused = close_the_connection;
  expect_is(wait_for_row(), SB_CLOSED, "the status");
  expect_is(sb_consumer_waiting(k), 0, "how many messages are in the row");
  expect_unlocked("afterwards");
}

static unsigned pauses_of_a_wait(void) {
  says.pauses = 0;
  deadline = says.now_ns + FIVE_SECONDS;
  (void)wait_for_row();
  return says.pauses;
}
/* It does not spin, its node stays as it is, and the next one spins longer. */
static void expect_no_spin(const char *what) {
  uint32_t ns = q->spin_ns;
  uint64_t word = SB_LOAD(&node_at(its_node())->word, SB_RELAXED);
  expect(pauses_of_a_wait() == 0, "%s: it spins", what);
  expect(SB_LOAD(&node_at(its_node())->word, SB_RELAXED) == word, "%s: its node was moved", what);
  uint32_t next = ns + 32 < SPIN_MOST ? ns + 32 : SPIN_MOST;
  expect(q->spin_ns == next, "%s: the next one spins %u ns after %u ns", what, q->spin_ns, ns);
  q->spin_ns = SPIN_MOST;
}
static void when_a_spin_is_worth_it(void) {
  begin();
  expect_is(pauses_of_a_wait(), 16, "the pauses");
  q->spin_ns = SPIN_LEAST;
  expect_is(pauses_of_a_wait(), 16, "the pauses of the shortest spin");
  q->spin_ns = SPIN_LEAST - 1;
  expect_no_spin("a spin that is too short");
  SB_STORE(&q->shm->interested, 0, SB_RELAXED);
  expect_is(pauses_of_a_wait(), 16, "the pauses where the count is wrong");
  SB_STORE(&q->shm->interested, 1, SB_RELAXED);
  q->spin_ns = SPIN_MOST;
  SB_STORE(&q->shm->interested, 2, SB_RELAXED);
  expect_no_spin("beside another one that waits");
  SB_STORE(&q->shm->interested, 1, SB_RELAXED);
  k->closed = true;
  expect_no_spin("a consumer that is closed");
  k->closed = false;
  SB_STORE(&t.c->closed, 1u, SB_RELAXED);
  expect_no_spin("a connection that is closed");
  SB_STORE(&t.c->closed, 0u, SB_RELAXED);
  k->suspended = true;
  expect_no_spin("a consumer that is suspended");
  k->suspended = false;
  k->starved = true;
  expect_no_spin("a consumer without credit");
  k->starved = false;
  k->row_end++;
  expect_no_spin("a message in the row");
  k->row_end--;
  (void)sb_node_move(t.c, its_node(), SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED);
  expect_no_spin("a consumer that was told");
  (void)sb_node_move(t.c, its_node(), SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED);
  expect_is(pauses_of_a_wait(), 16, "the pauses after all");
}
/* The other one may sit on the core of this thread, and answers when it sleeps. */
static void after_it_woke_another(void) {
  begin();
  sb_half word = SB_WAKE_ARMED;
  says.step_ns = 0;
  says.woken = 1;
  q->waited_ns = says.now_ns - 100001;
  (void)sb_wake_ring(&word);
  expect_is(pauses_of_a_wait(), 0, "the pauses of a wait for an answer");
  expect_is(q->waited_ns, says.now_ns - FIVE_SECONDS - 100001, "the end of the last wait, after one in vain");
  deadline = says.now_ns + FIVE_SECONDS;
  says.pauses = 0;
  says.paused = put_at_a_pause;
  expect_is(wait_for_row(), SB_OK, "the status beside a message");
  expect_is(q->waited_ns, says.now_ns, "the end of the last wait");
}
static void one_of_a_higher_priority_wants(void) {
  sb_status status;
  begin();
  sb_consumer *higher = sb_consumer_open(t.c, &q, 1, PREFETCH, 1, 1, 0, &status);
  expect(higher != NULL, "there is no second consumer");
  SB_STORE(&q->shm->interested, 1, SB_RELAXED);
  expect_no_spin("a consumer of a higher priority wants messages");
}
/* With several queues it does not know at which one to spin. */
static void a_consumer_of_two_queues(void) {
  sb_status status;
  begin();
  if (declare(&t, "other", FREE_SETTINGS) != SB_OK) die("declare", 0);
  sb_queue *both[] = {q, open_queue(&t, "other")};
  sb_consumer_cancel(k, true);
  k = sb_consumer_open(t.c, both, 2, PREFETCH, 0, 1, 0, &status);
  expect(k != NULL, "there is no consumer");
  expect_is(pauses_of_a_wait(), 0, "the pauses");
  expect_is(q->spin_ns, SPIN_MOST, "how long the next one spins");
  expect_is(state_of(its_node()), SB_NODE_INTERESTED, "the state of the node");
}
static void no_spin_on_one_processor(void) {
  begin();
  says.cores = 1;
  expect_no_spin("one processor");
}

/* ---- sleeping ---- */

static void note_the_sleep(void) {
  expect_is(k->local & 1u, 1, "whether the word says that a thread sleeps");
  expect_unlocked("while it sleeps");
  ask_for_renewal();
}
static void begin_calm(void) {
  begin();
  says.step_ns = 0;
  q->spin_ns = 0;
  says.slept = note_the_sleep;
  deadline = says.now_ns + FIVE_SECONDS - 1;
}
static void a_wait_that_times_out(void) {
  begin_calm();
  expect_is(wait_for_row(), SB_TIMEOUT, "the status");
  expect_is(says.until_ns, deadline, "how long it slept");
  expect_is(says.sleeps, 1, "how often it slept");
  expect_is(renewed, 1, "how often it took the lock after the sleep");
  expect_unlocked("afterwards");
  deadline = UINT64_MAX;
  says.error = EINTR;
  uint64_t now = says.now_ns;
  expect_is(wait_for_row(), SB_INTERRUPTED, "the status after a signal");
  expect_is(says.until_ns, now + FIVE_SECONDS, "the end of a sleep without a deadline");
  deadline = says.now_ns;
  expect_is(wait_for_row(), SB_TIMEOUT, "the status at the deadline");
  expect_is(says.sleeps, 2, "how often it slept");
}
static void wake_several_times(void) {
  note_the_sleep();
  says.error = says.sleeps == 1 ? 0 : EAGAIN;
  errno = EINTR; /* of an earlier call */
  if (says.sleeps == 3) {
    uint32_t before = k->local;
    (void)put(&t, q, 1);
    sb_lock(t.c);
    sb_consumer_pull(k);
    sb_unlock(t.c);
    expect_is(k->local, before + 1, "the word of a thread that is woken");
  }
}
static void woken_in_vain(void) {
  begin_calm();
  says.slept = wake_several_times;
  expect_is(wait_for_row(), SB_OK, "the status");
  expect_is(says.sleeps, 3, "how often it slept");
}
static void what_ends_a_wait(void) {
  begin_calm();
  SB_STORE(&t.b->header->closing, 1u, SB_RELAXED);
  expect_is(wait_for_row(), SB_STOPPING, "the status in a broker that is stopped");
  k->closed = true;
  expect_is(wait_for_row(), SB_CLOSED, "the status of a consumer that is closed");
  k->closed = false;
  SB_STORE(&t.c->closed, 1u, SB_RELAXED);
  expect_is(wait_for_row(), SB_CLOSED, "the status with a connection that is closed");
  k->row_end++;
  expect_is(wait_for_row(), SB_OK, "the status beside a message in the row");
  k->row_end--;
  close_queue();
  expect_is(wait_for_row(), SB_OK, "the status of a consumer whose queues are closed");
  expect_is(says.sleeps, 0, "how often it slept");
  SB_STORE(&t.c->closed, 0u, SB_RELAXED);
  SB_STORE(&t.b->header->closing, 0u, SB_RELAXED);
  open_again();
  expect_is(wait_for_row(), SB_TIMEOUT, "the status when nothing ends it");
}

static const test_case CASES[] = {
    {"waiter_row: answer", "a consumer that woke another thread after a rest sleeps at once", after_it_woke_another},
    {"waiter_row: found", "a consumer that spins pulls what comes", a_message_comes_while_it_spins},
    {"waiter_row: in vain", "a consumer that spun in vain is interested again", a_spin_in_vain},
    {"waiter_row: closed", "a consumer that is closed pulls nothing", a_consumer_that_is_closed_while_it_spins},
    {"waiter_row: connection", "with a closed connection nothing is pulled",
     a_connection_that_is_closed_while_it_spins},
    {"waiter_row: worth", "a consumer spins when it is alone, and can take a message", when_a_spin_is_worth_it},
    {"waiter_row: priority", "a consumer does not spin beside a better one", one_of_a_higher_priority_wants},
    {"waiter_row: two", "a consumer of two queues does not spin", a_consumer_of_two_queues},
    {"waiter_row: alone", "on one processor a consumer does not spin", no_spin_on_one_processor},
    {"waiter_row: sleep", "a thread sleeps until its deadline, or a signal", a_wait_that_times_out},
    {"waiter_row: woken", "a thread sleeps on until the row has a message", woken_in_vain},
    {"waiter_row: ends", "a message precedes all that ends a wait", what_ends_a_wait},
};
SUBJECT(CASES)
