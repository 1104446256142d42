// SPDX-License-Identifier: Apache-2.0
#include "sb_consumer.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sb_wait.h"

#define MAX_LEVELS 4096u

/* ---- the queue's side ---- */

void notify_work(sb_broker *b, uint32_t slot) {
  sb_node_shm *n = sb_node_at(b, slot);
  if (n == NULL) {
    return;
  }
  (void)SB_ADD(&n->wakes, 1, SB_RELAXED);
  if ((SB_LOAD(&n->flags, SB_RELAXED) & SB_NODE_DIRECT) != 0) {
    (void)sb_wake_ring(&n->wake);
    return;
  }
  sb_connection_shm *conn = sb_connection_record(b, sb_node_conn(SB_LOAD(&n->word, SB_ACQUIRE)));
  uint32_t target = SB_LOAD(&n->target, SB_RELAXED) % SB_MAX_TARGETS;
  SB_STORE(&n->flagged, 1, SB_SEQ_CST); /* P9: node, target, connection, each on its own, then ring */
  if (conn == NULL) {
    return;
  }
  (void)SB_OR(&conn->work_targets[target / 64], UINT64_C(1) << (target % 64), SB_SEQ_CST);
  (void)SB_OR(&conn->work, UINT64_C(1) << (target / 64), SB_SEQ_CST);
  SB_CRASHPOINT("consumer.notify.flagged");
  sb_node_shm *waiter = sb_node_at(b, SB_LOAD(&conn->waiter, SB_ACQUIRE));
  if (waiter != NULL) {
    (void)sb_wake_ring(&waiter->wake);
  }
}

bool sb_consumer_higher_wants(sb_broker *b, const sb_queue_shm *q, int32_t priority) {
  uint32_t at = SB_LOAD(&q->levels, SB_ACQUIRE);
  for (uint32_t n = 0; n < MAX_LEVELS; n++) {
    sb_level_shm *level = sb_level_at(b, at);
    if (level == NULL || SB_LOAD(&level->priority, SB_RELAXED) <= priority) {
      return false;
    }
    if (SB_LOAD(&level->interested_count, SB_SEQ_CST) > 0 || SB_LOAD(&level->notified_count, SB_SEQ_CST) > 0) {
      return true;
    }
    at = SB_LOAD(&level->next, SB_ACQUIRE);
  }
  return false;
}

/* Tells one of the best priority, of those above that one. */
static bool notify_above(sb_connection *c, uint32_t queue, int64_t above, bool rescue) {
  sb_broker *b = c->b;
  sb_queue_shm *q = sb_slot_at(b, queue);
  uint32_t at = SB_LOAD(&q->levels, SB_ACQUIRE);
  for (uint32_t n = 0; n < MAX_LEVELS; n++) {
    sb_level_shm *level = sb_level_at(b, at);
    sb_ring list;
    if (level == NULL || SB_LOAD(&level->priority, SB_RELAXED) <= above ||
        !sb_ring_open(b, at, SB_RING_INTERESTED, &list)) {
      return false;
    }
    uint64_t position = 0;
    uint32_t node;
    while ((node = sb_nodes_next(c, &list, SB_NODE_INTERESTED, &position)) != 0) {
      sb_node_shm *shm = sb_slot_at(b, node);
      if (rescue) {
        (void)SB_OR(&shm->flags, SB_NODE_RESCUED, SB_SEQ_CST);
      }
      if (sb_node_move(c, node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED)) {
        notify_work(b, node);
        return true;
      }
      if (sb_node_state(SB_LOAD(&shm->word, SB_SEQ_CST)) == SB_NODE_INTERESTED) {
        notify_work(b, node); /* no memory to move it: an extra wake is all it costs, and nobody is notified more */
        return false;
      }
    }
    if (!rescue && SB_LOAD(&level->notified_count, SB_SEQ_CST) > 0) {
      return false; /* I32: one of them is at it, and passes the baton when it cannot */
    }
    at = SB_LOAD(&level->next, SB_ACQUIRE);
  }
  return false;
}

bool sb_consumer_notify_one(sb_connection *c, uint32_t queue, bool rescue) {
  return notify_above(c, queue, INT64_MIN, rescue);
}

