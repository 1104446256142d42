// SPDX-License-Identifier: Apache-2.0
/* Threads that use one mapping of one broker at the same time, under a race detector.
 *
 * ThreadSanitizer does not know that two mappings are the same memory, so all threads share one attachment. A
 * connection has one thread or, as in an application with threads, two threads and the one that fills the rows of its
 * consumers. The work is a fixed number of messages. At the end each message was settled exactly once, a ring has lost
 * as many messages as it counts as replaced, the accounts match, the doctor finds nothing, and all memory is free
 * again.
 *
 *   stress [messages of each producer]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"
#include "sb_queue.h"
#include "stress_work.h"

#define PROGRAM "stress"
#define SECONDS 240
#define CHUNKS 72u

/* ---- all of them ---- */

typedef struct {
  void (*work)(worker *);
  bool beside; /* shares the connection and the handles of the one before it */
  bool produces;
} role;

static const role ROLES[] = {{produce_jobs, false, true},  {produce_jobs, true, true},  {produce_limited, false, true},
                             {produce_long, false, true},  {produce_ring, false, true}, {produce_ring, false, true},
                             {take, false, false},         {take, true, false},         {take_batches, false, false},
                             {take_waiting, false, false}, {take_waiting, true, false}, {consume, false, false},
                             {consume, false, false},      {move, false, false},        {browse, false, false},
                             {examine, false, false},      {come_and_go, false, true},  {come_and_go, false, true},
                             {configure, false, true},     {swell, false, false},       {keep_house, false, false}};
#define WORKERS (sizeof ROLES / sizeof ROLES[0])

static test_broker keeper;
static worker workers[WORKERS];

static void *run(void *argument) {
  worker *w = argument;
  ROLES[w - workers].work(w);
  return NULL;
}

static void begin(size_t i) {
  worker *w = &workers[i];
  if (ROLES[i].beside) {
    *w = workers[i - 1];
  } else {
    w->t = keeper;
    w->t.c = connect_to(&w->t);
    join_all(w);
  }
  w->random = i + 1;
  w->buffer = malloc(BUFFER * 4);
}

static void leave(size_t i) {
  worker *w = &workers[i];
  free(w->buffer);
  if (!ROLES[i].beside) {
    (void)sb_connection_close(w->t.c);
    for (int kind = 0; kind < QUEUES; kind++) sb_queue_free(w->q[kind]);
    (void)sb_connection_release(w->t.c);
    sb_connection_free(w->t.c);
  }
}

/* ---- afterwards ---- */

static void check_accounts(int kind, uint32_t slot) {
  sb_queue_facts f;
  (void)sb_queue_describe(keeper.c, slot, &f);
  uint64_t gone = f.acked + f.expired + f.killed + f.replaced + f.dropped + f.dead_lettered + f.moved;
  if (f.ready != 0 || f.delivering != 0 || f.scheduled != 0 || f.bytes != 0 || f.added != gone)
    fail("%s: ready %llu delivering %llu scheduled %llu bytes %llu; added %llu, gone %llu", KINDS[kind].name,
         (unsigned long long)f.ready, (unsigned long long)f.delivering, (unsigned long long)f.scheduled,
         (unsigned long long)f.bytes, (unsigned long long)f.added, (unsigned long long)gone);
}

