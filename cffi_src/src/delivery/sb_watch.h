// SPDX-License-Identifier: Apache-2.0
/* Watch: a descriptor that becomes readable when a queue has a message, or room; for event loops (asyncio).
 *
 * What: a waiting call without a thread. Its node waits in the list of the queue like the node of a thread inside get
 * or put. When the node is notified, the connection's IO thread writes an eventfd. The application then tries, and arms
 * the watch again if it found nothing. A watch takes no message, so none is lost with it.
 *
 * Layout: a target (sb_target.h) with one node: INTERESTED while armed, NOTIFIED after a notification, else
 * NOT_INTERESTED.
 *
 * Invariants:
 *  I57 an application that armed the watch tries its get or put once more before it waits. After a notification it
 *      tries again, or disarms the watch, since other nodes may get no notification while this node is NOTIFIED.
 *      Disarming passes the baton (I31 of sb_notify.h); if the watch waits for room, disarming wakes the next producer.
 *
 * Ordering pairs: P3 of sb_notify.h: the application arms the watch, then tries. P9 of sb_notify.h: the IO thread
 * clears the flag of the node, then writes the descriptor.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  any step -> the node of the watch -> the reaper of the connection removes the node, and passes the baton.
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
  uint32_t node; /* 0 = the watch ended */
  bool room;
  int event_fd;
};

sb_status sb_watch_begin(sb_watch *w);
/* Arms the watch: makes its node INTERESTED. To arm a watch for another number of bytes, the caller disarms it first:
 * an armed watch would not publish the new number. `bytes`: if the watch waits for room, the length of the body that
 * needs the room; else not used. SB_CLOSED: the watch has ended. SB_DELETED: the queue is not open. SB_GROW,
 * SB_NO_MEMORY: there is no memory to list the node, so the watch is not armed. */
sb_status sb_watch_want(sb_watch *w, uint64_t bytes);
void sb_watch_leave(sb_watch *w);
void sb_watch_end(sb_watch *w);
/* Clears the node's flag, and writes the descriptor. The IO thread calls this in each turn of the watch, and when the
 * broker is being purged; the flag may be clear then. */
void sb_watch_tell(sb_watch *w);
bool sb_watch_was_told(const sb_watch *w);

#endif