void sb_consumer_notify_browsers(sb_connection *c, uint32_t queue) {
  sb_ring list;
  uint64_t position = 0;
  uint32_t node;
  if (sb_ring_open(c->b, queue, SB_RING_NON_ACQUIRING, &list)) {
    while ((node = sb_nodes_next(c, &list, SB_NODE_NON_ACQUIRING, &position)) != 0) {
      notify_work(c->b, node);
    }
  }
}

static bool paused(const sb_queue_shm *q) { return (SB_LOAD(&q->flags, SB_RELAXED) & SB_QUEUE_PAUSED) != 0; }

void sb_consumer_work_arrived(sb_queue *q) {
  if (SB_LOAD(&q->shm->non_acquiring, SB_SEQ_CST) > 0) {
    sb_consumer_notify_browsers(q->c, q->slot);
  }
  if (SB_LOAD(&q->shm->interested, SB_SEQ_CST) > 0 && !paused(q->shm)) { /* P3: after the append */
    int32_t notified = SB_LOAD(&q->shm->notified, SB_SEQ_CST);
    if (notified <= 0 || sb_queue_ready(q->c->b, q->shm) > notified) {
      (void)sb_consumer_notify_one(q->c, q->slot, false);
    }
  }
}

void sb_consumer_backlog_arrived(sb_queue *q) {
  if (SB_LOAD(&q->shm->non_acquiring, SB_SEQ_CST) > 0) {
    sb_consumer_notify_browsers(q->c, q->slot);
  }
  int64_t ready = paused(q->shm) ? 0 : sb_queue_ready(q->c->b, q->shm);
  for (int64_t n = ready; n > 0 && ready > SB_LOAD(&q->shm->notified, SB_SEQ_CST); n--) {
    if (SB_LOAD(&q->shm->interested, SB_SEQ_CST) <= 0 || !sb_consumer_notify_one(q->c, q->slot, false)) {
      break;
    }
  }
}

/* Of those who wait for room in that queue, or for memory (NULL), one that can use it: two that both wait for more than
 * there is would wake each other for ever. */
static bool wake_one_of(sb_connection *c, const sb_ring *list, const sb_queue_shm *q) {
  uint64_t position = 0;
  uint32_t node;
  while ((node = sb_nodes_next(c, list, SB_NODE_INTERESTED, &position)) != 0) {
    sb_node_shm *shm = sb_slot_at(c->b, node);
    if (q != NULL && !sb_limits_room(q, 1, SB_LOAD(&shm->prefetch, SB_RELAXED))) {
      continue;
    }
    if (sb_node_move(c, node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED)) {
      notify_work(c->b, node);
      return true;
    }
  }
  return false;
}

void sb_consumer_room_in(sb_connection *c, sb_queue_shm *q, uint32_t slot) {
  sb_ring list;
  if (SB_LOAD(&q->room_waiting, SB_SEQ_CST) > 0 && sb_ring_open(c->b, slot, SB_RING_ROOM, &list)) {
    (void)wake_one_of(c, &list, q);
  }
}

void sb_consumer_room_made(sb_connection *c, sb_queue_shm *q, uint32_t slot) {
  sb_ring list;
  if (q != NULL) sb_consumer_room_in(c, q, slot);
  if (SB_LOAD(&c->b->header->memory_waiting, SB_SEQ_CST) != 0 && sb_ring_open(c->b, 0, SB_RING_MEMORY, &list)) {
    (void)wake_one_of(c, &list, NULL);
  }
}

void sb_consumer_wake_all(sb_connection *c, uint32_t queue) {
  sb_broker *b = c->b;
  sb_ring list;
  uint64_t position = 0;
  uint32_t node;
  if (sb_ring_open(b, queue, SB_RING_ALL, &list)) {
    while ((node = sb_nodes_next(c, &list, SB_STATE_ALL, &position)) != 0) {
      notify_work(b, node);
    }
  }
  if (sb_ring_open(b, queue, SB_RING_ROOM, &list)) {
    uint64_t end = sb_ring_exact_tail(b, &list); /* who comes back meanwhile has looked */
    for (position = 0; (node = sb_nodes_next(c, &list, SB_NODE_INTERESTED, &position)) != 0 && position <= end;) {
      if (sb_node_move(c, node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED)) notify_work(b, node);
    }
  }
}

/* ---- the consumer's side ---- */

