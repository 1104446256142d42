// SPDX-License-Identifier: Apache-2.0
/* Cases of notifications: consumers and producers that wait, notifications that other actors missed, and what the
 * housekeeper finds. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_housekeeping.h"
#include "sb_io.h"
#include "sb_liveness.h"
#include "sb_stopped.h"

#define PRODUCERS 16
#define COMES_BACK_AT_MOST 200

static void return_both(void) {
  expect(sb_queue_settle(one.q, held_a, SB_REQUEUE) == SB_OK && sb_queue_settle(one.q, held_b, SB_REQUEUE) == SB_OK,
         "nothing to return");
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
  (void)sb_queue_settle(one.q, held_a, SB_REQUEUE);
  (void)get(&t, one.q, held_a, false);
  meanwhile("sb_requeued.c", return_both_then_look);
  (void)get(&t, two.q, buffer, true);
  afterwards();
  int64_t ready = sb_queue_length(keeper.q);
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
  while (sb_housekeeper_reap(keeper.c) > 0) {
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

/* A producer that is woken tries, finds no room, and waits again, before its waker continues. */
static void come_back(void) {
  for (unsigned i = 0; i < PRODUCERS && woken < COMES_BACK_AT_MOST; i++)
    woken += sb_node_move(two.c, producers[i].node, SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED);
  plan.depth = 0;
  meanwhile("nodes.move.moved", come_back);
}
static void configured(void) {
  int32_t holder;
  sb_settings same = {{-1, 1, -1, 0, -1, -1}, 0};
  put_by(&one, 1);
  for (unsigned i = 0; i < PRODUCERS; i++) wait_for_room(&two, i);
  woken = 0;
  meanwhile("nodes.move.moved", come_back);
  (void)sb_queue_configure(one.q, &same, false, FOREVER, &holder);
  plan.what = NULL;
  expect(woken == PRODUCERS, "%u were woken, %d wait", woken, PRODUCERS);
  for (unsigned i = 0; i < PRODUCERS; i++) {
    expect(((sb_node_shm *)sb_slot_at(t.b, producers[i].node))->wakes == 1, "producer %u was not woken once", i);
    stop_waiting(&two, i);
  }
  expect_left(1);
}

/* Two consumers that run take what comes as fast as it comes: each is a new entry of its list at every look. */
static sb_consumer *busy_ones[2];
static unsigned visits;
static void be_told_and_done(void) {
  const actor *owners[] = {&two, &three};
  for (unsigned i = 0; i < 2; i++) {
    uint32_t node = busy_ones[i]->subscriptions[0].node;
    (void)sb_node_move(owners[i]->c, node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED);
    (void)sb_node_move(owners[i]->c, node, SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED);
  }
  if (++visits < COMES_BACK_AT_MOST) {
    plan.depth = 0;
    meanwhile("stopped.visited", be_told_and_done);
  }
}
static void parked_beside_traffic(void) {
  busy_ones[0] = consume(&two, 0);
  busy_ones[1] = consume(&three, 0);
  for (unsigned i = 0; i < 2; i++) (void)next(busy_ones[i]);
  visits = 0;
  meanwhile("stopped.visited", be_told_and_done);
  expect(sb_stopped_park(keeper.c, keeper.q->slot) == 0, "somebody is parked who runs");
  plan.what = NULL;
  expect(visits > 0 && visits <= 3, "%u visits to two consumers", visits);
  for (unsigned i = 0; i < 2; i++) sb_consumer_cancel(busy_ones[i], true);
}

/* A consumer of a higher priority, whose process is stopped. */
static void be_stopped_consuming(int announce) {
  actor victim = {0};
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  attach(&t);
  join(&victim);
  sb_consumer *high = consume(&victim, 5);
  (void)next(high);
  uint32_t node = high->subscriptions[0].node;
  ssize_t written = write(announce, &node, sizeof node);
  (void)written;
  for (;;) kill(getpid(), SIGSTOP);
}
static void parked_and_told(void) {
  uint32_t node = 0;
  int status, announced[2];
  if (pipe(announced) != 0) die("pipe", 0);
  pid_t pid = fork();
  if (pid == 0) be_stopped_consuming(announced[1]);
  (void)close(announced[1]);
  if (read(announced[0], &node, sizeof node) != sizeof node || waitpid(pid, &status, WUNTRACED) != pid)
    die("the consumer did not stop", 0);
  (void)close(announced[0]);
  const sb_node_shm *n = sb_slot_at(t.b, node);
  uint64_t wakes = n->wakes;
  expect(sb_stopped_park(keeper.c, keeper.q->slot) == 0, "the only consumer is parked");
  waiting = consume(&two, 0);
  expect(asleep(waiting), "there is no message, and the consumer is told");
  expect(sb_stopped_park(keeper.c, keeper.q->slot) == 1, "the one that is stopped is not parked");
  expect(state_of(node) == SB_NODE_NOT_INTERESTED, "the one that is parked is in state %u", state_of(node));
  expect(n->wakes == wakes + 1 && n->flagged == 1, "the one that is parked is not told");
  (void)kill(pid, SIGKILL);
  (void)waitpid(pid, NULL, 0);
  while (sb_housekeeper_reap(keeper.c) > 0) {
  }
  sb_consumer_cancel(waiting, true);
}

