// SPDX-License-Identifier: Apache-2.0
#include "sb_waiter.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sb_chunk.h"
#include "sb_lifetime.h"
#include "sb_slab.h"
#include "sb_wait.h"

#define SPIN_MAX_NS 50000u
#define SPIN_MIN_NS 500u
#define SPIN_FOR_ROOM_NS 20000u
#define WOKE_JUST_NOW_NS 20000u
#define AT_REST_NS 100000u
#define SLEEP_MAX_NS UINT64_C(5000000000)

/* Gets a node for a waiting call: one that an earlier call left, or a new one. While the call has the node, `busy`
 * keeps the handle from being detached (sb_handles.h), so that the queue's object stays (I20 of sb_ledger.h). */
static sb_status borrow(sb_queue *q, uint32_t flags, uint32_t bytes, uint32_t *node, uint64_t *token) {
  sb_status status = sb_queue_is_open(q) ? SB_OK : SB_DELETED;
  if (status == SB_OK && (flags & SB_NODE_ROOM) == 0 && q->waiter_count > 0) {
    q->waiter_count--;
    *node = q->waiters[q->waiter_count].node;
    *token = q->waiters[q->waiter_count].token;
  } else if (status == SB_OK) {
    /* a node of a waiting put may take only as much of the reserve as other books (sb_reserve.h) */
    if ((flags & SB_NODE_ROOM) != 0) q->c->use = SB_USE_BOOKS;
    status = sb_node_create(q->c, q->slot, 0, SB_NODE_DIRECT | flags, 0, bytes, node, token);
    q->c->use = SB_USE_DRAIN;
  }
  q->busy += status == SB_OK;
  return status;
}

static void give_back(sb_queue *q, uint32_t flags, uint32_t node, uint64_t token) {
  bool keep = (flags & SB_NODE_ROOM) == 0 && !sb_closed(q->c) && sb_queue_is_open(q);
  q->busy--;
  if (keep && q->waiter_count < SB_WAITERS_KEPT) {
    q->waiters[q->waiter_count].node = node;
    q->waiters[q->waiter_count++].token = token;
  } else {
    sb_node_destroy(q->c, node, token);
  }
}

void sb_waiter_close(sb_queue *q) {
  while (q->waiter_count > 0) {
    q->waiter_count--;
    sb_node_destroy(q->c, q->waiters[q->waiter_count].node, q->waiters[q->waiter_count].token);
  }
}

/* A condition that a call waits for. Conditions read hints and at most 64 cells, and change nothing that is shared. */
typedef bool (*wish)(sb_queue *q, uint64_t bytes, sb_leaf_ref *leaf);
static bool message_there(sb_queue *q, uint64_t bytes, sb_leaf_ref *leaf) {
  (void)bytes;
  return !sb_queue_is_open(q) || sb_queue_seems_ready(q, leaf);
}
static bool has_room(const sb_queue *q, uint64_t count, uint64_t bytes) {
  return sb_limits_room(q->shm, count, bytes) && !sb_turn_stops(q->shm, count, bytes);
}
static bool room_there(sb_queue *q, uint64_t bytes, sb_leaf_ref *leaf) {
  (void)leaf;
  return !sb_queue_is_open(q) || has_room(q, 1, bytes);
}

static long cores(void) {
  static _Atomic long known; /* relaxed: all threads store the same value */
  long n = SB_LOAD(&known, SB_RELAXED);
  if (n == 0) {
    n = sysconf(_SC_NPROCESSORS_ONLN);
    SB_STORE(&known, n, SB_RELAXED);
  }
  return n;
}

static bool look_until(sb_queue *q, wish fulfilled, uint64_t bytes, uint64_t end_ns) {
  sb_leaf_ref leaf = SB_NO_LEAF;
  do {
    for (int i = 0; i < 16; i++) {
      if (fulfilled(q, bytes, &leaf)) {
        return true;
      }
      sb_pause();
    }
  } while (sb_now_ns() < end_ns);
  return false;
}

/* Spins until `end_ns`; true: the condition was fulfilled. Does not spin if each core has a spinning thread already. */
static bool spin(sb_queue *q, wish fulfilled, uint64_t bytes, uint64_t end_ns) {
  sb_half *spinners = &q->c->b->header->spinners;
  bool found = (int32_t)SB_ADD(spinners, 1u, SB_RELAXED) < (int32_t)cores() && look_until(q, fulfilled, bytes, end_ns);
  (void)SB_SUB(spinners, 1u, SB_RELAXED);
  return found;
}

