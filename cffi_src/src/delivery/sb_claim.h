// SPDX-License-Identifier: Apache-2.0
/* Claims: a queue that one consumer has to itself.
 *
 * What: an exclusive consumer is there only if no other one is, and keeps all others out. A queue with a single active
 * consumer lets many register: one is active and takes, the others stand by; when it is gone (not when it lacks credit) the
 * next one is, by priority, then by registration. Calls that wait in get are nobody's rivals.
 *
 * Layout: `exclusive` of sb_queue_shm names a node and its registration. A claim is *in force* while that node is
 * registered, and (of an exclusive consumer) its process lives: one of somebody who is gone is no claim, and is written over.
 *   nobody -> tentative -> exclusive        a claimant
 *   tentative -> nobody                     an ordinary consumer that came meanwhile, or the claimant that saw one
 *   not in force -> active                  whoever sees that nobody is
 *
 * Invariants:
 *  I55 an exclusive claim is confirmed only if no ordinary consumer was registered while it was tentative; one that
 *      registers later sees it, and gives up. Of two claimants the one whose claim stands first goes on, the other gives up.
 *  I54 a node that stands by is NOT_INTERESTED. Whoever is made active is told, and looks at the claim itself.
 *
 * Ordering pairs:
 *  P16 a consumer is registered (seq_cst CAS of its node's word), then reads the claim. A claimant writes its claim (seq_cst),
 *     then reads the list of all consumers; who leaves is REMOVED (seq_cst), then looks for a successor. At least one of two
 *     sees the other: an ordinary consumer the claim, or the claimant the consumer; a newcomer that nobody is active, or who
 *     leaves the newcomer.
 *
 * Death (after -> state, repaired): tentative -> not in force.  active, gone -> the reaper looks for a successor when it has
 *  returned what the dead one held.  successor named, not told -> its bounded sleep, or the reaper of who should have told.
 *
 * Concurrency: anybody.
 */
#ifndef SB_CLAIM_H
#define SB_CLAIM_H

#include "sb_notify.h"

/* Of a queue with a single active consumer: what a node is created with. */
uint32_t sb_claim_flags(const sb_queue_shm *q);
/* A consumer that was just registered: SB_ACCESS if it may not be here; then it goes again. */
sb_status sb_claim_enter(sb_connection *c, uint32_t queue, uint32_t node);
/* A consumer is gone, or may be: names the next active one, and tells it. */
void sb_claim_succeed(sb_connection *c, uint32_t queue);
/* It stands by: is it active by now? Then it does not stand by any more. */
bool sb_claim_activate(sb_broker *b, uint32_t node);

#endif
