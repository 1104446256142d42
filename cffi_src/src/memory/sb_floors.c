// SPDX-License-Identifier: Apache-2.0
#include "sb_floors.h"

enum { INCARNATION, POSITION };

static void raise(sb_broker *b, uint32_t chunk, unsigned which, uint64_t to) {
  sb_word *floor = &sb_chunk_meta(b, chunk)->floors[which];
  uint64_t is = SB_LOAD(floor, SB_RELAXED); /* relaxed, here and below: the chunk's word orders all accesses */
  while (is < to && !SB_CAS(floor, &is, to, SB_ACQ_REL)) {
  }
}

static uint64_t floor_of(sb_broker *b, uint32_t chunk, unsigned which) {
  return SB_LOAD(&sb_chunk_meta(b, chunk)->floors[which], SB_RELAXED);
}

static uint64_t higher(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t end_of(const sb_ring_shm *r) {
  return higher(SB_LOAD(&r->base, SB_RELAXED), SB_LOAD(&r->tail, SB_RELAXED));
}

/* Rounds up to the first position of a page: a ring begins with a whole page. */
static uint64_t page_behind(uint64_t position) {
  return (position + SB_PAGE_CELLS - 1) / SB_PAGE_CELLS * SB_PAGE_CELLS;
}

static bool is_queue(unsigned kind) { return kind == SB_KIND_QUEUE || kind == SB_KIND_LONG_QUEUE; }

static uint64_t positions_of(const sb_queue_shm *q) {
  uint64_t end = higher(SB_LOAD(&q->base, SB_RELAXED), SB_LOAD(&q->tail, SB_RELAXED));
  end = higher(end, higher(end_of(&q->all), end_of(&q->non_acquiring_list)));
  return higher(end, higher(end_of(&q->not_interested_list), higher(end_of(&q->room), end_of(&q->schedule))));
}

void sb_floors_raise(sb_broker *b, uint32_t chunk, unsigned kind, unsigned units) {
  for (uint32_t u = 0; u + units <= SB_CHUNK_UNITS; u += units) {
    const void *object = sb_slot_at(b, chunk * SB_CHUNK_UNITS + u);
    if (is_queue(kind)) {
      raise(b, chunk, INCARNATION, sb_queue_incarnation(SB_LOAD(&((const sb_queue_shm *)object)->state, SB_RELAXED)));
      raise(b, chunk, POSITION, page_behind(positions_of(object)));
    } else if (kind == SB_KIND_CONSUMER_LEVEL) {
      const sb_consumer_level_shm *l = object;
      raise(b, chunk, POSITION, page_behind(higher(end_of(&l->interested), end_of(&l->notified))));
    } else if (kind == SB_KIND_LANE) {
      const sb_lane_shm *l = object;
      uint64_t base = sb_position_place(SB_LOAD(&l->base, SB_RELAXED));
      raise(b, chunk, POSITION, page_behind(higher(base, sb_position_place(SB_LOAD(&l->tail, SB_RELAXED)))));
    }
  }
}

static void begin_at(sb_ring_shm *r, uint64_t position) {
  *r = (sb_ring_shm){sb_link_empty(position / SB_PAGE_CELLS), position, position, position};
}

static void begin_queue(sb_queue_shm *q, uint64_t incarnation, uint64_t position) {
  SB_STORE(&q->state, SB_QUEUE_NONE | SB_FIELD(incarnation, 2), SB_RELAXED);
  SB_STORE(&q->root, sb_link_empty(position / SB_PAGE_CELLS), SB_RELAXED);
  SB_STORE(&q->base, position, SB_RELAXED);
  SB_STORE(&q->tail, position, SB_RELAXED);
  SB_STORE(&q->head, position, SB_RELAXED);
  begin_at(&q->all, position);
  begin_at(&q->non_acquiring_list, position);
  begin_at(&q->not_interested_list, position);
  begin_at(&q->room, position);
  begin_at(&q->schedule, position);
}

void sb_floors_apply(sb_broker *b, uint32_t chunk, unsigned kind, unsigned units) {
  uint64_t incarnation = floor_of(b, chunk, INCARNATION), position = floor_of(b, chunk, POSITION);
  for (uint32_t u = 0; u + units <= SB_CHUNK_UNITS; u += units) {
    void *object = sb_slot_at(b, chunk * SB_CHUNK_UNITS + u);
    if (is_queue(kind) && (incarnation != 0 || position != 0)) {
      begin_queue(object, incarnation, position);
    } else if (kind == SB_KIND_CONSUMER_LEVEL && position != 0) {
      begin_at(&((sb_consumer_level_shm *)object)->interested, position);
      begin_at(&((sb_consumer_level_shm *)object)->notified, position);
    } else if (kind == SB_KIND_LANE) { /* the rest follows when the lane gets its number (sb_lanes_make) */
      SB_STORE(&((sb_lane_shm *)object)->base, position, SB_RELAXED);
    }
  }
}
