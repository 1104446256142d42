// SPDX-License-Identifier: Apache-2.0
/* Operations of the table in operations.h that are about stored queues, and what must be left of their changed bits. */
#ifndef STORED_OPERATIONS_H
#define STORED_OPERATIONS_H

#include "broker_fixture.h"

#define STORED {{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DURABLE}

void ends_before_a_turn(void); /* takes and acknowledges one message, and holds another one */
void takes_a_turn(void);       /* as the storekeeper */
void asks_for_a_turn(void);
/* Each message that has ended is found by the changed bits, unless a storekeeper found it. */
void expect_changes_found(sb_queue *q);
/* No commit of several stored messages counts as one that is being carried out. */
void expect_commits_counted(sb_queue *q);

#endif
