// SPDX-License-Identifier: Apache-2.0
/* Public calls: queues as a whole. */
#include "sb_api.h"
#include "sb_disposal.h"
#include "sb_move.h"
#include "sb_move_page.h"
#include "sb_settings.h"
#include "sb_topology.h"

#include <stdlib.h>
#include <string.h>

sb_status sb_queue_find(sb_connection *c, const char *name, uint32_t length, uint32_t *slot) {
  sb_status status = sb_usable(c);
  if (status == SB_OK) {
    *slot = sb_directory_find(c->b, name, length);
    status = *slot == 0 ? SB_NOT_FOUND : SB_OK;
  }
  return status;
}

/* Creates a queue. If there is no memory, frees deleted queues, as the housekeeper would do later, and tries again. */
static sb_status create(sb_connection *c, const char *name, uint32_t length, const sb_settings *settings,
                        uint32_t *slot) {
  c->use = SB_USE_BOOKS;
  sb_status status = sb_directory_create(c, name, length, settings, slot);
  c->use = SB_USE_DRAIN;
  if (status == SB_NO_MEMORY) {
    (void)sb_directory_sweep(c);
    c->use = SB_USE_BOOKS;
    status = sb_directory_create(c, name, length, settings, slot);
    c->use = SB_USE_DRAIN;
  }
  return status;
}

sb_status sb_queue_declare(sb_connection *c, const char *name, uint32_t length, const sb_settings *settings,
                           uint64_t deadline_ns, uint32_t *slot, int32_t *holder) {
  sb_status status = settings->texts_length > SB_TEXTS_MAX ? SB_INVALID : sb_usable(c);
  if (status != SB_OK || (status = sb_topology_lock(c->b, deadline_ns, holder)) != SB_OK) {
    return status;
  }
  sb_lock(c);
  sb_topology_finish(c);
  *slot = sb_directory_find(c->b, name, length);
  status = *slot != 0 ? SB_EXISTS : create(c, name, length, settings, slot);
  sb_unlock(c);
  sb_topology_unlock(c->b, true);
  return status;
}

sb_status sb_topology_begin(sb_connection *c, uint64_t deadline_ns, int32_t *holder) {
  sb_status status = sb_usable(c);
  if (status == SB_OK) status = sb_topology_lock(c->b, deadline_ns, holder);
  if (status == SB_OK) {
    sb_lock(c);
    sb_topology_finish(c);
    sb_unlock(c);
  }
  return status;
}

void sb_topology_end(sb_connection *c) {
  if (!sb_forked(c->b)) sb_topology_unlock(c->b, true);
}

/* Called by the holder of the topology lock that has deleted a queue, after it has removed the bindings to the queue:
 * nothing is left to do for the next holder (SB_CHANGE_UNBIND of sb_topology.h). */
void sb_topology_unbound(sb_connection *c) {
  if (!sb_forked(c->b)) SB_STORE(&c->b->header->topology_intent, 0, SB_RELEASE);
}

uint64_t sb_topology_journal(sb_connection *c) { return SB_LOAD(&c->b->header->journal, SB_ACQUIRE); }

void sb_topology_journal_commit(sb_connection *c, uint64_t word) {
  SB_STORE(&c->b->header->journal, word, SB_RELEASE); /* release: the bytes that `word` counts were written before */
}

uint64_t sb_topology_version(sb_connection *c) {
  sb_header_shm *h = sb_closed(c) ? NULL : c->b->header;
  return h == NULL ? 0 : SB_LOAD(&h->topology_epoch, SB_ACQUIRE) + SB_LOAD(&h->journal, SB_ACQUIRE);
}

uint32_t sb_topology_queues_ended(sb_connection *c) {
  return sb_usable(c) == SB_OK ? SB_LOAD(&c->b->header->queues_ended, SB_ACQUIRE) : 0;
}

void sb_queue_touch(sb_connection *c, uint32_t slot) {
  if (sb_api_enter(c) == SB_OK) {
    sb_queue_shm *q = sb_slab_queue(c->b, slot);
    if (q != NULL) sb_lifetime_used(q);
    sb_api_leave(c);
  }
}

