// SPDX-License-Identifier: Apache-2.0
#include "fuzz_work.h"

#include <stdlib.h>

#include <stdio.h>

#include "sb_consumer.h"
#include "sb_wait.h"

#define MANY 2000 /* calls in a row, of what goes on until there is no more */
#define SOON (sb_now_ns() + 100000)
#define BATCH 16u
#define BATCH_BYTES (BATCH * RECORD_BYTES)

uint64_t random_state;
uint64_t choose(uint64_t of) {
  random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (random_state >> 33) % of;
}

/* A queue that was found, or NULL: then the step does nothing. */
static sb_queue *any(session *s) { return s->q[choose(QUEUES)]; }

static void put_something(session *s) {
  static const uint64_t sizes[] = {8, 64, 300, LONG_BODY, 20000, RUN_BODY};
  sb_put_options o = {.ttl_ns = choose(4) == 0 ? 1 : 0, .delay_ns = choose(4) == 0 ? 1 : 0};
  sb_queue *q = any(s);
  if (q != NULL) (void)put_sized(&s->t, q, 77, sizes[choose(sizeof sizes / sizeof sizes[0])], &o);
}

static void put_some_id(session *s) {
  int32_t pid;
  put_with_id(s, (char)('a' + choose(60)));
  if (s->q[IDLE] != NULL && choose(4) == 0) (void)sb_queue_wait_for_id(s->q[IDLE], SOON, &pid);
}

static void put_batch(session *s) {
  static const char body[100];
  sb_piece pieces[] = {{body, 100}, {body, 10}, {body, 0}};
  sb_put_options none = {0};
  sb_status status;
  sb_queue *q = any(s);
  if (q != NULL) (void)sb_queue_put_many(q, pieces, 3, &none, &status);
}

static void reserve(session *s) {
  sb_put_options none = {0};
  sb_queue *q = any(s);
  if (q != NULL && s->reserved_in == NULL && sb_reservation_begin(q, LONG_BODY, &none, &s->reserved) == SB_OK)
    s->reserved_in = q;
}
static void commit(session *s) {
  sb_reservation copy;
  if (s->reserved_in == NULL) return;
  if (choose(3) == 0 && sb_reservation_copy(s->reserved_in, &s->reserved, &copy) == SB_OK) {
    sb_reservation_abandon(s->reserved_in, &s->reserved, false);
    s->reserved = copy;
  } else if (sb_reservation_publish(s->reserved_in, &s->reserved) != SB_OK || choose(3) == 0) {
    sb_reservation_abandon(s->reserved_in, &s->reserved, false);
  }
  s->reserved_in = NULL;
}

static void get_something(session *s) {
  sb_queue *q = any(s);
  if (q != NULL) (void)get(&s->t, q, records, true);
}
static void get_all(session *s) {
  sb_queue *q = any(s);
  for (int n = 0; q != NULL && n < MANY && get(&s->t, q, records, true) != 0; n++) {
  }
}
static void hold_something(session *s) { (void)hold(s, any(s)); }
static void settle(session *s) {
  if (s->held_of != NULL) (void)sb_queue_settle(s->held_of, s->held, (sb_disposition)choose(3));
  s->held_of = NULL;
}
static void look_away(session *s) {
  if (s->view != 0) (void)sb_view_end(s->t.c, s->view);
  s->view = 0;
}
static void get_batch(session *s) {
  static char batch[BATCH_BYTES];
  uint32_t index[3 * BATCH + 1];
  uint64_t used;
  sb_queue *q = any(s);
  int64_t n = q != NULL ? sb_queue_get_many(q, BATCH, choose(2) == 0, batch, sizeof batch, index, &used) : 0;
  if (n > 0) (void)sb_queue_settle_many(q, batch, index, 3, (uint32_t)n, (sb_disposition)choose(3));
}
static void get_waiting(session *s) {
  sb_wait wait = {SOON, UINT64_MAX, 0, 0};
  sb_queue *q = any(s);
  if (q != NULL) (void)sb_queue_get_wait(q, records, choose(2) == 0, &wait);
}
static void get_soon(session *s) {
  sb_queue *q = any(s);
  if (q != NULL) (void)sb_queue_get_spin(q, 1000, records, true);
}
static void wait_for_room(session *s) {
  sb_queue *q = any(s);
  if (q != NULL) (void)sb_queue_wait_for_room(q, choose(2) == 0, choose(1000), SOON);
}
static void browse(session *s) {
  uint64_t position = choose(3) == 0 ? choose(300) : 0;
  sb_queue *q = any(s);
  for (int n = 0; q != NULL && n < MANY && sb_queue_browse(q, &position, records, RECORD_BYTES) >= 0; n++) {
  }
}
static void browse_columns(session *s) {
  int32_t body_ends[MANY + 1] = {0}, key_ends[MANY + 1] = {0};
  sb_columns columns = {.body = {.ends = body_ends, .bytes = records, .room = choose(RECORD_BYTES / 2)},
                        .key = {.ends = key_ends, .bytes = records + RECORD_BYTES / 2, .room = choose(300)}};
  uint64_t position = choose(3) == 0 ? choose(300) : 0;
  sb_queue *q = any(s);
  sb_status status;
  if (q != NULL) (void)sb_queue_browse_columns(q, &position, MANY, &columns, &status);
}

