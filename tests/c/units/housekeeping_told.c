// SPDX-License-Identifier: Apache-2.0
/* sb_housekeeping: the sleeping consumers and producers that a tick notifies of messages and of room. */
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "sb_slab.h"
#include "ticks.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define WATCH 0u /* flags of a node that only tells its program */
#define UNTOUCHED 77u
#define MAX_LEVELS 4096u

static sb_queue *q;
static uint32_t first; /* the node of most cases */

static uint32_t node_in(uint32_t flags, int32_t priority, unsigned state) {
  uint32_t node = node_with(flags, priority);
  if (state != SB_NODE_NOT_INTERESTED) move_to(node, state);
  return node;
}
/* Two messages of which no consumer was notified, and a node. */
static void begin(uint32_t flags, unsigned state) {
  q = begin_ticks(FREE_SETTINGS);
  (void)put(&t, q, 1);
  (void)put(&t, q, 2);
  first = node_in(flags, 0, state);
}
static uint64_t entry_of(uint32_t node) {
  const sb_node_shm *n = sb_slot_at(t.b, node);
  return sb_entry_word(node, sb_node_epoch(n->word));
}
static void expect_rescues(uint64_t all, uint64_t of_stopped) {
  expect_is(q->shm->rescues, all, "the rescues of the queue");
  expect_is(t.b->header->rescues, all - of_stopped, "the rescues of the broker");
  expect_is(t.b->header->stopped_rescues, of_stopped, "the rescues beside stopped processes");
}

/* At the second step of sb_repairs.c: the first one of a tick is its own. */
static void (*happens)(void);
static unsigned steps;
static void at_second_look(const char *site) {
  if (strstr(site, "sb_repairs.c") != NULL && ++steps == 2) {
    at_step = NULL;
    happens();
  }
}
static void tick_while(void (*what)(void)) {
  happens = what;
  steps = 0;
  at_step = at_second_look;
  tick_queue();
  at_step = NULL;
  expect(steps >= 2, "it did not happen");
}

/* ---- a consumer that was forgotten ---- */

static void a_consumer_is_told(void) {
  begin(SB_NODE_DIRECT, SB_NODE_INTERESTED);
  tick_queue();
  expect_is(remembered.known_tail, q->base + 2, "the tail that is known");
  expect_is(remembered.sleeper, entry_of(first), "who would be told");
  expect_is(node_state(first), SB_NODE_INTERESTED, "the state of its node after a tick");
  tick_queue();
  expect_is(node_state(first), SB_NODE_NOTIFIED, "the state of its node");
  expect_is(node_wakes(first), 1, "how often it was rung");
  expect_rescues(1, 0);
  expect_repairs(0, 0);
}
/* What came since the last tick its producer may be about to tell of. */
static void a_message_that_is_new(void) {
  begin(SB_NODE_DIRECT, SB_NODE_NOTIFIED);
  tick_queue();
  expect_is(node_wakes(first), 0, "how often a consumer was rung for what is new");
  expect_repairs(0, 0);
}
static void when_nobody_is_to_be_told(void) {
  begin(SB_NODE_DIRECT, SB_NODE_NOT_INTERESTED);
  remembered.known_tail = UNTOUCHED;
  tick_queue();
  expect_is(remembered.known_tail, UNTOUCHED, "the tail where nobody is interested");
  move_to(first, SB_NODE_INTERESTED);
  (void)SB_OR(&q->shm->flags, SB_QUEUE_PAUSED, SB_RELAXED);
  tick_queue();
  expect_is(remembered.known_tail, UNTOUCHED, "the tail of a queue that is paused");
  (void)SB_AND(&q->shm->flags, ~(uint32_t)SB_QUEUE_PAUSED, SB_RELAXED);
  SB_STORE(&q->shm->last_take, 1, SB_RELAXED);
  tick_queue();
  expect_is(remembered.known_tail, UNTOUCHED, "the tail while messages are taken");
  tick_queue();
  expect_is(remembered.known_tail, q->base + 2, "the tail when no more are taken");
  remembered.known_tail = UNTOUCHED;
  move_to(first, SB_NODE_NOTIFIED);
  tick_queue();
  expect_is(remembered.known_tail, q->base + 2, "the tail where one was notified");
}
static void a_consumer_that_came_lately(void) {
  begin(SB_NODE_DIRECT, SB_NODE_INTERESTED);
  tick_queue();
  move_to(first, SB_NODE_NOT_INTERESTED);
  move_to(first, SB_NODE_INTERESTED); /* it came back: it has looked itself */
  tick_queue();
  expect_is(node_state(first), SB_NODE_INTERESTED, "the state of its node");
  expect_rescues(0, 0);
}
static void the_lowest_level(void) {
  begin(SB_NODE_DIRECT, SB_NODE_INTERESTED);
  (void)node_in(SB_NODE_DIRECT, 1, SB_NODE_NOT_INTERESTED);
  tick_queue();
  expect_is(remembered.sleeper, entry_of(first), "who would be told");
  tick_queue();
  expect_is(node_state(first), SB_NODE_NOTIFIED, "the state of its node");
}

