// SPDX-License-Identifier: Apache-2.0
/* sb_limits: what is admitted, evicted and removed, and when there is doubt. In a build with steps the cases also act
 * for another process inside a call. */
#include "sb_limits.h"

#include "cells.h"
#include "meanwhile.h"
#include "sb_wait.h"
#include "system.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define OF_RING(n) ((sb_settings){{(n), -1, -1, 0, -1, -1}, 0})
#define REFUSING(n, bytes) ((sb_settings){{-1, (n), (bytes), SB_OVERFLOW_BLOCK, -1, -1}, 0})
#define DROPPING(n, bytes) ((sb_settings){{-1, (n), (bytes), SB_OVERFLOW_DROP_HEAD, -1, -1}, 0})

static sb_queue *q;

static void begin(sb_settings settings, unsigned messages) { q = begin_queue("q", settings, messages); }
/* The settings become those of a small ring, although more messages are ready: no producer has evicted yet. */
static void shrink(int64_t ring, uint64_t bound) {
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], ring, SB_RELAXED);
  SB_STORE(&q->shm->bound, bound, SB_RELAXED);
}
static void limit_bytes(int64_t bytes) { SB_STORE(&q->shm->settings[SB_SETTING_MAX_BYTES], bytes, SB_RELAXED); }
static void at_tail(void) { /* the cursor has passed all */
  q->lanes[0].cursor = SB_LOAD(&q->shm->tail, SB_RELAXED);
  q->lanes[0].head_leaf = SB_NO_LEAF;
}
static void hold(unsigned from, unsigned to) {
  for (unsigned i = from; i < to; i++) set_cell(i, SB_CELL_ACQUIRED, OTHER);
}
static uint64_t count_of(unsigned counter) { return q->ledger->counters[counter]; }
static unsigned state_of(unsigned number) { return sb_cell_state(word_of(number)); }
static void expect_account(uint64_t admitted, uint64_t bytes_in, uint64_t taken, uint64_t bytes_out, const char *what) {
  expect_is(q->shm->admitted - q->base, admitted, what);
  expect_is(q->shm->bytes_in, bytes_in, what);
  expect_is(q->shm->taken, taken, what);
  expect_is(q->shm->bytes_out, bytes_out, what);
  expect_is(hinting_depth(), 0, what);
}
static uint64_t removed;
static bool keep(void) {
  removed = 0;
  return sb_limits_keep(q, &removed);
}

/* ---- room ---- */