/* Ends a queue whose owner is gone (I73 of sb_lifetime.h), and detaches `q`. Returns SB_DELETED. If there is no memory
 * for the CLOSING cell (sb_closing.h), the queue stays open: returns SB_GROW or SB_NO_MEMORY. */
static sb_status end_orphan(sb_queue *q) {
  bool stays = !sb_lifetime_end(q, 0) && sb_queue_is_open(q);
  sb_queue_detach(q);
  if (!stays) {
    return SB_DELETED;
  }
  return sb_chunk_may_grow(q->c->b) ? SB_GROW : SB_NO_MEMORY;
}

static sb_status use_groups(sb_queue *q) {
  sb_groups *groups = sb_handle_groups_of_another(q);
  if (groups == NULL) {
    groups = calloc(1, sizeof *groups + sizeof(sb_choice));
    if (groups == NULL) {
      sb_queue_detach(q);
      return SB_SYSTEM;
    }
    groups->get = (sb_choice *)(void *)(groups + 1); /* its number is SB_GROUPS_GETS, 0 */
  }
  sb_handle_use_groups(q, groups);
  return SB_OK;
}

sb_queue *sb_queue_open(sb_connection *c, uint32_t slot, sb_status *status) {
  /* a hint: the queue may end now, and its slot may get another use */
  unsigned others = sb_usable(c) == SB_OK ? sb_queue_others(c->b, slot) : 1;
  sb_queue *q = calloc(1, sizeof *q + (others - 1) * sizeof(sb_lane));
  *status = q == NULL ? SB_SYSTEM : sb_api_enter(c);
  if (*status == SB_OK) {
    *status = sb_queue_attach(c, slot, q, false);
    q->others = others;
    if (*status == SB_OK && sb_lifetime_orphaned(c->b, q->shm, 0)) *status = end_orphan(q);
    sb_slab_return_cache(c); /* cached slots would lie idle: a connection opens few queues, each once */
    if (*status == SB_OK && sb_handle_needs_groups(q)) *status = use_groups(q);
    if (*status == SB_OK) {
      sb_handle_add(q);
      (void)SB_ADD(&c->handles, 1u, SB_RELAXED);
    }
    sb_api_leave(c);
  }
  if (*status != SB_OK) {
    free(q);
    q = NULL;
  }
  return q;
}

/* Detaches the handle, unless it is in use (sb_handle_is_idle), or the queue is exclusive to the connection. False: the
 * handle stays attached. If the connection is not usable (sb_usable), does nothing and returns true. */
bool sb_queue_close(sb_queue *q) {
  sb_connection *c = q->c;
  sb_status status = sb_api_enter(c);
  if (status != SB_OK || q->ledger == NULL) {
    if (status == SB_OK) sb_api_leave(c);
    return status != SB_OK || q->ledger == NULL;
  }
  bool left = sb_handle_is_idle(q) && !sb_lifetime_owned(q);
  if (left) sb_handle_leave(q);
  sb_api_leave(c);
  return left;
}

/* Frees a handle that no call uses any more. If the handle cannot be detached yet (sb_queue_close), it stays, and is
 * freed when the connection detaches it. */
void sb_queue_free(sb_queue *q) {
  sb_connection *c = q->c;
  if (!sb_closed(c) && sb_forked(c->b)) {
    return; /* in a forked child the lock may be taken for ever */
  }
  (void)sb_queue_close(q);
  sb_lock(c);
  bool stays = q->ledger != NULL;
  q->orphaned = stays;
  sb_unlock(c);
  if (!stays) {
    free(q);
  }
  sb_connection_free(c);
}

