// SPDX-License-Identifier: Apache-2.0
/* sb_reserve: the number of chunks, the number that is left to calls that make room, and which calls may take them. */
#include "sb_reserve.h"

#include <string.h>

#include "calls.h"
#include "cases.h"
#include "meanwhile.h"
#include "system.h"

#define CHUNK 20u
#define FOUR 4u
#define LEVELS (SB_MESSAGE_CLASSES + (unsigned)SB_KIND_CONSUMER_LEVEL)

static uint64_t word_of(uint32_t chunk) { return SB_LOAD(&t.b->chunks[chunk], SB_RELAXED); }
static void set_state(uint32_t chunk, unsigned state) {
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(state, 1, 0, 0), SB_RELAXED);
}
static void all_taken(void) {
  grow_to(BROKER_CHUNKS - 1);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) set_state(i, SB_CHUNK_TAIL);
}
static void free_chunks(uint32_t first, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) SB_STORE(&t.b->chunks[first + i], 0, SB_RELAXED);
}

/* Segments have twelve chunks here; the last one may have fewer. */
static void how_many_chunks_there_are(void) {
  sb_half *segments = &t.b->header->segments;
  const uint32_t counts[][2] = {{0, 0}, {1, 12}, {3, 36}, {4, 48}, {5, 48}};
  for (unsigned i = 0; i < 5; i++) {
    SB_STORE(segments, counts[i][0], SB_RELAXED);
    expect_is(sb_chunk_count(t.b), counts[i][1], "the number of chunks");
  }
  t.b->chunk_limit = 40;
  SB_STORE(segments, 4u, SB_RELAXED);
  expect_is(sb_chunk_count(t.b), 40, "the number of chunks up to the limit");
}
static void how_many_are_free(void) {
  all_taken();
  expect_is(sb_chunk_spare(t.b), 0, "the number of those that are FREE");
  free_chunks(0, 1);
  free_chunks(BROKER_CHUNKS - 1, 2); /* the second one is none */
  expect_is(sb_chunk_spare(t.b), 2, "the first one and the last one");
}
static void how_many_the_reserve_has(void) {
  const uint32_t limits[][2] = {{1, 3},    {64, 3},   {65, 4},   {128, 4},  {129, 5},
                                {832, 15}, {833, 16}, {897, 16}, {4096, 16}};
  for (unsigned i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    t.b->chunk_limit = limits[i][0];
    expect_is(sb_reserve_chunks(t.b), limits[i][1], "the chunks of the reserve");
  }
}
/* Above the high watermark, plain puts leave what others may take, and add no segment. */
static void the_high_watermark(void) {
  all_taken();
  t.b->chunk_limit = BROKER_CHUNKS;
  uint32_t there = sb_chunk_count(t.b);
  SB_STORE(&t.b->header->memory_high_watermark, 250u, SB_RELAXED);
  uint32_t kept = BROKER_CHUNKS - BROKER_CHUNKS / 4;
  expect_is(sb_reserve_kept(t.b), kept, "what is kept above a quarter");
  expect_is(sb_reserve_leave(t.b, SB_USE_PLAIN, 0), kept, "what a plain put leaves");
  expect_is(sb_reserve_leave(t.b, SB_USE_STAGE, 0), 1, "what a stage leaves");
  expect_is(sb_reserve_chunks(t.b), 3, "the reserve");
  t.b->chunk_limit = there + 10;
  kept = there + 10 - (there + 10) / 4;
  expect_is(sb_reserve_kept(t.b), kept - 10, "what is kept of the chunks that exist");
  t.c->use = SB_USE_PLAIN;
  expect(!sb_reserve_below_mark(t.c), "a plain put adds a segment above the mark");
  free_chunks(0, kept - 10);
  expect(!sb_reserve_below_mark(t.c), "a plain put adds a segment at the mark");
  expect_is(sb_reserve_state(t.b), SB_MEMORY_BLOCKED, "the state at the mark");
  free_chunks(0, kept - 9);
  expect(sb_reserve_below_mark(t.c), "a plain put adds no segment below the mark");
  expect_is(sb_reserve_state(t.b), SB_MEMORY_NORMAL, "the state below the mark");
  SB_STORE(&t.b->header->memory_warning, 100u, SB_RELAXED);
  expect_is(sb_reserve_state(t.b), SB_MEMORY_WARNING, "the state above the warning");
  t.c->use = SB_USE_DRAIN;
  free_chunks(0, 0);
  expect(sb_reserve_below_mark(t.c), "a call that drains adds no segment");
  SB_STORE(&t.b->header->memory_high_watermark, 0u, SB_RELAXED);
  t.c->use = SB_USE_PLAIN;
  expect(sb_reserve_below_mark(t.c), "without a mark, a plain put adds no segment");
  SB_STORE(&t.b->header->memory_high_watermark, 1000u, SB_RELAXED);
  expect_is(sb_reserve_kept(t.b), sb_reserve_chunks(t.b), "what is kept above the whole");
}
static void set_class(uint32_t chunk, unsigned state, unsigned cls) {
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(state, 0, cls, 0), SB_RELAXED);
}
static void expect_leaves(unsigned drains) {
  for (unsigned cls = 0; cls <= LEVELS; cls += LEVELS) {
    expect_is(sb_reserve_leave(t.b, SB_USE_PLAIN, cls), 3, "what a plain put leaves");
    expect_is(sb_reserve_leave(t.b, SB_USE_STAGE, cls), 1, "what a stage leaves");
    expect_is(sb_reserve_leave(t.b, SB_USE_BOOKS, cls), 1, "what the books leave");
  }
  expect_is(sb_reserve_leave(t.b, SB_USE_DRAIN, 0), 0, "what a run leaves");
  expect_is(sb_reserve_leave(t.b, SB_USE_DRAIN, SB_MESSAGE_CLASSES), 0, "what a body leaves");
  for (unsigned kind = 1; kind < SB_KIND_COUNT; kind++) {
    unsigned left = kind == SB_KIND_INNER ? drains : 0;
    expect_is(sb_reserve_leave(t.b, SB_USE_DRAIN, SB_MESSAGE_CLASSES + kind), left, "what a kind leaves");
  }
}
/* The last chunk is for consumers until they have one. */
static void what_each_use_leaves(void) {
  all_taken();
  expect_leaves(1); /* without a consumer */
  set_class(0, SB_CHUNK_CLASS, LEVELS - 1);
  set_class(1, SB_CHUNK_CLASS, LEVELS + 1);
  set_class(2, SB_CHUNK_CLAIMED, LEVELS);
  expect_leaves(1); /* beside other kinds, and a claim */
  set_class(BROKER_CHUNKS, SB_CHUNK_CLASS, LEVELS);
  expect_leaves(1); /* beside a chunk that does not exist */
  set_class(BROKER_CHUNKS, SB_CHUNK_FREE, 0);
  set_class(BROKER_CHUNKS - 1, SB_CHUNK_CLASS, LEVELS);
  expect_leaves(0); /* with a chunk for consumers */
  set_class(BROKER_CHUNKS - 1, SB_CHUNK_DRAINING, LEVELS);
  expect_leaves(0); /* while such a chunk is drained */
}
static void expect_lent(unsigned cls, bool should, const char *what) {
  expect(sb_reserve_lends(t.b, cls) == should, "%s is%s lent", what, should ? " not" : "");
}
/* Of each structure plain puts have one chunk. */
static void what_is_lent_to_plain_puts(void) {
  all_taken();
  expect_lent(0, false, "a run");
  for (unsigned cls = 1; cls <= SB_MESSAGE_CLASSES; cls++) expect_lent(cls, false, "bodies");
  for (unsigned kind = 1; kind < SB_KIND_COUNT; kind++) {
    unsigned cls = SB_MESSAGE_CLASSES + kind;
    expect_lent(cls, true, "a kind without a chunk");
    set_class(CHUNK, SB_CHUNK_CLASS, cls);
    expect_lent(cls, false, "a kind with a chunk");
    SB_STORE(&t.b->chunks[CHUNK], sb_chunk_word(SB_CHUNK_CLASS, 0, cls, 0) | SB_CHUNK_OF_RESERVE, SB_RELAXED);
    expect_lent(cls, true, "a kind whose chunk is of the reserve");
    set_class(BROKER_CHUNKS - 1, SB_CHUNK_DRAINING, cls);
    expect_lent(cls, false, "a kind with another chunk, which is drained");
    set_class(BROKER_CHUNKS - 1, SB_CHUNK_TAIL, 0);
  }
}
static void expect_left(uint32_t claimed, uint32_t leave, bool should, uint32_t count, const char *what) {
  uint32_t left = 99;
  expect(sb_reserve_is_left(t.b, claimed, leave, &left) == should, "%s: %s", what, should ? "too few" : "enough");
  expect_is(left, count, what);
}
/* Who has claimed a higher chunk may give it back, but is not waited for without end. */
static void what_is_left(void) {
  all_taken();
  free_chunks(30, 3);
  set_state(CHUNK, SB_CHUNK_CLAIMED);
  expect_left(CHUNK, 3, true, 3, "just enough");
  expect_left(CHUNK, 2, true, 3, "more than enough");
  expect_left(CHUNK, 4, false, 3, "one too few");
  set_state(CHUNK + 1, SB_CHUNK_CLAIMED);
  expect_left(CHUNK, 4, false, 3, "one too few, while another one has not decided");
  set_state(CHUNK + 1, SB_CHUNK_TAIL);
  free_chunks(BROKER_CHUNKS - 1, 2); /* the second one is none */
  free_chunks(0, 1);
  expect_left(CHUNK, 6, false, 5, "the first one and the last one");
}

