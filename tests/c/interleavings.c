// SPDX-License-Identifier: Apache-2.0
/* Puts one actor into the middle of another's step, and looks at what must hold whatever came between.
 *
 * SB_TEST_HOOKS calls sb_test_step before every atomic operation and at every crash point. A case plans what happens there:
 * at a crash point, once; or anywhere. "Anywhere" repeats the case, with a fresh queue, for each step there is, and after
 * the last one; in a plan within a plan, for each pair. After each run the memory must be sound and all hints right.
 *
 *   interleavings [-v] [case ...]
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker_fixture.h"
#include "harness.h"
#include "sb_consumer.h"
#include "sb_housekeeping.h"
#include "sb_slab.h"

#define PROGRAM "interleave"
#define PLANS 2u
#define ANYWHERE "" /* the name of a source file: any step in it */
#define PRODUCERS 16
#define COMES_BACK_AT_MOST 200
#define RING(n) {(n), -1, -1, 0, 0}

typedef struct {
  sb_connection *c;
  sb_queue *q;
} actor;

typedef struct {
  const char *name, *holds;
  sb_settings settings;
  void (*run)(void);
} test_case;

static test_broker t;
static actor one, two, three, keeper; /* the step of `one` is interrupted */
static char *buffer, *held_a, *held_b;
static bool verbose;

/* ---- plans ---- */

static struct {
  const char *where;
  void (*what)(void); /* NULL: nothing is planned */
  uint64_t skip;      /* so many steps there */
  bool inside;
  unsigned depth;
  uint64_t choice[PLANS];
  bool anywhere[PLANS], reached[PLANS];
  const char *sites[PLANS];
} plan;

__attribute__((format(printf, 2, 3))) static void expect(bool holds, const char *format, ...) {
  if (holds || complaint[0] != 0) {
    return;
  }
  va_list list;
  va_start(list, format);
  int n = vsnprintf(complaint, sizeof complaint, format, list);
  va_end(list);
  for (unsigned i = 0; i < plan.depth && n >= 0 && (size_t)n < sizeof complaint; i++) {
    const char *site = plan.reached[i] ? plan.sites[i] : "the end", *file = strrchr(site, '/');
    n += snprintf(complaint + n, sizeof complaint - (size_t)n, "%s %s",
                  i == 0 ? "; interrupted before" : ", then before", file != NULL ? file + 1 : site);
  }
}

/* At the next such step, once, that happens. One thing is planned at a time; what happens may plan the next one. */
static void meanwhile(const char *where, void (*what)(void)) {
  if (plan.depth == PLANS) die("plans: no more than", (int)PLANS);
  plan.where = where;
  plan.what = what;
  plan.skip = plan.choice[plan.depth];
  plan.anywhere[plan.depth] = where[0] == 0 || strstr(where, ".c") != NULL;
  plan.reached[plan.depth++] = false;
}

static void happen(void) {
  void (*what)(void) = plan.what;
  bool before = plan.inside;
  plan.what = NULL;
  plan.inside = true;
  what();
  plan.inside = before;
}

void sb_test_step(const char *site) {
  if (plan.what == NULL || plan.inside) return;
  unsigned last = plan.depth - 1;
  if (plan.anywhere[last] ? strstr(site, plan.where) == NULL || plan.skip-- > 0 : strcmp(site, plan.where) != 0) return;
  plan.sites[last] = site;
  plan.reached[last] = true;
  happen();
}

/* The step is over. What was to happen anywhere, and was not reached, happens now. */
static void afterwards(void) {
  while (plan.what != NULL) {
    unsigned last = plan.depth - 1;
    expect(plan.anywhere[last] && (last > 0 || plan.choice[0] > 0), "%s was not reached", plan.where);
    happen();
  }
}

/* The next choice of steps: the last plan moves on; one that had no such step any more starts again, and that before it moves. */
static bool another(void) {
  for (unsigned i = plan.depth; i-- > 0;) {
    bool more = plan.reached[i] && plan.anywhere[i];
    plan.choice[i] = more ? plan.choice[i] + 1 : 0;
    if (more) return true;
  }
  return false;
}