/* Topology lock held. SB_NO_SEAT: the queue has more consumers than the new settings allow. */
static sb_status configure(sb_queue *q, const sb_settings *settings, bool trim) {
  sb_lock(q->c);
  sb_topology_finish(q->c);
  sb_status status = SB_DELETED;
  if (sb_queue_is_open(q)) status = sb_admission_prepare(q->c, q->slot, settings->values[SB_SETTING_SEATS]);
  if (status == SB_OK) {
    sb_settings_configure(q, settings, trim);
    SB_STORE(&q->c->b->header->topology_intent, 0, SB_RELEASE);
  }
  sb_unlock(q->c);
  return status;
}

sb_status sb_queue_configure(sb_queue *q, const sb_settings *settings, bool trim, uint64_t deadline_ns,
                             int32_t *holder) {
  sb_status status = sb_usable(q->c);
  if (status != SB_OK || (status = sb_topology_lock(q->c->b, deadline_ns, holder)) != SB_OK) {
    return status;
  }
  status = configure(q, settings, trim);
  if (status == SB_NO_SEAT && sb_recover_all(q->c) > 0) status = configure(q, settings, trim);
  sb_topology_unlock(q->c->b, true);
  return status;
}

/* sb_queue_delete with the conditions `flags` (sb_disposal_close_if). */
static sb_status delete_if(sb_queue *q, uint64_t flags, uint64_t deadline_ns, int32_t *holder, uint64_t *removed) {
  sb_status status = sb_usable(q->c);
  *removed = 0;
  if (status != SB_OK || (status = sb_topology_lock(q->c->b, deadline_ns, holder)) != SB_OK) {
    return status;
  }
  sb_lock(q->c);
  sb_topology_finish(q->c);
  SB_STORE(&q->c->b->header->topology_intent, sb_topology_word(SB_CHANGE_DELETE, q->slot), SB_RELEASE);
  status = sb_queue_is_open(q) ? sb_disposal_close_if(q, flags, removed) : SB_DELETED;
  if (status == SB_OK) {
    SB_CRASHPOINT("api.delete.closed");
    sb_directory_remove(q->c->b, q->slot);
    sb_notify_wake_all(q->c, q->slot);
    sb_notify_room_made(q->c, NULL, 0);
  }
  SB_STORE(&q->c->b->header->topology_intent, status == SB_OK ? sb_topology_word(SB_CHANGE_UNBIND, q->slot) : 0,
           SB_RELEASE);
  sb_unlock(q->c);
  sb_topology_unlock(q->c->b, true);
  return status;
}

sb_status sb_queue_delete(sb_queue *q, bool if_unused, bool if_empty, uint64_t deadline_ns, int32_t *holder,
                          uint64_t *removed) {
  uint64_t flags = (if_unused ? SB_CLOSING_IF_UNUSED : 0) | (if_empty ? SB_CLOSING_IF_EMPTY : 0);
  return delete_if(q, flags, deadline_ns, holder, removed);
}

sb_status sb_queue_delete_idle(sb_queue *q, uint64_t deadline_ns, int32_t *holder) {
  uint64_t removed;
  return delete_if(q, SB_CLOSING_IF_UNUSED | SB_CLOSING_IF_SETTLED, deadline_ns, holder, &removed);
}

uint32_t sb_queue_next(sb_connection *c, uint32_t *index) {
  return sb_usable(c) == SB_OK ? sb_directory_next(c->b, index, false) : 0;
}

/* Returns the length of the text settings of a queue; 0: the queue has none, or the length is damaged. Stores their
 * address in *texts, unless `texts` is NULL. */
static uint32_t texts_of(sb_broker *b, uint32_t slot, const char **texts) {
  const sb_long_queue_shm *q = sb_slab_object(b, slot, SB_KIND_LONG_QUEUE);
  uint32_t length = q != NULL ? SB_LOAD(&q->texts_length, SB_RELAXED) : 0;
  if (texts != NULL) *texts = q != NULL ? q->texts : NULL;
  return length <= SB_TEXTS_MAX ? length : 0;
}

/* Reads the counts of a queue's messages: first those that left, then `delivering`, then those that came. `ready` is
 * what the counts leave. So a message that others put, take or end meanwhile may be counted twice, and is counted at
 * least once in `ready`, `delivering` and `scheduled` as long as it is in the queue. */
