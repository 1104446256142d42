// SPDX-License-Identifier: Apache-2.0
#include "sb_spacing.h"

#include "sb_peek.h"

/* A leaf gets twice as much at most, of messages that are not large; and a slot may be twice as long as its message. So
 * what leaves the memory has room there again while three quarters of it are in use. */
static uint64_t most_of(const sb_broker *b) {
  return SB_LOAD(&b->header->memory_limit, SB_RELAXED) / SB_LEAF_SHARE / 4;
}

uint64_t sb_spacing_large(const sb_broker *b) { return most_of(b) / SB_PAGE_CELLS; }

bool sb_spacing_exceeds(sb_broker *b, const sb_leaf_shm *leaf, unsigned index, uint64_t bytes) {
  uint64_t others = 0, most = most_of(b);
  for (unsigned i = 0; i < index && others <= most; i++) {
    uint64_t word = SB_LOAD(&leaf->cells[i].word, SB_ACQUIRE);
    uint32_t slot = sb_cell_slot(word);
    /* a message that ends meanwhile may leave its slot to another one: this one is then spaced for a wrong length */
    if (sb_cell_has_message(word) && sb_slot_in_range(b, slot) && sb_slot_ready(b, slot))
      others += sb_peek_length(b, slot);
  }
  return others > 0 && others + bytes > most;
}
