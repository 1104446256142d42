// SPDX-License-Identifier: Apache-2.0
/* sb_api_connections: connections that are opened, described, woken, closed and forgotten. Their end:
 * api_connections_end.c. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "sb_api.h"
#include "sb_wait.h"

static unsigned live_connections(void) {
  unsigned n = 0;
  for (uint32_t id = 0; id < SB_MAX_CONNECTIONS; id++)
    n += sb_conn_state(SB_LOAD(&t.b->connections[id], SB_RELAXED)) == SB_CONN_LIVE;
  return n;
}
static uint32_t chunk_of_kind(unsigned kind) {
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    uint64_t word = SB_LOAD(&t.b->chunks[i], SB_RELAXED);
    if (sb_chunk_state(word) == SB_CHUNK_CLASS && sb_chunk_class(word) == sb_class_of_kind(t.b, kind)) return i;
  }
  die("no chunk of that kind", (int)kind);
}

/* ---- opening ---- */

static unsigned steps_unlocked;
static void look_at_mutex(const char *site) {
  if (strcmp(site, "connection.id.taken") != 0) return;
  if (pthread_mutex_trylock(&sb_connect_mutex) == 0) {
    steps_unlocked++;
    pthread_mutex_unlock(&sb_connect_mutex);
  }
}
static void a_connection_is_opened(void) {
  sb_status status = SB_DONE;
  sb_connection *place = NULL;
  at_step = look_at_mutex;
  sb_connection *c = sb_connection_open(t.b, "name", 4, &status);
  at_step = NULL;
  expect_is(status, SB_OK, "the status");
  expect_is(steps_unlocked, 0, "how often a number was taken without the mutex");
  expect_is(pthread_mutex_trylock(&sb_connect_mutex), 0, "whether the mutex is taken afterwards");
  pthread_mutex_unlock(&sb_connect_mutex);
  expect(c != NULL && c->b == t.b && c->renew == sb_handles_forget_pages && c->targets != NULL, "it is no connection");
  expect_is(c->handles, 1, "how many handles point to it");
  expect_is(sb_connection_id(c), c->id, "its number");
  expect(strcmp(c->shm->name, "name") == 0, "its name is %s", c->shm->name);
  for (unsigned i = 0; i < SB_MAX_CLASSES; i++) expect_is(c->cache[i].mask, 0, "hints that it keeps");
  expect_is(sb_connection_open_at(t.b, "other", 5, &place), SB_OK, "the status of another one");
  expect(place != NULL && place != c, "there is no other one");
  refuse(t.c, SB_FORKED);
  expect(sb_connection_open(t.b, "name", 4, &status) == NULL, "a child opened one");
  expect_is(status, SB_FORKED, "the status of a child");
  expect_is(sb_connection_open_at(t.b, "name", 4, &place), SB_FORKED, "the status of a child, with a place");
  expect(place == NULL, "a child has one");
  expect_is(live_connections(), 3, "how many there are");
}
/* There is memory for its record and its table, and none for the node of its IO thread. */
static void a_connection_without_node_is_none(void) {
  sb_status status = SB_DONE;
  uint64_t before = 0;
  leave_free(0);
  use_up(chunk_of_kind(SB_KIND_NODE));
  for (unsigned i = 0; i < 20; i++) {
    if (i == 10) before = allocated_bytes(); /* the first ones fill lists of malloc */
    expect(sb_connection_open(t.b, "name", 4, &status) == NULL, "there is a connection");
    expect_is(status, SB_NO_MEMORY, "the status");
    expect_is(live_connections(), 1, "how many there are");
  }
  expect_is(allocated_bytes(), before, "the bytes that are kept");
}
static void *reserved;
static void connect_with(sb_status should) {
  sb_status status = SB_DONE;
  expect(sb_connection_open(t.b, "name", 4, &status) == NULL, "there is a connection");
  expect_is(status, should, "the status");
  expect_is(live_connections(), 1, "how many there are");
}
static void with_nothing(void) { connect_with(SB_SYSTEM); }
static void with_the_first_block(void) {
  free(reserved);
  reserved = NULL;
  connect_with(SB_SYSTEM);
}
static void with_the_second_block(void) {
  allow_a_mapping(SB_MAX_TARGETS * sizeof(void *) + 8192);
  connect_with(SB_SYSTEM);
}
static void a_connection_without_memory(void) {
  (void)mallopt(M_MMAP_THRESHOLD, SB_MAX_TARGETS * sizeof(void *) / 2);
  without_memory(with_nothing);
  reserved = malloc(sizeof(sb_connection));
  without_memory(with_the_first_block);
  free(reserved);
  without_memory(with_the_second_block);
}

