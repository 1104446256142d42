// SPDX-License-Identifier: Apache-2.0
/* Public calls: putting messages. */
#include <stdlib.h>
#include <string.h>

#include "sb_api.h"
#include "sb_closing.h"
#include "sb_disposal.h"
#include "sb_life.h"
#include "sb_release.h"
#include "sb_values.h"

static const sb_put_options NO_OPTIONS;

static sb_status check(sb_queue *q, uint64_t length) {
  if (!sb_queue_is_open(q)) {
    return SB_DELETED;
  }
  return length > SB_MAX_BODY ? SB_TOO_LARGE : SB_OK;
}

/* Takes room, unless a producer that needs more has its turn (sb_turn.h). */
SB_HOT sb_status admit(sb_queue *q, uint64_t length) {
  bool turn = sb_queue_tracks(q->shm) && sb_turn_there(q->shm);
  if (turn && sb_turn_stops(q->shm, 1, length)) {
    return SB_FULL;
  }
  sb_status status = sb_limits_admit(q, length);
  if (turn && status == SB_OK && sb_turn_ends(q->shm, 1, length)) {
    sb_notify_room_in(q->c, q->shm, q->slot); /* wakes one of those that waited for the turn */
  }
  return status;
}

static bool is_full(sb_status status) { return status == SB_FULL || status == SB_DONE || status == SB_REJECTED; }

/* Returns the value whose room was taken for a message that does not come. A consumer may have found nothing meanwhile,
 * and a newer value may have come, which replaces this one at once. */
static void give_value_back(sb_queue *q, uint64_t replaced) {
  if (sb_release_unmarked(q, replaced) == SB_OK) sb_api_returned(q);
}

/* In a full queue with last values: takes the ready value that the message replaces, and its room. *replaced: the holding
 * of that value, which ends when the message is in the queue. */
static sb_status admit_in_place(sb_queue *q, uint64_t length, const sb_put_options *o, sb_status full,
                                uint64_t *replaced) {
  sb_properties p = {.at = (const uint8_t *)o->properties, .length = o->properties_length};
  sb_value_key key;
  if (o->delay_ns != 0 || p.length == 0 || !sb_value_key_read(&p, q->value_key, q->value_key_length, &key) ||
      !sb_values_take(q, &key, replaced)) {
    if (sb_limits_enforce(q) > 0) sb_notify_room_made(q->c, q->shm, q->slot); /* I42 of sb_queue.h */
    return full;
  }
  SB_CRASHPOINT("api.put.room_taken");
  sb_status status = admit(q, length);
  if (status != SB_OK) {
    give_value_back(q, *replaced);
    *replaced = 0;
  }
  return status;
}

/* Takes room under the queue's limits, allocates a slot, and writes what precedes the body. The caller has set c->use,
 * the use of allocations (sb_reserve.h). `id`: of the message, if the queue remembers ids. On failure, nothing is taken,
 * and c->use is SB_USE_DRAIN again.
 * SB_DONE: the queue is full, and its overflow is "drop". SB_REJECTED: it is full, and rejects. `replaced`: as for
 * admit_in_place; NULL: no value gives its room. `looks`: as for put_as. */
SB_HOT sb_status prepare(sb_queue *q, uint64_t length, const sb_put_options *o, sb_id id, sb_reservation *r,
                         uint64_t *replaced, const bool looks) {
  sb_connection *c = q->c;
  if (looks) {
    r->id_low = id.low;
    r->id_high = id.high;
  }
  uint64_t need = sb_api_body_offset(length, o, 0) + length;
  sb_status status = sb_api_prefix_bytes(o) > SB_MAX_PREFIX ? SB_INVALID : check(q, length);
  if (status == SB_OK) status = o->dead == 0 ? admit(q, length) : sb_limits_admit_dead(q, length);
  if (looks && is_full(status) && replaced != NULL && sb_queue_has_values(q))
    status = admit_in_place(q, length, o, status, replaced);
  if (status == SB_OK) {
    status = sb_api_claim_slot(c, need, r);
    if (status != SB_OK) status = sb_api_claim_elsewhere(c, status, length, o, 0, r);
    if (status != SB_OK) sb_limits_unadmit(q, length);
    if (looks && status != SB_OK && replaced != NULL && *replaced != 0) give_value_back(q, *replaced);
  }
  if (status != SB_OK) {
    c->use = SB_USE_DRAIN;
    sb_notify_room_in(c, q->shm, q->slot); /* wakes a producer that found no room while this call had it */
    return status;
  }
  SB_CRASHPOINT("api.put.allocated");
  _Static_assert(SB_TTL_NOW == SB_LIFE_NONE, "the life of 0 of the options");
  sb_api_fill(c, r, length, o, sb_life_of(q, o->ttl_ns), 0);
  return SB_OK;
}

