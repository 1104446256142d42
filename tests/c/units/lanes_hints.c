// SPDX-License-Identifier: Apache-2.0
/* sb_hints, sb_housekeeping and sb_intent in a queue with priorities: lanes and messages that no search finds, hints
 * that are wrong, timers that were lost, and what a dead connection left. */
#include "sb_hints.h"

#include <setjmp.h>
#include <string.h>

#include "calls.h"
#include "dead.h"
#include "meanwhile.h"
#include "ranked.h"
#include "sb_move.h"
#include "sb_wait.h"
#include "ticks.h"

enum { FIRST = 9, MIDDLE = 5, LAST = 0 }; /* priorities; their lanes are 0, 4 and 9 */

static sb_queue *q;

static void put_in_three_lanes(void) {
  put_several(q, FIRST, 1);
  put_several(q, MIDDLE, 2);
  put_several(q, LAST, 1);
}
/* One message in lane 0, two in lane 4, one in lane 9. */
static void begin(sb_settings settings) {
  q = queue_named("q", settings);
  put_in_three_lanes();
}
static void take_lane_0(void) { take_from(q); }

/* ---- hidden lanes ---- */

static void lanes_that_are_hidden(void) {
  const unsigned numbers[] = {0, 4, 9};
  begin(RANKED(9));
  expect(!sb_hints_any_hides_ready(t.b, q->slot), "a lane is hidden");
  for (unsigned i = 0; i < 3; i++) {
    sb_ring r = ring_of(q, numbers[i]);
    set_ready(q, numbers[i], false);
    expect(sb_hints_hide_ready(t.b, &r), "lane %u is not hidden", numbers[i]);
    expect(sb_hints_any_hides_ready(t.b, q->slot), "no lane is hidden");
    expect_is(sb_hints_resurface(t.b, q->shm, &r, 0), 1, "how much was hidden");
    expect(is_ready(q, numbers[i]), "lane %u is still hidden", numbers[i]);
    expect_is(sb_hints_resurface(t.b, q->shm, &r, 0), 0, "how much was hidden then");
  }
  for (unsigned i = 0; i < 3; i++) set_ready(q, numbers[i], false);
  expect_is(sb_hints_resurface_all(t.b, q->slot, 0), 3, "how many lanes were hidden");
  expect_is(q->shm->ready[0], 1 | 16 | 512, "the bits");
  expect_is(sb_hints_resurface_all(t.b, q->slot, 0), 0, "how many lanes were hidden then");
  expect_repairs(0, 0);
}
static void an_empty_lane_is_not_hidden(void) {
  begin(RANKED(9));
  take_lane_0();
  set_ready(q, 0, false);
  sb_ring r = ring_of(q, 0);
  expect(!sb_hints_hide_ready(t.b, &r), "a lane without a message is hidden");
  expect_is(sb_hints_resurface(t.b, q->shm, &r, 0), 0, "how much was hidden");
  expect(!is_ready(q, 0), "a lane without a message has its bit");
}
/* Both the lane and one of its cells: the lane is no repair. */
static void a_cell_of_a_hidden_lane(void) {
  begin(RANKED(9));
  sb_ring r = ring_of(q, 4);
  SB_STORE(r.head, base_of(q, 4) + 1, SB_RELAXED);
  expect(sb_hints_any_hides_ready(t.b, q->slot), "no cell is hidden");
  set_ready(q, 4, false);
  expect_is(sb_hints_resurface_all(t.b, q->slot, sb_repairs_deaths(t.b)), 2, "how much was hidden");
  expect(is_ready(q, 4) && sb_requeued_is_marked(t.b, &r, base_of(q, 4)), "the lane or the cell is still hidden");
  expect_repairs(OF_MARK, 0);
}
static void a_rescan_of_all_lanes(void) {
  begin(RANKED(9));
  set_ready(q, 9, false);
  q->rescanned_ns = sb_now_ns() - UINT64_C(300000000);
  expect_is(sb_hints_rescan(q), 1, "how much was hidden");
  expect(is_ready(q, 9), "the lane is still hidden");
}

