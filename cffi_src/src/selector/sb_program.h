// SPDX-License-Identifier: Apache-2.0
/* Program: a compiled selector, and its verification.
 *
 * What: the package compiles the text of a selector to a program for a stack machine. The core verifies the program
 * before it runs it, so that a run needs no checks, ends, and stays within its stack.
 *
 * Layout: process-local bytes of the caller. SB_PROGRAM_VERSION, then instructions up to the end. An instruction is a
 * byte (sb_opcode of shmbroker.cdef.h) and its operands; numbers have their lowest byte first, and no alignment:
 *
 *   opcode            operands                  stack before -> after
 *   TRUE, FALSE                                 -> boolean
 *   INTEGER           8 bytes                   -> integer
 *   DOUBLE            8 bytes, IEEE 754         -> double
 *   STRING            length (2), text          -> string
 *   PROPERTY          SB_PROPERTY_... (1)       -> its value, or NULL
 *   HEADER            length (1), name          -> its value, or NULL
 *   NEGATE, NOT, IS_NULL                        value -> value
 *   ADD ... DIVIDE, EQUAL ... GREATER_OR_EQUAL, AND, OR
 *                                               left, right -> value
 *   BETWEEN                                     value, low, high -> truth
 *   IN                length (2), constants     value -> truth
 *   LIKE              length (2), pattern       value -> truth
 *   SKIP_IF_FALSE     distance (2)              value -> truth
 *   SKIP_IF_TRUE      distance (2)              value -> truth
 *
 * A truth is a boolean, or NULL for unknown. sb_operators.h says what is computed. A skip saves the right side of AND
 * and OR where the left side decides: its value stays as the truth of the whole.
 *
 * Invariants:
 *  I81 a program that sb_program_open accepted keeps these rules: each instruction has its operands; skips go forward,
 *      to the beginning of an instruction or to the end, where the stack is as high as at the skip; the stack never has
 *      fewer values than an instruction takes, nor more than SB_PROGRAM_DEPTH; one value is left at the end.
 *
 * Ordering pairs, Death: none; a program is private memory that does not change while it is used.
 *
 * Concurrency: any thread. Verification takes a step for each instruction and constant, a run at most as many.
 */
#ifndef SB_PROGRAM_H
#define SB_PROGRAM_H

#include <string.h>

#include "sb_segment.h"

typedef struct {
  const uint8_t *code; /* the bytes of the caller; NULL: none, so every message is selected */
  uint32_t length;
} sb_program;

static inline uint16_t sb_program_u16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }
static inline uint64_t sb_program_u64(const uint8_t *at) {
  uint64_t number = 0;
  for (unsigned i = 8; i-- > 0;) number = number << 8 | at[i];
  return number;
}
static inline double sb_program_f64(const uint8_t *at) {
  uint64_t bits = sb_program_u64(at);
  double number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

/* Verifies a program (I81). *program refers to `code`, which must not change, nor go, while it is used. A length of 0 is
 * the program that selects every message. False: this is no valid program. */
bool sb_program_open(const char *code, uint32_t length, sb_program *program);

#endif
