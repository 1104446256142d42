// SPDX-License-Identifier: Apache-2.0
/* Node lists: the consumers of a queue by state (Qpid Broker-J: QueueConsumerManager).
 *
 * What: a *node* stands for a consumer, a watch or a waiting call at one queue. A queue has the lists All, NonAcquiring
 * and NotInterested, and for each priority Interested and Notified. A list is a ring of entries (node, epoch); the
 * node's word is authoritative. Appending and leaving are O(1): a node leaves a list when its epoch rises, which makes
 * its entry dead. An iteration drops the dead entries that it meets. Calls that wait for room are nodes of separate
 * lists. Each IO thread has a node for its wake word, too. This node has no queue, and is in no list.
 *
 * Invariants:
 *  I27 a process that moves a node appends the entry (node, e+1) to the list of the new state, then changes the node's
 *      word by a CAS from epoch e to e+1. Of several processes that move the node at the same time, only the winner of
 *      the CAS acts on the move.
 *  I28 an entry is live if the node's word has the epoch of the entry and the state of the list; pending if the epoch
 *      of the entry is one ahead of the word's; else dead. An entry of the list All has the epoch of the node's
 *      registration, and is live until the node is REMOVED. Only dead entries are dropped. Epochs are never reset, not
 *      even when the node is reused.
 *  I29 the count `interested` is raised before the CAS of a move, and lowered after it; `notified` is lowered before
 *      the CAS, and raised after it. So during a move `interested` may be too high and `notified` too low, which can
 *      only cost an extra wake.
 *
 * Ordering pairs: P3 of sb_notify.h: the word's CAS is seq_cst.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  appending an entry, before the CAS of the node's word -> a pending entry -> the next move of the node, by any
 *   process, makes the entry dead, or live if the node gets the state of that list.
 *  the CAS of the node's word, or a count before it -> counts that are wrong by one -> the reaper or the housekeeper
 *   counts the lists of the queue again. `memory_waiting` of the header is then one too high, which costs searches of
 *   the list in vain -> the housekeeper counts the list of nodes that wait for memory again.
 *  creating a node -> a node of a dead connection, in any state -> the reaper makes it REMOVED.
 *
 * Concurrency: any process moves nodes. The owner creates a node; the owner or its reaper destroys it.
 */
#ifndef SB_NODES_H
#define SB_NODES_H

#include "sb_queue.h"

#define SB_STATE_ALL 7u /* the pseudo state of the All list */

sb_status sb_node_create(sb_connection *c, uint32_t queue, int32_t priority, uint32_t flags, uint32_t target,
                         uint32_t prefetch, uint32_t *slot, uint64_t *token);
void sb_node_destroy(sb_connection *c, uint32_t slot, uint64_t token);
/* Moves a node to the state `to`. False: the state was none of `from` (a bit mask), or there is no memory for the list
 * entry. */
bool sb_node_move(sb_connection *c, uint32_t slot, unsigned from, unsigned to);
sb_node_shm *sb_node_at(sb_broker *b, uint32_t slot);
sb_consumer_level_shm *sb_consumer_level_at(sb_broker *b, uint32_t slot);
/* A walk over the levels of a queue, by descending priority. */
typedef struct {
  const sb_half *link; /* to the next level */
  uint32_t slot;       /* of the level that sb_level_next returned */
  uint32_t visited;
} sb_level_cursor;
static inline sb_level_cursor sb_levels_of(const sb_queue_shm *q) {
  return (sb_level_cursor){.link = &q->consumer_levels};
}
/* The next level; NULL: there is none. */
static inline sb_consumer_level_shm *sb_level_next(sb_broker *b, sb_level_cursor *cursor) {
  if (cursor->visited++ == SB_MAX_LEVELS) {
    return NULL;
  }
  cursor->slot = SB_LOAD(cursor->link, SB_ACQUIRE);
  sb_consumer_level_shm *level = sb_consumer_level_at(b, cursor->slot);
  if (level != NULL) cursor->link = &level->next;
  return level;
}
/* Returns the slot of the first live node at or after *position in `list`, which is the list of `state`. Advances
 * *position to the place after that node. Returns 0, and leaves *position as it is, if there is no such node. */
uint32_t sb_nodes_next(sb_connection *c, const sb_ring *list, unsigned state, uint64_t *position);
/* Finds the level of a priority, or adds it; stores its slot in *slot. SB_LIMIT: the queue has 2,048 levels already. */
sb_status sb_consumer_level_of(sb_connection *c, uint32_t queue, int32_t priority, uint32_t *slot);
/* Counts of the live entries of a list. all[state]: entries whose node has this state; all[SB_STATE_ALL]: entries whose
 * node has any state. A list may name a node twice; such a node counts twice. */
typedef struct {
  int32_t all[SB_STATE_ALL + 1], counted[SB_STATE_ALL + 1]; /* counted: only consumers */
  uint64_t seen;                                            /* a checksum of the nodes' words, whatever their level */
} sb_census;
/* Counts the live entries of `list`, which is the list of `state`. level: only nodes of that level; 0 = all nodes. */
sb_census sb_nodes_census(sb_broker *b, const sb_ring *list, unsigned state, uint32_t level);
/* A recount compares the counts `interested`, `notified` ... with the lists. LOOK: it corrects no count; HARMFUL: it
 * corrects only the wrong counts that could suppress a wake; ALL: it corrects all wrong counts. */
typedef enum { SB_RECOUNT_LOOK, SB_RECOUNT_HARMFUL, SB_RECOUNT_ALL } sb_recount;
typedef struct {
  bool right; /* all counts were right */
  bool mended;
  uint64_t seen; /* a checksum of the counts and all nodes: if two recounts have equal sums, no node moved meanwhile */
} sb_recounted;
sb_recounted sb_nodes_recount(sb_broker *b, uint32_t queue, sb_recount how);
/* Lock held. Corrects `memory_waiting` of the header, if this call and the last one of the connection found the same
 * wrong count over the same list. A process that was between raising the count and moving its node has most likely gone
 * on meanwhile. If it has not, the count is too low until a later call corrects it. Until then a producer may not be
 * told of memory; it tries again after 50 ms (sb_waiter.h). Not counted as a repair (sb_repairs.h): no list names the
 * processes that may be between the two steps. */
void sb_nodes_recount_memory(sb_connection *c);

#define SB_IN(state) (1u << (state))
#define SB_ANY_STATE \
  (SB_IN(SB_NODE_NOT_INTERESTED) | SB_IN(SB_NODE_INTERESTED) | SB_IN(SB_NODE_NOTIFIED) | SB_IN(SB_NODE_NON_ACQUIRING))

#endif
