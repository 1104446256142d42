// SPDX-License-Identifier: Apache-2.0
/* sb_api_chunks: what keeps the chunks of a broker: slots of each class, and the queue that has most of them. */
#include <string.h>

#include "calls.h"
#include "sb_api.h"

#define A_LOT 1000u /* looks */
#define LEAST 16u   /* looks at each queue */
#define CLASSES (SB_MESSAGE_CLASSES + SB_KIND_COUNT)
#define HEADS 8u /* chunk of slots of two units */
#define PARTS 9u /* chunk of slots of four units */
#define HEAD (HEADS * SB_CHUNK_UNITS + 2)
#define GEN 5u

static sb_chunk_facts facts[SB_CHUNK_FACTS + 1];

static void look(uint64_t looks) {
  memset(facts, 0xff, SB_CHUNK_FACTS * sizeof facts[0]);
  memset(&facts[SB_CHUNK_FACTS], 0, sizeof facts[0]);
  expect_is(sb_broker_describe_chunks(t.c, looks, facts), SB_OK, "the status");
  expect_is(facts[SB_CHUNK_FACTS].held + facts[SB_CHUNK_FACTS].queue, 0, "what lies behind the rows");
}
static void set_chunk(uint32_t chunk, unsigned state, unsigned cls, unsigned run) {
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(state, 0, cls, run), SB_SEQ_CST);
}
static void use_slot(uint32_t chunk, uint32_t unit) {
  SB_STORE(&sb_chunk_meta(t.b, chunk)->headers[unit], sb_slot_word(SB_SLOT_ALLOC, 1, GEN), SB_SEQ_CST);
}
static sb_queue *queue_of(const char *name, unsigned messages) {
  sb_queue *q = open_new(name, UNLIMITED);
  for (unsigned i = 0; i < messages; i++) put(&t, q, i + 1);
  return q;
}
static sb_word *cell(const sb_queue *q, uint64_t at, uint64_t *gen) {
  sb_leaf_ref leaf;
  expect_is(sb_ring_locate(t.b, NULL, &q->lanes[0].ring, q->base + at, &leaf), SB_OK, "the status of a cell");
  *gen = leaf.gen;
  return &sb_leaf_cell(&leaf, q->base + at)->word;
}
static uint32_t slot_of(const sb_queue *q, uint64_t at) {
  uint64_t gen;
  return sb_cell_slot(SB_LOAD(cell(q, at, &gen), SB_ACQUIRE));
}
static void name_slot(const sb_queue *q, uint64_t at, uint32_t slot) {
  uint64_t gen;
  sb_word *word = cell(q, at, &gen);
  SB_STORE(word, sb_cell_open(SB_CELL_AVAILABLE, slot, 0, gen), SB_SEQ_CST);
}
static const sb_chunk_facts *of_slot(uint32_t slot) {
  return &facts[sb_chunk_class(SB_LOAD(&t.b->chunks[slot / SB_CHUNK_UNITS], SB_RELAXED))];
}
static const sb_chunk_facts *of_units(unsigned units) { return &facts[sb_class_for(t.b, units * SB_UNIT)]; }

/* ---- chunks ---- */

