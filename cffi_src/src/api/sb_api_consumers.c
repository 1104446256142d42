// SPDX-License-Identifier: Apache-2.0
/* Public calls: consumers (sb_consumer.h). The row of a consumer has the messages that were pulled for it, and not
 * given to the application yet. */
#include <stdlib.h>
#include <string.h>

#include "sb_api.h"

static sb_status subscribe(sb_consumer *k, sb_queue **queues, uint32_t count, uint32_t how) {
  for (uint32_t i = 0; i < count; i++) {
    sb_subscription *s = &k->subscriptions[i];
    if (!sb_queue_is_open(queues[i])) {
      return SB_DELETED;
    }
    *s = sb_subscription_to(queues[i], k->priority, (how & SB_CONSUME_NO_LOCAL) != 0, k->wish);
    bool alone = sb_topology_is_held(k->c->b);
    uint32_t flags;
    sb_status status = sb_admission_begin(k->c, s->q->slot, alone, &flags);
    flags |= (how & SB_CONSUME_EXCLUSIVE) != 0 ? SB_NODE_EXCLUSIVE : 0u;
    if (status == SB_OK)
      status = sb_node_create(k->c, s->q->slot, k->priority, flags, k->target.number, k->prefetch, &s->node, &s->token);
    if (status != SB_OK) {
      return status;
    }
    k->subscription_count++;
    if (k->window.limit != 0) s->choice.window = &k->window;
    SB_STORE(&sb_subscription_node(s)->prefetch_bytes, k->window.limit, SB_RELAXED);
    status = sb_rivals_announce(k->c, s->node, &s->choice, &s->wish_token);
    if (status == SB_OK) status = sb_admission_enter(k->c, s->q->slot, s->node, alone);
    if (status == SB_OK && sb_admission_ended(s->q)) status = SB_DELETED;
    if (status != SB_OK) {
      return status;
    }
  }
  for (uint32_t i = 0; i < count; i++) {
    sb_status status = sb_subscription_begin(&k->subscriptions[i]);
    if (status != SB_OK) {
      return status;
    }
  }
  for (uint32_t i = 0; i < count; i++) sb_admission_done(queues[i]->shm);
  return SB_OK;
}

static sb_consumer *consumer_of(sb_target *t) { return (sb_consumer *)(void *)t; /* `target` is its first field */ }
static bool turn(sb_target *t) {
  bool more = sb_consumer_turn(consumer_of(t));
  if (consumer_of(t)->lacks != SB_GROW) return more;
  t->c->must_grow = true; /* the consumer takes another turn when the IO thread has added a segment */
  return true;
}
static bool wants_work(sb_target *t) { return sb_consumer_wants_work(consumer_of(t)); }
static void signal_one(sb_target *t) { sb_consumer_signal(consumer_of(t)); }
static void end(sb_target *t) { sb_api_cancel(consumer_of(t), true); }
static uint64_t overlooked(sb_target *t, const sb_queue **q) { return sb_consumer_overlooked(consumer_of(t), q); }
static const sb_target_kind CONSUMERS = {.turn = turn,
                                         .wants_work = wants_work,
                                         .overlooked = overlooked,
                                         .signal = signal_one,
                                         .end = end,
                                         .is_consumer = true};

sb_status sb_api_wish(const char *selector, uint32_t length, sb_wish **wish) {
  *wish = length > 0 ? malloc(sizeof **wish + length) : NULL;
  if (length == 0 || *wish == NULL) {
    return length == 0 ? SB_OK : SB_SYSTEM;
  }
  memcpy((*wish)->code, selector, length);
  if (sb_program_open((*wish)->code, length, &(*wish)->program)) {
    return SB_OK;
  }
  free(*wish);
  *wish = NULL;
  return SB_INVALID;
}

sb_consumer *sb_consumer_open(sb_connection *c, sb_queue **queues, uint32_t count, uint32_t prefetch, int32_t priority,
                              uint32_t ack_batch, uint64_t ack_interval_ns, sb_status *status) {
  const sb_consumer_options o = {
      .prefetch = prefetch, .priority = priority, .ack_batch = ack_batch, .ack_interval_ns = ack_interval_ns};
  return sb_consumer_open_with(c, queues, count, &o, status);
}

