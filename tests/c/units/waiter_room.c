// SPDX-License-Identifier: Apache-2.0
/* sb_waiter: a producer that waits for room in its queue, or for memory. The case answers for the system, and acts while the
 * producer spins or sleeps. */
#include <errno.h>

#include "sb_chunk.h"
#include "sb_housekeeping.h"
#include "sb_reserve.h"
#include "sb_slab.h"
#include "sb_wait.h"
#include "sb_transaction.h"
#include "sb_turn.h"
#include "sb_waiter.h"
#include "surroundings.h"
#include "waiting.h"

#define SPIN_FOR_ROOM 20000u
#define FIVE_SECONDS UINT64_C(5000000000)
#define BYTES 100u
#define ONE_MESSAGE ((sb_settings){{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0})

static uint64_t deadline;
static char record[BUFFER];

/* A queue for one message, which has it. */
static void begin_full(void) {
  begin_waiting(ONE_MESSAGE);
  if (put(&t, q, 1) != SB_OK) die("put", 0);
  deadline = says.now_ns + 1000 * A_MILLISECOND;
}
static void make_room(void) { (void)get(&t, q, record, true); }
static sb_status wait_for_room(bool memory) { return sb_waiter_room(q, memory, BYTES, deadline); }
/* The only node of that list that is interested; 0: none. */
static uint32_t first_of(bool memory) {
  sb_ring list;
  uint64_t position = 0;
  if (!sb_ring_open(t.b, memory ? 0 : q->slot, memory ? SB_RING_MEMORY : SB_RING_ROOM, &list)) return 0;
  return sb_nodes_next(t.c, &list, SB_NODE_INTERESTED, &position);
}

/* ---- spinning ---- */

static void make_room_at_a_pause(void) {
  if (says.pauses == 7) make_room();
}
static void a_spin_for_room(void) {
  begin_full();
  says.paused = make_room_at_a_pause;
  expect_is(wait_for_room(false), SB_OK, "the status");
  expect_is(says.pauses, 7, "how often it paused");
  expect_is(says.looks, 1, "how often it looked at the time");
  expect_is(q->shm->room.tail, 0, "the list of those that wait for room");
}
static void close_at_a_pause(void) {
  if (says.pauses == 7) close_queue();
}
static void a_spin_ends_with_the_queue(void) {
  begin_full();
  says.paused = close_at_a_pause;
  expect_is(wait_for_room(false), SB_OK, "the status, with which the producer tries again");
  expect_is(says.pauses, 7, "how often it paused");
  expect_is(wait_for_room(true), SB_DELETED, "the status of a wait for memory at a closed queue");
  expect_is(q->busy, 0, "how many use the handle");
  expect_unlocked("afterwards");
}
static unsigned pauses_of(bool memory) {
  says.pauses = 0;
  deadline = says.now_ns + 100 * A_MILLISECOND;
  (void)wait_for_room(memory);
  return says.pauses;
}
static void when_a_spin_for_room_is_worth_it(void) {
  begin_full();
  says.step_ns = SPIN_FOR_ROOM / 2;
  expect_is(pauses_of(false), 2 * 16, "the pauses");
  expect_is(pauses_of(true), 0, "the pauses of a producer that waits for memory");
  SB_STORE(&q->shm->room_waiting, 1, SB_RELAXED);
  expect_is(pauses_of(false), 0, "the pauses beside a producer that waits");
  SB_STORE(&q->shm->room_waiting, -1, SB_RELAXED);
  expect_is(pauses_of(false), 2 * 16, "the pauses where the count is wrong");
  SB_STORE(&q->shm->room_waiting, 0, SB_RELAXED);
  SB_STORE(&t.c->closed, 1u, SB_RELAXED);
  expect_is(pauses_of(false), 0, "the pauses with a connection that is closed");
}
static void no_spin_on_one_processor(void) {
  begin_full();
  says.cores = 1;
  says.step_ns = SPIN_FOR_ROOM;
  expect_is(pauses_of(false), 0, "the pauses");
}

/* ---- sleeping ---- */

