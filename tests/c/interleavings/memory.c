// SPDX-License-Identifier: Apache-2.0
/* Cases of memory: who opens a chunk, and what he does with it when it is not needed any more. */
#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_slab.h"

static uint32_t slots[2];

static void allocate(const actor *a, uint32_t *slot) {
  uint64_t gen;
  sb_status status = sb_slab_alloc(a->c, sb_class_of_kind(t.b, SB_KIND_LEAF), SB_TOKEN_BOOT, slot, &gen);
  expect(status == SB_OK, "no slot: status %d", (int)status);
}
static void allocate_too(void) { allocate(&two, &slots[1]); }
static int chunks_for_leaves(void) {
  return (int)SB_LOAD(&t.b->classes[sb_class_of_kind(t.b, SB_KIND_LEAF)].chunks, SB_SEQ_CST);
}

static void first_leaf(void) {
  int spare = (int)sb_chunk_spare(t.b);
  expect(chunks_for_leaves() == 0, "there is a chunk for leaves before there is a message");
  meanwhile("slab.chunk.claimed", allocate_too);
  allocate(&one, &slots[0]);
  afterwards();
  expect(chunks_for_leaves() == 1, "%d chunks are open for leaves", chunks_for_leaves());
  expect((int)sb_chunk_spare(t.b) == spare - 1, "of %d spare chunks %d are left", spare, (int)sb_chunk_spare(t.b));
  expect(slots[0] != slots[1], "both got slot %d", (int)slots[0]);
  for (int i = 0; i < 2; i++) sb_slab_free_now(t.b, slots[i]);
}

static const test_case CASES[] = {
    {"first leaf", "two need the first slot of a kind at once: one chunk is opened", {-1, -1, -1, 0, 0}, first_leaf},
};
const subject MEMORY_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
