// SPDX-License-Identifier: Apache-2.0
/* sb_api_housekeeper: which connection is the housekeeper, or stands in; what it waits for; and what it does to queues
 * at each tick. */
#include <unistd.h>

#include "calls.h"
#include "meanwhile.h"
#include "sb_api.h"
#include "sb_wait.h"
#include "surroundings.h"

#define AN_HOUR UINT64_C(3600000000000)
#define RESTING 20u /* ticks after which a queue rests */

static sb_header_shm *header(void) { return t.b->header; }
static sb_half *own_wake(void) { return &((sb_node_shm *)sb_slot_at(t.b, t.c->io_node))->wake; }
static unsigned wake_state(void) { return SB_LOAD(own_wake(), SB_SEQ_CST) & 3u; }
/* As another description of the lock file sees it. */
static bool byte_is_free(long byte) { return sb_byte_holder(t.b->topology_fd, byte) == 0; }
static uint64_t first_position(const sb_queue *q) { return q->base; }

/* ---- who keeps house ---- */

static void a_housekeeper_begins_and_ends(void) {
  expect_is(sb_housekeeper_missing(t.b), 1, "whether one is missing");
  SB_STORE(&header()->next_due_ns, 5, SB_RELAXED);
  note_order(&header()->next_due_ns);
  expect_is(sb_housekeeper_begin(t.c), SB_OK, "the status");
  expect_all_see("the next timer that it knows");
  expect_is(header()->housekeeper_pid, (uint64_t)getpid(), "its pid");
  expect_is(header()->housekeeper_process, t.b->process + 1, "its process");
  expect_is(header()->housekeeper_waiter, t.c->io_node, "its node");
  expect_is(header()->next_due_ns, FOREVER, "the next timer that it knows");
  expect_is(t.b->keeps_house, 1, "whether this process keeps house");
  expect(t.c->handles_stay, "its handles do not stay");
  expect(!byte_is_free(SB_LOCK_HOUSEKEEPER), "its byte is free");
  expect_is(sb_housekeeper_missing(t.b), 0, "whether one is missing");
  sb_connection *other = connect_to(&t);
  expect_is(sb_housekeeper_begin(other), SB_EXISTS, "the status of a second one in this process");
  expect(!other->handles_stay, "handles of the second one stay");
  expect_is(header()->housekeeper_waiter, t.c->io_node, "its node, beside a second one");
  sb_housekeeper_end(t.c);
  expect_is(header()->housekeeper_pid, 0, "its pid at the end");
  expect_is(header()->housekeeper_process, 0, "its process at the end");
  expect_is(header()->housekeeper_waiter, 0, "its node at the end");
  expect_is(t.b->keeps_house, 0, "whether this process keeps house at the end");
  expect(byte_is_free(SB_LOCK_HOUSEKEEPER), "its byte is taken at the end");
  expect_is(sb_housekeeper_missing(t.b), 1, "whether one is missing at the end");
}
static void a_housekeeper_beside_another_process(void) {
  int fd = hold_byte(SB_LOCK_HOUSEKEEPER);
  expect_is(sb_housekeeper_missing(t.b), 0, "whether one is missing");
  expect_is(sb_housekeeper_begin(t.c), SB_EXISTS, "the status");
  expect_is(t.b->keeps_house, 0, "whether this process keeps house");
  expect_is(header()->housekeeper_waiter, 0, "its node");
  expect(!t.c->handles_stay, "its handles stay");
  close(fd);
  expect_is(sb_housekeeper_begin(t.c), SB_OK, "the status after the other one ended");
}
static void a_housekeeper_whose_place_is_awaited(void) {
  expect(!sb_housekeeper_is_awaited(t.b), "a process waits");
  int fd = hold_byte(SB_LOCK_SUCCESSOR);
  expect(sb_housekeeper_is_awaited(t.b), "no process waits");
  close(fd);
  expect(!sb_housekeeper_is_awaited(t.b), "a process waits that has ended");
}
static void a_housekeeper_that_is_stopped(void) {
  SB_STORE(&header()->housekeeper_waiter, 4711u, SB_RELAXED);
  expect_is(sb_housekeeper_stand_in(t.c), SB_EXISTS, "the status while nothing is stopped");
  expect(byte_is_free(SB_LOCK_STAND_IN), "the byte is taken while nothing is stopped");
  expect(!sb_housekeeper_stopped(t.b) && sb_housekeeper_is_relieved(t.c), "there is a housekeeper that is stopped");
  pid_t pid = stop_a_housekeeper();
  expect(sb_housekeeper_stopped(t.b) && !sb_housekeeper_is_relieved(t.c), "no housekeeper is stopped");
  int fd = hold_byte(SB_LOCK_STAND_IN);
  expect_is(sb_housekeeper_stand_in(t.c), SB_EXISTS, "the status while another process stands in");
  expect_is(header()->housekeeper_waiter, 4711, "the node that is woken");
  expect(!t.c->handles_stay, "its handles stay");
  close(fd);
  SB_STORE(&header()->next_due_ns, 5, SB_RELAXED);
  note_order(&header()->next_due_ns);
  expect_is(sb_housekeeper_stand_in(t.c), SB_OK, "the status");
  expect_all_see("the next timer that it knows");
  expect_is(header()->next_due_ns, FOREVER, "the next timer that it knows");
  expect_is(header()->housekeeper_waiter, t.c->io_node, "the node that is woken in its place");
  expect_is(t.c->stands_for, 4711, "the node that was woken before");
  expect(t.c->handles_stay, "its handles do not stay");
  expect(!byte_is_free(SB_LOCK_STAND_IN), "the byte is free");
  sb_housekeeper_step_down(t.c);
  expect_is(header()->housekeeper_waiter, 4711, "the node that is woken afterwards");
  expect(byte_is_free(SB_LOCK_STAND_IN), "the byte is taken afterwards");
  SB_STORE(&header()->housekeeper_waiter, 12u, SB_RELAXED);
  sb_housekeeper_step_down(t.c);
  expect_is(header()->housekeeper_waiter, 12, "the node of one that has come back by itself");
  end_process(pid);
}

