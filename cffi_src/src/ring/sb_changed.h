// SPDX-License-Identifier: Apache-2.0
/* Changed bits: lead the storekeeper to cells whose messages ended or returned.
 *
 * What: the storekeeper (sb_turns.h) writes the messages of a stored queue into the store once, in the order of their
 * positions. Later changes come anywhere in the queue. A leaf has a bit for each cell that changed since the storekeeper
 * last looked, and an inner page has a bit for each child below which there is such a cell. `changed` of the queue says
 * that some page may have a bit. So the storekeeper finds the changes in a time that their number determines, whatever
 * the depth of the queue. Rings of queues that are not stored have no such bits: their `changed` is NULL.
 *
 * Layout: `changed` of sb_page_shm, sb_queue_shm and sb_lane_shm.
 *
 * Invariants:
 *  I119 a connection that makes a cell TOMBSTONE then sets the bits that lead to the cell, from the leaf to the root,
 *      and only after that marks the cell finished (I17 of sb_ring.h). So the pages with these bits still exist. If a leaf
 *      is retired, the bit of its parent stays: the link, which is DONE, says that all cells of the leaf ended. A
 *      connection that changes a side record sets the bits after that, while it still owns the cell.
 *  I120 the storekeeper clears a bit before it reads what the bit leads to, from the root to the cells. So a change that
 *      it did not read has its bits. A storekeeper that has just begun, or whose last transaction failed, looks at
 *      everything, since bits may be cleared whose changes are in no transaction.
 *
 * Ordering pairs:
 *  P41 a connection changes the cell, then sets the bits, from below; the storekeeper clears the bits, from above, then
 *     reads the cell. All are seq_cst, but for the store of the cell, which is a release. So the lowest bit is set by an
 *     operation that reads and writes, even if it is set already: else the storekeeper could clear the bit, and read the
 *     cell, before the store became visible.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the cell became TOMBSTONE, before or while the bits are set -> a cell that is not marked finished -> the reaper of its
 *   holder repeats the end of sb_ring_finish, with the bits (sb_ring_redo).
 *  the side record was changed, before the bits are set -> a cell that the dead connection owns -> the reaper changes the
 *   record, sets the bits, and releases the cell.
 *  the storekeeper cleared bits -> changes to which no bit leads -> the next storekeeper looks at everything (I120).
 *
 * Concurrency: any connection sets bits; only the storekeeper clears them.
 */
#ifndef SB_CHANGED_H
#define SB_CHANGED_H

#include "sb_page.h"

/* Sets the bits that lead to cells of one leaf. `cells`: the bits in the leaf; the leaf covers `position`. */
void sb_changed_mark(sb_broker *b, const sb_ring *r, uint64_t position, uint64_t cells);
static inline void sb_changed_mark_cell(sb_broker *b, const sb_ring *r, uint64_t position) {
  sb_changed_mark(b, r, position, UINT64_C(1) << (position % SB_PAGE_CELLS));
}

#endif
