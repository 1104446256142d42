// SPDX-License-Identifier: Apache-2.0
/* sb_api_get: which message headers are accepted, where a body is, and the record that a get writes. The cases write
 * the messages, in chunks that no other actor has opened. */
#include <string.h>

#include "cases.h"
#include "sb_api.h"
#include "surroundings.h"

#define CHUNK 20u
#define SLOT (CHUNK * SB_CHUNK_UNITS)
#define ROOM (128u * 1024u) /* bytes of the slot */
#define GEN 7u
#define HEADS 21u /* chunks of a head and its parts */
#define PARTS 22u
#define HEAD (HEADS * SB_CHUNK_UNITS)
#define PART (PARTS * SB_CHUNK_UNITS)
#define IN_PART (ROOM - sizeof(sb_part_shm))
#define FRONT sizeof(sb_message_shm)

static sb_message_shm *message;
static sb_taken taken;

static bool believed(void) { return sb_api_plausible(t.b, &taken); }
static void open_chunk(uint32_t chunk, uint64_t bytes) {
  grow_to(chunk);
  SB_STORE(&t.b->chunks[chunk], sb_chunk_word(SB_CHUNK_CLASS, 0, sb_class_for(t.b, bytes), 0), SB_RELAXED);
}
static void make(sb_message_shm header) {
  open_chunk(CHUNK, ROOM);
  message = sb_slot_at(t.b, SLOT);
  *message = header;
  SB_STORE(sb_slot_header(t.b, SLOT), sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN), SB_RELAXED);
  taken = (sb_taken){.slot = SLOT, .message = message, .gen = GEN};
}

static void a_message_in_one_piece(void) {
  make((sb_message_shm){.body_offset = FRONT, .body_length = ROOM - FRONT});
  expect(believed(), "a body that fills its slot is not believed");
  message->body_length++;
  expect(!believed(), "a body that is longer than its slot is believed");
  message->body_length = UINT64_MAX;
  expect(!believed(), "the longest body of all is believed");
  *message = (sb_message_shm){.body_offset = ROOM};
  expect(believed(), "an empty body at the end of its slot is not believed");
  message->body_offset++;
  expect(!believed(), "a body behind its slot is believed");
  *message = (sb_message_shm){.body_offset = FRONT - 1};
  expect(!believed(), "a body within the header is believed");
  taken.slot = SLOT + 1;
  *message = (sb_message_shm){.body_offset = FRONT};
  expect(!believed(), "what lies in no slot is believed");
}
static void the_names_of_one_piece(void) {
  make((sb_message_shm){.exchange_length = 1, .key_length = 2, .properties_length = 3, .body_offset = FRONT + 6});
  expect(believed(), "a body just behind the names is not believed");
  message->body_offset--;
  expect(!believed(), "a body within the names is believed");
  *message = (sb_message_shm){.exchange_length = SB_NAME_MAX, .body_offset = 1024};
  expect(believed(), "the longest name of an exchange is not believed");
  message->exchange_length++;
  expect(!believed(), "a longer name of an exchange is believed");
  *message = (sb_message_shm){.properties_length = SB_MAX_PREFIX - FRONT, .body_offset = SB_MAX_PREFIX + 64};
  expect(believed(), "the longest front is not believed");
  message->properties_length++;
  expect(!believed(), "a longer front is believed");
}

/* A head with that many parts. */
static void make_in_parts(unsigned parts, sb_message_shm header) {
  open_chunk(HEADS, 2 * SB_UNIT);
  open_chunk(PARTS, ROOM);
  message = sb_slot_at(t.b, HEAD);
  *message = header;
  message->flags = SB_MESSAGE_IN_PARTS;
  sb_parts_begin(t.c, HEAD, GEN);
  for (uint32_t i = 0; i < parts; i++) sb_parts_add(t.b, HEAD, GEN, PART + i * (ROOM / SB_UNIT), GEN);
  taken = (sb_taken){.slot = HEAD, .message = message, .gen = GEN};
}
static void a_message_in_parts(void) {
  make_in_parts(2, (sb_message_shm){.key_length = 5, .body_length = 2 * IN_PART - 5});
  expect(believed(), "a body that fills its parts is not believed");
  message->body_length++;
  expect(!believed(), "a body that is longer than its parts is believed");
  *message = (sb_message_shm){.flags = SB_MESSAGE_IN_PARTS, .exchange_length = SB_NAME_MAX};
  expect(believed(), "the longest name of an exchange is not believed");
  message->exchange_length++;
  expect(!believed(), "a longer name of an exchange is believed");
  *message = (sb_message_shm){.flags = SB_MESSAGE_IN_PARTS, .properties_length = SB_MAX_PREFIX - FRONT};
  expect(believed(), "the longest front is not believed");
  message->properties_length++;
  expect(!believed(), "a longer front is believed");
}
/* A row of parts that was damaged, and leads back, has room for everything. */
static void the_longest_message_in_parts(void) {
  make_in_parts(1, (sb_message_shm){.body_length = SB_MAX_BODY});
  ((sb_part_shm *)sb_slot_at(t.b, PART))->next = PART;
  expect(believed(), "the longest body is not believed");
  message->body_length++;
  expect(!believed(), "a longer body is believed");
}

