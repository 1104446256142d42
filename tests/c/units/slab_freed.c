// SPDX-License-Identifier: Apache-2.0
/* sb_slab: slots that are freed, hints that are not set yet, and the use of memory. All chunks are FREE except those
 * that a case opens. */
#include <string.h>

#include "meanwhile.h"
#include "sb_holdings.h"
#include "sb_parts.h"
#include "sb_reserve.h"
#include "slabs.h"

#define HIGH (UINT64_C(1) << SB_PARTS_REF)
#define FREED sb_slot_word(SB_SLOT_FREE, 0, GEN + 1)

/* ---- freeing ---- */

static void a_slot_is_freed_once(void) {
  begin_slab();
  open_chunk(FOUR);
  set_header(SLOT, SB_SLOT_ALLOC, 9);
  uint64_t is = header_of(SLOT);
  expect(!sb_slab_free(t.b, SLOT, is + 4), "a slot of another header was freed");
  expect_is(header_of(SLOT), is, "its header");
  expect(sb_slab_free(t.b, SLOT, is), "it was not freed");
  expect_is(header_of(SLOT), FREED, "its header when it was freed");
  expect_is(hints(1), 64, "its hint");
  set_header(SLOT, SB_SLOT_ALLOC, 9);
  expect(!sb_slab_free_gen(t.b, SLOT, GEN + 1), "a slot of another generation was freed");
  expect(sb_slab_free_gen(t.b, SLOT, GEN | ~SB_GEN_MASK), "a slot of that generation was not freed");
  set_header(SLOT, SB_SLOT_FREE, 0);
  expect(!sb_slab_free_gen(t.b, SLOT, GEN), "a free slot was freed");
  set_header(SLOT, SB_SLOT_PUBLISHED, 3);
  sb_slab_free_now(t.b, SLOT);
  expect_is(header_of(SLOT), FREED, "the header of what is freed now");
  sb_slab_free_now(t.b, BROKER_CHUNKS * SB_CHUNK_UNITS);
}
/* With a head go its parts. */
static void a_head_is_freed(void) {
  uint32_t part = SLOT + 4;
  begin_slab();
  open_chunk(FOUR);
  sb_parts_begin(t.c, SLOT, GEN);
  sb_parts_add(t.b, SLOT, GEN, part, GEN);
  expect(sb_slab_free(t.b, SLOT, header_of(SLOT)), "it was not freed");
  expect_is(header_of(part), FREED, "the header of its part");
  set_header(SLOT, SB_SLOT_PUBLISHED, HIGH | 1); /* no head: that is a reference like others */
  set_header(part, SB_SLOT_ALLOC, SB_SLOT_PART);
  expect(sb_slab_free(t.b, SLOT, header_of(SLOT)), "a message was not freed");
  expect_is(header_of(part), sb_slot_word(SB_SLOT_ALLOC, SB_SLOT_PART, GEN), "the part of another head");
}
static void what_is_not_mapped_is_not_freed(void) {
  begin_slab();
  open_chunk(FOUR);
  set_header(SLOT, SB_SLOT_ALLOC, 9);
  SB_STORE(&t.b->mapped_chunks, CHUNK, SB_RELAXED);
  sb_slab_free_now(t.b, SLOT);
  expect_is(header_of(SLOT), sb_slot_word(SB_SLOT_ALLOC, 9, GEN), "its header");
}
static void references_are_dropped(void) {
  bool freed = true;
  begin_slab();
  open_chunk(FOUR);
  set_header(SLOT, SB_SLOT_PUBLISHED, 5);
  expect(!sb_slab_drop(t.b, SLOT, GEN, 1, &freed) && !freed, "a reference that is not there was dropped");
  expect(!sb_slab_drop(t.b, SLOT, GEN + 1, 0, &freed), "a reference of another message was dropped");
  freed = true;
  expect(sb_slab_drop(t.b, SLOT, GEN | ~SB_GEN_MASK, 0, &freed) && !freed, "one of two was not dropped");
  expect_is(header_of(SLOT), sb_slot_word(SB_SLOT_PUBLISHED, 4, GEN), "what is left");
  expect(sb_slab_drop(t.b, SLOT, GEN, 2, &freed) && freed, "the last one was not dropped");
  expect_is(header_of(SLOT), FREED, "its header");
  set_header(SLOT, SB_SLOT_ALLOC, 1);
  expect(!sb_slab_drop(t.b, SLOT, GEN, 0, &freed) && !freed, "a reference of what is not published was dropped");
  set_header(SLOT, SB_SLOT_READ, 1 | SB_FIELD(9, SB_READ_REFS));
  expect(sb_slab_drop(t.b, SLOT, GEN, 0, &freed) && !freed, "the last one beside a reader was not dropped");
  expect_is(header_of(SLOT), sb_slot_word(SB_SLOT_READ, SB_FIELD(9, SB_READ_REFS), GEN), "what is left to the reader");
}
/* SB_PARTS_REF is no owner's in a head: with it alone the slot is free. */
static void references_of_a_head(void) {
  bool freed;
  sb_message_shm *m = sb_slot_at(t.b, SLOT);
  begin_slab();
  open_chunk(FOUR);
  set_header(SLOT, SB_SLOT_PUBLISHED, HIGH | 1);
  expect(sb_slab_drop(t.b, SLOT, GEN, 0, &freed) && !freed, "a message with a high reference was freed");
  expect_is(header_of(SLOT), sb_slot_word(SB_SLOT_PUBLISHED, HIGH, GEN), "its header");
  m->flags = SB_MESSAGE_IN_PARTS;
  set_header(SLOT, SB_SLOT_PUBLISHED, HIGH | 3);
  expect(sb_slab_drop(t.b, SLOT, GEN, 0, &freed) && !freed, "a head with a reference was freed");
  expect(sb_slab_drop(t.b, SLOT, GEN, 1, &freed) && freed, "a head without references was not freed");
}
static void references_are_added(void) {
  begin_slab();
  open_chunk(FOUR);
  set_header(SLOT, SB_SLOT_PUBLISHED, 1);
  expect(sb_slab_add(t.b, SLOT, SB_MAX_REFS - 1), "there is no room for the last one");
  expect_is(sb_slot_refs(header_of(SLOT)), 1 | 1u << (SB_MAX_REFS - 1), "the references");
  set_header(SLOT, SB_SLOT_READ, 1 | SB_FIELD(9, SB_READ_REFS));
  expect(!sb_slab_add(t.b, SLOT, SB_READ_REFS), "there is room where the reader's number is");
  expect(sb_slab_add(t.b, SLOT, SB_READ_REFS - 1), "there is no room beside a reader");
  expect_is(header_of(SLOT), sb_slot_word(SB_SLOT_READ, 1 | 1u << (SB_READ_REFS - 1) | SB_FIELD(9, SB_READ_REFS), GEN),
            "the header beside a reader");
}

