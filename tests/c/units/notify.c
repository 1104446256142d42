// SPDX-License-Identifier: Apache-2.0
/* sb_notify: which nodes are notified of work, of room and of memory, and which are not. */
#include "sb_notify.h"

#include <string.h>

#include "consuming.h"
#include "meanwhile.h"
#include "sb_chunk.h"
#include "sb_slab.h"
#include "sb_wait.h"
#include "waiting.h"

#define FAR 300u /* the number of a target */

static sb_queue *queue;
static sb_queue_shm *shm;

static void begin(void) {
  queue = queue_number(0);
  shm = queue->shm;
}
static uint32_t waiter(int32_t priority, unsigned state) {
  return make_node(queue->slot, priority, SB_NODE_DIRECT, 0, state);
}
static sb_consumer_level_shm *level_of(uint32_t node) {
  return sb_consumer_level_at(t.b, SB_LOAD(&node_shm(node)->level, SB_RELAXED));
}
/* The state of a node, and how often it was told. */
static void expect_wakes(uint32_t node, unsigned state, uint64_t wakes, const char *what) {
  expect_is(node_state(node), state, what);
  expect_is(node_wakes(node), wakes, what);
}

/* ---- one node ---- */

static sb_half *io_word(void) { return &node_shm(t.c->io_node)->wake; }
static unsigned word_state(sb_half *word) { return SB_LOAD(word, SB_RELAXED) & 3u; }
static void expect_bits(uint64_t work, uint64_t targets, const char *what) {
  expect_is(SB_LOAD(&t.c->shm->work, SB_RELAXED), work, what);
  expect_is(SB_LOAD(&t.c->shm->work_targets[FAR / 64], SB_RELAXED), targets, what);
}
static void a_node_is_told(void) {
  uint32_t node, direct;
  uint64_t token;
  begin();
  if (sb_node_create(t.c, queue->slot, 0, 0, SB_MAX_TARGETS + FAR, 0, &node, &token) != SB_OK) die("create", 0);
  direct = waiter(0, SB_NODE_INTERESTED);
  (void)sb_wake_arm(io_word());
  (void)sb_wake_arm(&node_shm(direct)->wake);
  sb_notify_node(t.b, direct);
  expect_is(node_wakes(direct), 1, "how often a call that waits was told");
  expect_is(word_state(&node_shm(direct)->wake), SB_WAKE_NOTIFIED, "its own wake word");
  expect_is(word_state(io_word()), SB_WAKE_ARMED, "the wake word of the IO thread, when a call was told");
  expect_bits(0, 0, "the bits of the connection, when a call was told");
  note_order(&node_shm(node)->flagged);
  sb_notify_node(t.b, node);
  int order = noted_order();
  expect(!has_steps() || order == SB_SEQ_CST, "the flag is stored with order %d: after the bits, perhaps", order);
  expect_is(node_wakes(node), 1, "how often a consumer was told");
  expect_is(SB_LOAD(&node_shm(node)->flagged, SB_RELAXED), 1, "the flag of its node");
  expect_bits(UINT64_C(1) << FAR / 64, UINT64_C(1) << FAR % 64, "the bits of its target");
  expect_is(word_state(io_word()), SB_WAKE_NOTIFIED, "the wake word of the IO thread");
  sb_notify_node(t.b, queue->slot); /* that is no node */
  SB_STORE(&t.c->shm->waiter, 0u, SB_RELAXED);
  sb_notify_node(t.b, node);
  expect_is(node_wakes(node), 2, "how often it was told, without an IO thread");
  SB_STORE(&node_shm(node)->flagged, 0, SB_RELAXED);
  SB_STORE(&node_shm(node)->word, sb_node_word(SB_NODE_INTERESTED, 4000, 9), SB_RELAXED);
  sb_notify_node(t.b, node); /* its connection is gone */
  expect_is(SB_LOAD(&node_shm(node)->flagged, SB_RELAXED), 1, "the flag of a node without a connection");
}

/* ---- levels ---- */