/* True if nodes wait in the queue's list. They are served first, so a call that is not in the list does not spin. */
static bool others_wait(const sb_queue *q) { return SB_LOAD(&q->shm->interested, SB_SEQ_CST) > 0; }

static uint32_t spin_ns(const sb_queue *q) { return SB_LOAD(&q->spin_ns, SB_RELAXED); }
static void spin_next(sb_queue *q, uint32_t ns) { SB_STORE(&q->spin_ns, ns, SB_RELAXED); }
/* A waiting call that does not spin, though it might, adds a little, so that a later call spins again. */
static void spin_longer_next(sb_queue *q) {
  uint32_t ns = spin_ns(q) + 32;
  spin_next(q, ns < SPIN_MAX_NS ? ns : SPIN_MAX_NS);
}

/* True if this thread has just woken another one, after a rest: it was idle, and what it waits for is the answer. The
 * kernel often places a thread that was woken on the core of the waker, which must sleep then, and not spin, for the
 * other one to run. Without a rest the two are at work together: a spin keeps both awake, and the kernel moves one of
 * them to another core. */
static bool woke_after_rest(const sb_queue *q) {
  uint64_t woke = sb_wake_woke_ns(), waited = SB_LOAD(&q->waited_ns, SB_RELAXED); /* relaxed: a time */
  return woke > waited + AT_REST_NS && sb_now_ns() - woke < WOKE_JUST_NOW_NS;
}
static void wait_ended(sb_queue *q) { SB_STORE(&q->waited_ns, sb_now_ns(), SB_RELAXED); }

/* Spins for a message; true: a message seems to be there. A spin that finds none halves the time of the next spin, so
 * that calls spin only rarely at a queue where it does not help. */
static bool spin_for_message(sb_queue *q, uint64_t deadline_ns) {
  uint32_t ns = spin_ns(q);
  uint64_t end = sb_now_ns() + ns;
  if (woke_after_rest(q)) {
    return false; /* this says nothing about the next spin */
  }
  if (ns < SPIN_MIN_NS || cores() < 2 || end > deadline_ns) {
    spin_longer_next(q);
    return false;
  }
  bool found = spin(q, message_there, 0, end);
  spin_next(q, found ? SPIN_MAX_NS : ns / 2);
  return found;
}

static sb_status try_take(sb_queue *q, const sb_half *ended, sb_taken *t) {
  uint64_t token;
  bool stopping = SB_LOAD(&q->c->b->header->closing, SB_ACQUIRE) != 0;
  bool closed = sb_closed(q->c) || (ended != NULL && SB_LOAD(ended, SB_SEQ_CST) != 0); /* P6: after arming */
  sb_status status = closed ? SB_CLOSED : stopping ? SB_STOPPING : sb_holding_take(q->c, &token);
  if (status == SB_OK) {
    status = sb_choice_get(q, token, t);
    if (status != SB_OK) {
      sb_holding_give(q->c, token);
      sb_notify_ended(q);
    }
  }
  return status;
}

void sb_waiter_leave(sb_queue *q, uint32_t node, uint32_t flags) {
  /* Before the node leaves: until then the node keeps an expiring queue in use (sb_lifetime.h). */
  if ((flags & SB_NODE_ROOM) == 0) sb_lifetime_consumed(q);
  (void)sb_node_move(q->c, node, SB_ANY_STATE & ~SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_NOT_INTERESTED);
  if ((flags & SB_NODE_ROOM) != 0) {
    if ((flags & SB_NODE_MEMORY) == 0 && sb_limits_room(q->shm, 1, 0)) {
      sb_notify_room_made(q->c, q->shm, q->slot); /* the baton: there may be room for another producer */
    }
  } else {
    sb_notify_pass_baton(q);
  }
}

static uint64_t sleep_until(uint64_t deadline_ns) {
  uint64_t bound = sb_now_ns() + SLEEP_MAX_NS;
  return deadline_ns < bound ? deadline_ns : bound;
}

void sb_waiter_end(sb_queue *q, sb_wait *w) {
  if (w->node != 0) {
    sb_waiter_leave(q, w->node, 0);
    give_back(q, 0, w->node, w->token);
    w->node = 0;
  }
}

