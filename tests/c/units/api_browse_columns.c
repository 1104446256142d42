// SPDX-License-Identifier: Apache-2.0
/* sb_api_browse: many messages as columns, in the form of Arrow's arrays. */
#include <string.h>

#include "calls.h"
#include "cells.h"
#include "sb_api.h"
#include "surroundings.h"
#include "system.h"

#define ROWS 80u
#define UNKNOWN 12345u
#define TEXT_ROOM (ROWS * 128u)

static sb_queue *q;
static uint64_t position;
static sb_status status;
static char keys[TEXT_ROOM], properties[TEXT_ROOM], *bodies;
static int32_t key_ends[ROWS + 1], property_ends[ROWS + 1], body_ends[ROWS + 1];
static int64_t sequences[ROWS], timestamps[ROWS];
static sb_place places[ROWS];
static uint8_t redelivered[ROWS / 8], has_key[ROWS / 8];
static sb_columns columns;

static void want_all(void) {
  columns = (sb_columns){.key = {key_ends, keys, TEXT_ROOM, UNKNOWN},
                         .properties = {property_ends, properties, TEXT_ROOM, UNKNOWN},
                         .body = {body_ends, bodies, TEXT_ROOM, UNKNOWN},
                         .sequence = sequences,
                         .timestamp_us = timestamps,
                         .place = places,
                         .redelivered = redelivered,
                         .has_key = has_key};
}
static void begin(sb_settings settings, unsigned messages) {
  q = begin_queue("q", settings, messages);
  bodies = untouched(TEXT_ROOM);
  position = 0;
  want_all();
  note_rest(q);
}
static int64_t browse(uint32_t count) { return sb_queue_browse_columns(q, &position, count, &columns, &status); }
static void expect_rows(int64_t rows, int64_t should, sb_status then, uint64_t next) {
  expect_is(rows, should, "the number of rows");
  expect_is(status, then, "the status");
  expect_is(position, next, "the next position");
}
static void put_named(uint64_t id, const char *key, const char *property) {
  const sb_put_options o = {.exchange = "exchange",
                            .exchange_length = 8,
                            .key = key,
                            .key_length = (uint32_t)strlen(key),
                            .properties = property,
                            .properties_length = (uint32_t)strlen(property)};
  expect_is(put_sized(&t, q, id, 8, &o), SB_OK, "the status of a put");
}
static uint64_t body_at(uint32_t row) { return id_at(bodies + body_ends[row], 8); }

