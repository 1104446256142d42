// SPDX-License-Identifier: Apache-2.0
/* Holdings: the table of objects that a connection takes, owns or releases; and the opening of connections.
 *
 * What: entries of 16 bytes in blocks from the slab. sb_connection.h describes the words.
 *
 * Invariants: I10 and I11 of sb_connection.h. Before a new block is linked, entry 0 of the last linked block names the
 *  slot of the new block, so that the reaper finds that slot. The slots of the record and of the first block of a
 *  connection are named by the entry `boot` of the process slot instead.
 *
 * Ordering pairs: P8 of sb_connection.h.
 *
 * Death (killed after -> what is left -> what the reaper of the process does):
 *  the connection id was taken -> the id is LIVE and has no record -> the reaper makes the id FREE.
 *  a record or a block was allocated, before it was linked -> `boot`, or entry 0 of the last linked block, names the
 *   new slot, which is ALLOC(dead) -> the reaper frees the slot.
 *
 * Concurrency: only the owner changes its holdings, under its connection's lock. A process opens one connection at a
 *  time.
 */
#ifndef SB_HOLDINGS_H
#define SB_HOLDINGS_H

#include "sb_slab.h"

sb_status sb_holdings_open(sb_broker *b, sb_connection *c, const char *name, uint32_t name_length);
/* The structure of `kind` in a slot, if connection `id` still owns the slot; else NULL. */
void *sb_holding_owned(sb_broker *b, uint32_t slot, unsigned kind, unsigned id);
/* The record of the connection `id`. NULL: no connection has the id, or its record does not exist yet or any more. */
sb_connection_shm *sb_connection_record(sb_broker *b, unsigned id);
/* Iterates over the blocks of a connection's holdings. Ends with NULL, also where a reaper began to free the blocks. */
typedef struct {
  sb_broker *b;
  unsigned id;
  uint32_t slot; /* of the block */
  sb_chain chain;
} sb_holdings_walk;
sb_holdings_shm *sb_holdings_first(sb_holdings_walk *w, sb_broker *b, const sb_connection_shm *shm, unsigned id);
sb_holdings_shm *sb_holdings_next(sb_holdings_walk *w, const sb_holdings_shm *chunk);
/* The number of entries of a block that were ever used. */
static inline uint32_t sb_holdings_used(const sb_holdings_shm *chunk) {
  uint32_t used = SB_LOAD(&chunk->used, SB_ACQUIRE);
  return used < SB_HOLDINGS_PER_CHUNK ? used : SB_HOLDINGS_PER_CHUNK;
}
/* Iterates over the entries that were ever used, in each block from entry `first` on. */
typedef struct {
  sb_holdings_walk blocks;
  sb_holdings_shm *block;
  uint32_t first, next;
} sb_entries_walk;
static inline sb_entries_walk sb_entries_of(sb_broker *b, const sb_connection_shm *shm, unsigned id, uint32_t first) {
  sb_entries_walk w = {.first = first, .next = first};
  w.block = sb_holdings_first(&w.blocks, b, shm, id);
  return w;
}
static inline sb_holding_shm *sb_entries_next(sb_entries_walk *w) {
  while (w->block != NULL && w->next >= sb_holdings_used(w->block)) {
    w->block = sb_holdings_next(&w->blocks, w->block);
    w->next = w->first;
  }
  return w->block != NULL ? &w->block->entries[w->next++] : NULL;
}
/* Takes an entry that was never used, as the next call does if no entry is free. */
sb_status sb_holding_take_unused(sb_connection *c, uint64_t *token);
/* Takes a free entry, and stores its token in *token. If all entries are used, adds a block. SB_GROW: the block needs
 * another segment, which the caller may add before it tries again. SB_NO_MEMORY: there is no memory for the block.
 * SB_CORRUPT: the list of free entries is damaged. */
SB_HOT sb_status sb_holding_take(sb_connection *c, uint64_t *token) {
  if (c->free_holding == 0) {
    return sb_holding_take_unused(c, token);
  }
  *token = c->free_holding;
  if (*token * sizeof(sb_holding_shm) >= c->b->arena_bytes || !sb_slot_ready(c->b, (uint32_t)(*token / 16))) {
    return SB_CORRUPT;
  }
  c->free_holding = SB_LOAD(&sb_holding_at(c->b, *token)->where, SB_RELAXED);
  return SB_OK;
}
SB_HOT void sb_holding_give(sb_connection *c, uint64_t token) {
  sb_holding_shm *h = sb_holding_at(c->b, token);
  SB_STORE(&h->what, SB_HOLD_NONE, SB_RELEASE);
  SB_STORE(&h->where, c->free_holding, SB_RELAXED);
  c->free_holding = token;
}
/* Allocates a structure of `kind`, and lists it in a new entry of the holdings. Stores the structure's slot and
 * generation in *slot and *gen, and the entry's token in *token. A call that fails leaves no entry. */
sb_status sb_holding_object(sb_connection *c, unsigned kind, uint64_t *token, uint32_t *slot, uint64_t *gen);

#endif
