// SPDX-License-Identifier: Apache-2.0
/* Watch: a descriptor that is written when a queue has something, for whoever waits in a loop of its own (asyncio).
 *
 * What: a waiting call without a thread: its node waits in the list of the queue like that of a thread inside get or put,
 * and when it is told, the connection's IO thread writes an eventfd. The application then tries, and arms again if it found
 * nothing. It takes nothing itself, so nothing is lost with it.
 *
 * Layout: a target (sb_target.h) with one node: INTERESTED while armed, NOTIFIED once told, else NOT_INTERESTED.
 *
 * Invariants:
 *  I57 who armed tries once more before it waits; who was told tries before it does anything else, or disarms, which passes
 *      the baton (I31), or for room wakes the next one.
 *
 * Ordering pairs: P3 of sb_notify.h: armed first, then tried. P9: the node's flag is cleared, then the descriptor written.
 *
 * Death: the node goes with its connection, whose reaper passes the baton.
 *
 * Concurrency: under the connection's lock.
 */
#ifndef SB_WATCH_H
#define SB_WATCH_H

#include "sb_target.h"
#include "sb_waiter.h"

struct sb_watch {
  sb_target target;
  sb_queue *q;
  uint64_t token;
  uint32_t node; /* 0 = it is over */
  bool room;
  int event_fd;
};

sb_status sb_watch_begin(sb_watch *w);
/* Wants to be told; bytes: of the body that room is wanted for. */
sb_status sb_watch_want(sb_watch *w, uint64_t bytes);
void sb_watch_leave(sb_watch *w);
void sb_watch_end(sb_watch *w);
/* A turn of the IO thread. */
void sb_watch_tell(sb_watch *w);
bool sb_watch_was_told(const sb_watch *w);

#endif
