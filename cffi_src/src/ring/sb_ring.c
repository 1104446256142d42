// SPDX-License-Identifier: Apache-2.0
#include "sb_ring.h"

#include "sb_changed.h"
#include "sb_slab.h"
#include "sb_spacing.h"

/* ---- finding leaves ---- */

sb_status sb_ring_locate(sb_broker *b, sb_connection *c, const sb_ring *r, uint64_t position, sb_leaf_ref *ref) {
  sb_page_ref p;
  unsigned skip = 0;
  sb_status status = sb_page_descend(b, c, r, position, 0, &p, &skip);
  if (status == SB_OK) {
    *ref = (sb_leaf_ref){(sb_leaf_shm *)(void *)p.page, p.first, p.gen, p.slot};
  } else {
    *ref = SB_NO_LEAF;
    if (status == SB_DONE || status == SB_PAGED) ref->first = sb_page_behind(skip, position);
  }
  return status;
}

sb_status sb_ring_find_leaf(sb_broker *b, const sb_ring *r, uint64_t from, sb_leaf_ref *ref, uint64_t *position) {
  uint64_t at = from;
  uint64_t first = SB_LOAD(r->from, SB_RELAXED);
  if (at < first) at = first;
  for (;;) {
    sb_page_ref p;
    unsigned skip = 0;
    sb_status status = sb_page_descend(b, NULL, r, at, 0, &p, &skip);
    *position = at;
    if (status == SB_OK) {
      *ref = (sb_leaf_ref){(sb_leaf_shm *)(void *)p.page, p.first, p.gen, p.slot};
      return status;
    }
    if (status != SB_DONE) {
      return status;
    }
    at = sb_page_behind(skip, at);
  }
}

bool sb_ring_next_leaf(sb_broker *b, const sb_ring *r, uint64_t from, sb_leaf_ref *ref, uint64_t *position) {
  uint64_t at = from, found;
  sb_status status;
  while ((status = sb_ring_find_leaf(b, r, at, ref, &found)) == SB_PAGED) {
    at = (found / SB_PAGE_CELLS + 1) * SB_PAGE_CELLS;
  }
  if (status == SB_OK) *position = found;
  return status == SB_OK;
}

bool sb_ring_has(sb_broker *b, const sb_ring *r, uint64_t end, bool (*is)(uint64_t word)) {
  sb_leaf_ref leaf;
  uint64_t at = SB_LOAD(r->base, SB_RELAXED);
  sb_status status;
  while ((status = sb_ring_find_leaf(b, r, at, &leaf, &at)) == SB_OK && at < end) {
    for (; sb_leaf_covers(&leaf, at) && at < end; at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_ACQUIRE);
      if (sb_cell_of(word, leaf.gen) && is(word)) {
        return true;
      }
    }
  }
  return status == SB_PAGED && at < end;
}

void sb_ring_advance(sb_word *hint, uint64_t from, uint64_t to) {
  while (from < to && !SB_CAS(hint, &from, to, SB_ACQ_REL)) {
  }
}

uint64_t sb_ring_exact_tail_near(sb_broker *b, const sb_ring *r, sb_leaf_ref *cache) {
  uint64_t start = SB_LOAD(r->tail, SB_SEQ_CST), at = start;
  unsigned retries = 0;
  for (;;) {
    if (!sb_leaf_covers(cache, at)) {
      sb_status status = sb_ring_locate(b, NULL, r, at, cache);
      if (status == SB_DONE || status == SB_PAGED) { /* filled, and so passed */
        at = cache->first;
        continue;
      }
      if (status != SB_OK) {
        break;
      }
    }
    uint64_t word = SB_LOAD(&sb_leaf_cell(cache, at)->word, SB_SEQ_CST);
    if (!sb_cell_of(word, cache->gen)) {
      *cache = SB_NO_LEAF;
      if (++retries > SB_MAX_RETRIES) break;
      continue;
    }
    if (sb_cell_state(word) == SB_CELL_FREE || sb_cell_state(word) == SB_CELL_CLOSED ||
        sb_cell_state(word) == SB_CELL_CLOSING) {
      break;
    }
    at++;
  }
  sb_ring_advance(r->tail, start, at);
  return at;
}

uint64_t sb_ring_exact_tail(sb_broker *b, const sb_ring *r) {
  sb_leaf_ref leaf = SB_NO_LEAF;
  return sb_ring_exact_tail_near(b, r, &leaf);
}

/* ---- appending ---- */

static uint64_t complete(uint64_t word, unsigned form, uint64_t gen) {
  switch (form) {
    case SB_WORD_OPEN: return word | SB_FIELD(gen & 0x7ffffffu, 37);
    case SB_WORD_OWNED: return word | SB_FIELD(gen & 0x7fffu, 49);
    case SB_WORD_BARE: return word | SB_FIELD(gen & SB_GEN_MASK, 4);
    default: return word;
  }
}

