// SPDX-License-Identifier: Apache-2.0
/* sb_check_ring: findings of the doctor in the pages of a ring, and the cells that it visits. The ring belongs to a
 * queue with enough messages for a root above three leaves. A case damages one word, and restores it. */
#include <string.h>

#include "checkup.h"
#include "sb_queue.h"

enum { LINK, KIND, FREED, PLACE, GENERATION, TWICE };
enum { HOLE, TAIL, HEAD, BASE };
#define MESSAGES (2 * SB_PAGE_CELLS + 5)
#define QUEUE 777u /* which queue the findings are about */

static sb_queue *q;
static uint64_t end, visited, marks, first_marked;
static bool sound;

static void visit(sb_checkup *k, void *context, const sb_check_cell *cell) {
  expect(k == &checkup && context == &visited, "another visit");
  expect_is(cell->word, SB_LOAD(&cell->cell->word, SB_RELAXED), "the word of a cell");
  visited++;
  if (cell->marked && marks++ == 0) first_marked = cell->position;
}
static void begin(uint32_t messages) {
  const sb_put_options none = {0};
  if (declare(&t, "q", (sb_settings)FREELY) != SB_OK) die("sb_queue_declare", 0);
  q = open_queue(&t, "q");
  for (uint32_t i = 0; i < messages; i++) {
    if (put_sized(&t, q, i + 1, 8, &none) != SB_OK) die("sb_queue_put", 0);
  }
  start_checkup(t.b->mapped_chunks);
}
static void look_at(uint32_t object, uint32_t id) {
  forget_what_was_seen();
  visited = marks = 0;
  end = 99;
  sound = sb_check_ring(&checkup, object, id, QUEUE, visit, &visited, &end);
}
static void look(void) { look_at(q->slot, SB_RING_CELLS); }
static void expect_sound(uint64_t cells, const char *what) {
  look();
  expect_no_finding(what);
  expect(sound, "%s is not sound", what);
  expect_is(visited, cells, what);
}
static void expect_broken(unsigned code, unsigned which, uint32_t slot, uint64_t where, uint64_t found,
                          uint64_t expected, const char *what) {
  look();
  expect_finding((sb_finding){code, QUEUE, slot, which, SB_RING_CELLS, where, found, expected}, what);
  expect(!sound, "%s is sound", what);
}
static uint64_t root(void) { return SB_LOAD(&q->shm->root, SB_RELAXED); }
static sb_inner_shm *inner(void) { return sb_slot_at(t.b, sb_link_slot(root())); }
static uint64_t child(unsigned i) { return SB_LOAD(&inner()->children[i], SB_RELAXED); }
static uint32_t leaf_slot(unsigned i) { return sb_link_slot(child(i)); }
static sb_leaf_shm *leaf(unsigned i) { return sb_slot_at(t.b, leaf_slot(i)); }
static uint64_t gen_of(uint32_t slot) { return sb_slot_gen(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)); }

static void a_sound_ring(void) {
  begin(MESSAGES);
  expect_sound(MESSAGES, "a ring");
  expect_is(end, MESSAGES, "its end");
  expect_is(checkup.seen[sb_link_slot(root())] + checkup.seen[leaf_slot(0)] + checkup.seen[leaf_slot(2)], 3,
            "its pages");
  look_at(q->slot, SB_RING_ALL);
  expect(sound && visited == 0, "a list without entries has some");
  look_at(leaf_slot(0), SB_RING_CELLS);
  expect(!sound && end == 0, "what is no queue has a ring");
  expect_no_finding("what is no queue");
}

/* ---- cells ---- */