static void chunks_of_a_class(void) {
  unsigned four = sb_class_for(t.b, 4 * SB_UNIT), node = sb_class_of_kind(t.b, SB_KIND_NODE);
  set_chunk(8, SB_CHUNK_CLASS, four, 0);
  set_chunk(9, SB_CHUNK_DRAINING, four, 0);
  set_chunk(10, SB_CHUNK_CLAIMED, four, 0);
  use_slot(8, 0);
  use_slot(8, 5); /* not where a slot begins */
  use_slot(9, SB_CHUNK_UNITS - 4);
  look(A_LOT);
  expect_is(facts[four].chunks, 2, "chunks");
  expect_is(facts[four].slots, 2 * (SB_CHUNK_UNITS / 4), "slots");
  expect_is(facts[four].used, 2, "used");
  expect_is(facts[four].slot_bytes, 4 * SB_UNIT, "slot_bytes");
  expect_is(facts[four].kind, 0, "kind");
  expect_is(facts[four].held + facts[four].queue + facts[four].whole, 0, "what a queue has of them");
  expect_is(facts[node].chunks, 1, "chunks of nodes");
  expect_is(facts[node].kind, SB_KIND_NODE, "the kind of nodes");
  expect_is(facts[0].chunks + facts[0].slots + facts[0].used, 0, "what bodies have to themselves");
}
static void chunks_of_long_bodies(void) {
  set_chunk(4, SB_CHUNK_RUN, 0, 2);
  set_chunk(5, SB_CHUNK_TAIL, 0, 1);
  set_chunk(6, SB_CHUNK_RUN, 5, 1); /* a run has no class, whatever its bits say */
  set_chunk(7, SB_CHUNK_CLASS, CLASSES, 0);
  set_chunk(8, SB_CHUNK_CLASS, SB_MAX_CLASSES - 1, 0);
  use_slot(4, 0);
  use_slot(5, 0);
  use_slot(7, 0);
  look(A_LOT);
  expect_is(facts[0].chunks, 5, "chunks");
  expect_is(facts[0].slots, 2, "bodies");
  expect_is(facts[0].used, 1, "bodies in use");
  expect_is(facts[0].slot_bytes, 0, "slot_bytes");
  expect_is(facts[5].chunks + facts[CLASSES].chunks + facts[SB_MAX_CLASSES - 1].chunks, 0, "chunks of classes");
  for (unsigned i = 0; i < SB_CHUNK_FACTS; i++)
    expect_is(facts[i].held + facts[i].queue, 0, "what a queue has of them");
}
/* A segment that comes meanwhile is mapped before its chunks are looked at; if it cannot be, they are not. */
static test_broker another;
static void come_meanwhile(const char *site) {
  if (strstr(site, "sb_reserve.c") == NULL) return;
  at_step = NULL;
  if (another.b != NULL && !grow(another.b, another.path)) die("grow", 0);
  SB_STORE(&t.b->header->segments, 2u, SB_SEQ_CST);
  set_chunk(CHUNKS_PER_SEGMENT, SB_CHUNK_CLASS, sb_class_for(t.b, 4 * SB_UNIT), 0);
}
static void a_segment_that_comes_meanwhile(void) {
  if (!has_steps()) return;
  another = t;
  attach(&another);
  at_step = come_meanwhile;
  look(A_LOT);
  expect(at_step == NULL, "nothing came meanwhile");
  expect_is(of_units(4)->chunks, 1, "chunks");
}
static void a_segment_that_is_not_there(void) {
  if (!has_steps()) return;
  at_step = come_meanwhile;
  look(A_LOT);
  expect(at_step == NULL, "nothing came meanwhile");
  expect_is(of_units(4)->chunks, 0, "chunks");
}

/* ---- queues ---- */

