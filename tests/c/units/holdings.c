// SPDX-License-Identifier: Apache-2.0
/* sb_holdings: the holdings of a connection, and how it gets its id and its record. */
#include "sb_holdings.h"

#include <string.h>

#include "cases.h"
#include "meanwhile.h"
#include "sb_reserve.h"

#define HOLDINGS (SB_MESSAGE_CLASSES + SB_KIND_HOLDINGS)

static uint64_t take(void) {
  uint64_t token = 0;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  return token;
}
static void all_taken(void) {
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    grow_to(i);
    if (sb_chunk_state(SB_LOAD(&t.b->chunks[i], SB_RELAXED)) == SB_CHUNK_FREE)
      SB_STORE(&t.b->chunks[i], sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_RELAXED);
  }
}
/* No free slot of that class is left. */
static void exhaust(unsigned cls) {
  uint32_t slot;
  uint64_t gen;
  all_taken();
  while (sb_slab_alloc(t.c, cls, SB_TOKEN_BOOT, &slot, &gen) == SB_OK) {
  }
}

/* ---- entries ---- */

static void entries_are_used_again(void) {
  uint64_t a = take(), b = take();
  expect_is(b, a + 1, "the next entry");
  sb_holding_set(t.b, a, sb_holding_what(SB_HOLD_SLOT, 5, 6), 7);
  sb_holding_give(t.c, a);
  expect_is(sb_holding_at(t.b, a)->what, SB_HOLD_NONE, "what was given back");
  sb_holding_give(t.c, b);
  expect_is(take(), b, "the entry that was given back last");
  expect_is(take(), a, "the one before");
  expect_is(take(), b + 1, "a new one");
}
/* Entry 0 of a table announces the next table; the first table begins with the one kept for pages. */
static void a_table_is_added(void) {
  sb_holdings_shm *first = t.c->last;
  uint32_t tables = t.c->tables;
  expect_is(tables, 1, "the number of tables");
  expect_is(t.c->page_token, (uint64_t)((uint8_t *)&first->entries[SB_HOLDINGS_FIRST] - t.b->arena) / 16,
            "the entry for pages");
  uint64_t last = 0;
  while (SB_LOAD(&first->used, SB_RELAXED) < SB_HOLDINGS_PER_CHUNK) last = take();
  expect(sb_holding_at(t.b, last) == &first->entries[SB_HOLDINGS_PER_CHUNK - 1], "the last entry is elsewhere");
  uint32_t slot;
  uint64_t gen; /* the next table's memory had something else before */
  if (sb_slab_alloc(t.c, HOLDINGS, SB_TOKEN_BOOT, &slot, &gen) != SB_OK) die("sb_slab_alloc", 0);
  memset(sb_slot_at(t.b, slot), 0xff, sizeof(sb_holdings_shm));
  sb_slab_free_now(t.b, slot);
  uint64_t next = take();
  sb_holdings_shm *second = t.c->last;
  expect(second != first && sb_slot_of(t.b, second) == SB_LOAD(&first->next, SB_RELAXED),
         "the second table is not linked");
  expect_is(t.c->tables, 2, "the number of tables");
  expect_is(second->next, 0, "what follows it");
  expect_is(second->used, SB_HOLDINGS_FIRST + 1, "how many of its entries were used");
  expect_is(second->entries[0].what, 0, "its first entry");
  expect(sb_holding_at(t.b, next) == &second->entries[SB_HOLDINGS_FIRST], "the entry is elsewhere");
  expect_is(sb_holding_at(t.b, next)->what, SB_HOLD_NONE, "what the entry says");
  const sb_holding_shm *announced = &first->entries[0];
  expect(sb_holding_kind(announced->what) == SB_HOLD_SLOT &&
             sb_holding_slot(announced->what) == sb_slot_of(t.b, second),
         "the second table was not announced");
  sb_holdings_walk w;
  expect(sb_holdings_first(&w, t.b, t.c->shm, t.c->id) == first, "the first table is elsewhere");
  expect(sb_holdings_next(&w, first) == second && sb_holdings_next(&w, second) == NULL, "the tables are not in a row");
}
static void damaged_entries(void) {
  uint64_t token, behind = t.b->arena_bytes / sizeof(sb_holding_shm);
  const uint64_t bad[] = {behind, behind + 5, UINT64_MAX / 32, behind - 1, UINT64_C(1) << 49};
  for (unsigned i = 0; i < 5; i++) {
    t.c->free_holding = bad[i];
    expect_is(sb_holding_take(t.c, &token), SB_CORRUPT, "the status of an entry that lies nowhere");
  }
  t.c->free_holding = 0;
  expect_is(sb_holding_take(t.c, &token), SB_OK, "the status of a new one");
  sb_holdings_walk w;
  SB_STORE(&t.c->last->next, sb_slot_of(t.b, t.c->last), SB_RELAXED);
  uint32_t n = 0;
  for (sb_holdings_shm *k = sb_holdings_first(&w, t.b, t.c->shm, t.c->id); k != NULL && n < 99;
       k = sb_holdings_next(&w, k))
    n++;
  expect(n < 99, "tables that bite their tail have no end");
  SB_STORE(&t.c->last->used, SB_HOLDINGS_PER_CHUNK + 1, SB_RELAXED);
  expect_is(sb_holdings_used(t.c->last), SB_HOLDINGS_PER_CHUNK, "the entries of a table that says more");
  SB_STORE(&t.c->last->used, SB_HOLDINGS_PER_CHUNK, SB_RELAXED);
  expect_is(sb_holdings_used(t.c->last), SB_HOLDINGS_PER_CHUNK, "the entries of a full table");
  SB_STORE(&t.c->last->used, 7u, SB_RELAXED);
  expect_is(sb_holdings_used(t.c->last), 7, "the entries of a table");
}
/* What holds very much leaves the last chunks to others. */
static void a_connection_with_many_tables(void) {
  const struct {
    unsigned use, tables;
    bool may;
  } cases[] = {{SB_USE_DRAIN, SB_TABLES_TO_DRAIN - 1, true},
               {SB_USE_DRAIN, SB_TABLES_TO_DRAIN, false},
               {SB_USE_PLAIN, 0, false},
               {SB_USE_BOOKS, 0, false}};
  exhaust(HOLDINGS);
  SB_STORE(&t.b->chunks[30], 0, SB_RELAXED); /* the last one that is FREE */
  for (unsigned i = 0; i < 4; i++) {
    uint64_t token;
    t.c->free_holding = 0;
    t.c->use = cases[i].use;
    t.c->tables = cases[i].tables;
    SB_STORE(&t.c->last->used, SB_HOLDINGS_PER_CHUNK, SB_RELAXED);
    sb_status status = sb_holding_take(t.c, &token);
    expect((status == SB_OK) == cases[i].may, "case %u: status %d", i, (int)status);
    expect_is(t.c->use, cases[i].use, "what memory is used for");
    expect_is(t.c->tables, cases[i].tables + cases[i].may, "the number of tables");
    if (cases[i].may) {
      exhaust(HOLDINGS);
      SB_STORE(&t.b->chunks[31], 0, SB_RELAXED);
    }
  }
}
/* Of two chunks that are left a note may have one, an ordinary put may not: however many tables the connection has. */
static void an_ordinary_use_with_many_tables(void) {
  uint64_t token;
  exhaust(HOLDINGS);
  SB_STORE(&t.b->chunks[30], 0, SB_RELAXED);
  SB_STORE(&t.b->chunks[31], 0, SB_RELAXED);
  t.c->use = SB_USE_PLAIN;
  t.c->tables = SB_TABLES_TO_DRAIN;
  SB_STORE(&t.c->last->used, SB_HOLDINGS_PER_CHUNK, SB_RELAXED);
  expect_is(sb_holding_take(t.c, &token), SB_NO_MEMORY, "the status of an ordinary use");
  t.c->use = SB_USE_BOOKS;
  expect_is(sb_holding_take(t.c, &token), SB_OK, "the status of a note");
}
static void an_object_is_listed(void) {
  uint64_t token, gen, next = take();
  uint32_t slot;
  sb_holding_give(t.c, next);
  expect_is(sb_holding_object(t.c, SB_KIND_NODE, &token, &slot, &gen), SB_OK, "the status");
  expect_is(token, next, "its entry");
  expect_is(sb_holding_at(t.b, token)->what, sb_holding_what(SB_HOLD_SLOT, slot, gen), "what the entry says");
  next = take();
  sb_holding_give(t.c, next);
  exhaust(SB_MESSAGE_CLASSES + SB_KIND_NODE);
  expect_is(sb_holding_object(t.c, SB_KIND_NODE, &token, &slot, &gen), SB_NO_MEMORY, "the status without a slot");
  expect_is(take(), next, "the entry that was given back");
  t.c->free_holding = UINT64_MAX / 32;
  slot = 7;
  expect_is(sb_holding_object(t.c, SB_KIND_NODE, &token, &slot, &gen), SB_CORRUPT, "the status without an entry");
  expect_is(slot, 7, "a slot without an entry");
}

