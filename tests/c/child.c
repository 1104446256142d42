// SPDX-License-Identifier: Apache-2.0
#include "child.h"

#include "operations.h"

test_broker kid;
sb_queue *q, *other;
_Alignas(64) char buffer[BUFFER], spare[BUFFER];

void become_child(const test_broker *t) {
  kid = *t;
  attach(&kid);
  kid.c = connect_to(&kid);
  q = open_queue(&kid, "q");
  other = open_queue(&kid, "other");
}

bool again(sb_status status) { return status == SB_GROW && grow(kid.b, kid.path); }
void get_one(void) { (void)get(&kid, q, buffer, false); }
void settle(sb_disposition disposition) { (void)sb_queue_settle(q, buffer, disposition); }
void move(void) {
  sb_status status;
  uint64_t bytes = UINT64_MAX;
  do {
    (void)sb_queue_move(q, other, 2, &bytes, &status);
  } while (again(status));
}
