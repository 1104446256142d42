// SPDX-License-Identifier: Apache-2.0
/* sb_operators: comparison, arithmetic, LIKE and the three truth values, at their limits. */
#include "sb_operators.h"

#include <math.h>
#include <string.h>

#include "cases.h"

static sb_value text(const char *is) { return sb_value_string((const uint8_t *)is, (uint32_t)strlen(is)); }
static sb_truth compared(unsigned operator, sb_value left, sb_value right) {
  return sb_operators_compare(operator, &left, &right);
}
/* All six comparisons: what `=`, `<` and `>` give says what the others do. */
static void expect_order(sb_value left, sb_value right, int order, const char *what) {
  static const bool holds[3][6] = {/* =, <>, <, <=, >, >= */
                                   {false, true, true, true, false, false},
                                   {true, false, false, true, false, true},
                                   {false, true, false, false, true, true}};
  for (unsigned i = 0; i < 6; i++) {
    expect_is(compared(SB_OP_EQUAL + i, left, right), holds[order + 1][i], what);
    expect_is(compared(SB_OP_EQUAL + i, right, left), holds[-order + 1][i], what);
  }
}
static void expect_always(sb_value left, sb_value right, sb_truth should, sb_truth different, const char *what) {
  for (unsigned i = 0; i < 6; i++) {
    sb_truth is = i == 1 ? different : should;
    expect_is(compared(SB_OP_EQUAL + i, left, right), is, what);
    expect_is(compared(SB_OP_EQUAL + i, right, left), is, what);
  }
}

static void numbers_are_compared_exactly(void) {
  const int64_t exact = (INT64_C(1) << 53) + 1; /* no double */
  expect_order(sb_value_integer(-1), sb_value_integer(1), -1, "integers");
  expect_order(sb_value_integer(INT64_MIN), sb_value_integer(INT64_MAX), -1, "the integers that are furthest apart");
  expect_order(sb_value_double(0.25), sb_value_double(0.5), -1, "doubles");
  expect_order(sb_value_double(0.0), sb_value_double(-0.0), 0, "zeros");
  expect_order(sb_value_integer(1), sb_value_double(1.0), 0, "an integer and a double");
  expect_order(sb_value_integer(1), sb_value_double(1.5), -1, "an integer and a fraction above");
  expect_order(sb_value_integer(-1), sb_value_double(-1.5), 1, "an integer and a fraction below");
  expect_order(sb_value_integer(exact), sb_value_double((double)(exact - 1)), 1, "an integer that is no double");
  expect_order(sb_value_integer(INT64_MAX), sb_value_double(0x1p63), -1, "the highest integer");
  expect_order(sb_value_integer(INT64_MIN), sb_value_double(-0x1p63), 0, "the lowest integer");
  expect_order(sb_value_integer(INT64_MIN), sb_value_double(-0x1.0000000000001p63), 1, "a double below all integers");
  expect_order(sb_value_integer(INT64_MAX), sb_value_double(INFINITY), -1, "infinity");
  expect_order(sb_value_integer(INT64_MIN), sb_value_double(-INFINITY), 1, "minus infinity");
  expect_always(sb_value_double(NAN), sb_value_double(NAN), SB_FALSE, SB_TRUE, "two that are not numbers");
  expect_always(sb_value_double(NAN), sb_value_integer(1), SB_FALSE, SB_TRUE, "one that is not a number");
}
static void strings_are_compared_by_their_bytes(void) {
  expect_order(text("a"), text("b"), -1, "letters");
  expect_order(text("a"), text("ab"), -1, "a beginning");
  expect_order(text(""), text("a"), -1, "an empty string");
  expect_order(text("ab"), text("ab"), 0, "the same");
  expect_order(text("z"), text("\xc3\xa9"), -1, "a letter behind ASCII");
  expect_order(sb_value_string((const uint8_t *)"a\0b", 3), sb_value_string((const uint8_t *)"a\0c", 3), -1, "a zero");
}
/* Values that are not alike are neither the same nor different; NULL makes a comparison unknown. */
static void values_that_are_not_alike(void) {
  const sb_value other = {.kind = SB_VALUE_OTHER, .at = (const uint8_t *)"V", .length = 1};
  const sb_value values[] = {sb_value_boolean(true), sb_value_integer(1), text("1"), other};
  for (unsigned i = 0; i < 4; i++) {
    for (unsigned j = 0; j < 4; j++) {
      if (i != j || i == 3) expect_always(values[i], values[j], SB_FALSE, SB_FALSE, "values that are not alike");
    }
    expect_always(values[i], sb_value_null(), SB_UNKNOWN, SB_UNKNOWN, "a value and NULL");
  }
  expect_always(sb_value_double(1), text("1"), SB_FALSE, SB_FALSE, "a double and a string");
  expect_always(sb_value_null(), sb_value_null(), SB_UNKNOWN, SB_UNKNOWN, "NULL and NULL");
}
static void booleans_have_no_order(void) {
  for (unsigned i = 0; i < 4; i++) {
    bool left = i & 1, right = i & 2;
    expect_is(compared(SB_OP_EQUAL, sb_value_boolean(left), sb_value_boolean(right)), left == right, "equal");
    expect_is(compared(SB_OP_NOT_EQUAL, sb_value_boolean(left), sb_value_boolean(right)), left != right, "different");
    for (unsigned o = SB_OP_LESS; o <= SB_OP_GREATER_OR_EQUAL; o++) {
      expect_is(compared(o, sb_value_boolean(left), sb_value_boolean(right)), SB_FALSE, "an order of booleans");
    }
  }
}

