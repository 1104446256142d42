// SPDX-License-Identifier: Apache-2.0
/* sb_check_slab: findings of the doctor in classes, chunks and slots, each damaged alone; and that it finds nothing
 * where nothing is damaged. */
#include <string.h>

#include "checkup.h"
#include "sb_parts.h"

#define CHUNK 8u
#define NEXT 9u
#define SLOT (CHUNK * SB_CHUNK_UNITS)
#define GEN 7u
#define DEAD 55u /* a number without a connection */
#define HIGH (UINT64_C(1) << SB_PARTS_REF)

static unsigned units;

static void set_chunk(uint32_t chunk, unsigned state, unsigned cls, unsigned run) {
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(state, 0, cls, run), SB_RELAXED);
}
static uint64_t chunk_word(uint32_t chunk) { return SB_LOAD(&t.b->chunks[chunk], SB_RELAXED); }
static uint32_t at(uint32_t i) { return SLOT + i * units; }
static uint64_t header_of(uint32_t slot) { return SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED); }
static void set_header(uint32_t slot, unsigned state, uint64_t field) {
  SB_STORE(sb_slot_header(t.b, slot), sb_slot_word(state, field, GEN), SB_RELAXED);
}
/* A chunk of that kind, whose slots are free. */
static void open(unsigned kind) {
  units = kind == SB_KIND_MESSAGE ? 4 : sb_class_units(sb_class_of_kind(t.b, kind));
  set_chunk(CHUNK, SB_CHUNK_CLASS, kind == SB_KIND_MESSAGE ? 4 : sb_class_of_kind(t.b, kind), 0);
  for (uint32_t i = 0; i < SB_CHUNK_UNITS; i++) set_header(SLOT + i, SB_SLOT_FREE, 0);
  memset(sb_slot_at(t.b, SLOT), 0, SB_CHUNK_BYTES);
}
static void expect_clean(const char *what) {
  sb_check_chunks(&checkup);
  expect_no_finding(what);
  found_nothing();
}
static void expect_slot(unsigned code, unsigned which, unsigned of, uint64_t found, uint64_t expected,
                        const char *what) {
  sb_check_chunks(&checkup);
  expect_finding((sb_finding){code, 0, SLOT, which, of, 0, found, expected}, what);
}

/* ---- what begins where ---- */

static void what_begins_where(void) {
  begin_checkup();
  open(SB_KIND_NODE);
  expect_is(sb_check_kind(&checkup, SLOT), SB_KIND_NODE, "the kind of a node");
  expect_is(sb_check_kind(&checkup, SLOT + units), SB_KIND_NODE, "the kind of the next node");
  expect(!sb_check_is(&checkup, SLOT, SB_KIND_NODE), "a free slot is a node");
  set_header(SLOT, SB_SLOT_ALLOC, t.c->id);
  expect(sb_check_is(&checkup, SLOT, SB_KIND_NODE), "a node is none");
  expect(!sb_check_is(&checkup, SLOT, SB_KIND_LEAF), "a node is a leaf");
  open(SB_KIND_LEAF);
  expect_is(sb_check_kind(&checkup, SLOT + 1), SB_KIND_NONE, "the kind of the middle of a slot");
  open(SB_KIND_MESSAGE);
  expect_is(sb_check_kind(&checkup, SLOT), SB_KIND_MESSAGE, "the kind of a message");
  set_chunk(CHUNK, SB_CHUNK_CLASS, SB_MESSAGE_CLASSES, 0);
  expect_is(sb_check_kind(&checkup, SLOT), SB_KIND_MESSAGE, "the kind of the longest slot");
  set_chunk(CHUNK, SB_CHUNK_RUN, 63, 1);
  expect_is(sb_check_kind(&checkup, SLOT), SB_KIND_MESSAGE, "the kind of a run");
  set_chunk(CHUNK, SB_CHUNK_FREE, 4, 0);
  expect_is(sb_check_kind(&checkup, SLOT), SB_KIND_NONE, "the kind of a slot in a free chunk");
  set_chunk(0, SB_CHUNK_CLASS, 4, 0);
  expect_is(sb_check_kind(&checkup, 0), SB_KIND_NONE, "the kind of slot 0");
  open(SB_KIND_MESSAGE);
  checkup.chunks = CHUNK;
  expect_is(sb_check_kind(&checkup, SLOT), SB_KIND_NONE, "the kind of a slot behind what is looked at");
  checkup.chunks = CHUNK + 1;
  expect_is(sb_check_kind(&checkup, SLOT), SB_KIND_MESSAGE, "the kind of a slot in the last chunk");
}

