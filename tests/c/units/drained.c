// SPDX-License-Identifier: Apache-2.0
/* sb_drained: the steps from a chunk of structures to a FREE chunk, and back. */
#include "sb_drained.h"

#include <string.h>

#include "calls.h"
#include "sb_holdings.h"

#define CHUNK 20u
#define CLASS_OF(kind) (SB_MESSAGE_CLASSES + (kind))
#define LEAVES CLASS_OF(SB_KIND_LEAF)     /* 1638 slots of five units, two units are left over */
#define TABLES CLASS_OF(SB_KIND_HOLDINGS) /* 512 slots of 16 units */
#define GEN 5u
#define DEAD 55u
#define OTHER 56u
#define FLAG SB_CHUNK_OF_RESERVE
#define OVER SB_CHUNK_TAKEN_OVER

static uint64_t token, used;

static uint64_t word_of(uint32_t chunk) { return SB_LOAD(&t.b->chunks[chunk], SB_RELAXED); }
static void set_word(uint32_t chunk, uint64_t word) { SB_STORE(&t.b->chunks[chunk], word, SB_RELAXED); }
static uint64_t chunk_of(unsigned state, unsigned owner, unsigned cls) {
  return sb_chunk_word(state, owner, cls, 0) | FLAG;
}
static sb_chunk_meta_shm *meta(void) { return sb_chunk_meta(t.b, CHUNK); }
static uint64_t header(uint32_t unit) { return SB_LOAD(&meta()->headers[unit], SB_RELAXED); }
static void set_header(uint32_t unit, uint64_t word) { SB_STORE(&meta()->headers[unit], word, SB_RELAXED); }
static uint64_t drained_by(unsigned owner) { return sb_slot_word(SB_SLOT_ALLOC, owner | SB_SLOT_DRAINED, GEN); }
#define OPEN sb_slot_word(SB_SLOT_FREE, 0, GEN)
#define FREED sb_slot_word(SB_SLOT_FREE, 0, GEN + 1)
#define TAKEN sb_slot_word(SB_SLOT_ALLOC, OTHER, GEN)

static void begin(void) {
  grow_to(BROKER_CHUNKS - 1);
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) set_word(i, sb_chunk_word(SB_CHUNK_TAIL, 0, 0, 0));
}
/* No slot is hinted at. */
static void set_chunk(uint64_t word, uint64_t headers) {
  set_word(CHUNK, word);
  for (uint32_t i = 0; i < SB_CHUNK_UNITS; i++) set_header(i, headers);
  memset(meta()->hints, 0, sizeof meta()->hints);
  meta()->summary[0] = meta()->summary[1] = 0;
  sb_holding_set(t.b, token, SB_HOLD_NONE, 0);
}
static void open_chunk(unsigned cls) { set_chunk(chunk_of(SB_CHUNK_CLASS, 0, cls), OPEN); }
static void drain_chunk(uint64_t word) { set_chunk(word, drained_by(DEAD)); }
static bool announced(void) {
  const sb_holding_shm *h = sb_holding_at(t.b, token);
  return sb_holding_kind(h->what) == SB_HOLD_CHUNK && h->where == CHUNK;
}
static void expect_headers(unsigned units, uint64_t should, uint64_t between, const char *what) {
  for (uint32_t i = 0; i < SB_CHUNK_UNITS; i++)
    expect_is(header(i), i % units == 0 && i + units <= SB_CHUNK_UNITS ? should : between, what);
}
/* Nothing leads to a slot any more; what is left over behind the last one does not matter. */
static void expect_scrubbed(void) {
  set_header(5 * 1638, drained_by(DEAD));
  expect_headers(5, sb_slot_word(SB_SLOT_ALLOC, 0, GEN), drained_by(DEAD), "a header of no slot");
}
static void expect_hints(unsigned cls) {
  uint32_t slots = SB_CHUNK_UNITS / sb_class_units(cls), words = (slots + 63) / 64;
  for (unsigned w = 0; w < SB_CHUNK_UNITS / 64; w++) {
    uint64_t whole = w * 64 + 64 <= slots ? UINT64_MAX : w * 64 < slots ? (UINT64_C(1) << slots % 64) - 1 : 0;
    expect_is(meta()->hints[w], whole, "a word of hints");
  }
  expect_is(meta()->summary[0], words >= 64 ? UINT64_MAX : (UINT64_C(1) << words) - 1, "the summary");
}
static void expect_no_hints(void) { expect_is(meta()->summary[0] | meta()->hints[0], 0, "the hints"); }
/* The chunk is of its class again, and its slots are free. */
static void expect_class(unsigned cls, uint64_t between) {
  expect_is(word_of(CHUNK), chunk_of(SB_CHUNK_CLASS, 0, cls), "the word of a chunk of its class");
  expect_headers(sb_class_units(cls), FREED, between, "a header of a chunk of its class");
  expect_hints(cls);
}
static void expect_as_it_was(uint64_t word, uint64_t headers, const char *what) {
  expect_is(word_of(CHUNK), word, what);
  expect_headers(1, headers, headers, what);
  expect_no_hints();
}

