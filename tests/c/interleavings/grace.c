// SPDX-License-Identifier: Apache-2.0
/* Cases of memory of structures that becomes memory of bodies, inside the calls of other actors. */
#include <stdio.h>
#include <string.h>

#include "cases.h"
#include "chunks.h"
#include "plan.h"
#include "sb_slab.h"

#define PAGES 128u /* messages that fill two leaves */
static uint32_t taken, level;
static uint8_t was[SB_CHUNK_BYTES];

static void clear(void) {
  if (taken != 0) sb_slab_free_now(t.b, taken);
  if (level != 0) sb_slab_free_now(t.b, level);
  taken = level = 0;
  empty();
}
static void expect_body(void) {
  bool whole = body == 0 || memcmp(was, sb_slot_at(t.b, body), sizeof was) == 0;
  expect(whole, "a body was written into");
}
static void reclaim_and_fill(void) {
  sb_page_sweep(keeper.c, &keeper.q->lanes[0].ring);
  reclaim();
  if (body == 0 && take_body()) memcpy(was, sb_slot_at(t.b, body), sizeof was);
}

/* All messages of two leaves were acknowledged but the last. The chunk of their bodies stays what it is. There is memory
 * for consumers, so that pages may take the last chunk (sb_reserve.h). */
static void come_to_the_last(void) {
  uint64_t gen;
  (void)sb_slab_alloc(three.c, class_of(SB_KIND_CONSUMER_LEVEL), SB_TOKEN_BOOT, &level, &gen);
  pin_short_bodies();
  for (unsigned i = 0; i < PAGES; i++) put_small_by(&one, 1);
  for (unsigned i = 0; i + 1 < PAGES; i++) (void)take(&one);
  (void)get(&t, two.q, held_a, false);
  fill_all();
}

/* Who settles the last one has finished the cell, and writes into its page once more: that is freed by a sweep meanwhile. */
static void settled_last(void) {
  come_to_the_last();
  expect(chunks_of(SB_KIND_LEAF) == 1, "%d chunks have leaves", chunks_of(SB_KIND_LEAF));
  meanwhile(ANYWHERE, reclaim_and_fill);
  (void)sb_queue_settle(two.q, held_a, SB_ACK);
  afterwards();
  expect_body();
  reclaim_and_fill();
  expect(body != 0, "the memory of the leaves did not come back");
  clear();
}

static void take_leaf(void) {
  uint64_t gen;
  if (sb_slab_alloc(three.c, class_of(SB_KIND_LEAF), SB_TOKEN_BOOT, &taken, &gen) != SB_OK) {
    taken = 0;
  } else {
    expect(sb_slab_object(t.b, taken, SB_KIND_LEAF) != NULL, "slot %d is no leaf", (int)taken);
  }
}

/* A leaf is needed while the chunk of leaves is being drained, and there is no other memory. */
static void needed_at(const char *step) {
  come_to_the_last();
  (void)sb_queue_settle(two.q, held_a, SB_ACK);
  sb_page_sweep(keeper.c, &keeper.q->lanes[0].ring);
  (void)sb_housekeeper_reclaim(keeper.c);
  meanwhile(step, take_leaf);
  (void)sb_housekeeper_reclaim(keeper.c);
  afterwards();
  reclaim();
  if (taken != 0)
    expect(sb_slab_object(t.b, taken, SB_KIND_LEAF) != NULL, "at %s: the chunk of slot %d has another kind", step,
           (int)taken);
  else
    take_leaf(); /* between two steps of the one who drains it there is none */
  expect(taken != 0, "at %s: there is no leaf", step);
  clear();
}
static void needed_when_taken(void) { needed_at("drained.slots_taken"); }
static void needed_when_begun(void) { needed_at("drained.begun"); }
static void needed_when_asked(void) { needed_at("grace.asked"); }
static void needed_before_end(void) { needed_at("drained.floors"); }
static void needed_at_end(void) { needed_at("drained.claimed"); }

/* The chunk is given back for one who needs a leaf; another one who needs one finds its slots before it is of its class again. */
static void take_over(void) {
  uint32_t slot;
  uint64_t gen;
  expect(sb_slab_alloc(one.c, class_of(SB_KIND_LEAF), SB_TOKEN_BOOT, &slot, &gen) == SB_OK, "there is no leaf");
  sb_slab_free_now(t.b, slot);
}
/* It has hints of others that are free from now on: the first word of hints may have had no more than one. */
static void learn_of_leaves(void) {
  uint32_t leaves[64], count = 0;
  do {
    take_leaf();
    expect(taken != 0, "there is no leaf");
    if (taken != 0) leaves[count++] = taken;
  } while (taken != 0 && count < 64 && three.c->cache[class_of(SB_KIND_LEAF)].mask == 0);
  expect(three.c->cache[class_of(SB_KIND_LEAF)].mask != 0, "it knows of no other leaf");
  while (count > 0) sb_slab_free_now(t.b, leaves[--count]);
  taken = 0;
}
static void taken_over(void) {
  come_to_the_last();
  learn_of_leaves();
  (void)sb_queue_settle(two.q, held_a, SB_ACK);
  sb_page_sweep(keeper.c, &keeper.q->lanes[0].ring);
  sb_lock(two.c); /* it is inside: the chunk stays drained */
  reclaim();
  expect(chunks_of(SB_KIND_LEAF) == 0, "%d chunks have leaves", chunks_of(SB_KIND_LEAF));
  meanwhile("drained.freed", take_leaf);
  take_over();
  afterwards();
  sb_unlock(two.c);
  if (taken == 0) take_leaf();
  expect(taken != 0 && sb_slab_object(t.b, taken, SB_KIND_LEAF) != NULL, "slot %d is no leaf", (int)taken);
  clear();
}

