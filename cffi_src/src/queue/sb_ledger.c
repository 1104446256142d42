// SPDX-License-Identifier: Apache-2.0
#include "sb_ledger.h"

#include <string.h>

#include "sb_slab.h"
#include "sb_wait.h"

sb_ledger_shm *sb_ledger_at(sb_broker *b, uint32_t slot) { return sb_slab_object(b, slot, SB_KIND_LEDGER); }

static sb_ledger_shm *first_ledger(sb_broker *b, const sb_queue_shm *q) {
  return sb_ledger_at(b, SB_LOAD(&q->ledgers, SB_ACQUIRE));
}
static sb_ledger_shm *next_ledger(sb_broker *b, const sb_ledger_shm *l, sb_chain *chain) {
  uint32_t slot = SB_LOAD(&l->next, SB_ACQUIRE);
  return sb_chain_bites(chain, slot) ? NULL : sb_ledger_at(b, slot);
}

static uint64_t owner_word(unsigned conn, uint64_t epoch) { return (uint64_t)conn | SB_FIELD(epoch, 12); }

void sb_ledger_start(sb_ledger_shm *l) {
  uint64_t epoch = SB_LOAD(&l->owner, SB_RELAXED) >> 12; /* relaxed: the caller owns the ledger */
  sb_ledger_hinting_ended(l);
  SB_STORE(&l->holding, SB_FIELD(epoch & 0xffffffffu, 32), SB_RELEASE);
}

static bool take(sb_connection *c, uint32_t queue, sb_ledger_shm *l, uint64_t owner, uint64_t token) {
  sb_holding_set(c->b, token, sb_holding_what(SB_HOLD_LEDGER, queue, 0), sb_slot_of(c->b, l));
  return SB_CAS(&l->owner, &owner, owner_word(c->id, (owner >> 12) + 1), SB_SEQ_CST); /* I20 */
}

sb_status sb_ledger_inherit(sb_connection *c, uint32_t queue, sb_ledger_shm *l, unsigned dead, uint64_t *token) {
  uint64_t owner = SB_LOAD(&l->owner, SB_ACQUIRE);
  sb_status status = SB_BITS(owner, 0, 12) == dead ? sb_holding_take(c, token) : SB_SETTLED;
  if (status == SB_OK && !take(c, queue, l, owner, *token)) {
    sb_holding_give(c, *token);
    status = SB_SETTLED;
  }
  if (status == SB_OK) sb_ledger_start(l); /* I20: the ledger had an owner all along, so the queue was not freed */
  return status;
}

sb_status sb_ledger_adopt(sb_connection *c, uint32_t queue, sb_ledger_shm **ledger, uint64_t *token) {
  sb_broker *b = c->b;
  sb_queue_shm *q = sb_slot_at(b, queue);
  sb_status status = sb_holding_take(c, token);
  if (status != SB_OK) {
    return status;
  }
  uint32_t slot;
  sb_chain chain = {0};
  sb_ledger_shm *l;
  for (slot = SB_LOAD(&q->ledgers, SB_ACQUIRE); slot != 0; slot = SB_LOAD(&l->next, SB_ACQUIRE)) {
    if (slot == SB_LEDGERS_SEALED) {
      sb_holding_give(c, *token);
      return SB_DELETED;
    }
    l = sb_chain_bites(&chain, slot) ? NULL : sb_ledger_at(b, slot);
    if (l == NULL) {
      sb_holding_give(c, *token);
      return SB_CORRUPT;
    }
    uint64_t owner = SB_LOAD(&l->owner, SB_ACQUIRE);
    if (SB_BITS(owner, 0, 12) == 0 && take(c, queue, l, owner, *token)) {
      *ledger = l;
      return SB_OK;
    }
  }
  uint64_t gen;
  status = sb_slab_alloc(c, sb_class_of_kind(b, SB_KIND_LEDGER), *token, &slot, &gen);
  if (status != SB_OK) {
    sb_holding_give(c, *token);
    return status;
  }
  l = sb_slot_at(b, slot);
  memset(l, 0, sizeof *l);
  SB_STORE(&l->queue, queue, SB_RELAXED);
  SB_STORE(&l->owner, owner_word(c->id, 1), SB_RELAXED);
  uint64_t mine = sb_slot_word(SB_SLOT_ALLOC, c->id, gen);
  uint32_t first = SB_LOAD(&q->ledgers, SB_ACQUIRE);
  do {
    if (first == SB_LEDGERS_SEALED) {
      (void)sb_slab_free(b, slot, mine);
      sb_holding_give(c, *token);
      return SB_DELETED;
    }
    SB_STORE(&l->next, first, SB_RELAXED);
  } while (!SB_CAS(&q->ledgers, &first, slot, SB_SEQ_CST)); /* I20 */
  SB_CRASHPOINT("ledger.linked");
  (void)SB_CAS(sb_slot_header(b, slot), &mine, sb_slot_word(SB_SLOT_PUBLISHED, 1, gen), SB_ACQ_REL);
  sb_holding_set(b, *token, sb_holding_what(SB_HOLD_LEDGER, queue, 0), slot);
  *ledger = l;
  return SB_OK;
}