/* ---- entering ---- */

static void close_when_locked(sb_connection *c) { SB_STORE(&c->closed, 1u, SB_SEQ_CST); }
static void calls_enter(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  begin_watching(t.c);
  expect_is(sb_api_enter(t.c), SB_OK, "the status");
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 1, "the lock inside");
  sb_api_leave(t.c);
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock outside");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_api_enter(t.c), REFUSAL[i], "the status of a refusal");
    expect_untouched(t.c, "a call that is refused");
  }
  refuse(t.c, SB_OK);
  close_by_hand(q);
  SB_STORE(&t.b->header->queues_closed, t.b->header->queues_closed + 1, SB_SEQ_CST);
  expect_is(sb_api_enter(t.c), SB_OK, "the status after a queue was deleted");
  expect(q->ledger == NULL, "the handle of a deleted queue is still there");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 1, "the lock inside, after a queue was deleted");
  sb_api_leave(t.c);
  refuse(t.c, SB_OK);
  t.c->renew = close_when_locked;
  expect_is(sb_api_enter(t.c), SB_CLOSED, "the status of a connection that is closed meanwhile");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock of a connection that is closed meanwhile");
}
/* Only a change lets a call look at handles. */
static void calls_do_not_look_in_vain(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  expect_is(sb_api_enter(t.c), SB_OK, "the status");
  sb_api_leave(t.c);
  close_by_hand(q);
  expect_is(sb_api_enter(t.c), SB_OK, "the status of the next call");
  expect(q->ledger != NULL, "the call looked although no queue was said to be deleted");
  sb_api_leave(t.c);
}

/* ---- words that others read ---- */

static void its_thread_is_refused(void) {
  refuse(t.c, SB_FORKED);
  expect_is(sb_connection_run_io(t.c), SB_FORKED, "the status of a child that runs it");
  refuse(t.c, SB_CLOSED);
  expect_is(sb_connection_run_io(t.c), SB_CLOSED, "the status of the thread of a closed connection");
}
static void it_says_how_many_channels_there_are(void) {
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    sb_connection_set_channels(t.c, 4);
    expect_is(t.c->shm->channels, 0, "channels of a refusal");
    expect_untouched(t.c, "a refused number of channels");
  }
  refuse(t.c, SB_OK);
  sb_connection_set_channels(t.c, 4);
  expect_is(t.c->shm->channels, 4, "channels");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
}

/* ---- facts ---- */

