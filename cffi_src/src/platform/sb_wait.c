// SPDX-License-Identifier: Apache-2.0
#include "sb_wait.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STATE(w) ((w) & 3u)

static _Thread_local uint64_t woke_ns;

uint64_t sb_wake_woke_ns(void) { return woke_ns; }

uint64_t sb_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

uint64_t sb_wall_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME_COARSE, &t);
  return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

void sb_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

uint32_t sb_wake_arm(sb_half *w) {
  uint32_t armed = ((SB_LOAD(w, SB_RELAXED) & ~3u) + 4u) | SB_WAKE_ARMED;
  (void)SB_SWAP(w, armed, SB_SEQ_CST); /* P6: armed before the second look */
  return armed;
}

void sb_wake_disarm(sb_half *w) { (void)SB_SWAP(w, SB_LOAD(w, SB_RELAXED) & ~3u, SB_SEQ_CST); }

bool sb_wake_sleep(sb_half *w, uint32_t armed, uint64_t deadline_ns, bool *interrupted) {
  struct timespec until = {(time_t)(deadline_ns / UINT64_C(1000000000)), (long)(deadline_ns % UINT64_C(1000000000))};
  *interrupted = false;
  while (SB_LOAD(w, SB_ACQUIRE) == armed) {
    long rc = syscall(SYS_futex, w, FUTEX_WAIT_BITSET, armed, &until, NULL, FUTEX_BITSET_MATCH_ANY);
    if (rc == 0) {
      continue;
    }
    if (errno == ETIMEDOUT) {
      return false;
    }
    if (errno == EINTR) {
      *interrupted = true;
      return false;
    }
  }
  return true;
}

bool sb_wake_ring(sb_half *w) {
  uint32_t found = SB_LOAD(w, SB_SEQ_CST); /* P6: after the publication */
  for (;;) {
    if (STATE(found) == SB_WAKE_RUN || STATE(found) == SB_WAKE_NOTIFIED) {
      return STATE(found) == SB_WAKE_NOTIFIED;
    }
    uint32_t pending = (found & ~3u) | SB_WAKE_PENDING;
    if (found == pending || SB_CAS(w, &found, pending, SB_SEQ_CST)) {
      SB_CRASHPOINT("wait.ring.pending");
      if (syscall(SYS_futex, w, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0) > 0) woke_ns = sb_now_ns();
      /* NOTIFIED tells later notifiers that they need no system call; nothing else depends on this CAS */
      (void)SB_CAS(w, &pending, (pending & ~3u) | SB_WAKE_NOTIFIED, SB_ACQ_REL);
      return true;
    }
  }
}

void sb_wake_all(sb_half *w) { (void)syscall(SYS_futex, w, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }
