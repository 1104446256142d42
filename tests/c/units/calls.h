// SPDX-License-Identifier: Apache-2.0
/* What cases of public calls need: a connection that cannot be used, a lock that another process holds, a process without
 * memory, and a look at the connection's lock while a call runs. */
#ifndef CALLS_H
#define CALLS_H

#include "cases.h"
#include "sb_liveness.h"

#define UNLIMITED ((sb_settings)FREELY)
#define AT_ONCE 1u /* a deadline that is over */

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
/* Bytes that malloc gave; 0 in a build with a sanitizer. */
uint64_t allocated_bytes(void);

/* In a build with SB_TEST_HOOKS, before each atomic operation and at each crash point; NULL: nothing. */
extern void (*at_step)(const char *site);
/* Whether there are steps in this build. */
bool has_steps(void);
/* From now on, at each step in that source file the lock of the connection must be held. */
void expect_locked_in(sb_connection *c, const char *file);
/* ... up to here; and there was such a step. */
void was_locked(const char *what);

/* The state of a node, and how often it was told. */
unsigned node_state(uint32_t node);
uint64_t node_wakes(uint32_t node);

#endif
