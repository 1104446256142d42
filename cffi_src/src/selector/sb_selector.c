// SPDX-License-Identifier: Apache-2.0
#include "sb_selector.h"

#include "sb_operators.h"
#include "sb_parts.h"
#include "sb_slab.h"

bool sb_selector_properties(sb_broker *b, uint32_t slot, const sb_message_shm *m, char *memory, sb_properties *p) {
  uint64_t names = (uint64_t)m->exchange_length + m->key_length, end = names + m->properties_length;
  *p = (sb_properties){
      .length = m->properties_length, .priority = m->priority, .timestamp_ns = m->timestamp_ns, .at = NULL};
  if (end > SB_MAX_PREFIX - sizeof *m) return false;
  if ((m->flags & SB_MESSAGE_IN_PARTS) != 0) {
    p->at = (const uint8_t *)memory;
    return sb_parts_copy(b, slot, names, memory, m->properties_length);
  }
  p->at = (const uint8_t *)sb_slot_at(b, slot) + sizeof *m + names;
  return sizeof *m + end <= sb_slab_slot_bytes(b, slot);
}

static sb_value constant_at(const uint8_t *at, unsigned opcode) {
  switch (opcode) {
    case SB_OP_INTEGER_I64: return sb_value_integer((int64_t)sb_program_u64(at));
    case SB_OP_DOUBLE_F64: return sb_value_double(sb_program_f64(at));
    default: return sb_value_string(at + 2, sb_program_u16(at));
  }
}

static uint32_t operands_of_constant(const uint8_t *at, unsigned opcode) {
  return opcode == SB_OP_STRING_TEXT16 ? 2u + sb_program_u16(at) : 8u;
}

static sb_truth is_in(const sb_value *v, const uint8_t *at) {
  const uint8_t *end = at + 2 + sb_program_u16(at);
  if (v->kind == SB_VALUE_NULL) return SB_UNKNOWN;
  for (at += 2; at < end;) {
    unsigned opcode = *at++;
    sb_value one = constant_at(at, opcode);
    if (sb_operators_compare(SB_OP_EQUAL, v, &one) == SB_TRUE) return SB_TRUE;
    at += operands_of_constant(at, opcode);
  }
  return SB_FALSE;
}

static sb_truth is_between(const sb_value *v, const sb_value *low, const sb_value *high) {
  return sb_operators_and(sb_operators_compare(SB_OP_GREATER_OR_EQUAL, v, low),
                          sb_operators_compare(SB_OP_LESS_OR_EQUAL, v, high));
}

/* The truth of two conditions together. */
static sb_truth both(unsigned opcode, const sb_value *left, const sb_value *right) {
  sb_truth l = sb_value_is_true(left), r = sb_value_is_true(right);
  return opcode == SB_OP_AND ? sb_operators_and(l, r) : sb_operators_or(l, r);
}

