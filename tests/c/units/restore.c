// SPDX-License-Identifier: Apache-2.0
/* sb_restore and sb_api_restore: a queue that is made again has the messages at their sequence numbers. */
#include <string.h>

#include "calls.h"
#include "queues.h"
#include "ranked.h"
#include "sb_gather.h"
#include "sb_restore.h"
#include "sb_wait.h"

#define STORED ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DURABLE})
#define LEAF 64u
#define ROWS 8u
#define SECOND UINT64_C(1000000000)

static sb_queue *from, *to;
static char heads[ROWS][65536], bodies[ROWS][65536];
static sb_stored_row rows[ROWS];
static uint32_t count;
static char record[BUFFER];

static void begin_with(unsigned messages, sb_settings settings) {
  sb_broker_set_stores(t.b, SB_STORES_READY);
  from = queue_named("from", settings);
  to = queue_named("to", settings);
  put_up_to(from, messages);
}
static void begin(unsigned messages) { begin_with(messages, STORED); }
/* Writes rows of what `from` has from there to the tail of the lane. */
static void store(uint64_t first, uint64_t tail) {
  for (uint64_t next = first; next < tail;) {
    sb_store_row row = {.heads = heads[count], .bodies = bodies[count], .heads_size = 65536, .bodies_size = 65536};
    if (count == ROWS || sb_store_gather(from, &next, tail, &row) != SB_OK) die("sb_store_gather", (int)count);
    rows[count] = (sb_stored_row){row.heads, row.bodies, row.heads_length, row.bodies_length, 0};
    if (row.count > 0) count++;
  }
}
static void restore_all(uint64_t first, uint64_t tail) {
  expect_is(sb_store_resume(to, first), SB_OK, "the status of the begin");
  for (uint32_t i = 0; i < count; i++) {
    uint32_t done = 0;
    expect_is(sb_store_restore(to, &rows[i], &done), SB_OK, "the status of a row");
  }
  expect_is(sb_store_skip(to, tail), SB_OK, "the status of the end");
  sb_store_resumed(to);
}
static const sb_record *got(void) {
  if (get(&t, to, record, true) == 0) die("sb_queue_get", 0);
  return (const sb_record *)(const void *)record;
}
static void expect_empty(const char *what) { expect(get(&t, to, record, true) == 0, "%s: there is another one", what); }
static uint64_t tail_of(sb_queue *q) {
  sb_store_lane lane;
  (void)sb_store_lanes(q, &lane, 1);
  return lane.tail;
}

