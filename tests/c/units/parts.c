// SPDX-License-Identifier: Apache-2.0
/* sb_parts: the chain of parts of a head, what is trusted in it, and which process frees parts that are left over.
 * Heads and parts are in two chunks that no other actor has opened. */
#include "sb_parts.h"

#include <string.h>

#include "calls.h"
#include "cases.h"
#include "meanwhile.h"
#include "proc.h"

#define HEADS 8u /* chunk of slots of two units */
#define PARTS 9u /* chunk of slots of four units */
#define HEAD (HEADS * SB_CHUNK_UNITS + 2)
#define ROOM (4 * SB_UNIT - sizeof(sb_part_shm))
#define GEN 5u
#define PART_GEN 9u

static uint32_t part(uint32_t i) { return PARTS * SB_CHUNK_UNITS + 4 * i; }
static uint64_t header_of(uint32_t slot) { return SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED); }
static void set_header(uint32_t slot, uint64_t word) { SB_STORE(sb_slot_header(t.b, slot), word, SB_RELAXED); }
static bool is_free(uint32_t slot) { return sb_slot_state(header_of(slot)) == SB_SLOT_FREE; }
static void set_class(uint32_t chunk, unsigned state, unsigned cls) {
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(state, 0, cls, 0), SB_RELAXED);
}
static void open_chunks(void) {
  grow_to(PARTS);
  set_class(HEADS, SB_CHUNK_CLASS, sb_class_for(t.b, 2 * SB_UNIT));
  set_class(PARTS, SB_CHUNK_CLASS, sb_class_for(t.b, 4 * SB_UNIT));
}
static void add(uint32_t i) { sb_parts_add(t.b, HEAD, GEN, part(i), PART_GEN); }
/* A head with the parts `count - 1` to 0, in this order. */
static void make_row(uint32_t count) {
  open_chunks();
  sb_parts_begin(t.c, HEAD, GEN);
  for (uint32_t i = 0; i < count; i++) add(i);
}
static sb_parts_shm *end_of_head(void) {
  return (sb_parts_shm *)(void *)((uint8_t *)sb_slot_at(t.b, HEAD) + 2 * SB_UNIT - sizeof(sb_parts_shm));
}
static sb_part_shm *names(uint32_t i) { return sb_slot_at(t.b, part(i)); }

static void a_head_begins(void) {
  open_chunks();
  SB_STORE(&end_of_head()->first, 77u, SB_RELAXED);
  sb_parts_begin(t.c, HEAD, GEN);
  expect_is(header_of(HEAD), sb_slot_word(SB_SLOT_ALLOC, t.c->id | UINT64_C(1) << SB_PARTS_REF, GEN), "the header");
  expect_is(sb_parts_first(t.b, HEAD), 0, "the first part");
  expect_is(SB_LOAD(&t.b->header->scattered, SB_RELAXED), 1, "`scattered`");
  expect_is(sb_parts_room(t.b, HEAD), 0, "the room of no part");
}

/* The newest part comes first; its chunk says that there are some. */
static void a_part_is_added(void) {
  uint32_t next = 77;
  make_row(1);
  expect_is(SB_LOAD(&sb_chunk_meta(t.b, PARTS)->parts, SB_RELAXED), 1, "`parts` of the chunk");
  expect_is(SB_LOAD(&sb_chunk_meta(t.b, HEADS)->parts, SB_RELAXED), 0, "`parts` of the head's chunk");
  expect_is(header_of(part(0)), sb_slot_word(SB_SLOT_ALLOC, SB_SLOT_PART, PART_GEN), "the header of the part");
  expect_is(sb_parts_first(t.b, HEAD), part(0), "the first part");
  expect(sb_parts_next(t.b, HEAD, GEN, part(0), &next) && next == 0, "the only part is followed by %u", next);
  add(1);
  expect_is(sb_parts_first(t.b, HEAD), part(1), "the first of two parts");
  expect(sb_parts_next(t.b, HEAD, GEN, part(1), &next) && next == part(0), "the first is followed by %u", next);
  expect_is(sb_parts_room(t.b, HEAD), 2 * ROOM, "the room of two parts");
}

