// SPDX-License-Identifier: Apache-2.0
/* Public calls: the storekeeper, and waiting for it. Positions are given as sequence numbers: these stay the same when a
 * queue is made again from the store. */
#include "sb_api.h"
#include "sb_changes.h"
#include "sb_directory.h"
#include "sb_duplicates.h"
#include "sb_gather.h"
#include "sb_properties.h"
#include "sb_turns.h"

/* ---- waiting ---- */

uint32_t sb_broker_sync(sb_broker *b) { return SB_LOAD(&b->header->sync, SB_RELAXED); }

bool sb_broker_store_refuses(sb_broker *b) { return SB_LOAD(&b->header->store_refuses, SB_RELAXED) != 0; }

bool sb_queue_is_stored(const sb_queue *q) { return sb_queue_stores(q); }
bool sb_queue_waits_for_store(const sb_queue *q) { return q->waits_for_store; }
bool sb_put_waits_for_store(const sb_queue *q, const sb_put_options *o) {
  return q->waits_for_store && (o == NULL || !sb_properties_are_transient(o->properties, o->properties_length));
}

uint32_t sb_store_ask(sb_connection *c) { return sb_turns_ask(c->b); }

sb_status sb_store_await(sb_connection *c, uint32_t turn, uint64_t deadline_ns) {
  sb_status status = sb_usable(c);
  return status == SB_OK ? sb_turns_wait(c->b, turn, deadline_ns) : status;
}

/* ---- a full disk ---- */

void sb_store_set_full(sb_connection *c, bool full) {
  SB_STORE(&c->b->header->store_full, full ? 1u : 0u, SB_RELEASE);
  if (!full) sb_wake_all(&c->b->header->store_full);
}

bool sb_store_is_full(sb_broker *b) { return SB_LOAD(&b->header->store_full, SB_ACQUIRE) != 0; }

/* A purge does not wake the threads that wait, nor does the close of their connection: they look from time to time. */
#define LOOK_NS UINT64_C(200000000)

sb_status sb_store_await_room(sb_connection *c, uint64_t deadline_ns) {
  for (;;) {
    sb_status status = sb_usable(c);
    uint64_t now = sb_now_ns(), until = now + LOOK_NS < deadline_ns ? now + LOOK_NS : deadline_ns;
    bool interrupted;
    if (status != SB_OK || !sb_store_is_full(c->b)) return status;
    if (SB_LOAD(&c->b->header->closing, SB_RELAXED) != 0) return SB_STOPPING;
    if (!sb_wake_sleep(&c->b->header->store_full, 1, until, &interrupted) && sb_store_is_full(c->b)) {
      if (interrupted) return SB_INTERRUPTED;
      if (until == deadline_ns) return SB_TIMEOUT;
    }
  }
}

/* ---- the storekeeper's place ---- */

sb_status sb_store_begin(sb_connection *c) {
  uint32_t nobody = 0;
  if (!SB_CAS(&c->b->keeps_store, &nobody, 1u, SB_ACQUIRE)) { /* the byte lock excludes only other processes */
    return SB_EXISTS;
  }
  if (!sb_lock_byte(c->b->lock_fd, SB_LOCK_STOREKEEPER)) {
    SB_STORE(&c->b->keeps_store, 0u, SB_RELAXED);
    return SB_EXISTS;
  }
  SB_STORE(&c->b->header->storekeeper_pid, (uint32_t)SB_LOAD(&c->b->processes[c->b->process].pid, SB_RELAXED),
           SB_RELAXED);
  SB_STORE(&c->b->header->storekeeper_waiter, c->io_node, SB_RELEASE);
  c->handles_stay = true; /* as the housekeeper's */
  return SB_OK;
}

void sb_store_end(sb_connection *c) {
  SB_STORE(&c->b->header->storekeeper_waiter, 0u, SB_RELEASE);
  SB_STORE(&c->b->header->storekeeper_pid, 0u, SB_RELAXED);
  sb_unlock_byte(c->b->lock_fd, SB_LOCK_STOREKEEPER);
  SB_STORE(&c->b->keeps_store, 0u, SB_RELAXED);
}

int32_t sb_store_keeper(sb_broker *b) {
  bool kept = SB_LOAD(&b->keeps_store, SB_RELAXED) != 0 || sb_byte_holder(b->lock_fd, SB_LOCK_STOREKEEPER) != 0;
  return kept ? (int32_t)SB_LOAD(&b->header->storekeeper_pid, SB_RELAXED) : 0;
}

uint32_t sb_store_turn_begin(sb_connection *c) { return sb_turns_begin(c->b); }
void sb_store_turn_end(sb_connection *c, uint32_t turn) { sb_turns_end(c->b, turn); }

uint32_t sb_store_commits(sb_connection *c) { return sb_turns_commits(c->b); }
uint32_t sb_store_await_commits(sb_connection *c) { return sb_turns_await_commits(c->b); }
void sb_store_hold_commits(sb_connection *c, bool held) { sb_turns_hold_commits(c->b, held); }

