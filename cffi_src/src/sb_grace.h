// SPDX-License-Identifier: Apache-2.0
/* Grace: when memory of structures may serve bodies.
 *
 * What: a chunk of structures whose slots are all free, and rested since the look before, is drained (sb_drained.h). Calls that
 * were inside the core then may know its slots still. When each of them has ended, the chunk becomes FREE. Nobody waits for
 * that: who drains asks again at its next step. Nodes keep their chunks.
 *
 * Layout: `gate` of the connection's record: INSIDE while a thread has the connection's lock, and RENEW, by which the next
 * call learns that it has to forget the pages that its handles remember.
 *
 * Invariants:
 *  I70 a structure is read for the truth, or written, only by a call that is inside. It got there by a word that is cleared
 *      before the slot is freed, or through sb_slab_object since it entered, or by what it owns.
 *  I71 a drained chunk becomes FREE only after each connection was seen outside since, by an operation that left RENEW.
 *
 * Ordering pairs:
 *  P21 the chunk is DRAINING before a gate is asked (or, acquire and release); a call enters by a swap (acquire) and leaves by a
 *   store (release). Who enters after it was asked sees DRAINING; what was done inside comes before the store that is seen.
 *   Of a number that is no connection's, its word is written as it is: who opens it comes after that.
 *
 * Death (after -> state, repaired): the drainer -> see sb_drained.h. A call that was inside -> waited for until its
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
