// SPDX-License-Identifier: Apache-2.0
#include "sb_resume.h"

static int64_t share(int64_t limit, int64_t percent) { return limit / 100 * percent + limit % 100 * percent / 100; }

static bool above(const sb_queue_shm *q, const sb_depth *d) {
  int64_t percent = sb_setting(q, SB_SETTING_RESUME_AT);
  return (d->max_length >= 0 && d->ready > share(d->max_length, percent)) ||
         (d->max_bytes >= 0 && d->bytes > share(d->max_bytes, percent));
}

bool sb_resume_stops(const sb_queue_shm *q, const sb_depth *d) {
  return (SB_LOAD(&q->stops, SB_SEQ_CST) & 1u) != 0 && above(q, d); /* P38: after the hints */
}

bool sb_resume_passes(sb_queue_shm *q, const sb_depth *d, bool *again) {
  uint32_t stops = SB_LOAD(&q->stops, SB_SEQ_CST); /* P38: after the hints */
  *again = false;
  if ((stops & 1u) == 0) {
    return true;
  }
  if (above(q, d)) {
    return false;
  }
  *again = !SB_CAS(&q->stops, &stops, stops + 1, SB_SEQ_CST); /* P38: before the admission; I116 */
  return !*again;
}

void sb_resume_stop(sb_queue_shm *q, const sb_depth *d) {
  uint32_t stops = SB_LOAD(&q->stops, SB_SEQ_CST);
  /* If the CAS fails, another put began the stop, or this look is too old to begin one. */
  if ((stops & 1u) == 0 && above(q, d)) (void)SB_CAS(&q->stops, &stops, stops + 1, SB_SEQ_CST);
}
