// SPDX-License-Identifier: Apache-2.0
/* Consumers: who is told of work, and who pulls it (seed 002: setNotifyWorkDesired, notifyWork, deliverSingleMessage).
 *
 * What: a consumer is one target over one or more queues, with one node in each. A queue tells one interested node of
 * new work; the connection of that node pulls under its credit until the queue is empty or the credit is gone.
 * Pulled messages wait in a process-local row until the application takes them. Whatever thread of the connection holds
 * its lock may pull: the IO thread when notified, or the application's thread that runs dry.
 *
 * Invariants:
 *  I30 a node that is INTERESTED or NOTIFIED has credit; one without is NOT_INTERESTED.
 *  I31 whoever leaves NOTIFIED without having emptied the queue notifies another (the baton), after flipping its own state.
 *  I32 a node of lower priority is not notified, and does not pull, while one of higher priority is interested or notified,
 *      except as a rescue.
 *
 * Ordering pairs:
 *  P3 publisher: append (seq_cst), then load `interested`. Consumer: CAS to INTERESTED (seq_cst), then look at the queue.
 *     At least one of them sees the other.
 *  P9 notifier: node flag, target bit, connection bit, ring, each on its own. IO thread: clears the connection's bits, then
 *     the target's, then the node's flag, then looks.
 *
 * Death (after -> state, repaired):
 *  append, before notify -> message ready, nobody told -> the reaper notifies every queue the dead had open.
 *  NOTIFIED by a dead notifier, not rung -> flags or the bounded sleep -> the sleeper reads node words when it times out.
 *  consumer dead while NOTIFIED -> REMOVED by the reaper, which passes the baton.
 *  consumer stopped while NOTIFIED -> the housekeeper notifies others after a tick (rescue).
 *
 * Concurrency: notify by anybody; the rest under the connection's lock.
 */
#ifndef SB_CONSUMER_H
#define SB_CONSUMER_H

#include "sb_upkeep.h"
#include "sb_nodes.h"

typedef struct {
  sb_queue *q;
  uint64_t token; /* holding of the node */
  uint32_t node;
} sb_subscription;

/* A message in the hands of a consumer: in the row, or with the application. */
#define SB_ACK_WAITS UINT32_MAX
typedef struct {
  uint64_t token; /* 0 = the place is free */
  uint32_t subscription;
  uint32_t next_free; /* SB_ACK_WAITS: acknowledged, to be settled with the batch */
} sb_delivery;

struct sb_consumer {
  sb_connection *c;
  sb_subscription *subscriptions;
  sb_delivery *places; /* `prefetch` of them */
  uint32_t *row;       /* places pulled, not taken by the application yet */
  uint32_t *acks;      /* places whose acknowledgement waits for its batch */
  uint64_t row_first, row_end;
  uint32_t free_place; /* plus one; 0 = none */
  uint32_t subscription_count, rotation;
  uint32_t target, prefetch, unacked;
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
  struct sb_consumer *next_ready;
};

/* ---- the queue's side ---- */
bool sb_consumer_higher_wants(sb_broker *b, const sb_queue_shm *q, int32_t priority);
/* Tells one interested node, the highest priority first. `rescue`: whatever is notified already. */
bool sb_consumer_notify_one(sb_connection *c, uint32_t queue, bool rescue);
void sb_consumer_notify_browsers(sb_connection *c, uint32_t queue);
/* After a message became ready: wakes somebody if more is ready than is notified. */
void sb_consumer_work_arrived(sb_queue *q);
/* After many became ready at once: wakes as many as there is something for. */
void sb_consumer_backlog_arrived(sb_queue *q);
/* After places were freed: wakes a producer that waits for room, or for memory. */
void sb_consumer_room_made(sb_connection *c, sb_queue_shm *q, uint32_t slot);
/* The same for a producer that waits for room in the queue only. */
void sb_consumer_room_in(sb_connection *c, sb_queue_shm *q, uint32_t slot);
/* Wakes everybody who waits at a queue (it was closed). */
void sb_consumer_wake_all(sb_connection *c, uint32_t queue);
void notify_work(sb_broker *b, uint32_t node);

/* ---- the consumer's side ---- */
void set_notify_work_desired(sb_consumer *k, sb_subscription *s, bool desired);
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