/* ---- something happens at a step ---- */

static const char *step_at;
static unsigned step_after;
static void (*step_does)(void);
static void step(const char *site) {
  if (strstr(site, step_at) == NULL || step_after-- > 0) return;
  at_step = NULL;
  step_does();
}
/* At that crash point; or at a step of sb_drained.c, after this many others. */
static void meanwhile(const char *site, unsigned after, void (*what)(void)) {
  step_at = site;
  step_after = after;
  step_does = what;
  at_step = step;
}
static void it_happened(void) {
  expect(at_step == NULL, "it did not happen");
  at_step = NULL;
}
static uint64_t changed_word;
static void word_changes(void) { set_word(CHUNK, changed_word); }

/* ---- may it begin ---- */

static void expect_not_begun(uint32_t chunk, const char *what) {
  used = 99;
  expect(!sb_drained_may_begin(t.b, chunk, &used), "%s may be drained", what);
  expect_is(used, 0, what);
}
static void a_chunk_that_rests(void) {
  begin();
  open_chunk(LEAVES);
  expect(sb_drained_may_begin(t.b, CHUNK, &used), "free leaves may not be drained");
  expect_is(used, 1638 * GEN, "the sum that moves on");
  open_chunk(TABLES);
  expect(sb_drained_may_begin(t.b, CHUNK, &used), "free tables may not be drained");
  expect_is(used, 512 * GEN, "the sum of another class");
  set_header(SB_CHUNK_UNITS - 16, TAKEN);
  expect(!sb_drained_may_begin(t.b, CHUNK, &used), "a chunk with its last slot taken may be drained");
  set_header(SB_CHUNK_UNITS - 16, OPEN);
  set_header(0, TAKEN);
  expect(!sb_drained_may_begin(t.b, CHUNK, &used), "a chunk with its first slot taken may be drained");
}
static void what_may_not_be_drained(void) {
  begin();
  open_chunk(LEAVES);
  const uint64_t words[] = {chunk_of(SB_CHUNK_DRAINING, 0, LEAVES),
                            chunk_of(SB_CHUNK_CLASS, 0, SB_MESSAGE_CLASSES),
                            chunk_of(SB_CHUNK_CLASS, 0, 1),
                            chunk_of(SB_CHUNK_CLASS, 0, CLASS_OF(SB_KIND_NODE)),
                            chunk_of(SB_CHUNK_CLASS, 0, CLASS_OF(SB_KIND_COUNT)),
                            chunk_of(SB_CHUNK_CLASS, 0, 60),
                            sb_chunk_word(SB_CHUNK_CLASS, 0, LEAVES, 1)};
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
    set_word(CHUNK, words[i]);
    expect_not_begun(CHUNK, "a word of another kind");
  }
  for (uint32_t i = 0; i < SB_CHUNK_UNITS; i++) SB_STORE(&sb_chunk_meta(t.b, 0)->headers[i], OPEN, SB_RELAXED);
  set_word(0, chunk_of(SB_CHUNK_CLASS, 0, LEAVES));
  expect_not_begun(0, "the chunk of slot 0");
}
static void a_chunk_that_is_not_mapped(void) {
  uint32_t last = BROKER_CHUNKS - 1; /* only the first segment exists */
  set_word(last, chunk_of(SB_CHUNK_CLASS, 0, LEAVES));
  expect_not_begun(last, "a chunk that is not mapped");
  sb_drained_recover(t.b, DEAD, last);
  set_word(last, chunk_of(SB_CHUNK_DRAINING, DEAD, LEAVES));
  sb_drained_recover(t.b, DEAD, last);
  expect_is(word_of(last), chunk_of(SB_CHUNK_DRAINING, DEAD, LEAVES), "the word of a chunk that is not mapped");
  sb_drained_recover(t.b, DEAD, t.b->chunk_limit);
}

