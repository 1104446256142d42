// SPDX-License-Identifier: Apache-2.0
#include "sb_notify.h"

#include "sb_sorted.h"
#include "sb_wait.h"

void sb_notify_node(sb_broker *b, uint32_t slot) {
  sb_node_shm *n = sb_node_at(b, slot);
  if (n == NULL) {
    return;
  }
  (void)SB_ADD(&n->wakes, 1, SB_RELAXED);
  if ((SB_LOAD(&n->flags, SB_RELAXED) & SB_NODE_DIRECT) != 0) {
    (void)sb_wake_ring(&n->wake);
    return;
  }
  sb_connection_shm *conn = sb_connection_record(b, sb_node_conn(SB_LOAD(&n->word, SB_ACQUIRE)));
  uint32_t target = SB_LOAD(&n->target, SB_RELAXED) % SB_MAX_TARGETS;
  /* P9: flags the node, the target, then the connection, and rings: each step even if the flag is set already. */
  SB_STORE(&n->flagged, 1, SB_SEQ_CST);
  if (conn == NULL) {
    return;
  }
  (void)SB_OR(&conn->work_targets[target / 64], UINT64_C(1) << (target % 64), SB_SEQ_CST);
  (void)SB_OR(&conn->work, UINT64_C(1) << (target / 64), SB_SEQ_CST);
  SB_CRASHPOINT("consumer.notify.flagged");
  sb_node_shm *waiter = sb_node_at(b, SB_LOAD(&conn->waiter, SB_ACQUIRE));
  if (waiter != NULL) {
    (void)sb_wake_ring(&waiter->wake);
  }
}

bool sb_notify_higher_wants(sb_broker *b, const sb_queue_shm *q, int32_t priority) {
  sb_level_cursor at = sb_levels_of(q);
  sb_consumer_level_shm *level;
  while ((level = sb_level_next(b, &at)) != NULL && SB_LOAD(&level->priority, SB_RELAXED) > priority) {
    if (SB_LOAD(&level->interested_count, SB_SEQ_CST) > 0 || SB_LOAD(&level->notified_count, SB_SEQ_CST) > 0) {
      return true;
    }
  }
  return false;
}

/* Notifies at most one interested node, of the highest priority above `above` that has one. True: it notified one. */
bool sb_notify_above(sb_connection *c, uint32_t queue, int64_t above, bool rescue) {
  sb_broker *b = c->b;
  sb_level_cursor at = sb_levels_of(sb_slot_at(b, queue));
  sb_consumer_level_shm *level;
  sb_ring list;
  while ((level = sb_level_next(b, &at)) != NULL && SB_LOAD(&level->priority, SB_RELAXED) > above &&
         sb_ring_open(b, at.slot, SB_RING_INTERESTED, &list)) {
    uint64_t position = 0;
    uint32_t node;
    while ((node = sb_nodes_next(c, &list, SB_NODE_INTERESTED, &position)) != 0) {
      sb_node_shm *shm = sb_slot_at(b, node);
      if (rescue) {
        (void)SB_OR(&shm->flags, SB_NODE_RESCUED, SB_SEQ_CST);
      }
      if (sb_node_move(c, node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED)) {
        sb_notify_node(b, node);
        return true;
      }
      if (sb_node_state(SB_LOAD(&shm->word, SB_SEQ_CST)) == SB_NODE_INTERESTED) {
        /* There is no memory to move the node, or another process moved it, and it is INTERESTED again by now. The node
         * is only woken, and no other node is notified. */
        sb_notify_node(b, node);
        return false;
      }
    }
    if (!rescue && SB_LOAD(&level->notified_count, SB_SEQ_CST) > 0) {
      return false; /* I32: a notified node of this level is at work; if it leaves early, it passes the baton (I31) */
    }
  }
  return false;
}

bool sb_notify_one(sb_connection *c, uint32_t queue, bool rescue) {
  return sb_notify_above(c, queue, INT64_MIN, rescue);
}

void sb_notify_browsers(sb_connection *c, uint32_t queue) {
  sb_ring list;
  uint64_t position = 0;
  uint32_t node;
  if (sb_ring_open(c->b, queue, SB_RING_NON_ACQUIRING, &list)) {
    while ((node = sb_nodes_next(c, &list, SB_NODE_NON_ACQUIRING, &position)) != 0) {
      sb_notify_node(c->b, node);
    }
  }
}

static bool paused(const sb_queue_shm *q) { return (SB_LOAD(&q->flags, SB_RELAXED) & SB_QUEUE_PAUSED) != 0; }

/* Notifies the NON_ACQUIRING nodes of one connection. True: there are others. */
static bool notify_nodes_of(sb_connection *c, uint32_t queue, unsigned connection) {
  bool others = false;
  sb_ring list;
  uint64_t position = 0;
  uint32_t node;
  if (!sb_ring_open(c->b, queue, SB_RING_NON_ACQUIRING, &list)) {
    return false;
  }
  while ((node = sb_nodes_next(c, &list, SB_NODE_NON_ACQUIRING, &position)) != 0) {
    if (sb_node_conn(SB_LOAD(&((sb_node_shm *)sb_slot_at(c->b, node))->word, SB_ACQUIRE)) == connection) {
      sb_notify_node(c->b, node);
    } else {
      others = true;
    }
  }
  return others;
}

