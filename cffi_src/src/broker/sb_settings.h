// SPDX-License-Identifier: Apache-2.0
/* Settings: applies the settings of a queue, at its declaration and later.
 *
 * What: a new queue gets its settings before any other process can find it. The settings of an open queue change under
 * the topology lock (sb_topology.h), by steps that can be repeated; then its consumers and waiters are woken.
 *
 * Layout: `new_settings`, `new_flags` and `new_trim` of the header have the new settings while `topology_intent` says
 * CONFIGURE.
 *
 * Invariants: I23 of sb_queue.h: a queue that gets limits counts its messages before the limits apply. A put or get
 *  beside a change, or after the death of the process that made it, does what the old or the new settings say (P22).
 *  It may find that the queue has more room than these settings give it, never less. If a message TTL or expiry is
 *  removed, it becomes -1 before its flag is cleared. So a process that finds the flag set may read -1, and takes it as
 *  "none".
 *
 * Ordering pairs:
 *  P22 a change stores a limit that rises before the overflow, and a limit that falls after it (release). A call loads
 *      the overflow, the limits (acquire), and the overflow again, until both are equal (sb_limits.c).
 *
 * Death (killed after -> what is left -> who repairs it):
 *  announcing a change of settings -> an open queue with some new and some old settings -> the next holder of the
 *   topology lock makes the whole change again (sb_topology_finish).
 *
 * Concurrency: sb_settings_configure needs the topology lock. sb_settings_apply needs it as well, unless only the
 *  caller knows the queue.
 */
#ifndef SB_SETTINGS_H
#define SB_SETTINGS_H

#include "sb_queue.h"

/* Changes the settings of an open queue, by steps that can be repeated. With `trim` it also evicts the messages that
 * exceed a smaller ring_size; else the queue keeps them (sb_limits_set_bound). */
void sb_settings_configure(sb_queue *q, const sb_settings *settings, bool trim);
/* Makes again the whole change that a killed process announced. The handle may have no ledger (sb_queue_stand_in with
 * NULL): then the function evicts nothing. */
void sb_settings_finish(sb_queue *q);
/* Stores the settings, except the texts, in the queue object. */
void sb_settings_apply(sb_queue_shm *q, const sb_settings *s);
/* Reads the settings of a queue, except the texts. While they change, some may be new, and others old. */
void sb_settings_read(const sb_queue_shm *q, sb_settings *s);
/* True if the settings limit messages or bytes. A queue with such settings must maintain its hints (I23). */
bool sb_settings_limit(const sb_settings *s);

#endif