/* ---- slots of the reserve ---- */

static void open(uint32_t hints) {
  sb_chunk_meta_shm *m = sb_chunk_meta(t.b, CHUNK);
  SB_STORE(&t.b->chunks[CHUNK], sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 0) | SB_CHUNK_OF_RESERVE, SB_RELAXED);
  memset(m->hints, 0, sizeof m->hints);
  m->summary[0] = UINT64_MAX; /* lies behind the hints */
  for (uint32_t i = 0; i < hints; i++) m->hints[i % 2 == 0 ? 0 : 127] |= UINT64_C(1) << i / 2;
}
static bool marked(void) { return (word_of(CHUNK) & SB_CHUNK_OF_RESERVE) != 0; }
static void expect_allowed(unsigned use, bool should, const char *what) {
  t.c->use = use;
  expect(sb_reserve_allows(t.c, CHUNK, 64) == should, "%s is%s allowed", what, should ? " not" : "");
}
/* Those who make room and the books take any; a stage leaves an eighth to the books; plain puts take none. */
static void who_may_take_of_it(void) {
  all_taken();
  free_chunks(30, sb_reserve_chunks(t.b));
  open(0);
  expect_allowed(SB_USE_DRAIN, true, "one who makes room");
  expect_allowed(SB_USE_BOOKS, true, "a note");
  expect_allowed(SB_USE_STAGE, false, "a stage");
  expect_allowed(SB_USE_PLAIN, false, "a plain put");
  open(8);
  expect_allowed(SB_USE_STAGE, false, "a stage of the last eighth");
  open(9);
  expect_allowed(SB_USE_STAGE, true, "a stage of more than an eighth");
  expect_allowed(SB_USE_PLAIN, false, "a plain put of many");
  expect(marked(), "the mark went");
}
/* Where the reserve is whole without it, the chunk is one like others. */
static void a_chunk_beside_the_reserve(void) {
  all_taken();
  free_chunks(30, sb_reserve_chunks(t.b) + 1);
  open(0);
  expect_allowed(SB_USE_BOOKS, true, "a note");
  expect(marked(), "a note has taken the mark");
  expect_allowed(SB_USE_PLAIN, true, "a plain put");
  expect_is(word_of(CHUNK), sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 0), "the word of the chunk");
  open(0);
  expect_allowed(SB_USE_STAGE, true, "a stage");
  expect(!marked(), "the mark stays");
  uint64_t drained = sb_chunk_word(SB_CHUNK_DRAINING, 5, FOUR, 0) | SB_CHUNK_OF_RESERVE;
  SB_STORE(&t.b->chunks[CHUNK], drained, SB_RELAXED);
  expect_allowed(SB_USE_PLAIN, true, "a plain put of what is drained");
  expect_is(word_of(CHUNK), drained, "the word of what is drained");
}

