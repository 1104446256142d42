// SPDX-License-Identifier: Apache-2.0
/* Public calls: settling messages, and views of bodies that are read in place. */
#include <string.h>

#include "sb_api.h"

static uint64_t token_of(const char *record) {
  uint64_t tag;
  memcpy(&tag, record, sizeof tag);
  return tag & SB_TAG_TOKEN;
}

sb_status sb_queue_settle(sb_queue *q, const char *record, sb_disposition disposition) {
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK) {
    status = sb_api_end(q, token_of(record), disposition);
    sb_api_leave(q->c);
  }
  return status;
}

sb_status sb_queue_settle_many(sb_queue *q, const char *records, const uint32_t *index, uint32_t stride, uint32_t count,
                               sb_disposition disposition) {
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return status;
  }
  for (uint32_t i = 0; i < count; i++) { /* a message that was settled before is passed over */
    (void)sb_api_end(q, token_of(records + index[(uint64_t)stride * i]), disposition);
  }
  sb_api_leave(q->c);
  return SB_OK;
}

/* Finds a message that the connection holds. SB_OK: the lock of the connection is held now. SB_SETTLED: the connection
 * does not hold, under that tag, the message with that sequence number and body address. */
static sb_status find_held(sb_connection *c, uint64_t tag, uint64_t sequence, uint64_t address, sb_taken *t) {
  if (sb_closed(c) || sb_forked(c->b)) {
    return sb_closed(c) ? SB_CLOSED : SB_FORKED;
  }
  sb_lock(c); /* not sb_api_enter: works also while the broker is being purged */
  uint64_t token = tag & SB_TAG_TOKEN;
  bool same = false;
  if (!sb_closed(c) && sb_api_held(c, token, t)) {
    uint32_t queue = sb_holding_slot(SB_LOAD(&sb_holding_at(c->b, token)->what, SB_RELAXED));
    same = sb_lanes_sequence(c->b, queue, t->position) == sequence && sb_api_address(t->message) == address;
  }
  if (!same) sb_unlock(c);
  return same ? SB_OK : SB_SETTLED;
}

sb_status sb_view_begin(sb_connection *c, uint64_t tag, uint64_t sequence, uint64_t address, uint64_t *view) {
  sb_taken t;
  sb_status status = find_held(c, tag, sequence, address, &t);
  if (status == SB_OK) {
    status = sb_api_view(c, &t, view);
    sb_unlock(c);
  }
  return status;
}

/* The place stays valid while the connection holds the message. A later sb_place_copy_body fails if the place was
 * not valid during the copy. */
sb_status sb_view_place(sb_connection *c, uint64_t tag, uint64_t sequence, uint64_t address, sb_place *place) {
  sb_taken t;
  sb_status status = find_held(c, tag, sequence, address, &t);
  if (status == SB_OK) {
    *place = (sb_place){.slot = t.slot, .generation = t.gen, .length = t.message->body_length};
    sb_unlock(c);
  }
  return status;
}

sb_status sb_view_copy(sb_connection *c, uint64_t view, char *to, uint64_t length) {
  if (sb_forked(c->b)) {
    return SB_FORKED;
  }
  sb_lock(c);
  uint32_t lent = sb_reading_slot(c, view), slot = lent != 0 ? lent : sb_view_slot(c, view);
  sb_unlock(c); /* the copy needs no lock: the view keeps the slot, and no process writes a published body */
  const sb_message_shm *m = slot != 0 ? sb_slot_at(c->b, slot) : NULL;
  bool copied = m != NULL && m->body_length == length && (m->flags & SB_MESSAGE_IN_PARTS) != 0 &&
                sb_parts_copy(c->b, slot, sb_api_names(m), to, length);
  return copied ? SB_OK : SB_CORRUPT;
}

/* Ends a view. Works after the connection was closed, too: the connection keeps its record as long as it has views.
 * True if the connection is closed. */
bool sb_view_end(sb_connection *c, uint64_t view) {
  if (sb_forked(c->b)) {
    return false;
  }
  sb_lock(c);
  sb_api_view_drop(c, view);
  sb_notify_room_made(c, NULL, 0);
  bool closed = sb_closed(c);
  sb_unlock(c);
  return closed;
}
