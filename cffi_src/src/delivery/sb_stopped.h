// SPDX-License-Identifier: Apache-2.0
/* Stopped processes: keeps their consumers from holding up messages.
 *
 * What: a process that is stopped (SIGSTOP, a debugger) is not dead, and keeps what it holds. But its consumers take
 * nothing, and while they are INTERESTED or NOTIFIED messages are meant for them (I31, I32). A process that looks after
 * the queue *parks* them: the node becomes NOT_INTERESTED, and is flagged and rung. Its owner therefore looks when it
 * continues, and becomes interested again.
 *
 * Layout: nothing is added.
 *
 * Invariants:
 *  I61 a parked node is flagged and rung after its CAS: an owner that runs, or continues, finds that it has credit and
 *      is NOT_INTERESTED, becomes INTERESTED, and looks (P3). That a process is stopped is a hint: parking a node of a
 *      running process costs a turn.
 *
 * Ordering pairs: P3 and P9 of sb_notify.h.
 *
 * Death (after -> state, repaired): parked, not rung -> NOT_INTERESTED with credit -> the owner's bounded sleep: it
 *  reads the words of its nodes.  parked, others not notified -> the next look after the queue.
 *
 * Concurrency: any process, at any step of the owner: the epoch of the word decides (I27). A visit ends at
 *  the position where the list ended when the visit began: running consumers would extend it for ever.
 */
#ifndef SB_STOPPED_H
#define SB_STOPPED_H

#include "sb_notify.h"

/* Parks the consumers of stopped processes at a queue, if a consumer of a running process can take its messages
 * instead. Returns how many it parked. */
uint32_t sb_stopped_park(sb_connection *by, uint32_t queue);

#endif
