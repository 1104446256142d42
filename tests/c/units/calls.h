// SPDX-License-Identifier: Apache-2.0
/* Helpers for cases of public calls: an unusable connection, a lock that another process holds, a process without
 * memory, and a read of the connection's lock while a call runs. */
#ifndef CALLS_H
#define CALLS_H

#include <sys/types.h>

#include "cases.h"
#include "sb_liveness.h"
#include "sb_watch.h"

#define UNLIMITED ((sb_settings)FREELY)
#define OF_RING(n) ((sb_settings){{(n), -1, -1, 0, -1, -1}, 0})
#define AT_MOST(n) ((sb_settings){{-1, (n), -1, SB_OVERFLOW_BLOCK, -1, -1}, 0})
#define A_MESSAGE 64u /* bytes of the body of a put */
#define AT_ONCE 1u    /* a deadline that is over */

/* The three states in which a public call refuses. */
#define REFUSALS 3u
extern const sb_status REFUSAL[REFUSALS];
/* Puts the connection into the state in which calls return that status; SB_OK: it can be used again. */
void refuse(sb_connection *c, sb_status why);

/* How often the lock of the connection was taken since the last begin_watching, 0 or 1: later ones are not seen. */
void begin_watching(sb_connection *c);
unsigned times_locked(void);
/* The call took no lock, and gave none back that it had not taken. */
void expect_untouched(sb_connection *c, const char *what);

/* Another open file description holds a byte of the lock file, as another process would; close() lets it go. */
int hold_byte(long byte);

/* Runs it with a malloc that fails; not at all in a build with a sanitizer, which has its own malloc. */
void without_memory(void (*what)(void));
/* Within that: blocks of malloc's own are as scarce as before, but one that needs a mapping for itself is to be had. */
void allow_a_mapping(uint64_t bytes);
/* Bytes that malloc gave; 0 in a build with a sanitizer. */
uint64_t allocated_bytes(void);

/* Another process that says to be the housekeeper, holds its byte, and is stopped. */
pid_t stop_a_housekeeper(void);
void end_process(pid_t pid);
/* A process that attaches, connects, does that, and dies. The number of its slot; it is not reaped. */
uint32_t die_attached(void (*before)(test_broker *own));

/* In a build with SB_TEST_HOOKS, before each atomic operation and at each crash point; NULL: nothing. */
extern void (*at_step)(const char *site);
/* Whether there are steps in this build. */
bool has_steps(void);
/* From now on, at each step in that source file the lock of the connection must be held. */
void expect_locked_in(sb_connection *c, const char *file);
/* ... up to here; and there was such a step. */
void was_locked(const char *what);

/* So many chunks are FREE; all others are in use, for good. */
void leave_free(uint32_t chunks);
/* Nothing of that chunk is free. */
void use_up(uint32_t chunk);

/* The store that note_order was asked for is sequentially consistent; it may be another operation, which is, too. */
void expect_all_see(const char *what);

/* A new queue, and the handle of `t.c`. */
sb_queue *open_new(const char *name, sb_settings settings);
/* As a process leaves the queue that is killed while it deletes it: its handles find it deleted, nothing was told. */
void close_by_hand(const sb_queue *q);
/* A watch that waits in the queue, for a message or for room for one. */
sb_watch *armed_watch(sb_queue *q, bool room);
/* It was told once, or not at all. */
void expect_told(const sb_watch *w, const char *what);
void expect_not_told(const sb_watch *w, const char *what);
/* The state of a node, and how often it was told. */
unsigned node_state(uint32_t node);
uint64_t node_wakes(uint32_t node);

#endif
