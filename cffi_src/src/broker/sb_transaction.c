// SPDX-License-Identifier: Apache-2.0
#include "sb_transaction.h"

#include "sb_closing.h"
#include "sb_reference.h"
#include "sb_settle.h"
#include "sb_turns.h"
#include "sb_values.h"
#include "sb_wait.h"

#define NOWHERE UINT64_MAX /* no position was tried yet */

/* ---- preparing ---- */

/* While the slot is listed as PUBLICATION, the commit word decides about it (I46). */
void sb_transaction_list(sb_connection *c, const sb_transaction_body *body, bool listed) {
  sb_holding_shm *h = sb_holding_at(c->b, body->token);
  uint64_t what = sb_holding_what(listed ? SB_HOLD_PUBLICATION : SB_HOLD_SLOT, body->slot, body->gen);
  SB_STORE(&h->what, what, SB_RELEASE); /* P8 of sb_connection.h; `where` stays as it is */
  SB_CRASHPOINT("commit.body.listed");
}

/* I23 of sb_queue.h: counts the cell as taken if its queue evicts: no message may be evicted to make room for a cell
 * that is only STAGED. A cell that will become SCHEDULED counts as taken in any queue. */
static void count_staged(sb_transaction_cell *cell) {
  cell->tracked = sb_queue_tracks(cell->q->shm);
  cell->counted = cell->body->scheduled || sb_queue_evicts(cell->q->shm);
  if (cell->tracked && cell->counted) sb_hints_taken(cell->q->shm, 1, cell->body->bytes);
}

static sb_status append(sb_connection *c, sb_transaction_cell *cell) {
  sb_queue *q = cell->q;
  const sb_message_shm *m = sb_slot_at(c->b, cell->body->slot);
  sb_lane *lane;
  sb_value_key key;
  sb_status status = sb_queue_lane_for(q, m->priority, &lane);
  if (status == SB_OK && sb_queue_has_values(q) && sb_values_key_of(q, cell->body->slot, m, &key)) {
    status = sb_values_prepare(q, &key);
  }
  if (status != SB_OK) {
    return status;
  }
  uint64_t word =
      (uint64_t)SB_CELL_STAGED | SB_FIELD(cell->body->slot, 4) | SB_FIELD(cell->ref, 32) | SB_FIELD(c->id, 37);
  /* P8 of sb_connection.h: the append stores each position here before it tries that position. */
  sb_word *announce = &sb_holding_at(c->b, cell->token)->where;
  sb_append how = {SB_WORD_OWNED, cell->tracked ? SB_TAIL_EXACT : SB_TAIL_LAZY, sb_queue_spacing(q, cell->body->bytes)};
  sb_holding_set(c->b, cell->token, sb_holding_what(SB_HOLD_STAGED, q->slot, 0), NOWHERE);
  return sb_queue_append(q, lane, word, how, announce, &cell->position);
}

static void give_room_back(sb_transaction_cell *cell) {
  sb_limits_unadmit(cell->q, cell->body->bytes);
  cell->admitted = false;
}

/* Notes the reference of the cell as a bit of `references`, which sb_transaction_decide stores in the slot's header.
 * For SB_REF_BLOCK, sets the bit of the queue in the reference block, and bit 0 of `references`, which stands for the
 * block. No other process uses the slot yet: only STAGED cells name it. */
static void add_reference(sb_broker *b, sb_transaction_cell *cell) {
  sb_block k;
  uint32_t index;
  if (cell->ref != SB_REF_BLOCK) {
    cell->body->references |= 1u << cell->ref;
  } else if (sb_block_of(b, cell->body->slot, &k) && sb_block_index(&k, cell->q->slot, &index)) {
    sb_block_set(&k, index, 0);
    cell->body->references |= 1u;
  }
}