/* A part is one of its head, in that generation; any other is none, and nothing is said of what follows. */
static void whose_part_it_is(void) {
  uint32_t next = 77;
  make_row(2);
  expect(!sb_parts_next(t.b, HEAD + 2, GEN, part(1), &next), "it is a part of another head");
  expect(!sb_parts_next(t.b, HEAD, GEN + 1, part(1), &next), "it is a part of another message");
  expect(!sb_parts_next(t.b, HEAD, GEN, part(2), &next), "a free slot is a part");
  expect_is(next, 77, "what follows no part");
}

/* Numbers that are read from memory are slots only where one begins, in a chunk of messages. */
static void no_slot_of_parts(void) {
  uint32_t next;
  make_row(1);
  const uint32_t none[] = {0, part(0) + 1, t.b->chunk_limit * SB_CHUNK_UNITS, UINT32_MAX};
  for (unsigned i = 0; i < sizeof none / sizeof none[0]; i++) {
    expect(!sb_parts_next(t.b, HEAD, GEN, none[i], &next), "slot %u is a part", none[i]);
    expect_is(sb_parts_first(t.b, none[i]), 0, "the first part of no slot");
  }
  set_header(0, sb_slot_word(SB_SLOT_ALLOC, SB_SLOT_PART, PART_GEN)); /* slot 0 is none, whatever its words say */
  set_class(0, SB_CHUNK_CLASS, sb_class_for(t.b, 4 * SB_UNIT));
  *(sb_part_shm *)sb_slot_at(t.b, 0) = *names(0);
  expect(!sb_parts_next(t.b, HEAD, GEN, 0, &next), "slot 0 is a part");
  set_class(BROKER_CHUNKS - 1, SB_CHUNK_CLASS, sb_class_for(t.b, 4 * SB_UNIT)); /* its segment was not made */
  expect(!sb_parts_next(t.b, HEAD, GEN, (BROKER_CHUNKS - 1) * SB_CHUNK_UNITS, &next), "a part lies nowhere");
  const unsigned states[] = {SB_CHUNK_FREE, SB_CHUNK_CLAIMED, SB_CHUNK_RUN};
  unsigned cls = sb_class_for(t.b, 4 * SB_UNIT);
  for (unsigned i = 0; i < sizeof states / sizeof states[0]; i++) {
    set_class(PARTS, states[i], cls);
    expect(!sb_parts_next(t.b, HEAD, GEN, part(0), &next), "a slot of a chunk in state %u is a part", states[i]);
  }
  set_class(PARTS, SB_CHUNK_CLASS, 0);
  expect(!sb_parts_next(t.b, HEAD, GEN, part(0), &next), "a slot of no class is a part");
  set_class(PARTS, SB_CHUNK_CLASS, SB_MESSAGE_CLASSES + 1);
  expect(!sb_parts_next(t.b, HEAD, GEN, part(0), &next), "a slot of structures is a part");
  set_class(PARTS, SB_CHUNK_DRAINING, cls);
  expect(sb_parts_next(t.b, HEAD, GEN, part(0), &next), "a slot of a chunk that is drained is none");
  set_class(PARTS, SB_CHUNK_CLASS, SB_MESSAGE_CLASSES); /* the longest: one that begins where this one does */
  expect(sb_parts_next(t.b, HEAD, GEN, part(0), &next), "a slot of the longest class is none");
  set_class(PARTS, SB_CHUNK_CLASS, sb_class_for(t.b, 3 * SB_UNIT)); /* 8192 is no multiple of it */
  expect(sb_parts_next(t.b, HEAD, GEN, part(0), &next), "the first slot of three units is none");
  uint32_t last = PARTS * SB_CHUNK_UNITS + SB_CHUNK_UNITS / 3 * 3; /* where two units are left */
  set_header(last, sb_slot_word(SB_SLOT_ALLOC, SB_SLOT_PART, PART_GEN));
  *(sb_part_shm *)sb_slot_at(t.b, last) = *names(0);
  expect(!sb_parts_next(t.b, HEAD, GEN, last, &next), "a slot reaches into the next chunk");
}

