// SPDX-License-Identifier: Apache-2.0
#include "sb_recover.h"

#include "sb_directory.h"
#include "sb_liveness.h"
#include "sb_slab.h"
#include "sb_view.h"
#include "sb_wait.h"

#define MAX_HOLDING_CHUNKS (1u << 17)

typedef struct {
  sb_connection *by;
  sb_broker *b;
  unsigned id;
  bool views_live;
} walk;

typedef void (*visitor)(walk *w, uint64_t what, uint64_t where);

static void each_holding(walk *w, sb_connection_shm *shm, visitor visit) {
  uint32_t at = SB_LOAD(&shm->holdings, SB_ACQUIRE);
  for (uint32_t n = 0; n < MAX_HOLDING_CHUNKS && sb_slab_object(w->b, at, SB_KIND_HOLDINGS) != NULL; n++) {
    sb_holdings_shm *chunk = sb_slot_at(w->b, at);
    uint32_t used = SB_LOAD(&chunk->used, SB_ACQUIRE);
    for (uint32_t i = 0; i < used && i < SB_HOLDINGS_PER_CHUNK; i++) {
      uint64_t what = SB_LOAD(&chunk->entries[i].what, SB_ACQUIRE); /* P8 acquire */
      if (sb_holding_kind(what) != SB_HOLD_NONE) {
        visit(w, what, SB_LOAD(&chunk->entries[i].where, SB_ACQUIRE));
      }
    }
    at = SB_LOAD(&chunk->next, SB_ACQUIRE);
  }
}

/* ---- cells ---- */

static bool cell_at(walk *w, uint32_t queue, uint64_t position, sb_ring *r, sb_leaf_ref *leaf, uint64_t *word) {
  if (!sb_ring_open(w->b, queue, SB_RING_CELLS, r) || sb_ring_locate(w->b, NULL, r, position, leaf) != SB_OK) {
    return false;
  }
  *word = SB_LOAD(&sb_leaf_cell(leaf, position)->word, SB_SEQ_CST);
  return sb_cell_of(*word, leaf->gen);
}

static bool held_by(const walk *w, uint64_t word, unsigned state) {
  return sb_cell_state(word) == state && sb_cell_owner(word) == w->id;
}

static void release_cell(walk *w, uint32_t queue, uint64_t position) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t word;
  if (!cell_at(w, queue, position, &r, &leaf, &word)) {
    return;
  }
  sb_cell_shm *cell = sb_leaf_cell(&leaf, position);
  if (sb_cell_state(word) == SB_CELL_TOMBSTONE) {
    sb_ring_redo(w->by, &r, &leaf, position); /* its holder may have died before it set the bit */
    return;
  }
  if (sb_cell_state(word) == SB_CELL_AVAILABLE) {
    sb_ring_mark_returned(w->b, &r, position); /* it may have cleared the bit to take the cell, and died */
    return;
  }
  uint32_t slot = sb_cell_slot(word);
  if (!sb_cell_is_owned(word) || sb_cell_owner(word) != w->id || !sb_slot_in_range(w->b, slot) ||
      !sb_slot_ready(w->b, slot)) {
    return;
  }
  uint64_t side = SB_LOAD(&cell->side, SB_ACQUIRE);
  uint64_t bytes = ((sb_message_shm *)sb_slot_at(w->b, slot))->body_length;
  if (sb_cell_state(word) == SB_CELL_ACQUIRED) {
    SB_STORE(&cell->side, side | SB_SIDE_REDELIVERED, SB_RELEASE);
  }
  sb_ring_mark_returned(w->b, &r, position); /* P5 */
  uint64_t open = sb_cell_open(SB_CELL_AVAILABLE, slot, sb_cell_ref(word), leaf.gen);
  if (SB_CAS(&cell->word, &word, open, SB_SEQ_CST)) {
    SB_CRASHPOINT("recover.cell.released");
    sb_queue_shm *q = sb_slot_at(w->b, queue);
    if (sb_queue_tracks(q)) {
      (void)SB_SUB(&q->bytes_out, bytes, SB_RELAXED);
      (void)SB_SUB(&q->taken, 1, SB_SEQ_CST);
    }
    if (!sb_ring_is_marked(w->b, &r, position)) {
      word = SB_LOAD(&cell->word, SB_SEQ_CST);
      if (word == open) sb_ring_mark_returned(w->b, &r, position);
    }
  }
}

