// SPDX-License-Identifier: Apache-2.0
/* sb_recover: the reaper recovers a process and its connections; and the clean end of a connection. */
#include "sb_recover.h"

#include <string.h>

#include "calls.h"
#include "dead.h"
#include "meanwhile.h"
#include "proc.h"
#include "sb_liveness.h"
#include "sb_slab.h"

#define BESIDE (d.c->id + 1) /* another connection */
#define CHUNK 20u
#define FOUR 4u
#define FREE_SLOT 200u /* of no process */
#define OLD 99u        /* the number of a connection without a record */

static void set_chunk(uint32_t chunk, unsigned state, unsigned owner, unsigned cls) {
  grow_to(chunk);
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(state, owner, cls, 0), SB_RELAXED);
}
/* ---- processes and connections ---- */

static void a_process_is_recovered(void) {
  begin_dead();
  if (declare(&t, "q", (sb_settings)FREELY) != SB_OK) die("declare", 0);
  sb_queue *q = open_queue(&t, "q");
  uint32_t producer;
  uint64_t token;
  if (sb_node_create(t.c, q->slot, 0, SB_NODE_DIRECT | SB_NODE_ROOM | SB_NODE_MEMORY, 0, 1, &producer, &token) != SB_OK)
    die("sb_node_create", 0);
  (void)sb_node_move(t.c, producer, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED);
  const sb_header_shm *h = t.b->header;
  uint64_t reaped = h->reaped, epoch = sb_conn_epoch(t.b->connections[d.c->id]);
  uint64_t free_word = sb_conn_word(SB_CONN_FREE, GONE, 0, 5);
  sb_process_shm *p = &t.b->processes[GONE];
  sb_connection_shm *shm = d.c->shm;
  SB_STORE(&shm->waiter, 7u, SB_RELAXED);
  SB_STORE(&t.b->connections[OLD], free_word, SB_RELAXED);
  /* the word behind the last connection is that of chunk 0, which says here what a connection of the process would say */
  SB_STORE(&t.b->chunks[0], t.b->chunks[0] | SB_FIELD(GONE, 2), SB_RELAXED);
  uint64_t behind = t.b->chunks[0];
  SB_STORE(&p->boot.what, SB_HOLD_PAGE, SB_RELAXED);
  expect_locked_in(t.c, "sb_holdings.c");
  recover_dead();
  was_locked("the recovery of a process");
  expect_is(h->reaped, reaped + 1, "how many processes were recovered");
  expect_is(p->word, SB_PROC_FREE | SB_FIELD(3, 2), "the word of the process");
  expect_is(p->boot.what, SB_HOLD_NONE, "what the process announces");
  expect_is(t.b->connections[d.c->id], sb_conn_word(SB_CONN_FREE, 0, 0, epoch), "the word of the connection");
  expect_is(t.b->connections[OLD], free_word, "the word of a connection that was free");
  expect_is(t.b->chunks[0], behind, "the word of chunk 0");
  expect_is(shm->waiter, 0, "whom the record says to ring");
  expect_is(shm->holdings, 0, "the first table of the record");
  expect(t.c->gate == &t.c->shm->gate, "the reaper has another gate");
  expect_is(node_state(producer), SB_NODE_NOTIFIED, "the state of a producer that waits for memory");
  expect(!sb_recover_process(t.c, GONE), "it was recovered twice");
}
/* Without a descriptor for the second segment the process stays dead, and all that it owns stays its own. */
static void a_segment_that_cannot_be_mapped(void) {
  begin_dead();
  process_is_gone();
  grow_to(CHUNKS_PER_SEGMENT + 1);
  uint64_t dead = t.b->processes[GONE].word, connection = t.b->connections[d.c->id];
  t.b->mapped_segments = 1;
  t.b->mapped_chunks = CHUNKS_PER_SEGMENT;
  opens_to_fail = 1;
  expect(!sb_recover_process(t.c, GONE), "a process was recovered, although not all of the memory could be read");
  expect_is(opens_to_fail, 0, "how many files were not opened");
  expect_is(t.b->processes[GONE].word, dead, "the word of the process");
  expect_is(t.b->connections[d.c->id], connection, "the word of the connection");
  expect(sb_recover_process(t.c, GONE), "it was not recovered when the memory could be read");
}
static void all_processes_are_recovered(void) {
  begin_dead();
  SB_STORE(&t.b->connections[0], SB_PROC_LIVE, SB_RELAXED); /* what lies behind the last process */
  expect_is(sb_recover_all(t.c), 0, "how many processes were recovered when none is gone");
  process_is_gone();
  expect_is(sb_recover_all(t.c), 1, "how many processes were recovered when one is gone");
  expect_is(sb_recover_all(t.c), 0, "how many processes were recovered then");
}
static bool byte_was_free = true;
static void process_attaches(void) {
  byte_was_free = sb_lock_byte(t.b->topology_fd, SB_LOCK_PROCESS + FREE_SLOT);
  sb_unlock_byte(t.b->topology_fd, SB_LOCK_PROCESS + FREE_SLOT);
}
/* Another process attaches while the reaper looks for the dead. */
static void slots_that_are_free(void) {
  meanwhile(&t.b->processes[FREE_SLOT].word, AFTER_LOAD, 2, process_attaches); /* one look is enough */
  (void)sb_recover_all(t.c);
  meanwhile(NULL, AFTER_LOAD, 0, NULL);
  expect(byte_was_free, "the reaper keeps another process from a slot that is free");
}

