// SPDX-License-Identifier: Apache-2.0
/* Settings: what a queue is told at its declaration, and later.
 *
 * What: a new queue gets its settings before anybody sees it. Of a queue that is open they change under the topology
 * lock, by steps that can be repeated, and its consumers and waiters are told.
 *
 * Layout: the new settings stand in the header's `new_settings` while its `topology_intent` says CONFIGURE.
 *
 * Invariants: I23 of sb_queue.h: a queue that gets limits counts first, and is limited then.
 *
 * Ordering pairs: none of its own.
 *
 * Death: a change of settings that was begun is finished by the next holder of the topology lock (sb_topology_finish).
 *
 * Concurrency: configure under the topology lock; apply by who makes the queue, or under the lock.
 */
#ifndef SB_SETTINGS_H
#define SB_SETTINGS_H

#include "sb_queue.h"

/* New settings, by steps that can be repeated. */
void sb_directory_configure(sb_queue *q, const sb_settings *settings, bool trim);
void sb_directory_apply(sb_queue_shm *q, const sb_settings *s);

#endif
