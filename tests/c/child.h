// SPDX-License-Identifier: Apache-2.0
/* The child that runs an operation: the objects that it holds, and helpers that operations of several files share. */
#ifndef CHILD_H
#define CHILD_H

#include "broker_fixture.h"

extern test_broker kid;
extern sb_queue *q, *other;
extern char buffer[BUFFER], spare[BUFFER]; /* records */

/* Memory was missing, and is there now: the call is to be repeated. */
bool again(sb_status status);
void get_one(void);                      /* into `buffer` */
void settle(sb_disposition disposition); /* what lies there */
void move(void);                         /* two, to the other queue */

#endif
