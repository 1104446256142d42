// SPDX-License-Identifier: Apache-2.0
/* sb_liveness: how a process attaches and detaches, and what a forked child inherits. `x` is another attachment of this
 * process, whose parts a case can change. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "meanwhile.h"
#include "proc.h"
#include "sb_wait.h"

#define FIRST 500u /* the slot where the search begins */

static sb_broker x;

static void begin_attachment(sb_broker *b) {
  memset(b, 0, sizeof *b);
  b->header = t.b->header;
  b->processes = t.b->processes;
  memcpy(b->path, t.b->path, sizeof b->path);
  b->lock_fd = b->topology_fd = -1;
  b->process = UINT32_MAX;
  (void)pthread_mutex_init(&b->map_lock, NULL);
  (void)pthread_mutex_init(&b->reap_lock, NULL);
  SB_STORE(&t.b->header->next_process, FIRST, SB_RELAXED);
}
static void attach_one(sb_broker *b) {
  begin_attachment(b);
  expect_is(sb_liveness_attach(b), SB_OK, "the status of an attachment");
}
static sb_process_shm *slot(uint32_t i) { return &t.b->processes[i]; }
static bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }
static bool is_mapped(void *at) { return msync(at, 4096, MS_ASYNC) == 0; }
static bool in_child(bool (*holds)(void)) {
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) _exit(holds() ? 0 : 1);
  (void)waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
static int lowest_free(void) {
  int fd = fcntl(1, F_DUPFD, 0);
  (void)close(fd);
  return fd;
}

/* ---- attaching ---- */

