// SPDX-License-Identifier: Apache-2.0
/* Values: a queue that keeps only the last value of each key (Qpid Broker-J: LVQ, Artemis: last-value queue).
 *
 * What: the setting last_value_key names a header. Of the messages whose header has one value, the *key*, only the newest
 * stays: whoever makes such a message ready then *settles* its key. A message that is ready and has a newer one is
 * *replaced*: it ends. A message that a consumer holds stays until it is settled or returned; when it returns, its key is
 * settled again. So an older message that returns is replaced if a newer one is there, ready or held; else it is the
 * newest one again. Newer is what has the higher position, whoever put it, and whenever it became ready. A message
 * without a key is never replaced.
 *
 * The index (sb_value_index.h) names the newest message of each key. What it names may be gone: then the key has no
 * message, or only older ones that are held.
 *
 * Layout: the index. `values_lost` of the queue is raised for each message that may be ready and not settled, since memory
 * was short. When it changes, the housekeeper settles all ready messages.
 *
 * Invariants:
 *  I103 each AVAILABLE message with a key is the one that the index names for the key, or is about to be settled: its
 *      position is named by a holding, or by the intent ENQUEUE, of a process that is in sb_values_came, or was killed
 *      there; or `values_lost` was raised.
 *  A message that ends frees its slot before its cell changes. So the key that is read at an owned cell may be that of
 *  another message. If its path leads elsewhere, the message at the cell is gone. If it leads to the same word, it does no
 *  harm: the position that the word names is free for any key below it. Who settles a position that it knows from elsewhere
 *  compares the generation of the slot.
 *  A process that makes the index name a newer message while the older one is held lists the older one in a holding first,
 *  and looks at it again afterwards: its holder may have returned it, and have seen itself in the index.
 *
 * Ordering pairs:
 *  P29 a holder makes its cell AVAILABLE, then loads the word of the index. A process that supersedes the message changes
 *      the word, then looks at the cell. All are seq_cst. At least one of them sees what the other did, and replaces the
 *      message.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the message became AVAILABLE, before the word of the index -> a ready message beside an older one -> the reaper
 *   settles the key again: it finds the position in the intent ENQUEUE or COMMIT, or in a holding.
 *  an older message was taken, to replace it -> REMOVING(dead) -> the reaper makes it AVAILABLE, then settles its key.
 *  an older message was taken, to make room for a newer one that is not there yet -> the same.
 *  the index names the newer message, the older one was held, and returned before that -> it is ready, and nothing names
 *   it but a holding -> the reaper settles its key.
 *  a reaper was killed in between -> the same as before, since the holdings of the dead are still there.
 *  the index needs a node, and there is no memory -> `values_lost` -> the housekeeper.
 *
 * Concurrency: any process, with its connection's lock. The callers of all functions that settle or take enforce the queue's
 *  limits afterwards (I42 of sb_queue.h), as after any release.
 */
#ifndef SB_VALUES_H
#define SB_VALUES_H

#include "sb_value_index.h"

/* The key of the message in `slot`. `m`: its header, or a copy of it. False: it has none. */
bool sb_values_key_of(const sb_queue *q, uint32_t slot, const sb_message_shm *m, sb_value_key *key);
/* Makes room in the index for a message that comes: so the next sb_values_came needs no memory, unless another process
 * needs the same room. */
sb_status sb_values_prepare(sb_queue *q, const sb_value_key *key);
/* Takes the ready message of a key, to make room for a newer one: its cell becomes REMOVING, listed by *token. When the
 * newer message is in the queue, the caller ends it (sb_values_end); else returns it (sb_release_unmarked). False: no message
 * of the key is ready. */
bool sb_values_take(sb_queue *q, const sb_value_key *key, uint64_t *token);
/* Ends a message that sb_values_take took: it expires if its time is over, else it is replaced. */
void sb_values_end(sb_queue *q, uint64_t token);
/* Settles the key of a message that became AVAILABLE at `position`. Returns how many messages were replaced. The caller
 * has named the position (I103). */
unsigned sb_values_came(sb_queue *q, uint64_t position, const sb_value_key *key);
/* The same, for a caller that knows only the position, where there may be no message any more. */
unsigned sb_values_settle_at(sb_queue *q, uint64_t position);
/* Settles the keys of all ready messages; for the housekeeper, after `values_lost` was raised. Returns as above. */
unsigned sb_values_settle_all(sb_queue *q);

#endif
