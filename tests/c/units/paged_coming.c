// SPDX-License-Identifier: Apache-2.0
/* sb_paged: a leaf that comes back, and what a death leaves of it. */
#include "dead.h"
#include "meanwhile.h"
#include "paging.h"
#include "queues.h"
#include "sb_paged.h"
#include "sb_slab.h"

#define MANY 64u
#define ALL ~UINT64_C(0)

static sb_queue *q;
static sb_page_fresh fresh;
static sb_leaf_shm *leaf;
static uint32_t slots[3]; /* of the messages that come back */

static sb_connection *loader;

/* As sb_store_come_back does: a message of the connection becomes one that only the leaf names. */
static void place(unsigned i) {
  sb_cell_shm *cell = &leaf->cells[i];
  uint64_t token, gen;
  if (sb_holding_take(loader, &token) != SB_OK ||
      sb_slab_alloc(loader, sb_class_for(t.b, 1), token, &slots[i], &gen) != SB_OK)
    die("sb_slab_alloc", (int)i);
  SB_STORE(&cell->side, gen, SB_RELAXED);
  SB_STORE(&cell->word, sb_cell_open(SB_CELL_AVAILABLE, slots[i], 0, fresh.leaf.gen), SB_RELAXED);
  SB_STORE(sb_slot_header(t.b, slots[i]), sb_slot_word(SB_SLOT_PUBLISHED, 1, gen), SB_RELAXED);
  sb_holding_give(loader, token);
}
static void renew(void) {
  sb_status status = sb_page_renew_leaf(loader, stored_ring(), q->base, link_of(0), &fresh);
  if (status != SB_OK) die("sb_page_renew_leaf", (int)status);
  leaf = (sb_leaf_shm *)(void *)fresh.leaf.page;
  sb_paged_coming(&fresh);
  for (unsigned i = 0; i < 3; i++) place(i);
}
static void begin(void) {
  loader = t.c;
  q = begin_left(STORED, LEAF + 1);
  renew();
}
static unsigned state_of(uint32_t slot) { return sb_slot_state(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)); }
static uint64_t gen_of(uint32_t slot) { return sb_slot_gen(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)); }
static void expect_slots(unsigned should, const char *what) {
  for (unsigned i = 0; i < 3; i++) expect_is(state_of(slots[i]), should, what);
}
static uint64_t state_of_leaf(void) { return SB_LOAD(&leaf->page.paging, SB_RELAXED); }

/* ---- coming back ---- */

static void a_leaf_is_linked(void) {
  begin();
  expect(state_of_leaf() != SB_PAGING_THERE, "a leaf that is not linked may leave");
  expect(sb_paged_arrive(t.c, &fresh), "somebody was faster");
  expect_is(link_of(0), sb_link_word(0, fresh.leaf.slot, fresh.leaf.gen), "the link");
  expect_is(SB_LOAD(&leaf->page.requeued, SB_RELAXED), 0, "the requeued bits");
  sb_leaf_ref ref = leaf_numbered(0);
  expect(!sb_paged_may_leave(t.b, stored_ring(), &ref), "a leaf that has not arrived may leave");
  sb_paged_arrived(t.c, &fresh);
  expect_is(state_of_leaf(), SB_PAGING_THERE, "its state");
  expect_is(state_of(fresh.leaf.slot), SB_SLOT_PUBLISHED, "the state of its slot");
  expect_is(SB_LOAD(&sb_holding_at(t.b, fresh.token)->what, SB_RELAXED), 0, "its holding");
  expect_slots(SB_SLOT_PUBLISHED, "the slot of a message");
}
static void a_marked_link_marks_the_leaf(void) {
  loader = t.c;
  q = begin_left(STORED, LEAF + 1);
  expect(sb_paged_mark(t.b, stored_ring(), q->base + 5), "the link is not marked");
  renew();
  expect_is(SB_LOAD(&leaf->page.requeued, SB_RELAXED), 0, "the bits before");
  expect(sb_paged_arrive(t.c, &fresh), "somebody was faster");
  expect_is(SB_LOAD(&leaf->page.requeued, SB_RELAXED), ALL, "the bits");
}
static void a_link_that_changed(void) {
  begin();
  const uint64_t link = link_of(0), others[] = {link | SB_LINK_MARKED, link + (UINT64_C(1) << 32), SB_LINK_DONE};
  for (unsigned i = 0; i < 3; i++) {
    if (i > 0) renew();
    SB_STORE(link_to(0), others[i], SB_RELAXED);
    expect(!sb_paged_arrive(t.c, &fresh), "a leaf comes back by link %u", i);
    expect_is(link_of(0), others[i], "the link");
    expect_is(state_of(fresh.leaf.slot), SB_SLOT_FREE, "the slot of the leaf");
    expect_slots(SB_SLOT_FREE, "the slot of a message");
    expect(sb_page_renew_leaf(t.c, stored_ring(), q->base, link, &fresh) == SB_DONE, "a leaf is made for an old link");
    SB_STORE(link_to(0), link, SB_RELAXED);
  }
}
static void a_leaf_that_does_not_come_back(void) {
  begin();
  const uint64_t link = link_of(0), holdings = free_holdings();
  sb_paged_give_up(t.c, &fresh);
  expect_is(link_of(0), link, "the link");
  expect_is(state_of(fresh.leaf.slot), SB_SLOT_FREE, "the slot of the leaf");
  expect_slots(SB_SLOT_FREE, "the slot of a message");
  expect_is(free_holdings(), holdings + 1, "the free holdings");
}
/* Others ended all messages before the loader went on, and the page is another leaf's, which leaves just now. */
static void a_leaf_that_was_used_up(void) {
  begin();
  expect(sb_paged_arrive(t.c, &fresh), "somebody was faster");
  uint32_t slot = fresh.leaf.slot;
  sb_word *header = sb_slot_header(t.b, slot);
  const uint64_t later = sb_slot_word(SB_SLOT_PUBLISHED, 1, fresh.leaf.gen + 1);
  SB_STORE(header, later, SB_RELAXED);
  SB_STORE(&leaf->page.paging, SB_PAGING_LEFT, SB_RELAXED);
  sb_paged_arrived(t.c, &fresh);
  expect_is(state_of_leaf(), SB_PAGING_LEFT, "the state of the later leaf");
  expect_is(SB_LOAD(header, SB_RELAXED), later, "its slot");
}