/* Of each structure plain puts have one chunk, also if the calls that make room opened all of them. */
static void the_only_chunk_of_a_kind(void) {
  const unsigned uses[] = {SB_USE_STAGE, SB_USE_PLAIN};
  all_taken();
  free_chunks(30, sb_reserve_chunks(t.b));
  for (unsigned i = 0; i < 2; i++) {
    open(0);
    uint64_t unmarked = sb_chunk_word(SB_CHUNK_CLASS, 0, LEVELS, 0);
    SB_STORE(&t.b->chunks[CHUNK], unmarked | SB_CHUNK_OF_RESERVE, SB_RELAXED);
    set_class(CHUNK + 1, SB_CHUNK_CLASS, LEVELS);
    expect_allowed(SB_USE_DRAIN, true, "one who makes room");
    expect_allowed(uses[i], false, "a put, beside another chunk of the kind");
    expect(marked(), "the mark went, though there is another chunk");
    set_class(CHUNK + 1, SB_CHUNK_CLASS, LEVELS + 1);
    expect_allowed(uses[i], true, "a put, in the only chunk of the kind");
    expect_is(word_of(CHUNK), unmarked, "the word of the chunk");
  }
}

/* ---- what other connections do meanwhile ---- */

static void give_it_back(void) {
  if (says.pauses == 7) free_chunks(CHUNK + 1, 1);
}
/* The owner of a higher chunk is waited for, if that can help. */
static void claims_that_are_undecided(void) {
  answer_for_the_system();
  all_taken();
  free_chunks(30, 3);
  set_state(CHUNK, SB_CHUNK_CLAIMED);
  set_state(CHUNK - 1, SB_CHUNK_CLAIMED);
  expect_left(CHUNK, 3, true, 3, "just enough beside a lower claim");
  expect_is(says.pauses, 0, "the looks where just enough are left");
  expect_left(CHUNK, 4, false, 3, "one too few beside a lower claim");
  expect_is(says.pauses, 0, "the looks at a lower claim");
  set_state(CHUNK + 1, SB_CHUNK_CLAIMED);
  expect_left(CHUNK, 5, false, 3, "two too few beside a higher claim");
  expect_is(says.pauses, 0, "the looks at a higher claim that is not enough");
  expect_left(CHUNK, 4, false, 3, "one too few beside a higher claim");
  expect_is(says.pauses, 100, "the looks at a higher claim");
  says.pauses = 0;
  says.paused = give_it_back;
  expect_left(CHUNK, 4, true, 4, "enough, since the higher claim was given back");
  expect_is(says.pauses, 7, "the looks until it was given back");
}
static void change_the_chunk(void) { set_state(CHUNK, SB_CHUNK_DRAINING); }
static void a_chunk_that_changes(void) {
  all_taken();
  free_chunks(30, sb_reserve_chunks(t.b) + 1);
  open(0);
  t.c->use = SB_USE_PLAIN;
  meanwhile(&t.b->chunks[CHUNK], BEFORE_CAS, 1, change_the_chunk);
  bool allowed = sb_reserve_allows(t.c, CHUNK, 64);
  expect(!has_acted() || !allowed, "slots of a chunk that is drained meanwhile are allowed");
}
static void remove_the_mark(void) { SB_STORE(&t.b->chunks[CHUNK], word_of(CHUNK) & ~SB_CHUNK_OF_RESERVE, SB_RELAXED); }
static void a_mark_that_goes(void) {
  all_taken();
  free_chunks(30, sb_reserve_chunks(t.b) + 1);
  open(0);
  t.c->use = SB_USE_PLAIN;
  meanwhile(&t.b->chunks[CHUNK], BEFORE_CAS, 1, remove_the_mark);
  expect(sb_reserve_allows(t.c, CHUNK, 64), "no slot is allowed, since another connection removed the mark");
  expect(!marked(), "the mark is back");
}