static sb_consumer *open_once(sb_connection *c, sb_queue **queues, uint32_t count, const sb_consumer_options *o,
                              sb_status *status) {
  sb_consumer *k = calloc(1, sizeof *k);
  if (k != NULL) {
    k->subscriptions = calloc(count, sizeof *k->subscriptions);
    k->ack_slots = calloc(o->prefetch, sizeof *k->ack_slots);
    k->row = calloc(o->prefetch, sizeof *k->row);
    k->acks = calloc(o->prefetch, sizeof *k->acks);
  }
  *status = k != NULL ? sb_api_wish(o->selector, o->selector_length, &k->wish) : SB_OK;
  if (*status != SB_OK) {
    sb_consumer_free(k);
    return NULL;
  }
  if (k == NULL || k->subscriptions == NULL || k->ack_slots == NULL || k->row == NULL || k->acks == NULL) {
    *status = SB_SYSTEM;
    if (k != NULL) sb_consumer_free(k);
    return NULL;
  }
  k->c = k->target.c = c;
  k->target.kind = &CONSUMERS;
  (void)SB_ADD(&c->handles, 1u, SB_RELAXED);
  k->prefetch = o->prefetch;
  k->window.limit = o->prefetch_bytes;
  k->ack_batch = o->ack_batch < o->prefetch ? o->ack_batch : o->prefetch;
  k->ack_interval_ns = o->ack_interval_ns;
  k->priority = o->priority;
  k->event_fd = -1;
  for (uint32_t i = 0; i < k->prefetch; i++) {
    k->ack_slots[i].next_free = i + 2 <= k->prefetch ? i + 2 : 0;
  }
  k->free_ack_slot = 1;
  *status = sb_api_enter(c);
  if (*status == SB_OK) {
    sb_target_add(&k->target);
    *status = subscribe(k, queues, count, o->flags);
    if (*status != SB_OK)
      sb_api_cancel(k, false); /* if k was the only consumer of an auto-delete queue, the queue ends */
    sb_slab_return_cache(c);   /* cached slots would lie idle, as in sb_queue_open */
    sb_api_leave(c);
  }
  if (*status != SB_OK) {
    sb_consumer_free(k);
    return NULL;
  }
  return k;
}

sb_consumer *sb_consumer_open_with(sb_connection *c, sb_queue **queues, uint32_t count,
                                   const sb_consumer_options *options, sb_status *status) {
  sb_consumer *k = open_once(c, queues, count, options, status);
  if (*status == SB_NO_SEAT && sb_recover_all(c) > 0) { /* a consumer that was killed has its seat until it is reaped */
    k = open_once(c, queues, count, options, status);
  }
  return k;
}

void sb_api_cancel(sb_consumer *k, bool return_everything) {
  if (!k->closed) {
    k->closed = true;
    /* Before the messages return, so that they do not notify this consumer. A notification that one of its nodes has
     * already is passed on to another consumer. */
    for (uint32_t i = 0; i < k->subscription_count; i++) {
      sb_subscription_set_interested(&k->subscriptions[i], false);
    }
    sb_consumer_return(k, false);
    sb_target_remove(&k->target);
  }
  if (return_everything) {
    sb_consumer_return(k, true);
  }
  uint32_t count = k->subscription_count;
  if (count > 0) {
    sb_consumer_detach(k);
  }
  for (uint32_t i = 0; i < count; i++) {
    (void)sb_lifetime_end(k->subscriptions[i].q, 0); /* ends an auto-delete queue without consumers */
  }
}

void sb_consumer_cancel(sb_consumer *k, bool return_everything) {
  if (sb_api_enter(k->c) == SB_OK) {
    sb_api_cancel(k, return_everything);
    sb_api_leave(k->c);
  }
}

