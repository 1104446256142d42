// SPDX-License-Identifier: Apache-2.0
#include "sb_housekeeping.h"

#include "sb_lifetime.h"
#include "sb_liveness.h"
#include "sb_stopped.h"
#include "sb_values.h"
#include "sb_wait.h"
#include "sb_waits.h"

#define PATIENCE_TICKS 3u
#define SCRUB_TICKS 4u
#define REST_TICKS 16u
#define LOOKS 4u

/* True if the core itself acts on a notification of the node: the node of a consumer or of a waiting call. A watch only
 * passes the notification on to the application. */
static bool acts_by_itself(const sb_node_shm *n) {
  return (SB_LOAD(&n->flags, SB_RELAXED) & (SB_NODE_DIRECT | SB_NODE_COUNTED)) != 0;
}

static uint64_t entry_of(const sb_node_shm *n, uint32_t node) {
  return sb_entry_word(node, sb_node_epoch(SB_LOAD(&n->word, SB_SEQ_CST)));
}

/* Returns the list entry (node and epoch) of the first NOTIFIED node that acts by itself, 0 = none. If two calls return
 * the same entry, the node stayed NOTIFIED in between: each change of its state gives it another epoch. */
static uint64_t first_notified(sb_connection *by, sb_queue_shm *q) {
  sb_level_cursor at = sb_levels_of(q);
  while (sb_level_next(by->b, &at) != NULL) {
    sb_ring list;
    uint64_t position = 0;
    uint32_t node;
    while (sb_ring_open(by->b, at.slot, SB_RING_NOTIFIED, &list) &&
           (node = sb_nodes_next(by, &list, SB_NODE_NOTIFIED, &position)) != 0) {
      if (acts_by_itself(sb_slot_at(by->b, node))) return entry_of(sb_slot_at(by->b, node), node);
    }
  }
  return 0;
}

/* Wakes the NOTIFIED nodes of the queue once more: they have not acted on their notification yet. */
static void ring_notified(sb_connection *by, sb_queue_shm *q) {
  sb_level_cursor at = sb_levels_of(q);
  while (sb_level_next(by->b, &at) != NULL) {
    sb_ring list;
    uint64_t position = 0;
    uint32_t node;
    if (sb_ring_open(by->b, at.slot, SB_RING_NOTIFIED, &list)) {
      while ((node = sb_nodes_next(by, &list, SB_NODE_NOTIFIED, &position)) != 0) sb_notify_node(by->b, node);
    }
  }
}

/* The list entry of the node that would be notified next; 0: none. */
static uint64_t next_sleeper(sb_connection *by, const sb_queue_shm *q) {
  sb_level_cursor at = sb_levels_of(q);
  while (sb_level_next(by->b, &at) != NULL) {
    sb_ring list;
    uint64_t position = 0;
    uint32_t node = 0;
    if (sb_ring_open(by->b, at.slot, SB_RING_INTERESTED, &list)) {
      node = sb_nodes_next(by, &list, SB_NODE_INTERESTED, &position);
    }
    if (node != 0) {
      return entry_of(sb_slot_at(by->b, node), node);
    }
  }
  return 0;
}

/* Iterates over a list to drop its dead entries: a list that no process iterates would keep them for ever. */
static void scrub_list(sb_connection *by, uint32_t object, uint32_t id, unsigned state) {
  sb_ring list;
  uint64_t position = 0;
  if (!sb_ring_open(by->b, object, id, &list)) {
    return;
  }
  while (sb_nodes_next(by, &list, state, &position) != 0) {
  }
  sb_page_sweep(by, &list);
}

void sb_housekeeping_scrub_waiting(sb_connection *by) {
  scrub_list(by, 0, SB_RING_MEMORY, SB_NODE_INTERESTED);
  sb_nodes_recount_memory(by);
}