/* ---- waiting ---- */

static void a_housekeeper_arms(void) {
  SB_STORE(&header()->housekeeper_waiter, 12u, SB_RELAXED);
  uint32_t armed = sb_housekeeper_arm(t.c);
  expect_is(armed & 3u, SB_WAKE_ARMED, "the state that it waits for");
  expect_is(SB_LOAD(own_wake(), SB_RELAXED), armed, "its wake word");
  expect_is(header()->housekeeper_waiter, 12, "the node that is woken when it only stands in");
  expect_is(sb_housekeeper_begin(t.c), SB_OK, "the status");
  SB_STORE(&header()->housekeeper_waiter, 12u, SB_RELAXED); /* of a process that stood in meanwhile */
  note_order(&header()->housekeeper_waiter);
  (void)sb_housekeeper_arm(t.c);
  expect_all_see("its node");
  expect_is(header()->housekeeper_waiter, t.c->io_node, "the node that is woken when it keeps house");
  note_order(&header()->next_due_ns);
  sb_housekeeper_next_due(t.c, 78);
  expect_all_see("the next timer");
  expect_is(header()->next_due_ns, 78, "the next timer");
}
static void a_housekeeper_waits(void) {
  uint64_t ticks = header()->housekeeper_ticks;
  uint32_t armed = sb_housekeeper_arm(t.c);
  expect_is(sb_housekeeper_wait(t.c, armed, AT_ONCE), SB_TIMEOUT, "the status at the deadline");
  expect_is(header()->housekeeper_ticks, ticks + 1, "its ticks");
  expect_is(wake_state(), SB_WAKE_RUN, "its wake word");
  armed = sb_housekeeper_arm(t.c);
  (void)sb_wake_ring(own_wake());
  expect_is(sb_housekeeper_wait(t.c, armed, FOREVER / 2), SB_OK, "the status when it was rung");
  expect_is(header()->housekeeper_ticks, ticks + 2, "its ticks when it was rung");
  expect_is(wake_state(), SB_WAKE_RUN, "its wake word when it was rung");
}
static void a_housekeeper_that_is_to_end(void) {
  sb_half *const reasons[] = {&header()->closing, &header()->stopped};
  for (unsigned i = 0; i < 2; i++) {
    SB_STORE(reasons[i], 1u, SB_SEQ_CST);
    uint32_t armed = sb_housekeeper_arm(t.c);
    expect_is(sb_housekeeper_wait(t.c, armed, sb_now_ns() + AN_HOUR), SB_STOPPING, "the status");
    expect_is(wake_state(), SB_WAKE_RUN, "its wake word");
    armed = sb_housekeeper_arm(t.c);
    (void)sb_wake_ring(own_wake());
    expect_is(sb_housekeeper_wait(t.c, armed, AT_ONCE), SB_STOPPING, "the status when it was rung, too");
    SB_STORE(reasons[i], 0u, SB_SEQ_CST);
  }
}

