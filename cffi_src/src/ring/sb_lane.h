// SPDX-License-Identifier: Apache-2.0
/* Lane: what a handle of a queue remembers about a ring of messages.
 *
 * What: the process-local view of the ring, and where the handle last appended, took and released. A queue has one lane,
 * or one for each priority of messages (sb_lanes.h). The functions that search, take and append get the lane, and
 * sb_queue_lane finds the lane of a position.
 *
 * Layout: nothing shared.
 *
 * Invariants: I15 of sb_ring.h for `tail_cursor`, I18 of sb_requeued.h for `cursor`.
 *
 * Ordering pairs: none here.
 *
 * Death: a lane is process-local, so a killed process leaves none.
 *
 * Concurrency: under the connection's lock. A process that drains a chunk increments `asked` in the gate of each
 *  connection; a call that sees the new value makes the lanes forget their pages (sb_grace.h).
 */
#ifndef SB_LANE_H
#define SB_LANE_H

#include "sb_ring.h"

/* A *way*: the pages from the root down to a leaf, by height (sb_requeued.h). */
typedef struct {
  uint64_t root;
  sb_leaf_ref leaf; /* SB_NO_LEAF: the way is not known */
  sb_page_shm *pages[SB_MAX_HEIGHT + 1];
} sb_requeued_way;

typedef struct {
  uint64_t tail_cursor; /* all cells before this position are filled */
  uint64_t cursor;      /* each AVAILABLE cell before this position has `requeued` bits */
  sb_ring ring;
  sb_leaf_ref tail_leaf, head_leaf;
  unsigned number;     /* of the lane; 0 also: the handle remembers no lane here */
  sb_requeued_way way; /* leads to the leaf of the last message that was released, or found by its `requeued` bits */
} sb_lane;

/* Forgets the pages that the lane remembers: a chunk in which they lie may be drained (sb_drained.h). */
static inline void sb_lane_forget_pages(sb_lane *lane) {
  lane->tail_leaf = lane->head_leaf = SB_NO_LEAF;
  lane->way = (sb_requeued_way){.leaf = SB_NO_LEAF};
}

#endif
