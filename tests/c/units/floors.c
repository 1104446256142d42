// SPDX-License-Identifier: Apache-2.0
/* sb_floors: the numbers that must not restart when a chunk of structures had another kind for a while. No actor has
 * opened the chunk; the case owns its memory. */
#include "sb_floors.h"

#include <string.h>

#include "calls.h"
#include "cases.h"
#include "meanwhile.h"

#define CHUNK 8u
#define UNITS 4u /* the last slot ends with the chunk */
#define SLOTS (SB_CHUNK_UNITS / UNITS)
enum { INCARNATION, POSITION };

static void *slot(uint32_t i) { return sb_slot_at(t.b, CHUNK * SB_CHUNK_UNITS + i * UNITS); }
static uint64_t floor_of(unsigned which) { return SB_LOAD(&sb_chunk_meta(t.b, CHUNK)->floors[which], SB_RELAXED); }
static void clear(void) { memset(sb_slot_at(t.b, CHUNK * SB_CHUNK_UNITS), 0, SB_CHUNK_BYTES); }
static void forget(void) {
  SB_STORE(&sb_chunk_meta(t.b, CHUNK)->floors[INCARNATION], 0, SB_RELAXED);
  SB_STORE(&sb_chunk_meta(t.b, CHUNK)->floors[POSITION], 0, SB_RELAXED);
}

/* Whichever place of a queue has gone furthest decides; in the first slot, in the last one. */
static void one_place_of_a_queue(sb_word *place, const char *what) {
  for (uint64_t pages = 1; pages <= 2; pages++) {
    SB_STORE(place, pages * SB_PAGE_CELLS, SB_RELAXED);
    sb_floors_raise(t.b, CHUNK, SB_KIND_QUEUE, UNITS);
    expect_is(floor_of(POSITION), pages * SB_PAGE_CELLS, what);
    SB_STORE(place, pages * SB_PAGE_CELLS + 1, SB_RELAXED);
    sb_floors_raise(t.b, CHUNK, SB_KIND_QUEUE, UNITS);
    expect_is(floor_of(POSITION), (pages + 1) * SB_PAGE_CELLS, what);
    forget();
  }
  SB_STORE(place, 0, SB_RELAXED);
}
static void places_of_a_ring(sb_ring_shm *r, const char *what) {
  one_place_of_a_queue(&r->base, what);
  one_place_of_a_queue(&r->tail, what);
}
static void the_furthest_place_of_queues(void) {
  grow_to(CHUNK);
  clear();
  for (uint32_t i = 0; i < SLOTS; i += SLOTS - 1) {
    sb_queue_shm *q = slot(i);
    one_place_of_a_queue(&q->base, "the floor of base");
    one_place_of_a_queue(&q->tail, "the floor of tail");
    places_of_a_ring(&q->all, "the floor of `all`");
    places_of_a_ring(&q->non_acquiring_list, "the floor of browsers");
    places_of_a_ring(&q->not_interested_list, "the floor of those not interested");
    places_of_a_ring(&q->room, "the floor of those who wait for room");
    places_of_a_ring(&q->schedule, "the floor of the schedule");
    expect_is(floor_of(INCARNATION), 0, "the floor of incarnations");
  }
}

static void the_furthest_place_of_levels(void) {
  grow_to(CHUNK);
  clear();
  for (uint32_t i = 0; i < SLOTS; i += SLOTS - 1) {
    sb_consumer_level_shm *l = slot(i);
    sb_ring_shm *rings[] = {&l->interested, &l->notified};
    for (unsigned k = 0; k < 2; k++) {
      SB_STORE(&rings[k]->tail, SB_PAGE_CELLS + 1, SB_RELAXED);
      sb_floors_raise(t.b, CHUNK, SB_KIND_CONSUMER_LEVEL, UNITS);
      expect_is(floor_of(POSITION), 2 * SB_PAGE_CELLS, "the floor of a level");
      SB_STORE(&rings[k]->tail, 0, SB_RELAXED);
      forget();
    }
  }
}

