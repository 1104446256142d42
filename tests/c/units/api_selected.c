// SPDX-License-Identifier: Apache-2.0
/* sb_api_selected: messages that a program selects are moved and removed, each at its position. Messages have the number
 * of their cell as priority, which is what the programs compare. */
#include <string.h>

#include "calls.h"
#include "queues.h"
#include "sb_api.h"
#include "selecting.h"
#include "surroundings.h"
#include "system.h"

#define EVERYTHING UINT64_MAX

static char memory[SB_MAX_PREFIX];
static uint64_t position, bytes;
static sb_status status;
static coded wanted;

static void put_ranked(sb_queue *q, uint8_t priority) {
  static const char body[A_MESSAGE];
  const sb_put_options o = {.priority = priority};
  while ((status = sb_queue_put_with(q, body, sizeof body, &o)) == SB_GROW) expect(grow(t.b, t.path), "no memory");
  expect_is(status, SB_OK, "the status of a put");
}
static sb_queue *ranks(const char *name, sb_settings settings, unsigned count) {
  sb_queue *q = open_new(name, settings);
  for (unsigned i = 0; i < count; i++) put_ranked(q, (uint8_t)i);
  wanted = program_of();
  op_property(&wanted, SB_PROPERTY_PRIORITY);
  op_integer(&wanted, 2);
  op(&wanted, SB_OP_GREATER_OR_EQUAL); /* 2 and higher */
  position = 0;
  bytes = EVERYTHING;
  return q;
}
static sb_manage work_of(sb_manage_action action) {
  return (sb_manage){.action = action,
                     .selector = (const char *)wanted.bytes,
                     .selector_length = wanted.length,
                     .position = position,
                     .end = EVERYTHING,
                     .limit = EVERYTHING,
                     .bytes = bytes,
                     .memory = memory};
}
static int64_t move(sb_queue *q, sb_queue *to, uint64_t limit) {
  status = SB_SYSTEM;
  sb_manage work = work_of(SB_MANAGE_MOVE);
  work.target = to;
  work.limit = limit;
  int64_t moved = sb_queue_manage(q, &work, &status);
  position = work.position;
  bytes = work.bytes;
  expect_is(work.limit, limit - (uint64_t)moved, "the limit that is left");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock after a move");
  return moved;
}
static int64_t purge(sb_queue *q) {
  status = SB_SYSTEM;
  sb_manage work = work_of(SB_MANAGE_REMOVE);
  int64_t removed = sb_queue_manage(q, &work, &status);
  position = work.position;
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock after a purge");
  return removed;
}
static void expect_done(int64_t is, int64_t should, sb_status then) {
  expect_is(is, should, "how many messages");
  expect_is(status, then, "the status");
}

