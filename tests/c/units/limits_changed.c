// SPDX-License-Identifier: Apache-2.0
/* sb_limits beside a change of settings (P22): what a call does follows the old settings or the new ones. */
#include "sb_limits.h"

#include "cells.h"
#include "meanwhile.h"

static sb_queue *q;
static sb_word *setting(unsigned which) { return (sb_word *)(void *)&q->shm->settings[which]; }
static void set(unsigned which, int64_t value) { SB_STORE(&q->shm->settings[which], value, SB_RELAXED); }

/* Another process changes a queue that refuses messages to one with room for 100, and this overflow. */
static int64_t new_overflow;
static void more_room(void) {
  set(SB_SETTING_MAX_LENGTH, 100);
  set(SB_SETTING_OVERFLOW, new_overflow);
}
static void room_of_the_new_settings(void) {
  const int64_t overflows[] = {SB_OVERFLOW_DROP, SB_OVERFLOW_DROP_HEAD};
  for (unsigned i = 0; i < 2; i++) {
    q = begin_queue(i == 0 ? "drops" : "evicts", (sb_settings){{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}, 1);
    new_overflow = overflows[i];
    meanwhile(setting(SB_SETTING_MAX_LENGTH), AFTER_LOAD, 1, more_room);
    bool room = sb_limits_room(q->shm, 1, 0);
    bool changed = has_acted();
    expect(room == changed, "whether there is room while the settings change is wrong");
  }
}
static void admitted_by_the_new_settings(void) {
  q = begin_queue("q", (sb_settings){{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}, 1);
  new_overflow = SB_OVERFLOW_DROP;
  meanwhile(setting(SB_SETTING_MAX_LENGTH), AFTER_LOAD, 1, more_room);
  sb_status status = sb_limits_admit(q, 10);
  expect_is(status, has_acted() ? SB_OK : SB_FULL, "the status of a put while the settings change");
}
/* The caller of a queue that is full by the old settings waits, or gets an error: it does not lose its message. */
static void refused_by_the_old_settings(void) {
  q = begin_queue("q", (sb_settings){{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}, 1);
  new_overflow = SB_OVERFLOW_DROP;
  meanwhile(&q->shm->taken, AFTER_LOAD, 1, more_room);
  expect_is(sb_limits_admit(q, 10), SB_FULL, "the status of a put that read the old settings");
  (void)has_acted();
}
/* The ring holds one message more than its size for a while, so the call reads the limits. */
static void nothing_is_evicted_by_both(void) {
  uint64_t removed = 0;
  q = begin_queue("q", (sb_settings){{5, 10, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}, 3);
  set(SB_SETTING_MAX_LENGTH, 2);
  SB_STORE(&q->shm->bound, 6, SB_RELAXED);
  new_overflow = SB_OVERFLOW_DROP_HEAD;
  meanwhile(setting(SB_SETTING_MAX_LENGTH), AFTER_LOAD, 1, more_room);
  (void)sb_limits_keep(q, &removed);
  if (!has_acted()) return;
  expect_is(removed, 0, "how many were evicted");
}
static void refuse_instead(void) {
  set(SB_SETTING_OVERFLOW, SB_OVERFLOW_BLOCK);
  set(SB_SETTING_MAX_BYTES, 0);
}
/* The victim was paid for by the old settings; the new ones allow fewer bytes, and evict nothing. */
static void no_victim_of_a_queue_that_refuses_now(void) {
  uint64_t removed = 0;
  q = begin_queue("q", (sb_settings){{-1, -1, 1000, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0}, 3);
  set(SB_SETTING_MAX_BYTES, 2 * BYTES);
  meanwhile(&q->shm->bytes_out, BEFORE_CAS, 1, refuse_instead);
  (void)sb_limits_keep(q, &removed);
  if (!has_acted()) return;
  expect_is(removed, 0, "how many were evicted");
  expect_is(q->shm->bytes_out, 0, "the bytes that are paid for");
}

static const test_case CASES[] = {
    {"limits changed: room", "there is room by the new settings", room_of_the_new_settings},
    {"limits changed: admitted", "a put that meets a change is admitted by the new settings",
     admitted_by_the_new_settings},
    {"limits changed: refused", "a put that is refused by the old settings is not dropped by the new ones",
     refused_by_the_old_settings},
    {"limits changed: evicted", "no message is evicted that both settings keep", nothing_is_evicted_by_both},
    {"limits changed: victim", "no victim is taken where messages are refused now",
     no_victim_of_a_queue_that_refuses_now},
};
SUBJECT(CASES)
