// SPDX-License-Identifier: Apache-2.0
/* Scenarios of a stored queue: its storekeeper takes turns beside those who put, acknowledge and return. The store is a table
 * that changes as a whole, at the end of a turn. In the end the keeper takes a turn, and the table has what the queue has. */
#include <string.h>

#include "roles.h"
#include "sb_gather.h"
#include "sb_schedule.h"
#include "scenarios.h"
#include "world.h"

#define STORED {{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DURABLE}
#define POSITIONS 128u
#define CHANGES 4u
#define LEAF 64u

typedef struct {
  bool has[POSITIONS];
  bool staged[POSITIONS]; /* a message of a commit that was not carried out */
  unsigned count[POSITIONS];
  unsigned in_other; /* messages of the other queue */
} table;
typedef struct {
  table kept;
  bool afresh; /* the last turn did not come to its end */
  bool both;   /* the other queue is looked into as well */
  char heads[16384], bodies[16384];
} disk;

static disk *store; /* part of the world */

/* Gathers from a sequence number on, into the table; returns the sequence number to go on at. */
static uint64_t gather(table *t, uint64_t from, uint64_t end) {
  uint64_t first = from;
  sb_store_row row = {.heads = store->heads,
                      .bodies = store->bodies,
                      .heads_size = sizeof store->heads,
                      .bodies_size = sizeof store->bodies};
  if (sb_store_gather(me()->q, &from, end, &row) != SB_OK) complain("a row cannot be gathered");
  sb_row_head head;
  for (unsigned n = 0; n < LEAF && first + n < POSITIONS; n++) {
    if ((row.staged >> n & 1) != 0) t->staged[first + n] = true;
  }
  memcpy(&head, store->heads, sizeof head);
  for (unsigned n = 0; n < row.count; n++) {
    sb_row_entry e;
    memcpy(&e, store->heads + sizeof head + n * sizeof e, sizeof e);
    t->has[head.first + e.index] = true;
    t->count[head.first + e.index] = e.delivery_count;
  }
  return from;
}

/* How many messages the other queue has. */
static unsigned gather_other(void) {
  sb_store_lane lane;
  unsigned count = 0;
  (void)sb_store_lanes(me()->other, &lane, 1);
  for (uint64_t at = 0; at < lane.tail;) {
    sb_store_row row = {.heads = store->heads,
                        .bodies = store->bodies,
                        .heads_size = sizeof store->heads,
                        .bodies_size = sizeof store->bodies};
    if (sb_store_gather(me()->other, &at, lane.tail, &row) != SB_OK)
      complain("a row of the other queue cannot be gathered");
    count += row.count;
  }
  return count;
}

/* One turn. A storekeeper that dies in it leaves the table as it was. True: the turn came to its end. `whole`: it does not if a
 * commit is carried out meanwhile (I125 of sb_turns.h), where the storekeeper takes another pass. */
static bool turn_beside_commits(bool whole) {
  sb_store_change changes[CHANGES];
  sb_store_lane lane;
  uint32_t count = 0;
  table t = store->kept;
  bool afresh = store->afresh;
  uint32_t done = SB_LOAD(&me()->t.b->header->commits_done, SB_SEQ_CST), begun = sb_store_commits(me()->t.c);
  if (whole && begun != done) {
    scheduler_note("beside");
    return false;
  }
  store->afresh = true;
  uint32_t number = sb_store_turn_begin(me()->t.c);
  (void)sb_store_lanes(me()->q, &lane, 1);
  uint64_t stored = lane.stored;
  if (!sb_store_changes(me()->q, 0, afresh, changes, CHANGES, &count)) complain("there are too many changes");
  for (uint64_t at = stored; afresh && at < POSITIONS; at++) t.has[at] = false;
  for (uint32_t i = 0; i < count; i++) {
    for (uint64_t n = 0; n < changes[i].span && changes[i].first + n < POSITIONS; n++) {
      if (changes[i].whole || (n < LEAF && (changes[i].ended >> n & 1) != 0)) t.has[changes[i].first + n] = false;
    }
  }
  (void)sb_store_lanes(me()->q, &lane, 1);
  uint64_t at = stored;
  while (at < lane.tail) at = gather(&t, at, lane.tail);
  for (uint32_t i = 0; i < count; i++) {
    for (unsigned n = 0; n < LEAF; n++) {
      uint64_t sequence = changes[i].first + n;
      if ((changes[i].returned >> n & 1) != 0 && sequence < stored) (void)gather(&t, sequence, sequence + 1);
    }
  }
  for (uint64_t n = 0; n < POSITIONS; n++) {
    if (!t.staged[n]) continue;
    t.staged[n] = false; /* set again if it is staged still */
    (void)gather(&t, n, n + 1);
  }
  if (store->both) t.in_other = gather_other();
  if (whole && sb_store_commits(me()->t.c) != begun) {
    scheduler_note("beside");
    return false;
  }
  store->kept = t; /* the transaction */
  store->afresh = false;
  sb_store_advance(me()->q, at);
  sb_store_turn_end(me()->t.c, number);
  scheduler_note("stored");
  return true;
}
static void turn(void) { (void)turn_beside_commits(false); }

/* ---- before ---- */