static bool looks_ready(sb_queue *q) { return !paused(q->shm) && sb_queue_is_open(q) && sb_queue_looks_ready(q); }

static void pass_baton(sb_queue *q) { /* I31: after our own state was flipped */
  if (SB_LOAD(&q->shm->interested, SB_SEQ_CST) > 0 && looks_ready(q)) {
    (void)sb_consumer_notify_one(q->c, q->slot, false);
  }
}

static bool anybody_above(sb_connection *c, const sb_queue_shm *q, int32_t priority) {
  uint32_t at = SB_LOAD(&q->levels, SB_ACQUIRE);
  for (uint32_t n = 0; n < MAX_LEVELS; n++) {
    sb_level_shm *level = sb_level_at(c->b, at);
    sb_ring list;
    uint64_t position = 0, other = 0;
    if (level == NULL || SB_LOAD(&level->priority, SB_RELAXED) <= priority) {
      return false;
    }
    if ((sb_ring_open(c->b, at, SB_RING_INTERESTED, &list) &&
         sb_nodes_next(c, &list, SB_NODE_INTERESTED, &position) != 0) ||
        (sb_ring_open(c->b, at, SB_RING_NOTIFIED, &list) && sb_nodes_next(c, &list, SB_NODE_NOTIFIED, &other) != 0)) {
      return true;
    }
    at = SB_LOAD(&level->next, SB_ACQUIRE);
  }
  return false;
}

/* The counts say so first; a death may have left them too high, so the lists are asked too. */
static bool better_wants(sb_consumer *k, sb_subscription *s) {
  return sb_consumer_higher_wants(k->c->b, s->q->shm, k->priority) && anybody_above(k->c, s->q->shm, k->priority);
}

void set_notify_work_desired(sb_consumer *k, sb_subscription *s, bool desired) {
  if (desired) {
    if (sb_node_move(k->c, s->node, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED) && looks_ready(s->q) &&
        !better_wants(k, s)) { /* P3: after the CAS */
      if (sb_node_move(k->c, s->node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED)) {
        notify_work(k->c->b, s->node);
      }
    }
  } else if (sb_node_move(k->c, s->node, SB_IN(SB_NODE_INTERESTED) | SB_IN(SB_NODE_NOTIFIED), SB_NODE_NOT_INTERESTED)) {
    pass_baton(s->q);
  }
}

