// SPDX-License-Identifier: Apache-2.0
/* Exclusive: decides which consumer has a queue to itself.
 *
 * What: an exclusive consumer registers only if the queue has no other consumer, and keeps all others out. A queue with
 * a single active consumer admits many: one is active and takes, the others stand by. When the active consumer leaves
 * (not when it lacks credit), the next one becomes active, by priority, then by registration. Waiting gets do not count
 * as consumers here: no consumer keeps them out.
 *
 * Layout: `exclusive` of sb_queue_shm is the *claim*: it names a node and the node's registration. It is *in force*
 * while that node is registered, and, for an exclusive consumer, while the consumer's process lives. Any process may
 * overwrite a claim that is not in force. A *claimant* is an exclusive consumer that registers, an *ordinary* consumer
 * is any other one.
 *   none -> tentative -> exclusive          by a claimant, which *confirms* its claim by the second step
 *   tentative -> none                       by an ordinary consumer that registers, or by a claimant that sees one
 *   not in force -> active                  by any process that sees that no consumer is active
 *
 * Invariants:
 *  I55 an exclusive claim is confirmed only if no ordinary consumer of a living process was registered while the claim
 *      was tentative. An ordinary consumer that registers later sees the claim, and gives up. Of two claimants, the one
 *      that wrote its claim first continues; the other gives up.
 *  I54 a node that stands by is NOT_INTERESTED. The process that makes a node active also notifies the node; the owner
 *      of the node then reads the claim to learn that its node is active.
 *
 * Ordering pairs:
 *  P16 a consumer registers (seq_cst CAS of its node's word), then reads the claim. A claimant writes its claim
 *     (seq_cst), then reads the list of all consumers. A consumer that leaves becomes REMOVED (seq_cst), then looks for
 *     a successor. At least one of two sees the other: the ordinary consumer sees the claim, or the claimant sees the
 *     consumer; a new consumer sees that none is active, or the leaving consumer sees the new one.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  writing a tentative claim -> a claim that is not in force -> nothing to repair: any process may overwrite it.
 *  becoming the active consumer -> a claim that names a dead consumer -> the reaper makes the messages of the dead
 *   consumer ready again, then makes the next consumer active.
 *  making a consumer active, before notifying it -> an active consumer that does not know it -> that consumer reads the
 *   claim when its bounded sleep ends; or the reaper of the killed process notifies it.
 *
 * Concurrency: any process, at any time.
 */
#ifndef SB_EXCLUSIVE_H
#define SB_EXCLUSIVE_H

#include "sb_notify.h"

/* A flag for the node of a new consumer, besides its other flags: SB_NODE_STANDBY at a queue with a single active
 * consumer, else 0. */
uint32_t sb_exclusive_flags(const sb_queue_shm *q);
/* Decides whether a consumer that just registered is admitted. For an exclusive consumer, writes the claim and confirms
 * it. For an ordinary one, removes a tentative claim; at a queue with a single active consumer, calls
 * sb_exclusive_succeed instead. SB_ACCESS: the consumer is not admitted, so the caller must remove it again. */
sb_status sb_exclusive_enter(sb_connection *c, uint32_t queue, uint32_t node);
/* At a queue with a single active consumer: if no consumer is active, makes the next one active, and notifies it. Also
 * notifies an active consumer that does not know yet that it is active. At other queues does nothing. */
void sb_exclusive_succeed(sb_connection *c, uint32_t queue);
/* Called for a node that stands by. If the node is the active one now, clears its flag SB_NODE_STANDBY, and returns
 * true. */
bool sb_exclusive_activate(sb_broker *b, uint32_t node);

#endif
