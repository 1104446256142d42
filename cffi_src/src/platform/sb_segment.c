// SPDX-License-Identifier: Apache-2.0
#include "sb_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + UINT64_C(0x9e3779b97f4a7c15) + (hash << 6) + (hash >> 2);
  return hash * UINT64_C(0xff51afd7ed558ccd);
}

uint64_t sb_segment_layout_hash(void) {
  uint64_t hash = SB_MAGIC;
  const uint64_t sizes[] = {sizeof(sb_header_shm),
                            sizeof(sb_class_shm),
                            sizeof(sb_process_shm),
                            sizeof(sb_message_shm),
                            sizeof(sb_leaf_shm),
                            sizeof(sb_long_leaf_shm),
                            sizeof(sb_inner_shm),
                            sizeof(sb_queue_shm),
                            sizeof(sb_long_queue_shm),
                            sizeof(sb_consumer_level_shm),
                            sizeof(sb_node_shm),
                            sizeof(sb_ledger_shm),
                            sizeof(sb_holdings_shm),
                            sizeof(sb_connection_shm),
                            SB_SEGMENT0_BYTES,
                            SB_CHUNK_META_BYTES,
                            SB_CHUNK_BYTES,
                            offsetof(sb_queue_shm, tail),
                            offsetof(sb_queue_shm, head),
                            offsetof(sb_queue_shm, interested),
                            offsetof(sb_queue_shm, all),
                            offsetof(sb_ledger_shm, counters),
                            offsetof(sb_node_shm, wake),
                            offsetof(sb_connection_shm, work),
                            offsetof(sb_connection_shm, commit),
                            offsetof(sb_connection_shm, gate),
                            offsetof(sb_gate_shm, asked),
                            offsetof(sb_message_shm, targets),
                            offsetof(sb_header_shm, segments),
                            offsetof(sb_header_shm, queues_closed),
                            offsetof(sb_header_shm, housekeeper_process),
                            offsetof(sb_header_shm, no_room),
                            offsetof(sb_chunk_meta_shm, written),
                            SB_READ_REFS};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    hash = mix(hash, sizes[i]);
  }
  return hash;
}

sb_status sb_segment_format(void *memory, uint64_t bytes, const char *name, uint64_t memory_limit,
                            uint32_t chunks_per_segment, uint32_t mode, uint64_t instance, uint64_t now_ns) {
  uint64_t chunks = memory_limit / SB_CHUNK_BYTES;
  if (bytes < SB_SEGMENT0_BYTES || chunks == 0 || chunks > SB_MAX_CHUNKS || chunks_per_segment == 0 ||
      (chunks + chunks_per_segment - 1) / chunks_per_segment > SB_MAX_SEGMENTS || strlen(name) > SB_BROKER_NAME_MAX) {
    return SB_INVALID;
  }
  sb_header_shm *h = memory;
  SB_STORE(&h->layout_major, SB_LAYOUT_MAJOR, SB_RELAXED);
  SB_STORE(&h->layout_minor, SB_LAYOUT_MINOR, SB_RELAXED);
  SB_STORE(&h->layout_hash, sb_segment_layout_hash(), SB_RELAXED);
  SB_STORE(&h->instance, instance, SB_RELAXED);
  SB_STORE(&h->memory_limit, chunks * SB_CHUNK_BYTES, SB_RELAXED);
  SB_STORE(&h->created_ns, now_ns, SB_RELAXED);
  SB_STORE(&h->chunks_per_segment, chunks_per_segment, SB_RELAXED);
  SB_STORE(&h->chunk_limit, (uint32_t)chunks, SB_RELAXED);
  SB_STORE(&h->mode, mode, SB_RELAXED);
  SB_STORE(&h->uid, (uint32_t)getuid(), SB_RELAXED);
  SB_STORE(&h->next_due_ns, UINT64_MAX, SB_RELAXED);
  strcpy(h->name, name);
  SB_STORE(&h->magic, SB_MAGIC, SB_RELEASE); /* the file is linked into place only afterwards (I5) */
  return SB_OK;
}

/* True if the file belongs to the user whose id is in its name, and its mode admits the owner and the file's group, or
 * only the owner, who must then be the caller. Any user may put files into the directory, so the name alone proves
 * nothing. */
