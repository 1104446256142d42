// SPDX-License-Identifier: Apache-2.0
/* Requeued bits: lead to old cells that became AVAILABLE again.
 *
 * What: each page has a bit for each child (or cell) below which a message may have returned; `requeued` of the queue
 * says that there is a bit at all. A message that returned before the cursors of all handles is found in a few steps,
 * at any depth.
 *
 * Invariants:
 *  I18 a process that makes an old cell AVAILABLE sets the bits from the leaf to the root first. A searcher clears a
 *      bit only when its cell is not owned, and looks at the cell (or child) again afterwards. The owner of a cell
 *      clears its bit right after it took the cell: until the owner itself sets the bit again, the cell is not
 *      AVAILABLE.
 *  I41 a searcher that cleared a bit in vain hid what lies below it meanwhile. It sets the bit again, with all bits
 *      above, up to `requeued`, since others may have cleared these; then it searches once more.
 *
 * Ordering pairs:
 *  P5 a bit is set (seq_cst) before, and looked at after, the flip; a searcher clears, then looks at the cell.
 *
 * A connection that makes many cells of one leaf AVAILABLE, or takes them, keeps the way to the leaf in its lane.
 * A leaf that exists pins every page above it; only the root may get a parent. The owner of a cell knows that its leaf
 * exists, and checks for a new root when it looks at the bits again; a searcher checks the leaf's generation after all
 * bits. Reading a bit as set (seq_cst) is as good as setting it again.
 *
 * A cell that was moved to a queue is AVAILABLE with its bits set, and a cursor that comes to it usually takes it. Its
 * new owner clears the leaf's bit then: otherwise each search passes the cell until it is settled.
 *
 * Death: bits set, not flipped -> still owned -> the reaper releases it. Cleared, not looked again -> the cell is among
 *  the holdings, and its reaper marks it; an inner bit -> the next look of the housekeeper (sb_hints_resurface).
 *  Taken, bit cleared or not -> owned by the dead -> its reaper marks the cell before it flips it.
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
/* Mark and look as above, by the way of the lane, for a cell that the caller owns, or owned when it marked the cell. */
void sb_requeued_mark_owned(sb_broker *b, sb_lane *lane, const sb_leaf_ref *ref, uint64_t position);
bool sb_requeued_stays_marked(sb_broker *b, const sb_lane *lane, uint64_t position);
/* Finds the lowest position >= from with a bit, and its leaf. */
bool sb_requeued_next(sb_broker *b, const sb_ring *r, uint64_t from, sb_leaf_ref *ref, uint64_t *position);
/* The same. Follows the way of the lane if it leads there, and updates it. */
bool sb_returned_next_near(sb_broker *b, sb_lane *lane, uint64_t from, sb_leaf_ref *ref, uint64_t *position);

#endif
