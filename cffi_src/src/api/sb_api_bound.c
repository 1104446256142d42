// SPDX-License-Identifier: Apache-2.0
/* The bound of a queue that evicts (sb_limits.h). A process that is killed during a put or a get may leave more
 * messages in the queue than the bound allows: the next put, get without waiting, browse, count or commit reaps the
 * process and evicts the excess. If its ledger does not count the victim of an eviction, the next call that reads the
 * queue's statistics reaps it. If another thread or process is reaping already, these calls wait for it. */
#include <time.h>

#include "sb_api.h"

/* How long a call waits while another thread or process reaps. The wait is short, since the caller may hold the GIL, and
 * the other one may be stopped. For AFTER_IN_VAIN_NS after a wait in vain, calls with the same queue handle neither reap
 * nor wait. */
#define BESIDE_ANOTHER_NS UINT64_C(1000000)
#define AFTER_IN_VAIN_NS UINT64_C(50000000)

bool sb_api_was_killed(sb_broker *b, unsigned connection) {
  uint64_t word = SB_LOAD(&b->connections[connection], SB_ACQUIRE);
  return sb_conn_state(word) == SB_CONN_LIVE && sb_liveness_is_gone(b, sb_conn_process(word));
}

/* Lock not held. Waits a moment. False, without a wait: it is `until` already. */
static bool wait_beside(uint64_t until) {
  struct timespec pause = {0, 100000};
  if (sb_now_ns() >= until) {
    return false;
  }
  SB_CRASHPOINT("bound.beside");
  nanosleep(&pause, NULL);
  return true;
}

/* Lock not held. Reaps the process of a dead connection, or waits while another thread or process reaps it. False: at
 * `until` the process was not reaped yet. */
static bool reap(sb_connection *c, unsigned dead, uint64_t until) {
  uint32_t process = sb_conn_process(SB_LOAD(&c->b->connections[dead], SB_ACQUIRE));
  while (sb_liveness_is_gone(c->b, process) && !sb_recover_process(c, process)) {
    if (!wait_beside(until)) {
      return false;
    }
  }
  return true;
}

SB_HOT bool enforce(sb_queue *q) {
  uint64_t removed = 0;
  bool sure = sb_limits_keep(q, &removed);
  if (removed > 0) sb_notify_room_made(q->c, q->shm, q->slot);
  return sure;
}

SB_COLD void look_for_dead(sb_queue *q) {
  sb_connection *c = q->c;
  uint64_t now = sb_now_ns();
  bool alone = now >= q->reap_again_ns;
  for (unsigned n = 0; alone && n < SB_DEAD_AT_ONCE && !sb_closed(c) && sb_queue_is_open(q) && sb_limits_in_doubt(q);
       n++) {
    unsigned dead = sb_ledger_stuck(c->b, q->shm, c->id, sb_api_was_killed);
    if (dead == 0) {
      return;
    }
    q->busy++; /* I60 of sb_handles.h */
    sb_api_leave(c);
    alone = reap(c, dead, now + BESIDE_ANOTHER_NS);
    sb_lock(c);
    q->busy--;
    if (!alone) q->reap_again_ns = sb_now_ns() + AFTER_IN_VAIN_NS;
    if (!sb_closed(c) && sb_queue_is_open(q)) (void)enforce(q);
  }
}

void sb_api_keep_bound(sb_queue *q) {
  if (!enforce(q)) look_for_dead(q);
}

unsigned sb_api_killed_at(sb_broker *b, const sb_queue_shm *q, uint64_t ready) {
  return sb_limits_exceeded(q, ready) ? sb_ledger_any_owner(b, q, sb_api_was_killed) : 0;
}

bool sb_api_look_again(sb_connection *c, unsigned dead, sb_patience *p) {
  if (p->until == 0) p->until = sb_now_ns() + BESIDE_ANOTHER_NS;
  if (dead == 0) {
    return wait_beside(p->until);
  }
  bool reaped = p->reaped++ < SB_DEAD_AT_ONCE && reap(c, dead, p->until);
  p->until = 0;
  return reaped;
}

/* A producer may have been killed before it advanced the tail. */
static void pass_tail(sb_queue *q) {
  if (sb_queue_has_lanes(q)) {
    (void)sb_lanes_count(q->c->b, q->slot);
  } else if (!sb_ring_tail_is_exact(&q->lanes[0].ring, &q->lanes[0].tail_leaf)) {
    (void)sb_ring_exact_tail_near(q->c->b, &q->lanes[0].ring, &q->lanes[0].tail_leaf);
  }
}

bool sb_api_look_at_bound(sb_queue *q) {
  if (sb_queue_tracks(q->shm) && sb_queue_evicts(q->shm) && sb_queue_is_open(q)) {
    pass_tail(q);
    sb_api_keep_bound(q);
  }
  return !sb_closed(q->c);
}

sb_status sb_queue_trim(sb_queue *q, uint64_t most, uint64_t *removed) {
  *removed = 0;
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return status;
  }
  if (!sb_queue_is_open(q)) {
    status = SB_DELETED;
  } else if (sb_queue_tracks(q->shm) && sb_queue_evicts(q->shm)) {
    pass_tail(q);
    status = sb_limits_trim(q, most, removed);
    if (*removed > 0) sb_notify_room_made(q->c, q->shm, q->slot);
    if (*removed > 0 || status != SB_OK)
      sb_notify_work_arrived(q); /* I41 of sb_requeued.h: the search may have hidden messages from consumers */
  }
  sb_api_leave(q->c);
  return status;
}
