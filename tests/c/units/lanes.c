// SPDX-License-Identifier: Apache-2.0
/* sb_lanes: the lanes of a queue with priorities, their ready bits, and the walk over them. The takes from lanes are in
 * lanes_taken.c, the end of such a queue in lanes_closed.c. */
#include "sb_lanes.h"

#include <string.h>

#include "calls.h"
#include "meanwhile.h"
#include "queues.h"
#include "ranked.h"
#include "sb_slab.h"
#include "waiting.h"

static void begin(void) { q = queue_named("q", RANKED(9)); }
static unsigned slot_state(uint32_t slot) { return sb_slot_state(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)); }
static uint32_t make(unsigned number) {
  uint32_t slot = 0;
  expect_is(sb_lanes_make(t.c, q->slot, number, &slot), SB_OK, "the status of a lane");
  return slot;
}

/* ---- numbers ---- */

static void numbers_of_priorities(void) {
  const struct {
    int64_t most;
    unsigned priority, number;
  } cases[] = {{9, 9, 0},   {9, 8, 1}, {9, 5, 4}, {9, 1, 8},     {9, 0, 9},     {9, 10, 0},
               {9, 255, 0}, {1, 1, 0}, {1, 0, 1}, {255, 0, 255}, {255, 1, 254}, {255, 255, 0},
               {256, 0, 0}, {0, 0, 0}, {0, 5, 0}, {-1, 0, 0},    {-5, 3, 0}};
  begin();
  for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    SB_STORE(&q->shm->settings[SB_SETTING_MAX_PRIORITY], cases[i].most, SB_RELAXED);
    expect_is(sb_lanes_number(q->shm, cases[i].priority), cases[i].number, "the number of a lane");
  }
}
static void queues_with_priorities(void) {
  begin();
  expect(sb_lanes_several(q->shm), "a queue with priorities has one lane");
  SB_STORE(&q->shm->came, 7, SB_RELAXED);
  SB_STORE(&q->shm->tail, 5, SB_RELAXED);
  expect_is(sb_lanes_came(q->shm), 7, "what came into all lanes");
  sb_queue *plain = queue_named("plain", RANKED(0));
  expect(!sb_lanes_several(plain->shm), "a queue without priorities has several lanes");
  expect(ring_of(plain, 0).ready == NULL, "a queue without priorities has a ready bit");
  SB_STORE(&plain->shm->came, 7, SB_RELAXED);
  SB_STORE(&plain->shm->tail, 5, SB_RELAXED);
  expect_is(sb_lanes_came(plain->shm), 5, "what came into the one lane");
}

/* ---- ready bits ---- */

