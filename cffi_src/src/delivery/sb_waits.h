// SPDX-License-Identifier: Apache-2.0
/* Waits: what each consumer of a queue waits for, and which of them make no progress.
 *
 * What: a consumer waits for its application (CONSUMER: it has no credit, or takes nothing now), for a message
 * (PRODUCER), for a message that is in the store only (LOAD), or for its own turn: a message that it may have is in the
 * memory (DISPATCH). A listing finds that out. For a node that takes any message it looks at the cells. It cannot tell
 * what a node wants that chooses, so such a node notes how its last search ended, and how far it came.
 * The housekeeper looks at each tick. A consumer that waits for LOAD or DISPATCH, and has done nothing since an earlier
 * tick, is still. The housekeeper's program tells of it, once, when it has been still for some seconds.
 *
 * Layout: of sb_node_shm: `searched`, `reached`, `away`, which the owner of the node writes after each search that
 *  chooses; `looked`, `still_ns`, `told`, which the housekeeper writes. `misses` of the queue. `stalled` of the header.
 *
 * Invariants:
 *  I134 all these words are hints, for listings and for the warning: no other function reads them. A consumer that was
 *      told of is told of again only after `looked` has changed: it did something, and became still again.
 *
 * Ordering pairs: none. Each word is relaxed; a listing beside a search may mix two searches.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  the owner, between two of its words -> the node of a dead connection -> the reaper makes it REMOVED.
 *  the housekeeper, between two of its words -> a time of an earlier `looked`, or a `told` -> the next housekeeper counts
 *   from its own first look. A consumer that was marked as told, and not told of -> nobody: `told` shows in listings.
 *
 * Concurrency: the owner of a node notes, under its connection's lock; one housekeeper watches; any connection lists.
 */
#ifndef SB_WAITS_H
#define SB_WAITS_H

#include "sb_nodes.h"

/* How the last search of a node that chooses ended; 0: it has not searched. */
enum { SB_SEARCHED_TOOK = 1, SB_SEARCHED_ALL = 2, SB_SEARCHED_LACKED = 3 };

/* After a search. `reached`, `away`: as of sb_choice. */
static inline void sb_waits_note(sb_node_shm *n, sb_status status, uint64_t reached, uint64_t away) {
  uint64_t how = status == SB_OK ? SB_SEARCHED_TOOK : status == SB_EMPTY ? SB_SEARCHED_ALL : SB_SEARCHED_LACKED;
  SB_STORE(&n->searched, how, SB_RELAXED);
  SB_STORE(&n->reached, reached, SB_RELAXED);
  SB_STORE(&n->away, away, SB_RELAXED);
}

/* What a node that takes any message of the queue waits for, if it has credit. */
sb_waits_for sb_waits_look(sb_broker *b, uint32_t queue);
/* What a node waits for. `plain`: the result of sb_waits_look. */
sb_waits_for sb_waits_of(sb_broker *b, uint32_t queue, const sb_node_shm *n, sb_waits_for plain);
/* How far a consumer has come. False: it is not known, since it has no search of its own, and the queue has lanes. */
bool sb_waits_reached(sb_broker *b, uint32_t queue, const sb_node_shm *n, uint64_t *position);
/* The first position from `from` on, of the lane of `from`, whose message has left the memory. False: there is none in
 * reach: among the next SB_WAITS_REACH leaves. */
#define SB_WAITS_REACH 16384u
bool sb_waits_watermark(sb_broker *b, uint32_t queue, uint64_t from, uint64_t *position);
/* Since when a consumer is still, as the last tick saw it, and still holds; 0: it is not. */
uint64_t sb_waits_still_ns(const sb_queue_shm *q, const sb_node_shm *n, sb_waits_for waits);

/* What a tick found at a queue. */
typedef struct {
  uint32_t still;   /* consumers that wait for LOAD or DISPATCH */
  uint32_t told;    /* those of them that were told of, and are still since */
  uint64_t next_ns; /* since when the longest of the others is still; 0: there is none */
} sb_waits_watched;
/* The housekeeper's look at the consumers of a queue. `anew`: the tick before saw none that waited for LOAD or DISPATCH. */
sb_waits_watched sb_waits_watch(sb_connection *by, uint32_t queue, bool anew);
/* Finds a consumer that is still since `until_ns` or longer, and was not told of; marks it as told. 0: there is none. */
uint32_t sb_waits_tell(sb_connection *by, uint32_t queue, uint64_t until_ns);

#endif