static void all_columns(void) {
  char record[BUFFER];
  begin(UNLIMITED, 0);
  put_named(1, "", "p");
  put_named(2, "kk", "");
  put_named(3, "k", "ppp");
  (void)sb_queue_get(q, record, false);
  expect_is(sb_queue_settle(q, record, SB_REQUEUE), SB_OK, "the status of a requeue");
  memset(has_key, 0xff, sizeof has_key); /* what is in it before counts for nothing */
  memset(redelivered, 0xfe, sizeof redelivered);
  key_ends[0] = 1;
  expect_rows(browse(ROWS), 3, SB_EMPTY, 3);
  for (uint32_t i = 0; i < 3; i++) {
    const sb_message_shm *m = sb_slot_at(t.b, sb_cell_slot(word_of(i)));
    expect_is(body_at(i), i + 1, "a body");
    expect_is(body_ends[i + 1], 8 * (i + 1), "the end of a body");
    expect_is(sequences[i], i, "a sequence");
    expect_is(timestamps[i], m->timestamp_ns / 1000, "a time");
    expect_is(places[i].slot, sb_cell_slot(word_of(i)), "a slot");
    expect_is(places[i].length, 8, "a length");
  }
  expect(key_ends[1] == 1 && key_ends[2] == 3 && key_ends[3] == 4, "the keys end elsewhere");
  expect(memcmp(keys + 1, "kkk", 3) == 0, "there are other keys");
  expect(property_ends[1] == 1 && property_ends[2] == 1 && property_ends[3] == 4, "the properties end elsewhere");
  expect(memcmp(properties, "pppp", 4) == 0, "there are other properties");
  expect_is(has_key[0], 0xfe, "which have a key");
  expect_is(redelivered[0], 0xf9, "which were redelivered");
  expect_rest("a look at columns");
}
/* What is not wanted is not written. */
static void no_column(void) {
  begin(UNLIMITED, 3);
  columns = (sb_columns){0};
  expect_rows(browse(2), 2, SB_OK, 2);
  expect_rows(browse(2), 1, SB_EMPTY, 3);
  expect_rows(browse(2), 0, SB_EMPTY, 3);
  expect_rows(browse(0), 0, SB_OK, 3);
  expect(memcmp(sequences, (int64_t[ROWS]){0}, sizeof sequences) == 0, "something was written");
}
static void many_rows(void) {
  begin(UNLIMITED, SB_PAGE_CELLS + 6);
  expect_rows(browse(ROWS), SB_PAGE_CELLS + 6, SB_EMPTY, SB_PAGE_CELLS + 6);
  for (uint32_t i = 0; i < SB_PAGE_CELLS + 6; i++) expect_is(body_at(i), i + 1, "a body");
  expect_is(has_key[8], 0, "which have a key");
}
/* Each column says what the next row would need. */
static void rows_that_do_not_fit(void) {
  begin(UNLIMITED, 0);
  put_named(1, "kk", "ppp");
  put_named(2, "kk", "ppp");
  sb_column *const each[] = {&columns.key, &columns.properties, &columns.body};
  const uint64_t needed[] = {4, 6, 16};
  for (unsigned i = 0; i < 3; i++) {
    want_all();
    position = 0;
    each[i]->room = needed[i] - 1;
    expect_rows(browse(ROWS), 1, SB_FULL, 1);
    expect(columns.key.needed == 4 && columns.properties.needed == 6 && columns.body.needed == 16,
           "a column says that it needs something else");
    each[i]->room = needed[i];
    position = 0;
    expect_rows(browse(ROWS), 2, SB_EMPTY, 2);
  }
  expect_rest("columns without room");
}
/* It takes no row, so its room does not matter. */
static void what_has_expired(void) {
  begin(UNLIMITED, 0);
  put_named(1, "a key that is far too long", "");
  put_named(2, "k", "");
  answer_for_the_system();
  ((sb_message_shm *)sb_slot_at(t.b, sb_cell_slot(word_of(0))))->expires_ns = says.now_ns;
  columns.key.room = 1;
  expect_rows(browse(ROWS), 1, SB_EMPTY, 2);
  expect_is(body_at(0), 2, "the body");
}
static void a_damaged_message(void) {
  begin(UNLIMITED, 3);
  message_of(1)->body_offset = UINT32_MAX - 63;
  expect_rows(browse(ROWS), 1, SB_CORRUPT, 1);
  answer_for_the_system();
  message_of(1)->expires_ns = 1;
  position = 0;
  expect_rows(browse(ROWS), 1, SB_CORRUPT, 1);
  expect_calm("a look at a damaged message");
}
static void columns_that_are_refused(void) {
  begin(UNLIMITED, 1);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_rows(browse(ROWS), 0, REFUSAL[i], 0);
    expect_untouched(t.c, "columns that are refused");
  }
  refuse(t.c, SB_OK);
  mark_closed(q);
  expect_rows(browse(ROWS), 0, SB_DELETED, 0);
}
static void take_it(void) { set_cell(0, SB_CELL_ACQUIRED, OTHER); }
static void the_cell_changes(void) {
  begin(UNLIMITED, 2);
  at_touch(bodies, take_it);
  expect_rows(browse(ROWS), 1, SB_EMPTY, 2);
  expect_is(touches, 1, "how often something happened");
  expect_is(body_at(0), 2, "the body");
  expect_is(sequences[0], 1, "the sequence");
}
static void messages_in_parts(void) {
  static char property[6000];
  const sb_put_options o = {.exchange = "exchange",
                            .exchange_length = 8,
                            .key = "key",
                            .key_length = 3,
                            .properties = property,
                            .properties_length = sizeof property};
  begin(UNLIMITED, 1);
  memset(property, 'p', sizeof property);
  leave_chunks(0);
  expect_is(put_sized(&t, q, 2, BYTES, &o), SB_OK, "the status of a put");
  expect(sb_slot_in_parts(SB_LOAD(sb_slot_header(t.b, sb_cell_slot(word_of(1))), SB_RELAXED)), "it has one piece");
  expect_rows(browse(ROWS), 2, SB_EMPTY, 2);
  expect(memcmp(keys + key_ends[1], "key", 3) == 0 && key_ends[2] == 3, "the key is another one");
  expect(memcmp(properties + property_ends[1], property, sizeof property) == 0, "the properties are others");
  expect_is(id_at(bodies + body_ends[1], BYTES), 2, "the body");
  expect_is(body_ends[2], 2 * BYTES, "the end of the body");
}

static const test_case CASES[] = {
    {"api_browse_columns: all", "each row has all of a message", all_columns},
    {"api_browse_columns: none", "a column that is not wanted is not written", no_column},
    {"api_browse_columns: many", "rows go on from one leaf to the next", many_rows},
    {"api_browse_columns: room", "rows end where a column has no room, and says how much it needs",
     rows_that_do_not_fit},
    {"api_browse_columns: expired", "what has expired takes no row", what_has_expired},
    {"api_browse_columns: damaged", "rows end at a damaged message", a_damaged_message},
    {"api_browse_columns: refused", "no row comes of what cannot be seen", columns_that_are_refused},
    {"api_browse_columns: cell", "a message that is taken meanwhile takes no row", the_cell_changes},
    {"api_browse_columns: parts", "a message in parts is copied into its row", messages_in_parts},
};
SUBJECT(CASES)
