// SPDX-License-Identifier: Apache-2.0
/* The doctor's walk through the pages of a ring. */
#include "sb_check.h"

#define HIGHEST 10u

/* Values of `which` in a finding; the comment after each enum names the code of the finding. */
enum { LINK, KIND, FREED, FIRST, GENERATION, TWICE }; /* SB_BAD_PAGE */
enum { HOLE, TAIL, HEAD, BASE };                      /* SB_BAD_TAIL */

typedef struct {
  sb_checkup *k;
  sb_ring ring;
  uint32_t queue;
  sb_check_visitor visit;
  void *context;
  uint64_t end;
  bool ended, sound;
} walk;

static void broken(walk *w, unsigned code, unsigned what, uint32_t slot, uint64_t where, uint64_t found,
                   uint64_t expected) {
  w->sound = false;
  sb_check_found(w->k, (sb_finding){code, w->queue, slot, what, w->ring.id, where, found, expected});
}

/* Notes that the positions from `first` to `end` - 1 are filled. Reports a hole if an earlier position is free. */
static void filled(walk *w, uint64_t first, uint64_t end) {
  if (w->ended) {
    broken(w, SB_BAD_TAIL, HOLE, 0, first, w->end, 0);
    w->ended = false;
  }
  w->end = end > w->end ? end : w->end;
}

static void walk_leaf(walk *w, const sb_leaf_shm *leaf, uint64_t gen, uint64_t first, bool marked) {
  uint64_t requeued = SB_LOAD(&leaf->page.requeued, SB_ACQUIRE);
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    const sb_cell_shm *cell = &leaf->cells[i];
    uint64_t word = SB_LOAD(&cell->word, SB_ACQUIRE);
    unsigned state = sb_cell_state(word);
    if (word == sb_cell_bare(SB_CELL_FREE, gen)) {
      w->ended = true;
      continue;
    }
    filled(w, first + i, first + i + 1);
    bool list = w->ring.id != SB_RING_CELLS && w->ring.id != SB_RING_LANE;
    bool known = list ? state == SB_CELL_ENTRY || state == SB_CELL_TOMBSTONE
                      : (state >= SB_CELL_AVAILABLE && state <= SB_CELL_CLOSED) ||
                            (state == SB_CELL_FROZEN && w->ring.changed != NULL);
    if (!known || !sb_cell_of(word, gen)) {
      broken(w, SB_BAD_CELL, 0, 0, first + i, word, gen);
    } else {
      sb_check_cell visited = {cell, word, first + i, marked && (requeued >> i & 1) != 0};
      w->visit(w->k, w->context, &visited);
    }
  }
}

/* Returns the page that a link names. NULL, with a finding: it is not the page for `height` and `first`, or a walk has
 * reached the page before. */
static sb_inner_shm *page_at(walk *w, uint64_t link, unsigned height, uint64_t first) {
  uint32_t slot = sb_link_slot(link);
  unsigned kind = sb_page_kind(w->k->b, &w->ring, height), is = sb_check_kind(w->k, slot);
  if (sb_link_height(link) != height || is != kind) {
    broken(w, SB_BAD_PAGE, sb_link_height(link) != height ? LINK : KIND, slot, first, is, kind);
    return NULL;
  }
  uint64_t header = sb_check_header(w->k, slot);
  if (sb_slot_state(header) == SB_SLOT_FREE) {
    broken(w, SB_BAD_PAGE, FREED, slot, first, header, 0);
    return NULL;
  }
  if ((sb_slot_gen(header) & 0x3fffffffu) != sb_link_gen(link)) {
    broken(w, SB_BAD_PAGE, GENERATION, slot, first, sb_link_gen(link), sb_slot_gen(header) & 0x3fffffffu);
    return NULL;
  }
  sb_inner_shm *page = sb_slot_at(w->k->b, slot);
  uint64_t own = SB_LOAD(&page->page.first, SB_RELAXED);
  if (SB_LOAD(&page->page.object, SB_RELAXED) != w->ring.object ||
      SB_LOAD(&page->page.ring, SB_RELAXED) != (w->ring.id | height << 8) || own != first) {
    broken(w, SB_BAD_PAGE, FIRST, slot, first, own, first);
    return NULL;
  }
  if ((w->k->seen[slot] & 1u) != 0) {
    broken(w, SB_BAD_PAGE, TWICE, slot, first, 0, 0);
    return NULL;
  }
  w->k->seen[slot] |= 1u;
  return page;
}

