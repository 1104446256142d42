// SPDX-License-Identifier: Apache-2.0
/* Chunks and slots that a case creates, for the cases of sb_slab. */
#ifndef SLABS_H
#define SLABS_H

#include "cases.h"
#include "sb_chunk.h"
#include "sb_slab.h"

#define CHUNK 20u
#define FOUR 4u                                /* the class of four units */
#define SLOT (CHUNK * SB_CHUNK_UNITS + 4 * 70) /* number 70 of its chunk */
#define LONGEST SB_MESSAGE_CLASSES
#define CLASSES (SB_MESSAGE_CLASSES + SB_KIND_COUNT)
#define GEN 7u
#define ANOTHER 55u /* a connection */

uint64_t header_of(uint32_t slot);
void set_header(uint32_t slot, unsigned state, uint64_t field);
uint64_t chunk_word(uint32_t chunk);
void set_chunk(uint32_t chunk, unsigned state, unsigned cls, unsigned run);
void set_chunks(uint32_t first, uint32_t end, unsigned state, unsigned cls);
/* Hints of CHUNK. */
uint64_t hints(uint32_t word);
void no_hints(void);
/* All chunks exist and are FREE, and the connection has taken no hints. */
void begin_slab(void);
/* CHUNK has slots of that class, all of them free, and no hints. */
void open_chunk(unsigned cls);
void fill_chunk(uint32_t chunk, unsigned state, uint64_t field);

#endif
