// SPDX-License-Identifier: Apache-2.0
/* sb_api_brokers: creates, attaches, describes and stops a broker. Connections: api_connections.c. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "meanwhile.h"
#include "sb_api.h"
#include "sb_wait.h"

#define NODES 3u /* a chunk */
#define NEVER_MAPPED 1000u

static sb_half *wake_in(uint32_t chunk, uint32_t unit) {
  return &((sb_node_shm *)sb_slot_at(t.b, chunk * SB_CHUNK_UNITS + unit))->wake;
}
static unsigned wake_state(const sb_half *wake) { return SB_LOAD(wake, SB_SEQ_CST) & 3u; }
static void set_chunk(uint32_t chunk, unsigned state, unsigned cls) {
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(state, 0, cls, 0), SB_SEQ_CST);
}
/* A slot in that state, with a wake word that is ARMED where a node has it. */
static sb_half *armed_at(uint32_t chunk, uint32_t unit, unsigned slot_state) {
  SB_STORE(&sb_chunk_meta(t.b, chunk)->headers[unit], sb_slot_word(slot_state, 1, 5), SB_SEQ_CST);
  (void)sb_wake_arm(wake_in(chunk, unit));
  return wake_in(chunk, unit);
}

/* ---- making, attaching ---- */

static void a_short_file_is_not_formatted(void) {
  uint64_t bytes = sb_broker_segment_bytes(0, 0);
  uint8_t *memory = calloc(1, bytes), *same = calloc(1, bytes);
  expect_is(sb_broker_format(memory, bytes - 1, "b", 48u << 21, 12, 0600, 7), SB_INVALID, "the status of a short file");
  expect(memcmp(memory, same, bytes) == 0, "a short file was written");
  expect_is(sb_broker_format(memory, bytes, "b", 48u << 21, 12, 0600, 7), SB_OK, "the status");
  expect(((sb_class_shm *)(void *)(memory + SB_OFF_CLASSES))[1].units > 0, "there are no classes");
  free(memory);
  free(same);
  expect_is(sb_broker_segment_bytes(3, 12), 12 * (SB_CHUNK_META_BYTES + SB_CHUNK_BYTES), "the bytes of a segment");
}
/* How many mappings of its files this process has. */
static unsigned mappings(void) {
  unsigned n = 0;
  char line[512];
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) n += strstr(line, t.path) != NULL;
  if (maps != NULL) fclose(maps);
  return n;
}
static sb_broker *attach_again(sb_status should) {
  sb_status status = SB_DONE;
  uint32_t major = 77, minor = 77;
  sb_broker *b = sb_broker_attach(t.path, &status, &major, &minor);
  expect_is(status, should, "the status");
  expect((b != NULL) == (should == SB_OK), "there is a handle, or none");
  return b;
}
static void what_is_attached_is_detached(void) {
  uint32_t attaches = sb_broker_attach_count(t.b);
  unsigned mapped = mappings();
  uint64_t before = 0;
  for (unsigned i = 0; i < 20; i++) {
    if (i == 10) before = allocated_bytes(); /* the first ones fill lists of malloc */
    sb_broker *b = attach_again(SB_OK);
    uint32_t process = b->process;
    expect_is(sb_broker_attach_count(t.b), attaches + i + 1, "how often a process attached");
    expect_is(SB_BITS(t.b->processes[process].word, 0, 2), SB_PROC_LIVE, "the state of its slot");
    sb_broker_detach(b);
    expect_is(SB_BITS(t.b->processes[process].word, 0, 2), SB_PROC_FREE, "the state of its slot after it left");
    expect_is(mappings(), mapped, "the mappings after it left");
  }
  expect_is(allocated_bytes(), before, "the bytes that are kept");
}
static void a_broker_that_is_not_there(void) {
  sb_broker *place = t.b;
  uint32_t major = 77, minor = 77;
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (dup2(null, 0) != 0) die("dup2", null);
  expect_is(sb_broker_attach_at("/shmbroker-0.none", &place, &major, &minor), SB_NOT_FOUND, "the status");
  expect(place == NULL, "there is a handle");
  expect(major == 0 && minor == 0, "the layout is %u.%u", major, minor);
  expect(fcntl(0, F_GETFD) >= 0, "a descriptor was closed that the call had not opened");
}
static void an_attachment_that_fails_keeps_nothing(void) {
  char lock[160], hidden[170];
  unsigned mapped = mappings();
  uint64_t before = 0;
  file_name(lock, sizeof lock, t.path, "lock");
  snprintf(hidden, sizeof hidden, "%s.hidden", lock);
  if (rename(lock, hidden) != 0) die("rename", 0);
  for (unsigned i = 0; i < 20; i++) {
    if (i == 10) before = allocated_bytes();
    (void)attach_again(SB_NOT_FOUND);
    expect_is(mappings(), mapped, "the mappings");
  }
  expect_is(allocated_bytes(), before, "the bytes that are kept");
  if (rename(hidden, lock) != 0) die("rename", 0);
}
static void no_slot_for_a_process(void) {
  const uint64_t live = SB_PROC_LIVE | SB_FIELD(9, 2);
  for (uint32_t i = 0; i < SB_MAX_PROCESSES; i++) SB_STORE(&t.b->processes[i].word, live, SB_RELAXED);
  (void)attach_again(SB_LIMIT);
  for (uint32_t i = 0; i < SB_MAX_PROCESSES; i++) expect_is(t.b->processes[i].word, live, "the slot of a process");
}
static void attach_with_nothing(void) { (void)attach_again(SB_SYSTEM); }
static void an_attachment_without_memory(void) { without_memory(attach_with_nothing); }