static void count_messages(sb_broker *b, const sb_queue_shm *q, sb_queue_facts *f) {
  for (unsigned tries = 0; tries < 8; tries++) { /* counters change one by one: read again if the sum `mark` changed */
    uint64_t mark = sb_ledger_sum(b, q, SB_COUNT_ADDED) + sb_ledger_sum(b, q, SB_COUNT_ACKED) + sb_ledger_holding(b, q);
    uint64_t refused = sb_ledger_sum(b, q, SB_COUNT_REFUSED);
    f->acked = sb_ledger_sum(b, q, SB_COUNT_ACKED);
    f->expired = sb_ledger_sum(b, q, SB_COUNT_EXPIRED);
    f->killed = sb_ledger_sum(b, q, SB_COUNT_KILLED);
    f->replaced = sb_ledger_sum(b, q, SB_COUNT_REPLACED);
    f->dropped = sb_ledger_sum(b, q, SB_COUNT_DROPPED) + refused;
    f->duplicates = SB_LOAD(&q->duplicates, SB_RELAXED);
    f->stops = ((uint64_t)SB_LOAD(&q->stops, SB_RELAXED) + 1) / 2; /* relaxed: a statistic */
    f->dead_lettered = sb_ledger_sum(b, q, SB_COUNT_DEAD_LETTERED);
    f->moved = sb_ledger_sum(b, q, SB_COUNT_MOVED);
    uint64_t removed_bytes = sb_ledger_sum(b, q, SB_COUNT_REMOVED_BYTES);
    uint64_t scheduled = sb_ledger_sum(b, q, SB_COUNT_SCHEDULED);
    f->delivering = sb_ledger_holding(b, q);
    uint64_t due = sb_ledger_sum(b, q, SB_COUNT_UNSCHEDULED);
    f->added = sb_ledger_sum(b, q, SB_COUNT_ADDED) + refused;
    f->bytes = sb_ledger_sum(b, q, SB_COUNT_ADDED_BYTES) - removed_bytes;
    f->scheduled = scheduled > due ? scheduled - due : 0;
    uint64_t left = f->acked + f->expired + f->killed + f->replaced + f->dropped + f->dead_lettered + f->moved;
    uint64_t ready = f->added + due - left - scheduled - f->delivering;
    f->ready = (int64_t)ready < 0 ? 0 : ready;
    if (mark == sb_ledger_sum(b, q, SB_COUNT_ADDED) + sb_ledger_sum(b, q, SB_COUNT_ACKED) + sb_ledger_holding(b, q)) {
      break;
    }
  }
}

/* How many messages the consumers of a non-destructive queue have. */
static uint64_t reading(sb_connection *c, uint32_t slot) {
  sb_ring list;
  uint64_t position = 0, n = 0;
  uint32_t node;
  if (sb_ring_open(c->b, slot, SB_RING_ALL, &list)) {
    while ((node = sb_nodes_next(c, &list, SB_STATE_ALL, &position)) != 0) {
      n += SB_LOAD(&((sb_node_shm *)sb_slot_at(c->b, node))->unacked, SB_RELAXED);
    }
  }
  return n;
}

/* Describes a queue. Lock held, so that the slot stays a queue during the read (I70 of sb_grace.h). *dead: a connection
 * whose process is to be reaped before the counts are right (sb_api_killed_at), or 0. *exceeded: a queue that evicts
 * counts more ready messages than its bound. */
