// SPDX-License-Identifier: Apache-2.0
/* Public calls: getting messages. */
#include <string.h>

#include "sb_api.h"

/* Lock held. Gives up a taken message that cannot be handed over, and returns minus `status`. If the message is corrupt
 * and the first one of the call, it is dropped. Any other message is put back at its position; the next call reports
 * it if it is corrupt. */
SB_COLD int64_t keep_none(sb_queue *q, const sb_taken *t, sb_status status, bool first) {
  if (status == SB_CORRUPT && first) {
    return -(int64_t)sb_api_drop_corrupt(q, t->token);
  }
  (void)sb_release_message(q, t->token, SB_UNDELIVER);
  sb_api_returned(q);
  return -(int64_t)status;
}

/* Lock held. Writes the record of a taken message, and settles the message if auto_ack. `first`: no other
 * message of the call precedes it. Returns the length of the record, or minus a status. */
SB_HOT int64_t hand_over(sb_queue *q, sb_taken *t, bool auto_ack, char *buffer, bool first) {
  if (!sb_api_plausible(q->c->b, t)) {
    return keep_none(q, t, SB_CORRUPT, first);
  }
  uint64_t tag = t->token;
  if (auto_ack && t->message->body_length > SB_INLINE_BODY) { /* the view keeps the body after the message is settled */
    sb_status status = sb_view_take(q->c, t, &tag);
    if (status != SB_OK) {
      return keep_none(q, t, status, first);
    }
  }
  int64_t length = sb_api_record(q, t, tag, 0, buffer);
  if (length < 0) {
    if (tag != t->token) sb_view_drop(q->c, tag);
    return keep_none(q, t, SB_CORRUPT, first);
  }
  sb_take_delivered(q, t);
  if (auto_ack) (void)sb_dispose(q, t->token, SB_REASON_ACKED);
  sb_notify_room_made(q->c, q->shm, q->slot);
  return length;
}

SB_HOT int64_t get_one(sb_queue *q, char *buffer, bool auto_ack, bool first) {
  uint64_t token;
  sb_taken t;
  sb_lifetime_consumed(q);
  sb_status status = sb_holding_take(q->c, &token);
  if (status == SB_OK) {
    status = sb_choice_get(q, token, &t);
    if (status != SB_OK) {
      sb_holding_give(q->c, token);
      sb_notify_ended(q);
    }
  }
  if (status == SB_OK && sb_queue_may_hide(q)) sb_notify_work_arrived(q);
  return status == SB_OK ? hand_over(q, &t, auto_ack, buffer, first) : -(int64_t)status;
}

int64_t sb_queue_get(sb_queue *q, char *buffer, bool auto_ack) {
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  bool usable = !sb_queue_tracks(q->shm) || sb_api_look_at_bound(q);
  int64_t length = usable ? get_one(q, buffer, auto_ack, true) : -(int64_t)SB_CLOSED;
  sb_api_leave(q->c);
  return length;
}

static int64_t hand_over_waited(sb_queue *q, sb_status status, sb_taken *t, char *buffer, bool auto_ack) {
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  sb_lock(q->c);
  /* if the connection was closed, the close put the message back into the queue */
  int64_t length = sb_closed(q->c) ? -(int64_t)SB_CLOSED : hand_over(q, t, auto_ack, buffer, true);
  sb_unlock(q->c);
  return length;
}

int64_t sb_queue_get_spin(sb_queue *q, uint64_t limit_ns, char *buffer, bool auto_ack) {
  sb_taken t;
  sb_status status = sb_usable(q->c);
  if (status == SB_OK) status = sb_waiter_soon(q, limit_ns, &t);
  return hand_over_waited(q, status, &t, buffer, auto_ack);
}

int64_t sb_queue_get_wait(sb_queue *q, char *buffer, bool auto_ack, sb_wait *wait) {
  sb_taken t;
  sb_status status = sb_usable(q->c);
  if (status == SB_OK) status = sb_waiter_get(q, wait, NULL, &t);
  return hand_over_waited(q, status, &t, buffer, auto_ack);
}

void sb_queue_end_wait(sb_queue *q, sb_wait *wait) {
  if (!sb_forked(q->c->b)) {
    sb_lock(q->c);
    sb_waiter_end(q, wait);
    sb_unlock(q->c);
  }
}

/* Gets up to `count` messages, as records that begin at multiples of 8. `first`: a message that the caller took
 * already, NULL = none. Returns the number of records, or minus a status if there are none; *used: the bytes of all
 * records. index[3 * i] and the next two: start of record i, start of its body, end of its body. index[3 * count]: the
 * number of bodies that are not in their records. */
static int64_t many(sb_queue *q, sb_taken *first, uint32_t count, bool auto_ack, char *buffer, uint64_t size,
                    uint32_t *index, uint64_t *used) {
  uint32_t n = 0;
  int64_t status = 0;
  *used = 0;
  index[3 * (uint64_t)count] = 0;
  while (n < count) {
    if (*used + SB_INLINE_BODY + SB_MAX_PREFIX + sizeof(sb_record) > size) {
      break;
    }
    int64_t length = n == 0 && first != NULL ? hand_over(q, first, auto_ack, buffer, true)
                                             : get_one(q, buffer + *used, auto_ack, n == 0);
    if (length < 0) {
      status = length;
      break;
    }
    const sb_record *record = (const sb_record *)(const void *)(buffer + *used);
    uint64_t inside = record->body_address == 0 ? record->body_length : 0;
    index[3 * (uint64_t)count] += record->body_address != 0;
    index[3 * n] = (uint32_t)*used;
    index[3 * n + 1] = (uint32_t)(*used + (uint64_t)length - inside);
    index[3 * n + 2] = (uint32_t)(*used + (uint64_t)length);
    *used += ((uint64_t)length + 7) / 8 * 8;
    n++;
  }
  return n > 0 ? n : status;
}

int64_t sb_queue_get_many(sb_queue *q, uint32_t count, bool auto_ack, char *buffer, uint64_t size, uint32_t *index,
                          uint64_t *used) {
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  bool usable = !sb_queue_tracks(q->shm) || sb_api_look_at_bound(q);
  int64_t n = usable ? many(q, NULL, count, auto_ack, buffer, size, index, used) : -(int64_t)SB_CLOSED;
  sb_api_leave(q->c);
  return n;
}

int64_t sb_queue_get_many_wait(sb_queue *q, uint32_t count, bool auto_ack, char *buffer, uint64_t size, uint32_t *index,
                               uint64_t *used, sb_wait *wait) {
  sb_taken t;
  sb_status status = sb_usable(q->c);
  if (status == SB_OK) status = sb_waiter_get(q, wait, NULL, &t);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  sb_lock(q->c);
  int64_t n = sb_closed(q->c) ? -(int64_t)SB_CLOSED : many(q, &t, count, auto_ack, buffer, size, index, used);
  sb_unlock(q->c);
  return n;
}
