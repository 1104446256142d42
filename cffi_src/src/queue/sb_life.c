// SPDX-License-Identifier: Apache-2.0
#include "sb_life.h"

#include "sb_takers.h"

#define NS_PER_MS UINT64_C(1000000)

/* Shortens a life to `most_ms`; a negative number shortens nothing. */
static uint64_t at_most(uint64_t life_ns, int64_t most_ms) {
  if (most_ms < 0) {
    return life_ns;
  }
  uint64_t most = (uint64_t)most_ms * NS_PER_MS;
  if (most == 0) most = SB_LIFE_NONE;
  return life_ns != 0 && life_ns < most ? life_ns : most;
}

uint64_t sb_life_within(const sb_queue_shm *q, uint32_t flags, uint64_t ttl_ns) {
  if ((flags & SB_QUEUE_NO_EXPIRY) != 0) {
    return 0;
  }
  int64_t without = sb_setting(q, SB_SETTING_EXPIRY_DELAY_MS), least = sb_setting(q, SB_SETTING_MIN_EXPIRY_DELAY_MS),
          most = sb_setting(q, SB_SETTING_MAX_EXPIRY_DELAY_MS);
  uint64_t life = ttl_ns;
  if (life == 0 && without > 0) life = (uint64_t)without * NS_PER_MS;
  if (life != 0 && least > 0 && life < (uint64_t)least * NS_PER_MS) life = (uint64_t)least * NS_PER_MS;
  if (most > 0) life = at_most(life, most);
  return at_most(life, sb_setting(q, SB_SETTING_MESSAGE_TTL_MS));
}

uint64_t sb_life_for_takers(const sb_queue *q) {
  bool paused = (SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_PAUSED) != 0;
  bool choosy = !paused && SB_LOAD(&q->shm->non_acquiring, SB_SEQ_CST) > 0;
  return choosy || sb_takers(q) > sb_queue_ready(q->c->b, q->shm) ? SB_LIFE_HAND_OVER : SB_LIFE_NONE;
}
