// SPDX-License-Identifier: Apache-2.0
/* Schedule: makes messages ready whose delay is over, and removes messages that have expired.
 *
 * What: the housekeeper looks at each message that has a new entry in the schedule list (sb_schedule_look_at), and
 * again at the time that this look returned. If the message is due at a look, it becomes ready; if it has expired, it
 * is removed. sb_queue_schedule (sb_queue.h) adds the entries.
 *
 * Layout: an entry of the schedule list is a position of the queue.
 *
 * Invariants:
 *  I26 a SCHEDULED message, and a message that expires, has an entry in the schedule list before its put returns. If
 *      there is no memory for the entry, the put raises `timers_lost` of the queue, and the housekeeper scans all
 *      cells. A message whose life is shortened later (sb_schedule_limit) has its entry before the call returns.
 *
 * Ordering pairs: none here.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  a message was taken -> its cell is REMOVING(dead) -> the reaper makes the message ready; if it was SCHEDULED, the
 *   reaper counts that it left that state (intent DUE, sb_intent.c).
 *  a message expired while its owner held it -> ACQUIRED(dead) or REMOVING(dead), and the housekeeper does not look at
 *   the message again -> the reaper makes the message AVAILABLE, then raises `timers_lost`: the housekeeper scans all
 *   cells, and removes the message.
 *  the life of a message was shortened, before its schedule entry -> REMOVING(dead), and the housekeeper does not know
 *   the new time -> the reaper makes the message AVAILABLE, then raises `timers_lost`.
 *  the intent SETTLE of an expired message was written -> the message has ended or not -> the reaper counts the end, or
 *   releases the message (sb_settle.h).
 *  some entries of the schedule list were handled -> the other entries -> the next housekeeper begins the list again.
 *
 * Concurrency: any process, with its connection's lock.
 */
#ifndef SB_SCHEDULE_H
#define SB_SCHEDULE_H

#include "sb_take.h"

/* The time at which a SCHEDULED message that is not dead becomes ready: of its side record (I80 of sb_park.h), else of its
 * header. */
static inline uint64_t sb_schedule_due(uint64_t side, const sb_message_shm *m) {
  return (side & SB_SIDE_DELAYED) != 0 ? sb_side_gen(side) * SB_DELAY_NS : m->due_ns;
}
/* Takes the message at `position`, if its cell is still in `state`: holding `token` then lists the message, and *t
 * describes it. If `state` is SCHEDULED, the function counts, under an intent, that the message left that state. False:
 * the cell has changed, and nothing was taken. */
bool sb_schedule_take(sb_queue *q, uint64_t position, unsigned state, uint64_t token, sb_taken *t);
/* Lets a message that the caller took, and holds in the only cell of the message, expire at `expires_ns`. False: it
 * expires earlier, or it has cells in other queues: it was published to several in one commit. */
bool sb_schedule_limit(sb_queue *q, const sb_taken *t, uint64_t expires_ns);
/* Makes the message of holding `token`, which the caller took, AVAILABLE. Then evicts the oldest messages if the queue
 * is too full (I42 of sb_queue.h). */
void sb_schedule_make_ready(sb_queue *q, uint64_t token);
/* Makes the message at `position` AVAILABLE if it is due (*made_ready: true), or ends it if it has expired. Returns the
 * time of the next look at the message, 0 = never; `now_ns` if the message changed during the look. SB_SCHEDULE_DEAD: the
 * message is dead (sb_park.h), and the caller carries it out. SB_SCHEDULE_DIED: the same, and it died by this look. While
 * another housekeeper has a dead message in hand, the next look is a tenth of a second later. */
#define SB_SCHEDULE_DEAD UINT64_MAX
#define SB_SCHEDULE_DIED (UINT64_MAX - 1)
uint64_t sb_schedule_look_at(sb_queue *q, uint64_t position, uint64_t now_ns, bool *made_ready);

#endif