/* ---- where a body lies ---- */

static uint32_t offset_of(const char *name, uint64_t bytes) {
  const sb_put_options none = {0};
  sb_leaf_ref leaf;
  sb_queue *q = open_new(name, UNLIMITED);
  expect_is(put_sized(&t, q, 1, bytes, &none), SB_OK, "the status of a put");
  expect_is(sb_ring_locate(t.b, NULL, &q->lanes[0].ring, q->base, &leaf), SB_OK, "the status of its cell");
  uint32_t slot = sb_cell_slot(SB_LOAD(&sb_leaf_cell(&leaf, q->base)->word, SB_ACQUIRE));
  return ((const sb_message_shm *)sb_slot_at(t.b, slot))->body_offset;
}
static void long_bodies_lie_behind_words_for_viewers(void) {
  expect_is(offset_of("short", SB_INLINE_BODY), sizeof(sb_message_shm), "where a body lies that is copied");
  expect_is(offset_of("long", SB_INLINE_BODY + 1), sizeof(sb_message_shm) + SB_VIEWERS_BYTES,
            "where a body lies that is read in place");
}

/* ---- growing ---- */

static void a_broker_grows(void) {
  sb_broker_facts f;
  sb_broker_describe(t.b, &f, false);
  expect_is(sb_broker_grown(t.b, f.segments + 1), SB_CORRUPT, "the status of a segment that nobody made");
  expect_is(sb_chunk_may_grow(t.b), 1, "whether it may grow");
  expect_is(t.b->header->no_room, 0, "whether there is no room for another segment");
  sb_broker_grow_again(t.b, FOREVER);
  expect_is(sb_chunk_may_grow(t.b), 0, "whether it may grow before its time");
  expect_is(t.b->header->no_room, 1, "whether there is no room after an attempt failed");
  sb_broker_grow_again(t.b, 1);
  expect_is(sb_chunk_may_grow(t.b), 1, "whether it may grow after that");
}

/* ---- the end ---- */

