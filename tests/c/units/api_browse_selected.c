// SPDX-License-Identifier: Apache-2.0
/* sb_api_browse: messages that a program selects, one after the other or counted, with the values of another program. */
#include <string.h>

#include "calls.h"
#include "cells.h"
#include "sb_api.h"
#include "selecting.h"
#include "surroundings.h"
#include "system.h"

#define MANY 1000u

static char *buffer, *values, memory[SB_MAX_PREFIX];
static sb_queue *q;
static uint64_t position;
static coded wanted, group;
static sb_status status;
static sb_selection selection;

static coded n_is(int64_t n) {
  coded c = program_of();
  op_header(&c, "n");
  op_integer(&c, n);
  op(&c, SB_OP_EQUAL);
  return c;
}
static coded value_of_n(void) {
  coded c = program_of();
  op_header(&c, "n");
  return c;
}
/* A message whose header `n` is that number; a body of so many bytes. */
static void put_numbered(char n, uint64_t id, uint64_t bytes) {
  coded c = properties_of(FLAG(SB_PROPERTY_HEADERS));
  uint32_t begun = begin_headers(&c);
  add_header(&c, "n", (const char[]){'b', n}, 2);
  end_headers(&c, begun);
  const sb_put_options o = {.properties = (const char *)c.bytes, .properties_length = c.length};
  expect_is(put_sized(&t, q, id, bytes, &o), SB_OK, "the status of a put");
}
static sb_message_shm *stored_message(uint64_t number) { return sb_slot_at(t.b, sb_cell_slot(word_of(number))); }
/* Where the value of the header is stored. */
static uint8_t *stored_value(uint64_t number) {
  sb_message_shm *m = stored_message(number);
  return (uint8_t *)(m + 1) + m->properties_length - 1;
}
/* A new queue, in each case as often as it likes. */
static void begin(const char *numbers) {
  static char name[] = "q0";
  name[1]++;
  q = begin_queue(name, UNLIMITED, 0);
  for (uint64_t i = 0; numbers[i] != 0; i++) put_numbered((char)(numbers[i] - '0'), i + 1, BYTES);
  buffer = untouched(BUFFER);
  values = untouched(BUFFER);
  wanted = n_is(5);
  group = (coded){.length = 0};
  note_rest(q);
  position = 0;
}
static int64_t browse(void) {
  return sb_queue_browse_selected(q, &position, (const char *)wanted.bytes, wanted.length, buffer, BUFFER);
}
static int64_t select_some(uint64_t count, uint64_t room) {
  selection = (sb_selection){.selector = (const char *)wanted.bytes,
                             .selector_length = wanted.length,
                             .group = (const char *)group.bytes,
                             .group_length = group.length,
                             .values = values,
                             .room = room,
                             .used = 77,
                             .memory = memory};
  return sb_queue_select(q, &position, count, &selection, &status);
}
static void expect_seen(uint64_t id, uint64_t then) {
  int64_t length = browse();
  expect(length > 0, "there is no message %llu, but status %d", (unsigned long long)id, (int)-length);
  if (length > 0) expect_is(id_at(body_of(buffer, length), BYTES), id, "the message");
  expect_is(position, then, "the next position");
}
static void expect_nothing(sb_status should, uint64_t then) {
  expect_is(browse(), -(int64_t)should, "the status");
  expect_is(position, then, "the next position");
}
static void expect_selected(int64_t found, int64_t should, sb_status then, uint64_t next) {
  expect_is(found, should, "how many are selected");
  expect_is(status, then, "the status");
  expect_is(position, next, "the next position");
}

/* ---- one after the other, and counted ---- */

