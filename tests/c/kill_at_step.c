// SPDX-License-Identifier: Apache-2.0
/* Kills a process at every shared step of every operation, and looks at what it leaves.
 *
 * For each operation and each N: a fresh broker; a child runs the operation and is killed at the N-th step (SB_TEST_HOOKS
 * calls sb_test_step before every atomic operation and at every crash point). Then this
 * process reaps, and checks: sb_check finds nothing; every message is there exactly as often as the operation allows; the
 * limits of the queue hold exactly; put, get, delete and declare still work; all memory comes back.
 *
 *   kill_at_step [-v] [-every N] [operation [step]]
 *
 * `-every N` takes one step of N, other ones for each operation: a sample that fits into the ordinary tests.
 */
#include "broker_fixture.h"

#define SETUP 6u /* messages 1 .. SETUP lie in the queue before */
#define FRESH 8u
#define LONG 5000u /* read in place */
#define OTHERS 7u  /* the id of all further messages */
#define VISITS 16u /* so many times a site counts as a step: long loops are not followed to their end */

typedef struct {
  volatile uint64_t done; /* the operation came back: what it says must hold from now on */
  const char *volatile site;
  volatile uint64_t steps;
} report;

typedef struct operation {
  const char *name;
  sb_settings settings;
  uint32_t messages, chunks;
  void (*prepare)(void); /* the child, before the killing begins */
  void (*run)(void);
  /* Ids (bit i: id i) that must be left, and that may be left, while the operation is under way and after it came back. */
  uint64_t must, may, must_done, may_done;
  int64_t exactly; /* so many messages must be left, -1: the sets say enough */
  bool reaper;     /* the operation is reaping: a victim was killed before, and the killed reaper is reaped too */
  uint64_t bytes;  /* of each message that lies there before, 0: short ones */
} operation;

static report *shared;
static bool armed, verbose;
static uint64_t steps, kill_at;
static struct {
  const char *site;
  unsigned visits;
} visited[1024];
static unsigned passed, failed;

void sb_test_step(const char *site) {
  if (!armed) return;
  size_t at = (size_t)(uintptr_t)site / 8 % 1024;
  while (visited[at].site != NULL && visited[at].site != site) at = (at + 1) % 1024;
  visited[at].site = site;
  if (++visited[at].visits > VISITS) return;
  shared->site = site;
  shared->steps = ++steps;
  if (steps == kill_at) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }
}

/* ---- what the child does ---- */

static test_broker kid;
static sb_queue *q, *other;
static sb_consumer *consumer;
static char *buffer, *spare;

