// SPDX-License-Identifier: Apache-2.0
/* What gets, consumers, browsers and others do about messages that are not in the memory. */
#include <string.h>

#include "calls.h"
#include "meanwhile.h"
#include "paging.h"
#include "queues.h"
#include "surroundings.h"

static sb_queue *q;
static char record[BUFFER];

static void begin(unsigned messages) {
  q = begin_stored(STORED, messages);
  store_everything();
}
/* The call asked for the leaf, which comes back. */
static void expect_wanted(int64_t status, uint64_t should, const char *what) {
  uint32_t slot = 0;
  uint64_t sequence = 0;
  expect_is(status, -(int64_t)SB_GROW, what);
  expect(sb_store_wanting(t.b, &slot, &sequence), "%s: nothing is needed", what);
  expect_is(sequence, should, what);
  expect_is(slot, q->slot, "the queue");
  expect_is(let_come_back((unsigned)(should / LEAF)), SB_OK, "the status of a load");
}
static void expect_got(uint64_t id) { expect_is(get(&t, q, record, true), id, "the message that a get finds"); }
static int64_t next(void) { return sb_queue_get(q, record, true); }

/* ---- gets ---- */

static void gets_and_loads(void) {
  sb_wait wait = {1, UINT64_MAX, 0, 0};
  begin(3 * LEAF + 1);
  expect(let_leave(0) && let_leave(1), "the leaves stay");
  expect_is(sb_queue_length(q), 3 * LEAF + 1, "the length of the queue");
  expect(findings(t.c) == NULL, "%s", findings(t.c));
  expect_wanted(next(), 0, "a get");
  for (uint64_t id = 1; id <= LEAF; id++) expect_got(id);
  expect_wanted(sb_queue_get_wait(q, record, true, &wait), LEAF, "a get that may wait");
  for (uint64_t id = LEAF + 1; id <= 3 * LEAF + 1; id++) expect_got(id);
  expect_is(next(), -(int64_t)SB_EMPTY, "the status at the end");
}
/* A leaf that left behind the cursor of the handle, and was marked: its messages come first. */
static void marked_behind_the_cursor(void) {
  sb_status status;
  begin(2 * LEAF);
  sb_queue *others = sb_queue_open(connect_to(&t), q->slot, &status);
  if (others == NULL) die("sb_queue_open", (int)status);
  static char held[LEAF][sizeof(sb_record) + 128];
  for (unsigned i = 0; i < LEAF; i++) {
    (void)get(&t, others, record, false);
    memcpy(held[i], record, sizeof held[i]);
  }
  expect_got(LEAF + 1); /* the cursor is behind the first leaf */
  for (unsigned i = 0; i < LEAF; i++) (void)sb_queue_settle(others, held[i], i < 9 ? SB_ACK : SB_UNDELIVER);
  sb_leaf_ref leaf = leaf_numbered(0);
  expect(SB_LOAD(&leaf.leaf->page.requeued, SB_RELAXED) != 0, "the messages did not return");
  SB_STORE(&leaf.leaf->page.requeued, 0, SB_RELAXED); /* as searches do that deal with them */
  store_everything();
  expect(let_leave(0), "the leaf stays");
  sb_requeued_mark(t.b, stored_ring(), q->base + 9);
  expect_is(link_of(0) & SB_LINK_MARKED, SB_LINK_MARKED, "the mark of the link");
  expect_wanted(next(), 0, "a get");
  for (uint64_t id = 10; id <= LEAF; id++) expect_got(id);
  expect_got(LEAF + 2);
}
static void a_message_by_its_number(void) {
  begin(LEAF + 1);
  expect(let_leave(0), "the leaf stays");
  expect_wanted(sb_queue_take(q, 7, record), 7, "a take");
  expect(sb_queue_take(q, 7, record) > 0, "the message is not there");
  sb_queue_put_back(q, record);
}
static void a_purge(void) {
  uint64_t removed = 0;
  begin(2 * LEAF + 1);
  expect(let_leave(1), "the leaf stays");
  expect_wanted(-(int64_t)sb_queue_purge(q, &removed), LEAF, "a purge");
  expect_is(removed, LEAF, "what it removed before");
  expect_is(sb_queue_purge(q, &removed), SB_OK, "its status then");
  expect_is(removed, 2 * LEAF + 1, "what it removed");
}
static void a_careful_deletion(void) {
  int32_t holder;
  begin(LEAF + 1);
  expect(let_leave(0), "the leaf stays");
  SB_STORE(&q->shm->head, q->base + LEAF, SB_RELAXED);
  q->lanes[0].cursor = q->base + LEAF;
  expect_is(get(&t, q, record, true), LEAF + 1, "the last message");
  expect_is(sb_queue_delete_idle(q, FOREVER, &holder), SB_NOT_EMPTY, "the status of a deletion when idle");
}

/* ---- consumers ---- */

static sb_consumer *consume(void) {
  sb_status status;
  sb_consumer *k = sb_consumer_open(t.c, &q, 1, 4, 0, 1, 0, &status);
  if (k == NULL) die("sb_consumer_open", (int)status);
  return k;
}
static void consumers_load(void) {
  begin(2 * LEAF + 1);
  expect(let_leave(0) && let_leave(1), "the leaves stay");
  sb_consumer *k = consume();
  for (unsigned leaf = 0; leaf < 2; leaf++) {
    expect_wanted(sb_consumer_next(k, record, false), (uint64_t)leaf * LEAF, "a consumer");
    for (uint64_t i = 0; i < LEAF; i++) {
      int64_t length = sb_consumer_next(k, record, false);
      if (length <= 0) {
        expect(length == -(int64_t)SB_GROW && i > 0, "message %llu is not there", (unsigned long long)i);
        break;
      }
      expect_is(id_at(body_of(record, length), 64), leaf * LEAF + i + 1, "the message that a consumer gets");
      (void)sb_consumer_settle(k, record, SB_ACK);
    }
  }
}

