// SPDX-License-Identifier: Apache-2.0
/* A queue whose cells a case sets as it needs them. Cells have numbers: 0 is the first one of the queue. */
#ifndef CELLS_H
#define CELLS_H

#include "cases.h"
#include "sb_take.h"

#define OTHER 99u /* a connection that does not exist */
#define BYTES 64u /* of the body of a message that a case puts */

/* Declares and opens a queue, and puts that many messages. The other functions are about the queue that was begun last. */
sb_queue *begin_queue(const char *name, sb_settings settings, unsigned messages);
/* The same with bodies of that length. */
sb_queue *begin_queue_of(const char *name, sb_settings settings, unsigned messages, uint64_t bytes);
uint64_t at(uint64_t number);
/* The leaf of that cell, which must be there. */
sb_leaf_ref leaf_of(uint64_t number);
sb_cell_shm *cell(uint64_t number);
uint64_t word_of(uint64_t number);
/* The slot of the message that was put there. */
uint32_t slot_of(uint64_t number);
sb_message_shm *message_of(uint64_t number);
/* The word of that state, with the message that was put there; `owner` counts in states that have one. */
uint64_t cell_word(uint64_t number, unsigned state, unsigned owner);
void set_cell(uint64_t number, unsigned state, unsigned owner);
void set_word(uint64_t number, uint64_t word);
/* The header of the message's slot: published, with these references. */
void set_references(uint64_t number, uint64_t references);
/* Sets the returned bits that lead to the cell. */
void mark(uint64_t number);
/* The returned bits of the leaf of that cell. */
uint64_t bits_of(uint64_t number);
void set_bits(uint64_t number, uint64_t bits);
/* A free holding. */
uint64_t new_token(void);
uint64_t held_by(uint64_t token); /* what the holding says */
/* How many changes of hints the connection is in the middle of, and how many it began. */
uint32_t hinting_depth(void);
uint32_t hinting_raised(void);

#endif
