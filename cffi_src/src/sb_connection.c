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

void sb_gate_renew(sb_connection *c) {
  if (c->renew != NULL) c->renew(c);
}

void sb_gate_leave_record(sb_connection *c) {
  if (c->gate != &c->own_gate) {
    sb_word *shared = c->gate;
    SB_STORE(&c->own_gate, SB_GATE_INSIDE, SB_RELAXED); /* of this process, and under the lock */
    c->gate = &c->own_gate;
    SB_STORE(shared, 0, SB_RELEASE); /* P21 release */
  }
}
