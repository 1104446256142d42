// SPDX-License-Identifier: Apache-2.0
/* Transaction: several publications, each to several queues, and acknowledgements, all or nothing.
 *
 * What: a commit first prepares everything where no consumer takes it: each body in a slot, a STAGED cell in each
 * target queue, a mark on each message to settle. Then one store of the connection's commit word decides. After that
 * store the connection, or its reaper, *flips* each cell (STAGED -> AVAILABLE or SCHEDULED) and settles each message. A
 * body that goes to several queues is stored once.
 *
 * Layout: `commit` of sb_connection_shm: SB_COMMIT_NONE, or another value from the decision until all is carried out. Holdings STAGED (a cell),
 * PUBLICATION (a body), SETTLING (a message; its holding was CELL until the commit marked it), ID (the claim of a
 * message's id, sb_duplicates.h).
 *
 * Invariants:
 *  I45 a STAGED cell is flipped only while the commit word of its owner is not NONE. It becomes a TOMBSTONE only while
 *      that word is NONE.
 *  I46 the holdings list a body as PUBLICATION from before its first cell is staged until its last cell was flipped. So
 *      while the commit word is NONE, a body that is listed so belongs only to the owner of that word, whatever the header
 *      of the slot says. The commit word is cleared after all holdings of the commit were given back.
 *  I47 the counter `added` is raised under an intent that is written before the flip, and names the cell. So a reaper
 *      that finds this intent knows whether the cell was flipped: it was if the cell is not STAGED any more.
 *
 * Ordering pairs:
 *  P12 the holdings are complete, and the slots published, before the commit word is stored (seq_cst); a reaper loads
 *      the word before it reads the holdings.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  any step before storing the commit word -> STAGED cells, bodies in slots, marked messages, and the word NONE -> the
 *   reaper makes the cells TOMBSTONE, releases the marked messages like all other messages that the connection held,
 *   then frees the slots of the bodies whatever references they have.
 *  storing the commit word -> STAGED cells, ACQUIRED messages, and another word -> the reaper flips each cell that is
 *   still STAGED, and settles each message that is still ACQUIRED; or REMOVING, if the commit carries out or transfers
 *   it. It writes into the intents and counters of the dead connection's ledgers: if the reaper is killed, too, its successor can continue.
 *  claiming an id -> the claim, and any word -> the reaper gives the claim back, or makes the id known.
 *  storing SB_COMMIT_STORED, before or while the numbers of sb_turns.h are raised -> see there.
 *  flipping a cell, before counting it -> the intent COMMIT -> the reaper counts the cell (sb_intent.c).
 *  counting a cell, before looking after its queue (notifying consumers, enforcing limits, emptying a queue that was
 *   closed meanwhile) -> a queue for which these steps were not done -> the reaper does them for each queue that the
 *   dead connection had open (sb_recover.c).
 *  giving back all holdings, before clearing the commit word -> the word without holdings -> nothing to repair.
 *
 * Concurrency: the caller keeps the connection's lock from sb_transaction_stage to sb_transaction_carry_out or
 *  sb_transaction_undo, so the holdings never list bodies of two commits as PUBLICATION. Before that, the caller drops
 *  the lock to copy a long body, and other commits of the connection may run meanwhile. So a body is listed as SLOT
 *  until the staging begins, and the reaper frees it whatever the commit word says. The searches of other connections
 *  pass STAGED cells (I53 of sb_take.h). While the owner is stopped, its cells stay STAGED, and take room of a limit.
 */
#ifndef SB_TRANSACTION_H
#define SB_TRANSACTION_H

#include "sb_duplicates.h"
#include "sb_intent.h"

#define SB_TRANSACTION_NO_TOKEN 0u

/* A body. */
typedef struct {
  uint64_t token, gen, bytes;
  uint32_t slot;
  uint32_t references; /* a bit for each reference staged so far, as in the slot's header */
  uint64_t due_ns, expires_ns;
  bool scheduled;
} sb_transaction_body;

