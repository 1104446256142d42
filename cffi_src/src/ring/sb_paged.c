// SPDX-License-Identifier: Apache-2.0
#include "sb_paged.h"

#include "sb_reference.h"
#include "sb_slab.h"

static sb_word *paging_of(const sb_leaf_ref *ref) { return &ref->leaf->page.paging; }

/* The word that stands in the cell if its state changes, and nothing else. */
static uint64_t in_state(uint64_t word, unsigned state) { return (word & ~UINT64_C(15)) | state; }

/* ---- links ---- */

/* Finds the link that leads to the leaf of a position, and its page. False: there is no page above the leaf. */
static bool find_link(sb_broker *b, const sb_ring *r, uint64_t position, sb_page_ref *parent, sb_word **link) {
  unsigned skip = 0;
  if (sb_page_descend(b, NULL, r, position, 1, parent, &skip) != SB_OK) {
    return false;
  }
  *link = &sb_page_children(parent)[sb_page_index(1, position)];
  return true;
}

bool sb_paged_is_at(sb_broker *b, const sb_ring *r, uint64_t position, uint64_t *link) {
  sb_page_ref parent;
  sb_word *at;
  if (!find_link(b, r, position, &parent, &at)) {
    return false;
  }
  *link = SB_LOAD(at, SB_SEQ_CST);
  return sb_link_state(*link) == SB_LINK_PAGED && sb_page_is_current(b, &parent);
}

bool sb_paged_mark(sb_broker *b, const sb_ring *r, uint64_t position) {
  sb_page_ref parent;
  sb_word *at;
  if (!find_link(b, r, position, &parent, &at)) {
    return true; /* its parent was retired: nothing is there any more */
  }
  for (;;) {
    uint64_t link = SB_LOAD(at, SB_SEQ_CST);
    if (sb_link_state(link) != SB_LINK_PAGED) {
      return sb_link_state(link) != SB_LINK_PAGE;
    }
    if ((link & SB_LINK_MARKED) != 0 || SB_CAS(at, &link, link | SB_LINK_MARKED, SB_SEQ_CST)) {
      return true;
    }
  }
}

/* Changes the link of a leaf that has LEFT to PAGED. Any process may do this, any number of times. */
static void unlink(sb_broker *b, const sb_ring *r, const sb_leaf_ref *ref) {
  sb_page_ref parent;
  sb_word *at;
  uint64_t page = sb_link_word(0, ref->slot, ref->gen);
  if (find_link(b, r, ref->first, &parent, &at)) {
    uint32_t number = (uint32_t)SB_LOAD(&ref->leaf->page.departure, SB_ACQUIRE);
    (void)SB_CAS(at, &page, sb_link_paged(parent.gen, number),
                 SB_SEQ_CST); /* names the leaf's generation, so no other */
  }
}

/* ---- searches ---- */

static void thaw(const sb_leaf_ref *ref) {
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    sb_word *cell = &ref->leaf->cells[i].word;
    uint64_t word = SB_LOAD(cell, SB_SEQ_CST);
    if (sb_cell_state(word) == SB_CELL_FROZEN && sb_cell_of(word, ref->gen))
      (void)SB_CAS(cell, &word, in_state(word, SB_CELL_AVAILABLE), SB_SEQ_CST);
  }
}

bool sb_paged_stay(sb_broker *b, const sb_ring *r, const sb_leaf_ref *ref) {
  uint64_t state = SB_PAGING_LEAVING;
  if (SB_CAS(paging_of(ref), &state, SB_PAGING_STAYS, SB_SEQ_CST)) state = SB_PAGING_STAYS; /* P45 */
  SB_CRASHPOINT("paged.stays");
  if (!sb_leaf_is_current(b, ref)) {
    return false;
  }
  if (state == SB_PAGING_LEFT || state == SB_PAGING_EMPTYING) {
    unlink(b, r, ref);
    return false;
  }
  if (state == SB_PAGING_STAYS) thaw(ref); /* I127: not while it is THERE: somebody may freeze it now */
  return true;
}

sb_status sb_paged_want(sb_connection *c, const sb_ring *r, uint64_t position) {
  sb_broker *b = c->b;
  uint32_t queue = sb_page_queue(b, r);
  SB_STORE(&b->wanting_at, position, SB_RELAXED);
  SB_STORE(&b->wanting, queue, SB_RELEASE);
  return SB_GROW;
}

/* ---- the storekeeper ---- */

static bool is_finished(const sb_leaf_shm *leaf, unsigned i) {
  return SB_LOAD((const _Atomic uint8_t *)(const void *)leaf->finished + i, SB_ACQUIRE) != 0;
}

