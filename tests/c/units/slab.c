// SPDX-License-Identifier: Apache-2.0
/* sb_slab: slots that are taken: by hints that the connection has, by hints that it finds, and by a sweep. All chunks
 * are in use except those that a case creates. Runs of chunks: slab_runs.c. */
#include <string.h>
#include <sys/mman.h>

#include "calls.h"
#include "meanwhile.h"
#include "sb_holdings.h"
#include "sb_reserve.h"
#include "slabs.h"
#include "system.h"

#define NODES (SB_MESSAGE_CLASSES + SB_KIND_NODE)
#define FIRST (CHUNK * SB_CHUNK_UNITS)
#define SWEEP_INTERVAL UINT64_C(50000000)
#define SLOTS (SB_CHUNK_UNITS / 4)

static uint64_t token, gen;
static uint32_t slot;

static void begin(void) {
  begin_slab();
  set_chunks(0, BROKER_CHUNKS, SB_CHUNK_TAIL, 0);
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  t.c->use = SB_USE_DRAIN;
  answer_for_the_system();
}
static bool take(unsigned cls) { return sb_slab_alloc_spare(t.c, cls, false, token, &slot, &gen); }
/* The connection took the hint of one slot. */
static void cache(unsigned cls, uint32_t index) {
  t.c->cache[cls] = (sb_slab_cache){UINT64_C(1) << index % 64, CHUNK, index / 64};
}
static void expect_taken(uint32_t at, const char *what) {
  expect_is(slot, at, what);
  expect_is(gen, GEN, "its generation");
  expect_is(header_of(at), sb_slot_word(SB_SLOT_ALLOC, t.c->id, GEN), "its header");
  const sb_holding_shm *h = sb_holding_at(t.b, token);
  expect_is(h->what, sb_holding_what(SB_HOLD_SLOT, at, GEN), "the holding");
  expect_is(h->where, 0, "where it is");
}

/* ---- hints that the connection has ---- */