static sb_value calculated(unsigned operator, sb_value left, sb_value right) {
  return sb_operators_calculate(operator, &left, &right);
}
static void expect_integer(sb_value is, int64_t should, const char *what) {
  expect_is(is.kind, SB_VALUE_INTEGER, what);
  expect_is(is.is.integer, should, what);
}
static void expect_double(sb_value is, double should, const char *what) {
  expect_is(is.kind, SB_VALUE_DOUBLE, what);
  expect(is.is.number == should, "%s is %g, not %g", what, is.is.number, should);
}
static void expect_null(sb_value is, const char *what) { expect_is(is.kind, SB_VALUE_NULL, what); }

static void arithmetic_of_integers(void) {
  const sb_value least = sb_value_integer(INT64_MIN), most = sb_value_integer(INT64_MAX), one = sb_value_integer(1);
  expect_integer(calculated(SB_OP_ADD, sb_value_integer(7), sb_value_integer(-2)), 5, "a sum");
  expect_integer(calculated(SB_OP_SUBTRACT, sb_value_integer(7), sb_value_integer(-2)), 9, "a difference");
  expect_integer(calculated(SB_OP_MULTIPLY, sb_value_integer(7), sb_value_integer(-2)), -14, "a product");
  expect_integer(calculated(SB_OP_DIVIDE, sb_value_integer(7), sb_value_integer(-2)), -3, "a quotient");
  expect_null(calculated(SB_OP_ADD, most, one), "a sum beyond 64 bits");
  expect_null(calculated(SB_OP_SUBTRACT, least, one), "a difference beyond 64 bits");
  expect_null(calculated(SB_OP_MULTIPLY, most, sb_value_integer(2)), "a product beyond 64 bits");
  expect_null(calculated(SB_OP_DIVIDE, least, sb_value_integer(-1)), "a quotient beyond 64 bits");
  expect_integer(calculated(SB_OP_DIVIDE, least, one), INT64_MIN, "the lowest quotient");
  expect_null(calculated(SB_OP_DIVIDE, one, sb_value_integer(0)), "a division by zero");
  expect_null(sb_operators_negate(&least), "the opposite of the lowest integer");
  expect_integer(sb_operators_negate(&most), -INT64_MAX, "the opposite of the highest integer");
}
static void arithmetic_of_doubles(void) {
  const sb_value half = sb_value_double(0.5), two = sb_value_integer(2);
  expect_double(calculated(SB_OP_ADD, two, half), 2.5, "a sum");
  expect_double(calculated(SB_OP_SUBTRACT, half, two), -1.5, "a difference");
  expect_double(calculated(SB_OP_MULTIPLY, half, half), 0.25, "a product");
  expect_double(calculated(SB_OP_DIVIDE, two, half), 4, "a quotient");
  expect_null(calculated(SB_OP_DIVIDE, half, sb_value_double(0.0)), "a division by zero");
  expect_null(calculated(SB_OP_DIVIDE, half, sb_value_double(-0.0)), "a division by minus zero");
  expect_null(calculated(SB_OP_DIVIDE, half, sb_value_integer(0)), "a division by an integer zero");
  expect_double(sb_operators_negate(&half), -0.5, "an opposite");
}
static void arithmetic_of_no_numbers(void) {
  const sb_value none[] = {sb_value_null(), sb_value_boolean(true), text("1"), {.kind = SB_VALUE_OTHER}};
  for (unsigned i = 0; i < 4; i++) {
    for (unsigned o = SB_OP_ADD; o <= SB_OP_DIVIDE; o++) {
      expect_null(calculated(o, none[i], sb_value_integer(1)), "the left is no number");
      expect_null(calculated(o, sb_value_double(1), none[i]), "the right is no number");
    }
    expect_null(sb_operators_negate(&none[i]), "the opposite of no number");
  }
}