static bool for_memory;
static uint32_t sleeper;
static void note_the_sleeper(void) {
  sleeper = first_of(for_memory);
  expect(sleeper != 0, "it is in no list");
  expect_is(node_at(sleeper)->flags, SB_NODE_DIRECT | SB_NODE_ROOM | (for_memory ? SB_NODE_MEMORY : 0u),
            "the flags of the node");
  expect_is(node_at(sleeper)->prefetch, BYTES, "the bytes that the node waits for");
  expect_is(SB_LOAD(&node_at(sleeper)->wake, SB_RELAXED) & 3u, SB_WAKE_ARMED, "the wake word");
  expect_is(q->busy, 1, "how many use the handle");
  expect_is(q->waiter_count, 1, "how many nodes are kept");
  expect_unlocked("while it sleeps");
  ask_for_renewal();
}
static void keep_a_node(void) {
  q->waiter_count = 1;
  if (sb_node_create(t.c, q->slot, 0, SB_NODE_DIRECT, 0, 1, &q->waiters[0].node, &q->waiters[0].token) != SB_OK)
    die("sb_node_create", 0);
}
static void a_wait_that_times_out(void) {
  begin_full();
  says.slept = note_the_sleeper;
  says.cores = 1;
  keep_a_node();
  uint64_t free_holding = next_holding();
  for (unsigned memory = 0; memory < 2; memory++) {
    deadline = says.now_ns + 20 * A_MILLISECOND;
    for_memory = memory != 0;
    says.sleeps = renewed = 0;
    t.c->use = SB_USE_PLAIN;
    ask_for_renewal();
    expect_is(wait_for_room(for_memory), SB_TIMEOUT, "the status");
    expect_is(says.sleeps, 1, "how often it slept");
    expect_is(says.until_ns, deadline, "how long it slept");
    expect_is(renewed, 2, "how often it took the lock");
    expect_unlocked("afterwards");
    expect(q->busy == 0 && q->waiter_count == 1, "the node is kept");
    expect_is(state_of(sleeper), SB_NODE_REMOVED, "the state of the node");
    expect_is(SB_LOAD(&node_at(sleeper)->wake, SB_RELAXED) & 3u, SB_WAKE_RUN, "the wake word");
    expect_is(t.c->use, SB_USE_DRAIN, "what memory is used for afterwards");
    expect_is(next_holding(), free_holding, "the next holding");
  }
}
/* A producer that waits for memory tries again soon: hints may have lost a slot. */
static void how_long_it_sleeps(void) {
  begin_full();
  says.cores = 1;
  deadline = UINT64_MAX;
  uint64_t now = says.now_ns;
  expect_is(wait_for_room(false), SB_OK, "the status after a sleep");
  expect_is(says.until_ns, now + FIVE_SECONDS, "the end of a sleep");
  now = says.now_ns;
  expect_is(wait_for_room(true), SB_OK, "the status after a sleep for memory");
  expect_is(says.until_ns, now + 50 * A_MILLISECOND, "the end of a sleep for memory");
}
static void close_the_connection(void) { SB_STORE(&t.c->closed, 1u, SB_RELAXED); }
static void interrupt_a_stop(void) {
  says.error = EINTR;
  SB_STORE(&t.b->header->closing, 1u, SB_RELAXED);
}
static void what_ends_a_sleep(void) {
  begin_full();
  says.cores = 1;
  deadline = UINT64_MAX;
  says.error = EINTR;
  expect_is(wait_for_room(false), SB_INTERRUPTED, "the status after a signal");
  says.slept = interrupt_a_stop;
  expect_is(wait_for_room(false), SB_STOPPING, "the status in a broker that is stopped");
  says.slept = close_the_connection;
  expect_is(wait_for_room(false), SB_CLOSED, "the status with a connection that was closed");
  expect_is(says.sleeps, 3, "how often it slept");
  expect_is(wait_for_room(true), SB_CLOSED, "the status with a connection that is closed");
  expect_is(says.sleeps, 3, "how often it slept with a connection that is closed");
}
/* The looks at the time come just before the last looks at what it waits for. */
static void make_room_quietly(void) {
  SB_STORE(&q->shm->taken, 1, SB_RELAXED);
  says.looked = NULL;
}
static void close_quietly(void) {
  close_queue();
  says.looked = NULL;
}
static void no_sleep_when_there_is_room(void) {
  begin_full();
  says.cores = 1;
  says.looked = make_room_quietly;
  expect_is(wait_for_room(false), SB_OK, "the status");
  expect_is(says.sleeps, 0, "how often it slept");
  deadline = says.now_ns + 1;
  expect_is(wait_for_room(true), SB_TIMEOUT, "the status of a wait for memory");
  expect_is(says.sleeps, 1, "how often it slept for memory, although the queue has room");
  says.looked = close_quietly;
  deadline = UINT64_MAX;
  expect_is(wait_for_room(true), SB_OK, "the status with a queue that is closed meanwhile");
  expect_is(says.sleeps, 1, "how often it slept at a closed queue");
}
static void the_deadline(void) {
  begin_full();
  says.cores = 1;
  deadline = says.now_ns;
  expect_is(wait_for_room(false), SB_TIMEOUT, "the status at the deadline");
}

