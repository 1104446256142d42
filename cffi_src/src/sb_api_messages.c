// SPDX-License-Identifier: Apache-2.0
/* Public calls: putting, getting, settling, browsing messages. */
#include <string.h>

#include "sb_api.h"

static const sb_put_options NO_OPTIONS;

/* ---- putting ---- */

static sb_status check(sb_queue *q, uint64_t length) {
  if (!sb_queue_is_open(q)) {
    return SB_DELETED;
  }
  return length > SB_MAX_BODY ? SB_TOO_LARGE : SB_OK;
}

/* The shorter of the message's and of the queue's; 0 = for ever. */
static uint64_t time_to_live(const sb_queue *q, const sb_put_options *o) {
  if ((SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_TTL) == 0) {
    return o->ttl_ns;
  }
  uint64_t most = SB_LOAD(&q->shm->message_ttl_ms, SB_RELAXED) * UINT64_C(1000000);
  if (most == 0) most = 1; /* gone at once, unless somebody takes it at once */
  return o->ttl_ns != 0 && o->ttl_ns < most ? o->ttl_ns : most;
}

/* Room under the queue's limits and in memory: an ALLOC slot with its message header filled in. */
SB_HOT sb_status prepare(sb_queue *q, uint64_t length, const sb_put_options *o, sb_reservation *r) {
  sb_connection *c = q->c;
  uint64_t need = sb_api_body_offset(length, o, 0) + length;
  sb_status status = sb_api_front(o) > SB_MAX_FRONT ? SB_INVALID : check(q, length);
  if (status == SB_OK) status = sb_limits_admit(q, 1, length);
  if (status == SB_OK) {
    status = sb_api_claim_slot(c, need, r);
    if (status != SB_OK) sb_limits_unadmit(q, 1, length);
  }
  if (status != SB_OK) {
    sb_consumer_room_in(c, q->shm, q->slot); /* for whoever found taken what we had for a moment */
    return status;
  }
  SB_CRASHPOINT("api.put.allocated");
  sb_api_fill(c, r, length, o, time_to_live(q, o), 0);
  return SB_OK;
}

static void take_back(sb_queue *q, sb_reservation *r) {
  sb_limits_unadmit(q, 1, r->size);
  sb_api_give_slot(q->c, r);
  sb_consumer_room_in(q->c, q->shm, q->slot); /* as in prepare */
}

SB_HOT sb_status publish(sb_queue *q, sb_reservation *r) {
  sb_message_shm *m = sb_slot_at(q->c->b, r->slot);
  uint64_t position, timer = m->due_ns | m->expires_ns;
  sb_message_shm timed = timer != 0 ? *m : (sb_message_shm){0};
  sb_status status = sb_queue_enqueue(q, r->slot, r->gen, r->size, timer != 0 && m->due_ns != 0, &position);
  if (status != SB_OK) {
    return status;
  }
  sb_holding_give(q->c, r->token);
  sb_limits_published(q);
  SB_CRASHPOINT("api.put.enqueued");
  if (timer != 0) sb_api_ring_housekeeper(q->c, &timed);
  if (SB_LOAD(&q->shm->ring_size, SB_RELAXED) >= 0 || SB_LOAD(&q->shm->overflow, SB_RELAXED) == SB_OVERFLOW_DROP_HEAD) {
    if (sb_limits_enforce(q) > 0) sb_consumer_room_made(q->c, q->shm, q->slot);
  }
  sb_consumer_work_arrived(q);
  return SB_OK;
}

/* overflow=drop: the new message goes nowhere, and is counted. */
static sb_status drop_new(sb_queue *q, sb_status status) {
  if (status == SB_FULL && SB_LOAD(&q->shm->overflow, SB_RELAXED) == SB_OVERFLOW_DROP) {
    sb_ledger_count(q->ledger, SB_COUNT_REFUSED, 1);
    return SB_OK;
  }
  return status;
}

/* Lock held; it is dropped while a long body is copied. */
SB_HOT sb_status put_one(sb_queue *q, const char *body, uint64_t length, const sb_put_options *o) {
  sb_reservation r;
  sb_status status = prepare(q, length, o, &r);
  if (status != SB_OK) {
    return drop_new(q, status);
  }
  if (length > SB_UNLOCKED_COPY) {
    q->busy++;
    sb_api_leave(q->c);
    memcpy(r.body, body, length);
    sb_lock(&q->c->lock);
    q->busy--;
  } else {
    memcpy(r.body, body, length);
  }
  status = sb_closed(q->c) ? SB_CLOSED : publish(q, &r);
  if (status != SB_OK) {
    take_back(q, &r);
  }
  return status;
}

