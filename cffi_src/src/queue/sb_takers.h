// SPDX-License-Identifier: Apache-2.0
/* Takers: how many messages the consumers of a queue would take now, for a queue that keeps none.
 *
 * What: a queue with max_length 0 or max_bytes 0 has no room for messages of its own: a message is there only for a
 * consumer that waits for it (RabbitMQ: a queue of length 0 passes a message on, or drops it). Here consumers pull, so
 * the message is ready for a moment before its consumer takes it. So such a queue may have as many ready messages as its
 * consumers that are INTERESTED or NOTIFIED have credit left. A node of a waiting get has a credit of one; a consumer
 * without a prefetch counts with SB_TAKERS_MOST. Choosy consumers (sb_choice.h) do not count: which messages they take
 * is not known before they look. A paused queue has no takers.
 *
 * Layout: none here: `prefetch` and `unacked` of the nodes in the list `all`.
 *
 * Invariants: none. The number is a hint: a consumer may have taken a message, and show that a moment later. It then
 *  finds its credit used up, loses its interest, and evicts what is too much (sb_notify_pass_baton).
 *
 * Ordering pairs: none.
 *
 * Death: this function only reads. A message whose consumer is killed before it took it -> a ready message that nobody
 *  waits for -> the reaper evicts it, after it removed the node (sb_recover.c).
 *
 * Concurrency: any process, at any time. It reads the list like a walk that drops no entry (sb_nodes.h).
 */
#ifndef SB_TAKERS_H
#define SB_TAKERS_H

#include "sb_queue.h"

#define SB_TAKERS_MOST 1000

int64_t sb_takers(const sb_queue *q);

#endif
