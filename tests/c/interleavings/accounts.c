// SPDX-License-Identifier: Apache-2.0
/* Cases of accounts: what a limit admits, to the message and the byte, and which counter counts it. */
#include <string.h>

#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_limits.h"
#include "sb_hints.h"

#define BLOCK SB_OVERFLOW_BLOCK
#define DROP_HEAD SB_OVERFLOW_DROP_HEAD
#define LENGTH(n, overflow) {{-1, (n), -1, (overflow), -1, -1}, 0}
#define BYTES(n, overflow) {{-1, -1, (n), (overflow), -1, -1}, 0}

static sb_status put_of(uint64_t id, uint64_t bytes) {
  sb_put_options none = {0};
  return put_sized(&t, one.q, id, bytes, &none);
}
static void expect_put(uint64_t id, uint64_t bytes, sb_status should) {
  sb_status is = put_of(id, bytes);
  expect(is == should, "a put of %d bytes gives %d, not %d", (int)bytes, (int)is, (int)should);
}
/* At rest: what was let in is there, no hint is being changed, and there is nothing to set right. */
static void expect_accounts(int64_t messages, int64_t bytes) {
  const sb_queue_shm *q = keeper.q->shm;
  int64_t ready = (int64_t)(q->tail - q->base - q->taken), admitted = (int64_t)(q->admitted - q->base - q->taken);
  int64_t is = (int64_t)(q->bytes_in - q->bytes_out);
  expect(ready == messages, "%d messages are ready, not %d", (int)ready, (int)messages);
  expect(admitted == messages, "%d messages were let in, not %d", (int)admitted, (int)messages);
  expect(is == bytes, "%d bytes are ready, not %d", (int)is, (int)bytes);
  expect((one.q->ledger->hinting & SB_HINTING_DEPTH) == 0, "a hint is being changed, and nobody is there");
  expect(sb_hints_reconcile(t.b, keeper.q->shm, NULL) != SB_HINTS_SET_RIGHT, "there was something to set right");
}
static void expect_counted(uint64_t acked, uint64_t replaced, uint64_t dropped, uint64_t expired, uint64_t killed) {
  sb_queue_facts f;
  (void)sb_queue_describe(keeper.c, keeper.q->slot, &f);
  expect(f.acked == acked, "%d are acknowledged, not %d", (int)f.acked, (int)acked);
  expect(f.replaced == replaced, "%d are replaced, not %d", (int)f.replaced, (int)replaced);
  expect(f.dropped == dropped, "%d are dropped, not %d", (int)f.dropped, (int)dropped);
  expect(f.expired == expired, "%d are expired, not %d", (int)f.expired, (int)expired);
  expect(f.killed == killed, "%d are killed, not %d", (int)f.killed, (int)killed);
}
static void take_one(uint64_t id) { expect(take(&one) == id, "message %d was not next", (int)id); }

