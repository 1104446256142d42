// SPDX-License-Identifier: Apache-2.0
/* The answers of the system to the core, while a case answers in its place: the time, the number of processors, the
 * ends of sleeps. A case sees how often the core asked, and can act at each of these moments. */
#ifndef SYSTEM_H
#define SYSTEM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
  uint64_t now_ns, step_ns; /* CLOCK_MONOTONIC, and how much later it is after each look at it */
  long cores;
  int error;                                    /* the errno that ends a sleep; 0: the sleeper was rung */
  long woken;                                   /* how many sleepers a ring wakes */
  uint64_t until_ns;                            /* the deadline of the last sleep */
  uint64_t nap_ns;                              /* the length of the last pause that no other thread ends */
  unsigned looks, pauses, sleeps, naps, counts; /* how often: the time, sb_pause, futex, nanosleep, the processors */
  void (*looked)(void), (*paused)(void), (*slept)(void);
} system_answers;

extern system_answers says;
/* From here on the case answers: two processors, a time that stands still, sleeps whose time is up. */
void answer_for_the_system(void);
/* The n-th calloc from here on finds no memory. */
void fail_allocation(unsigned nth);

#endif
