// SPDX-License-Identifier: Apache-2.0
/* sb_segment: the header of a new broker, the files that are opened, and where they are mapped. */
#include "sb_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "cases.h"
#include "heap.h"
#include "meanwhile.h"

#define SEGMENT_BYTES(chunks) ((chunks) * (SB_CHUNK_META_BYTES + SB_CHUNK_BYTES))
#define ANOTHER_USER 49u /* as the number of a letter behind the digits */

/* ---- the header ---- */

static sb_header_shm *fresh;
static sb_status format(uint64_t bytes, const char *name, uint64_t chunks, uint32_t per) {
  memset(fresh, 0, sizeof *fresh);
  return sb_segment_format(fresh, bytes, name, chunks * SB_CHUNK_BYTES + 5, per, 0640, 77, 88);
}
static void a_fresh_header(void) {
  fresh = calloc(1, SB_SEGMENT0_BYTES);
  expect_is(format(SB_SEGMENT0_BYTES, "name", 48, 12), SB_OK, "the status");
  const uint64_t is[] = {fresh->magic,       fresh->layout_major, fresh->layout_minor, fresh->layout_hash,
                         fresh->instance,    fresh->memory_limit, fresh->created_ns,   fresh->chunks_per_segment,
                         fresh->chunk_limit, fresh->mode,         fresh->uid,          fresh->next_due_ns,
                         fresh->segments};
  const uint64_t should[] = {SB_MAGIC,
                             SB_LAYOUT_MAJOR,
                             SB_LAYOUT_MINOR,
                             sb_segment_layout_hash(),
                             77,
                             48 * SB_CHUNK_BYTES,
                             88,
                             12,
                             48,
                             0640,
                             getuid(),
                             UINT64_MAX,
                             0};
  for (unsigned i = 0; i < sizeof is / sizeof is[0]; i++) expect_is(is[i], should[i], "a field of the header");
  expect(strcmp(fresh->name, "name") == 0, "its name is %s", fresh->name);
}
/* Another user makes it, in a process of its own. */
static void the_header_of_another_user(void) {
  int status;
  if (geteuid() != 0) return;
  fresh = calloc(1, SB_SEGMENT0_BYTES);
  pid_t pid = fork();
  if (pid == 0)
    _exit(setuid(ANOTHER_USER) != 0 || format(SB_SEGMENT0_BYTES, "n", 1, 1) != SB_OK ? 255 : (int)fresh->uid);
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) die("a child", status);
  expect_is(WEXITSTATUS(status), ANOTHER_USER, "the user");
}
static void what_cannot_be_formatted(void) {
  char name[SB_BROKER_NAME_MAX + 2];
  fresh = calloc(1, SB_SEGMENT0_BYTES);
  memset(name, 'n', sizeof name);
  name[SB_BROKER_NAME_MAX + 1] = 0;
  const struct {
    uint64_t bytes, chunks;
    uint32_t per;
    const char *name;
    bool good;
  } tries[] = {{SB_SEGMENT0_BYTES - 1, 48, 12, "n", false},
               {SB_SEGMENT0_BYTES, 0, 12, "n", false},
               {SB_SEGMENT0_BYTES, 1, 12, "n", true},
               {SB_SEGMENT0_BYTES, SB_MAX_CHUNKS, 256, "n", true},
               {SB_SEGMENT0_BYTES, SB_MAX_CHUNKS + 1, 256, "n", false},
               {SB_SEGMENT0_BYTES, 48, 0, "n", false},
               {SB_SEGMENT0_BYTES, SB_MAX_SEGMENTS, 1, "n", true},
               {SB_SEGMENT0_BYTES, SB_MAX_SEGMENTS + 1, 1, "n", false},
               {SB_SEGMENT0_BYTES, 2 * SB_MAX_SEGMENTS, 2, "n", true},
               {SB_SEGMENT0_BYTES, 2 * SB_MAX_SEGMENTS + 1, 2, "n", false},
               {SB_SEGMENT0_BYTES, 48, 12, name + 1, true},
               {SB_SEGMENT0_BYTES, 48, 12, name, false}};
  for (unsigned i = 0; i < sizeof tries / sizeof tries[0]; i++) {
    sb_status status = format(tries[i].bytes, tries[i].name, tries[i].chunks, tries[i].per);
    expect(status == (tries[i].good ? SB_OK : SB_INVALID), "try %u gives %d", i, (int)status);
    expect_is(fresh->magic, tries[i].good ? SB_MAGIC : 0, "the magic number");
  }
}
/* Sizes that are not mixed into it leave a power of its factor. */
static void the_hash_of_the_layout(void) {
  uint64_t without = SB_MAGIC, hash = sb_segment_layout_hash();
  for (unsigned i = 0; i < 100; i++) {
    expect(hash != without, "no size counts in the hash");
    without *= UINT64_C(0xff51afd7ed558ccd);
  }
}