/* ---- intents ---- */

static void raise_to(sb_word *counter, uint64_t before, uint64_t by) { /* I19 */
  (void)SB_CAS(counter, &before, before + by, SB_ACQ_REL);
}

typedef struct {
  uint64_t kind, position, gen, before, before_bytes, bytes, target_position;
  uint32_t slot, queue, target_queue;
  unsigned ref, target_ref, counter;
} intent;

static bool still_stands(sb_ledger_shm *l, const intent *i) { return SB_LOAD(&l->kind, SB_SEQ_CST) == i->kind; }
static void clear(sb_ledger_shm *l, intent *i) { (void)SB_CAS(&l->kind, &i->kind, i->kind >> 16 << 16, SB_SEQ_CST); }

static void judge_enqueue(walk *w, sb_ledger_shm *l, intent *i) {
  sb_word *header = sb_slot_header(w->b, i->slot);
  for (;;) {
    uint64_t h = SB_LOAD(header, SB_SEQ_CST);
    bool same = sb_slot_gen(h) == i->gen;
    if (same && sb_slot_state(h) == SB_SLOT_ALLOC) {
      break; /* not published: the slot is freed with the other slots */
    }
    if (same && (sb_slot_refs(h) >> i->ref & 1) != 0) {
      sb_ring r;
      sb_leaf_ref leaf;
      uint64_t word;
      bool there = i->position != UINT64_MAX && cell_at(w, i->queue, i->position, &r, &leaf, &word) &&
                   sb_cell_has_message(word) && sb_cell_slot(word) == i->slot && sb_cell_ref(word) == i->ref;
      if (!there) {
        if (SB_LOAD(header, SB_SEQ_CST) != h) continue; /* it went while we looked: it had happened */
        if (still_stands(l, i)) (void)sb_slab_free(w->b, i->slot, h);
        break;
      }
      sb_message_shm *m = sb_slot_at(w->b, i->slot);
      if (m->due_ns != 0 || m->expires_ns != 0) {
        SB_STORE(&((sb_queue_shm *)sb_slot_at(w->b, i->queue))->timers_lost, 1, SB_RELEASE); /* cell_at found it */
      }
    }
    if (still_stands(l, i)) {
      raise_to(&l->counters[SB_COUNT_ADDED_BYTES], i->before_bytes, i->bytes);
      if (i->target_queue != 0) raise_to(&l->counters[SB_COUNT_SCHEDULED], i->target_position, 1);
      raise_to(&l->counters[SB_COUNT_ADDED], i->before, 1);
    }
    break;
  }
  clear(l, i);
}

static bool reference_gone(walk *w, const intent *i) {
  uint64_t h = SB_LOAD(sb_slot_header(w->b, i->slot), SB_SEQ_CST);
  return sb_slot_gen(h) != i->gen || (sb_slot_refs(h) >> i->ref & 1) == 0;
}

static void count_removed(sb_ledger_shm *l, const intent *i) {
  raise_to(&l->counters[SB_COUNT_REMOVED_BYTES], i->before_bytes, i->bytes);
  raise_to(&l->counters[i->counter], i->before, 1);
}

static void judge_settle(walk *w, sb_ledger_shm *l, intent *i) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t word;
  bool gone = reference_gone(w, i), found = cell_at(w, i->queue, i->position, &r, &leaf, &word);
  if (gone && still_stands(l, i)) {
    count_removed(l, i);
    if (found && (held_by(w, word, SB_CELL_ACQUIRED) || held_by(w, word, SB_CELL_REMOVING))) {
      (void)sb_ring_drop(w->by, &r, &leaf, i->position, word);
    }
  }
  clear(l, i);
}