static void nothing(void) {}
static void take_one(void) { (void)get(&kid, q, buffer, false); }
static void take_three(void) {
  for (int i = 0; i < 3; i++) (void)get(&kid, q, spare, false);
}
static void take_page(void) { /* all but the last cell of the first page are finished */
  for (int i = 0; i < 63; i++) (void)get(&kid, q, spare, true);
  take_one();
}
static void put_one(void) { (void)put(&kid, q, FRESH); }
static void put_options(uint64_t bytes, uint64_t ttl, uint64_t delay) {
  sb_put_options o = {.ttl_ns = ttl, .delay_ns = delay, .key = "key", .key_length = 3};
  (void)put_sized(&kid, q, FRESH, bytes, &o);
}
static void put_delayed(void) { put_options(64, 0, 3600000000000u); }
static void put_expiring(void) { put_options(64, 3600000000000u, 0); }
static void put_long(void) { put_options(5u << 20, 0, 0); }
static void settle(uint32_t how) { (void)sb_settle(q, buffer, how); }
static void ack(void) { settle(0); }
static void nack(void) { settle(1); }
static void reject(void) { settle(2); }
/* Looks at the body, settles, and looks away afterwards. */
static void settle_viewed(uint32_t how) {
  sb_record r;
  uint64_t view;
  sb_status status;
  memcpy(&r, buffer, sizeof r);
  while ((status = sb_begin_view(kid.c, r.tag, r.sequence, r.body_address, &view)) == SB_GROW &&
         grow(kid.b, kid.path)) {
  }
  settle(how);
  if (status == SB_OK) sb_end_view(kid.c, view);
}
static void ack_viewed(void) { settle_viewed(0); }
static void nack_viewed(void) { settle_viewed(1); }
static void move(void);
static void move_viewed(void) {
  nack_viewed();
  take_one();
  sb_record r;
  uint64_t view;
  memcpy(&r, buffer, sizeof r);
  (void)sb_begin_view(kid.c, r.tag, r.sequence, r.body_address,
                      &view); /* lives on, as in a reader that never looks away */
  settle(1);
  move();
}
static void get_one(void) { (void)get(&kid, q, buffer, false); }
static void get_acked(void) { (void)get(&kid, q, buffer, true); }
static void purge(void) { (void)sb_purge(q); }
static void move(void) {
  sb_status status;
  while ((void)sb_move(q, other, 2, &status), status == SB_GROW && grow(kid.b, kid.path)) {
  }
}
static void delete_queue(void) {
  int32_t holder;
  uint64_t removed;
  while (sb_delete(q, false, false, FOREVER, &holder, &removed) == SB_GROW && grow(kid.b, kid.path)) {
  }
}
static void delete_if_empty(void) {
  int32_t holder;
  uint64_t removed;
  (void)sb_delete(q, false, true, FOREVER, &holder, &removed);
}
static void declare_new(void) { (void)declare(&kid, "new", (sb_settings){3, -1, -1, 0, 0}); }
static void open_new(void) { (void)open_queue(&kid, "other"); }
static void connect_new(void) { (void)connect_to(&kid); }
static void close_all(void) {
  (void)sb_disconnect(kid.c);
  (void)sb_forget(kid.c);
}
static void consume_in_batches_of(uint32_t acks) {
  sb_status status;
  while ((consumer = sb_consume(kid.c, &q, 1, 4, 0, acks, 3600000000000u, &status)) == NULL && status == SB_GROW &&
         grow(kid.b, kid.path)) {
  }
}
static void consume(void) { consume_in_batches_of(1); }
/* Two acknowledgements wait for a third one. */
static void acknowledge_two_of_three(void) {
  consume_in_batches_of(3);
  for (int i = 0; i < 2; i++) {
    (void)sb_consumer_next(consumer, buffer, false);
    (void)sb_consumer_settle(consumer, buffer, 0);
  }
  (void)sb_consumer_next(consumer, buffer, false);
}
static void acknowledge_the_third(void) { (void)sb_consumer_settle(consumer, buffer, 0); }
static void consume_turn(void) {
  if (sb_consumer_next(consumer, buffer, false) > 0) (void)sb_consumer_settle(consumer, buffer, 0);
  (void)sb_consumer_next(consumer, buffer, false);
}
static void consume_and_cancel(void) {
  consume();
  (void)sb_consumer_next(consumer, buffer, false);
  sb_consumer_cancel(consumer, true);
}
static void wait_for_one(void) {
  sb_wait at_once = {1, UINT64_MAX, 0, 0};
  (void)sb_get_wait(q, buffer, false, &at_once);
}
static void wait_for_room(void) { (void)sb_wait_for_room(q, false, 64, 1); }
static void close_with_acks_waiting(void) { close_all(); }
static void shrink_lazily(void) {
  int32_t holder;
  sb_settings s = {3, -1, -1, 0, 0};
  (void)sb_configure(q, &s, false, FOREVER, &holder);
}
static void trim(void) {
  int32_t holder;
  sb_settings s = {3, -1, -1, 0, 0};
  (void)sb_configure(q, &s, true, FOREVER, &holder);
}
static void delete_and_leave(void) {
  delete_queue();
  (void)sb_leave(q);
}
static void sweep(void) { (void)sb_housekeeper_sweep(kid.c, FOREVER); }
static void due(void) { (void)sb_housekeeper_look_at(q, SETUP); }
static void put_due(void) {
  put_options(64, 0, 1);
  usleep(10);
}
static void reap(void) { (void)sb_recover(kid.c); }
static void fill_and_drain(void) { /* the arena is full of chunks of small slots that are all free */
  uint64_t n = 0;
  while (put(&kid, other, OTHERS) == SB_OK) n++;
  while (n-- > 0) (void)get(&kid, other, spare, true);
}
static void fill_with_runs(void) {
  uint64_t n = 0;
  sb_put_options none = {0};
  while (put_sized(&kid, other, OTHERS, 3u << 20, &none) == SB_OK) n++;
  while (n-- > 0) (void)get(&kid, other, spare, true);
}
static void put_middle(void) { put_options(3000, 0, 0); }

