// SPDX-License-Identifier: Apache-2.0
/* sb_scatter: where a body finds room if there is none in one piece, and the length of the longest body that has room.
 * All chunks are taken except those that a case opens, and all their slots except those that it frees. */
#include "sb_scatter.h"

#include "cases.h"
#include "sb_reserve.h"
#include "sb_slab.h"

#define LONGEST SB_MESSAGE_CLASSES
#define SMALL 8u /* chunks that cases open */
#define LARGE 9u
#define SOMEBODY 4000u /* owns what is taken */
#define FREE_GEN 6u
#define FRONT 100u /* bytes in front of a body */

static unsigned small, large; /* classes of two units, and of eight */
static uint64_t token;
static uint32_t slot;
static uint64_t gen;

static uint64_t header_of(uint32_t s) { return SB_LOAD(sb_slot_header(t.b, s), SB_RELAXED); }
static void set_chunk(uint32_t chunk, unsigned state, unsigned cls, unsigned run) {
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(state, 0, cls, run), SB_RELAXED);
}
static void all_taken(void) {
  grow_to(BROKER_CHUNKS - 1);
  sb_slab_return_cache(t.c);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    uint64_t word = SB_LOAD(&t.b->chunks[i], SB_RELAXED);
    if (sb_chunk_state(word) == SB_CHUNK_FREE) set_chunk(i, SB_CHUNK_CLAIMED, 0, 0);
  }
  small = sb_class_for(t.b, 2 * SB_UNIT);
  large = sb_class_for(t.b, 8 * SB_UNIT);
  expect(sb_holding_take(t.c, &token) == SB_OK, "there is no holding");
  t.c->use = SB_USE_PLAIN;
}
static void open_full(uint32_t chunk, unsigned cls) {
  set_chunk(chunk, SB_CHUNK_CLASS, cls, 0);
  for (uint32_t i = 0; i < SB_CHUNK_UNITS; i++)
    SB_STORE(sb_slot_header(t.b, chunk * SB_CHUNK_UNITS + i), sb_slot_word(SB_SLOT_ALLOC, SOMEBODY, FREE_GEN - 1),
             SB_RELAXED);
}
static uint32_t at(uint32_t chunk, unsigned cls, uint32_t index) {
  return chunk * SB_CHUNK_UNITS + index * sb_class_units(cls);
}
static void free_slot(uint32_t chunk, unsigned cls, uint32_t index, bool hinted) {
  SB_STORE(sb_slot_header(t.b, at(chunk, cls, index)), sb_slot_word(SB_SLOT_FREE, 0, FREE_GEN), SB_RELAXED);
  if (hinted) sb_chunk_hint_set(t.b, cls, chunk, index / 64, UINT64_C(1) << index % 64);
}
static void open_both(void) {
  all_taken();
  open_full(SMALL, small);
  open_full(LARGE, large);
}
static void expect_taken(uint32_t should, const char *what) {
  expect_is(slot, should, what);
  expect_is(gen, FREE_GEN, "the generation of what was taken");
  expect_is(header_of(should), sb_slot_word(SB_SLOT_ALLOC, t.c->id, FREE_GEN), "the header of what was taken");
}

/* ---- a slot of a larger class ---- */

