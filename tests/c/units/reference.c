// SPDX-License-Identifier: Apache-2.0
/* sb_reference: the block before a body that many queues share, which process may drop which reference, and which bit
 * may be added. The slot is in a chunk that no other actor has opened. */
#include "sb_reference.h"

#include <string.h>

#include "cases.h"

#define CHUNK 8u
#define SLOT (CHUNK * SB_CHUNK_UNITS)
#define GEN 77u
#define MANY 17u /* queues: one more than a word of bits has */
#define LONG (SB_INLINE_BODY + 1u)
#define ROOM (64u * 1024u) /* of the slot */

static sb_message_shm *message(void) { return sb_slot_at(t.b, SLOT); }
static void set_header(unsigned state, uint64_t refs) {
  SB_STORE(sb_slot_header(t.b, SLOT), sb_slot_word(state, refs, GEN), SB_RELAXED);
}
static uint64_t refs(void) { return sb_slot_refs(SB_LOAD(sb_slot_header(t.b, SLOT), SB_RELAXED)); }
static bool is_free(void) { return sb_slot_state(SB_LOAD(sb_slot_header(t.b, SLOT), SB_RELAXED)) == SB_SLOT_FREE; }

/* A published message of this many queues; its block, if it has one, begins behind the message header. */
static void publish(uint32_t targets, uint64_t body_length) {
  grow_to(CHUNK);
  SB_STORE(&t.b->chunks[CHUNK], sb_chunk_word(SB_CHUNK_CLASS, 0, sb_class_for(t.b, ROOM), 0), SB_RELAXED);
  uint64_t block = sb_block_bytes(targets, body_length);
  uint64_t viewers = body_length > SB_INLINE_BODY ? SB_VIEWERS_BYTES : 0;
  memset(sb_slot_at(t.b, SLOT), 0xff, ROOM);
  *message() = (sb_message_shm){.body_length = body_length,
                                .body_offset = (uint32_t)(sizeof(sb_message_shm) + block + viewers),
                                .targets = (uint16_t)targets};
  set_header(SB_SLOT_PUBLISHED, 1);
}
static sb_block block_of_many(uint64_t body_length) {
  uint32_t queues[MANY];
  sb_block k = {0};
  publish(MANY, body_length);
  for (uint32_t i = 0; i < MANY; i++) queues[i] = 10 * (i + 1);
  expect(sb_block_of(t.b, SLOT, &k), "there is no block");
  sb_block_fill(&k, queues);
  return k;
}

/* Four bytes of each queue's slot, a bit word for 16 queues, a claim for each bit of a header, and for a body that is read in
 * place four numbers of each queue: rounded up to 64. */
static void bytes_of_a_block(void) {
  expect_is(sb_block_bytes(SB_PLAIN_TARGETS, LONG), 0, "the block of as many as need none");
  expect_is(sb_block_bytes(SB_PLAIN_TARGETS + 1, 0), 40 + 8 + 8 * SB_MAX_REFS + 16, "the block of nine");
  expect_is(sb_block_bytes(16, 0), 64 + 8 + 8 * SB_MAX_REFS + 56, "the block of sixteen");
  expect_is(sb_block_bytes(17, 0), 72 + 16 + 8 * SB_MAX_REFS + 40, "the block of seventeen");
  expect_is(sb_block_bytes(30, 0), 120 + 16 + 8 * SB_MAX_REFS + 56, "the block of thirty");
  expect_is(sb_block_bytes(28, 0), 112 + 16 + 8 * SB_MAX_REFS, "a block of just five lines");
  expect_is(sb_block_bytes(128, 0), 512 + 64 + 8 * SB_MAX_REFS, "the block of eight full words of bits");
  expect_is(sb_block_bytes(28, SB_INLINE_BODY), 112 + 16 + 8 * SB_MAX_REFS, "the block of a body that is copied");
  expect_is(sb_block_bytes(28, LONG), 112 + 16 + 8 * SB_MAX_REFS + 28 * 8 + 32, "the block of a body read in place");
}

