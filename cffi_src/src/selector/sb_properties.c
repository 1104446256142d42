// SPDX-License-Identifier: Apache-2.0
#include "sb_properties.h"

#define FLAGS_BYTES 2u
#define NO_PROPERTY 3u /* the two flags without a property; AMQP continues the flags if the lower one is set */
#define IS_TRANSIENT 1
#define IS_PERSISTENT 2

/* ---- properties ---- */

/* *size: the bytes of the value of a property that is set, with its length in front. False: they are not all there. */
static bool size_of_property(const sb_properties *p, unsigned property, uint32_t at, uint32_t *size) {
  uint32_t left = p->length - at;
  switch (property) {
    case SB_PROPERTY_DELIVERY_MODE:
    case SB_PROPERTY_PRIORITY: *size = 1; break;
    case SB_PROPERTY_TIMESTAMP: *size = 8; break;
    case SB_PROPERTY_HEADERS: {
      uint64_t length = left < 4 ? left : sb_value_big_endian(p->at + at, 4);
      if (length > UINT32_MAX - 4) return false;
      *size = 4 + (uint32_t)length;
      break;
    }
    default: *size = left < 1 ? 1 : 1u + sb_peek_byte(p->at + at);
  }
  return *size <= left;
}

bool sb_properties_find(const sb_properties *p, unsigned property, uint32_t *at, uint32_t *size) {
  *at = FLAGS_BYTES;
  *size = 0;
  if (p->length == 0) return true;
  if (p->length < FLAGS_BYTES) return false;
  unsigned flags = (unsigned)sb_value_big_endian(p->at, FLAGS_BYTES);
  if ((flags & NO_PROPERTY) != 0) return false;
  if ((flags & 1u << (15 - property)) == 0) return true;
  for (unsigned i = 0; i <= property; i++) {
    *at += *size;
    *size = 0;
    if ((flags & 1u << (15 - i)) != 0 && !size_of_property(p, i, *at, size)) return false;
  }
  return true;
}

bool sb_properties_are_transient(const void *at, uint32_t length) {
  const sb_properties p = {.at = at, .length = length};
  uint32_t place, size;
  return sb_properties_find(&p, SB_PROPERTY_DELIVERY_MODE, &place, &size) && size == 1 &&
         sb_peek_byte(p.at + place) == IS_TRANSIENT;
}

static sb_value constant(const char *text) { return sb_value_string((const uint8_t *)text, (uint32_t)strlen(text)); }

static bool read_delivery_mode(const sb_properties *p, sb_value *v) {
  bool good = sb_properties_read(p, SB_PROPERTY_DELIVERY_MODE, v);
  bool persistent = v->kind == SB_VALUE_INTEGER && v->is.integer == IS_PERSISTENT;
  *v = constant(persistent ? "PERSISTENT" : "NON_PERSISTENT");
  return good;
}

static bool read_timestamp(const sb_properties *p, sb_value *v) {
  if (!sb_properties_read(p, SB_PROPERTY_TIMESTAMP, v)) return false;
  if (v->kind == SB_VALUE_NULL) {
    *v = sb_value_integer((int64_t)(p->timestamp_ns / 1000000));
  } else if (__builtin_mul_overflow(v->is.integer, 1000, &v->is.integer)) {
    *v = sb_value_null();
  }
  return true;
}

bool sb_properties_read(const sb_properties *p, unsigned property, sb_value *v) {
  uint32_t at, size;
  *v = sb_value_null();
  switch (property) {
    case SB_PROPERTY_PRIORITY: *v = sb_value_integer(p->priority); return true;
    case SB_PROPERTY_JMS_DELIVERY_MODE: return read_delivery_mode(p, v);
    case SB_PROPERTY_JMS_TIMESTAMP: return read_timestamp(p, v);
    default: break;
  }
  if (!sb_properties_find(p, property, &at, &size)) return false;
  if (size == 0) return true;
  bool number = property == SB_PROPERTY_DELIVERY_MODE || property == SB_PROPERTY_TIMESTAMP;
  *v = number ? sb_value_integer((int64_t)sb_value_big_endian(p->at + at, size))
              : sb_value_string(p->at + at + 1, size - 1);
  return true;
}

/* ---- headers ---- */

/* *size: the bytes of a value of an AMQP table, without its type letter. False: there is no such type, or not all of the
 * value is there. */
