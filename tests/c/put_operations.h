// SPDX-License-Identifier: Apache-2.0
/* Operations of the table in operations.c that put: one message, several, a reservation, with limits and times. */
#ifndef PUT_OPERATIONS_H
#define PUT_OPERATIONS_H

void put_one(void);
void put_another(void);
void put_delayed(void);
void put_dead(void);
void put_expiring(void);
void put_middle(void);
void write_long_body(void);
void put_long(void);
void put_due(void);
void put_expired(void);
void put_three(void);
void reserve(void);
void reserve_and_commit(void);
void reserve_and_abandon(void);
void commit_copy(void);
void abandon_viewed(void);
void wait_for_room(void);
void reserve_more(void);

#endif
