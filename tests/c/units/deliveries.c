// SPDX-License-Identifier: Apache-2.0
/* sb_deliveries: the row of a channel, its given messages, and the memory of both. Tokens identify deliveries. */
#include "sb_deliveries.h"

#include <errno.h>

#include "cases.h"
#include "heap.h"

#define FIRST 8u /* places that the first delivery makes room for */
#define MOST (1u << 30)
#define MANY (1u << 19)
#define MIB ((size_t)1 << 20)

static sb_deliveries d;
static sb_queue *const Q = (sb_queue *)(void *)&d; /* never looked at */
static struct sb_member *const MEMBER = (struct sb_member *)(void *)&d.room;

static void pull(uint64_t token) {
  if (!sb_deliveries_reserve(&d)) die("sb_deliveries_reserve", 0);
  sb_deliveries_pulled(&d, token, Q, MEMBER);
}
static void pull_all(uint64_t first, uint64_t last) {
  for (uint64_t token = first; token <= last; token++) pull(token);
}
static void give_all(unsigned n) {
  for (unsigned i = 0; i < n; i++) (void)sb_deliveries_give(&d);
}
static sb_unacked *given(uint64_t tag) { return sb_deliveries_find(&d, tag); }

/* The tokens of a list, in both directions. */
static void expect_list(const sb_unacked_list *list, const char *what, unsigned n, const uint64_t *tokens) {
  uint32_t at = list->first;
  expect_is(list->count, n, what);
  for (unsigned i = 0; i < n; i++) {
    const sb_unacked *h = sb_deliveries_at(&d, at);
    if (h == NULL) {
      complain("%s: it ends after %u", what, i);
      return;
    }
    expect_is(h->token, tokens[i], what);
    at = h->next;
  }
  expect_is(at, 0, what);
  at = list->last;
  for (unsigned i = n; i-- > 0;) {
    const sb_unacked *h = sb_deliveries_at(&d, at);
    if (h == NULL) {
      complain("%s: it begins with the %u-th", what, i);
      return;
    }
    expect_is(h->token, tokens[i], what);
    at = h->previous;
  }
  expect_is(at, 0, what);
}
#define expect_row(n, ...) expect_list(&d.row, "the row", n, (const uint64_t[]){__VA_ARGS__})
#define expect_given(n, ...) expect_list(&d.given, "what was given", n, (const uint64_t[]){__VA_ARGS__})

static unsigned free_places(void) {
  unsigned n = 0;
  for (uint32_t at = d.free; at != 0 && n <= d.room; at = d.slots[at - 1].next) {
    expect_is(d.slots[at - 1].token | d.slots[at - 1].tag, 0, "what a free place says");
    n++;
  }
  return n;
}
static unsigned used_buckets(void) {
  unsigned n = 0;
  for (uint32_t i = 0; i < d.room; i++) n += d.table[i] != 0;
  return n;
}

/* ---- the row, and what was given ---- */

