// SPDX-License-Identifier: Apache-2.0
/* Topology: the lock for creating, changing and deleting queues, exchanges and bindings.
 *
 * What: a lock on a byte of a file excludes other processes, and a mutex other threads. The holder announces a change
 * of several steps before it begins. The next holder finishes a change that was announced and not ended.
 *
 * Layout: the header's `topology_intent` (sb_words.h) and `topology_pid`; `topology_epoch` counts the changes.
 *
 * Invariants: none here.
 *
 * Ordering pairs: none here.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  announcing a change -> the announcement in `topology_intent`; the kernel releases the lock -> the next holder of the
 *   lock finishes the change: it removes the name of a closed queue, or applies the settings again. Neither needs
 *   memory. Until then a process that cannot map all segments does not get the lock: perhaps it cannot map the queue.
 *  changing something, before raising `topology_epoch` -> the change, and a pid in `topology_pid`; processes keep
 *   routes from before the change -> the next holder finds the pid, and raises `topology_epoch` when it releases the
 *   lock.
 *  deleting a queue, whose bindings are not removed yet -> the announcement SB_CHANGE_UNBIND -> the next holder raises
 *   `queues_ended`, so that the next process that changes the topology removes bindings to queues that are gone.
 *
 * Concurrency: any process. A thread that holds the lock may take it again. sb_topology_finish needs this lock and the
 *  connection's lock.
 */
#ifndef SB_TOPOLOGY_H
#define SB_TOPOLOGY_H

#include "sb_connection.h"

/* Takes the lock. SB_TIMEOUT: others held it until the deadline. *holder: pid of the last holder seen, 0 = none. Any
 * other failure: a killed holder announced a change of a queue, and this process cannot map all segments, so perhaps
 * not that queue. */
sb_status sb_topology_lock(sb_broker *b, uint64_t deadline_ns, int32_t *holder);
/* True if the calling thread holds the lock. */
bool sb_topology_is_held(const sb_broker *b);
/* Finishes the change that a killed holder announced. Does nothing if no change is announced, or if this thread has
 * taken the lock more than once: an announced change is then its own. */
void sb_topology_finish(sb_connection *c);
/* Undoes one sb_topology_lock of this thread. The last of these calls releases the lock; if its `changed` is true, or
 * if the holder before was killed, it also raises `topology_epoch`, so that all processes derive their routes again.
 * The earlier calls ignore `changed`. If the holder deleted a queue, and did not call sb_topology_unbound after it
 * removed the bindings, the last call raises `queues_ended`. */
void sb_topology_unlock(sb_broker *b, bool changed);

#endif