/* Another connection changes the header between the look at it and the change. */
static void drop_another(void) { set_header(SLOT, SB_SLOT_PUBLISHED, 3); }
static void drop_this(void) { set_header(SLOT, SB_SLOT_PUBLISHED, 2); }
static void free_it(void) { sb_slab_free_now(t.b, SLOT); }
static void references_of_several(void) {
  bool freed = true;
  sb_word *header = sb_slot_header(t.b, SLOT);
  begin_slab();
  open_chunk(FOUR);
  set_header(SLOT, SB_SLOT_PUBLISHED, 7);
  meanwhile(header, BEFORE_CAS, 1, drop_another);
  expect(sb_slab_drop(t.b, SLOT, GEN, 0, &freed) && !freed, "a reference was not dropped");
  if (has_acted()) expect_is(header_of(SLOT), sb_slot_word(SB_SLOT_PUBLISHED, 2, GEN), "what is left of three");
  set_header(SLOT, SB_SLOT_PUBLISHED, 3);
  meanwhile(header, BEFORE_CAS, 1, drop_this);
  bool dropped = sb_slab_drop(t.b, SLOT, GEN, 0, &freed);
  expect(!has_acted() || !dropped, "a reference was dropped twice");
  set_header(SLOT, SB_SLOT_PUBLISHED, 1);
  meanwhile(header, BEFORE_CAS, 1, free_it);
  dropped = sb_slab_drop(t.b, SLOT, GEN, 0, &freed);
  expect(!has_acted() || (!dropped && !freed), "a slot was freed twice");
  set_header(SLOT, SB_SLOT_PUBLISHED, 1);
  meanwhile(header, BEFORE_CAS, 1, drop_another); /* which added one before */
  expect(sb_slab_drop(t.b, SLOT, GEN, 0, &freed), "the reference was not dropped");
  if (has_acted()) {
    expect(!freed, "a slot with a reference was freed");
    expect_is(header_of(SLOT), sb_slot_word(SB_SLOT_PUBLISHED, 2, GEN), "what is left of two");
  }
  set_header(SLOT, SB_SLOT_PUBLISHED, 1);
  meanwhile(header, BEFORE_CAS, 1, drop_another);
  expect(sb_slab_add(t.b, SLOT, 4), "no reference was added");
  if (has_acted()) expect_is(header_of(SLOT), sb_slot_word(SB_SLOT_PUBLISHED, 19, GEN), "the references");
}