static void selected_messages_are_moved(void) {
  sb_queue *q = ranks("q", UNLIMITED, 6), *to = open_new("to", UNLIMITED);
  sb_watch *work = armed_watch(q, false), *arrival = armed_watch(to, false), *room = armed_watch(q, true);
  expect_done(move(q, to, 1), 1, SB_OK);
  expect_told(room, "what waits for room where a message went");
  expect_is(position, 3, "where to go on");
  expect_not_told(work, "what waits for a message where none came back");
  expect_told(arrival, "what waits for a message where one came");
  bytes = A_MESSAGE + 1;
  expect_done(move(q, to, EVERYTHING), 2, SB_OK);
  expect_is(bytes, 0, "the bytes that are left");
  bytes = 2 * A_MESSAGE;
  expect_done(move(q, to, EVERYTHING), 1, SB_OK);
  expect_is(bytes, A_MESSAGE, "the bytes that are left when no message is");
  expect_done(move(q, to, 0), 0, SB_OK);
  position = 0;
  expect_done(move(q, to, EVERYTHING), 0, SB_OK);
  for (unsigned i = 0; i < 4; i++) expect_is(message_at(to, i)->priority, i + 2, "the message");
  expect_is(sb_queue_length(q), 2, "how many stay");
  expect_is(counter_in(q, SB_COUNT_MOVED), 4, "how many count as moved");
}
static void selected_messages_are_removed(void) {
  sb_queue *q = ranks("q", AT_MOST(6), 6);
  sb_watch *room = armed_watch(q, true), *work = armed_watch(q, false);
  expect_done(purge(q), 4, SB_OK);
  expect_told(room, "what waits for room where a message went");
  expect_not_told(work, "what waits for a message where none came back");
  expect_is(sb_queue_length(q), 2, "how many stay");
  expect_is(counter_in(q, SB_COUNT_KILLED), 4, "how many count as removed");
  position = 0;
  expect_done(purge(q), 0, SB_OK);
}
static void what_comes_meanwhile_stays(void) {
  sb_queue *q = ranks("q", UNLIMITED, 4), *lanes = ranks("lanes", (sb_settings){{-1, -1, -1, 0, -1, -1, 3}, 0}, 4);
  expect_done(move(q, q, EVERYTHING), 2, SB_OK);
  position = 0;
  expect_done(move(lanes, lanes, EVERYTHING), 2, SB_OK);
}
static void each_lane_is_searched(void) {
  sb_queue *q = ranks("q", (sb_settings){{-1, -1, -1, 0, -1, -1, 3}, 0}, 4), *to = open_new("to", UNLIMITED);
  for (unsigned i = 0; i < 4; i++) put_ranked(q, (uint8_t)i);
  expect_done(move(q, to, 3), 3, SB_OK);
  expect_is(message_at(to, 0)->priority, 3, "the first message");
  expect_is(message_at(to, 2)->priority, 2, "the last message");
  expect_done(purge(q), 1, SB_OK);
  expect_is(sb_queue_length(q), 4, "how many stay");
}
static void a_target_that_is_full(void) {
  sb_queue *q = ranks("q", UNLIMITED, 6), *to = open_new("to", AT_MOST(1));
  expect_done(move(q, to, EVERYTHING), 1, SB_FULL);
  expect_is(position, 3, "where to go on: at the message that had no room");
  sb_watch *work = armed_watch(q, false);
  expect_done(move(q, to, EVERYTHING), 0, SB_FULL);
  expect_told(work, "what waits for the message that came back");
  expect_is(sb_queue_length(q), 5, "how many stay");
}
static void a_ring_keeps_its_bound(void) {
  sb_queue *q = ranks("q", UNLIMITED, 6), *to = open_new("to", OF_RING(2));
  expect_done(move(q, to, EVERYTHING), 4, SB_OK);
  expect_is(sb_queue_length(to), 2, "how many the ring has");
  expect_is(counter_in(to, SB_COUNT_REPLACED), 2, "how many were replaced");
}
static void memory_that_is_missing(void) {
  sb_queue *q = ranks("q", UNLIMITED, 6), *to = open_new("to", UNLIMITED);
  use_all_chunks();
  leave_holdings(1);
  expect_done(move(q, to, EVERYTHING), 0, SB_NO_MEMORY);
  expect_is(position, 0, "where to go on after a move");
  expect_is(free_holdings(), 1, "the holdings that are left");
  leave_holdings(0);
  expect_done(purge(q), 0, SB_NO_MEMORY);
  expect_is(position, 0, "where to go on after a purge");
  expect_is(sb_queue_length(q), 6, "how many stay");
}
static void damage_ends_it(void) {
  sb_queue *q = ranks("q", UNLIMITED, 6), *to = open_new("to", UNLIMITED);
  message_at(q, 4)->body_offset = UINT32_MAX - 63;
  expect_done(move(q, to, EVERYTHING), 2, SB_CORRUPT);
  expect_done(purge(q), 0, SB_CORRUPT);
  wanted.length--;
  expect_done(move(q, to, EVERYTHING), 0, SB_INVALID);
  expect_done(purge(q), 0, SB_INVALID);
}
static void what_has_expired_is_passed_over(void) {
  sb_queue *q = ranks("q", UNLIMITED, 4);
  answer_for_the_system();
  message_at(q, 2)->expires_ns = says.now_ns;
  message_at(q, 3)->expires_ns = says.now_ns + 1;
  expect_done(purge(q), 1, SB_OK);
  expect_is(cell_state(q, 2), SB_CELL_AVAILABLE, "the message that has expired");
}
static void calls_that_are_refused(void) {
  sb_queue *q = ranks("q", UNLIMITED, 6), *to = open_new("to", UNLIMITED);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_done(move(q, to, EVERYTHING), 0, REFUSAL[i]);
    expect_done(purge(q), 0, REFUSAL[i]);
    expect_is(position, 0, "where to go on");
    expect_untouched(t.c, "a refused call");
  }
  refuse(t.c, SB_OK);
  mark_closed(to);
  expect_done(move(q, to, EVERYTHING), 0, SB_DELETED);
  mark_closed(q);
  expect_done(move(q, to, EVERYTHING), 0, SB_DELETED);
  expect_done(purge(q), 0, SB_DELETED);
  expect_is(counter_in(q, SB_COUNT_MOVED) + counter_in(q, SB_COUNT_KILLED), 0, "how many went");
}

/* When the message was found, and before it is taken, another process takes it. */
static sb_queue *shared;
static unsigned taken;
static void take_before(const char *site) {
  if (taken > 0 || strstr(site, "sb_take.c") == NULL) return;
  taken++;
  set_cell_word(shared, 2, (word_at(shared, 2) & ~UINT64_C(15)) | SB_CELL_SCHEDULED);
}
static void another_process_is_faster(void) {
  if (!has_steps()) return;
  for (unsigned moves = 0; moves < 2; moves++) {
    char name[] = "q0";
    name[1] = (char)('0' + moves);
    shared = ranks(name, UNLIMITED, 6);
    sb_queue *to = open_new(moves != 0 ? "to" : "unused", UNLIMITED);
    uint64_t before = free_holdings();
    taken = 0;
    at_step = take_before;
    expect_done(moves != 0 ? move(shared, to, EVERYTHING) : purge(shared), 3, SB_OK);
    at_step = NULL;
    expect_is(taken, 1, "what happened meanwhile");
    expect_is(cell_state(shared, 2), SB_CELL_SCHEDULED, "the message of the other process");
    expect_is(free_holdings(), before, "the holdings that are free");
  }
}

static const test_case CASES[] = {
    {"api_selected: moved", "selected messages are moved in their order, up to the limits",
     selected_messages_are_moved},
    {"api_selected: removed", "selected messages are removed", selected_messages_are_removed},
    {"api_selected: meanwhile", "what comes during a move is not moved", what_comes_meanwhile_stays},
    {"api_selected: lanes", "selected messages of each priority are moved and removed", each_lane_is_searched},
    {"api_selected: full", "a move ends where the target is full", a_target_that_is_full},
    {"api_selected: ring", "a ring keeps its bound", a_ring_keeps_its_bound},
    {"api_selected: memory", "without memory nothing happens, and the next call goes on there", memory_that_is_missing},
    {"api_selected: damage", "damage and invalid programs end the call", damage_ends_it},
    {"api_selected: expired", "what has expired is left to the housekeeper", what_has_expired_is_passed_over},
    {"api_selected: refused", "nothing is moved or removed where nothing can be seen", calls_that_are_refused},
    {"api_selected: faster", "a message that another process took is passed over", another_process_is_faster},
};
SUBJECT(CASES)
