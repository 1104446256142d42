// SPDX-License-Identifier: Apache-2.0
/* Public calls: brokers and connections. */
#include "sb_api.h"

#include <stdlib.h>
#include <string.h>

#include "sb_peek.h"

/* ---- broker ---- */

uint64_t sb_layout_hash(void) { return sb_segment_layout_hash(); }

uint64_t sb_segment_bytes(uint32_t number, uint32_t chunks_per_segment) {
  return number == 0 ? SB_SEGMENT0_BYTES : chunks_per_segment * (SB_CHUNK_META_BYTES + SB_CHUNK_BYTES);
}

sb_status sb_broker_format(void *memory, uint64_t bytes, const char *name, uint64_t memory_limit,
                           uint32_t chunks_per_segment, uint32_t mode, uint64_t instance) {
  if (bytes >= SB_SEGMENT0_BYTES) {
    sb_class_format((sb_class_shm *)(void *)((uint8_t *)memory + SB_OFF_CLASSES));
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

sb_status sb_broker_attach_at(const char *path, sb_broker **place, uint32_t *major, uint32_t *minor) {
  sb_status status;
  *place = sb_broker_attach(path, &status, major, minor);
  return status;
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

/* After a segment could not be made: calls make do with what there is until then, instead of returning SB_GROW. */
void sb_broker_grow_again(sb_broker *b, uint64_t not_before_ns) {
  SB_STORE(&b->grow_again_ns, not_before_ns, SB_RELAXED);
}

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

/* The housekeeper ends when it sees that: no signal is needed, which might go to a stranger in another pid namespace. */
void sb_broker_set_stopped(sb_broker *b, uint32_t stopped) {
  SB_STORE(&b->header->stopped, stopped, SB_SEQ_CST);
  sb_node_shm *keeper =
      sb_segment_map(b) == SB_OK ? sb_node_at(b, SB_LOAD(&b->header->housekeeper_waiter, SB_ACQUIRE)) : NULL;
  if (keeper != NULL) (void)sb_wake_ring(&keeper->wake);
}

bool sb_broker_is_closing(sb_broker *b) { return SB_LOAD(&b->header->closing, SB_ACQUIRE) != 0; }

void sb_broker_describe(sb_broker *b, sb_broker_facts *f, bool in_full) {
  sb_header_shm *h = b->header;
  memset(f, 0, sizeof *f);
  memcpy(f->name, h->name, sizeof f->name);
  f->name[sizeof f->name - 1] = 0;
  f->memory_limit = SB_LOAD(&h->memory_limit, SB_RELAXED);
  if (in_full && sb_segment_map(b) == SB_OK) {
    f->memory_used = sb_slab_used(b);
    sb_slab_kept(b, &f->memory_structures, &f->memory_bodies);
    f->memory_room = sb_scatter_room(b);
  }
  f->instance = SB_LOAD(&h->instance, SB_RELAXED);
  f->created_ns = SB_LOAD(&h->created_ns, SB_RELAXED);
  f->rescues = SB_LOAD(&h->rescues, SB_RELAXED);
  f->stopped_rescues = SB_LOAD(&h->stopped_rescues, SB_RELAXED);
  f->reaped = SB_LOAD(&h->reaped, SB_RELAXED);
  for (unsigned kind = 0; kind < SB_REPAIRS; kind++) {
    f->repairs[kind] = SB_LOAD(&h->repairs[kind], SB_RELAXED);
    f->explained_repairs[kind] = SB_LOAD(&h->explained_repairs[kind], SB_RELAXED);
  }
  f->ticks = SB_LOAD(&h->housekeeper_ticks, SB_RELAXED);
  f->segments = SB_LOAD(&h->segments, SB_ACQUIRE);
  f->segments_limit = (b->chunk_limit + b->chunks_per_segment - 1) / b->chunks_per_segment;
  f->chunks_per_segment = b->chunks_per_segment;
  f->queues = SB_LOAD(&h->queue_count, SB_RELAXED);
  f->closing = SB_LOAD(&h->closing, SB_ACQUIRE);
  f->stopped = SB_LOAD(&h->stopped, SB_ACQUIRE);
  f->mode = SB_LOAD(&h->mode, SB_RELAXED);
  f->housekeeper_pid = sb_liveness_has_housekeeper(b) ? SB_LOAD(&h->housekeeper_pid, SB_RELAXED) : 0;
  f->housekeeper_stopped = in_full && sb_liveness_housekeeper_stopped(b);
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

SB_COLD sb_status look_at_handles(sb_connection *c) {
  sb_handles_look(c);
  return SB_OK;
}

sb_status sb_api_enter(sb_connection *c) {
  sb_status status = sb_usable(c);
  if (status == SB_OK) {
    sb_lock(c);
    if (sb_closed(c)) {
      sb_unlock(c);
      status = SB_CLOSED;
    } else if (sb_handles_stir(c)) {
      return look_at_handles(c);
    }
  }
  return status;
}

sb_connection *sb_connect(sb_broker *b, const char *name, uint32_t length, sb_status *status) {
  sb_connection *c = calloc(1, sizeof *c);
  struct sb_target **targets = calloc(SB_MAX_TARGETS, sizeof *targets);
  *status = c == NULL || targets == NULL ? SB_SYSTEM : sb_forked(b) ? SB_FORKED : SB_OK;
  if (*status == SB_OK) {
    pthread_mutex_lock(&sb_connect_mutex);
    *status = sb_connection_open(b, c, name, length);
    c->targets = targets;
    c->renew = sb_handles_forget_pages;
    SB_STORE(&c->handles, 1u, SB_RELAXED);
    if (*status == SB_OK) {
      *status = sb_io_prepare(c);
      sb_slab_return_cache(c); /* the other slots of its kinds are for other connections */
    }
    if (*status != SB_OK && c->shm != NULL) {
      (void)sb_recover_close(c);
    }
    pthread_mutex_unlock(&sb_connect_mutex);
  }
  if (*status != SB_OK) {
    free((void *)targets);
    free(c);
    return NULL;
  }
  return c;
}

sb_status sb_connect_at(sb_broker *b, const char *name, uint32_t length, sb_connection **place) {
  sb_status status;
  *place = sb_connect(b, name, length, &status);
  return status;
}

/* Wakes every thread of this connection that sleeps in the core. */
static void ring_own(sb_connection *c) {
  sb_target_ring_io(c);
  sb_holdings_walk w;
  for (sb_holdings_shm *k = sb_holdings_first(&w, c->b, c->shm, c->id); k != NULL; k = sb_holdings_next(&w, k)) {
    for (uint32_t i = SB_HOLDINGS_FIRST; i < sb_holdings_used(k); i++) {
      uint64_t what = SB_LOAD(&k->entries[i].what, SB_ACQUIRE);
      sb_node_shm *node = sb_holding_kind(what) == SB_HOLD_SLOT ? sb_node_at(c->b, sb_holding_slot(what)) : NULL;
      if (node != NULL) (void)sb_wake_ring(&node->wake);
    }
  }
}

static sb_queue *handle_of(sb_connection *c, uint32_t slot) {
  sb_queue *q = c->queues;
  while (q != NULL && q->slot != slot) q = q->next;
  return q;
}

/* Everything the application still holds goes back to its place. */
static void return_all(sb_connection *c) {
  sb_holdings_walk w;
  for (sb_holdings_shm *k = sb_holdings_first(&w, c->b, c->shm, c->id); k != NULL; k = sb_holdings_next(&w, k)) {
    for (uint32_t i = SB_HOLDINGS_FIRST; i < sb_holdings_used(k); i++) {
      uint64_t what = SB_LOAD(&k->entries[i].what, SB_RELAXED);
      sb_queue *q = sb_holding_kind(what) == SB_HOLD_CELL ? handle_of(c, sb_holding_slot(what)) : NULL;
      uint64_t token = (uint64_t)((uint8_t *)&k->entries[i] - c->b->arena) / sizeof(sb_holding_shm);
      if (q != NULL && sb_release_message(q, token, SB_RELEASE_CLEAN) == SB_OK) {
        sb_api_returned(q);
      }
    }
  }
}

/* Ends the connection for its users, and its consumers. Threads inside calls come back. */
sb_status sb_disconnect(sb_connection *c) {
  if (sb_forked(c->b)) {
    return SB_FORKED;
  }
  sb_lock(c);
  if (!sb_closed(c)) {
    for (sb_target *t; (t = sb_target_after(c, NULL)) != NULL;) {
      t->kind->end(t);
    }
    SB_STORE(&c->closed, 1u, SB_SEQ_CST); /* P6: before the rings below */
    return_all(c);
    for (sb_queue *q = c->queues; q != NULL; q = q->next) {
      if (q->ledger != NULL) (void)sb_lifetime_end(q, c->id);
    }
  }
  sb_unlock(c);
  ring_own(c);
  return SB_OK;
}

/* After its threads are gone: gives everything shared back. False while views of its messages live: call it again. */
bool sb_forget(sb_connection *c) {
  if (c->forgotten || sb_forked(c->b)) { /* in this order: afterwards the broker may not be mapped any more */
    return true;
  }
  sb_lock(c);
  SB_STORE(&c->shm->waiter, 0u, SB_RELEASE);
  while (c->queues != NULL) sb_handle_leave(c->queues);
  if (c->io_node != 0) {
    sb_node_destroy(c, c->io_node, c->io_token);
    c->io_node = 0;
  }
  sb_grace_give_up(c);
  c->forgotten = sb_recover_close(c);
  sb_unlock(c);
  return c->forgotten;
}

void sb_connection_dropped(sb_connection **place) {
  sb_connection *c = *place;
  if (c == NULL) {
    return;
  }
  if (!c->forgotten && !sb_forked(c->b)) {
    (void)sb_disconnect(c);
    if (!sb_forget(c)) {
      return; /* views of its messages live on: so does its record, until the caller forgets it, or the process ends */
    }
  }
  *place = NULL;
  sb_free_connection(c);
}

void sb_free_connection(sb_connection *c) {
  if (SB_SUB(&c->handles, 1u, SB_ACQ_REL) == 1) {
    free((void *)c->targets);
    free(c->grace);
    free(c);
  }
}

/* A handle that nobody calls with any more. While messages of it are held it stays, and goes with the connection. */
void sb_free_queue(sb_queue *q) {
  sb_connection *c = q->c;
  if (!sb_closed(c) && sb_forked(c->b)) {
    return; /* in a child the lock may be taken for ever */
  }
  (void)sb_leave(q);
  sb_lock(c);
  bool stays = q->ledger != NULL;
  q->orphaned = stays;
  sb_unlock(c);
  if (!stays) {
    free(q);
  }
  sb_free_connection(c);
}

uint32_t sb_connection_id(sb_connection *c) { return c->id; }
sb_status sb_connection_run_io(sb_connection *c) { return sb_forked(c->b) ? SB_FORKED : sb_io_run(c); }
void sb_connection_wake(sb_connection *c) {
  if (!sb_forked(c->b)) sb_target_ring_io(c);
}

/* Relaxed: nothing depends on it. One that is closed has no record any more. */
void sb_connection_channels(sb_connection *c, uint32_t count) {
  if (sb_api_enter(c) == SB_OK) {
    SB_STORE(&c->shm->channels, count, SB_RELAXED);
    sb_api_leave(c);
  }
}

/* Is it the node of a consumer, and of a target that was not counted yet? Reads what its owner may be giving back. */
static bool counts_as_consumer(sb_broker *b, uint64_t what, uint64_t *targets) {
  const sb_node_shm *n = sb_holding_kind(what) == SB_HOLD_SLOT ? sb_node_at(b, sb_holding_slot(what)) : NULL;
  if (n == NULL || (SB_LOAD(&n->flags, SB_RELAXED) & SB_NODE_COUNTED) == 0 ||
      sb_node_state(SB_LOAD(&n->word, SB_ACQUIRE)) == SB_NODE_REMOVED) {
    return false;
  }
  if ((SB_LOAD(&n->flags, SB_RELAXED) & SB_NODE_MEMBER) != 0) {
    return true; /* each of a channel's is a consumer */
  }
  uint32_t target = SB_LOAD(&n->target, SB_RELAXED) % SB_MAX_TARGETS;
  uint64_t bit = UINT64_C(1) << (target % 64), before = targets[target / 64];
  targets[target / 64] |= bit;
  return (before & bit) == 0;
}

static void describe(sb_broker *b, uint32_t id, sb_connection_shm *shm, sb_connection_facts *f) {
  uint64_t targets[SB_MAX_TARGETS / 64] = {0};
  sb_peek_bytes(f->name, (const uint8_t *)shm->name, sizeof f->name);
  f->name[sizeof f->name - 1] = 0;
  f->id = id;
  f->created_ns = SB_LOAD(&shm->created_ns, SB_RELAXED);
  f->channels = SB_LOAD(&shm->channels, SB_RELAXED);
  uint64_t word = SB_LOAD(&b->connections[id], SB_ACQUIRE);
  f->pid = (uint32_t)process_pid(b, sb_conn_process(word));
  sb_holdings_walk w;
  for (sb_holdings_shm *k = sb_holdings_first(&w, b, shm, id); k != NULL; k = sb_holdings_next(&w, k)) {
    for (uint32_t i = 0; i < sb_holdings_used(k); i++) {
      uint64_t what = SB_LOAD(&k->entries[i].what, SB_RELAXED);
      f->holding += sb_holding_kind(what) == SB_HOLD_CELL;
      f->consumers += counts_as_consumer(b, what, targets);
    }
  }
}

/* The caller need not have a connection, so it is not inside: the record may be freed meanwhile, and be a body. What was read
 * is true if it is the same connection's afterwards, in the same life of the slot (I43). */
sb_status sb_connection_describe(sb_broker *b, uint32_t id, sb_connection_facts *f) {
  memset(f, 0, sizeof *f);
  sb_connection_shm *shm = sb_connection_record(b, id);
  if (shm == NULL) {
    return SB_NOT_FOUND;
  }
  sb_word *header = sb_slot_header(b, sb_slot_of(b, shm));
  uint64_t before = SB_LOAD(header, SB_ACQUIRE), word = SB_LOAD(&b->connections[id], SB_ACQUIRE);
  if (sb_connection_record(b, id) == shm) describe(b, id, shm, f);
  bool same = sb_connection_record(b, id) == shm && SB_LOAD(header, SB_ACQUIRE) == before &&
              SB_LOAD(&b->connections[id], SB_ACQUIRE) == word;
  if (!same) memset(f, 0, sizeof *f);
  return same ? SB_OK : SB_NOT_FOUND;
}