/* Its parts lie one behind the other, the viewers' words of each queue last, those of the slot behind the block. */
static void where_a_block_lies(void) {
  const uint8_t *front = (const uint8_t *)sb_slot_at(t.b, SLOT) + sizeof(sb_message_shm);
  sb_block k = block_of_many(SB_INLINE_BODY);
  expect_is(k.count, MANY, "the number of queues");
  expect((const uint8_t *)k.queues == front, "the queues are elsewhere");
  expect((const uint8_t *)k.bits == front + 72, "the bits are elsewhere");
  expect((const uint8_t *)k.claims == front + 72 + 16, "the claims are elsewhere");
  expect(k.viewers == NULL, "a body that is copied has viewers");
  k = block_of_many(LONG);
  expect((const uint8_t *)k.queues == front, "the queues are elsewhere, of a long body");
  expect((const uint8_t *)k.viewers == front + 72 + 16 + 8 * SB_MAX_REFS, "the viewers are elsewhere");
}

/* Who finds a slot filled anew believes nothing that cannot be. */
static void no_block_is_believed(void) {
  sb_block k;
  sb_message_shm *m = message();
  publish(SB_MAX_TARGETS, 0);
  expect(sb_block_of(t.b, SLOT, &k), "the block of the most queues is refused");
  publish(SB_MAX_TARGETS + 1, 0);
  expect(!sb_block_of(t.b, SLOT, &k), "there is a block of too many queues");
  m->targets = SB_PLAIN_TARGETS;
  expect(!sb_block_of(t.b, SLOT, &k), "there is a block of queues that need none");
  publish(MANY, 0);
  m->body_offset += 32;
  expect(!sb_block_of(t.b, SLOT, &k), "a body begins in the middle of a line");
  m->body_offset -= 96;
  expect(!sb_block_of(t.b, SLOT, &k), "a block lies over the message header");
  m->body_offset = ROOM;
  expect(sb_block_of(t.b, SLOT, &k), "a body that ends with its slot is refused");
  m->body_offset = ROOM + 64;
  expect(!sb_block_of(t.b, SLOT, &k), "a body lies behind its slot");
  publish(MANY, LONG);
  m->body_offset -= 64;
  expect(!sb_block_of(t.b, SLOT, &k), "the viewers' words lie over the block");
}

/* No bit and no claim is set; what lies behind is not touched. */
static void a_block_begins_empty(void) {
  sb_block k = block_of_many(LONG);
  expect_is(sb_block_count(&k), 0, "the number of bits");
  expect_is(k.bits[0] | k.bits[1], 0, "the bits");
  for (uint32_t i = 0; i < SB_MAX_REFS; i++) expect_is(k.claims[i], 0, "a claim");
  expect_is(k.viewers[0], 0xffff, "the first viewer's word");
  expect_is(k.queues[MANY - 1], 10 * MANY, "the last queue");
}

static void expect_place(const sb_block *k, uint32_t queue, bool there, uint32_t should) {
  uint32_t place;
  expect(sb_block_index(k, queue, &place) == there, "queue %d is%s there", (int)queue, there ? " not" : "");
  expect_is(place, should, "the place");
}
static void the_place_of_a_queue(void) {
  sb_block k = block_of_many(0);
  expect_place(&k, 10, true, 0);
  expect_place(&k, 90, true, 8);
  expect_place(&k, 10 * MANY, true, MANY - 1);
  expect_place(&k, 1, false, 0);
  expect_place(&k, 95, false, 9);
  expect_place(&k, 10 * MANY + 1, false, MANY);
  ((uint32_t *)(uintptr_t)k.queues)[MANY] = 10 * MANY + 5; /* it is not one of them */
  expect_place(&k, 10 * MANY + 5, false, MANY);
}

