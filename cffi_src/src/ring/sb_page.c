// SPDX-License-Identifier: Apache-2.0
#include "sb_page.h"

#include "sb_slab.h"

uint32_t sb_page_queue(sb_broker *b, const sb_ring *r) {
  if (r->id == SB_RING_LANE) {
    return SB_LOAD(&((sb_lane_shm *)sb_slot_at(b, r->object))->queue, SB_RELAXED);
  }
  return r->id == SB_RING_CELLS ? r->object : 0;
}

/* True for a ring of messages of a queue with SB_QUEUE_KEEPS. */
static bool keeps(sb_broker *b, const sb_ring *r) {
  uint32_t queue = sb_page_queue(b, r);
  const sb_queue_shm *q = queue != 0 ? sb_slab_queue(b, queue) : NULL;
  return q != NULL && (SB_LOAD(&q->flags, SB_RELAXED) & SB_QUEUE_KEEPS) != 0;
}

unsigned sb_page_kind(sb_broker *b, const sb_ring *r, unsigned height) {
  if (height != 0) {
    return SB_KIND_INNER;
  }
  return keeps(b, r) ? SB_KIND_LONG_LEAF : SB_KIND_LEAF;
}

static sb_page_shm *page_at(sb_broker *b, uint32_t slot, unsigned height) {
  if (height != 0) {
    return sb_slab_object(b, slot, SB_KIND_INNER);
  }
  sb_page_shm *leaf = sb_slab_object(b, slot, SB_KIND_LEAF);
  return leaf != NULL ? leaf : sb_slab_object(b, slot, SB_KIND_LONG_LEAF);
}

bool sb_page_of(sb_broker *b, uint64_t link, uint64_t position, sb_page_ref *p) {
  p->slot = sb_link_slot(link);
  p->height = sb_link_height(link);
  p->first = sb_page_first(p->height, position);
  p->page = sb_link_state(link) == SB_LINK_PAGE ? page_at(b, p->slot, p->height) : NULL;
  if (p->page == NULL || p->height > SB_MAX_HEIGHT) {
    return false;
  }
  uint64_t h = SB_LOAD(sb_slot_header(b, p->slot), SB_ACQUIRE); /* P4 acquire */
  p->gen = sb_slot_gen(h);
  return sb_slot_state(h) != SB_SLOT_FREE && (p->gen & 0x3fffffffu) == sb_link_gen(link);
}

bool sb_page_root(sb_broker *b, uint64_t link, sb_page_ref *p) {
  if (!sb_page_of(b, link, 0, p)) {
    return false;
  }
  /* where the word is damaged, too, this is the first position of a page of that height */
  p->first = sb_page_first(p->height, SB_LOAD(&p->page->first, SB_ACQUIRE));
  return sb_page_is_current(b, p); /* P4: then `first` is of this page */
}

/* ---- creating pages ---- */

static sb_status new_page(sb_connection *c, const sb_ring *r, unsigned height, uint64_t first, uint64_t *token,
                          sb_page_ref *p) {
  unsigned kind = sb_page_kind(c->b, r, height);
  sb_status status = sb_holding_object(c, kind, token, &p->slot, &p->gen);
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
  SB_STORE(&p->page->requeued, 0, SB_RELAXED);
  SB_STORE(&p->page->changed, 0, SB_RELAXED);
  SB_STORE(&p->page->paging, 0, SB_RELAXED);
  if (height == 0) {
    sb_leaf_shm *leaf = (sb_leaf_shm *)(void *)p->page;
    for (unsigned w = 0; w < SB_PAGE_CELLS / 8; w++) {
      SB_STORE(&leaf->finished[w], 0, SB_RELAXED);
    }
    for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
      SB_STORE(&leaf->cells[i].word, sb_cell_bare(SB_CELL_FREE, p->gen), SB_RELAXED);
      SB_STORE(&leaf->cells[i].side, 0, SB_RELAXED);
      if (kind == SB_KIND_LONG_LEAF) SB_STORE(&((sb_long_leaf_shm *)leaf)->origins[i], SB_NO_ORIGIN, SB_RELAXED);
    }
  } else {
    uint64_t from = SB_LOAD(r->from, SB_RELAXED), span = UINT64_C(1) << (6 * height), done = 0;
    for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
      bool before = first + (i + 1) * span <= from; /* the tree has no cells there (I4 of sb_layout.h) */
      done |= (uint64_t)before << i;
      SB_STORE(&sb_page_children(p)[i], before ? SB_LINK_DONE : sb_link_empty(p->gen), SB_RELAXED);
    }
    SB_STORE(&p->page->done, done, SB_RELAXED);
  }
  return SB_OK;
}

