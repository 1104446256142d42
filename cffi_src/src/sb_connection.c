// SPDX-License-Identifier: Apache-2.0
#include "sb_connection.h"

#include <sched.h>

#include "sb_wait.h"

void sb_lock_contended(sb_half *lock) {
  for (unsigned spins = 0;; spins++) {
    uint32_t unlocked = 0;
    if (atomic_load_explicit(lock, SB_RELAXED) == 0 &&
        atomic_compare_exchange_weak_explicit(lock, &unlocked, 1u, SB_ACQUIRE, SB_RELAXED)) {
      return;
    }
    if (spins % 64 == 63) {
      (void)sched_yield(); /* the holder may not be running */
    } else {
      sb_pause();
    }
  }
}
