// SPDX-License-Identifier: Apache-2.0
/* A connection as its own process sees it, and the table of what it holds.
 *
 * What: the connection is the owner written into slots and cells (12-bit id). Its *holdings* are a shared table of
 * everything it is taking, holds or is giving back; an entry is written before the CAS it announces, so a reaper
 * walks this table instead of the whole broker.
 *
 * Layout: chunks of 255 entries linked from the connection record. An entry is named by its *token*: its arena offset
 * divided by 16. Free entries are linked through their own second word, which only the living owner reads.
 *
 * Invariants:
 *  I10 whatever names this connection as owner is listed in its holdings; a listed thing need not be owned any more.
 *  I11 chunks are only added while the connection lives.
 *
 * Ordering pairs:
 *  P8 an entry is stored (release) before the CAS that takes what it names; the reaper reads it after the death.
 *
 * Death: killed before the CAS: the entry names something it does not own; the reaper looks at the authoritative word
 *  and leaves it alone. Killed while a new chunk is being linked: `linking` names it.
 *
 * Concurrency: single writer: all calls of a connection that touch shared words run under its process-local `lock`.
 */
#ifndef SB_CONNECTION_H
#define SB_CONNECTION_H

#include "sb_segment.h"

/* Hint bits of one word: taken for allocation, or collected from freed slots. */
typedef struct {
  uint64_t mask;
  uint32_t chunk, word;
} sb_slab_cache;

struct sb_connection;

struct sb_target;
struct sb_channel;
struct sb_deal;
struct sb_queue;
struct sb_grace;

#define SB_DEALS 64u

/* What the IO thread of a connection knows of those who look after the broker, from run to run of sb_io_run. */
typedef struct {
  bool lowest;              /* its process is the one that looks often */
  uint64_t looked, present; /* when it looked last (0: never), and when a housekeeper was there */
  uint64_t turns;           /* of the housekeeper, then */
} sb_lookout;

struct sb_connection {
  sb_broker *b;
  struct sb_queue *queues;                          /* open handles, see sb_handles.h */
  struct sb_queue *handles_next;                    /* which is looked at next, NULL = the first */
  uint32_t handle_count, handles_seen, handles_due; /* how many; `queues_closed` as it was seen; how many to look at */
  uint64_t handles_calm;                            /* the `queues_closed` with which there is nothing to look at */
  uint64_t handles_again_ns;                        /* something of a deleted queue is held: look again then, 0 = no */
  uint64_t stand_in_asked_ns; /* when the IO thread asked last for somebody who stands in for a stopped housekeeper */
  uint64_t looked_deaths;     /* of processes, when the IO thread looked last at what nobody told it of */
  uint32_t stands_for;        /* the node of the housekeeper that this connection stands in for */
  bool handles_stay;          /* its owner lets go itself */
  struct sb_target **targets; /* SB_MAX_TARGETS chains, see sb_target.h */
  uint32_t target_bits;       /* none was ever used from here on */
  uint32_t target_count, next_target;
  uint64_t pending[SB_MAX_TARGETS / 64]; /* targets that have a turn to come */
  uint64_t io_token;
  uint32_t io_node, io_rotation;
  uint64_t acks_tick_ns; /* a batch of acknowledgements may wait: the IO thread looks that often, 0 = no need */
  uint32_t acks_idle;
  /* of its channels, see sb_channel.h */
  struct sb_deal *deals[SB_DEALS]; /* queues they consume, by a hash */
  struct sb_channel *ready_first, *ready_last;
  sb_half ready; /* 1: there are such. Also read without the lock, by the IO thread before it sleeps */
  uint32_t limit, unacked;
  bool limited, taking_turns; /* their nodes are not interested, because of `limit`; the IO thread looks afterwards */
  bool must_grow;             /* there is no room for what is to be pulled: the IO thread asks for more */
  sb_lookout lookout;         /* the IO thread's own */
  unsigned use;               /* SB_USE_...: what memory is taken for, see sb_reserve.h */
  uint32_t tables;            /* how many chunks its holdings have */
  sb_connection_shm *shm;
  uint32_t id, record;
  bool forgotten;    /* all that was shared is given back: its broker may not be mapped any more */
  sb_half closed;    /* process-local: no further use. Set under the lock, see sb_closed */
  sb_half handles;   /* handles that point here: itself, queues, consumers; the last one to go frees it */
  sb_half lock;      /* see sb_lock */
  sb_gate_shm *gate; /* of its record; its own one before it has a record, and when it has none any more */
  sb_gate_shm own_gate;
  uint64_t answered;                      /* `asked` of its gate, as the last call found it */
  void (*renew)(struct sb_connection *c); /* forgets what handles remember of pages, NULL: there are no handles */
  struct sb_grace *grace;                 /* what it drains, NULL: nothing, see sb_grace.h */
  uint64_t free_holding;                  /* token of the first free entry, 0 = none */
  uint64_t page_token;                    /* kept aside for retiring pages: an ack must never fail for want of memory */
  sb_holdings_shm *last;
  uint64_t swept_ns[SB_MAX_CLASSES];
  uint64_t
      crowded_until_ns; /* no chunk could be opened or drained for a body: until then longer slots come first, 0 = no */
  sb_slab_cache cache[SB_MAX_CLASSES];
  sb_slab_cache freed; /* slots of one hint word that were freed and are not hinted at yet */
  unsigned freed_class;
};