/* All nodes, and nothing that only looks like one. */
static void a_broker_that_closes_rings_all(void) {
  unsigned node = sb_class_of_kind(t.b, SB_KIND_NODE), other = sb_class_of_kind(t.b, SB_KIND_CONSUMER_LEVEL);
  uint32_t last = t.b->mapped_chunks - 1, first = last - 3;
  set_chunk(first, SB_CHUNK_CLASS, node);
  set_chunk(first + 1, SB_CHUNK_CLASS, other);
  set_chunk(first + 2, SB_CHUNK_TAIL, node);
  set_chunk(last, SB_CHUNK_CLASS, node);
  set_chunk(last + 1, SB_CHUNK_CLASS, node);
  sb_half *told[] = {armed_at(first, 0, SB_SLOT_ALLOC), armed_at(first, 5, SB_SLOT_ALLOC),
                     armed_at(last, SB_CHUNK_UNITS - 1, SB_SLOT_ALLOC)};
  sb_half *others[] = {armed_at(first, 1, SB_SLOT_FREE), armed_at(first, 2, SB_SLOT_PUBLISHED),
                       armed_at(first + 1, 0, SB_SLOT_ALLOC), armed_at(first + 2, 1, SB_SLOT_ALLOC)};
  SB_STORE(&sb_chunk_meta(t.b, first)->hints[0], sb_slot_word(SB_SLOT_ALLOC, 1, 5), SB_SEQ_CST);
  expect(!sb_broker_is_closing(t.b), "it closes already");
  note_order(&t.b->header->closing);
  sb_broker_set_closing(t.b, 1);
  expect_all_see("that it closes");
  for (unsigned i = 0; i < 3; i++) expect_is(wake_state(told[i]), SB_WAKE_NOTIFIED, "the wake word of a node");
  for (unsigned i = 0; i < 4; i++) expect_is(wake_state(others[i]), SB_WAKE_ARMED, "what is no wake word");
  expect(sb_broker_is_closing(t.b), "it does not close");
  sb_broker_set_closing(t.b, 0);
  expect(!sb_broker_is_closing(t.b), "it still closes");
}
static void a_broker_without_housekeeper(void) {
  sb_half *wake = &((sb_node_shm *)sb_slot_at(t.b, t.c->io_node))->wake;
  (void)sb_wake_arm(wake);
  note_order(&t.b->header->stopped);
  sb_broker_set_stopped(t.b, 1);
  expect_all_see("that it is stopped");
  expect_is(t.b->header->stopped, 1, "whether it is stopped");
  expect_is(wake_state(wake), SB_WAKE_ARMED, "a node that is not the housekeeper's");
  SB_STORE(&t.b->header->housekeeper_waiter, t.c->io_node, SB_SEQ_CST);
  sb_broker_set_stopped(t.b, 0);
  expect_is(t.b->header->stopped, 0, "whether it is stopped");
  expect_is(wake_state(wake), SB_WAKE_NOTIFIED, "the housekeeper's node");
}
/* More segments than there can be: nothing behind that number is believed. */
static void a_broken_broker_is_not_rung(void) {
  sb_half *wake = &((sb_node_shm *)sb_slot_at(t.b, t.c->io_node))->wake;
  SB_STORE(&t.b->header->housekeeper_waiter, t.c->io_node, SB_SEQ_CST);
  SB_STORE(&t.b->header->segments, NEVER_MAPPED, SB_SEQ_CST);
  (void)sb_wake_arm(wake);
  sb_broker_set_closing(t.b, 1);
  sb_broker_set_stopped(t.b, 1);
  expect_is(wake_state(wake), SB_WAKE_ARMED, "the node of a broken broker");
  expect_is(t.b->header->stopped, 1, "whether it is stopped");
}

/* ---- facts ---- */

