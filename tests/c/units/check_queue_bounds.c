// SPDX-License-Identifier: Apache-2.0
/* sb_check_queue: the longest messages, bodies of commits, limits of 0, and what is not counted because it was not
 * seen. */
#include <string.h>

#include "calls.h"
#include "cells.h"
#include "checkup.h"
#include "sb_parts.h"
#include "sb_nodes.h"
#include "sb_slab.h"

enum { NO_REFERENCE = 5 }; /* SB_LOST_BODY */
enum { TRACKING = 3 };     /* SB_BAD_HINT */
enum {
  TEXTS = 4,
  MESSAGE_TTL = 7,
  EXPIRES,
  ATTEMPTS,
  REDELIVERY_DELAY,
  MULTIPLIER,
  MAX_REDELIVERY_DELAY,
  COLLISION,
  EXPIRY_DELAY,
  MIN_EXPIRY_DELAY,
  MAX_EXPIRY_DELAY,
  RESUME_AT
};
#define LONG_CHUNK (BROKER_CHUNKS - 1) /* made of a case */
#define LONG_SLOT (LONG_CHUNK * SB_CHUNK_UNITS)
#define LONG_GEN 3u
#define MAX_PREFIX 65536u
#define FIRST at(0)

static sb_queue *q;

static void begin(unsigned messages) {
  q = begin_queue("q", UNLIMITED, messages);
  grow_to(LONG_CHUNK);
  start_checkup(t.b->mapped_chunks);
}
static void look(void) {
  forget_what_was_seen();
  sb_check_connections(&checkup);
  checkup.count = 0;
  sb_check_queue(&checkup, q->slot, false);
}
static void expect_sound(const char *what) {
  look();
  expect_no_finding(what);
}
static void expect_one(sb_finding should, const char *what) {
  look();
  expect_finding(should, what);
}
/* The first message lies in that slot. */
static sb_message_shm *move_to(uint32_t slot, uint64_t references) {
  SB_STORE(sb_slot_header(t.b, slot), sb_slot_word(SB_SLOT_PUBLISHED, references, LONG_GEN), SB_RELAXED);
  set_word(0, sb_cell_open(SB_CELL_AVAILABLE, slot, 0, leaf_of(0).gen));
  return sb_slot_at(t.b, slot);
}
static void count_bytes(uint64_t bytes) { SB_STORE(&q->ledger->counters[SB_COUNT_ADDED_BYTES], bytes, SB_RELAXED); }
static void expect_message(uint64_t found, uint64_t expected, const char *what) {
  expect_one((sb_finding){SB_BAD_MESSAGE, q->slot, LONG_SLOT, 0, 0, FIRST, found, expected}, what);
}

/* ---- the longest messages ---- */

/* A run that is longer than the broker: only its beginning is ever touched. */
static void the_longest_body(void) {
  begin(1);
  uint32_t run = (uint32_t)(SB_MAX_BODY / SB_CHUNK_BYTES) + 4;
  SB_STORE(&t.b->chunks[LONG_CHUNK], sb_chunk_word(SB_CHUNK_RUN, 0, 0, run), SB_RELAXED);
  SB_STORE(&t.b->mapped_chunks, LONG_CHUNK + run, SB_RELAXED);
  sb_message_shm *m = move_to(LONG_SLOT, 1);
  *m = (sb_message_shm){.body_offset = 4096, .body_length = SB_MAX_BODY};
  count_bytes(SB_MAX_BODY);
  expect_sound("the longest body");
  m->body_length++;
  expect_message(SB_MAX_BODY + 1, run * SB_CHUNK_BYTES - 4096, "a body that is too long");
}
/* A row of parts that bites its tail has room for more than a message may have. */
static void the_longest_message_in_parts(void) {
  uint32_t part = LONG_SLOT - SB_CHUNK_UNITS;
  begin(1);
  for (uint32_t i = 0; i < 2; i++)
    SB_STORE(&t.b->chunks[LONG_CHUNK - i], sb_chunk_word(SB_CHUNK_CLASS, 0, SB_MESSAGE_CLASSES, 0), SB_RELAXED);
  sb_parts_begin(t.c, LONG_SLOT, LONG_GEN);
  sb_parts_add(t.b, LONG_SLOT, LONG_GEN, part, LONG_GEN);
  ((sb_part_shm *)sb_slot_at(t.b, part))->next = part;
  sb_message_shm *m = move_to(LONG_SLOT, 1 | UINT64_C(1) << SB_PARTS_REF);
  *m = (sb_message_shm){.flags = SB_MESSAGE_IN_PARTS, .body_length = SB_MAX_BODY};
  uint64_t room = sb_parts_room(t.b, LONG_SLOT);
  expect(room > SB_MAX_BODY + MAX_PREFIX, "the parts are too short for the case");
  count_bytes(SB_MAX_BODY);
  expect_sound("the longest body in parts");
  m->key_length = MAX_PREFIX - (uint32_t)sizeof *m;
  expect_sound("the longest front in parts");
  m->key_length++;
  expect_message(SB_MAX_BODY + m->key_length, room, "a front that is too long, in parts");
  m->key_length = 0;
  m->body_length++;
  expect_message(SB_MAX_BODY + 1, room, "a body that is too long, in parts");
}

