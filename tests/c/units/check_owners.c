// SPDX-License-Identifier: Apache-2.0
/* sb_check_owners: findings of the doctor in connections and their holdings. The cases create the connection, with a
 * record, holdings, and one object of each kind that it can hold. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkup.h"
#include "sb_reader.h"

#define ID 20u
#define ANOTHER 21u
#define GEN 7u
#define POSITION (3 * SB_PAGE_CELLS + 5)
enum { OF_RECORDS = 1, OF_HOLDINGS, OF_QUEUES, OF_LEAVES, OF_LONG_LEAVES, OF_LEDGERS, OF_MESSAGES, OF_NODES, OF_INNER };
enum { WORD, PROCESS, RECORD, IDENTITY, WAITER };
enum { CHUNK, USED, ENTRY, CELL, SLOT, PAGE, LEDGER, NO_CHUNK, CELLS, VIEW };

static uint32_t record, holdings, more, queue, leaf, long_leaf, ledger, message, node, inner;

static void set_header(uint32_t slot, unsigned state, uint64_t field) {
  SB_STORE(sb_slot_header(t.b, slot), sb_slot_word(state, field, GEN), SB_RELAXED);
}
static uint64_t header_of(uint32_t slot) { return SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED); }
static unsigned units_of(unsigned cls) { return sb_class_units(cls); }
/* The second slot of a chunk of that kind: the first one would not tell its number from that of its chunk. */
static uint32_t make(uint32_t chunk, unsigned kind, unsigned state, uint64_t field) {
  unsigned cls = kind == SB_KIND_MESSAGE ? sb_class_for(t.b, 16 * 1024) : sb_class_of_kind(t.b, kind);
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(SB_CHUNK_CLASS, 0, cls, 0), SB_RELAXED);
  memset(sb_slot_at(t.b, chunk * SB_CHUNK_UNITS), 0, SB_CHUNK_BYTES);
  for (uint32_t i = 0; i < SB_CHUNK_UNITS; i++) set_header(chunk * SB_CHUNK_UNITS + i, SB_SLOT_FREE, 0);
  uint32_t slot = chunk * SB_CHUNK_UNITS + units_of(cls);
  set_header(slot, state, field);
  return slot;
}
static sb_connection_shm *shm(void) { return sb_slot_at(t.b, record); }
static sb_holdings_shm *table(uint32_t slot) { return sb_slot_at(t.b, slot); }
static void set_connection(unsigned id, unsigned state, unsigned process, uint32_t slot) {
  SB_STORE(&t.b->connections[id], sb_conn_word(state, process, slot, 1), SB_RELAXED);
}
static void make_connection(void) {
  begin_checkup();
  for (unsigned i = 0; i < SB_MAX_CONNECTIONS; i++) SB_STORE(&t.b->connections[i], 0, SB_RELAXED);
  record = make(OF_RECORDS, SB_KIND_CONNECTION, SB_SLOT_ALLOC, ID);
  holdings = make(OF_HOLDINGS, SB_KIND_HOLDINGS, SB_SLOT_ALLOC, ID);
  more = holdings + units_of(sb_class_of_kind(t.b, SB_KIND_HOLDINGS));
  queue = make(OF_QUEUES, SB_KIND_QUEUE, SB_SLOT_PUBLISHED, 1);
  leaf = make(OF_LEAVES, SB_KIND_LEAF, SB_SLOT_PUBLISHED, 1);
  long_leaf = make(OF_LONG_LEAVES, SB_KIND_LONG_LEAF, SB_SLOT_PUBLISHED, 1);
  ledger = make(OF_LEDGERS, SB_KIND_LEDGER, SB_SLOT_PUBLISHED, 1);
  message = make(OF_MESSAGES, SB_KIND_MESSAGE, SB_SLOT_PUBLISHED, 1);
  node = make(OF_NODES, SB_KIND_NODE, SB_SLOT_ALLOC, ID);
  inner = make(OF_INNER, SB_KIND_INNER, SB_SLOT_PUBLISHED, 1);
  SB_STORE(&shm()->id, ID, SB_RELAXED);
  SB_STORE(&shm()->process, t.b->process, SB_RELAXED);
  SB_STORE(&shm()->holdings, holdings, SB_RELAXED);
  SB_STORE(&table(holdings)->used, SB_HOLDINGS_FIRST + 1, SB_RELAXED);
  SB_STORE(&table(more)->used, SB_HOLDINGS_FIRST, SB_RELAXED);
  set_connection(ID, SB_CONN_LIVE, t.b->process, record);
  sb_check_connections(&checkup);
  expect_no_finding("a connection that holds nothing");
}
/* What the connection says it holds, behind the entries that are never cleared. */
static void hold(unsigned kind, uint32_t slot, uint64_t gen, uint64_t where) {
  sb_holding_shm *h = &table(holdings)->entries[SB_HOLDINGS_FIRST + 1];
  SB_STORE(&table(holdings)->used, SB_HOLDINGS_FIRST + 2, SB_RELAXED);
  SB_STORE(&h->what, sb_holding_what(kind, slot, gen), SB_RELAXED);
  SB_STORE(&h->where, where, SB_RELAXED);
}
static void look(void) {
  forget_what_was_seen();
  sb_check_connections(&checkup);
}
static void expect_sound(const char *what) {
  look();
  expect_no_finding(what);
  found_nothing();
}
static void expect_bad(unsigned which, uint64_t where, uint64_t found, uint64_t expected, const char *what) {
  look();
  expect_finding((sb_finding){SB_BAD_HOLDING, 0, ID, which, 0, where, found, expected}, what);
}
static void expect_bad_connection(unsigned id, unsigned which, uint64_t where, uint64_t found, uint64_t expected,
                                  const char *what) {
  look();
  expect_finding((sb_finding){SB_BAD_CONNECTION, 0, id, which, 0, where, found, expected}, what);
}