sb_status sb_put_with(sb_queue *q, const char *body, uint64_t length, const sb_put_options *o) {
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK) {
    status = put_one(q, body, length, o);
    sb_api_leave(q->c);
  }
  return status;
}

sb_status sb_put(sb_queue *q, const char *body, uint64_t length) { return sb_put_with(q, body, length, &NO_OPTIONS); }

int64_t sb_put_many(sb_queue *q, const sb_piece *pieces, uint32_t count, const sb_put_options *o, sb_status *status) {
  uint32_t done = 0;
  *status = sb_api_enter(q->c);
  if (*status != SB_OK) {
    return 0;
  }
  while (done < count && (*status = put_one(q, pieces[done].data, pieces[done].length, o)) == SB_OK) done++;
  sb_api_leave(q->c);
  return done;
}

sb_status sb_reserve(sb_queue *q, uint64_t length, const sb_put_options *o, sb_reservation *r) {
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK) {
    status = prepare(q, length, o, r);
    q->busy += status == SB_OK;
    sb_api_leave(q->c);
  }
  return status;
}

sb_status sb_commit(sb_queue *q, sb_reservation *r) {
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK) {
    status = publish(q, r);
    q->busy -= status == SB_OK;
    sb_api_leave(q->c);
  }
  return status;
}

sb_status sb_reserve_copy(sb_queue *q, const sb_reservation *r, sb_reservation *copy) {
  const uint8_t *from = sb_slot_at(q->c->b, r->slot);
  uint64_t offset = (uint64_t)((const uint8_t *)r->body - from), need = offset + r->size;
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return status;
  }
  status = sb_api_claim_slot(q->c, need, copy);
  sb_api_leave(q->c);
  if (status == SB_OK) {
    copy->size = r->size;
    copy->body = (uint8_t *)sb_slot_at(q->c->b, copy->slot) + offset;
    memcpy(sb_slot_at(q->c->b, copy->slot), from, need);
  }
  return status;
}

void sb_abandon(sb_queue *q, sb_reservation *r, bool viewed) {
  if (!sb_forked(q->c->b)) {
    sb_lock(&q->c->lock);
    if (viewed) {
      sb_limits_unadmit(q, 1, r->size);
    } else {
      take_back(q, r);
    }
    q->busy--;
    sb_consumer_room_made(q->c, q->shm, q->slot);
    sb_unlock(&q->c->lock);
  }
}

void sb_end_reserved_view(sb_connection *c, sb_reservation *r) {
  if (!sb_forked(c->b)) {
    sb_lock(&c->lock);
    sb_api_give_slot(c, r);
    sb_consumer_room_made(c, NULL, 0);
    sb_unlock(&c->lock);
  }
}

sb_status sb_wait_for_room(sb_queue *q, bool memory, uint64_t bytes, uint64_t deadline_ns) {
  sb_status status = sb_usable(q->c);
  return status == SB_OK ? sb_waiter_room(q, memory, bytes, deadline_ns) : status;
}

/* ---- getting ---- */

bool sb_api_plausible(sb_broker *b, const sb_taken *t) {
  uint64_t room = sb_slab_slot_bytes(b, t->slot);
  const sb_message_shm *m = t->message;
  uint64_t front = sizeof *m + (uint64_t)m->exchange_length + m->key_length + m->properties_length;
  return front <= SB_MAX_FRONT && m->exchange_length <= SB_NAME_MAX && front <= m->body_offset &&
         m->body_offset >= sizeof *m && m->body_offset <= room && m->body_length <= room - m->body_offset;
}