static void selected_messages_in_turn(void) {
  begin("45355");
  expect_seen(2, 2);
  expect_seen(4, 4);
  expect_seen(5, 5);
  expect_nothing(SB_EMPTY, 5);
  wanted = (coded){.length = 0};
  position = 0;
  expect_seen(1, 1);
  expect_rest("looks at selected messages");
}
static void messages_are_counted(void) {
  begin("45355");
  expect_selected(select_some(MANY, 0), 3, SB_EMPTY, 5);
  position = 2;
  expect_selected(select_some(MANY, 0), 2, SB_EMPTY, 5);
  wanted.length = 0;
  position = 0;
  expect_selected(select_some(MANY, 0), 5, SB_EMPTY, 5);
  expect_is(selection.used, 0, "bytes of values");
  expect_rest("a count");
}
/* A call looks at so many messages, whether they are selected or not. */
static void a_part_is_counted(void) {
  begin("45355");
  expect_selected(select_some(0, 0), 0, SB_OK, 0);
  expect_selected(select_some(3, 0), 1, SB_OK, 3);
  expect_selected(select_some(2, 0), 2, SB_OK, 5);
  expect_selected(select_some(2, 0), 0, SB_EMPTY, 5);
}
static void values_are_written(void) {
  begin("45355");
  wanted.length = 0;
  group = value_of_n();
  expect_selected(select_some(MANY, 45), 5, SB_EMPTY, 5);
  expect_is(selection.used, 45, "bytes of values");
  for (unsigned i = 0; i < 5; i++) {
    expect(values[9 * i] == 'l' && values[9 * i + 8] == "45355"[i] - '0', "value %u is another one", i);
  }
}
/* The value of a message that is not selected is not written; one for which there is no room is left to the next call. */
static void no_room_for_a_value(void) {
  begin("45355");
  group = value_of_n();
  expect_selected(select_some(MANY, 26), 2, SB_FULL, 4);
  expect_is(selection.used, 18, "bytes of values");
  expect_selected(select_some(MANY, 9), 1, SB_EMPTY, 5);
  expect_is(selection.used, 9, "bytes of values");
  position = 0;
  expect_selected(select_some(MANY, 8), 0, SB_FULL, 1);
}
static void what_has_expired(void) {
  begin("4555");
  group = value_of_n();
  answer_for_the_system();
  stored_message(1)->expires_ns = says.now_ns;
  stored_message(2)->expires_ns = says.now_ns + 1;
  expect_seen(3, 3);
  position = 0;
  expect_selected(select_some(MANY, 45), 2, SB_EMPTY, 4);
  expect_is(selection.used, 18, "bytes of values");
  *(stored_value(1) - 1) = '?'; /* what has expired may be damaged */
  position = 0;
  expect_seen(3, 3);
  position = 0;
  expect_selected(select_some(MANY, 45), 2, SB_EMPTY, 4);
}

/* ---- damage, and refusals ---- */

static void damaged_headers(void) {
  begin("455");
  *(stored_value(1) - 1) = '?';
  expect_nothing(SB_CORRUPT, 1);
  position = 0;
  expect_selected(select_some(MANY, 0), 0, SB_CORRUPT, 1);
  wanted.length = 0;
  position = 0;
  expect_selected(select_some(MANY, 0), 3, SB_EMPTY, 3); /* nothing reads them */
  group = value_of_n();
  position = 0;
  expect_selected(select_some(MANY, 45), 1, SB_CORRUPT, 1);
  expect_is(selection.used, 9, "bytes of values");
  position = 2;
  expect_seen(3, 3);
}
static void damaged_lengths(void) {
  begin("455");
  stored_message(1)->body_offset = UINT32_MAX - 63;
  expect_nothing(SB_CORRUPT, 0);
  position = 0;
  expect_selected(select_some(MANY, 0), 0, SB_CORRUPT, 1);
  wanted.length = 0;
  position = 0;
  expect_selected(select_some(MANY, 0), 1, SB_CORRUPT, 1);
  expect_calm("looks at a damaged message");
}
static void programs_that_are_not_valid(void) {
  begin("5");
  wanted.length--;
  expect_nothing(SB_INVALID, 0);
  expect_selected(select_some(MANY, 0), 0, SB_INVALID, 0);
  wanted.length++;
  group = program_of();
  expect_selected(select_some(MANY, 45), 0, SB_INVALID, 0);
  expect_is(
      sb_queue_browse_selected(q, &position, (const char *)wanted.bytes, wanted.length, buffer, SB_MAX_PREFIX - 1),
      -(int64_t)SB_INVALID, "the status of too short a buffer");
  expect_rest("refused programs");
}
static void calls_that_are_refused(void) {
  begin("5");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_nothing(REFUSAL[i], 0);
    expect_selected(select_some(MANY, 0), 0, REFUSAL[i], 0);
    expect_untouched(t.c, "a look that is refused");
  }
  refuse(t.c, SB_OK);
  mark_closed(q);
  expect_nothing(SB_DELETED, 0);
  expect_selected(select_some(MANY, 0), 0, SB_DELETED, 0);
}