static void hints_are_given_back(void) {
  begin_dead();
  set_chunk(CHUNK, SB_CHUNK_CLASS, 0, FOUR);
  memset(sb_chunk_meta(t.b, CHUNK)->hints, 0, sizeof sb_chunk_meta(t.b, CHUNK)->hints);
  SB_STORE(&d.c->shm->claims[FOUR], CHUNK * 128 + 4, SB_RELAXED);
  recover_dead();
  expect_is(sb_chunk_meta(t.b, CHUNK)->hints[3], UINT64_MAX, "the hints that the dead connection had taken");
}

/* ---- tables of holdings ---- */

#define MANY 70u
static uint32_t tables[MANY];

static uint32_t fill_tables(uint32_t count) {
  uint32_t n = 0;
  sb_holdings_shm *last = NULL;
  while (n < count) {
    if (d.c->last != last) {
      last = d.c->last;
      tables[n++] = sb_slot_of(t.b, last);
    }
    (void)hold(SB_HOLD_NONE, 0);
  }
  return n;
}
static void expect_tables_free(uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    expect(sb_slot_state(slot_word(tables[i])) == SB_SLOT_FREE, "table %u of %u is not free", i, count);
}
static void tables_are_freed(void) {
  const uint32_t counts[] = {1, 3, 64, 65, MANY};
  for (unsigned i = 0; i < 5; i++) {
    begin_dead();
    (void)fill_tables(counts[i]);
    recover_dead();
    expect_tables_free(counts[i]);
  }
}

