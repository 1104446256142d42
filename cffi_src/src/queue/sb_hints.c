// SPDX-License-Identifier: Apache-2.0
#include "sb_hints.h"

#include "sb_paged.h"
#include "sb_slab.h"
#include "sb_wait.h"

/* True if the ring has a ready message, but its ready bit is clear (I77 of sb_lanes.h). */
static bool hides_lane(sb_broker *b, const sb_ring *r) {
  return !sb_lanes_is_marked(r) && sb_hints_has_ready(b, r, UINT64_MAX);
}

/* Finds the first hidden cell at or after position `from`: AVAILABLE, below the head, and without `requeued` bits; or the
 * first one of a leaf that has left the memory there, and is not marked.
 * False: there is none, or the search met a page that was reused meanwhile. */
static bool next_hidden(sb_broker *b, const sb_ring *r, uint64_t from, uint64_t *position) {
  uint64_t at = from;
  sb_leaf_ref leaf;
  sb_status status;
  while ((status = sb_ring_find_leaf(b, r, at, &leaf, &at)) == SB_OK || status == SB_PAGED) {
    uint64_t head = SB_LOAD(r->head, SB_ACQUIRE);
    if (status == SB_PAGED) {
      if (at >= head) return false;
      *position = at;
      if (!sb_requeued_is_marked(b, r, at)) return true;
      at = (at / SB_PAGE_CELLS + 1) * SB_PAGE_CELLS;
      continue;
    }
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST);
      if (at >= head || !sb_cell_of(word, leaf.gen)) {
        return false;
      }
      if (sb_cell_state(word) == SB_CELL_AVAILABLE && !sb_requeued_is_marked(b, r, at)) {
        *position = at;
        return true;
      }
    }
  }
  return false;
}

bool sb_hints_hide_ready(sb_broker *b, const sb_ring *r) {
  uint64_t at;
  return next_hidden(b, r, SB_LOAD(r->base, SB_RELAXED), &at) || hides_lane(b, r);
}

uint64_t sb_hints_resurface(sb_broker *b, const sb_queue_shm *q, const sb_ring *r, uint64_t deaths_before) {
  uint64_t found = 0, at, again;
  if (hides_lane(b, r)) { /* a searcher hides a lane for a moment: so this is no repair of an error */
    sb_lanes_mark(r);
    found++;
  }
  if (!next_hidden(b, r, SB_LOAD(r->base, SB_RELAXED), &at)) {
    return found;
  }
  bool explained = sb_repairs_explained(b, q, deaths_before);
  if (next_hidden(b, r, at, &again) && again == at) sb_repairs_count(b, SB_REPAIR_MARK, explained); /* I72 */
  while (next_hidden(b, r, at, &at)) {
    sb_requeued_mark(b, r, at++);
    found++;
  }
  return found;
}

static bool is_ready(uint64_t word) {
  return sb_cell_state(word) == SB_CELL_AVAILABLE || sb_cell_state(word) == SB_CELL_FROZEN;
}

bool sb_hints_has_ready(sb_broker *b, const sb_ring *r, uint64_t end) {
  uint64_t at = SB_LOAD(r->requeued, SB_SEQ_CST) != 0 ? SB_LOAD(r->base, SB_RELAXED) : SB_LOAD(r->head, SB_ACQUIRE);
  sb_leaf_ref leaf;
  sb_status status = SB_EMPTY;
  while (at < end && (status = sb_ring_find_leaf(b, r, at, &leaf, &at)) == SB_OK) {
    for (; at < end && sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST);
      if (sb_cell_of(word, leaf.gen) && is_ready(word)) {
        return true;
      }
    }
  }
  return at < end && status == SB_PAGED;
}

uint64_t sb_hints_resurface_all(sb_broker *b, uint32_t queue, uint64_t deaths_before) {
  uint64_t found = 0;
  sb_ring r;
  for (sb_lanes_walk all = sb_lanes_of(b, queue); sb_lanes_next(&all, &r);) {
    found += sb_hints_resurface(b, sb_slot_at(b, queue), &r, deaths_before);
  }
  return found;
}

bool sb_hints_any_hides_ready(sb_broker *b, uint32_t queue) {
  bool found = false;
  sb_ring r;
  for (sb_lanes_walk all = sb_lanes_of(b, queue); !found && sb_lanes_next(&all, &r);) {
    found = sb_hints_hide_ready(b, &r);
  }
  return found;
}

bool sb_hints_any_has_ready(sb_broker *b, uint32_t queue, uint64_t end) {
  sb_ring r;
  if (end != SB_ANY_END) {
    return sb_lanes_ring(b, queue, end, &r) && sb_hints_has_ready(b, &r, end);
  }
  bool found = false;
  for (sb_lanes_walk all = sb_lanes_of(b, queue); !found && sb_lanes_next(&all, &r);) {
    found = sb_hints_has_ready(b, &r, sb_ring_exact_tail(b, &r));
  }
  return found;
}

