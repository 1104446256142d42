// SPDX-License-Identifier: Apache-2.0
#include "sb_take.h"

#include "sb_closing.h"
#include "sb_paged.h"
#include "sb_wait.h"

#define AGAIN SB_SETTLED /* of the functions below: the search for the cell begins again */

/* In the functions below, t->token is the holding that will list the taken message. */

SB_HOT void took(sb_queue *q, unsigned from, unsigned state, const sb_leaf_ref *leaf, uint64_t position, uint64_t word,
                 sb_taken *t) {
  sb_broker *b = q->c->b;
  sb_cell_shm *cell = sb_leaf_cell(leaf, position);
  t->position = position;
  t->slot = sb_cell_slot(word);
  t->ref = sb_cell_ref(word);
  t->message = sb_slot_at(b, t->slot);
  t->gen = sb_slot_gen(SB_LOAD(sb_slot_header(b, t->slot), SB_ACQUIRE));
  uint64_t side = SB_LOAD(&cell->side, SB_RELAXED), kept = SB_SIDE_REDELIVERED;
  unsigned count = sb_side_count(side) + (state == SB_CELL_ACQUIRED ? 1u : 0u);
  sb_why why = from == SB_CELL_SCHEDULED ? sb_park_why(side, t->message->flags) : SB_WHY_ALIVE; /* I80 of sb_park.h */
  t->side = sb_side_word(t->gen, count, (side & kept) | sb_side_why(why));
  SB_STORE(&cell->side, t->side, SB_RELEASE);
  sb_ledger_hold(q->ledger, 1);
  /* the housekeeper reads from `last_take` whether consumers take messages, so a removal does not change it */
  if (state == SB_CELL_ACQUIRED) SB_STORE(&q->shm->last_take, position, SB_RELAXED);
}

/* True if the queue still has the excess. Reads the counts of what came (`tail` or `came`, `bytes_in`) before those of what
 * went (`taken`, `bytes_out`). In the other order, messages that come and go between the reads would seem ready. */
static bool is_excess(const sb_queue_shm *q, const sb_excess *excess) {
  uint64_t came = sb_lanes_came(q), in = SB_LOAD(&q->bytes_in, SB_SEQ_CST);
  int64_t ready = (int64_t)(came - SB_LOAD(&q->base, SB_RELAXED) - SB_LOAD(&q->taken, SB_SEQ_CST));
  return ready >= excess->least_ready && (int64_t)(in - SB_LOAD(&q->bytes_out, SB_SEQ_CST)) >= excess->least_bytes;
}

/* Takes a cell by a CAS that expects `word`. The caller has mapped the slot that `word` names. Writes the holding before
 * the CAS, so that a reaper finds the cell. SB_EMPTY: another process changed the cell. SB_DONE: the excess is gone, so
 * the function did not take the cell. */
SB_HOT sb_status take_cell(sb_queue *q, unsigned state, const sb_excess *excess, const sb_leaf_ref *leaf,
                           uint64_t position, uint64_t word, sb_taken *t) {
  sb_broker *b = q->c->b;
  uint32_t slot = sb_cell_slot(word);
  sb_holding_set(b, t->token, sb_holding_what(SB_HOLD_CELL, q->slot, leaf->slot), position);
  SB_CRASHPOINT("queue.take.announced");
  uint64_t mine = sb_cell_owned(state, slot, sb_cell_ref(word), q->c->id, leaf->gen);
  sb_cell_shm *cell = sb_leaf_cell(leaf, position);
  /* I23: in a queue that evicts, the bytes are counted before the CAS, so that no process evicts too much */
  uint64_t bytes = 0;
  t->bytes_paid = sb_cell_state(word) == SB_CELL_AVAILABLE && sb_queue_tracks(q->shm) && sb_queue_evicts(q->shm);
  if (excess != NULL && !is_excess(q->shm, excess)) {
    return SB_DONE;
  }
  if (t->bytes_paid) {
    bytes = sb_peek_length(b, slot);
    if (SB_LOAD(&cell->word, SB_ACQUIRE) != word) {
      return SB_EMPTY; /* the cell changed: `bytes` may be the length of another message */
    }
    (void)SB_ADD(&q->shm->bytes_out, bytes, SB_SEQ_CST);
  }
  if (!SB_CAS(&cell->word, &word, mine, SB_SEQ_CST)) { /* the linearisation point; P39 of sb_window.h */
    if (t->bytes_paid) (void)SB_SUB(&q->shm->bytes_out, bytes, SB_SEQ_CST);
    return SB_EMPTY;
  }
  SB_CRASHPOINT("queue.take.done");
  took(q, sb_cell_state(word), state, leaf, position, mine, t);
  if (SB_LOAD(&q->shm->requeued, SB_RELAXED) != 0 || sb_queue_has_lanes(q)) sb_requeued_took(leaf, position);
  return SB_OK;
}

