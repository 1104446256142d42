// SPDX-License-Identifier: Apache-2.0
/* Channels: consumers that come and go, in one order, under limits of their own, the channel's and the connection's.
 *
 * What: a channel is a target (sb_target.h) whose consumers, its *members*, each have a node at one queue. What is pulled
 * for any of them waits in the channel's row, whose order is that of the delivery tags; given messages stay unacked without
 * bound (sb_deliveries.h). Among the members that a connection has at a queue messages are dealt in turn (sb_deal.h).
 * Whatever thread of the connection holds its lock pulls, as for a native consumer.
 *
 * Layout: a member is
 *   standing by -> willing            its turn as the single active consumer has come (sb_claim.h)
 *   willing <-> starved               its own prefetch is used up; comes back when half of it is free, or its row is empty
 *   willing <-> unwilling             the channel or its connection is full; the same for their limits
 *   any -> ended                      cancelled, its queue deleted, its channel closed; unacked messages keep it
 * A channel that is armed and gets something is *ready*: the IO thread hands it over (SB_READY), each once per arming.
 *
 * Invariants:
 *  I50 a member is willing exactly while its own prefetch, the channel's limit, the connection's limit and the row's length
 *      all allow one more message; then alone its node is INTERESTED or NOTIFIED (or NON_ACQUIRING), so I30 holds for it.
 *      Who takes the last place of a limit makes all that it stops unwilling, who each pass the baton (I31).
 *  I51 a limit that comes back makes them willing when half of it is free; at once if a row that it stops is empty.
 *  I52 of a channel at most one of `armed` and `ready` is set. What comes while it is armed makes it ready.
 *
 * Ordering pairs: P3 and P9 of sb_notify.h: a member that becomes willing is INTERESTED first, and then looks (it pulls).
 *  P6: `ready` of the connection is stored (seq_cst) before its IO thread is rung; that thread arms its wake word, then
 *  looks at `ready` as it does at `work`. Everything else about a hand-over is done under the connection's lock: the row is
 *  looked at and the channel armed in one step, so what is pushed later finds it armed. Hence no hand-over is lost.
 *
 * Death: nodes and what is held go with the connection; rows, tags, limits and hand-overs are process-local.
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_CHANNEL_H
#define SB_CHANNEL_H

#include "sb_deal.h"
#include "sb_deliveries.h"
#include "sb_target.h"

#define SB_ROW_MAX 1000u

/* A call that waits inside sb_channel_get_wait. */
typedef struct sb_channel_wait {
  struct sb_channel_wait *next, *previous;
  const uint32_t *node; /* whose wake word it sleeps on; 0 = none yet */
} sb_channel_wait;

struct sb_channel {
  sb_target target;
  uint64_t user;
  sb_member **members; /* by number */
  uint32_t room, member_count, next_number;
  uint32_t rotation;
  sb_deliveries deliveries;
  uint32_t limit, unacked; /* unacked: what its consumers hold, in the row or with the application */
  uint64_t delivered;      /* to the application */
  sb_member *cancelled_first, *cancelled_last; /* by the broker, to be reported */
  sb_member *woken;                            /* has credit again, and is not willing yet; */
  bool several_woken;                          /* and others, too */
  bool blocked;                                /* by its limit, or the length of its row */
  bool armed, ready;
  struct sb_channel *next_ready, *previous_ready;
  sb_channel_wait *waits;
  sb_half closed; /* also read without the lock, by calls that wait */
};
_Static_assert(sizeof(struct sb_channel) <= 320, "a connection may have 65,535 of them");

/* ---- members ---- */
/* A member that has its node: from now on messages come. */
void sb_channel_start(sb_member *m);
/* What it pulled and nobody was given goes back. It is freed now, or with the last message it holds. */
void sb_channel_end_member(sb_member *m);

/* ---- pulling ---- */
/* One turn: at most one message for each node that was told. True: there may be more. */
bool sb_channel_turn(sb_channel *ch);
/* Pulls for all its members, told or not; SB_OK, or why memory is missing. */
sb_status sb_channel_pull(sb_channel *ch);
/* Believes no flag: is there a node with something to do? */
bool sb_channel_wants_work(sb_channel *ch);
uint64_t sb_channel_overlooked(const sb_channel *ch, const sb_queue **q); /* see sb_target.h */

/* ---- deliveries ---- */
/* The first of the row is given to the application; its tag. One for an auto-ack member is not held any more: the caller
 * settles it. */
uint64_t sb_channel_give(sb_channel *ch);
/* The application never saw it: it is the next one again. Not for what was got, or whose member is ended. */
void sb_channel_take_back(sb_channel *ch, sb_held *h);
/* A delivery is over; its credit comes back with the next sb_channel_resume. */
void sb_channel_drop(sb_channel *ch, sb_held *h);
/* Uses what credit came back. */
void sb_channel_resume(sb_channel *ch);
/* After a limit was changed. */
void sb_channel_limits_changed(sb_connection *c, sb_channel *ch);
/* Ends its members; what was given returns marked, what was not returns as if nothing had happened. */
void sb_channel_close_all(sb_channel *ch);
/* The number of a member that the broker cancelled; false: there is none to report. */
bool sb_channel_report(sb_channel *ch, uint32_t *number);

/* ---- hand-over ---- */
bool sb_channel_has_something(const sb_channel *ch);
void sb_channel_unready(sb_channel *ch);

#endif
