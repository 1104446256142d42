// SPDX-License-Identifier: Apache-2.0
/* sb_properties: properties and headers where they are stored, also where each byte of them was damaged. */
#include "selecting.h"

#include <math.h>
#include <string.h>

static sb_value property(const coded *c, unsigned which) {
  sb_value v = {.kind = SB_VALUE_OTHER};
  sb_properties p = stored(c);
  expect(sb_properties_read(&p, which, &v), "property %u is damaged", which);
  return v;
}
static sb_value header(const coded *c, const char *name) {
  sb_value v = {.kind = SB_VALUE_OTHER};
  sb_properties p = stored(c);
  expect(sb_properties_header(&p, (const uint8_t *)name, (unsigned)strlen(name), &v), "header %s is damaged", name);
  return v;
}
static void expect_text(sb_value v, const char *should, const char *what) {
  expect_is(v.kind, SB_VALUE_STRING, what);
  expect(v.kind == SB_VALUE_STRING && v.length == strlen(should) && memcmp(v.at, should, v.length) == 0,
         "%s is another text than %s", what, should);
}
static void expect_integer(sb_value v, int64_t should, const char *what) {
  expect_is(v.kind, SB_VALUE_INTEGER, what);
  expect_is(v.is.integer, should, what);
}
static void expect_double(sb_value v, double should, const char *what) {
  expect_is(v.kind, SB_VALUE_DOUBLE, what);
  expect(v.is.number == should, "%s is %g, not %g", what, v.is.number, should);
}
static void expect_null(sb_value v, const char *what) { expect_is(v.kind, SB_VALUE_NULL, what); }

#define HEADER(c, name, value) add_header(c, name, value, sizeof(value) - 1)

/* All fourteen, of which the headers have two. */
static coded all_properties(void) {
  coded c = properties_of(0xfffc);
  text_property(&c, "content type");
  text_property(&c, "encoding");
  uint32_t begun = begin_headers(&c);
  HEADER(&c, "a", "S\0\0\0\2xy");
  HEADER(&c, "b", "b\xff");
  end_headers(&c, begun);
  append(&c, "\2\7", 2); /* delivery mode, priority */
  text_property(&c, "correlation");
  text_property(&c, "");
  text_property(&c, "60000");
  text_property(&c, "id");
  append(&c, "\0\0\0\0\x65\0\0\0", 8);
  text_property(&c, "type");
  text_property(&c, "user");
  text_property(&c, "app");
  text_property(&c, "cluster");
  return c;
}

