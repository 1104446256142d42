// SPDX-License-Identifier: Apache-2.0
/* One experiment: a broker that holds what an operation needs, and a process that survives in it. */
#ifndef TRIAL_H
#define TRIAL_H

#include "aftermath.h"

#define TRIAL_PASSED 0
#define TRIAL_FAILED 2 /* what was wrong is printed */

typedef struct {
  test_broker broker;
  const operation *operation;
  uint64_t memory; /* in use before there was any queue */
} trial;

void trial_begin(trial *t, const operation *o);
/* Looks at what is left, and takes the broker away; prints what is wrong, after what the arguments say. */
__attribute__((format(printf, 3, 4))) int trial_end(trial *t, bool done, const char *where, ...);

/* Runs it in a separate process, for at most this many seconds; returns what it returns, or TRIAL_FAILED. */
int trial_run(int (*what)(const operation *, void *), const operation *o, void *how, unsigned seconds);

#endif
