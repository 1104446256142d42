// SPDX-License-Identifier: Apache-2.0
/* sb_liveness: which processes are attached, and which are dead, stopped or awake; the bytes of the lock file. A case
 * defines what /proc has about a process. */
#include "sb_liveness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "proc.h"

#define PEER 300u /* the slot of another process */
#define START 777u
#define STACK 888u

/* Fields 3 to 52 of a stat file, each its number, behind a command that looks like some of them. */
static char *stat_text(char state, uint64_t start, uint64_t stack) {
  char *text = malloc(1000);
  int n = sprintf(text, "7 (x) R 1 (y) %c", state);
  for (unsigned i = 4; i <= 52; i++)
    n += sprintf(text + n, " %llu", i == 22 ? (unsigned long long)start : i == 28 ? (unsigned long long)stack : i);
  return text;
}
static void proc_says(unsigned count, const char *first, const char *second) {
  texts[0] = first;
  texts[1] = second;
  text_count = count;
  reads = 0;
}
static void proc_is_itself(void) { text_count = 0; }
static void proc_says_state(char state) { proc_says(1, stat_text(state, START, STACK), NULL); }

static sb_process_shm *peer(void) { return &t.b->processes[PEER]; }
/* It is attached; no lock says that it lives. */
static void begin_peer(int32_t pid) {
  SB_STORE(&peer()->word, SB_PROC_LIVE | SB_FIELD(5, 2), SB_RELAXED);
  SB_STORE(&peer()->pid, pid, SB_RELAXED);
  SB_STORE(&peer()->start_ticks, START, SB_RELAXED);
  SB_STORE(&peer()->stack, STACK, SB_RELAXED);
  SB_STORE(&peer()->pid_namespace, t.b->pid_namespace, SB_RELAXED);
}
/* What a slot behind the last one would say, which are the words of the first connections: a process that is attached. */
static void make_slot_behind(int32_t pid) {
  const uint64_t words[] = {SB_PROC_LIVE, (uint32_t)pid, START, t.b->pid_namespace};
  for (unsigned i = 0; i < 4; i++) SB_STORE(&t.b->connections[i], words[i], SB_RELAXED);
}
static int lowest_free(void) {
  int fd = fcntl(1, F_DUPFD, 0);
  (void)close(fd);
  return fd;
}
static bool is_open(int fd) { return fcntl(fd, F_GETFD) != -1; }

/* ---- bytes of the lock file ---- */

static void bytes_are_locked(void) {
  int fd = t.b->lock_fd, other = hold_byte(100);
  expect(!sb_lock_byte(fd, 100), "a byte was locked twice");
  expect_is(sb_byte_holder(fd, 100), 1, "the holder of a byte that is locked");
  expect_is(sb_byte_holder(fd, 101), 0, "the holder of the byte behind it");
  expect_is(sb_byte_holder(fd, 99), 0, "the holder of the byte before it");
  expect(sb_lock_byte(fd, 101) && sb_byte_holder(other, 101) == 1, "the byte behind it was not locked");
  sb_unlock_byte(fd, 101);
  expect_is(sb_byte_holder(other, 101), 0, "the holder of a byte that was unlocked");
  (void)close(other);
  expect(sb_lock_byte(fd, 100), "a byte was not locked whose holder is gone");
  expect_is(sb_byte_holder(-1, 100), 1, "the holder of a byte of no file");
}
static void a_housekeeper(void) {
  expect(!sb_liveness_has_housekeeper(t.b), "there is a housekeeper");
  SB_STORE(&t.b->keeps_house, 1u, SB_RELAXED);
  expect(sb_liveness_has_housekeeper(t.b), "this process keeps house, and there is no housekeeper");
  SB_STORE(&t.b->keeps_house, 0u, SB_RELAXED);
  int fd = hold_byte(SB_LOCK_HOUSEKEEPER);
  expect(sb_liveness_has_housekeeper(t.b), "another process keeps house, and there is no housekeeper");
  begin_peer(1);
  proc_says_state('T');
  SB_STORE(&t.b->header->housekeeper_process, PEER + 1, SB_RELAXED);
  expect(sb_liveness_housekeeper_stopped(t.b), "a stopped housekeeper is not stopped");
  SB_STORE(&t.b->header->housekeeper_process, PEER, SB_RELAXED);
  expect(!sb_liveness_housekeeper_stopped(t.b), "another process is the housekeeper");
  SB_STORE(&t.b->header->housekeeper_process, 0u, SB_RELAXED);
  expect(!sb_liveness_housekeeper_stopped(t.b), "nobody is a stopped housekeeper");
  SB_STORE(&t.b->header->housekeeper_process, PEER + 1, SB_RELAXED);
  proc_says_state('S');
  expect(!sb_liveness_housekeeper_stopped(t.b), "a housekeeper that sleeps is stopped");
  proc_says_state('T');
  (void)close(fd);
  expect(!sb_liveness_housekeeper_stopped(t.b), "a housekeeper without its lock is stopped");
}

