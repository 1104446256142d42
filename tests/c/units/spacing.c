// SPDX-License-Identifier: Apache-2.0
/* sb_spacing: where large messages of stored queues come to lie. */
#include "sb_spacing.h"

#include "committing.h"
#include "meanwhile.h"
#include "paging.h"
#include "queues.h"
#include "sb_lanes.h"
#include "surroundings.h"

#define LARGE 320u          /* bytes of a body that is large enough to lie apart */
#define MOST (10u * LARGE)  /* what large messages of a leaf may have */
#define SMALL (MOST / LEAF) /* the largest body that is not large */

static sb_queue *q;

/* The memory is said to be small, so that bodies of some bytes are large in it. */
static sb_queue *begin_with(sb_settings settings) {
  static char name[] = "spaced 0";
  name[7]++;
  if (name[7] == '1') (void)begin_stored(STORED, 0);
  SB_STORE(&t.b->header->memory_limit, UINT64_C(4) * SB_LEAF_SHARE * MOST, SB_RELAXED);
  return q = queue_named(name, settings);
}
static void begin(void) { (void)begin_with(STORED); }
static const char body[MOST * 3] = {1};
static void put_body(sb_queue *queue, uint32_t bytes) {
  expect_is(sb_queue_put(queue, body, bytes), SB_OK, "the status of a put");
}
static void put_bodies(unsigned count, uint32_t bytes) {
  for (unsigned i = 0; i < count; i++) put_body(q, bytes);
}
static uint64_t tail(void) { return sb_ring_exact_tail(t.b, &q->lanes[0].ring) - q->base; }
static void expect_skipped(uint64_t from, uint64_t end) {
  for (uint64_t at = from; at < end; at++) {
    expect_is(cell_state(q, at), SB_CELL_TOMBSTONE, "the state of a cell that was skipped");
    sb_leaf_ref leaf;
    expect_is(sb_ring_locate(t.b, NULL, &q->lanes[0].ring, q->base + at, &leaf), SB_OK, "the way to its leaf");
    const uint8_t *finished = (const uint8_t *)(const void *)leaf.leaf->finished;
    expect_is(finished[at % LEAF], 1, "its mark");
  }
}

