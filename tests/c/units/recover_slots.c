// SPDX-License-Identifier: Apache-2.0
/* sb_recover: what the reaper does with slots, pages, chunks and views that the holdings of a dead connection list. */
#include <string.h>

#include "dead.h"
#include "sb_recover.h"
#include "sb_view.h"

#define FREE ((sb_settings)FREELY)
#define BESIDE (d.c->id + 1) /* another connection */
#define BEYOND (UINT64_C(1) << 32)

typedef struct {
  uint32_t at;
  uint64_t gen;
} slot_of_dead;

static slot_of_dead slot_there(uint32_t at) { return (slot_of_dead){at, sb_slot_gen(slot_word(at))}; }
static uint64_t free_word(slot_of_dead s) { return sb_slot_word(SB_SLOT_FREE, 0, s.gen + 1); }
static uint64_t published_word(slot_of_dead s) { return sb_slot_word(SB_SLOT_PUBLISHED, 1, s.gen); }
static uint64_t allocated_word(slot_of_dead s) { return sb_slot_word(SB_SLOT_ALLOC, d.c->id, s.gen); }
static uint64_t holding_of(unsigned kind, slot_of_dead s) { return sb_holding_what(kind, s.at, s.gen); }

/* The dead connection has just allocated it. */
static slot_of_dead allocated(unsigned cls) {
  uint64_t token;
  slot_of_dead s;
  if (sb_holding_take(d.c, &token) != SB_OK) die("sb_holding_take", 0);
  sb_status status;
  while ((status = sb_slab_alloc(d.c, cls, token, &s.at, &s.gen)) == SB_GROW && grow(t.b, t.path)) {
  }
  if (status != SB_OK) die("sb_slab_alloc", (int)status);
  memset(sb_slot_at(t.b, s.at), 0, SB_UNIT);
  return s;
}
static slot_of_dead new_message(void) { return allocated(sb_class_for(t.b, 100)); }
static slot_of_dead new_object(unsigned kind) { return allocated(sb_class_of_kind(t.b, kind)); }
/* It was killed between linking the object, which is there, and publishing it. */
static slot_of_dead linked(uint32_t at) {
  slot_of_dead s = slot_there(at);
  set_slot_word(at, allocated_word(s));
  (void)hold(holding_of(SB_HOLD_SLOT, s), 0);
  return s;
}
static void publish(slot_of_dead s) { set_slot_word(s.at, published_word(s)); }

/* ---- messages ---- */

static void slots_of_messages(void) {
  begin_dead();
  slot_of_dead own = new_message(), others = new_message(), later = new_message(), published = new_message(),
               read = new_message();
  uint64_t reading =
      sb_slot_word(SB_SLOT_READ, d.c->id | SB_FIELD(BESIDE, SB_READ_REFS), read.gen); /* no owner but references */
  set_slot_word(read.at, reading);
  set_slot_word(others.at, sb_slot_word(SB_SLOT_ALLOC, BESIDE, others.gen));
  set_slot_word(later.at, sb_slot_word(SB_SLOT_ALLOC, d.c->id, later.gen + 1));
  publish(published);
  uint64_t *first = sb_slot_at(t.b, published.at);
  *first = d.c->id; /* where a ledger has its owner */
  recover_dead();
  expect_is(slot_word(own.at), free_word(own), "the header of a message that was not put");
  expect_is(slot_word(others.at), sb_slot_word(SB_SLOT_ALLOC, BESIDE, others.gen), "the header of another one's");
  expect_is(slot_word(later.at), sb_slot_word(SB_SLOT_ALLOC, d.c->id, later.gen + 1), "the header of a later one");
  expect_is(slot_word(published.at), published_word(published), "the header of a message that was put");
  expect_is(*first, d.c->id, "the first word of a message");
  expect_is(slot_word(read.at), reading, "the header of a message that is being read");
}
/* Only a holding of kind SLOT frees a slot, and only an entry that was ever used counts. */
static void other_holdings_of_a_slot(void) {
  begin_dead();
  slot_of_dead own = new_message(), behind = new_message();
  uint32_t unmade = t.b->chunk_limit * SB_CHUNK_UNITS - 1;
  (void)hold(sb_holding_what(SB_HOLD_SLOT, unmade, 7), 0);
  (void)hold(sb_holding_what(SB_HOLD_SLOT, unmade + 1, 7), 0);
  sb_holdings_shm *table = d.c->last;
  for (uint32_t i = 1; i < sb_holdings_used(table); i++) {
    sb_holding_shm *h = &table->entries[i];
    if (h->what == holding_of(SB_HOLD_SLOT, own)) h->what = holding_of(SB_HOLD_CELL, own);
    if (h->what == holding_of(SB_HOLD_SLOT, behind)) h->what = SB_HOLD_NONE;
  }
  table->entries[sb_holdings_used(table)].what = holding_of(SB_HOLD_SLOT, behind);
  recover_dead();
  expect_is(slot_word(own.at), allocated_word(own), "the header of what a cell's holding names");
  expect_is(slot_word(behind.at), allocated_word(behind), "the header of what an unused entry names");
}

