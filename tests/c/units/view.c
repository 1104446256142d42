// SPDX-License-Identifier: Apache-2.0
/* sb_view: further references to a body, the connections that have them, and how a reaper finds them. The slot is in a
 * chunk that no other actor has opened; its message is held as if it had been taken. */
#include "sb_view.h"

#include <string.h>

#include "cases.h"
#include "meanwhile.h"
#include "sb_reader.h"

#define CHUNK 8u
#define SLOT (CHUNK * SB_CHUNK_UNITS)
#define GEN 77u
#define MANY 17u  /* queues that share a body by a block */
#define QUEUE 40u /* the slot of one of them */
#define PLACE 3u  /* its place */
#define LONG (SB_INLINE_BODY + 1u)
#define ROOM (64u * 1024u)
#define REAPED 55u /* a connection that is gone */

static sb_taken held;
static uint64_t view;

static sb_message_shm *message(void) { return sb_slot_at(t.b, SLOT); }
static void set_header(unsigned state, uint64_t refs) {
  SB_STORE(sb_slot_header(t.b, SLOT), sb_slot_word(state, refs, GEN), SB_RELAXED);
}
static uint64_t refs(void) { return sb_slot_refs(SB_LOAD(sb_slot_header(t.b, SLOT), SB_RELAXED)); }
static bool is_free(void) { return sb_slot_state(SB_LOAD(sb_slot_header(t.b, SLOT), SB_RELAXED)) == SB_SLOT_FREE; }
static _Atomic uint16_t *words(void) {
  return (_Atomic uint16_t *)(void *)((uint8_t *)sb_slot_at(t.b, SLOT) + message()->body_offset - SB_VIEWERS_BYTES);
}

static void publish(uint32_t targets, uint64_t body_length) {
  grow_to(CHUNK);
  SB_STORE(&t.b->chunks[CHUNK], sb_chunk_word(SB_CHUNK_CLASS, 0, sb_class_for(t.b, ROOM), 0), SB_RELAXED);
  memset(sb_slot_at(t.b, SLOT), 0, ROOM);
  uint64_t front = sizeof(sb_message_shm) + sb_block_bytes(targets, body_length) + SB_VIEWERS_BYTES;
  *message() =
      (sb_message_shm){.body_length = body_length, .body_offset = (uint32_t)front, .targets = (uint16_t)targets};
  set_header(SB_SLOT_PUBLISHED, 1);
}
/* One queue's message, which this connection holds. */
static void hold(uint64_t body_length) {
  publish(1, body_length);
  held = (sb_taken){.slot = SLOT, .gen = GEN, .ref = 0};
  if (sb_holding_take(t.c, &held.token) != SB_OK) die("sb_holding_take", 0);
  sb_holding_set(t.b, held.token, sb_holding_what(SB_HOLD_CELL, QUEUE, 0), 0);
}
static sb_block hold_of_many(uint64_t body_length) {
  uint32_t queues[MANY];
  sb_block k = {0};
  hold(body_length);
  publish(MANY, body_length);
  for (uint32_t i = 0; i < MANY; i++) queues[i] = 10 * (i + 1);
  if (!sb_block_of(t.b, SLOT, &k)) die("sb_block_of", 0);
  sb_block_fill(&k, queues);
  sb_block_set(&k, PLACE, 0);
  held.ref = SB_REF_BLOCK;
  return k;
}
static uint64_t what_of(uint64_t token) { return SB_LOAD(&sb_holding_at(t.b, token)->what, SB_RELAXED); }
static uint64_t where_of(uint64_t token) { return SB_LOAD(&sb_holding_at(t.b, token)->where, SB_RELAXED); }
/* What one more holding would be: nothing was kept that is not there. */
static uint64_t next_holding(void) {
  uint64_t token;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  sb_holding_give(t.c, token);
  return token;
}

