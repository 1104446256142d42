// SPDX-License-Identifier: Apache-2.0
/* sb_wait: clocks, and the states of a wake word. */
#include "sb_wait.h"

#include <errno.h>
#include <time.h>

#include "calls.h"
#include "meanwhile.h"
#include "system.h"

#define SEQUENCE (UINT32_C(5) << 2)
#define A_SECOND UINT64_C(1000000000)

static sb_half word;

static void set(uint32_t value) { SB_STORE(&word, value, SB_RELAXED); }
static void expect_word(uint32_t should, const char *what) { expect_is(SB_LOAD(&word, SB_RELAXED), should, what); }

/* ---- clocks ---- */

static uint64_t clock_of(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * A_SECOND + (uint64_t)now.tv_nsec;
}
static void clocks(void) {
  uint64_t before = clock_of(CLOCK_MONOTONIC), now = sb_now_ns();
  expect(now >= before && now <= clock_of(CLOCK_MONOTONIC), "another time than that of the monotonic clock");
  before = clock_of(CLOCK_REALTIME_COARSE);
  (void)sb_now_ns();
  now = sb_wall_ns();
  expect(now >= before && now <= clock_of(CLOCK_REALTIME_COARSE), "another time than that of the wall clock");
}

/* ---- arming ---- */

/* The waiter looks for work after it armed: nothing of that look may be done before. */
static void an_armed_word(void) {
  set(SEQUENCE | SB_WAKE_NOTIFIED);
  note_order(&word);
  uint32_t armed = sb_wake_arm(&word);
  expect(noted_order() < 0, "a store arms the word: later looks may come before it");
  expect_is(armed, (SEQUENCE + 4) | SB_WAKE_ARMED, "the armed word");
  expect_word(armed, "the word");
  note_order(&word);
  sb_wake_disarm(&word);
  expect(noted_order() < 0, "a store disarms the word");
  expect_word(SEQUENCE + 4, "the word that is not armed any more");
  set(UINT32_MAX);
  expect_is(sb_wake_arm(&word), SB_WAKE_ARMED, "the armed word after the last sequence");
}

/* ---- sleeping ---- */

static void is_rung(void) {
  (void)sb_wake_ring(&word);
  errno = ETIMEDOUT; /* of another call */
}
static void is_woken_at_the_second(void) {
  if (says.sleeps == 2) is_rung();
}
static void sleeps(void) {
  bool interrupted = true;
  answer_for_the_system();
  uint32_t armed = sb_wake_arm(&word);
  expect(!sb_wake_sleep(&word, armed, 7 * A_SECOND + 11, &interrupted), "a sleep whose time is up was woken");
  expect(!interrupted, "a sleep whose time is up was interrupted");
  expect_is(says.until_ns, 7 * A_SECOND + 11, "when its time is up");
  says.error = EINTR;
  expect(!sb_wake_sleep(&word, armed, A_SECOND, &interrupted), "a sleep that was interrupted was woken");
  expect(interrupted, "a sleep that was interrupted was not");
  says.error = 0;
  says.slept = is_rung;
  expect(sb_wake_sleep(&word, armed, A_SECOND, &interrupted), "a sleep that was rung was not woken");
  expect(!interrupted, "a sleep that was rung was interrupted");
  says.sleeps = 0;
  expect(sb_wake_sleep(&word, armed, A_SECOND, &interrupted), "a word that is not armed is no reason to be awake");
  expect_is(says.sleeps, 0, "the sleeps on a word that is not armed");
}
/* Neither a wake-up without a ring, nor a word that changed before the kernel looked, ends a sleep. */
static void sleeps_on(void) {
  static const int errors[] = {0, EAGAIN};
  bool interrupted;
  for (unsigned i = 0; i < 2; i++) {
    answer_for_the_system();
    uint32_t armed = sb_wake_arm(&word);
    says.error = errors[i];
    says.slept = is_woken_at_the_second;
    expect(sb_wake_sleep(&word, armed, A_SECOND, &interrupted), "it was not woken");
    expect(!interrupted, "it was interrupted");
    expect_is(says.sleeps, 2, "the sleeps");
  }
}