/* ---- deaths ---- */

static void recover(void) { sb_paged_recover_coming(t.b, fresh.leaf.slot); }
static void messages_of_the_dead(void) {
  begin();
  for (unsigned i = 0; i < 2; i++) {
    recover();
    expect_slots(SB_SLOT_FREE, "the slot of a message");
    expect(state_of(fresh.leaf.slot) != SB_SLOT_FREE, "the leaf was freed, which the caller frees");
  }
}
/* A reaper has freed some of them, and their slots have others. */
static void messages_that_were_freed(void) {
  begin();
  const uint64_t later = sb_slot_word(SB_SLOT_PUBLISHED, 1, gen_of(slots[1]) + 1);
  SB_STORE(sb_slot_header(t.b, slots[1]), later, SB_RELAXED);
  recover();
  expect_is(state_of(slots[0]), SB_SLOT_FREE, "the slot of its message");
  expect_is(SB_LOAD(sb_slot_header(t.b, slots[1]), SB_RELAXED), later, "the slot of another message");
  expect_is(state_of(slots[2]), SB_SLOT_FREE, "the slot of its last message");
}
/* The end of a delay stands where the generation was. */
static void messages_with_delays(void) {
  begin();
  SB_STORE(&leaf->cells[1].side, sb_side_word(12345, 3, SB_SIDE_DELAYED), SB_RELAXED);
  recover();
  expect_slots(SB_SLOT_FREE, "the slot of a message");
}
/* The loader died before it published a message, or the cell is damaged. */
static void messages_that_are_not_there(void) {
  begin();
  const uint64_t alloc = sb_slot_word(SB_SLOT_ALLOC, t.c->id, gen_of(slots[0]));
  SB_STORE(sb_slot_header(t.b, slots[0]), alloc, SB_RELAXED);
  SB_STORE(&leaf->cells[1].word, sb_cell_open(SB_CELL_AVAILABLE, (1u << 28) - 1, 0, fresh.leaf.gen), SB_RELAXED);
  recover();
  expect_is(SB_LOAD(sb_slot_header(t.b, slots[0]), SB_RELAXED), alloc, "the slot that its holding names");
  expect_is(state_of(slots[1]), SB_SLOT_PUBLISHED, "the slot that no cell names");
  expect_is(state_of(slots[2]), SB_SLOT_FREE, "the slot of a message");
}

