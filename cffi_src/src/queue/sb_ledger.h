// SPDX-License-Identifier: Apache-2.0
/* Ledger: the counters of one connection at one queue.
 *
 * What: counters with a single writer, and the intent of the operation that the connection is carrying out. The
 * statistics of a queue are sums over its ledgers. A connection owns one ledger for each handle of the queue. When the
 * handle is detached, the counters stay, and the next owner of the ledger continues them; ledgers are never merged.
 *
 * Layout: `sb_ledger_shm`, linked from the queue. A linked ledger stays linked until its queue is freed.
 *
 * Invariants:
 *  I19 a counter only rises. Except for the counters of deliveries and refusals, it rises only under an intent that
 *      recorded the counter's value before the operation. If the operation took effect, a reaper counts it by a CAS
 *      from that value to that value plus 1 (of bytes: plus the body's length). So the operation counts once, however
 *      often and however late reapers do that.
 *  I20 a queue object is freed only when no ledger of it has an owner, that is, no connection has the queue open. The
 *      process that frees it makes it FREEING, then looks for owners. A connection adopts a ledger, then checks that
 *      the queue's state did not change. So either the process finds the connection, or the connection finds that the
 *      queue is FREEING. Last, the process seals the list of ledgers. So a connection that looked at the queue earlier
 *      cannot link another ledger, which no process would free.
 *
 * Ordering pairs: P11 an intent is complete before its kind is stored (release), and its kind is stored before the CAS
 *  (or, for the last reference of a short body, the store) that it announces. Only the position of an append is stored
 *  later: before each attempt (release, sb_ring_append).
 *
 * Death (killed under an intent -> how the reaper sees that the operation took effect -> what the reaper does):
 *  ENQUEUE -> the slot's reference is gone, or the cell at `position` names the slot -> the reaper counts the message.
 *   If not, the reaper frees the slot.
 *  SETTLE -> the cell's reference to the slot is gone -> the reaper counts the end, and makes the cell TOMBSTONE. If
 *   not, the message did not end.
 *  DUE -> the cell at `position` is REMOVING(dead) -> the reaper counts that the message left SCHEDULED, and releases
 *   the cell later, with all other cells of the dead connection. If not, nothing happened.
 *  COMMIT -> the cell at `position` is not STAGED(dead) any more -> the reaper counts the message. If not, the reaper
 *   continues the commit (sb_transaction.h).
 *  MOVE -> the target cell is REMOVING(dead), and names the slot -> the reaper settles the source, then releases the
 *   target. If not, the reaper drops the reference for the target.
 *  MOVE_PAGE -> the leaf was linked (I75 of sb_move_page.h) -> the reaper counts its messages in both queues, and makes
 *   the source cells TOMBSTONE. If not, the move took no effect.
 * The code is in sb_intent.c.
 *
 * Concurrency: the owner of a ledger writes it, under its connection's lock; after the death of the owner its reapers
 * do.
 */
#ifndef SB_LEDGER_H
#define SB_LEDGER_H

#include "sb_holdings.h"

/* The value of `ledgers` of a queue that is being freed: no ledger can be linked (I20). */
#define SB_LEDGERS_SEALED UINT32_MAX
/* Makes `c` the owner of a ledger of the queue in slot `queue`, for a caller that has looked at the queue. Since that
 * look the queue may have been closed and freed, and the ledger with it. The ledger may then be another queue's, and
 * have another owner. So the caller looks at the queue again before it writes anything into the ledger. It calls
 * sb_ledger_start if the queue is the same, else sb_ledger_renounce. If the caller is killed before that, its reaper
 * leaves the ledger without an owner. Until sb_ledger_start the ledger counts no held cell, and `hinting` has depth 0,
 * as the last owner left them. SB_DELETED: the list of ledgers is sealed. */
sb_status sb_ledger_adopt(sb_connection *c, uint32_t queue, sb_ledger_shm **ledger, uint64_t *token);
/* Begins the use of a ledger that the caller owns: sets its number of held cells, and the depth of `hinting`, to 0. */
void sb_ledger_start(sb_ledger_shm *ledger);
/* Gives up a ledger that was adopted and not started. Changes only its owner, by a CAS, and only if that is `c`. */
void sb_ledger_renounce(sb_connection *c, sb_ledger_shm *ledger, uint64_t token);
/* Makes `c` the owner of ledger `l` of the dead connection `dead`, whose intent the caller has resolved. *token: the
 * holding that lists the ledger. SB_SETTLED: `dead` does not own the ledger any more. */
sb_status sb_ledger_inherit(sb_connection *c, uint32_t queue, sb_ledger_shm *l, unsigned dead, uint64_t *token);
void sb_ledger_leave(sb_connection *c, sb_ledger_shm *ledger, uint64_t token);
uint64_t sb_ledger_sum(sb_broker *b, const sb_queue_shm *q, unsigned counter);
/* How many messages came into the queue and became ready, or left it, in the life of the queue. A message that is
 * scheduled counts as left; when it is due, it comes once more. */
uint64_t sb_ledger_came(sb_broker *b, const sb_queue_shm *q);
uint64_t sb_ledger_left(sb_broker *b, const sb_queue_shm *q);
uint64_t sb_ledger_holding(sb_broker *b, const sb_queue_shm *q);
bool sb_ledger_owned(sb_broker *b, const sb_queue_shm *q);
/* Returns a connection that owns a ledger of the queue and satisfies `is`. 0: there is none. */
unsigned sb_ledger_any_owner(sb_broker *b, const sb_queue_shm *q, bool (*is)(sb_broker *b, unsigned connection));
/* Returns a connection other than `but` that satisfies `is`, and that stays between two changes of hints while the
 * function looks at its ledger several times. 0: there is none. */
