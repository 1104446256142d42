// SPDX-License-Identifier: Apache-2.0
#include "sb_queue.h"

#include "sb_reference.h"
#include "sb_wait.h"

static sb_status look_up(sb_connection *c, uint32_t slot, sb_queue *q, bool even_closed) {
  sb_broker *b = c->b;
  *q = (sb_queue){.c = c, .slot = slot, .tail_leaf = SB_NO_LEAF, .head_leaf = SB_NO_LEAF, .spin_ns = 50000};
  if (!sb_ring_open(b, slot, SB_RING_CELLS, &q->ring)) {
    return SB_CORRUPT;
  }
  q->shm = sb_slot_at(b, slot);
  q->state = SB_LOAD(&q->shm->state, SB_ACQUIRE);
  unsigned state = (unsigned)SB_BITS(q->state, 0, 2);
  if (state != SB_QUEUE_OPEN && !(even_closed && state == SB_QUEUE_CLOSED)) {
    return SB_DELETED;
  }
  q->base = SB_LOAD(&q->shm->base, SB_RELAXED);
  return SB_OK;
}

sb_status sb_queue_inherit(sb_connection *c, uint32_t slot, sb_queue *q, sb_ledger_shm *ledger, unsigned dead) {
  sb_status status = look_up(c, slot, q, true);
  if (status == SB_OK) status = sb_ledger_inherit(c, slot, ledger, dead, &q->ledger_token);
  if (status == SB_OK) q->ledger = ledger;
  return status;
}

sb_status sb_queue_stand_in(sb_connection *by, uint32_t slot, sb_queue *q, sb_ledger_shm *ledger) {
  sb_status status = look_up(by, slot, q, true);
  if (status == SB_OK) q->ledger = ledger;
  return status;
}

sb_status sb_queue_open(sb_connection *c, uint32_t slot, sb_queue *q, bool even_closed) {
  sb_status status = look_up(c, slot, q, even_closed);
  if (status == SB_OK) status = sb_ledger_adopt(c, slot, &q->ledger, &q->ledger_token);
  if (status == SB_OK && !sb_queue_is_open(q)) { /* from here on the ledger keeps the object alive (I20) */
    sb_ledger_leave(c, q->ledger, q->ledger_token);
    q->ledger = NULL;
    status = SB_DELETED;
  }
  return status;
}

void sb_queue_leave(sb_queue *q) {
  if (q->ledger != NULL) {
    sb_ledger_leave(q->c, q->ledger, q->ledger_token);
    q->ledger = NULL;
  }
}

bool sb_queue_tracks(const sb_queue_shm *q) { return SB_LOAD(&q->tracking, SB_RELAXED) != 0; }

bool sb_queue_evicts(const sb_queue_shm *q) {
  return SB_LOAD(&q->ring_size, SB_RELAXED) >= 0 || SB_LOAD(&q->overflow, SB_RELAXED) == SB_OVERFLOW_DROP_HEAD;
}

uint64_t sb_queue_count_ready(sb_broker *b, const sb_queue_shm *q) {
  static const unsigned out[] = {SB_COUNT_ACKED,   SB_COUNT_EXPIRED,       SB_COUNT_KILLED, SB_COUNT_REPLACED,
                                 SB_COUNT_DROPPED, SB_COUNT_DEAD_LETTERED, SB_COUNT_MOVED,  SB_COUNT_SCHEDULED};
  uint64_t n = 0; /* what left is read before what came; beside traffic, or somebody who was stopped, it may be wrong */
  for (unsigned i = 0; i < sizeof out / sizeof out[0]; i++) {
    n -= sb_ledger_sum(b, q, out[i]);
  }
  n -= sb_ledger_holding(b, q);
  n += sb_ledger_sum(b, q, SB_COUNT_UNSCHEDULED);
  n += sb_ledger_sum(b, q, SB_COUNT_ADDED);
  return (int64_t)n < 0 ? 0 : n;
}

int64_t sb_queue_ready(sb_broker *b, const sb_queue_shm *q) {
  if (!sb_queue_tracks(q)) {
    return (int64_t)sb_queue_count_ready(b, q);
  }
  int64_t n = (int64_t)(SB_LOAD(&q->tail, SB_SEQ_CST) - SB_LOAD(&q->base, SB_RELAXED) - SB_LOAD(&q->taken, SB_SEQ_CST));
  return n < 0 ? 0 : n;
}

