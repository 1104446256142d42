// SPDX-License-Identifier: Apache-2.0
/* The queue's side of its consumers: who is told of work (seed 002: notifyWork), and of room.
 *
 * What: a queue tells one interested node of new work, the highest priority first, and of one priority the one that waits
 * longest. What a node does then is its target's business (sb_subscription.h): a consumer, a channel, or a call that waits.
 *
 * Invariants:
 *  I31 whoever leaves NOTIFIED without having emptied the queue notifies another (the baton), after flipping its own state.
 *  I32 a node of lower priority is not notified, and does not pull, while one of higher priority is interested or notified,
 *      except as a rescue.
 *
 * Ordering pairs:
 *  P3 publisher: append (seq_cst), then load `interested`. Consumer: CAS to INTERESTED (seq_cst), then look at the queue.
 *     At least one of them sees the other.
 *  P9 notifier: node flag, target bit, connection bit, ring, each on its own. IO thread: clears the connection's bits, then
 *     the target's, then the node's flag, then looks.
 *
 * Death (after -> state, repaired):
 *  append, before notify -> message ready, nobody told -> the reaper notifies every queue the dead had open.
 *  NOTIFIED by a dead notifier, not rung -> flags or the bounded sleep -> the sleeper reads node words when it times out.
 *  consumer dead while NOTIFIED -> REMOVED by the reaper, which passes the baton.
 *  consumer stopped while INTERESTED or NOTIFIED -> parked at the next tick, and others notified (sb_stopped.h).
 *
 * Concurrency: anybody, at any time.
 */
#ifndef SB_NOTIFY_H
#define SB_NOTIFY_H

#include "sb_limits.h"
#include "sb_nodes.h"

void notify_work(sb_broker *b, uint32_t node);
bool sb_consumer_higher_wants(sb_broker *b, const sb_queue_shm *q, int32_t priority);
/* Tells one interested node, the highest priority first. `rescue`: whatever is notified already. */
bool sb_consumer_notify_one(sb_connection *c, uint32_t queue, bool rescue);
/* The same, of those above that priority only. */
bool sb_notify_above(sb_connection *c, uint32_t queue, int64_t above, bool rescue);
void sb_consumer_notify_browsers(sb_connection *c, uint32_t queue);
/* After a message became ready: wakes somebody if more is ready than is notified. */
void sb_consumer_work_arrived(sb_queue *q);
/* After many became ready at once: wakes as many as there is something for. */
void sb_consumer_backlog_arrived(sb_queue *q);
/* After places were freed: wakes a producer that waits for room, or for memory. */
void sb_consumer_room_made(sb_connection *c, sb_queue_shm *q, uint32_t slot);
/* The same for a producer that waits for room in the queue only. */
void sb_consumer_room_in(sb_connection *c, sb_queue_shm *q, uint32_t slot);
/* Wakes everybody who waits at a queue (it was closed). */
void sb_consumer_wake_all(sb_connection *c, uint32_t queue);
/* Ends the sleep of the housekeeper, which else may last until its next tick: it looks at what changed. */
void sb_notify_housekeeper(sb_broker *b);

/* ---- for whoever has a node there ---- */
/* May there be something for a consumer? */
bool sb_notify_looks_ready(sb_queue *q);
void sb_notify_pass_baton(sb_queue *q);
/* Does somebody of a higher priority want messages, by the lists? */
bool sb_notify_better_wants(const sb_queue *q, int32_t priority);

#endif
