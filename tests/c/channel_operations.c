// SPDX-License-Identifier: Apache-2.0
#include "channel_operations.h"

#include "child.h"

static sb_channel *channel;
static uint32_t subscription;

void open_channel(void) {
  sb_status status;
  channel = sb_channel_open(kid.c, 1, &status);
  if (channel == NULL) die("sb_channel_open", (int)status);
}

static void consume(uint32_t prefetch, uint32_t flags) {
  while (again(sb_channel_consume(channel, q, prefetch, 0, flags, &subscription))) {
  }
}
static void open_and_consume(uint32_t prefetch, uint32_t flags) {
  open_channel();
  consume(prefetch, flags);
}
void channel_consumes(void) { open_and_consume(4, 0); }
void channel_consumes_twice(void) {
  open_and_consume(2, 0);
  (void)sb_channel_set_prefetch(channel, 5);
  consume(0, 0);
}
void channel_consumes_settled(void) { open_and_consume(0, SB_CONSUME_AUTO_ACK); }
void channel_consumes_foreign(void) { open_and_consume(4, SB_CONSUME_NO_LOCAL); }
void channel_claims(void) { open_and_consume(4, SB_CONSUME_EXCLUSIVE); }

void channel_next(void) {
  int64_t n;
  do {
    n = sb_channel_next(channel, buffer);
  } while (n < 0 && again((sb_status)-n));
}
void channel_takes_one(void) {
  channel_consumes();
  channel_next();
}
void channel_takes_three(void) {
  channel_takes_one();
  channel_next();
  channel_next();
}
void channel_gets(void) {
  int64_t n;
  do {
    n = sb_channel_get(channel, q, buffer, false);
  } while (n < 0 && again((sb_status)-n));
}
void channel_waits_in_get(void) {
  sb_wait at_once = {1, UINT64_MAX, 0, 0};
  (void)sb_channel_get_wait(channel, q, buffer, false, &at_once);
}
void channel_acks_one(void) { (void)sb_channel_settle(channel, 1, false, SB_ACK); }
void channel_acks_all(void) { (void)sb_channel_settle(channel, 3, true, SB_ACK); }
void channel_requeues_all(void) { (void)sb_channel_settle(channel, 0, true, SB_REQUEUE); }
void channel_returns_one(void) { (void)sb_channel_settle(channel, 1, false, SB_UNDELIVER); }
void channel_cancels(void) { (void)sb_channel_cancel(channel, subscription); }
void channel_closes(void) { sb_channel_close(channel); }
void channel_is_limited(void) {
  (void)sb_channel_set_prefetch(channel, 1);
  (void)sb_connection_set_prefetch(kid.c, 1);
  (void)sb_channel_set_prefetch(channel, 0);
  (void)sb_connection_set_prefetch(kid.c, 0);
}
