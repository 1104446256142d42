// SPDX-License-Identifier: Apache-2.0
/* sb_check_queue: findings of the doctor in a queue, its messages and its accounts. The queue is a real one: it has a
 * held message, a scheduled one, and two ready ones. A case damages one word, and restores it. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkup.h"
#include "sb_parts.h"
#include "sb_queue.h"
#include "sb_slab.h"

enum { OUTSIDE, NO_SLOT, OTHER_KIND, FREED, UNPUBLISHED, NO_REFERENCE, OTHER_LIFE };
enum { READY, DELIVERING, SCHEDULED, BYTES };
enum { TAKEN, ADMITTED, READY_BYTES, TRACKING };
enum { RING_SIZE, MAX_LENGTH, MAX_BYTES, OVERFLOW };
enum { OTHER_QUEUE, NO_OWNER, OWNER_FORGOT, INTENT };
enum { HELD_BY_US, LATER, FIRST, SECOND }; /* cells */
#define BODY 24u                           /* bytes */

static sb_queue *q;
static char *buffer;

static sb_cell_shm *cell(uint64_t at) {
  sb_ring r;
  sb_leaf_ref leaf;
  uint64_t position = q->base + at, from = position;
  if (!sb_ring_open(t.b, q->slot, SB_RING_CELLS, &r) || !sb_ring_next_leaf(t.b, &r, from, &leaf, &from))
    die("cell", (int)at);
  return sb_leaf_cell(&leaf, position);
}
static uint64_t word_of(uint64_t at) { return SB_LOAD(&cell(at)->word, SB_RELAXED); }
static void set_word(uint64_t at, uint64_t word) { SB_STORE(&cell(at)->word, word, SB_RELAXED); }
static uint32_t slot_of(uint64_t at) { return sb_cell_slot(word_of(at)); }
static sb_message_shm *message_of(uint64_t at) { return sb_slot_at(t.b, slot_of(at)); }
static sb_word *header_of(uint64_t at) { return sb_slot_header(t.b, slot_of(at)); }
static uint64_t where(uint64_t at) { return q->base + at; }

static void begin(sb_settings settings) {
  sb_put_options later = {.delay_ns = UINT64_C(1) << 60}, none = {0};
  buffer = malloc(BUFFER);
  if (declare(&t, "q", settings) != SB_OK) die("sb_queue_declare", 0);
  q = open_queue(&t, "q");
  if (put_sized(&t, q, 1, BODY, &none) != SB_OK || put_sized(&t, q, 2, BODY, &later) != SB_OK ||
      put_sized(&t, q, 3, BODY, &none) != SB_OK || put_sized(&t, q, 4, BODY, &none) != SB_OK)
    die("sb_queue_put", 0);
  expect_is(get(&t, q, buffer, false), 1, "the message that is held");
  start_checkup(t.b->mapped_chunks);
}
static void look(bool closed) {
  forget_what_was_seen();
  sb_check_connections(&checkup);
  checkup.count = 0;
  sb_check_queue(&checkup, q->slot, closed);
}
static void expect_sound(const char *what) {
  look(false);
  expect_no_finding(what);
}
static void expect_one(sb_finding should, const char *what) {
  look(false);
  expect_finding(should, what);
}
static void expect_lost(uint64_t at, uint32_t slot, unsigned which, uint64_t found, uint64_t expected,
                        const char *what) {
  expect_one((sb_finding){SB_LOST_BODY, q->slot, slot, which, 0, where(at), found, expected}, what);
}
static void expect_trouble(unsigned code, unsigned which, uint64_t found, uint64_t expected, const char *what) {
  expect_one((sb_finding){code, q->slot, 0, which, 0, 0, found, expected}, what);
}
#define FREE_SETTINGS ((sb_settings)FREELY)

