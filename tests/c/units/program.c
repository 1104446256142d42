// SPDX-License-Identifier: Apache-2.0
/* sb_program: which programs are accepted, and that each other one is refused without a read behind its end. */
#include "selecting.h"

#include <string.h>

static bool is_valid(const coded *c) {
  sb_program program = {NULL, 1};
  const char *code = (const char *)guarded(1, c, c->length);
  bool valid = sb_program_open(code, c->length, &program);
  expect((program.code == NULL) == (!valid || c->length == 0), "the program has code, or has none");
  expect_is(program.length, valid ? c->length : 0, "the length of the program");
  return valid;
}

/* An instruction of each kind, with AND and a skip over its right side. */
static coded of_each_kind(void) {
  coded c = program_of(), right = {.length = 0};
  op_header(&c, "name");
  op_integer(&c, -1);
  op(&c, SB_OP_ADD);
  op_double(&c, 0.5);
  op(&c, SB_OP_LESS);
  op_property(&right, SB_PROPERTY_TYPE);
  op_like(&right, "a\xff");
  op(&right, SB_OP_NOT);
  op_string(&right, "x");
  op(&right, SB_OP_IN_U16);
  append(&right, "\x0d\0", 2);
  op_integer(&right, 5);
  op_string(&right, "q");
  op(&right, SB_OP_OR);
  op_skip(&c, SB_OP_SKIP_IF_FALSE_U16, right.length + 1);
  append(&c, right.bytes, right.length);
  op(&c, SB_OP_AND);
  return c;
}

