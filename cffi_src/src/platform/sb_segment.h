// SPDX-License-Identifier: Apache-2.0
/* Segments: maps the files of a broker into the address space of a process.
 *
 * What: `sb_broker` is the process-local view of a broker. Segment 0 is mapped whole. The arena is one reserved address
 * range as long as the broker's memory limit, rounded up to whole segments; `meta` is a second range, for the metadata
 * of its chunks. As segments are created, each is mapped in order: its metadata into `meta`, its contents into the
 * arena. So a slot id is an offset in the arena, the same in every process, and a body may cross segments. The caller
 * of the core creates each file, allocates all of it with posix_fallocate, then links it into place. The core only
 * opens, checks and maps the files.
 *
 * Layout: see sb_layout.h.
 *
 * Invariants:
 *  I5 the file of a segment that is visible under its name is complete and fully allocated: no access to it raises
 *      SIGBUS.
 *  I6 `header->segments` = n means that segments 1 to n exist, and that the process that counted each of them could map
 *      it. This number only grows.
 *
 * Ordering pairs:
 *  P7 a process links segment n, maps it, then stores `header->segments` with release; others load it with acquire
 *   before they map.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  a segment was mapped -> nothing shared -> nothing to repair.
 *  the file of segment n was linked, or also mapped -> a file that `segments` does not count yet -> the next process
 *   that grows the broker finds the file, makes no other one, maps it, and raises `segments`.
 *
 * Concurrency: `map_lock` serialises mapping inside a process. Readers load `mapped_chunks` with acquire.
 */
#ifndef SB_SEGMENT_H
#define SB_SEGMENT_H

#include <pthread.h>

#include "sb_layout.h"
#include "sb_inline.h"
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
  sb_word grow_again_ns;   /* growing failed: no further attempt before this time (CLOCK_MONOTONIC) */
  uint32_t watchers;       /* connections of this process with an IO thread, see sb_io_set_watching; under map_lock */
  sb_half mapped_segments; /* written under map_lock; sb_segments_ready and the doctor read it without the lock */
  uint32_t chunk_limit;
  uint32_t chunks_per_segment;
  uint64_t arena_bytes, meta_bytes;
  uint64_t groups_shift; /* chunk >> groups_shift is the number of the chunk's group, below 64 */
  pthread_mutex_t map_lock, reap_lock;
  int lock_fd;     /* lock file: holds the byte locks of process slot, housekeeper and stand-in */
  int topology_fd; /* lock file, opened a second time: holds the byte lock of the topology */
  uint32_t process;
  uint64_t pid_namespace;   /* of this process; 0 = unknown, /proc does not show it */
  sb_broker *next_attached; /* in the list of sb_liveness.c */
  sb_half keeps_store;      /* 1: this process is the storekeeper */
  sb_half wanting;     /* slot of a queue of which a call of this process needs a message that has left the memory */
  sb_word wanting_at;  /* the position of that message */
  sb_half keeps_house; /* 1: this process is the housekeeper, whose own lock F_OFD_GETLK does not report */
  sb_half *guard;      /* on a page that a fork wipes: 1 in the process that attached, 0 in its children */
  sb_word populated[SB_MAX_CHUNKS / 64];
  char path[160]; /* "/shmbroker-<uid>.<name>" */
};

sb_status sb_segment_format(void *memory, uint64_t bytes, const char *name, uint64_t memory_limit,
                            uint32_t chunks_per_segment, uint32_t mode, uint64_t instance, uint64_t now_ns);
uint64_t sb_segment_layout_hash(void);
/* Opens a file of a broker in /dev/shm, named `path` followed by `suffix`. Checks its owner, mode and length. *fd_out:
 * the descriptor, set only with SB_OK. SB_ACCESS: wrong owner or mode, or the kernel refused access. SB_LAYOUT: the
 * file is shorter than `least_bytes`. */
sb_status sb_segment_open(const char *path, const char *suffix, uint64_t least_bytes, int *fd_out);
sb_status sb_segment_attach(sb_broker *b, const char *path, uint32_t *found_major, uint32_t *found_minor);
void sb_segment_detach(sb_broker *b);
/* Maps every segment that exists and is not mapped yet. */
sb_status sb_segment_map(sb_broker *b);
/* Maps the new segment `number`, and those before it, then announces it. If a segment cannot be mapped, this call does
 * not count it in `segments`: every process must map each counted segment, and any user may put an unusable file into
 * the place of the next one. */
sb_status sb_segment_add(sb_broker *b, uint32_t number);
/* Publishes that segment `number` exists. */
void sb_segment_announce(sb_broker *b, uint32_t number);

/* Whether every segment that exists now is mapped; maps the segments that are not. False: this process could not map
 * one, for example because it has no descriptor left. A slot that this process cannot read may then be in use. */
static inline bool sb_segments_ready(sb_broker *b) {
  return SB_LOAD(&b->header->segments, SB_ACQUIRE) <= SB_LOAD(&b->mapped_segments, SB_RELAXED) ||
         sb_segment_map(b) == SB_OK;
}
static inline bool sb_slot_in_range(const sb_broker *b, uint32_t slot) {
  return slot / SB_CHUNK_UNITS < b->chunk_limit;
}
/* True if the chunk's metadata and bodies are mapped; maps them if they exist and are not mapped yet. */
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
/* True if `units` units from `slot` on lie in one mapped chunk. A slot id that was read from shared memory may be too
 * close to the end of its chunk. */
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
