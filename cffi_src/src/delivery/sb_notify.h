// SPDX-License-Identifier: Apache-2.0
/* Notify: decides which consumers a queue notifies of work (Qpid Broker-J: notifyWork), and which producers of room.
 *
 * What: a queue notifies one interested node of new work: of the highest priority, and there the node that waits
 * longest. The IO thread then gives a turn to the node's target (sb_target.h: a consumer, a channel, or a watch). The
 * node of a waiting call has no target: the call itself wakes.
 *
 * Invariants:
 *  I31 when a node leaves the state NOTIFIED and the queue is not empty, the process that moved the node notifies
 *      another node afterwards: it passes the *baton*. The owner of a node that became INTERESTED again looks at the
 *      queue instead, and takes the next message itself, or passes the baton to a higher priority (I32).
 *  I32 while a node of a higher priority is INTERESTED or NOTIFIED, a node of a lower priority is not notified and does
 *      not pull, except in a rescue (sb_housekeeping.h). A get takes a message whatever the priorities, even if it
 *      waited.
 *
 * Ordering pairs:
 *  P3 producer: append (seq_cst), or link of a filled leaf (seq_cst), then load `interested`. Consumer: CAS to INTERESTED (seq_cst), then look at the
 *     queue. At least one of them sees the other.
 *  P9 notifier: sets the node's flag, then the target's bit, then the connection's bit, then rings, each of them
 *     unconditionally. IO thread: clears the connection's bits, then the target's, then the node's flag, then looks.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  appending a message, before notifying a node -> a message is ready, and no node is NOTIFIED -> the reaper notifies
 *   nodes of every queue that the dead process had open.
 *  making a node NOTIFIED, before ringing its owner -> an owner that sleeps -> the owner reads the words of its nodes
 *   when its bounded sleep ends; or the housekeeper rings the owner.
 *  becoming NOTIFIED -> a NOTIFIED node of a dead connection -> the reaper makes it REMOVED, and passes the baton.
 * The consumer of an INTERESTED or NOTIFIED node may be stopped (SIGSTOP): the housekeeper parks the node at its next
 * tick, and notifies another one (sb_stopped.h).
 *
 * Concurrency: any process, at any time.
 */
#ifndef SB_NOTIFY_H
#define SB_NOTIFY_H

#include "sb_groups.h"
#include "sb_limits.h"
#include "sb_nodes.h"
#include "sb_turn.h"

/* Flags a node and rings its IO thread (P9); or, for the node of a waiting call, rings the call. Does not change the
 * node's state (Qpid Broker-J: notifyWork). */
void sb_notify_node(sb_broker *b, uint32_t node);
bool sb_notify_higher_wants(sb_broker *b, const sb_queue_shm *q, int32_t priority);
/* Notifies one interested node, the highest priority first. `rescue`: does so even if a node of a higher priority is
 * notified already, and marks the node as rescued (SB_NODE_RESCUED). True if it notified a node. */
bool sb_notify_one(sb_connection *c, uint32_t queue, bool rescue);
/* Like sb_notify_one, but only for nodes whose priority is higher than `above`. */
bool sb_notify_above(sb_connection *c, uint32_t queue, int64_t above, bool rescue);
/* Notifies all NON_ACQUIRING nodes: those of choosy consumers (sb_choice.h), which look for messages by themselves. */
void sb_notify_browsers(sb_connection *c, uint32_t queue);
/* Called after a message became ready. Notifies the NON_ACQUIRING nodes. Unless the queue is paused, also notifies an
 * interested node if no node is NOTIFIED, or if there are more ready messages than NOTIFIED nodes. */
void sb_notify_work_arrived(sb_queue *q);
/* The same after a put into a queue with message groups. `hash`: of the message's group. If a connection has the claim on
 * the bucket of the group, notifies only the NON_ACQUIRING nodes of that connection (I114 of
 * sb_groups.h). */
void sb_notify_group_arrived(sb_queue *q, uint32_t hash);
/* Called after many messages became ready. Notifies the NON_ACQUIRING nodes. Unless the queue is paused, also notifies
 * interested nodes, until as many are NOTIFIED as messages are ready. */
void sb_notify_backlog_arrived(sb_queue *q);
/* Notifies the consumers that are held back, if the queue says that there may be some (P39 of sb_window.h). */
void sb_notify_held_back(sb_connection *c, sb_queue_shm *q, uint32_t slot);
/* Notifies those of lower priorities than `priority`. */
void sb_notify_held_back_below(sb_queue *q, int32_t priority);
/* True if the queue has room for what a node of its room list waits for: for one message, or for all messages of a
 * batch, and no producer that needs more has its turn (sb_turn.h). A node is notified only if so: a producer that finds the room too small passes the baton when it waits again,
 * so two such producers would wake each other for ever. */
bool sb_notify_has_room_for(const sb_queue_shm *q, const sb_node_shm *n);
/* Called after room was made. Wakes a producer that waits for room in the queue `q` in `slot`, and one that waits for
 * memory; and the consumers that are held back, since the next message may be another one. If `q` is NULL, wakes only
 * the producer that waits for memory. */
void sb_notify_room_made(sb_connection *c, sb_queue_shm *q, uint32_t slot);
/* Called after a search that found no message: as sb_notify_room_made, if the search ended messages that had expired. */
void sb_notify_ended(sb_queue *q);
/* Like sb_notify_room_made, but wakes no producer that waits for memory. */
void sb_notify_room_in(sb_connection *c, sb_queue_shm *q, uint32_t slot);
/* Wakes the nodes of a queue that was closed, or whose settings changed. It does not wake producers that wait for
 * memory: they look again by themselves, after 50 ms at most. */
void sb_notify_wake_all(sb_connection *c, uint32_t queue);

/* ---- for connections with a node at the queue ---- */
/* True if there may be a message for a consumer. */
bool sb_notify_looks_ready(sb_queue *q);
void sb_notify_pass_baton(sb_queue *q);
/* True if a node of a higher priority wants messages: both the counts and the lists say so. */
bool sb_notify_better_wants(const sb_queue *q, int32_t priority);

#endif
