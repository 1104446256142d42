// SPDX-License-Identifier: Apache-2.0
/* References: what keeps a slot from being freed.
 *
 * What: a published slot is freed with its last reference. Each cell that names it has one, and so has each view. Up to
 * SB_PLAIN_TARGETS queues that share a body have a bit each in the slot's header. More of them share bit 0: it stands for
 * a *block* in front of the body, which has four bits for each queue, one for its cell and three for views.
 *
 * Layout: a cell's reference is the number of a bit of the header, or SB_REF_BLOCK: the one of its queue in the block. A
 * view's is one of the header, or SB_REF_VIEW + 1 to 3 with the queue's place in the block. The block, in front of the
 * viewers' words of sb_view.h: the slots of the queues, ascending; their bits; who claimed which bit of the header; if the
 * body may be viewed, the viewers' words of each queue.
 *
 * Invariants:
 *  I48 bits of a block are set by the committer before the slot is published, and then by the holder of that queue's cell.
 *      Whoever cleared the last bit of a word looks at all of them, and drops bit 0 of the header if none is left. He may
 *      be killed between the two: who finds the reference gone in his place looks again.
 *  I49 a bit of the header that is not a cell's is added by one who can be told: up to SB_PLAIN_TARGETS queues, they are shared
 *      out (to the cell r of n those that leave r when divided by n); with a block, he claims it there before, once for the
 *      life of the message.
 *
 * Ordering pairs:
 *  P14 a bit of a block is cleared (seq_cst) before all are looked at: of two that clear the last two, one sees none.
 *
 * Death: a bit cleared, bit 0 not dropped -> the slot stays -> the reaper, by the intent or the view that names it.
 *  claimed, not added -> one bit of that message less.
 *
 * Concurrency: drop by the holder of the reference, or his reaper; everything else by the holder of a cell.
 */
#ifndef SB_REFERENCE_H
#define SB_REFERENCE_H

#include "sb_slab.h"

#define SB_PLAIN_TARGETS 8u
#define SB_REF_BLOCK 31u
#define SB_REF_VIEW 32u
#define SB_REFS_OF_QUEUE 4u  /* in a block */
#define SB_VIEWERS_BYTES 64u /* in front of a body that may be viewed */

/* What drops it: a bit of the header, or of the block. */
typedef struct {
  uint32_t slot;
  unsigned ref;
  uint64_t gen;
  uint32_t queue; /* whose cell it is, for SB_REF_BLOCK; its place in the block, for a view */
} sb_reference;

typedef struct {
  const uint32_t *queues;
  sb_word *bits, *claims;
  _Atomic uint16_t *viewers; /* NULL: the body is not read in place */
  uint32_t count;
} sb_block;

static inline bool sb_reference_has_block(const sb_message_shm *m) { return m->targets > SB_PLAIN_TARGETS; }
/* A multiple of 64; 0: no block is needed. */
uint64_t sb_block_bytes(uint32_t targets, uint64_t body_length);
/* The block of a slot; false when it has none, or its header cannot be believed. */
bool sb_block_of(sb_broker *b, uint32_t slot, sb_block *k);
/* Writes it; the slots of the queues ascend. */
void sb_block_fill(const sb_block *k, const uint32_t *queues);
/* The place of a queue. */
bool sb_block_place(const sb_block *k, uint32_t queue, uint32_t *place);
bool sb_block_has(const sb_block *k, uint32_t place, unsigned ref);
void sb_block_set(const sb_block *k, uint32_t place, unsigned ref);
/* How many bits are set. */
uint32_t sb_block_count(const sb_block *k);

/* Drops it; false: it was gone. */
bool sb_reference_drop(sb_broker *b, const sb_reference *r);
/* Is it gone? And then what may still hang on it is seen to. */
bool sb_reference_gone(sb_broker *b, const sb_reference *r);
/* A bit of the header that the holder of that cell may add; SB_MAX_REFS when there is none (I49). */
unsigned sb_reference_clear(sb_broker *b, uint32_t slot, unsigned cell_ref, unsigned connection);

#endif
