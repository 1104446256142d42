// SPDX-License-Identifier: Apache-2.0
#include "sb_operators.h"

/* How two values compare. UNLIKE: their types do not. UNORDERED: one of them is a NaN. DIFFERENT: they have no order. */
typedef enum { BEFORE, SAME, AFTER, UNLIKE, UNORDERED, DIFFERENT } order;

static order order_of_integers(int64_t left, int64_t right) {
  return left < right ? BEFORE : left > right ? AFTER : SAME;
}

static order order_of_doubles(double left, double right) {
  return left < right ? BEFORE : left > right ? AFTER : left == right ? SAME : UNORDERED;
}

/* Exact: a double of 64 bits or more has no fraction, and every other one splits into an integer and a fraction. */
static order order_of_mixed(int64_t left, double right) {
  if (right != right) return UNORDERED;
  if (right >= 0x1p63) return BEFORE;
  if (right < -0x1p63) return AFTER;
  int64_t whole = (int64_t)right;
  return left != whole ? order_of_integers(left, whole) : order_of_doubles(0, right - (double)whole);
}

static order reversed(order o) { return o == BEFORE ? AFTER : o == AFTER ? BEFORE : o; }

static order order_of_strings(const sb_value *left, const sb_value *right) {
  uint32_t shorter = left->length < right->length ? left->length : right->length;
  for (uint32_t i = 0; i < shorter; i++) {
    uint8_t a = sb_peek_byte(left->at + i), b = sb_peek_byte(right->at + i);
    if (a != b) return a < b ? BEFORE : AFTER;
  }
  return order_of_integers(left->length, right->length);
}

static order order_of(const sb_value *left, const sb_value *right) {
  if (left->kind == SB_VALUE_INTEGER && right->kind == SB_VALUE_DOUBLE) {
    return order_of_mixed(left->is.integer, right->is.number);
  }
  if (left->kind == SB_VALUE_DOUBLE && right->kind == SB_VALUE_INTEGER) {
    return reversed(order_of_mixed(right->is.integer, left->is.number));
  }
  if (left->kind != right->kind) return UNLIKE;
  switch (left->kind) {
    case SB_VALUE_INTEGER: return order_of_integers(left->is.integer, right->is.integer);
    case SB_VALUE_DOUBLE: return order_of_doubles(left->is.number, right->is.number);
    case SB_VALUE_STRING: return order_of_strings(left, right);
    case SB_VALUE_BOOLEAN: return left->is.boolean == right->is.boolean ? SAME : DIFFERENT;
    default: return UNLIKE;
  }
}

sb_truth sb_operators_compare(unsigned operator, const sb_value *left, const sb_value *right) {
  if (left->kind == SB_VALUE_NULL || right->kind == SB_VALUE_NULL) return SB_UNKNOWN;
  if (operator <= SB_OP_NOT_EQUAL && left->kind == SB_VALUE_STRING && right->kind == SB_VALUE_STRING &&
      left->length != right->length) {
    return operator == SB_OP_NOT_EQUAL; /* most strings that differ are told apart by their length */
  }
  order o = order_of(left, right);
  if (o == UNLIKE) return SB_FALSE;
  if (left->kind == SB_VALUE_BOOLEAN && operator > SB_OP_NOT_EQUAL) return SB_FALSE;
  switch (operator) {
    case SB_OP_EQUAL: return o == SAME;
    case SB_OP_NOT_EQUAL: return o != SAME;
    case SB_OP_LESS: return o == BEFORE;
    case SB_OP_LESS_OR_EQUAL: return o == BEFORE || o == SAME;
    case SB_OP_GREATER: return o == AFTER;
    default: return o == AFTER || o == SAME;
  }
}

static bool is_number(const sb_value *v) { return v->kind == SB_VALUE_INTEGER || v->kind == SB_VALUE_DOUBLE; }

static double as_double(const sb_value *v) {
  return v->kind == SB_VALUE_INTEGER ? (double)v->is.integer : v->is.number;
}

