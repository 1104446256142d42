// SPDX-License-Identifier: Apache-2.0
/* The doctor's check of the lists of consumers and of producers that wait for room or memory, and of the schedule. */
#include "sb_check.h"

#include "sb_slab.h"

/* Values of `which` in a finding; the comment after each enum names the code of the finding. */
enum {
  INTERESTED,
  NOTIFIED,
  NOT_INTERESTED,
  NON_ACQUIRING,
  CONSUMERS,
  ROOM_WAITING,
  MEMORY_WAITING,
  OF_LEVEL
}; /* SB_BAD_LIST */
enum { NO_NODE, FROM_LATER, ELSEWHERE };             /* SB_BAD_ENTRY */
enum { TICKET, OPEN_BEFORE, SEATS, NO_SEATS, GATE }; /* SB_BAD_DISPATCH */

typedef struct {
  uint32_t queue, level; /* level: slot of the level that has the list; 0: the queue or the broker has it */
  unsigned ring, state;
  uint32_t nodes, counted; /* nodes: number of nodes with a live entry; counted: number of consumers among them */
  uint64_t ticket;         /* the latest ticket of these consumers */
} list;

static void bad_entry(sb_checkup *k, const list *l, uint32_t slot, unsigned what, uint64_t where, uint64_t found,
                      uint64_t expected) {
  sb_check_found(k, (sb_finding){SB_BAD_ENTRY, l->queue, slot, what, l->ring, where, found, expected});
}

/* Checks an entry (I28 of sb_nodes.h). The entry is live if its epoch and the state of its list match the node's word,
 * pending if its epoch is one ahead, dead if its epoch is older or the state differs. An epoch that is further ahead is
 * a fault. In the All list an entry is live if its epoch is that of the node's registration, and the node is not
 * REMOVED. Racing moves may leave two entries of a node in a list, or an entry in a list that the node never reached:
 * neither is a fault. */
static void visit_entry(sb_checkup *k, void *context, const sb_check_cell *cell) {
  list *l = context;
  uint32_t slot = sb_cell_slot(cell->word), epoch = (uint32_t)(cell->word >> 32);
  bool all = l->ring == SB_RING_ALL;
  if (sb_cell_state(cell->word) != SB_CELL_ENTRY) {
    return;
  }
  if (sb_check_kind(k, slot) != SB_KIND_NODE) {
    bad_entry(k, l, slot, NO_NODE, cell->position, sb_check_kind(k, slot), SB_KIND_NODE);
    return;
  }
  const sb_node_shm *n = sb_slot_at(k->b, slot);
  uint64_t word = SB_LOAD(&n->word, SB_ACQUIRE);
  if ((int32_t)(epoch - sb_node_epoch(word)) > 1) {
    bad_entry(k, l, slot, FROM_LATER, cell->position, epoch, sb_node_epoch(word));
    return;
  }
  bool live = all ? SB_LOAD(&n->registration, SB_RELAXED) == epoch && sb_node_state(word) != SB_NODE_REMOVED
                  : sb_node_epoch(word) == epoch && sb_node_state(word) == l->state;
  uint32_t known = all ? SB_KNOWN_TO_ALL : SB_KNOWN_TO_LIST;
  if (!live || sb_slot_state(sb_check_header(k, slot)) == SB_SLOT_FREE) {
    return;
  }
  uint32_t queue = SB_LOAD(&n->queue, SB_RELAXED), level = SB_LOAD(&n->level, SB_RELAXED);
  if ((l->queue != 0 && queue != l->queue) || (l->level != 0 && level != l->level)) {
    bad_entry(k, l, slot, ELSEWHERE, cell->position, queue != l->queue ? queue : level, l->queue);
    return;
  }
  if ((k->seen[slot] & known) == 0) {
    l->nodes++;
    if ((SB_LOAD(&n->flags, SB_RELAXED) & SB_NODE_COUNTED) != 0) {
      uint64_t ticket = SB_LOAD(&n->ticket, SB_ACQUIRE);
      l->counted++;
      if (ticket > l->ticket) l->ticket = ticket;
    }
  }
  k->seen[slot] |= known;
}

static bool walk(sb_checkup *k, list *l) {
  uint64_t end;
  l->nodes = l->counted = 0;
  l->ticket = 0;
  return sb_check_ring(k, l->level != 0 ? l->level : l->queue, l->ring, l->queue, visit_entry, l, &end);
}