/* Makes the cell at `position`, which was FREE, one without a message (I133 of sb_spacing.h). False: another process has
 * filled it. */
static bool skip(sb_connection *c, const sb_ring *r, const sb_leaf_ref *leaf, uint64_t position) {
  uint64_t empty = sb_cell_bare(SB_CELL_FREE, leaf->gen);
  if (!SB_CAS(&sb_leaf_cell(leaf, position)->word, &empty, sb_cell_bare(SB_CELL_TOMBSTONE, leaf->gen), SB_SEQ_CST)) {
    return false;
  }
  SB_CRASHPOINT("ring.append.skipped");
  if (r->came != NULL) (void)SB_ADD(r->came, 1, SB_SEQ_CST);
  sb_ring_redo(c, r, leaf, position);
  return true;
}

sb_status sb_ring_append(sb_connection *c, const sb_ring *r, sb_leaf_ref *cache, uint64_t word, sb_append how,
                         sb_word *announce, uint64_t *position) {
  uint64_t shared = SB_LOAD(r->tail, SB_ACQUIRE), at = shared > *position ? shared : *position;
  unsigned retries = 0;
  for (;;) {
    if (!sb_leaf_covers(cache, at)) {
      sb_status status = sb_ring_locate(c->b, c, r, at, cache);
      if (status == SB_DONE || status == SB_PAGED) { /* filled, and so passed */
        at = cache->first;
        continue;
      }
      if (status != SB_OK) {
        return status;
      }
    }
    sb_cell_shm *cell = sb_leaf_cell(cache, at);
    uint64_t found = SB_LOAD(&cell->word, SB_ACQUIRE);
    bool is_free = found == sb_cell_bare(SB_CELL_FREE, cache->gen);
    if (is_free && how.bytes != 0 && sb_spacing_exceeds(c->b, cache->leaf, (unsigned)(at % SB_PAGE_CELLS), how.bytes)) {
      at += skip(c, r, cache, at);
      continue;
    }
    if (is_free) {
      if (announce != NULL) {
        SB_STORE(announce, at, SB_RELEASE); /* P11 of sb_ledger.h: release */
      }
      SB_CRASHPOINT("ring.append.announced");
      if (SB_CAS(&cell->word, &found, complete(word, how.form, cache->gen),
                 SB_SEQ_CST)) { /* P2; P3 of sb_notify.h: the linearisation point */
        SB_CRASHPOINT("ring.append.done");
        *position = at;
        if (at + 1 - shared >= how.lag) sb_ring_advance(r->tail, shared, at + 1);
        return SB_OK;
      }
    }
    if (!sb_cell_of(found, cache->gen)) { /* the page was retired and reused: find the leaf again */
      *cache = SB_NO_LEAF;
      if (++retries > SB_MAX_RETRIES) return SB_CORRUPT;
    } else if (sb_cell_state(found) == SB_CELL_CLOSED || sb_cell_state(found) == SB_CELL_CLOSING) {
      *position = at;
      return SB_CLOSED_CELL;
    } else {
      at++;
    }
  }
}

/* ---- finishing ---- */

#define BYTES UINT64_C(0x0101010101010101)

/* Counts the cells that are not marked finished, of the eight cells that one word of `finished` covers. */
static unsigned unfinished_of(const sb_leaf_shm *leaf, unsigned word) {
  uint64_t missing = BYTES & ~SB_LOAD(&leaf->finished[word], SB_RELAXED);
  return (unsigned)((missing * BYTES) >> 56); /* the sum of the bytes of `missing` */
}

/* Counts the cells of the leaf that are not marked finished. Stops as soon as the count exceeds `enough`. */
static unsigned unfinished(const sb_leaf_shm *leaf, unsigned enough) {
  unsigned n = 0;
  for (unsigned w = 0; w < SB_PAGE_CELLS / 8 && n <= enough; w++) {
    n += unfinished_of(leaf, w);
  }
  return n;
}

/* Marks a cell finished. The call that finishes the last cell of the leaf retires the page. If two calls finish the
 * last two cells at the same time, each stores its mark, then looks at all marks. A seq_cst operation lies between the
 * two steps, so at least one of the calls sees all cells finished. To save this operation, a call returns before it if
 * more than 3 cells of its word of `finished`, or more than 8 cells of the leaf, are unfinished. If so many calls
 * finish cells at the same time, the page stays until the next sweep (sb_page_sweep). */
