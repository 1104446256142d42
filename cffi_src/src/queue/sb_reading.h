// SPDX-License-Identifier: Apache-2.0
/* Reading: a message that a consumer of a non-destructive queue has, while the message stays in the queue.
 *
 * What: such a consumer (sb_following.h) owns no cell. So whoever removes the message does not wait for it, and what the
 * consumer has must outlast that. A short body is copied, with its header, into memory of the process. For a longer one
 * the connection takes the message for a moment, adds a view of its body (sb_view.h), and gives the message back: so
 * several consumers read it in place. A reading has a holding, whose token is used where the token of a held message is.
 * Settling or returning it ends the reading, and changes nothing in the queue: sb_settle.c, sb_release.c and sb_park.c find
 * no message under the token, and call `end_reading` of the connection.
 *
 * The *notes* of a consumer are the positions before its cursor that it will look at again. A message that the
 * application returned, to get it once more, is noted; so are messages that were not ready when the cursor came.
 *
 * Layout: the holding READING: `what` names the queue, `where` is the address of the reading in the process of the
 * connection. No other process uses it.
 *
 * Invariants:
 *  I105 a reading whose message has a long body has one view of it, which the application may have borrowed any number of
 *      times (sb_reading_lend). The view is dropped when the reading has ended, and nothing is borrowed any more.
 *
 * Ordering pairs: P1 of sb_slab.h, P2 of sb_ring.h. The copy is used after a second look (I43 of sb_peek.h).
 *
 * Death (killed after -> what is left -> what the reaper of the connection does):
 *  the message was taken, its view added or not -> REMOVING(dead), and perhaps a view -> the reaper makes the cell AVAILABLE,
 *   notifies consumers, and drops the view.
 *  the holding READING was written -> nothing else, or a view -> the reaper drops the view. The queue still has the message.
 *
 * Concurrency: under the lock of the consumer's connection, beside all other operations.
 */
#ifndef SB_READING_H
#define SB_READING_H

#include "sb_settle.h"

/* A position to look at again. `key`: the notes with the lowest key come first. */
typedef struct {
  uint64_t key, position;
  uint32_t deliveries; /* how often the consumer got the message */
} sb_note;
typedef struct {
  sb_note *heap;
  uint32_t count, room;
} sb_note_heap;
/* Adds a note; the call of sb_note_reserve before it made room. */
void sb_note_add(sb_note_heap *h, sb_note note);
/* Makes room for `more` notes. False: the process has no memory. */
bool sb_note_reserve(sb_note_heap *h, uint32_t more);
/* Takes the first note out of a heap that is not empty. */
sb_note sb_note_first(sb_note_heap *h);

/* The notes of one consumer. They live as long as the consumer, or one of its readings. */
typedef struct {
  uint32_t users;
  bool over;            /* the consumer has ended */
  uint32_t out;         /* how many readings, or notes in hand, may yet come into `passed`, which has room for them */
  sb_note_heap passed;  /* by position: may be ready at any time */
  sb_note_heap waiting; /* by the end of their delay */
} sb_notes;
void sb_notes_leave(sb_notes *notes);

/* Reads the message that `word` says is AVAILABLE at `position`; *t then describes it, and the holding `token` is that of
 * the reading. `deliveries`: how often the consumer got it before. SB_SETTLED: the cell changed meanwhile. SB_EMPTY: the
 * message has expired, or `wants` does not want it; or its header is damaged: then it is removed. *released: the cell
 * was owned for a moment, so the caller notifies others. SB_LIMIT: the body has as many views as it can have. Any other
 * status: there is no memory. */
typedef struct {
  bool (*wants)(const sb_queue *q, void *who, uint32_t slot, const sb_message_shm *m);
  void *who;
} sb_reading_filter;
sb_status sb_reading_take(sb_queue *q, sb_notes *notes, const sb_reading_filter *filter, const sb_leaf_ref *leaf,
                          const sb_note *note, uint64_t word, uint64_t token, sb_taken *t, bool *released);
/* Describes the reading of holding `token`. False: this is not the holding of a reading; `token` may be any number. */
bool sb_reading_find(sb_connection *c, uint64_t token, sb_taken *t);
/* Ends a reading. `again`: the consumer gets the message once more, if it is there then. SB_SETTLED: as above. */
sb_status sb_reading_end(sb_connection *c, uint64_t token, bool again);
/* Lends the view of a reading: the body stays until sb_reading_unlend, also when the reading has ended. SB_SETTLED: as
 * above. SB_CORRUPT: the body is short, so it is never viewed. */
sb_status sb_reading_lend(sb_connection *c, uint64_t token);
/* The slot of a body that is lent; 0: `token` is not the holding of a reading. */
uint32_t sb_reading_slot(sb_connection *c, uint64_t token);
/* Takes back what was lent once. False: `token` is not the holding of a reading. */
bool sb_reading_unlend(sb_connection *c, uint64_t token);

#endif