static unsigned upwards(unsigned from) { return sb_lanes_next_ready(q->shm, from, false); }
static unsigned downwards(unsigned from) { return sb_lanes_next_ready(q->shm, from, true); }
static void one_lane_is_ready(void) {
  begin();
  SB_STORE(&q->shm->interested, 2, SB_RELAXED); /* the word behind the last bits */
  expect_is(upwards(0), SB_LANES, "the first of none");
  expect_is(downwards(SB_LANES - 1), SB_LANES, "the last of none");
  for (unsigned n = 0; n < SB_LANES; n++) {
    set_ready(q, n, true);
    expect_is(upwards(0), n, "the first one");
    expect_is(upwards(n), n, "the first one from itself on");
    expect_is(upwards(n + 1), SB_LANES, "the first one behind it");
    expect_is(downwards(SB_LANES - 1), n, "the last one");
    expect_is(downwards(n), n, "the last one up to itself");
    if (n > 0) expect_is(downwards(n - 1), SB_LANES, "the last one before it");
    set_ready(q, n, false);
  }
  SB_STORE(&q->shm->interested, 0, SB_RELAXED);
}
static void several_lanes_are_ready(void) {
  const unsigned all[] = {0, 5, 63, 64, 130, 192, 255};
  begin();
  for (unsigned i = 0; i < 7; i++) set_ready(q, all[i], true);
  for (unsigned n = 0, i = 0, k = 0; n < SB_LANES; n++) {
    if (all[i] < n) i++;
    if (k + 1 < 7 && all[k + 1] <= n) k++;
    expect_is(upwards(n), all[i], "the next one upwards");
    expect_is(downwards(n), all[k], "the next one downwards");
  }
}
static void bits_are_set_and_cleared(void) {
  begin();
  make(2);
  sb_ring first = ring_of(q, 0), second = ring_of(q, 2), none = second;
  none.ready = NULL;
  expect(!sb_lanes_is_marked(&first) && !sb_lanes_is_marked(&second), "a fresh lane is ready");
  expect(sb_lanes_is_marked(&none), "a ring without a bit is not marked");
  sb_lanes_mark(&none);
  sb_lanes_mark(&second);
  expect(!sb_lanes_is_marked(&first) && sb_lanes_is_marked(&second), "another lane is ready");
  expect_is(q->shm->ready[0], 4, "the bits with lane 2");
  sb_lanes_mark(&first);
  sb_lanes_mark(&first);
  expect_is(q->shm->ready[0], 5, "the bits with both lanes");
  sb_lanes_unmark(&second);
  expect_is(q->shm->ready[0], 1, "the bits without lane 2");
}
static void bits_of_high_lanes(void) {
  q = queue_named("q", RANKED(255));
  const unsigned numbers[] = {63, 64, 255};
  for (unsigned i = 0; i < 3; i++) {
    make(numbers[i]);
    sb_ring r = ring_of(q, numbers[i]);
    sb_lanes_mark(&r);
    expect(is_ready(q, numbers[i]), "the bit of lane %u is not set", numbers[i]);
    sb_lanes_unmark(&r);
    for (unsigned w = 0; w < SB_LANES / 64; w++) expect_is(q->shm->ready[w], 0, "the bits without that lane");
  }
}

/* ---- find and make ---- */

