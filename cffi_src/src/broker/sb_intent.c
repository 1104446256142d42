// SPDX-License-Identifier: Apache-2.0
#include "sb_intent.h"

#include "sb_changed.h"
#include "sb_paged.h"
#include "sb_reference.h"
#include "sb_release.h"
#include "sb_target.h"
#include "sb_values.h"
#include "sb_view.h"
#include "sb_wait.h"

/* ---- cells ---- */

bool sb_intent_find_cell(sb_reap_context *w, uint32_t queue, uint64_t position, sb_ring *r, sb_leaf_ref *leaf,
                         uint64_t *word) {
  if (!sb_lanes_ring(w->b, queue, position, r) || sb_ring_locate(w->b, NULL, r, position, leaf) != SB_OK) {
    return false;
  }
  *word = SB_LOAD(&sb_leaf_cell(leaf, position)->word, SB_SEQ_CST);
  return sb_cell_of(*word, leaf->gen);
}

static bool held_by(const sb_reap_context *w, uint64_t word, unsigned state) {
  return sb_cell_state(word) == state && sb_cell_owner(word) == w->id;
}

/* If the message has expired, asks the housekeeper to scan the queue, and so to remove the message: the housekeeper may
 * have looked at it while the dead connection held it, and does not look again (sb_schedule.c). The caller has made the
 * cell AVAILABLE before: an earlier scan would find the message held. */
static void ask_to_remove_expired(sb_queue_shm *q, uint64_t expires_ns) {
  if (expires_ns != 0 && expires_ns <= sb_now_ns()) (void)SB_ADD(&q->timers_lost, 1, SB_RELEASE);
}

/* Parks the message of a cell that the dead connection owns (sb_park.h). */
static void park_for(sb_reap_context *w, uint32_t queue, const sb_leaf_ref *leaf, uint64_t position, uint64_t word,
                     uint64_t side) {
  sb_queue q;
  sb_ledger_shm *l = sb_ledger_of(w->b, sb_slot_at(w->b, queue), w->id);
  if (l != NULL && sb_queue_stand_in(w->by, queue, &q, l) == SB_OK) {
    sb_park_for(&q, leaf, position, word, side);
    SB_CRASHPOINT("recover.cell.parked");
    sb_target_ring_housekeeper(w->b);
  }
}

void sb_intent_settle_value(sb_reap_context *w, uint32_t queue, uint64_t position) {
  sb_queue_shm *shm = sb_slab_queue(w->b, queue);
  sb_queue q;
  if (shm == NULL || (SB_LOAD(&shm->flags, SB_RELAXED) & SB_QUEUE_LAST_VALUE) == 0) {
    return;
  }
  sb_status status = sb_queue_attach(w->by, queue, &q, false);
  if (status == SB_OK) {
    (void)sb_values_settle_at(&q, position); /* visit_ledgers enforces the limits */
    sb_queue_detach(&q);
  } else if (status != SB_DELETED) {
    (void)SB_ADD(&shm->values_lost, 1, SB_SEQ_CST); /* no memory for a ledger */
  }
}

