// SPDX-License-Identifier: Apache-2.0
/* sb_chunk: classes, hints, and chunks that are claimed and opened. All chunks are taken except those that a case
 * frees. Draining and recovery: chunk_drained.c. */
#include "sb_chunk.h"

#include <string.h>
#include <sys/mman.h>

#include "cases.h"
#include "meanwhile.h"
#include "sb_floors.h"
#include "sb_holdings.h"
#include "sb_wait.h"

#define CHUNK 20u
#define FOUR 4u /* the class of four units */
#define LONGEST SB_MESSAGE_CLASSES
#define LEAVES (SB_MESSAGE_CLASSES + SB_KIND_LEAF)

static uint64_t token;

static uint64_t word_of(uint32_t chunk) { return SB_LOAD(&t.b->chunks[chunk], SB_RELAXED); }
static void set_chunk(uint32_t chunk, unsigned state, unsigned cls, uint64_t flag) {
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(state, 0, cls, 0) | flag, SB_RELAXED);
}
static sb_chunk_meta_shm *meta(uint32_t chunk) { return sb_chunk_meta(t.b, chunk); }
static void forget_hints(void) {
  for (unsigned cls = 0; cls < SB_MAX_CLASSES; cls++) {
    SB_STORE(&t.b->classes[cls].groups, 0, SB_RELAXED);
    SB_STORE(&t.b->classes[cls].hint_chunk, 0u, SB_RELAXED);
  }
}
static void all_taken(void) {
  grow_to(BROKER_CHUNKS - 1);
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) set_chunk(i, SB_CHUNK_TAIL, 0, 0);
  memset(t.c->cache, 0, sizeof t.c->cache);
  forget_hints();
  t.c->use = SB_USE_DRAIN;
}
static void free_chunks(uint32_t first, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) set_chunk(first + i, SB_CHUNK_FREE, 0, 0);
}

/* ---- classes ---- */

static void classes_of_slots(void) {
  sb_class_shm classes[SB_MAX_CLASSES] = {0};
  sb_class_format(classes);
  expect_is(classes[0].units, 0, "the units of no class");
  for (unsigned cls = 1; cls < SB_MESSAGE_CLASSES + SB_KIND_COUNT; cls++) {
    unsigned kind = cls <= SB_MESSAGE_CLASSES ? SB_KIND_MESSAGE : cls - SB_MESSAGE_CLASSES;
    expect_is(classes[cls].units, sb_class_units(cls), "the units of a class");
    expect_is(classes[cls].kind, kind, "the kind of a class");
    expect_is(classes[cls].slots_per_chunk, SB_CHUNK_UNITS / sb_class_units(cls), "its slots");
    if (kind != SB_KIND_MESSAGE) expect_is(sb_class_of_kind(t.b, kind), cls, "the class of a kind");
  }
  expect_is(sb_class_units(1), 1, "the units of the shortest slot");
  expect_is(sb_class_units(SB_MESSAGE_CLASSES), SB_CHUNK_UNITS, "the units of the longest slot");
  expect_is(sb_class_units(LEAVES), SB_LEAF_UNITS, "the units of a leaf");
}
/* The shortest slot that is long enough; at most a quarter of it is left over. */
static void the_class_for_so_many_bytes(void) {
  expect_is(sb_class_for(t.b, 0), 1, "the class for nothing");
  for (unsigned cls = 1; cls <= SB_MESSAGE_CLASSES; cls++) {
    uint64_t bytes = (uint64_t)sb_class_units(cls) * SB_UNIT;
    expect_is(sb_class_for(t.b, bytes), cls, "the class for a whole slot");
    expect_is(sb_class_for(t.b, bytes + 1), cls < SB_MESSAGE_CLASSES ? cls + 1 : 0, "the class for one byte more");
    expect_is(sb_class_for(t.b, bytes - 1), cls, "the class for one byte less");
  }
}

/* ---- hints ---- */

