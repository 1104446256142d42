// SPDX-License-Identifier: Apache-2.0
/* Public calls: brokers, connections, queues. */
#include "sb_api.h"

#include <stdlib.h>
#include <string.h>

/* ---- broker ---- */

uint64_t sb_layout_hash(void) { return sb_segment_layout_hash(); }

uint64_t sb_segment_bytes(uint32_t number, uint32_t chunks_per_segment) {
  return number == 0 ? SB_SEGMENT0_BYTES : chunks_per_segment * (SB_CHUNK_META_BYTES + SB_CHUNK_BYTES);
}

sb_status sb_broker_format(void *memory, uint64_t bytes, const char *name, uint64_t memory_limit,
                           uint32_t chunks_per_segment, uint32_t mode, uint64_t instance) {
  if (bytes >= SB_SEGMENT0_BYTES) {
    sb_slab_format((sb_class_shm *)(void *)((uint8_t *)memory + SB_OFF_CLASSES));
  }
  return sb_segment_format(memory, bytes, name, memory_limit, chunks_per_segment, mode, instance, sb_wall_ns());
}

sb_broker *sb_broker_attach(const char *path, sb_status *status, uint32_t *major, uint32_t *minor) {
  sb_broker *b = calloc(1, sizeof *b);
  *major = *minor = 0;
  if (b == NULL) {
    *status = SB_SYSTEM;
    return NULL;
  }
  b->lock_fd = b->topology_fd = -1;
  b->process = UINT32_MAX;
  pthread_mutex_init(&b->map_lock, NULL);
  pthread_mutex_init(&b->reap_lock, NULL);
  *status = sb_segment_attach(b, path, major, minor);
  if (*status == SB_OK) {
    *status = sb_liveness_attach(b);
  }
  if (*status != SB_OK) {
    sb_broker_detach(b);
    return NULL;
  }
  return b;
}

void sb_broker_detach(sb_broker *b) {
  sb_liveness_detach(b);
  sb_segment_detach(b);
  free(b);
}

sb_status sb_broker_grown(sb_broker *b, uint32_t number) {
  sb_segment_announce(b, number);
  return sb_segment_map(b);
}

bool sb_broker_forked(sb_broker *b) { return sb_forked(b); }

/* Rings every node there is: everybody who sleeps in this broker wakes up and looks. */
static void ring_all(sb_broker *b) {
  for (uint32_t chunk = 0; chunk < SB_LOAD(&b->mapped_chunks, SB_ACQUIRE); chunk++) {
    uint64_t word = SB_LOAD(&b->chunks[chunk], SB_ACQUIRE);
    if (sb_chunk_state(word) != SB_CHUNK_CLASS ||
        SB_LOAD(&b->classes[sb_chunk_class(word)].kind, SB_RELAXED) != SB_KIND_NODE) {
      continue;
    }
    for (uint32_t u = 0; u < SB_CHUNK_UNITS; u++) {
      if (sb_slot_state(SB_LOAD(&sb_chunk_meta(b, chunk)->headers[u], SB_ACQUIRE)) == SB_SLOT_ALLOC) {
        (void)sb_wake_ring(&((sb_node_shm *)sb_slot_at(b, chunk * SB_CHUNK_UNITS + u))->wake);
      }
    }
  }
}

void sb_broker_set_closing(sb_broker *b, uint32_t closing) {
  SB_STORE(&b->header->closing, closing, SB_SEQ_CST);
  if (sb_segment_map(b) == SB_OK) ring_all(b);
}

void sb_broker_set_stopped(sb_broker *b, uint32_t stopped) { SB_STORE(&b->header->stopped, stopped, SB_SEQ_CST); }

