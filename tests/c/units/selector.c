// SPDX-License-Identifier: Apache-2.0
/* sb_selector: programs over properties, and over messages where they are stored. */
#include "selecting.h"

#include <string.h>

#include "calls.h"
#include "cells.h"
#include "surroundings.h"

/* The header `n` is an integer, `s` a string; `t` is true. */
static coded some_headers(void) {
  coded c = properties_of(FLAG(SB_PROPERTY_HEADERS));
  uint32_t begun = begin_headers(&c);
  add_header(&c, "n", "b\5", 2);
  add_header(&c, "s", "S\0\0\0\3abc", 8);
  add_header(&c, "t", "t\1", 2);
  end_headers(&c, begun);
  return c;
}

static void the_value_of_each_instruction(void) {
  coded headers = some_headers(), c = program_of();
  op_header(&c, "n");
  op_integer(&c, 2);
  op(&c, SB_OP_SUBTRACT);
  op(&c, SB_OP_NEGATE);
  op_double(&c, 0.5);
  op(&c, SB_OP_MULTIPLY);
  sb_value v = value_of(&c, &headers);
  expect(v.kind == SB_VALUE_DOUBLE && v.is.number == -1.5, "-(n - 2) * 0.5");
  c = program_of();
  op_header(&c, "none");
  op(&c, SB_OP_IS_NULL);
  expect_is(selected(&c, &headers), SB_SELECTED_YES, "none IS NULL");
  c = program_of();
  op_header(&c, "n");
  op(&c, SB_OP_IS_NULL);
  op(&c, SB_OP_NOT);
  expect_is(selected(&c, &headers), SB_SELECTED_YES, "n IS NOT NULL");
  for (int64_t low = 4; low <= 6; low++) {
    for (int64_t high = 4; high <= 6; high++) {
      c = program_of();
      op_header(&c, "n");
      op_integer(&c, low);
      op_integer(&c, high);
      op(&c, SB_OP_BETWEEN);
      expect_is(selected(&c, &headers), low <= 5 && high >= 5 ? SB_SELECTED_YES : SB_SELECTED_NO, "BETWEEN");
    }
  }
  c = program_of();
  op_header(&c, "s");
  op_like(&c, "a\xff");
  expect_is(selected(&c, &headers), SB_SELECTED_YES, "LIKE");
  c = program_of();
  op_property(&c, SB_PROPERTY_PRIORITY);
  v = value_of(&c, &headers);
  expect(v.kind == SB_VALUE_INTEGER && v.is.integer == 3, "the priority");
}
/* In a list, the first, the last and none; NULL is in no list, and not outside of any. */
static void lists(void) {
  static const char *const listed[] = {"xyz", "abc", "q"};
  for (unsigned wanted = 0; wanted < 4; wanted++) {
    coded headers = some_headers(), c = program_of(), list = {.length = 0};
    op_integer(&list, 7);
    for (unsigned i = 0; i < wanted; i++) op_string(&list, listed[i]);
    op_double(&list, 4.0);
    op_header(&c, "s");
    op(&c, SB_OP_IN_U16);
    append(&c, (const char[]){(char)list.length, 0}, 2);
    append(&c, list.bytes, list.length);
    expect_is(selected(&c, &headers), wanted >= 2 ? SB_SELECTED_YES : SB_SELECTED_NO, "IN");
    c.bytes[3] = 'x'; /* another name: NULL */
    op(&c, SB_OP_NOT);
    expect_is(selected(&c, &headers), SB_SELECTED_NO, "NULL is not outside of a list");
    c = program_of();
    op_integer(&c, 4);
    op(&c, SB_OP_IN_U16);
    append(&c, (const char[]){(char)list.length, 0}, 2);
    append(&c, list.bytes, list.length);
    expect_is(selected(&c, &headers), SB_SELECTED_YES, "an integer is in a list with the same double");
  }
}
/* What decides on the left leaves the right aside: a damaged header there is not noticed. */
static void the_right_side_is_left_aside(void) {
  coded damaged = properties_of(FLAG(SB_PROPERTY_HEADERS));
  uint32_t begun = begin_headers(&damaged);
  add_header(&damaged, "bad", "?", 1);
  end_headers(&damaged, begun);
  for (unsigned left = SB_OP_TRUE; left <= SB_OP_FALSE; left++) {
    for (unsigned skip = SB_OP_SKIP_IF_FALSE_U16; skip <= SB_OP_SKIP_IF_TRUE_U16; skip++) {
      coded c = program_of();
      bool decides = (left == SB_OP_TRUE) == (skip == SB_OP_SKIP_IF_TRUE_U16);
      op(&c, left);
      op_skip(&c, skip, 6);
      op_header(&c, "bad");
      op(&c, skip == SB_OP_SKIP_IF_TRUE_U16 ? SB_OP_OR : SB_OP_AND);
      sb_selected should = !decides ? SB_SELECTED_DAMAGED : left == SB_OP_TRUE ? SB_SELECTED_YES : SB_SELECTED_NO;
      expect_is(selected(&c, &damaged), should, "what is selected");
    }
  }
}
/* Unknown, and what is no boolean, select nothing; NOT makes false of unknown nothing, and true of what is no boolean. */
static void what_is_not_true(void) {
  coded headers = some_headers();
  static const struct {
    const char *name;
    sb_selected plain, negated;
  } tried[] = {{"t", SB_SELECTED_YES, SB_SELECTED_NO},
               {"none", SB_SELECTED_NO, SB_SELECTED_NO},
               {"n", SB_SELECTED_NO, SB_SELECTED_YES},
               {"s", SB_SELECTED_NO, SB_SELECTED_YES}};
  for (unsigned i = 0; i < 4; i++) {
    coded c = program_of();
    op_header(&c, tried[i].name);
    expect_is(selected(&c, &headers), tried[i].plain, tried[i].name);
    op_skip(&c, SB_OP_SKIP_IF_FALSE_U16, 2);
    op(&c, SB_OP_TRUE);
    op(&c, SB_OP_AND);
    expect_is(selected(&c, &headers), tried[i].plain, tried[i].name);
    coded negated = c;
    op(&negated, SB_OP_NOT);
    expect_is(selected(&negated, &headers), tried[i].negated, tried[i].name);
    op(&c, SB_OP_FALSE); /* the value that a skip leaves is a truth */
    op(&c, SB_OP_EQUAL);
    expect_is(selected(&c, &headers), tried[i].negated, tried[i].name);
  }
}