sb_status sb_transaction_stage_cell(sb_connection *c, sb_transaction_cell *cell) {
  sb_status status = sb_holding_take(c, &cell->token);
  if (status != SB_OK) {
    cell->token = SB_TRANSACTION_NO_TOKEN;
    return status;
  }
  count_staged(cell);
  if (SB_LOAD(&cell->q->shm->staged, SB_RELAXED) == 0)
    SB_STORE(&cell->q->shm->staged, 1, SB_RELEASE); /* I53 of sb_take.h: who sees the cell STAGED sees the 1 */
  status = append(c, cell);
  if (status == SB_OK) {
    sb_lane *lane = sb_queue_lane(cell->q, cell->position);
    lane->tail_cursor = cell->position + 1;
    cell->leaf = lane->tail_leaf; /* pinned by the STAGED cell */
    SB_STORE(&sb_holding_at(c->b, cell->token)->what, sb_holding_what(SB_HOLD_STAGED, cell->q->slot, cell->leaf.slot),
             SB_RELEASE); /* the holding now also names the leaf: the doctor (sb_check.h) looks for the cell there */
    add_reference(c->b, cell);
    return SB_OK;
  }
  if (cell->tracked && cell->counted) sb_hints_untaken(cell->q->shm, 1, cell->body->bytes);
  sb_holding_give(c, cell->token);
  cell->token = SB_TRANSACTION_NO_TOKEN;
  return status;
}

sb_status sb_transaction_stage(sb_transaction_plan *p, uint32_t *failed) {
  for (uint32_t i = 0; i < p->body_count; i++) {
    if (p->bodies[i].token != SB_TRANSACTION_NO_TOKEN) sb_transaction_list(p->c, &p->bodies[i], true);
  }
  for (uint32_t i = 0; i < p->cell_count; i++) {
    sb_transaction_cell *cell = &p->cells[i];
    if (!cell->admitted) {
      continue;
    }
    sb_status status = sb_transaction_stage_cell(p->c, cell);
    if (status == SB_DELETED) {
      give_room_back(cell); /* a deleted queue gets no message, as if it were not bound */
    } else if (status != SB_OK) {
      *failed = i;
      return status;
    }
  }
  return SB_OK;
}

/* The counter that the mark of a message names. DEAD_LETTERED for one that is rejected in a queue with dead letters: if
 * the connection dies, its reaper parks the message (settle_for). */
static unsigned counter_of(const sb_transaction_end *e) {
  bool dead = sb_reason_why(e->reason) != SB_WHY_ALIVE && sb_queue_has_dead_letters(e->q->shm);
  return dead ? (unsigned)SB_COUNT_DEAD_LETTERED : sb_reason_counter(e->reason);
}

sb_status sb_transaction_mark(sb_transaction_plan *p) {
  sb_broker *b = p->c->b;
  for (p->marked = 0; p->marked < p->end_count; p->marked++) {
    const sb_transaction_end *e = &p->ends[p->marked];
    sb_taken t;
    sb_leaf_ref leaf;
    uint64_t what =
        sb_settle_find(p->c, e->token, &t, &leaf) ? SB_LOAD(&sb_holding_at(b, e->token)->what, SB_RELAXED) : 0;
    if (sb_holding_kind(what) != SB_HOLD_CELL ||
        sb_holding_slot(what) != e->q->slot) { /* the connection does not hold it, or it is marked (planned twice) */
      return SB_SETTLED;
    }
    uint64_t marked = sb_holding_what(SB_HOLD_SETTLING, e->q->slot, (uint64_t)leaf.slot | SB_FIELD(counter_of(e), 28));
    SB_STORE(&sb_holding_at(b, e->token)->what, marked, SB_RELEASE); /* P12: before the commit word */
  }
  SB_CRASHPOINT("commit.marked");
  return SB_OK;
}

static void unmark(sb_transaction_plan *p) {
  while (p->marked > 0) {
    const sb_transaction_end *e = &p->ends[--p->marked];
    sb_holding_shm *h = sb_holding_at(p->c->b, e->token);
    uint32_t leaf = sb_holding_leaf(SB_LOAD(&h->what, SB_RELAXED));
    SB_STORE(&h->what, sb_holding_what(SB_HOLD_CELL, e->q->slot, leaf), SB_RELEASE);
  }
}

