// SPDX-License-Identifier: Apache-2.0
/* Slab: memory for message bodies and for the broker's own structures.
 *
 * What: slots of fixed classes (256 B to 2 MiB) in chunks of 2 MiB; a longer body takes a run of chunks. The slot
 * header, in an array apart from the bodies, is authoritative. Hint bits show where free slots may be. Each kind of
 * structure has its own class; a chunk of structures changes its class only after a grace period (sb_drained.h).
 *
 * Layout: header: state, 24 reference bits or an owner, a 38-bit generation, which each freeing increments.
 *
 * Invariants:
 *  I12 a connection takes a FREE slot by a CAS to ALLOC(owner), after it wrote an entry in its holdings. For a body the
 *      owner then stores PUBLISHED(references). References are dropped by a CAS that expects the generation. The CAS
 *      that clears the last reference frees the slot, unless the slot is READ (sb_reader.h). If no other process can
 *      change the header, a store frees the slot (sb_slab_drop_last).
 *  I13 a hint may be wrong in both directions: its slot may be in use, and a free slot may have no hint. An allocation
 *      trusts only the header; a sweep of the headers finds free slots that have no hint.
 *  I14 a chunk changes its class only when the connection that drains the chunk has taken all slots of the chunk. The
 *      slots of a chunk that was filled in, and made FREE again at once (sb_chunk.h), have FREE headers, so an old hint
 *      may lead a connection to one of them. After its CAS, this connection reads the chunk's word. If the chunk does
 *      not have the class, the connection frees the slot again. If it has the class, the connection reads the slot's
 *      header again: another connection that opened the chunk after the CAS has reset it, and the slot is lost. A
 *      connection that drains a run reads the chunk's word, takes the slot, then changes that word by a CAS. The word
 *      names a generation of the slot, so the CAS fails for a later run in the same chunks.
 *
 * Ordering pairs:
 *  P1 the producer writes the body before it stores PUBLISHED (release); a reader acquires the cell that names the slot
 *     before it reads the body.
 *
 * Death (killed after -> what is left -> what the reaper of the connection does):
 *  a slot was taken -> ALLOC(dead), listed in the holdings -> the reaper frees the slot.
 *  hint bits were taken from a word -> slots without hints; `claims` of the connection's record names the hint word ->
 *   the reaper sets all bits of that word.
 *  a slot was freed, before its hint was set -> a free slot without a hint -> the reaper sets all bits of the hint word
 *   that `claims[0]` names; if the slot belongs to another word, the next sweep of the headers finds the slot.
 *  a chunk became DRAINING or CLAIMED -> the chunk is listed in the holdings -> see sb_chunk.h.
 *
 * Concurrency: a connection allocates under its lock. Any process may call sb_slab_drop, sb_slab_free and
 *  sb_slab_free_gen. A second call is harmless, since it finds the bit clear or another generation. sb_slab_drop_last
 *  and sb_slab_free_now check no generation: only those whom their comments name may call them, once.
 */
#ifndef SB_SLAB_H
#define SB_SLAB_H

#include "sb_chunk.h"

sb_status sb_slab_alloc(sb_connection *c, unsigned cls, uint64_t token, uint32_t *slot, uint64_t *gen);
/* Allocates a free slot of the class without opening or draining a chunk. thoroughly: also searches without hints.
 * False: no slot was found. */
bool sb_slab_alloc_spare(sb_connection *c, unsigned cls, bool thoroughly, uint64_t token, uint32_t *slot,
                         uint64_t *gen);
sb_status sb_slab_alloc_run(sb_connection *c, uint64_t bytes, uint64_t token, uint32_t *slot, uint64_t *gen);
/* Clears reference bit `ref` if the slot still has the generation `gen`. *freed: this call freed the slot. False: the
 * bit was clear already, or the generation is another one. */
bool sb_slab_drop(sb_broker *b, uint32_t slot, uint64_t gen, unsigned ref, bool *freed);
/* Drops the only reference of a published slot that no process may read in place (sb_reader.h). `header`: the value of
 * the slot's header. No other process writes that header, so one store frees the slot. */
void sb_slab_drop_last(sb_connection *c, uint32_t slot, uint64_t header);
/* Sets reference bit `ref` of the slot. The caller holds a cell that names the slot. False: the slot is READ, and the
 * header of a READ slot has no such bit, since `ref` is not below SB_READ_REFS. */
bool sb_slab_add(sb_broker *b, uint32_t slot, unsigned ref);
/* Sets the hints of the slots that sb_slab_drop_last freed. The connection collects these hints (`freed`) for one hint
 * word at a time. */
void sb_slab_flush_freed(sb_connection *c);
/* Frees a slot if its header still equals `expected`. If the slot is a head, frees its parts, too (sb_parts.h). False:
 * the header has changed. */
bool sb_slab_free(sb_broker *b, uint32_t slot, uint64_t expected);
/* Frees a slot of generation `gen` in any state, even if it has references. False: it is FREE, or has another
 * generation, or its header changed during the call. */
bool sb_slab_free_gen(sb_broker *b, uint32_t slot, uint64_t gen);
/* Frees a slot whatever its state and generation are. Only the owner of the slot, or the reaper of the owner, may call
 * this. */
void sb_slab_free_now(sb_broker *b, uint32_t slot);
/* The memory for a structure of `kind` in a slot whose number was read from shared memory; the slot may be FREE. NULL:
 * no slot of that kind begins there, or its chunk is being drained (sb_drained.h) or cannot be mapped. */
void *sb_slab_object(sb_broker *b, uint32_t slot, unsigned kind);
/* The queue in a slot whose number was read from shared memory. NULL: the slot there is of neither kind, SB_KIND_QUEUE
 * or SB_KIND_LONG_QUEUE. */
sb_queue_shm *sb_slab_queue(sb_broker *b, uint32_t slot);
/* sb_slab_return_class gives up the hint bits of one class that the connection took into its cache: it sets them in
 * their chunk again. sb_slab_return_cache does that for all classes, after sb_slab_flush_freed. */
void sb_slab_return_cache(sb_connection *c);
void sb_slab_return_class(sb_connection *c, unsigned cls);
void sb_slab_restore_claims(sb_broker *b, sb_connection_shm *dead);
/* The number of bytes in use. In a chunk of state CLASS only the slots that are not FREE count. A chunk of any other
 * state counts as a whole, unless it is FREE or belongs to a run whose slot is FREE. */
uint64_t sb_slab_used(sb_broker *b);
/* *structures: bytes of the chunks for structures and of the FREE chunks in the reserve (sb_reserve.h). *bodies: bytes
 * of all other chunks that are not FREE. */
void sb_slab_kept(sb_broker *b, uint64_t *structures, uint64_t *bodies);
/* Length of the slot in bytes. If the slot is a run of chunks, maps all of them. 0: no slot begins there, or the run
 * cannot be mapped. */
uint64_t sb_slab_slot_bytes(sb_broker *b, uint32_t slot);

/* Detects a cycle in a chain whose links are slot numbers in shared memory (Brent's algorithm). The caller passes the
 * number of each link to sb_chain_bites. True: the chain has a cycle, or its first link is 0. */
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
