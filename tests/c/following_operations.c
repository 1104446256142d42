// SPDX-License-Identifier: Apache-2.0
#include "following_operations.h"

#include <string.h>

#include "channel_operations.h"
#include "child.h"
#include "operations.h"

static sb_consumer *consumer;

static void consume(void) {
  sb_status status;
  do {
    consumer = sb_consumer_open(kid.c, &q, 1, 4, 0, 1, 3600000000000u, &status);
  } while (again(status));
}
static int64_t next(void) {
  int64_t n;
  do {
    n = sb_consumer_next(consumer, buffer, false);
  } while (n < 0 && again((sb_status)-n));
  return n;
}
static void settle_next(sb_disposition disposition) {
  if (next() > 0) (void)sb_consumer_settle(consumer, buffer, disposition);
}

void follow(void) {
  consume();
  (void)next();
  settle_next(SB_ACK);
  (void)next();
}
void follow_and_view(void) {
  consume();
  for (int i = 0; i < 2; i++) {
    sb_record r;
    uint64_t view;
    if (next() < 0) return;
    memcpy(&r, buffer, sizeof r);
    sb_status status =
        r.body_address != 0 ? sb_view_begin(kid.c, r.tag, r.sequence, r.body_address, &view) : SB_CORRUPT;
    (void)sb_consumer_settle(consumer, buffer, SB_ACK);
    if (status == SB_OK) sb_view_end(kid.c, view);
  }
}
void follow_and_return(void) {
  consume();
  settle_next(SB_REQUEUE);
  (void)next();
  sb_consumer_cancel(consumer, true);
}
void follow_on_a_channel(void) {
  channel_consumes();
  for (int i = 0; i < 3; i++) channel_next();
  channel_acks_one();
  channel_requeues_all();
  channel_next();
}
void follow_on_a_channel_settled(void) {
  channel_consumes_settled();
  for (int i = 0; i < 2; i++) {
    sb_record r;
    uint64_t view;
    channel_next();
    memcpy(&r, buffer, sizeof r);
    if (r.body_address == 0) continue;
    memcpy(&view, buffer + sizeof r + r.exchange_length + r.key_length + r.properties_length, sizeof view);
    sb_view_end(kid.c, view);
  }
}
void read_one(void) {
  consume();
  (void)next();
}
void acknowledge_it(void) { (void)sb_consumer_settle(consumer, buffer, SB_ACK); }
void reject_it(void) { (void)sb_consumer_settle(consumer, buffer, SB_REJECT); }
void commit_it(void) {
  uint32_t failed[2];
  uint64_t body[8];
  sb_record r;
  memcpy(&r, buffer, sizeof r);
  for (unsigned i = 0; i < 8; i++) body[i] = FRESH;
  sb_publication p = {.body = (const char *)body, .length = sizeof body, .targets = &other, .target_count = 1};
  sb_settlement end = {.queue = q, .token = r.tag, .disposition = SB_ACK};
  while (again(sb_transaction_commit(kid.c, &p, 1, &end, 1, &failed[0], &failed[1]))) {
  }
}
