// SPDX-License-Identifier: Apache-2.0
/* Public call: publishing to several queues, and transactions. */
#include <stdlib.h>
#include <string.h>

#include "sb_api.h"
#include "sb_transaction.h"
#include "sb_disposal.h"
#include "sb_life.h"

#define NO_ONE UINT32_MAX
static const sb_put_options NO_OPTIONS;

typedef struct {
  sb_transaction_plan plan;
  const sb_publication *publications;
  const sb_settlement *settlements;
  uint32_t count, settlement_count;
  uint32_t failed_publication, failed_target;
  bool carries_out;     /* the commit sends dead messages on: their ids were looked up before */
  bool transfers;       /* whether a settlement is SB_TRANSFER */
  uint64_t ended_bytes; /* sum of the body lengths of the messages that the commit ends */
  uint32_t *slots;      /* queue slots of the targets of the current publication */
} request;

static const sb_put_options *options_of(const sb_publication *p) {
  return p->options != NULL ? p->options : &NO_OPTIONS;
}

static sb_status blame(request *r, uint32_t publication, uint32_t target, sb_status status) {
  if (status != SB_OK) {
    r->failed_publication = publication;
    r->failed_target = target;
  }
  return status;
}

/* ---- checks ---- */

static int by_slot(const void *one, const void *other) {
  uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
  return a < b ? -1 : a > b;
}
/* Sorts the target slots of a publication. False: a queue is named twice. */
static bool sort(uint32_t *slots, uint32_t count) {
  qsort(slots, count, sizeof *slots, by_slot);
  for (uint32_t i = 1; i < count; i++) {
    if (slots[i] == slots[i - 1]) return false;
  }
  return true;
}

static sb_status check_publication(request *r, uint32_t i) {
  const sb_publication *p = &r->publications[i];
  if (p->length > SB_MAX_BODY) {
    return blame(r, i, NO_ONE, SB_TOO_LARGE);
  }
  if (sb_api_prefix_bytes(options_of(p)) > SB_MAX_PREFIX) {
    return blame(r, i, NO_ONE, SB_INVALID);
  }
  if (p->target_count > SB_MAX_TARGETS) {
    return blame(r, i, NO_ONE, SB_LIMIT);
  }
  for (uint32_t t = 0; t < p->target_count; t++) {
    if (p->targets[t]->c != r->plan.c) return blame(r, i, t, SB_INVALID);
    r->slots[t] = p->targets[t]->slot;
  }
  return sort(r->slots, p->target_count) ? SB_OK : blame(r, i, NO_ONE, SB_INVALID);
}

static bool is_held(sb_connection *c, const sb_settlement *s, uint64_t *bytes) {
  sb_taken t;
  sb_leaf_ref leaf;
  uint64_t token = s->token & SB_TAG_TOKEN;
  if (sb_reading_find(c, token, &t)) {
    *bytes = 0; /* the commit ends no message */
    return true;
  }
  if (!sb_settle_find(c, token, &t, &leaf)) {
    return false;
  }
  *bytes = t.message->body_length;
  uint64_t what = SB_LOAD(&sb_holding_at(c->b, token)->what, SB_RELAXED);
  return sb_holding_kind(what) == SB_HOLD_CELL && sb_holding_slot(what) == s->queue->slot;
}

/* True if the settlement ends a message. The commit marks such messages (sb_transaction.h). The others return to their
 * positions after the commit, or are only read (sb_reading.h). */
static bool is_marked(sb_connection *c, const sb_settlement *s) {
  sb_taken t;
  return s->disposition != SB_REQUEUE && s->disposition != SB_UNDELIVER &&
         !sb_reading_find(c, s->token & SB_TAG_TOKEN, &t);
}

static sb_reason reason_of(sb_disposition disposition) {
  switch (disposition) {
    case SB_ACK: return SB_REASON_ACKED;
    case SB_CARRIED_OUT: return SB_REASON_CARRIED_OUT;
    case SB_GIVEN_UP: return SB_REASON_GIVEN_UP;
    case SB_TRANSFER: return SB_REASON_TRANSFERRED;
    default: return SB_REASON_REJECTED;
  }
}

