// SPDX-License-Identifier: Apache-2.0
/* Ledger: one connection's account with one queue.
 *
 * What: single-writer counters, and the intent of the operation the connection is in the middle of. Statistics are
 * sums over a queue's ledgers. A connection owns a ledger of every queue it has open; when it leaves, the counters
 * stay and the next connection carries them on, so nothing is ever folded together.
 *
 * Layout: `sb_ledger_shm`, linked from the queue, added only.
 *
 * Invariants:
 *  I19 counters only rise, and only under an intent that holds the value before; so "it happened" is repaired by
 *      CAS(before -> before + 1), which is right however often and however late it is done.
 *  I20 a queue object is freed only when none of its ledgers has an owner: nobody has it open.
 *
 * Ordering pairs: P11 an intent is complete before its kind is stored (release), and stored before the CAS it announces.
 *
 * Death (intent, evidence -> repair), see sb_recover.c:
 *  ENQUEUE  the slot's reference bit is gone, or the cell at `position` names the slot -> count; else free the slot.
 *  SETTLE   the reference bit is gone -> count, finish the cell; else nothing happened.
 *  DUE      the cell at `position` is REMOVING(dead) -> count; the cell is returned with the others.
 *  COMMIT   the cell at `position` is not STAGED(dead) any more -> count; else the commit goes on (sb_commit.h).
 *  MOVE     the target cell is REMOVING(dead) with our slot -> settle the source first; else drop the second reference.
 *
 * Concurrency: the owner, under its connection's lock; its reapers after its death.
 */
#ifndef SB_LEDGER_H
#define SB_LEDGER_H

#include "sb_holdings.h"

sb_status sb_ledger_adopt(sb_connection *c, uint32_t queue, sb_ledger_shm **ledger, uint64_t *token);
/* Takes over the ledger of a dead connection, whose intent was judged. */
sb_status sb_ledger_inherit(sb_connection *c, uint32_t queue, sb_ledger_shm *l, unsigned dead, uint64_t *token);
void sb_ledger_leave(sb_connection *c, sb_ledger_shm *ledger, uint64_t token);
uint64_t sb_ledger_sum(sb_broker *b, const sb_queue_shm *q, unsigned counter);
uint64_t sb_ledger_holding(sb_broker *b, const sb_queue_shm *q);
bool sb_ledger_owned(sb_broker *b, const sb_queue_shm *q);
bool sb_ledger_any_owner(sb_broker *b, const sb_queue_shm *q, bool (*is)(sb_broker *b, unsigned connection));
/* The connection of a ledger, of another one than `but`, that is between two changes of hints, and stays there while we look;
 * 0: there is none for which `is` holds. */
unsigned sb_ledger_stuck(sb_broker *b, const sb_queue_shm *q, unsigned but,
                         bool (*is)(sb_broker *b, unsigned connection));
/* Is nobody changing hints? *raised: how often somebody began to; the same before and after means that nobody did. */
bool sb_ledger_hints_rest(sb_broker *b, const sb_queue_shm *q, uint64_t *raised);
sb_ledger_shm *sb_ledger_at(sb_broker *b, uint32_t slot);
/* A ledger of the queue that this connection owns, NULL when there is none. */
sb_ledger_shm *sb_ledger_of(sb_broker *b, const sb_queue_shm *q, unsigned connection);

static inline void sb_intent_begin(sb_ledger_shm *l, unsigned kind, unsigned counter, uint64_t position, uint64_t slot,
                                   uint64_t gen, uint64_t bytes) {
  uint64_t seq =
      SB_LOAD(&l->kind, SB_RELAXED) >> 16; /* relaxed: we are the only writer, and the kind below orders all */
  SB_STORE(&l->position, position, SB_RELAXED);
  SB_STORE(&l->slot, slot, SB_RELAXED);
  SB_STORE(&l->gen, gen, SB_RELAXED);
  SB_STORE(&l->before, SB_LOAD(&l->counters[counter], SB_RELAXED), SB_RELAXED);
  SB_STORE(&l->before_bytes,
           SB_LOAD(&l->counters[counter == SB_COUNT_ADDED ? SB_COUNT_ADDED_BYTES : SB_COUNT_REMOVED_BYTES], SB_RELAXED),
           SB_RELAXED);
  SB_STORE(&l->bytes, bytes, SB_RELAXED);
  SB_STORE(&l->kind, (uint64_t)kind | SB_PUT(counter, 8) | SB_PUT(seq + 1, 16), SB_RELEASE); /* P11 release */
}
static inline void sb_intent_end(sb_ledger_shm *l) {
  SB_STORE(&l->kind, SB_LOAD(&l->kind, SB_RELAXED) >> 16 << 16, SB_RELEASE);
}
static inline void sb_ledger_count(sb_ledger_shm *l, unsigned counter, uint64_t by) {
  SB_STORE(&l->counters[counter], SB_LOAD(&l->counters[counter], SB_RELAXED) + by, SB_RELEASE);
}
/* While a hint and what it is about are being changed, nobody may set hints right by what he sees (I23). */
#define SB_HINTING_DEPTH UINT64_C(0xffffffff) /* the other half counts how often it was raised */
static inline void sb_hinting(sb_ledger_shm *l, int by) {
  uint64_t step = by > 0 ? (UINT64_C(1) << 32) + 1 : UINT64_MAX;
  SB_STORE(&l->hinting, SB_LOAD(&l->hinting, SB_RELAXED) + step,
           SB_RELEASE); /* before the next change of a hint, a seq_cst operation, and after the last one */
}
static inline void sb_hinting_ended(sb_ledger_shm *l) {
  SB_STORE(&l->hinting, SB_LOAD(&l->hinting, SB_RELAXED) & ~SB_HINTING_DEPTH, SB_RELEASE);
}
static inline void sb_ledger_hold(sb_ledger_shm *l, int32_t by) {
  uint64_t w = SB_LOAD(&l->holding, SB_RELAXED);
  SB_STORE(&l->holding, (w & ~UINT64_C(0xffffffff)) | (uint32_t)((uint32_t)w + (uint32_t)by), SB_RELEASE);
}

#endif