/* A process that attached, and has gone without a word; its connection. */
static unsigned dead_process(unsigned *connection) {
  unsigned before = 0, after = 0;
  for (unsigned i = 0; i < SB_MAX_CONNECTIONS; i++) before += sb_conn_state(t.b->connections[i]) == SB_CONN_LIVE;
  pid_t pid = fork();
  if (pid == 0) {
    attach(&t);
    connect_to(&t);
    _exit(0);
  }
  (void)waitpid(pid, NULL, 0);
  *connection = 0;
  for (unsigned i = 1; i < SB_MAX_CONNECTIONS; i++) {
    uint64_t word = SB_LOAD(&t.b->connections[i], SB_ACQUIRE);
    if (sb_conn_state(word) != SB_CONN_LIVE) continue;
    after++;
    if (sb_conn_process(word) != t.b->process) *connection = i;
  }
  expect_is(after, before + 1, "the number of connections");
  return sb_conn_process(SB_LOAD(&t.b->connections[*connection], SB_ACQUIRE));
}

static void which_connections_live(void) {
  unsigned dead;
  (void)dead_process(&dead);
  checkup.b = t.b;
  expect(sb_check_lives(&checkup, t.c->id) && sb_check_lives(&checkup, dead), "a connection does not live");
  expect(!sb_check_dying(&checkup, t.c->id), "a connection of ours is dying");
  expect(sb_check_dying(&checkup, dead), "a connection of the dead is not dying");
  uint64_t word = SB_LOAD(&t.b->connections[dead], SB_RELAXED);
  SB_STORE(&t.b->connections[dead], word & ~UINT64_C(3), SB_RELAXED);
  expect(!sb_check_lives(&checkup, dead) && !sb_check_dying(&checkup, dead), "a connection that is FREE lives");
  SB_STORE(&t.b->connections[0], word, SB_RELAXED);
  expect(!sb_check_lives(&checkup, 0), "nobody lives");
  SB_STORE(&t.b->connections[SB_MAX_CONNECTIONS - 1], word, SB_RELAXED);
  expect(sb_check_lives(&checkup, SB_MAX_CONNECTIONS - 1), "the last connection does not live");
  SB_STORE(&t.b->chunks[0], word, SB_RELAXED); /* lies behind the connections */
  expect(!sb_check_lives(&checkup, SB_MAX_CONNECTIONS), "a number behind the last lives");
}

