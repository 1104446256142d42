// SPDX-License-Identifier: Apache-2.0
/* Returned bits: the way to old cells that became AVAILABLE again.
 *
 * What: each page has a bit per child (or cell) below which something may have come back; `returned` of the queue says
 * that there is a bit at all. What came back before everybody's cursor is found in a few steps, at any depth.
 *
 * Invariants:
 *  I18 whoever makes an old cell AVAILABLE sets the bits from the leaf to the root first; a bit is cleared only when
 *      its cell is not owned, and the cell (or child) is looked at again after clearing; or by the owner of the cell,
 *      right after it took it: until the owner itself sets the bit again, the cell is not AVAILABLE.
 *  I41 who cleared a bit in vain hid what lies below it meanwhile: he gives it back with all those above it, up to
 *      `returned`, since others may have cleared these; and looks once more himself.
 *
 * Ordering pairs:
 *  P5 a bit is set (seq_cst) before and looked at after the flip; a searcher clears, then looks at the cell.
 *
 * Who makes many cells of one leaf AVAILABLE, or takes them, one after the other, keeps the way to it
 * (sb_returned_way). A leaf that is there pins every page above it; only the root may get a parent. Whoever owns a cell
 * of the leaf knows that it is there, and looks for a new root when he looks back; a searcher looks at the leaf's
 * generation after all bits. A bit that is read as set (seq_cst) is as good as one that is set again.
 *
 * A cell that was moved here is AVAILABLE with its bits set, and mostly taken by a cursor that comes to it. Its new
 * owner clears the leaf's bit then: else each search passes the cell until it is settled.
 *
 * Death: bits set, not flipped -> still owned -> the reaper releases it. Cleared, not looked again -> the cell is among
 *  the holdings, and its reaper marks it; an inner bit -> the next look of the housekeeper (sb_upkeep_resurface).
 *  Taken, bit cleared or not -> owned by the dead -> its reaper marks the cell before it flips it.
 *
 * Concurrency: anybody, at any time; nobody waits.
 */
#ifndef SB_RETURNED_H
#define SB_RETURNED_H

#include "sb_ring.h"

/* The pages above a leaf, from it up to the root. */
typedef struct {
  uint64_t root;
  sb_leaf_ref leaf; /* none: the way is not known */
  sb_page_shm *pages[SB_MAX_HEIGHT + 1];
} sb_returned_way;

void sb_returned_mark(sb_broker *b, const sb_ring *r, uint64_t position);
void sb_returned_clear(sb_broker *b, const sb_leaf_ref *ref, uint64_t position);
/* The caller has just taken that cell: no searcher need look at it. Those above it are cleared by the next search. */
void sb_returned_took(const sb_leaf_ref *ref, uint64_t position);
bool sb_returned_is_marked(sb_broker *b, const sb_ring *r, uint64_t position);
/* The same for a cell that the caller owns, or owned when it marked it: with the way that it keeps. */
void sb_returned_mark_owned(sb_broker *b, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position,
                            sb_returned_way *way);
bool sb_returned_stays_marked(sb_broker *b, const sb_ring *r, uint64_t position, const sb_returned_way *way);
/* The lowest position >= from with a bit, and its leaf. A way that leads to it is followed, and kept; NULL: none. */
bool sb_returned_next(sb_broker *b, const sb_ring *r, uint64_t from, sb_returned_way *way, sb_leaf_ref *ref,
                      uint64_t *position);

#endif
