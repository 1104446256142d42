// SPDX-License-Identifier: Apache-2.0
#include "calls.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

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
  SB_STORE(c->gate, SB_GATE_RENEW, SB_SEQ_CST);
}

unsigned times_locked(void) { return renewals; }

void expect_untouched(sb_connection *c, const char *what) {
  expect(renewals == 0, "%s: the lock was taken", what);
  expect_is(SB_LOAD(c->gate, SB_SEQ_CST), SB_GATE_RENEW, what);
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
