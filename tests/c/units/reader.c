// SPDX-License-Identifier: Apache-2.0
/* sb_reader: a body that is read in place by an actor that knows only its slot and its generation. The slot is in a
 * chunk that no other actor has opened. */
#include "sb_reader.h"

#include <string.h>

#include "calls.h"
#include "cases.h"
#include "meanwhile.h"
#include "sb_parts.h"

#define CHUNK 8u
#define UNITS 32u /* of the slot */
#define ROOM (UNITS * SB_UNIT)
#define SLOT (CHUNK * SB_CHUNK_UNITS + UNITS)
#define GEN 77u
#define LONG (SB_INLINE_BODY + 1u)
#define ANOTHER 55u /* a connection */

static uint64_t token;
static char body[ROOM];

static sb_message_shm *message(void) { return sb_slot_at(t.b, SLOT); }
static uint64_t header(void) { return SB_LOAD(sb_slot_header(t.b, SLOT), SB_RELAXED); }
static void set_header(unsigned state, uint64_t refs) {
  SB_STORE(sb_slot_header(t.b, SLOT), sb_slot_word(state, refs, GEN), SB_RELAXED);
}
static void set_chunk(unsigned state, unsigned cls) {
  SB_STORE(&t.b->chunks[CHUNK], sb_chunk_word(state, 0, cls, 0), SB_RELAXED);
}
static void publish(uint64_t length) {
  grow_to(CHUNK);
  set_chunk(SB_CHUNK_CLASS, sb_class_for(t.b, ROOM));
  memset(sb_slot_at(t.b, SLOT), 0, ROOM);
  *message() = (sb_message_shm){.body_length = length, .body_offset = ROOM - (uint32_t)length, .targets = 1};
  for (uint64_t i = 0; i < length; i++) ((char *)message())[ROOM - length + i] = (char)(i * 7 + 1);
  set_header(SB_SLOT_PUBLISHED, 1);
}
static uint64_t next_holding(void) {
  uint64_t next;
  if (sb_holding_take(t.c, &next) != SB_OK) die("sb_holding_take", 0);
  sb_holding_give(t.c, next);
  return next;
}
static void expect_begin(sb_status should, const char *what) {
  uint64_t next = next_holding(), before = header();
  expect_is(sb_reader_begin(t.c, SLOT, GEN, &token), should, what);
  expect_is(next_holding(), next, what);
  expect_is(header(), before, what);
}

static void a_reader_has_the_slot(void) {
  publish(LONG);
  set_header(SB_SLOT_PUBLISHED, 5);
  expect_is(sb_reader_begin(t.c, SLOT, GEN, &token), SB_OK, "the status");
  expect_is(header(), sb_slot_word(SB_SLOT_READ, 5 | SB_FIELD(t.c->id, SB_READ_REFS), GEN), "the header");
  const sb_holding_shm *h = sb_holding_at(t.b, token);
  expect_is(SB_LOAD(&h->what, SB_RELAXED), sb_holding_what(SB_HOLD_VIEW, SLOT, GEN), "the holding");
  expect_is(SB_LOAD(&h->where, SB_RELAXED), SB_REF_READER | SB_FIELD(GEN, 8), "where it is");
  expect_begin(SB_IN_USE, "the status of a second reader");
  sb_reader_end(t.b, SLOT, GEN, t.c->id);
  expect_is(header(), sb_slot_word(SB_SLOT_PUBLISHED, 5, GEN), "the header when it ended");
}
/* It was settled while it was read: its reader frees it. */
static void the_last_one_frees(void) {
  publish(LONG);
  set_header(SB_SLOT_READ, SB_FIELD(t.c->id, SB_READ_REFS));
  sb_reader_end(t.b, SLOT, GEN, t.c->id);
  expect_is(header(), sb_slot_word(SB_SLOT_FREE, 0, GEN + 1), "the header");
}
static void what_a_reader_has_not(void) {
  publish(LONG);
  const uint64_t words[] = {sb_slot_word(SB_SLOT_READ, 1 | SB_FIELD(ANOTHER, SB_READ_REFS), GEN),
                            sb_slot_word(SB_SLOT_READ, 1 | SB_FIELD(t.c->id, SB_READ_REFS), GEN + 1),
                            sb_slot_word(SB_SLOT_PUBLISHED, 1 | SB_FIELD(t.c->id, SB_READ_REFS), GEN),
                            sb_slot_word(SB_SLOT_ALLOC, SB_FIELD(t.c->id, SB_READ_REFS), GEN)};
  for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
    SB_STORE(sb_slot_header(t.b, SLOT), words[i], SB_RELAXED);
    sb_reader_end(t.b, SLOT, GEN, t.c->id);
    expect_is(header(), words[i], "the header");
  }
}