int64_t sb_api_record(const sb_queue *q, const sb_taken *t, uint64_t tag, uint32_t subscription, char *buffer) {
  const sb_message_shm *m = t->message;
  bool inside = m->body_length <= SB_INLINE_BODY;
  const uint8_t *front = (const uint8_t *)(m + 1), *body = (const uint8_t *)m + m->body_offset;
  uint64_t front_length = (uint64_t)m->exchange_length + m->key_length + m->properties_length;
  sb_record *record = (sb_record *)(void *)buffer;
  *record = (sb_record){.tag = tag,
                        .sequence = t->position - q->base,
                        .body_length = m->body_length,
                        .body_address = inside ? 0 : (uint64_t)(uintptr_t)body,
                        .timestamp_ns = m->timestamp_ns,
                        .expires_ns = m->expires_ns,
                        .properties_length = m->properties_length,
                        .key_length = m->key_length,
                        .delivery_count = (uint16_t)sb_side_count(t->side),
                        .redelivered = (t->side & SB_SIDE_REDELIVERED) != 0,
                        .priority = m->priority,
                        .subscription = (uint16_t)subscription,
                        .exchange_length = (uint8_t)m->exchange_length};
  char *behind = buffer + sizeof *record;
  if (front_length != 0) memcpy(behind, front, front_length);
  if (inside) memcpy(behind + front_length, body, m->body_length);
  return (int64_t)(sizeof *record + front_length + (inside ? m->body_length : 0));
}

/* Lock held. A taken message becomes a record; with auto_ack it is settled on the way. */
SB_HOT int64_t hand_over(sb_queue *q, sb_taken *t, bool auto_ack, char *buffer) {
  if (!sb_api_plausible(q->c->b, t)) {
    return -(int64_t)SB_CORRUPT;
  }
  uint64_t tag = t->token;
  if (auto_ack && t->message->body_length > SB_INLINE_BODY) { /* what is settled is read through a view */
    sb_status status = sb_view_take(q->c, t, &tag);
    if (status != SB_OK) {
      (void)sb_queue_release(q, t->token, SB_RELEASE_CLEAN);
      sb_api_returned(q);
      return -(int64_t)status;
    }
  }
  if ((t->side & SB_SIDE_REDELIVERED) != 0) sb_ledger_count(q->ledger, SB_COUNT_REDELIVERED, 1);
  sb_ledger_count(q->ledger, SB_COUNT_DELIVERED, 1);
  int64_t length = sb_api_record(q, t, tag, 0, buffer);
  if (auto_ack) (void)sb_queue_settle(q, t->token, SB_COUNT_ACKED);
  sb_consumer_room_made(q->c, q->shm, q->slot);
  return length;
}

SB_HOT int64_t get_one(sb_queue *q, char *buffer, bool auto_ack) {
  uint64_t token;
  sb_taken t;
  sb_lifetime_used(q->shm);
  sb_status status = sb_holding_take(q->c, &token);
  if (status == SB_OK) {
    status = sb_queue_acquire(q, token, &t);
    if (status != SB_OK) {
      sb_holding_give(q->c, token);
    }
  }
  if (status == SB_OK && SB_LOAD(&q->shm->returned, SB_SEQ_CST) != 0) {
    sb_consumer_work_arrived(q); /* more came back; while we searched, others may have seen no bit (I41) */
  }
  return status == SB_OK ? hand_over(q, &t, auto_ack, buffer) : -(int64_t)status;
}

int64_t sb_get(sb_queue *q, char *buffer, bool auto_ack) {
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  int64_t length = get_one(q, buffer, auto_ack);
  sb_api_leave(q->c);
  return length;
}

static int64_t hand_over_waited(sb_queue *q, sb_status status, sb_taken *t, char *buffer, bool auto_ack) {
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  sb_lock(&q->c->lock);
  int64_t length = sb_closed(q->c) ? -(int64_t)SB_CLOSED : hand_over(q, t, auto_ack, buffer); /* closing returned it */
  sb_unlock(&q->c->lock);
  return length;
}

int64_t sb_get_soon(sb_queue *q, uint64_t limit_ns, char *buffer, bool auto_ack) {
  sb_taken t;
  sb_status status = sb_usable(q->c);
  if (status == SB_OK) status = sb_waiter_soon(q, limit_ns, &t);
  return hand_over_waited(q, status, &t, buffer, auto_ack);
}

int64_t sb_get_wait(sb_queue *q, char *buffer, bool auto_ack, sb_wait *wait) {
  sb_taken t;
  sb_status status = sb_usable(q->c);
  if (status == SB_OK) status = sb_waiter_get(q, wait, NULL, &t);
  return hand_over_waited(q, status, &t, buffer, auto_ack);
}

void sb_end_wait(sb_queue *q, sb_wait *wait) {
  if (!sb_forked(q->c->b)) {
    sb_lock(&q->c->lock);
    sb_waiter_end(q, wait);
    sb_unlock(&q->c->lock);
  }
}

