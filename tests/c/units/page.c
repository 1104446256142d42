// SPDX-License-Identifier: Apache-2.0
/* sb_page: pages that are created, and the walk to them. The memory of a new page is dirty, like that of a slot that
 * was used before. Retired pages: page_retired.c. */
#include "sb_page.h"

#include <string.h>

#include "cells.h"
#include "meanwhile.h"
#include "sb_slab.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define KEEPING ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_KEEPS})
#define FULL ~UINT64_C(0)
#define DIRT UINT64_C(0x5555555555555555)

static sb_queue *q;
static sb_page_ref p;
static unsigned skip;

static unsigned class_of(unsigned kind) { return SB_MESSAGE_CLASSES + kind; }
/* All free slots of that kind are dirty. */
static void make_dirty(unsigned kind) {
  for (uint32_t chunk = 0; chunk < t.b->mapped_chunks; chunk++) {
    uint64_t word = SB_LOAD(&t.b->chunks[chunk], SB_RELAXED);
    if (sb_chunk_state(word) != SB_CHUNK_CLASS || sb_chunk_class(word) != class_of(kind)) continue;
    uint32_t units = sb_class_units(class_of(kind));
    for (uint32_t i = 0; i < SB_CHUNK_UNITS / units; i++) {
      uint32_t slot = chunk * SB_CHUNK_UNITS + i * units;
      if (sb_slot_state(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)) == SB_SLOT_FREE)
        memset(sb_slot_at(t.b, slot), 0x55, (size_t)units * SB_UNIT);
    }
  }
}
/* A slot of the kind is taken and freed, so that there is a chunk of it. */
static void open_chunk(unsigned kind) {
  uint64_t token, gen;
  uint32_t slot;
  while (sb_holding_object(t.c, kind, &token, &slot, &gen) == SB_GROW) (void)grow(t.b, t.path);
  (void)sb_slab_free_gen(t.b, slot, gen);
  sb_holding_give(t.c, token);
}
static void begin(sb_settings settings) {
  const unsigned kinds[] = {SB_KIND_LEAF, SB_KIND_LONG_LEAF, SB_KIND_INNER};
  q = begin_queue("q", settings, 0);
  for (unsigned i = 0; i < 3; i++) open_chunk(kinds[i]), make_dirty(kinds[i]);
}
static sb_status walk(uint64_t position, unsigned height) {
  p = (sb_page_ref){.slot = 1};
  skip = 99;
  return sb_page_descend(t.b, NULL, &q->lanes[0].ring, position, height, &p, &skip);
}
static sb_status make(uint64_t position, unsigned height) {
  p = (sb_page_ref){.slot = 1};
  return sb_page_descend(t.b, t.c, &q->lanes[0].ring, position, height, &p, &skip);
}
static uint64_t root(void) { return SB_LOAD(q->lanes[0].ring.root, SB_RELAXED); }
static void set_root(uint64_t link) { SB_STORE(q->lanes[0].ring.root, link, SB_RELAXED); }
/* The empty ring begins at that position, a multiple of 64. */
static void begin_at(uint64_t base) {
  SB_STORE(q->lanes[0].ring.base, base, SB_RELAXED);
  SB_STORE(q->lanes[0].ring.from, base, SB_RELAXED);
  set_root(sb_link_empty(base / SB_PAGE_CELLS));
}
static uint64_t child(const sb_page_ref *of, unsigned i) { return SB_LOAD(&sb_page_children(of)[i], SB_RELAXED); }
static void set_child(const sb_page_ref *of, unsigned i, uint64_t link) {
  SB_STORE(&sb_page_children(of)[i], link, SB_RELAXED);
}
static uint64_t next_holding(void) {
  uint64_t token = new_token();
  sb_holding_give(t.c, token);
  return token;
}

/* ---- kinds and links ---- */

