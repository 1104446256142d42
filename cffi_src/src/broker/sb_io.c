// SPDX-License-Identifier: Apache-2.0
#include "sb_io.h"

#include <sched.h>
#include <signal.h>

#include "sb_housekeeping.h"
#include "sb_liveness.h"
#include "sb_slab.h"
#include "sb_wait.h"

#define TURNS_PER_LOCK 16u
#define QUEUES_PER_LOCK 16u
#define ENTRIES_PER_LOCK 1024u
#define SLEEP_NS UINT64_C(5000000000)
#define LOWEST_SLEEP_NS UINT64_C(500000000)
#define WORDS (SB_MAX_TARGETS / 64)
#define IDLE_TICKS 50u
#define BEAT_SHIFT 20     /* nanoseconds to beats */
#define FRESH_BEATS 1024u /* a second */

sb_status sb_io_prepare(sb_connection *c) {
  uint64_t gen;
  sb_status status = sb_holding_object(c, SB_KIND_NODE, &c->io_token, &c->io_node, &gen);
  if (status != SB_OK) {
    return status;
  }
  sb_node_shm *n = sb_slot_at(c->b, c->io_node);
  SB_STORE(&n->flags, SB_NODE_DIRECT, SB_RELAXED);
  SB_STORE(&n->queue, 0u, SB_RELAXED);
  SB_STORE(&c->shm->waiter, c->io_node, SB_RELEASE);
  return SB_OK;
}

/* Collects the bits that notifiers set. In the order of P9, clears the bits of the connection, then the bits of its
 * targets, and adds the latter to `pending`. The flags of nodes are cleared later, in the turns of the targets. True if
 * a target waits for a turn. */
static bool collect(sb_connection *c) {
  uint64_t words = SB_SWAP(&c->shm->work, 0, SB_SEQ_CST);
  for (; words != 0; words &= words - 1) {
    unsigned w = (unsigned)__builtin_ctzll(words);
    c->pending[w] |= SB_SWAP(&c->shm->work_targets[w], 0, SB_SEQ_CST);
  }
  for (unsigned w = 0; w < WORDS; w++) {
    if (c->pending[w] != 0) return true;
  }
  return false;
}

/* Finds the next pending bit after the bit of the last turn. Returns the list of the targets that share this bit. NULL:
 * these targets have ended, or no bit is pending. */
static sb_target *next_targets(sb_connection *c) {
  for (uint32_t k = 0; k <= WORDS; k++) {
    uint32_t from = (c->io_rotation + 1) % SB_MAX_TARGETS, w = (from / 64 + k) % WORDS;
    uint64_t bits = c->pending[w];
    if (k == 0) bits &= ~UINT64_C(0) << (from % 64);
    if (bits != 0) {
      c->io_rotation = w * 64 + (uint32_t)__builtin_ctzll(bits);
      return c->targets[c->io_rotation];
    }
  }
  return NULL;
}

static sb_consumer *consumer_of(sb_target *t) { return (sb_consumer *)(void *)t; /* `target` is its first field */ }

static bool turns_of(sb_target *t) {
  bool more = false;
  for (; t != NULL; t = t->next) {
    more = t->kind->turn(t) || more;
  }
  return more;
}

static bool some_turns(sb_connection *c) {
  bool more = collect(c);
  c->taking_turns = true;
  for (unsigned turn = 0; more && !c->must_grow && turn < TURNS_PER_LOCK; turn++) {
    sb_target *first = next_targets(c);
    uint32_t bit = c->io_rotation;
    if (!turns_of(first)) {
      c->pending[bit / 64] &= ~(UINT64_C(1) << (bit % 64));
    }
    more = collect(c);
  }
  c->taking_turns = false;
  return more;
}

/* Counts a repair if the target missed a notification. The repair itself follows: look_everywhere gives the target a
 * turn. */