static bool ready_from(sb_queue *q, uint64_t at, sb_leaf_ref *leaf) {
  if (SB_LOAD(&q->shm->returned, SB_SEQ_CST) != 0) {
    return true;
  }
  for (unsigned n = 0; n < SB_PAGE_CELLS; n++, at++) {
    sb_status status = sb_leaf_covers(leaf, at) ? SB_OK : sb_ring_locate(q->c->b, NULL, &q->ring, at, leaf);
    if (status == SB_DONE) {
      at = leaf->first - 1;
      continue;
    }
    if (status != SB_OK) {
      return false;
    }
    uint64_t word = SB_LOAD(&sb_leaf_cell(leaf, at)->word, SB_SEQ_CST);
    if (!sb_cell_of(word, leaf->gen) || sb_cell_state(word) == SB_CELL_AVAILABLE) {
      *leaf = SB_NO_LEAF;
      return true; /* the page was used again: looking closer is the caller's */
    }
    if (sb_cell_state(word) == SB_CELL_FREE || sb_cell_state(word) == SB_CELL_CLOSED) {
      return false;
    }
  }
  return true;
}

bool sb_queue_looks_ready(sb_queue *q) {
  uint64_t hint = SB_LOAD(&q->shm->head, SB_ACQUIRE);
  sb_leaf_ref leaf = q->head_leaf;
  return ready_from(q, hint > q->cursor ? hint : q->cursor, &leaf);
}

bool sb_queue_seems_ready(sb_queue *q, sb_leaf_ref *leaf) {
  return ready_from(q, SB_LOAD(&q->shm->head, SB_ACQUIRE), leaf);
}

uint64_t sb_queue_oldest_bytes(sb_queue *q) {
  sb_broker *b = q->c->b;
  uint64_t at = SB_LOAD(&q->shm->head, SB_ACQUIRE), returned;
  if (SB_LOAD(&q->shm->returned, SB_SEQ_CST) != 0 && sb_returned_next(b, &q->ring, 0, &returned) && returned < at) {
    at = returned;
  }
  sb_leaf_ref leaf;
  while (sb_ring_next_leaf(b, &q->ring, at, &leaf, &at)) {
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_ACQUIRE);
      uint32_t slot = sb_cell_slot(word);
      if (!sb_cell_of(word, leaf.gen) || sb_cell_state(word) == SB_CELL_FREE) {
        return 1;
      }
      if (sb_cell_state(word) == SB_CELL_AVAILABLE && sb_slot_in_range(b, slot) && sb_slot_ready(b, slot)) {
        uint64_t bytes = sb_peek_length(b, slot);
        bool still = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_ACQUIRE) == word;
        return still && bytes > 0 && bytes <= SB_MAX_BODY ? bytes : 1;
      }
    }
  }
  return 1;
}

/* I26: a message with a timer gets an entry in the schedule list. Without memory for it, the housekeeper is asked to scan. */
void sb_queue_schedule(sb_queue *q, uint64_t position) {
  sb_ring r;
  sb_leaf_ref cache = SB_NO_LEAF;
  uint64_t at = 0, entry = (uint64_t)SB_CELL_ENTRY | SB_PUT(position, 4);
  if (!sb_ring_open(q->c->b, q->slot, SB_RING_SCHEDULE, &r) ||
      sb_ring_append(q->c, &r, &cache, entry, SB_APPEND_PLAIN, NULL, &at) != SB_OK) {
    (void)SB_ADD(&q->shm->timers_lost, 1, SB_RELEASE);
  }
}

