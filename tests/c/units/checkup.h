// SPDX-License-Identifier: Apache-2.0
/* A check by the doctor: of the broker as it is, or of memory that a case has written. */
#ifndef CHECKUP_H
#define CHECKUP_H

#include "cases.h"
#include "sb_check.h"

#define CHECKED_CHUNKS 12u

extern sb_checkup checkup;

/* Nothing was seen or found yet. So many chunks are looked at. */
void start_checkup(uint32_t chunks);
/* All chunks are FREE: a case opens what it needs. */
void begin_checkup(void);
void forget_what_was_seen(void);
/* Forgets what was found. */
void found_nothing(void);
/* One finding, just this one, and it is forgotten. */
void expect_finding(sb_finding should, const char *what);
/* None at all. */
void expect_no_finding(const char *what);

#endif
