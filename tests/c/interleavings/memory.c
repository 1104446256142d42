// SPDX-License-Identifier: Apache-2.0
/* Cases of memory: which actor opens a chunk, and what it does with a chunk that it does not need any more. */
#include <stdio.h>

#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_scatter.h"
#include "sb_slab.h"

static uint32_t slots[2];

static void allocate(const actor *a, uint32_t *slot) {
  uint64_t gen;
  sb_status status = sb_slab_alloc(a->c, sb_class_of_kind(t.b, SB_KIND_LEAF), SB_TOKEN_BOOT, slot, &gen);
  expect(status == SB_OK, "no slot: status %d", (int)status);
}
static void allocate_too(void) { allocate(&two, &slots[1]); }
static int chunks_for_leaves(void) {
  return (int)SB_LOAD(&t.b->classes[sb_class_of_kind(t.b, SB_KIND_LEAF)].chunks, SB_SEQ_CST);
}

static void first_leaf(void) {
  int spare = (int)sb_chunk_spare(t.b);
  expect(chunks_for_leaves() == 0, "there is a chunk for leaves before there is a message");
  meanwhile("slab.chunk.claimed", allocate_too);
  allocate(&one, &slots[0]);
  afterwards();
  expect(chunks_for_leaves() == 1, "%d chunks are open for leaves", chunks_for_leaves());
  expect((int)sb_chunk_spare(t.b) == spare - 1, "of %d spare chunks %d are left", spare, (int)sb_chunk_spare(t.b));
  expect(slots[0] != slots[1], "both got slot %d", (int)slots[0]);
  for (int i = 0; i < 2; i++) sb_slab_free_now(t.b, slots[i]);
}

/* ---- the reserve ---- */

/* Of bytes that only one slot of a chunk holds: a class each. */
#define HALF (UINT64_C(1) << 20)
static sb_status came_to[2];

static sb_status take_chunk(const actor *a, unsigned use, uint64_t bytes, uint32_t *slot) {
  uint64_t gen;
  a->c->use = use;
  sb_status status = sb_slab_alloc(a->c, sb_class_for(t.b, bytes), SB_TOKEN_BOOT, slot, &gen);
  a->c->use = SB_USE_DRAIN;
  return status;
}
static void take_the_last_too(void) { came_to[1] = take_chunk(&two, SB_USE_PLAIN, HALF + HALF / 2, &slots[1]); }

static void empty(void) {
  for (int i = 0; i < 2; i++) {
    if (came_to[i] == SB_OK) sb_slab_free_now(t.b, slots[i]);
  }
  empty_again();
}

static void last_but_the_reserve(void) {
  uint32_t reserve = sb_reserve_chunks(t.b);
  fill_up_to(reserve + 1);
  meanwhile("sb_chunk.c", take_the_last_too);
  came_to[0] = take_chunk(&one, SB_USE_PLAIN, HALF - 4096, &slots[0]);
  afterwards();
  expect(sb_chunk_spare(t.b) == reserve, "%d chunks are left of a reserve of %d", (int)sb_chunk_spare(t.b),
         (int)reserve);
  expect((came_to[0] == SB_OK) != (came_to[1] == SB_OK), "one came to %d, the other to %d", (int)came_to[0],
         (int)came_to[1]);
  empty();
}

/* What is opened for objects never goes back: none of them is left to the broker by mistake. */
static void stage_the_last_too(void) { came_to[1] = take_chunk(&two, SB_USE_STAGE, HALF + HALF / 2, &slots[1]); }
static void gives_way(void) {
  uint64_t gen;
  unsigned level = sb_class_of_kind(t.b, SB_KIND_CONSUMER_LEVEL);
  fill_up_to(2); /* staging leaves one */
  expect(SB_LOAD(&t.b->classes[level].chunks, SB_SEQ_CST) == 0, "there is a chunk for levels already");
  meanwhile("slab.chunk.counted", stage_the_last_too);
  one.c->use = SB_USE_STAGE;
  came_to[0] = sb_slab_alloc(one.c, level, SB_TOKEN_BOOT, &slots[0], &gen);
  one.c->use = SB_USE_DRAIN;
  afterwards();
  expect(came_to[1] == SB_OK, "the first one has nothing: status %d", (int)came_to[1]);
  expect(came_to[0] == SB_NO_MEMORY, "the second one came to %d", (int)came_to[0]);
  expect(sb_chunk_spare(t.b) == 1, "%u chunks are left, not the last one", sb_chunk_spare(t.b));
  empty();
}

