// SPDX-License-Identifier: Apache-2.0
/* sb_api_selected: messages that an administrator names are expired, delivered early, limited in their life, taken and put
 * back; and seen in any state. */
#include <string.h>

#include "calls.h"
#include "queues.h"
#include "sb_api.h"
#include "selecting.h"
#include "surroundings.h"
#include "system.h"

#define EVERYTHING UINT64_MAX
#define SECOND UINT64_C(1000000000)
#define HOUR 3600u
#define DEADLY ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DEAD_LETTERS})

static char memory[SB_MAX_PREFIX], record[BUFFER];
static sb_status status;

static sb_manage work(sb_manage_action action, uint64_t from, uint64_t end) {
  return (sb_manage){
      .action = action, .position = from, .end = end, .limit = EVERYTHING, .bytes = EVERYTHING, .memory = memory};
}
static int64_t manage(sb_queue *q, sb_manage_action action, uint64_t from, uint64_t end) {
  sb_manage w = work(action, from, end);
  status = SB_SYSTEM;
  int64_t done = sb_queue_manage(q, &w, &status);
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock after the call");
  expect_is(w.limit, EVERYTHING - (uint64_t)done, "the limit that is left");
  return done;
}
static sb_queue *filled(const char *name, sb_settings settings, unsigned count) {
  sb_queue *q = open_new(name, settings);
  put_up_to(q, count);
  note_rest(q);
  return q;
}
static void expect_states(const sb_queue *q, const unsigned *states, unsigned count) {
  for (unsigned i = 0; i < count; i++) expect_is(cell_state(q, i), states[i], "the state of a cell");
}

