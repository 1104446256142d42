// SPDX-License-Identifier: Apache-2.0
/* sb_grace: the chunks of structures that the housekeeper drains, the calls that it waits for, and the chunks that it
 * gives up. */
#include "sb_grace.h"

#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "meanwhile.h"
#include "queues.h"
#include "sb_holdings.h"
#include "system.h"

#define CHUNK 20u
#define LEAVES (SB_MESSAGE_CLASSES + SB_KIND_LEAF)
#define LOOKS 2000u
#define TENANTS 8u
#define NOBODY 77u /* a connection number that is free */

static sb_grace *g;
static uint64_t holdings;

static uint64_t word_of(uint32_t chunk) { return SB_LOAD(&t.b->chunks[chunk], SB_RELAXED); }
static unsigned state_of(uint32_t chunk) { return sb_chunk_state(word_of(chunk)); }
static void set_header(uint32_t chunk, uint32_t unit, unsigned state, uint64_t gen) {
  SB_STORE(&sb_chunk_meta(t.b, chunk)->headers[unit], sb_slot_word(state, 0, gen), SB_RELAXED);
}
/* Leaves of the first generation, all free. */
static void open_chunk(uint32_t chunk) {
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(SB_CHUNK_CLASS, 0, LEAVES, 0), SB_RELAXED);
  for (uint32_t i = 0; i < SB_CHUNK_UNITS; i++) set_header(chunk, i, SB_SLOT_FREE, 0);
}
static void begin(void) {
  grow_to(BROKER_CHUNKS - 1);
  g = calloc(1, sizeof *g + t.b->chunk_limit * sizeof(uint64_t));
  if (g == NULL) die("calloc", 0);
  t.c->grace = g;
  holdings = free_holdings();
}
/* The first look sees the chunk at rest, the next one drains it. */
static bool step(void) { return sb_grace_step(t.c); }
static bool two_steps(void) {
  expect(!step(), "something is under way after the first look");
  return step();
}
static void expect_drained(uint32_t waiting) {
  expect_is(state_of(CHUNK), SB_CHUNK_DRAINING, "the state of the chunk");
  expect_is(g->count, 1, "how many chunks are drained");
  expect_is(g->waiting, waiting, "how many connections are waited for");
}
static void expect_at_rest(unsigned state) {
  expect_is(state_of(CHUNK), state, "the state of the chunk");
  expect_is(g->count, 0, "how many chunks are drained");
  expect_is(free_holdings(), holdings, "the free holdings");
}

/* ---- what is drained ---- */

static void a_chunk_that_rests(void) {
  begin();
  open_chunk(CHUNK);
  open_chunk(CHUNK + 1);
  set_header(CHUNK + 1, 0, SB_SLOT_ALLOC, 0);
  expect(!step(), "something is under way after the first look");
  expect_at_rest(SB_CHUNK_CLASS);
  expect_is(g->used[CHUNK], 1, "what is noted of a chunk that rests");
  expect_is(g->used[CHUNK + 1], 0, "what is noted of a chunk in use");
  expect(!step(), "something is under way, and nobody is inside");
  expect_at_rest(SB_CHUNK_FREE);
  expect_is(g->used[CHUNK], 0, "what is noted of a chunk that was drained");
  expect_is(g->used[CHUNK + 1], 0, "what is noted of a chunk in use");
  expect_is(state_of(CHUNK + 1), SB_CHUNK_CLASS, "the state of a chunk in use");
}
static void a_chunk_that_is_used(void) {
  begin();
  open_chunk(CHUNK);
  expect(!step(), "something is under way after the first look");
  set_header(CHUNK, 5, SB_SLOT_FREE, 1); /* it was taken and freed */
  expect(!step(), "something is under way after a use");
  expect_at_rest(SB_CHUNK_CLASS);
  expect_is(g->used[CHUNK], 2, "what is noted after a use");
  expect(!step(), "something is under way");
  expect_at_rest(SB_CHUNK_FREE);
}
static void no_holding_to_drain_with(void) {
  begin();
  leave_holdings(0);
  open_chunk(CHUNK);
  holdings = free_holdings();
  expect(!two_steps(), "something is under way without a holding");
  expect_at_rest(SB_CHUNK_CLASS);
  expect_is(g->used[CHUNK], 1, "what is noted of a chunk that rests still");
}
/* As many as there is room for. The first ones are drained, the others at the next turn. */
static void many_chunks(void) {
  char name[96];
  uint32_t chunks = SB_GRACE_CHUNKS + 6, at = 0, drained = 0;
  strcpy(name, strchr(t.path, '.') + 1);
  leave_broker(&t);
  make_broker(&t, name, chunks);
  attach(&t);
  t.c = connect_to(&t);
  grow_to(chunks - 1);
  g = calloc(1, sizeof *g + t.b->chunk_limit * sizeof(uint64_t));
  t.c->grace = g;
  sb_connection *other = connect_to(&t);
  sb_lock(other);
  for (uint32_t i = 1; i < chunks; i++) {
    if (state_of(i) == SB_CHUNK_FREE) open_chunk(i);
  }
  expect(two_steps(), "nothing is under way beside one that is inside");
  expect_is(g->count, SB_GRACE_CHUNKS, "how many chunks are drained");
  for (uint32_t i = 1; i < chunks; i++) {
    if (state_of(i) == SB_CHUNK_DRAINING) {
      drained++;
      at = i;
    }
  }
  expect_is(drained, SB_GRACE_CHUNKS, "how many chunks say so");
  expect(at < chunks - 1, "the last chunk was drained");
  expect_is(g->waiting, 1, "how many connections are waited for");
  sb_unlock(other);
}

