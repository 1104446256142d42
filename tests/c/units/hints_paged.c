// SPDX-License-Identifier: Apache-2.0
/* sb_hints, and what a housekeeper finds, in a queue whose leaves have left the memory. */
#include "sb_hints.h"

#include "paging.h"
#include "queues.h"
#include "sb_disposal.h"
#include "surroundings.h"

static sb_queue *q;

static void begin(unsigned messages) { q = begin_left(STORED, messages); }
static bool is_marked(unsigned n) { return sb_requeued_is_marked(t.b, stored_ring(), q->base + (uint64_t)n * LEAF); }
static void set_head(uint64_t n) { SB_STORE(&q->shm->head, q->base + n, SB_RELAXED); }
static uint64_t resurface(void) { return sb_hints_resurface(t.b, q->shm, stored_ring(), 0); }

static void a_hidden_leaf_is_marked(void) {
  begin(3 * LEAF + 1);
  expect(let_leave(1), "the leaf stays");
  expect(!sb_hints_hide_ready(t.b, stored_ring()), "a leaf behind the head is hidden");
  expect_is(resurface(), 0, "how many are found behind the head");
  set_head(LEAF + 1);
  sb_requeued_mark(t.b, stored_ring(), q->base);
  expect(sb_hints_hide_ready(t.b, stored_ring()), "the second leaf is not hidden");
  expect_is(resurface(), 1, "how many are found");
  expect(is_marked(1), "the second leaf is not marked");
  expect(!sb_hints_hide_ready(t.b, stored_ring()), "a marked leaf is hidden");
  expect_is(resurface(), 0, "how many are found then");
}
static void a_frozen_cell_is_not_hidden(void) {
  q = begin_stored(STORED, LEAF + 1);
  store_everything();
  sb_leaf_ref leaf = leaf_numbered(0);
  expect(sb_paged_freeze(t.c, stored_ring(), &leaf), "the leaf stays");
  expect(sb_hints_has_ready(t.b, stored_ring(), q->base + 1), "a FROZEN cell is not ready");
  expect_is(sb_hints_end_of_ready(t.b, q->slot), q->base + LEAF + 1, "the end of what is ready");
}
static void messages_that_are_ready(void) {
  begin(LEAF + 1);
  const uint64_t tail = q->base + LEAF + 1;
  expect(sb_hints_has_ready(t.b, stored_ring(), tail), "a leaf that has left has no message");
  expect(sb_hints_has_ready(t.b, stored_ring(), q->base + 1), "nor its first one");
  set_head(LEAF);
  set_cell_word(q, LEAF, tombstone_at(q, LEAF));
  expect(!sb_hints_has_ready(t.b, stored_ring(), tail), "what lies before the head is ready");
  SB_STORE(&q->shm->requeued, 1, SB_RELAXED);
  expect(sb_hints_has_ready(t.b, stored_ring(), tail), "what may have returned is not ready");
  expect(!sb_hints_has_ready(t.b, stored_ring(), q->base), "something is ready before the first message");
  SB_STORE(&q->shm->requeued, 0, SB_RELAXED);
  set_head(0);
  expect(let_come_back(0) == SB_OK, "the leaf does not come back");
  for (unsigned i = 0; i < LEAF; i++) take_from(q);
}
/* A queue that gets a limit when messages are in the store. */
static void hints_of_a_queue_that_tracks(void) {
  int32_t holder;
  sb_settings limited = {{-1, 500, -1, SB_OVERFLOW_BLOCK, -1, -1}, SB_QUEUE_DURABLE};
  begin(2 * LEAF + 1);
  expect_is(sb_queue_configure(q, &limited, false, FOREVER, &holder), SB_OK, "the status of a change");
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_RIGHT, "what is found of the hints");
  expect_is(sb_queue_length(q), 2 * LEAF + 1, "the length");
  (void)SB_ADD(&q->shm->taken, 3, SB_RELAXED);
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_SET_RIGHT, "what is found of a wrong hint");
  expect_is(sb_queue_length(q), 2 * LEAF + 1, "the length, then");
  expect(!let_leave(1), "a leaf leaves a queue with a limit");
}
/* A limit of bytes counts the bodies in the store, and not what is held. */
static void bytes_of_a_queue_that_tracks(void) {
  int32_t holder;
  sb_settings limited = {{-1, -1, 1 << 30, SB_OVERFLOW_BLOCK, -1, -1}, SB_QUEUE_DURABLE};
  sb_queue_facts f;
  begin(2 * LEAF + 1);
  expect_is(sb_queue_describe(t.c, q->slot, &f), SB_OK, "the status of a description");
  expect(f.bytes > 0, "the messages have no bodies");
  expect_is(sb_queue_configure(q, &limited, false, FOREVER, &holder), SB_OK, "the status of a change");
  expect_is(SB_LOAD(&q->shm->bytes_in, SB_RELAXED) - SB_LOAD(&q->shm->bytes_out, SB_RELAXED), f.bytes, "the bytes");
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_RIGHT, "what is found of the hints");
  (void)SB_ADD(&q->shm->bytes_in, 3, SB_RELAXED);
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_SET_RIGHT, "what is found of a wrong hint");
  expect_is(SB_LOAD(&q->shm->bytes_in, SB_RELAXED) - SB_LOAD(&q->shm->bytes_out, SB_RELAXED), f.bytes,
            "the bytes, then");
  set_head(LEAF); /* the first message in the memory is taken before those in the store */
  q->lanes[0].cursor = q->base + LEAF;
  static char record[BUFFER];
  expect(get(&t, q, record, false) != 0, "no message is there");
  expect_is(sb_hints_reconcile(t.b, q->shm, NULL), SB_HINTS_RIGHT, "what is found while a message is held");
}
static void a_trim_says_what_it_needs(void) {
  int32_t holder;
  uint32_t slot;
  uint64_t removed, sequence;
  sb_settings limited = {{-1, 10, -1, SB_OVERFLOW_DROP_HEAD, -1, -1}, SB_QUEUE_DURABLE};
  begin(2 * LEAF + 1);
  expect_is(sb_queue_configure(q, &limited, true, FOREVER, &holder), SB_OK, "the status of a change");
  expect_is(sb_queue_length(q), 2 * LEAF + 1, "the length after it");
  expect_is(sb_queue_trim(q, 1000, &removed), SB_GROW, "the status of a trim");
  expect_is(removed, 0, "how many it evicted");
  expect(sb_store_wanting(t.b, &slot, &sequence), "it wants no leaf");
  expect_is(sequence, sequence_of(0), "what it wants");
  expect(let_come_back(0) == SB_OK, "the leaf does not come back");
  expect_is(sb_queue_trim(q, 5, &removed), SB_OK, "the status of a trim of some");
  expect_is(removed, 5, "how many it evicted then");
  expect_is(sb_queue_trim(q, 1000, &removed), SB_OK, "the status of a trim of all");
  expect_is(removed, 2 * LEAF + 1 - 10 - 5, "how many it evicted at last");
  expect_is(sb_queue_length(q), 10, "the length at last");
  expect_is(sb_queue_trim(q, 1000, &removed), SB_OK, "the status of a trim of nothing");
  expect_is(removed, 0, "how many are nothing");
}
static void a_housekeeper_finds_nothing(void) {
  begin(2 * LEAF + 1);
  const uint64_t repairs = repairs_of(t.b);
  sb_queue_memory memory = {0};
  for (unsigned i = 0; i < 5; i++) sb_housekeeper_tick(t.c, q->slot, &memory);
  sb_housekeeper_forget(&memory);
  expect_is(repairs_of(t.b), repairs, "what a housekeeper mended");
  expect(sb_link_state(link_of(0)) == SB_LINK_PAGED && (link_of(0) & SB_LINK_MARKED) == 0, "the link was changed");
  expect(findings(t.c) == NULL, "%s", findings(t.c));
}