static void judge(sb_connection *c, sb_target *t) {
  const sb_queue *q = NULL, *same = NULL;
  uint64_t entry = t->kind->overlooked(t, &q);
  if (entry != 0) {
    bool explained = sb_repairs_explained(c->b, q->shm, c->looked_deaths);
    if (t->kind->overlooked(t, &same) == entry && same == q && SB_LOAD(&c->shm->work, SB_SEQ_CST) == 0)
      sb_repairs_count(c->b, SB_REPAIR_NOTIFICATION, explained); /* I72 of sb_repairs.h */
  }
}

/* Gives a turn to each target that has work, even if its notification was missed: reads the words of nodes and the
 * queues, and trusts no flag. Called after a sleep that timed out, unless the sleep lasted only until the next tick
 * (`acks_tick_ns`); and after any sleep if is_due is true. */
static void look_everywhere(sb_connection *c) {
  uint64_t deaths = sb_repairs_deaths(c->b);
  for (sb_target *t = sb_target_after(c, NULL); t != NULL; t = sb_target_after(c, t)) {
    uint32_t bit = t->number % SB_MAX_TARGETS;
    bool has_turn = (c->pending[bit / 64] >> (bit % 64) & 1) != 0;
    if (!has_turn && t->kind->overlooked != NULL) judge(c, t);
    if (t->kind->wants_work(t)) {
      c->pending[bit / 64] |= UINT64_C(1) << (bit % 64);
    }
  }
  c->looked_deaths = deaths;
}

static bool is_lowest(sb_broker *b) {
  for (uint32_t i = 0; i < SB_MAX_PROCESSES; i++) {
    bool watches = (SB_LOAD(&b->processes[i].flags, SB_RELAXED) & SB_PROC_WATCHES) != 0;
    if (watches && sb_proc_state(SB_LOAD(&b->processes[i].word, SB_RELAXED)) == SB_PROC_LIVE &&
        (i == b->process ||
         (sb_byte_holder(b->lock_fd, SB_LOCK_PROCESS + (long)i) != 0 && !sb_liveness_is_stopped(b, i)))) {
      return i == b->process;
    }
  }
  return true;
}

/* Sends the acknowledgements that have waited for their interval. After more than IDLE_TICKS calls in a row that found
 * no waiting acknowledgement, ends the ticks (`acks_tick_ns`). The thread calls it in each round, not once a tick. */
static void send_old_acks(sb_connection *c) {
  uint64_t now = sb_now_ns();
  bool waiting = false;
  for (sb_target *t = sb_target_after(c, NULL); t != NULL; t = sb_target_after(c, t)) {
    sb_consumer *k = t->kind->is_consumer ? consumer_of(t) : NULL;
    if (k != NULL && k->ack_count > 0) {
      waiting = true;
      if (now >= k->acks_due_ns) sb_consumer_flush(k);
    }
  }
  c->acks_idle = waiting ? 0 : c->acks_idle + 1;
  if (c->acks_idle > IDLE_TICKS) {
    c->acks_tick_ns = 0;
    c->acks_idle = 0;
  }
}

/* Visits the next queues of the directory, from *index on. At a queue with a ready message it parks the consumers of
 * stopped processes; if it parked any, it notifies another node. False: the directory ended, or the connection is
 * closed. */
static bool visit_some(sb_connection *c, uint32_t *index) {
  uint32_t end = *index + ENTRIES_PER_LOCK < SB_DIRECTORY_SIZE ? *index + ENTRIES_PER_LOCK : SB_DIRECTORY_SIZE, slot;
  sb_lock(c);
  for (unsigned n = 0; n < QUEUES_PER_LOCK && !sb_closed(c); n++) {
    if ((slot = sb_directory_next_before(c->b, index, end, false)) == 0) break;
    (void)sb_housekeeping_pass_stopped(c, slot);
  }
  bool more = *index < SB_DIRECTORY_SIZE && !sb_closed(c);
  sb_unlock(c);
  return more;
}