static void where_a_body_lies(void) {
  make((sb_message_shm){.body_offset = 192});
  expect_is(sb_api_address(message), (uintptr_t)message + 192, "the address in one piece");
  message->flags = SB_MESSAGE_IN_PARTS;
  expect_is(sb_api_address(message), SB_IN_PARTS, "the address in parts");
}

/* ---- the record ---- */

static char buffer[BUFFER];
static const sb_record *record(void) { return (const sb_record *)(const void *)buffer; }
static const char *behind(void) { return buffer + sizeof(sb_record); }
static const sb_message_shm WHOLE = {.body_length = 4,
                                     .body_offset = FRONT + 16,
                                     .timestamp_ns = 11,
                                     .expires_ns = 12,
                                     .exchange_length = 1,
                                     .key_length = 2,
                                     .properties_length = 3,
                                     .priority = 9};

static void expect_record(uint64_t body_length, uint64_t address) {
  const sb_record *r = record();
  expect_is(r->tag, 77, "the tag");
  expect_is(r->sequence, 5, "the sequence");
  expect_is(r->body_length, body_length, "the length of the body");
  expect_is(r->body_address, address, "the address of the body");
  expect_is(r->timestamp_ns, 11, "the timestamp");
  expect_is(r->expires_ns, 12, "when it expires");
  expect_is(r->properties_length, 3, "the length of the properties");
  expect_is(r->key_length, 2, "the length of the key");
  expect_is(r->delivery_count, 6, "the delivery count");
  expect_is(r->marks, 1, "whether it was redelivered");
  expect_is(r->priority, 9, "the priority");
  expect_is(r->subscription, 8, "the subscription");
  expect_is(r->exchange_length, 1, "the length of the exchange");
  expect_is(r->settled, 0, "whether it is settled");
  expect(memcmp(behind(), "Ekkppp", 6) == 0, "other names follow");
}
static sb_queue *q;
static int64_t make_record(uint64_t side) {
  memset(buffer, 0x55, sizeof buffer);
  taken.position = q->base + 5;
  taken.side = side;
  return sb_api_record(q, &taken, 77, 8, buffer);
}
static void the_record_of_one_piece(void) {
  q = make_queue("q", (sb_settings)FREELY);
  make(WHOLE);
  memcpy(message + 1, "Ekkppp##########body", 20);
  expect_is(make_record(sb_side_word(GEN, 6, SB_SIDE_REDELIVERED)), sizeof(sb_record) + 6 + 4, "its length");
  expect_record(4, 0);
  expect(memcmp(behind() + 6, "bodyU", 5) == 0, "another body follows");
  (void)make_record(sb_side_word(GEN, 0, 0));
  expect_is(record()->marks, 0, "whether it was redelivered, the first time");
  message->body_length = SB_INLINE_BODY;
  expect_is(make_record(0), sizeof(sb_record) + 6 + SB_INLINE_BODY, "the length with the longest body inside");
  expect_is(record()->body_address, 0, "its address");
  message->body_length = SB_INLINE_BODY + 1;
  expect_is(make_record(sb_side_word(GEN, 6, SB_SIDE_REDELIVERED)), sizeof(sb_record) + 6, "its length without a body");
  expect_record(SB_INLINE_BODY + 1, (uintptr_t)message + WHOLE.body_offset);
  expect_is(behind()[6], 0x55, "what is behind it");
}
static void the_record_of_parts(void) {
  char body[SB_INLINE_BODY];
  q = make_queue("q", (sb_settings)FREELY);
  make_in_parts(2, WHOLE);
  memset(body, 'b', sizeof body);
  expect(sb_parts_write(t.b, HEAD, 0, "Ekkppp", 6) && sb_parts_write(t.b, HEAD, 6, body, sizeof body), "no parts");
  message->body_length = sizeof body;
  expect_is(make_record(sb_side_word(GEN, 6, SB_SIDE_REDELIVERED)), sizeof(sb_record) + 6 + sizeof body, "its length");
  expect_record(sizeof body, 0);
  expect(memcmp(behind() + 6, body, sizeof body) == 0 && behind()[6 + sizeof body] == 0x55, "another body follows");
  message->body_length++;
  expect_is(make_record(sb_side_word(GEN, 6, SB_SIDE_REDELIVERED)), sizeof(sb_record) + 6, "its length without a body");
  expect_record(sizeof body + 1, SB_IN_PARTS);
  ((sb_part_shm *)sb_slot_at(t.b, sb_parts_first(t.b, HEAD)))->head = 0;
  expect_is(make_record(0), -(int64_t)SB_CORRUPT, "the status of parts that broke");
}

static const test_case CASES[] = {
    {"api_get_record: one piece", "a body is believed that lies in its slot", a_message_in_one_piece},
    {"api_get_record: names", "names are believed that lie in front of the body", the_names_of_one_piece},
    {"api_get_record: parts", "a body in parts is believed that fits into them", a_message_in_parts},
    {"api_get_record: longest", "no body is longer than the longest", the_longest_message_in_parts},
    {"api_get_record: address", "the address of a body is that in its slot", where_a_body_lies},
    {"api_get_record: record", "a record says all of a message, and has a short body", the_record_of_one_piece},
    {"api_get_record: in parts", "the record of a message in parts says the same", the_record_of_parts},
};
SUBJECT(CASES)
