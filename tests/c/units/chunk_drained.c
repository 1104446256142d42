// SPDX-License-Identifier: Apache-2.0
/* sb_chunk: chunks that become FREE again, by the connection that drains them, or by its reaper. */
#include <string.h>

#include "cases.h"
#include "sb_chunk.h"
#include "sb_holdings.h"

#define CHUNK 20u
#define FOUR 4u
#define UNITS 4u
#define LONGEST SB_MESSAGE_CLASSES
#define LEAVES (SB_MESSAGE_CLASSES + SB_KIND_LEAF)
#define GEN 5u
#define SOMEBODY 55u
#define FLAG SB_CHUNK_OF_RESERVE

static uint64_t token;

static uint64_t word_of(uint32_t chunk) { return SB_LOAD(&t.b->chunks[chunk], SB_RELAXED); }
static void set_word(uint32_t chunk, uint64_t word) { SB_STORE(&t.b->chunks[chunk], word, SB_RELAXED); }
static sb_chunk_meta_shm *meta(void) { return sb_chunk_meta(t.b, CHUNK); }
static void set_header(uint32_t unit, unsigned state, uint64_t field) {
  SB_STORE(&meta()->headers[unit], sb_slot_word(state, field, GEN), SB_RELAXED);
}
static uint64_t header(uint32_t unit) { return SB_LOAD(&meta()->headers[unit], SB_RELAXED); }
static void begin(void) {
  grow_to(BROKER_CHUNKS - 1);
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) set_word(i, sb_chunk_word(SB_CHUNK_TAIL, 0, 0, 0));
}
/* A chunk of free slots of four units, all hinted at. */
static void open(unsigned cls) {
  unsigned units = sb_class_units(cls);
  set_word(CHUNK, sb_chunk_word(SB_CHUNK_CLASS, 0, cls, 0) | FLAG);
  for (uint32_t i = 0; i < SB_CHUNK_UNITS; i++) set_header(i, SB_SLOT_ALLOC, 0);
  for (uint32_t i = 0; i + units <= SB_CHUNK_UNITS; i += units) set_header(i, SB_SLOT_FREE, 0);
  memset(meta()->hints, 0xff, sizeof meta()->hints);
  meta()->summary[0] = meta()->summary[1] = UINT64_MAX;
  meta()->parts = 1;
  SB_STORE(&t.b->classes[cls].chunks, 3, SB_RELAXED);
}
static bool announced(void) {
  const sb_holding_shm *h = sb_holding_at(t.b, token);
  return sb_holding_kind(SB_LOAD(&h->what, SB_RELAXED)) == SB_HOLD_CHUNK && SB_LOAD(&h->where, SB_RELAXED) == CHUNK;
}