/* Published, SB_PARTS_REF can be a reference like others: then the message says whether it is a head. */
static void which_slots_are_heads(void) {
  open_chunks();
  sb_message_shm *m = sb_slot_at(t.b, HEAD);
  uint64_t refs = UINT64_C(1) << SB_PARTS_REF;
  *m = (sb_message_shm){.flags = 0};
  expect(sb_parts_is_head(t.b, HEAD, sb_slot_word(SB_SLOT_ALLOC, refs, GEN)), "what is being made is no head");
  expect(!sb_parts_is_head(t.b, HEAD, sb_slot_word(SB_SLOT_PUBLISHED, refs, GEN)), "a message of 24 is a head");
  expect(!sb_parts_is_head(t.b, HEAD, sb_slot_word(SB_SLOT_ALLOC, 1, GEN)), "a slot without the bit is a head");
  m->flags = SB_MESSAGE_IN_PARTS;
  expect(sb_parts_is_head(t.b, HEAD, sb_slot_word(SB_SLOT_PUBLISHED, refs, GEN)), "a published head is none");
  expect(!sb_parts_is_head(t.b, HEAD, sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN)), "a head has lost its bit");
}

static char from[3 * ROOM + 1], to[3 * ROOM + 2];
static void fill(void) {
  for (unsigned i = 0; i < sizeof from; i++) from[i] = (char)(i * 7 + i / 251);
  memset(to, 0, sizeof to);
}

/* What is written anywhere is copied from there, over the ends of parts, and nothing beside it changes. */
static void bytes_of_a_row(void) {
  const uint64_t spans[][2] = {{0, 0},           {0, 1},           {0, ROOM}, {0, ROOM + 1}, {ROOM - 1, 2},
                               {ROOM, 1},        {ROOM, 2 * ROOM}, {1, ROOM}, {0, 3 * ROOM}, {2 * ROOM - 1, ROOM + 1},
                               {3 * ROOM - 1, 1}};
  fill();
  for (unsigned i = 0; i < sizeof spans / sizeof spans[0]; i++) {
    uint64_t at = spans[i][0], n = spans[i][1];
    make_row(3);
    expect(sb_parts_write(t.b, HEAD, 0, to, 0), "nothing could not be written");
    for (uint32_t k = 0; k < 3; k++) memset((char *)names(k) + sizeof(sb_part_shm), 0, ROOM);
    names(3)->head = 0x5a5a5a5a; /* behind the row's last slot */
    expect(sb_parts_write(t.b, HEAD, at, from, n), "%u bytes from %u on could not be written", (unsigned)n,
           (unsigned)at);
    expect(sb_parts_copy(t.b, HEAD, 0, to, 3 * ROOM), "all could not be copied");
    for (uint64_t k = 0; k < 3 * ROOM; k++) {
      char should = k >= at && k < at + n ? from[k - at] : 0;
      if (to[k] != should) complain("span %u: byte %u is %d, not %d", i, (unsigned)k, to[k], should);
    }
    memset(to, 0, sizeof to);
    expect(sb_parts_copy(t.b, HEAD, at, to, n), "%u bytes from %u on could not be copied", (unsigned)n, (unsigned)at);
    expect(memcmp(to, from, n) == 0 && to[n] == 0, "span %u: other bytes were copied", i);
    expect_is(names(3)->head, 0x5a5a5a5a, "what lies behind the row");
    memset(to, 0, sizeof to);
  }
}

static void no_such_bytes(void) {
  fill();
  make_row(2);
  expect(!sb_parts_write(t.b, HEAD, 0, from, 2 * ROOM + 1), "more was written than there is room for");
  expect(!sb_parts_copy(t.b, HEAD, ROOM, to, ROOM + 1), "more was copied than there is");
  expect(!sb_parts_copy(t.b, HEAD, 2 * ROOM, to, 1), "something was copied from behind the row");
  expect(!sb_parts_write(t.b, 0, 0, from, 0) && !sb_parts_copy(t.b, 0, 0, to, 0), "slot 0 has a row");
  expect(!sb_parts_copy(t.b, UINT32_MAX, 0, to, 0), "what is no slot has a row");
  expect(sb_parts_write(t.b, HEAD, 0, from, 1) && sb_parts_copy(t.b, HEAD, 0, to, 1), "there is no first byte");
  set_header(HEAD, sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN));
  expect(!sb_parts_write(t.b, HEAD, 0, from, 1), "a slot that is no head was written");
  expect(!sb_parts_copy(t.b, HEAD, 0, to, 1), "a slot that is no head was copied");
  expect_is(sb_parts_room(t.b, HEAD), 0, "the room of a slot that is no head");
  expect_is(sb_parts_room(t.b, 0), 0, "the room of slot 0");
  set_header(HEAD, sb_slot_word(SB_SLOT_PUBLISHED, UINT64_C(1) << SB_PARTS_REF, GEN));
  expect(sb_parts_copy(t.b, HEAD, 0, to, 2 * ROOM), "a published head has no row");
  names(1)->next = part(3);
  expect(!sb_parts_copy(t.b, HEAD, 0, to, 2 * ROOM), "a part that is none was copied");
}

