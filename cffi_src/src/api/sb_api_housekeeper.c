// SPDX-License-Identifier: Apache-2.0
/* Public calls: the housekeeper, and reaping. */
#include "sb_api.h"
#include "sb_schedule.h"
#include "sb_topology.h"

#include <stdlib.h>

sb_status sb_housekeeper_begin(sb_connection *c) {
  uint32_t nobody = 0;
  if (!SB_CAS(&c->b->keeps_house, &nobody, 1u, SB_ACQUIRE)) { /* the byte lock excludes only other processes */
    return SB_EXISTS;
  }
  if (!sb_lock_byte(c->b->lock_fd, SB_LOCK_HOUSEKEEPER)) {
    SB_STORE(&c->b->keeps_house, 0u, SB_RELAXED);
    return SB_EXISTS;
  }
  SB_STORE(&c->b->header->housekeeper_pid, (uint32_t)SB_LOAD(&c->b->processes[c->b->process].pid, SB_RELAXED),
           SB_RELAXED);
  SB_STORE(&c->b->header->housekeeper_process, c->b->process + 1, SB_RELAXED);
  SB_STORE(&c->b->header->next_due_ns, UINT64_MAX, SB_SEQ_CST);
  SB_STORE(&c->b->header->housekeeper_waiter, c->io_node, SB_RELEASE);
  c->handles_stay = true; /* the core detaches no handles: the housekeeper's program does so itself */
  return SB_OK;
}

void sb_housekeeper_end(sb_connection *c) {
  SB_STORE(&c->b->header->housekeeper_waiter, 0u, SB_RELEASE);
  SB_STORE(&c->b->header->housekeeper_pid, 0u, SB_RELAXED);
  SB_STORE(&c->b->header->housekeeper_process, 0u, SB_RELAXED);
  sb_unlock_byte(c->b->lock_fd, SB_LOCK_HOUSEKEEPER);
  SB_STORE(&c->b->keeps_house, 0u, SB_RELAXED);
}

/* Stands in for a stopped housekeeper: calls that wake the housekeeper wake the caller instead. It does no harm if both
 * do the same work. SB_EXISTS: no housekeeper is stopped, or another process stands in. */
sb_status sb_housekeeper_stand_in(sb_connection *c) {
  sb_broker *b = c->b;
  if (!sb_liveness_housekeeper_stopped(b) || !sb_lock_byte(b->lock_fd, SB_LOCK_STAND_IN)) {
    return SB_EXISTS;
  }
  SB_STORE(&b->header->next_due_ns, UINT64_MAX, SB_SEQ_CST);
  c->stands_for = SB_SWAP(&b->header->housekeeper_waiter, c->io_node, SB_SEQ_CST);
  c->handles_stay = true;
  return SB_OK;
}

/* True if no stand-in is needed any more: the stopped housekeeper continues, or is gone. */
bool sb_housekeeper_is_relieved(sb_connection *c) { return !sb_liveness_housekeeper_stopped(c->b); }

bool sb_housekeeper_is_awaited(sb_broker *b) { return sb_byte_holder(b->lock_fd, SB_LOCK_SUCCESSOR) != 0; }

void sb_housekeeper_step_down(sb_connection *c) {
  uint32_t mine = c->io_node;
  /* fails if the housekeeper stored its node again */
  (void)SB_CAS(&c->b->header->housekeeper_waiter, &mine, c->stands_for, SB_SEQ_CST);
  sb_unlock_byte(c->b->lock_fd, SB_LOCK_STAND_IN);
}

bool sb_housekeeper_stopped(sb_broker *b) { return sb_liveness_housekeeper_stopped(b); }

void sb_housekeeper_next_due(sb_connection *c, uint64_t due_ns) {
  SB_STORE(&c->b->header->next_due_ns, due_ns, SB_SEQ_CST);
}

static bool told_to_end(const sb_broker *b) {
  return SB_LOAD(&b->header->closing, SB_SEQ_CST) != 0 || SB_LOAD(&b->header->stopped, SB_SEQ_CST) != 0;
}

static sb_half *wake_of(const sb_connection *c) { return &((sb_node_shm *)sb_slot_at(c->b, c->io_node))->wake; }

uint32_t sb_housekeeper_arm(sb_connection *c) {
  bool serves = SB_LOAD(&c->b->keeps_house, SB_RELAXED) != 0;
  if (serves && SB_LOAD(&c->b->header->housekeeper_waiter, SB_RELAXED) != c->io_node) {
    /* while this process was stopped, another one stood in, and stored its own node */
    SB_STORE(&c->b->header->housekeeper_waiter, c->io_node, SB_SEQ_CST);
  }
  return sb_wake_arm(wake_of(c));
}

sb_status sb_housekeeper_wait(sb_connection *c, uint32_t armed, uint64_t deadline_ns) {
  bool interrupted;
  sb_half *wake = wake_of(c);
  bool woken = true;
  (void)SB_ADD(&c->b->header->housekeeper_ticks, 1, SB_RELAXED);
  if (!told_to_end(c->b)) {
    woken = sb_wake_sleep(wake, armed, deadline_ns, &interrupted);
  }
  sb_wake_disarm(wake);
  return told_to_end(c->b) ? SB_STOPPING : woken ? SB_OK : SB_TIMEOUT;
}

