// SPDX-License-Identifier: Apache-2.0
/* Operators: what the operators of a selector compute.
 *
 * What: comparison, arithmetic, LIKE and the three-valued logic of SQL-92, as JMS restricts them:
 *  - A comparison with NULL is unknown. A comparison of values that are not alike is false, whatever the operator.
 *    Numbers are alike, whether integers or doubles, and are compared exactly: no integer is rounded to a double.
 *    Strings are ordered by their bytes of UTF-8. Booleans are only equal or not. OTHER is like nothing.
 *  - A comparison with a NaN is that of IEEE 754: only `<>` is true.
 *  - Arithmetic on anything but numbers gives NULL, and so does a division by zero, of integers or doubles, and an
 *    integer result that 64 bits do not hold. An operation with a double is one of doubles. The quotient of integers is
 *    truncated.
 *  - AND, OR and NOT take a value that is no boolean for false, and NULL for unknown.
 *  - LIKE is unknown of NULL, and false of any other value that is no string. A character is a byte with the
 *    continuation bytes of UTF-8 that follow it, so LIKE is defined for any bytes.
 *
 * Layout, Invariants, Ordering pairs, Death: none here; see sb_value.h.
 *
 * Concurrency: any thread. Time: a comparison of strings takes a step for each byte of the shorter one, LIKE at most one
 *  for each byte of the string and each byte of the pattern: SB_MAX_PREFIX x SB_PATTERN_BYTES. All else is constant.
 */
#ifndef SB_OPERATORS_H
#define SB_OPERATORS_H

#include "sb_value.h"

/* `operator`: SB_OP_EQUAL to SB_OP_GREATER_OR_EQUAL. */
sb_truth sb_operators_compare(unsigned operator, const sb_value * left, const sb_value *right);
/* `operator`: SB_OP_ADD to SB_OP_DIVIDE. */
sb_value sb_operators_calculate(unsigned operator, const sb_value * left, const sb_value *right);
sb_value sb_operators_negate(const sb_value *v);
/* `pattern`: UTF-8 with SB_PATTERN_ANY and SB_PATTERN_CHARACTER. */
sb_truth sb_operators_like(const sb_value *v, const uint8_t *pattern, uint32_t length);
sb_truth sb_operators_not(sb_truth of);
sb_truth sb_operators_and(sb_truth left, sb_truth right);
sb_truth sb_operators_or(sb_truth left, sb_truth right);

#endif