/* ---- a batch ---- */

#define THREE_MESSAGES ((sb_settings){{-1, 3, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0})

static void begin_batch(void) {
  begin_waiting(THREE_MESSAGES);
  if (put(&t, q, 1) != SB_OK || put(&t, q, 2) != SB_OK) die("put", 0);
  deadline = says.now_ns + 1000 * A_MILLISECOND;
}
static void expect_rested(void) {
  sb_queue_memory memory = {0};
  sb_housekeeping_queue(t.c, q->slot, &memory);
  expect_is(t.b->header->repairs[SB_REPAIR_ROOM] + t.b->header->explained_repairs[SB_REPAIR_ROOM], 0,
            "how often a housekeeper found a producer that sleeps beside room");
}
/* A place more is no room for all, the last one is. */
static void make_room_twice(void) {
  sleeper = first_of(false);
  expect(sleeper != 0, "it is in no list");
  expect_is(node_at(sleeper)->unacked, 3, "the messages that the node waits for");
  expect_is(node_at(sleeper)->prefetch, 3 * BYTES, "the bytes that the node waits for");
  make_room();
  expect_rested();
  expect_is(state_of(sleeper), SB_NODE_INTERESTED, "the state of the node beside room for two");
  make_room();
  expect_is(state_of(sleeper), SB_NODE_NOTIFIED, "the state of the node beside room for three");
  says.error = 0;
}
static void a_batch_waits_for_room_for_all(void) {
  begin_batch();
  expect_is(sb_queue_wait_for_batch(q, 1, BYTES, deadline), SB_OK, "the status beside room for one");
  expect_is(says.sleeps, 0, "how often it slept beside room");
  expect_is(sb_queue_wait_for_batch(q, 2, 2 * BYTES, deadline), SB_TIMEOUT, "the status of two beside room for one");
  expect_is(says.sleeps, 6, "how often it slept, to look whether others pass it");
  says.slept = make_room_twice;
  deadline = says.now_ns + 1000 * A_MILLISECOND;
  expect_is(sb_queue_wait_for_batch(q, 3, 3 * BYTES, deadline), SB_OK, "the status when there is room for all");
  expect_is(says.sleeps, 7, "how often it slept, in all");
  expect_is(says.pauses, 0, "how often it paused");
  expect_is(q->busy, 0, "how many use the handle");
  SB_STORE(&q->shm->settings[SB_SETTING_MAX_BYTES], 2 * (int64_t)BYTES, SB_RELAXED);
  says.slept = NULL;
  says.error = ETIMEDOUT;
  expect_is(sb_queue_wait_for_batch(q, 3, 3 * BYTES, deadline), SB_TIMEOUT, "the status where the bodies are too long");
  expect_is(says.sleeps, 13, "how often it slept for bytes, in all");
}

/* ---- turns ---- */

#define MANY_BYTES ((sb_settings){{-1, -1, 1000, SB_OVERFLOW_BLOCK, -1, -1}, 0})
#define LARGE 800u