/* ---- pages ---- */

static slot_of_dead new_page(const sb_queue *q, uint32_t object, uint64_t first) {
  slot_of_dead s = new_object(SB_KIND_LEAF);
  sb_page_shm *page = sb_slot_at(t.b, s.at);
  SB_STORE(&page->object, object, SB_RELAXED);
  SB_STORE(&page->ring, SB_RING_CELLS, SB_RELAXED);
  SB_STORE(&page->first, q->base + first, SB_RELAXED);
  return s;
}
static void pages_that_were_made(void) {
  begin_dead();
  sb_queue *q = queue_of_dead("q", FREE);
  uint32_t message = put_by_dead(q, 64);
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) (void)put_by_dead(q, 64);
  slot_of_dead leaf = linked(leaf_in(q, 0).slot), unlinked = new_page(q, q->slot, 0), nowhere = new_page(q, message, 0);
  sb_leaf_ref second = leaf_in(q, SB_PAGE_CELLS);
  (void)linked(leaf.at);
  slot_of_dead damaged = linked(second.slot);
  SB_STORE(&second.leaf->page.object, message, SB_RELAXED);
  recover_dead();
  expect_is(slot_word(damaged.at), free_word(damaged), "the header of a page that says to be of no ring");
  expect_is(slot_word(leaf.at), published_word(leaf), "the header of a page that was linked");
  expect_is(slot_word(unlinked.at), free_word(unlinked), "the header of a page that was not linked");
  expect_is(slot_word(nowhere.at), free_word(nowhere), "the header of a page of no ring");
}
/* Page 0 of the ring is finished, and has a parent. */
static void pages_that_were_retired(void) {
  begin_dead();
  sb_queue *q = queue_of_dead("q", FREE);
  uint32_t message = put_by_dead(q, 64);
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) (void)put_by_dead(q, 64);
  sb_leaf_ref leaf = leaf_in(q, 0);
  slot_of_dead finished = slot_there(leaf.slot), retired = new_page(q, q->slot, 0), later = new_page(q, q->slot, 0),
               nowhere = new_page(q, message, 0), other = new_page(q, q->slot, 0);
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) set_word_in(q, i, sb_cell_bare(SB_CELL_TOMBSTONE, leaf.gen));
  SB_STORE(&leaf.leaf->page.done, UINT64_MAX, SB_RELAXED);
  publish(retired);
  publish(later);
  publish(nowhere);
  publish(other);
  (void)hold(holding_of(SB_HOLD_PAGE, finished), q->base);
  (void)hold(holding_of(SB_HOLD_PAGE, retired), q->base);
  (void)hold(sb_holding_what(SB_HOLD_PAGE, later.at, later.gen + 1), q->base);
  (void)hold(holding_of(SB_HOLD_PAGE, nowhere), q->base);
  (void)hold(holding_of(SB_HOLD_CELL, other), q->base);
  recover_dead();
  expect_is(slot_word(finished.at), free_word(finished), "the header of a page that is finished");
  sb_ring r;
  sb_leaf_ref none;
  expect(sb_ring_open(t.b, q->slot, SB_RING_CELLS, &r) && sb_ring_locate(t.b, NULL, &r, q->base, &none) == SB_DONE,
         "the finished page is still linked");
  expect_is(slot_word(retired.at), free_word(retired), "the header of a page that was unlinked");
  expect_is(slot_word(later.at), published_word(later), "the header of a later page");
  expect_is(slot_word(nowhere.at), published_word(nowhere), "the header of a page of no ring");
  expect_is(slot_word(other.at), published_word(other), "the header of a page that a cell's holding names");
}

