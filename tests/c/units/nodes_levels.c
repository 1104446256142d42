// SPDX-License-Identifier: Apache-2.0
/* sb_nodes: levels, one for each priority of consumers of a queue. */
#include <string.h>

#include "consuming.h"
#include "sb_slab.h"
#include "waiting.h"

static uint32_t queue; /* slot of the queue of a case */
static sb_queue_shm *shm;

static void begin(void) {
  queue = queue_number(0)->slot;
  shm = queues[0]->shm;
}
static unsigned slot_state(uint32_t slot) { return sb_slot_state(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)); }

static uint32_t level(int32_t priority) {
  uint32_t slot = 0;
  expect_is(sb_consumer_level_of(t.c, queue, priority, &slot), SB_OK, "the status of a level");
  return slot;
}
/* All free slots of a kind are as an earlier life may have left them. */
static void dirty(uint32_t one, unsigned kind) {
  uint32_t units = sb_class_units(sb_class_of_kind(t.b, kind));
  uint32_t first = one / SB_CHUNK_UNITS * SB_CHUNK_UNITS;
  for (uint32_t slot = first; slot + units <= first + SB_CHUNK_UNITS; slot += units) {
    if (slot_state(slot) == SB_SLOT_FREE) memset(sb_slot_at(t.b, slot), 0x55, units * SB_UNIT);
  }
}
static void levels_by_descending_priority(void) {
  begin();
  uint32_t five = level(5), one = level(1), three = level(3), seven = level(7);
  const uint32_t in_order[] = {seven, five, three, one, 0};
  uint32_t at = SB_LOAD(&shm->consumer_levels, SB_RELAXED);
  for (unsigned i = 0; i < 5; i++) {
    expect_is(at, in_order[i], "a level in its place");
    if (at != 0) at = SB_LOAD(&sb_consumer_level_at(t.b, at)->next, SB_RELAXED);
  }
  uint64_t holding = next_holding();
  expect_is(level(7), seven, "the first level once more");
  expect_is(level(3), three, "a level once more");
  expect_is(level(1), one, "the last level once more");
  expect_is(level(INT32_MIN), SB_LOAD(&sb_consumer_level_at(t.b, one)->next, SB_RELAXED), "the lowest level of all");
  expect_is(next_holding(), holding, "the next holding: none was kept");
}
static void a_new_level(void) {
  begin();
  uint32_t first = level(5);
  dirty(first, SB_KIND_CONSUMER_LEVEL);
  sb_consumer_level_shm *fresh = sb_consumer_level_at(t.b, level(-5));
  expect_is(fresh->priority, -5, "its priority");
  expect_is(fresh->queue, queue, "its queue");
  expect_is(fresh->interested_count | fresh->notified_count, 0, "its counts");
  expect_is(fresh->next, 0, "the next one");
  expect_is(slot_state(sb_slot_of(t.b, fresh)), SB_SLOT_PUBLISHED, "its slot");
}
static void a_level_that_there_is_no_room_for(void) {
  begin();
  uint32_t slot = 7;
  uint64_t holding = next_holding();
  SB_STORE(&shm->consumer_levels, queue, SB_RELAXED); /* that is no level */
  expect_is(sb_consumer_level_of(t.c, queue, 5, &slot), SB_CORRUPT, "the status of a list that leads elsewhere");
  SB_STORE(&shm->consumer_levels, 0u, SB_RELAXED);
  use_up_chunks();
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_CONSUMER_LEVEL));
  expect_is(sb_consumer_level_of(t.c, queue, 5, &slot), SB_NO_MEMORY, "the status without memory");
  expect_is(slot, 7, "the slot");
  expect_is(SB_LOAD(&shm->consumer_levels, SB_RELAXED), 0, "the levels of the queue");
  expect_is(next_holding(), holding, "the next holding: none was kept");
}
/* A list that leads back into itself has an end all the same. */
static void levels_in_a_circle(void) {
  begin();
  uint32_t nine = level(9), slot = 0;
  SB_STORE(&sb_consumer_level_at(t.b, nine)->next, nine, SB_RELAXED);
  expect_is(sb_consumer_level_of(t.c, queue, 5, &slot), SB_LIMIT, "the status of a level behind the circle");
  expect_is(SB_LOAD(&sb_consumer_level_at(t.b, nine)->next, SB_RELAXED), nine, "the level behind the first");
}
/* Walks along the levels end after some number: no level may come to lie behind it. */
static void as_many_levels_as_walks_follow(void) {
  begin();
  uint32_t slot = 7, first = level(0), last = 0;
  for (int32_t i = 1; i < 2048; i++) last = level(-i);
  uint64_t holding = next_holding();
  expect_is(sb_consumer_level_of(t.c, queue, -2048, &slot), SB_LIMIT, "the status of one more at the end");
  expect_is(sb_consumer_level_of(t.c, queue, 1, &slot), SB_LIMIT, "the status of one more at the beginning");
  expect_is(slot, 7, "the slot");
  expect_is(SB_LOAD(&shm->consumer_levels, SB_RELAXED), first, "the first level");
  expect_is(SB_LOAD(&sb_consumer_level_at(t.b, last)->next, SB_RELAXED), 0, "the level behind the last");
  expect_is(level(-2047), last, "the last level once more");
  expect_is(next_holding(), holding, "the next holding: none was kept");
}