static void a_hint_is_set(void) {
  all_taken();
  sb_chunk_meta_shm *m = meta(CHUNK);
  sb_class_shm *k = &t.b->classes[FOUR];
  uint64_t group = UINT64_C(1) << (CHUNK >> t.b->groups_shift);
  memset(m->hints, 0, sizeof m->hints);
  m->summary[0] = m->summary[1] = 0;
  sb_chunk_hint_set(t.b, FOUR, CHUNK, 70, 5);
  expect_is(m->hints[70], 5, "the hints");
  expect_is(m->summary[1], UINT64_C(1) << 6, "the summary");
  expect_is(m->summary[0], 0, "the other summary");
  expect_is(k->groups, group, "the groups");
  expect_is(k->hint_chunk, CHUNK + 1, "where a slot was freed last");
  m->summary[1] = 0; /* who took the hints has not looked a second time yet */
  sb_chunk_hint_set(t.b, FOUR, CHUNK, 70, 8);
  expect_is(m->hints[70], 13, "more hints");
  expect_is(m->summary[1], UINT64_C(1) << 6, "the summary, set again");
  m->hints[3] = 0;
  m->summary[0] = 8;
  k->groups = 1;
  sb_chunk_hint_set(t.b, FOUR, CHUNK, 3, 1);
  expect_is(m->summary[0], 8, "a summary that was set");
  expect_is(k->groups, 1 | group, "the groups beside another one");
}
static void a_slot_is_freed(void) {
  all_taken();
  sb_chunk_meta_shm *m = meta(CHUNK);
  const unsigned classes[] = {1, FOUR, LEAVES, SB_MESSAGE_CLASSES + SB_KIND_COUNT - 1};
  for (unsigned i = 0; i < 4; i++) {
    unsigned units = sb_class_units(classes[i]), slot = SB_CHUNK_UNITS / units > 66 ? 66 : 7;
    memset(m->hints, 0, sizeof m->hints);
    set_chunk(CHUNK, SB_CHUNK_CLASS, classes[i], 0);
    sb_chunk_freed(t.b, CHUNK * SB_CHUNK_UNITS + slot * units);
    expect_is(m->hints[slot / 64], UINT64_C(1) << slot % 64, "the hint of a slot");
    expect(t.b->classes[classes[i]].groups != 0, "its class has no group");
  }
  const unsigned none[][2] = {{SB_CHUNK_FREE, 4},
                              {SB_CHUNK_RUN, 4},
                              {SB_CHUNK_CLASS, 0},
                              {SB_CHUNK_CLASS, 63},
                              {SB_CHUNK_CLASS, SB_MESSAGE_CLASSES + SB_KIND_COUNT}};
  memset(m->hints, 0, sizeof m->hints);
  forget_hints();
  for (unsigned i = 0; i < sizeof none / sizeof none[0]; i++) {
    set_chunk(CHUNK, none[i][0], none[i][1], 0);
    sb_chunk_freed(t.b, CHUNK * SB_CHUNK_UNITS);
    for (unsigned w = 0; w < SB_CHUNK_UNITS / 64; w++) expect_is(m->hints[w], 0, "the hint of a slot of no class");
    for (unsigned cls = 0; cls < SB_MAX_CLASSES; cls++) expect_is(t.b->classes[cls].groups, 0, "a group of no class");
  }
}

