// SPDX-License-Identifier: Apache-2.0
#include "sb_consumer.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sb_wait.h"

static void wake_threads(sb_consumer *k) {
  (void)SB_ADD(&k->local, 1, SB_SEQ_CST);
  (void)syscall(SYS_futex, &k->local, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void write_event(sb_consumer *k) {
  if (k->event_fd >= 0 && SB_SWAP(&k->event_armed, 0u, SB_ACQ_REL) != 0) {
    uint64_t one = 1;
    ssize_t n = write(k->event_fd, &one, sizeof one);
    (void)n; /* a full counter is readable already */
  }
}

void sb_consumer_signal(sb_consumer *k) {
  wake_threads(k);
  write_event(k);
}

/* Called when a message has come into the empty row. */
static void wake_application(sb_consumer *k) {
  if ((SB_LOAD(&k->local, SB_RELAXED) & 1u) != 0) { /* odd: a thread sleeps */
    wake_threads(k);
  }
  write_event(k);
}

/* What the node of a subscription shows to those who list consumers: how many messages of its queue the consumer holds. */
static sb_half *shown_unacked(const sb_consumer *k, const sb_subscription *s) {
  return &((sb_node_shm *)sb_slot_at(k->c->b, s->node))->unacked;
}

static void push(sb_consumer *k, sb_subscription *s, const sb_taken *t) {
  uint32_t ack_slot = k->free_ack_slot - 1;
  k->free_ack_slot = k->ack_slots[ack_slot].next_free;
  k->ack_slots[ack_slot] = (sb_delivery){t->token, t->message->body_length, (uint32_t)(s - k->subscriptions), 0};
  k->window.used += t->message->body_length;
  k->row[k->row_end % k->prefetch] = ack_slot;
  bool was_empty = k->row_first == k->row_end;
  k->row_end++;
  k->unacked++;
  sb_half *shown = shown_unacked(k, s);
  SB_STORE(shown, SB_LOAD(shown, SB_RELAXED) + 1, SB_RELAXED);
  if (was_empty) wake_application(k);
}

void sb_consumer_take_back(sb_consumer *k, uint32_t ack_slot) {
  bool was_empty = k->row_first == k->row_end;
  k->row_first--;
  k->row[k->row_first % k->prefetch] = ack_slot;
  k->delivered--;
  sb_node_shm *n = sb_subscription_node(&k->subscriptions[k->ack_slots[ack_slot].subscription]);
  SB_STORE(&n->delivered, SB_LOAD(&n->delivered, SB_RELAXED) - 1, SB_RELAXED);
  if (was_empty) wake_application(k);
}

static void starve(sb_consumer *k) {
  k->starved = true;
  for (uint32_t i = 0; i < k->subscription_count; i++) {
    sb_subscription_set_interested(&k->subscriptions[i], false);
  }
}

sb_status sb_consumer_deliver_one(sb_consumer *k, sb_subscription *s) {
  if (sb_consumer_credit(k) == 0) {
    if (!k->starved) starve(k);
    return SB_NO_CREDIT;
  }
  sb_taken t;
  sb_status status = sb_subscription_take_now(k->c, s, &t);
  if (status == SB_OK) {
    push(k, s, &t);
    /* NOTIFIED while the consumer is at work, so that producers do not wake it; most of the time it is already */
    const sb_node_shm *n = sb_slot_at(k->c->b, s->node);
    if (sb_node_state(SB_LOAD(&n->word, SB_RELAXED)) == SB_NODE_INTERESTED) {
      (void)sb_node_move(k->c, s->node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED);
    }
    if (k->unacked >= k->prefetch) starve(k);
  } else if (status == SB_NO_CREDIT) {
    sb_subscription_set_interested(s, false);
  }
  return status;
}

bool sb_consumer_is_held_back(const sb_consumer *k) {
  uint32_t i = 0;
  while (i < k->subscription_count && !sb_subscription_is_held_back(&k->subscriptions[i])) i++;
  return i < k->subscription_count;
}

/* True if a subscription that is held back may look again: another process said so, or was about to (P39 of sb_window.h). */
static bool may_look_again(const sb_subscription *s) {
  return (SB_LOAD(&sb_subscription_node(s)->flags, SB_SEQ_CST) & SB_NODE_HELD_BACK) == 0 ||
         SB_LOAD(&s->q->shm->held_back, SB_SEQ_CST) == 0 || !sb_queue_is_open(s->q);
}

bool sb_consumer_wants_work(sb_consumer *k) {
  for (uint32_t i = 0; i < k->subscription_count; i++) {
    sb_node_shm *n = sb_slot_at(k->c->b, k->subscriptions[i].node);
    unsigned state = sb_node_state(SB_LOAD(&n->word, SB_SEQ_CST));
    if (sb_subscription_is_held_back(&k->subscriptions[i])) {
      if (may_look_again(&k->subscriptions[i])) return true;
      continue;
    }
    if (state == SB_NODE_NOT_INTERESTED && !k->starved && sb_consumer_credit(k) > 0) {
      /* the node stands by (I54 of sb_exclusive.h), was parked (I61 of sb_stopped.h), or its entry got no memory */
      sb_subscription_set_interested(&k->subscriptions[i], true);
    }
    if (state == SB_NODE_NOTIFIED || sb_subscription_is_stuck(&k->subscriptions[i]) ||
        (state == SB_NODE_INTERESTED && sb_notify_looks_ready(k->subscriptions[i].q))) {
      return true;
    }
  }
  return false;
}

uint64_t sb_consumer_overlooked(const sb_consumer *k, const sb_queue **q) {
  uint64_t entry = 0;
  for (uint32_t i = 0; i < k->subscription_count && entry == 0; i++) {
    entry = sb_subscription_overlooked(&k->subscriptions[i]);
    *q = k->subscriptions[i].q;
  }
  return entry;
}

bool sb_consumer_orphaned(const sb_consumer *k) {
  for (uint32_t i = 0; i < k->subscription_count; i++) {
    if (sb_queue_is_open(k->subscriptions[i].q)) return false;
  }
  return true;
}

bool sb_consumer_turn(sb_consumer *k) {
  bool more = false;
  k->lacks = SB_OK;
  if (k->starved) starve(k); /* again: a node may have lacked memory for its list entry (I30) */
  for (uint32_t i = 0; i < k->subscription_count; i++) {
    sb_subscription *s = &k->subscriptions[(k->rotation + i) % k->subscription_count];
    sb_node_shm *n = sb_slot_at(k->c->b, s->node);
    bool waits = sb_subscription_is_held_back(s) && !may_look_again(s);
    if (SB_LOAD(&n->flagged, SB_SEQ_CST) != 0) (void)SB_SWAP(&n->flagged, 0, SB_SEQ_CST); /* P9: clear it, then look */
    if (waits) {
      sb_subscription_set_interested(s, false); /* again: its node may have lacked memory for its list entry (I30) */
      continue;
    }
    if (sb_subscription_is_held_back(s)) (void)sb_subscription_go_on(s);
    sb_status status = sb_consumer_deliver_one(k, s);
    if (status == SB_OK) {
      more = true;
    } else if (status == SB_EMPTY && !k->starved && sb_consumer_credit(k) > 0 && sb_subscription_want(s)) {
      /* The node was parked while this process was stopped (I61 of sb_stopped.h), there was no memory for its list
       * entry before, or the node became active just now (I54 of sb_exclusive.h). It is INTERESTED again, so the
       * consumer looks at the queue once more (P3). */
      more = true;
    } else if ((status == SB_DELETED || status == SB_NO_CREDIT) && sb_consumer_orphaned(k)) {
      /* The application waits for a message, and must see that all queues are deleted. A consumer without credit does
       * not look at its queues, so it gets SB_NO_CREDIT from a deleted queue, too. */
      sb_consumer_signal(k);
    } else if (status == SB_GROW || status == SB_NO_MEMORY) {
      k->lacks = status;
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

/* Lets the subscriptions go on whose next message fits by now. True: there were some. */
static bool lets_some_go_on(sb_consumer *k) {
  bool some = false;
  for (uint32_t i = 0; k->window.limit != 0 && i < k->subscription_count; i++) {
    sb_subscription *s = &k->subscriptions[i];
    if (sb_subscription_is_held_back(s) && sb_window_fits(&k->window, s->choice.lacks)) {
      (void)sb_subscription_go_on(s);
      some = true;
    }
  }
  return some;
}

/* Makes a starved consumer interested again when half of its prefetch is free, and pulls. The consumer waits for that
 * half, since each change of interest appends list entries. With an empty row, one credit is enough. */
void sb_consumer_resume(sb_consumer *k) {
  uint32_t credit = sb_consumer_credit(k), enough = k->prefetch > 1 ? k->prefetch / 2 : 1;
  if (k->starved && (credit >= enough || (credit > 0 && k->row_first == k->row_end))) {
    k->starved = false;
    for (uint32_t i = 0; i < k->subscription_count; i++) {
      (void)sb_subscription_go_on(&k->subscriptions[i]);
    }
    sb_consumer_pull(k);
  } else if (!k->starved && credit > 0 && lets_some_go_on(k)) {
    sb_consumer_pull(k);
  }
}

static void free_ack_slot(sb_consumer *k, uint32_t ack_slot) {
  if (!k->closed) { /* else the node is gone */
    sb_half *shown = shown_unacked(k, &k->subscriptions[k->ack_slots[ack_slot].subscription]);
    uint32_t unacked = SB_LOAD(shown, SB_RELAXED);
    SB_STORE(shown, unacked - (unacked > 0), SB_RELAXED);
  }
  k->window.used -= k->ack_slots[ack_slot].bytes;
  k->ack_slots[ack_slot] = (sb_delivery){0, 0, 0, k->free_ack_slot};
  k->free_ack_slot = ack_slot + 1;
  k->unacked -= k->unacked > 0;
}

void sb_consumer_free_ack_slot(sb_consumer *k, uint32_t ack_slot) {
  free_ack_slot(k, ack_slot);
  sb_consumer_resume(k);
}

/* ---- acknowledgements ---- */

void sb_consumer_flush(sb_consumer *k) {
  for (uint32_t i = 0; i < k->ack_count; i++) {
    sb_delivery *d = &k->ack_slots[k->acks[i]];
    (void)sb_dispose(k->subscriptions[d->subscription].q, d->token, SB_REASON_ACKED);
    free_ack_slot(k, k->acks[i]);
  }
  k->ack_count = 0;
  if (SB_LOAD(&k->c->b->header->memory_waiting, SB_SEQ_CST) != 0) sb_notify_room_made(k->c, NULL, 0);
  if (!k->closed) sb_consumer_resume(k);
}

sb_status sb_consumer_ack(sb_consumer *k, uint32_t ack_slot) {
  k->ack_slots[ack_slot].next_free = SB_ACK_WAITS;
  k->acks[k->ack_count++] = ack_slot;
  if (k->ack_count >= k->ack_batch || k->closed) {
    sb_consumer_flush(k);
  } else if (k->ack_count == 1) {
    k->acks_due_ns = sb_now_ns() + k->ack_interval_ns;
    sb_connection *c = k->c;
    if (c->acks_tick_ns == 0 || c->acks_tick_ns > k->ack_interval_ns) { /* the IO thread must wake to flush `acks` */
      c->acks_tick_ns = k->ack_interval_ns;
      sb_target_ring_io(c);
    }
  }
  return SB_OK;
}

void sb_consumer_return(sb_consumer *k, bool everything) {
  sb_consumer_flush(k);
  if (!everything) {
    for (; k->row_first != k->row_end; k->row_first++) {
      uint32_t ack_slot = k->row[k->row_first % k->prefetch];
      sb_queue *q = k->subscriptions[k->ack_slots[ack_slot].subscription].q;
      uint64_t token = k->ack_slots[ack_slot].token;
      free_ack_slot(k, ack_slot);
      (void)sb_subscription_return(q, token, SB_UNDELIVER);
    }
    return;
  }
  k->row_first = k->row_end;
  for (uint32_t ack_slot = 0; ack_slot < k->prefetch; ack_slot++) {
    if (k->ack_slots[ack_slot].token != 0) {
      sb_queue *q = k->subscriptions[k->ack_slots[ack_slot].subscription].q;
      (void)sb_subscription_return(q, k->ack_slots[ack_slot].token, SB_UNDELIVER);
      k->ack_slots[ack_slot].token = 0;
    }
  }
  k->unacked = 0;
  k->window.used = 0;
}

void sb_consumer_detach(sb_consumer *k) {
  k->closed = true;
  for (uint32_t i = 0; i < k->subscription_count;
       i++) { /* end the interest of all nodes first: this passes the baton before the nodes leave */
    sb_subscription_set_interested(&k->subscriptions[i], false);
  }
  for (uint32_t i = 0; i < k->subscription_count; i++) {
    sb_node_destroy(k->c, k->subscriptions[i].node, k->subscriptions[i].token);
    sb_subscription_leave(&k->subscriptions[i]);
    sb_exclusive_succeed(k->c, k->subscriptions[i].q->slot);
  }
  k->subscription_count = 0;
  wake_threads(k); /* writes no event: the application that ends the consumer closes the descriptor */
}