void sb_broker_describe(sb_broker *b, sb_broker_facts *f, bool with_memory) {
  sb_header_shm *h = b->header;
  memset(f, 0, sizeof *f);
  memcpy(f->name, h->name, sizeof f->name);
  f->name[sizeof f->name - 1] = 0;
  f->memory_limit = SB_LOAD(&h->memory_limit, SB_RELAXED);
  f->memory_used = with_memory && sb_segment_map(b) == SB_OK ? sb_slab_used(b) : 0;
  f->instance = SB_LOAD(&h->instance, SB_RELAXED);
  f->created_ns = SB_LOAD(&h->created_ns, SB_RELAXED);
  f->rescues = SB_LOAD(&h->rescues, SB_RELAXED);
  f->stopped_rescues = SB_LOAD(&h->stopped_rescues, SB_RELAXED);
  f->reaped = SB_LOAD(&h->reaped, SB_RELAXED);
  f->ticks = SB_LOAD(&h->housekeeper_ticks, SB_RELAXED);
  f->segments = SB_LOAD(&h->segments, SB_ACQUIRE);
  f->segments_limit = (b->chunk_limit + b->chunks_per_segment - 1) / b->chunks_per_segment;
  f->chunks_per_segment = b->chunks_per_segment;
  f->queues = SB_LOAD(&h->queue_count, SB_RELAXED);
  f->closing = SB_LOAD(&h->closing, SB_ACQUIRE);
  f->stopped = SB_LOAD(&h->stopped, SB_ACQUIRE);
  f->mode = SB_LOAD(&h->mode, SB_RELAXED);
  f->housekeeper_pid =
      sb_byte_holder(b->lock_fd, SB_LOCK_HOUSEKEEPER) != 0 ? SB_LOAD(&h->housekeeper_pid, SB_RELAXED) : 0;
  for (unsigned id = 1; id < SB_MAX_CONNECTIONS; id++) {
    f->connections += sb_conn_state(SB_LOAD(&b->connections[id], SB_RELAXED)) == SB_CONN_LIVE;
  }
  for (unsigned i = 0; i < SB_MAX_PROCESSES; i++) {
    f->processes += SB_BITS(SB_LOAD(&b->processes[i].word, SB_RELAXED), 0, 2) == SB_PROC_LIVE;
  }
}

static int32_t process_pid(sb_broker *b, uint32_t process) {
  bool live =
      process < SB_MAX_PROCESSES && SB_BITS(SB_LOAD(&b->processes[process].word, SB_ACQUIRE), 0, 2) == SB_PROC_LIVE;
  return live ? SB_LOAD(&b->processes[process].pid, SB_RELAXED) : 0;
}

/* How often a process attached so far: what has not changed since brought nobody new. */
uint32_t sb_process_attaches(sb_broker *b) { return SB_LOAD(&b->header->next_process, SB_ACQUIRE); }

/* The processes that are attached; returns how many there are, of which `room` are written. */
uint32_t sb_process_pids(sb_broker *b, int32_t *pids, uint32_t room) {
  uint32_t count = 0;
  for (uint32_t process = 0; process < SB_MAX_PROCESSES; process++) {
    int32_t pid = process_pid(b, process);
    if (pid != 0 && count++ < room) pids[count - 1] = pid;
  }
  return count;
}

/* ---- connection ---- */

sb_status sb_api_enter(sb_connection *c) {
  sb_status status = sb_usable(c);
  if (status == SB_OK) {
    sb_lock(&c->lock);
    if (c->closed) {
      sb_unlock(&c->lock);
      status = SB_CLOSED;
    }
  }
  return status;
}

sb_connection *sb_connect(sb_broker *b, const char *name, uint32_t length, sb_status *status) {
  sb_connection *c = calloc(1, sizeof *c);
  struct sb_consumer **consumers = calloc(SB_MAX_TARGETS, sizeof *consumers);
  *status = c == NULL || consumers == NULL ? SB_SYSTEM : sb_forked(b) ? SB_FORKED : SB_OK;
  if (*status == SB_OK) {
    pthread_mutex_lock(&sb_connect_mutex);
    *status = sb_connection_open(b, c, name, length);
    c->consumers = consumers;
    SB_STORE(&c->handles, 1u, SB_RELAXED);
    if (*status == SB_OK) {
      *status = sb_io_prepare(c);
    }
    if (*status != SB_OK && c->shm != NULL && c->record != 0) {
      (void)sb_recover_close(c);
    }
    pthread_mutex_unlock(&sb_connect_mutex);
  }
  if (*status != SB_OK) {
    free((void *)consumers);
    free(c);
    return NULL;
  }
  return c;
}

