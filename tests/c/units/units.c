// SPDX-License-Identifier: Apache-2.0
/* Runs the cases of single functions, each in a process with a new broker.
 *
 *   units [case ...]
 */
#include <stdio.h>

#include "../kept_files.h"
#include "cases.h"
#include "sb_segment.h"

#define PROGRAM "units"
#define WATCHDOG_SECONDS 600

test_broker t;
static subject *subjects;

void add_subject(subject *s) {
  s->next = subjects;
  subjects = s;
}

void grow_to(uint32_t chunk) {
  while (!sb_chunk_ready(t.b, chunk)) {
    if (!grow(t.b, t.path)) die("growing", (int)chunk);
  }
}

static int run_case(void *which) {
  const test_case *k = which;
  char name[64];
  name_apart(name, sizeof name, PROGRAM);
  make_broker(&t, name, BROKER_CHUNKS);
  attach(&t);
  t.c = connect_to(&t);
  k->run();
  kept_files_take(t.path);
  if (complaint[0] != 0) {
    printf("FAIL %s: %s: %s\n", k->name, k->holds, complaint);
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
  unsigned passed = 0, failed = 0;
  kept_files_begin();
  for (const subject *s = subjects; s != NULL; s = s->next) {
    for (unsigned i = 0; i < s->count; i++) {
      if (!asked_for(s->cases[i].name, count - 1, arguments + 1)) continue;
      bool good = guarded(s->cases[i]);
      passed += good;
      failed += !good;
    }
  }
  kept_files_end();
  printf("%u passed, %u failed\n", passed, failed);
  return failed != 0 || passed == 0;
}