/* ---- what is ready ---- */

static void what_is_ready_in_a_lane(void) {
  begin(RANKED(9));
  uint64_t base = base_of(q, 4);
  expect(sb_hints_any_has_ready(t.b, q->slot, base + 1), "the first message of a lane is not ready");
  expect(!sb_hints_any_has_ready(t.b, q->slot, base), "one is ready before it");
  expect(sb_hints_any_has_ready(t.b, q->slot, q->base + 1), "the message in lane 0 is not ready");
  expect(!sb_hints_any_has_ready(t.b, q->slot, 0), "one is ready before all");
  expect(!sb_hints_any_has_ready(t.b, q->slot, sb_position_in(6, 9)), "one is ready in a lane that nobody made");
}
static void what_is_ready_in_any_lane(void) {
  begin(RANKED(9));
  expect_is(sb_hints_end_of_ready(t.b, q->slot), q->base + 1, "the end of lane 0");
  set_ranked(q, 0, 0, SB_CELL_ACQUIRED, 99);
  expect(sb_hints_any_has_ready(t.b, q->slot, SB_ANY_END), "none is ready");
  expect_is(sb_hints_end_of_ready(t.b, q->slot), base_of(q, 4) + 2, "the end of lane 4");
  set_ranked(q, 9, 0, SB_CELL_ACQUIRED, 99);
  expect(sb_hints_any_has_ready(t.b, q->slot, SB_ANY_END), "none is ready before the last lane");
  set_ranked(q, 9, 0, SB_CELL_AVAILABLE, 0);
  for (unsigned i = 0; i < 2; i++) set_ranked(q, 4, i, SB_CELL_ACQUIRED, 99);
  SB_STORE(&lane_of(q, 9)->tail, base_of(q, 9), SB_RELAXED);
  expect(sb_hints_any_has_ready(t.b, q->slot, SB_ANY_END), "none is ready behind a tail that lags");
  SB_STORE(&lane_of(q, 9)->tail, base_of(q, 9), SB_RELAXED);
  expect_is(sb_hints_end_of_ready(t.b, q->slot), base_of(q, 9) + 1, "the end of lane 9");
  set_ranked(q, 9, 0, SB_CELL_ACQUIRED, 99);
  expect(!sb_hints_any_has_ready(t.b, q->slot, SB_ANY_END), "one is ready");
  expect_is(sb_hints_end_of_ready(t.b, q->slot), q->base + 1, "the end where none is ready: that of lane 0");
}

/* ---- hints ---- */