static void link_done(sb_connection *c, uint64_t token, const sb_page_ref *p) {
  uint64_t mine = sb_slot_word(SB_SLOT_ALLOC, c->id, p->gen);
  (void)SB_CAS(sb_slot_header(c->b, p->slot), &mine, sb_slot_word(SB_SLOT_PUBLISHED, 1, p->gen), SB_ACQ_REL);
  sb_holding_give(c, token);
}

/* Stores the link to the new page `p` in *link, if *link is still `expected`. False: *link had changed, so the function
 * freed the page. */
static bool link_page(sb_connection *c, sb_word *link, uint64_t expected, uint64_t token, const sb_page_ref *p) {
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

static sb_status grow(sb_connection *c, const sb_ring *r, uint64_t root, const sb_page_ref *old, uint64_t position) {
  uint64_t token;
  sb_page_ref fresh;
  if (sb_link_state(root) == SB_LINK_EMPTY) {
    uint64_t base = sb_link_base(root) * SB_PAGE_CELLS;
    unsigned height = 0;
    while (!sb_page_covers(height, base, position)) height++;
    sb_status status = new_page(c, r, height, sb_page_first(height, base), &token, &fresh);
    if (status == SB_OK) (void)link_page(c, r->root, root, token, &fresh);
    return status;
  }
  unsigned height = old->height + 1, index = sb_page_index(height, old->first);
  sb_status status = new_page(c, r, height, sb_page_first(height, old->first), &token, &fresh);
  if (status != SB_OK) {
    return status;
  }
  SB_STORE(&sb_page_children(&fresh)[index], root, SB_RELAXED);
  /* searches must look below the old root, which may have bits */
  SB_STORE(&fresh.page->requeued, UINT64_C(1) << index, SB_RELAXED);
  SB_STORE(&fresh.page->changed, UINT64_C(1) << index, SB_RELAXED);
  if (link_page(c, r->root, root, token, &fresh) && SB_LOAD(&old->page->done, SB_SEQ_CST) == ~UINT64_C(0)) {
    sb_page_retire(c, r, *old); /* the old root could not be retired while it had no parent */
  }
  return SB_OK;
}

/* ---- walking ---- */

sb_status sb_page_descend(sb_broker *b, sb_connection *c, const sb_ring *r, uint64_t position, unsigned height,
                          sb_page_ref *p, unsigned *skip) {
  if (position >> 60 != 0) {
    return SB_CORRUPT; /* no queue ever reaches such a position */
  }
  for (unsigned tries = 0; tries < 1000; tries++) {
    uint64_t root = SB_LOAD(r->root, SB_SEQ_CST);
    bool empty = sb_link_state(root) == SB_LINK_EMPTY;
    if (!empty && !sb_page_root(b, root, p)) {
      if (SB_LOAD(r->root, SB_SEQ_CST) == root) {
        return SB_CORRUPT;
      }
      continue;
    }
    if (!empty && position < p->first) { /* before the base of the ring, as if pages above the root had DONE links */
      for (*skip = p->height + 1; !sb_page_covers(*skip, p->first, position);) ++*skip;
      return SB_DONE;
    }
    if (empty || !sb_page_covers(p->height, p->first, position)) {
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
      sb_word *link = &sb_page_children(p)[sb_page_index(p->height, position)];
      /* P4 acquire; seq_cst for P3 of sb_notify.h, since a link may bring messages (sb_move_page.h) */
      uint64_t word = SB_LOAD(link, SB_SEQ_CST);
      if (!sb_page_is_current(b, p)) {
        again = true;
      } else if (sb_link_state(word) == SB_LINK_DONE) {
        *skip = p->height;
        return SB_DONE;
      } else if (sb_link_state(word) == SB_LINK_PAGED) {
        *skip = p->height;
        return SB_PAGED;
      } else if (sb_link_state(word) == SB_LINK_EMPTY) {
        if (c == NULL) {
          return SB_EMPTY;
        }
        uint64_t token;
        sb_page_ref fresh;
        sb_status status = new_page(c, r, p->height - 1, sb_page_first(p->height - 1, position), &token, &fresh);
        if (status != SB_OK) {
          return status;
        }
        (void)link_page(c, link, word, token, &fresh);
      } else {
        sb_page_ref child;
        if (sb_page_of(b, word, position, &child) && child.height + 1 == p->height) {
          *p = child;
        } else if (SB_LOAD(link, SB_ACQUIRE) == word && sb_page_is_current(b, p)) {
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
  return SB_CORRUPT; /* a ring that is not damaged does not change so often during one walk */
}

/* ---- leaves that are filled before they are linked ---- */

sb_status sb_page_prepare_leaf(sb_connection *c, const sb_ring *r, uint64_t first, sb_page_fresh *f) {
  sb_page_ref parent;
  unsigned skip = 0;
  if (sb_page_kind(c->b, r, 0) != SB_KIND_LEAF) {
    return SB_EMPTY;
  }
  sb_status status = sb_page_descend(c->b, c, r, first, 1, &parent, &skip);
  if (status != SB_OK) {
    return status == SB_DONE ? SB_EMPTY : status;
  }
  f->link = &sb_page_children(&parent)[sb_page_index(1, first)];
  f->expected = sb_link_empty(parent.gen); /* with the generation: the parent may be freed and used again meanwhile */
  return SB_LOAD(f->link, SB_ACQUIRE) == f->expected ? new_page(c, r, 0, first, &f->token, &f->leaf) : SB_EMPTY;
}

sb_status sb_page_renew_leaf(sb_connection *c, const sb_ring *r, uint64_t first, uint64_t link, sb_page_fresh *f) {
  sb_page_ref parent;
  unsigned skip = 0;
  sb_status status = sb_page_descend(c->b, NULL, r, first, 1, &parent, &skip);
  if (status != SB_OK) {
    return SB_DONE;
  }
  f->link = &sb_page_children(&parent)[sb_page_index(1, first)];
  f->expected = link;
  return SB_LOAD(f->link, SB_ACQUIRE) == link ? new_page(c, r, 0, first, &f->token, &f->leaf) : SB_DONE;
}

void sb_page_linked(sb_connection *c, const sb_page_fresh *f) { link_done(c, f->token, &f->leaf); }

void sb_page_drop_leaf(sb_connection *c, const sb_page_fresh *f) {
  (void)sb_slab_free_gen(c->b, f->leaf.slot, f->leaf.gen);
  sb_holding_give(c, f->token);
}

bool sb_page_link_leaf(sb_connection *c, const sb_page_fresh *f) {
  uint64_t expected = f->expected;
  if (!SB_CAS(f->link, &expected, sb_link_word(0, f->leaf.slot, f->leaf.gen),
              SB_SEQ_CST)) { /* P4 release; P3 of sb_notify.h */
    sb_page_drop_leaf(c, f);
    return false;
  }
  SB_CRASHPOINT("ring.leaf.linked");
  link_done(c, f->token, &f->leaf);
  return true;
}

/* ---- retiring ---- */

static bool all_done(const sb_page_ref *p) {
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    if (p->height == 0) {
      uint64_t word = SB_LOAD(&((sb_leaf_shm *)(void *)p->page)->cells[i].word, SB_ACQUIRE);
      if (word != sb_cell_bare(SB_CELL_TOMBSTONE, p->gen)) {
        return false;
      }
    } else if (sb_link_state(SB_LOAD(&sb_page_children(p)[i], SB_ACQUIRE)) != SB_LINK_DONE) {
      return false;
    }
  }
  return true;
}

void sb_page_retire(sb_connection *c, const sb_ring *r, sb_page_ref p) {
  for (;;) {
    sb_page_ref parent;
    unsigned skip = 0;
    if (!all_done(&p) || !sb_page_is_current(c->b, &p) ||
        sb_page_descend(c->b, NULL, r, p.first, p.height + 1, &parent, &skip) != SB_OK) {
      return; /* a root stays until it gets a parent; the process that grows the tree looks at it again */
    }
    sb_word *link = &sb_page_children(&parent)[sb_page_index(parent.height, p.first)];
    uint64_t word = sb_link_word(p.height, p.slot, p.gen);
    sb_holding_set(c->b, c->page_token, sb_holding_what(SB_HOLD_PAGE, p.slot, p.gen), p.first);
    if (!SB_CAS(link, &word, SB_LINK_DONE, SB_SEQ_CST)) {
      return;
    }
    SB_CRASHPOINT("ring.page.unlinked");
    uint64_t bit = UINT64_C(1) << sb_page_index(parent.height, p.first);
    uint64_t before = SB_OR(&parent.page->done, bit, SB_SEQ_CST);
    (void)sb_slab_free_gen(c->b, p.slot, p.gen);
    if ((before | bit) != ~UINT64_C(0)) {
      return;
    }
    p = parent;
  }
}

bool sb_page_links(sb_broker *b, const sb_ring *r, uint32_t slot, uint64_t gen) {
  sb_page_shm *page = sb_slot_at(b, slot);
  unsigned height = SB_LOAD(&page->ring, SB_RELAXED) >> 8, skip = 0;
  sb_page_ref p;
  return height <= SB_MAX_HEIGHT &&
         sb_page_descend(b, NULL, r, SB_LOAD(&page->first, SB_RELAXED), height, &p, &skip) == SB_OK && p.slot == slot &&
         p.gen == gen;
}

void sb_page_settle(sb_connection *c, const sb_ring *r, uint32_t slot, uint64_t gen) {
  sb_page_shm *page = sb_slot_at(c->b, slot);
  sb_page_ref p = {page, gen, SB_LOAD(&page->first, SB_RELAXED), slot, SB_LOAD(&page->ring, SB_RELAXED) >> 8};
  if (sb_page_links(c->b, r, slot, gen)) {
    if (SB_LOAD(&page->done, SB_SEQ_CST) == ~UINT64_C(0)) {
      sb_page_retire(c, r, p);
    }
    return;
  }
  sb_page_ref parent;
  unsigned skip = 0;
  if (sb_slab_free_gen(c->b, slot, gen) &&
      sb_page_descend(c->b, NULL, r, p.first, p.height + 1, &parent, &skip) == SB_OK) {
    uint64_t bit = UINT64_C(1) << sb_page_index(parent.height, p.first);
    if (sb_link_state(SB_LOAD(&sb_page_children(&parent)[sb_page_index(parent.height, p.first)], SB_ACQUIRE)) ==
            SB_LINK_DONE &&
        (SB_OR(&parent.page->done, bit, SB_SEQ_CST) | bit) == ~UINT64_C(0)) {
      sb_page_retire(c, r, parent);
    }
  }
}

/* Retires the finished pages of the subtree that `link` leads to. Looks below unfinished pages as well, since finished
 * pages may lie there. Handles the children of a page before the page. `position`: one that the subtree covers.
 * `below`: the root of the subtree must be lower than this height; else the link is broken, and the function does
 * nothing. */
static void sweep(sb_connection *c, const sb_ring *r, uint64_t link, uint64_t position, unsigned below) {
  sb_page_ref p;
  if (!sb_page_of(c->b, link, position, &p) || p.height >= below) { /* a broken link may lead upwards */
    return;
  }
  for (unsigned i = 0; p.height > 0 && i < SB_PAGE_CELLS; i++) {
    uint64_t child = SB_LOAD(&sb_page_children(&p)[i], SB_ACQUIRE);
    if (sb_link_state(child) == SB_LINK_PAGE && sb_page_is_current(c->b, &p)) {
      sweep(c, r, child, p.first + ((uint64_t)i << (6 * p.height)), p.height);
    }
  }
  sb_page_retire(c, r, p);
}

void sb_page_sweep(sb_connection *c, const sb_ring *r) {
  uint64_t link = SB_LOAD(r->root, SB_SEQ_CST);
  sb_page_ref root;
  if (sb_page_root(c->b, link, &root)) sweep(c, r, link, root.first, SB_MAX_HEIGHT + 1);
}