static void who_wants_at_a_higher_priority(void) {
  begin();
  expect(!sb_notify_higher_wants(t.b, shm, 0), "without consumers there is a better one");
  uint32_t high = waiter(9, SB_NODE_NOT_INTERESTED), low = waiter(5, SB_NODE_INTERESTED);
  expect(!sb_notify_higher_wants(t.b, shm, 5), "one that is not interested wants messages");
  expect(!sb_notify_better_wants(queue, 5), "one that is not interested is better");
  expect(sb_notify_higher_wants(t.b, shm, 4), "one of priority 5 is not above 4");
  expect(sb_notify_better_wants(queue, 4), "one of priority 5 is not better than 4");
  set_node_state(high, SB_NODE_NOTIFIED);
  expect(sb_notify_higher_wants(t.b, shm, 8), "one that is notified does not want messages");
  expect(sb_notify_better_wants(queue, 8), "one that is notified is not better");
  expect(!sb_notify_higher_wants(t.b, shm, 9), "one of the same priority is above");
  set_node_state(high, SB_NODE_INTERESTED);
  expect(sb_notify_better_wants(queue, 8), "one that is interested is not better");
  expect(!sb_notify_better_wants(queue, 9), "one of the same priority is better");
  SB_STORE(&level_of(high)->interested_count, 0, SB_RELAXED);
  expect(!sb_notify_better_wants(queue, 8), "one that no count tells of is better");
  set_node_state(high, SB_NODE_NOT_INTERESTED);
  SB_STORE(&level_of(high)->interested_count, 1, SB_RELAXED); /* left by a death */
  expect(sb_notify_higher_wants(t.b, shm, 8), "what the count tells of is not there");
  expect(!sb_notify_better_wants(queue, 8), "what only the count tells of is better");
  set_node_state(low, SB_NODE_NOT_INTERESTED);
  expect(!sb_notify_better_wants(queue, 0), "what only the count tells of is better, above all levels");
}
/* A damaged list has an end: levels in a circle, none of which is wanted. */
static void levels_in_a_circle(void) {
  begin();
  uint32_t high = waiter(9, SB_NODE_NOT_INTERESTED);
  SB_STORE(&level_of(high)->next, SB_LOAD(&shm->consumer_levels, SB_RELAXED), SB_RELAXED);
  expect(!sb_notify_higher_wants(t.b, shm, 0), "somebody in a circle wants messages");
  expect(!sb_notify_above(t.c, queue->slot, 0, false), "somebody in a circle was told");
  SB_STORE(&level_of(high)->interested_count, 1, SB_RELAXED);
  expect(!sb_notify_better_wants(queue, 0), "somebody in a circle is better");
}
static void one_is_told(void) {
  begin();
  uint32_t first = waiter(5, SB_NODE_INTERESTED), next = waiter(5, SB_NODE_INTERESTED),
           low = waiter(1, SB_NODE_INTERESTED);
  expect(!sb_notify_above(t.c, queue->slot, 5, false), "one of the same priority was told");
  expect(sb_notify_above(t.c, queue->slot, 4, false), "one above was not told");
  expect_wakes(first, SB_NODE_NOTIFIED, 1, "the one that waits longest");
  expect(sb_notify_one(t.c, queue->slot, false), "the next one was not told");
  expect_wakes(next, SB_NODE_NOTIFIED, 1, "the next one");
  expect(!sb_notify_one(t.c, queue->slot, false), "one was told beside better ones that are at it");
  expect_wakes(low, SB_NODE_INTERESTED, 0, "one of a lower priority");
  expect(sb_notify_one(t.c, queue->slot, true), "nobody was rescued");
  expect_wakes(low, SB_NODE_NOTIFIED, 1, "one that was rescued");
  expect((SB_LOAD(&node_shm(low)->flags, SB_RELAXED) & SB_NODE_RESCUED) != 0, "it does not know that it is rescued");
  expect((SB_LOAD(&node_shm(first)->flags, SB_RELAXED) & SB_NODE_RESCUED) == 0, "one that was told is rescued");
  expect(!sb_notify_one(t.c, queue->slot, true), "somebody was told where all are");
}
/* No memory for its entry: it is rung nevertheless, and no other consumer is notified. */
static void one_is_told_without_memory(void) {
  begin();
  uint32_t first = waiter(5, SB_NODE_INTERESTED), next = waiter(5, SB_NODE_INTERESTED),
           low = waiter(1, SB_NODE_INTERESTED);
  use_up_chunks();
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  expect(!sb_notify_one(t.c, queue->slot, false), "somebody was told");
  expect_wakes(first, SB_NODE_INTERESTED, 1, "the first one");
  expect_wakes(next, SB_NODE_INTERESTED, 0, "the next one");
  expect_wakes(low, SB_NODE_INTERESTED, 0, "one of a lower priority");
}
/* Another process told it, or it lost its interest, in the meantime: the next one is told. */
static uint32_t rival_node;
static void rival_moves(const char *site) {
  if (strcmp(site, "nodes.move.appended") != 0) return;
  at_step = NULL;
  set_node_state(rival_node, SB_NODE_NOT_INTERESTED);
}
static void one_is_told_beside_another(void) {
  begin();
  if (!has_steps()) return;
  uint32_t first = waiter(5, SB_NODE_INTERESTED), next = waiter(5, SB_NODE_INTERESTED);
  rival_node = first;
  at_step = rival_moves;
  expect(sb_notify_one(t.c, queue->slot, false), "nobody was told");
  at_step = NULL;
  expect_wakes(first, SB_NODE_NOT_INTERESTED, 0, "the one that lost its interest");
  expect_wakes(next, SB_NODE_NOTIFIED, 1, "the next one");
}

