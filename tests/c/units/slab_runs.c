// SPDX-License-Identifier: Apache-2.0
/* sb_slab: runs of chunks, for bodies that are longer than a chunk. All chunks are in use except those that a case
 * creates. */
#include "meanwhile.h"
#include "sb_holdings.h"
#include "sb_reserve.h"
#include "slabs.h"
#include "system.h"

#define LAST (BROKER_CHUNKS - 1)
#define RUN 3u
#define NODES (SB_MESSAGE_CLASSES + SB_KIND_NODE)
#define LEAVES (SB_MESSAGE_CLASSES + SB_KIND_LEAF)

static uint64_t token, gen;
static uint32_t slot;

static void begin(void) {
  begin_slab();
  set_chunks(0, BROKER_CHUNKS, SB_CHUNK_TAIL, 0);
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  t.c->use = SB_USE_DRAIN;
  answer_for_the_system();
}
static void free_chunks(uint32_t first, uint32_t end) { set_chunks(first, end, SB_CHUNK_FREE, 0); }
static sb_status alloc(void) { return sb_slab_alloc_run(t.c, RUN * SB_CHUNK_BYTES, token, &slot, &gen); }
static uint64_t claimed(unsigned owner, unsigned run) { return sb_chunk_word(SB_CHUNK_CLAIMED, owner, 0, run); }
static void claim_for_another(uint32_t chunk) { SB_STORE(&t.b->chunks[chunk], claimed(ANOTHER, 0), SB_RELAXED); }
static bool is_populated(uint32_t chunk) {
  return (SB_LOAD(&t.b->populated[chunk / 64], SB_RELAXED) >> (chunk % 64) & 1) != 0;
}
static bool is_free(uint32_t chunk) { return chunk_word(chunk) == sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0); }
static void expect_run(uint32_t first, const char *what) {
  expect_is(slot, first * SB_CHUNK_UNITS, what);
  expect(sb_chunk_state(chunk_word(first)) == SB_CHUNK_RUN && sb_chunk_run(chunk_word(first)) == RUN, "its head");
  expect_is(chunk_word(first + 1), sb_chunk_word(SB_CHUNK_TAIL, 0, 0, 1), "its second chunk");
  expect_is(chunk_word(first + 2), sb_chunk_word(SB_CHUNK_TAIL, 0, 0, 2), "its third chunk");
  expect_is(header_of(slot), sb_slot_word(SB_SLOT_ALLOC, t.c->id, gen), "its header");
}

/* ---- a new run ---- */