/* ---- ticks ---- */

static void a_tick_of_a_queue(void) {
  sb_queue_memory memory = {0};
  sb_queue *q = open_new("q", UNLIMITED);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    sb_housekeeper_tick(t.c, q->slot, &memory);
    expect_untouched(t.c, "a refused tick");
    expect_is(memory.quiet_ticks, 0, "the ticks that it remembers when it was refused");
  }
  refuse(t.c, SB_OK);
  SB_STORE(&q->shm->last_take, 5, SB_RELAXED);
  sb_housekeeper_tick(t.c, q->slot, &memory);
  expect_is(memory.last_take, 5, "what it remembers");
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
}
static void a_tick_of_many_queues(void) {
  sb_queue_memory memory[3] = {0};
  sb_queue *all[] = {open_new("busy", UNLIMITED), open_new("resting", UNLIMITED),
                     open_new("expiring", ((sb_settings){{-1, -1, -1, 0, -1, 1u << 30}, 0}))};
  for (unsigned i = 1; i < 3; i++) {
    memory[i].quiet_ticks = RESTING;
    memory[i].last_take = all[i]->shm->last_take;
    memory[i].came = all[i]->shm->tail;
  }
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_housekeeper_ticks(t.c, all, memory, 3), 0, "how many are busy when it was refused");
    expect_is(memory[1].quiet_ticks, RESTING, "the ticks that it remembers when it was refused");
    expect_untouched(t.c, "refused ticks");
  }
  refuse(t.c, SB_OK);
  expect_is(sb_housekeeper_ticks(t.c, all, memory, 2), 1, "how many of two are busy");
  expect_is(memory[1].quiet_ticks, RESTING + 1, "the ticks that it remembers of the second one");
  expect_is(memory[2].quiet_ticks, RESTING, "the ticks that it remembers of the third one");
  expect_is(sb_housekeeper_ticks(t.c, all, memory, 3), 2, "how many of three are busy");
  expect_is(sb_housekeeper_ticks(t.c, all + 1, memory + 1, 1), 0, "how many are busy of one that rests");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
}
static void queues_with_new_timers(void) {
  sb_queue_memory memory[3] = {0};
  sb_queue *all[] = {open_new("a", UNLIMITED), open_new("b", UNLIMITED), open_new("c", UNLIMITED)};
  for (unsigned i = 0; i < 3; i++) memory[i].new_timers = 7;
  SB_STORE(&all[0]->shm->timers_lost, 1, SB_RELAXED);
  SB_STORE(&all[2]->shm->timers_lost, 1, SB_RELAXED);
  expect_is(sb_housekeeper_new_timers(all, memory, 2), 1, "how many of two have some");
  expect_is(memory[0].new_timers, 1, "whether the first one has");
  expect_is(memory[1].new_timers, 0, "whether the second one has");
  expect_is(memory[2].new_timers, 7, "what is remembered of the third one");
  expect_is(sb_housekeeper_new_timers(all, memory, 3), 2, "how many of three have some");
  SB_STORE(&header()->topology_epoch, 40, SB_RELAXED);
  SB_STORE(&header()->reaped, 2, SB_RELAXED);
  expect_is(sb_housekeeper_changes(t.c), 42, "the changes");
}

/* ---- timers ---- */

