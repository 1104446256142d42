// SPDX-License-Identifier: Apache-2.0
/* Following: a consumer of a non-destructive queue gets every message, and takes none.
 *
 * What: the messages of a queue with the setting non_destructive stay when a consumer acknowledges them, until they
 * expire, are replaced, or an administrator removes them. Each consumer *follows* the queue with its own cursor, from
 * the oldest message on, and gets each message once (sb_reading.h), whatever other consumers do. It changes no cell, but
 * for a moment to read a long body in place.
 *
 * The cursor meets cells that are not ready:
 *   owned   STAGED, REMOVING, ACQUIRED: the message may become ready, or end. The cursor waits here for SB_FOLLOWING_STOPS
 *           looks and SB_FOLLOWING_PATIENCE_NS, so that a consumer gets the messages in order although another one reads a
 *           long body now, and lost its processor meanwhile. Then it notes the position, and goes on: the owner may be
 *           stopped. It has this patience once between two messages that it reads, since a stopped owner may own a
 *           thousand cells of a commit.
 *   SCHEDULED  the consumer notes the position, and looks again when the delay is over, or when `early` of the queue
 *           has changed: an administrator made messages ready before their time.
 *   TOMBSTONE  nothing comes there any more.
 * Before a consumer gets a message at its cursor, it looks again at what it passed: the message of a commit that was
 * STAGED comes before one that its producer put afterwards.
 *
 * Consumer priorities do not matter here, since no consumer takes anything from another one.
 *
 * Layout: `early` of the queue.
 *
 * Invariants:
 *  I104 each message before the cursor that is ready, or may become ready, was read by the consumer, or is not wanted by
 *      it, or has expired, or is noted.
 *
 * Ordering pairs: P1 of sb_slab.h, P2 of sb_ring.h, P3 and P9 of sb_notify.h.
 *  P32 whoever makes a noted message ready changes the cell, then notifies the NON_ACQUIRING nodes (both seq_cst). The
 *     consumer's node is NON_ACQUIRING; its owner clears the node's flag (P9), then looks at the cells. `early` is raised
 *     after the cell was changed, and before the notification; the consumer loads it before it looks at the cells.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  of the consumer: any step -> that of sb_reading.h; its cursor and its notes are memory of its process.
 *  of the owner of a cell that the cursor passed -> its reaper makes the cell AVAILABLE, SCHEDULED or TOMBSTONE, then
 *   notifies the consumers, which look at it.
 *  an administrator made a message ready before its time, and did not raise `early` -> a consumer that waits for the end
 *   of the delay -> the reaper raises `early`, then notifies.
 *
 * Concurrency: under the connection's lock, beside all other operations.
 */
#ifndef SB_FOLLOWING_H
#define SB_FOLLOWING_H

#include "sb_choice.h"
#include "sb_reading.h"

#define SB_FOLLOWING_STOPS 256u
#define SB_FOLLOWING_PATIENCE_NS UINT64_C(100000000) /* a thread that wants a processor has one within this time */

typedef struct sb_following {
  sb_notes *notes;
  uint64_t cursor;
  uint64_t early;    /* of the queue, when the consumer last looked at all that waits */
  uint32_t stops;    /* how often the cursor found the cell owned that it is at */
  uint64_t since_ns; /* when it first found a cell owned since it read a message; 0: never */
  bool stuck;        /* the next message has as many views as it can have: the IO thread looks again later */
  sb_leaf_ref leaf;
} sb_following;

static inline bool sb_following_is_for(const sb_queue *q) {
  return (SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_NON_DESTRUCTIVE) != 0;
}
/* A consumer that begins at the oldest message. NULL: the process has no memory. */
sb_following *sb_following_begin(const sb_queue *q);
void sb_following_end(sb_following *f);
/* Reads the next message for the consumer; *t then describes it, and the holding `token` is that of the reading.
 * SB_EMPTY: there is none now, or the queue is paused; choice->unfinished: the caller shall look again soon. SB_DELETED: the
 * queue is closed. Any other status: as for sb_reading_take. */
sb_status sb_following_take(sb_queue *q, sb_following *f, sb_choice *choice, uint64_t token, sb_taken *t);

#endif