static void damaged_classes(void) {
  unsigned last = sb_class_of_kind(t.b, SB_KIND_COUNT - 1);
  begin_checkup();
  sb_check_classes(&checkup);
  expect_no_finding("all classes");
  for (unsigned cls = 1; cls <= last; cls += last - 1) {
    sb_class_shm *k = &t.b->classes[cls], was = *k;
    SB_STORE(&k->units, 99u, SB_RELAXED);
    sb_check_classes(&checkup);
    expect_finding((sb_finding){SB_BAD_CLASS, 0, cls, 0, 0, 0, 99, was.units}, "the units of a class");
    *k = was;
    SB_STORE(&k->kind, 98u, SB_RELAXED);
    sb_check_classes(&checkup);
    expect_finding((sb_finding){SB_BAD_CLASS, 0, cls, 1, 0, 0, 98, was.kind}, "the kind of a class");
    *k = was;
    SB_STORE(&k->hint_chunk, BROKER_CHUNKS, SB_RELAXED);
    sb_check_classes(&checkup);
    expect_no_finding("a hint to the last chunk");
    SB_STORE(&k->hint_chunk, BROKER_CHUNKS + 1, SB_RELAXED);
    sb_check_classes(&checkup);
    expect_finding((sb_finding){SB_BAD_CLASS, 0, cls, 2, 0, 0, BROKER_CHUNKS + 1, BROKER_CHUNKS}, "a hint of a class");
    *k = was;
  }
  SB_STORE(&t.b->classes[last + 1].units, 99u, SB_RELAXED);
  SB_STORE(&t.b->classes[0].units, 99u, SB_RELAXED);
  sb_check_classes(&checkup);
  expect_no_finding("what is no class");
}

/* ---- slots ---- */

