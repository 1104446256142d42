// SPDX-License-Identifier: Apache-2.0
/* A queue at which a case waits, for the cases of sb_waiter: the case answers for the system. */
#ifndef WAITING_H
#define WAITING_H

#include "cases.h"
#include "sb_connection.h"
#include "sb_nodes.h"
#include "system.h"

#define BODY 64u
#define A_MILLISECOND UINT64_C(1000000)

extern sb_queue *q;      /* of the connection t.c */
extern unsigned renewed; /* how often the lock was taken after ask_for_renewal */

void begin_waiting(sb_settings settings);
/* The next holder of the connection's lock counts itself in `renewed`. */
void ask_for_renewal(void);
void expect_unlocked(const char *what);
sb_node_shm *node_at(uint32_t node);
unsigned state_of(uint32_t node);
/* A node that waits for a message, for room of `bytes` in the queue, or for memory. */
uint32_t another_waits(uint32_t flags, uint32_t bytes);
/* The slot of a holding that is taken next: the same as long as none was kept. */
uint64_t next_holding(void);
void close_queue(void);
void open_again(void);
/* No chunk and no slot of these classes are left to any use. */
void use_up_chunks(void);
void use_up_slots(unsigned cls);

#endif