static void a_larger_slot_by_hints(void) {
  open_both();
  expect(!sb_scatter_by_hints(t.c, small, token, &slot, &gen), "something is free");
  free_slot(LARGE, large, 3, true);
  expect(sb_scatter_by_hints(t.c, small, token, &slot, &gen), "the larger slot was not taken");
  expect_taken(at(LARGE, large, 3), "the larger slot");
  free_slot(SMALL, small, 5, true);
  free_slot(LARGE, large, 4, true);
  expect(sb_scatter_by_hints(t.c, small, token, &slot, &gen), "the slot was not taken");
  expect_taken(at(SMALL, small, 5), "the slot of its class");
  free_slot(SMALL, small, 6, true);
  expect(sb_scatter_by_hints(t.c, large, token, &slot, &gen), "the large slot was not taken");
  expect_taken(at(LARGE, large, 4), "the large slot");
  expect(!sb_scatter_by_hints(t.c, large, token, &slot, &gen), "a smaller slot was taken");
}
static void the_longest_slot_by_hints(void) {
  open_both();
  open_full(LARGE, LONGEST);
  free_slot(LARGE, LONGEST, 0, true);
  expect(sb_scatter_by_hints(t.c, small, token, &slot, &gen), "the longest slot was not taken");
  expect_taken(at(LARGE, LONGEST, 0), "the longest slot");
}
/* Only a thorough search finds a slot that no hint leads to; it prefers one that a hint leads to. */
static void a_slot_without_a_hint(void) {
  open_both();
  free_slot(SMALL, small, 5, false);
  free_slot(LARGE, large, 3, true);
  expect(sb_scatter_larger(t.c, small, token, &slot, &gen), "nothing was taken");
  expect_taken(at(LARGE, large, 3), "the slot with a hint");
  expect(!sb_scatter_by_hints(t.c, small, token, &slot, &gen), "a hint leads to a slot that has none");
  expect(sb_scatter_larger(t.c, small, token, &slot, &gen), "the slot without a hint was not taken");
  expect_taken(at(SMALL, small, 5), "the slot without a hint");
  expect(!sb_scatter_larger(t.c, small, token, &slot, &gen), "something is free");
}

/* ---- parts ---- */

static sb_status alloc(uint64_t bytes) { return sb_scatter_alloc(t.c, FRONT, bytes, token, &slot, &gen); }
static uint32_t parts_of(uint32_t *parts, uint32_t most) {
  uint32_t n = 0;
  for (uint32_t p = sb_parts_first(t.b, slot); p != 0 && n < most; n++) {
    parts[n] = p;
    if (!sb_parts_next(t.b, slot, gen, p, &p)) break;
  }
  return n;
}
/* Beside the head's. */
static uint64_t holdings(void) {
  uint64_t n = 0;
  sb_holdings_walk w;
  for (sb_holdings_shm *k = sb_holdings_first(&w, t.b, t.c->shm, t.c->id); k != NULL; k = sb_holdings_next(&w, k)) {
    for (uint32_t i = 0; i < sb_holdings_used(k); i++) {
      bool any = sb_holding_kind(SB_LOAD(&k->entries[i].what, SB_RELAXED)) != SB_HOLD_NONE;
      n += any && &k->entries[i] != sb_holding_at(t.b, token);
    }
  }
  return n;
}