/* Nothing of it leads to a slot any more. */
static void expect_scrubbed(unsigned units) {
  for (uint32_t i = 0; i + units <= SB_CHUNK_UNITS; i += units)
    expect_is(header(i), sb_slot_word(SB_SLOT_ALLOC, 0, GEN), "the header of no slot");
  for (unsigned w = 0; w < SB_CHUNK_UNITS / 64; w++) expect_is(meta()->hints[w], 0, "a hint");
  expect_is(meta()->summary[0] | meta()->summary[1], 0, "the summary");
  expect_is(meta()->parts, 0, "`parts`");
}
static void a_free_chunk_is_drained(void) {
  const unsigned classes[] = {1, FOUR, LONGEST};
  for (unsigned i = 0; i < 3; i++) {
    begin();
    open(classes[i]);
    expect(sb_chunk_drain(t.c, token, CHUNK), "it was not drained");
    expect_is(word_of(CHUNK), 0, "its word");
    expect_scrubbed(sb_class_units(classes[i]));
    expect_is(t.b->classes[classes[i]].chunks, 2, "how many chunks its class has");
    expect(announced(), "it was not announced");
  }
  begin();
  open(FOUR);
  meta()->headers[SB_CHUNK_UNITS - 1] = 77; /* in the middle of the last slot */
  meta()->floors[0] = 9;
  sb_chunk_scrub(t.b, CHUNK, UNITS);
  expect_is(header(SB_CHUNK_UNITS - 1), 77, "a header in the middle of a slot");
  expect_is(meta()->floors[0], 9, "the floors");
}
/* One slot that is taken keeps it, the first as the last. */
static void what_is_not_drained(void) {
  begin();
  for (unsigned i = 0; i < 2; i++) {
    uint32_t unit = i == 0 ? 0 : SB_CHUNK_UNITS - UNITS;
    open(FOUR);
    set_header(unit, SB_SLOT_PUBLISHED, 1);
    expect(!sb_chunk_drain(t.c, token, CHUNK), "a chunk with a message was drained");
    expect_is(word_of(CHUNK), sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 0) | FLAG, "its word");
    expect_is(header(UNITS), sb_slot_word(SB_SLOT_FREE, 0, GEN), "a free slot of it");
  }
  const uint64_t words[] = {
      sb_chunk_word(SB_CHUNK_CLASS, 0, LEAVES, 0),  sb_chunk_word(SB_CHUNK_CLASS, 0, 0, 0),
      sb_chunk_word(SB_CHUNK_DRAINING, 0, FOUR, 0), sb_chunk_word(SB_CHUNK_TAIL, 0, FOUR, 1),
      sb_chunk_word(SB_CHUNK_RUN, 0, 0, 0),         sb_chunk_word(SB_CHUNK_RUN, 0, 0, BROKER_CHUNKS - CHUNK + 1)};
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
    open(FOUR);
    set_word(CHUNK, words[i]);
    expect(!sb_chunk_drain(t.c, token, CHUNK), "what is no chunk of messages was drained");
    expect_is(word_of(CHUNK), words[i], "its word");
  }
}
/* A run that is free: all its chunks, up to the last of all. */
static void make_run(uint32_t run, unsigned state) {
  set_word(CHUNK, sb_chunk_word(SB_CHUNK_RUN, 0, 0, run));
  for (uint32_t i = 1; i < run; i++) set_word(CHUNK + i, sb_chunk_word(SB_CHUNK_TAIL, 0, 0, i));
  set_header(0, state, state == SB_SLOT_FREE ? 0 : 1);
}
static void a_free_run_is_dissolved(void) {
  const uint32_t runs[] = {1, 3, BROKER_CHUNKS - CHUNK};
  for (unsigned i = 0; i < 3; i++) {
    begin();
    make_run(runs[i], SB_SLOT_PUBLISHED);
    expect(!sb_chunk_drain(t.c, token, CHUNK), "a run with a body was dissolved");
    make_run(runs[i], SB_SLOT_FREE);
    expect(sb_chunk_drain(t.c, token, CHUNK), "it was not dissolved");
    for (uint32_t k = 0; k < runs[i]; k++) expect_is(word_of(CHUNK + k), 0, "the word of a chunk of it");
    expect_is(header(0), sb_slot_word(SB_SLOT_ALLOC, 0, GEN), "the header of its slot");
    expect(announced(), "it was not announced");
    if (CHUNK + runs[i] < BROKER_CHUNKS)
      expect_is(word_of(CHUNK + runs[i]), sb_chunk_word(SB_CHUNK_TAIL, 0, 0, 0), "the chunk behind it");
  }
}
static void the_first_that_can_be_drained(void) {
  begin();
  expect(!sb_chunk_drain_any(t.c, token), "something was drained");
  open(FOUR);
  set_word(CHUNK + 3, sb_chunk_word(SB_CHUNK_CLASS, 0, LONGEST, 0));
  SB_STORE(sb_slot_header(t.b, (CHUNK + 3) * SB_CHUNK_UNITS), sb_slot_word(SB_SLOT_FREE, 0, GEN), SB_RELAXED);
  expect(sb_chunk_drain_any(t.c, token), "nothing was drained");
  expect_is(word_of(CHUNK), 0, "the word of the first");
  expect(word_of(CHUNK + 3) != 0, "the second one was drained, too");
  expect(sb_chunk_drain_any(t.c, token), "the second one was not drained");
  expect_is(word_of(CHUNK + 3), 0, "the word of the second");
}

/* ---- the reaper's part ---- */