static void lanes_by_ascending_number(void) {
  begin();
  uint32_t five = make(5), nine = make(9), seven = make(7), one = make(1);
  const uint32_t in_order[] = {one, five, seven, nine, 0};
  const unsigned numbers[] = {1, 5, 7, 9};
  uint32_t at = SB_LOAD(&q->shm->lanes, SB_RELAXED);
  for (unsigned i = 0; i < 5; i++) {
    expect_is(at, in_order[i], "a lane in its place");
    if (at != 0) at = SB_LOAD(&((sb_lane_shm *)sb_slot_at(t.b, at))->next, SB_RELAXED);
  }
  uint64_t holding = next_holding();
  for (unsigned i = 0; i < 4; i++) {
    expect_is(sb_lanes_find(t.b, q->shm, numbers[i]), in_order[i], "a lane that is found");
    expect_is(make(numbers[i]), in_order[i], "a lane once more");
  }
  const unsigned others[] = {0, 2, 6, 8, 10, 255};
  for (unsigned i = 0; i < 6; i++) expect_is(sb_lanes_find(t.b, q->shm, others[i]), 0, "a lane that nobody made");
  expect_is(next_holding(), holding, "the next holding: none was kept");
}
/* All free slots of lanes are as an earlier life may have left them: a position, but with the number of another lane. */
static void dirty(uint32_t one, uint64_t base) {
  uint32_t first = one / SB_CHUNK_UNITS * SB_CHUNK_UNITS;
  for (uint32_t slot = first; slot < first + SB_CHUNK_UNITS; slot++) {
    if (slot_state(slot) != SB_SLOT_FREE) continue;
    memset(sb_slot_at(t.b, slot), 0x55, SB_UNIT);
    SB_STORE(&((sb_lane_shm *)sb_slot_at(t.b, slot))->base, base, SB_RELAXED);
  }
}
static void a_new_lane(void) {
  begin();
  uint64_t holding = next_holding(), place = 6 * SB_PAGE_CELLS, base = sb_position_in(7, place);
  dirty(make(3), sb_position_in(200, place));
  uint32_t slot = make(7);
  const sb_lane_shm *l = sb_slot_at(t.b, slot);
  expect_is(l->queue, q->slot, "its queue");
  expect_is(l->number, 7, "its number");
  expect_is(l->next, 0, "the next one");
  expect_is(l->requeued, 0, "whether a message returned to it");
  expect_is(l->base, base, "its base: the place of its earlier life, and its number");
  expect_is(l->tail, base, "its tail");
  expect_is(l->head, base, "its head");
  expect_is(l->root, sb_link_empty(base / SB_PAGE_CELLS), "its root");
  expect_is(slot_state(slot), SB_SLOT_PUBLISHED, "its slot");
  expect_is(t.c->cache[sb_class_of_kind(t.b, SB_KIND_LANE)].mask, 0, "the slots of lanes that the connection keeps");
  expect_is(next_holding(), holding, "the next holding: none was kept");
}
static void a_ring_of_a_lane(void) {
  begin();
  make(3);
  sb_lane_shm *l = lane_of(q, 3);
  sb_ring r = ring_of(q, 3);
  expect(r.root == &l->root && r.tail == &l->tail && r.head == &l->head && r.base == &l->base, "it is another ring");
  expect(r.requeued == &l->requeued && r.ready == &q->shm->ready[0], "its flag or bit is that of another one");
  expect_is(r.ready_bit, 8, "its ready bit");
  expect_is(r.object, lane_slot(q, 3), "its object");
  expect_is(r.id, SB_RING_LANE, "its kind");
  expect(!sb_ring_open(t.b, q->slot, SB_RING_LANE, &r), "a queue is a lane");
  SB_STORE(&l->queue, lane_slot(q, 3), SB_RELAXED);
  expect(!sb_ring_open(t.b, sb_slot_of(t.b, l), SB_RING_LANE, &r), "a lane of no queue has a ring");
}
static void a_lane_that_there_is_no_room_for(void) {
  begin();
  uint32_t first = make(1), slot = 7;
  uint64_t holding = next_holding();
  use_up_chunks();
  use_up_slots(sb_class_of_kind(t.b, SB_KIND_LANE));
  char before[SB_UNIT]; /* no slot that was got has number 0 */
  memcpy(before, sb_slot_at(t.b, 0), SB_UNIT);
  expect_is(sb_lanes_make(t.c, q->slot, 5, &slot), SB_NO_MEMORY, "the status without memory");
  expect(memcmp(before, sb_slot_at(t.b, 0), SB_UNIT) == 0, "slot 0 was written");
  expect_is(SB_LOAD(&q->shm->lanes, SB_RELAXED), first, "the first lane");
  expect_is(lane_of(q, 1)->next, 0, "the lane behind it");
  expect_is(make(1), first, "a lane that is there already");
  expect_is(next_holding(), holding, "the next holding: none was kept");
}
/* A hint leads to a slot that is in use: the allocation looks at the slot, then finds no other one. */
static void an_old_hint_and_no_memory(void) {
  begin();
  uint32_t first = make(1), slot = 7;
  unsigned cls = sb_class_of_kind(t.b, SB_KIND_LANE);
  use_up_chunks();
  use_up_slots(cls);
  uint32_t index = first % SB_CHUNK_UNITS;
  t.c->cache[cls] = (sb_slab_cache){UINT64_C(1) << index % 64, first / SB_CHUNK_UNITS, index / 64};
  sb_lane_shm before = *lane_of(q, 1);
  expect_is(sb_lanes_make(t.c, q->slot, 5, &slot), SB_NO_MEMORY, "the status");
  expect(memcmp(&before, lane_of(q, 1), sizeof before) == 0, "the lane that is there was written");
  uint64_t one, two;
  if (sb_holding_take(t.c, &one) != SB_OK || sb_holding_take(t.c, &two) != SB_OK) die("sb_holding_take", 0);
  expect(one != two, "a holding was given back twice");
}
static void no_holding_for_a_lane(void) {
  begin();
  uint32_t slot = 7;
  leave_holdings(0);
  expect_is(sb_lanes_make(t.c, q->slot, 5, &slot), SB_NO_MEMORY, "the status without a holding");
  expect_is(SB_LOAD(&q->shm->lanes, SB_RELAXED), 0, "the first lane");
}

