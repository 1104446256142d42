// SPDX-License-Identifier: Apache-2.0
/* Runs one actor inside a step of another one, and checks what must hold whatever came in between.
 *
 * Each case is repeated, with a new queue, for each place where its plan may act (plan.h). After each run the memory
 * must be consistent, and all hints right.
 *
 *   interleavings [-v] [case ...]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "actors.h"
#include "cases.h"
#include "plan.h"

#define PROGRAM "interleave"
#define WATCHDOG_SECONDS 600 /* the longest case takes ten on a machine with nothing else to do */

static bool verbose;

static void expect_sound(actor *const *all) {
  const char *found = findings(keeper.c);
  if (found != NULL) expect(false, "%s", found);
  for (int i = 0; i < 4; i++)
    expect(all[i]->q->ledger == NULL || (all[i]->q->ledger->hinting & SB_HINTING_DEPTH) == 0,
           "actor %d is still changing hints", i);
}

static void once(const test_case *k) {
  actor *all[] = {&one, &two, &three, &keeper};
  int32_t holder;
  uint64_t removed;
  t.c = keeper.c;
  sb_status status = declare(&t, "q", k->settings);
  if (status != SB_OK) die("sb_queue_declare", (int)status);
  for (int i = 0; i < 4; i++) join(all[i]);
  got = 0;
  plan.depth = 0;
  memory = (sb_queue_memory){0};
  k->run();
  plan.what = NULL;
  expect_sound(all);
  (void)sb_queue_delete(keeper.q, false, false, FOREVER, &holder, &removed);
  for (int i = 0; i < 4; i++) (void)sb_queue_close(all[i]->q);
  (void)sb_housekeeper_sweep(keeper.c, FOREVER);
}

static int run_case(void *which) {
  const test_case *k = which;
  char name[64];
  uint64_t runs = 0;
  name_apart(name, sizeof name, PROGRAM);
  make_broker(&t, name, 48);
  attach(&t);
  keeper.c = connect_to(&t);
  do {
    once(k);
    runs++;
  } while (complaint[0] == 0 && another());
  remove_files(t.path);
  if (complaint[0] != 0) {
    printf("FAIL %s: %s: %s\n", k->name, k->holds, complaint);
  } else if (verbose) {
    printf("ok   %s: %s (%llu interleavings)\n", k->name, k->holds, (unsigned long long)runs);
  } else {
    printf("ok   %s: %s\n", k->name, k->holds);
  }
  return complaint[0] != 0;
}

static bool guarded(test_case k) {
  int signal_number, result = apart(PROGRAM, WATCHDOG_SECONDS, run_case, &k, &signal_number);
  if (signal_number != 0) printf("FAIL %s: %s: signal %d\n", k.name, k.holds, signal_number);
  return result == 0;
}

int main(int count, char **arguments) {
  const subject *const subjects[] = {&ACCOUNT_CASES, &BATON_CASES,    &GRACE_CASES,   &JUDGE_CASES, &LEASE_CASES,
                                     &LIMIT_CASES,   &MEMORY_CASES,   &OUTSIDE_CASES, &PAGE_CASES,  &PARKED_CASES,
                                     &REPAIR_CASES,  &RETURNED_CASES, &ROW_CASES,     &TAKE_CASES,  &TOLD_CASES,
                                     &UPKEEP_CASES,  &WAKE_CASES};
  unsigned passed = 0, failed = 0;
  count--;
  arguments++;
  if (count > 0 && strcmp(arguments[0], "-v") == 0) {
    verbose = true;
    count--;
    arguments++;
  }
  buffer = malloc(BUFFER);
  held_a = malloc(BUFFER);
  held_b = malloc(BUFFER);
  for (unsigned s = 0; s < sizeof subjects / sizeof subjects[0]; s++) {
    for (unsigned i = 0; i < subjects[s]->count; i++) {
      const test_case *k = &subjects[s]->cases[i];
      if (!asked_for(k->name, count, arguments)) continue;
      bool good = guarded(*k);
      passed += good;
      failed += !good;
    }
  }
  printf("%u passed, %u failed\n", passed, failed);
  return failed != 0 || passed == 0;
}
