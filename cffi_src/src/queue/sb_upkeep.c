// SPDX-License-Identifier: Apache-2.0
#include "sb_upkeep.h"

#include "sb_closing.h"
#include "sb_release.h"
#include "sb_slab.h"
#include "sb_view.h"
#include "sb_wait.h"

/* ---- closing ---- */

sb_status sb_upkeep_close(sb_queue *q, bool if_unused, bool if_empty, uint64_t *removed) {
  uint64_t position = 0, flags = (if_unused ? SB_CLOSING_IF_UNUSED : 0) | (if_empty ? SB_CLOSING_IF_EMPTY : 0);
  *removed = 0;
  sb_hinting(q->ledger, 1);
  (void)SB_ADD(&q->shm->taken, 1, SB_SEQ_CST); /* the closing cell is a position without a message */
  (void)SB_ADD(&q->shm->admitted, 1, SB_SEQ_CST);
  sb_status status;
  unsigned strange = 0; /* a broken link hides the cell from the resolver */
  while ((status = sb_ring_append(q->c, &q->ring, &q->tail_leaf, SB_CELL_CLOSING | flags, SB_APPEND_BARE, NULL,
                                  &position)) == SB_CLOSED_CELL) {
    bool resolved = sb_closing_resolve(q->c->b, q->c, q->shm, &q->ring, position);
    bool open = sb_queue_is_open(q);
    if (!resolved || !open || ++strange > SB_MAX_STRANGE) {
      sb_hinting(q->ledger, -1);
      return resolved && !open ? SB_DELETED : SB_CORRUPT;
    }
  }
  if (status != SB_OK) {
    (void)SB_SUB(&q->shm->taken, 1, SB_SEQ_CST);
    (void)SB_SUB(&q->shm->admitted, 1, SB_SEQ_CST);
  }
  sb_hinting(q->ledger, -1);
  if (status != SB_OK) {
    (void)sb_limits_enforce(q); /* I42 */
    return status;
  }
  SB_CRASHPOINT("queue.close.closing");
  (void)sb_closing_resolve(q->c->b, q->c, q->shm, &q->ring, position);
  if (sb_queue_is_open(q)) {
    (void)sb_ring_exact_tail(q->c->b, &q->ring); /* past the closing cell, which is counted as taken already */
    return if_unused && SB_LOAD(&q->shm->consumers, SB_SEQ_CST) > 0 ? SB_IN_USE : SB_NOT_EMPTY;
  }
  *removed = sb_upkeep_dispose(q);
  return SB_OK;
}

/* Takes a cell in that state; leaving HELD is counted under an intent. */
static bool take_counted(sb_queue *q, uint64_t position, unsigned state, uint64_t token, sb_taken *t) {
  bool held = state == SB_CELL_HELD;
  if (held) {
    sb_intent_begin(q->ledger, SB_INTENT_DUE, SB_COUNT_UNSCHEDULED, position, 0, 0, 0);
  }
  bool got = sb_take_at(q, position, state, token, t) == SB_OK;
  if (held) {
    if (got) sb_ledger_count(q->ledger, SB_COUNT_UNSCHEDULED, 1);
    sb_intent_end(q->ledger);
  }
  return got;
}

/* Becomes ready, for the first time or again. One that comes to a full ring loses by age; and I42. */
static void make_ready(sb_queue *q, uint64_t token) {
  (void)sb_release_message(q, token, SB_RELEASE_UNMARKED);
  (void)sb_limits_enforce(q);
}

uint64_t sb_upkeep_dispose(sb_queue *q) {
  sb_broker *b = q->c->b;
  uint64_t removed = 0, at = SB_LOAD(&q->shm->base, SB_RELAXED);
  sb_leaf_ref leaf;
  while (sb_ring_next_leaf(b, &q->ring, at, &leaf, &at)) {
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST);
      unsigned state = sb_cell_state(word);
      if (!sb_cell_of(word, leaf.gen) || state == SB_CELL_FREE || state == SB_CELL_CLOSED) {
        return removed;
      }
      if (state != SB_CELL_AVAILABLE && state != SB_CELL_HELD) {
        continue;
      }
      uint64_t token;
      sb_taken t;
      if (sb_holding_take(q->c, &token) != SB_OK) {
        return removed;
      }
      if (take_counted(q, at, state, token, &t)) {
        (void)sb_settle_message(q, token, SB_COUNT_KILLED);
        removed++;
      } else {
        sb_holding_give(q->c, token);
      }
    }
  }
  return removed;
}

