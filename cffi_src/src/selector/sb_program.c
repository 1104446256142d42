// SPDX-License-Identifier: Apache-2.0
#include "sb_program.h"

/* The skips that have not arrived yet, the one that arrives first at the end. Skips of nested conditions arrive in this
 * order, and no others are compiled: if another one arrives, one that should have arrived before is found to be late. */
typedef struct {
  const uint8_t *at, *end;
  unsigned height, skips;
  struct {
    const uint8_t *target;
    unsigned height;
  } skip[SB_PROGRAM_DEPTH];
} verifier;

/* The number of values that an instruction takes. 0 also if there is no such instruction. */
static unsigned taken_by(unsigned opcode) {
  if (opcode == SB_OP_BETWEEN) return 3;
  if ((opcode >= SB_OP_ADD && opcode <= SB_OP_GREATER_OR_EQUAL) || opcode == SB_OP_AND || opcode == SB_OP_OR) return 2;
  return opcode >= SB_OP_NEGATE ? 1 : 0;
}

/* The number of bytes of the operands at `at`, of which `left` bytes exist. May be more than `left`. */
static uint64_t operands_of(unsigned opcode, const uint8_t *at, uint64_t left) {
  switch (opcode) {
    case SB_OP_INTEGER_I64:
    case SB_OP_DOUBLE_F64: return 8;
    case SB_OP_PROPERTY_U8: return 1;
    case SB_OP_HEADER_TEXT8: return left < 1 ? 1 : 1 + (uint64_t)at[0];
    case SB_OP_STRING_TEXT16:
    case SB_OP_LIKE_TEXT16:
    case SB_OP_IN_U16: return left < 2 ? 2 : 2 + (uint64_t)sb_program_u16(at);
    case SB_OP_SKIP_IF_FALSE_U16:
    case SB_OP_SKIP_IF_TRUE_U16: return 2;
    default: return 0;
  }
}

static bool are_constants(const uint8_t *at, const uint8_t *end) {
  while (at < end) {
    unsigned opcode = *at++;
    uint64_t operands = operands_of(opcode, at, (uint64_t)(end - at));
    bool constant = opcode == SB_OP_INTEGER_I64 || opcode == SB_OP_DOUBLE_F64 || opcode == SB_OP_STRING_TEXT16;
    if (!constant || operands > (uint64_t)(end - at)) return false;
    at += operands;
  }
  return true;
}

/* Verifies the operands of an instruction, which exist. `then`: the next instruction. */
static bool verify_operands(verifier *v, unsigned opcode, const uint8_t *then) {
  switch (opcode) {
    case SB_OP_PROPERTY_U8: return *v->at < SB_PROPERTIES && *v->at != SB_PROPERTY_HEADERS;
    case SB_OP_IN_U16: return are_constants(v->at + 2, then);
    case SB_OP_LIKE_TEXT16: return sb_program_u16(v->at) <= SB_PATTERN_BYTES;
    case SB_OP_SKIP_IF_FALSE_U16:
    case SB_OP_SKIP_IF_TRUE_U16: {
      unsigned distance = sb_program_u16(v->at);
      if (distance == 0 || distance > (uint64_t)(v->end - then) || v->skips == SB_PROGRAM_DEPTH) return false;
      v->skip[v->skips].target = then + distance;
      v->skip[v->skips++].height = v->height;
      return true;
    }
    default: return true;
  }
}

/* The skips that end at this instruction. False: one has jumped into an instruction, or finds another stack. */
static bool arrive(verifier *v) {
  for (; v->skips > 0 && v->skip[v->skips - 1].target <= v->at; v->skips--) {
    if (v->skip[v->skips - 1].target != v->at || v->skip[v->skips - 1].height != v->height) return false;
  }
  return true;
}

static bool verify_instruction(verifier *v) {
  unsigned opcode = *v->at++, taken = taken_by(opcode);
  uint64_t left = (uint64_t)(v->end - v->at), operands = operands_of(opcode, v->at, left);
  if (opcode < SB_OP_TRUE || opcode > SB_OP_SKIP_IF_TRUE_U16 || operands > left || v->height < taken) return false;
  v->height += 1 - taken;
  if (v->height > SB_PROGRAM_DEPTH || !verify_operands(v, opcode, v->at + operands)) return false;
  v->at += operands;
  return arrive(v);
}

bool sb_program_open(const char *code, uint32_t length, sb_program *program) {
  *program = (sb_program){NULL, 0};
  if (length == 0) return true;
  const uint8_t *bytes = (const uint8_t *)code;
  verifier v = {.at = bytes + 1, .end = bytes + length};
  bool good = length <= SB_PROGRAM_BYTES && bytes[0] == SB_PROGRAM_VERSION;
  while (good && v.at < v.end) good = verify_instruction(&v);
  good = good && v.height == 1;
  if (good) *program = (sb_program){bytes, length};
  return good;
}