/* ---- actors ---- */

static void join(actor *a) {
  if (a->c == NULL) a->c = connect_to(&t);
  t.c = a->c;
  a->q = open_queue(&t, "q");
}
static void put_by(actor *a, uint64_t id) { expect(put(&t, a->q, id) == SB_OK, "put %d failed", (int)id); }
static void put_small_by(actor *a, uint64_t id) {
  sb_put_options none = {0};
  expect(put_sized(&t, a->q, id, 8, &none) == SB_OK, "put %d failed", (int)id);
}
static uint64_t take(actor *a) { return get(&t, a->q, buffer, true); }

/* What is left, the oldest first, as a number: 234 are the messages 2, 3 and 4. */
static uint64_t left(void) {
  uint64_t all = 0, id;
  while ((id = take(&keeper)) != 0) all = all * 10 + id;
  return all;
}
static void expect_left(uint64_t should) {
  uint64_t is = left();
  expect(is == should, "left are %d, not %d", (int)is, (int)should);
}
static void expect_at_most(int64_t bound) {
  int64_t n = sb_length(keeper.q);
  expect(n <= bound, "the queue holds %d, not %d", (int)n, (int)bound);
}
static unsigned state_of(uint32_t node) {
  return sb_node_state(SB_LOAD(&((sb_node_shm *)sb_slot_at(t.b, node))->word, SB_SEQ_CST));
}

static sb_consumer *consume(actor *a, int32_t priority) {
  sb_status status;
  sb_consumer *k = sb_consume(a->c, &a->q, 1, 10, priority, 0, 0, &status);
  if (k == NULL) die("sb_consume", (int)status);
  return k;
}
static uint64_t next(sb_consumer *k) {
  if (sb_consumer_next(k, buffer, true) < 0) return 0;
  uint64_t id;
  memcpy(&id, buffer + sizeof(sb_record), sizeof id);
  return id;
}
static bool told(const sb_consumer *k) { return state_of(k->subscriptions[0].node) == SB_NODE_NOTIFIED; }
static bool asleep(sb_consumer *k) { return next(k) == 0 && !told(k); }

static uint64_t memory[16]; /* of the housekeeper */
static void tick(void) { sb_housekeeper_tick(keeper.c, keeper.q->slot, memory); }

/* ---- limits ---- */

static uint64_t got;
static sb_consumer *waiting;

static void reconcile(void) { (void)sb_upkeep_reconcile(t.b, keeper.q->shm); }
static void put_4_5(void) {
  put_by(&three, 4);
  put_by(&three, 5);
}
static void take_older(void) { got = take(&two); }

static void reconciled(void) {
  put_by(&one, 1);
  meanwhile(ANYWHERE, reconcile);
  put_by(&one, 2);
  afterwards();
  expect_left(2);
}

static void take_both(void) {
  expect(take(&two) == 1 && take(&two) == 2, "the consumers did not get 1 and 2");
  meanwhile(ANYWHERE, put_4_5);
}
static void none_found(void) {
  put_by(&one, 1);
  meanwhile("limits.evict.paid", take_both);
  put_by(&one, 2);
  afterwards();
  expect_at_most(1);
  expect_left(5);
}

static void empty_take(void) {
  meanwhile(ANYWHERE, put_4_5);
  got = take(&one);
  afterwards();
  expect_at_most(1);
  expect_left(got == 5 ? 0 : 5);
}

static void look_for_newest(void) {
  waiting = consume(&three, 0);
  got = next(waiting);
}
static void take_older_then_look(void) {
  expect(take(&two) == 1, "the consumer did not get the older one");
  meanwhile(ANYWHERE, look_for_newest);
}
static void newest_spared(void) {
  put_by(&one, 1);
  meanwhile("limits.evict.paid", take_older_then_look);
  put_by(&one, 2);
  afterwards();
  if (got == 0) {
    expect(told(waiting), "the consumer is not told of what was spared");
    got = next(waiting);
  }
  expect(got == 2, "the newest message was not delivered");
  sb_consumer_cancel(waiting, true);
  expect_left(0);
}