/* ---- levels, ledgers, queues, nodes ---- */

static uint32_t new_level(const sb_queue *q, int32_t priority) {
  uint32_t level = 0;
  if (sb_consumer_level_of(d.c, q->slot, priority, &level) != SB_OK) die("sb_consumer_level_of", 0);
  return level;
}
static slot_of_dead unlinked_level(uint32_t queue) {
  slot_of_dead s = new_object(SB_KIND_CONSUMER_LEVEL);
  SB_STORE(&((sb_consumer_level_shm *)sb_slot_at(t.b, s.at))->queue, queue, SB_RELAXED);
  return s;
}
/* A queue that the dead connection does not have open. */
static uint32_t queue_of_others(const char *name) {
  uint32_t slot = 0;
  if (declare(&t, name, FREE) != SB_OK || sb_queue_find(t.c, name, (uint32_t)strlen(name), &slot) != SB_OK)
    die("declare", 0);
  return slot;
}
static sb_queue_shm *queue_at(uint32_t slot) { return sb_slot_at(t.b, slot); }

static void levels_that_were_made(void) {
  begin_dead();
  sb_queue *q = queue_of_dead("q", FREE);
  uint32_t high = new_level(q, 3), middle = new_level(q, 2), low = new_level(q, 1);
  slot_of_dead first = linked(high), between = linked(middle), last = linked(low);
  slot_of_dead unlinked = unlinked_level(q->slot), none = new_message(), nowhere = unlinked_level(none.at);
  SB_STORE(&queue_at(none.at)->consumer_levels, nowhere.at, SB_RELAXED);
  recover_dead();
  expect_is(slot_word(first.at), published_word(first), "the header of the first level");
  expect_is(slot_word(between.at), published_word(between), "the header of a level in between");
  expect_is(slot_word(last.at), published_word(last), "the header of the last level");
  expect_is(slot_word(unlinked.at), free_word(unlinked), "the header of a level that was not linked");
  expect_is(slot_word(nowhere.at), free_word(nowhere), "the header of a level of no queue");
}
static void levels_of_a_damaged_queue(void) {
  begin_dead();
  uint32_t queue = queue_of_others("damaged");
  slot_of_dead bites = unlinked_level(queue), unlinked = unlinked_level(queue);
  SB_STORE(&queue_at(queue)->consumer_levels, bites.at, SB_RELAXED);
  SB_STORE(&((sb_consumer_level_shm *)sb_slot_at(t.b, bites.at))->next, bites.at, SB_RELAXED);
  recover_dead();
  expect_is(slot_word(bites.at), published_word(bites), "the header of a level that is followed by itself");
  expect_is(slot_word(unlinked.at), free_word(unlinked), "the header of a level that is not in the ring of levels");
}

