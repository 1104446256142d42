// SPDX-License-Identifier: Apache-2.0
/* sb_dispose: for each reason a message ends, and is counted by the counter of the reason. */
#include "sb_dispose.h"

#include "cells.h"

static sb_queue *q;
static uint64_t token;
static sb_taken taken;

static void take(void) {
  token = new_token();
  if (sb_take_oldest(q, SB_CELL_ACQUIRED, SB_ANY_POSITION, token, &taken) != SB_OK) die("sb_take_oldest", 0);
}

static void every_reason_has_its_counter(void) {
  const struct {
    sb_reason reason;
    unsigned counter;
  } ends[] = {{SB_REASON_ACKED, SB_COUNT_ACKED},
              {SB_REASON_EXPIRED, SB_COUNT_EXPIRED},
              {SB_REASON_KILLED, SB_COUNT_KILLED},
              {SB_REASON_PURGED, SB_COUNT_KILLED},
              {SB_REASON_REPLACED, SB_COUNT_REPLACED},
              {SB_REASON_EVICTED, SB_COUNT_DROPPED},
              {SB_REASON_REJECTED, SB_COUNT_DROPPED},
              {SB_REASON_UNREADABLE, SB_COUNT_DROPPED},
              {SB_REASON_EXHAUSTED, SB_COUNT_DROPPED},
              {SB_REASON_GIVEN_UP, SB_COUNT_DROPPED},
              {SB_REASON_CARRIED_OUT, SB_COUNT_DEAD_LETTERED},
              {SB_REASON_TRANSFERRED, SB_COUNT_MOVED}};
  unsigned count = sizeof ends / sizeof ends[0];
  q = begin_queue("q", (sb_settings)FREELY, count);
  for (unsigned i = 0; i < count; i++) {
    uint64_t before = q->ledger->counters[ends[i].counter];
    take();
    expect_is(sb_dispose(q, token, ends[i].reason), SB_OK, "the status");
    expect_is(word_of(i), cell_word(i, SB_CELL_TOMBSTONE, 0), "the cell");
    expect_is(q->ledger->counters[ends[i].counter], before + 1, "the counter");
    expect_is(q->ledger->counters[SB_COUNT_REMOVED_BYTES], (i + 1) * BYTES, "the bytes that were removed");
    expect_is(held_by(token), 0, "the holding");
    for (unsigned k = 0; k < i; k++)
      expect(ends[k].reason != ends[i].reason, "two reasons have the number %u", (unsigned)ends[i].reason);
  }
}
static void a_message_ends_once(void) {
  q = begin_queue("q", (sb_settings)FREELY, 1);
  take();
  expect_is(sb_dispose(q, token, SB_REASON_REJECTED), SB_OK, "the status");
  expect_is(sb_dispose(q, token, SB_REASON_REJECTED), SB_SETTLED, "the status of a second time");
  expect_is(q->ledger->counters[SB_COUNT_DROPPED], 1, "what was dropped");
}

static const test_case CASES[] = {
    {"dispose: reasons", "each reason raises its counter", every_reason_has_its_counter},
    {"dispose: once", "a message that ended does not end again", a_message_ends_once},
};
SUBJECT(CASES)
