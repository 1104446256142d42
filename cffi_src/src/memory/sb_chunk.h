// SPDX-License-Identifier: Apache-2.0
/* Chunks: 2 MiB of arena that belong to one class of slots, or to a run; and the hints where a slot may be free.
 *
 * What: the part of the slab that hands out whole chunks. A chunk is FREE, of a CLASS, the head or the tail of a RUN, or
 * in the hands of somebody who claims it or drains it.
 *
 * Structures are opened at the first chunk that is FREE, bodies and runs at the last: of what stays, each lies at an end, and
 * what is FREE lies side by side between them, where long bodies need it. While segments may be added the last chunk is not
 * the end: there bodies begin at the first one too, so that what is added continues what is FREE.
 *
 * Invariants: I13 and I14 of sb_slab.h.
 *
 * Two who need the first slot of a class at once would open two chunks, and what is opened for the broker's own objects is
 * theirs as long as one of them stays. So whoever has filled in a chunk for objects looks once more for a slot, and gives
 * the chunk back if there is one: two chunks are opened only if the other one opens his between that look and the store
 * after it.
 *
 * Ordering pairs: P20 of sb_reserve.h. A chunk is filled in before its word says CLASS or RUN (release); whoever takes a slot of it reads the
 *  word again afterwards, since the hint that led there may be older than the class.
 *
 * Death (after -> state, repaired by the reaper of the owner): FREE -> CLAIMED -> listed -> FREE, filled in or not. CLASS -> DRAINING ->
 *  listed -> its slots that are ALLOC(dead) are freed, back to its class.
 *
 * Concurrency: under the connection's lock; sb_chunk_recover by the reaper.
 */
#ifndef SB_CHUNK_H
#define SB_CHUNK_H

#include "sb_reserve.h"

#define SB_MESSAGE_CLASSES 42u
#define SB_SINGLE_CLAIM_UNITS 16u /* from 4 KiB on, take one free slot at a time: others may need its neighbours */

void sb_class_format(sb_class_shm *classes);
unsigned sb_class_units(unsigned cls);
/* The class for that many bytes, or 0 when it takes a run of chunks. */
unsigned sb_class_for(const sb_broker *b, uint64_t bytes);
unsigned sb_class_of_kind(const sb_broker *b, unsigned kind);
/* Slots of that hint word may be free. */
void sb_hint_set(sb_broker *b, unsigned cls, uint32_t chunk, uint32_t word, uint64_t bits);
/* Takes hint bits of the class into the connection's cache. */
bool sb_hint_search(sb_connection *c, unsigned cls);
/* May another segment be asked for? Not beyond the limit, nor just after there was no room for one. */
bool sb_chunk_may_grow(sb_broker *b);
/* Maps all pages of a chunk at once, instead of one by one when they are touched first. */
void sb_chunk_populate(sb_broker *b, uint32_t chunk);
/* Its headers become those of no slot; the caller has all of them. */
void sb_chunk_scrub(sb_broker *b, uint32_t chunk, uint32_t slots_units);
/* A slot of that chunk's class was freed: its hint is set. */
void sb_chunk_freed(sb_broker *b, uint32_t slot);
/* FREE -> CLAIMED by us, as the first of `run` chunks if that is not 0. */
bool sb_chunk_claim(sb_connection *c, uint32_t chunk, unsigned cls, unsigned run);
/* There may be a free slot of the class now: in a chunk of ours, or in the cache. */
bool sb_chunk_claim_class(sb_connection *c, unsigned cls, uint64_t token);
/* Makes a chunk whose slots are all free FREE again; runs that are free are dissolved too. */
bool sb_chunk_drain(sb_connection *c, uint64_t token, uint32_t chunk);
bool sb_chunk_drain_any(sb_connection *c, uint64_t token);
/* What a dead connection was doing with that chunk is undone. */
void sb_chunk_recover(sb_broker *b, unsigned owner, uint32_t chunk);

#endif
