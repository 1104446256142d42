// SPDX-License-Identifier: Apache-2.0
/* Dispatch: from when on the consumers of a queue get messages (Artemis: consumers-before-dispatch,
 * delay-before-dispatch).
 *
 * What: a *gated* queue (SB_QUEUE_GATED) gives no message to consumers until its gate opens: when as many consumers are
 * attached as `consumers_before_dispatch` says, or when `delay_before_dispatch` has passed since the first of them came.
 * Without the first setting only the delay counts, without the second only the number. The gate stays open until the
 * last consumer has left. A consumer that the gate keeps waiting is NOT_INTERESTED, as a standby is (sb_exclusive.h): so
 * a put costs the same as at any queue. Gets and watches are no consumers, and do not wait.
 *
 * Layout: a consumer that the queue admits draws a *ticket*, the next number of `tickets`, and notes it in its node. The
 * gate is no state of the queue: it is open for a consumer if `open_before` of the queue is above the consumer's ticket,
 * or if its node has not the flag SB_NODE_GATED. `open_before` only rises. When all consumers have left, each later
 * ticket is above it: so the gate closes without a step that a process could be killed in front of.
 *
 * Invariants:
 *  I100 a process that raises `open_before` to a number has read `tickets` before, and the number is that one plus one.
 *       It then saw among the consumers with such tickets, all of them attached when it read: enough consumers, or one
 *       whose time was up, or one for which the gate was open. So the gate opens only for consumers that were attached
 *       at a moment at which it had to be open.
 *
 * Ordering pairs:
 *  P31 a consumer notes its ticket (seq_cst), then reads those of the others. So of two consumers that come at the same
 *      time, at least one sees the other, and the last one sees all.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  drawing a ticket -> a number that no consumer has -> nothing to repair.
 *  noting the ticket, before looking at the others -> a consumer that counts until the reaper removes its node. Another
 *   consumer that looks meanwhile may open the gate; else the gate is as if the consumer had left.
 *  raising `open_before`, before notifying the consumers -> consumers that do not know that they get messages -> each of
 *   them looks when its bounded sleep ends; or the reaper of the killed process notifies them.
 *
 * Concurrency: any process, at any time. The IO thread of each waiting consumer looks when the delay has passed: no
 *  consumer depends on another process for that.
 */
#ifndef SB_DISPATCH_H
#define SB_DISPATCH_H

#include "sb_notify.h"

static inline bool sb_dispatch_gated(const sb_queue_shm *q) {
  return (SB_LOAD(&q->flags, SB_SEQ_CST) & SB_QUEUE_GATED) != 0;
}
/* Called when the queue admitted a new consumer, before the consumer may become INTERESTED: draws its ticket, then looks
 * (sb_dispatch_look). */
void sb_dispatch_enter(sb_connection *c, uint32_t queue, uint32_t node);
/* At a gated queue: opens the gate if it must be open for a consumer that has it closed, and notifies all consumers
 * that do not know yet that it is open. Also called when the settings change: fewer consumers may be enough then.
 * At other queues does nothing. Returns when the gate opens because of its delay; 0: there is no delay, or no
 * consumer. */
uint64_t sb_dispatch_look(sb_connection *c, uint32_t queue);
/* Called for a consumer with the flag SB_NODE_GATED, by the owner of its node: looks. True: the gate is open for the
 * consumer, which has the flag no longer. */
bool sb_dispatch_passes(sb_connection *c, uint32_t node);
/* Opens the gate for all consumers that are attached now. Called when the queue ceases to be gated. */
void sb_dispatch_open(sb_queue_shm *q);

#endif