/* One chunk of the class, with these hints in these words. */
static void hint(uint32_t chunk, unsigned cls, uint32_t word, uint64_t bits) {
  set_chunk(chunk, SB_CHUNK_CLASS, cls, word_of(chunk) & SB_CHUNK_OF_RESERVE);
  sb_chunk_hint_set(t.b, cls, chunk, word, bits);
}
static void no_hints(uint32_t chunk) {
  memset(meta(chunk)->hints, 0, sizeof meta(chunk)->hints);
  meta(chunk)->summary[0] = meta(chunk)->summary[1] = 0;
}
static void expect_cache(unsigned cls, uint32_t chunk, uint32_t word, uint64_t mask, const char *what) {
  const sb_slab_cache *k = &t.c->cache[cls];
  expect_is(k->chunk, chunk, what);
  expect_is(k->word, word, what);
  expect_is(k->mask, mask, what);
  expect_is(t.c->shm->claims[cls], chunk * 128 + word + 1, "what it says it took");
}
/* Of short slots a whole word of hints is taken, of longer ones one hint; an empty word loses its bit in the summary. */
static void hints_are_taken(void) {
  all_taken();
  no_hints(CHUNK);
  meta(CHUNK)->parts = 7; /* lies behind the summary */
  expect(!sb_chunk_hint_search(t.c, FOUR), "there is a hint");
  hint(CHUNK, FOUR, 70, 13);
  hint(CHUNK, FOUR, 3, 6);
  expect(sb_chunk_hint_search(t.c, FOUR), "no hint was taken");
  expect_cache(FOUR, CHUNK, 3, 6, "the first word");
  expect_is(meta(CHUNK)->hints[3], 0, "the hints that were taken");
  expect_is(meta(CHUNK)->summary[0], 0, "their summary");
  expect(sb_chunk_hint_search(t.c, FOUR), "the second word was not taken");
  expect_cache(FOUR, CHUNK, 70, 13, "the second word");
  expect_is(meta(CHUNK)->summary[1], 0, "its summary");
  expect(!sb_chunk_hint_search(t.c, FOUR), "there is a third word");
  expect_is(t.b->classes[FOUR].groups, 0, "the groups when nothing is left");
  unsigned single = sb_class_for(t.b, SB_SINGLE_CLAIM_UNITS * SB_UNIT);
  const unsigned one_by_one[] = {single, single - 1};
  for (unsigned i = 0; i < 2; i++) {
    no_hints(CHUNK);
    hint(CHUNK, one_by_one[i], 3, 6);
    expect(sb_chunk_hint_search(t.c, one_by_one[i]), "no hint of a long slot was taken");
    expect_cache(one_by_one[i], CHUNK, 3, i == 0 ? 2 : 6, "the hint of a long slot");
    expect_is(meta(CHUNK)->hints[3], i == 0 ? 4 : 0, "what is left to others");
    expect_is(meta(CHUNK)->summary[0], i == 0 ? 8 : 0, "the summary of what is left");
  }
}
/* A summary that leads to nothing is cleared on the way. */
static void a_summary_without_hints(void) {
  all_taken();
  no_hints(CHUNK);
  hint(CHUNK, FOUR, 9, 1);
  meta(CHUNK)->summary[0] |= 4;
  expect(sb_chunk_hint_search(t.c, FOUR), "no hint was taken");
  expect_cache(FOUR, CHUNK, 9, 1, "the hint behind an empty word");
  expect_is(meta(CHUNK)->summary[0], 0, "the summary");
  unsigned single = sb_class_for(t.b, SB_SINGLE_CLAIM_UNITS * SB_UNIT);
  no_hints(CHUNK);
  hint(CHUNK, single, 9, 1);
  meta(CHUNK)->summary[0] |= 4;
  expect(sb_chunk_hint_search(t.c, single), "no hint of a long slot was taken");
  expect_cache(single, CHUNK, 9, 1, "the hint of a long slot behind an empty word");
}
/* Where a slot was freed last comes first for bodies; structures come from the first chunk that has one. */
static void which_chunk_comes_first(void) {
  const unsigned classes[] = {FOUR, LONGEST, LEAVES};
  for (unsigned i = 0; i < 3; i++) {
    bool body = classes[i] != LEAVES;
    all_taken();
    no_hints(CHUNK);
    no_hints(CHUNK + 9);
    hint(CHUNK, classes[i], 0, 1);
    hint(CHUNK + 9, classes[i], 0, 1);
    expect(sb_chunk_hint_search(t.c, classes[i]), "no hint was taken");
    expect_cache(classes[i], CHUNK + (body ? 9 : 0), 0, 1, "the hint that comes first");
    expect(sb_chunk_hint_search(t.c, classes[i]), "the second hint was not taken");
    expect_cache(classes[i], CHUNK + (body ? 0 : 9), 0, 1, "the hint that comes second");
  }
}
/* What hints lead to may be another one's by now. */
static void hints_to_other_chunks(void) {
  const uint64_t words[] = {sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR + 1, 0), sb_chunk_word(SB_CHUNK_DRAINING, 0, FOUR, 0),
                            sb_chunk_word(SB_CHUNK_FREE, 0, FOUR, 0)};
  for (unsigned i = 0; i < 3; i++) {
    all_taken();
    no_hints(CHUNK);
    hint(CHUNK, FOUR, 0, 1);
    SB_STORE(&t.b->chunks[CHUNK], words[i], SB_RELAXED);
    expect(!sb_chunk_hint_search(t.c, FOUR), "a hint of another chunk was taken");
    expect_is(meta(CHUNK)->hints[0], 1, "the hint of another chunk");
  }
  all_taken();
  SB_STORE(&t.b->classes[FOUR].hint_chunk, BROKER_CHUNKS + 1, SB_RELAXED);
  SB_STORE(&t.b->chunks[BROKER_CHUNKS], sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 0), SB_RELAXED);
  SB_STORE(&t.b->classes[FOUR].groups, UINT64_MAX, SB_RELAXED);
  expect(!sb_chunk_hint_search(t.c, FOUR), "a hint leads behind the last chunk");
}
/* The last chunk of all, and the last one of a group. */
static void hints_at_the_ends(void) {
  all_taken();
  expect_is(t.b->groups_shift, 0, "chunks in a group");
  no_hints(BROKER_CHUNKS - 1);
  hint(BROKER_CHUNKS - 1, FOUR, 0, 1);
  SB_STORE(&t.b->classes[FOUR].hint_chunk, 0u, SB_RELAXED);
  expect(sb_chunk_hint_search(t.c, FOUR), "the last chunk was not looked at");
  hint(BROKER_CHUNKS - 1, FOUR, 127, UINT64_C(1) << 63);
  SB_STORE(&t.b->classes[FOUR].groups, 0, SB_RELAXED);
  expect(sb_chunk_hint_search(t.c, FOUR), "the chunk of the last hint was not looked at");
  expect_cache(FOUR, BROKER_CHUNKS - 1, 127, UINT64_C(1) << 63, "the last hint of all");
  t.b->groups_shift = 3;
  for (uint32_t chunk = 8; chunk <= 16; chunk++) {
    no_hints(chunk);
    hint(chunk, FOUR, 0, 1);
  }
  SB_STORE(&t.b->classes[FOUR].groups, 2, SB_RELAXED); /* chunks 8 to 15 */
  SB_STORE(&t.b->classes[FOUR].hint_chunk, 0u, SB_RELAXED);
  for (uint32_t chunk = 8; chunk <= 15; chunk++) {
    expect(sb_chunk_hint_search(t.c, FOUR), "a chunk of the group was not looked at");
    expect_cache(FOUR, chunk, 0, 1, "a hint of the group");
  }
  expect(!sb_chunk_hint_search(t.c, FOUR), "a chunk of the next group was looked at");
}
/* Plain puts take nothing of the reserve; the hint stays for others. */
static void hints_of_the_reserve(void) {
  all_taken();
  no_hints(CHUNK);
  SB_STORE(&t.b->chunks[CHUNK], SB_CHUNK_OF_RESERVE, SB_RELAXED);
  hint(CHUNK, FOUR, 0, 6);
  t.c->use = SB_USE_PLAIN;
  SB_STORE(&t.b->classes[FOUR].groups, 0, SB_RELAXED);
  expect(!sb_chunk_hint_search(t.c, FOUR), "a plain put takes of the reserve");
  expect_is(t.b->classes[FOUR].groups, UINT64_C(1) << CHUNK, "the groups, for others");
  t.c->use = SB_USE_DRAIN;
  expect(sb_chunk_hint_search(t.c, FOUR), "who makes room takes nothing of the reserve");
  expect_cache(FOUR, CHUNK, 0, 2, "one slot of the reserve");
  expect_is(meta(CHUNK)->hints[0], 4, "what is left of the reserve");
}

