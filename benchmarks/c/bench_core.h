// SPDX-License-Identifier: Apache-2.0
/* What the programs share: opening a queue, putting and getting a numbered stream, the clock. */
#ifndef BENCH_CORE_H
#define BENCH_CORE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shmbroker.h"

static inline void fail(const char *what, long status) {
  fprintf(stderr, "%s: status %ld\n", what, status);
  exit(1);
}

static inline uint64_t clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static inline void wait_until(uint64_t start_ns) {
  while (clock_ns() < start_ns) {
  }
}

static inline sb_queue *open_queue(const char *broker, const char *name) {
  char path[128];
  sb_status status = SB_OK;
  uint32_t major, minor, slot;
  snprintf(path, sizeof path, "/shmbroker-%u.%s", (unsigned)getuid(), broker);
  sb_broker *b = sb_broker_attach(path, &status, &major, &minor);
  if (b == NULL) fail("cannot attach to the broker", (long)status);
  sb_connection *c = sb_connection_open(b, "bench", 5, &status);
  if (c == NULL) fail("cannot connect", (long)status);
  status = sb_queue_find(c, name, (uint32_t)strlen(name), &slot);
  sb_queue *q = status == SB_OK ? sb_queue_open(c, slot, &status) : NULL;
  if (q == NULL) fail("cannot open the queue", (long)status);
  return q;
}

/* Message number i carries i in its first eight bytes. The broker's memory must exist: nothing here can make it grow. */
static inline void produce(sb_queue *q, uint64_t count, uint32_t size) {
  char *body = calloc(1, size);
  if (body == NULL) fail("no memory", 0);
  for (uint64_t i = 0; i < count;) {
    memcpy(body, &i, sizeof i);
    sb_status status = sb_queue_put(q, body, size);
    if (status == SB_OK) {
      i++;
    } else if (status == SB_GROW) {
      fail("the memory of the broker has to be there before", (long)status);
    } else if ((status = sb_queue_wait_for_room(q, status == SB_NO_MEMORY, size, UINT64_MAX)) != SB_OK) {
      fail("cannot wait for room", (long)status);
    }
  }
  free(body);
}

/* Gets and acknowledges; returns the sum of the numbers. */
static inline uint64_t consume(sb_queue *q, uint64_t count) {
  uint64_t sum = 0, number;
  char *buffer = malloc(1 << 17);
  if (buffer == NULL) fail("no memory", 0);
  for (uint64_t i = 0; i < count; i++) {
    sb_wait forever = {UINT64_MAX, UINT64_MAX, 0, 0};
    int64_t n = sb_queue_get(q, buffer, false);
    if (n == -SB_EMPTY) n = sb_queue_get_wait(q, buffer, false, &forever);
    if (n < 0) fail("cannot get", (long)-n);
    sb_record record;
    memcpy(&record, buffer, sizeof record);
    memcpy(&number,
           record.body_address != 0 ? (const char *)(uintptr_t)record.body_address : buffer + n - record.body_length,
           sizeof number);
    sum += number;
    sb_status status = sb_queue_settle(q, buffer, SB_ACK);
    if (status != SB_OK) fail("cannot acknowledge", (long)status);
  }
  free(buffer);
  return sum;
}

typedef struct {
  const char *broker, *queue;
  uint32_t size;
  uint64_t count, start_ns;
} arguments;

static inline arguments parse(int argc, char **argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: %s BROKER QUEUE SIZE COUNT START_NS\n", argv[0]);
    exit(1);
  }
  arguments a = {argv[1], argv[2], (uint32_t)strtoul(argv[3], NULL, 10), strtoull(argv[4], NULL, 10),
                 strtoull(argv[5], NULL, 10)};
  if (a.size < 8 || a.count == 0) fail("SIZE is at least 8, COUNT at least 1", 0);
  return a;
}

#endif