/* Announces an object that is about to be unlinked: killed between that and freeing it, our reaper frees it. So may that of
 * somebody who was killed here before, once it is unlinked. One that is free while it is linked: the chain is broken. */
static bool let_go(sb_connection *c, uint32_t slot, uint64_t *gen) {
  uint64_t header = SB_LOAD(sb_slot_header(c->b, slot), SB_ACQUIRE);
  *gen = sb_slot_gen(header);
  sb_holding_set(c->b, c->page_token, sb_holding_what(SB_HOLD_SLOT, slot, *gen), 0);
  return sb_slot_state(header) != SB_SLOT_FREE;
}

static bool any_message(uint64_t word) { return sb_cell_has_message(word); }

bool sb_upkeep_free(sb_connection *c, uint32_t slot) {
  sb_broker *b = c->b;
  sb_queue_shm *q = sb_slot_at(b, slot);
  sb_ring r;
  if (SB_BITS(SB_LOAD(&q->state, SB_ACQUIRE), 0, 2) != SB_QUEUE_CLOSED || sb_ledger_owned(b, q) ||
      !sb_ring_open(b, slot, SB_RING_CELLS, &r) || sb_ring_has(b, &r, UINT64_MAX, any_message)) {
    return false;
  }
  uint64_t gen, incarnation = SB_LOAD(&q->state, SB_RELAXED) >> 2;
  static const uint32_t rings[] = {SB_RING_CELLS,          SB_RING_ALL,  SB_RING_NON_ACQUIRING,
                                   SB_RING_NOT_INTERESTED, SB_RING_ROOM, SB_RING_SCHEDULE};
  for (unsigned i = 0; i < sizeof rings / sizeof rings[0]; i++) {
    if (sb_ring_open(b, slot, rings[i], &r)) sb_ring_destroy(c, &r);
  }
  uint32_t level = SB_LOAD(&q->levels, SB_ACQUIRE);
  while (sb_slab_object(b, level, SB_KIND_LEVEL) != NULL) {
    sb_level_shm *l = sb_slot_at(b, level);
    uint32_t next = SB_LOAD(&l->next, SB_ACQUIRE);
    for (uint32_t id = SB_RING_INTERESTED; id <= SB_RING_NOTIFIED; id++) {
      if (sb_ring_open(b, level, id, &r)) sb_ring_destroy(c, &r);
    }
    bool whole = let_go(c, level, &gen);
    SB_STORE(&q->levels, next, SB_RELEASE); /* one by one: whoever goes on after a kill finds the others */
    (void)sb_slab_free_gen(b, level, gen);
    level = whole ? next : 0;
  }
  uint32_t ledger = SB_LOAD(&q->ledgers, SB_ACQUIRE);
  while (sb_ledger_at(b, ledger) != NULL) {
    uint32_t next = SB_LOAD(&((sb_ledger_shm *)sb_slot_at(b, ledger))->next, SB_ACQUIRE);
    bool whole = let_go(c, ledger, &gen);
    SB_STORE(&q->ledgers, next, SB_RELEASE);
    (void)sb_slab_free_gen(b, ledger, gen);
    ledger = whole ? next : 0;
  }
  (void)let_go(c, slot, &gen);
  SB_STORE(&q->state, SB_QUEUE_NONE | SB_PUT(incarnation + 1, 2), SB_RELEASE);
  (void)sb_slab_free_gen(b, slot, gen);
  return true;
}

/* ---- hints ---- */

/* The first AVAILABLE cell from there to the head that no bit leads to. */
static bool next_hidden(sb_broker *b, const sb_ring *r, uint64_t from, uint64_t *position) {
  uint64_t at = from;
  sb_leaf_ref leaf;
  while (sb_ring_next_leaf(b, r, at, &leaf, &at)) {
    uint64_t head = SB_LOAD(r->head, SB_ACQUIRE);
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST);
      if (at >= head || !sb_cell_of(word, leaf.gen)) {
        return false;
      }
      if (sb_cell_state(word) == SB_CELL_AVAILABLE && !sb_returned_is_marked(b, r, at)) {
        *position = at;
        return true;
      }
    }
  }
  return false;
}

bool sb_upkeep_hides(sb_broker *b, const sb_ring *r) {
  uint64_t at;
  return next_hidden(b, r, SB_LOAD(r->base, SB_RELAXED), &at);
}