static void free_slots(void) {
  begin_checkup();
  open(SB_KIND_MESSAGE);
  expect_clean("free slots");
  set_header(SLOT, SB_SLOT_FREE, 1);
  expect_slot(SB_BAD_SLOT, 0, SB_KIND_MESSAGE, header_of(SLOT), 0, "a free slot with a reference");
  set_header(SLOT, SB_SLOT_FREE, 0);
  uint32_t last = SLOT + SB_CHUNK_UNITS - units;
  set_header(last, SB_SLOT_FREE, 1);
  sb_check_chunks(&checkup);
  expect_finding((sb_finding){SB_BAD_SLOT, 0, last, 0, 0, 0, header_of(last), 0}, "the last slot of a chunk");
}
static void slots_with_an_owner(void) {
  begin_checkup();
  open(SB_KIND_MESSAGE);
  set_header(SLOT, SB_SLOT_ALLOC, DEAD);
  expect_slot(SB_BAD_OWNER, 0, SB_KIND_MESSAGE, DEAD, 0, "a slot of nobody");
  set_header(SLOT, SB_SLOT_ALLOC, t.c->id);
  expect_slot(SB_UNLISTED, 0, SB_KIND_MESSAGE, t.c->id, 0, "a slot that its owner does not list");
  checkup.seen[SLOT] = SB_KNOWN_TO_OWNER;
  expect_clean("a slot that its owner lists");
  set_chunk(0, SB_CHUNK_CLASS, 4, 0);
  for (uint32_t i = 0; i < SB_CHUNK_UNITS; i++) set_header(i, SB_SLOT_FREE, 0);
  set_header(0, SB_SLOT_ALLOC, DEAD);
  expect_clean("slot 0, which is nobody's");
}
/* Who drains a chunk of structures takes their slots and lists none of them. */
static void slots_that_are_drained(void) {
  begin_checkup();
  open(SB_KIND_LEAF);
  set_header(SLOT, SB_SLOT_ALLOC, SB_SLOT_DRAINED | t.c->id);
  expect_clean("a leaf that is drained");
  set_header(SLOT, SB_SLOT_ALLOC, t.c->id);
  expect_slot(SB_UNLISTED, 0, SB_KIND_LEAF, t.c->id, 0, "a leaf that is not drained");
  set_header(SLOT, SB_SLOT_ALLOC, SB_SLOT_DRAINED | DEAD);
  expect_slot(SB_BAD_OWNER, 0, SB_KIND_LEAF, DEAD, 0, "a leaf that nobody drains");
  open(SB_KIND_MESSAGE);
  set_header(SLOT, SB_SLOT_ALLOC, SB_SLOT_DRAINED | t.c->id);
  expect_slot(SB_UNLISTED, 0, SB_KIND_MESSAGE, t.c->id, 0, "a message that is drained");
}
static void slots_that_are_parts(void) {
  begin_checkup();
  open(SB_KIND_MESSAGE);
  sb_parts_begin(t.c, at(1), GEN);
  checkup.seen[at(1)] = SB_KNOWN_TO_OWNER;
  sb_parts_add(t.b, at(1), GEN, SLOT, GEN);
  expect_clean("a part");
  sb_parts_add(t.b, at(1), GEN + 1, SLOT, GEN);
  expect_slot(SB_LEAKED_SLOT, 0, SB_KIND_MESSAGE, 0, 0, "a part whose head is gone");
  open(SB_KIND_LEAF);
  set_header(SLOT, SB_SLOT_ALLOC, SB_SLOT_PART);
  expect_slot(SB_BAD_OWNER, 0, SB_KIND_LEAF, 0, 0, "a leaf that is a part");
}
static void slots_that_are_read(void) {
  begin_checkup();
  open(SB_KIND_MESSAGE);
  uint64_t mine = SB_FIELD(t.c->id, SB_READ_REFS);
  set_header(SLOT, SB_SLOT_READ, mine);
  expect_slot(SB_UNLISTED, 0, SB_KIND_MESSAGE, t.c->id, 0, "a slot whose reader does not list it");
  checkup.seen[SLOT] = SB_KNOWN_TO_OWNER;
  expect_clean("a slot that is read, and settled");
  set_header(SLOT, SB_SLOT_READ, 1 | mine);
  expect_slot(SB_LEAKED_SLOT, 0, SB_KIND_MESSAGE, 1, 0, "a slot that is read, with a reference of nobody");
  set_header(SLOT, SB_SLOT_READ, 1 | SB_FIELD(DEAD, SB_READ_REFS));
  checkup.seen[SLOT] = 1;
  expect_slot(SB_BAD_OWNER, 0, SB_KIND_MESSAGE, DEAD, 0, "a slot that nobody reads");
  open(SB_KIND_LEAF);
  set_header(SLOT, SB_SLOT_READ, 1 | mine);
  expect_slot(SB_BAD_SLOT, 2, SB_KIND_LEAF, header_of(SLOT), 0, "a leaf that is read");
}
static void published_messages(void) {
  begin_checkup();
  open(SB_KIND_MESSAGE);
  set_header(SLOT, SB_SLOT_PUBLISHED, 5);
  expect_slot(SB_LEAKED_SLOT, 0, SB_KIND_MESSAGE, 5, 0, "a message of nobody");
  checkup.seen[SLOT] = 4;
  expect_slot(SB_LEAKED_SLOT, 0, SB_KIND_MESSAGE, 5, 4, "a message with a reference of nobody");
  checkup.seen[SLOT] = 5 | SB_KNOWN_TO_OWNER;
  expect_clean("a message");
  checkup.seen[SLOT] = 7;
  expect_clean("a message that lost a reference meanwhile");
  set_header(SLOT, SB_SLOT_PUBLISHED, 0);
  expect_slot(SB_LEAKED_SLOT, 0, SB_KIND_MESSAGE, 0, 7, "a message without references");
  sb_message_shm *m = sb_slot_at(t.b, SLOT);
  checkup.seen[SLOT] = 1;
  set_header(SLOT, SB_SLOT_PUBLISHED, HIGH | 1);
  expect_slot(SB_LEAKED_SLOT, 0, SB_KIND_MESSAGE, HIGH | 1, 1, "a message with a high reference of nobody");
  m->flags = SB_MESSAGE_IN_PARTS;
  expect_clean("a head");
}
/* Structures have one reference, or an owner. */
static void published_structures(void) {
  const unsigned owned[] = {SB_KIND_NODE, SB_KIND_CONNECTION, SB_KIND_HOLDINGS};
  const unsigned shared[] = {SB_KIND_LEAF,   SB_KIND_INNER,     SB_KIND_QUEUE,     SB_KIND_CONSUMER_LEVEL,
                             SB_KIND_LEDGER, SB_KIND_LONG_LEAF, SB_KIND_LONG_QUEUE};
  begin_checkup();
  for (unsigned i = 0; i < sizeof owned / sizeof owned[0]; i++) {
    open(owned[i]);
    set_header(SLOT, SB_SLOT_PUBLISHED, 1);
    checkup.seen[SLOT] = 1;
    expect_slot(SB_BAD_SLOT, 1, owned[i], header_of(SLOT), 0, "what has an owner is published");
  }
  for (unsigned i = 0; i < sizeof shared / sizeof shared[0]; i++) {
    open(shared[i]);
    set_header(SLOT, SB_SLOT_PUBLISHED, 1);
    checkup.seen[SLOT] = 1;
    expect_clean("a structure");
    checkup.seen[SLOT] = 0;
    expect_slot(SB_LEAKED_SLOT, 0, shared[i], 1, 0, "a structure that was not found in its place");
    checkup.seen[SLOT] = 3;
    set_header(SLOT, SB_SLOT_PUBLISHED, 3);
    expect_slot(SB_BAD_SLOT, 1, shared[i], header_of(SLOT), 0, "a structure with two references");
  }
}