/* The bit of each queue's cell, and of its three viewers, is another one. */
static void bits_of_a_block(void) {
  sb_block k = block_of_many(0);
  unsigned set = 0;
  for (uint32_t place = 0; place < MANY; place++) {
    for (unsigned ref = 0; ref < SB_REFS_OF_QUEUE; ref++) {
      expect(!sb_block_has(&k, place, ref), "bit %u of queue %u is set", ref, place);
      sb_block_set(&k, place, ref);
      expect(sb_block_has(&k, place, ref), "bit %u of queue %u is not set", ref, place);
      expect_is(sb_block_count(&k), ++set, "the number of bits");
    }
  }
  SB_STORE(&k.bits[1], UINT64_MAX, SB_RELAXED);
  expect(!sb_block_has(&k, MANY, 0), "a queue that is not among them has a bit");
  k = block_of_many(0);
  SB_STORE(&k.claims[0], UINT64_MAX, SB_RELAXED);
  expect_is(sb_block_count(&k), 0, "the number of bits, beside claims");
}

static sb_reference cell_of(uint32_t queue) {
  return (sb_reference){.slot = SLOT, .ref = SB_REF_BLOCK, .gen = GEN, .queue = queue};
}
static sb_reference view_of(uint32_t place, unsigned number) {
  return (sb_reference){.slot = SLOT, .ref = SB_REF_VIEW + number, .gen = GEN, .queue = place};
}

/* The slot goes with the last bit of the block, and not before; what is gone is not dropped twice. */
static void the_last_bit_frees(void) {
  sb_block k = block_of_many(0);
  sb_reference first = cell_of(10), last = cell_of(10 * MANY), view = view_of(3, 2);
  sb_block_set(&k, 0, 0);
  sb_block_set(&k, MANY - 1, 0);
  sb_block_set(&k, 3, 2);
  expect(!sb_reference_gone(t.b, &last), "the last queue's is gone");
  expect(sb_reference_drop(t.b, &last), "the last queue's was gone");
  expect(sb_reference_gone(t.b, &last), "the last queue's is still there");
  expect(!sb_reference_drop(t.b, &last), "the last queue's was there twice");
  expect(sb_reference_drop(t.b, &first), "the first queue's was gone");
  expect(!sb_block_has(&k, 0, 0) && sb_block_has(&k, 3, 2), "another bit was cleared");
  expect_is(refs(), 1, "the references of the header");
  expect(!sb_reference_gone(t.b, &view), "the view is gone");
  expect(sb_reference_drop(t.b, &view), "the view was gone");
  expect(is_free(), "the slot is not free");
}

/* A bit is set that does not count: the block's own bit of the header is gone, the slot is not published, it is another one
 * by now, or there is no such queue. */
static void what_is_no_reference(void) {
  sb_reference cell = cell_of(10), other = cell_of(11), beyond = view_of(MANY, 1);
  sb_block k = block_of_many(0);
  sb_block_set(&k, 0, 0);
  sb_block_set(&k, 1, 0); /* the place where queue 11 would stand */
  SB_STORE(&k.bits[1], UINT64_MAX, SB_RELAXED);
  expect(sb_reference_gone(t.b, &other), "a queue that is not among them has a reference");
  expect(sb_reference_gone(t.b, &beyond), "a place that is none has a reference");
  expect(!sb_reference_drop(t.b, &other) && !sb_reference_drop(t.b, &beyond), "what is none was dropped");
  set_header(SB_SLOT_PUBLISHED, 2);
  expect(sb_reference_gone(t.b, &cell) && !sb_reference_drop(t.b, &cell), "a block without its bit counts");
  set_header(SB_SLOT_ALLOC, 1);
  expect(sb_reference_gone(t.b, &cell) && !sb_reference_drop(t.b, &cell), "a block that is not published counts");
  set_header(SB_SLOT_PUBLISHED, 1);
  cell.gen++;
  expect(sb_reference_gone(t.b, &cell) && !sb_reference_drop(t.b, &cell), "the block of another message counts");
  expect(sb_block_has(&k, 0, 0) && sb_block_has(&k, 1, 0), "a bit was cleared");
  expect_is(refs(), 1, "the references of the header");
}

/* Who was killed between the two left a block without a bit: who looks for his reference drops what it hung on, unless the
 * slot is another one by now. */
