// SPDX-License-Identifier: Apache-2.0
#include "sb_turns.h"

#include "sb_slab.h"
#include "sb_wait.h"

static void ring(sb_broker *b) {
  sb_node_shm *keeper = sb_slab_object(b, SB_LOAD(&b->header->storekeeper_waiter, SB_ACQUIRE), SB_KIND_NODE);
  if (keeper != NULL) (void)sb_wake_ring(&keeper->wake);
}

uint32_t sb_turns_ask(sb_broker *b) {
  uint32_t number = SB_LOAD(&b->header->turns_begun, SB_SEQ_CST) + 1; /* P42 */
  uint32_t asked = SB_LOAD(&b->header->turns_asked, SB_SEQ_CST);
  while (!sb_turns_reached(asked, number) && !SB_CAS(&b->header->turns_asked, &asked, number, SB_SEQ_CST)) { /* P43 */
  }
  SB_CRASHPOINT("turns.asked");
  ring(b);
  return number;
}

bool sb_turns_are_done(const sb_broker *b, uint32_t number) {
  return sb_turns_reached(SB_LOAD(&b->header->turns_done, SB_ACQUIRE), number);
}

/* A purge does not wake the threads that wait for a turn: they look from time to time. */
#define LOOK_NS UINT64_C(200000000)

sb_status sb_turns_wait(sb_broker *b, uint32_t number, uint64_t deadline_ns) {
  sb_half *done = &b->header->turns_done;
  for (;;) {
    uint32_t found = SB_LOAD(done, SB_ACQUIRE);
    uint64_t now = sb_now_ns(), until = now + LOOK_NS < deadline_ns ? now + LOOK_NS : deadline_ns;
    bool interrupted;
    if (sb_turns_reached(found, number)) {
      return SB_OK;
    }
    if (SB_LOAD(&b->header->closing, SB_RELAXED) != 0) {
      return SB_STOPPING;
    }
    if (!sb_wake_sleep(done, found, until, &interrupted) && !sb_turns_are_done(b, number)) {
      if (interrupted) return SB_INTERRUPTED;
      if (until == deadline_ns) return SB_TIMEOUT;
    }
  }
}

bool sb_turns_are_asked(const sb_broker *b) {
  uint32_t done = SB_LOAD(&b->header->turns_done, SB_RELAXED);
  return !sb_turns_reached(done, SB_LOAD(&b->header->turns_asked, SB_SEQ_CST)); /* P43 */
}

uint32_t sb_turns_begin(sb_broker *b) { return SB_ADD(&b->header->turns_begun, 1, SB_SEQ_CST) + 1; /* P42 */ }

void sb_turns_end(sb_broker *b, uint32_t number) {
  SB_STORE(&b->header->turns_done, number, SB_RELEASE);
  SB_CRASHPOINT("turns.ended");
  sb_wake_all(&b->header->turns_done);
}