static uint64_t taken_again;
static void table_is_taken(void) {
  uint32_t last = tables[MANY - 1];
  taken_again = sb_slot_word(SB_SLOT_ALLOC, d.c->id + 1, sb_slot_gen(slot_word(last)));
  set_slot_word(last, taken_again);
}
/* Another process takes the table that was freed first, while the others are freed. */
static void a_table_that_is_taken_again(void) {
  begin_dead();
  (void)fill_tables(MANY);
  if (!has_steps()) return;
  meanwhile(sb_slot_header(t.b, tables[MANY - 2]), BEFORE_CAS, 1, table_is_taken);
  recover_dead();
  if (has_acted()) expect_is(slot_word(tables[MANY - 1]), taken_again, "the header of a table that another one took");
}
static uint32_t allocated(unsigned kind, unsigned owner, uint64_t *gen) {
  uint64_t token;
  uint32_t slot;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  if (sb_slab_alloc(t.c, sb_class_of_kind(t.b, kind), token, &slot, gen) != SB_OK) die("sb_slab_alloc", (int)kind);
  set_slot_word(slot, sb_slot_word(SB_SLOT_ALLOC, owner, *gen));
  return slot;
}
/* Entry 0 of the last table announces the next one, which was not linked. */
static uint64_t after_stray(unsigned holding, unsigned kind, unsigned state, unsigned beside, unsigned later) {
  uint64_t gen;
  begin_dead();
  uint32_t slot = allocated(kind, d.c->id, &gen);
  set_slot_word(slot, sb_slot_word(state, d.c->id + beside, gen));
  (void)fill_tables(2);
  d.c->last->entries[0].what = sb_holding_what(holding, slot, gen + later);
  recover_dead();
  uint64_t word = slot_word(slot);
  expect_tables_free(2);
  bool freed = word == sb_slot_word(SB_SLOT_FREE, 0, gen + 1);
  expect(freed || word == sb_slot_word(state, d.c->id + beside, gen), "the header became %llx",
         (unsigned long long)word);
  return freed;
}
static void a_table_that_was_not_linked(void) {
  expect(after_stray(SB_HOLD_SLOT, SB_KIND_HOLDINGS, SB_SLOT_ALLOC, 0, 0), "a table was not freed");
  expect(!after_stray(SB_HOLD_CELL, SB_KIND_HOLDINGS, SB_SLOT_ALLOC, 0, 0), "a table was freed that no slot is");
  expect(!after_stray(SB_HOLD_SLOT, SB_KIND_HOLDINGS, SB_SLOT_PUBLISHED, 0, 0), "a published slot was freed");
  expect(!after_stray(SB_HOLD_SLOT, SB_KIND_HOLDINGS, SB_SLOT_ALLOC, 1, 0), "another one's table was freed");
  expect(!after_stray(SB_HOLD_SLOT, SB_KIND_HOLDINGS, SB_SLOT_ALLOC, 0, 1), "an earlier table was freed");
  expect(after_stray(SB_HOLD_SLOT, SB_KIND_CONNECTION, SB_SLOT_ALLOC, 0, 0), "another record was not freed");
  begin_dead();
  uint32_t behind = t.b->chunk_limit * SB_CHUNK_UNITS;
  (void)fill_tables(2);
  sb_holdings_shm *first = sb_slot_at(t.b, tables[0]);
  first->entries[0].what = sb_holding_what(SB_HOLD_SLOT, behind - 1, 0);
  d.c->last->entries[0].what = sb_holding_what(SB_HOLD_SLOT, behind, 0);
  recover_dead();
  expect_tables_free(2);
}

/* ---- what a process announces while a connection is opened ---- */