static void scrub_lists(sb_connection *by, uint32_t queue) {
  scrub_list(by, queue, SB_RING_ALL, SB_STATE_ALL);
  scrub_list(by, queue, SB_RING_NOT_INTERESTED, SB_NODE_NOT_INTERESTED);
  scrub_list(by, queue, SB_RING_NON_ACQUIRING, SB_NODE_NON_ACQUIRING);
  scrub_list(by, queue, SB_RING_ROOM, SB_NODE_INTERESTED);
  sb_level_cursor at = sb_levels_of(sb_slot_at(by->b, queue));
  while (sb_level_next(by->b, &at) != NULL) {
    scrub_list(by, at.slot, SB_RING_INTERESTED, SB_NODE_INTERESTED);
    scrub_list(by, at.slot, SB_RING_NOTIFIED, SB_NODE_NOTIFIED);
  }
}

bool sb_housekeeping_rests(const sb_queue_memory *memory) {
  return memory->quiet_ticks >= REST_TICKS && memory->wrong_ticks == 0;
}

static bool over_unseen(sb_broker *b, const sb_queue_shm *q) {
  return (SB_LOAD(&q->flags, SB_RELAXED) & SB_QUEUE_EXPIRES) == 0 && sb_lifetime_over(b, q, 0) &&
         sb_queue_state(SB_LOAD(&q->state, SB_ACQUIRE)) == SB_QUEUE_OPEN;
}

/* Closes the queue if its time has come: it expired, or the process that should have closed it was killed, or had no
 * memory to close it. True if this call closed the queue. `deaths_before`, here and below: the result of
 * sb_repairs_deaths when the queue was last found consistent; deaths since then explain repairs. */
static bool end_if_over(sb_connection *by, uint32_t slot, const sb_queue_shm *shm, uint64_t deaths_before) {
  sb_queue q;
  bool ended = false;
  if (!sb_lifetime_over(by->b, shm, 0)) {
    return false;
  }
  bool before = over_unseen(by->b, shm), explained = sb_repairs_explained(by->b, shm, deaths_before);
  bool unseen = before && over_unseen(by->b, shm); /* I72 */
  if (sb_queue_attach(by, slot, &q, false) == SB_OK) {
    ended = sb_lifetime_end(&q, 0);
    sb_queue_detach(&q);
  }
  if (ended && unseen) sb_repairs_count(by->b, SB_REPAIR_END, explained);
  return ended;
}

/* The list entry of the first producer that waits although there is room for it; 0: none. */
static uint64_t waits_beside_room(sb_connection *by, sb_queue_shm *q, uint32_t slot) {
  sb_ring list;
  uint64_t position = 0;
  uint32_t node;
  while (sb_ring_open(by->b, slot, SB_RING_ROOM, &list) &&
         (node = sb_nodes_next(by, &list, SB_NODE_INTERESTED, &position)) != 0) {
    const sb_node_shm *n = sb_slot_at(by->b, node);
    uint64_t entry = entry_of(n, node);
    if (sb_notify_has_room_for(q, n)) return entry;
  }
  return 0;
}

static void look_for_room(sb_connection *by, sb_queue_shm *q, uint32_t slot, uint64_t deaths_before) {
  if (SB_LOAD(&q->room_waiting, SB_SEQ_CST) <= 0 || !sb_limits_room(q, 1, 0)) {
    return;
  }
  uint64_t waiting = waits_beside_room(by, q, slot);
  if (waiting != 0) {
    bool explained = SB_LOAD(&q->room_watched, SB_RELAXED) != 0 || sb_repairs_explained(by->b, q, deaths_before);
    if (waits_beside_room(by, q, slot) == waiting) sb_repairs_count(by->b, SB_REPAIR_ROOM, explained); /* I72 */
  }
  sb_notify_room_made(by, q, slot); /* even if no repair was counted: a producer notified before may be stopped */
}

/* Recounts the lists, and corrects wrong counts. True if the counts were right. If no node moved during the recount,
 * corrects at once each wrong count that could suppress a wake. All other wrong counts are corrected only after counts
 * looked wrong for PATIENCE_TICKS ticks: a count may look wrong because a node moved, or its error costs only an extra
 * wake. */
