// SPDX-License-Identifier: Apache-2.0
/* sb_nodes: moves of nodes, and how a node is created and destroyed. */
#include "sb_nodes.h"

#include <string.h>
#include <unistd.h>

#include "consuming.h"
#include "meanwhile.h"
#include "sb_chunk.h"
#include "sb_slab.h"
#include "sb_wait.h"
#include "waiting.h"

#define PRIORITY 3
#define LONG_AGO UINT64_C(1)

static uint32_t queue; /* slot of the queue of a case */
static sb_queue_shm *shm;

static void begin(void) {
  queue = queue_number(0)->slot;
  shm = queues[0]->shm;
}
static sb_consumer_level_shm *level_of(uint32_t node) {
  return sb_consumer_level_at(t.b, SB_LOAD(&node_shm(node)->level, SB_RELAXED));
}
static sb_ring list(uint32_t object, uint32_t id) {
  sb_ring r;
  if (!sb_ring_open(t.b, object, id, &r)) die("sb_ring_open", (int)id);
  return r;
}
static uint32_t live(uint32_t object, uint32_t id, unsigned state) {
  sb_ring r = list(object, id);
  return (uint32_t)sb_nodes_census(t.b, &r, state, 0).all[SB_STATE_ALL];
}
static uint64_t entries(uint32_t object, uint32_t id) {
  sb_ring r = list(object, id);
  return sb_ring_exact_tail(t.b, &r) - SB_LOAD(r.base, SB_RELAXED);
}
static unsigned slot_state(uint32_t slot) { return sb_slot_state(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)); }

/* ---- moves ---- */

