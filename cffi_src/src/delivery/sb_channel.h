// SPDX-License-Identifier: Apache-2.0
/* Channels: consumers that share one sequence of delivery tags, and the limits of their channel and connection.
 *
 * What: a channel is a target (sb_target.h) whose consumers, its *members*, each have a node at one queue. A message
 * that is pulled for a member waits in the channel's row, whose order is the order of the delivery tags. Pulling stops
 * when the row has SB_ROW_MAX messages. The application may hold any number of unsettled messages (sb_deliveries.h),
 * unless the prefetch of a member, or the limit of the channel or of the connection, stops the pulling. Messages of a
 * queue are dealt in turn among the members that a connection has there (sb_round_robin.h). Any thread that holds the
 * connection's lock may pull, as for a consumer without a channel (sb_consumer.h).
 *
 * Layout: a member is
 *   standing by -> willing            it became the single active consumer (sb_exclusive.h)
 *   willing <-> starved               its prefetch is used up, until enough of it is free (I51)
 *   willing <-> unwilling             a limit of its channel or connection is reached, until enough is free (I51)
 *   any -> ended                      cancelled, its queue deleted, its channel closed; the struct stays while the
 *                                     member has unacked messages, or its end must still be reported
 * The application *arms* a channel to be told of its next message, or of its next *report*: that the broker cancelled a
 * member. An armed channel that gets a message or a report becomes *ready*: the IO thread hands the channel over to the
 * application (SB_READY), once for each arming.
 *
 * Invariants:
 *  I50 a member is willing only while its own prefetch, the channel's limit, the connection's limit and the length of
 *      the row all allow one more message. The node of a member is INTERESTED or NOTIFIED (if choosy:
 *      NON_ACQUIRING) only while the member is willing. So I30 of sb_subscription.h holds for the node, with its
 *      exception for missing memory. A member that uses up a limit makes all members under that limit unwilling. Each
 *      of them passes the baton (I31 of sb_notify.h), except a choosy member, which never has the baton.
 *  I51 members that a limit made unwilling become willing again when half of the limit is free. One free place is
 *      enough in two cases: the limit of a channel or of the connection stops a channel whose row is empty; or the
 *      prefetch of a member stops the member, and the row has no message of that member.
 *  I52 at most one of `armed` and `ready` of a channel is set. A message or a report that comes while the channel is
 *      armed makes the channel ready, and no longer armed. A message that could not be given (`stuck`) makes the
 *      channel ready only at the next look of the IO thread (sb_channel_wants_work). If it did so at once, the
 *      application would ask for the message again and again without a pause.
 *
 * Ordering pairs: P3 and P9 of sb_notify.h: a member that becomes willing is INTERESTED first, then pulls. P6 of
 *  sb_wait.h: `ready` of the connection is stored (seq_cst) before its IO thread is rung. The IO thread
 *  arms its wake word, then reads `work` and `ready`. The rest of a hand-over needs no ordering, since it happens under
 *  the connection's lock: the application looks at the row and arms the channel in one step, so a later push finds the
 *  channel armed. Hence no hand-over is lost.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  any step -> the nodes of the members, and the messages of the channel in the holdings -> the reaper of the
 *   connection removes the nodes, and puts the messages back into their queues.
 * Rows, tags, limits and hand-overs are process-local: nothing of them is left.
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_CHANNEL_H
#define SB_CHANNEL_H

#include "sb_round_robin.h"
#include "sb_deliveries.h"
#include "sb_target.h"

#define SB_ROW_MAX 1000u

/* A call that waits inside sb_channel_get_wait. */
typedef struct sb_channel_wait {
  struct sb_channel_wait *next, *previous;
  const uint32_t *node; /* *node: the node whose wake word the call sleeps on; 0 = none yet */
} sb_channel_wait;

