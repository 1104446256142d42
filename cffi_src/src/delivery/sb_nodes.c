// SPDX-License-Identifier: Apache-2.0
#include "sb_nodes.h"

#include "sb_chunk.h"
#include "sb_slab.h"
#include "sb_wait.h"

/* The most levels (priorities) of a queue. Connections that add levels at the same moment may exceed this number, but
 * not SB_MAX_LEVELS, unless more than 2,048 of them do so. */
#define MOST_LEVELS 2048u

sb_node_shm *sb_node_at(sb_broker *b, uint32_t slot) { return sb_slab_object(b, slot, SB_KIND_NODE); }

sb_consumer_level_shm *sb_consumer_level_at(sb_broker *b, uint32_t slot) {
  return sb_slab_object(b, slot, SB_KIND_CONSUMER_LEVEL);
}

/* ---- which list ---- */

static bool list_of(sb_broker *b, const sb_node_shm *n, unsigned state, sb_ring *list) {
  uint32_t queue = SB_LOAD(&n->queue, SB_RELAXED), flags = SB_LOAD(&n->flags, SB_RELAXED);
  if ((flags & SB_NODE_ROOM) != 0) {
    if (state != SB_NODE_INTERESTED) {
      return false;
    }
    return (flags & SB_NODE_MEMORY) != 0 ? sb_ring_open(b, 0, SB_RING_MEMORY, list)
                                         : sb_ring_open(b, queue, SB_RING_ROOM, list);
  }
  switch (state) {
    case SB_NODE_NOT_INTERESTED: return sb_ring_open(b, queue, SB_RING_NOT_INTERESTED, list);
    case SB_NODE_NON_ACQUIRING: return sb_ring_open(b, queue, SB_RING_NON_ACQUIRING, list);
    case SB_NODE_INTERESTED: return sb_ring_open(b, SB_LOAD(&n->level, SB_RELAXED), SB_RING_INTERESTED, list);
    case SB_NODE_NOTIFIED: return sb_ring_open(b, SB_LOAD(&n->level, SB_RELAXED), SB_RING_NOTIFIED, list);
    case SB_STATE_ALL: return sb_ring_open(b, queue, SB_RING_ALL, list);
    default: return false;
  }
}

static sb_status append(sb_connection *c, const sb_node_shm *n, uint32_t slot, unsigned state, uint32_t epoch) {
  sb_ring list;
  if (!list_of(c->b, n, state, &list)) {
    return SB_OK; /* a state without a list */
  }
  sb_leaf_ref cache = SB_NO_LEAF;
  uint64_t position = 0;
  return sb_ring_append(c, &list, &cache, sb_entry_word(slot, epoch), SB_APPEND_ENTRY, NULL, &position);
}

/* Adds `by` to the queue's counter of nodes in `state`; for INTERESTED and NOTIFIED, also to the counter of the node's
 * level. The counter for NOT_INTERESTED counts only consumers. Nodes that wait for room have a counter of their own in
 * the queue, those that wait for memory one in the broker's header; both count only INTERESTED nodes. */
static void count(sb_broker *b, const sb_node_shm *n, unsigned state, int32_t by) {
  uint32_t flags = SB_LOAD(&n->flags, SB_RELAXED);
  if ((flags & SB_NODE_MEMORY) != 0) {
    if (state == SB_NODE_INTERESTED) (void)SB_ADD(&b->header->memory_waiting, (uint32_t)by, SB_SEQ_CST);
    return;
  }
  sb_queue_shm *q = sb_slab_queue(b, SB_LOAD(&n->queue, SB_RELAXED));
  if (q == NULL) {
    return; /* no queue to count in: the node is that of an IO thread, or is damaged */
  }
  if ((flags & SB_NODE_ROOM) != 0) {
    if (state == SB_NODE_INTERESTED) (void)SB_ADD(&q->room_waiting, by, SB_SEQ_CST);
    return;
  }
  sb_consumer_level_shm *level = sb_consumer_level_at(b, SB_LOAD(&n->level, SB_RELAXED));
  if (level == NULL) {
    return;
  }
  switch (state) {
    case SB_NODE_NOT_INTERESTED:
      if ((flags & SB_NODE_COUNTED) != 0) (void)SB_ADD(&q->not_interested, by, SB_SEQ_CST);
      break;
    case SB_NODE_INTERESTED:
      (void)SB_ADD(&level->interested_count, by, SB_SEQ_CST);
      (void)SB_ADD(&q->interested, by, SB_SEQ_CST);
      break;
    case SB_NODE_NOTIFIED:
      (void)SB_ADD(&level->notified_count, by, SB_SEQ_CST);
      (void)SB_ADD(&q->notified, by, SB_SEQ_CST);
      break;
    case SB_NODE_NON_ACQUIRING: (void)SB_ADD(&q->non_acquiring, by, SB_SEQ_CST); break;
    default: break;
  }
}

