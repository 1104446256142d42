// SPDX-License-Identifier: Apache-2.0
/* Queue: messages in a ring of cells.
 *
 * What: a cell is the one word that decides about a message of a queue. Enqueue, take, settle, release, and the removals
 * (purge, eviction, expiry, move) are state changes of that word; nothing is ever reserved. Here: the handle of a queue,
 * how much is in it, and enqueue; the others are sb_take.h, sb_settle.h, sb_release.h.
 *
 * Layout: FREE -> AVAILABLE | HELD | REMOVING(me);  HELD -> REMOVING(me) -> AVAILABLE;  AVAILABLE -> ACQUIRED(me) |
 * REMOVING(me);  ACQUIRED(me) -> AVAILABLE (release) | TOMBSTONE;  REMOVING(me) -> AVAILABLE | TOMBSTONE.
 * Of a commit (sb_commit.h): FREE -> STAGED(me) -> AVAILABLE | HELD | TOMBSTONE. Of the end (sb_closing.h): FREE -> CLOSING
 * -> CLOSED | TOMBSTONE.
 *
 * Invariants:
 *  I23 in a queue that tracks, `taken` counts the positions below the tail that are not AVAILABLE. It is raised before the CAS in queues that
 *      evict (they must never evict too much) and after it in the others (they must never admit too much); `admitted`
 *      is raised before an append. A STAGED position counts as taken in the former, which must not evict for it, and
 *      in the others as ready: its place is kept for it. Errors left by a death are reconciled from the cells, while nobody is `hinting`.
 *  I42 whoever lowers `taken` or `bytes_out` looks again afterwards, or enforces: a put may
 *      have seen room that was not there.
 *
 * Ordering pairs: P1 of sb_slab.h, P2 of sb_ring.h. P3: an append (seq_cst) comes before the look at `interested`
 *  (sb_consumer.h).
 *
 * Death (after -> state; the reaper of the connection repairs it):
 *  intent ENQUEUE, before the append -> slot PUBLISHED, no cell -> slot freed.      append -> counted, waiters woken.
 *  append, before the eviction -> pending > bound -> the next put pays.
 *
 * Concurrency: all of it by any number of processes; inside one connection under its lock.
 */
#ifndef SB_QUEUE_H
#define SB_QUEUE_H

#include "sb_ledger.h"
#include "sb_peek.h"
#include "sb_returned.h"

#define SB_WAITERS_KEPT 8u

struct sb_queue {
  sb_connection *c;
  struct sb_queue *next, *previous;
  uint32_t busy; /* reservations, puts that copy without the lock, threads that wait, consumers of channels: it must not
                    be left meanwhile */
  bool orphaned; /* nobody calls with it any more, but messages of it are held: it goes with the connection */
  sb_queue_shm *shm;
  sb_ledger_shm *ledger;
  uint64_t ledger_token;
  uint64_t state; /* OPEN | incarnation, as it was when the handle was opened */
  uint64_t base;
  uint64_t tail_cursor; /* everything below it is filled */
  uint64_t cursor;      /* nothing AVAILABLE below it but what returned */
  sb_ring ring;
  sb_leaf_ref tail_leaf, head_leaf;
  sb_returned_way way; /* to the leaf where a message was released last, or taken that had been */
  uint32_t slot;
  unsigned use; /* SB_USE_...: what memory a put into it is taken for */
  /* threads of this process that wait here, see sb_waiter.h */
  struct {
    uint64_t token;
    uint32_t node;
  } waiters[SB_WAITERS_KEPT];
  uint32_t waiter_count;
  sb_half spin_ns;                         /* relaxed: a guess, which threads that wait share */
  uint64_t rescanned_ns, rescanned_deaths; /* when it was looked last for messages no bit leads to */
  uint64_t reap_again_ns;                  /* another thread reaps, for long: no call waits for that before */
};

/* Takes a ledger, so the object stays. A closed one is opened only for clearing up. */
sb_status sb_queue_open(sb_connection *c, uint32_t slot, sb_queue *q, bool even_closed);
/* The same, open or closed, with the ledger of a dead connection. */
sb_status sb_queue_inherit(sb_connection *c, uint32_t slot, sb_queue *q, sb_ledger_shm *ledger, unsigned dead);
/* The same with the ledger left to the dead: its intents are the reaper's, who goes on where the dead was. */
sb_status sb_queue_stand_in(sb_connection *by, uint32_t slot, sb_queue *q, sb_ledger_shm *ledger);
void sb_queue_leave(sb_queue *q);
static inline bool sb_queue_is_open(const sb_queue *q) { return SB_LOAD(&q->shm->state, SB_ACQUIRE) == q->state; }

/* Publishes an ALLOC slot at the tail. On any failure the slot is the caller's again. */
sb_status sb_queue_enqueue(sb_queue *q, uint32_t slot, uint64_t gen, uint64_t bytes, bool held, uint64_t *position);
/* A message with a timer gets an entry in the schedule list (I26). */
void sb_queue_schedule(sb_queue *q, uint64_t position);

#define SB_TRACKING_UNSURE 2 /* beside traffic they could not be counted: the housekeeper does it */
/* Does the queue keep `taken`, `admitted` and the byte hints? Only one with limits or a ring size does. */
static inline bool sb_queue_tracks(const sb_queue_shm *q) { return SB_LOAD(&q->tracking, SB_RELAXED) != 0; }
/* Does it evict what is too many? Else it refuses. */
static inline bool sb_queue_evicts(const sb_queue_shm *q) {
  return SB_LOAD(&q->ring_size, SB_RELAXED) >= 0 || SB_LOAD(&q->overflow, SB_RELAXED) == SB_OVERFLOW_DROP_HEAD;
}
int64_t sb_queue_ready(sb_broker *b,
                       const sb_queue_shm *q); /* how many are ready: from hints if it tracks, else from the ledgers */
uint64_t sb_queue_count_ready(sb_broker *b, const sb_queue_shm *q);
/* Body bytes of the oldest ready message, 1 when none is seen; a guess beside traffic. */
uint64_t sb_queue_oldest_bytes(sb_queue *q);
/* Did one that is older come back, so that it is ready? */
bool sb_queue_older_ready(sb_queue *q, uint64_t position);
/* May there be a message to take? One cell and a flag are read. */
bool sb_queue_looks_ready(sb_queue *q);
/* The same without the connection's lock: where the handle has got to may change meanwhile, so the caller keeps a leaf. */
bool sb_queue_seems_ready(sb_queue *q, sb_leaf_ref *leaf);
/* After something was taken: the bound of a ring that was shrunk lazily falls with what is pending. */
void sb_queue_lower_bound(sb_queue *q);

#endif