/* ---- files ---- */

static int lowest_descriptor(void) {
  int fd = dup(STDERR_FILENO);
  (void)close(fd);
  return fd;
}
static char file[200];
static sb_status open_as(const char *path, uint64_t least) {
  int before = lowest_descriptor(), fd = -1;
  sb_status status = sb_segment_open(path, ".x", least, &fd);
  expect_is(fd >= 0, status == SB_OK, "whether there is a descriptor");
  if (fd >= 0) (void)close(fd);
  expect_is(lowest_descriptor(), before, "the next descriptor");
  return status;
}
/* A file of eight bytes, which is there only for this call. */
static sb_status open_file(const char *path, mode_t mode, uint64_t least, uid_t owner) {
  file_name(file, sizeof file, path, "x");
  (void)unlink(file);
  int fd = open(file, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd < 0 || ftruncate(fd, 8) != 0 || fchmod(fd, mode) != 0 || fchown(fd, owner, (gid_t)-1) != 0)
    die("a file", errno);
  (void)close(fd);
  sb_status status = open_as(path, least);
  (void)unlink(file);
  return status;
}
static void which_modes_are_trusted(void) {
  const struct {
    mode_t mode;
    sb_status status;
  } modes[] = {{0600, SB_OK},     {0660, SB_OK},     {0640, SB_ACCESS}, {0620, SB_ACCESS},
               {0601, SB_ACCESS}, {0602, SB_ACCESS}, {0604, SB_ACCESS}, {0661, SB_ACCESS}};
  for (unsigned i = 0; i < sizeof modes / sizeof modes[0]; i++)
    expect_is(open_file(t.path, modes[i].mode, 8, getuid()), modes[i].status, "the status of a mode");
  expect_is(open_file(t.path, 0600, 9, getuid()), SB_LAYOUT, "the status of a file that is short");
}
static void what_is_no_file(void) {
  file_name(file, sizeof file, t.path, "x");
  expect_is(open_as(t.path, 0), SB_NOT_FOUND, "the status of no file");
  if (mkfifo(file, 0600) != 0) die("mkfifo", errno);
  expect_is(open_as(t.path, 0), SB_ACCESS, "the status of a pipe");
  (void)unlink(file);
  if (symlink("/dev/null", file) != 0) die("symlink", errno);
  expect_is(open_as(t.path, 0), SB_ACCESS, "the status of a link");
  (void)unlink(file);
  if (mkdir(file, 0700) != 0) die("mkdir", errno);
  expect_is(open_as(t.path, 0), SB_SYSTEM, "the status of a folder");
  (void)rmdir(file);
}
/* Even root may not open such a file. */
static void a_file_that_stays_as_it_is(void) {
  int flags = 0;
  file_name(file, sizeof file, t.path, "x");
  int fd = open(file, O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd < 0) die("a file", errno);
  if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0) {
    int kept = flags | FS_IMMUTABLE_FL;
    if (ioctl(fd, FS_IOC_SETFLAGS, &kept) == 0) {
      sb_status status = open_as(t.path, 0);
      (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
      expect_is(status, SB_ACCESS, "the status of a file that nobody may change");
    }
  }
  (void)close(fd);
  (void)unlink(file);
}
/* The user in the name is the owner. */
static void whose_files_are_trusted(void) {
  const struct {
    const char *name;
    uid_t owner;
    mode_t mode;
    sb_status status;
  } files[] = {{"/shmbroker-9", 9, 0660, SB_OK},
               {"/shmbroker-49", ANOTHER_USER, 0660, SB_OK},
               {"/shmbroker-49", ANOTHER_USER, 0600, SB_ACCESS},
               {"/shmbroker-48", ANOTHER_USER, 0660, SB_ACCESS},
               {"/shmbroker-0a", ANOTHER_USER, 0660, SB_ACCESS},
               {"/shmbroker-0", 0, 0600, SB_OK},
               {"/shmbroker-0x", 0, 0600, SB_ACCESS},
               {"/shmbroker-", 0, 0600, SB_ACCESS},
               {"/shmbroker-:", 0, 0600, SB_ACCESS},
               {"/shmbroker-:", 10, 0660, SB_ACCESS},
               {"/shmbrokes-0", 0, 0600, SB_ACCESS},
               {"/shmbroker-18446744073709551616", 0, 0600, SB_ACCESS}};
  if (geteuid() != 0) return; /* files of others can be made by root only */
  for (unsigned i = 0; i < sizeof files / sizeof files[0]; i++) {
    char path[64];
    (void)snprintf(path, sizeof path, "%s.units-%d", files[i].name, (int)getpid()); /* no other process has it */
    sb_status status = open_file(path, files[i].mode, 8, files[i].owner);
    expect(status == files[i].status, "%s of user %u, mode %o: status %d", path, files[i].owner, files[i].mode,
           (int)status);
  }
}
static void how_long_names_are(void) {
  char path[300];
  int fd;
  memset(path, 'p', sizeof path);
  path[0] = '/';
  path[245] = 0;
  expect_is(sb_segment_open(path, ".x", 0, &fd), SB_NOT_FOUND, "the status of the longest name");
  path[245] = 'p';
  path[246] = 0;
  expect_is(sb_segment_open(path, ".x", 0, &fd), SB_INVALID, "the status of a longer name");
}
static void the_first_descriptor(void) {
  int kept = dup(STDIN_FILENO), fd = -1;
  (void)close(STDIN_FILENO);
  expect_is(sb_segment_open(t.path, ".0", 0, &fd), SB_OK, "the status");
  expect_is(fd, 0, "the descriptor");
  (void)dup2(kept, STDIN_FILENO);
  (void)close(kept);
}

