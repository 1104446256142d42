// SPDX-License-Identifier: Apache-2.0
/* Gather: copies messages of a stored queue into rows for the store.
 *
 * What: the queue itself is the list of what the store lacks. A stored queue has a position `stored` in each lane: what
 * was appended before it is in the store, or ended before it had to be. The storekeeper gathers rows (sb_row.h) from
 * `stored` to the tail, writes them in one transaction, and then advances `stored`. A message that ended meanwhile is
 * never written. For what changed before `stored`, see sb_changed.h. A transient message, whose delivery_mode is 1, is left
 * out: it ends with the memory. The storekeeper gathers it later, if its leaf has to leave the memory (I135 of
 * sb_departure.h).
 *
 * Layout: `stored` of sb_queue_shm and sb_lane_shm: a position.
 *
 * Invariants:
 *  I121 `stored` of a lane is advanced only after the transaction was synced that has all messages before it. Of a
 *      position before `stored` the store has the row, unless the message ended, or is transient.
 *  I122 a STAGED cell is in no row: its commit is undecided, or not carried out. The storekeeper remembers such a
 *      position, and gathers it in a later turn. The next storekeeper finds it when it looks at everything
 *      (I120 of sb_changed.h). No row begins with such a
 *      position, since the row that its message gets has this key.
 *
 * Ordering pairs: P2 of sb_ring.h: a cell names a message that is complete. I43 of sb_peek.h: the copy counts only after
 *  the second look.
 *
 * Death: the storekeeper was killed, before `stored` was advanced -> rows at and behind `stored` may be in the store or
 *  not -> the next storekeeper removes the rows behind `stored` in its first transaction, and gathers them again.
 *
 * Concurrency: the storekeeper gathers, beside all other operations.
 */
#ifndef SB_GATHER_H
#define SB_GATHER_H

#include "sb_queue.h"
#include "sb_row.h"

/* Which messages a row gets: those that survive the loss of the memory, those that do not (their delivery_mode is 1), or
 * both. */
typedef enum { SB_GATHER_DURABLE = 0, SB_GATHER_TRANSIENT = 1, SB_GATHER_ALL = 2 } sb_gather_which;

/* Where a row is written, and what is known of it then. */
typedef struct {
  char *heads, *bodies;
  uint64_t heads_size, bodies_size; /* the bytes that there are; after SB_FULL: those that the first message needs */
  uint64_t heads_length, bodies_length;
  uint64_t first;     /* position */
  uint64_t staged;    /* bit i: the cell at first + i is STAGED */
  uint64_t transient; /* bit i: the message at first + i does not survive, whether the row has it or not */
  sb_gather_which which;
  uint32_t count;   /* messages; 0: there is no row */
  uint32_t flags;   /* SB_ROW_... */
  uint32_t damaged; /* messages that were left out, since their header or their parts are damaged */
  sb_store_id *ids; /* room for SB_PAGE_CELLS: the duplicate ids of the messages, if the queue remembers ids */
  uint32_t id_count;
} sb_gathering;

/* Gathers a row from *position on, of one leaf at most, and advances *position. `end`: a position up to which all cells
 * are filled. SB_GATHER_TRANSIENT: passes leaves that have no such message, and sets `first`. A STAGED cell before the
 * first message ends the row, which is none then. SB_FULL: not even the first message fits the buffers. SB_CORRUPT: the
 * ring is damaged. */
sb_status sb_gather_row(sb_queue *q, uint64_t *position, uint64_t end, sb_gathering *g);

#endif