static void check_all(uint64_t memory_before) {
  worker last = {.t = keeper, .buffer = malloc(BUFFER)};
  sb_queue_memory memories[QUEUES] = {0};
  uint64_t removed;
  int32_t holder;
  sb_broker_facts f;
  join_all(&last);
  while (get(&last.t, last.q[RING], last.buffer, true) != 0) {
  }
  for (int i = 0; i < 24; i++) keep_house_of(&last, memories);
  sb_broker_describe(keeper.b, &f, false);
  for (unsigned kind = 0; kind < SB_REPAIRS; kind++) { /* no process died, was stopped, or is inside an operation now */
    if (f.repairs[kind] != 0) fail("%u repairs of kind %u, which nothing explains", f.repairs[kind], kind);
  }
  if (f.rescues != 0) fail("%llu rescues, which nothing explains", (unsigned long long)f.rescues);
  const char *found = findings(keeper.c);
  if (found != NULL) fail("%s", found);
  for (int kind = 0; kind < QUEUES; kind++) {
    check_accounts(kind, last.q[kind]->slot);
    (void)sb_queue_delete(last.q[kind], false, false, FOREVER, &holder, &removed);
    sb_queue_free(last.q[kind]);
  }
  for (int i = 0; i < 3; i++) (void)sb_housekeeper_sweep(keeper.c, FOREVER);
  for (int i = 0; i < 3; i++) (void)sb_housekeeper_reclaim(keeper.c);
  sb_broker_describe(keeper.b, &f, true);
  if (f.memory_used != memory_before)
    fail("memory: %llu bytes in use, %llu before", (unsigned long long)f.memory_used,
         (unsigned long long)memory_before);
  if (f.connections != 1) fail("%u connections are left", f.connections);
  for (uint64_t id = 1; id < atomic_load(&next_id); id++) {
    if (atomic_load(&settled[id]) > 1) fail("message %llu was settled twice", (unsigned long long)id);
  }
  free(last.buffer);
}

/* While a broker is being stopped, consumers are dropped and connections closed in any order. */
static void stop_all(void) {
  test_broker t = keeper;
  sb_status status;
  t.c = connect_to(&t);
  (void)declare(&t, "last", (sb_settings)FREELY);
  sb_queue *q = open_queue(&t, "last");
  sb_consumer *dropped = sb_consumer_open(t.c, &q, 1, 4, 0, 0, 0, &status), *closed = NULL;
  if (dropped != NULL) closed = sb_consumer_open(t.c, &q, 1, 4, 0, 0, 0, &status);
  if (closed == NULL) die("sb_consumer_open", (int)status);
  sb_broker_set_closing(t.b, 1);
  if (sb_consumer_open(t.c, &q, 1, 4, 0, 0, 0, &status) != NULL) fail("a broker that is being stopped is consumed");
  sb_consumer_free(dropped);
  (void)sb_connection_run_io(t.c); /* tells the consumers, and ends */
  (void)sb_connection_close(t.c);
  sb_consumer_free(closed);
  sb_queue_free(q);
  (void)sb_connection_release(t.c);
  sb_connection_free(t.c);
}

static int stress(void *unused) {
  pthread_t threads[WORKERS];
  char name[64];
  sb_broker_facts f;
  (void)unused;
  name_apart(name, sizeof name, PROGRAM);
  settled = calloc(WORKERS * amount + 1, sizeof *settled);
  make_broker(&keeper, name, CHUNKS);
  attach(&keeper);
  keeper.c = connect_to(&keeper);
  sb_broker_describe(keeper.b, &f, true);
  for (int kind = 0; kind < QUEUES; kind++) {
    if (declare(&keeper, KINDS[kind].name, KINDS[kind].settings) != SB_OK) die("sb_queue_declare", kind);
  }
  for (size_t i = 0; i < WORKERS; i++) {
    begin(i);
    producing += ROLES[i].produces;
  }
  for (size_t i = 0; i < WORKERS; i++) {
    if (pthread_create(&threads[i], NULL, run, &workers[i]) != 0) die("pthread_create", (int)i);
  }
  for (size_t i = 0; i < WORKERS; i++) (void)pthread_join(threads[i], NULL);
  for (size_t i = 0; i < WORKERS; i++) leave(i);
  check_all(f.memory_used);
  stop_all();
  leave_broker(&keeper);
  remove_files(keeper.path);
  free((void *)settled);
  if (!failed) printf("ok %llu messages\n", (unsigned long long)next_id - 1);
  exit(failed); /* not _exit: a sanitizer looks for what leaks */
}

int main(int count, char **arguments) {
  int signal_number;
  if (count > 1) amount = strtoull(arguments[1], NULL, 10);
  int result = apart(PROGRAM, SECONDS, stress, NULL, &signal_number);
  if (signal_number != 0) printf("FAIL signal %d\n", signal_number);
  return result != 0;
}