static sb_status put_bytes(uint64_t bytes) {
  char body[1000] = {0};
  return sb_queue_put(q, body, bytes);
}
static void begin_large(void) {
  begin_waiting(MANY_BYTES);
  if (put_bytes(500) != SB_OK) die("put", 0);
  says.cores = 1;
  says.error = ETIMEDOUT;
  deadline = says.now_ns + 1000 * A_MILLISECOND;
}
/* A small message passes while the producer of the large one sleeps: the producer takes its turn at its next look. */
static void pass_it(void) {
  sb_status should = says.sleeps == 1 ? SB_OK : SB_FULL;
  expect_is(put_bytes(10), should, says.sleeps == 1 ? "the status before the turn" : "the status in the turn");
  expect_is(sb_turn_there(q->shm), says.sleeps > 1, "whether there is a turn");
}
static void make_room_in_the_turn(void) {
  pass_it();
  if (says.sleeps < 4) return;
  make_room();
  says.error = 0;
}
static void others_pass(void) {
  begin_large();
  says.slept = make_room_in_the_turn;
  expect_is(sb_waiter_room(q, false, LARGE, deadline), SB_OK, "the status when there is room");
  expect_is(says.sleeps, 4, "how often it slept");
  says.slept = NULL;
  expect_is(put_bytes(LARGE - 1), SB_FULL, "the status of a smaller message before its put");
  expect_is(put_bytes(LARGE), SB_OK, "the status of its put");
  expect(!sb_turn_there(q->shm), "the turn lasts after the put");
  expect_is(put_bytes(10), SB_OK, "the status of a small message after the put");
  expect_is(q->shm->bytes_in - q->shm->bytes_out, LARGE + 20, "the bytes that are ready");
}
static void nobody_passes(void) {
  begin_large();
  expect_is(sb_waiter_room(q, false, LARGE, deadline), SB_TIMEOUT, "the status");
  expect_is(q->shm->turn_until_ns, 0, "the turn of a producer that nobody passed");
}
/* Gives the turn back, and wakes a producer that waited for it. */
static void a_wait_in_turn_ends(void) {
  begin_large();
  says.slept = pass_it;
  uint32_t node = wait_at(q, FOR_ROOM, 10);
  expect_is(sb_waiter_room(q, false, LARGE, deadline), SB_TIMEOUT, "the status");
  expect(!sb_turn_there(q->shm), "the turn lasts after the wait");
  expect_is(state_of(node), SB_NODE_NOTIFIED, "the state of another producer");
}
static void a_turn_is_over(void) {
  uint64_t mine = 0, other = 0;
  begin_large();
  sb_turn_take(q->shm, 1, LARGE, &mine);
  uint64_t end = q->shm->turn_until_ns;
  expect(mine == end && end != 0, "there is no turn");
  sb_turn_take(q->shm, 1, LARGE + 1, &other);
  expect(other == 0 && q->shm->turn_until_ns == end, "another producer took the turn");
  sb_turn_give_up(q->shm, other);
  expect(sb_turn_stops(q->shm, 1, LARGE - 1) && !sb_turn_stops(q->shm, 1, LARGE), "the turn stops others");
  expect(!sb_turn_ends(q->shm, 1, LARGE - 1), "a smaller message ends the turn");
  says.now_ns = end - 1;
  expect_is(put_bytes(10), SB_FULL, "the status at the last moment of the turn");
  says.now_ns = end;
  expect_is(put_bytes(10), SB_OK, "the status when the turn is over");
  sb_turn_take(q->shm, 1, LARGE + 1, &other);
  expect(other == end + SB_TURN_NS, "no other producer took the turn that was over");
  sb_turn_take(q->shm, 1, LARGE, &mine);
  expect_is(mine, 0, "the turn that was prolonged too late");
  says.now_ns = other;
  SB_STORE(&q->shm->settings[SB_SETTING_OVERFLOW], SB_OVERFLOW_DROP, SB_RELAXED);
  sb_turn_take(q->shm, 1, LARGE, &mine);
  expect(!sb_turn_stops(q->shm, 1, 10), "a queue that drops has a turn");
}
/* The next look of a producer that has no turn is at the end of another one's. */
static void it_sleeps_until_the_turn_is_over(void) {
  begin_large();
  uint64_t mine = 0;
  sb_turn_take(q->shm, 1, LARGE + 1, &mine);
  uint64_t end = q->shm->turn_until_ns;
  SB_STORE(&q->shm->settings[SB_SETTING_MAX_LENGTH], 1, SB_RELAXED);
  expect_is(sb_waiter_room(q, false, 0, says.now_ns + 201 * A_MILLISECOND), SB_TIMEOUT, "the status");
  expect_is(says.sleeps, 2, "how often it slept");
  expect(says.until_ns > end, "it did not sleep longer than the turn lasted");
}
static sb_status commit_two(uint64_t bytes) {
  static char body[1000];
  uint32_t failed[2];
  sb_publication p[2] = {{.body = body, .length = bytes, .targets = &q, .target_count = 1},
                         {.body = body, .length = bytes, .targets = &q, .target_count = 1}};
  return sb_transaction_commit(t.c, p, 2, NULL, 0, &failed[0], &failed[1]);
}
/* A commit needs as much as all its messages together. */
static void commits_and_turns(void) {
  uint64_t mine = 0;
  begin_waiting((sb_settings){{-1, 4, 1000, SB_OVERFLOW_BLOCK, -1, -1}, 0});
  sb_turn_take(q->shm, 2, 800, &mine);
  expect_is(put_bytes(800), SB_FULL, "the status of one message in a turn of two");
  expect_is(commit_two(399), SB_FULL, "the status of a commit of fewer bytes");
  expect_is(q->shm->admitted - q->base, 0, "what is admitted");
  expect_is(commit_two(400), SB_OK, "the status of a commit that needs as much");
  expect(!sb_turn_there(q->shm), "the turn lasts after the commit");
  expect_is(commit_two(1), SB_OK, "the status of a commit without a turn");
}
/* ---- without memory ---- */