void sb_consumer_signal(sb_consumer *k) {
  (void)SB_ADD(&k->local, 1, SB_SEQ_CST);
  (void)syscall(SYS_futex, &k->local, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void push(sb_consumer *k, sb_subscription *s, uint64_t token) {
  uint32_t place = k->free_place - 1;
  k->free_place = k->places[place].next_free;
  k->places[place] = (sb_delivery){token, (uint32_t)(s - k->subscriptions), 0};
  k->row[k->row_end % k->prefetch] = place;
  bool was_empty = k->row_first == k->row_end;
  k->row_end++;
  k->unacked++;
  SB_STORE(&((sb_node_shm *)sb_slot_at(k->c->b, s->node))->unacked, k->unacked, SB_RELAXED);
  if (was_empty && (SB_LOAD(&k->local, SB_RELAXED) & 1u) != 0) { /* odd: somebody sleeps */
    sb_consumer_signal(k);
  }
  if (was_empty && k->event_fd >= 0 && SB_SWAP(&k->event_armed, 0u, SB_ACQ_REL) != 0) {
    uint64_t one = 1;
    ssize_t n = write(k->event_fd, &one, sizeof one);
    (void)n; /* full means readable already */
  }
}

static sb_status acquire_into_row(sb_consumer *k, sb_subscription *s) {
  uint64_t token;
  sb_taken t;
  sb_status status = sb_holding_take(k->c, &token);
  if (status != SB_OK) {
    return status;
  }
  status = sb_queue_acquire(s->q, token, &t);
  if (status != SB_OK) {
    sb_holding_give(k->c, token);
    return status;
  }
  if ((sb_side_word(0, 0, t.side) & SB_SIDE_REDELIVERED) != 0) {
    sb_ledger_count(s->q->ledger, SB_COUNT_REDELIVERED, 1);
  }
  sb_ledger_count(s->q->ledger, SB_COUNT_DELIVERED, 1);
  sb_consumer_room_made(k->c, s->q->shm, s->q->slot);
  push(k, s, t.token);
  return SB_OK;
}

static void starve(sb_consumer *k) {
  k->starved = true;
  for (uint32_t i = 0; i < k->subscription_count; i++) {
    set_notify_work_desired(k, &k->subscriptions[i], false);
  }
}

/* I32: a better one that wants it goes first. Flipped first, then looked (I31): it may have left meanwhile; and the baton
 * goes up only, since we are among those that want. */
static bool may_take(sb_consumer *k, sb_subscription *s) {
  if (!sb_consumer_higher_wants(k->c->b, s->q->shm, k->priority)) {
    return true;
  }
  (void)sb_node_move(k->c, s->node, SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED);
  if (!looks_ready(s->q)) {
    return false;
  }
  if (better_wants(k, s)) {
    (void)notify_above(k->c, s->q->slot, k->priority, false);
    return false;
  }
  return sb_node_move(k->c, s->node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED);
}

sb_status deliver_single_message(sb_consumer *k, sb_subscription *s) {
  sb_node_shm *node = sb_slot_at(k->c->b, s->node);
  if (sb_consumer_credit(k) == 0) {
    if (!k->starved) starve(k);
    return SB_NO_CREDIT;
  }
  if (!sb_queue_is_open(s->q)) {
    return SB_DELETED;
  }
  for (unsigned tries = 0; tries < SB_MAX_STRANGE; tries++) {
    bool rescued = (SB_LOAD(&node->flags, SB_RELAXED) & SB_NODE_RESCUED) != 0;
    if (rescued) {
      (void)SB_AND(&node->flags, ~SB_NODE_RESCUED, SB_RELAXED);
    }
    if (!rescued && !may_take(k, s)) {
      return SB_EMPTY;
    }
    sb_status status = acquire_into_row(k, s);
    if (status == SB_OK) {
      (void)sb_node_move(k->c, s->node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED); /* at work: no wake needed */
      if (sb_consumer_credit(k) == 0) starve(k);
      return SB_OK;
    }
    if (status != SB_EMPTY) {
      return status;
    }
    /* P3: the last attempt to take is made while INTERESTED. Does it look ready then, the bits may be wrong. */
    if (!sb_node_move(k->c, s->node, SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED) &&
        (!looks_ready(s->q) || sb_upkeep_rescan(s->q) == 0)) {
      return SB_EMPTY;
    }
  }
  return SB_EMPTY; /* what looks ready is not, and who seems to be better is nobody: left to the housekeeper */
}

bool sb_consumer_wants_work(sb_consumer *k) {
  for (uint32_t i = 0; i < k->subscription_count; i++) {
    sb_node_shm *n = sb_slot_at(k->c->b, k->subscriptions[i].node);
    unsigned state = sb_node_state(SB_LOAD(&n->word, SB_SEQ_CST));
    if (state == SB_NODE_NOT_INTERESTED && !k->starved &&
        sb_consumer_credit(k) > 0) { /* there was no memory for its list entry */
      set_notify_work_desired(k, &k->subscriptions[i], true);
    }
    if (state == SB_NODE_NOTIFIED || (state == SB_NODE_INTERESTED && looks_ready(k->subscriptions[i].q))) {
      return true;
    }
  }
  return false;
}

bool sb_consumer_orphaned(const sb_consumer *k) {
  for (uint32_t i = 0; i < k->subscription_count; i++) {
    if (sb_queue_is_open(k->subscriptions[i].q)) return false;
  }
  return true;
}

bool sb_consumer_turn(sb_consumer *k) {
  bool more = false;
  for (uint32_t i = 0; i < k->subscription_count; i++) {
    sb_subscription *s = &k->subscriptions[(k->rotation + i) % k->subscription_count];
    sb_node_shm *n = sb_slot_at(k->c->b, s->node);
    (void)SB_SWAP(&n->flagged, 0, SB_SEQ_CST); /* P9: cleared, then looked */
    sb_status status = deliver_single_message(k, s);
    if (status == SB_OK) {
      more = true;
    } else if (status == SB_DELETED && sb_consumer_orphaned(k)) {
      sb_consumer_signal(k); /* whoever waits for the row has to be told */
    }
    if (k->starved) {
      break;
    }
  }
  if (k->subscription_count > 0) {
    k->rotation = (k->rotation + 1) % k->subscription_count;
  }
  return more && !k->starved;
}

void sb_consumer_pull(sb_consumer *k) {
  while (sb_consumer_turn(k)) {
  }
}

/* Not at every single ack, since each change moves list entries; but whoever has nothing in the row must not wait. */
void sb_consumer_resume(sb_consumer *k) {
  uint32_t credit = sb_consumer_credit(k), enough = k->prefetch > 1 ? k->prefetch / 2 : 1;
  if (k->starved && (credit >= enough || (credit > 0 && k->row_first == k->row_end))) {
    k->starved = false;
    for (uint32_t i = 0; i < k->subscription_count; i++) {
      (void)sb_node_move(k->c, k->subscriptions[i].node, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED);
    }
    sb_consumer_pull(k);
  }
}

static void free_place(sb_consumer *k, uint32_t place) {
  k->places[place] = (sb_delivery){0, 0, k->free_place};
  k->free_place = place + 1;
  k->unacked -= k->unacked > 0;
}

void sb_consumer_free_place(sb_consumer *k, uint32_t place) {
  free_place(k, place);
  sb_consumer_resume(k);
}

/* ---- acknowledgements ---- */

void sb_consumer_flush(sb_consumer *k) {
  for (uint32_t i = 0; i < k->ack_count; i++) {
    sb_delivery *d = &k->places[k->acks[i]];
    (void)sb_queue_settle(k->subscriptions[d->subscription].q, d->token, SB_COUNT_ACKED);
    free_place(k, k->acks[i]);
  }
  k->ack_count = 0;
  if (SB_LOAD(&k->c->b->header->memory_waiting, SB_SEQ_CST) != 0) sb_consumer_room_made(k->c, NULL, 0);
  if (!k->closed) sb_consumer_resume(k);
}

sb_status sb_consumer_ack(sb_consumer *k, uint32_t place) {
  k->places[place].next_free = SB_ACK_WAITS;
  k->acks[k->ack_count++] = place;
  if (k->ack_count >= k->ack_batch || k->closed) {
    sb_consumer_flush(k);
  } else if (k->ack_count == 1) {
    k->acks_due_ns = sb_now_ns() + k->ack_interval_ns;
    sb_connection *c = k->c;
    if (c->acks_tick_ns == 0 ||
        c->acks_tick_ns > k->ack_interval_ns) { /* the IO thread sees that they do not get old */
      c->acks_tick_ns = k->ack_interval_ns;
      (void)sb_wake_ring(&((sb_node_shm *)sb_slot_at(c->b, c->io_node))->wake);
    }
  }
  return SB_OK;
}

void sb_consumer_return(sb_consumer *k, bool everything) {
  sb_consumer_flush(k);
  if (!everything) {
    for (; k->row_first != k->row_end; k->row_first++) {
      uint32_t place = k->row[k->row_first % k->prefetch];
      sb_queue *q = k->subscriptions[k->places[place].subscription].q;
      (void)sb_queue_release(q, k->places[place].token, SB_RELEASE_CLEAN);
      k->places[place] = (sb_delivery){0, 0, k->free_place};
      k->free_place = place + 1;
      k->unacked -= k->unacked > 0;
      (void)sb_limits_enforce(q);
      sb_consumer_work_arrived(q);
    }
    return;
  }
  k->row_first = k->row_end;
  for (uint32_t place = 0; place < k->prefetch; place++) {
    if (k->places[place].token != 0) {
      sb_queue *q = k->subscriptions[k->places[place].subscription].q;
      (void)sb_queue_release(q, k->places[place].token, SB_RELEASE_CLEAN);
      k->places[place].token = 0;
      (void)sb_limits_enforce(q);
      sb_consumer_work_arrived(q);
    }
  }
  k->unacked = 0;
}

void sb_consumer_detach(sb_consumer *k) {
  k->closed = true;
  for (uint32_t i = 0; i < k->subscription_count;
       i++) { /* not interested first: the baton goes on before we are gone */
    set_notify_work_desired(k, &k->subscriptions[i], false);
  }
  for (uint32_t i = 0; i < k->subscription_count; i++) {
    sb_node_destroy(k->c, k->subscriptions[i].node, k->subscriptions[i].token);
  }
  k->subscription_count = 0;
  sb_consumer_signal(k);
}