static void drained_meanwhile(void) {
  uint32_t other;
  fill_up_to(sb_reserve_chunks(t.b));
  came_to[0] = came_to[1] = SB_NO_MEMORY;
  expect(take_chunk(&one, SB_USE_PLAIN, HALF, &other) == SB_NO_MEMORY, "a plain put took of the reserve");
  came_to[1] = take_chunk(&two, SB_USE_DRAIN, HALF / 2 - 4096, &slots[1]);
  expect(came_to[1] == SB_OK, "what drains the broker has no memory: status %d", (int)came_to[1]);
  expect(take_chunk(&one, SB_USE_PLAIN, HALF / 2 - 4096, &other) == SB_NO_MEMORY,
         "a plain put took a slot of a chunk that was opened out of the reserve");
  came_to[0] = take_chunk(&one, SB_USE_BOOKS, HALF / 2 - 4096, &slots[0]);
  expect(came_to[0] == SB_OK, "another use has no slot of the reserve: status %d", (int)came_to[0]);
  empty();
}

/* Of records with text settings a chunk has the fewest, so that it is filled in fast. A run without such queues has no
 * chunk for them. */
static unsigned records_class(void) { return sb_class_of_kind(t.b, SB_KIND_LONG_QUEUE); }
static sb_status take_record(const actor *a, unsigned use, uint32_t *slot) {
  uint64_t gen;
  a->c->use = use;
  sb_status status = sb_slab_alloc(a->c, records_class(), SB_TOKEN_BOOT, slot, &gen);
  a->c->use = SB_USE_DRAIN;
  return status;
}
static unsigned other_use;
static void take_record_too(void) { came_to[1] = take_record(&two, other_use, &slots[1]); }
/* The number of chunks for these records, or of those that are not OF_RESERVE. Makes all of them FREE afterwards. */
static unsigned chunks_for_records(bool unmarked, bool give_back) {
  unsigned n = 0, units = sb_class_units(records_class());
  for (uint32_t chunk = 0; chunk < sb_chunk_count(t.b); chunk++) {
    uint64_t word = SB_LOAD(&t.b->chunks[chunk], SB_SEQ_CST);
    if (sb_chunk_state(word) != SB_CHUNK_CLASS || sb_chunk_class(word) != records_class()) continue;
    n += !unmarked || (word & SB_CHUNK_OF_RESERVE) == 0;
    if (give_back) {
      sb_chunk_scrub(t.b, chunk, units);
      (void)SB_SUB(&t.b->classes[records_class()].chunks, 1, SB_SEQ_CST);
      SB_STORE(&t.b->chunks[chunk], sb_chunk_word(SB_CHUNK_FREE, 0, 0, 0), SB_SEQ_CST);
    }
  }
  return n;
}
static void first_of_a_kind(unsigned second_use) {
  uint32_t reserve = sb_reserve_chunks(t.b), third;
  fill_up_to(reserve);
  expect(chunks_for_records(false, false) == 0, "there is a chunk for these records already");
  came_to[0] = came_to[1] = SB_NO_MEMORY;
  other_use = second_use;
  meanwhile(ANYWHERE, take_record_too);
  came_to[0] = take_record(&one, SB_USE_PLAIN, &slots[0]);
  afterwards();
  expect(came_to[0] == SB_OK && came_to[1] == SB_OK, "one came to %d, the other to %d", (int)came_to[0],
         (int)came_to[1]);
  expect(slots[0] != slots[1], "both got slot %u", slots[0]);
  expect(chunks_for_records(true, false) == 1, "plain puts took more than one chunk of the reserve");
  expect(sb_chunk_spare(t.b) + 2 >= reserve, "%u chunks are left", sb_chunk_spare(t.b));
  expect(take_record(&one, SB_USE_PLAIN, &third) == SB_OK, "a plain put has no second record");
  sb_slab_free_now(t.b, third);
  for (int i = 0; i < 2; i++) {
    if (came_to[i] == SB_OK) sb_slab_free_now(t.b, slots[i]);
  }
  (void)chunks_for_records(false, true);
  empty_again();
}
static void first_of_a_kind_for_two_puts(void) { first_of_a_kind(SB_USE_PLAIN); }
static void first_of_a_kind_for_a_put(void) { first_of_a_kind(SB_USE_DRAIN); }

