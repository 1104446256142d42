// SPDX-License-Identifier: Apache-2.0
/* Public calls: what an administrator does with chosen messages of a queue. Each message is found without the connection's
 * lock, as a browser finds it, and is then taken at its position. */
#include <string.h>

#include "sb_api.h"
#include "sb_move.h"
#include "sb_notify.h"
#include "sb_schedule.h"

/* Enters the call for one message. SB_DELETED: a queue is closed. `target`: NULL = none. */
static sb_status enter(sb_queue *q, sb_queue *target) {
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK && (!sb_queue_is_open(q) || (target != NULL && !sb_queue_is_open(target)))) {
    sb_api_leave(q->c);
    status = SB_DELETED;
  }
  return status;
}

/* A walk over the messages that are there when it comes to their lane. */
typedef struct {
  sb_queue *q;
  sb_sought sought;
  uint64_t *position; /* of the caller: the sequence number from which to go on */
  uint64_t tail;      /* of the lane: where it ended when the walk came to it; SB_ANY_POSITION: the walk begins */
} walk;

/* Finds the next selected message; *found: its position. SB_EMPTY: there is none. */
static sb_status find(walk *w, uint64_t *found) {
  sb_status status;
  while ((status = sb_api_find_selected(w->q, &w->sought, w->position, found)) == SB_OK) {
    unsigned lane = sb_position_lane(*found);
    if (w->tail == SB_ANY_POSITION || sb_position_lane(w->tail) != lane) {
      status = enter(w->q, NULL);
      if (status != SB_OK) break;
      w->tail = sb_queue_end_of(w->q, *found);
      sb_api_leave(w->q->c);
    }
    if (*found < w->tail) break;
    if (lane == SB_LANES - 1) return SB_EMPTY;
    *w->position = sb_position_in(lane + 1, 0); /* it was put after the walk came to this lane */
  }
  return status;
}

static sb_status move_at(sb_queue *q, sb_queue *target, uint64_t position, uint64_t *size) {
  sb_status status = enter(q, target);
  if (status != SB_OK) {
    return status;
  }
  bool counts = sb_api_move_begins(q, target);
  status = sb_move_at(q, target, position, size);
  if (counts) sb_turns_move_ends(q->c);
  if (status != SB_OK || sb_queue_may_hide(q)) sb_notify_work_arrived(q);
  if (status == SB_OK) {
    (void)sb_limits_enforce(target);
    sb_notify_work_arrived(target);
    sb_notify_room_made(q->c, q->shm, q->slot);
  } else {
    sb_notify_room_in(q->c, target->shm, target->slot);
  }
  sb_api_leave(q->c);
  return status;
}

/* Lock held. Takes the ready message at `position`; *token lists it. After a failure no message is taken. */
static sb_status take_at(sb_queue *q, uint64_t position, uint64_t *token, sb_taken *t) {
  sb_status status = sb_holding_take(q->c, token);
  if (status != SB_OK) {
    return status;
  }
  status = sb_take_at(q, position, SB_CELL_AVAILABLE, *token, t);
  if (status != SB_OK) {
    sb_holding_give(q->c, *token);
    (void)sb_limits_enforce(q); /* I42 of sb_queue.h */
    sb_notify_work_arrived(q);
  } else if (sb_queue_may_hide(q)) {
    sb_notify_work_arrived(q);
  }
  return status;
}

/* Lock held. Takes the scheduled message at `position`; *token lists it. SB_EMPTY: it is not scheduled any more, or it is
 * dead. If the caller is killed before it has ended the message, the reaper makes it ready (intent DUE), or it waits on
 * for the end of its redelivery delay. */
static sb_status take_scheduled_at(sb_queue *q, uint64_t position, uint64_t *token, sb_taken *t) {
  sb_status status = sb_holding_take(q->c, token);
  if (status == SB_OK && !sb_schedule_take(q, position, SB_CELL_SCHEDULED, *token, t)) {
    sb_holding_give(q->c, *token);
    status = SB_EMPTY;
  } else if (status == SB_OK && sb_side_why_of(t->side) != SB_WHY_ALIVE) { /* it became ready, and died, meanwhile */
    (void)sb_park_dead(q, *token, sb_side_why_of(t->side));
    status = SB_EMPTY;
  }
  return status;
}

static sb_status end_at(sb_queue *q, uint64_t position, bool scheduled, sb_reason reason) {
  uint64_t token;
  sb_taken t;
  sb_status status = enter(q, NULL);
  if (status != SB_OK) {
    return status;
  }
  status = scheduled ? take_scheduled_at(q, position, &token, &t) : take_at(q, position, &token, &t);
  if (status == SB_OK) {
    (void)sb_dispose(q, token, reason);
    sb_notify_room_made(q->c, q->shm, q->slot);
  }
  sb_api_leave(q->c);
  return status;
}

/* Makes the scheduled message at `position` ready. */
static sb_status deliver_at(sb_queue *q, uint64_t position) {
  uint64_t token;
  sb_taken t;
  sb_status status = enter(q, NULL);
  if (status != SB_OK) {
    return status;
  }
  status = take_scheduled_at(q, position, &token, &t);
  if (status == SB_OK) {
    sb_schedule_make_ready(q, token);
    SB_CRASHPOINT("queue.manage.delivered");
    (void)SB_ADD(&q->shm->early, 1, SB_SEQ_CST); /* P32 of sb_following.h: before the notification */
    sb_notify_work_arrived(q);
    sb_notify_room_made(q->c, q->shm, q->slot); /* a ring may have evicted some */
  }
  sb_api_leave(q->c);
  return status;
}