/* Takes a cell that has `requeued` bits. Checks the excess only before it clears the leaf's bit: other searchers do not
 * find a cell that lacks this bit, so the function must not spare the cell afterwards. SB_EMPTY: the cell could not be
 * taken. SB_DONE: the excess is gone. AGAIN: the leaf left the memory, or was about to. */
static sb_status take_returned_at(sb_queue *q, unsigned state, const sb_excess *excess, const sb_leaf_ref *leaf,
                                  uint64_t position, sb_taken *t) {
  sb_broker *b = q->c->b;
  const sb_lane *lane = sb_queue_lane(q, position);
  uint64_t word = sb_paged_word(b, &lane->ring, leaf, position);
  if (!sb_cell_of(word, leaf->gen) || sb_cell_is_owned(word) || sb_cell_state(word) == SB_CELL_SCHEDULED) {
    return SB_EMPTY; /* the cell may be about to become AVAILABLE, so its bit must stay */
  }
  if (sb_cell_state(word) == SB_CELL_AVAILABLE) {
    if (excess != NULL && !is_excess(q->shm, excess)) {
      return SB_DONE;
    }
    /* the holding is written before the bit is cleared: if this process dies afterwards, its reaper sets the bit
     * again */
    sb_holding_set(b, t->token, sb_holding_what(SB_HOLD_CELL, q->slot, leaf->slot), position);
  }
  sb_requeued_clear(b, leaf, position);
  SB_CRASHPOINT("queue.take.cleared");
  word = SB_LOAD(&sb_leaf_cell(leaf, position)->word, SB_SEQ_CST); /* P5: look a second time after clearing */
  if (lane->ring.changed != NULL && (!sb_cell_of(word, leaf->gen) || sb_cell_state(word) == SB_CELL_FROZEN)) {
    sb_requeued_mark(b, &lane->ring, position); /* I128 of sb_paged.h: nobody else knows of the bit that was cleared */
    return AGAIN;
  }
  if (sb_cell_of(word, leaf->gen) && sb_cell_state(word) == SB_CELL_AVAILABLE) {
    if (sb_slot_ready(b, sb_cell_slot(word)) && take_cell(q, state, NULL, leaf, position, word, t) == SB_OK) {
      return SB_OK;
    }
    word = SB_LOAD(&sb_leaf_cell(leaf, position)->word, SB_SEQ_CST);
    if (sb_cell_of(word, leaf->gen) && !(sb_cell_state(word) == SB_CELL_TOMBSTONE)) {
      sb_requeued_mark(b, &lane->ring, position); /* another connection may hold the message now, and may return it */
    }
  }
  return SB_EMPTY;
}

/* The state of the cell at `position`. SB_CELL_FREE stands for a cell that take_returned cannot take: the page of the
 * cell was retired or reused, or this process cannot read the slot that the cell names. take_returned begins again at 0
 * once for each AVAILABLE cell behind a STAGED one, and remembers only the last such cell. Two cells that it can never
 * take would make it begin again for ever. */
static unsigned look_at(sb_broker *b, const sb_ring *r, const sb_leaf_ref *leaf, uint64_t position) {
  uint64_t word = sb_paged_word(b, r, leaf, position);
  bool takeable = sb_cell_state(word) != SB_CELL_AVAILABLE || sb_slot_ready(b, sb_cell_slot(word));
  return sb_cell_of(word, leaf->gen) && takeable ? sb_cell_state(word) : SB_CELL_FREE;
}

/* The search needs a message that has left the memory. Counts a miss of a get or a consumer, once for each leaf. */
static sb_status needs(sb_queue *q, const sb_lane *lane, unsigned state, uint64_t position) {
  uint64_t leaf = position / SB_PAGE_CELLS + 1;
  if (state == SB_CELL_ACQUIRED && q->missed != leaf) {
    q->missed = leaf;
    (void)SB_ADD(&q->shm->misses, 1, SB_RELAXED); /* relaxed: a statistic */
  }
  return sb_paged_want(q->c, &lane->ring, position);
}