/* A row that was damaged into a ring has room for a body too long, and no end of it is looked for. */
static void a_row_that_bites_its_tail(void) {
  make_row(2);
  names(0)->next = part(1);
  uint64_t room = sb_parts_room(t.b, HEAD);
  expect(room > SB_MAX_BODY + SB_CHUNK_BYTES && room <= SB_MAX_BODY + SB_CHUNK_BYTES + ROOM, "its room is %llu",
         (unsigned long long)room);
}

/* Each part goes, in a generation of its own, and its chunk is told of; those of others stay. */
static void a_row_is_freed(void) {
  make_row(2);
  sb_parts_begin(t.c, HEAD + 2, GEN);
  sb_parts_add(t.b, HEAD + 2, GEN, part(5), PART_GEN);
  set_header(HEAD, sb_slot_word(SB_SLOT_FREE, 0, GEN + 1));
  memset(sb_chunk_meta(t.b, PARTS)->hints, 0, sizeof sb_chunk_meta(t.b, PARTS)->hints);
  sb_parts_free(t.b, HEAD, GEN, part(1));
  for (uint32_t i = 0; i < 2; i++)
    expect_is(header_of(part(i)), sb_slot_word(SB_SLOT_FREE, 0, PART_GEN + 1), "the header of a part that was freed");
  expect((SB_LOAD(&sb_chunk_meta(t.b, PARTS)->hints[0], SB_RELAXED) & 3) == 3, "the free slots are not hinted at");
  expect(!is_free(part(5)), "the part of another head was freed");
}

/* A row whose beginning is freed already: a sweep finds what is left, but not what belongs to others. */
static void a_broken_row_is_swept(void) {
  make_row(3);
  set_header(part(2), sb_slot_word(SB_SLOT_FREE, 0, PART_GEN + 1));
  set_header(HEAD, sb_slot_word(SB_SLOT_FREE, 0, GEN + 1));
  sb_parts_begin(t.c, HEAD + 2, GEN);
  sb_parts_add(t.b, HEAD + 2, GEN, part(5), PART_GEN);
  sb_parts_free(t.b, HEAD, GEN, part(2));
  expect(is_free(part(0)) && is_free(part(1)), "what is left of the row was not freed");
  expect(!is_free(part(5)), "the part of another head was freed");
}
static void a_whole_row_needs_no_sweep(void) {
  make_row(1);
  sb_parts_add(t.b, HEAD + 4, GEN, part(7), PART_GEN); /* its head is gone: a sweep would free it */
  set_header(HEAD, sb_slot_word(SB_SLOT_FREE, 0, GEN + 1));
  sb_parts_free(t.b, HEAD, GEN, part(0));
  expect(is_free(part(0)), "the row was not freed");
  expect(!is_free(part(7)), "a row that is whole was swept");
}

static void which_parts_are_orphans(void) {
  make_row(1);
  expect(!sb_parts_is_orphan(t.b, part(0)), "a part whose head is there is an orphan");
  expect(!sb_parts_is_orphan(t.b, part(3)), "a free slot is an orphan");
  expect(!sb_parts_is_orphan(t.b, part(0) + 1), "what is no slot is an orphan");
  set_header(HEAD, sb_slot_word(SB_SLOT_ALLOC, UINT64_C(1) << SB_PARTS_REF, GEN + 1));
  expect(sb_parts_is_orphan(t.b, part(0)), "the part of an older message is none");
  set_header(HEAD, sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN));
  expect(sb_parts_is_orphan(t.b, part(0)), "the part of a slot that is no head is none");
  set_header(HEAD, sb_slot_word(SB_SLOT_ALLOC, UINT64_C(1) << SB_PARTS_REF, GEN));
  names(0)->head = HEAD + 1; /* a slot does not begin there */
  set_header(HEAD + 1, sb_slot_word(SB_SLOT_ALLOC, UINT64_C(1) << SB_PARTS_REF, GEN));
  expect(sb_parts_is_orphan(t.b, part(0)), "the part of no slot is none");
}

