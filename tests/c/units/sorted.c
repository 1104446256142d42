// SPDX-License-Identifier: Apache-2.0
/* sb_sorted: which message is taken, what an index does not know, and what the search leaves. A message's id is its key,
 * unless the case says otherwise. */
#include "sb_sorted.h"

#include <stdlib.h>
#include <string.h>

#include "../sort_operations.h"
#include "calls.h"
#include "queues.h"
#include "sb_choice.h"
#include "sb_closing.h"
#include "sb_release.h"
#include "surroundings.h"

static const sb_settings SETTINGS = SORTED;
static sb_queue *q;
static sb_sorted *index_of_case;
static sb_taken taken;
static uint64_t token;

static void begin_with(sb_settings settings) {
  q = queue_named("q", settings);
  index_of_case = NULL;
}
static void begin(void) { begin_with(SETTINGS); }
static void put_key(unsigned key) {
  char properties[13];
  sb_put_options o = sort_options(properties, key);
  expect_is(put_sized(&t, q, key, 64, &o), SB_OK, "the status of a put");
}
static void put_keys(const char *keys) {
  for (; *keys != 0; keys++) put_key((unsigned)(*keys - '0'));
}
typedef bool wish_of(const sb_queue *queue, const void *who, uint32_t slot, const sb_message_shm *m);
static sb_status take_with(sb_sorted **index, wish_of *wish) {
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  static char name[] = "reader";
  const sb_sorted_reader reader = {wish, NULL, name};
  sb_status status = sb_sorted_take(q, index, &reader, token, &taken);
  if (status != SB_OK) sb_holding_give(t.c, token);
  return status;
}
static sb_status take(void) { return take_with(&index_of_case, NULL); }
static uint64_t taken_number(void) { return taken.position - q->base; }
static void expect_taken(const char *numbers) {
  for (; *numbers != 0; numbers++) {
    expect_is(take(), SB_OK, "the status");
    expect_is(taken_number(), *numbers - '0', "the number of the message");
  }
}
static void give_back(uint64_t of) {
  expect_is(sb_release_message(q, of, SB_REQUEUE), SB_OK, "the status of a return");
}
static void end(void) {
  sb_sorted_free(&index_of_case);
  expect(index_of_case == NULL, "the index is still there");
}