bool sb_selector_value(const sb_program *program, sb_properties *p, sb_value *value) {
  sb_value stack[SB_PROGRAM_DEPTH], *top = stack; /* top: behind the last value */
  const uint8_t *at = program->code + 1, *end = program->code + program->length;
  while (at < end) {
    unsigned opcode = *at++;
    switch (opcode) {
      case SB_OP_TRUE:
      case SB_OP_FALSE: *top++ = sb_value_boolean(opcode == SB_OP_TRUE); break;
      case SB_OP_INTEGER_I64:
      case SB_OP_DOUBLE_F64:
      case SB_OP_STRING_TEXT16:
        *top++ = constant_at(at, opcode);
        at += operands_of_constant(at, opcode);
        break;
      case SB_OP_PROPERTY_U8:
        if (!sb_properties_read(p, *at++, top++)) return false;
        break;
      case SB_OP_HEADER_TEXT8:
        if (!sb_properties_header(p, at + 1, *at, top++)) return false;
        at += 1 + *at;
        break;
      case SB_OP_NEGATE: top[-1] = sb_operators_negate(&top[-1]); break;
      case SB_OP_BETWEEN:
        top -= 2;
        top[-1] = sb_value_truth(is_between(&top[-1], &top[0], &top[1]));
        break;
      case SB_OP_IN_U16:
        top[-1] = sb_value_truth(is_in(&top[-1], at));
        at += 2 + sb_program_u16(at);
        break;
      case SB_OP_LIKE_TEXT16:
        top[-1] = sb_value_truth(sb_operators_like(&top[-1], at + 2, sb_program_u16(at)));
        at += 2 + sb_program_u16(at);
        break;
      case SB_OP_IS_NULL: top[-1] = sb_value_boolean(top[-1].kind == SB_VALUE_NULL); break;
      case SB_OP_NOT: top[-1] = sb_value_truth(sb_operators_not(sb_value_is_true(&top[-1]))); break;
      case SB_OP_AND:
      case SB_OP_OR:
        top--;
        top[-1] = sb_value_truth(both(opcode, &top[-1], &top[0]));
        break;
      case SB_OP_SKIP_IF_FALSE_U16:
      case SB_OP_SKIP_IF_TRUE_U16: {
        sb_truth truth = sb_value_is_true(&top[-1]);
        top[-1] = sb_value_truth(truth);
        at += 2 + (truth == (opcode == SB_OP_SKIP_IF_TRUE_U16 ? SB_TRUE : SB_FALSE) ? sb_program_u16(at) : 0);
        break;
      }
      default:
        top--;
        top[-1] = opcode <= SB_OP_DIVIDE ? sb_operators_calculate(opcode, &top[-1], &top[0])
                                         : sb_value_truth(sb_operators_compare(opcode, &top[-1], &top[0]));
    }
  }
  *value = stack[0];
  return true;
}

sb_selected sb_selector_run(const sb_program *program, sb_properties *p) {
  sb_value value;
  if (program->code == NULL) return SB_SELECTED_YES;
  if (!sb_selector_value(program, p, &value)) return SB_SELECTED_DAMAGED;
  return sb_value_is_true(&value) == SB_TRUE ? SB_SELECTED_YES : SB_SELECTED_NO;
}

sb_selected sb_selector_message(sb_broker *b, const sb_program *program, uint32_t slot, const sb_message_shm *m,
                                char *memory) {
  sb_properties p;
  if (program->code == NULL) return SB_SELECTED_YES;
  return sb_selector_properties(b, slot, m, memory, &p) ? sb_selector_run(program, &p) : SB_SELECTED_DAMAGED;
}

static bool append(const void *bytes, uint64_t length, char *to, uint64_t room, uint64_t *used) {
  if (length > room - *used) return false;
  memcpy(to + *used, bytes, length);
  *used += length;
  return true;
}

/* A type letter, and the low `count` bytes of a number, the highest first. */
static bool append_number(char letter, uint64_t number, unsigned count, char *to, uint64_t room, uint64_t *used) {
  char encoded[9] = {letter};
  for (unsigned i = 0; i < count; i++) encoded[1 + i] = (char)(uint8_t)(number >> 8 * (count - 1 - i));
  return append(encoded, 1 + count, to, room, used);
}

static bool append_peeked(const uint8_t *from, uint32_t length, char *to, uint64_t room, uint64_t *used) {
  if (length > room - *used) return false;
  sb_peek_bytes(to + *used, from, length);
  *used += length;
  return true;
}

bool sb_selector_encode(const sb_value *v, char *to, uint64_t room, uint64_t *used) {
  uint64_t bits;
  switch (v->kind) {
    case SB_VALUE_BOOLEAN: return append_number('t', v->is.boolean, 1, to, room, used);
    case SB_VALUE_INTEGER: return append_number('l', (uint64_t)v->is.integer, 8, to, room, used);
    case SB_VALUE_DOUBLE: memcpy(&bits, &v->is.number, sizeof bits); return append_number('d', bits, 8, to, room, used);
    case SB_VALUE_STRING:
      return append_number('S', v->length, 4, to, room, used) && append_peeked(v->at, v->length, to, room, used);
    case SB_VALUE_OTHER:
      if (sb_peek_byte(v->at) == 'x') return append_peeked(v->at, v->length, to, room, used);
      break;
    case SB_VALUE_NULL: break;
  }
  return append("V", 1, to, room, used);
}