static void a_sound_queue(void) {
  begin(FREE_SETTINGS);
  expect_sound("a queue");
  expect_is(checkup.owned[t.c->id], 1, "the cells of this connection");
  expect_is(checkup.seen[q->slot], 1, "what was seen of the queue");
  expect_is(checkup.seen[slot_of(FIRST)], 1, "what was seen of a message");
  expect_is(checkup.seen[sb_slot_of(t.b, q->ledger)], 1 | SB_KNOWN_TO_OWNER, "what was seen of its account");
}

/* ---- bodies ---- */

static void cells_without_a_message(void) {
  begin(FREE_SETTINGS);
  uint64_t word = word_of(FIRST), no_slot = word & ~SB_FIELD((1u << 28) - 1, 4);
  uint32_t limit = checkup.chunks * SB_CHUNK_UNITS, ledger = sb_slot_of(t.b, q->ledger);
  set_word(FIRST, no_slot);
  expect_lost(FIRST, 0, OUTSIDE, SB_KIND_NONE, limit, "a cell of slot 0");
  set_word(FIRST, no_slot | SB_FIELD(limit, 4));
  expect_lost(FIRST, limit, OUTSIDE, SB_KIND_NONE, limit, "a cell of a slot behind the last");
  uint32_t chunk = 0; /* one that no connection has open */
  while (sb_chunk_state(SB_LOAD(&t.b->chunks[chunk], SB_RELAXED)) != SB_CHUNK_FREE) chunk++;
  set_word(FIRST, no_slot | SB_FIELD(chunk * SB_CHUNK_UNITS, 4));
  expect_lost(FIRST, chunk * SB_CHUNK_UNITS, NO_SLOT, SB_KIND_NONE, 0, "a cell of no slot");
  set_word(FIRST, no_slot | SB_FIELD(ledger, 4));
  expect_lost(FIRST, ledger, OTHER_KIND, SB_KIND_LEDGER, 0, "a cell of an account");
  set_word(FIRST, word);
  expect_sound("what was put right");
}
static void bodies_that_are_gone(void) {
  begin(FREE_SETTINGS);
  uint64_t header = SB_LOAD(header_of(FIRST), SB_RELAXED), gen = sb_slot_gen(header);
  uint64_t word = word_of(FIRST);
  uint32_t slot = slot_of(FIRST);
  const uint64_t headers[] = {sb_slot_word(SB_SLOT_FREE, 0, gen), sb_slot_word(SB_SLOT_ALLOC, t.c->id, gen)};
  for (unsigned i = 0; i < 2; i++) {
    SB_STORE(header_of(FIRST), headers[i], SB_RELAXED);
    expect_lost(FIRST, slot, i == 0 ? FREED : UNPUBLISHED, headers[i], 0, "a body that is not published");
  }
  SB_STORE(header_of(FIRST), sb_slot_word(SB_SLOT_PUBLISHED, 6, gen), SB_RELAXED);
  expect_lost(FIRST, slot, NO_REFERENCE, 0, 6, "a body without the cell's reference");
  SB_STORE(header_of(FIRST), header, SB_RELAXED);
  set_word(SECOND, (word_of(SECOND) & ~SB_FIELD((1u << 28) - 1, 4)) | SB_FIELD(slot, 4));
  expect_one((sb_finding){SB_SHARED_REFERENCE, q->slot, slot, 0, 0, where(SECOND), 0, 0}, "a reference of two cells");
  set_word(FIRST, word);
}
/* Of a commit that is being prepared the body is not published yet; that is its owner's alone. */
static void bodies_of_a_commit(void) {
  begin(FREE_SETTINGS);
  uint64_t gen = sb_slot_gen(SB_LOAD(header_of(FIRST), SB_RELAXED)), page = word_of(FIRST) >> 37;
  uint32_t slot = slot_of(FIRST);
  sb_ledger_count(q->ledger, SB_COUNT_ADDED, (uint64_t)-1); /* it is in no counter */
  sb_ledger_count(q->ledger, SB_COUNT_ADDED_BYTES, (uint64_t)-(int64_t)BODY);
  set_word(FIRST, sb_cell_owned(SB_CELL_STAGED, slot, 0, t.c->id, page));
  expect_sound("a cell that is staged");
  expect_is(checkup.owned[t.c->id], 2, "the cells of this connection");
  SB_STORE(header_of(FIRST), sb_slot_word(SB_SLOT_ALLOC, t.c->id, gen), SB_RELAXED);
  expect_sound("a body that is not published yet");
  uint64_t another = sb_slot_word(SB_SLOT_ALLOC, t.c->id + 1, gen);
  SB_STORE(header_of(FIRST), another, SB_RELAXED);
  expect_lost(FIRST, slot, UNPUBLISHED, another, 0, "another one's body");
  uint64_t mine = sb_slot_word(SB_SLOT_ALLOC, t.c->id, gen);
  SB_STORE(header_of(FIRST), mine, SB_RELAXED);
  set_word(FIRST, sb_cell_owned(SB_CELL_ACQUIRED, slot, 0, t.c->id, page));
  expect_lost(FIRST, slot, UNPUBLISHED, mine, 0, "a cell that is not staged");
}

