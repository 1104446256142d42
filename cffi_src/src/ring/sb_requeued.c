// SPDX-License-Identifier: Apache-2.0
#include "sb_requeued.h"

#include "sb_paged.h"

/* True if the leaf, of which the caller has just set a bit, does not leave the memory. Then the bit is found (P45 of sb_paged.h). */
static bool stays(sb_broker *b, const sb_ring *r, const sb_page_ref *p) {
  uint64_t paging = SB_LOAD(&p->page->paging, SB_SEQ_CST);
  sb_leaf_ref leaf = {(sb_leaf_shm *)(void *)p->page, p->first, p->gen, p->slot};
  bool leaves = paging == SB_PAGING_LEAVING || paging == SB_PAGING_LEFT || paging == SB_PAGING_EMPTYING;
  return leaves ? sb_paged_stay(b, r, &leaf) : sb_page_is_current(b, p);
}

/* Sets the bits of a position, from the page of height `lowest` up to the root, then the flag of the queue. `cells`: those
 * of its leaf, if that is the lowest page. */
static void mark_from(sb_broker *b, const sb_ring *r, uint64_t position, unsigned lowest, uint64_t cells) {
  uint64_t root;
  bool again;
  do {
    root = SB_LOAD(r->root, SB_SEQ_CST);
    again = false;
    sb_page_ref p;
    unsigned skip = 0;
    for (unsigned height = lowest; height <= sb_link_height(root) && height <= SB_MAX_HEIGHT; height++) {
      sb_status status = sb_page_descend(b, NULL, r, position, height, &p, &skip);
      if (status == SB_PAGED && height == 0) {
        again = !sb_paged_mark(b, r, position); /* I128 of sb_paged.h */
        continue;
      }
      if (status != SB_OK) {
        break;
      }
      uint64_t bits = height == 0 ? cells : UINT64_C(1) << sb_page_index(height, position);
      (void)SB_OR(&p.page->requeued, bits, SB_SEQ_CST); /* P5 */
      again = again || (height == 0 && r->changed != NULL && !stays(b, r, &p));
    }
  } while (again || SB_LOAD(r->root, SB_SEQ_CST) != root);
  SB_STORE(r->requeued, 1, SB_SEQ_CST);
  sb_lanes_mark(r);
  sb_requeued_returned(r); /* the cell may be AVAILABLE already: a reader that missed its bits looks again */
}

void sb_requeued_mark(sb_broker *b, const sb_ring *r, uint64_t position) {
  mark_from(b, r, position, 0, UINT64_C(1) << position % SB_PAGE_CELLS);
}

void sb_requeued_mark_leaf(sb_broker *b, const sb_ring *r, uint64_t position) {
  mark_from(b, r, position, 0, ~UINT64_C(0));
}

bool sb_requeued_is_marked(sb_broker *b, const sb_ring *r, uint64_t position) {
  uint64_t root = SB_LOAD(r->root, SB_SEQ_CST);
  sb_page_ref p;
  unsigned skip = 0;
  for (unsigned height = 0; height <= sb_link_height(root) && height <= SB_MAX_HEIGHT; height++) {
    sb_status status = sb_page_descend(b, NULL, r, position, height, &p, &skip);
    uint64_t link;
    if (status == SB_PAGED && height == 0 && sb_paged_is_at(b, r, position, &link) && (link & SB_LINK_MARKED) != 0) {
      continue;
    }
    if (status != SB_OK || (SB_LOAD(&p.page->requeued, SB_SEQ_CST) >> sb_page_index(height, position) & 1) == 0) {
      return false;
    }
  }
  return SB_LOAD(r->requeued, SB_SEQ_CST) != 0 && sb_lanes_is_marked(r);
}

/* Finds the pages from the root down to leaf `ref`, and stores them in *way, unless *way leads to that leaf already.
 * False: the leaf is gone. */
static bool find_way(sb_broker *b, const sb_ring *r, const sb_leaf_ref *ref, sb_requeued_way *way) {
  uint64_t root = SB_LOAD(r->root, SB_SEQ_CST), link = root;
  if (way->leaf.leaf == ref->leaf && way->leaf.gen == ref->gen && way->root == root) {
    return true;
  }
  *way = (sb_requeued_way){.root = root, .leaf = SB_NO_LEAF};
  for (unsigned height = sb_link_height(root); height <= SB_MAX_HEIGHT; height--) {
    sb_page_ref p;
    if (!sb_page_of(b, link, ref->first, &p) || p.height != height) {
      break;
    }
    way->pages[height] = p.page;
    if (height == 0) {
      if (p.slot == ref->slot && p.gen == ref->gen) way->leaf = *ref;
      break;
    }
    link = SB_LOAD(&sb_page_children(&p)[sb_page_index(height, ref->first)], SB_ACQUIRE);
  }
  return way->leaf.leaf != NULL;
}

