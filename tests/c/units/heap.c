// SPDX-License-Identifier: Apache-2.0
#include "heap.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../broker_fixture.h"

#define WARM_UP 32u /* rounds until the heap's own caches are full */
#define ROUNDS 64u
#define LARGEST (1u << 20)
#define STACK (1u << 16)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

typedef struct block {
  struct block *next;
} block;
static block *blocks;

size_t heap_in_use(void) {
  struct mallinfo2 now = mallinfo2();
  return now.uordblks + now.hblkhd;
}

size_t heap_kept_by(void (*round)(void)) {
  for (unsigned i = 0; i < WARM_UP; i++) round();
  size_t before = heap_in_use();
  for (unsigned i = 0; i < ROUNDS; i++) round();
  size_t after = heap_in_use();
  return after > before ? (after - before) / ROUNDS : 0;
}

static size_t mapped(void) {
  char text[32] = {0};
  int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC); /* without a buffer of the heap */
  if (fd < 0 || read(fd, text, sizeof text - 1) <= 0) die("reading /proc/self/statm", fd);
  (void)close(fd);
  return strtoul(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

static void limit(rlim_t bytes) {
  struct rlimit all;
  (void)getrlimit(RLIMIT_AS, &all);
  all.rlim_cur = bytes < all.rlim_max ? bytes : all.rlim_max;
  if (setrlimit(RLIMIT_AS, &all) != 0) die("setrlimit", 0);
}

bool heap_limit(size_t more) {
  if (SANITIZED) return false;
  limit(mapped() + more);
  return true;
}

void heap_unlimit(void) {
  if (!SANITIZED) limit(RLIM_INFINITY);
}

/* The stack cannot grow under the limit: what the core needs of it is mapped before. */
static void use_stack(void) {
  volatile char stack[STACK];
  for (size_t i = 0; i < STACK; i += 256) stack[i] = 1;
  (void)stack[0];
}

bool heap_exhaust(void) {
  use_stack();
  if (!heap_limit(0)) return false;
  for (size_t size = LARGEST; size >= sizeof(block); size -= size > 4096 ? size / 2 : 8) {
    for (block *b; (b = malloc(size)) != NULL; blocks = b) b->next = blocks;
  }
  return true;
}

void heap_relieve(void) {
  heap_unlimit();
  while (blocks != NULL) {
    block *b = blocks;
    blocks = b->next;
    free(b);
  }
}
