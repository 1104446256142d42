// SPDX-License-Identifier: Apache-2.0
/* The linker puts these calls in the place of the atomic operations of the core (--wrap). */
#include "meanwhile.h"

#include "calls.h"
#include "cases.h"
#include "sb_atomic.h"

static const volatile void *watched, *noted;
static meanwhile_when kind;
static unsigned left;
static void (*action)(void);
static bool acted;
static int order_of_store = -1;

void meanwhile(const volatile void *word, meanwhile_when when, unsigned nth, void (*act)(void)) {
  watched = word;
  kind = when;
  left = nth;
  action = act;
  acted = false;
}
bool has_acted(void) {
  watched = NULL;
  expect(acted || !has_steps(), "the core did not come to the step at which the case acts");
  return acted;
}
void note_order(const volatile void *word) {
  noted = word;
  order_of_store = -1;
}
int noted_order(void) {
  noted = NULL;
  return order_of_store;
}

#ifdef SB_TEST_HOOKS
static void step(const volatile void *word, meanwhile_when when) {
  if (word == watched && when == kind && --left == 0) {
    watched = NULL;
    acted = true;
    action();
  }
}

uint64_t __real_sb_test_load(const char *site, const volatile void *word, size_t size);
uint64_t __wrap_sb_test_load(const char *site, const volatile void *word, size_t size);
uint64_t __wrap_sb_test_load(const char *site, const volatile void *word, size_t size) {
  step(word, BEFORE_LOAD);
  uint64_t value = __real_sb_test_load(site, word, size);
  step(word, AFTER_LOAD);
  return value;
}

void __real_sb_test_store(const char *site, volatile void *word, size_t size, uint64_t value, memory_order order);
void __wrap_sb_test_store(const char *site, volatile void *word, size_t size, uint64_t value, memory_order order);
void __wrap_sb_test_store(const char *site, volatile void *word, size_t size, uint64_t value, memory_order order) {
  step(word, BEFORE_STORE);
  if (word == noted && order_of_store < 0) order_of_store = (int)order;
  __real_sb_test_store(site, word, size, value, order);
}

uint64_t __real_sb_test_change(const char *site, volatile void *word, size_t size, sb_test_change_kind change,
                               uint64_t value);
uint64_t __wrap_sb_test_change(const char *site, volatile void *word, size_t size, sb_test_change_kind change,
                               uint64_t value);
uint64_t __wrap_sb_test_change(const char *site, volatile void *word, size_t size, sb_test_change_kind change,
                               uint64_t value) {
  step(word, BEFORE_CHANGE);
  return __real_sb_test_change(site, word, size, change, value);
}

bool __real_sb_test_cas(const char *site, volatile void *word, size_t size, void *expected, uint64_t desired);
bool __wrap_sb_test_cas(const char *site, volatile void *word, size_t size, void *expected, uint64_t desired);
bool __wrap_sb_test_cas(const char *site, volatile void *word, size_t size, void *expected, uint64_t desired) {
  step(word, BEFORE_CAS);
  return __real_sb_test_cas(site, word, size, expected, desired);
}
#endif
