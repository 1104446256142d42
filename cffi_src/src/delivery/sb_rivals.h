// SPDX-License-Identifier: Apache-2.0
/* Rivals: consumers of a higher priority that want only some of the messages (Qpid Broker-J: notHigher).
 *
 * What: a consumer with a selector, or with no_local, is *choosy* (sb_choice.h): while it has credit, its node is
 * NON_ACQUIRING. To the consumers of lower priorities it is a *rival*. They take no message that a rival wants, but all
 * others immediately. So each consumer of a queue that has a rival looks for messages as a choosy consumer does: it passes
 * those that a rival wants, with a cursor of its own. It decides that by itself, by the selector of the rival, which lies
 * in shared memory.
 *
 * A consumer that is no longer a rival, since it has no credit or leaves, notifies the consumers of lower priorities. They
 * see that it is gone, and begin again at the head of the queue. A consumer of a queue with message groups neither has
 * rivals nor is one. A get takes any message.
 *
 * Layout: `wish`, `wish_gen` and `wish_length` of a node name the slot with the program of its selector: a slot that
 * its connection has allocated as for a body, and never publishes. 0: it has none. SB_NODE_NO_LOCAL is a flag of the
 * node. All are written before the node first becomes NON_ACQUIRING, and the slot is freed after the node is REMOVED.
 *
 * Invariants:
 *  I107 a consumer takes a message, except in a rescue (sb_housekeeping.h), only if it found no rival that wants the
 *      message, in a walk over the list of NON_ACQUIRING nodes that it began after it was told last.
 *  The program of a rival is copied, and verified (I81 of sb_program.h). It is right if the header of its slot and the
 *  word of the node are the same before and after the copy. Otherwise the consumer is no rival any more.
 *
 * Ordering pairs:
 *  P33 a rival makes its node NOT_INTERESTED, then loads `interested` of the queue, and walks over the list of
 *      NON_ACQUIRING nodes. A consumer makes its node INTERESTED, or clears its flag (P9 of sb_notify.h), then loads the
 *      word of the rival's node. All are seq_cst. So the consumer sees that the rival is gone, or the rival sees the
 *      consumer and notifies it.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the slot of the program was allocated -> ALLOC(dead), listed in the holdings -> the reaper frees the slot.
 *  the node became NON_ACQUIRING -> a rival that takes nothing -> the reaper makes the node REMOVED, then notifies the
 *   nodes of every queue that the dead process had open.
 *  the node became NOT_INTERESTED, before the others were notified -> the same.
 * The rival may be stopped (SIGSTOP): the housekeeper parks its node at its next tick, and notifies the others
 * (sb_stopped.h).
 *
 * Concurrency: under the connection's lock. Each take of a consumer that is not of the highest priority costs a load if
 *  the queue has no choosy consumers, else a walk over their nodes, and a run of each rival's program for each message.
 */
#ifndef SB_RIVALS_H
#define SB_RIVALS_H

#include "sb_choice.h"
#include "sb_notify.h"

/* Stores the selector of a consumer where others read it. Called after its node was created, and before it is interested.
 * *token: the holding of the slot; 0: the consumer has no selector. SB_GROW, SB_NO_MEMORY: there is no memory. */
sb_status sb_rivals_announce(sb_connection *c, uint32_t node, const sb_choice *choice, uint64_t *token);
/* Frees the slot, after the node was destroyed. */
void sb_rivals_withdraw(sb_connection *c, uint64_t token);

/* True if the queue may have a rival of a consumer with this node. */
static inline bool sb_rivals_possible(const sb_queue *q, const sb_node_shm *node) {
  return SB_LOAD(&q->shm->non_acquiring, SB_SEQ_CST) > 0 && q->groups == NULL && /* P33 */
         SB_LOAD(&q->shm->consumer_levels, SB_ACQUIRE) != SB_LOAD(&node->level, SB_RELAXED);
}
/* Finds the rivals of a consumer of that priority, for its next search. If a rival of the last search is gone, the next
 * search begins at the head of the queue. SB_NO_MEMORY: the process has no memory for a selector. */
sb_status sb_rivals_find(sb_queue *q, int32_t priority, sb_choice *choice);
/* Frees what sb_rivals_find remembered. */
void sb_rivals_forget(sb_choice *choice);
/* Called after the node of a rival of that priority became NOT_INTERESTED, or was destroyed: notifies consumers of lower priorities. */
void sb_rivals_left(sb_queue *q, int32_t priority);

#endif