static void messages_at_their_sequence_numbers(void) {
  begin(2 * LEAF + 3);
  for (unsigned i = 0; i < 5; i++) take_from(from);
  store(0, tail_of(from));
  restore_all(5, tail_of(from));
  expect_is(tail_of(to), 2 * LEAF + 3, "the tail");
  for (uint64_t i = 5; i < 2 * LEAF + 3; i++) expect_is(got()->sequence, i, "the sequence number of a message");
  expect_empty("all are taken");
  (void)put(&t, to, 1);
  expect_is(got()->sequence, 2 * LEAF + 3, "the sequence number of the next put");
}
static void what_ended_is_left_out(void) {
  begin(4);
  store(0, 4);
  rows[0].ended = 5;
  restore_all(0, 4);
  expect_is(got()->sequence, 1, "the first one");
  expect_is(got()->sequence, 3, "the second one");
  expect_empty("all are taken");
}
/* Leaves and pages of messages that have ended get no memory. */
static void a_queue_whose_messages_have_ended(void) {
  const uint64_t far = UINT64_C(5) * LEAF * LEAF * LEAF + 7;
  begin(1);
  store(0, 1);
  restore_all(0, far);
  expect_is(tail_of(to), far, "the tail");
  expect_is(got()->sequence, 0, "the old one");
  (void)put(&t, to, 1);
  expect_is(got()->sequence, far, "the sequence number of the next put");
  expect_empty("all are taken");
}
static void a_queue_that_begins_late(void) {
  const uint64_t far = UINT64_C(3) << 40;
  begin(0);
  restore_all(far + 3, far + 3);
  (void)put(&t, to, 1);
  expect_is(got()->sequence, far + 3, "the sequence number of the next put");
  expect_empty("all are taken");
  expect_is(sb_store_resume(to, far), SB_EXISTS, "the status of another begin");
}
static void counts_and_times(void) {
  begin(1);
  put_with(from, 2, 100, 0);
  put_with(from, 3, 0, 200);
  expect(get(&t, from, record, false) != 0, "there is no message");
  expect_is(sb_queue_settle(from, record, SB_REQUEUE), SB_OK, "the status of a return");
  store(0, 3);
  restore_all(0, 3);
  expect_is(cell_state(to, 1), SB_CELL_SCHEDULED, "the state of the one that is due later");
  uint64_t now = sb_now_ns();
  expect_is((message_at(to, 1)->due_ns - now + SECOND / 2) / SECOND, 100, "the seconds until it is due");
  expect_is((message_at(to, 2)->expires_ns - now + SECOND / 2) / SECOND, 200, "the seconds until it expires");
  const sb_record *first = got();
  expect_is(first->delivery_count, 2, "the deliveries of the returned one");
  expect_is(first->marks, SB_MARK_REDELIVERED, "its marks");
  expect_is(got()->delivery_count, 1, "the deliveries of another one");
}
static void remains_of_a_time(void) {
  expect_is(sb_restore_remains(0, 5, 9), 0, "what remains of no time");
  expect_is(sb_restore_remains(20, 5, 9), 11, "what remains");
  expect_is(sb_restore_remains(9, 5, 9), 1, "what remains of a time that has come");
  expect_is(sb_restore_remains(20, 5, 2), 15, "what remains when the clock was set back");
}
static void lanes_are_made_again(void) {
  sb_settings settings = RANKED(9);
  const uint64_t low = sb_position_in(9, 0);
  settings.flags = SB_QUEUE_DURABLE;
  begin_with(0, settings);
  expect_is(put_ranked(from, 0, 1), SB_OK, "the status of a put");
  expect_is(put_ranked(from, 9, 2), SB_OK, "the status of a put");
  store(0, 1);
  store(low, low + 1);
  expect_is(sb_store_resume(to, 0), SB_OK, "the status of a begin");
  expect_is(sb_store_resume(to, low), SB_OK, "the status of another begin");
  for (uint32_t i = 0; i < count; i++) {
    uint32_t done = 0;
    expect_is(sb_store_restore(to, &rows[i], &done), SB_OK, "the status of a row");
  }
  sb_store_resumed(to);
  expect_is(got()->sequence, 0, "the one of the higher priority");
  expect_is(got()->sequence, low, "the one of the lower priority");
  expect_empty("all are taken");
}
static void damaged_rows_are_refused(void) {
  uint32_t done = 0;
  begin(2);
  store(0, 2);
  expect_is(sb_store_resume(to, 0), SB_OK, "the status of a begin");
  const sb_stored_row good = rows[0];
  sb_stored_row bad = good;
  bad.heads_length--;
  done = 0;
  expect_is(sb_store_restore(to, &bad, &done), SB_CORRUPT, "the status of heads that are cut short");
  expect_is(done, 1, "the messages that were whole");
  bad = good;
  bad.bodies_length--;
  expect_is(sb_store_restore(to, &bad, &done), SB_CORRUPT, "the status of bodies that are cut short");
  heads[0][0]++;
  expect_is(sb_store_restore(to, &good, &done), SB_CORRUPT, "the status of another format");
  heads[0][0]--;
  bad.heads_length = sizeof(sb_row_head) - 1;
  expect_is(sb_store_restore(to, &bad, &done), SB_CORRUPT, "the status without a head");
  done = 0;
  expect_is(sb_store_restore(to, &good, &done), SB_CORRUPT, "the status of a message before the tail");
}

static const test_case CASES[] = {
    {"restore: messages", "are at their sequence numbers", messages_at_their_sequence_numbers},
    {"restore: what ended", "is left out", what_ended_is_left_out},
    {"restore: long gaps", "are links that are DONE", a_queue_whose_messages_have_ended},
    {"restore: a queue", "may begin late", a_queue_that_begins_late},
    {"restore: counts and times", "are those of the row", counts_and_times},
    {"restore: what remains", "is not more than when the row was written", remains_of_a_time},
    {"restore: lanes", "are made again", lanes_are_made_again},
    {"restore: damaged rows", "are refused", damaged_rows_are_refused},
};
SUBJECT(CASES)
