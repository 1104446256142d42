// SPDX-License-Identifier: Apache-2.0
/* Requeued bits: lead to old cells that became AVAILABLE again.
 *
 * What: a leaf has a bit for each cell to which a message may have returned, and an inner page has a bit for each child
 * below which there is such a cell. `requeued` of the queue says that some page may have a bit. A message that returned
 * to a position before the cursors of all handles is found in a few steps, at any depth of the tree.
 *
 * Invariants:
 *  I18 before a process makes an old cell (one before cursors) AVAILABLE, it sets the bits that lead to the cell, from
 *      the leaf to the root. A searcher clears the bit of a cell only after it saw that no connection owns the cell and
 *      that the cell is not SCHEDULED. Since another connection may take and return the cell meanwhile, the searcher
 *      looks at the cell again afterwards (P5). A searcher that clears the bit of a child looks at the child again
 *      afterwards. The connection that took a cell clears the cell's bit right afterwards, and need not look again: the
 *      cell is not AVAILABLE until that connection itself sets the bit again.
 *  I41 a searcher that cleared the bit of a child, and then finds that a bit of the child is set, has hidden the
 *      messages below the child for a moment. The searcher sets the cleared bit again, with all bits above it, up to
 *      `requeued`, since other searchers may have cleared these; then it searches once more.
 *
 * Ordering pairs:
 *  P5 a process sets the bits (seq_cst) before the *flip*, which makes the cell AVAILABLE, and looks at the bits again
 *     after it. A searcher clears a bit, then looks at the cell. In a sorted queue (sb_sorted.h) the process then raises
 *     `returned`, after the flip and after each time that it set bits again. A reader loads `returned`, then looks at the
 *     bits.
 *
 * A connection that makes many cells of one leaf AVAILABLE, or takes them, keeps the *way* to the leaf (the pages from
 * the root down to it) in the lane of its handle (sb_lane.h). A leaf that exists pins every page above it; only the
 * root may get a parent. The owner of a cell knows that its leaf exists, and checks for a new root when it looks at the
 * bits again. A searcher that follows a way reads the bits of its pages, then checks the leaf's generation. Reading a
 * bit as set (seq_cst) is as good as setting it again.
 *
 * A message that was moved to a queue is AVAILABLE with its bits set, but usually a search finds it by a cursor, not by
 * the bits. The connection that takes it clears the cell's bit: otherwise each search would visit the cell until the
 * message is settled.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the bits were set, before the flip -> a cell that the dead connection owns -> the reaper releases the cell.
 *  the bit of a cell was cleared, before the second look -> an AVAILABLE cell to which no bit leads; the holdings list
 *   the cell -> the reaper sets the bits again.
 *  the bit of a child was cleared, before the second look -> messages below the child that searches do not find -> the
 *   housekeeper, or a search that finds nothing although messages are ready, sets the bits again (sb_hints_resurface).
 *  a cell was taken, its bit cleared or not -> a cell that the dead connection owns -> the reaper sets the bits, then
 *   makes the cell AVAILABLE.
 *
 * Concurrency: any process, at any time, without waiting. A function that takes a lane needs the lock of the lane's
 *  connection.
 */
#ifndef SB_REQUEUED_H
#define SB_REQUEUED_H

#include "sb_lane.h"
#include "sb_lanes.h"

/* Called after the flip, in a sorted queue: tells the readers that a message returned (sb_sorted.h). */
static inline void sb_requeued_returned(const sb_ring *r) {
  if (r->returned != NULL) (void)SB_ADD(r->returned, 1, SB_SEQ_CST); /* P5 */
}
void sb_requeued_mark(sb_broker *b, const sb_ring *r, uint64_t position);
/* Marks all cells of the leaf of a position. Bits of cells that are not AVAILABLE do no harm. */
void sb_requeued_mark_leaf(sb_broker *b, const sb_ring *r, uint64_t position);
void sb_requeued_clear(sb_broker *b, const sb_leaf_ref *ref, uint64_t position);
/* Clears the leaf's bit of a cell that the caller just took. If no bit is left in the leaf, the next
 * search clears the bits that lead to the leaf. */
void sb_requeued_took(const sb_leaf_ref *ref, uint64_t position);
bool sb_requeued_is_marked(sb_broker *b, const sb_ring *r, uint64_t position);
/* As sb_requeued_mark and sb_requeued_is_marked, but faster: they use the pages of the lane's way. The caller of
 * sb_requeued_mark_owned owns the cell. The caller of sb_requeued_stays_marked has just marked the cell by
 * sb_requeued_mark_owned. */
void sb_requeued_mark_owned(sb_broker *b, sb_lane *lane, const sb_leaf_ref *ref, uint64_t position);
bool sb_requeued_stays_marked(sb_broker *b, const sb_lane *lane, uint64_t position);
/* Finds the lowest position >= `from` with a bit, and its leaf. The leaf is SB_NO_LEAF if the position has left the memory,
 * and a search may have passed its message (sb_paged.h). False: there is none. */
bool sb_requeued_next(sb_broker *b, const sb_ring *r, uint64_t from, sb_leaf_ref *ref, uint64_t *position);
/* As sb_requeued_next, but first looks in the leaf to which the lane's way leads. If the lowest bit of the ring is in
 * that leaf, and `from` is not after the leaf's first position, the function needs no search. Otherwise it searches
 * from the root, and makes the way lead to the leaf that it found. */
bool sb_requeued_next_near(sb_broker *b, sb_lane *lane, uint64_t from, sb_leaf_ref *ref, uint64_t *position);

#endif