/* ---- chunks that are opened ---- */

static void may_a_segment_be_added(void) {
  sb_broker *b = t.b;
  b->grow_again_ns = 0;
  expect(sb_chunk_may_grow(b), "no segment may be added");
  b->grow_again_ns = sb_now_ns() + UINT64_C(1000000000000);
  expect(!sb_chunk_may_grow(b), "a segment may be added just after there was no room for one");
  b->grow_again_ns = 1;
  expect(sb_chunk_may_grow(b), "no segment may be added later");
  grow_to(BROKER_CHUNKS - 1);
  expect(!sb_chunk_may_grow(b), "a segment may be added behind the last");
}
static bool in_memory(uint32_t chunk) {
  unsigned char pages[SB_CHUNK_BYTES / 4096];
  if (mincore(t.b->arena + chunk * SB_CHUNK_BYTES, SB_CHUNK_BYTES, pages) != 0) die("mincore", 0);
  for (unsigned i = 0; i < sizeof pages; i++) {
    if ((pages[i] & 1) == 0) return false;
  }
  return true;
}
static bool is_populated(uint32_t chunk) { return (SB_LOAD(&t.b->populated[0], SB_RELAXED) >> chunk & 1) != 0; }
static uint8_t *memory_of(uint32_t chunk) { return sb_slot_at(t.b, chunk * SB_CHUNK_UNITS); }
static uint64_t written_before; /* before the memory was changed */
static void note_the_mark(void) { written_before = SB_LOAD(&meta(CHUNK)->written, SB_RELAXED); }
/* Bodies have any bytes, in pages that are mapped at once. */
static void memory_for_bodies(void) {
  all_taken();
  memory_of(CHUNK)[0] = 0xaa;
  sb_chunk_prepare(t.b, CHUNK, false);
  expect_is(meta(CHUNK)->written, 1, "whether it was opened");
  expect(is_populated(CHUNK) && !is_populated(CHUNK + 1), "the pages of one chunk are mapped");
  expect(in_memory(CHUNK), "its pages are not in memory");
  expect_is(memory_of(CHUNK)[0], 0xaa, "the memory of bodies");
}
/* Structures have zeros. The memory of a chunk that was never opened has them already, and is not touched. */
static void memory_for_structures(void) {
  all_taken();
  memory_of(CHUNK)[0] = 0xaa;
  meanwhile(&t.b->populated[0], BEFORE_CHANGE, 1, note_the_mark);
  sb_chunk_prepare(t.b, CHUNK, true);
  expect_is(meta(CHUNK)->written, 1, "whether it was opened");
  expect(!is_populated(CHUNK), "the pages of structures are mapped at once");
  expect_is(memory_of(CHUNK)[0], 0xaa, "the memory of a chunk that was never opened");
  memory_of(CHUNK)[SB_CHUNK_BYTES - 1] = 0xaa;
  sb_chunk_prepare(t.b, CHUNK, true);
  if (has_acted()) expect_is(written_before, 1, "whether it was opened, before its pages are mapped");
  expect(is_populated(CHUNK), "the pages of a chunk that is filled with zeros are mapped");
  expect(memory_of(CHUNK)[0] == 0 && memory_of(CHUNK)[SB_CHUNK_BYTES - 1] == 0, "the memory is not zero");
}