/* The part lies in the first segment, its head in the second one, for which this process has no descriptor. */
static void a_head_that_cannot_be_mapped(void) {
  uint32_t far = CHUNKS_PER_SEGMENT + 1, head = far * SB_CHUNK_UNITS + 2;
  open_chunks();
  grow_to(far);
  set_class(far, SB_CHUNK_CLASS, sb_class_for(t.b, 2 * SB_UNIT));
  sb_parts_begin(t.c, head, GEN);
  sb_parts_add(t.b, head, GEN, part(0), PART_GEN);
  t.b->mapped_segments = 1;
  t.b->mapped_chunks = CHUNKS_PER_SEGMENT;
  opens_to_fail = 2;
  expect(!sb_parts_is_orphan(t.b, part(0)), "a part whose head cannot be read is an orphan");
  sb_parts_sweep(t.b);
  expect_is(opens_to_fail, 0, "how many files were not opened");
  expect(!is_free(part(0)), "a part was freed, although its head is there");
  expect(!sb_parts_is_orphan(t.b, part(0)), "a part whose head is there is an orphan");
  expect_is(t.b->mapped_segments, 2, "the segments that are mapped");
}

static void orphan(uint32_t slot) {
  sb_parts_shm before = *end_of_head();
  sb_parts_add(t.b, HEAD, GEN + 1, slot, PART_GEN);
  *end_of_head() = before;
}
/* The first slot of a chunk, and the last one; only where `parts` says so, and only in chunks of messages. */
static void what_a_sweep_frees(void) {
  uint32_t last = part(SB_CHUNK_UNITS / 4 - 1);
  unsigned cls = sb_class_for(t.b, 4 * SB_UNIT);
  make_row(1);
  orphan(part(1));
  orphan(last);
  SB_STORE(&sb_chunk_meta(t.b, PARTS)->parts, 0, SB_RELAXED);
  sb_parts_sweep(t.b);
  expect(!is_free(part(1)), "a chunk without parts was swept");
  SB_STORE(&sb_chunk_meta(t.b, PARTS)->parts, 1, SB_RELAXED);
  SB_STORE(&t.b->header->scattered, 0, SB_RELAXED);
  sb_parts_sweep(t.b);
  expect(!is_free(part(1)), "a broker without parts was swept");
  SB_STORE(&t.b->header->scattered, 1, SB_RELAXED);
  const unsigned none[][2] = {
      {SB_CHUNK_FREE, cls}, {SB_CHUNK_CLASS, 0}, {SB_CHUNK_CLASS, SB_MESSAGE_CLASSES + 1}, {SB_CHUNK_CLASS, 63}};
  for (unsigned i = 0; i < 4; i++) {
    set_class(PARTS, none[i][0], none[i][1]);
    sb_parts_sweep(t.b);
    expect(!is_free(part(1)), "a chunk of state %u and class %u was swept", none[i][0], none[i][1]);
  }
  set_class(PARTS, SB_CHUNK_DRAINING, cls);
  set_header(part(2), sb_slot_word(SB_SLOT_ALLOC, t.c->id, PART_GEN));
  sb_parts_sweep(t.b);
  expect(is_free(part(1)) && is_free(last), "an orphan was not freed");
  expect(!is_free(part(0)), "a part whose head is there was freed");
  expect(!is_free(part(2)), "a slot that is no part was freed");
}
static void a_sweep_of_the_longest_slots(void) {
  make_row(1);
  orphan(part(0));
  set_class(PARTS, SB_CHUNK_CLASS, SB_MESSAGE_CLASSES);
  sb_parts_sweep(t.b);
  expect(is_free(part(0)), "an orphan of the longest class was not freed");
}

/* ---- what other processes must see immediately ---- */

