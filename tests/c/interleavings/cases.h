// SPDX-License-Identifier: Apache-2.0
/* The cases: each is a step of one actor, and what another actor does inside it. There is a file for each subject. */
#ifndef CASES_H
#define CASES_H

#include "shmbroker.h"

typedef struct {
  const char *name, *holds;
  sb_settings settings;
  void (*run)(void);
} test_case;

typedef struct {
  const test_case *cases;
  unsigned count;
} subject;

extern const subject ACCOUNT_CASES, BATON_CASES, GRACE_CASES, JUDGE_CASES, LEASE_CASES, LIMIT_CASES, MEMORY_CASES,
    OUTSIDE_CASES, PAGE_CASES, PARKED_CASES, REPAIR_CASES, RETURNED_CASES, ROW_CASES, TAKE_CASES, TOLD_CASES,
    UPKEEP_CASES, WAKE_CASES;

#endif
