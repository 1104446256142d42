// SPDX-License-Identifier: Apache-2.0
/* Operations with bodies that are stored in parts, in a broker that is full except for some slots that are not
 * adjacent. */
#ifndef PARTS_OPERATIONS_H
#define PARTS_OPERATIONS_H

/* Fills the memory, and frees slots of 64 KiB, no two of them beside each other. */
void crowd(void);
/* The message that the operation puts: in three parts. */
void put_in_parts(void);
void put_what_does_not_fit(void);
void commit_in_parts(void);
void reserve_in_parts_and_commit(void);
void commit_copy_of_parts(void);

/* Before: it lies in the queue, or is held. */
void have_parts(void);
void hold_parts(void);
void reserve_in_parts(void);

void copy_parts(void);

/* A process that is killed while it puts it, or acknowledges it. */
void die_putting(void);
void die_acknowledging(void);

#endif
