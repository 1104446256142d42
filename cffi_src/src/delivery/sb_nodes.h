// SPDX-License-Identifier: Apache-2.0
/* Node lists: which consumer of a queue is in which state (seed 002, QueueConsumerManager).
 *
 * What: All, NonAcquiring, NotInterested, and per priority Interested and Notified. A list is a ring of entries
 * (node, epoch); the node's word is the truth. Appending is O(1); leaving a list is O(1): the epoch moves on and the
 * entry is dead; an iteration drops dead entries on its way. Calls that wait for room are nodes of lists of their own.
 *
 * Invariants:
 *  I27 a move appends (node, e+1) to the list it goes to, then CASes the word from epoch e to e+1; the winner alone acts.
 *  I28 an entry is live if epoch and state match the word, pending if its epoch is one ahead, else dead; only dead ones
 *      are dropped. Epochs are never reset, not even when the node is used again.
 *  I29 `interested` is raised before and lowered after the CAS, `notified` lowered before and raised after: an error can
 *      only cost an extra wake.
 *
 * Ordering pairs: P3, see sb_consumer.h: the word's CAS is seq_cst.
 *
 * Death: entry appended, word not moved -> pending until the reaper moves the word on. Word moved, counts not ->
 *  recounted from the lists. A node of a dead connection -> REMOVED by the reaper, whatever its state.
 *
 * Concurrency: moves by anybody; create and destroy by the owner or its reaper.
 */
#ifndef SB_NODES_H
#define SB_NODES_H

#include "sb_queue.h"

#define SB_STATE_ALL 7u /* pseudo state of the All list */

sb_status sb_node_create(sb_connection *c, uint32_t queue, int32_t priority, uint32_t flags, uint32_t target,
                         uint32_t prefetch, uint32_t *slot, uint64_t *token);
void sb_node_destroy(sb_connection *c, uint32_t slot, uint64_t token);
/* INTERESTED -> NOTIFIED and so on; false when the word was in none of the states of `from` (a bit mask). */
bool sb_node_move(sb_connection *c, uint32_t slot, unsigned from, unsigned to);
sb_node_shm *sb_node_at(sb_broker *b, uint32_t slot);
sb_level_shm *sb_level_at(sb_broker *b, uint32_t slot);
/* The first live node of a list, from the head; 0 when there is none. With `after` it goes on behind that position. */
uint32_t sb_nodes_next(sb_connection *c, const sb_ring *list, unsigned state, uint64_t *position);
/* The level of a priority, which is added if there is none. SB_LIMIT: the queue has 2,048. */
sb_status sb_level_of(sb_connection *c, uint32_t queue, int32_t priority, uint32_t *slot);
/* Who is in a list, by the states of the words (a list may name one twice); [SB_STATE_ALL]: in any. */
typedef struct {
  int32_t all[SB_STATE_ALL + 1], counted[SB_STATE_ALL + 1]; /* counted: of those, the consumers */
  uint64_t seen;                                            /* of the words of all levels */
} sb_census;
/* The live entries of a list in that state, or SB_STATE_ALL, of one level; 0: of any. */
sb_census sb_nodes_census(sb_broker *b, const sb_ring *list, unsigned state, uint32_t level);
/* Sets interested, notified ... right from the lists: none of them, those that could suppress a wake, or all. */
typedef enum { SB_RECOUNT_LOOK, SB_RECOUNT_HARMFUL, SB_RECOUNT_ALL } sb_recount;
typedef struct {
  bool right; /* they were */
  bool mended;
  uint64_t seen; /* of the counts and all nodes: the same twice means that no node was moved in between */
} sb_recounted;
sb_recounted sb_nodes_recount(sb_broker *b, uint32_t queue, sb_recount how);

#define SB_IN(state) (1u << (state))
#define SB_ANY_STATE \
  (SB_IN(SB_NODE_NOT_INTERESTED) | SB_IN(SB_NODE_INTERESTED) | SB_IN(SB_NODE_NOTIFIED) | SB_IN(SB_NODE_NON_ACQUIRING))

#endif
