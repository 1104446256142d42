// SPDX-License-Identifier: Apache-2.0
/* sb_api_transaction: what happens while a commit copies a body, or carries out what was decided. */
#include <string.h>

#include "committing.h"

#define UNLOCKED (SB_UNLOCKED_COPY + 1)

static char *body;
static unsigned locked, busy[2], use;
static void look(void) {
  locked = SB_LOAD(&t.c->lock, SB_RELAXED);
  busy[0] = target[0]->busy;
  busy[1] = target[1]->busy;
  use = t.c->use;
}
static sb_publication long_one(uint64_t length) {
  sb_publication p = first_targets(0, 1);
  p.body = body;
  p.length = length;
  return p;
}
static void begin_long(void) {
  body = untouched(4 * UNLOCKED);
  make_targets(2, UNLIMITED);
  put_into(1);
  hold_for(1, 0, SB_REQUEUE);
  note_rest(target[0]);
}
static void the_lock_while_a_body_is_copied(void) {
  begin_long();
  sb_publication p = long_one(SB_UNLOCKED_COPY);
  at_touch(body, look);
  expect_is(commit_now(&p, 1, 1), SB_OK, "the status of a short body");
  expect(touches == 1 && locked == 1 && busy[0] == 0, "the lock was dropped for a short body");
  hold_for(1, 0, SB_REQUEUE);
  p = long_one(UNLOCKED);
  at_touch(body, look);
  begin_watching(t.c);
  expect_is(commit_now(&p, 1, 1), SB_OK, "the status of a long body");
  expect(touches == 2 && locked == 0 && busy[0] == 1 && busy[1] == 1, "the lock was held, or a queue was not busy");
  expect_is(use, SB_USE_DRAIN, "the use of memory meanwhile");
  expect_is(target[1]->busy, 0, "how busy the other queue is");
  hold_for(1, 0, SB_REQUEUE);
  expect_rest("a commit of a long body");
}
static void look_at_ledger_later(void) { at_touch(target[0]->ledger, look); }
static void the_lock_after_it(void) {
  begin_long();
  sb_publication p = long_one(UNLOCKED);
  at_touch(body, look_at_ledger_later);
  expect_is(commit_now(&p, 1, 0), SB_OK, "the status");
  expect(touches == 2 && locked == 1, "it was carried out without the lock");
}
static void settle_meanwhile(void) { (void)sb_api_end(target[1], settling[0].token & SB_TAG_TOKEN, SB_ACK); }
static void settled_meanwhile(void) {
  begin_long();
  sb_publication p = long_one(UNLOCKED);
  at_touch(body, settle_meanwhile);
  expect_blamed(commit_now(&p, 1, 1), SB_SETTLED, NOBODY, NOBODY, "a message that was settled meanwhile");
  expect_is(added_to(0), 0, "the number of messages");
  put_into(1);
  hold_for(1, 0, SB_ACK);
  note_rest(target[0]);
  at_touch(body, settle_meanwhile);
  expect_is(commit_now(&p, 1, 1), SB_SETTLED, "the status of one that was to be acknowledged");
  expect_is(added_to(0), 0, "the number of messages");
  expect_is(counted(target[1], SB_COUNT_ACKED), 2, "the number acknowledged");
}
static void close_meanwhile(void) { SB_STORE(&t.c->closed, 1u, SB_SEQ_CST); }
static void closed_meanwhile(void) {
  begin_long();
  sb_publication p[2] = {long_one(UNLOCKED), first_targets(1, 1)};
  at_touch(body, close_meanwhile);
  expect_is(commit_now(p, 2, 0), SB_CLOSED, "the status");
  expect_is(added_to(0), 0, "the number of messages");
  expect_calm("a commit that was closed meanwhile");
}
static bool is_any(uint32_t slot) { return slot != 0; }
static bool is_head(uint32_t slot) {
  return sb_parts_is_head(t.b, slot, SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED));
}
static uint32_t held_as(unsigned kind, bool (*is)(uint32_t slot)) {
  for (uint32_t i = SB_HOLDINGS_FIRST; i < SB_HOLDINGS_PER_CHUNK; i++) {
    uint64_t what = SB_LOAD(&((sb_holdings_shm *)sb_slot_at(t.b, t.c->shm->holdings))->entries[i].what, SB_RELAXED);
    if (sb_holding_kind(what) == kind && is(sb_holding_slot(what))) return sb_holding_slot(what);
  }
  return 0;
}
/* Another commit of the connection may be decided meanwhile: the reaper that carries it out must free this body. */
static void expect_unlisted(void) {
  expect(held_as(SB_HOLD_SLOT, is_any) != 0 && held_as(SB_HOLD_PUBLICATION, is_any) == 0,
         "the commit word decides about the body");
}
static void listed_when_staged(void) {
  begin_long();
  sb_publication p = long_one(UNLOCKED);
  at_touch(body, expect_unlisted);
  expect_is(commit_now(&p, 1, 0), SB_OK, "the status");
}
static void break_them(void) { break_parts(held_as(SB_HOLD_SLOT, is_head)); }
static void bodies_in_parts(void) {
  begin_long();
  leave_chunks(0);
  for (size_t i = 0; i < 4 * UNLOCKED; i++) body[i] = (char)(i % 251);
  sb_publication p = long_one(3 * UNLOCKED);
  note_rest(target[0]);
  expect_is(commit_now(&p, 1, 0), SB_OK, "the status of a body in parts");
  uint64_t view;
  static char copied[3 * UNLOCKED];
  expect(sb_queue_get(target[0], got, false) > 0, "there is no message");
  const sb_record *r = (const sb_record *)(const void *)got;
  expect_is(sb_view_begin(t.c, r->tag, r->sequence, SB_IN_PARTS, &view), SB_OK, "the status of a view");
  expect_is(sb_view_copy(t.c, view, copied, sizeof copied), SB_OK, "the status of a copy");
  expect(memcmp(copied, body, sizeof copied) == 0, "the body is another one");
  (void)sb_view_end(t.c, view);
  expect_is(sb_queue_settle(target[0], got, SB_ACK), SB_OK, "the status of its end");
  expect_rest("a body in parts");
  at_touch(body, break_them);
  expect_is(commit_now(&p, 1, 0), SB_CORRUPT, "the status of parts that break");
  expect_is(added_to(0), 1, "the number of messages");
  expect_rest("parts that break");
}
static void close_queue_when_decided(const char *site) {
  if (strcmp(site, "commit.decided") != 0) return;
  at_step = NULL;
  mark_closed(target[0]);
}
static void a_queue_closed_meanwhile(void) {
  if (!has_steps()) return;
  make_targets(2, UNLIMITED);
  sb_publication p = first_targets(0, 2);
  at_step = close_queue_when_decided;
  expect_is(commit_now(&p, 1, 0), SB_OK, "the status");
  expect_is(counted(target[0], SB_COUNT_KILLED), 1, "the number that ended with their queue");
  expect_is(sb_queue_length(target[1]), 1, "the number in the other queue");
}
/* Two rings seem to hold less than they do: two producers died in debt. */
static void debts_are_paid(void) {
  make_targets(3, (sb_settings){{3, -1, -1, 0, -1, -1}, 0});
  target[2] = make_queue("free", UNLIMITED);
  for (unsigned i = 0; i < 2; i++) {
    for (int n = 0; n < 3; n++) put_into(i);
    SB_STORE(&target[i]->shm->settings[SB_SETTING_RING_SIZE], 2, SB_RELAXED);
    die_in_debt((char[]){(char)('a' + i), 0});
  }
  note_rest(target[0]);
  sb_publication p = first_targets(0, 3);
  expect_is(commit_now(&p, 1, 0), SB_OK, "the status");
  for (unsigned i = 0; i < 2; i++) expect_is(counted(target[i], SB_COUNT_REPLACED), 2, "the number replaced");
  expect_rest("a commit that paid debts");
}