static void notify_flagged(sb_connection *c, uint32_t queue, int64_t below) {
  sb_ring list;
  uint64_t position = 0;
  uint32_t node;
  if (!sb_ring_open(c->b, queue, SB_RING_ALL, &list)) {
    return;
  }
  while ((node = sb_nodes_next(c, &list, SB_STATE_ALL, &position)) != 0) {
    sb_node_shm *n = sb_slot_at(c->b, node);
    if (SB_LOAD(&n->priority, SB_RELAXED) < below && (SB_LOAD(&n->flags, SB_SEQ_CST) & SB_NODE_HELD_BACK) != 0) {
      (void)SB_AND(&n->flags, ~SB_NODE_HELD_BACK, SB_SEQ_CST);
      sb_notify_node(c->b, node);
    }
  }
}

void sb_notify_held_back(sb_connection *c, sb_queue_shm *q, uint32_t slot) {
  if (SB_LOAD(&q->held_back, SB_SEQ_CST) != 0 && SB_SWAP(&q->held_back, 0u, SB_SEQ_CST) != 0) {
    SB_CRASHPOINT("consumer.notify.held_back");
    notify_flagged(c, slot, INT64_MAX);
  }
}

void sb_notify_held_back_below(sb_queue *q, int32_t priority) {
  if (SB_LOAD(&q->shm->held_back, SB_SEQ_CST) != 0) notify_flagged(q->c, q->slot, priority);
}

/* A message became ready, perhaps before one that was ready; where groups are involved, perhaps by the end of a claim. */
SB_COLD void overtaken(sb_queue *q, bool ends_claim) {
  if (ends_claim || sb_queue_has_lanes(q) || sb_queue_is_sorted(q) || SB_LOAD(&q->shm->requeued, SB_SEQ_CST) != 0) {
    sb_notify_held_back(q->c, q->shm, q->slot);
  }
}

static void notify_interested(sb_queue *q) {
  if (SB_LOAD(&q->shm->interested, SB_SEQ_CST) > 0 && !paused(q->shm)) { /* P3: after the append */
    int32_t notified = SB_LOAD(&q->shm->notified, SB_SEQ_CST);
    if (notified <= 0 || sb_queue_ready(q->c->b, q->shm) > notified) {
      (void)sb_notify_one(q->c, q->slot, false);
    }
  }
}

void sb_notify_work_arrived(sb_queue *q) {
  if (SB_LOAD(&q->shm->held_back, SB_SEQ_CST) != 0) overtaken(q, q->groups != NULL); /* P39 of sb_window.h */
  if (SB_LOAD(&q->shm->non_acquiring, SB_SEQ_CST) > 0) {
    sb_notify_browsers(q->c, q->slot);
  }
  notify_interested(q);
}

void sb_notify_group_arrived(sb_queue *q, uint32_t hash) {
  sb_broker *b = q->c->b;
  if (SB_LOAD(&q->shm->held_back, SB_SEQ_CST) != 0) overtaken(q, false); /* P39 of sb_window.h */
  if (SB_LOAD(&q->shm->non_acquiring, SB_SEQ_CST) > 0) {                 /* P3: after the append */
    unsigned claimant = sb_groups_claimant(b, q->shm, hash);
    if (claimant == 0 ||
        (notify_nodes_of(q->c, q->slot, claimant) && !sb_groups_pass_for_others(b, q->shm, hash, claimant))) {
      sb_notify_browsers(q->c, q->slot);
    }
  }
  notify_interested(q);
}

void sb_notify_backlog_arrived(sb_queue *q) {
  sb_notify_held_back(q->c, q->shm, q->slot);
  if (SB_LOAD(&q->shm->non_acquiring, SB_SEQ_CST) > 0) {
    sb_notify_browsers(q->c, q->slot);
  }
  int64_t ready = paused(q->shm) ? 0 : sb_queue_ready(q->c->b, q->shm);
  for (int64_t n = ready; n > 0 && ready > SB_LOAD(&q->shm->notified, SB_SEQ_CST); n--) {
    if (SB_LOAD(&q->shm->interested, SB_SEQ_CST) <= 0 || !sb_notify_one(q->c, q->slot, false)) {
      break;
    }
  }
}

bool sb_notify_has_room_for(const sb_queue_shm *q, const sb_node_shm *n) {
  uint32_t count = SB_LOAD(&n->unacked, SB_RELAXED); /* 0: the node of a watch */
  uint64_t bytes = SB_LOAD(&n->prefetch, SB_RELAXED);
  if (count == 0) count = 1;
  return sb_limits_room(q, count, bytes) && !sb_turn_stops(q, count, bytes);
}