static void set_cell(unsigned of, unsigned i, uint64_t word) { SB_STORE(&leaf(of)->cells[i].word, word, SB_RELAXED); }
static void damaged_cells(void) {
  begin(MESSAGES);
  uint64_t gen = gen_of(leaf_slot(0)), was = SB_LOAD(&leaf(0)->cells[3].word, SB_RELAXED);
  const uint64_t bad[] = {sb_cell_bare(SB_CELL_FREE, gen) | UINT64_C(1) << 50,
                          sb_entry_word(5, 5),
                          sb_cell_bare(SB_CELL_FREE, gen + 1),
                          0,
                          sb_cell_bare(15, gen),
                          sb_cell_open(SB_CELL_AVAILABLE, 5, 0, gen + 1)};
  for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    set_cell(0, 3, bad[i]);
    expect_broken(SB_BAD_CELL, 0, 0, 3, bad[i], gen, "a cell");
    expect_is(visited, MESSAGES - 1, "how many cells were visited");
  }
  const unsigned good[] = {SB_CELL_TOMBSTONE, SB_CELL_CLOSING, SB_CELL_CLOSED};
  for (unsigned i = 0; i < sizeof good / sizeof good[0]; i++) {
    set_cell(0, 3, sb_cell_bare(good[i], gen));
    expect_sound(MESSAGES, "a cell that has ended");
  }
  set_cell(0, 3, was);
}
static void holes(void) {
  begin(MESSAGES);
  set_cell(0, 3, sb_cell_bare(SB_CELL_FREE, gen_of(leaf_slot(0))));
  expect_broken(SB_BAD_TAIL, HOLE, 0, 4, 3, 0, "a hole");
  expect_is(end, MESSAGES, "the end behind a hole");
  set_cell(0, 5, sb_cell_bare(SB_CELL_FREE, gen_of(leaf_slot(0))));
  look();
  expect_is(checkup.count, 2, "the findings of two holes");
}
/* Bits lead from the queue over each page to a cell that came back. */
static void cells_that_came_back(void) {
  begin(MESSAGES);
  SB_STORE(&q->shm->requeued, 1, SB_RELAXED);
  SB_STORE(&inner()->page.requeued, 2, SB_RELAXED);
  SB_STORE(&leaf(1)->page.requeued, 4, SB_RELAXED);
  SB_STORE(&leaf(0)->page.requeued, 8, SB_RELAXED); /* no bit leads there */
  look();
  expect_is(marks, 1, "how many bits lead to");
  expect_is(first_marked, SB_PAGE_CELLS + 2, "where a bit leads");
  SB_STORE(&q->shm->requeued, 0, SB_RELAXED);
  look();
  expect_is(marks, 0, "how many bits lead to, without the first one");
}

/* ---- pages ---- */

