// SPDX-License-Identifier: Apache-2.0
/* Restore: makes the ring of a queue again from what the store has.
 *
 * What: when a broker begins from its store, each stored queue is declared anew and gets the messages that the store has,
 * at the sequence numbers that they had. A lane begins at the leaf of its oldest message. The positions of messages that
 * have ended become TOMBSTONEs, or, where no message of a leaf is left, the link of the leaf becomes DONE. The next put
 * gets the sequence number after the last one that was ever used.
 *
 * Layout: `from` of sb_queue_shm and sb_lane_shm.
 *
 * Invariants: I4 of sb_layout.h, I15 and I17 of sb_ring.h.
 *
 * Ordering pairs: none of their own. The broker does not admit clients until all queues are restored.
 *
 * Death: a process that restores was killed -> a broker that admits nobody -> the next one that begins it removes its
 *  memory, and restores from the beginning. The store is only read.
 *
 * Concurrency: one process restores; nobody else has the queue.
 */
#ifndef SB_RESTORE_H
#define SB_RESTORE_H

#include "sb_queue.h"
#include "sb_row.h"

/* Begins a lane, which has had no message, at a sequence number; a lower one is not restored. */
sb_status sb_restore_begin(sb_queue *q, uint64_t sequence);
/* Ends all positions from the tail of a lane up to a sequence number, exclusive. SB_CORRUPT: the tail is behind it. */
sb_status sb_restore_skip(sb_queue *q, uint64_t sequence);
/* Restores a leaf without its messages: they are in the store, and come back when they are needed (sb_paged.h). The tail is
 * at its first position; all of its positions were used. `messages`, `bytes`: what the store has of it. */
sb_status sb_restore_absent(sb_queue *q, uint64_t sequence, uint64_t messages, uint64_t bytes);
/* The side record of the message of an entry. `gen`, `due_ns`: as below. */
uint64_t sb_restore_side(uint64_t gen, const sb_row_entry *e, uint64_t due_ns);
/* Gives the cell of the message that was appended last in its lane the side record of an entry. `gen`: the generation of
 * its slot. `due_ns`: CLOCK_MONOTONIC, the end of a redelivery delay. */
void sb_restore_describe(sb_queue *q, uint64_t position, uint64_t gen, const sb_row_entry *e, uint64_t due_ns);
/* Nanoseconds that remain of a time of an entry, at least 1; 0: it has none. */
uint64_t sb_restore_remains(uint64_t time_ns, uint64_t written_ns, uint64_t wall_ns);
/* Corrects the hints of the queue, after everything was restored. */
void sb_restore_end(sb_queue *q);

#endif
