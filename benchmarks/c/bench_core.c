// SPDX-License-Identifier: Apache-2.0
/* The C core alone: one producer and one consumer process, put, get and ack one at a time.
 *
 * Usage: bench_core BROKER QUEUE MESSAGES SIZE [same]
 * The broker and the queue exist already. With `same` both sides run one after the other in one process, which shows
 * the instructions of a message without any contention. Prints one line of JSON; exits with 1 if a message is missing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shmbroker.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static sb_queue *open_queue(const char *broker, const char *name, sb_broker **b, sb_connection **c) {
  char path[128];
  sb_status status;
  uint32_t major, minor, slot;
  snprintf(path, sizeof path, "/shmbroker-%u.%s", (unsigned)getuid(), broker);
  *b = sb_broker_attach(path, &status, &major, &minor);
  *c = *b == NULL ? NULL : sb_connect(*b, "bench", 5, &status);
  if (*c == NULL || (status = sb_find(*c, name, (uint32_t)strlen(name), &slot)) != SB_OK) {
    fprintf(stderr, "cannot open queue %s of broker %s: status %d\n", name, broker, (int)status);
    exit(2);
  }
  return sb_open(*c, slot, &status);
}

static void produce(sb_broker *b, sb_queue *q, uint64_t count, uint32_t size) {
  char *body = calloc(1, size);
  for (uint64_t i = 0; i < count;) {
    memcpy(body, &i, sizeof i);
    sb_status status = sb_put(q, body, size);
    if (status == SB_OK) {
      i++;
    } else if (status == SB_GROW) {
      fprintf(stderr, "the broker's memory must exist before: grow it first\n");
      exit(2);
    } else if (sb_wait_for_room(q, status == SB_NO_MEMORY, size, UINT64_MAX) > SB_FULL) {
      exit(2);
    }
  }
  free(body);
  (void)b;
}

static uint64_t consume(sb_queue *q, uint64_t count, bool wait) {
  char *record = malloc(1 << 17);
  uint64_t in_order = 0;
  for (uint64_t i = 0; i < count; i++) {
    int64_t n = sb_get(q, record, false);
    if (n == -SB_EMPTY && wait) n = sb_get_wait(q, record, false, UINT64_MAX);
    if (n < 0) break;
    uint64_t number;
    memcpy(&number, record + sizeof(sb_record), sizeof number);
    in_order += number == i;
    if (sb_settle(q, record, 0) != SB_OK) break;
  }
  free(record);
  return in_order;
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: %s BROKER QUEUE MESSAGES SIZE [same]\n", argv[0]);
    return 2;
  }
  uint64_t count = strtoull(argv[3], NULL, 10);
  uint32_t size = (uint32_t)strtoul(argv[4], NULL, 10);
  if (size < 8) size = 8;
  sb_broker *b;
  sb_connection *c;
  bool same = argc > 5;
  pid_t child = same ? 0 : fork();
  if (!same && child == 0) {
    sb_queue *q = open_queue(argv[1], argv[2], &b, &c);
    produce(b, q, count, size);
    _exit(0);
  }
  sb_queue *q = open_queue(argv[1], argv[2], &b, &c);
  double start = now();
  if (same) produce(b, q, count, size);
  double between = now();
  uint64_t in_order = consume(q, count, !same);
  double end = now();
  if (!same) waitpid(child, NULL, 0);
  printf("{\"messages\": %llu, \"in_order\": %llu, \"size\": %u, \"seconds\": %.6f, \"put_ns\": %.1f, \"get_ack_ns\": "
         "%.1f, \"rate\": %.0f}\n",
         (unsigned long long)count, (unsigned long long)in_order, size, end - start,
         (between - start) / (double)count * 1e9, (end - between) / (double)count * 1e9, (double)count / (end - start));
  return in_order == count ? 0 : 1;
}