/* ---- attaching ---- */

static sb_broker b;
static uint32_t major, minor;
static sb_status attach_path(const char *path) {
  memset(&b, 0, sizeof b);
  memset(b.path, 'x', sizeof b.path);
  pthread_mutex_init(&b.map_lock, NULL);
  return sb_segment_attach(&b, path, &major, &minor);
}
static sb_status attach_again(void) {
  int before = lowest_descriptor();
  sb_status status = attach_path(t.path);
  expect_is(lowest_descriptor(), before, "the next descriptor");
  return status;
}
/* The header says that there are this many chunks, in segments of that many, and that no segment exists yet. */
static void set_chunks(uint32_t limit, uint32_t per) {
  sb_header_shm *h = t.b->header;
  SB_STORE(&h->chunk_limit, limit, SB_RELAXED);
  SB_STORE(&h->chunks_per_segment, per, SB_RELAXED);
  SB_STORE(&h->memory_limit, limit * SB_CHUNK_BYTES, SB_RELAXED);
  SB_STORE(&h->segments, 0u, SB_RELAXED);
}
static bool has_flag(const void *address, const char *flag) {
  char line[400];
  bool here = false, found = false;
  FILE *maps = fopen("/proc/self/smaps", "r");
  while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
    unsigned long from, to;
    if (sscanf(line, "%lx-%lx ", &from, &to) == 2) here = (uintptr_t)address >= from && (uintptr_t)address < to;
    if (here && strncmp(line, "VmFlags:", 8) == 0) found = strstr(line, flag) != NULL;
  }
  if (maps != NULL) (void)fclose(maps);
  return found;
}
static bool is_mapped(const void *address) {
  unsigned char page;
  return mincore((void *)((uintptr_t)address & ~UINT64_C(4095)), 1, &page) == 0;
}
static void a_broker_is_attached(void) {
  expect_is(attach_again(), SB_OK, "the status");
  expect(strcmp(b.path, t.path) == 0, "its path is another one");
  expect_is(major, SB_LAYOUT_MAJOR, "the layout");
  expect_is(minor, SB_LAYOUT_MINOR, "the minor layout");
  expect_is(b.arena_bytes, 48 * SB_CHUNK_BYTES, "the bytes of the arena");
  expect_is(b.meta_bytes, 48 * SB_CHUNK_META_BYTES, "the bytes of the metadata");
  expect_is(b.mapped_segments, 1, "the segments that are mapped");
  expect_is(b.mapped_chunks, 12, "the chunks that are mapped");
  const void *regions[] = {b.base, b.meta, b.arena};
  for (unsigned i = 0; i < 3; i++) expect(has_flag(regions[i], " dd"), "region %u is in a dump", i);
  const void *reserved = b.arena + 12 * SB_CHUNK_BYTES;
  expect(is_mapped(reserved), "the rest of the arena is not reserved");
  sb_segment_detach(&b);
  expect(b.arena == NULL && b.meta == NULL && b.base == NULL, "a region that is detached has an address");
  for (unsigned i = 0; i < 3; i++) expect(!is_mapped(regions[i]), "region %u is mapped still", i);
}
/* What was not mapped is not unmapped, although its size is known. */
static void half_a_broker_is_detached(void) {
  void *low = mmap((void *)0x20000, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (low != (void *)0x20000) return; /* the system keeps that page */
  sb_broker half = {.arena_bytes = 1 << 20, .meta_bytes = 1 << 20};
  sb_segment_detach(&half);
  expect(is_mapped(low), "memory of others was unmapped");
}
static void how_long_paths_are(void) {
  char path[sizeof b.path + 1];
  memset(path, 'p', sizeof path);
  path[sizeof b.path - 8] = 0;
  expect_is(attach_path(path), SB_NOT_FOUND, "the status of the longest path");
  path[sizeof b.path - 8] = 'p';
  path[sizeof b.path - 7] = 0;
  expect_is(attach_path(path), SB_INVALID, "the status of a longer path");
}
static void which_headers_are_ours(void) {
  sb_header_shm *h = t.b->header;
  const struct {
    uint32_t limit, per;
    bool good;
  } sizes[] = {{1, 1, true},
               {48, 12, true},
               {SB_MAX_CHUNKS, 256, true},
               {SB_MAX_CHUNKS + 1, 256, false},
               {0, 12, false},
               {48, 0, false},
               {255, 1, true},
               {256, 1, false},
               {510, 2, true},
               {48, SB_MAX_CHUNKS, true},
               {48, SB_MAX_CHUNKS + 1, false},
               {48, UINT32_MAX, false}};
  for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    set_chunks(sizes[i].limit, sizes[i].per);
    sb_status status = attach_again();
    expect(status == (sizes[i].good ? SB_OK : SB_LAYOUT), "sizes %u give %d", i, (int)status);
    sb_segment_detach(&b);
  }
  set_chunks(48, 12);
  sb_word *words[] = {&h->magic, &h->layout_hash, &h->memory_limit};
  for (unsigned i = 0; i < 3; i++) {
    (void)SB_ADD(words[i], 1, SB_RELAXED);
    expect_is(attach_again(), SB_LAYOUT, "the status of another word");
    sb_segment_detach(&b);
    (void)SB_SUB(words[i], 1, SB_RELAXED);
  }
  SB_STORE(&h->layout_major, SB_LAYOUT_MAJOR + 1u, SB_RELAXED);
  SB_STORE(&h->layout_minor, 99u, SB_RELAXED);
  expect_is(attach_again(), SB_LAYOUT, "the status of another layout");
  expect_is(major, SB_LAYOUT_MAJOR + 1, "the layout that was found");
  expect_is(minor, 99, "the minor layout that was found");
  sb_segment_detach(&b);
}
static void how_chunks_are_grouped(void) {
  const uint32_t limits[] = {1, 64, 65, 128, 129, SB_MAX_CHUNKS}, shifts[] = {0, 0, 1, 1, 2, 9};
  for (unsigned i = 0; i < 6; i++) {
    set_chunks(limits[i], 256);
    expect_is(attach_again(), SB_OK, "the status");
    expect_is(b.groups_shift, shifts[i], "the shift of a group");
    expect_is(b.arena_bytes, (limits[i] + 255) / 256 * 256 * SB_CHUNK_BYTES, "the bytes of the arena");
    sb_segment_detach(&b);
  }
}
static void no_address_space(void) {
  const struct {
    uint64_t room;
    sb_status status;
  } limits[] = {
      {4096, SB_SYSTEM},                                                                  /* less than segment 0 */
      {SB_SEGMENT0_BYTES + (UINT64_C(8) << 20), SB_ADDRESS_SPACE},                        /* without the arena */
      {SB_SEGMENT0_BYTES + 48 * SB_CHUNK_BYTES + (UINT64_C(1) << 20), SB_ADDRESS_SPACE}}; /* without metadata */
  set_chunks(48, 12);
  for (unsigned i = 0; i < 3; i++) {
    if (!heap_limit(limits[i].room)) return;
    sb_status status = attach_path(t.path);
    heap_unlimit();
    expect(status == limits[i].status, "with limit %u the status is %d", i, (int)status);
    expect((b.base == NULL) == (i == 0), "with limit %u segment 0 has another address", i);
    expect((b.arena == NULL) == (i < 2), "with limit %u the arena has another address", i);
    sb_segment_detach(&b);
  }
}

