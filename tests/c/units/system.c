// SPDX-License-Identifier: Apache-2.0
/* The linker puts these calls in the place of those of the core (--wrap). */
#include "system.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <time.h>

#include "cases.h"

#define A_SECOND UINT64_C(1000000000)
#define WITHOUT_END 100000u /* a core that asks so often never ends */

system_answers says;
static bool answers;

void answer_for_the_system(void) {
  says = (system_answers){.now_ns = 1000 * A_SECOND, .cores = 2, .error = ETIMEDOUT};
  answers = true;
}

static uint64_t ns_of(const struct timespec *t) { return (uint64_t)t->tv_sec * A_SECOND + (uint64_t)t->tv_nsec; }
static void act(unsigned times, void (*what)(void)) {
  if (times > WITHOUT_END) die("a wait that should end", (int)times);
  if (what != NULL) what();
}

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t) {
  if (!answers || clock != CLOCK_MONOTONIC) return __real_clock_gettime(clock, t);
  act(++says.looks, says.looked);
  *t = (struct timespec){(time_t)(says.now_ns / A_SECOND), (long)(says.now_ns % A_SECOND)};
  says.now_ns += says.step_ns;
  return 0;
}

int __real_nanosleep(const struct timespec *duration, struct timespec *rest);
int __wrap_nanosleep(const struct timespec *duration, struct timespec *rest);
int __wrap_nanosleep(const struct timespec *duration, struct timespec *rest) {
  if (!answers) return __real_nanosleep(duration, rest);
  says.naps++;
  says.nap_ns = ns_of(duration);
  says.now_ns += says.nap_ns;
  return 0;
}

long __real_sysconf(int name);
long __wrap_sysconf(int name);
long __wrap_sysconf(int name) {
  if (!answers) return __real_sysconf(name);
  says.counts++;
  return says.cores;
}

void __real_sb_pause(void);
void __wrap_sb_pause(void);
void __wrap_sb_pause(void) {
  if (!answers) {
    __real_sb_pause();
  } else {
    act(++says.pauses, says.paused);
  }
}

static long sleep_of(const struct timespec *until) {
  says.until_ns = ns_of(until);
  act(++says.sleeps, says.slept);
  if (says.error == 0) return 0;
  if (says.error == ETIMEDOUT && says.now_ns < says.until_ns) says.now_ns = says.until_ns;
  errno = says.error;
  return -1;
}

/* All that the core calls has six arguments at most, each as long as a register. */
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  long a[6];
  va_list list;
  va_start(list, number);
  for (unsigned i = 0; i < 6; i++) a[i] = va_arg(list, long);
  va_end(list);
  long futex = number == SYS_futex ? a[1] & ~FUTEX_PRIVATE_FLAG : -1;
  if (answers && futex == FUTEX_WAIT_BITSET) return sleep_of((const struct timespec *)(uintptr_t)a[3]);
  if (answers && futex == FUTEX_WAKE) return says.woken;
  return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static unsigned failing;
void fail_allocation(unsigned nth) { failing = nth; }

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes) {
  bool fails = failing > 0 && --failing == 0;
  return fails ? NULL : __real_calloc(count, bytes);
}