/* Wakes every thread of this connection that sleeps in the core. */
static void ring_own(sb_connection *c) {
  sb_io_ring(c);
  uint32_t at = SB_LOAD(&c->shm->holdings, SB_RELAXED);
  while (at != 0) {
    sb_holdings_shm *chunk = sb_slot_at(c->b, at);
    for (uint32_t i = SB_HOLDINGS_FIRST; i < SB_LOAD(&chunk->used, SB_ACQUIRE); i++) {
      uint64_t what = SB_LOAD(&chunk->entries[i].what, SB_ACQUIRE);
      uint32_t slot = sb_holding_slot(what);
      uint64_t word =
          sb_holding_kind(what) == SB_HOLD_SLOT ? SB_LOAD(&c->b->chunks[slot / SB_CHUNK_UNITS], SB_RELAXED) : 0;
      if (sb_chunk_state(word) == SB_CHUNK_CLASS &&
          SB_LOAD(&c->b->classes[sb_chunk_class(word)].kind, SB_RELAXED) == SB_KIND_NODE) {
        (void)sb_wake_ring(&((sb_node_shm *)sb_slot_at(c->b, slot))->wake);
      }
    }
    at = SB_LOAD(&chunk->next, SB_RELAXED);
  }
}

static sb_queue *handle_of(sb_connection *c, uint32_t slot) {
  sb_queue *q = c->queues;
  while (q != NULL && q->slot != slot) q = q->next;
  return q;
}

/* Everything the application still holds goes back to its place. */
static void return_all(sb_connection *c) {
  uint32_t at = SB_LOAD(&c->shm->holdings, SB_RELAXED);
  while (at != 0) {
    sb_holdings_shm *chunk = sb_slot_at(c->b, at);
    for (uint32_t i = SB_HOLDINGS_FIRST; i < SB_LOAD(&chunk->used, SB_RELAXED); i++) {
      uint64_t what = SB_LOAD(&chunk->entries[i].what, SB_RELAXED);
      sb_queue *q = sb_holding_kind(what) == SB_HOLD_CELL ? handle_of(c, sb_holding_slot(what)) : NULL;
      uint64_t token = (uint64_t)((uint8_t *)&chunk->entries[i] - c->b->arena) / sizeof(sb_holding_shm);
      if (q != NULL && sb_queue_release(q, token, SB_RELEASE_CLEAN) == SB_OK) {
        sb_api_returned(q);
      }
    }
    at = SB_LOAD(&chunk->next, SB_RELAXED);
  }
}

/* Ends the connection for its users: consumers were cancelled by the caller. Threads inside calls come back. */
sb_status sb_disconnect(sb_connection *c) {
  if (sb_forked(c->b)) {
    return SB_FORKED;
  }
  sb_lock(&c->lock);
  if (!c->closed) {
    for (uint32_t t = 0; t < c->targets; t++) {
      if (c->consumers[t] != NULL) sb_consumer_flush(c->consumers[t]);
    }
    c->closed = 1;
    return_all(c);
  }
  sb_unlock(&c->lock);
  ring_own(c);
  return SB_OK;
}

static void leave_queue(sb_connection *c, sb_queue *q) {
  sb_queue **link = &c->queues;
  while (*link != NULL && *link != q) link = &(*link)->next;
  if (*link == q) *link = q->next;
  sb_waiter_close(q);
  sb_queue_leave(q);
  q->state = 0; /* no queue is ever in this state: later calls find it deleted */
  if (q->orphaned) {
    free(q);
  }
}