static void kinds_of_pages(void) {
  begin(KEEPING);
  sb_ring list = q->lanes[0].ring;
  list.id = SB_RING_ROOM;
  expect_is(sb_page_kind(t.b, &q->lanes[0].ring, 0), SB_KIND_LONG_LEAF, "a leaf of messages that keep their sequence");
  expect_is(sb_page_kind(t.b, &q->lanes[0].ring, 1), SB_KIND_INNER, "an inner page");
  expect_is(sb_page_kind(t.b, &list, 0), SB_KIND_LEAF, "a leaf of a list of that queue");
  SB_STORE(&q->shm->flags, ~(unsigned)SB_QUEUE_KEEPS, SB_RELAXED);
  expect_is(sb_page_kind(t.b, &q->lanes[0].ring, 0), SB_KIND_LEAF, "a leaf of other messages");
}
static void what_pages_cover(void) {
  volatile unsigned top = SB_MAX_HEIGHT; /* no shift of that many bits is tried */
  expect(sb_page_covers(0, 0, 63) && !sb_page_covers(0, 0, 64), "a leaf covers something else");
  expect(sb_page_covers(0, 127, 64) && !sb_page_covers(0, 127, 63), "the second leaf covers something else");
  expect(sb_page_covers(1, 0, 4095) && !sb_page_covers(1, 0, 4096), "a page of leaves covers something else");
  expect(sb_page_covers(top, 0, UINT64_MAX), "the highest page does not cover all");
  expect_is(sb_page_first(0, 130), 128, "the first position of a leaf");
  expect_is(sb_page_first(1, 5000), 4096, "the first position of a page of leaves");
  expect_is(sb_page_first(top, UINT64_MAX), 0, "the first position of the highest page");
}
static void pages_behind_links(void) {
  begin(FREE_SETTINGS);
  expect_is(make(5000, 1), SB_OK, "the status");
  uint64_t link = sb_link_word(1, p.slot, p.gen);
  sb_page_ref made = p, found = {0};
  expect(sb_page_of(t.b, link, 5000, &found), "no page is behind its link");
  expect(found.page == made.page && found.slot == made.slot && found.gen == made.gen, "another page is");
  expect_is(found.height, 1, "its height");
  expect_is(found.first, 4096, "its first position");
  expect(!sb_page_of(t.b, (link & ~UINT64_C(3)) | SB_LINK_DONE, 5000, &found), "a page is behind a link that is done");
  expect(!sb_page_of(t.b, sb_link_word(1, made.slot, made.gen + 1), 5000, &found), "a page of another generation is");
  expect(!sb_page_of(t.b, sb_link_word(0, made.slot, made.gen), 5000, &found), "a leaf is");
  expect(sb_page_of(t.b, sb_link_word(SB_MAX_HEIGHT, made.slot, made.gen), 5000, &found), "no highest page is");
  expect(!sb_page_of(t.b, sb_link_word(SB_MAX_HEIGHT + 1, made.slot, made.gen), 5000, &found), "a higher page is");
  SB_STORE(sb_slot_header(t.b, made.slot), sb_slot_word(SB_SLOT_FREE, 0, made.gen), SB_RELAXED);
  expect(!sb_page_of(t.b, link, 5000, &found), "a page that is free is");
}

/* ---- pages that are made ---- */

