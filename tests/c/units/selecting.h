// SPDX-License-Identifier: Apache-2.0
/* Programs and properties for cases about selectors. They lie in front of a page that cannot be read, so that a read
 * behind their end ends the case. */
#ifndef SELECTING_H
#define SELECTING_H

#include "cases.h"
#include "sb_selector.h"

/* A program or properties, byte by byte. */
typedef struct {
  uint8_t bytes[4096];
  uint32_t length;
} coded;

/* A program without instructions; each of the others appends one. */
coded program_of(void);
void op(coded *c, unsigned opcode);
void op_integer(coded *c, int64_t integer);
void op_double(coded *c, double number);
void op_string(coded *c, const char *text);
void op_property(coded *c, unsigned property);
void op_header(coded *c, const char *name);
void op_like(coded *c, const char *pattern);
void op_skip(coded *c, unsigned opcode, unsigned distance);
void append(coded *c, const void *bytes, uint32_t length);

/* Properties with these flags; then the values of the properties, in order. */
coded properties_of(unsigned flags);
#define FLAG(property) (1u << (15 - (property)))
void text_property(coded *c, const char *text);
/* Begins the headers. add_header appends one, whose content has its type letter in front; end_headers writes their length. */
uint32_t begin_headers(coded *c);
void add_header(coded *c, const char *name, const char *value, uint32_t length);
void end_headers(coded *c, uint32_t begun);

/* A copy of the first `length` bytes in front of a page that cannot be read. Valid until the next call of that number, 0
 * or 1. */
uint8_t *guarded(unsigned number, const coded *c, uint32_t length);
/* The properties as a message has them. */
sb_properties stored(const coded *c);
/* Opens the program, which must be valid, and runs it over the properties. */
sb_selected selected(const coded *program, const coded *properties);
/* The value of the program, which must be valid; the properties must be sound. */
sb_value value_of(const coded *program, const coded *properties);

#endif
