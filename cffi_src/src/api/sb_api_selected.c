// SPDX-License-Identifier: Apache-2.0
/* Public calls: moving and removing the messages that a program selects. Each is found without the connection's lock, as
 * a browser finds it, and is then taken at its position. */
#include "sb_api.h"
#include "sb_move.h"
#include "sb_notify.h"

/* Enters the call for one message. SB_DELETED: a queue is closed. `target`: NULL = none. */
static sb_status enter(sb_queue *q, sb_queue *target) {
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK && (!sb_queue_is_open(q) || (target != NULL && !sb_queue_is_open(target)))) {
    sb_api_leave(q->c);
    status = SB_DELETED;
  }
  return status;
}

/* A walk over the messages that are ready when it comes to their lane. */
typedef struct {
  sb_queue *q;
  sb_program program;
  char *memory;
  uint64_t *position; /* of the caller: the sequence number from which to go on */
  uint64_t end;       /* of the lane: where it ended when the walk came to it; SB_ANY_POSITION: the walk begins */
} walk;

/* Finds the next selected message; *found: its position. SB_EMPTY: there is none. */
static sb_status find(walk *w, uint64_t *found) {
  sb_status status;
  while ((status = sb_api_find_selected(w->q, &w->program, w->memory, w->position, found)) == SB_OK) {
    unsigned lane = sb_position_lane(*found);
    if (w->end == SB_ANY_POSITION || sb_position_lane(w->end) != lane) {
      status = enter(w->q, NULL);
      if (status != SB_OK) break;
      w->end = sb_queue_end_of(w->q, *found);
      sb_api_leave(w->q->c);
    }
    if (*found < w->end) break;
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
  status = sb_move_at(q, target, position, size);
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

static sb_status remove_at(sb_queue *q, uint64_t position) {
  uint64_t token;
  sb_taken t;
  sb_status status = enter(q, NULL);
  if (status != SB_OK) {
    return status;
  }
  status = sb_holding_take(q->c, &token);
  if (status == SB_OK) {
    status = sb_take_at(q, position, SB_CELL_AVAILABLE, token, &t);
    if (status == SB_OK) {
      (void)sb_dispose(q, token, SB_REASON_PURGED);
      sb_notify_room_made(q->c, q->shm, q->slot);
    } else {
      sb_holding_give(q->c, token);
      (void)sb_limits_enforce(q); /* I42 of sb_queue.h */
    }
    if (status != SB_OK || sb_queue_may_hide(q)) sb_notify_work_arrived(q);
  }
  sb_api_leave(q->c);
  return status;
}

int64_t sb_queue_move_selected(sb_queue *q, sb_queue *target, uint64_t limit, uint64_t *bytes, const char *selector,
                               uint32_t selector_length, char *memory, uint64_t *position, sb_status *status) {
  walk w = {.q = q, .memory = memory, .position = position, .end = SB_ANY_POSITION};
  uint64_t moved = 0, found = 0, size = 0;
  *status = sb_program_open(selector, selector_length, &w.program) ? SB_OK : SB_INVALID;
  while (moved < limit && *bytes > 0 && *status == SB_OK) {
    uint64_t at = *position;
    *status = find(&w, &found);
    if (*status != SB_OK) break;
    *status = move_at(q, target, found, &size);
    if (*status == SB_OK) {
      moved++;
      *bytes -= size < *bytes ? size : *bytes;
    } else if (*status == SB_EMPTY) {
      *status = SB_OK; /* another process took it */
    } else {
      *position = at;
    }
  }
  if (*status == SB_EMPTY) *status = SB_OK;
  return (int64_t)moved;
}

int64_t sb_queue_purge_selected(sb_queue *q, const char *selector, uint32_t selector_length, char *memory,
                                uint64_t *position, sb_status *status) {
  walk w = {.q = q, .memory = memory, .position = position, .end = SB_ANY_POSITION};
  uint64_t removed = 0, found = 0;
  *status = sb_program_open(selector, selector_length, &w.program) ? SB_OK : SB_INVALID;
  while (*status == SB_OK) {
    uint64_t at = *position;
    *status = find(&w, &found);
    if (*status != SB_OK) break;
    *status = remove_at(q, found);
    removed += *status == SB_OK;
    if (*status == SB_EMPTY) {
      *status = SB_OK;
    } else if (*status != SB_OK) {
      *position = at;
    }
  }
  if (*status == SB_EMPTY) *status = SB_OK;
  return (int64_t)removed;
}
