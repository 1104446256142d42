// SPDX-License-Identifier: Apache-2.0
/* Public calls: making a stored queue again from the rows of the store. */
#include <string.h>

#include "sb_api.h"
#include "sb_duplicates.h"
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

sb_status sb_store_restore_absent(sb_queue *q, const sb_absent_leaf *leaves, uint32_t count, uint32_t *done) {
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return status;
  }
  while (status == SB_OK && *done < count) {
    const sb_absent_leaf *leaf = &leaves[*done];
    status = sb_restore_skip(q, leaf->sequence);
    if (status == SB_OK) status = sb_restore_absent(q, leaf->sequence, leaf->messages, leaf->bytes);
    *done += status == SB_OK;
  }
  sb_api_leave(q->c);
  return status;
}

sb_status sb_store_restore_ids(sb_queue *q, const sb_store_id *ids, uint32_t count, uint32_t *done) {
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK) {
    status = sb_duplicates_restore(q, ids, count, done);
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

sb_status sb_api_unpack(sb_queue *q, const sb_row_entry *e, const char *names, const char *body, uint64_t written_ns,
                        sb_unpacked *u) {
  bool timed = e->due_ns != 0 || e->expires_ns != 0; /* most have no timer, and need no clock */
  uint64_t wall = timed ? sb_wall_ns() : 0, due = sb_restore_remains(e->due_ns, written_ns, wall),
           life = sb_restore_remains(e->expires_ns, written_ns, wall);
  bool dead = e->marks >> SB_ROW_WHY != 0 || (e->flags & SB_MESSAGE_REJECTED) != 0;
  bool delayed = (e->marks & SB_ROW_DELAYED) != 0;
  u->due_ns = timed ? sb_now_ns() + due : 0;
  u->scheduled = due != 0 || dead;
  u->timer = u->scheduled || life != 0;
  sb_put_options o = {.delay_ns = delayed ? 0 : due,
                      .exchange = names,
                      .exchange_length = (uint8_t)e->exchange_length,
                      .key = names + e->exchange_length,
                      .key_length = e->key_length,
                      .properties = names + e->exchange_length + e->key_length,
                      .properties_length = e->properties_length,
                      .priority = e->priority};
  sb_reservation *r = &u->place;
  sb_status status = sb_api_claim_slot(q->c, sb_api_body_offset(e->body_length, &o, 0) + e->body_length, r);
  if (status != SB_OK) status = sb_api_claim_elsewhere(q->c, status, e->body_length, &o, 0, r);
  if (status != SB_OK) {
    return status;
  }
  sb_api_fill(q->c, r, e->body_length, &o, life, 0);
  sb_message_shm *m = sb_slot_at(q->c->b, r->slot);
  m->timestamp_ns = e->timestamp_ns;
  m->flags |= (uint8_t)(e->flags & ~SB_MESSAGE_IN_PARTS);
  m->publisher = 0;
  if (r->scattered) {
    status = sb_api_write_parts(q->c, r, body) ? SB_OK : SB_CORRUPT;
  } else {
    memcpy(r->body, body, e->body_length);
  }
  if (status != SB_OK) sb_api_give_slot(q->c, r);
  return status;
}

/* Appends the message of an entry, whose names and body follow. The tail is at its position. */
static sb_status restore(sb_queue *q, const sb_row_entry *e, const char *names, const char *body, uint64_t written_ns) {
  sb_unpacked u;
  sb_value_key key;
  uint64_t position;
  sb_status status = sb_api_unpack(q, e, names, body, written_ns, &u);
  if (status != SB_OK) {
    return status;
  }
  const sb_reservation *r = &u.place;
  bool keyed = sb_queue_has_values(q) && sb_values_key_of(q, r->slot, sb_slot_at(q->c->b, r->slot), &key);
  if (keyed) status = sb_values_prepare(q, &key);
  if (status == SB_OK) status = sb_queue_enqueue(q, r->slot, r->gen, r->size, u.scheduled, r->token, &position);
  if (status != SB_OK) {
    sb_api_give_slot(q->c, r);
    return status;
  }
  if (e->delivery_count != 0 || e->marks != 0 || e->origin != SB_NO_ORIGIN)
    sb_restore_describe(q, position, r->gen, e, u.due_ns);
  if (keyed && !u.scheduled) (void)sb_values_came(q, position, &key);
  sb_holding_give(q->c, r->token);
  return SB_OK;
}

bool sb_api_next_entry(const sb_stored_row *row, sb_row_walk *w) {
  if (w->n == 0) {
    w->head_ok = row->heads_length >= sizeof w->head;
    if (w->head_ok) memcpy(&w->head, row->heads, sizeof w->head);
    w->head_ok = w->head_ok && w->head.format == SB_ROW_FORMAT && w->head.count <= SB_PAGE_CELLS;
    w->behind = sizeof w->head;
    w->body_behind = 0;
  }
  if (!w->head_ok || w->n == w->head.count) {
    return false;
  }
  w->at = w->behind;
  w->body = w->body_behind;
  w->head_ok = row->heads_length - w->at >= sizeof w->entry;
  if (!w->head_ok) {
    return false;
  }
  memcpy(&w->entry, row->heads + w->at, sizeof w->entry);
  uint64_t names = (uint64_t)w->entry.exchange_length + w->entry.key_length + w->entry.properties_length;
  w->head_ok = row->heads_length - w->at - sizeof w->entry >= names &&
               row->bodies_length - w->body >= w->entry.body_length && w->entry.index < SB_PAGE_CELLS;
  w->behind = w->at + sizeof w->entry + names;
  w->body_behind = w->body + w->entry.body_length;
  w->n++;
  return w->head_ok;
}

sb_status sb_store_restore(sb_queue *q, const sb_stored_row *row, uint32_t *done) {
  sb_row_walk w = {.n = 0};
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return status;
  }
  while (status == SB_OK && sb_api_next_entry(row, &w)) {
    unsigned lane = sb_queue_has_lanes(q) ? sb_lanes_number(q->shm, w.entry.priority) : 0;
    if (lane != sb_position_lane(w.head.first)) {
      status = SB_CORRUPT;
    } else if (w.n > *done) {
      if ((row->ended >> w.entry.index & 1) == 0) {
        status = sb_restore_skip(q, w.head.first + w.entry.index);
        if (status == SB_OK)
          status = restore(q, &w.entry, row->heads + w.at + sizeof w.entry, row->bodies + w.body, w.head.written_ns);
      }
      if (status == SB_OK) *done = w.n;
    }
  }
  sb_api_leave(q->c);
  return status == SB_OK && !w.head_ok ? SB_CORRUPT : status;
}