static void deliveries_are_given_in_order(void) {
  pull_all(101, 103);
  expect_row(3, 101, 102, 103);
  const sb_unacked *h = sb_deliveries_at(&d, d.row.first);
  expect(h->q == Q && h->of == MEMBER, "a delivery is of another queue or consumer");
  expect_is(h->tag, 0, "the tag of what waits");
  expect_is(used_buckets(), 0, "what the table says of the row");
  expect_is(sb_deliveries_give(&d), 1, "the first tag");
  expect_is(sb_deliveries_give(&d), 2, "the second tag");
  expect_row(1, 103);
  expect_given(2, 101, 102);
  expect_is(sb_deliveries_got(&d, 104, Q), 3, "the tag of what is given at once");
  expect_given(3, 101, 102, 104);
  expect(given(3)->of == NULL && given(3)->q == Q, "what was got is of a consumer");
  expect_is(given(1)->token, 101, "the delivery of a tag");
  expect_is(given(2)->token, 102, "the delivery of another tag");
  expect(given(4) == NULL && given(0) == NULL, "there is a delivery of no tag");
  expect_is(free_places(), 4, "free places");
  sb_deliveries_drop(&d, given(2));
  expect(given(2) == NULL, "what was dropped is found");
  expect_given(2, 101, 104);
  sb_deliveries_drop(&d, sb_deliveries_at(&d, d.row.first));
  expect_row(0, 0);
  expect_is(free_places(), 6, "free places after two were dropped");
  expect_is(sb_deliveries_got(&d, 105, Q), 4, "a tag after others were dropped");
}
static void what_is_taken_back_is_the_next_one(void) {
  pull_all(101, 104);
  give_all(4);
  sb_deliveries_take_back(&d, given(2));
  expect_is(d.last_tag, 4, "the last tag when another one was taken back");
  expect_row(1, 102);
  expect_given(3, 101, 103, 104);
  expect(given(2) == NULL, "what was taken back is found");
  expect_is(sb_deliveries_at(&d, d.row.first)->tag, 0, "its tag");
  sb_deliveries_take_back(&d, given(4));
  expect_is(d.last_tag, 3, "the last tag when it was taken back");
  expect_row(2, 104, 102);
  sb_deliveries_take_back(&d, given(1));
  expect_row(3, 101, 104, 102);
  expect_given(1, 103);
  expect_is(sb_deliveries_give(&d), 4, "the tag that was taken back");
  expect_is(given(4)->token, 101, "what has it now");
}
/* Whatever the tags have in common: the table is as long as the places, so some of a full one share a bucket. */
static void tags_are_found_in_any_pattern(void) {
  for (unsigned step = 1; step <= 64; step *= 2) {
    uint64_t tags[FIRST];
    for (unsigned i = 0; i < FIRST; i++) {
      d.last_tag = (uint64_t)i * step;
      if (!sb_deliveries_reserve(&d)) die("sb_deliveries_reserve", 0);
      tags[i] = sb_deliveries_got(&d, 100 + i, Q);
    }
    expect_is(d.room, FIRST, "the room of a full table");
    if (step == 1) expect(used_buckets() > 1, "tags in a row have one bucket");
    for (unsigned n = 0; n < FIRST; n++) {
      unsigned gone = (n * 5 + step) % FIRST;
      sb_deliveries_drop(&d, given(tags[gone]));
      tags[gone] = 0;
      for (unsigned i = 0; i < FIRST; i++) {
        if (tags[i] != 0) expect(given(tags[i]) != NULL && given(tags[i])->token == 100 + i, "a tag is not found");
      }
    }
    expect_is(used_buckets(), 0, "buckets of an empty table");
  }
}

/* ---- room ---- */

