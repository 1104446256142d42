// SPDX-License-Identifier: Apache-2.0
#include "sb_topology.h"

#include <time.h>

#include "sb_directory.h"
#include "sb_liveness.h"
#include "sb_settings.h"
#include "sb_slab.h"
#include "sb_wait.h"

/* The broker whose lock this thread holds, and how often the thread took that lock: a change may include other changes,
 * which take the lock again. */
static _Thread_local sb_broker *locked_broker;
static _Thread_local unsigned locked_depth;
/* True if the previous holder was killed: it may have changed something without raising `topology_epoch`. */
static _Thread_local bool locked_after_death;

static void let_go(const sb_broker *b) {
  sb_unlock_byte(b->topology_fd, SB_LOCK_TOPOLOGY);
  pthread_mutex_unlock(&sb_topology_mutex);
}

sb_status sb_topology_lock(sb_broker *b, uint64_t deadline_ns, int32_t *holder) {
  *holder = 0;
  if (locked_broker == b && locked_depth > 0) {
    locked_depth++;
    return SB_OK;
  }
  for (;;) {
    if (pthread_mutex_trylock(&sb_topology_mutex) == 0) {
      if (sb_lock_byte(b->topology_fd, SB_LOCK_TOPOLOGY)) {
        break;
      }
      pthread_mutex_unlock(&sb_topology_mutex);
    }
    int32_t pid = (int32_t)SB_LOAD(&b->header->topology_pid, SB_RELAXED); /* relaxed: only for an error text */
    if (pid != 0) *holder = pid; /* 0 between two holders: keep the last pid seen */
    if (sb_now_ns() >= deadline_ns) {
      return SB_TIMEOUT;
    }
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
  /* If a killed holder announced a change, this process needs the memory of the queue to finish the change. If it
   * cannot map that memory, it leaves the lock to another process. */
  bool announced = SB_LOAD(&b->header->topology_intent, SB_ACQUIRE) != 0;
  sb_status status = announced ? sb_segment_map(b) : SB_OK;
  if (status != SB_OK) {
    let_go(b);
    return status;
  }
  locked_after_death = SB_LOAD(&b->header->topology_pid, SB_RELAXED) != 0; /* relaxed: the lock is a barrier */
  SB_STORE(&b->header->topology_pid, (uint32_t)SB_LOAD(&b->processes[b->process].pid, SB_RELAXED), SB_RELAXED);
  locked_broker = b;
  locked_depth = 1;
  return SB_OK;
}

bool sb_topology_is_held(const sb_broker *b) { return locked_broker == b && locked_depth > 0; }

/* Makes the next change of the topology look for bindings to queues that are gone. */
static void ask_to_unbind(sb_header_shm *h) { (void)SB_ADD(&h->queues_ended, 1u, SB_ACQ_REL); }

/* Makes the announced change of settings of a queue. Without memory for a ledger it makes the change all the same, and
 * evicts nothing. No ledger is needed to keep the queue object: it is freed only under the topology lock, which this
 * thread holds. */
static void finish_settings(sb_connection *c, uint32_t slot) {
  sb_queue q;
  sb_status status = sb_queue_attach(c, slot, &q, false);
  if (status != SB_OK && status != SB_DELETED) status = sb_queue_stand_in(c, slot, &q, NULL);
  if (status == SB_OK) {
    sb_settings_finish(&q);
    sb_queue_detach(&q);
  }
}

void sb_topology_finish(sb_connection *c) {
  sb_broker *b = c->b;
  sb_header_shm *h = b->header;
  if (locked_depth > 1) {
    return; /* what is announced is this thread's own change, which goes on */
  }
  uint64_t intent = SB_LOAD(&h->topology_intent, SB_ACQUIRE);
  uint32_t slot = (uint32_t)intent;
  sb_queue_shm *shm = sb_slab_queue(b, slot);
  if (shm != NULL && intent >> 32 == SB_CHANGE_DELETE &&
      sb_queue_state(SB_LOAD(&shm->state, SB_ACQUIRE)) == SB_QUEUE_CLOSED) {
    sb_directory_remove(b, slot); /* the holder was killed after it closed the queue; perhaps its name is left */
    ask_to_unbind(h);
  } else if (intent >> 32 == SB_CHANGE_UNBIND) {
    ask_to_unbind(h); /* the holder was killed between removing the name and removing the bindings */
  } else if (shm != NULL && intent >> 32 == SB_CHANGE_CONFIGURE) {
    finish_settings(c, slot);
  }
  SB_STORE(&h->topology_intent, 0, SB_RELEASE);
}

void sb_topology_unlock(sb_broker *b, bool changed) {
  if (--locked_depth > 0) {
    return;
  }
  if (SB_LOAD(&b->header->topology_intent, SB_RELAXED) >> 32 == SB_CHANGE_UNBIND) ask_to_unbind(b->header);
  SB_STORE(&b->header->topology_intent, 0, SB_RELEASE);
  locked_broker = NULL;
  if (changed || locked_after_death) (void)SB_ADD(&b->header->topology_epoch, 1, SB_ACQ_REL);
  /* after the epoch: if this process is killed before it stores the 0, the next holder raises the epoch once more */
  SB_STORE(&b->header->topology_pid, 0u, SB_RELEASE);
  let_go(b);
}