sb_status sb_queue_enqueue(sb_queue *q, uint32_t slot, uint64_t gen, uint64_t bytes, bool held, uint64_t *position) {
  sb_connection *c = q->c;
  sb_ledger_shm *l = q->ledger;
  sb_word *header = sb_slot_header(c->b, slot);
  bool tracked = sb_queue_tracks(q->shm);
  bool timer = held || ((sb_message_shm *)sb_slot_at(c->b, slot))->expires_ns != 0; /* once appended it is not ours */
  SB_STORE(&l->target_queue, held, SB_RELAXED);
  SB_STORE(&l->target_position, SB_LOAD(&l->counters[SB_COUNT_SCHEDULED], SB_RELAXED), SB_RELAXED);
  sb_intent_begin(l, SB_INTENT_ENQUEUE, SB_COUNT_ADDED, UINT64_MAX, slot, gen, bytes);
  SB_STORE(header, sb_slot_word(SB_SLOT_PUBLISHED, 1, gen), SB_RELEASE); /* P1 release */
  SB_CRASHPOINT("queue.enqueue.published");
  if (held && tracked) { /* it becomes ready by a release, which takes both back */
    (void)SB_ADD(&q->shm->taken, 1, SB_SEQ_CST);
    (void)SB_ADD(&q->shm->bytes_out, bytes, SB_SEQ_CST);
  }
  uint64_t word = (uint64_t)(held ? SB_CELL_HELD : SB_CELL_AVAILABLE) | SB_PUT(slot, 4);
  sb_status status;
  for (;;) {
    *position = q->tail_cursor;
    status = sb_ring_append(c, &q->ring, &q->tail_leaf, word, SB_APPEND_OPEN | (tracked ? 0u : SB_APPEND_LAZILY),
                            &l->position, position);
    if (status != SB_CLOSED_CELL) {
      break;
    }
    bool resolved = sb_queue_resolve_closing(c->b, c, q->shm, &q->ring, *position);
    if (!resolved || !sb_queue_is_open(q)) {
      status = resolved ? SB_DELETED : SB_CORRUPT;
      break;
    }
  }
  if (status != SB_OK) {
    SB_STORE(header, sb_slot_word(SB_SLOT_ALLOC, c->id, gen), SB_RELEASE); /* nobody has seen it */
    if (held && tracked) {
      (void)SB_SUB(&q->shm->taken, 1, SB_SEQ_CST);
      (void)SB_SUB(&q->shm->bytes_out, bytes, SB_SEQ_CST);
    }
  } else {
    q->tail_cursor = *position + 1;
    if (timer) sb_queue_schedule(q, *position);
    sb_ledger_count(l, SB_COUNT_ADDED_BYTES, bytes);
    if (held) sb_ledger_count(l, SB_COUNT_SCHEDULED, 1);
    sb_ledger_count(l, SB_COUNT_ADDED, 1);
  }
  sb_intent_end(l);
  return status;
}

/* ---- take ---- */

static void took(sb_queue *q, unsigned state, const sb_leaf_ref *leaf, uint64_t position, uint64_t word, uint64_t token,
                 sb_taken *t) {
  sb_broker *b = q->c->b;
  sb_cell_shm *cell = sb_leaf_cell(leaf, position);
  t->token = token;
  t->position = position;
  t->slot = sb_cell_slot(word);
  t->ref = sb_cell_ref(word);
  t->message = sb_slot_at(b, t->slot);
  t->gen = sb_slot_gen(SB_LOAD(sb_slot_header(b, t->slot), SB_ACQUIRE));
  uint64_t side = SB_LOAD(&cell->side, SB_RELAXED);
  unsigned count = sb_side_count(side) + (state == SB_CELL_ACQUIRED ? 1u : 0u);
  t->side = sb_side_word(t->gen, count, side & SB_SIDE_REDELIVERED);
  SB_STORE(&cell->side, t->side, SB_RELEASE);
  sb_ledger_hold(q->ledger, 1);
  if (state == SB_CELL_ACQUIRED) SB_STORE(&q->shm->last_take, position, SB_RELAXED); /* an eviction serves nobody */
}

/* The CAS that takes a cell. The holding is written before it, so that a reaper finds the cell. */
SB_HOT bool take_cell(sb_queue *q, unsigned state, const sb_leaf_ref *leaf, uint64_t position, uint64_t word,
                      uint64_t token, sb_taken *t) {
  sb_broker *b = q->c->b;
  uint32_t slot = sb_cell_slot(word);
  if (!sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot)) { /* map the body before we own it */
    return false;
  }
  sb_holding_set(b, token, sb_holding_what(SB_HOLD_CELL, q->slot, leaf->slot), position);
  SB_CRASHPOINT("queue.take.announced");
  uint64_t mine = sb_cell_owned(state, slot, sb_cell_ref(word), q->c->id, leaf->gen);
  sb_cell_shm *cell = sb_leaf_cell(leaf, position);
  uint64_t bytes = 0; /* I23: counted before in a queue that evicts, so that nobody evicts for what is taken already */
  t->bytes_paid = sb_cell_state(word) == SB_CELL_AVAILABLE && sb_queue_tracks(q->shm) && sb_queue_evicts(q->shm);
  if (state == SB_CELL_REMOVING) { /* what came is read before what went: else more seem to remain than ever did */
    uint64_t tail = SB_LOAD(&q->shm->tail, SB_SEQ_CST), in = SB_LOAD(&q->shm->bytes_in, SB_SEQ_CST);
    t->pending = (int64_t)(tail - SB_LOAD(&q->shm->base, SB_RELAXED) - SB_LOAD(&q->shm->taken, SB_SEQ_CST));
    t->ready_bytes = (int64_t)(in - SB_LOAD(&q->shm->bytes_out, SB_SEQ_CST));
  }
  if (t->bytes_paid) {
    bytes = sb_peek_length(b, slot);
    if (SB_LOAD(&cell->word, SB_ACQUIRE) != word) {
      return false; /* what we read was perhaps another message's */
    }
    (void)SB_ADD(&q->shm->bytes_out, bytes, SB_SEQ_CST);
  }
  if (!SB_CAS(&cell->word, &word, mine, SB_ACQ_REL)) { /* the linearisation point */
    if (t->bytes_paid) (void)SB_SUB(&q->shm->bytes_out, bytes, SB_SEQ_CST);
    return false;
  }
  SB_CRASHPOINT("queue.take.done");
  took(q, state, leaf, position, mine, token, t);
  return true;
}