/* ---- messages ---- */

static void expect_message(unsigned which, uint64_t found, uint64_t expected, const char *what) {
  expect_one((sb_finding){SB_BAD_MESSAGE, q->slot, slot_of(FIRST), which, 0, where(FIRST), found, expected}, what);
}
static void headers_of_messages(void) {
  begin(FREE_SETTINGS);
  sb_message_shm *m = message_of(FIRST), was = *m;
  uint64_t bytes = sb_slab_slot_bytes(t.b, slot_of(FIRST)), front = sizeof *m;
  m->key_length = was.body_offset - (uint32_t)front + 1;
  expect_message(1, was.body_offset, was.body_offset + 1, "names that reach into the body");
  *m = was;
  m->exchange_length = 7;
  m->properties_length = was.body_offset;
  expect_message(1, was.body_offset, front + 7 + was.body_offset, "properties that reach into the body");
  *m = was;
  m->body_offset = (uint32_t)bytes;
  m->body_length = 0;
  uint64_t taken = BODY; /* the counters know the body's length */
  sb_ledger_count(q->ledger, SB_COUNT_REMOVED_BYTES, taken);
  expect_sound("a body that begins where its slot ends");
  sb_ledger_count(q->ledger, SB_COUNT_REMOVED_BYTES, (uint64_t)-(int64_t)taken);
  m->body_offset = (uint32_t)bytes + 1;
  expect_message(1, bytes + 1, front, "a body behind its slot");
  *m = was;
  m->body_length = bytes - was.body_offset + 1;
  expect_message(0, m->body_length, bytes - was.body_offset, "a body that is too long");
  m->body_length = bytes - was.body_offset;
  sb_ledger_count(q->ledger, SB_COUNT_ADDED_BYTES, m->body_length - BODY);
  expect_sound("a body that ends with its slot");
}
/* A slot of a run has room for more than a message may have. */
static void the_longest_messages(void) {
  begin(FREE_SETTINGS);
  uint32_t chunk = BROKER_CHUNKS - 1;
  grow_to(chunk);
  checkup.chunks = t.b->mapped_chunks;
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(SB_CHUNK_RUN, 0, 0, 1), SB_RELAXED);
  uint32_t slot = chunk * SB_CHUNK_UNITS;
  sb_message_shm *m = sb_slot_at(t.b, slot);
  SB_STORE(sb_slot_header(t.b, slot), sb_slot_word(SB_SLOT_PUBLISHED, 1, 3), SB_RELAXED);
  set_word(FIRST, (word_of(FIRST) & ~SB_FIELD((1u << 28) - 1, 4)) | SB_FIELD(slot, 4));
  *m = (sb_message_shm){.body_offset = 131072, .body_length = BODY, .properties_length = 65536 - sizeof *m};
  expect_sound("the longest front");
  m->properties_length++;
  expect_message(1, 131072, 65537, "a front that is too long");
}
static void messages_in_parts(void) {
  begin(FREE_SETTINGS);
  sb_message_shm *m = message_of(FIRST);
  uint32_t slot = slot_of(FIRST), part;
  uint64_t gen = sb_slot_gen(SB_LOAD(header_of(FIRST), SB_RELAXED)), part_gen, token;
  if (sb_holding_take(t.c, &token) != SB_OK ||
      sb_slab_alloc(t.c, sb_class_for(t.b, 4 * SB_UNIT), token, &part, &part_gen) != SB_OK)
    die("sb_slab_alloc", 0);
  sb_parts_begin(t.c, slot, gen);
  sb_parts_add(t.b, slot, gen, part, part_gen);
  SB_STORE(header_of(FIRST), sb_slot_word(SB_SLOT_PUBLISHED, 1 | UINT64_C(1) << SB_PARTS_REF, gen), SB_RELAXED);
  uint64_t room = sb_parts_room(t.b, slot);
  m->flags = SB_MESSAGE_IN_PARTS;
  m->key_length = (uint32_t)(room - BODY);
  expect_sound("parts that are full");
  m->key_length++;
  expect_message(0, room + 1, room, "parts that are too short");
  m->key_length = 65536 - sizeof *m + 1;
  expect_message(0, m->key_length + BODY, room, "a front that is too long, in parts");
  m->key_length = 0;
  m->body_length = SB_MAX_BODY + 1;
  expect_message(0, SB_MAX_BODY + 1, room, "a body that is too long, in parts");
}