static void take_back(sb_queue *q, sb_reservation *r) {
  sb_limits_unadmit(q, r->size);
  sb_api_give_slot(q->c, r);
  sb_notify_room_in(q->c, q->shm, q->slot); /* as in prepare */
}

/* Appends the message of a reservation to the queue. The caller has set c->use, the use of allocations (sb_reserve.h);
 * after the append, it is SB_USE_DRAIN again. *gone: a deletion of a queue with priorities was decided before the put
 * looked (I79 of sb_closing.h), so the message is gone, and the put fails with SB_DELETED. `replaces`: the holding of the
 * value that gave its room; 0: none did. `looks`: as for put_as. */
SB_HOT sb_status publish(sb_queue *q, sb_reservation *r, uint64_t replaces, bool *gone, const bool looks) {
  sb_message_shm *m = sb_slot_at(q->c->b, r->slot);
  uint64_t position, timer = m->due_ns | m->expires_ns;
  bool once = looks && (r->id_low | r->id_high) != 0;
  bool grouped = looks && (SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_GROUPS) != 0;
  uint32_t group = grouped ? m->group_hash : 0; /* as for `timed` */
  sb_message_shm timed;                         /* a copy: after the append, a consumer may free the message */
  sb_value_key key;
  bool scheduled = timer != 0 && m->due_ns != 0;
  bool keyed = looks && sb_queue_has_values(q) && sb_values_key_of(q, r->slot, m, &key);
  if (timer != 0) timed = *m;
  sb_status status = keyed && !once ? sb_values_prepare(q, &key) : SB_OK; /* a commit prepares by itself */
  if (status == SB_OK) {
    status = once ? sb_api_enqueue_once(q, r)
                  : sb_queue_enqueue(q, r->slot, r->gen, r->size, scheduled, r->token, &position);
  }
  q->c->use = SB_USE_DRAIN;
  if (status != SB_OK) {
    if (sb_limits_enforce(q) > 0) sb_notify_room_made(q->c, q->shm, q->slot); /* I42 of sb_queue.h */
    return status;
  }
  unsigned replaced = looks && replaces != 0;
  if (looks && replaces != 0) sb_values_end(q, replaces);
  if (!once) {
    if (keyed && !scheduled) replaced += sb_values_came(q, position, &key);
    sb_holding_give(q->c, r->token);
    sb_limits_published(q, r->size);
  }
  if (replaced > 0 || (once && keyed)) sb_notify_room_made(q->c, q->shm, q->slot);
  /* here, since the lock may be dropped below, and the connection be closed then */
  *gone = sb_queue_has_lanes(q) && sb_closing_ends(q->c->b, q->slot);
  if (*gone) (void)sb_disposal_empty(q);
  SB_CRASHPOINT("api.put.enqueued");
  if (timer != 0) sb_api_ring_housekeeper(q->c, &timed);
  /* a message that is not ready needs no room any more: wakes a producer that found none while this call had it */
  if (timer != 0 && timed.due_ns != 0) sb_notify_room_in(q->c, q->shm, q->slot);
  if (sb_queue_tracks(q->shm) && sb_queue_evicts(q->shm)) {
    sb_api_keep_bound(q);
    if (sb_closed(q->c)) return SB_OK;
  }
  if (grouped) {
    sb_notify_group_arrived(q, group);
  } else {
    sb_notify_work_arrived(q);
  }
  return SB_OK;
}

SB_HOT sb_status write(const sb_queue *q, const sb_reservation *r, const char *body, uint64_t length) {
  if (r->scattered) {
    return sb_api_write_parts(q->c, r, body) ? SB_OK : SB_CORRUPT;
  }
  memcpy(r->body, body, length);
  return SB_OK;
}

/* Puts one message. Lock held, but dropped to copy a long body, and to reap a killed process (sb_api_keep_bound). `looks`:
 * the queue may remember ids, keep last values or have message groups. A constant, so that the put into another queue has none of that. */
SB_HOT sb_status put_as(sb_queue *q, const char *body, uint64_t length, const sb_put_options *o, const bool looks) {
  sb_reservation r;
  sb_connection *c = q->c;
  uint64_t replaces = 0;
  sb_id id = looks ? sb_api_id(q, o) : SB_NO_ID;
  if (looks && sb_api_is_duplicate(q, id)) {
    return SB_OK;
  }
  c->use = q->use;
  sb_status status = prepare(q, length, o, id, &r, &replaces, looks);
  if (status == SB_DONE) {
    sb_ledger_count(q->ledger, SB_COUNT_REFUSED, 1);
    return SB_OK;
  }
  if (status != SB_OK) {
    return status;
  }
  if (length > SB_UNLOCKED_COPY) {
    q->busy++;
    c->use = SB_USE_DRAIN;
    sb_api_leave(c);
    status = write(q, &r, body, length);
    sb_lock(c);
    c->use = q->use;
    q->busy--;
    if (status == SB_OK && sb_closed(c)) status = SB_CLOSED;
  } else {
    status = write(q, &r, body, length);
  }
  bool gone = false;
  if (status == SB_OK) status = publish(q, &r, replaces, &gone, looks);
  if (status != SB_OK) {
    c->use = SB_USE_DRAIN;
    if (looks && replaces != 0) give_value_back(q, replaces);
    take_back(q, &r);
  }
  if (looks && status == SB_DUPLICATE) { /* another put of the id was faster than this one */
    sb_duplicates_count(q);
    return SB_OK;
  }
  return gone ? SB_DELETED : status;
}