static sb_status check_settlements(request *r, bool all) {
  uint64_t bytes;
  for (uint32_t i = 0; i < r->settlement_count; i++) {
    const sb_settlement *s = &r->settlements[i];
    if (s->disposition > SB_TRANSFER || s->queue->c != r->plan.c) {
      return SB_INVALID;
    }
    if ((all || !is_marked(r->plan.c, s)) && !is_held(r->plan.c, s, &bytes)) {
      return SB_SETTLED;
    }
    if (all && is_marked(r->plan.c, s)) r->ended_bytes += bytes;
    if (s->disposition == SB_CARRIED_OUT || s->disposition == SB_TRANSFER) r->carries_out = true;
    r->transfers |= s->disposition == SB_TRANSFER;
  }
  return SB_OK;
}

static sb_status check_all(request *r) {
  sb_status status = check_settlements(r, true);
  for (uint32_t i = 0; status == SB_OK && i < r->count; i++) status = check_publication(r, i);
  return status;
}

/* ---- process-local memory of a call, in one allocation ---- */

static uint32_t most_targets(const request *r) {
  uint32_t most = 0;
  for (uint32_t i = 0; i < r->count; i++) {
    if (r->publications[i].target_count > most) most = r->publications[i].target_count;
  }
  return most;
}

static uint64_t cells_of(const request *r) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < r->count; i++) n += r->publications[i].target_count;
  return n;
}

static sb_status make_plan(request *r) {
  sb_transaction_plan *p = &r->plan;
  uint64_t cells = cells_of(r), targets = 0;
  if (cells >= NO_ONE) {
    return SB_LIMIT;
  }
  p->bodies = calloc(1, ((size_t)r->count + 1) * sizeof *p->bodies + (size_t)cells * sizeof *p->cells +
                            (size_t)r->settlement_count * sizeof *p->ends + (size_t)most_targets(r) * sizeof *r->slots);
  if (p->bodies == NULL) {
    return SB_SYSTEM;
  }
  p->cells = (sb_transaction_cell *)(void *)(p->bodies + r->count + 1); /* types with a smaller alignment come later */
  p->ends = (sb_transaction_end *)(void *)(p->cells + cells);
  r->slots = (uint32_t *)(void *)(p->ends + r->settlement_count);
  p->body_count = r->count;
  p->cell_count = (uint32_t)cells;
  for (uint32_t i = 0; i < r->count; i++) {
    const sb_publication *one = &r->publications[i];
    p->bodies[i].bytes = one->length;
    p->bodies[i].scheduled = options_of(one)->delay_ns != 0 || options_of(one)->dead != 0;
    for (uint32_t t = 0; t < one->target_count; t++) {
      p->cells[targets++] = (sb_transaction_cell){
          .q = one->targets[t], .body = &p->bodies[i], .ref = one->target_count > SB_PLAIN_TARGETS ? SB_REF_BLOCK : t};
    }
  }
  for (uint32_t i = 0; i < r->settlement_count; i++) {
    const sb_settlement *s = &r->settlements[i];
    if (is_marked(r->plan.c, s))
      p->ends[p->end_count++] = (sb_transaction_end){s->queue, s->token & SB_TAG_TOKEN, reason_of(s->disposition)};
  }
  return SB_OK;
}

static void free_plan(request *r) { free(r->plan.bodies); }

/* ---- room and bodies ---- */

/* What the commit needs of a queue: *count messages, with *bytes bytes in total. */
static void needs_of(const request *r, const sb_queue *q, uint64_t *count, uint64_t *bytes) {
  *count = *bytes = 0;
  for (uint32_t i = 0; i < r->plan.cell_count; i++) {
    const sb_transaction_cell *cell = &r->plan.cells[i];
    if (cell->q->slot == q->slot) {
      ++*count;
      *bytes += cell->body->bytes;
    }
  }
}

/* True if a producer that needs more of the queue than the commit has its turn (sb_turn.h). */
static bool waits_for_turn(const request *r, const sb_queue *q) {
  uint64_t count, bytes;
  if (!sb_queue_tracks(q->shm) || !sb_turn_there(q->shm)) {
    return false;
  }
  needs_of(r, q, &count, &bytes);
  return sb_turn_stops(q->shm, count, bytes);
}

/* Ends the turns that the commit had, after all its messages were admitted. */
static void end_turns(const request *r) {
  for (uint32_t i = 0; i < r->plan.cell_count; i++) {
    const sb_queue *q = r->plan.cells[i].q;
    uint64_t count, bytes;
    if (!sb_queue_tracks(q->shm) || !sb_turn_there(q->shm)) {
      continue;
    }
    needs_of(r, q, &count, &bytes);
    if (sb_turn_ends(q->shm, count, bytes)) sb_notify_room_in(r->plan.c, q->shm, q->slot);
  }
}

