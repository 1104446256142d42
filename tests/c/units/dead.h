// SPDX-License-Identifier: Apache-2.0
/* A connection of this process that a case treats as dead: the case writes what a kill would leave, then calls the repair. */
#ifndef DEAD_H
#define DEAD_H

#include "cases.h"
#include "sb_intent.h"

#define GONE 76u /* the slot of a process that is gone */

extern test_broker d;     /* the same broker as `t`, with the dead connection */
extern sb_reap_context w; /* of the reaper `t.c` through the holdings of `d.c` */

/* Connects it. */
void begin_dead(void);
/* An entry of its holdings. */
sb_holding_shm *hold(uint64_t what, uint64_t where);
/* From here on it belongs to process GONE, of which nothing is left but its slot. */
void process_is_gone(void);
/* The same, and `t.c` recovers that process. */
void recover_dead(void);
/* A queue of those settings, opened by the dead connection. */
sb_queue *queue_of_dead(const char *name, sb_settings settings);
/* The dead connection puts a message with a body of this many bytes, at position `base` + n of the queue; its slot. */
uint32_t put_by_dead(sb_queue *q, uint64_t bytes);

/* Of position `base` + n, whose leaf exists. */
sb_leaf_ref leaf_in(sb_queue *q, uint64_t n);
sb_cell_shm *cell_in(sb_queue *q, uint64_t n);
uint64_t word_in(sb_queue *q, uint64_t n);
void set_word_in(sb_queue *q, uint64_t n, uint64_t word);
/* The word of a cell that a connection owns, with the message that is there now. */
uint64_t owned_in(sb_queue *q, uint64_t n, unsigned state, unsigned owner);
bool finished_in(sb_queue *q, uint64_t n);
bool marked_in(sb_queue *q, uint64_t n);
uint64_t slot_word(uint32_t slot);
void set_slot_word(uint32_t slot, uint64_t word);

#endif
