// SPDX-License-Identifier: Apache-2.0
/* Atomic operations and crash points, one macro for each.
 *
 * What: the C core accesses shared words through these macros only, always with an explicit memory order. (sb_peek.h is
 * the exception: it loads bodies and headers that others may overwrite.) In a test build (SB_TEST_HOOKS) each macro is
 * a function call. The scheduler of the tests can then interleave threads at every shared access, kill one there, and
 * delay its stores. A crash point (SB_CRASHPOINT) is a named place between accesses where it can switch or kill
 * threads, too. In every other build the macros are the C11 operations, and crash points do nothing. sb_skip_without
 * searches a table of words, and tests eight of them at a time.
 */
#ifndef SB_ATOMIC_H
#define SB_ATOMIC_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "64-bit atomics must be lock-free");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "32-bit atomics must be lock-free");

#define SB_RELAXED memory_order_relaxed
#define SB_ACQUIRE memory_order_acquire
#define SB_RELEASE memory_order_release
#define SB_ACQ_REL memory_order_acq_rel
#define SB_SEQ_CST memory_order_seq_cst

#define SB_EACH_OF_8(load, p) \
  (load((p)) | load((p) + 1) | load((p) + 2) | load((p) + 3) | load((p) + 4) | load((p) + 5) | load((p) + 6) | \
   load((p) + 7))
#define SB_LOAD_PLAIN(p) atomic_load_explicit((p), memory_order_relaxed)
#define SB_ANY_OF_8_PLAIN(p) SB_EACH_OF_8(SB_LOAD_PLAIN, (p))

#ifndef SB_TEST_HOOKS
#define SB_CRASHPOINT(name) ((void)0)
#define SB_LOAD(p, order) atomic_load_explicit((p), (order))
#define SB_STORE(p, v, order) atomic_store_explicit((p), (v), (order))
#define SB_ADD(p, v, order) atomic_fetch_add_explicit((p), (v), (order))
#define SB_SUB(p, v, order) atomic_fetch_sub_explicit((p), (v), (order))
#define SB_OR(p, v, order) atomic_fetch_or_explicit((p), (v), (order))
#define SB_AND(p, v, order) atomic_fetch_and_explicit((p), (v), (order))
#define SB_SWAP(p, v, order) atomic_exchange_explicit((p), (v), (order))
/* The strong compare-and-swap, which fails only if the word differs from *expected. It then stores the value that it
 * found, loaded with acquire, in *expected. */
#define SB_CAS(p, expected, desired, order) \
  atomic_compare_exchange_strong_explicit((p), (expected), (desired), (order), memory_order_acquire)
/* The bitwise OR of the eight words from `p` on. Each word is loaded by itself, relaxed. */
#define SB_ANY_OF_8(p) SB_ANY_OF_8_PLAIN(p)
#else
#include <atomic_test.h> /* of tests/c */
#endif

typedef _Atomic uint64_t sb_word;
typedef _Atomic uint32_t sb_half;

/* Returns the index of the first word from `index` on that has a bit of `mask`; `end` if no word before `end` has one.
 * For a search through a whole table in which most words have no such bit. */
static inline uint32_t sb_skip_without(const sb_word *words, uint32_t index, uint32_t end, uint64_t mask) {
  while (index < end && (SB_LOAD(&words[index], SB_RELAXED) & mask) == 0) {
    index++;
    while (end - index >= 8 && (SB_ANY_OF_8(&words[index]) & mask) == 0) index += 8;
  }
  return index;
}
static inline uint32_t sb_skip_zeros(const sb_word *words, uint32_t index, uint32_t end) {
  return sb_skip_without(words, index, end, UINT64_MAX);
}

#endif