static void hinted_slots_are_taken(void) {
  begin();
  open_chunk(FOUR);
  t.c->cache[FOUR] = (sb_slab_cache){5, CHUNK, 1};
  expect(take(FOUR), "the first slot was not taken");
  expect_taken(FIRST + 4 * 64, "the first slot");
  expect_is(t.c->cache[FOUR].mask, 4, "the hints that are left");
  expect(take(FOUR), "the second slot was not taken");
  expect_taken(FIRST + 4 * 66, "the second slot");
  expect_is(t.c->cache[FOUR].mask, 0, "the hints that are left");
  expect(!take(FOUR), "there is a third slot");
}
static void a_hint_that_is_wrong(void) {
  begin();
  open_chunk(FOUR);
  set_header(SLOT, SB_SLOT_PUBLISHED, 1);
  t.c->cache[FOUR] = (sb_slab_cache){3u << 6, CHUNK, 1};
  expect(take(FOUR), "the slot beside one in use was not taken");
  expect_taken(SLOT + 4, "the slot");
  expect_is(header_of(SLOT), sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN), "the header of the one in use");
}
/* Words of hints are longer than a chunk of few slots. */
static void hints_behind_the_last_slot(void) {
  unsigned few = sb_class_for(t.b, 224 * SB_UNIT); /* 36 slots */
  begin();
  open_chunk(few);
  cache(few, 36);
  expect(!take(few), "a slot was taken behind the last");
  expect_is(header_of(FIRST + 36 * 224), sb_slot_word(SB_SLOT_FREE, 0, GEN), "the header behind the last slot");
  cache(few, 35);
  expect(take(few), "the last slot was not taken");
  expect_taken(FIRST + 35 * 224, "the last slot");
}
/* Nor are their pages read: those behind the chunk may not be mapped. */
static void the_pages_of_damaged_hints(void) {
  unsigned five = sb_class_for(t.b, 5 * SB_UNIT); /* 1638 slots */
  uint32_t last = SB_CHUNK_UNITS / 5 - 1;
  begin();
  open_chunk(five);
  sb_chunk_hint_set(t.b, five, CHUNK, last / 64, ~UINT64_C(0) << (last % 64));
  uint8_t *behind = t.b->arena + (CHUNK + 1) * SB_CHUNK_BYTES;
  if (mprotect(behind, SB_CHUNK_BYTES, PROT_NONE) != 0) die("mprotect", 0);
  expect(take(five), "the last slot was not taken");
  expect_taken(FIRST + 5 * last, "the last slot");
  expect(!take(five), "a slot was taken behind the last");
  if (mprotect(behind, SB_CHUNK_BYTES, PROT_READ | PROT_WRITE) != 0) die("mprotect", 0);
}
static void another_one_takes_it(void) { set_header(SLOT, SB_SLOT_ALLOC, ANOTHER); }
static void another_one_is_faster(void) {
  begin();
  open_chunk(FOUR);
  cache(FOUR, 70);
  meanwhile(sb_slot_header(t.b, SLOT), BEFORE_CAS, 1, another_one_takes_it);
  bool took = take(FOUR);
  expect(!has_acted() || !took, "the slot of another connection was taken");
  if (has_steps()) expect_is(header_of(SLOT), sb_slot_word(SB_SLOT_ALLOC, ANOTHER, GEN), "the header");
}
/* Another connection that fills the chunk in stores over the header of a slot that was taken by an old hint (I14). */
static void another_one_fills_it(void) { set_header(SLOT, SB_SLOT_FREE, 0); }
static void a_chunk_that_is_filled_in(void) {
  begin();
  open_chunk(FOUR);
  cache(FOUR, 70);
  meanwhile(&t.b->chunks[CHUNK], AFTER_LOAD, 1, another_one_fills_it);
  bool took = take(FOUR);
  expect(!has_acted() || !took, "a slot was taken whose header was stored over");
}
/* A slot that was taken by a hint of another chunk is freed again. */
static void hints_of_another_chunk(void) {
  const struct {
    unsigned state, cls, wanted;
    bool taken;
  } k[] = {{SB_CHUNK_DRAINING, FOUR, FOUR, true},      {SB_CHUNK_DRAINING, LONGEST, LONGEST, true},
           {SB_CHUNK_CLASS, NODES, NODES, true},       {SB_CHUNK_DRAINING, NODES, NODES, false},
           {SB_CHUNK_CLASS, FOUR + 1, FOUR, false},    {SB_CHUNK_DRAINING, FOUR + 1, FOUR, false},
           {SB_CHUNK_FREE, FOUR, FOUR, false},         {SB_CHUNK_RUN, FOUR, FOUR, false},
           {SB_CHUNK_CLAIMED, LONGEST, LONGEST, false}};
  for (unsigned i = 0; i < sizeof k / sizeof k[0]; i++) {
    begin();
    open_chunk(k[i].wanted);
    set_chunk(CHUNK, k[i].state, k[i].cls, 0);
    cache(k[i].wanted, 0);
    expect(take(k[i].wanted) == k[i].taken, "%u: the slot was %s", i, k[i].taken ? "not taken" : "taken");
    expect_is(header_of(FIRST),
              k[i].taken ? sb_slot_word(SB_SLOT_ALLOC, t.c->id, GEN) : sb_slot_word(SB_SLOT_FREE, 0, GEN + 1),
              "the header");
  }
}

/* ---- sweeps ---- */