static const uint64_t *behind_cells(uint64_t bytes) { return (const uint64_t *)((const char *)p.page + bytes); }
static void expect_header(unsigned height, uint64_t first, const char *what) {
  expect_is(p.height, height, what);
  expect_is(p.first, first, what);
  expect_is(p.page->object, q->slot, what);
  expect_is(p.page->ring, SB_RING_CELLS | height << 8, what);
  expect_is(p.page->first, first, what);
  expect_is(p.page->requeued, 0, what);
  expect_is(SB_LOAD(sb_slot_header(t.b, p.slot), SB_RELAXED), sb_slot_word(SB_SLOT_PUBLISHED, 1, p.gen), what);
}
static void expect_leaf(uint64_t first) {
  const sb_leaf_shm *leaf = (const sb_leaf_shm *)p.page;
  expect_header(0, first, "the header of a leaf");
  expect_is(p.page->done, 0, "what is done in a leaf");
  for (unsigned i = 0; i < SB_PAGE_CELLS / 8; i++) expect_is(leaf->finished[i], 0, "what is finished in a leaf");
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) {
    expect_is(leaf->cells[i].word, sb_cell_bare(SB_CELL_FREE, p.gen), "a cell");
    expect_is(leaf->cells[i].side, 0, "a side record");
  }
}
static void a_leaf_is_made(void) {
  begin(FREE_SETTINGS);
  uint64_t token = next_holding();
  expect_is(make(5, 0), SB_OK, "the status");
  expect_leaf(0);
  expect_is(*behind_cells(sizeof(sb_leaf_shm)), DIRT, "the word behind the cells");
  expect_is(root(), sb_link_word(0, p.slot, p.gen), "the root");
  expect_is(next_holding(), token, "the holding that was taken for it");
}
static void a_long_leaf_is_made(void) {
  begin(KEEPING);
  expect_is(make(5, 0), SB_OK, "the status");
  expect_leaf(0);
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++)
    expect_is(((const sb_long_leaf_shm *)p.page)->origins[i], SB_NO_ORIGIN, "an origin");
  expect_is(*behind_cells(sizeof(sb_long_leaf_shm)), DIRT, "the word behind the origins");
}
/* In an inner page all that lies before the ring's base is done. */
static void inner_pages_are_made(void) {
  begin(FREE_SETTINGS);
  begin_at(3 * 64);
  expect_is(make(256, 1), SB_OK, "the status");
  expect_header(1, 0, "the header of an inner page");
  expect_is(p.page->done, 7, "what is done");
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++)
    expect_is(child(&p, i), i < 3 ? SB_LINK_DONE : sb_link_empty(p.gen), "a link");
  expect_is(*behind_cells(sizeof(sb_inner_shm)), DIRT, "the word behind the links");
  expect_is(root(), sb_link_word(1, p.slot, p.gen), "the root");
  sb_page_ref inner = p;
  expect_is(make(200, 0), SB_OK, "the status of a leaf below it");
  expect_leaf(192);
  expect_is(child(&inner, 3), sb_link_word(0, p.slot, p.gen), "the link to the leaf");
}
/* The first root is a leaf at the base, however high that is. Later roots have the old one in its place, and nothing but DONE
 * links before it; a walk to a position before the base ends as if such pages existed above the root as well. */
static void a_root_at_the_base(void) {
  begin(FREE_SETTINGS);
  begin_at(4992);
  expect_is(make(4993, 0), SB_OK, "the status of the first leaf");
  expect_leaf(4992);
  expect_is(root(), sb_link_word(0, p.slot, p.gen), "the first root");
  uint64_t old = root();
  const uint64_t before[] = {4991, 4096, 4095, 0};
  const unsigned heights[] = {1, 1, 2, 2};
  for (unsigned i = 0; i < 4; i++) {
    expect_is(walk(before[i], 0), SB_DONE, "the status of a walk before the base");
    expect_is(skip, heights[i], "the height of the page that would have the link");
  }
  expect_is(make(5, 0), SB_DONE, "the status of a leaf before the base");
  expect_is(walk(5056, 0), SB_EMPTY, "the status of a walk behind the root");
  expect_is(root(), old, "the root after these");
  expect_is(make(5060, 0), SB_OK, "the status of a second leaf");
  expect_leaf(5056);
  expect_is(walk(5060, 1), SB_OK, "the status of the root");
  expect_is(root(), sb_link_word(1, p.slot, p.gen), "the second root");
  expect_is(p.first, 4096, "its first position");
  expect_is(p.page->first, 4096, "its first position, as stored");
  expect_is(p.page->requeued, 1 << 14, "its returned bits");
  expect_is(p.page->done, (1 << 14) - 1, "what is done in it");
  for (unsigned i = 0; i < 14; i++) expect_is(child(&p, i), SB_LINK_DONE, "a link before the base");
  expect_is(child(&p, 14), old, "the link to the first root");
  for (unsigned i = 0; i < 4; i++) {
    expect_is(walk(before[i], 0), SB_DONE, "the status of a walk before the base, then");
    expect_is(skip, heights[i], "the height of the page, then");
  }
  expect_is(walk(4993, 0), SB_OK, "the status of the first leaf, then");
  expect_is(p.first, 4992, "its first position");
}
/* The root grows: the old one is its first child, whose bits may say that something came back. */
static void the_root_grows(void) {
  begin(FREE_SETTINGS);
  expect_is(make(0, 0), SB_OK, "the status of a leaf");
  uint64_t old = root();
  expect_is(make(4096, 0), SB_OK, "the status of a leaf far away");
  expect_leaf(4096);
  expect_is(sb_link_height(root()), 2, "the height of the root");
  expect_is(walk(0, 2), SB_OK, "the status of the root");
  expect_is(p.page->requeued, 1, "the returned bits of the root");
  expect_is(p.page->done, 0, "what is done in the root");
  expect_is(walk(0, 1), SB_OK, "the status of the page below");
  expect_is(p.page->requeued, 1, "the returned bits of the page below");
  expect_is(child(&p, 0), old, "the old root");
}
static void a_finished_root_is_retired(void) {
  for (unsigned finished = 0; finished < 2; finished++) {
    if (finished == 0) begin(FREE_SETTINGS);
    if (finished == 1) q = begin_queue("finished", FREE_SETTINGS, 0);
    expect_is(make(0, 0), SB_OK, "the status of a leaf");
    sb_page_ref leaf = p;
    for (unsigned i = 0; i < SB_PAGE_CELLS; i++)
      SB_STORE(&((sb_leaf_shm *)leaf.page)->cells[i].word, sb_cell_bare(SB_CELL_TOMBSTONE, leaf.gen), SB_RELAXED);
    SB_STORE(&leaf.page->done, finished ? FULL : FULL - 1, SB_RELAXED);
    expect_is(make(64, 0), SB_OK, "the status of a second leaf");
    expect_is(walk(0, 0), finished ? SB_DONE : SB_OK, "the status of the first leaf");
    if (finished) expect_is(skip, 1, "the height of the link that is done");
  }
}

