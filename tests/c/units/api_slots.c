// SPDX-License-Identifier: Apache-2.0
/* sb_api_slots: where a new message finds its slot when memory runs out, and what is written before its body. All
 * chunks are taken except those that a case leaves. */
#include "sb_api.h"

#include <string.h>

#include "calls.h"
#include "surroundings.h"
#include "system.h"

#define LONGEST SB_MESSAGE_CLASSES
#define SHORT 200u /* bytes of a slot that a case asks for */
#define NOTE 4096u /* the slots that all notes share */
#define UNKNOWN 777u

static sb_reservation r;
static sb_queue *q;

static unsigned class_of_bytes(uint64_t bytes) { return sb_class_for(t.b, bytes); }
static unsigned class_taken(void) { return sb_chunk_class(SB_LOAD(&t.b->chunks[r.slot / SB_CHUNK_UNITS], SB_RELAXED)); }
static void begin(unsigned use) {
  q = make_queue("q", UNLIMITED);
  note_rest(q);
  t.c->use = use;
}
static void give(void) {
  unsigned use = t.c->use;
  sb_api_give_slot(t.c, &r);
  sb_slab_flush_freed(t.c);
  t.c->use = use;
}
/* One slot of the class is free, in a chunk that others have filled; every other chunk but this many is taken. */
static void one_slot_of(unsigned cls, uint32_t chunks) {
  uint32_t slot;
  uint64_t token, gen;
  unsigned use = t.c->use;
  t.c->use = SB_USE_DRAIN;
  while (grow(t.b, t.path)) {
  }
  if (sb_holding_take(t.c, &token) != SB_OK || sb_slab_alloc(t.c, cls, token, &slot, &gen) != SB_OK) die("a slot", 0);
  leave_chunks(chunks);
  take_slots(cls);
  sb_api_give_slot(t.c, &(sb_reservation){.slot = slot, .gen = gen, .token = token});
  sb_slab_flush_freed(t.c);
  t.c->use = use;
}
static sb_status claim(uint64_t need) {
  r = (sb_reservation){.scattered = true, .slot = UNKNOWN};
  return sb_api_claim_slot(t.c, need, &r);
}
static void expect_claimed(uint64_t need, unsigned cls) {
  expect_is(claim(need), SB_OK, "the status");
  expect(!r.scattered, "it is scattered");
  expect_is(class_taken(), cls, "the class of its slot");
  expect_is(sb_holding_slot(SB_LOAD(&sb_holding_at(t.b, r.token)->what, SB_RELAXED)), r.slot, "what its holding names");
}
static void expect_none(uint64_t need, const char *what) {
  unsigned use = t.c->use;
  expect_is(claim(need), SB_NO_MEMORY, what);
  expect_is(t.c->use, use, "the use of memory");
  t.c->use = SB_USE_DRAIN;
  expect_calm(what);
  t.c->use = use;
}

/* ---- a slot ---- */

static void the_slot_of_a_body(void) {
  begin(SB_USE_PLAIN);
  while (grow(t.b, t.path)) {
  }
  expect_claimed(SHORT, class_of_bytes(SHORT));
  give();
  expect_is(claim(SB_CHUNK_BYTES + 1), SB_OK, "the status of a body of two chunks");
  expect_is(sb_chunk_run(SB_LOAD(&t.b->chunks[r.slot / SB_CHUNK_UNITS], SB_RELAXED)), 2, "how many chunks it has");
  give();
  t.c->use = SB_USE_DRAIN;
  expect_rest("two slots");
}
static void no_slot_for_a_body(void) {
  begin(SB_USE_PLAIN);
  leave_chunks(sb_reserve_chunks(t.b));
  note_rest(q);
  expect_none(SHORT, "a claim that finds nothing");
  expect_none(SB_CHUNK_BYTES + 1, "a claim of a run that finds nothing");
}
static void no_holding_for_a_slot(void) {
  uint64_t token;
  begin(SB_USE_PLAIN);
  one_slot_of(class_of_bytes(SHORT), 0);
  take_slots(sb_class_of_kind(t.b, SB_KIND_HOLDINGS));
  while (sb_holding_take(t.c, &token) == SB_OK) {
  }
  expect_is(claim(SHORT), SB_NO_MEMORY, "the status");
  expect_is(r.slot, UNKNOWN, "the slot that was taken");
}

/* ---- notes of the broker's own queues ---- */