void sb_requeued_mark_owned(sb_broker *b, sb_lane *lane, const sb_leaf_ref *ref, uint64_t position) {
  const sb_ring *r = &lane->ring;
  sb_requeued_way *way = &lane->way;
  if (!find_way(b, r, ref, way)) {
    sb_requeued_mark(b, r, position);
    return;
  }
  for (unsigned height = 0; height <= sb_link_height(way->root); height++) {
    sb_word *bits = &way->pages[height]->requeued;
    uint64_t bit = UINT64_C(1) << sb_page_index(height, position);
    if ((SB_LOAD(bits, SB_SEQ_CST) & bit) == 0) (void)SB_OR(bits, bit, SB_SEQ_CST); /* P5 */
  }
  if (SB_LOAD(r->requeued, SB_SEQ_CST) == 0) SB_STORE(r->requeued, 1, SB_SEQ_CST);
  sb_lanes_mark(r);
}

/* Does not check whether pages of the way (the pages from the root to the leaf) serve other positions by now: they can
 * do so only after the cell was finished, and for a finished cell the result has no effect. Another process may put a
 * new root above the old one during the call. That root has the bit that leads to the old one from the start. */
bool sb_requeued_stays_marked(sb_broker *b, const sb_lane *lane, uint64_t position) {
  const sb_ring *r = &lane->ring;
  const sb_requeued_way *way = &lane->way;
  if (way->leaf.leaf == NULL || SB_LOAD(r->root, SB_SEQ_CST) != way->root) {
    return sb_requeued_is_marked(b, r, position);
  }
  for (unsigned height = 0; height <= sb_link_height(way->root); height++) {
    if ((SB_LOAD(&way->pages[height]->requeued, SB_SEQ_CST) >> sb_page_index(height, position) & 1) == 0) {
      return false;
    }
  }
  return SB_LOAD(r->requeued, SB_SEQ_CST) != 0 && sb_lanes_is_marked(r);
}

static void clear_bit(sb_broker *b, const sb_page_ref *p, unsigned index) {
  uint64_t bit = UINT64_C(1) << index;
  uint64_t before = SB_AND(&p->page->requeued, ~bit, SB_SEQ_CST); /* P5: cleared before the second look */
  sb_ring other;
  if ((before & bit) != 0 && !sb_page_is_current(b, p)) { /* reused: the bit may be of another ring; set it again */
    uint32_t ring = SB_LOAD(&p->page->ring, SB_RELAXED);
    (void)SB_OR(&p->page->requeued, bit, SB_SEQ_CST);
    if (sb_ring_open(b, SB_LOAD(&p->page->object, SB_RELAXED), ring & 0xffu, &other) && other.requeued != NULL) {
      mark_from(b, &other, SB_LOAD(&p->page->first, SB_RELAXED), ring >> 8, 0);
    }
  }
}

void sb_requeued_clear(sb_broker *b, const sb_leaf_ref *ref, uint64_t position) {
  sb_page_ref p = {&ref->leaf->page, ref->gen, ref->first, ref->slot, 0};
  clear_bit(b, &p, (unsigned)(position % SB_PAGE_CELLS));
}

/* A relaxed load suffices: the bit was set before the flip, and the caller's CAS has seen the flip (P5). The caller
 * owns the cell now: no other process makes it AVAILABLE, and its leaf is not freed. */
void sb_requeued_took(const sb_leaf_ref *ref, uint64_t position) {
  sb_word *bits = &ref->leaf->page.requeued;
  uint64_t bit = UINT64_C(1) << (position % SB_PAGE_CELLS);
  if ((SB_LOAD(bits, SB_RELAXED) & bit) != 0) {
    (void)SB_AND(bits, ~bit, SB_SEQ_CST);
    SB_CRASHPOINT("queue.take.unmarked");
  }
}

/* Finds the lowest position >= `from` with a bit below page `p`, and its leaf; clears bits that lead to nothing. *again
 * becomes true if the call cleared a bit, and set it again (I41): the caller then searches once more. */