static bool sweep(void) { return sb_slab_alloc_spare(t.c, FOUR, true, token, &slot, &gen); }
static void fill_but(uint32_t index) { set_header(FIRST + 4 * index, SB_SLOT_FREE, 0); }
static void begin_sweep(void) {
  begin();
  open_chunk(FOUR);
  fill_chunk(CHUNK, SB_SLOT_ALLOC, ANOTHER);
}
static void a_sweep_finds_what_hints_lost(void) {
  begin_sweep();
  fill_but(5);
  fill_but(70);
  fill_but(SLOTS - 1);
  set_header(FIRST + 4 * 9 + 1, SB_SLOT_FREE, 0); /* in the middle of a slot */
  expect(!take(FOUR), "a slot was taken that no hint leads to");
  expect(sweep(), "no slot was found");
  expect_taken(FIRST + 4 * 5, "the slot");
  expect_is(t.c->swept_ns[FOUR], 0, "when it was swept in vain");
  for (uint32_t w = 0; w < SB_CHUNK_UNITS / 64; w++) {
    expect_is(hints(w), w == 1 ? 64 : w == SLOTS / 64 - 1 ? UINT64_C(1) << 63 : 0, "the hints of a word");
  }
  expect(take(FOUR) && take(FOUR) && !take(FOUR), "the hints do not lead to the two others");
}
static void sweeps_are_seldom(void) {
  begin_sweep();
  expect(!sweep(), "a slot of a full chunk was found");
  expect_is(t.c->swept_ns[FOUR], says.now_ns, "when it was swept in vain");
  fill_but(SLOTS - 1);
  says.now_ns += SWEEP_INTERVAL - 1;
  expect(!sweep(), "it was swept again soon");
  says.now_ns++;
  expect(sweep(), "it was not swept again");
  expect_taken(FIRST + 4 * (SLOTS - 1), "the last slot");
}
/* What is passed by keeps its headers, and gets no hints. */
static void chunks_that_are_not_swept(void) {
  const uint64_t words[] = {sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR + 1, 0), sb_chunk_word(SB_CHUNK_DRAINING, 0, FOUR, 0),
                            sb_chunk_word(SB_CHUNK_FREE, 0, FOUR, 0)};
  for (unsigned i = 0; i < 3; i++) {
    begin();
    open_chunk(FOUR);
    SB_STORE(&t.b->chunks[CHUNK], words[i], SB_RELAXED);
    t.c->swept_ns[FOUR] = 0;
    expect(!sweep(), "%u: a slot of another chunk was found", i);
    expect_is(hints(0) | hints(1), 0, "the hints of another chunk");
    expect_is(header_of(FIRST), sb_slot_word(SB_SLOT_FREE, 0, GEN), "the header of a slot of another chunk");
  }
  begin();
  open_chunk(FOUR);
  SB_STORE(&t.b->mapped_chunks, CHUNK, SB_RELAXED);
  t.c->swept_ns[FOUR] = 0;
  expect(!sweep(), "a slot was found in a chunk that is not mapped");
  SB_STORE(&t.b->mapped_chunks, BROKER_CHUNKS, SB_RELAXED);
  begin();
  SB_STORE(&t.b->header->segments, 1u, SB_RELAXED);
  set_chunk(CHUNKS_PER_SEGMENT, SB_CHUNK_CLASS, FOUR, 0);
  fill_chunk(CHUNKS_PER_SEGMENT, SB_SLOT_FREE, 0);
  t.c->swept_ns[FOUR] = 0;
  expect(!sweep(), "a slot was found behind the last chunk");
}
/* Staging and plain puts take no slot of the reserve, but they hint at it. */
static void a_sweep_of_the_reserve(void) {
  const unsigned uses[] = {SB_USE_PLAIN, SB_USE_STAGE, SB_USE_BOOKS, SB_USE_DRAIN};
  for (unsigned i = 0; i < 4; i++) {
    begin_sweep();
    fill_but(70);
    SB_STORE(&t.b->chunks[CHUNK], sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 0) | SB_CHUNK_OF_RESERVE, SB_RELAXED);
    t.c->swept_ns[FOUR] = 0;
    t.c->use = uses[i];
    bool ours = uses[i] < SB_USE_STAGE;
    expect(sweep() == ours, "use %u: the slot was %s", uses[i], ours ? "not found" : "found");
    expect_is(hints(1), ours ? 0 : 64, "the hints");
  }
  begin_sweep();
  fill_but(70);
  t.c->use = SB_USE_PLAIN;
  expect(sweep(), "a plain put found no slot of a chunk that is none of the reserve");
}
static void another_one_takes_70(void) { set_header(SLOT, SB_SLOT_ALLOC, ANOTHER); }
static void another_one_is_faster_than_a_sweep(void) {
  begin_sweep();
  fill_but(70);
  fill_but(71);
  meanwhile(sb_slot_header(t.b, SLOT), BEFORE_CAS, 1, another_one_takes_70);
  expect(sweep(), "no slot was found");
  if (has_acted()) {
    expect_taken(SLOT + 4, "the next slot");
    expect_is(hints(1), 64, "the hint of the slot that another one took");
  }
}

/* ---- what an allocation tries, one after the other ---- */

static sb_status alloc(void) { return sb_slab_alloc(t.c, FOUR, token, &slot, &gen); }
static void begin_full(void) {
  begin_sweep();
  t.c->swept_ns[FOUR] = 0;
}
static void freed_slots_come_first(void) {
  for (unsigned spare = 0; spare < 2; spare++) {
    begin_full();
    set_chunk(30, SB_CHUNK_FREE, 0, 0);
    fill_but(70);
    t.c->freed = (sb_slab_cache){64, CHUNK, 1};
    t.c->freed_class = FOUR;
    expect(spare != 0 ? take(FOUR) : alloc() == SB_OK, "no slot was taken");
    expect_taken(SLOT, "the slot that was freed last");
    expect_is(chunk_word(30), sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0), "the chunk that is not needed");
  }
}
static void a_chunk_is_opened(void) {
  begin_full();
  set_chunk(30, SB_CHUNK_FREE, 0, 0);
  expect_is(alloc(), SB_OK, "the status");
  expect_is(slot, 30 * SB_CHUNK_UNITS, "the slot");
  expect_is(sb_chunk_state(chunk_word(30)), SB_CHUNK_CLASS, "the state of the chunk");
}
static void a_broker_that_may_grow(void) {
  begin_full();
  SB_STORE(&t.b->header->segments, 2u, SB_RELAXED);
  fill_but(70);
  expect_is(alloc(), SB_GROW, "the status");
}
static void a_chunk_is_drained(void) {
  begin_full();
  set_chunk(30, SB_CHUNK_CLASS, FOUR + 1, 0);
  fill_chunk(30, SB_SLOT_FREE, 0);
  expect_is(alloc(), SB_OK, "the status");
  expect_is(slot, 30 * SB_CHUNK_UNITS, "the slot");
  expect_is(sb_chunk_class(chunk_word(30)), FOUR, "the class of the chunk");
}
static void the_last_slot_of_all(void) {
  begin_full();
  fill_but(70);
  expect_is(alloc(), SB_OK, "the status");
  expect_taken(SLOT, "the slot");
  expect_is(alloc(), SB_NO_MEMORY, "the status when nothing is left");
}

