// SPDX-License-Identifier: Apache-2.0
/* Operations of the housekeeper's program: timers of all queues in one call, and dead messages in batches. */
#ifndef DEAD_OPERATIONS_H
#define DEAD_OPERATIONS_H

void reject_two(void);       /* the first two of the queue */
void run_timers(void);       /* of the queue */
void carry_out_batch(void);  /* two messages, or as many as are dead, to the other queue */
void give_batch_up(void);    /* the same; they go nowhere */
void give_batch_back(void);  /* the same; they have no plan, so they wait on */
void die_with_a_batch(void); /* rejects two, and carries them out */

#endif