sb_status sb_waiter_soon(sb_queue *q, uint64_t limit_ns, sb_taken *t) {
  if (spin_ns(q) < SPIN_MAX_NS || cores() < 2 || others_wait(q) || woke_after_rest(q) ||
      !look_until(q, message_there, 0, sb_now_ns() + limit_ns)) { /* spins too briefly to be counted in `spinners` */
    return SB_EMPTY;
  }
  sb_lock(q->c);
  sb_status status = try_take(q, NULL, t);
  sb_unlock(q->c);
  if (status == SB_OK) wait_ended(q);
  return status;
}

sb_status sb_waiter_get(sb_queue *q, sb_wait *w, const sb_half *ended, sb_taken *t) {
  sb_connection *c = q->c;
  /* a queue that hands messages over has none for a call that is not in its list yet */
  if (w->node == 0 && !others_wait(q) && !sb_limits_hand_over(q->shm) && spin_for_message(q, w->deadline_ns)) {
    sb_lock(c);
    sb_status status = try_take(q, ended, t);
    sb_unlock(c);
    if (status != SB_EMPTY) {
      wait_ended(q);
      return status;
    }
  }
  sb_lock(c);
  sb_status status = w->node == 0 ? borrow(q, 0, 1, &w->node, &w->token) : SB_OK;
  if (status != SB_OK) {
    w->node = 0;
    sb_unlock(c);
    return status;
  }
  uint32_t node = w->node;
  uint64_t until = w->look_ns < w->deadline_ns ? w->look_ns : w->deadline_ns;
  sb_half *wake = &((sb_node_shm *)sb_slot_at(c->b, node))->wake;
  bool interrupted = false;
  /* in a queue with groups the first message may be for others: each waiting call looks for one by itself */
  unsigned waiting = q->groups != NULL ? SB_NODE_NON_ACQUIRING : SB_NODE_INTERESTED;
  for (;;) {
    uint32_t armed = sb_wake_arm(wake); /* P6: before the looks at the node and the queue, so that no ring is lost */
    unsigned state = sb_node_state(SB_LOAD(&((sb_node_shm *)sb_slot_at(c->b, node))->word, SB_SEQ_CST));
    if (state != waiting) sb_lifetime_consumed(q); /* before the node moves (sb_lifetime.h) */
    if (state != waiting && !sb_node_move(c, node, SB_ANY_STATE & ~SB_IN(waiting), waiting)) {
      /* no memory for an entry in the list: no process would ever wake this call */
      status = sb_chunk_may_grow(c->b) ? SB_GROW : SB_NO_MEMORY;
      break;
    }
    status = try_take(q, ended, t); /* P3: INTERESTED first, then look */
    if (status == SB_EMPTY && q->groups == NULL && sb_queue_ready(q->c->b, q->shm) > 0 && sb_hints_rescan(q) > 0) {
      status = try_take(q, ended, t);
    }
    if (status == SB_EMPTY && interrupted) status = SB_INTERRUPTED;
    if (status == SB_EMPTY && sb_now_ns() >= until) status = until == w->deadline_ns ? SB_TIMEOUT : SB_TICK;
    if (status != SB_EMPTY) {
      break;
    }
    sb_unlock(c);
    (void)sb_wake_sleep(wake, armed, sleep_until(until), &interrupted);
    sb_lock(c);
  }
  sb_wake_disarm(wake);
  if (status == SB_OK) wait_ended(q);
  if (status != SB_TICK) sb_waiter_end(q, w);
  sb_unlock(c);
  return status;
}

/* Spins for room, since a consumer at work makes room soon. Does not spin if other producers wait in the list, since
 * they come first. */
static bool spin_for_room(sb_queue *q, uint64_t bytes) {
  return cores() > 1 && !sb_closed(q->c) && SB_LOAD(&q->shm->room_waiting, SB_RELAXED) <= 0 &&
         spin(q, room_there, bytes, sb_now_ns() + SPIN_FOR_ROOM_NS);
}

/* Ends the wait of a call for whose node, or for whose list entry, there was no memory: no process would wake the call.
 * With SB_NO_MEMORY, sleeps for 2 ms and returns SB_OK, so that the caller tries again. With another status, or after
 * the deadline, returns `status`. */
static sb_status wait_unlisted(sb_status status, uint64_t deadline_ns) {
  if (status == SB_NO_MEMORY && sb_now_ns() < deadline_ns) {
    struct timespec pause = {0, 2000000};
    nanosleep(&pause, NULL);
    return SB_OK;
  }
  return status;
}