static void return_older(void) { expect(sb_settle(two.q, held_a, 1) == SB_OK, "nothing to return"); }
static void hold_older(void) {
  expect(get(&t, two.q, held_a, false) == 1, "the consumer did not get the older one");
  meanwhile(ANYWHERE, return_older);
}
static void older_returns(void) {
  put_by(&one, 1);
  meanwhile(keeper.q->shm->ring_size > 0 ? "limits.evict.paid" : "limits.evict.paid_bytes", hold_older);
  put_by(&one, 2);
  afterwards();
  expect_at_most(1);
  expect_left(2);
}

static void older_stays_away(void) {
  put_by(&one, 1);
  meanwhile(ANYWHERE, take_older);
  put_by(&one, 2);
  afterwards();
  expect_left(got == 2 ? 0 : 2);
}

static void put_2_to_5(void) {
  for (uint64_t id = 2; id <= 5; id++) put_by(&two, id);
}
static void bytes_taken(void) {
  put_by(&one, 1);
  meanwhile(ANYWHERE, put_2_to_5);
  got = take(&one);
  afterwards();
  expect_at_most(1);
  expect_left(got == 5 ? 0 : 5);
}

static int64_t ready_bytes(void) { return (int64_t)(keeper.q->shm->bytes_in - keeper.q->shm->bytes_out); }
static void delayed(void) {
  sb_put_options delay = {.delay_ns = 1};
  for (uint64_t id = 1; id <= 15; id++) {
    expect(put_sized(&t, one.q, id, 64, &delay) == SB_OK, "delayed message %d does not fit", (int)id);
    while (sb_housekeeper_look_at(keeper.q, keeper.q->shm->tail - 1) != 0) {
    }
    expect(ready_bytes() == 64, "due are %d bytes", (int)ready_bytes());
    expect(take(&two) == id && ready_bytes() == 0, "%d bytes after message %d", (int)ready_bytes(), (int)id);
  }
  for (uint64_t id = 1; id <= 15; id++) put_by(&one, id % 9 + 1);
  expect(put(&t, one.q, 16) == SB_FULL, "16 messages of 64 bytes fit into 1000");
  (void)left();
}

static void put_3_4(void) {
  put_small_by(&three, 3);
  put_small_by(&three, 4);
}
static void take_older_then_put(void) {
  take_older();
  meanwhile(ANYWHERE, put_3_4);
}
static void spared_by_bytes(void) {
  put_by(&one, 1);
  meanwhile("limits.evict.paid_bytes", take_older_then_put);
  put_by(&one, 2);
  afterwards();
  expect_at_most(2);
  expect_left(34);
}

static void put_9(void) { put_by(&three, 9); }
static void put_8_then_9(void) {
  put_by(&two, 8);
  meanwhile(ANYWHERE, put_9);
}
static void purge_puts_back(void) {
  put_by(&one, 1);
  meanwhile("queue.settle.dropped", put_8_then_9);
  expect(sb_purge(one.q) == 1, "the purge removed more than there was");
  afterwards();
  expect_at_most(1);
  expect_left(9);
}

static void shrunk_lazily(void) {
  int32_t holder;
  sb_settings smaller = RING(1);
  for (uint64_t id = 1; id <= 5; id++) put_by(&one, id);
  (void)sb_configure(keeper.q, &smaller, false, FOREVER, &holder);
  meanwhile(ANYWHERE, take_older);
  put_by(&one, 6);
  afterwards();
  uint64_t is = left(); /* one was taken, and at most one evicted, in whichever order */
  expect(is == 3456 || is == 23456, "left are %d, not 3456", (int)is);
}

/* ---- who is told ---- */