static void expect_page(unsigned which, uint32_t slot, uint64_t where, uint64_t found, uint64_t expected,
                        const char *what) {
  expect_broken(SB_BAD_PAGE, which, slot, where, found, expected, what);
}
static void set_child(unsigned i, uint64_t link) { SB_STORE(&inner()->children[i], link, SB_RELAXED); }
static void damaged_links(void) {
  begin(MESSAGES);
  uint64_t was = child(1), gen = sb_link_gen(was);
  uint32_t slot = leaf_slot(1);
  set_child(1, sb_link_word(1, slot, gen));
  expect_page(LINK, slot, SB_PAGE_CELLS, SB_KIND_LEAF, SB_KIND_LEAF, "a link to another height");
  set_child(1, sb_link_word(0, sb_link_slot(root()), gen));
  expect_page(KIND, sb_link_slot(root()), SB_PAGE_CELLS, SB_KIND_INNER, SB_KIND_LEAF, "a link to another kind");
  set_child(1, sb_link_word(0, slot, gen + 1));
  expect_page(GENERATION, slot, SB_PAGE_CELLS, gen + 1, gen, "a link to another life");
  set_child(1, was | 3);
  expect_page(LINK, 0, SB_PAGE_CELLS, was | 3, gen_of(sb_link_slot(root())), "a link that is none");
  set_child(1, SB_LINK_DONE);
  expect_sound(SB_PAGE_CELLS + 5, "a leaf that is done");
  set_child(2, SB_LINK_DONE);
  expect_is(end, MESSAGES, "the end behind a leaf that is done");
  look();
  expect_is(end, 3 * SB_PAGE_CELLS, "the end of a leaf that is done");
  set_child(1, sb_link_empty(gen_of(sb_link_slot(root()))));
  expect_broken(SB_BAD_TAIL, HOLE, 0, 2 * SB_PAGE_CELLS, SB_PAGE_CELLS, 0, "a leaf that is missing");
  set_child(1, was);
}
static void damaged_pages(void) {
  begin(MESSAGES);
  uint32_t slot = leaf_slot(1);
  sb_word *header = sb_slot_header(t.b, slot);
  uint64_t was = SB_LOAD(header, SB_RELAXED), at = SB_PAGE_CELLS;
  sb_page_shm *page = &leaf(1)->page;
  SB_STORE(header, sb_slot_word(SB_SLOT_FREE, 0, sb_slot_gen(was)), SB_RELAXED);
  expect_page(FREED, slot, at, sb_slot_word(SB_SLOT_FREE, 0, sb_slot_gen(was)), 0, "a leaf that was freed");
  SB_STORE(header, was, SB_RELAXED);
  SB_STORE(&page->object, q->slot + 1, SB_RELAXED);
  expect_page(PLACE, slot, at, at, at, "a leaf of another queue");
  SB_STORE(&page->object, q->slot, SB_RELAXED);
  SB_STORE(&page->ring, SB_RING_ALL, SB_RELAXED);
  expect_page(PLACE, slot, at, at, at, "a leaf of another ring");
  SB_STORE(&page->ring, SB_RING_CELLS, SB_RELAXED);
  SB_STORE(&page->first, 0, SB_RELAXED);
  expect_page(PLACE, slot, at, 0, at, "a leaf of another place");
  SB_STORE(&page->first, at, SB_RELAXED);
  expect_sound(MESSAGES, "what was put right");
  forget_what_was_seen();
  checkup.seen[slot] = 1;
  sound = sb_check_ring(&checkup, q->slot, SB_RING_CELLS, QUEUE, visit, &visited, &end);
  expect_finding((sb_finding){SB_BAD_PAGE, QUEUE, slot, TWICE, SB_RING_CELLS, at, 0, 0}, "a leaf in two places");
}
static void damaged_roots(void) {
  begin(MESSAGES);
  uint64_t was = root();
  SB_STORE(&q->shm->root, SB_LINK_DONE, SB_RELAXED);
  expect_page(LINK, 0, 0, SB_LINK_DONE, 0, "a root that is done");
  uint64_t high = sb_link_word(11, sb_link_slot(was), sb_link_gen(was));
  SB_STORE(&q->shm->root, high, SB_RELAXED);
  expect_page(LINK, 0, 0, high, 0, "a root that is too high");
  SB_STORE(&q->shm->root, sb_link_word(10, leaf_slot(0), 0), SB_RELAXED);
  look();
  expect(checkup.count == 1 && checkup.findings[0].which == KIND, "the highest root was not looked at");
  found_nothing();
  SB_STORE(&q->shm->root, sb_link_empty(0), SB_RELAXED);
  SB_STORE(&q->shm->tail, 0, SB_RELAXED);
  SB_STORE(&q->shm->head, 0, SB_RELAXED);
  expect_sound(0, "a ring without pages");
}

/* ---- places ---- */

