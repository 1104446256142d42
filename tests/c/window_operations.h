// SPDX-License-Identifier: Apache-2.0
/* Operations of the table in operations.h that are about consumers with a window (sb_window.h). Messages have 64 bytes, and
 * a window has 100: the second message does not fit. */
#ifndef WINDOW_OPERATIONS_H
#define WINDOW_OPERATIONS_H

void window_opens(void);      /* a consumer, which has looked at nothing yet */
void window_takes(void);      /* it takes a message, and is held back by the next one */
void window_is_full(void);    /* both of these */
void window_loses_next(void); /* a get takes the message that holds it back */
void window_settles(void);    /* it settles what it holds, and goes on */
void window_closes(void);     /* the consumer is closed, and returns what it holds */

#endif