#define FIRST_LOOK_NS UINT64_C(20000000)
#define PROLONG_NS (SB_TURN_NS / 4)

/* When a producer that waits in the room list looks again, if no process wakes it: to prolong its turn, to see whether
 * others have passed it, or when the turn of another producer is over. `interval_ns`: since its last look. */
static uint64_t next_look(const sb_queue *q, uint64_t mine, bool matters, uint64_t interval_ns) {
  uint64_t now = sb_now_ns(), turn = SB_LOAD(&q->shm->turn_until_ns, SB_RELAXED);
  uint64_t next = mine != 0 ? now + PROLONG_NS : matters ? now + interval_ns : UINT64_MAX;
  return mine == 0 && turn > now && turn < next ? turn : next;
}

/* Sleeps until a process wakes the producer, until `until_ns`, or until there is room. Takes the queue's turn
 * (sb_turn.h) if others were admitted meanwhile that could pass this producer for ever. *mine: the end of the turn. */
static void sleep_for_room(sb_queue *q, sb_node_shm *n, uint32_t armed, uint64_t bytes, uint64_t until_ns,
                           bool *interrupted, uint64_t *mine) {
  uint64_t count = SB_LOAD(&n->unacked, SB_RELAXED), interval = FIRST_LOOK_NS;
  uint64_t admitted = SB_LOAD(&q->shm->admitted, SB_RELAXED);
  bool matters = sb_turn_matters(q->shm, count, bytes), waits = true;
  while (waits) {
    uint64_t look = next_look(q, *mine, matters, interval);
    bool woken = sb_wake_sleep(&n->wake, armed, look < until_ns ? look : until_ns, interrupted);
    waits = !woken && !*interrupted && look < until_ns && sb_now_ns() < until_ns;
    if (!waits) {
      break;
    }
    if (matters && (*mine != 0 || SB_LOAD(&q->shm->admitted, SB_RELAXED) != admitted)) {
      sb_turn_take(q->shm, count, bytes, mine);
    }
    if (interval < SLEEP_MAX_NS / 8) interval *= 2;
    armed = sb_wake_arm(&n->wake); /* P6: before the looks */
    waits = sb_node_state(SB_LOAD(&n->word, SB_SEQ_CST)) == SB_NODE_INTERESTED && sb_queue_is_open(q) &&
            !sb_closed(q->c) && !has_room(q, count, bytes);
  }
}

/* Waits in the queue's room list or, if `memory`, in the broker's memory list, without spinning. */
static sb_status wait_listed(sb_queue *q, bool memory, uint32_t count, uint64_t bytes, uint64_t deadline_ns) {
  sb_connection *c = q->c;
  uint32_t node, flags = SB_NODE_ROOM | (memory ? SB_NODE_MEMORY : 0);
  uint64_t token;
  sb_lock(c);
  /* a batch may need more than UINT32_MAX bytes: its call then wakes too early, and waits again */
  uint32_t needs = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
  sb_status status = borrow(q, flags, needs, &node, &token);
  if (status != SB_OK) {
    sb_unlock(c);
    return wait_unlisted(status, deadline_ns);
  }
  sb_node_shm *n = sb_slot_at(c->b, node);
  sb_half *wake = &n->wake;
  bool interrupted = false;
  SB_STORE(&n->unacked, count, SB_RELAXED); /* relaxed: the CAS of the move publishes it */
  uint32_t armed = sb_wake_arm(wake);       /* P6: before the node can be notified */
  if (!sb_node_move(c, node, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED)) {
    status = sb_chunk_may_grow(c->b) ? SB_GROW : SB_NO_MEMORY;
    sb_wake_disarm(wake);
    give_back(q, flags, node, token);
    sb_unlock(c);
    return wait_unlisted(status, deadline_ns);
  }
  uint64_t until = sleep_until(deadline_ns), soon = sb_now_ns() + UINT64_C(50000000);
  /* Memory may become free without a notification or a hint (sb_scatter.h), so the caller tries again soon. */
  if (memory && soon < until) until = soon;
  bool room = !memory && has_room(q, count, bytes);
  uint64_t turn = 0;
  sb_unlock(c);
  if (!room && sb_queue_is_open(q) && !sb_closed(c)) {
    if (memory) {
      (void)sb_wake_sleep(wake, armed, until, &interrupted);
    } else {
      sleep_for_room(q, n, armed, bytes, until, &interrupted, &turn);
    }
  }
  sb_lock(c);
  sb_wake_disarm(wake);
  bool told = sb_node_state(SB_LOAD(&n->word, SB_SEQ_CST)) == SB_NODE_NOTIFIED;
  sb_waiter_leave(q, node, flags);
  give_back(q, flags, node, token);
  bool stopping = SB_LOAD(&c->b->header->closing, SB_ACQUIRE) != 0;
  status = sb_closed(c)                 ? SB_CLOSED
           : stopping                   ? SB_STOPPING
           : interrupted                ? SB_INTERRUPTED
           : sb_now_ns() >= deadline_ns ? SB_TIMEOUT
                                        : SB_OK;
  if (status != SB_OK && turn != 0) { /* else the caller tries again, in its turn */
    sb_turn_give_up(q->shm, turn);
    sb_notify_room_in(c, q->shm, q->slot);
  }
  if (memory && told && status != SB_OK) {
    /* This call ends without using the memory that it was notified of, so it notifies another producer. A call that
     * returns SB_OK does not: its caller tries to use the memory. */
    sb_notify_room_made(c, NULL, 0);
  }
  sb_unlock(c);
  return status;
}

