// SPDX-License-Identifier: Apache-2.0
#include "sb_waits.h"

#include "sb_paged.h"
#include "sb_wait.h"

#define BITS_SEEN 4096u /* `requeued` bits that a look follows: most lead to messages that are ready */

/* ---- what a consumer of any message finds ---- */

static bool is_ready(uint64_t word, uint64_t gen) {
  unsigned state = sb_cell_state(word);
  return sb_cell_of(word, gen) && (state == SB_CELL_AVAILABLE || state == SB_CELL_FROZEN);
}

/* The messages that returned, before the head. */
static sb_waits_for look_behind(sb_broker *b, const sb_ring *r) {
  uint64_t from = 0, at;
  sb_leaf_ref leaf;
  for (unsigned seen = 0; seen < BITS_SEEN && SB_LOAD(r->requeued, SB_RELAXED) != 0; seen++) {
    if (!sb_requeued_next(b, r, from, &leaf, &at)) break;
    if (leaf.leaf == NULL) return SB_WAITS_LOAD;
    if (is_ready(SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_ACQUIRE), leaf.gen)) return SB_WAITS_DISPATCH;
    from = at + 1;
  }
  return SB_WAITS_PRODUCER;
}

static sb_waits_for look_in(sb_broker *b, const sb_ring *r) {
  sb_waits_for behind = look_behind(b, r);
  sb_leaf_ref leaf;
  uint64_t at = SB_LOAD(r->head, SB_ACQUIRE);
  sb_status status;
  unsigned retries = 0;
  if (behind != SB_WAITS_PRODUCER) {
    return behind;
  }
  while ((status = sb_ring_find_leaf(b, r, at, &leaf, &at)) == SB_OK) {
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_ACQUIRE);
      if (is_ready(word, leaf.gen)) return SB_WAITS_DISPATCH;
      if (!sb_cell_of(word, leaf.gen)) { /* the page was reused */
        if (++retries > SB_MAX_RETRIES) return SB_WAITS_PRODUCER;
        break;
      }
      if (sb_cell_state(word) == SB_CELL_FREE || sb_cell_state(word) == SB_CELL_CLOSED) return SB_WAITS_PRODUCER;
    }
  }
  return status == SB_PAGED ? SB_WAITS_LOAD : SB_WAITS_PRODUCER;
}

sb_waits_for sb_waits_look(sb_broker *b, uint32_t queue) {
  sb_waits_for found = SB_WAITS_PRODUCER;
  sb_ring r;
  for (sb_lanes_walk all = sb_lanes_of(b, queue); found == SB_WAITS_PRODUCER && sb_lanes_next(&all, &r);)
    found = look_in(b, &r);
  return found;
}

/* ---- what a consumer waits for ---- */

/* True if the node takes by a search that chooses (sb_subscription_take_now), and so notes how the search ended. */
static bool chooses(const sb_queue_shm *q, const sb_node_shm *n, unsigned state) {
  bool rivals = SB_LOAD(&q->non_acquiring, SB_RELAXED) > 0 &&
                SB_LOAD(&q->consumer_levels, SB_ACQUIRE) != SB_LOAD(&n->level, SB_RELAXED);
  return SB_LOAD(&n->searched, SB_RELAXED) != 0 && (state == SB_NODE_NON_ACQUIRING || rivals);
}

/* True if the message that its last search needed is still in the store only. */
static bool needs_load(sb_broker *b, uint32_t queue, const sb_node_shm *n) {
  uint64_t away = SB_LOAD(&n->away, SB_RELAXED), link;
  sb_ring r;
  return away != 0 && sb_lanes_ring(b, queue, away - 1, &r) && sb_paged_is_at(b, &r, away - 1, &link);
}

sb_waits_for sb_waits_of(sb_broker *b, uint32_t queue, const sb_node_shm *n, sb_waits_for plain) {
  const sb_queue_shm *q = sb_slot_at(b, queue);
  unsigned state = sb_node_state(SB_LOAD(&n->word, SB_ACQUIRE));
  bool held = (SB_LOAD(&n->flags, SB_RELAXED) & (SB_NODE_STANDBY | SB_NODE_GATED)) != 0;
  if (state == SB_NODE_NOT_INTERESTED) {
    return held ? plain : SB_WAITS_CONSUMER;
  }
  if (!chooses(q, n, state)) {
    return plain;
  }
  if (needs_load(b, queue, n)) {
    return SB_WAITS_LOAD;
  }
  bool called = state == SB_NODE_NOTIFIED || SB_LOAD(&n->flagged, SB_RELAXED) != 0;
  return called || SB_LOAD(&n->searched, SB_RELAXED) != SB_SEARCHED_ALL ? SB_WAITS_DISPATCH : SB_WAITS_PRODUCER;
}

bool sb_waits_reached(sb_broker *b, uint32_t queue, const sb_node_shm *n, uint64_t *position) {
  const sb_queue_shm *q = sb_slot_at(b, queue);
  sb_ring r;
  uint64_t reached = SB_LOAD(&n->reached, SB_RELAXED);
  bool plain = SB_LOAD(&n->searched, SB_RELAXED) == 0;
  if (plain) reached = sb_lanes_several(q) ? 0 : SB_LOAD(&q->head, SB_ACQUIRE) + 1;
  *position = reached - 1;
  return reached != 0 && sb_lanes_ring(b, queue, *position, &r) && *position >= SB_LOAD(r.base, SB_RELAXED);
}