/* ---- a connection for which there is no memory ---- */

static uint32_t records[4096], record_count;
static uint64_t another_ones;
static sb_word *number_word(void) {
  uint32_t id = (SB_LOAD(&t.b->header->next_connection, SB_SEQ_CST) - 1) % SB_MAX_CONNECTIONS;
  return &t.b->connections[id];
}
static void take_the_number(void) {
  another_ones = sb_conn_word(SB_CONN_LIVE, t.b->process, 0, sb_conn_epoch(SB_LOAD(number_word(), SB_SEQ_CST)) + 1);
  SB_STORE(number_word(), another_ones, SB_SEQ_CST);
}
/* A hint leads to a slot that is taken, and there is none for the record of the connection. */
static void no_record(void) {
  sb_status status = SB_OK;
  uint64_t gen;
  unsigned cls = sb_class_of_kind(t.b, SB_KIND_CONNECTION);
  fill_up_to(0);
  while (sb_slab_alloc(keeper.c, cls, SB_TOKEN_BOOT, &records[record_count], &gen) == SB_OK) record_count++;
  expect(record_count > 0, "no record was free");
  uint32_t index = records[0] % SB_CHUNK_UNITS / sb_class_units(cls);
  sb_chunk_hint_set(t.b, cls, records[0] / SB_CHUNK_UNITS, index / 64, UINT64_C(1) << (index % 64));
  meanwhile("connection.id.freed", take_the_number);
  expect(sb_connection_open(t.b, "", 0, &status) == NULL && status == SB_NO_MEMORY, "it came to %d", (int)status);
  afterwards();
  expect(SB_LOAD(number_word(), SB_SEQ_CST) == another_ones, "the number of another connection was given back");
  SB_STORE(number_word(), sb_conn_word(SB_CONN_FREE, 0, 0, sb_conn_epoch(another_ones)), SB_SEQ_CST);
  while (record_count > 0) sb_slab_free_now(t.b, records[--record_count]);
  empty();
}

/* ---- handles of deleted queues ---- */

#define HANDLES 300u
#define DELETED 10u
static sb_queue *handles[HANDLES + DELETED];

static sb_queue *open_number(const actor *a, unsigned i) {
  char name[16];
  snprintf(name, sizeof name, "q%u", i);
  t.c = a->c;
  return open_queue(&t, name);
}
static void have_handle(unsigned i) {
  char name[16];
  snprintf(name, sizeof name, "q%u", i);
  t.c = keeper.c;
  if (declare(&t, name, (sb_settings)FREELY) != SB_OK) die("sb_queue_declare", (int)i);
  handles[i] = open_number(&one, i);
}
static void delete_number(unsigned i) {
  int32_t holder;
  uint64_t removed;
  sb_queue *q = open_number(&keeper, i);
  (void)sb_queue_delete(q, false, false, FOREVER, &holder, &removed);
  (void)sb_queue_close(q);
}
static void look_at_all(void) {
  do (void)sb_queue_get(one.q, buffer, true);
  while (one.c->handles_due > 0);
}