#define ID(i) (UINT64_C(1) << (i))
#define ALL (ID(1) | ID(2) | ID(3) | ID(4) | ID(5) | ID(6))
#define NEW ID(FRESH)
#define FREELY {-1, -1, -1, 0, 0}
#define UNDER_WAY(must, may) (must), (may)
#define AFTER(must, may) (must), (may)

static const operation OPERATIONS[] = {
    {"put", FREELY, SETUP, 32, nothing, put_one, UNDER_WAY(ALL, ALL | NEW), AFTER(ALL | NEW, ALL | NEW), -1, false, 0},
    {"put, page full", FREELY, 64, 32, nothing, put_one, UNDER_WAY(ALL | ID(OTHERS), ALL | ID(OTHERS) | NEW),
     AFTER(ALL | NEW, ALL | ID(OTHERS) | NEW), -1, false, 0},
    {"put delayed", FREELY, SETUP, 32, nothing, put_delayed, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false, 0},
    {"put expiring", FREELY, SETUP, 32, nothing, put_expiring, UNDER_WAY(ALL, ALL | NEW), AFTER(ALL | NEW, ALL | NEW),
     -1, false, 0},
    {"put 5 MiB", FREELY, SETUP, 32, nothing, put_long, UNDER_WAY(ALL, ALL | NEW), AFTER(ALL | NEW, ALL | NEW), -1,
     false, 0},
    {"put, ring of 6",
     {6, -1, -1, 0, 0},
     SETUP,
     32,
     nothing,
     put_one,
     UNDER_WAY(ALL & ~ID(1), ALL | NEW),
     AFTER((ALL & ~ID(1)) | NEW, ALL | NEW),
     6,
     false,
     0},
    {"put, drop head by bytes",
     {-1, -1, 6 * 64, 2, 0},
     SETUP,
     32,
     nothing,
     put_one,
     UNDER_WAY(ALL & ~ID(1), ALL | NEW),
     AFTER((ALL & ~ID(1)) | NEW, ALL | NEW),
     6,
     false,
     0},
    {"put, block by bytes",
     {-1, -1, 7 * 64, 0, 0},
     SETUP,
     32,
     nothing,
     put_one,
     UNDER_WAY(ALL, ALL | NEW),
     AFTER(ALL | NEW, ALL | NEW),
     -1,
     false,
     0},
    {"put, block by length",
     {-1, 7, -1, 0, 0},
     SETUP,
     32,
     nothing,
     put_one,
     UNDER_WAY(ALL, ALL | NEW),
     AFTER(ALL | NEW, ALL | NEW),
     -1,
     false,
     0},
    {"put, drop new",
     {-1, 6, -1, 1, 0},
     SETUP,
     32,
     nothing,
     put_one,
     UNDER_WAY(ALL, ALL),
     AFTER(ALL, ALL),
     -1,
     false,
     0},
    {"get", FREELY, SETUP, 32, nothing, get_one, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false, 0},
    {"get, ring of 6",
     {6, -1, -1, 0, 0},
     SETUP,
     32,
     nothing,
     get_one,
     UNDER_WAY(ALL, ALL),
     AFTER(ALL, ALL),
     6,
     false,
     0},
    {"get with ack", FREELY, SETUP, 32, nothing, get_acked, UNDER_WAY(ALL & ~ID(1), ALL),
     AFTER(ALL & ~ID(1), ALL & ~ID(1)), -1, false, 0},
    {"get returned", FREELY, SETUP, 32, take_one, consume_and_cancel, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false,
     0},
    {"ack", FREELY, SETUP, 32, take_one, ack, UNDER_WAY(ALL & ~ID(1), ALL), AFTER(ALL & ~ID(1), ALL & ~ID(1)), -1,
     false, 0},
    {"ack, page done", FREELY, 70, 32, take_page, ack, UNDER_WAY(ID(OTHERS), ID(OTHERS)), AFTER(ID(OTHERS), ID(OTHERS)),
     -1, false, 0},
    {"view, ack", FREELY, SETUP, 32, take_one, ack_viewed, UNDER_WAY(ALL & ~ID(1), ALL),
     AFTER(ALL & ~ID(1), ALL & ~ID(1)), -1, false, LONG},
    {"view, nack", FREELY, SETUP, 32, take_one, nack_viewed, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false, LONG},
    {"view, nack, move", FREELY, SETUP, 32, take_one, move_viewed, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false,
     LONG},
    {"get long with ack", FREELY, SETUP, 32, nothing, get_acked, UNDER_WAY(ALL & ~ID(1), ALL),
     AFTER(ALL & ~ID(1), ALL & ~ID(1)), -1, false, LONG},
    {"nack", FREELY, SETUP, 32, take_one, nack, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false, 0},
    {"reject", FREELY, SETUP, 32, take_one, reject, UNDER_WAY(ALL & ~ID(1), ALL), AFTER(ALL & ~ID(1), ALL & ~ID(1)), -1,
     false, 0},
    {"purge", FREELY, SETUP, 32, nothing, purge, UNDER_WAY(0, ALL), AFTER(0, 0), -1, false, 0},
    {"move", FREELY, SETUP, 32, nothing, move, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false, 0},
    {"move, limited", {-1, 6, -1, 0, 0}, SETUP, 32, nothing, move, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false, 0},
    {"delete", FREELY, SETUP, 32, take_one, delete_queue, UNDER_WAY(0, ALL), AFTER(0, 0), -1, false, 0},
    {"delete if empty", FREELY, SETUP, 32, nothing, delete_if_empty, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false,
     0},
    {"delete, empty", FREELY, 0, 32, nothing, delete_if_empty, UNDER_WAY(0, 0), AFTER(0, 0), -1, false, 0},
    {"sweep", FREELY, SETUP, 32, delete_and_leave, sweep, UNDER_WAY(0, 0), AFTER(0, 0), -1, false, 0},
    {"declare", FREELY, SETUP, 32, nothing, declare_new, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false, 0},
    {"open", FREELY, SETUP, 32, nothing, open_new, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false, 0},
    {"connect", FREELY, SETUP, 32, nothing, connect_new, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false, 0},
    {"close", FREELY, SETUP, 32, take_three, close_all, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false, 0},
    {"consume", FREELY, SETUP, 32, nothing, consume, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false, 0},
    {"consumer's turn", FREELY, SETUP, 32, consume, consume_turn, UNDER_WAY(ALL & ~ID(1), ALL),
     AFTER(ALL & ~ID(1), ALL & ~ID(1)), -1, false, 0},
    {"cancel", FREELY, SETUP, 32, nothing, consume_and_cancel, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false, 0},
    {"wait in get", FREELY, 0, 32, nothing, wait_for_one, UNDER_WAY(0, 0), AFTER(0, 0), -1, false, 0},
    {"wait for room",
     {-1, 6, -1, 0, 0},
     SETUP,
     32,
     nothing,
     wait_for_room,
     UNDER_WAY(ALL, ALL),
     AFTER(ALL, ALL),
     -1,
     false,
     0},
    {"batch of acks", FREELY, SETUP, 32, acknowledge_two_of_three, acknowledge_the_third,
     UNDER_WAY(ALL & ~(ID(1) | ID(2) | ID(3)), ALL),
     AFTER(ALL & ~(ID(1) | ID(2) | ID(3)), ALL & ~(ID(1) | ID(2) | ID(3))), -1, false, 0},
    {"close, acks waiting", FREELY, SETUP, 32, acknowledge_two_of_three, close_with_acks_waiting,
     UNDER_WAY(ALL & ~(ID(1) | ID(2)), ALL), AFTER(ALL & ~(ID(1) | ID(2)), ALL & ~(ID(1) | ID(2))), -1, false, 0},
    {"shrink to 3", FREELY, SETUP, 32, nothing, shrink_lazily, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), -1, false, 0},
    {"trim to 3", FREELY, SETUP, 32, nothing, trim, UNDER_WAY(ID(4) | ID(5) | ID(6), ALL),
     AFTER(ID(4) | ID(5) | ID(6), ID(4) | ID(5) | ID(6)), -1, false, 0},
    {"become due", FREELY, SETUP, 32, put_due, due, UNDER_WAY(ALL, ALL | NEW), AFTER(ALL | NEW, ALL | NEW), -1, false,
     0},
    {"reap", FREELY, SETUP, 32, nothing, reap, UNDER_WAY(ALL | ID(OTHERS), ALL | ID(OTHERS)),
     AFTER(ALL | ID(OTHERS), ALL | ID(OTHERS)), -1, true, 0},
    {"drain small chunks", FREELY, SETUP, 12, fill_and_drain, put_middle, UNDER_WAY(ALL, ALL | NEW | ID(OTHERS)),
     AFTER(ALL | NEW, ALL | NEW | ID(OTHERS)), -1, false, 0},
    {"drain runs", FREELY, SETUP, 14, fill_with_runs, put_middle, UNDER_WAY(ALL, ALL | NEW | ID(OTHERS)),
     AFTER(ALL | NEW, ALL | NEW | ID(OTHERS)), -1, false, 0},
    {"drain for a run", FREELY, SETUP, 12, fill_and_drain, put_long, UNDER_WAY(ALL, ALL | NEW | ID(OTHERS)),
     AFTER(ALL, ALL | NEW | ID(OTHERS)), -1, false, 0},
};