/* While there is memory for bodies a note is one like others. */
static void a_note_beside_bodies(void) {
  begin(SB_USE_BOOKS);
  while (grow(t.b, t.path)) {
  }
  expect_claimed(SHORT, class_of_bytes(SHORT));
  expect_is(t.c->use, SB_USE_BOOKS, "the use of memory");
}
/* Then it takes a longer slot that is free, the longest at last, and never a shorter one. */
static void a_note_in_a_longer_slot(void) {
  begin(SB_USE_BOOKS);
  one_slot_of(class_of_bytes(1024), sb_reserve_chunks(t.b));
  uint32_t spare = sb_chunk_spare(t.b);
  expect_claimed(SHORT, class_of_bytes(1024));
  expect_is(sb_chunk_spare(t.b), spare, "how many chunks are left");
  give();
  expect_claimed(2000, class_of_bytes(NOTE));
  expect_is(sb_chunk_spare(t.b), spare - 1, "how many chunks are left after a note that is too long");
}
/* A chunk with one slot is drained as soon as that is free: this one is freed while the note looks for longer slots. */
static sb_reservation longest;
static bool was_plain; /* at first it looks like any body */
static void free_the_longest(const char *site) {
  (void)site;
  was_plain = was_plain || t.c->use == SB_USE_PLAIN;
  if (!was_plain || t.c->use != SB_USE_BOOKS) return;
  at_step = NULL;
  (void)sb_slab_free_gen(t.b, longest.slot, longest.gen);
}
static void a_note_in_the_longest_slot(void) {
  if (!has_steps()) return;
  begin(SB_USE_DRAIN);
  while (grow(t.b, t.path)) {
  }
  expect(sb_holding_take(t.c, &longest.token) == SB_OK &&
             sb_slab_alloc(t.c, LONGEST, longest.token, &longest.slot, &longest.gen) == SB_OK,
         "there is no slot");
  leave_chunks(sb_reserve_chunks(t.b));
  take_slots(class_of_bytes(SHORT));
  t.c->use = SB_USE_BOOKS;
  at_step = free_the_longest;
  expect_claimed(SHORT, LONGEST);
}
/* At last notes open a chunk of the reserve, which all share; a longer one opens one for itself. */
static void a_note_of_the_reserve(void) {
  begin(SB_USE_BOOKS);
  leave_chunks(sb_reserve_chunks(t.b));
  expect_claimed(SHORT, class_of_bytes(NOTE));
  uint64_t word = SB_LOAD(&t.b->chunks[r.slot / SB_CHUNK_UNITS], SB_RELAXED);
  expect((word & SB_CHUNK_OF_RESERVE) != 0, "the chunk is not one of the reserve");
  expect_claimed(NOTE + 1, class_of_bytes(NOTE + 1));
  expect_is(t.c->use, SB_USE_BOOKS, "the use of memory");
}
static void no_slot_for_a_note(void) {
  begin(SB_USE_BOOKS);
  leave_chunks(1);
  note_rest(q);
  expect_none(SHORT, "a note that finds nothing");
}
/* Asked to grow, it takes nothing meanwhile. */
static void a_note_before_it_grows(void) {
  begin(SB_USE_BOOKS);
  t.c->use = SB_USE_DRAIN;
  uint32_t slot;
  uint64_t token, gen;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  while (sb_slab_alloc(t.c, LONGEST, token, &slot, &gen) == SB_OK) {
    if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  }
  t.c->use = SB_USE_BOOKS;
  expect_is(claim(SHORT), SB_GROW, "the status");
}

/* ---- a crowded broker ---- */

