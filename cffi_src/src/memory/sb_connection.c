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

void sb_lock_by_swap(sb_connection *c) {
  uint32_t unlocked = 0;
  if (!SB_CAS(&c->lock, &unlocked, 1u, SB_ACQUIRE)) sb_lock_contended(&c->lock);
  (void)SB_SWAP(&c->gate->inside, 1, SB_SEQ_CST); /* P21 acquire */
}

void sb_gate_renew(sb_connection *c) {
  c->answered = SB_LOAD(&c->gate->asked, SB_ACQUIRE);
  if (c->renew != NULL) c->renew(c);
}

bool sb_gate_ask(sb_gate_shm *gate) {
  (void)SB_ADD(&gate->asked, 1, SB_SEQ_CST); /* P21: `asked` is raised before `inside` is read */
  return SB_OR(&gate->inside, 0, SB_SEQ_CST) != 0;
}

void sb_gate_leave_record(sb_connection *c) {
  if (c->gate != &c->own_gate) {
    sb_gate_shm *shared = c->gate;
    SB_STORE(&c->own_gate.inside, 1, SB_RELAXED); /* relaxed: a thread uses own_gate only while it holds the lock */
    c->gate = &c->own_gate;
    SB_STORE(&shared->inside, 0, SB_RELEASE); /* P21 release */
  }
}
