// SPDX-License-Identifier: Apache-2.0
/* sb_api_browse: the messages that a browser sees, one after the other; and a message, or a page, that is removed while
 * the browser copies it. Columns: api_browse_columns.c. */
#include <string.h>

#include "calls.h"
#include "cells.h"
#include "sb_api.h"
#include "surroundings.h"
#include "system.h"

#define UNKNOWN 12345u
#define NEED (sizeof(sb_record) + BYTES) /* of a message without names */

static char *buffer;
static sb_queue *q;
static uint64_t position;

static const sb_record *record(void) { return (const sb_record *)(const void *)buffer; }
static int64_t browse_sized(uint64_t size) { return sb_queue_browse(q, &position, buffer, size); }
static int64_t browse(void) { return browse_sized(BUFFER); }
static int64_t browse_from(uint64_t from) {
  position = from;
  return browse();
}
static void begin(sb_settings settings, unsigned messages) {
  q = begin_queue("q", settings, messages);
  buffer = untouched(BUFFER);
  note_rest(q);
  position = 0;
}
static void expect_seen(int64_t length, uint64_t id, uint64_t then) {
  expect(length > 0, "there is no message %llu, but status %d", (unsigned long long)id, (int)-length);
  if (length > 0) expect_is(id_at(body_of(buffer, length), BYTES), id, "the message");
  expect_is(position, then, "the next position");
}
static void expect_nothing(int64_t status, sb_status should, uint64_t at_position) {
  expect_is(status, -(int64_t)should, "the status");
  expect_is(position, at_position, "the position");
}

/* ---- one after the other ---- */

static void messages_in_turn(void) {
  begin(UNLIMITED, 2);
  expect_seen(browse(), 1, 1);
  expect_is(record()->sequence, 0, "the sequence of the first");
  expect_is(record()->marks, 0, "whether the first was redelivered");
  expect_seen(browse(), 2, 2);
  expect_is(record()->sequence, 1, "the sequence of the second");
  expect_nothing(browse(), SB_EMPTY, 2);
  expect_is(sb_queue_length(q), 2, "how many there are still");
  expect_rest("looks at two messages");
}
static void a_whole_record(void) {
  const sb_put_options o = {.ttl_ns = UINT64_C(1) << 50,
                            .priority = 7,
                            .exchange = "E",
                            .exchange_length = 1,
                            .key = "kk",
                            .key_length = 2,
                            .properties = "ppp",
                            .properties_length = 3};
  begin(UNLIMITED, 0);
  expect_is(put_sized(&t, q, 5, BYTES, &o), SB_OK, "the status of a put");
  expect_is(sb_queue_get(q, buffer, false), NEED + 6, "the length of a get");
  sb_record got = *record();
  expect_is(sb_queue_settle(q, buffer, SB_REQUEUE), SB_OK, "the status of a requeue");
  memset(buffer, 0x55, BUFFER);
  expect_is(browse_sized(NEED + 6 - 1), -(int64_t)SB_FULL, "the status of too short a buffer");
  expect_is(*(uint64_t *)(void *)buffer, NEED + 6, "how much is needed");
  expect(buffer[8] == 0x55 && buffer[NEED] == 0x55, "too short a buffer was written to");
  expect_is(position, 0, "the position of what did not fit");
  expect_is(browse_sized(NEED + 6), NEED + 6, "the length");
  got.tag = got.body_address = got.delivery_count = 0;
  got.marks = 1;
  expect(memcmp(record(), &got, sizeof got) == 0, "the record is another one");
  expect(memcmp(buffer + sizeof(sb_record), "Ekkppp", 6) == 0, "other names follow");
  expect_is(id_at(buffer + sizeof(sb_record) + 6, BYTES), 5, "the body");
  expect_is(buffer[NEED + 6], 0x55, "what is behind it");
  expect_rest("a look at a message");
}
static void a_place_instead_of_a_body(void) {
  sb_place place = {0};
  begin(UNLIMITED, 2);
  memset(buffer, 0x55, BUFFER);
  expect_is(sb_queue_browse_place(q, &position, buffer, sizeof(sb_record) - 1, &place), -(int64_t)SB_FULL,
            "the status of too short a buffer");
  expect_is(position, 0, "the position of what did not fit");
  expect_is(sb_queue_browse_place(q, &position, buffer, sizeof(sb_record), &place), sizeof(sb_record), "the length");
  expect_is(position, 1, "the next position");
  expect_is(place.slot, slot_of(0), "the slot");
  expect_is(place.generation, sb_slot_gen(SB_LOAD(sb_slot_header(t.b, slot_of(0)), SB_RELAXED)), "the generation");
  expect_is(place.length, BYTES, "the length of the body");
  expect_is(record()->body_length, BYTES, "the length of the body in the record");
  expect_is(buffer[sizeof(sb_record)], 0x55, "what is behind the record");
  expect_rest("a look at a place");
}
static void messages_of_two_leaves(void) {
  begin(UNLIMITED, SB_PAGE_CELLS + 1);
  expect_seen(browse_from(SB_PAGE_CELLS - 1), SB_PAGE_CELLS, SB_PAGE_CELLS);
  expect_seen(browse(), SB_PAGE_CELLS + 1, SB_PAGE_CELLS + 1);
  expect_nothing(browse(), SB_EMPTY, SB_PAGE_CELLS + 1);
}

