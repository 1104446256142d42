// SPDX-License-Identifier: Apache-2.0
/* sb_chunk: chunks and hints that another connection changes during a call, and chunks that are not mapped or not
 * complete. */
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "meanwhile.h"
#include "sb_holdings.h"
#include "sb_recover.h"
#include "sb_reserve.h"
#include "slabs.h"
#include "system.h"

#define LEAVES (SB_MESSAGE_CLASSES + SB_KIND_LEAF)
#define FIRST (CHUNK * SB_CHUNK_UNITS)
#define LAST_SLOT (FIRST + SB_CHUNK_UNITS - 4)
#define FREED sb_slot_word(SB_SLOT_FREE, 0, GEN + 1)
#define OF_FOUR sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 0)

static uint64_t token;

static void begin(void) {
  begin_slab();
  set_chunks(0, BROKER_CHUNKS, SB_CHUNK_TAIL, 0);
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  t.c->use = SB_USE_DRAIN;
  answer_for_the_system();
}
static sb_chunk_meta_shm *meta(void) { return sb_chunk_meta(t.b, CHUNK); }
static void unmap(void) { SB_STORE(&t.b->mapped_chunks, CHUNK, SB_RELAXED); }
static uint64_t of_another(unsigned state) { return sb_chunk_word(state, ANOTHER, FOUR, 0); }
static void set_word_of(uint32_t chunk, uint64_t word) { SB_STORE(&t.b->chunks[chunk], word, SB_RELAXED); }

/* ---- hints ---- */

/* A connection that took the last hints of a word is about to clear the bit of the summary, which is set still. */
static void nothing(void) {}
static void a_hint_in_an_empty_word(void) {
  begin();
  open_chunk(FOUR);
  meta()->summary[0] = 2;
  meanwhile(&meta()->summary[0], BEFORE_CHANGE, 1, nothing);
  sb_chunk_hint_set(t.b, FOUR, CHUNK, 1, 4);
  (void)has_acted();
  expect_is(meta()->summary[0], 2, "the summary");
}
static void hint_in_the_same_word(void) { SB_STORE(&meta()->hints[70], 8, SB_RELAXED); }
static void a_hint_comes_while_the_word_is_taken(void) {
  begin();
  open_chunk(FOUR);
  meta()->summary[0] = meta()->summary[1] = 0;
  sb_chunk_hint_set(t.b, FOUR, CHUNK, 70, 5);
  meanwhile(&meta()->summary[1], BEFORE_CHANGE, 1, hint_in_the_same_word);
  expect(sb_chunk_hint_search(t.c, FOUR), "no hint was taken");
  expect_is(t.c->cache[FOUR].mask, 5, "the hints that were taken");
  if (has_acted()) expect_is(meta()->summary[1], UINT64_C(1) << 6, "the summary of the hint that came");
}
static void hint_without_a_group(void) {
  SB_STORE(&meta()->hints[1], 4, SB_RELAXED);
  SB_STORE(&meta()->summary[0], 2, SB_RELAXED);
}
static void a_hint_comes_while_its_group_is_left(void) {
  begin();
  open_chunk(FOUR);
  meta()->summary[0] = meta()->summary[1] = 0;
  uint64_t group = UINT64_C(1) << (CHUNK >> t.b->groups_shift);
  SB_STORE(&t.b->classes[FOUR].groups, group, SB_RELAXED);
  meanwhile(&t.b->classes[FOUR].groups, BEFORE_CHANGE, 1, hint_without_a_group);
  bool found = sb_chunk_hint_search(t.c, FOUR);
  if (!has_acted()) return;
  expect(found, "the hint was not found");
  expect_is(t.b->classes[FOUR].groups, group, "the groups");
}
static void hints_of_a_chunk_that_is_not_mapped(void) {
  begin();
  open_chunk(FOUR);
  sb_chunk_hint_set(t.b, FOUR, CHUNK, 1, 4);
  unmap();
  expect(!sb_chunk_hint_search(t.c, FOUR), "a hint was taken");
  expect_is(hints(1), 4, "the hints");
}

/* ---- claims ---- */