/* ---- deciding ---- */

static void free_body(sb_connection *c, sb_transaction_body *body) {
  if (body->token != SB_TRANSACTION_NO_TOKEN) {
    (void)sb_slab_free_gen(c->b, body->slot, body->gen);
    sb_holding_give(c, body->token);
    body->token = SB_TRANSACTION_NO_TOKEN;
  }
}

static bool is_stored(const sb_queue *q) { return q->lanes[0].ring.changed != NULL; }

/* True if the commit changes several messages of stored queues. */
static bool stores_several(const sb_transaction_plan *p) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < p->cell_count; i++) {
    count += p->cells[i].token != SB_TRANSACTION_NO_TOKEN && is_stored(p->cells[i].q);
  }
  for (uint32_t i = 0; i < p->end_count; i++) count += is_stored(p->ends[i].q);
  return count > 1;
}

void sb_transaction_decide(sb_transaction_plan *p) {
  for (uint32_t i = 0; i < p->body_count; i++) {
    sb_transaction_body *body = &p->bodies[i];
    if (body->references == 0) {
      free_body(p->c, body);
    } else {
      sb_word *header = sb_slot_header(p->c->b, body->slot);
      /* relaxed: the connection owns the slot */
      uint64_t parts = SB_LOAD(header, SB_RELAXED) & SB_FIELD(1u, 2 + SB_PARTS_REF);
      SB_STORE(header, sb_slot_word(SB_SLOT_PUBLISHED, body->references, body->gen) | parts,
               SB_RELEASE); /* P1 of sb_slab.h: release, and P12 */
    }
  }
  SB_CRASHPOINT("commit.published");
  bool stored = stores_several(p);
  if (stored) sb_turns_pass_hold(p->c->b);
  /* P12: the linearisation point */
  SB_STORE(&p->c->shm->commit, stored ? SB_COMMIT_STORED : SB_COMMIT_DECIDED, SB_SEQ_CST);
  SB_CRASHPOINT("commit.decided");
  if (stored) sb_turns_commit_begins(p->c->b); /* I125 of sb_turns.h */
}

/* ---- carrying out ---- */

static bool is_staged(uint64_t word, uint64_t gen, unsigned owner) {
  return sb_cell_of(word, gen) && sb_cell_state(word) == SB_CELL_STAGED && sb_cell_owner(word) == owner;
}

/* Flips a cell under an intent (I47). The intent is in the ledger of the cell's owner, even if a reaper flips the cell
 * for a dead owner. `counted`: the STAGED cell counts in `taken`. */
static void flip(sb_queue *q, const sb_leaf_ref *leaf, uint64_t position, uint64_t word, bool counted) {
  sb_broker *b = q->c->b;
  sb_ledger_shm *l = q->ledger;
  uint32_t slot = sb_cell_slot(word);
  const sb_message_shm *m = sb_slot_at(b, slot); /* pinned by the cell's reference, until the flip */
  bool scheduled = m->due_ns != 0, timer = scheduled || m->expires_ns != 0;
  uint64_t bytes = m->body_length;
  SB_STORE(&l->target_queue, scheduled, SB_RELAXED);
  SB_STORE(&l->target_position, SB_LOAD(&l->counters[SB_COUNT_SCHEDULED], SB_RELAXED), SB_RELAXED);
  sb_ledger_begin_intent(l, SB_INTENT_COMMIT, SB_COUNT_ADDED, position,
                         (uint64_t)slot | SB_FIELD(sb_cell_ref(word), 32),
                         sb_slot_gen(SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE)), bytes);
  SB_CRASHPOINT("commit.flip.announced");
  uint64_t open = sb_cell_open(scheduled ? SB_CELL_SCHEDULED : SB_CELL_AVAILABLE, slot, sb_cell_ref(word), leaf->gen);
  sb_ring r = sb_queue_lane(q, position)->ring;
  sb_lanes_mark(&r); /* P23 of sb_lanes.h: a search that passed the STAGED cell may have cleared the bit */
  (void)SB_CAS(&sb_leaf_cell(leaf, position)->word, &word, open,
               SB_SEQ_CST); /* P3 of sb_notify.h, P47 of sb_duplicates.h */
  sb_lanes_mark(&r);
  SB_CRASHPOINT("commit.flip.done");
  sb_requeued_returned(&r); /* a reader may have passed the STAGED cell */
  if (counted && !scheduled) sb_hints_untaken(q->shm, 1, bytes);
  if (timer) sb_queue_schedule(q, position);
  sb_ledger_count(l, SB_COUNT_ADDED_BYTES, bytes);
  if (scheduled) sb_ledger_count(l, SB_COUNT_SCHEDULED, 1);
  sb_ledger_count(l, SB_COUNT_ADDED, 1);
  sb_ledger_end_intent(l);
}