static bool recount(sb_connection *by, const sb_queue_shm *q, uint32_t slot, sb_queue_memory *memory) {
  sb_recounted found = sb_nodes_recount(by->b, slot, SB_RECOUNT_LOOK);
  bool steady = false, explained = false, patient = memory->wrong_ticks >= PATIENCE_TICKS;
  for (unsigned looks = 0; !found.right && !steady && looks < LOOKS; looks++) {
    uint64_t before = found.seen;
    explained = sb_repairs_explained(by->b, q, memory->deaths);
    found = sb_nodes_recount(by->b, slot, SB_RECOUNT_LOOK);
    steady = found.seen == before;
  }
  memory->wrong_ticks = found.right ? 0 : memory->wrong_ticks + 1;
  if (found.right || (!steady && !patient)) {
    return found.right;
  }
  if (sb_nodes_recount(by->b, slot, patient ? SB_RECOUNT_ALL : SB_RECOUNT_HARMFUL).mended) {
    if (steady)
      sb_repairs_count(by->b, SB_REPAIR_COUNT, explained); /* I72 */
    else
      memory->deaths = SB_DEATHS_UNKNOWN;
  }
  return false;
}

/* Corrects the accounts: `taken`, `admitted` and `bytes_in`. True if they are correct afterwards. False if they could
 * not be checked, or not all be corrected: a process changed them meanwhile, or is in the middle of a change, perhaps
 * stopped there. */
static bool reconcile(sb_connection *by, sb_queue_shm *q, uint32_t slot, uint64_t deaths_before) {
  int32_t unsure = SB_TRACKING_UNSURE;
  /* Comes before the hints are corrected. If `all_know`, each later call of another connection knows that the queue
   * tracks, so none changes a cell without the hints (sb_hints_start_tracking). */
  bool all_know = SB_LOAD(&q->tracking, SB_SEQ_CST) == unsure && sb_ledger_others_know(by->b, q, by->id);
  sb_hints found = sb_hints_reconcile(by->b, q, NULL);
  if (found == SB_HINTS_SET_RIGHT || found == SB_HINTS_PARTLY) {
    bool explained = SB_LOAD(&q->tracking, SB_SEQ_CST) == unsure || sb_repairs_deaths(by->b) != deaths_before;
    sb_repairs_count(by->b, SB_REPAIR_ACCOUNT, explained); /* I72: unlike other repairs, this needs no second look */
    sb_recover_queue(by, slot);                            /* a process may have relied on the wrong hints */
  }
  bool right = found == SB_HINTS_RIGHT || found == SB_HINTS_SET_RIGHT;
  if (right && all_know) (void)SB_CAS(&q->tracking, &unsure, SB_TRACKING_SURE, SB_SEQ_CST);
  return right;
}

/* True if the accounts of a quiet queue must be checked again, since what deaths left is not corrected yet: at the last
 * check another process was in the middle of a change, or a process died after that check. Until the next check the
 * queue may refuse puts although it is empty. A refused put is no traffic, so it leads to no check. If no producer
 * waits for room, the queue is checked again only once in REST_TICKS ticks. */
static bool reconciles_again(const sb_queue_shm *q, const sb_queue_memory *memory, uint64_t deaths) {
  bool waits = SB_LOAD(&q->room_waiting, SB_RELAXED) > 0 || memory->quiet_ticks % REST_TICKS == 2;
  return memory->quiet_ticks > 2 && memory->deaths != deaths && waits;
}

static void count_rescue(sb_broker *b, sb_queue_shm *q, bool because_halted) {
  (void)SB_ADD(&q->rescues, 1, SB_RELAXED);
  (void)SB_ADD(because_halted ? &b->header->stopped_rescues : &b->header->rescues, 1, SB_RELAXED);
}

bool sb_housekeeping_pass_stopped(sb_connection *by, uint32_t slot) {
  sb_queue_shm *q = sb_slot_at(by->b, slot);
  if (!sb_hints_any_has_ready(by->b, slot, SB_ANY_END) || sb_stopped_park(by, slot) == 0) {
    return false;
  }
  if (sb_notify_one(by, slot, true)) count_rescue(by->b, q, true);
  if (SB_LOAD(&q->non_acquiring, SB_SEQ_CST) > 0) sb_notify_browsers(by, slot);
  return true;
}