static void expect_account(uint64_t came, uint64_t taken, uint64_t admitted, uint64_t bytes_in, const char *what) {
  expect_is(q->shm->came - q->base, came, what);
  expect_is(q->shm->taken, taken, what);
  expect_is(q->shm->admitted - q->base, admitted, what);
  expect_is(q->shm->bytes_in, bytes_in, what);
}
static sb_hints reconcile(void) { return sb_hints_reconcile(t.b, q->shm, NULL); }
static void hints_are_set_right(void) {
  begin(RANKED_RING(100, 9));
  take_lane_0();
  expect_is(reconcile(), SB_HINTS_RIGHT, "what was found right");
  sb_word *hints[] = {&q->shm->came, &q->shm->taken, &q->shm->admitted, &q->shm->bytes_in};
  for (unsigned i = 0; i < 4; i++) {
    (void)SB_ADD(hints[i], 3, SB_RELAXED);
    expect_is(reconcile(), SB_HINTS_SET_RIGHT, "what was found too high");
    expect_account(4, 1, 4, 4 * BYTES, "the account");
    (void)SB_SUB(hints[i], 1, SB_RELAXED);
    expect_is(reconcile(), SB_HINTS_SET_RIGHT, "what was found too low");
    expect_account(4, 1, 4, 4 * BYTES, "the account");
  }
}
/* A producer was killed after its append. */
static void a_tail_that_lags(void) {
  begin(RANKED_RING(100, 9));
  SB_STORE(&lane_of(q, 9)->tail, base_of(q, 9), SB_RELAXED);
  (void)SB_SUB(&q->shm->came, 1, SB_RELAXED);
  expect_is(reconcile(), SB_HINTS_SET_RIGHT, "what was found");
  expect_account(4, 0, 4, 4 * BYTES, "the account");
}
static void another_comes(void) { (void)SB_ADD(&q->shm->came, 1, SB_SEQ_CST); }
static void a_hint_that_changes_meanwhile(void) {
  begin(RANKED_RING(100, 9));
  (void)SB_ADD(&q->shm->came, 3, SB_RELAXED);
  meanwhile(&q->shm->came, BEFORE_LOAD, 2, another_comes);
  sb_hints found = reconcile();
  if (has_acted()) {
    expect_is(found, SB_HINTS_BUSY, "what was found where the readings differ");
    expect_account(8, 0, 4, 4 * BYTES, "the account");
  }
  meanwhile(&q->shm->came, BEFORE_CAS, 1, another_comes);
  found = reconcile();
  if (!has_acted()) return;
  expect_is(found, SB_HINTS_BUSY, "what was found where the hint changed");
  expect_account(9, 0, 4, 4 * BYTES, "the account");
}
/* Only the second reading sees the other value. */
static void it_goes_again(void) { (void)SB_SUB(&q->shm->came, 1, SB_SEQ_CST); }
static void another_comes_and_goes(void) {
  another_comes();
  meanwhile(&q->shm->came, AFTER_LOAD, 1, it_goes_again);
}
static void readings_that_differ(void) {
  begin(RANKED_RING(100, 9));
  (void)SB_ADD(&q->shm->came, 3, SB_RELAXED);
  meanwhile(&q->shm->came, BEFORE_LOAD, 2, another_comes_and_goes);
  sb_hints found = reconcile();
  if (!has_acted()) return;
  expect_is(found, SB_HINTS_BUSY, "what was found where the readings differ");
  expect_account(7, 0, 4, 4 * BYTES, "the account");
}
/* The hint of a queue without priorities says nothing. */
static void what_came_without_priorities(void) {
  q = queue_named("q", OF_RING(100));
  put_several(q, 0, 2);
  SB_STORE(&q->shm->came, 77, SB_RELAXED);
  expect_is(reconcile(), SB_HINTS_RIGHT, "what was found");
  expect_is(q->shm->came, 77, "the hint");
}

/* ---- ticks ---- */

static void begin_ranked_ticks(void) { q = begin_ticks(RANKED(9)); }
static void what_is_quiet(void) {
  begin_ranked_ticks();
  tick_queue();
  put_several(q, LAST, 1);
  tick_queue();
  expect_is(remembered.quiet_ticks, 0, "the quiet ticks after a put into the last lane");
  expect_is(remembered.came, q->base + 1, "what came");
  tick_queue();
  expect_is(remembered.quiet_ticks, 1, "the quiet ticks without a put");
}
static void a_hidden_lane_comes_up(void) {
  begin_ranked_ticks();
  put_several(q, LAST, 2);
  uint32_t node = node_with(SB_NODE_DIRECT, 0);
  move_to(node, SB_NODE_INTERESTED);
  set_ready(q, 9, false);
  tick_queue();
  expect(is_ready(q, 9), "the lane is still hidden");
  expect_is(remembered.known_tail, base_of(q, 9) + 2, "the tail that is known");
  expect_repairs(0, 0);
  tick_queue();
  expect_is(node_state(node), SB_NODE_NOTIFIED, "the state of its consumer's node");
}
/* Deaths explain a later repair as long as a lane is hidden. */
static void deaths_beside_a_hidden_lane(void) {
  begin_ranked_ticks();
  put_several(q, LAST, 1);
  set_ready(q, 9, false);
  set_deaths(DEATHS);
  for (unsigned i = 0; i < 5; i++) tick_queue();
  expect(remembered.deaths != DEATHS, "the deaths explain nothing any more");
  set_ready(q, 9, true);
  for (unsigned i = 0; i < 40; i++) tick_queue();
  expect_is(remembered.deaths, DEATHS, "the deaths when no lane is hidden");
}
static void an_overlooked_page_of_a_lane(void) {
  const unsigned priorities[] = {FIRST, LAST};
  for (unsigned i = 0; i < 2; i++) {
    q = begin_ticks_of(i == 0 ? "first" : "last", RANKED(9));
    put_several(q, priorities[i], SB_PAGE_CELLS + 3);
    sb_leaf_ref leaf = overlook(ranked_leaf(q, i * 9, 0));
    for (unsigned k = 0; k < 2; k++) tick_queue();
    expect(!is_freed(&leaf), "it was freed before traffic rests");
    tick_queue();
    expect(is_freed(&leaf), "it was not freed");
  }
}
static void no_stopped_consumer(void) {
  begin_ranked_ticks();
  expect(!sb_housekeeping_pass_stopped(t.c, q->slot), "a consumer of an empty queue was parked");
}