void sb_ring_redo(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position) {
  unsigned index = (unsigned)(position % SB_PAGE_CELLS);
  if (r->changed != NULL) sb_changed_mark_cell(c->b, r, position); /* I119 of sb_changed.h */
  _Atomic uint8_t *byte = (_Atomic uint8_t *)(void *)ref->leaf->finished + index;
  SB_STORE(byte, 1, SB_RELEASE);
  if (unfinished_of(ref->leaf, index / 8) > 3 || unfinished(ref->leaf, 8) > 8) {
    return;
  }
  (void)SB_OR(&ref->leaf->page.done, UINT64_C(1) << index, SB_SEQ_CST);
  if (unfinished(ref->leaf, 0) == 0) {
    /* if the leaf is the root, it cannot be retired yet: grow (sb_page.c) retires an old root that has all bits */
    (void)SB_OR(&ref->leaf->page.done, ~UINT64_C(0), SB_SEQ_CST);
    sb_page_retire(c, r, (sb_page_ref){&ref->leaf->page, ref->gen, ref->first, ref->slot, 0});
  }
}

void sb_ring_finish(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position) {
  SB_STORE(&sb_leaf_cell(ref, position)->word, sb_cell_bare(SB_CELL_TOMBSTONE, ref->gen), SB_RELEASE);
  SB_CRASHPOINT("ring.tombstone");
  sb_ring_redo(c, r, ref, position);
}

void sb_ring_finish_row(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position, unsigned count) {
  _Atomic uint8_t *finished = (_Atomic uint8_t *)(void *)ref->leaf->finished + position % SB_PAGE_CELLS;
  uint64_t row = (~UINT64_C(0) >> (SB_PAGE_CELLS - count)) << position % SB_PAGE_CELLS;
  for (unsigned i = 0; i < count; i++) {
    SB_STORE(&sb_leaf_cell(ref, position + i)->word, sb_cell_bare(SB_CELL_TOMBSTONE, ref->gen), SB_RELEASE);
    SB_CRASHPOINT("ring.tombstone");
  }
  if (r->changed != NULL) sb_changed_mark(c->b, r, position, row); /* I119 of sb_changed.h: before `finished` */
  for (unsigned i = 0; i < count; i++) SB_STORE(&finished[i], 1, SB_RELEASE);
  sb_ring_redo(c, r, ref, position + count - 1); /* looks at the marks of all cells, and retires the page */
}

bool sb_ring_drop(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position, uint64_t word) {
  if (!SB_CAS(&sb_leaf_cell(ref, position)->word, &word, sb_cell_bare(SB_CELL_TOMBSTONE, ref->gen), SB_ACQ_REL)) {
    return false;
  }
  sb_ring_redo(c, r, ref, position);
  return true;
}

static void destroy(sb_connection *c, uint64_t link, uint64_t position, unsigned below) {
  sb_page_ref p;
  if (!sb_page_of(c->b, link, position, &p) || p.height >= below) { /* a broken link may lead upwards */
    return;
  }
  for (unsigned i = 0; p.height > 0 && i < SB_PAGE_CELLS; i++) {
    uint64_t child = SB_LOAD(&sb_page_children(&p)[i], SB_ACQUIRE);
    if (sb_link_state(child) == SB_LINK_PAGE) {
      destroy(c, child, p.first + ((uint64_t)i << (6 * p.height)), p.height);
      SB_STORE(&sb_page_children(&p)[i], SB_LINK_DONE, SB_RELEASE);
    }
  }
  for (unsigned i = 0; p.height == 0 && i < SB_PAGE_CELLS; i++) { /* the CAS of a stalled append must fail */
    SB_STORE(&((sb_leaf_shm *)(void *)p.page)->cells[i].word, sb_cell_bare(SB_CELL_TOMBSTONE, p.gen), SB_RELEASE);
  }
  (void)sb_slab_free_gen(c->b, p.slot, p.gen);
}

void sb_ring_destroy(sb_connection *c, const sb_ring *r) {
  uint64_t tail = sb_ring_exact_tail(c->b, r), root = SB_LOAD(r->root, SB_ACQUIRE);
  uint64_t base = (tail / SB_PAGE_CELLS + 1) * SB_PAGE_CELLS; /* I4 of sb_layout.h: after all used positions */
  destroy(c, root, 0, 11);
  SB_STORE(r->base, base, SB_RELAXED);
  SB_STORE(r->from, base, SB_RELAXED);
  SB_STORE(r->tail, base, SB_RELAXED);
  SB_STORE(r->head, base, SB_RELAXED);
  SB_STORE(r->root, sb_link_empty(base / SB_PAGE_CELLS), SB_RELEASE);
}

/* ---- finding rings ---- */

static sb_ring view(sb_ring_shm *r, uint32_t object, uint32_t id) {
  return (sb_ring){.root = &r->root,
                   .tail = &r->tail,
                   .head = &r->head,
                   .base = &r->base,
                   .from = &r->base,
                   .object = object,
                   .id = id};
}

/* True for a queue whose messages the storekeeper writes into the store: for ever, or as long as they are not in the
 * memory. An exclusive queue ends with its connection. */
