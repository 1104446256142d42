// SPDX-License-Identifier: Apache-2.0
/* Channels of the connection of a case, at two queues that another connection can put to and consume. No thread takes
 * turns: a case does the work of the IO thread. */
#ifndef CHANNELS_H
#define CHANNELS_H

#include "cases.h"
#include "sb_channel.h"

extern test_broker stranger;                 /* another connection of this process */
extern sb_queue *first_queue, *second_queue; /* "q" and "p" of the case's connection */
extern sb_queue *strangers_queue;            /* "q" of the other one */
extern sb_channel *ch;                       /* the first channel, of user 1 */
extern char last_record[BUFFER];             /* what was given last */
extern const sb_target_kind NO_CHANNEL;      /* of a target that is neither a channel nor a consumer */

void begin_channels(void);
sb_channel *open_channel(uint64_t user);
sb_member *join_channel(sb_channel *of, sb_queue *at, uint32_t prefetch, int32_t priority, uint32_t flags);
/* The other connection puts that many messages, whose ids go on. */
void stranger_puts(const sb_queue *at, unsigned n);
/* The id of the message that sb_channel_next gives; 0 when there is none. */
uint64_t next_of(sb_channel *of);
uint64_t id_of_record(int64_t length);
/* The delivery of that tag is over. */
void end_delivery(sb_channel *of, uint64_t tag);
/* Gives this many of the row, and settles what was given. */
void give_and_drop(sb_channel *of, unsigned n);

unsigned member_state(const sb_member *m);
sb_node_shm *member_node(const sb_member *m);
/* How many it holds and how many of them wait; whether it is willing. */
void expect_member(const sb_member *m, const char *what, uint32_t held, uint32_t waiting, bool willing);
/* The node is woken from here on if its wake word says so. */
void arm_wake(uint32_t node);
bool was_rung(uint32_t node);

/* A member behind the end of the table, which the channel must never look at. */
void put_behind(sb_channel *of, sb_member *m);
/* A target that is no channel, with what a channel of one member would have there. */
void add_no_channel(sb_member *m);

/* The next message that is taken finds no holding, and no memory for more. The broker may grow, or not. */
void leave_no_holding(bool may_grow);
/* The next one finds a holding that cannot be. */
void spoil_holdings(void);
void mend_holdings(void);
/* The channel's process has no memory for another delivery; it has it again. */
void leave_no_place(sb_channel *of);
void mend_places(sb_channel *of);

#endif