static void a_segment_may_be_added_again(void) {
  answer_for_the_system();
  t.b->grow_again_ns = says.now_ns;
  expect(sb_chunk_may_grow(t.b), "no segment may be added when the time has come");
  t.b->grow_again_ns = says.now_ns + 1;
  expect(!sb_chunk_may_grow(t.b), "a segment may be added before");
}
static void another_one_claims_it(void) { set_word_of(5, of_another(SB_CHUNK_CLAIMED)); }
static void a_claim_that_is_late(void) {
  begin();
  set_chunk(5, SB_CHUNK_FREE, 0, 0);
  meanwhile(&t.b->chunks[5], BEFORE_CAS, 1, another_one_claims_it);
  bool claimed = sb_chunk_claim(t.c, 5, FOUR, 0);
  expect(!has_acted() || !claimed, "a chunk was claimed twice");
  const unsigned classes[] = {FOUR, LEAVES};
  for (unsigned i = 0; i < 2; i++) {
    begin();
    SB_STORE(&t.b->header->segments, 1u, SB_RELAXED);
    set_chunk(5, SB_CHUNK_FREE, 0, 0);
    set_chunk(CHUNKS_PER_SEGMENT, SB_CHUNK_FREE, 0, 0); /* behind the last */
    meanwhile(&t.b->chunks[5], BEFORE_CAS, 1, another_one_claims_it);
    claimed = sb_chunk_claim_class(t.c, classes[i], token);
    if (!has_acted()) return;
    expect(!claimed, "a chunk was claimed");
    expect_is(chunk_word(5), of_another(SB_CHUNK_CLAIMED), "the chunk of another connection");
    expect_is(chunk_word(CHUNKS_PER_SEGMENT), 0, "the chunk behind the last");
  }
}
static void another_one_takes_of_the_reserve(void) { set_word_of(20, of_another(SB_CHUNK_CLAIMED)); }
static void a_claim_that_leaves_too_few(void) {
  begin();
  uint32_t last = 20 + sb_reserve_chunks(t.b);
  set_chunks(20, last + 1, SB_CHUNK_FREE, 0);
  t.c->use = SB_USE_PLAIN;
  meanwhile(&t.b->chunks[last], BEFORE_CAS, 1, another_one_takes_of_the_reserve);
  bool claimed = sb_chunk_claim_class(t.c, FOUR, token);
  if (!has_acted()) return;
  expect(!claimed, "a chunk of the reserve was opened");
  expect_is(chunk_word(last), 0, "the chunk that was claimed");
}
static void a_claim_of_what_is_not_mapped(void) {
  begin();
  set_chunk(CHUNK, SB_CHUNK_FREE, 0, 0);
  unmap();
  expect(!sb_chunk_claim_class(t.c, FOUR, token), "a chunk was claimed");
  expect_is(chunk_word(CHUNK), 0, "the chunk");
}

/* ---- drains ---- */

/* All slots are free, and the chunk is of the reserve. */
static void begin_drain(void) {
  begin();
  open_chunk(FOUR);
  set_word_of(CHUNK, OF_FOUR | SB_CHUNK_OF_RESERVE);
}
static bool drain(void) { return sb_chunk_drain(t.c, token, CHUNK); }
static void drain_it_first(void) { set_word_of(CHUNK, of_another(SB_CHUNK_DRAINING)); }
static void a_chunk_that_another_one_drains(void) {
  begin_drain();
  meanwhile(&t.b->chunks[CHUNK], BEFORE_CAS, 1, drain_it_first);
  bool drained = drain();
  if (!has_acted()) return;
  expect(!drained, "a chunk was drained twice");
  expect_is(chunk_word(CHUNK), of_another(SB_CHUNK_DRAINING), "its word");
  expect_is(header_of(FIRST), sb_slot_word(SB_SLOT_FREE, 0, GEN), "the header of a slot");
}
static void take_the_first(void) { set_header(FIRST, SB_SLOT_PUBLISHED, 1); }
static void take_the_last(void) { set_header(LAST_SLOT, SB_SLOT_PUBLISHED, 1); }
static void take_number_70(void) { set_header(SLOT, SB_SLOT_ALLOC, ANOTHER); }
/* It is of its class again: slots that were free are, and are hinted at; the slot that was taken is left alone. */
static void a_slot_is_taken_while_its_chunk_is_drained(void) {
  const struct {
    uint32_t slot;
    bool at_its_cas;
    void (*take)(void);
    uint64_t header;
  } k[] = {{FIRST, false, take_the_first, sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN)},
           {LAST_SLOT, false, take_the_last, sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN)},
           {SLOT, true, take_number_70, sb_slot_word(SB_SLOT_ALLOC, ANOTHER, GEN)}};
  for (unsigned i = 0; i < 3; i++) {
    begin_drain();
    meanwhile(k[i].at_its_cas ? sb_slot_header(t.b, k[i].slot) : &t.b->chunks[CHUNK], BEFORE_CAS, 1, k[i].take);
    bool drained = drain();
    if (!has_acted()) return;
    expect(!drained, "a chunk with a message was drained");
    expect_is(chunk_word(CHUNK), OF_FOUR | SB_CHUNK_OF_RESERVE, "its word");
    expect_is(header_of(k[i].slot), k[i].header, "the header of the slot that was taken");
    for (uint32_t slot = FIRST; slot <= LAST_SLOT; slot += 4) {
      if (slot != k[i].slot) {
        expect_is(header_of(slot), slot < k[i].slot ? FREED : sb_slot_word(SB_SLOT_FREE, 0, GEN), "a header");
      }
    }
    for (uint32_t w = 0; w < SB_CHUNK_UNITS / 4 / 64; w++) expect_is(hints(w), UINT64_MAX, "the hints");
  }
}
static void take_the_run(void) { set_header(FIRST, SB_SLOT_ALLOC, ANOTHER); }
static void a_run_is_taken_while_it_is_dissolved(void) {
  begin();
  set_chunk(CHUNK, SB_CHUNK_RUN, 0, 1);
  set_header(FIRST, SB_SLOT_FREE, 0);
  meanwhile(sb_slot_header(t.b, FIRST), BEFORE_CAS, 1, take_the_run);
  bool drained = drain();
  if (!has_acted()) return;
  expect(!drained, "a run with a body was dissolved");
  expect_is(chunk_word(CHUNK), sb_chunk_word(SB_CHUNK_RUN, 0, 0, 1), "its word");
}
/* After this connection read the chunk's word, others drained the run, and opened the chunk for bodies: the chunk and its
 * messages are left alone, and its first slot is free again. */