static void a_loader_dies(bool linked) {
  q = begin_left(STORED, LEAF + 1);
  begin_dead();
  loader = d.c;
  renew();
  if (linked && !sb_paged_arrive(d.c, &fresh)) die("sb_paged_arrive", 0);
}
static void a_reaper_finds_no_link(void) {
  a_loader_dies(false);
  const uint64_t link = link_of(0);
  recover_dead();
  expect_is(link_of(0), link, "the link");
  expect_is(state_of(fresh.leaf.slot), SB_SLOT_FREE, "the slot of the leaf");
  expect_slots(SB_SLOT_FREE, "the slot of a message");
  expect_is(SB_LOAD(&q->shm->timers_lost, SB_RELAXED), 0, "the lost timers");
}
static void expect_all_done(void) {
  expect(sb_requeued_is_marked(t.b, stored_ring(), q->base), "its first cell is not marked");
  expect_is(SB_LOAD(&leaf->page.requeued, SB_RELAXED), ALL, "its marks");
  expect_is(SB_LOAD(&q->shm->timers_lost, SB_RELAXED), 1, "the lost timers");
}
/* It may die, too: the leaf is COMING until everything is done. */
static void a_reaper_finds_a_link(void) {
  a_loader_dies(true);
  meanwhile(&leaf->page.paging, BEFORE_CAS, 1, expect_all_done);
  recover_dead();
  (void)has_acted();
  expect_all_done();
  expect_is(link_of(0), sb_link_word(0, fresh.leaf.slot, fresh.leaf.gen), "the link");
  expect_is(state_of_leaf(), SB_PAGING_THERE, "its state");
  expect_is(state_of(fresh.leaf.slot), SB_SLOT_PUBLISHED, "the slot of the leaf");
  expect_slots(SB_SLOT_PUBLISHED, "the slot of a message");
}

/* ---- messages of many queues ---- */

/* A message that more queues have than fit into a cell's reference ends in one of them by the queue, also in a lane. */
static void a_message_of_many_queues(void) {
  sb_settings ranked = {{-1, -1, -1, 0, -1, -1, 3}, SB_QUEUE_DURABLE};
  static sb_queue *targets[MANY];
  (void)begin_stored(ranked, 0);
  q = open_queue(&t, "q");
  for (unsigned i = 0; i < MANY; i++) {
    char name[8] = {'m', (char)('a' + i / 26), (char)('a' + i % 26), 0};
    targets[i] = i == 0 ? q : queue_named(name, (sb_settings)FREELY);
  }
  const sb_put_options low = {.priority = 1};
  sb_publication p = {.body = "12345678", .length = 8, .options = &low, .targets = targets, .target_count = MANY};
  uint32_t failed[2];
  sb_status status = sb_transaction_commit(t.c, &p, 1, NULL, 0, &failed[0], &failed[1]);
  expect_is(status, SB_OK, "the status of the commit");
  look_at_lane(2);
  for (unsigned i = 0; i < LEAF; i++) {
    (void)sb_queue_put_with(q, "12345678", 8, &low);
  }
  sb_leaf_ref first = leaf_numbered(0);
  uint64_t word = SB_LOAD(&first.leaf->cells[0].word, SB_RELAXED);
  store_everything();
  expect(let_leave(0), "the leaf stays");
  static char record[BUFFER];
  for (unsigned i = 1; i < MANY; i++) {
    expect_is(state_of(sb_cell_slot(word)), SB_SLOT_PUBLISHED, "the slot while queues have the message");
    int64_t length = sb_queue_get(targets[i], record, true);
    expect(length > 0, "queue %u has no message: %lld", i, (long long)length);
    const sb_record *r = (const sb_record *)(const void *)record;
    if (length > 0 && r->body_address != 0) sb_view_end(t.c, r->tag);
  }
  expect_is(state_of(sb_cell_slot(word)), SB_SLOT_FREE, "the slot when no queue has the message");
}

static const test_case CASES[] = {
    {"paged coming: arrive", "a leaf may leave again when everything was done", a_leaf_is_linked},
    {"paged coming: marked", "a marked link gives all requeued bits", a_marked_link_marks_the_leaf},
    {"paged coming: changed", "a link that changed keeps a leaf away", a_link_that_changed},
    {"paged coming: give up", "the memory is free again", a_leaf_that_does_not_come_back},
    {"paged coming: used up", "a later leaf in its place keeps its state", a_leaf_that_was_used_up},
    {"paged coming: death", "its messages are freed once", messages_of_the_dead},
    {"paged coming: death of a reaper", "messages that came later stay", messages_that_were_freed},
    {"paged coming: delays", "messages with a delay are freed", messages_with_delays},
    {"paged coming: early death", "messages that are not published stay", messages_that_are_not_there},
    {"paged coming: reaped before", "the reaper frees what is not linked", a_reaper_finds_no_link},
    {"paged coming: reaped after", "the reaper ends what the loader began", a_reaper_finds_a_link},
    {"paged coming: many queues", "a message ends in one of its queues", a_message_of_many_queues},
};
SUBJECT(CASES)