/* ---- ringing ---- */

static void rings(void) {
  static const struct {
    uint32_t found, left;
    bool slept;
  } tries[] = {{SB_WAKE_RUN, SB_WAKE_RUN, false},
               {SB_WAKE_ARMED, SB_WAKE_NOTIFIED, true},
               {SB_WAKE_PENDING, SB_WAKE_NOTIFIED, true},
               {SB_WAKE_NOTIFIED, SB_WAKE_NOTIFIED, true}};
  for (unsigned i = 0; i < 4; i++) {
    set(SEQUENCE | tries[i].found);
    expect_is(sb_wake_ring(&word), tries[i].slept, "whether somebody slept");
    expect_word(SEQUENCE | tries[i].left, "the word");
  }
}
/* Its owner goes on, or sleeps again, between the look and the CAS. */
static void goes_on(void) { atomic_store(&word, SEQUENCE); }
static void sleeps_again(void) { atomic_store(&word, (SEQUENCE + 4) | SB_WAKE_ARMED); }
static void rings_beside_the_owner(void) {
  if (!has_steps()) return;
  set(SEQUENCE | SB_WAKE_ARMED);
  meanwhile(&word, BEFORE_CAS, 1, goes_on);
  expect(!sb_wake_ring(&word), "one that went on slept");
  (void)has_acted();
  expect_word(SEQUENCE, "the word of one that went on");
  set(SEQUENCE | SB_WAKE_ARMED);
  meanwhile(&word, BEFORE_CAS, 1, sleeps_again);
  expect(sb_wake_ring(&word), "one that sleeps again did not sleep");
  (void)has_acted();
  expect_word((SEQUENCE + 4) | SB_WAKE_NOTIFIED, "the word of one that sleeps again");
  set(SEQUENCE | SB_WAKE_ARMED);
  meanwhile(&word, BEFORE_CAS, 2, sleeps_again);
  expect(sb_wake_ring(&word), "one that was woken did not sleep");
  (void)has_acted();
  expect_word((SEQUENCE + 4) | SB_WAKE_ARMED, "the word of the next sleep: it was not rung");
}

/* A ring that wakes nobody, since the owner of the word had not gone to sleep yet, does not count. */
static void when_it_woke_somebody(void) {
  answer_for_the_system();
  set(SEQUENCE | SB_WAKE_ARMED);
  says.woken = 1;
  (void)sb_wake_ring(&word);
  expect_is(sb_wake_woke_ns(), says.now_ns, "when it woke somebody");
  says.now_ns += A_SECOND;
  (void)sb_wake_ring(&word);
  expect_is(sb_wake_woke_ns(), says.now_ns - A_SECOND, "when it woke somebody, after a ring without a system call");
  set(SEQUENCE | SB_WAKE_ARMED);
  says.woken = 0;
  (void)sb_wake_ring(&word);
  expect_is(sb_wake_woke_ns(), says.now_ns - A_SECOND, "when it woke somebody, after a ring that woke nobody");
}

static const test_case CASES[] = {
    {"wait: woke", "a thread knows when it last woke another one", when_it_woke_somebody},
    {"wait: clocks", "the monotonic clock and the wall clock are read", clocks},
    {"wait: armed", "a word is armed with the next sequence", an_armed_word},
    {"wait: sleep", "a sleep ends when it is rung, interrupted, or its time is up", sleeps},
    {"wait: sleeps on", "a sleep that is not rung goes on", sleeps_on},
    {"wait: ring", "a sleeper is rung, and is notified", rings},
    {"wait: beside", "a ring is for the sleep that it found", rings_beside_the_owner},
};
SUBJECT(CASES)
