// SPDX-License-Identifier: Apache-2.0
/* Operations of the table in operations.h that are about messages which leave the memory and come back, and the store of
 * one leaf for all processes of a trial. */
#ifndef PAGED_OPERATIONS_H
#define PAGED_OPERATIONS_H

#include "broker_fixture.h"

#define PAGED_MESSAGES 65u /* a leaf, and one message behind it */

/* Before there is a child: the store gets what the queue has. From then on, calls of the fixture load what they need. */
void begin_a_store(test_broker *t, sb_queue *of);

void let_leaf_leave(void); /* as the storekeeper, after a turn */
void let_leaf_come_back(void);
void leave_and_come_back(void);
void leave_and_come_back_marked(void); /* a message returned while the leaf was away, as it seems */
void get_loading_and_ack(void);
void hold_one_loading(void);
void browse_loading(void);
void purge_loading(void);
void leave_and_delete(void);

#endif