static uint64_t reserved(void) { return q->ledger->admitting; }
static void admit(uint64_t bytes, sb_status should, const char *what) {
  sb_status is = sb_limits_admit(q, bytes);
  expect_is(is, should, what);
  expect_is(hinting_depth(), is == SB_OK, what);
  expect_is(reserved(), is == SB_OK ? SB_FIELD(1, 40) | bytes : 0, what);
  if (is == SB_OK) sb_limits_published(q, bytes);
  expect_is(reserved(), 0, what);
}
static void what_is_admitted(void) {
  begin(REFUSING(3, 100), 0);
  admit(101, SB_TOO_LARGE, "more bytes than there can ever be");
  expect_account(0, 0, 0, 0, "what was refused");
  admit(25, SB_OK, "one of three");
  admit(25, SB_OK, "two of three");
  admit(51, SB_FULL, "a byte too many");
  expect_account(2, 50, 0, 0, "what was admitted");
  admit(40, SB_OK, "the last one");
  admit(10, SB_FULL, "one too many");
  expect_account(3, 90, 0, 0, "a full queue");
}
/* What a queue without room returns depends on the overflow, and so does what it returns for more than its limit. */
static void what_each_overflow_returns(void) {
  const sb_status full[SB_OVERFLOWS] = {SB_FULL, SB_DONE, SB_OK, SB_REJECTED, SB_REJECTED, SB_FULL};
  const sb_status never[SB_OVERFLOWS] = {SB_TOO_LARGE, SB_TOO_LARGE, SB_OK, SB_REJECTED, SB_REJECTED, SB_TOO_LARGE};
  for (int64_t overflow = 0; overflow < SB_OVERFLOWS; overflow++) {
    const char *names[SB_OVERFLOWS] = {"blocks", "drops", "evicts", "rejects", "buries", "pages"};
    q = begin_queue(names[overflow], (sb_settings){{-1, 1, 100, overflow, -1, -1}, 0}, 0);
    admit(101, never[overflow], "more than the limit");
    if (overflow != SB_OVERFLOW_DROP_HEAD) expect_account(0, 0, 0, 0, "what is kept of it");
    admit(60, SB_OK, "what fits");
    admit(10, full[overflow], "one message too many");
    SB_STORE(&q->shm->settings[SB_SETTING_MAX_LENGTH], 2, SB_RELAXED);
    admit(41, full[overflow], "a byte too many");
    if (overflow != SB_OVERFLOW_DROP_HEAD) expect_account(1, 60, 0, 0, "what is kept of that");
  }
}
/* What is dead from the start needs no room, but dead letters. */
static void the_dead_need_no_room(void) {
  begin(REFUSING(1, 100), 0);
  expect_is(sb_limits_admit_dead(q, 10), SB_INVALID, "without dead letters");
  expect_account(0, 0, 0, 0, "what is kept of it");
  expect_is(reserved(), 0, "what is reserved for it");
  q = begin_queue("buries", (sb_settings){{-1, 1, 100, SB_OVERFLOW_REJECT_PUBLISH_DLX, -1, -1}, SB_QUEUE_DEAD_LETTERS},
                  0);
  admit(60, SB_OK, "what fits");
  expect_is(sb_limits_admit_dead(q, 200), SB_OK, "in a full queue");
  expect_is(hinting_depth(), 1, "how many are not published");
  expect_is(reserved(), SB_FIELD(1, 40) | 200, "what is reserved");
  sb_limits_unadmit(q, 200);
  expect_account(1, 60, 0, 0, "what is left when it is taken back");
}
static void what_is_taken_back(void) {
  begin(REFUSING(3, 100), 0);
  for (uint64_t i = 1; i <= 3; i++) {
    expect_is(sb_limits_admit(q, 10 * i), SB_OK, "one of three");
    expect_is(hinting_depth(), i, "how many are not published");
  }
  expect_is(reserved(), SB_FIELD(3, 40) | 60, "what is reserved");
  sb_limits_unadmit(q, 20);
  expect_is(reserved(), SB_FIELD(2, 40) | 40, "what is reserved when one is taken back");
  sb_limits_published(q, 10);
  sb_limits_published(q, 30);
  expect_account(2, 40, 0, 0, "what is left when one is taken back");
  expect_is(reserved(), 0, "what is reserved in the end");
}
static void what_is_not_counted(void) {
  begin(FREE_SETTINGS, 0);
  for (unsigned i = 0; i < 3; i++) admit(100, SB_OK, "any number");
  expect_account(0, 0, 0, 0, "a queue without limits");
  (void)sb_limits_admit(q, 100);
  sb_limits_unadmit(q, 100);
  expect_account(0, 0, 0, 0, "a queue without limits, when it is taken back");
  expect_is(reserved(), 0, "what is reserved there");
}
/* Another producer is admitted at the same moment. */
static void another_place(void) { (void)SB_ADD(&q->shm->admitted, 1, SB_SEQ_CST); }
static void other_bytes(void) { (void)SB_ADD(&q->shm->bytes_in, 10, SB_SEQ_CST); }
static void two_are_admitted(void) {
  begin(REFUSING(3, 100), 0);
  meanwhile(&q->shm->admitted, BEFORE_CAS, 1, another_place);
  admit(20, SB_OK, "one of two");
  expect_account(1u + has_acted(), 20, 0, 0, "the places");
  uint64_t places = q->shm->admitted - q->base + 1;
  meanwhile(&q->shm->bytes_in, BEFORE_CAS, 1, other_bytes);
  admit(20, SB_OK, "one of two");
  expect_account(places, 40u + 10u * has_acted(), 0, 0, "the bytes");
}

