// SPDX-License-Identifier: Apache-2.0
/* Closing: how a queue ends.
 *
 * What: a process that deletes a queue appends a CLOSING cell, which states the conditions of the deletion. Any process
 * that meets this cell decides it, so no process waits for the one that appended it. The cell becomes CLOSED, and the
 * queue is closed; or it becomes TOMBSTONE, and the queue stays open.
 *
 * One cell cannot end several rings at the same moment. So the deletion of a queue with priorities is asked for, and
 * decided, in the word `closing` of the queue. A put appends its message, then looks at this word.
 *
 * Layout: the cell's flags SB_CLOSING_IF_UNUSED, SB_CLOSING_IF_EMPTY and SB_CLOSING_IF_SETTLED; the queue's `state`.
 * `closing`: NOT -> ASKED (with the conditions, and the next number) -> NOT | CLOSED.
 *
 * Invariants:
 *  I25 a queue closes by one cell at its tail, which becomes CLOSED if the conditions of the deletion hold. With
 *      SB_CLOSING_IF_UNUSED no consumer may be registered; with SB_CLOSING_IF_EMPTY no cell before it may be AVAILABLE,
 *      SCHEDULED or STAGED (sb_queue.h); with SB_CLOSING_IF_SETTLED no cell before it may have a message, so a message
 *      that a connection holds counts, too: the broker ends a queue by itself only if no message can return to it. A
 *      cell without a message never gets one again, so what was seen of a cell stays true. No cell is appended after a
 *      CLOSING cell that is not decided, or after a CLOSED cell.
 *  I79 a queue with priorities closes when `closing` becomes CLOSED. A process that asks for a deletion, then looks at
 *      the messages, sees each message whose put has returned: that put looked at `closing` after its append, and found
 *      that no deletion was asked for. A put that finds ASKED decides the deletion; one that finds CLOSED fails. The
 *      number keeps a process that was stopped from deciding a later deletion by what it saw for an earlier one.
 *
 * Ordering pairs: a process that makes an older cell AVAILABLE (release, commit) reads the queue's state afterwards
 *  (seq_cst). A process that closes the queue stores the state first, then removes the messages. At least one of the
 *  two removes the message. A put needs no such look: it appends before the CLOSED cell, so the closing process meets
 *  its message.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the CLOSING cell was appended -> a CLOSING cell that is not decided -> the next process that meets the cell, or the
 *   reaper, decides it.
 *  the cell became CLOSED -> the queue's `state` is still OPEN -> the next process that calls sb_closing_resolve for
 *   the cell, or the reaper, makes the queue CLOSED.
 *  `closing` became ASKED -> a deletion that is not decided -> the next process that puts or deletes, or the reaper,
 *   decides it.
 *  `closing` became CLOSED -> the queue's `state` is still OPEN -> the next such process makes the queue CLOSED.
 *
 * Concurrency: any number of processes decide at the same time; sb_disposal_close (sb_disposal.h) appends.
 */
#ifndef SB_CLOSING_H
#define SB_CLOSING_H

#include "sb_lanes.h"

/* Decides the CLOSING cell at `position`. If the cell is CLOSED then, also makes the queue CLOSED. Leaves a cell in any
 * other state as it is. True: the cell is decided, by this or by another process, or it was not CLOSING. False: its
 * page cannot be found. */
bool sb_closing_resolve(sb_broker *b, sb_connection *c, sb_queue_shm *shm, const sb_ring *r, uint64_t position);
/* True if a message before `position` makes a deletion with the conditions `flags` fail (I25). */
bool sb_closing_finds_message(sb_broker *b, const sb_ring *r, uint64_t position, uint64_t flags);

/* The same for a queue with priorities, in slot `queue` (I79). sb_closing_ask asks for a deletion, after it has decided
 * any earlier one. False: the queue is closed. sb_closing_ends decides the deletion that was asked for, if any, and
 * returns true if the queue is closed. */
bool sb_closing_ask(sb_broker *b, uint32_t queue, uint64_t flags);
bool sb_closing_ends(sb_broker *b, uint32_t queue);
/* True if a message in any lane makes a deletion with the conditions `flags` fail. */
bool sb_closing_has_message(sb_broker *b, uint32_t queue, uint64_t flags);

#endif