/* Repeats notifications that may have been lost, if the queue is `idle`: no message was acquired since the last tick.
 * If a message stayed ready since then, wakes the NOTIFIED nodes again. If the node that slept at the last tick still
 * sleeps, also notifies one more node (I37). */
static void notify_forgotten(sb_connection *by, sb_queue_shm *q, uint32_t slot, sb_queue_memory *memory, bool idle) {
  bool paused = (SB_LOAD(&q->flags, SB_RELAXED) & SB_QUEUE_PAUSED) != 0;
  if (!idle || paused || (SB_LOAD(&q->interested, SB_SEQ_CST) <= 0 && SB_LOAD(&q->notified, SB_SEQ_CST) <= 0)) {
    return;
  }
  if (sb_housekeeping_pass_stopped(by, slot)) {
    return;
  }
  uint64_t known = memory->known_tail, sleeper = memory->sleeper;
  memory->known_tail = sb_hints_end_of_ready(by->b, slot);
  memory->sleeper = 0;
  /* Searches for hidden messages (sb_hints.h) if the count of ready messages is above 0. Since that count may be wrong,
   * also searches once in REST_TICKS quiet ticks when the count is 0. */
  if (sb_queue_ready(by->b, q) > 0 || memory->quiet_ticks % REST_TICKS == 2) {
    (void)sb_hints_resurface_all(by->b, slot, memory->deaths);
  }
  if (sb_hints_any_has_ready(by->b, slot, memory->known_tail)) { /* if no message is ready, each node sleeps rightly */
    memory->sleeper = next_sleeper(by, q);
  }
  if (!sb_hints_any_has_ready(by->b, slot, known)) {
    return;
  }
  uint64_t told = first_notified(by, q);
  if (told != 0) {
    bool explained = sb_repairs_explained(by->b, q, memory->deaths);
    if (sb_hints_any_has_ready(by->b, slot, known) && first_notified(by, q) == told)
      sb_repairs_count(by->b, SB_REPAIR_NOTIFICATION, explained); /* I72 */
  }
  ring_notified(by, q);
  if (sleeper == 0 || memory->sleeper != sleeper) {
    /* The node that would be notified now was not the next one at the last tick. It may just have become INTERESTED:
     * then it looks at the queue by itself. */
    return;
  }
  bool because_halted = sb_repairs_somebody_halted(by->b, q);
  if (!sb_hints_any_has_ready(by->b, slot, known)) {
    return; /* the messages were taken meanwhile: a node that sleeps now does so rightly */
  }
  if (sb_notify_one(by, slot, true)) count_rescue(by->b, q, because_halted);
}

/* Settles the keys of a queue with last values, if that was left undone since memory was short (I103 of sb_values.h). */
static void settle_values(sb_connection *by, uint32_t slot, sb_queue_shm *shm, sb_queue_memory *memory) {
  uint32_t lost = SB_LOAD(&shm->values_lost, SB_SEQ_CST);
  sb_queue q;
  if (lost == memory->values_lost || sb_queue_attach(by, slot, &q, false) != SB_OK) {
    return;
  }
  unsigned replaced = sb_values_settle_all(&q);
  if (sb_limits_enforce(&q) + replaced > 0) sb_notify_room_made(by, shm, slot); /* I42 of sb_queue.h */
  sb_queue_detach(&q);
  memory->values_lost = lost;
}

/* Looks for consumers that make no progress (sb_waits.h). `due`: also if the tick before found none that could be one. */
static void watch_waits(sb_connection *by, const sb_queue_shm *q, uint32_t slot, sb_queue_memory *memory, bool due) {
  bool some = SB_LOAD(&q->consumers, SB_RELAXED) > 0 && (SB_LOAD(&q->flags, SB_RELAXED) & SB_QUEUE_PAUSED) == 0 &&
              (due || memory->still > 0) && sb_queue_ready(by->b, q) > 0;
  sb_waits_watched found = {0, 0, 0};
  if (some) found = sb_waits_watch(by, slot, memory->still == 0);
  memory->still = found.still;
  memory->told = found.told;
  memory->still_ns = found.next_ns;
}