/* ---- bodies ---- */

/* A body that its owner has published needs the reference of its cell. */
static void a_body_of_a_commit(void) {
  begin(1);
  SB_STORE(&q->ledger->counters[SB_COUNT_ADDED], 0, SB_RELAXED);
  count_bytes(0);
  uint32_t slot = slot_of(0);
  sb_word *header = sb_slot_header(t.b, slot);
  uint64_t gen = sb_slot_gen(SB_LOAD(header, SB_RELAXED));
  set_cell(0, SB_CELL_STAGED, t.c->id);
  SB_STORE(header, sb_slot_word(SB_SLOT_ALLOC, t.c->id, gen), SB_RELAXED);
  expect_sound("a body that is prepared");
  expect_is(checkup.owned[t.c->id], 1, "the cells of this connection");
  const unsigned two = 2;
  set_cell(0, SB_CELL_STAGED, two);
  SB_STORE(header, sb_slot_word(SB_SLOT_PUBLISHED, two, gen), SB_RELAXED);
  expect_one((sb_finding){SB_LOST_BODY, q->slot, slot, NO_REFERENCE, 0, FIRST, 0, two},
             "a body that is published for another cell");
}
/* What is lost is not looked at closer. */
static void a_body_that_is_lost(void) {
  begin(1);
  set_references(0, 4);
  message_of(0)->body_offset = UINT32_MAX;
  expect_one((sb_finding){SB_LOST_BODY, q->slot, slot_of(0), NO_REFERENCE, 0, FIRST, 0, 4}, "a body without reference");
}

/* ---- texts ---- */

static void texts_beyond_their_room(void) {
  begin(0);
  q = open_new("texts", ((sb_settings){{-1, -1, -1, 0, -1, -1}, 0, 3, "abc"}));
  sb_long_queue_shm *shm = sb_slab_object(t.b, q->slot, SB_KIND_LONG_QUEUE);
  SB_STORE(&shm->texts_length, SB_TEXTS_MAX, SB_RELAXED);
  expect_sound("the longest texts");
  SB_STORE(&shm->texts_length, SB_TEXTS_MAX + 1, SB_RELAXED);
  expect_one((sb_finding){SB_BAD_QUEUE, q->slot, 0, TEXTS, 0, 0, SB_TEXTS_MAX + 1, SB_TEXTS_MAX},
             "texts that are longer than their room");
  SB_STORE(&shm->texts_length, 0, SB_RELAXED);
  expect_one((sb_finding){SB_BAD_QUEUE, q->slot, 0, TEXTS, 0, 0, 0, SB_TEXTS_MAX}, "a queue that lost its texts");
}

/* ---- messages that wait ---- */

/* The first message waits, for what its side record says. */
static void wait_for(uint64_t side) {
  set_word(0, sb_cell_open(SB_CELL_SCHEDULED, slot_of(0), 0, leaf_of(0).gen));
  SB_STORE(&cell(0)->side, side, SB_RELAXED);
  SB_STORE(&q->ledger->counters[SB_COUNT_SCHEDULED], 1, SB_RELAXED);
}
static void messages_that_wait(void) {
  begin(1);
  uint32_t slot = slot_of(0);
  for (unsigned why = SB_WHY_REJECTED; why <= SB_WHY_DELIVERY_LIMIT; why++) {
    wait_for(sb_side_why((sb_why)why));
    expect_sound("a dead message");
  }
  for (unsigned why = SB_WHY_DELIVERY_LIMIT + 1; why < 16; why++) {
    wait_for(sb_side_why((sb_why)why));
    expect_one((sb_finding){SB_BAD_CELL, q->slot, slot, 1, SB_RING_CELLS, FIRST, why, SB_WHY_DELIVERY_LIMIT},
               "a message that is dead for no reason that exists");
  }
  wait_for(sb_side_word(7, 1, SB_SIDE_DELAYED));
  expect_sound("a message that waits for its delay");
  wait_for(sb_side_word(7, 1, SB_SIDE_REDELIVERED));
  expect_one(
      (sb_finding){SB_BAD_CELL, q->slot, slot, 2, SB_RING_CELLS, FIRST, sb_side_word(7, 1, SB_SIDE_REDELIVERED), 0},
      "a message that waits for nothing");
  message_of(0)->due_ns = 5;
  expect_sound("a message that is due later");
}

/* ---- settings ---- */