static void judge_due(walk *w, sb_ledger_shm *l, intent *i) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t word;
  if (cell_at(w, i->queue, i->position, &r, &leaf, &word) && held_by(w, word, SB_CELL_REMOVING) && still_stands(l, i)) {
    raise_to(&l->counters[SB_COUNT_UNSCHEDULED], i->before, 1);
  }
  clear(l, i);
}

static void judge_move(walk *w, sb_ledger_shm *l, intent *i) {
  sb_ring r, source;
  sb_leaf_ref leaf, source_leaf;
  uint64_t word, source_word;
  bool there = i->target_position != UINT64_MAX && cell_at(w, i->target_queue, i->target_position, &r, &leaf, &word) &&
               held_by(w, word, SB_CELL_REMOVING) && sb_cell_slot(word) == i->slot &&
               sb_cell_ref(word) == i->target_ref;
  if (!still_stands(l, i)) {
    return;
  }
  bool freed;
  if (!there) {
    (void)sb_slab_drop(w->b, i->slot, i->gen, i->target_ref, &freed);
    clear(l, i);
    return;
  }
  sb_ledger_shm *to = sb_ledger_at(w->b, (uint32_t)SB_LOAD(&l->target_ledger, SB_RELAXED));
  if (to != NULL) {
    raise_to(&to->counters[SB_COUNT_ADDED_BYTES], SB_LOAD(&l->target_before_bytes, SB_RELAXED), i->bytes);
    raise_to(&to->counters[SB_COUNT_ADDED], SB_LOAD(&l->target_before, SB_RELAXED), 1);
  }
  if (((sb_message_shm *)sb_slot_at(w->b, i->slot))->expires_ns != 0) { /* cell_at found the queue */
    SB_STORE(&((sb_queue_shm *)sb_slot_at(w->b, i->target_queue))->timers_lost, 1, SB_RELEASE);
  }
  SB_STORE(&sb_leaf_cell(&leaf, i->target_position)->side, sb_side_word(i->gen, 0, SB_SIDE_REDELIVERED), SB_RELEASE);
  (void)sb_slab_drop(w->b, i->slot, i->gen, i->ref, &freed);
  count_removed(l, i);
  if (cell_at(w, i->queue, i->position, &source, &source_leaf, &source_word) &&
      held_by(w, source_word, SB_CELL_REMOVING)) {
    (void)sb_ring_drop(w->by, &source, &source_leaf, i->position, source_word);
  }
  clear(l, i);
  release_cell(w, i->target_queue, i->target_position);
}

static void judge(walk *w, sb_ledger_shm *l) {
  uint64_t slot = SB_LOAD(&l->slot, SB_ACQUIRE);
  intent i = {.kind = SB_LOAD(&l->kind, SB_SEQ_CST), /* P11 acquire */
              .position = SB_LOAD(&l->position, SB_ACQUIRE),
              .gen = SB_LOAD(&l->gen, SB_ACQUIRE),
              .before = SB_LOAD(&l->before, SB_ACQUIRE),
              .before_bytes = SB_LOAD(&l->before_bytes, SB_ACQUIRE),
              .bytes = SB_LOAD(&l->bytes, SB_ACQUIRE),
              .target_position = SB_LOAD(&l->target_position, SB_ACQUIRE),
              .target_queue = (uint32_t)SB_LOAD(&l->target_queue, SB_ACQUIRE),
              .queue = SB_LOAD(&l->queue, SB_ACQUIRE),
              .slot = (uint32_t)SB_BITS(slot, 0, 28),
              .ref = (unsigned)SB_BITS(slot, 32, 5),
              .target_ref = (unsigned)SB_BITS(slot, 40, 5)};
  i.counter = (unsigned)SB_BITS(i.kind, 8, 8) % SB_COUNTERS;
  if ((i.kind & 0xffu) == SB_INTENT_NONE || !sb_slot_in_range(w->b, i.slot) || !sb_slot_ready(w->b, i.slot)) {
    return;
  }
  SB_CRASHPOINT("recover.intent");
  switch (i.kind & 0xffu) {
    case SB_INTENT_ENQUEUE: judge_enqueue(w, l, &i); break;
    case SB_INTENT_SETTLE: judge_settle(w, l, &i); break;
    case SB_INTENT_DUE: judge_due(w, l, &i); break;
    case SB_INTENT_MOVE: judge_move(w, l, &i); break;
    default: clear(l, &i); break;
  }
}