/* ---- hints of slots that were freed ---- */

static void drop_last(uint32_t slot) {
  set_header(slot, SB_SLOT_PUBLISHED, 1);
  sb_slab_drop_last(t.c, slot, header_of(slot));
  expect_is(header_of(slot), FREED, "the header of what was dropped");
}
/* They are collected for a word, which the connection says it owes, and given when another word begins. */
static void hints_are_collected(void) {
  begin_slab();
  open_chunk(FOUR);
  drop_last(SLOT);
  drop_last(SLOT + 4);
  expect_is(t.c->freed.mask, 192, "what was collected");
  expect_is(t.c->shm->claims[0], CHUNK * 128 + 2, "the word that is owed");
  expect_is(hints(1), 0, "the hints before");
  drop_last(SLOT + 4 * 64);
  expect_is(hints(1), 192, "the hints when another word begins");
  expect_is(t.c->freed.mask, 64, "what is collected of it");
  expect_is(t.c->shm->claims[0], CHUNK * 128 + 3, "the other word");
  set_chunk(CHUNK + 1, SB_CHUNK_CLASS, FOUR + 1, 0);
  uint32_t other = (CHUNK + 1) * SB_CHUNK_UNITS + 5 * (128 + 3); /* the same word of another chunk */
  drop_last(other);
  expect_is(hints(2), 64, "the hints when another chunk begins");
  expect_is(t.c->freed_class, FOUR + 1, "the class that is collected");
  sb_slab_flush_freed(t.c);
  expect_is(sb_chunk_meta(t.b, CHUNK + 1)->hints[2] & 8, 8, "the hints of the other chunk");
  expect_is(t.c->freed.mask, 0, "what is left");
  no_hints();
  for (uint32_t i = 0; i < 64; i++) drop_last(CHUNK * SB_CHUNK_UNITS + 4 * i);
  expect_is(hints(0), UINT64_MAX, "the hints of a whole word");
}
/* What it owed is settled, and forgotten: it says anew what it owes. */
static void the_same_word_once_more(void) {
  begin_slab();
  open_chunk(FOUR);
  drop_last(SLOT);
  sb_slab_return_cache(t.c);
  expect_is(t.c->shm->claims[0], 0, "the word that is owed when all is given");
  drop_last(SLOT + 4);
  expect_is(t.c->shm->claims[0], CHUNK * 128 + 2, "the word that is owed");
}
static void hints_of_long_slots_are_given_at_once(void) {
  const unsigned classes[] = {sb_class_for(t.b, SB_SINGLE_CLAIM_UNITS * SB_UNIT), LONGEST};
  for (unsigned i = 0; i < 2; i++) {
    begin_slab();
    open_chunk(classes[i]);
    drop_last(CHUNK * SB_CHUNK_UNITS);
    expect_is(hints(0), 1, "the hint of a long slot");
    expect_is(t.c->freed.mask, 0, "what is collected");
  }
  begin_slab();
  open_chunk(classes[0] - 1);
  drop_last(CHUNK * SB_CHUNK_UNITS);
  expect_is(hints(0), 0, "the hint of a slot that is not long");
  begin_slab();
  open_chunk(1);
  drop_last(CHUNK * SB_CHUNK_UNITS + 70);
  expect_is(t.c->freed.mask, 64, "what is collected of the shortest slots");
}
/* A run has no hints, nor has a chunk that is drained meanwhile. */
static void slots_without_hints(void) {
  const uint64_t words[] = {sb_chunk_word(SB_CHUNK_RUN, 0, 0, 1), sb_chunk_word(SB_CHUNK_RUN, 0, FOUR, 1),
                            sb_chunk_word(SB_CHUNK_DRAINING, 0, FOUR, 0), sb_chunk_word(SB_CHUNK_CLASS, 0, 0, 0),
                            sb_chunk_word(SB_CHUNK_CLASS, 0, LONGEST + 1, 0)};
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
    begin_slab();
    open_chunk(FOUR);
    t.c->freed = (sb_slab_cache){8, CHUNK, 1};
    SB_STORE(&t.b->chunks[CHUNK], words[i], SB_RELAXED);
    drop_last(CHUNK * SB_CHUNK_UNITS);
    expect_is(t.c->freed.mask, 8, "what is collected");
  }
}
static void what_a_connection_took_goes_back(void) {
  begin_slab();
  open_chunk(FOUR);
  t.c->cache[FOUR] = (sb_slab_cache){5, CHUNK, 3};
  t.c->cache[CLASSES - 1] = (sb_slab_cache){6, CHUNK, 4};
  t.c->cache[1] = (sb_slab_cache){7, CHUNK, 5};
  t.c->freed = (sb_slab_cache){9, CHUNK, 6};
  t.c->freed_class = FOUR;
  for (unsigned i = 0; i <= CLASSES; i++) SB_STORE(&t.c->shm->claims[i], 77u, SB_RELAXED);
  sb_slab_return_class(t.c, FOUR);
  expect_is(hints(3), 5, "the hints of a class");
  expect_is(t.c->cache[FOUR].mask, 0, "the cache of a class");
  expect_is(t.c->shm->claims[FOUR], 0, "the claim of a class");
  expect_is(hints(5), 0, "the hints of another class");
  sb_slab_return_cache(t.c);
  expect_is(hints(4), 6, "the hints of the last class");
  expect_is(hints(5), 7, "the hints of the first class");
  expect_is(hints(6), 9, "the hints of what was freed");
  for (unsigned i = 0; i < CLASSES; i++) {
    expect_is(t.c->shm->claims[i], 0, "a claim");
    expect_is(t.c->cache[i].mask, 0, "a cache");
  }
  expect_is(t.c->shm->claims[CLASSES], 77, "the claim of no class");
  no_hints();
  uint64_t groups = t.b->classes[FOUR].groups = 0;
  sb_slab_return_cache(t.c);
  expect_is(t.b->classes[FOUR].groups, groups, "the groups when nothing goes back");
}
/* The reaper sets all bits of a word that the dead had taken: too many cost a look. */
static void what_the_dead_took(void) {
  begin_slab();
  open_chunk(FOUR);
  sb_connection_shm dead = {0};
  uint32_t last = SB_CHUNK_UNITS / 4 / 64 - 1;
  SB_STORE(&dead.claims[0], CHUNK * 128 + 3, SB_RELAXED);
  SB_STORE(&dead.claims[FOUR], CHUNK * 128 + last + 1, SB_RELAXED);
  SB_STORE(&dead.claims[CLASSES - 1], CHUNK * 128 + last + 2, SB_RELAXED); /* behind the last slot */
  sb_slab_restore_claims(t.b, &dead);
  for (uint32_t w = 0; w < 128; w++) expect_is(hints(w), w == 2 || w == last ? UINT64_MAX : 0, "the hints of a word");
  expect_is(sb_chunk_meta(t.b, CHUNK)->summary[0] & 4, 4, "their summary");
  memset(&dead, 0, sizeof dead);
  unsigned few = sb_class_for(t.b, 224 * SB_UNIT); /* 36 slots */
  open_chunk(few);
  SB_STORE(&dead.claims[few], CHUNK * 128 + 1, SB_RELAXED);
  SB_STORE(&dead.claims[1], CHUNK * 128 + 2, SB_RELAXED); /* behind the last slot */
  sb_slab_restore_claims(t.b, &dead);
  expect_is(hints(0), (UINT64_C(1) << 36) - 1, "the hints of few slots");
  expect_is(hints(1), 0, "the hints behind few slots");
  memset(&dead, 0, sizeof dead);
  open_chunk(2); /* the word was taken when slots of one unit were there */
  SB_STORE(&dead.claims[1], CHUNK * 128 + SB_CHUNK_UNITS / 2 / 64 + 1, SB_RELAXED);
  SB_STORE(&t.b->classes[2].hint_chunk, 0u, SB_RELAXED);
  sb_slab_restore_claims(t.b, &dead);
  expect_is(t.b->classes[2].hint_chunk, 0, "where a slot is free, just behind the last slot");
  expect_is(sb_chunk_meta(t.b, CHUNK)->summary[1], 0, "the summary of the words behind the last slot");
  open_chunk(1);
  SB_STORE(&dead.claims[few], CHUNK * 128 + 128, SB_RELAXED);
  sb_slab_restore_claims(t.b, &dead);
  expect_is(hints(127), UINT64_MAX, "the last word of hints");
}
static void what_the_dead_did_not_take(void) {
  begin_slab();
  open_chunk(FOUR);
  sb_connection_shm dead = {0};
  sb_slab_restore_claims(t.b, &dead);
  const uint64_t words[] = {sb_chunk_word(SB_CHUNK_FREE, 0, FOUR, 0), sb_chunk_word(SB_CHUNK_RUN, 0, FOUR, 1),
                            sb_chunk_word(SB_CHUNK_CLASS, 0, 0, 0), sb_chunk_word(SB_CHUNK_CLASS, 0, CLASSES, 0)};
  SB_STORE(&dead.claims[FOUR], CHUNK * 128 + 1, SB_RELAXED);
  for (unsigned i = 0; i < 4; i++) {
    SB_STORE(&t.b->chunks[CHUNK], words[i], SB_RELAXED);
    sb_slab_restore_claims(t.b, &dead);
    expect_is(hints(0), 0, "the hints of another chunk");
  }
  open_chunk(FOUR);
  SB_STORE(&t.b->mapped_chunks, CHUNK, SB_RELAXED);
  sb_slab_restore_claims(t.b, &dead);
  expect_is(hints(0), 0, "the hints of a chunk that is not mapped");
  SB_STORE(&t.b->mapped_chunks, BROKER_CHUNKS, SB_RELAXED);
  memset(&dead, 0, sizeof dead);
  SB_STORE(&dead.claims[CLASSES], CHUNK * 128 + 1, SB_RELAXED);
  sb_slab_restore_claims(t.b, &dead);
  expect_is(hints(0), 0, "the hints of the claim of no class");
  SB_STORE(&t.b->chunks[BROKER_CHUNKS], sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 0), SB_RELAXED);
  SB_STORE(&dead.claims[FOUR], BROKER_CHUNKS * 128 + 1, SB_RELAXED);
  SB_STORE(&t.b->classes[FOUR].hint_chunk, 0u, SB_RELAXED);
  sb_slab_restore_claims(t.b, &dead);
  expect_is(t.b->classes[FOUR].hint_chunk, 0, "where a slot is free, behind the last chunk");
}