/* Takes a cell before `end` that has `requeued` bits, the oldest one that can be taken. SB_EMPTY: there is none.
 * SB_DONE: the excess is gone. SB_GROW: it has left the memory. */
static sb_status take_returned(sb_queue *q, sb_lane *lane, unsigned state, const sb_excess *excess, uint64_t end,
                               sb_taken *t) {
  uint64_t from = 0, position, known = SB_ANY_POSITION;
  sb_leaf_ref leaf;
  /* `staged`: the loop has passed a STAGED cell since it last began at 0 */
  bool commits = SB_LOAD(&q->shm->staged, SB_RELAXED) != 0, staged = false;
  while (sb_requeued_next_near(q->c->b, lane, from, &leaf, &position) && position < end) {
    if (leaf.leaf == NULL) {
      return needs(q, lane, state, position);
    }
    unsigned is = commits ? look_at(q->c->b, &lane->ring, &leaf, position) : SB_CELL_FREE;
    from = position + 1;
    if (is == SB_CELL_STAGED) {
      staged = true;
    } else if (is == SB_CELL_AVAILABLE && staged && position != known) {
      known = position; /* I53: look again at the cells before it */
      staged = false;
      from = 0;
    } else {
      sb_status status = take_returned_at(q, state, excess, &leaf, position, t);
      if (status == AGAIN) from = position;
      if (status != SB_EMPTY && status != AGAIN) return status;
    }
  }
  return SB_EMPTY;
}

/* Prefetches the next message from the cache of its producer, while the caller handles this one. */
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

void sb_take_pass_staged(sb_queue *q, uint64_t position) {
  const sb_lane *lane = sb_queue_lane(q, position);
  sb_requeued_mark(q->c->b, &lane->ring, position); /* I53: after the commit, the bits lead to the cell */
  SB_CRASHPOINT("queue.take.passed");
}

bool sb_take_passed_some(const sb_queue *q, const sb_lane *lane) {
  return SB_LOAD(lane->ring.requeued, SB_SEQ_CST) != 0 &&
         SB_LOAD(&q->shm->staged, SB_RELAXED) != 0; /* relaxed: a process that saw a STAGED cell sees `staged`, too */
}

/* Takes the first message from the handle's cursor or the shared head on. `hint`: the head. */
static sb_status take_next(sb_queue *q, sb_lane *lane, unsigned state, const sb_excess *excess, uint64_t before,
                           uint64_t hint, sb_taken *t) {
  sb_broker *b = q->c->b;
  uint64_t at = hint > lane->cursor ? hint : lane->cursor;
  sb_leaf_ref *leaf = &lane->head_leaf;
  sb_status status = SB_EMPTY;
  unsigned retries = 0;
  while (at < before) {
    if (!sb_leaf_covers(leaf, at)) {
      sb_status found = sb_ring_locate(b, NULL, &lane->ring, at, leaf);
      if (found == SB_DONE) {
        at = leaf->first;
        continue;
      }
      if (found != SB_OK) {
        status = found == SB_PAGED ? needs(q, lane, state, at) : found;
        break;
      }
    }
    uint64_t word = SB_LOAD(&sb_leaf_cell(leaf, at)->word, SB_SEQ_CST); /* P1, P2 acquire; P3: the consumer's look */
    unsigned found = sb_cell_state(word);
    if (!sb_cell_of(word, leaf->gen)) {
      *leaf = SB_NO_LEAF;
      if (++retries > SB_MAX_RETRIES) return SB_CORRUPT;
    } else if (found == SB_CELL_FROZEN) { /* I127 of sb_paged.h */
      if (!sb_paged_stay(b, &lane->ring, leaf)) *leaf = SB_NO_LEAF;
      if (++retries > SB_MAX_RETRIES) return SB_CORRUPT;
    } else if (found == SB_CELL_AVAILABLE) {
      if (!sb_slot_ready(b, sb_cell_slot(word))) {
        return SB_CORRUPT;
      }
      if (sb_take_passed_some(q, lane)) { /* I53 */
        status = take_returned(q, lane, state, excess, at, t);
        if (status != SB_EMPTY) break;
      }
      status = take_cell(q, state, excess, leaf, at, word, t);
      if (status == SB_OK) {
        at++;
        fetch_ahead(q, leaf, at);
      }
      if (status != SB_EMPTY) break;
    } else if (found == SB_CELL_FREE) {
      break;
    } else if (found == SB_CELL_STAGED) {
      sb_take_pass_staged(q, at);
      at++;
    } else if (found == SB_CELL_CLOSED) {
      status = SB_DELETED;
      break;
    } else if (found == SB_CELL_CLOSING) {
      if (!sb_closing_resolve(b, q->c, q->shm, &lane->ring, at) || ++retries > SB_MAX_RETRIES) return SB_CORRUPT;
    } else {
      at++;
    }
  }
  lane->cursor = at;
  if (status == SB_EMPTY) {
    sb_slab_flush_freed(q->c); /* the caller may sleep now: other connections can take the slots that it freed */
  }
  if (at - hint >= 8 || status == SB_EMPTY) { /* `head` may lag a little: each handle has its own cursor */
    sb_ring_advance(lane->ring.head, hint, at);
  }
  return status;
}