static bool search(sb_broker *b, const sb_ring *r, const sb_page_ref *p, uint64_t from, sb_leaf_ref *ref,
                   uint64_t *position, bool *again) {
  uint64_t mask = SB_LOAD(&p->page->requeued, SB_SEQ_CST);
  uint64_t span = UINT64_C(1) << (6 * p->height);
  if (!sb_page_is_current(b, p)) {
    return false;
  }
  for (; mask != 0; mask &= mask - 1) {
    unsigned i = (unsigned)__builtin_ctzll(mask);
    uint64_t first = p->first + i * span;
    if (first + (span - 1) < from) {
      continue;
    }
    if (p->height == 0) {
      *ref = (sb_leaf_ref){(sb_leaf_shm *)(void *)p->page, p->first, p->gen, p->slot};
      *position = first;
      return true;
    }
    sb_page_ref child;
    uint64_t link = SB_LOAD(&sb_page_children(p)[i], SB_ACQUIRE);
    bool exists =
        sb_link_state(link) == SB_LINK_PAGE && sb_page_of(b, link, first, &child) && child.height + 1 == p->height;
    if (exists && search(b, r, &child, from, ref, position, again)) {
      return true;
    }
    if (sb_link_state(link) == SB_LINK_PAGED && (link & SB_LINK_MARKED) != 0) {
      *ref = SB_NO_LEAF;
      *position = first > from ? first : from;
      return true;
    }
    if (!exists || (first >= from && SB_LOAD(&child.page->requeued, SB_SEQ_CST) == 0)) {
      clear_bit(b, p, i);
      /* a link that changed may lead to a child that was created meanwhile, that has left the memory, or came back */
      bool changed = SB_LOAD(&sb_page_children(p)[i], SB_SEQ_CST) != link;
      if (changed && r->changed != NULL && p->height == 1) {
        sb_requeued_mark_leaf(b, r, first); /* I128 of sb_paged.h */
        *again = true;
      } else if (changed || (exists && SB_LOAD(&child.page->requeued, SB_SEQ_CST) != 0)) {
        mark_from(b, r, first, p->height, 0);
        *again = true;
      }
    }
  }
  return false;
}

/* True if the lowest bit of the ring is in the leaf that the way leads to, and `from` is not after the leaf's first
 * position; *position: the position of that bit. */
static bool follow(sb_broker *b, const sb_ring *r, uint64_t from, const sb_requeued_way *way, uint64_t *position) {
  const sb_leaf_ref *leaf = &way->leaf;
  if (leaf->leaf == NULL || from > leaf->first || SB_LOAD(r->root, SB_SEQ_CST) != way->root) {
    return false;
  }
  for (unsigned height = sb_link_height(way->root); height > 0; height--) {
    uint64_t bits = SB_LOAD(&way->pages[height]->requeued, SB_SEQ_CST);
    if (bits == 0 || (unsigned)__builtin_ctzll(bits) != sb_page_index(height, leaf->first)) {
      return false;
    }
  }
  uint64_t bits = SB_LOAD(&way->pages[0]->requeued, SB_SEQ_CST);
  if (bits == 0 || sb_slot_gen(SB_LOAD(sb_slot_header(b, leaf->slot), SB_ACQUIRE)) != leaf->gen) {
    return false;
  }
  *position = leaf->first + (unsigned)__builtin_ctzll(bits);
  return true;
}

bool sb_requeued_next(sb_broker *b, const sb_ring *r, uint64_t from, sb_leaf_ref *ref, uint64_t *position) {
  for (bool again = true; again && SB_LOAD(r->requeued, SB_SEQ_CST) != 0;) {
    sb_page_ref root;
    uint64_t link = SB_LOAD(r->root, SB_SEQ_CST);
    if (!sb_page_root(b, link, &root)) {
      return false;
    }
    again = false;
    if (search(b, r, &root, from, ref, position, &again)) {
      return true;
    }
    if (from == 0 && SB_LOAD(&root.page->requeued, SB_SEQ_CST) == 0) {
      SB_STORE(r->requeued, 0, SB_SEQ_CST);
      if (SB_LOAD(r->root, SB_SEQ_CST) != link || SB_LOAD(&root.page->requeued, SB_SEQ_CST) != 0) {
        SB_STORE(r->requeued, 1, SB_SEQ_CST);
        sb_requeued_returned(r);
        sb_lanes_mark(r); /* while the flag was 0, another searcher may have found nothing, and cleared the ready bit */
        again = true;
      }
    }
  }
  return false;
}

bool sb_requeued_next_near(sb_broker *b, sb_lane *lane, uint64_t from, sb_leaf_ref *ref, uint64_t *position) {
  const sb_ring *r = &lane->ring;
  sb_requeued_way *way = &lane->way;
  if (follow(b, r, from, way, position)) {
    *ref = way->leaf;
    return true;
  }
  bool found = sb_requeued_next(b, r, from, ref, position);
  if (found) (void)find_way(b, r, ref, way);
  return found;
}
