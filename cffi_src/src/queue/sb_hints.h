// SPDX-License-Identifier: Apache-2.0
/* Hints: sets the `requeued` bits of ready messages that no search finds (*hidden* cells, see below), and corrects
 * hints that are wrong.
 *
 * What: cells and ledgers are authoritative; bits and hints only follow them. These functions compare the cells with
 * the `requeued` bits and the ready bits of lanes (sb_lanes.h). In a queue that tracks (sb_queue_tracks) they also compare cells and ledgers with the hints:
 * `taken`, `admitted`, `came`, and the byte hints `bytes_in` and `bytes_out`.
 *
 * Layout: nothing here; sb_layout.h declares the hints and the bits.
 *
 * Invariants: I23 of sb_queue.h, I18 of sb_requeued.h, I72 of sb_repairs.h.
 *  I74 `hinting` of a ledger counts the changes of hints that its owner has begun and not ended (its *depth*);
 *      `admitting` has the bytes that the owner has reserved (sb_ledger.h). In a queue that does not evict, `admitted`
 *      is at most base + `taken` + the number of AVAILABLE cells + the sum of all depths of `hinting`, except for the
 *      room that dead processes had reserved. Each put, take, release, move and commit keeps that: it raises the depth
 *      first, changes one word or cell at a time by one message, and lowers the depth last. So a process may lower
 *      `admitted` to that sum even while others are in the middle of their changes, for example stopped. The queue may
 *      take fewer messages until these changes end. In the same way, `bytes_in` is at most `bytes_out` + the bytes of
 *      the AVAILABLE messages + the bytes in `admitting` of all ledgers, but only while every change that is half made
 *      is a reservation of room. Two processes may correct hints at the same moment: the second one may then act on
 *      values that it read before the first one changed them. In this case the queue may take more messages than its
 *      limit, until the hints are corrected again.
 *
 * Ordering pairs: P21 of sb_grace.h, with `tracking` in the place of a chunk: sb_hints_start_tracking stores UNSURE
 *  (seq_cst), then reads `inside` of each other connection that has the queue open. A call enters before it reads
 *  `tracking`. So a call that is not seen inside sees that the queue tracks.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  one hint was corrected, or one cell was marked -> other hints may still be wrong, other cells not marked -> the
 *   housekeeper, or its successor, begins the work again in a later tick. The next reaper corrects the hints, too.
 *
 * Concurrency: any process, beside traffic.
 */
#ifndef SB_HINTS_H
#define SB_HINTS_H

#include "sb_queue.h"
#include "sb_repairs.h"

/* Finds the *hidden* cells, and sets their `requeued` bits. A hidden cell is AVAILABLE, lies below the head, and has no
 * such bits, so no search finds it. The call counts at most one repair, however many cells it finds. `deaths_before`:
 * an earlier result of sb_repairs_deaths; deaths since then explain the repair. Returns the number of hidden cells. */
uint64_t sb_hints_resurface(sb_broker *b, const sb_queue_shm *q, const sb_ring *r, uint64_t deaths_before);
/* True if there is a hidden cell, or the ready bit of a lane with a ready message is clear. */
bool sb_hints_hide_ready(sb_broker *b, const sb_ring *r);
/* True if a message before `end` is ready. Reads the cells, since the hints may be wrong while a process is stopped. If
 * the queue's `requeued` flag is 0, the search begins at the head, so it finds no hidden cell. */
bool sb_hints_has_ready(sb_broker *b, const sb_ring *r, uint64_t end);
/* The same for all rings of messages of the queue in slot `queue`. `end`: SB_ANY_END, or a position: then only its lane
 * is searched. */
#define SB_ANY_END UINT64_MAX
uint64_t sb_hints_resurface_all(sb_broker *b, uint32_t queue, uint64_t deaths_before);
bool sb_hints_any_hides_ready(sb_broker *b, uint32_t queue);
bool sb_hints_any_has_ready(sb_broker *b, uint32_t queue, uint64_t end);
/* The end of the first lane that has a ready message; if there is none, of lane 0. */
uint64_t sb_hints_end_of_ready(sb_broker *b, uint32_t queue);
/* Calls sb_hints_resurface_all for a waiting get, or a consumer, that found no message although the queue seems to have
 * one. Returns the number of cells that it found; 0 without a search if the last search by this handle was less than
 * 250 ms ago. */
uint64_t sb_hints_rescan(sb_queue *q);
/* Corrects `came`, `taken`, `admitted` and `bytes_in`, if two readings of hints, ledgers and cells by this call are equal.
 * SB_HINTS_RIGHT: no hint was wrong, or the queue does not track. SB_HINTS_SET_RIGHT: a hint was wrong, and was
 * corrected. SB_HINTS_PARTLY: a hint was corrected, then another one changed during the correction, so it may be wrong
 * still. SB_HINTS_BUSY: the readings differ, or a connection is changing hints, or the first wrong hint changed during
 * the correction. While a connection is changing hints, the call only gives back room that dead connections reserved
 * (I74). In a queue that evicts, it then changes no hint. `but`: the ledger of a dead connection whose cells the caller
 * has released, or NULL; the changes that this ledger marks count as ended. */
typedef enum { SB_HINTS_RIGHT, SB_HINTS_SET_RIGHT, SB_HINTS_PARTLY, SB_HINTS_BUSY } sb_hints;
sb_hints sb_hints_reconcile(sb_broker *b, sb_queue_shm *q, const sb_ledger_shm *but);
/* Gives the hints of a queue that is about to get limits their first right values. Does nothing if `tracking` is
 * SB_TRACKING_SURE. If traffic prevents it, or a connection stays in a call that may not know that the queue tracks,
 * leaves SB_TRACKING_UNSURE: the housekeeper then corrects the hints. */
void sb_hints_start_tracking(sb_queue *q);

#endif