static uint64_t announced, where, first_word, second_word;
static void note_the_announcement(void) {
  announced = sb_holding_at(t.b, token)->what;
  where = sb_holding_at(t.b, token)->where;
}
static void note_the_claims(void) {
  first_word = chunk_word(LAST - 2);
  second_word = chunk_word(LAST - 1);
}
static void a_run_is_claimed(void) {
  begin();
  free_chunks(0, BROKER_CHUNKS);
  uint32_t first = LAST - 2;
  for (uint32_t i = first - 1; i <= LAST; i++) set_header(i * SB_CHUNK_UNITS, SB_SLOT_FREE, 0);
  SB_STORE(&t.b->populated[0], 0, SB_RELAXED);
  meanwhile(&t.b->chunks[first], BEFORE_CAS, 1, note_the_announcement);
  expect_is(alloc(), SB_OK, "the status");
  if (has_acted()) {
    expect_is(announced, sb_holding_what(SB_HOLD_CHUNK, 0, 0), "the holding before the claim");
    expect_is(where, first, "where it begins");
  }
  expect_run(first, "the run at the end of the broker");
  expect_is(gen, GEN + 1, "its generation");
  expect_is(chunk_word(first), sb_run_word(RUN, gen), "the word of the chunk");
  const sb_holding_shm *h = sb_holding_at(t.b, token);
  expect_is(h->what, sb_holding_what(SB_HOLD_SLOT, slot, gen), "the holding");
  expect_is(h->where, first, "where it is");
  for (uint32_t i = first - 1; i <= LAST; i++) {
    expect(is_populated(i) == (i >= first), "chunk %u of the run", i);
    expect_is(sb_chunk_meta(t.b, i)->written, i >= first, "whether a chunk was opened");
  }
  expect(is_free(first - 1), "the chunk before the run is in use");
}
/* Until its slot has its header the chunks are claimed: the head says how many. */
static void claims_of_a_run(void) {
  begin();
  free_chunks(LAST - 2, LAST + 1);
  meanwhile(sb_slot_header(t.b, (LAST - 2) * SB_CHUNK_UNITS), AFTER_LOAD, 1, note_the_claims);
  expect_is(alloc(), SB_OK, "the status");
  if (has_acted()) {
    expect_is(first_word, claimed(t.c->id, RUN), "the head before its slot has a header");
    expect_is(second_word, sb_chunk_word(SB_CHUNK_TAIL, 0, 0, 1), "the second chunk");
  }
  begin();
  free_chunks(LAST - 2, LAST + 1);
  meanwhile(&t.b->chunks[LAST - 1], BEFORE_STORE, 1, note_the_claims);
  expect_is(alloc(), SB_OK, "the status");
  if (has_acted()) expect_is(second_word, claimed(t.c->id, 0), "the second chunk, before it is a tail");
}
static void bytes_of_a_run(void) {
  const uint64_t bytes[] = {2 * SB_CHUNK_BYTES + 1, 3 * SB_CHUNK_BYTES, 3 * SB_CHUNK_BYTES + 1};
  for (unsigned i = 0; i < 3; i++) {
    begin();
    free_chunks(1, BROKER_CHUNKS);
    expect_is(sb_slab_alloc_run(t.c, bytes[i], token, &slot, &gen), SB_OK, "the status");
    expect_is(sb_chunk_run(chunk_word(slot / SB_CHUNK_UNITS)), i < 2 ? 3 : 4, "the chunks of a run");
  }
}
/* Slot 0 has no owner. */
static void where_a_run_fits(void) {
  begin();
  free_chunks(0, 3);
  free_chunks(10, 12);
  free_chunks(13, 15);
  expect_is(alloc(), SB_NO_MEMORY, "the status without three chunks in a row");
  for (uint32_t i = 10; i < 15; i++) expect(i == 12 || is_free(i), "chunk %u is in use", i);
  set_chunk(12, SB_CHUNK_FREE, 0, 0);
  set_chunk(13, SB_CHUNK_TAIL, 0, 0);
  expect_is(alloc(), SB_OK, "the status with three chunks in a row");
  expect_run(10, "the run in the middle");
  set_chunk(3, SB_CHUNK_FREE, 0, 0);
  expect_is(alloc(), SB_OK, "the status with three chunks at the beginning");
  expect_run(1, "the run at the beginning");
}
/* In a broker that may grow the first chunks are used first. */
static void a_run_in_a_broker_that_grows(void) {
  begin();
  SB_STORE(&t.b->header->segments, 2u, SB_RELAXED);
  free_chunks(0, 2 * CHUNKS_PER_SEGMENT);
  expect_is(alloc(), SB_OK, "the status");
  expect_run(1, "the run at the beginning");
  begin();
  SB_STORE(&t.b->header->segments, 2u, SB_RELAXED);
  free_chunks(2 * CHUNKS_PER_SEGMENT - 2, BROKER_CHUNKS);
  expect_is(alloc(), SB_GROW, "the status without room before the end");
}
/* What is not mapped cannot be used. */
static void a_run_that_is_not_mapped(void) {
  begin();
  free_chunks(10, 14);
  SB_STORE(&t.b->mapped_chunks, CHUNKS_PER_SEGMENT, SB_RELAXED);
  expect_is(alloc(), SB_NO_MEMORY, "the status");
  expect(is_free(11), "a chunk of the run is in use");
  set_chunk(10, SB_CHUNK_RUN, 0, RUN);
  set_header(10 * SB_CHUNK_UNITS, SB_SLOT_FREE, 0);
  set_chunks(11, 14, SB_CHUNK_TAIL, 0);
  sb_chunk_meta(t.b, 10)->headers[0] = sb_slot_word(SB_SLOT_FREE, 0, GEN);
  SB_STORE(&t.b->mapped_chunks, 12u, SB_RELAXED);
  set_chunk(12, SB_CHUNK_TAIL, 0, 2);
  expect(alloc() != SB_OK, "a run was taken that goes on in a segment that is not mapped");
}

/* ---- runs that race ---- */

