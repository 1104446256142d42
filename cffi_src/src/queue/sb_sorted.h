// SPDX-License-Identifier: Apache-2.0
/* Sorted: takes the messages of a queue in the order of their keys (Qpid Broker-J: sorted queue).
 *
 * What: a queue with the setting sort_key delivers the ready message with the smallest key (sb_sort_heap.h). The ring
 * stays as it is, and the cells decide. Each reader keeps a private *index* of the messages that it may take: a heap of
 * keys and positions. It reads each cell once, when it comes, and then takes the cell at the first position of the heap.
 * Another process may have taken that message; then the reader drops the position, and looks again. All plain consumers and
 * gets of a handle share one index. A consumer that is choosy (sb_choice.h) has its own, of the messages that it wants.
 *
 * A message that returned has its `requeued` bits, as in any queue. `returned` of the queue says that there may be more of
 * them than the reader knows. The reader then reads all cells with bits again, into a second heap. So an index has at most
 * two keys for each message of the queue, and is freed with the consumer, or the handle.
 *
 * Layout: `returned` of the queue: raised for each message that became AVAILABLE at an old position, and whenever a process
 * set bits again that it or another one had cleared. `seen` of the index: its value when the index last read all bits.
 *
 * Invariants:
 *  I108 each ready message of the queue is in the heaps of the index, or is none that its reader wants, or lies at or behind
 *       `cursor`, or has its `requeued` bits and `returned` was or is about to be raised since the index read it.
 *  I109 a key in an index is that of the message at its position, for ever: it was read between two looks at the cell that
 *       found the same AVAILABLE word, and a position has one message (I4 of sb_layout.h). So the key of a message that was
 *       taken need not be read again.
 *  A reader without a wish that finds nothing to take has looked at all cells before `cursor`: those that become AVAILABLE
 *  later get `requeued` bits first. So it advances the handle's cursor and the shared head, as sb_take.h does.
 *
 * Ordering pairs: P5 of sb_requeued.h, of which this is a second use: a process sets the bits, makes the cell AVAILABLE,
 *  then raises `returned` (seq_cst). A reader loads `returned`, then looks at the bits and the cells. P3 of sb_notify.h
 *  for the cells at the tail, P1 of sb_slab.h and P2 of sb_ring.h for what they name. I53 of sb_take.h: a reader looks at `returned` after the tail, so that the messages of a
 *  commit come before those that its producer put afterwards, if their keys are equal.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the cell became AVAILABLE, before `returned` was raised -> a message that other readers do not look for -> the reaper,
 *   which finds the cell by a holding, marks it again, and raises `returned`. A reader that finds nothing else looks at all
 *   cells with bits, whatever `returned` says.
 *  anything else -> as in sb_take.h. The index is process-local.
 *
 * Concurrency: under the connection's lock, beside all other operations. The first take of an index reads each message of
 *  the queue; each later one costs a step for each cell that came, and log n steps of the heap.
 */
#ifndef SB_SORTED_H
#define SB_SORTED_H

#include "sb_sort_heap.h"
#include "sb_take.h"

typedef struct sb_sorted sb_sorted;
/* Who reads. What both functions see may be a guess (I43 of sb_peek.h). */
typedef struct {
  /* True if the reader wants the message in `slot`. `m`: a copy of its header. NULL: it wants any */
  bool (*wants)(const sb_queue *q, const void *who, uint32_t slot, const sb_message_shm *m);
  /* True if the message in `slot` holds the reader back (sb_window.h). NULL: none does */
  bool (*is_held_back)(const sb_queue *q, void *who, uint32_t slot);
  void *who;
} sb_sorted_reader;

/* True if the queue delivers by keys. */
static inline bool sb_queue_is_sorted(const sb_queue *q) { return q->sort_key_length != 0; }
/* Takes the ready message with the smallest key for a consumer. *index: that of the reader, NULL before its first take.
 * SB_EMPTY: there is none; in a queue that evicts the caller then enforces the limits (I42 of sb_queue.h). SB_NO_CREDIT:
 * it holds the reader back. SB_DELETED: the queue is closed. SB_NO_MEMORY: the process has no memory for the index. */
sb_status sb_sorted_take(sb_queue *q, sb_sorted **index, const sb_sorted_reader *reader, uint64_t token, sb_taken *t);
/* Frees an index. */
void sb_sorted_free(sb_sorted **index);

#endif