/* A cell whose message the store has, or which has ended and is marked so. `frozen`: FROZEN counts as well. */
static bool may_go(const sb_leaf_ref *ref, unsigned i, bool *has_message) {
  uint64_t word = SB_LOAD(&ref->leaf->cells[i].word, SB_SEQ_CST);
  unsigned state = sb_cell_state(word);
  *has_message = state == SB_CELL_AVAILABLE || state == SB_CELL_FROZEN;
  return sb_cell_of(word, ref->gen) && (*has_message || (state == SB_CELL_TOMBSTONE && is_finished(ref->leaf, i)));
}

static bool has_bits(const sb_leaf_ref *ref) { /* P45 */
  return SB_LOAD(&ref->leaf->page.requeued, SB_SEQ_CST) != 0 || SB_LOAD(&ref->leaf->page.changed, SB_SEQ_CST) != 0;
}

bool sb_paged_may_leave(sb_broker *b, const sb_ring *r, const sb_leaf_ref *ref) {
  uint64_t paging = SB_LOAD(paging_of(ref), SB_SEQ_CST);
  sb_page_ref parent;
  sb_word *link;
  bool some = false, has_message;
  if ((paging != SB_PAGING_THERE && paging != SB_PAGING_LEAVING) || has_bits(ref)) {
    return false;
  }
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    if (!may_go(ref, i, &has_message)) return false;
    some = some || has_message;
  }
  return some && find_link(b, r, ref->first, &parent, &link) && sb_leaf_is_current(b, ref);
}

/* LEAVING is what a storekeeper left that was killed: this one goes on. */
static bool begin(sb_broker *b, const sb_leaf_ref *ref) {
  uint64_t paging = SB_LOAD(paging_of(ref), SB_SEQ_CST);
  if (paging == SB_PAGING_THERE) {
    uint64_t number = SB_ADD(&b->header->departures, 1u, SB_RELAXED) + 1u;
    SB_STORE(&ref->leaf->page.departure, number, SB_RELEASE);
    return SB_CAS(paging_of(ref), &paging, SB_PAGING_LEAVING, SB_SEQ_CST); /* P45 */
  }
  return paging == SB_PAGING_LEAVING;
}

static bool freeze(const sb_leaf_ref *ref, unsigned i) {
  sb_word *cell = &ref->leaf->cells[i].word;
  uint64_t word = SB_LOAD(cell, SB_SEQ_CST);
  bool has_message;
  if (sb_cell_of(word, ref->gen) && sb_cell_state(word) == SB_CELL_AVAILABLE) {
    return SB_CAS(cell, &word, in_state(word, SB_CELL_FROZEN), SB_SEQ_CST);
  }
  return may_go(ref, i, &has_message);
}

bool sb_paged_freeze(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref) {
  sb_holding_set(c->b, c->page_token, sb_holding_what(SB_HOLD_LEAVING, ref->slot, ref->gen), ref->first);
  bool fits = begin(c->b, ref);
  SB_CRASHPOINT("paged.leaving");
  for (unsigned i = 0; fits && i < SB_PAGE_CELLS; i++) {
    fits = freeze(ref, i);
    SB_CRASHPOINT("paged.frozen");
  }
  fits = fits && !has_bits(ref);
  if (!fits) (void)sb_paged_stay(c->b, r, ref);
  return fits;
}

/* Notes the generation of each slot in the side record, so that a reaper that goes on drops no reference of another
 * message that got the slot later. */
static void note_generations(sb_broker *b, const sb_leaf_ref *ref) {
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    sb_cell_shm *cell = &ref->leaf->cells[i];
    uint64_t word = SB_LOAD(&cell->word, SB_ACQUIRE);
    if (sb_cell_state(word) == SB_CELL_FROZEN && sb_slot_ready(b, sb_cell_slot(word)))
      SB_STORE(&cell->side, sb_slot_gen(SB_LOAD(sb_slot_header(b, sb_cell_slot(word)), SB_ACQUIRE)), SB_RELAXED);
  }
  SB_STORE(paging_of(ref), SB_PAGING_EMPTYING, SB_RELEASE);
}

/* Drops the references of all cells in `state`, whose side records have the generations of the slots. */
static void drop_messages(sb_broker *b, const sb_leaf_shm *leaf, uint32_t queue) {
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    uint64_t word = SB_LOAD(&leaf->cells[i].word, SB_ACQUIRE);
    if (!sb_cell_has_message(word) || !sb_slot_in_range(b, sb_cell_slot(word)) || !sb_slot_ready(b, sb_cell_slot(word)))
      continue;
    uint64_t side = SB_LOAD(&leaf->cells[i].side, SB_ACQUIRE), gen = sb_side_gen(side);
    sb_reference reference = {sb_cell_slot(word), sb_cell_ref(word), gen, queue};
    (void)sb_reference_drop(b, &reference);
    SB_CRASHPOINT("paged.dropped");
  }
}

