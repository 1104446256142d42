// SPDX-License-Identifier: Apache-2.0
/* The atomic operations of a test build, for programs that only need a step before each operation: memory itself is
 * unchanged. */
#include "sb_atomic.h"

bool sb_test_aside;

/* The operation on the word as what it is. */
#define ON_WORD(operation8, operation16, operation32, operation64) \
  (size == 1   ? (uint64_t)(operation8) \
   : size == 2 ? (uint64_t)(operation16) \
   : size == 4 ? (uint64_t)(operation32) \
               : (uint64_t)(operation64))
#define W8 ((_Atomic uint8_t *)(uintptr_t)word)
#define W16 ((_Atomic uint16_t *)(uintptr_t)word)
#define W32 ((_Atomic uint32_t *)(uintptr_t)word)
#define W64 ((_Atomic uint64_t *)(uintptr_t)word)

uint64_t sb_test_load(const char *site, const volatile void *word, size_t size) {
  sb_test_step(site);
  return ON_WORD(atomic_load(W8), atomic_load(W16), atomic_load(W32), atomic_load(W64));
}

void sb_test_store(const char *site, volatile void *word, size_t size, uint64_t value, memory_order order) {
  (void)order;
  sb_test_step(site);
  (void)ON_WORD(atomic_exchange(W8, (uint8_t)value), atomic_exchange(W16, (uint16_t)value),
                atomic_exchange(W32, (uint32_t)value), atomic_exchange(W64, value));
}

#define CHANGED(w, type) \
  (kind == SB_TEST_ADD   ? atomic_fetch_add((w), (type)value) \
   : kind == SB_TEST_SUB ? atomic_fetch_sub((w), (type)value) \
   : kind == SB_TEST_OR  ? atomic_fetch_or((w), (type)value) \
   : kind == SB_TEST_AND ? atomic_fetch_and((w), (type)value) \
                         : atomic_exchange((w), (type)value))
uint64_t sb_test_change(const char *site, volatile void *word, size_t size, sb_test_change_kind kind, uint64_t value) {
  sb_test_step(site);
  return ON_WORD(CHANGED(W8, uint8_t), CHANGED(W16, uint16_t), CHANGED(W32, uint32_t), CHANGED(W64, uint64_t));
}

bool sb_test_cas(const char *site, volatile void *word, size_t size, void *expected, uint64_t desired) {
  sb_test_step(site);
  return ON_WORD(atomic_compare_exchange_strong(W8, (uint8_t *)expected, (uint8_t)desired),
                 atomic_compare_exchange_strong(W16, (uint16_t *)expected, (uint16_t)desired),
                 atomic_compare_exchange_strong(W32, (uint32_t *)expected, (uint32_t)desired),
                 atomic_compare_exchange_strong(W64, (uint64_t *)expected, desired)) != 0;
}
