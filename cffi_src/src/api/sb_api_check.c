// SPDX-License-Identifier: Apache-2.0
/* Public call: the doctor. This file checks the header and the directory; sb_check* check the rest. */
#include <stdlib.h>
#include <string.h>

#include "sb_api.h"
#include "sb_check.h"

/* Values of `which`. */
enum { MAGIC, LAYOUT, LIMITS, SEGMENTS, MAPPING, QUEUES, HOUSEKEEPER }; /* SB_BAD_HEADER */
enum { NO_QUEUE, TWICE, CLOSED_QUEUE, NAME, LOST };                     /* SB_BAD_DIRECTORY */

static void bad_header(sb_checkup *k, unsigned which, uint64_t where, uint64_t found, uint64_t expected) {
  sb_check_found(k, (sb_finding){SB_BAD_HEADER, 0, 0, which, 0, where, found, expected});
}

/* Checks the header. True if the rest can be checked. */
static bool check_header(sb_checkup *k) {
  const sb_broker *b = k->b;
  const sb_header_shm *h = b->header;
  uint64_t magic = SB_LOAD(&h->magic, SB_ACQUIRE), hash = SB_LOAD(&h->layout_hash, SB_RELAXED);
  uint64_t limit = SB_LOAD(&h->memory_limit, SB_RELAXED);
  uint32_t chunks = SB_LOAD(&h->chunk_limit, SB_RELAXED), per = SB_LOAD(&h->chunks_per_segment, SB_RELAXED);
  uint32_t segments = SB_LOAD(&h->segments, SB_ACQUIRE), waiter = SB_LOAD(&h->housekeeper_waiter, SB_ACQUIRE);
  uint32_t mapped_segments = SB_LOAD(&b->mapped_segments, SB_RELAXED);
  uint32_t most = (b->chunk_limit + b->chunks_per_segment - 1) / b->chunks_per_segment;
  uint32_t before = k->count;
  if (magic != SB_MAGIC) bad_header(k, MAGIC, 0, magic, SB_MAGIC);
  if (hash != sb_segment_layout_hash()) bad_header(k, LAYOUT, 0, hash, sb_segment_layout_hash());
  if (SB_LOAD(&h->layout_major, SB_RELAXED) != SB_LAYOUT_MAJOR) {
    bad_header(k, LAYOUT, 0, SB_LOAD(&h->layout_major, SB_RELAXED), SB_LAYOUT_MAJOR);
  }
  if (chunks != b->chunk_limit || limit != chunks * SB_CHUNK_BYTES) {
    bad_header(k, LIMITS, 0, limit, b->chunk_limit * SB_CHUNK_BYTES);
  }
  if (per != b->chunks_per_segment) bad_header(k, LIMITS, 1, per, b->chunks_per_segment);
  if (segments < mapped_segments || segments > most) bad_header(k, SEGMENTS, 0, segments, most);
  if (k->count != before) {
    return false;
  }
  sb_status mapped = sb_segment_map(k->b);
  if (mapped != SB_OK) {
    bad_header(k, MAPPING, SB_LOAD(&b->mapped_segments, SB_RELAXED) + 1, mapped, 0);
    return false;
  }
  k->chunks = SB_LOAD(&b->mapped_chunks, SB_ACQUIRE);
  if (waiter != 0 && !sb_check_is(k, waiter, SB_KIND_NODE)) bad_header(k, HOUSEKEEPER, 0, waiter, 0);
  return true;
}

/* ---- directory ---- */

static void bad_entry(sb_checkup *k, uint32_t index, uint32_t slot, unsigned which, uint64_t found, uint64_t expected) {
  sb_check_found(k,
                 (sb_finding){SB_BAD_DIRECTORY, which == NO_QUEUE ? 0 : slot, slot, which, 0, index, found, expected});
}

static bool check_name(sb_checkup *k, uint32_t index, uint32_t slot, const sb_queue_shm *q) {
  uint32_t length = SB_LOAD(&q->name_length, SB_RELAXED);
  size_t text = strnlen(q->name, sizeof q->name);
  if (length == 0 || length > SB_NAME_MAX || text != length) {
    bad_entry(k, index, slot, NAME, length, text);
    return false;
  }
  uint32_t found = sb_directory_find(k->b, q->name, length);
  if (found != slot) {
    bad_entry(k, index, slot, LOST, found, slot);
  }
  return true;
}