static void which_bodies_are_viewed(void) {
  publish(1, LONG);
  expect((uint8_t *)sb_view_words(t.b, SLOT) == (uint8_t *)message() + sizeof(sb_message_shm),
         "the words are elsewhere");
  message()->body_length = SB_INLINE_BODY;
  expect(sb_view_words(t.b, SLOT) == NULL, "a body that is copied has viewers");
  message()->body_length = LONG;
  message()->body_offset = sizeof(sb_message_shm) + SB_VIEWERS_BYTES + 32;
  expect(sb_view_words(t.b, SLOT) == NULL, "a body begins in the middle of a line");
  message()->body_offset = sizeof(sb_message_shm);
  expect(sb_view_words(t.b, SLOT) == NULL, "the words lie over the message header");
  message()->body_offset = ROOM - 64;
  expect(sb_view_words(t.b, SLOT) != NULL, "a body that begins in the last line has no viewers");
  message()->body_offset = ROOM;
  expect(sb_view_words(t.b, SLOT) == NULL, "a body begins behind its slot");
}

/* The bit is one that only this cell's holder adds; its word says whose view it is, and the holding what to drop. */
static void a_view_is_taken(void) {
  hold(LONG);
  expect_is(sb_view_take(t.c, &held, &view), SB_OK, "the status");
  expect_is(refs(), 3, "the references");
  expect_is(words()[1], t.c->id, "the viewer's word");
  expect_is(what_of(view), sb_holding_what(SB_HOLD_VIEW, SLOT, GEN), "the holding");
  expect_is(where_of(view), 1 | SB_FIELD(GEN, 8), "where it is");
  expect_is(sb_view_slot(t.c, view), SLOT, "the slot of the view");
  sb_reference r = sb_view_of(what_of(view), where_of(view));
  expect(r.slot == SLOT && r.ref == 1 && r.gen == GEN && r.queue == 0, "the holding names another reference");
  sb_view_drop(t.c, view);
  expect_is(refs(), 1, "the references when it ended");
  expect_is(what_of(view), SB_HOLD_NONE, "the holding when it ended");
  expect_is(sb_view_slot(t.c, view), 0, "the slot of a view that ended");
  sb_view_drop(t.c, view);
  expect_is(refs(), 1, "the references when it ended twice");
}
static void a_view_of_a_block(void) {
  sb_block k = hold_of_many(LONG);
  uint64_t views[SB_REFS_OF_QUEUE];
  for (unsigned i = 1; i < SB_REFS_OF_QUEUE; i++) {
    expect_is(sb_view_take(t.c, &held, &views[i]), SB_OK, "the status");
    expect(sb_block_has(&k, PLACE, i), "view %u has no bit", i);
    expect_is(k.viewers[PLACE * SB_REFS_OF_QUEUE + i], t.c->id, "the viewer's word");
    expect_is(where_of(views[i]), (SB_REF_VIEW + i) | SB_FIELD(GEN, 8) | SB_FIELD(PLACE, 46), "where it is");
  }
  uint64_t next = next_holding();
  expect_is(sb_view_take(t.c, &held, &view), SB_LIMIT, "the status of a fourth view");
  expect_is(next_holding(), next, "the next holding");
  expect_is(sb_block_count(&k), SB_REFS_OF_QUEUE, "the number of bits");
  expect_is(refs(), 1, "the references of the header");
  sb_view_drop(t.c, views[2]);
  expect(!sb_block_has(&k, PLACE, 2) && sb_block_has(&k, PLACE, 1), "another view ended");
  expect_is(sb_view_take(t.c, &held, &view), SB_OK, "the status when there is room again");
  expect(sb_block_has(&k, PLACE, 2), "the bit that is clear was not taken");
}
/* A cell that was moved to a queue that was no target has a bit of the header, and so have its views. */
static void a_view_beside_a_block(void) {
  sb_block k = hold_of_many(LONG);
  held.ref = 1;
  set_header(SB_SLOT_PUBLISHED, 3);
  SB_STORE(&k.claims[1], 9, SB_RELAXED);
  expect_is(sb_view_take(t.c, &held, &view), SB_OK, "the status");
  expect_is(refs(), 7, "the references");
  expect_is(where_of(view), 2 | SB_FIELD(GEN, 8), "where it is");
  expect_is(k.claims[2], t.c->id, "the claim");
}