/* ---- work ---- */

static void set_paused(bool paused) { SB_STORE(&shm->flags, paused ? SB_QUEUE_PAUSED : 0u, SB_RELAXED); }
/* Messages that came before anybody waited: `waiters` are told of them now. */
static void let_go(const uint32_t *nodes, unsigned count, unsigned state) {
  for (unsigned i = 0; i < count; i++) {
    set_node_state(nodes[i], state);
    SB_STORE(&node_shm(nodes[i])->wakes, 0, SB_RELAXED);
  }
}
static unsigned told(const uint32_t *nodes, unsigned count) {
  unsigned n = 0;
  for (unsigned i = 0; i < count; i++) n += node_state(nodes[i]) == SB_NODE_NOTIFIED && node_wakes(nodes[i]) == 1;
  return n;
}
static void work_arrives(void) {
  begin();
  uint32_t nodes[4], browser = waiter(0, SB_NODE_NON_ACQUIRING);
  for (unsigned i = 0; i < 4; i++) nodes[i] = waiter(0, SB_NODE_NOT_INTERESTED);
  put_some(0, 1, 2);
  expect_is(node_wakes(browser), 2, "how often a browser was told");
  let_go(nodes, 4, SB_NODE_INTERESTED);
  set_paused(true);
  sb_notify_work_arrived(queue);
  expect_is(told(nodes, 4), 0, "who is told while the queue is paused");
  expect_is(node_wakes(browser), 3, "how often a browser was told while the queue is paused");
  set_paused(false);
  sb_notify_work_arrived(queue);
  expect_is(told(nodes, 4), 1, "who is told of the first message");
  sb_notify_work_arrived(queue);
  expect_is(told(nodes, 4), 2, "who is told of the second message");
  sb_notify_work_arrived(queue);
  expect_is(told(nodes, 4), 2, "who is told when as many are told as there are messages");
  let_go(nodes, 4, SB_NODE_INTERESTED);
  char record[BUFFER];
  while (get(&t, queue, record, true) != 0) {
  }
  let_go(nodes, 4, SB_NODE_INTERESTED);
  sb_notify_work_arrived(queue);
  expect_is(told(nodes, 4), 1, "who is told when nobody is: a message may be there that the accounts do not show yet");
}
static void a_backlog_arrives(void) {
  begin();
  uint32_t nodes[5], browser = waiter(0, SB_NODE_NON_ACQUIRING);
  for (unsigned i = 0; i < 5; i++) nodes[i] = waiter(0, SB_NODE_NOT_INTERESTED);
  put_some(0, 1, 3);
  SB_STORE(&node_shm(browser)->wakes, 0, SB_RELAXED);
  let_go(nodes, 5, SB_NODE_INTERESTED);
  set_paused(true);
  sb_notify_backlog_arrived(queue);
  expect_is(told(nodes, 5), 0, "who is told while the queue is paused");
  set_paused(false);
  sb_notify_backlog_arrived(queue);
  expect_is(told(nodes, 5), 3, "who is told of three messages");
  expect_is(node_wakes(browser), 2, "how often a browser was told");
  sb_notify_backlog_arrived(queue);
  expect_is(told(nodes, 5), 3, "who is told once more");
  let_go(nodes, 5, SB_NODE_INTERESTED);
  SB_STORE(&shm->interested, 2, SB_RELAXED); /* there are more, whom the count does not tell of */
  sb_notify_backlog_arrived(queue);
  expect_is(told(nodes, 5), 2, "who is told of those that are counted");
}
static void as_many_are_told_as_there_are_messages(void) {
  begin();
  uint32_t nodes[5];
  for (unsigned i = 0; i < 5; i++) nodes[i] = waiter(0, SB_NODE_NOT_INTERESTED);
  put_some(0, 1, 3);
  let_go(nodes, 5, SB_NODE_INTERESTED);
  SB_STORE(&shm->notified, -10, SB_RELAXED); /* a death left it too low */
  sb_notify_backlog_arrived(queue);
  expect_is(told(nodes, 5), 3, "who is told: no more than there are messages");
  let_go(nodes, 5, SB_NODE_INTERESTED);
  char record[BUFFER];
  while (get(&t, queue, record, true) != 0) {
  }
  let_go(nodes, 5, SB_NODE_INTERESTED);
  SB_STORE(&shm->notified, -10, SB_RELAXED);
  sb_notify_backlog_arrived(queue);
  expect_is(told(nodes, 5), 0, "who is told of no message");
}
/* No memory for its entry: it is rung once, not once for each message. */
static void a_backlog_without_memory(void) {
  begin();
  uint32_t node = waiter(0, SB_NODE_NOT_INTERESTED);
  put_some(0, 1, 3);
  set_node_state(node, SB_NODE_INTERESTED);
  SB_STORE(&node_shm(node)->wakes, 0, SB_RELAXED);
  use_up_chunks();
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  sb_notify_backlog_arrived(queue);
  expect_wakes(node, SB_NODE_INTERESTED, 1, "one that cannot be moved");
}
/* If no consumer can be notified, no further attempt is made. */
static unsigned moves;
static void count_moves(const char *site) { moves += strcmp(site, "nodes.move.appended") == 0; }
static void a_backlog_that_nobody_takes(void) {
  begin();
  uint32_t high = waiter(9, SB_NODE_NOTIFIED), low = waiter(1, SB_NODE_NOT_INTERESTED);
  put_some(0, 1, 3);
  set_node_state(low, SB_NODE_INTERESTED);
  SB_STORE(&node_shm(low)->wakes, 0, SB_RELAXED);
  SB_STORE(&shm->notified, 0, SB_RELAXED);
  at_step = count_moves;
  sb_notify_backlog_arrived(queue);
  at_step = NULL;
  expect_wakes(low, SB_NODE_INTERESTED, 0, "one below who is at it");
  expect_is(moves, 0, "the moves");
  expect_is(node_state(high), SB_NODE_NOTIFIED, "who is at it");
}

