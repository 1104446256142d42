// SPDX-License-Identifier: Apache-2.0
#include "calls.h"
#include "meanwhile.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sb_handles.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 0
#else
#define OWN_MALLOC 1
#endif

const sb_status REFUSAL[REFUSALS] = {SB_CLOSED, SB_FORKED, SB_STOPPING};

static unsigned renewals;

static void note_renewal(sb_connection *c) {
  renewals++;
  sb_handles_forget_pages(c);
}

void begin_watching(sb_connection *c) {
  renewals = 0;
  c->renew = note_renewal;
  ask_to_forget(c);
}

unsigned times_locked(void) { return renewals; }

void expect_untouched(sb_connection *c, const char *what) {
  expect(renewals == 0, "%s: the lock was taken", what);
  expect(is_asked(c), "%s: the gate was entered", what);
  expect_is(SB_LOAD(&c->lock, SB_SEQ_CST), 0, what);
}

void refuse(sb_connection *c, sb_status why) {
  SB_STORE(&c->closed, why == SB_CLOSED, SB_SEQ_CST);
  SB_STORE(c->b->guard, why != SB_FORKED, SB_SEQ_CST);
  SB_STORE(&c->b->header->closing, why == SB_STOPPING, SB_SEQ_CST);
  begin_watching(c);
}

int hold_byte(long byte) {
  char name[160];
  file_name(name, sizeof name, t.path, "lock");
  int fd = open(name, O_RDWR | O_CLOEXEC);
  if (fd < 0 || !sb_lock_byte(fd, byte)) die("locking a byte", (int)byte);
  return fd;
}

/* ---- another process ---- */

static void keep_house_and_stop(void) {
  test_broker own = t;
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  attach(&own);
  if (!sb_lock_byte(own.b->lock_fd, SB_LOCK_HOUSEKEEPER)) _exit(1);
  SB_STORE(&own.b->header->housekeeper_process, own.b->process + 1, SB_SEQ_CST);
  SB_STORE(&own.b->header->housekeeper_pid, (uint32_t)getpid(), SB_SEQ_CST);
  (void)raise(SIGSTOP);
  _exit(0);
}

pid_t stop_a_housekeeper(void) {
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) keep_house_and_stop();
  if (pid < 0 || waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) die("stopping a housekeeper", status);
  return pid;
}

void end_process(pid_t pid) {
  (void)kill(pid, SIGKILL);
  (void)waitpid(pid, NULL, 0);
}

static void attach_and_die(void (*before)(test_broker *own)) {
  test_broker own = t;
  at_step = NULL;
  attach(&own);
  own.c = connect_to(&own);
  before(&own);
  _exit((int)own.b->process);
}

uint32_t die_attached(void (*before)(test_broker *own)) {
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) attach_and_die(before);
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) die("dying", status);
  return (uint32_t)WEXITSTATUS(status);
}

/* ---- memory of the process ---- */

static void *hoard;

static void take_all(size_t size) {
  for (void **block = malloc(size); block != NULL; block = malloc(size)) {
    *block = hoard;
    hoard = (void *)block;
  }
}

void without_memory(void (*what)(void)) {
  struct rlimit before, none;
  if (!OWN_MALLOC) return;
  (void)getrlimit(RLIMIT_AS, &before);
  none = (struct rlimit){1, before.rlim_max};
  (void)setrlimit(RLIMIT_AS, &none);
  for (size_t size = (size_t)1 << 20; size > 4096; size /= 2) take_all(size);
  for (size_t size = 4096; size >= 16; size -= 16) take_all(size); /* each size has a list of its own */
  what();
  (void)setrlimit(RLIMIT_AS, &before);
  while (hoard != NULL) {
    void *block = hoard;
    hoard = *(void **)block;
    free(block);
  }
}

void allow_a_mapping(uint64_t bytes) {
  struct rlimit limit;
  unsigned long pages = 0;
  char text[64] = "";
  int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0 || read(fd, text, sizeof text - 1) <= 0) die("reading statm", fd);
  close(fd);
  pages = strtoul(text, NULL, 10);
  (void)getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = pages * (unsigned long)sysconf(_SC_PAGESIZE) + bytes;
  (void)setrlimit(RLIMIT_AS, &limit);
}

uint64_t allocated_bytes(void) { return OWN_MALLOC ? mallinfo2().uordblks + mallinfo2().hblkhd : 0; }

/* ---- steps ---- */

