// SPDX-License-Identifier: Apache-2.0
/* Connection: the process-local struct of a connection, and the words of its holdings.
 *
 * What: a connection's 12-bit id is the owner that slots and cells name. Its *holdings* are a shared table of every
 * object that the connection is taking, owns, or is releasing. The connection writes an entry before the CAS that the
 * entry announces. So a reaper walks this table instead of the whole broker.
 *
 * Layout: blocks of 255 entries, linked from the connection record. A *token* names an entry: its arena offset divided
 * by 16. Free entries are linked through their second word, which only the living owner reads.
 *
 * Invariants:
 *  I10 every object that names a connection as its owner is listed in the holdings of that connection. Exceptions: the
 *      connection's record and the blocks of its holdings, to which the connection table leads; and slots taken in
 *      order to drain their chunk, which is listed. The holdings may also list objects that the connection does not own
 *      yet, or does not own any more.
 *  I11 while a connection lives, blocks of its holdings are only added.
 *
 * Ordering pairs:
 *  P8 the connection stores an entry (release) before the CAS that takes the object; the reaper reads the entry
 *   after the death of the connection.
 *  P21 of sb_grace.h, for the gate.
 *
 * Death (killed after -> what is left -> what the reaper of the connection does):
 *  the entry was written, before the CAS -> the entry names an object that the connection does not own -> the reaper
 *   reads the object's authoritative word, and leaves the object alone. Only for an AVAILABLE cell it sets the
 *   `requeued` bits (sb_take.h).
 *  the record, or a new block, was allocated, before it was linked -> the entry `boot` of the process slot names the
 *   record or the first block; entry 0 of the last linked block names a later block -> the reaper frees it.
 *
 * Concurrency: single writer. While a connection lives, only its own calls change its holdings, and such a call holds
 *  the connection's process-local `lock`. Some calls read shared words without the lock.
 */
#ifndef SB_CONNECTION_H
#define SB_CONNECTION_H

#include "sb_segment.h"

/* Bits of one hint word. The connection took them in order to allocate their slots, or collected them when it freed
 * slots. */
typedef struct {
  uint64_t mask;
  uint32_t chunk, word;
} sb_slab_cache;

struct sb_connection;

struct sb_target;
struct sb_channel;
struct sb_round_robin;
struct sb_queue;
struct sb_grace;

#define SB_ROUND_ROBINS 64u

/* What the IO thread of a connection remembers of the housekeeper, between calls of sb_io_run. */
typedef struct {
  bool lowest; /* at the last check, this process was the lowest process (sb_io.h): it looks often */
  /* time (ns) of the last look for a housekeeper, and of the last one that found one. 0 = sb_io_run has not begun; it
   * sets both when it begins */
  uint64_t looked, present;
  uint64_t turns; /* `housekeeper_ticks` of the header, as this thread last read it */
} sb_lookout;