static void smallest_first(void) {
  begin();
  put_keys("52814");
  expect_taken("31");
  put_keys("1");
  expect_taken("5402");
  expect_is(take(), SB_EMPTY, "the status at the end");
  put_keys("7");
  expect_taken("6");
  end();
}
static void first_come_first_served(void) {
  begin();
  put_keys("2122");
  expect_taken("1023");
  end();
}
static void without_a_key_first(void) {
  begin();
  put_keys("1");
  expect_is(put(&t, q, 1), SB_OK, "the status of a put");
  expect_is(put(&t, q, 2), SB_OK, "the status of a put");
  expect_taken("120");
  end();
}
static void what_returns_is_next(void) {
  begin();
  put_keys("1234");
  expect_taken("0");
  uint64_t first = token;
  expect_taken("1");
  give_back(first);
  expect_taken("0");
  give_back(token);
  expect_taken("023");
  expect_is(take(), SB_EMPTY, "the status at the end");
  end();
}
/* Another index takes and returns; this one has read the cell before, or while the other had it. */
static void what_others_return_is_found(void) {
  sb_sorted *another = NULL;
  begin();
  put_keys("1234");
  expect_is(take_with(&another, NULL), SB_OK, "the status of another reader");
  uint64_t elsewhere = token;
  expect_taken("1");
  give_back(elsewhere);
  expect_taken("0");
  expect_is(take_with(&another, NULL), SB_OK, "the status of another reader");
  expect_is(taken_number(), 2, "what it gets");
  expect_taken("3");
  sb_sorted_free(&another);
  end();
}
static void the_counter_of_returns(void) {
  begin();
  put_keys("12");
  uint64_t before = SB_LOAD(&q->shm->returned, SB_RELAXED);
  expect_taken("0");
  expect_is(SB_LOAD(&q->shm->returned, SB_RELAXED), before, "the counter after a take");
  give_back(token);
  expect(SB_LOAD(&q->shm->returned, SB_RELAXED) > before, "a return is not counted");
  before = SB_LOAD(&q->shm->returned, SB_RELAXED);
  sb_requeued_mark(t.b, &q->lanes[0].ring, q->base);
  expect(SB_LOAD(&q->shm->returned, SB_RELAXED) > before, "bits are set again, and not counted");
  sb_queue *plain = queue_named("plain", (sb_settings)FREELY);
  expect(plain->lanes[0].ring.returned == NULL, "a plain queue counts returns");
}
/* Whatever the counter says, a reader that would find nothing looks at all bits. */
static void a_lost_count_is_no_loss(void) {
  begin();
  put_keys("12");
  expect_taken("01");
  uint64_t last = token;
  expect_is(take(), SB_EMPTY, "the status of an empty queue");
  uint64_t before = SB_LOAD(&q->shm->returned, SB_RELAXED);
  give_back(last);
  SB_STORE(&q->shm->returned, before, SB_RELAXED);
  expect_taken("1");
  end();
}
static void what_is_finished_loses_its_bits(void) {
  begin();
  put_keys("12");
  expect_taken("0");
  expect_is(sb_dispose(q, token, SB_REASON_ACKED), SB_OK, "the status of an ack");
  sb_requeued_mark(t.b, &q->lanes[0].ring, q->base);
  expect_taken("1");
  expect_is(take(), SB_EMPTY, "the status");
  expect_is(SB_LOAD(&q->shm->requeued, SB_RELAXED), 0, "the flag of the queue");
  expect(!sb_queue_looks_ready(q), "the queue looks ready");
  end();
}
static bool odd(const sb_queue *of, const void *reader, uint32_t slot, const sb_message_shm *m) {
  const uint8_t *properties = (const uint8_t *)sb_slot_at(of->c->b, slot) + sizeof *m;
  expect(strcmp(reader, "reader") == 0, "the reader is another");
  return properties[m->properties_length - 1] % 2 == 1; /* the number that is the key */
}
static void only_what_is_wanted(void) {
  begin();
  put_keys("4321");
  uint64_t head = SB_LOAD(&q->shm->head, SB_RELAXED);
  expect_is(take_with(&index_of_case, NULL), SB_OK, "the status of a reader of all");
  uint64_t first = token;
  sb_sorted *chosen = NULL;
  expect_is(taken_number(), 3, "what it gets");
  expect_is(take_with(&chosen, odd), SB_OK, "the status of a reader with a wish");
  expect_is(taken_number(), 1, "what it gets");
  expect_is(take_with(&chosen, odd), SB_EMPTY, "the status when only others are left");
  expect_is(SB_LOAD(&q->shm->head, SB_RELAXED), head, "the head");
  give_back(first);
  expect_is(take_with(&chosen, odd), SB_OK, "the status after a return");
  expect_is(taken_number(), 3, "what returned");
  expect_taken("20");
  sb_sorted_free(&chosen);
  end();
}
static void an_empty_queue_moves_the_head(void) {
  begin();
  put_keys("321");
  expect_taken("210");
  expect_is(SB_LOAD(&q->shm->head, SB_RELAXED), q->base, "the head before the end was seen");
  expect_is(take(), SB_EMPTY, "the status");
  expect_is(SB_LOAD(&q->shm->head, SB_RELAXED), q->base + 3, "the head");
  expect_is(q->lanes[0].cursor, q->base + 3, "the cursor of the handle");
  expect(!sb_queue_looks_ready(q), "the queue looks ready");
  end();
}
static void staged_cells_are_marked(void) {
  begin();
  put_keys("21");
  uint64_t word = word_at(q, 1);
  set_cell_word(q, 1, sb_cell_owned(SB_CELL_STAGED, sb_cell_slot(word), 0, 99, gen_at(q, 1)));
  SB_STORE(&q->shm->staged, 1, SB_RELAXED);
  expect_taken("0");
  expect(sb_requeued_is_marked(t.b, &q->lanes[0].ring, q->base + 1), "a STAGED cell that was passed has no bits");
  expect_is(take(), SB_EMPTY, "the status beside a STAGED cell");
  set_cell_word(q, 1, word);
  sb_requeued_returned(&q->lanes[0].ring);
  expect_taken("1");
  end();
}
static void a_closed_queue_gives_nothing(void) {
  begin();
  put_keys("12");
  expect_taken("0");
  begin_to_close(q, 0);
  expect_is(take(), SB_DELETED, "the status");
  end();
}
/* Messages that others removed do not stay in the heap: it keeps about as many as are there. */
static void an_index_does_not_grow_without_bound(void) {
  begin();
  uint64_t before = allocated_bytes();
  put_key(1);
  for (unsigned round = 0; round < 40; round++) {
    sb_taken t2;
    put_key(0);
    for (unsigned i = 0; i < 200; i++) put_key(9);
    expect_is(take(), SB_OK, "the status");
    expect_is(sb_dispose(q, token, SB_REASON_ACKED), SB_OK, "the status of an ack");
    for (uint64_t at = SB_LOAD(&q->shm->tail, SB_RELAXED) - 200; at < SB_LOAD(&q->shm->tail, SB_RELAXED); at++) {
      if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
      if (sb_take_at(q, at, SB_CELL_AVAILABLE, token, &t2) == SB_OK) {
        (void)sb_dispose(q, token, SB_REASON_KILLED);
      } else {
        sb_holding_give(t.c, token);
      }
    }
  }
  expect(before == 0 || allocated_bytes() - before < 4 * 1024 * sizeof(sb_sort_key), "the index has grown");
  end();
  expect(allocated_bytes() - before < 1024, "the index keeps memory"); /* malloc keeps a little of what was freed */
}
static void take_without_memory(void) { expect_is(take(), SB_NO_MEMORY, "the status"); }
static void without_memory_for_an_index(void) {
  begin();
  put_keys("21");
  without_memory(take_without_memory);
  expect_taken("10");
  end();
}
/* A get and a plain consumer use the index of the handle, which goes with the handle. */
static void the_index_of_a_handle(void) {
  char *buffer = malloc(BUFFER);
  begin();
  put_keys("31");
  put_key(2);
  expect_is(get(&t, q, buffer, true), 1, "the first");
  expect(q->sorted != NULL, "the handle has no index");
  expect_is(get(&t, q, buffer, true), 2, "the second");
  expect_is(get(&t, q, buffer, true), 3, "the third");
  expect(sb_queue_close(q), "the handle stays");
  expect(q->sorted == NULL, "the handle keeps its index");
  free(buffer);
}
static void expired_messages_are_removed(void) {
  char properties[13], *buffer = malloc(BUFFER);
  begin();
  sb_put_options o = sort_options(properties, 1);
  o.ttl_ns = 1;
  expect_is(put_sized(&t, q, 1, 64, &o), SB_OK, "the status of a put");
  put_key(2);
  expect_is(get(&t, q, buffer, true), 2, "what is got");
  expect_is(counted(q, SB_COUNT_EXPIRED), 1, "what expired");
  free(buffer);
}
static void a_message_that_cannot_be_read(void) {
  begin();
  put_keys("12");
  set_cell_word(q, 0, open_word(q, 0, SB_CELL_AVAILABLE, (1u << 28) - 1));
  expect_is(take(), SB_CORRUPT, "the status");
  end();
}

