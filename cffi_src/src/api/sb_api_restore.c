// SPDX-License-Identifier: Apache-2.0
/* Public calls: making a stored queue again from the rows of the store. */
#include <string.h>

#include "sb_api.h"
#include "sb_restore.h"
#include "sb_values.h"

sb_status sb_store_resume(sb_queue *q, uint64_t sequence) {
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK) {
    status = sb_restore_begin(q, sequence);
    sb_api_leave(q->c);
  }
  return status;
}

sb_status sb_store_skip(sb_queue *q, uint64_t sequence) {
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK) {
    status = sb_restore_skip(q, sequence);
    sb_api_leave(q->c);
  }
  return status;
}

void sb_store_resumed(sb_queue *q) {
  if (sb_api_enter(q->c) == SB_OK) {
    sb_restore_end(q);
    sb_notify_work_arrived(q);
    sb_api_leave(q->c);
  }
}

/* Appends the message of an entry, whose names and body follow. The tail is at its position. */
static sb_status restore(sb_queue *q, const sb_row_entry *e, const char *names, const char *body, uint64_t written_ns) {
  uint64_t wall = sb_wall_ns(), now = sb_now_ns(), position;
  uint64_t due = sb_restore_remains(e->due_ns, written_ns, wall),
           life = sb_restore_remains(e->expires_ns, written_ns, wall);
  bool dead = e->marks >> SB_ROW_WHY != 0 || (e->flags & SB_MESSAGE_REJECTED) != 0;
  bool delayed = (e->marks & SB_ROW_DELAYED) != 0, scheduled = due != 0 || dead;
  sb_put_options o = {.delay_ns = delayed ? 0 : due,
                      .exchange = names,
                      .exchange_length = (uint8_t)e->exchange_length,
                      .key = names + e->exchange_length,
                      .key_length = e->key_length,
                      .properties = names + e->exchange_length + e->key_length,
                      .properties_length = e->properties_length,
                      .priority = e->priority};
  sb_reservation r;
  sb_value_key key;
  sb_status status = sb_api_claim_slot(q->c, sb_api_body_offset(e->body_length, &o, 0) + e->body_length, &r);
  if (status != SB_OK) status = sb_api_claim_elsewhere(q->c, status, e->body_length, &o, 0, &r);
  if (status != SB_OK) {
    return status;
  }
  sb_api_fill(q->c, &r, e->body_length, &o, life, 0);
  sb_message_shm *m = sb_slot_at(q->c->b, r.slot);
  m->timestamp_ns = e->timestamp_ns;
  m->flags |= (uint8_t)(e->flags & ~SB_MESSAGE_IN_PARTS);
  m->publisher = 0;
  if (r.scattered) {
    status = sb_api_write_parts(q->c, &r, body) ? SB_OK : SB_CORRUPT;
  } else {
    memcpy(r.body, body, e->body_length);
  }
  bool keyed = status == SB_OK && sb_queue_has_values(q) && sb_values_key_of(q, r.slot, m, &key);
  if (keyed) status = sb_values_prepare(q, &key);
  if (status == SB_OK) status = sb_queue_enqueue(q, r.slot, r.gen, r.size, scheduled, r.token, &position);
  if (status != SB_OK) {
    sb_api_give_slot(q->c, &r);
    return status;
  }
  if (e->delivery_count != 0 || e->marks != 0 || e->origin != SB_NO_ORIGIN)
    sb_restore_describe(q, position, r.gen, e, now + due);
  if (keyed && !scheduled) (void)sb_values_came(q, position, &key);
  sb_holding_give(q->c, r.token);
  return SB_OK;
}

sb_status sb_store_restore(sb_queue *q, const sb_stored_row *row, uint32_t *done) {
  sb_row_head head;
  uint64_t at = sizeof head, body = 0;
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return status;
  }
  if (row->heads_length < sizeof head) status = SB_CORRUPT;
  if (status == SB_OK) memcpy(&head, row->heads, sizeof head);
  if (status == SB_OK && (head.format != SB_ROW_FORMAT || head.count > SB_PAGE_CELLS)) status = SB_CORRUPT;
  for (uint32_t n = 0; status == SB_OK && n < head.count; n++) {
    sb_row_entry e;
    if (row->heads_length - at < sizeof e) {
      status = SB_CORRUPT;
      break;
    }
    memcpy(&e, row->heads + at, sizeof e);
    uint64_t names = (uint64_t)e.exchange_length + e.key_length + e.properties_length;
    unsigned lane = sb_queue_has_lanes(q) ? sb_lanes_number(q->shm, e.priority) : 0;
    if (row->heads_length - at - sizeof e < names || row->bodies_length - body < e.body_length ||
        e.index >= SB_PAGE_CELLS || lane != sb_position_lane(head.first)) {
      status = SB_CORRUPT;
      break;
    }
    if (n >= *done) {
      if ((row->ended >> e.index & 1) == 0) {
        status = sb_restore_skip(q, head.first + e.index);
        if (status == SB_OK) status = restore(q, &e, row->heads + at + sizeof e, row->bodies + body, head.written_ns);
      }
      if (status == SB_OK) *done = n + 1;
    }
    at += sizeof e + names;
    body += e.body_length;
  }
  sb_api_leave(q->c);
  return status;
}