struct sb_channel {
  sb_target target;
  uint64_t number;
  sb_member **members; /* by number */
  uint32_t room, member_count, next_number;
  uint32_t rotation;
  sb_deliveries deliveries;
  uint32_t limit, unacked; /* unacked: number of messages that its members hold, in the row or given */
  uint64_t delivered;      /* messages given to the application */
  sb_member *cancelled_first, *cancelled_last; /* members that the broker cancelled, not reported yet */
  sb_member *woken;                            /* a member that has credit again, but is not willing yet */
  bool several_woken;                          /* there are other such members */
  /* `limit` was reached, or the row was full, and not enough is free again yet (I51): no member is willing */
  bool blocked;
  bool armed, ready;
  bool stuck; /* the first message of the row could not be given; the next look of the IO thread hands it over again */
  struct sb_channel *next_ready, *previous_ready;
  sb_channel_wait *waits;
  sb_half closed; /* 1: the channel is closed. sb_waiter_get reads it through its argument `ended` */
};
_Static_assert(sizeof(struct sb_channel) <= 320, "a connection may have 65,535 of them");

/* ---- members ---- */
/* True if the limits of its channel and of its connection leave it credit. */
bool sb_channel_may_want(const sb_member *m);
/* Starts a member whose node exists: from now on messages are pulled for it. */
void sb_channel_start(sb_member *m);
/* Ends a member, and puts its messages that are in the row back into the queue. The member is freed now, or when its
 * last unacked message is dropped. */
void sb_channel_end_member(sb_member *m);

/* ---- pulling ---- */
/* One turn: for each member whose node was notified, or whose last pull may have left messages in its queue (`busy`),
 * pulls at most one message from the queue of that member. The message goes to the member whose turn it is at that
 * queue (sb_round_robin.h). True: the channel needs another turn. */
bool sb_channel_turn(sb_channel *ch);
/* Pulls for all members, notified or not. Returns SB_OK, or the status that tells which memory is missing: SB_GROW,
 * SB_NO_MEMORY, or SB_SYSTEM for memory of this process. */
sb_status sb_channel_pull(sb_channel *ch);
/* True if a member needs a turn; sets `busy` of each such member. Looks at the words of the nodes and at the queues;
 * ignores the nodes' flags, since a flag may be missing. On the way, makes each member willing that nothing prevents.
 * If the node of a willing member is NOT_INTERESTED, for example because another process parked it (I61 of
 * sb_stopped.h), makes the node INTERESTED (if choosy: NON_ACQUIRING). If the first message of the row was stuck,
 * hands the channel over (I52). */
bool sb_channel_wants_work(sb_channel *ch);
/* Finds the node of a member that should be flagged, but is not: `overlooked` of sb_target_kind (sb_target.h). */
uint64_t sb_channel_overlooked(const sb_channel *ch, const sb_queue **q);

/* ---- deliveries ---- */
/* Gives the first message of the row to the application, and returns its delivery tag. The row must not be empty. A
 * message of an auto-ack member is removed from the deliveries, so the caller settles it. */
uint64_t sb_channel_give(sb_channel *ch);
/* As sb_channel_give, but a message of an auto-ack member stays in the deliveries, too: it is settled by its tag. */
uint64_t sb_channel_give_unsettled(sb_channel *ch);
/* Undoes sb_channel_give_unsettled for a message that the application never saw: the message becomes the first of the
 * row again. Do not call it for a message that a get took, or whose member has ended. */
void sb_channel_take_back(sb_channel *ch, sb_unacked *h);
/* Removes a delivery; the caller settles its message, or puts it back. This frees credit, which the next
 * sb_channel_resume uses. */
void sb_channel_drop(sb_channel *ch, sb_unacked *h);
/* Makes members willing again when enough of their limits is free (I51), and pulls for them. */
void sb_channel_resume(sb_channel *ch);
/* Applies the changed limits of the channel and of the connection. If `ch` is NULL, only the limit of the connection
 * changed. */
void sb_channel_limits_changed(sb_connection *c, sb_channel *ch);
/* Closes the channel and ends its members. All its messages go back into their queues, marked as redelivered. Only the
 * messages that were given to the application count one delivery more. */
void sb_channel_close_all(sb_channel *ch);
/* Reports one member that the broker cancelled: stores the member's number in *number, and never reports the member
 * again. False: there is no member to report. */
bool sb_channel_report(sb_channel *ch, uint32_t *number);

/* ---- hand-over ---- */
/* True if the channel has a message or a report to give now. */
bool sb_channel_has_something(const sb_channel *ch);
void sb_channel_unready(sb_channel *ch);

#endif