void sb_io_visit_stopped(sb_connection *c) {
  uint32_t index = 0;
  while (visit_some(c, &index)) {
    (void)sched_yield(); /* a thread that waits for the lock may take it in between */
  }
}

/* The housekeeper is stopped: does the part of its work that cannot wait until a stand-in runs. True if the caller must
 * have a stand-in started. */
static bool stand_in(sb_connection *c, uint64_t now) {
  (void)sb_recover_all(c);
  sb_io_visit_stopped(c);
  if (SB_LOAD(&c->b->header->stopped, SB_ACQUIRE) != 0 || sb_byte_holder(c->b->lock_fd, SB_LOCK_STAND_IN) != 0 ||
      now - c->stand_in_asked_ns < SLEEP_NS) {
    return false;
  }
  c->stand_in_asked_ns = now;
  return true;
}

bool sb_io_housekeeper_missing(sb_connection *c) { return !sb_liveness_has_housekeeper(c->b); }

static uint32_t beat_of(uint64_t now) { return (uint32_t)(now >> BEAT_SHIFT); }

/* True if the lowest process stored its beat within the last second: it ran then, and watched the housekeeper. So the
 * other processes need no system calls to find the lowest process. A hint: if the lowest process died or was stopped
 * since, the caller learns that only at its first look after the beat is older than a second. */
static bool is_watched(const sb_broker *b, uint64_t now) {
  return beat_of(now) - SB_LOAD(&b->header->watched, SB_RELAXED) < FRESH_BEATS;
}

void sb_io_set_watching(sb_connection *c, bool watching) {
  sb_broker *b = c->b;
  if (c->watches == watching) {
    return;
  }
  c->watches = watching;
  pthread_mutex_lock(&b->map_lock);
  b->watchers += watching ? 1u : UINT32_MAX;
  if (b->watchers != 0) {
    (void)SB_OR(&b->processes[b->process].flags, SB_PROC_WATCHES, SB_RELAXED); /* relaxed: so is the load */
  } else {
    (void)SB_AND(&b->processes[b->process].flags, ~SB_PROC_WATCHES, SB_RELAXED);
  }
  pthread_mutex_unlock(&b->map_lock);
}

static void begin_watch(sb_connection *c) {
  sb_lookout *w = &c->lookout;
  w->lowest = is_lowest(c->b);
  if (w->lowest) SB_STORE(&c->b->header->watched, beat_of(w->looked), SB_RELAXED);
}

/* True if the housekeeper, or a stand-in for it, took a turn since the last look: one of them works, so the caller
 * need not read the housekeeper's state in /proc. If no turn follows, the next look reads that state. */
static bool takes_turns(const sb_broker *b, sb_lookout *w) {
  uint64_t before = w->turns;
  w->turns = SB_LOAD(&b->header->housekeeper_ticks, SB_RELAXED);
  return w->turns != before;
}

/* Checks whether a housekeeper exists and runs. If none does, and this process must act (sb_io.h), reaps dead
 * processes. If it acts because the housekeeper is stopped, also parks the consumers of stopped processes. True if a
 * housekeeper, or a stand-in for a stopped one, must be started. */
static bool look_after(sb_connection *c) {
  sb_lookout *w = &c->lookout;
  w->looked = sb_now_ns();
  bool missing = sb_io_housekeeper_missing(c);
  if (!missing) w->present = w->looked;
  if (!missing && !w->lowest && is_watched(c->b, w->looked)) {
    return false;
  }
  begin_watch(c);
  if (!missing) {
    return w->lowest && !takes_turns(c->b, w) && sb_liveness_housekeeper_stopped(c->b) && stand_in(c, w->looked);
  }
  if (!w->lowest && w->looked - w->present <= SLEEP_NS) {
    return false; /* the lowest process acts; if it is stopped, this process acts after SLEEP_NS */
  }
  (void)sb_recover_all(c);
  return SB_LOAD(&c->b->header->stopped, SB_ACQUIRE) == 0;
}