/* ---- holders ---- */

static unsigned dead_connection(void) {
  pid_t pid = fork();
  if (pid == 0) {
    attach(&t);
    connect_to(&t);
    _exit(0);
  }
  (void)waitpid(pid, NULL, 0);
  for (unsigned i = 1; i < SB_MAX_CONNECTIONS; i++) {
    uint64_t word = SB_LOAD(&t.b->connections[i], SB_ACQUIRE);
    if (sb_conn_state(word) == SB_CONN_LIVE && sb_conn_process(word) != t.b->process) return i;
  }
  die("dead_connection", 0);
}
static void who_holds_a_message(void) {
  begin(FREE_SETTINGS);
  uint64_t word = word_of(HELD_BY_US), page = word >> 49;
  uint32_t slot = slot_of(HELD_BY_US);
  sb_cell_shm *c = cell(HELD_BY_US);
  set_word(HELD_BY_US, sb_cell_owned(SB_CELL_ACQUIRED, slot, 0, 55, page));
  expect_one((sb_finding){SB_BAD_OWNER, q->slot, slot, 2, 0, where(HELD_BY_US), 55, 0}, "a message that nobody holds");
  set_word(HELD_BY_US, sb_cell_owned(SB_CELL_REMOVING, slot, 0, t.c->id, page));
  expect_sound("a message that is being removed");
  set_word(HELD_BY_US, word);
  uint64_t side = SB_LOAD(&c->side, SB_RELAXED);
  SB_STORE(&c->side, side + 1, SB_RELAXED);
  expect_lost(HELD_BY_US, slot, OTHER_LIFE, sb_side_gen(side) + 1, sb_side_gen(side), "a holder of another message");
  unsigned dead = dead_connection();
  set_word(HELD_BY_US, sb_cell_owned(SB_CELL_ACQUIRED, slot, 0, dead, page));
  expect_sound("a dead holder who did not come to write it");
}
static void ready_messages_are_found(void) {
  begin(FREE_SETTINGS);
  uint64_t head = SB_LOAD(&q->shm->head, SB_RELAXED);
  SB_STORE(&q->shm->head, where(FIRST) + 1, SB_RELAXED);
  expect_one((sb_finding){SB_HIDDEN_CELL, q->slot, slot_of(FIRST), 0, 0, where(FIRST), where(FIRST) + 1, 0},
             "a message before the head");
  SB_STORE(&q->shm->head, where(FIRST), SB_RELAXED);
  expect_sound("a message at the head");
  SB_STORE(&q->shm->head, head, SB_RELAXED);
}