/* The head is the shortest slot for what stays in front; a part is long enough for the rest, or the longest there is. */
static void the_parts_of_a_body(void) {
  uint32_t parts[8];
  open_both();
  uint64_t in_small = sb_parts_room_in(small), in_large = sb_parts_room_in(large), before = holdings();
  for (uint32_t i = 0; i < 3; i++) free_slot(SMALL, small, i, true);
  for (uint32_t i = 0; i < 3; i++) free_slot(LARGE, large, i, true);
  expect(alloc(2 * in_large + in_small) == SB_OK, "there is not enough");
  expect(slot >= at(SMALL, small, 0) && slot <= at(SMALL, small, 2), "the head is slot %u", slot);
  expect_is(parts_of(parts, 8), 3, "the number of parts");
  expect(parts[0] / SB_CHUNK_UNITS == SMALL, "the rest lies in a long slot");
  expect(parts[1] / SB_CHUNK_UNITS == LARGE && parts[2] / SB_CHUNK_UNITS == LARGE,
         "the long slots were not taken first");
  expect_is(sb_parts_room(t.b, slot), 2 * in_large + in_small, "the room of the parts");
  expect_is(holdings(), before, "what is held beside the head");
}
/* A part that is too long is better than two that are too short. */
static void a_part_that_is_too_long(void) {
  uint32_t parts[8];
  open_both();
  for (uint32_t i = 0; i < 8; i++) free_slot(SMALL, small, i, true);
  open_full(20, LONGEST);
  free_slot(20, LONGEST, 0, true);
  expect_is(alloc(sb_parts_room_in(large)), SB_OK, "the status");
  expect_is(parts_of(parts, 8), 1, "the number of parts");
  expect_is(parts[0], at(20, LONGEST, 0), "the part");
}
/* What is taken before it is known that there is too little goes back: the head, its parts, and the holding of a part. */
static void too_little_for_a_body(void) {
  open_both();
  uint64_t before = holdings(), in_small = sb_parts_room_in(small);
  for (uint32_t i = 0; i < 3; i++) free_slot(SMALL, small, i, i != 1);
  expect_is(alloc(2 * in_small + 1), SB_NO_MEMORY, "the status of a body that is too long");
  for (uint32_t i = 0; i < 3; i++)
    expect(sb_slot_state(header_of(at(SMALL, small, i))) == SB_SLOT_FREE, "slot %u was not given back", i);
  expect_is(holdings(), before, "what is held");
  expect_is(alloc(2 * in_small), SB_OK, "the status of a body that fits, partly where no hint leads");
  expect_is(sb_parts_room(t.b, slot), 2 * in_small, "its room");
}
static void no_room_for_a_head(void) {
  open_both();
  uint64_t before = holdings();
  expect_is(alloc(1), SB_NO_MEMORY, "the status without a slot");
  free_slot(SMALL, small, 0, true);
  expect_is(alloc(1), SB_NO_MEMORY, "the status with a head alone");
  expect_is(sb_scatter_alloc(t.c, 2 * SB_CHUNK_BYTES, 1, token, &slot, &gen), SB_NO_MEMORY,
            "the status of a long front");
  expect_is(holdings(), before, "what is held");
}
static void no_holding_for_a_part(void) {
  uint64_t more;
  open_both();
  free_slot(SMALL, small, 0, true);
  free_slot(SMALL, small, 1, true);
  while (sb_holding_take(t.c, &more) == SB_OK) {
  }
  slot = 0;
  expect_is(alloc(1), SB_NO_MEMORY, "the status without a holding");
  expect_is(slot, 0, "the slot that was taken");
}
/* A chunk is opened for a head, and for a part that would fill it. */
static void chunks_are_opened(void) {
  uint32_t parts[8];
  uint64_t in_longest = sb_parts_room_in(LONGEST);
  all_taken();
  t.c->use = SB_USE_DRAIN; /* may take the last chunk */
  set_chunk(20, SB_CHUNK_FREE, 0, 0);
  expect_is(alloc(0), SB_OK, "the status of a head alone");
  expect_is(sb_chunk_class(t.b->chunks[20]), sb_class_for(t.b, FRONT + sizeof(sb_parts_shm)), "the class of its chunk");
  set_chunk(21, SB_CHUNK_FREE, 0, 0);
  set_chunk(22, SB_CHUNK_FREE, 0, 0);
  expect_is(alloc(in_longest + 1), SB_OK, "the status of a body of two parts");
  expect_is(parts_of(parts, 8), 2, "the number of its parts");
  expect(parts[0] / SB_CHUNK_UNITS == 20, "the rest lies in chunk %u", (unsigned)(parts[0] / SB_CHUNK_UNITS));
  expect(parts[1] / SB_CHUNK_UNITS == 21 || parts[1] / SB_CHUNK_UNITS == 22, "the long part lies in chunk %u",
         (unsigned)(parts[1] / SB_CHUNK_UNITS));
}
/* Without such a chunk a long body takes what there is, the longest first. */
static void long_bodies_in_short_slots(void) {
  uint32_t parts[8];
  open_both();
  for (uint32_t i = 0; i < 2; i++) free_slot(SMALL, small, i, true);
  free_slot(LARGE, large, 0, true);
  expect_is(alloc(SB_CHUNK_BYTES), SB_NO_MEMORY, "the status of a long body");
  open_full(20, LONGEST);
  free_slot(20, LONGEST, 0, true);
  expect_is(alloc(SB_CHUNK_BYTES), SB_OK, "the status of one that fits");
  expect_is(parts_of(parts, 8), 2, "the number of parts");
  expect(parts[1] / SB_CHUNK_UNITS == 20, "the longest slot was not taken first");
}