bool sb_node_move(sb_connection *c, uint32_t slot, unsigned from, unsigned to) {
  sb_broker *b = c->b;
  sb_node_shm *n = sb_node_at(b, slot);
  if (n == NULL) {
    return false;
  }
  uint64_t word = SB_LOAD(&n->word, SB_SEQ_CST);
  for (;;) {
    unsigned state = sb_node_state(word);
    if ((SB_IN(state) & from) == 0) {
      return false;
    }
    if (append(c, n, slot, to, sb_node_epoch(word) + 1) != SB_OK) { /* I27 */
      return false;
    }
    SB_CRASHPOINT("nodes.move.appended");
    if (to == SB_NODE_INTERESTED) count(b, n, to, 1); /* I29 */
    if (state == SB_NODE_NOTIFIED) count(b, n, state, -1);
    if (SB_CAS(&n->word, &word, sb_node_word(to, sb_node_conn(word), sb_node_epoch(word) + 1), SB_SEQ_CST)) {
      SB_CRASHPOINT("nodes.move.moved");
      if (to != SB_NODE_INTERESTED) count(b, n, to, 1);
      if (state != SB_NODE_NOTIFIED) count(b, n, state, -1);
      return true;
    }
    if (to == SB_NODE_INTERESTED) count(b, n, to, -1);
    if (state == SB_NODE_NOTIFIED) count(b, n, state, 1);
  }
}

/* ---- create, destroy ---- */

/* True if the queue may get no more levels. A walk ends after SB_MAX_LEVELS levels, so consumers of a later level would
 * never be notified. */
static bool has_most_levels(sb_broker *b, const sb_queue_shm *q) {
  sb_level_cursor at = sb_levels_of(q);
  uint32_t n = 0;
  while (n < MOST_LEVELS && sb_level_next(b, &at) != NULL) n++;
  return n == MOST_LEVELS;
}

sb_status sb_consumer_level_of(sb_connection *c, uint32_t queue, int32_t priority, uint32_t *slot) {
  sb_broker *b = c->b;
  sb_queue_shm *q = sb_slot_at(b, queue);
  uint64_t token = 0, gen = 0;
  uint32_t fresh = 0;
  for (unsigned tries = 0; tries < SB_MAX_LEVELS; tries++) {
    sb_half *link = &q->consumer_levels;
    uint32_t at = SB_LOAD(link, SB_ACQUIRE);
    for (uint32_t n = 0; at != 0 && n < SB_MAX_LEVELS; n++) { /* by descending priority; insert only */
      sb_consumer_level_shm *level = sb_consumer_level_at(b, at);
      if (level == NULL) {
        return SB_CORRUPT;
      }
      int32_t p = SB_LOAD(&level->priority, SB_RELAXED);
      if (p <= priority) {
        break;
      }
      link = &level->next;
      at = SB_LOAD(link, SB_ACQUIRE);
    }
    if (sb_consumer_level_at(b, at) != NULL &&
        SB_LOAD(&sb_consumer_level_at(b, at)->priority, SB_RELAXED) == priority) {
      if (fresh != 0) {
        (void)sb_slab_free_gen(b, fresh, gen);
        sb_holding_give(c, token);
      }
      *slot = at;
      return SB_OK;
    }
    if (fresh == 0) {
      sb_status status =
          has_most_levels(b, q) ? SB_LIMIT : sb_holding_object(c, SB_KIND_CONSUMER_LEVEL, &token, &fresh, &gen);
      if (status != SB_OK) {
        return status;
      }
      sb_consumer_level_shm *level = sb_slot_at(b, fresh);
      SB_STORE(&level->priority, priority, SB_RELAXED);
      SB_STORE(&level->queue, queue, SB_RELAXED);
      SB_STORE(&level->interested_count, 0, SB_RELAXED);
      SB_STORE(&level->notified_count, 0, SB_RELAXED);
    }
    SB_STORE(&((sb_consumer_level_shm *)sb_slot_at(b, fresh))->next, at, SB_RELAXED);
    if (SB_CAS(link, &at, fresh, SB_ACQ_REL)) {
      SB_CRASHPOINT("nodes.level.linked");
      uint64_t mine = sb_slot_word(SB_SLOT_ALLOC, c->id, gen);
      (void)SB_CAS(sb_slot_header(b, fresh), &mine, sb_slot_word(SB_SLOT_PUBLISHED, 1, gen), SB_ACQ_REL);
      sb_holding_give(c, token);
      *slot = fresh;
      return SB_OK;
    }
  }
  return SB_CORRUPT;
}

