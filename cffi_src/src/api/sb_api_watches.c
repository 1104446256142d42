// SPDX-License-Identifier: Apache-2.0
/* Public calls: watches, for waiting without a thread. */
#include <stdlib.h>

#include "sb_api.h"
#include "sb_watch.h"

static sb_watch *watch_of(sb_target *t) { return (sb_watch *)(void *)t; /* `target` is its first field */ }

static bool turn(sb_target *t) {
  sb_watch_tell(watch_of(t));
  return false;
}
static bool wants_work(sb_target *t) { return sb_watch_was_told(watch_of(t)); }
static void signal_one(sb_target *t) { sb_watch_tell(watch_of(t)); }
static void end(sb_target *t) { sb_watch_end(watch_of(t)); }
static const sb_target_kind WATCHES = {.turn = turn, .wants_work = wants_work, .signal = signal_one, .end = end};

sb_watch *sb_watch_open(sb_queue *q, bool room, int event_fd, sb_status *status) {
  sb_watch *w = calloc(1, sizeof *w);
  *status = w == NULL ? SB_SYSTEM : sb_api_enter(q->c);
  if (*status == SB_OK) {
    *w = (sb_watch){.target = {.c = q->c, .kind = &WATCHES}, .q = q, .room = room, .event_fd = event_fd};
    *status = sb_watch_begin(w);
    if (*status == SB_OK) (void)SB_ADD(&q->c->handles, 1u, SB_RELAXED);
    sb_api_leave(q->c);
  }
  if (*status != SB_OK) {
    free(w);
    return NULL;
  }
  return w;
}

sb_status sb_watch_arm(sb_watch *w, uint64_t bytes) {
  sb_status status = sb_api_enter(w->target.c);
  if (status == SB_OK) {
    status = sb_watch_want(w, bytes);
    sb_api_leave(w->target.c);
  }
  return status;
}

void sb_watch_disarm(sb_watch *w) {
  if (sb_api_enter(w->target.c) == SB_OK) {
    sb_watch_leave(w);
    sb_api_leave(w->target.c);
  }
}

/* Removes the watch from its connection, also while the broker is being purged. Does nothing in a forked child, where
 * the lock may be taken for ever. */
void sb_watch_close(sb_watch *w) {
  sb_connection *c = w->target.c;
  if (!sb_closed(c) && !sb_forked(c->b)) {
    sb_lock(c);
    if (!sb_closed(c)) sb_watch_end(w);
    sb_unlock(c);
  }
}

void sb_watch_free(sb_watch *w) {
  sb_connection *c = w->target.c;
  sb_watch_close(w);
  sb_connection_free(c);
  free(w);
}
