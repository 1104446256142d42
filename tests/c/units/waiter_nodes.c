// SPDX-License-Identifier: Apache-2.0
/* sb_waiter: the nodes of waiting threads: a node that finds no memory, the nodes that are kept, and the notification
 * that a leaving node passes on. */
#include "meanwhile.h"
#include "sb_chunk.h"
#include "sb_wait.h"
#include "sb_waiter.h"
#include "waiting.h"

static sb_wait w;
static sb_taken taken;

static void begin(void) {
  begin_waiting((sb_settings)FREELY);
  q->spin_ns = 0;
  w = (sb_wait){.deadline_ns = says.now_ns + 1000, .look_ns = UINT64_MAX};
}
static sb_status wait_for_message(void) { return sb_waiter_get(q, &w, NULL, &taken); }

/* ---- without memory ---- */

static void prepare_objects(void) { /* the slots that a node needs, and no page for its lists */
  uint32_t level, first;
  uint64_t holding;
  grow_to(BROKER_CHUNKS - 1);
  if (sb_consumer_level_of(t.c, q->slot, 0, &level) != SB_OK ||
      sb_node_create(t.c, q->slot, 0, SB_NODE_DIRECT | SB_NODE_ROOM, 0, 1, &first, &holding) != SB_OK)
    die("objects", 0);
  sb_node_destroy(t.c, first, holding);
}
static void no_memory_for_a_node(void) {
  begin();
  prepare_objects();
  use_up_chunks();
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  uint64_t free_holding = next_holding();
  expect_is(wait_for_message(), SB_NO_MEMORY, "the status");
  expect(w.node == 0 && q->busy == 0 && q->waiter_count == 0, "it has a node");
  expect_is(next_holding(), free_holding, "the next holding");
  expect_unlocked("afterwards");
  expect_is(says.sleeps, 0, "how often it slept");
}
/* Without a page for its list another connection can never wake it. */
static void no_memory_for_a_list(void) {
  begin();
  w.look_ns = says.now_ns;
  q->waiter_count = 1;
  if (sb_node_create(t.c, q->slot, 0, SB_NODE_DIRECT, 0, 1, &q->waiters[0].node, &q->waiters[0].token) != SB_OK)
    die("sb_node_create", 0);
  (void)put(&t, q, 1);
  use_up_chunks();
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  expect_is(wait_for_message(), SB_NO_MEMORY, "the status");
  expect_is(q->waiter_count, 1, "how many nodes are kept");
  SB_STORE(&t.b->header->segments, 1u, SB_RELAXED);
  expect_is(wait_for_message(), SB_GROW, "the status in a broker that may grow");
  expect(w.node == 0 && q->busy == 0 && q->waiter_count == 1, "the node was not given back");
  expect_is(q->ledger->holding & UINT32_MAX, 0, "how many messages the connection holds");
  expect_is(SB_LOAD(&node_at(q->waiters[0].node)->wake, SB_RELAXED) & 3u, SB_WAKE_RUN, "the wake word");
  expect_unlocked("afterwards");
}

/* ---- nodes that are given back ---- */