/* A cell whose return was announced. */
static bool take_returned_at(sb_queue *q, unsigned state, uint64_t position, uint64_t token, sb_taken *t) {
  sb_broker *b = q->c->b;
  sb_leaf_ref leaf;
  if (sb_ring_locate(b, NULL, &q->ring, position, &leaf) != SB_OK) {
    return false; /* finished in between; the bits went with the page */
  }
  uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, position)->word, SB_SEQ_CST);
  if (!sb_cell_of(word, leaf.gen) || sb_cell_is_owned(word) || sb_cell_state(word) == SB_CELL_HELD) {
    return false; /* its holder may be about to return it: the bit must stay */
  }
  if (sb_cell_state(word) == SB_CELL_AVAILABLE) {
    sb_holding_set(b, token, sb_holding_what(SB_HOLD_CELL, q->slot, leaf.slot), position); /* before the bit is gone */
  }
  sb_returned_clear(b, &leaf, position);
  SB_CRASHPOINT("queue.take.cleared");
  word = SB_LOAD(&sb_leaf_cell(&leaf, position)->word, SB_SEQ_CST); /* P5: look a second time after clearing */
  if (sb_cell_of(word, leaf.gen) && sb_cell_state(word) == SB_CELL_AVAILABLE) {
    if (take_cell(q, state, &leaf, position, word, token, t)) {
      return true;
    }
    word = SB_LOAD(&sb_leaf_cell(&leaf, position)->word, SB_SEQ_CST);
    if (sb_cell_of(word, leaf.gen) && !(sb_cell_state(word) == SB_CELL_TOMBSTONE)) {
      sb_returned_mark(b, &q->ring, position); /* somebody else has it now, and may return it */
    }
  }
  return false;
}

/* What stands there; FREE also when its page is gone, or another one. */
static unsigned look_at(sb_queue *q, uint64_t position) {
  sb_leaf_ref leaf;
  if (sb_ring_locate(q->c->b, NULL, &q->ring, position, &leaf) != SB_OK) {
    return SB_CELL_FREE;
  }
  uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, position)->word, SB_SEQ_CST);
  return sb_cell_of(word, leaf.gen) ? sb_cell_state(word) : SB_CELL_FREE;
}

/* Tries the cells before that one whose return was announced, the oldest first. What lies behind it comes in its turn. */
static bool take_returned(sb_queue *q, unsigned state, uint64_t end, uint64_t token, sb_taken *t) {
  uint64_t from = 0, position, known = SB_ANY_POSITION;
  bool commits = SB_LOAD(&q->shm->staged, SB_RELAXED) != 0, staged = false; /* one of those before it is */
  while (sb_returned_next(q->c->b, &q->ring, from, &position) && position < end) {
    unsigned is = commits ? look_at(q, position) : SB_CELL_FREE;
    from = position + 1;
    if (is == SB_CELL_STAGED) {
      staged = true;
    } else if (is == SB_CELL_AVAILABLE && staged && position != known) {
      known = position; /* I53: look again at those before it */
      staged = false;
      from = 0;
    } else if (take_returned_at(q, state, position, token, t)) {
      return true;
    }
  }
  return false;
}

