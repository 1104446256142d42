// SPDX-License-Identifier: Apache-2.0
#include "sb_admission.h"

#include "sb_disposal.h"

static bool has_seats(const sb_queue_shm *q) { return (SB_LOAD(&q->flags, SB_SEQ_CST) & SB_QUEUE_SEATS) != 0; }

static int64_t registered(sb_connection *c, uint32_t queue) {
  sb_ring list;
  uint64_t position = 0;
  uint32_t node;
  int64_t n = 0;
  while (sb_ring_open(c->b, queue, SB_RING_ALL, &list) &&
         (node = sb_nodes_next(c, &list, SB_STATE_ALL, &position)) != 0) {
    const sb_node_shm *shm = sb_slot_at(c->b, node);
    n += (SB_LOAD(&shm->flags, SB_ACQUIRE) & SB_NODE_COUNTED) != 0;
  }
  return n;
}

sb_status sb_admission_begin(sb_connection *c, uint32_t queue, bool alone, uint32_t *flags) {
  const sb_queue_shm *q = sb_slot_at(c->b, queue);
  *flags = SB_NODE_COUNTED | sb_exclusive_flags(q);
  if (!has_seats(q)) {
    return SB_OK;
  }
  int64_t seats = sb_setting(q, SB_SETTING_SEATS); /* relaxed: it changes only under the topology lock */
  if (!alone) {
    return SB_UNLOCKED;
  }
  return seats > 0 && registered(c, queue) >= seats - 1 ? SB_NO_SEAT : SB_OK;
}

sb_status sb_admission_enter(sb_connection *c, uint32_t queue, uint32_t node, bool alone) {
  SB_CRASHPOINT("admission.registered");
  if (!alone && has_seats(sb_slot_at(c->b, queue))) { /* P30: after the consumer was registered */
    return SB_UNLOCKED;                               /* the queue got its seats just now */
  }
  sb_status status = sb_exclusive_enter(c, queue, node);
  if (status == SB_OK) sb_dispatch_enter(c, queue, node);
  return status;
}

bool sb_admission_ended(sb_queue *q) {
  sb_disposal_decide(q);
  return !sb_queue_is_open(q);
}

sb_status sb_admission_prepare(sb_connection *c, uint32_t queue, int64_t seats) {
  sb_queue_shm *q = sb_slot_at(c->b, queue);
  if (seats <= 0) {
    return SB_OK;
  }
  bool had = (SB_OR(&q->flags, SB_QUEUE_SEATS, SB_SEQ_CST) & SB_QUEUE_SEATS) != 0; /* P30: before the count */
  SB_CRASHPOINT("admission.flagged");
  if (registered(c, queue) <= seats - 1) {
    return SB_OK;
  }
  if (!had) (void)SB_AND(&q->flags, ~(uint32_t)SB_QUEUE_SEATS, SB_SEQ_CST);
  return SB_NO_SEAT;
}
