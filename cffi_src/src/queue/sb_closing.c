// SPDX-License-Identifier: Apache-2.0
#include "sb_closing.h"

/* True if the message of a cell with the value `word` makes a deletion "if empty" fail. A message that a connection
 * holds does not count: if the connection returns the message to the closed queue, it is removed there. A STAGED one
 * counts, since its commit may be decided already. */
static bool nobodys_message(uint64_t word) {
  unsigned state = sb_cell_state(word);
  return state == SB_CELL_AVAILABLE || state == SB_CELL_SCHEDULED || state == SB_CELL_STAGED;
}

bool sb_closing_finds_message(sb_broker *b, const sb_ring *r, uint64_t position) {
  return sb_ring_has(b, r, position, nobodys_message);
}

bool sb_closing_resolve(sb_broker *b, sb_connection *c, sb_queue_shm *shm, const sb_ring *r, uint64_t position) {
  sb_leaf_ref leaf;
  sb_status found = sb_ring_locate(b, NULL, r, position, &leaf);
  if (found != SB_OK) {
    return found == SB_DONE; /* SB_DONE: another process decided the cell, then its page was freed */
  }
  sb_cell_shm *cell = sb_leaf_cell(&leaf, position);
  uint64_t word = SB_LOAD(&cell->word, SB_SEQ_CST), closed = sb_cell_bare(SB_CELL_CLOSED, leaf.gen);
  if (sb_cell_state(word) == SB_CELL_CLOSING && sb_cell_of(word, leaf.gen)) {
    bool refuse = ((word & SB_CLOSING_IF_UNUSED) != 0 && SB_LOAD(&shm->consumers, SB_SEQ_CST) > 0) ||
                  ((word & SB_CLOSING_IF_EMPTY) != 0 && sb_closing_finds_message(b, r, position));
    if (refuse && sb_ring_drop(c, r, &leaf, position, word)) {
      return true;
    }
    if (!refuse) (void)SB_CAS(&cell->word, &word, closed, SB_SEQ_CST);
  }
  if (SB_LOAD(&cell->word, SB_SEQ_CST) == closed) { /* the generation matches: the page was not reused */
    uint64_t state = SB_LOAD(&shm->state, SB_ACQUIRE);
    if (sb_queue_state(state) == SB_QUEUE_OPEN) {
      (void)SB_CAS(&shm->state, &state, sb_queue_word(SB_QUEUE_CLOSED, sb_queue_incarnation(state)), SB_SEQ_CST);
    }
  }
  return true;
}
