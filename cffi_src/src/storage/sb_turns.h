// SPDX-License-Identifier: Apache-2.0
/* Turns: what a program waits for that wants to know that its changes are in the store.
 *
 * What: the storekeeper is the one process that writes the store. It works in turns. In a turn it finds all changes of
 * the stored queues and of the topology that were made before the turn began, writes them in one transaction, and syncs
 * it. Turns have numbers. A connection that made changes waits for the end of a turn that began after them. So one wait
 * covers any number of messages, queues and acknowledgements, and one sync serves all connections that wait.
 *
 * Layout: `turns_begun`, `turns_done`: the number of the last turn that began, and that was synced. `turns_asked`: the
 *  highest number that a connection waits for. They are 32 bits, and are compared as a difference. `turns_done` is a
 *  futex. `storekeeper_waiter` names the node whose wake word the storekeeper sleeps on.
 *
 * Invariants:
 *  I123 the numbers only rise. Turn n is done only after a transaction was synced that has all changes that were made
 *      before turn n began, except those that have ended meanwhile.
 *  I124 in a turn, the storekeeper first collects the ends of messages, then gathers what was appended, then gathers once
 *      more what was appended meanwhile. So if it has seen that a message ended because another queue got it, the
 *      transaction has the message in that queue. Without the second pass the message would be in neither queue. Each
 *      pass begins with a look at all queues (sb_store_look): the other queue may be new, or may have been quiet until
 *      then. A turn that has seen no end needs no second pass.
 *
 *  I125 a commit of several stored messages is in a transaction of the store as a whole, or not at all. Before its first
 *      effect its connection, or the reaper of that, raises `commits_begun`, and after the last one `commits_done`. The
 *      storekeeper collects and gathers while both are equal, and once more if `commits_begun` has risen meanwhile.
 *      If commits go on and on, it holds new ones back for some milliseconds. Exception: a commit whose process is
 *      stopped in the middle of that; the storekeeper does not wait for it longer than AWAIT_NS.
 *      So is a move of a message, or of a page of them (sb_move_page.h), from a stored queue to another one: its
 *      connection stores SB_COMMIT_MOVING, counts the move as a commit, moves, and clears the word.
 *
 * Ordering pairs:
 *  P42 a connection appends a message, then reads `turns_begun`; the storekeeper raises `turns_begun`, then reads the
 *     tails and bits of the queues. All are seq_cst, so the turn after the number that was read has the message.
 *  P43 a connection raises `turns_asked`, then rings the storekeeper; the storekeeper arms its wake word, then reads
 *     `turns_asked` (P6 of sb_wait.h).
 *  P44 a connection raises `commits_begun`, then changes cells; the storekeeper reads the cells, then `commits_begun`. All
 *     are seq_cst: if it has read an effect, it reads the raised number.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the connection raised `turns_asked` -> a turn that nobody waits for -> nobody.
 *  the storekeeper began a turn, or has synced it -> `turns_done` is behind -> the next storekeeper begins another turn.
 *  a commit was decided, or is being carried out -> SB_COMMIT_STORED, and perhaps `commits_begun` is ahead -> the reaper
 *   raises both numbers as well. The storekeeper makes them equal when no connection has SB_COMMIT_STORED or
 *   SB_COMMIT_MOVING.
 *  a move has begun -> SB_COMMIT_MOVING, and perhaps `commits_begun` is ahead -> the reaper finishes or undoes the move,
 *   then frees the record of the connection, with that word. It need not count: the mover did, before its first effect.
 * A stopped storekeeper keeps its place: those that wait for a turn wait, and nobody else does.
 *
 * Concurrency: one storekeeper, which holds SB_LOCK_STOREKEEPER; any thread asks and waits.
 */
#ifndef SB_TURNS_H
#define SB_TURNS_H

#include "sb_connection.h"

static inline bool sb_turns_reached(uint32_t done, uint32_t number) { return (int32_t)(done - number) >= 0; }
/* The number of a turn that has all changes which the caller has made. Asks the storekeeper for it. */
uint32_t sb_turns_ask(sb_broker *b);
bool sb_turns_are_done(const sb_broker *b, uint32_t number);
/* Waits until the turn is done. SB_TIMEOUT; SB_INTERRUPTED: a signal came; SB_STOPPING: the broker is purged. */
sb_status sb_turns_wait(sb_broker *b, uint32_t number, uint64_t deadline_ns);
/* The storekeeper's part. True if a connection waits for a turn that has not begun, or is not done. */
bool sb_turns_are_asked(const sb_broker *b);
uint32_t sb_turns_begin(sb_broker *b);
void sb_turns_end(sb_broker *b, uint32_t number);

/* ---- commits of several stored messages (I125) ---- */

/* Called before the commit is decided: waits while the storekeeper holds commits back. */
void sb_turns_pass_hold(sb_broker *b);
/* Called after it was decided, before its first effect. */
void sb_turns_commit_begins(sb_broker *b);
/* Called after its last effect. */
void sb_turns_commit_ends(sb_broker *b);
/* Called before a message of one stored queue is moved to another one, and afterwards: the same for a move. */
void sb_turns_move_begins(sb_connection *c);
void sb_turns_move_ends(sb_connection *c);
/* The storekeeper's part. The number of commits that have begun. */
uint32_t sb_turns_commits(const sb_broker *b);
/* Waits until no commit is being carried out, for AWAIT_NS at most; returns the number of those that have begun. */
uint32_t sb_turns_await_commits(sb_broker *b);
/* Holds commits back that are not decided yet; false ends it. */
void sb_turns_hold_commits(sb_broker *b, bool held);

#endif