static void flip_own(sb_connection *c, sb_transaction_cell *cell) {
  uint64_t word = SB_LOAD(&sb_leaf_cell(&cell->leaf, cell->position)->word, SB_ACQUIRE);
  if (is_staged(word, cell->leaf.gen, c->id)) {
    uint32_t slot = sb_cell_slot(word);
    const sb_message_shm *m = sb_slot_at(c->b, slot);
    sb_value_key key;
    bool keyed = sb_queue_has_values(cell->q) && m->due_ns == 0 && sb_values_key_of(cell->q, slot, m, &key);
    flip(cell->q, &cell->leaf, cell->position, word, cell->tracked && cell->counted);
    if (keyed)
      (void)sb_values_came(cell->q, cell->position, &key); /* I103 of sb_values.h: the holding lists the cell */
  }
  sb_limits_published(cell->q, cell->body->bytes);
}

void sb_transaction_carry_out(sb_transaction_plan *p) {
  sb_connection *c = p->c;
  for (uint32_t i = 0; i < p->cell_count; i++) {
    if (p->cells[i].token != SB_TRANSACTION_NO_TOKEN) flip_own(c, &p->cells[i]);
    if (p->cells[i].claim.token != 0)
      sb_duplicates_remember(p->cells[i].q, &p->cells[i].claim); /* I97 of sb_duplicates.h */
  }
  for (uint32_t i = 0; i < p->end_count; i++) {
    (void)sb_dispose(p->ends[i].q, p->ends[i].token, p->ends[i].reason); /* also frees the holding */
  }
  if (SB_LOAD(&c->shm->commit, SB_RELAXED) == SB_COMMIT_STORED) sb_turns_commit_ends(c->b); /* I125 of sb_turns.h */
  SB_CRASHPOINT("commit.carried_out");
  for (uint32_t i = 0; i < p->cell_count; i++) {
    if (p->cells[i].claim.token != 0) sb_holding_give(c, p->cells[i].claim.token);
    if (p->cells[i].token != SB_TRANSACTION_NO_TOKEN) sb_holding_give(c, p->cells[i].token);
  }
  for (uint32_t i = 0; i < p->body_count; i++) {
    if (p->bodies[i].token != SB_TRANSACTION_NO_TOKEN) sb_holding_give(c, p->bodies[i].token);
  }
  SB_STORE(&c->shm->commit, SB_COMMIT_NONE, SB_RELEASE); /* I46: nothing is listed any more */
}

/* ---- undoing ---- */

/* Makes the cell of an undone commit a TOMBSTONE: its position stays used, and its room becomes free. */
static void unstage(sb_connection *c, sb_transaction_cell *cell) {
  uint64_t word = SB_LOAD(&sb_leaf_cell(&cell->leaf, cell->position)->word, SB_ACQUIRE);
  if (is_staged(word, cell->leaf.gen, c->id)) {
    (void)sb_ring_drop(c, &sb_queue_lane(cell->q, cell->position)->ring, &cell->leaf, cell->position, word);
    if (cell->tracked && !cell->counted) sb_hints_taken(cell->q->shm, 1, cell->body->bytes);
  }
  sb_limits_published(cell->q, cell->body->bytes);
  sb_holding_give(c, cell->token);
  cell->token = SB_TRANSACTION_NO_TOKEN;
  cell->admitted = false;
}