/* The first debt is paid while another thread closes the connection: nothing more is done. */
static void close_while_reaping(const char *site) {
  if (strcmp(site, "recover.begun") != 0) return;
  at_step = NULL;
  (void)sb_connection_close(t.c);
}
static void closed_while_debts_are_paid(void) {
  if (!has_steps()) return;
  make_targets(2, (sb_settings){{3, -1, -1, 0, -1, -1}, 0});
  for (unsigned i = 0; i < 2; i++) {
    for (int n = 0; n < 3; n++) put_into(i);
    SB_STORE(&target[i]->shm->settings[SB_SETTING_RING_SIZE], 2, SB_RELAXED);
    die_in_debt((char[]){(char)('a' + i), 0});
  }
  sb_publication p = first_targets(0, 2);
  at_step = close_while_reaping;
  expect_is(commit_now(&p, 1, 0), SB_OK, "the status");
  expect_is(counted(target[1], SB_COUNT_REPLACED), 1, "the number replaced in the second ring");
}
/* The only target is deleted while the body is copied: it goes nowhere, and the housekeeper is told of no timer. */
static void delete_meanwhile(void) {
  int32_t holder;
  uint64_t removed;
  (void)sb_queue_delete(target[0], false, false, FOREVER, &holder, &removed);
}
static void deleted_meanwhile(void) {
  begin_long();
  uint32_t keeper = wait_at(target[1], FOR_ROOM, 0);
  sb_half *wake = &((sb_node_shm *)sb_slot_at(t.b, keeper))->wake;
  sb_publication p = long_one(UNLOCKED);
  const sb_put_options timed = {.ttl_ns = UINT64_C(1) << 50};
  p.options = &timed;
  note_rest(target[1]);
  SB_STORE(&t.b->header->next_due_ns, UINT64_MAX, SB_RELAXED);
  SB_STORE(&t.b->header->housekeeper_waiter, keeper, SB_RELAXED);
  uint32_t armed = sb_wake_arm(wake);
  at_touch(body, delete_meanwhile);
  expect_is(commit_now(&p, 1, 0), SB_OK, "the status");
  expect_is(*wake, armed, "the housekeeper's word");
  expect_rest("a commit whose queue was deleted");
}
static const test_case CASES[] = {
    {"api_transaction_meanwhile: closed, debts", "a connection that closes pays no more debts",
     closed_while_debts_are_paid},
    {"api_transaction_meanwhile: deleted", "a body whose queue is deleted meanwhile goes nowhere", deleted_meanwhile},
    {"api_transaction_meanwhile: lock", "a long body is copied without the lock", the_lock_while_a_body_is_copied},
    {"api_transaction_meanwhile: lock again", "a commit is carried out with the lock", the_lock_after_it},
    {"api_transaction_meanwhile: settled", "a message that was settled meanwhile ends the commit", settled_meanwhile},
    {"api_transaction_meanwhile: closed", "a connection that closed meanwhile commits nothing", closed_meanwhile},
    {"api_transaction_meanwhile: list", "a body is listed when its copy is complete", listed_when_staged},
    {"api_transaction_meanwhile: parts", "a body in parts is published whole", bodies_in_parts},
    {"api_transaction_meanwhile: queue closed", "what went into a queue that closed meanwhile ends",
     a_queue_closed_meanwhile},
    {"api_transaction_meanwhile: debts", "debts of dead producers are paid", debts_are_paid},
};
SUBJECT(CASES)