static sb_ledger_shm *own_ledger(walk *w, uint64_t what, uint64_t where) {
  sb_ledger_shm *l =
      sb_holding_kind(what) == SB_HOLD_LEDGER && where < UINT32_MAX ? sb_ledger_at(w->b, (uint32_t)where) : NULL;
  return l != NULL && SB_BITS(SB_LOAD(&l->owner, SB_ACQUIRE), 0, 12) == w->id ? l : NULL;
}

static void visit_intents(walk *w, uint64_t what, uint64_t where) {
  sb_ledger_shm *l = own_ledger(w, what, where);
  if (l != NULL) {
    judge(w, l);
  }
}

/* ---- slots, pages, nodes ---- */

static unsigned kind_of(sb_broker *b, uint32_t slot) {
  uint64_t chunk = SB_LOAD(&b->chunks[slot / SB_CHUNK_UNITS], SB_ACQUIRE);
  if (sb_chunk_state(chunk) != SB_CHUNK_CLASS) {
    return SB_KIND_MESSAGE;
  }
  return SB_LOAD(&b->classes[sb_chunk_class(chunk)].kind, SB_RELAXED);
}

static void publish_or_free(walk *w, uint32_t slot, uint64_t h, bool linked) {
  if (linked) {
    (void)SB_CAS(sb_slot_header(w->b, slot), &h, sb_slot_word(SB_SLOT_PUBLISHED, 1, sb_slot_gen(h)), SB_ACQ_REL);
  } else {
    (void)sb_slab_free(w->b, slot, h);
  }
}

static bool level_linked(sb_broker *b, uint32_t slot) {
  sb_level_shm *level = sb_slot_at(b, slot);
  uint32_t queue = SB_LOAD(&level->queue, SB_RELAXED);
  if (sb_slab_object(b, queue, SB_KIND_QUEUE) == NULL) {
    return false;
  }
  uint32_t at = SB_LOAD(&((sb_queue_shm *)sb_slot_at(b, queue))->levels, SB_ACQUIRE);
  for (uint32_t n = 0; at != slot && n < 4096u && sb_level_at(b, at) != NULL; n++) {
    at = SB_LOAD(&sb_level_at(b, at)->next, SB_ACQUIRE);
  }
  return at == slot;
}

static bool ledger_linked(sb_broker *b, uint32_t slot) {
  sb_ledger_shm *ledger = sb_slot_at(b, slot);
  uint32_t queue = SB_LOAD(&ledger->queue, SB_RELAXED);
  if (sb_slab_object(b, queue, SB_KIND_QUEUE) == NULL) {
    return false;
  }
  uint32_t at = SB_LOAD(&((sb_queue_shm *)sb_slot_at(b, queue))->ledgers, SB_ACQUIRE);
  for (uint32_t n = 0; at != 0 && at != slot && n < 65536u && sb_ledger_at(b, at) != NULL; n++) {
    at = SB_LOAD(&sb_ledger_at(b, at)->next, SB_ACQUIRE);
  }
  return at == slot;
}

static void disown(walk *w, uint32_t slot) {
  sb_ledger_shm *l = sb_slot_at(w->b, slot);
  uint64_t owner = SB_LOAD(&l->owner, SB_ACQUIRE);
  if (SB_BITS(owner, 0, 12) == w->id) (void)SB_CAS(&l->owner, &owner, owner >> 12 << 12, SB_ACQ_REL);
}

/* Unlinked by a sweep of a closed queue, and not freed yet? */
static bool is_garbage(sb_broker *b, uint32_t slot) {
  switch (kind_of(b, slot)) {
    case SB_KIND_LEVEL: return !level_linked(b, slot);
    case SB_KIND_LEDGER: return !ledger_linked(b, slot);
    case SB_KIND_QUEUE:
      return SB_BITS(SB_LOAD(&((sb_queue_shm *)sb_slot_at(b, slot))->state, SB_ACQUIRE), 0, 2) == SB_QUEUE_NONE;
    default: return false;
  }
}