uint64_t sb_upkeep_resurface(sb_broker *b, const sb_queue_shm *q, const sb_ring *r, uint64_t deaths_before) {
  uint64_t found = 0, at, again;
  if (!next_hidden(b, r, SB_LOAD(r->base, SB_RELAXED), &at)) {
    return 0;
  }
  bool explained = sb_repairs_explained(b, q, deaths_before);
  if (next_hidden(b, r, at, &again) && again == at) sb_repairs_count(b, SB_REPAIR_MARK, explained); /* I72 */
  while (next_hidden(b, r, at, &at)) {
    sb_returned_mark(b, r, at++);
    found++;
  }
  return found;
}

bool sb_upkeep_has_ready(sb_broker *b, const sb_ring *r, uint64_t end) {
  uint64_t at = SB_LOAD(r->returned, SB_SEQ_CST) != 0 ? SB_LOAD(r->base, SB_RELAXED) : SB_LOAD(r->head, SB_ACQUIRE);
  sb_leaf_ref leaf;
  while (at < end && sb_ring_next_leaf(b, r, at, &leaf, &at)) {
    for (; at < end && sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST);
      if (sb_cell_of(word, leaf.gen) && sb_cell_state(word) == SB_CELL_AVAILABLE) {
        return true;
      }
    }
  }
  return false;
}

#define RESCAN_INTERVAL_NS UINT64_C(250000000)

uint64_t sb_upkeep_rescan(sb_queue *q) {
  uint64_t now = sb_now_ns();
  if (now - q->rescanned_ns < RESCAN_INTERVAL_NS) {
    return 0;
  }
  q->rescanned_ns = now;
  uint64_t deaths = sb_repairs_deaths(q->c->b);
  uint64_t found = sb_upkeep_resurface(q->c->b, q->shm, &q->ring, q->rescanned_deaths);
  q->rescanned_deaths = deaths;
  return found;
}

typedef struct {
  uint64_t tail, taken, admitted, bytes_in, bytes_out; /* the hints */
  uint64_t added, ready, ready_bytes;                  /* the truth: ledgers and cells */
} reading;

static reading read_queue(sb_broker *b, sb_queue_shm *q, const sb_ring *r) {
  reading n = {.tail = sb_ring_exact_tail(b, r),
               .taken = SB_LOAD(&q->taken, SB_SEQ_CST),
               .admitted = SB_LOAD(&q->admitted, SB_SEQ_CST)};
  n.bytes_in = SB_LOAD(&q->bytes_in, SB_SEQ_CST);
  n.bytes_out = SB_LOAD(&q->bytes_out, SB_SEQ_CST);
  n.added = sb_ledger_sum(b, q, SB_COUNT_ADDED);
  uint64_t at = SB_LOAD(r->base, SB_RELAXED);
  sb_leaf_ref leaf;
  while (sb_ring_next_leaf(b, r, at, &leaf, &at) && at < n.tail) {
    for (; sb_leaf_covers(&leaf, at) && at < n.tail; at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_ACQUIRE);
      uint32_t slot = sb_cell_slot(word);
      if (sb_cell_of(word, leaf.gen) && sb_cell_state(word) == SB_CELL_AVAILABLE && sb_slot_in_range(b, slot) &&
          sb_slot_ready(b, slot)) {
        n.ready++;
        n.ready_bytes += sb_peek_length(b, slot);
      }
    }
  }
  return n;
}

static bool same(const reading *one, const reading *two) {
  return one->tail == two->tail && one->taken == two->taken && one->admitted == two->admitted &&
         one->bytes_in == two->bytes_in && one->bytes_out == two->bytes_out && one->added == two->added &&
         one->ready == two->ready && one->ready_bytes == two->ready_bytes;
}

static bool put_right(sb_word *hint, uint64_t is, uint64_t should) {
  return is != should && SB_CAS(hint, &is, should, SB_SEQ_CST);
}

sb_hints sb_upkeep_reconcile(sb_broker *b, sb_queue_shm *q) {
  sb_ring r;
  uint32_t slot = sb_slot_of(b, q);
  uint64_t before, after;
  if (!sb_queue_tracks(q) || !sb_ring_open(b, slot, SB_RING_CELLS, &r)) {
    return SB_HINTS_RIGHT;
  }
  if (!sb_ledger_hints_rest(b, q, &before)) {
    return SB_HINTS_BUSY;
  }
  reading one = read_queue(b, q, &r), two = read_queue(b, q, &r);
  if (!sb_ledger_hints_rest(b, q, &after) || before != after || !same(&one, &two)) {
    return SB_HINTS_BUSY; /* traffic, or somebody who was stopped in the middle of it: another time */
  }
  bool changed = put_right(&q->taken, one.taken, one.tail - SB_LOAD(&q->base, SB_RELAXED) - one.ready);
  changed = put_right(&q->admitted, one.admitted, one.tail) || changed;
  changed = put_right(&q->bytes_in, one.bytes_in, one.bytes_out + one.ready_bytes) || changed;
  return changed ? SB_HINTS_SET_RIGHT : SB_HINTS_RIGHT;
}