static void recover(void) { sb_chunk_recover(t.b, SOMEBODY, CHUNK); }
static void what_was_claimed(void) {
  begin();
  set_word(CHUNK, sb_chunk_word(SB_CHUNK_CLAIMED, SOMEBODY, FOUR, 0));
  set_header(0, SB_SLOT_ALLOC, SOMEBODY);
  recover();
  expect_is(word_of(CHUNK), 0, "the word of what was claimed");
  expect_is(header(0), sb_slot_word(SB_SLOT_ALLOC, SOMEBODY, GEN), "a header of what was claimed");
  const uint64_t others[] = {
      sb_chunk_word(SB_CHUNK_CLAIMED, SOMEBODY + 1, FOUR, 0), sb_chunk_word(SB_CHUNK_DRAINING, SOMEBODY + 1, FOUR, 0),
      sb_chunk_word(SB_CHUNK_CLASS, SOMEBODY, FOUR, 0),       sb_chunk_word(SB_CHUNK_TAIL, SOMEBODY, 0, 1),
      sb_chunk_word(SB_CHUNK_DRAINING, SOMEBODY, LEAVES, 0),  sb_chunk_word(SB_CHUNK_DRAINING, SOMEBODY, 0, 0)};
  for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
    set_word(CHUNK, others[i]);
    recover();
    expect_is(word_of(CHUNK), others[i], "the word of what was not his");
  }
  SB_STORE(&t.b->chunks[BROKER_CHUNKS], sb_chunk_word(SB_CHUNK_CLAIMED, SOMEBODY, 0, 0), SB_RELAXED);
  sb_chunk_recover(t.b, SOMEBODY, BROKER_CHUNKS);
  expect(word_of(BROKER_CHUNKS) != 0, "a chunk behind the last was given back");
}
/* The drainer's slots are free again, and those it had scrubbed; those of others stay. All are hinted at. */
static void what_was_being_drained(void) {
  begin();
  open(FOUR);
  set_word(CHUNK, sb_chunk_word(SB_CHUNK_DRAINING, SOMEBODY, FOUR, 0) | FLAG);
  uint32_t last = SB_CHUNK_UNITS - UNITS;
  set_header(0, SB_SLOT_ALLOC, SOMEBODY);
  set_header(UNITS, SB_SLOT_ALLOC, 0);
  set_header(2 * UNITS, SB_SLOT_ALLOC, SOMEBODY + 1);
  set_header(3 * UNITS, SB_SLOT_PUBLISHED, SOMEBODY);
  set_header(4 * UNITS, SB_SLOT_ALLOC, SB_SLOT_PART);
  set_header(last, SB_SLOT_ALLOC, SOMEBODY);
  memset(meta()->hints, 0, sizeof meta()->hints);
  recover();
  expect_is(word_of(CHUNK), sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 0) | FLAG, "its word");
  uint64_t freed = sb_slot_word(SB_SLOT_FREE, 0, GEN + 1);
  expect_is(header(0), freed, "his first slot");
  expect_is(header(last), freed, "his last slot");
  expect_is(header(UNITS), freed, "a slot he had scrubbed");
  expect_is(header(2 * UNITS), sb_slot_word(SB_SLOT_ALLOC, SOMEBODY + 1, GEN), "another one's slot");
  expect_is(header(3 * UNITS), sb_slot_word(SB_SLOT_PUBLISHED, SOMEBODY, GEN), "a message");
  expect_is(header(4 * UNITS), sb_slot_word(SB_SLOT_ALLOC, SB_SLOT_PART, GEN), "a part");
  expect_is(header(5 * UNITS), sb_slot_word(SB_SLOT_FREE, 0, GEN), "a free slot");
  for (unsigned w = 0; w < 32; w++) expect_is(meta()->hints[w], UINT64_MAX, "the hints");
  expect_is(meta()->hints[32], 0, "the hints behind the last slot");
}
/* Slot 0 stays without an owner. */
static void the_first_chunk_was_being_drained(void) {
  begin();
  sb_chunk_meta_shm *m = sb_chunk_meta(t.b, 0);
  set_word(0, sb_chunk_word(SB_CHUNK_DRAINING, SOMEBODY, FOUR, 0));
  m->headers[0] = sb_slot_word(SB_SLOT_ALLOC, 0, GEN);
  m->headers[UNITS] = sb_slot_word(SB_SLOT_ALLOC, 0, GEN);
  sb_chunk_recover(t.b, SOMEBODY, 0);
  expect_is(m->headers[0], sb_slot_word(SB_SLOT_ALLOC, 0, GEN), "slot 0");
  expect_is(m->headers[UNITS], sb_slot_word(SB_SLOT_FREE, 0, GEN + 1), "the next slot");
}
/* A run that was being put together: tails, and chunks that were only claimed; the slot becomes none. */
static void a_run_was_being_made(void) {
  const unsigned states[] = {SB_CHUNK_CLAIMED, SB_CHUNK_DRAINING};
  for (unsigned i = 0; i < 2; i++) {
    begin();
    set_word(CHUNK, sb_chunk_word(states[i], SOMEBODY, 0, 6));
    set_word(CHUNK + 1, sb_chunk_word(SB_CHUNK_TAIL, 0, 0, 1));
    set_word(CHUNK + 2, sb_chunk_word(SB_CHUNK_CLAIMED, SOMEBODY, 0, 0));
    set_word(CHUNK + 3, sb_chunk_word(SB_CHUNK_CLAIMED, SOMEBODY + 1, 0, 0));
    set_word(CHUNK + 4, sb_chunk_word(SB_CHUNK_TAIL, 0, 0, 1)); /* of another run */
    set_word(CHUNK + 5, sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 5));
    set_word(CHUNK + 6, sb_chunk_word(SB_CHUNK_CLAIMED, SOMEBODY, 0, 0));
    set_header(0, SB_SLOT_ALLOC, SOMEBODY);
    recover();
    for (uint32_t k = 0; k < 3; k++) expect_is(word_of(CHUNK + k), 0, "the word of a chunk of it");
    for (uint32_t k = 3; k < 7; k++) expect(word_of(CHUNK + k) != 0, "chunk %u of another one was given back", k);
    expect_is(header(0), sb_slot_word(SB_SLOT_ALLOC, 0, GEN), "the header of its slot");
  }
  begin();
  set_word(CHUNK, sb_chunk_word(SB_CHUNK_CLAIMED, SOMEBODY, 0, 2));
  set_header(0, SB_SLOT_FREE, SOMEBODY);
  recover();
  expect_is(header(0), sb_slot_word(SB_SLOT_FREE, SOMEBODY, GEN), "a header that was free");
  set_word(CHUNK, sb_chunk_word(SB_CHUNK_CLAIMED, SOMEBODY, 0, 2));
  set_header(0, SB_SLOT_ALLOC, SOMEBODY + 1);
  recover();
  expect_is(header(0), sb_slot_word(SB_SLOT_ALLOC, SOMEBODY + 1, GEN), "a header of another one");
  set_word(BROKER_CHUNKS - 1, sb_chunk_word(SB_CHUNK_CLAIMED, SOMEBODY, 0, 3));
  SB_STORE(&t.b->chunks[BROKER_CHUNKS], sb_chunk_word(SB_CHUNK_TAIL, 0, 0, 1), SB_RELAXED);
  sb_chunk_recover(t.b, SOMEBODY, BROKER_CHUNKS - 1);
  expect(word_of(BROKER_CHUNKS) != 0, "a chunk behind the last was given back");
}
/* Its word says RUN, but no connection knows its slot. */
static void a_run_was_made(void) {
  begin();
  make_run(3, SB_SLOT_PUBLISHED);
  uint64_t word = word_of(CHUNK);
  recover();
  expect_is(header(0), sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN), "a body");
  set_header(0, SB_SLOT_ALLOC, SOMEBODY + 1);
  recover();
  expect_is(header(0), sb_slot_word(SB_SLOT_ALLOC, SOMEBODY + 1, GEN), "a slot of another one");
  set_header(0, SB_SLOT_ALLOC, SOMEBODY);
  recover();
  expect_is(header(0), sb_slot_word(SB_SLOT_FREE, 0, GEN + 1), "his slot");
  expect_is(word_of(CHUNK), word, "the word of the run");
}
static uint64_t his_drained(void) { return sb_slot_word(SB_SLOT_ALLOC, SOMEBODY | SB_SLOT_DRAINED, GEN); }
/* Nor of a run that was there before others opened the chunk for bodies. Structures are recovered by their own kind. */
static void a_run_was_there(void) {
  const struct {
    unsigned cls;
    bool freed;
  } cases[] = {{1, true}, {FOUR, true}, {LONGEST, true}, {0, false}, {LONGEST + 1, false}, {LEAVES, false}};
  for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    begin();
    uint64_t word = sb_chunk_word(SB_CHUNK_CLASS, 0, cases[i].cls, 0), his = sb_slot_word(SB_SLOT_ALLOC, SOMEBODY, GEN);
    set_word(CHUNK, word);
    set_header(0, SB_SLOT_ALLOC, SOMEBODY);
    recover();
    expect_is(header(0), cases[i].freed ? sb_slot_word(SB_SLOT_FREE, 0, GEN + 1) : his, "his slot");
    expect_is(word_of(CHUNK), word, "the word of the chunk");
  }
  set_word(CHUNK, sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 0));
  set_header(0, SB_SLOT_ALLOC, SOMEBODY + 1);
  recover();
  expect_is(header(0), sb_slot_word(SB_SLOT_ALLOC, SOMEBODY + 1, GEN), "a slot of another one");
  SB_STORE(sb_slot_header(t.b, CHUNK * SB_CHUNK_UNITS), his_drained(), SB_RELAXED);
  recover();
  expect_is(header(0), his_drained(), "a slot that was taken for another purpose");
}

static const test_case CASES[] = {
    {"chunk_drained: class", "a chunk whose slots are free becomes FREE", a_free_chunk_is_drained},
    {"chunk_drained: kept", "a chunk in use, or of no messages, stays", what_is_not_drained},
    {"chunk_drained: run", "a run that is free is dissolved", a_free_run_is_dissolved},
    {"chunk_drained: any", "the first chunk that can be drained is", the_first_that_can_be_drained},
    {"chunk_drained: claimed", "what the dead claimed becomes FREE", what_was_claimed},
    {"chunk_drained: draining", "what the dead drained is of its class again", what_was_being_drained},
    {"chunk_drained: first", "slot 0 stays nobody's", the_first_chunk_was_being_drained},
    {"chunk_drained: being made", "a run that the dead were making is taken apart", a_run_was_being_made},
    {"chunk_drained: was there", "the slot of a run that is gone is free", a_run_was_there},
    {"chunk_drained: made", "the slot of a run that nobody was told of is free", a_run_was_made},
};
SUBJECT(CASES)