static void the_queue_that_has_most(void) {
  char record[4096];
  sb_queue *two = queue_of("two", 2);
  const sb_chunk_facts *f = of_slot(slot_of(two, 0));
  look(20);
  expect_is(f->held, 2, "held by one queue");
  expect_is(f->queue, two->slot, "the only queue");
  expect_is(f->whole, 1, "whether all of it was looked at");
  for (unsigned i = 0; i < SB_CHUNK_FACTS; i++) {
    if (&facts[i] != f) expect_is(facts[i].held + facts[i].queue + facts[i].whole, 0, "what is held of another class");
  }
  (void)get(&t, two, record, true);
  look(A_LOT);
  expect_is(f->held, 1, "held after one was taken");
  for (unsigned i = 0; i < SB_CHUNK_FACTS; i++) {
    if (&facts[i] != f) expect_is(facts[i].held, 0, "what is held of another class after one was taken");
  }
  sb_queue *three = queue_of("three", 3), *also = queue_of("also", 3);
  look(A_LOT);
  uint32_t index = 0, slot;
  do slot = sb_queue_next(t.c, &index);
  while (slot == two->slot);
  expect_is(f->held, 3, "held by one of three queues");
  expect(slot == three->slot || slot == also->slot, "there is another queue");
  expect_is(f->queue, slot, "the first queue of those that have most");
  name_slot(two, 1, BROKER_CHUNKS * SB_CHUNK_UNITS); /* behind the broker */
  look(A_LOT);
  expect_is(f->held, 3, "held beside a cell that names nothing");
}
static void cells_that_are_not_believed(void) {
  uint64_t gen;
  sb_queue *q = queue_of("q", 2);
  const sb_chunk_facts *f = of_slot(slot_of(q, 0));
  sb_word *free_cell = cell(q, 2, &gen);
  SB_STORE(free_cell, sb_cell_open(SB_CELL_AVAILABLE, slot_of(q, 0), 0, gen + 1), SB_SEQ_CST);
  look(A_LOT);
  expect_is(f->held, 2, "held before a cell of another life of its page");
  expect_is(f->whole, 1, "whether all of it was looked at");
  name_slot(q, 1, 2 * CHUNKS_PER_SEGMENT * SB_CHUNK_UNITS); /* of a segment that there is not */
  look(A_LOT);
  expect_is(f->held, 1, "held beside a cell that names a slot that is not there");
  expect(f->whole == 1, "the queue was not looked at");
}
static void looks_are_bounded(void) {
  sb_queue *q = queue_of("q", 20);
  const sb_chunk_facts *f = of_slot(slot_of(q, 0));
  const struct {
    uint64_t looks, held, whole;
  } tries[] = {{0, LEAST, 0}, {15, LEAST, 0}, {17, 17, 0}, {19, 19, 0}, {20, 20, 1}, {A_LOT, 20, 1}};
  for (unsigned i = 0; i < sizeof tries / sizeof tries[0]; i++) {
    look(tries[i].looks);
    expect_is(f->held, tries[i].held, "held");
    expect_is(f->whole, tries[i].whole, "whether all of it was looked at");
  }
  for (unsigned i = 20; i < SB_PAGE_CELLS; i++) put(&t, q, i);
  look(SB_PAGE_CELLS);
  expect_is(f->held, SB_PAGE_CELLS, "held of a full page");
  expect_is(f->whole, 1, "whether all was looked at when the looks end with the page");
  look(SB_PAGE_CELLS - 1);
  expect_is(f->whole, 0, "whether all was looked at with one look less");
}
static sb_queue *closing;
static unsigned loads;
static void lose_the_queue(const char *site) {
  if (strstr(site, "sb_directory.c") != NULL) loads = 0;
  if (strstr(site, "sb_slab.c") == NULL || ++loads < 2) return;
  at_step = NULL;
  set_chunk(closing->slot / SB_CHUNK_UNITS, SB_CHUNK_TAIL, 0, 1);
}
static void a_queue_that_goes_meanwhile(void) {
  if (!has_steps()) return;
  closing = queue_of("q", 2);
  const sb_chunk_facts *f = of_slot(slot_of(closing, 0));
  loads = 0;
  at_step = lose_the_queue;
  look(A_LOT);
  expect(at_step == NULL, "the queue did not go");
  expect_is(f->held, 0, "held by a queue that went");
}

/* ---- parts ---- */

