// SPDX-License-Identifier: Apache-2.0
/* Ticks of the housekeeper for one queue, what it remembers between them, and the repairs that it counts. */
#ifndef TICKS_H
#define TICKS_H

#include "queues.h"
#include "sb_housekeeping.h"

#define RESTS 16u /* quiet ticks after which a queue rests */
#define DEATHS 5u /* a number of deaths that is not the one that is remembered at first */

extern sb_queue_memory remembered;

/* The queue that is ticked from here on. */
sb_queue *begin_ticks(sb_settings settings);
sb_queue *begin_ticks_of(const char *name, sb_settings settings);
void tick_queue(void);
/* The next tick is the n-th in a row at which nothing happened. */
void be_quiet(uint64_t ticks);
void set_deaths(uint64_t deaths);

/* The repairs of all kinds: a number with a digit for each. */
#define OF_NOTIFICATION UINT64_C(100000)
#define OF_ROOM UINT64_C(10000)
#define OF_COUNT UINT64_C(1000)
#define OF_ACCOUNT UINT64_C(100)
#define OF_MARK UINT64_C(10)
#define OF_END UINT64_C(1)
void expect_repairs(uint64_t defects, uint64_t explained);

/* A node at the queue, which is not interested. */
uint32_t node_with(uint32_t flags, int32_t priority);
void move_to(uint32_t node, unsigned state);
sb_leaf_ref leaf_of_list(uint32_t object, uint32_t id, uint64_t position);
bool is_freed(const sb_leaf_ref *leaf);
/* All cells of its page are finished, and the page is overlooked. */
sb_leaf_ref overlook(sb_leaf_ref leaf);

#endif