/* The time at which a message ends that lives for `life_ns` from its publish. */
static uint64_t end_of_life(const sb_message_shm *m, uint64_t life_ns) {
  uint64_t now = sb_now_ns(), wall = sb_wall_ns(), age = wall > m->timestamp_ns ? wall - m->timestamp_ns : 0;
  return age < life_ns ? now + (life_ns - age) : now;
}

static sb_status limit_at(sb_queue *q, uint64_t position, uint64_t life_ns) {
  uint64_t token;
  sb_taken t;
  sb_status status = enter(q, NULL);
  if (status != SB_OK) {
    return status;
  }
  status = take_at(q, position, &token, &t);
  if (status == SB_OK) {
    uint64_t end = end_of_life(t.message, life_ns);
    if (end <= sb_now_ns()) {
      (void)sb_dispose(q, token, SB_REASON_EXPIRED);
      sb_notify_room_made(q->c, q->shm, q->slot);
    } else {
      status = sb_schedule_limit(q, &t, end) ? SB_OK : SB_EMPTY;
      if (status == SB_OK) sb_api_ring_housekeeper(q->c, t.message);
      (void)sb_release_unmarked(q, token);
      sb_api_returned(q);
    }
  }
  sb_api_leave(q->c);
  return status;
}

static sb_status deal_with(sb_queue *q, sb_manage *work, uint64_t position) {
  uint64_t size = 0;
  sb_status status = SB_INVALID;
  switch (work->action) {
    case SB_MANAGE_MOVE:
      status = move_at(q, work->target, position, &size);
      if (status == SB_OK) work->bytes -= size < work->bytes ? size : work->bytes;
      break;
    case SB_MANAGE_REMOVE: status = end_at(q, position, work->scheduled, SB_REASON_PURGED); break;
    case SB_MANAGE_EXPIRE: status = end_at(q, position, work->scheduled, SB_REASON_EXPIRED); break;
    case SB_MANAGE_DELIVER: status = deliver_at(q, position); break;
    case SB_MANAGE_LIMIT: status = limit_at(q, position, work->life_ns); break;
  }
  return status;
}

int64_t sb_queue_manage(sb_queue *q, sb_manage *work, sb_status *status) {
  walk w = {.q = q, .position = &work->position, .tail = SB_ANY_POSITION};
  uint64_t done = 0, found = 0;
  bool ends = work->action == SB_MANAGE_REMOVE || work->action == SB_MANAGE_EXPIRE;
  bool scheduled = work->action == SB_MANAGE_DELIVER || (ends && work->scheduled);
  w.sought =
      (sb_sought){.memory = work->memory, .end = work->end, .states = scheduled ? SB_STATE_SCHEDULED : SB_STATE_READY};
  *status = sb_program_open(work->selector, work->selector_length, &w.sought.selector) ? SB_OK : SB_INVALID;
  while (work->limit > 0 && (work->action != SB_MANAGE_MOVE || work->bytes > 0) && *status == SB_OK) {
    uint64_t at = work->position;
    *status = find(&w, &found);
    if (*status != SB_OK) break;
    *status = deal_with(q, work, found);
    if (*status == SB_OK) {
      done++;
      work->limit--;
    } else if (*status == SB_EMPTY) {
      *status = SB_OK; /* another process took it */
    } else {
      work->position = at;
    }
  }
  if (*status == SB_EMPTY) *status = SB_OK;
  return (int64_t)done;
}

int64_t sb_queue_take(sb_queue *q, uint64_t sequence, char *buffer) {
  const sb_sought sought = {.memory = buffer, .end = sequence + 1, .states = SB_STATE_READY};
  uint64_t position, token;
  sb_taken t;
  sb_status status = sb_api_find_selected(q, &sought, &sequence, &position);
  if (status == SB_OK) status = enter(q, NULL);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  status = take_at(q, position, &token, &t);
  int64_t length = -(int64_t)status;
  if (status == SB_OK) {
    length = sb_api_plausible(q->c->b, &t) ? sb_api_record(q, &t, token, 0, buffer) : -(int64_t)SB_CORRUPT;
    if (length < 0) length = -(int64_t)sb_api_drop_corrupt(q, token);
  }
  sb_api_leave(q->c);
  return length;
}

void sb_queue_put_back(sb_queue *q, const char *record) {
  sb_record r;
  memcpy(&r, record, sizeof r);
  if (sb_api_enter(q->c) == SB_OK) {
    if (q->ledger != NULL) {
      (void)sb_release_unmarked(q, r.tag & SB_TAG_TOKEN);
      sb_api_returned(q);
    }
    sb_api_leave(q->c);
  }
}

bool sb_selector_selects(const char *selector, uint32_t selector_length, const char *properties,
                         uint32_t properties_length, uint8_t priority, uint64_t timestamp_ns) {
  sb_program program;
  sb_properties p = {.at = (const uint8_t *)properties,
                     .length = properties_length,
                     .priority = priority,
                     .timestamp_ns = timestamp_ns};
  return selector_length > 0 && sb_program_open(selector, selector_length, &program) &&
         sb_selector_run(&program, &p) == SB_SELECTED_YES;
}
