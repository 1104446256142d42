// SPDX-License-Identifier: Apache-2.0
/* Scenarios of memory: chunks that are claimed, and slots of them. */
#include "roles.h"
#include "sb_holdings.h"
#include "scenarios.h"

/* Of bytes that only one slot of a chunk holds: a class each. */
#define HALF (UINT64_C(1) << 20)

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

/* Two see the last chunk that plain puts may open: the first one finds the highest that is FREE, the second the lowest. */
static void one_beside_the_reserve(void) {
  sb_broker *b = players[KEEPER].t.b;
  act_as(KEEPER);
  uint64_t token = opener();
  while (sb_chunk_drain_any(me()->t.c, token)) {
  }
  sb_holding_give(me()->t.c, token);
  SB_STORE(&b->header->chunk_hint, 0u, SB_RELAXED);
  while (sb_chunk_spare(b) > sb_reserve_chunks(b) + 1) open_chunk(SB_CHUNK_BYTES, SB_USE_DRAIN);
  SB_STORE(&b->header->chunk_hint, b->chunk_limit - 1, SB_RELAXED);
}

/* ---- roles ---- */

static void open_for_one(void) { open_chunk(HALF - 4096, SB_USE_PLAIN); }
static void open_for_another(void) { open_chunk(HALF + HALF / 2, SB_USE_PLAIN); }

/* ---- afterwards ---- */

static void the_reserve_is_whole(void) {
  sb_broker *b = players[KEEPER].t.b;
  if (sb_chunk_spare(b) < sb_reserve_chunks(b))
    complain("%u chunks are left of a reserve of %u", sb_chunk_spare(b), sb_reserve_chunks(b));
}
/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
    {"two open a chunk", "puts leave the reserve, in whatever order they claim", FREELY, one_beside_the_reserve,
     {{"a", open_for_one, 0, "opened"}, {"b", open_for_another, 1, "left-it"}}, the_reserve_is_whole, KEEPS_ALL,
     .deep = true},
};
/* clang-format on */
const subject MEMORY_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