/* ---- a consumer that was told ---- */

static void one_that_was_told_is_rung(void) {
  begin(SB_NODE_DIRECT, SB_NODE_NOTIFIED);
  (void)node_in(SB_NODE_DIRECT, 1, SB_NODE_NOT_INTERESTED); /* its level comes before */
  uint32_t watch = node_in(WATCH, 0, SB_NODE_NOTIFIED);
  tick_queue();
  tick_queue();
  expect_is(node_wakes(first), 1, "how often it was rung");
  expect_is(node_wakes(watch), 1, "how often a watch was rung");
  expect_repairs(OF_NOTIFICATION, 0);
  expect_rescues(0, 0);
}
/* The program of a watch may do nothing for long. */
static void a_watch_that_was_told(void) {
  begin(WATCH, SB_NODE_NOTIFIED);
  tick_queue();
  tick_queue();
  expect_is(node_wakes(first), 1, "how often it was rung");
  expect_repairs(0, 0);
}
static void one_that_was_told_after_a_death(void) {
  begin(SB_NODE_COUNTED, SB_NODE_NOTIFIED);
  set_deaths(DEATHS);
  tick_queue();
  tick_queue();
  expect_repairs(0, OF_NOTIFICATION);
}
/* A chain of levels that bites its tail: each is looked at so often, and no more. */
static void levels_that_bite(void) {
  begin(WATCH, SB_NODE_NOTIFIED);
  uint32_t level = q->shm->consumer_levels;
  SB_STORE(&sb_consumer_level_at(t.b, level)->next, level, SB_RELAXED);
  tick_queue();
  tick_queue();
  expect_is(node_wakes(first), MAX_LEVELS, "how often it was rung");
  SB_STORE(&sb_consumer_level_at(t.b, level)->next, 0u, SB_RELAXED);
}

/* ---- what changes while processes are looked at ---- */