static sb_message_shm *message_at(const sb_queue *q, uint64_t at) {
  sb_leaf_ref leaf;
  expect_is(sb_ring_locate(t.b, NULL, &q->lanes[0].ring, q->base + at, &leaf), SB_OK, "the status of a cell");
  return sb_slot_at(t.b, sb_cell_slot(SB_LOAD(&sb_leaf_cell(&leaf, q->base + at)->word, SB_ACQUIRE)));
}
static void a_message_becomes_due(void) {
  sb_queue_memory memory = {0};
  uint64_t positions[4] = {0};
  const sb_put_options later = {.delay_ns = AN_HOUR};
  sb_queue *q = open_new("q", UNLIMITED);
  expect_is(put_sized(&t, q, 1, A_MESSAGE, &later), SB_OK, "the status of a put");
  sb_watch *w = armed_watch(q, false);
  expect_is(sb_housekeeping_timers(q, memory.cursors, positions, 4), 1, "how many timers there are");
  expect_is(positions[0], first_position(q), "where the message lies");
  uint64_t due = message_at(q, 0)->due_ns;
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_housekeeper_look_at(q, positions[0]), 0, "when to look again, when it was refused");
    expect_untouched(t.c, "a refused look");
  }
  refuse(t.c, SB_OK);
  expect_is(sb_housekeeper_look_at(q, positions[0]), due, "when to look again");
  expect_not_told(w, "what waits before the message is due");
  message_at(q, 0)->due_ns = 1;
  expect_is(sb_housekeeper_look_at(q, positions[0]), 0, "when to look again at what is due");
  expect_told(w, "what waits when the message is due");
  expect_is(sb_queue_length(q), 1, "how many are ready");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
}
static void a_message_that_expires_makes_room(void) {
  const sb_put_options mortal = {.ttl_ns = AN_HOUR};
  sb_queue *q = open_new("q", AT_MOST(1));
  expect_is(put_sized(&t, q, 1, A_MESSAGE, &mortal), SB_OK, "the status of a put");
  sb_watch *w = armed_watch(q, true);
  message_at(q, 0)->expires_ns = 1;
  expect_is(sb_housekeeper_look_at(q, first_position(q)), 0, "when to look again");
  expect_is(sb_queue_length(q), 0, "how many are ready");
  expect_told(w, "what waits for room");
}
static uint64_t scheduled(const sb_queue *q) {
  sb_ring r;
  sb_leaf_ref leaf;
  expect(sb_ring_open(t.b, q->slot, SB_RING_SCHEDULE, &r), "there is no schedule");
  expect_is(sb_ring_locate(t.b, NULL, &r, *r.base, &leaf), SB_OK, "the status of its first entry");
  return sb_cell_state(SB_LOAD(&sb_leaf_cell(&leaf, *r.base)->word, SB_ACQUIRE));
}
static void entries_that_are_not_needed_go(void) {
  char record[4096];
  const sb_put_options mortal = {.ttl_ns = AN_HOUR};
  sb_queue *q = open_new("q", UNLIMITED);
  expect_is(put_sized(&t, q, 1, A_MESSAGE, &mortal), SB_OK, "the status of a put");
  sb_housekeeper_trim(q);
  expect_is(scheduled(q), SB_CELL_ENTRY, "the entry of a message that is there");
  (void)get(&t, q, record, true);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    sb_housekeeper_trim(q);
    expect_untouched(t.c, "a refused trim");
    expect_is(scheduled(q), SB_CELL_ENTRY, "the entry when it was refused");
  }
  refuse(t.c, SB_OK);
  sb_housekeeper_trim(q);
  expect_is(scheduled(q), SB_CELL_TOMBSTONE, "the entry of a message that went");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
}

/* ---- sweeping, reclaiming, reaping ---- */