/* After its threads are gone: gives everything shared back. False while views of its messages live: call it again. */
bool sb_forget(sb_connection *c) {
  if (sb_forked(c->b)) {
    return true;
  }
  sb_lock(&c->lock);
  SB_STORE(&c->shm->waiter, 0u, SB_RELEASE);
  while (c->queues != NULL) leave_queue(c, c->queues);
  if (c->io_node != 0) {
    sb_node_destroy(c, c->io_node, c->io_token);
    c->io_node = 0;
  }
  bool gone = sb_recover_close(c);
  sb_unlock(&c->lock);
  return gone;
}

void sb_free_connection(sb_connection *c) {
  if (SB_SUB(&c->handles, 1u, SB_ACQ_REL) == 1) {
    free((void *)c->consumers);
    free(c);
  }
}

/* A handle that nobody calls with any more. While messages of it are held it stays, and goes with the connection. */
void sb_free_queue(sb_queue *q) {
  sb_connection *c = q->c;
  if (!c->closed && sb_forked(c->b)) {
    return; /* in a child the lock may be taken for ever */
  }
  (void)sb_leave(q);
  sb_lock(&c->lock);
  bool stays = q->ledger != NULL;
  q->orphaned = stays;
  sb_unlock(&c->lock);
  if (!stays) {
    free(q);
  }
  sb_free_connection(c);
}

uint32_t sb_connection_id(sb_connection *c) { return c->id; }
sb_status sb_connection_run_io(sb_connection *c) { return sb_forked(c->b) ? SB_FORKED : sb_io_run(c); }
void sb_connection_wake(sb_connection *c) {
  if (!sb_forked(c->b)) sb_io_ring(c);
}
sb_status sb_connection_describe(sb_broker *b, uint32_t id, sb_connection_facts *f) {
  sb_connection_shm *shm = sb_connection_record(b, id);
  memset(f, 0, sizeof *f);
  if (shm == NULL) {
    return SB_NOT_FOUND;
  }
  memcpy(f->name, shm->name, sizeof f->name);
  f->name[sizeof f->name - 1] = 0;
  f->id = id;
  f->created_ns = SB_LOAD(&shm->created_ns, SB_RELAXED);
  uint64_t word = SB_LOAD(&b->connections[id], SB_ACQUIRE);
  f->pid = (uint32_t)process_pid(b, sb_conn_process(word));
  uint32_t at = SB_LOAD(&shm->holdings, SB_ACQUIRE);
  for (uint32_t n = 0; n < 65536u && sb_slab_object(b, at, SB_KIND_HOLDINGS) != NULL; n++) {
    sb_holdings_shm *chunk = sb_slot_at(b, at);
    for (uint32_t i = 0; i < SB_LOAD(&chunk->used, SB_ACQUIRE) && i < SB_HOLDINGS_PER_CHUNK; i++) {
      f->holding += sb_holding_kind(SB_LOAD(&chunk->entries[i].what, SB_RELAXED)) == SB_HOLD_CELL;
    }
    at = SB_LOAD(&chunk->next, SB_ACQUIRE);
  }
  return SB_OK;
}

/* ---- queues ---- */

sb_status sb_find(sb_connection *c, const char *name, uint32_t length, uint32_t *slot) {
  sb_status status = sb_usable(c);
  if (status == SB_OK) {
    *slot = sb_directory_find(c->b, name, length);
    status = *slot == 0 ? SB_NOT_FOUND : SB_OK;
  }
  return status;
}

sb_status sb_declare(sb_connection *c, const char *name, uint32_t length, const sb_settings *settings,
                     uint64_t deadline_ns, uint32_t *slot, int32_t *holder) {
  sb_status status = sb_usable(c);
  if (status != SB_OK || (status = sb_topology_lock(c->b, deadline_ns, holder)) != SB_OK) {
    return status;
  }
  *slot = sb_directory_find(c->b, name, length);
  if (*slot != 0) {
    status = SB_EXISTS;
  } else {
    sb_lock(&c->lock);
    status = sb_directory_create(c, name, length, settings, slot);
    sb_unlock(&c->lock);
  }
  sb_topology_unlock(c->b);
  return status;
}

