// SPDX-License-Identifier: Apache-2.0
/* Changes: the storekeeper's walk along the changed bits of a ring.
 *
 * What: finds the cells of a stored queue whose messages ended or returned since the last walk (sb_changed.h).
 *
 * Layout: process-local.
 *
 * Invariants: I120 of sb_changed.h.
 *
 * Ordering pairs: P41 of sb_changed.h. A page that was retired during the look counts as ended only after the walk read
 *  its link again, or its generation.
 *
 * Death: the storekeeper was killed after it cleared bits -> changes to which no bit leads -> the next storekeeper looks
 *  at everything (I120).
 *
 * Concurrency: only the storekeeper walks; any connection changes cells and sets bits meanwhile.
 */
#ifndef SB_CHANGES_H
#define SB_CHANGES_H

#include "sb_changed.h"
#include "sb_ring.h"

/* What the storekeeper finds: `span` positions from `first` on. If `leaf.leaf` is NULL, all messages there have ended.
 * Else the cells of the leaf that `cells` names have changed; the words and side records are those that were read after
 * the bits were cleared, while the leaf was not retired. */
typedef struct {
  uint64_t first, span, cells;
  sb_leaf_ref leaf;
  uint64_t words[SB_PAGE_CELLS], sides[SB_PAGE_CELLS];
} sb_changes_part;
/* True: the visitor has used the part. False: it has no room for the part, whose bits are then set again. */
typedef bool sb_changes_visitor(void *with, const sb_changes_part *part);
/* Visits all changed parts of a ring, by ascending position. `all`: everything in the ring counts as changed. False: the
 * visitor stopped the walk, and wants to see the parts that are left later; with `all` it begins again. */
bool sb_changes_visit(sb_broker *b, const sb_ring *r, bool all, sb_changes_visitor *visit, void *with);

#endif
