// SPDX-License-Identifier: Apache-2.0
#include "operations.h"

#include <string.h>
#include <unistd.h>

#include "admission_operations.h"
#include "channel_operations.h"
#include "child.h"
#include "commit_operations.h"
#include "dead_operations.h"
#include "following_operations.h"
#include "grace_operations.h"
#include "id_operations.h"
#include "lease_operations.h"
#include "managed_operations.h"
#include "page_operations.h"
#include "paged_operations.h"
#include "parts_operations.h"
#include "put_operations.h"
#include "rival_operations.h"
#include "sort_operations.h"
#include "stored_operations.h"
#include "value_operations.h"
#include "window_operations.h"

const char *die_at;

static sb_consumer *consumer;
static uint32_t index_of_many[3 * 8 + 1];
static const sb_put_options NO_OPTIONS;

static void nothing(void) {}

/* ---- getting and settling ---- */

static void get_acked(void) { (void)get(&kid, q, buffer, true); }
static void get_three_more(bool auto_ack) {
  uint64_t used;
  (void)sb_queue_get_many(q, 3, auto_ack, buffer, BUFFER, index_of_many, &used);
}
static void get_three(void) { get_three_more(false); }
static void get_three_acked(void) { get_three_more(true); }
static void take_three(void) {
  for (int i = 0; i < 3; i++) (void)get(&kid, q, spare, false);
}
static void get_five(void) {
  for (int i = 0; i < 5; i++) get_one();
}
static void get_six(void) {
  get_five();
  get_one();
}
static void take_page(void) { /* all but the last cell of the first page are finished */
  for (int i = 0; i < 63; i++) (void)get(&kid, q, spare, true);
  get_one();
}
static void browse(void) {
  uint64_t position = 0;
  while (sb_queue_browse(q, &position, buffer, BUFFER) > 0) {
  }
}
static void ack(void) { settle(SB_ACK); }
static void nack(void) { settle(SB_REQUEUE); }
static void reject(void) { settle(SB_REJECT); }
static void ack_three(void) { (void)sb_queue_settle_many(q, buffer, index_of_many, 3, 3, SB_ACK); }
static void wait_for_one(void) {
  sb_wait at_once = {1, UINT64_MAX, 0, 0};
  (void)sb_queue_get_wait(q, buffer, false, &at_once);
}

/* Looks at the body, settles, and looks away afterwards. */
static void settle_viewed(sb_disposition disposition) {
  sb_record r;
  uint64_t view;
  sb_status status;
  memcpy(&r, buffer, sizeof r);
  do {
    status = sb_view_begin(kid.c, r.tag, r.sequence, r.body_address, &view);
  } while (again(status));
  settle(disposition);
  if (status == SB_OK) sb_view_end(kid.c, view);
}
static void ack_viewed(void) { settle_viewed(SB_ACK); }
static void nack_viewed(void) { settle_viewed(SB_REQUEUE); }

/* Reads the oldest body in place without holding its message; `meanwhile` runs before the reading ends. */
static void read_in_place(void (*meanwhile)(void)) {
  sb_place place;
  uint64_t position = 0, view, address;
  sb_status status = SB_EMPTY;
  if (sb_queue_browse_place(q, &position, buffer, BUFFER, &place) > 0) {
    do {
      status = sb_place_begin_view(kid.c, &place, &view, &address);
    } while (again(status));
  }
  meanwhile();
  if (status == SB_OK) sb_view_end(kid.c, view);
}
static void read_only(void) { read_in_place(nothing); }
static void get_and_ack(void) {
  get_one();
  ack();
}
static void read_what_is_acked(void) { read_in_place(get_and_ack); }

/* ---- the queue as a whole ---- */

static void purge(void) { (void)purge_count(q); }
static void move_there_and_back(void) {
  move();
  move_back();
}
static void move_viewed(void) {
  nack_viewed();
  get_one();
  sb_record r;
  uint64_t view;
  memcpy(&r, buffer, sizeof r);
  (void)sb_view_begin(kid.c, r.tag, r.sequence, r.body_address, &view); /* lives on: a reader that never looks away */
  nack();
  move();
}
static void delete_queue(void) {
  int32_t holder;
  uint64_t removed;
  while (again(sb_queue_delete(q, false, false, FOREVER, &holder, &removed))) {
  }
}
static void read_what_is_moved(void) { read_in_place(move); }
static void read_what_is_deleted(void) { read_in_place(delete_queue); }
static void delete_if_empty(void) {
  int32_t holder;
  uint64_t removed;
  (void)sb_queue_delete(q, false, true, FOREVER, &holder, &removed);
}
static void delete_idle(void) {
  int32_t holder;
  (void)sb_queue_delete_idle(q, FOREVER, &holder);
}
static void delete_and_leave(void) {
  delete_queue();
  (void)sb_queue_close(q);
}
static void put_keys_and_delete(void) {
  put_many_keys();
  delete_and_leave();
}
static void put_once_and_delete(void) {
  put_once_and_take();
  delete_and_leave();
}
static void put_and_take_two(void) {
  put_once();
  take_two();
}
static void stop_and_take(void) {
  put_one();
  get_acked();
}
static void leave(void) { (void)sb_queue_close(other); }
/* An operation at another queue, after this one was deleted. */
static void let_go(void) {
  uint64_t position = 0;
  (void)sb_queue_browse(other, &position, buffer, BUFFER);
}
static void configure(bool trim) {
  int32_t holder;
  sb_settings s = {{3, -1, -1, 0, -1, -1}, 0};
  (void)sb_queue_configure(q, &s, trim, FOREVER, &holder);
}
static void shrink_lazily(void) { configure(false); }
static void trim(void) { configure(true); }
static void declare_new(void) { (void)declare(&kid, "new", (sb_settings){{3, -1, -1, 0, -1, -1}, 0}); }
static void declare_long(void) {
  sb_settings s = {{3, -1, -1, 0, -1, -1}, 0, 5, "texts"};
  (void)declare(&kid, "new", s);
}
static void open_again(void) { (void)open_queue(&kid, "other"); }

/* ---- processes and connections ---- */

static test_broker second;
static void attach_again(void) {
  second = kid;
  attach(&second);
}
static void detach(void) { sb_broker_detach(second.b); }
static void connect_again(void) { (void)connect_to(&kid); }
static void close_all(void) {
  (void)sb_connection_close(kid.c);
  (void)sb_connection_release(kid.c);
}
static void reap(void) { (void)sb_housekeeper_reap(kid.c); }

/* ---- with all sorts of things in hand ---- */

void take_all_sorts_of_things(void) {
  take_three();
  (void)sb_queue_settle(q, spare, SB_REQUEUE); /* the third returns */
  get_one();
  (void)put(&kid, other, OTHERS);
  sb_status status;
  do {
    consumer = sb_consumer_open(kid.c, &q, 1, 4, 0, 1, 3600000000000u, &status);
  } while (again(status));
  (void)sb_consumer_next(consumer, spare, false);
  reserve_more();
}

/* ---- consumers ---- */

static void consume_in_batches_of(uint32_t acks) {
  sb_status status;
  do {
    consumer = sb_consumer_open(kid.c, &q, 1, 4, 0, acks, 3600000000000u, &status);
  } while (again(status));
}
static void consume(void) { consume_in_batches_of(1); }
static void acknowledge_two_of_three(void) { /* they wait for the third one */
  consume_in_batches_of(3);
  for (int i = 0; i < 2; i++) {
    (void)sb_consumer_next(consumer, buffer, false);
    (void)sb_consumer_settle(consumer, buffer, SB_ACK);
  }
  (void)sb_consumer_next(consumer, buffer, false);
}
static void acknowledge_the_third(void) { (void)sb_consumer_settle(consumer, buffer, SB_ACK); }
static void consume_turn(void) {
  if (sb_consumer_next(consumer, buffer, false) > 0) (void)sb_consumer_settle(consumer, buffer, SB_ACK);
  (void)sb_consumer_next(consumer, buffer, false);
}
static void consume_and_cancel(void) {
  consume();
  (void)sb_consumer_next(consumer, buffer, false);
  sb_consumer_cancel(consumer, true);
}
static void consume_one(void) {
  consume();
  (void)sb_consumer_next(consumer, buffer, false);
}
static void suspend_and_resume(void) {
  sb_consumer_suspend(consumer, true);
  sb_consumer_suspend(consumer, false);
}
static void wait_in_consumer(void) { (void)sb_consumer_wait(consumer, 1); }

/* ---- the housekeeper's work, and memory ---- */

static void sweep(void) { (void)sb_housekeeper_sweep(kid.c, FOREVER); }
static void due(void) { (void)sb_housekeeper_look_at(q, SETUP); }
static void due_in_lane(void) { (void)sb_housekeeper_look_at(q, 2); } /* behind ids 2 and 5 */
static uint32_t slot_of_q;
static void find_q(void) { (void)sb_queue_find(kid.c, "q", 1, &slot_of_q); }
static void tick(void) {
  sb_queue_memory memory = {0};
  sb_housekeeper_tick(kid.c, slot_of_q, &memory);
}
static void become_due(void) {
  put_due();
  due();
}
static void trim_schedule(void) { sb_housekeeper_trim(q); }
static void fill_and_drain_with(uint64_t bytes) {
  uint64_t n = 0;
  while (put_sized(&kid, other, OTHERS, bytes, &NO_OPTIONS) == SB_OK) n++;
  while (n-- > 0) (void)get(&kid, other, spare, true);
}
static void fill_and_drain(void) {
  fill_and_drain_with(64);
} /* then all memory is chunks of small slots that are free */
static void fill_and_drain_for_long(void) {
  fill_and_drain();
  write_long_body();
}
static void fill_with_runs(void) { fill_and_drain_with(3u << 20); }

