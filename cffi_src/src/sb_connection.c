// SPDX-License-Identifier: Apache-2.0
#include "sb_connection.h"

#include <sched.h>

#include "sb_wait.h"

void sb_lock_contended(sb_half *lock) {
  for (unsigned spins = 0;; spins++) {
    uint32_t unlocked = 0;
    if (SB_LOAD(lock, SB_RELAXED) == 0 && SB_CAS(lock, &unlocked, 1u, SB_ACQUIRE)) { /* relaxed: the CAS decides */
      return;
    }
    if (spins % 64 == 63) {
      (void)sched_yield(); /* the holder may not be running */
    } else {
      sb_pause();
    }
  }
}