/* ---- accounts ---- */

static void expect_ledger(unsigned which, uint64_t found, uint64_t expected, const char *what) {
  expect_one((sb_finding){SB_BAD_LEDGER, q->slot, sb_slot_of(t.b, q->ledger), which, 0, 0, found, expected}, what);
}
static void accounts_of_a_queue(void) {
  begin(FREE_SETTINGS);
  sb_ledger_shm *l = q->ledger;
  uint32_t slot = sb_slot_of(t.b, l);
  uint64_t owner = SB_LOAD(&l->owner, SB_RELAXED);
  SB_STORE(&l->queue, q->slot + 1, SB_RELAXED);
  expect_ledger(OTHER_QUEUE, q->slot + 1, q->slot, "the account of another queue");
  SB_STORE(&l->queue, q->slot, SB_RELAXED);
  SB_STORE(&l->owner, 55, SB_RELAXED);
  expect_ledger(NO_OWNER, 55, 0, "the account of nobody");
  sb_connection *other = connect_to(&t);
  SB_STORE(&l->owner, other->id, SB_RELAXED);
  expect_ledger(OWNER_FORGOT, other->id, 0, "an account that its owner does not list");
  SB_STORE(&l->owner, dead_connection(), SB_RELAXED);
  expect_sound("an account that its dead owner does not list");
  SB_STORE(&l->owner, 0, SB_RELAXED);
  expect_sound("an account that is free");
  SB_STORE(&l->kind, 2, SB_RELAXED);
  expect_ledger(INTENT, 2, 0, "an intent of nobody");
  SB_STORE(&l->owner, owner, SB_RELAXED);
  expect_sound("an intent");
  SB_STORE(&l->kind, 0, SB_RELAXED);
  SB_STORE(&l->next, slot, SB_RELAXED);
  expect_one((sb_finding){SB_BAD_CHAIN, q->slot, slot, 0, 0, 0, SB_KIND_LEDGER, SB_KIND_LEDGER}, "accounts in a ring");
  SB_STORE(&l->next, slot_of(FIRST), SB_RELAXED);
  expect_one((sb_finding){SB_BAD_CHAIN, q->slot, slot_of(FIRST), 0, 0, 0, SB_KIND_MESSAGE, SB_KIND_LEDGER},
             "an account that is a message");
}

/* ---- counters and hints ---- */

