// SPDX-License-Identifier: Apache-2.0
/* Scenarios of a leaf that leaves the memory and comes back, beside those who take, acknowledge and return its messages.
 * The store has a row for each of two messages, the last ones of the leaf; a third one lies behind it. It changes as a
 * whole, at the end of a turn. In the end the leaf comes back, and nothing was lost, or delivered twice. */
#include <string.h>

#include "roles.h"
#include "sb_departure.h"
#include "scenarios.h"
#include "world.h"

#define STORED {{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DURABLE}
#define CHANGES 4u
#define LEAF 64u
#define KEPT 2u
#define FIRST (LEAF - KEPT)

typedef struct {
  bool has;
  uint64_t heads_length, bodies_length;
  char heads[256], bodies[128];
} row;
typedef struct {
  row rows[KEPT];
  bool afresh; /* the last turn did not come to its end */
} disk;

static disk *store; /* part of the world */

static void gather(row *to, uint64_t sequence) {
  sb_store_row found = {
      .heads = to->heads, .bodies = to->bodies, .heads_size = sizeof to->heads, .bodies_size = sizeof to->bodies};
  uint64_t at = sequence;
  if (sb_store_gather(me()->q, &at, sequence + 1, &found) != SB_OK) complain("a row cannot be gathered");
  if (found.count == 0) {
    return;
  }
  to->has = true;
  to->heads_length = found.heads_length;
  to->bodies_length = found.bodies_length;
}

/* One turn, which ends with a commit. A storekeeper that dies in it leaves the store as it was. */
static void turn(void) {
  sb_store_change changes[CHANGES];
  uint32_t count = 0;
  disk next = *store;
  bool afresh = store->afresh;
  store->afresh = true;
  if (!sb_store_changes(me()->q, 0, afresh, changes, CHANGES, &count)) complain("there are too many changes");
  for (uint32_t i = 0; i < count; i++) {
    for (unsigned n = 0; n < KEPT; n++) {
      uint64_t at = FIRST + n - changes[i].first;
      if (FIRST + n < changes[i].first || at >= changes[i].span) continue;
      bool ended = changes[i].whole || (at < LEAF && (changes[i].ended >> at & 1) != 0);
      if (ended) next.rows[n].has = false;
      if (!ended && at < LEAF && (changes[i].returned >> at & 1) != 0) gather(&next.rows[n], FIRST + n);
    }
  }
  *store = next;
  store->afresh = false;
}

static void lets_leave(void) {
  uint64_t base = SB_LOAD(me()->q->lanes[0].ring.base, SB_RELAXED);
  turn();
  sb_lock(me()->t.c);
  uint32_t left = sb_departure_run(me()->q, &me()->q->lanes[0].ring, base, base + LEAF, 1, NULL, NULL);
  sb_unlock(me()->t.c);
  scheduler_note(left > 0 ? "left" : "stays");
}

/* Lets the leaf come back, if it is not in the memory. */
static void load(void) {
  uint64_t sequence = 0, link;
  sb_stored_row rows[KEPT];
  uint32_t count = 0;
  while (sb_store_absent(me()->q, &sequence, LEAF, &link) == SB_OK) {
    count = 0;
    for (unsigned n = 0; n < KEPT; n++) {
      const row *r = &store->rows[n];
      if (r->has) rows[count++] = (sb_stored_row){r->heads, r->bodies, r->heads_length, r->bodies_length, 0};
    }
    sb_status status = sb_store_come_back(me()->q, sequence, link, rows, count);
    if (status != SB_OK && status != SB_DONE) {
      complain("a leaf does not come back: status %d", (int)status);
      return;
    }
    scheduler_note(status == SB_OK ? "loaded" : "there");
  }
}

static uint64_t get_loading(char *record) {
  uint32_t slot;
  uint64_t id, sequence;
  while ((id = get_message(me()->q, record)) == 0 && sb_store_wanting(me()->t.b, &slot, &sequence)) load();
  return id;
}

/* ---- before ---- */