/* Wakes one producer that waits for room in the queue, or for memory (q NULL). At a queue, skips producers that need
 * more room than the queue has. */
static bool wake_one_of(sb_connection *c, const sb_ring *list, const sb_queue_shm *q) {
  uint64_t position = 0;
  uint32_t node;
  if (q != NULL && !sb_limits_room(q, 0, 0)) { /* stopped (sb_resume.h): nobody would find room */
    return false;
  }
  while ((node = sb_nodes_next(c, list, SB_NODE_INTERESTED, &position)) != 0) {
    sb_node_shm *shm = sb_slot_at(c->b, node);
    if (q != NULL && !sb_notify_has_room_for(q, shm)) {
      continue;
    }
    if (sb_node_move(c, node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED)) {
      sb_notify_node(c->b, node);
      return true;
    }
  }
  return false;
}

void sb_notify_room_in(sb_connection *c, sb_queue_shm *q, uint32_t slot) {
  sb_ring list;
  if (SB_LOAD(&q->room_waiting, SB_SEQ_CST) > 0 && sb_ring_open(c->b, slot, SB_RING_ROOM, &list)) {
    (void)wake_one_of(c, &list, q);
  }
}

void sb_notify_room_made(sb_connection *c, sb_queue_shm *q, uint32_t slot) {
  sb_ring list;
  if (q != NULL) {
    sb_notify_room_in(c, q, slot);
    if (SB_LOAD(&q->held_back, SB_SEQ_CST) != 0)
      sb_notify_held_back(c, q, slot); /* P39 of sb_window.h: after the take */
  }
  if (SB_LOAD(&c->b->header->memory_waiting, SB_SEQ_CST) != 0 && sb_ring_open(c->b, 0, SB_RING_MEMORY, &list)) {
    (void)wake_one_of(c, &list, NULL);
  }
}

void sb_notify_ended(sb_queue *q) {
  if (!q->ended_some) {
    return;
  }
  q->ended_some = false;
  sb_notify_room_made(q->c, q->shm, q->slot);
}

void sb_notify_wake_all(sb_connection *c, uint32_t queue) {
  sb_broker *b = c->b;
  sb_ring list;
  uint64_t position = 0;
  uint32_t node;
  if (sb_ring_open(b, queue, SB_RING_ALL, &list)) {
    while ((node = sb_nodes_next(c, &list, SB_STATE_ALL, &position)) != 0) {
      sb_notify_node(b, node);
    }
  }
  if (sb_ring_open(b, queue, SB_RING_ROOM, &list)) {
    /* A producer that enters the list later sees by itself that the queue was closed or its settings changed. */
    uint64_t end = sb_ring_exact_tail(b, &list);
    for (position = 0; (node = sb_nodes_next(c, &list, SB_NODE_INTERESTED, &position)) != 0 && position <= end;) {
      if (sb_node_move(c, node, SB_IN(SB_NODE_INTERESTED), SB_NODE_NOTIFIED)) sb_notify_node(b, node);
    }
  }
}

bool sb_notify_looks_ready(sb_queue *q) { return !paused(q->shm) && sb_queue_is_open(q) && sb_queue_looks_ready(q); }

/* I31: the caller has moved its own node; or it had no memory to do so, and takes nothing. */
void sb_notify_pass_baton(sb_queue *q) {
  /* the caller's node had credit, for which the queue may have kept messages (sb_takers.h) */
  if (sb_limits_hand_over(q->shm)) (void)sb_limits_enforce(q);
  if (SB_LOAD(&q->shm->interested, SB_SEQ_CST) > 0) {
    if (sb_notify_looks_ready(q)) (void)sb_notify_one(q->c, q->slot, false);
  } else if (SB_LOAD(&q->shm->non_acquiring, SB_SEQ_CST) > 0) {
    sb_notify_browsers(q->c, q->slot); /* choosy consumers may have given way to the caller's node */
  }
}

static bool anybody_above(sb_connection *c, const sb_queue_shm *q, int32_t priority) {
  sb_level_cursor at = sb_levels_of(q);
  sb_consumer_level_shm *level;
  while ((level = sb_level_next(c->b, &at)) != NULL && SB_LOAD(&level->priority, SB_RELAXED) > priority) {
    sb_ring list;
    uint64_t position = 0, other = 0;
    if ((sb_ring_open(c->b, at.slot, SB_RING_INTERESTED, &list) &&
         sb_nodes_next(c, &list, SB_NODE_INTERESTED, &position) != 0) ||
        (sb_ring_open(c->b, at.slot, SB_RING_NOTIFIED, &list) &&
         sb_nodes_next(c, &list, SB_NODE_NOTIFIED, &other) != 0)) {
      return true;
    }
  }
  return false;
}

/* Reads the counts first. A death may have left a count too high, so if the counts say yes, the lists decide. */
bool sb_notify_better_wants(const sb_queue *q, int32_t priority) {
  return sb_notify_higher_wants(q->c->b, q->shm, priority) && anybody_above(q->c, q->shm, priority);
}
