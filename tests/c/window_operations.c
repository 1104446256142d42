// SPDX-License-Identifier: Apache-2.0
#include "window_operations.h"

#include "child.h"
#include "operations.h"

static sb_consumer *windowed;

void window_opens(void) {
  const sb_consumer_options o = {
      .prefetch = 4, .ack_batch = 1, .ack_interval_ns = 3600000000000u, .prefetch_bytes = 100};
  sb_status status;
  do {
    windowed = sb_consumer_open_with(kid.c, &q, 1, &o, &status);
  } while (again(status));
}
void window_takes(void) { (void)sb_consumer_next(windowed, buffer, false); }
void window_is_full(void) {
  window_opens();
  window_takes();
  (void)sb_consumer_next(windowed, spare, false); /* in vain */
}
void window_loses_next(void) { (void)get(&kid, q, spare, true); }
void window_settles(void) { (void)sb_consumer_settle(windowed, buffer, SB_ACK); }
void window_closes(void) { sb_consumer_cancel(windowed, true); }
