// SPDX-License-Identifier: Apache-2.0
/* sb_handles: the handles of a connection, which of them it detaches, and when it looks. */
#include "calls.h"
#include "sb_api.h"
#include "sb_wait.h"

#define MANY 66u /* handles: more than one look sees */
#define LONG_AGO UINT64_C(1)

static sb_queue *open_again(const char *name) {
  sb_queue *q = open_queue(&t, name);
  if (q == NULL) die("open", 0);
  return q;
}
/* As if their queues had been deleted, and the connection had not heard of it. */
static void delete_by_hand(sb_queue *q) {
  close_by_hand(q);
  SB_STORE(&t.b->header->queues_closed, t.b->header->queues_closed + 1, SB_SEQ_CST);
}
static bool is_there(const sb_queue *q) { return q->ledger != NULL; }
static bool stirs(void) { return sb_handles_stir(t.c); }
static sb_leaf_ref a_leaf(void) { return (sb_leaf_ref){.slot = 7, .gen = 8, .first = 64}; }
static void remember_pages(sb_queue *q) {
  q->lanes[0].tail_leaf = q->lanes[0].head_leaf = a_leaf();
  q->lanes[0].way = (sb_requeued_way){.leaf = a_leaf()};
}
static bool is_no_leaf(const sb_leaf_ref *leaf) {
  return leaf->leaf == NULL && leaf->first == UINT64_MAX && leaf->slot == 0;
}
static void expect_no_pages(const sb_queue *q, const char *what) {
  expect(is_no_leaf(&q->lanes[0].tail_leaf) && is_no_leaf(&q->lanes[0].head_leaf) && is_no_leaf(&q->lanes[0].way.leaf),
         "%s: pages are known", what);
}

/* ---- the list ---- */

static void handles_are_listed(void) {
  sb_queue *a = open_new("a", UNLIMITED), *b = open_new("b", UNLIMITED), *c = open_new("c", UNLIMITED);
  expect(t.c->queues == c && c->next == b && b->next == a && a->next == NULL, "the list forward is another one");
  expect(c->previous == NULL && b->previous == c && a->previous == b, "the list backward is another one");
  expect_is(t.c->handle_count, 3, "how many there are");
  expect_is(t.c->handles_due, 0, "how many are due");
  t.c->handles_next = b;
  expect(sb_queue_close(b), "the one in the middle stays");
  expect(c->next == a && a->previous == c, "the list without the one in the middle is another one");
  expect(t.c->handles_next == a, "the next look does not begin behind the one that went");
  t.c->handles_next = c;
  expect(sb_queue_close(a), "the last one stays");
  expect(t.c->queues == c && c->previous == NULL && c->next == NULL, "the list of the first one is another one");
  expect(t.c->handles_next == c, "the next look begins elsewhere");
  expect_is(t.c->handle_count, 1, "how many are left");
  expect(sb_queue_close(c), "the first one stays");
  expect(t.c->queues == NULL && t.c->handles_next == NULL, "the list is not empty");
}
static void a_new_handle_is_looked_at_too(void) {
  sb_queue *q = open_new("a", UNLIMITED), once = *q;
  t.c->handles_due = 2;
  sb_handle_add(&once);
  expect_is(t.c->handles_due, 3, "how many are due when some were");
  once.previous = q; /* what a copy says of its place is of no account */
  sb_queue another = once;
  t.c->handles_due = 0;
  sb_handle_add(&another);
  expect(another.previous == NULL && another.next == &once, "its place is another one");
  expect_is(t.c->handles_due, 0, "how many are due when none was");
  expect_is(t.c->handle_count, 3, "how many there are");
}
static void pages_are_forgotten(void) {
  sb_queue *a = open_new("a", UNLIMITED), *b = open_new("b", UNLIMITED);
  remember_pages(a);
  remember_pages(b);
  sb_handles_forget_pages(t.c);
  expect_no_pages(a, "one of two handles");
  expect_no_pages(b, "the other one");
}

/* ---- idle ---- */

