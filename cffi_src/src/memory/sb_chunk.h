// SPDX-License-Identifier: Apache-2.0
/* Chunks: the pieces of 2 MiB that make up the arena, and the hints that lead to free slots in them.
 *
 * What: the part of the slab (sb_slab.h) that allocates whole chunks. A chunk is FREE, of a CLASS (all its slots have
 * one length), the head or the tail of a RUN (chunks in a row for one long body), CLAIMED by a connection that prepares
 * it, or DRAINING (a connection is making it FREE).
 *
 * A connection that needs a chunk for structures opens the first FREE chunk; for bodies and runs it opens the last one.
 * Long-lived chunks therefore collect at both ends, and the FREE chunks stay adjacent between them, where runs need
 * them. While segments can still be added, bodies and runs get the first FREE chunk as well, so that a new segment
 * extends the FREE ones.
 *
 * Invariants: I13 and I14 of sb_slab.h.
 *
 * The kernel gives a new segment as zeros. Until a chunk is prepared for the first time, its word `written` is 0, and
 * so are all bytes of its memory. A connection stores 1 there before it writes anything to the memory.
 *
 * Two connections that need the first slot of a class at the same time could each open a chunk. A chunk of structures
 * keeps its class as long as one of its slots is used. A connection that has filled in a chunk for structures therefore
 * looks once more for a slot of another chunk, and makes its own chunk FREE again if it finds one. Two chunks are
 * opened only if the other connection opens its chunk between that look and the store of CLASS that follows.
 *
 * Ordering pairs: P20 of sb_reserve.h. A connection fills in a chunk before it stores CLASS or RUN (release). A
 *  connection that takes a slot reads the chunk's word again afterwards, since the hint that led there may be older
 *  than the class.
 *
 * Death (killed after -> what is left -> what the reaper of the connection does):
 *  the chunk became CLAIMED -> CLAIMED(dead), filled in or not -> the reaper makes the chunk FREE. `written` is 1 if
 *   anything may have been filled in.
 *  the chunk of a class became DRAINING -> DRAINING(dead), some of its slots ALLOC(dead) -> the reaper frees these
 *   slots, and returns the chunk to its class. For a chunk of structures see sb_drained.h.
 *  the slot of a run was taken to drain the run -> ALLOC(dead) with SB_SLOT_OF_RUN -> the reaper frees the slot. It
 *   does so even if another connection has drained the run meanwhile, and the chunk has another use.
 *  the run became DRAINING -> DRAINING(dead) -> the reaper makes all chunks of the run FREE.
 * In each case the holdings of the connection list the chunk.
 *
 * Concurrency: a connection claims, opens and drains chunks under its own lock. The reaper of a dead connection calls
 *  sb_chunk_recover. Any process sets hints.
 */
#ifndef SB_CHUNK_H
#define SB_CHUNK_H

#include "sb_reserve.h"

/* Of slots with at least so many units (4 KiB), a connection moves one hint bit at a time into its cache, and leaves
 * the other slots to other connections. */
#define SB_SINGLE_CLAIM_UNITS 16u

void sb_class_format(sb_class_shm *classes);
unsigned sb_class_units(unsigned cls);
/* The number of the slot of the class that lies at the unit `in_chunk` of its chunk (below SB_CHUNK_UNITS). */
uint32_t sb_class_index(unsigned cls, uint32_t in_chunk);
/* True if a slot of the class begins at the unit `in_chunk`, and ends within the chunk. */
bool sb_class_begins(unsigned cls, uint32_t in_chunk);
/* The smallest class that holds `bytes` bytes; 0 = none, they need a run of chunks. */
unsigned sb_class_for(const sb_broker *b, uint64_t bytes);
unsigned sb_class_of_kind(const sb_broker *b, unsigned kind);
/* Sets hints in the chunk: bit i of `bits` tells that slot number 64 * `word` + i of the chunk may be free. */
void sb_chunk_hint_set(sb_broker *b, unsigned cls, uint32_t chunk, uint32_t word, uint64_t bits);
/* Moves hint bits of one chunk of the class into the connection's cache. False: there is no hint that the connection's
 * use may take (sb_reserve.h). */
bool sb_chunk_hint_search(sb_connection *c, unsigned cls);
/* True if the caller may ask for another segment: below the memory limit, and not shortly after a failure to add
 * one. */
bool sb_chunk_may_grow(sb_broker *b);
/* Prepares the memory of a chunk that the caller has claimed. For structures, all bytes are 0 afterwards; else they may
 * have any value. Populates the page tables of the chunk, unless it is opened for structures and was never opened
 * before: these use few of its pages at first. */
void sb_chunk_prepare(sb_broker *b, uint32_t chunk, bool structures);
/* Resets a chunk that is about to become FREE. The header of each of its slots becomes ALLOC without owner and flags,
 * which means that no slot begins there (a part has no owner either, but the flag SB_SLOT_PART). Clears the chunk's
 * hints and `parts`. slots_units: the units of each slot. Before the call, the caller has taken all these slots; or it
 * reaps the connection that had taken them, or that had claimed the chunk. */
void sb_chunk_scrub(sb_broker *b, uint32_t chunk, uint32_t slots_units);
/* Sets the hint of a slot that was freed. */
void sb_chunk_freed(sb_broker *b, uint32_t slot);
/* Makes a FREE chunk CLAIMED by the caller. run > 0: the chunk is the head of a run of `run` chunks. False: the chunk
 * was not FREE. */
bool sb_chunk_claim(sb_connection *c, uint32_t chunk, unsigned cls, unsigned run);
/* Opens a chunk for the class. The entry `token` of the holdings lists the chunk. True: a slot may be free now, in that
 * chunk or in the connection's cache. False: there is no chunk that the connection's use may open. */
bool sb_chunk_claim_class(sb_connection *c, unsigned cls, uint64_t token);
/* The same, for a caller that leaves this number of chunks FREE, whatever the connection's use is. */
bool sb_chunk_claim_leaving(sb_connection *c, unsigned cls, uint32_t leave, uint64_t token);
/* Makes a chunk of bodies FREE if all its slots are free. Of a run whose slot is free, makes all chunks FREE. False:
 * nothing became FREE. sb_chunk_drain_any tries the chunks in order, until it has made one FREE. */
bool sb_chunk_drain(sb_connection *c, uint64_t token, uint32_t chunk);
bool sb_chunk_drain_any(sb_connection *c, uint64_t token);
/* Repairs a chunk that the dead connection `owner` was claiming or draining: a claimed chunk and a draining run become
 * FREE, a chunk of bodies returns to its class. Also frees the first slot of the chunk if `owner` has it as ALLOC. That
 * loses no message: before the call, the reaper has carried out or undone a commit of `owner`. sb_drained_recover
 * returns a chunk of structures to its class. sb_chunk_drain also calls this function, to end its own draining of a
 * run. */
void sb_chunk_recover(sb_broker *b, unsigned owner, uint32_t chunk);

#endif