/* ---- dead and delayed messages ---- */

static void reject_one(void) {
  get_one();
  reject();
}
static int64_t take_dead(uint32_t *why) { return sb_dead_take(q, 0, buffer, why); } /* id 1 */
/* Publishes the dead message to the other queue. */
static void carry_out(void) {
  uint32_t why, failed[2];
  int64_t length = take_dead(&why);
  sb_record r;
  memcpy(&r, buffer, sizeof r);
  if (length < 0) return;
  sb_publication p = {.body = body_of(buffer, length), .length = r.body_length, .targets = &other, .target_count = 1};
  sb_settlement end = {.queue = q, .token = r.tag, .disposition = SB_CARRIED_OUT};
  while (again(sb_transaction_commit(kid.c, &p, 1, &end, 1, &failed[0], &failed[1]))) {
  }
}
static void give_up(void) {
  uint32_t why, failed[2];
  sb_record r;
  if (take_dead(&why) < 0) return;
  memcpy(&r, buffer, sizeof r);
  sb_settlement end = {.queue = q, .token = r.tag, .disposition = SB_GIVEN_UP};
  (void)sb_transaction_commit(kid.c, NULL, 0, &end, 1, &failed[0], &failed[1]);
}
static void give_back(void) {
  uint32_t why;
  if (take_dead(&why) >= 0) sb_dead_return(q, buffer, why);
}
static void give_back_last(void) {
  uint32_t why;
  if (sb_dead_take(q, 6, buffer, &why) >= 0) sb_dead_return(q, buffer, why);
}
static void die_with_one_put_dead(void) {
  put_dead();
  give_back_last();
}
static void reject_in_a_commit(void) {
  uint32_t failed[2];
  sb_record r;
  memcpy(&r, buffer, sizeof r);
  sb_settlement end = {.queue = q, .token = r.tag, .disposition = SB_REJECT};
  (void)sb_transaction_commit(kid.c, NULL, 0, &end, 1, &failed[0], &failed[1]);
}
static void die_with_a_dead_one(void) {
  reject_one();
  carry_out();
}

/* ---- the table ---- */

#define ALL (ID(1) | ID(2) | ID(3) | ID(4) | ID(5) | ID(6))
#define NEW ID(FRESH)
#define BATCH (ID(FRESH) | ID(FRESH + 1) | ID(FRESH + 2))
#define TWO (ID(FRESH) | ID(FRESH + 1))
#define BUT_1 (ALL & ~ID(1))
#define BUT_2 (ALL & ~(ID(1) | ID(2)))
#define BUT_1_AND_3 (ALL & ~(ID(1) | ID(3))) /* without what a selector of priority 2 leaves */
#define BUT_3 (ID(4) | ID(5) | ID(6))
#define REST ID(OTHERS)

#define IN_PARTS .chunks = 14, .bytes = LONG
#define SINGLE {{-1, -1, -1, 0, -1, -1}, SB_QUEUE_SINGLE_ACTIVE}
#define KEEPING {{-1, -1, -1, 0, -1, -1}, SB_QUEUE_KEEPS}
#define RING(n) {{(n), -1, -1, 0, -1, -1}, 0}
/* With priorities: the message of id i has priority i % 3. So a get takes id 2 first, and an eviction id 3. */
#define RANKED(ring) {{(ring), -1, -1, 0, -1, -1, 2}, 0}
#define STORED_RANKED {{-1, -1, -1, 0, -1, -1, 2}, SB_QUEUE_DURABLE}
/* The messages without a group are one group. */
#define GROUPED \
  {{-1, -1, -1, 0, -1, -1, [SB_SETTING_MESSAGE_GROUPS] = SB_GROUPS_SHARED, [SB_SETTING_GROUP_BUCKETS] = 1}, 0}
#define GROUPED_RANKED \
  {{-1, -1, -1, 0, -1, -1, 2, [SB_SETTING_MESSAGE_GROUPS] = SB_GROUPS_SHARED, [SB_SETTING_GROUP_BUCKETS] = 1}, 0}
#define REMEMBERING {{-1, -1, -1, 0, -1, -1, [SB_SETTING_DUPLICATE_IDS] = 3}, 0}
#define BUT(i) (ALL & ~ID(i))
#define DEADLY {{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DEAD_LETTERS}
#define LENGTH(n, overflow) {{-1, (n), -1, (overflow), -1, -1}, 0}
/* Its producers resume at 5 of 6. */
#define RESUMING {{-1, 6, -1, 0, -1, -1, [SB_SETTING_RESUME_AT] = 99}, 0}
#define BYTES(n, overflow) {{-1, -1, (n), (overflow), -1, -1}, 0}
#define REJECTING {{-1, 6, -1, SB_OVERFLOW_REJECT_PUBLISH_DLX, -1, -1}, SB_QUEUE_DEAD_LETTERS}
#define UNDER_WAY(must, may) (must), (may)
#define AFTER(must, may) (must), (may)
#define UNCHANGED UNDER_WAY(ALL, ALL), AFTER(ALL, ALL)
#define PUTS(ids) UNDER_WAY(ALL, ALL | (ids)), AFTER(ALL | (ids), ALL | (ids))
#define LEAVES(rest) UNDER_WAY(rest, ALL), AFTER(rest, rest)
#define PAGED STORED, PAGED_MESSAGES
#define PAGED_UNCHANGED \
  UNDER_WAY(ALL | REST, ALL | REST), AFTER(ALL | REST, ALL | REST), .exactly = PAGED_MESSAGES, .has_store = true
#define PAGED_LEAVES(rest) UNDER_WAY((rest) | REST, ALL | REST), AFTER((rest) | REST, (rest) | REST), .has_store = true
#define PAGED_DEATH(point, of) PAGED, nothing, reap, PAGED_UNCHANGED, .reaps = true, .dies_at = point, .dies_in = of
#define REPLACES UNDER_WAY(BUT_1, ALL | NEW), AFTER(BUT_1 | NEW, ALL | NEW), .exactly = 6
#define EMPTY UNDER_WAY(0, 0), AFTER(0, 0)
#define PUTS_DONE UNDER_WAY(ALL | NEW, ALL | NEW), AFTER(ALL | NEW, ALL | NEW)
#define HAPPENED UNDER_WAY(BUT_2 | NEW, BUT_2 | NEW), AFTER(BUT_2 | NEW, BUT_2 | NEW), .both = NEW, .reaps = true