static void give_it_another_class(void) { set_word_of(CHUNK, OF_FOUR); }
static void a_run_that_is_gone(void) {
  begin();
  open_chunk(FOUR);
  set_chunk(CHUNK, SB_CHUNK_RUN, 0, 1);
  set_header(FIRST, SB_SLOT_FREE, 0);
  set_header(SLOT, SB_SLOT_PUBLISHED, 1);
  SB_STORE(&meta()->hints[0], 0, SB_RELAXED);
  meanwhile(sb_slot_header(t.b, FIRST), BEFORE_CAS, 1, give_it_another_class);
  bool drained = drain();
  if (!has_acted()) return;
  expect(!drained, "a chunk with a message was drained");
  expect_is(chunk_word(CHUNK), OF_FOUR, "its word");
  expect_is(header_of(FIRST), FREED, "the header of its first slot");
  expect_is(hints(0), 1, "the hints");
  expect_is(header_of(SLOT), sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN), "the header of a message");
}
/* The same, but the chunk was filled in and given back in between, and is a run again, of the same length, with a body:
 * the run and its body are left alone. */
static void make_another_run(void) {
  set_header(FIRST, SB_SLOT_PUBLISHED, 1);
  set_word_of(CHUNK, sb_run_word(1, GEN));
}
static void a_run_that_is_another_one(void) {
  begin();
  set_word_of(CHUNK, sb_run_word(1, GEN - 2));
  set_header(FIRST, SB_SLOT_FREE, 0);
  meanwhile(&t.b->chunks[CHUNK], BEFORE_CAS, 1, make_another_run);
  bool drained = drain();
  if (!has_acted()) return;
  expect(!drained, "a run with a body was dissolved");
  expect_is(chunk_word(CHUNK), sb_run_word(1, GEN), "its word");
  expect_is(header_of(FIRST), sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN), "the header of the body");
}
/* The same, and the connection is killed before it frees the slot again. Its reaper frees the slot, whatever the chunk is
 * now; a slot that the connection owns there for another reason stays. */
