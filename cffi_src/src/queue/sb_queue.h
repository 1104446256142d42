// SPDX-License-Identifier: Apache-2.0
/* Queue: messages in a ring of cells.
 *
 * What: one word, the cell, decides the state of a message in a queue. Enqueue, take, settle, release and the removals
 * (purge, eviction, expiry, move) are state changes of this word; no position is ever reserved. This header has the
 * handle of a queue, the number of its messages, and enqueue; sb_take.h, sb_settle.h and sb_release.h have the other
 * changes.
 *
 * Layout: the changes of a cell's state; `me` is the connection that owns the cell. FREE -> AVAILABLE | SCHEDULED |
 * REMOVING(me);  SCHEDULED -> REMOVING(me) -> AVAILABLE;  AVAILABLE -> ACQUIRED(me) | REMOVING(me);  ACQUIRED(me) ->
 * AVAILABLE (release) | TOMBSTONE;  REMOVING(me) -> AVAILABLE | TOMBSTONE. Commits (sb_transaction.h): FREE ->
 * STAGED(me) -> AVAILABLE | SCHEDULED | TOMBSTONE. The end (sb_closing.h): FREE -> CLOSING -> CLOSED | TOMBSTONE.
 *
 * Invariants:
 *  I23 a queue that tracks (sb_queue_tracks) has four *hints*. `taken` counts the positions below the tail that are not
 *      AVAILABLE, `admitted` the positions that are used or reserved; `bytes_in` and `bytes_out` are the same in bytes.
 *      In queues that evict, a connection raises `taken` before the CAS that takes a message, so that no process evicts
 *      too much; in all others after that CAS, so that no process admits too much. `admitted` is raised before an
 *      append. Queues that evict count a STAGED position as taken, since they must not evict for it; all others count
 *      it as ready, since its room is reserved. One that will become SCHEDULED counts as taken in any queue. While no
 *      connection is between two changes of hints that belong together (`hinting` of sb_ledger_shm), a process may
 *      count the cells, and correct the errors that a death left. In a queue that does not evict, it may lower
 *      `admitted` and `bytes_in` even while connections are between two such changes (I74 of sb_hints.h).
 *  I42 a process that raised `taken` or `bytes_out`, and lowers it again, leaves no message above the limits. Between
 *      the two changes a put may have relied on the higher value: it saw room that did not exist, appended its message,
 *      and evicted none. So the process tries to take a message again, which brings the number of ready messages back
 *      to what the put saw, or it enforces the limits.
 *
 * Ordering pairs: P1 of sb_slab.h, P2 of sb_ring.h. P3 of sb_notify.h: a producer appends (seq_cst), then reads
 * `interested`.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the intent ENQUEUE was written, before the append -> the slot is ALLOC(dead) or PUBLISHED, and no cell names it ->
 *   the reaper frees the slot.
 *  the cell was appended -> the message is in the queue, and perhaps not counted -> the reaper counts it, and notifies
 *   consumers.
 *  the cell was appended, before the eviction -> more messages are ready than the limits allow -> the reaper, or the
 *   next put, get without waiting, browse, count or commit, evicts (sb_limits.h).
 *
 * Concurrency: any number of processes; the threads of one connection under its lock.
 */
#ifndef SB_QUEUE_H
#define SB_QUEUE_H

#include "sb_ledger.h"
#include "sb_peek.h"
#include "sb_requeued.h"

#define SB_WAITERS_KEPT 8u

