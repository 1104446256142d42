// SPDX-License-Identifier: Apache-2.0
/* Cases of pages: what another actor creates, or frees, between the steps of a walk. The ring is a list of the queue in
 * which no consumer has an entry; the cells do not matter. */
#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_ring.h"

#define NEAR 70u
#define FAR 5000u

static sb_ring list;
static sb_page_ref p;
static unsigned skip;

static void begin(void) {
  if (!sb_ring_open(t.b, keeper.q->slot, SB_RING_ROOM, &list)) die("sb_ring_open", 0);
}
static uint64_t at(uint64_t number) { return SB_LOAD(list.base, SB_SEQ_CST) + number; }
static sb_status walk(actor *a, bool make, uint64_t number, sb_page_ref *found) {
  sb_status status;
  while ((status = sb_page_descend(t.b, make ? a->c : NULL, &list, at(number), 0, found, &skip)) == SB_GROW)
    (void)grow(t.b, t.path);
  return status;
}
static uint64_t next_holding(void) {
  uint64_t token;
  if (sb_holding_take(one.c, &token) != SB_OK) die("sb_holding_take", 0);
  sb_holding_give(one.c, token);
  return token;
}
static uint32_t slots_in_use(void) {
  uint32_t n = 0;
  const unsigned kinds[] = {SB_KIND_LEAF, SB_KIND_INNER};
  for (uint32_t chunk = 0; chunk < t.b->mapped_chunks; chunk++) {
    uint64_t word = SB_LOAD(&t.b->chunks[chunk], SB_SEQ_CST);
    for (unsigned k = 0; k < 2; k++) {
      uint32_t units = sb_class_units(SB_MESSAGE_CLASSES + kinds[k]);
      if (sb_chunk_state(word) != SB_CHUNK_CLASS || sb_chunk_class(word) != SB_MESSAGE_CLASSES + kinds[k]) continue;
      for (uint32_t slot = 0; slot + units <= SB_CHUNK_UNITS; slot += units)
        n += sb_slot_state(SB_LOAD(sb_slot_header(t.b, chunk * SB_CHUNK_UNITS + slot), SB_SEQ_CST)) != SB_SLOT_FREE;
    }
  }
  return n;
}

/* ---- two that make pages ---- */

static uint32_t made_first;
static uint64_t asked;
static void make_beside(void) {
  sb_page_ref other;
  expect(walk(&two, true, asked, &other) == SB_OK, "the other one made no leaf");
  made_first = other.slot;
}
/* One leaf is linked; what the other one had made is free again, and so is its holding. */
static void both_make(uint64_t mine, uint64_t theirs) {
  begin();
  uint64_t token = next_holding();
  uint32_t before = slots_in_use();
  made_first = 0;
  asked = theirs;
  meanwhile(ANYWHERE, make_beside);
  expect(walk(&one, true, mine, &p) == SB_OK, "no leaf was made");
  afterwards();
  expect(mine != theirs || p.slot == made_first, "there are two leaves");
  expect(p.page->first == at(mine) / 64 * 64, "it is the leaf of another position");
  expect(next_holding() == token, "a holding was kept");
  uint32_t used = slots_in_use() - before;
  expect(used <= (mine == theirs ? 3u : 5u), "%d slots were taken for pages", (int)used);
  sb_ring_destroy(keeper.c, &list);
  expect(slots_in_use() <= before, "%d pages are not part of the list", (int)(slots_in_use() - before));
}
static void both_make_the_first(void) { both_make(NEAR, NEAR); }
static void both_make_more(void) { both_make(NEAR, FAR); }
static void both_make_below_a_root(void) {
  begin();
  expect(walk(&one, true, FAR, &p) == SB_OK, "no leaf was made");
  both_make(NEAR, NEAR);
}

/* ---- one that walks beside an end ---- */

static void destroy(void) { sb_ring_destroy(two.c, &list); }
/* The list ends, and its pages are free: the walk finds nothing, or the leaf as it was, but no end of a leaf, and no damage. */
static void walk_beside_an_end(void) {
  begin();
  uint64_t position = at(NEAR);
  expect(walk(&two, true, NEAR, &p) == SB_OK && walk(&two, true, FAR, &p) == SB_OK, "no leaf was made");
  meanwhile(ANYWHERE, destroy);
  p.height = 99;
  sb_status status = sb_page_descend(t.b, NULL, &list, position, 0, &p, &skip);
  afterwards();
  expect(status == SB_OK || status == SB_EMPTY, "the status is %d", (int)status);
  expect(status != SB_OK || p.height == 0, "the page has height %d", (int)p.height);
}

/* ---- a root that does not rest ---- */

static uint64_t changes;
static void change_root(void) { /* to a link of a generation that no page has */
  SB_STORE(list.root, sb_link_word(0, p.slot, p.gen + 1 + changes++), SB_SEQ_CST);
  plan.depth = 0;
  meanwhile("sb_page.c", change_root);
}
static void a_root_without_rest(void) {
  begin();
  expect(walk(&two, true, NEAR, &p) == SB_OK, "no leaf was made");
  uint64_t root = SB_LOAD(list.root, SB_SEQ_CST);
  changes = 0;
  meanwhile("sb_page.c", change_root);
  expect(sb_page_descend(t.b, NULL, &list, at(NEAR), 0, &(sb_page_ref){0}, &skip) == SB_CORRUPT,
         "a walk that never comes to an end has one");
  expect(changes > 1000, "the walk gave up after %d changes", (int)changes);
  plan.what = NULL;
  plan.depth = 0;
  SB_STORE(list.root, root, SB_SEQ_CST);
}

/* ---- one that retires ---- */

static void look_at_holding(void) {
  const sb_holding_shm *h = sb_holding_at(t.b, one.c->page_token);
  expect(SB_LOAD(&h->what, SB_SEQ_CST) == sb_holding_what(SB_HOLD_PAGE, p.slot, p.gen) &&
             SB_LOAD(&h->where, SB_SEQ_CST) == p.first,
         "the holding does not name the page that is unlinked");
}
static void named_when_unlinked(void) {
  begin();
  expect(walk(&two, true, FAR, &p) == SB_OK && walk(&two, true, NEAR, &p) == SB_OK, "no leaf was made");
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++)
    SB_STORE(&((sb_leaf_shm *)p.page)->cells[i].word, sb_cell_bare(SB_CELL_TOMBSTONE, p.gen), SB_SEQ_CST);
  meanwhile("ring.page.unlinked", look_at_holding);
  sb_page_retire(one.c, &list, p);
  afterwards();
  sb_ring_destroy(keeper.c, &list);
}

static const test_case CASES[] = {
    {"both make the first", "of two that make the same first leaf one takes its pages back", FREELY,
     both_make_the_first},
    {"both make more", "two that make leaves below different roots find each other's", FREELY, both_make_more},
    {"both make below a root", "of two that make the same leaf below a root one takes its leaf back", FREELY,
     both_make_below_a_root},
    {"walk beside an end", "a walk in pages that are freed finds nothing", FREELY, walk_beside_an_end},
    {"root without rest", "a walk that is disturbed again and again ends", FREELY, a_root_without_rest},
    {"named when unlinked", "a page that is unlinked is named by the holding before it is free", FREELY,
     named_when_unlinked},
};
const subject PAGE_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
