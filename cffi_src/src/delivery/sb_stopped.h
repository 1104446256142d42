// SPDX-License-Identifier: Apache-2.0
/* Stopped processes: keeps their consumers from holding up messages.
 *
 * What: a process that is stopped (SIGSTOP, a debugger) is not dead, and keeps what it holds. But its consumers take
 * nothing, and while they are INTERESTED or NOTIFIED messages are meant for them (I31, I32 of sb_notify.h). A process
 * that looks after the queue *parks* them: it makes their nodes NOT_INTERESTED, flags the nodes and rings their owner.
 * So the owner looks when it continues, and becomes interested again.
 *
 * Layout: nothing is added.
 *
 * Invariants:
 *  I61 a process that parks a node flags the node and rings its owner after the CAS that makes it NOT_INTERESTED. So an
 *      owner that runs, or continues, finds that it has credit although the node is NOT_INTERESTED. It makes the node
 *      INTERESTED, and looks at the queue (P3). Whether a process is stopped is a hint: parking a node of a running
 *      process costs that process a turn (sb_target.h).
 *
 * Ordering pairs: P3 and P9 of sb_notify.h.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  making a node NOT_INTERESTED, before ringing its owner -> an owner that has credit, and gets no notifications -> the
 *   owner reads the words of its nodes when its bounded sleep ends.
 *  parking nodes, before notifying another node -> a message is ready, and running consumers sleep -> the housekeeper
 *   notifies one of them when a whole tick has passed (I37 of sb_housekeeping.h).
 *
 * Concurrency: any process, at any step of the owner: the epoch of the node's word decides who moves the node (I27 of
 *  sb_nodes.h). A walk over a list ends at the position where the list ended when the walk began: running
 *  consumers would extend the list for ever.
 */
#ifndef SB_STOPPED_H
#define SB_STOPPED_H

#include "sb_notify.h"

/* Parks the consumers of stopped processes at a queue, if a consumer of a running process can take its messages
 * instead. Returns how many it parked. */
uint32_t sb_stopped_park(sb_connection *by, uint32_t queue);

#endif