static void named_messages_are_removed(void) {
  sb_queue *q = filled("q", UNLIMITED, 6);
  expect_is(manage(q, SB_MANAGE_REMOVE, 2, 4), 2, "how many were removed");
  expect_is(status, SB_OK, "the status");
  expect_is(manage(q, SB_MANAGE_REMOVE, 2, 4), 0, "how many were removed again");
  expect_is(manage(q, SB_MANAGE_REMOVE, 5, 5), 0, "how many an empty range has");
  expect_is(manage(q, SB_MANAGE_REMOVE, 70, 75), 0, "how many a range behind the end has");
  const unsigned states[] = {SB_CELL_AVAILABLE, SB_CELL_AVAILABLE, SB_CELL_TOMBSTONE,
                             SB_CELL_TOMBSTONE, SB_CELL_AVAILABLE, SB_CELL_AVAILABLE};
  expect_states(q, states, 6);
  expect_rest("the removals");
}
static void named_messages_expire(void) {
  sb_queue *q = filled("q", AT_MOST(6), 6);
  sb_watch *room = armed_watch(q, true);
  expect_is(manage(q, SB_MANAGE_EXPIRE, 1, 3), 2, "how many expired");
  expect_told(room, "what waits for room");
  expect_is(counter_in(q, SB_COUNT_EXPIRED), 2, "how many count as expired");
  expect_is(sb_queue_length(q), 4, "how many stay");
}
static void expired_messages_become_dead(void) {
  sb_queue *q = filled("q", DEADLY, 3);
  sb_whereabouts where;
  uint64_t position = 0;
  expect_is(manage(q, SB_MANAGE_EXPIRE, 1, 2), 1, "how many expired");
  const unsigned states[] = {SB_CELL_AVAILABLE, SB_CELL_SCHEDULED, SB_CELL_AVAILABLE};
  expect_states(q, states, 3);
  expect_is(counter_in(q, SB_COUNT_EXPIRED), 0, "how many count as expired");
  expect(sb_queue_browse_states(q, &position, EVERYTHING, SB_STATE_DEAD, NULL, 0, true, record, BUFFER, &where) > 0,
         "the dead message is not seen");
  expect_is(where.state, SB_STATE_DEAD, "its state");
  expect_is(position, 2, "where to go on");
  expect_is(manage(q, SB_MANAGE_DELIVER, 0, EVERYTHING), 0, "how many dead ones are delivered");
  expect_is(cell_state(q, 1), SB_CELL_SCHEDULED, "the state of the dead one");
}
static void scheduled_messages_are_delivered(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  for (uint64_t i = 1; i <= 4; i++) put_with(q, i, i == 3 ? 0 : HOUR, 0);
  note_rest(q);
  sb_watch *arrival = armed_watch(q, false);
  take_from(q); /* the only ready one, so that nothing is there to be told of */
  expect_is(manage(q, SB_MANAGE_DELIVER, 1, 3), 1, "how many became ready");
  expect_told(arrival, "what waits for a message");
  const unsigned states[] = {SB_CELL_SCHEDULED, SB_CELL_AVAILABLE, SB_CELL_TOMBSTONE, SB_CELL_SCHEDULED};
  expect_states(q, states, 4);
  expect_is(counter_in(q, SB_COUNT_UNSCHEDULED), 1, "how many count as no more scheduled");
  expect_is(manage(q, SB_MANAGE_DELIVER, 0, EVERYTHING), 2, "how many others became ready");
  expect_is(sb_queue_length(q), 3, "how many are ready");
}
static void scheduled_messages_end(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  for (uint64_t i = 1; i <= 4; i++) put_with(q, i, i == 3 ? 0 : HOUR, 0);
  note_rest(q);
  for (unsigned i = 0; i < 2; i++) {
    sb_manage w = work(i == 0 ? SB_MANAGE_REMOVE : SB_MANAGE_EXPIRE, i, EVERYTHING);
    w.scheduled = true;
    w.limit = 1;
    expect_is(sb_queue_manage(q, &w, &status), 1, "how many ended");
  }
  const unsigned states[] = {SB_CELL_TOMBSTONE, SB_CELL_TOMBSTONE, SB_CELL_AVAILABLE, SB_CELL_SCHEDULED};
  expect_states(q, states, 4);
  expect_is(counter_in(q, SB_COUNT_KILLED), 1, "how many count as removed");
  expect_is(counter_in(q, SB_COUNT_EXPIRED), 1, "how many count as expired");
  expect_is(counter_in(q, SB_COUNT_UNSCHEDULED), 2, "how many count as no more scheduled");
  expect_rest("the ends");
}
static void a_ring_replaces_what_is_delivered(void) {
  sb_queue *q = open_new("q", OF_RING(2));
  put_with(q, 1, HOUR, 0);
  put_with(q, 2, 0, 0);
  put_with(q, 3, 0, 0);
  expect_is(manage(q, SB_MANAGE_DELIVER, 0, EVERYTHING), 1, "how many became ready");
  expect_is(counter_in(q, SB_COUNT_REPLACED), 1, "how many were replaced");
  expect_is(cell_state(q, 0), SB_CELL_TOMBSTONE, "the oldest one");
}
static void lives_are_shortened(void) {
  sb_queue *q = filled("q", UNLIMITED, 3);
  put_with(q, 4, 0, 5);
  message_at(q, 0)->timestamp_ns -= 100 * SECOND;
  message_at(q, 1)->targets = 2;
  uint64_t before = SB_LOAD(&q->shm->schedule.tail, SB_RELAXED), five = message_at(q, 3)->expires_ns;
  sb_manage w = work(SB_MANAGE_LIMIT, 0, EVERYTHING);
  w.life_ns = 60 * SECOND;
  uint64_t now = sb_now_ns();
  expect_is(sb_queue_manage(q, &w, &status), 2, "how many have another end");
  const unsigned states[] = {SB_CELL_TOMBSTONE, SB_CELL_AVAILABLE, SB_CELL_AVAILABLE, SB_CELL_AVAILABLE};
  expect_states(q, states, 4);
  expect_is(counter_in(q, SB_COUNT_EXPIRED), 1, "how many expired");
  expect_is(message_at(q, 1)->expires_ns, 0, "the end of one that other queues have");
  expect(message_at(q, 2)->expires_ns > now && message_at(q, 2)->expires_ns <= sb_now_ns() + 60 * SECOND,
         "another end than in a minute");
  expect_is(message_at(q, 3)->expires_ns, five, "the end of one that ends earlier");
  expect_is(SB_LOAD(&q->shm->schedule.tail, SB_RELAXED), before + 1, "how many entries the schedule has");
}
static void a_message_is_taken_and_put_back(void) {
  sb_queue *q = filled("q", UNLIMITED, 3);
  sb_record r;
  expect(sb_queue_take(q, 1, record) > 0, "it cannot be taken");
  memcpy(&r, record, sizeof r);
  expect_is(r.sequence, 1, "its sequence number");
  expect_is(r.marks, 0, "whether it is redelivered");
  expect_is(cell_state(q, 1), SB_CELL_REMOVING, "the state of its cell");
  expect_is(sb_queue_take(q, 1, record + 4096), -(int64_t)SB_EMPTY, "the status of a second take");
  expect_is(sb_queue_take(q, 3, record + 4096), -(int64_t)SB_EMPTY, "the status of a take behind the end");
  sb_watch *work = armed_watch(q, false);
  sb_queue_put_back(q, record);
  expect_told(work, "what waits for a message");
  expect_is(cell_state(q, 1), SB_CELL_AVAILABLE, "the state of its cell afterwards");
  sb_queue_put_back(q, record);
  expect_is(sb_queue_length(q), 3, "how many are ready");
  expect(sb_queue_take(q, 1, record) > 0, "it cannot be taken again");
  sb_queue_put_back(q, record);
}
static void a_damaged_message_is_not_taken(void) {
  sb_queue *q = filled("q", UNLIMITED, 2);
  message_at(q, 1)->body_offset = UINT32_MAX - 63;
  expect(sb_queue_take(q, 1, record) < 0, "it was taken");
  expect_is(sb_queue_length(q), 2, "how many are ready");
}
static void each_state_is_seen(void) {
  sb_queue *q = open_new("q", UNLIMITED);
  static const uint32_t expected[] = {SB_STATE_DELIVERING, SB_STATE_READY, SB_STATE_SCHEDULED};
  sb_whereabouts where;
  uint64_t position = 0;
  put_with(q, 1, 0, 0);
  put_with(q, 2, 0, 0);
  put_with(q, 3, HOUR, 0);
  expect(sb_queue_get(q, record, false) > 0, "there is no message");
  const uint32_t all = SB_STATE_READY | SB_STATE_SCHEDULED | SB_STATE_DELIVERING | SB_STATE_DEAD;
  for (unsigned i = 0; i < 3; i++) {
    int64_t length = sb_queue_browse_states(q, &position, EVERYTHING, all, NULL, 0, i != 1, record, BUFFER, &where);
    expect_is(length, (int64_t)sizeof(sb_record) + (i != 1 ? A_MESSAGE : 0), "the length of the record");
    expect_is(where.state, expected[i], "the state");
    expect_is(where.connection, i == 0 ? t.c->id : 0, "the connection");
    expect_is(where.due_ns, i == 2 ? message_at(q, 2)->due_ns : 0, "when it is due");
    expect_is(((sb_record *)(void *)record)->delivery_count, i == 0 ? 1 : 0, "how often it was delivered");
  }
  position = 0;
  expect_is(sb_queue_browse_states(q, &position, 1, SB_STATE_READY, NULL, 0, true, record, BUFFER, &where),
            -(int64_t)SB_EMPTY, "the status of a range without ready messages");
  expect_is(sb_queue_browse_states(q, &position, EVERYTHING, all, "x", 1, true, record, BUFFER, &where),
            -(int64_t)SB_INVALID, "the status of an invalid program");
}
static void properties_are_selected(void) {
  coded program = program_of(), properties = properties_of(FLAG(SB_PROPERTY_TYPE));
  text_property(&properties, "t");
  op_property(&program, SB_PROPERTY_TYPE);
  op_string(&program, "t");
  op(&program, SB_OP_EQUAL);
  const char *p = (const char *)program.bytes, *given = (const char *)properties.bytes;
  expect(sb_selector_selects(p, program.length, given, properties.length, 0, 0), "it is not selected");
  expect(!sb_selector_selects(p, program.length, given, properties.length - 1, 0, 0), "damage is selected");
  expect(!sb_selector_selects(p, program.length, NULL, 0, 0, 0), "no properties are selected");
  expect(!sb_selector_selects(p, program.length - 1, given, properties.length, 0, 0), "an invalid program selects");
  expect(!sb_selector_selects(p, 0, given, properties.length, 0, 0), "no program selects");
}
static void calls_that_are_refused(void) {
  sb_queue *q = filled("q", UNLIMITED, 3);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    for (unsigned action = SB_MANAGE_REMOVE; action <= SB_MANAGE_LIMIT; action++) {
      expect_is(manage(q, (sb_manage_action)action, 0, EVERYTHING), 0, "how many a refused call deals with");
      expect_is(status, REFUSAL[i], "the status of a refused call");
    }
    expect_is(sb_queue_take(q, 0, record), -(int64_t)REFUSAL[i], "the status of a take");
    sb_queue_put_back(q, record);
    expect_untouched(t.c, "a refused call");
  }
  refuse(t.c, SB_OK);
  expect_is(manage(q, (sb_manage_action)99, 0, EVERYTHING), 0, "how many an unknown action deals with");
  expect_is(status, SB_INVALID, "the status of an unknown action");
  mark_closed(q);
  for (unsigned action = SB_MANAGE_REMOVE; action <= SB_MANAGE_LIMIT; action++) {
    expect_is(manage(q, (sb_manage_action)action, 0, EVERYTHING), 0, "how many are dealt with in a closed queue");
    expect_is(status, SB_DELETED, "the status in a closed queue");
  }
  expect_is(sb_queue_take(q, 0, record), -(int64_t)SB_DELETED, "the status of a take from a closed queue");
}
static void memory_that_is_missing(void) {
  sb_queue *q = filled("q", UNLIMITED, 3);
  put_with(q, 4, HOUR, 0);
  use_all_chunks();
  leave_holdings(0);
  for (unsigned action = SB_MANAGE_REMOVE; action <= SB_MANAGE_LIMIT; action++) {
    expect_is(manage(q, (sb_manage_action)action, 0, EVERYTHING), 0, "how many are dealt with");
    expect_is(status, SB_NO_MEMORY, "the status");
  }
  expect_is(sb_queue_take(q, 0, record), -(int64_t)SB_NO_MEMORY, "the status of a take");
  expect_is(sb_queue_length(q), 3, "how many are ready");
}

static const test_case CASES[] = {
    {"api_selected: named", "only messages of the range are dealt with", named_messages_are_removed},
    {"api_selected: expire", "messages end as expired", named_messages_expire},
    {"api_selected: dead", "messages of a queue with dead letters become dead", expired_messages_become_dead},
    {"api_selected: deliver", "scheduled messages become ready", scheduled_messages_are_delivered},
    {"api_selected: scheduled", "scheduled messages are removed and expire", scheduled_messages_end},
    {"api_selected: replaced", "a ring keeps its bound when a message becomes ready",
     a_ring_replaces_what_is_delivered},
    {"api_selected: limit", "lives are shortened, and what is too old expires", lives_are_shortened},
    {"api_selected: taken", "a message is taken by its number, and put back once", a_message_is_taken_and_put_back},
    {"api_selected: unreadable", "a damaged message is not taken", a_damaged_message_is_not_taken},
    {"api_selected: states", "a browser sees messages in each state", each_state_is_seen},
    {"api_selected: properties", "properties that are not stored are selected", properties_are_selected},
    {"api_selected: unusable", "nothing happens where nothing can be seen", calls_that_are_refused},
    {"api_selected: holdings", "without memory nothing happens", memory_that_is_missing},
};
SUBJECT(CASES)
