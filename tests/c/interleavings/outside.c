// SPDX-License-Identifier: Apache-2.0
/* Cases of reads of structures whose memory may become memory of bodies: an actor that is not inside trusts nothing
 * that it read, and an actor that is inside prevents the change. */
#include <stdio.h>
#include <string.h>

#include "cases.h"
#include "chunks.h"
#include "plan.h"
#include "sb_slab.h"

#define LEAF_CELLS 64u
#define STRANGE 999u /* the number of a message that was never put */

/* ---- browsers ---- */

static uint32_t first_leaf;         /* the chunk of it; the second leaf lies in another one */
static uint8_t old[SB_CHUNK_BYTES]; /* what is in that chunk before it is drained */
static bool as_it_was;              /* the body says the same */
static uint32_t copied[LEAF_CELLS]; /* slots of short bodies */

static void two_leaves(void) {
  pin_short_bodies();
  for (unsigned i = 1; i <= LEAF_CELLS; i++) put_small_by(&one, i);
  sb_leaf_ref leaf;
  expect(sb_ring_locate(t.b, NULL, &one.q->lanes[0].ring, one.q->base, &leaf) == SB_OK, "no leaf");
  first_leaf = leaf.slot / SB_CHUNK_UNITS;
  sb_slab_return_cache(one.c);
  sb_slab_free_now(t.b, hold_up_to_a_new_chunk(SB_KIND_LEAF));
  for (unsigned i = 1; i <= LEAF_CELLS; i++) put_small_by(&one, LEAF_CELLS + i);
  give_held();
  fill_all();
}

/* The slots of the messages that went are used again, by what looks like a message. */
static void use_slots_again(void) {
  uint64_t gen;
  for (unsigned i = 0; i < LEAF_CELLS; i++) {
    if (sb_slab_alloc(two.c, sb_class_for(t.b, 1), SB_TOKEN_BOOT, &copied[i], &gen) != SB_OK) {
      copied[i] = 0;
      break;
    }
    sb_message_shm *m = sb_slot_at(t.b, copied[i]);
    uint64_t id = STRANGE;
    memcpy((uint8_t *)m + m->body_offset, &id, sizeof id);
  }
}
static void first_leaf_becomes_a_body(void) {
  memcpy(old, sb_slot_at(t.b, first_leaf * SB_CHUNK_UNITS), sizeof old);
  for (unsigned i = 1; i <= LEAF_CELLS; i++) {
    uint64_t id = take(&two);
    expect(id == i, "message %u was taken as %d", i, (int)id);
  }
  sb_page_sweep(keeper.c, &keeper.q->lanes[0].ring);
  reclaim();
  if (!take_body()) return; /* the browser is inside */
  expect(body / SB_CHUNK_UNITS == first_leaf, "chunk %u came back, not %u", body / SB_CHUNK_UNITS, first_leaf);
  if (as_it_was) {
    memcpy(sb_slot_at(t.b, body), old, sizeof old);
    use_slots_again();
  } else {
    memset(sb_slot_at(t.b, body), 0, sizeof old);
  }
}
static uint64_t id_of(const char *record, int64_t length) {
  uint64_t id;
  memcpy(&id, body_of(record, length), sizeof id);
  return id;
}
static void look_on(void) {
  uint64_t position = 0;
  two_leaves();
  memset(copied, 0, sizeof copied);
  meanwhile(ANYWHERE, first_leaf_becomes_a_body);
  int64_t length = sb_queue_browse(one.q, &position, held_b, BUFFER);
  afterwards();
  uint64_t id = length > 0 ? id_of(held_b, length) : 0;
  expect(length != -(int64_t)SB_EMPTY, "a browser finds the end of a queue that has messages");
  expect(length > 0, "a browser came to %d", (int)-length);
  expect(id == 1 || id == LEAF_CELLS + 1, "a browser saw message %d", (int)id);
  reclaim();
  expect(take_body(), "the chunk of the first leaf did not come back");
  for (unsigned i = 0; i < LEAF_CELLS; i++) {
    if (copied[i] != 0) sb_slab_free_now(t.b, copied[i]);
  }
  empty();
}
static void browsed_over(void) {
  as_it_was = false;
  look_on();
}
static void browsed_copy(void) {
  as_it_was = true;
  look_on();
}

/* ---- listings ---- */

static sb_connection *leaver;
static uint32_t record; /* the chunk in which its record lies, and no other */
static void leave_and_fill(void) {
  (void)sb_connection_close(leaver);
  expect(sb_connection_release(leaver), "the connection stays");
  sb_connection_free(leaver);
  leaver = NULL;
  reclaim();
  expect(sb_chunk_state(SB_LOAD(&t.b->chunks[record], SB_SEQ_CST)) == SB_CHUNK_FREE,
         "the chunk of its record did not come back");
  fill_all();
  write_into_fillers('B');
}
static void listed(void) {
  sb_connection_facts facts;
  sb_slab_free_now(t.b, hold_up_to_a_new_chunk(SB_KIND_CONNECTION));
  leaver = connect_to(&t);
  uint32_t id = leaver->id;
  record = leaver->record / SB_CHUNK_UNITS;
  int32_t pid = SB_LOAD(&t.b->processes[t.b->process].pid, SB_RELAXED);
  give_held();
  fill_all();
  meanwhile(ANYWHERE, leave_and_fill);
  sb_status status = sb_connection_describe(t.b, id, &facts);
  afterwards();
  expect(status == SB_OK || status == SB_NOT_FOUND, "who lists connections came to %d", (int)status);
  expect(status != SB_OK || strcmp(facts.name, "test") == 0, "a connection is called %s", facts.name);
  expect(status != SB_OK || (facts.pid == (uint32_t)pid && facts.channels == 0),
         "a connection has process %u and %u channels", facts.pid, facts.channels);
  empty();
}

/* ---- the doctor ---- */

/* All messages of the queue go, and their leaf; but the doctor is looking at it. */
static void drained_under_the_doctor(void) {
  while (take(&two) != 0) {
  }
  sb_page_sweep(keeper.c, &keeper.q->lanes[0].ring);
  reclaim();
  expect(!take_body(), "what the doctor looks at became a body");
}
static void examined(void) {
  sb_finding found;
  pin_short_bodies();
  for (unsigned i = 1; i <= 2 * LEAF_CELLS; i++) put_small_by(&one, i);
  fill_all();
  meanwhile("sb_check_ring.c", drained_under_the_doctor);
  (void)sb_broker_check(one.c, &found, 1);
  plan.what = NULL; /* there may be no such step any more */
  while (take(&two) != 0) {
  }
  sb_page_sweep(keeper.c, &keeper.q->lanes[0].ring);
  reclaim();
  expect(take_body(), "the chunk of the leaves did not come back");
  empty();
}

static const test_case CASES[] = {
    {"outside, browsed over",
     "a browser whose page became a body goes on behind it",
     {{-1, -1, -1, 0, -1, -1}, 0},
     browsed_over},
    {"outside, browsed copy", "a browser sees no message in a body", {{-1, -1, -1, 0, -1, -1}, 0}, browsed_copy},
    {"outside, listed", "who lists connections shows nothing of a body", {{-1, -1, -1, 0, -1, -1}, 0}, listed},
    {"inside, examined", "no structure becomes a body while the doctor looks", {{-1, -1, -1, 0, -1, -1}, 0}, examined},
};
const subject OUTSIDE_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