sb_status sb_node_create(sb_connection *c, uint32_t queue, int32_t priority, uint32_t flags, uint32_t target,
                         uint32_t prefetch, uint32_t *slot, uint64_t *token) {
  sb_broker *b = c->b;
  uint32_t level = 0;
  uint64_t gen;
  sb_status status = (flags & SB_NODE_ROOM) != 0 ? SB_OK : sb_consumer_level_of(c, queue, priority, &level);
  if (status == SB_OK) {
    status = sb_holding_object(c, SB_KIND_NODE, token, slot, &gen);
    /* While a connection keeps a hint word of node slots, other connections cannot find the 64 slots of the word (16
     * KiB). A connection creates few nodes, so it returns the word at once. */
    sb_slab_return_class(c, sb_class_of_kind(b, SB_KIND_NODE));
  }
  if (status != SB_OK) {
    return status;
  }
  sb_node_shm *n = sb_slot_at(b, *slot);
  uint64_t word = SB_LOAD(&n->word, SB_ACQUIRE); /* REMOVED, with the epoch of the slot's last node */
  SB_STORE(&n->queue, queue, SB_RELAXED);
  SB_STORE(&n->level, level, SB_RELAXED);
  SB_STORE(&n->flags, flags, SB_RELAXED);
  SB_STORE(&n->target, target, SB_RELAXED);
  SB_STORE(&n->waiter, *slot, SB_RELAXED);
  SB_STORE(&n->prefetch, prefetch, SB_RELAXED);
  SB_STORE(&n->prefetch_bytes, 0, SB_RELAXED);
  SB_STORE(&n->unacked, 0u, SB_RELAXED);
  SB_STORE(&n->priority, priority, SB_RELAXED);
  SB_STORE(&n->delivered, 0, SB_RELAXED);
  SB_STORE(&n->wakes, 0, SB_RELAXED);
  SB_STORE(&n->flagged, 0, SB_RELAXED);
  SB_STORE(&n->created_ns, sb_wall_ns(), SB_RELAXED);
  SB_STORE(&n->pid, (uint32_t)SB_LOAD(&b->processes[b->process].pid, SB_RELAXED), SB_RELAXED);
  SB_STORE(&n->registration, sb_node_epoch(word) + 1, SB_RELAXED);
  SB_STORE(&n->channel, 0u, SB_RELAXED);
  SB_STORE(&n->attached_ns, 0, SB_RELAXED);
  SB_STORE(&n->wish, 0u, SB_RELAXED);
  SB_STORE(&n->searched, 0, SB_RELAXED);
  SB_STORE(&n->reached, 0, SB_RELAXED);
  SB_STORE(&n->away, 0, SB_RELAXED);
  SB_STORE(&n->looked, 0, SB_RELAXED);
  SB_STORE(&n->still_ns, 0, SB_RELAXED);
  SB_STORE(&n->told, 0, SB_RELAXED);
  SB_STORE(&n->ticket, 0, SB_RELEASE); /* release: a walk that reads it sees that the slot's last node is REMOVED */
  uint64_t named = sb_node_word(SB_NODE_REMOVED, c->id, sb_node_epoch(word));
  SB_STORE(&n->word, named, SB_RELEASE);
  if ((flags & SB_NODE_ROOM) == 0) {
    status = append(c, n, *slot, SB_STATE_ALL, sb_node_epoch(word) + 1);
  }
  if (status == SB_OK && !sb_node_move(c, *slot, SB_IN(SB_NODE_REMOVED), SB_NODE_NOT_INTERESTED)) {
    status = sb_chunk_may_grow(b) ? SB_GROW : SB_NO_MEMORY; /* no memory to list the node as NOT_INTERESTED */
  }
  if (status == SB_OK && (flags & SB_NODE_COUNTED) != 0) {
    (void)SB_ADD(&((sb_queue_shm *)sb_slot_at(b, queue))->consumers, 1, SB_SEQ_CST);
  }
  if (status != SB_OK) {
    SB_STORE(&n->word, sb_node_word(SB_NODE_REMOVED, 0, sb_node_epoch(SB_LOAD(&n->word, SB_RELAXED)) + 2), SB_RELEASE);
    (void)sb_slab_free_gen(b, *slot, gen);
    sb_holding_give(c, *token);
  }
  return status;
}

