// SPDX-License-Identifier: Apache-2.0
/* Stopped processes: their consumers hold nobody up.
 *
 * What: a process that is stopped (SIGSTOP, a debugger) is not dead: it keeps what it holds. But its consumers take nothing,
 * and while they are INTERESTED or NOTIFIED messages are meant for them (I31, I32). Whoever looks after a queue *parks* them:
 * the node becomes NOT_INTERESTED, and is flagged and rung, so that its owner looks when it goes on and is interested again.
 *
 * Layout: none of its own.
 *
 * Invariants:
 *  I61 a node that was parked is flagged and rung after its CAS: an owner that runs, or goes on, finds that it has credit and is
 *      NOT_INTERESTED, becomes INTERESTED, and looks (P3). That it is stopped is a hint: parking one that runs costs a turn.
 *
 * Ordering pairs: P3 and P9 of sb_notify.h.
 *
 * Death (after -> state, repaired): parked, not rung -> NOT_INTERESTED with credit -> the owner's bounded sleep: it reads the
 *  words of its nodes.  parked, others not told -> the next look after the queue.
 *
 * Concurrency: anybody, beside the owner, at any step of it: the epoch of the word decides (I27). A visit ends where the list
 *  ended when it began: consumers at work would lead it on for ever.
 */
#ifndef SB_STOPPED_H
#define SB_STOPPED_H

#include "sb_notify.h"

/* Parks the consumers of stopped processes that a queue counts on, if there are others for whom its messages can be; how many
 * were parked. */
uint32_t sb_stopped_park(sb_connection *by, uint32_t queue);

#endif