static uint32_t new_lane(const sb_queue *q, unsigned number) {
  uint32_t lane = 0;
  if (sb_lanes_make(d.c, q->slot, number, &lane) != SB_OK) die("sb_lanes_make", 0);
  return lane;
}
static slot_of_dead unlinked_lane(uint32_t queue, unsigned number) {
  slot_of_dead s = new_object(SB_KIND_LANE);
  sb_lane_shm *l = sb_slot_at(t.b, s.at);
  SB_STORE(&l->queue, queue, SB_RELAXED);
  SB_STORE(&l->number, number, SB_RELAXED);
  return s;
}
#define RANKED ((sb_settings){{-1, -1, -1, 0, -1, -1, 9}, 0})
static void lanes_that_were_made(void) {
  begin_dead();
  sb_queue *q = queue_of_dead("q", RANKED);
  uint32_t low = new_lane(q, 2), middle = new_lane(q, 5), high = new_lane(q, 9);
  slot_of_dead first = linked(low), between = linked(middle), last = linked(high);
  slot_of_dead unlinked = unlinked_lane(q->slot, 4), same = unlinked_lane(q->slot, 5), none = new_message(),
               nowhere = unlinked_lane(none.at, 3);
  SB_STORE(&queue_at(none.at)->lanes, nowhere.at, SB_RELAXED);
  recover_dead();
  expect_is(slot_word(first.at), published_word(first), "the header of the first lane");
  expect_is(slot_word(between.at), published_word(between), "the header of a lane in between");
  expect_is(slot_word(last.at), published_word(last), "the header of the last lane");
  expect_is(slot_word(unlinked.at), free_word(unlinked), "the header of a lane that was not linked");
  expect_is(slot_word(same.at), free_word(same), "the header of a lane that another process made first");
  expect_is(slot_word(nowhere.at), free_word(nowhere), "the header of a lane of no queue");
}
/* It was killed between the steps of the disposal of a queue: the lane is published, but not linked any more. */
static void lanes_that_were_swept(void) {
  begin_dead();
  sb_queue *q = queue_of_dead("q", RANKED);
  uint32_t three = new_lane(q, 3);
  slot_of_dead kept = slot_there(three), swept = unlinked_lane(q->slot, 7);
  publish(swept);
  (void)hold(holding_of(SB_HOLD_SLOT, kept), 0);
  recover_dead();
  expect_is(slot_word(swept.at), free_word(swept), "the header of a lane that was unlinked");
  expect_is(slot_word(kept.at), published_word(kept), "the header of a lane that is linked");
}

