// SPDX-License-Identifier: Apache-2.0
#include "selecting.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void append(coded *c, const void *bytes, uint32_t length) {
  expect(length <= sizeof c->bytes - c->length, "too many bytes for a program or properties");
  if (length > sizeof c->bytes - c->length) return;
  if (length > 0) memcpy(c->bytes + c->length, bytes, length);
  c->length += length;
}
static void append_byte(coded *c, unsigned byte) { append(c, &(uint8_t){(uint8_t)byte}, 1); }
static void append_little(coded *c, uint64_t number, unsigned count) {
  for (unsigned i = 0; i < count; i++) append_byte(c, (uint8_t)(number >> 8 * i));
}

coded program_of(void) { return (coded){.bytes = {SB_PROGRAM_VERSION}, .length = 1}; }
void op(coded *c, unsigned opcode) { append_byte(c, opcode); }
void op_integer(coded *c, int64_t integer) {
  op(c, SB_OP_INTEGER_I64);
  append_little(c, (uint64_t)integer, 8);
}
void op_double(coded *c, double number) {
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  op(c, SB_OP_DOUBLE_F64);
  append_little(c, bits, 8);
}
static void op_text(coded *c, unsigned opcode, unsigned width, const char *text) {
  op(c, opcode);
  append_little(c, strlen(text), width);
  append(c, text, (uint32_t)strlen(text));
}
void op_string(coded *c, const char *text) { op_text(c, SB_OP_STRING_TEXT16, 2, text); }
void op_header(coded *c, const char *name) { op_text(c, SB_OP_HEADER_TEXT8, 1, name); }
void op_like(coded *c, const char *pattern) { op_text(c, SB_OP_LIKE_TEXT16, 2, pattern); }
void op_property(coded *c, unsigned property) {
  op(c, SB_OP_PROPERTY_U8);
  append_byte(c, property);
}
void op_skip(coded *c, unsigned opcode, unsigned distance) {
  op(c, opcode);
  append_little(c, distance, 2);
}

coded properties_of(unsigned flags) { return (coded){.bytes = {(uint8_t)(flags >> 8), (uint8_t)flags}, .length = 2}; }
void text_property(coded *c, const char *text) {
  append_byte(c, (unsigned)strlen(text));
  append(c, text, (uint32_t)strlen(text));
}
uint32_t begin_headers(coded *c) {
  append_little(c, 0, 4);
  return c->length;
}
void add_header(coded *c, const char *name, const char *value, uint32_t length) {
  text_property(c, name);
  append(c, value, length);
}
void end_headers(coded *c, uint32_t begun) {
  uint32_t length = c->length - begun;
  for (unsigned i = 0; i < 4; i++) c->bytes[begun - 1 - i] = (uint8_t)(length >> 8 * i);
}

uint8_t *guarded(unsigned number, const coded *c, uint32_t length) {
  static uint8_t *memory[2];
  size_t page = (size_t)sysconf(_SC_PAGESIZE), room = sizeof c->bytes / page * page + page;
  if (memory[number] == NULL) {
    memory[number] = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(memory[number] != MAP_FAILED, "no memory for a guarded copy");
    expect(mprotect(memory[number] + room, page, PROT_NONE) == 0, "the page behind it can be read");
  }
  memcpy(memory[number] + room - length, c->bytes, length);
  return memory[number] + room - length;
}

sb_properties stored(const coded *c) {
  return (sb_properties){
      .at = guarded(0, c, c->length), .length = c->length, .priority = 3, .timestamp_ns = 5000000 * UINT64_C(1000)};
}
static sb_program opened(const coded *c) {
  sb_program program;
  bool good = sb_program_open((const char *)guarded(1, c, c->length), c->length, &program);
  expect(good, "the program is not valid");
  return program;
}
sb_selected selected(const coded *program, const coded *properties) {
  sb_program p = opened(program);
  sb_properties q = stored(properties);
  return sb_selector_run(&p, &q);
}
sb_value value_of(const coded *program, const coded *properties) {
  sb_program p = opened(program);
  sb_properties q = stored(properties);
  sb_value v = sb_value_null();
  expect(p.code != NULL && sb_selector_value(&p, &q, &v), "the properties are damaged");
  return v;
}