static void dirty(uint32_t chunk) {
  sb_chunk_meta_shm *m = meta(chunk);
  for (uint32_t i = 0; i < SB_CHUNK_UNITS; i++) m->headers[i] = sb_slot_word(SB_SLOT_ALLOC, 0, 5);
  memset(m->hints, 0xaa, sizeof m->hints);
  m->summary[0] = m->summary[1] = UINT64_C(0xaaaaaaaaaaaaaaaa);
  m->parts = 7; /* lies behind the summary */
  m->floors[0] = 0;
  m->floors[1] = 3 * SB_PAGE_CELLS;
  m->written = 1;
  memset(memory_of(chunk), 0xaa, SB_CHUNK_BYTES);
}
static void expect_filled(uint32_t chunk, unsigned cls) {
  sb_chunk_meta_shm *m = meta(chunk);
  unsigned units = sb_class_units(cls), slots = SB_CHUNK_UNITS / units, words = (slots + 63) / 64;
  for (uint32_t i = 0; i < SB_CHUNK_UNITS; i++) {
    bool starts = i % units == 0 && i / units < slots;
    expect_is(m->headers[i], starts ? sb_slot_word(SB_SLOT_FREE, 0, 6) : sb_slot_word(SB_SLOT_ALLOC, 0, 5), "a header");
  }
  for (uint32_t i = 0; i < 128 * 64; i++)
    expect((m->hints[i / 64] >> i % 64 & 1) == (i < slots), "class %u: hint %u is wrong", cls, i);
  for (uint32_t i = 0; i < 128; i++)
    expect((m->summary[i / 64] >> i % 64 & 1) == (i < words), "class %u: summary %u is wrong", cls, i);
  expect_is(m->parts, 7, "what lies behind the summary");
}
static void a_chunk_is_filled_in(void) {
  const unsigned units[] = {1, 2, 3, 4, 64, 128, 192, 8192};
  for (unsigned i = 0; i < sizeof units / sizeof units[0]; i++) {
    unsigned cls = sb_class_for(t.b, units[i] * SB_UNIT);
    all_taken();
    dirty(CHUNK);
    free_chunks(CHUNK, 1);
    uint64_t before = t.b->classes[cls].chunks;
    expect(sb_chunk_claim_class(t.c, cls, token), "no chunk was claimed");
    expect_filled(CHUNK, cls);
    expect_is(word_of(CHUNK), sb_chunk_word(SB_CHUNK_CLASS, 0, cls, 0) | SB_CHUNK_OF_RESERVE, "the word of the chunk");
    expect_is(t.b->classes[cls].chunks, before + 1, "how many chunks the class has");
    expect_is(t.b->classes[cls].groups, UINT64_C(1) << CHUNK, "its groups");
    expect_is(t.b->classes[cls].hint_chunk, CHUNK + 1, "where a slot is free");
    expect_is(*(uint8_t *)sb_slot_at(t.b, CHUNK * SB_CHUNK_UNITS), 0xaa, "the memory of bodies");
    const sb_holding_shm *h = sb_holding_at(t.b, token);
    expect(sb_holding_kind(h->what) == SB_HOLD_CHUNK && h->where == CHUNK, "it is not announced");
    expect(is_populated(CHUNK), "its pages are not mapped");
  }
}
/* Objects are zero, above their floors; bodies of the longest class are none. */
static void a_chunk_of_objects_is_filled_in(void) {
  unsigned levels = SB_MESSAGE_CLASSES + SB_KIND_CONSUMER_LEVEL;
  all_taken();
  dirty(CHUNK);
  free_chunks(CHUNK, 1);
  expect(sb_chunk_claim_class(t.c, levels, token), "no chunk was claimed");
  const sb_consumer_level_shm *l = sb_slot_at(t.b, CHUNK * SB_CHUNK_UNITS);
  expect_is(l->interested.tail, 3 * SB_PAGE_CELLS, "the floor of a level");
  expect_is(l->next, 0, "the memory of a level");
  expect_is(*((uint8_t *)sb_slot_at(t.b, CHUNK * SB_CHUNK_UNITS) + SB_CHUNK_BYTES - 1), 0,
            "the memory of the last one");
}
static void slot_0_is_nobody_s(void) {
  all_taken();
  free_chunks(0, 1);
  dirty(0);
  expect(sb_chunk_claim_class(t.c, FOUR, token), "no chunk was claimed");
  expect_is(meta(0)->headers[0], sb_slot_word(SB_SLOT_ALLOC, 0, 0), "the header of slot 0");
  expect_is(meta(0)->hints[0], ~UINT64_C(1), "the hints beside slot 0");
}