void sb_ledger_renounce(sb_connection *c, sb_ledger_shm *ledger, uint64_t token) {
  uint64_t owner = SB_LOAD(&ledger->owner, SB_ACQUIRE);
  if (SB_BITS(owner, 0, 12) == c->id) (void)SB_CAS(&ledger->owner, &owner, owner_word(0, owner >> 12), SB_ACQ_REL);
  sb_holding_give(c, token);
}

void sb_ledger_leave(sb_connection *c, sb_ledger_shm *ledger, uint64_t token) {
  uint64_t owner = SB_LOAD(&ledger->owner, SB_ACQUIRE);
  if (SB_BITS(owner, 0, 12) == c->id) {
    sb_ledger_hinting_ended(ledger);
    SB_STORE(&ledger->owner, owner_word(0, owner >> 12), SB_RELEASE);
  }
  sb_holding_give(c, token);
}

uint64_t sb_ledger_sum(sb_broker *b, const sb_queue_shm *q, unsigned counter) {
  uint64_t sum = 0;
  sb_chain chain = {0};
  for (sb_ledger_shm *l = first_ledger(b, q); l != NULL; l = next_ledger(b, l, &chain)) {
    sum += SB_LOAD(&l->counters[counter], SB_ACQUIRE);
  }
  return sum;
}
/* The sum of some counters, in one walk over the ledgers. */
static inline uint64_t sum_of(sb_broker *b, const sb_queue_shm *q, const unsigned *counters, unsigned count) {
  uint64_t sum = 0;
  sb_chain chain = {0};
  for (sb_ledger_shm *l = first_ledger(b, q); l != NULL; l = next_ledger(b, l, &chain)) {
    for (unsigned i = 0; i < count; i++) sum += SB_LOAD(&l->counters[counters[i]], SB_ACQUIRE);
  }
  return sum;
}
uint64_t sb_ledger_came(sb_broker *b, const sb_queue_shm *q) {
  static const unsigned in[] = {SB_COUNT_UNSCHEDULED, SB_COUNT_ADDED};
  return sum_of(b, q, in, sizeof in / sizeof in[0]);
}
uint64_t sb_ledger_left(sb_broker *b, const sb_queue_shm *q) {
  static const unsigned out[] = {SB_COUNT_ACKED,   SB_COUNT_EXPIRED,       SB_COUNT_KILLED, SB_COUNT_REPLACED,
                                 SB_COUNT_DROPPED, SB_COUNT_DEAD_LETTERED, SB_COUNT_MOVED,  SB_COUNT_SCHEDULED};
  return sum_of(b, q, out, sizeof out / sizeof out[0]);
}
uint64_t sb_ledger_holding(sb_broker *b, const sb_queue_shm *q) {
  uint64_t sum = 0;
  sb_chain chain = {0};
  for (sb_ledger_shm *l = first_ledger(b, q); l != NULL; l = next_ledger(b, l, &chain)) {
    sum += (uint32_t)SB_LOAD(&l->holding, SB_ACQUIRE);
  }
  return sum;
}
sb_changes sb_ledger_changes(sb_broker *b, const sb_queue_shm *q, const sb_ledger_shm *but) {
  sb_chain chain = {0};
  sb_changes sum = {0};
  for (sb_ledger_shm *l = first_ledger(b, q); l != NULL; l = next_ledger(b, l, &chain)) {
    if (l == but) continue;
    uint64_t hinting = SB_LOAD(&l->hinting, SB_SEQ_CST), reserved = SB_LOAD(&l->admitting, SB_SEQ_CST);
    uint64_t depth = hinting & SB_HINTING_DEPTH;
    sum.depth += depth;
    sum.raised += hinting >> 32;
    sum.unknown_bytes += depth > reserved >> 40 ? depth - (reserved >> 40) : 0;
    sum.reserved_bytes += reserved & SB_RESERVED_BYTES;
  }
  return sum;
}
unsigned sb_ledger_any_owner(sb_broker *b, const sb_queue_shm *q, bool (*is)(sb_broker *b, unsigned connection)) {
  sb_chain chain = {0};
  for (sb_ledger_shm *l = first_ledger(b, q); l != NULL; l = next_ledger(b, l, &chain)) {
    unsigned owner = (unsigned)SB_BITS(SB_LOAD(&l->owner, SB_SEQ_CST), 0, 12); /* I20 */
    if (owner != 0 && is(b, owner)) {
      return owner;
    }
  }
  return 0;
}
/* The number of times that `stays` reads a ledger again. A process that runs usually ends its changes of hints
 * meanwhile. One that was killed or stopped does not. */