static void an_empty_block_is_dropped(void) {
  sb_reference cell = cell_of(10);
  block_of_many(0);
  cell.gen++;
  expect(sb_reference_gone(t.b, &cell), "the reference of another message is there");
  set_header(SB_SLOT_ALLOC, 1);
  cell.gen = GEN;
  expect(sb_reference_gone(t.b, &cell), "the reference of a message that is not published is there");
  set_header(SB_SLOT_PUBLISHED, 2);
  expect(sb_reference_gone(t.b, &cell), "the reference without a block is there");
  expect_is(refs(), 2, "another reference of the header");
  set_header(SB_SLOT_PUBLISHED, 1);
  message()->targets = 1;
  expect(sb_reference_gone(t.b, &cell), "the reference of a block that is none is there");
  expect(!is_free(), "a slot without a block was freed");
  message()->targets = MANY;
  expect(sb_reference_gone(t.b, &cell), "the reference is there");
  expect(is_free(), "the slot is not free");
}
static void a_bit_in_the_last_word_keeps_the_block(void) {
  sb_reference cell = cell_of(10);
  sb_block k = block_of_many(0);
  sb_block_set(&k, MANY - 1, 3);
  expect(sb_reference_gone(t.b, &cell), "the reference is there");
  expect(!is_free(), "the slot is free though somebody views it");
  expect_is(sb_block_count(&k), 1, "the number of bits");
  k = block_of_many(0);
  SB_STORE(&k.claims[0], 1, SB_RELAXED);
  expect(sb_reference_gone(t.b, &cell), "the reference is there");
  expect(is_free(), "a claim keeps the slot");
}

/* A bit of the header is there as long as it is set, and the message the same. */
static void references_in_the_header(void) {
  sb_reference r = {.slot = SLOT, .ref = 2, .gen = GEN};
  publish(4, 0);
  set_header(SB_SLOT_PUBLISHED, 6);
  expect(!sb_reference_gone(t.b, &r), "the reference is gone");
  r.gen++;
  expect(sb_reference_gone(t.b, &r) && !sb_reference_drop(t.b, &r), "the reference of another message is there");
  r.gen = GEN;
  expect(sb_reference_drop(t.b, &r), "the reference was gone");
  expect_is(refs(), 2, "the references");
  expect(sb_reference_gone(t.b, &r) && !sb_reference_drop(t.b, &r), "the reference is still there");
  r.ref = SB_MAX_REFS - 1;
  set_header(SB_SLOT_PUBLISHED, 1u << (SB_MAX_REFS - 1) | 1);
  expect(!sb_reference_gone(t.b, &r) && sb_reference_drop(t.b, &r), "the last reference of a header is none");
}

/* Bits that are no cell's are shared out: to the cell r of n those that leave r; the cell of one queue has the first. */
static void bits_that_may_be_added(void) {
  publish(0, 0);
  set_header(SB_SLOT_PUBLISHED, 1);
  expect_is(sb_reference_clear(t.b, SLOT, 0, 5), 1, "the bit of a message of one queue");
  publish(1, 0);
  set_header(SB_SLOT_PUBLISHED, 3);
  expect_is(sb_reference_clear(t.b, SLOT, 0, 5), 2, "the bit of a message in one queue");
  publish(1, 0);
  set_header(SB_SLOT_PUBLISHED, 2); /* its first cell is gone: that bit is no other's for all that */
  expect_is(sb_reference_clear(t.b, SLOT, 1, 5), 2, "the bit beside a moved cell");
  publish(2, 0);
  set_header(SB_SLOT_PUBLISHED, 1);
  expect_is(sb_reference_clear(t.b, SLOT, 0, 5), 2, "the bit of the first of two");
  expect_is(sb_reference_clear(t.b, SLOT, 3, 5), 1, "the bit of the second of two");
  publish(SB_PLAIN_TARGETS, 0);
  set_header(SB_SLOT_PUBLISHED, 0xff);
  expect_is(sb_reference_clear(t.b, SLOT, 7, 5), 15, "the bit of the last of eight");
  set_header(SB_SLOT_PUBLISHED, 1u << 7 | 1u << 15);
  expect_is(sb_reference_clear(t.b, SLOT, 7, 5), 23, "the last bit of the last of eight");
  set_header(SB_SLOT_PUBLISHED, 1u << 7 | 1u << 15 | 1u << 23);
  expect_is(sb_reference_clear(t.b, SLOT, 7, 5), SB_MAX_REFS, "no bit of the last of eight");
  publish(1, 0);
  set_header(SB_SLOT_PUBLISHED, (1u << SB_MAX_REFS) - 1);
  expect_is(sb_reference_clear(t.b, SLOT, 0, 5), SB_MAX_REFS, "no bit");
}

