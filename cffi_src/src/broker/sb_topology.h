// SPDX-License-Identifier: Apache-2.0
/* Topology: the lock under which queues are made, changed and deleted.
 *
 * What: a lock on a byte of a file, for processes, and a mutex, for threads. Its holder announces a change that takes
 * several steps. The next holder finishes what was announced and not ended.
 *
 * Layout: the header's `topology_intent` (sb_words.h) and `topology_pid`; `topology_epoch` counts the changes.
 *
 * Invariants: none of its own.
 *
 * Ordering pairs: none of its own.
 *
 * Death: the kernel frees the lock of a dead holder. Its change is finished by the next holder: the name of a queue
 *  that is closed is removed, and settings are applied once more.
 *
 * Concurrency: by anybody. A thread that holds the lock may take it again. Finish with the lock, and with the
 * connection's.
 */
#ifndef SB_TOPOLOGY_H
#define SB_TOPOLOGY_H

#include "sb_connection.h"

sb_status sb_topology_lock(sb_broker *b, uint64_t deadline_ns, int32_t *holder);
/* With the lock: finishes what its last holder was killed in the middle of. */
void sb_topology_finish(sb_connection *c);
/* changed: what was derived from the topology is to be derived again. */
void sb_topology_unlock(sb_broker *b, bool changed);

#endif