/* Another process makes a lane between the look and the CAS. */
static sb_connection *rival;
static unsigned rival_number;
static uint32_t theirs;
static void rival_makes(void) {
  expect_is(sb_lanes_make(rival, q->slot, rival_number, &theirs), SB_OK, "the status of the rival's lane");
}
static uint32_t make_beside(sb_half *link, unsigned number, unsigned other) {
  rival = connect_to(&t);
  rival_number = other;
  theirs = 0;
  meanwhile(link, BEFORE_CAS, 1, rival_makes);
  uint32_t slot = make(number);
  (void)has_acted();
  return slot;
}
static void a_lane_beside_another(void) {
  begin();
  if (!has_steps()) return;
  uint64_t holding = next_holding();
  uint32_t last = make(9), mine = make_beside(&q->shm->lanes, 5, 2);
  expect_is(SB_LOAD(&q->shm->lanes, SB_RELAXED), theirs, "the first lane");
  expect_is(lane_of(q, 2)->next, mine, "the lane behind that of the rival");
  expect_is(lane_of(q, 5)->next, last, "the lane behind the new one");
  expect_is(slot_state(mine), SB_SLOT_PUBLISHED, "the slot of the new one");
  expect_is(next_holding(), holding, "the next holding: none was kept");
}
static void a_lane_before_another(void) {
  begin();
  if (!has_steps()) return;
  uint32_t first = make(1), mine = make_beside(&lane_of(q, 1)->next, 5, 7);
  expect_is(SB_LOAD(&q->shm->lanes, SB_RELAXED), first, "the first lane");
  expect_is(lane_of(q, 1)->next, mine, "the lane behind the first");
  expect_is(lane_of(q, 5)->next, theirs, "the lane behind the new one");
}
/* The rival took the slot behind that of this connection. */
static void the_same_lane_beside_another(void) {
  begin();
  if (!has_steps()) return;
  uint64_t holding = next_holding();
  uint32_t mine = make_beside(&q->shm->lanes, 5, 5);
  expect_is(mine, theirs, "the lane: that of the rival");
  expect_is(lane_of(q, 5)->next, 0, "the lane behind it");
  expect_is(next_holding(), holding, "the next holding: none was kept");
  unsigned used = 0;
  uint32_t first = mine / SB_CHUNK_UNITS * SB_CHUNK_UNITS;
  for (uint32_t slot = first; slot < first + SB_CHUNK_UNITS; slot++) used += slot_state(slot) != SB_SLOT_FREE;
  expect_is(used, 1, "the slots of lanes that are in use");
}
/* Each lane that has the same number is found, not made, although this connection made an object before. */
static void damage(void) { SB_STORE(&q->shm->lanes, q->slot, SB_RELAXED); }
static void a_chain_that_breaks_meanwhile(void) {
  begin();
  if (!has_steps()) return;
  uint64_t holding = next_holding();
  uint32_t slot = 7;
  meanwhile(&q->shm->lanes, BEFORE_CAS, 1, damage);
  expect_is(sb_lanes_make(t.c, q->slot, 5, &slot), SB_CORRUPT, "the status");
  (void)has_acted();
  expect_is(next_holding(), holding, "the next holding: none was kept");
}

/* Up to its publication the object is that of its maker. */
static uint32_t seen_slot;
static uint64_t seen_word;
static void look_at_linked(const char *site) {
  if (strcmp(site, "lanes.linked") != 0) return;
  seen_slot = sb_lanes_find(t.b, q->shm, 4);
  seen_word = SB_LOAD(sb_slot_header(t.b, seen_slot), SB_RELAXED);
}
static void a_lane_is_linked_before_it_is_published(void) {
  begin();
  if (!has_steps()) return;
  at_step = look_at_linked;
  uint32_t slot = make(4);
  at_step = NULL;
  uint64_t gen = sb_slot_gen(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED));
  expect_is(seen_slot, slot, "the slot that is linked");
  expect_is(seen_word, sb_slot_word(SB_SLOT_ALLOC, t.c->id, gen), "its header while it is linked");
  expect_is(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED), sb_slot_word(SB_SLOT_PUBLISHED, 1, gen), "its header");
}

/* ---- damaged chains ---- */