struct sb_connection {
  sb_broker *b;
  struct sb_queue *queues;       /* open handles, see sb_handles.h */
  struct sb_queue *handles_next; /* the next handle to check for a deleted queue, NULL = the first */
  uint32_t handle_count;
  uint32_t handles_seen;      /* `queues_closed` when the last check of all handles began */
  uint32_t handles_due;       /* number of handles that are still to be checked for a deleted queue */
  uint64_t handles_calm;      /* while `queues_closed` has this value, no handle needs a check */
  uint64_t handles_again_ns;  /* time of the next check, if a handle of a deleted queue is still used; 0 = none */
  uint64_t stand_in_asked_ns; /* when the IO thread last asked for a stand-in (sb_io.h) */
  uint64_t memory_miscounted; /* checksum of a wrong `memory_waiting`, see sb_nodes_recount_memory; 0 = none */
  uint64_t looked_deaths;     /* number of reaped processes when the IO thread last looked for missed notifications */
  /* ends what a consumer of a non-destructive queue reads (sb_reading.h); NULL: the connection has read nothing yet */
  sb_status (*end_reading)(struct sb_connection *c, uint64_t token, bool again);
  uint32_t stands_for;        /* slot of the node of the stopped housekeeper that this connection stands in for */
  bool handles_stay;          /* true for the housekeeper and its stand-in: only their program detaches the handles */
  struct sb_target **targets; /* SB_MAX_TARGETS chains, see sb_target.h */
  uint32_t target_bits;       /* 1 + the highest index of a chain that ever had a target */
  uint32_t target_count, next_target;
  uint64_t pending[SB_MAX_TARGETS / 64]; /* targets that are due a turn (sb_target.h) */
  uint64_t io_token;
  uint32_t io_node, io_rotation;
  uint64_t acks_tick_ns; /* the IO thread looks at least so often for batches of acks that are due; 0 = never */
  uint32_t acks_idle;
  uint64_t dispatch_due_ns; /* when a queue opens its gate because of its delay (sb_dispatch.h); 0 = never */
  /* of the channels, see sb_channel.h */
  struct sb_round_robin *round_robins[SB_ROUND_ROBINS]; /* queues that channels consume, by hash */
  struct sb_channel *ready_first, *ready_last;
  sb_half ready; /* 1: a channel is ready. The IO thread also reads it without the lock, before it sleeps */
  uint32_t limit, unacked;
  bool limited;       /* nodes of channels are not interested, because `unacked` reached `limit` */
  bool orphaned;      /* a channel cancelled its consumer of a deleted queue, and the freed credit is not used yet */
  bool taking_turns;  /* the IO thread is giving turns: no need to ring it, since it then looks for ready channels */
  bool must_grow;     /* a pull, or a node, needs more memory: the IO thread asks for a segment */
  bool watches;       /* the connection counts in `watchers` of its broker */
  sb_lookout lookout; /* of the IO thread alone */
  unsigned use;       /* SB_USE_...: the purpose of allocations, see sb_reserve.h */
  uint32_t tables;    /* number of blocks of holdings */
  sb_connection_shm *shm;
  uint32_t id, record;
  bool forgotten;    /* the connection has released everything shared, so the broker may be unmapped already */
  sb_half closed;    /* 1: no new call begins. Process-local, set under the lock, see sb_closed */
  sb_half handles;   /* number of uses: by the application's connection, queues, channels ...; the last one frees it */
  sb_half lock;      /* see sb_lock */
  sb_gate_shm *gate; /* gate of the record; `own_gate` before the record exists and after it is gone */
  sb_gate_shm own_gate;
  uint64_t answered;                      /* the value of the gate's `asked` that this connection last saw */
  void (*renew)(struct sb_connection *c); /* makes all handles forget their pages; NULL while c is being opened */
  /* of a connection that drains chunks of structures (sb_grace.h); NULL until its first look for such chunks */
  struct sb_grace *grace;
  uint64_t free_holding; /* token of the first free entry, 0 = none */
  uint64_t page_token; /* entry for a page or structure that is being freed; reserved, so that an ack needs no memory */
  sb_holdings_shm *last;
  uint64_t swept_ns[SB_MAX_CLASSES];
  /* until this time a body may get a longer slot than it needs, since no chunk could be opened or drained; 0 = none */
  uint64_t crowded_until_ns;
  sb_slab_cache cache[SB_MAX_CLASSES];
  sb_slab_cache freed; /* freed slots of one hint word whose hints are not set yet */
  unsigned freed_class;
};

/* Waits for the lock of a connection, and takes it. Only threads of one process contend for the lock. Most calls hold
 * it for about a microsecond; a purge, a large commit or the reaping of a process holds it longer. The thread that
 * holds the lock is inside the core; the gate shows that to other processes (sb_grace.h). */
void sb_lock_contended(sb_half *lock);
/* Takes the lock of a connection, then sets `inside` of its gate by a swap (P21). */
void sb_lock_by_swap(sb_connection *c);
void sb_gate_renew(sb_connection *c);
/* Called by the connection that drains a chunk: raises `asked`. True if a call of the gate's connection is inside the
 * core. */
