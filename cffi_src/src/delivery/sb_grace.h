// SPDX-License-Identifier: Apache-2.0
/* Grace: decides when memory that structures (pages, ledgers ...) used may serve message bodies.
 *
 * What: a connection, the *drainer*, drains a chunk of structures (sb_drained.h) if all its slots are free, and none
 * was used since the drainer's previous look. Calls that were inside the core at that moment may still know its slots.
 * When each of these calls has ended, the chunk becomes FREE. No process waits for that: the drainer asks again at its
 * next step. Chunks of nodes are never drained.
 *
 * Layout: `gate` of the connection's record. `inside` is 1 while a thread has the connection's lock, and may be 1 while
 * a thread is about to take it. `asked` is a counter; a change tells the next call to drop the pages that its handles
 * remember.
 *   inside  0 or 1 -> 1   store, relaxed, before the lock's CAS. A swap, under the lock, replaces or follows the store
 *                         in four cases: a CAS is no barrier on this machine; the thread had to wait for the lock; the
 *                         thread reads 0 after its CAS; the connection is being closed
 *   inside  1 -> 0        store, release, by the thread that unlocks
 *   asked   n -> n + 1    add, by the drainer, which then reads `inside` by a read-modify-write
 *
 * Invariants:
 *  I70 only a call that is inside the core (`inside` of its connection is 1) writes a structure, or relies on what it
 *      reads in one. A call outside may do so with a node, and with what its connection keeps from being freed: its
 *      record, its holdings, the queues that it has open. A call that reads another structure outside checks afterwards
 *      that nothing changed (I43 of sb_peek.h). A call inside reached the structure in one of three ways: through a
 *      word that is cleared before the slot of the structure is freed; through sb_slab_object, after the call entered;
 *      or through an object that the call's connection owns.
 *  I71 a drained chunk becomes FREE only after the drainer asked each other connection (raised its `asked`), and then
 *      saw that connection outside (read 0 in its `inside`).
 *
 * Ordering pairs:
 *  P21 the drainer makes the chunk DRAINING, then raises `asked`, then reads `inside` (all read-modify-write, seq_cst).
 *   A call stores 1 in `inside` before it reads `asked` (acquire). It does so by a swap, or by a store and a CAS after
 *   it: a locked operation of x86 is a barrier, so the CAS makes the store visible. So one of the two sees the other: a
 *   call that the drainer does not see inside sees the new `asked`, and DRAINING. The 1 that a thread reads after its
 *   CAS may be the store of another thread; that is enough, since x86 keeps all stores in one order. A call leaves by a
 *   store (release), so what it did inside comes before the 0 that the drainer reads. For an id without a connection
 *   the drainer writes the id's word back unchanged (CAS), so a process that opens a connection with this id later sees
 *   DRAINING. tests/models/gate.pml models this pair, except ids without a connection.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  draining a chunk -> slots that the drainer took, and perhaps a chunk that is DRAINING or CLAIMED -> the reaper
 *   returns the chunk to its class, or makes it FREE (sb_drained.h).
 *  storing 1 in `inside` of a connection, at any point of a call -> that 1, so the drainer goes on waiting for this
 *   connection -> the reaper of the connection frees the connection's id, which ends the wait. While the reaper works,
 *   `inside` of its own connection is 1, so a drainer that asks it waits for the reaper, too.
 * While a process is stopped inside, the chunk stays DRAINING: until the process continues, or until an allocation of
 * the chunk's class finds no other memory, and takes the chunk over.
 *
 * Concurrency: under the drainer's lock. Several drainers have different chunks.
 */
#ifndef SB_GRACE_H
#define SB_GRACE_H

#include "sb_drained.h"
#include "sb_notify.h"

#define SB_GRACE_CHUNKS 64u /* a drainer drains at most so many chunks at the same time */

/* The state of a drainer; process-local. */
typedef struct sb_grace {
  uint32_t count, waiting; /* count: chunks that are being drained; waiting: connections whose `waits` is true */
  struct {
    uint64_t token;
    uint32_t chunk;
  } drained[SB_GRACE_CHUNKS];
  bool waits[SB_MAX_CONNECTIONS];
  /* by chunk number: the sum of the generations of its slots at the last look, plus one; 0: the chunk could not be
   * drained, for example because a slot was in use, or its draining began */
  uint64_t used[];
} sb_grace;

/* Lock held. Does one step of draining. If no chunks are being drained, begins with those of which no slot was used
 * since the last look. When no call can refer to their slots any more, makes them FREE. True if chunks are being
 * drained. */
bool sb_grace_step(sb_connection *c);
/* Lock held. Stops draining: each chunk that is being drained goes back to its class. */
void sb_grace_give_up(sb_connection *c);

#endif