static sb_status claim_elsewhere(sb_status before, uint64_t length) {
  const sb_put_options none = {0};
  r = (sb_reservation){.slot = UNKNOWN};
  return sb_api_claim_elsewhere(t.c, before, length, &none, 0, &r);
}
/* After a body went into a longer slot, longer slots come first for a while. */
static void a_longer_slot(void) {
  begin(SB_USE_PLAIN);
  answer_for_the_system();
  one_slot_of(class_of_bytes(1024), sb_reserve_chunks(t.b));
  note_rest(q);
  expect_is(claim_elsewhere(SB_FULL, SHORT), SB_FULL, "another status");
  expect_is(r.slot, UNKNOWN, "the slot after another status");
  expect_is(claim_elsewhere(SB_NO_MEMORY, SHORT), SB_OK, "the status");
  expect(!r.scattered, "it is scattered");
  expect_is(class_taken(), class_of_bytes(1024), "the class");
  expect_is(t.c->crowded_until_ns, says.now_ns + 20000000, "how long longer slots come first");
  give();
  leave_chunks(sb_reserve_chunks(t.b));
  t.c->use = SB_USE_DRAIN;
  expect_calm("a longer slot");
}
static void crowded(uint64_t for_ns, unsigned use) {
  begin(use);
  answer_for_the_system();
  one_slot_of(class_of_bytes(1024), sb_reserve_chunks(t.b) + 1);
  t.c->crowded_until_ns = says.now_ns + for_ns;
}
static void longer_slots_come_first(void) {
  crowded(1, SB_USE_PLAIN);
  expect_claimed(SHORT, class_of_bytes(1024));
  expect_is(t.c->crowded_until_ns, says.now_ns + 1, "how long they come first");
  expect_claimed(SHORT, class_of_bytes(SHORT)); /* none is left: a chunk is opened after all */
}
static void longer_slots_come_first_no_more(void) {
  crowded(0, SB_USE_PLAIN);
  expect_claimed(SHORT, class_of_bytes(SHORT));
  expect_is(t.c->crowded_until_ns, 0, "how long they come first");
}
static void longer_slots_come_first_not_for_notes(void) {
  crowded(1, SB_USE_BOOKS);
  expect_claimed(SHORT, class_of_bytes(SHORT));
}
static void longer_slots_come_first_not_for_runs(void) {
  crowded(1, SB_USE_DRAIN);
  leave_chunks(2);
  expect_is(claim(SB_CHUNK_BYTES + 1), SB_OK, "the status");
  expect_is(sb_chunk_state(SB_LOAD(&t.b->chunks[r.slot / SB_CHUNK_UNITS], SB_RELAXED)), SB_CHUNK_RUN, "its chunk");
}
static void no_slot_elsewhere(void) {
  begin(SB_USE_DRAIN);
  leave_chunks(0);
  note_rest(q);
  t.c->use = SB_USE_PLAIN;
  expect_is(claim_elsewhere(SB_NO_MEMORY, SHORT), SB_NO_MEMORY, "the status");
  t.c->use = SB_USE_DRAIN;
  expect_calm("a claim that found nothing elsewhere");
}

/* ---- what is written in front of a body ---- */

static const sb_put_options NAMED = {.delay_ns = 50,
                                     .ttl_ns = UNKNOWN, /* that of the call counts */
                                     .priority = 7,
                                     .exchange = "EE",
                                     .exchange_length = 2,
                                     .key = "kkk",
                                     .key_length = 3,
                                     .properties = "pppp",
                                     .properties_length = 4};
static const sb_message_shm *fill(uint64_t length, const sb_put_options *o, uint64_t ttl_ns, uint64_t more) {
  void *m = sb_slot_at(t.b, r.slot);
  memset(m, 0x55, 512);
  sb_api_fill(t.c, &r, length, o, ttl_ns, more);
  return m;
}
static void expect_header(const sb_message_shm *m, uint64_t length, uint64_t offset) {
  expect_is(m->body_length, length, "the length");
  expect_is(m->body_offset, offset, "where the body begins");
  expect_is(m->exchange_length, 2, "the length of the exchange");
  expect_is(m->key_length, 3, "the length of the key");
  expect_is(m->properties_length, 4, "the length of the properties");
  expect_is(m->priority, 7, "the priority");
  expect_is(m->publisher, t.c->id, "the publisher");
  expect(m->timestamp_ns > 0 && m->targets == 0 && m->group_hash == 0, "the rest of the header is another one");
  expect_is(r.size, length, "the size");
}
static void the_front_of_one_piece(void) {
  const sb_put_options none = {0}, late = {.delay_ns = 50};
  begin(SB_USE_PLAIN);
  answer_for_the_system();
  while (grow(t.b, t.path)) {
  }
  (void)claim(2 * SB_INLINE_BODY);
  const sb_message_shm *m = fill(SB_INLINE_BODY, &NAMED, 40, 0);
  expect_header(m, SB_INLINE_BODY, 128);
  expect_is(m->flags, 0, "the flags");
  expect_is(m->expires_ns, says.now_ns + 40, "when it expires");
  expect_is(m->due_ns, says.now_ns + 50, "when it is due");
  expect(memcmp(m + 1, "EEkkkpppp", 9) == 0 && ((const char *)(m + 1))[9] == 0x55, "the names are others");
  expect(r.body == (const char *)m + 128, "the body is elsewhere");
  expect_header(fill(SB_INLINE_BODY + 1, &NAMED, 0, 64), SB_INLINE_BODY + 1, 128 + 64 + SB_VIEWERS_BYTES);
  expect(m->expires_ns == 0 && m->due_ns == says.now_ns + 50, "it expires");
  (void)fill(1, &none, 40, 0);
  expect(m->expires_ns == says.now_ns + 40 && m->due_ns == 0, "it is due, or does not expire");
  expect_is(((const char *)(m + 1))[0], 0x55, "what stands where no name is");
  (void)fill(1, &late, 0, 0);
  expect(m->expires_ns == 0 && m->due_ns == says.now_ns + 50, "it is not due, or expires");
}
/* The names go into the parts; between the header and the viewers' words stands only what is asked for. */
static void the_front_of_parts(void) {
  char names[9];
  begin(SB_USE_DRAIN);
  expect_is(sb_queue_put(q, "", 0), SB_OK, "the status of a put, for which short slots are opened");
  leave_chunks(0);
  for (uint64_t i = 0; i < 2; i++) {
    uint64_t length = SB_INLINE_BODY + i, viewers = i == 0 ? 0 : SB_VIEWERS_BYTES;
    r = (sb_reservation){.slot = UNKNOWN};
    expect_is(sb_api_claim_elsewhere(t.c, SB_NO_MEMORY, length, &NAMED, 64, &r), SB_OK, "the status");
    expect(r.scattered, "it is in one piece");
    expect_is(class_taken(), class_of_bytes(64 + 64 + viewers + sizeof(sb_parts_shm)), "the class of the head");
    expect(sb_parts_room(t.b, r.slot) >= 9 + length, "its parts are too short");
    r.body = names;
    sb_message_shm *m = sb_slot_at(t.b, r.slot);
    sb_api_fill(t.c, &r, length, &NAMED, 0, 64);
    expect_header(m, length, 64 + 64 + viewers);
    expect_is(m->flags, SB_MESSAGE_IN_PARTS, "the flags");
    expect(r.body == NULL, "it has a body in one piece");
    expect(sb_parts_copy(t.b, r.slot, 0, names, 9) && memcmp(names, "EEkkkpppp", 9) == 0, "the names are others");
    give();
  }
}