static void return_both(void) {
  expect(sb_settle(one.q, held_a, 1) == SB_OK && sb_settle(one.q, held_b, 1) == SB_OK, "nothing to return");
}
static void look_once(void) { (void)sb_consumer_next(waiting, buffer, false); }
static void return_both_then_look(void) {
  return_both();
  meanwhile(ANYWHERE, look_once);
}
/* Both lie in the first of three leaves, before everybody's cursor. A stale bit in the root leads there. */
static void cleared_in_vain(void) {
  for (int i = 0; i < 130; i++) put_by(&one, 1);
  (void)get(&t, one.q, held_a, false);
  (void)get(&t, one.q, held_b, false);
  for (int i = 0; i < 128; i++) (void)take(&one);
  waiting = consume(&three, 0);
  (void)sb_settle(one.q, held_a, 1);
  (void)get(&t, one.q, held_a, false);
  meanwhile("sb_returned.c", return_both_then_look);
  (void)get(&t, two.q, buffer, true);
  afterwards();
  int64_t ready = sb_length(keeper.q);
  expect(ready == 0 || told(waiting), "%d messages are ready, and the consumer sleeps", (int)ready);
  sb_consumer_cancel(waiting, true);
  (void)left();
}

static void end_here(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}
static void be_killed_suspending(void) {
  actor victim = {0};
  attach(&t);
  join(&victim);
  sb_consumer *high = consume(&victim, 5);
  (void)next(high);
  meanwhile(ANYWHERE, end_here);
  sb_consumer_suspend(high, true);
  _exit(0);
}
static void count_too_high(void) {
  int status;
  uint64_t n = 0;
  pid_t pid = fork();
  if (pid == 0) be_killed_suspending();
  (void)waitpid(pid, &status, 0);
  meanwhile(ANYWHERE, end_here); /* as the child did */
  plan.what = NULL;
  plan.reached[0] = WIFSIGNALED(status);
  plan.sites[0] = "a step of the one that was killed";
  waiting = consume(&one, 0);
  expect(asleep(waiting), "there is no message, and the consumer is told");
  while (sb_recover(keeper.c) > 0) {
  }
  for (uint64_t id = 1; id <= 9; id++) put_by(&two, id);
  expect(told(waiting), "the consumer is not told");
  while (next(waiting) != 0) n++;
  expect(n == 9, "the consumer gets %d of 9", (int)n);
  for (int i = 0; i < 8; i++) tick(); /* which sets the count right at last */
  sb_consumer_cancel(waiting, true);
}

static struct {
  uint32_t node;
  uint64_t token;
} producers[PRODUCERS];
static unsigned woken;

static void wait_for_room(actor *a, unsigned i) {
  sb_status status = sb_node_create(a->c, a->q->slot, 0, SB_NODE_DIRECT | SB_NODE_ROOM, 0, 64, &producers[i].node,
                                    &producers[i].token);
  if (status != SB_OK) die("sb_node_create", (int)status);
  (void)sb_node_move(a->c, producers[i].node, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED);
}
static void stop_waiting(actor *a, unsigned i) { sb_node_destroy(a->c, producers[i].node, producers[i].token); }

/* Whoever is woken tries, finds no room, and waits again, before the one that wakes goes on. */
static void come_back(void) {
  for (unsigned i = 0; i < PRODUCERS && woken < COMES_BACK_AT_MOST; i++)
    woken += sb_node_move(two.c, producers[i].node, SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED);
  plan.depth = 0;
  meanwhile("nodes.move.moved", come_back);
}
static void configured(void) {
  int32_t holder;
  sb_settings same = {-1, 1, -1, 0, 0};
  put_by(&one, 1);
  for (unsigned i = 0; i < PRODUCERS; i++) wait_for_room(&two, i);
  woken = 0;
  meanwhile("nodes.move.moved", come_back);
  (void)sb_configure(one.q, &same, false, FOREVER, &holder);
  plan.what = NULL;
  expect(woken == PRODUCERS, "%u were woken, %d wait", woken, PRODUCERS);
  for (unsigned i = 0; i < PRODUCERS; i++) {
    expect(((sb_node_shm *)sb_slot_at(t.b, producers[i].node))->wakes == 1, "producer %u was not woken once", i);
    stop_waiting(&two, i);
  }
  expect_left(1);
}

