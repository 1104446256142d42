// SPDX-License-Identifier: Apache-2.0
/* sb_target: the numbers of targets, in chains by their bits. */
#include "sb_target.h"

#include "cases.h"
#include "sb_wait.h"

#define MORE 3u

static sb_target targets[SB_MAX_TARGETS + MORE];

static sb_target *add(unsigned i) {
  targets[i] = (sb_target){.c = t.c, .next = &targets[i]}; /* what it was chained to before does not count */
  sb_target_add(&targets[i]);
  return &targets[i];
}

/* All targets in the order they are looked at. */
static void expect_order(const char *what, unsigned n, const unsigned *order) {
  const sb_target *at = NULL;
  for (unsigned i = 0; i < n; i++) {
    at = sb_target_after(t.c, at);
    if (at != &targets[order[i]]) {
      complain("%s: another target is at place %u", what, i);
      return;
    }
  }
  expect(sb_target_after(t.c, at) == NULL, "%s: there are more than %u", what, n);
}
#define expect_targets(what, n, ...) expect_order(what, n, (const unsigned[]){__VA_ARGS__})

static void numbers_are_the_lowest_that_are_free(void) {
  expect(sb_target_after(t.c, NULL) == NULL, "there is a target before the first");
  for (unsigned i = 0; i < 4; i++) {
    expect_is(add(i)->number, i, "its number");
    expect(targets[i].listed && targets[i].next == NULL, "it is not the end of its chain");
    expect_is(t.c->target_count, i + 1, "how many there are");
    expect_is(t.c->target_bits, i + 1, "how many bits were used");
  }
  expect_targets("four", 4, 0, 1, 2, 3);
  sb_target_remove(&targets[1]);
  sb_target_remove(&targets[2]);
  expect(!targets[1].listed, "what was removed is listed");
  expect_is(t.c->target_count, 2, "how many are left");
  expect_targets("two", 2, 0, 3);
  sb_target_remove(&targets[1]);
  expect_is(t.c->target_count, 2, "how many are left when one is removed twice");
  expect_is(add(4)->number, 1, "the number of the next one");
  expect_is(t.c->target_bits, 4, "how many bits were used before");
  expect_targets("three", 3, 0, 4, 3);
}
static void a_bit_may_have_several(void) {
  for (unsigned i = 0; i < SB_MAX_TARGETS; i++) add(i);
  expect_is(targets[SB_MAX_TARGETS - 1].number, SB_MAX_TARGETS - 1, "the last number of a bit of its own");
  t.c->next_target = SB_MAX_TARGETS + 7;
  const unsigned more = SB_MAX_TARGETS;
  expect_is(add(more)->number, SB_MAX_TARGETS + 7, "the number of one too many");
  expect(t.c->targets[7] == &targets[7] && targets[7].next == &targets[more], "it is not behind the one of its bit");
  t.c->next_target = 2 * SB_MAX_TARGETS + 7;
  expect_is(add(more + 1)->number, 2 * SB_MAX_TARGETS + 7, "the next number");
  expect(targets[more].next == &targets[more + 1] && targets[more + 1].next == NULL, "it is not at the end");
  expect_is(t.c->target_bits, SB_MAX_TARGETS, "how many bits were used");
  expect_is(t.c->target_count, SB_MAX_TARGETS + 2, "how many there are");
  for (unsigned i = 0; i < SB_MAX_TARGETS; i++) {
    if (i != 7 && i != 9) sb_target_remove(&targets[i]);
  }
  expect_targets("a chain", 4, 7, more, more + 1, 9);
  sb_target_remove(&targets[more]);
  expect_targets("a chain without its middle", 3, 7, more + 1, 9);
  sb_target_remove(&targets[more + 1]);
  expect_targets("a chain without its end", 2, 7, 9);
  t.c->target_bits = 9;
  expect_targets("bits that were never used", 1, 7);
}
/* A connection without an IO thread has no thread to wake: slot 0, which has no owner, stays as it is. */
static void the_io_thread_is_woken(void) {
  sb_half *nobody = &((sb_node_shm *)sb_slot_at(t.b, 0))->wake;
  uint32_t was = SB_LOAD(nobody, SB_RELAXED), io_node = t.c->io_node;
  t.c->io_node = 0;
  SB_STORE(nobody, SB_WAKE_ARMED, SB_RELAXED);
  sb_target_ring_io(t.c);
  expect_is(SB_LOAD(nobody, SB_RELAXED), SB_WAKE_ARMED, "the wake word of nobody");
  SB_STORE(nobody, was, SB_RELAXED);
  t.c->io_node = io_node;
  sb_half *wake = &((sb_node_shm *)sb_slot_at(t.b, t.c->io_node))->wake;
  uint32_t armed = sb_wake_arm(wake);
  sb_target_ring_io(t.c);
  expect_is(SB_LOAD(wake, SB_RELAXED), (armed & ~3u) | SB_WAKE_NOTIFIED, "the wake word of the IO thread");
}

static const test_case CASES[] = {
    {"target: numbers", "a target has the lowest number that is free", numbers_are_the_lowest_that_are_free},
    {"target: bits", "targets share bits when there are more of them than bits", a_bit_may_have_several},
    {"target: rings", "the IO thread is woken, if there is one", the_io_thread_is_woken},
};
SUBJECT(CASES)