static void room_grows(void) {
  expect(given(1) == NULL, "there is a delivery before the first");
  expect(sb_deliveries_reserve(&d), "there is no room");
  expect_is(d.room, FIRST, "the first room");
  expect_is(free_places(), FIRST, "its free places");
  const sb_unacked *places = d.slots;
  pull_all(101, 108);
  give_all(3);
  expect(d.slots == places, "it was moved while there was room");
  expect_is(d.free, 0, "a free place");
  pull(109);
  expect_is(d.room, 2 * FIRST, "the room for one more");
  expect_is(free_places(), 7, "free places");
  expect_row(6, 104, 105, 106, 107, 108, 109);
  expect_given(3, 101, 102, 103);
  expect_is(given(2)->token, 102, "the delivery of a tag in another place");
  expect(given(2)->q == Q && given(2)->of == MEMBER, "its queue or consumer in another place");
  expect_is(d.last_tag, 3, "the last tag");
  sb_deliveries_free(&d);
  pull_all(101, 109);
  expect_is(used_buckets(), 0, "what the table says of a row that was moved");
}
static void room_shrinks(void) {
  pull_all(1, 64);
  give_all(32);
  expect_is(d.room, 64, "the room for 64");
  for (uint64_t tag = 1; tag <= 32; tag++) sb_deliveries_drop(&d, given(tag));
  for (unsigned i = 0; i < 24; i++) sb_deliveries_drop(&d, sb_deliveries_at(&d, d.row.first));
  const sb_unacked *places = d.slots;
  sb_deliveries_trim(&d);
  expect_is(d.room, 64, "the room when an eighth of it is used");
  expect(d.slots == places, "it was moved for nothing");
  give_all(5);
  sb_deliveries_drop(&d, given(33));
  sb_deliveries_trim(&d);
  expect_is(d.room, 32, "the room when less than an eighth was used");
  expect_row(3, 62, 63, 64);
  expect_given(4, 58, 59, 60, 61);
  expect_is(given(36)->token, 60, "the delivery of a tag");
  give_all(3);
  for (uint64_t tag = 34; tag <= 40; tag++) sb_deliveries_drop(&d, given(tag));
  sb_deliveries_trim(&d);
  expect_is(d.room, FIRST, "the room of nothing");
  places = d.slots;
  sb_deliveries_trim(&d);
  expect(d.slots == places, "the first room was moved");
  sb_deliveries_free(&d);
  expect(d.slots == NULL && d.table == NULL, "there is memory after it was freed");
  expect_is(d.room | d.free | d.row.count | d.given.count | d.row.first | d.given.last, 0, "what is left");
  expect_is(d.last_tag, 40, "the last tag");
  sb_deliveries_trim(&d);
  expect(d.slots == NULL, "nothing was made smaller");
}
static void grow_and_shrink(void) {
  pull_all(1, 100);
  give_all(50);
  while (d.row.count > 0) sb_deliveries_drop(&d, sb_deliveries_at(&d, d.row.first));
  while (d.given.count > 3) sb_deliveries_drop(&d, sb_deliveries_at(&d, d.given.first));
  sb_deliveries_trim(&d);
  sb_deliveries_free(&d);
}
static void memory_goes_back(void) { expect_is(heap_kept_by(grow_and_shrink), 0, "what is kept"); }

static void the_most_places(void) {
  d.room = MOST;
  (void)heap_limit(MIB);
  errno = 0;
  expect(!sb_deliveries_reserve(&d), "there is room for one more than the most");
  expect_is(errno, 0, "whether memory was asked for");
  d.room = 2 * MOST;
  expect(!sb_deliveries_reserve(&d), "there is room for twice the most");
  heap_unlimit();
  d.room = 0;
}
/* One of the two parts may have memory, and the other one not. */
static void without_memory_all_stays(void) {
  pull_all(1, MANY);
  give_all(MANY / 2);
  expect_is(d.room, MANY, "the room");
  const size_t places = 2 * (size_t)MANY * sizeof(sb_unacked), table = 2 * (size_t)MANY * sizeof(uint32_t);
  const size_t more[] = {places + table / 2, 2 * table, 0};
  for (unsigned i = 0; i < 3; i++) {
    const sb_unacked *before = d.slots;
    size_t used = heap_in_use();
    if (!heap_limit(more[i])) return;
    bool reserved = sb_deliveries_reserve(&d);
    heap_unlimit();
    expect(!reserved, "there is room without memory: %u", i);
    expect_is(heap_in_use(), used, "what is in use");
    expect(d.slots == before && d.room == MANY, "it was moved");
    expect_is(d.row.count + d.given.count, MANY, "what is held");
    expect_is(given(7)->token, 7, "the delivery of a tag");
  }
}

static const test_case CASES[] = {
    {"deliveries: order", "deliveries are given in order, each with the next tag", deliveries_are_given_in_order},
    {"deliveries: back", "what is taken back is the next one again", what_is_taken_back_is_the_next_one},
    {"deliveries: tags", "a tag is found among others of its bucket", tags_are_found_in_any_pattern},
    {"deliveries: grows", "all is kept when the room grows", room_grows},
    {"deliveries: shrinks", "the room shrinks when less than an eighth is used", room_shrinks},
    {"deliveries: memory", "memory goes back to the process", memory_goes_back},
    {"deliveries: most", "there is a most of places", the_most_places},
    {"deliveries: no memory", "all stays as it is when the process has no memory", without_memory_all_stays},
};
SUBJECT(CASES)