/* ---- timers ---- */

#define ROOM 20u
static uint64_t cursors[3], positions[ROOM];
static void expect_timers(uint32_t room, uint32_t count, const uint64_t *should, uint64_t cursor, const char *what) {
  memset(positions, 0, sizeof positions);
  expect_is(sb_housekeeping_timers(q, cursors, positions, room), count, what);
  for (unsigned i = 0; i < count; i++) expect_is(positions[i], should[i], what);
  expect_is(cursors[1], cursor, what);
}
static void begin_timers(void) {
  q = queue_named("q", RANKED(9));
  memset(cursors, 0, sizeof cursors);
}
static void timers_of_all_lanes(void) {
  begin_timers();
  put_several(q, FIRST, 2);
  put_several(q, MIDDLE + 1, 1); /* in lane 3, where no message has a timer */
  put_timed(q, MIDDLE, 1, 0, 1);
  put_several(q, MIDDLE, 1);
  put_timed(q, MIDDLE, 2, 1, 0);
  put_timed(q, LAST, 3, 0, 1);
  uint64_t four = base_of(q, 4), nine = base_of(q, 9);
  SB_STORE(&q->shm->timers_lost, 1, SB_RELAXED);
  cursors[0] = SB_LOAD(&q->shm->schedule.tail, SB_RELAXED);
  expect_timers(1, 1, (uint64_t[]){four}, four + 2, "the first one: those lanes before have none");
  expect_timers(1, 1, (uint64_t[]){four + 2}, four + 4, "the second one");
  expect_timers(1, 1, (uint64_t[]){nine}, nine + 2, "the one in the next lane");
  expect_timers(1, 0, NULL, 0, "the end");
  expect_timers(1, 0, NULL, 0, "nothing behind the end");
  SB_STORE(&q->shm->timers_lost, 2, SB_RELAXED);
  expect_timers(ROOM, 2, (uint64_t[]){four, four + 2}, nine + 1, "all of the first lane that has some");
  expect_timers(ROOM, 1, (uint64_t[]){nine}, 0, "all of the last lane");
}
static void timers_of_the_schedule(void) {
  begin_timers();
  put_timed(q, LAST, 1, 1, 0);
  put_timed(q, FIRST, 2, 1, 0);
  expect_timers(ROOM, 2, (uint64_t[]){base_of(q, 9), q->base}, 0, "the entries of the schedule");
}
/* The walk comes to a lane that no position leads to: the scan ends there. */
static void timers_of_a_damaged_chain(void) {
  begin_timers();
  put_timed(q, MIDDLE, 1, 0, 1);
  put_timed(q, LAST, 1, 0, 1);
  SB_STORE(&q->shm->timers_lost, 1, SB_RELAXED);
  cursors[0] = SB_LOAD(&q->shm->schedule.tail, SB_RELAXED);
  SB_STORE(&lane_of(q, 4)->number, 8u, SB_RELAXED);
  expect_timers(ROOM, 0, NULL, 0, "none before the damage");
}