/* ---- what lies where ---- */

static void objects_and_slots(void) {
  unsigned kind = SB_KIND_INNER, cls = SB_MESSAGE_CLASSES + kind;
  uint32_t first = CHUNK * SB_CHUNK_UNITS;
  begin_slab();
  open_chunk(cls);
  expect(sb_slab_object(t.b, first + 3, kind) == sb_slot_at(t.b, first + 3), "an object is none");
  expect_is(sb_slab_slot_bytes(t.b, first + 3), 3 * SB_UNIT, "its bytes");
  const uint32_t none[] = {0, first + 1, first + SB_CHUNK_UNITS / 3 * 3, BROKER_CHUNKS * SB_CHUNK_UNITS, UINT32_MAX};
  set_chunk(0, SB_CHUNK_CLASS, cls, 0);
  SB_STORE(&t.b->chunks[BROKER_CHUNKS], sb_chunk_word(SB_CHUNK_CLASS, 0, cls, 0), SB_RELAXED);
  for (unsigned i = 0; i < sizeof none / sizeof none[0]; i++) {
    expect(sb_slab_object(t.b, none[i], kind) == NULL, "slot %u is an object", none[i]);
    if (i > 0) expect_is(sb_slab_slot_bytes(t.b, none[i]), 0, "the bytes of what is no slot");
  }
  expect(sb_slab_object(t.b, first, kind + 1) == NULL, "an object is of another kind");
  SB_STORE(&t.b->mapped_chunks, CHUNK, SB_RELAXED);
  expect(sb_slab_object(t.b, first, kind) == NULL, "what is not mapped is an object");
  SB_STORE(&t.b->mapped_chunks, BROKER_CHUNKS, SB_RELAXED);
  set_chunk(CHUNK, SB_CHUNK_DRAINING, cls, 0);
  expect(sb_slab_object(t.b, first, kind) == NULL, "what is drained is an object");
  expect_is(sb_slab_slot_bytes(t.b, first), 3 * SB_UNIT, "the bytes of what is drained");
  open_chunk(SB_MESSAGE_CLASSES + SB_KIND_NODE); /* whose last slot ends with the chunk */
  expect(sb_slab_object(t.b, first + SB_CHUNK_UNITS - 1, SB_KIND_NODE) != NULL, "the last node is none");
  expect_is(sb_slab_slot_bytes(t.b, first + SB_CHUNK_UNITS - 1), SB_UNIT, "the bytes of the last node");
  const unsigned classes[][2] = {
      {0, 0}, {1, 1}, {SB_MESSAGE_CLASSES + SB_KIND_LONG_QUEUE, SB_LONG_QUEUE_UNITS}, {CLASSES, 0}};
  for (unsigned i = 0; i < 4; i++) {
    set_chunk(CHUNK, SB_CHUNK_CLASS, classes[i][0], 0);
    expect_is(sb_slab_slot_bytes(t.b, first), classes[i][1] * SB_UNIT, "the bytes of a class");
  }
  set_chunk(CHUNK, SB_CHUNK_FREE, FOUR, 0);
  expect_is(sb_slab_slot_bytes(t.b, first), 0, "the bytes of a free chunk");
}
static void bytes_of_runs(void) {
  uint32_t first = CHUNK * SB_CHUNK_UNITS;
  begin_slab();
  set_chunk(CHUNK, SB_CHUNK_RUN, FOUR, 3);
  expect_is(sb_slab_slot_bytes(t.b, first), 3 * SB_CHUNK_BYTES, "the bytes of a run");
  expect_is(sb_slab_slot_bytes(t.b, first + 4), 0, "the bytes in the middle of a run");
  set_chunk(CHUNK, SB_CHUNK_RUN, FOUR, 0);
  expect_is(sb_slab_slot_bytes(t.b, first), 0, "the bytes of a run of no chunk");
  set_chunk(CHUNK, SB_CHUNK_RUN, 0, BROKER_CHUNKS - CHUNK);
  expect_is(sb_slab_slot_bytes(t.b, first), (BROKER_CHUNKS - CHUNK) * SB_CHUNK_BYTES, "the bytes of the longest run");
  set_chunk(CHUNK, SB_CHUNK_RUN, 0, BROKER_CHUNKS - CHUNK + 1);
  expect_is(sb_slab_slot_bytes(t.b, first), 0, "the bytes of a run behind the last chunk");
}

