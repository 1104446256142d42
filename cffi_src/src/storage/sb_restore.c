// SPDX-License-Identifier: Apache-2.0
#include "sb_restore.h"

#include "sb_changed.h"
#include "sb_hints.h"
#include "sb_slab.h"

/* The lane of a sequence number, and its position. */
static sb_status find(sb_queue *q, uint64_t sequence, sb_lane **lane, uint64_t *position) {
  unsigned number = sb_position_lane(sequence);
  if (number > 0 && (!sb_queue_has_lanes(q) || number > sb_lanes_number(q->shm, 0))) {
    return SB_CORRUPT;
  }
  sb_status status = SB_OK;
  *lane = &q->lanes[0];
  if (number > 0) status = sb_queue_lane_for(q, sb_lanes_number(q->shm, 0) - number, lane);
  if (status == SB_OK) *position = SB_LOAD((*lane)->ring.base, SB_RELAXED) + sb_position_place(sequence);
  return status;
}

sb_status sb_restore_begin(sb_queue *q, uint64_t sequence) {
  sb_lane *lane;
  uint64_t position;
  sb_status status = find(q, sequence, &lane, &position);
  if (status != SB_OK) {
    return status;
  }
  const sb_ring *r = &lane->ring;
  q->large = UINT64_MAX; /* the messages keep their places, also if the memory is smaller than it was (sb_spacing.h) */
  uint64_t from = position / SB_PAGE_CELLS * SB_PAGE_CELLS;
  if (sb_link_state(SB_LOAD(r->root, SB_SEQ_CST)) != SB_LINK_EMPTY) {
    return SB_EXISTS;
  }
  SB_STORE(r->from, from, SB_RELAXED);
  SB_STORE(r->tail, from, SB_SEQ_CST);
  SB_STORE(r->head, from, SB_RELAXED);
  SB_STORE(r->stored, from, SB_RELAXED);
  SB_STORE(r->root, sb_link_empty(from / SB_PAGE_CELLS), SB_SEQ_CST);
  lane->tail_cursor = from;
  return sb_restore_skip(q, sequence);
}

/* Makes the link of an unused leaf or page DONE, if the positions that it covers end before `end`. */
static sb_status skip_page(sb_queue *q, const sb_ring *r, uint64_t at, uint64_t end, uint64_t *next) {
  sb_page_ref parent;
  unsigned skip = 0, height = 0;
  *next = at;
  while (height < SB_MAX_HEIGHT && at == sb_page_first(height, at) && sb_page_behind(height + 1, at) <= end) height++;
  if (at != sb_page_first(height, at) || sb_page_behind(height + 1, at) > end) {
    return SB_OK;
  }
  sb_status status = sb_page_descend(q->c->b, q->c, r, at, height + 1, &parent, &skip);
  if (status == SB_EMPTY) { /* the root is lower: a position behind the page makes it grow */
    sb_leaf_ref leaf;
    status = sb_ring_locate(q->c->b, q->c, r, sb_page_behind(height + 1, at), &leaf);
    if (status == SB_OK) status = sb_page_descend(q->c->b, q->c, r, at, height + 1, &parent, &skip);
  }
  if (status != SB_OK) {
    return status;
  }
  sb_word *link = &sb_page_children(&parent)[sb_page_index(height + 1, at)];
  uint64_t empty = sb_link_empty(parent.gen);
  if (SB_CAS(link, &empty, SB_LINK_DONE, SB_SEQ_CST)) {
    (void)SB_OR(&parent.page->done, UINT64_C(1) << sb_page_index(height + 1, at), SB_SEQ_CST);
    *next = sb_page_behind(height + 1, at);
  }
  return SB_OK;
}

sb_status sb_restore_skip(sb_queue *q, uint64_t sequence) {
  sb_lane *lane;
  uint64_t end;
  sb_status status = find(q, sequence, &lane, &end);
  const sb_ring *r = &lane->ring;
  while (status == SB_OK && lane->tail_cursor < end) {
    uint64_t at = lane->tail_cursor, next = at;
    if (at != SB_LOAD(r->from, SB_RELAXED)) status = skip_page(q, r, at, end, &next);
    if (status == SB_OK && next == at) {
      uint64_t position = at;
      sb_append how = {SB_WORD_BARE, SB_TAIL_EXACT, 0};
      status = sb_ring_append(q->c, r, &lane->tail_leaf, SB_CELL_TOMBSTONE, how, NULL, &position);
      if (status == SB_OK) sb_ring_redo(q->c, r, &lane->tail_leaf, position);
      next = position + 1;
    }
    if (status == SB_OK) {
      lane->tail_cursor = next;
      sb_ring_advance(r->tail, SB_LOAD(r->tail, SB_RELAXED), next);
    }
  }
  return status == SB_OK && lane->tail_cursor > end ? SB_CORRUPT : status;
}