/* The id of a publication for one of its queues; SB_NO_ID: the commit does not look it up there. */
static sb_id id_for(const request *r, uint32_t publication, const sb_queue *q) {
  const sb_put_options *o = options_of(&r->publications[publication]);
  return r->carries_out || o->duplicates == SB_DUPLICATES_IGNORE ? SB_NO_ID : sb_api_id(q, o);
}

/* The queue of the cell knows the id of the message, and does not get it. */
static sb_status skip(request *r, uint32_t publication, uint32_t target, sb_transaction_cell *cell) {
  cell->duplicate = true;
  bool fails = options_of(&r->publications[publication])->duplicates == SB_DUPLICATES_FAIL;
  return fails ? blame(r, publication, target, SB_DUPLICATE) : SB_OK;
}

static sb_status admit(request *r, uint32_t publication, uint32_t target, sb_transaction_cell *cell) {
  sb_queue *q = cell->q;
  if (!sb_queue_is_open(q)) {
    return SB_OK; /* a closed queue gets no message, as if the exchange had no binding to it */
  }
  unsigned owner;
  sb_id id = id_for(r, publication, q);
  if (sb_id_given(id) && sb_duplicates_look(q, id, &owner) == SB_ID_IS_DUPLICATE) {
    return skip(r, publication, target, cell);
  }
  bool dead = options_of(&r->publications[publication])->dead != 0;
  if (!dead && waits_for_turn(r, q)) {
    return blame(r, publication, target, SB_FULL);
  }
  sb_status status = dead ? sb_limits_admit_dead(q, cell->body->bytes) : sb_limits_admit(q, cell->body->bytes);
  if ((status == SB_DONE || status == SB_STORE_FULL) && r->transfers)
    status = SB_FULL; /* what is transferred is not dropped: it stays where it is */
  cell->admitted = status == SB_OK;
  cell->refused = status == SB_DONE;
  return cell->refused ? SB_OK : blame(r, publication, target, status);
}

static sb_status admit_all(request *r) {
  sb_transaction_cell *cell = r->plan.cells;
  for (uint32_t i = 0; i < r->count; i++) {
    for (uint32_t t = 0; t < r->publications[i].target_count; t++) {
      sb_status status = admit(r, i, t, cell++);
      if (status != SB_OK) return status;
    }
  }
  end_turns(r);
  return SB_OK;
}

/* Claims the id of a message for a queue that has room for it. */
static sb_status claim(request *r, uint32_t publication, uint32_t target, sb_transaction_cell *cell) {
  sb_id id = cell->admitted ? id_for(r, publication, cell->q) : SB_NO_ID;
  sb_status status = sb_id_given(id) ? sb_duplicates_claim(cell->q, id, &cell->claim) : SB_OK;
  if (status != SB_DUPLICATE) {
    return blame(r, publication, target, status);
  }
  sb_limits_unadmit(cell->q, cell->body->bytes);
  cell->admitted = false;
  return skip(r, publication, target, cell);
}

/* The lock is kept from here to the end of the commit: no other thread of the connection meets these claims (I97 of
 * sb_duplicates.h). */
static sb_status claim_all(request *r) {
  sb_transaction_cell *cell = r->plan.cells;
  for (uint32_t i = 0; i < r->count; i++) {
    for (uint32_t t = 0; t < r->publications[i].target_count; t++) {
      sb_status status = claim(r, i, t, cell++);
      if (status != SB_OK) return status;
    }
  }
  return SB_OK;
}

static void keep_queues(request *r, bool keep) {
  for (uint32_t i = 0; i < r->plan.cell_count; i++) r->plan.cells[i].q->busy += keep ? 1u : UINT32_MAX;
  for (uint32_t i = 0; i < r->settlement_count; i++) r->settlements[i].queue->busy += keep ? 1u : UINT32_MAX;
}

static bool write(sb_connection *c, const sb_reservation *to, const sb_publication *p) {
  if (to->scattered) {
    return sb_api_write_parts(c, to, p->body);
  }
  if (p->length > 0) memcpy(to->body, p->body, p->length);
  return true;
}

/* Writes the body of a publication. Lock held, but dropped for a long body. False: the parts of `to` are damaged. */
static bool copy(request *r, const sb_reservation *to, const sb_publication *p) {
  if (p->length <= SB_UNLOCKED_COPY) {
    return write(r->plan.c, to, p);
  }
  keep_queues(r, true);
  sb_api_leave(r->plan.c);
  bool written = write(r->plan.c, to, p);
  sb_lock(r->plan.c);
  keep_queues(r, false);
  return written;
}

