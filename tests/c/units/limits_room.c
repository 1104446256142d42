// SPDX-License-Identifier: Apache-2.0
/* sb_limits_room: whether a number of messages with their bytes has room. */
#include "cases.h"
#include "queues.h"
#include "sb_limits.h"

static void room_for_several(void) {
  sb_queue *q = queue_named("q", (sb_settings){{-1, 5, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0});
  put_up_to(q, 2);
  expect(sb_limits_room(q->shm, 3, 0), "no room for three beside two of five");
  expect(!sb_limits_room(q->shm, 4, 0), "room for four beside two of five");
  SB_STORE(&q->shm->settings[SB_SETTING_OVERFLOW], SB_OVERFLOW_DROP_HEAD, SB_RELAXED);
  expect(sb_limits_room(q->shm, 4, 0), "no room in a queue that evicts");
}

static const test_case CASES[] = {
    {"limits room: count", "room for several is room for all of them", room_for_several},
};
SUBJECT(CASES)