static void announce(uint64_t what, uint64_t where) {
  process_is_gone();
  SB_STORE(&t.b->processes[GONE].boot.where, where, SB_RELAXED);
  SB_STORE(&t.b->processes[GONE].boot.what, what, SB_RELAXED);
}
static void a_connection_without_a_record(void) {
  const unsigned kinds[] = {SB_KIND_CONNECTION, SB_KIND_HOLDINGS, SB_KIND_LEDGER};
  for (unsigned i = 0; i < 3; i++) {
    uint64_t gen;
    begin_dead();
    uint32_t slot = allocated(kinds[i], OLD, &gen);
    SB_STORE(&t.b->connections[OLD], sb_conn_word(SB_CONN_LIVE, GONE, 0, 5), SB_RELAXED);
    announce(sb_holding_what(SB_HOLD_SLOT, slot, gen), 0);
    expect(sb_recover_process(t.c, GONE), "it was not recovered");
    expect_is(sb_slot_state(slot_word(slot)), i < 2 ? SB_SLOT_FREE : SB_SLOT_ALLOC, "the state of what was announced");
    expect_is(t.b->connections[OLD], sb_conn_word(SB_CONN_FREE, 0, 0, 5), "the word of the connection");
  }
}
static uint32_t record;
static unsigned looks, early; /* a table was freed; and the record was before */
static void look_at_record(const char *site) {
  if (strcmp(site, "recover.holdings.freed") != 0) return;
  looks++;
  early += sb_slot_state(atomic_load_explicit(sb_slot_header(t.b, record), memory_order_relaxed)) != SB_SLOT_ALLOC;
}
static void the_record_goes_last(void) {
  begin_dead();
  record = d.c->record;
  announce(sb_holding_what(SB_HOLD_SLOT, record, sb_slot_gen(slot_word(record))), 0);
  at_step = look_at_record;
  expect(sb_recover_process(t.c, GONE), "it was not recovered");
  at_step = NULL;
  expect_is(looks, has_steps(), "how many tables were freed");
  expect_is(early, 0, "how often the record was freed before a table");
  expect_is(sb_slot_state(slot_word(record)), SB_SLOT_FREE, "the state of the record");
}
static void a_chunk_that_was_announced(void) {
  begin_dead();
  unsigned cls = sb_class_of_kind(t.b, SB_KIND_CONSUMER_LEVEL);
  uint32_t drained = (CHUNK + 1) * SB_CHUNK_UNITS;
  set_chunk(CHUNK, SB_CHUNK_CLAIMED, d.c->id, FOUR);
  announce(sb_holding_what(SB_HOLD_PAGE, 0, 0), CHUNK);
  expect(sb_recover_process(t.c, GONE), "it was not recovered");
  expect_is(sb_chunk_state(t.b->chunks[CHUNK]), SB_CHUNK_CLAIMED, "the state of a chunk that was not announced");
  begin_dead();
  set_chunk(CHUNK, SB_CHUNK_CLAIMED, d.c->id, FOUR);
  announce(sb_holding_what(SB_HOLD_CHUNK, 0, 0), CHUNK);
  expect(sb_recover_process(t.c, GONE), "it was not recovered");
  expect_is(sb_chunk_state(t.b->chunks[CHUNK]), SB_CHUNK_FREE, "the state of a chunk that was announced");
  begin_dead();
  set_chunk(CHUNK + 1, SB_CHUNK_CLASS, 0, cls);
  set_slot_word(drained, sb_slot_word(SB_SLOT_ALLOC, d.c->id | SB_SLOT_DRAINED, 7));
  announce(sb_holding_what(SB_HOLD_CHUNK, 0, 0), CHUNK + 1);
  expect(sb_recover_process(t.c, GONE), "it was not recovered");
  expect_is(slot_word(drained), sb_slot_word(SB_SLOT_FREE, 0, 8), "the header of a slot of a chunk that was drained");
}

/* ---- the clean end of a connection ---- */