static void store_is_empty(void) {
  store = world_allocate(NOBODY, sizeof *store);
  everything_may_go();
  act_as(KEEPER);
}
static void two_are_stored(void) {
  store_is_empty();
  put_by_keeper(1, 2);
  turn();
}
static void one_is_stored(void) {
  store_is_empty();
  store->both = true;
  put_by_keeper(1, 1);
  turn();
}
static void first_holds_a_stored_one(void) {
  two_are_stored();
  act_as(0);
  (void)get_message(me()->q, me()->first);
}
/* The first two players hold the last messages of a leaf, of which all others have ended. */
static void two_hold_the_last_of_a_leaf(void) {
  store_is_empty();
  if (sb_store_skip(me()->q, LEAF - 2) != SB_OK) die("sb_store_skip", 0);
  put_by_keeper(1, 3);
  turn();
  for (unsigned n = 0; n < 2; n++) {
    act_as(n);
    (void)get_message(me()->q, me()->first);
  }
}
static void one_holds_the_last_of_a_leaf(void) {
  store_is_empty();
  if (sb_store_skip(me()->q, LEAF - 1) != SB_OK) die("sb_store_skip", 0);
  put_by_keeper(1, 2);
  turn();
  act_as(0);
  (void)get_message(me()->q, me()->first);
}

/* ---- roles ---- */

static void one_turn(void) { turn(); }
static void two_turns(void) {
  turn();
  turn();
}

static unsigned stored_messages(void) {
  unsigned n = store->kept.in_other;
  for (unsigned at = 0; at < POSITIONS; at++) n += store->kept.has[at];
  return n;
}
/* Beside a commit that acknowledges one message, and publishes another one. */
static void whole_turn(void) {
  unsigned before = stored_messages();
  if (turn_beside_commits(true) && stored_messages() != before) complain("a commit is in the store in part");
}
static void two_whole_turns(void) {
  whole_turn();
  whole_turn();
}
static void move_one(void) {
  sb_status status;
  uint64_t bytes = UINT64_MAX;
  if (sb_queue_move(me()->q, me()->other, 1, &bytes, &status) == 1) scheduler_note("moved");
}
static void commit_9_and_ack(void) { (void)commit_with_ack(9, me()->first); }

static void nack_then_ack(void) {
  nack_held();
  take_then_ack();
}

/* ---- afterwards ---- */

static void store_has_what_the_queue_has(void) {
  sb_store_lane lane;
  turn();
  (void)sb_store_lanes(me()->q, &lane, 1);
  const sb_ring *r = &me()->q->lanes[0].ring;
  uint64_t base = SB_LOAD(r->base, SB_RELAXED);
  for (uint64_t at = 0; at < POSITIONS; at++) {
    sb_leaf_ref leaf = SB_NO_LEAF;
    bool there = false;
    unsigned count = 0;
    if (at < lane.tail && sb_ring_locate(me()->t.b, NULL, r, base + at, &leaf) == SB_OK) {
      there = sb_cell_has_message(SB_LOAD(&sb_leaf_cell(&leaf, base + at)->word, SB_RELAXED));
      count = sb_side_count(SB_LOAD(&sb_leaf_cell(&leaf, base + at)->side, SB_RELAXED));
    }
    if (store->kept.has[at] != there)
      complain("message %llu is %s the store", (unsigned long long)at, there ? "not in" : "still in");
    if (there && store->kept.count[at] != count)
      complain("message %llu was delivered %u times, not %u", (unsigned long long)at, count, store->kept.count[at]);
  }
}

/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
    {"stored, put", "a turn has a message, or the next turn has it", STORED, store_is_empty,
     {{"put", put_1_2, 0, "put put"}, {"keep", one_turn, 1, "stored"}}, store_has_what_the_queue_has, KEEPS_ALL},
    {"stored, ack", "an end that a turn misses is found by the next one", STORED, first_holds_a_stored_one,
     {{"ack", ack_held, 0, "acked"}, {"keep", two_turns, 1, "stored stored"}}, store_has_what_the_queue_has, KEEPS_ALL},
    {"stored, nack", "so is a return", STORED, first_holds_a_stored_one,
     {{"nack", nack_held, 0, "returned"}, {"keep", two_turns, 1, "stored stored"}}, store_has_what_the_queue_has, KEEPS_ALL},
    {"stored, nack, ack", "a message changes twice", STORED, first_holds_a_stored_one,
     {{"ack", nack_then_ack, 0, "returned got acked"}, {"keep", two_turns, 1, "stored stored"}},
     store_has_what_the_queue_has, KEEPS_ALL},
    {"stored, put, take", "a message that ends beside its turn", STORED, store_is_empty,
     {{"put", put_1, 0, "put"}, {"take", take_then_ack, 1, "got acked"}, {"keep", one_turn, 2, "stored"}},
     store_has_what_the_queue_has, KEEPS_ALL},
    {"stored, last of a leaf", "the leaf goes during the turn", STORED, one_holds_the_last_of_a_leaf,
     {{"ack", ack_held, 0, "acked"}, {"keep", two_turns, 1, "stored stored"}}, store_has_what_the_queue_has, KEEPS_ALL},
    {"stored, two acks", "two end the last messages of a leaf", STORED, two_hold_the_last_of_a_leaf,
     {{"a", ack_held, 0, "acked"}, {"b", ack_held, 1, "acked"}, {"keep", one_turn, 2, "stored"}},
     store_has_what_the_queue_has, KEEPS_ALL},
    {"stored, commit", "what a commit changes is in a turn as a whole", STORED, first_holds_a_stored_one,
     {{"commit", commit_9_and_ack, 0, "committed acked"}, {"keep", two_whole_turns, 1, "stored stored"}},
     store_has_what_the_queue_has, KEEPS_ALL},
    {"stored, move", "so is a move to another stored queue", STORED, one_is_stored,
     {{"move", move_one, 0, "moved"}, {"keep", two_whole_turns, 1, "stored stored"}}, store_has_what_the_queue_has, KEEPS_ALL},
};
/* clang-format on */
const subject STORE_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
