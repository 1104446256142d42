// SPDX-License-Identifier: Apache-2.0
/* Check: the parts of the doctor. Each walks one kind of structure and reports what is wrong.
 *
 * What: connections and their holdings; queues with their cells, ledgers and lists; chunks and slots. sb_broker_check()
 * runs the parts in this order: what the earlier parts saw tells the last one which slots have no reference. Findings
 * are codes with numbers. The Python side puts them into words, and checks twice, so that it does not report operations
 * in progress.
 *
 * Layout: `seen` has a word for each slot. For the slot of a message, the low bits of the word are the references that
 * were found. For a structure, bit 0 says that a walk reached the structure (in its chain, ring or directory). The
 * SB_KNOWN_... bits are above these. `seen` is process-local memory.
 *
 * Invariants:
 *  I40 the check writes no shared word, except that its call sets the gate of its own connection (sb_grace.h). It
 *      trusts no number before that number is bounds-checked: it uses a slot number only after sb_check_kind() found
 *      what begins at that slot. No walk is longer than the memory that it walks.
 *
 * Ordering pairs: P21 of sb_grace.h: a check is one call, which is inside the core from its first read to its last. So
 *  a chunk in which it saw structures does not hold bodies before the check ends, even if the chunk is drained
 *  meanwhile.
 *
 * Death: nothing is left but the gate of the dead connection, which its reaper frees with the record.
 * Concurrency: beside traffic a check may report operations in progress. sb_broker_check() first maps all segments;
 *  they are complete (I5 of sb_segment.h), so no read raises SIGBUS.
 */
#ifndef SB_CHECK_H
#define SB_CHECK_H

#include "sb_nodes.h"
#include "sb_view.h"

typedef struct {
  sb_broker *b;
  sb_finding *findings;
  uint32_t count, room;
  uint32_t chunks; /* number of chunks mapped when the check began; of later ones only the words are read: all FREE */
  uint32_t *seen;
  uint16_t *blocks; /* for each slot: how many references of its block were found in use (sb_reference.h) */
  /* By connection id. owned: number of cells, and of claims of duplicate ids, that name the connection as their owner;
   * named: number of these that the connection's holdings list. */
  uint32_t *owned, *named;
  uint64_t paged; /* leaves that have left the memory (sb_paged.h) */
} sb_checkup;

enum {
  SB_KNOWN_TO_OWNER = 1 << 24, /* in its owner's or reader's holdings; or a connection record, or a block of holdings */
  SB_KNOWN_TO_ALL = 1 << 25,   /* a node: has an entry in the All list */
  SB_KNOWN_TO_LIST = 1 << 26   /* a node: has an entry in the list of its state */
};
#define SB_KIND_NONE SB_KIND_COUNT

static inline void sb_check_found(sb_checkup *k, sb_finding finding) {
  if (k->count < k->room) {
    k->findings[k->count] = finding;
  }
  k->count++;
}
static inline uint64_t sb_check_header(const sb_checkup *k, uint32_t slot) {
  return SB_LOAD(sb_slot_header(k->b, slot), SB_ACQUIRE);
}

/* The kind (SB_KIND_...) of the slots of class `cls`. */
unsigned sb_check_kind_of_class(const sb_checkup *k, unsigned cls);
/* The kind of the slot that begins at `slot`; SB_KIND_NONE: no slot begins there. */
unsigned sb_check_kind(const sb_checkup *k, uint32_t slot);
/* True if the slot is of that kind, and in use. */
bool sb_check_is(const sb_checkup *k, uint32_t slot, unsigned kind);
/* True if the slot is a queue, and in use. A queue is of kind SB_KIND_QUEUE or SB_KIND_LONG_QUEUE. */
bool sb_check_is_queue(const sb_checkup *k, uint32_t slot);
/* True if the reference is set. Only reads: unlike sb_reference_gone, it does not finish an interrupted drop. */
bool sb_check_has(const sb_checkup *k, const sb_reference *r);
/* Marks a reference as found. False: it was found before. The references in the block share one mark, and `blocks`
 * counts them; for such a reference the function always returns true. */
bool sb_check_count(sb_checkup *k, const sb_reference *r);
bool sb_check_lives(const sb_checkup *k, unsigned connection);
/* True if the process of the connection is dead and not reaped. That excuses many inconsistencies. */
bool sb_check_dying(const sb_checkup *k, unsigned connection);

/* ---- rings ---- */

typedef struct {
  const sb_cell_shm *cell;
  uint64_t word, position;
  bool marked; /* the `requeued` bits of the ring, and of each page above the cell, lead to the cell */
} sb_check_cell;
typedef void (*sb_check_visitor)(sb_checkup *k, void *context, const sb_check_cell *cell);

/* Walks the pages of ring `id` of slot `object`. Calls `visit` for every cell that is neither FREE nor broken. `queue`:
 * the queue that findings name, 0 = none. *end: the first free position. False: the object, a page, a cell or a hint
 * of the ring is broken, so what `visit` counted may be incomplete. */
bool sb_check_ring(sb_checkup *k, uint32_t object, uint32_t id, uint32_t queue, sb_check_visitor visit, void *context,
                   uint64_t *end);

/* ---- the parts ---- */

void sb_check_connections(sb_checkup *k);
void sb_check_cells_owned(sb_checkup *k); /* called after the queues, whose check counts `owned` */
void sb_check_queue(sb_checkup *k, uint32_t slot, bool closed);
void sb_check_groups(sb_checkup *k, uint32_t slot);
/* `sound`: the pages of the queue's messages are. */
void sb_check_values(sb_checkup *k, uint32_t slot, bool sound);
void sb_check_ids(sb_checkup *k, uint32_t slot);
void sb_check_lists(sb_checkup *k, uint32_t slot);
void sb_check_memory_list(sb_checkup *k);
void sb_check_classes(sb_checkup *k);
void sb_check_chunks(sb_checkup *k); /* called last, since it needs what the other parts saw */

#endif