/* The number of a lane is no part of the place: the next life of its slot may have another number. */
static void the_furthest_place_of_lanes(void) {
  grow_to(CHUNK);
  clear();
  for (uint32_t i = 0; i < SLOTS; i += SLOTS - 1) {
    sb_lane_shm *l = slot(i);
    sb_word *places[] = {&l->base, &l->tail};
    for (unsigned k = 0; k < 2; k++) {
      SB_STORE(places[k], sb_position_in(200, SB_PAGE_CELLS + 1), SB_RELAXED);
      SB_STORE(places[1 - k], sb_position_in(200, 1), SB_RELAXED);
      sb_floors_raise(t.b, CHUNK, SB_KIND_LANE, UNITS);
      expect_is(floor_of(POSITION), 2 * SB_PAGE_CELLS, "the floor of a lane");
      expect_is(floor_of(INCARNATION), 0, "the floor of incarnations");
      SB_STORE(places[k], 0, SB_RELAXED);
      SB_STORE(places[1 - k], 0, SB_RELAXED);
      forget();
    }
  }
}

/* A floor does not sink, and the other kinds have none. */
static void floors_only_rise(void) {
  grow_to(CHUNK);
  clear();
  sb_queue_shm *q = slot(SLOTS - 1);
  SB_STORE(&q->state, SB_FIELD(7, 2), SB_RELAXED);
  SB_STORE(&q->tail, 5 * SB_PAGE_CELLS, SB_RELAXED);
  const unsigned others[] = {SB_KIND_LEAF, SB_KIND_INNER, SB_KIND_NODE, SB_KIND_LEDGER};
  for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
    sb_floors_raise(t.b, CHUNK, others[i], UNITS);
    expect_is(floor_of(POSITION) + floor_of(INCARNATION), 0, "the floor of another kind");
  }
  sb_floors_raise(t.b, CHUNK, SB_KIND_LONG_QUEUE, UNITS);
  expect_is(floor_of(INCARNATION), 7, "the floor of incarnations of queues with texts");
  forget();
  sb_floors_raise(t.b, CHUNK, SB_KIND_QUEUE, UNITS);
  SB_STORE(&q->state, SB_FIELD(6, 2), SB_RELAXED);
  SB_STORE(&q->tail, 4 * SB_PAGE_CELLS, SB_RELAXED);
  sb_floors_raise(t.b, CHUNK, SB_KIND_QUEUE, UNITS);
  expect_is(floor_of(INCARNATION), 7, "the floor of incarnations");
  expect_is(floor_of(POSITION), 5 * SB_PAGE_CELLS, "the floor of positions");
}

static void expect_ring_at(const sb_ring_shm *r, uint64_t position, const char *what) {
  expect_is(SB_LOAD(&r->root, SB_RELAXED), sb_link_empty(position / SB_PAGE_CELLS), what);
  expect_is(SB_LOAD(&r->base, SB_RELAXED), position, what);
  expect_is(SB_LOAD(&r->tail, SB_RELAXED), position, what);
  expect_is(SB_LOAD(&r->head, SB_RELAXED), position, what);
}
static void expect_queue_at(const sb_queue_shm *q, uint64_t incarnation, uint64_t position) {
  expect_is(SB_LOAD(&q->state, SB_RELAXED), SB_QUEUE_NONE | SB_FIELD(incarnation, 2), "the state of a queue");
  expect_is(SB_LOAD(&q->root, SB_RELAXED), sb_link_empty(position / SB_PAGE_CELLS), "the root of a queue");
  expect_is(SB_LOAD(&q->base, SB_RELAXED), position, "the base of a queue");
  expect_is(SB_LOAD(&q->tail, SB_RELAXED), position, "the tail of a queue");
  expect_is(SB_LOAD(&q->head, SB_RELAXED), position, "the head of a queue");
  expect_ring_at(&q->all, position, "`all`");
  expect_ring_at(&q->non_acquiring_list, position, "the list of browsers");
  expect_ring_at(&q->not_interested_list, position, "the list of those not interested");
  expect_ring_at(&q->room, position, "the list of those who wait for room");
  expect_ring_at(&q->schedule, position, "the schedule");
}
static void set_floors(uint64_t incarnation, uint64_t position) {
  SB_STORE(&sb_chunk_meta(t.b, CHUNK)->floors[INCARNATION], incarnation, SB_RELAXED);
  SB_STORE(&sb_chunk_meta(t.b, CHUNK)->floors[POSITION], position, SB_RELAXED);
}
static void queues_begin_above(void) {
  const uint64_t floors[][2] = {{7, 3 * SB_PAGE_CELLS}, {7, 0}, {0, 3 * SB_PAGE_CELLS}};
  grow_to(CHUNK);
  for (unsigned k = 0; k < 3; k++) {
    clear();
    set_floors(floors[k][0], floors[k][1]);
    sb_floors_apply(t.b, CHUNK, k == 0 ? SB_KIND_LONG_QUEUE : SB_KIND_QUEUE, UNITS);
    expect_queue_at(slot(0), floors[k][0], floors[k][1]);
    expect_queue_at(slot(SLOTS - 1), floors[k][0], floors[k][1]);
  }
}
static void levels_begin_above(void) {
  grow_to(CHUNK);
  clear();
  set_floors(7, 3 * SB_PAGE_CELLS);
  sb_floors_apply(t.b, CHUNK, SB_KIND_CONSUMER_LEVEL, UNITS);
  for (uint32_t i = 0; i < SLOTS; i += SLOTS - 1) {
    const sb_consumer_level_shm *l = slot(i);
    expect_ring_at(&l->interested, 3 * SB_PAGE_CELLS, "the list of the interested");
    expect_ring_at(&l->notified, 3 * SB_PAGE_CELLS, "the list of the notified");
  }
}

