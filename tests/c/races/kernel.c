// SPDX-License-Identifier: Apache-2.0
/* The system calls of the actors, which the scheduler answers: time, sleep, memory, locks of a process. The linker
 * replaces the calls of the core with these functions (--wrap). Locks of files and /proc are real. */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "scheduler.h"
#include "world.h"

int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t) {
  (void)clock;
  uint64_t now = scheduler_now_ns();
  *t = (struct timespec){(time_t)(now / 1000000000u), (long)(now % 1000000000u)};
  return 0;
}

int __wrap_nanosleep(const struct timespec *duration, struct timespec *rest);
int __wrap_nanosleep(const struct timespec *duration, struct timespec *rest) {
  (void)duration, (void)rest;
  scheduler_yield();
  return 0;
}

int __wrap_sched_yield(void);
int __wrap_sched_yield(void) {
  scheduler_yield();
  return 0;
}

/* To look again before anybody else did something finds the same. */
void __wrap_sb_pause(void);
void __wrap_sb_pause(void) { scheduler_yield(); }

/* No actor spins on one core: spinning is a sleep that is cut short. */
long __wrap_sysconf(int name);
long __wrap_sysconf(int name) {
  (void)name;
  return 1;
}

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  va_list list;
  va_start(list, number);
  uint32_t *word = va_arg(list, uint32_t *);
  int operation = va_arg(list, int) & ~FUTEX_PRIVATE_FLAG;
  uint32_t value = va_arg(list, uint32_t);
  const struct timespec *until = va_arg(list, const struct timespec *);
  va_end(list);
  if (number == SYS_getdents64) {
    return 0; /* of /proc/PID/task: nothing runs beside the actor that asks */
  }
  if (number == SYS_gettid) {
    return 1; /* which is not among those either */
  }
  if (number != SYS_futex || (operation != FUTEX_WAKE && operation != FUTEX_WAIT_BITSET)) {
    fprintf(stderr, "system call %ld, %d\n", number, operation);
    abort();
  }
  if (operation == FUTEX_WAKE) {
    scheduler_wake(word);
    return 0;
  }
  if (*word != value) {
    errno = EAGAIN;
    return -1;
  }
  uint64_t until_ns = (uint64_t)until->tv_sec * 1000000000u + (uint64_t)until->tv_nsec;
  if (until_ns > scheduler_now_ns() && scheduler_sleep(word, until_ns)) return 0;
  errno = ETIMEDOUT;
  return -1;
}

/* Actors have memory of the world; who looks on between runs has not. */
void *__real_calloc(size_t count, size_t bytes);
void __real_free(void *memory);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes) {
  bool looks_on = world_is_kept() && scheduler_current() == NOBODY;
  return looks_on ? __real_calloc(count, bytes) : world_allocate(scheduler_current(), count * bytes);
}
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes) { return __wrap_calloc(1, bytes); }
/* How long the old memory is, nobody knows: what lies behind it is copied, too, and means nothing. */
void *__real_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes) {
  if (memory != NULL && !world_contains(memory)) {
    return __real_realloc(memory, bytes);
  }
  void *wider = __wrap_calloc(1, bytes);
  return memory != NULL && wider != NULL ? memcpy(wider, memory, bytes) : wider;
}
void __wrap_free(void *memory);
void __wrap_free(void *memory) {
  if (!world_contains(memory)) __real_free(memory);
}

/* Signals stay as they are: one of them tells of the first write to a page. */
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *before);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *before) {
  return (void)how, (void)set, (void)before, 0;
}

/* These exclude threads of one process from each other; the actors are processes, or threads that never meet here. */
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m) { return (void)m, 0; }
int __wrap_pthread_mutex_trylock(pthread_mutex_t *m);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *m) { return (void)m, 0; }
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m) { return (void)m, 0; }
