// SPDX-License-Identifier: Apache-2.0
/* Returned bits: the way to old cells that became AVAILABLE again.
 *
 * What: each page has a bit per child (or cell) below which something may have come back; `returned` of the queue says
 * that there is a bit at all. What came back before everybody's cursor is found in a few steps, at any depth.
 *
 * Invariants:
 *  I18 whoever makes an old cell AVAILABLE sets the bits from the leaf to the root first; a bit is cleared only when its
 *      cell is not owned, and the cell (or child) is looked at again after clearing.
 *  I41 who cleared a bit in vain hid what lies below it meanwhile: he gives it back with all those above it, up to
 *      `returned`, since others may have cleared these; and looks once more himself.
 *
 * Ordering pairs:
 *  P5 a bit is set (seq_cst) before and looked at after the flip; a searcher clears, then looks at the cell.
 *
 * Death: bits set, not flipped -> still owned -> the reaper releases it. Cleared, not looked again -> the cell is among
 *  the holdings, and its reaper marks it; an inner bit -> the next look of the housekeeper (sb_upkeep_resurface).
 *
 * Concurrency: anybody, at any time; nobody waits.
 */
#ifndef SB_RETURNED_H
#define SB_RETURNED_H

#include "sb_ring.h"

void sb_returned_mark(sb_broker *b, const sb_ring *r, uint64_t position);
void sb_returned_clear(sb_broker *b, const sb_leaf_ref *ref, uint64_t position);
bool sb_returned_is_marked(sb_broker *b, const sb_ring *r, uint64_t position);
/* The lowest position >= from with a bit. */
bool sb_returned_next(sb_broker *b, const sb_ring *r, uint64_t from, uint64_t *position);

#endif