static void what_is_large(void) {
  begin();
  expect_is(sb_spacing_large(t.b), SMALL, "the largest body that is not large");
  expect_is(q->large, SMALL, "the same, as the handle knows it");
  put_bodies(1, LARGE);
  put_bodies(65, SMALL);
  expect_is(tail(), 66, "the tail behind messages that are not large");
  put_bodies(1, SMALL + 1);
  expect_is(tail(), 67, "the tail behind a large one that fits");
}
static void a_leaf_that_is_full(void) {
  begin();
  put_bodies(10, LARGE);
  expect_is(tail(), 10, "the tail behind those that fit together");
  put_bodies(1, LARGE);
  expect_is(tail(), LEAF + 1, "the tail behind one more");
  expect_skipped(10, LEAF);
  expect_is(cell_state(q, LEAF), SB_CELL_AVAILABLE, "the state of its cell");
  expect_is(sb_queue_length(q), 11, "the number of messages");
}
static void the_last_byte(void) {
  begin();
  put_bodies(9, LARGE);
  put_bodies(1, LARGE + 1);
  expect_is(tail(), LEAF + 1, "the tail behind one that exceeds the leaf by a byte");
  begin();
  put_bodies(9, LARGE);
  put_bodies(1, LARGE);
  expect_is(tail(), 10, "the tail behind one that fits to the byte");
}
static void one_that_is_too_large_alone(void) {
  begin();
  put_bodies(1, MOST * 3);
  expect_is(tail(), 1, "the tail behind the first of a queue");
  put_bodies(1, MOST * 3);
  expect_is(tail(), LEAF + 1, "the tail behind another one");
  put_bodies(1, SMALL);
  expect_is(tail(), LEAF + 2, "the tail behind a small one");
}
static void what_has_ended_needs_no_room(void) {
  begin();
  put_bodies(10, LARGE);
  take_from(q);
  put_bodies(1, LARGE);
  expect_is(tail(), 11, "the tail");
}
static void a_slot_that_cannot_be_read(void) {
  begin();
  put_bodies(10, LARGE);
  const uint64_t word = word_at(q, 3);
  set_cell_word(q, 3, open_word(q, 3, SB_CELL_AVAILABLE, (1u << 28) - 1));
  put_bodies(1, LARGE);
  set_cell_word(q, 3, word);
  expect_is(tail(), 11, "the tail");
}
static void queues_whose_messages_stay(void) {
  const sb_settings staying[] = {FREELY,
                                 {{100, -1, -1, 0, -1, -1}, SB_QUEUE_DURABLE},
                                 {{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DURABLE | SB_QUEUE_NON_DESTRUCTIVE}};
  for (unsigned i = 0; i < 3; i++) {
    (void)begin_with(staying[i]);
    put_bodies(11, LARGE);
    expect_is(tail(), 11, "the tail of a queue whose messages stay in the memory");
  }
}
static void a_lane(void) {
  sb_settings ranked = {{-1, -1, -1, 0, -1, -1, 9}, SB_QUEUE_DURABLE};
  (void)begin_with(ranked);
  put_bodies(11, LARGE);
  expect_is(SB_LOAD(&q->shm->came, SB_RELAXED), sb_lanes_count(t.b, q->slot), "how many cells came");
  expect_is(sb_queue_length(q), 11, "the number of messages");
}
static void a_commit(void) {
  (void)begin_stored(STORED, 0);
  SB_STORE(&t.b->header->memory_limit, UINT64_C(4) * SB_LEAF_SHARE * 10 * BYTES, SB_RELAXED);
  make_targets(1, STORED);
  sb_publication publications[11];
  for (unsigned i = 0; i < 11; i++) publications[i] = first_targets(0, 1);
  expect_is(commit_now(publications, 11, 0), SB_OK, "the status");
  const sb_queue *to = target[0];
  expect_is(sb_ring_exact_tail(t.b, &to->lanes[0].ring) - to->base, LEAF + 1, "the tail");
  expect_is(cell_state(to, 9), SB_CELL_AVAILABLE, "the state of the tenth cell");
  expect_is(cell_state(to, 10), SB_CELL_TOMBSTONE, "the state of the next one");
}
/* Another producer fills the cell meanwhile. */
static void fill_it(void) { set_cell_word(q, 10, tombstone_at(q, 10)); }
static void another_that_fills_the_cell(void) {
  begin();
  put_bodies(10, LARGE);
  meanwhile(cell_at(q, 10), BEFORE_CAS, 1, fill_it);
  put_bodies(1, LARGE);
  expect(has_acted(), "nobody has filled the cell");
  expect_is(tail(), LEAF + 1, "the tail");
}
static void move_all(const char *name, uint32_t bytes, uint64_t should, const char *what) {
  begin();
  sb_queue *from = queue_named(name, (sb_settings)FREELY);
  for (unsigned i = 0; i < LEAF; i++) put_body(from, bytes);
  uint64_t most = UINT64_MAX;
  sb_status status;
  expect_is(sb_queue_move(from, q, UINT64_MAX, &most, &status), LEAF, "how many are moved");
  expect_is(tail(), should, what);
}
static void moved_ones(void) {
  move_all("small", SMALL, LEAF, "the tail behind those that are not large");
  move_all("large", LARGE, 6 * LEAF + 4, "the tail behind large ones");
}

static const test_case CASES[] = {
    {"spacing: large", "a body is large of which 64 do not fit a leaf", what_is_large},
    {"spacing: full", "one that does not fit a leaf comes into the next one", a_leaf_that_is_full},
    {"spacing: byte", "one that fits to the byte comes into the leaf", the_last_byte},
    {"spacing: alone", "one that is too large for any leaf is the first one of its leaf", one_that_is_too_large_alone},
    {"spacing: ended", "what has ended needs no room in its leaf", what_has_ended_needs_no_room},
    {"spacing: damaged", "what cannot be read counts for nothing", a_slot_that_cannot_be_read},
    {"spacing: staying", "nothing lies apart in a queue whose messages stay", queues_whose_messages_stay},
    {"spacing: lanes", "the cells that are skipped count in a queue with priorities", a_lane},
    {"spacing: commit", "what a commit publishes lies apart as well", a_commit},
    {"spacing: moved", "so does what is moved from another queue", moved_ones},
    {"spacing: beside", "another producer may fill the cell first", another_that_fills_the_cell},
};
SUBJECT(CASES)