/* ---- children ---- */

static void begin_child(test_broker *t) {
  kid = *t;
  attach(&kid);
  kid.c = connect_to(&kid);
  q = open_queue(&kid, "q");
  other = open_queue(&kid, "other");
}

static void await(pid_t pid) {
  int status;
  if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status)) die("the child", status);
}

/* Somebody who dies with all sorts of things in hand. */
static void victim(test_broker *t) {
  pid_t pid = fork();
  if (pid == 0) {
    begin_child(t);
    take_three();
    (void)sb_settle(q, spare, 1); /* the third returns */
    take_one();
    (void)put(&kid, other, OTHERS);
    consume();
    (void)sb_consumer_next(consumer, spare, false);
    sb_reservation r;
    sb_put_options none = {0};
    (void)sb_reserve(q, 100, &none, &r);
    kill(getpid(), SIGKILL);
  }
  await(pid);
}

static void run_child(test_broker *t, const operation *o, uint64_t step) {
  pid_t pid = fork();
  if (pid == 0) {
    begin_child(t);
    o->prepare();
    kill_at = step;
    armed = true;
    o->run();
    armed = false;
    shared->done = 1;
    kill(getpid(), SIGKILL);
  }
  await(pid);
}

/* ---- afterwards ---- */

static char complaint[600];
static bool complain(const char *format, uint64_t a, uint64_t b, uint64_t c) {
  if (complaint[0] == 0)
    snprintf(complaint, sizeof complaint, format, (unsigned long long)a, (unsigned long long)b, (unsigned long long)c);
  return false;
}