static unsigned walked(void) {
  unsigned n = 0;
  sb_ring r;
  for (sb_lanes_walk all = sb_lanes_of(t.b, q->slot); sb_lanes_next(&all, &r);) n++;
  return n;
}
static void expect_damage(unsigned number, unsigned rings, const char *what) {
  uint32_t slot = 7;
  uint64_t holding = next_holding();
  expect_is(sb_lanes_make(t.c, q->slot, number, &slot), SB_CORRUPT, what);
  expect_is(sb_lanes_find(t.b, q->shm, number), 0, what);
  expect_is(walked(), rings, what);
  expect_is(next_holding(), holding, what);
}
static void chains_that_are_damaged(void) {
  begin();
  make(3);
  SB_STORE(&lane_of(q, 3)->next, q->slot, SB_RELAXED);
  expect_damage(5, 2, "a lane that is a queue");
  SB_STORE(&lane_of(q, 3)->next, BROKER_CHUNKS * SB_CHUNK_UNITS, SB_RELAXED);
  expect_damage(5, 2, "a lane behind the last slot");
  SB_STORE(&lane_of(q, 3)->next, lane_slot(q, 3), SB_RELAXED);
  expect_damage(5, SB_LANES, "a lane that is followed by itself");
  expect_is(make(3), lane_slot(q, 3), "the lane before the damage");
  SB_STORE(&q->shm->lanes, q->slot, SB_RELAXED);
  expect_damage(5, 1, "no lane at all");
}
/* The walk ends at a lane that names no queue. */
static void a_lane_of_no_queue(void) {
  begin();
  make(3);
  make(5);
  SB_STORE(&lane_of(q, 3)->queue, lane_slot(q, 5), SB_RELAXED);
  expect_is(walked(), 1, "the rings before a lane of no queue");
}
static void as_many_lanes_as_there_are(void) {
  q = queue_named("q", RANKED(255));
  for (unsigned n = 1; n < SB_LANES; n++) make(n);
  expect_is(walked(), SB_LANES, "the rings of all lanes");
  expect_is(sb_lanes_find(t.b, q->shm, SB_LANES - 1), lane_slot(q, SB_LANES - 1), "the last lane");
  expect_is(lane_of(q, SB_LANES - 1)->next, 0, "the lane behind it");
}

/* ---- walk, count, positions ---- */

