// SPDX-License-Identifier: Apache-2.0
#include "paging.h"

#include "queues.h"
#include "sb_lanes.h"
#include "sb_slab.h"

#define ROWS 4u
#define HEADS 16384u
#define BODIES 65536u

static sb_queue *q;
static sb_ring ring;
static char heads[ROWS][HEADS], bodies[ROWS][BODIES];
static sb_stored_row rows[ROWS];

sb_queue *begin_stored(sb_settings settings, unsigned messages) {
  sb_broker_set_stores(t.b, SB_STORES_READY);
  q = queue_named("q", settings);
  ring = q->lanes[0].ring;
  put_up_to(q, messages);
  return q;
}
void look_at_lane(unsigned number) { ring = sb_queue_lane_of(q, number)->ring; }
const sb_ring *stored_ring(void) { return &ring; }

static uint64_t position_of(unsigned n) { return SB_LOAD(ring.base, SB_RELAXED) + (uint64_t)n * LEAF; }
uint64_t sequence_of(unsigned n) {
  return sb_position_in(sb_position_lane(SB_LOAD(ring.base, SB_RELAXED)), 0) + (uint64_t)n * LEAF;
}
sb_leaf_ref leaf_numbered(unsigned n) {
  sb_leaf_ref leaf;
  sb_status status = sb_ring_locate(t.b, NULL, &ring, position_of(n), &leaf);
  if (status != SB_OK) die("sb_ring_locate", (int)status);
  return leaf;
}
sb_word *link_to(unsigned n) {
  sb_page_ref parent;
  unsigned skip;
  sb_status status = sb_page_descend(t.b, NULL, &ring, position_of(n), 1, &parent, &skip);
  if (status != SB_OK) die("sb_page_descend", (int)status);
  return &sb_page_children(&parent)[sb_page_index(1, position_of(n))];
}
uint64_t link_of(unsigned n) { return SB_LOAD(link_to(n), SB_RELAXED); }
uint64_t paging_of(unsigned n) { return SB_LOAD(&leaf_numbered(n).leaf->page.paging, SB_RELAXED); }

void store_everything(void) {
  static sb_store_change changes[64];
  uint32_t count;
  if (!sb_store_changes(q, sequence_of(0), false, changes, 64, &count)) die("more changes than room", (int)count);
  uint64_t zero = sequence_of(0), tail = zero + sb_ring_exact_tail(t.b, &ring) - SB_LOAD(ring.base, SB_RELAXED);
  for (unsigned n = 0; n < ROWS && zero + n * LEAF < tail; n++) {
    uint64_t at = zero + n * LEAF, end = at + LEAF < tail ? at + LEAF : tail;
    if (sb_link_state(link_of(n)) != SB_LINK_PAGE) continue;
    sb_store_row row = {.heads = heads[n], .bodies = bodies[n], .heads_size = HEADS, .bodies_size = BODIES};
    sb_status status = sb_store_gather(q, &at, end, &row);
    if (status != SB_OK || at < end) die("sb_store_gather", (int)status);
    rows[n] = (sb_stored_row){row.heads, row.bodies, row.heads_length, row.bodies_length, 0};
  }
  sb_store_advance(q, tail);
}
const sb_stored_row *row_of(unsigned n) { return &rows[n]; }

bool let_leave(unsigned n) {
  sb_lock(t.c);
  uint32_t left = sb_departure_run(q, &ring, position_of(n), position_of(n) + LEAF, 1, NULL, NULL);
  sb_unlock(t.c);
  return left == 1;
}
sb_queue *begin_left(sb_settings settings, unsigned messages) {
  (void)begin_stored(settings, messages);
  store_everything();
  if (!let_leave(0)) die("the leaf does not leave", 0);
  return q;
}
sb_status let_come_back(unsigned n) {
  uint64_t sequence = sequence_of(n), link;
  sb_status status = sb_store_absent(q, &sequence, sequence + LEAF, &link);
  return status == SB_OK ? sb_store_come_back(q, sequence, link, &rows[n], 1) : status;
}
uint64_t get_loading(char *record, bool auto_ack) {
  uint64_t id, sequence;
  uint32_t slot;
  while ((id = get(&t, q, record, auto_ack)) == 0 && sb_store_wanting(t.b, &slot, &sequence)) {
    sb_status status = let_come_back((unsigned)((sequence - sequence_of(0)) / LEAF));
    if (status != SB_OK) die("a leaf does not come back", (int)status);
  }
  return id;
}
unsigned state_of_slot(uint64_t word) {
  return sb_slot_state(SB_LOAD(sb_slot_header(t.b, sb_cell_slot(word)), SB_RELAXED));
}
