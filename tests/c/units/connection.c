// SPDX-License-Identifier: Apache-2.0
/* sb_connection: the lock of a connection, and its gate. */
#include "sb_connection.h"

#include <string.h>

#include "calls.h"
#include "meanwhile.h"
#include "proc.h"
#include "system.h"

static sb_connection c;
static unsigned renewed;

static void note_renewal(sb_connection *which) { renewed += which == &c; }
static void begin(void) {
  memset(&c, 0, sizeof c);
  c.b = t.b;
  c.gate = &c.own_gate;
  c.renew = note_renewal;
}

/* ---- the lock ---- */

static void unlock_at_64(void) {
  if (says.pauses == 64) SB_STORE(&c.lock, 0u, SB_RELAXED);
}
/* Now and then the thread that waits leaves the processor to the holder. */
static void a_lock_that_is_held(void) {
  begin();
  answer_for_the_system();
  says.paused = unlock_at_64;
  c.lock = 1;
  yields = 0;
  sb_lock_contended(&c.lock);
  expect_is(says.pauses, 64, "how often the thread paused");
  expect_is(yields, 1, "how often it left the processor");
  expect_is(c.lock, 1, "the lock");
}
static void lock_it(void) { SB_STORE(&c.lock, 1u, SB_RELAXED); }
static void unlock_at_once(void) { SB_STORE(&c.lock, 0u, SB_RELAXED); }
static void another_thread_is_faster(void) {
  begin();
  answer_for_the_system();
  says.paused = unlock_at_once;
  meanwhile(&c.lock, AFTER_LOAD, 1, lock_it);
  sb_lock_contended(&c.lock);
  if (has_acted()) expect_is(says.pauses, 1, "how often the thread paused");
  expect_is(c.lock, 1, "the lock");
}

/* ---- the gate ---- */

static void expect_inside(unsigned times) {
  expect_is(c.lock, 1, "the lock");
  expect_is(c.own_gate.inside, 1, "whether a call is inside");
  expect_is(renewed, times, "how often the handles were renewed");
}
static void the_gate_says_who_is_inside(void) {
  begin();
  for (unsigned closed = 0; closed < 2; closed++) {
    SB_STORE(&c.closed, closed, SB_RELAXED);
    sb_lock(&c);
    expect_inside(0);
    sb_unlock(&c);
    expect_is(c.lock, 0, "the lock");
    expect_is(c.own_gate.inside, 0, "whether a call is inside");
  }
}
static void one_forgets_when_it_was_asked(void) {
  begin();
  for (unsigned n = 1; n < 3; n++) {
    ask_to_forget(&c);
    ask_to_forget(&c);
    for (unsigned calls = 0; calls < 2; calls++) {
      sb_lock(&c);
      expect_inside(n);
      sb_unlock(&c);
    }
  }
  c.renew = NULL; /* there are no handles */
  ask_to_forget(&c);
  sb_lock(&c);
  expect_inside(2);
  expect(!is_asked(&c), "it is not answered");
  sb_unlock(&c);
}
/* Another thread had the lock, and took back what we had stored. */
static void leave_it(void) {
  SB_STORE(&c.own_gate.inside, 0, SB_RELAXED);
  SB_STORE(&c.lock, 0u, SB_RELAXED);
}
static void a_thread_that_waited_enters_again(void) {
  begin();
  answer_for_the_system();
  says.paused = leave_it;
  SB_STORE(&c.lock, 1u, SB_RELAXED);
  sb_lock(&c);
  expect_inside(0);
}
static void a_thread_whose_store_was_taken_back(void) {
  begin();
  SB_STORE(&c.lock, 1u, SB_RELAXED);
  meanwhile(&c.lock, BEFORE_CAS, 1, leave_it);
  if (has_steps()) sb_lock(&c);
  if (has_acted()) expect_inside(0);
}
/* The record of a connection that closes may be another one's. */
static uint64_t gate_before;
static void note_gate(void) { gate_before = SB_LOAD(&c.own_gate.inside, SB_RELAXED); }
static void what_is_written_before_the_lock(void) {
  if (!has_steps()) return;
  for (unsigned closed = 0; closed < 2; closed++) {
    begin();
    SB_STORE(&c.closed, closed, SB_RELAXED);
    meanwhile(&c.lock, BEFORE_CAS, 1, note_gate);
    sb_lock(&c);
    expect(has_acted(), "the lock was not taken");
    expect_is(gate_before, closed == 0, "whether the gate was entered before the lock was taken");
  }
}
static void the_record_goes(void) {
  sb_gate_shm shared = {1, 7};
  begin();
  c.gate = &shared;
  sb_gate_leave_record(&c);
  expect(c.gate == &c.own_gate, "the gate is that of the record");
  expect_is(c.own_gate.inside, 1, "its own gate");
  expect_is(shared.inside, 0, "the gate of the record");
  sb_gate_leave_record(&c);
  expect_is(c.own_gate.inside, 1, "its own gate, left twice");
}

static const test_case CASES[] = {
    {"connection: held", "a thread waits for the lock, and takes it", a_lock_that_is_held},
    {"connection: faster", "a thread waits again when another one was faster", another_thread_is_faster},
    {"connection: gate", "the gate says whether a call is inside", the_gate_says_who_is_inside},
    {"connection: asked", "a call forgets what handles remember once for each time it was asked",
     one_forgets_when_it_was_asked},
    {"connection: waited", "a thread that waited for the lock enters again", a_thread_that_waited_enters_again},
    {"connection: taken back", "a thread enters again whose store another one took back",
     a_thread_whose_store_was_taken_back},
    {"connection: closing", "the gate of a connection that closes is entered under its lock",
     what_is_written_before_the_lock},
    {"connection: record", "the gate is the connection's own when its record goes", the_record_goes},
};
SUBJECT(CASES)
