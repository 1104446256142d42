// SPDX-License-Identifier: Apache-2.0
/* sb_api_put in a queue with last values that is full: a put takes the room of the value that it replaces. What a put leaves
 * that fails then, and which nodes it notifies. The header "k" of a message is its key. */
#include <string.h>

#include "../value_operations.h"
#include "cases.h"
#include "queues.h"
#include "sb_api.h"
#include "surroundings.h"

#define BYTES 64u
#define UNLOCKED (SB_UNLOCKED_COPY + 1) /* the shortest body that is copied without the lock */
#define TOO_MUCH (3u << 20)             /* more than a chunk has */
#define VALUED_BYTES(n) \
  {{-1, -1, (n), SB_OVERFLOW_BLOCK, -1, -1}, SB_QUEUE_LAST_VALUE, sizeof VALUED_TEXTS - 1, VALUED_TEXTS}

static sb_queue *q;
static char *body;

static sb_status put_value_of(unsigned key, uint64_t length, uint64_t delay_ns) {
  char properties[13];
  memcpy(properties, "\x20\0\0\0\0\7\1kI\0\0\0", 12);
  properties[12] = (char)key;
  sb_put_options o = {.properties = properties, .properties_length = 13, .delay_ns = delay_ns};
  sb_status status;
  do status = sb_queue_put_with(q, body, length, &o);
  while (status == SB_GROW && grow(t.b, t.path));
  return status;
}
/* A full queue with one value. */
static void begin(sb_settings settings, uint64_t bytes) {
  body = untouched(TOO_MUCH);
  q = make_queue("q", settings);
  expect_is(put_value_of(1, BYTES, 0), SB_OK, "the status of a put");
  note_rest(q);
  expect_is(put_value_of(2, bytes, 0), SB_FULL, "the status of a put of another key");
}
static void expect_value_is_back(const char *what) {
  expect(cell_state(q, 0) == SB_CELL_AVAILABLE, "after %s: the value is gone", what);
  expect_is(counted(q, SB_COUNT_ADDED), 1, "what was added");
  expect_is(counted(q, SB_COUNT_REPLACED), 0, "what was replaced");
  expect_is(q->shm->admitted - q->shm->taken, 1, "how many places are taken");
}

/* The room of the older value is too small: whoever looked for a message meanwhile found none. */
static void the_room_is_too_small(void) {
  begin((sb_settings)VALUED_BYTES(BYTES + 10), BYTES);
  uint32_t consumer = wait_at(q, FOR_WORK, 0);
  note_rest(q);
  expect_is(put_value_of(1, BYTES + 11, 0), SB_TOO_LARGE, "the status of a value that never fits");
  expect(!was_told(consumer), "a consumer is told of a value that nobody took");
  expect_is(put_value_of(1, BYTES + 10, 0), SB_OK, "the status of a value that fits");
  expect_is(counted(q, SB_COUNT_REPLACED), 1, "what was replaced");
  expect(was_told(consumer), "a consumer is not told of the new value");
  expect_rest("puts in a full queue");
}
static void the_room_of_two_values_is_too_small(void) {
  begin((sb_settings)VALUED_BYTES(BYTES + 10), BYTES);
  expect_is(put_value_of(2, 10, 0), SB_OK, "the status of a put of another key");
  uint32_t consumer = wait_at(q, FOR_WORK, 0);
  note_rest(q);
  expect_is(put_value_of(1, BYTES + 1, 0), SB_FULL, "the status of a value that does not fit");
  expect(cell_state(q, 0) == SB_CELL_AVAILABLE, "the value is gone");
  expect_is(counted(q, SB_COUNT_REPLACED), 0, "what was replaced");
  expect(was_told(consumer), "a consumer is not told of the value that is back");
  expect_rest("a put that does not fit");
}
/* As one that is replaced where there is room. */
static void a_value_whose_time_is_over_expires(void) {
  begin((sb_settings)VALUED_LENGTH(1), BYTES);
  message_at(q, 0)->expires_ns = 1;
  expect_is(put_value_of(1, BYTES, 0), SB_OK, "the status of a newer value");
  expect_is(counted(q, SB_COUNT_EXPIRED), 1, "what expired");
  expect_is(counted(q, SB_COUNT_REPLACED), 0, "what was replaced");
  expect_rest("a put over a value whose time is over");
}
static void no_memory_for_the_new_value(void) {
  begin((sb_settings)VALUED_LENGTH(1), BYTES);
  uint32_t consumer = wait_at(q, FOR_WORK, 0);
  leave_chunks(0);
  note_rest(q);
  expect_is(put_value_of(1, TOO_MUCH, 0), SB_NO_MEMORY, "the status");
  expect_value_is_back("a put without memory");
  expect(was_told(consumer), "a consumer is not told of the value that is back");
  expect_calm("a put without memory");
}
/* Many keys share the word of the index that names the value: they get nothing. */
static void a_value_of_another_key_gives_no_room(void) {
  begin((sb_settings)VALUED_LENGTH(1), BYTES);
  for (unsigned key = 2; key < 256; key++) {
    expect_is(put_value_of(key, BYTES, 0), SB_FULL, "the status of a put of another key");
  }
  expect_value_is_back("puts of other keys");
  expect_rest("puts of other keys");
}
/* The message is written, and the page for its cell is missing. */
static void no_memory_for_the_cell(void) {
  begin((sb_settings)VALUED_LENGTH(1), BYTES);
  use_all_slots(SB_KIND_LEAF);
  uint64_t done = 1;
  sb_status status;
  while ((status = put_value_of(1, BYTES, 0)) == SB_OK && done < 10000) done++;
  expect_is(status, SB_NO_MEMORY, "the status");
  expect_is(counted(q, SB_COUNT_ADDED), done, "what was added");
  expect_is(counted(q, SB_COUNT_REPLACED), done - 1, "what was replaced");
  expect_is(cell_state(q, done - 1), SB_CELL_AVAILABLE, "the state of the newest value");
  expect_calm("a put without memory for its cell");
}
static void a_delayed_value_needs_its_own_room(void) {
  begin((sb_settings)VALUED_LENGTH(1), BYTES);
  sb_status status = put_value_of(1, BYTES, UINT64_C(3600000000000));
  expect(status == SB_FULL, "a delayed value is put: status %d", (int)status);
  expect_value_is_back("a put of a delayed value");
  expect_rest("a put of a delayed value");
}