static void length_is_exact(void) {
  expect(sb_limits_room(one.q->shm, 2, 64) && !sb_limits_room(one.q->shm, 3, 64), "an empty queue of 2 has other room");
  expect_put(1, 64, SB_OK);
  expect(sb_limits_room(one.q->shm, 1, 64) && !sb_limits_room(one.q->shm, 2, 64), "a queue of 2 with 1 has other room");
  expect_put(2, 64, SB_OK);
  expect_put(3, 64, SB_FULL);
  expect_accounts(2, 128);
  expect(!sb_limits_room(one.q->shm, 1, 0), "a full queue has room");
  take_one(1);
  expect_put(4, 64, SB_OK);
  expect_put(5, 64, SB_FULL);
  expect_accounts(2, 128);
  expect_left(24);
}
static void bytes_are_exact(void) {
  expect_put(1, 136, SB_TOO_LARGE);
  expect_accounts(0, 0);
  expect_put(1, 128, SB_OK);
  expect_put(2, 8, SB_FULL);
  take_one(1);
  expect_put(3, 64, SB_OK);
  expect(sb_limits_room(one.q->shm, 1, 64) && !sb_limits_room(one.q->shm, 1, 65), "64 bytes of 128 leave other room");
  expect_put(4, 72, SB_FULL);
  expect_put(4, 64, SB_OK);
  expect_put(5, 8, SB_FULL);
  expect_accounts(2, 128);
  expect_left(34);
}
static void bytes_before_length(void) { /* what is refused for its bytes takes no place */
  expect_put(1, 64, SB_OK);
  for (int i = 0; i < 5; i++) expect_put(2, 64, SB_FULL);
  expect_accounts(1, 64);
  for (uint64_t id = 3; id <= 4; id++) expect_put(id, 8, SB_OK);
  expect_put(5, 8, SB_FULL);
  expect_accounts(3, 80);
  expect_left(134);
}
static void head_is_dropped(void) {
  for (uint64_t id = 1; id <= 4; id++) expect_put(id, 64, SB_OK);
  expect(sb_limits_room(one.q->shm, 9, 1u << 20), "who drops the head has no room");
  expect_accounts(2, 128);
  expect_counted(0, 0, 2, 0, 0);
  expect_left(34);
}
static void head_is_dropped_by_bytes(void) {
  expect_put(1, 64, SB_OK);
  expect_put(2, 64, SB_OK);
  expect_accounts(2, 128);
  expect_put(3, 8, SB_OK);
  expect_accounts(2, 72);
  expect_put(4, 56, SB_OK);
  expect_accounts(3, 128);
  expect_put(5, 128, SB_OK);
  expect_accounts(1, 128);
  expect_counted(0, 0, 4, 0, 0);
  expect_left(5);
}
static void ring_is_smaller(void) {
  for (uint64_t id = 1; id <= 4; id++) expect_put(id, 64, SB_OK);
  expect_accounts(2, 128);
  expect_counted(0, 2, 0, 0, 0);
  expect_left(34);
}
static void length_is_smaller(void) {
  for (uint64_t id = 1; id <= 4; id++) expect_put(id, 64, SB_OK);
  expect_accounts(2, 128);
  expect_counted(0, 0, 2, 0, 0);
  expect_left(34);
}
static void expired_is_no_victim(void) {
  sb_put_options soon = {.ttl_ns = 1};
  expect(put_sized(&t, one.q, 1, 64, &soon) == SB_OK, "put failed");
  expect_put(2, 64, SB_OK);
  expect_accounts(1, 64);
  expect_counted(0, 0, 0, 1, 0);
  expect_put(3, 64, SB_OK);
  expect_counted(0, 1, 0, 1, 0);
  expect_left(3);
}
static void lazily_smaller(void) {
  int32_t holder;
  sb_settings smaller = RING(2);
  for (uint64_t id = 1; id <= 5; id++) put_by(&one, id);
  (void)sb_queue_configure(keeper.q, &smaller, false, FOREVER, &holder);
  expect_accounts(5, 5 * 64);
  put_by(&one, 6);
  expect_accounts(5, 5 * 64); /* the bound is what there was */
  take_one(2);
  take_one(3);
  put_by(&one, 7);
  expect_accounts(3, 3 * 64); /* and follows what is left */
  for (int i = 0; i < 3; i++) (void)take(&one);
  for (uint64_t id = 1; id <= 4; id++) put_by(&one, id);
  expect_accounts(2, 128);
  expect_left(34);
}
static void trimmed(void) {
  int32_t holder;
  sb_settings smaller = RING(2);
  for (uint64_t id = 1; id <= 5; id++) put_by(&one, id);
  (void)sb_queue_configure(keeper.q, &smaller, true, FOREVER, &holder);
  expect_accounts(2, 128);
  expect_counted(0, 3, 0, 0, 0);
  expect_left(45);
}
static void abandoned(void) {
  sb_reservation r;
  sb_put_options none = {0};
  expect_put(1, 64, SB_OK);
  expect(sb_reservation_begin(one.q, 64, &none, &r) == SB_OK, "there is no room for two");
  expect_put(2, 64, SB_FULL);
  sb_reservation_abandon(one.q, &r, false);
  expect_accounts(1, 64);
  expect_put(3, 64, SB_OK);
  expect_accounts(2, 128);
  expect_left(13);
}
static void requeued(void) {
  expect_put(1, 64, SB_OK);
  expect_put(2, 64, SB_OK);
  expect(get(&t, one.q, held_a, false) == 1, "nothing to take");
  expect_accounts(1, 64);
  expect(sb_queue_settle(one.q, held_a, SB_REQUEUE) == SB_OK, "nothing to return");
  expect_accounts(2, 128);
  expect_left(12);
}
static void settled_once(void) {
  expect_put(1, 64, SB_OK);
  expect_put(2, 5000, SB_OK);
  expect(get(&t, one.q, held_a, false) == 1 && get(&t, one.q, held_b, false) == 2, "nothing to take");
  expect(sb_queue_settle(two.q, held_a, SB_ACK) == SB_SETTLED, "another connection settles what is not its own");
  expect(sb_queue_settle(two.q, held_b, SB_REQUEUE) == SB_SETTLED, "another connection returns what is not its own");
  expect_counted(0, 0, 0, 0, 0);
  expect(sb_queue_settle(one.q, held_a, SB_ACK) == SB_OK && sb_queue_settle(one.q, held_b, SB_ACK) == SB_OK,
         "nothing to settle");
  expect(sb_queue_settle(one.q, held_a, SB_ACK) == SB_SETTLED, "a message is settled twice");
  expect(sb_queue_settle(one.q, held_b, SB_REQUEUE) == SB_SETTLED, "a message is returned after it was settled");
  expect_accounts(0, 0);
  expect_counted(2, 0, 0, 0, 0);
}
static void purged(void) {
  for (uint64_t id = 1; id <= 3; id++) expect_put(id, 64, SB_OK);
  expect(get(&t, one.q, held_a, false) == 1, "nothing to take");
  expect(purge_count(one.q) == 2, "a purge takes other than what is ready");
  expect_accounts(0, 0);
  expect_counted(0, 0, 0, 0, 2);
  expect(sb_queue_settle(one.q, held_a, SB_REQUEUE) == SB_OK, "nothing to return");
  expect_accounts(1, 64);
  expect_left(1);
}