/* ---- segments ---- */

static void make_segment(unsigned number, uint64_t bytes) {
  char suffix[8];
  (void)snprintf(suffix, sizeof suffix, "%u", number);
  file_name(file, sizeof file, t.path, suffix);
  (void)unlink(file);
  int fd = open(file, O_RDWR | O_CREAT | O_EXCL, 0600);
  uint64_t mark = number;
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || pwrite(fd, &mark, sizeof mark, 0) != (ssize_t)sizeof mark)
    die("a segment", errno);
  (void)close(fd);
}
/* Their names have one, two or three digits. Each is where it belongs. */
static void many_segments(void) {
  set_chunks(110, 1);
  for (unsigned i = 1; i <= 101; i++) make_segment(i, SEGMENT_BYTES(1));
  SB_STORE(&t.b->header->segments, 101u, SB_RELAXED);
  expect_is(attach_again(), SB_OK, "the status");
  expect_is(b.mapped_segments, 101, "the segments that are mapped");
  for (uint32_t i = 0; i < 101; i++) expect_is(sb_chunk_meta(&b, i)->headers[0], i + 1, "the number of a segment");
  sb_segment_detach(&b);
}
static void the_last_segment(void) {
  const uint32_t limits[] = {48, 47};
  for (unsigned i = 0; i < 2; i++) {
    set_chunks(limits[i], 12);
    for (unsigned k = 1; k <= 5; k++) make_segment(k, SEGMENT_BYTES(12));
    SB_STORE(&t.b->header->segments, 4u, SB_RELAXED);
    expect_is(attach_again(), SB_OK, "the status");
    expect_is(b.mapped_chunks, limits[i], "the chunks that are mapped");
    SB_STORE(&t.b->header->segments, 5u, SB_RELAXED);
    expect_is(sb_segment_map(&b), SB_CORRUPT, "the status of a segment too many");
    expect_is(b.mapped_segments, 4, "the segments that are mapped");
    sb_segment_detach(&b);
  }
}
static void segments_that_are_missing(void) {
  expect_is(attach_again(), SB_OK, "the status");
  SB_STORE(&t.b->header->segments, 2u, SB_RELAXED);
  expect_is(sb_segment_map(&b), SB_CORRUPT, "the status of a segment that is not there");
  SB_STORE(&t.b->header->closing, 1u, SB_RELAXED);
  expect_is(sb_segment_map(&b), SB_STOPPING, "the status while the broker is purged");
  make_segment(2, SEGMENT_BYTES(12) - 1);
  expect_is(sb_segment_map(&b), SB_LAYOUT, "the status of a segment that is short");
  expect_is(b.mapped_segments, 1, "the segments that are mapped");
  sb_segment_detach(&b);
}
/* No address can be had where the segment belongs. */
static void segments_that_cannot_be_mapped(void) {
  for (unsigned i = 0; i < 2; i++) {
    expect_is(attach_again(), SB_OK, "the status");
    uint8_t **region = i == 0 ? &b.meta : &b.arena;
    b.mapped_segments = 0;
    *region += 1;
    expect_is(sb_segment_map(&b), SB_ADDRESS_SPACE, "the status");
    expect_is(b.mapped_segments, 0, "the segments that are mapped");
    *region -= 1;
    sb_segment_detach(&b);
  }
}
static bool locked;
static void look_at_lock(void) {
  locked = pthread_mutex_trylock(&b.map_lock) == EBUSY;
  if (!locked) pthread_mutex_unlock(&b.map_lock);
}
static void one_maps_at_a_time(void) {
  if (!has_steps()) return;
  expect_is(attach_again(), SB_OK, "the status");
  meanwhile(&b.header->segments, BEFORE_LOAD, 1, look_at_lock);
  expect_is(sb_segment_map(&b), SB_OK, "the status");
  (void)has_acted();
  expect(locked, "the lock is free while segments are counted");
  expect(pthread_mutex_trylock(&b.map_lock) == 0, "the lock is kept");
  pthread_mutex_unlock(&b.map_lock);
  sb_segment_detach(&b);
}
static void another_announces(void) { SB_STORE(&t.b->header->segments, 2u, SB_RELAXED); }
static void segments_are_announced(void) {
  sb_half *segments = &t.b->header->segments;
  sb_half *no_room = &t.b->header->no_room;
  SB_STORE(no_room, 1u, SB_RELAXED);
  sb_segment_announce(t.b, 3);
  expect_is(*segments, 3, "the segments after a new one");
  expect_is(*no_room, 0, "whether there is no room, after a new one");
  SB_STORE(no_room, 1u, SB_RELAXED);
  sb_segment_announce(t.b, 2);
  expect_is(*segments, 3, "the segments after an old one");
  expect_is(*no_room, 1, "whether there is no room, after an old one");
  if (!has_steps()) return;
  SB_STORE(segments, 1u, SB_RELAXED);
  meanwhile(segments, BEFORE_CAS, 1, another_announces);
  sb_segment_announce(t.b, 3);
  (void)has_acted();
  expect_is(*segments, 3, "the segments after two new ones");
}