/* One node is all there is: it is in the counters and the list of its state, and in no others. */
static void expect_counted(uint32_t node, unsigned state, const char *what) {
  const sb_consumer_level_shm *level = level_of(node);
  uint32_t of_level = SB_LOAD(&node_shm(node)->level, SB_RELAXED);
  expect_is(node_state(node), state, what);
  expect_is(shm->not_interested, state == SB_NODE_NOT_INTERESTED, what);
  expect_is(shm->interested, state == SB_NODE_INTERESTED, what);
  expect_is(level->interested_count, state == SB_NODE_INTERESTED, what);
  expect_is(shm->notified, state == SB_NODE_NOTIFIED, what);
  expect_is(level->notified_count, state == SB_NODE_NOTIFIED, what);
  expect_is(shm->non_acquiring, state == SB_NODE_NON_ACQUIRING, what);
  expect_is(shm->room_waiting + (int32_t)t.b->header->memory_waiting, 0, what);
  expect_is(live(queue, SB_RING_NOT_INTERESTED, SB_NODE_NOT_INTERESTED), state == SB_NODE_NOT_INTERESTED, what);
  expect_is(live(of_level, SB_RING_INTERESTED, SB_NODE_INTERESTED), state == SB_NODE_INTERESTED, what);
  expect_is(live(of_level, SB_RING_NOTIFIED, SB_NODE_NOTIFIED), state == SB_NODE_NOTIFIED, what);
  expect_is(live(queue, SB_RING_NON_ACQUIRING, SB_NODE_NON_ACQUIRING), state == SB_NODE_NON_ACQUIRING, what);
  expect_is(live(queue, SB_RING_ALL, SB_STATE_ALL), state != SB_NODE_REMOVED, what);
}
static void every_move_is_counted(void) {
  begin();
  uint32_t node = make_node(queue, PRIORITY, SB_NODE_COUNTED, 0, SB_NODE_NOT_INTERESTED);
  for (unsigned from = SB_NODE_NOT_INTERESTED; from <= SB_NODE_NON_ACQUIRING; from++) {
    for (unsigned to = SB_NODE_NOT_INTERESTED; to <= SB_NODE_NON_ACQUIRING; to++) {
      set_node_state(node, from);
      uint32_t epoch = node_epoch(node);
      expect(!sb_node_move(t.c, node, SB_ANY_STATE & ~SB_IN(from), to), "a node of another state was moved");
      expect_counted(node, from, "a node that was not moved");
      expect(sb_node_move(t.c, node, SB_IN(from), to), "a node was not moved");
      expect_counted(node, to, "a node that was moved");
      expect_is(node_epoch(node), epoch + 1, "its epoch");
      expect_is(sb_node_conn(SB_LOAD(&node_shm(node)->word, SB_RELAXED)), t.c->id, "its connection");
    }
  }
  expect(sb_node_move(t.c, node, SB_ANY_STATE, SB_NODE_REMOVED), "a node was not removed");
  expect_counted(node, SB_NODE_REMOVED, "a node that was removed");
  expect(!sb_node_move(t.c, queue, SB_ANY_STATE, SB_NODE_NOTIFIED), "what is no node was moved");
}
/* Calls that wait in get are interested, and no consumers. */
static void a_node_that_is_no_consumer(void) {
  begin();
  uint32_t node = make_node(queue, PRIORITY, SB_NODE_DIRECT, 0, SB_NODE_NOT_INTERESTED);
  expect_is(shm->not_interested, 0, "those that are not interested");
  expect_is(shm->consumers, 0, "the consumers");
  set_node_state(node, SB_NODE_INTERESTED);
  expect_is(shm->interested, 1, "those that are interested");
  set_node_state(node, SB_NODE_NOT_INTERESTED);
  expect_is(shm->interested | shm->not_interested, 0, "those that are not interested again");
}
static void a_node_that_waits_for_room(void) {
  begin();
  uint32_t room = make_node(queue, PRIORITY, SB_NODE_ROOM | SB_NODE_DIRECT, 64, SB_NODE_NOT_INTERESTED);
  uint32_t memory = make_node(0, PRIORITY, SB_NODE_ROOM | SB_NODE_MEMORY, 64, SB_NODE_NOT_INTERESTED);
  expect_is(SB_LOAD(&shm->consumer_levels, SB_RELAXED), 0, "the levels of the queue");
  expect_is(SB_LOAD(&node_shm(room)->level, SB_RELAXED), 0, "the level of the node");
  expect_is(entries(queue, SB_RING_ALL), 0, "the entries of all consumers");
  for (unsigned state = SB_NODE_NOT_INTERESTED; state <= SB_NODE_NON_ACQUIRING; state++) {
    set_node_state(room, state);
    set_node_state(memory, state);
    expect_is(shm->room_waiting, state == SB_NODE_INTERESTED, "those that wait for room");
    expect_is(t.b->header->memory_waiting, state == SB_NODE_INTERESTED, "those that wait for memory");
    expect_is(entries(queue, SB_RING_ROOM), state >= SB_NODE_INTERESTED, "the entries of those that wait for room");
    expect_is(entries(0, SB_RING_MEMORY), state >= SB_NODE_INTERESTED, "the entries of those that wait for memory");
  }
  expect_is(shm->interested | shm->notified | shm->not_interested | shm->non_acquiring, 0, "the counts of consumers");
}
/* Its queue was freed, its level is none: there is nothing to count it in. */
static void a_node_of_nothing(void) {
  begin();
  uint32_t node = make_node(queue, PRIORITY, SB_NODE_COUNTED, 0, SB_NODE_NOT_INTERESTED);
  uint32_t room = make_node(queue, 0, SB_NODE_ROOM, 0, SB_NODE_NOT_INTERESTED);
  SB_STORE(&node_shm(room)->queue, 0u, SB_RELAXED);
  expect(sb_node_move(t.c, room, SB_ANY_STATE, SB_NODE_INTERESTED), "one that waits for room in no queue");
  SB_STORE(&node_shm(node)->queue, 0u, SB_RELAXED);
  expect(sb_node_move(t.c, node, SB_ANY_STATE, SB_NODE_INTERESTED), "one of no queue");
  expect_is(shm->interested | shm->room_waiting, 0, "the counts of a queue that is none of theirs");
  SB_STORE(&node_shm(node)->queue, queue, SB_RELAXED);
  SB_STORE(&node_shm(node)->level, 0u, SB_RELAXED);
  expect(sb_node_move(t.c, node, SB_ANY_STATE, SB_NODE_NOTIFIED), "one of no level");
  expect_is(shm->notified, 0, "the counts without a level");
}
/* A list that needs a page gets none: the node stays where it is. */
static void a_move_without_memory(void) {
  begin();
  uint32_t node = make_node(queue, PRIORITY, SB_NODE_COUNTED, 0, SB_NODE_NOT_INTERESTED);
  uint64_t word = SB_LOAD(&node_shm(node)->word, SB_RELAXED);
  use_up_chunks();
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  expect(!sb_node_move(t.c, node, SB_ANY_STATE, SB_NODE_INTERESTED), "a node was moved without an entry");
  expect_is(SB_LOAD(&node_shm(node)->word, SB_RELAXED), word, "its word");
  expect_is(shm->not_interested, 1, "those that are not interested");
  expect_is(shm->interested | level_of(node)->interested_count, 0, "those that are interested");
}