struct sb_queue {
  sb_connection *c;
  struct sb_queue *next, *previous;
  /* number of users that keep the handle open: reservations, watches, browsers, waiting threads, consumers of channels,
   * calls that dropped the lock */
  uint32_t busy;
  /* no call uses the handle any more, but it could not be detached yet: sb_handle_leave frees it */
  bool orphaned;
  bool
      waits_for_store; /* a put waits until the store has it; read without the lock, even after the connection closed */
  bool ended_some;     /* a search ended messages that had expired, and nobody was notified of it (sb_notify_ended) */
  sb_queue_shm *shm;
  sb_ledger_shm *ledger;
  uint64_t ledger_token;
  uint64_t state; /* of the queue when the handle was opened: OPEN or CLOSED, and incarnation; UINT64_MAX: detached */
  uint64_t base;
  struct sb_groups *groups;  /* NULL: the queue has no message groups, or no consumer uses this handle */
  unsigned last_lane;        /* the highest number of a lane; 0: the queue has one lane */
  unsigned others;           /* how many other lanes the handle can remember */
  uint64_t large;            /* bodies that are larger lie apart (sb_queue_spacing); UINT64_MAX: none */
  const uint8_t *value_key;  /* the header that last_value_key names (sb_values.h) */
  uint32_t value_key_length; /* 0: the queue has no last values */
  const uint8_t *sort_key;   /* the header that sort_key names (sb_sorted.h) */
  uint32_t sort_key_length;  /* 0: the queue delivers its messages as they came */
  struct sb_sorted *sorted;  /* the index of the handle's plain consumers and gets; NULL: not needed yet */
  uint32_t slot;
  unsigned use;                           /* SB_USE_...: the purpose for which puts into this queue allocate memory */
  uint64_t undecided_low, undecided_high; /* the id that sb_duplicates_claim last found undecided */
  /* nodes that no thread uses now, kept for the next waiting threads of the connection (sb_waiter.c) */
  struct {
    uint64_t token;
    uint32_t node;
  } waiters[SB_WAITERS_KEPT];
  uint32_t waiter_count;
  sb_half spin_ns;   /* how long a waiting thread spins; all threads adapt it, without the lock */
  sb_word waited_ns; /* when a wait for a message last ended, so far as it is known; as `spin_ns` */
  uint64_t missed;   /* 1 + the number of the leaf of the last miss that was counted (sb_take.c) */
  uint64_t rescanned_ns, rescanned_deaths; /* time of the last sb_hints_rescan; number of deaths then */
  uint64_t reap_again_ns;                  /* until this time no call with this handle reaps (sb_api_bound.c) */
  sb_leaf_ref schedule_leaf; /* of the last schedule entry that this handle added, as the tail_leaf of a lane */
  sb_leaf_ref looked_leaf;   /* of the last cell that the handle looked at, or took, by its position (sb_schedule.h) */
  /* lane 0, then `others` that were used last: the lane of a number is the one at (number - 1) modulo `others`, behind
   * lane 0. Last: a handle of an application has memory for more than one behind the struct (sb_queue_others) */
  sb_lane lanes[2];
};

#define SB_OTHERS_MOST 16u
/* How many other lanes a handle of the queue in `slot` should remember. */
unsigned sb_queue_others(sb_broker *b, uint32_t slot);

/* Opens a handle of the queue in `slot`, and takes a ledger, which keeps the queue object from being freed (I20 of
 * sb_ledger.h). SB_DELETED: the queue is gone or closed. With `even_closed` a closed queue is opened,
 * too, so that its messages can be removed. */
sb_status sb_queue_attach(sb_connection *c, uint32_t slot, sb_queue *q, bool even_closed);
/* Opens a handle of a queue, open or closed, and takes over `ledger` from the dead connection `dead`. SB_SETTLED:
 * `dead` does not own the ledger any more. */
sb_status sb_queue_inherit(sb_connection *c, uint32_t slot, sb_queue *q, sb_ledger_shm *ledger, unsigned dead);
/* Opens a handle of a queue, open or closed, without taking a ledger. `ledger`: that of a dead connection, which stays
 * its owner; the caller continues an operation of this connection. NULL: the caller knows that the queue object is not
 * freed, and takes no message. */
sb_status sb_queue_stand_in(sb_connection *by, uint32_t slot, sb_queue *q, sb_ledger_shm *ledger);
void sb_queue_detach(sb_queue *q);
/* True if the queue keeps only the last value of each key (sb_values.h). */
static inline bool sb_queue_has_values(const sb_queue *q) { return q->value_key_length != 0; }
/* True if the messages of the queue have priorities. */
static inline bool sb_queue_has_lanes(const sb_queue *q) { return q->last_lane != 0; }
/* The lane of a number other than 0. If the queue has no such lane, returns lane 0, where no position of that number
 * is. A handle remembers some such lanes: the call may end the use of an earlier one. */