static void set_counter(unsigned counter, int by) { sb_ledger_count(q->ledger, counter, (uint64_t)(int64_t)by); }
static void counters_and_cells(void) {
  const unsigned gone[] = {SB_COUNT_ACKED,   SB_COUNT_EXPIRED,       SB_COUNT_KILLED, SB_COUNT_REPLACED,
                           SB_COUNT_DROPPED, SB_COUNT_DEAD_LETTERED, SB_COUNT_MOVED};
  begin(FREE_SETTINGS);
  set_counter(SB_COUNT_ADDED, 1);
  expect_trouble(SB_BAD_COUNT, READY, 3, 2, "one too many");
  for (unsigned i = 0; i < sizeof gone / sizeof gone[0]; i++) {
    set_counter(gone[i], 1);
    expect_sound("one that is gone");
    set_counter(gone[i], -1);
  }
  set_counter(SB_COUNT_ADDED, -1);
  set_counter(SB_COUNT_ADDED_BYTES, 5);
  expect_trouble(SB_BAD_COUNT, BYTES, 4 * BODY + 5, 4 * BODY, "bytes too many");
  set_counter(SB_COUNT_REMOVED_BYTES, 5);
  expect_sound("bytes that are gone");
  sb_ledger_hold(q->ledger, 1);
  set_counter(SB_COUNT_ADDED, 1);
  expect_trouble(SB_BAD_COUNT, DELIVERING, 2, 1, "one held too many");
  sb_ledger_hold(q->ledger, -1);
  set_counter(SB_COUNT_SCHEDULED, 1);
  expect_trouble(SB_BAD_COUNT, SCHEDULED, 2, 1, "one scheduled too many");
  set_counter(SB_COUNT_ADDED, -1);
  set_counter(SB_COUNT_UNSCHEDULED, 1);
  expect_sound("one that is not scheduled any more");
  set_counter(SB_COUNT_ADDED, 1);
  look(true);
  expect_no_finding("messages that had left the memory end with a closed queue, uncounted");
  set_counter(SB_COUNT_ADDED, -1);
  set_counter(SB_COUNT_ACKED, 1);
  look(true);
  expect_finding((sb_finding){SB_BAD_COUNT, q->slot, 0, READY, 0, 0, 1, 2}, "too few in a queue that is closed");
  set_counter(SB_COUNT_ACKED, -1);
  set_counter(SB_COUNT_ADDED, 1);
  SB_STORE(&q->ledger->queue, 1u, SB_RELAXED); /* what was found explains it */
  expect_ledger(OTHER_QUEUE, 1, q->slot, "a queue with another trouble");
}
static void hints_of_a_queue_with_a_bound(void) {
  begin((sb_settings){{-1, 100, -1, 0, -1, -1}, 0});
  sb_queue_shm *s = q->shm;
  expect_sound("a queue with a bound");
  SB_ADD(&s->admitted, 1, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, ADMITTED, where(5), where(4), "a place of nobody");
  look(true);
  expect_no_finding("the hints of a queue that is closed");
  SB_SUB(&s->admitted, 1, SB_RELAXED);
  SB_ADD(&s->taken, 1, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, TAKEN, 3, 2, "one taken too many");
  SB_SUB(&s->taken, 2, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, TAKEN, 1, 2, "one taken too few");
  SB_ADD(&s->taken, 1, SB_RELAXED);
  SB_ADD(&s->bytes_in, 1, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, READY_BYTES, 2 * BODY + 1, 2 * BODY, "a byte too many");
  SB_SUB(&s->bytes_in, 2, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, READY_BYTES, 2 * BODY - 1, 2 * BODY, "a byte too few");
  SB_ADD(&s->bytes_in, 1, SB_RELAXED);
  SB_STORE(&s->tracking, 0, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, TRACKING, 0, 1, "a bound that nobody keeps");
  SB_STORE(&s->settings[SB_SETTING_MAX_LENGTH], -1, SB_RELAXED);
  expect_sound("no bound");
  SB_STORE(&s->settings[SB_SETTING_RING_SIZE], 9, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, TRACKING, 0, 1, "a ring that nobody keeps");
  SB_STORE(&s->settings[SB_SETTING_RING_SIZE], -1, SB_RELAXED);
  SB_STORE(&s->settings[SB_SETTING_MAX_BYTES], 9, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, TRACKING, 0, 1, "a bound of bytes that nobody keeps");
}
/* Of staged messages the hints may know already, or not yet. */
static void hints_beside_a_commit(void) {
  begin((sb_settings){{-1, 100, -1, 0, -1, -1}, 0});
  set_word(FIRST, sb_cell_owned(SB_CELL_STAGED, slot_of(FIRST), 0, t.c->id, word_of(FIRST) >> 37));
  set_counter(SB_COUNT_ADDED, -1);
  set_counter(SB_COUNT_ADDED_BYTES, -(int)BODY);
  expect_sound("hints that know of it as ready");
  SB_ADD(&q->shm->taken, 1, SB_RELAXED);
  SB_ADD(&q->shm->bytes_out, BODY, SB_RELAXED);
  expect_sound("hints that know of it as staged");
  SB_ADD(&q->shm->taken, 1, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, TAKEN, 4, 3, "one taken too many");
  SB_SUB(&q->shm->taken, 1, SB_RELAXED);
  SB_ADD(&q->shm->bytes_out, 1, SB_RELAXED);
  expect_trouble(SB_BAD_HINT, READY_BYTES, BODY - 1, BODY, "a byte too few");
}
static void settings_of_a_queue(void) {
  begin((sb_settings){{-1, 100, -1, 0, -1, -1}, 0});
  sb_queue_shm *s = q->shm;
  _Atomic int64_t *limits[] = {&s->settings[SB_SETTING_RING_SIZE], &s->settings[SB_SETTING_MAX_LENGTH],
                               &s->settings[SB_SETTING_MAX_BYTES]};
  for (unsigned i = 0; i < 3; i++) {
    int64_t was = *limits[i];
    *limits[i] = 1;
    expect_sound("the least limit");
    *limits[i] = 0;
    if (i == 0) {
      expect_trouble(SB_BAD_QUEUE, RING_SIZE + i, 0, 0, "a limit of 0");
    } else {
      expect_sound("a queue without room");
    }
    *limits[i] = -2;
    expect_trouble(SB_BAD_QUEUE, RING_SIZE + i, (uint64_t)-2, 0, "a limit below 0");
    look(true);
    expect_no_finding("the limit of a queue that is closed");
    *limits[i] = was;
  }
  SB_STORE(&s->settings[SB_SETTING_OVERFLOW], SB_OVERFLOWS - 1, SB_RELAXED);
  expect_sound("the last way to overflow");
  SB_STORE(&s->settings[SB_SETTING_OVERFLOW], SB_OVERFLOWS, SB_RELAXED);
  expect_trouble(SB_BAD_QUEUE, OVERFLOW, SB_OVERFLOWS, 0, "no way to overflow");
}
/* Counters are compared only where all cells and accounts were seen. */
static void what_cannot_be_counted(void) {
  begin(FREE_SETTINGS);
  set_counter(SB_COUNT_ADDED, 1);
  uint64_t root = SB_LOAD(&q->shm->root, SB_RELAXED);
  SB_STORE(&q->shm->root, sb_link_word(1, slot_of(FIRST), 0), SB_RELAXED);
  look(false);
  expect(checkup.count > 0, "a broken root was not found");
  for (uint32_t i = 0; i < checkup.count; i++)
    expect(checkup.findings[i].code != SB_BAD_COUNT, "counters were compared with cells that were not seen");
  SB_STORE(&q->shm->root, root, SB_RELAXED);
}

