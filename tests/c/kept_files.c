// SPDX-License-Identifier: Apache-2.0
#include "kept_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker_fixture.h"
#include "sb_segment.h"

#define SEGMENTS 4u /* more than any trial has */
#define PAGE 4096u

static char kept[96]; /* the path of a broker that consists of the kept files; empty: none are kept */

void kept_files_begin(void) { snprintf(kept, sizeof kept, "/shmbroker-kept-%d", (int)getpid()); }
void kept_files_end(void) {
  if (kept[0] != 0) remove_files(kept);
  kept[0] = 0;
}

void kept_files_take(const char *path) {
  for (unsigned segment = 1; kept[0] != 0 && segment <= SEGMENTS; segment++) {
    char suffix[16], name[160], keep[160];
    snprintf(suffix, sizeof suffix, "%u", segment);
    file_name(name, sizeof name, path, suffix);
    file_name(keep, sizeof keep, kept, suffix);
    (void)rename(name, keep); /* fails where there is no such segment */
  }
  remove_files(path);
}

/* Pages that are 0 are only read: most are, and to write a page takes longer. */
static void clear(uint8_t *start, uint64_t bytes) {
  static const uint8_t zeros[PAGE];
  for (uint64_t at = 0; at < bytes; at += PAGE) {
    size_t length = bytes - at < PAGE ? (size_t)(bytes - at) : PAGE;
    if (memcmp(start + at, zeros, length) != 0) memset(start + at, 0, length);
  }
}

/* A segment is the metadata of its chunks, then their memory. The memory of a chunk that was never opened is 0. */
static void clear_segment(uint8_t *start, uint64_t bytes) {
  uint64_t chunks = bytes / (SB_CHUNK_META_BYTES + SB_CHUNK_BYTES), metadata = chunks * SB_CHUNK_META_BYTES;
  for (uint64_t chunk = 0; chunk < chunks; chunk++) {
    const sb_chunk_meta_shm *meta = (const void *)(start + chunk * SB_CHUNK_META_BYTES);
    if (SB_LOAD(&meta->written, SB_RELAXED) != 0) clear(start + metadata + chunk * SB_CHUNK_BYTES, SB_CHUNK_BYTES);
  }
  clear(start, chunks == 0 ? bytes : metadata);
}

static bool is_long(const char *name, uint64_t bytes) {
  struct stat facts;
  return stat(name, &facts) == 0 && (uint64_t)facts.st_size == bytes;
}

static void clear_file(const char *name, uint64_t bytes) {
  int fd = open(name, O_RDWR | O_CLOEXEC);
  if (fd < 0) die("a kept file", fd);
  uint8_t *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (start == MAP_FAILED) die("mapping a kept file", fd);
  close(fd);
  clear_segment(start, bytes);
  munmap(start, bytes);
}

bool kept_files_give(const char *suffix, uint64_t bytes, const char *to) {
  char keep[160];
  file_name(keep, sizeof keep, kept, suffix);
  if (kept[0] == 0 || !is_long(keep, bytes) || rename(keep, to) != 0) return false;
  clear_file(to, bytes);
  return true;
}