/* How many steps the lock was held at most, without a break. */
static uint64_t held_for, held_longest;
static void look_at_lock(void) {
  held_for = SB_LOAD(&keeper.c->lock, SB_RELAXED) != 0 ? held_for + 1 : 0;
  if (held_for > held_longest) held_longest = held_for;
  plan.depth = 0;
  meanwhile(ANYWHERE, look_at_lock);
}
static void visited_in_steps(void) {
  sb_settings freely = FREELY;
  char name[16];
  for (int i = 0; i < 300; i++) {
    snprintf(name, sizeof name, "many%d", i);
    if (declare(&t, name, freely) != SB_OK) die("sb_queue_declare", i);
  }
  held_for = held_longest = 0;
  uint64_t before = steps_so_far;
  meanwhile(ANYWHERE, look_at_lock);
  sb_io_visit_stopped(keeper.c);
  plan.what = NULL;
  plan.depth = 0;
  uint64_t all = steps_so_far - before;
  expect(held_longest > 0 && held_longest * 16 < all, "the lock is held for %d of %d steps", (int)held_longest,
         (int)all);
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
enum { SLEEPS = 0, SPINS = -1 }; /* or a signal that halts it */
static int halting, reached[2];
static void halt_here(void) {
  if (halting > 0) kill(getpid(), halting);
  ssize_t written = write(reached[1], "!", 1);
  (void)written;
  while (halting == SPINS) {
  }
  for (;;) pause();
}
static void be_halted_putting(void) {
  actor victim = {0};
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)close(reached[0]);
  attach(&t);
  join(&victim);
  meanwhile("sb_notify.c", halt_here);
  put_by(&victim, 7);
  _exit(0);
}
static bool sleeps(pid_t pid) {
  while (sb_process_look(pid).state != 'S') (void)usleep(1000);
  return true;
}
/* Whether the child is where it stays: otherwise it has ended, and so the place in the plan was not reached. */
static bool is_halted(pid_t pid) {
  int status;
  char byte;
  if (halting > 0) return waitpid(pid, &status, WUNTRACED) == pid && !WIFEXITED(status);
  bool there = read(reached[0], &byte, 1) == 1;
  return there ? halting == SPINS || sleeps(pid) : (void)waitpid(pid, &status, 0), there;
}
static void notifier_halted(int by) {
  halting = by;
  uint64_t defects = t.b->header->rescues, explained = t.b->header->stopped_rescues;
  waiting = consume(&two, 0);
  expect(asleep(waiting), "there is no message, and the consumer is told");
  if (pipe(reached) != 0) die("pipe", 0);
  pid_t pid = fork();
  if (pid == 0) be_halted_putting();
  (void)close(reached[1]);
  bool halted = is_halted(pid);
  meanwhile("sb_notify.c", halt_here); /* as the child did */
  plan.what = NULL;
  plan.reached[0] = halted;
  plan.sites[0] = "a step of the one that was halted";
  for (int i = 0; i < 4; i++) tick();
  bool was_told = told(waiting);
  expect(next(waiting) == 0 || was_told, "the consumer sleeps beside a message");
  uint64_t rescues = keeper.q->shm->rescues;
  expect(t.b->header->rescues - defects == (by == SLEEPS ? rescues : 0),
         "a rescue is no defect just if somebody could not tell");
  expect(t.b->header->stopped_rescues - explained == (by == SLEEPS ? 0 : rescues), "a rescue is not counted");
  if (halted && by != SIGKILL) {
    kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
  }
  (void)close(reached[0]);
  while (sb_housekeeper_reap(keeper.c) > 0) {
  }
  sb_consumer_cancel(waiting, true);
  (void)left();
}
static void notifier_killed(void) { notifier_halted(SIGKILL); }
static void notifier_stopped(void) { notifier_halted(SIGSTOP); }
static void notifier_held_up(void) { notifier_halted(SPINS); }
static void notifier_forgot(void) { notifier_halted(SLEEPS); }

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
      (void)sb_queue_delete(q, false, false, FOREVER, &holder, &removed);
      (void)sb_queue_close(q);
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
  (void)sb_queue_delete(q, false, false, FOREVER, &holder, &removed);
  (void)sb_queue_close(q);
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
    {"cleared in vain", "messages that came back while a bit was cleared do not wait for a consumer that sleeps",
     FREELY, cleared_in_vain},
    {"count too high", "the count of a level that a death left too high holds nobody back", FREELY, count_too_high},
    {"configured", "configuring wakes each producer that waits for room once", {{-1, 1, -1, 0, -1, -1}, 0}, configured},
    {"tick in between", "a tick between a message and its notification is no rescue", FREELY, tick_in_between},
    {"parked beside traffic", "who looks for consumers of stopped processes comes to an end", FREELY,
     parked_beside_traffic},
    {"parked, told", "a consumer of a stopped process is parked, and told of it, if there is another one", FREELY,
     parked_and_told},
    {"notifier killed", "what a dead producer did not tell is told, and no sign of a defect", FREELY, notifier_killed},
    {"visited in steps", "who visits all queues gives the lock back after a few", FREELY, visited_in_steps},
    {"notifier stopped", "the same of a stopped one", FREELY, notifier_stopped},
    {"notifier held up", "the same of one that runs, or would if the machine let it", FREELY, notifier_held_up},
    {"notifier forgot", "what one did not tell that sleeps is a sign of a defect", FREELY, notifier_forgot},
    {"came since", "only who has slept for a whole tick is rescued", FREELY, came_since},
    {"used again", "a queue in the memory of another one has no timers to look for", FREELY, used_again},
    {"scanned meanwhile", "a scan for lost timers goes on when a page is used again", FREELY, scanned_meanwhile},
    {"producer stopped",
     "a tick tells another producer of room that the first does not use",
     {{-1, 1, -1, 0, -1, -1}, 0},
     producer_stopped},
};
const subject TOLD_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
