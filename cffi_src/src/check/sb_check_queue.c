// SPDX-License-Identifier: Apache-2.0
/* The doctor's check of a queue: its cells and messages, its ledgers, its counters and hints. */
#include "sb_check.h"

#include <string.h>

#include "sb_parts.h"
#include "sb_slab.h"

/* Values of `which` in a finding; the comment after each enum names the code of the finding. */
enum { OUTSIDE, NO_SLOT, OTHER_KIND, FREED, UNPUBLISHED, NO_REFERENCE, OTHER_LIFE }; /* SB_LOST_BODY */
enum { READY, DELIVERING, SCHEDULED, BYTES };                                        /* SB_BAD_COUNT */
enum { TAKEN, ADMITTED, READY_BYTES, TRACKING, CAME };                               /* SB_BAD_HINT */
enum {
  RING_SIZE,
  MAX_LENGTH,
  MAX_BYTES,
  OVERFLOW,
  TEXTS,
  MAX_PRIORITY,
  CLOSING,
  MESSAGE_TTL,
  EXPIRES,
  ATTEMPTS,
  REDELIVERY_DELAY,
  MULTIPLIER,
  MAX_REDELIVERY_DELAY,
  COLLISION,
  EXPIRY_DELAY,
  MIN_EXPIRY_DELAY,
  MAX_EXPIRY_DELAY,
  RESUME_AT
}; /* SB_BAD_QUEUE */
enum { IMPOSSIBLE, NO_REASON, NO_MOMENT };            /* SB_BAD_CELL */
enum { LENGTH, START, PRIORITY };                     /* SB_BAD_MESSAGE */
enum { CELL, LANE };                                  /* SB_HIDDEN_CELL */
enum { LEDGERS, LEVELS, LANES };                      /* SB_BAD_CHAIN */
enum { OTHER_QUEUE, NO_OWNER, OWNER_FORGOT, INTENT }; /* SB_BAD_LEDGER */

typedef struct {
  uint32_t slot;
  uint64_t head;
  uint64_t ready, scheduled, owned, bytes, ready_bytes;
  uint64_t staged, staged_bytes; /* of STAGED cells, which no ledger counts yet */
  uint64_t paged;                /* leaves that are not in the memory: of their messages only the ledgers know */
  uint64_t counters[SB_COUNTERS], holding;
} tally;

static void trouble(sb_checkup *k, unsigned code, const tally *t, unsigned which, uint64_t where, uint64_t found,
                    uint64_t expected) {
  sb_check_found(k, (sb_finding){code, t->slot, 0, which, 0, where, found, expected});
}

/* ---- messages and cells ---- */

static void lost(sb_checkup *k, const tally *t, uint32_t slot, unsigned which, uint64_t position, uint64_t found,
                 uint64_t expected) {
  sb_check_found(k, (sb_finding){SB_LOST_BODY, t->slot, slot, which, 0, position, found, expected});
}

/* Checks the reference of a cell, and reports what is wrong. True if the message that the cell names exists. */
static bool check_body(sb_checkup *k, const tally *t, uint64_t position, uint64_t word) {
  uint32_t slot = sb_cell_slot(word), limit = k->chunks * SB_CHUNK_UNITS;
  unsigned kind = sb_check_kind(k, slot), ref = sb_cell_ref(word);
  if (kind != SB_KIND_MESSAGE) {
    unsigned which = slot == 0 || slot >= limit ? OUTSIDE : kind == SB_KIND_NONE ? NO_SLOT : OTHER_KIND;
    lost(k, t, slot, which, position, kind, which == OUTSIDE ? limit : 0);
    return false;
  }
  uint64_t header = sb_check_header(k, slot);
  if (sb_cell_state(word) == SB_CELL_STAGED && sb_slot_state(header) == SB_SLOT_ALLOC &&
      sb_slot_owner(header) == sb_cell_owner(word)) {
    return true; /* the commit has not published the body yet */
  }
  if (!sb_slot_is_published(header)) {
    lost(k, t, slot, sb_slot_state(header) == SB_SLOT_FREE ? FREED : UNPUBLISHED, position, header, 0);
    return false;
  }
  sb_reference r = {slot, ref, sb_slot_gen(header), t->slot};
  if (!sb_check_has(k, &r)) {
    lost(k, t, slot, NO_REFERENCE, position, ref, sb_slot_refs(header));
    return false;
  }
  if (!sb_check_count(k, &r)) {
    sb_check_found(k, (sb_finding){SB_SHARED_REFERENCE, t->slot, slot, 0, 0, position, ref, 0});
  }
  return true;
}