static sb_status describe(sb_connection *c, uint32_t slot, sb_queue_facts *f, unsigned *dead, bool *exceeded) {
  sb_broker *b = c->b;
  sb_queue_shm *q = sb_slab_queue(b, slot);
  if (q == NULL) {
    return sb_slot_in_range(b, slot) ? SB_DELETED : SB_CORRUPT; /* no queue any more: the slot may hold a body */
  }
  uint64_t state = SB_LOAD(&q->state, SB_ACQUIRE);
  f->incarnation = state >> 2;
  f->name_length = SB_LOAD(&q->name_length, SB_RELAXED) % (SB_NAME_MAX + 1);
  memcpy(f->name, q->name, f->name_length);
  f->slot = slot;
  sb_settings_read(q, &f->settings);
  f->settings.texts_length = texts_of(b, slot, NULL);
  f->owner = (f->settings.flags & SB_QUEUE_EXCLUSIVE) != 0 ? SB_LOAD(&q->owner_connection, SB_RELAXED) : 0;
  f->locked = sb_lifetime_locked(b, q, c->id);
  count_messages(b, q, f);
  f->reading = (f->settings.flags & SB_QUEUE_NON_DESTRUCTIVE) != 0 ? reading(c, slot) : 0;
  *dead = sb_api_killed_at(b, q, f->ready);
  *exceeded = sb_limits_exceeded(q, f->ready);
  f->redelivered = sb_ledger_sum(b, q, SB_COUNT_REDELIVERED);
  f->delivered = sb_ledger_sum(b, q, SB_COUNT_DELIVERED);
  f->rescues = SB_LOAD(&q->rescues, SB_RELAXED);
  f->tail = sb_lanes_came(q) - SB_LOAD(&q->base, SB_RELAXED);
  f->created_ns = SB_LOAD(&q->created_ns, SB_RELAXED);
  f->used_ns = SB_LOAD(&q->used_ns, SB_RELAXED);
  f->had_consumer = SB_LOAD(&q->had_consumer, SB_RELAXED);
  f->consumers = SB_LOAD(&q->consumers, SB_RELAXED);
  f->interested = SB_LOAD(&q->interested, SB_RELAXED);
  f->notified = SB_LOAD(&q->notified, SB_RELAXED);
  f->not_interested = SB_LOAD(&q->not_interested, SB_RELAXED);
  f->non_acquiring = SB_LOAD(&q->non_acquiring, SB_RELAXED);
  f->room_waiting = SB_LOAD(&q->room_waiting, SB_RELAXED);
  f->misses = SB_LOAD(&q->misses, SB_RELAXED);
  return sb_queue_state(state) == SB_QUEUE_OPEN ? SB_OK : SB_DELETED;
}

sb_status sb_queue_describe(sb_connection *c, uint32_t slot, sb_queue_facts *f) {
  sb_patience patience = {0};
  unsigned dead;
  bool exceeded;
  sb_status status;
  do {
    dead = 0;
    exceeded = false;
    memset(f, 0, sizeof *f);
    status = sb_api_enter(c);
    if (status == SB_OK) {
      status = describe(c, slot, f, &dead, &exceeded);
      sb_api_leave(c);
    }
  } while (status == SB_OK && exceeded && sb_api_look_again(c, dead, &patience));
  return status;
}

uint32_t sb_texts(sb_connection *c, uint32_t slot, char *texts) {
  const char *from;
  uint32_t length = 0;
  if (sb_api_enter(c) == SB_OK) {
    length = texts_of(c->b, slot, &from);
    if (length > 0) memcpy(texts, from, length);
    sb_api_leave(c);
  }
  return length;
}

int64_t sb_queue_length(sb_queue *q) {
  sb_status status = sb_usable(q->c);
  if (status != SB_OK || !sb_queue_is_open(q)) {
    return -(int64_t)(status != SB_OK ? status : SB_DELETED);
  }
  if (sb_queue_tracks(q->shm) && sb_queue_evicts(q->shm) && sb_api_enter(q->c) == SB_OK) {
    sb_api_look_at_bound(q);
    sb_api_leave(q->c);
  }
  int64_t ready = sb_queue_ready(q->c->b, q->shm);
  /* I60 of sb_handles.h: if the handle was detached meanwhile, `ready` may be of a new queue in the slot */
  return sb_queue_is_open(q) ? ready : -(int64_t)SB_DELETED;
}

