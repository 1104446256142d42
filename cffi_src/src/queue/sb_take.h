// SPDX-License-Identifier: Apache-2.0
/* Take: gives a ready message to a connection.
 *
 * What: one CAS writes the connection into the first AVAILABLE cell, or into the cell at a given position: ACQUIRED
 * for a consumer, REMOVING to remove the message (eviction, purge, expiry, move) or to make a due one ready. The search
 * in a lane begins with messages that returned (sb_requeued.h). It then continues from the handle's cursor or from the
 * shared `head`, whichever is later. A queue with priorities has several lanes (sb_lanes.h): a take searches the lane of
 * the highest priority first, an eviction that of the lowest.
 *
 * Layout: AVAILABLE -> ACQUIRED(me) | REMOVING(me);  SCHEDULED -> REMOVING(me).
 *
 * Invariants:
 *  I22 only the owner of an ACQUIRED or REMOVING cell changes the cell; after the death of the owner, only its reapers.
 *  I23, I42 of sb_queue.h.
 *  I24 an eviction is paid in advance. (One by bytes adds an estimate of the victim's size to `bytes_out`; the rest is
 *      the same.) The evicting process raises `taken` by a CAS, and only while more messages are ready than the bound
 *      (sb_limits.h). Just before it takes the *victim* (the oldest ready message), it counts the ready messages again.
 *      It spares the victim if too few are ready: then a consumer has raised `taken` for itself, and has taken an older
 *      message, or is about to take the oldest one. A consumer that raises `taken` after this count takes a newer
 *      message, so the victim is not spared for it. The evicting process counts before the take, and not after it: if
 *      it took the victim and then put it back, consumers would pass the victim meanwhile, and get it after newer
 *      messages. It puts a victim back in one case only: an older message returned meanwhile.
 *  I53 a process that passes a STAGED cell (sb_transaction.h) sets its `requeued` bits first, so that the cell is found
 *      after its commit. A process that found a message to take looks again at the cells that it passed before, so that
 *      the messages of a producer stay in order.
 *
 * Ordering pairs: P1 of sb_slab.h, P2 of sb_ring.h, P3 of sb_notify.h, P5 of sb_requeued.h, P8 of sb_connection.h: a
 *  process writes the holding before the CAS (P8), reads the cell before its message (P1, P2), and looks at a cell a
 *  second time after it cleared the cell's bit (P5).
 *
 * Death (killed after -> what is left -> what the reaper of the connection does):
 *  the holding was written -> a cell that the connection does not own -> the reaper takes nothing back; if the cell is
 *   AVAILABLE, it sets the cell's `requeued` bits.
 *  the leaf's bit of the cell was cleared -> an AVAILABLE cell without that bit, listed in the holdings -> the reaper
 *   sets the bits again.
 *  the cell became ACQUIRED -> ACQUIRED(dead) -> the reaper makes the cell AVAILABLE, and marks the message
 *   redelivered.
 *  the cell became REMOVING -> REMOVING(dead) -> the reaper makes the cell AVAILABLE, without that mark and without
 *   counting a delivery.
 *
 * Concurrency: any number of processes; the threads of one connection under its lock.
 */
#ifndef SB_TAKE_H
#define SB_TAKE_H

#include "sb_dispose.h"

/* Takes the first AVAILABLE message: its cell becomes `state`, ACQUIRED or REMOVING. `token`: a free holding, which then
 * lists the message. If `before` is not SB_ANY_POSITION, takes only a message before that position, and in its lane;
 * after SB_EMPTY the caller must then enforce the queue's limits (I42). */
#define SB_ANY_POSITION UINT64_MAX
sb_status sb_take_oldest(sb_queue *q, unsigned state, uint64_t before, uint64_t token, sb_taken *t);
/* The excess that an eviction removes. The victim is taken only if, by the hints, at least `least_ready` messages and
 * `least_bytes` bytes are ready. */
typedef struct {
  bool paid; /* `taken` already counts the victim */
  int64_t least_ready, least_bytes;
} sb_excess;
/* Takes the oldest AVAILABLE message to evict it. SB_EMPTY: there is none. SB_DONE: the excess is gone (I24). */
sb_status sb_take_victim(sb_queue *q, const sb_excess *excess, uint64_t token, sb_taken *t);
/* Takes up to SB_PAGE_CELLS messages that are ready and lie one behind the other, from `first` on, to remove them: row
 * i is listed by the holding tokens[i]. `first`: not before the handle's cursor and the shared head. Returns the number
 * of messages that it took; it stops at the first cell that is not AVAILABLE, or that another process takes. The queue
 * must not track (sb_queue_tracks). */
unsigned sb_take_row(sb_queue *q, uint64_t first, const uint64_t *tokens, sb_taken *row);
/* Takes the message at `position`, to remove it or to make a SCHEDULED one ready: its cell changes from state `from` to
 * REMOVING. SB_EMPTY: the cell is not in state `from`, or another process was faster. */
sb_status sb_take_at(sb_queue *q, uint64_t position, unsigned from, uint64_t token, sb_taken *t);
/* Takes for a consumer the oldest ready message that has not expired, and removes the expired ones before it. SB_EMPTY:
 * no message is ready, or the queue is paused. SB_DELETED: the queue is closed. SB_STAYS: the queue is non-destructive, so
 * only consumers that follow it get its messages (sb_following.h). */
sb_status sb_take_for_consumer(sb_queue *q, uint64_t token, sb_taken *t);
/* Takes the ready message at `position` for a consumer. `leaf`: where the caller saw it; if it does not cover the
 * position, the call finds the leaf. `requeued`: the message returned to the queue. SB_EMPTY: there
 * is no ready message at `position`; the caller must then search on, and enforce the queue's limits if it finds no
 * message (I42). */
sb_status sb_take_for_consumer_at(sb_queue *q, const sb_leaf_ref *leaf, uint64_t position, bool requeued,
                                  uint64_t token, sb_taken *t);
/* Adds a flag to the side record of a message that was taken. `leaf`: covers its position. */
static inline void sb_take_mark(const sb_leaf_ref *leaf, uint64_t flag, sb_taken *t) {
  t->side |= flag;
  SB_STORE(&sb_leaf_cell(leaf, t->position)->side, t->side, SB_RELEASE);
}
/* Counts the delivery of a message that was taken for a consumer. */
static inline void sb_take_delivered(sb_queue *q, const sb_taken *t) {
  if ((t->side & SB_SIDE_REDELIVERED) != 0) sb_ledger_count(q->ledger, SB_COUNT_REDELIVERED, 1);
  sb_ledger_count(q->ledger, SB_COUNT_DELIVERED, 1);
}
/* Sets the `requeued` bits of a STAGED cell that the caller's search passes (I53). */
void sb_take_pass_staged(sb_queue *q, uint64_t position);
/* True if a search may have passed a STAGED cell. Before the caller takes a later message, it must then look again at
 * the cells with `requeued` bits (I53). */
bool sb_take_passed_some(const sb_queue *q, const sb_lane *lane);

#endif
