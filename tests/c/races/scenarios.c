// SPDX-License-Identifier: Apache-2.0
#include "scenarios.h"

#include <string.h>

#include "sb_limits.h"
#include "sb_slab.h"

#define RING(n) {(n), -1, -1, 0, 0}
#define ONE_AT_MOST {-1, 1, -1, SB_OVERFLOW_BLOCK, 0}
#define BYTES_DROP_HEAD(n) {-1, -1, (n), SB_OVERFLOW_DROP_HEAD, 0}
#define LONG_BODY 5000u
#define FRONT 128u /* of a body without properties: message header, viewers' words */

/* ---- before ---- */

static void nothing(void) {}
static void put_by_keeper(uint64_t first, uint64_t last) {
  act_as(KEEPER);
  for (uint64_t id = first; id <= last; id++) (void)put_message(id);
}
static void one_ready(void) { put_by_keeper(1, 1); }
static void two_ready(void) { put_by_keeper(1, 2); }
static void three_ready(void) { put_by_keeper(1, 3); }
/* An eviction that is taken back lets a newer message pass (known gap): a ring keeps no order then. */
static void in_a_ring(void) {
  everything_may_go();
  any_order();
}
static void one_in_a_ring(void) {
  one_ready();
  in_a_ring();
}
static void first_holds_one(void) {
  two_ready();
  act_as(0);
  (void)get_message(me()->q, me()->first);
}
/* The second has passed that place: it finds what comes back by its bit only. */
static void first_holds_one_behind(void) {
  first_holds_one();
  act_as(1);
  (void)get_and_ack(me()->q);
  put_by_keeper(3, 3);
}
/* One came back before, so that searchers know of it, and find in the end that nothing is left. */
static void first_holds_one_other_came_back(void) {
  first_holds_one();
  act_as(1);
  if (get_message(me()->q, me()->first) != 0) nack(me()->q, me()->first);
}
static void both_hold(void) {
  first_holds_one();
  act_as(1);
  (void)get_message(me()->q, me()->first);
}
/* The first page, but for so many of its cells. */
static void use_all_but(unsigned n) {
  act_as(KEEPER);
  n = SB_PAGE_CELLS - (unsigned)sb_ring_exact_tail(me()->t.b, &me()->q->ring) - n; /* warming up used some */
  for (unsigned i = 0; i < n; i++) {
    (void)put(&me()->t, me()->q, 1);
    (void)get(&me()->t, me()->q, me()->first, true);
  }
}
static void at_the_end_of_a_page(void) { use_all_but(1); }
static void last_two_of_a_page(void) {
  use_all_but(2);
  put_by_keeper(1, 3); /* the third lies in the next page */
  act_as(0);
  (void)get_message(me()->q, me()->first);
  act_as(1);
  (void)get_message(me()->q, me()->first);
}
static sb_word *held_header; /* of the slot that what is held lies in */
static uint64_t held_gen;
static void hold_newest(void) {
  sb_leaf_ref leaf;
  uint64_t last = sb_ring_exact_tail(me()->t.b, &me()->q->ring) - 1;
  if (sb_ring_locate(me()->t.b, NULL, &me()->q->ring, last, &leaf) != SB_OK) die("sb_ring_locate", 0);
  held_header = sb_slot_header(me()->t.b, sb_cell_slot(SB_LOAD(&sb_leaf_cell(&leaf, last)->word, SB_ACQUIRE)));
  held_gen = sb_slot_gen(SB_LOAD(held_header, SB_ACQUIRE));
  act_as(0);
  (void)get_message(me()->q, me()->first);
}
/* The second has used up the slots it had at hand, those beside this one: it looks for more. */
static void only_one_held(void) {
  act_as(1);
  (void)put_message(1);
  memset(me()->t.c->cache, 0, sizeof me()->t.c->cache);
  hold_newest();
}
static void long_body_held(void) {
  sb_put_options none = {0};
  act_as(KEEPER);
  (void)put_message_with(1, LONG_BODY, &none);
  hold_newest();
}
static void two_long_bodies(void) {
  sb_put_options none = {0};
  act_as(KEEPER);
  for (uint64_t id = 1; id <= 2; id++) (void)put_message_with(id, LONG_BODY, &none);
}
static void consume_as(unsigned player, uint32_t prefetch, int32_t priority) {
  sb_status status;
  act_as(player);
  consumers_may_return();
  me()->consumer = sb_consume(me()->t.c, &me()->q, 1, prefetch, priority, 0, 0, &status);
  if (me()->consumer == NULL) die("sb_consume", (int)status);
  (void)sb_consumer_next(me()->consumer, me()->first, false); /* it is interested from now on */
}
static void second_consumes(void) { consume_as(1, 4, 0); }
static void two_consume(void) {
  consume_as(1, 4, 0);
  consume_as(2, 4, 0);
}
static void high_and_low_consume(void) {
  consume_as(1, 4, 5);
  consume_as(2, 4, 0);
}
static void second_is_out_of_credit(void) {
  one_ready();
  consume_as(1, 1, 0);
  sb_consumer_pull(me()->consumer);
  (void)next_message(me()->first);
}
static void third_died_with_one(void) {
  two_ready();
  act_as(2);
  (void)get_message(me()->q, me()->first);
  player_dies(2);
}
static void first_holds_one_of_a_ring(void) {
  first_holds_one();
  in_a_ring();
}
static void third_died_with_the_only_one(void) {
  one_ready();
  act_as(2);
  (void)get_message(me()->q, me()->first);
  player_dies(2);
}
static void third_died_in_a_ring(void) {
  third_died_with_the_only_one();
  in_a_ring();
}
static void both_hold_a_shared_body(void) {
  act_as(KEEPER);
  (void)commit_message(1, LONG_BODY, NULL, 0);
  act_as(0);
  (void)get_message(me()->q, me()->first);
  act_as(1);
  (void)get_message(me()->other, me()->first);
}
static void first_holds_a_shared_one(void) {
  act_as(KEEPER);
  (void)commit_message(1, LONG_BODY, NULL, 0);
  hold_newest();
}
static void first_holds_the_only_one(void) {
  one_ready();
  act_as(0);
  (void)get_message(me()->q, me()->first);
}
static uint64_t due_position;
static void some_are_due(uint64_t count) {
  sb_put_options due = {.delay_ns = 1};
  act_as(KEEPER);
  due_position = sb_ring_exact_tail(me()->t.b, &me()->q->ring);
  for (uint64_t id = 1; id <= count; id++) (void)put_message_with(id, 64, &due);
}
static void one_is_due(void) { some_are_due(1); }
static void two_are_due(void) {
  some_are_due(2);
  any_order(); /* whichever is found first */
}
/* As a consumer leaves it that dies before it took what it counted already. */
static void hint_is_wrong(void) {
  one_in_a_ring();
  (void)SB_ADD(&players[KEEPER].q->shm->taken, 1, SB_SEQ_CST);
  come_to_rest();
}
static void consumer_sleeps(void) {
  consume_as(1, 4, 0);
  come_to_rest();
  have_tick(); /* who sleeps is known since */
}