/* ---- what seems ready, and the baton ---- */

static void what_looks_ready(void) {
  begin();
  expect(!sb_notify_looks_ready(queue), "an empty queue looks ready");
  put_some(0, 1, 1);
  expect(sb_notify_looks_ready(queue), "a queue with a message does not look ready");
  set_paused(true);
  expect(!sb_notify_looks_ready(queue), "a queue that is paused looks ready");
  set_paused(false);
  uint64_t state = SB_LOAD(&shm->state, SB_RELAXED);
  SB_STORE(&shm->state, (state & ~UINT64_C(3)) | SB_QUEUE_CLOSED, SB_RELAXED);
  expect(!sb_notify_looks_ready(queue), "a queue that is closed looks ready");
  SB_STORE(&shm->state, state, SB_RELAXED);
}
static void the_baton_is_passed(void) {
  begin();
  uint32_t browser = waiter(0, SB_NODE_NON_ACQUIRING), next = waiter(0, SB_NODE_INTERESTED);
  sb_notify_pass_baton(queue);
  expect_wakes(next, SB_NODE_INTERESTED, 0, "one beside an empty queue");
  expect_wakes(browser, SB_NODE_NON_ACQUIRING, 0, "a browser beside one that is interested");
  set_node_state(next, SB_NODE_NOT_INTERESTED);
  sb_notify_pass_baton(queue);
  expect_wakes(browser, SB_NODE_NON_ACQUIRING, 1, "a browser when nobody is interested");
  put_some(0, 1, 1);
  set_node_state(next, SB_NODE_INTERESTED);
  sb_notify_pass_baton(queue);
  expect_wakes(next, SB_NODE_NOTIFIED, 1, "one beside a message");
}

