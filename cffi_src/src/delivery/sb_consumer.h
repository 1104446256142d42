// SPDX-License-Identifier: Apache-2.0
/* Consumers: consumers of the application that belong to no channel. All queues of a consumer share its one credit
 * (Qpid Broker-J: deliverSingleMessage).
 *
 * What: a consumer is one target (sb_target.h) over one or more queues, with one node in each. Its credit is a number of
 * messages, and perhaps of bytes (sb_window.h). A queue notifies one
 * interested node of new work. The connection of that node then pulls messages for the consumer, until the queue is
 * empty or the consumer's credit is used up. Pulled messages wait in a process-local row until the application takes
 * them. Any thread that holds the connection's lock may pull: the IO thread when it is notified, or a thread of the
 * application that finds the row empty, or that returns credit by settling messages.
 *
 * Invariants: I30 of sb_subscription.h, I31 and I32 of sb_notify.h.
 *
 * Ordering pairs: P3 and P9 of sb_notify.h.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  any step -> the nodes of the consumer, and its messages in the holdings -> the reaper of the connection removes the
 *   nodes, and puts the messages back into their queues.
 * Rows, slots and credit are process-local: nothing of them is left.
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_CONSUMER_H
#define SB_CONSUMER_H

#include "sb_subscription.h"
#include "sb_target.h"

#define SB_ACK_WAITS UINT32_MAX
/* A slot for a message that a consumer holds: in the row, or with the application. */
typedef struct {
  uint64_t token; /* 0 = the slot is free */
  uint64_t bytes; /* of its body */
  uint32_t subscription;
  /* Of a free slot: the number of the next free slot plus one, 0 = none. Of a used slot: SB_ACK_WAITS if the message is
   * acknowledged, and not settled yet; else 0. */
  uint32_t next_free;
} sb_delivery;

struct sb_consumer {
  sb_target target;
  sb_connection *c;
  sb_subscription *subscriptions;
  sb_wish *wish;          /* of all subscriptions; NULL: none */
  sb_delivery *ack_slots; /* `prefetch` of them */
  uint32_t *row;          /* slots of messages that were pulled, and not taken by the application yet */
  uint32_t *acks;         /* slots of acknowledged messages that the next sb_consumer_flush settles */
  uint64_t row_first, row_end;
  uint32_t free_ack_slot; /* number of the first free slot plus one; 0 = none */
  uint32_t subscription_count, rotation;
  uint32_t prefetch, unacked;
  sb_window window; /* of all subscriptions */
  uint32_t ack_count, ack_batch;
  uint64_t ack_interval_ns, acks_due_ns;
  uint64_t delivered; /* messages given to the application */
  int32_t priority;
  bool starved;   /* out of credit: its nodes are NOT_INTERESTED until enough credit returns */
  bool suspended; /* by the application */
  bool closed;
  sb_status lacks; /* SB_GROW, SB_NO_MEMORY: the last turn found no memory to hold a message; SB_OK: it lacked none */
  sb_half local;   /* futex word of the threads that wait for a message in the row */
  /* eventfd, -1 = none. Written once after `event_armed` became 1: when a message comes into the empty row, when the
   * last queue is deleted, or when the broker stops. */
  int event_fd;
  sb_half event_armed;
};

/* Pulls one message into the row (Qpid's deliverSingleMessage). SB_OK, or the reason why no message was pulled:
 * SB_EMPTY, SB_NO_CREDIT, SB_DELETED ... */
sb_status sb_consumer_deliver_one(sb_consumer *k, sb_subscription *s);
/* One turn: pulls at most one message from each queue, in rotation. False: there is nothing more to do now. */
bool sb_consumer_turn(sb_consumer *k);
/* Pulls until the credit is used up, or no queue gives the consumer a message. */
void sb_consumer_pull(sb_consumer *k);
/* Frees the ack slot of a message that was settled or released. This returns one credit. If enough credit is free then,
 * the call pulls for a starved consumer. */
void sb_consumer_free_ack_slot(sb_consumer *k, uint32_t ack_slot);
void sb_consumer_resume(sb_consumer *k);
/* Undoes the giving of a message that the application never saw: the message becomes the first of the row again. */
void sb_consumer_take_back(sb_consumer *k, uint32_t ack_slot);
/* Acknowledges the message in a slot. If that completes a batch, or the consumer is closed, settles all acknowledged
 * messages now; else the message is settled later, by the next sb_consumer_flush. */
sb_status sb_consumer_ack(sb_consumer *k, uint32_t ack_slot);
/* Settles the messages that were acknowledged so far. This returns credit, so the consumer may pull again. */
void sb_consumer_flush(sb_consumer *k);
/* True if a message does not fit into the consumer's window (sb_window.h). */
bool sb_consumer_is_held_back(const sb_consumer *k);
bool sb_consumer_wants_work(sb_consumer *k);
/* Finds a node of the consumer that should be flagged, but is not: `overlooked` of sb_target_kind (sb_target.h). */
uint64_t sb_consumer_overlooked(const sb_consumer *k, const sb_queue **q);
/* Wakes the threads of the application that wait for the row, and writes the event if it is armed. */
void sb_consumer_signal(sb_consumer *k);
/* True if all queues of the consumer are deleted. */
bool sb_consumer_orphaned(const sb_consumer *k);
/* Settles the messages that were acknowledged, then puts others back into their queues: those in the row, or, if
 * `everything`, all that the consumer still holds. */
void sb_consumer_return(sb_consumer *k, bool everything);
void sb_consumer_detach(sb_consumer *k);
static inline uint32_t sb_consumer_credit(const sb_consumer *k) {
  return k->unacked < k->prefetch && !k->suspended && !k->closed ? k->prefetch - k->unacked : 0;
}

#endif
