// SPDX-License-Identifier: Apache-2.0
/* References: what keeps a published slot from being freed.
 *
 * What: a published slot is freed with its last reference. Each cell that names the slot has one, and so has each view.
 * If at most SB_PLAIN_TARGETS queues share a body, each queue has a bit of the slot's header. More queues share bit 0,
 * which stands for a *block* in front of the body. The block has four bits for each queue: one for its cell and three
 * for views.
 *
 * Layout: the reference of a cell is the number of a header bit, or SB_REF_BLOCK: the bit of its queue in the block.
 * The reference of a view is the number of a header bit, or SB_REF_VIEW + 1 to 3 with the queue's index in the block.
 * The block lies in front of the viewers' words of sb_view.h, which belong to the header bits. It consists of the slots
 * of the queues, ascending; their bits; for each header bit the connection that claimed it; and, if the body may be
 * read in place, viewers' words for the bits of each queue.
 *
 * Invariants:
 *  I48 the connection that commits sets the bits of a block before it publishes the slot; afterwards only the holder of
 *      a queue's cell sets bits of that queue. A process that cleared a bit of the block reads all words of the block,
 *      and drops bit 0 of the header if no bit is left. The process may be killed between clearing and dropping. A
 *      process that finds its reference already gone therefore reads all words again.
 *  I49 at any time, one connection only may add a header bit that is not the bit of a cell. With up to SB_PLAIN_TARGETS
 *      queues the bits are divided among the cells: of n queues, the holder of the cell with reference r may add the
 *      bits whose numbers leave the same remainder as r when divided by n. With a block, a connection first claims a
 *      bit, for the life of the message: even after the bit was cleared, no connection adds it again. A reaper
 *      concludes from a set bit that a SETTLE or a move of the dead connection did not take effect. The bit that the
 *      connection cleared must not be set for another cell by then.
 *
 * Ordering pairs:
 *  P14 a process clears its bit of the block (seq_cst), then reads all words of the block: of two processes that clear
 *   the last two bits, at least one finds no bit left.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the last bit of the block was cleared, before bit 0 of the header was dropped -> a slot that nobody uses, and that
 *   is not freed -> the reaper drops bit 0: the intent or the view's holding leads the reaper to the slot.
 *  a header bit was claimed, before it was added -> a bit that no connection can use -> nothing to repair: the message
 *   has one usable bit less.
 *
 * Concurrency: the holder of a reference, or that holder's reaper, drops it; the holder of a cell does everything else.
 */
#ifndef SB_REFERENCE_H
#define SB_REFERENCE_H

#include "sb_slab.h"

#define SB_PLAIN_TARGETS 8u
#define SB_REF_BLOCK 31u
#define SB_REF_VIEW 32u
#define SB_REFS_OF_QUEUE 4u  /* in a block */
#define SB_VIEWERS_BYTES 64u /* length of the viewers' words in front of a body that may be viewed */

/* A reference: a bit of the header, or of the block. */
typedef struct {
  uint32_t slot;
  unsigned ref;
  uint64_t gen;
  uint32_t queue; /* for SB_REF_BLOCK the slot of the cell's queue; for a view the index of its queue in the block */
} sb_reference;

typedef struct {
  const uint32_t *queues;
  sb_word *bits, *claims;
  _Atomic uint16_t *viewers; /* NULL: the body is not read in place */
  uint32_t count;
} sb_block;

static inline bool sb_reference_has_block(const sb_message_shm *m) { return m->targets > SB_PLAIN_TARGETS; }
/* Size of the block in bytes, a multiple of 64; 0: the message needs no block. */
uint64_t sb_block_bytes(uint32_t targets, uint64_t body_length);
/* Finds the block of a slot. False: the slot has none, or its message header is inconsistent. */
bool sb_block_of(sb_broker *b, uint32_t slot, sb_block *k);
/* Writes the slots of the queues, which must be in ascending order, into the block, and clears its bits and claims. */
void sb_block_fill(const sb_block *k, const uint32_t *queues);
/* Finds the index of a queue in the block. False: the block does not list the queue. */
bool sb_block_index(const sb_block *k, uint32_t queue, uint32_t *index);
bool sb_block_has(const sb_block *k, uint32_t index, unsigned ref);
void sb_block_set(const sb_block *k, uint32_t index, unsigned ref);
/* The number of set bits. */
uint32_t sb_block_count(const sb_block *k);

/* Drops the reference. False: it was dropped already. */
bool sb_reference_drop(sb_broker *b, const sb_reference *r);
/* True if the reference is gone. If its drop was interrupted, also finishes that drop (I48). */
bool sb_reference_gone(sb_broker *b, const sb_reference *r);
/* Finds a clear header bit that `connection`, the holder of the cell with the reference `cell_ref`, may set (I49). If
 * the slot has a block, also claims this bit for the connection. SB_MAX_REFS: there is none. */
unsigned sb_reference_clear(sb_broker *b, uint32_t slot, unsigned cell_ref, unsigned connection);

#endif