static void check_message(sb_checkup *k, const tally *t, uint64_t position, uint32_t slot) {
  sb_message_shm m = sb_peek_message(k->b, slot);
  uint64_t bytes = sb_slab_slot_bytes(k->b, slot);
  uint64_t prefix = sizeof m + (uint64_t)m.exchange_length + m.key_length + m.properties_length;
  if ((m.flags & SB_MESSAGE_IN_PARTS) != 0) {
    uint64_t need = prefix - sizeof m + m.body_length, room = sb_parts_room(k->b, slot);
    if (prefix > SB_MAX_PREFIX || m.body_length > SB_MAX_BODY || room < need) {
      sb_check_found(k, (sb_finding){SB_BAD_MESSAGE, t->slot, slot, LENGTH, 0, position, need, room});
    }
  } else if (prefix > m.body_offset || prefix > SB_MAX_PREFIX || m.body_offset > bytes) {
    sb_check_found(k, (sb_finding){SB_BAD_MESSAGE, t->slot, slot, START, 0, position, m.body_offset, prefix});
  } else if (m.body_length > bytes - m.body_offset || m.body_length > SB_MAX_BODY) {
    sb_check_found(
        k, (sb_finding){SB_BAD_MESSAGE, t->slot, slot, LENGTH, 0, position, m.body_length, bytes - m.body_offset});
  }
}

/* The lane of a message is that of its priority: a put to a lane, and each move, chooses the lane so. */
static void check_priority(sb_checkup *k, const tally *t, uint64_t position, uint32_t slot) {
  const sb_queue_shm *q = sb_slot_at(k->b, t->slot);
  unsigned priority = sb_peek_message(k->b, slot).priority, lane = sb_position_lane(position);
  if (sb_lanes_several(q) && sb_lanes_number(q, priority) != lane) {
    unsigned highest = sb_lanes_number(q, 0);
    uint64_t of_lane = lane <= highest ? highest - lane : 0;
    sb_check_found(k, (sb_finding){SB_BAD_MESSAGE, t->slot, slot, PRIORITY, 0, position, priority, of_lane});
  }
}

/* A SCHEDULED message is dead, for a reason that exists, or rests until a time: of its side record (I80 of sb_park.h), or
 * its own. */
static void check_rest(sb_checkup *k, const tally *t, const sb_check_cell *cell, uint32_t slot) {
  uint64_t side = SB_LOAD(&cell->cell->side, SB_ACQUIRE);
  unsigned why = sb_side_why_of(side);
  if (why > SB_WHY_DELIVERY_LIMIT) {
    sb_check_found(k, (sb_finding){SB_BAD_CELL, t->slot, slot, NO_REASON, SB_RING_CELLS, cell->position, why,
                                   SB_WHY_DELIVERY_LIMIT});
  } else if (why == SB_WHY_ALIVE && (side & SB_SIDE_DELAYED) == 0 && sb_peek_message(k->b, slot).due_ns == 0) {
    sb_check_found(k, (sb_finding){SB_BAD_CELL, t->slot, slot, NO_MOMENT, SB_RING_CELLS, cell->position, side, 0});
  }
}

/* Checks the owner of a cell, and the generation that the owner wrote into the cell when it took the message. With a
 * wrong generation the owner could not free the slot of the message. */