sb_lane *sb_queue_other_lane(sb_queue *q, unsigned number);
static inline sb_lane *sb_queue_lane_of(sb_queue *q, unsigned number) {
  return number == 0 ? &q->lanes[0] : sb_queue_other_lane(q, number);
}
/* The lane that a position is in. */
static inline sb_lane *sb_queue_lane(sb_queue *q, uint64_t position) {
  return sb_queue_lane_of(q, sb_position_lane(position));
}
/* Finds the lane for a message of `priority`; makes it, if it is the first such message. */
sb_status sb_queue_lane_for(sb_queue *q, unsigned priority, sb_lane **lane);
/* As sb_lanes_sequence. */
static inline uint64_t sb_queue_sequence(const sb_queue *q, uint64_t position) {
  return sb_position_lane(position) == 0 ? position - q->base : sb_lanes_sequence(q->c->b, q->slot, position);
}
/* The end of what the lane of `position` has now: the position of its next message. */
uint64_t sb_queue_end_of(sb_queue *q, uint64_t position);
/* The end of the next lane after that of `position`, by ascending number. 0: there is no other lane. */
uint64_t sb_queue_next_end(sb_queue *q, uint64_t position);
/* True if a search may have hidden messages from other consumers for a moment (I41 of sb_requeued.h, I77 of
 * sb_lanes.h). The caller then notifies a consumer. */
static inline bool sb_queue_may_hide(const sb_queue *q) {
  /* a consumer of a queue with groups clears no ready bits (sb_choice.h) */
  return SB_LOAD(&q->shm->requeued, SB_SEQ_CST) != 0 || (sb_queue_has_lanes(q) && q->groups == NULL);
}
/* seq_cst: a process that made a cell AVAILABLE must see here that the queue was closed (sb_closing.h). */
static inline bool sb_queue_is_open(const sb_queue *q) { return SB_LOAD(&q->shm->state, SB_SEQ_CST) == q->state; }

/* Appends a cell to a lane. If it meets a CLOSING cell, it decides that cell first. All cells of messages, and all
 * CLOSING cells, come into a queue through this function: a store that keeps messages on disk would hook in here, and
 * in sb_dispose. SB_DELETED: the queue is closed. The other arguments are those of sb_ring_append. */
SB_HOT sb_status sb_queue_append(sb_queue *q, sb_lane *lane, uint64_t word, sb_append how, sb_word *announce,
                                 uint64_t *position);
/* The same for a queue with priorities: sets the ready bit of the lane (I77 of sb_lanes.h), and looks at the closing word
 * (sb_closing.h). If the caller owns the cell that it appends, a closed queue does not keep the cell: SB_DELETED. */
sb_status sb_queue_append_in_lane(sb_queue *q, sb_lane *lane, uint64_t word, sb_append how, sb_word *announce,
                                  uint64_t *position);
/* Handles a CLOSING or CLOSED cell that an append met at `position`: decides it, if no process did. `tries`: how many
 * such cells the append has met. SB_CLOSED_CELL: the cell is decided, the queue stays open, and the caller appends
 * again. SB_DELETED: the queue is closed. SB_CORRUPT: the cell cannot be decided. */
sb_status sb_queue_pass_closing(sb_queue *q, const sb_lane *lane, uint64_t position, unsigned tries);
/* Publishes an ALLOC slot, whose body has `bytes` bytes, in a cell at the tail. The cell becomes SCHEDULED if
 * `scheduled`, else AVAILABLE. *position: the position of that cell. After a failure the caller still owns the slot,
 * and must enforce the queue's limits if `scheduled` is set: the call raised `taken`, and lowered it again (I42).
 * `token`: the holding that lists the slot. In a queue with last values it then lists the cell (I103 of sb_values.h). */
sb_status sb_queue_enqueue(sb_queue *q, uint32_t slot, uint64_t gen, uint64_t bytes, bool scheduled, uint64_t token,
                           uint64_t *position);
/* Adds an entry to the schedule list for a message with a timer (I26 of sb_schedule.h). An entry has no generation. So
 * the leaf that the handle remembers may be one that was retired, and is full of other entries. All its cells were filled
 * before, so an append that passes them leaves no hole (I15 of sb_ring.h). */
void sb_queue_schedule(sb_queue *q, uint64_t position);

SB_HOT sb_status sb_queue_append(sb_queue *q, sb_lane *lane, uint64_t word, sb_append how, sb_word *announce,
                                 uint64_t *position) {
  sb_status status;
  unsigned tries = 0;
  if (lane->ring.ready != NULL) {
    return sb_queue_append_in_lane(q, lane, word, how, announce, position);
  }
  do {
    *position = lane->tail_cursor;
    status = sb_ring_append(q->c, &lane->ring, &lane->tail_leaf, word, how, announce, position);
    if (status == SB_CLOSED_CELL) status = sb_queue_pass_closing(q, lane, *position, ++tries);
  } while (status == SB_CLOSED_CELL);
  return status;
}

