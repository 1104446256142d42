// SPDX-License-Identifier: Apache-2.0
/* Requeued bits: lead to old cells that became AVAILABLE again.
 *
 * What: each page has a bit for each child (or cell) below which a message may have returned; `requeued` of the queue
 * says that there is a bit at all. A message that returned to a position before the cursors of all handles is found in
 * a few steps, at any depth of the tree.
 *
 * Invariants:
 *  I18 a process that makes an old cell AVAILABLE sets the bits from the leaf to the root first. A searcher clears a
 *      bit only when its cell is not owned, and looks at the cell (or child) again afterwards. The owner of a cell
 *      clears its bit right after it took the cell: until the owner itself sets the bit again, the cell is not
 *      AVAILABLE.
 *  I41 a searcher that cleared a bit, and finds another bit below it afterwards, has hidden the messages there for a
 *      moment. It sets the bit again, with all bits above, up to `requeued`, since other searchers may have cleared
 *      these; then it searches once more.
 *
 * Ordering pairs:
 *  P5 a process sets the bits (seq_cst) before the *flip*, which makes the cell AVAILABLE, and looks at the bits again
 *     after it. A searcher clears a bit, then looks at the cell.
 *
 * A connection that makes many cells of one leaf AVAILABLE, or takes them, keeps the way to the leaf in its lane.
 * A leaf that exists pins every page above it; only the root may get a parent. The owner of a cell knows that its leaf
 * exists, and checks for a new root when it looks at the bits again; a searcher checks the leaf's generation after all
 * bits. Reading a bit as set (seq_cst) is as good as setting it again.
 *
 * A message that was moved to a queue is AVAILABLE with its bits set, but usually a search finds it by a cursor, not by
 * the bits. The connection that takes it clears the leaf's bit: otherwise each search would visit the cell until the
 * message is settled.
 *
 * Death (after -> state, repaired):
 *  bits set, cell not flipped -> cell owned by the dead connection -> the reaper releases the cell.
 *  leaf's bit cleared, cell not looked at again -> cell listed in the holdings -> the reaper sets its bits again.
 *  inner bit cleared, child not looked at again -> messages hidden -> the housekeeper (sb_hints_resurface).
 *  cell taken, bit cleared or not -> cell owned by the dead connection -> the reaper sets its bits, then flips it.
 *
 * Concurrency: any process, at any time, without waiting.
 */
#ifndef SB_REQUEUED_H
#define SB_REQUEUED_H

#include "sb_lane.h"

void sb_requeued_mark(sb_broker *b, const sb_ring *r, uint64_t position);
void sb_requeued_clear(sb_broker *b, const sb_leaf_ref *ref, uint64_t position);
/* Clears the leaf's bit of a cell that the caller just took. The next search clears the bits above it. */
void sb_requeued_took(const sb_leaf_ref *ref, uint64_t position);
bool sb_requeued_is_marked(sb_broker *b, const sb_ring *r, uint64_t position);
/* As sb_requeued_mark and sb_requeued_is_marked, but they follow the way of the lane. The caller owns the cell, or
 * owned it when it marked the cell. */
void sb_requeued_mark_owned(sb_broker *b, sb_lane *lane, const sb_leaf_ref *ref, uint64_t position);
bool sb_requeued_stays_marked(sb_broker *b, const sb_lane *lane, uint64_t position);
/* Finds the lowest position >= from with a bit, and its leaf. */
bool sb_requeued_next(sb_broker *b, const sb_ring *r, uint64_t from, sb_leaf_ref *ref, uint64_t *position);
/* The same, with the way of the lane. If the lowest bit is in the leaf of the way, follows the way; otherwise searches
 * from the root, and stores the way to the leaf that it finds. */
bool sb_returned_next_near(sb_broker *b, sb_lane *lane, uint64_t from, sb_leaf_ref *ref, uint64_t *position);

#endif