/* ---- references ---- */

#define MANY 17u
static sb_block make_block(void) {
  uint32_t queues[MANY];
  sb_block k = {0};
  set_chunk(CHUNK, SB_CHUNK_CLASS, sb_class_for(t.b, 8192), 0);
  *(sb_message_shm *)sb_slot_at(t.b, SLOT) =
      (sb_message_shm){.body_offset = (uint32_t)(sizeof(sb_message_shm) + sb_block_bytes(MANY, 0)), .targets = MANY};
  set_header(SLOT, SB_SLOT_PUBLISHED, 1);
  for (uint32_t i = 0; i < MANY; i++) queues[i] = 10 * (i + 1);
  expect(sb_block_of(t.b, SLOT, &k), "there is no block");
  sb_block_fill(&k, queues);
  return k;
}
static void references_are_there(void) {
  begin_checkup();
  open(SB_KIND_MESSAGE);
  set_header(SLOT, SB_SLOT_PUBLISHED, 1u << (SB_MAX_REFS - 1) | 2);
  sb_reference r = {.slot = SLOT, .gen = GEN, .ref = 1};
  expect(sb_check_has(&checkup, &r), "a reference is not there");
  r.ref = SB_MAX_REFS - 1;
  expect(sb_check_has(&checkup, &r), "the last reference is not there");
  r.ref = 2;
  expect(!sb_check_has(&checkup, &r), "a reference is there");
  r = (sb_reference){.slot = SLOT, .gen = GEN + 1, .ref = 1};
  expect(!sb_check_has(&checkup, &r), "a reference of another message is there");
  sb_block k = make_block();
  sb_block_set(&k, 2, 0);
  sb_block_set(&k, 3, 2);
  sb_reference cell = {.slot = SLOT, .gen = GEN, .ref = SB_REF_BLOCK, .queue = 30};
  sb_reference view = {.slot = SLOT, .gen = GEN, .ref = SB_REF_VIEW + 2, .queue = 3};
  expect(sb_check_has(&checkup, &cell), "a cell's reference is not there");
  expect(sb_check_has(&checkup, &view), "a view's reference is not there");
  cell.queue = 29; /* it would stand where 30 stands */
  expect(!sb_check_has(&checkup, &cell), "a queue that is not among them has a reference");
  cell.queue = 40;
  expect(!sb_check_has(&checkup, &cell), "a cell's reference is there");
  view.ref = SB_REF_VIEW + 1;
  expect(!sb_check_has(&checkup, &view), "a view's reference is there");
  cell.ref = SB_MAX_REFS; /* what a damaged cell may say */
  expect(!sb_check_has(&checkup, &cell), "a number that no reference has is there");
  cell.ref = SB_REF_BLOCK;
  set_header(SLOT, SB_SLOT_PUBLISHED, 2);
  cell.queue = 30;
  expect(!sb_check_has(&checkup, &cell), "a reference is there without the block's own");
}
static void references_are_counted(void) {
  begin_checkup();
  sb_reference r = {.slot = SLOT, .ref = SB_MAX_REFS - 1};
  expect(sb_check_count(&checkup, &r), "the first was there before");
  expect(!sb_check_count(&checkup, &r), "the second was not there before");
  expect_is(checkup.seen[SLOT], 1u << (SB_MAX_REFS - 1), "what was seen");
  r.ref = SB_REF_BLOCK;
  for (unsigned i = 0; i < 3; i++) expect(sb_check_count(&checkup, &r), "one of a block was there before");
  expect_is(checkup.blocks[SLOT], 3, "how many of a block were seen");
  expect_is(checkup.seen[SLOT], 1u << (SB_MAX_REFS - 1) | 1, "what was seen of the block");
  r.ref = SB_MAX_REFS;
  expect(sb_check_count(&checkup, &r), "a number that no reference has was there before");
  expect_is(checkup.blocks[SLOT], 4, "how many were seen with a number behind those of the header");
  expect_is(checkup.seen[SLOT], 1u << (SB_MAX_REFS - 1) | 1, "what was seen with it");
}
/* The words of a structure are anything: here they read like those of a message with a block. */
static void a_structure_that_reads_like_a_block(void) {
  sb_block k;
  begin_checkup();
  open(SB_KIND_QUEUE);
  *(sb_message_shm *)sb_slot_at(t.b, SLOT) =
      (sb_message_shm){.body_offset = (uint32_t)(sizeof(sb_message_shm) + sb_block_bytes(MANY, 0)), .targets = MANY};
  expect(sb_block_of(t.b, SLOT, &k), "it does not read like a block");
  sb_block_set(&k, 2, 0);
  set_header(SLOT, SB_SLOT_PUBLISHED, 1);
  checkup.seen[SLOT] = 1;
  expect_clean("a queue");
}
/* A block has as many references as were found, no more and no less. */
static void references_of_a_block(void) {
  begin_checkup();
  open(SB_KIND_MESSAGE);
  sb_block k = make_block();
  sb_block_set(&k, 2, 0);
  sb_block_set(&k, 16, 0);
  checkup.seen[SLOT] = 1;
  checkup.blocks[SLOT] = 2;
  expect_clean("a block");
  checkup.blocks[SLOT] = 1;
  expect_slot(SB_LEAKED_SLOT, 0, SB_KIND_MESSAGE, 2, 1, "a block with a reference of nobody");
  checkup.blocks[SLOT] = 3;
  expect_slot(SB_SHARED_REFERENCE, 1, 0, 3, 2, "a block with a reference of two");
  ((sb_message_shm *)sb_slot_at(t.b, SLOT))->targets = 2;
  expect_slot(SB_SHARED_REFERENCE, 1, 0, 3, 0, "a block that is none");
  checkup.blocks[SLOT] = 0;
  expect_clean("a message without a block");
}