/* A file that is not the broker's, where the next segment belongs: the broker has as many segments as before. */
static void a_file_in_the_place_of_a_segment(void) {
  sb_half *segments = &t.b->header->segments;
  SB_STORE(&t.b->header->no_room, 1u, SB_RELAXED);
  make_segment(2, SEGMENT_BYTES(12) - 1);
  expect_is(sb_broker_grown(t.b, 2), SB_LAYOUT, "the status of a file that is too short");
  make_segment(2, SEGMENT_BYTES(12));
  if (chmod(file, 0644) != 0) die("chmod", errno);
  expect_is(sb_broker_grown(t.b, 2), SB_ACCESS, "the status of a file that others can read");
  (void)unlink(file);
  expect_is(sb_broker_grown(t.b, 2), SB_CORRUPT, "the status of a file that is not there");
  expect_is(sb_broker_grown(t.b, 5), SB_CORRUPT, "the status of a segment too many");
  expect_is(*segments, 1, "the segments");
  expect_is(t.b->mapped_segments, 1, "the segments that are mapped");
  expect_is(t.b->header->no_room, 1, "whether there is no room");
  expect_is(attach_again(), SB_OK, "the status of an attach");
  sb_segment_detach(&b);
  make_segment(2, SEGMENT_BYTES(12));
  expect_is(sb_broker_grown(t.b, 2), SB_OK, "the status of the broker's own file");
  expect_is(*segments, 2, "the segments with it");
  expect_is(t.b->mapped_chunks, 24, "the chunks that are mapped with it");
  expect_is(sb_chunk_meta(t.b, 12)->headers[0], 2, "the number of the segment");
  expect_is(t.b->header->no_room, 0, "whether there is no room with it");
  expect(pthread_mutex_trylock(&t.b->map_lock) == 0, "the lock is kept");
  pthread_mutex_unlock(&t.b->map_lock);
}
/* No slot of the segment is used before all processes count the segment; and it is mapped before. */
static uint64_t first_word;
static uint32_t mapped_before;
static void look_at_the_segment(void) {
  first_word = sb_chunk_meta(t.b, 12)->headers[0];
  mapped_before = SB_LOAD(&t.b->mapped_segments, SB_RELAXED);
}
static void a_segment_is_mapped_then_announced(void) {
  make_segment(2, SEGMENT_BYTES(12));
  meanwhile(&t.b->header->segments, BEFORE_CAS, 1, look_at_the_segment);
  expect_is(sb_broker_grown(t.b, 2), SB_OK, "the status");
  if (!has_acted()) return;
  expect_is(first_word, 2, "the number of the segment before it is announced");
  expect_is(mapped_before, 1, "the segments that are used before that");
}
/* Another process adds the same segment meanwhile, and one more. */
static void another_adds_two(void) {
  make_segment(3, SEGMENT_BYTES(12));
  SB_STORE(&t.b->header->segments, 3u, SB_RELAXED);
}
static void two_processes_add_a_segment(void) {
  make_segment(2, SEGMENT_BYTES(12));
  meanwhile(&t.b->header->segments, BEFORE_CAS, 1, another_adds_two);
  expect_is(sb_broker_grown(t.b, 2), SB_OK, "the status");
  if (!has_acted()) return;
  expect_is(t.b->header->segments, 3, "the segments");
  expect_is(sb_segment_map(t.b), SB_OK, "the status of a look at all of them");
  expect_is(t.b->mapped_segments, 3, "the segments that are mapped then");
}