/* Two connections give the root a parent at one time: the one that comes too late uses the other's. */
static void grow_too(void) {
  sb_page_ref other;
  expect_is(sb_page_descend(t.b, t.c, &q->lanes[0].ring, 64, 0, &other, &skip), SB_OK, "the status of the other one");
}
static void a_root_that_grows_meanwhile(void) {
  begin(FREE_SETTINGS);
  expect_is(make(0, 0), SB_OK, "the status of a leaf");
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++)
    SB_STORE(&((sb_leaf_shm *)p.page)->cells[i].word, sb_cell_bare(SB_CELL_TOMBSTONE, p.gen), SB_RELAXED);
  SB_STORE(&p.page->done, FULL, SB_RELAXED);
  meanwhile(q->lanes[0].ring.root, BEFORE_CAS, 1, grow_too);
  expect_is(make(64, 0), SB_OK, "the status of a second leaf");
  (void)has_acted();
  expect_is(walk(0, 0), SB_DONE, "the status of the first leaf");
  expect_is(walk(64, 0), SB_OK, "the status of the second leaf");
  expect_is(sb_link_height(root()), 1, "the height of the root");
}

/* ---- no memory ---- */

static void use_up(unsigned kind) {
  uint64_t gen, token = new_token();
  uint32_t slot;
  grow_to(BROKER_CHUNKS - 1);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    uint64_t none = sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0);
    (void)SB_CAS(&t.b->chunks[i], &none, sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_ACQ_REL);
  }
  while (sb_slab_alloc(t.c, class_of(kind), token, &slot, &gen) == SB_OK) {
  }
}
static void no_memory_for_pages(void) {
  begin(FREE_SETTINGS);
  sb_queue *empty = q;
  uint64_t nothing = root();
  q = begin_queue("q2", FREE_SETTINGS, 0);
  expect_is(make(100, 0), SB_OK, "the status of a leaf");
  use_up(SB_KIND_LEAF);
  uint64_t token = next_holding();
  expect_is(make(200, 0), SB_NO_MEMORY, "the status of another leaf");
  expect_is(walk(200, 0), SB_EMPTY, "the status of its place");
  q = empty;
  expect_is(make(5, 0), SB_NO_MEMORY, "the status of a first leaf");
  expect_is(root(), nothing, "the root");
  expect_is(next_holding(), token, "the holding");
}
static void no_memory_for_the_root(void) {
  begin(FREE_SETTINGS);
  expect_is(make(5, 0), SB_OK, "the status of a leaf");
  use_up(SB_KIND_INNER);
  uint64_t is = root();
  expect_is(make(100, 0), SB_NO_MEMORY, "the status of a leaf behind the root");
  expect_is(root(), is, "the root");
}