/* ---- connections ---- */

static void records_of_connections(void) {
  unsigned id = t.c->id;
  sb_connection_shm *shm = t.c->shm;
  expect(sb_connection_record(t.b, id) == shm, "the record is elsewhere");
  expect(sb_connection_record(t.b, 0) == NULL && sb_connection_record(t.b, SB_MAX_CONNECTIONS) == NULL,
         "nobody has a record");
  uint64_t word = SB_LOAD(&t.b->connections[id], SB_RELAXED);
  SB_STORE(&t.b->connections[id], word & ~UINT64_C(3), SB_RELAXED);
  expect(sb_connection_record(t.b, id) == NULL, "a number that is FREE has a record");
  SB_STORE(&t.b->connections[id], word, SB_RELAXED);
  SB_STORE(&t.b->connections[0], word, SB_RELAXED);
  expect(sb_connection_record(t.b, 0) == NULL, "number 0 has a record");
  uint32_t slot = sb_slot_of(t.b, shm);
  sb_word *header = sb_slot_header(t.b, slot);
  uint64_t was = SB_LOAD(header, SB_RELAXED);
  expect(sb_holding_owned(t.b, slot, SB_KIND_CONNECTION, id) == shm, "it is not its owner's");
  expect(sb_holding_owned(t.b, slot, SB_KIND_CONNECTION, id + 1) == NULL, "it is another one's");
  expect(sb_holding_owned(t.b, slot, SB_KIND_NODE, id) == NULL, "it is of another kind");
  expect(sb_holding_owned(t.b, 0, SB_KIND_CONNECTION, id) == NULL, "slot 0 is somebody's");
  expect(sb_holding_owned(t.b, UINT32_MAX, SB_KIND_CONNECTION, id) == NULL, "what lies nowhere is somebody's");
  expect(sb_connection_record(t.b, UINT32_MAX / 2) == NULL, "a number far too high has a record");
  SB_STORE(header, sb_slot_word(SB_SLOT_ALLOC, 0, sb_slot_gen(was)), SB_RELAXED);
  expect(sb_connection_record(t.b, 0) == NULL, "number 0 has a record of nobody");
  SB_STORE(header, sb_slot_word(SB_SLOT_PUBLISHED, id, sb_slot_gen(was)), SB_RELAXED);
  expect(sb_holding_owned(t.b, slot, SB_KIND_CONNECTION, id) == NULL, "what is published is its owner's");
  SB_STORE(&t.b->header->next_connection, SB_MAX_CONNECTIONS - 1, SB_RELAXED);
  SB_STORE(header, was, SB_RELAXED);
}
static sb_connection fresh;
static sb_status open_named(const char *name, uint32_t length) {
  memset(&fresh, 0xff, sizeof fresh);
  return sb_holdings_open(t.b, &fresh, name, length);
}
static void a_connection_is_opened(void) {
  char longest[SB_NAME_MAX + 2];
  memset(longest, 'n', sizeof longest);
  uint64_t epoch = sb_conn_epoch(SB_LOAD(&t.b->connections[9], SB_RELAXED));
  SB_STORE(&t.b->header->next_connection, 9u, SB_RELAXED);
  expect_is(open_named("name", 4), SB_OK, "the status");
  expect_is(fresh.id, 9, "its number");
  const sb_connection_shm *shm = fresh.shm;
  expect(shm == sb_connection_record(t.b, 9), "its record is elsewhere");
  expect_is(SB_LOAD(&t.b->connections[9], SB_RELAXED),
            sb_conn_word(SB_CONN_LIVE, t.b->process, fresh.record, epoch + 1), "its word");
  expect_is(shm->id, 9, "the number in its record");
  expect_is(shm->process, t.b->process, "the process in its record");
  expect(shm->created_ns != 0 && strcmp(shm->name, "name") == 0, "its name and time");
  expect(fresh.gate == &shm->gate, "its gate is elsewhere");
  expect_is(fresh.free_holding, 0, "what it has at the beginning");
  expect(fresh.last != NULL && fresh.page_token != 0, "it has no entry for pages");
  expect_is(open_named(longest, SB_NAME_MAX + 1), SB_OK, "the status of a long name");
  expect_is(fresh.shm->name[SB_NAME_MAX - 1], 'n', "the last byte of the longest name");
  expect_is(fresh.shm->name[SB_NAME_MAX], 0, "the end of the longest name");
}
/* What lay in memory before shows up nowhere in a new record; what was taken while it was made is noted there. */
static __attribute__((noinline)) void soil_the_stack(void) {
  volatile uint8_t bytes[16384];
  for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = 0xff;
}
static void a_new_record_is_clean(void) {
  uint32_t slot;
  uint64_t gen;
  if (sb_slab_alloc(t.c, SB_MESSAGE_CLASSES + SB_KIND_CONNECTION, SB_TOKEN_BOOT, &slot, &gen) != SB_OK)
    die("sb_slab_alloc", 0);
  memset(sb_slot_at(t.b, slot), 0xff, sizeof(sb_connection_shm));
  sb_slab_free_now(t.b, slot);
  sb_slab_return_cache(t.c);
  soil_the_stack();
  expect_is(open_named("name, and more", 4), SB_OK, "the status");
  const sb_connection_shm *shm = fresh.shm;
  expect_is(shm->waiter | shm->channels | shm->delivered | shm->published | shm->commit | shm->work, 0, "its words");
  expect(memcmp(shm->name, "name\0\0", 6) == 0, "its name is longer");
  unsigned claims = 0;
  for (unsigned i = 1; i < SB_MESSAGE_CLASSES + SB_KIND_COUNT; i++) {
    if (fresh.cache[i].mask != 0)
      expect_is(shm->claims[i], fresh.cache[i].chunk * 128 + fresh.cache[i].word + 1, "the claim of what it has taken");
    expect(shm->claims[i] <= BROKER_CHUNKS * 128, "claim %u is %u", i, shm->claims[i]);
    claims += shm->claims[i] != 0;
  }
  expect(claims > 0, "it has claimed nothing");
}
static void take_number_9(void) { SB_STORE(&t.b->connections[9], sb_conn_word(SB_CONN_LIVE, 3, 0, 1), SB_RELAXED); }
static void another_process_takes_the_number(void) {
  SB_STORE(&t.b->header->next_connection, 9u, SB_RELAXED);
  meanwhile(&t.b->connections[9], AFTER_LOAD, 1, take_number_9);
  sb_status status = open_named("name", 4);
  bool acted = has_acted();
  expect_is(status, SB_OK, "the status");
  expect_is(fresh.id, acted ? 10 : 9, "the number when another process was faster");
}
/* Numbers rest as long as possible; number 0 is no connection. */
static void numbers_of_connections(void) {
  SB_STORE(&t.b->header->next_connection, SB_MAX_CONNECTIONS - 1, SB_RELAXED);
  expect_is(open_named("a", 1), SB_OK, "the status");
  expect_is(fresh.id, SB_MAX_CONNECTIONS - 1, "the last number");
  expect_is(open_named("a", 1), SB_OK, "the status");
  expect(fresh.id != 0, "number 0 was taken");
  for (uint32_t i = 0; i < SB_MAX_CONNECTIONS; i++) SB_STORE(&t.b->connections[i], SB_CONN_LIVE, SB_RELAXED);
  uint32_t next = SB_LOAD(&t.b->header->next_connection, SB_RELAXED);
  expect_is(open_named("a", 1), SB_LIMIT, "the status without a number");
  expect_is(t.b->header->next_connection, next + SB_MAX_CONNECTIONS, "the next number: each was looked at once");
  expect(fresh.shm == NULL, "a connection without a number has a record");
  SB_STORE(&t.b->connections[77], SB_CONN_FREE, SB_RELAXED);
  expect_is(open_named("a", 1), SB_OK, "the status of the last number");
  expect_is(fresh.id, 77, "the last number that is free");
}
static void no_memory_for_a_connection(void) {
  uint64_t before[3];
  exhaust(SB_MESSAGE_CLASSES + SB_KIND_CONNECTION);
  SB_STORE(&t.b->header->next_connection, 50u, SB_RELAXED);
  before[0] = SB_LOAD(&t.b->connections[50], SB_RELAXED);
  expect_is(open_named("a", 1), SB_NO_MEMORY, "the status without a record");
  expect(fresh.shm == NULL, "there is a record");
  expect(fresh.gate == &fresh.own_gate, "its gate is not its own");
  expect_is(SB_LOAD(&t.b->connections[50], SB_RELAXED), sb_conn_word(SB_CONN_FREE, 0, 0, sb_conn_epoch(before[0]) + 1),
            "the number that was given back");
}
static void no_memory_for_holdings(void) {
  exhaust(HOLDINGS);
  expect_is(open_named("a", 1), SB_NO_MEMORY, "the status without holdings");
  expect(fresh.shm != NULL && fresh.last == NULL, "there are holdings");
}

static const test_case CASES[] = {
    {"holdings: again", "an entry that was given back is used again", entries_are_used_again},
    {"holdings: tables", "a table that is full is followed by another one", a_table_is_added},
    {"holdings: damaged", "what lies nowhere is no entry", damaged_entries},
    {"holdings: many", "who holds very much takes nothing of the reserve", a_connection_with_many_tables},
    {"holdings: ordinary", "an ordinary use takes nothing of the reserve", an_ordinary_use_with_many_tables},
    {"holdings: objects", "an object is listed, or not taken", an_object_is_listed},
    {"holdings: records", "a record is its owner's while he lives", records_of_connections},
    {"holdings: opened", "a connection has a number, a record and holdings", a_connection_is_opened},
    {"holdings: clean", "a new record says nothing of what lay there before", a_new_record_is_clean},
    {"holdings: faster", "a number that another process takes meanwhile is passed", another_process_takes_the_number},
    {"holdings: numbers", "each connection has a number of its own", numbers_of_connections},
    {"holdings: no record", "without memory the number is given back", no_memory_for_a_connection},
    {"holdings: no table", "without memory for holdings there is no connection", no_memory_for_holdings},
};
SUBJECT(CASES)