sb_queue *sb_open(sb_connection *c, uint32_t slot, sb_status *status) {
  sb_queue *q = calloc(1, sizeof *q);
  *status = q == NULL ? SB_SYSTEM : sb_api_enter(c);
  if (*status == SB_OK) {
    *status = sb_queue_open(c, slot, q, false);
    sb_api_leave(c);
  }
  if (*status != SB_OK) {
    free(q);
    return NULL;
  }
  sb_lock(&c->lock);
  q->next = c->queues;
  c->queues = q;
  (void)SB_ADD(&c->handles, 1u, SB_RELAXED);
  sb_unlock(&c->lock);
  return q;
}

static bool consumed(const sb_connection *c, const sb_queue *q) {
  for (uint32_t t = 0; t < c->targets; t++) {
    for (uint32_t i = 0; c->consumers[t] != NULL && i < c->consumers[t]->subscription_count; i++) {
      if (c->consumers[t]->subscriptions[i].q == q) return true;
    }
  }
  return false;
}

/* Leaves the queue unless messages of it are still held or consumed. */
bool sb_leave(sb_queue *q) {
  sb_connection *c = q->c;
  sb_status status = sb_api_enter(c);
  if (status != SB_OK || q->ledger == NULL) {
    if (status == SB_OK) sb_api_leave(c);
    return status != SB_OK || q->ledger == NULL;
  }
  bool left = (uint32_t)SB_LOAD(&q->ledger->holding, SB_RELAXED) == 0 && q->busy == 0 && !consumed(c, q);
  if (left) leave_queue(c, q);
  sb_api_leave(c);
  return left;
}

sb_status sb_configure(sb_queue *q, const sb_settings *settings, bool trim, uint64_t deadline_ns, int32_t *holder) {
  sb_status status = sb_usable(q->c);
  if (status != SB_OK || (status = sb_topology_lock(q->c->b, deadline_ns, holder)) != SB_OK) {
    return status;
  }
  sb_lock(&q->c->lock);
  if (!sb_queue_is_open(q)) {
    status = SB_DELETED;
  } else {
    int64_t before = SB_LOAD(&q->shm->ring_size, SB_RELAXED);
    bool limits = settings->ring_size >= 0 || settings->max_length >= 0 || settings->max_bytes >= 0;
    if (limits && !sb_queue_tracks(q->shm)) { /* first the hints, then the limits that believe them */
      SB_STORE(&q->shm->tracking, 1, SB_SEQ_CST);
      sb_upkeep_start_tracking(q->c->b, q->shm);
    }
    if (settings->ring_size >= 0 && settings->ring_size != before) { /* until the bound is known, nothing is evicted */
      SB_STORE(&q->shm->bound, INT64_MAX, SB_SEQ_CST);
    }
    sb_directory_apply(q->shm, settings);
    if (settings->ring_size >= 0 && (settings->ring_size != before || trim)) {
      sb_limits_set_bound(q, trim);
    }
    if (trim) (void)sb_limits_enforce(q);
    sb_consumer_backlog_arrived(q); /* it may have been paused */
    for (int32_t n = SB_LOAD(&q->shm->room_waiting, SB_SEQ_CST); n > 0; n--) {
      sb_consumer_room_made(q->c, q->shm, q->slot);
    }
  }
  sb_unlock(&q->c->lock);
  sb_topology_unlock(q->c->b);
  return status;
}

sb_status sb_delete(sb_queue *q, bool if_unused, bool if_empty, uint64_t deadline_ns, int32_t *holder,
                    uint64_t *removed) {
  sb_status status = sb_usable(q->c);
  *removed = 0;
  if (status != SB_OK || (status = sb_topology_lock(q->c->b, deadline_ns, holder)) != SB_OK) {
    return status;
  }
  sb_lock(&q->c->lock);
  SB_STORE(&q->c->b->header->topology_intent, q->slot, SB_RELEASE);
  status = sb_queue_is_open(q) ? sb_upkeep_close(q, if_unused, if_empty, removed) : SB_DELETED;
  if (status == SB_OK) {
    SB_CRASHPOINT("api.delete.closed");
    sb_directory_remove(q->c->b, q->slot);
    sb_consumer_wake_all(q->c, q->slot);
    sb_consumer_room_made(q->c, NULL, 0);
  }
  sb_unlock(&q->c->lock);
  sb_topology_unlock(q->c->b);
  return status;
}