#define PATIENCE 4u
static bool stays(const sb_ledger_shm *l) {
  uint64_t hinting = SB_LOAD(&l->hinting, SB_ACQUIRE);
  bool same = (hinting & SB_HINTING_DEPTH) != 0;
  for (unsigned n = 0; same && n < PATIENCE; n++) {
    sb_pause();
    same = SB_LOAD(&l->hinting, SB_ACQUIRE) == hinting;
  }
  return same;
}
unsigned sb_ledger_stuck(sb_broker *b, const sb_queue_shm *q, unsigned but,
                         bool (*is)(sb_broker *b, unsigned connection)) {
  sb_chain chain = {0};
  for (sb_ledger_shm *l = first_ledger(b, q); l != NULL; l = next_ledger(b, l, &chain)) {
    unsigned owner = (unsigned)SB_BITS(SB_LOAD(&l->owner, SB_ACQUIRE), 0, 12);
    if (owner != 0 && owner != but && stays(l) && is(b, owner)) {
      return owner;
    }
  }
  return 0;
}
/* The most reads of a connection's gate (sb_grace.h) in search of a moment between two of its calls: about 0.1 ms. */
#define LOOKS 2000u
static bool was_outside(sb_broker *b, unsigned connection) {
  sb_connection_shm *shm = sb_connection_record(b, connection);
  if (shm == NULL) { /* a LIVE connection is being opened or closed, so it may be inside; any other makes no call */
    return sb_conn_state(SB_LOAD(&b->connections[connection], SB_ACQUIRE)) != SB_CONN_LIVE;
  }
  for (unsigned n = 0; n < LOOKS && SB_LOAD(&shm->gate.inside, SB_RELAXED) != 0; n++) sb_pause(); /* relaxed: a hint */
  return SB_OR(&shm->gate.inside, 0, SB_SEQ_CST) == 0; /* P21 of sb_grace.h */
}
bool sb_ledger_others_know(sb_broker *b, const sb_queue_shm *q, unsigned but) {
  sb_chain chain = {0};
  for (sb_ledger_shm *l = first_ledger(b, q); l != NULL; l = next_ledger(b, l, &chain)) {
    unsigned owner = (unsigned)SB_BITS(SB_LOAD(&l->owner, SB_SEQ_CST), 0, 12);
    if (owner != 0 && owner != but && !was_outside(b, owner)) {
      return false;
    }
  }
  return true;
}
sb_ledger_shm *sb_ledger_of(sb_broker *b, const sb_queue_shm *q, unsigned connection) {
  sb_chain chain = {0};
  sb_ledger_shm *l = first_ledger(b, q);
  while (l != NULL && SB_BITS(SB_LOAD(&l->owner, SB_ACQUIRE), 0, 12) != connection) l = next_ledger(b, l, &chain);
  return l;
}
static bool anybody(sb_broker *b, unsigned connection) {
  (void)b;
  return connection != 0;
}
bool sb_ledger_owned(sb_broker *b, const sb_queue_shm *q) { return sb_ledger_any_owner(b, q, anybody) != 0; }