static void check_holder(sb_checkup *k, const tally *t, const sb_check_cell *cell) {
  unsigned owner = sb_cell_owner(cell->word);
  uint32_t slot = sb_cell_slot(cell->word);
  uint64_t header = sb_check_header(k, slot), side = SB_LOAD(&cell->cell->side, SB_ACQUIRE);
  if (!sb_check_lives(k, owner)) {
    sb_check_found(k, (sb_finding){SB_BAD_OWNER, t->slot, slot, 2, 0, cell->position, owner, 0});
    return;
  }
  k->owned[owner]++;
  bool written = sb_cell_state(cell->word) != SB_CELL_STAGED;
  if (written && sb_side_gen(side) != sb_slot_gen(header) && !sb_check_dying(k, owner)) {
    lost(k, t, slot, OTHER_LIFE, cell->position, sb_side_gen(side), sb_slot_gen(header));
  }
}

static void visit_cell(sb_checkup *k, void *context, const sb_check_cell *cell) {
  tally *t = context;
  unsigned state = sb_cell_state(cell->word);
  uint32_t slot = sb_cell_slot(cell->word);
  if (!sb_cell_has_message(cell->word) || !check_body(k, t, cell->position, cell->word)) {
    return;
  }
  check_message(k, t, cell->position, slot);
  check_priority(k, t, cell->position, slot);
  if (sb_cell_is_owned(cell->word)) {
    check_holder(k, t, cell);
  } else if (state == SB_CELL_SCHEDULED) {
    check_rest(k, t, cell, slot);
  }
  uint64_t bytes = sb_peek_length(k->b, slot);
  t->ready += state == SB_CELL_AVAILABLE || state == SB_CELL_FROZEN;
  t->scheduled += state == SB_CELL_SCHEDULED;
  t->owned += state == SB_CELL_ACQUIRED || state == SB_CELL_REMOVING;
  if (state == SB_CELL_STAGED) {
    t->staged++;
    t->staged_bytes += bytes;
    return;
  }
  t->bytes += bytes;
  t->ready_bytes += state == SB_CELL_AVAILABLE || state == SB_CELL_FROZEN ? bytes : 0;
  if (state == SB_CELL_AVAILABLE && cell->position < t->head && !cell->marked) {
    sb_check_found(k, (sb_finding){SB_HIDDEN_CELL, t->slot, slot, CELL, 0, cell->position, t->head, 0});
  }
}

/* ---- lanes ---- */

/* Checks the ring of a lane, and adds the number of its cells to *cells. `object`: that of the lane, or the queue.
 * False: the ring is broken. */
static bool check_lane(sb_checkup *k, tally *t, uint32_t object, uint32_t id, uint64_t *cells) {
  sb_ring r;
  uint64_t end, before = t->ready, paged = k->paged;
  if (!sb_ring_open(k->b, object, id, &r)) {
    return false;
  }
  t->head = SB_LOAD(r.head, SB_ACQUIRE);
  bool sound = sb_check_ring(k, object, id, t->slot, visit_cell, t, &end);
  *cells += end - SB_LOAD(r.base, SB_RELAXED);
  t->paged += k->paged - paged;
  if (sound && t->ready > before && !sb_lanes_is_marked(&r)) { /* I77 of sb_lanes.h */
    uint64_t base = SB_LOAD(r.base, SB_RELAXED);
    sb_check_found(k, (sb_finding){SB_HIDDEN_CELL, t->slot, object, LANE, 0, sb_position_lane(base), 0, 0});
  }
  return sound;
}

