// SPDX-License-Identifier: Apache-2.0
#include "sb_window.h"

#include "sb_wait.h"

bool sb_window_fits(const sb_window *w, uint64_t length) {
  return length == 0 || w->used == 0 || (w->used < w->limit && length <= w->limit - w->used);
}

uint64_t sb_window_refuses(const sb_queue *q, const sb_window *w, uint32_t slot) {
  if (!sb_slot_in_range(q->c->b, slot) || !sb_slot_ready(q->c->b, slot)) {
    return 0; /* the take finds that out */
  }
  sb_message_shm m = sb_peek_message(q->c->b, slot);
  bool expired = m.expires_ns != 0 && m.expires_ns <= sb_now_ns();
  return expired || sb_window_fits(w, m.body_length) ? 0 : m.body_length;
}

void sb_window_hold_back(sb_queue *q, uint32_t node) {
  sb_node_shm *n = sb_slot_at(q->c->b, node);
  (void)SB_OR(&n->flags, SB_NODE_HELD_BACK, SB_SEQ_CST);
  SB_CRASHPOINT("window.flagged");
  SB_STORE(&q->shm->held_back, 1u, SB_SEQ_CST); /* P39: before the second look */
  SB_CRASHPOINT("window.held_back");
}

void sb_window_go_on(sb_queue *q, uint32_t node) {
  sb_node_shm *n = sb_slot_at(q->c->b, node);
  (void)SB_AND(&n->flags, ~SB_NODE_HELD_BACK, SB_SEQ_CST);
}
