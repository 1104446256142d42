// SPDX-License-Identifier: Apache-2.0
/* Public calls: messages that leave the memory, and come back (sb_departure.h). Sequence numbers name them, as in the
 * store. */
#include "sb_api.h"
#include "sb_departure.h"
#include "sb_disposal.h"
#include "sb_restore.h"
#include "sb_wishes.h"

/* Finds the ring of a sequence number, and the position of the number. */
static bool find(sb_queue *q, uint64_t sequence, sb_ring *r, uint64_t *position) {
  if (!sb_lanes_ring(q->c->b, q->slot, sequence, r)) {
    return false;
  }
  *position = SB_LOAD(r->base, SB_RELAXED) + sb_position_place(sequence);
  return true;
}

static uint64_t sequence_in(const sb_ring *r, uint64_t position) {
  uint64_t base = SB_LOAD(r->base, SB_RELAXED);
  return sb_position_in(sb_position_lane(base), 0) + (position - base);
}

/* The sequence number of the first message that a leaf can have: the first leaf of a ring may begin before its base. */
static uint64_t sequence_of_leaf(const sb_ring *r, uint64_t first) {
  uint64_t base = SB_LOAD(r->base, SB_RELAXED);
  return sequence_in(r, first > base ? first : base);
}

/* ---- leaving ---- */

bool sb_store_may_leave(sb_queue *q) { return sb_queue_may_leave(q); }

uint32_t sb_store_leave(sb_queue *q, uint64_t end, uint64_t ahead, uint32_t most, sb_expiring *expiring,
                        uint32_t *count) {
  sb_ring r;
  uint64_t behind;
  uint32_t left = 0;
  if (count != NULL) *count = 0;
  if (sb_api_enter(q->c) != SB_OK) {
    return 0;
  }
  if (find(q, end, &r, &behind)) {
    uint64_t stored = SB_LOAD(r.stored, SB_ACQUIRE); /* I135 of sb_departure.h */
    left = sb_departure_run(q, &r, SB_LOAD(r.head, SB_ACQUIRE) + ahead, behind < stored ? behind : stored, most,
                            expiring, count);
    for (uint32_t i = 0; count != NULL && i < *count; i++)
      expiring[i].sequence = sequence_of_leaf(&r, expiring[i].sequence);
  }
  if (left > 0) {
    sb_slab_flush_freed(q->c);
    sb_notify_room_made(q->c, NULL, 0);
  }
  sb_api_leave(q->c);
  return left;
}

/* ---- coming back ---- */

bool sb_store_wanting(sb_broker *b, uint32_t *slot, uint64_t *sequence) {
  sb_ring r;
  *slot = SB_SWAP(&b->wanting, 0u, SB_ACQ_REL);
  uint64_t position = SB_LOAD(&b->wanting_at, SB_RELAXED);
  bool found = *slot != 0 && sb_lanes_ring(b, *slot, position, &r) && position >= SB_LOAD(r.base, SB_RELAXED);
  if (found) *sequence = sequence_in(&r, position);
  return found;
}

void sb_store_wish(sb_queue *q, uint64_t sequence) {
  if (sb_api_enter(q->c) == SB_OK) {
    sb_wishes_make(q, sequence);
    sb_api_leave(q->c);
  }
}

uint32_t sb_store_wishes(sb_broker *b) { return sb_wishes_made(b); }

bool sb_store_take_wish(sb_queue *q, uint64_t *sequence) {
  bool found = false;
  if (sb_api_enter(q->c) == SB_OK) {
    found = sb_wishes_take(q, sequence);
    sb_api_leave(q->c);
  }
  return found;
}

sb_status sb_store_absent(sb_queue *q, uint64_t *sequence, uint64_t end, uint64_t *link) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t position, at;
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return status;
  }
  status = SB_EMPTY;
  if (find(q, *sequence, &r, &position)) {
    uint64_t behind = position + (end - *sequence);
    sb_status found;
    while (position < behind && (found = sb_ring_find_leaf(q->c->b, &r, position, &leaf, &at)) != SB_EMPTY) {
      if (found == SB_PAGED && at < behind && sb_paged_is_at(q->c->b, &r, at, link)) {
        *sequence = sequence_of_leaf(&r, at / SB_PAGE_CELLS * SB_PAGE_CELLS);
        status = SB_OK;
        break;
      }
      if (found != SB_PAGED && found != SB_OK) {
        status = found;
        break;
      }
      position = (at / SB_PAGE_CELLS + 1) * SB_PAGE_CELLS;
    }
  }
  sb_api_leave(q->c);
  return status;
}

/* Fills a cell of a leaf that comes back. From the store to PUBLISHED on, only the leaf names the slot; its side record
 * has the generation, until the leaf is complete. */