static bool is_entry(uint64_t word) { return sb_cell_state(word) == SB_CELL_ENTRY; }
static void deleted_queues_are_swept(void) {
  int32_t holder;
  uint64_t removed;
  sb_queue *q = open_new("q", UNLIMITED), *other = open_new("other", UNLIMITED);
  uint32_t slot = q->slot;
  sb_connection *reader = connect_to(&t), *own = t.c;
  t.c = reader;
  sb_queue *also = open_queue(&t, "q");
  t.c = own;
  also->busy = 1;
  expect_is(sb_queue_delete(q, false, false, FOREVER, &holder, &removed), SB_OK, "the status of the deletion");
  expect(sb_queue_close(q), "the handle stays");
  announce_settings(&(sb_settings){{7, -1, -1, 0, -1, -1}, 0}, false);
  SB_STORE(&header()->topology_intent, sb_topology_word(SB_CHANGE_CONFIGURE, other->slot), SB_SEQ_CST);
  uint64_t epoch = header()->topology_epoch;
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_housekeeper_sweep(t.c, AT_ONCE), 0, "how many are left when it was refused");
    expect_untouched(t.c, "a refused sweep");
  }
  refuse(t.c, SB_OK);
  int fd = hold_byte(SB_LOCK_TOPOLOGY);
  expect_is(sb_housekeeper_sweep(t.c, AT_ONCE), 0, "how many are left while another process has the lock");
  expect_untouched(t.c, "a sweep without the lock of the topology");
  close(fd);
  expect_is(other->shm->settings[SB_SETTING_RING_SIZE], -1, "the settings before the sweep");
  expect_is(sb_housekeeper_sweep(t.c, AT_ONCE), 1, "how many are left that are open elsewhere");
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect_is(other->shm->settings[SB_SETTING_RING_SIZE], 7, "what a killed process had announced");
  expect_is(header()->topology_pid, 0, "who has the lock of the topology");
  also->busy = 0;
  expect(sb_queue_close(also), "the other handle stays");
  sb_ring waiting;
  expect(sb_ring_open(t.b, 0, SB_RING_MEMORY, &waiting), "there is no list of those that wait for memory");
  uint32_t waits = wait_at(other, FOR_MEMORY, 1);
  (void)sb_node_move(t.c, waits, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOT_INTERESTED);
  expect_is(sb_housekeeper_sweep(t.c, AT_ONCE), 0, "how many are left at the end");
  expect(!sb_ring_has(t.b, &waiting, UINT64_MAX, is_entry), "a dead entry of one that waited for memory is there");
  expect_is(sb_slot_state(*sb_slot_header(t.b, slot)), SB_SLOT_FREE, "the slot of the queue");
  expect_is(header()->topology_epoch, epoch, "the epoch");
}
/* A holder that was killed may have declared a queue, and not told those who route past it. */
static void a_sweep_after_a_killed_holder(void) {
  uint64_t epoch = header()->topology_epoch;
  SB_STORE(&header()->topology_pid, 78u, SB_RELAXED);
  expect_is(sb_housekeeper_sweep(t.c, AT_ONCE), 0, "how many are left");
  expect_is(header()->topology_epoch, epoch + 1, "the epoch");
  expect_is(header()->topology_pid, 0, "who has the lock of the topology");
  expect_is(sb_housekeeper_sweep(t.c, AT_ONCE), 0, "how many are left a second time");
  expect_is(header()->topology_epoch, epoch + 1, "the epoch after a holder that ended well");
}
static void reclaim_with_nothing(void) {
  expect(!sb_housekeeper_reclaim(t.c), "something is under way without memory");
  expect(t.c->grace == NULL, "there was memory");
}
static void empty_chunks_are_reclaimed(void) {
  uint32_t chunk = t.b->mapped_chunks - 1;
  sb_connection *other = connect_to(&t);
  without_memory(reclaim_with_nothing);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect(!sb_housekeeper_reclaim(t.c), "something is under way when it was refused");
    expect(t.c->grace == NULL, "a refusal takes memory");
    expect_untouched(t.c, "a refused step");
  }
  refuse(t.c, SB_OK);
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(SB_CHUNK_CLASS, 0, sb_class_of_kind(t.b, SB_KIND_CONSUMER_LEVEL), 0),
           SB_SEQ_CST);
  SB_STORE(&other->gate->inside, 1, SB_SEQ_CST); /* it may know the chunk */
  expect(!sb_housekeeper_reclaim(t.c), "something is under way at the first look");
  expect(sb_housekeeper_reclaim(t.c), "nothing is under way beside a call that is inside");
  SB_STORE(&other->gate->inside, 0, SB_SEQ_CST);
  expect(!sb_housekeeper_reclaim(t.c), "something is under way after that call");
  expect_is(sb_chunk_state(t.b->chunks[chunk]), SB_CHUNK_FREE, "the state of the chunk");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
}
static void reclaim_at_once_with_nothing(void) {
  sb_connection_reclaim(t.c);
  expect(t.c->grace == NULL, "there was memory");
}
static void empty_chunks_are_reclaimed_at_once(void) {
  uint32_t chunk = t.b->mapped_chunks - 1;
  uint64_t empty = sb_chunk_word(SB_CHUNK_CLASS, 0, sb_class_of_kind(t.b, SB_KIND_CONSUMER_LEVEL), 0);
  sb_connection *other = connect_to(&t);
  without_memory(reclaim_at_once_with_nothing);
  SB_STORE(&t.b->chunks[chunk], empty, SB_SEQ_CST);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    sb_connection_reclaim(t.c);
    expect_untouched(t.c, "a refused call");
  }
  refuse(t.c, SB_OK);
  SB_STORE(&other->gate->inside, 1, SB_SEQ_CST); /* it may know the chunk */
  sb_connection_reclaim(t.c);
  expect_is(t.b->chunks[chunk], empty, "the word of a chunk that somebody may know");
  expect_is(t.c->grace->count, 0, "how many chunks are drained afterwards");
  SB_STORE(&other->gate->inside, 0, SB_SEQ_CST);
  expect_locked_in(t.c, "sb_grace.c");
  sb_connection_reclaim(t.c);
  was_locked("chunks that are drained at once");
  expect_is(sb_chunk_state(t.b->chunks[chunk]), SB_CHUNK_FREE, "the state of the chunk");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
}
static void do_nothing(test_broker *own) { (void)own; }
static void the_dead_are_reaped(void) {
  uint32_t dead = die_attached(do_nothing), other = die_attached(do_nothing);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_housekeeper_reap(t.c), 0, "how many were reaped when it was refused");
    expect(!sb_housekeeper_reap_one(t.c, dead), "one was reaped when it was refused");
  }
  refuse(t.c, SB_OK);
  expect_is(header()->reaped, 0, "how many were reaped by refusals");
  expect(!sb_housekeeper_reap_one(t.c, t.b->process), "a process reaped itself");
  expect(!sb_housekeeper_reap_one(t.c, other + 1), "one was reaped that there is not");
  SB_STORE(&t.b->connections[0], (uint64_t)SB_PROC_LIVE, SB_SEQ_CST); /* where the next process would be */
  expect(!sb_housekeeper_reap_one(t.c, SB_MAX_PROCESSES), "one was reaped behind the last one");
  expect(sb_housekeeper_reap_one(t.c, other), "the dead one was not reaped");
  expect(!sb_housekeeper_reap_one(t.c, other), "the dead one was reaped twice");
  expect_is(sb_housekeeper_reap(t.c), 1, "how many were reaped");
  expect_is(header()->reaped, 2, "how many were reaped in all");
  expect_is(SB_BITS(t.b->processes[dead].word, 0, 2), SB_PROC_FREE, "the slot of the other one");
}

