// SPDX-License-Identifier: Apache-2.0
#include "sb_watch.h"

#include <unistd.h>

#include "sb_chunk.h"
#include "sb_lifetime.h"

static uint32_t flags_of(const sb_watch *w) { return w->room ? SB_NODE_ROOM : 0; }

sb_status sb_watch_begin(sb_watch *w) {
  sb_queue *q = w->q;
  if (!sb_queue_is_open(q)) {
    return SB_DELETED;
  }
  sb_target_add(&w->target);
  sb_status status = sb_node_create(q->c, q->slot, 0, flags_of(w), w->target.number, 0, &w->node, &w->token);
  if (status != SB_OK) {
    w->node = 0;
    sb_target_remove(&w->target);
    return status;
  }
  if (w->room) SB_STORE(&q->shm->room_watched, 1u, SB_RELAXED); /* relaxed: only explains a repair (sb_repairs.h) */
  q->busy++;                                                    /* keeps the handle until sb_watch_end */
  return SB_OK;
}

sb_status sb_watch_want(sb_watch *w, uint64_t bytes) {
  if (w->node == 0 || !sb_queue_is_open(w->q)) {
    return w->node == 0 ? SB_CLOSED : SB_DELETED;
  }
  sb_node_shm *node = sb_slot_at(w->q->c->b, w->node);
  if (w->room) SB_STORE(&node->prefetch, (uint32_t)bytes, SB_RELAXED); /* published by the CAS of the move below */
  unsigned state = sb_node_state(SB_LOAD(&node->word, SB_SEQ_CST));
  if (!w->room && state != SB_NODE_INTERESTED) sb_lifetime_used(w->q->shm); /* before the node moves (sb_lifetime.h) */
  if (state != SB_NODE_INTERESTED &&
      !sb_node_move(w->q->c, w->node, SB_IN(SB_NODE_NOT_INTERESTED) | SB_IN(SB_NODE_NOTIFIED), SB_NODE_INTERESTED)) {
    /* no memory for an entry in the list: no process would ever notify the node */
    return sb_chunk_may_grow(w->q->c->b) ? SB_GROW : SB_NO_MEMORY;
  }
  return SB_OK;
}

void sb_watch_leave(sb_watch *w) {
  if (w->node != 0) sb_waiter_leave(w->q, w->node, flags_of(w));
}

void sb_watch_end(sb_watch *w) {
  if (w->node != 0) {
    sb_watch_leave(w);
    sb_node_destroy(w->q->c, w->node, w->token);
    w->node = 0;
    w->q->busy--;
    sb_target_remove(&w->target);
  }
}

void sb_watch_tell(sb_watch *w) {
  sb_node_shm *node = sb_slot_at(w->q->c->b, w->node);
  (void)SB_SWAP(&node->flagged, 0, SB_SEQ_CST); /* P9: cleared, then written */
  uint64_t one = 1;
  ssize_t n = write(w->event_fd, &one, sizeof one);
  (void)n; /* a full counter is readable already */
}

bool sb_watch_was_told(const sb_watch *w) {
  const sb_node_shm *node = sb_slot_at(w->q->c->b, w->node);
  return sb_node_state(SB_LOAD(&node->word, SB_SEQ_CST)) == SB_NODE_NOTIFIED;
}