static void living_is_a_victim(void) {
  sb_put_options later = {.ttl_ns = 3600000000000u};
  expect(put_sized(&t, one.q, 1, 64, &later) == SB_OK, "put failed");
  expect_put(2, 64, SB_OK);
  expect_counted(0, 1, 0, 0, 0);
  expect_left(2);
}
static void purged_in_steps(void) {
  for (int i = 0; i < 2100; i++) put_small_by(&one, 1);
  int64_t removed = purge_count(one.q);
  expect(removed == 2100, "a purge removes %d of 2100", (int)removed);
  expect(sb_queue_length(keeper.q) == 0, "%d are left", (int)sb_queue_length(keeper.q));
}

static const test_case CASES[] = {
    {"length is exact", "a queue of two holds two", LENGTH(2, BLOCK), length_is_exact},
    {"bytes are exact", "a queue of 128 bytes holds 128", BYTES(128, BLOCK), bytes_are_exact},
    {"bytes before length",
     "what is refused for its bytes takes no place",
     {{-1, 3, 80, BLOCK, -1, -1}, 0},
     bytes_before_length},
    {"head is dropped", "the oldest are dropped, and counted as that", LENGTH(2, DROP_HEAD), head_is_dropped},
    {"head is dropped by bytes", "as many of the oldest as are too many bytes", BYTES(128, DROP_HEAD),
     head_is_dropped_by_bytes},
    {"ring is smaller", "what the ring replaces is no drop", {{2, 3, -1, DROP_HEAD, -1, -1}, 0}, ring_is_smaller},
    {"length is smaller",
     "what the length drops is not replaced",
     {{3, 2, -1, DROP_HEAD, -1, -1}, 0},
     length_is_smaller},
    {"ring as small",
     "of two limits that are the same the ring's counts",
     {{2, 2, -1, DROP_HEAD, -1, -1}, 0},
     ring_is_smaller},
    {"expired is no victim", "a victim that is expired counts as that", RING(1), expired_is_no_victim},
    {"living is a victim", "a victim that would expire later is replaced", RING(1), living_is_a_victim},
    {"lazily smaller", "a ring that was shrunk lazily follows what is left", RING(5), lazily_smaller},
    {"trimmed", "a ring that is trimmed replaces what is too many", RING(5), trimmed},
    {"abandoned", "what is abandoned gives its place back", LENGTH(2, BLOCK), abandoned},
    {"returned", "what is returned is counted as it was", LENGTH(2, BLOCK), requeued},
    {"settled once", "a message is settled by its holder, once", LENGTH(2, BLOCK), settled_once},
    {"purged in steps", "a purge removes more than one step does", FREELY, purged_in_steps},
    {"purged", "a purge kills what is ready, and nothing that is held", LENGTH(3, BLOCK), purged},
};
const subject ACCOUNT_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