static void a_sweep_sees_what_was_begun(void) {
  open_chunks();
  SB_STORE(&t.b->header->scattered, 0u, SB_RELAXED);
  note_order(&t.b->header->scattered);
  sb_parts_begin(t.c, HEAD, GEN);
  if (!has_steps()) return;
  expect_is(noted_order(), SB_SEQ_CST, "the order of `scattered`");
  SB_STORE(&sb_chunk_meta(t.b, PARTS)->parts, 0, SB_RELAXED);
  note_order(&sb_chunk_meta(t.b, PARTS)->parts);
  add(0);
  expect_is(noted_order(), SB_SEQ_CST, "the order of `parts`");
}
/* A row goes on in a slot that is no part: what was copied before it is not copied twice. */
static void a_row_that_goes_on_in_no_part(void) {
  static char to[2 * ROOM];
  make_row(1);
  names(0)->next = part(1);
  set_header(part(1), sb_slot_word(SB_SLOT_PUBLISHED, 1, PART_GEN));
  expect(sb_parts_copy(t.b, HEAD, 0, to, ROOM), "a part was not copied");
  expect(!sb_parts_copy(t.b, HEAD, 0, to, ROOM + 1), "a row was copied that goes on in no part");
  expect(!sb_parts_copy(t.b, HEAD, ROOM, to, 1), "what is no part was copied");
  names(0)->next = BROKER_CHUNKS * SB_CHUNK_UNITS;
  expect(!sb_parts_copy(t.b, HEAD, 0, to, ROOM + 1), "a row was copied that goes on behind the last slot");
  expect_is(sb_parts_room(t.b, HEAD), ROOM, "the room of a row that goes on behind the last slot");
  names(0)->next = part(1);
  expect_is(sb_parts_room(t.b, HEAD), ROOM, "the room of a row that goes on in no part");
  names(1)->head = HEAD;
  names(1)->head_gen = GEN;
  names(1)->next = 0;
  set_header(part(1), sb_slot_word(SB_SLOT_ALLOC, SB_SLOT_PART, PART_GEN));
  expect_is(sb_parts_room(t.b, HEAD + 2), 0, "the room of what is no head");
}

/* A word that was damaged names a class that does not exist. */
static void a_sweep_of_no_class(void) {
  make_row(1);
  set_header(HEAD, sb_slot_word(SB_SLOT_FREE, 0, GEN + 1));
  set_class(PARTS, SB_CHUNK_CLASS, SB_MAX_CLASSES - 1);
  sb_parts_sweep(t.b);
  expect_is(header_of(part(0)), sb_slot_word(SB_SLOT_ALLOC, SB_SLOT_PART, PART_GEN), "the header of a part");
}

static const test_case CASES[] = {
    {"parts: begun", "a new head has its bit, and no part", a_head_begins},
    {"parts: added", "the newest part comes first, and its chunk says so", a_part_is_added},
    {"parts: whose", "a part is one of its head in its generation", whose_part_it_is},
    {"parts: slots", "what is no slot of messages is no part", no_slot_of_parts},
    {"parts: heads", "a published head is known by its message", which_slots_are_heads},
    {"parts: bytes", "what is written somewhere is copied from there", bytes_of_a_row},
    {"parts: no bytes", "what a row does not have is neither written nor copied", no_such_bytes},
    {"parts: ring", "the room of a row that bites its tail ends", a_row_that_bites_its_tail},
    {"parts: freed", "a row is freed, each part in a new generation", a_row_is_freed},
    {"parts: broken", "what is left of a broken row is swept", a_broken_row_is_swept},
    {"parts: whole", "a row that is whole is freed without a sweep", a_whole_row_needs_no_sweep},
    {"parts: orphans", "a part is an orphan when its head is gone", which_parts_are_orphans},
    {"parts: unmapped", "a head that cannot be mapped is not gone", a_head_that_cannot_be_mapped},
    {"parts: swept", "a sweep frees orphans, where there can be some", what_a_sweep_frees},
    {"parts: longest", "a sweep looks at the longest slots, too", a_sweep_of_the_longest_slots},
    {"parts: order", "a sweep sees parts that were begun before", a_sweep_sees_what_was_begun},
    {"parts: no part", "a row ends before what is no part", a_row_that_goes_on_in_no_part},
    {"parts: no class", "chunks of no class are not swept", a_sweep_of_no_class},
};
SUBJECT(CASES)