static sb_ledger_shm *ledger_at(slot_of_dead s) { return sb_slot_at(t.b, s.at); }
static slot_of_dead unlinked_ledger(uint32_t queue) {
  slot_of_dead s = new_object(SB_KIND_LEDGER);
  SB_STORE(&ledger_at(s)->queue, queue, SB_RELAXED);
  SB_STORE(&ledger_at(s)->owner, d.c->id | SB_FIELD(5, 12), SB_RELAXED);
  return s;
}
/* The dead connection was killed before it noted that it has the ledger. */
static slot_of_dead own_ledger(const sb_queue *q) {
  slot_of_dead s = slot_there(sb_slot_of(t.b, q->ledger));
  sb_holding_at(t.b, q->ledger_token)->what = holding_of(SB_HOLD_SLOT, s);
  SB_STORE(&q->ledger->owner, d.c->id | SB_FIELD(5, 12), SB_RELAXED);
  return s;
}
static void ledgers_that_were_made(void) {
  begin_dead();
  sb_queue *q = queue_of_dead("q", FREE), *published = queue_of_dead("published", FREE);
  (void)open_queue(&t, "q"); /* the last ledger is the first of the chain */
  slot_of_dead made = own_ledger(q), known = own_ledger(published), none = new_message();
  set_slot_word(made.at, allocated_word(made));
  slot_of_dead unlinked = unlinked_ledger(q->slot), nowhere = unlinked_ledger(none.at);
  SB_STORE(&queue_at(none.at)->ledgers, nowhere.at, SB_RELAXED);
  uint32_t queue = queue_of_others("damaged");
  slot_of_dead bites = unlinked_ledger(queue), beside = unlinked_ledger(queue);
  SB_STORE(&queue_at(queue)->ledgers, bites.at, SB_RELAXED);
  SB_STORE(&ledger_at(bites)->next, bites.at, SB_RELAXED);
  recover_dead();
  expect_is(slot_word(made.at), published_word(made), "the header of a ledger that was linked");
  expect_is(ledger_at(made)->owner, SB_FIELD(5, 12), "its owner");
  expect_is(slot_word(known.at), published_word(known), "the header of a ledger that was published");
  expect_is(ledger_at(known)->owner, SB_FIELD(5, 12), "its owner");
  expect_is(slot_word(unlinked.at), free_word(unlinked), "the header of a ledger that was not linked");
  expect_is(slot_word(nowhere.at), free_word(nowhere), "the header of a ledger of no queue");
  expect_is(slot_word(bites.at), published_word(bites), "the header of a ledger that is followed by itself");
  expect_is(slot_word(beside.at), free_word(beside), "the header of a ledger beside that");
}
static void ledgers_of_others(void) {
  begin_dead();
  (void)queue_of_dead("q", FREE);
  sb_queue *other = open_queue(&t, "q");
  uint64_t owner = other->ledger->owner;
  slot_of_dead ledger = slot_there(sb_slot_of(t.b, other->ledger));
  (void)hold(holding_of(SB_HOLD_SLOT, ledger), 0);
  recover_dead();
  expect_is(other->ledger->owner, owner, "the owner of a ledger that somebody took over");
  expect_is(slot_word(ledger.at), published_word(ledger), "its header");
}

static void queues_that_were_made(void) {
  begin_dead();
  slot_of_dead named = linked(queue_of_others("named")), unnamed = new_object(SB_KIND_QUEUE);
  slot_of_dead with_texts = new_object(SB_KIND_LONG_QUEUE);
  recover_dead();
  expect_is(slot_word(with_texts.at), free_word(with_texts), "the header of a queue with texts that has no name");
  expect_is(slot_word(named.at), published_word(named), "the header of a queue that has a name");
  expect_is(slot_word(unnamed.at), free_word(unnamed), "the header of a queue that has none");
}
static void nodes_that_were_made(void) {
  begin_dead();
  sb_queue *q = queue_of_dead("q", FREE);
  uint32_t node;
  uint64_t token;
  if (sb_node_create(d.c, q->slot, 0, SB_NODE_DIRECT, 0, 1, &node, &token) != SB_OK) die("sb_node_create", 0);
  slot_of_dead s = slot_there(node);
  recover_dead();
  expect_is(slot_word(node), free_word(s), "the header of a node");
  expect_is(sb_node_state(((sb_node_shm *)sb_slot_at(t.b, node))->word), SB_NODE_REMOVED, "its state");
}

