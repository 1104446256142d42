// SPDX-License-Identifier: Apache-2.0
/* sb_api_put: what a put refuses, what a failed put leaves, when it holds the lock, and which nodes it notifies.
 * Reservations: api_put_reserved.c. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "sb_api.h"
#include "surroundings.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define BYTES 64u
#define UNLOCKED (SB_UNLOCKED_COPY + 1) /* the shortest body that is copied without the lock */
#define HOUR_NS UINT64_C(3600000000000)

static char record[BUFFER];
static const char BODY[BYTES] = "a body";
static const sb_put_options NONE;
static sb_queue *q;

static const sb_record *as_record(void) { return (const sb_record *)(const void *)record; }
static sb_status put_one_of(uint64_t length) { return sb_queue_put_with(q, BODY, length, &NONE); }
static int64_t get_next(void) { return sb_queue_get(q, record, true); }
static uint64_t added(void) { return counted(q, SB_COUNT_ADDED); }
static void expect_room_told(uint32_t node, const char *after) {
  expect(was_told(node), "after %s: a producer that waits for room is not told", after);
}

/* ---- what is refused ---- */

static void a_closed_queue_is_refused(void) {
  q = make_queue("q", FREE_SETTINGS);
  note_rest(q);
  mark_closed(q);
  expect_is(put_one_of(BYTES), SB_DELETED, "the status");
  expect_is(added(), 0, "the number of messages");
  expect_calm("a put into a closed queue");
}
static void a_closed_connection_is_refused(void) {
  const sb_piece piece = {BODY, BYTES};
  int32_t ends[] = {0, 1};
  const sb_columns columns = {.body = {.ends = ends, .bytes = (char[]){'b'}}};
  sb_status status = SB_OK;
  q = make_queue("q", FREE_SETTINGS);
  SB_STORE(&t.c->closed, 1u, SB_RELAXED);
  expect_is(sb_queue_put(q, BODY, BYTES), SB_CLOSED, "the status of a put");
  expect_is(put_one_of(BYTES), SB_CLOSED, "the status of a put with options");
  expect_is(sb_queue_put_many(q, &piece, 1, &NONE, &status), 0, "how many went");
  expect_is(status, SB_CLOSED, "the status of several");
  status = SB_OK;
  expect_is(sb_queue_put_columns(q, &columns, 0, 1, &status), 0, "how many rows went");
  expect_is(status, SB_CLOSED, "the status of rows");
  expect_is(sb_queue_wait_for_room(q, false, BYTES, FOREVER), SB_CLOSED, "the status of a wait");
  expect_is(added(), 0, "the number of messages");
}
/* The length of a body is looked at before the limits are. */
static void too_long_a_body(void) {
  q = make_queue("q", (sb_settings){{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0});
  expect_is(put_one_of(BYTES), SB_OK, "the status of a short body");
  note_rest(q);
  expect_is(put_one_of(SB_MAX_BODY), SB_FULL, "the status of the longest body");
  expect_is(put_one_of(SB_MAX_BODY + 1), SB_TOO_LARGE, "the status of a longer body");
  expect_rest("puts of too long a body");
}
/* Of the longest front it is the memory that is too short. A refusal tells a producer that waits: the call may have had its
 * room for a moment. */
static void too_long_a_front(void) {
  const sb_put_options longest = {.key = record, .key_length = SB_MAX_PREFIX - sizeof(sb_message_shm)};
  const sb_put_options longer = {.key = record, .key_length = longest.key_length + 1};
  q = make_queue("q", (sb_settings){{-1, 10, -1, 0, -1, -1}, 0});
  uint32_t node = wait_at(q, FOR_ROOM, BYTES);
  leave_chunks(0);
  note_rest(q);
  expect_is(sb_queue_put_with(q, BODY, BYTES, &longest), SB_NO_MEMORY, "the status of the longest front");
  expect_room_told(node, "a put without memory");
  expect_is(sb_queue_put_with(q, BODY, BYTES, &longer), SB_INVALID, "the status of a longer front");
  expect_room_told(node, "a put of too long a front");
  expect_is(q->shm->admitted - q->base, 0, "the number of places taken");
  expect_is(q->shm->bytes_in, 0, "the number of bytes admitted");
  expect_rest("puts that were refused");
}
/* A message that is not ready needs its room only until it is put: the put tells a producer that found none meanwhile. */
static void a_delayed_put_tells_a_producer(void) {
  const sb_put_options delayed = {.delay_ns = UINT64_C(1) << 60};
  q = make_queue("q", (sb_settings){{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0});
  uint32_t node = wait_at(q, FOR_ROOM, BYTES);
  expect_is(sb_queue_put_with(q, BODY, BYTES, &delayed), SB_OK, "the status");
  expect_room_told(node, "a put of a delayed message");
}
static void a_limit_refuses(void) {
  q = make_queue("q", (sb_settings){{-1, 1, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0});
  expect_is(put_one_of(BYTES), SB_OK, "the status of the first");
  note_rest(q);
  expect_is(put_one_of(BYTES), SB_FULL, "the status of the second");
  expect_is(counted(q, SB_COUNT_REFUSED), 0, "the number of messages that went nowhere");
  expect_rest("a put that was refused");
}
/* Only what is too many goes nowhere: all else is told. */
static void a_limit_drops(void) {
  q = make_queue("q", (sb_settings){{-1, 1, -1, SB_OVERFLOW_DROP, -1, -1}, 0});
  expect_is(put_one_of(BYTES), SB_OK, "the status of the first");
  note_rest(q);
  expect_is(put_one_of(BYTES), SB_OK, "the status of the second");
  expect_is(counted(q, SB_COUNT_REFUSED), 1, "the number of messages that went nowhere");
  expect_is(added(), 1, "the number of messages");
  expect_is(put_one_of(SB_MAX_BODY + 1), SB_TOO_LARGE, "the status of too long a body");
  expect_is(counted(q, SB_COUNT_REFUSED), 1, "the number that went nowhere, after one too long");
  expect_rest("a put that was dropped");
  sb_reservation r;
  expect_is(sb_reservation_begin(q, BYTES, &NONE, &r), SB_FULL, "the status of a reservation");
  expect_is(counted(q, SB_COUNT_REFUSED), 1, "the number that went nowhere, after a reservation");
}

/* ---- how long a message lives ---- */

/* The lifetime of the next message, in nanoseconds, if it is just that; UINT64_MAX: it lives for ever. */
static void expect_lifetime(uint64_t ttl_ns, uint64_t should, const char *what) {
  const sb_put_options o = {.ttl_ns = ttl_ns};
  sb_reservation r;
  uint64_t before = sb_now_ns();
  expect_is(sb_reservation_begin(q, BYTES, &o, &r), SB_OK, "the status");
  uint64_t after = sb_now_ns(), expires = ((const sb_message_shm *)sb_slot_at(t.b, r.slot))->expires_ns;
  if (should == UINT64_MAX) {
    expect_is(expires, 0, what);
  } else {
    expect(expires >= before + should && expires <= after + should, "%s is another one", what);
  }
  sb_reservation_abandon(q, &r, false);
}
static void the_shorter_lifetime_counts(void) {
  q = make_queue("for ever", (sb_settings){{-1, -1, -1, 0, -1, -1}, 0});
  expect_lifetime(0, UINT64_MAX, "a lifetime without any");
  expect_lifetime(HOUR_NS, HOUR_NS, "the message's");
  q = make_queue("two hours", (sb_settings){{-1, -1, -1, 0, 7200000, -1}, 0});
  expect_lifetime(0, 2 * HOUR_NS, "the queue's");
  expect_lifetime(HOUR_NS, HOUR_NS, "the message's, which is shorter");
  expect_lifetime(3 * HOUR_NS, 2 * HOUR_NS, "the queue's, which is shorter");
  q = make_queue("at once", (sb_settings){{-1, -1, -1, 0, 0, -1}, 0});
  expect_lifetime(0, 1, "the shortest");
  expect_lifetime(HOUR_NS, 1, "the queue's, which is the shortest");
}
/* The value of the setting goes before the flag that says that there is one; the process that removes it may be stopped
 * or killed between the two. */
static void a_lifetime_that_is_being_removed(void) {
  q = make_queue("an hour", (sb_settings){{-1, -1, -1, 0, 3600000, -1}, 0});
  SB_STORE(&q->shm->settings[SB_SETTING_MESSAGE_TTL_MS], -1, SB_RELAXED);
  expect_lifetime(0, UINT64_MAX, "a lifetime without any");
  expect_lifetime(HOUR_NS, HOUR_NS, "the message's");
}

/* ---- several ---- */

static void several_messages(void) {
  const sb_piece pieces[] = {{BODY, BYTES}, {BODY, SB_MAX_BODY + 1}, {BODY, BYTES}};
  const sb_put_options o = {.key = "key", .key_length = 3};
  sb_status status;
  q = make_queue("q", FREE_SETTINGS);
  note_rest(q);
  expect_is(sb_queue_put_many(q, pieces, 3, &o, &status), 1, "how many went");
  expect_is(status, SB_TOO_LARGE, "the status");
  expect_is(added(), 1, "the number of messages");
  expect_is(sb_queue_put_many(q, pieces, 1, &o, &status), 1, "how many went of one");
  expect_is(status, SB_OK, "the status of one");
  expect_is(sb_queue_put_many(q, pieces, 0, &o, &status), 0, "how many went of none");
  expect_is(status, SB_OK, "the status of none");
  expect_is(get_next(), sizeof(sb_record) + 3 + BYTES, "the length of the first");
  expect(memcmp(record + sizeof(sb_record), "keya body", 9) == 0, "the first is another one");
  expect_rest("several puts");
}
/* Each row has its own texts, from the row on that is named; a column that is missing gives none. */
static void rows_of_columns(void) {
  int32_t bodies[] = {2, 3, 5, 8}, keys[] = {0, 1, 1, 3}, properties[] = {1, 1, 3, 4};
  sb_columns c = {.body = {.ends = bodies, .bytes = (char[]){"##abbccc"}},
                  .key = {.ends = keys, .bytes = (char[]){"xyz"}},
                  .properties = {.ends = properties, .bytes = (char[]){"#ppq"}}};
  sb_status status;
  q = make_queue("q", FREE_SETTINGS);
  note_rest(q);
  expect_is(sb_queue_put_columns(q, &c, 1, 2, &status), 2, "how many went");
  expect_is(status, SB_OK, "the status");
  expect_is(get_next(), sizeof(sb_record) + 4, "the length of the first");
  expect(as_record()->key_length == 0 && as_record()->properties_length == 2, "the first has other texts");
  expect(memcmp(record + sizeof(sb_record), "ppbb", 4) == 0, "the first is another one");
  expect_is(get_next(), sizeof(sb_record) + 6, "the length of the second");
  expect(as_record()->key_length == 2 && as_record()->properties_length == 1, "the second has other texts");
  expect(memcmp(record + sizeof(sb_record), "yzqccc", 6) == 0, "the second is another one");
  c.key.ends = c.properties.ends = NULL;
  expect_is(sb_queue_put_columns(q, &c, 0, 1, &status), 1, "how many went without keys");
  expect_is(get_next(), sizeof(sb_record) + 1, "the length of a body alone");
  expect_rest("puts of rows");
  leave_chunks(0);
  take_slots(1);
  mark_closed(q);
  expect_is(sb_queue_put_columns(q, &c, 0, 2, &status), 0, "how many went into a closed queue");
  expect_is(status, SB_DELETED, "the status of a closed queue");
}

/* ---- who is told ---- */

static void a_consumer_is_told(void) {
  q = make_queue("q", FREE_SETTINGS);
  uint32_t node = wait_at(q, FOR_WORK, 0);
  expect_is(put_one_of(BYTES), SB_OK, "the status");
  expect(was_told(node), "a consumer that waits is not told");
  q = make_queue("ring", (sb_settings){{1, -1, -1, 0, -1, -1}, 0});
  node = wait_at(q, FOR_WORK, 0);
  for (int i = 0; i < 3; i++) {
    expect_is(put_one_of(BYTES), SB_OK, "the status of a put into a ring");
    expect(was_told(node), "a consumer that waits at a ring is not told of message %d", i);
  }
  expect_is(counted(q, SB_COUNT_REPLACED), 2, "how many were replaced");
  note_rest(q);
  expect_rest("puts into a ring");
}
/* It sleeps until the next timer that it knows: only an earlier one ends that. */
static void the_housekeeper_is_told(void) {
  uint32_t keeper;
  q = make_queue("q", FREE_SETTINGS);
  keeper = wait_at(q, FOR_ROOM, 0);
  sb_half *wake = &((sb_node_shm *)sb_slot_at(t.b, keeper))->wake;
  SB_STORE(&t.b->header->housekeeper_waiter, keeper, SB_RELAXED);
  SB_STORE(&t.b->header->next_due_ns, sb_now_ns() + 2 * HOUR_NS, SB_RELAXED);
  const struct {
    sb_put_options o;
    bool rings;
  } puts[] = {{{.ttl_ns = HOUR_NS}, true},
              {{.ttl_ns = 0}, false},
              {{.delay_ns = HOUR_NS}, true},
              {{.ttl_ns = 3 * HOUR_NS}, false},
              {{.delay_ns = HOUR_NS, .ttl_ns = 3 * HOUR_NS}, true},
              {{.ttl_ns = 0}, false},
              {{.delay_ns = 3 * HOUR_NS}, false}};
  for (unsigned i = 0; i < sizeof puts / sizeof puts[0]; i++) {
    uint32_t armed = sb_wake_arm(wake);
    expect_is(sb_queue_put_with(q, BODY, BYTES, &puts[i].o), SB_OK, "the status");
    expect((SB_LOAD(wake, SB_RELAXED) != armed) == puts[i].rings, "the housekeeper is%s rung by put %u",
           puts[i].rings ? " not" : "", i);
  }
  expect_is(counted(q, SB_COUNT_SCHEDULED), 3, "how many are not due yet");
}

/* ---- memory ---- */

/* A plain put takes nothing of the reserve: no slot for its body, and no page for its place in the queue. */
static void a_put_leaves_the_reserve(void) {
  q = make_queue("q", FREE_SETTINGS);
  leave_chunks(sb_reserve_chunks(t.b));
  note_rest(q);
  expect_is(put_one_of(BYTES), SB_NO_MEMORY, "the status without a slot");
  expect_rest("a put without a slot");
}
static void no_page(uint64_t length, const char *what) {
  char *body = untouched(length);
  q = make_queue("q", (sb_settings){{-1, 10, -1, 0, -1, -1}, 0});
  sb_queue *other = make_queue("other", FREE_SETTINGS);
  expect_is(sb_queue_put(other, body, length), SB_OK, "the status of a put into the other queue");
  leave_chunks(sb_reserve_chunks(t.b));
  take_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  uint32_t node = wait_at(q, FOR_ROOM, BYTES);
  take_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  note_rest(q);
  expect_is(sb_queue_put(q, body, length), SB_NO_MEMORY, what);
  expect_is(q->shm->admitted - q->base, 0, "the number of places taken");
  expect_room_told(node, what);
  expect_rest(what);
}
static void no_page_for_a_message(void) { no_page(BYTES, "the status of a short body without a page"); }
static void no_page_for_a_long_message(void) { no_page(UNLOCKED, "the status of a long body without a page"); }

/* ---- what happens while the body is copied ---- */

static char *body;
static unsigned locked, busy, use;

static void look(void) {
  locked = SB_LOAD(&t.c->lock, SB_RELAXED);
  busy = q->busy;
  use = t.c->use;
}
static void put_and_look(uint64_t length) {
  at_touch(body, look);
  expect_is(sb_queue_put(q, body, length), SB_OK, "the status");
}
/* A long body is copied without the lock; the handle is busy, so that it is not left, and others take memory as they like. */
static void the_lock_while_a_body_is_copied(void) {
  body = untouched(UNLOCKED);
  q = make_queue("q", FREE_SETTINGS);
  note_rest(q);
  put_and_look(SB_UNLOCKED_COPY);
  expect(touches == 1 && locked == 1 && busy == 0, "the lock was dropped for a short body");
  put_and_look(UNLOCKED);
  expect(touches == 2 && locked == 0 && busy == 1, "the lock was held for a long body");
  expect_is(use, SB_USE_DRAIN, "the use of memory meanwhile");
  expect_rest("a put of a long body");
}
static void look_at_ledger_later(void) { at_touch(q->ledger, look); }
static void the_lock_after_a_body_was_copied(void) {
  body = untouched(UNLOCKED);
  q = make_queue("q", FREE_SETTINGS);
  at_touch(body, look_at_ledger_later);
  expect_is(sb_queue_put(q, body, UNLOCKED), SB_OK, "the status");
  expect(touches == 2 && locked == 1, "the message was published without the lock");
  expect_is(busy, 0, "how busy the queue was");
}
static void close_connection(void) { (void)sb_connection_close(t.c); }
static void closed_while_a_body_is_copied(void) {
  body = untouched(UNLOCKED);
  q = make_queue("q", (sb_settings){{-1, 10, -1, 0, -1, -1}, 0});
  uint32_t node = wait_at(q, FOR_ROOM, BYTES);
  note_rest(q);
  at_touch(body, close_connection);
  expect_is(sb_queue_put(q, body, UNLOCKED), SB_CLOSED, "the status");
  expect_is(added(), 0, "the number of messages");
  expect_is(q->shm->admitted - q->base, 0, "the number of places taken");
  expect_room_told(node, "a put whose connection was closed");
  expect_calm("a put whose connection was closed");
}
/* The next one finds the connection closed. */
static void closed_between_two_puts(void) {
  body = untouched(UNLOCKED);
  const sb_piece pieces[] = {{body, UNLOCKED}, {BODY, BYTES}};
  sb_status status;
  q = make_queue("q", FREE_SETTINGS);
  note_rest(q);
  at_touch(body, close_connection);
  expect_is(sb_queue_put_many(q, pieces, 2, &NONE, &status), 0, "how many went");
  expect_is(status, SB_CLOSED, "the status");
  expect_is(added(), 0, "the number of messages");
  expect_calm("puts whose connection was closed");
}

/* ---- bodies in parts ---- */

#define SCATTERED (3 * UNLOCKED)
/* Only short slots are free. */
static void only_short_slots(void) {
  body = untouched(SCATTERED);
  q = make_queue("q", (sb_settings){{-1, 10, -1, 0, -1, -1}, 0});
  expect_is(put_one_of(BYTES), SB_OK, "the status of a short body");
  leave_chunks(0);
  note_rest(q);
}
static void a_body_in_parts(void) {
  only_short_slots();
  for (size_t i = 0; i < SCATTERED; i++) body[i] = (char)(i % 251);
  expect_is(sb_queue_put(q, body, SCATTERED), SB_OK, "the status");
  expect_rest("a put in parts");
  (void)get_next();
  expect(sb_queue_get(q, record, false) > 0 && as_record()->body_address == SB_IN_PARTS, "it does not lie in parts");
  char copy[SCATTERED];
  uint64_t view;
  expect_is(sb_view_begin(t.c, as_record()->tag, as_record()->sequence, SB_IN_PARTS, &view), SB_OK, "a view's status");
  expect_is(sb_view_copy(t.c, view, copy, SCATTERED), SB_OK, "the status of a copy");
  expect(memcmp(copy, body, SCATTERED) == 0, "the body is another one");
}
/* The slot that the put has taken. */
static uint32_t slot_taken(void) {
  for (uint32_t i = SB_HOLDINGS_FIRST; i < SB_HOLDINGS_PER_CHUNK; i++) {
    uint64_t what = SB_LOAD(&((sb_holdings_shm *)sb_slot_at(t.b, t.c->shm->holdings))->entries[i].what, SB_RELAXED);
    uint32_t slot = sb_holding_slot(what);
    if (sb_holding_kind(what) == SB_HOLD_SLOT && sb_slot_in_parts(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)))
      return slot;
  }
  die("no head is held", 0);
}
static void break_them(void) { break_parts(slot_taken()); }
static void parts_that_break(void) {
  only_short_slots();
  uint32_t node = wait_at(q, FOR_ROOM, BYTES);
  note_rest(q);
  at_touch(body, break_them);
  expect_is(sb_queue_put(q, body, SCATTERED), SB_CORRUPT, "the status");
  expect_is(added(), 1, "the number of messages");
  expect_is(q->shm->admitted - q->base, 1, "the number of places taken");
  expect_room_told(node, "a put whose parts break");
  expect_rest("a put whose parts break");
}
static void break_and_close(void) {
  break_them();
  close_connection();
}
static void parts_that_break_while_it_closes(void) {
  only_short_slots();
  at_touch(body, break_and_close);
  expect_is(sb_queue_put(q, body, SCATTERED), SB_CORRUPT, "the status");
  expect_calm("a put whose parts break while its connection is closed");
}

/* ---- waiting for room ---- */

static void a_wait_for_room(void) {
  q = make_queue("q", (sb_settings){{-1, 1, -1, 0, -1, -1}, 0});
  note_rest(q);
  expect_is(sb_queue_wait_for_room(q, false, BYTES, 1), SB_OK, "the status where there is room");
  SB_STORE(&t.b->header->closing, 1u, SB_RELAXED);
  expect_is(sb_queue_wait_for_room(q, false, BYTES, 1), SB_STOPPING, "the status of a broker that stops");
  SB_STORE(&t.b->header->closing, 0u, SB_RELAXED);
  expect_is(put_one_of(BYTES), SB_OK, "the status of a put");
  expect_is(sb_queue_wait_for_room(q, false, BYTES, 1), SB_TIMEOUT, "the status when it took too long");
  expect_is(sb_queue_wait_for_room(q, true, BYTES, 1), SB_TIMEOUT,
            "the status of a wait for memory that took too long");
  expect_rest("a wait");
}

static const test_case CASES[] = {
    {"api_put: delayed", "a put of a delayed message tells a producer that waits for room",
     a_delayed_put_tells_a_producer},
    {"api_put: queue closed", "nothing is put into a queue that is closed", a_closed_queue_is_refused},
    {"api_put: closed", "a closed connection puts nothing", a_closed_connection_is_refused},
    {"api_put: body", "a body that is too long is refused whatever the limits say", too_long_a_body},
    {"api_put: front", "a front that is too long is refused, and so is one without memory", too_long_a_front},
    {"api_put: limit", "a put beyond the limit is refused", a_limit_refuses},
    {"api_put: dropped", "a put beyond the limit is counted where new messages are dropped", a_limit_drops},
    {"api_put: lifetime", "of two lifetimes the shorter one counts", the_shorter_lifetime_counts},
    {"api_put: no lifetime", "a lifetime that is being removed ends no message", a_lifetime_that_is_being_removed},
    {"api_put: several", "the first put that fails ends several", several_messages},
    {"api_put: rows", "rows of columns are put with their texts", rows_of_columns},
    {"api_put: told", "a consumer that waits is told of a message", a_consumer_is_told},
    {"api_put: housekeeper", "the housekeeper is told of a timer that is earlier", the_housekeeper_is_told},
    {"api_put: reserve", "a plain put takes no slot of the reserve", a_put_leaves_the_reserve},
    {"api_put: no page", "a put without a page leaves nothing", no_page_for_a_message},
    {"api_put: no page, long", "a long put without a page leaves nothing", no_page_for_a_long_message},
    {"api_put: lock", "a long body is copied without the lock", the_lock_while_a_body_is_copied},
    {"api_put: lock again", "what was copied is published with the lock", the_lock_after_a_body_was_copied},
    {"api_put: closed meanwhile", "what was copied is not put when it closed meanwhile", closed_while_a_body_is_copied},
    {"api_put: closed between", "after the connection closed no more of several are put", closed_between_two_puts},
    {"api_put: parts", "a body is put in parts where only short slots are free", a_body_in_parts},
    {"api_put: broken parts", "a body whose parts break is not put", parts_that_break},
    {"api_put: broken, closed", "parts that break are told of a closed one too", parts_that_break_while_it_closes},
    {"api_put: wait", "a wait for room ends with room, or at its deadline", a_wait_for_room},
};
SUBJECT(CASES)