/* A new value counts as much as the last AVERAGED ones. Only the storekeeper writes these words. */
#define AVERAGED 8u
static void average(sb_word *word, uint64_t value) {
  uint64_t before = SB_LOAD(word, SB_RELAXED);
  SB_STORE(word, before == 0 ? value : before - before / AVERAGED + value / AVERAGED, SB_RELAXED);
}

void sb_store_report(sb_connection *c, uint64_t sync_ns, uint64_t messages) {
  average(&c->b->header->sync_ns, sync_ns);
  average(&c->b->header->synced_messages, messages * AVERAGED); /* in eighths: a turn may have one message */
}

void sb_store_describe(sb_broker *b, sb_store_facts *facts) {
  sb_header_shm *h = b->header;
  *facts = (sb_store_facts){.sync_ns = SB_LOAD(&h->sync_ns, SB_RELAXED),
                            .messages = SB_LOAD(&h->synced_messages, SB_RELAXED) / AVERAGED,
                            .came_back = SB_LOAD(&h->arrivals, SB_RELAXED),
                            .turns = SB_LOAD(&h->turns_done, SB_RELAXED),
                            .left = SB_LOAD(&h->departures, SB_RELAXED),
                            .keeper = sb_store_keeper(b)};
}

sb_status sb_store_rest(sb_connection *c, uint64_t deadline_ns) {
  sb_half *wake = &((sb_node_shm *)sb_slot_at(c->b, c->io_node))->wake;
  uint32_t armed = sb_wake_arm(wake);
  bool interrupted = false, woken = true;
  bool ends = SB_LOAD(&c->b->header->closing, SB_SEQ_CST) != 0 || SB_LOAD(&c->b->header->stopped, SB_SEQ_CST) != 0;
  if (!ends && !sb_turns_are_asked(c->b)) woken = sb_wake_sleep(wake, armed, deadline_ns, &interrupted);
  sb_wake_disarm(wake);
  return ends ? SB_STOPPING : interrupted ? SB_INTERRUPTED : woken ? SB_OK : SB_TIMEOUT;
}

/* ---- which queues ---- */

static bool has_work(sb_broker *b, uint32_t slot) {
  bool works = false;
  sb_ring r;
  for (sb_lanes_walk all = sb_lanes_of(b, slot); !works && sb_lanes_next(&all, &r);) {
    /* I121 of sb_gather.h: a lane of which nothing was stored has a `stored` below its base */
    uint64_t base = SB_LOAD(r.base, SB_RELAXED), stored = SB_LOAD(r.stored, SB_ACQUIRE);
    works = SB_LOAD(r.changed, SB_SEQ_CST) != 0 || sb_ring_exact_tail(b, &r) > (stored > base ? stored : base);
  }
  return works;
}

/* P42 of sb_turns.h: the directory, the tails and the bits are read after the turn began. */
uint32_t sb_store_look(sb_connection *c, sb_store_work *found, uint32_t most, uint64_t *all) {
  uint32_t index = 0, slot, count = 0;
  sb_ring r;
  *all = 0;
  if (sb_api_enter(c) != SB_OK) {
    return 0;
  }
  while ((slot = sb_directory_next(c->b, &index, false)) != 0) {
    const sb_queue_shm *q = sb_slab_queue(c->b, slot);
    if (q == NULL || !sb_ring_open(c->b, slot, SB_RING_CELLS, &r) || r.changed == NULL) {
      continue;
    }
    uint64_t incarnation = SB_LOAD(&q->state, SB_ACQUIRE) >> 2;
    *all += (incarnation << 24 ^ slot) * UINT64_C(0x9e3779b97f4a7c15);
    if (!has_work(c->b, slot)) {
      continue;
    }
    if (count < most) found[count] = (sb_store_work){.slot = slot, .incarnation = incarnation};
    count++;
  }
  sb_api_leave(c);
  return count;
}

/* ---- lanes ---- */

uint32_t sb_store_lanes(sb_queue *q, sb_store_lane *lanes, uint32_t most) {
  uint32_t count = 0;
  sb_ring r;
  if (sb_api_enter(q->c) != SB_OK) {
    return 0;
  }
  sb_lanes_walk walk = sb_lanes_of(q->c->b, q->slot);
  while (count < most && sb_lanes_next(&walk, &r)) {
    uint64_t base = SB_LOAD(r.base, SB_RELAXED), tail = sb_ring_exact_tail(q->c->b, &r);
    uint64_t stored = SB_LOAD(r.stored, SB_ACQUIRE), zero = sb_position_in(sb_position_lane(base), 0);
    uint64_t head = SB_LOAD(r.head, SB_RELAXED);
    lanes[count++] = (sb_store_lane){.stored = zero + (stored > base ? stored - base : 0),
                                     .tail = zero + (tail - base),
                                     .head = zero + (head > base ? head - base : 0)};
  }
  sb_api_leave(q->c);
  return count;
}