uint32_t sb_next_queue(sb_connection *c, uint32_t *index) {
  return sb_usable(c) == SB_OK ? sb_directory_next(c->b, index, false) : 0;
}

sb_status sb_describe(sb_connection *c, uint32_t slot, sb_queue_facts *f) {
  sb_status status = sb_usable(c);
  sb_broker *b = c->b;
  memset(f, 0, sizeof *f);
  sb_queue_shm *q = status == SB_OK ? sb_slab_object(b, slot, SB_KIND_QUEUE) : NULL;
  if (q == NULL) {
    return status != SB_OK ? status : SB_CORRUPT;
  }
  f->incarnation = SB_LOAD(&q->state, SB_ACQUIRE);
  f->name_length = SB_LOAD(&q->name_length, SB_RELAXED) % (SB_NAME_MAX + 1);
  memcpy(f->name, q->name, f->name_length);
  f->slot = slot;
  f->settings = (sb_settings){SB_LOAD(&q->ring_size, SB_RELAXED), SB_LOAD(&q->max_length, SB_RELAXED),
                              SB_LOAD(&q->max_bytes, SB_RELAXED), SB_LOAD(&q->overflow, SB_RELAXED),
                              SB_LOAD(&q->flags, SB_RELAXED)};
  for (unsigned tries = 0; tries < 8; tries++) { /* the counters move one by one: read until two readings agree */
    uint64_t mark = sb_ledger_sum(b, q, SB_COUNT_ADDED) + sb_ledger_sum(b, q, SB_COUNT_ACKED) + sb_ledger_holding(b, q);
    uint64_t refused = sb_ledger_sum(b, q, SB_COUNT_REFUSED);
    f->added = sb_ledger_sum(b, q, SB_COUNT_ADDED) + refused;
    f->acked = sb_ledger_sum(b, q, SB_COUNT_ACKED);
    f->expired = sb_ledger_sum(b, q, SB_COUNT_EXPIRED);
    f->killed = sb_ledger_sum(b, q, SB_COUNT_KILLED);
    f->replaced = sb_ledger_sum(b, q, SB_COUNT_REPLACED);
    f->dropped = sb_ledger_sum(b, q, SB_COUNT_DROPPED) + refused;
    f->dead_lettered = sb_ledger_sum(b, q, SB_COUNT_DEAD_LETTERED);
    f->moved = sb_ledger_sum(b, q, SB_COUNT_MOVED);
    f->delivering = sb_ledger_holding(b, q);
    uint64_t scheduled = sb_ledger_sum(b, q, SB_COUNT_SCHEDULED), due = sb_ledger_sum(b, q, SB_COUNT_UNSCHEDULED);
    f->scheduled = scheduled > due ? scheduled - due : 0;
    f->bytes = sb_ledger_sum(b, q, SB_COUNT_ADDED_BYTES) - sb_ledger_sum(b, q, SB_COUNT_REMOVED_BYTES);
    if (mark == sb_ledger_sum(b, q, SB_COUNT_ADDED) + sb_ledger_sum(b, q, SB_COUNT_ACKED) + sb_ledger_holding(b, q)) {
      break;
    }
  }
  f->ready = sb_queue_count_ready(b, q);
  f->redelivered = sb_ledger_sum(b, q, SB_COUNT_REDELIVERED);
  f->delivered = sb_ledger_sum(b, q, SB_COUNT_DELIVERED);
  f->rescues = SB_LOAD(&q->rescues, SB_RELAXED);
  f->tail = SB_LOAD(&q->tail, SB_RELAXED) - SB_LOAD(&q->base, SB_RELAXED);
  f->created_ns = SB_LOAD(&q->created_ns, SB_RELAXED);
  f->consumers = SB_LOAD(&q->consumers, SB_RELAXED);
  f->interested = SB_LOAD(&q->interested, SB_RELAXED);
  f->notified = SB_LOAD(&q->notified, SB_RELAXED);
  f->not_interested = SB_LOAD(&q->not_interested, SB_RELAXED);
  f->non_acquiring = SB_LOAD(&q->non_acquiring, SB_RELAXED);
  f->room_waiting = SB_LOAD(&q->room_waiting, SB_RELAXED);
  return SB_BITS(f->incarnation, 0, 2) == SB_QUEUE_OPEN ? SB_OK : SB_DELETED;
}