/* The next message comes from its producer: fetch it while this one is looked at. */
static void fetch_ahead(sb_queue *q, const sb_leaf_ref *leaf, uint64_t at) {
  if (sb_leaf_covers(leaf, at)) {
    uint64_t word = SB_LOAD(&sb_leaf_cell(leaf, at)->word, SB_RELAXED);
    uint32_t slot = sb_cell_slot(word);
    if (sb_cell_state(word) == SB_CELL_AVAILABLE && sb_slot_in_range(q->c->b, slot)) {
      const char *memory = sb_slot_at(q->c->b, slot);
      __builtin_prefetch((const void *)sb_slot_header(q->c->b, slot), 1);
      __builtin_prefetch(memory);
      __builtin_prefetch(memory + 64);
    }
  }
}

void sb_queue_pass_staged(sb_queue *q, uint64_t position) {
  sb_returned_mark(q->c->b, &q->ring, position); /* I53: should its commit be decided, the bits lead back */
  SB_CRASHPOINT("queue.take.passed");
}

bool sb_queue_passed_some(const sb_queue *q) {
  return SB_LOAD(&q->shm->returned, SB_SEQ_CST) != 0 &&
         SB_LOAD(&q->shm->staged, SB_RELAXED) != 0; /* set before it was */
}

static sb_status take_next(sb_queue *q, unsigned state, uint64_t before, uint64_t token, sb_taken *t) {
  sb_broker *b = q->c->b;
  uint64_t hint = SB_LOAD(&q->shm->head, SB_ACQUIRE), at = hint > q->cursor ? hint : q->cursor;
  sb_leaf_ref *leaf = &q->head_leaf;
  sb_status status = SB_EMPTY;
  unsigned strange = 0;
  while (at < before) {
    if (!sb_leaf_covers(leaf, at)) {
      sb_status found = sb_ring_locate(b, NULL, &q->ring, at, leaf);
      if (found == SB_DONE) {
        at = leaf->first;
        continue;
      }
      if (found != SB_OK) {
        status = found;
        break;
      }
    }
    uint64_t word = SB_LOAD(&sb_leaf_cell(leaf, at)->word, SB_SEQ_CST); /* P1, P2 acquire; P3: after arming */
    unsigned found = sb_cell_state(word);
    if (!sb_cell_of(word, leaf->gen)) {
      *leaf = SB_NO_LEAF;
      if (++strange > SB_MAX_STRANGE) return SB_CORRUPT;
    } else if (found == SB_CELL_AVAILABLE) {
      if (!sb_slot_in_range(b, sb_cell_slot(word)) || !sb_slot_ready(b, sb_cell_slot(word))) {
        return SB_CORRUPT;
      }
      if (sb_queue_passed_some(q) && take_returned(q, state, at, token, t)) { /* I53 */
        status = SB_OK;
        break;
      }
      if (take_cell(q, state, leaf, at, word, token, t)) {
        at++;
        status = SB_OK;
        fetch_ahead(q, leaf, at);
        break;
      }
    } else if (found == SB_CELL_FREE) {
      break;
    } else if (found == SB_CELL_STAGED) {
      sb_queue_pass_staged(q, at);
      at++;
    } else if (found == SB_CELL_CLOSED) {
      status = SB_DELETED;
      break;
    } else if (found == SB_CELL_CLOSING) {
      if (!sb_queue_resolve_closing(b, q->c, q->shm, &q->ring, at) || ++strange > SB_MAX_STRANGE) return SB_CORRUPT;
    } else {
      at++;
    }
  }
  q->cursor = at;
  if (status == SB_EMPTY) {
    sb_slab_flush_freed(q->c); /* we are about to rest: let others find what we freed */
  }
  if (at - hint >= 8 || status == SB_EMPTY) { /* the shared hint follows in steps: every process has its own cursor */
    sb_ring_advance(&q->shm->head, hint, at);
  }
  return status;
}

bool sb_queue_older_ready(sb_queue *q, uint64_t position) {
  uint64_t at, from = 0;
  sb_leaf_ref leaf;
  while (SB_LOAD(&q->shm->returned, SB_SEQ_CST) != 0 && sb_returned_next(q->c->b, &q->ring, from, &at) &&
         at < position) {
    if (sb_ring_locate(q->c->b, NULL, &q->ring, at, &leaf) == SB_OK) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST);
      bool takeable = sb_slot_ready(q->c->b, sb_cell_slot(word)); /* else whoever waits for it waits for ever */
      if (sb_cell_of(word, leaf.gen) && sb_cell_state(word) == SB_CELL_AVAILABLE && takeable) {
        return true;
      }
    }
    from = at + 1;
  }
  return false;
}