/* A selector of a header that most messages do not have, and of a property; the value of the header is asked for. */
static void select_some(session *s) {
  static const char selector[] = {SB_PROGRAM_VERSION, SB_OP_HEADER_TEXT8, 1, 'n', SB_OP_IS_NULL, SB_OP_PROPERTY_U8,
                                  SB_PROPERTY_TYPE,   SB_OP_LIKE_TEXT16,  1, 0,   (char)255,     SB_OP_OR};
  static const char group[] = {SB_PROGRAM_VERSION, SB_OP_HEADER_TEXT8, 1, 'n'};
  sb_selection selection = {.selector = selector,
                            .selector_length = sizeof selector,
                            .group = group,
                            .group_length = choose(2) == 0 ? sizeof group : 0,
                            .values = records + SB_MAX_PREFIX,
                            .room = choose(300),
                            .memory = records};
  uint64_t position = choose(3) == 0 ? choose(300) : 0;
  sb_queue *q = any(s);
  sb_status status;
  if (q != NULL) (void)sb_queue_select(q, &position, MANY, &selection, &status);
  for (int n = 0; q != NULL && n < MANY; n++) {
    if (sb_queue_browse_selected(q, &position, selector, sizeof selector, records, RECORD_BYTES) < 0) break;
  }
  uint64_t bytes = choose(1000);
  sb_queue *target = any(s);
  position = 0;
  sb_manage work = {.action = (sb_manage_action)choose(5),
                    .selector = selector,
                    .selector_length = choose(2) == 0 ? sizeof selector : 0,
                    .target = target,
                    .position = choose(3) == 0 ? choose(300) : 0,
                    .end = choose(2) == 0 ? UINT64_MAX : choose(300),
                    .limit = choose(100),
                    .bytes = bytes,
                    .scheduled = choose(2) == 0,
                    .memory = records};
  if (q != NULL && target != NULL) (void)sb_queue_manage(q, &work, &status);
  sb_whereabouts where;
  position = 0;
  for (int n = 0; q != NULL && n < MANY; n++) {
    if (sb_queue_browse_states(q, &position, UINT64_MAX, (uint32_t)choose(16), NULL, 0, choose(2) == 0, records,
                               RECORD_BYTES, &where) < 0)
      break;
  }
  if (q != NULL && sb_queue_take(q, choose(300), records) > 0) sb_queue_put_back(q, records);
}

static void purge(session *s) {
  sb_queue *q = any(s);
  if (q != NULL) (void)purge_count(q);
}
static void move(session *s) {
  sb_queue *q = any(s), *target = any(s);
  sb_status status;
  uint64_t bytes = choose(2) == 0 ? UINT64_MAX : choose(1000);
  if (q != NULL && target != NULL && q != target) (void)sb_queue_move(q, target, choose(100), &bytes, &status);
}
static void configure(session *s) {
  int32_t holder;
  sb_settings limits[] = {FREELY,
                          {{3, -1, -1, 0, -1, -1}, 0},
                          {{-1, 3, -1, 2, -1, -1}, 0},
                          {{-1, -1, 500, 2, -1, -1}, 0},
                          {{-1, 9, -1, 0, -1, -1}, 0}};
  sb_queue *q = any(s);
  if (q != NULL) (void)sb_queue_configure(q, &limits[choose(5)], choose(2) == 0, SOON, &holder);
}
static void delete_queue(session *s) {
  int32_t holder;
  uint64_t removed;
  sb_queue *q = any(s);
  if (q != NULL) (void)sb_queue_delete(q, choose(3) == 0, choose(3) == 0, SOON, &holder, &removed);
}
static void declare_queue(session *s) {
  char name[16];
  uint32_t slot;
  int32_t holder;
  sb_settings settings = FREELY;
  int length = snprintf(name, sizeof name, "new %d", (int)choose(3));
  (void)sb_queue_declare(s->t.c, name, (uint32_t)length, &settings, SOON, &slot, &holder);
}
static void open_again(session *s) {
  int i = (int)choose(QUEUES);
  if (s->q[i] == NULL) {
    s->q[i] = open_queue(&s->t, KINDS[i].name);
  } else if (s->q[i] != s->held_of && s->q[i] != s->reserved_in && s->consumer == NULL) {
    sb_queue_free(s->q[i]);
    s->q[i] = NULL;
  }
}

static void describe(session *s) {
  sb_queue_facts queue;
  sb_broker_facts broker;
  sb_connection_facts connection;
  sb_consumer_facts consumers[4];
  int32_t pids[4];
  uint32_t index = 0, slot;
  sb_broker_describe(s->t.b, &broker, true);
  (void)sb_broker_pids(s->t.b, pids, 4);
  for (uint32_t id = 1; id < 8; id++) (void)sb_connection_describe(s->t.b, id, &connection);
  while ((slot = sb_queue_next(s->t.c, &index)) != 0) {
    (void)sb_queue_describe(s->t.c, slot, &queue);
    (void)sb_queue_consumers(s->t.c, slot, consumers, 4);
  }
  for (int i = 0; i < QUEUES; i++) {
    if (s->q[i] != NULL) (void)sb_queue_length(s->q[i]);
  }
}