static void begin_with_the_reserve(void) {
  begin();
  set_chunks(30, 30 + sb_reserve_chunks(t.b), SB_CHUNK_FREE, 0);
  t.c->use = SB_USE_PLAIN;
}
static sb_status alloc_node(void) { return sb_slab_alloc(t.c, NODES, token, &slot, &gen); }
/* A plain put opens a chunk of the reserve for the first structure of a kind, and for no second one. */
static void the_first_structure_of_a_kind(void) {
  begin_with_the_reserve();
  expect_is(alloc(), SB_NO_MEMORY, "the status of a body");
  expect_is(alloc_node(), SB_OK, "the status of the first structure");
  expect_is(slot, 30 * SB_CHUNK_UNITS, "its slot");
  expect_is(chunk_word(30), sb_chunk_word(SB_CHUNK_CLASS, 0, NODES, 0), "its chunk, without the mark");
  expect_is(alloc_node(), SB_OK, "the status of the second structure");
  expect_is(slot / SB_CHUNK_UNITS, 30, "the chunk of the second structure");
  fill_chunk(30, SB_SLOT_ALLOC, ANOTHER);
  t.c->cache[NODES].mask = 0;
  expect_is(alloc_node(), SB_NO_MEMORY, "the status when that chunk is full");
  expect_is(sb_chunk_spare(t.b), sb_reserve_chunks(t.b) - 1, "how many chunks are FREE");
}
/* As long as another chunk can be drained, the reserve stays whole. */
static void a_chunk_is_drained_before_the_reserve(void) {
  begin_with_the_reserve();
  open_chunk(FOUR);
  expect_is(alloc_node(), SB_OK, "the status");
  expect_is(sb_chunk_spare(t.b), sb_reserve_chunks(t.b), "how many chunks are FREE");
}
static void the_last_chunk_is_not_lent(void) {
  begin_with_the_reserve();
  set_chunks(31, BROKER_CHUNKS, SB_CHUNK_TAIL, 0);
  expect_is(alloc_node(), SB_NO_MEMORY, "the status with one chunk left");
  set_chunk(31, SB_CHUNK_FREE, 0, 0);
  expect_is(alloc_node(), SB_OK, "the status with two chunks left");
}