/* A node for a producer that waits is one of the books, which leave the last chunk. */
static void no_memory_for_a_node(void) {
  begin_full();
  says.cores = 1;
  use_up_chunks();
  SB_STORE(&t.b->chunks[BROKER_CHUNKS - 1], sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0), SB_RELAXED);
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_NODE));
  uint64_t free_holding = next_holding();
  ask_for_renewal();
  expect_is(wait_for_room(true), SB_OK, "the status, with which the producer tries again");
  expect_is(says.naps, 1, "how often it paused for a while");
  expect_is(says.nap_ns, 2 * A_MILLISECOND, "how long");
  expect_is(t.c->use, SB_USE_DRAIN, "what memory is used for afterwards");
  expect_is(renewed, 1, "how often it took the lock");
  expect_unlocked("afterwards");
  expect_is(next_holding(), free_holding, "the next holding");
  deadline = says.now_ns;
  expect_is(wait_for_room(true), SB_NO_MEMORY, "the status at the deadline");
  expect_is(says.naps, 1, "how often it paused for a while, at the deadline");
  close_queue();
  deadline = UINT64_MAX;
  expect_is(wait_for_room(true), SB_DELETED, "the status at a closed queue");
  expect_is(says.naps, 1, "how often it paused for a while, at a closed queue");
  open_again();
  sb_wait w = {.deadline_ns = UINT64_MAX, .look_ns = says.now_ns};
  sb_taken taken;
  make_room();
  expect_is(sb_waiter_get(q, &w, NULL, &taken), SB_TICK, "the status of a consumer, which makes room");
}
/* Its list needs a page: without its entry no process would ever wake it. */
static void no_memory_for_a_list(void) {
  begin_full();
  says.cores = 1;
  uint32_t node;
  uint64_t token;
  if (sb_node_create(t.c, q->slot, 0, SB_NODE_DIRECT | SB_NODE_ROOM, 0, 1, &node, &token) != SB_OK) die("node", 0);
  sb_node_destroy(t.c, node, token);
  use_up_chunks();
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  uint64_t free_holding = next_holding();
  for (unsigned memory = 0; memory < 2; memory++) {
    expect_is(wait_for_room(memory != 0), SB_OK, "the status, with which the producer tries again");
    expect_is(says.naps, memory + 1, "how often it paused for a while");
    expect_is(says.nap_ns, 2 * A_MILLISECOND, "how long");
  }
  deadline = says.now_ns;
  expect_is(wait_for_room(false), SB_NO_MEMORY, "the status at the deadline");
  deadline = UINT64_MAX;
  SB_STORE(&t.b->header->segments, 1u, SB_RELAXED);
  expect_is(wait_for_room(false), SB_GROW, "the status in a broker that may grow");
  expect_is(wait_for_room(true), SB_GROW, "the status of a wait for memory in a broker that may grow");
  expect_is(says.sleeps, 0, "how often it slept");
  expect_is(says.naps, 2, "how often it paused for a while, in all");
  expect_is(q->busy, 0, "how many use the handle");
  expect_is(state_of(node), SB_NODE_REMOVED, "the state of the node");
  expect_is(SB_LOAD(&node_at(node)->wake, SB_RELAXED) & 3u, SB_WAKE_RUN, "the wake word");
  expect_is(next_holding(), free_holding, "the next holding");
  expect_unlocked("afterwards");
}

/* ---- the baton ---- */