/* ---- who is waited for ---- */

static unsigned renewed, renewed_other;
static void renew(sb_connection *c) {
  renewed += c == t.c;
  renewed_other += c != t.c;
}
static sb_connection *others[2];
static void two_others(void) {
  begin();
  for (unsigned i = 0; i < 2; i++) {
    others[i] = connect_to(&t);
    others[i]->renew = renew;
  }
  t.c->renew = renew;
  open_chunk(CHUNK);
  holdings = free_holdings();
}
static void last_is_taken(void) { set_header(CHUNK, 5 * 1637, SB_SLOT_ALLOC, 0); }
static void a_slot_that_is_taken_meanwhile(void) {
  if (!has_steps()) return;
  two_others();
  sb_lock(others[0]);
  expect(!step(), "something is under way after the first look");
  meanwhile(&sb_chunk_meta(t.b, CHUNK)->headers[5 * 1637], BEFORE_CAS, 1, last_is_taken);
  expect(!step(), "something is under way");
  (void)has_acted();
  expect_at_rest(SB_CHUNK_CLASS);
  expect_is(g->used[CHUNK], 1, "what is noted of a chunk that was at rest");
  sb_unlock(others[0]);
}
static void one_that_is_inside(void) {
  two_others();
  sb_lock(others[0]);
  expect(!step(), "something is under way after the first look");
  expect_is(renewed, 0, "how often handles were renewed, and nothing is drained");
  expect(!is_asked(others[1]), "another one was asked, and nothing is drained");
  expect(step(), "nothing is under way beside one that is inside");
  expect_drained(1);
  expect_is(renewed, 1, "how often the drainer's handles were renewed");
  expect(is_asked(others[1]), "one that was outside was not asked");
  expect(step(), "nothing is under way beside one that stays inside");
  expect_drained(1);
  sb_unlock(others[0]);
  sb_lock(others[1]); /* it came later: it finds nothing in the chunk */
  expect_is(renewed_other, 1, "how often the handles of one that comes later were renewed");
  expect(!step(), "something is under way when it went");
  expect_at_rest(SB_CHUNK_FREE);
  sb_unlock(others[1]);
}
static void two_that_are_inside(void) {
  two_others();
  for (unsigned i = 0; i < 2; i++) sb_lock(others[i]);
  expect(two_steps(), "nothing is under way beside two that are inside");
  expect_drained(2);
  sb_unlock(others[0]);
  for (unsigned i = 0; i < 2; i++) {
    expect(step(), "nothing is under way beside one that is inside");
    expect_drained(1);
  }
  sb_unlock(others[1]);
  expect(!step(), "something is under way when both went");
  expect_at_rest(SB_CHUNK_FREE);
}
/* Between two calls there is a gap. */
static void goes_out(void) {
  if (says.pauses == 3) sb_unlock(others[0]);
}
static void a_gap_is_waited_for(void) {
  two_others();
  answer_for_the_system();
  expect(!step(), "something is under way after the first look");
  expect_is(says.pauses, 0, "the pauses where nothing is drained");
  sb_lock(others[0]);
  says.paused = goes_out;
  expect(!step(), "something is under way, and there was a gap");
  expect_is(says.pauses, 3, "the pauses until the gap");
  expect_at_rest(SB_CHUNK_FREE);
  open_chunk(CHUNK);
  sb_lock(others[0]);
  says.paused = NULL;
  says.pauses = 0;
  expect(two_steps(), "nothing is under way beside one that is inside");
  expect_is(says.pauses, LOOKS, "the pauses where there is no gap");
  sb_unlock(others[0]);
}
static void one_without_a_record(void) {
  begin();
  open_chunk(CHUNK);
  SB_STORE(&t.b->connections[NOBODY], sb_conn_word(SB_CONN_LIVE, t.b->process, 0, 1), SB_RELAXED);
  expect(two_steps(), "nothing is under way beside one that is being opened");
  expect_drained(1);
  SB_STORE(&t.b->connections[NOBODY], sb_conn_word(SB_CONN_FREE, 0, 0, 1), SB_RELAXED);
  expect(!step(), "something is under way when it is closed");
  expect_at_rest(SB_CHUNK_FREE);
}
/* A number that is free when it is looked at, and taken just after. */
static uint64_t its_word;
static sb_word *word_of_other(void) { return &t.b->connections[others[0]->id]; }
static void comes_back(void) { SB_STORE(word_of_other(), its_word, SB_RELAXED); }
static void goes(void) {
  SB_STORE(word_of_other(), sb_conn_word(SB_CONN_FREE, 0, 0, sb_conn_epoch(its_word)), SB_RELAXED);
}
static void one_that_is_opened_meanwhile(void) {
  if (!has_steps()) return;
  two_others();
  its_word = SB_LOAD(word_of_other(), SB_RELAXED);
  sb_lock(others[0]);
  goes();
  expect(!step(), "something is under way after the first look");
  meanwhile(word_of_other(), BEFORE_CAS, 1, comes_back);
  expect(step(), "nothing is under way beside one that came");
  (void)has_acted();
  expect_drained(1);
  sb_unlock(others[0]);
}
/* Its word is loaded, its record looked for, and its word loaded again. */
static void one_that_is_closed_meanwhile(void) {
  if (!has_steps()) return;
  two_others();
  its_word = SB_LOAD(word_of_other(), SB_RELAXED);
  sb_lock(others[0]);
  expect(!step(), "something is under way after the first look");
  meanwhile(word_of_other(), BEFORE_LOAD, 3, goes);
  expect(!step(), "something is under way, and it went");
  (void)has_acted();
  expect_at_rest(SB_CHUNK_FREE);
  comes_back();
  sb_unlock(others[0]);
}
/* A number whose tenants change at each look may be of one that is inside. */
static unsigned changes;
static void another_tenant(const char *site) {
  if (strstr(site, "sb_grace.c") == NULL) return;
  changes++;
  SB_STORE(word_of_other(), SB_LOAD(word_of_other(), SB_RELAXED) + (UINT64_C(1) << 42), SB_RELAXED);
}
static void change_tenants(const char *site) {
  at_step = NULL;
  another_tenant(site);
  at_step = change_tenants;
}
static void tenants_that_come_and_go(void) {
  if (!has_steps()) return;
  two_others();
  its_word = SB_LOAD(word_of_other(), SB_RELAXED);
  expect(!step(), "something is under way after the first look");
  at_step = change_tenants;
  expect(step(), "nothing is under way beside a number that changes");
  at_step = NULL;
  comes_back();
  expect_drained(1);
  /* Two looks at each number that is free; three at the number that changes, for each tenant; three at the other connection. */
  expect_is(changes, 2 * (SB_MAX_CONNECTIONS - 1 - 3) + 3 * TENANTS + 3, "how often it was looked at");
}

