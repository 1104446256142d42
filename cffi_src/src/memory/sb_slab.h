// SPDX-License-Identifier: Apache-2.0
/* Slab: memory for message bodies and for the broker's own objects.
 *
 * What: slots of fixed classes (256 B to 2 MiB) in 2 MiB chunks; larger bodies take a run of chunks. Truth is the slot
 * header (an array apart from the bodies); hint bits say where a free slot may be. Structural kinds have classes of
 * their own, whose chunks change class after a grace period only (sb_drained.h).
 *
 * Layout: header: state, 24 reference bits or owner, 38-bit generation, which every freeing moves on.
 *
 * Invariants:
 *  I12 FREE -> ALLOC(owner) by CAS, announced in the owner's holdings; ALLOC -> PUBLISHED(refs) by the owner's store;
 *      PUBLISHED -> fewer references by generation-checked CAS; the CAS that clears the last bit frees, unless it is READ.
 *  I13 hints may be wrong both ways: an allocation believes only the header; a sweep of the headers finds what hints lost.
 *  I14 a chunk changes class only when all its slots are taken by the one who drains it. Headers of a chunk that was given back
 *      as soon as it was filled in say FREE: who took such a slot by an old hint finds, after the chunk's word is right, its
 *      own word in the header no more.
 *
 * Ordering pairs:
 *  P1 the body is written before PUBLISHED (release); a reader reads it after an acquire of the cell that names the slot.
 *
 * Death (after -> state, repaired by the reaper of the owner):
 *  the FREE->ALLOC CAS -> ALLOC(dead), listed -> freed.         a hint word was taken -> `claims` names it -> all bits set.
 *  CLASS->DRAINING -> chunk listed -> its slots ALLOC(dead) are freed, chunk back to its class.
 *  FREE->CLAIMED -> chunk listed -> FREE.                        freeing, before the hint -> `claims[0]` names the word; else the next sweep.
 *
 * Concurrency: alloc under the connection's lock; drop and free by anybody, also twice (generation).
 */
#ifndef SB_SLAB_H
#define SB_SLAB_H

#include "sb_chunk.h"

sb_status sb_slab_alloc(sb_connection *c, unsigned cls, uint64_t token, uint32_t *slot, uint64_t *gen);
/* A slot of the class that is free as it is: no chunk is opened or drained. thoroughly: also one that no hint leads to. */
bool sb_slab_alloc_spare(sb_connection *c, unsigned cls, bool thoroughly, uint64_t token, uint32_t *slot,
                         uint64_t *gen);
sb_status sb_slab_alloc_run(sb_connection *c, uint64_t bytes, uint64_t token, uint32_t *slot, uint64_t *gen);
/* Clears reference bit `ref` of generation `gen`. *freed: this call freed the slot. False: the bit was gone already. */
bool sb_slab_drop(sb_broker *b, uint32_t slot, uint64_t gen, unsigned ref, bool *freed);
/* The same for the holder of the only reference of a published slot, if nobody may read it in place (sb_reader.h):
 * nobody else writes its header, so one store frees. */
void sb_slab_drop_last(sb_connection *c, uint32_t slot, uint64_t header);
/* Sets it, for the holder of a cell of the slot. False: while the slot is READ, there is no room for that bit. */
bool sb_slab_add(sb_broker *b, uint32_t slot, unsigned ref);
/* Gives the hints of freed slots that were collected. */
void sb_slab_flush_freed(sb_connection *c);
/* Frees a slot whose header still is `expected`. */
bool sb_slab_free(sb_broker *b, uint32_t slot, uint64_t expected);
/* Frees a structural slot of that generation, whatever its state. */
bool sb_slab_free_gen(sb_broker *b, uint32_t slot, uint64_t gen);
/* The same of the generation it has: for its owner, or the reaper of it. */
void sb_slab_free_now(sb_broker *b, uint32_t slot);
/* The object of that kind in a slot whose number was read from shared memory; NULL when there cannot be one. */
void *sb_slab_object(sb_broker *b, uint32_t slot, unsigned kind);
void sb_slab_return_cache(sb_connection *c);
/* The same of one class. */
void sb_slab_return_class(sb_connection *c, unsigned cls);
void sb_slab_restore_claims(sb_broker *b, sb_connection_shm *dead);
/* Bytes of chunks that are in use; *slots_used counts slots that are not FREE when it is not NULL. */
uint64_t sb_slab_used(sb_broker *b);
/* Bytes of the chunks that are kept for structures, those reserved for them included, and of the others in use. */
void sb_slab_kept(sb_broker *b, uint64_t *structures, uint64_t *bodies);
/* How long is the slot (bytes), 0 when it is not the start of one. A run of chunks is mapped to its end then. */
uint64_t sb_slab_slot_bytes(sb_broker *b, uint32_t slot);

/* Follows a chain whose links are slot numbers in shared memory: true where it bites its own tail (Brent's algorithm). */
typedef struct {
  uint32_t seen, steps, lap;
} sb_chain;
static inline bool sb_chain_bites(sb_chain *k, uint32_t slot) {
  bool bites = slot == k->seen;
  if (k->steps++ == k->lap) {
    *k = (sb_chain){slot, 0, 2 * k->lap + 1};
  }
  return bites;
}

#endif