/* Counts the taken message, as sb_hints_taken does, except for what was counted before the take: `taken` counts the
 * message already if `counted` is set, `bytes_out` counts its bytes already if t->bytes_paid is set. */
SB_HOT void count_taken(sb_queue *q, bool counted, const sb_taken *t) {
  if (!counted) (void)SB_ADD(&q->shm->taken, 1, SB_SEQ_CST);
  if (!t->bytes_paid) (void)SB_ADD(&q->shm->bytes_out, t->message->body_length, SB_SEQ_CST);
}

SB_HOT sb_status find_in_lane(sb_queue *q, sb_lane *lane, unsigned state, const sb_excess *excess, uint64_t before,
                              sb_taken *t) {
  sb_status status = SB_EMPTY;
  /* loaded once: if another process advanced it between the two searches, neither would look at the cells it passed */
  uint64_t hint = SB_LOAD(lane->ring.head, SB_ACQUIRE), end = hint > lane->cursor ? hint : lane->cursor;
  if (SB_LOAD(lane->ring.requeued, SB_SEQ_CST) != 0) {
    status = take_returned(q, lane, state, excess, end < before ? end : before, t);
  }
  return status != SB_EMPTY ? status : take_next(q, lane, state, excess, before, hint, t);
}

/* Searches one lane. If it has no message, clears its ready bit, and searches again (I77 of sb_lanes.h). */
static sb_status find_or_unmark(sb_queue *q, unsigned number, unsigned state, const sb_excess *excess, sb_taken *t) {
  sb_lane *lane = sb_queue_lane_of(q, number);
  sb_status status = find_in_lane(q, lane, state, excess, SB_ANY_POSITION, t);
  if (status != SB_EMPTY) {
    return status;
  }
  sb_lanes_unmark(&lane->ring); /* P23 of sb_lanes.h */
  SB_CRASHPOINT("queue.take.unmarked_lane");
  status = find_in_lane(q, lane, state, excess, SB_ANY_POSITION, t);
  if (status != SB_EMPTY) sb_lanes_mark(&lane->ring);
  return status;
}

/* Searches the lanes for a message: for an eviction the one of the lowest priority first, else that of the highest. If
 * `before` is a position, searches only the lane of this position. */
static sb_status find_in_lanes(sb_queue *q, unsigned state, const sb_excess *excess, uint64_t before, sb_taken *t) {
  bool downwards = excess != NULL;
  unsigned most = q->last_lane, number = downwards ? most : 0;
  sb_status status = SB_EMPTY;
  if (before != SB_ANY_POSITION) {
    return find_in_lane(q, sb_queue_lane(q, before), state, excess, before, t);
  }
  while (status == SB_EMPTY && (number = sb_lanes_next_ready(q->shm, number, downwards)) <= most) {
    status = find_or_unmark(q, number, state, excess, t);
    if (downwards && number == 0) break;
    number = downwards ? number - 1 : number + 1;
  }
  return status;
}

SB_HOT sb_status find_and_take(sb_queue *q, unsigned state, const sb_excess *excess, uint64_t before, sb_taken *t) {
  return sb_queue_has_lanes(q) ? find_in_lanes(q, state, excess, before, t)
                               : find_in_lane(q, &q->lanes[0], state, excess, before, t);
}

/* I23: raises `taken` before the take, and lowers it again if the take fails. Meanwhile a put may have seen too few
 * ready messages: if more came, the function tries to take again (I42). If `before` is not SB_ANY_POSITION, it
 * does not try again; the caller enforces the limits instead. */