static void checked(test_broker *t, const char *when) {
  sb_finding found[8];
  uint32_t n = sb_check(t->c, found, 8);
  if (n != 0 && complaint[0] == 0) {
    snprintf(complaint, sizeof complaint,
             "%s sb_check: %u findings, the first: code %u slot %u where %llu found %llu expected %llu", when, n,
             found[0].code, found[0].slot, (unsigned long long)found[0].where, (unsigned long long)found[0].found,
             (unsigned long long)found[0].expected);
  }
}

static uint64_t drain(test_broker *t, sb_queue *from, uint64_t seen, uint64_t *count) {
  uint64_t id;
  while (from != NULL && (id = get(t, from, buffer, true)) != 0) {
    if (id >= 64 || id == UINT64_MAX) {
      (void)complain("message %llu is damaged", id, 0, 0);
    } else if ((seen & ID(id)) != 0 && id != OTHERS) {
      (void)complain("message %llu is there twice", id, 0, 0);
    } else {
      seen |= ID(id);
    }
    ++*count;
  }
  return seen;
}

static void remove_queue(test_broker *t, const char *name) {
  sb_queue *gone = open_queue(t, name);
  int32_t holder;
  uint64_t removed;
  if (gone != NULL) {
    (void)sb_delete(gone, false, false, FOREVER, &holder, &removed);
    (void)sb_leave(gone);
  }
}