/* ---- the housekeeper ---- */

static bool rings(uint64_t due_ns, uint64_t expires_ns) {
  sb_message_shm m = {.due_ns = due_ns, .expires_ns = expires_ns};
  sb_node_shm *keeper = sb_slot_at(t.b, SB_LOAD(&t.b->header->housekeeper_waiter, SB_RELAXED));
  uint32_t armed = sb_wake_arm(&keeper->wake);
  sb_api_ring_housekeeper(t.c, &m);
  return SB_LOAD(&keeper->wake, SB_RELAXED) != armed;
}
/* The message is due before it expires, or never. */
static void the_earlier_timer_counts(void) {
  begin(SB_USE_DRAIN);
  SB_STORE(&t.b->header->housekeeper_waiter, wait_at(q, FOR_ROOM, 0), SB_RELAXED);
  SB_STORE(&t.b->header->next_due_ns, 100, SB_RELAXED);
  expect(!rings(0, 0), "a message without a timer rings");
  expect(rings(99, 0) && !rings(100, 0), "the time when it is due does not count");
  expect(rings(0, 99) && !rings(0, 100), "the time when it expires does not count");
  expect(rings(99, 200) && rings(200, 99), "the earlier of two does not count");
  expect(!rings(150, 200) && !rings(200, 150), "a later one rings");
}

static const test_case CASES[] = {
    {"api_slots: body", "a body has a slot of its class, or a run of chunks", the_slot_of_a_body},
    {"api_slots: none", "a claim that finds nothing leaves nothing", no_slot_for_a_body},
    {"api_slots: no holding", "without a holding no slot is taken", no_holding_for_a_slot},
    {"api_slots: note", "a note is a body like others while there is memory", a_note_beside_bodies},
    {"api_slots: longer note", "then it takes a longer slot that is free", a_note_in_a_longer_slot},
    {"api_slots: longest note", "even the longest", a_note_in_the_longest_slot},
    {"api_slots: reserve", "then notes open a chunk of the reserve together", a_note_of_the_reserve},
    {"api_slots: no note", "the last chunk is not for notes", no_slot_for_a_note},
    {"api_slots: growing note", "while the broker can grow, a note takes nothing else", a_note_before_it_grows},
    {"api_slots: longer", "a body goes into a longer slot, and others after it for a while", a_longer_slot},
    {"api_slots: crowded", "in a crowded broker longer slots come first", longer_slots_come_first},
    {"api_slots: not crowded", "after a while they do not", longer_slots_come_first_no_more},
    {"api_slots: crowded note", "they never do for notes", longer_slots_come_first_not_for_notes},
    {"api_slots: crowded run", "nor for runs of chunks", longer_slots_come_first_not_for_runs},
    {"api_slots: nowhere", "a claim that finds nothing elsewhere leaves nothing", no_slot_elsewhere},
    {"api_slots: front", "the front of a message in one piece", the_front_of_one_piece},
    {"api_slots: front of parts", "the front of a message in parts", the_front_of_parts},
    {"api_slots: timer", "the housekeeper is told of the earlier of two timers", the_earlier_timer_counts},
};
SUBJECT(CASES)