static void each_property(void) {
  coded c = all_properties();
  expect_text(property(&c, SB_PROPERTY_CONTENT_TYPE), "content type", "content_type");
  expect_text(property(&c, SB_PROPERTY_CONTENT_ENCODING), "encoding", "content_encoding");
  expect_integer(property(&c, SB_PROPERTY_DELIVERY_MODE), 2, "delivery_mode");
  expect_integer(property(&c, SB_PROPERTY_PRIORITY), 3, "the priority of the message");
  expect_text(property(&c, SB_PROPERTY_CORRELATION_ID), "correlation", "correlation_id");
  expect_text(property(&c, SB_PROPERTY_REPLY_TO), "", "reply_to");
  expect_text(property(&c, SB_PROPERTY_EXPIRATION), "60000", "expiration");
  expect_text(property(&c, SB_PROPERTY_MESSAGE_ID), "id", "message_id");
  expect_integer(property(&c, SB_PROPERTY_TIMESTAMP), 0x65000000, "timestamp");
  expect_text(property(&c, SB_PROPERTY_TYPE), "type", "type");
  expect_text(property(&c, SB_PROPERTY_USER_ID), "user", "user_id");
  expect_text(property(&c, SB_PROPERTY_APP_ID), "app", "app_id");
  expect_text(property(&c, SB_PROPERTY_CLUSTER_ID), "cluster", "cluster_id");
  expect_integer(property(&c, SB_PROPERTY_JMS_TIMESTAMP), INT64_C(0x65000000) * 1000, "JMSTimestamp");
  expect_text(property(&c, SB_PROPERTY_JMS_DELIVERY_MODE), "PERSISTENT", "JMSDeliveryMode");
  expect_text(header(&c, "a"), "xy", "the first header");
  expect_integer(header(&c, "b"), -1, "the second header");
  expect_null(header(&c, "c"), "a header that is not there");
}
/* Without a property, and without any. */
static void properties_that_are_not_set(void) {
  coded none = {.length = 0}, some = properties_of(FLAG(SB_PROPERTY_APP_ID));
  text_property(&some, "app");
  for (unsigned i = 0; i < SB_PROPERTIES; i++) {
    if (i == SB_PROPERTY_PRIORITY || i == SB_PROPERTY_HEADERS || i >= SB_PROPERTY_JMS_TIMESTAMP) continue;
    expect_null(property(&none, i), "a property of none");
    if (i != SB_PROPERTY_APP_ID) expect_null(property(&some, i), "a property that is not set");
  }
  expect_text(property(&some, SB_PROPERTY_APP_ID), "app", "the property that is set");
  expect_integer(property(&none, SB_PROPERTY_PRIORITY), 3, "the priority of the message");
  expect_integer(property(&none, SB_PROPERTY_JMS_TIMESTAMP), 5000, "the time of the publish in milliseconds");
  expect_text(property(&none, SB_PROPERTY_JMS_DELIVERY_MODE), "NON_PERSISTENT", "JMSDeliveryMode");
  expect_null(header(&none, "a"), "a header of none");
  expect_null(header(&some, "a"), "a header of properties without headers");
  coded late = properties_of(FLAG(SB_PROPERTY_TIMESTAMP));
  append(&late, "\x7f\xff\xff\xff\xff\xff\xff\xff", 8);
  expect_null(property(&late, SB_PROPERTY_JMS_TIMESTAMP), "a time whose milliseconds 64 bits do not hold");
}
static void each_type_of_a_header(void) {
  coded c = properties_of(FLAG(SB_PROPERTY_HEADERS));
  uint32_t begun = begin_headers(&c);
  HEADER(&c, "V", "V");
  HEADER(&c, "t0", "t\0");
  HEADER(&c, "t1", "t\1");
  HEADER(&c, "b", "b\x80");
  HEADER(&c, "B", "B\xff");
  HEADER(&c, "s", "s\x80\0");
  HEADER(&c, "u", "u\xff\xff");
  HEADER(&c, "I", "I\x80\0\0\0");
  HEADER(&c, "i", "i\xff\xff\xff\xff");
  HEADER(&c, "l", "l\x80\0\0\0\0\0\0\1");
  HEADER(&c, "L", "L\xff\xff\xff\xff\xff\xff\xff\xfe");
  HEADER(&c, "T", "T\0\0\0\0\0\0\1\2");
  HEADER(&c, "f", "f\x3f\0\0\0");
  HEADER(&c, "d", "d\xbf\xf8\0\0\0\0\0\0");
  HEADER(&c, "D", "D\2\0\0\0\x96");
  HEADER(&c, "D22", "D\x16\0\0\0\1");
  HEADER(&c, "D23", "D\x17\0\0\0\1");
  HEADER(&c, "S", "S\0\0\0\3abc");
  HEADER(&c, "x", "x\0\0\0\2ab");
  HEADER(&c, "A", "A\0\0\0\2t\1");
  HEADER(&c, "F", "F\0\0\0\0");
  HEADER(&c, "", "t\1");
  HEADER(&c, "twice", "b\1");
  HEADER(&c, "twice", "b\2");
  end_headers(&c, begun);
  expect_null(header(&c, "V"), "V");
  expect_is(header(&c, "t0").is.boolean, false, "t of 0");
  expect_is(header(&c, "t1").is.boolean, true, "t of 1");
  expect_is(header(&c, "t1").kind, SB_VALUE_BOOLEAN, "the type of t");
  expect_integer(header(&c, "b"), INT8_MIN, "b");
  expect_integer(header(&c, "B"), UINT8_MAX, "B");
  expect_integer(header(&c, "s"), INT16_MIN, "s");
  expect_integer(header(&c, "u"), UINT16_MAX, "u");
  expect_integer(header(&c, "I"), INT32_MIN, "I");
  expect_integer(header(&c, "i"), UINT32_MAX, "i");
  expect_integer(header(&c, "l"), INT64_MIN + 1, "l");
  expect_integer(header(&c, "L"), -2, "L");
  expect_integer(header(&c, "T"), 258, "T");
  expect_double(header(&c, "f"), 0.5, "f");
  expect_double(header(&c, "d"), -1.5, "d");
  expect_double(header(&c, "D"), 1.5, "D");
  expect_double(header(&c, "D22"), 1e-22, "a decimal of the highest scale");
  expect_null(header(&c, "D23"), "a decimal of a higher scale");
  expect_text(header(&c, "S"), "abc", "S");
  for (const char *other = "xAF"; *other != 0; other++) {
    sb_value v = header(&c, (const char[]){*other, 0});
    expect_is(v.kind, SB_VALUE_OTHER, "the type of bytes, an array or a table");
    expect_is(v.length, *other == 'F' ? 5 : 7, "its length");
    expect_is(*v.at, *other, "its type letter");
  }
  expect_is(header(&c, "").kind, SB_VALUE_BOOLEAN, "a header without a name");
  expect_integer(header(&c, "twice"), 1, "the first header of a name");
}

/* ---- damage ---- */

