// SPDX-License-Identifier: Apache-2.0
/* Consumers: targets of the application's own, with one credit over some queues (seed 002: deliverSingleMessage).
 *
 * What: a consumer is one target over one or more queues, with one node in each. A queue tells one interested node of
 * new work; the connection of that node pulls under its credit until the queue is empty or the credit is gone.
 * Pulled messages wait in a process-local row until the application takes them. Whatever thread of the connection holds
 * its lock may pull: the IO thread when notified, or the application's thread that runs dry.
 *
 * Invariants: I30 of sb_subscription.h, I31 and I32 of sb_notify.h.
 *
 * Ordering pairs: P3 and P9 of sb_notify.h.
 *
 * Death: rows, places and credit are process-local; nodes and what is held go with the connection.
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_CONSUMER_H
#define SB_CONSUMER_H

#include "sb_subscription.h"
#include "sb_target.h"

/* A message in the hands of a consumer: in the row, or with the application. */
#define SB_ACK_WAITS UINT32_MAX
typedef struct {
  uint64_t token; /* 0 = the place is free */
  uint32_t subscription;
  uint32_t next_free; /* SB_ACK_WAITS: acknowledged, to be settled with the batch */
} sb_delivery;

struct sb_consumer {
  sb_target target;
  sb_connection *c;
  sb_subscription *subscriptions;
  sb_delivery *places; /* `prefetch` of them */
  uint32_t *row;       /* places pulled, not taken by the application yet */
  uint32_t *acks;      /* places whose acknowledgement waits for its batch */
  uint64_t row_first, row_end;
  uint32_t free_place; /* plus one; 0 = none */
  uint32_t subscription_count, rotation;
  uint32_t prefetch, unacked;
  uint32_t ack_count, ack_batch;
  uint64_t ack_interval_ns, acks_due_ns;
  uint64_t delivered; /* to the application */
  int32_t priority;
  bool starved;   /* out of credit: NOT_INTERESTED until enough came back */
  bool suspended; /* by the application */
  bool closed;
  sb_half local; /* futex of application threads that wait for the row */
  int event_fd;  /* told of deliveries when armed */
  sb_half event_armed;
};

/* SB_OK: one message went to the row. SB_EMPTY, SB_NO_CREDIT, SB_DELETED ... : why not. */
sb_status deliver_single_message(sb_consumer *k, sb_subscription *s);
/* One turn: at most one message from each queue, in rotation; false when there is nothing more to do now. */
bool sb_consumer_turn(sb_consumer *k);
/* Pulls until the credit is used or the queues are empty. */
void sb_consumer_pull(sb_consumer *k);
/* Gives a place (and so one credit) back after its message was settled or released. */
void sb_consumer_free_place(sb_consumer *k, uint32_t place);
void sb_consumer_resume(sb_consumer *k);
/* Acknowledges the message in that place: at once, or with its batch. */
sb_status sb_consumer_ack(sb_consumer *k, uint32_t place);
/* Settles what was acknowledged so far. */
void sb_consumer_flush(sb_consumer *k);
bool sb_consumer_wants_work(sb_consumer *k);
uint64_t sb_consumer_overlooked(const sb_consumer *k, const sb_queue **q); /* see sb_target.h */
/* Wakes the application's threads that wait for the row. */
void sb_consumer_signal(sb_consumer *k);
/* Are all its queues deleted? */
bool sb_consumer_orphaned(const sb_consumer *k);
/* Puts back what the consumer holds: the row, or everything. */
void sb_consumer_return(sb_consumer *k, bool everything);
void sb_consumer_detach(sb_consumer *k);
static inline uint32_t sb_consumer_credit(const sb_consumer *k) {
  return k->unacked < k->prefetch && !k->suspended && !k->closed ? k->prefetch - k->unacked : 0;
}

#endif