/* Another process adds a level between the look and the CAS. */
static int32_t rival_priority;
static uint32_t fresh, theirs_slot; /* the slot that the next level gets, and that of the rival */
static unsigned rivals;
static void rival_adds(const char *site) {
  if (strstr(site, "sb_nodes.c") == NULL || rivals == 0) return;
  sb_half *link = &shm->consumer_levels;
  if (slot_state(fresh) != SB_SLOT_ALLOC) return; /* the fresh one is not there yet */
  rivals--;
  sb_consumer_level_shm *theirs = sb_slot_at(t.b, theirs_slot);
  theirs->priority = rival_priority;
  theirs->next = SB_LOAD(link, SB_RELAXED);
  SB_STORE(link, theirs_slot, SB_RELAXED);
}
/* The slot that the next level gets, and one for the rival. */
static uint32_t next_level_slot(void) {
  uint64_t token, gen;
  uint32_t slot;
  if (sb_holding_object(t.c, SB_KIND_CONSUMER_LEVEL, &token, &slot, &gen) != SB_OK) die("sb_holding_object", 0);
  sb_slab_free_now(t.b, slot);
  sb_holding_give(t.c, token);
  sb_slab_return_cache(t.c);
  return slot;
}
static uint32_t level_of_rival(void) {
  uint64_t token, gen;
  uint32_t slot;
  if (sb_holding_object(t.c, SB_KIND_CONSUMER_LEVEL, &token, &slot, &gen) != SB_OK) die("sb_holding_object", 0);
  SB_STORE(sb_slot_header(t.b, slot), sb_slot_word(SB_SLOT_PUBLISHED, 1, gen), SB_RELAXED);
  sb_holding_give(t.c, token);
  return slot;
}
static uint32_t level_beside(int32_t theirs) {
  theirs_slot = level_of_rival();
  fresh = next_level_slot();
  rival_priority = theirs;
  rivals = 1;
  at_step = rival_adds;
  uint32_t slot = level(5);
  at_step = NULL;
  expect_is(rivals, 0, "the rivals that did not come");
  return slot;
}
static void a_level_beside_another(void) {
  begin();
  if (!has_steps()) return;
  uint64_t holding = next_holding();
  uint32_t mine = level_beside(9);
  expect_is(mine, fresh, "the slot that was taken before the rival came");
  expect_is(SB_LOAD(&shm->consumer_levels, SB_RELAXED), theirs_slot, "the first level");
  expect_is(SB_LOAD(&sb_consumer_level_at(t.b, theirs_slot)->next, SB_RELAXED), mine,
            "the level behind that of the rival");
  expect_is(next_holding(), holding, "the next holding: none was kept");
}
static void the_same_level_beside_another(void) {
  begin();
  if (!has_steps()) return;
  uint64_t holding = next_holding();
  uint32_t theirs = level_beside(5);
  expect_is(theirs, theirs_slot, "the level: that of the rival");
  expect_is(slot_state(fresh), SB_SLOT_FREE, "the slot that is not needed");
  expect_is(SB_LOAD(&sb_consumer_level_at(t.b, theirs)->next, SB_RELAXED), 0, "the level behind it");
  expect_is(next_holding(), holding, "the next holding: none was kept");
}

/* The list is another one at each look: its first level is always one that was not there before. */
#define MANY 32u
static uint32_t others[MANY];
static void the_first_level_changes(const char *site) {
  static unsigned turn;
  if (strstr(site, "sb_nodes.c") != NULL) SB_STORE(&shm->consumer_levels, others[turn++ % MANY], SB_RELAXED);
}
static void a_list_that_never_stays(void) {
  begin();
  if (!has_steps()) return;
  uint32_t slot = 7;
  for (unsigned i = 0; i < MANY; i++) {
    others[i] = level_of_rival();
    sb_consumer_level_at(t.b, others[i])->priority = 1;
  }
  at_step = the_first_level_changes;
  sb_status status = sb_consumer_level_of(t.c, queue, 5, &slot);
  at_step = NULL;
  expect_is(status, SB_CORRUPT, "the status of a list that changes all the time");
  expect_is(slot, 7, "the slot");
}

static const test_case CASES[] = {
    {"nodes_levels: levels", "levels are linked by descending priority, once each", levels_by_descending_priority},
    {"nodes_levels: level", "a new level has nothing of an earlier life", a_new_level},
    {"nodes_levels: no level", "a level is refused without memory, or in a damaged list",
     a_level_that_there_is_no_room_for},
    {"nodes_levels: circle", "a damaged list of levels has an end", levels_in_a_circle},
    {"nodes_levels: most", "a queue has levels for 2,048 priorities", as_many_levels_as_walks_follow},
    {"nodes_levels: level beside", "a level is linked behind one that came meanwhile", a_level_beside_another},
    {"nodes_levels: same level", "of two equal levels the second is freed", the_same_level_beside_another},
    {"nodes_levels: changing", "a list of levels that changes all the time is given up", a_list_that_never_stays},
};
SUBJECT(CASES)
