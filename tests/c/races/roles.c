// SPDX-License-Identifier: Apache-2.0
#include "roles.h"

#include <string.h>

#include "sb_limits.h"

/* ---- before ---- */

void nothing(void) {}
void put_by_keeper(uint64_t first, uint64_t last) {
  act_as(KEEPER);
  for (uint64_t id = first; id <= last; id++) (void)put_message(id);
}
void one_ready(void) { put_by_keeper(1, 1); }
void two_ready(void) { put_by_keeper(1, 2); }
void one_in_a_ring(void) {
  one_ready();
  everything_may_go();
}
void first_holds_one(void) {
  two_ready();
  act_as(0);
  (void)get_message(me()->q, me()->first);
}
void first_holds_one_behind(void) {
  first_holds_one();
  act_as(1);
  (void)get_and_ack(me()->q);
  put_by_keeper(3, 3);
}
static sb_word *held_header; /* of the slot that what is held lies in */
static uint64_t held_gen;
void hold_newest(void) {
  sb_leaf_ref leaf;
  uint64_t last = sb_ring_exact_tail(me()->t.b, &me()->q->lanes[0].ring) - 1;
  if (sb_ring_locate(me()->t.b, NULL, &me()->q->lanes[0].ring, last, &leaf) != SB_OK) die("sb_ring_locate", 0);
  held_header = sb_slot_header(me()->t.b, sb_cell_slot(SB_LOAD(&sb_leaf_cell(&leaf, last)->word, SB_ACQUIRE)));
  held_gen = sb_slot_gen(SB_LOAD(held_header, SB_ACQUIRE));
  act_as(0);
  (void)get_message(me()->q, me()->first);
}
void consume_as(unsigned player, uint32_t prefetch, int32_t priority) {
  sb_status status;
  act_as(player);
  consumers_may_return();
  me()->consumer = sb_consumer_open(me()->t.c, &me()->q, 1, prefetch, priority, 0, 0, &status);
  if (me()->consumer == NULL) die("sb_consumer_open", (int)status);
  (void)sb_consumer_next(me()->consumer, me()->first, false); /* it is interested from now on */
}
void second_consumes(void) { consume_as(1, 4, 0); }
void first_holds_one_of_a_ring(void) {
  first_holds_one();
  everything_may_go();
}
void hint_is_wrong(void) {
  one_in_a_ring();
  (void)SB_ADD(&players[KEEPER].q->shm->taken, 1, SB_SEQ_CST);
  come_to_rest();
}

/* ---- roles ---- */

void note_slot(void) {
  uint64_t header = atomic_load(held_header); /* a look, and no step */
  bool again = sb_slot_state(header) == SB_SLOT_PUBLISHED && sb_slot_gen(header) != held_gen;
  scheduler_note(again ? "in-the-same-slot" : "in-another-slot");
}
void put_1(void) { (void)put_message(1); }
void put_2(void) { (void)put_message(2); }
void put_3(void) { (void)put_message(3); }
void put_1_2(void) {
  put_1();
  put_2();
}
void put_2_3(void) {
  put_2();
  put_3();
}
void take_then_ack(void) {
  if (get_message(me()->q, me()->first) != 0) ack(me()->q, me()->first);
}
void take_twice(void) {
  take_then_ack();
  take_then_ack();
}
void wait_then_ack(void) {
  if (wait_for_message(me()->q, me()->first) != 0) ack(me()->q, me()->first);
}
void ack_held(void) { ack(me()->q, me()->first); }
void nack_held(void) { nack(me()->q, me()->first); }
void put_when_there_is_room(uint64_t id) {
  while (!put_message(id) && sb_queue_wait_for_room(me()->q, false, 64, UINT64_MAX) == SB_OK) {
  }
}
void put_2_when_room(void) { put_when_there_is_room(2); }
void take_from_other(void) { (void)get_and_ack(me()->other); }
void delete_queue(void) {
  int32_t holder;
  uint64_t removed;
  everything_may_go();
  if (sb_queue_delete(me()->q, false, false, UINT64_MAX, &holder, &removed) == SB_OK) scheduler_note("deleted");
}
void delete_if_empty(void) {
  int32_t holder;
  uint64_t removed;
  sb_status status = sb_queue_delete(me()->q, false, true, UINT64_MAX, &holder, &removed);
  scheduler_note(status == SB_OK ? "deleted" : status == SB_NOT_EMPTY ? "not-empty" : "not-deleted");
}
void serve(void) { (void)sb_connection_run_io(me()->t.c); }
void consume_one(void) {
  if (sb_consumer_wait(me()->consumer, UINT64_MAX) == SB_OK && next_message(me()->first) != 0) ack_next(me()->first);
}
void take_long_from(sb_queue *q) {
  char *record = me()->second;
  if (get_and_ack(q) != 0) {
    const sb_record *r = (const sb_record *)(const void *)record;
    if (r->body_address != 0) (void)sb_view_end(me()->t.c, r->tag);
  }
}
void put_long(void) {
  sb_put_options none = {0};
  if (put_message_with(9, LONG_BODY, &none)) note_slot();
}
void browse(void) {
  uint64_t position = 0;
  while (sb_queue_browse(me()->q, &position, me()->first, 8192) > 0) scheduler_note("saw");
}

/* ---- afterwards ---- */

void hints_are_set_right(void) { have_ticks(); }
void newest_is_there(void) {
  if (ready_messages() == 0 && !scheduler_somebody_died() && !newest_was_taken())
    complain("the newest message was evicted");
}
void nobody_sleeps_beside_room(void) {
  for (unsigned i = 0; i < ACTORS; i++) {
    if (scheduler_state(i) == ACTOR_ASLEEP && sb_limits_room(me()->q->shm, 1, 64))
      complain("a producer sleeps beside room");
  }
}
void newest_is_there_in_time(void) {
  have_ticks();
  newest_is_there();
}
