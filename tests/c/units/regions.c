// SPDX-License-Identifier: Apache-2.0
/* sb_regions: what the memory has messages of a stored queue for. Each body has 64 bytes; leaf 0 has the messages 1 to 64. */
#include "sb_regions.h"

#include "calls.h"
#include "consuming.h"
#include "paging.h"
#include "queues.h"

#define BODY 64u

static sb_queue *q;
static char record[BUFFER];

static sb_regions found;
static void walk(void) {
  found = (sb_regions){.direct = 0};
  while (sb_queue_regions(t.c, q->slot, &found)) {
  }
}
static void expect_found(uint64_t direct, uint64_t head, uint64_t pending, uint64_t acquired, uint64_t scheduled) {
  walk();
  expect_is(found.direct, direct * BODY, "direct");
  expect_is(found.head, head * BODY, "head");
  expect_is(found.pending, pending * BODY, "pending");
  expect_is(found.acquired, acquired * BODY, "acquired");
  expect_is(found.scheduled, scheduled * BODY, "scheduled");
}
static void begin(unsigned leaves, unsigned rest) {
  q = begin_stored(STORED, leaves * LEAF + rest);
  if (leaves > 1) store_everything();
}
static uint32_t node_at(uint64_t reached, unsigned state) {
  uint32_t node = make_node(q->slot, 0, SB_NODE_COUNTED, 1, state);
  sb_waits_note(node_shm(node), SB_EMPTY, reached, 0);
  return node;
}

static void a_queue_that_is_not_stored(void) {
  q = queue_named("q", (sb_settings)FREELY);
  put_up_to(q, 3);
  expect_found(0, 0, 0, 0, 0);
  expect_is(found.incarnation, 0, "the incarnation");
}
static void without_consumers(void) {
  begin(3, 2);
  expect_found(0, 3 * LEAF + 2, 0, 0, 0);
  expect_is(found.has_watermark, 0, "whether there is a watermark");
  expect(let_leave(1), "the leaf stays");
  expect_found(0, LEAF, LEAF + 2, 0, 0);
  expect_is(found.has_watermark, 1, "whether there is a watermark");
  expect_is(found.watermark, LEAF, "the watermark");
  expect(let_leave(2), "the leaf stays");
  expect_found(0, LEAF, 2, 0, 0);
  expect_is(found.watermark, LEAF, "the watermark of two");
}
static void held_and_delayed(void) {
  begin(1, 0);
  (void)get(&t, q, record, false);
  put_with(q, 99, 3600, 0);
  expect_found(0, LEAF - 1, 0, 1, 1);
}
static void a_consumer_of_any(void) {
  begin(3, 2);
  expect(let_leave(1), "the leaf stays");
  uint32_t node = make_node(q->slot, 0, SB_NODE_COUNTED, 1, SB_NODE_INTERESTED);
  expect_found(LEAF, 0, LEAF + 2, 0, 0);
  set_node_state(node, SB_NODE_NOT_INTERESTED);
  expect_found(LEAF, 0, LEAF + 2, 0, 0);
}
static void a_watch_takes_nothing(void) {
  begin(1, 0);
  (void)make_node(q->slot, 0, 0, 1, SB_NODE_INTERESTED);
  expect_found(0, LEAF, 0, 0, 0);
}
static void consumers_that_choose(void) {
  begin(3, 2);
  (void)node_at(q->base + 10 + 1, SB_NODE_NON_ACQUIRING);
  expect_found(3 * LEAF + 2 - 10, 10, 0, 0, 0);
  expect(let_leave(1), "the leaf stays");
  expect_found(LEAF - 10, 10, LEAF + 2, 0, 0);
  (void)node_at(q->base + 3 * LEAF + 1, SB_NODE_NON_ACQUIRING); /* behind what has left */
  expect_found(LEAF - 10 + 2, 10, LEAF, 0, 0);
  (void)node_at(q->base + 2 * LEAF + 5 + 1, SB_NODE_NOT_INTERESTED);
  expect_found(LEAF - 10 + LEAF - 5 + 2, 10, 5, 0, 0);
}
/* One that stands before a leaf that has left comes to nothing behind it. */
static void one_that_must_load(void) {
  begin(3, 2);
  expect(let_leave(1), "the leaf stays");
  (void)node_at(q->base + LEAF + 3 + 1, SB_NODE_NON_ACQUIRING);
  expect_found(0, LEAF, LEAF + 2, 0, 0);
}
static void damaged_cells(void) {
  begin(1, 0);
  set_cell_word(q, 3, open_word(q, 3, SB_CELL_AVAILABLE, 0x0fffffff));
  set_cell_word(q, 4, tombstone_at(q, 4));
  expect_found(0, LEAF - 2, 0, 0, 0);
}

static const test_case CASES[] = {
    {"regions: not stored", "nothing is told of a queue that is not stored", a_queue_that_is_not_stored},
    {"regions: nobody", "without consumers messages are at the head, up to what has left", without_consumers},
    {"regions: held", "what is held, or delayed, counts apart", held_and_delayed},
    {"regions: any", "a consumer of any message comes to them, up to what has left", a_consumer_of_any},
    {"regions: watch", "a watch comes to none", a_watch_takes_nothing},
    {"regions: choice", "one that chooses comes to those from its place on", consumers_that_choose},
    {"regions: load", "one that must load comes to none behind that", one_that_must_load},
    {"regions: damaged", "a cell that names no message counts for nothing", damaged_cells},
};
SUBJECT(CASES)