/* Called when a consumer is freed. Cancels the consumer, unless the application did, and returns the messages that the
 * application still holds. Works while the broker is being purged, too: the
 * connection must not refer to a freed consumer. Does nothing for a closed connection, which refers to no consumers,
 * and in a forked child, where the lock may be taken for ever and no thread uses the connection. */
static void forget(sb_consumer *k) {
  sb_connection *c = k->c;
  if (!sb_closed(c) && !sb_forked(c->b)) {
    sb_lock(c);
    if (!sb_closed(c)) sb_api_cancel(k, true);
    sb_unlock(c);
  }
}

void sb_consumer_free(sb_consumer *k) {
  if (k->c != NULL) {
    forget(k);
    sb_connection_free(k->c);
  }
  free(k->subscriptions);
  free(k->wish);
  free(k->ack_slots);
  free(k->row);
  free(k->acks);
  free(k);
}

/* Gives the first message of the row (the messages that were pulled, and not given yet) to the application. The row is
 * not empty. A message that cannot be read is removed, and its ack slot is freed. */
static int64_t give(sb_consumer *k, char *buffer, bool auto_ack) {
  sb_connection *c = k->c;
  uint32_t ack_slot = k->row[k->row_first % k->prefetch];
  sb_delivery *d = &k->ack_slots[ack_slot];
  sb_queue *q = k->subscriptions[d->subscription].q;
  sb_taken t;
  bool readable = sb_api_held(c, d->token, &t);
  uint64_t tag = d->token | SB_FIELD(ack_slot, SB_TAG_ACK_SLOT), view = 0;
  sb_status status = readable ? SB_OK : SB_CORRUPT;
  if (readable && auto_ack && t.message->body_length > SB_INLINE_BODY) {
    status = sb_api_view(c, &t, &view);
    if (status == SB_OK) tag = view;
    if (status != SB_OK && status != SB_CORRUPT) {
      return -(int64_t)status; /* the message stays the next one */
    }
  }
  k->row_first++;
  int64_t length = status == SB_OK ? sb_api_record(q, &t, tag, d->subscription, buffer) : -(int64_t)status;
  if (length < 0) {
    if (view != 0) sb_api_view_drop(c, view);
    length = -(int64_t)sb_api_drop_corrupt(q, d->token);
    sb_consumer_free_ack_slot(k, ack_slot);
    return length;
  }
  sb_node_shm *n = sb_slot_at(c->b, k->subscriptions[d->subscription].node);
  k->delivered++;
  SB_STORE(&n->delivered, SB_LOAD(&n->delivered, SB_RELAXED) + 1, SB_RELAXED);
  if (auto_ack) {
    (void)sb_dispose(q, d->token, SB_REASON_ACKED);
    sb_consumer_free_ack_slot(k, ack_slot);
  }
  return length;
}

/* Gives the next pulled message to the application. If the row is empty, pulls messages from the queues first. */
int64_t sb_consumer_next(sb_consumer *k, char *buffer, bool auto_ack) {
  sb_status status = sb_api_enter(k->c);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  bool pulls = k->row_first == k->row_end && !k->closed && !k->suspended;
  if (pulls) {
    if (sb_consumer_credit(k) == 0 || sb_consumer_is_held_back(k)) sb_consumer_flush(k);
    sb_consumer_resume(k);
    sb_consumer_pull(k);
  }
  int64_t length = -(int64_t)SB_EMPTY;
  if (k->row_first != k->row_end) {
    length = give(k, buffer, auto_ack);
  } else if (k->closed) {
    length = -(int64_t)SB_CLOSED;
  } else if (sb_consumer_orphaned(k)) {
    length = -(int64_t)SB_DELETED;
  } else if (pulls && k->lacks != SB_OK) {
    length = -(int64_t)k->lacks;
  }
  sb_api_leave(k->c);
  return length;
}

void sb_consumer_send_acks(sb_consumer *k) {
  if (k->ack_batch > 1 && !sb_closed(k->c) && !sb_forked(k->c->b)) {
    sb_lock(k->c);
    if (!sb_closed(k->c)) sb_consumer_flush(k);
    sb_unlock(k->c);
  }
}