/* True if the queue is deleted. It delivers no message, so wrong counts do no harm there, and the housekeeper does not
 * correct them. */
static bool is_closed(const sb_checkup *k, uint32_t queue) {
  return queue != 0 &&
         sb_queue_is_deleted(SB_LOAD(&((const sb_queue_shm *)sb_slot_at(k->b, queue))->state, SB_ACQUIRE));
}

static void compare(sb_checkup *k, uint32_t queue, unsigned which, uint32_t slot, int32_t says, uint32_t holds) {
  if (says != (int32_t)holds && !is_closed(k, queue)) {
    sb_check_found(k, (sb_finding){SB_BAD_LIST, queue, slot, which, 0, 0, (uint64_t)(int64_t)says, holds});
  }
}

/* Checks the lists of one priority, and adds their numbers of nodes to *interested and *notified. False: a list is
 * broken. */
static bool check_level(sb_checkup *k, uint32_t queue, uint32_t slot, uint32_t *interested, uint32_t *notified) {
  const sb_consumer_level_shm *level = sb_slot_at(k->b, slot);
  list in = {.queue = queue, .level = slot, .ring = SB_RING_INTERESTED, .state = SB_NODE_INTERESTED};
  list no = {.queue = queue, .level = slot, .ring = SB_RING_NOTIFIED, .state = SB_NODE_NOTIFIED};
  bool sound = walk(k, &in);
  sound = walk(k, &no) && sound;
  *interested += in.nodes;
  *notified += no.nodes;
  if (sound) {
    compare(k, queue, OF_LEVEL + INTERESTED, slot, SB_LOAD(&level->interested_count, SB_ACQUIRE), in.nodes);
    compare(k, queue, OF_LEVEL + NOTIFIED, slot, SB_LOAD(&level->notified_count, SB_ACQUIRE), no.nodes);
  }
  return sound;
}

static void check_levels(sb_checkup *k, uint32_t queue, const sb_queue_shm *q) {
  uint32_t interested = 0, notified = 0;
  int32_t above = INT32_MAX;
  bool sound = true;
  for (uint32_t at = SB_LOAD(&q->consumer_levels, SB_ACQUIRE); at != 0;) {
    const sb_consumer_level_shm *level = sb_check_is(k, at, SB_KIND_CONSUMER_LEVEL) ? sb_slot_at(k->b, at) : NULL;
    bool fits = level != NULL && (k->seen[at] & 1u) == 0 && SB_LOAD(&level->queue, SB_RELAXED) == queue &&
                SB_LOAD(&level->priority, SB_RELAXED) <= above;
    if (!fits) { /* a chain with a cycle ends here, too */
      sb_check_found(k, (sb_finding){SB_BAD_CHAIN, queue, at, 1, 0, 0, sb_check_kind(k, at), SB_KIND_CONSUMER_LEVEL});
      return;
    }
    k->seen[at] |= 1u;
    above = SB_LOAD(&level->priority, SB_RELAXED);
    sound = check_level(k, queue, at, &interested, &notified) && sound;
    at = SB_LOAD(&level->next, SB_ACQUIRE);
  }
  if (sound) {
    compare(k, queue, INTERESTED, 0, SB_LOAD(&q->interested, SB_ACQUIRE), interested);
    compare(k, queue, NOTIFIED, 0, SB_LOAD(&q->notified, SB_ACQUIRE), notified);
  }
}

/* The first free position of a ring. Its tail is a hint, which the doctor does not correct. */
static uint64_t end_of(sb_broker *b, const sb_ring *r) {
  uint64_t at = SB_LOAD(r->tail, SB_ACQUIRE);
  sb_leaf_ref leaf;
  while (sb_ring_locate(b, NULL, r, at, &leaf) == SB_OK &&
         sb_cell_state(SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_ACQUIRE)) != SB_CELL_FREE) {
    at++;
  }
  return at;
}

