// SPDX-License-Identifier: Apache-2.0
/* No local: takes only messages that other connections published.
 *
 * What: a consumer with no_local has its own cursor. The cursor passes messages of the consumer's connection without
 * hiding them from other consumers: neither the handle's cursor nor the queue's head moves. If a message returned to a
 * position before the cursor, the consumer finds it through its `requeued` bits, like any consumer.
 *
 * `publisher` of sb_message_shm has the id of the publishing connection. Ids are reused: messages of a connection that
 * was closed count as own messages of a later connection with the same id, whose consumer then does not get them.
 *
 * Layout: nothing shared.
 *
 * Invariants: each ready message before the consumer's cursor was published by the consumer's connection, or has its
 *  `requeued` bits set (I18 of sb_requeued.h, I53 of sb_take.h).
 *
 * Ordering pairs: as in sb_take.h: P1 of sb_slab.h, P2 of sb_ring.h, P3 of sb_notify.h, P5 of sb_requeued.h, P8 of
 *  sb_connection.h.
 *
 * Death: as in sb_take.h.
 *
 * Concurrency: under the connection's lock, beside all other operations.
 */
#ifndef SB_NO_LOCAL_H
#define SB_NO_LOCAL_H

#include "sb_take.h"

/* Takes the oldest ready message that has not expired and that connection `q->c` did not publish; removes the expired
 * ones before it. *cursor: the consumer's cursor, which the call
 * advances. `token`: a free holding, which then lists the message. SB_EMPTY: there is no such message, or the queue is
 * paused. SB_DELETED: the queue is closed. */
sb_status sb_no_local_take(sb_queue *q, uint64_t *cursor, uint64_t token, sb_taken *t);

#endif