/* ---- roles ---- */

/* Is it put where another one lay, which was held? */
static void note_slot(void) {
  uint64_t header = atomic_load(held_header); /* a look, and no step */
  bool again = sb_slot_state(header) == SB_SLOT_PUBLISHED && sb_slot_gen(header) != held_gen;
  scheduler_note(again ? "in-the-same-slot" : "in-another-slot");
}
static void put_again(void) {
  if (put_message(9)) note_slot();
}
static void put_1(void) { (void)put_message(1); }
static void put_2(void) { (void)put_message(2); }
static void put_3(void) { (void)put_message(3); }
static void put_9(void) { (void)put_message(9); }
static void put_1_2(void) {
  put_1();
  put_2();
}
static void put_2_3(void) {
  put_2();
  put_3();
}
static void put_9_10(void) {
  put_9();
  (void)put_message(10);
}
static void put_then_take(void) {
  if (put_message(2)) (void)get_and_ack(me()->q);
}
static void put_1_2_3_at_once(void) { put_messages(1, 3); }
static void take(void) { (void)get_and_ack(me()->q); }
static void take_then_ack(void) {
  if (get_message(me()->q, me()->first) != 0) ack(me()->q, me()->first);
}
static void take_twice(void) {
  take_then_ack();
  take_then_ack();
}
static void take_thrice(void) {
  take_twice();
  take_then_ack();
}
static void take_again_later(void) {
  take_then_ack();
  scheduler_yield();
  take_then_ack();
}
static void wait_then_ack(void) {
  if (wait_for_message(me()->q, me()->first) != 0) ack(me()->q, me()->first);
}
/* And others are told at once that the slot is free. */
static void ack_and_hint(void) {
  ack(me()->q, me()->first);
  sb_lock(&me()->t.c->lock);
  sb_slab_flush_freed(me()->t.c);
  sb_unlock(&me()->t.c->lock);
}
static void ack_held(void) { ack(me()->q, me()->first); }
static void nack_held(void) { nack(me()->q, me()->first); }
static void put_when_there_is_room(uint64_t id) {
  while (!put_message(id) && sb_wait_for_room(me()->q, false, 64, UINT64_MAX) == SB_OK) {
  }
}
static void put_2_when_room(void) { put_when_there_is_room(2); }
static void put_9_when_room(void) { put_when_there_is_room(9); }
static void put_2_or_give_up(void) {
  if (!put_message(2)) (void)sb_wait_for_room(me()->q, false, 64, UINT64_MAX);
}
static void purge(void) {
  may_go(1);
  may_go(2);
  may_go(9); /* if they came before */
  may_go(10);
  for (int64_t n = sb_purge(me()->q); n > 0; n--) scheduler_note("purged");
}
static void move_some(uint64_t limit) {
  sb_status status;
  any_order();
  for (int64_t n = sb_move(me()->q, me()->other, limit, &status); n > 0; n--) scheduler_note("moved");
}
static void move_two(void) { move_some(2); }
static void move_all(void) { move_some(8); }
static void take_from_other(void) { (void)get_and_ack(me()->other); }
static void delete_queue(void) {
  int32_t holder;
  uint64_t removed;
  everything_may_go();
  if (sb_delete(me()->q, false, false, UINT64_MAX, &holder, &removed) == SB_OK) scheduler_note("deleted");
}
static void delete_if_empty(void) {
  int32_t holder;
  uint64_t removed;
  sb_status status = sb_delete(me()->q, false, true, UINT64_MAX, &holder, &removed);
  scheduler_note(status == SB_OK ? "deleted" : status == SB_NOT_EMPTY ? "not-empty" : "not-deleted");
}
static void shrink(void) {
  int32_t holder;
  sb_settings smaller = RING(1);
  in_a_ring();
  if (sb_configure(me()->q, &smaller, true, UINT64_MAX, &holder) == SB_OK) scheduler_note("shrunk");
}
static void declare_q2(void) {
  sb_status status = declare(&me()->t, "q2", (sb_settings)FREELY);
  scheduler_note(status == SB_OK ? "declared" : status == SB_EXISTS ? "exists" : "not-declared");
  if (status == SB_OK) {
    sb_queue *q = open_queue(&me()->t, "q2");
    scheduler_note(q != NULL ? "opened" : "not-opened");
    if (q == NULL) complain("the queue that was declared is not there");
  }
}
static void leave_with(sb_connection *c) {
  (void)sb_disconnect(c);
  if (sb_forget(c)) scheduler_note("left");
}
static void disconnect(void) { leave_with(me()->t.c); }
static void connect_once_more(void) {
  sb_connection *c = connect_to(&me()->t);
  scheduler_note("connected");
  leave_with(c);
}
static void serve(void) { (void)sb_connection_run_io(me()->t.c); }
static void consume_one(void) {
  if (sb_consumer_wait(me()->consumer, UINT64_MAX) == SB_OK && next_message(me()->first) != 0) ack_next(me()->first);
}
static void ack_consumed(void) { ack_next(me()->first); }
static void cancel(void) {
  sb_consumer_cancel(me()->consumer, true);
  if (me()->consumer->closed) scheduler_note("cancelled");
}
static void suspend(void) {
  sb_consumer_suspend(me()->consumer, true);
  if (me()->consumer->suspended) scheduler_note("suspended");
}
static void subscribe(void) {
  consume_as(1, 4, 0);
  if (me()->consumer->subscription_count == 1) scheduler_note("subscribed");
}
static void view_then_end(void) {
  const sb_record *r = (const sb_record *)(const void *)me()->first;
  uint64_t view, id;
  if (sb_begin_view(me()->t.c, r->tag, r->sequence, r->body_address, &view) == SB_OK) {
    scheduler_note("viewed");
    nack_held();
    memcpy(&id, (const char *)(uintptr_t)r->body_address + LONG_BODY - LONG_BODY % 8 - 8, sizeof id);
    if (id != 1) complain("the body that is looked at is another one's");
    if (sb_end_view(me()->t.c, view) == SB_OK) scheduler_note("looked-away");
  }
}
static void take_long_from(sb_queue *q) {
  char *record = me()->second;
  if (get_and_ack(q) != 0) {
    const sb_record *r = (const sb_record *)(const void *)record;
    if (r->body_address != 0) (void)sb_end_view(me()->t.c, r->tag);
  }
}
static void commit_9(void) { (void)commit_message(9, 64, NULL, 0); }
static void commit_9_or_not(void) { /* to a queue that is deleted it does not go */
  may_go(9);
  commit_9();
}
static void commit_9_put_10(void) {
  commit_9();
  (void)put_message(10);
}
static void commit_9_10(void) {
  commit_9();
  (void)commit_message(10, 64, NULL, 0);
}
/* With locks these two would wait for each other. */
static void commit_2_the_other_way(void) {
  sb_queue *q = me()->q;
  me()->q = me()->other;
  me()->other = q;
  (void)commit_message(2, 64, NULL, 0);
  me()->other = me()->q;
  me()->q = q;
}
static void commit_9_and_ack(void) { (void)commit_with_ack(9, me()->first); }
/* The second of two acknowledgements is one too many: it is found out when all is staged. */
static void commit_in_vain(void) {
  uint64_t token = token_of_record(me()->first);
  sb_settlement ends[2] = {{me()->q, token, 0}, {me()->q, token, 0}};
  if (commit_message(9, 64, ends, 2) == SB_OK) complain("a message is acknowledged twice");
}
static void look_then_end(char *record, sb_queue *q) {
  const sb_record *r = (const sb_record *)(const void *)record;
  uint64_t view, id;
  if (sb_begin_view(me()->t.c, r->tag, r->sequence, r->body_address, &view) == SB_OK) {
    scheduler_note("viewed");
    ack(q, record);
    memcpy(&id, (const char *)(uintptr_t)r->body_address + LONG_BODY - LONG_BODY % 8 - 8, sizeof id);
    uint32_t slot = sb_slot_of(me()->t.b, (const char *)(uintptr_t)r->body_address - FRONT);
    if (id != 1 || sb_slot_state(SB_LOAD(sb_slot_header(me()->t.b, slot), SB_ACQUIRE)) != SB_SLOT_PUBLISHED)
      complain("the shared body that is looked at is not kept");
    if (sb_end_view(me()->t.c, view) == SB_OK) scheduler_note("looked-away");
  }
}
static void look_at_shared(void) { look_then_end(me()->first, me()->q); }
static void look_at_shared_in_other(void) { look_then_end(me()->first, me()->other); }
static void take_other_twice(void) {
  take_from_other();
  take_from_other();
}
static void purge_all(void) {
  everything_may_go();
  for (int64_t n = sb_purge(me()->q); n > 0; n--) scheduler_note("purged");
}
static void take_long(void) { take_long_from(me()->q); }
static void take_long_from_other(void) { take_long_from(me()->other); }
static void take_long_twice(void) {
  take_long();
  take_long();
}
static void put_long(void) {
  sb_put_options none = {0};
  if (put_message_with(9, LONG_BODY, &none)) note_slot();
}
static void look_whether_due(uint64_t position) {
  uint64_t before = ready_messages();
  (void)sb_housekeeper_look_at(me()->q, position);
  scheduler_note(ready_messages() > before ? "made-ready" : "looked");
}
static void become_due(void) {
  for (int i = 0; i < 3; i++) look_whether_due(due_position);
}
static void become_due_second_first(void) {
  look_whether_due(due_position + 1);
  become_due();
}
static void browse(void) {
  uint64_t position = 0;
  while (sb_browse(me()->q, &position, me()->first, 8192) > 0) scheduler_note("saw");
}
static void reserve_then_commit(void) {
  sb_reservation r;
  sb_put_options none = {0};
  uint64_t id = 1;
  if (sb_reserve(me()->q, sizeof id, &none, &r) == SB_OK) {
    memcpy(r.body, &id, sizeof id);
    scheduler_note("reserved");
    note_put(1, false);
    if (sb_commit(me()->q, &r) == SB_OK) {
      scheduler_note("put");
      note_put(1, true);
    }
  }
}