/* ---- connections ---- */

static void damaged_connections(void) {
  make_connection();
  uint64_t word = SB_LOAD(&t.b->connections[ID], SB_RELAXED);
  SB_STORE(&t.b->connections[0], 4, SB_RELAXED);
  expect_bad_connection(0, WORD, 0, 4, 4, "the word of nobody");
  SB_STORE(&t.b->connections[0], 0, SB_RELAXED);
  set_connection(ID, SB_CONN_LIVE + 1, t.b->process, record);
  uint64_t bad = SB_LOAD(&t.b->connections[ID], SB_RELAXED);
  expect_bad_connection(ID, WORD, 0, bad, bad, "a connection in no state");
  set_connection(ID, SB_CONN_FREE, t.b->process, record + 1);
  expect_sound("a connection that is FREE");
  set_connection(ID, SB_CONN_LIVE, SB_MAX_PROCESSES - 1, record);
  bad = SB_LOAD(&t.b->connections[ID], SB_RELAXED);
  expect_bad_connection(ID, PROCESS, SB_MAX_PROCESSES - 1, SB_MAX_PROCESSES - 1, bad, "a connection of no process");
  set_connection(ID, SB_CONN_LIVE, t.b->process, 0);
  expect_sound("a connection that is being opened");
  set_connection(ID, SB_CONN_LIVE, t.b->process, record + 1);
  expect_bad_connection(ID, RECORD, record + 1, 0, SB_LOAD(&t.b->connections[ID], SB_RELAXED),
                        "a record in the middle");
  set_connection(ID, SB_CONN_LIVE, t.b->process, node);
  expect_bad_connection(ID, RECORD, node, 0, SB_LOAD(&t.b->connections[ID], SB_RELAXED), "a record that is a node");
  SB_STORE(&t.b->connections[ID], word, SB_RELAXED);
  set_header(record, SB_SLOT_ALLOC, ANOTHER);
  expect_bad_connection(ID, RECORD, record, header_of(record), word, "the record of another one");
  set_header(record, SB_SLOT_PUBLISHED, ID);
  expect_bad_connection(ID, RECORD, record, header_of(record), word, "a record that is published");
  set_header(record, SB_SLOT_ALLOC, ID);
  SB_STORE(&shm()->id, ANOTHER, SB_RELAXED);
  expect_bad_connection(ID, IDENTITY, record, ANOTHER, t.b->process, "a record with another number");
  SB_STORE(&shm()->id, ID, SB_RELAXED);
  SB_STORE(&shm()->process, t.b->process + 1, SB_RELAXED);
  expect_bad_connection(ID, IDENTITY, record, ID, t.b->process + 1, "a record with another process");
  SB_STORE(&shm()->process, t.b->process, SB_RELAXED);
  SB_STORE(&shm()->waiter, node, SB_RELAXED);
  expect_sound("a connection with an IO thread");
  expect_is(checkup.seen[record], 1 | SB_KNOWN_TO_OWNER, "what was seen of the record");
  SB_STORE(&shm()->waiter, queue, SB_RELAXED);
  expect_bad_connection(ID, WAITER, record, queue, word, "an IO thread without a node");
}
static void the_tables_of_holdings(void) {
  make_connection();
  SB_STORE(&table(holdings)->next, more, SB_RELAXED);
  set_header(more, SB_SLOT_ALLOC, ID);
  expect_sound("two tables");
  expect_is(checkup.seen[more], 1 | SB_KNOWN_TO_OWNER, "what was seen of the second one");
  SB_STORE(&table(more)->next, holdings, SB_RELAXED);
  expect_bad(CHUNK, holdings, header_of(holdings), 0, "tables that bite their tail");
  SB_STORE(&table(more)->next, node, SB_RELAXED);
  expect_bad(CHUNK, node, 0, 0, "a table that is a node");
  SB_STORE(&table(more)->next, 0, SB_RELAXED);
  set_header(more, SB_SLOT_ALLOC, ANOTHER);
  expect_bad(CHUNK, more, header_of(more), 0, "the table of another one");
  set_header(more, SB_SLOT_PUBLISHED, ID);
  expect_bad(CHUNK, more, header_of(more), 0, "a table that is published");
  SB_STORE(&table(holdings)->next, 0, SB_RELAXED);
  SB_STORE(&table(holdings)->used, SB_HOLDINGS_PER_CHUNK + 1, SB_RELAXED);
  SB_STORE(&table(more)->next, 15u, SB_RELAXED); /* lies behind the table, and would be an entry of no kind */
  expect_bad(USED, holdings, SB_HOLDINGS_PER_CHUNK + 1, SB_HOLDINGS_PER_CHUNK, "a table that is too full");
  SB_STORE(&table(holdings)->used, SB_HOLDINGS_PER_CHUNK, SB_RELAXED);
  expect_sound("a table that is full");
  SB_STORE(&table(holdings)->used, SB_HOLDINGS_FIRST - 1, SB_RELAXED);
  expect_bad(USED, holdings, SB_HOLDINGS_FIRST - 1, SB_HOLDINGS_PER_CHUNK, "a table that is too empty");
  SB_STORE(&table(holdings)->used, SB_HOLDINGS_FIRST, SB_RELAXED);
  SB_STORE(&table(holdings)->entries[SB_HOLDINGS_FIRST].what, 15, SB_RELAXED);
  expect_sound("a table without an entry");
}

