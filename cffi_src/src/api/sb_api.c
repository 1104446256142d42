// SPDX-License-Identifier: Apache-2.0
/* Helpers of the public calls: enter a call, write the record of a message, end a message. The files of the calls use
 * this file. It uses none of them. */
#include "sb_api.h"

#include <string.h>

SB_COLD sb_status look_at_handles(sb_connection *c) {
  sb_handles_look(c);
  return SB_OK;
}

sb_status sb_api_enter(sb_connection *c) {
  sb_status status = sb_usable(c);
  if (status == SB_OK) {
    sb_lock(c);
    if (sb_closed(c)) {
      sb_unlock(c);
      status = SB_CLOSED;
    } else if (sb_handles_stir(c)) {
      return look_at_handles(c);
    }
  }
  return status;
}

int32_t sb_api_process_pid(sb_broker *b, uint32_t process) {
  bool live =
      process < SB_MAX_PROCESSES && sb_proc_state(SB_LOAD(&b->processes[process].word, SB_ACQUIRE)) == SB_PROC_LIVE;
  return live ? SB_LOAD(&b->processes[process].pid, SB_RELAXED) : 0;
}

bool sb_api_held(sb_connection *c, uint64_t token, sb_taken *t) {
  sb_leaf_ref leaf;
  return sb_settle_find(c, token, t, &leaf) ? sb_api_plausible(c->b, t) : sb_reading_find(c, token, t);
}

sb_status sb_api_view(sb_connection *c, const sb_taken *t, uint64_t *view) {
  sb_status status = sb_reading_lend(c, t->token);
  *view = t->token;
  return status == SB_SETTLED ? sb_view_take(c, t, view) : status;
}

void sb_api_view_drop(sb_connection *c, uint64_t view) {
  if (!sb_reading_unlend(c, view)) sb_view_drop(c, view);
}

uint64_t sb_api_address(const sb_message_shm *m) {
  return (m->flags & SB_MESSAGE_IN_PARTS) != 0 ? (uint64_t)SB_IN_PARTS : (uint64_t)(uintptr_t)m + m->body_offset;
}

SB_COLD int64_t record_in_parts(sb_broker *b, const sb_taken *t, bool inside, sb_record *record) {
  uint64_t copied = sb_api_names(t->message) + (inside ? t->message->body_length : 0);
  if (!inside) record->body_address = SB_IN_PARTS;
  bool good = sb_parts_copy(b, t->slot, 0, (char *)(record + 1), copied);
  return good ? (int64_t)(sizeof *record + copied) : -(int64_t)SB_CORRUPT;
}

static uint8_t marks_of(uint64_t side) {
  return (uint8_t)(((side & SB_SIDE_REDELIVERED) != 0 ? SB_MARK_REDELIVERED : 0) |
                   ((side & SB_SIDE_GROUP_FIRST) != 0 ? SB_MARK_GROUP_FIRST : 0));
}

int64_t sb_api_record(sb_queue *q, const sb_taken *t, uint64_t tag, uint32_t subscription, char *buffer) {
  const sb_message_shm *m = t->message;
  bool inside = m->body_length <= SB_INLINE_BODY;
  const uint8_t *prefix = (const uint8_t *)(m + 1), *body = (const uint8_t *)m + m->body_offset;
  uint64_t prefix_length = sb_api_names(m);
  sb_record *record = (sb_record *)(void *)buffer;
  *record = (sb_record){.tag = tag,
                        .sequence = sb_queue_sequence(q, t->position),
                        .body_length = m->body_length,
                        .body_address = inside ? 0 : (uint64_t)(uintptr_t)body,
                        .timestamp_ns = m->timestamp_ns,
                        .expires_ns = m->expires_ns,
                        .properties_length = m->properties_length,
                        .key_length = m->key_length,
                        .delivery_count = (uint16_t)sb_side_count(t->side),
                        .marks = marks_of(t->side),
                        .priority = m->priority,
                        .subscription = (uint16_t)subscription,
                        .exchange_length = (uint8_t)m->exchange_length};
  char *behind = buffer + sizeof *record;
  if ((m->flags & SB_MESSAGE_IN_PARTS) != 0) {
    return record_in_parts(q->c->b, t, inside, record);
  }
  if (prefix_length != 0) memcpy(behind, prefix, prefix_length);
  if (inside) memcpy(behind + prefix_length, body, m->body_length);
  return (int64_t)(sizeof *record + prefix_length + (inside ? m->body_length : 0));
}

void sb_api_returned(sb_queue *q) {
  bool evicted = sb_limits_enforce(q) > 0;
  if (evicted || q->value_key_length != 0) sb_notify_room_made(q->c, q->shm, q->slot); /* it may have been replaced */
  sb_notify_work_arrived(q);
}

sb_status sb_api_end(sb_queue *q, uint64_t token, sb_disposition disposition) {
  sb_status status;
  if (q->ledger == NULL) {
    /* I60 of sb_handles.h: since the handle is detached, the connection holds no message. It may still read one */
    return sb_reading_end(q->c, token, false);
  }
  if (disposition == SB_REQUEUE || disposition == SB_UNDELIVER) {
    status = sb_release_message(q, token, disposition);
    if (status == SB_OK) sb_api_returned(q);
    return status;
  }
  status = sb_dispose(q, token, disposition == SB_ACK ? SB_REASON_ACKED : SB_REASON_REJECTED);
  if (SB_LOAD(&q->c->b->header->memory_waiting, SB_SEQ_CST) != 0) sb_notify_room_made(q->c, NULL, 0);
  return status;
}

sb_status sb_api_drop_corrupt(sb_queue *q, uint64_t token) {
  (void)sb_dispose(q, token, SB_REASON_UNREADABLE);
  sb_notify_room_made(q->c, q->shm, q->slot);
  return SB_CORRUPT;
}
