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

static void the_gate_says_who_is_inside(void) {
  begin();
  sb_lock(&c);
  expect_is(c.lock, 1, "the lock");
  expect_is(c.own_gate, SB_GATE_INSIDE, "the gate");
  expect_is(renewed, 0, "how often the handles were renewed");
  sb_unlock(&c);
  expect_is(c.lock, 0, "the lock");
  expect_is(c.own_gate, 0, "the gate");
  SB_STORE(&c.own_gate, SB_GATE_RENEW, SB_RELAXED);
  sb_lock(&c);
  expect_is(renewed, 1, "how often the handles were renewed");
  expect_is(c.own_gate, SB_GATE_INSIDE, "the gate");
  sb_unlock(&c);
  c.renew = NULL; /* there are no handles */
  SB_STORE(&c.own_gate, SB_GATE_RENEW, SB_RELAXED);
  sb_lock(&c);
  expect_is(c.own_gate, SB_GATE_INSIDE, "the gate of a connection without handles");
  sb_unlock(&c);
}
static void the_record_goes(void) {
  sb_word shared = SB_GATE_INSIDE;
  begin();
  c.gate = &shared;
  sb_gate_leave_record(&c);
  expect(c.gate == &c.own_gate, "the gate is that of the record");
  expect_is(c.own_gate, SB_GATE_INSIDE, "its own gate");
  expect_is(shared, 0, "the gate of the record");
  sb_gate_leave_record(&c);
  expect_is(c.own_gate, SB_GATE_INSIDE, "its own gate, left twice");
}

static const test_case CASES[] = {
    {"connection: held", "a thread waits for the lock, and takes it", a_lock_that_is_held},
    {"connection: faster", "a thread waits again when another one was faster", another_thread_is_faster},
    {"connection: gate", "the gate says whether a call is inside, and whether handles are to be renewed",
     the_gate_says_who_is_inside},
    {"connection: record", "the gate is the connection's own when its record goes", the_record_goes},
};
SUBJECT(CASES)