sb_status sb_consumer_wait(sb_consumer *k, uint64_t deadline_ns) {
  sb_consumer_send_acks(k);
  sb_status status = sb_usable(k->c);
  return status == SB_OK ? sb_waiter_row(k, deadline_ns) : status;
}

static sb_status settle_tag(sb_consumer *k, uint64_t tag, sb_disposition disposition) {
  uint64_t token = tag & SB_TAG_TOKEN;
  uint32_t ack_slot = (uint32_t)(tag >> SB_TAG_ACK_SLOT);
  if (ack_slot >= k->prefetch || k->ack_slots[ack_slot].token != token || token == 0 ||
      k->ack_slots[ack_slot].next_free == SB_ACK_WAITS) {
    return SB_SETTLED;
  }
  if (disposition == SB_UNDELIVER && !k->closed) {
    sb_consumer_take_back(k, ack_slot);
    return SB_OK;
  }
  if (disposition == SB_ACK && k->ack_batch > 1) {
    return sb_consumer_ack(k, ack_slot);
  }
  sb_queue *q = k->subscriptions[k->ack_slots[ack_slot].subscription].q;
  sb_status status = sb_api_end(q, token, disposition);
  if (!k->closed) {
    sb_consumer_free_ack_slot(k, ack_slot);
  } else {
    k->ack_slots[ack_slot].token = 0;
  }
  return status;
}

sb_status sb_consumer_settle(sb_consumer *k, const char *record, sb_disposition disposition) {
  sb_status status = sb_api_enter(k->c);
  if (status == SB_OK) {
    uint64_t tag;
    memcpy(&tag, record, sizeof tag);
    status = settle_tag(k, tag, disposition);
    sb_api_leave(k->c);
  }
  return status;
}

void sb_consumer_suspend(sb_consumer *k, bool suspended) {
  if (sb_api_enter(k->c) == SB_OK) {
    if (k->suspended != suspended && !k->closed) {
      k->suspended = suspended;
      for (uint32_t i = 0; i < k->subscription_count; i++) {
        sb_subscription *s = &k->subscriptions[i];
        sb_subscription_set_interested(s, !suspended && !k->starved && !sb_subscription_is_held_back(s));
      }
      if (!suspended) sb_consumer_resume(k); /* its credit may have returned meanwhile */
    }
    sb_api_leave(k->c);
  }
}

uint32_t sb_consumer_unacked(sb_consumer *k) { return k->unacked; }
uint32_t sb_consumer_waiting(sb_consumer *k) { return (uint32_t)(k->row_end - k->row_first); }
uint64_t sb_consumer_delivered(sb_consumer *k) { return k->delivered; }

/* Takes the lock, also while the broker is being purged: when this call returns, the IO thread does not write to the
 * former descriptor any more, and the caller may close it. */
void sb_consumer_set_event(sb_consumer *k, int event_fd) {
  bool alone = sb_forked(k->c->b); /* no lock: it may be taken for ever, and there is no IO thread */
  if (!alone) sb_lock(k->c);
  k->event_fd = event_fd;
  if (!alone) sb_unlock(k->c);
}

/* True if the next message is there, or if none will come. The caller has armed the event first: the IO
 * thread wrote no event for what happened before. */
static bool need_not_wait(const sb_consumer *k) {
  return k->row_first != k->row_end || sb_closed(k->c) || sb_consumer_orphaned(k) ||
         SB_LOAD(&k->c->b->header->closing, SB_ACQUIRE) != 0;
}

bool sb_consumer_arm_event(sb_consumer *k) {
  if (sb_forked(k->c->b)) {
    return true; /* no lock: it may be taken for ever. The caller's next call returns SB_FORKED */
  }
  sb_lock(k->c); /* the IO thread fills the row, and writes events, under this lock */
  SB_STORE(&k->event_armed, 1u, SB_SEQ_CST);
  bool there = need_not_wait(k);
  sb_unlock(k->c);
  return there;
}
