// SPDX-License-Identifier: Apache-2.0
#include "sb_queue.h"

#include "sb_closing.h"
#include "sb_properties.h"
#include "sb_slab.h"
#include "sb_spacing.h"

/* ---- handles ---- */

#define TABLE_START 4u /* an AMQP table begins with its size */

/* Finds the header that a setting names, among the texts of the queue. *length: 0 if there is none. */
static const uint8_t *find_header_name(const sb_queue *q, const char *setting, uint32_t *length) {
  if (sb_slab_object(q->c->b, q->slot, SB_KIND_LONG_QUEUE) == NULL) {
    return NULL;
  }
  sb_long_queue_shm *texts = (sb_long_queue_shm *)(void *)q->shm;
  uint32_t size = SB_LOAD(&texts->texts_length, SB_RELAXED);
  sb_properties p = {.at = (const uint8_t *)texts->texts,
                     .length = size,
                     .table = TABLE_START,
                     .table_end = size <= SB_TEXTS_MAX && size >= TABLE_START ? size : TABLE_START};
  sb_value name;
  bool found = sb_properties_header(&p, (const uint8_t *)setting, (unsigned)strlen(setting), &name) &&
               name.kind == SB_VALUE_STRING && name.length <= UINT8_MAX;
  *length = found ? name.length : 0;
  return found ? name.at : NULL;
}

static sb_status look_up(sb_connection *c, uint32_t slot, sb_queue *q, bool even_closed) {
  sb_broker *b = c->b;
  *q = (sb_queue){.c = c, .slot = slot, .spin_ns = 50000};
  sb_lane_forget_pages(&q->lanes[0]);
  q->schedule_leaf = q->looked_leaf = SB_NO_LEAF;
  if (!sb_ring_open(b, slot, SB_RING_CELLS, &q->lanes[0].ring)) {
    return sb_slot_in_range(b, slot) ? SB_DELETED : SB_CORRUPT; /* the queue was freed; its slot may be a body's now */
  }
  q->shm = sb_slot_at(b, slot);
  q->state = SB_LOAD(&q->shm->state, SB_ACQUIRE);
  unsigned state = sb_queue_state(q->state);
  if (state != SB_QUEUE_OPEN && !(even_closed && state == SB_QUEUE_CLOSED)) {
    return SB_DELETED;
  }
  q->base = SB_LOAD(&q->shm->base, SB_RELAXED);
  uint32_t flags = SB_LOAD(&q->shm->flags, SB_RELAXED);
  q->use = (flags & SB_QUEUE_NOTES) != 0 ? SB_USE_BOOKS : (flags & SB_QUEUE_STAGE) != 0 ? SB_USE_STAGE : SB_USE_PLAIN;
  bool lasts = (flags & (SB_QUEUE_DURABLE | SB_QUEUE_EXCLUSIVE)) == SB_QUEUE_DURABLE;
  q->waits_for_store =
      lasts && q->lanes[0].ring.changed != NULL && SB_LOAD(&q->c->b->header->sync, SB_RELAXED) == SB_SYNC_ALWAYS;
  if ((flags & SB_QUEUE_LANES) != 0) q->last_lane = sb_lanes_number(q->shm, 0);
  q->large = q->lanes[0].ring.changed != NULL ? sb_spacing_large(b) : UINT64_MAX;
  q->others = 1;
  if ((flags & SB_QUEUE_LAST_VALUE) != 0) q->value_key = find_header_name(q, "last_value_key", &q->value_key_length);
  if ((flags & SB_QUEUE_SORTED) != 0) q->sort_key = find_header_name(q, "sort_key", &q->sort_key_length);
  return SB_OK;
}

unsigned sb_queue_others(sb_broker *b, uint32_t slot) {
  const sb_queue_shm *q = sb_slab_queue(b, slot);
  unsigned lanes = q != NULL && sb_lanes_several(q) ? sb_lanes_number(q, 0) : 1;
  return lanes < SB_OTHERS_MOST ? lanes : SB_OTHERS_MOST;
}

