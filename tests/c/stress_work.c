// SPDX-License-Identifier: Apache-2.0
#include "stress_work.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sb_holdings.h"
#include "sb_housekeeping.h"
#include "sb_queue.h"
#include "sb_wait.h"

#define MOST 64
#define LONG_BODY 5000u
#define UNLOCKED_BODY 20000u
#define RUN_BODY (3u << 20)
#define MILLISECOND UINT64_C(1000000)
#define ONE_HOUR UINT64_C(3600000000000)

const queue_kind KINDS[QUEUES] = {{"jobs", FREELY},
                                  {"moved", FREELY},
                                  {"limited", {{-1, 16, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}},
                                  {"long", {{-1, -1, 400000, SB_OVERFLOW_BLOCK, -1, -1}, 0}},
                                  {"ring", {{32, -1, -1, 0, -1, -1}, 0}}};

uint64_t amount = 1500;
_Atomic uint64_t next_id = 1, producing;
static _Atomic uint64_t unsettled;
_Atomic uint8_t *settled;
_Atomic bool failed;

void fail(const char *format, ...) {
  va_list list;
  va_start(list, format);
  if (!atomic_exchange(&failed, true)) {
    printf("FAIL ");
    vprintf(format, list);
    printf("\n");
    fflush(stdout);
  }
  va_end(list);
}

/* ---- the oracle ---- */

static void settle_once(uint64_t id) {
  if (id == UINT64_MAX || id >= atomic_load(&next_id)) {
    fail("the body of a message is not what was put");
  } else if (atomic_fetch_add(&settled[id], 1) != 0) {
    fail("message %llu was settled twice", (unsigned long long)id);
  }
  (void)atomic_fetch_sub(&unsettled, 1);
}

static bool over(void) {
  return atomic_load(&failed) || (atomic_load(&producing) == 0 && atomic_load(&unsettled) == 0);
}

/* ---- actors ---- */

static uint64_t choose(worker *w, uint64_t of) {
  w->random = w->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (w->random >> 33) % of;
}

/* In the test's own time, not in that of a busy machine: another thread gets its turn. */
static void rest(void) { (void)sched_yield(); }

static bool again(worker *w, sb_queue *q, sb_status status, uint64_t bytes) {
  if (status == SB_GROW) return grow(w->t.b, w->t.path);
  if (status == SB_FULL || status == SB_NO_MEMORY) {
    sb_status waited = sb_queue_wait_for_room(q, status == SB_NO_MEMORY, bytes, FOREVER);
    return waited == SB_OK || waited == SB_GROW || waited == SB_INTERRUPTED;
  }
  return false;
}

void join_all(worker *w) {
  for (int i = 0; i < QUEUES; i++) {
    w->q[i] = open_queue(&w->t, KINDS[i].name);
    if (w->q[i] == NULL) die("opening a queue", i);
  }
}

static void put_batch(worker *w, sb_queue *q, uint64_t first, uint32_t count) {
  uint64_t bodies[8][4];
  sb_piece pieces[8];
  sb_put_options none = {0};
  sb_status status;
  for (uint32_t i = 0; i < count; i++) {
    fill_body(bodies[i], sizeof bodies[i], first + i);
    pieces[i] = (sb_piece){(const char *)bodies[i], sizeof bodies[i]};
  }
  for (uint32_t done = 0; done < count;) {
    done += (uint32_t)sb_queue_put_many(q, pieces + done, count - done, &none, &status);
    if (done < count && !again(w, q, status, sizeof bodies[0])) {
      fail("a batch was not put: %d", (int)status);
      return;
    }
  }
}

static void put_reserved(worker *w, sb_queue *q, uint64_t id, uint64_t bytes) {
  sb_put_options none = {0};
  sb_reservation r;
  sb_status status;
  while ((status = sb_reservation_begin(q, bytes, &none, &r)) != SB_OK && again(w, q, status, bytes)) {
  }
  if (status == SB_OK) {
    fill_body(r.body, bytes, id);
    while ((status = sb_reservation_publish(q, &r)) == SB_GROW && grow(w->t.b, w->t.path)) {
    }
  }
  if (status != SB_OK) fail("a reservation was not put: %d", (int)status);
}

static void put_waiting(worker *w, sb_queue *q, uint64_t id, uint64_t bytes, const sb_put_options *o) {
  sb_status status;
  while ((status = put_sized(&w->t, q, id, bytes, o)) != SB_OK && again(w, q, status, bytes)) {
  }
  if (status != SB_OK) fail("a message was not put: %d", (int)status);
}

static void produce(worker *w, int kind) {
  sb_put_options plain = {0}, delayed = {.delay_ns = 1}, timed = {.ttl_ns = ONE_HOUR, .key = "key", .key_length = 3};
  for (uint64_t n = 0; n < amount && !atomic_load(&failed);) {
    uint32_t count = kind == JOBS && choose(w, 4) == 0 && amount - n >= 8 ? 8 : 1;
    uint64_t id = atomic_fetch_add(&next_id, count);
    if (kind != RING) (void)atomic_fetch_add(&unsettled, count);
    if (count > 1) {
      put_batch(w, w->q[kind], id, count);
    } else if (kind == LONG) {
      uint64_t bytes = n % 256 == 255 ? 64 : choose(w, 2) == 0 ? LONG_BODY : UNLOCKED_BODY;
      if (choose(w, 2) == 0) {
        put_reserved(w, w->q[kind], id, bytes);
      } else {
        put_waiting(w, w->q[kind], id, bytes, &plain);
      }
    } else {
      const sb_put_options *o[] = {&plain, &plain, &plain, &delayed, &timed};
      bool run = kind == JOBS && n % 256 == 255;
      put_waiting(w, w->q[kind], id, run ? RUN_BODY : 8 + 8 * choose(w, 300), o[kind == RING ? 0 : choose(w, 5)]);
    }
    n += count;
  }
  (void)atomic_fetch_sub(&producing, 1);
}
void produce_jobs(worker *w) { produce(w, JOBS); }
void produce_limited(worker *w) { produce(w, LIMITED); }
void produce_long(worker *w) { produce(w, LONG); }
void produce_ring(worker *w) { produce(w, RING); }

/* Reads a body in place after its message was settled. */
static uint64_t settle_viewed(worker *w, sb_queue *q, const char *record, sb_disposition disposition) {
  sb_record r;
  uint64_t view;
  sb_status status;
  memcpy(&r, record, sizeof r);
  while ((status = sb_view_begin(w->t.c, r.tag, r.sequence, r.body_address, &view)) == SB_GROW &&
         grow(w->t.b, w->t.path)) {
  }
  if (status != SB_OK) fail("a held body cannot be viewed: %d", (int)status);
  if (sb_queue_settle(q, record, disposition) != SB_OK) fail("a held message cannot be settled");
  uint64_t id = id_at((const char *)(uintptr_t)r.body_address, r.body_length);
  sb_view_end(w->t.c, view);
  return id;
}

static void end_one(worker *w, sb_queue *q, int64_t length, bool ring) {
  const sb_record *r = (const sb_record *)(const void *)w->buffer;
  sb_disposition disposition = (sb_disposition)choose(w, 4);
  uint64_t id = id_at(body_of(w->buffer, length), r->body_length);
  if (disposition == SB_REQUEUE || disposition == SB_UNDELIVER) {
    if (sb_queue_settle(q, w->buffer, SB_REQUEUE) != SB_OK) fail("a held message cannot be returned");
    return;
  }
  if (r->body_address != 0 && choose(w, 2) == 0) {
    id = settle_viewed(w, q, w->buffer, disposition);
  } else if (sb_queue_settle(q, w->buffer, disposition) != SB_OK) {
    fail("a held message cannot be settled");
  }
  if (!ring) settle_once(id);
}

static void take_one(worker *w, int kind) {
  sb_queue *q = w->q[kind];
  if (choose(w, 2) == 0) {
    uint64_t id = get(&w->t, q, w->buffer, true);
    if (id != 0 && kind != RING) settle_once(id);
    return;
  }
  int64_t length;
  while ((length = sb_queue_get(q, w->buffer, false)) == -SB_GROW && grow(w->t.b, w->t.path)) {
  }
  if (length > 0) end_one(w, q, length, kind == RING);
}

void take(worker *w) {
  while (!over()) {
    for (int kind = 0; kind < QUEUES; kind++) take_one(w, kind);
    rest();
  }
}

void take_batches(worker *w) {
  uint32_t index[3 * MOST + 1];
  uint64_t used;
  while (!over()) {
    int kind = choose(w, 2) == 0 ? JOBS : MOVED;
    int64_t n = sb_queue_get_many(w->q[kind], MOST, false, w->buffer, BUFFER * 4, index, &used);
    for (int64_t i = 0; i < n; i++) {
      const char *record = w->buffer + index[3 * i];
      const sb_record *r = (const sb_record *)(const void *)record;
      settle_once(id_at(body_of(record, index[3 * i + 2] - index[3 * i]), r->body_length));
    }
    if (n > 0 && sb_queue_settle_many(w->q[kind], w->buffer, index, 3, (uint32_t)n, 0) != SB_OK)
      fail("a batch cannot be settled");
    if (n == -SB_GROW) (void)grow(w->t.b, w->t.path);
    rest();
  }
}

void take_waiting(worker *w) {
  while (!over()) {
    int kind = choose(w, 2) == 0 ? LIMITED : JOBS;
    sb_wait wait = {sb_now_ns() + MILLISECOND, UINT64_MAX, 0, 0};
    int64_t length = sb_queue_get_wait(w->q[kind], w->buffer, false, &wait);
    if (length == -SB_GROW) (void)grow(w->t.b, w->t.path);
    if (length > 0) end_one(w, w->q[kind], length, false);
  }
}

static void *run_io(void *connection) {
  (void)sb_connection_run_io(connection);
  return NULL;
}

void consume(worker *w) {
  sb_queue *queues[] = {w->q[JOBS], w->q[MOVED], w->q[LONG]};
  sb_status status;
  pthread_t io;
  if (pthread_create(&io, NULL, run_io, w->t.c) != 0) die("pthread_create", 0);
  while (!over()) {
    sb_consumer *k = sb_consumer_open(w->t.c, queues, 3, 16, (int32_t)choose(w, 2), 1 + (uint32_t)choose(w, 4),
                                      MILLISECOND, &status);
    if (k == NULL && status == SB_GROW && grow(w->t.b, w->t.path)) continue;
    if (k == NULL) die("sb_consumer_open", (int)status);
    for (int n = 0; n < 200 && !over(); n++) {
      bool at_once = choose(w, 2) == 0;
      int64_t length = sb_consumer_next(k, w->buffer, at_once);
      if (length == -SB_EMPTY) {
        (void)sb_consumer_wait(k, sb_now_ns() + MILLISECOND);
      } else if (length == -SB_GROW) {
        (void)grow(w->t.b, w->t.path);
      } else if (length > 0) {
        const sb_record *r = (const sb_record *)(const void *)w->buffer;
        uint64_t id = id_at(body_of(w->buffer, length), r->body_length);
        sb_disposition disposition = choose(w, 4) == 0 ? SB_REQUEUE : SB_ACK;
        if (at_once && r->body_address != 0) sb_view_end(w->t.c, r->tag);
        if (!at_once && sb_consumer_settle(k, w->buffer, disposition) != SB_OK) fail("a delivery cannot be settled");
        if (at_once || disposition == SB_ACK) settle_once(id);
      }
      if (choose(w, 50) == 0) {
        sb_consumer_suspend(k, true);
        sb_consumer_suspend(k, false);
      }
    }
    sb_consumer_send_acks(k);
    sb_consumer_cancel(k, true);
    sb_consumer_free(k);
  }
  (void)sb_connection_close(w->t.c);
  (void)pthread_join(io, NULL);
}

void move(worker *w) {
  sb_status status;
  while (!over()) {
    uint64_t bytes = UINT64_MAX;
    (void)sb_queue_move(w->q[JOBS], w->q[MOVED], 5, &bytes, &status);
    if (status == SB_GROW) (void)grow(w->t.b, w->t.path);
    rest();
  }
}

static void browse_columns(worker *w, sb_queue *q) {
  int32_t ends[MOST + 1] = {0};
  int64_t sequences[MOST];
  sb_columns columns = {.body = {.ends = ends, .bytes = w->buffer, .room = BUFFER * 4}, .sequence = sequences};
  uint64_t position = 0;
  sb_status status;
  int64_t rows = sb_queue_browse_columns(q, &position, MOST, &columns, &status);
  for (int64_t row = 0; row < rows; row++) {
    if (id_at(w->buffer + ends[row], (uint64_t)(ends[row + 1] - ends[row])) == UINT64_MAX || sequences[row] < 0)
      fail("a column has half a message");
    if (row > 0 && sequences[row] <= sequences[row - 1]) fail("rows are in another order");
  }
}

void browse(worker *w) {
  sb_queue_facts queue;
  sb_broker_facts broker;
  sb_connection_facts connection;
  sb_consumer_facts consumers[MOST];
  while (!over()) {
    for (int kind = 0; kind < QUEUES; kind++) {
      uint64_t position = 0;
      int64_t length;
      for (int n = 0; n < MOST && (length = sb_queue_browse(w->q[kind], &position, w->buffer, BUFFER * 4)) > 0; n++) {
        const sb_record *r = (const sb_record *)(const void *)w->buffer;
        if (id_at(w->buffer + length - r->body_length, r->body_length) == UINT64_MAX)
          fail("a browser saw half a message");
      }
      browse_columns(w, w->q[kind]);
      (void)sb_queue_describe(w->t.c, w->q[kind]->slot, &queue);
      (void)sb_queue_consumers(w->t.c, w->q[kind]->slot, consumers, MOST);
      (void)sb_queue_length(w->q[kind]);
    }
    for (uint32_t slot, index = 0; (slot = sb_queue_next(w->t.c, &index)) != 0;)
      (void)sb_queue_describe(w->t.c, slot, &queue);
    (void)sb_queue_find(w->t.c, "visit 0", 7, &(uint32_t){0});
    sb_broker_describe(w->t.b, &broker, true);
    for (uint32_t id = 1; id < MOST; id++) (void)sb_connection_describe(w->t.b, id, &connection);
    rest();
  }
}

void examine(worker *w) {
  sb_finding findings[4];
  while (!over()) {
    (void)sb_broker_check(w->t.c, findings, 4);
    rest();
  }
}

void come_and_go(worker *w) {
  for (uint64_t n = 0; n < amount / 50 && !atomic_load(&failed); n++) {
    test_broker visit = w->t;
    char name[32];
    int32_t holder;
    uint64_t removed;
    pthread_t io;
    snprintf(name, sizeof name, "visit %d", (int)(n % 3));
    visit.c = connect_to(&visit);
    if (pthread_create(&io, NULL, run_io, visit.c) != 0) die("pthread_create", 0);
    (void)declare(&visit, name, (sb_settings)FREELY);
    sb_queue *q = open_queue(&visit, name), *jobs = open_queue(&visit, "jobs");
    for (uint64_t id = 1; q != NULL && id <= 100; id++) (void)put(&visit, q, id);
    if (jobs != NULL) (void)sb_queue_get(jobs, w->buffer, false); /* goes back with the connection */
    if (q != NULL && choose(w, 2) == 0) (void)purge_count(q);
    if (q != NULL)
      while (sb_queue_delete(q, false, false, FOREVER, &holder, &removed) == SB_GROW && grow(visit.b, visit.path)) {
      }
    (void)sb_connection_close(visit.c);
    (void)pthread_join(io, NULL);
    if (q != NULL) sb_queue_free(q);
    if (jobs != NULL) sb_queue_free(jobs);
    (void)sb_connection_release(visit.c);
    sb_connection_free(visit.c);
  }
  (void)atomic_fetch_sub(&producing, 1);
}

/* The ring is shrunk and grown, trimmed and not. */
void configure(worker *w) {
  int32_t holder;
  for (uint64_t n = 0; n < amount / 50 && !atomic_load(&failed); n++) {
    sb_settings ring = {{(int64_t)(n % 4 + 1) * 8, -1, -1, 0, -1, -1}, 0};
    sb_settings limited = {{-1, (int64_t)(8 + n % 16), -1, 0, -1, -1}, 0};
    (void)sb_queue_configure(w->q[RING], &ring, n % 2 == 0, FOREVER, &holder);
    (void)sb_queue_configure(w->q[LIMITED], &limited, false, FOREVER, &holder);
    rest();
  }
  (void)atomic_fetch_sub(&producing, 1);
}

void keep_house_of(worker *w, sb_queue_memory memories[QUEUES]) {
  uint64_t positions[MOST];
  (void)sb_housekeeper_ticks(w->t.c, w->q, memories, QUEUES);
  for (int kind = 0; kind < QUEUES; kind++) {
    int64_t n = sb_housekeeping_timers(w->q[kind], memories[kind].cursors, positions, MOST);
    for (int64_t i = 0; i < n; i++) { /* what is due in an hour, or was settled, needs no further look */
      uint64_t when;
      while ((when = sb_housekeeper_look_at(w->q[kind], positions[i])) != 0 && when < sb_now_ns() + MILLISECOND) {
      }
    }
    sb_housekeeper_trim(w->q[kind]);
  }
  (void)sb_housekeeper_sweep(w->t.c, sb_now_ns() + MILLISECOND);
  (void)sb_housekeeper_reclaim(w->t.c);
  (void)sb_housekeeper_reap(w->t.c);
}

/* All leaves that are free, and some of another chunk: pages of others come to lie there, too. When they are gone the chunk goes to
 * bodies, beside all who looked at them. */
void swell(worker *w) {
  enum { LEAVES = SB_CHUNK_UNITS / SB_LEAF_UNITS + 64 };
  sb_connection *c = w->t.c;
  uint32_t *leaves = calloc(LEAVES, sizeof *leaves);
  while (!over()) {
    uint32_t count = 0;
    uint64_t token, gen;
    bool more = true;
    while (more && count < LEAVES) { /* in steps, as calls do */
      sb_lock(c);
      more = sb_holding_take(c, &token) == SB_OK;
      for (uint32_t i = 0; more && i < MOST && count < LEAVES; i++) {
        more = sb_slab_alloc(c, sb_class_of_kind(c->b, SB_KIND_LEAF), token, &leaves[count], &gen) == SB_OK;
        count += more;
      }
      sb_holding_give(c, token);
      sb_unlock(c);
    }
    for (int i = 0; i < MOST && !over(); i++) rest();
    sb_lock(c);
    while (count > 0) sb_slab_free_now(c->b, leaves[--count]);
    sb_slab_return_cache(c);
    sb_unlock(c);
    for (int i = 0; i < 4 * MOST && !over(); i++) rest();
  }
  free(leaves);
}

void keep_house(worker *w) {
  sb_queue_memory memories[QUEUES] = {0};
  (void)sb_housekeeper_begin(w->t.c);
  while (!over()) {
    keep_house_of(w, memories);
    (void)sb_housekeeper_wait(w->t.c, sb_housekeeper_arm(w->t.c), sb_now_ns() + MILLISECOND);
  }
  sb_housekeeper_end(w->t.c);
}
