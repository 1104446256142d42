// SPDX-License-Identifier: Apache-2.0
#include "fuzz_image.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sb_api.h"
#include "sb_consumer.h"
#include "sb_wait.h"

#define CHUNKS 40u

const queue_kind KINDS[QUEUES] = {{"plain", FREELY},
                                  {"ring", {{20, -1, -1, 0, -1, -1}, 0}},
                                  {"limited", {{-1, 4, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}},
                                  {"bytes", {{-1, -1, 1000, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0}},
                                  {"long", FREELY},
                                  {"timed", FREELY},
                                  {"idle", {{-1, -1, -1, 0, -1, -1, [SB_SETTING_DUPLICATE_IDS] = 20}, 0}},
                                  {"closed", FREELY},
                                  {"lease", {{-1, -1, -1, 0, -1, -1}, SB_QUEUE_KEEPS}}};

char *records;

void open_all(session *s) {
  for (int i = 0; i < QUEUES; i++) s->q[i] = open_queue(&s->t, KINDS[i].name);
}

bool hold(session *s, sb_queue *q) {
  int64_t length = q == NULL || s->held_of != NULL ? 0 : sb_queue_get(q, s->held, false);
  s->held_of = length > 0 ? q : NULL;
  return length > 0;
}

void view_held(session *s) {
  sb_record r;
  memcpy(&r, s->held, sizeof r);
  if (s->held_of != NULL && s->view == 0) (void)sb_view_begin(s->t.c, r.tag, r.sequence, r.body_address, &s->view);
}

/* An entry in the list of waiting producers, or of consumers: no thread sleeps. */
static void wait_in_list(session *s, sb_queue *q, uint32_t flags, int32_t priority) {
  uint32_t node;
  uint64_t token;
  if (sb_node_create(s->t.c, q->slot, priority, SB_NODE_DIRECT | flags, 0, 64, &node, &token) == SB_OK) {
    (void)sb_wake_arm(&((sb_node_shm *)sb_slot_at(s->t.b, node))->wake);
    (void)sb_node_move(s->t.c, node, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED);
  }
}

void take_in_hand(session *s, int32_t priority) {
  sb_put_options none = {0};
  sb_status status;
  for (int i = 0; i < 5; i++) {
    (void)sb_queue_get(s->q[PLAIN], records, false);
    (void)sb_queue_get(s->q[RING], records, false);
  }
  (void)sb_queue_settle(s->q[RING], records, SB_REQUEUE); /* one comes back */
  (void)sb_queue_get(s->q[PLAIN], records, false);
  (void)sb_queue_settle(s->q[PLAIN], records, SB_REQUEUE);
  if (hold(s, s->q[LONG])) view_held(s);
  sb_queue *queues[] = {s->q[IDLE], s->q[PLAIN]};
  s->consumer = sb_consumer_open(s->t.c, queues, 2, 4, priority, 3, ONE_HOUR, &status);
  if (s->consumer != NULL && sb_consumer_next(s->consumer, records, false) > 0)
    (void)sb_consumer_settle(s->consumer, records, SB_ACK); /* waits for its batch */
  if (sb_reservation_begin(s->q[PLAIN], LONG_BODY, &none, &s->reserved) == SB_OK) s->reserved_in = s->q[PLAIN];
  wait_in_list(s, s->q[IDLE], 0, priority);
  wait_in_list(s, s->q[LIMITED], SB_NODE_ROOM, 0);
  wait_in_list(s, s->q[LIMITED], SB_NODE_ROOM | SB_NODE_MEMORY, 0);
}

void enter(session *s) {
  s->held = malloc(RECORD_BYTES);
  attach(&s->t);
  s->t.c = connect_to(&s->t);
  open_all(s);
}

#define IN_PARTS 200000u /* longer than what slots there are */

/* As if memory were full: there are only slots for shorter bodies. */
static void put_in_parts(sb_queue *q) {
  sb_put_options none = {0};
  sb_reservation r = {.scattered = true, .admitted = true, .kept = true};
  sb_connection *c = q->c;
  uint64_t front = sizeof(sb_message_shm) + SB_VIEWERS_BYTES;
  if (sb_holding_take(c, &r.token) != SB_OK || sb_scatter_alloc(c, front, IN_PARTS, r.token, &r.slot, &r.gen) != SB_OK)
    die("no parts", 0);
  sb_api_fill(c, &r, IN_PARTS, &none, 0, 0);
  r.body = calloc(1, IN_PARTS);
  q->busy++;
  sb_status status = sb_reservation_publish(q, &r);
  if (status != SB_OK) die("sb_reservation_publish", (int)status);
}

void put_with_id(session *s, char id) {
  char properties[] = "\x20\x00\x00\x00\x00\x15"
                      "\x0ex-duplicate-idS\x00\x00\x00\x01?";
  properties[sizeof properties - 2] = id;
  sb_put_options o = {.properties = properties, .properties_length = sizeof properties - 1};
  if (s->q[IDLE] != NULL) (void)put_sized(&s->t, s->q[IDLE], 78, 64, &o);
  if (s->q[IDLE] != NULL) (void)get(&s->t, s->q[IDLE], records, true);
}

static void fill_queues(session *s) {
  sb_put_options none = {0}, delayed = {.delay_ns = ONE_HOUR}, due = {.delay_ns = 1},
                 timed = {
                     .ttl_ns = ONE_HOUR, .key = "key", .properties = "much", .key_length = 3, .properties_length = 4};
  for (uint64_t id = 1; id <= SB_PAGE_CELLS * SB_PAGE_CELLS; id++) { /* a tree of three levels, most of it finished */
    (void)put(&s->t, s->q[PLAIN], id);
    (void)get(&s->t, s->q[PLAIN], records, true);
  }
  for (uint64_t id = 1; id <= 200; id++) (void)put(&s->t, s->q[PLAIN], id);
  for (uint64_t id = 1; id <= 100; id++)
    (void)get(&s->t, s->q[PLAIN], records, id % 10 != 0); /* finished pages, and held */
  for (uint64_t id = 1; id <= 90; id++) (void)put(&s->t, s->q[RING], id);
  sb_status status;
  uint64_t bytes = UINT64_MAX;
  (void)sb_queue_move(s->q[PLAIN], s->q[LEASE], 20, &bytes, &status);
  for (uint64_t id = 1; id <= 4; id++) (void)put(&s->t, s->q[LIMITED], id);
  for (uint64_t id = 1; id <= 20; id++) (void)put(&s->t, s->q[BYTES], id);
  for (uint64_t id = 1; id <= 6; id++) (void)put_sized(&s->t, s->q[LONG], id, id == 6 ? RUN_BODY : LONG_BODY, &none);
  put_in_parts(s->q[LONG]);
  for (uint64_t id = 1; id <= 9; id++)
    (void)put_sized(&s->t, s->q[TIMED], id, 300 * id, id % 3 == 0 ? &delayed : id % 3 == 1 ? &due : &timed);
  for (uint64_t id = 1; id <= 70; id++) (void)put(&s->t, s->q[CLOSED], id);
  for (char id = 'a'; id <= 'z'; id++) put_with_id(s, id);
}

static void first_process(test_broker *t) {
  session s = {.t = *t};
  s.held = malloc(RECORD_BYTES);
  attach(&s.t);
  s.t.c = connect_to(&s.t);
  for (int i = 0; i < QUEUES; i++) {
    if (declare(&s.t, KINDS[i].name, KINDS[i].settings) != SB_OK) die("sb_queue_declare", i);
  }
  open_all(&s);
  fill_queues(&s);
  (void)sb_connection_close(s.t.c);
  (void)sb_connection_release(s.t.c);
  sb_broker_detach(s.t.b);
  _exit(0);
}

static void dead_process(test_broker *t) {
  session s = {.t = *t};
  enter(&s);
  take_in_hand(&s, 5);
  (void)kill(getpid(), SIGKILL);
}

static void stopped_process(test_broker *t) {
  session s = {.t = *t};
  int32_t holder;
  uint64_t removed;
  enter(&s);
  take_in_hand(&s, 0);
  (void)sb_queue_get(s.q[CLOSED], records, false);
  (void)sb_queue_delete(s.q[CLOSED], false, false, FOREVER, &holder, &removed);
  (void)raise(SIGSTOP);
  _exit(0);
}

static pid_t let(void (*work)(test_broker *), test_broker *t, bool stops) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a stopped process must not stay behind */
    work(t);
  }
  if (waitpid(pid, &status, stops ? WUNTRACED : 0) != pid || WIFSTOPPED(status) != stops)
    die("making the image", status);
  return pid;
}