static const test_case CASES[] = {
    {"segment: header", "a fresh header says what the broker is", a_fresh_header},
    {"segment: user", "a header says whose the broker is", the_header_of_another_user},
    {"segment: refused", "sizes and names that do not fit are refused", what_cannot_be_formatted},
    {"segment: hash", "the sizes of the layout count in its hash", the_hash_of_the_layout},
    {"segment: modes", "a file that others may write or read is not trusted", which_modes_are_trusted},
    {"segment: no file", "only a regular file is opened", what_is_no_file},
    {"segment: immutable", "a file that nobody may change cannot be opened", a_file_that_stays_as_it_is},
    {"segment: owners", "a file is trusted if its owner is the user in its name", whose_files_are_trusted},
    {"segment: names", "a name that is too long is refused", how_long_names_are},
    {"segment: descriptor", "descriptor 0 is one like others", the_first_descriptor},
    {"segment: attached", "a broker is mapped, and unmapped", a_broker_is_attached},
    {"segment: half", "what was not mapped is not unmapped", half_a_broker_is_detached},
    {"segment: paths", "a path that is too long is refused", how_long_paths_are},
    {"segment: ours", "another layout, or sizes that do not fit, are refused", which_headers_are_ours},
    {"segment: groups", "chunks are in 64 groups at most", how_chunks_are_grouped},
    {"segment: no room", "without address space nothing is attached", no_address_space},
    {"segment: many", "segments are found by their numbers", many_segments},
    {"segment: last", "no more chunks are mapped than there may be", the_last_segment},
    {"segment: missing", "a segment that is missing or short is told", segments_that_are_missing},
    {"segment: no address", "a segment that cannot be mapped is told", segments_that_cannot_be_mapped},
    {"segment: lock", "one thread at a time maps segments", one_maps_at_a_time},
    {"segment: foreign", "a file that is not the broker's is no segment", a_file_in_the_place_of_a_segment},
    {"segment: mapped first", "a segment is mapped before it is announced", a_segment_is_mapped_then_announced},
    {"segment: added twice", "two processes add the same segment", two_processes_add_a_segment},
    {"segment: announced", "the number of segments only grows", segments_are_announced},
};
SUBJECT(CASES)