/* ---- what is held ---- */

#define STALE(kind) sb_holding_what(kind, queue, GEN)
/* The first entries of each table, and one more of the first table, are never cleared. */
static void entries_that_nobody_clears(void) {
  const unsigned kinds[] = {SB_HOLD_CELL, SB_HOLD_SLOT, SB_HOLD_PAGE, SB_HOLD_LEDGER, SB_HOLD_VIEW, SB_HOLD_SETTLING};
  make_connection();
  SB_STORE(&table(holdings)->next, more, SB_RELAXED);
  set_header(more, SB_SLOT_ALLOC, ID);
  SB_STORE(&table(more)->used, SB_HOLDINGS_FIRST + 1, SB_RELAXED);
  for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    for (unsigned k = 0; k < SB_HOLDINGS_FIRST; k++) {
      SB_STORE(&table(holdings)->entries[k].what, STALE(kinds[i]), SB_RELAXED);
      SB_STORE(&table(more)->entries[k].what, STALE(kinds[i]), SB_RELAXED);
    }
    SB_STORE(&table(holdings)->entries[SB_HOLDINGS_FIRST].what, STALE(kinds[i]), SB_RELAXED);
    expect_sound("entries that nobody clears");
    SB_STORE(&table(more)->entries[SB_HOLDINGS_FIRST].what, STALE(kinds[i]), SB_RELAXED);
    look();
    expect_is(checkup.count, 1, "the findings of one more entry of the second table");
    found_nothing();
    SB_STORE(&table(more)->entries[SB_HOLDINGS_FIRST].what, 0, SB_RELAXED);
    hold(kinds[i], queue, GEN, 0);
    look();
    expect_is(checkup.count, 1, "the findings of one more entry of the first table");
    found_nothing();
    hold(SB_HOLD_NONE, 0, 0, 0);
  }
}
/* A dead connection may have announced what it did not reach. */
static void entries_of_the_dead(void) {
  unsigned connection, process = dead_process(&connection);
  make_connection();
  set_connection(ID, SB_CONN_LIVE, process, record);
  SB_STORE(&shm()->process, process, SB_RELAXED);
  hold(SB_HOLD_SLOT, queue, GEN, 0);
  expect_sound("an entry of the dead");
  checkup.owned[ID] = 1;
  sb_check_cells_owned(&checkup);
  expect_no_finding("a cell of the dead");
}