int64_t sb_length(sb_queue *q) {
  sb_status status = sb_usable(q->c);
  return status != SB_OK        ? -(int64_t)status
         : !sb_queue_is_open(q) ? -(int64_t)SB_DELETED
                                : sb_queue_ready(q->c->b, q->shm);
}

int64_t sb_purge(sb_queue *q) {
  uint64_t removed = 0, end = sb_ring_exact_tail(q->c->b, &q->ring), step;
  do { /* in steps, so that other threads of this connection get their turn */
    sb_status status = sb_api_enter(q->c);
    if (status == SB_OK && !sb_queue_is_open(q)) {
      sb_api_leave(q->c);
      status = SB_DELETED;
    }
    if (status != SB_OK) {
      return -(int64_t)status;
    }
    step = sb_limits_remove(q, SB_COUNT_KILLED, end, 1024);
    removed += step;
    if (step > 0) sb_consumer_room_made(q->c, q->shm, q->slot);
    sb_consumer_work_arrived(q); /* one that came later may have been taken and put back */
    sb_api_leave(q->c);
  } while (step == 1024);
  return (int64_t)removed;
}

int64_t sb_move(sb_queue *q, sb_queue *target, uint64_t limit, sb_status *status) {
  uint64_t moved = 0, end = sb_ring_exact_tail(q->c->b, &q->ring);
  *status = SB_OK;
  while (moved < limit && *status == SB_OK) {
    *status = sb_api_enter(q->c);
    if (*status != SB_OK) {
      break;
    }
    *status = !sb_queue_is_open(q) || !sb_queue_is_open(target) ? SB_DELETED : sb_upkeep_move_one(q, target, end);
    if (*status != SB_OK && sb_queue_is_open(q)) sb_consumer_work_arrived(q);
    if (*status == SB_OK) {
      moved++;
      (void)sb_limits_enforce(target);
      sb_consumer_work_arrived(target);
      sb_consumer_room_made(q->c, q->shm, q->slot);
    }
    sb_api_leave(q->c);
  }
  if (*status == SB_EMPTY) {
    *status = SB_OK;
  }
  return (int64_t)moved;
}

int64_t sb_consumers_of(sb_connection *c, uint32_t slot, sb_consumer_facts *facts, uint32_t room) {
  sb_status status = sb_api_enter(c);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  sb_ring list;
  uint64_t position = 0;
  uint32_t node, n = 0;
  if (sb_ring_open(c->b, slot, SB_RING_ALL, &list)) {
    while (n < room && (node = sb_nodes_next(c, &list, SB_STATE_ALL, &position)) != 0) {
      sb_node_shm *shm = sb_slot_at(c->b, node);
      uint64_t word = SB_LOAD(&shm->word, SB_ACQUIRE);
      facts[n++] = (sb_consumer_facts){.connection = sb_node_conn(word),
                                       .pid = SB_LOAD(&shm->pid, SB_RELAXED),
                                       .state = sb_node_state(word),
                                       .flags = SB_LOAD(&shm->flags, SB_RELAXED),
                                       .prefetch = SB_LOAD(&shm->prefetch, SB_RELAXED),
                                       .unacked = SB_LOAD(&shm->unacked, SB_RELAXED),
                                       .priority = SB_LOAD(&shm->priority, SB_RELAXED),
                                       .delivered = SB_LOAD(&shm->delivered, SB_RELAXED),
                                       .wakes = SB_LOAD(&shm->wakes, SB_RELAXED)};
    }
  }
  sb_api_leave(c);
  return n;
}