static sb_status take_counted_before(sb_queue *q, unsigned state, const sb_excess *excess, uint64_t before,
                                     sb_taken *t) {
  for (;;) {
    uint64_t came = sb_lanes_came(q->shm);
    (void)SB_ADD(&q->shm->taken, 1, SB_SEQ_CST);
    sb_status status = find_and_take(q, state, excess, before, t);
    if (status == SB_OK) {
      return status;
    }
    (void)SB_SUB(&q->shm->taken, 1, SB_SEQ_CST);
    if (status != SB_EMPTY || before != SB_ANY_POSITION || sb_lanes_came(q->shm) == came) {
      return status;
    }
  }
}

SB_HOT sb_status take_oldest(sb_queue *q, unsigned state, const sb_excess *excess, uint64_t before, uint64_t token,
                             sb_taken *t) {
  t->token = token;
  if (!sb_queue_tracks(q->shm)) {
    return find_and_take(q, state, excess, before, t);
  }
  bool paid = excess != NULL && excess->paid, counted = !paid && sb_queue_evicts(q->shm);
  sb_ledger_hinting(q->ledger, 1);
  sb_status status =
      counted ? take_counted_before(q, state, excess, before, t) : find_and_take(q, state, excess, before, t);
  if (status == SB_OK) {
    count_taken(q, counted || paid, t);
    if (state == SB_CELL_ACQUIRED)
      sb_queue_lower_bound(q); /* not for one that may be ready again at once: a victim, or
                                                                a message that its move finds no room for */
  }
  sb_ledger_hinting(q->ledger, -1);
  return status;
}

sb_status sb_take_oldest(sb_queue *q, unsigned state, uint64_t before, uint64_t token, sb_taken *t) {
  return take_oldest(q, state, NULL, before, token, t);
}

sb_status sb_take_victim(sb_queue *q, const sb_excess *excess, uint64_t token, sb_taken *t) {
  return take_oldest(q, SB_CELL_REMOVING, excess, SB_ANY_POSITION, token, t);
}

sb_status sb_take_for_consumer(sb_queue *q, uint64_t token, sb_taken *t) {
  if (!sb_queue_is_open(q)) {
    return SB_DELETED;
  }
  uint32_t flags = SB_LOAD(&q->shm->flags, SB_RELAXED);
  if ((flags & (SB_QUEUE_PAUSED | SB_QUEUE_NON_DESTRUCTIVE)) != 0) {
    return (flags & SB_QUEUE_NON_DESTRUCTIVE) != 0 ? SB_STAYS : SB_EMPTY;
  }
  for (;;) {
    sb_status status = take_oldest(q, SB_CELL_ACQUIRED, NULL, SB_ANY_POSITION, token, t);
    if (status != SB_OK || t->message->expires_ns == 0 || t->message->expires_ns > sb_now_ns()) {
      return status;
    }
    (void)sb_dispose(q, token, SB_REASON_EXPIRED); /* frees the holding `token` */
    q->ended_some = true;
    status = sb_holding_take(q->c, &token); /* takes the same holding: the last one freed comes first */
    if (status != SB_OK) {
      return status;
    }
  }
}

SB_HOT bool take_in_state(sb_queue *q, const sb_leaf_ref *leaf, uint64_t position, unsigned from, unsigned state,
                          sb_taken *t) {
  uint64_t word = SB_LOAD(&sb_leaf_cell(leaf, position)->word, SB_ACQUIRE);
  return sb_cell_of(word, leaf->gen) && sb_cell_state(word) == from && sb_slot_ready(q->c->b, sb_cell_slot(word)) &&
         take_cell(q, state, NULL, leaf, position, word, t) == SB_OK;
}

unsigned sb_take_row(sb_queue *q, uint64_t first, const uint64_t *tokens, sb_taken *row) {
  sb_lane *lane = &q->lanes[0];
  sb_leaf_ref *leaf = &lane->head_leaf;
  uint64_t hint = SB_LOAD(&q->shm->head, SB_ACQUIRE);
  unsigned n = 0;
  for (bool took_it = true; took_it && n < SB_PAGE_CELLS;) {
    uint64_t at = first + n;
    row[n].token = tokens[n];
    took_it = (sb_leaf_covers(leaf, at) || sb_ring_locate(q->c->b, NULL, &lane->ring, at, leaf) == SB_OK) &&
              take_in_state(q, leaf, at, SB_CELL_AVAILABLE, SB_CELL_REMOVING, &row[n]);
    n += took_it;
  }
  lane->cursor = first + n;
  sb_ring_advance(&q->shm->head, hint, first + n);
  return n;
}