static bool is_trusted(const char *path, const struct stat *st) {
  uint64_t uid = 0;
  const char *at = path + sizeof "/shmbroker-" - 1;
  if (strncmp(path, "/shmbroker-", sizeof "/shmbroker-" - 1) != 0 || *at < '0' || *at > '9') {
    return false;
  }
  for (; *at >= '0' && *at <= '9' && uid <= UINT32_MAX; at++) uid = uid * 10 + (uint64_t)(*at - '0');
  bool shared = (st->st_mode & 0060u) == 0060u;
  return *at == '.' && S_ISREG(st->st_mode) && st->st_uid == uid && (st->st_mode & 0007u) == 0 &&
         (shared || (st->st_uid == geteuid() && (st->st_mode & 0070u) == 0));
}

sb_status sb_segment_open(const char *path, const char *suffix, uint64_t least_bytes, int *fd_out) {
  char file[256] = "/dev/shm";
  size_t n = strlen(path), m = strlen(suffix);
  if (8 + n + m + 1 > sizeof file) {
    return SB_INVALID;
  }
  memcpy(file + 8, path, n);
  memcpy(file + 8 + n, suffix, m + 1);
  int fd = open(file, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    return errno == ENOENT ? SB_NOT_FOUND : errno == EACCES || errno == EPERM || errno == ELOOP ? SB_ACCESS : SB_SYSTEM;
  }
  struct stat st;
  sb_status status = SB_OK;
  if (fstat(fd, &st) != 0 || !is_trusted(path, &st)) {
    status = SB_ACCESS;
  } else if (st.st_size < 0 || (uint64_t)st.st_size < least_bytes) {
    status = SB_LAYOUT;
  }
  if (status != SB_OK) {
    close(fd);
    return status;
  }
  *fd_out = fd;
  return SB_OK;
}

static bool header_is_ours(const sb_header_shm *h) {
  uint32_t limit = SB_LOAD(&h->chunk_limit, SB_RELAXED), per = SB_LOAD(&h->chunks_per_segment, SB_RELAXED);
  return SB_LOAD(&h->magic, SB_ACQUIRE) == SB_MAGIC && SB_LOAD(&h->layout_major, SB_RELAXED) == SB_LAYOUT_MAJOR &&
         SB_LOAD(&h->layout_hash, SB_RELAXED) == sb_segment_layout_hash() && limit > 0 && limit <= SB_MAX_CHUNKS &&
         per > 0 && per <= SB_MAX_CHUNKS && SB_LOAD(&h->memory_limit, SB_RELAXED) == limit * SB_CHUNK_BYTES &&
         (limit + per - 1) / per <= SB_MAX_SEGMENTS;
}