/* What a handle remembers of a page is forgotten by the call that enters after the page was drained. */
static void pages_forgotten(void) {
  come_to_the_last();
  (void)sb_queue_settle(two.q, held_a, SB_ACK);
  expect(one.q->lanes[0].tail_leaf.leaf != NULL, "nothing is remembered");
  reclaim();
  (void)take(&one);
  expect(chunks_of(SB_KIND_LEAF) == 0, "%d chunks have leaves", chunks_of(SB_KIND_LEAF));
  expect(one.q->lanes[0].tail_leaf.leaf == NULL, "a page that was drained is remembered");
  clear();
}

/* The drainer ends while another connection is inside: the chunk is of its class again. */
static void give_up(void) {
  sb_connection *leaver = connect_to(&t);
  sb_page_sweep(keeper.c, &keeper.q->lanes[0].ring);
  for (int i = 0; i < 2; i++) (void)sb_housekeeper_reclaim(leaver);
  (void)sb_connection_close(leaver);
  expect(sb_connection_release(leaver), "the connection stays");
  sb_connection_free(leaver);
}
static void given_up(void) {
  come_to_the_last();
  for (unsigned i = 0; i < 3; i++) free_one(); /* it needs a little memory itself */
  while (sb_chunk_drain_any(keeper.c, SB_TOKEN_BOOT)) {
  }
  meanwhile("ring.tombstone", give_up);
  (void)sb_queue_settle(two.q, held_a, SB_ACK);
  afterwards();
  expect(chunks_of(SB_KIND_LEAF) == 1, "%d chunks have leaves", chunks_of(SB_KIND_LEAF));
  take_leaf();
  expect(taken != 0, "there is no leaf");
  clear();
}

/* A queue that is made where another one was begins behind it: no position, and no state, comes again. */
static uint32_t place_of(const char *name) {
  uint32_t slot = 0;
  if (declare(&t, name, (sb_settings)FREELY) != SB_OK ||
      sb_queue_find(keeper.c, name, (uint32_t)strlen(name), &slot) != SB_OK)
    die("declare", 0);
  return slot;
}
static void remove_queue(const char *name) {
  int32_t holder;
  uint64_t removed;
  sb_queue *gone = open_queue(&t, name);
  (void)sb_queue_delete(gone, false, false, FOREVER, &holder, &removed);
  (void)sb_queue_close(gone);
}
static void goes_on(void) {
  enum { QUEUES = 2800 }; /* more than a chunk has */
  static uint64_t states[SB_CHUNK_UNITS], bases[SB_CHUNK_UNITS];
  uint32_t last = 0, before = 0, compared = 0;
  char name[16];
  t.c = keeper.c;
  for (unsigned life = 0; life < 2; life++) {
    for (unsigned i = 0; i < QUEUES; i++) {
      snprintf(name, sizeof name, "n%u", i);
      uint32_t slot = place_of(name), unit = slot % SB_CHUNK_UNITS;
      const sb_queue_shm *shm = sb_slot_at(t.b, slot);
      last = slot / SB_CHUNK_UNITS;
      if (life == 1 && last == before) {
        compared++;
        expect(SB_LOAD(&shm->state, SB_SEQ_CST) > states[unit], "a queue has the state of an earlier one");
        expect(SB_LOAD(&shm->base, SB_SEQ_CST) >= bases[unit], "positions begin anew");
      }
      if (life == 0) {
        states[unit] = SB_LOAD(&shm->state, SB_SEQ_CST);
        t.c = one.c;
        sb_queue *used = open_queue(&t, name);
        put_small_by(&(actor){one.c, used}, 1);
        (void)get(&t, used, buffer, true);
        (void)sb_queue_close(used);
        t.c = keeper.c;
        bases[unit] = SB_LOAD(&shm->base, SB_SEQ_CST) + 1;
      }
    }
    before = last;
    for (unsigned i = 0; i < QUEUES; i++) {
      snprintf(name, sizeof name, "n%u", i);
      remove_queue(name);
    }
    for (int i = 0; i < 2; i++) (void)sb_housekeeper_sweep(keeper.c, FOREVER);
    reclaim();
    expect(chunks_of(SB_KIND_QUEUE) == 1, "%d chunks have queues", chunks_of(SB_KIND_QUEUE));
    fill_all(); /* with what is not zero */
    write_into_fillers(0xff);
    empty();
    block_up_to(before); /* it is the next one to be opened */
  }
  block_up_to(0);
  expect(compared > 0, "no queue was made where another one was");
}