/* True if the node keeps an expiring queue in use (sb_lifetime.h): it is that of a consumer, or of a get that waits or
 * an armed watch. A get or a watch that ends makes its node NOT_INTERESTED before the node is destroyed, so at that
 * time only the node of one whose process was killed still keeps the queue in use. */
static bool keeps_queue(const sb_node_shm *n) {
  uint32_t flags = SB_LOAD(&n->flags, SB_RELAXED);
  unsigned state = sb_node_state(SB_LOAD(&n->word, SB_SEQ_CST));
  bool waits = state == SB_NODE_INTERESTED || state == SB_NODE_NOTIFIED;
  return state != SB_NODE_REMOVED && ((flags & SB_NODE_COUNTED) != 0 || (waits && (flags & SB_NODE_ROOM) == 0));
}

void sb_node_destroy(sb_connection *c, uint32_t slot, uint64_t token) {
  sb_broker *b = c->b;
  sb_node_shm *n = sb_node_at(b, slot);
  if (n == NULL) {
    return;
  }
  uint32_t flags = SB_LOAD(&n->flags, SB_RELAXED);
  sb_queue_shm *q = sb_slab_queue(b, SB_LOAD(&n->queue, SB_RELAXED));
  if (q != NULL && keeps_queue(n)) {
    SB_STORE(&q->used_ns, sb_now_ns(), SB_RELAXED); /* the queue was used until now; stored before a count falls */
  }
  bool was = sb_node_move(c, slot, SB_ANY_STATE, SB_NODE_REMOVED);
  if (was && (flags & SB_NODE_COUNTED) != 0 && q != NULL) {
    (void)SB_SUB(&q->consumers, 1, SB_SEQ_CST);
  }
  /* A node that was not moved is that of an IO thread, which is in no list; or its owner was killed while it registered
   * the node, and may have appended an entry of the next epoch. The epoch rises by two, which makes that entry dead. */
  if (!was) {
    SB_STORE(&n->word, sb_node_word(SB_NODE_REMOVED, 0, sb_node_epoch(SB_LOAD(&n->word, SB_RELAXED)) + 2), SB_RELEASE);
  }
  sb_slab_free_now(b, slot);
  if (token != 0) {
    sb_holding_give(c, token);
  }
}

/* ---- iterating ---- */

enum { ENTRY_DEAD, ENTRY_PENDING, ENTRY_LIVE };

