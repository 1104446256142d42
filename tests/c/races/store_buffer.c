// SPDX-License-Identifier: Apache-2.0
/* The atomic operations of the core, as steps of the scheduler on a machine with store buffers. */
#include "store_buffer.h"

#include <string.h>

#include "sb_atomic.h"
#include "scheduler.h"

typedef struct {
  volatile void *word;
  size_t size;
  uint64_t value, moment;
} store;
static struct {
  store stores[DELAYED_MAX];
  unsigned count;
} buffers[ACTORS];

static uint64_t read_word(const volatile void *word, size_t size) {
  const void *at = (const void *)(uintptr_t)word; /* one thread: there is no other access */
  return size == 8   ? *(const uint64_t *)at
         : size == 4 ? *(const uint32_t *)at
         : size == 2 ? *(const uint16_t *)at
                     : *(const uint8_t *)at;
}
static void write_word(volatile void *word, size_t size, uint64_t value) {
  memcpy((void *)(uintptr_t)word, &value, size);
}

unsigned delayed_count(unsigned actor) { return buffers[actor].count; }
uint64_t delayed_since(unsigned actor, unsigned i) { return buffers[actor].stores[i].moment; }

void delayed_write(unsigned actor, unsigned keep) {
  unsigned n = buffers[actor].count > keep ? buffers[actor].count - keep : 0;
  for (unsigned i = 0; i < n; i++) {
    const store *s = &buffers[actor].stores[i];
    write_word(s->word, s->size, s->value);
  }
  buffers[actor].count -= n;
  memmove(buffers[actor].stores, buffers[actor].stores + n, buffers[actor].count * sizeof(store));
}

/* An operation that waits until all stores before it are seen. */
static void barrier(const char *site, volatile void *word) {
  scheduler_step(site, word, true);
  if (scheduler_current() != NOBODY) delayed_write(scheduler_current(), 0);
}

void sb_test_step(const char *site) { (void)site; /* a kill before the next write leaves the same */ }

bool sb_test_aside = true;

uint64_t sb_test_load(const char *site, const volatile void *word, size_t size) {
  scheduler_step(site, word, false);
  unsigned me = scheduler_current();
  for (unsigned i = buffers[me].count; i > 0; i--) {
    const store *s = &buffers[me].stores[i - 1];
    if (s->word == word && s->size == size) return s->value;
    if ((uintptr_t)s->word - (uintptr_t)word < size || (uintptr_t)word - (uintptr_t)s->word < s->size) {
      delayed_write(me, 0); /* a part of it: a processor waits, too */
      break;
    }
  }
  return read_word(word, size);
}

void sb_test_store(const char *site, volatile void *word, size_t size, uint64_t value, memory_order order) {
  if (order == memory_order_seq_cst) {
    barrier(site, word);
    write_word(word, size, value);
    return;
  }
  scheduler_step(site, word, true);
  unsigned me = scheduler_current();
  if (!scheduler_delays(word)) {
    write_word(word, size, value);
    return;
  }
  if (buffers[me].count == DELAYED_MAX) delayed_write(me, DELAYED_MAX - 1);
  uint64_t mask = size == 8 ? UINT64_MAX : (UINT64_C(1) << size * 8) - 1;
  buffers[me].stores[buffers[me].count++] = (store){word, size, value & mask, scheduler_moment()};
}

uint64_t sb_test_change(const char *site, volatile void *word, size_t size, sb_test_change_kind kind, uint64_t value) {
  barrier(site, word);
  uint64_t before = read_word(word, size);
  write_word(word, size,
             kind == SB_TEST_ADD   ? before + value
             : kind == SB_TEST_SUB ? before - value
             : kind == SB_TEST_OR  ? before | value
             : kind == SB_TEST_AND ? before & value
                                   : value);
  return before;
}

bool sb_test_cas(const char *site, volatile void *word, size_t size, void *expected, uint64_t desired) {
  barrier(site, word);
  uint64_t found = read_word(word, size);
  bool same = found == read_word(expected, size);
  write_word(same ? word : expected, size, same ? desired : found);
  return same;
}