/* Objects at one end, bodies at the other; but while segments may be added, there is no other end. */
static void expect_claimed(unsigned cls, uint32_t chunk, uint64_t flag, const char *what) {
  expect(sb_chunk_claim_class(t.c, cls, token), "%s: none was claimed", what);
  expect_is(word_of(chunk), sb_chunk_word(SB_CHUNK_CLASS, 0, cls, 0) | flag, what);
}
static void at_which_end(void) {
  all_taken();
  free_chunks(20, 10);
  expect_claimed(FOUR, 29, 0, "a chunk of bodies");
  expect_claimed(LONGEST, 28, 0, "a chunk of the longest bodies");
  expect_claimed(LEAVES, 20, 0, "a chunk of leaves");
}
static void at_which_end_while_growing(void) {
  t.c->use = SB_USE_DRAIN;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  grow_to(5);
  uint32_t n = sb_chunk_count(t.b);
  expect(n < BROKER_CHUNKS, "there are all segments");
  for (uint32_t i = 0; i < n; i++) set_chunk(i, SB_CHUNK_TAIL, 0, 0);
  forget_hints();
  free_chunks(5, 2);
  expect_claimed(FOUR, 5, 0, "a chunk of bodies, while segments may be added");
  expect_claimed(LEAVES, 6, 0, "a chunk of leaves, while segments may be added");
  free_chunks(5, 1);
  t.c->use = SB_USE_PLAIN;
  expect(!sb_chunk_claim_class(t.c, FOUR, token), "a plain put takes of the reserve");
  expect_claimed(SB_MESSAGE_CLASSES + SB_KIND_CONSUMER_LEVEL, 5, 0,
                 "a level of a plain put, while segments may be added");
  free_chunks(5, 2);
  SB_STORE(&t.b->header->no_room, 1u, SB_RELAXED);
  expect(!sb_chunk_claim_class(t.c, SB_MESSAGE_CLASSES + SB_KIND_CONSUMER_LEVEL, token),
         "a level of a plain put took a chunk of the reserve though /dev/shm is full");
  t.c->use = SB_USE_DRAIN;
  expect_claimed(SB_MESSAGE_CLASSES + SB_KIND_CONSUMER_LEVEL, 5, SB_CHUNK_OF_RESERVE,
                 "a level of a consumer, while /dev/shm is full");
}
/* Plain puts leave the reserve; what is opened of it is marked. */
static void chunks_of_the_reserve(void) {
  all_taken();
  uint32_t reserve = sb_reserve_chunks(t.b);
  free_chunks(20, reserve + 1);
  t.c->use = SB_USE_PLAIN;
  expect_claimed(FOUR, 20 + reserve, 0, "the chunk beside the reserve");
  expect(!sb_chunk_claim_class(t.c, FOUR, token), "a plain put took a body's chunk of the reserve");
  expect(!sb_chunk_claim_class(t.c, LEAVES, token), "a plain put took a leaf's chunk of the reserve");
  expect_is(sb_chunk_spare(t.b), reserve, "how many are free");
  t.c->use = SB_USE_DRAIN;
  for (uint32_t i = reserve; i > 0; i--) expect_claimed(FOUR, 19 + i, SB_CHUNK_OF_RESERVE, "a chunk of the reserve");
  expect(!sb_chunk_claim_class(t.c, FOUR, token), "there is a chunk");
}
static void a_chunk_is_claimed(void) {
  all_taken();
  free_chunks(CHUNK, 1);
  expect(sb_chunk_claim(t.c, CHUNK, FOUR, 7), "a free chunk was not claimed");
  expect_is(word_of(CHUNK), sb_chunk_word(SB_CHUNK_CLAIMED, t.c->id, FOUR, 7), "its word");
  expect(!sb_chunk_claim(t.c, CHUNK, FOUR, 0), "it was claimed twice");
  set_chunk(CHUNK, SB_CHUNK_CLASS, FOUR, 0);
  expect(!sb_chunk_claim(t.c, CHUNK, FOUR, 0), "a chunk of slots was claimed");
}
/* Who needed an object and found none meanwhile gives the chunk back. */
static void two_do_not_open_two(void) {
  all_taken();
  free_chunks(20, 5);
  no_hints(30);
  hint(30, LEAVES, 0, 4);
  uint64_t before = t.b->classes[LEAVES].chunks;
  expect(sb_chunk_claim_class(t.c, LEAVES, token), "there is no slot");
  expect_is(word_of(20), 0, "the chunk that was given back");
  expect_is(t.b->classes[LEAVES].chunks, before, "how many chunks leaves have");
  expect_cache(LEAVES, 30, 0, 4, "the slot of the other one");
  no_hints(31);
  hint(31, LONGEST, 0, 1);
  expect_claimed(LONGEST, 24, 0, "a chunk of bodies, beside a hint");
}