static void claim_the_second(void) { claim_for_another(LAST - 1); }
static void another_one_claims_a_chunk(void) {
  begin();
  free_chunks(30, BROKER_CHUNKS);
  meanwhile(&t.b->chunks[LAST - 1], BEFORE_CAS, 1, claim_the_second);
  expect_is(alloc(), SB_OK, "the status");
  if (!has_acted()) return;
  expect_run(LAST - 5, "the run before the chunk of another connection");
  expect(is_free(LAST - 2), "the chunk that was claimed first is in use");
  expect_is(chunk_word(LAST - 1), claimed(ANOTHER, 0), "the chunk of another connection");
  expect(is_free(LAST), "the last chunk is in use");
}
static void claim_of_the_reserve(void) { claim_for_another(41); }
static void the_reserve_is_left(void) {
  begin();
  free_chunks(42, BROKER_CHUNKS);
  t.c->use = SB_USE_PLAIN;
  expect_is(alloc(), SB_OK, "the status with three more than the reserve");
  expect_run(LAST - 2, "the run");
  begin();
  free_chunks(43, BROKER_CHUNKS);
  t.c->use = SB_USE_PLAIN;
  expect_is(alloc(), SB_NO_MEMORY, "the status with two more than the reserve");
  begin();
  free_chunks(41, LAST);
  claim_for_another(LAST);
  t.c->use = SB_USE_PLAIN;
  meanwhile(&t.b->chunks[LAST - 1], BEFORE_CAS, 1, claim_of_the_reserve);
  sb_status status = alloc();
  if (!has_acted()) return;
  expect_is(status, SB_NO_MEMORY, "the status when another connection takes of the reserve");
  for (uint32_t i = 42; i < LAST; i++) expect(is_free(i), "chunk %u is in use", i);
  expect_is(says.pauses, 100, "the looks at a connection that claimed a higher chunk");
}

/* ---- runs that were freed ---- */

static void a_free_run_is_taken(void) {
  begin();
  set_chunk(40, SB_CHUNK_RUN, 0, 2);
  set_chunk(42, SB_CHUNK_TAIL, 0, RUN);
  set_chunk(43, SB_CHUNK_RUN, 0, 4);
  set_chunk(LAST - 2, SB_CHUNK_RUN, 0, RUN);
  set_chunk(20, SB_CHUNK_RUN, 0, RUN);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) set_header(i * SB_CHUNK_UNITS, SB_SLOT_FREE, 0);
  set_header((LAST - 2) * SB_CHUNK_UNITS, SB_SLOT_PUBLISHED, 1);
  expect_is(alloc(), SB_OK, "the status");
  expect_is(slot, 20 * SB_CHUNK_UNITS, "the slot");
  expect_is(gen, GEN, "its generation");
  expect_is(header_of(slot), sb_slot_word(SB_SLOT_ALLOC, t.c->id, GEN), "its header");
  expect_is(sb_holding_at(t.b, token)->what, sb_holding_what(SB_HOLD_SLOT, slot, GEN), "the holding");
  for (uint32_t i = 0; i < LAST - 2; i++) {
    if (i != 20) expect_is(header_of(i * SB_CHUNK_UNITS), sb_slot_word(SB_SLOT_FREE, 0, GEN), "another header");
  }
  set_header((LAST - 2) * SB_CHUNK_UNITS, SB_SLOT_FREE, 0);
  expect_is(alloc(), SB_OK, "the status of the next one");
  expect_is(slot, (LAST - 2) * SB_CHUNK_UNITS, "the run at the end of the broker");
}
/* A run that would go on behind the last chunk is none. */
static void a_run_behind_the_end(void) {
  begin();
  set_chunk(LAST - 1, SB_CHUNK_RUN, 0, RUN);
  set_header((LAST - 1) * SB_CHUNK_UNITS, SB_SLOT_FREE, 0);
  expect_is(alloc(), SB_NO_MEMORY, "the status");
  expect_is(sb_slot_state(header_of((LAST - 1) * SB_CHUNK_UNITS)), SB_SLOT_FREE, "the state of its slot");
}
static void make_it_longer(void) { set_chunk(40, SB_CHUNK_RUN, 0, RUN + 1); }
static void make_it_free(void) { set_chunk(40, SB_CHUNK_DRAINING, 0, RUN); }
/* What it is when it was taken decides. */
static void a_run_that_changes(void) {
  void (*const changes[])(void) = {make_it_longer, make_it_free};
  for (unsigned i = 0; i < 2; i++) {
    begin();
    set_chunk(40, SB_CHUNK_RUN, 0, RUN);
    set_header(40 * SB_CHUNK_UNITS, SB_SLOT_FREE, 0);
    meanwhile(sb_slot_header(t.b, 40 * SB_CHUNK_UNITS), BEFORE_CAS, 1, changes[i]);
    sb_status status = alloc();
    if (has_acted()) expect(status != SB_OK, "%u: a run of another length was taken", i);
  }
}
static void free_chunks_become_a_run(void) {
  begin();
  for (uint32_t i = 30; i < 33; i++) {
    set_chunk(i, SB_CHUNK_CLASS, FOUR, 0);
    fill_chunk(i, SB_SLOT_FREE, 0);
  }
  expect_is(alloc(), SB_OK, "the status");
  expect_run(30, "the run of chunks that were drained");
  begin();
  SB_STORE(&t.b->header->segments, 1u, SB_RELAXED);
  SB_STORE(&t.b->grow_again_ns, UINT64_MAX, SB_RELAXED);
  set_chunk(CHUNKS_PER_SEGMENT, SB_CHUNK_CLASS, FOUR, 0);
  fill_chunk(CHUNKS_PER_SEGMENT, SB_SLOT_FREE, 0);
  expect_is(alloc(), SB_NO_MEMORY, "the status of a broker that does not grow now");
  expect_is(sb_chunk_state(chunk_word(CHUNKS_PER_SEGMENT)), SB_CHUNK_CLASS, "the state of the chunk behind the last");
}