/* ---- browsers ---- */

static uint64_t at_number;
static int64_t browse(void) { return sb_queue_browse(q, &at_number, record, BUFFER); }
static void expect_seen(uint64_t id) {
  int64_t length = browse();
  expect(length > 0, "message %llu is not there", (unsigned long long)id);
  if (length > 0) expect_is(id_at(body_of(record, length), 64), id, "the message that a browser sees");
}
static void browsers_load(void) {
  sb_whereabouts where;
  begin(2 * LEAF + 1);
  expect(let_leave(1), "the leaf stays");
  for (uint64_t id = 1; id <= LEAF; id++) expect_seen(id);
  at_number = LEAF - 1;
  expect(sb_queue_browse_states(q, &at_number, LEAF, SB_STATE_READY, NULL, 0, true, record, BUFFER, &where) > 0,
         "the last message before the leaf is not there");
  expect_is(sb_queue_browse_states(q, &at_number, LEAF, SB_STATE_READY, NULL, 0, true, record, BUFFER, &where),
            -(int64_t)SB_EMPTY, "the status of a browser that ends before the leaf");
  expect_wanted(browse(), LEAF, "a browser");
  for (uint64_t id = LEAF + 1; id <= 2 * LEAF + 1; id++) expect_seen(id);
  expect_is(browse(), -(int64_t)SB_EMPTY, "the status at the end");
}
static void browsers_of_many_load(void) {
  static char bodies[BUFFER], values[BUFFER], memory[SB_MAX_PREFIX];
  static int32_t ends[2 * LEAF + 2];
  static int64_t sequences[2 * LEAF + 1];
  sb_columns columns = {.body = {.ends = ends, .bytes = bodies, .room = sizeof bodies}, .sequence = sequences};
  sb_selection selection = {.values = values, .memory = memory, .room = sizeof values};
  sb_status status;
  begin(2 * LEAF + 1);
  expect(let_leave(1), "the leaf stays");
  expect_is(sb_queue_browse_columns(q, &at_number, 2 * LEAF, &columns, &status), LEAF, "the rows before the leaf");
  expect_is(at_number, LEAF, "where the columns end");
  expect_wanted(-(int64_t)status, LEAF, "a browser of columns");
  expect_is(sb_queue_browse_columns(q, &at_number, 2 * LEAF, &columns, &status), LEAF + 1, "the rows behind it");
  expect_is(status, SB_EMPTY, "the status at the end");
  expect(let_leave(1), "the leaf stays, then");
  at_number = 0;
  expect_is(sb_queue_select(q, &at_number, 2 * LEAF, &selection, &status), LEAF, "what is selected before the leaf");
  expect_is(at_number, LEAF, "where the selection ends");
  expect_wanted(-(int64_t)status, LEAF, "a selection");
  expect_is(sb_queue_select(q, &at_number, 2 * LEAF, &selection, &status), LEAF + 1, "what is selected behind it");
}
static void let_it_leave(void) {
  if (!let_leave(0)) die("the leaf stays", 0);
}
static void let_it_freeze(void) {
  sb_leaf_ref leaf = leaf_numbered(0);
  if (!sb_paged_freeze(t.c, stored_ring(), &leaf)) die("the leaf does not freeze", 0);
}
static void let_it_decide(void) {
  let_it_freeze();
  sb_leaf_ref leaf = leaf_numbered(0);
  SB_STORE(&leaf.leaf->page.paging, SB_PAGING_LEFT, SB_RELAXED);
}
static void browse_while(void (*what)(void)) {
  begin(LEAF + 1);
  at_number = 5;
  meanwhile(cell_at(q, 5), BEFORE_LOAD, 1, what);
}
/* The browser has found the leaf, and looks at a message. */
static void it_leaves_while_somebody_browses(void) {
  browse_while(let_it_leave);
  int64_t length = browse();
  if (has_acted()) expect_wanted(length, 5, "a browser");
  if (length < 0) expect_seen(6);
}
static void it_has_left_while_somebody_browses(void) {
  browse_while(let_it_decide);
  int64_t length = browse();
  if (has_acted()) expect_wanted(length, 5, "a browser");
  if (length < 0) expect_seen(6);
}
static void it_freezes_while_somebody_browses(void) {
  browse_while(let_it_freeze);
  expect_seen(6);
  if (has_acted()) expect_is(paging_of(0), SB_PAGING_STAYS, "the state of the leaf");
}

static const test_case CASES[] = {
    {"api paging: gets", "need messages that are not there", gets_and_loads},
    {"api paging: marked ones", "come first, behind a cursor", marked_behind_the_cursor},
    {"api paging: takes", "need the message with a number", a_message_by_its_number},
    {"api paging: purges", "need what they end", a_purge},
    {"api paging: idle", "a queue with messages in the store is not empty", a_careful_deletion},
    {"api paging: consumers", "need messages that are not there", consumers_load},
    {"api paging: browsers", "need messages before their end", browsers_load},
    {"api paging: browsers of many", "get what lies before, and then need more", browsers_of_many_load},
    {"api paging: browsed, leaves", "a browser misses no message of a leaf that leaves",
     it_leaves_while_somebody_browses},
    {"api paging: browsed, left", "a browser misses no message of a leaf that left",
     it_has_left_while_somebody_browses},
    {"api paging: browsed, freezes", "a browser makes a leaf stay", it_freezes_while_somebody_browses},
};
SUBJECT(CASES)