static void tick_in_between(void) {
  waiting = consume(&two, 0);
  for (int i = 0; i < 3; i++) tick();
  expect(asleep(waiting), "there is no message, and the consumer is told");
  meanwhile(ANYWHERE, tick);
  put_by(&one, 7);
  afterwards();
  expect(told(waiting), "the consumer is not told");
  expect(keeper.q->shm->rescues == 0, "%d rescues were counted", (int)keeper.q->shm->rescues);
  expect(next(waiting) == 7, "the message was not delivered");
  sb_consumer_cancel(waiting, true);
}

/* A producer that is halted before it has told anybody of its message, and is not reaped yet. */
static int halting;
static void halt_here(void) {
  kill(getpid(), halting);
  for (;;) pause();
}
static void be_halted_putting(void) {
  actor victim = {0};
  attach(&t);
  join(&victim);
  meanwhile("sb_consumer.c", halt_here);
  put_by(&victim, 7);
  _exit(0);
}
static void notifier_halted(int by) {
  int status;
  halting = by;
  waiting = consume(&two, 0);
  expect(asleep(waiting), "there is no message, and the consumer is told");
  pid_t pid = fork();
  if (pid == 0) be_halted_putting();
  (void)waitpid(pid, &status, WUNTRACED);
  meanwhile("sb_consumer.c", halt_here); /* as the child did */
  plan.what = NULL;
  plan.reached[0] = !WIFEXITED(status);
  plan.sites[0] = "a step of the one that was halted";
  for (int i = 0; i < 4; i++) tick();
  bool was_told = told(waiting);
  expect(next(waiting) == 0 || was_told, "the consumer sleeps beside a message");
  expect(t.b->header->rescues == 0, "what somebody halted did not do counts as a defect");
  if (WIFSTOPPED(status)) {
    kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
  }
  while (sb_recover(keeper.c) > 0) {
  }
  sb_consumer_cancel(waiting, true);
  (void)left();
}
static void notifier_killed(void) { notifier_halted(SIGKILL); }
static void notifier_stopped(void) { notifier_halted(SIGSTOP); }

static sb_subscription be_interested(actor *a) { /* and not have looked yet */
  sb_subscription s = {a->q, 0, 0};
  sb_status status = sb_node_create(a->c, a->q->slot, 0, SB_NODE_DIRECT, 0, 1, &s.node, &s.token);
  if (status != SB_OK) die("sb_node_create", (int)status);
  (void)sb_node_move(a->c, s.node, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED);
  return s;
}
static void came_since(void) {
  put_by(&one, 1);
  sb_subscription first = be_interested(&two);
  tick();
  sb_node_destroy(two.c, first.node, first.token);
  sb_subscription second = be_interested(&three);
  tick();
  expect(keeper.q->shm->rescues == 0, "one that is about to look is rescued");
  tick();
  expect(keeper.q->shm->rescues == 1 && t.b->header->rescues == 1, "one that sleeps beside a message is not rescued");
  expect(state_of(second.node) == SB_NODE_NOTIFIED, "one that was rescued is not notified");
  sb_node_destroy(three.c, second.node, second.token);
}