static __attribute__((noinline)) sb_status put_looking(sb_queue *q, const char *body, uint64_t length,
                                                       const sb_put_options *o) {
  return put_as(q, body, length, o, true);
}

SB_HOT sb_status put_one(sb_queue *q, const char *body, uint64_t length, const sb_put_options *o) {
  bool looks = (SB_LOAD(&q->shm->flags, SB_RELAXED) & (SB_QUEUE_IDS | SB_QUEUE_LAST_VALUE | SB_QUEUE_GROUPS)) != 0;
  return looks ? put_looking(q, body, length, o) : put_as(q, body, length, o, false);
}

sb_status sb_queue_put_with(sb_queue *q, const char *body, uint64_t length, const sb_put_options *o) {
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK) {
    status = put_one(q, body, length, o);
    sb_api_leave(q->c);
  }
  return status;
}

sb_status sb_queue_put(sb_queue *q, const char *body, uint64_t length) {
  return sb_queue_put_with(q, body, length, &NO_OPTIONS);
}

/* Puts the next message of a call that has put `done` messages. The put of the previous message may have dropped the
 * lock, to keep the bound or to copy a long body. So the connection may be closed now. */
static sb_status put_next(sb_queue *q, uint32_t done, const char *body, uint64_t length, const sb_put_options *o) {
  return done > 0 && sb_closed(q->c) ? SB_CLOSED : put_one(q, body, length, o);
}

int64_t sb_queue_put_many(sb_queue *q, const sb_piece *pieces, uint32_t count, const sb_put_options *o,
                          sb_status *status) {
  uint32_t done = 0;
  *status = sb_api_enter(q->c);
  if (*status != SB_OK) {
    return 0;
  }
  while (done < count && (*status = put_next(q, done, pieces[done].data, pieces[done].length, o)) == SB_OK) done++;
  sb_api_leave(q->c);
  return done;
}

static uint32_t text_at(const sb_column *column, uint32_t row, const char **text) {
  if (column->ends == NULL) return 0;
  *text = column->bytes + column->ends[row];
  return (uint32_t)(column->ends[row + 1] - column->ends[row]);
}

int64_t sb_queue_put_columns(sb_queue *q, const sb_columns *columns, uint32_t row, uint32_t count, sb_status *status) {
  uint32_t done = 0;
  *status = sb_api_enter(q->c);
  if (*status != SB_OK) {
    return 0;
  }
  for (; done < count; done++) {
    sb_put_options o = NO_OPTIONS;
    const char *body = NULL;
    uint32_t at = row + done, length = text_at(&columns->body, at, &body);
    o.key_length = text_at(&columns->key, at, &o.key);
    o.properties_length = text_at(&columns->properties, at, &o.properties);
    *status = put_next(q, done, body, length, &o);
    if (*status != SB_OK) break;
  }
  sb_api_leave(q->c);
  return done;
}

/* ---- reservations ---- */

/* If the body will go into parts, allocates private memory, into which the application writes the body. */
static sb_status borrow(sb_reservation *r) {
  if (r->scattered) r->body = malloc(r->size > 0 ? r->size : 1);
  return r->body != NULL ? SB_OK : SB_SYSTEM;
}
static void give_back(sb_reservation *r) {
  if (r->scattered) free(r->body);
  r->body = NULL;
}

sb_status sb_reservation_begin(sb_queue *q, uint64_t length, const sb_put_options *o, sb_reservation *r) {
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK) {
    q->c->use = q->use;
    status = prepare(q, length, o, sb_api_id(q, o), r, NULL, true);
    if (status == SB_DONE) status = SB_FULL; /* no body is written yet that could be dropped: the caller waits */
    q->c->use = SB_USE_DRAIN;
    if (status == SB_OK && (status = borrow(r)) != SB_OK) take_back(q, r);
    q->busy += status == SB_OK;
    r->admitted = r->kept = status == SB_OK;
    sb_api_leave(q->c);
  }
  return status;
}

