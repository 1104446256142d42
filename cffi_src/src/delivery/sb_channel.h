// SPDX-License-Identifier: Apache-2.0
/* Channels: consumers that share one sequence of delivery tags, and the limits of their channel and connection.
 *
 * What: a channel is a target (sb_target.h) whose consumers, its *members*, each have a node at one queue. A message
 * that is pulled for a member waits in the channel's row, whose order is the order of the delivery tags. The row is
 * bounded; the application may hold any number of unsettled messages, unless a prefetch limits it (sb_deliveries.h).
 * Messages of a queue are dealt in turn among the members that a connection has there (sb_round_robin.h). Any thread
 * that holds the connection's lock may pull, as for a native consumer (sb_consumer.h).
 *
 * Layout: a member is
 *   standing by -> willing            it became the single active consumer (sb_exclusive.h)
 *   willing <-> starved               its prefetch is used up, until enough of it is free (I51)
 *   willing <-> unwilling             a limit of its channel or connection is reached, until enough is free (I51)
 *   any -> ended                      cancelled, its queue deleted, its channel closed; the struct stays while the
 *                                     member has unacked messages
 * The application *arms* a channel to learn of its next message or report (of a member that the broker cancelled). An
 * armed channel that gets one becomes *ready*: the IO thread hands it over (SB_READY), once for each arming.
 *
 * Invariants:
 *  I50 a member is willing only while its own prefetch, the channel's limit, the connection's limit and the length of
 *      the row all allow one more message. The node of a member is INTERESTED or NOTIFIED (with no_local:
 *      NON_ACQUIRING) only while the member is willing, so I30 holds for the node. A member that uses up a limit makes
 *      all members under that limit unwilling; each of them passes the baton (I31 of sb_notify.h).
 *  I51 members that a limit made unwilling become willing again when half of the limit is free. One free place is
 *      enough in two cases: the limit of a channel or of the connection stops a channel whose row is empty; or the
 *      prefetch of a member stops the member, and the row has no message of that member.
 *  I52 at most one of `armed` and `ready` of a channel is set. A message or a report that comes while the channel is
 *      armed makes the channel ready, and no longer armed.
 *
 * Ordering pairs: P3 and P9 of sb_notify.h: a member that becomes willing is INTERESTED first, then pulls. P6: `ready`
 *  of the connection is stored (seq_cst) before its IO thread is rung; that thread arms its wake word, then reads
 *  `ready`, as it reads `work`. Everything else of a hand-over happens under the connection's lock: one step looks at
 *  the row and arms the channel, so a later push finds the channel armed. Hence no hand-over is lost.
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
  const uint32_t *node; /* node whose wake word the call sleeps on; 0 = none yet */
} sb_channel_wait;

struct sb_channel {
  sb_target target;
  uint64_t number;
  sb_member **members; /* by number */
  uint32_t room, member_count, next_number;
  uint32_t rotation;
  sb_deliveries deliveries;
  uint32_t limit, unacked; /* unacked: messages of its members, in the row or with the application */
  uint64_t delivered;      /* messages given to the application */
  sb_member *cancelled_first, *cancelled_last; /* members that the broker cancelled, not reported yet */
  sb_member *woken;                            /* a member that has credit again, and is not willing yet */
  bool several_woken;                          /* there are other such members */
  bool blocked;                                /* the limit or the row is full: no member is willing */
  bool armed, ready;
  struct sb_channel *next_ready, *previous_ready;
  sb_channel_wait *waits;
  sb_half closed; /* waiting calls read it without the lock, too */
};
_Static_assert(sizeof(struct sb_channel) <= 320, "a connection may have 65,535 of them");

/* ---- members ---- */
/* Starts a member whose node exists: from now on messages are pulled for it. */
void sb_channel_start(sb_member *m);
/* Ends a member: puts its messages of the row back into the queue. The member is freed now, or with its last unacked
 * message. */
void sb_channel_end_member(sb_member *m);

/* ---- pulling ---- */
/* One turn: pulls at most one message for each notified node. True: there may be more. */
bool sb_channel_turn(sb_channel *ch);
/* Pulls for all members, notified or not. SB_OK, or the status that tells why memory is missing. */
sb_status sb_channel_pull(sb_channel *ch);
/* True if a member has something to do. Reads node words and queues, not the flags. */
bool sb_channel_wants_work(sb_channel *ch);
uint64_t sb_channel_overlooked(const sb_channel *ch, const sb_queue **q); /* see sb_target.h */

/* ---- deliveries ---- */
/* Gives the first message of the row, which is not empty, to the application; returns its delivery tag. A message of an
 * auto-ack member leaves the deliveries: the caller settles it. */
uint64_t sb_channel_give(sb_channel *ch);
/* Undoes sb_channel_give for a message that the application never saw: makes it the first of the row again. Not for a
 * message that a get took, or whose member has ended. */
void sb_channel_take_back(sb_channel *ch, sb_unacked *h);
/* Removes a delivery. The next sb_channel_resume uses its credit. */
void sb_channel_drop(sb_channel *ch, sb_unacked *h);
/* Makes members willing again when enough of their limits is free (I51), and pulls for them. */
void sb_channel_resume(sb_channel *ch);
/* Applies changed limits: of the channel and of the connection; ch NULL: of the connection alone. */
void sb_channel_limits_changed(sb_connection *c, sb_channel *ch);
/* Closes the channel and ends its members. All its messages go back into their queues, marked as redelivered; the
 * delivery counts only for messages that were given to the application. */
void sb_channel_close_all(sb_channel *ch);
/* *number: that of a member that the broker cancelled, which counts as reported now. False: there is none to report. */
bool sb_channel_report(sb_channel *ch, uint32_t *number);

/* ---- hand-over ---- */
bool sb_channel_has_something(const sb_channel *ch);
void sb_channel_unready(sb_channel *ch);

#endif
