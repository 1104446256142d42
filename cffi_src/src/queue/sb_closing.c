// SPDX-License-Identifier: Apache-2.0
#include "sb_closing.h"

#include "sb_slab.h"

/* True if the message of a cell with the value `word` makes a deletion "if empty" fail. A message that a connection
 * holds does not count: if the connection returns the message to the closed queue, it is removed there. A STAGED one
 * counts, since its commit may be decided already. */
static bool nobodys_message(uint64_t word) {
  unsigned state = sb_cell_state(word);
  return state == SB_CELL_AVAILABLE || state == SB_CELL_SCHEDULED || state == SB_CELL_STAGED || state == SB_CELL_FROZEN;
}

static bool any_message(uint64_t word) { return sb_cell_has_message(word); }

bool sb_closing_finds_message(sb_broker *b, const sb_ring *r, uint64_t position, uint64_t flags) {
  return ((flags & SB_CLOSING_IF_SETTLED) != 0 && sb_ring_has(b, r, position, any_message)) ||
         ((flags & SB_CLOSING_IF_EMPTY) != 0 && sb_ring_has(b, r, position, nobodys_message));
}

bool sb_closing_has_message(sb_broker *b, uint32_t queue, uint64_t flags) {
  sb_ring r;
  bool found = false;
  for (sb_lanes_walk all = sb_lanes_of(b, queue); !found && sb_lanes_next(&all, &r);) {
    found = sb_closing_finds_message(b, &r, UINT64_MAX, flags);
  }
  return found;
}

static bool unused(const sb_queue_shm *q) { return SB_LOAD(&q->consumers, SB_SEQ_CST) <= 0; }

static void close_queue(sb_queue_shm *q) {
  uint64_t state = SB_LOAD(&q->state, SB_ACQUIRE);
  if (sb_queue_state(state) == SB_QUEUE_OPEN)
    (void)SB_CAS(&q->state, &state, sb_queue_word(SB_QUEUE_CLOSED, sb_queue_incarnation(state)), SB_SEQ_CST);
}

/* ---- in a queue with several lanes ---- */

/* SB_CLOSING_IF_UNUSED, SB_CLOSING_IF_EMPTY and SB_CLOSING_IF_SETTLED, as the word `closing` has them, and back */
#define CONDITIONS(flags) ((unsigned)SB_BITS(flags, 42, 3))
#define FLAGS(conditions) SB_FIELD(conditions, 42)

bool sb_closing_ends(sb_broker *b, uint32_t queue) {
  sb_queue_shm *q = sb_slot_at(b, queue);
  uint64_t word;
  while (sb_closing_state(word = SB_LOAD(&q->closing, SB_SEQ_CST)) == SB_ASKED) {
    uint64_t only = FLAGS(sb_closing_conditions(word));
    bool refuse = ((only & SB_CLOSING_IF_UNUSED) != 0 && !unused(q)) || sb_closing_has_message(b, queue, only);
    SB_CRASHPOINT("closing.judged");
    (void)SB_CAS(&q->closing, &word,
                 sb_closing_word(refuse ? SB_ASKED_NOT : SB_ASKED_CLOSED, 0, sb_closing_number(word)), SB_SEQ_CST);
  }
  bool ends = sb_closing_state(word) == SB_ASKED_CLOSED;
  if (ends) close_queue(q);
  return ends;
}

bool sb_closing_ask(sb_broker *b, uint32_t queue, uint64_t flags) {
  sb_queue_shm *q = sb_slot_at(b, queue);
  uint64_t word;
  do {
    if (sb_closing_ends(b, queue)) {
      return false;
    }
    word = SB_LOAD(&q->closing, SB_SEQ_CST);
  } while (sb_closing_state(word) != SB_ASKED_NOT ||
           !SB_CAS(&q->closing, &word, sb_closing_word(SB_ASKED, CONDITIONS(flags), sb_closing_number(word) + 1),
                   SB_SEQ_CST));
  return true;
}

/* ---- in a queue with one lane ---- */

bool sb_closing_resolve(sb_broker *b, sb_connection *c, sb_queue_shm *shm, const sb_ring *r, uint64_t position) {
  sb_leaf_ref leaf;
  sb_status found = sb_ring_locate(b, NULL, r, position, &leaf);
  if (found != SB_OK) {
    return found == SB_DONE; /* SB_DONE: another process decided the cell, then its page was freed */
  }
  sb_cell_shm *cell = sb_leaf_cell(&leaf, position);
  uint64_t word = SB_LOAD(&cell->word, SB_SEQ_CST), closed = sb_cell_bare(SB_CELL_CLOSED, leaf.gen);
  if (sb_cell_state(word) == SB_CELL_CLOSING && sb_cell_of(word, leaf.gen)) {
    bool refuse =
        ((word & SB_CLOSING_IF_UNUSED) != 0 && !unused(shm)) || sb_closing_finds_message(b, r, position, word);
    if (refuse && sb_ring_drop(c, r, &leaf, position, word)) {
      return true;
    }
    if (!refuse) (void)SB_CAS(&cell->word, &word, closed, SB_SEQ_CST);
  }
  if (SB_LOAD(&cell->word, SB_SEQ_CST) == closed) { /* the generation matches: the page was not reused */
    close_queue(shm);
  }
  return true;
}