/* Whatever bytes a program has: it is refused, or a run of it ends, within its stack and its bytes. */
static void any_bytes(void) {
  uint64_t state = 11;
  unsigned accepted = 0;
  coded headers = some_headers();
  for (unsigned n = 0; n < 200000; n++) {
    coded c = program_of();
    unsigned length = 2 + n % 14;
    while (c.length < length) {
      state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      unsigned byte = (unsigned)(state >> 56);
      if ((state >> 33) % 4 != 0) byte %= SB_OP_SKIP_IF_TRUE_U16 + 1; /* mostly an instruction */
      append(&c, (const char[]){(char)byte}, 1);
    }
    sb_program program;
    if (!sb_program_open((const char *)guarded(1, &c, c.length), c.length, &program)) continue;
    sb_properties p = stored(&headers);
    (void)sb_selector_run(&program, &p);
    accepted++;
  }
  expect(accepted > 1000, "only %u programs were accepted", accepted);
}

/* ---- messages ---- */

static char memory[SB_MAX_PREFIX];
static sb_queue *q;

static uint32_t slot_at(uint64_t number) { return sb_cell_slot(word_of(number)); }
static sb_message_shm *message_at(uint64_t number) { return sb_slot_at(t.b, slot_at(number)); }
static coded wants_five(void) {
  coded c = program_of();
  op_header(&c, "n");
  op_integer(&c, 5);
  op(&c, SB_OP_EQUAL);
  return c;
}
static sb_selected selected_at(uint64_t number) {
  coded c = wants_five();
  sb_program program;
  uint32_t slot = slot_at(number);
  sb_message_shm m = sb_peek_message(t.b, slot);
  expect(sb_program_open((const char *)c.bytes, c.length, &program), "the program is refused");
  return sb_selector_message(t.b, &program, slot, &m, memory);
}
static void put_with_headers(const char *body, uint64_t length) {
  coded headers = some_headers();
  const sb_put_options o = {.exchange = "ex",
                            .exchange_length = 2,
                            .key = "key",
                            .key_length = 3,
                            .properties = (const char *)headers.bytes,
                            .properties_length = headers.length};
  expect_is(sb_queue_put_with(q, body, length, &o), SB_OK, "the status of a put");
}
static void a_message_where_it_is_stored(void) {
  sb_program none = {NULL, 0};
  q = begin_queue("q", UNLIMITED, 1);
  put_with_headers("body", 4);
  expect_is(selected_at(0), SB_SELECTED_NO, "a message without properties");
  expect_is(selected_at(1), SB_SELECTED_YES, "a message with the header");
  sb_message_shm m = sb_peek_message(t.b, slot_at(0));
  expect_is(sb_selector_message(t.b, &none, slot_at(0), &m, NULL), SB_SELECTED_YES, "without a program");
}
static void a_message_in_parts(void) {
  static char body[200000];
  q = begin_queue("q", UNLIMITED, 1);
  leave_chunks(0);
  put_with_headers(body, sizeof body);
  expect(sb_slot_in_parts(SB_LOAD(sb_slot_header(t.b, slot_at(1)), SB_RELAXED)), "it has one piece");
  expect_is(selected_at(1), SB_SELECTED_YES, "a message whose properties are in parts");
  message_at(1)->properties_length = SB_MAX_PREFIX - sizeof(sb_message_shm) - 5; /* behind exchange and key */
  expect_is(selected_at(1), SB_SELECTED_YES, "a message with the longest properties");
  message_at(1)->properties_length++;
  expect_is(selected_at(1), SB_SELECTED_DAMAGED, "a message with longer properties");
  break_parts(slot_at(1));
  message_at(1)->properties_length = 60000; /* reaches into the second part */
  expect_is(selected_at(1), SB_SELECTED_DAMAGED, "a message whose parts are damaged");
}
static void lengths_that_are_impossible(void) {
  q = begin_queue("q", UNLIMITED, 0);
  put_with_headers("body", 4);
  sb_message_shm *m = message_at(0), was = *m;
  uint64_t room = sb_slab_slot_bytes(t.b, slot_at(0)) - sizeof *m;
  m->key_length = 0;
  m->exchange_length = 0;
  for (uint64_t length = room - 1; length <= room + 1; length++) {
    sb_properties p;
    m->properties_length = (uint32_t)length;
    sb_message_shm copy = *m;
    expect(sb_selector_properties(t.b, slot_at(0), &copy, memory, &p) == (length <= room), "properties of %u bytes",
           (unsigned)length);
  }
  *m = was;
  m->key_length = UINT32_MAX;
  expect_is(selected_at(0), SB_SELECTED_DAMAGED, "a key of 4 GiB");
  *m = was;
  m->properties_length = UINT32_MAX - 4;
  expect_is(selected_at(0), SB_SELECTED_DAMAGED, "properties of 4 GiB");
  *m = was;
  expect_is(selected_at(0), SB_SELECTED_YES, "the message as it was");
}