/* The caller writes the body of a reservation as long as it likes: no value is out of reach meanwhile. */
static void a_reservation_needs_its_own_room(void) {
  begin((sb_settings)VALUED_LENGTH(1), BYTES);
  char properties[13];
  memcpy(properties, "\x20\0\0\0\0\7\1kI\0\0\0\1", 13);
  sb_put_options o = {.properties = properties, .properties_length = 13};
  sb_reservation r;
  expect_is(sb_reservation_begin(q, BYTES, &o, &r), SB_FULL, "the status");
  expect_value_is_back("a reservation");
  expect_rest("a reservation");
}

/* ---- who is told of what was replaced ---- */

static void a_producer_is_told_of_what_a_put_replaced(void) {
  begin((sb_settings)VALUED_BYTES(BYTES + 10), BYTES);
  uint32_t node = wait_at(q, FOR_ROOM, BYTES);
  (void)was_told(node);
  expect_is(put_value_of(1, 10, 0), SB_OK, "the status of a shorter value");
  expect_is(counted(q, SB_COUNT_REPLACED), 1, "what was replaced");
  expect(was_told(node), "a producer that waits for room is not told");
}
/* Between the return and the replacement, another producer may have found the queue full. */
static void a_producer_is_told_of_what_a_requeue_replaced(void) {
  static char record[BUFFER];
  begin((sb_settings)VALUED_LENGTH(1), BYTES);
  expect(sb_queue_get(q, record, false) > 0, "a get failed");
  expect_is(put_value_of(1, BYTES, 0), SB_OK, "the status of a newer value");
  uint32_t node = wait_at(q, FOR_ROOM, BYTES);
  (void)was_told(node);
  SB_STORE(&q->shm->settings[SB_SETTING_MAX_LENGTH], 2, SB_RELAXED);
  expect_is(sb_queue_settle(q, record, SB_UNDELIVER), SB_OK, "the status of a return");
  expect_is(counted(q, SB_COUNT_REPLACED), 1, "what was replaced");
  expect(was_told(node), "a producer that waits for room is not told");
}

/* ---- while a long body is copied, without the lock ---- */

static void close_connection(void) { (void)sb_connection_close(t.c); }
static void the_value_is_out_of_reach(void) {
  expect_is(cell_state(q, 0), SB_CELL_REMOVING, "the state of the value");
  expect_is(put_value_of(3, BYTES, 0), SB_FULL, "the status of a put of another key");
}
static void a_long_value_takes_the_room(void) {
  begin((sb_settings)VALUED_LENGTH(1), BYTES);
  body = untouched(TOO_MUCH);
  at_touch(body, the_value_is_out_of_reach);
  expect_is(put_value_of(1, UNLOCKED, 0), SB_OK, "the status");
  expect_is(touches, 1, "how often the body was touched");
  expect_is(cell_state(q, 0), SB_CELL_TOMBSTONE, "the state of the older value");
  expect_is(counted(q, SB_COUNT_REPLACED), 1, "what was replaced");
  expect_rest("a put of a long value");
}
static void the_connection_is_closed_meanwhile(void) {
  begin((sb_settings)VALUED_LENGTH(1), BYTES);
  uint32_t consumer = wait_at(q, FOR_WORK, 0);
  note_rest(q);
  body = untouched(TOO_MUCH);
  at_touch(body, close_connection);
  expect_is(put_value_of(1, UNLOCKED, 0), SB_CLOSED, "the status");
  expect_value_is_back("a put whose connection was closed");
  expect(was_told(consumer), "a consumer is not told of the value that is back");
  expect_calm("a put whose connection was closed");
}
/* A table, a line or two for each. */
/* clang-format off */
static const test_case CASES[] = {
    {"api_put values: larger", "a larger value takes the room that there is", the_room_is_too_small},
    {"api_put values: too large", "a value that does not fit gives the older one back, and tells who waits",
     the_room_of_two_values_is_too_small},
    {"api_put values: expired", "an older value whose time is over expires", a_value_whose_time_is_over_expires},
    {"api_put values: memory", "... also where memory is short", no_memory_for_the_new_value},
    {"api_put values: cell", "... also where memory for the cell is short", no_memory_for_the_cell},
    {"api_put values: other", "a value of another key gives no room", a_value_of_another_key_gives_no_room},
    {"api_put values: delayed", "a delayed value takes no room", a_delayed_value_needs_its_own_room},
    {"api_put values: reserved", "a reservation takes no room of a value", a_reservation_needs_its_own_room},
    {"api_put values: told", "who waits is told of the room of a value that a put replaced",
     a_producer_is_told_of_what_a_put_replaced},
    {"api_put values: requeue", "... that a return replaced", a_producer_is_told_of_what_a_requeue_replaced},
    {"api_put values: long", "while a long value is copied, nobody has the room", a_long_value_takes_the_room},
    {"api_put values: connection", "a connection that is closed meanwhile returns the value",
     the_connection_is_closed_meanwhile},
};
/* clang-format on */
SUBJECT(CASES)