static const sb_target_kind OF_ANOTHER_KIND = {.is_consumer = false};
static void what_keeps_a_handle(void) {
  sb_status status;
  sb_queue *a = open_new("a", UNLIMITED), *b = open_new("b", UNLIMITED), *c = open_new("c", UNLIMITED);
  sb_queue *both[] = {a, b};
  expect(sb_handle_is_idle(a), "a new handle is in use");
  a->busy = 1;
  expect(!sb_handle_is_idle(a), "a handle is idle that a thread uses");
  a->busy = 0;
  SB_STORE(&a->ledger->holding, (UINT64_C(5) << 32) + 1, SB_RELAXED);
  expect(!sb_handle_is_idle(a), "a handle is idle whose message is held");
  SB_STORE(&a->ledger->holding, UINT64_C(5) << 32, SB_RELAXED);
  expect(sb_handle_is_idle(a), "a handle is in use whose messages went");
  sb_channel *ch = sb_channel_open(t.c, 1, &status);
  sb_consumer *k = sb_consumer_open(t.c, both, 2, 5, 0, 0, 0, &status);
  if (ch == NULL || k == NULL) die("consume", (int)status);
  expect(!sb_handle_is_idle(a), "a handle is idle that is consumed");
  expect(!sb_handle_is_idle(b), "a handle is idle that is consumed with another one");
  expect(sb_handle_is_idle(c), "a handle is in use that is not consumed");
  sb_subscription of_c = {.q = c};
  sb_consumer like = {.subscription_count = 1,
                      .subscriptions = &of_c}; /* a target of another kind, whatever it looks like */
  like.target = (sb_target){.c = t.c, .kind = &OF_ANOTHER_KIND};
  sb_target_add(&like.target);
  expect(sb_handle_is_idle(c), "a handle is in use for a target that is no consumer");
  sb_target_remove(&like.target);
  uint32_t count = k->subscription_count;
  k->subscription_count = 1;
  expect(sb_handle_is_idle(b), "a handle is in use that is not consumed any more");
  k->subscription_count = count;
}
static void a_handle_that_was_let_go(void) {
  sb_queue *q = open_new("a", UNLIMITED);
  sb_queue_shm *shm = q->shm;
  remember_pages(q);
  sb_handle_leave(q);
  expect(q->shm != shm, "it points to what may be a body by now");
  expect_is(q->shm->state, 0, "the state that it finds");
  expect(!sb_queue_is_open(q), "it finds its queue open");
  SB_STORE(&q->shm->state, SB_LOAD(&shm->state, SB_RELAXED), SB_RELAXED);
  expect(!sb_queue_is_open(q), "it would find a queue open of the same life");
  SB_STORE(&q->shm->state, 0, SB_RELAXED);
  expect_no_pages(q, "a handle that was let go");
  expect(q->ledger == NULL && !sb_ledger_owned(t.b, shm), "it has still a ledger");
  expect_is(-sb_queue_length(q), SB_DELETED, "minus the status of a later call");
}
static void an_orphan_is_freed(void) {
  uint64_t before = 0;
  for (unsigned i = 0; i < 20; i++) {
    if (i == 10) before = allocated_bytes(); /* the first ones fill lists of malloc */
    if (i == 0 && declare(&t, "a", UNLIMITED) != SB_OK) die("declare", 0);
    sb_queue *q = open_again("a");
    q->orphaned = true;
    t.c->handles--; /* as sb_queue_free does */
    sb_handle_leave(q);
  }
  expect_is(allocated_bytes(), before, "the bytes that are kept");
}

/* ---- looking ---- */