/* A leaf that would be filled before it is linked: without a page above it there is none. */
static void no_leaf_is_prepared(void) {
  sb_page_fresh fresh = {0};
  begin(FREE_SETTINGS);
  begin_at(4160);
  expect_is(make(4160, 0), SB_OK, "the status of a leaf");
  expect_is(make(4224, 0), SB_OK, "the status of another leaf");
  uint64_t token = next_holding();
  expect_is(sb_page_prepare_leaf(t.c, &q->lanes[0].ring, 4224, &fresh), SB_EMPTY, "the status where a leaf is");
  expect_is(sb_page_prepare_leaf(t.c, &q->lanes[0].ring, 4096, &fresh), SB_EMPTY, "the status of what is done");
  expect_is(sb_page_prepare_leaf(t.c, &q->lanes[0].ring, 0, &fresh), SB_EMPTY, "the status of what is before the root");
  expect_is(next_holding(), token, "the holding where a leaf is, or was");
  q = begin_queue("q2", FREE_SETTINGS, 0);
  expect_is(make(5, 0), SB_OK, "the status of a leaf that is the root");
  use_up(SB_KIND_INNER);
  token = next_holding();
  expect_is(sb_page_prepare_leaf(t.c, &q->lanes[0].ring, 64, &fresh), SB_NO_MEMORY, "the status without memory");
  expect_is(next_holding(), token, "the holding without memory");
}

static void prepare(sb_page_fresh *fresh) {
  expect_is(sb_page_prepare_leaf(t.c, &q->lanes[0].ring, 64, fresh), SB_OK, "the status of a leaf that is prepared");
}
static void expect_dropped(const sb_page_fresh *fresh, uint64_t token, const char *what) {
  uint64_t header = SB_LOAD(sb_slot_header(t.b, fresh->leaf.slot), SB_RELAXED);
  expect(sb_slot_state(header) == SB_SLOT_FREE, "%s is not freed", what);
  expect_is(next_holding(), token, what);
}
/* The leaf was prepared, and is not needed: its slot and its holding are free again. */
static void a_prepared_leaf_is_dropped(void) {
  sb_page_fresh fresh = {0};
  begin(FREE_SETTINGS);
  expect_is(make(0, 0), SB_OK, "the status of a first leaf");
  uint64_t token = next_holding();
  prepare(&fresh);
  expect_is(walk(64, 0), SB_EMPTY, "the status of its place");
  sb_page_drop_leaf(t.c, &fresh);
  expect_dropped(&fresh, token, "a leaf that is dropped");
  prepare(&fresh);
  expect_is(make(64, 0), SB_OK, "the status of another leaf in its place");
  expect(!sb_page_link_leaf(t.c, &fresh), "the leaf is linked in the place of another one");
  expect_dropped(&fresh, token, "a leaf in whose place another one is");
  expect_is(walk(64, 0), SB_OK, "the status of that other one");
  expect(p.slot != fresh.leaf.slot, "the dropped leaf is linked");
}

/* ---- walking ---- */