void sb_housekeeping_queue(sb_connection *by, uint32_t slot, sb_queue_memory *memory) {
  sb_queue_shm *q = sb_slab_queue(by->b, slot);
  if (q == NULL || sb_queue_state(SB_LOAD(&q->state, SB_ACQUIRE)) != SB_QUEUE_OPEN) {
    return;
  }
  uint64_t deaths = sb_repairs_deaths(by->b);
  if (end_if_over(by, slot, q, memory->deaths)) {
    return;
  }
  uint64_t last_take = SB_LOAD(&q->last_take, SB_RELAXED), came = sb_lanes_came(q);
  bool quiet = last_take == memory->last_take && came == memory->came, right = false;
  memory->quiet_ticks = quiet ? memory->quiet_ticks + 1 : 0;
  bool idle = last_take == memory->last_take;
  memory->last_take = last_take;
  memory->came = came;
  if (memory->quiet_ticks == 2 || reconciles_again(q, memory, deaths)) { /* traffic rests: correct what deaths left */
    right = reconcile(by, q, slot, memory->deaths);
  }
  if (memory->quiet_ticks == 2) {
    sb_ring r;
    for (sb_lanes_walk all = sb_lanes_of(by->b, slot); sb_lanes_next(&all, &r);) sb_page_sweep(by, &r);
    if (sb_ring_open(by->b, slot, SB_RING_SCHEDULE, &r)) sb_page_sweep(by, &r);
  }
  look_for_room(by, q, slot, memory->deaths);
  settle_values(by, slot, q, memory);
  bool due = memory->quiet_ticks < REST_TICKS || memory->quiet_ticks % REST_TICKS == 0 || memory->wrong_ticks > 0;
  bool anybody = SB_LOAD(&q->consumer_levels, SB_RELAXED) != 0 || SB_LOAD(&q->room_waiting, SB_RELAXED) != 0;
  if (due && anybody) {
    /* during traffic `quiet_ticks` is 0, so each tick scrubs the lists: traffic adds dead entries */
    if (memory->quiet_ticks % SCRUB_TICKS == 0) scrub_lists(by, slot);
    right = recount(by, q, slot, memory) && right;
  }
  notify_forgotten(by, q, slot, memory, idle);
  watch_waits(by, q, slot, memory, due);
  if (right && !sb_hints_any_hides_ready(by->b, slot))
    memory->deaths = deaths; /* earlier deaths explain no later repair */
}

static bool has_timer(sb_broker *b, uint64_t word) {
  uint32_t slot = sb_cell_slot(word);
  if (sb_cell_state(word) == SB_CELL_SCHEDULED) {
    return true; /* also one that is parked, whose message has no time of its own */
  }
  if (!sb_cell_has_message(word) || !sb_slot_in_range(b, slot) || !sb_slot_ready(b, slot)) {
    return false;
  }
  sb_message_shm m = sb_peek_message(b, slot);
  return m.due_ns != 0 || m.expires_ns != 0;
}

bool sb_housekeeping_has_timers(const sb_queue *q, const uint64_t *cursors) {
  return (uint32_t)SB_LOAD(&q->shm->timers_lost, SB_ACQUIRE) != cursors[2] || cursors[1] != 0 ||
         SB_LOAD(&q->shm->schedule.tail, SB_ACQUIRE) > cursors[0];
}

/* For a scan of all cells that came to the end of the lane of `position`: the base of the next lane, plus one. 0: there
 * is no other lane. */
static uint64_t next_lane(sb_broker *b, uint32_t slot, uint64_t position) {
  sb_ring r;
  for (sb_lanes_walk all = sb_lanes_of(b, slot); sb_lanes_next(&all, &r);) {
    uint64_t base = SB_LOAD(r.base, SB_RELAXED);
    if (sb_position_lane(base) > sb_position_lane(position)) return base + 1;
  }
  return 0;
}

/* cursors[0] is the next position in the schedule list. cursors[1] is 0, or during a scan of all cells the next
 * position of that scan, plus one. cursors[2] is the value that `timers_lost` had when the last scan began: if
 * `timers_lost` differs from it, a new scan starts. A new housekeeper begins with cursors[2] = 0, and so with a scan if
 * timers were ever lost: it does not know the timers that an earlier housekeeper found. */