static int judge(sb_broker *b, uint64_t entry, unsigned state) {
  sb_node_shm *n = sb_node_at(b, sb_cell_slot(entry));
  if (n == NULL) {
    return ENTRY_DEAD;
  }
  uint64_t word = SB_LOAD(&n->word, SB_SEQ_CST);
  uint32_t epoch = (uint32_t)(entry >> 32);
  if (state == SB_STATE_ALL) {
    if (SB_LOAD(&n->registration, SB_RELAXED) != epoch) {
      return ENTRY_DEAD;
    }
    if (sb_node_state(word) != SB_NODE_REMOVED) {
      return ENTRY_LIVE;
    }
    return sb_node_epoch(word) + 1 == epoch ? ENTRY_PENDING : ENTRY_DEAD;
  }
  if (sb_node_epoch(word) == epoch) {
    return sb_node_state(word) == state ? ENTRY_LIVE : ENTRY_DEAD;
  }
  return sb_node_epoch(word) + 1 == epoch ? ENTRY_PENDING : ENTRY_DEAD;
}

uint32_t sb_nodes_next(sb_connection *c, const sb_ring *list, unsigned state, uint64_t *position) {
  sb_broker *b = c->b;
  uint64_t head = SB_LOAD(list->head, SB_ACQUIRE), at = *position > head ? *position : head;
  bool clean = *position <= head; /* while true, all entries from the head to `at` are dead: the head may advance */
  sb_leaf_ref leaf;
  while (sb_ring_next_leaf(b, list, at, &leaf, &at)) {
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST);
      int verdict = sb_cell_state(word) == SB_CELL_ENTRY ? judge(b, word, state) : ENTRY_DEAD;
      if (!sb_leaf_is_current(b, &leaf)) {
        break; /* the page was reused, perhaps by another list: find the leaf again */
      }
      if (sb_cell_state(word) == SB_CELL_FREE || !sb_cell_of(word, leaf.gen)) {
        if (clean) sb_ring_advance(list->head, head, at);
        return 0;
      }
      if (verdict == ENTRY_LIVE) {
        if (clean) sb_ring_advance(list->head, head, at);
        *position = at + 1;
        return sb_cell_slot(word);
      }
      if (verdict == ENTRY_PENDING) {
        if (clean) sb_ring_advance(list->head, head, at);
        clean = false;
      } else if (sb_cell_state(word) == SB_CELL_ENTRY) {
        (void)sb_ring_drop(c, list, &leaf, at, word);
      }
    }
  }
  if (clean) sb_ring_advance(list->head, head, at);
  return 0;
}

/* As sb_nodes_next, for a caller that only counts: drops no entry. Returns 0 at the end of the list. */
static uint32_t next_live(sb_broker *b, const sb_ring *list, unsigned state, uint64_t *position) {
  sb_leaf_ref leaf;
  uint64_t at = *position;
  while (sb_ring_next_leaf(b, list, at, &leaf, &at)) {
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST);
      bool live = sb_cell_state(word) == SB_CELL_ENTRY && judge(b, word, state) == ENTRY_LIVE;
      if (!sb_leaf_is_current(b, &leaf)) {
        break;
      }
      if (live) {
        *position = at + 1;
        return sb_cell_slot(word);
      }
      if (sb_cell_state(word) == SB_CELL_FREE || !sb_cell_of(word, leaf.gen)) {
        return 0;
      }
    }
  }
  return 0;
}

static uint64_t mixed(uint64_t seen, uint64_t value) { return (seen ^ value) * UINT64_C(0x9e3779b97f4a7c15); }

/* Corrects `hint` if it differs from `counted`, the number that the lists show. If the error can only cost an extra
 * wake, only SB_RECOUNT_ALL corrects it, since a process that runs may have changed the hint, and may be about to move
 * the node (I29). An error that could suppress a wake is also corrected by SB_RECOUNT_HARMFUL. */
static void correct(_Atomic int32_t *hint, int32_t counted, bool high_is_harmless, sb_recount how, sb_recounted *n) {
  int32_t is = SB_LOAD(hint, SB_SEQ_CST);
  n->seen = mixed(mixed(n->seen, (uint32_t)is), (uint32_t)counted);
  if (is == counted) {
    return;
  }
  n->right = false;
  if (how == SB_RECOUNT_ALL || (how == SB_RECOUNT_HARMFUL && (is < counted) == high_is_harmless)) {
    n->mended = SB_CAS(hint, &is, counted, SB_SEQ_CST) || n->mended;
  }
}