static bool check_lanes(sb_checkup *k, const sb_queue_shm *q, tally *t, uint64_t *cells) {
  bool sound = check_lane(k, t, t->slot, SB_RING_CELLS, cells);
  unsigned above = 0, most = sb_lanes_number(q, 0);
  for (uint32_t at = SB_LOAD(&q->lanes, SB_ACQUIRE); at != 0;) {
    const sb_lane_shm *lane = sb_check_is(k, at, SB_KIND_LANE) ? sb_slot_at(k->b, at) : NULL;
    unsigned number = lane != NULL ? SB_LOAD(&lane->number, SB_RELAXED) : 0;
    bool fits = lane != NULL && (k->seen[at] & 1u) == 0 && SB_LOAD(&lane->queue, SB_RELAXED) == t->slot &&
                number > above && number <= most && sb_position_lane(SB_LOAD(&lane->base, SB_RELAXED)) == number;
    if (!fits) { /* a chain with a cycle ends here, too */
      sb_check_found(k, (sb_finding){SB_BAD_CHAIN, t->slot, at, LANES, 0, 0, sb_check_kind(k, at), SB_KIND_LANE});
      return false;
    }
    k->seen[at] |= 1u;
    above = number;
    sound = check_lane(k, t, at, SB_RING_LANE, cells) && sound;
    at = SB_LOAD(&lane->next, SB_ACQUIRE);
  }
  return sound;
}

/* ---- ledgers ---- */

static void check_ledger(sb_checkup *k, tally *t, uint32_t slot) {
  const sb_ledger_shm *l = sb_slot_at(k->b, slot);
  uint64_t kind = SB_LOAD(&l->kind, SB_ACQUIRE) & 0xffu;
  unsigned owner = (unsigned)SB_BITS(SB_LOAD(&l->owner, SB_ACQUIRE), 0, 12);
  uint32_t queue = SB_LOAD(&l->queue, SB_RELAXED);
  for (unsigned i = 0; i < SB_COUNTERS; i++) {
    t->counters[i] += SB_LOAD(&l->counters[i], SB_ACQUIRE);
  }
  t->holding += (uint32_t)SB_LOAD(&l->holding, SB_ACQUIRE);
  if (queue != t->slot) {
    sb_check_found(k, (sb_finding){SB_BAD_LEDGER, t->slot, slot, OTHER_QUEUE, 0, 0, queue, t->slot});
  }
  if (owner != 0 && !sb_check_lives(k, owner)) {
    sb_check_found(k, (sb_finding){SB_BAD_LEDGER, t->slot, slot, NO_OWNER, 0, 0, owner, 0});
  } else if (owner != 0 && (k->seen[slot] & SB_KNOWN_TO_OWNER) == 0 && !sb_check_dying(k, owner)) {
    sb_check_found(k, (sb_finding){SB_BAD_LEDGER, t->slot, slot, OWNER_FORGOT, 0, 0, owner, 0});
  } else if (owner == 0 && kind != SB_INTENT_NONE) {
    sb_check_found(k, (sb_finding){SB_BAD_LEDGER, t->slot, slot, INTENT, 0, 0, kind, 0});
  }
}

static bool check_ledgers(sb_checkup *k, const sb_queue_shm *q, tally *t) {
  bool freeing = sb_queue_state(SB_LOAD(&q->state, SB_ACQUIRE)) == SB_QUEUE_FREEING;
  for (uint32_t at = SB_LOAD(&q->ledgers, SB_ACQUIRE); at != 0 && !(freeing && at == SB_LEDGERS_SEALED);) {
    if (!sb_check_is(k, at, SB_KIND_LEDGER) || (k->seen[at] & 1u) != 0) { /* a chain with a cycle ends here, too */
      sb_check_found(k, (sb_finding){SB_BAD_CHAIN, t->slot, at, LEDGERS, 0, 0, sb_check_kind(k, at), SB_KIND_LEDGER});
      return false;
    }
    k->seen[at] |= 1u;
    check_ledger(k, t, at);
    at = SB_LOAD(&((const sb_ledger_shm *)sb_slot_at(k->b, at))->next, SB_ACQUIRE);
  }
  return true;
}

/* ---- counters, hints, fields ---- */

