// SPDX-License-Identifier: Apache-2.0
#include "checkup.h"

#include <stdlib.h>
#include <string.h>

#define FINDINGS 16u

sb_checkup checkup;
static sb_finding all_found[FINDINGS];

void start_checkup(uint32_t chunks) {
  size_t slots = BROKER_CHUNKS * SB_CHUNK_UNITS;
  checkup = (sb_checkup){.b = t.b, .findings = all_found, .room = FINDINGS, .chunks = chunks};
  checkup.seen = calloc(slots, sizeof *checkup.seen);
  checkup.blocks = calloc(slots, sizeof *checkup.blocks);
  checkup.owned = calloc(2u * SB_MAX_CONNECTIONS, sizeof *checkup.owned);
  if (checkup.seen == NULL || checkup.blocks == NULL || checkup.owned == NULL) die("calloc", 0);
  checkup.named = checkup.owned + SB_MAX_CONNECTIONS;
}

void begin_checkup(void) {
  grow_to(CHECKED_CHUNKS - 1);
  for (uint32_t i = 0; i < SB_MAX_CHUNKS; i++) SB_STORE(&t.b->chunks[i], 0, SB_RELAXED);
  start_checkup(CHECKED_CHUNKS);
}

void forget_what_was_seen(void) {
  memset(checkup.seen, 0, BROKER_CHUNKS * SB_CHUNK_UNITS * sizeof *checkup.seen);
  memset(checkup.owned, 0, 2u * SB_MAX_CONNECTIONS * sizeof *checkup.owned);
}

void found_nothing(void) {
  checkup.count = 0;
  memset(all_found, 0, sizeof all_found);
}

static void expect_like(const sb_finding *is, const sb_finding *should, const char *what) {
  expect(is->code == should->code, "%s: code %u, not %u", what, is->code, should->code);
  expect(is->queue == should->queue, "%s: queue %u, not %u", what, is->queue, should->queue);
  expect(is->slot == should->slot, "%s: slot %u, not %u", what, is->slot, should->slot);
  expect(is->which == should->which, "%s: which %u, not %u", what, is->which, should->which);
  expect(is->of == should->of, "%s: of %u, not %u", what, is->of, should->of);
  expect_is(is->where, should->where, what);
  expect_is(is->found, should->found, what);
  expect_is(is->expected, should->expected, what);
}

void expect_finding(sb_finding should, const char *what) {
  expect(checkup.count == 1, "%s: %u findings, not 1", what, checkup.count);
  expect_like(&all_found[0], &should, what);
  found_nothing();
}

void expect_no_finding(const char *what) {
  if (checkup.count > 0) {
    complain("%s: %u findings, the first of code %u, slot %u, which %u", what, checkup.count, all_found[0].code,
             all_found[0].slot, all_found[0].which);
  }
}