/* A body in this many parts is the first message of the queue. */
static void scatter(const sb_queue *q, uint32_t parts) {
  set_chunk(HEADS, SB_CHUNK_CLASS, sb_class_for(t.b, 2 * SB_UNIT), 0);
  set_chunk(PARTS, SB_CHUNK_CLASS, sb_class_for(t.b, 4 * SB_UNIT), 0);
  sb_parts_begin(t.c, HEAD, GEN);
  for (uint32_t i = 0; i < parts; i++) sb_parts_add(t.b, HEAD, GEN, PARTS * SB_CHUNK_UNITS + 4 * i, GEN);
  SB_STORE(sb_slot_header(t.b, HEAD), sb_slot_word(SB_SLOT_PUBLISHED, 1 | UINT64_C(1) << SB_PARTS_REF, GEN),
           SB_SEQ_CST);
  name_slot(q, 0, HEAD);
}
static void parts_of_a_body(void) {
  sb_queue *q = queue_of("q", 1);
  scatter(q, 20);
  look(A_LOT);
  expect_is(of_units(2)->held, 1, "heads");
  expect_is(of_units(4)->held, 20, "parts");
  expect_is(of_units(4)->queue, q->slot, "the queue that has them");
  look(0);
  expect_is(of_units(4)->held, LEAST - 1, "parts, with few looks");
  expect_is(of_units(4)->whole, 0, "whether all parts were looked at");
  ((sb_part_shm *)sb_slot_at(t.b, PARTS * SB_CHUNK_UNITS))->head = 1; /* the last one of the row */
  look(A_LOT);
  expect_is(of_units(4)->held, 19, "parts before one of another head");
  SB_STORE(sb_slot_header(t.b, HEAD), sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN), SB_SEQ_CST);
  look(A_LOT);
  expect_is(of_units(4)->held, 0, "parts of a body in one piece");
}
/* The end of a row costs no look: the next queue has it. */
static void looks_at_parts(void) {
  sb_queue *a = queue_of("a", 1), *b = queue_of("b", 1);
  uint32_t index = 0, first = sb_queue_next(t.c, &index);
  sb_queue *before = first == a->slot ? a : b, *after = before == a ? b : a;
  scatter(before, 1);
  for (unsigned i = 0; i < 30; i++) put(&t, after, i);
  look(2 + LEAST + 1);
  expect_is(of_slot(slot_of(after, 0))->held, LEAST + 1, "held by the second queue");
}

static void who_may_not_look(void) {
  sb_chunk_facts none[SB_CHUNK_FACTS];
  memset(none, 0xff, sizeof none);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    memset(facts, 0xff, sizeof facts);
    expect_is(sb_broker_describe_chunks(t.c, A_LOT, facts), REFUSAL[i], "the status of a refusal");
    expect(memcmp(facts, none, sizeof none) == 0, "a refusal has facts");
  }
  refuse(t.c, SB_OK);
  SB_STORE(&t.b->header->segments, 1000u, SB_SEQ_CST);
  expect_is(sb_broker_describe_chunks(t.c, A_LOT, facts), SB_CORRUPT, "the status of a broken broker");
  expect(memcmp(facts, none, sizeof none) == 0, "a broken broker has facts");
}

static const test_case CASES[] = {
    {"api_chunks: class", "slots of a class are counted, and those in use", chunks_of_a_class},
    {"api_chunks: runs", "what has no class counts as long bodies", chunks_of_long_bodies},
    {"api_chunks: grown", "a segment that comes meanwhile is mapped first", a_segment_that_comes_meanwhile},
    {"api_chunks: not there", "a segment that is not there has no chunks", a_segment_that_is_not_there},
    {"api_chunks: most", "the first queue that holds most is named", the_queue_that_has_most},
    {"api_chunks: cells", "cells that are not the queue's are not counted", cells_that_are_not_believed},
    {"api_chunks: looks", "looks are bounded, but for a few at each queue", looks_are_bounded},
    {"api_chunks: gone", "a queue that goes meanwhile holds nothing", a_queue_that_goes_meanwhile},
    {"api_chunks: parts", "parts are counted with their head", parts_of_a_body},
    {"api_chunks: row", "the end of a row of parts costs no look", looks_at_parts},
    {"api_chunks: refused", "a connection that is refused gets no facts", who_may_not_look},
};
SUBJECT(CASES)