/* The rings of a queue begin where those of the last one in its memory ended: without an entry, behind the cursor. */
static void used_again(void) {
  sb_settings freely = FREELY;
  sb_put_options delayed = {.delay_ns = 1};
  uint64_t cursors[3] = {0}, positions[4], removed;
  int32_t holder;
  sb_queue *q = NULL;
  t.c = keeper.c;
  for (int i = 0; q == NULL || (i < 1000 && q->shm->schedule.base == 0); i++) {
    if (q != NULL) {
      (void)sb_delete(q, false, false, FOREVER, &holder, &removed);
      (void)sb_leave(q);
      (void)sb_housekeeper_sweep(keeper.c, FOREVER);
    }
    if (declare(&t, "again", freely) != SB_OK || (q = open_queue(&t, "again")) == NULL) die("opening a queue", 0);
  }
  expect(q->shm->schedule.base != 0, "no memory was used again");
  expect(sb_housekeeping_timers(q, cursors, positions, 4) == 0, "there is a timer");
  expect(!sb_housekeeping_has_timers(q, cursors), "the housekeeper looks for timers for ever");
  expect(put_sized(&t, q, 1, 64, &delayed) == SB_OK, "put failed");
  expect(sb_housekeeping_has_timers(q, cursors), "the timer is not seen");
  expect(sb_housekeeping_timers(q, cursors, positions, 4) == 1, "the timer is not found");
  expect(!sb_housekeeping_has_timers(q, cursors), "the timer is found again");
  (void)sb_delete(q, false, false, FOREVER, &holder, &removed);
  (void)sb_leave(q);
}

/* The first page of the queue is finished, and its memory used for other pages. */
static void go_round(void) {
  while (take(&two) != 0) {
  }
  for (int i = 0; i < 70 * 64; i++) {
    put_small_by(&two, 1);
    (void)take(&two);
  }
}
static void scanned_meanwhile(void) {
  sb_put_options delayed = {.delay_ns = 1};
  uint64_t cursors[3] = {0}, positions[4];
  for (int i = 0; i < 64; i++) put_small_by(&one, 1);
  expect(put_sized(&t, one.q, 2, 64, &delayed) == SB_OK, "put failed");
  (void)sb_housekeeping_timers(keeper.q, cursors, positions, 4);
  (void)SB_ADD(&keeper.q->shm->timers_lost, 1, SB_RELEASE); /* as if it had no entry in the schedule */
  meanwhile("sb_housekeeping.c", go_round);
  uint32_t found = sb_housekeeping_timers(keeper.q, cursors, positions, 4);
  afterwards();
  while (cursors[1] != 0) found += sb_housekeeping_timers(keeper.q, cursors, positions, 4);
  expect(found >= 1, "the timer that was lost is not found");
}

static void producer_stopped(void) {
  put_by(&one, 1);
  wait_for_room(&two, 0);
  wait_for_room(&three, 1);
  tick();
  expect(state_of(producers[0].node) == SB_NODE_INTERESTED && state_of(producers[1].node) == SB_NODE_INTERESTED,
         "somebody is told of room, and there is none");
  (void)take(&one);
  expect(state_of(producers[0].node) == SB_NODE_NOTIFIED, "the first is not told of room");
  expect(state_of(producers[1].node) == SB_NODE_INTERESTED, "both are told of the same room");
  tick(); /* the first does nothing */
  expect(state_of(producers[1].node) == SB_NODE_NOTIFIED, "the second is not told of room that the first does not use");
  stop_waiting(&two, 0);
  stop_waiting(&three, 1);
}