static uint32_t second;
static void takes_all(void) {
  take_from(q);
  take_from(q);
}
static void first_gives_up(void) { move_to(first, SB_NODE_NOT_INTERESTED); }
static void second_comes(void) { move_to(second, SB_NODE_INTERESTED); }
static void messages_that_were_taken(void) {
  if (!has_steps()) return;
  begin(SB_NODE_DIRECT, SB_NODE_NOTIFIED);
  tick_queue();
  tick_while(takes_all);
  expect_repairs(0, 0);
}
static void one_that_gave_up(void) {
  if (!has_steps()) return;
  begin(SB_NODE_DIRECT, SB_NODE_NOTIFIED);
  tick_queue();
  tick_while(first_gives_up);
  expect_repairs(0, 0);
}
/* One that has been interested for less than a tick looks for itself. */
static void one_that_comes(void) {
  if (!has_steps()) return;
  begin(SB_NODE_DIRECT, SB_NODE_NOTIFIED);
  second = node_in(SB_NODE_DIRECT, 0, SB_NODE_NOT_INTERESTED);
  tick_queue();
  tick_while(second_comes);
  expect_is(node_state(second), SB_NODE_INTERESTED, "the state of its node");
  expect_rescues(0, 0);
}
static void messages_that_are_gone(void) {
  if (!has_steps()) return;
  begin(SB_NODE_DIRECT, SB_NODE_INTERESTED);
  tick_queue();
  tick_while(takes_all);
  expect_is(node_state(first), SB_NODE_INTERESTED, "the state of its node");
  expect_rescues(0, 0);
}
/* Its owner returned it just now, and is about to notify a consumer. */
static void what_came_back_since_the_last_tick(void) {
  uint64_t tokens[2];
  sb_taken taken;
  begin(SB_NODE_DIRECT, SB_NODE_INTERESTED);
  tick_queue();
  for (int i = 0; i < 2; i++) {
    expect_is(sb_holding_take(t.c, &tokens[i]), SB_OK, "the status of a holding");
    expect_is(sb_take_for_consumer(q, tokens[i], &taken), SB_OK, "the status of a take");
  }
  tick_queue();
  tick_queue();
  expect_is(remembered.sleeper, 0, "who would be told of nothing");
  expect_is(sb_release_message(q, tokens[0], SB_UNDELIVER), SB_OK, "the status of a return");
  tick_queue();
  expect_rescues(0, 0);
  expect_is(remembered.sleeper, entry_of(first), "who would be told of what came back");
  tick_queue();
  expect_rescues(1, 0);
}
static void nobody_left_to_rescue(void) {
  if (!has_steps()) return;
  begin(SB_NODE_DIRECT, SB_NODE_INTERESTED);
  tick_queue();
  tick_while(first_gives_up);
  expect_rescues(0, 0);
}

/* ---- hidden messages ---- */

static bool is_marked(void) { return sb_requeued_is_marked(t.b, &q->lanes[0].ring, q->base); }
static void hidden_messages_are_found(void) {
  const struct {
    uint64_t quiet, gone;
    bool found;
  } looks[] = {{1, 2, false}, {2, 2, true}, {18, 2, true}, {17, 2, false}, {1, 0, true}};
  begin(SB_NODE_DIRECT, SB_NODE_INTERESTED);
  SB_STORE(&q->shm->head, q->base + 1, SB_RELAXED);
  sb_leaf_ref leaf;
  (void)sb_ring_locate(t.b, NULL, &q->lanes[0].ring, q->base, &leaf);
  for (unsigned i = 0; i < sizeof looks / sizeof looks[0]; i++) {
    SB_STORE(&q->ledger->counters[SB_COUNT_ACKED], looks[i].gone,
             SB_RELAXED); /* then the accounts say that none is ready */
    be_quiet(looks[i].quiet);
    tick_queue();
    expect(is_marked() == looks[i].found, "look %u: the message is %s", i, is_marked() ? "marked" : "hidden");
    sb_requeued_clear(t.b, &leaf, q->base);
    SB_STORE(&q->shm->requeued, 0, SB_RELAXED);
  }
}

/* ---- producers ---- */