static void consume(session *s) {
  sb_status status;
  sb_queue *queues[] = {any(s), any(s)};
  if (s->consumer == NULL && queues[0] != NULL && queues[1] != NULL && queues[0] != queues[1])
    s->consumer =
        sb_consumer_open(s->t.c, queues, 2, 4, (int32_t)choose(3), (sb_disposition)choose(3), ONE_HOUR, &status);
}
/* Of a body in parts what a buffer holds, whatever its length is said to be. */
static void copy_parts(session *s, const sb_record *r) {
  char *body = r->body_length <= 1u << 20 ? malloc(r->body_length + 1) : NULL;
  if (body != NULL) (void)sb_view_copy(s->t.c, r->tag, body, r->body_length);
  free(body);
}

static void consume_next(session *s) {
  if (s->consumer == NULL) return;
  for (uint64_t n = choose(10); n > 0; n--) {
    bool at_once = choose(2) == 0;
    int64_t length = sb_consumer_next(s->consumer, records, at_once);
    if (length == -SB_EMPTY) (void)sb_consumer_wait(s->consumer, SOON);
    if (length > 0 && !at_once) (void)sb_consumer_settle(s->consumer, records, (sb_disposition)choose(3));
    if (length > 0 && at_once && ((sb_record *)(void *)records)->body_address == SB_IN_PARTS)
      copy_parts(s, (sb_record *)(void *)records);
    if (length > 0 && at_once && ((sb_record *)(void *)records)->body_address != 0)
      (void)sb_view_end(s->t.c, ((sb_record *)(void *)records)->tag);
  }
}
static void suspend(session *s) {
  if (s->consumer == NULL) return;
  sb_consumer_suspend(s->consumer, true);
  sb_consumer_suspend(s->consumer, false);
  sb_consumer_send_acks(s->consumer);
}
static void cancel(session *s) {
  if (s->consumer == NULL) return;
  sb_consumer_cancel(s->consumer, choose(2) == 0);
  sb_consumer_free(s->consumer);
  s->consumer = NULL;
}

#define AT_MOST_NS UINT64_C(1000000)
static void keep_house(session *s) {
  sb_queue_memory memory = {0};
  static sb_dead_batch batch;
  sb_queue *q = any(s);
  uint32_t index = (uint32_t)choose(SB_DIRECTORY_SIZE), slot = sb_queue_next(s->t.c, &index);
  for (int i = 0; i < 5; i++) sb_housekeeper_tick(s->t.c, q != NULL ? q->slot : slot, &memory);
  if (q == NULL) return;
  (void)sb_housekeeper_new_timers(&q, &memory, 1);
  (void)sb_housekeeper_run_timers(&q, &memory, 1, 0, 0, AT_MOST_NS);
  (void)sb_dead_take_batch(q, &memory, choose(2) == 0, &batch);
  (void)sb_dead_end_batch(q, &memory, &batch);
  sb_housekeeper_forget(&memory);
  sb_housekeeper_trim(q);
}
static void sweep(session *s) { (void)sb_housekeeper_sweep(s->t.c, SOON); }
static void recover(session *s) { (void)sb_housekeeper_reap(s->t.c); }
void check(session *s) {
  sb_finding found[4];
  (void)sb_broker_check(s->t.c, found, 4);
}

void disconnect(sb_connection *c) {
  (void)sb_connection_close(c);
  (void)sb_connection_release(c);
}
static void come_and_go(session *s) {
  sb_status status;
  sb_connection *c = sb_connection_open(s->t.b, "visitor", 7, &status);
  if (c == NULL) return;
  disconnect(c);
  sb_connection_free(c);
}

const fuzz_step STEPS[] = {
    {"put", put_something},     {"put_many", put_batch}, {"reserve", reserve},     {"commit", commit},
    {"get", get_something},     {"get all", get_all},    {"hold", hold_something}, {"settle", settle},
    {"view", view_held},        {"end view", look_away}, {"get_many", get_batch},  {"get_wait", get_waiting},
    {"get_soon", get_soon},     {"room", wait_for_room}, {"browse", browse},       {"browse_columns", browse_columns},
    {"purge", purge},           {"move", move},          {"configure", configure}, {"delete", delete_queue},
    {"declare", declare_queue}, {"open", open_again},    {"describe", describe},   {"consume", consume},
    {"next", consume_next},     {"suspend", suspend},    {"cancel", cancel},       {"tick", keep_house},
    {"sweep", sweep},           {"recover", recover},    {"check", check},         {"connect", come_and_go},
    {"put", put_something},     {"get", get_something},  {"hold", hold_something}, {"settle", settle},
    {"next", consume_next},     {"select", select_some}, {"put id", put_some_id}};
const size_t STEP_COUNT = sizeof STEPS / sizeof STEPS[0];
