// SPDX-License-Identifier: Apache-2.0
#include "sb_deaths.h"

#define FLAGS_BYTES 2u
#define TABLE_START 4u /* a table begins with its size */

/* What becomes of a header: kept, or replaced by a new one. */
typedef enum { OTHER, DEATHS, COPIES, FIRST, FIRST_QUEUE, LAST } header_kind;

static bool is(const sb_header_place *h, const char *name) {
  return h->name_length == strlen(name) && memcmp(h->name, name, h->name_length) == 0;
}

static header_kind kind_of(const sb_header_place *h) {
  if (is(h, "CC")) return COPIES;
  if (h->name_length < 7 || memcmp(h->name, "x-", 2) != 0) return OTHER;
  if (is(h, "x-death")) return DEATHS;
  if (is(h, "x-first-death-queue")) return FIRST_QUEUE;
  if (is(h, "x-first-death-reason") || is(h, "x-first-death-exchange")) return FIRST;
  bool last = is(h, "x-last-death-queue") || is(h, "x-last-death-reason") || is(h, "x-last-death-exchange");
  return last ? LAST : OTHER;
}

/* Notes a header that may come once. False: it has come before. */
static bool note(sb_death_part *part, const sb_header_place *h) {
  bool first = part->bytes == 0;
  *part = (sb_death_part){h->value, h->end - h->value};
  return first;
}

static bool place(const sb_properties *p, unsigned property, sb_death_part *part) {
  return sb_properties_find(p, property, &part->at, &part->bytes);
}

bool sb_deaths_read(const uint8_t *properties, uint32_t length, sb_death_past *past) {
  *past = (sb_death_past){.all = {.at = properties, .length = length}};
  if (length == 0) {
    return true;
  }
  sb_properties *p = &past->all;
  if (!place(p, SB_PROPERTY_HEADERS, &past->headers) || !place(p, SB_PROPERTY_EXPIRATION, &past->expiration) ||
      !sb_properties_open(p)) {
    return false;
  }
  sb_header_place h;
  for (uint32_t at = p->table; at < p->table_end; at = h.end) {
    if (!sb_properties_next(p, at, &h)) return false;
    header_kind kind = kind_of(&h);
    if (kind == FIRST_QUEUE) past->has_first = true;
    if ((kind == DEATHS && !note(&past->deaths, &h)) || (kind == COPIES && !note(&past->copies, &h))) return false;
  }
  return true;
}

static bool goes(const sb_death_past *past, const sb_header_place *h, bool drops_copies) {
  switch (kind_of(h)) {
    case OTHER: return false;
    case COPIES: return drops_copies;
    case FIRST:
    case FIRST_QUEUE: return !past->has_first;
    default: return true;
  }
}

static uint8_t *add(uint8_t *to, const void *bytes, uint32_t count) {
  if (count > 0) memcpy(to, bytes, count);
  return to + count;
}

/* Copies the headers that stay: all between two that go in one piece. */
static uint8_t *add_headers(const sb_death_past *past, bool drops_copies, uint8_t *to) {
  const sb_properties *p = &past->all;
  sb_header_place h;
  uint32_t from = p->table;
  for (uint32_t at = from; at < p->table_end && sb_properties_next(p, at, &h); at = h.end) {
    if (goes(past, &h, drops_copies)) {
      to = add(to, p->at + from, at - from);
      from = h.end;
    }
  }
  return add(to, p->at + from, p->table_end - from);
}

/* The offset of the first property behind the headers, or where that would be. */
static uint32_t behind_headers(const sb_death_past *past) {
  sb_death_part type = {0}, encoding = {0};
  if (past->headers.bytes > 0) {
    return past->headers.at + past->headers.bytes;
  }
  (void)place(&past->all, SB_PROPERTY_CONTENT_TYPE, &type);
  (void)place(&past->all, SB_PROPERTY_CONTENT_ENCODING, &encoding);
  return FLAGS_BYTES + type.bytes + encoding.bytes;
}

static void write_big_endian(uint8_t *to, uint32_t value, unsigned bytes) {
  for (unsigned i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

uint32_t sb_deaths_write(const sb_death_past *past, const char *fresh, uint32_t bytes, bool drops_copies, uint8_t *to) {
  const sb_properties *p = &past->all;
  uint32_t flags = p->length > 0 ? (uint32_t)sb_value_big_endian(p->at, FLAGS_BYTES) : 0;
  flags = (flags | 1u << (15 - SB_PROPERTY_HEADERS)) & ~(1u << (15 - SB_PROPERTY_EXPIRATION));
  write_big_endian(to, flags, FLAGS_BYTES);
  uint8_t *at = to + FLAGS_BYTES;
  if (p->length == 0) {
    write_big_endian(at, bytes, TABLE_START);
    return (uint32_t)(add(at + TABLE_START, fresh, bytes) - to);
  }
  uint32_t rest = behind_headers(past), before = rest - past->headers.bytes;
  at = add(at, p->at + FLAGS_BYTES, before - FLAGS_BYTES);
  uint8_t *table = at + TABLE_START, *end = add(add_headers(past, drops_copies, table), fresh, bytes);
  write_big_endian(at, (uint32_t)(end - table), TABLE_START);
  if (past->expiration.bytes == 0) {
    return (uint32_t)(add(end, p->at + rest, p->length - rest) - to);
  }
  end = add(end, p->at + rest, past->expiration.at - rest);
  uint32_t last = past->expiration.at + past->expiration.bytes;
  return (uint32_t)(add(end, p->at + last, p->length - last) - to);
}
