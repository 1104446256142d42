// SPDX-License-Identifier: Apache-2.0
/* Disposal: how a queue is deleted, emptied and freed.
 *
 * What: who deletes a queue closes it (sb_closing.h), and removes what is left in it. Its object is freed when nobody
 * has it open.
 *
 * Layout: the queue's `state`: OPEN -> CLOSED -> NONE.
 *
 * Invariants: I25 of sb_closing.h, I20 of sb_ledger.h.
 *
 * Ordering pairs: none of its own; those of sb_closing.h when a queue ends.
 *
 * Death: CLOSING appended: see sb_closing.h. CLOSED, messages left -> removed by the next who looks.
 *
 * Concurrency: close and free under the topology lock; dispose by anybody.
 */
#ifndef SB_DISPOSAL_H
#define SB_DISPOSAL_H

#include "sb_limits.h"

/* Closes the queue; SB_IN_USE or SB_NOT_EMPTY when a condition does not hold. *removed: ready messages that went. */
sb_status sb_upkeep_close(sb_queue *q, bool if_unused, bool if_empty, uint64_t *removed);
/* Removes what is left in a closed queue: ready and held messages. */
uint64_t sb_upkeep_dispose(sb_queue *q);
/* Frees a CLOSED queue that nobody has open and that holds nothing; true when it is gone. */
bool sb_upkeep_free(sb_connection *c, uint32_t slot);

#endif
