// SPDX-License-Identifier: Apache-2.0
/* Operations of the table in operations.h that are about consumers with a selector and a higher priority (sb_rivals.h).
 * The selector selects messages of priority 5: none of those that are there, unless it says so. */
#ifndef RIVAL_OPERATIONS_H
#define RIVAL_OPERATIONS_H

void rival_comes(void);
void rival_leaves(void);
void rival_and_another(void);  /* a rival, then a consumer of a lower priority, which takes a message */
void another_takes(void);      /* that consumer takes the next messages */
void rival_loses_credit(void); /* the rival is suspended */

#endif