/* ---- the end ---- */

static uint32_t waiter;
static bool was_told(void) { return node_state(waiter) == SB_NODE_NOTIFIED; }
static void one_waits_for_memory(void) {
  uint64_t token;
  uint32_t flags = SB_NODE_DIRECT | SB_NODE_ROOM | SB_NODE_MEMORY;
  sb_queue *q = queue_named("q", (sb_settings)FREELY);
  if (sb_node_create(t.c, q->slot, 0, flags, 0, 0, &waiter, &token) != SB_OK) die("sb_node_create", 0);
  if (!sb_node_move(t.c, waiter, SB_ANY_STATE, SB_NODE_INTERESTED)) die("sb_node_move", 0);
}
static void memory_that_comes_back(void) {
  two_others();
  one_waits_for_memory();
  holdings = free_holdings();
  sb_lock(others[0]);
  expect(two_steps(), "nothing is under way beside one that is inside");
  uint64_t token = g->drained[0].token;
  expect(!was_told(), "one that waits was told too early");
  sb_unlock(others[0]);
  expect(!step(), "something is under way when it went");
  expect(was_told(), "one that waits for memory was not told");
  expect_is(sb_holding_at(t.b, token)->what, SB_HOLD_NONE, "what the holding says");
  expect_at_rest(SB_CHUNK_FREE);
}
static void a_chunk_that_was_taken_over(void) {
  two_others();
  one_waits_for_memory();
  holdings = free_holdings();
  sb_lock(others[0]);
  expect(two_steps(), "nothing is under way beside one that is inside");
  SB_STORE(&t.b->chunks[CHUNK], sb_chunk_word(SB_CHUNK_CLASS, 0, LEAVES, 0), SB_RELAXED);
  sb_unlock(others[0]);
  expect(!step(), "something is under way when it went");
  expect(!was_told(), "one that waits for memory was told, and there is none");
  expect_at_rest(SB_CHUNK_CLASS);
}
static void what_is_given_up(void) {
  two_others();
  sb_grace_give_up(t.c);
  sb_lock(others[0]);
  expect(two_steps(), "nothing is under way beside one that is inside");
  uint64_t token = g->drained[0].token;
  sb_grace_give_up(t.c);
  expect_at_rest(SB_CHUNK_CLASS);
  expect_is(sb_holding_at(t.b, token)->what, SB_HOLD_NONE, "what the holding says");
  sb_unlock(others[0]);
  expect(!two_steps(), "something is under way, and nobody is inside");
  expect_at_rest(SB_CHUNK_FREE);
  t.c->grace = NULL;
  sb_grace_give_up(t.c);
}

