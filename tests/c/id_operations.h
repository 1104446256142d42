// SPDX-License-Identifier: Apache-2.0
/* The operations of messages with ids, for operations.c, in a queue "q" that remembers ids. */
#ifndef ID_OPERATIONS_H
#define ID_OPERATIONS_H

#include "broker_fixture.h"

/* Puts the message FRESH with its id, or publishes it to "q" and "other", as any process may do it that does not know
 * whether it was put before. */
void put_with_id(test_broker *t, sb_queue *q);
void commit_with_id(test_broker *t, sb_queue *q, sb_queue *other);

/* The same by the child. */
void put_once(void);
void put_twice(void);
void put_once_delayed(void);
void reserve_once(void);
void commit_once(void);
void commit_several_ids(void); /* FRESH, and another message, which are both new */
void transact_once(void);
void put_once_and_take(void);

#endif