static void verify_content(test_broker *t, const operation *o) {
  bool done = shared->done != 0;
  uint64_t must = done ? o->must_done : o->must, may = done ? o->may_done : o->may, count = 0, in_q = 0;
  sb_queue *here = open_queue(t, "q"), *there = open_queue(t, "other");
  uint64_t seen = drain(t, here, 0, &in_q);
  seen = drain(t, there, seen, &count);
  if ((seen & must) != must) (void)complain("lost: left are %llx, must be %llx", seen, must, 0);
  if ((seen & ~may) != 0) (void)complain("too many: left are %llx, may be %llx", seen, may, 0);
  if (o->exactly >= 0 && in_q != (uint64_t)o->exactly)
    (void)complain("%llu messages are left, not %llu", in_q, (uint64_t)o->exactly, 0);
  if (here == NULL) { /* deleted: its name is free again, at the latest after one change of the topology */
    (void)declare(t, "unrelated", o->settings);
    sb_status status = declare(t, "q", o->settings);
    if (status != SB_OK) (void)complain("the deleted queue cannot be declared again: %llu", (uint64_t)status, 0, 0);
    here = open_queue(t, "q");
  }
  int64_t limit = o->settings.ring_size >= 0    ? o->settings.ring_size
                  : o->settings.max_length >= 0 ? o->settings.max_length
                  : o->settings.max_bytes >= 0  ? o->settings.max_bytes / 64
                                                : 20;
  for (uint64_t i = 0; here != NULL && i < 20; i++) (void)put(t, here, i % 60 + 1);
  uint64_t fits = 0;
  if (here != NULL) (void)drain(t, here, 0, &fits);
  if (here != NULL && o->run != trim && o->run != shrink_lazily && fits != (uint64_t)limit)
    (void)complain("of 20 messages %llu fit, not %llu", fits, (uint64_t)limit, 0);
  if (here != NULL) (void)sb_leave(here);
  if (there != NULL) (void)sb_leave(there);
}

/* What a housekeeper does while nobody else does anything: hints are right after that, or never. */
static void housekeep(test_broker *t) {
  uint32_t index = 0, slot;
  while ((slot = sb_next_queue(t->c, &index)) != 0) {
    uint64_t memory[9] = {0};
    for (int i = 0; i < 8; i++) sb_housekeeper_tick(t->c, slot, memory);
  }
}

/* A new connection makes a new queue out of what was freed: nothing of the past may come back to it. */
static void live_on(test_broker *t) {
  test_broker fresh = *t;
  fresh.c = connect_to(&fresh);
  sb_status status = declare(&fresh, "last", (sb_settings)FREELY);
  sb_queue *last = status == SB_OK ? open_queue(&fresh, "last") : NULL;
  if (last == NULL) {
    (void)complain("no queue can be declared any more: %llu", (uint64_t)status, 0, 0);
    return;
  }
  for (uint64_t id = 1; id <= 3; id++) (void)put(&fresh, last, id);
  (void)sb_housekeeper_sweep(t->c, FOREVER);
  uint64_t left = 0, seen = drain(&fresh, last, 0, &left);
  if (seen != (ID(1) | ID(2) | ID(3)))
    (void)complain("a sweep took messages of a new queue: %llu of 3 are left", left, 0, 0);
}

static void verify(test_broker *t, const operation *o, uint64_t before) {
  while (sb_recover(t->c) > 0) {
  }
  housekeep(t);
  (void)sb_housekeeper_sweep(t->c, FOREVER); /* the next holder of the topology lock finishes what the last one began */
  checked(t, "after reaping");
  verify_content(t, o);
  housekeep(t);
  checked(t, "after use");
  remove_queue(t, "q");
  remove_queue(t, "other");
  remove_queue(t, "new");
  remove_queue(t, "unrelated");
  for (int i = 0; i < 3; i++) (void)sb_housekeeper_sweep(t->c, FOREVER);
  sb_broker_facts f;
  sb_broker_describe(t->b, &f, true);
  if (f.memory_used != before) (void)complain("memory: %llu bytes in use, %llu before", f.memory_used, before, 0);
  if (f.queues != 0) (void)complain("%lld queues are counted, there are none", (uint64_t)(int32_t)f.queues, 0, 0);
  if (f.connections != 1 || f.processes != 1)
    (void)complain("%llu connections, %llu processes are left", f.connections, f.processes, 0);
  live_on(t);
}