static void whole_programs(void) {
  coded c = {.length = 0};
  expect(is_valid(&c), "no program at all is refused");
  c = of_each_kind();
  expect(is_valid(&c), "a program of all kinds is refused");
  c = program_of();
  for (unsigned i = 0; i < 3; i++) op(&c, SB_OP_TRUE);
  op(&c, SB_OP_BETWEEN);
  expect(is_valid(&c), "BETWEEN of three values is refused");
}
/* Every beginning of a program but the whole lacks an operand or an instruction, or leaves another number of values. */
static void beginnings_of_a_program(void) {
  const coded whole = of_each_kind();
  unsigned valid = 0;
  for (uint32_t length = 1; length <= whole.length; length++) {
    coded c = whole;
    c.length = length;
    if (is_valid(&c)) valid++;
  }
  expect_is(valid, 4, "how many beginnings are programs"); /* name; the sum; the comparison; all of it */
}
static void refused_headers(void) {
  coded c = program_of();
  expect(!is_valid(&c), "a program without a value is accepted");
  op(&c, SB_OP_TRUE);
  expect(is_valid(&c), "TRUE is refused");
  c.bytes[0] = SB_PROGRAM_VERSION + 1;
  expect(!is_valid(&c), "another version is accepted");
  c = program_of();
  op(&c, SB_OP_TRUE);
  op(&c, SB_OP_TRUE);
  expect(!is_valid(&c), "two values are accepted");
  for (unsigned opcode = 0; opcode < 256; opcode++) {
    c = program_of();
    op(&c, opcode);
    bool leaves_a_value = opcode == SB_OP_TRUE || opcode == SB_OP_FALSE;
    expect(is_valid(&c) == leaves_a_value, "instruction %u alone", opcode);
  }
}
/* How many values an instruction takes is tried with as many, and with one fewer. */
static void values_that_are_missing(void) {
  static const struct {
    unsigned opcode, taken;
  } takes[] = {{SB_OP_NEGATE, 1}, {SB_OP_ADD, 2},  {SB_OP_SUBTRACT, 2}, {SB_OP_MULTIPLY, 2},         {SB_OP_DIVIDE, 2},
               {SB_OP_EQUAL, 2},  {SB_OP_LESS, 2}, {SB_OP_GREATER, 2},  {SB_OP_GREATER_OR_EQUAL, 2}, {SB_OP_BETWEEN, 3},
               {SB_OP_NOT, 1},    {SB_OP_AND, 2},  {SB_OP_OR, 2},       {SB_OP_IS_NULL, 1}};
  for (unsigned i = 0; i < sizeof takes / sizeof takes[0]; i++) {
    for (unsigned values = 0; values <= 4; values++) {
      coded c = program_of();
      for (unsigned n = 0; n < values; n++) op(&c, SB_OP_TRUE);
      op(&c, takes[i].opcode);
      expect(is_valid(&c) == (values == takes[i].taken), "instruction %u with %u values", takes[i].opcode, values);
      if (values + 1 != takes[i].taken) continue;
      op(&c, SB_OP_TRUE); /* now one value would be left */
      expect(!is_valid(&c), "instruction %u with %u values, then a value", takes[i].opcode, values);
    }
  }
}
static void the_height_of_the_stack(void) {
  for (unsigned values = SB_PROGRAM_DEPTH - 1; values <= SB_PROGRAM_DEPTH + 1; values++) {
    coded c = program_of();
    for (unsigned n = 0; n < values; n++) op(&c, SB_OP_TRUE);
    for (unsigned n = 1; n < values; n++) op(&c, SB_OP_AND);
    expect(is_valid(&c) == (values <= SB_PROGRAM_DEPTH), "%u values at a time", values);
  }
}
static void the_longest_program(void) {
  static char code[SB_PROGRAM_BYTES + 2];
  sb_program program;
  code[0] = SB_PROGRAM_VERSION;
  code[1] = SB_OP_TRUE;
  for (unsigned i = 2; i < sizeof code; i++) code[i] = SB_OP_NOT;
  expect(sb_program_open(code, SB_PROGRAM_BYTES, &program), "the longest program is refused");
  expect(!sb_program_open(code, SB_PROGRAM_BYTES + 1, &program), "a longer program is accepted");
}
static void operands_that_are_wrong(void) {
  for (unsigned property = 0; property < 256; property++) {
    coded c = program_of();
    op_property(&c, property);
    bool known = property < SB_PROPERTIES && property != SB_PROPERTY_HEADERS;
    expect(is_valid(&c) == known, "property %u", property);
  }
  static char pattern[SB_PATTERN_BYTES + 2];
  memset(pattern, 'p', sizeof pattern - 1);
  for (unsigned length = SB_PATTERN_BYTES; length <= SB_PATTERN_BYTES + 1; length++) {
    coded c = program_of();
    op_string(&c, "");
    op_like(&c, pattern + (SB_PATTERN_BYTES + 1 - length));
    expect(is_valid(&c) == (length <= SB_PATTERN_BYTES), "a pattern of %u bytes", length);
  }
}
/* In a list of IN: constants only, each of them whole. */
static void lists_that_are_wrong(void) {
  for (unsigned opcode = 0; opcode < 256; opcode++) {
    coded c = program_of();
    op(&c, SB_OP_TRUE);
    op(&c, SB_OP_IN_U16);
    append(&c, "\x09\0", 2);
    op(&c, opcode);
    append(&c, "\x06\0......", 8); /* eight bytes of a number, or a string of six */
    bool constant = opcode == SB_OP_INTEGER_I64 || opcode == SB_OP_DOUBLE_F64 || opcode == SB_OP_STRING_TEXT16;
    expect(is_valid(&c) == constant, "instruction %u in a list", opcode);
  }
  for (unsigned length = 0; length <= 12; length++) {
    coded c = program_of(), list = {.length = 0};
    op(&c, SB_OP_TRUE);
    op_string(&list, "ab");
    op_string(&list, "ab");
    op(&c, SB_OP_IN_U16);
    append(&c, (const char[]){(char)length, 0}, 2);
    append(&c, list.bytes, length < list.length ? length : list.length);
    bool whole = length == 0 || length == 5 || length == 10;
    expect(is_valid(&c) == whole, "%u bytes of a list", length);
  }
}
static coded skipping(unsigned distance) {
  coded c = program_of();
  op(&c, SB_OP_TRUE);
  op_skip(&c, SB_OP_SKIP_IF_TRUE_U16, distance);
  op_integer(&c, 1); /* 9 bytes */
  op(&c, SB_OP_OR);  /* at distance 9; the end: 10 */
  return c;
}
/* To the end, or to an instruction that finds the stack as it was left; not backwards, nor to itself. */
static void where_skips_may_go(void) {
  for (unsigned distance = 0; distance <= 12; distance++) {
    coded c = skipping(distance);
    expect(is_valid(&c) == (distance == 10), "a skip of %u bytes", distance);
  }
  for (unsigned distance = 1; distance <= 8; distance++) {
    coded c = program_of();
    op(&c, SB_OP_TRUE);
    op_skip(&c, SB_OP_SKIP_IF_TRUE_U16, distance);
    op_like(&c, "12345");
    expect(is_valid(&c) == (distance == 8), "a skip of %u bytes over a pattern", distance);
  }
  coded c = skipping(UINT16_MAX);
  expect(!is_valid(&c), "a skip out of the program is accepted");
  c = program_of();
  op_skip(&c, SB_OP_SKIP_IF_TRUE_U16, 1);
  op(&c, SB_OP_TRUE);
  expect(!is_valid(&c), "a skip without a value is accepted");
}
/* A skip within another one does not go further than that one; and only so many are open at a time. */
static void skips_within_skips(void) {
  for (unsigned inner = 0; inner <= 3; inner++) {
    coded c = program_of();
    op(&c, SB_OP_TRUE);
    op_skip(&c, SB_OP_SKIP_IF_TRUE_U16, 6); /* over: NOT, the skip, NOT, NOT */
    op(&c, SB_OP_NOT);
    op_skip(&c, SB_OP_SKIP_IF_TRUE_U16, inner);
    for (unsigned n = 0; n < 3; n++) op(&c, SB_OP_NOT);
    expect(is_valid(&c) == (inner == 1 || inner == 2), "a skip of %u bytes within another one", inner);
  }
  for (unsigned open = SB_PROGRAM_DEPTH; open <= SB_PROGRAM_DEPTH + 1; open++) {
    coded c = program_of();
    op(&c, SB_OP_TRUE);
    for (unsigned n = 0; n < open; n++) op_skip(&c, SB_OP_SKIP_IF_TRUE_U16, 3 * (open - 1 - n) + 1);
    op(&c, SB_OP_NOT);
    expect(is_valid(&c) == (open == SB_PROGRAM_DEPTH), "%u skips that are open", open);
  }
}

static const test_case CASES[] = {
    {"program: whole", "a program of every instruction is accepted", whole_programs},
    {"program: beginnings", "a program that ends too early is refused", beginnings_of_a_program},
    {"program: headers", "version, instructions and the last value are looked at", refused_headers},
    {"program: values", "an instruction has the values that it takes", values_that_are_missing},
    {"program: height", "the stack has a bound", the_height_of_the_stack},
    {"program: length", "a program has a bound", the_longest_program},
    {"program: operands", "properties and patterns are looked at", operands_that_are_wrong},
    {"program: lists", "a list has whole constants, and nothing else", lists_that_are_wrong},
    {"program: skips", "a skip goes forward to where the stack is the same", where_skips_may_go},
    {"program: nested", "skips end in the reverse order of their beginning", skips_within_skips},
};
SUBJECT(CASES)
