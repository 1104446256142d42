// SPDX-License-Identifier: Apache-2.0
/* Value: what a name, a literal or an operator of a selector evaluates to.
 *
 * What: the values of SQL-92 that a selector knows: NULL, booleans, exact numbers (64-bit integers), approximate numbers
 * (doubles) and strings. OTHER is a header that a selector can only test for NULL: bytes, an array or a table.
 *
 * Layout: process-local. A string is not copied: it lies in the program, or in the properties of the message. There,
 * another process may overwrite it while it is compared (sb_peek.h), so each of its bytes is read by sb_peek_byte.
 *
 * Invariants: none of its own. The bytes of a string lie within the program or the properties: `length` is a copy that
 *  was checked against their size, and is never read again.
 *
 * Ordering pairs: none of their own; what is read beside a writer is a guess (I43 of sb_peek.h).
 *
 * Death: a reader writes nothing shared, so a killed reader leaves nothing.
 *
 * Concurrency: any thread.
 */
#ifndef SB_VALUE_H
#define SB_VALUE_H

#include "sb_peek.h"

typedef enum {
  SB_VALUE_NULL,
  SB_VALUE_BOOLEAN,
  SB_VALUE_INTEGER,
  SB_VALUE_DOUBLE,
  SB_VALUE_STRING,
  SB_VALUE_OTHER
} sb_value_kind;

typedef struct {
  sb_value_kind kind;
  uint32_t length;   /* of a STRING, and of an OTHER: bytes at `at` */
  const uint8_t *at; /* the text of a STRING; an OTHER as it is encoded, with its type letter */
  union {
    bool boolean;
    int64_t integer;
    double number;
  } is;
} sb_value;

/* The three truth values. */
typedef enum { SB_FALSE, SB_TRUE, SB_UNKNOWN } sb_truth;

static inline sb_value sb_value_boolean(bool is) { return (sb_value){.kind = SB_VALUE_BOOLEAN, .is.boolean = is}; }
static inline sb_value sb_value_integer(int64_t is) { return (sb_value){.kind = SB_VALUE_INTEGER, .is.integer = is}; }
static inline sb_value sb_value_double(double is) { return (sb_value){.kind = SB_VALUE_DOUBLE, .is.number = is}; }
static inline sb_value sb_value_string(const uint8_t *at, uint32_t length) {
  return (sb_value){.kind = SB_VALUE_STRING, .at = at, .length = length};
}
static inline sb_value sb_value_null(void) { return (sb_value){.kind = SB_VALUE_NULL}; }
static inline sb_value sb_value_truth(sb_truth truth) {
  return truth == SB_UNKNOWN ? sb_value_null() : sb_value_boolean(truth == SB_TRUE);
}
/* The truth of a condition: NULL is unknown, and a value that is no boolean is false. */
static inline sb_truth sb_value_is_true(const sb_value *v) {
  return v->kind == SB_VALUE_NULL ? SB_UNKNOWN : v->kind == SB_VALUE_BOOLEAN && v->is.boolean ? SB_TRUE : SB_FALSE;
}

/* Reads `count` bytes, at most 8, as an unsigned number: with its highest byte first, as AMQP encodes it. */
static inline uint64_t sb_value_big_endian(const uint8_t *at, unsigned count) {
  uint64_t number = 0;
  for (unsigned i = 0; i < count; i++) number = number << 8 | sb_peek_byte(at + i);
  return number;
}

#endif
