// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u
#define REGIONS 8u
#define PAGES 4096u                    /* that runs may change */
#define HEAP_BYTES (UINT64_C(8) << 20) /* of each user */
#define HEAP_USERS 8u

static struct {
  uint8_t *start;
  size_t bytes;
} regions[REGIONS];
static unsigned region_count;
static uint8_t *changed[PAGES];
static uint64_t kept_hash[PAGES];
static uint8_t *copies;
static unsigned changed_count;

static uint8_t *heap;

static void give_up(const char *why) {
  fprintf(stderr, "world: %s\n", why);
  abort();
}

void world_add(void *start, size_t bytes) {
  if (region_count == REGIONS) give_up("too many regions");
  regions[region_count].start = start;
  regions[region_count++].bytes = (bytes + PAGE - 1) / PAGE * PAGE;
}

void *world_allocate(unsigned user, size_t bytes) {
  if (heap == NULL) {
    heap = mmap(NULL, HEAP_USERS * HEAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (heap == MAP_FAILED) give_up("no memory");
    world_add(heap, HEAP_USERS * HEAP_BYTES);
  }
  uint8_t *mine = heap + user * HEAP_BYTES;
  size_t *used = (size_t *)(void *)mine; /* lies in the heap itself, so that it goes back too */
  uint8_t *at = mine + 64 + *used;
  *used += (bytes + 63) / 64 * 64;
  if (user >= HEAP_USERS || *used + 64 > HEAP_BYTES) give_up("the heap is full");
  memset(at, 0, bytes);
  return at;
}

bool world_contains(const volatile void *address) {
  for (unsigned i = 0; i < region_count; i++) {
    if ((uintptr_t)address - (uintptr_t)regions[i].start < regions[i].bytes) return true;
  }
  return false;
}

static uint64_t rotate(uint64_t x, unsigned by) { return x << by | x >> (64 - by); }
static uint64_t hash_of(const uint8_t *page) {
  const uint64_t *words = (const uint64_t *)(const void *)page;
  uint64_t lane[4] = {1, 2, 3, 4};
  for (unsigned i = 0; i < PAGE / 8; i += 4) {
    for (unsigned k = 0; k < 4; k++) lane[k] = rotate(lane[k] ^ words[i + k], 29) * UINT64_C(0x9e3779b97f4a7c15);
  }
  return lane[0] ^ rotate(lane[1], 17) ^ rotate(lane[2], 34) ^ rotate(lane[3], 51);
}

static void first_write(int signal_number, siginfo_t *info, void *context) {
  (void)context;
  if (!world_contains(info->si_addr)) { /* a crash like any other */
    signal(signal_number, SIG_DFL);
    return;
  }
  if (changed_count == PAGES) give_up("too many pages change");
  uint8_t *page = (uint8_t *)((uintptr_t)info->si_addr / PAGE * PAGE);
  for (unsigned i = 0; i < changed_count; i++) {
    if (changed[i] == page) { /* it may be written, so it was not that: memory without a file behind it */
      signal(signal_number, SIG_DFL);
      return;
    }
  }
  memcpy(copies + (size_t)changed_count * PAGE, page, PAGE);
  kept_hash[changed_count] = hash_of(page);
  changed[changed_count++] = page;
  if (mprotect(page, PAGE, PROT_READ | PROT_WRITE) != 0) give_up("mprotect");
}

bool world_is_kept(void) { return copies != NULL; }

void world_keep(void) {
  static uint8_t signal_stack[1 << 16]; /* stacks of actors are short */
  stack_t stack = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
  struct sigaction action = {.sa_sigaction = first_write, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  copies = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copies == MAP_FAILED || sigaltstack(&stack, NULL) != 0 || sigaction(SIGSEGV, &action, NULL) != 0)
    give_up("the handler of first writes");
  for (unsigned i = 0; i < region_count; i++) {
    if (mprotect(regions[i].start, regions[i].bytes, PROT_READ) != 0) give_up("mprotect");
  }
}

uint64_t world_state(void) {
  uint64_t state = 0;
  for (unsigned i = 0; i < changed_count; i++) { /* a page as it was counts nothing, so new pages change no old state */
    uint64_t page = (uint64_t)(uintptr_t)changed[i] * UINT64_C(0xd6e8feb86659fd93), now = hash_of(changed[i]);
    state += (rotate(now ^ page, 23) - rotate(kept_hash[i] ^ page, 23)) * UINT64_C(0xbf58476d1ce4e5b9);
  }
  return state;
}

void world_go_back(void) {
  for (unsigned i = 0; i < changed_count; i++) memcpy(changed[i], copies + (size_t)i * PAGE, PAGE);
}