/* ---- begin ---- */

static void a_chunk_is_drained(void) {
  const unsigned classes[] = {LEAVES, TABLES};
  for (unsigned i = 0; i < 2; i++) {
    begin();
    open_chunk(classes[i]);
    expect(sb_drained_begin(t.c, token, CHUNK), "it was not drained");
    expect_is(word_of(CHUNK), chunk_of(SB_CHUNK_DRAINING, t.c->id, classes[i]), "its word");
    expect_headers(sb_class_units(classes[i]), drained_by(t.c->id), OPEN, "a header");
    expect(announced(), "it was not announced");
    expect_no_hints();
  }
}
static void a_chunk_in_use(void) {
  begin();
  open_chunk(LEAVES);
  set_header(5, TAKEN);
  expect(!sb_drained_begin(t.c, token, CHUNK), "it was drained");
  expect_is(header(0), OPEN, "a slot that is free");
  expect(!announced(), "it was announced");
  expect_no_hints();
}
/* The looks at the chunk and its 1638 slots, at the chunk again, and two steps for each slot. */
#define STEPS_BEFORE_SLOT(n) (1 + 1638 + 1 + 2 * (n))
static void last_is_taken(void) { set_header(5 * 1637, TAKEN); }
static void a_slot_that_is_taken_meanwhile(void) {
  if (!has_steps()) return;
  for (unsigned later = 0; later < 2; later++) { /* before its header is read, or before it is changed */
    begin();
    open_chunk(LEAVES);
    meanwhile("sb_drained.c", STEPS_BEFORE_SLOT(1637) + later, last_is_taken);
    expect(!sb_drained_begin(t.c, token, CHUNK), "it was drained");
    it_happened();
    expect_is(header(5 * 1637), TAKEN, "the slot of another connection");
    set_header(5 * 1637, FREED);
    expect_class(LEAVES, OPEN);
  }
}
static void a_chunk_that_changes_meanwhile(void) {
  if (!has_steps()) return;
  const uint64_t words[] = {chunk_of(SB_CHUNK_DRAINING, OTHER, LEAVES), chunk_of(SB_CHUNK_CLASS, 0, TABLES)};
  for (unsigned i = 0; i < 2; i++) {
    begin();
    open_chunk(LEAVES);
    changed_word = words[i];
    meanwhile("drained.slots_taken", 0, word_changes);
    expect(!sb_drained_begin(t.c, token, CHUNK), "it was drained");
    it_happened();
    expect_is(word_of(CHUNK), words[i], "its word");
    set_word(CHUNK, chunk_of(SB_CHUNK_CLASS, 0, LEAVES));
    expect_class(LEAVES, OPEN);
  }
}
/* The mark of the reserve may go between the look and the change. */
static void a_mark_that_goes_meanwhile(void) {
  if (!has_steps()) return;
  begin();
  open_chunk(LEAVES);
  changed_word = sb_chunk_word(SB_CHUNK_CLASS, 0, LEAVES, 0);
  meanwhile("sb_drained.c", STEPS_BEFORE_SLOT(1638) + 1, word_changes);
  expect(sb_drained_begin(t.c, token, CHUNK), "it was not drained");
  it_happened();
  expect_is(word_of(CHUNK), sb_chunk_word(SB_CHUNK_DRAINING, t.c->id, LEAVES, 0), "its word");
}

