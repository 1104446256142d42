// SPDX-License-Identifier: Apache-2.0
#include "sb_move_page.h"

#include "sb_limits.h"
#include "sb_reference.h"
#include "sb_release.h"
#include "sb_take.h"

#define ROW SB_PAGE_CELLS
#define AHEAD 12u /* how many messages ahead a header is fetched into the cache */

static bool may_move_pages(const sb_queue *q, const sb_queue *target) {
  return q->shm != target->shm && target->value_key_length == 0 && !sb_queue_has_lanes(q) &&
         !sb_queue_has_lanes(target) && !sb_queue_tracks(q->shm) && !sb_queue_tracks(target->shm) &&
         SB_LOAD(&q->shm->requeued, SB_SEQ_CST) == 0;
}

/* The tail of the target, if all cells before it are filled, as far as this handle knows. */
static uint64_t tail_of(const sb_queue *target) {
  uint64_t shared = SB_LOAD(&target->shm->tail, SB_SEQ_CST), own = target->lanes[0].tail_cursor;
  return shared > own ? shared : own;
}

/* What the messages of a row may be: the row ends behind the body that reaches `limit` bytes, and a larger body than
 * `largest` lies apart in the target (sb_spacing.h). */
typedef struct {
  uint64_t limit, largest;
} bounds;

/* True if a row whose bodies had *bytes bytes until now may have this message, too. Adds the length of its body. */
static bool fits(sb_broker *b, uint32_t slot, unsigned ref, uint64_t *bytes, const bounds *most) {
  const sb_message_shm *m = sb_slot_at(b, slot);
  uint64_t length = sb_peek_word(&m->body_length);
  bool below = *bytes < most->limit && length <= most->largest;
  *bytes += length;
  return below && sb_peek_word(&m->expires_ns) == 0 && ref != SB_REF_BLOCK;
}

/* True if it seems that the row can be taken and moved. Other processes may change the cells meanwhile. */
static bool seems_ready(sb_queue *q, uint64_t first, const bounds *most) {
  sb_broker *b = q->c->b;
  sb_lane *lane = &q->lanes[0];
  sb_leaf_ref *leaf = &lane->head_leaf;
  uint64_t bytes = 0;
  for (uint64_t at = first; at < first + ROW; at++) {
    if (!sb_leaf_covers(leaf, at) && sb_ring_locate(b, NULL, &lane->ring, at, leaf) != SB_OK) {
      return false;
    }
    uint64_t word = SB_LOAD(&sb_leaf_cell(leaf, at)->word, SB_ACQUIRE);
    uint32_t slot = sb_cell_slot(word);
    if (!sb_cell_of(word, leaf->gen) || sb_cell_state(word) != SB_CELL_AVAILABLE || !sb_slot_ready(b, slot)) {
      return false;
    }
    uint64_t ahead = SB_LOAD(&sb_leaf_cell(leaf, at + AHEAD)->word, SB_RELAXED);
    if (sb_slot_in_range(b, sb_cell_slot(ahead))) __builtin_prefetch(sb_slot_at(b, sb_cell_slot(ahead)));
    if (!fits(b, slot, sb_cell_ref(word), &bytes, most)) {
      return false;
    }
  }
  return true;
}

/* Takes the row. *bytes: the length of all bodies. False: not all of it could be taken, or it cannot be moved; then no
 * message of it is held, and no token is used. */
static bool take_row(sb_queue *q, uint64_t first, const bounds *most, sb_taken *row, uint64_t *bytes) {
  sb_connection *c = q->c;
  uint64_t tokens[ROW];
  unsigned free = 0;
  while (free < ROW && sb_holding_take(c, &tokens[free]) == SB_OK) free++;
  unsigned taken = free == ROW ? sb_take_row(q, first, tokens, row) : 0;
  bool all = taken == ROW;
  *bytes = 0;
  for (unsigned i = 0; i < taken; i++) all = fits(c->b, row[i].slot, row[i].ref, bytes, most) && all;
  for (unsigned i = free; !all && i > 0; i--) {
    if (i > taken) {
      sb_holding_give(c, tokens[i - 1]);
    } else {
      (void)sb_release_unmarked(q, tokens[i - 1]);
    }
  }
  return all;
}