/* `closed`: messages that had left the memory end with the queue, and nobody counts them. */
static void check_counts(sb_checkup *k, const tally *t, bool closed) {
  const uint64_t *n = t->counters;
  uint64_t scheduled = n[SB_COUNT_SCHEDULED] - n[SB_COUNT_UNSCHEDULED];
  uint64_t gone = n[SB_COUNT_ACKED] + n[SB_COUNT_EXPIRED] + n[SB_COUNT_KILLED] + n[SB_COUNT_REPLACED] +
                  n[SB_COUNT_DROPPED] + n[SB_COUNT_DEAD_LETTERED] + n[SB_COUNT_MOVED];
  uint64_t ready = n[SB_COUNT_ADDED] - gone - scheduled - t->holding;
  uint64_t bytes = n[SB_COUNT_ADDED_BYTES] - n[SB_COUNT_REMOVED_BYTES];
  bool fits = ready >= t->ready + t->paged && (closed || ready <= t->ready + SB_PAGE_CELLS * t->paged);
  if (!fits) trouble(k, SB_BAD_COUNT, t, READY, 0, ready, t->ready);
  if (t->holding != t->owned) trouble(k, SB_BAD_COUNT, t, DELIVERING, 0, t->holding, t->owned);
  if (scheduled != t->scheduled) trouble(k, SB_BAD_COUNT, t, SCHEDULED, 0, scheduled, t->scheduled);
  if (bytes < t->bytes || (bytes > t->bytes && t->paged == 0 && !closed))
    trouble(k, SB_BAD_COUNT, t, BYTES, 0, bytes, t->bytes);
}

static void check_hints(sb_checkup *k, const sb_queue_shm *q, const tally *t, uint64_t cells) {
  uint64_t end = SB_LOAD(&q->base, SB_RELAXED) + cells, came = SB_LOAD(&q->came, SB_ACQUIRE);
  uint64_t taken = SB_LOAD(&q->taken, SB_ACQUIRE), admitted = SB_LOAD(&q->admitted, SB_ACQUIRE);
  uint64_t gone = cells - t->ready;
  uint64_t bytes = SB_LOAD(&q->bytes_in, SB_ACQUIRE) - SB_LOAD(&q->bytes_out, SB_ACQUIRE);
  bool limits = sb_setting(q, SB_SETTING_RING_SIZE) >= 0 || sb_setting(q, SB_SETTING_MAX_LENGTH) >= 0 ||
                sb_setting(q, SB_SETTING_MAX_BYTES) >= 0;
  if (!sb_queue_tracks(q) || t->paged != 0) {
    if (limits && !sb_queue_tracks(q)) trouble(k, SB_BAD_HINT, t, TRACKING, 0, 0, 1);
    return;
  }
  /* I23 of sb_queue.h: depending on the queue and the message, a STAGED cell counts as taken or as ready */
  if (taken > gone || taken < gone - t->staged) trouble(k, SB_BAD_HINT, t, TAKEN, 0, taken, gone);
  if (sb_lanes_several(q) && came != end) trouble(k, SB_BAD_HINT, t, CAME, 0, came, end);
  if (admitted != end) trouble(k, SB_BAD_HINT, t, ADMITTED, 0, admitted, end);
  if (bytes < t->ready_bytes || bytes > t->ready_bytes + t->staged_bytes)
    trouble(k, SB_BAD_HINT, t, READY_BYTES, 0, bytes, t->ready_bytes);
}

static void check_limit(sb_checkup *k, const tally *t, unsigned which, int64_t limit, int64_t least) {
  if (limit != -1 && limit < least) trouble(k, SB_BAD_QUEUE, t, which, 0, (uint64_t)limit, 0);
}

/* A time, or another number, that is at least `least` and at most `most` if the queue has it; -1: it has none. */
static void check_range(sb_checkup *k, const tally *t, unsigned which, int64_t value, int64_t least, int64_t most) {
  if (value != -1 && (value < least || value > most)) trouble(k, SB_BAD_QUEUE, t, which, 0, (uint64_t)value, 0);
}

