// SPDX-License-Identifier: Apache-2.0
/* Properties: reads a property or a header of a message where it is stored.
 *
 * What: a message has its properties as the last part of an AMQP 0-9-1 content header: the flags, then the values of
 * the properties that are set, in the order of the flags. The headers are an AMQP table. A read walks over what lies in
 * front of the value, and decodes nothing but the value. Python reads the same bytes in shmbroker/properties.py and
 * shmbroker/_amqp/field_tables.py.
 *
 * Layout: process-local. `at` is in shared memory, or in a private copy.
 *
 * Invariants:
 *  I82 each length is read once, and compared with the bytes that are left before anything behind it is read. So bytes
 *      that change meanwhile, and bytes that were damaged, give a wrong value or a failure, but no read outside of
 *      `length` bytes, and no endless walk: each step of a walk goes forward.
 *
 * Ordering pairs: none of their own. All bytes are read by sb_peek_byte: of a message that the caller does not hold,
 *  every value is a guess until the second look (I43 of sb_peek.h).
 *
 * Death: a reader writes nothing shared, so a killed reader leaves nothing.
 *
 * Concurrency: any thread; one thread for one sb_properties. Time: a step for each property and each header in front of
 *  the value, whatever its size; arrays and tables in headers are passed over by their length.
 */
#ifndef SB_PROPERTIES_H
#define SB_PROPERTIES_H

#include "sb_value.h"

typedef struct {
  const uint8_t *at;
  uint32_t length;
  uint32_t table,
      table_end;         /* the headers: the offsets of the first name and of the end; table 0: not looked for yet */
  uint8_t priority;      /* of the message */
  uint64_t timestamp_ns; /* of the publish */
} sb_properties;

/* The value of a property, SB_PROPERTY_... False: the properties are damaged in front of it, or in it. */
bool sb_properties_read(const sb_properties *p, unsigned property, sb_value *v);
/* The value of the first header of that name. False: as above. */
bool sb_properties_header(sb_properties *p, const uint8_t *name, unsigned name_length, sb_value *v);
/* The place of a property: *at and *size, with its length in front; *size 0: it is not set. False:
 * as above. */
bool sb_properties_find(const sb_properties *p, unsigned property, uint32_t *at, uint32_t *size);
/* True if the publisher wants the message in no store: its delivery_mode is 1. One without a delivery_mode is stored. */
bool sb_properties_are_transient(const void *at, uint32_t length);
/* Finds the headers: sets `table` and `table_end`. False: as above. */
bool sb_properties_open(sb_properties *p);
/* A header: its name, and the offsets of its type letter and of its end. */
typedef struct {
  const uint8_t *name;
  unsigned name_length;
  uint32_t value, end;
  uint8_t letter;
} sb_header_place;
/* The header at offset `at`, which is `table` or the end of another header, and below `table_end`. False: as above. */
bool sb_properties_next(const sb_properties *p, uint32_t at, sb_header_place *h);

#endif