static void where_a_walk_ends(void) {
  begin(FREE_SETTINGS);
  expect_is(walk(0, 0), SB_EMPTY, "the status without a root");
  expect_is(make(5000, 0), SB_OK, "the status of a leaf");
  expect_is(walk(5000, 0), SB_OK, "the status of the walk to it");
  expect_is(p.first, 4992, "its first position");
  expect_is(walk(64, 0), SB_EMPTY, "the status where no leaf is");
  expect_is(walk(4096, 0), SB_EMPTY, "the status where no leaf is, in a page");
  expect_is(walk(5000, 3), SB_EMPTY, "the status above the root");
  expect_is(walk(64 * 4096, 0), SB_EMPTY, "the status behind the root");
  expect_is(walk((UINT64_C(1) << 60) - 1, 0), SB_EMPTY, "the status of the last position");
  expect_is(walk(UINT64_C(1) << 60, 0), SB_CORRUPT, "the status of what is no position");
  expect_is(make(UINT64_C(1) << 60, 0), SB_CORRUPT, "the status of what is no position, to be made");
  expect_is(walk(5000, 1), SB_OK, "the status of an inner page");
  sb_page_ref inner = p;
  set_child(&inner, 14, SB_LINK_DONE);
  expect_is(walk(5000, 0), SB_DONE, "the status of what is done");
  expect_is(skip, 1, "the height of the link");
  expect_is(walk(5000, 2), SB_OK, "the status of the root");
  set_child(&p, 1, SB_LINK_DONE);
  expect_is(walk(5000, 0), SB_DONE, "the status of what is done in the root");
  expect_is(skip, 2, "the height of its link");
}
/* A link that leads to a page of another generation, or of another height, is damage: it is told, not followed. */
static void broken_links(void) {
  begin(FREE_SETTINGS);
  expect_is(make(5000, 0), SB_OK, "the status of a leaf");
  sb_page_ref leaf = p;
  uint64_t is = root();
  set_root(sb_link_word(sb_link_height(is), sb_link_slot(is), sb_link_gen(is) + 1));
  expect_is(walk(5000, 0), SB_CORRUPT, "the status of a root of another generation");
  set_root(is);
  expect_is(walk(5000, 2), SB_OK, "the status of the root");
  sb_page_ref top = p;
  is = child(&top, 1);
  set_child(&top, 1, sb_link_word(0, leaf.slot, leaf.gen));
  expect_is(walk(5000, 0), SB_CORRUPT, "the status of a page of another height");
  set_child(&top, 1, sb_link_word(1, sb_link_slot(is), sb_link_gen(is) + 1));
  expect_is(walk(5000, 0), SB_CORRUPT, "the status of a page of another generation");
}
/* A root of the greatest height covers all positions, whatever its header says. */
static void a_broken_first_position(void) {
  begin(FREE_SETTINGS);
  expect_is(make(5000, 0), SB_OK, "the status of a leaf");
  expect_is(walk(5000, 2), SB_OK, "the status of the root");
  SB_STORE(&p.page->first, 9000, SB_RELAXED);
  set_root(sb_link_word(SB_MAX_HEIGHT, p.slot, p.gen));
  expect_is(walk(5000, SB_MAX_HEIGHT), SB_OK, "the status of the highest root");
  expect_is(p.first, 0, "its first position");
}

static const test_case CASES[] = {
    {"page: kinds", "leaves of messages that keep their sequence are long", kinds_of_pages},
    {"page: covers", "a page covers 64 pages of the height below", what_pages_cover},
    {"page: links", "a link leads to the page of its generation and height", pages_behind_links},
    {"page: leaf", "a new leaf has free cells of its generation, and nothing of its slot's last life", a_leaf_is_made},
    {"page: long leaf", "a new long leaf has no origins", a_long_leaf_is_made},
    {"page: inner", "a new inner page has links that are empty, or done before the base", inner_pages_are_made},
    {"page: base", "the first root is a leaf, however high the base of the ring is", a_root_at_the_base},
    {"page: growth", "a root that grows has the old one as its first child", the_root_grows},
    {"page: old root", "an old root that is finished is retired when it gets a parent", a_finished_root_is_retired},
    {"page: two roots", "of two roots that are made at one time one is used", a_root_that_grows_meanwhile},
    {"page: no leaf", "without memory for a leaf nothing changes", no_memory_for_pages},
    {"page: no root", "without memory for a root nothing changes", no_memory_for_the_root},
    {"page: not prepared", "no leaf is prepared where one is, or was, or without memory", no_leaf_is_prepared},
    {"page: dropped", "a prepared leaf that is not linked is freed", a_prepared_leaf_is_dropped},
    {"page: walk", "a walk says where it ends", where_a_walk_ends},
    {"page: broken", "a walk does not follow broken links", broken_links},
    {"page: first", "the highest root covers all positions", a_broken_first_position},
};
SUBJECT(CASES)