/* A chunk that is drained counts as one of structures until bodies can have it. */
static uint64_t kept_for_structures(void) {
  sb_broker_facts facts;
  sb_broker_describe(t.b, &facts, true);
  return facts.memory_structures;
}
static void counted(void) {
  come_to_the_last();
  (void)sb_queue_settle(two.q, held_a, SB_ACK);
  sb_page_sweep(keeper.c, &keeper.q->lanes[0].ring);
  uint64_t before = kept_for_structures();
  sb_lock(two.c);
  reclaim();
  expect(chunks_of(SB_KIND_LEAF) == 0, "%d chunks have leaves", chunks_of(SB_KIND_LEAF));
  expect(kept_for_structures() == before, "%d bytes that somebody may know count as bodies",
         (int)(before - kept_for_structures()));
  sb_unlock(two.c);
  reclaim();
  expect(take_body(), "the memory of the leaves did not come back");
  expect(kept_for_structures() < before, "it still counts as structures");
  clear();
}

/* Structures of a few kinds come in such numbers that each opens a chunk, beside bodies. The bodies go, and all the structures
 * but one of each new chunk; those of the round before go too. */
static const unsigned KINDS[] = {SB_KIND_QUEUE, SB_KIND_LEDGER, SB_KIND_LEAF, SB_KIND_INNER};
#define KIND_COUNT (sizeof KINDS / sizeof KINDS[0])
static void come_and_go(uint32_t *stays) {
  enum { BODIES = 9 };
  uint32_t bodies[BODIES], fresh[KIND_COUNT];
  for (unsigned i = 0; i < BODIES; i++) expect(take_chunk(&keeper, &bodies[i]), "no memory for body %u", i);
  for (unsigned k = 0; k < KIND_COUNT; k++) fresh[k] = hold_up_to_a_new_chunk(KINDS[k]);
  give_held();
  for (unsigned k = 0; k < KIND_COUNT; k++) {
    if (stays[k] != 0) sb_slab_free_now(t.b, stays[k]);
    stays[k] = fresh[k];
  }
  for (unsigned i = 0; i < BODIES; i++) sb_slab_free_now(t.b, bodies[i]);
  reclaim();
}
static uint32_t longest_run(void) {
  uint32_t longest = 0, run = 0;
  while (sb_chunk_drain_any(keeper.c, SB_TOKEN_BOOT)) {
  }
  for (uint32_t i = 0; i < sb_chunk_count(t.b); i++) {
    run = sb_chunk_state(SB_LOAD(&t.b->chunks[i], SB_SEQ_CST)) == SB_CHUNK_FREE ? run + 1 : 0;
    if (run > longest) longest = run;
  }
  return longest;
}
static void runs_stay_long(void) {
  enum { ROUNDS = 12 };
  uint32_t stays[KIND_COUNT] = {0};
  while (grow(t.b, t.path)) {
  }
  for (unsigned round = 0; round < ROUNDS; round++) {
    come_and_go(stays);
    uint32_t longest = longest_run(), spare = sb_chunk_spare(t.b);
    expect(longest + KIND_COUNT >= spare, "in round %u %u chunks are free, and %u of them in a row", round, spare,
           longest);
  }
  for (unsigned k = 0; k < KIND_COUNT; k++) sb_slab_free_now(t.b, stays[k]);
}

static const test_case CASES[] = {
    {"grace, settled", "who is inside writes into no body", {{-1, -1, -1, 0, -1, -1}, 0}, settled_last},
    {"grace, taken",
     "a slot of a chunk that is drained is got whole, or not",
     {{-1, -1, -1, 0, -1, -1}, 0},
     needed_when_taken},
    {"grace, begun", "a slot of a drained chunk is got whole, or not", {{-1, -1, -1, 0, -1, -1}, 0}, needed_when_begun},
    {"grace, asked", "the same when all others are outside", {{-1, -1, -1, 0, -1, -1}, 0}, needed_when_asked},
    {"grace, before the end", "the same when the floors are raised", {{-1, -1, -1, 0, -1, -1}, 0}, needed_before_end},
    {"grace, end", "the same when the chunk is nearly free", {{-1, -1, -1, 0, -1, -1}, 0}, needed_at_end},
    {"grace, taken over",
     "who comes while a chunk is given back gets a slot whole, or not",
     {{-1, -1, -1, 0, -1, -1}, 0},
     taken_over},
    {"grace, forgotten", "a handle forgets pages that were drained", {{-1, -1, -1, 0, -1, -1}, 0}, pages_forgotten},
    {"grace, given up",
     "what was drained is of its class again when its drainer goes",
     {{-1, -1, -1, 0, -1, -1}, 0},
     given_up},
    {"grace, counted", "what is drained counts as structures", {{-1, -1, -1, 0, -1, -1}, 0}, counted},
    {"grace, runs", "chunks that are free stay side by side", {{-1, -1, -1, 0, -1, -1}, 0}, runs_stay_long},
    {"grace, goes on",
     "states and positions go on behind those of an earlier life",
     {{-1, -1, -1, 0, -1, -1}, 0},
     goes_on},
};
const subject GRACE_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