/* ---- what is passed over, and where it ends ---- */

static void what_is_not_ready(void) {
  begin(UNLIMITED, 6);
  set_cell(0, SB_CELL_ACQUIRED, OTHER);
  set_cell(1, SB_CELL_TOMBSTONE, 0);
  set_cell(2, SB_CELL_SCHEDULED, 0);
  set_word(3, sb_cell_open(SB_CELL_AVAILABLE, (BROKER_CHUNKS - 1) * SB_CHUNK_UNITS, 0, leaf_of(3).gen));
  set_word(4, sb_cell_open(SB_CELL_AVAILABLE, BROKER_CHUNKS * SB_CHUNK_UNITS, 0, leaf_of(4).gen));
  expect_seen(browse(), 6, 6);
  set_cell(5, SB_CELL_ACQUIRED, OTHER);
  expect_nothing(browse_from(0), SB_EMPTY, 6);
}
static void where_it_ends(void) {
  begin(UNLIMITED, 3);
  const uint64_t words[] = {cell_word(1, SB_CELL_FREE, 0), cell_word(1, SB_CELL_CLOSED, 0),
                            sb_cell_open(SB_CELL_AVAILABLE, slot_of(1), 0, leaf_of(1).gen + 1)};
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
    set_word(1, words[i]);
    expect_seen(browse_from(0), 1, 1);
    expect_nothing(browse(), SB_EMPTY, 1);
  }
  expect_nothing(browse_from(5 * SB_PAGE_CELLS), SB_EMPTY, 5 * SB_PAGE_CELLS);
}
/* A message goes at its time, unless the queue keeps it. */
static void what_has_expired(void) {
  begin(UNLIMITED, 2);
  sb_queue *keeps = make_queue("keeps", (sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_KEEPS});
  answer_for_the_system();
  message_of(0)->expires_ns = says.now_ns;
  expect_seen(browse_from(0), 2, 2);
  message_of(0)->expires_ns = says.now_ns + 1;
  expect_seen(browse_from(0), 1, 1);
  expect_is(record()->expires_ns, says.now_ns + 1, "when it expires");
  uint64_t all = UINT64_MAX;
  sb_status status;
  set_cell(0, SB_CELL_TOMBSTONE, 0); /* what is moved is the second message */
  q = keeps;
  expect_is(put(&t, q, 3), SB_OK, "the status of a put");
  expect_is(sb_queue_move(open_queue(&t, "q"), q, 1, &all, &status), 1, "how many were moved");
  message_of(1)->expires_ns = says.now_ns;
  expect_seen(browse_from(1), 2, 2);
  expect_is(record()->sequence, 1, "the sequence it was given when it was put");
  expect_seen(browse_from(0), 3, 1);
  sb_leaf_ref leaf;
  expect_is(sb_ring_locate(t.b, NULL, &q->lanes[0].ring, q->base + 1, &leaf), SB_OK, "the status of its leaf");
  SB_STORE(sb_ring_origin(t.b, &leaf, q->base + 1), 77, SB_RELAXED);
  expect_seen(browse_from(1), 2, 2);
  expect_is(record()->sequence, 77, "the sequence of an origin");
  SB_STORE(&q->shm->flags, 0u, SB_RELAXED); /* as another configuration may say */
  message_of(1)->expires_ns = 0;
  expect_seen(browse_from(1), 2, 2);
  expect_is(record()->sequence, 1, "the sequence where no origins are kept");
}
static void a_damaged_message(void) {
  begin(UNLIMITED, 2);
  message_of(0)->body_offset = UINT32_MAX - 63;
  expect_nothing(browse(), SB_CORRUPT, 0);
  expect_seen(browse_from(1), 2, 2);
  expect_calm("a look at a damaged message");
}