/* Another process moves the same node between the entry and the word. */
static struct {
  uint32_t node;
  unsigned to;
} rival;
static void rival_moves(const char *site) {
  if (strcmp(site, "nodes.move.appended") != 0) return;
  at_step = NULL;
  set_node_state(rival.node, rival.to);
}
static bool move_beside(uint32_t node, unsigned from, unsigned theirs, unsigned states, unsigned to) {
  set_node_state(node, from);
  rival.node = node;
  rival.to = theirs;
  at_step = rival_moves;
  bool moved = sb_node_move(t.c, node, states, to);
  at_step = NULL;
  return moved;
}
static void a_move_beside_another(void) {
  begin();
  if (!has_steps()) return;
  const unsigned told = SB_NODE_NOTIFIED, wants = SB_NODE_INTERESTED, not = SB_NODE_NOT_INTERESTED;
  uint32_t node = make_node(queue, PRIORITY, SB_NODE_COUNTED, 0, SB_NODE_NOT_INTERESTED);
  expect(!move_beside(node, told, not, SB_IN(told), wants), "it was moved out of a state that it has no more");
  expect_counted(node, not, "one that was told, and lost its interest");
  expect(!move_beside(node, told, wants, SB_IN(told), not), "it was moved although it is interested by now");
  expect_counted(node, wants, "one that was told, and is interested");
  expect(!move_beside(node, wants, told, SB_IN(wants), not), "it was moved although it was told");
  expect_counted(node, told, "one that was interested, and was told");
  uint32_t epoch = node_epoch(node);
  expect(move_beside(node, told, not, SB_ANY_STATE, wants), "it was not moved at the second try");
  expect_counted(node, wants, "one that was moved at the second try");
  expect_is(node_epoch(node), epoch + 2, "its epoch");
}

/* ---- nodes ---- */