/* ---- nodes ---- */

static sb_node_shm *make_node(unsigned state, unsigned connection, uint32_t flags) {
  open(SB_KIND_NODE);
  sb_node_shm *n = sb_slot_at(t.b, SLOT);
  set_header(SLOT, SB_SLOT_ALLOC, t.c->id);
  SB_STORE(&n->word, sb_node_word(state, connection, 3), SB_RELAXED);
  SB_STORE(&n->queue, 77u, SB_RELAXED);
  SB_STORE(&n->flags, flags, SB_RELAXED);
  checkup.seen[SLOT] = SB_KNOWN_TO_OWNER | SB_KNOWN_TO_LIST | SB_KNOWN_TO_ALL;
  return n;
}
static void expect_node(unsigned which, uint64_t connection, uint64_t found, uint64_t expected, const char *what) {
  sb_check_chunks(&checkup);
  expect_finding((sb_finding){SB_LOST_NODE, 77, SLOT, which, 0, connection, found, expected}, what);
}
static void consumers_and_their_lists(void) {
  begin_checkup();
  for (unsigned state = SB_NODE_NOT_INTERESTED; state <= SB_NODE_NON_ACQUIRING; state++) {
    make_node(state, t.c->id, 0);
    expect_clean("a consumer in its lists");
    checkup.seen[SLOT] &= ~(unsigned)SB_KNOWN_TO_LIST;
    expect_node(1, t.c->id, state, 0, "a consumer that is not in its list");
    checkup.seen[SLOT] = SB_KNOWN_TO_OWNER | SB_KNOWN_TO_LIST;
    expect_node(2, t.c->id, state, 0, "a consumer that is not in the list of all");
  }
  sb_node_shm *n = make_node(SB_NODE_INTERESTED, DEAD, 0);
  expect_node(0, DEAD, n->word, t.c->id, "the consumer of another connection");
  n = make_node(SB_NODE_NON_ACQUIRING + 1, t.c->id, 0);
  expect_node(0, t.c->id, n->word, t.c->id, "a consumer in no state");
  make_node(SB_NODE_REMOVED, DEAD, 0);
  checkup.seen[SLOT] = SB_KNOWN_TO_OWNER;
  expect_clean("a consumer on its way out");
}
/* A producer that waits for room is in one list while it waits, and in no other. */
static void those_who_wait_for_room(void) {
  begin_checkup();
  make_node(SB_NODE_INTERESTED, t.c->id, SB_NODE_ROOM);
  checkup.seen[SLOT] = SB_KNOWN_TO_OWNER | SB_KNOWN_TO_LIST;
  expect_clean("one who waits");
  checkup.seen[SLOT] = SB_KNOWN_TO_OWNER;
  expect_node(1, t.c->id, SB_NODE_INTERESTED, 0, "one who waits and is not in the list");
  make_node(SB_NODE_NOTIFIED, t.c->id, SB_NODE_ROOM);
  checkup.seen[SLOT] = SB_KNOWN_TO_OWNER;
  expect_clean("one who was told");
  open(SB_KIND_LEDGER);
  set_header(SLOT, SB_SLOT_ALLOC, t.c->id);
  checkup.seen[SLOT] = SB_KNOWN_TO_OWNER;
  memset(sb_slot_at(t.b, SLOT), 0xff, units * SB_UNIT);
  expect_clean("what is no node");
}