/* The cell of a body in one of its queues. The caller that plans a commit fills in the fields from `q` to `refused`. */
typedef struct {
  sb_queue *q;
  sb_transaction_body *body;
  unsigned ref;
  /* admitted: the queue keeps room for the message; refused: the queue has no room, and its overflow is "drop", so the
   * commit continues without this cell */
  bool admitted, refused;
  bool duplicate;        /* the queue knows the id of the message, so the commit continues without this cell */
  bool tracked, counted; /* tracked: the queue maintains hints; counted: `taken` counts the cell, if `tracked` is set */
  uint64_t token;        /* names the cell's holding; SB_TRANSACTION_NO_TOKEN: the cell is not staged */
  uint64_t position;
  sb_leaf_ref leaf;
  sb_claim claim; /* of the message's id; none if the queue remembers no ids, or the message has none */
} sb_transaction_cell;

/* A message to settle. */
typedef struct {
  sb_queue *q;
  uint64_t token;
  sb_reason reason;
} sb_transaction_end;

typedef struct {
  sb_connection *c;
  sb_transaction_body *bodies;
  sb_transaction_cell *cells;
  sb_transaction_end *ends;
  uint32_t body_count, cell_count, end_count;
  uint32_t marked; /* a count: the messages of ends[0] to ends[marked - 1] are marked */
} sb_transaction_plan;

/* Stages each admitted cell, except cells of closed queues; before that, lists the bodies as PUBLICATION (I46). If a
 * cell cannot be staged, returns why, and *failed is the index of that cell; cells before it stay staged until
 * sb_transaction_undo. */
sb_status sb_transaction_stage(sb_transaction_plan *p, uint32_t *failed);
/* Stages one admitted cell, of a body that is listed as PUBLICATION. After a failure the cell is still admitted. */
sb_status sb_transaction_stage_cell(sb_connection *c, sb_transaction_cell *cell);
/* Lists an ALLOC body as PUBLICATION (I46), or as SLOT again: after that only its owner decides about it. */
void sb_transaction_list(sb_connection *c, const sb_transaction_body *body, bool listed);
/* Marks the messages to settle. SB_SETTLED: the connection does not hold one of them, or the plan names one twice. */
sb_status sb_transaction_mark(sb_transaction_plan *p);
/* Decides the commit: it cannot be undone afterwards. Before that, frees the bodies that have no staged cell. */
void sb_transaction_decide(sb_transaction_plan *p);
/* Flips the staged cells and settles the messages. The caller then looks after the queue of each cell that was staged
 * (whose `token` is not SB_TRANSACTION_NO_TOKEN): it enforces the limits and notifies the consumers, or empties the
 * queue if that was closed meanwhile. */
void sb_transaction_carry_out(sb_transaction_plan *p);
/* Undoes all preparations. The caller then enforces the limits of the queues (I42 of sb_queue.h). The caller also wakes
 * producers that wait for room or for memory: the undone cells and bodies gave both back. */
void sb_transaction_undo(sb_transaction_plan *p);

/* The reaper's part. If the commit of the dead connection is decided, the reaper calls sb_transaction_roll_forward for
 * each holding, and after that sb_transaction_remember_ids for each (I132 of sb_duplicates.h). Else it calls sb_transaction_roll_back for each holding, and after that sb_transaction_free_body for
 * each. */
bool sb_transaction_is_decided(const sb_connection_shm *dead);
void sb_transaction_roll_forward(sb_reap_context *w, uint64_t what, uint64_t where);
void sb_transaction_remember_ids(sb_reap_context *w, uint64_t what, uint64_t where);
void sb_transaction_roll_back(sb_reap_context *w, uint64_t what, uint64_t where);
void sb_transaction_free_body(sb_reap_context *w, uint64_t what, uint64_t where);

#endif