/* ---- room ---- */

static uint32_t waits_for_room(uint32_t bytes) {
  return make_node(queue->slot, 0, SB_NODE_ROOM | SB_NODE_DIRECT, bytes, SB_NODE_INTERESTED);
}
static void room_is_made(void) {
  queue = queues[0] = new_queue("a", (sb_settings){{-1, 10, 100, 0, -1, -1}, 0});
  shm = queue->shm;
  uint32_t large = waits_for_room(200), fits = waits_for_room(64), next = waits_for_room(64);
  uint32_t memory = make_node(0, 0, SB_NODE_ROOM | SB_NODE_MEMORY | SB_NODE_DIRECT, 1, SB_NODE_INTERESTED);
  SB_STORE(&shm->admitted, 5, SB_RELAXED); /* else a body of any size has room */
  sb_notify_room_in(t.c, shm, queue->slot);
  expect_wakes(large, SB_NODE_INTERESTED, 0, "one that waits for more than there is");
  expect_wakes(fits, SB_NODE_NOTIFIED, 1, "one that waits for what there is");
  expect_wakes(next, SB_NODE_INTERESTED, 0, "the next one");
  expect_wakes(memory, SB_NODE_INTERESTED, 0, "one that waits for memory");
  sb_notify_room_made(t.c, shm, queue->slot);
  expect_wakes(next, SB_NODE_NOTIFIED, 1, "the next one, of the next room");
  expect_wakes(memory, SB_NODE_NOTIFIED, 1, "one that waits for memory, of room");
  set_node_state(next, SB_NODE_INTERESTED);
  set_node_state(memory, SB_NODE_INTERESTED);
  sb_notify_room_made(t.c, NULL, 0);
  expect_wakes(next, SB_NODE_INTERESTED, 1, "one that waits for room, of memory");
  expect_wakes(memory, SB_NODE_NOTIFIED, 2, "one that waits for memory, of memory");
}
/* Another process told it meanwhile: the next one is told. */
static void room_is_made_beside_another(void) {
  begin();
  if (!has_steps()) return;
  uint32_t first = waits_for_room(64), next = waits_for_room(64);
  rival_node = first;
  at_step = rival_moves;
  sb_notify_room_in(t.c, shm, queue->slot);
  at_step = NULL;
  expect_is(node_wakes(first), 0, "how often one was told that does not wait any more");
  expect_wakes(next, SB_NODE_NOTIFIED, 1, "the next one");
}

/* The next one to move is another process's; the call has lost. */
static void all_are_woken_beside_another(void) {
  begin();
  if (!has_steps()) return;
  rival_node = waits_for_room(64);
  at_step = rival_moves;
  sb_notify_wake_all(t.c, queue->slot);
  at_step = NULL;
  expect_wakes(rival_node, SB_NODE_NOT_INTERESTED, 0, "one that does not wait any more, at the end of the queue");
}

/* ---- counts and damage ---- */

