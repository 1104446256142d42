// SPDX-License-Identifier: Apache-2.0
/* Operations of the table in operations.h that are about non-destructive queues. */
#ifndef FOLLOWING_OPERATIONS_H
#define FOLLOWING_OPERATIONS_H

/* Settings of a queue whose messages stay. */
#define STANDING_RING(n) {{(n), -1, -1, 0, -1, -1}, SB_QUEUE_NON_DESTRUCTIVE}
#define STANDING STANDING_RING(-1)

void follow(void);            /* the first three messages; acknowledges the second one */
void follow_and_view(void);   /* the first two, looks at their bodies, and settles them meanwhile */
void follow_and_return(void); /* the first one, gets it again, and cancels */
void follow_on_a_channel(void);
void follow_on_a_channel_settled(void);
void read_one(void); /* and keep it */
void acknowledge_it(void);
void reject_it(void);
void commit_it(void); /* with FRESH in the other queue */

#endif