static void facts_of_a_connection(void) {
  sb_connection_facts f, none;
  memset(&none, 0, sizeof none);
  memset(t.c->shm->name, 'x', sizeof t.c->shm->name);
  SB_STORE(&t.c->shm->created_ns, 21, SB_RELAXED);
  SB_STORE(&t.c->shm->channels, 22u, SB_RELAXED);
  SB_STORE(&t.b->processes[t.b->process].pid, 23, SB_RELAXED);
  SB_STORE(&t.b->processes[t.b->process].start_ticks, 24, SB_RELAXED);
  SB_STORE(&t.b->processes[t.b->process].pid_namespace, 25, SB_RELAXED);
  memset(&f, 0xff, sizeof f);
  expect_is(sb_connection_describe(t.b, t.c->id, &f), SB_OK, "the status");
  expect_is(f.id, t.c->id, "id");
  expect_is(strnlen(f.name, sizeof f.name), sizeof f.name - 1, "the length of a name that has no end");
  expect(f.name[0] == 'x', "its name begins with %c", f.name[0]);
  expect_is(f.created_ns, 21, "created_ns");
  expect_is(f.channels, 22, "channels");
  expect_is(f.pid, 23, "pid");
  expect_is(f.start_ticks, 24, "start_ticks");
  expect_is(f.pid_namespace, 25, "pid_namespace");
  expect_is(f.holding, 0, "holding");
  expect_is(f.consumers, 0, "consumers");
  uint64_t word = SB_LOAD(&t.b->processes[t.b->process].word, SB_RELAXED);
  SB_STORE(&t.b->processes[t.b->process].word, SB_PROC_FREE, SB_RELAXED);
  expect_is(sb_connection_describe(t.b, t.c->id, &f), SB_OK, "the status, without a process");
  expect_is(f.pid, 0, "pid, without a process");
  expect_is(f.start_ticks, 0, "start_ticks, without a process");
  expect_is(f.pid_namespace, 0, "pid_namespace, without a process");
  SB_STORE(&t.b->processes[t.b->process].word, word, SB_RELAXED);
  const uint32_t others[] = {0, t.c->id + 1, SB_MAX_CONNECTIONS, UINT32_MAX};
  for (unsigned i = 0; i < 4; i++) {
    memset(&f, 0xff, sizeof f);
    expect_is(sb_connection_describe(t.b, others[i], &f), SB_NOT_FOUND, "the status of what is no connection");
    expect(memcmp(&f, &none, sizeof f) == 0, "connection %u has facts", others[i]);
  }
}
/* A node of the connection, as consumers, channels and waiting calls have them. */
static uint64_t a_node(sb_queue *q, uint32_t flags, uint32_t target, uint32_t *node) {
  uint64_t token;
  sb_status status;
  while ((status = sb_node_create(t.c, q->slot, 0, flags, target, 0, node, &token)) == SB_GROW) (void)grow(t.b, t.path);
  expect_is(status, SB_OK, "the status of a node");
  return token;
}
static uint32_t consumers(void) {
  sb_connection_facts f;
  expect_is(sb_connection_describe(t.b, t.c->id, &f), SB_OK, "the status");
  return f.consumers;
}
static void its_consumers_are_counted(void) {
  uint32_t node;
  sb_queue *q = open_new("q", UNLIMITED);
  (void)a_node(q, SB_NODE_DIRECT, 0, &node);
  expect_is(consumers(), 0, "consumers, with a call that waits");
  (void)a_node(q, SB_NODE_COUNTED, 0, &node);
  expect_is(consumers(), 1, "consumers, with one");
  (void)a_node(q, SB_NODE_COUNTED, 0, &node);
  expect_is(consumers(), 1, "consumers, with one of two queues");
  (void)a_node(q, SB_NODE_COUNTED, SB_MAX_TARGETS - 1, &node);
  expect_is(consumers(), 2, "consumers, with two");
  (void)a_node(q, SB_NODE_COUNTED | SB_NODE_MEMBER, 7, &node);
  (void)a_node(q, SB_NODE_COUNTED | SB_NODE_MEMBER, 7, &node);
  expect_is(consumers(), 4, "consumers, with two of a channel");
  uint64_t token = a_node(q, SB_NODE_COUNTED, 9, &node);
  expect_is(consumers(), 5, "consumers, with one more");
  sb_holding_set(t.b, token, sb_holding_what(SB_HOLD_PAGE, node, 0), 0);
  expect_is(consumers(), 4, "consumers, with a page in the place of one");
  sb_holding_set(t.b, token, sb_holding_what(SB_HOLD_SLOT, node, 0), 0);
  SB_STORE(&((sb_node_shm *)sb_slot_at(t.b, node))->word, sb_node_word(SB_NODE_REMOVED, t.c->id, 5), SB_RELAXED);
  expect_is(consumers(), 4, "consumers, with one that was removed");
  SB_STORE(&((sb_node_shm *)sb_slot_at(t.b, node))->word, sb_node_word(SB_NODE_NOTIFIED, t.c->id, 5), SB_RELAXED);
  expect_is(consumers(), 5, "consumers, with one that was told");
  SB_STORE(&t.c->last->used, SB_LOAD(&t.c->last->used, SB_RELAXED) - 1, SB_RELAXED);
  expect_is(consumers(), 4, "consumers, without the last entry of the table");
}
static void what_it_holds_is_counted(void) {
  char record[4096];
  sb_connection_facts f;
  sb_queue *q = open_new("q", UNLIMITED);
  for (unsigned i = 0; i < 3; i++) put(&t, q, i);
  for (unsigned i = 0; i < 2; i++) (void)get(&t, q, record, false);
  expect_is(sb_connection_describe(t.b, t.c->id, &f), SB_OK, "the status");
  expect_is(f.holding, 2, "holding");
}
/* The reader has no connection: what changes while it reads is no connection. */
static unsigned loads;
static void (*change)(void);
static void change_in_the_middle(const char *site) {
  if (strstr(site, "sb_api_connections.c:") == NULL || ++loads < 4) return;
  at_step = NULL;
  change();
}
static void another_life(void) {
  SB_STORE(&t.b->connections[t.c->id], t.b->connections[t.c->id] + SB_FIELD(1, 42), SB_SEQ_CST);
}
static void another_generation(void) {
  sb_word *header = sb_slot_header(t.b, t.c->record);
  SB_STORE(header, sb_slot_word(SB_SLOT_ALLOC, t.c->id, sb_slot_gen(*header) + 1), SB_SEQ_CST);
}
static void another_kind(void) {
  SB_STORE(&t.b->chunks[t.c->record / SB_CHUNK_UNITS],
           sb_chunk_word(SB_CHUNK_CLASS, 0, sb_class_of_kind(t.b, SB_KIND_CONSUMER_LEVEL), 0), SB_SEQ_CST);
}
static void what_changes_is_not_described(void) {
  void (*const changes[])(void) = {another_life, another_generation, another_kind};
  sb_connection_facts f, none;
  memset(&none, 0, sizeof none);
  for (unsigned i = 0; has_steps() && i < 3; i++) {
    loads = 0;
    change = changes[i];
    at_step = change_in_the_middle;
    memset(&f, 0xff, sizeof f);
    expect_is(sb_connection_describe(t.b, t.c->id, &f), SB_NOT_FOUND, "the status");
    expect(at_step == NULL, "nothing changed in the middle");
    expect(memcmp(&f, &none, sizeof f) == 0, "change %u: there are facts", i);
  }
}

static const test_case CASES[] = {
    {"api: connect", "a connection is opened under the mutex of all, and keeps no slots", a_connection_is_opened},
    {"api: no node", "a connection that has no node leaves nothing", a_connection_without_node_is_none},
    {"api: no connection", "without memory there is no connection", a_connection_without_memory},
    {"api: enter", "a call has the lock, or is refused", calls_enter},
    {"api: in vain", "a call looks at handles only after a deletion", calls_do_not_look_in_vain},
    {"api: run the IO thread", "a child and a closed connection have none", its_thread_is_refused},
    {"api: channels", "a connection says how many channels it has", it_says_how_many_channels_there_are},
    {"api: connection", "a connection is described", facts_of_a_connection},
    {"api: consumers", "a consumer counts once, a member of a channel always", its_consumers_are_counted},
    {"api: holding", "messages that are held are counted", what_it_holds_is_counted},
    {"api: changes", "a record that changes while it is read is no connection", what_changes_is_not_described},
};
SUBJECT(CASES)