/* ---- values that are written ---- */

static void expect_encoded(const sb_value *v, const char *should, uint32_t length, const char *what) {
  for (uint64_t room = 0; room <= length + 3; room++) {
    char to[40] = "==";
    uint64_t used = 2;
    bool fits = sb_selector_encode(v, to, room + 2, &used);
    expect(fits == (room >= length), "%s in %u bytes", what, (unsigned)room);
    if (fits) expect_is(used, 2 + length, what);
    expect(!fits || memcmp(to + 2, should, length) == 0, "%s is written otherwise", what);
    expect(to[2 + room] == 0, "%s is written behind %u bytes", what, (unsigned)room);
  }
}
static void encoded_values(void) {
  sb_value v = sb_value_boolean(true);
  expect_encoded(&v, "t\1", 2, "a boolean");
  v = sb_value_integer(-2);
  expect_encoded(&v, "l\xff\xff\xff\xff\xff\xff\xff\xfe", 9, "an integer");
  v = sb_value_double(-1.5);
  expect_encoded(&v, "d\xbf\xf8\0\0\0\0\0\0", 9, "a double");
  v = sb_value_string((const uint8_t *)"abc", 3);
  expect_encoded(&v, "S\0\0\0\3abc", 8, "a string");
  v = sb_value_null();
  expect_encoded(&v, "V", 1, "NULL");
  v = (sb_value){.kind = SB_VALUE_OTHER, .at = (const uint8_t *)"x\0\0\0\1z", .length = 6};
  expect_encoded(&v, "x\0\0\0\1z", 6, "bytes");
  v.at = (const uint8_t *)"A\0\0\0\1V";
  expect_encoded(&v, "V", 1, "an array");
  v.at = (const uint8_t *)"F\0\0\0\0";
  expect_encoded(&v, "V", 1, "a table");
}

static const test_case CASES[] = {
    {"selector: instructions", "each instruction has its value", the_value_of_each_instruction},
    {"selector: lists", "a value is in a list or not, NULL neither", lists},
    {"selector: decided", "what the left side decides spares the right side", the_right_side_is_left_aside},
    {"selector: truth", "only what is true is selected", what_is_not_true},
    {"selector: any bytes", "any bytes are refused, or run to their end", any_bytes},
    {"selector: stored", "a message is read where it is stored", a_message_where_it_is_stored},
    {"selector: parts", "properties in parts are copied first", a_message_in_parts},
    {"selector: lengths", "a message whose lengths are impossible is damaged", lengths_that_are_impossible},
    {"selector: encoded", "a value is written whole or not at all", encoded_values},
};
SUBJECT(CASES)
