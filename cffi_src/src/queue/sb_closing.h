// SPDX-License-Identifier: Apache-2.0
/* Closing: how a queue ends.
 *
 * What: who deletes a queue appends a cell CLOSING, which says what the deletion depends on. Whoever meets it decides about
 * it, so nobody waits for the one who appended it: CLOSED, and then the queue is, or TOMBSTONE, and the queue goes on.
 *
 * Layout: the cell's flags SB_CLOSING_IF_UNUSED and SB_CLOSING_IF_EMPTY; the queue's `state`.
 *
 * Invariants:
 *  I25 a queue closes by one cell at its tail: CLOSING -> CLOSED if its conditions hold for all cells before it. Nothing is
 *      appended behind one that is not decided, nor behind CLOSED.
 *
 * Ordering pairs: whoever makes a cell AVAILABLE looks at the queue's state afterwards (seq_cst); whoever closes sets the
 *  state first and removes the messages afterwards: one of the two disposes of it.
 *
 * Death: CLOSING appended -> resolved by whoever meets it. CLOSED, `state` still OPEN -> the same.
 *
 * Concurrency: resolved by anybody, by several at once; sb_upkeep_close appends.
 */
#ifndef SB_CLOSING_H
#define SB_CLOSING_H

#include "sb_ring.h"

/* Decides about a CLOSING cell; true also if another process did, and the cell is gone since. False: no page can be found there. */
bool sb_closing_resolve(sb_broker *b, sb_connection *c, sb_queue_shm *shm, const sb_ring *r, uint64_t position);

#endif