void sb_transaction_undo(sb_transaction_plan *p) {
  unmark(p);
  for (uint32_t i = 0; i < p->cell_count; i++) {
    sb_transaction_cell *cell = &p->cells[i];
    sb_duplicates_withdraw(p->c, &cell->claim); /* I97 of sb_duplicates.h */
    if (cell->token != SB_TRANSACTION_NO_TOKEN) {
      unstage(p->c, cell);
    } else if (cell->admitted) {
      give_room_back(cell);
    }
  }
  for (uint32_t i = 0; i < p->body_count; i++) free_body(p->c, &p->bodies[i]); /* no cell names the body any more */
}

/* ---- by the reaper ---- */

bool sb_transaction_is_decided(const sb_connection_shm *dead) {
  uint64_t commit = SB_LOAD(&dead->commit, SB_SEQ_CST); /* P12: the word is loaded before the holdings are read */
  return commit == SB_COMMIT_DECIDED || commit == SB_COMMIT_STORED;
}

static bool counts_as_taken(const sb_queue_shm *q, bool scheduled) {
  return sb_queue_tracks(q) && (scheduled || sb_queue_evicts(q));
}

static void flip_for(sb_reap_context *w, uint32_t queue, uint64_t position) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t word;
  sb_queue q;
  if (position == NOWHERE || !sb_intent_find_cell(w, queue, position, &r, &leaf, &word)) {
    return;
  }
  if (!is_staged(word, leaf.gen, w->id)) {
    sb_requeued_returned(&r); /* the dead connection may have flipped the cell, and told no reader */
    return;
  }
  sb_ledger_shm *l = sb_ledger_of(w->b, sb_slot_at(w->b, queue), w->id);
  if (l != NULL && sb_slot_ready(w->b, sb_cell_slot(word)) && sb_queue_stand_in(w->by, queue, &q, l) == SB_OK) {
    flip(&q, &leaf, position, word, counts_as_taken(q.shm, false));
    SB_CRASHPOINT("recover.commit.flipped");
  }
}

/* Settles, by the steps of sb_settle_message, the message of a cell that the dead connection holds. */
static void settle_for(sb_reap_context *w, uint32_t queue, uint64_t position, unsigned counter) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t word;
  bool found = sb_intent_find_cell(w, queue, position, &r, &leaf, &word);
  uint64_t side = found ? SB_LOAD(&sb_leaf_cell(&leaf, position)->side, SB_ACQUIRE) : 0, gen = sb_side_gen(side);
  /* a dead message that is carried out is REMOVING (sb_park.h), and so is one that is transferred (sb_queue_take) */
  bool removes = (side & SB_SIDE_WHY) != 0 || counter == SB_COUNT_MOVED;
  unsigned held = removes ? SB_CELL_REMOVING : SB_CELL_ACQUIRED;
  if (!found || sb_cell_state(word) != held || sb_cell_owner(word) != w->id) {
    if (found) sb_intent_release_cell(w, queue, position); /* if the cell is a TOMBSTONE, its page may need retiring */
    return;
  }
  sb_ledger_shm *l = sb_ledger_of(w->b, sb_slot_at(w->b, queue), w->id);
  uint32_t slot = sb_cell_slot(word);
  if (l == NULL || !sb_slot_in_range(w->b, slot) || !sb_slot_ready(w->b, slot)) {
    return;
  }
  if (counter == SB_COUNT_DEAD_LETTERED && (side & SB_SIDE_WHY) == 0) { /* rejected, and not carried out yet */
    SB_STORE(&sb_leaf_cell(&leaf, position)->side, side | sb_side_why(SB_WHY_REJECTED), SB_RELEASE);
    sb_intent_release_cell(w, queue, position); /* parks it */
    return;
  }
  uint64_t bytes = sb_peek_length(w->b, slot);
  sb_reference reference = {slot, sb_cell_ref(word), gen, queue};
  sb_ledger_begin_intent(l, SB_INTENT_SETTLE, counter, position, (uint64_t)slot | SB_FIELD(sb_cell_ref(word), 32), gen,
                         bytes);
  (void)sb_reference_drop(w->b, &reference);
  SB_CRASHPOINT("recover.commit.dropped");
  (void)sb_ring_drop(w->by, &r, &leaf, position, word);
  sb_ledger_count(l, SB_COUNT_REMOVED_BYTES, bytes);
  sb_ledger_count(l, counter, 1);
  sb_ledger_end_intent(l);
}