void sb_housekeeper_tick(sb_connection *c, uint32_t slot, sb_queue_memory *memory) {
  if (sb_api_enter(c) == SB_OK) {
    sb_housekeeping_queue(c, slot, memory);
    sb_api_leave(c);
  }
}

uint32_t sb_housekeeper_new_timers(sb_queue *const *queues, sb_queue_memory *memories, uint32_t count) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < count; i++) {
    memories[i].new_timers = sb_housekeeping_has_timers(queues[i], memories[i].cursors);
    found += memories[i].new_timers != 0;
  }
  return found;
}

/* Runs a tick for many queues, in a single call because a tick of ten thousand quiet queues must cost next to nothing.
 * Returns the number of busy queues: those that do not rest (sb_housekeeping_rests), and those that may expire. */
uint32_t sb_housekeeper_ticks(sb_connection *c, sb_queue *const *queues, sb_queue_memory *memories, uint32_t count) {
  uint32_t busy = 0, stalled = 0;
  for (uint32_t i = 0; i < count && sb_api_enter(c) == SB_OK; i++) {
    sb_housekeeping_queue(c, queues[i]->slot, &memories[i]);
    bool may_expire = (SB_LOAD(&queues[i]->shm->flags, SB_RELAXED) & SB_QUEUE_EXPIRES) != 0;
    busy += may_expire || !sb_housekeeping_rests(&memories[i]);
    stalled += memories[i].told;
    sb_api_leave(c);
  }
  SB_STORE(&c->b->header->stalled, stalled, SB_RELAXED); /* relaxed: for listings */
  return busy;
}

/* A number that changes whenever queues may have been created or removed: by a change of the topology, or by a
 * reaper. */
uint64_t sb_housekeeper_changes(sb_connection *c) {
  return SB_LOAD(&c->b->header->topology_epoch, SB_ACQUIRE) + SB_LOAD(&c->b->header->reaped, SB_ACQUIRE);
}

uint64_t sb_housekeeper_look_at(sb_queue *q, uint64_t position) {
  uint64_t next = 0;
  bool ready = false;
  if (sb_api_enter(q->c) == SB_OK) {
    next = sb_schedule_look_at(q, position, sb_now_ns(), &ready);
    if (ready) sb_notify_work_arrived(q);
    sb_notify_room_made(q->c, q->shm, q->slot);
    sb_api_leave(q->c);
  }
  return next;
}

void sb_housekeeper_trim(sb_queue *q) {
  if (sb_api_enter(q->c) == SB_OK) {
    sb_housekeeping_trim_schedule(q);
    sb_api_leave(q->c);
  }
}

uint32_t sb_housekeeper_sweep(sb_connection *c, uint64_t deadline_ns) {
  int32_t holder;
  uint32_t left = 0;
  if (sb_usable(c) == SB_OK && sb_topology_lock(c->b, deadline_ns, &holder) == SB_OK) {
    sb_lock(c);
    sb_topology_finish(c);
    left = sb_directory_sweep(c);
    sb_housekeeping_scrub_waiting(c);
    sb_unlock(c);
    /* false: nothing changed for lookups, which passed over the closed queues before; so all routes stay valid */
    sb_topology_unlock(c->b, false);
  }
  return left;
}

static bool may_drain(sb_connection *c) {
  if (c->grace == NULL) c->grace = calloc(1, sizeof *c->grace + c->b->chunk_limit * sizeof(uint64_t));
  return c->grace != NULL;
}

/* Takes the next step to drain the chunks of structures that are not used any more, so that their memory can serve
 * bodies. True if chunks are being drained. */
bool sb_housekeeper_reclaim(sb_connection *c) {
  bool more = false;
  if (sb_api_enter(c) == SB_OK) {
    more = may_drain(c) && sb_grace_step(c);
    sb_api_leave(c);
  }
  return more;
}

/* Takes all steps of sb_housekeeper_reclaim in a single call, for a caller that finds no memory. A chunk whose slots
 * another call may still use goes back to its class. */
void sb_connection_reclaim(sb_connection *c) {
  if (sb_api_enter(c) == SB_OK) {
    /* Step 1 notes unused chunks, and drains those that an earlier call noted. Step 2 begins to drain those that are
     * still unused, and asks each other connection whether one of its calls may still use their slots. Step 3 asks
     * again. */
    for (unsigned looks = 0; looks < 3 && may_drain(c); looks++) (void)sb_grace_step(c);
    sb_grace_give_up(c);
    sb_api_leave(c);
  }
}

bool sb_housekeeper_missing(sb_broker *b) { return !sb_liveness_has_housekeeper(b); }
uint32_t sb_housekeeper_reap(sb_connection *c) { return sb_usable(c) == SB_OK ? sb_recover_all(c) : 0; }
bool sb_housekeeper_reap_one(sb_connection *c, uint32_t process) {
  return sb_usable(c) == SB_OK && process < SB_MAX_PROCESSES && sb_liveness_is_dead(c->b, process) &&
         sb_recover_process(c, process);
}