static void release_cell(sb_reap_context *w, uint32_t queue, uint64_t position) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t word;
  uint64_t link;
  if (!sb_intent_find_cell(w, queue, position, &r, &leaf, &word)) {
    bool there = sb_lanes_ring(w->b, queue, position, &r);
    /* the dead connection may have cleared a bit of a leaf that left meanwhile */
    if (there && r.changed != NULL && sb_paged_is_at(w->b, &r, position, &link)) sb_requeued_mark(w->b, &r, position);
    return;
  }
  sb_cell_shm *cell = sb_leaf_cell(&leaf, position);
  sb_queue_shm *q = sb_slot_at(w->b, queue);
  uint32_t slot = sb_cell_slot(word);
  bool readable = sb_cell_has_message(word) && sb_slot_in_range(w->b, slot) && sb_slot_ready(w->b, slot);
  if (sb_cell_state(word) == SB_CELL_TOMBSTONE) {
    sb_ring_redo(w->by, &r, &leaf, position); /* the holder may have been killed before it marked the cell finished */
    return;
  }
  if (sb_cell_state(word) == SB_CELL_AVAILABLE || sb_cell_state(word) == SB_CELL_FROZEN) {
    sb_requeued_mark(w->b, &r, position); /* the dead connection may have cleared these bits and not taken the cell */
    /* an earlier reaper may have made the cell AVAILABLE, and been killed before it asked */
    if (readable) ask_to_remove_expired(q, sb_peek_message(w->b, slot).expires_ns);
    return;
  }
  if (!readable || !sb_cell_is_owned(word) || sb_cell_state(word) == SB_CELL_STAGED || sb_cell_owner(word) != w->id) {
    return;
  }
  uint64_t side = SB_LOAD(&cell->side, SB_ACQUIRE);
  sb_message_shm m = sb_peek_message(w->b, slot);
  if (sb_cell_state(word) == SB_CELL_ACQUIRED) {
    side |= SB_SIDE_REDELIVERED;
    bool alive = sb_side_why_of(side) == SB_WHY_ALIVE; /* else the dead connection was about to park it */
    if (alive && sb_release_exhausts(q, sb_side_count(side))) side |= sb_side_why(SB_WHY_DELIVERY_LIMIT);
  } else if (sb_side_why_of(side) == SB_WHY_ALIVE && (m.flags & SB_MESSAGE_REJECTED) != 0) {
    side |= sb_side_why(SB_WHY_MAX_LENGTH); /* I90 of sb_park.h */
  }
  if ((side & (SB_SIDE_WHY | SB_SIDE_DELAYED)) != 0 &&
      sb_queue_state(SB_LOAD(&q->state, SB_ACQUIRE)) == SB_QUEUE_OPEN) {
    park_for(w, queue, &leaf, position, word, side);
    return;
  }
  if (sb_cell_state(word) == SB_CELL_ACQUIRED) SB_STORE(&cell->side, side, SB_RELEASE);
  if (r.changed != NULL) sb_changed_mark_cell(w->b, &r, position); /* I119 of sb_changed.h */
  sb_requeued_mark(w->b, &r, position);                            /* P5 of sb_requeued.h */
  uint64_t open = sb_cell_open(SB_CELL_AVAILABLE, slot, sb_cell_ref(word), leaf.gen);
  if (SB_CAS(&cell->word, &word, open, SB_SEQ_CST)) {
    SB_CRASHPOINT("recover.cell.released");
    sb_requeued_returned(&r);
    /* the dead connection may have shortened the life of a message that it had taken to do so (sb_schedule_limit) */
    bool limited = sb_cell_state(word) == SB_CELL_REMOVING && m.expires_ns > sb_now_ns();
    if (limited) (void)SB_ADD(&q->timers_lost, 1, SB_RELEASE);
    ask_to_remove_expired(q, m.expires_ns);
    if (sb_queue_tracks(q)) sb_hints_untaken(q, 1, m.body_length);
    if (!sb_requeued_is_marked(w->b, &r, position)) {
      word = SB_LOAD(&cell->word, SB_SEQ_CST);
      if (word == open || r.changed != NULL) sb_requeued_mark(w->b, &r, position);
    }
  }
}