static void fill(const sb_page_fresh *f, const sb_taken *row) {
  sb_cell_shm *cells = ((sb_leaf_shm *)(void *)f->leaf.page)->cells;
  for (unsigned i = 0; i < ROW; i++) {
    SB_STORE(&cells[i].word, sb_cell_open(SB_CELL_AVAILABLE, row[i].slot, row[i].ref, f->leaf.gen), SB_RELAXED);
    SB_STORE(&cells[i].side, row[i].side, SB_RELAXED);
  }
}

static void begin_intent(const sb_queue *q, const sb_queue *target, uint64_t first, const sb_page_fresh *f,
                         uint64_t bytes) {
  sb_ledger_shm *from = q->ledger, *to = target->ledger;
  SB_STORE(&from->target_queue, target->slot, SB_RELAXED);
  SB_STORE(&from->target_position, f->leaf.first, SB_RELAXED);
  SB_STORE(&from->target_ledger, sb_slot_of(q->c->b, to), SB_RELAXED);
  SB_STORE(&from->target_before, SB_LOAD(&to->counters[SB_COUNT_ADDED], SB_RELAXED), SB_RELAXED);
  SB_STORE(&from->target_before_bytes, SB_LOAD(&to->counters[SB_COUNT_ADDED_BYTES], SB_RELAXED), SB_RELAXED);
  sb_ledger_begin_intent(from, SB_INTENT_MOVE_PAGE, SB_COUNT_MOVED, first, f->leaf.slot, f->leaf.gen, bytes);
}

/* Finishes the cells of the row, which lie in one leaf or in two. These are not freed before: the row is not finished. */
static void finish_row(sb_queue *q, uint64_t first) {
  const sb_ring *r = &q->lanes[0].ring;
  for (uint64_t at = first, end = first + ROW; at < end;) {
    sb_leaf_ref leaf;
    if (sb_ring_locate(q->c->b, NULL, r, at, &leaf) != SB_OK) {
      return; /* a damaged link */
    }
    uint64_t behind = leaf.first + SB_PAGE_CELLS < end ? leaf.first + SB_PAGE_CELLS : end;
    sb_ring_finish_row(q->c, r, &leaf, at, (unsigned)(behind - at));
    at = behind;
  }
}

sb_status sb_move_page(sb_queue *q, sb_queue *target, uint64_t end, uint64_t limit, uint64_t *bytes) {
  sb_connection *c = q->c;
  sb_lane *lane = &target->lanes[0];
  uint64_t tail = tail_of(target), head = SB_LOAD(&q->shm->head, SB_ACQUIRE);
  uint64_t first = head > q->lanes[0].cursor ? head : q->lanes[0].cursor;
  sb_page_fresh f;
  sb_taken row[ROW];
  const bounds most = {limit, target->large};
  if (tail % SB_PAGE_CELLS != 0 || !may_move_pages(q, target) || first + ROW > end || !seems_ready(q, first, &most) ||
      sb_page_prepare_leaf(c, &lane->ring, tail, &f) != SB_OK) {
    return SB_EMPTY;
  }
  if (!take_row(q, first, &most, row, bytes)) {
    sb_page_drop_leaf(c, &f);
    return SB_EMPTY;
  }
  fill(&f, row);
  begin_intent(q, target, first, &f, *bytes);
  SB_CRASHPOINT("queue.move.page.announced");
  if (!sb_page_link_leaf(c, &f)) { /* the linearisation point */
    sb_ledger_end_intent(q->ledger);
    for (unsigned i = ROW; i > 0; i--) (void)sb_release_unmarked(q, row[i - 1].token);
    return SB_EMPTY;
  }
  SB_CRASHPOINT("queue.move.page.linked"); /* from the link on, a reaper finishes the move, and I76 holds */
  lane->tail_cursor = tail + ROW;
  sb_ring_advance(&target->shm->tail, tail, tail + ROW);
  sb_ledger_count(target->ledger, SB_COUNT_ADDED_BYTES, *bytes);
  sb_ledger_count(target->ledger, SB_COUNT_ADDED, ROW);
  finish_row(q, first);
  SB_CRASHPOINT("queue.move.page.finished");
  sb_ledger_count(q->ledger, SB_COUNT_REMOVED_BYTES, *bytes);
  sb_ledger_count(q->ledger, SB_COUNT_MOVED, ROW);
  sb_ledger_hold(q->ledger, -(int32_t)ROW);
  sb_ledger_end_intent(q->ledger);
  for (unsigned i = ROW; i > 0; i--) sb_holding_give(c, row[i - 1].token);
  return SB_OK;
}