/* ---- end ---- */

static void a_chunk_becomes_free(void) {
  begin();
  drain_chunk(chunk_of(SB_CHUNK_DRAINING, t.c->id, LEAVES));
  SB_STORE(&t.b->classes[LEAVES].chunks, 3, SB_RELAXED);
  meta()->hints[3] = 1;
  expect(sb_drained_end(t.c, CHUNK), "it did not end");
  expect_is(word_of(CHUNK), 0, "its word");
  expect_scrubbed();
  expect_is(meta()->hints[3], 0, "a hint");
  expect_is(t.b->classes[LEAVES].chunks, 2, "how many chunks its class has");
}
/* What is made there later begins behind what was there. */
static void floors_of_a_chunk(void) {
  begin();
  drain_chunk(chunk_of(SB_CHUNK_DRAINING, t.c->id, CLASS_OF(SB_KIND_QUEUE)));
  sb_queue_shm *q = sb_slot_at(t.b, CHUNK * SB_CHUNK_UNITS + 2 * SB_QUEUE_UNITS);
  memset(sb_slot_at(t.b, CHUNK * SB_CHUNK_UNITS), 0, SB_CHUNK_BYTES);
  SB_STORE(&q->state, SB_QUEUE_NONE | SB_FIELD(9, 2), SB_RELAXED);
  meta()->floors[0] = 0;
  expect(sb_drained_end(t.c, CHUNK), "it did not end");
  expect_is(meta()->floors[0], 9, "the floor of incarnations");
}
static void expect_not_ours(uint64_t word) {
  drain_chunk(word);
  expect(!sb_drained_end(t.c, CHUNK), "what is not ours ended");
  expect_as_it_was(word, drained_by(DEAD), "what is not ours, at its end");
  sb_drained_give_up(t.c, CHUNK);
  expect_as_it_was(word, drained_by(DEAD), "what is not ours, given up");
}
static void what_is_not_ours(void) {
  begin();
  unsigned us = t.c->id;
  expect_not_ours(chunk_of(SB_CHUNK_DRAINING, OTHER, LEAVES));
  expect_not_ours(chunk_of(SB_CHUNK_CLAIMED, us, LEAVES));
  expect_not_ours(chunk_of(SB_CHUNK_DRAINING, us, LEAVES) | OVER);
  expect_not_ours(sb_chunk_word(SB_CHUNK_DRAINING, us, LEAVES, 1));
  expect_not_ours(chunk_of(SB_CHUNK_DRAINING, us, 1));
}
static void taken_over_before_the_end(void) {
  if (!has_steps()) return;
  begin();
  drain_chunk(chunk_of(SB_CHUNK_DRAINING, t.c->id, LEAVES));
  changed_word = chunk_of(SB_CHUNK_DRAINING, OTHER, LEAVES) | OVER;
  meanwhile("drained.floors", 0, word_changes);
  expect(!sb_drained_end(t.c, CHUNK), "what was taken over ended");
  it_happened();
  expect_as_it_was(changed_word, drained_by(DEAD), "what was taken over");
}

/* ---- back to its class ---- */

