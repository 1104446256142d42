// SPDX-License-Identifier: Apache-2.0
/* Scenarios of two or three actors; each is run in every order that the bounds allow. There is a file for each
 * subject. */
#ifndef SCENARIOS_H
#define SCENARIOS_H

#include "cast.h"

typedef struct {
  const char *name;
  void (*run)(void);
  unsigned player;
  const char *deeds; /* in the plain run: each in its turn, from the first one, until it sleeps or ends */
} role;

typedef struct {
  const char *name, *holds;
  sb_settings settings;
  void (*prepare)(void);  /* before the world is kept */
  role roles[ACTORS - 1]; /* the last actor is the reaper of who dies, unless one of these is */
  void (*verify)(void);   /* NULL, or what must hold beyond the account */
  int64_t bound;          /* messages ready at most, -1: any number */
  bool idle;              /* an actor may sleep beside ready messages */
  bool reaped;            /* a process died before, and one of the roles is its reaper */
  bool deep;              /* as many preemptions where very many words are shared */
  unsigned preemptions;   /* at least so many in a search of orders without deaths, also in a quick run */
} scenario;

#define KEEPS_ALL .bound = -1

typedef struct {
  const scenario *scenarios;
  unsigned count;
} subject;

extern const subject MESSAGE_SCENARIOS, CONSUMER_SCENARIOS, COMMIT_SCENARIOS, HOUSEKEEPING_SCENARIOS, CHANNEL_SCENARIOS,
    MEMORY_SCENARIOS, LANE_SCENARIOS, GROUP_SCENARIOS, VALUE_SCENARIOS, ADMISSION_SCENARIOS, ID_SCENARIOS,
    LETTER_SCENARIOS, CHOICE_SCENARIOS, STORE_SCENARIOS, PAGED_SCENARIOS;

#endif