/* ---- what happens meanwhile ---- */

/* When the program has read the header, but before the second look, the message is taken, or another one has its slot.
 * The size of the slot is read twice in a row before that: by the first look, and for the program. */
static unsigned in_a_row, changes;
static void (*meanwhile)(void);
static void before_the_second_look(const char *site) {
  unsigned sizes = in_a_row;
  in_a_row = strstr(site, "sb_slab.c") != NULL ? sizes + 1 : 0;
  if (sizes < 2 || changes > 0 || strstr(site, "sb_api_browse.c") == NULL) return;
  changes++;
  meanwhile();
}
static void take_it(void) { set_cell(1, SB_CELL_ACQUIRED, OTHER); }
static void replace_it(void) {
  sb_word *header = sb_slot_header(t.b, sb_cell_slot(word_of(1)));
  SB_STORE(header, SB_LOAD(header, SB_RELAXED) + SB_FIELD(1, 26), SB_RELAXED);
  *stored_value(1) = 5;
}
static void mend_it(void) {
  replace_it();
  *(stored_value(1) - 1) = 'b';
}
static void watch(const char *numbers, void (*what)(void)) {
  begin(numbers);
  position = 1;
  in_a_row = changes = 0;
  meanwhile = what;
  at_step = before_the_second_look;
}
static void a_message_that_is_taken(void) {
  if (!has_steps()) return;
  watch("455", take_it);
  expect_seen(3, 3);
  watch("455", take_it);
  expect_selected(select_some(MANY, 0), 1, SB_EMPTY, 3);
  watch("445", take_it);
  expect_seen(3, 3);
  expect_is(changes, 1, "what happened meanwhile");
}
/* It was not selected, or was damaged, when it was another one. */
static void a_slot_that_is_filled_anew(void) {
  if (!has_steps()) return;
  watch("445", replace_it);
  expect_seen(2, 2);
  watch("445", replace_it);
  expect_selected(select_some(MANY, 0), 2, SB_EMPTY, 3);
  for (unsigned counts = 0; counts < 2; counts++) {
    watch("445", mend_it);
    *(stored_value(1) - 1) = '?';
    if (counts != 0) {
      expect_selected(select_some(MANY, 0), 2, SB_EMPTY, 3);
    } else {
      expect_seen(2, 2);
    }
    expect_is(changes, 1, "what happened meanwhile");
  }
}
static unsigned busy;
static void look(void) { busy = q->busy + 10 * (SB_LOAD(&t.c->lock, SB_RELAXED) != 0); }
static void the_lock_of_a_count(void) {
  begin("555");
  group = value_of_n();
  at_touch(values, look);
  expect_selected(select_some(MANY, 45), 3, SB_EMPTY, 3);
  expect_is(busy, 1, "how busy the queue is, and whether the lock is held");
  expect_rest("a count");
}

static const test_case CASES[] = {
    {"api_browse_selected: turn", "selected messages are seen one after the other", selected_messages_in_turn},
    {"api_browse_selected: count", "selected messages are counted", messages_are_counted},
    {"api_browse_selected: part", "a call looks at as many messages as it was told", a_part_is_counted},
    {"api_browse_selected: values", "the value of a program is written for each message", values_are_written},
    {"api_browse_selected: room", "a value without room is left to the next call", no_room_for_a_value},
    {"api_browse_selected: expired", "what has expired is passed over", what_has_expired},
    {"api_browse_selected: damaged", "damaged headers are reported if they are read", damaged_headers},
    {"api_browse_selected: lengths", "damaged lengths are reported", damaged_lengths},
    {"api_browse_selected: invalid", "a program that is not valid is refused", programs_that_are_not_valid},
    {"api_browse_selected: refused", "nothing is selected where nothing can be seen", calls_that_are_refused},
    {"api_browse_selected: taken", "a message that is taken meanwhile is not selected", a_message_that_is_taken},
    {"api_browse_selected: slot", "a slot that is filled anew meanwhile is looked at again",
     a_slot_that_is_filled_anew},
    {"api_browse_selected: lock", "the queue is busy, and not locked, meanwhile", the_lock_of_a_count},
};
SUBJECT(CASES)