static const test_case CASES[] = {
    {"check_queue: sound", "nothing is found where all is well", a_sound_queue},
    {"check_queue: cells", "a cell names a slot of messages", cells_without_a_message},
    {"check_queue: bodies", "a body is published, with its cell's reference", bodies_that_are_gone},
    {"check_queue: staged", "a body of a commit may be its owner's", bodies_of_a_commit},
    {"check_queue: headers", "names and body lie in their slot", headers_of_messages},
    {"check_queue: longest", "a message is no longer than it may be", the_longest_messages},
    {"check_queue: parts", "parts have room for a message", messages_in_parts},
    {"check_queue: holders", "a holder lives, and has written what he holds", who_holds_a_message},
    {"check_queue: head", "no ready message lies before the head", ready_messages_are_found},
    {"check_queue: accounts", "an account is its queue's and its owner's", accounts_of_a_queue},
    {"check_queue: counters", "counters say what cells say", counters_and_cells},
    {"check_queue: hints", "hints say what cells say", hints_of_a_queue_with_a_bound},
    {"check_queue: commits", "hints may know of a staged message or not", hints_beside_a_commit},
    {"check_queue: settings", "settings are such as can be", settings_of_a_queue},
    {"check_queue: broken", "what was not seen is not counted", what_cannot_be_counted},
};
SUBJECT(CASES)