/* Values of `tracking`; 0: the queue has no hints. UNSURE: the hints may be wrong. sb_hints_start_tracking is at work;
 * or its caller was killed, traffic kept it from correcting them, or a connection stayed in a call that may not know
 * that the queue tracks. In the last three cases the housekeeper corrects them. */
#define SB_TRACKING_SURE 1
#define SB_TRACKING_UNSURE 2
/* True if the storekeeper writes the messages of the queue into the store. */
static inline bool sb_queue_stores(const sb_queue *q) { return q->lanes[0].ring.changed != NULL; }
/* True if messages of the queue may leave the memory (I130 of sb_departure.h). */
bool sb_queue_may_leave(const sb_queue *q);
/* What the append of a message of `bytes` bytes has in sb_append: large messages of a queue whose leaves leave the memory
 * lie apart (sb_spacing.h). */
static inline uint64_t sb_queue_spacing(const sb_queue *q, uint64_t bytes) {
  return bytes > q->large && sb_queue_may_leave(q) ? bytes : 0;
}
/* True if the queue maintains `taken`, `admitted` and the byte hints: it has limits or a ring size, or it once had. */
static inline bool sb_queue_tracks(const sb_queue_shm *q) { return SB_LOAD(&q->tracking, SB_RELAXED) != 0; }
/* True if the queue evicts messages: beyond ring_size, or with the overflow drop-head beyond max_length and max_bytes.
 * With any other overflow it refuses messages beyond max_length and max_bytes, even if it has a ring_size. */
static inline bool sb_queue_evicts(const sb_queue_shm *q) {
  return sb_setting(q, SB_SETTING_RING_SIZE) >= 0 || sb_setting(q, SB_SETTING_OVERFLOW) == SB_OVERFLOW_DROP_HEAD;
}
/* I23: sb_hints_taken counts `count` positions as taken, with `bytes` of message bodies; sb_hints_untaken takes that
 * back. Both are only for a queue that tracks. Each changes two words with seq_cst; afterwards the process looks for
 * waiting producers, or enforces the limits (I42). A producer enters the list of waiting producers, or appends, before
 * it reads these words. So at least one of the two processes sees what the other did. No reader needs both words as of
 * one moment, so either may be changed first. */
static inline void sb_hints_taken(sb_queue_shm *q, uint64_t count, uint64_t bytes) {
  (void)SB_ADD(&q->taken, count, SB_SEQ_CST);
  (void)SB_ADD(&q->bytes_out, bytes, SB_SEQ_CST);
}
static inline void sb_hints_untaken(sb_queue_shm *q, uint64_t count, uint64_t bytes) {
  (void)SB_SUB(&q->bytes_out, bytes, SB_SEQ_CST);
  (void)SB_SUB(&q->taken, count, SB_SEQ_CST);
}
/* The number of ready messages: from the hints if the queue tracks, else from the ledgers. sb_queue_count_ready always
 * reads the ledgers. */
int64_t sb_queue_ready(sb_broker *b, const sb_queue_shm *q);
uint64_t sb_queue_count_ready(sb_broker *b, const sb_queue_shm *q);
/* The length of the body of the oldest ready message; beside traffic an estimate. 1 if there is no such message, or if
 * its body is empty. */
uint64_t sb_queue_oldest_bytes(sb_queue *q);
/* True if a message that returned to the queue (`requeued` bits) is ready before `position`. */
bool sb_queue_older_ready(sb_queue *q, uint64_t position);
/* True if there may be a message to take. Reads the queue's `requeued` flag, then at most 64 cells, up to the first
 * that is ready or FREE. */
bool sb_queue_looks_ready(sb_queue *q);
/* As sb_queue_looks_ready, but needs no lock. Other threads may move the handle's cursor and leaf, so the function
 * begins at the shared head, and keeps its leaf in *leaf, which is SB_NO_LEAF before the first call. */
bool sb_queue_seems_ready(sb_queue *q, sb_leaf_ref *leaf);
/* Called after a take. If ring_size was lowered without trimming the queue, lowers `bound` to the number of ready
 * messages, but not below ring_size. */
void sb_queue_lower_bound(sb_queue *q);

#endif
