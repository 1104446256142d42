// SPDX-License-Identifier: Apache-2.0
/* Operations of the table in operations.h that are about consumers with a selector and a higher priority (sb_rivals.h).
 * The selector selects messages of priority 2: those with the ids 2, 5, 8 ... (put_sized). */
#ifndef RIVAL_OPERATIONS_H
#define RIVAL_OPERATIONS_H

void rival_comes(void);
void rival_takes(void); /* it takes message 2, behind one that it does not want */
void rival_leaves(void);
void rival_and_another(void);  /* a rival, then a consumer of a lower priority, which takes a message */
void another_takes(void);      /* that consumer takes the next messages */
void rival_loses_credit(void); /* the rival is suspended */

#endif
