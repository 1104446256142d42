// SPDX-License-Identifier: Apache-2.0
#include "rival_operations.h"

#include "child.h"
#include "operations.h"

static const char OF_PRIORITY_2[] = {
    SB_PROGRAM_VERSION, SB_OP_PROPERTY_U8, SB_PROPERTY_PRIORITY, SB_OP_INTEGER_I64, 2, 0, 0, 0, 0, 0, 0, 0,
    SB_OP_EQUAL};
static sb_consumer *rival, *another;

static sb_consumer *open(int32_t priority, const char *selector, uint32_t length) {
  const sb_consumer_options o = {.prefetch = 2,
                                 .ack_batch = 1,
                                 .ack_interval_ns = 3600000000000u,
                                 .priority = priority,
                                 .selector_length = length,
                                 .selector = selector};
  sb_consumer *k;
  sb_status status;
  do {
    k = sb_consumer_open_with(kid.c, &q, 1, &o, &status);
  } while (again(status));
  return k;
}
void rival_comes(void) { rival = open(1, OF_PRIORITY_2, sizeof OF_PRIORITY_2); }
void rival_takes(void) {
  if (sb_consumer_next(rival, buffer, false) > 0) (void)sb_consumer_settle(rival, buffer, SB_ACK);
}
void rival_leaves(void) { sb_consumer_cancel(rival, true); }
void rival_and_another(void) {
  rival_comes();
  another = open(0, NULL, 0);
}
void another_takes(void) {
  for (int i = 0; i < 2; i++) {
    if (sb_consumer_next(another, buffer, false) > 0) (void)sb_consumer_settle(another, buffer, SB_ACK);
  }
}
void rival_loses_credit(void) { sb_consumer_suspend(rival, true); }