static void place(sb_queue *q, const sb_page_fresh *f, uint64_t position, const sb_unpacked *u) {
  sb_leaf_shm *leaf = (sb_leaf_shm *)(void *)f->leaf.page;
  sb_cell_shm *cell = &leaf->cells[position % SB_PAGE_CELLS];
  const sb_reservation *r = &u->place;
  sb_word *header = sb_slot_header(q->c->b, r->slot);
  uint64_t parts = SB_LOAD(header, SB_RELAXED) & SB_FIELD(1u, 2 + SB_PARTS_REF);
  SB_STORE(&cell->side, r->gen, SB_RELAXED);
  SB_STORE(&cell->word, sb_cell_open(u->scheduled ? SB_CELL_SCHEDULED : SB_CELL_AVAILABLE, r->slot, 0, f->leaf.gen),
           SB_RELEASE);
  SB_CRASHPOINT("paging.placed");
  SB_STORE(header, sb_slot_word(SB_SLOT_PUBLISHED, 1, r->gen) | parts, SB_RELEASE); /* P1 of sb_slab.h, release */
  SB_CRASHPOINT("paging.published");
  sb_holding_give(q->c, r->token);
}

/* What the leaf has of each cell beside its message. */
typedef struct {
  uint64_t side[SB_PAGE_CELLS], timers, members;
} notes;

static sb_status fill_row(sb_queue *q, const sb_stored_row *row, uint64_t first, const sb_page_fresh *f, notes *n) {
  sb_row_walk w = {.n = 0};
  sb_status status = SB_OK;
  while (status == SB_OK && sb_api_next_entry(row, &w)) {
    uint64_t index = w.head.first + w.entry.index - first, bit = UINT64_C(1) << index % SB_PAGE_CELLS;
    if ((row->ended >> w.entry.index & 1) != 0) continue;
    if (index >= SB_PAGE_CELLS || (n->members & bit) != 0) {
      return SB_CORRUPT;
    }
    sb_unpacked u;
    status =
        sb_api_unpack(q, &w.entry, row->heads + w.at + sizeof w.entry, row->bodies + w.body, w.head.written_ns, &u);
    if (status == SB_OK) {
      place(q, f, f->leaf.first + index, &u);
      n->members |= bit;
      if (u.timer) n->timers |= bit;
      n->side[index] = sb_restore_side(u.place.gen, &w.entry, u.due_ns);
    }
  }
  return status == SB_OK && !w.head_ok ? SB_CORRUPT : status;
}

/* Ends the cells without a message, and describes the others. */
static void complete(const sb_page_fresh *f, const notes *n) {
  sb_leaf_shm *leaf = (sb_leaf_shm *)(void *)f->leaf.page;
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    if ((n->members >> i & 1) != 0) {
      SB_STORE(&leaf->cells[i].side, n->side[i], SB_RELAXED);
    } else {
      SB_STORE(&leaf->cells[i].word, sb_cell_bare(SB_CELL_TOMBSTONE, f->leaf.gen), SB_RELAXED);
      SB_STORE((_Atomic uint8_t *)(void *)leaf->finished + i, 1, SB_RELAXED);
    }
  }
}

static sb_status come_back(sb_queue *q, const sb_ring *r, uint64_t sequence, uint64_t position, uint64_t link,
                           const sb_stored_row *rows, uint32_t count) {
  sb_page_fresh f;
  notes n = {.members = 0};
  uint64_t first = position / SB_PAGE_CELLS * SB_PAGE_CELLS, zero = sequence - (position - first);
  sb_status status = sb_page_renew_leaf(q->c, r, first, link, &f);
  if (status != SB_OK) {
    return status;
  }
  sb_paged_coming(&f);
  SB_CRASHPOINT("paging.coming");
  for (uint32_t i = 0; status == SB_OK && i < count; i++) status = fill_row(q, &rows[i], zero, &f, &n);
  if (status == SB_OK && n.members == 0) status = SB_CORRUPT; /* nothing leaves that has no message */
  if (status != SB_OK) {
    sb_paged_give_up(q->c, &f);
    return status;
  }
  complete(&f, &n);
  if (!sb_paged_arrive(q->c, &f)) {
    return SB_DONE;
  }
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    if ((n.timers >> i & 1) != 0) sb_queue_schedule(q, first + i);
  }
  if ((link & SB_LINK_MARKED) != 0) sb_requeued_mark(q->c->b, r, first);
  sb_paged_arrived(q->c, &f);
  return SB_OK;
}

/* `use`: of the allocations (sb_reserve.h). */
static sb_status come_back_with(sb_queue *q, uint64_t sequence, uint64_t link, const sb_stored_row *rows,
                                uint32_t count, unsigned use) {
  sb_ring r;
  uint64_t position;
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return status;
  }
  q->c->use = use;
  status = find(q, sequence, &r, &position) ? come_back(q, &r, sequence, position, link, rows, count) : SB_CORRUPT;
  q->c->use = SB_USE_DRAIN;
  if (status == SB_OK) {
    if (!sb_queue_is_open(q)) (void)sb_disposal_empty(q); /* it was closed meanwhile */
    sb_notify_work_arrived(q);
  }
  sb_api_leave(q->c);
  return status;
}

sb_status sb_store_come_back(sb_queue *q, uint64_t sequence, uint64_t link, const sb_stored_row *rows, uint32_t count) {
  return come_back_with(q, sequence, link, rows, count, SB_USE_DRAIN);
}

sb_status sb_store_come_back_if_spare(sb_queue *q, uint64_t sequence, uint64_t link, const sb_stored_row *rows,
                                      uint32_t count) {
  return come_back_with(q, sequence, link, rows, count, SB_USE_PLAIN);
}