/* ---- afterwards ---- */

/* Counted beside others, hints may be too high; a tick sets them right. */
static void hints_are_set_right(void) { have_ticks(); }
static void is_due(void) { become_due(); }
static void both_are_due(void) { become_due_second_first(); }
static void newest_is_there(void) {
  if (ready_messages() == 0 && !scheduler_somebody_died() && !newest_was_taken())
    complain("the newest message was evicted");
}
static void nobody_sleeps_beside_room(void) {
  for (unsigned i = 0; i < ACTORS; i++) {
    if (scheduler_state(i) == ACTOR_ASLEEP && sb_limits_room(me()->q->shm, 1, 64))
      complain("a producer sleeps beside room");
  }
}
static void ring_is_not_empty(void) {
  if (ready_messages() == 0 && !scheduler_somebody_died()) complain("a message was evicted for one that never came");
}
static void nothing_was_killed(void) {
  uint64_t killed = sb_ledger_sum(me()->t.b, me()->q->shm, SB_COUNT_KILLED);
  if (killed != 0) complain("a queue that was to be deleted if empty was not: %u messages", (unsigned)killed);
}
static void newest_is_there_in_time(void) {
  have_ticks();
  newest_is_there();
}
static void page_is_made(void) {
  if (!scheduler_somebody_died() && sb_ring_exact_tail(me()->t.b, &me()->q->ring) <= SB_PAGE_CELLS)
    complain("no page was made");
}
static void page_is_left(void) {
  sb_leaf_ref leaf;
  sb_queue *q = me()->q;
  if (!scheduler_somebody_died() && sb_ring_locate(me()->t.b, NULL, &q->ring, q->shm->base, &leaf) != SB_DONE)
    complain("a page whose cells are all finished stays");
}
static void page_is_left_if_empty(void) {
  page_is_made();
  if (ready_messages() == 0) page_is_left();
}
/* Hints are set right beside those who change them, and may be wrong where it costs a wake too many, until a tick. */
static void no_rescue(void) {
  const sb_queue_shm *q = players[KEEPER].q->shm;
  if (q->rescues != 0) complain("a rescue was counted");
  have_ticks();
  if (q->rescues != 0 && !scheduler_somebody_died()) complain("somebody slept on, until a tick");
}

