// SPDX-License-Identifier: Apache-2.0
/* Disposal: deletes, empties and frees a queue.
 *
 * What: a process that deletes a queue closes it (sb_closing.h), then removes the messages that are left. The queue
 * object is freed when no connection has the queue open.
 *
 * Layout: the queue's `state`: OPEN -> CLOSED -> FREEING -> NONE. From FREEING it goes back to CLOSED if a connection
 * opened the queue meanwhile.
 *
 * Invariants: I25 of sb_closing.h, I20 of sb_ledger.h, I23 and I42 of sb_queue.h.
 *
 * Ordering pairs: none here; sb_closing.h has those of the end of a queue.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the CLOSING cell was appended -> a CLOSING cell that is not decided -> the next process that meets the cell, or the
 *   reaper, decides it (sb_closing.h).
 *  the queue became CLOSED -> some messages are left in it -> the next sweep of the directory, or the reaper, removes
 *   them.
 *  the queue became FREEING -> some or all of its rings, consumer levels and ledgers are left -> the next sweep of the
 *   directory frees them, and the queue object.
 *  a consumer level, a ledger or the queue object was unlinked, before it was freed -> the holdings list it -> the
 *   reaper frees it; the next sweep of the directory frees the rest of the queue.
 *
 * Concurrency: any process may call these functions, under its connection's lock. sb_disposal_free needs the topology
 *  lock, too.
 */
#ifndef SB_DISPOSAL_H
#define SB_DISPOSAL_H

#include "sb_limits.h"

/* Closes the queue, and removes its ready and scheduled messages; *removed: their number. SB_IN_USE: `if_unused` is
 * set, and the queue has a consumer. SB_NOT_EMPTY: `if_empty` is set, and the queue has a ready, scheduled or STAGED
 * message; delivered messages do not count (I25). In both cases the queue stays open. If both conditions are set, the
 * call looks afterwards which of them failed. If both hold by then, the call tries again; after 8 tries it returns
 * SB_IN_USE. SB_DELETED: the queue was closed already. */
sb_status sb_disposal_close(sb_queue *q, bool if_unused, bool if_empty, uint64_t *removed);
/* The same for the conditions `flags`: any of SB_CLOSING_IF_UNUSED, SB_CLOSING_IF_EMPTY and SB_CLOSING_IF_SETTLED. With
 * the last one, SB_NOT_EMPTY also says that a connection holds a message of the queue. */
sb_status sb_disposal_close_if(sb_queue *q, uint64_t flags, uint64_t *removed);
/* Decides a deletion that a process has asked for, and that is not decided yet, if there is one (sb_closing.h). */
void sb_disposal_decide(sb_queue *q);
/* Removes the ready and the scheduled messages of a closed queue. Returns how many it removed. It stops if there is no
 * memory for a holding; the next sweep of the directory removes the rest. */
uint64_t sb_disposal_empty(sb_queue *q);
/* Frees a CLOSED queue, or one that a killed process left FREEING. Does nothing if the queue has a message, or if a
 * connection has it open. True if the queue is freed. */
bool sb_disposal_free(sb_connection *c, uint32_t slot);

#endif
