// SPDX-License-Identifier: Apache-2.0
/* sb_stopped: consumers of stopped processes are parked, if there are others. */
#include "sb_stopped.h"

#include <unistd.h>

#include "consuming.h"
#include "halted.h"

#define HALTED 9u  /* a process slot */
#define THEIRS 77u /* a connection of the process that is stopped */
#define GONE 78u   /* a number without a process */

static pid_t halted;
static int process_byte;
static uint32_t queue;

static void begin(void) {
  queue = queue_number(0)->slot;
  halted = start_stopped();
  take_process_slot(HALTED, halted, 0);
  process_byte = hold_byte(SB_LOCK_PROCESS + (long)HALTED);
  take_connection(THEIRS, HALTED);
}
static void end(void) {
  close(process_byte);
  end_stopped(halted);
}
static uint32_t of(unsigned connection, int32_t priority, unsigned state) {
  uint32_t node = make_node(queue, priority, SB_NODE_DIRECT, 0, state);
  if (connection != t.c->id) give_node_to(node, connection);
  return node;
}
static void expect_at(uint32_t node, unsigned state, uint64_t wakes, const char *what) {
  expect_is(node_state(node), state, what);
  expect_is(node_wakes(node), wakes, what);
}

static void all_of_them_are_parked(void) {
  begin();
  uint32_t high = of(THEIRS, 9, SB_NODE_INTERESTED), told = of(THEIRS, 9, SB_NODE_NOTIFIED);
  uint32_t low = of(THEIRS, 1, SB_NODE_INTERESTED), browser = of(THEIRS, 1, SB_NODE_NON_ACQUIRING);
  expect_is(sb_stopped_park(t.c, queue), 0, "how many were parked, where nobody runs");
  expect_at(high, SB_NODE_INTERESTED, 0, "one that is stopped, where nobody runs");
  uint32_t ours = of(t.c->id, 5, SB_NODE_INTERESTED);
  expect_is(sb_stopped_park(t.c, queue), 4, "how many were parked");
  expect_at(high, SB_NODE_NOT_INTERESTED, 1, "one of a higher priority");
  expect_at(told, SB_NODE_NOT_INTERESTED, 1, "one that was told");
  expect_at(low, SB_NODE_NOT_INTERESTED, 1, "one of a lower priority");
  expect_at(browser, SB_NODE_NOT_INTERESTED, 1, "a choosy one, which may be a rival of others");
  expect_at(ours, SB_NODE_INTERESTED, 0, "one that runs");
  expect_is(sb_stopped_park(t.c, queue), 0, "how many were parked once more");
  end();
}
/* Where all have one priority, a choosy consumer is no rival. */
static void one_priority(void) {
  begin();
  uint32_t browser = of(THEIRS, 1, SB_NODE_NON_ACQUIRING), ours = of(t.c->id, 1, SB_NODE_INTERESTED);
  expect_is(sb_stopped_park(t.c, queue), 0, "how many were parked");
  expect_at(browser, SB_NODE_NON_ACQUIRING, 0, "the choosy one");
  expect_at(ours, SB_NODE_INTERESTED, 0, "one that runs");
  end();
}
/* One that was told, and runs, is enough for the others to be parked. */
static void one_that_is_at_it(void) {
  begin();
  uint32_t theirs = of(THEIRS, 9, SB_NODE_INTERESTED), ours = of(t.c->id, 1, SB_NODE_NOTIFIED);
  expect_is(sb_stopped_park(t.c, queue), 1, "how many were parked");
  expect_at(theirs, SB_NODE_NOT_INTERESTED, 1, "one that is stopped");
  expect_at(ours, SB_NODE_NOTIFIED, 0, "one that was told, and runs");
  end();
}
/* A connection that is not there any more is of no process, whatever its word says: its reaper comes. */
static void one_that_is_gone(void) {
  begin();
  SB_STORE(&t.b->connections[GONE], sb_conn_word(SB_CONN_FREE, HALTED, 0, 1), SB_RELAXED);
  uint32_t gone = of(GONE, 5, SB_NODE_INTERESTED), theirs = of(THEIRS, 5, SB_NODE_INTERESTED);
  expect_is(sb_stopped_park(t.c, queue), 1, "how many were parked");
  expect_at(gone, SB_NODE_INTERESTED, 0, "one of a connection that is gone");
  expect_at(theirs, SB_NODE_NOT_INTERESTED, 1, "one that is stopped");
  end();
}
static void levels_in_a_circle(void) {
  begin();
  uint32_t theirs = of(THEIRS, 5, SB_NODE_INTERESTED), level = SB_LOAD(&node_shm(theirs)->level, SB_RELAXED);
  SB_STORE(&sb_consumer_level_at(t.b, level)->next, level, SB_RELAXED);
  expect_is(sb_stopped_park(t.c, queue), 0, "how many were parked");
  expect_at(theirs, SB_NODE_INTERESTED, 0, "one that is stopped");
  end();
}

static const test_case CASES[] = {
    {"stopped: parked", "consumers of a stopped process are parked and told, if another one runs",
     all_of_them_are_parked},
    {"stopped: one priority", "where all have one priority, choosy consumers stay", one_priority},
    {"stopped: told", "one that was told and runs is another one", one_that_is_at_it},
    {"stopped: gone", "a connection that is gone is of no stopped process", one_that_is_gone},
    {"stopped: circle", "a damaged list of levels has an end", levels_in_a_circle},
};
SUBJECT(CASES)
