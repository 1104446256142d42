// SPDX-License-Identifier: Apache-2.0
#include "sb_turn.h"

#include "sb_wait.h"

static uint64_t bytes_of(uint64_t needs) { return SB_BITS(needs, 0, 32); }
static uint64_t count_of(uint64_t needs) { return SB_BITS(needs, 32, 32); }
static uint64_t at_most(uint64_t value) { return value < UINT32_MAX ? value : UINT32_MAX; }

bool sb_turn_stops(const sb_queue_shm *q, uint64_t count, uint64_t bytes) {
  uint64_t until = SB_LOAD(&q->turn_until_ns, SB_RELAXED),
           needs = SB_LOAD(&q->turn_needs, SB_RELAXED); /* relaxed: sb_turn.h */
  if (until == 0 || until <= sb_now_ns() || sb_setting(q, SB_SETTING_OVERFLOW) != SB_OVERFLOW_BLOCK) {
    return false;
  }
  return (sb_setting(q, SB_SETTING_MAX_BYTES) >= 0 && at_most(bytes) < bytes_of(needs)) ||
         (sb_setting(q, SB_SETTING_MAX_LENGTH) >= 0 && at_most(count) < count_of(needs));
}

bool sb_turn_matters(const sb_queue_shm *q, uint64_t count, uint64_t bytes) {
  return sb_setting(q, SB_SETTING_OVERFLOW) == SB_OVERFLOW_BLOCK &&
         ((sb_setting(q, SB_SETTING_MAX_BYTES) >= 0 && bytes > 0) ||
          (sb_setting(q, SB_SETTING_MAX_LENGTH) >= 0 && count > 1));
}

void sb_turn_take(sb_queue_shm *q, uint64_t count, uint64_t bytes, uint64_t *mine) {
  uint64_t now = sb_now_ns(), found = SB_LOAD(&q->turn_until_ns, SB_RELAXED), until = now + SB_TURN_NS;
  bool free_or_mine = found <= now || found == *mine;
  *mine = 0;
  if (free_or_mine && SB_CAS(&q->turn_until_ns, &found, until, SB_SEQ_CST)) { /* I91 */
    SB_CRASHPOINT("turn.taken");
    SB_STORE(&q->turn_needs, at_most(bytes) | SB_FIELD(at_most(count), 32), SB_RELAXED); /* relaxed: sb_turn.h */
    *mine = until;
  }
}

void sb_turn_give_up(sb_queue_shm *q, uint64_t mine) {
  if (mine != 0) (void)SB_CAS(&q->turn_until_ns, &mine, 0, SB_SEQ_CST);
}

bool sb_turn_ends(sb_queue_shm *q, uint64_t count, uint64_t bytes) {
  uint64_t until = SB_LOAD(&q->turn_until_ns, SB_RELAXED),
           needs = SB_LOAD(&q->turn_needs, SB_RELAXED); /* relaxed: sb_turn.h */
  bool met = until != 0 && at_most(bytes) >= bytes_of(needs) && at_most(count) >= count_of(needs);
  return met && SB_CAS(&q->turn_until_ns, &until, 0, SB_SEQ_CST);
}