/* A lazily shrunk ring gets smaller as it is consumed. */
void sb_queue_lower_bound(sb_queue *q) {
  int64_t ring = SB_LOAD(&q->shm->ring_size, SB_RELAXED);
  uint64_t lazy = SB_LOAD(&q->shm->bound, SB_RELAXED);
  while (ring >= 0 && (int64_t)lazy > ring) {
    int64_t pending = sb_queue_ready(q->c->b, q->shm), to = pending > ring ? pending : ring;
    if (to >= (int64_t)lazy || SB_CAS(&q->shm->bound, &lazy, (uint64_t)to, SB_SEQ_CST)) {
      return;
    }
  }
}

SB_HOT void count_taken(sb_queue *q, bool counted, const sb_taken *t) {
  if (!counted) (void)SB_ADD(&q->shm->taken, 1, SB_SEQ_CST);
  if (!t->bytes_paid) (void)SB_ADD(&q->shm->bytes_out, t->message->body_length, SB_RELAXED);
}

SB_HOT sb_status take_oldest(sb_queue *q, unsigned state, uint64_t before, uint64_t token, sb_taken *t) {
  bool found = false;
  if (SB_LOAD(&q->shm->returned, SB_SEQ_CST) != 0) {
    uint64_t hint = SB_LOAD(&q->shm->head, SB_ACQUIRE), end = hint > q->cursor ? hint : q->cursor;
    found = take_returned(q, state, end < before ? end : before, token, t);
  }
  return found ? SB_OK : take_next(q, state, before, token, t);
}

/* I23: `taken` is raised before. Somebody may have put meanwhile and seen too few pending: then we take again (I42);
 * who wants none that came later evicts instead. */
static sb_status take_counted_before(sb_queue *q, unsigned state, uint64_t before, uint64_t token, sb_taken *t) {
  for (;;) {
    uint64_t tail = SB_LOAD(&q->shm->tail, SB_SEQ_CST);
    (void)SB_ADD(&q->shm->taken, 1, SB_SEQ_CST);
    sb_status status = take_oldest(q, state, before, token, t);
    if (status == SB_OK) {
      return status;
    }
    (void)SB_SUB(&q->shm->taken, 1, SB_SEQ_CST);
    if (status != SB_EMPTY || before != SB_ANY_POSITION || SB_LOAD(&q->shm->tail, SB_SEQ_CST) == tail) {
      return status;
    }
  }
}

sb_status sb_queue_take(sb_queue *q, unsigned state, bool paid, uint64_t before, uint64_t token, sb_taken *t) {
  if (!sb_queue_tracks(q->shm)) {
    return take_oldest(q, state, before, token, t);
  }
  bool counted = !paid && sb_queue_evicts(q->shm);
  sb_hinting(q->ledger, 1);
  sb_status status =
      counted ? take_counted_before(q, state, before, token, t) : take_oldest(q, state, before, token, t);
  if (status == SB_OK) {
    count_taken(q, counted || paid, t);
    if (!paid) sb_queue_lower_bound(q); /* what is pending includes a payment that may be taken back */
  }
  sb_hinting(q->ledger, -1);
  return status;
}

sb_status sb_queue_acquire(sb_queue *q, uint64_t token, sb_taken *t) {
  if (!sb_queue_is_open(q)) {
    return SB_DELETED;
  }
  if ((SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_PAUSED) != 0) {
    return SB_EMPTY;
  }
  for (;;) {
    sb_status status = sb_queue_take(q, SB_CELL_ACQUIRED, false, SB_ANY_POSITION, token, t);
    if (status != SB_OK || t->message->expires_ns == 0 || t->message->expires_ns > sb_now_ns()) {
      return status;
    }
    (void)sb_queue_settle(q, token, SB_COUNT_EXPIRED); /* gives the holding back ... */
    status = sb_holding_take(q->c, &token);            /* ... and takes the same one again */
    if (status != SB_OK) {
      return status;
    }
  }
}

static bool take_in_state(sb_queue *q, uint64_t position, unsigned from, unsigned state, uint64_t token, sb_taken *t) {
  sb_leaf_ref leaf;
  if (sb_ring_locate(q->c->b, NULL, &q->ring, position, &leaf) != SB_OK) {
    return false;
  }
  uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, position)->word, SB_ACQUIRE);
  return sb_cell_of(word, leaf.gen) && sb_cell_state(word) == from &&
         take_cell(q, state, &leaf, position, word, token, t);
}