static void *reserve(uint64_t bytes) {
  void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

sb_status sb_segment_attach(sb_broker *b, const char *path, uint32_t *found_major, uint32_t *found_minor) {
  size_t n = strlen(path);
  if (n + 8 > sizeof b->path) {
    return SB_INVALID;
  }
  memcpy(b->path, path, n + 1);
  int fd;
  sb_status status = sb_segment_open(path, ".0", SB_SEGMENT0_BYTES, &fd);
  if (status != SB_OK) {
    return status;
  }
  b->base = mmap(NULL, SB_SEGMENT0_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (b->base == MAP_FAILED) {
    b->base = NULL;
    return SB_SYSTEM;
  }
  (void)madvise(b->base, SB_SEGMENT0_BYTES, MADV_DONTDUMP);
  b->header = (sb_header_shm *)(void *)b->base;
  *found_major = SB_LOAD(&b->header->layout_major, SB_RELAXED);
  *found_minor = SB_LOAD(&b->header->layout_minor, SB_RELAXED);
  if (!header_is_ours(b->header)) {
    return SB_LAYOUT;
  }
  b->classes = (sb_class_shm *)(void *)(b->base + SB_OFF_CLASSES);
  b->processes = (sb_process_shm *)(void *)(b->base + SB_OFF_PROCESSES);
  b->connections = (sb_word *)(void *)(b->base + SB_OFF_CONNECTIONS);
  b->chunks = (sb_word *)(void *)(b->base + SB_OFF_CHUNKS);
  b->directory = (sb_word *)(void *)(b->base + SB_OFF_DIRECTORY);
  b->chunk_limit = SB_LOAD(&b->header->chunk_limit, SB_RELAXED);
  b->chunks_per_segment = SB_LOAD(&b->header->chunks_per_segment, SB_RELAXED);
  for (b->groups_shift = 0; (b->chunk_limit - 1) >> b->groups_shift >= 64; b->groups_shift++) {
  }
  uint64_t whole = (b->chunk_limit + b->chunks_per_segment - 1) / b->chunks_per_segment * b->chunks_per_segment;
  b->arena_bytes = whole * SB_CHUNK_BYTES;
  b->meta_bytes = whole * SB_CHUNK_META_BYTES;
  b->arena = reserve(b->arena_bytes);
  b->meta = reserve(b->meta_bytes);
  if (b->arena == NULL || b->meta == NULL) {
    return SB_ADDRESS_SPACE;
  }
  return sb_segment_map(b);
}

static sb_status map_one(sb_broker *b, uint32_t number) {
  char name[8];
  size_t n = 0;
  name[n++] = '.';
  if (number >= 100) name[n++] = (char)('0' + number / 100);
  if (number >= 10) name[n++] = (char)('0' + number / 10 % 10);
  name[n++] = (char)('0' + number % 10);
  name[n] = 0;
  uint64_t meta = b->chunks_per_segment * SB_CHUNK_META_BYTES, body = b->chunks_per_segment * SB_CHUNK_BYTES;
  int fd;
  sb_status status = sb_segment_open(b->path, name, meta + body, &fd);
  if (status != SB_OK) { /* a process that purges sets `closing` before it removes the files */
    bool purged = SB_LOAD(&b->header->closing, SB_SEQ_CST) != 0;
    return status != SB_NOT_FOUND ? status : purged ? SB_STOPPING : SB_CORRUPT;
  }
  void *m = mmap(b->meta + (number - 1) * meta, meta, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  void *a = mmap(b->arena + (number - 1) * body, body, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)meta);
  close(fd);
  if (m == MAP_FAILED || a == MAP_FAILED) {
    return SB_ADDRESS_SPACE;
  }
  (void)madvise(m, meta, MADV_DONTDUMP);
  (void)madvise(a, body, MADV_DONTDUMP);
  return SB_OK;
}

void sb_segment_announce(sb_broker *b, uint32_t number) {
  uint32_t found = SB_LOAD(&b->header->segments, SB_ACQUIRE);
  while (found < number) {
    if (SB_CAS(&b->header->segments, &found, number, SB_ACQ_REL)) { /* P7 release */
      SB_STORE(&b->header->no_room, 0u, SB_RELAXED);
      break;
    }
  }
}

/* Maps the segments up to `number`. Announces each segment that `segments` does not count yet, after it was mapped, and
 * before this process uses it. The caller holds map_lock. */
static sb_status map_up_to(sb_broker *b, uint32_t number) {
  uint32_t mapped = SB_LOAD(&b->mapped_segments, SB_RELAXED);
  sb_status status = number > (b->chunk_limit + b->chunks_per_segment - 1) / b->chunks_per_segment ? SB_CORRUPT : SB_OK;
  while (status == SB_OK && mapped < number) {
    status = map_one(b, mapped + 1);
    if (status == SB_OK) {
      sb_segment_announce(b, mapped + 1);
      SB_STORE(&b->mapped_segments, ++mapped, SB_RELAXED);
      uint32_t chunks = mapped * b->chunks_per_segment;
      SB_STORE(&b->mapped_chunks, chunks < b->chunk_limit ? chunks : b->chunk_limit, SB_RELEASE);
    }
  }
  return status;
}

sb_status sb_segment_map(sb_broker *b) {
  pthread_mutex_lock(&b->map_lock);
  sb_status status = map_up_to(b, SB_LOAD(&b->header->segments, SB_ACQUIRE)); /* P7 acquire */
  pthread_mutex_unlock(&b->map_lock);
  return status;
}

sb_status sb_segment_add(sb_broker *b, uint32_t number) {
  pthread_mutex_lock(&b->map_lock);
  sb_status status = map_up_to(b, number);
  pthread_mutex_unlock(&b->map_lock);
  return status;
}

void sb_segment_detach(sb_broker *b) {
  if (b->arena != NULL) munmap(b->arena, b->arena_bytes);
  if (b->meta != NULL) munmap(b->meta, b->meta_bytes);
  if (b->base != NULL) munmap(b->base, SB_SEGMENT0_BYTES);
  b->arena = b->meta = b->base = NULL;
}
