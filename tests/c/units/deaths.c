// SPDX-License-Identifier: Apache-2.0
/* sb_deaths: what the properties of a dead message become. */
#include "sb_deaths.h"

#include "selecting.h"

#define FRESH "\7x-deathA\0\0\0\0"
#define FRESH_BYTES ((uint32_t)sizeof FRESH - 1)
#define HEADER(c, name, value) add_header(c, name, value, sizeof(value) - 1)

static uint8_t written[8192];

/* Rewrites the properties, which lie in front of a page that cannot be read. Returns what was written. */
static sb_properties rewritten(const coded *c, bool drops_copies) {
  sb_death_past past;
  expect(sb_deaths_read(guarded(0, c, c->length), c->length, &past), "the properties are damaged");
  uint32_t length = sb_deaths_write(&past, FRESH, FRESH_BYTES, drops_copies, written);
  expect(length <= c->length + FRESH_BYTES + SB_DEATHS_MORE, "%u bytes were written", length);
  return (sb_properties){.at = written, .length = length};
}
static void expect_written(const coded *c, bool drops_copies, const coded *should) {
  sb_properties p = rewritten(c, drops_copies);
  expect(p.length == should->length && memcmp(p.at, should->bytes, p.length) == 0, "other properties were written");
}
static coded with_headers(unsigned flags) { return properties_of(flags | FLAG(SB_PROPERTY_HEADERS)); }

static void no_properties(void) {
  coded none = {.length = 0}, should = with_headers(0);
  uint32_t begun = begin_headers(&should);
  append(&should, FRESH, FRESH_BYTES);
  end_headers(&should, begun);
  expect_written(&none, false, &should);
  coded empty = properties_of(0);
  expect_written(&empty, false, &should);
}
/* Properties before and behind the headers stay, but for the expiration. */
static void with_properties(bool headers, bool expiration) {
  unsigned others = FLAG(SB_PROPERTY_CONTENT_TYPE) | FLAG(SB_PROPERTY_CONTENT_ENCODING) |
                    FLAG(SB_PROPERTY_DELIVERY_MODE) | FLAG(SB_PROPERTY_REPLY_TO) | FLAG(SB_PROPERTY_MESSAGE_ID);
  coded given = properties_of(others | (headers ? FLAG(SB_PROPERTY_HEADERS) : 0) |
                              (expiration ? FLAG(SB_PROPERTY_EXPIRATION) : 0)),
        should = with_headers(others);
  for (unsigned i = 0; i < 2; i++) {
    coded *c = i == 0 ? &given : &should;
    text_property(c, "type");
    text_property(c, "coding");
    if (headers || i == 1) {
      uint32_t begun = begin_headers(c);
      if (headers) HEADER(c, "n", "I\0\0\0\7");
      if (i == 1) append(c, FRESH, FRESH_BYTES);
      end_headers(c, begun);
    }
    append(c, "\2", 1);
    text_property(c, "reply");
    if (expiration && i == 0) text_property(c, "60000");
    text_property(c, "id");
  }
  expect_written(&given, false, &should);
}
static void properties_stay(void) {
  for (unsigned i = 0; i < 4; i++) with_properties(i % 2, i / 2);
}

static const char *const TOLD[] = {"x-death",
                                   "x-last-death-reason",
                                   "x-last-death-queue",
                                   "x-last-death-exchange",
                                   "x-first-death-reason",
                                   "x-first-death-exchange"};