/* ---- the image ---- */

segment segments[MOST_SEGMENTS];
uint32_t segment_count;
static pid_t stopped_pid;

static void save(const test_broker *t) {
  char name[160], suffix[16];
  struct stat st;
  for (segment_count = 0; segment_count < MOST_SEGMENTS; segment_count++) {
    segment *s = &segments[segment_count];
    snprintf(suffix, sizeof suffix, "%u", segment_count);
    file_name(name, sizeof name, t->path, suffix);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0) break;
    if (fstat(fd, &st) != 0) die("fstat", 0);
    s->bytes = (uint64_t)st.st_size;
    s->memory = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    s->copy = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->memory == MAP_FAILED || s->copy == MAP_FAILED) die("mmap", (int)segment_count);
    memcpy(s->copy, s->memory, s->bytes);
    close(fd);
  }
}

#define BLOCK 4096u
void restore(const test_broker *t) {
  char name[160], suffix[16];
  for (uint32_t n = 0; n < segment_count; n++) {
    for (uint64_t at = 0; at < segments[n].bytes; at += BLOCK) {
      uint64_t bytes = segments[n].bytes - at < BLOCK ? segments[n].bytes - at : BLOCK;
      if (memcmp(segments[n].memory + at, segments[n].copy + at, bytes) != 0)
        memcpy(segments[n].memory + at, segments[n].copy + at, bytes);
    }
  }
  for (uint32_t n = segment_count; n < MOST_SEGMENTS; n++) { /* what grew meanwhile */
    snprintf(suffix, sizeof suffix, "%u", n);
    file_name(name, sizeof name, t->path, suffix);
    (void)unlink(name);
  }
}

void make_image(test_broker *t, const char *name) {
  make_broker(t, name, CHUNKS);
  (void)let(first_process, t, false);
  (void)let(dead_process, t, false);
  stopped_pid = let(stopped_process, t, true);
  save(t);
}

void drop_image(test_broker *t) {
  int status;
  if (stopped_pid > 0) {
    (void)kill(stopped_pid, SIGKILL);
    (void)waitpid(stopped_pid, &status, 0);
  }
  remove_files(t->path);
}
