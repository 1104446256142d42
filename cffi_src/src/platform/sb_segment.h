// SPDX-License-Identifier: Apache-2.0
/* Segments: how the files of a broker become one address range in a process.
 *
 * What: `sb_broker` is the process-local view of a broker. Segment 0 is mapped whole. The arena is one reserved range
 * as long as the broker's limit, so that a slot id is an address everywhere and a body may cross segments; segments
 * are mapped into it in order as they come to exist. Files are created by the caller (complete, allocated with
 * posix_fallocate, then linked into place); the core only opens, checks and maps them.
 *
 * Layout: see sb_layout.h.
 *
 * Invariants:
 *  I5 a file that is visible under its name is complete and wholly allocated: no access to it raises SIGBUS.
 *  I6 `header->segments` = n means that segments 1..n exist; it only grows.
 *
 * Ordering pairs:
 *  P7 `header->segments` is stored with release after segment n was linked; read with acquire before mapping it.
 *
 * Death: a process killed while mapping leaves nothing shared. One killed between linking segment n and raising
 *  `segments` leaves a file that the next grower finds (EEXIST) and counts.
 *
 * Concurrency: mapping is serialised inside a process by `map_lock`; readers look at `mapped_chunks` (acquire).
 */
#ifndef SB_SEGMENT_H
#define SB_SEGMENT_H

#include <pthread.h>

#include "sb_layout.h"
#include "sb_status.h"

struct sb_broker {
  uint8_t *base; /* segment 0 */
  uint8_t *arena;
  uint8_t *meta;
  sb_header_shm *header;
  sb_class_shm *classes;
  sb_process_shm *processes;
  sb_word *connections;
  sb_word *chunks;
  sb_word *directory;
  sb_half mapped_chunks;
  sb_word grow_again_ns;   /* there was no room for another segment: until then, what there is has to do */
  sb_half mapped_segments; /* written under map_lock; the doctor reads it without */
  uint32_t chunk_limit;
  uint32_t chunks_per_segment;
  uint64_t arena_bytes, meta_bytes;
  uint64_t groups_shift; /* chunk >> shift = group of 64 */
  pthread_mutex_t map_lock, reap_lock;
  int lock_fd;     /* open file description of the process slot */
  int topology_fd; /* a description of its own for the topology lock */
  uint32_t process;
  uint64_t pid_namespace; /* of this process; 0: /proc does not say */
  sb_half keeps_house;    /* this process is the housekeeper: its own lock does not show */
  sb_half *guard;         /* on a page that a fork wipes: 1 while this is the process that attached */
  sb_word populated[SB_MAX_CHUNKS / 64];
  char path[160]; /* "/shmbroker-<uid>.<name>" */
};

sb_status sb_segment_format(void *memory, uint64_t bytes, const char *name, uint64_t memory_limit,
                            uint32_t chunks_per_segment, uint32_t mode, uint64_t instance, uint64_t now_ns);
uint64_t sb_segment_layout_hash(void);
/* Opens a file of a broker whose owner and mode are right: else SB_ACCESS, SB_NOT_FOUND, or SB_LAYOUT where it is short. */
sb_status sb_segment_open(const char *path, const char *suffix, uint64_t least_bytes, int *fd_out);
sb_status sb_segment_attach(sb_broker *b, const char *path, uint32_t *found_major, uint32_t *found_minor);
void sb_segment_detach(sb_broker *b);
/* Maps every segment that exists and is not mapped yet. */
sb_status sb_segment_map(sb_broker *b);
/* Tells everybody that segment `number` exists now. */
void sb_segment_announce(sb_broker *b, uint32_t number);

static inline bool sb_slot_in_range(const sb_broker *b, uint32_t slot) {
  return slot / SB_CHUNK_UNITS < b->chunk_limit;
}
/* The chunk's metadata and bodies may be touched (mapping it first if need be)? */
static inline bool sb_chunk_ready(sb_broker *b, uint32_t chunk) {
  if (chunk < SB_LOAD(&b->mapped_chunks, SB_ACQUIRE)) {
    return true;
  }
  return chunk < b->chunk_limit && sb_segment_map(b) == SB_OK && chunk < SB_LOAD(&b->mapped_chunks, SB_ACQUIRE);
}
static inline bool sb_slot_ready(sb_broker *b, uint32_t slot) { return sb_chunk_ready(b, slot / SB_CHUNK_UNITS); }

static inline void *sb_slot_at(const sb_broker *b, uint32_t slot) { return b->arena + (uint64_t)slot * SB_UNIT; }
static inline uint32_t sb_slot_of(const sb_broker *b, const void *object) {
  return (uint32_t)((uint64_t)((const uint8_t *)object - b->arena) / SB_UNIT);
}
/* May so many units from there on be touched? What is read from memory may name the last slot of all. */
static inline bool sb_slot_holds(sb_broker *b, uint32_t slot, uint32_t units) {
  return slot % SB_CHUNK_UNITS + units <= SB_CHUNK_UNITS && sb_slot_ready(b, slot);
}
static inline sb_chunk_meta_shm *sb_chunk_meta(const sb_broker *b, uint32_t chunk) {
  return (sb_chunk_meta_shm *)(void *)(b->meta + (uint64_t)chunk * SB_CHUNK_META_BYTES);
}
static inline sb_word *sb_slot_header(const sb_broker *b, uint32_t slot) {
  return &sb_chunk_meta(b, slot / SB_CHUNK_UNITS)->headers[slot % SB_CHUNK_UNITS];
}

#endif