const operation OPERATIONS[] = {
    {"put", FREELY, SETUP, nothing, put_one, PUTS(NEW)},
    {"put, page full", FREELY, 64, nothing, put_one, UNDER_WAY(ALL | REST, ALL | REST | NEW),
     AFTER(ALL | NEW, ALL | REST | NEW)},
    {"put delayed", FREELY, SETUP, nothing, put_delayed, UNCHANGED},
    {"put expiring", FREELY, SETUP, nothing, put_expiring, PUTS(NEW)},
    {"put 5 MiB", FREELY, SETUP, write_long_body, put_long, PUTS(NEW), .slow = true},
    {"put, ring of 6", RING(6), SETUP, nothing, put_one, REPLACES},
    {"put, ring of 6, looked at", RING(6), SETUP, nothing, put_one, REPLACES, .next = NEXT_LOOKS},
    {"put, ring of 6, next put", RING(6), SETUP, nothing, put_one, UNDER_WAY(BUT_2 | REST, ALL | NEW | REST),
     AFTER(BUT_2 | NEW | REST, ALL | NEW | REST), .exactly = 6, .next = NEXT_PUTS},
    {"put, drop head by bytes", BYTES(6 * 64, 2), SETUP, nothing, put_one, REPLACES},
    {"put, block by bytes", BYTES(7 * 64, 0), SETUP, nothing, put_one, PUTS(NEW)},
    {"put, block by length", LENGTH(7, 0), SETUP, nothing, put_one, PUTS(NEW)},
    {"put, drop new", LENGTH(6, 1), SETUP, nothing, put_one, UNCHANGED},
    {"put many", FREELY, SETUP, nothing, put_three, PUTS(BATCH)},
    {"reserve, commit", FREELY, SETUP, nothing, reserve_and_commit, PUTS(NEW)},
    {"put that stops", RESUMING, SETUP, nothing, put_one, UNCHANGED},
    {"put that resumes", RESUMING, SETUP, stop_and_take, put_one, UNDER_WAY(BUT_1, BUT_1 | NEW),
     AFTER(BUT_1 | NEW, BUT_1 | NEW)},
    {"reap a put that may resume", RESUMING, SETUP, nothing, reap, UNCHANGED, .reaps = true,
     .dies_at = "limits.admit.resumed", .dies_in = put_one},
    {"reserve, abandon", LENGTH(7, 0), SETUP, nothing, reserve_and_abandon, UNCHANGED},
    {"commit a copy", FREELY, SETUP, reserve, commit_copy, PUTS(NEW)},
    {"abandon, viewed", LENGTH(7, 0), SETUP, reserve, abandon_viewed, UNCHANGED},
    {"wait for room", LENGTH(6, 0), SETUP, nothing, wait_for_room, UNCHANGED},

    {"get", FREELY, SETUP, nothing, get_one, UNCHANGED},
    {"get, ring of 6", RING(6), SETUP, nothing, get_one, UNCHANGED, .exactly = 6},
    {"get, ring of 6, next put", RING(6), SETUP, nothing, get_one, UNDER_WAY(BUT_1 | REST, ALL | REST),
     AFTER(BUT_1 | REST, ALL | REST), .exactly = 6, .next = NEXT_PUTS},
    {"get with ack", FREELY, SETUP, nothing, get_acked, LEAVES(BUT_1)},
    {"get long with ack", FREELY, SETUP, nothing, get_acked, LEAVES(BUT_1), .bytes = LONG},
    {"get returned", FREELY, SETUP, get_one, consume_and_cancel, UNCHANGED},
    {"get moved", FREELY, SETUP, move_there_and_back, get_five, UNCHANGED},
    {"get expired", FREELY, 0, put_expired, get_one, EMPTY},
    {"get many", FREELY, SETUP, nothing, get_three, UNCHANGED},
    {"get many with ack", FREELY, SETUP, nothing, get_three_acked, LEAVES(BUT_3)},
    {"wait in get", FREELY, 0, nothing, wait_for_one, EMPTY, .slow = true},
    {"browse", FREELY, SETUP, nothing, browse, UNCHANGED},

    {"ack", FREELY, SETUP, get_one, ack, LEAVES(BUT_1)},
    {"ack, page done", FREELY, 70, take_page, ack, UNDER_WAY(REST, REST), AFTER(REST, REST)},
    {"ack many", FREELY, SETUP, get_three, ack_three, LEAVES(BUT_3)},
    {"nack", FREELY, SETUP, get_one, nack, UNCHANGED},
    {"reject", FREELY, SETUP, get_one, reject, LEAVES(BUT_1)},
    {"view, ack", FREELY, SETUP, get_one, ack_viewed, LEAVES(BUT_1), .bytes = LONG},
    {"view, nack", FREELY, SETUP, get_one, nack_viewed, UNCHANGED, .bytes = LONG},
    {"view, nack, move", FREELY, SETUP, get_one, move_viewed, UNCHANGED, .bytes = LONG},

    {"read in place", FREELY, SETUP, nothing, read_only, UNCHANGED, .bytes = LONG},
    {"read in place, ack", FREELY, SETUP, nothing, read_what_is_acked, LEAVES(BUT_1), .bytes = LONG},
    {"read in place, move", FREELY, SETUP, nothing, read_what_is_moved, UNCHANGED, .bytes = LONG},
    {"read in place, delete", FREELY, SETUP, get_one, read_what_is_deleted, LEAVES(0), .bytes = LONG, .deletes = true},

    {"purge", FREELY, SETUP, nothing, purge, LEAVES(0)},
    {"purge selected", RANKED(-1), SETUP, nothing, purge_selected, LEAVES(BUT(2) & BUT(5))},
    {"move", FREELY, SETUP, nothing, move, UNCHANGED},
    {"move selected", RANKED(-1), SETUP, nothing, move_selected, UNCHANGED},
    {"expire selected", RANKED(-1), SETUP, nothing, expire_selected, LEAVES(BUT(2) & BUT(5))},
    {"expire two, ring of 6", RING(6), SETUP, nothing, expire_two, LEAVES(BUT_2)},
    {"limit the life of two", FREELY, SETUP, nothing, limit_two, UNCHANGED},
    {"limit the life of two, ring of 6", RING(6), SETUP, nothing, limit_two, UNCHANGED, .exactly = 6},
    {"take, put back", FREELY, SETUP, nothing, take_and_put_back, UNCHANGED},
    {"transfer", FREELY, SETUP, nothing, transfer, UNDER_WAY(BUT_1, ALL | NEW), AFTER(BUT_1 | NEW, BUT_1 | NEW),
     .both = NEW, .instead = ID(1)},
    {"transfer, ring of 6", RING(6), SETUP, nothing, transfer, UNDER_WAY(BUT_1, ALL | NEW),
     AFTER(BUT_1 | NEW, BUT_1 | NEW), .both = NEW, .instead = ID(1)},
    {"move, limited", LENGTH(6, 0), SETUP, nothing, move, UNCHANGED},
    {"move a page", FREELY, PAGE_AND_SIX, have_room_for_a_page, move_page, UNDER_WAY(ALL | REST, ALL | REST),
     AFTER(ALL | REST, ALL | REST), .total = PAGE_AND_SIX},
    {"move a page of two", FREELY, PAGE_AND_SIX, have_room_and_take_three, move_page,
     UNDER_WAY(BUT_3 | REST, BUT_3 | REST), AFTER(BUT_3 | REST, BUT_3 | REST), .total = PAGE_AND_SIX - 3},
    {"reap a page, announced", FREELY, PAGE_AND_SIX, nothing, reap, UNDER_WAY(ALL | REST, ALL | REST),
     AFTER(ALL | REST, ALL | REST), .total = PAGE_AND_SIX, .reaps = true, .dies_at = "queue.move.page.announced",
     .dies_in = have_room_and_move_page},
    {"reap a page, linked", FREELY, PAGE_AND_SIX, nothing, reap, UNDER_WAY(ALL | REST, ALL | REST),
     AFTER(ALL | REST, ALL | REST), .total = PAGE_AND_SIX, .reaps = true, .dies_at = "ring.leaf.linked",
     .dies_in = have_room_and_move_page},
    {"reap a page, finished", FREELY, PAGE_AND_SIX, nothing, reap, UNDER_WAY(ALL | REST, ALL | REST),
     AFTER(ALL | REST, ALL | REST), .total = PAGE_AND_SIX, .reaps = true, .dies_at = "queue.move.page.finished",
     .dies_in = have_room_and_move_page},
    {"use a page, reap", FREELY, PAGE_AND_SIX, nothing, use_the_page_then_reap, UNDER_WAY(REST, ALL | REST),
     AFTER(REST, REST), .exactly = 6, .reaps = true, .dies_at = "ring.leaf.linked", .dies_in = have_room_and_move_page},
    {"lease", FREELY, SETUP, nothing, move, UNCHANGED, .leases = true},
    {"lease what was leased", KEEPING, SETUP, move, move_back, UNCHANGED, .leases = true},
    {"give back a lease", FREELY, SETUP, move, move_back, UNCHANGED, .leases = true},
    {"reap a lease, linked", FREELY, SETUP, nothing, reap, UNCHANGED, .leases = true, .reaps = true,
     .dies_at = "ring.append.done"},
    {"reap a lease, described", FREELY, SETUP, nothing, reap, UNCHANGED, .leases = true, .reaps = true,
     .dies_at = "queue.move.described"},
    {"reap a lease, settled", FREELY, SETUP, nothing, reap, UNCHANGED, .leases = true, .reaps = true,
     .dies_at = "queue.move.settled"},
    {"delete", FREELY, SETUP, get_one, delete_queue, LEAVES(0), .deletes = true},
    {"delete if empty", FREELY, SETUP, nothing, delete_if_empty, UNCHANGED, .deletes_beside = true},
    {"delete, empty", FREELY, 0, nothing, delete_if_empty, EMPTY, .deletes = true},
    {"declare", FREELY, SETUP, nothing, declare_new, UNCHANGED},
    {"declare with texts", FREELY, SETUP, nothing, declare_long, UNCHANGED},
    {"open", FREELY, SETUP, nothing, open_again, UNCHANGED},
    {"leave", FREELY, SETUP, nothing, leave, UNCHANGED},
    {"delete idle, held", FREELY, SETUP, get_six, delete_idle, UNCHANGED, .deletes_beside = true},
    {"delete idle, empty", FREELY, 0, nothing, delete_idle, EMPTY, .deletes = true},
    {"let go", FREELY, SETUP, delete_queue, let_go, EMPTY, .deletes = true},
    {"shrink to 3", FREELY, SETUP, nothing, shrink_lazily, UNCHANGED, .must_beside = BUT_3, .resizes = true},
    {"trim to 3", FREELY, SETUP, nothing, trim, LEAVES(BUT_3), .resizes = true},

    {"attach", FREELY, SETUP, nothing, attach_again, UNCHANGED},
    {"detach", FREELY, SETUP, attach_again, detach, UNCHANGED},
    {"connect", FREELY, SETUP, nothing, connect_again, UNCHANGED},
    {"close", FREELY, SETUP, take_three, close_all, UNCHANGED},
    {"close, acks waiting", FREELY, SETUP, acknowledge_two_of_three, close_all, LEAVES(BUT_2)},
    {"reap", FREELY, SETUP, nothing, reap, UNDER_WAY(ALL | REST, ALL | REST), AFTER(ALL | REST, ALL | REST),
     .reaps = true},

    {"consume", FREELY, SETUP, nothing, consume, UNCHANGED},
    {"consumer's turn", FREELY, SETUP, consume, consume_turn, LEAVES(BUT_1)},
    {"consumer waits", FREELY, 0, consume_one, wait_in_consumer, EMPTY},
    {"suspend, resume", FREELY, SETUP, consume_one, suspend_and_resume, UNCHANGED},
    {"cancel", FREELY, SETUP, nothing, consume_and_cancel, UNCHANGED, .slow = true},
    {"batch of acks", FREELY, SETUP, acknowledge_two_of_three, acknowledge_the_third, LEAVES(BUT_3)},

    {"channel, consume", FREELY, SETUP, nothing, channel_consumes, UNCHANGED},
    {"channel, claim", FREELY, SETUP, nothing, channel_claims, UNCHANGED},
    {"channel, single active", SINGLE, SETUP, nothing, channel_takes_one, UNCHANGED},
    {"channel, next", FREELY, SETUP, channel_consumes, channel_next, UNCHANGED},
    {"channel, next of two", FREELY, SETUP, channel_consumes_twice, channel_next, UNCHANGED},
    {"channel, next settled", FREELY, SETUP, channel_consumes_settled, channel_next, LEAVES(BUT_1)},
    {"channel, next long settled", FREELY, SETUP, channel_consumes_settled, channel_next, LEAVES(BUT_1), .bytes = LONG},
    {"channel, next foreign", FREELY, SETUP, channel_consumes_foreign, channel_next, UNCHANGED},
    {"channel, next of a ring", RING(6), SETUP, channel_consumes_foreign, channel_next, UNCHANGED, .exactly = 6},
    {"channel, get", FREELY, SETUP, open_channel, channel_gets, UNCHANGED},
    {"channel, wait in get", FREELY, 0, open_channel, channel_waits_in_get, EMPTY, .slow = true},
    {"channel, ack", FREELY, SETUP, channel_takes_one, channel_acks_one, LEAVES(BUT_1)},
    {"channel, ack many", FREELY, SETUP, channel_takes_three, channel_acks_all, LEAVES(BUT_3)},
    {"channel, requeue", FREELY, SETUP, channel_takes_three, channel_requeues_all, UNCHANGED},
    {"channel, return", FREELY, SETUP, channel_takes_one, channel_returns_one, UNCHANGED},
    {"channel, cancel", FREELY, SETUP, channel_takes_one, channel_cancels, UNCHANGED},
    {"channel, close", FREELY, SETUP, channel_takes_three, channel_closes, UNCHANGED},
    {"channel, limits", FREELY, SETUP, channel_takes_one, channel_is_limited, UNCHANGED},

    {"commit", FREELY, SETUP, nothing, commit_one, PUTS(NEW), .both = NEW},
    {"commit two bodies", FREELY, SETUP, nothing, commit_two, PUTS(TWO), .both = TWO},
    {"commit, page full", FREELY, 64, nothing, commit_one, UNDER_WAY(ALL | REST, ALL | REST | NEW),
     AFTER(ALL | NEW, ALL | REST | NEW), .both = NEW},
    {"commit 20 kB", FREELY, SETUP, nothing, commit_long, PUTS(NEW), .both = NEW},
    {"commit beside another", FREELY, SETUP, begin_another_commit, commit_one, PUTS(NEW), .both = NEW},
    {"commit delayed", FREELY, SETUP, nothing, commit_delayed, UNCHANGED},
    {"commit expiring", FREELY, SETUP, nothing, commit_expiring, PUTS(NEW), .both = NEW},
    {"commit, ring of 6", RING(6), SETUP, nothing, commit_one, UNDER_WAY(BUT_1, ALL | NEW),
     AFTER(BUT_1 | NEW, BUT_1 | NEW), .both = NEW, .instead = ID(1), .exactly = 6},
    {"commit, drop head by bytes", BYTES(6 * 64, 2), SETUP, nothing, commit_one, UNDER_WAY(BUT_1, ALL | NEW),
     AFTER(BUT_1 | NEW, BUT_1 | NEW), .both = NEW, .instead = ID(1), .exactly = 6},
    {"commit, block by length", LENGTH(7, 0), SETUP, nothing, commit_one, PUTS(NEW), .both = NEW},
    {"commit, block by bytes", BYTES(7 * 64, 0), SETUP, nothing, commit_one, PUTS(NEW), .both = NEW},
    {"commit, full", LENGTH(6, 0), SETUP, nothing, commit_one, UNCHANGED},
    {"commit two bodies, full", LENGTH(7, 0), SETUP, nothing, commit_two, UNCHANGED},
    {"commit, drop new", LENGTH(6, 1), SETUP, nothing, commit_one, PUTS(NEW)},
    {"transaction", FREELY, SETUP, take_two, transact, UNDER_WAY(BUT_2, ALL | NEW), AFTER(BUT_2 | NEW, BUT_2 | NEW),
     .both = NEW, .instead = ID(1) | ID(2)},
    {"transaction, ring of 6", RING(6), SETUP, take_two, transact, UNDER_WAY(BUT_2, ALL | NEW),
     AFTER(BUT_2 | NEW, BUT_2 | NEW), .both = NEW, .instead = ID(1) | ID(2)},
    {"transaction with requeue", FREELY, SETUP, take_two, transact_and_requeue, UNDER_WAY(BUT_1, ALL | NEW),
     AFTER(BUT_1 | NEW, BUT_1 | NEW), .both = NEW, .instead = ID(1)},
    {"two acks at once", FREELY, SETUP, take_two, acknowledge_together, UNDER_WAY(BUT_2, ALL), AFTER(BUT_2, BUT_2)},
    {"transaction in vain", FREELY, SETUP, take_two, transact_in_vain, UNCHANGED},
    {"transaction in vain, limit", LENGTH(7, 0), SETUP, take_two, transact_in_vain, UNCHANGED},
    {"transaction in vain, ring", RING(6), SETUP, take_two, transact_in_vain, UNCHANGED},
    {"view of a shared body, ack", FREELY, 0, get_shared, ack_viewed, UNDER_WAY(NEW, NEW), AFTER(NEW, NEW),
     .twice = NEW},
    {"two hold a shared body", FREELY, 0, get_other_shared, ack_viewed, UNDER_WAY(NEW, NEW), AFTER(NEW, NEW),
     .twice = NEW},
    {"move a shared body", FREELY, 0, share_others, move, UNDER_WAY(REST, REST), AFTER(REST, REST)},
    {"commit to twelve", FREELY, SETUP, open_many, commit_to_many, PUTS(NEW), .both = NEW, .many = MANY, .slow = true},
    {"get one of twelve, with ack", FREELY, 0, return_one_of_many, get_acked, UNDER_WAY(NEW, NEW), AFTER(NEW, NEW),
     .twice = NEW},
    {"ack the last of twelve", FREELY, 0, hold_the_last_of_many, ack, UNDER_WAY(0, NEW), AFTER(0, 0)},
    {"view and ack the last of twelve", FREELY, 0, hold_the_last_of_many, ack_viewed, UNDER_WAY(0, NEW), AFTER(0, 0)},
    {"view, nack, move one of twelve", FREELY, 0, hold_one_of_many, move_one_viewed, UNDER_WAY(NEW, NEW),
     AFTER(NEW, NEW), .twice = NEW},
    {"reap a commit to twelve, prepared", FREELY, SETUP, nothing, reap, UNCHANGED, .reaps = true, .both = NEW,
     .many = MANY, .dies_at = "commit.published", .slow = true},
    {"reap a commit to twelve, decided", FREELY, SETUP, nothing, reap, PUTS_DONE, .reaps = true, .both = NEW,
     .many = MANY, .dies_at = "commit.decided", .slow = true},
    {"reclaim", FREELY, SETUP, rest_pages, reclaim, UNCHANGED},
    {"reclaim, and use", FREELY, SETUP, rest_pages, reclaim_and_use, UNCHANGED},
    {"reclaim beside the dead", FREELY, SETUP, rest_pages, reclaim_beside_the_dead, UNCHANGED, .reaps = true,
     .dies_at = "api.put.allocated", .dies_in = die_inside},
    {"reclaim, given up", FREELY, SETUP, rest_pages, reclaim_and_give_up, UNCHANGED, .reaps = true,
     .dies_at = "api.put.allocated", .dies_in = die_inside},
    {"reap a commit, prepared", FREELY, SETUP, nothing, reap, UNCHANGED, .reaps = true, .dies_at = "commit.published"},
    {"reap a commit, decided", FREELY, SETUP, nothing, reap, HAPPENED, .dies_at = "commit.decided"},
    {"reap a commit, one flipped", FREELY, SETUP, nothing, reap, HAPPENED, .dies_at = "commit.flip.done"},
    {"reap a commit, one settled", FREELY, SETUP, nothing, reap, HAPPENED, .dies_at = "queue.settle.dropped"},
    {"reap a commit, carried out", FREELY, SETUP, nothing, reap, HAPPENED, .dies_at = "commit.carried_out"},
    {"reap a commit, ring of 6", RING(6), SETUP, nothing, reap, HAPPENED, .dies_at = "commit.decided"},
    {"reap a commit, prepared, limit", LENGTH(7, 0), SETUP, nothing, reap, UNCHANGED, .reaps = true,
     .dies_at = "commit.published"},

    {"put, priorities", RANKED(-1), SETUP, nothing, put_one, PUTS(NEW)},
    {"put, first of its priority", RANKED(-1), 0, nothing, put_another, UNDER_WAY(0, REST), AFTER(REST, REST)},
    {"put, priorities, ring of 6", RANKED(6), SETUP, nothing, put_one, UNDER_WAY(BUT(3), ALL | NEW),
     AFTER(BUT(3) | NEW, ALL | NEW), .exactly = 6},
    {"put, priorities, looked at", RANKED(6), SETUP, nothing, put_one, UNDER_WAY(BUT(3), ALL | NEW),
     AFTER(BUT(3) | NEW, ALL | NEW), .exactly = 6, .next = NEXT_LOOKS},
    {"get, priorities", RANKED(-1), SETUP, nothing, get_one, UNCHANGED},
    {"get with ack, priorities", RANKED(-1), SETUP, nothing, get_acked, LEAVES(BUT(2))},
    {"get, priorities, ring of 6", RANKED(6), SETUP, nothing, get_one, UNCHANGED, .exactly = 6},
    {"get the last, priorities", RANKED(-1), SETUP, get_five, get_one, UNCHANGED},
    {"nack, priorities", RANKED(-1), SETUP, get_one, nack, UNCHANGED},
    {"purge, priorities", RANKED(-1), SETUP, nothing, purge, LEAVES(0)},
    {"move, priorities", RANKED(-1), SETUP, nothing, move, UNCHANGED},
    {"move back, priorities", RANKED(6), SETUP, move, move_back, UNCHANGED},
    {"delete, priorities", RANKED(-1), SETUP, get_one, delete_queue, LEAVES(0), .deletes = true},
    {"delete if empty, priorities", RANKED(-1), SETUP, nothing, delete_if_empty, UNCHANGED, .deletes_beside = true},
    {"delete, empty, priorities", RANKED(-1), 0, nothing, delete_if_empty, EMPTY, .deletes = true},
    {"sweep, priorities", RANKED(-1), SETUP, delete_and_leave, sweep, EMPTY, .deletes = true, .slow = true},
    {"consumer's turn, priorities", RANKED(-1), SETUP, consume, consume_turn, LEAVES(BUT(2))},
    {"cancel, priorities", RANKED(-1), SETUP, nothing, consume_and_cancel, UNCHANGED, .slow = true},
    {"channel, next foreign, priorities", RANKED(-1), SETUP, channel_consumes_foreign, channel_next, UNCHANGED},
    {"commit, priorities", RANKED(-1), SETUP, nothing, commit_one, PUTS(NEW), .both = NEW},
    {"transaction, priorities, ring of 6", RANKED(6), SETUP, take_two, transact, UNDER_WAY(BUT(2) & BUT(5), ALL | NEW),
     AFTER((BUT(2) & BUT(5)) | NEW, (BUT(2) & BUT(5)) | NEW), .both = NEW, .instead = ID(2) | ID(5)},
    {"become due, priorities", RANKED(-1), SETUP, put_due, due_in_lane, PUTS(NEW)},
    {"tick, priorities", RANKED(6), SETUP, find_q, tick, UNCHANGED, .exactly = 6},
    {"reap, priorities", RANKED(-1), SETUP, nothing, reap, UNDER_WAY(ALL | REST, ALL | REST),
     AFTER(ALL | REST, ALL | REST), .reaps = true},
    {"reap the maker of a lane", RANKED(-1), 0, nothing, reap, EMPTY, .reaps = true, .dies_at = "lanes.linked",
     .dies_in = put_another},
    {"reap a put, priorities", RANKED(-1), 0, nothing, reap, UNDER_WAY(REST, REST), AFTER(REST, REST), .reaps = true,
     .dies_at = "ring.append.done", .dies_in = put_another},

    {"get, groups", GROUPED, SETUP, nothing, get_one, UNCHANGED, .keeps_group = true},
    {"get with ack, groups", GROUPED, SETUP, nothing, get_acked, LEAVES(BUT_1), .keeps_group = true},
    {"ack, groups", GROUPED, SETUP, get_one, ack, LEAVES(BUT_1), .keeps_group = true},
    {"nack, groups", GROUPED, SETUP, get_one, nack, UNCHANGED, .keeps_group = true},
    {"consumer's turn, groups", GROUPED, SETUP, consume, consume_turn, LEAVES(BUT_1), .keeps_group = true},
    {"cancel, groups", GROUPED, SETUP, nothing, consume_and_cancel, UNCHANGED, .slow = true, .keeps_group = true},
    {"close, groups", GROUPED, SETUP, take_three, close_all, UNCHANGED, .keeps_group = true},
    {"delete, groups", GROUPED, SETUP, get_one, delete_queue, LEAVES(0), .deletes = true, .keeps_group = true},
    {"sweep, groups", GROUPED, SETUP, delete_and_leave, sweep, EMPTY, .deletes = true, .slow = true,
     .keeps_group = true},
    {"get, groups and priorities", GROUPED_RANKED, SETUP, nothing, get_one, UNCHANGED, .keeps_group = true},
    {"ack, groups and priorities", GROUPED_RANKED, SETUP, get_one, ack, LEAVES(BUT(2)), .keeps_group = true},
    {"nack, groups and priorities", GROUPED_RANKED, SETUP, get_one, nack, UNCHANGED, .keeps_group = true},
    {"consumer's turn, groups and priorities", GROUPED_RANKED, SETUP, consume, consume_turn, LEAVES(BUT(2)),
     .keeps_group = true},
    {"put, groups", GROUPED, SETUP, get_one, put_one, PUTS(NEW), .keeps_group = true},
    {"put, groups, told alone", GROUPED, SETUP, consume, put_one, PUTS(NEW), .keeps_group = true},
    {"reap the maker of groups", GROUPED, SETUP, nothing, reap, UNCHANGED, .reaps = true, .dies_at = "groups.linked",
     .dies_in = get_one},
    {"reap a claim", GROUPED, SETUP, nothing, reap, UNCHANGED, .reaps = true, .dies_at = "groups.claimed",
     .dies_in = get_one},
    {"reap the end of a claim", GROUPED, SETUP, nothing, reap, LEAVES(BUT_1), .reaps = true,
     .dies_at = "groups.end.swapped", .dies_in = get_acked},

    {"follow", STANDING, SETUP, nothing, follow, UNCHANGED},
    {"follow, long bodies", STANDING, SETUP, nothing, follow, UNCHANGED, .bytes = LONG, .slow = true},
    {"follow, bodies in parts", STANDING, SETUP, nothing, follow, UNCHANGED, IN_PARTS},
    {"follow and view", STANDING, SETUP, nothing, follow_and_view, UNCHANGED, .bytes = LONG},
    {"follow and return", STANDING, SETUP, nothing, follow_and_return, UNCHANGED, .bytes = LONG},
    {"follow in a ring", STANDING_RING(6), SETUP, nothing, follow, UNCHANGED, .bytes = LONG},
    {"follow on a channel", STANDING, SETUP, nothing, follow_on_a_channel, UNCHANGED},
    {"follow on a channel, long settled", STANDING, SETUP, nothing, follow_on_a_channel_settled, UNCHANGED,
     .bytes = LONG},
    {"ack what was read", STANDING, SETUP, read_one, acknowledge_it, UNCHANGED, .bytes = LONG},
    {"reject what was read", STANDING, SETUP, read_one, reject_it, UNCHANGED},
    {"commit what was read", STANDING, SETUP, read_one, commit_it, PUTS(NEW)},
    {"put, ring whose messages stay", STANDING_RING(6), SETUP, read_one, put_one, REPLACES},
    {"deliver scheduled, stays", STANDING, SETUP, put_delayed, deliver_scheduled, PUTS(NEW)},
    {"reap a reader", STANDING, SETUP, nothing, reap, UNCHANGED, .bytes = LONG, .reaps = true,
     .dies_at = "reading.viewed", .dies_in = follow},

    {"put, first value of a key", VALUED, SETUP, nothing, put_value, PUTS(NEW)},
    {"put, last value", VALUED, SETUP, put_value, put_newer, UNDER_WAY(ALL, ALL | TWO), AFTER(ALL | ID(9), ALL | ID(9)),
     .exactly = 7},
    {"put two values", VALUED, SETUP, nothing, put_values, UNDER_WAY(ALL, ALL | TWO), AFTER(ALL | ID(9), ALL | ID(9))},
    {"put, last value of a ring", VALUED_RING(7), SETUP, put_value, put_newer, UNDER_WAY(ALL, ALL | TWO),
     AFTER(ALL | ID(9), ALL | ID(9)), .must_beside = BUT_1 | ID(9)},
    {"put, last value, full", VALUED_LENGTH(7), SETUP, put_value, put_newer, UNDER_WAY(ALL, ALL | TWO),
     AFTER(ALL | ID(9), ALL | ID(9)), .exactly = 7},
    {"reap who took room", VALUED_LENGTH(1), 0, nothing, reap, UNDER_WAY(NEW, NEW), AFTER(NEW, NEW), .reaps = true,
     .dies_at = "api.put.room_taken", .dies_in = put_values},
    {"put, last value, held", VALUED, 0, hold_value, put_newer, UNDER_WAY(0, TWO), AFTER(ID(9), ID(9)), .exactly = 1},
    {"put many keys", VALUED, SETUP, put_many_keys, put_many_more_keys, UNDER_WAY(ALL | REST, ALL | REST),
     AFTER(ALL | REST, ALL | REST), .slow = true},
    {"get with ack, last value", VALUED, 0, put_value, get_acked, UNDER_WAY(0, NEW), AFTER(0, 0)},
    {"nack, last value", VALUED, 0, hold_value, nack_value, UNDER_WAY(NEW, NEW), AFTER(NEW, NEW)},
    {"nack, superseded", VALUED, 0, hold_superseded_value, nack_value, UNDER_WAY(ID(9), ID(9)), AFTER(ID(9), ID(9)),
     .exactly = 1},
    {"close, superseded", VALUED, 0, hold_superseded_value, close_all, UNDER_WAY(ID(9), ID(9)), AFTER(ID(9), ID(9)),
     .exactly = 1},
    {"become due, last value", VALUED, SETUP, put_value_due, due, PUTS(NEW)},
    {"become due, superseded", VALUED, 0, put_due_and_newer, due, UNDER_WAY(ID(9), TWO), AFTER(ID(9), ID(9))},
    {"commit, first value", VALUED, SETUP, nothing, commit_value, PUTS(NEW), .both = NEW},
    {"commit, last value", VALUED, SETUP, put_value, commit_newer, UNDER_WAY(ALL, ALL | TWO),
     AFTER(ALL | ID(9), ALL | ID(9)), .both = ID(9), .instead = NEW, .exactly = 7},
    {"move back, last value", VALUED, 0, value_there_and_newer_here, move_back, UNDER_WAY(0, TWO), AFTER(NEW, NEW)},
    {"purge, last values", VALUED, SETUP, put_many_keys, purge, UNDER_WAY(0, ALL | REST), AFTER(0, 0), .slow = true},
    {"delete, last values", VALUED, SETUP, put_many_keys, delete_queue, UNDER_WAY(0, ALL | REST), AFTER(0, 0),
     .deletes = true, .slow = true},
    {"sweep, last values", VALUED, SETUP, put_keys_and_delete, sweep, EMPTY, .deletes = true, .slow = true},
    {"reap the maker of a node", VALUED, SETUP, nothing, reap, UNCHANGED, .reaps = true,
     .dies_at = "values.node.linked", .dies_in = put_value},
    {"reap who replaces", VALUED, 0, nothing, reap, UNDER_WAY(ID(9), ID(9)), AFTER(ID(9), ID(9)), .reaps = true,
     .dies_at = "values.taken", .dies_in = put_values},
    {"reap who supersedes", VALUED, 0, nothing, reap, UNDER_WAY(ID(9), ID(9)), AFTER(ID(9), ID(9)), .reaps = true,
     .dies_at = "values.superseded", .dies_in = hold_superseded_value},
    {"reap who commits values", VALUED, 0, nothing, reap, UNDER_WAY(TWO, TWO), AFTER(TWO, TWO), .reaps = true,
     .dies_at = "values.taken", .dies_in = commit_values, .twice = TWO, .exactly = 1},
    {"put, sorted", SORTED, SETUP, nothing, put_sorted, PUTS(NEW)},
    {"get, sorted", SORTED, SETUP, put_two_sorted, get_one, UNDER_WAY(ALL | TWO, ALL | TWO),
     AFTER(ALL | TWO, ALL | TWO)},
    {"get with ack, sorted", SORTED, 0, put_two_sorted, get_acked, UNDER_WAY(NEW, TWO), AFTER(NEW, NEW)},
    {"get all, sorted", SORTED, SETUP, put_two_sorted, get_all_sorted, UNDER_WAY(0, ALL | TWO), AFTER(0, 0),
     .slow = true},
    {"get with ack, sorted ring", SORTED_RING(2), 0, put_two_sorted, get_acked, UNDER_WAY(NEW, TWO), AFTER(NEW, NEW)},
    {"put, sorted ring", SORTED_RING(6), SETUP, nothing, put_sorted, UNDER_WAY(BUT_1, ALL | NEW),
     AFTER(BUT_1 | NEW, BUT_1 | NEW), .exactly = 6},
    {"get with ack, sorted, full", SORTED_LENGTH(2), 0, put_two_sorted, get_acked, UNDER_WAY(NEW, TWO),
     AFTER(NEW, NEW)},
    {"nack, sorted", SORTED, SETUP, put_two_sorted_hold, nack_last, UNDER_WAY(ALL | TWO, ALL | TWO),
     AFTER(ALL | TWO, ALL | TWO)},
    {"get returned, sorted", SORTED, SETUP, put_sorted_and_get, consume_and_cancel, UNDER_WAY(ALL | NEW, ALL | NEW),
     AFTER(ALL | NEW, ALL | NEW), .slow = true},
    {"consumer's turn, sorted", SORTED, SETUP, consume, consume_turn, LEAVES(BUT_1)},
    {"commit, sorted", SORTED, SETUP, nothing, commit_sorted, PUTS(NEW), .both = NEW},
    {"move back, sorted", SORTED, SETUP, move, move_back, UNCHANGED},
    {"purge, sorted", SORTED, SETUP, put_two_sorted, purge, UNDER_WAY(0, ALL | TWO), AFTER(0, 0)},
    {"reap a return, sorted", SORTED, 0, nothing, reap, UNDER_WAY(NEW, NEW), AFTER(NEW, NEW), .reaps = true,
     .dies_at = "queue.release.flipped", .dies_in = put_get_and_return},
    {"reap a commit, sorted", SORTED, 0, nothing, reap, UNDER_WAY(NEW, NEW), AFTER(NEW, NEW), .reaps = true,
     .dies_at = "commit.flip.done", .dies_in = commit_sorted, .twice = NEW},
    {"consume, selector", FREELY, SETUP, nothing, rival_comes, UNCHANGED},
    {"consumer's turn, selector", FREELY, SETUP, rival_comes, rival_takes, LEAVES(BUT(2))},
    {"cancel, selector", FREELY, SETUP, rival_and_another, rival_leaves, UNCHANGED, .slow = true},
    {"suspend, selector", FREELY, SETUP, rival_and_another, rival_loses_credit, UNCHANGED},
    {"consumer's turn beside a rival", FREELY, SETUP, rival_and_another, another_takes, LEAVES(BUT_1_AND_3)},
    {"ack, stored", STORED, SETUP, get_one, ack, LEAVES(BUT_1)},
    {"ack many, stored", STORED, SETUP, get_three, ack_three, LEAVES(BUT_3)},
    {"ack, stored, page done", STORED, 70, take_page, ack, UNDER_WAY(REST, REST), AFTER(REST, REST)},
    {"nack, stored", STORED, SETUP, get_one, nack, UNCHANGED},
    {"transaction, stored", STORED, SETUP, take_two, transact, UNDER_WAY(BUT_2, ALL | NEW),
     AFTER(BUT_2 | NEW, BUT_2 | NEW), .both = NEW},
    {"two acks at once, stored", STORED, SETUP, take_two, acknowledge_together, UNDER_WAY(BUT_2, ALL),
     AFTER(BUT_2, BUT_2)},
    {"reap a commit, stored", STORED, SETUP, nothing, reap, UNDER_WAY(ALL | TWO, ALL | TWO),
     AFTER(ALL | TWO, ALL | TWO), .both = TWO, .reaps = true, .dies_at = "turns.commit.begun", .dies_in = commit_two},
    {"move, stored", STORED, SETUP, nothing, move, UNCHANGED, .total = SETUP},
    {"move selected, stored", STORED, SETUP, nothing, move_selected, UNCHANGED, .total = SETUP},
    {"move a page, stored", STORED, PAGE_AND_SIX, have_room_for_a_page, move_page, UNDER_WAY(ALL | REST, ALL | REST),
     AFTER(ALL | REST, ALL | REST), .total = PAGE_AND_SIX},
    {"reap a move, announced", STORED, SETUP, nothing, reap, UNCHANGED, .total = SETUP, .reaps = true,
     .dies_at = "turns.move.announced", .dies_in = move},
    {"reap a move, stored", STORED, SETUP, nothing, reap, UNCHANGED, .total = SETUP, .reaps = true,
     .dies_at = "queue.move.linked", .dies_in = move},
    {"put, stored", STORED, SETUP, nothing, put_one, PUTS(NEW)},
    {"put, stored, large", STORED, SETUP, write_long_body, put_long, PUTS(NEW), .slow = true},
    {"put, stored, large, priorities", STORED_RANKED, SETUP, write_long_body, put_long, PUTS(NEW), .slow = true},
    {"ask for a turn", STORED, SETUP, nothing, asks_for_a_turn, UNCHANGED},
    {"turn of the storekeeper", STORED, SETUP, ends_before_a_turn, takes_a_turn, LEAVES(BUT_1)},

    {"a leaf leaves", PAGED, nothing, let_leaf_leave, PAGED_UNCHANGED},
    {"a leaf leaves, one ended", PAGED, get_acked, let_leaf_leave, PAGED_LEAVES(BUT_1)},
    {"a leaf comes back", PAGED, let_leaf_leave, let_leaf_come_back, PAGED_UNCHANGED},
    {"a leaf leaves and comes back", PAGED, nothing, leave_and_come_back, PAGED_UNCHANGED},
    {"a marked leaf comes back", PAGED, nothing, leave_and_come_back_marked, PAGED_UNCHANGED},
    {"get what has left, ack", PAGED, let_leaf_leave, get_loading_and_ack, PAGED_LEAVES(BUT_1)},
    {"get what has left, hold it", PAGED, let_leaf_leave, hold_one_loading, PAGED_UNCHANGED},
    {"browse what has left", PAGED, let_leaf_leave, browse_loading, PAGED_UNCHANGED},
    {"purge what has left", PAGED, let_leaf_leave, purge_loading, UNDER_WAY(0, ALL | REST), AFTER(0, 0),
     .has_store = true},
    {"delete what has left", PAGED, let_leaf_leave, delete_queue, UNDER_WAY(0, ALL | REST), AFTER(0, 0),
     .has_store = true, .deletes = true},
    {"reap who lets leave, leaving", PAGED_DEATH("paged.leaving", let_leaf_leave)},
    {"reap who lets leave, frozen", PAGED_DEATH("paged.frozen", let_leaf_leave)},
    {"reap who lets leave, left", PAGED_DEATH("paged.left", let_leaf_leave)},
    {"reap who lets leave, unlinked", PAGED_DEATH("paged.unlinked", let_leaf_leave)},
    {"reap who lets leave, emptying", PAGED_DEATH("paged.emptying", let_leaf_leave)},
    {"reap who lets leave, dropped", PAGED_DEATH("paged.dropped", let_leaf_leave)},
    {"reap who lets leave, freed", PAGED_DEATH("paged.freed", let_leaf_leave)},
    {"reap who loads, coming", PAGED_DEATH("paging.coming", leave_and_come_back)},
    {"reap who loads, placed", PAGED_DEATH("paging.placed", leave_and_come_back)},
    {"reap who loads, published", PAGED_DEATH("paging.published", leave_and_come_back)},
    {"reap who loads, filled", PAGED_DEATH("paged.filled", leave_and_come_back)},
    {"reap who loads, linked", PAGED_DEATH("paged.linked", leave_and_come_back)},
    {"reap who loads, linked a marked one", PAGED_DEATH("paged.linked", leave_and_come_back_marked)},
    {"reap who loads, arrived", PAGED_DEATH("paged.arrived", leave_and_come_back)},
    {"reap a delete of what has left", PAGED, nothing, reap, UNDER_WAY(0, ALL | REST), AFTER(0, ALL | REST),
     .has_store = true, .deletes = true, .reaps = true, .dies_at = "paged.ended", .dies_in = leave_and_delete},
    {"get beside who lets leave, frozen", PAGED, nothing, get_loading_and_ack, PAGED_LEAVES(BUT_1), .reaps = true,
     .dies_at = "paged.frozen", .dies_in = let_leaf_leave},
    {"get beside who lets leave, left", PAGED, nothing, get_loading_and_ack, PAGED_LEAVES(BUT_1), .reaps = true,
     .dies_at = "paged.left", .dies_in = let_leaf_leave},
    {"go on with who lets leave, frozen", PAGED, nothing, let_leaf_leave, PAGED_UNCHANGED, .reaps = true,
     .dies_at = "paged.frozen", .dies_in = let_leaf_leave},
    {"consumer is held back", FREELY, SETUP, window_opens, window_takes, UNCHANGED},
    {"get beside one that is held back", FREELY, SETUP, window_is_full, window_loses_next, LEAVES(BUT(2))},
    {"settle, held back", FREELY, SETUP, window_is_full, window_settles, LEAVES(BUT_1)},
    {"cancel, held back", FREELY, SETUP, window_is_full, window_closes, UNCHANGED, .slow = true},
    {"consume, seats", SEATED(1), SETUP, nothing, take_a_seat, UNCHANGED},
    {"get seats", FREELY, SETUP, one_waits, get_seats, UNCHANGED},
    {"give seats away", SEATED(1), SETUP, take_a_seat, give_seats_away, UNCHANGED},
    {"reap a seat", SEATED(1), SETUP, nothing, reap, UNCHANGED, .reaps = true, .dies_at = "admission.registered",
     .dies_in = take_a_seat},
    {"first of two consumes", GATED(2), SETUP, nothing, one_waits, UNCHANGED},
    {"second of two consumes", GATED(2), SETUP, one_waits, second_comes, UNCHANGED},
    {"first of two looks", GATED(2), SETUP, both_come, first_looks, UNCHANGED},
    {"gate, no gate", FREELY, SETUP, one_waits, begin_and_end_gate, UNCHANGED},
    {"reap a ticket", GATED(2), SETUP, nothing, reap, UNCHANGED, .reaps = true, .dies_at = "dispatch.drawn",
     .dies_in = both_come},
    {"reap an open gate", GATED(2), SETUP, nothing, reap, UNCHANGED, .reaps = true, .dies_at = "dispatch.opened",
     .dies_in = both_come},
    {"put with an id", REMEMBERING, SETUP, nothing, put_once, PUTS_DONE, .again = AGAIN_PUT},
    {"put with a known id", REMEMBERING, SETUP, put_once, put_once, PUTS_DONE, .again = AGAIN_PUT},
    {"put twice with an id", REMEMBERING, SETUP, nothing, put_twice, PUTS_DONE, .again = AGAIN_PUT},
    {"put with an id of a message that is gone", REMEMBERING, SETUP, put_once_and_take, put_once, EMPTY,
     .again = AGAIN_PUT},
    {"put delayed with an id", REMEMBERING, SETUP, nothing, put_once_delayed, UNDER_WAY(ALL, ALL | NEW),
     AFTER(ALL, ALL), .again = AGAIN_PUT},
    {"put with an id, ring of 6",
     {{6, -1, -1, 0, -1, -1, [SB_SETTING_DUPLICATE_IDS] = 3}, 0},
     SETUP,
     nothing,
     put_once,
     UNDER_WAY(BUT_1 | NEW, BUT_1 | NEW),
     AFTER(BUT_1 | NEW, BUT_1 | NEW),
     .exactly = 6,
     .again = AGAIN_PUT},
    {"put with an id, priorities",
     {{-1, -1, -1, 0, -1, -1, 2, [SB_SETTING_DUPLICATE_IDS] = 3}, 0},
     SETUP,
     nothing,
     put_once,
     PUTS_DONE,
     .again = AGAIN_PUT},
    {"reserve with an id", REMEMBERING, SETUP, nothing, reserve_once, PUTS_DONE, .again = AGAIN_PUT},
    {"commit with an id", REMEMBERING, SETUP, nothing, commit_once, PUTS_DONE, .both = NEW, .again = AGAIN_COMMIT},
    {"commit with ids", REMEMBERING, SETUP, nothing, commit_several_ids, UNDER_WAY(ALL | NEW, ALL | TWO),
     AFTER(ALL | TWO, ALL | TWO), .twice = TWO, .again = AGAIN_COMMIT},
    {"transaction with an id", REMEMBERING, SETUP, take_two, transact_once, UNDER_WAY(BUT_2 | NEW, ALL | NEW),
     AFTER(BUT_2 | NEW, BUT_2 | NEW), .both = NEW, .again = AGAIN_COMMIT},
    {"transaction with a known id", REMEMBERING, SETUP, put_and_take_two, transact_once, PUTS_DONE, .again = AGAIN_PUT},
    {"reap a claim of an id", REMEMBERING, SETUP, nothing, reap, PUTS_DONE, .reaps = true,
     .dies_at = "duplicates.claimed", .dies_in = put_once, .again = AGAIN_PUT},
    {"reap a block of ids", REMEMBERING, SETUP, nothing, reap, PUTS_DONE, .reaps = true, .dies_at = "duplicates.linked",
     .dies_in = put_once, .again = AGAIN_PUT},
    {"reap a decided id", REMEMBERING, SETUP, nothing, reap, PUTS_DONE, .reaps = true, .dies_at = "commit.decided",
     .dies_in = put_once, .again = AGAIN_PUT},
    {"reap an id with a number", REMEMBERING, SETUP, nothing, reap, PUTS_DONE, .reaps = true,
     .dies_at = "duplicates.numbered", .dies_in = put_once, .again = AGAIN_PUT},
    {"put beside a claim of the dead", REMEMBERING, SETUP, nothing, put_once, PUTS_DONE, .reaps = true,
     .dies_at = "duplicates.claimed", .dies_in = put_once, .again = AGAIN_PUT},
    {"delete, ids", REMEMBERING, SETUP, put_once_and_take, delete_queue, EMPTY, .deletes = true},
    {"sweep, ids", REMEMBERING, SETUP, put_once_and_delete, sweep, EMPTY, .deletes = true, .slow = true},

    {"reject, dead letters", DEADLY, SETUP, get_one, reject, LEAVES(BUT_1)},
    {"reject in a commit, dead letters", DEADLY, SETUP, get_one, reject_in_a_commit, LEAVES(BUT_1)},
    {"expire two, dead letters", DEADLY, SETUP, nothing, expire_two, LEAVES(BUT_2)},
    {"carry out", DEADLY, SETUP, reject_one, carry_out, UNDER_WAY(BUT_1, ALL), AFTER(ALL, ALL)},
    {"carry out 5 kB", DEADLY, SETUP, reject_one, carry_out, UNDER_WAY(BUT_1, ALL), AFTER(ALL, ALL), .bytes = LONG},
    {"give up", DEADLY, SETUP, reject_one, give_up, UNDER_WAY(BUT_1, BUT_1), AFTER(BUT_1, BUT_1)},
    {"give back", DEADLY, SETUP, reject_one, give_back, UNDER_WAY(BUT_1, BUT_1), AFTER(BUT_1, BUT_1)},
    {"carry out a batch", DEADLY, SETUP, reject_two, carry_out_batch, UNDER_WAY(BUT_2, ALL), AFTER(ALL, ALL)},
    {"carry out a batch of 5 kB", DEADLY, SETUP, reject_two, carry_out_batch, UNDER_WAY(BUT_2, ALL), AFTER(ALL, ALL),
     .bytes = LONG},
    {"give a batch up", DEADLY, SETUP, reject_two, give_batch_up, UNDER_WAY(BUT_2, BUT_2), AFTER(BUT_2, BUT_2)},
    {"give a batch back", DEADLY, SETUP, reject_two, give_batch_back, UNDER_WAY(BUT_2, BUT_2), AFTER(BUT_2, BUT_2)},
    {"run timers, delayed", FREELY, SETUP, put_due, run_timers, UNDER_WAY(ALL, ALL | NEW), AFTER(ALL | NEW, ALL | NEW)},
    {"run timers, expired", FREELY, SETUP, put_expired, run_timers, UNCHANGED},
    {"run timers, dead letters", DEADLY, SETUP, put_expired, run_timers, UNCHANGED},
    {"get expired, dead letters", DEADLY, 0, put_expired, get_one, EMPTY},
    {"put, dead letters of a full queue",
     {{-1, 6, -1, 2, -1, -1}, SB_QUEUE_DEAD_LETTERS},
     SETUP,
     nothing,
     put_one,
     REPLACES},
    {"put a dead one", REJECTING, SETUP, nothing, put_dead, UNCHANGED},
    {"take one that was put dead", REJECTING, SETUP, put_dead, give_back_last, UNCHANGED},
    {"reap who took one that was put dead", REJECTING, SETUP, nothing, reap, UNCHANGED, .reaps = true,
     .dies_at = "queue.take.done", .dies_in = die_with_one_put_dead},
    {"nack, last delivery",
     {{-1, -1, -1, 0, -1, -1, 0, 1}, SB_QUEUE_DEAD_LETTERS},
     SETUP,
     get_one,
     nack,
     LEAVES(BUT_1)},
    {"nack, last delivery, no dead letters", {{-1, -1, -1, 0, -1, -1, 0, 1}, 0}, SETUP, get_one, nack, LEAVES(BUT_1)},
    {"nack, delayed", {{-1, -1, -1, 0, -1, -1, 0, -1, 3600000, 1000, -1}, 0}, SETUP, get_one, nack, LEAVES(BUT_1)},
    {"delete, dead letters", DEADLY, SETUP, reject_one, delete_queue, UNDER_WAY(0, BUT_1), AFTER(0, 0),
     .deletes = true},
    {"reap who carries out, taken", DEADLY, SETUP, nothing, reap, UNDER_WAY(BUT_1, BUT_1), AFTER(BUT_1, BUT_1),
     .reaps = true, .dies_at = "commit.marked", .dies_in = die_with_a_dead_one},
    {"reap who carries out, decided", DEADLY, SETUP, nothing, reap, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL), .reaps = true,
     .dies_at = "commit.decided", .dies_in = die_with_a_dead_one},
    {"reap who carries a batch out, decided", DEADLY, SETUP, nothing, reap, UNDER_WAY(ALL, ALL), AFTER(ALL, ALL),
     .reaps = true, .dies_at = "commit.decided", .dies_in = die_with_a_batch},
    {"reap who carries a batch out, marked", DEADLY, SETUP, nothing, reap, UNDER_WAY(BUT_2, BUT_2), AFTER(BUT_2, BUT_2),
     .reaps = true, .dies_at = "commit.marked", .dies_in = die_with_a_batch},
    {"reap who transfers, taken", FREELY, SETUP, nothing, reap, UNCHANGED, .reaps = true, .dies_at = "commit.marked",
     .dies_in = transfer},
    {"reap who transfers, decided", FREELY, SETUP, nothing, reap, UNDER_WAY(BUT_1 | NEW, BUT_1 | NEW),
     AFTER(BUT_1 | NEW, BUT_1 | NEW), .both = NEW, .reaps = true, .dies_at = "commit.decided", .dies_in = transfer},
    {"reap who rejects, described", DEADLY, SETUP, nothing, reap, UNDER_WAY(BUT_1, BUT_1), AFTER(BUT_1, BUT_1),
     .reaps = true, .dies_at = "queue.park.described", .dies_in = reject_one},
    {"reap who rejects, flipped", DEADLY, SETUP, nothing, reap, UNDER_WAY(BUT_1, BUT_1), AFTER(BUT_1, BUT_1),
     .reaps = true, .dies_at = "queue.park.flipped", .dies_in = reject_one},
    {"reap the last consumer",
     {{-1, -1, -1, 0, -1, -1, 0, 1}, SB_QUEUE_DEAD_LETTERS},
     SETUP,
     nothing,
     reap,
     UNDER_WAY(BUT_1, BUT_1),
     AFTER(BUT_1, BUT_1),
     .reaps = true,
     .dies_at = "no such point",
     .dies_in = get_one},

    {"tick", RING(6), SETUP, find_q, tick, UNCHANGED, .exactly = 6},
    {"remove scheduled", FREELY, SETUP, put_delayed, remove_scheduled, UNDER_WAY(ALL, ALL | NEW), AFTER(ALL, ALL)},
    {"expire scheduled", DEADLY, SETUP, put_delayed, expire_scheduled, UNDER_WAY(ALL, ALL | NEW), AFTER(ALL, ALL)},
    {"deliver scheduled", FREELY, SETUP, put_delayed, deliver_scheduled, PUTS(NEW)},
    {"become due", FREELY, SETUP, put_due, due, PUTS(NEW)},
    {"sweep", FREELY, SETUP, delete_and_leave, sweep, EMPTY, .deletes = true, .slow = true},
    {"trim schedule", FREELY, SETUP, become_due, trim_schedule, UNDER_WAY(ALL | NEW, ALL | NEW),
     AFTER(ALL | NEW, ALL | NEW)},
    {"drain small chunks", FREELY, SETUP, fill_and_drain, put_middle, PUTS(NEW), .chunks = 12, .slow = true},
    {"drain runs", FREELY, SETUP, fill_with_runs, put_middle, PUTS(NEW), .chunks = 14},
    {"consume, out of the reserve", FREELY, SETUP, fill_and_drain, consume_one, UNCHANGED, .chunks = 12, .slow = true},
    {"drain for a run", FREELY, SETUP, fill_and_drain_for_long, put_long, UNDER_WAY(ALL, ALL | NEW),
     AFTER(ALL, ALL | NEW), .chunks = 12},

    {"put in parts", FREELY, SETUP, crowd, put_in_parts, UNDER_WAY(ALL | REST, ALL | REST | NEW),
     AFTER(ALL | REST | NEW, ALL | REST | NEW), IN_PARTS},
    {"put, too few parts", FREELY, SETUP, crowd, put_what_does_not_fit, UNDER_WAY(ALL | REST, ALL | REST),
     AFTER(ALL | REST, ALL | REST), .takes_all = true, IN_PARTS},
    {"commit in parts", FREELY, SETUP, crowd, commit_in_parts, UNDER_WAY(ALL | REST, ALL | REST | NEW),
     AFTER(ALL | REST | NEW, ALL | REST | NEW), .both = NEW, IN_PARTS},
    {"reserve in parts, commit", FREELY, SETUP, crowd, reserve_in_parts_and_commit,
     UNDER_WAY(ALL | REST, ALL | REST | NEW), AFTER(ALL | REST | NEW, ALL | REST | NEW), IN_PARTS},
    {"commit a copy, in parts", FREELY, SETUP, reserve_in_parts, commit_copy_of_parts,
     UNDER_WAY(ALL | REST, ALL | REST | NEW), AFTER(ALL | REST | NEW, ALL | REST | NEW), IN_PARTS},
    {"copy parts", FREELY, 0, have_parts, copy_parts, UNDER_WAY(REST | NEW, REST | NEW), AFTER(REST | NEW, REST | NEW),
     IN_PARTS},
    {"get parts with ack", FREELY, 0, have_parts, get_acked, UNDER_WAY(REST, REST | NEW), AFTER(REST, REST), IN_PARTS},
    {"ack parts", FREELY, 0, hold_parts, ack, UNDER_WAY(REST, REST | NEW), AFTER(REST, REST), IN_PARTS},
    {"view parts, ack", FREELY, 0, hold_parts, ack_viewed, UNDER_WAY(REST, REST | NEW), AFTER(REST, REST), IN_PARTS},
    {"move parts", FREELY, 0, have_parts, move, UNDER_WAY(REST | NEW, REST | NEW), AFTER(REST | NEW, REST | NEW),
     IN_PARTS},
    {"purge parts", FREELY, 0, have_parts, purge, UNDER_WAY(REST, REST | NEW), AFTER(REST, REST), IN_PARTS},
    {"reap a put in parts", FREELY, 0, nothing, reap, UNDER_WAY(REST, REST), AFTER(REST, REST), .reaps = true,
     .dies_at = "parts.named", .dies_in = die_putting, IN_PARTS},
    {"reap a put, parts begun", FREELY, 0, nothing, reap, UNDER_WAY(REST, REST), AFTER(REST, REST), .reaps = true,
     .dies_at = "parts.begun", .dies_in = die_putting, IN_PARTS},
    {"reap an ack of parts", FREELY, 0, nothing, reap, UNDER_WAY(REST, REST), AFTER(REST, REST), .reaps = true,
     .dies_at = "parts.freed", .dies_in = die_acknowledging, IN_PARTS},
};
const size_t OPERATION_COUNT = sizeof OPERATIONS / sizeof OPERATIONS[0];