static bool size_of_value(const sb_properties *p, uint8_t letter, uint32_t at, uint32_t end, uint32_t *size) {
  uint32_t left = end - at;
  switch (letter) {
    case 'V': *size = 0; break;
    case 't':
    case 'b':
    case 'B': *size = 1; break;
    case 's':
    case 'u': *size = 2; break;
    case 'I':
    case 'i':
    case 'f': *size = 4; break;
    case 'D': *size = 5; break;
    case 'l':
    case 'L':
    case 'd':
    case 'T': *size = 8; break;
    case 'S':
    case 'x':
    case 'A':
    case 'F': {
      uint64_t length = left < 4 ? left : sb_value_big_endian(p->at + at, 4);
      if (length > UINT32_MAX - 4) return false;
      *size = 4 + (uint32_t)length;
      break;
    }
    default: return false;
  }
  return *size <= left;
}

static sb_value double_of(uint64_t bits) {
  double number;
  memcpy(&number, &bits, sizeof number);
  return sb_value_double(number);
}

static sb_value float_of(uint32_t bits) {
  float number;
  memcpy(&number, &bits, sizeof number);
  return sb_value_double((double)number);
}

/* Powers of ten up to SB_MOST_DECIMAL_SCALE are doubles without an error, so that the quotient is the nearest double. */
static sb_value decimal_of(const uint8_t *at) {
  unsigned scale = sb_peek_byte(at);
  double power = 1;
  if (scale > SB_MOST_DECIMAL_SCALE) return sb_value_null();
  while (scale-- > 0) power *= 10;
  return sb_value_double((double)sb_value_big_endian(at + 1, 4) / power);
}

/* The value whose type letter is at `at` and whose content has `size` bytes. */
static sb_value decode(const uint8_t *at, uint8_t letter, uint32_t size) {
  const uint8_t *content = at + 1;
  uint64_t number = size <= 8 ? sb_value_big_endian(content, size) : 0;
  switch (letter) {
    case 'V': return sb_value_null();
    case 't': return sb_value_boolean(number != 0);
    case 'b': return sb_value_integer((int8_t)number);
    case 's': return sb_value_integer((int16_t)number);
    case 'I': return sb_value_integer((int32_t)number);
    case 'f': return float_of((uint32_t)number);
    case 'd': return double_of(number);
    case 'D': return decimal_of(content);
    case 'S': return sb_value_string(content + 4, size - 4);
    case 'x':
    case 'A':
    case 'F': return (sb_value){.kind = SB_VALUE_OTHER, .at = at, .length = size + 1};
    default: return sb_value_integer((int64_t)number); /* B, u, i: unsigned; l, L, T: of 64 bits */
  }
}

static bool is_name(const uint8_t *at, const uint8_t *name, unsigned length) {
  for (unsigned i = 0; i < length; i++) {
    if (sb_peek_byte(at + i) != name[i]) return false;
  }
  return true;
}

bool sb_properties_open(sb_properties *p) {
  uint32_t at, size;
  if (!sb_properties_find(p, SB_PROPERTY_HEADERS, &at, &size)) return false;
  p->table = size == 0 ? at : at + 4;
  p->table_end = at + size;
  return true;
}

bool sb_properties_next(const sb_properties *p, uint32_t at, sb_header_place *h) {
  uint32_t end = p->table_end, size;
  unsigned length = sb_peek_byte(p->at + at);
  if (end - at < 2 + length) return false; /* no room for the name and a type letter */
  h->name = p->at + at + 1;
  h->name_length = length;
  h->value = at + 1 + length;
  h->letter = sb_peek_byte(p->at + h->value);
  if (!size_of_value(p, h->letter, h->value + 1, end, &size)) return false;
  h->end = h->value + 1 + size;
  return true;
}

bool sb_properties_header(sb_properties *p, const uint8_t *name, unsigned name_length, sb_value *v) {
  sb_header_place h;
  *v = sb_value_null();
  if (p->table == 0 && !sb_properties_open(p)) return false;
  for (uint32_t at = p->table; at < p->table_end; at = h.end) {
    if (!sb_properties_next(p, at, &h)) return false;
    if (h.name_length == name_length && is_name(h.name, name, name_length)) {
      *v = decode(p->at + h.value, h.letter, h.end - h.value - 1);
      return true;
    }
  }
  return true;
}