/* ---- chunks ---- */

static void expect_chunk(uint32_t chunk, unsigned which, uint64_t expected, const char *what) {
  sb_check_chunks(&checkup);
  expect_finding((sb_finding){SB_BAD_CHUNK, 0, chunk, which, 0, 0, chunk_word(chunk), expected}, what);
}
enum { STATE, CLASS, RUN, TAIL, BEYOND };
static void states_of_chunks(void) {
  begin_checkup();
  set_chunk(CHUNK, SB_CHUNK_CLAIMED + 1, 4, 0);
  expect_chunk(CHUNK, STATE, 0, "a chunk in no state");
  set_chunk(CHUNK, SB_CHUNK_CLASS, 63, 0);
  expect_chunk(CHUNK, CLASS, 63, "a chunk of no class");
  set_chunk(CHUNK, SB_CHUNK_FREE, 63, 5);
  expect_clean("a free chunk");
  const unsigned taken[] = {SB_CHUNK_DRAINING, SB_CHUNK_CLAIMED};
  for (unsigned i = 0; i < 2; i++) {
    SB_STORE(&t.b->chunks[CHUNK], sb_chunk_word(taken[i], t.c->id, 4, 0), SB_RELAXED);
    expect_clean("a chunk of somebody");
    SB_STORE(&t.b->chunks[CHUNK], sb_chunk_word(taken[i], DEAD, 4, 0), SB_RELAXED);
    sb_check_chunks(&checkup);
    expect_finding((sb_finding){SB_BAD_OWNER, 0, CHUNK, 1, 0, 0, DEAD, 0}, "a chunk of nobody");
  }
  set_chunk(CHUNK, SB_CHUNK_FREE, 0, 0);
  set_chunk(CHECKED_CHUNKS, SB_CHUNK_CLASS, 4, 0);
  expect_chunk(CHECKED_CHUNKS, BEYOND, CHECKED_CHUNKS, "a chunk behind the last");
  set_chunk(CHECKED_CHUNKS, SB_CHUNK_FREE, 0, 0);
  set_chunk(SB_MAX_CHUNKS - 1, SB_CHUNK_CLAIMED, 4, 0);
  expect_chunk(SB_MAX_CHUNKS - 1, BEYOND, CHECKED_CHUNKS, "the last chunk of all");
  set_chunk(SB_MAX_CHUNKS - 1, SB_CHUNK_FREE, 0, 0);
  SB_STORE(&t.b->directory[0], 5, SB_RELAXED); /* lies behind the chunks */
  expect_clean("what is no chunk");
}
static void set_run(uint32_t chunk, uint32_t run) {
  set_chunk(chunk, SB_CHUNK_RUN, 0, run);
  for (uint32_t i = 1; i < run && chunk + i < CHECKED_CHUNKS; i++) set_chunk(chunk + i, SB_CHUNK_TAIL, 0, i);
}
static void runs_of_chunks(void) {
  begin_checkup();
  set_run(CHUNK, 4); /* up to the last one */
  set_header(SLOT, SB_SLOT_PUBLISHED, 1);
  checkup.seen[SLOT] = 1;
  expect_clean("a run");
  checkup.seen[SLOT] = 0;
  expect_slot(SB_LEAKED_SLOT, 0, SB_KIND_MESSAGE, 1, 0, "a run of nobody");
  set_header(SLOT, SB_SLOT_FREE, 0);
  set_chunk(NEXT, SB_CHUNK_TAIL, 0, 2);
  sb_check_chunks(&checkup);
  expect_is(checkup.count, 2, "the findings of a tail with another distance: of its run, and of itself");
  found_nothing();
  set_chunk(NEXT, SB_CHUNK_FREE, 0, 1);
  expect_chunk(NEXT, TAIL, 1, "a run with a free chunk");
  begin_checkup();
  set_chunk(CHUNK, SB_CHUNK_RUN, 0, 0);
  expect_chunk(CHUNK, RUN, 0, "a run of no chunk");
  set_chunk(CHUNK, SB_CHUNK_RUN, 0, CHECKED_CHUNKS - CHUNK + 1);
  expect_chunk(CHUNK, RUN, CHECKED_CHUNKS - CHUNK + 1, "a run behind the last chunk");
  begin_checkup();
  set_chunk(0, SB_CHUNK_RUN, 0, 1);
  expect_chunk(0, RUN, 1, "a run that begins with chunk 0");
}
/* A tail is one of a run that reaches it, also while that is taken or given back. */
static void tails_of_runs(void) {
  const unsigned heads[] = {SB_CHUNK_CLAIMED, SB_CHUNK_DRAINING};
  begin_checkup();
  for (unsigned i = 0; i < 2; i++) {
    SB_STORE(&t.b->chunks[CHUNK], sb_chunk_word(heads[i], t.c->id, 0, 2), SB_RELAXED);
    set_chunk(NEXT, SB_CHUNK_TAIL, 0, 1);
    expect_clean("a tail of a run that is taken");
  }
  set_header(SLOT, SB_SLOT_FREE, 0);
  set_chunk(CHUNK, SB_CHUNK_CLASS, SB_MESSAGE_CLASSES, 2);
  expect_chunk(NEXT, TAIL, 0, "a tail behind a chunk of slots");
  set_chunk(CHUNK, SB_CHUNK_FREE, 0, 2);
  expect_chunk(NEXT, TAIL, 0, "a tail behind a free chunk");
  set_chunk(CHUNK, SB_CHUNK_RUN, 0, 1);
  expect_chunk(NEXT, TAIL, 0, "a tail that its run does not reach");
  SB_STORE(&t.b->chunks[NEXT], sb_chunk_word(SB_CHUNK_TAIL, 0, 0, 0), SB_RELAXED);
  expect_chunk(NEXT, TAIL, 0, "a tail without a distance");
  begin_checkup();
  set_chunk(2, SB_CHUNK_TAIL, 0, 3);
  expect_chunk(2, TAIL, 0, "a tail of a run before the first chunk");
  set_chunk(2, SB_CHUNK_TAIL, 0, 2);
  SB_STORE(&t.b->chunks[0], sb_chunk_word(SB_CHUNK_CLAIMED, t.c->id, 0, 3), SB_RELAXED);
  expect_clean("a tail of a run that begins with the first chunk");
}