static void fill_block(request *r, const sb_publication *p, uint32_t slot) {
  sb_block k;
  if (sb_block_of(r->plan.c->b, slot, &k)) {
    for (uint32_t t = 0; t < p->target_count; t++) r->slots[t] = p->targets[t]->slot;
    (void)sort(r->slots, p->target_count);
    sb_block_fill(&k, r->slots);
  }
}

/* The life of a message, in ns; 0 = for ever. A message to several queues keeps its own: the caller gives each queue
 * that changes lives a publication of its own. What is transferred keeps what is left of its life. */
static uint64_t life_of(const request *r, const sb_publication *p) {
  uint64_t own = options_of(p)->ttl_ns;
  return p->target_count == 1 && !r->transfers ? sb_life_of(p->targets[0], own) : own;
}

/* The use (sb_reserve.h) with which a body is allocated, in a commit with the use `use`. If `use` is DRAIN or BOOKS,
 * and a target is no queue of notes, it is STAGE: such a body must leave the memory that is kept for notes. */
static unsigned body_use(const sb_publication *p, unsigned use) {
  for (uint32_t t = 0; t < p->target_count; t++) {
    if (use < SB_USE_STAGE && p->targets[t]->use > SB_USE_BOOKS) use = SB_USE_STAGE;
  }
  return use;
}

static sb_status make_body(request *r, uint32_t i, unsigned use) {
  sb_connection *c = r->plan.c;
  const sb_publication *p = &r->publications[i];
  const sb_put_options *o = options_of(p);
  sb_transaction_body *body = &r->plan.bodies[i];
  sb_reservation slot;
  uint64_t block = sb_block_bytes(p->target_count, p->length);
  c->use = body_use(p, use);
  sb_status status = sb_api_claim_slot(c, sb_api_body_offset(p->length, o, block) + p->length, &slot);
  if (status != SB_OK) status = sb_api_claim_elsewhere(c, status, p->length, o, block, &slot);
  c->use = SB_USE_DRAIN;
  if (status != SB_OK) {
    return blame(r, i, NO_ONE, status);
  }
  body->token = slot.token;
  body->slot = slot.slot;
  body->gen = slot.gen;
  sb_api_fill(c, &slot, p->length, o, life_of(r, p), block);
  sb_message_shm *m = sb_slot_at(c->b, slot.slot);
  m->targets = (uint16_t)p->target_count;
  if (block != 0) fill_block(r, p, slot.slot);
  body->due_ns = m->due_ns;
  body->expires_ns = m->expires_ns;
  bool written = copy(r, &slot, p);
  return sb_closed(c) ? SB_CLOSED : written ? SB_OK : SB_CORRUPT;
}

static bool goes_somewhere(const sb_transaction_cell *cells, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (cells[i].admitted) return true;
  }
  return false;
}

static sb_status make_bodies(request *r, unsigned use) {
  sb_status status = SB_OK;
  const sb_transaction_cell *cells = r->plan.cells; /* in the order of the publications and their targets */
  for (uint32_t i = 0; status == SB_OK && i < r->count; i++) {
    if (goes_somewhere(cells, r->publications[i].target_count)) status = make_body(r, i, use);
    cells += r->publications[i].target_count;
  }
  return status;
}

static sb_status stage(request *r) {
  uint32_t failed = 0, publication = 0;
  sb_status status = sb_transaction_stage(&r->plan, &failed);
  if (status == SB_OK) {
    return SB_OK;
  }
  while (failed >= r->publications[publication].target_count) failed -= r->publications[publication++].target_count;
  return blame(r, publication, failed, status);
}

/* ---- afterwards ---- */

static void look_after(sb_queue *q) {
  /* closed meanwhile: this call removes what the commit made ready, since perhaps no other process does */
  if (!sb_queue_is_open(q)) {
    (void)sb_disposal_empty(q);
    return;
  }
  bool evicted = sb_queue_tracks(q->shm) && sb_limits_enforce(q) > 0;
  if (evicted || q->value_key_length != 0) sb_notify_room_made(q->c, q->shm, q->slot);
  sb_notify_work_arrived(q);
}

static void settle_others(request *r) {
  for (uint32_t i = 0; i < r->settlement_count; i++) {
    const sb_settlement *s = &r->settlements[i];
    if (!is_marked(r->plan.c, s)) (void)sb_api_end(s->queue, s->token & SB_TAG_TOKEN, s->disposition);
  }
}