static sb_truth like(const char *is, const char *pattern) {
  sb_value v = text(is);
  return sb_operators_like(&v, (const uint8_t *)pattern, (uint32_t)strlen(pattern));
}
#define ANY "\xff"
#define ONE "\xfe"
static void patterns(void) {
  static const struct {
    const char *text, *pattern;
    bool matches;
  } tried[] = {{"", "", true},
               {"a", "", false},
               {"", "a", false},
               {"", ANY, true},
               {"", ONE, false},
               {"abc", "abc", true},
               {"abc", "abd", false},
               {"abc", "ab", false},
               {"abc", "a" ANY, true},
               {"abc", ANY "c", true},
               {"abc", ANY "b", false},
               {"abc", "a" ONE "c", true},
               {"ac", "a" ONE "c", false},
               {"abab", ANY "ab", true},
               {"aab", ANY "ab", true},
               {"abcabd", ANY "ab" ONE, true},
               {"abcabd", ANY "abd" ANY ANY, true},
               {"aXbXc", "a" ANY "b" ANY "c", true},
               {"aXc", "a" ANY "b" ANY "c", false},
               {"\xc3\xa9", ONE, true},
               {"\xc3\xa9", ONE ONE, false},
               {"\xf0\x9f\x98\x80z", ONE "z", true},
               {"\xc3\xa9"
                "b",
                ANY ONE ONE "b", false},
               {"\xc3\xa9\xc3\xa9"
                "b",
                ANY ONE ONE "b", true},
               {"\xa9\xa9x", ONE "x", true},
               {"a\nb", "a" ONE "b", true}};
  for (unsigned i = 0; i < sizeof tried / sizeof tried[0]; i++) {
    expect(like(tried[i].text, tried[i].pattern) == (tried[i].matches ? SB_TRUE : SB_FALSE), "pattern %u", i);
  }
  sb_value null = sb_value_null(), number = sb_value_integer(1);
  expect_is(sb_operators_like(&null, (const uint8_t *)ANY, 1), SB_UNKNOWN, "LIKE of NULL");
  expect_is(sb_operators_like(&number, (const uint8_t *)ANY, 1), SB_FALSE, "LIKE of a number");
}
static void three_truths(void) {
  static const sb_truth all[] = {SB_FALSE, SB_UNKNOWN, SB_TRUE}; /* AND is the lower one, OR the higher one */
  for (unsigned i = 0; i < 3; i++) {
    expect_is(sb_operators_not(all[i]), all[2 - i], "NOT");
    for (unsigned j = 0; j < 3; j++) {
      expect_is(sb_operators_and(all[i], all[j]), all[i < j ? i : j], "AND");
      expect_is(sb_operators_or(all[i], all[j]), all[i > j ? i : j], "OR");
    }
  }
  sb_value yes = sb_value_boolean(true), no = sb_value_boolean(false), null = sb_value_null(),
           one = sb_value_integer(1);
  expect_is(sb_value_is_true(&yes), SB_TRUE, "the truth of TRUE");
  expect_is(sb_value_is_true(&no), SB_FALSE, "the truth of FALSE");
  expect_is(sb_value_is_true(&null), SB_UNKNOWN, "the truth of NULL");
  expect_is(sb_value_is_true(&one), SB_FALSE, "the truth of a number");
}

static const test_case CASES[] = {
    {"operators: numbers", "integers and doubles are compared without rounding", numbers_are_compared_exactly},
    {"operators: strings", "strings have the order of their bytes", strings_are_compared_by_their_bytes},
    {"operators: unlike", "a comparison of unlike values is false, one with NULL unknown", values_that_are_not_alike},
    {"operators: booleans", "booleans are equal or not, and have no order", booleans_have_no_order},
    {"operators: integers", "arithmetic beyond 64 bits, or by zero, gives NULL", arithmetic_of_integers},
    {"operators: doubles", "arithmetic with a double is one of doubles", arithmetic_of_doubles},
    {"operators: no numbers", "arithmetic on anything else gives NULL", arithmetic_of_no_numbers},
    {"operators: patterns", "a pattern matches the whole string, character by character", patterns},
    {"operators: truths", "AND, OR and NOT know three truths", three_truths},
};
SUBJECT(CASES)