static void three_are_stored(void) {
  store = world_allocate(NOBODY, sizeof *store);
  everything_may_go();
  act_as(KEEPER);
  if (sb_store_skip(me()->q, FIRST) != SB_OK) die("sb_store_skip", 0);
  put_by_keeper(1, 3);
  for (unsigned n = 0; n < KEPT; n++) gather(&store->rows[n], FIRST + n);
  sb_store_advance(me()->q, LEAF + 1);
}
static void first_has_left(void) {
  three_are_stored();
  lets_leave();
}
/* The storekeeper has decided that the leaf leaves, and was killed; the next one looks at everything. */
static sb_leaf_ref leaving;
static void first_has_decided(void) {
  three_are_stored();
  turn();
  const sb_ring *r = &me()->q->lanes[0].ring;
  if (sb_ring_locate(me()->t.b, NULL, r, SB_LOAD(r->base, SB_RELAXED), &leaving) != SB_OK) die("sb_ring_locate", 0);
  if (!sb_paged_freeze(me()->t.c, r, &leaving)) die("sb_paged_freeze", 0);
  SB_STORE(&leaving.leaf->page.paging, SB_PAGING_LEFT, SB_RELAXED);
  sb_holding_set(me()->t.b, me()->t.c->page_token, 0, 0);
  store->afresh = true;
  act_as(1); /* if the reaper dies, another one goes on by this */
  sb_holding_set(me()->t.b, me()->t.c->page_token, sb_holding_what(SB_HOLD_LEAVING, leaving.slot, leaving.gen),
                 leaving.first);
}
static void second_holds_first(void) {
  three_are_stored();
  act_as(1);
  (void)get_message(me()->q, me()->first);
}
/* The third player's cursor lies behind the message that the second one holds. */
static void second_holds_first_behind(void) {
  second_holds_first();
  act_as(2);
  (void)get_message(me()->q, me()->second);
  ack(me()->q, me()->second);
}

/* ---- roles ---- */

static void take_loading(void) {
  if (get_loading(me()->first) != 0) ack(me()->q, me()->first);
}
static void take_and_return(void) {
  if (get_loading(me()->first) != 0) nack(me()->q, me()->first);
}
static void reaps_who_decided(void) {
  sb_paged_recover_leaving(me()->t.c, &me()->q->lanes[0].ring, leaving.slot, leaving.gen);
  scheduler_note("left");
}
static void takes_a_turn(void) {
  turn();
  scheduler_note("turned");
}
static void lets_leave_twice(void) {
  lets_leave();
  lets_leave();
}
/* Nobody takes messages, so the first one is seen. */
static void browse_loading(void) {
  uint64_t position = 0, sequence;
  uint32_t slot;
  int64_t length;
  sb_record r;
  while ((length = sb_queue_browse(me()->q, &position, me()->first, 4096)) == -(int64_t)SB_GROW &&
         sb_store_wanting(me()->t.b, &slot, &sequence))
    load();
  if (length <= 0) {
    scheduler_note("nothing");
    return;
  }
  memcpy(&r, me()->first, sizeof r);
  if (r.sequence != FIRST) complain("a browser saw message %llu first", (unsigned long long)r.sequence);
}

/* ---- afterwards ---- */

static void all_come_back(void) {
  uint64_t sequence = 0, link;
  load();
  if (sb_store_absent(me()->q, &sequence, LEAF, &link) == SB_OK) complain("the leaf has not come back");
}

/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
    {"paged, take", "a leaf leaves beside a take, or stays", STORED, three_are_stored,
     {{"leave", lets_leave, 0, "left"}, {"take", take_loading, 1, "nothing loaded got acked"}}, all_come_back, KEEPS_ALL},
    {"paged, two take", "two need the leaf", STORED, three_are_stored,
     {{"leave", lets_leave, 0, "left"}, {"a", take_loading, 1, "nothing loaded got acked"}, {"b", take_loading, 2, "got acked"}},
     all_come_back, KEEPS_ALL},
    {"paged, both load", "two let it come back", STORED, first_has_left,
     {{"a", take_loading, 0, "nothing loaded got acked"}, {"b", take_loading, 1, "got acked"}}, all_come_back, KEEPS_ALL},
    {"paged, ack", "the last change before it leaves", STORED, second_holds_first,
     {{"leave", lets_leave, 0, "stays"}, {"ack", ack_held, 1, "acked"}}, all_come_back, KEEPS_ALL},
    {"paged, nack", "a message returns while its leaf is looked at", STORED, second_holds_first,
     {{"leave", lets_leave, 0, "stays"}, {"nack", nack_held, 1, "returned"}}, all_come_back, KEEPS_ALL},
    {"paged, nack behind", "it returns behind a cursor, and is found", STORED, second_holds_first_behind,
     {{"leave", lets_leave_twice, 0, "stays stays"}, {"nack", nack_held, 1, "returned"}, {"take", take_loading, 2, "got acked"}},
     all_come_back, KEEPS_ALL},
    {"paged, again", "it comes back, changes, and leaves again beside another load", STORED, first_has_left,
     {{"a", take_and_return, 1, "nothing loaded got returned"}, {"leave", lets_leave, 0, "stays"}, {"b", take_loading, 2, "got acked"}},
     all_come_back, KEEPS_ALL},
    {"paged, next turn", "a reaper ends a departure beside the next storekeeper", STORED, first_has_decided,
     {{"reap", reaps_who_decided, 1, "left"}, {"turn", takes_a_turn, 0, "turned"}}, all_come_back, KEEPS_ALL},
    {"paged, browse", "a browser lets it come back", STORED, three_are_stored,
     {{"leave", lets_leave, 0, "left"}, {"browse", browse_loading, 1, "loaded"}}, all_come_back, KEEPS_ALL},
};
/* clang-format on */
const subject PAGED_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
