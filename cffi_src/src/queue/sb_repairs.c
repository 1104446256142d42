// SPDX-License-Identifier: Apache-2.0
#include "sb_repairs.h"

#include "sb_chunk.h"

static bool is_halted(sb_broker *b, unsigned connection) {
  uint64_t word = SB_LOAD(&b->connections[connection], SB_ACQUIRE);
  uint32_t process = sb_conn_process(word);
  return sb_conn_state(word) == SB_CONN_LIVE &&
         (sb_liveness_is_stopped(b, process) || sb_liveness_is_awake(b, process) || sb_liveness_is_dead(b, process));
}

bool sb_repairs_somebody_halted(sb_broker *b, const sb_queue_shm *q) {
  return sb_ledger_any_owner(b, q, is_halted) != 0;
}

uint64_t sb_repairs_deaths(const sb_broker *b) { return SB_LOAD(&b->header->reaped, SB_ACQUIRE); }

/* True if so little memory is left that a notified process may find none for the holding of a message. Such a process
 * sleeps, although messages are ready, until some message is acknowledged. */
static bool memory_is_short(sb_broker *b) { return !sb_chunk_may_grow(b) && sb_chunk_spare(b) <= sb_reserve_kept(b); }

bool sb_repairs_explained(sb_broker *b, const sb_queue_shm *q, uint64_t deaths_before) {
  return sb_repairs_deaths(b) != deaths_before || memory_is_short(b) || sb_repairs_somebody_halted(b, q);
}

void sb_repairs_count(sb_broker *b, unsigned kind, bool explained) {
  (void)SB_ADD(explained ? &b->header->explained_repairs[kind] : &b->header->repairs[kind], 1u, SB_RELAXED);
}