#define KEEPS_ALL .bound = -1
/* A table, a line or two for each. */
/* clang-format off */
const scenario SCENARIOS[] = {
    {"two puts", "both are there, in order", FREELY, nothing,
     {{"a", put_1_2, 0, "put put"}, {"b", put_9, 1, "put"}}, KEEPS_ALL},
    {"put, take", "what was put is taken once, or there", FREELY, nothing,
     {{"put", put_1_2, 0, "put put"}, {"take", take_twice, 1, "got acked got acked"}}, KEEPS_ALL},
    {"two takes", "each message goes to one", FREELY, two_ready,
     {{"a", take_then_ack, 0, "got acked"}, {"b", take_twice, 1, "got acked nothing"}}, KEEPS_ALL},
    {"take at once", "acknowledged when taken", FREELY, two_ready,
     {{"a", take, 0, "took"}, {"b", take, 1, "took"}}, KEEPS_ALL},
    {"nack, take", "what comes back is found", FREELY, first_holds_one,
     {{"nack", nack_held, 0, "returned"}, {"take", take_twice, 1, "got acked got acked"}}, KEEPS_ALL},
    {"nack behind, take", "what comes back behind the cursor is found", FREELY, first_holds_one_behind,
     {{"nack", nack_held, 0, "returned"}, {"take", take_twice, 1, "got acked got acked"}}, KEEPS_ALL},
    {"nack again, take", "what comes back when nothing else is left is found", FREELY, first_holds_one_other_came_back,
     {{"nack", nack_held, 0, "returned"}, {"take", take_thrice, 1, "got acked got acked nothing"}}, KEEPS_ALL},
    {"two acks", "acknowledged once each", FREELY, both_hold,
     {{"a", ack_held, 0, "acked"}, {"b", ack_held, 1, "acked"}}, KEEPS_ALL},
    {"ack, put", "a slot is freed and taken again", FREELY, only_one_held,
     {{"ack", ack_and_hint, 0, "acked"}, {"put", put_again, 1, "put in-the-same-slot"}}, KEEPS_ALL},
    {"ack, put, long", "a slot that others may take at once is freed and taken again", FREELY, long_body_held,
     {{"ack", ack_held, 0, "acked"}, {"put", put_long, 1, "put in-the-same-slot"}}, KEEPS_ALL},
    {"put past a page", "one page is made by two", FREELY, at_the_end_of_a_page,
     {{"a", put_1_2, 0, "put put"}, {"b", put_9, 1, "put"}}, page_is_made, KEEPS_ALL},
    {"take past a page", "one page is made, and one left", FREELY, at_the_end_of_a_page,
     {{"put", put_1_2, 0, "put put"}, {"take", take_twice, 1, "got acked got acked"}}, page_is_left_if_empty,
     KEEPS_ALL},
    {"page done", "a page whose last two cells end is freed once", FREELY, last_two_of_a_page,
     {{"a", ack_held, 0, "acked"}, {"b", ack_held, 1, "acked"}}, page_is_left, KEEPS_ALL},
    {"page done, take", "the page after it is found", FREELY, last_two_of_a_page,
     {{"ack", ack_held, 0, "acked"}, {"nack", nack_held, 1, "returned"},
      {"take", take_twice, 2, "got acked got acked"}},
     page_is_left_if_empty, KEEPS_ALL},
    {"ring, put, take", "never more than one, and never the newest lost", RING(1), one_in_a_ring,
     {{"put", put_2_3, 0, "put put"}, {"take", take_then_ack, 1, "got acked"}}, newest_is_there, .bound = 1},
    {"ring, two puts", "one of the two newest stays", RING(1), one_in_a_ring,
     {{"a", put_2, 0, "put"}, {"b", put_9, 1, "put"}}, newest_is_there, .bound = 1},
    {"ring, nack", "what comes back to a full ring is evicted", RING(1), first_holds_one_of_a_ring,
     {{"put", put_9, 1, "put"}, {"nack", nack_held, 0, "returned"}}, .bound = 1},
    {"bytes, put, take", "never too many bytes", BYTES_DROP_HEAD(100), one_in_a_ring,
     {{"put", put_2_3, 0, "put put"}, {"take", take_then_ack, 1, "got acked"}}, newest_is_there, .bound = 1},
    {"room, one waits", "a producer that waits is told of room", ONE_AT_MOST, one_ready,
     {{"put", put_2_when_room, 0, "full slept put"}, {"take", take_then_ack, 1, "got acked"}},
     nobody_sleeps_beside_room, .bound = 1, .idle = true},
    {"room, two wait", "each of two producers is told", ONE_AT_MOST, one_ready,
     {{"a", put_2_when_room, 0, "full slept put"}, {"b", put_9_when_room, 1, "full slept full slept put"},
      {"take", take_again_later, 2, "got acked got acked"}},
     nobody_sleeps_beside_room, .bound = 1, .idle = true},
    {"room, one gives up", "who is told of room and does not use it tells the next one", ONE_AT_MOST, one_ready,
     {{"a", put_2_or_give_up, 0, "full slept"}, {"b", put_9_when_room, 1, "full slept put"},
      {"take", take_then_ack, 2, "got acked"}},
     nobody_sleeps_beside_room, .bound = 1, .idle = true},
    {"wait, put", "whoever waits in get is woken", FREELY, nothing,
     {{"wait", wait_then_ack, 1, "slept got acked"}, {"put", put_1, 0, "put"}}, KEEPS_ALL},
    {"two wait, put", "each of two is woken for its own", FREELY, nothing,
     {{"b", wait_then_ack, 1, "slept got acked"}, {"c", wait_then_ack, 2, "slept got acked"},
      {"put", put_1_2, 0, "put put"}}, KEEPS_ALL},
    {"wait, nack", "whoever waits is woken by what comes back", FREELY, first_holds_one_behind,
     {{"b", wait_then_ack, 1, "got acked"}, {"c", wait_then_ack, 2, "slept got acked"},
      {"nack", nack_held, 0, "returned"}}, KEEPS_ALL},
    {"consumer, put", "a thread serves the consumer that is told", FREELY, second_consumes,
     {{"consumer", consume_one, 1, "slept got acked"}, {"io", serve, 1, "slept filled slept"},
      {"put", put_1, 0, "put"}},
     KEEPS_ALL},
    {"consumers, put", "each of two consumers is told, and one may take all", FREELY, two_consume,
     {{"b", serve, 1, "slept filled filled slept"}, {"c", serve, 2, "slept slept"}, {"put", put_1_2, 0, "put put"}},
     KEEPS_ALL},
    {"cancel, put", "whom the first does not serve, the other does", FREELY, two_consume,
     {{"put", put_1, 0, "put"}, {"cancel", cancel, 1, "cancelled"}, {"c", serve, 2, "filled slept"}}, KEEPS_ALL},
    {"suspend, put", "a lower priority is served when the higher one does not want to be", FREELY, high_and_low_consume,
     {{"put", put_1_2, 0, "put put"}, {"suspend", suspend, 1, "suspended"}, {"low", serve, 2, "filled filled slept"}},
     KEEPS_ALL},
    {"credit, put", "credit that comes back is used", FREELY, second_is_out_of_credit,
     {{"io", serve, 1, "slept filled slept"}, {"ack", ack_consumed, 1, "acked"}, {"put", put_2, 0, "put"}}, KEEPS_ALL},
    {"subscribe, put", "a new consumer sees what came before or after", FREELY, nothing,
     {{"subscribe", subscribe, 1, "subscribed"}, {"io", serve, 1, "slept filled slept"}, {"put", put_1, 0, "put"}},
     KEEPS_ALL},
    {"purge, take", "each is removed or taken", FREELY, two_ready,
     {{"take", take_then_ack, 1, "got acked"}, {"purge", purge, 0, "purged"}}, KEEPS_ALL},
    {"purge, put", "each is removed, or comes later and stays", FREELY, two_ready,
     {{"purge", purge, 0, "purged purged"}, {"put", put_9, 1, "put"}}, KEEPS_ALL},
    {"purge, puts, take", "who comes later keeps its place", FREELY, one_ready,
     {{"purge", purge, 0, "purged"}, {"put", put_9_10, 1, "put put"}, {"take", take_twice, 2, "got acked got acked"}},
     KEEPS_ALL},
    {"move, take", "each is moved or taken", FREELY, two_ready,
     {{"take", take_then_ack, 1, "got acked"}, {"move", move_all, 0, "moved"}, {"other", take_from_other, 2, "took"}},
     KEEPS_ALL},
    {"two moves", "each is moved once", FREELY, three_ready,
     {{"a", move_two, 0, "moved moved"}, {"b", move_all, 1, "moved"}}, KEEPS_ALL},
    {"delete, put", "a put succeeds before, or fails", FREELY, one_ready,
     {{"put", put_2, 1, "put"}, {"delete", delete_queue, 0, "deleted"}}, KEEPS_ALL},
    {"delete if empty, put", "what was put is not deleted", FREELY, nothing,
     {{"put", put_then_take, 1, "put took"}, {"delete", delete_if_empty, 0, "deleted"}}, KEEPS_ALL},
    {"delete, wait", "whoever waits is told", FREELY, nothing,
     {{"wait", wait_then_ack, 1, "slept deleted"}, {"delete", delete_queue, 0, "deleted"}}, KEEPS_ALL},
    {"shrink, put", "the new bound holds", FREELY, two_ready,
     {{"shrink", shrink, 0, "shrunk"}, {"put", put_9, 1, "put"}}, hints_are_set_right, .bound = 1},
    {"two declare", "one queue of a name", FREELY, nothing,
     {{"a", declare_q2, 0, "declared opened"}, {"b", declare_q2, 1, "exists"}}, KEEPS_ALL},
    {"two connect", "each gets a connection of its own", FREELY, nothing,
     {{"a", connect_once_more, 0, "connected left"}, {"b", connect_once_more, 1, "connected left"}}, KEEPS_ALL},
    {"disconnect, take", "what is given up is found", FREELY, first_holds_one,
     {{"disconnect", disconnect, 0, "left"}, {"take", take_twice, 1, "got acked got acked"}}, KEEPS_ALL},
    {"view, take", "a body that somebody looks at stays", FREELY, long_body_held,
     {{"view", view_then_end, 0, "viewed returned looked-away"}, {"take", take_long, 1, "took"},
      {"put", put_long, 2, "put in-the-same-slot"}}, KEEPS_ALL},
    {"two long takes", "a long body is read by one", FREELY, two_long_bodies,
     {{"a", take_long, 0, "took"}, {"b", take_long_twice, 1, "took nothing"}}, KEEPS_ALL},
    {"browse, take", "reading disturbs nobody", FREELY, two_ready,
     {{"browse", browse, 0, "saw saw"}, {"take", take_then_ack, 1, "got acked"}}, KEEPS_ALL},
    {"batch, take", "a batch is put in order", FREELY, nothing,
     {{"put", put_1_2_3_at_once, 0, "put put put"}, {"take", take_twice, 1, "got acked got acked"}}, KEEPS_ALL},
    {"reserve, take", "what is committed is whole", FREELY, nothing,
     {{"put", reserve_then_commit, 0, "reserved put"}, {"take", take_then_ack, 1, "got acked"}}, KEEPS_ALL},
    {"commit, takes", "what is staged is passed, and found", FREELY, nothing,
     {{"commit", commit_9, 0, "committed"}, {"q", take_twice, 1, "got acked nothing"},
      {"other", take_other_twice, 2, "took nothing"}}, KEEPS_ALL},
    {"two commits, take", "each is in both queues", FREELY, nothing,
     {{"a", commit_9, 0, "committed"}, {"b", commit_2_the_other_way, 1, "committed"},
      {"take", take_then_ack, 2, "got acked"}}, KEEPS_ALL},
    {"commit, put, take", "who put later may come first, and nothing is lost", FREELY, nothing,
     {{"commit", commit_9, 0, "committed"}, {"put", put_1, 1, "put"}, {"take", take_twice, 2, "got acked got acked"}},
     KEEPS_ALL},
    {"commit then put, take", "messages of one producer stay in order", FREELY, nothing,
     {{"commit", commit_9_put_10, 0, "committed put"}, {"take", take_twice, 1, "got acked got acked"}}, KEEPS_ALL},
    {"two commits of one, takes", "and those of several who take them", FREELY, nothing,
     {{"commit", commit_9_10, 0, "committed committed"}, {"other", take_then_ack, 2, "got acked"},
      {"take", take_twice, 1, "got acked nothing"}}, KEEPS_ALL},
    {"commit, wait", "whoever waits is woken when it is decided", FREELY, nothing,
     {{"wait", wait_then_ack, 1, "slept got acked"}, {"commit", commit_9, 0, "committed"}}, KEEPS_ALL},
    {"commit, two wait", "each of two is woken for its own", FREELY, nothing,
     {{"b", wait_then_ack, 1, "slept got acked"}, {"c", wait_then_ack, 2, "slept got acked"},
      {"commit", commit_9_10, 0, "committed committed"}}, KEEPS_ALL},
    {"commit, consumer", "the consumer that is told finds it", FREELY, second_consumes,
     {{"consumer", consume_one, 1, "slept got acked"}, {"io", serve, 1, "slept filled slept"},
      {"commit", commit_9, 0, "committed"}}, KEEPS_ALL},
    {"transaction, take", "the new one is there, or the old one", FREELY, first_holds_the_only_one,
     {{"commit", commit_9_and_ack, 0, "committed acked"}, {"take", take_twice, 1, "got acked nothing"}}, KEEPS_ALL},
    {"commit, limit", "a place that is staged is taken", ONE_AT_MOST, nothing,
     {{"commit", commit_9, 0, "committed"}, {"put", put_1, 1, "full"}, {"take", take_then_ack, 2, "got acked"}},
     .bound = 1},
    {"commit, ring", "never more than one", RING(1), one_in_a_ring,
     {{"commit", commit_9, 0, "committed"}, {"put", put_2, 1, "put"}, {"take", take_then_ack, 2, "got acked"}},
     newest_is_there, .bound = 1},
    {"commit in vain, takes", "what was staged was never there", FREELY, first_holds_the_only_one,
     {{"commit", commit_in_vain, 0, "not-committed"}, {"put", put_2, 1, "put"},
      {"take", take_twice, 2, "got acked nothing"}}, KEEPS_ALL},
    {"commit in vain, room", "whoever waits is told of a place that was staged", ONE_AT_MOST, first_holds_the_only_one,
     {{"commit", commit_in_vain, 0, "not-committed"}, {"put", put_2_when_room, 1, "put"}},
     nobody_sleeps_beside_room, .bound = 1, .idle = true},
    {"commit in vain, ring", "and nothing is evicted for it", RING(1), first_holds_one_of_a_ring,
     {{"commit", commit_in_vain, 0, "not-committed"}, {"put", put_3, 1, "put"}}, ring_is_not_empty, .bound = 1},
    {"commit, delete", "what is left in a deleted queue goes", FREELY, one_ready,
     {{"commit", commit_9, 0, "committed"}, {"delete", delete_queue, 1, "deleted"}}, KEEPS_ALL},
    {"commit, delete if empty", "what is staged is not deleted", FREELY, nothing,
     {{"commit", commit_9_or_not, 0, "committed"}, {"delete", delete_if_empty, 1, "not-empty"}},
     nothing_was_killed, KEEPS_ALL},
    {"commit, purge", "each is removed, or stays", FREELY, one_ready,
     {{"commit", commit_9, 0, "committed"}, {"purge", purge_all, 1, "purged purged"}}, KEEPS_ALL},
    {"commit, browse", "who reads sees what is ready", FREELY, one_ready,
     {{"commit", commit_9, 0, "committed"}, {"browse", browse, 1, "saw saw"}}, KEEPS_ALL},
    {"two look at a shared body", "it stays for both, and goes after both", FREELY, both_hold_a_shared_body,
     {{"a", look_at_shared, 0, "viewed acked looked-away"},
      {"b", look_at_shared_in_other, 1, "viewed acked looked-away"}}, KEEPS_ALL},
    {"shared, ack, take", "a body goes with its last reference", FREELY, first_holds_a_shared_one,
     {{"ack", ack_held, 0, "acked"}, {"take", take_long_from_other, 1, "took"},
      {"put", put_long, 2, "put in-the-same-slot"}}, KEEPS_ALL},
    {"commit, tick", "hints are set right beside a commit", RING(1), hint_is_wrong,
     {{"tick", have_tick, 0, "reconciled"}, {"commit", commit_9, 1, "committed"},
      {"take", take_then_ack, 2, "got acked"}}, newest_is_there_in_time, .bound = 1},
    {"due, take", "what becomes due is taken once", FREELY, one_is_due,
     {{"due", become_due, 0, "made-ready looked looked"}, {"take", take_then_ack, 1, "got acked"}}, is_due, KEEPS_ALL},
    {"two find it due", "and it becomes ready once", FREELY, two_are_due,
     {{"a", become_due, 0, "made-ready looked looked"},
      {"b", become_due_second_first, 1, "made-ready looked looked looked"}}, both_are_due, KEEPS_ALL},
    {"tick, wait, put", "the housekeeper disturbs nobody", FREELY, come_to_rest,
     {{"wait", wait_then_ack, 2, "slept got acked"}, {"tick", have_tick, 0, "reconciled"}, {"put", put_1, 1, "put"}},
     no_rescue, KEEPS_ALL},
    {"tick, consumer, put", "it rescues nobody who is being told", FREELY, consumer_sleeps,
     {{"io", serve, 1, "slept filled slept"}, {"tick", have_tick, 0, "ticked"}, {"put", put_1, 2, "put"}},
     no_rescue, KEEPS_ALL},
    {"tick, ring", "hints are set right beside everybody", RING(1), hint_is_wrong,
     {{"tick", have_tick, 0, "reconciled"}, {"put", put_2_3, 1, "put put"}, {"take", take_then_ack, 2, "got acked"}},
     newest_is_there_in_time, .bound = 1},
    {"reap, take", "what a dead one held is found", FREELY, third_died_with_one,
     {{"reaper", reap, LAST, "reaped"}, {"take", take_twice, 0, "got acked got acked"}, {"put", put_3, 1, "put"}},
     hints_are_set_right, KEEPS_ALL, .reaped = true},
    {"reap, ring", "what a dead one held comes back to a ring", RING(1), third_died_in_a_ring,
     {{"put", put_2, 0, "put"}, {"reaper", reap, LAST, "reaped"}, {"take", take_then_ack, 1, "got acked"}},
     newest_is_there, .bound = 1, .reaped = true},
    {"reap, wait", "whoever waits is woken by what a dead one held", FREELY, third_died_with_the_only_one,
     {{"wait", wait_then_ack, 0, "slept got acked"}, {"reaper", reap, LAST, "reaped"}},
     no_rescue, KEEPS_ALL, .reaped = true},
};
/* clang-format on */
const unsigned SCENARIO_COUNT = sizeof SCENARIOS / sizeof SCENARIOS[0];