/* Headers that tell of earlier deaths, and others between them. */
static coded told(bool first) {
  coded c = with_headers(0);
  uint32_t begun = begin_headers(&c);
  HEADER(&c, "a", "V");
  for (unsigned i = 0; i < sizeof TOLD / sizeof *TOLD; i++) HEADER(&c, TOLD[i], "S\0\0\0\3old");
  HEADER(&c, "CC", "A\0\0\0\0");
  HEADER(&c, "x-deaths", "V");
  if (first) HEADER(&c, "x-first-death-queue", "S\0\0\0\1q");
  HEADER(&c, "z", "V");
  end_headers(&c, begun);
  return c;
}
static void earlier_deaths_go(void) {
  for (unsigned i = 0; i < 4; i++) {
    bool first = i % 2, drops = i / 2;
    coded given = told(first), should = with_headers(0);
    uint32_t begun = begin_headers(&should);
    HEADER(&should, "a", "V");
    if (first) HEADER(&should, TOLD[4], "S\0\0\0\3old");
    if (first) HEADER(&should, TOLD[5], "S\0\0\0\3old");
    if (!drops) HEADER(&should, "CC", "A\0\0\0\0");
    HEADER(&should, "x-deaths", "V");
    if (first) HEADER(&should, "x-first-death-queue", "S\0\0\0\1q");
    HEADER(&should, "z", "V");
    append(&should, FRESH, FRESH_BYTES);
    end_headers(&should, begun);
    expect_written(&given, drops, &should);
  }
}
static void the_past(void) {
  coded c = told(true);
  sb_death_past past;
  expect(sb_deaths_read(guarded(0, &c, c.length), c.length, &past), "the properties are damaged");
  expect(past.has_first, "the first death is not found");
  expect_is(past.deaths.bytes, 8, "the bytes of x-death");
  expect(memcmp(past.all.at + past.deaths.at, "S\0\0\0\3old", 8) == 0, "x-death is another value");
  expect_is(past.copies.bytes, 5, "the bytes of CC");
  expect_is(past.all.at[past.copies.at], 'A', "the type of CC");
  expect_is(past.expiration.bytes, 0, "the bytes of the expiration");
  coded none = {.length = 0};
  expect(sb_deaths_read(none.bytes, 0, &past), "no properties are damaged");
  expect(!past.has_first && past.deaths.bytes == 0 && past.copies.bytes == 0, "there is a past");
}
static void twice(const char *name) {
  coded c = with_headers(0);
  uint32_t begun = begin_headers(&c);
  HEADER(&c, name, "V");
  HEADER(&c, name, "V");
  end_headers(&c, begun);
  sb_death_past past;
  expect(!sb_deaths_read(guarded(0, &c, c.length), c.length, &past), "%s may come twice", name);
}
static void headers_that_come_twice(void) {
  twice("x-death");
  twice("CC");
}
/* Bytes that are missing are noticed where the walk needs them, or copied no further than there are some. */
static void cut_short(void) {
  coded c = told(true);
  for (uint32_t length = 1; length < c.length; length++) {
    sb_death_past past;
    expect(!sb_deaths_read(guarded(0, &c, length), length, &past), "the first %u bytes are enough", length);
  }
}
static void damaged(void) {
  coded sound = told(false);
  for (uint32_t at = 0; at < sound.length; at++) {
    for (unsigned bit = 0; bit < 8; bit++) {
      coded c = sound;
      c.bytes[at] ^= (uint8_t)(1u << bit);
      sb_death_past past;
      if (!sb_deaths_read(guarded(0, &c, c.length), c.length, &past)) continue;
      uint32_t length = sb_deaths_write(&past, FRESH, FRESH_BYTES, true, written);
      expect(length <= c.length + FRESH_BYTES + SB_DEATHS_MORE, "%u bytes were written", length);
    }
  }
}

static const test_case CASES[] = {
    {"deaths: no properties", "the copy has the new headers alone", no_properties},
    {"deaths: properties", "all properties stay but the expiration", properties_stay},
    {"deaths: earlier ones", "new headers replace those of earlier deaths, and the first death stays",
     earlier_deaths_go},
    {"deaths: past", "the past is what the new headers depend on", the_past},
    {"deaths: twice", "headers of deaths that come twice are left to Python", headers_that_come_twice},
    {"deaths: cut", "properties that are cut short are damaged", cut_short},
    {"deaths: damaged", "no damage leads out of the properties", damaged},
};
SUBJECT(CASES)