/* The lock of a connection: among the threads of one process, held for a microsecond. Who has it is inside the core, which the
 * gate tells the others (sb_grace.h). */
void sb_lock_contended(sb_half *lock);
/* The same for a whole connection: takes the lock, then enters the gate by a swap. */
void sb_lock_by_swap(sb_connection *c);
void sb_gate_renew(sb_connection *c);
/* Asks, as who drains; true while a call is inside. */
bool sb_gate_ask(sb_gate_shm *gate);
/* The record goes: nothing that is shared is touched from here on but the connection's own word, and headers of slots. */
void sb_gate_leave_record(sb_connection *c);
#if defined(__x86_64__) || defined(__i386__)
#define SB_CAS_IS_BARRIER true /* others see what was stored before it, before anything is read behind it */
#else
#define SB_CAS_IS_BARRIER false
#endif
static inline void sb_lock(sb_connection *c) {
  uint32_t unlocked = 0;
  /* Its record may go while it closes: then nothing is written there without the lock. */
  if (!SB_CAS_IS_BARRIER || SB_LOAD(&c->closed, SB_RELAXED) != 0) {
    sb_lock_by_swap(c);
  } else {
    SB_STORE(&c->gate->inside, 1, SB_RELAXED); /* P21: the CAS makes it seen */
    if (!SB_CAS(&c->lock, &unlocked, 1u, SB_SEQ_CST)) {
      sb_lock_by_swap(c); /* who has the lock takes back what we stored */
    } else if (SB_LOAD(&c->gate->inside, SB_RELAXED) == 0) {
      (void)SB_SWAP(&c->gate->inside, 1, SB_SEQ_CST); /* who had it took it back */
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

/* Is also asked without the lock: by whoever armed a wake word (P6, seq_cst), or will ask again with it. */
static inline bool sb_closed(const sb_connection *c) { return SB_LOAD(&c->closed, SB_SEQ_CST) != 0; }

/* While a connection is being opened it has no holdings yet: its process slot announces for it. */
#define SB_TOKEN_BOOT (UINT64_C(1) << 40)
static inline sb_holding_shm *sb_holding_at(const sb_broker *b, uint64_t token) {
  if (token == SB_TOKEN_BOOT) {
    return &b->processes[b->process].boot;
  }
  return (sb_holding_shm *)(void *)(b->arena + token * sizeof(sb_holding_shm));
}
static inline uint64_t sb_holding_what(unsigned kind, uint32_t slot, uint64_t gen) {
  return (uint64_t)kind | SB_PUT(slot, 4) | SB_PUT(gen, 32);
}
static inline unsigned sb_holding_kind(uint64_t w) { return (unsigned)SB_BITS(w, 0, 4); }
static inline uint32_t sb_holding_slot(uint64_t w) { return (uint32_t)SB_BITS(w, 4, 28); }
static inline uint32_t sb_holding_gen(uint64_t w) { return (uint32_t)(w >> 32); }
/* Of a cell: the slot of its leaf, and why it is being settled. */
static inline uint32_t sb_holding_leaf(uint64_t w) { return (uint32_t)SB_BITS(w, 32, 28); }
static inline unsigned sb_holding_counter(uint64_t w) { return (unsigned)(w >> 60); }

static inline void sb_holding_set(const sb_broker *b, uint64_t token, uint64_t what, uint64_t where) {
  sb_holding_shm *h = sb_holding_at(b, token);
  SB_STORE(&h->where, where, SB_RELAXED); /* made visible by the next line */
  SB_STORE(&h->what, what, SB_RELEASE);   /* P8 release: before the CAS it announces */
}

#endif
