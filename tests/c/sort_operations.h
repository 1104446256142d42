// SPDX-License-Identifier: Apache-2.0
/* Operations of the table in operations.h that are about sorted queues: the header "k" of a message is its key. */
#ifndef SORT_OPERATIONS_H
#define SORT_OPERATIONS_H

#include <string.h>

#include "broker_fixture.h"

/* Settings of a queue whose sort_key is "k". */
#define SORTED_TEXTS "\0\0\0\x0f\x08sort_keyS\0\0\0\1k"
#define SORTED {{-1, -1, -1, 0, -1, -1}, SB_QUEUE_SORTED, sizeof SORTED_TEXTS - 1, SORTED_TEXTS}
#define SORTED_RING(n) {{(n), -1, -1, 0, -1, -1}, SB_QUEUE_SORTED, sizeof SORTED_TEXTS - 1, SORTED_TEXTS}
#define SORTED_LENGTH(n) \
  {{-1, (n), -1, SB_OVERFLOW_BLOCK, -1, -1}, SB_QUEUE_SORTED, sizeof SORTED_TEXTS - 1, SORTED_TEXTS}

/* Properties: one header, "k", whose value is the number `key`. `properties`: 13 bytes that live as long as the result. */
static inline sb_put_options sort_options(char *properties, unsigned key) {
  static const char form[] = "\x20\0\0\0\0\7\1kI\0\0\0";
  memcpy(properties, form, 12);
  properties[12] = (char)key;
  return (sb_put_options){.properties = properties, .properties_length = 13};
}

void put_sorted(void);          /* FRESH */
void put_sorted_and_get(void);  /* FRESH, whose key is large: the message that is got is another one */
void put_get_and_return(void);  /* the same, and returns it */
void put_two_sorted(void);      /* FRESH, then FRESH + 1, whose key is smaller */
void put_two_sorted_hold(void); /* the same, and gets all */
void nack_last(void);           /* returns what was got last */
void get_all_sorted(void);      /* gets what is there, and acknowledges it */
void commit_sorted(void);       /* FRESH, in both queues */

#endif
