// SPDX-License-Identifier: Apache-2.0
#include "sb_ring.h"

#include "sb_slab.h"

typedef struct {
  sb_page_shm *page;
  uint64_t gen, first;
  uint32_t slot;
  unsigned height;
} page_ref;

static bool covers(unsigned height, uint64_t position) { return height >= 10 || position >> (6 * (height + 1)) == 0; }
static unsigned index_at(unsigned height, uint64_t position) { return (unsigned)(position >> (6 * height)) & 63u; }
static uint64_t first_of(unsigned height, uint64_t position) {
  return height >= 10 ? 0 : position >> (6 * (height + 1)) << (6 * (height + 1));
}
static sb_word *children(const page_ref *p) { return ((sb_inner_shm *)(void *)p->page)->children; }

static bool still(sb_broker *b, const page_ref *p) { /* P4: read after what was read from the page */
  return sb_slot_gen(SB_LOAD(sb_slot_header(b, p->slot), SB_ACQUIRE)) == p->gen;
}

static bool page_of(sb_broker *b, uint64_t link, uint64_t position, page_ref *p) {
  p->slot = sb_link_slot(link);
  p->height = sb_link_height(link);
  p->first = first_of(p->height, position);
  p->page = sb_link_state(link) == SB_LINK_PAGE
                ? sb_slab_object(b, p->slot, p->height == 0 ? SB_KIND_LEAF : SB_KIND_INNER)
                : NULL;
  if (p->page == NULL || p->height > 10) {
    return false;
  }
  uint64_t h = SB_LOAD(sb_slot_header(b, p->slot), SB_ACQUIRE); /* P4 acquire */
  p->gen = sb_slot_gen(h);
  return sb_slot_state(h) != SB_SLOT_FREE && (p->gen & 0x3fffffffu) == sb_link_gen(link);
}

/* ---- making pages ---- */

static sb_status new_page(sb_connection *c, const sb_ring *r, unsigned height, uint64_t first, uint64_t *token,
                          page_ref *p) {
  sb_status status = sb_holding_object(c, height == 0 ? SB_KIND_LEAF : SB_KIND_INNER, token, &p->slot, &p->gen);
  if (status != SB_OK) {
    return status;
  }
  p->page = sb_slot_at(c->b, p->slot);
  p->height = height;
  p->first = first;
  SB_STORE(&p->page->object, r->object, SB_RELAXED);
  SB_STORE(&p->page->ring, r->id | height << 8, SB_RELAXED);
  SB_STORE(&p->page->first, first, SB_RELAXED);
  SB_STORE(&p->page->done, 0, SB_RELAXED);
  SB_STORE(&p->page->returned, 0, SB_RELAXED);
  if (height == 0) {
    sb_leaf_shm *leaf = (sb_leaf_shm *)(void *)p->page;
    for (unsigned w = 0; w < SB_PAGE_CELLS / 8; w++) {
      SB_STORE(&leaf->finished[w], 0, SB_RELAXED);
    }
    for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
      SB_STORE(&leaf->cells[i].word, sb_cell_bare(SB_CELL_FREE, p->gen), SB_RELAXED);
      SB_STORE(&leaf->cells[i].side, 0, SB_RELAXED);
    }
  } else {
    uint64_t base = SB_LOAD(r->base, SB_RELAXED), span = UINT64_C(1) << (6 * height), done = 0;
    for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
      bool before = first + (i + 1) * span <= base; /* of an earlier life of the object: nothing was ever there */
      done |= (uint64_t)before << i;
      SB_STORE(&children(p)[i], before ? SB_LINK_DONE : sb_link_empty(p->gen), SB_RELAXED);
    }
    SB_STORE(&p->page->done, done, SB_RELAXED);
  }
  return SB_OK;
}

static void link_done(sb_connection *c, uint64_t token, const page_ref *p) {
  uint64_t mine = sb_slot_word(SB_SLOT_ALLOC, c->id, p->gen);
  (void)SB_CAS(sb_slot_header(c->b, p->slot), &mine, sb_slot_word(SB_SLOT_PUBLISHED, 1, p->gen), SB_ACQ_REL);
  sb_holding_give(c, token);
}

