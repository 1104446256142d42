// SPDX-License-Identifier: Apache-2.0
/* Choice: takes only messages that a consumer may have.
 *
 * What: a consumer with a selector wants only the messages that its program selects (sb_selector.h); a message whose
 * properties are damaged is none of them. A consumer with no_local wants no message that its own connection published. A consumer of a queue with message
 * groups takes no message of a group that another consumer has (sb_groups.h). Such a *choosy* consumer has its own cursor,
 * which passes the other messages without hiding them from other consumers: neither the handle's cursor nor the queue's
 * head moves. If a message returned to a position before the cursor, the consumer finds it through its `requeued` bits,
 * like any consumer. A message of a group that became free before the cursor: I94 of sb_groups.h.
 *
 * `publisher` of sb_message_shm has the id of the publishing connection. Ids are reused: messages of a connection that
 * was closed count as own messages of a later connection with the same id, whose consumer then does not get them.
 *
 * Layout: nothing shared.
 *
 * In a queue with priorities a consumer has a cursor for each of 16 lanes. A lane whose cursor it does not know it searches
 * from its head.
 *
 * Invariants: each ready message before the consumer's cursor of its lane was published by the consumer's connection (no_local), or
 *  is none that its selector selects, is found as I94 or I113 of sb_groups.h says, or has its `requeued` bits set (I18 of sb_requeued.h, I53 of sb_take.h).
 *
 * Ordering pairs: as in sb_take.h: P1 of sb_slab.h, P2 of sb_ring.h, P3 of sb_notify.h, P5 of sb_requeued.h, P8 of
 *  sb_connection.h.
 *
 * Death: as in sb_take.h and sb_groups.h.
 *
 * Concurrency: under the connection's lock, beside all other operations.
 */
#ifndef SB_CHOICE_H
#define SB_CHOICE_H

#include "sb_groups.h"
#include "sb_selector.h"
#include "sb_sorted.h"
#include "sb_window.h"

/* The selector of a consumer: process-local, and freed by whoever frees the consumer. */
typedef struct {
  sb_program program;         /* of `code` */
  char memory[SB_MAX_PREFIX]; /* for sb_selector_message */
  char code[];
} sb_wish;

/* A consumer of a higher priority that wants some of the messages: the search passes them (sb_rivals.h). */
typedef struct {
  uint64_t word; /* of its node, when the search looked at it */
  uint32_t node;
  unsigned connection; /* of no_local */
  bool no_local;
  sb_wish *wish; /* a copy; NULL: it has no selector */
} sb_rival;
typedef struct {
  sb_rival *list;
  uint32_t count, room;
} sb_rivals;

#define SB_CHOICE_LOOKS 1024u /* a search that passed so many messages lets others use the connection, then goes on */
#define SB_CHOICE_OTHERS 15u  /* the cursors of other lanes than lane 0 that a consumer remembers */
typedef struct sb_choice {
  uint64_t cursor; /* where the next search begins, in lane 0 */
  uint64_t
      others[SB_CHOICE_OTHERS]; /* ... in lane n, at (n - 1) % SB_CHOICE_OTHERS; a position of another lane: unknown */
  uint64_t passed[SB_GROUPS_BITS]; /* if it walks again: the buckets of which it passed messages by its cursors */
  sb_wish *wish;                   /* NULL: the consumer wants any message */
  sb_sorted *sorted;       /* its index in a sorted queue; NULL: none yet. Whoever frees the consumer frees it */
  sb_rivals rivals;        /* of the consumer, since the last sb_rivals_find */
  const sb_window *window; /* NULL: the consumer takes messages of any length */
  uint64_t lacks;          /* the bytes of the message that holds it back; 0: none does */
  uint64_t reached;        /* 1 + the position that the last search in a lane has reached; 0: there was none */
  uint64_t away;     /* 1 + the position of the message that the last search needs, and that has left the memory */
  uint32_t consumer; /* its number at a queue with groups */
  bool no_local;
  bool missed;     /* since it took its last message, a search needed one that had left the memory */
  bool unfinished; /* the last search took no message, but passed SB_CHOICE_LOOKS of them: there may be others */
} sb_choice;

/* True if the message in `slot`, which the consumer wants, does not fit into its window; notes how long it is. */
static inline bool sb_choice_holds_back(const sb_queue *q, sb_choice *choice, uint32_t slot) {
  choice->lacks = choice->window == NULL ? 0 : sb_window_refuses(q, choice->window, slot);
  return choice->lacks != 0;
}
/* True if the consumer wants the message in `slot`, which another process may be changing. `m`: a copy of its header. */
bool sb_choice_wants(const sb_queue *q, const sb_choice *choice, uint32_t slot, const sb_message_shm *m);
/* Takes the oldest ready message that has not expired and that the consumer may have; removes the expired ones before
 * it. `token`: a free holding, which then lists the message. SB_EMPTY: there is no such message, or the queue is paused, or
 * the search is unfinished.
 * SB_NO_CREDIT: the message does not fit into the window of the consumer (sb_window.h).
 * SB_DELETED: the queue is closed. SB_NO_MEMORY, SB_GROW: there is no memory for the claims of the groups. */
sb_status sb_choice_take(sb_queue *q, sb_choice *choice, uint64_t token, sb_taken *t);
/* Takes a message for a get, or for a consumer that takes any message: as sb_take_for_consumer, or in a queue with groups
 * or a sorted queue as sb_choice_take. */
sb_status sb_choice_get_chosen(sb_queue *q, uint64_t token, sb_taken *t);
static inline sb_status sb_choice_get(sb_queue *q, uint64_t token, sb_taken *t) {
  bool plain = q->groups == NULL && !sb_queue_is_sorted(q);
  return plain ? sb_take_for_consumer(q, token, t) : sb_choice_get_chosen(q, token, t);
}

#endif