/* Short bodies are copied, and those with more references than fit beside a reader's number. */
static void which_bodies_are_copied(void) {
  publish(SB_INLINE_BODY);
  expect_begin(SB_IN_USE, "a body that is not long");
  publish(LONG);
  set_header(SB_SLOT_PUBLISHED, 1u << SB_READ_REFS);
  expect_begin(SB_IN_USE, "a body with a high reference");
  set_header(SB_SLOT_PUBLISHED, 1);
  message()->targets = SB_READ_TARGETS + 1;
  expect_begin(SB_IN_USE, "a body of five queues");
  message()->targets = SB_READ_TARGETS;
  set_header(SB_SLOT_PUBLISHED, 1u << (SB_READ_REFS - 1));
  expect_is(sb_reader_begin(t.c, SLOT, GEN, &token), SB_OK, "a body of four queues");
}

/* A slot that a caller names may be anything by now. */
static void expect_gone(uint32_t slot, uint64_t gen, const char *what) {
  uint64_t next = next_holding();
  expect_is(sb_reader_begin(t.c, slot, gen, &token), SB_SETTLED, what);
  expect_is(next_holding(), next, what);
  expect_is(sb_reader_copy(t.b, slot, gen, body, LONG), SB_SETTLED, what);
}
static void what_is_gone(void) {
  unsigned cls = sb_class_for(t.b, ROOM);
  publish(LONG);
  expect_gone(SLOT, GEN + 1, "another message");
  expect_gone(SLOT + 1, GEN, "what is no slot");
  expect_gone(BROKER_CHUNKS * SB_CHUNK_UNITS, GEN, "a slot behind the last");
  expect_gone((BROKER_CHUNKS - 1) * SB_CHUNK_UNITS, GEN, "a slot whose segment was not made");
  set_header(SB_SLOT_ALLOC, 1);
  expect_gone(SLOT, GEN, "a message that is not published");
  set_header(SB_SLOT_PUBLISHED, 1);
  set_chunk(SB_CHUNK_FREE, cls);
  expect_gone(SLOT, GEN, "a slot of a chunk that is free");
  uint32_t first = CHUNK * SB_CHUNK_UNITS;
  SB_STORE(sb_slot_header(t.b, first), header(), SB_RELAXED);
  for (unsigned kind = 1; kind < SB_KIND_COUNT; kind++) {
    set_chunk(SB_CHUNK_CLASS, SB_MESSAGE_CLASSES + kind);
    expect_gone(first, GEN, "a slot of structures");
  }
  SB_STORE(&t.b->chunks[0], sb_chunk_word(SB_CHUNK_CLASS, 0, cls, 0), SB_RELAXED);
  SB_STORE(sb_slot_header(t.b, 0), header(), SB_RELAXED);
  memcpy(sb_slot_at(t.b, 0), message(), ROOM);
  expect_gone(0, GEN, "slot 0");
}
/* A run of chunks has no class; the longest class is one of messages. */
static void where_messages_lie(void) {
  publish(LONG);
  uint32_t first = CHUNK * SB_CHUNK_UNITS;
  *(sb_message_shm *)sb_slot_at(t.b, first) = *message();
  SB_STORE(sb_slot_header(t.b, first), header(), SB_RELAXED);
  set_chunk(SB_CHUNK_CLASS, SB_MESSAGE_CLASSES);
  expect_is(sb_reader_begin(t.c, first, GEN, &token), SB_OK, "a slot of the longest class");
  sb_reader_end(t.b, first, GEN, t.c->id);
  SB_STORE(&t.b->chunks[CHUNK], sb_chunk_word(SB_CHUNK_RUN, 0, SB_MESSAGE_CLASSES + 1, 1), SB_RELAXED);
  expect_is(sb_reader_begin(t.c, first, GEN, &token), SB_OK, "a run");
}
static void no_holding_for_a_reader(void) {
  publish(LONG);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    grow_to(i);
    if (sb_chunk_state(SB_LOAD(&t.b->chunks[i], SB_RELAXED)) == SB_CHUNK_FREE)
      SB_STORE(&t.b->chunks[i], sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_RELAXED);
  }
  while (sb_holding_take(t.c, &token) == SB_OK) {
  }
  expect_is(sb_reader_begin(t.c, SLOT, GEN, &token), SB_NO_MEMORY, "the status");
  expect_is(sb_reader_begin(t.c, SLOT, GEN + 1, &token), SB_SETTLED, "the status of a message that is gone");
  expect_is(header(), sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN), "the header");
}