void sb_transaction_roll_forward(sb_reap_context *w, uint64_t what, uint64_t where) {
  if (sb_holding_kind(what) == SB_HOLD_STAGED) {
    flip_for(w, sb_holding_slot(what), where);
    if (where != NOWHERE) sb_intent_settle_value(w, sb_holding_slot(what), where);
  } else if (sb_holding_kind(what) == SB_HOLD_SETTLING) {
    settle_for(w, sb_holding_slot(what), where, sb_holding_counter(what) % SB_COUNTERS);
  }
}

void sb_transaction_remember_ids(sb_reap_context *w, uint64_t what, uint64_t where) {
  if (sb_holding_kind(what) == SB_HOLD_ID) sb_duplicates_end_dead(w->b, w->id, what, where, true);
}

static void unstage_for(sb_reap_context *w, uint32_t queue, uint64_t position) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t word;
  if (position == NOWHERE || !sb_intent_find_cell(w, queue, position, &r, &leaf, &word)) {
    return;
  }
  if (sb_cell_state(word) == SB_CELL_TOMBSTONE) {
    sb_ring_redo(w->by, &r, &leaf, position);
    return;
  }
  uint32_t slot = sb_cell_slot(word);
  if (!is_staged(word, leaf.gen, w->id) || !sb_slot_in_range(w->b, slot) || !sb_slot_ready(w->b, slot)) {
    return;
  }
  sb_message_shm m = sb_peek_message(w->b, slot); /* not freed yet: all cells are undone before any body is freed */
  if (sb_ring_drop(w->by, &r, &leaf, position, word)) {
    SB_CRASHPOINT("recover.commit.unstaged");
    sb_queue_shm *q = sb_slot_at(w->b, queue);
    if (sb_queue_tracks(q) && !counts_as_taken(q, m.due_ns != 0)) sb_hints_taken(q, 1, m.body_length);
  }
}

void sb_transaction_roll_back(sb_reap_context *w, uint64_t what, uint64_t where) {
  if (sb_holding_kind(what) == SB_HOLD_STAGED) {
    unstage_for(w, sb_holding_slot(what), where);
  } else if (sb_holding_kind(what) == SB_HOLD_SETTLING) {
    sb_intent_release_cell(w, sb_holding_slot(what), where);
  } else if (sb_holding_kind(what) == SB_HOLD_ID) {
    sb_duplicates_end_dead(w->b, w->id, what, where, false);
  }
}

void sb_transaction_free_body(sb_reap_context *w, uint64_t what, uint64_t where) {
  uint32_t slot = sb_holding_slot(what);
  (void)where;
  if (sb_holding_kind(what) != SB_HOLD_PUBLICATION || !sb_slot_in_range(w->b, slot) || !sb_slot_ready(w->b, slot)) {
    return;
  }
  uint64_t h = SB_LOAD(sb_slot_header(w->b, slot), SB_ACQUIRE);
  bool own = sb_slot_state(h) == SB_SLOT_ALLOC ? sb_slot_owner(h) == w->id : sb_slot_state(h) == SB_SLOT_PUBLISHED;
  if (own && (uint32_t)sb_slot_gen(h) == sb_holding_gen(what)) (void)sb_slab_free(w->b, slot, h); /* I46 */
}