sb_status sb_queue_inherit(sb_connection *c, uint32_t slot, sb_queue *q, sb_ledger_shm *ledger, unsigned dead) {
  sb_status status = look_up(c, slot, q, true);
  if (status == SB_OK) status = sb_ledger_inherit(c, slot, ledger, dead, &q->ledger_token);
  if (status == SB_OK) q->ledger = ledger;
  return status;
}

sb_status sb_queue_stand_in(sb_connection *by, uint32_t slot, sb_queue *q, sb_ledger_shm *ledger) {
  sb_status status = look_up(by, slot, q, true);
  if (status == SB_OK) q->ledger = ledger;
  return status;
}

sb_status sb_queue_attach(sb_connection *c, uint32_t slot, sb_queue *q, bool even_closed) {
  sb_status status = look_up(c, slot, q, even_closed);
  if (status == SB_OK) status = sb_ledger_adopt(c, slot, &q->ledger, &q->ledger_token);
  /* Look again: only from here on the ledger keeps the object (I20 of sb_ledger.h). */
  if (status == SB_OK && !sb_queue_is_open(q)) {
    sb_ledger_renounce(c, q->ledger, q->ledger_token);
    q->ledger = NULL;
    status = SB_DELETED;
  }
  if (status == SB_OK) sb_ledger_start(q->ledger);
  return status;
}

void sb_queue_detach(sb_queue *q) {
  if (q->ledger != NULL) {
    sb_ledger_leave(q->c, q->ledger, q->ledger_token);
    q->ledger = NULL;
  }
}

/* ---- lanes ---- */

static sb_lane *place_of(sb_queue *q, unsigned number) { return q->lanes + 1 + (number - 1) % q->others; }

static sb_lane *remember(sb_queue *q, unsigned number, uint32_t slot) {
  sb_lane *lane = place_of(q, number);
  sb_ring r;
  if (slot == 0 || !sb_ring_open(q->c->b, slot, SB_RING_LANE, &r)) {
    return &q->lanes[0];
  }
  *lane = (sb_lane){.ring = r, .number = number};
  sb_lane_forget_pages(lane);
  return lane;
}

sb_lane *sb_queue_other_lane(sb_queue *q, unsigned number) {
  sb_lane *lane = place_of(q, number);
  return lane->number == number ? lane : remember(q, number, sb_lanes_find(q->c->b, q->shm, number));
}

sb_status sb_queue_lane_for(sb_queue *q, unsigned priority, sb_lane **lane) {
  unsigned number = sb_queue_has_lanes(q) ? sb_lanes_number(q->shm, priority) : 0;
  uint32_t slot;
  if (number > q->last_lane) {
    return SB_CORRUPT; /* max_priority never changes */
  }
  *lane = sb_queue_lane_of(q, number);
  if (number == 0 || *lane != &q->lanes[0]) {
    return SB_OK;
  }
  sb_status status = sb_lanes_make(q->c, q->slot, number, &slot);
  if (status == SB_OK) *lane = remember(q, number, slot);
  return status == SB_OK && *lane == &q->lanes[0] ? SB_CORRUPT : status;
}

uint64_t sb_queue_end_of(sb_queue *q, uint64_t position) {
  return sb_ring_exact_tail(q->c->b, &sb_queue_lane(q, position)->ring);
}

uint64_t sb_queue_next_end(sb_queue *q, uint64_t position) {
  for (unsigned number = sb_position_lane(position) + 1; number <= q->last_lane; number++) {
    const sb_lane *lane = sb_queue_other_lane(q, number);
    if (lane != &q->lanes[0]) return sb_ring_exact_tail(q->c->b, &lane->ring);
  }
  return 0;
}

/* ---- stored queues ---- */

#define KEEPING (SB_QUEUE_GROUPS | SB_QUEUE_LAST_VALUE | SB_QUEUE_SORTED | SB_QUEUE_NON_DESTRUCTIVE | SB_QUEUE_KEEPS)

