// SPDX-License-Identifier: Apache-2.0
/* Grace: when memory of structures may serve bodies.
 *
 * What: a chunk of structures whose slots are all free, and rested since the look before, is drained (sb_drained.h). Calls that
 * were inside the core then may know its slots still. When each of them has ended, the chunk becomes FREE. Nobody waits for
 * that: who drains asks again at its next step. Nodes keep their chunks.
 *
 * Layout: `gate` of the connection's record. `inside` is 1 while a thread has the connection's lock, and may be 1 while one is about
 * to take it. By `asked`, which counts, the next call learns that it has to forget the pages that its handles remember.
 *   inside  0 or 1 -> 1   store, relaxed, in front of the lock's CAS; where a CAS is no barrier, or the thread waited for the
 *                         lock, or finds 0 behind its CAS, or the connection closes: swap, under the lock
 *   inside  1 -> 0        store, release, by who gives the lock back
 *   asked   n -> n + 1    add, by who drains, who looks at `inside` by an operation that reads and writes after it
 *
 * Invariants:
 *  I70 a structure is read for the truth, or written, only by a call that is inside. It got there by a word that is cleared
 *      before the slot is freed, or through sb_slab_object since it entered, or by what it owns.
 *  I71 a drained chunk becomes FREE only after each connection was seen outside, after it was asked since.
 *
 * Ordering pairs:
 *  P21 the chunk is DRAINING before `asked` is raised, before `inside` is looked at (all read and write, seq_cst); a call enters
 *   `inside` before it reads `asked` (acquire): by a swap, or by a store that is seen by the CAS behind it, since a locked operation
 *   of x86 is a barrier. So of the two one sees the other: who enters unseen sees what was asked, and DRAINING. A store of one
 *   thread may let another one in, who finds 1 behind its CAS: stores come in one order there. A call leaves by a store (release):
 *   what was done inside comes before the 0 that is seen. Of a number that is no connection's, its word is written as it is: who
 *   opens it comes after that. tests/models/gate.pml has all of it.
 *
 * Death (after -> state, repaired): the drainer -> see sb_drained.h. A call that was inside, or stored so -> waited for until its
 *  connection is reaped; its reaper is inside by its own gate. Stopped inside -> the chunk stays DRAINING until it goes on,
 *  or until an allocation of its class finds no other memory, and takes it over.
 *
 * Concurrency: under the drainer's lock. Several drainers have different chunks.
 */
#ifndef SB_GRACE_H
#define SB_GRACE_H

#include "sb_drained.h"
#include "sb_notify.h"

#define SB_GRACE_CHUNKS 64u /* are drained at a time */

/* Of one who drains; process-local. */
typedef struct sb_grace {
  uint32_t count, waiting; /* how many chunks are drained, and how many connections were inside */
  struct {
    uint64_t token;
    uint32_t chunk;
  } drained[SB_GRACE_CHUNKS];
  bool waits[SB_MAX_CONNECTIONS];
  uint64_t used[]; /* of each chunk: one more than its sum at the last look, 0: it was in use */
} sb_grace;

/* Lock held. Begins with what rested, or goes on with what was begun; true if something is under way. */
bool sb_grace_step(sb_connection *c);
/* Lock held. All that was begun goes back to its class. */
void sb_grace_give_up(sb_connection *c);

#endif