/* A node that was moved and is not counted yet looks for itself (P3). */
static void those_that_are_not_counted(void) {
  queue = queues[0] = new_queue("a", (sb_settings){{-1, 10, 1000, 0, -1, -1}, 0});
  shm = queue->shm;
  uint32_t sleeper = waiter(0, SB_NODE_INTERESTED), room = waits_for_room(64),
           browser = make_node(queue->slot, 0, SB_NODE_DIRECT, 0, SB_NODE_NON_ACQUIRING),
           memory = make_node(0, 0, SB_NODE_ROOM | SB_NODE_MEMORY | SB_NODE_DIRECT, 1, SB_NODE_INTERESTED);
  put_some(0, 1, 2);
  uint64_t slept = node_wakes(sleeper), browsed = node_wakes(browser);
  set_node_state(sleeper, SB_NODE_INTERESTED);
  SB_STORE(&shm->interested, 0, SB_RELAXED);
  SB_STORE(&shm->non_acquiring, 0, SB_RELAXED);
  SB_STORE(&shm->room_waiting, 0, SB_RELAXED);
  SB_STORE(&t.b->header->memory_waiting, 0u, SB_RELAXED);
  sb_notify_work_arrived(queue);
  sb_notify_backlog_arrived(queue);
  sb_notify_pass_baton(queue);
  sb_notify_room_made(t.c, shm, queue->slot);
  expect_wakes(sleeper, SB_NODE_INTERESTED, slept, "a consumer that is not counted yet");
  expect_wakes(browser, SB_NODE_NON_ACQUIRING, browsed, "a browser that is not counted yet");
  expect_wakes(room, SB_NODE_INTERESTED, 0, "a producer that is not counted yet, beside room");
  expect_wakes(memory, SB_NODE_INTERESTED, 0, "a producer that is not counted yet, beside memory");
}
static __attribute__((noinline)) void spoil_the_stack(void) {
  volatile unsigned char bytes[8192];
  for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = 0xaa;
}
/* The word of its chunk is damaged: it has no lists. */
static void a_queue_of_a_damaged_chunk(void) {
  begin();
  sb_word *chunk = &t.b->chunks[queue->slot / SB_CHUNK_UNITS];
  uint64_t word = SB_LOAD(chunk, SB_RELAXED);
  uint32_t node = waiter(0, SB_NODE_INTERESTED);
  SB_STORE(chunk, SB_CHUNK_TAIL, SB_RELAXED);
  spoil_the_stack();
  sb_notify_browsers(t.c, queue->slot);
  spoil_the_stack();
  sb_notify_wake_all(t.c, queue->slot);
  SB_STORE(chunk, word, SB_RELAXED);
  expect_wakes(node, SB_NODE_INTERESTED, 0, "one that waits at a queue of a damaged chunk");
}

static const test_case CASES[] = {
    {"notify: node", "a node is told by its own word, or by the bits of its target", a_node_is_told},
    {"notify: higher", "who wants messages at a higher priority, by counts and by lists",
     who_wants_at_a_higher_priority},
    {"notify: circle", "a damaged list of levels has an end", levels_in_a_circle},
    {"notify: one", "of the highest priority the one is told that waits longest", one_is_told},
    {"notify: no memory", "one that cannot be moved is rung, and nobody else", one_is_told_without_memory},
    {"notify: beside", "one that lost its interest meanwhile is passed over", one_is_told_beside_another},
    {"notify: work", "one is told of each message, as long as fewer are told than are ready", work_arrives},
    {"notify: backlog", "as many are told of a backlog as it has messages", a_backlog_arrives},
    {"notify: as many", "no more are told than there are messages, whatever is counted",
     as_many_are_told_as_there_are_messages},
    {"notify: full", "one that cannot be moved is rung once for a backlog", a_backlog_without_memory},
    {"notify: nobody", "a backlog is left to those that are at it", a_backlog_that_nobody_takes},
    {"notify: ready", "what is empty, paused or closed does not look ready", what_looks_ready},
    {"notify: baton", "the baton goes to one that is interested, else to browsers", the_baton_is_passed},
    {"notify: room", "one is told of room that can use it", room_is_made},
    {"notify: room beside", "one that does not wait any more is not told of room", room_is_made_beside_another},
    {"notify: all beside", "one that does not wait any more is not told of the end", all_are_woken_beside_another},
    {"notify: not counted", "nobody is looked for where nobody is counted", those_that_are_not_counted},
    {"notify: damaged chunk", "a queue whose chunk is damaged has nobody who is told", a_queue_of_a_damaged_chunk},
};
SUBJECT(CASES)