sb_status sb_reservation_publish(sb_queue *q, sb_reservation *r) {
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK) {
    if (!r->admitted || !r->kept) status = SB_INVALID;
    if (status == SB_OK && r->scattered && !sb_api_write_parts(q->c, r, r->body)) status = SB_CORRUPT;
    if (status == SB_OK) q->c->use = q->use;
    bool gone = false;
    if (status == SB_OK) status = publish(q, r, 0, &gone, true);
    if (status == SB_DUPLICATE) {
      sb_duplicates_count(q);
      take_back(q, r);
      status = SB_OK;
    }
    if (status == SB_OK) {
      give_back(r);
      r->admitted = r->kept = false;
      q->busy--;
      if (gone) status = SB_DELETED;
    }
    sb_api_leave(q->c);
  }
  return status;
}

/* Copies exchange, key and properties of a reservation into `names`, one after the other, and makes *o point to
 * them. */
static sb_status read_names(const sb_queue *q, const sb_reservation *r, char *names, sb_put_options *o) {
  const sb_message_shm *m = sb_slot_at(q->c->b, r->slot);
  bool good = true;
  if (r->scattered) {
    good = sb_parts_copy(q->c->b, r->slot, 0, names, sb_api_names(m));
  } else {
    memcpy(names, m + 1, sb_api_names(m));
  }
  *o = (sb_put_options){.priority = m->priority,
                        .exchange = names,
                        .exchange_length = (uint8_t)m->exchange_length,
                        .key = names + m->exchange_length,
                        .key_length = m->key_length,
                        .properties = names + m->exchange_length + m->key_length,
                        .properties_length = m->properties_length};
  return good ? SB_OK : SB_CORRUPT;
}

sb_status sb_reservation_copy(sb_queue *q, sb_reservation *r, sb_reservation *copy) {
  const sb_message_shm *from = sb_slot_at(q->c->b, r->slot);
  sb_put_options o;
  char *names = malloc(sb_api_names(from) + 1);
  sb_status status = names != NULL ? read_names(q, r, names, &o) : SB_SYSTEM;
  if (status == SB_OK) status = sb_api_enter(q->c);
  if (status != SB_OK) {
    free(names);
    return status;
  }
  q->c->use = q->use;
  status = sb_api_claim_slot(q->c, sb_api_body_offset(r->size, &o, 0) + r->size, copy);
  if (status != SB_OK) status = sb_api_claim_elsewhere(q->c, status, r->size, &o, 0, copy);
  q->c->use = SB_USE_DRAIN;
  if (status == SB_OK) {
    sb_api_fill(q->c, copy, r->size, &o, 0, 0);
    sb_message_shm *m = sb_slot_at(q->c->b, copy->slot);
    m->expires_ns = from->expires_ns;
    m->due_ns = from->due_ns;
    m->timestamp_ns = from->timestamp_ns;
    copy->id_low = r->id_low;
    copy->id_high = r->id_high;
    if ((status = borrow(copy)) != SB_OK) sb_api_give_slot(q->c, copy);
  }
  if (status == SB_OK) {
    copy->admitted = r->admitted;
    copy->kept = true;
    r->admitted = false;
  }
  sb_api_leave(q->c);
  free(names);
  if (status == SB_OK && r->size > 0) memcpy(copy->body, r->body, r->size);
  return status;
}

/* Lock held. Frees the slot of a reservation, unless a call before freed it or published its message. */
static void end_keeping(sb_connection *c, sb_reservation *r) {
  if (r->kept) {
    sb_api_give_slot(c, r);
    give_back(r);
    r->kept = false;
  }
}

void sb_reservation_abandon(sb_queue *q, sb_reservation *r, bool viewed) {
  if (!sb_forked(q->c->b)) {
    sb_lock(q->c);
    if (r->admitted) {
      if (q->ledger != NULL) sb_limits_unadmit(q, r->size); /* else sb_connection_release detached q */
      q->busy--;
      r->admitted = false;
    }
    if (!viewed) end_keeping(q->c, r);
    sb_notify_room_made(q->c, q->shm, q->slot);
    sb_unlock(q->c);
  }
}

void sb_reservation_end_view(sb_connection *c, sb_reservation *r) {
  if (!sb_forked(c->b)) {
    sb_lock(c);
    end_keeping(c, r);
    sb_notify_room_made(c, NULL, 0);
    sb_unlock(c);
  }
}

sb_status sb_queue_wait_for_room(sb_queue *q, bool memory, uint64_t bytes, uint64_t deadline_ns) {
  sb_status status = sb_usable(q->c);
  return status == SB_OK ? sb_waiter_room(q, memory, bytes, deadline_ns) : status;
}

sb_status sb_queue_wait_for_batch(sb_queue *q, uint32_t count, uint64_t bytes, uint64_t deadline_ns) {
  sb_status status = sb_usable(q->c);
  return status == SB_OK ? sb_waiter_batch(q, count, bytes, deadline_ns) : status;
}