static void where_one_was_freed_last(void) {
  grow_to(20);
  sb_chunk_hint_set(t.b, 4, 20, 0, 1);
  expect_is(t.b->classes[4].hint_chunk, 21, "the chunk, plus one");
}

static void slots_that_begin(void) {
  for (unsigned cls = 1; cls < SB_MESSAGE_CLASSES + SB_KIND_COUNT; cls++) {
    uint32_t units = sb_class_units(cls);
    for (uint32_t at = 0; at < SB_CHUNK_UNITS; at++) {
      if (sb_class_index(cls, at) != at / units) expect_is(sb_class_index(cls, at), at / units, "the slot of a unit");
      bool begins = at % units == 0 && at + units <= SB_CHUNK_UNITS;
      if (sb_class_begins(cls, at) != begins) expect_is(sb_class_begins(cls, at), begins, "a slot begins");
    }
  }
}

static const test_case CASES[] = {
    {"chunk: classes", "each class has its units, its kind and its slots", classes_of_slots},
    {"chunk: begins", "of each class, the slot of every unit of a chunk is known", slots_that_begin},
    {"chunk: class for", "the class for so many bytes is the shortest that is long enough",
     the_class_for_so_many_bytes},
    {"chunk: hint", "a hint is set in word, summary and group", a_hint_is_set},
    {"chunk: freed", "a slot that is freed is hinted at, if it is one", a_slot_is_freed},
    {"chunk: hints taken", "hints are taken by the word, of long slots one by one", hints_are_taken},
    {"chunk: empty word", "a word without hints is passed over, and forgotten", a_summary_without_hints},
    {"chunk: first", "bodies come from where one was freed last, structures from the first chunk",
     which_chunk_comes_first},
    {"chunk: other chunks", "no hint is taken of a chunk of another class or state", hints_to_other_chunks},
    {"chunk: ends", "the last chunk, group, word and hint are looked at", hints_at_the_ends},
    {"chunk: hints of the reserve", "plain puts leave hints of the reserve to others", hints_of_the_reserve},
    {"chunk: grow", "a segment may be added up to the limit, but not at once after it failed", may_a_segment_be_added},
    {"chunk: bodies", "a chunk that is prepared for bodies has its pages mapped", memory_for_bodies},
    {"chunk: structures", "a chunk that is prepared for structures is zero, and left alone if it was never opened",
     memory_for_structures},
    {"chunk: filled", "a chunk that is opened has free slots, all hinted at", a_chunk_is_filled_in},
    {"chunk: objects", "objects are zero, above their floors", a_chunk_of_objects_is_filled_in},
    {"chunk: slot 0", "slot 0 is nobody's", slot_0_is_nobody_s},
    {"chunk: which end", "structures are opened at one end, bodies at the other", at_which_end},
    {"chunk: growing", "while segments may be added, all are opened at the first chunk", at_which_end_while_growing},
    {"chunk: reserve", "plain puts leave the reserve, and what is opened of it is marked", chunks_of_the_reserve},
    {"chunk: claimed", "a chunk that is free is claimed, once", a_chunk_is_claimed},
    {"chunk: two", "who finds a slot meanwhile gives the chunk back", two_do_not_open_two},
    {"chunk: last", "the class knows where a slot was freed last", where_one_was_freed_last},
};
SUBJECT(CASES)