static const test_case CASES[] = {
    {"reconciled", "hints are set right beside a payer: the newest message stays", RING(1), reconciled},
    {"none found", "the payer finds none, and others put: the bound holds", RING(1), none_found},
    {"empty take", "a take finds none, and others put: the bound holds", RING(1), empty_take},
    {"newest spared", "a consumer took the older one: the newest is spared, and delivered", RING(1), newest_spared},
    {"older returns", "a consumer took the older one, and returns it: the newest stays", RING(1), older_returns},
    {"older returns, bytes",
     "the same where bytes are limited",
     {-1, -1, 100, SB_OVERFLOW_DROP_HEAD, 0},
     older_returns},
    {"older stays away", "a consumer takes the newest from beside an eviction: no older one comes back", RING(1),
     older_stays_away},
    {"bytes taken",
     "puts beside a consumer do not evict themselves",
     {-1, -1, 100, SB_OVERFLOW_DROP_HEAD, 0},
     bytes_taken},
    {"delayed", "delayed messages leave the account of bytes as it was", {-1, -1, 1000, 0, 0}, delayed},
    {"spared by bytes",
     "an eviction by bytes is taken back, a put relied on it: the bound holds",
     {2, -1, 100, SB_OVERFLOW_DROP_HEAD, 0},
     spared_by_bytes},
    {"purge puts back", "a purge puts back what came later, beside a put: the bound holds", RING(1), purge_puts_back},
    {"shrunk lazily", "a put to a ring that was shrunk lazily evicts one, also beside a consumer", FREELY,
     shrunk_lazily},
    {"cleared in vain", "messages that came back while a bit was cleared do not wait for a consumer that sleeps",
     FREELY, cleared_in_vain},
    {"count too high", "the count of a level that a death left too high holds nobody back", FREELY, count_too_high},
    {"configured", "configuring wakes each producer that waits for room once", {-1, 1, -1, 0, 0}, configured},
    {"tick in between", "a tick between a message and its notification is no rescue", FREELY, tick_in_between},
    {"notifier killed", "what a dead producer did not tell is told, and no sign of a defect", FREELY, notifier_killed},
    {"notifier stopped", "the same of a stopped one", FREELY, notifier_stopped},
    {"came since", "only who has slept for a whole tick is rescued", FREELY, came_since},
    {"used again", "a queue in the memory of another one has no timers to look for", FREELY, used_again},
    {"scanned meanwhile", "a scan for lost timers goes on when a page is used again", FREELY, scanned_meanwhile},
    {"producer stopped",
     "a tick tells another producer of room that the first does not use",
     {-1, 1, -1, 0, 0},
     producer_stopped},
};

/* ---- running them ---- */

static void expect_sound(void) {
  const char *found = findings(keeper.c);
  if (found != NULL) expect(false, "%s", found);
}

static void once(const test_case *k) {
  actor *all[] = {&one, &two, &three, &keeper};
  int32_t holder;
  uint64_t removed;
  t.c = keeper.c;
  sb_status status = declare(&t, "q", k->settings);
  if (status != SB_OK) die("sb_declare", (int)status);
  for (int i = 0; i < 4; i++) join(all[i]);
  got = 0;
  plan.depth = 0;
  memset(memory, 0, sizeof memory);
  k->run();
  plan.what = NULL;
  expect_sound();
  (void)sb_delete(keeper.q, false, false, FOREVER, &holder, &removed);
  for (int i = 0; i < 4; i++) (void)sb_leave(all[i]->q);
  (void)sb_housekeeper_sweep(keeper.c, FOREVER);
}

static int run_case(void *which) {
  const test_case *k = which;
  char name[64];
  uint64_t runs = 0;
  name_apart(name, sizeof name, PROGRAM);
  make_broker(&t, name, 48);
  attach(&t);
  keeper.c = connect_to(&t);
  do {
    once(k);
    runs++;
  } while (complaint[0] == 0 && another());
  remove_files(t.path);
  if (complaint[0] != 0) {
    printf("FAIL %s: %s: %s\n", k->name, k->holds, complaint);
  } else if (verbose) {
    printf("ok   %s: %s (%llu interleavings)\n", k->name, k->holds, (unsigned long long)runs);
  } else {
    printf("ok   %s: %s\n", k->name, k->holds);
  }
  return complaint[0] != 0;
}

static bool guarded(test_case k) {
  int signal_number, result = apart(PROGRAM, 100, run_case, &k, &signal_number);
  if (signal_number != 0) printf("FAIL %s: %s: signal %d\n", k.name, k.holds, signal_number);
  return result == 0;
}

int main(int count, char **arguments) {
  unsigned passed = 0, failed = 0;
  count--;
  arguments++;
  if (count > 0 && strcmp(arguments[0], "-v") == 0) {
    verbose = true;
    count--;
    arguments++;
  }
  buffer = malloc(BUFFER);
  held_a = malloc(BUFFER);
  held_b = malloc(BUFFER);
  for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
    if (!asked_for(CASES[i].name, count, arguments)) continue;
    bool good = guarded(CASES[i]);
    passed += good;
    failed += !good;
  }
  printf("%u passed, %u failed\n", passed, failed);
  return failed != 0 || passed == 0;
}