sb_status sb_queue_take_at(sb_queue *q, uint64_t position, unsigned from, uint64_t token, sb_taken *t) {
  bool tracked = from == SB_CELL_AVAILABLE && sb_queue_tracks(q->shm), before = tracked && sb_queue_evicts(q->shm);
  if (tracked) sb_hinting(q->ledger, 1);
  if (before) (void)SB_ADD(&q->shm->taken, 1, SB_SEQ_CST); /* I23 */
  bool took_it = take_in_state(q, position, from, SB_CELL_REMOVING, token, t);
  if (!took_it && before) (void)SB_SUB(&q->shm->taken, 1, SB_SEQ_CST);
  if (took_it && tracked) count_taken(q, before, t);
  if (tracked) sb_hinting(q->ledger, -1);
  return took_it ? SB_OK : SB_EMPTY;
}

sb_status sb_queue_acquire_at(sb_queue *q, uint64_t position, bool returned, uint64_t token, sb_taken *t) {
  bool tracked = sb_queue_tracks(q->shm), before = tracked && sb_queue_evicts(q->shm);
  if (tracked) sb_hinting(q->ledger, 1);
  if (before) (void)SB_ADD(&q->shm->taken, 1, SB_SEQ_CST); /* I23 */
  bool took_it = returned ? take_returned_at(q, SB_CELL_ACQUIRED, position, token, t)
                          : take_in_state(q, position, SB_CELL_AVAILABLE, SB_CELL_ACQUIRED, token, t);
  if (!took_it && before) (void)SB_SUB(&q->shm->taken, 1, SB_SEQ_CST);
  if (took_it && tracked) {
    count_taken(q, before, t);
    sb_queue_lower_bound(q);
  }
  if (tracked) sb_hinting(q->ledger, -1);
  return took_it ? SB_OK : SB_EMPTY;
}

/* ---- settle and release ---- */

bool sb_queue_held(sb_connection *c, uint64_t token, sb_taken *t, sb_leaf_ref *leaf) {
  sb_broker *b = c->b;
  if (token == 0 || token * sizeof(sb_holding_shm) >= b->arena_bytes || !sb_slot_ready(b, (uint32_t)(token / 16))) {
    return false;
  }
  sb_holding_shm *h = sb_holding_at(b, token);
  uint64_t what = SB_LOAD(&h->what, SB_RELAXED);
  if (sb_holding_kind(what) != SB_HOLD_CELL && sb_holding_kind(what) != SB_HOLD_SETTLING) {
    return false;
  }
  leaf->slot = sb_holding_leaf(what);
  if (!sb_slot_holds(b, leaf->slot, SB_LEAF_UNITS)) {
    return false;
  }
  leaf->leaf = sb_slot_at(b, leaf->slot);
  leaf->gen = sb_slot_gen(SB_LOAD(sb_slot_header(b, leaf->slot), SB_ACQUIRE)); /* pinned: we own a cell of it */
  t->position = SB_LOAD(&h->where, SB_RELAXED);
  leaf->first = t->position / SB_PAGE_CELLS * SB_PAGE_CELLS;
  uint64_t word = SB_LOAD(&sb_leaf_cell(leaf, t->position)->word, SB_ACQUIRE);
  if (!sb_cell_is_owned(word) || sb_cell_owner(word) != c->id || !sb_slot_in_range(b, sb_cell_slot(word)) ||
      !sb_slot_ready(b, sb_cell_slot(word))) {
    return false;
  }
  t->token = token;
  t->slot = sb_cell_slot(word);
  t->ref = sb_cell_ref(word);
  t->message = sb_slot_at(b, t->slot);
  t->side = SB_LOAD(&sb_leaf_cell(leaf, t->position)->side, SB_RELAXED);
  t->gen = sb_side_gen(t->side);
  return true;
}

static void finish(sb_connection *c, const sb_ring *r, const sb_leaf_ref *leaf, const sb_taken *t) {
  uint64_t h = SB_LOAD(sb_slot_header(c->b, t->slot), SB_ACQUIRE);
  if (t->ref < SB_MAX_REFS && h == sb_slot_word(SB_SLOT_PUBLISHED, UINT64_C(1) << t->ref,
                                                t->gen)) { /* either way, the linearisation point of the ack */
    sb_slab_drop_last(c, t->slot, h);
  } else {
    sb_reference reference = {t->slot, t->ref, t->gen, r->object};
    (void)sb_reference_drop(c->b, &reference);
  }
  SB_CRASHPOINT("queue.settle.dropped");
  sb_ring_finish(c, r, leaf, t->position);
}