static const test_case CASES[] = {
    {"check_slab: kinds", "what kind of slot begins where", what_begins_where},
    {"check_slab: classes", "a class that was damaged is found, each of its numbers", damaged_classes},
    {"check_slab: free", "a free slot has no reference", free_slots},
    {"check_slab: owned", "a slot that is taken is in its owner's list", slots_with_an_owner},
    {"check_slab: drained", "who drains a chunk of structures need not list its slots", slots_that_are_drained},
    {"check_slab: parts", "a part is its head's", slots_that_are_parts},
    {"check_slab: read", "a slot that is read is in its reader's list", slots_that_are_read},
    {"check_slab: messages", "each reference of a message is somebody's", published_messages},
    {"check_slab: structures", "structures have one reference, or an owner", published_structures},
    {"check_slab: has", "a reference is there with its bit, in its generation", references_are_there},
    {"check_slab: count", "references are counted, those of a block all together", references_are_counted},
    {"check_slab: block", "a block has as many references as were found", references_of_a_block},
    {"check_slab: no block", "a structure has no block, whatever its words are", a_structure_that_reads_like_a_block},
    {"check_slab: consumers", "a consumer is in its list and in that of all", consumers_and_their_lists},
    {"check_slab: room", "who waits for room is in one list", those_who_wait_for_room},
    {"check_slab: states", "a chunk is in a state, of a class, and of somebody", states_of_chunks},
    {"check_slab: runs", "a run has all its chunks", runs_of_chunks},
    {"check_slab: tails", "a tail has its run", tails_of_runs},
};
SUBJECT(CASES)
