// SPDX-License-Identifier: Apache-2.0
/* The operations of commits, for operations.c: publications to the queues "q" and "other" of the child, or to many
 * queues. */
#ifndef COMMIT_OPERATIONS_H
#define COMMIT_OPERATIONS_H

#include "shmbroker.h"

#include <stdint.h>

/* To both queues. */
void commit_as(uint64_t id, const sb_put_options *o);
void commit_one(void);
void commit_two(void); /* bodies */
void commit_long(void);
void commit_bytes(uint64_t bytes);
void commit_delayed(void);
void commit_expiring(void);
void begin_another_commit(void); /* in another thread of the connection: it never comes to its decision */

void open_many(void);
void commit_to_many(void);
void hold_the_last_of_many(void); /* all but the one in "q" are gone; bodies are read in place */
void hold_one_of_many(void);
void return_one_of_many(void);

void take_two(void); /* to be settled by what follows */
void transact(void);
void transact_and_requeue(void);
void transact_in_vain(void); /* the same message twice: found out when all is staged, and undone */
void acknowledge_together(void);

void get_shared(void);
void get_other_shared(void);
void move_one_viewed(void); /* while others hold theirs, to a queue that another one of it was in */
void share_others(void);

#endif
