// SPDX-License-Identifier: Apache-2.0
/* Commit: several publications, each to several queues, and acknowledgements, all or nothing.
 *
 * What: everything is prepared where nobody takes it: bodies in slots of their own, a STAGED cell in each target, marks on
 * the messages that are to be settled. One store of the connection's commit word decides. Then each cell is flipped and
 * each message settled, by the connection, or by its reaper. A body that goes to several queues is there once.
 *
 * Layout: `commit` of sb_connection_shm: 0, or 1 from the decision until all is carried out. Holdings STAGED (a cell),
 * PUBLICATION (a body), SETTLING (a message that was CELL until it was marked).
 *
 * Invariants:
 *  I45 a STAGED cell becomes ready only while its owner's commit word is 1, and a TOMBSTONE only while it is 0.
 *  I46 a body is listed as PUBLICATION from before its first cell is staged until its last one was flipped; so while the
 *      word is 0 nobody but its owner has it, whatever its header says. The word is cleared after all entries were given back.
 *  I47 `added` is raised under an intent that stands before the flip and names its cell: no longer STAGED, it was flipped.
 *
 * Ordering pairs:
 *  P12 the entries are complete, and the slots published, before the word is stored (seq_cst); a reaper loads it first.
 *
 * Death (after -> state, repaired by the reaper of the connection):
 *  body allocated, cells staged, messages marked, slots published: word 0 -> cells TOMBSTONE, then slots FREE whatever
 *   references they have, messages released like all that was held.
 *  the word -> each cell that still is STAGED is flipped, each message that still is ACQUIRED settled, with the intents and
 *   counters of the dead one's ledgers: a reaper killed in the middle leaves what its successor knows how to go on with.
 *  a flip, not counted -> intent COMMIT -> counted.    flipped, nobody told, too many, queue closed -> seen to with each
 *   queue that the dead had open.    entries given back, the word not cleared -> nothing is left to be done.
 *
 * Concurrency: one commit at a time for a connection, under its lock. Others pass what is staged (I53), also for ever, if
 * its owner was stopped; the places it takes of a limit stay taken then.
 */
#ifndef SB_COMMIT_H
#define SB_COMMIT_H

#include "sb_judge.h"

#define SB_COMMIT_NO_TOKEN 0u

/* A body. */
typedef struct {
  uint64_t token, gen, bytes;
  uint32_t slot;
  uint32_t references; /* of the cells staged so far, in the slot's header */
  uint64_t due_ns, expires_ns;
  bool held;
} sb_commit_body;

/* A cell: of that body, in that queue. Whoever plans a commit fills in the first five. */
typedef struct {
  sb_queue *q;
  sb_commit_body *body;
  unsigned ref;
  bool admitted, refused; /* a place was taken; there is none, and the message goes nowhere here */
  bool tracked, counted;  /* the queue keeps hints; in which it counts as taken */
  uint64_t token;         /* of its holding; SB_COMMIT_NO_TOKEN: it is not staged */
  uint64_t position;
  sb_leaf_ref leaf;
} sb_commit_cell;

/* A message that is to be settled. */
typedef struct {
  sb_queue *q;
  uint64_t token;
  unsigned counter;
} sb_commit_end;

typedef struct {
  sb_connection *c;
  sb_commit_body *bodies;
  sb_commit_cell *cells;
  sb_commit_end *ends;
  uint32_t body_count, cell_count, end_count;
  uint32_t marked; /* of the ends */
} sb_commit_plan;

/* Lists a filled ALLOC slot as the body of a commit. */
void sb_commit_list(sb_connection *c, const sb_commit_body *body);
/* Stages each cell that was admitted; one whose queue is closed goes nowhere. *failed: which one could not be staged. */
sb_status sb_commit_stage(sb_commit_plan *p, uint32_t *failed);
/* Marks what is to be settled; SB_SETTLED: one of them is not held. */
sb_status sb_commit_mark(sb_commit_plan *p);
/* From here on it happens. Bodies that go nowhere are freed. */
void sb_commit_decide(sb_commit_plan *p);
/* Flips and settles; limits are enforced, and consumers told, by the caller, for each cell that has a token. */
void sb_commit_carry_out(sb_commit_plan *p);
/* As if nothing had been: the caller wakes who may have seen places taken. */
void sb_commit_undo(sb_commit_plan *p);

/* The reaper's part, of each holding of a dead connection: forward if its commit was decided; else back, then the bodies. */
bool sb_commit_is_decided(const sb_connection_shm *dead);
void sb_commit_roll_forward(sb_walk *w, uint64_t what, uint64_t where);
void sb_commit_roll_back(sb_walk *w, uint64_t what, uint64_t where);
void sb_commit_free_body(sb_walk *w, uint64_t what, uint64_t where);

#endif
