// SPDX-License-Identifier: Apache-2.0
/* Operations on a chunk of structures that are not used any more. */
#ifndef GRACE_OPERATIONS_H
#define GRACE_OPERATIONS_H

/* Before: a queue of many pages was there and is gone, and one look found its pages free. */
void rest_pages(void);
/* The chunk becomes FREE in one step, since no connection is inside. */
void reclaim(void);
/* It is drained as long as one who was killed inside is not reaped. */
void reclaim_beside_the_dead(void);
/* The same, and who drained it goes. */
void reclaim_and_give_up(void);
/* The pages are used again. */
void reclaim_and_use(void);
/* A process that is killed inside. */
void die_inside(void);

#endif