/* Links a fresh page at `link` if it still is `expected`; otherwise takes it back. */
static bool link_page(sb_connection *c, sb_word *link, uint64_t expected, uint64_t token, const page_ref *p) {
  SB_CRASHPOINT("ring.page.allocated");
  if (SB_CAS(link, &expected, sb_link_word(p->height, p->slot, p->gen), SB_SEQ_CST)) { /* P4 release */
    SB_CRASHPOINT("ring.page.linked");
    link_done(c, token, p);
    return true;
  }
  (void)sb_slab_free_gen(c->b, p->slot, p->gen);
  sb_holding_give(c, token);
  return false;
}

static void try_retire(sb_connection *c, const sb_ring *r, page_ref p);

static sb_status grow(sb_connection *c, const sb_ring *r, uint64_t root, const page_ref *old, uint64_t position) {
  uint64_t token;
  page_ref fresh;
  if (sb_link_state(root) == SB_LINK_EMPTY) {
    unsigned height = 0;
    while (!covers(height, position)) height++;
    sb_status status = new_page(c, r, height, 0, &token, &fresh);
    if (status == SB_OK) (void)link_page(c, r->root, root, token, &fresh);
    return status;
  }
  sb_status status = new_page(c, r, old->height + 1, 0, &token, &fresh);
  if (status != SB_OK) {
    return status;
  }
  SB_STORE(&children(&fresh)[0], root, SB_RELAXED);
  SB_STORE(&fresh.page->done, SB_LOAD(&fresh.page->done, SB_RELAXED) & ~UINT64_C(1), SB_RELAXED);
  SB_STORE(&fresh.page->returned, 1, SB_RELAXED); /* maybe: the old root's own bits say more */
  if (link_page(c, r->root, root, token, &fresh) && SB_LOAD(&old->page->done, SB_SEQ_CST) == ~UINT64_C(0)) {
    try_retire(c, r, *old); /* it could not be retired while it had no parent */
  }
  return SB_OK;
}

/* ---- walking ---- */

/* Walks to the page of that height. *skip is the height of the link that ended the walk early. */
static sb_status descend(sb_broker *b, sb_connection *c, const sb_ring *r, uint64_t position, unsigned height,
                         page_ref *p, unsigned *skip) {
  if (position >> 60 != 0) {
    return SB_CORRUPT; /* no queue ever gets there */
  }
  for (unsigned tries = 0; tries < 1000; tries++) {
    uint64_t root = SB_LOAD(r->root, SB_SEQ_CST);
    bool empty = sb_link_state(root) == SB_LINK_EMPTY;
    if (!empty && !page_of(b, root, 0, p)) {
      if (SB_LOAD(r->root, SB_SEQ_CST) == root) {
        return SB_CORRUPT;
      }
      continue;
    }
    if (empty || !covers(p->height, position)) {
      if (c == NULL) {
        return SB_EMPTY;
      }
      sb_status status = grow(c, r, root, p, position);
      if (status != SB_OK) {
        return status;
      }
      continue;
    }
    if (p->height < height) {
      return SB_EMPTY;
    }
    bool again = false;
    while (p->height > height && !again) {
      sb_word *link = &children(p)[index_at(p->height, position)];
      uint64_t word = SB_LOAD(link, SB_ACQUIRE); /* P4 acquire */
      if (!still(b, p)) {
        again = true;
      } else if (sb_link_state(word) == SB_LINK_DONE) {
        *skip = p->height;
        return SB_DONE;
      } else if (sb_link_state(word) == SB_LINK_EMPTY) {
        if (c == NULL) {
          return SB_EMPTY;
        }
        uint64_t token;
        page_ref fresh;
        sb_status status = new_page(c, r, p->height - 1, first_of(p->height - 1, position), &token, &fresh);
        if (status != SB_OK) {
          return status;
        }
        (void)link_page(c, link, word, token, &fresh);
      } else {
        page_ref child;
        if (page_of(b, word, position, &child) && child.height + 1 == p->height) {
          *p = child;
        } else if (SB_LOAD(link, SB_ACQUIRE) == word && still(b, p)) {
          return SB_CORRUPT;
        } else {
          again = true;
        }
      }
    }
    if (!again) {
      return SB_OK;
    }
  }
  return SB_CORRUPT; /* a live ring cannot change under us that often while we look at one position */
}