/* The look begins in the middle; what is opened meanwhile is looked at before those that come last. */
static void opened_meanwhile(void) {
  unsigned held = 0;
  for (unsigned i = 0; i < HANDLES; i++) have_handle(i);
  delete_number(0);
  (void)sb_queue_get(one.q, buffer, true);
  delete_number(1);
  look_at_all();
  unsigned last = 2; /* the one before the next */
  while (last < HANDLES && (handles[last]->ledger == NULL || handles[last]->next != one.c->handles_next)) last++;
  for (unsigned i = 0; i < DELETED; i++) delete_number(last + i);
  (void)sb_queue_get(one.q, buffer, true);
  for (unsigned i = 0; i < DELETED; i++) have_handle(HANDLES + i);
  look_at_all();
  for (unsigned i = 0; i < DELETED; i++) held += handles[last + i]->ledger != NULL;
  expect(held == 0, "%u of %u handles of deleted queues are kept", held, DELETED);
  for (unsigned i = 0; i < HANDLES + DELETED; i++) {
    (void)sb_queue_close(handles[i]);
    if ((i > 1 && i < last) || i >= last + DELETED) delete_number(i);
  }
}

/* ---- a chunk that is drained ---- */

static void pass_one(void) {
  put_by(&two, 2);
  got = take(&two);
}

/* Who drains it finds a slot that was taken, and gives up; what was taken is a message like any other meanwhile. */
static void drained_beside(void) {
  uint32_t chunk = 1, n = sb_chunk_count(t.b);
  unsigned shortest = sb_class_for(t.b, 1);
  put_by(&two, 1);
  (void)take(&two);
  sb_slab_flush_freed(two.c);
  while (chunk < n && SB_LOAD(&t.b->chunks[chunk], SB_SEQ_CST) != sb_chunk_word(SB_CHUNK_CLASS, 0, shortest, 0))
    chunk++;
  expect(chunk < n, "there is no chunk of short slots");
  meanwhile("slab.chunk.draining", pass_one);
  (void)sb_chunk_drain(one.c, SB_TOKEN_BOOT, chunk);
  afterwards();
  expect(got == 2, "message 2 was put, and %d was got", (int)got);
}

/* ---- parts ---- */

#define BYTES 1000u /* of parts of 256 bytes */
static uint64_t head_gen;

static uint64_t used(void) { return sb_slab_used(t.b); }
static void sweep_parts(void) { sb_parts_sweep(t.b); }
static void scatter(void) {
  sb_status status = sb_scatter_alloc(one.c, sizeof(sb_message_shm), BYTES, SB_TOKEN_BOOT, &slots[0], &head_gen);
  expect(status == SB_OK, "no parts: status %d", (int)status);
}
static void expect_parts(void) {
  int room = (int)sb_parts_room(t.b, slots[0]);
  expect(room >= (int)BYTES, "the parts hold %d bytes", room);
}

static void sweep_beside_making(void) {
  uint64_t before = used();
  meanwhile(ANYWHERE, sweep_parts);
  scatter();
  afterwards();
  expect_parts();
  (void)sb_slab_free_gen(t.b, slots[0], head_gen);
  expect(used() == before, "%d bytes are left", (int)(used() - before));
}

static void sweep_beside_freeing(void) {
  uint64_t before = used();
  scatter();
  meanwhile(ANYWHERE, sweep_parts);
  (void)sb_slab_free_gen(t.b, slots[0], head_gen);
  afterwards();
  expect(used() == before, "%d bytes are left", (int)(used() - before));
}

/* A sweep that passed the others while their head lived frees the second one, which leads to them. */
static void free_the_second(void) {
  const sb_part_shm *first = sb_slot_at(t.b, slots[1]);
  sb_word *header = sb_slot_header(t.b, first->next);
  uint64_t gen = sb_slot_gen(SB_LOAD(header, SB_SEQ_CST));
  SB_STORE(header, sb_slot_word(SB_SLOT_FREE, 0, gen + 1), SB_SEQ_CST);
}

static void broken_row(void) {
  uint64_t before = used();
  scatter();
  slots[1] = sb_parts_first(t.b, slots[0]);
  meanwhile("slab.freed", free_the_second);
  (void)sb_slab_free_gen(t.b, slots[0], head_gen);
  afterwards();
  expect(used() == before, "%d bytes are left", (int)(used() - before));
}

