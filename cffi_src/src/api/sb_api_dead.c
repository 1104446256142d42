// SPDX-License-Identifier: Apache-2.0
/* Public calls: the dead messages of a queue (sb_park.h), for the housekeeper's program, which carries them out. */
#include <string.h>

#include "sb_api.h"
#include "sb_schedule.h"

/* Lock held. *why: the number of the reason. */
static int64_t take(sb_queue *q, uint64_t position, uint64_t token, char *buffer, uint32_t *why) {
  sb_taken t;
  if (!sb_schedule_take(q, position, SB_CELL_SCHEDULED, token, &t)) {
    sb_holding_give(q->c, token);
    return -(int64_t)SB_EMPTY;
  }
  *why = (uint32_t)sb_side_why_of(t.side);
  if (*why == SB_WHY_ALIVE) { /* it was carried out meanwhile, and the cell of another message has this position */
    sb_schedule_make_ready(q, token);
    return -(int64_t)SB_EMPTY;
  }
  if (!sb_api_plausible(q->c->b, &t)) {
    return -(int64_t)sb_api_drop_corrupt(q, token);
  }
  int64_t length = sb_api_record(q, &t, token, 0, buffer);
  return length < 0 ? -(int64_t)sb_api_drop_corrupt(q, token) : length;
}

int64_t sb_dead_take(sb_queue *q, uint64_t position, char *buffer, uint32_t *why) {
  uint64_t token;
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  status = sb_queue_is_open(q) ? sb_holding_take(q->c, &token) : SB_DELETED;
  int64_t length = status == SB_OK ? take(q, position, token, buffer, why) : -(int64_t)status;
  sb_api_leave(q->c);
  return length;
}

void sb_dead_return(sb_queue *q, const char *record, uint32_t why) {
  sb_record r;
  memcpy(&r, record, sizeof r);
  if (sb_api_enter(q->c) == SB_OK) {
    uint64_t token = r.tag & SB_TAG_TOKEN;
    if (q->ledger != NULL && sb_queue_is_open(q)) {
      (void)sb_park_again(q, token, (sb_why)(why % 16));
    } else if (q->ledger != NULL) {
      (void)sb_dispose(q, token, SB_REASON_KILLED);
    }
    sb_api_leave(q->c);
  }
}