void (*at_step)(const char *site);
void sb_test_step(const char *site);
void sb_test_step(const char *site) {
  if (at_step != NULL) at_step(site);
}

bool has_steps(void) {
#ifdef SB_TEST_HOOKS
  return true;
#else
  return false;
#endif
}

static sb_connection *locked;
static const char *locked_file;
static unsigned steps_locked, steps_unlocked;

static void look_at_lock(const char *site) {
  if (strstr(site, locked_file) == NULL) return;
  bool held = atomic_load_explicit(&locked->lock, memory_order_relaxed) != 0;
  steps_locked += held;
  steps_unlocked += !held;
}

void expect_locked_in(sb_connection *c, const char *file) {
  locked = c;
  locked_file = file;
  steps_locked = steps_unlocked = 0;
  at_step = look_at_lock;
}

void was_locked(const char *what) {
  at_step = NULL;
  if (!has_steps()) return;
  expect(steps_locked > 0, "%s: there is no step in %s", what, locked_file);
  expect(steps_unlocked == 0, "%s: %u steps in %s without the lock", what, steps_unlocked, locked_file);
}

/* ---- nodes ---- */

unsigned node_state(uint32_t node) {
  return sb_node_state(SB_LOAD(&((sb_node_shm *)sb_slot_at(t.b, node))->word, SB_SEQ_CST));
}
uint64_t node_wakes(uint32_t node) { return SB_LOAD(&((sb_node_shm *)sb_slot_at(t.b, node))->wakes, SB_RELAXED); }

void expect_all_see(const char *what) {
  int order = noted_order();
  expect(order < 0 || order == SB_SEQ_CST, "%s is stored in order %d", what, order);
}

/* ---- memory of the broker ---- */

void leave_free(uint32_t chunks) {
  grow_to(BROKER_CHUNKS - 1);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    if (sb_chunk_state(SB_LOAD(&t.b->chunks[i], SB_RELAXED)) != SB_CHUNK_FREE) continue;
    if (chunks > 0) {
      chunks--;
    } else {
      SB_STORE(&t.b->chunks[i], sb_chunk_word(SB_CHUNK_TAIL, 0, 0, 1), SB_RELAXED);
    }
  }
}

void use_up(uint32_t chunk) {
  sb_chunk_meta_shm *meta = sb_chunk_meta(t.b, chunk);
  for (uint32_t i = 0; i < SB_CHUNK_UNITS; i++) {
    uint64_t header = SB_LOAD(&meta->headers[i], SB_RELAXED);
    if (sb_slot_state(header) == SB_SLOT_FREE)
      SB_STORE(&meta->headers[i], sb_slot_word(SB_SLOT_PUBLISHED, 1, sb_slot_gen(header)), SB_RELAXED);
  }
  memset(meta->hints, 0, sizeof meta->hints);
}

/* ---- queues and watches ---- */

sb_queue *open_new(const char *name, sb_settings settings) {
  if (declare(&t, name, settings) != SB_OK) die("declare", 0);
  sb_queue *q = open_queue(&t, name);
  if (q == NULL) die("open", 0);
  return q;
}

void close_by_hand(const sb_queue *q) {
  SB_STORE(&q->shm->state, (q->state & ~UINT64_C(3)) | SB_QUEUE_CLOSED, SB_SEQ_CST);
}
/* A watch that waits in the queue, for a message or for room. */
sb_watch *armed_watch(sb_queue *q, bool room) {
  sb_status status;
  sb_watch *w;
  while ((w = sb_watch_open(q, room, -1, &status)) == NULL) {
    if (status != SB_GROW || !grow(t.b, t.path)) die("watch", (int)status);
  }
  while ((status = sb_watch_arm(w, A_MESSAGE)) == SB_GROW) (void)grow(t.b, t.path);
  expect_is(status, SB_OK, "the status of a watch that is armed");
  expect_is(node_state(w->node), SB_NODE_INTERESTED, "the state of a watch that is armed");
  return w;
}
void expect_told(const sb_watch *w, const char *what) {
  expect(node_state(w->node) == SB_NODE_NOTIFIED && node_wakes(w->node) == 1, "%s: state %u, told %u times", what,
         node_state(w->node), (unsigned)node_wakes(w->node));
}
void expect_not_told(const sb_watch *w, const char *what) {
  expect(node_state(w->node) == SB_NODE_INTERESTED && node_wakes(w->node) == 0, "%s: state %u, told %u times", what,
         node_state(w->node), (unsigned)node_wakes(w->node));
}
