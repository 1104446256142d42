// SPDX-License-Identifier: Apache-2.0
/* Operations of the table in operations.h that are about last values: the header "k" of a message is its key. */
#ifndef VALUE_OPERATIONS_H
#define VALUE_OPERATIONS_H

/* Settings of a queue whose last_value_key is "k". */
#define VALUED_TEXTS "\0\0\0\x15\x0elast_value_keyS\0\0\0\1k"
#define VALUED {{-1, -1, -1, 0, -1, -1}, SB_QUEUE_LAST_VALUE, sizeof VALUED_TEXTS - 1, VALUED_TEXTS}
#define VALUED_LENGTH(n) \
  {{-1, (n), -1, SB_OVERFLOW_BLOCK, -1, -1}, SB_QUEUE_LAST_VALUE, sizeof VALUED_TEXTS - 1, VALUED_TEXTS}
#define VALUED_RING(n) {{(n), -1, -1, 0, -1, -1}, SB_QUEUE_LAST_VALUE, sizeof VALUED_TEXTS - 1, VALUED_TEXTS}

void put_value(void);  /* FRESH */
void put_newer(void);  /* FRESH + 1, of the same key */
void put_values(void); /* FRESH, then FRESH + 1 */
void hold_value(void);
void hold_superseded_value(void);
void nack_value(void);
void put_value_due(void);
void put_due_and_newer(void);
void put_many_keys(void);
void put_many_more_keys(void);
void value_there_and_newer_here(void);
void commit_value(void);
void commit_newer(void);
void commit_values(void); /* FRESH, then FRESH + 1 */

#endif