/* ---- eviction ---- */

static void the_oldest_are_evicted(void) {
  begin(OF_RING(5), 5);
  shrink(2, 0);
  message_of(0)->expires_ns = sb_now_ns();
  message_of(1)->expires_ns = UINT64_MAX;
  expect(keep(), "there is doubt although the cells say that all fits");
  expect_is(removed, 3, "how many were removed");
  expect_is(count_of(SB_COUNT_EXPIRED), 1, "what has expired");
  expect_is(count_of(SB_COUNT_REPLACED), 2, "what was replaced");
  expect_account(5, 5 * BYTES, 3, 3 * BYTES, "the account");
  expect_is(state_of(3), SB_CELL_AVAILABLE, "the oldest that is left");
  expect(keep(), "there is doubt afterwards");
  expect_is(removed, 0, "how many were removed at the second time");
}
static void queues_that_evict_nothing(void) {
  begin(REFUSING(100, 1000), 3);
  limit_bytes(100); /* more is in it: it refuses, but does not evict */
  at_tail();
  mark(0);
  expect(!keep(), "there is no doubt although messages came back");
  expect_is(removed, 0, "how many were removed");
  q = begin_queue("free", FREE_SETTINGS, 1);
  mark(0);
  expect(keep(), "there is doubt in a queue without limits");
}
/* The bound of a ring that was shrunk lazily falls also where nothing is evicted. */
static void the_bound_falls(void) {
  begin(OF_RING(9), 4);
  shrink(2, 9);
  q->lanes[0].cursor = at(3);
  q->shm->taken = 1;
  expect(!keep(), "there is no doubt although the bound is above the ring");
  expect_is(q->shm->bound, 3, "the bound");
  expect_is(removed, 0, "how many were removed");
}
/* What came back lies before the cursor: the counts alone say that it is too many. */
static void what_came_back_is_evicted(void) {
  begin(OF_RING(9), 4);
  shrink(2, 0);
  at_tail();
  for (unsigned i = 0; i < 4; i++) mark(i);
  (void)keep();
  expect_is(removed, 2, "how many were removed");
  expect_is(state_of(1), SB_CELL_TOMBSTONE, "the second of them");
  expect_is(state_of(2), SB_CELL_AVAILABLE, "the third of them");
}
/* The counts say that it is too many, and the cells that nothing is there: the payment is taken back. */
static void no_victim(void) {
  begin(OF_RING(9), 3);
  hold(0, 3);
  shrink(1, 0);
  expect(!keep(), "there is no doubt although the counts are wrong");
  expect_is(removed, 0, "how many were removed");
  expect_account(3, 3 * BYTES, 0, 0, "the account");
}
/* Then more is put, by a producer that saw the payment, and evicted nothing. */
static void more_is_put(void) {
  set_cell(0, SB_CELL_AVAILABLE, 0);
  mark(0);
  (void)SB_ADD(&q->shm->tail, 1, SB_SEQ_CST);
}
static void no_victim_beside_a_put(void) {
  begin(OF_RING(9), 3);
  hold(0, 3);
  shrink(1, 0);
  meanwhile(&q->shm->taken, BEFORE_CHANGE, 1, more_is_put);
  (void)keep();
  if (has_acted()) expect_is(removed, 1, "how many were removed: what was put is too many");
}
static void no_victim_of_bytes_beside_a_put(void) {
  begin(DROPPING(-1, 1000), 3);
  hold(0, 3);
  limit_bytes(2 * BYTES);
  meanwhile(&q->shm->bytes_out, BEFORE_CHANGE, 1, more_is_put);
  (void)keep();
  if (has_acted()) expect_is(removed, 1, "how many were removed: what was put is too much");
}
/* Another process pays at the same moment, or takes. */
static void another_pays(void) { (void)SB_ADD(&q->shm->taken, 1, SB_SEQ_CST); }
static void two_that_pay(void) {
  begin(OF_RING(9), 3);
  shrink(1, 0);
  meanwhile(&q->shm->taken, BEFORE_CAS, 1, another_pays);
  (void)keep();
  if (!has_acted()) return;
  expect_is(removed, 1, "how many were removed");
  expect_account(3, 3 * BYTES, 2, BYTES, "the account");
}
/* A consumer counts itself after the payment, so the victim stays; then it takes nothing, and the victim goes. */
static void count_back(void) { (void)SB_SUB(&q->shm->taken, 1, SB_SEQ_CST); }
static void counts_itself(void) {
  (void)SB_ADD(&q->shm->taken, 1, SB_SEQ_CST);
  meanwhile(&q->shm->taken, BEFORE_CHANGE, 1, count_back);
}
static void a_victim_that_stays(void) {
  begin(OF_RING(9), 2);
  shrink(1, 0);
  meanwhile(&q->shm->bytes_in, AFTER_LOAD, 1, counts_itself);
  (void)keep();
  if (!has_acted()) return;
  expect_is(removed, 1, "how many were removed");
  expect_account(2, 2 * BYTES, 1, BYTES, "the account");
}
/* An older one comes back when the victim was taken: that one goes, and the victim stays. */
static void older_comes_back(void) {
  set_cell(0, SB_CELL_AVAILABLE, 0);
  mark(0);
}
static void a_victim_that_is_passed_over(void) {
  begin(OF_RING(9), 3);
  shrink(1, 0);
  hold(0, 1);
  q->shm->taken = 1;
  meanwhile(&q->ledger->holding, BEFORE_STORE, 1, older_comes_back);
  (void)keep();
  if (!has_acted()) return;
  expect_is(state_of(0), SB_CELL_TOMBSTONE, "the older one");
  expect_is(state_of(2), SB_CELL_AVAILABLE, "the newest one");
  expect_is(hinting_depth(), 0, "the changes of hints that are not over");
}
static void no_holding(void) {
  uint64_t token;
  begin(OF_RING(9), 3);
  shrink(1, 0);
  grow_to(BROKER_CHUNKS - 1);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    uint64_t none = sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0);
    (void)SB_CAS(&t.b->chunks[i], &none, sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_ACQ_REL);
  }
  while (sb_holding_take(t.c, &token) == SB_OK) {
  }
  expect(!keep(), "there is no doubt although there is no holding");
  expect_account(3, 3 * BYTES, 0, 0, "the account");
  expect_is(state_of(0), SB_CELL_AVAILABLE, "the oldest");
  removed = 0;
  expect_is(sb_limits_remove(q, SB_REASON_PURGED, at(3), 3, &removed), SB_NO_MEMORY, "the status of a removal");
  expect_is(removed, 0, "how many were removed");
}