/* ---- /proc ---- */

static void expect_facts(char state, uint64_t start, uint64_t stack, const char *what) {
  reads = 0;
  sb_process_facts f = sb_process_look(1);
  expect(f.state == state, "%s: the state is %d", what, f.state);
  expect(f.start_ticks == start, "%s: the start is %llu", what, (unsigned long long)f.start_ticks);
  expect(f.stack == stack, "%s: the stack is %llu", what, (unsigned long long)f.stack);
}
static void what_proc_says(void) {
  static char longer[1000];
  const char *all = stat_text('S', START, STACK);
  int fd = lowest_free();
  proc_says(1, all, NULL);
  expect_facts('S', START, STACK, "all fields");
  (void)snprintf(longer, sizeof longer, "%s ) ) )", all);
  const char *none[] = {"", "7", "7 (x)", "7 (x)S 4"};
  for (unsigned i = 0; i < 4; i++) {
    for (nothing_read = -1; nothing_read <= 0; nothing_read++) {
      proc_says(1, all, NULL); /* nothing of it is left for the next one */
      expect_facts('S', START, STACK, "all fields again");
      proc_says(1, none[i], NULL);
      expect_facts(0, 0, 0, none[i]);
    }
  }
  proc_says(1, "7 (x) S 4 5 6", NULL);
  expect_facts('S', 0, 0, "few fields");
  proc_says(1, longer, NULL);
  (void)sb_process_look(1);
  proc_says(1, all, NULL);
  expect_facts('S', START, STACK, "all fields after a longer text");
  expect_is(read_size, 1023, "how much was asked for: the end of the text follows it");
  expect_is(lowest_free(), (unsigned)fd, "the lowest free descriptor");
  (void)close(0);
  expect_facts('S', START, STACK, "all fields, read by descriptor 0");
  expect(!is_open(0), "descriptor 0 is open");
  proc_is_itself();
  expect(sb_process_look((int32_t)getpid()).start_ticks != 0, "this process has not begun");
  expect_is(sb_process_look(INT32_MAX).start_ticks, 0, "when a process began that there is not");
}

static pid_t sleeper(void) {
  pid_t pid = fork();
  if (pid == 0) {
    (void)pause();
    _exit(0);
  }
  return pid;
}
static void end_of(pid_t pid) {
  (void)kill(pid, SIGKILL);
  (void)waitpid(pid, NULL, 0);
}
static bool awake_in(char state) {
  proc_says_state(state);
  return sb_liveness_is_awake(t.b, PEER);
}
static void processes_that_are_awake(void) {
  pid_t pid = sleeper();
  int fd = lowest_free();
  begin_peer((int32_t)pid);
  expect(awake_in('R'), "a process that runs is not awake");
  expect(awake_in('D'), "a process that waits for a disk is not awake");
  expect(!awake_in('S'), "a process that sleeps is awake");
  expect(!awake_in('T'), "a process that is stopped is awake");
  proc_says(2, stat_text('S', START, STACK), "");
  nothing_read = 0;
  expect(!sb_liveness_is_awake(t.b, PEER), "a thread that is gone is awake");
  expect_is(lowest_free(), (unsigned)fd, "the lowest free descriptor");
  SB_STORE(&peer()->pid_namespace, t.b->pid_namespace + 1, SB_RELAXED);
  expect(awake_in('S'), "a process of another namespace is not awake");
  SB_STORE(&peer()->pid_namespace, t.b->pid_namespace, SB_RELAXED);
  (void)close(0);
  expect(awake_in('R'), "a process that runs is not awake, read by descriptor 0");
  expect(!is_open(0), "descriptor 0 is open");
  make_slot_behind((int32_t)pid);
  proc_says_state('R');
  expect(!sb_liveness_is_awake(t.b, SB_MAX_PROCESSES), "a slot behind the last one is awake");
  end_of(pid);
}
static pthread_mutex_t in_the_way = PTHREAD_MUTEX_INITIALIZER;
static void *wait_there(void *nothing) {
  (void)pthread_mutex_lock(&in_the_way);
  (void)pthread_mutex_unlock(&in_the_way);
  return nothing;
}
/* The thread that asks does not count. */
static void threads_that_are_awake(void) {
  pthread_t threads[2];
  const char *runs = stat_text('R', START, STACK), *sleeps = stat_text('S', START, STACK);
  proc_says(1, runs, NULL);
  expect(!sb_liveness_is_awake(t.b, t.b->process), "a thread is awake beside the only one");
  expect_is(reads, 0, "how many threads were looked at beside the only one");
  (void)pthread_mutex_lock(&in_the_way);
  for (unsigned i = 0; i < 2; i++) (void)pthread_create(&threads[i], NULL, wait_there, NULL);
  proc_says(2, runs, sleeps);
  expect(sb_liveness_is_awake(t.b, t.b->process), "the first of two threads runs, and none is awake");
  proc_says(2, sleeps, runs);
  expect(sb_liveness_is_awake(t.b, t.b->process), "the second of two threads runs, and none is awake");
  proc_says(1, sleeps, NULL);
  expect(!sb_liveness_is_awake(t.b, t.b->process), "two threads sleep, and one is awake");
  expect_is(reads, 2, "how many threads were looked at");
  proc_is_itself();
  (void)pthread_mutex_unlock(&in_the_way);
  for (unsigned i = 0; i < 2; i++) (void)pthread_join(threads[i], NULL);
}