/* A sweep of a closed queue unlinks what it frees. */
static void what_a_sweep_had_unlinked(void) {
  begin_dead();
  sb_queue *q = queue_of_dead("q", FREE);
  uint32_t first = new_level(q, 1);
  slot_of_dead level = unlinked_level(q->slot), later = unlinked_level(q->slot), ledger = unlinked_ledger(q->slot),
               queue = new_object(SB_KIND_QUEUE), kept = slot_there(first), open = slot_there(q->slot),
               with_texts = new_object(SB_KIND_LONG_QUEUE);
  const slot_of_dead all[] = {level, later, ledger, queue, with_texts};
  for (unsigned i = 0; i < 5; i++) publish(all[i]);
  for (uint32_t i = 1; i < sb_holdings_used(d.c->last); i++) {
    sb_holding_shm *h = &d.c->last->entries[i];
    if (h->what == holding_of(SB_HOLD_SLOT, later)) h->what = sb_holding_what(SB_HOLD_SLOT, later.at, later.gen + 1);
  }
  (void)hold(holding_of(SB_HOLD_SLOT, kept), 0);
  (void)hold(holding_of(SB_HOLD_SLOT, open), 0);
  SB_STORE(&queue_at(queue.at)->state, SB_QUEUE_NONE, SB_RELAXED);
  SB_STORE(&queue_at(with_texts.at)->state, SB_QUEUE_NONE, SB_RELAXED);
  recover_dead();
  expect_is(slot_word(with_texts.at), free_word(with_texts), "the header of a queue with texts that was swept");
  expect_is(slot_word(level.at), free_word(level), "the header of a level that was unlinked");
  expect_is(slot_word(later.at), published_word(later), "the header of a later level");
  expect_is(slot_word(ledger.at), free_word(ledger), "the header of a ledger that was unlinked");
  expect_is(slot_word(queue.at), free_word(queue), "the header of a queue that was swept");
  expect_is(slot_word(kept.at), published_word(kept), "the header of a level that is linked");
  expect_is(slot_word(open.at), published_word(open), "the header of a queue that is open");
}

/* A damaged chain of ledgers leads to the level: it is not taken for a ledger of the dead connection. */
static void a_level_in_a_chain_of_ledgers(void) {
  begin_dead();
  sb_queue *q = queue_of_dead("q", FREE);
  int32_t priority = (int32_t)d.c->id;
  slot_of_dead level = linked(new_level(q, priority));
  SB_STORE(&q->shm->ledgers, level.at, SB_RELAXED);
  recover_dead();
  expect_is(slot_word(level.at), published_word(level), "the header of the level");
  expect_is(((sb_consumer_level_shm *)sb_slot_at(t.b, level.at))->priority, priority, "its priority");
}

/* ---- chunks and views ---- */

#define CHUNK 20u
/* The dead connection took a slot by an old hint (I14). Another process has filled in the chunk, and is stopped before it
 * opens it. */
static void slots_of_a_chunk_that_is_claimed(void) {
  begin_dead();
  grow_to(CHUNK);
  unsigned cls = sb_class_of_kind(t.b, SB_KIND_NODE);
  uint64_t word = sb_chunk_word(SB_CHUNK_CLAIMED, BESIDE, cls, 0);
  SB_STORE(&t.b->chunks[CHUNK], word, SB_RELAXED);
  slot_of_dead s = {CHUNK * SB_CHUNK_UNITS + 5, 7};
  set_slot_word(s.at, allocated_word(s));
  (void)hold(holding_of(SB_HOLD_SLOT, s), 0);
  recover_dead();
  expect_is(slot_word(s.at), free_word(s), "the header of a slot that was taken by an old hint");
  expect_is(t.b->chunks[CHUNK], word, "the word of the chunk");
}
static uint64_t claimed(void) { return sb_chunk_word(SB_CHUNK_CLAIMED, d.c->id, 4, 0); }
static void chunks_that_were_claimed(void) {
  begin_dead();
  grow_to(CHUNK + 3);
  for (uint32_t i = 0; i < 3; i++) SB_STORE(&t.b->chunks[CHUNK + i], claimed(), SB_RELAXED);
  unsigned cls = sb_class_of_kind(t.b, SB_KIND_CONSUMER_LEVEL);
  SB_STORE(&t.b->chunks[CHUNK + 3], sb_chunk_word(SB_CHUNK_CLASS, 0, cls, 0), SB_RELAXED);
  uint32_t drained = (CHUNK + 3) * SB_CHUNK_UNITS;
  set_slot_word(drained, sb_slot_word(SB_SLOT_ALLOC, d.c->id | SB_SLOT_DRAINED, 7));
  (void)hold(sb_holding_what(SB_HOLD_CHUNK, 0, 0), CHUNK);
  (void)hold(sb_holding_what(SB_HOLD_CHUNK, 0, 0), BEYOND + CHUNK + 1);
  (void)hold(sb_holding_what(SB_HOLD_CELL, 0, 0), CHUNK + 2);
  (void)hold(sb_holding_what(SB_HOLD_CHUNK, 0, 0), CHUNK + 3);
  recover_dead();
  expect_is(sb_chunk_state(t.b->chunks[CHUNK]), SB_CHUNK_FREE, "the state of a chunk that was claimed");
  expect_is(t.b->chunks[CHUNK + 1], claimed(), "the word of a chunk that no holding names");
  expect_is(t.b->chunks[CHUNK + 2], claimed(), "the word of a chunk that a cell's holding names");
  expect_is(slot_word(drained), sb_slot_word(SB_SLOT_FREE, 0, 8), "the header of a slot that was taken to drain it");
}