static void check_entry(sb_checkup *k, uint32_t index, uint64_t entry, uint32_t *live) {
  uint32_t slot = sb_dir_slot(entry);
  bool closed = sb_dir_state(entry) == SB_DIR_CLOSED, queue = sb_check_is_queue(k, slot);
  *live += !closed;
  if (!queue && closed) {
    return; /* sb_directory_sweep freed the queue, and did not make the entry DEAD yet; the next sweep does */
  }
  if (!queue || (k->seen[slot] & 1u) != 0) {
    bad_entry(k, index, slot, queue ? TWICE : NO_QUEUE, sb_check_kind(k, slot), SB_KIND_QUEUE);
    return;
  }
  const sb_queue_shm *q = sb_slot_at(k->b, slot);
  uint64_t word = SB_LOAD(&q->state, SB_ACQUIRE);
  unsigned state = sb_queue_state(word);
  if (closed && !sb_queue_is_deleted(word)) {
    return; /* a sweep freed the queue, did not make the entry DEAD yet, and a new queue has the slot */
  }
  /* I44 of sb_lifetime.h: the queue ended by itself, and the next sweep removes its name */
  bool ended = state == SB_QUEUE_CLOSED && sb_lifetime_limited(q);
  if (!closed && state != SB_QUEUE_OPEN && !ended) {
    bad_entry(k, index, slot, CLOSED_QUEUE, state, SB_QUEUE_OPEN);
  } else if (!closed && !ended) {
    (void)check_name(k, index, slot, q);
  }
  sb_check_queue(k, slot, closed || state != SB_QUEUE_OPEN);
}

static void check_directory(sb_checkup *k) {
  uint32_t live = 0, count = SB_LOAD(&k->b->header->queue_count, SB_RELAXED);
  const sb_word *directory = k->b->directory;
  for (uint32_t i = 0; (i = sb_skip_zeros(directory, i, SB_DIRECTORY_SIZE)) < SB_DIRECTORY_SIZE; i++) {
    uint64_t entry = SB_LOAD(&directory[i], SB_ACQUIRE);
    unsigned state = sb_dir_state(entry);
    if (state == SB_DIR_LIVE || state == SB_DIR_CLOSED) check_entry(k, i, entry, &live);
  }
  if (count != live) bad_header(k, QUEUES, 0, count, live);
}

/* ---- all of it ---- */

/* Reports dead processes that are not reaped: they may explain the other findings. */
static void explain(sb_checkup *k) {
  for (uint32_t i = 0; i < SB_MAX_PROCESSES; i++) {
    if (sb_liveness_is_dead(k->b, i)) {
      uint32_t pid = (uint32_t)SB_LOAD(&k->b->processes[i].pid, SB_RELAXED);
      sb_check_found(k, (sb_finding){SB_UNREAPED, 0, i, 0, 0, 0, pid, 0});
    }
  }
}

static sb_status examine(sb_checkup *k) {
  if (!check_header(k)) {
    return SB_OK;
  }
  k->seen = calloc((size_t)k->chunks * SB_CHUNK_UNITS + 1, sizeof *k->seen);
  k->owned = calloc(2u * SB_MAX_CONNECTIONS, sizeof *k->owned);
  k->blocks = calloc((size_t)k->chunks * SB_CHUNK_UNITS + 1, sizeof *k->blocks);
  if (k->blocks == NULL || k->seen == NULL || k->owned == NULL) {
    return SB_SYSTEM;
  }
  k->named = k->owned + SB_MAX_CONNECTIONS;
  sb_check_classes(k);
  sb_check_connections(k);
  check_directory(k);
  sb_check_memory_list(k);
  sb_check_cells_owned(k);
  sb_check_chunks(k);
  if (k->count != 0) explain(k);
  return SB_OK;
}

uint32_t sb_broker_check(sb_connection *c, sb_finding *findings, uint32_t room) {
  sb_checkup k = {.b = c->b, .findings = findings, .room = room};
  sb_status status = sb_api_enter(c);
  if (status == SB_OK) {
    status = examine(&k);
    free(k.seen);
    free(k.blocks);
    free(k.owned);
    sb_api_leave(c);
  }
  if (status != SB_OK) { /* without a finding, the caller would believe that all is well */
    k.count = 0;
    sb_check_found(&k, (sb_finding){.code = SB_NOT_CHECKED, .found = status});
  }
  return k.count;
}