/* ---- the longest body ---- */

#define HEAD 192u /* what stands in front of a body in one piece */

static void expect_room(uint64_t should, const char *what) { expect_is(sb_scatter_room(t.b), should, what); }
static void the_room_of_slots(void) {
  open_both();
  uint64_t in_small = sb_parts_room_in(small), in_large = sb_parts_room_in(large);
  expect_room(0, "the room where nothing is free");
  free_slot(SMALL, small, 0, false);
  expect_room(in_small - HEAD, "the room of one slot");
  free_slot(LARGE, large, 0, false);
  expect_room(in_large, "the room of two slots: the shorter one is the head");
  free_slot(LARGE, large, SB_CHUNK_UNITS / 8 - 1, false);
  expect_room(2 * in_large, "the room of three slots: the shortest is the head");
  free_slot(SMALL, small, 1, false);
  expect_room(2 * in_large + in_small, "the room of four slots");
  SB_STORE(&t.b->chunks[LARGE], sb_chunk_word(SB_CHUNK_CLASS, 0, large, 0) | SB_CHUNK_OF_RESERVE, SB_RELAXED);
  expect_room(in_small, "the room without what is of the reserve");
  set_chunk(LARGE, SB_CHUNK_DRAINING, large, 0);
  expect_room(in_small, "the room without what is being drained");
  set_chunk(LARGE, SB_CHUNK_CLASS, LONGEST + 1, 0);
  expect_room(in_small, "the room without structures");
  set_chunk(LARGE, SB_CHUNK_CLASS, 0, 0);
  expect_room(in_small, "the room without a chunk of no class");
}
static void the_room_of_the_classes_at_the_ends(void) {
  open_both();
  open_full(SMALL, 1);
  free_slot(SMALL, 1, 0, false);
  free_slot(SMALL, 1, 1, false);
  expect_room(sb_parts_room_in(1), "the room of the shortest slots");
  open_full(LARGE, LONGEST);
  free_slot(LARGE, LONGEST, 0, false);
  expect_room(sb_parts_room_in(LONGEST) + sb_parts_room_in(1), "the room beside the longest slot");
  open_full(SMALL, large); /* the longer slot comes first */
  open_full(LARGE, small);
  free_slot(SMALL, large, 0, false);
  free_slot(LARGE, small, 0, false);
  expect_room(sb_parts_room_in(large), "the room of a longer slot and a shorter one");
  open_full(LARGE, 1);
  free_slot(LARGE, 1, 0, false);
  SB_STORE(sb_slot_header(t.b, at(SMALL, large, 0)), sb_slot_word(SB_SLOT_ALLOC, SOMEBODY, 7), SB_RELAXED);
  open_full(20, small);
  free_slot(20, small, 0, false);
  expect_room(sb_parts_room_in(small), "the room of a shorter slot and a longer one");
}
/* A chunk has the longest slot; a run that is free, one for each of its chunks. Plain puts leave the reserve. */
static void the_room_of_chunks(void) {
  uint64_t in_longest = sb_parts_room_in(LONGEST);
  all_taken();
  uint32_t reserve = sb_reserve_chunks(t.b);
  for (uint32_t i = 0; i < reserve; i++) set_chunk(20 + i, SB_CHUNK_FREE, 0, 0);
  expect_room(0, "the room of the reserve");
  set_chunk(20 + reserve, SB_CHUNK_FREE, 0, 0);
  expect_room(in_longest - HEAD, "the room of one chunk");
  set_chunk(21 + reserve, SB_CHUNK_FREE, 0, 0);
  expect_room(in_longest, "the room of two chunks: one of them is the head's");
  set_chunk(SMALL, SB_CHUNK_RUN, 0, 3);
  SB_STORE(sb_slot_header(t.b, SMALL * SB_CHUNK_UNITS), sb_slot_word(SB_SLOT_ALLOC, SOMEBODY, 5), SB_RELAXED);
  expect_room(in_longest, "the room beside a run that is taken");
  SB_STORE(sb_slot_header(t.b, SMALL * SB_CHUNK_UNITS), sb_slot_word(SB_SLOT_FREE, 0, 6), SB_RELAXED);
  expect_room(4 * in_longest, "the room with a run that is free");
}
static void the_room_of_segments_to_come(void) {
  uint64_t in_longest = sb_parts_room_in(LONGEST);
  grow_to(0);
  for (uint32_t i = 0; i < sb_chunk_count(t.b); i++) set_chunk(i, SB_CHUNK_CLAIMED, 0, 0);
  uint32_t more = BROKER_CHUNKS - sb_chunk_count(t.b) - sb_reserve_chunks(t.b);
  expect_room((more - 1) * in_longest, "the room of segments that can be added");
}
static void the_longest_body_there_is(void) {
  all_taken();
  set_chunk(SMALL, SB_CHUNK_RUN, 0, SB_MAX_BODY / SB_CHUNK_BYTES + 10);
  SB_STORE(sb_slot_header(t.b, SMALL * SB_CHUNK_UNITS), sb_slot_word(SB_SLOT_FREE, 0, 6), SB_RELAXED);
  expect_room(SB_MAX_BODY, "the longest body of all");
}

