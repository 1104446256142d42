// SPDX-License-Identifier: Apache-2.0
/* Deaths: the properties of a dead message, and those of its copy, which tell how it died.
 *
 * What: the copy of a dead message has the properties and headers of the message, without its expiration, without the
 * headers that tell of its deaths, and with new ones of that kind. Python encodes the new headers
 * (shmbroker/_amqp/deaths.py), once for all messages to which the same happened: those with the same *past*. The past of
 * a message has all that the new headers depend on. Its other headers, which may differ from message to message, are
 * copied here, byte by byte.
 *
 * Layout: process-local. The headers of deaths are "x-death", an array with the deaths, "x-first-death-reason", "-queue"
 * and "-exchange", and the same three with "x-last-death".
 *
 * Invariants: as I82 of sb_properties.h, each length is compared with the bytes that are left before anything behind it
 *  is read or copied.
 *
 * Ordering pairs: none. The caller holds the message, so no other process changes its properties.
 *
 * Death: nothing shared is written, so a killed reader leaves nothing.
 *
 * Concurrency: any thread.
 */
#ifndef SB_DEATHS_H
#define SB_DEATHS_H

#include "sb_properties.h"

/* A part of the properties: its offset and its bytes; 0 bytes: there is none. */
typedef struct {
  uint32_t at, bytes;
} sb_death_part;
/* What the properties of a dead message have. */
typedef struct {
  sb_properties all;
  sb_death_part deaths;     /* the value of the header x-death, from its type letter on */
  sb_death_part copies;     /* the same of the header CC: further routing keys */
  sb_death_part expiration; /* the property, with its length in front */
  sb_death_part headers;    /* the property, with its length in front */
  bool has_first;           /* whether the headers tell of the first death */
} sb_death_past;

/* Reads the past of a message. False: the properties are damaged, or tell twice of its deaths, or have CC twice; then
 * they cannot be rewritten here. */
bool sb_deaths_read(const uint8_t *properties, uint32_t length, sb_death_past *past);
/* sb_deaths_write writes at most so many bytes more than the old properties and the new headers have: flags, and the
 * size of a table. */
#define SB_DEATHS_MORE 6u
/* Writes the properties of the copy to `to`, and returns their length. `fresh`: the new headers, encoded as in a table.
 * `drops_copies`: the copy has no header CC. */
uint32_t sb_deaths_write(const sb_death_past *past, const char *fresh, uint32_t bytes, bool drops_copies, uint8_t *to);

#endif