static uint64_t message_gen;
static uint32_t new_message(void) {
  uint64_t token;
  uint32_t slot;
  begin_dead();
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  if (sb_slab_alloc(t.c, sb_class_for(t.b, 100), token, &slot, &message_gen) != SB_OK) die("sb_slab_alloc", 0);
  set_slot_word(slot, sb_slot_word(SB_SLOT_ALLOC, d.c->id, message_gen));
  return slot;
}
static bool closes_with(uint64_t what) {
  sb_holding_shm *h = hold(what, 0);
  uint64_t word = SB_LOAD(&t.b->connections[d.c->id], SB_RELAXED);
  bool closed = sb_recover_close(d.c);
  unsigned state = sb_conn_state(SB_LOAD(&t.b->connections[d.c->id], SB_RELAXED));
  expect(closed || h->what == what, "the holding of a connection that was not closed is gone");
  expect(state == (closed ? SB_CONN_FREE : SB_CONN_LIVE), "the state of the connection is %u", state);
  expect(closed || t.b->connections[d.c->id] == word, "its word changed");
  return closed;
}
static void a_connection_with_views_stays(void) {
  begin_dead();
  expect(!closes_with(sb_holding_what(SB_HOLD_VIEW, 0, 0)), "a connection with a view was closed");
  uint32_t slot = new_message();
  expect(!closes_with(sb_holding_what(SB_HOLD_SLOT, slot, message_gen)), "a connection with a reservation was closed");
  (void)hold(sb_holding_what(SB_HOLD_CELL, 0, 0), 0);
  expect(!sb_recover_close(d.c), "a connection was closed that has a holding behind that of its reservation");
  slot = new_message();
  expect(closes_with(sb_holding_what(SB_HOLD_CELL, slot, message_gen)), "what a cell's holding names is a reservation");
  slot = new_message();
  expect(closes_with(sb_holding_what(SB_HOLD_SLOT, slot, message_gen + 1)), "an earlier message is a reservation");
  slot = new_message();
  set_slot_word(slot, sb_slot_word(SB_SLOT_ALLOC, BESIDE, message_gen));
  expect(closes_with(sb_holding_what(SB_HOLD_SLOT, slot, message_gen)), "another one's slot is a reservation");
  slot = new_message();
  set_slot_word(slot, sb_slot_word(SB_SLOT_PUBLISHED, d.c->id, message_gen));
  expect(closes_with(sb_holding_what(SB_HOLD_SLOT, slot, message_gen)), "a published message is a reservation");
  begin_dead();
  slot = allocated(SB_KIND_CONSUMER_LEVEL, d.c->id, &message_gen);
  expect(closes_with(sb_holding_what(SB_HOLD_SLOT, slot, message_gen)), "a level is a reservation");
  begin_dead();
  uint32_t behind = t.b->chunk_limit * SB_CHUNK_UNITS;
  (void)hold(sb_holding_what(SB_HOLD_SLOT, behind - 1, 0), 0);
  expect(closes_with(sb_holding_what(SB_HOLD_SLOT, behind, 0)), "a slot that lies nowhere is a reservation");
}
static void a_closed_connection_gives_all_back(void) {
  begin_dead();
  set_chunk(CHUNK, SB_CHUNK_CLASS, 0, FOUR);
  memset(sb_chunk_meta(t.b, CHUNK)->hints, 0, sizeof sb_chunk_meta(t.b, CHUNK)->hints);
  d.c->cache[FOUR] = (sb_slab_cache){5, CHUNK, 3};
  SB_STORE(&d.c->shm->claims[FOUR], CHUNK * 128 + 4, SB_RELAXED);
  uint32_t at = d.c->record;
  (void)fill_tables(1);
  expect(sb_recover_close(d.c), "it was not closed");
  expect_is(sb_chunk_meta(t.b, CHUNK)->hints[3], 5, "the hints that it had taken");
  expect_is(sb_slot_state(slot_word(at)), SB_SLOT_FREE, "the state of its record");
  expect_tables_free(1);
  expect(d.c->gate == &d.c->own_gate, "its gate lies in a record that is free");
}

static const test_case CASES[] = {
    {"recover: process", "the reaper frees the process and its connections, and nothing beside them",
     a_process_is_recovered},
    {"recover: unmapped", "a reaper that cannot map a segment recovers nothing", a_segment_that_cannot_be_mapped},
    {"recover: all", "the reaper recovers each process that is gone", all_processes_are_recovered},
    {"recover: free slots", "the reaper takes the byte of no process but the dead", slots_that_are_free},
    {"recover: hints", "the reaper gives hints back that the dead connection had taken", hints_are_given_back},
    {"recover: tables", "the reaper frees all tables of holdings", tables_are_freed},
    {"recover: tables again", "the reaper frees each table once: others take it", a_table_that_is_taken_again},
    {"recover: stray table", "the reaper frees a table that was announced and not linked", a_table_that_was_not_linked},
    {"recover: no record", "the reaper frees what was announced for a connection without a record",
     a_connection_without_a_record},
    {"recover: record", "the reaper frees the record after the tables", the_record_goes_last},
    {"recover: announced chunk", "the reaper gives a chunk back that the process had announced",
     a_chunk_that_was_announced},
    {"recover: views stay", "a connection is not closed while a view or a reservation lives",
     a_connection_with_views_stays},
    {"recover: close", "a connection that is closed gives back all that it had", a_closed_connection_gives_all_back},
};
SUBJECT(CASES)