static void processes_that_are_stopped(void) {
  begin_peer(1);
  proc_says_state('T');
  expect(sb_liveness_is_stopped(t.b, PEER), "a stopped process is not stopped");
  proc_says_state('t');
  expect(sb_liveness_is_stopped(t.b, PEER), "a process that is traced is not stopped");
  proc_says_state('S');
  expect(!sb_liveness_is_stopped(t.b, PEER), "a process that sleeps is stopped");
  proc_says_state('T');
  SB_STORE(&peer()->start_ticks, START + 1, SB_RELAXED);
  expect(!sb_liveness_is_stopped(t.b, PEER), "a later process of that number is stopped");
  begin_peer(1);
  SB_STORE(&peer()->pid_namespace, t.b->pid_namespace + 1, SB_RELAXED);
  expect(!sb_liveness_is_stopped(t.b, PEER), "a process of another namespace is stopped");
  begin_peer(1);
  SB_STORE(&peer()->word, SB_PROC_FREE | SB_FIELD(5, 2), SB_RELAXED);
  expect(!sb_liveness_is_stopped(t.b, PEER), "a process that is not attached is stopped");
  make_slot_behind(1);
  expect(!sb_liveness_is_stopped(t.b, SB_MAX_PROCESSES), "a slot behind the last one is stopped");
  SB_STORE(&t.b->processes[t.b->process].start_ticks, START, SB_RELAXED);
  expect(!sb_liveness_is_stopped(t.b, t.b->process), "this process is stopped");
}

/* ---- death ---- */

static bool dead(void) { return sb_liveness_is_dead(t.b, PEER); }
static void processes_that_are_dead(void) {
  begin_peer(1);
  proc_says_state('S');
  expect(!dead(), "a process that /proc shows is dead");
  const char *gone[] = {stat_text('Z', START, STACK), stat_text('X', START, STACK), stat_text('S', START + 1, STACK),
                        stat_text('S', START, STACK + 1), "7"};
  for (unsigned i = 0; i < 5; i++) {
    proc_says(1, gone[i], NULL);
    expect(dead(), "case %u: a process that is gone is not dead", i);
  }
  int fd = hold_byte(SB_LOCK_PROCESS + PEER);
  expect(!dead(), "a process that has its lock is dead");
  (void)close(fd);
  SB_STORE(&peer()->start_ticks, 0, SB_RELAXED);
  expect(dead(), "a process that noted no start, and that there is not, is not dead");
  proc_says(1, stat_text('S', START, 0), NULL);
  begin_peer(1);
  expect(!dead(), "a process whose stack /proc does not show is dead");
  proc_says_state('S');
  SB_STORE(&peer()->stack, 0, SB_RELAXED);
  expect(!dead(), "a process that noted no stack is dead");
  SB_STORE(&peer()->pid_namespace, t.b->pid_namespace + 1, SB_RELAXED);
  expect(dead(), "a process of another namespace without its lock is not dead");
  SB_STORE(&peer()->word, SB_PROC_FREE | SB_FIELD(5, 2), SB_RELAXED);
  expect(!dead(), "a process that is not attached is dead");
  SB_STORE(&t.b->processes[t.b->process].start_ticks, START + 1, SB_RELAXED);
  expect(!sb_liveness_is_dead(t.b, t.b->process), "this process is dead");
}

