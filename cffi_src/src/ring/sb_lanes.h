// SPDX-License-Identifier: Apache-2.0
/* Lanes: the rings of a queue whose messages have priorities.
 *
 * What: a queue with the setting max_priority N has up to N + 1 lanes. Lane 0 has the messages of priority N, lane N
 * those of priority 0. A take searches the lanes by ascending number, and an eviction by descending number. So the
 * order of positions is the order of delivery. Lane 0 is the ring in the queue object. Each other lane is an object of
 * its own, which the first put of its priority makes. A queue without priorities has only lane 0.
 *
 * Layout: the number of its lane is part of a position (sb_words.h). `lanes` of the queue links the objects by ascending
 * number. `ready` of the queue has a *ready bit* for each lane. `came` counts the cells of all lanes.
 *
 * Invariants:
 *  I77 the ready bit of a lane leads to its messages, as `requeued` bits lead to messages that returned (I18 of
 *      sb_requeued.h). A process sets the bit before it makes a cell of the lane AVAILABLE: by an append, a release, or
 *      the flip of a commit. It looks at the bit again afterwards, and sets it again if a searcher has cleared it. A
 *      searcher clears the bit only after it found no message in the lane. Then it searches the lane once more, and sets
 *      the bit again if it found a message. Between these two steps the messages of the lane are hidden: another
 *      searcher may take a message of a lower priority.
 *  I78 objects of lanes are only inserted, and at the place of their number. So a queue has no two lanes of one number.
 *      The positions of a lane object that is reused continue (I4 of sb_layout.h), whatever its number was.
 *
 * Ordering pairs:
 *  P23 a process sets the ready bit, makes the cell AVAILABLE, and looks at the bit again. A searcher clears the bit,
 *      then looks at the cells. All are seq_cst, so at least one of the two sees what the other did.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the object of a lane was allocated, before it was linked -> ALLOC(dead), listed in the holdings -> the reaper frees
 *   the object.
 *  the object was linked -> a linked object that is ALLOC(dead) -> the reaper makes it PUBLISHED.
 *  the ready bit was set, before the cell became AVAILABLE -> a bit that leads to no message -> the next searcher clears
 *   the bit.
 *  the cell became AVAILABLE, before the second look at the bit -> a message that searches may not find -> the reaper,
 *   which finds the cell by an intent or a holding, sets the bit again.
 *  the bit was cleared, before the second search -> messages that searches do not find -> the housekeeper, or a search
 *   that finds nothing although messages are ready, sets the bit again (sb_hints_resurface).
 *  the cell was appended, before `came` was raised -> `came` is one too low -> the reaper, or the housekeeper, corrects
 *   it (sb_hints_reconcile).
 *
 * Concurrency: any process, at any time, without waiting.
 */
#ifndef SB_LANES_H
#define SB_LANES_H

#include "sb_ring.h"

/* True if the messages of the queue have priorities. */
static inline bool sb_lanes_several(const sb_queue_shm *q) {
  return (SB_LOAD(&q->flags, SB_RELAXED) & SB_QUEUE_LANES) != 0;
}
/* The number of the lane for messages of a priority. A priority above max_priority counts as max_priority. */
static inline unsigned sb_lanes_number(const sb_queue_shm *q, unsigned priority) {
  int64_t most = sb_setting(q, SB_SETTING_MAX_PRIORITY);
  unsigned highest = most > 0 && most < (int64_t)SB_LANES ? (unsigned)most : 0;
  return priority < highest ? highest - priority : 0;
}
/* The number of cells that came into the queue since its base, plus its base: in all lanes, also of messages that are
 * gone. Exact in a queue with one lane; else a hint. */
static inline uint64_t sb_lanes_came(const sb_queue_shm *q) {
  return SB_LOAD(sb_lanes_several(q) ? &q->came : &q->tail, SB_SEQ_CST);
}

/* I77. These functions do nothing for a ring without a ready bit; it counts as marked. */
static inline void sb_lanes_mark(const sb_ring *r) {
  if (r->ready != NULL && (SB_LOAD(r->ready, SB_SEQ_CST) & r->ready_bit) == 0)
    (void)SB_OR(r->ready, r->ready_bit, SB_SEQ_CST); /* P23 */
}
static inline bool sb_lanes_is_marked(const sb_ring *r) {
  return r->ready == NULL || (SB_LOAD(r->ready, SB_SEQ_CST) & r->ready_bit) != 0;
}
static inline void sb_lanes_unmark(const sb_ring *r) { (void)SB_AND(r->ready, ~r->ready_bit, SB_SEQ_CST); /* P23 */ }
/* The lane with a ready bit that has the lowest number from `from` on, or with `downwards` the highest number up to
 * `from`. SB_LANES: there is none. */
unsigned sb_lanes_next_ready(const sb_queue_shm *q, unsigned from, bool downwards);

/* The object of a lane other than lane 0. 0: there is none yet. */
uint32_t sb_lanes_find(sb_broker *b, const sb_queue_shm *q, unsigned number);
/* The same, and makes the object if there is none. `queue`: the slot of the queue. */
sb_status sb_lanes_make(sb_connection *c, uint32_t queue, unsigned number, uint32_t *slot);
/* True if the object is linked in the queue that it names. */
bool sb_lanes_links(sb_broker *b, uint32_t slot);
/* Finds the ring of messages that a position of the queue in slot `queue` is in. False: there is none. */
bool sb_lanes_ring(sb_broker *b, uint32_t queue, uint64_t position, sb_ring *r);

/* The sequence number that users see: in the high SB_LANE_BITS of a position the number of its lane, below that the
 * number of the cell since the base of the lane. UINT64_MAX: there is no such lane. */
uint64_t sb_lanes_sequence(sb_broker *b, uint32_t queue, uint64_t position);

/* A walk over the rings of the messages of a queue, by ascending number of the lane. */
typedef struct {
  sb_broker *b;
  uint32_t queue, at, count;
} sb_lanes_walk;
static inline sb_lanes_walk sb_lanes_of(sb_broker *b, uint32_t queue) { return (sb_lanes_walk){b, queue, 0, 0}; }
/* Finds the next ring. False: there is none, or `queue` is no queue. A damaged chain ends the walk. */
bool sb_lanes_next(sb_lanes_walk *w, sb_ring *r);
/* The number of cells in all lanes, plus the base of the queue: what `came` should be. Advances the tails. */
uint64_t sb_lanes_count(sb_broker *b, uint32_t queue);

#endif