static void settle_slot(walk *w, uint32_t slot, uint32_t gen) {
  uint64_t h = SB_LOAD(sb_slot_header(w->b, slot), SB_ACQUIRE);
  if (sb_slot_state(h) == SB_SLOT_PUBLISHED && (uint32_t)sb_slot_gen(h) == gen) {
    if (is_garbage(w->b, slot)) {
      (void)sb_slab_free(w->b, slot, h);
    } else if (kind_of(w->b, slot) == SB_KIND_LEDGER) {
      disown(w, slot); /* published, but not noted as ours yet */
    }
    return;
  }
  if (sb_slot_state(h) != SB_SLOT_ALLOC || sb_slot_owner(h) != w->id || (uint32_t)sb_slot_gen(h) != gen) {
    return;
  }
  sb_page_shm *page = sb_slot_at(w->b, slot);
  sb_ring r;
  switch (kind_of(w->b, slot)) {
    case SB_KIND_MESSAGE: (void)sb_slab_free(w->b, slot, h); break;
    case SB_KIND_LEAF:
    case SB_KIND_INNER: {
      bool known = sb_ring_open(w->b, SB_LOAD(&page->object, SB_RELAXED), SB_LOAD(&page->ring, SB_RELAXED) & 0xffu, &r);
      publish_or_free(w, slot, h, known && sb_ring_links(w->b, &r, slot, sb_slot_gen(h)));
      break;
    }
    case SB_KIND_LEVEL: publish_or_free(w, slot, h, level_linked(w->b, slot)); break;
    case SB_KIND_LEDGER:
      if (ledger_linked(w->b, slot)) {
        disown(w, slot);
        publish_or_free(w, slot, h, true);
      } else {
        publish_or_free(w, slot, h, false);
      }
      break;
    case SB_KIND_QUEUE: publish_or_free(w, slot, h, sb_directory_links(w->b, slot)); break;
    case SB_KIND_NODE: sb_node_destroy(w->by, slot, 0); break;
    default: break; /* holdings and the record go last */
  }
}

static void visit_slots(walk *w, uint64_t what, uint64_t where) {
  uint32_t slot = sb_holding_slot(what);
  if (sb_holding_kind(what) == SB_HOLD_CHUNK && where < w->b->chunk_limit) {
    sb_slab_recover_chunk(w->b, w->id, (uint32_t)where);
  }
  if (!sb_slot_in_range(w->b, slot) || !sb_slot_ready(w->b, slot)) {
    return;
  }
  if (sb_holding_kind(what) == SB_HOLD_SLOT) {
    settle_slot(w, slot, sb_holding_gen(what));
  } else if (sb_holding_kind(what) == SB_HOLD_PAGE) {
    uint64_t h = SB_LOAD(sb_slot_header(w->b, slot), SB_ACQUIRE);
    sb_page_shm *page = sb_slot_at(w->b, slot);
    sb_ring r;
    if (sb_slot_state(h) != SB_SLOT_FREE && (uint32_t)sb_slot_gen(h) == sb_holding_gen(what) &&
        sb_ring_open(w->b, SB_LOAD(&page->object, SB_RELAXED), SB_LOAD(&page->ring, SB_RELAXED) & 0xffu, &r)) {
      sb_ring_settle_page(w->by, &r, slot, sb_slot_gen(h));
    }
  }
}

static void visit_views(walk *w, uint64_t what, uint64_t where) {
  if (sb_holding_kind(what) == SB_HOLD_VIEW) {
    sb_view_recover(w->b, w->id, what, where);
  }
}

static void visit_cells(walk *w, uint64_t what, uint64_t where) {
  if (sb_holding_kind(what) == SB_HOLD_CELL) {
    release_cell(w, sb_holding_slot(what), where);
  }
}