/* ---- bytes ---- */

static void bytes_that_are_too_many(void) {
  begin(DROPPING(-1, 1000), 4);
  limit_bytes(2 * BYTES);
  (void)keep();
  expect_is(removed, 2, "how many were removed");
  expect_is(count_of(SB_COUNT_DROPPED), 2, "what was dropped");
  expect_account(4, 4 * BYTES, 2, 2 * BYTES, "the account");
}
/* The size of the victim is paid while it is looked for. */
static uint64_t paid;
static void look_at_payment(void) { paid = q->shm->bytes_out; }
/* In sb_limits_keep the limit is loaded by surely_fits, bound, pay_bytes, and too_large. */
#define PAYING 3
#define PAID 4
static void a_payment_in_bytes(void) {
  begin(DROPPING(-1, 1000), 3);
  limit_bytes(2 * BYTES);
  meanwhile(&q->shm->settings[SB_SETTING_MAX_BYTES], AFTER_LOAD, PAID, look_at_payment);
  (void)keep();
  expect(!has_acted() || paid == BYTES, "%d bytes were paid", (int)paid);
}
static void the_limit_goes(void) { limit_bytes(-1); }
static void a_limit_that_is_gone(void) {
  begin(DROPPING(-1, 1000), 3);
  limit_bytes(2 * BYTES);
  meanwhile(&q->shm->settings[SB_SETTING_MAX_BYTES], AFTER_LOAD, PAYING, the_limit_goes);
  (void)keep();
  if (!has_acted()) return;
  expect_is(removed, 0, "how many were removed");
  expect_account(3, 3 * BYTES, 0, 0, "the account");
}
/* A consumer takes bytes until just the limit is left: nothing is too many. */
static void take_bytes(void) { (void)SB_ADD(&q->shm->bytes_out, BYTES, SB_SEQ_CST); }
static void just_enough_bytes(const volatile void *word, meanwhile_when when, unsigned nth) {
  limit_bytes(2 * BYTES);
  meanwhile(word, when, nth, take_bytes);
  (void)keep();
  if (!has_acted()) return;
  expect_is(removed, 0, "how many were removed");
  expect_account(3, 3 * BYTES, 0, BYTES, "the account");
}
static void enough_before_the_payment(void) {
  begin(DROPPING(-1, 1000), 3);
  just_enough_bytes(&q->ledger->hinting, BEFORE_STORE, 1);
}
static void enough_after_the_payment(void) {
  begin(DROPPING(-1, 1000), 3);
  just_enough_bytes(&q->shm->settings[SB_SETTING_MAX_BYTES], AFTER_LOAD, PAID);
}
static void take_eight(void) { (void)SB_ADD(&q->shm->bytes_out, 8, SB_SEQ_CST); }
static void two_that_pay_bytes(void) {
  begin(DROPPING(-1, 1000), 3);
  limit_bytes(2 * BYTES);
  meanwhile(&q->shm->bytes_out, BEFORE_CAS, 1, take_eight);
  (void)keep();
  if (!has_acted()) return;
  expect_is(removed, 1, "how many were removed");
  expect_account(3, 3 * BYTES, 1, BYTES + 8, "the account");
}
/* The victim goes back, since an older message returned: then it counts as ready again, and the bound must not have
 * fallen for it. */