uint64_t sb_hints_end_of_ready(sb_broker *b, uint32_t queue) {
  uint64_t end = 0;
  bool found = false;
  sb_ring r;
  for (sb_lanes_walk all = sb_lanes_of(b, queue); !found && sb_lanes_next(&all, &r);) {
    uint64_t tail = sb_ring_exact_tail(b, &r);
    found = sb_hints_has_ready(b, &r, tail);
    if (found || end == 0) end = tail;
  }
  return end;
}

#define RESCAN_INTERVAL_NS UINT64_C(250000000)

uint64_t sb_hints_rescan(sb_queue *q) {
  uint64_t now = sb_now_ns();
  if (now - q->rescanned_ns < RESCAN_INTERVAL_NS) {
    return 0;
  }
  q->rescanned_ns = now;
  uint64_t deaths = sb_repairs_deaths(q->c->b);
  uint64_t found = sb_hints_resurface_all(q->c->b, q->slot, q->rescanned_deaths);
  q->rescanned_deaths = deaths;
  return found;
}

typedef struct {
  uint64_t came, taken, admitted, bytes_in, bytes_out; /* the hints; `came` is exact in a queue with one lane */
  uint64_t tail, added, ready, ready_bytes;            /* the truth: cells and ledgers */
} reading;

static bool is_held(uint64_t word) {
  unsigned state = sb_cell_state(word);
  return state == SB_CELL_ACQUIRED || state == SB_CELL_REMOVING || state == SB_CELL_SCHEDULED;
}

/* Counts what is ready in the memory. *held: adds the bytes of what is not ready, and not STAGED, which the ledgers do not
 * count yet. False: leaves of the ring have left the memory; all their messages are ready. */
static bool count_ready(sb_broker *b, const sb_ring *r, uint64_t tail, reading *n, uint64_t *held) {
  uint64_t at = SB_LOAD(r->base, SB_RELAXED);
  sb_leaf_ref leaf;
  sb_status status;
  bool all_there = true;
  while (((status = sb_ring_find_leaf(b, r, at, &leaf, &at)) == SB_OK || status == SB_PAGED) && at < tail) {
    if (status == SB_PAGED) {
      all_there = false;
      at = (at / SB_PAGE_CELLS + 1) * SB_PAGE_CELLS;
      continue;
    }
    for (; sb_leaf_covers(&leaf, at) && at < tail; at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_ACQUIRE);
      uint32_t slot = sb_cell_slot(word);
      if (!sb_cell_of(word, leaf.gen) || !(is_ready(word) || is_held(word)) || !sb_slot_in_range(b, slot) ||
          !sb_slot_ready(b, slot))
        continue;
      uint64_t bytes = sb_peek_length(b, slot);
      n->ready += is_ready(word);
      *(is_ready(word) ? &n->ready_bytes : held) += bytes;
    }
  }
  return all_there;
}

static reading read_queue(sb_broker *b, sb_queue_shm *q, uint32_t slot) {
  reading n = {.tail = sb_lanes_count(b, slot)};
  n.taken = SB_LOAD(&q->taken, SB_SEQ_CST);
  n.admitted = SB_LOAD(&q->admitted, SB_SEQ_CST);
  n.bytes_in = SB_LOAD(&q->bytes_in, SB_SEQ_CST);
  n.bytes_out = SB_LOAD(&q->bytes_out, SB_SEQ_CST);
  n.came = sb_lanes_several(q) ? SB_LOAD(&q->came, SB_SEQ_CST) : n.tail;
  n.added = sb_ledger_sum(b, q, SB_COUNT_ADDED);
  sb_ring r;
  bool all_there = true;
  uint64_t held = 0;
  for (sb_lanes_walk all = sb_lanes_of(b, slot); sb_lanes_next(&all, &r);) {
    all_there = count_ready(b, &r, SB_LOAD(r.tail, SB_SEQ_CST), &n, &held) && all_there;
  }
  if (!all_there) { /* the ledgers know what is there: that, without what is held */
    uint64_t removed = sb_ledger_sum(b, q, SB_COUNT_REMOVED_BYTES);
    uint64_t there = sb_ledger_sum(b, q, SB_COUNT_ADDED_BYTES) - removed;
    n.ready = sb_queue_count_ready(b, q);
    n.ready_bytes = (int64_t)(there - held) < 0 ? 0 : there - held;
  }
  return n;
}

static bool same(const reading *one, const reading *two) {
  return one->tail == two->tail && one->came == two->came && one->taken == two->taken &&
         one->admitted == two->admitted && one->bytes_in == two->bytes_in && one->bytes_out == two->bytes_out &&
         one->added == two->added && one->ready == two->ready && one->ready_bytes == two->ready_bytes;
}