bool sb_gate_ask(sb_gate_shm *gate);
/* Makes the connection use `own_gate` instead of the gate in its record. Called before the record is freed. After this
 * the connection touches no structure: only headers and hints of slots, and its own word in the broker's table of
 * connections. */
void sb_gate_leave_record(sb_connection *c);
#if defined(__x86_64__) || defined(__i386__)
#define SB_CAS_IS_BARRIER true /* the stores before a CAS are visible before the loads after it are done */
#else
#define SB_CAS_IS_BARRIER false
#endif
static inline void sb_lock(sb_connection *c) {
  uint32_t unlocked = 0;
  /* A connection that closes may have lost its record, and must not write there without the lock. */
  if (!SB_CAS_IS_BARRIER || SB_LOAD(&c->closed, SB_RELAXED) != 0) {
    sb_lock_by_swap(c);
  } else {
    SB_STORE(&c->gate->inside, 1, SB_RELAXED); /* P21: the CAS makes it visible */
    if (!SB_CAS(&c->lock, &unlocked, 1u, SB_SEQ_CST)) {
      sb_lock_by_swap(c); /* another thread holds the lock, and will overwrite our store */
    } else if (SB_LOAD(&c->gate->inside, SB_RELAXED) == 0) {
      (void)SB_SWAP(&c->gate->inside, 1, SB_SEQ_CST); /* the previous holder overwrote our store */
    }
  }
  if (SB_LOAD(&c->gate->asked, SB_ACQUIRE) != c->answered) { /* P21 acquire */
    sb_gate_renew(c);
  }
}
static inline void sb_unlock(sb_connection *c) {
  SB_STORE(&c->gate->inside, 0, SB_RELEASE); /* P21 release */
  SB_STORE(&c->lock, 0u, SB_RELEASE);
}

/* True if the connection is closed. Callers without the lock: a waiter that armed its wake word (P6 of sb_wait.h,
 * seq_cst), and a caller that checks again with the lock. */
static inline bool sb_closed(const sb_connection *c) { return SB_LOAD(&c->closed, SB_SEQ_CST) != 0; }

/* Token of `boot` in the process slot: the entry for a connection that is being opened and has no holdings yet. */
#define SB_TOKEN_BOOT (UINT64_C(1) << 40)
static inline sb_holding_shm *sb_holding_at(const sb_broker *b, uint64_t token) {
  if (token == SB_TOKEN_BOOT) {
    return &b->processes[b->process].boot;
  }
  return (sb_holding_shm *)(void *)(b->arena + token * sizeof(sb_holding_shm));
}
static inline uint64_t sb_holding_what(unsigned kind, uint32_t slot, uint64_t gen) {
  return (uint64_t)kind | SB_FIELD(slot, 4) | SB_FIELD(gen, 32);
}
static inline unsigned sb_holding_kind(uint64_t w) { return (unsigned)SB_BITS(w, 0, 4); }
static inline uint32_t sb_holding_slot(uint64_t w) { return (uint32_t)SB_BITS(w, 4, 28); }
static inline uint32_t sb_holding_gen(uint64_t w) { return (uint32_t)(w >> 32); }
/* sb_holding_leaf: of an entry that lists a cell, the slot of the leaf with the cell. sb_holding_counter: of an entry
 * SETTLING, the index of the counter that the settlement raises. */
static inline uint32_t sb_holding_leaf(uint64_t w) { return (uint32_t)SB_BITS(w, 32, 28); }
static inline unsigned sb_holding_counter(uint64_t w) { return (unsigned)(w >> 60); }

static inline void sb_holding_set(const sb_broker *b, uint64_t token, uint64_t what, uint64_t where) {
  sb_holding_shm *h = sb_holding_at(b, token);
  SB_STORE(&h->where, where, SB_RELAXED); /* the next store makes it visible */
  SB_STORE(&h->what, what, SB_RELEASE);   /* P8 release: the entry comes before the CAS that it announces */
}

#endif