/* ---- how much ---- */

static void expect_kept(uint64_t structures, uint64_t bodies, const char *what) {
  uint64_t s, d;
  sb_slab_kept(t.b, &s, &d);
  expect_is(s, structures * SB_CHUNK_BYTES, what);
  expect_is(d, bodies * SB_CHUNK_BYTES, what);
}
/* Chunks of structures, the reserve with them; all others that are in use are of bodies. */
static void what_is_kept_for_what(void) {
  begin_slab();
  uint32_t reserve = sb_reserve_chunks(t.b);
  expect_kept(reserve, 0, "an empty broker");
  set_chunk(0, SB_CHUNK_CLASS, FOUR, 0);
  set_chunk(CHUNK, SB_CHUNK_CLASS, LONGEST, 0);
  set_chunk(CHUNK + 1, SB_CHUNK_RUN, CLASSES - 1, 1);
  expect_kept(reserve, 3, "three chunks of bodies");
  set_chunk(BROKER_CHUNKS - 1, SB_CHUNK_CLASS, LONGEST + 1, 0);
  set_chunk(CHUNK + 2, SB_CHUNK_DRAINING, LONGEST + 1, 0);
  expect_kept(reserve + 2, 3, "two chunks of structures");
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) set_chunk(i, SB_CHUNK_CLASS, FOUR, 0);
  expect_kept(0, BROKER_CHUNKS, "a broker full of bodies");
  set_chunk(5, SB_CHUNK_FREE, 0, 0);
  expect_kept(1, BROKER_CHUNKS - 1, "a broker with one chunk left");
  SB_STORE(&t.b->chunks[BROKER_CHUNKS], sb_chunk_word(SB_CHUNK_CLASS, 0, LONGEST + 1, 0), SB_RELAXED);
  expect_kept(1, BROKER_CHUNKS - 1, "a chunk behind the last");
}
/* A chunk is opened for structures while they are counted: no number falls below 0. */
static void open_the_last_chunk(void) { set_chunk(BROKER_CHUNKS - 1, SB_CHUNK_CLASS, LONGEST + 1, 0); }
static void what_is_kept_meanwhile(void) {
  begin_slab();
  meanwhile(&t.b->chunks[BROKER_CHUNKS - 1], AFTER_LOAD, 1, open_the_last_chunk);
  uint64_t structures, bodies;
  sb_slab_kept(t.b, &structures, &bodies);
  if (!has_acted()) return;
  expect_is(structures, (sb_reserve_chunks(t.b) + 1) * SB_CHUNK_BYTES, "the bytes of structures");
  expect_is(bodies, 0, "the bytes of bodies");
}
static void what_is_used(void) {
  begin_slab();
  expect_is(sb_slab_used(t.b), 0, "an empty broker");
  open_chunk(FOUR);
  expect_is(sb_slab_used(t.b), 0, "free slots");
  set_header(CHUNK * SB_CHUNK_UNITS, SB_SLOT_PUBLISHED, 1);
  set_header(CHUNK * SB_CHUNK_UNITS + SB_CHUNK_UNITS - 4, SB_SLOT_ALLOC, 1);
  set_header(CHUNK * SB_CHUNK_UNITS + 1, SB_SLOT_ALLOC, 1); /* in the middle of one */
  expect_is(sb_slab_used(t.b), 8 * SB_UNIT, "the first slot and the last one");
  set_chunk(0, SB_CHUNK_CLAIMED, 0, 0);
  expect_is(sb_slab_used(t.b), 8 * SB_UNIT + SB_CHUNK_BYTES, "a chunk that is claimed");
  set_chunk(0, SB_CHUNK_FREE, 0, 0);
  for (uint32_t i = 0; i < 3; i++) set_chunk(30 + i, i == 0 ? SB_CHUNK_RUN : SB_CHUNK_TAIL, 0, i == 0 ? 3 : i);
  set_header(30 * SB_CHUNK_UNITS, SB_SLOT_FREE, 0);
  set_chunk(33, SB_CHUNK_CLAIMED, 0, 0);
  expect_is(sb_slab_used(t.b), 8 * SB_UNIT + SB_CHUNK_BYTES, "a run that is free, beside a chunk that is not");
  set_chunk(33, SB_CHUNK_FREE, 0, 0);
  set_header(30 * SB_CHUNK_UNITS, SB_SLOT_PUBLISHED, 1);
  expect_is(sb_slab_used(t.b), 8 * SB_UNIT + 3 * SB_CHUNK_BYTES, "a run");
  set_header(30 * SB_CHUNK_UNITS, SB_SLOT_FREE, 0);
  set_chunk(30, SB_CHUNK_RUN, 0, 0);
  expect_is(sb_slab_used(t.b), 8 * SB_UNIT + 2 * SB_CHUNK_BYTES, "a run of no chunk, before two tails");
  begin_slab();
  const unsigned classes[] = {0, CLASSES, SB_MESSAGE_CLASSES + SB_KIND_LONG_QUEUE, 1};
  const uint64_t used[] = {0, 0, SB_LONG_QUEUE_UNITS, 1};
  for (unsigned i = 0; i < 4; i++) {
    open_chunk(classes[i]);
    set_header(CHUNK * SB_CHUNK_UNITS, SB_SLOT_ALLOC, 1);
    expect_is(sb_slab_used(t.b), used[i] * SB_UNIT, "a slot of a class");
  }
  begin_slab();
  set_chunk(BROKER_CHUNKS - 1, SB_CHUNK_CLAIMED, 0, 0);
  SB_STORE(&t.b->chunks[BROKER_CHUNKS], sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_RELAXED);
  expect_is(sb_slab_used(t.b), SB_CHUNK_BYTES, "the last chunk");
  SB_STORE(&t.b->mapped_chunks, CHUNK, SB_RELAXED);
  expect_is(sb_slab_used(t.b), 0, "a chunk that is not mapped");
  SB_STORE(&t.b->mapped_chunks, BROKER_CHUNKS, SB_RELAXED);
  SB_STORE(&t.b->header->segments, 1u, SB_RELAXED);
  set_chunk(CHUNKS_PER_SEGMENT, SB_CHUNK_CLAIMED, 0, 0);
  expect_is(sb_slab_used(t.b), 0, "a chunk behind the last of a broker that may grow");
}