sb_status sb_ring_locate(sb_broker *b, sb_connection *c, const sb_ring *r, uint64_t position, sb_leaf_ref *ref) {
  page_ref p;
  unsigned skip = 0;
  sb_status status = descend(b, c, r, position, 0, &p, &skip);
  if (status == SB_OK) {
    *ref = (sb_leaf_ref){(sb_leaf_shm *)(void *)p.page, p.first, p.gen, p.slot};
  }
  return status;
}

bool sb_ring_next_leaf(sb_broker *b, const sb_ring *r, uint64_t from, sb_leaf_ref *ref, uint64_t *position) {
  uint64_t at = from;
  uint64_t base = SB_LOAD(r->base, SB_RELAXED);
  if (at < base) at = base;
  for (;;) {
    page_ref p;
    unsigned skip = 0;
    sb_status status = descend(b, NULL, r, at, 0, &p, &skip);
    if (status == SB_OK) {
      *ref = (sb_leaf_ref){(sb_leaf_shm *)(void *)p.page, p.first, p.gen, p.slot};
      *position = at;
      return true;
    }
    if (status != SB_DONE || skip >= 10) {
      return false;
    }
    at = ((at >> (6 * skip)) + 1) << (6 * skip);
  }
}

void sb_ring_advance(sb_word *hint, uint64_t from, uint64_t to) {
  while (from < to && !SB_CAS(hint, &from, to, SB_ACQ_REL)) {
  }
}