static bool is_stored(const sb_broker *b, uint32_t flags) {
  bool lasts = (flags & (SB_QUEUE_DURABLE | SB_QUEUE_EXCLUSIVE)) == SB_QUEUE_DURABLE;
  return (lasts || (flags & SB_QUEUE_PAGES) != 0) && SB_LOAD(&b->header->stores, SB_RELAXED) != SB_STORES_NONE;
}

static sb_ring cells_of(const sb_broker *b, sb_queue_shm *q, uint32_t object) {
  uint32_t flags = SB_LOAD(&q->flags, SB_RELAXED);
  return (sb_ring){.root = &q->root,
                   .tail = &q->tail,
                   .head = &q->head,
                   .base = &q->base,
                   .from = &q->from,
                   .requeued = &q->requeued,
                   .ready = (flags & SB_QUEUE_LANES) != 0 ? &q->ready[0] : NULL,
                   .ready_bit = 1,
                   .came = (flags & SB_QUEUE_LANES) != 0 ? &q->came : NULL,
                   .object = object,
                   .id = SB_RING_CELLS,
                   .returned = (flags & SB_QUEUE_SORTED) != 0 ? &q->returned : NULL,
                   .changed = is_stored(b, flags) ? &q->changed : NULL,
                   .stored = &q->stored};
}

static bool open_lane(sb_broker *b, uint32_t object, sb_ring *r) {
  sb_lane_shm *l = sb_slab_object(b, object, SB_KIND_LANE);
  sb_queue_shm *q = l != NULL ? sb_slab_queue(b, SB_LOAD(&l->queue, SB_RELAXED)) : NULL;
  if (q == NULL) {
    return false;
  }
  unsigned number = SB_LOAD(&l->number, SB_RELAXED) % SB_LANES;
  *r = (sb_ring){.root = &l->root,
                 .tail = &l->tail,
                 .head = &l->head,
                 .base = &l->base,
                 .from = &l->from,
                 .requeued = &l->requeued,
                 .ready = &q->ready[number / 64],
                 .ready_bit = UINT64_C(1) << number % 64,
                 .came = &q->came,
                 .object = object,
                 .id = SB_RING_LANE,
                 .changed = is_stored(b, SB_LOAD(&q->flags, SB_RELAXED)) ? &l->changed : NULL,
                 .stored = &l->stored};
  return true;
}

bool sb_ring_open(sb_broker *b, uint32_t object, uint32_t id, sb_ring *r) {
  if (id == SB_RING_MEMORY) {
    sb_header_shm *h = b->header;
    *r = (sb_ring){.root = &h->memory_root,
                   .tail = &h->memory_tail,
                   .head = &h->memory_head,
                   .base = &h->memory_base,
                   .from = &h->memory_base,
                   .id = id};
    return object == 0;
  }
  if (id == SB_RING_LANE) {
    return open_lane(b, object, r);
  }
  if (id == SB_RING_INTERESTED || id == SB_RING_NOTIFIED) {
    sb_consumer_level_shm *level = sb_slab_object(b, object, SB_KIND_CONSUMER_LEVEL);
    if (level == NULL) {
      return false;
    }
    *r = view(id == SB_RING_INTERESTED ? &level->interested : &level->notified, object, id);
    return true;
  }
  sb_queue_shm *q = sb_slab_queue(b, object);
  if (q == NULL) {
    return false;
  }
  switch (id) {
    case SB_RING_CELLS: *r = cells_of(b, q, object); return true;
    case SB_RING_ALL: *r = view(&q->all, object, id); return true;
    case SB_RING_NON_ACQUIRING: *r = view(&q->non_acquiring_list, object, id); return true;
    case SB_RING_NOT_INTERESTED: *r = view(&q->not_interested_list, object, id); return true;
    case SB_RING_ROOM: *r = view(&q->room, object, id); return true;
    case SB_RING_SCHEDULE: *r = view(&q->schedule, object, id); return true;
    default: return false;
  }
}

/* ---- origins ---- */

sb_word *sb_ring_origin(sb_broker *b, const sb_leaf_ref *ref, uint64_t position) {
  sb_long_leaf_shm *leaf = sb_slab_object(b, ref->slot, SB_KIND_LONG_LEAF);
  return leaf != NULL ? &leaf->origins[position % SB_PAGE_CELLS] : NULL;
}

uint64_t sb_ring_sequence(sb_broker *b, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position) {
  sb_word *origin = sb_ring_origin(b, ref, position);
  uint64_t sequence = origin != NULL ? SB_LOAD(origin, SB_ACQUIRE) : SB_NO_ORIGIN;
  uint64_t base = SB_LOAD(r->base, SB_RELAXED);
  return sequence != SB_NO_ORIGIN ? sequence : sb_position_in(sb_position_lane(base), position - base);
}