/* Their other places follow when they get a number. */
static void lanes_begin_above(void) {
  grow_to(CHUNK);
  clear();
  set_floors(7, 3 * SB_PAGE_CELLS);
  sb_floors_apply(t.b, CHUNK, SB_KIND_LANE, UNITS);
  for (uint32_t i = 0; i < SLOTS; i += SLOTS - 1) {
    const sb_lane_shm *l = slot(i);
    expect_is(SB_LOAD(&l->base, SB_RELAXED), 3 * SB_PAGE_CELLS, "the base of a lane");
    expect_is(l->root | l->tail | l->head | l->number | l->queue | l->next, 0, "what follows later");
  }
}

/* Objects of other kinds are zero when their chunk is opened, and queues where no floor was ever raised. */
static bool is_zero(void) {
  const char *memory = sb_slot_at(t.b, CHUNK * SB_CHUNK_UNITS);
  return memory[0] == 0 && memcmp(memory, memory + 1, SB_CHUNK_BYTES - 1) == 0;
}
static void nothing_is_written(void) {
  grow_to(CHUNK);
  clear();
  sb_floors_apply(t.b, CHUNK, SB_KIND_QUEUE, UNITS);
  expect(is_zero(), "queues were written, without a floor");
  set_floors(7, 0);
  sb_floors_apply(t.b, CHUNK, SB_KIND_CONSUMER_LEVEL, UNITS);
  expect(is_zero(), "levels were written, without a position");
  sb_floors_apply(t.b, CHUNK, SB_KIND_LANE, UNITS);
  expect(is_zero(), "lanes were written, without a position");
  set_floors(7, 3 * SB_PAGE_CELLS);
  sb_floors_apply(t.b, CHUNK, SB_KIND_LEAF, UNITS);
  expect(is_zero(), "leaves were written");
}

static void another_process_raises_it(void) {
  SB_STORE(&sb_chunk_meta(t.b, CHUNK)->floors[POSITION], SB_PAGE_CELLS, SB_RELAXED);
}
static void a_floor_that_is_raised_meanwhile(void) {
  if (!has_steps()) return;
  grow_to(CHUNK);
  clear();
  sb_queue_shm *q = slot(0);
  SB_STORE(&q->base, 3 * SB_PAGE_CELLS, SB_RELAXED);
  meanwhile(&sb_chunk_meta(t.b, CHUNK)->floors[POSITION], BEFORE_CAS, 1, another_process_raises_it);
  sb_floors_raise(t.b, CHUNK, SB_KIND_QUEUE, UNITS);
  expect(has_acted(), "the floor was not raised");
  expect_is(floor_of(POSITION), 3 * SB_PAGE_CELLS, "the floor");
}

static const test_case CASES[] = {
    {"floors: meanwhile", "a floor that another process raises less is raised all the same",
     a_floor_that_is_raised_meanwhile},
    {"floors: queues", "whichever place of a queue has gone furthest raises the floor, to the next page",
     the_furthest_place_of_queues},
    {"floors: levels", "either list of a level raises the floor, to the next page", the_furthest_place_of_levels},
    {"floors: lanes", "either end of a lane raises the floor, without the number of the lane",
     the_furthest_place_of_lanes},
    {"floors: rise", "a floor does not sink, and only queues, levels and lanes raise one", floors_only_rise},
    {"floors: queues begin", "all places of a queue begin at the floor, its incarnations above theirs",
     queues_begin_above},
    {"floors: levels begin", "both lists of a level begin at the floor", levels_begin_above},
    {"floors: lanes begin", "the base of a lane is at the floor", lanes_begin_above},
    {"floors: nothing", "without a floor, and for other kinds, nothing is written", nothing_is_written},
};
SUBJECT(CASES)