unsigned sb_ledger_stuck(sb_broker *b, const sb_queue_shm *q, unsigned but,
                         bool (*is)(sb_broker *b, unsigned connection));
/* True if each connection other than `but` that owns a ledger of the queue was outside the core at some moment of this
 * call: all their later calls see what the caller stored before (P21 of sb_grace.h). Waits a moment for a call that is
 * inside. False: one stayed inside; its process may be stopped or dead. */
bool sb_ledger_others_know(sb_broker *b, const sb_queue_shm *q, unsigned but);
/* Sums over the ledgers of a queue, except for the ledger `but` (NULL: over all of them). `depth`: how many changes of
 * hints have begun and not ended; 0: the hints rest. `raised`: how often connections began such changes until now. If
 * two calls return equal sums, no connection began or ended such changes between them. */
typedef struct {
  uint64_t depth, raised;
  uint64_t unknown_bytes; /* how many of these changes are no reservations of room: no ledger has their bytes */
  uint64_t reserved_bytes;
} sb_changes;
sb_changes sb_ledger_changes(sb_broker *b, const sb_queue_shm *q, const sb_ledger_shm *but);
static inline bool sb_changes_same(const sb_changes *one, const sb_changes *two) {
  return one->depth == two->depth && one->raised == two->raised && one->unknown_bytes == two->unknown_bytes &&
         one->reserved_bytes == two->reserved_bytes;
}
sb_ledger_shm *sb_ledger_at(sb_broker *b, uint32_t slot);
/* The first ledger of the queue that the connection owns; NULL: the connection owns none. */
sb_ledger_shm *sb_ledger_of(sb_broker *b, const sb_queue_shm *q, unsigned connection);

static inline void sb_ledger_begin_intent(sb_ledger_shm *l, unsigned kind, unsigned counter, uint64_t position,
                                          uint64_t slot, uint64_t gen, uint64_t bytes) {
  uint64_t seq =
      SB_LOAD(&l->kind, SB_RELAXED) >> 16; /* relaxed: single writer; the release store of `kind` orders all stores */
  SB_STORE(&l->position, position, SB_RELAXED);
  SB_STORE(&l->slot, slot, SB_RELAXED);
  SB_STORE(&l->gen, gen, SB_RELAXED);
  SB_STORE(&l->before, SB_LOAD(&l->counters[counter], SB_RELAXED), SB_RELAXED);
  SB_STORE(&l->before_bytes,
           SB_LOAD(&l->counters[counter == SB_COUNT_ADDED ? SB_COUNT_ADDED_BYTES : SB_COUNT_REMOVED_BYTES], SB_RELAXED),
           SB_RELAXED);
  SB_STORE(&l->bytes, bytes, SB_RELAXED);
  SB_STORE(&l->kind, (uint64_t)kind | SB_FIELD(counter, 8) | SB_FIELD(seq + 1, 16), SB_RELEASE); /* P11 release */
}
static inline void sb_ledger_end_intent(sb_ledger_shm *l) {
  SB_STORE(&l->kind, SB_LOAD(&l->kind, SB_RELAXED) >> 16 << 16, SB_RELEASE);
}
static inline void sb_ledger_count(sb_ledger_shm *l, unsigned counter, uint64_t by) {
  SB_STORE(&l->counters[counter], SB_LOAD(&l->counters[counter], SB_RELAXED) + by, SB_RELEASE);
}
/* Marks that the connection begins (`by` is 1) or ends (`by` is -1) changes of hints that belong together. Between the
 * two calls no process corrects the queue's hints (I23 of sb_queue.h). Only the room that dead connections reserved may
 * be given back (I74 of sb_hints.h). */
#define SB_HINTING_DEPTH UINT64_C(0xffffffff) /* the lower half of `hinting`; the upper half counts the raises */
static inline void sb_ledger_hinting(sb_ledger_shm *l, int by) {
  uint64_t step = by > 0 ? (UINT64_C(1) << 32) + 1 : UINT64_MAX;
  /* by > 0: this store comes before the first change of a hint, which is seq_cst, or a release operation in a queue
   * that refuses no message (sb_limits.h). by < 0: this store comes after the last change */
  SB_STORE(&l->hinting, SB_LOAD(&l->hinting, SB_RELAXED) + step, SB_RELEASE);
}
/* Notes that a reservation of room for a message of `bytes` bytes begins (`count` is 1), or that it ends (`count` is
 * -1), because the message was published or the room was given back. Comes before the sb_ledger_hinting that begins
 * these changes of hints, and after the one that ends them. */
#define SB_RESERVED_BYTES ((UINT64_C(1) << 40) - 1)
static inline void sb_ledger_reserve(sb_ledger_shm *l, int count, uint64_t bytes) {
  uint64_t step = (UINT64_C(1) << 40) + bytes;
  SB_STORE(&l->admitting, SB_LOAD(&l->admitting, SB_RELAXED) + (count > 0 ? step : -step), SB_RELEASE);
}
static inline void sb_ledger_hinting_ended(sb_ledger_shm *l) {
  SB_STORE(&l->admitting, 0, SB_RELAXED);
  SB_STORE(&l->hinting, SB_LOAD(&l->hinting, SB_RELAXED) & ~SB_HINTING_DEPTH, SB_RELEASE);
}
static inline void sb_ledger_hold(sb_ledger_shm *l, int32_t by) {
  uint64_t w = SB_LOAD(&l->holding, SB_RELAXED);
  SB_STORE(&l->holding, (w & ~UINT64_C(0xffffffff)) | (uint32_t)((uint32_t)w + (uint32_t)by), SB_RELEASE);
}

#endif