/* Each entry of a queue's schedule list must name a position before the first free one of its lane. */
static void visit_timer(sb_checkup *k, void *context, const sb_check_cell *cell) {
  uint32_t queue = *(const uint32_t *)context;
  uint64_t position = cell->word >> 4;
  sb_ring r;
  if (sb_cell_state(cell->word) != SB_CELL_ENTRY) {
    return;
  }
  uint64_t end = sb_lanes_ring(k->b, queue, position, &r) ? end_of(k->b, &r) : 0;
  if (position >= end) {
    sb_check_found(k, (sb_finding){SB_BAD_TIMER, queue, 0, 0, 0, cell->position, position, end});
  }
}

static void bad_dispatch(sb_checkup *k, uint32_t queue, unsigned which, uint64_t found, uint64_t expected) {
  sb_check_found(k, (sb_finding){SB_BAD_DISPATCH, queue, 0, which, 0, 0, found, expected});
}

/* Checks the gate of a queue (I100 of sb_dispatch.h) and its seats (I101 of sb_admission.h). A flag SEATS without a limit
 * is no fault: a process was killed that was about to set one. */
static void check_dispatch(sb_checkup *k, uint32_t slot, const list *all) {
  const sb_queue_shm *q = sb_slot_at(k->b, slot);
  uint64_t open_before = SB_LOAD(&q->open_before, SB_ACQUIRE);
  uint64_t tickets = SB_LOAD(&q->tickets, SB_ACQUIRE); /* last: it only rises */
  uint32_t flags = SB_LOAD(&q->flags, SB_ACQUIRE);
  int64_t seats = sb_setting(q, SB_SETTING_SEATS);
  bool gated =
      sb_setting(q, SB_SETTING_CONSUMERS_BEFORE_DISPATCH) > 1 || sb_setting(q, SB_SETTING_DELAY_BEFORE_DISPATCH_MS) > 0;
  if (all->ticket > tickets) bad_dispatch(k, slot, TICKET, all->ticket, tickets);
  if (open_before > tickets + 1) bad_dispatch(k, slot, OPEN_BEFORE, open_before, tickets + 1);
  if (seats > 0 && (int64_t)all->counted > seats - 1) bad_dispatch(k, slot, SEATS, all->counted, (uint64_t)(seats - 1));
  if (seats > 0 && (flags & SB_QUEUE_SEATS) == 0) bad_dispatch(k, slot, NO_SEATS, (uint64_t)(seats - 1), 0);
  if (gated != ((flags & SB_QUEUE_GATED) != 0)) bad_dispatch(k, slot, GATE, flags, gated ? SB_QUEUE_GATED : 0);
}

void sb_check_lists(sb_checkup *k, uint32_t slot) {
  const sb_queue_shm *q = sb_slot_at(k->b, slot);
  list all = {.queue = slot, .ring = SB_RING_ALL};
  list browsers = {.queue = slot, .ring = SB_RING_NON_ACQUIRING, .state = SB_NODE_NON_ACQUIRING};
  list resting = {.queue = slot, .ring = SB_RING_NOT_INTERESTED, .state = SB_NODE_NOT_INTERESTED};
  list room = {.queue = slot, .ring = SB_RING_ROOM, .state = SB_NODE_INTERESTED};
  if (walk(k, &all)) {
    compare(k, slot, CONSUMERS, 0, SB_LOAD(&q->consumers, SB_ACQUIRE), all.counted);
    check_dispatch(k, slot, &all);
  }
  if (walk(k, &browsers)) compare(k, slot, NON_ACQUIRING, 0, SB_LOAD(&q->non_acquiring, SB_ACQUIRE), browsers.nodes);
  if (walk(k, &resting)) compare(k, slot, NOT_INTERESTED, 0, SB_LOAD(&q->not_interested, SB_ACQUIRE), resting.counted);
  if (walk(k, &room)) compare(k, slot, ROOM_WAITING, 0, SB_LOAD(&q->room_waiting, SB_ACQUIRE), room.nodes);
  check_levels(k, slot, q);
  uint64_t end;
  (void)sb_check_ring(k, slot, SB_RING_SCHEDULE, slot, visit_timer, &slot, &end);
}

void sb_check_memory_list(sb_checkup *k) {
  list waiting = {.ring = SB_RING_MEMORY, .state = SB_NODE_INTERESTED};
  if (walk(k, &waiting)) {
    compare(k, 0, MEMORY_WAITING, 0, (int32_t)SB_LOAD(&k->b->header->memory_waiting, SB_ACQUIRE), waiting.nodes);
  }
}