static void older_returns(void) {
  older_comes_back();
  (void)SB_SUB(&q->shm->taken, 1, SB_SEQ_CST);
  (void)SB_SUB(&q->shm->bytes_out, BYTES, SB_SEQ_CST);
}
static void bytes_of_a_victim_that_is_passed_over(void) {
  begin((sb_settings){{5, -1, 1000, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0}, 5);
  hold(0, 1);
  q->shm->taken = 1;
  q->shm->bytes_out = BYTES;
  shrink(2, 4);
  limit_bytes(4 * BYTES - 1);
  meanwhile(&q->ledger->hinting, BEFORE_STORE, 3, older_returns); /* of the payment, and both of the take */
  (void)keep();
  if (!has_acted()) return;
  expect_is(state_of(0), SB_CELL_TOMBSTONE, "the older one");
  expect_is(count_of(SB_COUNT_REPLACED), 1, "what the ring had too many");
  expect_is(count_of(SB_COUNT_DROPPED), 1, "what were too many bytes");
  expect_is(q->shm->bound, 3, "the bound");
  expect_account(5, 5 * BYTES, 2, 2 * BYTES, "the account");
}

/* ---- doubt ---- */

static void when_there_is_doubt(void) {
  begin(OF_RING(9), 4);
  expect(!sb_limits_in_doubt(q), "there is doubt although all fits");
  shrink(2, 0);
  expect(sb_limits_in_doubt(q), "there is no doubt with four messages in a ring of two");
  expect_is(q->lanes[0].cursor, at(0), "the cursor");
  set_cell(0, SB_CELL_ACQUIRED, OTHER);
  expect(sb_limits_in_doubt(q), "there is no doubt with three messages");
  expect_is(q->lanes[0].cursor, at(1), "the cursor behind what is held");
  set_cell(1, SB_CELL_SCHEDULED, 0);
  expect(sb_limits_in_doubt(q), "there is no doubt with one that is held back, and may become ready");
  expect_is(q->lanes[0].cursor, at(1), "the cursor at what is held back");
  const unsigned states[] = {SB_CELL_ACQUIRED, SB_CELL_REMOVING, SB_CELL_TOMBSTONE};
  for (unsigned i = 0; i < 3; i++) {
    set_cell(1, states[i], OTHER);
    q->lanes[0].cursor = at(0);
    expect(!sb_limits_in_doubt(q), "there is doubt with two messages");
    expect_is(q->lanes[0].cursor, at(2), "the cursor behind what was taken");
  }
  set_word(1, sb_cell_bare(SB_CELL_TOMBSTONE, leaf_of(1).gen + 1));
  q->lanes[0].cursor = at(0);
  expect(sb_limits_in_doubt(q), "there is no doubt at a word of another page");
  expect_is(q->lanes[0].cursor, at(1), "the cursor at a word of another page");
  at_tail();
  mark(2);
  expect(sb_limits_in_doubt(q), "there is no doubt although messages came back");
  SB_STORE(&q->shm->tracking, 0, SB_RELAXED);
  expect(!sb_limits_in_doubt(q), "there is doubt in a queue that does not track");
}
static void no_doubt_without_limits(void) {
  begin(REFUSING(9, -1), 2);
  mark(0);
  expect(!sb_limits_in_doubt(q), "there is doubt in a queue that evicts nothing");
}
/* All of a leaf was taken: it is there, or gone; the next one is there, or not. */
static void doubt_behind_a_leaf(void) {
  begin(OF_RING(200), 64);
  hold(0, 64);
  shrink(2, 0);
  expect(!sb_limits_in_doubt(q), "there is doubt in a leaf that was taken");
  expect_is(q->lanes[0].cursor, at(64), "the cursor behind the leaf");
  q = begin_queue("gone", OF_RING(200), 68);
  sb_leaf_ref leaf = leaf_of(0);
  for (unsigned i = 0; i < 64; i++) sb_ring_finish(t.c, &q->lanes[0].ring, &leaf, at(i));
  shrink(2, 0);
  q->lanes[0].head_leaf = SB_NO_LEAF;
  SB_STORE(&q->shm->head, at(0), SB_RELAXED);
  q->lanes[0].cursor = at(0);
  expect(sb_limits_in_doubt(q), "there is no doubt with four messages");
  expect_is(q->lanes[0].cursor, at(64), "the cursor behind the leaf that is gone");
}

/* ---- bounds and removals ---- */

static void a_bound_is_set(void) {
  begin(OF_RING(9), 3);
  note_order(&q->shm->bound);
  sb_limits_set_bound(q, false);
  int order = noted_order();
  expect(order < 0 || order == SB_SEQ_CST, "the bound is stored in order %d", order);
  expect_is(q->shm->bound, 3, "the bound");
  sb_limits_set_bound(q, true);
  expect_is(q->shm->bound, 0, "the bound when it is trimmed");
}
/* What is removed is added. */
static void expect_removed(uint64_t end, uint64_t limit, sb_status status, uint64_t should, const char *what) {
  removed = 7;
  expect_is(sb_limits_remove(q, SB_REASON_PURGED, end, limit, &removed), status, what);
  expect_is(removed, 7 + should, what);
}
static void what_is_removed(void) {
  begin(OF_RING(9), 5);
  uint64_t next = new_token();
  sb_holding_give(t.c, next);
  expect_removed(at(5), 2, SB_OK, 2, "how many were removed of two");
  expect_removed(at(3), 9, SB_EMPTY, 1, "how many were removed before the end");
  expect_is(count_of(SB_COUNT_KILLED), 3, "what was killed");
  expect_is(state_of(3), SB_CELL_AVAILABLE, "the oldest that is left");
  expect_is(new_token(), next, "the next holding");
  sb_holding_give(t.c, next);
  shrink(1, 0);
  expect_removed(at(3), 9, SB_EMPTY, 0, "how many were removed where none is");
  expect_is(count_of(SB_COUNT_REPLACED), 1, "what was evicted afterwards");
}

/* ---- at the bounds, and where words are wrong ---- */

static void a_victim_expires_now(void) {
  begin(OF_RING(5), 2);
  shrink(1, 0);
  answer_for_the_system();
  message_of(0)->expires_ns = sb_now_ns();
  (void)keep();
  expect_is(count_of(SB_COUNT_EXPIRED), 1, "what has expired");
}
/* No setting is 0, but a word may be: it is a limit, too. */
static void limits_of_nothing(void) {
  begin(REFUSING(9, 1000), 1);
  SB_STORE(&q->shm->settings[SB_SETTING_MAX_LENGTH], 0, SB_RELAXED);
  expect(!sb_limits_room(q->shm, 1, 1), "there is room for a message");
  admit(1, SB_TOO_LARGE, "a message");
  SB_STORE(&q->shm->settings[SB_SETTING_MAX_LENGTH], -1, SB_RELAXED);
  limit_bytes(0);
  expect(!sb_limits_room(q->shm, 1, 1), "there is room for a byte");
  admit(1, SB_TOO_LARGE, "a byte");
  admit(0, SB_FULL, "no byte, beside some");
  q = begin_queue("ring", OF_RING(9), 1);
  shrink(0, 0);
  (void)keep();
  expect_is(removed, 1, "how many were removed from a ring of nothing");
  shrink(0, 5);
  at_tail();
  (void)keep();
  expect_is(q->shm->bound, 0, "the bound of a ring of nothing");
  q = begin_queue("length", DROPPING(9, -1), 1);
  SB_STORE(&q->shm->settings[SB_SETTING_MAX_LENGTH], 0, SB_RELAXED);
  (void)keep();
  expect_is(removed, 1, "how many were removed from a queue for nothing");
  q = begin_queue("bytes", DROPPING(-1, 1000), 1);
  limit_bytes(0);
  (void)keep();
  expect_is(removed, 1, "how many were removed from a queue for no byte");
}
/* The count of what was taken is far too low, but the cells say that all fits: nothing is evicted. */
static void all_fits(const char *name, sb_settings settings, uint64_t bound, const char *what) {
  q = begin_queue(name, settings, 4);
  SB_STORE(&q->shm->bound, bound, SB_RELAXED);
  SB_STORE(&q->shm->taken, UINT64_C(0) - 100, SB_RELAXED);
  expect(keep(), "%s: there is doubt", what);
  expect_is(removed, 0, what);
}
static void cells_that_say_that_all_fits(void) {
  all_fits("a", OF_RING(9), 0, "what was removed from a ring");
  all_fits("b", OF_RING(9), 9, "what was removed from a ring at its bound");
  all_fits("c", OF_RING(4), 0, "what was removed from a ring that is full");
  all_fits("d", DROPPING(9, -1), 0, "what was removed from a queue with a length");
  all_fits("e", (sb_settings){{9, -1, -1, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0}, 0,
           "what was removed from a ring that drops");
  all_fits("f", (sb_settings){{9, -1, 1000, SB_OVERFLOW_BLOCK, -1, -1}, 0}, 0,
           "what was removed from a ring that refuses bytes");
}
/* Nothing that is ready lies below the shared hint, nor below the cursor of the handle, whichever is later. */
static void where_the_cells_begin(void) {
  for (unsigned i = 0; i < 2; i++) {
    q = begin_queue(i == 0 ? "hint" : "cursor", OF_RING(9), 4);
    hold(0, 3);
    SB_STORE(&q->shm->head, at(i == 0 ? 3 : 0), SB_RELAXED);
    q->lanes[0].cursor = at(i == 0 ? 0 : 3);
    shrink(1, 0);
    expect(keep(), "there is doubt with one message in a ring of one");
    expect_is(removed, 0, "how many were removed");
  }
}
static void no_payment_below_the_limit(void) {
  begin(DROPPING(-1, 1000), 2);
  uint32_t raised = hinting_raised();
  (void)keep();
  expect_is(hinting_raised(), raised, "the changes of hints below the limit");
  limit_bytes(2 * BYTES);
  (void)keep();
  expect_is(hinting_raised(), raised, "the changes of hints at the limit");
}
/* The handle remembers its leaf, so it needs no way to it. */
static void no_doubt_below_a_broken_root(void) {
  begin(OF_RING(9), 4);
  hold(0, 2);
  shrink(2, 0);
  q->lanes[0].head_leaf = leaf_of(0);
  uint64_t root = SB_LOAD(q->lanes[0].ring.root, SB_RELAXED);
  SB_STORE(q->lanes[0].ring.root, sb_link_word(0, slot_of(0), 5), SB_RELAXED);
  expect(!sb_limits_in_doubt(q), "there is doubt below a broken root");
  SB_STORE(q->lanes[0].ring.root, root, SB_RELAXED);
}

static const test_case CASES[] = {
    {"limits: admitted", "a queue that refuses admits what fits", what_is_admitted},
    {"limits: overflow", "each overflow has its answer", what_each_overflow_returns},
    {"limits: dead", "what is dead from the start needs no room", the_dead_need_no_room},
    {"limits: taken back", "a reservation that is taken back gives its room back, and only that", what_is_taken_back},
    {"limits: uncounted", "nothing is counted in a queue without limits", what_is_not_counted},
    {"limits: two", "two that are admitted are both counted", two_are_admitted},
    {"limits: evicted", "the oldest of a ring are evicted", the_oldest_are_evicted},
    {"limits: not evicted", "queues that refuse, or have no limits, evict nothing", queues_that_evict_nothing},
    {"limits: bound", "the bound of a ring that was shrunk falls", the_bound_falls},
    {"limits: came back", "what came back before the cursor is evicted, too", what_came_back_is_evicted},
    {"limits: no victim", "a payment without a victim is taken back", no_victim},
    {"limits: put", "after a payment without a victim the eviction looks at what was put", no_victim_beside_a_put},
    {"limits: no victim, bytes", "what is put while nobody finds a victim is not too many bytes afterwards",
     no_victim_of_bytes_beside_a_put},
    {"limits: pay", "of two that pay at one time one pays again", two_that_pay},
    {"limits: stays", "a victim stays while the excess is gone", a_victim_that_stays},
    {"limits: passed over", "a victim stays if an older one came back", a_victim_that_is_passed_over},
    {"limits: no holding", "without a holding nothing is evicted", no_holding},
    {"limits: bytes", "the oldest go while there are too many bytes", bytes_that_are_too_many},
    {"limits: payment", "the bytes of a victim are paid while it is looked for", a_payment_in_bytes},
    {"limits: gone", "nothing is too large for a limit that is gone", a_limit_that_is_gone},
    {"limits: enough", "nothing is paid if a consumer takes enough before", enough_before_the_payment},
    {"limits: enough, paid", "a payment is taken back if a consumer takes enough", enough_after_the_payment},
    {"limits: pay bytes", "of two that pay bytes at one time one pays again", two_that_pay_bytes},
    {"limits: bytes, passed over", "the bound does not fall for a victim that goes back",
     bytes_of_a_victim_that_is_passed_over},
    {"limits: doubt", "there is doubt while cells behind what was taken are more than the bound", when_there_is_doubt},
    {"limits: no doubt", "there is none where nothing is evicted", no_doubt_without_limits},
    {"limits: doubt, leaf", "leaves that were taken, or are gone, are passed", doubt_behind_a_leaf},
    {"limits: set", "the bound is what is ready, or nothing", a_bound_is_set},
    {"limits: removed", "what is ready before the end is removed", what_is_removed},
    {"limits: now", "a victim expires in the nanosecond that it names", a_victim_expires_now},
    {"limits: nothing", "a limit of 0 is a limit", limits_of_nothing},
    {"limits: cells", "where the cells say that all fits, wrong counts evict nothing", cells_that_say_that_all_fits},
    {"limits: begin", "the cells are counted from the cursor or the shared hint on", where_the_cells_begin},
    {"limits: no payment", "no bytes are paid for while the limit is kept", no_payment_below_the_limit},
    {"limits: remembered", "a leaf that is remembered needs no way", no_doubt_below_a_broken_root},
};
SUBJECT(CASES)
