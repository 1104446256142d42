// SPDX-License-Identifier: Apache-2.0
/* Atomic operations of a test build: each operation is a function call. Its arguments are evaluated before the call,
 * with their own steps.
 *
 * What: tests/c defines the functions. `site` is the file and line of the operation, or the name of a crash point.
 * Words have 1, 2, 4 or 8 bytes. The memory order matters only for stores: on the machine that the tests imitate, every
 * other operation on a word is a full barrier, or a load in its place.
 */
#ifndef ATOMIC_TEST_H
#define ATOMIC_TEST_H

extern bool sb_test_aside; /* no actor runs, the test only looks: loads are plain */
extern void sb_test_step(const char *site);
extern uint64_t sb_test_load(const char *site, const volatile void *word, size_t size);
extern void sb_test_store(const char *site, volatile void *word, size_t size, uint64_t value, memory_order order);
typedef enum { SB_TEST_ADD, SB_TEST_SUB, SB_TEST_OR, SB_TEST_AND, SB_TEST_SWAP } sb_test_change_kind;
extern uint64_t sb_test_change(const char *site, volatile void *word, size_t size, sb_test_change_kind kind,
                               uint64_t value);
extern bool sb_test_cas(const char *site, volatile void *word, size_t size, void *expected, uint64_t desired);

#define SB_SITE_(file, line) file ":" #line
#define SB_SITE_AT(file, line) SB_SITE_(file, line)
#define SB_SITE SB_SITE_AT(__FILE__, __LINE__)
#define SB_VALUE_OF(p) __typeof__((void)0, *(p)) /* without _Atomic, which a comma drops */
#define SB_CRASHPOINT(name) sb_test_step(name)
#define SB_LOAD(p, order) \
  (sb_test_aside ? atomic_load_explicit((p), (order)) : (SB_VALUE_OF(p))sb_test_load(SB_SITE, (p), sizeof *(p)))
#define SB_STORE(p, v, order) sb_test_store(SB_SITE, (p), sizeof *(p), (uint64_t)(v), (order))
#define SB_CHANGE_(p, v, kind) ((SB_VALUE_OF(p))sb_test_change(SB_SITE, (p), sizeof *(p), (kind), (uint64_t)(v)))
#define SB_ADD(p, v, order) ((void)(order), SB_CHANGE_(p, v, SB_TEST_ADD))
#define SB_SUB(p, v, order) ((void)(order), SB_CHANGE_(p, v, SB_TEST_SUB))
#define SB_OR(p, v, order) ((void)(order), SB_CHANGE_(p, v, SB_TEST_OR))
#define SB_AND(p, v, order) ((void)(order), SB_CHANGE_(p, v, SB_TEST_AND))
#define SB_SWAP(p, v, order) ((void)(order), SB_CHANGE_(p, v, SB_TEST_SWAP))
#define SB_CAS(p, expected, desired, order) \
  ((void)(order), sb_test_cas(SB_SITE, (p), sizeof *(p), (expected), (uint64_t)(desired)))
#define SB_LOAD_STEP(p) SB_LOAD((p), SB_RELAXED)
#define SB_ANY_OF_8(p) (sb_test_aside ? SB_ANY_OF_8_PLAIN(p) : SB_EACH_OF_8(SB_LOAD_STEP, (p)))

#endif