static void visit_ledgers(walk *w, uint64_t what, uint64_t where) {
  sb_ledger_shm *l = own_ledger(w, what, where);
  if (l == NULL) {
    return;
  }
  uint64_t owner = SB_LOAD(&l->owner, SB_ACQUIRE), holding = SB_LOAD(&l->holding, SB_ACQUIRE);
  (void)SB_CAS(&l->holding, &holding, holding >> 32 << 32, SB_ACQ_REL);
  (void)SB_CAS(&l->owner, &owner, owner >> 12 << 12, SB_ACQ_REL);
  sb_recover_queue(w->by, SB_LOAD(&l->queue, SB_ACQUIRE));
}

void sb_recover_queue(sb_connection *by, uint32_t slot) {
  sb_queue q;
  if (sb_queue_open(by, slot, &q, true) != SB_OK) {
    return;
  }
  sb_queue_resolve_closing(by->b, by, q.shm, &q.ring, sb_ring_exact_tail(by->b, &q.ring)); /* of a killed deleter */
  (void)sb_upkeep_reconcile(by->b, q.shm);
  (void)sb_nodes_recount(by->b, slot, false);
  if (sb_queue_is_open(&q) && SB_BITS(q.state, 0, 2) == SB_QUEUE_OPEN) {
    (void)sb_limits_enforce(&q); /* the debt of a producer killed between insert and eviction */
    (void)sb_ring_exact_tail(by->b, &q.ring);
    sb_consumer_backlog_arrived(&q);
  } else {
    (void)sb_upkeep_dispose(&q);
    sb_consumer_wake_all(by, slot);
  }
  sb_consumer_room_made(by, q.shm, slot);
  sb_queue_leave(&q);
}

/* ---- connections and processes ---- */

static void free_holdings(sb_broker *b, sb_connection_shm *shm) {
  uint32_t at = SB_LOAD(&shm->holdings, SB_ACQUIRE);
  SB_STORE(&shm->holdings, 0u, SB_RELEASE);
  for (uint32_t n = 0; n < MAX_HOLDING_CHUNKS && sb_slab_object(b, at, SB_KIND_HOLDINGS) != NULL; n++) {
    uint32_t next = SB_LOAD(&((sb_holdings_shm *)sb_slot_at(b, at))->next, SB_ACQUIRE);
    (void)sb_slab_free_gen(b, at, sb_slot_gen(SB_LOAD(sb_slot_header(b, at), SB_ACQUIRE)));
    at = next;
  }
}

static bool in_chain(sb_broker *b, sb_connection_shm *shm, uint32_t slot) {
  uint32_t at = SB_LOAD(&shm->holdings, SB_ACQUIRE);
  for (uint32_t n = 0; at != slot && n < MAX_HOLDING_CHUNKS && sb_slab_object(b, at, SB_KIND_HOLDINGS) != NULL; n++) {
    at = SB_LOAD(&((sb_holdings_shm *)sb_slot_at(b, at))->next, SB_ACQUIRE);
  }
  return at == slot;
}

/* A chunk of holdings that was allocated but never linked (announced by entry 0, or by the process slot). */
static void free_stray(walk *w, sb_connection_shm *shm, uint64_t what) {
  uint32_t slot = sb_holding_slot(what);
  if (sb_holding_kind(what) == SB_HOLD_CHUNK || sb_holding_kind(what) != SB_HOLD_SLOT ||
      !sb_slot_in_range(w->b, slot) || !sb_slot_ready(w->b, slot)) {
    return;
  }
  uint64_t h = SB_LOAD(sb_slot_header(w->b, slot), SB_ACQUIRE);
  bool ours = sb_slot_state(h) == SB_SLOT_ALLOC && sb_slot_owner(h) == w->id &&
              (uint32_t)sb_slot_gen(h) == sb_holding_gen(what);
  unsigned kind = kind_of(w->b, slot);
  if (ours && ((kind == SB_KIND_HOLDINGS && (shm == NULL || !in_chain(w->b, shm, slot))) ||
               (kind == SB_KIND_CONNECTION && shm != sb_slot_at(w->b, slot)))) {
    (void)sb_slab_free(w->b, slot, h);
  }
}