static sb_leaf_shm *set_leaf(uint32_t slot, unsigned state, unsigned owner) {
  sb_leaf_shm *l = sb_slot_at(t.b, slot);
  SB_STORE(&l->page.object, queue, SB_RELAXED);
  SB_STORE(&l->page.first, POSITION / SB_PAGE_CELLS * SB_PAGE_CELLS, SB_RELAXED);
  SB_STORE(&l->cells[POSITION % SB_PAGE_CELLS].word, sb_cell_owned(state, message, 0, owner, GEN), SB_RELAXED);
  return l;
}
static void hold_cell(unsigned kind, uint32_t of, uint32_t in) {
  hold(kind, of, 0, POSITION);
  SB_STORE(&table(holdings)->entries[SB_HOLDINGS_FIRST + 1].what, sb_holding_what(kind, of, in), SB_RELAXED);
}
static void expect_no_cell(const char *what) {
  look();
  expect_finding((sb_finding){SB_BAD_HOLDING, queue, ID, CELL, 0, POSITION, leaf, 0}, what);
  expect_is(checkup.named[ID], 0, what);
}
static void cells_that_are_held(void) {
  make_connection();
  const unsigned kinds[] = {SB_HOLD_CELL, SB_HOLD_SETTLING, SB_HOLD_STAGED};
  const uint32_t leaves[] = {leaf, long_leaf};
  for (unsigned i = 0; i < 6; i++) {
    set_leaf(leaves[i % 2], SB_CELL_ACQUIRED, ID);
    hold_cell(kinds[i / 2], queue, leaves[i % 2]);
    expect_sound("a cell");
    expect_is(checkup.named[ID], 1, "how many cells it says it owns");
  }
  hold_cell(SB_HOLD_CELL, queue, leaf);
  set_leaf(leaf, SB_CELL_ACQUIRED, ANOTHER);
  expect_no_cell("the cell of another one");
  set_leaf(leaf, SB_CELL_AVAILABLE, ID);
  expect_no_cell("a cell of nobody");
  SB_STORE(&set_leaf(leaf, SB_CELL_ACQUIRED, ID)->page.object, queue + 1, SB_RELAXED);
  expect_no_cell("a cell of another queue");
  SB_STORE(&set_leaf(leaf, SB_CELL_ACQUIRED, ID)->page.first, 0, SB_RELAXED);
  expect_no_cell("a cell of another page");
  set_leaf(leaf, SB_CELL_ACQUIRED, ID);
  set_header(queue, SB_SLOT_FREE, 0);
  expect_no_cell("a cell of a queue that is gone");
  set_header(queue, SB_SLOT_PUBLISHED, 1);
  hold_cell(SB_HOLD_STAGED, queue, inner);
  expect_sound("a cell of a commit that is not there");
  expect_is(checkup.named[ID], 0, "how many cells of a commit");
  memcpy(sb_slot_at(t.b, inner), sb_slot_at(t.b, leaf), 3 * SB_UNIT); /* it says what a leaf would */
  hold_cell(SB_HOLD_CELL, queue, inner);
  look();
  expect_finding((sb_finding){SB_BAD_HOLDING, queue, ID, CELL, 0, POSITION, inner, 0}, "a cell of an inner page");
  hold_cell(SB_HOLD_CELL, queue, 0);
  look();
  expect_finding((sb_finding){SB_BAD_HOLDING, queue, ID, CELL, 0, POSITION, 0, 0}, "a cell of no leaf");
}
static void slots_that_are_held(void) {
  make_connection();
  const unsigned kinds[] = {SB_HOLD_SLOT, SB_HOLD_PUBLICATION};
  for (unsigned i = 0; i < 2; i++) {
    hold(kinds[i], message, GEN, 0);
    set_header(message, SB_SLOT_ALLOC, ID);
    expect_sound("a slot");
    expect_is(checkup.seen[message], SB_KNOWN_TO_OWNER, "what was seen of it");
  }
  hold(SB_HOLD_SLOT, message, GEN, 0);
  set_header(message, SB_SLOT_ALLOC, ANOTHER);
  expect_bad(SLOT, message, SB_KIND_MESSAGE, GEN, "the slot of another one");
  set_header(message, SB_SLOT_PUBLISHED, ID);
  expect_bad(SLOT, message, SB_KIND_MESSAGE, GEN, "a slot that is published");
  set_header(message, SB_SLOT_ALLOC, ID);
  hold(SB_HOLD_SLOT, message, GEN + 1, 0);
  expect_bad(SLOT, message, SB_KIND_MESSAGE, GEN + 1, "a slot of another generation");
  hold(SB_HOLD_SLOT, message + 1, GEN, 0);
  set_header(message + 1, SB_SLOT_ALLOC, ID);
  expect_bad(SLOT, message + 1, SB_KIND_NONE, GEN, "what is no slot");
  hold(SB_HOLD_PUBLICATION, message, GEN + 1, 0);
  expect_sound("a body of a commit that is not there");
  expect_is(checkup.seen[message], 0, "what was seen of that body");
}
/* What an entry names counts for its own kind only. */
static void entries_of_another_kind(void) {
  make_connection();
  set_leaf(leaf, SB_CELL_ACQUIRED, ID);
  hold_cell(SB_HOLD_NONE, queue, leaf);
  expect_sound("an entry without a kind");
  expect_is(checkup.named[ID], 0, "how many cells an entry without a kind names");
  set_header(message, SB_SLOT_ALLOC, ID);
  hold(SB_HOLD_STAGED, message, GEN, POSITION);
  expect_sound("a cell of a commit that names a body as its queue");
  expect_is(checkup.seen[message], 0, "what was seen of that body");
}
static void pages_that_are_held(void) {
  make_connection();
  const uint32_t pages[] = {leaf, long_leaf, inner};
  for (unsigned i = 0; i < 3; i++) {
    hold(SB_HOLD_PAGE, pages[i], GEN, 0);
    expect_sound("a page");
  }
  hold(SB_HOLD_PAGE, node, GEN, 0);
  expect_bad(PAGE, node, SB_KIND_NODE, 0, "a page that is a node");
}
static void ledgers_that_are_held(void) {
  make_connection();
  sb_ledger_shm *l = sb_slot_at(t.b, ledger);
  SB_STORE(&l->owner, ID | SB_FIELD(3, 12), SB_RELAXED);
  hold(SB_HOLD_LEDGER, queue, 0, ledger);
  expect_sound("a ledger");
  expect_is(checkup.seen[ledger], SB_KNOWN_TO_OWNER, "what was seen of it");
  SB_STORE(&l->owner, ANOTHER, SB_RELAXED);
  expect_bad(LEDGER, ledger, 0, 0, "the ledger of another one");
  SB_STORE(&l->owner, ID, SB_RELAXED);
  hold(SB_HOLD_LEDGER, queue, 0, ledger | UINT64_C(1) << 32);
  expect_bad(LEDGER, ledger | UINT64_C(1) << 32, 0, 0, "a ledger that lies nowhere");
  *(sb_ledger_shm *)sb_slot_at(t.b, node) = *l;
  hold(SB_HOLD_LEDGER, queue, 0, node);
  expect_bad(LEDGER, node, 0, 0, "a ledger that is a node");
}
static void views_that_are_held(void) {
  make_connection();
  sb_message_shm *m = sb_slot_at(t.b, message);
  *m = (sb_message_shm){.body_length = SB_INLINE_BODY + 1, .targets = 1, .body_offset = 64 + SB_VIEWERS_BYTES};
  _Atomic uint16_t *words = sb_view_words(t.b, message);
  set_header(message, SB_SLOT_PUBLISHED, 3);
  SB_STORE(&words[1], ID, SB_RELAXED);
  hold(SB_HOLD_VIEW, message, GEN, 1 | SB_FIELD(GEN, 8));
  expect_sound("a view");
  expect_is(checkup.seen[message], 2, "what was seen of it");
  SB_STORE(&words[1], ANOTHER, SB_RELAXED);
  expect_bad(VIEW, message, 1, 0, "the view of another one");
  SB_STORE(&words[1], ID, SB_RELAXED);
  set_header(message, SB_SLOT_PUBLISHED, 1);
  expect_bad(VIEW, message, 1, 0, "a view without a reference");
  set_header(message, SB_SLOT_ALLOC, 3);
  expect_bad(VIEW, message, 1, 0, "a view of what is not published");
  set_header(message, SB_SLOT_PUBLISHED, 3);
  m->body_length = 1;
  expect_bad(VIEW, message, 1, 0, "a view of a body that is copied");
  m->body_length = SB_INLINE_BODY + 1;
  hold(SB_HOLD_VIEW, message, GEN, SB_REF_READER | SB_FIELD(GEN, 8));
  set_header(message, SB_SLOT_PUBLISHED, 1 | SB_FIELD(ID, SB_READ_REFS));
  expect_bad(VIEW, message, SB_REF_READER, 0, "a reader of what is not read");
  set_header(message, SB_SLOT_READ, 1 | SB_FIELD(ID, SB_READ_REFS));
  expect_sound("a reader");
  expect_is(checkup.seen[message], SB_KNOWN_TO_OWNER, "what was seen of what is read");
  set_header(message, SB_SLOT_READ, 1 | SB_FIELD(ANOTHER, SB_READ_REFS));
  expect_bad(VIEW, message, SB_REF_READER, 0, "another reader");
  set_header(message, SB_SLOT_READ, 1 | SB_FIELD(ID, SB_READ_REFS));
  hold(SB_HOLD_VIEW, message, GEN, SB_REF_READER | SB_FIELD(GEN + 1, 8));
  expect_bad(VIEW, message, SB_REF_READER, 0, "a reader of another message");
  set_header(queue, SB_SLOT_READ, 1 | SB_FIELD(ID, SB_READ_REFS));
  hold(SB_HOLD_VIEW, queue, GEN, SB_REF_READER | SB_FIELD(GEN, 8));
  expect_bad(VIEW, queue, SB_REF_READER, 0, "a reader of a queue");
}
static void chunks_that_are_held(void) {
  make_connection();
  hold(SB_HOLD_CHUNK, 0, 0, BROKER_CHUNKS - 1);
  expect_sound("a chunk");
  hold(SB_HOLD_CHUNK, 0, 0, BROKER_CHUNKS);
  expect_bad(NO_CHUNK, BROKER_CHUNKS, SB_HOLD_CHUNK, BROKER_CHUNKS, "a chunk behind the last");
  hold(15, 0, 0, 77);
  expect_bad(ENTRY, 77, 15, 0, "what is nothing");
}
/* The cells that name the connection are as many as those that its holdings name. */
static void cells_and_who_names_them(void) {
  begin_checkup();
  const unsigned ids[] = {1, SB_MAX_CONNECTIONS - 1};
  for (unsigned i = 0; i < 2; i++) {
    checkup.owned[ids[i]] = 3;
    checkup.named[ids[i]] = 2;
    sb_check_cells_owned(&checkup);
    expect_finding((sb_finding){SB_BAD_HOLDING, 0, ids[i], CELLS, 0, 0, 2, 3}, "cells that nobody names");
    checkup.named[ids[i]] = 3;
    sb_check_cells_owned(&checkup);
    expect_no_finding("cells that are named");
  }
  checkup.owned[0] = 5;
  checkup.named[0] = 9;
  sb_check_cells_owned(&checkup);
  expect_no_finding("cells of nobody");
}

static const test_case CASES[] = {
    {"check_owners: alive", "a connection lives while its word says so, and is dying when its process is gone",
     which_connections_live},
    {"check_owners: connections", "a connection has a state, a process, a record and a node", damaged_connections},
    {"check_owners: tables", "the tables of holdings are a row of its own", the_tables_of_holdings},
    {"check_owners: stale", "the entries that nobody clears may name anything", entries_that_nobody_clears},
    {"check_owners: dead", "what the dead announced may not be theirs", entries_of_the_dead},
    {"check_owners: cells", "a cell that is held is the connection's", cells_that_are_held},
    {"check_owners: slots", "a slot that is held is the connection's", slots_that_are_held},
    {"check_owners: kinds", "what an entry names counts for its own kind only", entries_of_another_kind},
    {"check_owners: pages", "a page that is held is one", pages_that_are_held},
    {"check_owners: ledgers", "a ledger that is held is the connection's", ledgers_that_are_held},
    {"check_owners: views", "a view that is held has its reference", views_that_are_held},
    {"check_owners: chunks", "a chunk that is held is one", chunks_that_are_held},
    {"check_owners: named", "as many cells are named as there are", cells_and_who_names_them},
};
SUBJECT(CASES)
