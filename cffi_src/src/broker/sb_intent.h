// SPDX-License-Identifier: Apache-2.0
/* Intent: decides for each operation that a dead connection began whether it took effect.
 *
 * What: the part of recovery that looks at messages. The intent of a ledger says what its owner was about to do; the
 * slot and the cell say whether it did. An operation that took effect is counted, any other is undone; cells that the
 * dead connection held are released.
 *
 * Invariants: I19 of sb_ledger.h, I33 and I34 of sb_recover.h: a repeated decision has the same result, also if the
 *  reaper that decided before was killed between any two steps.
 *
 * Ordering pairs: P11 of sb_ledger.h: the reaper reads the words of an intent (acquire), and reads the kind once more
 * before it raises a counter.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  any step of a reaper -> intents of the dead connection, some of them decided -> the next reaper decides each intent
 *   that is left.
 *
 * Concurrency: one reaper at a time for each dead process, beside all traffic.
 */
#ifndef SB_INTENT_H
#define SB_INTENT_H

#include "sb_limits.h"

/* A walk through the holdings of connection `id`: a dead one, or one that closes (sb_recover_close). `by`: the reaper's
 * own connection, or the closing connection itself. views_live, set only for a closing connection: true if the
 * application still uses a view of a message, or a reservation, of that connection. */
typedef struct {
  sb_connection *by;
  sb_broker *b;
  unsigned id;
  bool views_live;
} sb_reap_context;

/* The ledger that a holding names, if the dead connection still owns that ledger; else NULL. `what` and `where`, here
 * and below: the two words of the holding. */
sb_ledger_shm *sb_intent_ledger(sb_reap_context *w, uint64_t what, uint64_t where);
/* Resolves the intent of the ledger that a holding names: counts the operation if it took effect, else undoes it. Does
 * nothing if sb_intent_ledger finds no ledger. */
void sb_intent_resolve(sb_reap_context *w, uint64_t what, uint64_t where);
/* Finds the cell at a position of a queue, and stores its ring, leaf and word. False: the queue, or the page of the
 * cell, is not there. */
bool sb_intent_find_cell(sb_reap_context *w, uint32_t queue, uint64_t position, sb_ring *r, sb_leaf_ref *leaf,
                         uint64_t *word);
/* Releases a cell that the dead connection held: makes the cell AVAILABLE. If the cell is AVAILABLE already, only sets
 * its `requeued` bits again. In both cases, if the message has expired, asks the housekeeper to remove it. If the cell
 * is a TOMBSTONE, repeats the end of sb_ring_finish (sb_ring_redo). Leaves STAGED cells alone. */
void sb_intent_release_cell(sb_reap_context *w, uint32_t queue, uint64_t position);
/* In a queue with last values, settles the key of the message at `position`, if there is one (I103 of sb_values.h). */
void sb_intent_settle_value(sb_reap_context *w, uint32_t queue, uint64_t position);

#endif
