// SPDX-License-Identifier: Apache-2.0
/* sb_resume: when producers of a queue that was full are stopped, and when they resume. */
#include "sb_resume.h"

#include "cells.h"
#include "meanwhile.h"
#include "sb_limits.h"
#include "system.h"

static sb_queue *q;

static void begin(int64_t length, int64_t bytes, int64_t percent) {
  q = begin_queue("q", (sb_settings){{-1, length, bytes, SB_OVERFLOW_BLOCK, -1, -1}, 0}, 0);
  SB_STORE(&q->shm->settings[SB_SETTING_RESUME_AT], percent, SB_RELAXED);
}
static void admit(uint64_t bytes, sb_status should, const char *what) {
  sb_status is = sb_limits_admit(q, bytes);
  expect_is(is, should, what);
  if (is == SB_OK) sb_limits_published(q, bytes);
}
static void fill(unsigned count, uint64_t bytes) {
  for (unsigned i = 0; i < count; i++) admit(bytes, SB_OK, "what fits");
}
static void leave(uint64_t count, uint64_t bytes) {
  (void)SB_ADD(&q->shm->taken, count, SB_SEQ_CST);
  (void)SB_ADD(&q->shm->bytes_out, bytes, SB_SEQ_CST);
}
static void expect_stops(uint32_t stops, bool room, const char *what) {
  expect_is(SB_LOAD(&q->shm->stops, SB_RELAXED), stops, what);
  expect_is(sb_limits_room(q->shm, 1, 10), room, what);
}

static void by_number(void) {
  begin(10, -1, 80);
  fill(10, 10);
  expect_stops(0, false, "a full queue that stopped nobody");
  admit(10, SB_FULL, "the eleventh");
  expect_stops(1, false, "a stopped queue");
  admit(10, SB_FULL, "the eleventh again");
  leave(1, 10);
  admit(10, SB_FULL, "at nine");
  expect_stops(1, false, "nine in a stopped queue");
  leave(1, 10);
  expect_stops(1, true, "eight in a stopped queue");
  fill(2, 10);
  expect_stops(2, false, "the stop is over");
  admit(10, SB_FULL, "the eleventh, later");
  expect_stops(3, false, "the next stop");
}
static void by_bytes(void) {
  begin(-1, 105, 80);
  fill(10, 10);
  admit(10, SB_FULL, "ten bytes too many");
  expect_stops(1, false, "a stopped queue");
  leave(1, 10);
  expect_stops(1, false, "90 of 84 bytes");
  leave(1, 10);
  expect_stops(1, true, "80 of 84 bytes");
}
static void both(void) {
  begin(10, 100, 50);
  fill(10, 10);
  admit(1, SB_FULL, "one too many");
  leave(9, 40);
  expect_stops(1, false, "few messages, but too many bytes");
  leave(0, 10);
  expect_stops(1, true, "few of both");
}
/* A large message finds no room in a queue that holds less than its share: others that fit are not stopped. */
static void not_below_the_share(void) {
  begin(-1, 100, 80);
  fill(5, 10);
  admit(60, SB_FULL, "a large one");
  expect_stops(0, true, "half a queue");
}
static void without_a_share(void) {
  const int64_t none[] = {0, 100, -1};
  for (unsigned i = 0; i < 3; i++) {
    const char *names[] = {"zero", "hundred", "none"};
    q = begin_queue(names[i], (sb_settings){{-1, 2, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}, 0);
    SB_STORE(&q->shm->settings[SB_SETTING_RESUME_AT], none[i], SB_RELAXED);
    fill(2, 10);
    admit(10, SB_FULL, "the third");
    leave(1, 10);
    expect_stops(0, true, "a place in a queue without a share");
  }
}
static void only_where_producers_wait(void) {
  begin(2, -1, 50);
  SB_STORE(&q->shm->settings[SB_SETTING_OVERFLOW], SB_OVERFLOW_REJECT_PUBLISH, SB_RELAXED);
  fill(2, 10);
  admit(10, SB_REJECTED, "the third");
  expect_stops(0, false, "a queue that rejects");
}
/* A put that looked long ago does not end, or begin, what others have changed. */
static void another_stop(void) { (void)SB_ADD(&q->shm->stops, 2, SB_SEQ_CST); }
static void refilled(void) {
  another_stop();
  leave((uint64_t)-5, 0);
}
static void two_that_end_it(void) {
  begin(10, -1, 50);
  fill(10, 10);
  admit(10, SB_FULL, "the eleventh");
  leave(5, 0);
  meanwhile(&q->shm->stops, BEFORE_CAS, 1, refilled);
  admit(10, SB_FULL, "beside a stop that began meanwhile");
  expect_stops(3, false, "the later stop");
}
static void two_that_begin_it(void) {
  begin(2, -1, 50);
  fill(2, 10);
  meanwhile(&q->shm->stops, BEFORE_CAS, 1, another_stop);
  admit(10, SB_FULL, "the third");
  expect_is(SB_LOAD(&q->shm->stops, SB_RELAXED), 2, "a stop that another one has ended");
}
static void shares_are_rounded_down(void) {
  begin(1, -1, 99);
  fill(1, 10);
  admit(10, SB_FULL, "the second");
  leave(1, 10);
  expect_stops(1, true, "an empty queue of one");
  SB_STORE(&q->shm->settings[SB_SETTING_MAX_LENGTH], INT64_MAX / 2, SB_RELAXED);
  fill(1, 10);
  expect_stops(2, true, "a limit that is no limit");
}

static const test_case CASES[] = {
    {"resume: number", "producers resume at the share of the messages", by_number},
    {"resume: bytes", "producers resume at the share of the bytes", by_bytes},
    {"resume: both", "both shares count", both},
    {"resume: below", "a queue that holds less than its share is not stopped", not_below_the_share},
    {"resume: none", "without a share any room is enough", without_a_share},
    {"resume: block", "only queues that block are stopped", only_where_producers_wait},
    {"resume: end", "a put that looked long ago does not end a later stop", two_that_end_it},
    {"resume: begin", "a put that looked long ago does not begin a stop", two_that_begin_it},
    {"resume: round", "shares are rounded down, and do not overflow", shares_are_rounded_down},
};
SUBJECT(CASES)