/* The ring begins in the middle of its pages (I4), and a producer was killed after it had linked the root. */
static void a_root_without_the_first_page(void) {
  const uint64_t base = (SB_PAGE_CELLS + 2) * SB_PAGE_CELLS;
  begin(MESSAGES);
  uint32_t slot = sb_link_slot(root());
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) set_child(i, i == 0 ? SB_LINK_DONE : sb_link_empty(gen_of(slot)));
  SB_STORE(&inner()->page.ring, SB_RING_CELLS | 2u << 8, SB_RELAXED);
  SB_STORE(&q->shm->root, sb_link_word(2, slot, gen_of(slot)), SB_RELAXED);
  SB_STORE(&q->shm->base, base, SB_RELAXED);
  SB_STORE(&q->shm->from, base, SB_RELAXED);
  SB_STORE(&q->shm->tail, base, SB_RELAXED);
  SB_STORE(&q->shm->head, base, SB_RELAXED);
  expect_sound(0, "a root without the first page");
  expect_is(end, base, "the end of a ring without a cell");
}
/* The root of a ring with a high base is a leaf there (sb_page.h). */
static void a_root_at_the_base(void) {
  const uint64_t base = (SB_PAGE_CELLS + 2) * SB_PAGE_CELLS;
  begin(0);
  SB_STORE(&q->shm->root, sb_link_empty(base / SB_PAGE_CELLS), SB_RELAXED);
  SB_STORE(&q->shm->base, base, SB_RELAXED);
  SB_STORE(&q->shm->from, base, SB_RELAXED);
  SB_STORE(&q->shm->tail, base, SB_RELAXED);
  SB_STORE(&q->shm->head, base, SB_RELAXED);
  q = open_queue(&t, "q");
  const sb_put_options none = {0};
  for (uint32_t i = 0; i < MESSAGES; i++) {
    if (put_sized(&t, q, i + 1, 8, &none) != SB_OK) die("sb_queue_put", 0);
    if (i == 1) expect_sound(2, "a root that is a leaf");
  }
  expect_sound(MESSAGES, "a root above leaves");
  expect_is(end, base + MESSAGES, "the end");
  SB_STORE(&inner()->page.first, 0, SB_RELAXED);
  expect_page(PLACE, sb_link_slot(root()), SB_PAGE_CELLS * SB_PAGE_CELLS, 0, SB_PAGE_CELLS * SB_PAGE_CELLS,
              "a root in another place");
}
static void damaged_places(void) {
  begin(MESSAGES);
  SB_STORE(&q->shm->tail, MESSAGES + 1, SB_RELAXED);
  expect_broken(SB_BAD_TAIL, TAIL, 0, MESSAGES, MESSAGES + 1, MESSAGES, "a tail behind the end");
  SB_STORE(&q->shm->tail, MESSAGES, SB_RELAXED);
  expect_sound(MESSAGES, "a tail at the end");
  SB_STORE(&q->shm->head, MESSAGES + 1, SB_RELAXED);
  expect_broken(SB_BAD_TAIL, HEAD, 0, MESSAGES, MESSAGES + 1, MESSAGES, "a head behind the end");
  set_child(0, 3); /* where pages are missing, places are not compared */
  SB_STORE(&q->shm->tail, UINT64_MAX, SB_RELAXED);
  expect_page(LINK, 0, 0, 3, gen_of(sb_link_slot(root())), "a ring with a broken page");
  SB_STORE(&q->shm->from, 1, SB_RELAXED);
  expect_broken(SB_BAD_TAIL, BASE, 0, 0, 1, 0, "a first position in the middle of a page");
  SB_STORE(&q->shm->from, UINT64_C(1) << 60, SB_RELAXED);
  expect_broken(SB_BAD_TAIL, BASE, 0, 0, UINT64_C(1) << 60, 0, "a first position that is too high");
  SB_STORE(&q->shm->from, SB_PAGE_CELLS, SB_RELAXED);
  SB_STORE(&q->shm->base, 1, SB_RELAXED);
  expect_broken(SB_BAD_TAIL, BASE, 0, 0, 1, SB_PAGE_CELLS, "a base in the middle of a page");
  SB_STORE(&q->shm->base, 2 * SB_PAGE_CELLS, SB_RELAXED);
  expect_broken(SB_BAD_TAIL, BASE, 0, 0, 2 * SB_PAGE_CELLS, SB_PAGE_CELLS, "a base behind the first position");
}

static const test_case CASES[] = {
    {"check_ring: sound", "nothing is found where all is well, and each cell is visited", a_sound_ring},
    {"check_ring: cells", "a cell is in a state, and of its page", damaged_cells},
    {"check_ring: holes", "no cell is free before one that is not", holes},
    {"check_ring: marks", "bits lead to cells that came back", cells_that_came_back},
    {"check_ring: links", "a link leads to a page of its kind and life", damaged_links},
    {"check_ring: pages", "a page is in its place, and in one", damaged_pages},
    {"check_ring: roots", "a root is a page, or nothing", damaged_roots},
    {"check_ring: middle", "a ring ends where it begins, or behind", a_root_without_the_first_page},
    {"check_ring: base", "the first root is a leaf at the base", a_root_at_the_base},
    {"check_ring: places", "base, head and tail are within the ring", damaged_places},
};
SUBJECT(CASES)