/* The dead connection held a message, and had two views of its body; one is not listed as a view. */
static void views_that_were_held(void) {
  static char record[BUFFER];
  begin_dead();
  sb_queue *q = queue_of_dead("q", FREE);
  uint32_t slot = put_by_dead(q, SB_INLINE_BODY + 64);
  uint64_t views[2];
  const sb_record *r = (const sb_record *)(const void *)record;
  if (sb_queue_get(q, record, false) < 0) die("sb_queue_get", 0);
  for (unsigned i = 0; i < 2; i++) {
    if (sb_view_begin(d.c, r->tag, r->sequence, r->body_address, &views[i]) != SB_OK) die("sb_view_begin", 0);
  }
  expect_is(sb_slot_refs(slot_word(slot)), 7, "the references before");
  sb_holding_shm *other = sb_holding_at(t.b, views[1]);
  other->what = other->what - SB_HOLD_VIEW + SB_HOLD_CELL;
  recover_dead();
  expect_is(sb_slot_refs(slot_word(slot)), 5, "the references of the cell and of what is no view");
}

static const test_case CASES[] = {
    {"recover: messages", "the reaper frees what the dead connection allocated and did not publish", slots_of_messages},
    {"recover: holdings", "the reaper frees slots of used entries of kind SLOT only", other_holdings_of_a_slot},
    {"recover: pages", "the reaper publishes pages that are linked, and frees the others", pages_that_were_made},
    {"recover: retired", "the reaper retires and frees pages that the dead connection was retiring",
     pages_that_were_retired},
    {"recover: levels", "the reaper publishes levels that are linked, and frees the others", levels_that_were_made},
    {"recover: lanes", "the reaper publishes lanes that are linked, and frees the others", lanes_that_were_made},
    {"recover: swept lanes", "the reaper frees a lane that was unlinked", lanes_that_were_swept},
    {"recover: damaged levels", "the reaper comes to the end of levels that are followed by themselves",
     levels_of_a_damaged_queue},
    {"recover: level as ledger", "the reaper leaves a level alone to which a damaged chain of ledgers leads",
     a_level_in_a_chain_of_ledgers},
    {"recover: old hints", "the reaper frees a slot of a chunk that another process has claimed",
     slots_of_a_chunk_that_is_claimed},
    {"recover: ledgers", "the reaper publishes and leaves ledgers that are linked, and frees the others",
     ledgers_that_were_made},
    {"recover: ledgers of others", "the reaper leaves a ledger to the connection that has taken it over",
     ledgers_of_others},
    {"recover: queues", "the reaper publishes queues that have a name, and frees the others", queues_that_were_made},
    {"recover: nodes", "the reaper removes the nodes of the dead connection", nodes_that_were_made},
    {"recover: swept", "the reaper frees what a sweep had unlinked", what_a_sweep_had_unlinked},
    {"recover: chunks", "the reaper gives chunks back that the dead connection had claimed", chunks_that_were_claimed},
    {"recover: views", "the reaper drops views, and nothing that is listed as something else", views_that_were_held},
};
SUBJECT(CASES)