/* ---- disposal ---- */

static void what_is_not_there_ends(void) {
  begin(2 * LEAF + 1);
  mark_closed(q);
  sb_lock(t.c);
  uint64_t removed = sb_disposal_empty(q);
  sb_unlock(t.c);
  expect_is(removed, 2 * LEAF + 1, "how many ended");
  expect_is(link_of(0), SB_LINK_DONE, "the link of a leaf that had left");
}
static void frozen_cells_end(void) {
  q = begin_stored(STORED, LEAF + 1);
  store_everything();
  sb_leaf_ref leaf = leaf_numbered(0);
  expect(sb_paged_freeze(t.c, stored_ring(), &leaf), "the leaf stays");
  uint64_t word = word_at(q, 5);
  mark_closed(q);
  sb_lock(t.c);
  uint64_t removed = sb_disposal_empty(q);
  sb_unlock(t.c);
  expect_is(removed, LEAF + 1, "how many ended");
  expect_is(state_of_slot(word), SB_SLOT_FREE, "the slot of a message");
}

static const test_case CASES[] = {
    {"hints paged: hidden", "a leaf that a search passed is marked", a_hidden_leaf_is_marked},
    {"hints paged: frozen", "a FROZEN cell is ready", a_frozen_cell_is_not_hidden},
    {"hints paged: ready", "a leaf that has left has messages", messages_that_are_ready},
    {"hints paged: tracks", "the ledgers say how many are ready", hints_of_a_queue_that_tracks},
    {"hints paged: bytes", "the ledgers say how many bytes are ready", bytes_of_a_queue_that_tracks},
    {"hints paged: trim", "a trim wants the leaf of its next victim", a_trim_says_what_it_needs},
    {"hints paged: tick", "a housekeeper finds nothing to mend", a_housekeeper_finds_nothing},
    {"hints paged: disposal", "what is not in the memory ends with its queue", what_is_not_there_ends},
    {"hints paged: disposal, frozen", "FROZEN cells end with their queue", frozen_cells_end},
};
SUBJECT(CASES)