static void a_flag_without_a_header_is_found(void) {
  begin();
  expect(findings(t.c) == NULL, "the doctor finds something in a sorted queue");
  ((sb_long_queue_shm *)sb_slot_at(t.b, q->slot))->texts[5] ^= 1;
  const char *found = findings(t.c);
  expect(found != NULL, "the doctor finds no flag without the name of a header");
}

static const test_case CASES[] = {
    {"sorted: smallest", "the smallest key comes first, whenever it was put", smallest_first},
    {"sorted: ties", "equal keys come as they were put", first_come_first_served},
    {"sorted: no key", "messages without a key come first", without_a_key_first},
    {"sorted: returned", "a message that returned has its place again", what_returns_is_next},
    {"sorted: returned elsewhere", "what another reader returns is found", what_others_return_is_found},
    {"sorted: counter", "returns are counted, in sorted queues only", the_counter_of_returns},
    {"sorted: lost count", "a return that was not counted is found when nothing else is", a_lost_count_is_no_loss},
    {"sorted: finished", "a finished cell loses its bits", what_is_finished_loses_its_bits},
    {"sorted: wish", "a reader takes what it wants, and hides nothing", only_what_is_wanted},
    {"sorted: head", "a reader that has seen all moves the head", an_empty_queue_moves_the_head},
    {"sorted: staged", "a STAGED cell is marked, and found after its commit", staged_cells_are_marked},
    {"sorted: closed", "a closed queue gives nothing", a_closed_queue_gives_nothing},
    {"sorted: bound", "messages that others removed leave the index", an_index_does_not_grow_without_bound},
    {"sorted: no memory", "without memory nothing is lost", without_memory_for_an_index},
    {"sorted: handle", "gets share the index of their handle", the_index_of_a_handle},
    {"sorted: expired", "expired messages are removed on the way", expired_messages_are_removed},
    {"sorted: doctor", "the doctor finds a flag without a header", a_flag_without_a_header_is_found},
    {"sorted: damaged", "a cell that names no slot is damage", a_message_that_cannot_be_read},
};
SUBJECT(CASES)