static void a_chunk_is_given_up(void) {
  begin();
  drain_chunk(chunk_of(SB_CHUNK_DRAINING, t.c->id, TABLES));
  sb_drained_give_up(t.c, CHUNK);
  expect_class(TABLES, drained_by(DEAD));
}
static void a_chunk_is_taken_over(void) {
  begin();
  drain_chunk(chunk_of(SB_CHUNK_DRAINING, DEAD, LEAVES));
  set_header(5, TAKEN);
  expect(sb_drained_take_over(t.c, LEAVES, token), "it was not taken over");
  expect(announced(), "it was not announced");
  expect_is(header(5), TAKEN, "a slot that is in use");
  set_header(5, FREED);
  expect_class(LEAVES, drained_by(DEAD));
}
static void what_is_not_taken_over(void) {
  const uint64_t words[] = {chunk_of(SB_CHUNK_DRAINING, DEAD, LEAVES) | OVER, chunk_of(SB_CHUNK_DRAINING, DEAD, TABLES),
                            chunk_of(SB_CHUNK_CLASS, 0, LEAVES), sb_chunk_word(SB_CHUNK_DRAINING, DEAD, LEAVES, 1)};
  begin();
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
    drain_chunk(words[i]);
    expect(!sb_drained_take_over(t.c, LEAVES, token), "word %u was taken over", i);
    expect_as_it_was(words[i], drained_by(DEAD), "what is not taken over");
  }
  uint64_t nodes = chunk_of(SB_CHUNK_DRAINING, DEAD, CLASS_OF(SB_KIND_NODE));
  drain_chunk(nodes);
  expect(!sb_drained_take_over(t.c, CLASS_OF(SB_KIND_NODE), token), "a chunk of nodes was taken over");
  expect_as_it_was(nodes, drained_by(DEAD), "a chunk of nodes");
}
static void another_takes_it_over(void) {
  if (!has_steps()) return;
  begin();
  drain_chunk(chunk_of(SB_CHUNK_DRAINING, DEAD, LEAVES));
  changed_word = chunk_of(SB_CHUNK_DRAINING, OTHER, LEAVES) | OVER;
  meanwhile("sb_drained.c", CHUNK + 1, word_changes);
  expect(!sb_drained_take_over(t.c, LEAVES, token), "it was taken over twice");
  it_happened();
  expect_as_it_was(changed_word, drained_by(DEAD), "what another connection took over");
}
/* A process that has not mapped the chunk yet does so first. */
static void a_chunk_that_is_mapped_first(void) {
  test_broker late = t;
  attach(&late);
  late.c = connect_to(&late);
  begin();
  if (sb_holding_take(late.c, &token) != SB_OK) die("sb_holding_take", 0);
  set_word(BROKER_CHUNKS - 1, chunk_of(SB_CHUNK_DRAINING, DEAD, LEAVES));
  expect(sb_drained_take_over(late.c, LEAVES, token), "it was not taken over");
  expect_is(word_of(BROKER_CHUNKS - 1), chunk_of(SB_CHUNK_CLASS, 0, LEAVES), "its word");
}

/* ---- recovery ---- */

