// SPDX-License-Identifier: Apache-2.0
/* Check: the parts of the doctor, each of which walks one kind of structure and says what is wrong.
 *
 * What: connections and their holdings; queues with their cells, ledgers and lists; chunks and slots. sb_check() runs
 * them in this order: what the earlier ones saw tells the last one which slots nobody refers to. Findings are codes with
 * numbers; the Python side puts them into words, and asks twice, so that what is only under way is not reported.
 *
 * Layout: `seen` has a word for each slot: the reference bits that cells hold, or bit 0 of a structure that was found in
 * its place, and above them SB_KNOWN_... bits. It is the checker's own memory.
 *
 * Invariants:
 *  I40 nothing shared is written, and nothing is believed that was not bounds-checked: a slot number is used after
 *      sb_check_kind() knows what begins there. No walk is longer than the memory it walks.
 *
 * Ordering pairs: P21 of sb_grace.h: an examination is one call, which is inside from its first look to its last. A chunk of
 *  structures that it saw is none of bodies before its end, whatever is drained meanwhile.
 *
 * Death: nothing shared is written.
 * Concurrency: beside traffic it may report what is only under way. The segments must be complete (I5).
 */
#ifndef SB_CHECK_H
#define SB_CHECK_H

#include "sb_nodes.h"
#include "sb_view.h"

typedef struct {
  sb_broker *b;
  sb_finding *findings;
  uint32_t count, room;
  uint32_t chunks; /* that were mapped at the beginning: no slot lies beyond */
  uint32_t *seen;
  uint16_t *blocks;        /* for each slot: references in its block that were found (sb_reference.h) */
  uint32_t *owned, *named; /* for each connection: cells that say it owns them, cells that its holdings say it owns */
} sb_checkup;

enum {
  SB_KNOWN_TO_OWNER = 1 << 24, /* listed in the holdings of its owner */
  SB_KNOWN_TO_ALL = 1 << 25,   /* a node: it has an entry in the list of all */
  SB_KNOWN_TO_LIST = 1 << 26   /* ... and one in the list of its state */
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

/* What kind of slot begins there; SB_KIND_NONE if none does. */
unsigned sb_check_kind(const sb_checkup *k, uint32_t slot);
/* Is it of that kind, and in use? */
bool sb_check_is(const sb_checkup *k, uint32_t slot, unsigned kind);
/* Is that reference there? Only reads, where sb_reference_gone also repairs. */
bool sb_check_has(const sb_checkup *k, const sb_reference *r);
/* It was found; false if it was found before. */
bool sb_check_count(sb_checkup *k, const sb_reference *r);
bool sb_check_lives(const sb_checkup *k, unsigned connection);
/* Does the connection belong to a process that died and has not been cleared up after? Much is excused then. */
bool sb_check_dying(const sb_checkup *k, unsigned connection);

/* ---- rings ---- */

typedef struct {
  const sb_cell_shm *cell;
  uint64_t word, position;
  bool marked; /* `returned` bits lead to it */
} sb_check_cell;
typedef void (*sb_check_visitor)(sb_checkup *k, void *context, const sb_check_cell *cell);

/* Walks the pages of a ring and visits every cell that is not FREE. *end: the first free position. False if pages or
 * cells are broken: what was counted is not all then. */
bool sb_check_ring(sb_checkup *k, uint32_t object, uint32_t id, uint32_t queue, sb_check_visitor visit, void *context,
                   uint64_t *end);

/* ---- the parts ---- */

void sb_check_connections(sb_checkup *k);
void sb_check_cells_owned(sb_checkup *k); /* after the queues */
void sb_check_queue(sb_checkup *k, uint32_t slot, bool closed);
void sb_check_lists(sb_checkup *k, uint32_t slot, uint64_t end);
void sb_check_memory_list(sb_checkup *k);
void sb_check_classes(sb_checkup *k);
void sb_check_chunks(sb_checkup *k); /* last */

#endif