#define TRACKING_TRIES 1000u

/* Again until nothing is wrong. Beside traffic without a gap it is left to the housekeeper. */
void sb_upkeep_start_tracking(sb_broker *b, sb_queue_shm *q) {
  for (unsigned tries = 0; tries < TRACKING_TRIES; tries++) {
    if (sb_upkeep_reconcile(b, q) == SB_HINTS_RIGHT) return;
  }
  SB_STORE(&q->tracking, SB_TRACKING_UNSURE, SB_SEQ_CST);
}

/* ---- schedule ---- */

uint64_t sb_upkeep_look_at(sb_queue *q, uint64_t position, uint64_t now_ns, bool *made_ready) {
  sb_broker *b = q->c->b;
  sb_leaf_ref leaf;
  *made_ready = false;
  if (sb_ring_locate(b, NULL, &q->ring, position, &leaf) != SB_OK) {
    return 0;
  }
  uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, position)->word, SB_ACQUIRE);
  if (!sb_cell_of(word, leaf.gen) || !sb_cell_has_message(word)) {
    return 0;
  }
  uint32_t slot = sb_cell_slot(word);
  if (!sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot)) {
    return 0;
  }
  sb_message_shm m = sb_peek_message(b, slot);
  uint64_t due = m.due_ns, expires = m.expires_ns;
  if (SB_LOAD(&sb_leaf_cell(&leaf, position)->word, SB_ACQUIRE) != word) {
    return now_ns; /* it changed while we looked: at once again */
  }
  bool keeps = (SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_KEEPS) != 0, held = sb_cell_state(word) == SB_CELL_HELD;
  bool expired = expires != 0 && expires <= now_ns;
  if (keeps && !held) {
    return 0; /* its time goes on when it is moved out of here */
  }
  if (held && due > now_ns && !expired) {
    return expires != 0 && expires < due ? expires : due;
  }
  if (!held && !expired) {
    return expires;
  }
  if (!held && sb_cell_state(word) != SB_CELL_AVAILABLE) {
    return 0; /* its holder will see that it has expired */
  }
  uint64_t token;
  sb_taken t;
  if (sb_holding_take(q->c, &token) != SB_OK) {
    return now_ns + UINT64_C(100000000);
  }
  if (!take_counted(q, position, sb_cell_state(word), token, &t)) {
    sb_holding_give(q->c, token);
    (void)sb_limits_enforce(q); /* I42 */
    return now_ns;
  }
  if (expired) {
    (void)sb_settle_message(q, token, SB_COUNT_EXPIRED);
    return 0;
  }
  make_ready(q, token);
  *made_ready = true;
  return expires;
}

/* ---- moving ---- */

/* The sequence of a message of the queue, which is pinned by our own cell. */
static uint64_t sequence_of(const sb_queue *q, uint64_t position) {
  sb_leaf_ref leaf;
  bool keeps = (SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_KEEPS) != 0;
  return keeps && sb_ring_locate(q->c->b, NULL, &q->ring, position, &leaf) == SB_OK
             ? sb_ring_sequence(q->c->b, &q->ring, &leaf, position)
             : position - q->base;
}

