// SPDX-License-Identifier: Apache-2.0
/* sb_life: the life of a message that is put. */
#include "sb_life.h"

#include "cells.h"
#include "consuming.h"
#include "system.h"

#define MS UINT64_C(1000000)

/* Settings in ms, 0 = not given; message_ttl -1 = not given. */
typedef struct {
  int64_t delay, least, most, message_ttl;
  uint32_t flags;
  uint64_t own, should;
} life;

static void each_setting(void) {
  const life lives[] = {
      {0, 0, 0, -1, 0, 0, 0},
      {0, 0, 0, -1, 0, 5, 5},
      {10, 0, 0, -1, 0, 0, 10 * MS},
      {10, 0, 0, -1, 0, 5, 5},
      {-1, -1, -1, -1, 0, 0, 0},
      {0, 10, 0, -1, 0, 0, 0},
      {0, 10, 0, -1, 0, 5, 10 * MS},
      {0, 10, 0, -1, 0, 11 * MS, 11 * MS},
      {0, 0, 10, -1, 0, 0, 10 * MS},
      {0, 0, 10, -1, 0, 11 * MS, 10 * MS},
      {0, 0, 10, -1, 0, 9 * MS, 9 * MS},
      {5, 10, 0, -1, 0, 0, 10 * MS},
      {50, 10, 20, -1, 0, 0, 20 * MS},
      {0, 30, 20, -1, 0, 1, 20 * MS},
      {0, 30, 0, 20, 0, 1, 20 * MS},
      {0, 0, 30, 20, 0, 0, 20 * MS},
      {0, 0, 20, 30, 0, 0, 20 * MS},
      {0, 0, 0, 0, 0, 0, 1},
      {0, 10, 0, 0, 0, 5, 1},
      {10, 20, 30, 40, SB_QUEUE_NO_EXPIRY, 0, 0},
      {10, 20, 30, 40, SB_QUEUE_NO_EXPIRY, 5, 0},
  };
  sb_queue *q = begin_queue("q", (sb_settings){{-1, -1, -1, 0, -1, -1}, 0}, 0);
  for (unsigned i = 0; i < sizeof lives / sizeof lives[0]; i++) {
    SB_STORE(&q->shm->settings[SB_SETTING_EXPIRY_DELAY_MS], lives[i].delay, SB_RELAXED);
    SB_STORE(&q->shm->settings[SB_SETTING_MIN_EXPIRY_DELAY_MS], lives[i].least, SB_RELAXED);
    SB_STORE(&q->shm->settings[SB_SETTING_MAX_EXPIRY_DELAY_MS], lives[i].most, SB_RELAXED);
    SB_STORE(&q->shm->settings[SB_SETTING_MESSAGE_TTL_MS], lives[i].message_ttl, SB_RELAXED);
    SB_STORE(&q->shm->flags, lives[i].flags | SB_QUEUE_TTL, SB_RELAXED);
    expect_is(sb_life_of(q, lives[i].own), lives[i].should, "the life of a message");
    SB_STORE(&q->shm->flags, lives[i].flags, SB_RELAXED);
    expect_is(sb_life_of(q, lives[i].own), lives[i].own, "its life in a queue without the flag");
  }
}

/* A message with a life of 0, beside a consumer with credit for two. */
static void a_life_of_nothing(void) {
  sb_queue *q = queue_number(0);
  expect_is(sb_life_of(q, SB_LIFE_NONE), SB_LIFE_NONE, "the life of a message for nobody");
  uint32_t node = make_node(q->slot, 0, SB_NODE_DIRECT, 2, SB_NODE_INTERESTED);
  expect_is(sb_life_of(q, SB_LIFE_NONE), SB_LIFE_HAND_OVER, "the life of a message that a consumer waits for");
  expect_is(sb_life_of(q, 5), 5, "a life that is longer than nothing");
  put_some(0, 1, 1);
  expect_is(sb_life_of(q, SB_LIFE_NONE), SB_LIFE_HAND_OVER, "the life of the last message that it takes");
  put_some(0, 2, 2);
  expect_is(sb_life_of(q, SB_LIFE_NONE), SB_LIFE_NONE, "the life of a message beyond its credit");
  set_node_state(node, SB_NODE_NON_ACQUIRING);
  expect_is(sb_life_of(q, SB_LIFE_NONE), SB_LIFE_HAND_OVER, "the life of a message that a choosy consumer may want");
  (void)SB_OR(&q->shm->flags, SB_QUEUE_PAUSED, SB_RELAXED);
  expect_is(sb_life_of(q, SB_LIFE_NONE), SB_LIFE_NONE, "the life of a message in a queue that is paused");
}

static const test_case CASES[] = {
    {"life: nothing", "a message with a life of 0 is for a consumer that waits", a_life_of_nothing},
    {"life: settings", "each setting changes the lives that it is for", each_setting},
};
SUBJECT(CASES)