uint64_t sb_ring_exact_tail(sb_broker *b, const sb_ring *r) {
  uint64_t start = SB_LOAD(r->tail, SB_SEQ_CST), at = start;
  unsigned strange = 0;
  sb_leaf_ref ref = SB_NO_LEAF;
  for (;;) {
    if (!sb_leaf_covers(&ref, at)) {
      sb_status status = sb_ring_locate(b, NULL, r, at, &ref);
      if (status == SB_DONE) {
        at = (at | (SB_PAGE_CELLS - 1)) + 1;
        continue;
      }
      if (status != SB_OK) {
        break;
      }
    }
    uint64_t word = SB_LOAD(&sb_leaf_cell(&ref, at)->word, SB_SEQ_CST);
    if (!sb_cell_of(word, ref.gen)) {
      ref = SB_NO_LEAF;
      if (++strange > SB_MAX_STRANGE) break;
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

/* ---- appending ---- */

static uint64_t complete(uint64_t word, unsigned how, uint64_t gen) {
  switch (how & ~(unsigned)SB_APPEND_LAZILY) {
    case SB_APPEND_OPEN: return word | SB_PUT(gen & 0x7ffffffu, 37);
    case SB_APPEND_OWNED: return word | SB_PUT(gen & 0x7fffu, 49);
    case SB_APPEND_BARE: return word | SB_PUT(gen & SB_GEN_MASK, 4);
    default: return word;
  }
}

sb_status sb_ring_append(sb_connection *c, const sb_ring *r, sb_leaf_ref *cache, uint64_t word, unsigned how,
                         sb_word *announce, uint64_t *position) {
  uint64_t shared = SB_LOAD(r->tail, SB_ACQUIRE), at = shared > *position ? shared : *position;
  unsigned strange = 0;
  for (;;) {
    if (!sb_leaf_covers(cache, at)) {
      sb_status status = sb_ring_locate(c->b, c, r, at, cache);
      if (status == SB_DONE) {
        at = (at | (SB_PAGE_CELLS - 1)) + 1;
        continue;
      }
      if (status != SB_OK) {
        *cache = SB_NO_LEAF;
        return status;
      }
    }
    sb_cell_shm *cell = sb_leaf_cell(cache, at);
    uint64_t found = SB_LOAD(&cell->word, SB_ACQUIRE);
    if (found == sb_cell_bare(SB_CELL_FREE, cache->gen)) {
      if (announce != NULL) {
        SB_STORE(announce, at, SB_RELEASE); /* P11 release */
      }
      SB_CRASHPOINT("ring.append.announced");
      if (SB_CAS(&cell->word, &found, complete(word, how, cache->gen),
                 SB_SEQ_CST)) { /* P2, P3: the linearisation point */
        SB_CRASHPOINT("ring.append.done");
        *position = at;
        if (how != SB_APPEND_BARE && at + 1 - shared >= ((how & SB_APPEND_LAZILY) != 0 ? 8u : 1u)) {
          sb_ring_advance(r->tail, shared, at + 1);
        }
        return SB_OK;
      }
    }
    if (!sb_cell_of(found, cache->gen)) { /* the page was retired and used again: look it up anew */
      *cache = SB_NO_LEAF;
      if (++strange > SB_MAX_STRANGE) return SB_CORRUPT;
    } else if (sb_cell_state(found) == SB_CELL_CLOSED || sb_cell_state(found) == SB_CELL_CLOSING) {
      *position = at;
      return SB_CLOSED_CELL;
    } else {
      at++;
    }
  }
}

/* ---- finishing and retiring ---- */

static bool all_done(const page_ref *p) {
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    if (p->height == 0) {
      uint64_t word = SB_LOAD(&((sb_leaf_shm *)(void *)p->page)->cells[i].word, SB_ACQUIRE);
      if (word != sb_cell_bare(SB_CELL_TOMBSTONE, p->gen)) {
        return false;
      }
    } else if (sb_link_state(SB_LOAD(&children(p)[i], SB_ACQUIRE)) != SB_LINK_DONE) {
      return false;
    }
  }
  return true;
}

static void try_retire(sb_connection *c, const sb_ring *r, page_ref p) {
  for (;;) {
    page_ref parent;
    unsigned skip = 0;
    if (!all_done(&p) || !still(c->b, &p) || descend(c->b, NULL, r, p.first, p.height + 1, &parent, &skip) != SB_OK) {
      return; /* a root stays until it gets a parent; whoever grows the tree looks at it again */
    }
    sb_word *link = &children(&parent)[index_at(parent.height, p.first)];
    uint64_t word = sb_link_word(p.height, p.slot, p.gen);
    sb_holding_set(c->b, c->page_token, sb_holding_what(SB_HOLD_PAGE, p.slot, p.gen), p.first);
    if (!SB_CAS(link, &word, SB_LINK_DONE, SB_SEQ_CST)) {
      return;
    }
    SB_CRASHPOINT("ring.page.unlinked");
    uint64_t bit = UINT64_C(1) << index_at(parent.height, p.first);
    uint64_t before = SB_OR(&parent.page->done, bit, SB_SEQ_CST);
    (void)sb_slab_free_gen(c->b, p.slot, p.gen);
    if ((before | bit) != ~UINT64_C(0)) {
      return;
    }
    p = parent;
  }
}

#define BYTES UINT64_C(0x0101010101010101)

/* How many of the eight cells of that word are not marked finished. */
static unsigned unfinished_of(const sb_leaf_shm *leaf, unsigned word) {
  uint64_t missing = BYTES & ~SB_LOAD(&leaf->finished[word], SB_RELAXED);
  return (unsigned)((missing * BYTES) >> 56); /* the sum of its bytes */
}

/* The same of the whole leaf; stops counting behind `enough`. */
static unsigned unfinished(const sb_leaf_shm *leaf, unsigned enough) {
  unsigned n = 0;
  for (unsigned w = 0; w < SB_PAGE_CELLS / 8 && n <= enough; w++) {
    n += unfinished_of(leaf, w);
  }
  return n;
}

/* Marks a cell finished; the last one retires the page. Of two that finish last at the same time, each stores and then
 * looks: close to the end the look comes after a seq_cst operation, so at least one of them sees all. Should more finish
 * at one time than "close" allows for, the page stays until the next sweep. */
void sb_ring_redo(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position) {
  unsigned index = (unsigned)(position % SB_PAGE_CELLS);
  _Atomic uint8_t *byte = (_Atomic uint8_t *)(void *)ref->leaf->finished + index;
  SB_STORE(byte, 1, SB_RELEASE);
  if (unfinished_of(ref->leaf, index / 8) > 3 || unfinished(ref->leaf, 8) > 8) {
    return;
  }
  (void)SB_OR(&ref->leaf->page.done, UINT64_C(1) << index, SB_SEQ_CST);
  if (unfinished(ref->leaf, 0) == 0) {
    (void)SB_OR(&ref->leaf->page.done, ~UINT64_C(0), SB_SEQ_CST); /* so that whoever makes the root's parent knows */
    try_retire(c, r, (page_ref){&ref->leaf->page, ref->gen, ref->first, ref->slot, 0});
  }
}

void sb_ring_sweep(sb_connection *c, const sb_ring *r) {
  sb_leaf_ref ref;
  uint64_t at = 0;
  while (sb_ring_next_leaf(c->b, r, at, &ref, &at)) {
    if (unfinished(ref.leaf, 0) == 0) {
      try_retire(c, r, (page_ref){&ref.leaf->page, ref.gen, ref.first, ref.slot, 0});
    }
    at = ref.first + SB_PAGE_CELLS;
  }
}

void sb_ring_finish(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position) {
  SB_STORE(&sb_leaf_cell(ref, position)->word, sb_cell_bare(SB_CELL_TOMBSTONE, ref->gen), SB_RELEASE);
  SB_CRASHPOINT("ring.tombstone");
  sb_ring_redo(c, r, ref, position);
}

bool sb_ring_drop(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref, uint64_t position, uint64_t word) {
  if (!SB_CAS(&sb_leaf_cell(ref, position)->word, &word, sb_cell_bare(SB_CELL_TOMBSTONE, ref->gen), SB_ACQ_REL)) {
    return false;
  }
  sb_ring_redo(c, r, ref, position);
  return true;
}

bool sb_ring_links(sb_broker *b, const sb_ring *r, uint32_t slot, uint64_t gen) {
  sb_page_shm *page = sb_slot_at(b, slot);
  unsigned height = SB_LOAD(&page->ring, SB_RELAXED) >> 8, skip = 0;
  page_ref p;
  return height <= 10 && descend(b, NULL, r, SB_LOAD(&page->first, SB_RELAXED), height, &p, &skip) == SB_OK &&
         p.slot == slot && p.gen == gen;
}

void sb_ring_settle_page(sb_connection *c, const sb_ring *r, uint32_t slot, uint64_t gen) {
  sb_page_shm *page = sb_slot_at(c->b, slot);
  page_ref p = {page, gen, SB_LOAD(&page->first, SB_RELAXED), slot, SB_LOAD(&page->ring, SB_RELAXED) >> 8};
  if (sb_ring_links(c->b, r, slot, gen)) {
    if (SB_LOAD(&page->done, SB_SEQ_CST) == ~UINT64_C(0)) {
      try_retire(c, r, p);
    }
    return;
  }
  page_ref parent;
  unsigned skip = 0;
  if (sb_slab_free_gen(c->b, slot, gen) && descend(c->b, NULL, r, p.first, p.height + 1, &parent, &skip) == SB_OK) {
    uint64_t bit = UINT64_C(1) << index_at(parent.height, p.first);
    if (sb_link_state(SB_LOAD(&children(&parent)[index_at(parent.height, p.first)], SB_ACQUIRE)) == SB_LINK_DONE &&
        (SB_OR(&parent.page->done, bit, SB_SEQ_CST) | bit) == ~UINT64_C(0)) {
      try_retire(c, r, parent);
    }
  }
}

static void destroy(sb_connection *c, uint64_t link, uint64_t position) {
  page_ref p;
  if (!page_of(c->b, link, position, &p)) {
    return;
  }
  for (unsigned i = 0; p.height > 0 && i < SB_PAGE_CELLS; i++) {
    uint64_t child = SB_LOAD(&children(&p)[i], SB_ACQUIRE);
    if (sb_link_state(child) == SB_LINK_PAGE) {
      destroy(c, child, p.first + ((uint64_t)i << (6 * p.height)));
      SB_STORE(&children(&p)[i], SB_LINK_DONE, SB_RELEASE);
    }
  }
  for (unsigned i = 0; p.height == 0 && i < SB_PAGE_CELLS;
       i++) { /* a stalled append must not find its FREE cell again */
    SB_STORE(&((sb_leaf_shm *)(void *)p.page)->cells[i].word, sb_cell_bare(SB_CELL_TOMBSTONE, p.gen), SB_RELEASE);
  }
  (void)sb_slab_free_gen(c->b, p.slot, p.gen);
}

void sb_ring_destroy(sb_connection *c, const sb_ring *r) {
  uint64_t tail = sb_ring_exact_tail(c->b, r), root = SB_LOAD(r->root, SB_ACQUIRE);
  uint64_t base = (tail / SB_PAGE_CELLS + 1) * SB_PAGE_CELLS; /* I4: positions go on behind everything ever used */
  destroy(c, root, 0);
  SB_STORE(r->base, base, SB_RELAXED);
  SB_STORE(r->tail, base, SB_RELAXED);
  SB_STORE(r->head, base, SB_RELAXED);
  SB_STORE(r->root, sb_link_empty(base / SB_PAGE_CELLS), SB_RELEASE);
}

/* ---- returned bits ---- */

void sb_ring_mark_returned(sb_broker *b, const sb_ring *r, uint64_t position) {
  uint64_t root;
  do {
    root = SB_LOAD(r->root, SB_SEQ_CST);
    page_ref p;
    unsigned skip = 0;
    for (unsigned height = 0; height <= sb_link_height(root) && height <= 10; height++) {
      if (descend(b, NULL, r, position, height, &p, &skip) != SB_OK) {
        break;
      }
      (void)SB_OR(&p.page->returned, UINT64_C(1) << index_at(height, position), SB_SEQ_CST); /* P5 */
    }
  } while (SB_LOAD(r->root, SB_SEQ_CST) != root);
  SB_STORE(r->returned, 1, SB_SEQ_CST);
}

bool sb_ring_is_marked(sb_broker *b, const sb_ring *r, uint64_t position) {
  uint64_t root = SB_LOAD(r->root, SB_SEQ_CST);
  page_ref p;
  unsigned skip = 0;
  for (unsigned height = 0; height <= sb_link_height(root) && height <= 10; height++) {
    if (descend(b, NULL, r, position, height, &p, &skip) != SB_OK ||
        (SB_LOAD(&p.page->returned, SB_SEQ_CST) >> index_at(height, position) & 1) == 0) {
      return false;
    }
  }
  return SB_LOAD(r->returned, SB_SEQ_CST) != 0;
}

static void clear_bit(sb_broker *b, const page_ref *p, unsigned index) {
  (void)SB_AND(&p->page->returned, ~(UINT64_C(1) << index), SB_SEQ_CST); /* P5: cleared before the second look */
  if (!still(b, p)) { /* the page is another one by now: give back the bit we may have stolen */
    (void)SB_OR(&p->page->returned, UINT64_C(1) << index, SB_SEQ_CST);
  }
}

void sb_ring_clear_returned(sb_broker *b, const sb_leaf_ref *ref, uint64_t position) {
  page_ref p = {&ref->leaf->page, ref->gen, ref->first, ref->slot, 0};
  clear_bit(b, &p, (unsigned)(position % SB_PAGE_CELLS));
}

static bool search(sb_broker *b, const page_ref *p, uint64_t from, uint64_t *position) {
  uint64_t mask = SB_LOAD(&p->page->returned, SB_SEQ_CST);
  uint64_t span = UINT64_C(1) << (6 * p->height);
  if (!still(b, p)) {
    return false;
  }
  for (; mask != 0; mask &= mask - 1) {
    unsigned i = (unsigned)__builtin_ctzll(mask);
    uint64_t first = p->first + i * span;
    if (first + (span - 1) < from) {
      continue;
    }
    if (p->height == 0) {
      *position = first;
      return true;
    }
    page_ref child;
    uint64_t link = SB_LOAD(&children(p)[i], SB_ACQUIRE);
    bool exists =
        sb_link_state(link) == SB_LINK_PAGE && page_of(b, link, first, &child) && child.height + 1 == p->height;
    if (exists && search(b, &child, from, position)) {
      return true;
    }
    if (!exists || (first >= from && SB_LOAD(&child.page->returned, SB_SEQ_CST) == 0)) {
      clear_bit(b, p, i);
      if (exists && SB_LOAD(&child.page->returned, SB_SEQ_CST) != 0) {
        (void)SB_OR(&p->page->returned, UINT64_C(1) << i, SB_SEQ_CST);
      }
    }
  }
  return false;
}

bool sb_ring_next_returned(sb_broker *b, const sb_ring *r, uint64_t from, uint64_t *position) {
  if (SB_LOAD(r->returned, SB_SEQ_CST) == 0) {
    return false;
  }
  page_ref root;
  uint64_t link = SB_LOAD(r->root, SB_SEQ_CST);
  if (!page_of(b, link, 0, &root)) {
    return false;
  }
  if (search(b, &root, from, position)) {
    return true;
  }
  if (from == 0 && SB_LOAD(&root.page->returned, SB_SEQ_CST) == 0) {
    SB_STORE(r->returned, 0, SB_SEQ_CST);
    if (SB_LOAD(r->root, SB_SEQ_CST) != link || SB_LOAD(&root.page->returned, SB_SEQ_CST) != 0) {
      SB_STORE(r->returned, 1, SB_SEQ_CST);
    }
  }
  return false;
}

/* ---- finding rings ---- */

static sb_ring view(sb_ring_shm *r, uint32_t object, uint32_t id) {
  return (sb_ring){&r->root, &r->tail, &r->head, &r->base, NULL, object, id};
}

bool sb_ring_open(sb_broker *b, uint32_t object, uint32_t id, sb_ring *r) {
  if (id == SB_RING_MEMORY) {
    sb_header_shm *h = b->header;
    *r = (sb_ring){&h->memory_root, &h->memory_tail, &h->memory_head, &h->memory_base, NULL, 0, id};
    return object == 0;
  }
  if (id == SB_RING_INTERESTED || id == SB_RING_NOTIFIED) {
    sb_level_shm *level = sb_slab_object(b, object, SB_KIND_LEVEL);
    if (level == NULL) {
      return false;
    }
    *r = view(id == SB_RING_INTERESTED ? &level->interested : &level->notified, object, id);
    return true;
  }
  sb_queue_shm *q = sb_slab_object(b, object, SB_KIND_QUEUE);
  if (q == NULL) {
    return false;
  }
  switch (id) {
    case SB_RING_CELLS: *r = (sb_ring){&q->root, &q->tail, &q->head, &q->base, &q->returned, object, id}; return true;
    case SB_RING_ALL: *r = view(&q->all, object, id); return true;
    case SB_RING_NON_ACQUIRING: *r = view(&q->non_acquiring_list, object, id); return true;
    case SB_RING_NOT_INTERESTED: *r = view(&q->not_interested_list, object, id); return true;
    case SB_RING_ROOM: *r = view(&q->room, object, id); return true;
    case SB_RING_SCHEDULE: *r = view(&q->schedule, object, id); return true;
    default: return false;
  }
}
