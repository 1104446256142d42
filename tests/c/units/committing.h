// SPDX-License-Identifier: Apache-2.0
/* Commits to up to twelve queues, with up to four settlements. */
#ifndef COMMITTING_H
#define COMMITTING_H

#include "calls.h"
#include "sb_api.h"
#include "surroundings.h"

#define BYTES 64u
#define NOBODY UINT32_MAX
#define MOST_TARGETS 12u
#define NO_WAY (SB_TRANSFER + 1)

extern const char BODY[BYTES];
extern char got[BUFFER]; /* the last record that was got */
extern sb_queue *target[MOST_TARGETS];
extern sb_settlement settling[4];
extern uint32_t failed_publication, failed_target; /* of the last commit */

/* Queues of that kind; the first one is what expect_rest looks at. */
void make_targets(unsigned count, sb_settings settings);
/* The publication of BODY to this many of them, from that one on. */
sb_publication first_targets(uint32_t first, uint32_t count);
sb_status commit_now(const sb_publication *p, uint32_t count, uint32_t end_count);
/* The status of the last commit, and what it says is to blame. */
void expect_blamed(sb_status is, sb_status should, uint32_t publication, uint32_t blamed, const char *what);
/* Gets a message of that queue, which settlement number `end` is to settle. */
void hold_for(unsigned queue, unsigned end, sb_disposition disposition);
void put_into(unsigned queue);
uint64_t added_to(unsigned queue);
/* The slot of the message at that place of the queue. */
uint32_t slot_in(unsigned queue, uint64_t number);

#endif