static sb_broker *dying;
static uint64_t becomes;
static void become_another(void) { SB_STORE(&dying->chunks[CHUNK], becomes, SB_RELAXED); }
static void end_when_taken(const char *site) {
  if (strcmp(site, "slab.run.taken") == 0) _exit((int)dying->process);
}
static void dissolve_and_die(test_broker *own) {
  uint64_t held;
  dying = own->b;
  if (!sb_segments_ready(dying) || sb_holding_take(own->c, &held) != SB_OK) _exit(255);
  meanwhile(sb_slot_header(dying, FIRST), BEFORE_CAS, 1, become_another);
  at_step = end_when_taken;
  (void)sb_chunk_drain(own->c, held, CHUNK);
}
static void a_drainer_of_a_run_that_is_gone_dies(void) {
  if (!has_steps()) return;
  const uint64_t words[] = {OF_FOUR,
                            sb_chunk_word(SB_CHUNK_CLASS, 0, LEAVES, 0),
                            sb_chunk_word(SB_CHUNK_CLASS, 0, SB_MESSAGE_CLASSES + SB_KIND_NODE, 0),
                            sb_chunk_word(SB_CHUNK_CLAIMED, ANOTHER, LEAVES, 0),
                            sb_chunk_word(SB_CHUNK_RUN, 0, 0, 3),
                            sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0)};
  grow_to(CHUNK);
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
    becomes = words[i];
    set_chunk(CHUNK, SB_CHUNK_RUN, 0, 1);
    set_header(FIRST, SB_SLOT_FREE, 0);
    uint32_t process = die_attached(dissolve_and_die);
    expect(sb_slot_state(header_of(FIRST)) == SB_SLOT_ALLOC, "%u: the slot was not taken", i);
    expect(sb_recover_process(t.c, process), "%u: the process was not recovered", i);
    expect(header_of(FIRST) == FREED, "%u: the header of the first slot is %llx", i,
           (unsigned long long)header_of(FIRST));
    expect_is(chunk_word(CHUNK), words[i], "the word of the chunk");
  }
}
static void what_cannot_be_drained(void) {
  begin_drain();
  unmap();
  expect(!drain(), "a chunk that is not mapped was drained");
  expect_is(chunk_word(CHUNK), OF_FOUR | SB_CHUNK_OF_RESERVE, "the word of a chunk that is not mapped");
  SB_STORE(&t.b->mapped_chunks, BROKER_CHUNKS, SB_RELAXED);
  set_chunk(CHUNK, SB_CHUNK_CLASS, LEAVES, 0);
  expect(!drain(), "a chunk of leaves was drained");
  SB_STORE(&t.b->header->segments, 1u, SB_RELAXED);
  set_word_of(CHUNKS_PER_SEGMENT, OF_FOUR);
  fill_chunk(CHUNKS_PER_SEGMENT, SB_SLOT_FREE, 0);
  expect(!sb_chunk_drain_any(t.c, token), "a chunk behind the last was drained");
}
/* What it drained another connection has claimed by now: it drains the next one. */
static void claim_what_was_drained(void) { set_word_of(CHUNK, of_another(SB_CHUNK_CLAIMED)); }
static void a_chunk_is_claimed_that_was_drained(void) {
  for (unsigned more = 0; more < 2; more++) {
    begin_drain();
    if (more != 0) {
      set_word_of(CHUNK + 3, OF_FOUR);
      fill_chunk(CHUNK + 3, SB_SLOT_FREE, 0);
    }
    meanwhile(&t.b->chunks[CHUNK], BEFORE_LOAD, 2, claim_what_was_drained);
    bool drained = sb_chunk_drain_any(t.c, token);
    if (!has_acted()) return;
    expect(drained, "nothing was drained");
    expect_is(chunk_word(CHUNK), of_another(SB_CHUNK_CLAIMED), "the chunk of another connection");
    if (more != 0) expect_is(chunk_word(CHUNK + 3), 0, "the next chunk");
  }
}

/* ---- what the reaper finds ---- */

static void recover(void) { sb_chunk_recover(t.b, ANOTHER, CHUNK); }
static void chunks_of_the_dead(void) {
  begin();
  set_word_of(CHUNK, of_another(SB_CHUNK_CLAIMED));
  unmap();
  recover();
  expect_is(chunk_word(CHUNK), of_another(SB_CHUNK_CLAIMED), "a chunk that is not mapped");
  SB_STORE(&t.b->mapped_chunks, BROKER_CHUNKS, SB_RELAXED);
  set_word_of(CHUNK, sb_chunk_word(SB_CHUNK_CLAIMED, ANOTHER, LEAVES, 0));
  recover();
  expect_is(chunk_word(CHUNK), 0, "a chunk that was claimed for leaves");
  const unsigned classes[] = {1, FOUR, LONGEST};
  for (unsigned i = 0; i < 3; i++) {
    open_chunk(classes[i]);
    set_header(FIRST, SB_SLOT_ALLOC, 0); /* scrubbed */
    set_word_of(CHUNK, sb_chunk_word(SB_CHUNK_DRAINING, ANOTHER, classes[i], 0));
    recover();
    expect_is(chunk_word(CHUNK), sb_chunk_word(SB_CHUNK_CLASS, 0, classes[i], 0), "a chunk that was being drained");
    expect_is(header_of(FIRST), FREED, "the header of its first slot");
  }
}
static void runs_of_the_dead(void) {
  begin();
  set_chunk(CHUNK, SB_CHUNK_RUN, 0, 2);
  set_header(FIRST, SB_SLOT_PUBLISHED, ANOTHER);
  recover();
  expect_is(header_of(FIRST), sb_slot_word(SB_SLOT_PUBLISHED, ANOTHER, GEN), "the header of a body");
  set_word_of(CHUNK, sb_chunk_word(SB_CHUNK_CLAIMED, ANOTHER, 0, 2));
  set_word_of(CHUNK + 1, of_another(SB_CHUNK_DRAINING));
  set_header(FIRST, SB_SLOT_FREE, 0);
  recover();
  expect_is(chunk_word(CHUNK), 0, "the head of a run that was being made");
  expect_is(chunk_word(CHUNK + 1), of_another(SB_CHUNK_DRAINING), "a chunk that is none of it yet");
}