static const test_case CASES[] = {
    {"api_housekeeper: begin", "a process keeps house once, and gives all back", a_housekeeper_begins_and_ends},
    {"api_housekeeper: other", "beside another process none begins", a_housekeeper_beside_another_process},
    {"api_housekeeper: awaited", "a process that waits for the place is seen as long as it waits",
     a_housekeeper_whose_place_is_awaited},
    {"api_housekeeper: stand in", "one stands in for a housekeeper that is stopped", a_housekeeper_that_is_stopped},
    {"api_housekeeper: arm", "a housekeeper is woken again after another one stood in", a_housekeeper_arms},
    {"api_housekeeper: wait", "a housekeeper waits until it is rung, or its deadline", a_housekeeper_waits},
    {"api_housekeeper: end", "a housekeeper that is to end does not wait", a_housekeeper_that_is_to_end},
    {"api_housekeeper: tick", "a tick looks at a queue, or is refused", a_tick_of_a_queue},
    {"api_housekeeper: ticks", "a tick of many says how many do not rest", a_tick_of_many_queues},
    {"api_housekeeper: timers", "queues with new timers are counted", queues_with_new_timers},
    {"api_housekeeper: due", "a message that is due is told of", a_message_becomes_due},
    {"api_housekeeper: expired", "a message that expires makes room", a_message_that_expires_makes_room},
    {"api_housekeeper: trim", "entries of messages that went are dropped", entries_that_are_not_needed_go},
    {"api_housekeeper: sweep", "a sweep needs the lock of the topology, and says how many are left",
     deleted_queues_are_swept},
    {"api_housekeeper: after death", "a sweep after a killed holder has all routes derived again",
     a_sweep_after_a_killed_holder},
    {"api_housekeeper: reclaim", "an empty chunk is reclaimed when no call is inside", empty_chunks_are_reclaimed},
    {"api_housekeeper: at once", "one who finds no memory reclaims empty chunks in one call",
     empty_chunks_are_reclaimed_at_once},
    {"api_housekeeper: reap", "the dead are reaped, and no other process", the_dead_are_reaped},
};
SUBJECT(CASES)