static void a_process_attaches(void) {
  struct stat st;
  sb_process_shm *p = slot(FIRST);
  SB_STORE(&p->word, SB_PROC_FREE | SB_FIELD(8, 2), SB_RELAXED);
  p->stack = p->attached_ns = p->flags = p->pid_namespace = p->start_ticks = 1;
  uint64_t before = sb_wall_ns();
  attach_one(&x);
  sb_process_facts us = sb_process_look((int32_t)getpid());
  expect_is(x.process, FIRST, "its slot");
  expect_is(p->word, SB_PROC_LIVE | SB_FIELD(9, 2), "the word of the slot");
  expect_is((uint32_t)p->pid, (uint32_t)getpid(), "its number");
  expect_is(p->start_ticks, us.start_ticks, "when it began");
  expect_is(p->stack, us.stack, "its stack");
  expect_is(p->flags, 0, "its flags");
  expect(p->attached_ns >= before, "it was attached before");
  expect(stat("/proc/self/ns/pid", &st) == 0, "there is no namespace");
  expect_is(x.pid_namespace, st.st_ino, "the namespace");
  expect_is(p->pid_namespace, st.st_ino, "the namespace in its slot");
  expect(x.lock_fd >= 0 && x.topology_fd >= 0 && x.lock_fd != x.topology_fd, "it has no descriptors");
  expect_is(sb_byte_holder(t.b->lock_fd, SB_LOCK_PROCESS + FIRST), 1, "the holder of its byte");
  expect(!sb_forked(&x), "it was forked");
  sb_liveness_detach(&x);
}
static uint32_t counted_meanwhile;
static void note_count(void) { counted_meanwhile = SB_LOAD(&t.b->header->next_process, SB_RELAXED); }
/* The housekeeper reads the number, then looks for new processes: it must find this one then. */
static void the_number_comes_last(void) {
  meanwhile(&slot(FIRST)->word, BEFORE_STORE, 1, note_count);
  attach_one(&x);
  if (has_acted()) expect_is(counted_meanwhile, FIRST, "the number of attachments before the slot is LIVE");
  expect_is(t.b->header->next_process, FIRST + 1, "the number of attachments");
  sb_liveness_detach(&x);
}
static void no_namespace(void) {
  no_facts = true;
  attach_one(&x);
  no_facts = false;
  expect_is(x.pid_namespace, 0, "a namespace that /proc does not show");
  sb_liveness_detach(&x);
}
/* A process took the slot meanwhile, and died. */
static void another_was_there(void) { SB_STORE(&slot(FIRST + 2)->word, SB_PROC_LIVE | SB_FIELD(6, 2), SB_RELAXED); }
static void slots_that_are_passed(void) {
  int fd = hold_byte(SB_LOCK_PROCESS + FIRST + 1); /* of a process that is attaching */
  SB_STORE(&slot(FIRST)->word, SB_PROC_LIVE, SB_RELAXED);
  meanwhile(&slot(FIRST + 2)->word, AFTER_LOAD, 1, another_was_there);
  attach_one(&x);
  expect(has_acted(), "the slot was not looked at");
  expect_is(x.process, has_steps() ? FIRST + 3 : FIRST + 2, "the slot");
  expect_is(slot(FIRST)->word, SB_PROC_LIVE, "the word of a slot that is taken");
  if (has_steps()) {
    expect_is(slot(FIRST + 2)->word, SB_PROC_LIVE | SB_FIELD(6, 2), "the word of a slot that was taken meanwhile");
    expect_is(sb_byte_holder(t.b->lock_fd, SB_LOCK_PROCESS + FIRST + 2), 0, "the holder of its byte");
  }
  (void)close(fd);
  sb_liveness_detach(&x);
}
static bool held_meanwhile;
static void who_holds_the_dead(void) { held_meanwhile = sb_byte_holder(t.b->lock_fd, SB_LOCK_PROCESS + FIRST) != 0; }
/* An attaching process that is stopped keeps no reaper from a dead one: it never has the byte of a slot in use. */
static void slots_of_the_dead(void) {
  SB_STORE(&slot(FIRST)->word, SB_PROC_LIVE, SB_RELAXED);
  meanwhile(&slot(FIRST)->word, AFTER_LOAD, 2, who_holds_the_dead);
  attach_one(&x);
  meanwhile(NULL, AFTER_LOAD, 0, NULL);
  expect(!held_meanwhile, "the byte of a dead process was taken");
  expect_is(x.process, FIRST + 1, "the slot");
  sb_liveness_detach(&x);
}
static void no_slot_is_left(void) {
  for (uint32_t i = 0; i < SB_MAX_PROCESSES; i++) SB_STORE(&slot(i)->word, SB_PROC_LIVE, SB_RELAXED);
  begin_attachment(&x);
  expect_is(sb_liveness_attach(&x), SB_LIMIT, "the status without a slot");
  sb_liveness_detach(&x);
  SB_STORE(&slot(FIRST - 1)->word, SB_PROC_FREE, SB_RELAXED);
  attach_one(&x);
  expect_is(x.process, FIRST - 1, "the last slot that is free");
  sb_liveness_detach(&x);
}
/* The system gives no memory for the guard, or cannot have it wiped by a fork. */
static void no_guard(void) {
  int fd = lowest_free();
  for (unsigned i = 0; i < 2; i++) {
    begin_attachment(&x);
    *(i == 0 ? &no_mapping : &no_advice) = true;
    expect_is(sb_liveness_attach(&x), SB_SYSTEM, "the status without a guard");
    no_mapping = no_advice = false;
    expect(x.process == UINT32_MAX, "a process without a guard has a slot");
    sb_liveness_detach(&x);
    expect_is(lowest_free(), (unsigned)fd, "the lowest free descriptor");
  }
}
static void no_lock_file(void) {
  begin_attachment(&x);
  (void)snprintf(x.path, sizeof x.path, "%.90s-not", t.path);
  expect_is(sb_liveness_attach(&x), SB_NOT_FOUND, "the status without a lock file");
  expect(x.guard == NULL && x.lock_fd == -1, "there is something without a lock file");
  sb_liveness_detach(&x);
  begin_attachment(&x);
  opens_to_fail = 1;
  expect_is(sb_liveness_attach(&x), SB_SYSTEM, "the status without a descriptor");
  expect_is(opens_to_fail, 0, "how many files were not opened");
  expect(x.lock_fd == -1 && x.topology_fd == -1, "there is a descriptor");
}

/* ---- detaching ---- */