/* Finds the ring of a sequence number, and the position of the number. */
static bool find(sb_queue *q, uint64_t sequence, sb_ring *r, uint64_t *position) {
  if (!sb_lanes_ring(q->c->b, q->slot, sequence, r)) {
    return false;
  }
  *position = SB_LOAD(r->base, SB_RELAXED) + sb_position_place(sequence);
  return true;
}

void sb_store_advance(sb_queue *q, uint64_t sequence) {
  sb_ring r;
  uint64_t position;
  if (sb_api_enter(q->c) == SB_OK) {
    if (find(q, sequence, &r, &position)) SB_STORE(r.stored, position, SB_RELEASE);
    sb_api_leave(q->c);
  }
}

/* ---- gathering ---- */

sb_status sb_store_gather(sb_queue *q, uint64_t *sequence, uint64_t end, sb_store_row *row) {
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return status;
  }
  sb_ring r;
  uint64_t position;
  sb_gathering g = {.heads = row->heads,
                    .bodies = row->bodies,
                    .heads_size = row->heads_size,
                    .bodies_size = row->bodies_size,
                    .which = (sb_gather_which)row->which,
                    .ids = row->ids};
  if (find(q, *sequence, &r, &position)) {
    uint64_t from = position;
    status = sb_gather_row(q, &position, position + (end - *sequence), &g);
    row->staged = g.staged;
    row->transient = g.transient;
    row->first = *sequence + (g.first - from);
    *sequence += position - from;
  } else {
    status = SB_CORRUPT;
  }
  row->heads_size = g.heads_size;
  row->bodies_size = g.bodies_size;
  row->heads_length = g.heads_length;
  row->bodies_length = g.bodies_length;
  row->count = g.count;
  row->damaged = g.damaged;
  row->id_count = g.id_count;
  sb_api_leave(q->c);
  return status;
}

typedef struct {
  sb_store_change *changes;
  uint32_t most, count;
  uint64_t base;
} collection;

static bool collect(void *with, const sb_changes_part *part) {
  collection *k = with;
  if (k->count == k->most) {
    return false;
  }
  uint64_t zero = sb_position_in(sb_position_lane(k->base), 0);
  sb_store_change change = {.first = zero + (part->first - k->base), .span = part->span};
  if (part->first < k->base) { /* the ring has no cells before its base */
    uint64_t before = k->base - part->first;
    if (part->leaf.leaf != NULL || before >= part->span) return true;
    change.first = zero;
    change.span -= before;
  }
  for (uint64_t cells = part->cells; cells != 0; cells &= cells - 1) {
    unsigned i = (unsigned)__builtin_ctzll(cells);
    uint64_t bit = UINT64_C(1) << i;
    unsigned state = sb_cell_state(part->words[i]);
    if (state == SB_CELL_TOMBSTONE) change.ended |= bit;
    if (state == SB_CELL_STAGED || !sb_cell_has_message(part->words[i])) continue;
    change.live |= bit;
    if ((part->sides[i] & ~SB_GEN_MASK) != 0) change.returned |= bit;
  }
  change.whole = part->leaf.leaf == NULL;
  if (change.whole || (change.ended | change.live) != 0) k->changes[k->count++] = change;
  return true;
}

bool sb_store_changes(sb_queue *q, uint64_t lane, bool all, sb_store_change *changes, uint32_t most, uint32_t *count) {
  sb_ring r;
  uint64_t position;
  bool done = true;
  *count = 0;
  if (sb_api_enter(q->c) == SB_OK) {
    if (find(q, lane, &r, &position) && r.changed != NULL) {
      collection k = {.changes = changes, .most = most, .base = SB_LOAD(r.base, SB_RELAXED)};
      done = sb_changes_visit(q->c->b, &r, all, collect, &k);
      *count = k.count;
    }
    sb_api_leave(q->c);
  }
  return done;
}

/* ---- duplicate ids ---- */

uint32_t sb_store_ids(sb_queue *q, uint64_t from, sb_store_id *ids, uint32_t most) {
  uint32_t count = 0;
  if (sb_api_enter(q->c) == SB_OK) {
    count = sb_duplicates_list(q, from, ids, most);
    sb_api_leave(q->c);
  }
  return count;
}

bool sb_store_knows(sb_queue *q, sb_store_id *id) {
  bool known = false;
  if (sb_api_enter(q->c) == SB_OK) {
    known = sb_duplicates_number(q, (sb_id){id->low, id->high}, &id->number);
    sb_api_leave(q->c);
  }
  return known;
}

bool sb_store_id_numbers(sb_queue *q, uint64_t *latest, uint64_t *forgotten) {
  bool some = false;
  if (sb_api_enter(q->c) == SB_OK) {
    *forgotten = sb_duplicates_forgotten(q->shm);
    *latest = SB_LOAD(&q->shm->id_numbers, SB_SEQ_CST);
    some = SB_LOAD(&q->shm->ids, SB_SEQ_CST) != 0;
    sb_api_leave(q->c);
  }
  return some;
}