sb_status sb_waiter_room(sb_queue *q, bool memory, uint64_t bytes, uint64_t deadline_ns) {
  return !memory && spin_for_room(q, bytes) ? SB_OK : wait_listed(q, memory, 1, bytes, deadline_ns);
}

sb_status sb_waiter_batch(sb_queue *q, uint32_t count, uint64_t bytes, uint64_t deadline_ns) {
  return wait_listed(q, false, count, bytes, deadline_ns);
}

/* Keeps the consumer NOTIFIED while the thread spins, so that producers need not ring it; then pulls the messages that
 * came. Spins only if no other consumer waits, since several consumers must share the messages. */
static void spin_for_row(sb_consumer *k, uint64_t deadline_ns) {
  sb_connection *c = k->c;
  if (k->subscription_count != 1 || woke_after_rest(k->subscriptions[0].q)) {
    return;
  }
  sb_subscription *s = &k->subscriptions[0];
  sb_lock(c);
  bool at_work = SB_LOAD(&s->q->shm->interested, SB_SEQ_CST) <= 1 && !k->closed && !sb_closed(c) &&
                 spin_ns(s->q) >= SPIN_MIN_NS && cores() >= 2 && !k->suspended && !k->starved &&
                 k->row_first == k->row_end && !sb_notify_higher_wants(c->b, s->q->shm, k->priority) &&
                 sb_node_move(c, s->node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED);
  sb_unlock(c);
  if (!at_work) {
    spin_longer_next(s->q);
  } else {
    (void)spin_for_message(s->q, deadline_ns);
    sb_lock(c);
    if (!k->closed && !sb_closed(c))
      sb_consumer_pull(k); /* if nothing came, this makes the node INTERESTED, then looks at the queue again (P3) */
    sb_unlock(c);
  }
}

sb_status sb_waiter_row(sb_consumer *k, uint64_t deadline_ns) {
  spin_for_row(k, deadline_ns);
  for (;;) {
    uint32_t word = SB_OR(&k->local, 1u, SB_SEQ_CST) | 1u; /* odd: a thread sleeps */
    sb_lock(k->c);
    bool ready = k->row_first != k->row_end || sb_consumer_orphaned(k), closed = k->closed || sb_closed(k->c);
    bool stopping = SB_LOAD(&k->c->b->header->closing, SB_ACQUIRE) != 0;
    sb_unlock(k->c);
    if (ready || closed || stopping) {
      if (k->subscription_count == 1) wait_ended(k->subscriptions[0].q);
      return ready ? SB_OK : closed ? SB_CLOSED : SB_STOPPING;
    }
    uint64_t now = sb_now_ns(), until = sleep_until(deadline_ns);
    if (now >= deadline_ns) {
      return SB_TIMEOUT;
    }
    struct timespec at = {(time_t)(until / UINT64_C(1000000000)), (long)(until % UINT64_C(1000000000))};
    long rc =
        syscall(SYS_futex, &k->local, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, word, &at, NULL, FUTEX_BITSET_MATCH_ANY);
    if (rc != 0 && errno == EINTR) {
      return SB_INTERRUPTED;
    }
  }
}