/* ---- what never fits ---- */

/* Chunks of nodes are kept; this many are not. */
static void begin_kept(uint32_t others) {
  begin();
  set_chunks(0, BROKER_CHUNKS - others, SB_CHUNK_CLASS, NODES);
  set_chunk(0, SB_CHUNK_TAIL, 0, 0);
}
static void a_run_that_never_fits(void) {
  const uint64_t usable[] = {sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 0), sb_chunk_word(SB_CHUNK_CLASS, 0, LONGEST, 0),
                             sb_chunk_word(SB_CHUNK_DRAINING, 0, NODES, 0),
                             sb_chunk_word(SB_CHUNK_CLASS, 0, LEAVES, 0)};
  begin_kept(RUN - 1);
  expect_is(alloc(), SB_TOO_LARGE, "the status beside nodes");
  for (unsigned i = 0; i < 4; i++) {
    begin_kept(RUN);
    SB_STORE(&t.b->chunks[LAST], usable[i], SB_RELAXED);
    fill_chunk(LAST, i == 3 ? SB_SLOT_FREE : SB_SLOT_ALLOC, i == 3 ? 0 : ANOTHER);
    expect_is(alloc(), SB_NO_MEMORY, "the status when others go");
  }
  fill_chunk(LAST, SB_SLOT_ALLOC, ANOTHER);
  expect_is(alloc(), SB_TOO_LARGE, "the status beside a leaf");
  begin_kept(RUN + SB_RESERVE_LEAST - 1);
  t.c->use = SB_USE_PLAIN;
  expect_is(alloc(), SB_TOO_LARGE, "the status of a plain put, which leaves the reserve");
}

static const test_case CASES[] = {
    {"slab_runs: claimed", "a run is announced, claimed, populated and held", a_run_is_claimed},
    {"slab_runs: claims", "the chunks of a run are claimed until it is complete", claims_of_a_run},
    {"slab_runs: bytes", "a run has as many chunks as its bytes need", bytes_of_a_run},
    {"slab_runs: fits", "a run needs chunks in a row, without the first one", where_a_run_fits},
    {"slab_runs: grows", "a broker that may grow is used from its beginning", a_run_in_a_broker_that_grows},
    {"slab_runs: unmapped", "a run that is not mapped is not taken", a_run_that_is_not_mapped},
    {"slab_runs: race", "a claim that fails is taken back", another_one_claims_a_chunk},
    {"slab_runs: reserve", "a run of a plain put leaves the reserve", the_reserve_is_left},
    {"slab_runs: freed", "a run that is free is taken as it is", a_free_run_is_taken},
    {"slab_runs: end", "a run ends before the last chunk does", a_run_behind_the_end},
    {"slab_runs: changed", "a run that became another one is not taken", a_run_that_changes},
    {"slab_runs: drained", "free chunks of slots become a run", free_chunks_become_a_run},
    {"slab_runs: never", "a run that never fits is refused", a_run_that_never_fits},
};
SUBJECT(CASES)