sb_status sb_upkeep_move_one(sb_queue *q, sb_queue *target, uint64_t end, uint64_t *size) {
  sb_connection *c = q->c;
  sb_broker *b = c->b;
  uint64_t token, target_token;
  sb_status status = sb_holding_take(c, &token);
  if (status != SB_OK) {
    return status;
  }
  status = sb_holding_take(c, &target_token);
  sb_taken t;
  if (status == SB_OK) {
    status = sb_take_oldest(q, SB_CELL_REMOVING, end, token, &t);
    if (status != SB_OK) sb_holding_give(c, target_token);
  }
  if (status != SB_OK) {
    sb_holding_give(c, token);
    (void)sb_limits_enforce(q); /* I42 */
    return status;
  }
  uint64_t bytes = t.message->body_length, position = 0;
  unsigned ref = sb_reference_clear(b, t.slot, t.ref, c->id);
  status = ref == SB_MAX_REFS ? SB_LIMIT : sb_limits_admit(target, 1, bytes);
  if (status != SB_OK) {
    sb_holding_give(c, target_token);
    make_ready(q, token);
    return status;
  }
  sb_ledger_shm *from = q->ledger, *to = target->ledger;
  SB_STORE(&from->target_queue, target->slot, SB_RELAXED);
  SB_STORE(&from->target_position, UINT64_MAX, SB_RELAXED);
  SB_STORE(&from->target_ledger, sb_slot_of(b, to), SB_RELAXED);
  SB_STORE(&from->target_before, SB_LOAD(&to->counters[SB_COUNT_ADDED], SB_RELAXED), SB_RELAXED);
  SB_STORE(&from->target_before_bytes, SB_LOAD(&to->counters[SB_COUNT_ADDED_BYTES], SB_RELAXED), SB_RELAXED);
  sb_intent_begin(from, SB_INTENT_MOVE, SB_COUNT_MOVED, t.position,
                  (uint64_t)t.slot | SB_PUT(t.ref, 32) | SB_PUT(ref, 40), t.gen, bytes);
  sb_view_not(b, t.slot, ref);
  if (!sb_slab_add(b, t.slot, ref)) { /* I38: we hold its cell */
    sb_intent_end(from);
    sb_limits_unadmit(target, 1, bytes);
    sb_holding_give(c, target_token);
    make_ready(q, token);
    return SB_LIMIT;
  }
  bool tracked = sb_queue_tracks(target->shm);
  if (tracked) {
    (void)SB_ADD(&target->shm->taken, 1, SB_SEQ_CST);
    (void)SB_ADD(&target->shm->bytes_out, bytes, SB_RELAXED);
  }
  uint64_t word = (uint64_t)SB_CELL_REMOVING | SB_PUT(t.slot, 4) | SB_PUT(ref, 32) | SB_PUT(c->id, 37);
  unsigned strange = 0; /* a broken link hides the cell from the resolver */
  while ((status = sb_ring_append(c, &target->ring, &target->tail_leaf, word, SB_APPEND_OWNED, &from->target_position,
                                  &position)) == SB_CLOSED_CELL) {
    bool resolved = sb_closing_resolve(b, c, target->shm, &target->ring, position);
    bool open = sb_queue_is_open(target);
    if (!resolved || !open || ++strange > SB_MAX_STRANGE) {
      status = resolved && !open ? SB_DELETED : SB_CORRUPT;
      break;
    }
  }
  if (status != SB_OK) {
    bool freed;
    (void)sb_slab_drop(b, t.slot, t.gen, ref, &freed);
    sb_intent_end(from);
    if (tracked) {
      (void)SB_SUB(&target->shm->taken, 1, SB_SEQ_CST);
      (void)SB_SUB(&target->shm->bytes_out, bytes, SB_RELAXED);
    }
    sb_limits_unadmit(target, 1, bytes);
    sb_holding_give(c, target_token);
    make_ready(q, token);
    return status;
  }
  const sb_leaf_ref *leaf = &target->tail_leaf; /* where it was appended; pinned by our own cell */
  SB_STORE(&sb_leaf_cell(leaf, position)->side,
           sb_side_word(t.gen, sb_side_count(t.side), t.side & SB_SIDE_REDELIVERED), SB_RELEASE);
  sb_word *origin = sb_ring_origin(b, leaf, position);
  if (origin != NULL) SB_STORE(origin, sequence_of(q, t.position), SB_RELEASE);
  SB_CRASHPOINT("queue.move.described");
  sb_holding_set(b, target_token, sb_holding_what(SB_HOLD_CELL, target->slot, leaf->slot), position);
  if (t.message->expires_ns != 0) sb_queue_schedule(target, position);
  SB_CRASHPOINT("queue.move.linked"); /* the target cell names us: from here on a reaper finishes the move */
  sb_ledger_count(to, SB_COUNT_ADDED_BYTES, bytes);
  sb_ledger_count(to, SB_COUNT_ADDED, 1);
  sb_ledger_hold(to, 1);
  sb_limits_published(target);
  (void)sb_settle_as(q, token, SB_INTENT_MOVE, SB_COUNT_MOVED);
  SB_CRASHPOINT("queue.move.settled");
  (void)sb_release_message(target, target_token, SB_RELEASE_UNMARKED);
  *size = bytes;
  return SB_OK;
}
