// SPDX-License-Identifier: Apache-2.0
/* Several queues of a case: their cells by number, the first one is 0; and memory that runs out. */
#ifndef QUEUES_H
#define QUEUES_H

#include "cases.h"
#include "sb_take.h"

/* A queue with that name; all memory of the broker is mapped, so no call asks for more. */
sb_queue *queue_named(const char *name, sb_settings settings);

sb_word *cell_at(const sb_queue *queue, uint64_t number);
uint64_t word_at(const sb_queue *queue, uint64_t number);
unsigned cell_state(const sb_queue *queue, uint64_t number);
void set_cell_word(const sb_queue *queue, uint64_t number, uint64_t word);
/* An AVAILABLE or SCHEDULED cell of the leaf as it is, which names that slot. */
uint64_t open_word(const sb_queue *queue, uint64_t number, unsigned state, uint32_t slot);
/* The generation of the leaf that a cell is in. */
uint64_t gen_at(const sb_queue *queue, uint64_t number);
/* A TOMBSTONE of that leaf; an AVAILABLE cell of the leaf that comes after it in the same page. */
uint64_t tombstone_at(const sb_queue *queue, uint64_t number);
uint64_t foreign_word_at(const sb_queue *queue, uint64_t number);
/* Puts the messages 1 to `last`. */
void put_up_to(sb_queue *queue, uint64_t last);
/* Puts a message that is due, or expires, after this many seconds; 0 = not. */
void put_with(sb_queue *queue, uint64_t id, uint64_t due_s, uint64_t expires_s);
sb_message_shm *message_at(const sb_queue *queue, uint64_t number);
/* The message is taken and settled. */
void take_from(sb_queue *queue);
/* A CLOSING cell of a process that did not go on. */
void begin_to_close(sb_queue *queue, uint64_t flags);

uint64_t counter_in(const sb_queue *queue, unsigned counter);
/* How often `hinting` was raised, and how deep it is. */
uint64_t hints_raised(const sb_queue *queue);
uint64_t depth_of_hints(const sb_queue *queue);
/* How many intents_of there were. */
uint64_t intents_of(const sb_queue *queue);

/* No chunk can be opened any more. */
void use_all_chunks(void);
/* ... and this many holdings are left. */
void leave_holdings(unsigned count);
/* ... and no slot of that kind. */
void use_all_slots(unsigned kind);
/* How many holdings are free in the last chunk of them. */
uint64_t free_holdings(void);

#endif
