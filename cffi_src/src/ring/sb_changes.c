// SPDX-License-Identifier: Apache-2.0
#include "sb_changes.h"

/* ENDED: the page was retired meanwhile, so all messages below it have ended. */
typedef enum { VISITED, STOPPED, ENDED } outcome;

typedef struct {
  sb_broker *b;
  const sb_ring *ring;
  bool all;
  sb_changes_visitor *visit;
  void *with;
  sb_changes_part part;
} walk;

/* Clears bits of a page. If the page serves another ring by now, the bits may be those of that ring: sets them again. */
static void clear(const walk *w, const sb_page_ref *p, uint64_t bits) {
  uint64_t before = SB_AND(&p->page->changed, ~bits, SB_SEQ_CST); /* P41: cleared before the look */
  SB_CRASHPOINT("changed.cleared");
  if ((before & bits) == 0 || sb_page_is_current(w->b, p)) {
    return;
  }
  sb_ring other;
  uint32_t ring = SB_LOAD(&p->page->ring, SB_RELAXED);
  (void)SB_OR(&p->page->changed, before & bits, SB_SEQ_CST);
  if (sb_ring_open(w->b, SB_LOAD(&p->page->object, SB_RELAXED), ring & 0xffu, &other) && other.changed != NULL) {
    sb_changed_mark(w->b, &other, SB_LOAD(&p->page->first, SB_RELAXED), 0);
  }
}

static outcome show(walk *w) {
  if (w->visit(w->with, &w->part)) {
    return VISITED;
  }
  sb_changed_mark(w->b, w->ring, w->part.first, w->part.cells);
  return STOPPED;
}

static outcome visit_ended(walk *w, uint64_t first, uint64_t span) {
  w->part.first = first;
  w->part.span = span;
  w->part.cells = 0;
  w->part.leaf = SB_NO_LEAF;
  return show(w);
}

static outcome visit_leaf(walk *w, const sb_page_ref *p) {
  sb_changes_part *part = &w->part;
  part->cells = w->all ? ~UINT64_C(0) : SB_LOAD(&p->page->changed, SB_SEQ_CST);
  clear(w, p, part->cells);
  part->first = p->first;
  part->span = SB_PAGE_CELLS;
  part->leaf = (sb_leaf_ref){(sb_leaf_shm *)(void *)p->page, p->first, p->gen, p->slot};
  for (uint64_t cells = part->cells; cells != 0; cells &= cells - 1) {
    unsigned i = (unsigned)__builtin_ctzll(cells);
    part->words[i] = SB_LOAD(&part->leaf.leaf->cells[i].word, SB_SEQ_CST); /* P41 */
    part->sides[i] = SB_LOAD(&part->leaf.leaf->cells[i].side, SB_SEQ_CST);
  }
  if (!sb_page_is_current(w->b, p)) {
    return ENDED;
  }
  return part->cells != 0 ? show(w) : VISITED;
}

static outcome visit_page(walk *w, const sb_page_ref *p);

/* Visits what link i of page p leads to. The link may change meanwhile: to DONE, and to PAGED and back, if a reaper ends the
 * departure of a leaf (sb_paged.h). What has left the memory has not ended. */
static outcome visit_child(walk *w, const sb_page_ref *p, unsigned i) {
  uint64_t first = p->first + ((uint64_t)i << (6 * p->height));
  for (unsigned retries = 0; retries < SB_MAX_RETRIES; retries++) {
    uint64_t link = SB_LOAD(&sb_page_children(p)[i], SB_SEQ_CST);
    sb_page_ref child;
    if (!sb_page_is_current(w->b, p)) {
      return ENDED;
    }
    if (sb_link_state(link) != SB_LINK_PAGE) {
      return sb_link_state(link) == SB_LINK_DONE ? ENDED : VISITED;
    }
    outcome o = VISITED;
    if (sb_page_of(w->b, link, first, &child) && child.height + 1 == p->height) {
      o = child.height == 0 ? visit_leaf(w, &child) : visit_page(w, &child);
      if (o != ENDED) return o;
    }
    if (SB_LOAD(&sb_page_children(p)[i], SB_SEQ_CST) == link) return o;
  }
  return VISITED;
}

static outcome visit_page(walk *w, const sb_page_ref *p) {
  uint64_t span = UINT64_C(1) << (6 * p->height);
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    uint64_t bit = UINT64_C(1) << i;
    bool marked = (SB_LOAD(&p->page->changed, SB_SEQ_CST) & bit) != 0;
    if (!marked && !w->all) {
      continue;
    }
    clear(w, p, bit);
    outcome o = visit_child(w, p, i);
    if (o == ENDED && !sb_page_is_current(w->b, p)) {
      return ENDED;
    }
    if (o == ENDED) o = visit_ended(w, p->first + i * span, span);
    if (o == STOPPED) {
      return o;
    }
  }
  return VISITED;
}

bool sb_changes_visit(sb_broker *b, const sb_ring *r, bool all, sb_changes_visitor *visit, void *with) {
  walk w = {.b = b, .ring = r, .all = all, .visit = visit, .with = with};
  sb_page_ref root;
  if (SB_SWAP(r->changed, 0, SB_SEQ_CST) == 0 && !all) { /* P41 */
    return true;
  }
  for (unsigned retries = 0; retries < SB_MAX_RETRIES; retries++) {
    uint64_t link = SB_LOAD(r->root, SB_SEQ_CST);
    if (sb_link_state(link) == SB_LINK_EMPTY) {
      return true;
    }
    if (!sb_page_root(b, link, &root)) {
      continue; /* a root is not retired: another root lies above it, or it is damaged */
    }
    outcome o = root.height == 0 ? visit_leaf(&w, &root) : visit_page(&w, &root);
    if (SB_LOAD(r->root, SB_SEQ_CST) == link) {
      return o != STOPPED;
    }
    if (o == STOPPED) {
      return false;
    }
  }
  return true;
}