/* Changes one hint from `is` to `should`, and returns the result of sb_hints_reconcile up to this hint. `found`: the
 * result up to the hint before. If another process has changed the hint meanwhile, the result is SB_HINTS_BUSY, or
 * SB_HINTS_PARTLY if an earlier hint was corrected; the function then changes no later hint. */
static sb_hints put_right(sb_word *hint, uint64_t is, uint64_t should, sb_hints found) {
  if (is == should || found == SB_HINTS_BUSY || found == SB_HINTS_PARTLY) {
    return found;
  }
  if (SB_CAS(hint, &is, should, SB_SEQ_CST)) {
    return SB_HINTS_SET_RIGHT;
  }
  return found == SB_HINTS_SET_RIGHT ? SB_HINTS_PARTLY : SB_HINTS_BUSY;
}

/* Gives back the room that dead connections reserved, while others are between two changes of hints (I74). */
static void free_room(sb_queue_shm *q, const reading *is, const sb_changes *half_made) {
  uint64_t most = SB_LOAD(&q->base, SB_RELAXED) + is->taken + is->ready + half_made->depth;
  uint64_t most_in = is->bytes_out + is->ready_bytes + half_made->reserved_bytes;
  if ((int64_t)(is->admitted - most) > 0) (void)put_right(&q->admitted, is->admitted, most, SB_HINTS_RIGHT);
  /* Only a reservation says how many bytes it changes: the bytes are known only if no other change is half made. */
  if (half_made->unknown_bytes == 0 && (int64_t)(is->bytes_in - most_in) > 0)
    (void)put_right(&q->bytes_in, is->bytes_in, most_in, SB_HINTS_RIGHT);
}

sb_hints sb_hints_reconcile(sb_broker *b, sb_queue_shm *q, const sb_ledger_shm *but) {
  uint32_t slot = sb_slot_of(b, q);
  if (!sb_queue_tracks(q) || sb_slab_queue(b, slot) == NULL) {
    return SB_HINTS_RIGHT;
  }
  sb_changes before = sb_ledger_changes(b, q, but);
  if (before.depth != 0 && sb_queue_evicts(q)) {
    return SB_HINTS_BUSY;
  }
  reading one = read_queue(b, q, slot), two = read_queue(b, q, slot);
  sb_changes after = sb_ledger_changes(b, q, but);
  if (!sb_changes_same(&before, &after) || !same(&one, &two)) {
    return SB_HINTS_BUSY; /* traffic: the next call tries again */
  }
  if (before.depth != 0) {
    free_room(q, &one, &before);
    return SB_HINTS_BUSY;
  }
  uint64_t taken = one.tail - SB_LOAD(&q->base, SB_RELAXED) - one.ready;
  sb_hints found = put_right(&q->came, one.came, one.tail, SB_HINTS_RIGHT); /* equal in a queue with one lane */
  found = put_right(&q->taken, one.taken, taken, found);
  found = put_right(&q->admitted, one.admitted, one.tail, found);
  return put_right(&q->bytes_in, one.bytes_in, one.bytes_out + one.ready_bytes, found);
}

#define TRACKING_TRIES 1000u

/* For a call that gives a queue limits: calls sb_hints_reconcile until one call finds no hint wrong. If continuous
 * traffic prevents that, the housekeeper corrects the hints later. While a change is half made, sb_hints_reconcile
 * could not find the hints right, and would read all cells in vain. So the function does not call it then. Until the
 * hints are right, `tracking` is SB_TRACKING_UNSURE: if the caller is killed, the process that makes its change of the
 * settings again begins again.
 *
 * A call of another connection that read `tracking` before may take or return a message later, and change no hint. So
 * the hints are right only after each such call has ended (P21). If one does not end in time, `tracking` stays
 * UNSURE. */
void sb_hints_start_tracking(sb_queue *q) {
  sb_broker *b = q->c->b;
  if (SB_LOAD(&q->shm->tracking, SB_RELAXED) == SB_TRACKING_SURE) {
    return;
  }
  SB_STORE(&q->shm->tracking, SB_TRACKING_UNSURE, SB_SEQ_CST); /* P21: before the gates are read */
  bool all_know = sb_ledger_others_know(b, q->shm, q->c->id);
  for (unsigned tries = 0; tries < TRACKING_TRIES; tries++) {
    if (sb_ledger_changes(b, q->shm, NULL).depth == 0 && sb_hints_reconcile(b, q->shm, NULL) == SB_HINTS_RIGHT) {
      if (all_know) SB_STORE(&q->shm->tracking, SB_TRACKING_SURE, SB_SEQ_CST);
      return;
    }
  }
}