/* Staging opens a chunk of the reserve only if no memory is left that a plain put may take. */
static void begin_to_stage(void) {
  begin_with_the_reserve();
  t.c->use = SB_USE_STAGE;
  t.c->swept_ns[FOUR] = 0;
}
static void open_empty_chunk(uint32_t chunk) {
  set_chunk(chunk, SB_CHUNK_CLASS, FOUR + 1, 0);
  fill_chunk(chunk, SB_SLOT_FREE, 0);
}
static void expect_spare(uint32_t wanted) {
  expect_is(sb_chunk_spare(t.b), wanted, "how many chunks are FREE");
  expect_is(t.c->use, SB_USE_STAGE, "the use");
}
static void staging_drains_before_the_reserve(void) {
  begin_to_stage();
  open_empty_chunk(40);
  expect_is(alloc(), SB_OK, "the status");
  expect_is(chunk_word(slot / SB_CHUNK_UNITS), sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 0), "its chunk, unmarked");
  expect_spare(sb_reserve_chunks(t.b));
}
static void staging_opens_the_reserve_last(void) {
  for (unsigned lately = 0; lately < 2; lately++) {
    begin_to_stage();
    if (lately != 0) { /* what was searched in vain is not searched again for 50 ms */
      open_empty_chunk(40);
      t.c->swept_ns[FOUR] = says.now_ns;
    }
    expect_is(alloc(), SB_OK, "the status");
    expect_is(chunk_word(slot / SB_CHUNK_UNITS), sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 0) | SB_CHUNK_OF_RESERVE,
              "its chunk, marked");
    expect_spare(sb_reserve_chunks(t.b) - 1);
  }
}
/* The mark of a chunk goes when empty chunks make the reserve whole again. */
static void staging_removes_a_mark(void) {
  begin_to_stage();
  open_chunk(FOUR);
  fill_chunk(CHUNK, SB_SLOT_ALLOC, ANOTHER);
  fill_but(70);
  SB_STORE(&t.b->chunks[CHUNK], chunk_word(CHUNK) | SB_CHUNK_OF_RESERVE, SB_RELAXED);
  sb_chunk_freed(t.b, SLOT);
  open_empty_chunk(40);
  expect_is(alloc(), SB_OK, "the status");
  expect_taken(SLOT, "the slot");
  expect_is(chunk_word(CHUNK), sb_chunk_word(SB_CHUNK_CLASS, 0, FOUR, 0), "its chunk, without the mark");
  expect_spare(sb_reserve_chunks(t.b) + 1);
}
static void staging_where_segments_can_be_added(void) {
  begin_to_stage();
  SB_STORE(&t.b->header->segments, 3u, SB_RELAXED);
  expect_is(alloc(), SB_GROW, "the status");
  expect_spare(sb_reserve_chunks(t.b));
}

/* A chain that leads into a circle, immediately or after some slots. */
static void chains_that_bite(void) {
  for (uint32_t before = 0; before < 5; before++) {
    for (uint32_t length = 1; length < 10; length++) {
      sb_chain k = {0};
      uint32_t steps = 0, slots = before + length;
      while (!sb_chain_bites(&k, 100 + (steps < slots ? steps : before + (steps - before) % length)) &&
             steps < 4 * slots)
        steps++;
      expect(steps >= slots && steps < 4 * slots, "a chain of %u and %u slots: %u steps", before, length, steps);
    }
  }
}

static const test_case CASES[] = {
    {"slab: chain", "a chain that bites its own tail has an end", chains_that_bite},
    {"slab: hinted", "slots are taken that the connection has hints of", hinted_slots_are_taken},
    {"slab: wrong", "the header decides, not the hint", a_hint_that_is_wrong},
    {"slab: behind", "no slot is taken behind the last one of a chunk", hints_behind_the_last_slot},
    {"slab: pages", "hints behind the last slot lead to no page", the_pages_of_damaged_hints},
    {"slab: faster", "a slot is taken by one connection", another_one_is_faster},
    {"slab: filled", "a slot whose header was stored over is not taken", a_chunk_that_is_filled_in},
    {"slab: other chunk", "a slot of another class is freed again", hints_of_another_chunk},
    {"slab: sweep", "a sweep takes one slot and hints at the others", a_sweep_finds_what_hints_lost},
    {"slab: seldom", "a sweep in vain is not repeated for 50 ms", sweeps_are_seldom},
    {"slab: not swept", "other chunks are not swept", chunks_that_are_not_swept},
    {"slab: reserve", "a sweep takes of the reserve for what makes room", a_sweep_of_the_reserve},
    {"slab: swept faster", "a sweep goes on when another connection takes the slot",
     another_one_is_faster_than_a_sweep},
    {"slab: freed", "slots that the connection freed come first", freed_slots_come_first},
    {"slab: opened", "a chunk is opened when no slot is hinted at", a_chunk_is_opened},
    {"slab: grow", "a broker grows before it is searched", a_broker_that_may_grow},
    {"slab: drained", "a free chunk of another class is used", a_chunk_is_drained},
    {"slab: last", "in a full broker the headers are searched", the_last_slot_of_all},
    {"slab: first kind", "a plain put has one chunk of the reserve for each structure", the_first_structure_of_a_kind},
    {"slab: drained first", "a chunk that is empty is drained before that", a_chunk_is_drained_before_the_reserve},
    {"slab: last chunk", "the last chunk is not lent", the_last_chunk_is_not_lent},
    {"slab: stage drains", "staging drains empty chunks before it opens the reserve",
     staging_drains_before_the_reserve},
    {"slab: stage last", "staging opens the reserve last", staging_opens_the_reserve_last},
    {"slab: stage unmarks", "staging removes the mark when the reserve is whole again", staging_removes_a_mark},
    {"slab: stage grows", "a broker grows before staging opens the reserve", staging_where_segments_can_be_added},
};
SUBJECT(CASES)