static void a_walk(void) {
  const unsigned numbers[] = {0, 2, 5, 9};
  unsigned n = 0;
  sb_ring r;
  begin();
  for (unsigned i = 3; i >= 1; i--) make(numbers[i]);
  for (sb_lanes_walk all = sb_lanes_of(t.b, q->slot); sb_lanes_next(&all, &r); n++) {
    expect(n < 4, "there are more rings than lanes");
    if (n < 4) expect(r.base == ring_of(q, numbers[n]).base, "ring %u is another one", n);
  }
  expect_is(n, 4, "how many rings there are");
  sb_lanes_walk none = sb_lanes_of(t.b, lane_slot(q, 2));
  expect(!sb_lanes_next(&none, &r), "a lane is a queue");
  expect(!sb_lanes_next(&none, &r), "a lane is a queue with a second ring");
}
static void a_walk_without_priorities(void) {
  begin();
  make(2);
  SB_STORE(&q->shm->flags, 0u, SB_RELAXED);
  expect_is(walked(), 1, "the rings of a queue without priorities");
}
static void what_is_counted(void) {
  begin();
  uint64_t before = SB_LOAD(&q->shm->base, SB_RELAXED);
  put_several(q, 9, 2);
  put_several(q, 5, 3);
  put_several(q, 0, SB_PAGE_CELLS + 1);
  expect_is(sb_lanes_count(t.b, q->slot), before + SB_PAGE_CELLS + 6, "the cells of all lanes");
  expect_is(q->shm->came, before + SB_PAGE_CELLS + 6, "what came");
  SB_STORE(&lane_of(q, 9)->tail, base_of(q, 9), SB_RELAXED);
  expect_is(sb_lanes_count(t.b, q->slot), before + SB_PAGE_CELLS + 6, "the cells behind a tail that lags");
  expect_is(lane_of(q, 9)->tail, base_of(q, 9) + SB_PAGE_CELLS + 1, "the tail of the last lane");
  SB_STORE(&q->shm->base, 2, SB_RELAXED);
  expect_is(sb_lanes_count(t.b, q->slot), before + SB_PAGE_CELLS + 6, "the cells, and the base of the queue");
}
/* A queue and lanes of an earlier life begin at higher positions. */
static void what_is_counted_above_a_base(void) {
  begin();
  dirty(make(1), sb_position_in(3, 5 * SB_PAGE_CELLS));
  put_several(q, 9, 2);
  put_several(q, 5, 3);
  expect_is(base_of(q, 4), sb_position_in(4, 5 * SB_PAGE_CELLS), "the base of the lane");
  expect_is(sb_lanes_count(t.b, q->slot), q->base + 5, "the cells of all lanes");
}
static void rings_of_positions(void) {
  begin();
  sb_ring r;
  dirty(make(1), 5 * SB_PAGE_CELLS);
  make(5);
  SB_STORE(&q->shm->base, 3, SB_RELAXED);
  expect(sb_lanes_ring(t.b, q->slot, 70, &r) && r.root == &q->shm->root, "a position of lane 0 is in another ring");
  uint64_t base = base_of(q, 5);
  expect(sb_lanes_ring(t.b, q->slot, base + 70, &r) && r.root == &lane_of(q, 5)->root,
         "a position of lane 5 is in another ring");
  expect_is(sb_lanes_sequence(t.b, q->slot, 70), 67, "the sequence number of a position of lane 0");
  expect_is(sb_lanes_sequence(t.b, q->slot, base + 70), sb_position_in(5, 70),
            "the sequence number of a position of lane 5");
  expect(!sb_lanes_ring(t.b, q->slot, sb_position_in(4, 70), &r), "a lane that nobody made has a ring");
  expect_is(sb_lanes_sequence(t.b, q->slot, sb_position_in(4, 70)), UINT64_MAX,
            "the number in a lane that nobody made");
  expect(!sb_lanes_ring(t.b, lane_slot(q, 5), base + 70, &r), "a lane is a queue");
  expect(!sb_lanes_ring(t.b, lane_slot(q, 5), 70, &r), "a lane is a queue with a lane 0");
  expect_is(sb_lanes_sequence(t.b, lane_slot(q, 5), 70), UINT64_MAX, "the number in what is no queue");
  SB_STORE(&lane_of(q, 5)->queue, lane_slot(q, 5), SB_RELAXED);
  expect(!sb_lanes_ring(t.b, q->slot, base + 70, &r), "a lane of no queue has a ring");
}
static void numbers_without_an_origin(void) {
  begin();
  dirty(make(1), 5 * SB_PAGE_CELLS);
  put_several(q, 9, 2);
  put_several(q, 4, 2);
  const unsigned numbers[] = {0, 5};
  for (unsigned i = 0; i < 2; i++) {
    sb_ring r = ring_of(q, numbers[i]);
    sb_leaf_ref leaf = ranked_leaf(q, numbers[i], 0);
    expect_is(sb_ring_sequence(t.b, &r, &leaf, base_of(q, numbers[i]) + 1), sb_position_in(numbers[i], 1),
              "the sequence number of a message that was not moved");
  }
}
/* Leaves of all lanes of a queue that keeps numbers have room for them. */
static void kinds_of_leaves(void) {
  begin();
  make(5);
  sb_ring first = ring_of(q, 0), lane = ring_of(q, 5), list;
  if (!sb_ring_open(t.b, q->slot, SB_RING_SCHEDULE, &list)) die("sb_ring_open", 0);
  const sb_ring *rings[] = {&first, &lane, &list};
  for (unsigned i = 0; i < 3; i++) expect_is(sb_page_kind(t.b, rings[i], 0), SB_KIND_LEAF, "the kind of a leaf");
  SB_STORE(&q->shm->flags, SB_QUEUE_LANES | SB_QUEUE_KEEPS, SB_RELAXED);
  for (unsigned i = 0; i < 3; i++) {
    expect_is(sb_page_kind(t.b, rings[i], 0), i < 2 ? SB_KIND_LONG_LEAF : SB_KIND_LEAF, "the kind of a longer leaf");
    expect_is(sb_page_kind(t.b, rings[i], 1), SB_KIND_INNER, "the kind of an inner page");
  }
  SB_STORE(&lane_of(q, 5)->queue, lane_slot(q, 5), SB_RELAXED);
  expect_is(sb_page_kind(t.b, &lane, 0), SB_KIND_LEAF, "the kind of a leaf in a lane of no queue");
}
static void which_lanes_are_linked(void) {
  begin();
  uint32_t first = make(3), second = make(5);
  expect(sb_lanes_links(t.b, first) && sb_lanes_links(t.b, second), "a lane is not linked");
  SB_STORE(&lane_of(q, 3)->next, 0u, SB_RELAXED);
  expect(!sb_lanes_links(t.b, second), "a lane that was taken out is linked");
  sb_lane_shm *l = sb_slot_at(t.b, second);
  SB_STORE(&l->number, 3u, SB_RELAXED);
  expect(!sb_lanes_links(t.b, second), "a lane is linked in the place of another");
  SB_STORE(&l->number, 5u, SB_RELAXED);
  SB_STORE(&lane_of(q, 3)->next, second, SB_RELAXED);
  SB_STORE(&l->queue, first, SB_RELAXED);
  expect(!sb_lanes_links(t.b, second), "a lane of no queue is linked");
}