/* While long slots are taken one by one, no other connection finds their word without its bit in the summary. */
static bool summary_changed;
static void note_change(void) { summary_changed = true; }
static void hints_that_are_left(void) {
  begin();
  open_chunk(24);
  meta()->summary[0] = meta()->summary[1] = 0;
  sb_chunk_hint_set(t.b, 24, CHUNK, 0, 5);
  meanwhile(&meta()->summary[0], BEFORE_CHANGE, 1, note_change);
  expect(sb_chunk_hint_search(t.c, 24), "no hint was taken");
  expect(!summary_changed, "the summary was changed");
  expect_is(hints(0), 4, "the hints that are left");
}
/* A plain put claims nothing where only the reserve is left, not even for a moment: others may need that chunk. */
static void a_claim_of_the_reserve(void) {
  for (uint32_t left = 0; left < 2; left++) {
    begin();
    set_chunks(20, 20 + sb_reserve_chunks(t.b) - left, SB_CHUNK_FREE, 0);
    t.c->use = SB_USE_PLAIN;
    SB_STORE(&sb_holding_at(t.b, token)->what, SB_HOLD_NONE, SB_RELAXED);
    expect(!sb_chunk_claim_class(t.c, FOUR, token), "a chunk of the reserve was opened");
    expect_is(SB_LOAD(&sb_holding_at(t.b, token)->what, SB_RELAXED), SB_HOLD_NONE, "the holding");
  }
}

static const test_case CASES[] = {
    {"chunk_meanwhile: empty word", "a hint in an empty word is summed up anew", a_hint_in_an_empty_word},
    {"chunk_meanwhile: word", "a hint that comes while its word is taken is found",
     a_hint_comes_while_the_word_is_taken},
    {"chunk_meanwhile: group", "a hint that comes while its group is left is found",
     a_hint_comes_while_its_group_is_left},
    {"chunk_meanwhile: unmapped", "no hint is taken of a chunk that is not mapped",
     hints_of_a_chunk_that_is_not_mapped},
    {"chunk_meanwhile: grow", "a segment may be added when the time has come", a_segment_may_be_added_again},
    {"chunk_meanwhile: late", "a chunk is claimed by one connection", a_claim_that_is_late},
    {"chunk_meanwhile: too few", "a claim that leaves too few is taken back", a_claim_that_leaves_too_few},
    {"chunk_meanwhile: claim", "a chunk that is not mapped is not claimed", a_claim_of_what_is_not_mapped},
    {"chunk_meanwhile: twice", "a chunk is drained by one connection", a_chunk_that_another_one_drains},
    {"chunk_meanwhile: slot", "a slot that is taken meanwhile keeps its chunk",
     a_slot_is_taken_while_its_chunk_is_drained},
    {"chunk_meanwhile: run", "a run that is taken meanwhile is kept", a_run_is_taken_while_it_is_dissolved},
    {"chunk_meanwhile: gone", "a chunk that was a run, and has messages by now, is kept", a_run_that_is_gone},
    {"chunk_meanwhile: another run", "a run that came after the one that is drained is kept",
     a_run_that_is_another_one},
    {"chunk: gone, killed", "the reaper of the drainer of a run that is gone frees its slot",
     a_drainer_of_a_run_that_is_gone_dies},
    {"chunk_meanwhile: not drained", "chunks of others are not drained", what_cannot_be_drained},
    {"chunk_meanwhile: claimed", "a drain goes on when its chunk was claimed", a_chunk_is_claimed_that_was_drained},
    {"chunk_meanwhile: dead", "chunks of the dead are given back", chunks_of_the_dead},
    {"chunk_meanwhile: dead run", "what is no chunk of a run stays", runs_of_the_dead},
    {"chunk_meanwhile: left", "the summary keeps the bit of hints that are left", hints_that_are_left},
    {"chunk_meanwhile: reserve", "where only the reserve is left nothing is claimed", a_claim_of_the_reserve},
};
SUBJECT(CASES)