static const sb_settings ONE = {{-1, 1, 100, SB_OVERFLOW_BLOCK, -1, -1}, 0};
static uint32_t producer_of(uint32_t bytes) {
  uint32_t node;
  uint64_t token;
  if (sb_node_create(t.c, q->slot, 0, SB_NODE_DIRECT | SB_NODE_ROOM, 0, bytes, &node, &token) != SB_OK)
    die("sb_node_create", 0);
  move_to(node, SB_NODE_INTERESTED);
  return node;
}
static void a_producer_beside_room(void) {
  q = begin_ticks(ONE);
  first = producer_of(100);
  tick_queue();
  expect_is(node_state(first), SB_NODE_NOTIFIED, "the state of its node");
  expect_repairs(OF_ROOM, 0);
  set_deaths(DEATHS);
  move_to(first, SB_NODE_INTERESTED);
  tick_queue();
  expect_repairs(OF_ROOM, OF_ROOM);
  set_deaths(0);
  move_to(first, SB_NODE_INTERESTED);
  SB_STORE(&q->shm->room_watched, 1u, SB_RELAXED);
  tick_queue();
  expect_repairs(OF_ROOM, 2 * OF_ROOM);
}
static void a_producer_without_room(void) {
  q = begin_ticks(ONE);
  first = producer_of(101);
  tick_queue();
  expect_is(node_state(first), SB_NODE_INTERESTED, "the state of one that waits for more bytes");
  expect_repairs(0, 0);
  uint32_t small = producer_of(10);
  SB_STORE(&q->shm->room_waiting, 0, SB_RELAXED);
  tick_queue();
  expect_is(node_state(small), SB_NODE_INTERESTED, "the state of one that is not counted yet");
  SB_STORE(&q->shm->room_waiting, 2, SB_RELAXED);
  uint32_t memory = node_with(SB_NODE_ROOM | SB_NODE_MEMORY | SB_NODE_DIRECT, 0);
  move_to(memory, SB_NODE_INTERESTED);
  (void)put(&t, q, 1);
  tick_queue();
  expect_is(node_state(small), SB_NODE_INTERESTED, "the state of one beside a full queue");
  expect_is(node_state(memory), SB_NODE_INTERESTED, "the state of one that waits for memory, beside a full queue");
  expect_repairs(0, 0);
}
static void first_is_told(void) { move_to(first, SB_NODE_NOTIFIED); }
static void a_producer_that_was_told(void) {
  if (!has_steps()) return;
  q = begin_ticks(ONE);
  first = producer_of(10);
  tick_while(first_is_told);
  expect_repairs(0, 0);
}

/* ---- processes that are stopped, or dead ---- */

static uint32_t their_node;
/* Another process that has the queue open and a node there, which is not interested. */
static pid_t another_one(void) {
  int from[2];
  if (pipe(from) != 0) die("pipe", 0);
  pid_t pid = fork();
  if (pid == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    attach(&t);
    t.c = connect_to(&t);
    q = open_queue(&t, "q");
    uint32_t node = node_with(SB_NODE_DIRECT, 0);
    if (write(from[1], &node, sizeof node) != (ssize_t)sizeof node) _exit(1);
    for (;;) (void)pause();
  }
  (void)close(from[1]);
  if (read(from[0], &their_node, sizeof their_node) != (ssize_t)sizeof their_node) die("a child", 0);
  (void)close(from[0]);
  return pid;
}
static void end_other(pid_t pid) {
  (void)kill(pid, SIGKILL);
  (void)waitpid(pid, NULL, 0);
}
static bool pass(void) { return sb_housekeeping_pass_stopped(t.c, q->slot); }
static void expect_states(unsigned ours, unsigned theirs, const char *when) {
  expect_is(node_state(first), ours, when);
  expect_is(node_state(their_node), theirs, when);
}
static void set_states(unsigned ours, unsigned theirs) {
  move_to(first, ours);
  move_to(their_node, theirs);
}
static void consumers_of_stopped_processes(void) {
  int status;
  q = begin_ticks(FREE_SETTINGS);
  first = node_in(SB_NODE_DIRECT, 0, SB_NODE_NOT_INTERESTED);
  pid_t pid = another_one();
  (void)kill(pid, SIGSTOP);
  (void)waitpid(pid, &status, WUNTRACED);
  set_states(SB_NODE_INTERESTED, SB_NODE_INTERESTED);
  expect(!pass(), "a consumer was parked, and nothing is ready");
  expect_states(SB_NODE_INTERESTED, SB_NODE_INTERESTED, "where nothing is ready");
  set_states(SB_NODE_NOT_INTERESTED, SB_NODE_NOT_INTERESTED);
  (void)put(&t, q, 1);
  set_states(SB_NODE_INTERESTED, SB_NODE_INTERESTED);
  expect(!sb_housekeeping_pass_stopped(t.c, sb_cell_slot(word_at(q, 0))), "what is no queue has consumers");
  expect(pass(), "none was parked");
  expect_states(SB_NODE_NOTIFIED, SB_NODE_NOT_INTERESTED, "after a pass");
  expect_rescues(1, 1);
  move_to(their_node, SB_NODE_INTERESTED);
  expect(pass(), "none was parked beside one that was told");
  expect_states(SB_NODE_NOTIFIED, SB_NODE_NOT_INTERESTED, "after a second pass");
  expect_rescues(1, 1);
  move_to(first, SB_NODE_INTERESTED);
  expect(!pass(), "one was parked once more");
  expect_states(SB_NODE_INTERESTED, SB_NODE_NOT_INTERESTED, "where none is stopped");
  set_states(SB_NODE_INTERESTED, SB_NODE_INTERESTED);
  remembered.known_tail = UNTOUCHED;
  tick_queue();
  expect_is(remembered.known_tail, UNTOUCHED, "the tail of a tick that parked one");
  expect_states(SB_NODE_NOTIFIED, SB_NODE_NOT_INTERESTED, "after a tick");
  expect_rescues(2, 2);
  end_other(pid);
}
static void a_consumer_beside_a_dead_process(void) {
  begin(SB_NODE_DIRECT, SB_NODE_INTERESTED);
  pid_t pid = another_one();
  end_other(pid);
  tick_queue();
  tick_queue();
  expect_is(node_state(first), SB_NODE_NOTIFIED, "the state of its node");
  expect_rescues(1, 1);
}