static bool gone(void) { return sb_liveness_is_gone(t.b, PEER); }
static void processes_that_are_gone(void) {
  begin_peer(1);
  proc_says_state('S');
  expect(!gone(), "a process that /proc shows is gone");
  proc_says(1, "7", NULL);
  expect(gone(), "a dead process is not gone");
  int fd = hold_byte(SB_LOCK_PROCESS + PEER);
  expect(gone(), "a process is not gone while it is reaped");
  SB_STORE(&peer()->pid_namespace, t.b->pid_namespace + 1, SB_RELAXED);
  expect(!gone(), "a process of another namespace that has its lock is gone");
  (void)close(fd);
  expect(gone(), "a process of another namespace without its lock is not gone");
  SB_STORE(&peer()->word, SB_PROC_FREE | SB_FIELD(5, 2), SB_RELAXED);
  expect(!gone(), "a process that is not attached is gone");
  SB_STORE(&t.b->processes[t.b->process].start_ticks, START + 1, SB_RELAXED);
  expect(!sb_liveness_is_gone(t.b, t.b->process), "this process is gone");
}

static bool is_locked(void) {
  int fd = hold_byte(50); /* another description */
  bool locked = sb_byte_holder(fd, SB_LOCK_PROCESS + PEER) != 0;
  (void)close(fd);
  return locked;
}
static bool mutex_is_free(pthread_mutex_t *mutex) {
  return pthread_mutex_trylock(mutex) == 0 && pthread_mutex_unlock(mutex) == 0;
}
static void expect_no_reaping(uint32_t process, const char *what) {
  expect(!sb_liveness_begin_reaping(t.b, process), "%s: it was reaped", what);
  expect(!is_locked(), "%s: its byte is locked", what);
  expect(mutex_is_free(&t.b->reap_lock), "%s: the reaper's mutex is locked", what);
}
static void one_reaper(void) {
  begin_peer(1);
  proc_says_state('S');
  expect_no_reaping(PEER, "a process that lives");
  proc_says(1, "7", NULL);
  SB_STORE(&peer()->word, SB_PROC_FREE | SB_FIELD(5, 2), SB_RELAXED);
  expect_no_reaping(PEER, "a process that is not attached");
  begin_peer(1);
  SB_STORE(&t.b->processes[t.b->process].start_ticks, START + 1, SB_RELAXED);
  expect_no_reaping(t.b->process, "this process");
  int fd = hold_byte(SB_LOCK_PROCESS + PEER);
  expect(!sb_liveness_begin_reaping(t.b, PEER), "a process was reaped that another one reaps");
  expect(mutex_is_free(&t.b->reap_lock), "the mutex of a reaper that gave up is locked");
  (void)close(fd);
  for (unsigned reaped = 0; reaped < 2; reaped++) {
    expect(sb_liveness_begin_reaping(t.b, PEER), "a dead process is not reaped");
    expect(is_locked() && !mutex_is_free(&t.b->reap_lock), "the reaper has no lock");
    expect(!sb_liveness_begin_reaping(t.b, PEER), "another thread of the reaper's process reaps");
    sb_liveness_end_reaping(t.b, PEER, reaped);
    expect(!is_locked() && mutex_is_free(&t.b->reap_lock), "the reaper keeps its locks");
    expect_is(peer()->word, (reaped ? SB_PROC_FREE : SB_PROC_LIVE) | SB_FIELD(5, 2), "the word of the process");
  }
}

static const test_case CASES[] = {
    {"liveness: bytes", "a byte of the lock file has one holder", bytes_are_locked},
    {"liveness: housekeeper", "a housekeeper is known by its lock, and is stopped if its process is", a_housekeeper},
    {"liveness: proc", "the fields of a stat file are counted from behind the command", what_proc_says},
    {"liveness: awake", "a process is awake if a thread of it runs or waits for a disk", processes_that_are_awake},
    {"liveness: threads", "each thread but the one that asks is looked at", threads_that_are_awake},
    {"liveness: stopped", "another attached process is stopped if /proc says so", processes_that_are_stopped},
    {"liveness: dead", "a process is dead if neither its lock nor /proc shows it", processes_that_are_dead},
    {"liveness: gone", "a process is gone also while it is reaped", processes_that_are_gone},
    {"liveness: reaper", "a dead process has one reaper, which is no process that lives", one_reaper},
};
SUBJECT(CASES)
