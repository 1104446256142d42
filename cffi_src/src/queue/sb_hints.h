// SPDX-License-Identifier: Apache-2.0
/* Hints: finds ready messages without `requeued` bits, and corrects hints that are wrong.
 *
 * What: cells and ledgers are authoritative. These functions compare them with the `requeued` bits. In a queue that
 * tracks (maintains `taken`, `admitted` and the byte hints) they compare them also with these hints.
 *
 * Layout: nothing here; sb_queue.h has the hints, sb_requeued.h the bits.
 *
 * Invariants: I23 of sb_queue.h, I18 of sb_requeued.h, I72 of sb_repairs.h.
 *
 * Ordering pairs: none here.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  one hint was corrected, or one cell was marked -> other hints may still be wrong -> the next housekeeper begins the
 *   work again.
 *
 * Concurrency: any process, beside traffic.
 */
#ifndef SB_HINTS_H
#define SB_HINTS_H

#include "sb_queue.h"
#include "sb_repairs.h"

/* Finds the *hidden* cells: they are AVAILABLE, lie below the head, and have no `requeued` bits. Sets the bits, and
 * counts that as one repair. `deaths_before`: see sb_repairs_deaths. Returns the number of cells. */
uint64_t sb_hints_resurface(sb_broker *b, const sb_queue_shm *q, const sb_ring *r, uint64_t deaths_before);
/* True if there is a hidden cell. */
bool sb_hints_hide_ready(sb_broker *b, const sb_ring *r);
/* True if a message before `end` is ready. Reads the cells, since the hints may be wrong while a process is stopped. */
bool sb_hints_has_ready(sb_broker *b, const sb_ring *r, uint64_t end);
/* Calls sb_hints_resurface for a consumer that found no message although the hints show one. Returns the number of
 * cells that it found; 0 without a search if the last search was less than 250 ms ago. */
uint64_t sb_hints_rescan(sb_queue *q);
/* Corrects `taken`, `admitted` and the byte hints, if two readings of hints, ledgers and cells agree. SB_HINTS_BUSY:
 * the readings differ, or a connection is changing hints. SB_HINTS_SET_RIGHT: a hint was wrong, and was corrected. */
typedef enum { SB_HINTS_RIGHT, SB_HINTS_SET_RIGHT, SB_HINTS_BUSY } sb_hints;
sb_hints sb_hints_reconcile(sb_broker *b, sb_queue_shm *q);
/* Begins to maintain the hints, after a queue got limits for the first time. */
void sb_hints_start_tracking(sb_broker *b, sb_queue_shm *q);

#endif