/* True when the operation came back before the step was reached. */
static bool one(const operation *o, uint64_t step) {
  test_broker t;
  char name[64];
  sb_broker_facts f;
  snprintf(name, sizeof name, "kill-%d", (int)getpid());
  make_broker(&t, name, o->chunks);
  attach(&t);
  t.c = connect_to(&t);
  sb_broker_describe(t.b, &f, true);
  if (declare(&t, "q", o->settings) != SB_OK || declare(&t, "other", (sb_settings)FREELY) != SB_OK) die("declare", 0);
  sb_queue *here = open_queue(&t, "q");
  for (uint64_t id = 1; id <= o->messages; id++) {
    sb_put_options none = {0};
    (void)put_sized(&t, here, id <= SETUP ? id : OTHERS, o->bytes != 0 ? o->bytes : 64, &none);
  }
  (void)sb_leave(here);
  memset(shared, 0, sizeof *shared);
  complaint[0] = 0;
  if (o->reaper) victim(&t);
  run_child(&t, o, step);
  alarm(20);
  verify(&t, o, f.memory_used);
  alarm(0);
  bool done = shared->done != 0;
  if (complaint[0] != 0) {
    printf("FAIL %s, killed at step %llu%s, before %s: %s\n", o->name, (unsigned long long)step,
           done ? " (it came back)" : "",
           shared->site == NULL                 ? "?"
           : strrchr(shared->site, '/') != NULL ? strrchr(shared->site, '/') + 1
                                                : shared->site,
           complaint);
  }
  (void)sb_disconnect(t.c);
  (void)sb_forget(t.c);
  sb_free_connection(t.c);
  sb_broker_detach(t.b);
  remove_files(t.path);
  return done;
}

/* In a process of its own: what crashes or hangs there is a failure like others. */
static bool guarded(const operation *o, uint64_t step) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    bool done = one(o, step);
    fflush(stdout);
    _exit(complaint[0] != 0 ? 2 : done ? 1 : 0);
  }
  int status;
  (void)waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) {
    char path[96];
    printf("FAIL %s, killed at step %llu, before %s: the survivor got signal %d\n", o->name, (unsigned long long)step,
           shared->site == NULL ? "?" : shared->site, WTERMSIG(status));
    snprintf(path, sizeof path, "/shmbroker-%u.kill-%d", (unsigned)getuid(), (int)pid);
    remove_files(path);
  }
  bool good = WIFEXITED(status) && WEXITSTATUS(status) < 2;
  passed += good;
  failed += !good;
  return shared->done != 0;
}

int main(int count, char **arguments) {
  uint64_t every = 1;
  for (; count > 1 && arguments[1][0] == '-'; count--, arguments++) {
    if (strcmp(arguments[1], "-v") == 0) {
      verbose = true;
    } else if (strcmp(arguments[1], "-every") == 0 && count > 2) {
      every = strtoull(arguments[2], NULL, 10);
      count--;
      arguments++;
    }
  }
  if (every == 0) die("usage: kill_at_step [-v] [-every N] [operation [step]], N", 0);
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  buffer = malloc(BUFFER);
  spare = malloc(BUFFER);
  for (size_t i = 0; i < sizeof OPERATIONS / sizeof OPERATIONS[0]; i++) {
    const operation *o = &OPERATIONS[i];
    if (count > 1 && strcmp(arguments[1], o->name) != 0) continue;
    uint64_t step = count > 2 ? strtoull(arguments[2], NULL, 10) : 1 + i % every, last = count > 2 ? step : 100000;
    unsigned before = failed;
    while (step <= last && !guarded(o, step)) step += every;
    if (verbose) printf("%-26s %5llu steps, %u failed\n", o->name, (unsigned long long)step, failed - before);
  }
  printf("%u passed, %u failed\n", passed, failed);
  return failed != 0;
}