static void facts_of_a_broker(void) {
  sb_broker_facts f;
  sb_header_shm *h = t.b->header;
  memset(h->name, 'x', sizeof h->name);
  SB_STORE(&h->memory_limit, 101, SB_RELAXED);
  SB_STORE(&h->instance, 102, SB_RELAXED);
  SB_STORE(&h->created_ns, 103, SB_RELAXED);
  SB_STORE(&h->rescues, 104, SB_RELAXED);
  SB_STORE(&h->stopped_rescues, 105, SB_RELAXED);
  SB_STORE(&h->reaped, 106, SB_RELAXED);
  SB_STORE(&h->housekeeper_ticks, 107, SB_RELAXED);
  SB_STORE(&h->queue_count, 108u, SB_RELAXED);
  SB_STORE(&h->mode, 0640u, SB_RELAXED);
  SB_STORE(&h->closing, 1u, SB_RELAXED);
  SB_STORE(&h->stopped, 2u, SB_RELAXED);
  for (unsigned i = 0; i < SB_REPAIRS; i++) {
    SB_STORE(&h->repairs[i], 110 + i, SB_RELAXED);
    SB_STORE(&h->explained_repairs[i], 120 + i, SB_RELAXED);
  }
  SB_STORE(&t.b->connections[0], sb_conn_word(SB_CONN_LIVE, 0, 0, 0), SB_RELAXED); /* number 0 is no connection */
  SB_STORE(&t.b->connections[SB_MAX_CONNECTIONS - 1], sb_conn_word(SB_CONN_LIVE, 0, 0, 0), SB_RELAXED);
  SB_STORE(&t.b->processes[SB_MAX_PROCESSES - 1].word, (uint64_t)SB_PROC_LIVE, SB_RELAXED);
  memset(&f, 0xff, sizeof f);
  sb_broker_describe(t.b, &f, false);
  expect_is(strnlen(f.name, sizeof f.name), sizeof f.name - 1, "the length of its name");
  expect(f.name[0] == 'x', "its name begins with %c", f.name[0]);
  expect_is(f.memory_limit, 101, "memory_limit");
  expect_is(f.instance, 102, "instance");
  expect_is(f.created_ns, 103, "created_ns");
  expect_is(f.rescues, 104, "rescues");
  expect_is(f.stopped_rescues, 105, "stopped_rescues");
  expect_is(f.reaped, 106, "reaped");
  expect_is(f.ticks, 107, "ticks");
  expect_is(f.queues, 108, "queues");
  expect_is(f.mode, 0640, "mode");
  expect_is(f.closing, 1, "closing");
  expect_is(f.stopped, 2, "stopped");
  for (unsigned i = 0; i < SB_REPAIRS; i++) {
    expect_is(f.repairs[i], 110 + i, "repairs");
    expect_is(f.explained_repairs[i], 120 + i, "explained_repairs");
  }
  expect_is(f.segments, 1, "segments");
  expect_is(f.segments_limit, BROKER_CHUNKS / CHUNKS_PER_SEGMENT, "segments_limit");
  expect_is(f.chunks_per_segment, CHUNKS_PER_SEGMENT, "chunks_per_segment");
  expect_is(f.connections, 2, "connections");
  expect_is(f.processes, 2, "processes");
  expect_is(f.memory_used + f.memory_structures + f.memory_bodies + f.memory_room, 0, "memory, which was not asked");
}
static void memory_of_a_broker(void) {
  sb_broker_facts f;
  uint64_t structures, bodies;
  sb_queue *q = open_new("q", UNLIMITED);
  put(&t, q, 1);
  sb_slab_kept(t.b, &structures, &bodies);
  memset(&f, 0xff, sizeof f);
  sb_broker_describe(t.b, &f, true);
  expect(structures > 0 && bodies > 0 && sb_slab_used(t.b) > 0 && sb_scatter_room(t.b) > 0, "there is no memory");
  expect_is(f.memory_used, sb_slab_used(t.b), "memory_used");
  expect_is(f.memory_structures, structures, "memory_structures");
  expect_is(f.memory_bodies, bodies, "memory_bodies");
  expect_is(f.memory_room, sb_scatter_room(t.b), "memory_room");
  SB_STORE(&t.b->header->segments, NEVER_MAPPED, SB_SEQ_CST);
  memset(&f, 0xff, sizeof f);
  sb_broker_describe(t.b, &f, true);
  expect_is(f.memory_used + f.memory_structures + f.memory_bodies + f.memory_room, 0, "memory of a broken broker");
}
static void housekeeper_of_a_broker(void) {
  sb_broker_facts f;
  SB_STORE(&t.b->header->housekeeper_pid, 77u, SB_RELAXED);
  sb_broker_describe(t.b, &f, true);
  expect_is(f.housekeeper_pid, 0, "the process of a housekeeper that is not there");
  expect_is(f.housekeeper_stopped, 0, "whether it is stopped");
  int fd = hold_byte(SB_LOCK_HOUSEKEEPER);
  sb_broker_describe(t.b, &f, true);
  expect_is(f.housekeeper_pid, 77, "the process of a housekeeper");
  expect_is(f.housekeeper_stopped, 0, "whether one is stopped that runs");
  close(fd);
  pid_t pid = stop_a_housekeeper();
  sb_broker_describe(t.b, &f, true);
  expect_is(f.housekeeper_pid, (uint64_t)pid, "the process of a housekeeper that is stopped");
  expect_is(f.housekeeper_stopped, 1, "whether one is stopped that is");
  sb_broker_describe(t.b, &f, false);
  expect_is(f.housekeeper_stopped, 0, "whether it is stopped, which was not asked");
  end_process(pid);
}
static void processes_of_a_broker(void) {
  int32_t pids[4] = {77, 77, 77, 77};
  sb_process_shm *p = t.b->processes;
  for (uint32_t i = 0; i < SB_MAX_PROCESSES; i++) SB_STORE(&p[i].word, (uint64_t)SB_PROC_FREE, SB_RELAXED);
  SB_STORE(&p[4].pid, 50, SB_RELAXED);
  SB_STORE(&p[5].pid, 60, SB_RELAXED);
  SB_STORE(&p[SB_MAX_PROCESSES - 1].pid, 70, SB_RELAXED);
  expect_is(sb_broker_pids(t.b, pids, 4), 0, "how many processes there are");
  SB_STORE(&p[5].word, (uint64_t)SB_PROC_LIVE, SB_RELAXED);
  SB_STORE(&p[SB_MAX_PROCESSES - 1].word, (uint64_t)SB_PROC_LIVE, SB_RELAXED);
  expect_is(sb_broker_pids(t.b, pids, 1), 2, "how many there are, with room for one");
  expect_is(pids[0], 60, "the first one");
  expect_is(pids[1], 77, "what lies behind the room");
  expect_is(sb_broker_pids(t.b, pids, 4), 2, "how many there are, with room for all");
  expect_is(pids[1], 70, "the second one");
  expect_is(pids[2], 77, "what lies behind them");
}