bool sb_queue_may_leave(const sb_queue *q) {
  return sb_queue_stores(q) && (SB_LOAD(&q->shm->flags, SB_RELAXED) & KEEPING) == 0 && !sb_queue_tracks(q->shm) &&
         sb_queue_is_open(q);
}

/* ---- counts ---- */

uint64_t sb_queue_count_ready(sb_broker *b, const sb_queue_shm *q) {
  /* First all messages that left, then all that are held, last all that came. If messages come or leave meanwhile, or a
   * process is stopped between an operation and its count, n may be wrong. */
  uint64_t left = sb_ledger_left(b, q), held = sb_ledger_holding(b, q), n = sb_ledger_came(b, q) - left - held;
  return (int64_t)n < 0 ? 0 : n;
}

int64_t sb_queue_ready(sb_broker *b, const sb_queue_shm *q) {
  if (!sb_queue_tracks(q)) {
    return (int64_t)sb_queue_count_ready(b, q);
  }
  int64_t n = (int64_t)(sb_lanes_came(q) - SB_LOAD(&q->base, SB_RELAXED) - SB_LOAD(&q->taken, SB_SEQ_CST));
  return n < 0 ? 0 : n;
}

static bool ready_from(sb_queue *q, const sb_lane *lane, uint64_t at, sb_leaf_ref *leaf) {
  if (SB_LOAD(&q->shm->requeued, SB_SEQ_CST) != 0) {
    return true;
  }
  for (unsigned n = 0; n < SB_PAGE_CELLS; n++, at++) {
    sb_status status = sb_leaf_covers(leaf, at) ? SB_OK : sb_ring_locate(q->c->b, NULL, &lane->ring, at, leaf);
    if (status == SB_DONE) {
      at = leaf->first - 1;
      continue;
    }
    if (status != SB_OK) {
      return status == SB_PAGED;
    }
    uint64_t word = SB_LOAD(&sb_leaf_cell(leaf, at)->word, SB_SEQ_CST);
    unsigned state = sb_cell_state(word);
    if (!sb_cell_of(word, leaf->gen) || state == SB_CELL_AVAILABLE || state == SB_CELL_FROZEN) {
      *leaf = SB_NO_LEAF;
      return true; /* AVAILABLE, or the page was reused: the caller looks closer */
    }
    if (state == SB_CELL_FREE || state == SB_CELL_CLOSED) {
      return false;
    }
  }
  return true;
}

bool sb_queue_looks_ready(sb_queue *q) {
  if (sb_queue_has_lanes(q)) {
    return sb_lanes_next_ready(q->shm, 0, false) != SB_LANES;
  }
  const sb_lane *lane = &q->lanes[0];
  uint64_t hint = SB_LOAD(&q->shm->head, SB_ACQUIRE);
  sb_leaf_ref leaf = lane->head_leaf;
  return ready_from(q, lane, hint > lane->cursor ? hint : lane->cursor, &leaf);
}

bool sb_queue_seems_ready(sb_queue *q, sb_leaf_ref *leaf) {
  if (sb_queue_has_lanes(q)) {
    return sb_lanes_next_ready(q->shm, 0, false) != SB_LANES;
  }
  return ready_from(q, &q->lanes[0], SB_LOAD(&q->shm->head, SB_ACQUIRE), leaf);
}

uint64_t sb_queue_oldest_bytes(sb_queue *q) {
  sb_broker *b = q->c->b;
  unsigned number = sb_queue_has_lanes(q) ? sb_lanes_next_ready(q->shm, SB_LANES - 1, true) : 0;
  const sb_ring *r = &sb_queue_lane_of(q, number)->ring;
  uint64_t at = SB_LOAD(r->head, SB_ACQUIRE), requeued;
  sb_leaf_ref leaf;
  if (SB_LOAD(r->requeued, SB_SEQ_CST) != 0 && sb_requeued_next(b, r, 0, &leaf, &requeued) && requeued < at) {
    at = requeued;
  }
  while (sb_ring_next_leaf(b, r, at, &leaf, &at)) {
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_ACQUIRE);
      uint32_t slot = sb_cell_slot(word);
      if (!sb_cell_of(word, leaf.gen) || sb_cell_state(word) == SB_CELL_FREE) {
        return 1;
      }
      if (sb_cell_state(word) == SB_CELL_AVAILABLE && sb_slot_in_range(b, slot) && sb_slot_ready(b, slot)) {
        uint64_t bytes = sb_peek_length(b, slot);
        bool still = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_ACQUIRE) == word;
        return still && bytes > 0 && bytes <= SB_MAX_BODY ? bytes : 1;
      }
    }
  }
  return 1;
}

