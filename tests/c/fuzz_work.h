// SPDX-License-Identifier: Apache-2.0
/* Calls of all functions, in random order, on a broker that may be damaged. Their results do not matter. */
#ifndef FUZZ_WORK_H
#define FUZZ_WORK_H

#include "fuzz_image.h"

typedef struct {
  const char *name;
  void (*step)(session *);
} fuzz_step;
extern const fuzz_step STEPS[];
extern const size_t STEP_COUNT;

extern uint64_t random_state;
uint64_t choose(uint64_t of);

void check(session *s);
void disconnect(sb_connection *c);

#endif