static const test_case CASES[] = {
    {"slab_freed: once", "a slot is freed once, in its generation", a_slot_is_freed_once},
    {"slab_freed: head", "with a head its parts are freed", a_head_is_freed},
    {"slab_freed: not mapped", "a slot that is not mapped is not freed", what_is_not_mapped_is_not_freed},
    {"slab_freed: several", "references are dropped once, whoever else drops some", references_of_several},
    {"slab_freed: once more", "a connection says anew what it owes", the_same_word_once_more},
    {"slab_freed: meanwhile", "chunks that change while they are counted count as structures", what_is_kept_meanwhile},
    {"slab_freed: dropped", "the last reference frees a slot, beside a reader it does not", references_are_dropped},
    {"slab_freed: parts", "the reference of parts is nobody's", references_of_a_head},
    {"slab_freed: added", "references are added where there is room", references_are_added},
    {"slab_freed: collected", "hints are collected for a word", hints_are_collected},
    {"slab_freed: long", "hints of long slots are given at once", hints_of_long_slots_are_given_at_once},
    {"slab_freed: unhinted", "a run has no hints", slots_without_hints},
    {"slab_freed: returned", "what a connection took goes back", what_a_connection_took_goes_back},
    {"slab_freed: dead", "what the dead took is hinted at", what_the_dead_took},
    {"slab_freed: not dead's", "what the dead did not take is not hinted at", what_the_dead_did_not_take},
    {"slab_freed: objects", "an object is a slot of its kind", objects_and_slots},
    {"slab_freed: runs", "a run has the bytes of its chunks", bytes_of_runs},
    {"slab_freed: kept", "chunks are of structures or of bodies", what_is_kept_for_what},
    {"slab_freed: used", "what is in use is counted by slots, or by chunks", what_is_used},
};
SUBJECT(CASES)