/* ---- when it cannot begin ---- */

static void a_browser_that_is_refused(void) {
  sb_place place;
  begin(UNLIMITED, 1);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_nothing(browse(), REFUSAL[i], 0);
    expect_is(sb_queue_browse_place(q, &position, buffer, BUFFER, &place), -(int64_t)REFUSAL[i],
              "the status of a place");
    expect_untouched(t.c, "a look that is refused");
  }
  refuse(t.c, SB_OK);
  mark_closed(q);
  expect_nothing(browse(), SB_DELETED, 0);
  expect_calm("a look at a closed queue");
}
/* The ring holds a message too many, and seems not to: a producer died in debt. */
static void begin_in_debt(void) {
  begin((sb_settings){{3, -1, -1, 0, -1, -1}, 0}, 3);
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], 2, SB_RELAXED);
  die_in_debt("q");
}
static void a_debt_is_paid_at_the_beginning(void) {
  begin_in_debt();
  expect_seen(browse_from(1), 2, 2);
  expect_is(counted(q, SB_COUNT_REPLACED), 0, "the number replaced in the middle");
  expect_seen(browse_from(0), 2, 2);
  expect_is(counted(q, SB_COUNT_REPLACED), 1, "the number replaced at the beginning");
  expect_rest("a debt that was paid");
}
static void close_while_reaping(const char *site) {
  if (strcmp(site, "recover.begun") != 0) return;
  at_step = NULL;
  (void)sb_connection_close(t.c);
}
static void closed_while_it_reaps(void) {
  if (!has_steps()) return;
  begin_in_debt();
  at_step = close_while_reaping;
  expect_nothing(browse(), SB_CLOSED, 0);
  expect(at_step == NULL, "no producer was reaped");
  expect_is(q->busy, 0, "how busy the queue is");
}

/* ---- what happens while a message is copied ---- */

static unsigned locked, busy;
static void look(void) {
  locked = SB_LOAD(&t.c->lock, SB_RELAXED);
  busy = q->busy;
  begin_watching(t.c);
}
/* It is looked at without the lock; the queue is busy, so that its handle is not left. */
static void the_lock_of_a_browser(void) {
  begin(UNLIMITED, 1);
  at_touch(buffer, look);
  expect_seen(browse(), 1, 1);
  expect(touches == 1 && locked == 0 && busy == 1, "it was copied with the lock, or while the queue was not busy");
  expect_is(times_locked(), 1, "how often the lock was taken after it");
  expect_rest("a look");
}
static void take_it(void) { set_cell(0, SB_CELL_ACQUIRED, OTHER); }
static void the_cell_changes(void) {
  begin(UNLIMITED, 2);
  at_touch(buffer, take_it);
  expect_seen(browse(), 2, 2);
  expect_is(touches, 1, "how often something happened");
}
/* Another message of that cell, or so it looks, when the first half of the body was copied. */
#define HALF 4096u
static void replace_it(void) {
  uint32_t slot = sb_cell_slot(word_of(0));
  sb_word *header = sb_slot_header(t.b, slot);
  sb_message_shm *m = sb_slot_at(t.b, slot);
  SB_STORE(header, SB_LOAD(header, SB_RELAXED) + SB_FIELD(1, 26), SB_RELAXED);
  for (unsigned i = 0; i < 2 * HALF / 8; i++) ((uint64_t *)(void *)((char *)m + m->body_offset))[i] = 9;
}
static void the_slot_changes(void) {
  const sb_put_options none = {0};
  begin(UNLIMITED, 0);
  expect_is(put_sized(&t, q, 1, 2 * HALF, &none), SB_OK, "the status of a put");
  at_touch(buffer + HALF, replace_it);
  expect_is(browse(), sizeof(sb_record) + 2 * HALF, "the length");
  expect_is(id_at(buffer + sizeof(sb_record), 2 * HALF), 9, "the body");
  expect_is(touches, 1, "how often something happened");
}
/* All messages of the first page are taken, so it goes; then its memory, and the slot, look as they did. */
static void free_the_leaf(void) {
  static sb_leaf_shm before;
  static char others[BUFFER];
  sb_leaf_ref leaf = leaf_of(0);
  sb_word *header = sb_slot_header(t.b, slot_of(0));
  uint64_t was = SB_LOAD(header, SB_RELAXED);
  memcpy(&before, leaf.leaf, sizeof before);
  for (unsigned i = 0; i < SB_PAGE_CELLS; i++) expect(sb_queue_get(q, others, true) > 0, "message %u is not there", i);
  expect(sb_slot_gen(SB_LOAD(sb_slot_header(t.b, leaf.slot), SB_RELAXED)) != leaf.gen, "the page was not freed");
  memcpy(leaf.leaf, &before, sizeof before);
  SB_STORE(header, was, SB_RELAXED);
}
static void the_leaf_goes(void) {
  begin(UNLIMITED, SB_PAGE_CELLS + 1);
  at_touch(buffer, free_the_leaf);
  expect_seen(browse(), SB_PAGE_CELLS + 1, SB_PAGE_CELLS + 1);
  expect_is(touches, 1, "how often something happened");
}
/* The page goes when the browser has found it, before it looks at the cell: of whatever stands there it believes nothing. */
static uint64_t word_there;
static void free_before_the_cell(const char *site) {
  if (strstr(site, "sb_api_browse.c") == NULL || q->busy == 0) return;
  at_step = NULL;
  sb_leaf_ref leaf = leaf_of(0);
  free_the_leaf();
  leaf.leaf->cells[0].word = word_there;
}
static void the_leaf_goes_before(void) {
  if (!has_steps()) return;
  begin(UNLIMITED, SB_PAGE_CELLS + 1);
  word_there = cell_word(0, SB_CELL_FREE, 0);
  at_step = free_before_the_cell;
  expect_seen(browse(), SB_PAGE_CELLS + 1, SB_PAGE_CELLS + 1);
  expect(at_step == NULL, "the page did not go");
}

