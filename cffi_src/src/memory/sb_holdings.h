// SPDX-License-Identifier: Apache-2.0
/* Holdings: the table of what a connection is taking, holds or gives back; and how a connection comes to be.
 *
 * What: entries of 16 bytes in chunks that the slab gives; the table's words are described in sb_connection.h.
 *
 * Invariants: I10 and I11 of sb_connection.h. Entry 0 of a chunk announces the next chunk; until a connection has a
 *  chunk, its process slot (`boot`) announces for it.
 *
 * Ordering pairs: P8 of sb_connection.h.
 *
 * Death (after -> state, repaired by the reaper of the process):
 *  id taken -> LIVE without a record -> FREE again.   record or chunk allocated, not linked -> announced -> freed.
 *
 * Concurrency: the owner, under its connection's lock; opening one connection at a time in a process.
 */
#ifndef SB_HOLDINGS_H
#define SB_HOLDINGS_H

#include "sb_slab.h"

sb_status sb_connection_open(sb_broker *b, sb_connection *c, const char *name, uint32_t name_length);
/* The object of that kind in a slot that is that connection's still; NULL when the slot was freed, or is another's by now. */
void *sb_holding_owned(sb_broker *b, uint32_t slot, unsigned kind, unsigned id);
/* The record of a connection id, NULL when nobody has it. */
sb_connection_shm *sb_connection_record(sb_broker *b, unsigned id);
/* The chunks of a connection's table, one after the other; NULL at the end, which is also where a reaper began to free it. */
typedef struct {
  sb_broker *b;
  unsigned id;
  uint32_t slot; /* of the chunk */
  sb_chain chain;
} sb_holdings_walk;
sb_holdings_shm *sb_holdings_first(sb_holdings_walk *w, sb_broker *b, const sb_connection_shm *shm, unsigned id);
sb_holdings_shm *sb_holdings_next(sb_holdings_walk *w, const sb_holdings_shm *chunk);
/* How many entries of a chunk were ever used. */
static inline uint32_t sb_holdings_used(const sb_holdings_shm *chunk) {
  uint32_t used = SB_LOAD(&chunk->used, SB_ACQUIRE);
  return used < SB_HOLDINGS_PER_CHUNK ? used : SB_HOLDINGS_PER_CHUNK;
}
/* A free entry for the caller; SB_GROW or SB_NO_MEMORY when there is no room for another chunk of them. */
sb_status sb_holding_take(sb_connection *c, uint64_t *token);
void sb_holding_give(sb_connection *c, uint64_t token);
/* Allocates an object of a kind and lists it in a holding of its own. */
sb_status sb_holding_object(sb_connection *c, unsigned kind, uint64_t *token, uint32_t *slot, uint64_t *gen);

#endif
