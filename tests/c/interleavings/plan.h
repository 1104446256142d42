// SPDX-License-Identifier: Apache-2.0
/* Plans: what happens inside a step.
 *
 * SB_TEST_HOOKS calls sb_test_step before every atomic operation and at every crash point. A case plans what happens
 * there: at one crash point, once; or anywhere. "Anywhere" repeats the case, with a new queue, for each step, and after
 * the last step; in a plan within a plan, for each pair of steps.
 */
#ifndef PLAN_H
#define PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define PLANS 2u
#define ANYWHERE "" /* the name of a source file: any step in it */

extern struct plan {
  const char *where;
  void (*what)(void); /* NULL: nothing is planned */
  uint64_t skip;      /* number of steps there */
  bool inside;
  unsigned depth;
  uint64_t choice[PLANS];
  bool anywhere[PLANS], reached[PLANS];
  const char *sites[PLANS];
} plan;

extern uint64_t steps_so_far; /* of this process */
/* Else that is the complaint, and where the step was interrupted. */
__attribute__((format(printf, 2, 3))) void expect(bool holds, const char *format, ...);
/* At the next such step, once, that happens. One thing is planned at a time; what happens may plan the next one. */
void meanwhile(const char *where, void (*what)(void));
/* The step is over. What was to happen anywhere, and was not reached, happens now. */
void afterwards(void);
/* The next choice of steps: the last plan moves on; one that had no such step any more starts again, and that before it moves. */
bool another(void);

#endif