/* For a call that removes or moves what the queue has now, lane by lane. *end: where the search in the current lane
 * ends, SB_ANY_POSITION at first. With `emptied`, goes on to the next lane. False: there is none. */
static bool find_end(sb_queue *q, bool emptied, uint64_t *end) {
  if (*end == SB_ANY_POSITION) {
    *end = sb_queue_end_of(q, 0);
  } else if (emptied) {
    uint64_t next = sb_queue_next_end(q, *end);
    if (next == 0) return false;
    *end = next;
  }
  return true;
}

sb_status sb_queue_purge(sb_queue *q, uint64_t *removed) {
  uint64_t end = SB_ANY_POSITION;
  bool more = true;
  sb_status status;
  do { /* in steps, so that other threads of this connection get their turn */
    status = sb_api_enter(q->c);
    if (status == SB_OK && !sb_queue_is_open(q)) {
      sb_api_leave(q->c);
      status = SB_DELETED;
    }
    if (status != SB_OK) {
      return status;
    }
    (void)find_end(q, false, &end);
    uint64_t before = *removed;
    status = sb_limits_remove(q, SB_REASON_PURGED, end, 1024, removed);
    if (*removed != before) sb_notify_room_made(q->c, q->shm, q->slot);
    sb_notify_work_arrived(q); /* I41 of sb_requeued.h: the search may have hidden messages from other consumers */
    more = status == SB_OK || (status == SB_EMPTY && find_end(q, true, &end));
    sb_api_leave(q->c);
  } while (more);
  /* SB_DELETED: the queue was closed meanwhile, and the search came to its last cell, which is CLOSED (sb_closing.h) */
  return status == SB_EMPTY || status == SB_DELETED ? SB_OK : status;
}

/* Moves a page of messages, or one message. *count: how many messages; *size: the length of their bodies. */
static sb_status move_some(sb_queue *q, sb_queue *target, uint64_t end, uint64_t limit, uint64_t bytes, uint64_t *count,
                           uint64_t *size) {
  bool counts = sb_api_move_begins(q, target);
  *count = SB_PAGE_CELLS;
  sb_status status = SB_EMPTY;
  if (limit >= SB_PAGE_CELLS) status = sb_move_page(q, target, end, bytes, size);
  if (status != SB_OK) {
    *count = 1;
    status = sb_move_one(q, target, end, size);
  }
  if (counts) sb_turns_move_ends(q->c);
  return status;
}

int64_t sb_queue_move(sb_queue *q, sb_queue *target, uint64_t limit, uint64_t *bytes, sb_status *status) {
  uint64_t moved = 0, size = 0, end = SB_ANY_POSITION;
  *status = SB_OK;
  while (moved < limit && *bytes > 0 && *status == SB_OK) {
    *status = sb_api_enter(q->c);
    if (*status != SB_OK) {
      break;
    }
    *status = !sb_queue_is_open(q) || !sb_queue_is_open(target) ? SB_DELETED : SB_OK;
    if (*status == SB_OK) (void)find_end(q, false, &end);
    uint64_t count = 0;
    if (*status == SB_OK) *status = move_some(q, target, end, limit - moved, *bytes, &count, &size);
    if (*status != SB_OK && sb_queue_is_open(q)) sb_notify_work_arrived(q);
    if (*status != SB_OK && sb_queue_is_open(target)) sb_notify_room_in(q->c, target->shm, target->slot);
    if (*status == SB_OK) {
      moved += count;
      *bytes -= size < *bytes ? size : *bytes;
      (void)sb_limits_enforce(target);
      count > 1 ? sb_notify_backlog_arrived(target) : sb_notify_work_arrived(target);
      if (sb_queue_may_hide(q)) sb_notify_work_arrived(q);
      sb_notify_room_made(q->c, q->shm, q->slot);
    }
    if (*status == SB_EMPTY && find_end(q, true, &end)) *status = SB_OK;
    sb_api_leave(q->c);
  }
  if (*status == SB_EMPTY) {
    *status = SB_OK;
  }
  return (int64_t)moved;
}