static void check_times(sb_checkup *k, const sb_queue_shm *q, const tally *t) {
  check_range(k, t, EXPIRY_DELAY, sb_setting(q, SB_SETTING_EXPIRY_DELAY_MS), 0, INT64_MAX);
  check_range(k, t, MIN_EXPIRY_DELAY, sb_setting(q, SB_SETTING_MIN_EXPIRY_DELAY_MS), 0, INT64_MAX);
  check_range(k, t, MAX_EXPIRY_DELAY, sb_setting(q, SB_SETTING_MAX_EXPIRY_DELAY_MS), 0, INT64_MAX);
  check_range(k, t, RESUME_AT, sb_setting(q, SB_SETTING_RESUME_AT), 0, 100);
  check_range(k, t, MESSAGE_TTL, sb_setting(q, SB_SETTING_MESSAGE_TTL_MS), 0, INT64_MAX);
  check_range(k, t, EXPIRES, sb_setting(q, SB_SETTING_EXPIRES_MS), 1, INT64_MAX);
  check_range(k, t, REDELIVERY_DELAY, sb_setting(q, SB_SETTING_REDELIVERY_DELAY_MS), 0, INT64_MAX);
  check_range(k, t, MULTIPLIER, sb_setting(q, SB_SETTING_REDELIVERY_MULTIPLIER), 0, 1000000);
  check_range(k, t, MAX_REDELIVERY_DELAY, sb_setting(q, SB_SETTING_MAX_REDELIVERY_DELAY_MS), 0, INT64_MAX);
  check_range(k, t, COLLISION, sb_setting(q, SB_SETTING_REDELIVERY_COLLISION), 0, 1000);
}

static void check_settings(sb_checkup *k, const sb_queue_shm *q, const tally *t) {
  uint64_t overflow = (uint64_t)sb_setting(q, SB_SETTING_OVERFLOW);
  check_limit(k, t, RING_SIZE, sb_setting(q, SB_SETTING_RING_SIZE), 1);
  check_limit(k, t, MAX_LENGTH, sb_setting(q, SB_SETTING_MAX_LENGTH), 0);
  check_limit(k, t, MAX_BYTES, sb_setting(q, SB_SETTING_MAX_BYTES), 0);
  int64_t priority = sb_setting(q, SB_SETTING_MAX_PRIORITY);
  uint64_t closing = SB_LOAD(&q->closing, SB_ACQUIRE);
  if (priority < -1 || priority >= (int64_t)SB_LANES || (priority > 0) != sb_lanes_several(q))
    trouble(k, SB_BAD_QUEUE, t, MAX_PRIORITY, 0, (uint64_t)priority, SB_LANES - 1);
  if (sb_closing_state(closing) > SB_ASKED_CLOSED) trouble(k, SB_BAD_QUEUE, t, CLOSING, 0, closing, 0);
  if (overflow >= SB_OVERFLOWS) trouble(k, SB_BAD_QUEUE, t, OVERFLOW, 0, overflow, 0);
  const sb_long_queue_shm *texts = sb_slab_object(k->b, t->slot, SB_KIND_LONG_QUEUE);
  uint32_t length = texts != NULL ? SB_LOAD(&texts->texts_length, SB_RELAXED) : 1;
  check_range(k, t, ATTEMPTS, sb_setting(q, SB_SETTING_MAX_DELIVERY_ATTEMPTS), 0, INT64_MAX);
  check_times(k, q, t);
  if (length == 0 || length > SB_TEXTS_MAX) trouble(k, SB_BAD_QUEUE, t, TEXTS, 0, length, SB_TEXTS_MAX);
}

void sb_check_queue(sb_checkup *k, uint32_t slot, bool closed) {
  sb_queue_shm *q = sb_slot_at(k->b, slot);
  tally t = {.slot = slot};
  uint64_t cells = 0;
  uint32_t before = k->count;
  k->seen[slot] |= 1u;
  bool sound = check_lanes(k, q, &t, &cells);
  sound = check_ledgers(k, q, &t) && sound;
  if (sound && k->count == before) { /* after other findings, wrong counters say nothing new */
    check_counts(k, &t, closed);
    if (!closed) check_hints(k, q, &t, cells);
  }
  if (!closed) check_settings(k, q, &t);
  sb_check_groups(k, slot);
  sb_check_values(k, slot, sound && !closed);
  sb_check_ids(k, slot);
  sb_check_lists(k, slot);
}