static void expect_copy(uint64_t length, sb_status should, const char *what) {
  memset(body, 0, sizeof body);
  expect_is(sb_reader_copy(t.b, SLOT, GEN, body, length), should, what);
}
static void a_body_is_copied(void) {
  publish(LONG);
  expect_copy(LONG, SB_OK, "a body that ends with its slot");
  expect(memcmp(body, (char *)message() + ROOM - LONG, LONG) == 0 && body[LONG] == 0, "other bytes were copied");
  expect_copy(LONG - 1, SB_SETTLED, "a body of another length");
  message()->body_offset++;
  expect_copy(LONG, SB_SETTLED, "a body that reaches behind its slot");
  message()->body_offset = ROOM + 1;
  expect_copy(LONG, SB_SETTLED, "a body behind its slot");
  publish(0);
  expect_copy(0, SB_OK, "a body without bytes, at the end of its slot");
  expect_copy(1, SB_SETTLED, "a byte of none");
  set_header(SB_SLOT_READ, 1 | SB_FIELD(ANOTHER, SB_READ_REFS));
  expect_copy(0, SB_OK, "a body that somebody reads");
}
/* Names and properties stand in front of the body, in the parts. */
static void a_body_in_parts_is_copied(void) {
  uint32_t part = SLOT + UNITS;
  publish(0);
  sb_parts_begin(t.c, SLOT, GEN);
  sb_parts_add(t.b, SLOT, GEN, part, 5);
  sb_parts_write(t.b, SLOT, 0, "exkeypropbody", 13);
  *message() = (sb_message_shm){.body_length = 4,
                                .body_offset = ROOM,
                                .targets = 1,
                                .flags = SB_MESSAGE_IN_PARTS,
                                .exchange_length = 2,
                                .key_length = 3,
                                .properties_length = 4};
  set_header(SB_SLOT_PUBLISHED, 1 | UINT64_C(1) << SB_PARTS_REF);
  expect_copy(4, SB_OK, "a body in parts");
  expect(memcmp(body, "body", 5) == 0, "other bytes were copied");
  expect_copy(5, SB_SETTLED, "a body of another length, in parts");
  message()->body_length = ROOM;
  expect_copy(ROOM, SB_SETTLED, "a body whose parts end before");
}

/* ---- what other connections do meanwhile ---- */

static void a_slot_that_is_not_mapped(void) {
  publish(LONG);
  SB_STORE(&t.b->mapped_chunks, CHUNK, SB_RELAXED);
  expect_begin(SB_SETTLED, "the status of a slot that is not mapped");
}
static void drop_one_of_two(void) { set_header(SB_SLOT_PUBLISHED, 4); }
static void drop_one_beside_the_reader(void) { set_header(SB_SLOT_READ, 4 | SB_FIELD(t.c->id, SB_READ_REFS)); }
static void references_that_are_dropped(void) {
  publish(LONG);
  set_header(SB_SLOT_PUBLISHED, 5);
  meanwhile(sb_slot_header(t.b, SLOT), BEFORE_CAS, 1, drop_one_of_two);
  expect_is(sb_reader_begin(t.c, SLOT, GEN, &token), SB_OK, "the status");
  if (!has_acted()) return;
  expect_is(header(), sb_slot_word(SB_SLOT_READ, 4 | SB_FIELD(t.c->id, SB_READ_REFS), GEN), "the header");
  set_header(SB_SLOT_READ, 5 | SB_FIELD(t.c->id, SB_READ_REFS));
  meanwhile(sb_slot_header(t.b, SLOT), BEFORE_CAS, 1, drop_one_beside_the_reader);
  sb_reader_end(t.b, SLOT, GEN, t.c->id);
  if (has_acted()) expect_is(header(), sb_slot_word(SB_SLOT_PUBLISHED, 4, GEN), "the header when it ended");
}
static void fill_it_anew(void) {
  SB_STORE(sb_slot_header(t.b, SLOT), sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN + 1), SB_RELAXED);
}
static void a_slot_that_is_filled_while_it_is_copied(void) {
  static char to[LONG];
  publish(LONG);
  meanwhile(sb_slot_header(t.b, SLOT), AFTER_LOAD, 1, fill_it_anew);
  sb_status status = sb_reader_copy(t.b, SLOT, GEN, to, LONG);
  if (has_acted()) expect_is(status, SB_SETTLED, "the status");
}

static const test_case CASES[] = {
    {"reader: begun", "a reader has the slot, in its header and in a holding, until he ends", a_reader_has_the_slot},
    {"reader: last", "a reader frees what was settled meanwhile", the_last_one_frees},
    {"reader: not his", "what a reader does not have is left alone", what_a_reader_has_not},
    {"reader: copied", "short bodies and those with many references are copied", which_bodies_are_copied},
    {"reader: gone", "what is no message of that generation is settled", what_is_gone},
    {"reader: where", "messages lie in slots of their classes, and in runs", where_messages_lie},
    {"reader: no holding", "without a holding nobody reads", no_holding_for_a_reader},
    {"reader: copy", "a copy is the whole body, or none", a_body_is_copied},
    {"reader: copy in parts", "of parts the body is copied, without what stands in front", a_body_in_parts_is_copied},
    {"reader: not mapped", "a slot that is not mapped is not read", a_slot_that_is_not_mapped},
    {"reader: dropped", "references are dropped beside a reader", references_that_are_dropped},
    {"reader: filled", "a copy of another message is none", a_slot_that_is_filled_while_it_is_copied},
};
SUBJECT(CASES)