sb_status sb_queue_settle(sb_queue *q, uint64_t token, unsigned counter) {
  return sb_queue_settle_as(q, token, SB_INTENT_SETTLE, counter);
}

sb_status sb_queue_settle_as(sb_queue *q, uint64_t token, unsigned intent, unsigned counter) {
  sb_connection *c = q->c;
  sb_leaf_ref leaf;
  sb_taken t;
  if (!sb_queue_held(c, token, &t, &leaf)) {
    return SB_SETTLED;
  }
  uint64_t bytes = t.message->body_length;
  if (intent == SB_INTENT_SETTLE)
    sb_intent_begin(q->ledger, intent, counter, t.position, (uint64_t)t.slot | SB_PUT(t.ref, 32), t.gen, bytes);
  SB_CRASHPOINT("queue.settle.announced");
  finish(c, &q->ring, &leaf, &t);
  sb_ledger_count(q->ledger, SB_COUNT_REMOVED_BYTES, bytes);
  sb_ledger_count(q->ledger, counter, 1);
  sb_ledger_hold(q->ledger, -1);
  sb_intent_end(q->ledger);
  sb_holding_give(c, token);
  return SB_OK;
}

sb_status sb_queue_release(sb_queue *q, uint64_t token, unsigned how) {
  sb_connection *c = q->c;
  sb_leaf_ref leaf;
  sb_taken t;
  if (!sb_queue_held(c, token, &t, &leaf)) {
    return SB_SETTLED;
  }
  sb_cell_shm *cell = sb_leaf_cell(&leaf, t.position);
  if (!sb_queue_is_open(q)) {
    return sb_queue_settle(q, token, SB_COUNT_KILLED);
  }
  uint64_t bytes = t.message->body_length;
  if (t.message->expires_ns != 0 && t.message->expires_ns <= sb_now_ns()) {
    return sb_queue_settle(q, token, SB_COUNT_EXPIRED);
  }
  unsigned count = sb_side_count(t.side);
  if (how != SB_RELEASE_UNMARKED) {
    count -= how == SB_RELEASE_CLEAN && count > 0 ? 1u : 0u;
    SB_STORE(&cell->side, sb_side_word(t.gen, count, SB_SIDE_REDELIVERED), SB_RELEASE);
  }
  bool tracked = sb_queue_tracks(q->shm);
  if (tracked) sb_hinting(q->ledger, 1);
  sb_returned_mark(c->b, &q->ring, t.position); /* P5: first the bits, then the cell */
  SB_CRASHPOINT("queue.release.marked");
  (void)SB_SWAP(&cell->word, sb_cell_open(SB_CELL_AVAILABLE, t.slot, t.ref, leaf.gen),
                SB_SEQ_CST); /* linearisation point */
  SB_CRASHPOINT("queue.release.flipped");
  if (!sb_returned_is_marked(c->b, &q->ring,
                             t.position)) { /* a searcher cleared it before the flip, or took it just now */
    uint64_t word = SB_LOAD(&cell->word, SB_SEQ_CST);
    if (sb_cell_of(word, leaf.gen) && sb_cell_state(word) == SB_CELL_AVAILABLE) {
      sb_returned_mark(c->b, &q->ring, t.position);
    }
  }
  sb_ledger_hold(q->ledger, -1);
  if (tracked) {
    (void)SB_SUB(&q->shm->bytes_out, bytes, SB_RELAXED);
    (void)SB_SUB(&q->shm->taken, 1, SB_SEQ_CST);
    sb_hinting(q->ledger, -1);
  }
  sb_holding_give(c, token);
  if (!sb_queue_is_open(q)) { /* closed meanwhile: nobody may be left to dispose of what we returned */
    uint64_t again;
    if (sb_holding_take(c, &again) == SB_OK) {
      if (sb_queue_take_at(q, t.position, SB_CELL_AVAILABLE, again, &t) == SB_OK) {
        (void)sb_queue_settle(q, again, SB_COUNT_KILLED);
      } else {
        sb_holding_give(c, again);
      }
    }
  }
  return SB_OK;
}
