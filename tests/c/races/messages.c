// SPDX-License-Identifier: Apache-2.0
/* Scenarios of messages: put, take, return, end; pages, limits, views, and operations on a whole queue. */
#include <string.h>

#include "roles.h"
#include "sb_slab.h"
#include "scenarios.h"

#define BYTES_DROP_HEAD(n) {{-1, -1, (n), SB_OVERFLOW_DROP_HEAD, -1, -1}, 0}

/* ---- before ---- */

/* By way of the other queue: each has its bits, and no cursor has come to it yet. */
static void two_moved(void) {
  sb_status status;
  uint64_t bytes = UINT64_MAX;
  two_ready();
  any_order();
  if (sb_queue_move(me()->q, me()->other, 2, &bytes, &status) != 2) die("sb_queue_move", (int)status);
  if (sb_queue_move(me()->other, me()->q, 2, &bytes, &status) != 2) die("sb_queue_move", (int)status);
}
static void three_ready(void) { put_by_keeper(1, 3); }
/* One came back before, so that searchers know of it, and find in the end that nothing is left. */
static void other_came_back(void) {
  act_as(1);
  if (get_message(me()->q, me()->first) != 0) nack(me()->q, me()->first);
}
static void first_holds_one_other_came_back(void) {
  first_holds_one();
  other_came_back();
}
static void both_hold(void) {
  first_holds_one();
  act_as(1);
  (void)get_message(me()->q, me()->first);
}
/* The first page, but for this many of its cells. */
static void use_all_but(unsigned n) {
  act_as(KEEPER);
  n = SB_PAGE_CELLS - (unsigned)sb_ring_exact_tail(me()->t.b, &me()->q->lanes[0].ring) - n; /* warming up used some */
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
static void first_holds_one_of_a_full_page(void) {
  use_all_but(3);
  put_by_keeper(1, 3);
  act_as(0);
  (void)get_message(me()->q, me()->first);
  other_came_back();
}
/* In the second page, so that there is one above it. */
static void first_holds_two(void) {
  use_all_but(0);
  put_by_keeper(1, 3);
  act_as(0);
  (void)get_message(me()->q, me()->first);
  (void)get_message(me()->q, me()->second);
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
static sb_place place; /* of the long body, as who browsed knows it */
static void long_body_held_that_others_know(void) {
  sb_put_options none = {0};
  uint64_t position = 0;
  act_as(KEEPER);
  (void)put_message_with(1, LONG_BODY, &none);
  if (sb_queue_browse_place(me()->q, &position, me()->first, 8192, &place) <= 0) die("sb_queue_browse_place", 0);
  hold_newest();
}
static void two_long_bodies(void) {
  sb_put_options none = {0};
  act_as(KEEPER);
  for (uint64_t id = 1; id <= 2; id++) (void)put_message_with(id, LONG_BODY, &none);
}

/* ---- roles ---- */

static void put_again(void) {
  if (put_message(9)) note_slot();
}
static void put_9(void) { (void)put_message(9); }
static void put_9_10(void) {
  put_9();
  (void)put_message(10);
}
static void put_then_take(void) {
  if (put_message(2)) (void)get_and_ack(me()->q);
}
static void put_1_2_3_at_once(void) { put_messages(1, 3); }
static void take(void) { (void)get_and_ack(me()->q); }
static void take_thrice(void) {
  take_twice();
  take_then_ack();
}
static void nack_both(void) {
  nack_held();
  nack(me()->q, me()->second);
}
static void take_then_nack(void) {
  if (get_message(me()->q, me()->first) != 0) nack_held();
}
static void put_9_then_take_all(void) {
  (void)put_message(9);
  take_twice();
  take_twice();
}
static void take_again_later(void) {
  take_then_ack();
  scheduler_yield();
  take_then_ack();
}
/* And others see immediately that the slot is free. */
static void ack_and_hint(void) {
  ack(me()->q, me()->first);
  sb_lock(me()->t.c);
  sb_slab_flush_freed(me()->t.c);
  sb_unlock(me()->t.c);
}
static void put_9_when_room(void) { put_when_there_is_room(9); }
static void put_2_or_give_up(void) {
  if (!put_message(2)) (void)sb_queue_wait_for_room(me()->q, false, 64, UINT64_MAX);
}
static void purge(void) {
  may_go(1);
  may_go(2);
  may_go(9); /* if they came before */
  may_go(10);
  for (int64_t n = purge_count(me()->q); n > 0; n--) scheduler_note("purged");
}
static void move_some(uint64_t limit) {
  sb_status status;
  uint64_t bytes = UINT64_MAX;
  any_order();
  for (int64_t n = sb_queue_move(me()->q, me()->other, limit, &bytes, &status); n > 0; n--) scheduler_note("moved");
}
static void move_two(void) { move_some(2); }
static void move_all(void) { move_some(8); }
static void shrink(void) {
  int32_t holder;
  sb_settings smaller = RING(1);
  everything_may_go();
  if (sb_queue_configure(me()->q, &smaller, true, UINT64_MAX, &holder) == SB_OK) scheduler_note("shrunk");
}
static void view_then_end(void) {
  const sb_record *r = (const sb_record *)(const void *)me()->first;
  uint64_t view, id;
  if (sb_view_begin(me()->t.c, r->tag, r->sequence, r->body_address, &view) == SB_OK) {
    scheduler_note("viewed");
    nack_held();
    memcpy(&id, (const char *)(uintptr_t)r->body_address + LONG_BODY - LONG_BODY % 8 - 8, sizeof id);
    if (id != 1) complain("the body that is looked at is another one's");
    if (sb_view_end(me()->t.c, view) == SB_OK) scheduler_note("looked-away");
  }
}
static void expect_body_1(const char *body) {
  uint64_t id;
  memcpy(&id, body + LONG_BODY - LONG_BODY % 8 - 8, sizeof id);
  if (id != 1) complain("the body that is read is another one's");
}
static void read_in_place(void) {
  static char copies[3][LONG_BODY];
  static unsigned copy;
  uint64_t view, address;
  sb_status status = sb_place_begin_view(me()->t.c, &place, &view, &address);
  if (status == SB_OK) {
    scheduler_note("reading");
    (void)SB_LOAD(sb_slot_header(me()->t.b, place.slot), SB_ACQUIRE); /* a step: others may come in between */
    expect_body_1((const char *)(uintptr_t)address);
    if (sb_view_end(me()->t.c, view) == SB_OK) scheduler_note("looked-away");
  } else if (status == SB_IN_USE) {
    char *to = copies[copy++ % 3];
    bool whole = sb_place_copy_body(me()->t.c, &place, to) == SB_OK;
    scheduler_note(whole ? "copied" : "gone");
    if (whole) expect_body_1(to);
  } else {
    scheduler_note("gone");
  }
}
static void ack_then_put_long(void) {
  ack_held();
  put_long();
}
static void take_long(void) { take_long_from(me()->q); }
static void take_long_twice(void) {
  take_long();
  take_long();
}
static void reserve_then_commit(void) {
  sb_reservation r;
  sb_put_options none = {0};
  uint64_t id = 1;
  if (sb_reservation_begin(me()->q, sizeof id, &none, &r) == SB_OK) {
    memcpy(r.body, &id, sizeof id);
    scheduler_note("reserved");
    note_put(1, false);
    if (sb_reservation_publish(me()->q, &r) == SB_OK) {
      scheduler_note("put");
      note_put(1, true);
    }
  }
}
static void count_the_one(void) {
  sb_queue_facts f;
  if (sb_queue_describe(me()->t.c, me()->q->slot, &f) != SB_OK) die("sb_queue_describe", 0);
  scheduler_note(f.ready != 0 ? "ready" : "delivering");
  if (f.ready + f.delivering != 1) complain("one message is counted twice, or not at all");
}

/* ---- afterwards ---- */

static void page_is_made(void) {
  if (!scheduler_somebody_died() && sb_ring_exact_tail(me()->t.b, &me()->q->lanes[0].ring) <= SB_PAGE_CELLS)
    complain("no page was made");
}
static void page_is_left(void) {
  sb_leaf_ref leaf;
  sb_queue *q = me()->q;
  if (!scheduler_somebody_died() && sb_ring_locate(me()->t.b, NULL, &q->lanes[0].ring, q->shm->base, &leaf) != SB_DONE)
    complain("a page whose cells are all finished stays");
}
static void page_is_left_if_empty(void) {
  page_is_made();
  if (ready_messages() == 0) page_is_left();
}
/* A table, a line or two for each. */
/* clang-format off */
static const scenario SCENARIOS[] = {
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
    {"nack both, take", "of two that come back, one after the other, both are found", FREELY, first_holds_two,
     {{"nack", nack_both, 0, "returned returned"}, {"take", take_thrice, 1, "got acked got acked got acked"}}, KEEPS_ALL},
    {"nack, put past a page", "what comes back while the tree of pages grows is found", FREELY,
     first_holds_one_of_a_full_page,
     {{"nack", nack_held, 0, "returned"},
      {"put", put_9_then_take_all, 1, "put got acked got acked got acked got acked"}}, KEEPS_ALL},
    {"moved, take, nack", "what was moved here, taken and returned is found", FREELY, two_moved,
     {{"nack", take_then_nack, 0, "got returned"}, {"take", take_twice, 1, "got acked got acked"}}, KEEPS_ALL},
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
    {"ring, put, wait", "what is not evicted after all is not passed over", RING(1), one_in_a_ring,
     {{"put", put_2, 0, "put"}, {"take", wait_then_ack, 1, "got acked"}}, newest_is_there, .bound = 1},
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
    {"view, take", "a body that somebody looks at stays", FREELY, long_body_held,
     {{"view", view_then_end, 0, "viewed returned looked-away"}, {"take", take_long, 1, "took"},
      {"put", put_long, 2, "put in-the-same-slot"}}, KEEPS_ALL},
    {"read in place, ack", "a body that somebody reads stays, or he is told that it is gone", FREELY,
     long_body_held_that_others_know,
     {{"read", read_in_place, 1, "reading looked-away"}, {"ack", ack_then_put_long, 0, "acked put in-the-same-slot"}},
     KEEPS_ALL},
    {"two read in place, ack", "one reads, the other copies; the last one frees", FREELY, long_body_held_that_others_know,
     {{"a", read_in_place, 1, "reading looked-away"}, {"b", read_in_place, 2, "reading looked-away"},
      {"ack", ack_held, 0, "acked"}}, KEEPS_ALL},
    {"read in place, view, nack", "the references of a slot that is read are changed beside its reader", FREELY,
     long_body_held_that_others_know,
     {{"view", view_then_end, 0, "viewed returned looked-away"}, {"read", read_in_place, 1, "reading looked-away"},
      {"take", take_long, 2, "took"}}, KEEPS_ALL},
    {"two long takes", "a long body is read by one", FREELY, two_long_bodies,
     {{"a", take_long, 0, "took"}, {"b", take_long_twice, 1, "took nothing"}}, KEEPS_ALL},
    {"browse, take", "reading disturbs nobody", FREELY, two_ready,
     {{"browse", browse, 0, "saw saw"}, {"take", take_then_ack, 1, "got acked"}}, KEEPS_ALL},
    {"take, nack, count", "a message that changes hands is counted once", FREELY, one_ready,
     {{"count", count_the_one, 0, "ready"}, {"take", take_then_nack, 1, "got returned"}}, KEEPS_ALL},
    {"batch, take", "a batch is put in order", FREELY, nothing,
     {{"put", put_1_2_3_at_once, 0, "put put put"}, {"take", take_twice, 1, "got acked got acked"}}, KEEPS_ALL},
    {"reserve, take", "what is committed is whole", FREELY, nothing,
     {{"put", reserve_then_commit, 0, "reserved put"}, {"take", take_then_ack, 1, "got acked"}}, KEEPS_ALL},
};
/* clang-format on */
const subject MESSAGE_SCENARIOS = {SCENARIOS, sizeof SCENARIOS / sizeof SCENARIOS[0]};