/* Gives turns to the consumers of queues whose gate opens now because of its delay (sb_dispatch.h). */
static void look_at_gates(sb_connection *c) {
  if (c->dispatch_due_ns != 0 && sb_now_ns() >= c->dispatch_due_ns) {
    c->dispatch_due_ns = 0; /* a consumer that still waits for its gate sets it again */
    look_everywhere(c);
  }
}

/* True if the last look is LOWEST_SLEEP_NS old. The thread asks this even while it is busy: a thread that never sleeps
 * must look as well. */
static bool is_due(const sb_connection *c) { return sb_now_ns() - c->lookout.looked > LOWEST_SLEEP_NS; }

sb_status sb_io_run(sb_connection *c) {
  sigset_t all;
  sigfillset(&all);
  (void)pthread_sigmask(SIG_BLOCK, &all, NULL); /* signals belong to the application's threads */
  sb_half *wake = &((sb_node_shm *)sb_slot_at(c->b, c->io_node))->wake;
  if (c->lookout.looked == 0) {
    sb_lock(c);
    if (!sb_closed(c)) sb_io_set_watching(c, true);
    sb_unlock(c);
    c->lookout.looked = c->lookout.present = sb_now_ns();
    (void)takes_turns(c->b, &c->lookout);
    begin_watch(c);
  } else if (is_due(c) && look_after(c)) { /* needed: if each run ends with a hand-over, none gets to the looks below */
    return SB_NO_HOUSEKEEPER;
  }
  for (;;) {
    sb_lock(c);
    if (!sb_closed(c)) sb_handles_look_at_all(c);
    if (!sb_closed(c)) look_at_gates(c);
    bool more = !sb_closed(c) && some_turns(c);
    if (!sb_closed(c) && c->acks_tick_ns != 0) send_old_acks(c);
    uint64_t tick = c->acks_tick_ns, due = c->dispatch_due_ns;
    bool ready = c->ready_first != NULL, must_grow = c->must_grow;
    c->must_grow = false;
    sb_unlock(c);
    if (sb_closed(c)) {
      return SB_CLOSED;
    }
    if (ready || must_grow) {
      return ready ? SB_READY : SB_GROW;
    }
    if (more) {
      if (is_due(c) && look_after(c)) return SB_NO_HOUSEKEEPER;
      continue;
    }
    uint32_t armed = sb_wake_arm(wake); /* P6 */
    if (SB_LOAD(&c->shm->work, SB_SEQ_CST) != 0 || SB_LOAD(&c->ready, SB_SEQ_CST) != 0 || sb_closed(c)) {
      sb_wake_disarm(wake);
      continue;
    }
    if (SB_LOAD(&c->b->header->closing, SB_ACQUIRE) != 0) {
      sb_wake_disarm(wake);
      sb_lock(c);
      for (sb_target *t = sb_target_after(c, NULL); t != NULL; t = sb_target_after(c, t)) {
        if (t->kind->signal != NULL) t->kind->signal(t);
      }
      sb_unlock(c);
      return SB_STOPPING;
    }
    uint64_t now = sb_now_ns(), until = c->lookout.looked + (c->lookout.lowest ? LOWEST_SLEEP_NS : SLEEP_NS);
    uint64_t sooner = tick != 0 && now + tick < until ? now + tick : until;
    if (due != 0 && due < sooner) sooner = due;
    bool interrupted, ticking = sooner < until;
    bool woken = sb_wake_sleep(wake, armed, sooner, &interrupted);
    sb_wake_disarm(wake);
    if ((!woken && !ticking) || is_due(c)) {
      if (look_after(c)) {
        return SB_NO_HOUSEKEEPER;
      }
      sb_lock(c);
      look_everywhere(c);
      sb_unlock(c);
    }
  }
}