/* With a block each bit but the first is claimed once for the life of the message; parts have one of them. */
static void bits_that_are_claimed(void) {
  sb_block k = block_of_many(0);
  for (unsigned i = 1; i < SB_MAX_REFS; i++) {
    expect_is(sb_reference_clear(t.b, SLOT, SB_REF_BLOCK, 40 + i), i, "the bit that is claimed");
    expect_is(k.claims[i], 40 + i, "who has claimed it");
  }
  expect_is(sb_reference_clear(t.b, SLOT, SB_REF_BLOCK, 99), SB_MAX_REFS, "no bit");
  expect_is(k.claims[0], 0, "the claim of the block's own bit");
  k = block_of_many(0);
  set_header(SB_SLOT_PUBLISHED, 1u << SB_PARTS_REF | 1);
  for (unsigned i = 1; i < SB_PARTS_REF; i++)
    expect_is(sb_reference_clear(t.b, SLOT, SB_REF_BLOCK, 40), i, "the bit that is claimed, in parts");
  expect_is(sb_reference_clear(t.b, SLOT, SB_REF_BLOCK, 40), SB_MAX_REFS, "no bit, in parts");
  block_of_many(0);
  message()->body_offset = 32;
  expect_is(sb_reference_clear(t.b, SLOT, SB_REF_BLOCK, 40), SB_MAX_REFS, "no bit without a block");
}

/* A damaged cell or holding may name a bit behind those of the header: it is gone, and the block is seen to. */
static void a_number_that_no_reference_has(void) {
  sb_reference r = {.slot = SLOT, .gen = GEN, .ref = SB_MAX_REFS, .queue = 10 * MANY + 5};
  for (unsigned i = 0; i < 2; i++) {
    sb_block k = block_of_many(0);
    sb_block_set(&k, 3, 0);
    expect(i == 0 ? !sb_reference_drop(t.b, &r) : sb_reference_gone(t.b, &r), "it is there");
    expect_is(refs(), 1, "the references beside a bit of the block");
    SB_STORE(&k.bits[0], 0, SB_RELAXED);
    expect(i == 0 ? !sb_reference_drop(t.b, &r) : sb_reference_gone(t.b, &r), "it is there, in an empty block");
    expect(is_free(), "the slot of an empty block stays");
  }
}

static const test_case CASES[] = {
    {"reference: bytes", "a block has the bytes that its queues and viewers need, in whole lines", bytes_of_a_block},
    {"reference: places", "the parts of a block lie one behind the other, in front of the body", where_a_block_lies},
    {"reference: believed", "a block that cannot be is none", no_block_is_believed},
    {"reference: filled", "a new block has its queues, and neither bit nor claim", a_block_begins_empty},
    {"reference: queue's place", "a queue is found where it stands, others nowhere", the_place_of_a_queue},
    {"reference: bits", "each queue has four bits of its own", bits_of_a_block},
    {"reference: last bit", "the slot goes with the last bit of its block", the_last_bit_frees},
    {"reference: none", "a bit of a block that does not count is no reference", what_is_no_reference},
    {"reference: empty block", "who misses his reference drops an empty block", an_empty_block_is_dropped},
    {"reference: last word", "a block with a bit in its last word is not dropped",
     a_bit_in_the_last_word_keeps_the_block},
    {"reference: header", "a reference in the header is there while its bit is set", references_in_the_header},
    {"reference: no number", "a number that no reference has is one that is gone", a_number_that_no_reference_has},
    {"reference: added", "bits that views may add are shared out among the cells", bits_that_may_be_added},
    {"reference: claimed", "with a block, each bit is claimed once", bits_that_are_claimed},
};
SUBJECT(CASES)