static void nodes_are_kept_for_the_next(void) {
  begin();
  sb_wait waits[SB_WAITERS_KEPT + 1];
  for (unsigned i = 0; i <= SB_WAITERS_KEPT; i++) {
    if (sb_node_create(t.c, q->slot, 0, SB_NODE_DIRECT, 0, 1, &waits[i].node, &waits[i].token) != SB_OK)
      die("sb_node_create", 0);
  }
  q->busy = SB_WAITERS_KEPT + 1;
  for (unsigned i = 0; i <= SB_WAITERS_KEPT; i++) {
    uint32_t its = waits[i].node;
    sb_waiter_end(q, &waits[i]);
    expect_is(waits[i].node, 0, "the node of a wait that ended");
    expect_is(state_of(its), i < SB_WAITERS_KEPT ? SB_NODE_NOT_INTERESTED : SB_NODE_REMOVED, "the state of a node");
    expect_is(q->busy, SB_WAITERS_KEPT - i, "how many use the handle");
  }
  expect_is(q->waiter_count, SB_WAITERS_KEPT, "how many nodes are kept");
  sb_waiter_end(q, &waits[0]);
  expect(q->busy == 0 && q->waiter_count == SB_WAITERS_KEPT, "a wait without a node gives one back");
  uint32_t kept = q->waiters[0].node;
  sb_waiter_close(q);
  expect(q->waiter_count == 0 && state_of(kept) == SB_NODE_REMOVED, "nodes are kept of a handle that is left");
}
/* The baton: what it was told of is for another one. */
static void the_baton_of_a_message(void) {
  begin();
  uint32_t leaves = another_waits(0, 1), other;
  (void)sb_node_move(t.c, leaves, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED);
  other = another_waits(0, 1);
  sb_waiter_leave(q, leaves, 0);
  expect_is(state_of(leaves), SB_NODE_NOT_INTERESTED, "the state of the node that leaves");
  expect_is(state_of(other), SB_NODE_INTERESTED, "the state of another one, without a message");
  SB_STORE(&q->shm->flags, SB_QUEUE_PAUSED, SB_RELAXED); /* so that the put tells none */
  (void)put(&t, q, 1);
  SB_STORE(&q->shm->flags, 0u, SB_RELAXED);
  SB_STORE(&q->shm->interested, 0, SB_RELAXED);
  sb_waiter_leave(q, leaves, 0);
  expect_is(state_of(other), SB_NODE_INTERESTED, "the state of one that is not counted");
  SB_STORE(&q->shm->interested, 1, SB_RELAXED);
  sb_waiter_leave(q, leaves, 0);
  expect_is(state_of(other), SB_NODE_NOTIFIED, "the state of another one, beside a message");
  sb_waiter_leave(q, other, 0);
  expect_is(state_of(other), SB_NODE_NOT_INTERESTED, "the state of one that was told, and leaves");
}
/* Browsers may have given way to the node that leaves, and if nobody else waits, they are told. */
static void the_baton_of_browsers(void) {
  begin();
  uint32_t leaves = another_waits(0, 1), browser = another_waits(0, 1);
  (void)sb_node_move(t.c, browser, SB_IN(SB_NODE_INTERESTED), SB_NODE_NON_ACQUIRING);
  uint32_t other = another_waits(0, 1);
  sb_waiter_leave(q, leaves, 0);
  expect_is(node_at(browser)->wakes, 0, "how often a browser was told while another one waits");
  sb_waiter_leave(q, other, 0);
  expect_is(node_at(browser)->wakes, 1, "how often a browser was told when the last one left");
}
static uint64_t used_meanwhile;
static void note_the_use(void) { used_meanwhile = SB_LOAD(&q->shm->used_ns, SB_RELAXED); }
/* The time of an expiring queue begins anew while the node still keeps the queue. */
static void the_use_of_a_queue(void) {
  begin();
  uint32_t leaves = another_waits(0, 1);
  SB_STORE(&q->shm->flags, SB_QUEUE_EXPIRES, SB_RELAXED);
  SB_STORE(&q->shm->used_ns, 7, SB_RELAXED);
  sb_waiter_leave(q, leaves, SB_NODE_ROOM | SB_NODE_MEMORY);
  expect_is(q->shm->used_ns, 7, "the last use when a producer leaves");
  uint32_t next = another_waits(0, 1);
  meanwhile(&node_at(next)->word, BEFORE_CAS, 1, note_the_use);
  sb_waiter_leave(q, next, 0);
  expect_is(q->shm->used_ns, says.now_ns, "the last use when a get has waited");
  if (has_acted()) expect_is(used_meanwhile, says.now_ns, "the last use before the node leaves");
}
static uint32_t sleeper;
static void tell_in_vain(void) {
  sb_ring list;
  uint64_t position = 0;
  expect_is(q->shm->used_ns, says.now_ns, "the last use while a get sleeps");
  if (!sb_ring_open(t.b, SB_LOAD(&q->shm->consumer_levels, SB_RELAXED), SB_RING_INTERESTED, &list)) die("list", 0);
  sleeper = sb_nodes_next(t.c, &list, SB_NODE_INTERESTED, &position);
  if (sleeper == 0 || !sb_node_move(t.c, sleeper, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED)) die("sb_node_move", 0);
  (void)sb_wake_ring(&node_at(sleeper)->wake);
  SB_STORE(&q->shm->used_ns, 7, SB_RELAXED);
  says.error = 0;
  if (says.sleeps == 2) says.now_ns = w.deadline_ns;
}
/* It leaves one count before it is in the other: a process that reads both in between finds it in none. */
static void a_get_that_was_told_in_vain(void) {
  begin();
  grow_to(BROKER_CHUNKS - 1);
  SB_STORE(&q->shm->flags, SB_QUEUE_EXPIRES, SB_RELAXED);
  SB_STORE(&q->shm->used_ns, 7, SB_RELAXED);
  says.slept = tell_in_vain;
  expect_is(wait_for_message(), SB_TIMEOUT, "the status");
  expect_is(says.sleeps, 2, "how often it slept");
}

static const test_case CASES[] = {
    {"waiter_nodes: no node", "without memory for a node a wait is refused", no_memory_for_a_node},
    {"waiter_nodes: no page", "without memory for its list a wait is refused", no_memory_for_a_list},
    {"waiter_nodes: kept", "eight nodes are kept", nodes_are_kept_for_the_next},
    {"waiter_nodes: use", "a get that waited has used its queue", the_use_of_a_queue},
    {"waiter_nodes: in vain", "a get uses its queue whenever it waits again", a_get_that_was_told_in_vain},
    {"waiter_nodes: baton", "a waiter that leaves tells another one", the_baton_of_a_message},
    {"waiter_nodes: browsers", "a waiter that leaves tells the browsers, if nobody else waits", the_baton_of_browsers},
};
SUBJECT(CASES)
