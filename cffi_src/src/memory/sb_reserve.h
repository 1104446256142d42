// SPDX-License-Identifier: Apache-2.0
/* The reserve: memory that plain puts leave to the calls that make room in a full broker.
 *
 * What: each allocation has a *use*, which the connection stores for the duration of a call. A call that opens a chunk
 * must leave a number of chunks FREE that depends on its use. A chunk is marked OF_RESERVE if fewer chunks stay FREE
 * than a plain put must leave, and plain puts take no slot of it. While a segment can still be added, no chunk is
 * marked, and a chunk for structures may be the last FREE one. When a client finds no room in /dev/shm for a segment,
 * this exception ends (`no_room` of the header), until a segment is added. In a broker that fills up, plain puts fail
 * first, then staging, then the books; the calls that drain the broker have the whole reserve.
 *
 *  DRAIN  connecting, consuming, leasing, moving, deleting, recovery, housekeeping: may take the last chunk. While the
 *  broker has no chunk for consumer levels, a call that needs one for inner pages (sb_page.h) leaves the last chunk, so
 *  that the first consumer can have a level
 *  BOOKS  new queues, nodes of waiting producers, messages of the broker's internal queues
 *  STAGE  bodies put into a stage (a queue with SB_QUEUE_STAGE), or published from it; bodies of a commit that ends at
 *  least as many messages, and at least as many bytes, as it adds. A call with this use first looks for memory that a
 *  plain put may take, and so makes empty chunks of other classes FREE before it opens one of the reserve. Otherwise a
 *  broker whose bodies become longer or shorter would mark chunk after chunk, and give their slots out one by one
 *  PLAIN  all other puts, with the pages, schedule entries and holdings that these need
 *
 * The *high watermark* is a share of the arena that plain puts leave to the other uses: as if the reserve had more chunks.
 * It may change at any time. Plain puts then continue in the slots of chunks that they opened before.
 *
 * Of each structure plain puts have one chunk. If there is none, or each is OF_RESERVE and has no free slot, a plain put
 * that finds no memory elsewhere may open one as BOOKS do. If each chunk is OF_RESERVE, a call with the use STAGE or
 * PLAIN that wants a slot removes the mark of one. Otherwise the first queue with more than 64 messages could not have
 * an inner page, even if half of the memory were free as slots for bodies: the calls that drain need that chunk as well.
 *
 * Layout: the mark OF_RESERVE is bit 37 of a chunk's word; `no_room` is a hint. The reserve has three chunks. If the
 * memory limit is above 64 chunks, it has one more for each 64 chunks (or part of 64) after these, up to 16 in all.
 *
 * Invariants:
 *  I65 plain puts open chunks for bodies, as chunks of a class or as runs, only while the reserve stays FREE, however
 *      many plain puts race. The same holds for chunks of the structures that they need, once the exception for
 *      structures (above) has ended, except for the first chunk of a structure. If two race for that one, each may open
 *      a chunk: plain puts then remove the mark of one, and the other stays OF_RESERVE.
 *  I66 a plain put takes no slot of a chunk OF_RESERVE, except through a hint that it read before the chunk was opened.
 *      It removes the mark only while more chunks are FREE than the reserve has, or if no other chunk for the structure
 *      is without the mark.
 *
 * Ordering pairs:
 *  P20 each claimant claims a chunk (seq_cst), then counts the FREE chunks (seq_cst): the last claimant sees the claims
 *   of all others. It opens the chunk only after a count that left enough FREE; a claimed chunk does not count as FREE.
 *   If two claimants both count too few, the claimant of the higher chunk gives way, and the claimant of the lower
 *   chunk counts again, a bounded number of times.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  a chunk was claimed -> CLAIMED(dead), which does not count as FREE -> the reaper of the connection makes the chunk
 *   FREE (sb_chunk.h).
 *  a chunk was opened -> a chunk of a class, with or without the mark OF_RESERVE -> nothing to repair: the mark is part
 *   of the word that opens the chunk.
 *
 * Concurrency: under the connection's lock, as the slab. A call with the use STAGE or PLAIN removes a mark by CAS. Two
 *  calls that search at the same time try the same chunk, the lowest, so that one of the CAS fails, and finds the mark
 *  removed.
 */
#ifndef SB_RESERVE_H
#define SB_RESERVE_H

#include "sb_connection.h"

enum { SB_USE_DRAIN = 0, SB_USE_BOOKS = 1, SB_USE_STAGE = 2, SB_USE_PLAIN = 3 };
#define SB_RESERVE_LEAST 3u
#define SB_RESERVE_MOST 16u
/* a connection that has this many blocks of holdings (16,000 unacknowledged messages) takes further blocks with the use
 * BOOKS, if the use of its call is DRAIN */
#define SB_TABLES_TO_DRAIN 64u

/* sb_chunk_count: the number of chunks that exist. sb_chunk_spare: how many of these are FREE. */
uint32_t sb_chunk_count(sb_broker *b);
uint32_t sb_chunk_spare(sb_broker *b);
/* The number of chunks in the reserve. */
uint32_t sb_reserve_chunks(const sb_broker *b);
/* The number of chunks that plain puts leave FREE of those that exist: the reserve, or what `memory_high_watermark` leaves
 * to others. Chunks of segments that do not exist yet count as left. sb_reserve_kept_of_all: of all chunks, those of such
 * segments, too. */
uint32_t sb_reserve_kept(sb_broker *b);
uint32_t sb_reserve_kept_of_all(const sb_broker *b);
/* True if a call with the use of the connection may have a segment added, if there can be one: a plain put only below
 * the high watermark. */
bool sb_reserve_below_mark(const sb_connection *c);
/* What the memory of the broker is like. BLOCKED: a plain put may open no further chunk. */
sb_memory_state sb_reserve_state(sb_broker *b);
/* The number of chunks that must stay FREE after one was opened for `use` and the class, or after a run (class 0). */
uint32_t sb_reserve_leave(sb_broker *b, unsigned use, unsigned cls);
/* True if plain puts have no chunk for structures of the class: there is none, or the reserve has all of them. */
bool sb_reserve_lends(sb_broker *b, unsigned cls);
/* For a caller that has claimed chunks and did not open them yet: true if at least `leave` chunks are FREE. `claimed`:
 * the index of the highest chunk that it claimed. *left: how many chunks were FREE at the call's last count. */
bool sb_reserve_is_left(sb_broker *b, uint32_t claimed, uint32_t leave, uint32_t *left);
/* True if the current use of the connection may take a slot of a chunk OF_RESERVE. With the uses STAGE and PLAIN, first
 * removes the mark if more chunks are FREE than the reserve has, or if plain puts have no chunk for this structure.
 * `slots`: the number of slots in the chunk. */
bool sb_reserve_allows(sb_connection *c, uint32_t chunk, uint32_t slots);

#endif