static void slots_of_the_dead(void) {
  begin();
  open_chunk(LEAVES);
  const uint64_t others[] = {drained_by(OTHER), TAKEN, sb_slot_word(SB_SLOT_ALLOC, DEAD, GEN)};
  for (uint32_t i = 0; i < 3; i++) set_header(5 * i, others[i]);
  set_header(15, drained_by(DEAD));
  set_header(5 * 1637, drained_by(DEAD));
  sb_drained_recover(t.b, DEAD, CHUNK);
  for (uint32_t i = 0; i < 3; i++) expect_is(header(5 * i), others[i], "a slot that the dead did not drain");
  expect_is(header(15), FREED, "a slot that the dead drained");
  expect_is(header(5 * 1637), FREED, "the last slot that the dead drained");
  expect_is(word_of(CHUNK), chunk_of(SB_CHUNK_CLASS, 0, LEAVES), "the word");
  expect_hints(LEAVES);
}
static bool marked;
static void look_at_mark(void) { marked = word_of(CHUNK) == (chunk_of(SB_CHUNK_DRAINING, DEAD, LEAVES) | OVER); }
static void chunks_of_the_dead(void) {
  begin();
  drain_chunk(chunk_of(SB_CHUNK_DRAINING, DEAD, LEAVES));
  meanwhile("drained.taken_over", 0, look_at_mark);
  sb_drained_recover(t.b, DEAD, CHUNK);
  expect(marked || !has_steps(), "it was given back before it was taken over");
  at_step = NULL;
  expect_class(LEAVES, drained_by(DEAD));
  drain_chunk(chunk_of(SB_CHUNK_DRAINING, DEAD, LEAVES) | OVER);
  sb_drained_recover(t.b, DEAD, CHUNK);
  expect_class(LEAVES, drained_by(DEAD));
  drain_chunk(chunk_of(SB_CHUNK_CLAIMED, DEAD, LEAVES));
  sb_drained_recover(t.b, DEAD, CHUNK);
  expect_is(word_of(CHUNK), chunk_of(SB_CHUNK_CLAIMED, DEAD, LEAVES), "the word of one that was claimed");
  expect_scrubbed();
}
static void chunks_of_others(void) {
  const uint64_t words[] = {chunk_of(SB_CHUNK_DRAINING, OTHER, LEAVES),
                            chunk_of(SB_CHUNK_DRAINING, OTHER, LEAVES) | OVER,
                            chunk_of(SB_CHUNK_CLAIMED, OTHER, LEAVES),
                            chunk_of(SB_CHUNK_TAIL, DEAD, LEAVES),
                            chunk_of(SB_CHUNK_CLASS, 0, 1),
                            chunk_of(SB_CHUNK_CLASS, 0, CLASS_OF(SB_KIND_NODE))};
  begin();
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
    drain_chunk(words[i]);
    sb_drained_recover(t.b, DEAD, CHUNK);
    expect_as_it_was(words[i], drained_by(DEAD), "a chunk that is not of the dead");
  }
}
/* The slots are free, but the chunk is another one's by then. */
static void lost_before_it_is_of_its_class(void) {
  if (!has_steps()) return;
  const uint64_t words[] = {chunk_of(SB_CHUNK_DRAINING, OTHER, LEAVES), chunk_of(SB_CHUNK_CLAIMED, DEAD, LEAVES)};
  for (unsigned i = 0; i < 2; i++) {
    begin();
    drain_chunk(chunk_of(SB_CHUNK_DRAINING, DEAD, LEAVES) | OVER);
    changed_word = words[i];
    meanwhile("drained.freed", 0, word_changes);
    sb_drained_recover(t.b, DEAD, CHUNK);
    it_happened();
    expect_is(word_of(CHUNK), words[i], "the word of another one's chunk");
  }
}

static const test_case CASES[] = {
    {"drained: rests", "a chunk of free structures may be drained", a_chunk_that_rests},
    {"drained: others", "bodies, nodes and runs may not be drained", what_may_not_be_drained},
    {"drained: not mapped", "a chunk that is not mapped is left", a_chunk_that_is_not_mapped},
    {"drained: begun", "all slots of a drained chunk are taken", a_chunk_is_drained},
    {"drained: in use", "a chunk in use is left as it is", a_chunk_in_use},
    {"drained: slot taken", "a slot that is taken meanwhile keeps its chunk", a_slot_that_is_taken_meanwhile},
    {"drained: changed", "a chunk that changes meanwhile gets its slots back", a_chunk_that_changes_meanwhile},
    {"drained: mark", "the mark of the reserve may go meanwhile", a_mark_that_goes_meanwhile},
    {"drained: ended", "a drained chunk becomes FREE", a_chunk_becomes_free},
    {"drained: floors", "the floors of a drained chunk are raised", floors_of_a_chunk},
    {"drained: not ours", "only the drainer ends or gives up", what_is_not_ours},
    {"drained: lost at the end", "a chunk that was taken over does not end", taken_over_before_the_end},
    {"drained: given up", "a chunk that is given up is of its class again", a_chunk_is_given_up},
    {"drained: taken over", "a chunk of the dead goes back to its class", a_chunk_is_taken_over},
    {"drained: kept", "only a drained chunk of the class is taken over, once", what_is_not_taken_over},
    {"drained: two take over", "one of two takes it over", another_takes_it_over},
    {"drained: mapped", "a chunk is mapped before it is taken over", a_chunk_that_is_mapped_first},
    {"drained: slots of the dead", "slots that the dead drained are free again", slots_of_the_dead},
    {"drained: dead", "chunks that the dead drained are recovered", chunks_of_the_dead},
    {"drained: not dead", "chunks of others are not recovered", chunks_of_others},
    {"drained: lost", "a chunk of another one does not get that class", lost_before_it_is_of_its_class},
};
SUBJECT(CASES)
