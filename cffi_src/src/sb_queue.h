// SPDX-License-Identifier: Apache-2.0
/* Queue: messages in a ring of cells.
 *
 * What: a cell is the one word that decides about a message of a queue. Enqueue, acquire, settle, release, and the
 * removals (purge, eviction, expiry, move) are state changes of that word; nothing is ever reserved.
 *
 * Layout: FREE -> AVAILABLE | HELD | REMOVING(me);  HELD -> REMOVING(me) -> AVAILABLE;  AVAILABLE -> ACQUIRED(me) |
 * REMOVING(me);  ACQUIRED(me) -> AVAILABLE (release) | TOMBSTONE;  REMOVING(me) -> AVAILABLE | TOMBSTONE;
 * CLOSING -> CLOSED | TOMBSTONE.
 * Of a commit (sb_commit.h): FREE -> STAGED(me) -> AVAILABLE | HELD | TOMBSTONE.
 *
 * Invariants:
 *  I21 a cell that names a slot has its reference bit, until the holder drops it; the holder writes TOMBSTONE after that.
 *  I22 only the owner of an ACQUIRED or REMOVING cell changes it (or, after its death, its reapers).
 *  I23 in a queue that tracks, `taken` counts the positions below the tail that are not AVAILABLE. It is raised before the CAS in queues that
 *      evict (they must never evict too much) and after it in the others (they must never admit too much); `admitted`
 *      is raised before an append. A STAGED position counts as taken in the former, which must not evict for it, and
 *      in the others as ready: its place is kept for it. Errors left by a death are reconciled from the cells, while nobody is `hinting`.
 *  I24 evictions are paid for in advance: `taken` is raised by CAS only while pending > bound.
 *      A victim is spared if not enough was pending just before it was taken: a consumer had taken an older one
 *      (what is taken afterwards is newer, and spares nothing); or if an older one came back meanwhile.
 *  I53 whoever passes a STAGED cell sets its `returned` bits first: what becomes of it is found. Whoever found one to take looks
 *      again at what was passed before it, so that the messages of a producer stay in order.
 *  I42 whoever lowers `taken` or `bytes_out` looks again afterwards, or enforces: a put may
 *      have seen room that was not there.
 *
 * Ordering pairs: P1, P2, P5, P8 of the layers below. P3: an append (seq_cst) comes before the look at `interested`
 *  (sb_consumer.h).
 *
 * Death (after -> state; the reaper of the connection repairs it):
 *  intent ENQUEUE, before the append -> slot PUBLISHED, no cell -> slot freed.      append -> counted, waiters woken.
 *  append, before the eviction -> pending > bound -> the next put pays.
 *  holding written -> nothing.  acquire CAS -> ACQUIRED(dead) -> AVAILABLE, marked redelivered.
 *  intent SETTLE -> nothing.  reference dropped -> counted, TOMBSTONE.  release: bits set -> released by the reaper.
 *  REMOVING(dead) -> AVAILABLE without mark or count.
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
  struct sb_queue *next;
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
  uint32_t slot;
  /* threads of this process that wait here, see sb_waiter.h */
  struct {
    uint64_t token;
    uint32_t node;
  } waiters[SB_WAITERS_KEPT];
  uint32_t waiter_count;
  sb_half spin_ns; /* relaxed: a guess, which threads that wait share */
  uint64_t rescanned_ns;
};

/* A message somebody just took. */
typedef struct {
  uint64_t token, position, gen, side;
  sb_message_shm *message;
  uint32_t slot;
  unsigned ref;
  int64_t pending, ready_bytes; /* of an eviction: what the hints said just before it was taken */
  bool bytes_paid;              /* its bytes were counted as gone before it was taken */
} sb_taken;

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
/* Takes the oldest AVAILABLE message, of those before that position; `token` is a free holding that becomes the message's.
 * Who names a position and gets SB_EMPTY enforces the queue's limits afterwards (I42). */
#define SB_ANY_POSITION UINT64_MAX
sb_status sb_queue_take(sb_queue *q, unsigned state, bool paid, uint64_t before, uint64_t token, sb_taken *t);
/* Did one that is older come back, so that it is ready? */
bool sb_queue_older_ready(sb_queue *q, uint64_t position);
/* After something was taken: the bound of a ring that was shrunk lazily falls with what is pending. */
void sb_queue_lower_bound(sb_queue *q);
/* Takes the cell at that position if it still is in state `from`. */
sb_status sb_queue_take_at(sb_queue *q, uint64_t position, unsigned from, uint64_t token, sb_taken *t);
/* Takes the ready message at that position for a consumer; `returned`: it was announced that it came back. As above (I42). */
sb_status sb_queue_acquire_at(sb_queue *q, uint64_t position, bool returned, uint64_t token, sb_taken *t);
/* Goes past a STAGED cell; and may that have happened here? Then who found one to take looks again (I53). */
void sb_queue_pass_staged(sb_queue *q, uint64_t position);
bool sb_queue_passed_some(const sb_queue *q);
/* Ends a message held under `token`, for the reason `counter`. */
sb_status sb_queue_settle(sb_queue *q, uint64_t token, unsigned counter);
/* The same under an intent that stands already (a move). */
sb_status sb_queue_settle_as(sb_queue *q, uint64_t token, unsigned intent, unsigned counter);
/* Puts a held message back to its place. */
enum { SB_RELEASE_NACK = 0, SB_RELEASE_CLEAN = 1, SB_RELEASE_UNMARKED = 2 };
sb_status sb_queue_release(sb_queue *q, uint64_t token, unsigned how);
/* What a holding names; false when it is not a held message of this connection. */
bool sb_queue_held(sb_connection *c, uint64_t token, sb_taken *t, sb_leaf_ref *leaf);
/* Does the queue keep `taken`, `admitted` and the byte hints? Only one with limits or a ring size does. */
bool sb_queue_tracks(const sb_queue_shm *q);
/* Does it evict what is too many? Else it refuses. */
bool sb_queue_evicts(const sb_queue_shm *q);
int64_t sb_queue_ready(sb_broker *b,
                       const sb_queue_shm *q); /* how many are ready: from hints if it tracks, else from the ledgers */
uint64_t sb_queue_count_ready(sb_broker *b, const sb_queue_shm *q);
/* Body bytes of the oldest ready message, 1 when none is seen; a guess beside traffic. */
uint64_t sb_queue_oldest_bytes(sb_queue *q);
/* May there be a message to take? One cell and a flag are read. */
bool sb_queue_looks_ready(sb_queue *q);
/* The same without the connection's lock: where the handle has got to may change meanwhile, so the caller keeps a leaf. */
bool sb_queue_seems_ready(sb_queue *q, sb_leaf_ref *leaf);
/* Takes the oldest message for a consumer: expired ones are removed on the way; SB_EMPTY while paused. */
sb_status sb_queue_acquire(sb_queue *q, uint64_t token, sb_taken *t);
/* Decides about a CLOSING cell; false when no such cell can be found there. */
bool sb_queue_resolve_closing(sb_broker *b, sb_connection *c, sb_queue_shm *shm, const sb_ring *r, uint64_t position);

#endif