/* Who was killed when the head was free left its parts. */
static void two_sweep(void) {
  uint64_t before = used();
  scatter();
  sb_word *header = sb_slot_header(t.b, slots[0]);
  SB_STORE(header, sb_slot_word(SB_SLOT_FREE, 0, head_gen + 1), SB_SEQ_CST);
  meanwhile(ANYWHERE, sweep_parts);
  sweep_parts();
  afterwards();
  expect(used() == before, "%d bytes are left", (int)(used() - before));
}

/* Steps of a put and a get. */
static int steps_of_a_cycle(void) {
  enum { CYCLES = 200 };
  put_by(&one, 1);
  (void)take(&one);
  uint64_t before = steps_so_far;
  for (int i = 0; i < CYCLES; i++) {
    put_by(&one, 1);
    expect(take(&one) == 1, "what was put is not there");
  }
  return (int)((steps_so_far - before) / CYCLES);
}
static void crowded(void) {
  sb_settings freely = FREELY;
  sb_put_options none = {0};
  int before = steps_of_a_cycle();
  t.c = keeper.c;
  if (declare(&t, "filler", freely) != SB_OK) die("sb_queue_declare", 0);
  sb_queue *full = open_queue(&t, "filler");
  while (put_sized(&t, full, 1, 8000, &none) == SB_OK) {
  }
  for (int i = 0; i < 5; i++) expect(get(&t, full, held_a, true) == 1, "nothing is left to take");
  int after = steps_of_a_cycle();
  expect(after <= 2 * before, "put and get take %d steps, in a nearly full broker %d", before, after);
}

static const test_case CASES[] = {
    {"crowded", "a put does not look at all chunks each time where all are in use", FREELY, crowded},
    {"first leaf",
     "two need the first slot of a kind at once: one chunk is opened",
     {{-1, -1, -1, 0, -1, -1}, 0},
     first_leaf},
    {"last but the reserve",
     "two puts see the last chunk that is not reserved: one of them takes it",
     {{-1, -1, -1, 0, -1, -1}, 0},
     last_but_the_reserve},
    {"gives way",
     "the one of two that claims later, and would leave less than its use must, opens no chunk",
     {{-1, -1, -1, 0, -1, -1}, 0},
     gives_way},
    {"out of the reserve",
     "what drains takes of the reserve, and a plain put no slot of that",
     {{-1, -1, -1, 0, -1, -1}, 0},
     drained_meanwhile},
    {"first of a kind, two puts",
     "plain puts open one chunk of the reserve for a structure that has none, and both have a slot of it",
     {{-1, -1, -1, 0, -1, -1}, 0},
     first_of_a_kind_for_two_puts},
    {"first of a kind, put",
     "a plain put shares the chunk that a call which drains opened first, or at the same time",
     {{-1, -1, -1, 0, -1, -1}, 0},
     first_of_a_kind_for_a_put},
    {"no record",
     "a connection that has no memory gives back what it took, and nothing else",
     {{-1, -1, -1, 0, -1, -1}, 0},
     no_record},
    {"opened meanwhile",
     "handles of deleted queues are let go, although others are opened",
     {{-1, -1, -1, 0, -1, -1}, 0},
     opened_meanwhile},
    {"drained beside",
     "a message in a chunk that somebody drains is whole",
     {{-1, -1, -1, 0, -1, -1}, 0},
     drained_beside},
    {"parts, made",
     "a sweep beside who gathers parts takes none of them",
     {{-1, -1, -1, 0, -1, -1}, 0},
     sweep_beside_making},
    {"parts, freed",
     "a sweep beside who frees a row: all parts are free",
     {{-1, -1, -1, 0, -1, -1}, 0},
     sweep_beside_freeing},
    {"parts, broken row", "who finds a row broken frees the rest of it", {{-1, -1, -1, 0, -1, -1}, 0}, broken_row},
    {"parts, swept", "two who sweep: all parts are free", {{-1, -1, -1, 0, -1, -1}, 0}, two_sweep},
};
const subject MEMORY_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