static void no_view_is_taken(void) {
  hold(SB_INLINE_BODY);
  uint64_t next = next_holding();
  expect_is(sb_view_take(t.c, &held, &view), SB_CORRUPT, "the status of a body that is copied");
  message()->body_length = LONG;
  set_header(SB_SLOT_PUBLISHED, (1u << SB_MAX_REFS) - 1);
  expect_is(sb_view_take(t.c, &held, &view), SB_LIMIT, "the status without a reference");
  expect_is(next_holding(), next, "the next holding");
  set_header(SB_SLOT_READ, ((1u << SB_READ_REFS) - 1) | SB_FIELD(t.c->id, SB_READ_REFS));
  expect_is(sb_view_take(t.c, &held, &view), SB_LIMIT, "the status beside a reader");
  expect_is(next_holding(), next, "the next holding, beside a reader");
  sb_block k = hold_of_many(LONG);
  next = next_holding();
  sb_holding_set(t.b, held.token, sb_holding_what(SB_HOLD_CELL, QUEUE + 1, 0), 0);
  expect_is(sb_view_take(t.c, &held, &view), SB_LIMIT, "the status of a queue that is not among them");
  message()->body_offset -= 64; /* the words of the header lie where the block's should end */
  sb_holding_set(t.b, held.token, sb_holding_what(SB_HOLD_CELL, QUEUE, 0), 0);
  expect_is(sb_view_take(t.c, &held, &view), SB_LIMIT, "the status without a block");
  expect_is(next_holding(), next, "the next holding, without a block");
  expect_is(sb_block_count(&k), 1, "the number of bits");
}
static void no_holding_for_a_view(void) {
  hold(LONG);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    grow_to(i);
    if (sb_chunk_state(SB_LOAD(&t.b->chunks[i], SB_RELAXED)) == SB_CHUNK_FREE)
      SB_STORE(&t.b->chunks[i], sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_RELAXED);
  }
  while (sb_holding_take(t.c, &view) == SB_OK) {
  }
  view = 0;
  expect_is(sb_view_take(t.c, &held, &view), SB_NO_MEMORY, "the status");
  expect_is(refs(), 1, "the references");
}

/* Tokens come from callers. */
static void what_is_no_view(void) {
  hold(LONG);
  sb_holding_set(t.b, held.token, sb_holding_what(SB_HOLD_SLOT, SLOT, GEN), 1 | SB_FIELD(GEN, 8));
  set_header(SB_SLOT_PUBLISHED, 3);
  *(sb_holding_shm *)(void *)t.b->arena = *sb_holding_at(t.b, held.token); /* slot 0 has no owner, whatever it says */
  SB_STORE(&((sb_holding_shm *)(void *)t.b->arena)->what, sb_holding_what(SB_HOLD_VIEW, SLOT, GEN), SB_RELAXED);
  uint64_t behind = t.b->arena_bytes / sizeof(sb_holding_shm);
  const uint64_t none[] = {0,
                           held.token,
                           behind,
                           behind - 1,
                           (UINT64_C(1) << 32) * SB_UNIT / sizeof(sb_holding_shm) + 1,
                           UINT64_MAX / sizeof(sb_holding_shm) - 1};
  for (unsigned i = 0; i < sizeof none / sizeof none[0]; i++) {
    expect_is(sb_view_slot(t.c, none[i]), 0, "the slot of no view");
    sb_view_drop(t.c, none[i]);
  }
  expect_is(refs(), 3, "the references");
  expect_is(what_of(held.token), sb_holding_what(SB_HOLD_SLOT, SLOT, GEN), "what is held");
}
/* A holding that was damaged leads nowhere. */
static void a_view_of_no_slot(void) {
  hold(LONG);
  uint32_t nowhere = BROKER_CHUNKS * SB_CHUNK_UNITS;
  sb_holding_set(t.b, held.token, sb_holding_what(SB_HOLD_VIEW, nowhere, GEN), 1 | SB_FIELD(GEN, 8));
  expect_is(sb_view_slot(t.c, held.token), 0, "the slot of a view that leads nowhere");
  sb_view_drop(t.c, held.token);
  expect_is(what_of(held.token), SB_HOLD_NONE, "the holding");
  sb_view_recover(t.b, REAPED, sb_holding_what(SB_HOLD_VIEW, nowhere, GEN), 1 | SB_FIELD(GEN, 8));
  sb_view_recover(t.b, REAPED, sb_holding_what(SB_HOLD_VIEW, (BROKER_CHUNKS - 1) * SB_CHUNK_UNITS, GEN),
                  1 | SB_FIELD(GEN, 8));
}