/* All free slots of a kind are as an earlier life may have left them. */
static void dirty(uint32_t one, unsigned kind) {
  uint32_t units = sb_class_units(sb_class_of_kind(t.b, kind));
  uint32_t first = one / SB_CHUNK_UNITS * SB_CHUNK_UNITS;
  for (uint32_t slot = first; slot + units <= first + SB_CHUNK_UNITS; slot += units) {
    if (slot_state(slot) == SB_SLOT_FREE) memset(sb_slot_at(t.b, slot), 0x55, units * SB_UNIT);
  }
}
static sb_status create(uint32_t flags, uint32_t *node, uint64_t *token) {
  return sb_node_create(t.c, queue, PRIORITY, flags, 77, 88, node, token);
}
static void a_new_node(void) {
  begin();
  uint32_t other = make_node(queue, 9, 0, 0, SB_NODE_NOT_INTERESTED), node;
  uint64_t token, before = sb_wall_ns();
  dirty(other, SB_KIND_NODE);
  expect_is(create(SB_NODE_COUNTED | SB_NODE_MEMBER, &node, &token), SB_OK, "the status");
  sb_node_shm *n = sb_node_at(t.b, node);
  expect(n != NULL, "it is no node");
  expect_is(n->word, sb_node_word(SB_NODE_NOT_INTERESTED, t.c->id, 0x55555556), "its word, in a slot used before");
  expect_is(n->registration, 0x55555556, "its registration");
  expect_is(n->queue, queue, "its queue");
  expect_is(sb_consumer_level_at(t.b, n->level)->priority, PRIORITY, "the priority of its level");
  expect_is(n->priority, PRIORITY, "its priority");
  expect_is(n->flags, SB_NODE_COUNTED | SB_NODE_MEMBER, "its flags");
  expect_is(n->target, 77, "its target");
  expect_is(n->waiter, node, "its waiter");
  expect_is(n->prefetch, 88, "its prefetch");
  expect_is(n->pid, (uint32_t)getpid(), "its process");
  expect_is(n->unacked | n->delivered | n->wakes | n->flagged | n->channel, 0, "what it did");
  expect(n->created_ns >= before && n->created_ns <= sb_wall_ns(), "it was made at another time");
  expect_is(live(queue, SB_RING_ALL, SB_STATE_ALL), 2, "the entries of all");
  expect_is(shm->consumers, 1, "the consumers: it alone is counted");
  expect_is(shm->had_consumer, 0, "whether a consumer was admitted");
  expect_is(sb_holding_what(SB_HOLD_SLOT, node, sb_slot_gen(SB_LOAD(sb_slot_header(t.b, node), SB_RELAXED))),
            SB_LOAD(&sb_holding_at(t.b, token)->what, SB_RELAXED), "its holding");
  expect_is(t.c->cache[sb_class_of_kind(t.b, SB_KIND_NODE)].mask, 0, "the slots of nodes that are kept");
}
static void expect_no_node(sb_status should, uint64_t holding, const char *what) {
  uint32_t node = 0;
  uint64_t token;
  int32_t consumers = shm->consumers;
  expect_is(create(SB_NODE_COUNTED, &node, &token), should, what);
  expect_is(shm->consumers, consumers, "the consumers");
  expect_is(next_holding(), holding, "the next holding: none was kept");
  at_step = NULL;
}
static void a_node_without_a_level(void) {
  begin();
  (void)make_node(queue_number(1)->slot, 0, 0, 0, SB_NODE_NOT_INTERESTED);
  uint64_t holding = next_holding();
  use_up_chunks();
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_CONSUMER_LEVEL));
  expect_no_node(SB_NO_MEMORY, holding, "the status without a level");
}
static void a_node_without_a_slot(void) {
  begin();
  (void)make_node(queue, PRIORITY, 0, 0, SB_NODE_NOT_INTERESTED); /* makes its level */
  uint64_t holding = next_holding();
  use_up_chunks();
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_NODE));
  expect_no_node(SB_NO_MEMORY, holding, "the status without a slot");
}
static void claim_chunks_there_are(void) {
  for (uint32_t i = 0; i < SB_LOAD(&t.b->mapped_chunks, SB_RELAXED); i++) {
    uint64_t none = sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0);
    (void)SB_CAS(&t.b->chunks[i], &none, sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_RELAXED);
  }
}
/* Its entry among all is there, the list of those that are not interested needs a page. */
static void a_node_without_a_page(void) {
  begin();
  uint32_t other = make_node(queue, PRIORITY, 0, 0, SB_NODE_INTERESTED);
  while (entries(queue, SB_RING_NOT_INTERESTED) % SB_PAGE_CELLS != 0) {
    set_node_state(other, SB_NODE_NOT_INTERESTED);
    set_node_state(other, SB_NODE_INTERESTED);
  }
  uint64_t holding = next_holding(), word;
  uint32_t node = 0;
  uint64_t token;
  claim_chunks_there_are();
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_INNER));
  expect_no_node(SB_GROW, holding, "the status where the broker may grow");
  expect_is(create(0, &node, &token), SB_GROW, "the status again");
  expect_is(slot_state(node), SB_SLOT_FREE, "the slot of the node");
  word = SB_LOAD(&node_shm(node)->word, SB_RELAXED);
  expect_is(word, sb_node_word(SB_NODE_REMOVED, 0, 2 * (sb_node_epoch(word) / 2)), "its word");
  expect(sb_node_epoch(word) >= 2, "its epoch did not move on");
  use_up_chunks();
  expect_no_node(SB_NO_MEMORY, holding, "the status where it may not");
  expect_is(live(queue, SB_RING_ALL, SB_STATE_ALL), 1, "the entries of all that are live");
}
/* There is no page for its entry among all. */
static void a_node_without_a_registration(void) {
  begin();
  uint32_t other = make_node(queue, PRIORITY, 0, 0, SB_NODE_INTERESTED);
  set_node_state(other, SB_NODE_NOT_INTERESTED);
  while (entries(queue, SB_RING_ALL) % SB_PAGE_CELLS != 0)
    (void)make_node(queue, PRIORITY, 0, 0, SB_NODE_NOT_INTERESTED);
  uint64_t holding = next_holding();
  use_up_chunks();
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_INNER));
  expect_no_node(SB_NO_MEMORY, holding, "the status without an entry");
  expect_is(shm->not_interested, 0, "those that are not interested");
}
/* Killed between its registration and its first state, a node of a dead connection is REMOVED, with its entry. */
static void a_node_is_destroyed(void) {
  begin();
  uint32_t node;
  uint64_t token;
  if (create(SB_NODE_COUNTED, &node, &token) != SB_OK) die("sb_node_create", 0);
  uint32_t epoch = node_epoch(node);
  SB_STORE(&shm->used_ns, LONG_AGO, SB_RELAXED);
  sb_node_destroy(t.c, node, token);
  expect_is(node_shm(node)->word, sb_node_word(SB_NODE_REMOVED, t.c->id, epoch + 1), "its word");
  expect_is(slot_state(node), SB_SLOT_FREE, "its slot");
  expect_is(shm->consumers | shm->not_interested, 0, "the counts");
  expect(shm->used_ns != LONG_AGO && shm->used_ns <= sb_now_ns(), "the queue was used at another time");
  expect_is(next_holding(), token, "its holding is free");
  uint64_t word = SB_LOAD(&node_shm(node)->word, SB_RELAXED);
  sb_node_destroy(t.c, queue, 0);
  expect_is(slot_state(queue), SB_SLOT_PUBLISHED, "the slot of what is no node");
  expect_is(node_shm(node)->word, word, "the word of another one");
}
static void a_node_that_was_not_registered(void) {
  begin();
  uint32_t node, other = make_node(queue, PRIORITY, SB_NODE_COUNTED, 0, SB_NODE_NOT_INTERESTED);
  uint64_t token, holding;
  if (create(SB_NODE_COUNTED, &node, &token) != SB_OK) die("sb_node_create", 0);
  set_node_state(node, SB_NODE_REMOVED);
  SB_STORE(&shm->used_ns, LONG_AGO, SB_RELAXED);
  uint32_t epoch = node_epoch(node);
  holding = next_holding();
  sb_node_destroy(t.c, node, 0); /* by the reaper, which gives holdings back itself */
  expect_is(node_shm(node)->word, sb_node_word(SB_NODE_REMOVED, 0, epoch + 2), "its word");
  expect_is(slot_state(node), SB_SLOT_FREE, "its slot");
  expect_is(shm->consumers, 2, "the consumers: it was none");
  expect_is(shm->used_ns, LONG_AGO, "when the queue was used");
  expect_is(t.c->free_holding, holding, "the free holding");
  SB_STORE(&node_shm(other)->queue, 0u, SB_RELAXED);
  sb_node_destroy(t.c, other, 0);
  expect_is(slot_state(other), SB_SLOT_FREE, "the slot of a node whose queue is gone");
}
static uint64_t used_meanwhile;
static void note_the_use(void) { used_meanwhile = SB_LOAD(&shm->used_ns, SB_RELAXED); }
/* A get that waits and an armed watch use their queue, too, until they are destroyed by a reaper: their process cannot
 * tell any more. */