bool sb_queue_older_ready(sb_queue *q, uint64_t position) {
  uint64_t at, from = 0;
  sb_leaf_ref leaf;
  const sb_ring *r = &sb_queue_lane(q, position)->ring;
  while (SB_LOAD(r->requeued, SB_SEQ_CST) != 0 && sb_requeued_next(q->c->b, r, from, &leaf, &at) && at < position) {
    if (leaf.leaf == NULL) {
      return true; /* it has left the memory */
    }
    uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST);
    /* a message whose chunk cannot be mapped is never taken: if it counted here, no newer message would be evicted */
    bool takeable = sb_slot_ready(q->c->b, sb_cell_slot(word));
    if (sb_cell_of(word, leaf.gen) && sb_cell_state(word) == SB_CELL_AVAILABLE && takeable) {
      return true;
    }
    from = at + 1;
  }
  return false;
}

/* After ring_size was lowered without trimming the queue, `bound` falls to ring_size as messages are taken. */
void sb_queue_lower_bound(sb_queue *q) {
  int64_t ring = sb_setting(q->shm, SB_SETTING_RING_SIZE);
  uint64_t lazy = SB_LOAD(&q->shm->bound, SB_RELAXED);
  while (ring >= 0 && (int64_t)lazy > ring) {
    int64_t pending = sb_queue_ready(q->c->b, q->shm), to = pending > ring ? pending : ring;
    if (to >= (int64_t)lazy || SB_CAS(&q->shm->bound, &lazy, (uint64_t)to, SB_SEQ_CST)) {
      return;
    }
  }
}

/* I26 of sb_schedule.h: adds the schedule entry of a message with a timer. Without memory for it, raises `timers_lost`,
 * so that the housekeeper scans all cells. */
void sb_queue_schedule(sb_queue *q, uint64_t position) {
  sb_ring r;
  uint64_t at = 0, entry = (uint64_t)SB_CELL_ENTRY | SB_FIELD(position, 4);
  if (!sb_ring_open(q->c->b, q->slot, SB_RING_SCHEDULE, &r) ||
      sb_ring_append(q->c, &r, &q->schedule_leaf, entry, SB_APPEND_ENTRY, NULL, &at) != SB_OK) {
    (void)SB_ADD(&q->shm->timers_lost, 1, SB_RELEASE);
  }
}

/* Gives up when `tries` exceeds SB_MAX_RETRIES: if a link of the ring is broken, sb_closing_resolve may return true
 * although it did not find the cell. Without this bound the caller would meet the cell again for ever. */
sb_status sb_queue_pass_closing(sb_queue *q, const sb_lane *lane, uint64_t position, unsigned tries) {
  bool resolved = sb_closing_resolve(q->c->b, q->c, q->shm, &lane->ring, position);
  bool open = sb_queue_is_open(q);
  if (resolved && open && tries <= SB_MAX_RETRIES) {
    return SB_CLOSED_CELL;
  }
  return resolved && !open ? SB_DELETED : SB_CORRUPT;
}