static const test_case CASES[] = {
    {"told: rescue", "a consumer that sleeps beside a message is told after a tick", a_consumer_is_told},
    {"told: new", "nobody is rung for what came since the last tick", a_message_that_is_new},
    {"told: nobody", "a queue at rest with consumers is looked at", when_nobody_is_to_be_told},
    {"told: came lately", "a consumer that came back since the last tick is left", a_consumer_that_came_lately},
    {"told: lowest level", "a consumer of the lowest priority is found", the_lowest_level},
    {"told: rung", "a consumer that was told and sleeps is rung, which counts as a defect", one_that_was_told_is_rung},
    {"told: watch", "a watch that was told is rung, which is no repair", a_watch_that_was_told},
    {"told: rung after a death", "a death explains a consumer that was not rung", one_that_was_told_after_a_death},
    {"told: levels bite", "a broken chain of levels ends", levels_that_bite},
    {"told: taken", "messages that were taken meanwhile are no repair", messages_that_were_taken},
    {"told: gave up", "a consumer that gave up meanwhile is no repair", one_that_gave_up},
    {"told: comes", "a consumer that comes meanwhile is not rescued", one_that_comes},
    {"told: gone", "without a message nobody is rescued", messages_that_are_gone},
    {"told: came back", "nobody is rescued for what came back since the last tick", what_came_back_since_the_last_tick},
    {"told: left", "a rescue without a consumer is not counted", nobody_left_to_rescue},
    {"told: hidden", "hidden messages are looked for if some should be ready", hidden_messages_are_found},
    {"told: room", "a producer that sleeps beside room is told, which counts as a defect", a_producer_beside_room},
    {"told: no room", "a producer without room is left", a_producer_without_room},
    {"told: room taken", "a producer that was told meanwhile is no repair", a_producer_that_was_told},
    {"told: stopped", "consumers of stopped processes are parked, and others told", consumers_of_stopped_processes},
    {"told: dead", "a rescue beside a dead process is counted apart", a_consumer_beside_a_dead_process},
};
SUBJECT(CASES)
