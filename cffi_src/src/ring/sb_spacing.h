// SPDX-License-Identifier: Apache-2.0
/* Spacing: large messages of stored queues lie apart.
 *
 * What: a leaf that left the memory comes back as a whole (sb_paged.h), so its bodies must not need more than a share of
 * the memory. An append of a large message therefore looks at the messages of the leaf that it has reached. If these and
 * the new one are too large together, it fills the rest of the leaf with cells that have no message, and the message comes
 * into the next leaf. It adds such a cell by the same CAS as any append, so the decision holds for exactly the cell that
 * the message would get.
 *
 * Layout: FREE -> TOMBSTONE, in a ring of messages.
 *
 * Invariants:
 *  I133 when a large message was appended to a leaf that had messages, all their bodies together had at most a quarter
 *      of a SB_LEAF_SHARE of the memory. A leaf has 64 messages that are not large at most, which have less than as much again.
 *      Two exceptions keep their leaf in the memory, and do no other harm: a body that needs more alone, and a message that
 *      came into its leaf before large messages of the queue lay apart (sb_queue_spacing), or when the memory was larger.
 *
 * Ordering pairs: P2 of sb_ring.h.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  a cell became TOMBSTONE, before it was marked finished -> the leaf does not leave the memory; when its messages have
 *   ended, it stays -> the next sb_page_sweep retires it, as one with a CLOSING cell.
 *  the same in a queue with priorities, before `came` was raised -> `came` is one too low -> the reaper, or the
 *   housekeeper, corrects it (sb_hints_reconcile).
 *
 * Concurrency: any process appends at any time, under the lock of its connection.
 */
#ifndef SB_SPACING_H
#define SB_SPACING_H

#include "sb_page.h"

/* A body is large if it has more bytes than this: 64 of them would not fit a leaf. */
uint64_t sb_spacing_large(const sb_broker *b);
/* True if the messages of the cells before number `index` of a leaf, and one of `bytes` bytes, are too large for a leaf
 * together. */
bool sb_spacing_exceeds(sb_broker *b, const sb_leaf_shm *leaf, unsigned index, uint64_t bytes);

#endif