sb_status sb_restore_absent(sb_queue *q, uint64_t sequence, uint64_t messages, uint64_t bytes) {
  sb_lane *lane;
  uint64_t first;
  sb_status status = find(q, sequence, &lane, &first);
  if (status != SB_OK) {
    return status;
  }
  sb_connection *c = q->c;
  const sb_ring *r = &lane->ring;
  uint64_t behind = first + SB_PAGE_CELLS;
  sb_page_ref parent;
  unsigned skip = 0;
  if (first % SB_PAGE_CELLS != 0 || first != lane->tail_cursor || messages == 0) {
    return SB_CORRUPT;
  }
  status = sb_page_descend(c->b, c, r, behind, 1, &parent, &skip); /* the root has pages below it then, and no cells */
  if (status == SB_OK) status = sb_page_descend(c->b, c, r, first, 1, &parent, &skip);
  if (status != SB_OK) {
    return status;
  }
  sb_lanes_mark(r); /* P23 of sb_lanes.h */
  uint64_t empty = sb_link_empty(parent.gen);
  uint32_t number = SB_ADD(&c->b->header->departures, 1u, SB_RELAXED) + 1u;
  if (!SB_CAS(&sb_page_children(&parent)[sb_page_index(1, first)], &empty, sb_link_paged(parent.gen, number),
              SB_SEQ_CST)) {
    return SB_CORRUPT;
  }
  sb_ledger_count(q->ledger, SB_COUNT_ADDED_BYTES, bytes);
  sb_ledger_count(q->ledger, SB_COUNT_ADDED, messages);
  lane->tail_cursor = behind;
  sb_ring_advance(r->tail, SB_LOAD(r->tail, SB_RELAXED), behind);
  return SB_OK;
}

uint64_t sb_restore_side(uint64_t gen, const sb_row_entry *e, uint64_t due_ns) {
  uint64_t flags = (e->marks & SB_ROW_REDELIVERED) != 0 ? SB_SIDE_REDELIVERED : 0, low = gen;
  flags |= sb_side_why((sb_why)(e->marks >> SB_ROW_WHY));
  if ((e->marks & SB_ROW_DELAYED) != 0) {
    flags |= SB_SIDE_DELAYED;
    low = due_ns / SB_DELAY_NS + 1;
  }
  return sb_side_word(low, e->delivery_count, flags);
}

void sb_restore_describe(sb_queue *q, uint64_t position, uint64_t gen, const sb_row_entry *e, uint64_t due_ns) {
  sb_lane *lane = sb_queue_lane(q, position);
  sb_cell_shm *cell = sb_leaf_cell(&lane->tail_leaf, position);
  SB_STORE(&cell->side, sb_restore_side(gen, e, due_ns), SB_RELEASE);
  sb_word *origin = sb_ring_origin(q->c->b, &lane->tail_leaf, position);
  if (origin != NULL) SB_STORE(origin, e->origin, SB_RELEASE);
}

uint64_t sb_restore_remains(uint64_t time_ns, uint64_t written_ns, uint64_t wall_ns) {
  uint64_t since = wall_ns > written_ns ? wall_ns : written_ns; /* the clock may have been set back */
  return time_ns == 0 ? 0 : time_ns > since ? time_ns - since : 1;
}

void sb_restore_end(sb_queue *q) {
  sb_broker *b = q->c->b;
  sb_lanes_walk walk = sb_lanes_of(b, q->slot);
  sb_ring r;
  while (sb_lanes_next(&walk, &r)) SB_STORE(r.stored, sb_ring_exact_tail(b, &r), SB_RELEASE);
  if (sb_queue_has_lanes(q)) SB_STORE(&q->shm->came, sb_lanes_count(b, q->slot), SB_SEQ_CST);
  (void)sb_hints_reconcile(b, q->shm, NULL);
}