/* ---- what a dead connection left ---- */

static sb_ledger_shm *l;
static uint32_t slot;
static uint64_t message;
static void begin_intents(void) {
  grow_to(BROKER_CHUNKS - 1);
  begin_dead();
  q = queue_of_dead("q", RANKED(9));
  put_several(q, LAST, 2);
  l = q->ledger;
  slot = sb_cell_slot(ranked_word(q, 9, 0));
  message = sb_slot_gen(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED));
  set_ready(q, 9, false);
}
static void judge(unsigned kind, uint64_t position) {
  sb_ledger_begin_intent(l, kind, SB_COUNT_ADDED, position, slot, message, BYTES);
  sb_intent_resolve(&w, sb_holding_what(SB_HOLD_LEDGER, q->slot, 0), sb_slot_of(t.b, l));
}
static void a_put_that_happened(void) {
  begin_intents();
  uint64_t added = counter_in(q, SB_COUNT_ADDED);
  judge(SB_INTENT_ENQUEUE, base_of(q, 9));
  expect_is(counter_in(q, SB_COUNT_ADDED), added + 1, "how many were added");
  expect(is_ready(q, 9), "its lane is hidden");
}
static void a_put_that_did_not_happen(void) {
  begin_intents();
  uint64_t added = counter_in(q, SB_COUNT_ADDED);
  judge(SB_INTENT_ENQUEUE, base_of(q, 9) + 1);
  expect_is(counter_in(q, SB_COUNT_ADDED), added, "how many were added");
  expect(!is_ready(q, 9), "its lane has a bit");
}
static void a_commit_that_happened(void) {
  begin_intents();
  uint64_t added = counter_in(q, SB_COUNT_ADDED);
  judge(SB_INTENT_COMMIT, base_of(q, 9));
  expect_is(counter_in(q, SB_COUNT_ADDED), added + 1, "how many were added");
  expect(is_ready(q, 9), "its lane is hidden");
}
static void a_commit_that_did_not_happen(void) {
  begin_intents();
  uint64_t added = counter_in(q, SB_COUNT_ADDED);
  set_ranked(q, 9, 0, SB_CELL_STAGED, d.c->id);
  judge(SB_INTENT_COMMIT, base_of(q, 9));
  expect_is(counter_in(q, SB_COUNT_ADDED), added, "how many were added");
  expect(!is_ready(q, 9), "its lane has a bit");
}
static void where_a_cell_is(void) {
  begin_intents();
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t word;
  expect(sb_intent_find_cell(&w, q->slot, base_of(q, 9) + 1, &r, &leaf, &word), "the cell is not found");
  expect_is(word, ranked_word(q, 9, 1), "its word");
  expect(r.root == &lane_of(q, 9)->root, "it is in another ring");
  expect(!sb_intent_find_cell(&w, q->slot, sb_position_in(3, 0), &r, &leaf, &word),
         "a lane that nobody made has cells");
}
/* It was killed after the append of its move: the reaper writes the number that the message had. */
static jmp_buf killed;
static void be_killed(const char *site) {
  if (strcmp(site, "queue.append.counted") == 0) longjmp(killed, 1);
}
static void a_move_that_happened(void) {
  if (!has_steps()) return;
  begin_intents();
  sb_settings keeping = RANKED(9);
  keeping.flags = SB_QUEUE_KEEPS;
  sb_queue *to = queue_of_dead("to", keeping);
  uint64_t size;
  if (setjmp(killed) == 0) {
    at_step = be_killed;
    (void)sb_move_one(q, to, base_of(q, 9) + 1, &size);
    die("sb_move_one", 0);
  }
  at_step = NULL;
  sb_intent_resolve(&w, sb_holding_what(SB_HOLD_LEDGER, q->slot, 0), sb_slot_of(t.b, q->ledger));
  sb_leaf_ref leaf = ranked_leaf(to, 9, 0);
  const sb_word *origin = sb_ring_origin(t.b, &leaf, base_of(to, 9));
  expect(origin != NULL, "there is no room for its number");
  if (origin != NULL) expect_is(*origin, sb_position_in(9, 0), "the number that it had");
  expect_is(ranked_state(q, 9, 0), SB_CELL_TOMBSTONE, "the state of the cell that it left");
  expect_is(ranked_state(to, 9, 0), SB_CELL_AVAILABLE, "the state of its new cell");
  expect(is_ready(to, 9), "its lane is hidden");
}
/* A cell that the dead connection held goes back, and its lane is found. */
static void a_held_cell_is_returned(void) {
  begin_intents();
  set_ranked(q, 9, 0, SB_CELL_ACQUIRED, d.c->id);
  sb_intent_release_cell(&w, q->slot, base_of(q, 9));
  expect_is(ranked_state(q, 9, 0), SB_CELL_AVAILABLE, "the state of its cell");
  expect(is_ready(q, 9), "its lane is hidden");
  expect_is(lane_of(q, 9)->requeued, 1, "the flag of its lane");
}