static void a_node_that_waited_is_destroyed(void) {
  const struct {
    uint32_t flags;
    unsigned state;
    bool uses;
  } nodes[] = {
      {SB_NODE_DIRECT, SB_NODE_INTERESTED, true},      {0, SB_NODE_NOTIFIED, true},
      {SB_NODE_DIRECT, SB_NODE_NOT_INTERESTED, false}, {0, SB_NODE_NON_ACQUIRING, false},
      {SB_NODE_ROOM, SB_NODE_INTERESTED, false},       {SB_NODE_ROOM | SB_NODE_MEMORY, SB_NODE_NOTIFIED, false}};
  begin();
  for (unsigned i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
    uint32_t node = make_node(queue, PRIORITY, nodes[i].flags, 0, nodes[i].state);
    SB_STORE(&shm->used_ns, LONG_AGO, SB_RELAXED);
    used_meanwhile = 0;
    meanwhile(&node_shm(node)->word, BEFORE_CAS, 1, note_the_use);
    sb_node_destroy(t.c, node, 0);
    expect((shm->used_ns > LONG_AGO) == nodes[i].uses, "node %u: the queue was used at %llu", i,
           (unsigned long long)shm->used_ns);
    if (has_acted()) expect_is(used_meanwhile, shm->used_ns, "the last use before the node leaves");
  }
}

static const test_case CASES[] = {
    {"nodes: moves", "a node is in the list and the counts of its state alone", every_move_is_counted},
    {"nodes: no consumer", "a node that is no consumer is not counted as one", a_node_that_is_no_consumer},
    {"nodes: room", "a node that waits for room or memory is in a list while it waits", a_node_that_waits_for_room},
    {"nodes: nothing", "a node without queue or level moves, and is counted nowhere", a_node_of_nothing},
    {"nodes: no page", "without memory for its entry a node stays where it is", a_move_without_memory},
    {"nodes: beside", "of two moves of a node the loser takes back what it counted", a_move_beside_another},
    {"nodes: node", "a new node has nothing of an earlier life but its epoch", a_new_node},
    {"nodes: levelless", "a node without a level is refused", a_node_without_a_level},
    {"nodes: slotless", "a node without a slot is refused", a_node_without_a_slot},
    {"nodes: pageless", "a node without an entry is taken back", a_node_without_a_page},
    {"nodes: entryless", "a node without an entry among all was never counted", a_node_without_a_registration},
    {"nodes: destroyed", "a node that is destroyed leaves counts and lists", a_node_is_destroyed},
    {"nodes: unregistered", "a node that was not registered is destroyed with its entries",
     a_node_that_was_not_registered},
    {"nodes: waited", "a node that waited for a message used its queue until it is destroyed",
     a_node_that_waited_is_destroyed},
};
SUBJECT(CASES)
