// SPDX-License-Identifier: Apache-2.0
/* The reserve: memory that plain puts leave to the calls that make room in a full broker.
 *
 * What: each allocation states its *use*, which the connection carries while a call runs. A use must leave so many chunks
 * FREE when it opens another one; what is opened below that of plain puts is marked as OF_RESERVE, and plain puts take no
 * slot of it. So puts end first, then staging, then the books, and what drains a broker goes on with all the others left.
 *
 *  DRAIN  connecting, consuming, leasing, moving, deleting, recovery, housekeeping: may take the last chunk
 *  BOOKS  queues that are made, nodes of producers that wait, notes of the broker's own queues
 *  STAGE  bodies that are staged, and published out of a stage; those of a commit that ends as many, as long
 *  PLAIN  all other puts, with the pages, schedule entries and holdings that these need
 *
 * Layout: bit 37 of a chunk's word; nothing else is shared. The reserve has three chunks, and one more for each 64 chunks
 * of the limit after the first 64, at most 16.
 *
 * Invariants:
 *  I65 by class claims and runs of plain puts no more chunks are opened than leave the reserve FREE, however many race.
 *  I66 a plain put takes no slot of a chunk OF_RESERVE, unless a hint was read before the chunk was opened.
 *
 * Ordering pairs:
 *  P20 a chunk is claimed (seq_cst), then the FREE ones are counted (seq_cst), both by each claimant: the last of all who
 *   claimed sees the claims of the others. A chunk is opened after a count of enough that are FREE, and no other claim counts
 *   as FREE. Of two that both count too few, the owner of the higher chunk gives way; the other one counts again, for a while.
 *
 * Death: a claim of the dead counts as taken until it is FREE again (sb_chunk.h). The mark is part of the
 *  word that opens the chunk.
 *
 * Concurrency: under the connection's lock, as the slab. The mark is removed by whoever finds the reserve whole (CAS).
 */
#ifndef SB_RESERVE_H
#define SB_RESERVE_H

#include "sb_connection.h"

enum { SB_USE_DRAIN = 0, SB_USE_BOOKS = 1, SB_USE_STAGE = 2, SB_USE_PLAIN = 3 };
#define SB_RESERVE_LEAST 3u
#define SB_RESERVE_MOST 16u
#define SB_TABLES_TO_DRAIN 64u /* what holds more than 16,000 messages unacknowledged does not drain the broker */

/* How many chunks exist, and how many of them are FREE. */
uint32_t sb_chunk_count(sb_broker *b);
uint32_t sb_chunk_spare(sb_broker *b);
/* How many chunks the reserve has. */
uint32_t sb_reserve_chunks(const sb_broker *b);
/* How many chunks must be FREE after one was opened for that use. */
uint32_t sb_reserve_leave(const sb_broker *b, unsigned use);
/* After a claim of chunks up to that one: are so many FREE? *left: how many are. */
bool sb_reserve_is_left(sb_broker *b, uint32_t claimed, uint32_t leave, uint32_t *left);
/* May slots of a chunk OF_RESERVE be taken for what this connection does? `slots`: how many it has. */
bool sb_reserve_allows(sb_connection *c, uint32_t chunk, uint32_t slots);

#endif
