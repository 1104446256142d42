// SPDX-License-Identifier: Apache-2.0
/* Public calls: brokers. */
#include <stdlib.h>
#include <string.h>

#include "sb_api.h"

uint64_t sb_broker_segment_bytes(uint32_t number, uint32_t chunks_per_segment) {
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

sb_status sb_broker_attach_at(const char *path, sb_broker **handle, uint32_t *major, uint32_t *minor) {
  sb_status status;
  *handle = sb_broker_attach(path, &status, major, minor);
  return status;
}

void sb_broker_detach(sb_broker *b) {
  sb_liveness_detach(b);
  sb_segment_detach(b);
  free(b);
}

sb_status sb_broker_grown(sb_broker *b, uint32_t number) { return sb_segment_add(b, number); }

/* Called by a process that could not make a segment. Until `not_before_ns`, calls of this process use the segments that
 * exist, and do not return SB_GROW. Until a segment is added, plain puts of all processes leave the reserve unused
 * (sb_reserve.h). */
void sb_broker_grow_again(sb_broker *b, uint64_t not_before_ns) {
  SB_STORE(&b->header->no_room, 1u, SB_RELAXED);
  SB_STORE(&b->grow_again_ns, not_before_ns, SB_RELAXED);
}

/* Rings every node (sb_nodes.h): each thread that sleeps on a node wakes, and checks what it waits for. The IO threads
 * then wake the threads of their processes that wait for a message of a consumer or channel. */
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

/* Stores `stopped`, and wakes the housekeeper, which ends if `stopped` is not 0. Sends no signal: if the housekeeper is
 * in another pid namespace, its pid might name an unrelated process here. */
void sb_broker_set_stopped(sb_broker *b, uint32_t stopped) {
  SB_STORE(&b->header->stopped, stopped, SB_SEQ_CST);
  sb_node_shm *keeper =
      sb_segment_map(b) == SB_OK ? sb_node_at(b, SB_LOAD(&b->header->housekeeper_waiter, SB_ACQUIRE)) : NULL;
  if (keeper != NULL) (void)sb_wake_ring(&keeper->wake);
}

void sb_broker_set_memory_marks(sb_broker *b, uint32_t high_watermark, uint32_t warning) {
  SB_STORE(&b->header->memory_high_watermark, high_watermark, SB_RELAXED); /* relaxed: each call reads it anew */
  SB_STORE(&b->header->memory_warning, warning, SB_RELAXED);
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
    f->memory_state = (uint32_t)sb_reserve_state(b);
  }
  f->memory_high_watermark = SB_LOAD(&h->memory_high_watermark, SB_RELAXED);
  f->memory_warning = SB_LOAD(&h->memory_warning, SB_RELAXED);
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
  f->stalled = SB_LOAD(&h->stalled, SB_RELAXED);
  f->stopped = SB_LOAD(&h->stopped, SB_ACQUIRE);
  f->mode = SB_LOAD(&h->mode, SB_RELAXED);
  f->housekeeper_pid = sb_liveness_has_housekeeper(b) ? SB_LOAD(&h->housekeeper_pid, SB_RELAXED) : 0;
  f->housekeeper_stopped = in_full && sb_liveness_housekeeper_stopped(b);
  for (unsigned id = 1; id < SB_MAX_CONNECTIONS; id++) {
    f->connections += sb_conn_state(SB_LOAD(&b->connections[id], SB_RELAXED)) == SB_CONN_LIVE;
  }
  for (unsigned i = 0; i < SB_MAX_PROCESSES; i++) {
    f->processes += sb_proc_state(SB_LOAD(&b->processes[i].word, SB_RELAXED)) == SB_PROC_LIVE;
  }
}

/* The number of attaches so far. An attach raises it only after the slot of the process is LIVE. */
uint32_t sb_broker_attach_count(sb_broker *b) { return SB_LOAD(&b->header->next_process, SB_ACQUIRE); }

/* Writes the pids of attached processes, at most `room`. Returns the number of attached processes. */
uint32_t sb_broker_pids(sb_broker *b, int32_t *pids, uint32_t room) {
  uint32_t count = 0;
  for (uint32_t process = 0; process < SB_MAX_PROCESSES; process++) {
    int32_t pid = sb_api_process_pid(b, process);
    if (pid != 0 && count++ < room) pids[count - 1] = pid;
  }
  return count;
}

sb_status sb_broker_format_store(void *memory, const char *data_dir, uint32_t sync, bool refuses) {
  sb_header_shm *h = memory;
  size_t length = strlen(data_dir);
  if (length > SB_DATA_DIR_MAX) {
    return SB_INVALID;
  }
  memcpy(h->data_dir, data_dir, length + 1);
  SB_STORE(&h->sync, sync, SB_RELAXED);
  SB_STORE(&h->store_refuses, refuses ? 1u : 0u, SB_RELAXED);
  SB_STORE(&h->stores, SB_STORES_RESTORING, SB_RELEASE);
  return SB_OK;
}

void sb_broker_set_stores(sb_broker *b, uint32_t stores) { SB_STORE(&b->header->stores, stores, SB_SEQ_CST); }
void sb_broker_set_store_id(sb_broker *b, uint64_t id) { SB_STORE(&b->header->store_id, id, SB_RELAXED); }
uint64_t sb_broker_store_id(sb_broker *b) { return SB_LOAD(&b->header->store_id, SB_RELAXED); }
uint32_t sb_broker_stores(sb_broker *b) { return SB_LOAD(&b->header->stores, SB_ACQUIRE); }

const char *sb_broker_data_dir(sb_broker *b) {
  return memchr(b->header->data_dir, 0, sizeof b->header->data_dir) != NULL ? b->header->data_dir : "";
}
