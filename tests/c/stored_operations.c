// SPDX-License-Identifier: Apache-2.0
#include "stored_operations.h"

#include "child.h"
#include "harness.h"
#include "operations.h"
#include "sb_queue.h"

#define CHANGES 8u
#define LEAF 64u

static char heads[16384], bodies[16384];

void ends_before_a_turn(void) {
  (void)get(&kid, q, buffer, true);
  (void)get(&kid, q, buffer, false);
}

void takes_a_turn(void) {
  sb_store_change changes[CHANGES];
  sb_store_lane lane;
  uint32_t count;
  uint32_t turn = sb_store_turn_begin(kid.c);
  (void)sb_store_changes(q, 0, false, changes, CHANGES, &count);
  (void)sb_store_lanes(q, &lane, 1);
  uint64_t at = lane.stored;
  sb_status status = SB_OK;
  while (at < lane.tail && status == SB_OK) {
    sb_store_row row = {.heads = heads, .bodies = bodies, .heads_size = sizeof heads, .bodies_size = sizeof bodies};
    status = sb_store_gather(q, &at, lane.tail, &row);
  }
  sb_store_advance(q, at);
  sb_store_turn_end(kid.c, turn);
}

void asks_for_a_turn(void) { (void)sb_store_ask(kid.c); }

#ifdef SB_TEST_HOOKS /* without them, a program is linked against the public functions only */
void expect_commits_counted(sb_queue *of) {
  const sb_header_shm *h = of->c->b->header;
  (void)sb_store_await_commits(of->c);
  if (SB_LOAD(&h->commits_begun, SB_RELAXED) != SB_LOAD(&h->commits_done, SB_RELAXED))
    complain("a commit is being carried out for ever");
}
void expect_changes_found(sb_queue *of) {
  sb_store_change changes[CHANGES];
  sb_store_lane lane;
  uint32_t count;
  if (!sb_queue_is_stored(of) || SB_LOAD(&of->c->b->header->turns_begun, SB_RELAXED) != 0) {
    return;
  }
  (void)sb_store_changes(of, 0, false, changes, CHANGES, &count);
  (void)sb_store_lanes(of, &lane, 1);
  for (uint64_t at = 0; at < lane.tail; at++) {
    const sb_ring *r = &of->lanes[0].ring;
    uint64_t position = SB_LOAD(r->base, SB_RELAXED) + at;
    sb_leaf_ref leaf;
    sb_status status = sb_ring_locate(of->c->b, NULL, r, position, &leaf);
    if (status == SB_PAGED) continue;
    const sb_cell_shm *cell = sb_leaf_cell(&leaf, position);
    /* whoever takes a message writes the side record: without one, the cell never had a message (sb_spacing.h) */
    bool ended = status != SB_OK || (sb_cell_state(SB_LOAD(&cell->word, SB_RELAXED)) == SB_CELL_TOMBSTONE &&
                                     SB_LOAD(&cell->side, SB_RELAXED) != 0);
    bool found = false;
    for (uint32_t i = 0; i < count; i++) {
      uint64_t n = at - changes[i].first;
      found |= n < changes[i].span && (changes[i].whole || (n < LEAF && (changes[i].ended >> n & 1) != 0));
    }
    if (ended && !found) complain("no bit leads to the end of message %llu", (unsigned long long)at);
  }
}
#else
void expect_commits_counted(sb_queue *of) { (void)of; }
void expect_changes_found(sb_queue *of) { (void)of; }
#endif