/* Records one after the other, each at a multiple of 8; index[3i..] = start of record, of body, end of body; behind the
 * last place, index[3 * count]: how many bodies are read in place. */
static int64_t many(sb_queue *q, sb_taken *first, uint32_t count, bool auto_ack, char *buffer, uint64_t size,
                    uint32_t *index, uint64_t *used) {
  uint32_t n = 0;
  int64_t status = 0;
  *used = 0;
  index[3 * (uint64_t)count] = 0;
  while (n < count) {
    if (*used + SB_INLINE_BODY + 65536u + sizeof(sb_record) > size) {
      break;
    }
    int64_t length =
        n == 0 && first != NULL ? hand_over(q, first, auto_ack, buffer) : get_one(q, buffer + *used, auto_ack);
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

int64_t sb_get_many(sb_queue *q, uint32_t count, bool auto_ack, char *buffer, uint64_t size, uint32_t *index,
                    uint64_t *used) {
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  int64_t n = many(q, NULL, count, auto_ack, buffer, size, index, used);
  sb_api_leave(q->c);
  return n;
}

int64_t sb_get_many_wait(sb_queue *q, uint32_t count, bool auto_ack, char *buffer, uint64_t size, uint32_t *index,
                         uint64_t *used, sb_wait *wait) {
  sb_taken t;
  sb_status status = sb_usable(q->c);
  if (status == SB_OK) status = sb_waiter_get(q, wait, NULL, &t);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  sb_lock(&q->c->lock);
  int64_t n = sb_closed(q->c) ? -(int64_t)SB_CLOSED : many(q, &t, count, auto_ack, buffer, size, index, used);
  sb_unlock(&q->c->lock);
  return n;
}

/* ---- settling ---- */

void sb_api_returned(sb_queue *q) {
  if (sb_limits_enforce(q) > 0) sb_consumer_room_made(q->c, q->shm, q->slot);
  sb_consumer_work_arrived(q);
}

/* how: 0 ack, 1 requeue, 2 reject, 3 clean return (never seen by the application). */
sb_status sb_api_end(sb_queue *q, uint64_t token, uint32_t how) {
  sb_status status;
  if (how == 1 || how == 3) {
    status = sb_queue_release(q, token, how == 1 ? SB_RELEASE_NACK : SB_RELEASE_CLEAN);
    if (status == SB_OK) sb_api_returned(q);
    return status;
  }
  status = sb_queue_settle(q, token, how == 0 ? SB_COUNT_ACKED : SB_COUNT_DROPPED);
  if (SB_LOAD(&q->c->b->header->memory_waiting, SB_SEQ_CST) != 0) sb_consumer_room_made(q->c, NULL, 0);
  return status;
}

static uint64_t token_of(const char *record) {
  uint64_t tag;
  memcpy(&tag, record, sizeof tag);
  return tag & SB_TAG_TOKEN;
}

sb_status sb_settle(sb_queue *q, const char *record, uint32_t how) {
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK) {
    status = sb_api_end(q, token_of(record), how);
    sb_api_leave(q->c);
  }
  return status;
}

sb_status sb_settle_many(sb_queue *q, const char *records, const uint32_t *index, uint32_t stride, uint32_t count,
                         uint32_t how) {
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return status;
  }
  for (uint32_t i = 0; status == SB_OK && i < count; i++) {
    sb_status one = sb_api_end(q, token_of(records + index[(uint64_t)stride * i]), how);
    if (one != SB_OK && one != SB_SETTLED) status = one;
  }
  sb_api_leave(q->c);
  return status;
}

/* A view of the body at that address, of the message at that place of its queue, if we still hold it under that tag. */
sb_status sb_begin_view(sb_connection *c, uint64_t tag, uint64_t sequence, uint64_t address, uint64_t *view) {
  if (sb_closed(c) || sb_forked(c->b)) {
    return sb_closed(c) ? SB_CLOSED : SB_FORKED;
  }
  sb_lock(&c->lock); /* also while the broker is being stopped */
  uint64_t token = tag & SB_TAG_TOKEN;
  sb_taken t;
  sb_leaf_ref leaf;
  sb_status status = SB_SETTLED;
  if (!sb_closed(c) && sb_queue_held(c, token, &t, &leaf) && sb_api_plausible(c->b, &t)) {
    uint32_t queue = sb_holding_slot(SB_LOAD(&sb_holding_at(c->b, token)->what, SB_RELAXED));
    const sb_queue_shm *q = sb_slab_object(c->b, queue, SB_KIND_QUEUE);
    bool same = q != NULL && t.position - SB_LOAD(&q->base, SB_RELAXED) == sequence &&
                (uint64_t)(uintptr_t)t.message + t.message->body_offset == address;
    if (same) status = sb_view_take(c, &t, view);
  }
  sb_unlock(&c->lock);
  return status;
}