static const test_case CASES[] = {
    {"lanes_hints: hidden", "a lane with a message gets its bit back, which is no repair", lanes_that_are_hidden},
    {"lanes_hints: empty", "a lane without a message needs no bit", an_empty_lane_is_not_hidden},
    {"lanes_hints: cell", "a hidden cell of a hidden lane is one repair", a_cell_of_a_hidden_lane},
    {"lanes_hints: rescan", "a handle looks for hidden messages in all lanes", a_rescan_of_all_lanes},
    {"lanes_hints: ready before", "what is ready before a position is in its lane", what_is_ready_in_a_lane},
    {"lanes_hints: ready", "the first lane that has a ready message is found", what_is_ready_in_any_lane},
    {"lanes_hints: right", "each hint is set right by the cells of all lanes", hints_are_set_right},
    {"lanes_hints: tail", "a cell behind a tail that lags is counted", a_tail_that_lags},
    {"lanes_hints: changes", "a hint that changes meanwhile is left", a_hint_that_changes_meanwhile},
    {"lanes_hints: differ", "hints of two readings that differ are left", readings_that_differ},
    {"lanes_hints: one lane", "a queue without priorities has one hint less", what_came_without_priorities},
    {"lanes_hints: quiet", "a put into any lane is traffic", what_is_quiet},
    {"lanes_hints: tick", "a tick finds a hidden lane, and tells a consumer", a_hidden_lane_comes_up},
    {"lanes_hints: deaths", "a hidden lane keeps the explanation", deaths_beside_a_hidden_lane},
    {"lanes_hints: page", "a page of any lane that was overlooked goes", an_overlooked_page_of_a_lane},
    {"lanes_hints: stopped", "no consumer of an empty queue is parked", no_stopped_consumer},
    {"lanes_hints: timers", "lost timers are found lane by lane", timers_of_all_lanes},
    {"lanes_hints: schedule", "the schedule has timers of all lanes", timers_of_the_schedule},
    {"lanes_hints: damaged", "a scan ends where the chain is damaged", timers_of_a_damaged_chain},
    {"lanes_hints: dead put", "the lane of a put by a dead connection is found", a_put_that_happened},
    {"lanes_hints: no put", "a put that did not happen leads nobody", a_put_that_did_not_happen},
    {"lanes_hints: dead commit", "the lane of a commit by a dead connection is found", a_commit_that_happened},
    {"lanes_hints: no commit", "a commit that did not happen leads nobody", a_commit_that_did_not_happen},
    {"lanes_hints: dead move", "a move by a dead connection keeps the number in a lane", a_move_that_happened},
    {"lanes_hints: where", "a position leads the reaper to its lane", where_a_cell_is},
    {"lanes_hints: returned", "the lane of what the reaper returns is found", a_held_cell_is_returned},
};
SUBJECT(CASES)