bool sb_waits_watermark(sb_broker *b, uint32_t queue, uint64_t from, uint64_t *position) {
  sb_ring r;
  sb_leaf_ref leaf;
  sb_status status = SB_EMPTY;
  if (!sb_lanes_ring(b, queue, from, &r) || r.changed == NULL) {
    return false;
  }
  *position = from;
  for (unsigned n = 0; n < SB_WAITS_REACH; n++) {
    status = sb_ring_find_leaf(b, &r, *position, &leaf, position);
    if (status != SB_OK) break;
    *position = leaf.first + SB_PAGE_CELLS;
  }
  return status == SB_PAGED;
}

/* ---- progress ---- */

static bool is_pending(sb_waits_for waits) { return waits == SB_WAITS_LOAD || waits == SB_WAITS_DISPATCH; }

/* A sum that changes if the consumer does something; if it shares the head, also if any consumer takes a message. */
static uint64_t deeds_of(const sb_queue_shm *q, const sb_node_shm *n) {
  bool own = chooses(q, n, sb_node_state(SB_LOAD(&n->word, SB_ACQUIRE)));
  uint64_t place = own ? SB_LOAD(&n->reached, SB_RELAXED) : SB_LOAD(&q->last_take, SB_RELAXED);
  uint64_t sum = SB_LOAD(&n->delivered, SB_RELAXED);
  sum = sum * UINT64_C(0x9e3779b97f4a7c15) + SB_LOAD(&n->unacked, SB_RELAXED);
  return sum * UINT64_C(0x9e3779b97f4a7c15) + place;
}

uint64_t sb_waits_still_ns(const sb_queue_shm *q, const sb_node_shm *n, sb_waits_for waits) {
  bool interested = sb_node_state(SB_LOAD(&n->word, SB_ACQUIRE)) != SB_NODE_NOT_INTERESTED;
  return interested && is_pending(waits) && SB_LOAD(&n->looked, SB_RELAXED) == deeds_of(q, n)
             ? SB_LOAD(&n->still_ns, SB_RELAXED)
             : 0;
}

/* A consumer that has credit, and waits for something that somebody else than it, its application and a producer does. */
static bool is_watched(sb_broker *b, uint32_t queue, const sb_node_shm *n, sb_waits_for plain) {
  unsigned state = sb_node_state(SB_LOAD(&n->word, SB_ACQUIRE));
  return (SB_LOAD(&n->flags, SB_RELAXED) & SB_NODE_COUNTED) != 0 && state != SB_NODE_REMOVED &&
         state != SB_NODE_NOT_INTERESTED && is_pending(sb_waits_of(b, queue, n, plain));
}

static void watch_one(const sb_queue_shm *q, sb_node_shm *n, bool anew, uint64_t now, sb_waits_watched *found) {
  uint64_t deeds = deeds_of(q, n), since = SB_LOAD(&n->still_ns, SB_RELAXED);
  bool same = SB_LOAD(&n->looked, SB_RELAXED) == deeds;
  if (!same) {
    SB_STORE(&n->told, 0, SB_RELAXED);
    SB_STORE(&n->looked, deeds, SB_RELAXED);
  }
  if (!same || anew || since == 0) {
    since = now;
    SB_STORE(&n->still_ns, now, SB_RELAXED);
  }
  bool told = SB_LOAD(&n->told, SB_RELAXED) != 0;
  found->still++;
  found->told += told;
  if (!told && (found->next_ns == 0 || since < found->next_ns)) found->next_ns = since;
}

sb_waits_watched sb_waits_watch(sb_connection *by, uint32_t queue, bool anew) {
  sb_waits_watched found = {0, 0, 0};
  const sb_queue_shm *q = sb_slot_at(by->b, queue);
  sb_waits_for plain = sb_waits_look(by->b, queue);
  uint64_t position = 0, now = sb_now_ns();
  uint32_t node;
  sb_ring list;
  if (!sb_ring_open(by->b, queue, SB_RING_ALL, &list)) {
    return found;
  }
  while ((node = sb_nodes_next(by, &list, SB_STATE_ALL, &position)) != 0) {
    sb_node_shm *n = sb_slot_at(by->b, node);
    if (is_watched(by->b, queue, n, plain)) {
      watch_one(q, n, anew, now, &found);
    } else if (SB_LOAD(&n->still_ns, SB_RELAXED) != 0) {
      SB_STORE(&n->still_ns, 0, SB_RELAXED);
    }
  }
  return found;
}

uint32_t sb_waits_tell(sb_connection *by, uint32_t queue, uint64_t until_ns) {
  const sb_queue_shm *q = sb_slot_at(by->b, queue);
  sb_waits_for plain = sb_waits_look(by->b, queue);
  uint64_t position = 0;
  uint32_t node = 0;
  sb_ring list;
  while (sb_ring_open(by->b, queue, SB_RING_ALL, &list) &&
         (node = sb_nodes_next(by, &list, SB_STATE_ALL, &position)) != 0) {
    sb_node_shm *n = sb_slot_at(by->b, node);
    uint64_t since =
        is_watched(by->b, queue, n, plain) ? sb_waits_still_ns(q, n, sb_waits_of(by->b, queue, n, plain)) : 0;
    if (since != 0 && since <= until_ns && SB_LOAD(&n->told, SB_RELAXED) == 0) {
      SB_STORE(&n->told, 1, SB_RELAXED);
      return node;
    }
  }
  return 0;
}
