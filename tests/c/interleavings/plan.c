// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../broker_fixture.h"
#include "../harness.h"
#include "sb_atomic.h"

struct plan plan;

void expect(bool holds, const char *format, ...) {
  if (holds || complaint[0] != 0) {
    return;
  }
  va_list list;
  va_start(list, format);
  int n = vsnprintf(complaint, sizeof complaint, format, list);
  va_end(list);
  for (unsigned i = 0; i < plan.depth && n >= 0 && (size_t)n < sizeof complaint; i++) {
    const char *site = plan.reached[i] ? plan.sites[i] : "the end", *file = strrchr(site, '/');
    n += snprintf(complaint + n, sizeof complaint - (size_t)n, "%s %s",
                  i == 0 ? "; interrupted before" : ", then before", file != NULL ? file + 1 : site);
  }
}

static bool is_file(const char *where) {
  size_t length = strlen(where);
  return length > 2 && strcmp(where + length - 2, ".c") == 0;
}

void meanwhile(const char *where, void (*what)(void)) {
  if (plan.depth == PLANS) die("plans: no more than", (int)PLANS);
  plan.where = where;
  plan.what = what;
  plan.skip = plan.choice[plan.depth];
  plan.anywhere[plan.depth] = where[0] == 0 || is_file(where);
  plan.reached[plan.depth++] = false;
}

static void happen(void) {
  void (*what)(void) = plan.what;
  bool before = plan.inside;
  plan.what = NULL;
  plan.inside = true;
  what();
  plan.inside = before;
}

uint64_t steps_so_far;

void sb_test_step(const char *site) {
  steps_so_far++;
  if (plan.what == NULL || plan.inside) return;
  unsigned last = plan.depth - 1;
  if (plan.anywhere[last] ? strstr(site, plan.where) == NULL || plan.skip-- > 0 : strcmp(site, plan.where) != 0) return;
  plan.sites[last] = site;
  plan.reached[last] = true;
  happen();
}

void afterwards(void) {
  while (plan.what != NULL) {
    unsigned last = plan.depth - 1;
    expect(plan.anywhere[last] && (last > 0 || plan.choice[0] > 0), "%s was not reached", plan.where);
    happen();
  }
}

bool another(void) {
  for (unsigned i = plan.depth; i-- > 0;) {
    bool more = plan.reached[i] && plan.anywhere[i];
    plan.choice[i] = more ? plan.choice[i] + 1 : 0;
    if (more) return true;
  }
  return false;
}
