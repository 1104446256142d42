// SPDX-License-Identifier: Apache-2.0
/* Move page: moves 64 messages from one queue to another by one CAS.
 *
 * What: the connection takes 64 messages that lie one behind the other. It fills a new leaf with 64 AVAILABLE cells that
 * name the same slots, then links the leaf at the tail of the target queue. The link is the deciding step: before it,
 * the messages are in the source queue, afterwards in the target. Each target cell has the reference that the source
 * cell had, so the headers of the slots do not change.
 *
 * Layout: the *row* is the 64 source cells, REMOVING(me). The leaf is ALLOC(me) until it is linked. The intent
 * MOVE_PAGE names the leaf (`slot`, `gen`), the first position of the row (`position`), the first position of the leaf
 * (`target_position`), and the bytes of all bodies.
 *
 * When: neither queue tracks (limits) or has priorities, the target does not KEEP, its tail is at the beginning of a leaf that does not
 * exist, no message of the row expires or is large for the target (sb_spacing.h), and none has its reference in a block.
 * Otherwise the caller moves one message (sb_move.h).
 *
 * Invariants:
 *  I75 a leaf of the intent MOVE_PAGE was linked if its slot is not ALLOC(owner of the intent) with the generation of
 *      the intent any more, or if the target's tree leads to it, or if its first cell is a TOMBSTONE. Before the link no
 *      other process can change the leaf. After the link it is freed only when all its cells are TOMBSTONE.
 *  I76 after the link, the owner of a row never reads or changes the slots that its cells name: the target's consumers
 *      may have freed them.
 *
 * Ordering pairs: P3 of sb_notify.h: the CAS that links the leaf (seq_cst) is the append; a consumer reads that link
 *  (seq_cst, sb_page_descend). P4 of sb_ring.h: the cells are filled before that CAS. P11 of sb_ledger.h.
 *
 * Death (killed after -> what is left -> what the reaper of the connection does, in resolve_move_page of sb_intent.c):
 *  the leaf was allocated -> ALLOC(dead), listed in the holdings -> the reaper frees the leaf.
 *  some of the row were taken, or the intent was written -> REMOVING(dead) cells, and a leaf that is not linked -> the
 *   reaper ends the intent, frees the leaf, and releases the cells.
 *  the leaf was linked -> the messages are in both queues, in the source as REMOVING(dead) -> the reaper counts them,
 *   and makes the source cells TOMBSTONE.
 *  some of the source cells became TOMBSTONE -> the same.
 *
 * Concurrency: any process, with its connection's lock.
 */
#ifndef SB_MOVE_PAGE_H
#define SB_MOVE_PAGE_H

#include "sb_queue.h"

/* Moves the SB_PAGE_CELLS oldest ready messages of `q`, all below position `end`, to `target`. `limit`: the messages
 * without the last one must have fewer bytes together. *bytes: the total length of the bodies. SB_EMPTY: the messages
 * cannot be moved in this way now (see above). */
sb_status sb_move_page(sb_queue *q, sb_queue *target, uint64_t end, uint64_t limit, uint64_t *bytes);

#endif