static void which_word_is_a_view_s(void) {
  publish(1, LONG);
  sb_reference r = {.slot = SLOT, .gen = GEN, .ref = SB_MAX_REFS - 1};
  expect(sb_view_word(t.b, &r) == words() + SB_MAX_REFS - 1, "the last word is elsewhere");
  r.ref = SB_MAX_REFS;
  expect(sb_view_word(t.b, &r) == NULL, "there is a word of no reference");
  message()->body_length = SB_INLINE_BODY;
  r.ref = 1;
  expect(sb_view_word(t.b, &r) == NULL, "there is a word of a body that is copied");
  sb_block k = hold_of_many(LONG);
  for (unsigned i = 1; i < SB_REFS_OF_QUEUE; i++) {
    r = (sb_reference){.slot = SLOT, .gen = GEN, .ref = SB_REF_VIEW + i, .queue = MANY - 1};
    expect(sb_view_word(t.b, &r) == &k.viewers[(MANY - 1) * SB_REFS_OF_QUEUE + i], "word %u is elsewhere", i);
  }
  r.queue = MANY;
  expect(sb_view_word(t.b, &r) == NULL, "there is a word of a queue behind the last");
  r.queue = PLACE;
  r.ref = SB_REF_VIEW;
  expect(sb_view_word(t.b, &r) == NULL, "there is a word of a cell");
  r.ref = SB_REF_VIEW + SB_REFS_OF_QUEUE;
  expect(sb_view_word(t.b, &r) == NULL, "there is a fourth word");
  r.ref = SB_REF_VIEW + 1;
  message()->targets = 1;
  expect(sb_view_word(t.b, &r) == NULL, "there is a word of a block that is none");
  hold_of_many(SB_INLINE_BODY);
  expect(sb_view_word(t.b, &r) == NULL, "there is a word of a block whose body is copied");
}

static void a_reference_becomes_a_cell_s(void) {
  publish(1, LONG);
  for (unsigned i = 0; i < SB_MAX_REFS; i++) SB_STORE(&words()[i], 9, SB_RELAXED);
  sb_view_not(t.b, SLOT, 2);
  for (unsigned i = 0; i < SB_MAX_REFS; i++) expect_is(words()[i], i == 2 ? 0 : 9, "a viewer's word");
  message()->body_length = SB_INLINE_BODY;
  sb_view_not(t.b, SLOT, 3);
  expect_is(words()[3], 9, "the word of a body that is copied");
}

