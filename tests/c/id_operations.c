// SPDX-License-Identifier: Apache-2.0
#include "id_operations.h"

#include <string.h>

#include "child.h"
#include "commit_operations.h"
#include "operations.h"

/* The header x-duplicate-id with a text of one letter. */
#define WITH_ID(letter) \
  (sb_put_options) { \
    .properties = "\x20\x00\x00\x00\x00\x15" \
                  "\x0ex-duplicate-idS\x00\x00\x00\x01" letter, \
    .properties_length = 27, .duplicates = SB_DUPLICATES_FAIL \
  }

static bool tries_again(test_broker *t, sb_queue *q, sb_status status) {
  int32_t pid;
  if (status == SB_UNDECIDED) return sb_queue_wait_for_id(q, FOREVER, &pid) == SB_OK;
  return status == SB_GROW && grow(t->b, t->path);
}

static void put_as(test_broker *t, sb_queue *q, const sb_put_options *o) {
  uint64_t body[8];
  fill_body(body, sizeof body, FRESH);
  while (tries_again(t, q, sb_queue_put_with(q, (const char *)body, sizeof body, o))) {
  }
}
void put_with_id(test_broker *t, sb_queue *q) {
  sb_put_options o = WITH_ID("a");
  put_as(t, q, &o);
}

static void commit_ends(test_broker *t, sb_queue **targets, uint32_t count, const sb_settlement *ends,
                        uint32_t end_count) {
  static uint64_t bodies[2][8];
  sb_put_options first = WITH_ID("a"), second = WITH_ID("b");
  sb_publication p[2];
  uint32_t failed[2];
  for (uint32_t i = 0; i < count; i++) {
    fill_body(bodies[i], sizeof bodies[i], FRESH + i);
    p[i] = (sb_publication){(const char *)bodies[i], sizeof bodies[i], i == 0 ? &first : &second, targets, 2};
  }
  while (tries_again(t, targets[0], sb_transaction_commit(t->c, p, count, ends, end_count, &failed[0], &failed[1]))) {
  }
}
void commit_with_id(test_broker *t, sb_queue *one, sb_queue *another) {
  sb_queue *both[2] = {one, another};
  commit_ends(t, both, 1, NULL, 0);
}

void put_once(void) { put_with_id(&kid, q); }
void put_twice(void) {
  put_once();
  put_once();
}
void put_once_delayed(void) {
  sb_put_options o = WITH_ID("a");
  o.delay_ns = 3600000000000u;
  put_as(&kid, q, &o);
}
void put_once_and_take(void) {
  put_once();
  for (unsigned i = 0; i < SETUP + 1; i++) (void)get(&kid, q, spare, true);
}
void reserve_once(void) {
  sb_reservation r;
  sb_put_options o = WITH_ID("a");
  while (tries_again(&kid, q, sb_reservation_begin(q, 64, &o, &r))) {
  }
  fill_body(r.body, 64, FRESH);
  while (tries_again(&kid, q, sb_reservation_publish(q, &r))) {
  }
}
void commit_once(void) { commit_with_id(&kid, q, other); }
void commit_several_ids(void) {
  sb_queue *both[2] = {q, other};
  commit_ends(&kid, both, 2, NULL, 0);
}
void transact_once(void) {
  sb_record first, second;
  memcpy(&first, buffer, sizeof first);
  memcpy(&second, spare, sizeof second);
  sb_settlement ends[2] = {{q, first.tag, SB_ACK, 0}, {q, second.tag, SB_REJECT, 0}};
  sb_queue *both[2] = {q, other};
  commit_ends(&kid, both, 1, ends, 2);
}
