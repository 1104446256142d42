// SPDX-License-Identifier: Apache-2.0
/* A checkup of the doctor: on the broker as it is, or on memory that a case has made. */
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