static void settings_that_cannot_be(void) {
  const struct {
    unsigned setting, which;
    int64_t least, most;
  } cases[] = {
      {SB_SETTING_MESSAGE_TTL_MS, MESSAGE_TTL, 0, INT64_MAX},
      {SB_SETTING_EXPIRES_MS, EXPIRES, 1, INT64_MAX},
      {SB_SETTING_MAX_DELIVERY_ATTEMPTS, ATTEMPTS, 0, INT64_MAX},
      {SB_SETTING_REDELIVERY_DELAY_MS, REDELIVERY_DELAY, 0, INT64_MAX},
      {SB_SETTING_REDELIVERY_MULTIPLIER, MULTIPLIER, 0, 1000000},
      {SB_SETTING_MAX_REDELIVERY_DELAY_MS, MAX_REDELIVERY_DELAY, 0, INT64_MAX},
      {SB_SETTING_REDELIVERY_COLLISION, COLLISION, 0, 1000},
      {SB_SETTING_EXPIRY_DELAY_MS, EXPIRY_DELAY, 0, INT64_MAX},
      {SB_SETTING_MIN_EXPIRY_DELAY_MS, MIN_EXPIRY_DELAY, 0, INT64_MAX},
      {SB_SETTING_MAX_EXPIRY_DELAY_MS, MAX_EXPIRY_DELAY, 0, INT64_MAX},
      {SB_SETTING_RESUME_AT, RESUME_AT, 0, 100},
  };
  begin(0);
  for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    _Atomic int64_t *value = &q->shm->settings[cases[i].setting];
    int64_t before = *value;
    const int64_t good[] = {-1, cases[i].least, cases[i].most};
    for (unsigned k = 0; k < 3; k++) {
      *value = good[k];
      expect_sound("a setting within its bounds");
    }
    const int64_t bad[] = {-2, INT64_MIN, cases[i].least == 1 ? 0 : -3,
                           cases[i].most < INT64_MAX ? cases[i].most + 1 : -4};
    for (unsigned k = 0; k < 4; k++) {
      *value = bad[k];
      expect_one((sb_finding){SB_BAD_QUEUE, q->slot, 0, cases[i].which, 0, 0, (uint64_t)bad[k], 0},
                 "a setting beyond its bounds");
    }
    *value = before;
  }
}

/* ---- what is counted ---- */

static void limits_of_nothing(void) {
  begin(1);
  _Atomic int64_t *const limits[] = {&q->shm->settings[SB_SETTING_RING_SIZE], &q->shm->settings[SB_SETTING_MAX_LENGTH],
                                     &q->shm->settings[SB_SETTING_MAX_BYTES]};
  for (unsigned i = 0; i < 3; i++) {
    SB_STORE(limits[i], 0, SB_RELAXED);
    look();
    expect_is(checkup.count, i == 0 ? 2 : 1, "the findings of a limit of 0"); /* a ring of nothing cannot be */
    expect(checkup.findings[0].code == SB_BAD_HINT && checkup.findings[0].which == TRACKING,
           "%u: a queue with a limit of 0 does not track, and that was not found", i);
    SB_STORE(limits[i], -1, SB_RELAXED);
  }
  found_nothing();
  expect_sound("a queue without limits");
}
/* An account that is none, and that no check has seen. */
static void an_account_that_is_none(void) {
  begin(1);
  uint32_t level;
  if (sb_consumer_level_of(t.c, q->slot, 0, &level) != SB_OK) die("sb_consumer_level_of", 0);
  SB_STORE(&q->ledger->next, level, SB_RELAXED);
  expect_one((sb_finding){SB_BAD_CHAIN, q->slot, level, 0, 0, 0, SB_KIND_CONSUMER_LEVEL, SB_KIND_LEDGER},
             "a level among the accounts");
}
/* A queue whose cells could not be seen: it went meanwhile. */
static void a_queue_that_went(void) {
  begin(1);
  uint32_t chunk = q->slot / SB_CHUNK_UNITS;
  uint64_t word = SB_LOAD(&t.b->chunks[chunk], SB_RELAXED);
  SB_STORE(&t.b->chunks[chunk], (word & ~UINT64_C(7)) | SB_CHUNK_DRAINING, SB_RELAXED);
  look();
  for (uint32_t i = 0; i < checkup.count; i++)
    expect(checkup.findings[i].code != SB_BAD_COUNT, "a queue was counted that was not seen");
  SB_STORE(&t.b->chunks[chunk], word, SB_RELAXED);
  found_nothing();
}

static const test_case CASES[] = {
    {"check_queue_bounds: body", "a body has a gibibyte at most", the_longest_body},
    {"check_queue_bounds: parts", "in parts a message is no longer than elsewhere", the_longest_message_in_parts},
    {"check_queue_bounds: commit", "a body that is published has the reference of its cell", a_body_of_a_commit},
    {"check_queue_bounds: lost", "a body that is lost is found once", a_body_that_is_lost},
    {"check_queue_bounds: texts", "texts that are longer than their room are damage", texts_beyond_their_room},
    {"check_queue_bounds: waits", "a message that waits says for what", messages_that_wait},
    {"check_queue_bounds: settings", "times and numbers of settings have bounds", settings_that_cannot_be},
    {"check_queue_bounds: limits", "a queue with a limit of 0 tracks", limits_of_nothing},
    {"check_queue_bounds: account", "what is no account ends the chain", an_account_that_is_none},
    {"check_queue_bounds: went", "a queue that was not seen is not counted", a_queue_that_went},
};
SUBJECT(CASES)