/* A reaper drops what its dead connection has added, and nothing that is another's by now. */
static void recover(uint64_t gen) {
  sb_view_recover(t.b, REAPED, sb_holding_what(SB_HOLD_VIEW, SLOT, gen), 1 | SB_FIELD(gen, 8));
}
static void a_dead_one_s_view(void) {
  publish(1, LONG);
  SB_STORE(&words()[1], REAPED, SB_RELAXED);
  recover(GEN);
  expect_is(refs(), 1, "the references, when it was not added");
  set_header(SB_SLOT_PUBLISHED, 3);
  SB_STORE(&words()[1], REAPED + 1, SB_RELAXED);
  recover(GEN);
  expect_is(refs(), 3, "the references, when it is another's");
  SB_STORE(&words()[1], REAPED, SB_RELAXED);
  recover(GEN + 1);
  expect_is(refs(), 3, "the references, when it is another message");
  set_header(SB_SLOT_ALLOC, 3);
  recover(GEN);
  expect_is(SB_LOAD(sb_slot_header(t.b, SLOT), SB_RELAXED), sb_slot_word(SB_SLOT_ALLOC, 3, GEN),
            "a header that is ALLOC");
  set_header(SB_SLOT_PUBLISHED, 3);
  message()->body_length = SB_INLINE_BODY;
  recover(GEN);
  expect_is(refs(), 3, "the references of a body that is copied");
  message()->body_length = LONG;
  recover(GEN);
  expect_is(refs(), 1, "the references when it was dropped");
  set_header(SB_SLOT_PUBLISHED, 2);
  recover(GEN);
  expect(is_free(), "the last reference did not free the slot");
}
static bool added_meanwhile;
/* As sb_view_take of the connection that holds the cell by now. */
static void another_one_views(void) {
  SB_STORE(&words()[1], REAPED + 1, SB_RELAXED);
  set_header(SB_SLOT_PUBLISHED, 3);
  added_meanwhile = true;
}
static void a_dead_one_s_view_that_another_one_takes(void) {
  for (unsigned look = 1; look <= 4; look++) {
    publish(1, LONG);
    SB_STORE(&words()[1], REAPED, SB_RELAXED);
    added_meanwhile = false;
    meanwhile(sb_slot_header(t.b, SLOT), BEFORE_LOAD, look, another_one_views);
    recover(GEN);
    meanwhile(NULL, BEFORE_LOAD, 0, NULL);
    expect_is(refs(), added_meanwhile ? 3 : 1, "the references, when the dead one's was gone before");
  }
}
/* The bit of the cell was lost: it is no view's for all that. */
static void a_view_beside_a_cell_that_lost_its_bit(void) {
  sb_block k = hold_of_many(LONG);
  SB_STORE(&k.bits[0], 0, SB_RELAXED);
  expect_is(sb_view_take(t.c, &held, &view), SB_OK, "the status");
  expect(sb_block_has(&k, PLACE, 1) && !sb_block_has(&k, PLACE, 0), "the view has the bit of the cell");
}
static void a_dead_reader_s_view(void) {
  publish(1, LONG);
  set_header(SB_SLOT_READ, 1 | SB_FIELD(REAPED, SB_READ_REFS));
  sb_view_recover(t.b, REAPED, sb_holding_what(SB_HOLD_VIEW, SLOT, GEN), SB_REF_READER | SB_FIELD(GEN, 8));
  expect_is(SB_LOAD(sb_slot_header(t.b, SLOT), SB_RELAXED), sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN), "the header");
}
static void a_reader_ends_his_view(void) {
  hold(LONG);
  set_header(SB_SLOT_READ, 1 | SB_FIELD(t.c->id, SB_READ_REFS));
  sb_holding_set(t.b, held.token, sb_holding_what(SB_HOLD_VIEW, SLOT, GEN), SB_REF_READER | SB_FIELD(GEN, 8));
  expect_is(sb_view_slot(t.c, held.token), SLOT, "the slot of a reader");
  sb_view_drop(t.c, held.token);
  expect_is(SB_LOAD(sb_slot_header(t.b, SLOT), SB_RELAXED), sb_slot_word(SB_SLOT_PUBLISHED, 1, GEN), "the header");
}

static const test_case CASES[] = {
    {"view: words", "only a long body that lies in its slot has viewers' words", which_bodies_are_viewed},
    {"view: taken", "a view has a bit, its word and a holding, until it ends", a_view_is_taken},
    {"view: block", "each queue of a block has three views", a_view_of_a_block},
    {"view: lost bit", "a view never has the bit of the cell", a_view_beside_a_cell_that_lost_its_bit},
    {"view: taken meanwhile", "a view that is taken in the place of a dead one's stays",
     a_dead_one_s_view_that_another_one_takes},
    {"view: beside a block", "a cell with a bit of the header has views there", a_view_beside_a_block},
    {"view: refused", "what cannot be viewed keeps no holding", no_view_is_taken},
    {"view: no holding", "without a holding nothing is added", no_holding_for_a_view},
    {"view: no view", "a token that leads to no view changes nothing", what_is_no_view},
    {"view: no slot", "a view that leads nowhere only ends", a_view_of_no_slot},
    {"view: whose word", "each reference has a word of its own, and what is none has none", which_word_is_a_view_s},
    {"view: a cell's", "a reference that becomes a cell's is nobody's view", a_reference_becomes_a_cell_s},
    {"view: recovered", "a reaper drops a view of its dead connection alone", a_dead_one_s_view},
    {"view: dead reader", "a reaper ends the reading of its dead connection", a_dead_reader_s_view},
    {"view: reader", "a reader ends what he reads as a view", a_reader_ends_his_view},
};
SUBJECT(CASES)
