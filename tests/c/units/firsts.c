// SPDX-License-Identifier: Apache-2.0
/* sb_firsts: which groups a consumer has had since it claimed their bucket. A hash stands for a group. */
#include "sb_firsts.h"

#include "cases.h"
#include "heap.h"

#define BUCKETS 256u
static sb_firsts firsts;
static uint32_t numbers[BUCKETS];
static const sb_firsts_claims CLAIMS = {numbers, BUCKETS};

static void begin(void) {
  for (unsigned b = 0; b < BUCKETS; b++) numbers[b] = b + 1;
}
static bool add(uint32_t hash) { return sb_firsts_add(&firsts, hash, CLAIMS); }

static void the_first_one_of_each_claim(void) {
  begin();
  expect(add(7) && !add(7), "not the first message of a group alone is a first one");
  expect(add(7 + BUCKETS) && !add(7), "groups of one bucket have no first message each");
  numbers[7] = 9000;
  expect(add(7) && add(7 + BUCKETS), "the groups of a new claim have no first message");
  expect(!add(7) && !add(7 + BUCKETS), "the new claim has two first messages");
  sb_firsts_free(&firsts);
}
static void a_group_that_is_forgotten(void) {
  begin();
  sb_firsts_forget(&firsts, 7); /* no table yet */
  (void)add(7);
  (void)add(8);
  sb_firsts_forget(&firsts, 7);
  sb_firsts_forget(&firsts, 9);
  expect(add(7) && !add(8), "not the forgotten group alone has a first message again");
  sb_firsts_free(&firsts);
}
static void groups_of_lasting_claims_stay(void) {
  begin();
  for (uint32_t hash = 1; hash <= 5000; hash++) expect(add(hash * 77), "group %u has no first message", hash);
  for (uint32_t hash = 1; hash <= 5000; hash++) expect(!add(hash * 77), "group %u has two first messages", hash);
  expect(firsts.count >= 2 * firsts.used, "%u of %u places are used", firsts.used, firsts.count);
  sb_firsts_free(&firsts);
}
static void groups_of_ended_claims_go(void) {
  begin();
  for (uint32_t hash = 1; hash <= 5000; hash++) {
    numbers[hash % BUCKETS] = hash;
    expect(add(hash), "group %u has no first message", hash);
    numbers[hash % BUCKETS] = 0;
  }
  expect_is(firsts.count, 256, "the places");
  sb_firsts_free(&firsts);
}
static void too_many_groups(void) {
  begin();
  for (uint32_t hash = 1; hash <= SB_FIRSTS_PLACES; hash++) expect(add(hash), "group %u has no first message", hash);
  expect_is(firsts.count, SB_FIRSTS_PLACES, "the places");
  expect(!add(SB_FIRSTS_PLACES), "the latest group was forgotten");
  expect(add(1), "the oldest group was not forgotten");
  sb_firsts_free(&firsts);
}
static void without_memory(void) {
  begin();
  if (!heap_exhaust()) return;
  bool first = add(7), second = add(7);
  heap_relieve();
  expect(first && second, "without a table a message is no first one");
  expect(add(7) && !add(7), "there is no table with memory");
  for (uint32_t hash = 1; firsts.used < firsts.count / 2; hash++) (void)add(hash * 3);
  if (!heap_exhaust()) return;
  first = add(1);
  heap_relieve();
  expect(first, "a new group has no first message");
  expect_is(firsts.used, 1, "the groups of a table that could not grow");
  sb_firsts_free(&firsts);
}

/* A table, a line or two for each. */
/* clang-format off */
static const test_case CASES[] = {
    {"firsts: claims", "each claim has a first message of each group", the_first_one_of_each_claim},
    {"firsts: forget", "a group that is forgotten begins again", a_group_that_is_forgotten},
    {"firsts: grow", "the groups of claims that last stay", groups_of_lasting_claims_stay},
    {"firsts: ended", "the groups of claims that ended take no memory", groups_of_ended_claims_go},
    {"firsts: many", "too many groups are forgotten", too_many_groups},
    {"firsts: memory", "without memory each message is a first one", without_memory},
};
/* clang-format on */
SUBJECT(CASES)