static void a_process_detaches(void) {
  attach_one(&x);
  int lock = x.lock_fd, topology = x.topology_fd;
  void *guard = x.guard;
  uint64_t word = slot(FIRST)->word;
  sb_liveness_detach(&x);
  expect_is(slot(FIRST)->word, word - SB_PROC_LIVE, "the word of the slot");
  expect(x.guard == NULL && !is_mapped(guard), "the guard is there");
  expect(x.lock_fd == -1 && x.topology_fd == -1, "it says to have descriptors");
  expect(!is_open(lock) && !is_open(topology), "it has descriptors");
  sb_liveness_detach(&x);
  expect_is(slot(FIRST)->word, word - SB_PROC_LIVE, "the word of the slot, when it detached again");
}
/* Descriptors can be 0, for a program that has closed its input. */
static void descriptor_0(void) {
  attach_one(&x);
  uint64_t word = slot(FIRST)->word;
  (void)dup2(x.lock_fd, 0);
  (void)close(x.lock_fd);
  x.lock_fd = 0;
  sb_liveness_detach(&x);
  expect_is(slot(FIRST)->word, word - SB_PROC_LIVE, "the word of the slot");
  expect(!is_open(0), "the lock's descriptor is open");
  (void)dup2(1, 0);
  attach_one(&x);
  (void)dup2(x.topology_fd, 0);
  (void)close(x.topology_fd);
  x.topology_fd = 0;
  sb_liveness_detach(&x);
  expect(!is_open(0), "the topology's descriptor is open");
}
/* The child of a fork, and what was never attached, give back nothing that is shared. */
static void what_gives_no_slot_back(void) {
  attach_one(&x);
  uint64_t word = slot(FIRST)->word;
  SB_STORE(x.guard, 0u, SB_RELAXED);
  sb_liveness_detach(&x);
  expect_is(slot(FIRST)->word, word, "the word of the slot, when a child detached");
  attach_one(&x);
  word = slot(x.process)->word;
  (void)close(x.lock_fd);
  x.lock_fd = -1;
  sb_liveness_detach(&x);
  expect_is(slot(x.process)->word, word, "the word of the slot without a lock");
  attach_one(&x);
  SB_STORE(&t.b->connections[0], 7, SB_RELAXED); /* behind the last slot */
  x.process = SB_MAX_PROCESSES;
  sb_liveness_detach(&x);
  expect_is(t.b->connections[0], 7, "the word behind the last slot");
  begin_attachment(&x);
  x.lock_fd = dup(t.b->lock_fd);
  x.process = FIRST;
  word = slot(FIRST)->word;
  sb_liveness_detach(&x);
  expect_is(slot(FIRST)->word, word, "the word of the slot without a guard");
}

/* ---- forks ---- */

static sb_broker y;
#define MANY 70u
static int kept[MANY];
static bool nothing_is_left(void) {
  bool closed = true, said = true;
  for (unsigned i = 0; i < 4; i++) closed = closed && !is_open(kept[i]);
  const sb_broker *all[] = {&x, &y};
  for (unsigned i = 0; i < 2; i++)
    said = said && all[i]->lock_fd == -1 && all[i]->topology_fd == -1 && sb_forked(all[i]);
  return closed && said;
}
static void a_child_has_no_descriptors(void) {
  attach_one(&x);
  attach_one(&y);
  kept[0] = x.lock_fd;
  kept[1] = x.topology_fd;
  kept[2] = y.lock_fd;
  kept[3] = y.topology_fd;
  expect(in_child(nothing_is_left), "a child has descriptors of its parent");
  for (unsigned i = 0; i < 4; i++) expect(is_open(kept[i]), "the parent lost a descriptor");
  for (unsigned i = 0; i < 2; i++) {
    (void)dup2(kept[i], 0);
    (void)close(kept[i]);
    *(i == 0 ? &x.lock_fd : &x.topology_fd) = kept[i] = 0;
    expect(in_child(nothing_is_left), "a child has descriptor 0 of its parent");
    *(i == 0 ? &x.lock_fd : &x.topology_fd) = kept[i] = dup(0);
  }
}
static bool they_are_free(void) {
  return pthread_mutex_trylock(&sb_topology_mutex) == 0 && pthread_mutex_trylock(&sb_connect_mutex) == 0 &&
         pthread_mutex_trylock(&x.map_lock) == 0 && pthread_mutex_trylock(&x.reap_lock) == 0;
}
static void a_child_finds_mutexes_free(void) {
  attach_one(&x);
  pthread_mutex_t *const all[] = {&sb_topology_mutex, &sb_connect_mutex, &x.map_lock, &x.reap_lock};
  for (unsigned i = 0; i < 4; i++) (void)pthread_mutex_lock(all[i]);
  expect(in_child(they_are_free), "a child found a mutex that a thread of its parent had");
  for (unsigned i = 0; i < 4; i++) (void)pthread_mutex_unlock(all[i]);
}
static bool it_is_open(void) { return is_open(kept[0]); }
static void what_is_detached_is_forgotten(void) {
  attach_one(&x);
  sb_liveness_detach(&x);
  x.lock_fd = kept[0] = dup(1);
  expect(in_child(it_is_open), "a child closed a descriptor of what was detached");
  (void)close(kept[0]);
  x.lock_fd = -1;
  for (unsigned i = 0; i < 70; i++) {
    attach_one(&x);
    sb_liveness_detach(&x);
  }
  attach_one(&x);
  kept[0] = x.lock_fd;
  expect(!in_child(it_is_open), "a child has a descriptor of the last attachment");
}

