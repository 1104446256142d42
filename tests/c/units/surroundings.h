// SPDX-License-Identifier: Apache-2.0
/* The environment of a call: waiting nodes that it may notify, memory that is exhausted, and an event inside the
 * call. */
#ifndef SURROUNDINGS_H
#define SURROUNDINGS_H

#include "cases.h"
#include "sb_queue.h"

/* ---- queues ---- */

/* Declares it, and opens it with the connection of the case. */
sb_queue *make_queue(const char *name, sb_settings settings);
/* Closes it as a deletion does that was killed after its first step: cells are still open. */
void mark_closed(const sb_queue *q);
uint64_t counted(const sb_queue *q, unsigned counter);
/* A producer of another process counts a message of that ring as taken, and dies before it took it: the ring seems to hold one
 * less. */
void die_in_debt(const char *queue);

/* ---- at rest ---- */

/* Remembers what the connection holds, and how busy the queue is. */
void note_rest(sb_queue *q);
/* The same is held, nothing is locked or announced, memory is taken to make room, and the doctor finds nothing. */
void expect_rest(const char *after);
/* The same without the doctor: the case has made memory that it would report. */
void expect_calm(const char *after);

/* ---- waiters ---- */

#define FOR_WORK 0u
#define FOR_ROOM SB_NODE_ROOM
#define FOR_MEMORY (SB_NODE_ROOM | SB_NODE_MEMORY)
/* The node of a call that waits at a queue; `bytes`: of the room that it waits for. */
uint32_t wait_at(sb_queue *q, uint32_t flags, uint32_t bytes);
/* Whether it was told since the last look; then it waits again. */
bool was_told(uint32_t node);

/* ---- memory ---- */

/* All segments exist, and all chunks but this many are taken. */
void leave_chunks(uint32_t chunks);
/* No slot of the class is free. A class that has no chunk gets none. */
void take_slots(unsigned cls);
/* No slot and no chunk is left for objects of that kind; the broker may grow, or not. */
void leave_none_of(unsigned kind, bool may_grow);
/* A list of nodes is filled with old entries of a node: its next entry needs a page, which the broker does not have. */
void leave_no_page_to(uint32_t node, uint32_t owner, unsigned ring, unsigned state, bool may_grow);
/* The second part of a body no longer says that it belongs to that head. */
void break_parts(uint32_t head);

/* ---- in the middle of a call ---- */

/* Memory that was not touched yet. */
char *untouched(size_t bytes);
/* At the next access to that page, this happens, once. */
void at_touch(const volatile void *address, void (*what)(void));
/* How often it happened so far. */
extern unsigned touches;

#endif
