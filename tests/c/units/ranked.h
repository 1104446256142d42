// SPDX-License-Identifier: Apache-2.0
/* Queues with priorities: their lanes, and the cells of a lane by number, the first one is 0. */
#ifndef RANKED_H
#define RANKED_H

#include "cases.h"
#include "sb_take.h"

#define BYTES 64u /* of the body of a message that a case puts */
/* The settings of a queue with a highest priority; `ring`: its ring_size, or -1. */
#define RANKED(most) ((sb_settings){{-1, -1, -1, 0, -1, -1, (most)}, 0})
#define RANKED_RING(ring, most) ((sb_settings){{(ring), -1, -1, 0, -1, -1, (most)}, 0})

/* Puts a message, whose body repeats `id`. The memory of the broker must be mapped (queue_named). */
sb_status put_ranked(sb_queue *q, unsigned priority, uint64_t id);
/* As put_ranked, and the message is due, or expires, after this many hours; 0 = not. */
void put_timed(sb_queue *q, unsigned priority, uint64_t id, uint64_t due, uint64_t expires);
/* Puts the messages 1 to `count`, each of that priority. */
void put_several(sb_queue *q, unsigned priority, uint64_t count);
/* The id of the message that was taken. */
uint64_t id_of(const sb_taken *taken);

/* The object of a lane other than lane 0, which must exist. */
uint32_t lane_slot(const sb_queue *q, unsigned number);
sb_lane_shm *lane_of(const sb_queue *q, unsigned number);
sb_ring ring_of(const sb_queue *q, unsigned number);
uint64_t base_of(const sb_queue *q, unsigned number);
sb_leaf_ref ranked_leaf(const sb_queue *q, unsigned number, uint64_t n);
sb_cell_shm *ranked_cell(const sb_queue *q, unsigned number, uint64_t n);
uint64_t ranked_word(const sb_queue *q, unsigned number, uint64_t n);
unsigned ranked_state(const sb_queue *q, unsigned number, uint64_t n);
/* The cell keeps its message, and gets that state; `owner` counts in states that have one. */
void set_ranked(const sb_queue *q, unsigned number, uint64_t n, unsigned state, unsigned owner);
sb_message_shm *ranked_message(const sb_queue *q, unsigned number, uint64_t n);
/* Whether the ready bit of the lane is set. */
bool is_ready(const sb_queue *q, unsigned number);
void set_ready(const sb_queue *q, unsigned number, bool ready);

#endif
