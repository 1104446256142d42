// SPDX-License-Identifier: Apache-2.0
#include "broker_fixture.h"

#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kept_files.h"

bool (*load_wanted)(test_broker *t, sb_queue *q);

void die(const char *what, int status) {
  fprintf(stderr, "%s failed: %d\n", what, status);
  abort();
}

void file_name(char *out, size_t size, const char *path, const char *suffix) {
  snprintf(out, size, "/dev/shm%.95s.%.15s", path, suffix);
}

static void path_of(char *path, size_t size, const char *name) {
  snprintf(path, size, "/shmbroker-%u.%s", (unsigned)getuid(), name);
}

static void write_file(const char *name, uint64_t bytes, const void *front) {
  int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || (bytes != 0 && posix_fallocate(fd, 0, (off_t)bytes) != 0)) die("making a file", fd);
  if (front != NULL && pwrite(fd, front, bytes, 0) != (ssize_t)bytes) die("writing a file", fd);
  close(fd);
}

/* front: the content, NULL: zeros. */
static bool make_file(const char *path, const char *suffix, uint64_t bytes, const void *front) {
  char name[160], hidden[200];
  file_name(name, sizeof name, path, suffix);
  snprintf(hidden, sizeof hidden, "%s.tmp-%d", name, (int)gettid());
  if (front != NULL || !kept_files_give(suffix, bytes, hidden)) write_file(hidden, bytes, front);
  bool made = link(hidden, name) == 0;
  unlink(hidden);
  return made;
}

void remove_files(const char *path) {
  char pattern[160];
  glob_t files;
  file_name(pattern, sizeof pattern, path, "*");
  if (glob(pattern, 0, NULL, &files) == 0) {
    for (size_t i = 0; i < files.gl_pathc; i++) unlink(files.gl_pathv[i]);
    globfree(&files);
  }
}

void remove_broker(const char *name) {
  char path[96];
  path_of(path, sizeof path, name);
  remove_files(path);
}

bool grow(sb_broker *b, const char *path) {
  sb_broker_facts f;
  char suffix[16];
  sb_broker_describe(b, &f, false);
  if (f.segments >= f.segments_limit) return false;
  snprintf(suffix, sizeof suffix, "%u", f.segments + 1);
  (void)make_file(path, suffix, sb_broker_segment_bytes(f.segments + 1, f.chunks_per_segment), NULL);
  return sb_broker_grown(b, f.segments + 1) == SB_OK;
}

void make_broker(test_broker *t, const char *name, uint32_t chunks) {
  uint64_t bytes = sb_broker_segment_bytes(0, 0);
  char *front = calloc(1, bytes);
  path_of(t->path, sizeof t->path, name);
  remove_files(t->path);
  sb_status status = sb_broker_format(front, bytes, name, (uint64_t)chunks << 21, CHUNKS_PER_SEGMENT, 0600, 7);
  if (status != SB_OK) die("sb_broker_format", (int)status);
  make_file(t->path, "lock", 0, NULL);
  make_file(t->path, "0", bytes, front);
  free(front);
}

void attach(test_broker *t) {
  sb_status status;
  uint32_t major, minor;
  t->b = sb_broker_attach(t->path, &status, &major, &minor);
  if (t->b == NULL) die("sb_broker_attach", (int)status);
}

sb_connection *connect_to(test_broker *t) {
  sb_status status;
  for (;;) {
    sb_connection *c = sb_connection_open(t->b, "test", 4, &status);
    if (c != NULL) return c;
    if (status != SB_GROW || !grow(t->b, t->path)) die("sb_connection_open", (int)status);
  }
}

void leave_broker(test_broker *t) {
  (void)sb_connection_close(t->c);
  (void)sb_connection_release(t->c);
  sb_connection_free(t->c);
  sb_broker_detach(t->b);
}

sb_status declare(test_broker *t, const char *name, sb_settings settings) {
  uint32_t slot;
  int32_t holder;
  sb_status status;
  do {
    status = sb_queue_declare(t->c, name, (uint32_t)strlen(name), &settings, FOREVER, &slot, &holder);
  } while (status == SB_GROW && grow(t->b, t->path));
  return status;
}

sb_queue *open_queue(test_broker *t, const char *name) {
  uint32_t slot;
  sb_status status = sb_queue_find(t->c, name, (uint32_t)strlen(name), &slot);
  sb_queue *q = NULL;
  while (status == SB_OK && (q = sb_queue_open(t->c, slot, &status)) == NULL && status == SB_GROW &&
         grow(t->b, t->path))
    status = SB_OK;
  return q;
}

void fill_body(void *body, uint64_t bytes, uint64_t id) {
  char *to = body;
  uint64_t whole = bytes / sizeof id * sizeof id, done = whole < sizeof id ? whole : sizeof id;
  memcpy(to, &id, done);
  for (; done < whole; done *= 2) memcpy(to + done, to, done < whole - done ? done : whole - done);
}