static void walk_page(walk *w, uint64_t link, unsigned height, uint64_t first, bool marked) {
  sb_inner_shm *page = page_at(w, link, height, first);
  if (page == NULL) {
    return;
  }
  uint64_t gen = sb_slot_gen(sb_check_header(w->k, sb_link_slot(link)));
  if (height == 0) {
    walk_leaf(w, (const sb_leaf_shm *)(const void *)page, gen, first, marked);
    return;
  }
  uint64_t span = UINT64_C(1) << (6 * height), requeued = SB_LOAD(&page->page.requeued, SB_ACQUIRE);
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    uint64_t child = SB_LOAD(&page->children[i], SB_ACQUIRE), at = first + i * span;
    bool paged = w->ring.changed != NULL && height == 1 &&
                 (child & ~SB_LINK_MARKED) == sb_link_paged(gen, (uint32_t)(child >> 32));
    w->k->paged += paged;
    if (child == SB_LINK_DONE || paged) {
      filled(w, at, at + span);
    } else if (child == sb_link_empty(gen)) {
      w->ended = true;
    } else if (sb_link_state(child) == SB_LINK_PAGE) {
      walk_page(w, child, height - 1, at, marked && (requeued >> i & 1) != 0);
    } else {
      broken(w, SB_BAD_PAGE, LINK, 0, at, child, gen);
    }
  }
}

bool sb_check_ring(sb_checkup *k, uint32_t object, uint32_t id, uint32_t queue, sb_check_visitor visit, void *context,
                   uint64_t *end) {
  walk w = {.k = k, .queue = queue, .visit = visit, .context = context, .sound = true};
  *end = 0;
  if (!sb_ring_open(k->b, object, id, &w.ring)) {
    return false; /* the object was freed after the caller had checked its kind */
  }
  uint64_t base = SB_LOAD(w.ring.base, SB_RELAXED);
  w.end = SB_LOAD(w.ring.from, SB_RELAXED);
  uint64_t root = SB_LOAD(w.ring.root, SB_ACQUIRE);
  bool marked = w.ring.requeued != NULL && SB_LOAD(w.ring.requeued, SB_ACQUIRE) != 0;
  if (w.end % SB_PAGE_CELLS != 0 || w.end >> 60 != 0) {
    broken(&w, SB_BAD_TAIL, BASE, 0, 0, w.end, 0);
  } else if (base % SB_PAGE_CELLS != 0 || base > w.end) {
    broken(&w, SB_BAD_TAIL, BASE, 0, 0, base, w.end);
  } else if (sb_link_state(root) == SB_LINK_PAGE && sb_link_height(root) <= HIGHEST) {
    unsigned height = sb_link_height(root);
    walk_page(&w, root, height, sb_page_first(height, w.end), marked); /* the root covers the first position */
  } else if (sb_link_state(root) != SB_LINK_EMPTY) {
    broken(&w, SB_BAD_PAGE, LINK, 0, 0, root, 0);
  }
  uint64_t tail = SB_LOAD(w.ring.tail, SB_ACQUIRE), head = SB_LOAD(w.ring.head, SB_ACQUIRE);
  if (w.sound && tail > w.end) broken(&w, SB_BAD_TAIL, TAIL, 0, w.end, tail, w.end);
  if (w.sound && head > w.end) broken(&w, SB_BAD_TAIL, HEAD, 0, w.end, head, w.end);
  *end = w.end;
  return w.sound;
}
