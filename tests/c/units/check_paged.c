// SPDX-License-Identifier: Apache-2.0
/* sb_check_ring, sb_check_queue and sb_check_owners: findings of the doctor about leaves that have left the memory. */
#include "checkup.h"
#include "paging.h"
#include "queues.h"

enum { LINK };
enum { READY, DELIVERING, SCHEDULED, BYTES };
enum { TRACKING = 3 };
#define BODY 64u

static sb_queue *q;

static void look(void) {
  forget_what_was_seen();
  sb_check_connections(&checkup);
  checkup.count = 0;
  checkup.paged = 0;
  sb_check_queue(&checkup, q->slot, false);
}
static void expect_sound(const char *what) {
  look();
  expect_no_finding(what);
}
static void expect_trouble(unsigned code, unsigned which, uint64_t found, uint64_t expected, const char *what) {
  look();
  expect_finding((sb_finding){code, q->slot, 0, which, 0, 0, found, expected}, what);
}
static void expect_bad_link(const char *what) {
  look();
  expect(checkup.count > 0 && checkup.findings[0].code == SB_BAD_PAGE && checkup.findings[0].which == LINK,
         "%s is none", what);
  found_nothing();
}
static void begin(void) {
  q = begin_left(STORED, LEAF + 3);
  start_checkup(t.b->mapped_chunks);
}
static void set_link(uint64_t link) { SB_STORE(link_to(0), link, SB_RELAXED); }

static void leaves_that_have_left(void) {
  begin();
  expect_sound("a queue whose messages have left");
  expect_is(checkup.paged, 1, "how many leaves have left");
  const uint64_t link = link_of(0);
  set_link(link | SB_LINK_MARKED);
  expect_sound("a queue with a marked link");
  set_link(link + 8);
  expect_bad_link("a link of another page");
  set_link(link + (UINT64_C(1) << 32));
  expect_sound("a link of a later departure");
  set_link(link);
  const uint32_t flags = SB_LOAD(&q->shm->flags, SB_RELAXED);
  SB_STORE(&q->shm->flags, flags & ~(uint32_t)SB_QUEUE_DURABLE, SB_RELAXED);
  expect_bad_link("a link to the store in a queue that is not stored");
  SB_STORE(&q->shm->flags, flags, SB_RELAXED);
  expect_sound("what was put right");
}
static void a_link_above_pages(void) {
  q = begin_stored(STORED, LEAF * LEAF + 1);
  sb_page_ref root;
  unsigned skip;
  if (sb_page_descend(t.b, NULL, stored_ring(), q->base, 2, &root, &skip) != SB_OK) die("sb_page_descend", 0);
  start_checkup(t.b->mapped_chunks);
  SB_STORE(&sb_page_children(&root)[0], sb_link_paged(root.gen, 1), SB_RELAXED);
  expect_bad_link("a link to the store above pages");
}
static void cells_that_are_frozen(void) {
  q = begin_stored(STORED, LEAF + 3);
  store_everything();
  start_checkup(t.b->mapped_chunks);
  sb_leaf_ref leaf = leaf_numbered(0);
  expect(sb_paged_freeze(t.c, stored_ring(), &leaf), "the leaf stays");
  expect_sound("a queue with FROZEN cells");
  const uint32_t flags = SB_LOAD(&q->shm->flags, SB_RELAXED);
  SB_STORE(&q->shm->flags, flags & ~(uint32_t)SB_QUEUE_DURABLE, SB_RELAXED);
  look();
  expect(checkup.count > 0 && checkup.findings[0].code == SB_BAD_CELL,
         "FROZEN cells of a queue that is not stored are sound");
}
/* Nobody knows how many messages a leaf had: at least one, and at most as many as it has cells. */
static void counts_of_a_queue_whose_messages_have_left(void) {
  begin();
  sb_word *added = &q->ledger->counters[SB_COUNT_ADDED], *bytes = &q->ledger->counters[SB_COUNT_ADDED_BYTES];
  const uint64_t all = SB_LOAD(added, SB_RELAXED), all_bytes = SB_LOAD(bytes, SB_RELAXED);
  SB_STORE(added, all + 1, SB_RELAXED);
  expect_trouble(SB_BAD_COUNT, READY, LEAF + 4, 3, "more messages than the leaf had");
  SB_STORE(added, 4, SB_RELAXED);
  expect_sound("a leaf with one message");
  SB_STORE(added, 3, SB_RELAXED);
  expect_trouble(SB_BAD_COUNT, READY, 3, 3, "a leaf without a message");
  SB_STORE(added, all, SB_RELAXED);
  SB_STORE(bytes, 3 * BODY - 1, SB_RELAXED);
  expect_trouble(SB_BAD_COUNT, BYTES, 3 * BODY - 1, 3 * BODY, "fewer bytes than are there");
  SB_STORE(bytes, all_bytes + 5, SB_RELAXED);
  expect_sound("bytes that nobody knows");
  SB_STORE(bytes, all_bytes, SB_RELAXED);
  expect(let_come_back(0) == SB_OK, "the leaf does not come back");
  SB_STORE(bytes, all_bytes + 5, SB_RELAXED);
  expect_trouble(SB_BAD_COUNT, BYTES, all_bytes + 5, all_bytes, "more bytes than are there");
}
static void hints_of_a_queue_whose_messages_have_left(void) {
  begin();
  SB_STORE(&q->shm->settings[SB_SETTING_MAX_LENGTH], 500, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, TRACKING, 0, 1, "a queue with a limit that does not track");
}

static const test_case CASES[] = {
    {"check paged: links", "a link to the store is sound in a stored queue", leaves_that_have_left},
    {"check paged: pages", "only leaves leave", a_link_above_pages},
    {"check paged: frozen", "FROZEN cells are sound in a stored queue", cells_that_are_frozen},
    {"check paged: counts", "the ledgers say how many messages a leaf may have",
     counts_of_a_queue_whose_messages_have_left},
    {"check paged: hints", "are not compared with what has left", hints_of_a_queue_whose_messages_have_left},
};
SUBJECT(CASES)