sb_status put_sized(test_broker *t, sb_queue *q, uint64_t id, uint64_t bytes, const sb_put_options *options) {
  uint64_t *body = malloc(bytes);
  sb_put_options ranked = *options;
  ranked.priority = (uint8_t)(id % 3);
  fill_body(body, bytes, id);
  sb_status status;
  unsigned grown = 0; /* in damaged memory, a core may forget the segments that it got */
  do {
    status = sb_queue_put_with(q, (const char *)body, bytes, &ranked);
  } while (status == SB_GROW && grown++ < SB_MAX_SEGMENTS && grow(t->b, t->path));
  free(body);
  return status;
}
sb_status put(test_broker *t, sb_queue *q, uint64_t id) {
  sb_put_options none = {0};
  return put_sized(t, q, id, 64, &none);
}

const char *body_of(const char *record, int64_t length) {
  const sb_record *r = (const sb_record *)(const void *)record;
  return r->body_address != 0 ? (const char *)(uintptr_t)r->body_address : record + length - r->body_length;
}

uint64_t id_at(const char *body, uint64_t bytes) {
  uint64_t id, whole = bytes / sizeof id * sizeof id;
  memcpy(&id, body, sizeof id);
  return whole <= sizeof id || memcmp(body, body + sizeof id, whole - sizeof id) == 0 ? id : UINT64_MAX;
}

/* It is copied, through its view. */
static uint64_t id_in_parts(test_broker *t, const sb_record *r, bool viewed) {
  uint64_t view = r->tag, id = UINT64_MAX;
  char *body = malloc(r->body_length);
  sb_status status = SB_OK;
  do {
    if (!viewed) status = sb_view_begin(t->c, r->tag, r->sequence, SB_IN_PARTS, &view);
  } while (status == SB_GROW && grow(t->b, t->path));
  if (status == SB_OK && sb_view_copy(t->c, view, body, r->body_length) == SB_OK) id = id_at(body, r->body_length);
  if (status == SB_OK && !viewed) sb_view_end(t->c, view);
  free(body);
  return id;
}

/* The id of a message that was taken. */
static uint64_t id_of(test_broker *t, const char *buffer, int64_t length, bool auto_ack) {
  const sb_record *r = (const sb_record *)(const void *)buffer;
  return r->body_address == SB_IN_PARTS ? id_in_parts(t, r, auto_ack) : id_at(body_of(buffer, length), r->body_length);
}

uint64_t get(test_broker *t, sb_queue *q, char *buffer, bool auto_ack) {
  int64_t n;
  do {
    n = sb_queue_get(q, buffer, auto_ack);
  } while (n == -SB_GROW && ((load_wanted != NULL && load_wanted(t, q)) || grow(t->b, t->path)));
  if (n < 0) return 0;
  const sb_record *r = (const sb_record *)(const void *)buffer;
  uint64_t id = id_of(t, buffer, n, auto_ack);
  if (auto_ack && r->body_address != 0) sb_view_end(t->c, r->tag);
  return id;
}

uint64_t take_out(test_broker *t, sb_queue *q, char *buffer) {
  uint64_t position = 0;
  sb_record r;
  if (sb_queue_browse(q, &position, buffer, BUFFER) < 0) return 0;
  memcpy(&r, buffer, sizeof r);
  int64_t n = sb_queue_take(q, r.sequence, buffer);
  return n < 0 ? 0 : id_of(t, buffer, n, false);
}
uint64_t take_away(test_broker *t, sb_queue *q, char *buffer) {
  uint64_t id = take_out(t, q, buffer);
  if (id != 0) (void)sb_queue_settle(q, buffer, SB_ACK);
  return id;
}

int64_t purge_count(sb_queue *q) {
  uint64_t removed = 0;
  sb_status status = sb_queue_purge(q, &removed);
  return status == SB_OK ? (int64_t)removed : -(int64_t)status;
}

uint64_t repairs_of(sb_broker *b) {
  sb_broker_facts f;
  sb_broker_describe(b, &f, false);
  uint64_t all = f.rescues + f.stopped_rescues;
  for (size_t kind = 0; kind < sizeof f.repairs / sizeof f.repairs[0]; kind++)
    all += f.repairs[kind] + f.explained_repairs[kind];
  return all;
}

const char *findings(sb_connection *c) {
  static char text[240];
  sb_finding f[4];
  uint32_t n = sb_broker_check(c, f, 4);
  if (n == 0) return NULL;
  snprintf(text, sizeof text,
           "sb_broker_check: %u findings, the first: code %u slot %u which %u where %llu found %llu expected %llu", n,
           f[0].code, f[0].slot, f[0].which, (unsigned long long)f[0].where, (unsigned long long)f[0].found,
           (unsigned long long)f[0].expected);
  return text;
}