static void end_connection(walk *w, sb_connection_shm *shm, const sb_holding_shm *boot) {
  uint64_t word = SB_LOAD(&w->b->connections[w->id], SB_ACQUIRE);
  uint64_t booted = SB_LOAD(&boot->what, SB_ACQUIRE);
  if (sb_holding_kind(booted) == SB_HOLD_CHUNK) {
    sb_slab_recover_chunk(w->b, w->id, (uint32_t)SB_LOAD(&boot->where, SB_ACQUIRE));
  }
  free_stray(w, shm, booted);
  if (shm != NULL) {
    uint32_t at = SB_LOAD(&shm->holdings, SB_ACQUIRE);
    for (uint32_t n = 0; n < MAX_HOLDING_CHUNKS && sb_slab_object(w->b, at, SB_KIND_HOLDINGS) != NULL; n++) {
      sb_holdings_shm *chunk = sb_slot_at(w->b, at);
      free_stray(w, shm, SB_LOAD(&chunk->entries[0].what, SB_ACQUIRE));
      at = SB_LOAD(&chunk->next, SB_ACQUIRE);
    }
    sb_slab_restore_claims(w->b, shm);
    free_holdings(w->b, shm);
    uint32_t record = sb_conn_slot(word);
    (void)sb_slab_free_gen(w->b, record, sb_slot_gen(SB_LOAD(sb_slot_header(w->b, record), SB_ACQUIRE)));
  }
  SB_CRASHPOINT("recover.connection.freed");
  (void)SB_CAS(&w->b->connections[w->id], &word, sb_conn_word(SB_CONN_FREE, 0, 0, sb_conn_epoch(word)), SB_ACQ_REL);
}

static void reap_connection(sb_connection *by, unsigned id, const sb_holding_shm *boot) {
  walk w = {by, by->b, id, false};
  sb_connection_shm *shm = sb_connection_record(by->b, id);
  if (shm != NULL) {
    SB_STORE(&shm->waiter, 0u, SB_RELEASE);
    each_holding(&w, shm, visit_intents);
    each_holding(&w, shm, visit_slots);
    each_holding(&w, shm, visit_views);
    each_holding(&w, shm, visit_cells);
    each_holding(&w, shm, visit_ledgers);
  }
  end_connection(&w, shm, boot);
}

bool sb_recover_process(sb_connection *by, uint32_t process) {
  sb_broker *b = by->b;
  if (!sb_liveness_begin_reaping(b, process)) {
    return false;
  }
  SB_CRASHPOINT("recover.begun");
  sb_lock(&by->lock);
  for (unsigned id = 1; id < SB_MAX_CONNECTIONS; id++) {
    uint64_t word = SB_LOAD(&b->connections[id], SB_ACQUIRE);
    if (sb_conn_state(word) == SB_CONN_LIVE && sb_conn_process(word) == process) {
      reap_connection(by, id, &b->processes[process].boot);
    }
  }
  SB_STORE(&b->processes[process].boot.what, SB_HOLD_NONE, SB_RELEASE);
  (void)SB_ADD(&b->header->reaped, 1, SB_RELAXED);
  sb_consumer_room_made(by, NULL, 0);
  sb_unlock(&by->lock);
  sb_liveness_end_reaping(b, process, true);
  return true;
}

uint32_t sb_recover_all(sb_connection *by) {
  uint32_t reaped = 0;
  for (uint32_t i = 0; i < SB_MAX_PROCESSES; i++) {
    if (sb_liveness_is_dead(by->b, i)) {
      reaped += sb_recover_process(by, i);
    }
  }
  return reaped;
}

/* ---- a connection that closes ---- */

static void find_views(walk *w, uint64_t what, uint64_t where) {
  (void)where;
  w->views_live = w->views_live || sb_holding_kind(what) == SB_HOLD_VIEW;
}

bool sb_recover_close(sb_connection *c) {
  walk w = {c, c->b, c->id, false};
  each_holding(&w, c->shm, find_views);
  if (w.views_live) {
    return false;
  }
  sb_slab_return_cache(c);
  static const sb_holding_shm nothing;
  end_connection(&w, c->shm, &nothing);
  return true;
}