static uint32_t find_timers(sb_queue *q, uint64_t *cursors, uint64_t *positions, uint32_t room) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint32_t n = 0;
  uint32_t lost = (uint32_t)SB_LOAD(&q->shm->timers_lost, SB_SEQ_CST);
  if (lost != cursors[2]) {
    cursors[1] = 1;
    cursors[2] = lost;
  }
  bool all = cursors[1] != 0, more = true;
  bool there =
      all ? sb_lanes_ring(q->c->b, q->slot, cursors[1] - 1, &r) : sb_ring_open(q->c->b, q->slot, SB_RING_SCHEDULE, &r);
  if (!there) { /* the queue is gone, or its chain of lanes is damaged */
    cursors[1] = 0;
    return 0;
  }
  uint64_t at = all ? cursors[1] - 1 : cursors[0], tail = SB_LOAD(&q->shm->schedule.tail, SB_ACQUIRE);
  unsigned retries = 0;
  while (more && n < room && (more = sb_ring_next_leaf(q->c->b, &r, at, &leaf, &at))) {
    for (; more && n < room && sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_ACQUIRE);
      if (!sb_leaf_is_current(q->c->b, &leaf) || !sb_cell_of(word, leaf.gen)) {
        more = ++retries < SB_MAX_RETRIES; /* the page was reused, perhaps by a list of nodes: find the leaf again */
        break;
      }
      if (sb_cell_state(word) == SB_CELL_FREE) {
        more = false;
        break;
      }
      if (all ? has_timer(q->c->b, word) : sb_cell_state(word) == SB_CELL_ENTRY) {
        positions[n++] = all ? at : word >> 4;
      }
    }
  }
  if (all) {
    cursors[1] = more ? at + 1 : next_lane(q->c->b, q->slot, cursors[1] - 1);
  } else {
    /* At the end of the list, the cursor jumps to the tail that was read before the walk. Each entry before that tail
     * was filled (I15 of sb_ring.h), so a page that is missing there was freed, and all its entries are finished. */
    cursors[0] = more || at > tail ? at : tail;
  }
  return n;
}

uint32_t sb_housekeeping_timers(sb_queue *q, uint64_t *cursors, uint64_t *positions, uint32_t room) {
  uint32_t n;
  do n = find_timers(q, cursors, positions, room);
  while (n == 0 && cursors[1] != 0); /* a lane had none: continue in the next one */
  return n;
}

void sb_housekeeping_trim_schedule(sb_queue *q) {
  sb_ring r;
  sb_leaf_ref leaf, cell_leaf = SB_NO_LEAF;
  if (!sb_ring_open(q->c->b, q->slot, SB_RING_SCHEDULE, &r)) {
    return;
  }
  uint64_t at = SB_LOAD(r.base, SB_RELAXED);
  while (sb_ring_next_leaf(q->c->b, &r, at, &leaf, &at)) {
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_ACQUIRE);
      if (!sb_leaf_is_current(q->c->b, &leaf)) {
        break; /* the page was reused, perhaps by a list of nodes: find the leaf again */
      }
      if (!sb_cell_of(word, leaf.gen) || sb_cell_state(word) == SB_CELL_FREE) {
        return;
      }
      uint64_t position = word >> 4, cell = 0;
      bool needed = sb_cell_state(word) != SB_CELL_ENTRY;
      if (!needed &&
          (sb_leaf_covers(&cell_leaf, position) ||
           sb_ring_locate(q->c->b, NULL, &sb_queue_lane(q, position)->ring, position, &cell_leaf) == SB_OK)) {
        cell = SB_LOAD(&sb_leaf_cell(&cell_leaf, position)->word, SB_ACQUIRE);
        needed = sb_cell_of(cell, cell_leaf.gen) && sb_cell_has_message(cell);
      }
      if (!needed) {
        (void)sb_ring_drop(q->c, &r, &leaf, at, word);
      }
    }
  }
}
