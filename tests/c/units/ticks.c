// SPDX-License-Identifier: Apache-2.0
#include "ticks.h"

#include <string.h>

#include "sb_slab.h"

sb_queue_memory remembered;
static sb_queue *ticked;

sb_queue *begin_ticks(sb_settings settings) { return begin_ticks_of("q", settings); }
sb_queue *begin_ticks_of(const char *name, sb_settings settings) {
  ticked = queue_named(name, settings);
  memset(&remembered, 0, sizeof remembered);
  return ticked;
}
void tick_queue(void) { sb_housekeeping_queue(t.c, ticked->slot, &remembered); }
void be_quiet(uint64_t ticks) {
  remembered.last_take = ticked->shm->last_take;
  remembered.came = ticked->shm->tail;
  remembered.quiet_ticks = ticks - 1;
}
void set_deaths(uint64_t deaths) { SB_STORE(&t.b->header->reaped, deaths, SB_RELAXED); }

static uint64_t repairs(const sb_half *kinds) {
  uint64_t all = 0;
  for (unsigned i = 0; i < SB_REPAIRS; i++) all = all * 10 + kinds[i];
  return all;
}
void expect_repairs(uint64_t defects, uint64_t explained) {
  expect_is(repairs(t.b->header->repairs), defects, "the defects");
  expect_is(repairs(t.b->header->explained_repairs), explained, "the repairs that are explained");
}

uint32_t node_with(uint32_t flags, int32_t priority) {
  uint32_t node;
  uint64_t token;
  if (sb_node_create(t.c, ticked->slot, priority, flags, 0, 0, &node, &token) != SB_OK) die("sb_node_create", 0);
  return node;
}
void move_to(uint32_t node, unsigned state) {
  if (!sb_node_move(t.c, node, SB_ANY_STATE, state)) die("sb_node_move", (int)state);
}
sb_leaf_ref leaf_of_list(uint32_t object, uint32_t id, uint64_t position) {
  sb_ring list;
  sb_leaf_ref leaf;
  if (!sb_ring_open(t.b, object, id, &list) || sb_ring_locate(t.b, NULL, &list, position, &leaf) != SB_OK)
    die("sb_ring_locate", (int)id);
  return leaf;
}
bool is_freed(const sb_leaf_ref *leaf) {
  return sb_slot_gen(SB_LOAD(sb_slot_header(t.b, leaf->slot), SB_RELAXED)) != leaf->gen;
}
sb_leaf_ref overlook(sb_leaf_ref leaf) {
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++)
    SB_STORE(&leaf.leaf->cells[i].word, sb_cell_bare(SB_CELL_TOMBSTONE, leaf.gen), SB_RELAXED);
  return leaf;
}
