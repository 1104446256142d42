// SPDX-License-Identifier: Apache-2.0
/* Judging what the dead began: did it happen, or did it not?
 *
 * What: the part of recovery that looks at messages. An intent of a ledger says what its owner was about to do; the slot
 * and the cell say whether it did. What happened is counted, what did not is undone; cells it held are released.
 *
 * Invariants: I19 of sb_ledger.h, I33 and I34 of sb_recover.h: repeating a judgement comes to the same result, also when
 *  the one who judged before was killed between any two steps.
 *
 * Ordering pairs: P11 of sb_ledger.h: the intent is read after its kind; its kind is read again before a counter is raised.
 *
 * Death: of the reaper itself: the next one starts again from the intents.
 *
 * Concurrency: one reaper at a time for each dead process; everybody else works on meanwhile.
 */
#ifndef SB_JUDGE_H
#define SB_JUDGE_H

#include "sb_upkeep.h"

/* Through the holdings of one dead connection. */
typedef struct {
  sb_connection *by;
  sb_broker *b;
  unsigned id;
  bool views_live;
} sb_walk;

/* The ledger a holding names, if the dead still owns it; else NULL. */
sb_ledger_shm *sb_judge_ledger(sb_walk *w, uint64_t what, uint64_t where);
/* Judges the intent of the ledger that a holding names. */
void sb_judge_intent(sb_walk *w, uint64_t what, uint64_t where);
/* What stands at a position of a queue; false when its page is gone. */
bool sb_judge_find(sb_walk *w, uint32_t queue, uint64_t position, sb_ring *r, sb_leaf_ref *leaf, uint64_t *word);
/* Makes a cell AVAILABLE that the dead held, and finishes what it had begun with the page. */
void sb_judge_cell(sb_walk *w, uint32_t queue, uint64_t position);

#endif