sb_status sb_queue_append_in_lane(sb_queue *q, sb_lane *lane, uint64_t word, sb_append how, sb_word *announce,
                                  uint64_t *position) {
  sb_lanes_mark(&lane->ring); /* P23 of sb_lanes.h: first the bit, then the cell */
  SB_CRASHPOINT("queue.append.marked");
  *position = lane->tail_cursor;
  sb_status status = sb_ring_append(q->c, &lane->ring, &lane->tail_leaf, word, how, announce, position);
  if (status != SB_OK) {
    return status;
  }
  (void)SB_ADD(&q->shm->came, 1, SB_SEQ_CST);
  SB_CRASHPOINT("queue.append.counted");
  sb_lanes_mark(&lane->ring);
  if (how.form == SB_WORD_OWNED && sb_closing_ends(q->c->b, q->slot)) { /* I79 of sb_closing.h: after the append */
    uint64_t mine = SB_LOAD(&sb_leaf_cell(&lane->tail_leaf, *position)->word, SB_RELAXED); /* nobody else changes it */
    (void)sb_ring_drop(q->c, &lane->ring, &lane->tail_leaf, *position, mine);
    return SB_DELETED;
  }
  return SB_OK;
}

sb_status sb_queue_enqueue(sb_queue *q, uint32_t slot, uint64_t gen, uint64_t bytes, bool scheduled, uint64_t token,
                           uint64_t *position) {
  sb_connection *c = q->c;
  sb_lane *lane = &q->lanes[0];
  sb_ledger_shm *l = q->ledger;
  sb_word *header = sb_slot_header(c->b, slot);
  if (sb_queue_has_lanes(q)) {
    sb_status made = sb_queue_lane_for(q, ((sb_message_shm *)sb_slot_at(c->b, slot))->priority, &lane);
    if (made != SB_OK) return made;
  }
  bool tracked = sb_queue_tracks(q->shm);
  /* read before the append: afterwards another process may own the message */
  bool timer = scheduled || ((sb_message_shm *)sb_slot_at(c->b, slot))->expires_ns != 0;
  SB_STORE(&l->target_queue, scheduled, SB_RELAXED);
  SB_STORE(&l->target_position, SB_LOAD(&l->counters[SB_COUNT_SCHEDULED], SB_RELAXED), SB_RELAXED);
  sb_ledger_begin_intent(l, SB_INTENT_ENQUEUE, SB_COUNT_ADDED, UINT64_MAX, slot, gen, bytes);
  uint64_t parts = SB_LOAD(header, SB_RELAXED) & SB_FIELD(1u, 2 + SB_PARTS_REF); /* relaxed: the caller owns the slot */
  SB_STORE(header, sb_slot_word(SB_SLOT_PUBLISHED, 1, gen) | parts, SB_RELEASE); /* P1 release */
  SB_CRASHPOINT("queue.enqueue.published");
  if (scheduled && tracked) sb_hints_taken(q->shm, 1, bytes); /* I23: taken, until a release makes it AVAILABLE */
  uint64_t word = (uint64_t)(scheduled ? SB_CELL_SCHEDULED : SB_CELL_AVAILABLE) | SB_FIELD(slot, 4);
  sb_append how = {SB_WORD_OPEN, tracked ? SB_TAIL_EXACT : SB_TAIL_LAZY, sb_queue_spacing(q, bytes)};
  sb_status status = sb_queue_append(q, lane, word, how, &l->position, position);
  if (status != SB_OK) {
    SB_STORE(header, sb_slot_word(SB_SLOT_ALLOC, c->id, gen) | parts, SB_RELEASE); /* no process has seen it */
    if (scheduled && tracked) sb_hints_untaken(q->shm, 1, bytes);
  } else {
    lane->tail_cursor = *position + 1;
    if (timer) sb_queue_schedule(q, *position);
    sb_ledger_count(l, SB_COUNT_ADDED_BYTES, bytes);
    if (scheduled) sb_ledger_count(l, SB_COUNT_SCHEDULED, 1);
    sb_ledger_count(l, SB_COUNT_ADDED, 1);
    if (sb_queue_has_values(q)) {
      sb_holding_set(c->b, token, sb_holding_what(SB_HOLD_CELL, q->slot, lane->tail_leaf.slot), *position);
    }
  }
  sb_ledger_end_intent(l);
  return status;
}