static sb_value calculate_doubles(unsigned operator, double left, double right) {
  switch (operator) {
    case SB_OP_ADD: return sb_value_double(left + right);
    case SB_OP_SUBTRACT: return sb_value_double(left - right);
    case SB_OP_MULTIPLY: return sb_value_double(left * right);
    default: return right == 0 ? sb_value_null() : sb_value_double(left / right);
  }
}

static sb_value calculate_integers(unsigned operator, int64_t left, int64_t right) {
  int64_t result = 0;
  bool beyond;
  switch (operator) {
    case SB_OP_ADD: beyond = __builtin_add_overflow(left, right, &result); break;
    case SB_OP_SUBTRACT: beyond = __builtin_sub_overflow(left, right, &result); break;
    case SB_OP_MULTIPLY: beyond = __builtin_mul_overflow(left, right, &result); break;
    default:
      beyond = right == 0 || (left == INT64_MIN && right == -1);
      if (!beyond) result = left / right;
  }
  return beyond ? sb_value_null() : sb_value_integer(result);
}

sb_value sb_operators_calculate(unsigned operator, const sb_value *left, const sb_value *right) {
  if (!is_number(left) || !is_number(right)) return sb_value_null();
  if (left->kind == SB_VALUE_INTEGER && right->kind == SB_VALUE_INTEGER) {
    return calculate_integers(operator, left->is.integer, right->is.integer);
  }
  return calculate_doubles(operator, as_double(left), as_double(right));
}

sb_value sb_operators_negate(const sb_value *v) {
  if (v->kind == SB_VALUE_DOUBLE) return sb_value_double(-v->is.number);
  return v->kind == SB_VALUE_INTEGER ? calculate_integers(SB_OP_SUBTRACT, 0, v->is.integer) : sb_value_null();
}

/* The index of the character after the one at `at`. */
static uint32_t after_character(const sb_value *v, uint32_t at) {
  at++;
  while (at < v->length && (sb_peek_byte(v->at + at) & 0xc0) == 0x80) at++;
  return at;
}

/* When the rest of the pattern does not match, only the last SB_PATTERN_ANY is tried with one byte more: if that does not
 * help, no earlier one does. The byte may be within a character. The next one of the pattern then takes its rest. */
sb_truth sb_operators_like(const sb_value *v, const uint8_t *pattern, uint32_t length) {
  uint32_t at = 0, next = 0, again = UINT32_MAX, taken = 0;
  if (v->kind != SB_VALUE_STRING) return v->kind == SB_VALUE_NULL ? SB_UNKNOWN : SB_FALSE;
  while (at < v->length) {
    if (next < length && pattern[next] == SB_PATTERN_ANY) {
      again = ++next;
      taken = at;
    } else if (next < length && pattern[next] == SB_PATTERN_CHARACTER) {
      next++;
      at = after_character(v, at);
    } else if (next < length && pattern[next] == sb_peek_byte(v->at + at)) {
      next++;
      at++;
    } else if (again != UINT32_MAX) {
      next = again;
      at = ++taken;
    } else {
      return SB_FALSE;
    }
  }
  while (next < length && pattern[next] == SB_PATTERN_ANY) next++;
  return next == length;
}

sb_truth sb_operators_not(sb_truth of) { return of == SB_UNKNOWN ? SB_UNKNOWN : of == SB_FALSE ? SB_TRUE : SB_FALSE; }

sb_truth sb_operators_and(sb_truth left, sb_truth right) {
  if (left == SB_FALSE || right == SB_FALSE) return SB_FALSE;
  return left == SB_UNKNOWN || right == SB_UNKNOWN ? SB_UNKNOWN : SB_TRUE;
}

sb_truth sb_operators_or(sb_truth left, sb_truth right) {
  return sb_operators_not(sb_operators_and(sb_operators_not(left), sb_operators_not(right)));
}
