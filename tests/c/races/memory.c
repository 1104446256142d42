// SPDX-License-Identifier: Apache-2.0
/* Scenarios of memory: claims of chunks, and of slots in them. */
#include "roles.h"
#include "sb_holdings.h"
#include "scenarios.h"

/* Of bytes that only one slot of a chunk holds: a class each. */
#define HALF (UINT64_C(1) << 20)

typedef struct {
  uint64_t token, gen;
  uint32_t slot; /* 0: none */
} taken;
static taken *taken_by(player *p) { return (taken *)(void *)p->first; }

/* ---- before ---- */

static uint64_t opener(void) {
  uint64_t token;
  sb_status status = sb_holding_take(me()->t.c, &token);
  if (status != SB_OK) die("sb_holding_take", (int)status);
  return token;
}
static void open_chunk(uint64_t bytes, unsigned use) {
  sb_connection *c = me()->t.c;
  uint64_t token = opener();
  c->use = use;
  bool opened = sb_chunk_claim_class(c, sb_class_for(c->b, bytes), token);
  c->use = SB_USE_DRAIN;
  sb_holding_give(c, token);
  scheduler_note(opened ? "opened" : "left-it");
}

static void drain_all(void) {
  act_as(KEEPER);
  uint64_t token = opener();
  while (sb_chunk_drain_any(me()->t.c, token)) {
  }
  sb_holding_give(me()->t.c, token);
}

/* Two see the last chunk that plain puts may open: the second one to claim finds another one that is FREE. */
static void one_beside_the_reserve(void) {
  sb_broker *b = players[KEEPER].t.b;
  drain_all();
  while (sb_chunk_spare(b) > sb_reserve_chunks(b) + 1) open_chunk(SB_CHUNK_BYTES, SB_USE_DRAIN);
}

/* The chunk that is opened for the next body. */
static uint32_t next_chunk(sb_broker *b) {
  bool growing = sb_chunk_may_grow(b);
  uint32_t chunk = growing ? 0 : b->chunk_limit - 1;
  while (sb_chunk_state(SB_LOAD(&b->chunks[chunk], SB_RELAXED)) != SB_CHUNK_FREE) chunk += growing ? 1 : UINT32_MAX;
  return chunk;
}

/* A chunk was given back by who had filled it in for pages; the first player knows of a slot of the class before that. */
static void once_filled_for_pages(void) {
  sb_broker *b = players[KEEPER].t.b;
  unsigned half = sb_class_for(b, HALF - 4096);
  uint32_t chunk = next_chunk(b);
  sb_word *header = &sb_chunk_meta(b, chunk)->headers[0];
  SB_STORE(header, sb_slot_word(SB_SLOT_FREE, 0, sb_slot_gen(SB_LOAD(header, SB_RELAXED)) + 1), SB_RELAXED);
  players[0].t.c->cache[half] = (sb_slab_cache){1, chunk, 0};
}
static void drained_and_filled(void) {
  drain_all();
  once_filled_for_pages();
}

/* The first player has put a message: its handle knows the page. */
static void first_remembers(void) {
  act_as(0);
  put_1();
  act_as(KEEPER);
}

/* ---- roles ---- */

static void take_half(void) {
  sb_connection *c = me()->t.c;
  taken *t = taken_by(me());
  t->token = opener();
  sb_status status = sb_slab_alloc(c, sb_class_for(c->b, HALF - 4096), t->token, &t->slot, &t->gen);
  if (status != SB_OK) t->slot = 0;
  scheduler_note(status == SB_OK ? "took" : "found-no-memory");
}
static void open_for_one(void) { open_chunk(HALF - 4096, SB_USE_PLAIN); }
static void open_for_another(void) { open_chunk(HALF + HALF / 2, SB_USE_PLAIN); }

/* Two unused words of the keeper's record stand for a chunk. */
static sb_word *draining(void) { return &players[KEEPER].t.c->shm->delivered; }
static sb_word *body(void) { return &players[KEEPER].t.c->shm->published; }

/* A call that may know the chunk: it remembers a page, or saw it in use. */
static void come_and_go(void) {
  sb_connection *c = me()->t.c;
  sb_lock(c);
  bool knows = me()->q->lanes[0].tail_leaf.leaf != NULL || SB_LOAD(draining(), SB_ACQUIRE) == 0;
  if (knows && SB_LOAD(body(), SB_ACQUIRE) != 0) complain("a call is inside that knows the chunk, and it is a body");
  sb_unlock(c);
  scheduler_note(knows ? "knew" : "knew-nothing");
}
static void come_twice(void) {
  come_and_go();
  come_and_go();
}
static void drain_it(void) {
  SB_STORE(draining(), 1, SB_SEQ_CST);
  bool waits = sb_gate_ask(&players[0].t.c->shm->gate);
  if (!waits) SB_STORE(body(), 1, SB_SEQ_CST);
  scheduler_note(waits ? "waits" : "drained");
}

/* ---- afterwards ---- */

static void the_reserve_is_whole(void) {
  sb_broker *b = players[KEEPER].t.b;
  if (sb_chunk_spare(b) < sb_reserve_chunks(b))
    complain("%u chunks are left of a reserve of %u", sb_chunk_spare(b), sb_reserve_chunks(b));
}
static void give_back(player *p) {
  taken *t = taken_by(p);
  if (t->slot == 0 || player_is_dead((unsigned)(p - players))) return;
  (void)sb_slab_free_gen(p->t.b, t->slot, t->gen);
  sb_holding_give(p->t.c, t->token);
}
static void each_has_its_own(void) {
  const taken *a = taken_by(&players[0]), *b = taken_by(&players[1]);
  if (a->slot != 0 && a->slot == b->slot && !scheduler_somebody_died()) complain("both have slot %u", a->slot);
  give_back(&players[0]);
  give_back(&players[1]);
}
/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
    {"two open a chunk", "puts leave the reserve, in whatever order they claim", FREELY, one_beside_the_reserve,
     {{"a", open_for_one, 0, "opened"}, {"b", open_for_another, 1, "left-it"}}, the_reserve_is_whole, KEEPS_ALL,
     .deep = true},
    {"take, open", "a slot whose chunk was given back, and is opened again, has one owner", FREELY, drained_and_filled,
     {{"open", take_half, 1, "took"}, {"take", take_half, 0, "took"}}, each_has_its_own, KEEPS_ALL, .deep = true},
    {"two enter, drain", "a drained chunk is a body when no call is inside that knows it", FREELY, first_remembers,
     {{"one", come_and_go, 0, "knew"}, {"another", come_and_go, 0, "knew"}, {"drain", drain_it, 1, "drained"}}, NULL,
     KEEPS_ALL, .preemptions = 2},
    {"two enter twice, drain", "the same of threads that come again", FREELY, first_remembers,
     {{"one", come_twice, 0, "knew knew"}, {"another", come_and_go, 0, "knew"}, {"drain", drain_it, 1, "drained"}}, NULL,
     KEEPS_ALL, .preemptions = 2},
};
/* clang-format on */
const subject MEMORY_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