/* Finds the leaf of a position: `near`, or the last one that the handle looked at, if it covers the position. */
SB_HOT sb_status find_leaf(sb_queue *q, const sb_leaf_ref *near, uint64_t position, sb_leaf_ref *leaf) {
  *leaf = sb_leaf_covers(near, position) ? *near : q->looked_leaf;
  if (sb_leaf_covers(leaf, position)) {
    return SB_OK;
  }
  const sb_ring *r = &sb_queue_lane(q, position)->ring;
  sb_status status = sb_ring_locate(q->c->b, NULL, r, position, leaf);
  if (status == SB_OK) q->looked_leaf = *leaf;
  return status == SB_PAGED ? sb_paged_want(q->c, r, position) : status == SB_OK ? SB_OK : SB_EMPTY;
}

/* As take_at. AGAIN: the leaf left the memory, or was about to. */
SB_HOT sb_status take_at_once(sb_queue *q, const sb_leaf_ref *near, uint64_t position, unsigned from, unsigned state,
                              bool requeued, sb_taken *t) {
  sb_leaf_ref leaf;
  sb_status status = find_leaf(q, near, position, &leaf);
  if (status != SB_OK) {
    return status;
  }
  if (requeued) {
    return take_returned_at(q, state, NULL, &leaf, position, t);
  }
  if (take_in_state(q, &leaf, position, from, state, t)) {
    return SB_OK;
  }
  const sb_ring *r = &sb_queue_lane(q, position)->ring;
  uint64_t word = r->changed != NULL ? SB_LOAD(&sb_leaf_cell(&leaf, position)->word, SB_SEQ_CST) : 0;
  if (r->changed == NULL || (sb_cell_of(word, leaf.gen) && sb_cell_state(word) != SB_CELL_FROZEN)) {
    return SB_EMPTY;
  }
  if (sb_cell_of(word, leaf.gen)) (void)sb_paged_stay(q->c->b, r, &leaf);
  return AGAIN;
}

/* Takes the message at `position`: its cell changes from state `from` to `state`. `near`: may be its leaf. `requeued`: the
 * message returned to the queue, so the function first clears the leaf's bit of the cell. SB_EMPTY: the cell is not in
 * state `from`, or another process was faster. SB_GROW: it has left the memory. */
SB_HOT sb_status take_at(sb_queue *q, const sb_leaf_ref *near, uint64_t position, unsigned from, unsigned state,
                         bool requeued, uint64_t token, sb_taken *t) {
  bool tracked = from == SB_CELL_AVAILABLE && sb_queue_tracks(q->shm), before = tracked && sb_queue_evicts(q->shm);
  if (tracked) sb_ledger_hinting(q->ledger, 1);
  if (before) (void)SB_ADD(&q->shm->taken, 1, SB_SEQ_CST); /* I23 */
  t->token = token;
  sb_status status = take_at_once(q, near, position, from, state, requeued, t);
  const sb_leaf_ref nowhere = SB_NO_LEAF;
  for (unsigned tries = 0; status == AGAIN && tries < SB_MAX_RETRIES; tries++) {
    q->looked_leaf = nowhere;
    status = take_at_once(q, &nowhere, position, from, state, requeued, t);
  }
  if (status == AGAIN) status = SB_CORRUPT;
  if (status != SB_OK && before) (void)SB_SUB(&q->shm->taken, 1, SB_SEQ_CST);
  if (status == SB_OK && tracked) {
    count_taken(q, before, t);
    if (state == SB_CELL_ACQUIRED) sb_queue_lower_bound(q);
  }
  if (tracked) sb_ledger_hinting(q->ledger, -1);
  return status;
}

sb_status sb_take_at(sb_queue *q, uint64_t position, unsigned from, uint64_t token, sb_taken *t) {
  return take_at(q, &sb_queue_lane(q, position)->head_leaf, position, from, SB_CELL_REMOVING, false, token, t);
}

sb_status sb_take_for_consumer_at(sb_queue *q, const sb_leaf_ref *leaf, uint64_t position, bool requeued,
                                  uint64_t token, sb_taken *t) {
  return take_at(q, leaf, position, SB_CELL_AVAILABLE, SB_CELL_ACQUIRED, requeued, token, t);
}
