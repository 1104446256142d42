// SPDX-License-Identifier: Apache-2.0
/* Chunks: helpers of cases in which the memory of structures becomes memory of bodies. */
#ifndef CHUNKS_H
#define CHUNKS_H

#include "actors.h"

extern uint32_t body; /* the slot of the body that takes what came back, 0: none yet */
extern uint32_t pin;  /* a slot that keeps the chunk of short bodies, 0: none */

unsigned class_of(unsigned kind);
int chunks_of(unsigned kind);
bool take_chunk(const actor *a, uint32_t *slot);
/* Keeps the chunk of short bodies, whatever becomes of its messages. */
void pin_short_bodies(void);
/* Bodies take all chunks that are FREE. */
void fill_all(void);
void write_into_fillers(int byte);
/* One of those bodies goes. */
void free_one(void);
/* No search finds a FREE chunk before that one; what was blocked before is FREE again. */
void block_up_to(uint32_t chunk);
/* Takes all free slots of that kind, and one of a chunk that is opened for it: that one is returned. */
uint32_t hold_up_to_a_new_chunk(unsigned kind);
/* Frees what was held beside it. */
void give_held(void);
/* All that was filled, and the body, goes. */
void empty(void);
/* The first look finds what is free, the second one drains it, the third one asks again. */
void reclaim(void);
/* A body takes what came back, if something did. */
bool take_body(void);

#endif