static void deleted_queues_are_let_go(void) {
  sb_queue *a = open_new("a", UNLIMITED), *b = open_new("b", UNLIMITED);
  expect(!stirs(), "there is something to look at before");
  delete_by_hand(a);
  expect(stirs(), "there is nothing to look at");
  sb_handles_look(t.c);
  expect(!is_there(a) && is_there(b), "the wrong one was let go");
  expect_is(t.c->handles_due, 0, "how many are due");
  expect_is(t.c->handles_again_ns, 0, "when it looks again");
  expect_is(t.c->handles_calm, t.b->header->queues_closed, "with how many deletions it is calm");
  expect(!stirs(), "there is something to look at afterwards");
  close_by_hand(b);
  sb_handles_look(t.c);
  expect(is_there(b), "it looked although nothing was deleted since");
}
static sb_queue *all[MANY];
static void open_many(void) {
  char name[8] = "q00";
  for (unsigned i = 0; i < MANY; i++) {
    name[1] = (char)('0' + i / 10);
    name[2] = (char)('0' + i % 10);
    all[i] = open_new(name, UNLIMITED);
  }
}
static void many_handles_take_several_looks(void) {
  open_many();
  delete_by_hand(all[0]); /* the last one of the list */
  delete_by_hand(all[1]);
  sb_handles_look(t.c);
  expect_is(t.c->handles_due, MANY - 64, "how many are due after one look");
  expect(is_there(all[0]) && is_there(all[1]), "the last ones were let go by one look");
  expect(t.c->handles_next == all[1], "where the next look begins");
  expect_is(t.c->handles_calm, UINT64_MAX, "with how many deletions it is calm");
  expect(stirs(), "there is nothing to look at");
  sb_handles_look(t.c);
  expect(!is_there(all[0]) && !is_there(all[1]), "the last ones are still there");
  expect_is(t.c->handles_due, 0, "how many are due");
  expect(!stirs(), "there is something to look at afterwards");
  expect_is(t.c->handle_count, MANY - 2, "how many there are");
}
static void all_are_looked_at(void) {
  open_many();
  delete_by_hand(all[0]);
  sb_handles_look_at_all(t.c);
  expect(!is_there(all[0]), "the last one is still there");
  expect(!stirs(), "there is something to look at afterwards");
  delete_by_hand(all[1]);
  sb_handles_look_at_all(t.c);
  expect(!is_there(all[1]), "the last one of fewer is still there");
}
static void a_look_that_wraps(void) {
  sb_queue *a = open_new("a", UNLIMITED), *b = open_new("b", UNLIMITED), *c = open_new("c", UNLIMITED);
  t.c->handles_next = a;
  delete_by_hand(c);
  sb_handles_look(t.c);
  expect(is_there(a) && is_there(b) && !is_there(c), "the wrong one was let go");
  expect(t.c->handles_next == a, "the next look begins elsewhere");
}
static void nothing_is_left_to_look_at(void) {
  t.c->handles_due = 5;
  t.c->handles_seen = t.b->header->queues_closed;
  sb_handles_look(t.c);
  expect_is(t.c->handles_due, 0, "how many are due");
  expect_is(t.c->handles_calm, t.b->header->queues_closed, "with how many deletions it is calm");
}
/* What is held of a deleted queue will be settled some time: the connection looks again after a while. */
static void what_is_in_use_is_looked_at_again(void) {
  sb_queue *a = open_new("a", UNLIMITED), *b = open_new("b", UNLIMITED);
  a->busy = b->busy = 1;
  delete_by_hand(a);
  delete_by_hand(b);
  uint64_t before = sb_now_ns();
  sb_handles_look(t.c);
  uint64_t again = t.c->handles_again_ns, after = sb_now_ns();
  expect(is_there(a) && is_there(b), "one was let go that is in use");
  expect(again >= before + UINT64_C(250000000) && again <= after + UINT64_C(250000000),
         "it looks again too soon or late");
  expect(stirs(), "it is calm");
  a->busy = b->busy = 0;
  t.c->handles_again_ns = FOREVER;
  sb_handles_look(t.c);
  expect(is_there(a) && is_there(b), "it looked before the time");
  expect(stirs(), "it is calm before the time");
  a->busy = 1;
  t.c->handles_again_ns = LONG_AGO;
  sb_handles_look(t.c);
  expect(is_there(a) && !is_there(b), "the wrong one was let go after the time");
  expect(t.c->handles_again_ns > after, "it does not look once more");
  a->busy = 0;
  t.c->handles_again_ns = LONG_AGO;
  sb_handles_look(t.c);
  expect(!is_there(a), "the last one was not let go");
  expect_is(t.c->handles_again_ns, 0, "when it looks again");
  expect(!stirs(), "there is something to look at afterwards");
}
/* All that are in use are checked again, together, at the time of the first one. */
static void the_first_time_counts(void) {
  sb_queue *a = open_new("a", UNLIMITED);
  a->busy = 1;
  delete_by_hand(a);
  t.c->handles_seen = t.b->header->queues_closed;
  t.c->handles_again_ns = FOREVER;
  t.c->handles_due = 1;
  sb_handles_look(t.c);
  expect_is(t.c->handles_again_ns, FOREVER, "when it looks again");
}
static void a_housekeeper_lets_go_itself(void) {
  sb_queue *a = open_new("a", UNLIMITED);
  t.c->handles_stay = true;
  delete_by_hand(a);
  sb_handles_look(t.c);
  expect(is_there(a), "a handle was let go");
  expect(!stirs(), "it looks at each call");
  t.c->handles_due = 1;
  SB_STORE(&t.b->header->queues_closed, t.b->header->queues_closed + 1, SB_SEQ_CST);
  sb_handles_look_at_all(t.c);
  expect(is_there(a), "a handle was let go by a look at all");
  expect_is(t.c->handles_due, 1, "how many are due");
  t.c->handles_stay = false;
}
static void a_look_at_all_is_as_rare(void) {
  sb_queue *a = open_new("a", UNLIMITED);
  close_by_hand(a);
  t.c->handles_again_ns = LONG_AGO;
  t.c->handles_calm = t.b->header->queues_closed;
  sb_handles_look_at_all(t.c);
  expect(is_there(a), "it looked although it is calm");
}

static const test_case CASES[] = {
    {"handles: list", "handles are linked both ways, and the next look begins with one of them", handles_are_listed},
    {"handles: new", "a new handle is looked at where others are due", a_new_handle_is_looked_at_too},
    {"handles: pages", "pages that handles remember are forgotten", pages_are_forgotten},
    {"handles: idle", "a handle is idle when nothing of it is held, used or consumed", what_keeps_a_handle},
    {"handles: gone", "a handle that was let go finds its queue deleted", a_handle_that_was_let_go},
    {"handles: orphan", "an orphan is freed when it is let go", an_orphan_is_freed},
    {"handles: deleted", "handles of deleted queues are let go, by one look", deleted_queues_are_let_go},
    {"handles: many", "many handles take several looks", many_handles_take_several_looks},
    {"handles: all", "all handles are looked at, however many they are", all_are_looked_at},
    {"handles: wrap", "a look goes on at the beginning", a_look_that_wraps},
    {"handles: none", "without handles nothing is due", nothing_is_left_to_look_at},
    {"handles: again", "a handle that is in use is looked at again after a while", what_is_in_use_is_looked_at_again},
    {"handles: first", "the time of the first one counts", the_first_time_counts},
    {"handles: stay", "handles of a housekeeper stay", a_housekeeper_lets_go_itself},
    {"handles: calm", "a look at all looks at nothing while it is calm", a_look_at_all_is_as_rare},
};
SUBJECT(CASES)