/* ---- parts ---- */

static void a_message_in_parts(void) {
  static char body[40000];
  const sb_put_options o = {.key = "key", .key_length = 3};
  begin(UNLIMITED, 1);
  leave_chunks(0);
  for (size_t i = 0; i < sizeof body; i++) body[i] = (char)(i % 251);
  expect_is(sb_queue_put_with(q, body, sizeof body, &o), SB_OK, "the status of a put");
  note_rest(q);
  expect(sb_slot_in_parts(SB_LOAD(sb_slot_header(t.b, sb_cell_slot(word_of(1))), SB_RELAXED)), "it has one piece");
  position = 1;
  expect_is(browse(), sizeof(sb_record) + 3 + sizeof body, "the length");
  expect(memcmp(buffer + sizeof(sb_record), "key", 3) == 0, "the key is another one");
  expect(memcmp(buffer + sizeof(sb_record) + 3, body, sizeof body) == 0, "the body is another one");
  expect_rest("a look at a message in parts");
}

static const test_case CASES[] = {
    {"api_browse: turn", "messages are seen one after the other, and stay", messages_in_turn},
    {"api_browse: record", "a record says what that of a get says, and needs its room", a_whole_record},
    {"api_browse: place", "a place is told instead of a body", a_place_instead_of_a_body},
    {"api_browse: leaves", "a browser goes from one leaf to the next", messages_of_two_leaves},
    {"api_browse: not ready", "what is not ready is passed over", what_is_not_ready},
    {"api_browse: end", "a browser ends where nothing was put yet", where_it_ends},
    {"api_browse: expired", "what has expired is passed over where the queue does not keep it", what_has_expired},
    {"api_browse: damaged", "a browser says where a message is damaged", a_damaged_message},
    {"api_browse: refused", "a browser does not begin where nothing can be seen", a_browser_that_is_refused},
    {"api_browse: debt", "the debt of a dead producer is paid at the beginning", a_debt_is_paid_at_the_beginning},
    {"api_browse: closed", "a connection that closes while it reaps sees nothing", closed_while_it_reaps},
    {"api_browse: lock", "a message is copied without the lock", the_lock_of_a_browser},
    {"api_browse: cell", "a message that is taken meanwhile is not seen", the_cell_changes},
    {"api_browse: slot", "a slot that is filled anew meanwhile is looked at again", the_slot_changes},
    {"api_browse: leaf", "nothing is believed of a page that goes meanwhile", the_leaf_goes},
    {"api_browse: leaf before", "nor of one that goes before its cell is looked at", the_leaf_goes_before},
    {"api_browse: parts", "a message in parts is seen whole", a_message_in_parts},
};
SUBJECT(CASES)