static uint32_t told_of_memory(void) { return another_waits(SB_NODE_ROOM | SB_NODE_MEMORY, BYTES); }
static void what_a_producer_passes_on(void) {
  begin_full();
  uint32_t room = another_waits(SB_NODE_ROOM, BYTES), memory = told_of_memory();
  uint32_t leaves = another_waits(SB_NODE_ROOM, BYTES);
  sb_waiter_leave(q, leaves, SB_NODE_ROOM);
  expect_is(state_of(leaves), SB_NODE_NOT_INTERESTED, "the state of the node that leaves");
  expect_is(state_of(room), SB_NODE_INTERESTED, "the state of another one in a full queue");
  expect_is(state_of(memory), SB_NODE_INTERESTED, "the state of one that waits for memory, in a full queue");
  SB_STORE(&q->shm->taken, 1, SB_RELAXED);
  sb_waiter_leave(q, leaves, SB_NODE_ROOM | SB_NODE_MEMORY);
  expect_is(state_of(room), SB_NODE_INTERESTED, "the state of another one when one leaves that waited for memory");
  expect_is(state_of(memory), SB_NODE_INTERESTED, "the state of one that waits for memory, beside another one");
  sb_waiter_leave(q, leaves, SB_NODE_ROOM);
  expect_is(state_of(room), SB_NODE_NOTIFIED, "the state of another one in a queue with room");
  expect_is(state_of(memory), SB_NODE_NOTIFIED, "the state of one that waits for memory");
}

static bool told;
static uint32_t other;
static void another_one_comes(void) {
  sleeper = first_of(for_memory);
  if (told && !sb_node_move(t.c, sleeper, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED)) die("sb_node_move", 0);
  other = told_of_memory();
}
/* A producer that was told of memory and cannot use it tells another one. */
static void memory_that_cannot_be_used(void) {
  struct {
    bool memory, told;
    int error;
    unsigned status, other;
  } const k[] = {{true, true, EINTR, SB_INTERRUPTED, SB_NODE_NOTIFIED},
                 {true, false, EINTR, SB_INTERRUPTED, SB_NODE_INTERESTED},
                 {false, true, EINTR, SB_INTERRUPTED, SB_NODE_INTERESTED},
                 {true, true, ETIMEDOUT, SB_OK, SB_NODE_INTERESTED}};
  begin_full();
  says.cores = 1;
  deadline = UINT64_MAX;
  says.slept = another_one_comes;
  for (unsigned i = 0; i < sizeof k / sizeof k[0]; i++) {
    for_memory = k[i].memory;
    told = k[i].told;
    says.error = k[i].error;
    expect_is(wait_for_room(for_memory), k[i].status, "the status");
    expect_is(state_of(other), k[i].other, "the state of another producer that waits for memory");
    (void)sb_node_move(t.c, other, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOT_INTERESTED);
  }
}

static const test_case CASES[] = {
    {"waiter_room: spin", "a producer spins until there is room", a_spin_for_room},
    {"waiter_room: closed", "a producer stops to spin when its queue is closed", a_spin_ends_with_the_queue},
    {"waiter_room: worth", "a producer spins for room in its turn", when_a_spin_for_room_is_worth_it},
    {"waiter_room: alone", "on one processor a producer does not spin", no_spin_on_one_processor},
    {"waiter_room: sleep", "a producer sleeps until its deadline, and its node goes", a_wait_that_times_out},
    {"waiter_room: bounded", "a producer that waits for memory looks again soon", how_long_it_sleeps},
    {"waiter_room: ends", "a connection that is closed precedes a stop, and that a signal", what_ends_a_sleep},
    {"waiter_room: room", "a producer does not sleep when there is room", no_sleep_when_there_is_room},
    {"waiter_room: deadline", "the time is up at the deadline", the_deadline},
    {"waiter_room: turn", "a producer that others pass takes its turn", others_pass},
    {"waiter_room: no turn", "one that nobody passes takes none", nobody_passes},
    {"waiter_room: turn, timeout", "a wait that ends gives the turn up", a_wait_in_turn_ends},
    {"waiter_room: turn over", "a turn that nobody prolongs is over", a_turn_is_over},
    {"waiter_room: turn of another", "a producer sleeps until the turn of another one is over",
     it_sleeps_until_the_turn_is_over},
    {"waiter_room: turn, commit", "a commit is as large as its messages together", commits_and_turns},
    {"waiter_room: batch", "a batch sleeps until there is room for all of it", a_batch_waits_for_room_for_all},
    {"waiter_room: no node", "without memory for a node a producer tries again in a while", no_memory_for_a_node},
    {"waiter_room: no page", "without memory for its list a producer does not sleep", no_memory_for_a_list},
    {"waiter_room: baton", "a producer that leaves tells another one of room", what_a_producer_passes_on},
    {"waiter_room: memory", "a producer passes on memory that it cannot use", memory_that_cannot_be_used},
};
SUBJECT(CASES)