static const test_case CASES[] = {
    {"grace: rests", "a chunk that rests from one look to the next is drained", a_chunk_that_rests},
    {"grace: used", "a chunk that was used rests anew", a_chunk_that_is_used},
    {"grace: no holding", "nothing is drained without a holding", no_holding_to_drain_with},
    {"grace: slot taken", "a slot that is taken meanwhile keeps its chunk", a_slot_that_is_taken_meanwhile},
    {"grace: many", "not more chunks are drained than there is room for", many_chunks},
    {"grace: inside", "a connection that is inside is waited for", one_that_is_inside},
    {"grace: two inside", "each connection that is inside is waited for", two_that_are_inside},
    {"grace: gap", "the gap between two calls is waited for", a_gap_is_waited_for},
    {"grace: no record", "a connection that is being opened is waited for", one_without_a_record},
    {"grace: opened", "a connection that is opened meanwhile is waited for", one_that_is_opened_meanwhile},
    {"grace: closed", "a connection that is closed meanwhile is not waited for", one_that_is_closed_meanwhile},
    {"grace: tenants", "a number whose tenants change is waited for", tenants_that_come_and_go},
    {"grace: told", "one that waits for memory is told when it comes back", memory_that_comes_back},
    {"grace: taken over", "a chunk that was taken over is no memory", a_chunk_that_was_taken_over},
    {"grace: given up", "what is given up is of its class again", what_is_given_up},
};
SUBJECT(CASES)