static sb_broker many[MANY];
static bool none_is_open(void) {
  for (unsigned i = 0; i < MANY; i++) {
    if (many[i].lock_fd >= 0 || is_open(kept[i])) return false;
  }
  return true;
}
static void many_are_known(void) {
  for (unsigned i = 0; i < MANY; i++) {
    attach_one(&many[i]);
    kept[i] = many[i].lock_fd;
  }
  expect(in_child(none_is_open), "a child has a descriptor of one of many attachments");
  for (unsigned i = 0; i < MANY; i += 2) sb_liveness_detach(&many[i]);
  for (unsigned i = 1; i < MANY; i += 2) expect(is_open(kept[i]), "an attachment beside one that ended lost its lock");
  for (unsigned i = 1; i < MANY; i += 2) sb_liveness_detach(&many[i]);
}

static atomic_int forker;
static bool no_lock_is_kept;
static bool x_is_closed(void) { return x.lock_fd < 0 && !is_open(kept[0]); }
static void *fork_now(void *unused) {
  forker = (int)syscall(SYS_gettid);
  no_lock_is_kept = in_child(x_is_closed);
  return unused;
}
static pthread_t forking;
/* The process slot is about to become LIVE: its lock is held, and nobody else knows the descriptor. */
static void fork_beside(void) {
  kept[0] = x.lock_fd;
  if (pthread_create(&forking, NULL, fork_now, NULL) != 0) die("pthread_create", 0);
  for (char state = 0; state != 'S';) { /* it waits for this thread, or has forked, and waits for its child */
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", forker);
    FILE *file = forker != 0 ? fopen(path, "re") : NULL;
    if (file == NULL) continue;
    const char *end = fgets(text, sizeof text, file) != NULL ? strrchr(text, ')') : NULL;
    state = end != NULL ? end[2] : 0;
    (void)fclose(file);
  }
}
static void a_fork_beside_an_attachment(void) {
  if (!has_steps()) return;
  begin_attachment(&x);
  meanwhile(&slot(FIRST)->attached_ns, BEFORE_STORE, 1, fork_beside);
  expect_is(sb_liveness_attach(&x), SB_OK, "the status");
  expect(has_acted(), "there was no fork");
  (void)pthread_join(forking, NULL);
  expect(no_lock_is_kept, "a child keeps the lock of an attachment that its parent was making");
}

static const test_case CASES[] = {
    {"liveness: attached", "a process that attaches takes a free slot and says who it is", a_process_attaches},
    {"liveness: number", "the number of attachments changes when the slot is LIVE", the_number_comes_last},
    {"liveness: no namespace", "a process that does not know its namespace says 0", no_namespace},
    {"liveness: passed", "a process that attaches passes slots that others have", slots_that_are_passed},
    {"liveness: slots of the dead", "a process that attaches never has the byte of a dead one", slots_of_the_dead},
    {"liveness: full", "a process attaches only where a slot is left", no_slot_is_left},
    {"liveness: no guard", "a process without a guard does not attach", no_guard},
    {"liveness: no file", "a process without a lock file does not attach", no_lock_file},
    {"liveness: detached", "a process that detaches gives back its slot, descriptors and guard", a_process_detaches},
    {"liveness: descriptor 0", "a process gives back descriptor 0, too", descriptor_0},
    {"liveness: not detached", "a child, and what has no slot, changes no slot", what_gives_no_slot_back},
    {"liveness: child", "a child has no descriptor of any attachment of its parent", a_child_has_no_descriptors},
    {"liveness: many", "a child knows of all attachments of its parent", many_are_known},
    {"liveness: fork beside", "a child knows of an attachment that another thread is making",
     a_fork_beside_an_attachment},
    {"liveness: mutexes", "a child finds the mutexes of its parent free", a_child_finds_mutexes_free},
    {"liveness: forgotten", "a child knows nothing of what its parent had detached", what_is_detached_is_forgotten},
};
SUBJECT(CASES)