static const test_case CASES[] = {
    {"reserve: high watermark", "plain puts stay below the high watermark", the_high_watermark},
    {"reserve: chunks", "there are as many chunks as segments have, up to the limit", how_many_chunks_there_are},
    {"reserve: spare", "those that are FREE are counted", how_many_are_free},
    {"reserve: size", "the reserve grows with the limit, from three to sixteen", how_many_the_reserve_has},
    {"reserve: leave", "the last chunk is for consumers until they have one", what_each_use_leaves},
    {"reserve: lent", "of each structure plain puts may open one chunk", what_is_lent_to_plain_puts},
    {"reserve: left", "after a claim enough must be left, also if others give way", what_is_left},
    {"reserve: allowed", "who makes room takes of the reserve, who fills does not", who_may_take_of_it},
    {"reserve: whole", "a chunk that the reserve does not need is one like others", a_chunk_beside_the_reserve},
    {"reserve: only one", "the only chunk of a structure is for plain puts, too", the_only_chunk_of_a_kind},
    {"reserve: undecided", "a claim of a higher chunk is waited for, if it can help", claims_that_are_undecided},
    {"reserve: changed", "a chunk that changes meanwhile is not taken of", a_chunk_that_changes},
    {"reserve: mark", "a chunk whose mark another one removes may be taken of", a_mark_that_goes},
};
SUBJECT(CASES)