static const test_case CASES[] = {
    {"lanes: numbers", "the highest priority has lane 0, priority 0 the last one", numbers_of_priorities},
    {"lanes: several", "a queue with priorities has several lanes", queues_with_priorities},
    {"lanes: one bit", "the one lane that is ready is found, in both directions", one_lane_is_ready},
    {"lanes: bits", "the next lane that is ready is found, in both directions", several_lanes_are_ready},
    {"lanes: marks", "the bit of a lane is set and cleared, and no other one", bits_are_set_and_cleared},
    {"lanes: high marks", "each lane has its bit in one of four words", bits_of_high_lanes},
    {"lanes: order", "lanes are linked by ascending number, once each", lanes_by_ascending_number},
    {"lanes: new", "a new lane has nothing of an earlier life but the place of its positions", a_new_lane},
    {"lanes: ring", "the ring of a lane is in its object, its bit in the queue", a_ring_of_a_lane},
    {"lanes: no memory", "a lane is refused without memory", a_lane_that_there_is_no_room_for},
    {"lanes: old hint", "without memory an old hint does no harm", an_old_hint_and_no_memory},
    {"lanes: no holding", "a lane is refused without a holding", no_holding_for_a_lane},
    {"lanes: beside", "a lane is linked behind one that came meanwhile", a_lane_beside_another},
    {"lanes: before", "a lane is linked before one that came meanwhile", a_lane_before_another},
    {"lanes: same", "of two equal lanes the second is freed", the_same_lane_beside_another},
    {"lanes: breaks", "an object is freed if the chain breaks before it is linked", a_chain_that_breaks_meanwhile},
    {"lanes: published", "a lane is linked first, then published", a_lane_is_linked_before_it_is_published},
    {"lanes: damaged", "a damaged chain has an end, and no lane behind it", chains_that_are_damaged},
    {"lanes: no queue", "a walk ends at a lane of no queue", a_lane_of_no_queue},
    {"lanes: most", "a queue has 256 lanes at most", as_many_lanes_as_there_are},
    {"lanes: walk", "a walk comes to all rings, by ascending number", a_walk},
    {"lanes: one ring", "a walk over a queue without priorities comes to one ring", a_walk_without_priorities},
    {"lanes: count", "the cells of all lanes are counted", what_is_counted},
    {"lanes: count above", "what lies before a base is not counted", what_is_counted_above_a_base},
    {"lanes: positions", "a position leads to its ring, and has a number in its lane", rings_of_positions},
    {"lanes: origin", "a message that was not moved has the number of its position", numbers_without_an_origin},
    {"lanes: leaves", "all lanes of a queue that keeps numbers have long leaves", kinds_of_leaves},
    {"lanes: linked", "a lane is linked if its queue's chain leads to it", which_lanes_are_linked},
};
SUBJECT(CASES)
