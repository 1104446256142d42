// SPDX-License-Identifier: Apache-2.0
/* Limits: how many messages and bytes a queue may hold, and what happens beyond that.
 *
 * What: sb_limits_admit reserves room before a message is published (overflow block, drop, reject-publish). sb_limits_enforce
 * removes the oldest messages after one was published (ring_size, overflow drop-head). Both use the queue's hints:
 * sb_limits_admit counts the messages from `admitted` and `taken`, sb_limits_enforce from what came (sb_lanes_came) and
 * `taken`. In a queue with priorities the oldest message of the lowest priority is evicted. Both
 * count the bytes from `bytes_in` and `bytes_out`.
 *
 * The *bound* of a queue that evicts is the number of messages that may be ready: ring_size, or `bound` of the queue if
 * that is higher, or max_length if that is lower and the overflow is drop-head. If max_length or max_bytes is 0, it is
 * what the consumers that wait would take (sb_takers.h), also under the overflow "drop".
 *
 * Invariants: I23 of sb_queue.h, I24 of sb_take.h. If ring_size was lowered without trimming the queue, the queue's
 *  `bound` is first the number of messages that were ready then. `bound` falls with the number of ready messages,
 *  never below ring_size.
 *
 * Ordering pairs: P22 of sb_settings.h, for the limits. None for the hints: each step is one operation on one word. It
 *  is seq_cst, except in a queue that refuses no message: there sb_limits_admit raises `admitted` and `bytes_in` by
 *  release operations, before the append.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  room was reserved, before the message was published -> `admitted` is too high, and the queue takes fewer messages ->
 *   the reaper, or the housekeeper, corrects the hints (sb_hints_reconcile), even while another process is stopped
 *   between its own reservation and the publication (I74 of sb_hints.h).
 *  `taken` was raised for a victim, before the victim was taken -> `taken` is one too high, and the queue may hold one
 *   ready message more than the bound -> the next put, get without waiting, browse, count or commit finds that the
 *   counts may be wrong (sb_limits_in_doubt), finds the dead connection by its ledger, and reaps its process
 *   (sb_api_bound.c).
 *  a message was published, before the limits were enforced -> more messages are ready than the bound -> the reaper,
 *   or the next of the same calls, evicts. Before that a consumer or a waiting get may take a message that should have
 *   been evicted; this message counts as taken, not as evicted.
 *  a victim was taken, before the ledger counted that -> the ledgers count one ready message more than the queue has ->
 *   the reaper, or the next call that reads the queue's statistics and finds more than the bound (sb_queue_describe).
 *   While another process reaps, this call waits for it for a moment.
 *
 * Concurrency: any process, with its connection's lock. sb_limits_room needs no lock, since it only reads hints.
 */
#ifndef SB_LIMITS_H
#define SB_LIMITS_H

#include "sb_dispose.h"

/* Reserves room for a message of `bytes` bytes. SB_DONE: there is not enough room now, and the overflow is "drop", so
 * the caller drops the message. SB_REJECTED: there is not enough room, now or ever, and the overflow is one of the two
 * REJECT_PUBLISH. SB_FULL: there is not enough room now, and the overflow is another one. SB_TOO_LARGE: the limits never allow
 * so much. SB_STORE_FULL: the queue is stored, and the disk is full. */
sb_status sb_limits_admit(sb_queue *q, uint64_t bytes);
/* The same for a message that is dead from the start (I90 of sb_park.h). It never is ready, so it needs no room.
 * SB_INVALID: the queue has no dead letters, so the message would stay in it for ever. */
sb_status sb_limits_admit_dead(sb_queue *q, uint64_t bytes);
/* Ends what sb_limits_admit began, after the caller put the message into the queue: from now on other processes may
 * correct the hints again (`hinting`, I23). */
void sb_limits_published(sb_queue *q, uint64_t bytes);
/* Ends what sb_limits_admit began, if the caller does not publish the message: gives back its room. */
void sb_limits_unadmit(sb_queue *q, uint64_t bytes);
bool sb_limits_room(const sb_queue_shm *q, uint64_t count, uint64_t bytes);
/* In a queue that evicts: evicts the oldest messages while more messages or bytes are ready than the limits allow.
 * Returns how many it evicted. */
uint64_t sb_limits_enforce(sb_queue *q);
/* As sb_limits_enforce, but adds the number of evicted messages to *removed. True: the queue certainly keeps its limits
 * now. False: it keeps them according to the counts, which may be wrong (sb_limits_in_doubt), or the call found no
 * message to evict, or no memory for a holding. */
bool sb_limits_keep(sb_queue *q, uint64_t *removed);
/* As sb_limits_enforce, for at most `most` messages; *removed: how many it evicted. SB_OK: these were `most`, or the queue
 * keeps its limits, as far as the counts say. SB_GROW: the next victim has left the memory (sb_paged_want), or the call
 * needs a segment. Any other status: why the next victim cannot be taken. */
sb_status sb_limits_trim(sb_queue *q, uint64_t most, uint64_t *removed);
/* True if more messages may be ready than the bound, even if the counts show no excess: a process may have been killed
 * between two changes of the counts. Judges by cells and cursors, not by counts. Costs a few loads, unless another
 * process puts or takes at this moment. */
bool sb_limits_in_doubt(sb_queue *q);
/* True if the queue has no room for messages, but hands them over to consumers that wait (sb_takers.h). */
bool sb_limits_hand_over(const sb_queue_shm *q);
/* True if the queue evicts, and `ready` messages are more than its bound. */
bool sb_limits_exceeded(const sb_queue_shm *q, uint64_t ready);
/* Sets `bound` after ring_size was changed. If `trim` is true, `bound` becomes 0, so ring_size applies at once.
 * Otherwise it becomes the number of ready messages, and falls as messages are taken. */
void sb_limits_set_bound(sb_queue *q, bool trim);
/* Takes the AVAILABLE messages in the lane of position `end`, and before it, at most `limit` of them, and ends them for `reason`. Adds the
 * number of messages that it ended to *removed. SB_OK: it ended `limit` messages. SB_EMPTY: no more of them are ready.
 * Any other status: the next message could not be taken, for instance because there is no memory for a holding. */
sb_status sb_limits_remove(sb_queue *q, sb_reason reason, uint64_t end, uint64_t limit, uint64_t *removed);

#endif