/* Also after the connection was closed: its record stays as long as it has views. */
bool sb_end_view(sb_connection *c, uint64_t view) {
  if (sb_forked(c->b)) {
    return false;
  }
  sb_lock(&c->lock);
  sb_view_end(c, view);
  sb_consumer_room_made(c, NULL, 0);
  bool closed = sb_closed(c);
  sb_unlock(&c->lock);
  return closed;
}

/* ---- browsing ---- */

/* A private copy of the next ready message at or after *position. Minus SB_FULL: *position stays, more room is needed
 * (the first 8 bytes of the buffer say how much). */
int64_t sb_browse(sb_queue *q, uint64_t *position, char *buffer, uint64_t size) {
  sb_status usable = sb_usable(q->c);
  sb_broker *b = q->c->b;
  sb_leaf_ref leaf;
  uint64_t at = *position + q->base;
  if (usable != SB_OK || !sb_queue_is_open(q)) {
    return -(int64_t)(usable != SB_OK ? usable : SB_DELETED);
  }
  while (sb_ring_next_leaf(b, &q->ring, at, &leaf, &at)) {
    while (sb_leaf_covers(&leaf, at)) {
      sb_cell_shm *cell = sb_leaf_cell(&leaf, at);
      uint64_t word = SB_LOAD(&cell->word, SB_ACQUIRE);
      if (!sb_cell_of(word, leaf.gen) || sb_cell_state(word) == SB_CELL_FREE || sb_cell_state(word) == SB_CELL_CLOSED) {
        *position = at - q->base;
        return -(int64_t)SB_EMPTY;
      }
      sb_taken t = {.position = at, .slot = sb_cell_slot(word), .side = SB_LOAD(&cell->side, SB_ACQUIRE)};
      if (sb_cell_state(word) == SB_CELL_AVAILABLE && sb_slot_in_range(b, t.slot) && sb_slot_ready(b, t.slot)) {
        uint64_t header = SB_LOAD(sb_slot_header(b, t.slot), SB_ACQUIRE);
        sb_message_shm m = sb_peek_message(b, t.slot);
        t.message = &m;
        uint64_t front = (uint64_t)m.exchange_length + m.key_length + m.properties_length,
                 need = sizeof(sb_record) + front + m.body_length;
        bool sound = sb_api_plausible(b, &t);
        if (sound && need > size && SB_LOAD(&cell->word, SB_ACQUIRE) == word) {
          memcpy(buffer, &need, sizeof need);
          *position = at - q->base;
          return -(int64_t)SB_FULL;
        }
        if (sound && need <= size) {
          sb_record record = {.sequence = at - q->base,
                              .body_length = m.body_length,
                              .timestamp_ns = m.timestamp_ns,
                              .expires_ns = m.expires_ns,
                              .properties_length = m.properties_length,
                              .key_length = m.key_length,
                              .exchange_length = (uint8_t)m.exchange_length,
                              .priority = m.priority,
                              .redelivered = (t.side & SB_SIDE_REDELIVERED) != 0};
          memcpy(buffer, &record, sizeof record);
          const uint8_t *from = sb_slot_at(b, t.slot);
          sb_peek_bytes(buffer + sizeof record, from + sizeof m, front);
          sb_peek_bytes(buffer + sizeof record + front, from + m.body_offset, m.body_length);
        }
        bool expired = m.expires_ns != 0 && m.expires_ns <= sb_now_ns();
        if (SB_LOAD(&cell->word, SB_SEQ_CST) == word && SB_LOAD(sb_slot_header(b, t.slot), SB_SEQ_CST) == header) {
          if (!sound) return -(int64_t)SB_CORRUPT;
          if (!expired) {
            *position = at + 1 - q->base;
            return (int64_t)need;
          }
        } else {
          continue; /* it changed while we copied: look at this cell again */
        }
      }
      at++;
    }
  }
  *position = at - q->base;
  return -(int64_t)SB_EMPTY;
}