static const test_case CASES[] = {
    {"api: format", "a file that is too short is not formatted", a_short_file_is_not_formatted},
    {"api: attach", "a broker that is detached leaves nothing in the process", what_is_attached_is_detached},
    {"api: not there", "a broker that is not there is not attached", a_broker_that_is_not_there},
    {"api: fails", "an attachment that fails keeps nothing", an_attachment_that_fails_keeps_nothing},
    {"api: processes", "a process too many takes no slot of another one", no_slot_for_a_process},
    {"api: memory", "without memory no broker is attached", an_attachment_without_memory},
    {"api: offset", "bodies that are read in place have words for their viewers",
     long_bodies_lie_behind_words_for_viewers},
    {"api: grow", "a segment is there, or the broker waits with the next one", a_broker_grows},
    {"api: closing", "a broker that closes rings each node", a_broker_that_closes_rings_all},
    {"api: stopped", "a housekeeper that is to end is rung", a_broker_without_housekeeper},
    {"api: broken", "nothing of a broken broker is rung", a_broken_broker_is_not_rung},
    {"api: facts", "a broker is described", facts_of_a_broker},
    {"api: used", "its memory is described when it is asked for", memory_of_a_broker},
    {"api: housekeeper", "a housekeeper is there, or stopped, or neither", housekeeper_of_a_broker},
    {"api: pids", "processes that are attached are listed", processes_of_a_broker},
};
SUBJECT(CASES)
