// SPDX-License-Identifier: Apache-2.0
/* Foreign messages: those of a queue that another connection published (no_local).
 *
 * What: such a consumer goes through the queue with a cursor of its own, which passes its connection's messages without
 * hiding them from others: neither the handle's cursor nor the queue's head moves. Messages that returned before the cursor
 * are found by their bits, as by everybody.
 *
 * Whose a message is, is told by the id of its publisher's connection (`publisher` of sb_message_shm). Ids are used again:
 * what a connection left behind that is closed by now is taken for its successor's own, and then not delivered to it.
 *
 * Layout: nothing of its own.
 *
 * Invariants: all ready messages before the cursor are own ones, or have their `returned` bits set (I18, I53).
 *
 * Ordering pairs: P1, P2, P5 as in sb_take.c.
 *
 * Death: as for anybody who takes.
 *
 * Concurrency: under the connection's lock, beside all others that take.
 */
#ifndef SB_FOREIGN_H
#define SB_FOREIGN_H

#include "sb_take.h"

/* Takes the oldest ready message that is not of connection `q->c`; SB_EMPTY also while the queue is paused. */
sb_status sb_foreign_take(sb_queue *q, uint64_t *cursor, uint64_t token, sb_taken *t);

#endif