/* Reads everything. Whatever the bytes are, each read ends, and ends within them. */
static unsigned read_all(const coded *c, uint32_t length) {
  static const char *const names[] = {"a", "b", "none"};
  unsigned sound = 0;
  sb_value v;
  sb_properties p = stored(c);
  p.at = guarded(0, c, length);
  p.length = length;
  for (unsigned i = 0; i < SB_PROPERTIES; i++) {
    if (i != SB_PROPERTY_HEADERS) sound += sb_properties_read(&p, i, &v);
    if (v.kind == SB_VALUE_STRING && v.length > 0 && i < SB_PROPERTY_JMS_TIMESTAMP) sound += v.at[v.length - 1] == 'Z';
  }
  for (unsigned i = 0; i < 3; i++) {
    bool good = sb_properties_header(&p, (const uint8_t *)names[i], (unsigned)strlen(names[i]), &v);
    if (good && v.kind >= SB_VALUE_STRING && v.length > 0) sound += v.at[v.length - 1] == 'Z';
    sound += good;
  }
  return sound;
}
static void properties_that_are_cut_off(void) {
  const coded c = all_properties();
  unsigned whole = read_all(&c, c.length), before = 0;
  expect_is(whole, SB_PROPERTIES - 1 + 3, "what can be read of all");
  for (uint32_t length = 1; length < c.length; length++) {
    unsigned sound = read_all(&c, length);
    expect(sound >= before && sound < whole, "%u of %u can be read of %u bytes", sound, whole, length);
    before = sound;
  }
  expect_is(read_all(&c, 1), 1, "what can be read of one byte"); /* the priority of the message */
}
static void each_byte_that_is_damaged(void) {
  const coded whole = all_properties();
  for (uint32_t at = 0; at < whole.length; at++) {
    for (unsigned byte = 0; byte < 256; byte++) {
      coded c = whole;
      c.bytes[at] = (uint8_t)byte;
      (void)read_all(&c, c.length);
    }
  }
}
static void random_bytes(void) {
  uint64_t state = 7;
  for (unsigned n = 0; n < 20000; n++) {
    coded c = all_properties();
    for (unsigned damages = 1 + n % 8; damages > 0; damages--) {
      state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      c.bytes[(state >> 33) % c.length] = (uint8_t)(state >> 56);
    }
    (void)read_all(&c, c.length - (uint32_t)(state >> 40) % 8);
  }
}
static void expect_damaged(const coded *c, const char *name, const char *what) {
  sb_value v;
  sb_properties p = stored(c);
  expect(!sb_properties_header(&p, (const uint8_t *)name, (unsigned)strlen(name), &v), "%s is not noticed", what);
}
static void damage_that_is_noticed(void) {
  sb_value v;
  coded c = properties_of(FLAG(SB_PROPERTY_HEADERS));
  uint32_t begun = begin_headers(&c);
  HEADER(&c, "a", "S\0\0\0\1x");
  HEADER(&c, "z", "Z\0\0\0\0\0\0\0\0");
  HEADER(&c, "b", "t\1");
  end_headers(&c, begun);
  expect_text(header(&c, "a"), "x", "a header in front of the damage");
  expect_damaged(&c, "z", "a type that does not exist");
  expect_damaged(&c, "b", "a type in front that does not exist");
  c.bytes[begun - 2] = 1; /* the table is said to be longer than the properties */
  expect_damaged(&c, "a", "a table that is too long");
  c = properties_of(FLAG(SB_PROPERTY_HEADERS));
  begun = begin_headers(&c);
  HEADER(&c, "a", "");
  end_headers(&c, begun);
  expect_damaged(&c, "a", "a name without a value");
  expect_damaged(&c, "b", "a last name without a value");
  for (unsigned flags = 1; flags <= 3; flags++) {
    c = properties_of(FLAG(SB_PROPERTY_APP_ID) | flags);
    text_property(&c, "app");
    sb_properties p = stored(&c);
    expect(!sb_properties_read(&p, SB_PROPERTY_APP_ID, &v), "flags without a property are not noticed");
  }
  c = properties_of(FLAG(SB_PROPERTY_HEADERS));
  append(&c, "\xff\xff\xff\xff", 4);
  expect_damaged(&c, "a", "the longest length");
  c = properties_of(FLAG(SB_PROPERTY_HEADERS));
  begun = begin_headers(&c);
  HEADER(&c, "a", "S\xff\xff\xff\xfe");
  end_headers(&c, begun);
  expect_damaged(&c, "a", "the longest string");
}

static const test_case CASES[] = {
    {"properties: each", "each property and header is found behind the others", each_property},
    {"properties: not set", "a property that is not set is NULL", properties_that_are_not_set},
    {"properties: types", "a header has the value of its type", each_type_of_a_header},
    {"properties: cut off", "properties that end too early are read as far as they go", properties_that_are_cut_off},
    {"properties: damaged", "no byte that is damaged leads out of the properties", each_byte_that_is_damaged},
    {"properties: random", "nor do several", random_bytes},
    {"properties: noticed", "damage in front of a value, or in it, is reported", damage_that_is_noticed},
};
SUBJECT(CASES)