sb_census sb_nodes_census(sb_broker *b, const sb_ring *list, unsigned state, uint32_t level) {
  sb_census of = {.seen = 0};
  uint64_t at = 0;
  uint32_t slot;
  while ((slot = next_live(b, list, state, &at)) != 0) {
    const sb_node_shm *node = sb_slot_at(b, slot);
    uint64_t word = SB_LOAD(&node->word, SB_SEQ_CST);
    bool counts = (SB_LOAD(&node->flags, SB_RELAXED) & SB_NODE_COUNTED) != 0;
    of.seen = mixed(of.seen, word);
    if (level != 0 && SB_LOAD(&node->level, SB_RELAXED) != level) {
      continue;
    }
    of.all[sb_node_state(word)]++;
    of.all[SB_STATE_ALL]++;
    of.counted[sb_node_state(word)] += counts;
    of.counted[SB_STATE_ALL] += counts;
  }
  return of;
}

sb_recounted sb_nodes_recount(sb_broker *b, uint32_t queue, sb_recount how) {
  sb_queue_shm *q = sb_slot_at(b, queue);
  sb_ring all, waiting;
  sb_recounted found = {.right = true};
  if (!sb_ring_open(b, queue, SB_RING_ALL, &all) || !sb_ring_open(b, queue, SB_RING_ROOM, &waiting)) {
    return found;
  }
  sb_level_cursor at = sb_levels_of(q);
  sb_consumer_level_shm *level;
  /* Corrects the counts of the levels, too: while `notified_count` of a level is too high, no producer notifies a node
   * of a lower priority (I32 of sb_notify.h). */
  while ((level = sb_level_next(b, &at)) != NULL) {
    sb_census there = sb_nodes_census(b, &all, SB_STATE_ALL, at.slot);
    correct(&level->interested_count, there.all[SB_NODE_INTERESTED], true, how, &found);
    correct(&level->notified_count, there.all[SB_NODE_NOTIFIED], false, how, &found);
  }
  sb_census everywhere = sb_nodes_census(b, &all, SB_STATE_ALL, 0);
  sb_census room = sb_nodes_census(b, &waiting, SB_NODE_INTERESTED, 0);
  correct(&q->interested, everywhere.all[SB_NODE_INTERESTED], true, how, &found);
  correct(&q->notified, everywhere.all[SB_NODE_NOTIFIED], false, how, &found);
  correct(&q->not_interested, everywhere.counted[SB_NODE_NOT_INTERESTED], true, how, &found);
  correct(&q->non_acquiring, everywhere.all[SB_NODE_NON_ACQUIRING], true, how, &found);
  correct(&q->consumers, everywhere.counted[SB_STATE_ALL], true, how, &found);
  correct(&q->room_waiting, room.all[SB_STATE_ALL], true, how, &found);
  found.seen = mixed(mixed(found.seen, everywhere.seen), room.seen);
  return found;
}

void sb_nodes_recount_memory(sb_connection *c) {
  sb_half *hint = &c->b->header->memory_waiting;
  sb_ring waiting;
  if (!sb_ring_open(c->b, 0, SB_RING_MEMORY, &waiting)) {
    return;
  }
  uint32_t is = SB_LOAD(hint, SB_SEQ_CST);
  sb_census there = sb_nodes_census(c->b, &waiting, SB_NODE_INTERESTED, 0);
  uint32_t counted = (uint32_t)there.all[SB_STATE_ALL];
  uint64_t seen = is == counted ? 0 : mixed(mixed(there.seen, is), counted);
  bool wrong_twice = seen != 0 && seen == c->memory_miscounted;
  if (wrong_twice) (void)SB_CAS(hint, &is, counted, SB_SEQ_CST);
  c->memory_miscounted = wrong_twice ? 0 : seen;
}