/* Frees the messages and the leaf. Its words stay FROZEN, so a search that comes late finds that it has left. */
static void empty(sb_broker *b, const sb_ring *r, const sb_leaf_ref *ref) {
  if (SB_LOAD(paging_of(ref), SB_ACQUIRE) == SB_PAGING_LEFT) note_generations(b, ref);
  SB_CRASHPOINT("paged.emptying");
  drop_messages(b, ref->leaf, sb_page_queue(b, r));
  (void)sb_slab_free_gen(b, ref->slot, ref->gen);
  SB_CRASHPOINT("paged.freed");
}

bool sb_paged_leave(sb_connection *c, const sb_ring *r, const sb_leaf_ref *ref) {
  uint64_t leaving = SB_PAGING_LEAVING;
  if (!SB_CAS(paging_of(ref), &leaving, SB_PAGING_LEFT, SB_SEQ_CST)) { /* the decision */
    thaw(ref); /* somebody met a frozen cell: these may be frozen since */
    return false;
  }
  SB_CRASHPOINT("paged.left");
  unlink(c->b, r, ref);
  SB_CRASHPOINT("paged.unlinked");
  empty(c->b, r, ref);
  return true;
}

/* ---- coming back ---- */

void sb_paged_coming(const sb_page_fresh *f) {
  SB_STORE(&f->leaf.page->paging, sb_paging_coming(f->leaf.gen), SB_RELEASE);
}

void sb_paged_give_up(sb_connection *c, const sb_page_fresh *f) {
  sb_paged_recover_coming(c->b, f->leaf.slot);
  sb_page_drop_leaf(c, f);
}

bool sb_paged_arrive(sb_connection *c, sb_page_fresh *f) {
  uint64_t expected = f->expected;
  if ((expected & SB_LINK_MARKED) != 0) SB_STORE(&f->leaf.page->requeued, ~UINT64_C(0), SB_RELAXED); /* I128 */
  SB_CRASHPOINT("paged.filled");
  if (!SB_CAS(f->link, &expected, sb_link_word(0, f->leaf.slot, f->leaf.gen),
              SB_SEQ_CST)) { /* P4 of sb_ring.h, release; I129 */
    sb_paged_give_up(c, f);
    return false;
  }
  SB_CRASHPOINT("paged.linked");
  return true;
}

void sb_paged_arrived(sb_connection *c, const sb_page_fresh *f) {
  uint64_t coming = sb_paging_coming(f->leaf.gen);
  /* fails if its messages have ended meanwhile, and the page is another leaf's */
  (void)SB_CAS(&f->leaf.page->paging, &coming, SB_PAGING_THERE, SB_SEQ_CST);
  sb_page_linked(c, f);
  (void)SB_ADD(&c->b->header->arrivals, 1, SB_RELAXED);
  SB_CRASHPOINT("paged.arrived");
}

void sb_paged_end(sb_connection *c, const sb_ring *r, uint64_t position) {
  sb_page_ref parent;
  sb_word *at;
  if (!find_link(c->b, r, position, &parent, &at)) {
    return;
  }
  uint64_t link = SB_LOAD(at, SB_SEQ_CST), bit = UINT64_C(1) << sb_page_index(1, position);
  if (sb_link_state(link) == SB_LINK_PAGED && SB_CAS(at, &link, SB_LINK_DONE, SB_SEQ_CST)) {
    SB_CRASHPOINT("paged.ended");
    if ((SB_OR(&parent.page->done, bit, SB_SEQ_CST) | bit) == ~UINT64_C(0)) sb_page_retire(c, r, parent);
  }
}

/* ---- reapers ---- */

void sb_paged_recover_leaving(sb_connection *by, const sb_ring *r, uint32_t slot, uint64_t gen) {
  sb_leaf_shm *leaf = sb_slot_at(by->b, slot);
  sb_leaf_ref ref = {leaf, SB_LOAD(&leaf->page.first, SB_RELAXED), gen, slot};
  if (!sb_paged_stay(by->b, r, &ref) && sb_leaf_is_current(by->b, &ref)) empty(by->b, r, &ref);
}

void sb_paged_recover_coming(sb_broker *b, uint32_t slot) {
  sb_leaf_shm *leaf = sb_slot_at(b, slot);
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    sb_cell_shm *cell = &leaf->cells[i];
    uint64_t word = SB_LOAD(&cell->word, SB_ACQUIRE), side = SB_LOAD(&cell->side, SB_ACQUIRE);
    uint32_t message = sb_cell_slot(word);
    if (!sb_cell_has_message(word) || !sb_slot_in_range(b, message) || !sb_slot_ready(b, message)) continue;
    /* the end of a delay replaces the generation only when the leaf alone names the messages */
    if ((side & SB_SIDE_DELAYED) != 0)
      SB_STORE(&cell->side, sb_slot_gen(SB_LOAD(sb_slot_header(b, message), SB_ACQUIRE)), SB_RELEASE);
  }
  drop_messages(b, leaf, SB_LOAD(&leaf->page.object, SB_RELAXED));
}