static void chunks_that_are_not_mapped(void) {
  open_both();
  free_slot(SMALL, small, 3, false);
  uint64_t room = sb_scatter_room(t.b);
  uint32_t last = BROKER_CHUNKS - 1;
  set_chunk(last, SB_CHUNK_CLASS, LONGEST, 0);
  free_slot(last, LONGEST, 0, false);
  expect(sb_scatter_room(t.b) > room, "a free slot makes no room");
  SB_STORE(&t.b->mapped_chunks, last, SB_RELAXED);
  expect_is(sb_scatter_room(t.b), room, "the room beside a slot that is not mapped");
  set_chunk(last, SB_CHUNK_RUN, 0, 1);
  expect_is(sb_scatter_room(t.b), room, "the room beside a run that is not mapped");
}

static const test_case CASES[] = {
    {"scatter: larger", "a hint leads to a slot of the class, or of a larger one", a_larger_slot_by_hints},
    {"scatter: longest", "the longest slot serves any body", the_longest_slot_by_hints},
    {"scatter: unhinted", "who finds nothing by hints looks thoroughly", a_slot_without_a_hint},
    {"scatter: parts", "parts are the longest there are, the last one just long enough", the_parts_of_a_body},
    {"scatter: too long", "one part that is too long is taken rather than two short ones", a_part_that_is_too_long},
    {"scatter: no holding", "without a holding for a part nothing is taken", no_holding_for_a_part},
    {"scatter: too little", "what was taken for a body that does not fit goes back", too_little_for_a_body},
    {"scatter: no head", "without room for a head nothing is taken", no_room_for_a_head},
    {"scatter: chunks", "chunks are opened for a head, and for a part that fills one", chunks_are_opened},
    {"scatter: long", "a long body takes the longest slot first", long_bodies_in_short_slots},
    {"scatter: room of slots", "the longest body fits into one slot, or into all but the shortest", the_room_of_slots},
    {"scatter: room at the ends", "the shortest and the longest class count", the_room_of_the_classes_at_the_ends},
    {"scatter: room of chunks", "chunks beyond the reserve, and runs that are free, count as longest slots",
     the_room_of_chunks},
    {"scatter: room to come", "segments that can be added count", the_room_of_segments_to_come},
    {"scatter: most", "no body is longer than the longest there may be", the_longest_body_there_is},
    {"scatter: not mapped", "what is not mapped makes no room", chunks_that_are_not_mapped},
};
SUBJECT(CASES)
