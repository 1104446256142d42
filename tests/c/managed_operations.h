// SPDX-License-Identifier: Apache-2.0
/* Operations of an administrator on chosen messages. */
#ifndef MANAGED_OPERATIONS_H
#define MANAGED_OPERATIONS_H

/* Of a queue with priorities, the messages of priority 2: the ids 2 and 5. */
void purge_selected(void);
void move_selected(void);
void expire_selected(void);
/* The first two messages. */
void expire_two(void);
void deliver_scheduled(void);
void remove_scheduled(void);
void expire_scheduled(void);
/* The life of the first two messages ends in an hour. */
void limit_two(void);
void take_and_put_back(void);
/* Takes the first message, and publishes a new one to both queues in its place, in one commit. */
void transfer(void);

#endif
