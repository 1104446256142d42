// SPDX-License-Identifier: Apache-2.0
/* Directory: finds queues by name.
 *
 * What: a hash table with linear probing: 65,536 words in segment 0. Lookups take no lock; changes need the topology
 * lock (sb_topology.h).
 *
 * Layout: entry = 2 state (EMPTY, LIVE, DEAD, CLOSED) | 28 queue slot | 34 hash, widths in bits. CLOSED: the queue is
 *  deleted, and its object is not freed yet. DEAD: the object was freed. A search passes both, and ends at EMPTY.
 *
 * Invariants: I36 a name has at most one LIVE entry whose queue is open. The queue object is complete before the entry
 *  that names it is stored.
 *
 * Ordering pairs: P10 the entry is stored (release) after the queue object was written; a reader loads the entry with
 *  acquire.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  allocating a queue, before storing its entry -> a queue object in the holdings of its creator -> the reaper of the
 *   creator frees it.
 *  storing the entry -> a queue whose slot is still ALLOC -> the reaper of the creator makes the slot PUBLISHED.
 *  closing a queue -> a closed queue whose entry is still LIVE -> the next holder of the topology lock makes the entry
 *   CLOSED; if the queue ended by itself (I44 of sb_lifetime.h), the next sweep (sb_directory_sweep) does.
 *  freeing a closed queue -> a CLOSED entry that names no closed queue -> the next sweep makes the entry DEAD.
 *
 * Concurrency: any process looks up and iterates; create and remove need the topology lock.
 */
#ifndef SB_DIRECTORY_H
#define SB_DIRECTORY_H

#include "sb_lifetime.h"

uint32_t sb_directory_find(sb_broker *b, const char *name, uint32_t length);
sb_status sb_directory_create(sb_connection *c, const char *name, uint32_t length, const sb_settings *settings,
                              uint32_t *slot);
void sb_directory_remove(sb_broker *b, uint32_t slot);
bool sb_directory_links(sb_broker *b, uint32_t slot);
/* Finds the next queue whose entry has the index *index or a higher one. Returns the slot of the queue, and sets *index
 * to the index after that entry. Looks at CLOSED entries if `closed`, else at LIVE ones. 0: there is no further
 * queue. */
uint32_t sb_directory_next(sb_broker *b, uint32_t *index, bool closed);
/* As sb_directory_next, but looks only at entries before the index `end`. */
uint32_t sb_directory_next_before(sb_broker *b, uint32_t *index, uint32_t end, bool closed);
/* Frees each deleted queue that has no message left and that no connection has open. Before that, removes the names of
 * closed queues, and their ready and scheduled messages. Returns the number of deleted queues that it could not free.
 * Needs the topology lock and the lock of the connection `c`. */
uint32_t sb_directory_sweep(sb_connection *c);

#endif