static void keep_bounds(request *r) {
  bool usable = true;
  keep_queues(r, true);
  for (uint32_t i = 0; usable && i < r->plan.cell_count; i++) usable = sb_api_look_at_bound(r->plan.cells[i].q);
  keep_queues(r, false);
}

static void happened(request *r) {
  sb_connection *c = r->plan.c;
  bool bounded = false;
  for (uint32_t i = 0; i < r->plan.cell_count; i++) {
    sb_transaction_cell *cell = &r->plan.cells[i];
    if (cell->refused) sb_ledger_count(cell->q->ledger, SB_COUNT_REFUSED, 1);
    if (cell->duplicate) sb_duplicates_count(cell->q);
    bounded = bounded || sb_queue_tracks(cell->q->shm);
    if (cell->token != SB_TRANSACTION_NO_TOKEN) look_after(cell->q);
  }
  for (uint32_t i = 0; i < r->count; i++) {
    sb_message_shm timed = {.due_ns = r->plan.bodies[i].due_ns, .expires_ns = r->plan.bodies[i].expires_ns};
    if (r->plan.bodies[i].token != SB_TRANSACTION_NO_TOKEN) sb_api_ring_housekeeper(c, &timed);
  }
  settle_others(r);
  if (r->settlement_count > 0) sb_notify_room_made(c, NULL, 0);
  if (bounded) keep_bounds(r);
}

static void happened_not(request *r) {
  sb_transaction_undo(&r->plan);
  for (uint32_t i = 0; i < r->plan.cell_count; i++) {
    sb_queue *q = r->plan.cells[i].q;
    if (sb_queue_is_open(q)) {
      (void)sb_limits_enforce(q); /* I42 of sb_queue.h */
      sb_notify_room_in(r->plan.c, q->shm, q->slot);
    }
  }
  sb_notify_room_made(r->plan.c, NULL, 0);
}

/* True if the commit ends at least as many messages, and as many bytes, as it adds: the added messages need additional
 * memory for a moment only. A worker that moves a message to another queue commits in this way. */
static bool makes_room(const request *r) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < r->count; i++) bytes += r->publications[i].length;
  return r->plan.cell_count <= r->plan.end_count && bytes <= r->ended_bytes;
}

/* The use (sb_reserve.h) of the commit's allocations; body_use may restrict that of a body. A commit that settles
 * messages of an internal queue of the broker publishes what was staged in that queue. So the commit may use as much of
 * the reserve as the queue itself. */
static unsigned use_of(const request *r) {
  unsigned use = makes_room(r) ? SB_USE_STAGE : SB_USE_PLAIN;
  for (uint32_t i = 0; i < r->settlement_count; i++) {
    if (r->settlements[i].queue->use < use) use = r->settlements[i].queue->use;
  }
  return use;
}

/* Lock held, but dropped while a long body is copied, and while a killed process is reaped. */
static sb_status commit(request *r) {
  sb_status status = check_all(r);
  if (status != SB_OK) {
    return status;
  }
  status = admit_all(r);
  if (status == SB_OK) status = make_bodies(r, use_of(r));
  if (status == SB_OK) status = check_settlements(r, false); /* again: the lock may have been dropped */
  r->plan.c->use = use_of(r);
  if (status == SB_OK) status = claim_all(r);
  if (status == SB_OK) status = stage(r);
  r->plan.c->use = SB_USE_DRAIN;
  if (status == SB_OK) status = sb_transaction_mark(&r->plan);
  if (status != SB_OK) {
    happened_not(r);
    return status;
  }
  sb_transaction_decide(&r->plan);
  sb_transaction_carry_out(&r->plan);
  happened(r);
  return SB_OK;
}

sb_status sb_transaction_commit(sb_connection *c, const sb_publication *publications, uint32_t count,
                                const sb_settlement *settlements, uint32_t settlement_count,
                                uint32_t *failed_publication, uint32_t *failed_target) {
  request r = {.plan = {.c = c},
               .publications = publications,
               .settlements = settlements,
               .count = count,
               .settlement_count = settlement_count,
               .failed_publication = NO_ONE,
               .failed_target = NO_ONE};
  sb_status status = make_plan(&r);
  if (status == SB_OK) status = sb_api_enter(c);
  if (status == SB_OK) {
    status = commit(&r);
    sb_api_leave(c);
  }
  free_plan(&r);
  *failed_publication = r.failed_publication;
  *failed_target = r.failed_target;
  return status;
}