void sb_intent_release_cell(sb_reap_context *w, uint32_t queue, uint64_t position) {
  release_cell(w, queue, position);
  sb_intent_settle_value(w, queue, position); /* also if the cell was AVAILABLE before (I103 of sb_values.h) */
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

static void resolve_enqueue(sb_reap_context *w, sb_ledger_shm *l, intent *i) {
  sb_word *header = sb_slot_header(w->b, i->slot);
  for (;;) {
    uint64_t h = SB_LOAD(header, SB_SEQ_CST);
    bool same = sb_slot_gen(h) == i->gen;
    if (same && sb_slot_state(h) == SB_SLOT_ALLOC) {
      break; /* not published: sb_recover.c frees the slot with the other ALLOC slots */
    }
    if (same && (sb_slot_refs(h) >> i->ref & 1) != 0) {
      sb_ring r;
      sb_leaf_ref leaf;
      uint64_t word;
      bool there = i->position != UINT64_MAX && sb_intent_find_cell(w, i->queue, i->position, &r, &leaf, &word) &&
                   sb_cell_has_message(word) && sb_cell_slot(word) == i->slot && sb_cell_ref(word) == i->ref;
      if (there) sb_intent_settle_value(w, i->queue, i->position);
      if (there) sb_lanes_mark(&r); /* the dead connection may not have looked at the ready bit again */
      if (!there) {
        if (SB_LOAD(header, SB_SEQ_CST) != h) continue; /* the message ended or moved meanwhile: look again */
        /* The enqueue took no effect. Makes the slot ALLOC again: sb_recover.c then frees it with the other ALLOC
         * slots. If it were freed here, a second reaper would conclude that the message was delivered. */
        if (still_stands(l, i)) (void)SB_CAS(header, &h, sb_slot_word(SB_SLOT_ALLOC, w->id, i->gen), SB_ACQ_REL);
        break;
      }
      sb_message_shm m = sb_peek_message(w->b, i->slot);
      if (m.due_ns != 0 || m.expires_ns != 0) {
        (void)SB_ADD(&((sb_queue_shm *)sb_slot_at(w->b, i->queue))->timers_lost, 1,
                     SB_RELEASE); /* the queue exists: sb_intent_find_cell found it */
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

static sb_reference reference_of(const intent *i) { return (sb_reference){i->slot, i->ref, i->gen, i->queue}; }

static void count_removed(sb_ledger_shm *l, const intent *i, uint64_t messages) {
  raise_to(&l->counters[SB_COUNT_REMOVED_BYTES], i->before_bytes, i->bytes);
  raise_to(&l->counters[i->counter], i->before, messages);
}
/* For a move: counts the messages that the target queue got. */
static void count_moved_in(sb_reap_context *w, sb_ledger_shm *l, const intent *i, uint64_t messages) {
  sb_ledger_shm *to = sb_ledger_at(w->b, (uint32_t)SB_LOAD(&l->target_ledger, SB_RELAXED));
  if (to != NULL) {
    raise_to(&to->counters[SB_COUNT_ADDED_BYTES], SB_LOAD(&l->target_before_bytes, SB_RELAXED), i->bytes);
    raise_to(&to->counters[SB_COUNT_ADDED], SB_LOAD(&l->target_before, SB_RELAXED), messages);
  }
}

static void resolve_settle(sb_reap_context *w, sb_ledger_shm *l, intent *i) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t word;
  sb_reference reference = reference_of(i);
  bool gone = sb_reference_gone(w->b, &reference),
       found = sb_intent_find_cell(w, i->queue, i->position, &r, &leaf, &word);
  if (gone && still_stands(l, i)) {
    count_removed(l, i, 1);
    if (found && (held_by(w, word, SB_CELL_ACQUIRED) || held_by(w, word, SB_CELL_REMOVING))) {
      (void)sb_ring_drop(w->by, &r, &leaf, i->position, word);
    }
  }
  clear(l, i);
}

static void resolve_due(sb_reap_context *w, sb_ledger_shm *l, intent *i) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t word;
  if (sb_intent_find_cell(w, i->queue, i->position, &r, &leaf, &word) && held_by(w, word, SB_CELL_REMOVING) &&
      still_stands(l, i)) {
    raise_to(&l->counters[SB_COUNT_UNSCHEDULED], i->before, 1);
  }
  clear(l, i);
}

/* The cell was owned by the dead connection, or by the connection that it reaped, since before the intent: it was
 * flipped if it has no such owner any more. */
static void resolve_park(sb_reap_context *w, sb_ledger_shm *l, intent *i) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t word;
  bool found = sb_intent_find_cell(w, i->queue, i->position, &r, &leaf, &word);
  bool owned = found && sb_cell_slot(word) == i->slot &&
               (held_by(w, word, SB_CELL_ACQUIRED) || held_by(w, word, SB_CELL_REMOVING));
  if (!owned && still_stands(l, i)) {
    if (found) (void)SB_ADD(&((sb_queue_shm *)sb_slot_at(w->b, i->queue))->timers_lost, 1, SB_RELEASE);
    raise_to(&l->counters[SB_COUNT_SCHEDULED], i->before, 1);
  }
  clear(l, i);
}

/* The side record (number of deliveries, redelivered) for the target cell of a move. The dead connection stored it
 * there, or was about to. It copied the record from the source cell, which it owned since before the intent. `source`:
 * NULL if the source cell is settled; the record was stored in the target cell before that. If neither cell has a
 * record of this message, the number of deliveries is unknown: the new record has the number 0, and is marked
 * redelivered. */
static uint64_t side_of_moved(const intent *i, const sb_cell_shm *target, const sb_cell_shm *source) {
  uint64_t side = SB_LOAD(&target->side, SB_ACQUIRE);
  if (sb_side_gen(side) != i->gen && source != NULL) side = SB_LOAD(&source->side, SB_ACQUIRE);
  return sb_side_gen(side) == i->gen ? sb_side_word(i->gen, sb_side_count(side), side & SB_SIDE_REDELIVERED)
                                     : sb_side_word(i->gen, 0, SB_SIDE_REDELIVERED);
}

static void resolve_move(sb_reap_context *w, sb_ledger_shm *l, intent *i) {
  sb_ring r, source;
  sb_leaf_ref leaf, source_leaf;
  uint64_t word, source_word;
  bool there = i->target_position != UINT64_MAX &&
               sb_intent_find_cell(w, i->target_queue, i->target_position, &r, &leaf, &word) &&
               held_by(w, word, SB_CELL_REMOVING) && sb_cell_slot(word) == i->slot &&
               sb_cell_ref(word) == i->target_ref;
  bool source_there = sb_intent_find_cell(w, i->queue, i->position, &source, &source_leaf, &source_word) &&
                      held_by(w, source_word, SB_CELL_REMOVING);
  if (!still_stands(l, i)) {
    return;
  }
  bool freed;
  if (!there) {
    /* If the source cell is still REMOVING, the move did not append its target cell, and only the new reference has to
     * be dropped. If the source is gone as well, the move had appended the target cell, and an earlier reaper has
     * released that cell (I34), but was perhaps killed before the last steps of that release. */
    if (source_there) {
      (void)sb_slab_drop(w->b, i->slot, i->gen, i->target_ref, &freed);
    } else {
      sb_intent_release_cell(w, i->target_queue, i->target_position);
    }
    clear(l, i);
    return;
  }
  count_moved_in(w, l, i, 1);
  /* The dead connection may not have added the schedule entry of the message, so the housekeeper must scan all cells.
   * The queue exists: sb_intent_find_cell found it. For a message that has expired, the release below asks for the
   * scan. */
  if (((sb_message_shm *)sb_slot_at(w->b, i->slot))->expires_ns > sb_now_ns()) {
    (void)SB_ADD(&((sb_queue_shm *)sb_slot_at(w->b, i->target_queue))->timers_lost, 1, SB_RELEASE);
  }
  sb_cell_shm *target = sb_leaf_cell(&leaf, i->target_position);
  uint64_t side = side_of_moved(i, target, source_there ? sb_leaf_cell(&source_leaf, i->position) : NULL);
  SB_STORE(&target->side, side, SB_RELEASE);
  sb_word *origin = sb_ring_origin(w->b, &leaf, i->target_position);
  if (origin != NULL && source_there) { /* if the source is settled, *origin was stored before that */
    SB_STORE(origin, sb_ring_sequence(w->b, &source, &source_leaf, i->position), SB_RELEASE);
  }
  SB_CRASHPOINT("recover.move.described");
  sb_reference reference = reference_of(i);
  (void)sb_reference_drop(w->b, &reference);
  count_removed(l, i, 1);
  if (source_there) {
    (void)sb_ring_drop(w->by, &source, &source_leaf, i->position, source_word);
  }
  sb_intent_release_cell(w, i->target_queue,
                         i->target_position); /* before clear(): perhaps only the intent names the target (I34) */
  SB_CRASHPOINT("recover.move.released");
  clear(l, i);
}

/* True if the leaf of the intent MOVE_PAGE was linked (I75 of sb_move_page.h). The header is read first and last: if the
 * leaf is freed in between, all its cells may be another page's. */
static bool page_was_linked(sb_reap_context *w, const intent *i) {
  uint64_t h = SB_LOAD(sb_slot_header(w->b, i->slot), SB_ACQUIRE);
  if (h != sb_slot_word(SB_SLOT_ALLOC, w->id, i->gen)) {
    return true;
  }
  sb_ring r;
  sb_leaf_ref leaf;
  if (sb_lanes_ring(w->b, i->target_queue, i->target_position, &r) &&
      sb_ring_locate(w->b, NULL, &r, i->target_position, &leaf) == SB_OK && leaf.slot == i->slot) {
    return true;
  }
  const sb_leaf_shm *fresh = sb_slot_at(w->b, i->slot);
  uint64_t word = SB_LOAD(&fresh->cells[0].word, SB_ACQUIRE);
  return sb_cell_state(word) == SB_CELL_TOMBSTONE || SB_LOAD(sb_slot_header(w->b, i->slot), SB_ACQUIRE) != h;
}

static void resolve_move_page(sb_reap_context *w, sb_ledger_shm *l, intent *i) {
  bool linked = page_was_linked(w, i);
  if (!still_stands(l, i)) {
    return;
  }
  if (linked) {
    count_moved_in(w, l, i, SB_PAGE_CELLS);
    SB_CRASHPOINT("recover.move.page.counted");
    for (uint64_t at = i->position; at < i->position + SB_PAGE_CELLS; at++) {
      sb_ring r;
      sb_leaf_ref leaf;
      uint64_t word;
      if (!sb_intent_find_cell(w, i->queue, at, &r, &leaf, &word)) continue;
      if (held_by(w, word, SB_CELL_REMOVING)) {
        (void)sb_ring_drop(w->by, &r, &leaf, at, word);
      } else if (sb_cell_state(word) == SB_CELL_TOMBSTONE) {
        sb_ring_redo(w->by, &r, &leaf, at);
      }
    }
    SB_CRASHPOINT("recover.move.page.finished");
    count_removed(l, i, SB_PAGE_CELLS);
  }
  clear(l, i);
}

/* Counts the message if its cell was flipped (I47 of sb_transaction.h). The dead connection, or a reaper of it, wrote
 * the intent while the cell was STAGED: a cell that is not STAGED any more was flipped. */
static void resolve_commit(sb_reap_context *w, sb_ledger_shm *l, intent *i) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t word;
  bool found = sb_intent_find_cell(w, i->queue, i->position, &r, &leaf, &word);
  if (!(found && held_by(w, word, SB_CELL_STAGED)) && still_stands(l, i)) {
    if (found && sb_cell_has_message(word)) {
      sb_message_shm m = sb_peek_message(w->b, i->slot);
      sb_lanes_mark(&r);
      if (m.due_ns != 0 || m.expires_ns != 0) {
        (void)SB_ADD(&((sb_queue_shm *)sb_slot_at(w->b, i->queue))->timers_lost, 1, SB_RELEASE);
      }
    }
    raise_to(&l->counters[SB_COUNT_ADDED_BYTES], i->before_bytes, i->bytes);
    if (i->target_queue != 0) raise_to(&l->counters[SB_COUNT_SCHEDULED], i->target_position, 1);
    raise_to(&l->counters[SB_COUNT_ADDED], i->before, 1);
  }
  clear(l, i);
}

static void resolve(sb_reap_context *w, sb_ledger_shm *l) {
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
    case SB_INTENT_ENQUEUE: resolve_enqueue(w, l, &i); break;
    case SB_INTENT_SETTLE: resolve_settle(w, l, &i); break;
    case SB_INTENT_DUE: resolve_due(w, l, &i); break;
    case SB_INTENT_MOVE: resolve_move(w, l, &i); break;
    case SB_INTENT_COMMIT: resolve_commit(w, l, &i); break;
    case SB_INTENT_MOVE_PAGE: resolve_move_page(w, l, &i); break;
    case SB_INTENT_PARK: resolve_park(w, l, &i); break;
    default: clear(l, &i); break;
  }
}

sb_ledger_shm *sb_intent_ledger(sb_reap_context *w, uint64_t what, uint64_t where) {
  sb_ledger_shm *l =
      sb_holding_kind(what) == SB_HOLD_LEDGER && where < UINT32_MAX ? sb_ledger_at(w->b, (uint32_t)where) : NULL;
  return l != NULL && SB_BITS(SB_LOAD(&l->owner, SB_ACQUIRE), 0, 12) == w->id ? l : NULL;
}

void sb_intent_resolve(sb_reap_context *w, uint64_t what, uint64_t where) {
  sb_ledger_shm *l = sb_intent_ledger(w, what, where);
  if (l != NULL) {
    resolve(w, l);
  }
}
