// SPDX-License-Identifier: Apache-2.0
/* sb_api_put: reservations, whose body the caller writes in place, or in private memory if it is stored in parts; their
 * copies, and the ends of both. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "meanwhile.h"
#include "queues.h"
#include "sb_api.h"
#include "surroundings.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define TEN ((sb_settings){{-1, 10, -1, 0, -1, -1}, 0})
#define BYTES 64u
#define SCATTERED (UINT64_C(3) << 16)
#define PROPERTIES 20000u /* what is freed of that size malloc does not keep aside */

static char record[BUFFER];
static const sb_put_options NONE;
static sb_queue *q;
static sb_reservation r, copy;
static uint32_t producer; /* that waits for room in the queue */

static const sb_record *as_record(void) { return (const sb_record *)(const void *)record; }
static sb_message_shm *message_of(const sb_reservation *of) { return sb_slot_at(t.b, of->slot); }
static uint64_t header_of(const sb_reservation *of) { return SB_LOAD(sb_slot_header(t.b, of->slot), SB_RELAXED); }
static bool is_free(const sb_reservation *of) { return sb_slot_state(header_of(of)) == SB_SLOT_FREE; }
static uint64_t admitted(void) { return q->shm->admitted - q->base; }
static void make(sb_settings settings) {
  q = make_queue("q", settings);
  producer = wait_at(q, FOR_ROOM, BYTES);
  note_rest(q);
}
/* Only short slots are free. */
static void make_with_short_slots(void) {
  make(TEN);
  expect_is(sb_queue_put(q, record, BYTES), SB_OK, "the status of a short body");
  leave_chunks(0);
  note_rest(q);
}
static void reserve(uint64_t length, const sb_put_options *o) {
  expect_is(sb_reservation_begin(q, length, o, &r), SB_OK, "the status of a reservation");
}
static void expect_reserved(const sb_reservation *of, const char *what) {
  expect(of->admitted && of->kept, "%s has no place, or no slot", what);
  expect_is(sb_slot_state(header_of(of)), SB_SLOT_ALLOC, what);
  expect(q->busy == 1, "%s: the queue is busy %u times, not once", what, q->busy);
  expect(t.c->lock == 0 && t.c->use == SB_USE_DRAIN, "%s: the connection is not at rest", what);
}
static void abandon(sb_reservation *of) { sb_reservation_abandon(q, of, false); }

/* ---- a body that is written in place ---- */

static void a_reservation_is_committed(void) {
  const sb_put_options o = {.key = "key", .key_length = 3};
  make(TEN);
  reserve(BYTES, &o);
  expect_reserved(&r, "the reservation");
  expect(!r.scattered && r.size == BYTES, "it has another size");
  expect_is(counted(q, SB_COUNT_ADDED), 0, "the number of messages before");
  memcpy(r.body, "a body", 7);
  expect_is(sb_reservation_publish(q, &r), SB_OK, "the status");
  expect(!r.admitted && !r.kept && r.body == NULL, "it has its place or its slot still");
  expect_is(counted(q, SB_COUNT_ADDED), 1, "the number of messages");
  expect_rest("a commit");
  expect_is(sb_reservation_publish(q, &r), SB_INVALID, "the status of a second commit");
  expect_is(counted(q, SB_COUNT_ADDED), 1, "the number of messages after a second commit");
  abandon(&r);
  expect_rest("what came after a commit");
  expect_is(admitted(), 1, "the number of places taken");
  expect_is(sb_queue_get(q, record, true), sizeof(sb_record) + 3 + BYTES, "the length of the message");
  expect(memcmp(record + sizeof(sb_record), "keya body", 10) == 0, "it is another message");
}
static void a_reservation_is_abandoned(void) {
  make(TEN);
  uint32_t memory = wait_at(q, FOR_MEMORY, BYTES);
  note_rest(q);
  reserve(BYTES, &NONE);
  expect_is(admitted(), 1, "the number of places taken");
  abandon(&r);
  expect(!r.admitted && !r.kept && r.body == NULL, "it has its place or its slot still");
  expect(is_free(&r), "its slot was not freed");
  expect_is(admitted(), 0, "the number of places taken");
  expect(was_told(producer), "a producer that waits for room is not told");
  expect(was_told(memory), "a producer that waits for memory is not told");
  expect_rest("an abandoned reservation");
  abandon(&r);
  expect_is(admitted(), 0, "the number of places taken, after it was abandoned twice");
  expect_rest("a reservation that was abandoned twice");
  expect_is(sb_reservation_publish(q, &r), SB_INVALID, "the status of a commit");
  uint64_t one, another;
  expect(sb_holding_take(t.c, &one) == SB_OK && sb_holding_take(t.c, &another) == SB_OK, "there is no holding");
  expect(one != another, "a holding was given back twice");
}
/* A view may still write into it: the slot stays until the view ends. */
static void the_view_of_an_abandoned_one(void) {
  make(TEN);
  uint32_t memory = wait_at(q, FOR_MEMORY, BYTES);
  note_rest(q);
  reserve(BYTES, &NONE);
  sb_reservation_abandon(q, &r, true);
  expect(!r.admitted && r.kept && !is_free(&r), "its place is taken, or its slot is not");
  expect_is(q->busy, 0, "how busy the queue is");
  expect_is(admitted(), 0, "the number of places taken");
  expect_is(sb_reservation_publish(q, &r), SB_INVALID, "the status of a commit");
  expect(was_told(producer) && was_told(memory), "a producer is not told of the place");
  sb_reservation_end_view(t.c, &r);
  expect(!r.kept && r.body == NULL && is_free(&r), "its slot was not freed");
  expect(was_told(memory), "a producer that waits for memory is not told");
  expect(!was_told(producer), "a producer is told of room that was there before");
  expect_rest("a view that ended");
  sb_reservation_end_view(t.c, &r);
  expect_rest("a view that ended twice");
}
static void a_place_without_a_slot(void) {
  make(TEN);
  reserve(BYTES, &NONE);
  r.kept = false;
  expect_is(sb_reservation_publish(q, &r), SB_INVALID, "the status");
  expect_is(counted(q, SB_COUNT_ADDED), 0, "the number of messages");
  r.kept = true;
  abandon(&r);
  expect_rest("a reservation that was abandoned");
}
static void reservations_that_are_refused(void) {
  make(TEN);
  mark_closed(q);
  expect_is(sb_reservation_begin(q, BYTES, &NONE, &r), SB_DELETED, "the status of a closed queue");
  expect(!r.admitted && !r.kept, "what was refused has a place or a slot");
  expect_calm("a reservation in a closed queue");
  SB_STORE(&q->shm->state, q->state, SB_RELAXED);
  reserve(BYTES, &NONE);
  mark_closed(q);
  expect_is(sb_reservation_publish(q, &r), SB_OK, "the status of a commit before the queue's last cell is closed");
  SB_STORE(&t.c->closed, 1u, SB_RELAXED);
  sb_reservation other = r;
  expect_is(sb_reservation_begin(q, BYTES, &NONE, &other), SB_CLOSED, "the status of a closed connection");
  expect(other.token == r.token && other.slot == r.slot, "a closed connection has reserved");
  r.admitted = r.kept = true;
  expect_is(sb_reservation_publish(q, &r), SB_CLOSED, "the status of a commit of a closed connection");
  r.admitted = r.kept = false;
  expect_is(sb_reservation_publish(q, &r), SB_CLOSED, "the status of a second commit of a closed connection");
  expect_is(counted(q, SB_COUNT_ADDED), 1, "the number of messages");
}

/* ---- memory ---- */

/* Neither its slot nor a page for its place is taken out of the reserve. */
static void reservations_leave_the_reserve(void) {
  make(TEN);
  leave_chunks(sb_reserve_chunks(t.b));
  note_rest(q);
  expect_is(sb_reservation_begin(q, BYTES, &NONE, &r), SB_NO_MEMORY, "the status without a slot");
  expect(was_told(producer), "a producer that waits for room is not told");
  expect_rest("a reservation without a slot");
}
static void no_page_for_a_reservation(void) {
  sb_queue *other = make_queue("other", FREE_SETTINGS);
  expect_is(sb_queue_put(other, record, BYTES), SB_OK, "the status of a put into another queue");
  make(TEN);
  leave_chunks(sb_reserve_chunks(t.b));
  take_slots(sb_class_of_kind(t.b, SB_KIND_LEAF));
  note_rest(q);
  reserve(BYTES, &NONE);
  expect_is(sb_reservation_publish(q, &r), SB_NO_MEMORY, "the status of a commit without a page");
  expect_reserved(&r, "what could not be committed");
  abandon(&r);
  expect_rest("a reservation that could not be committed");
}

/* ---- while it holds the lock ---- */

static unsigned locked;
static void look(void) { locked = SB_LOAD(&t.c->lock, SB_RELAXED); }
static void the_lock_of_an_end(void) {
  make(TEN);
  reserve(BYTES, &NONE);
  at_touch(q->ledger, look);
  abandon(&r);
  expect(touches == 1 && locked == 1, "it was abandoned without the lock");
  reserve(BYTES, &NONE);
  sb_reservation_abandon(q, &r, true);
  at_touch(sb_holding_at(t.b, r.token), look);
  locked = 0;
  sb_reservation_end_view(t.c, &r);
  expect(touches == 2 && locked == 1, "its view ended without the lock");
  expect_rest("two reservations");
}
static bool changes_nothing(void) {
  sb_reservation before = r;
  abandon(&r);
  sb_reservation_end_view(t.c, &r);
  return memcmp(&r, &before, sizeof r) == 0 && !is_free(&r) && q->busy == 1 &&
         sb_queue_wait_for_room(q, false, BYTES, 1) == SB_FORKED;
}
static void a_forked_child_changes_nothing(void) {
  int status;
  make(TEN);
  reserve(BYTES, &NONE);
  pid_t pid = fork();
  if (pid == 0) _exit(changes_nothing() ? 0 : 1);
  (void)waitpid(pid, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child that was forked has changed something");
  expect_reserved(&r, "the reservation of its parent");
}
/* Its connection was closed and forgotten meanwhile: the queue's hints are the reaper's. */
static void one_without_a_ledger(void) {
  make(TEN);
  reserve(BYTES, &NONE);
  sb_ledger_shm *ledger = q->ledger;
  q->ledger = NULL;
  abandon(&r);
  expect_is(admitted(), 1, "the number of places taken");
  expect_is(ledger->hinting & SB_HINTING_DEPTH, 1, "how many change hints");
  expect(!r.admitted && !r.kept && is_free(&r), "it has its place or its slot still");
  expect_is(q->busy, 0, "how busy the queue is");
}

/* ---- bodies in parts ---- */

static void write_body(const sb_reservation *of) {
  for (uint64_t i = 0; i < of->size; i++) ((char *)of->body)[i] = (char)(i % 251);
}
static void expect_body_in_parts(void) {
  uint64_t view;
  char *is = calloc(1, SCATTERED), *should = calloc(1, SCATTERED);
  expect(sb_queue_get(q, record, true) > 0, "the message before it is gone");
  expect(sb_queue_get(q, record, false) > 0 && as_record()->body_address == SB_IN_PARTS, "it does not lie in parts");
  expect_is(sb_view_begin(t.c, as_record()->tag, as_record()->sequence, SB_IN_PARTS, &view), SB_OK, "a view's status");
  expect_is(sb_view_copy(t.c, view, is, SCATTERED), SB_OK, "the status of a copy");
  write_body(&(sb_reservation){.body = should, .size = SCATTERED});
  expect(memcmp(is, should, SCATTERED) == 0, "the body is another one");
  free(is);
  free(should);
}
/* Its body is private memory until it is committed. */
static void a_reservation_in_parts(void) {
  make_with_short_slots();
  uint64_t used = allocated_bytes();
  reserve(SCATTERED, &NONE);
  expect_reserved(&r, "the reservation");
  expect(r.scattered && r.body != NULL, "it is not in parts, or has no body");
  write_body(&r);
  expect_is(sb_reservation_publish(q, &r), SB_OK, "the status");
  expect_is(allocated_bytes(), used, "the private memory");
  expect_rest("a commit in parts");
  expect_is(sb_reservation_publish(q, &r), SB_INVALID, "the status of a second commit");
  expect_body_in_parts();
}
static void a_reservation_in_parts_is_abandoned(void) {
  make_with_short_slots();
  uint64_t used = allocated_bytes();
  reserve(SCATTERED, &NONE);
  abandon(&r);
  expect(is_free(&r) && r.body == NULL, "it has its slot or its body still");
  expect_is(allocated_bytes(), used, "the private memory");
  expect_rest("an abandoned reservation in parts");
}
static void a_front_in_parts_without_a_body(void) {
  const sb_put_options o = {.properties = record, .properties_length = PROPERTIES};
  make_with_short_slots();
  reserve(0, &o);
  expect(r.scattered && r.body != NULL, "it is not in parts, or has no body");
  expect_is(sb_reservation_copy(q, &r, &copy), SB_OK, "the status of a copy");
  expect_is(sb_reservation_publish(q, &copy), SB_OK, "the status of a commit");
  abandon(&r);
  expect_rest("a front in parts");
}
static void a_reservation_whose_parts_break(void) {
  make_with_short_slots();
  reserve(SCATTERED, &NONE);
  break_parts(r.slot);
  expect_is(sb_reservation_publish(q, &r), SB_CORRUPT, "the status");
  expect_reserved(&r, "what could not be committed");
  expect_is(sb_reservation_copy(q, &r, &copy), SB_OK, "the status of a copy whose names are in the first part");
  abandon(&r);
  expect_is(sb_reservation_publish(q, &copy), SB_OK, "the status of the copy");
  expect_rest("a reservation whose parts broke");
}

/* ---- copies ---- */

/* The copy takes its place in the queue; the slot stays until the view of it ends. */
static void expect_copied(const sb_put_options *o) {
  sb_message_shm from = *message_of(&r), to = *message_of(&copy);
  expect(!r.admitted && r.kept && copy.admitted && copy.kept, "the copy has no place, or no slot");
  expect(copy.slot != r.slot && copy.token != r.token && copy.size == r.size, "it is no copy");
  expect(memcmp(copy.body, r.body, r.size) == 0, "it has another body");
  to.body_offset = from.body_offset;
  to.flags = from.flags;
  expect(memcmp(&from, &to, sizeof to) == 0, "it has another header");
  expect(memcmp(message_of(&copy) + 1, o->exchange, o->exchange_length) == 0, "it has another exchange");
  expect(q->busy == 1 && t.c->lock == 0 && t.c->use == SB_USE_DRAIN, "the copy leaves something");
}
static const sb_put_options NAMED = {.ttl_ns = UINT64_C(1) << 50,
                                     .delay_ns = UINT64_C(1) << 49,
                                     .priority = 7,
                                     .exchange = "exchange",
                                     .exchange_length = 8,
                                     .key = "key",
                                     .key_length = 3,
                                     .properties = record,
                                     .properties_length = PROPERTIES};
static void a_copy_of_a_reservation(void) {
  make(TEN);
  reserve(BYTES, &NAMED);
  write_body(&r);
  message_of(&r)->timestamp_ns = 5; /* whatever clock there is: the time is copied, too */
  uint64_t used = allocated_bytes();
  expect_is(sb_reservation_copy(q, &r, &copy), SB_OK, "the status");
  expect_is(allocated_bytes(), used, "the private memory");
  expect_copied(&NAMED);
  expect(memcmp(message_of(&copy) + 1, "exchangekey", 11) == 0, "it has other names");
  expect_is(sb_reservation_publish(q, &r), SB_INVALID, "the status of a commit of what was copied");
  sb_reservation_end_view(t.c, &r);
  abandon(&copy);
  expect_is(admitted(), 0, "the number of places taken");
  expect_rest("a copy that was abandoned");
}
static void a_copy_without_a_body(void) {
  make(TEN);
  reserve(0, &NONE);
  expect_is(sb_reservation_copy(q, &r, &copy), SB_OK, "the status");
  expect_is(sb_reservation_publish(q, &copy), SB_OK, "the status of a commit");
  sb_reservation_end_view(t.c, &r);
  expect_rest("a copy without a body");
}
static void a_copy_of_one_in_parts(void) {
  make_with_short_slots();
  uint64_t used = allocated_bytes();
  reserve(SCATTERED, &NAMED);
  write_body(&r);
  expect_is(sb_reservation_copy(q, &r, &copy), SB_OK, "the status");
  expect(copy.scattered && copy.body != r.body, "it does not lie in parts, or has the same body");
  message_of(&copy)->due_ns = 0; /* so that it can be taken */
  sb_reservation_end_view(t.c, &r);
  expect_is(sb_reservation_publish(q, &copy), SB_OK, "the status of a commit");
  expect_is(allocated_bytes(), used, "the private memory");
  expect_body_in_parts();
  expect(memcmp(record + sizeof(sb_record), "exchangekey", 11) == 0, "it has other names");
}
static void expect_no_copy(sb_status should, const char *what) {
  copy = (sb_reservation){0};
  uint64_t used = allocated_bytes();
  expect_is(sb_reservation_copy(q, &r, &copy), should, what);
  expect(r.admitted && r.kept, "%s: what was to be copied lost its place", what);
  expect(!copy.admitted && !copy.kept, "%s: the copy has a place, or a slot", what);
  expect(q->busy == 1 && t.c->lock == 0 && t.c->use == SB_USE_DRAIN, "%s: something is left", what);
  expect_is(allocated_bytes(), used, what);
}
static void no_copy(void) {
  make(TEN);
  reserve(BYTES, &NAMED);
  SB_STORE(&t.c->closed, 1u, SB_RELAXED);
  expect_no_copy(SB_CLOSED, "the status of a closed connection");
  SB_STORE(&t.c->closed, 0u, SB_RELAXED);
  leave_chunks(sb_reserve_chunks(t.b));
  take_slots(sb_class_for(t.b, PROPERTIES + 3 * BYTES));
  expect_no_copy(SB_NO_MEMORY, "the status without a slot");
}
static void no_copy_of_broken_parts(void) {
  const sb_put_options o = {.properties = record, .properties_length = PROPERTIES};
  make_with_short_slots();
  reserve(SCATTERED, &o);
  break_parts(r.slot);
  expect_no_copy(SB_CORRUPT, "the status of parts that broke");
}

/* ---- the process has no memory ---- */

static const sb_put_options LONG_NAMES = {.properties = record, .properties_length = PROPERTIES};
static void reserve_in_vain(void) {
  expect_is(sb_reservation_begin(q, SCATTERED, &LONG_NAMES, &r), SB_SYSTEM, "the status of a reservation");
  expect(!r.admitted && !r.kept, "it has a place, or a slot");
  expect(was_told(producer), "a producer that waits for room is not told");
}
static void copy_in_vain(void) { expect_no_copy(SB_SYSTEM, "the status of a copy without memory for its names"); }
/* There is memory for the names, and not for the body. */
static void *names;
static void copy_names_in_vain(void) {
  free(names);
  expect_no_copy(SB_SYSTEM, "the status of a copy without memory for its body");
}
static void no_memory_of_the_process(void) {
  make_with_short_slots();
  without_memory(reserve_in_vain);
  abandon(&r);
  expect_is(admitted(), 1, "the number of places taken");
  expect_rest("a reservation without memory of the process");
  reserve(SCATTERED, &LONG_NAMES);
  uint64_t in_use = sb_slab_used(t.b);
  without_memory(copy_in_vain);
  names = malloc(2 * PROPERTIES);
  without_memory(copy_names_in_vain);
  expect_is(sb_slab_used(t.b), in_use, "the memory of the broker");
  abandon(&r);
  expect_rest("copies without memory of the process");
}
/* ---- the last cell of a leaf ---- */

/* Another producer takes it. It counts the message with a delay as taken, so it evicts nothing. Then there is no memory
 * for the next leaf. */
static test_broker another;
static sb_queue *its;
static void another_puts(void) { (void)put(&another, its, 9); }
static void begin_to_lose_the_last_cell(const char *name) {
  q = queue_named(name, (sb_settings){{SB_PAGE_CELLS - 1, -1, -1, 0, -1, -1}, 0});
  for (uint64_t id = 1; id < SB_PAGE_CELLS; id++) (void)put(&t, q, id);
  another = t;
  another.c = connect_to(&t);
  its = open_queue(&another, name);
  use_all_slots(SB_KIND_INNER);
  meanwhile(cell_at(q, SB_PAGE_CELLS - 1), BEFORE_CAS, 1, another_puts);
}
static void expect_the_bound(sb_status status) {
  if (!has_acted()) return;
  expect_is(status, SB_NO_MEMORY, "the status");
  expect_is(sb_queue_ready(t.b, q->shm), SB_PAGE_CELLS - 1, "how many are ready in the ring");
  expect_is(counted(q, SB_COUNT_REPLACED), 1, "what was replaced");
}
static const sb_put_options LATER = {.delay_ns = UINT64_C(3600000000000)};
static void a_delayed_put_that_loses_the_last_cell(void) {
  begin_to_lose_the_last_cell("q");
  expect_the_bound(sb_queue_put_with(q, record, BYTES, &LATER));
}
static void a_delayed_reservation_that_loses_the_last_cell(void) {
  begin_to_lose_the_last_cell("q");
  reserve(BYTES, &LATER);
  expect_the_bound(sb_reservation_publish(q, &r));
  abandon(&r);
}

static const test_case CASES[] = {
    {"api_put_reserved: committed", "a reservation is committed once", a_reservation_is_committed},
    {"api_put_reserved: abandoned", "an abandoned reservation leaves nothing, and is told of",
     a_reservation_is_abandoned},
    {"api_put_reserved: view", "the slot of an abandoned one stays while it is viewed", the_view_of_an_abandoned_one},
    {"api_put_reserved: no slot", "a place without a slot is not committed", a_place_without_a_slot},
    {"api_put_reserved: refused", "nothing is reserved in what is closed", reservations_that_are_refused},
    {"api_put_reserved: reserve", "a plain reservation takes nothing of the reserve", reservations_leave_the_reserve},
    {"api_put_reserved: no page", "a reservation without a page stays as it is", no_page_for_a_reservation},
    {"api_put_reserved: lock", "a reservation ends with the lock held", the_lock_of_an_end},
    {"api_put_reserved: forked", "a child that was forked ends no reservation", a_forked_child_changes_nothing},
    {"api_put_reserved: no ledger", "without a ledger the hints stay as they are", one_without_a_ledger},
    {"api_put_reserved: parts", "a body in parts is private until it is committed", a_reservation_in_parts},
    {"api_put_reserved: parts, abandoned", "what is abandoned has no parts", a_reservation_in_parts_is_abandoned},
    {"api_put_reserved: front", "a front in parts has a body of no bytes", a_front_in_parts_without_a_body},
    {"api_put_reserved: broken", "parts that broke are not committed", a_reservation_whose_parts_break},
    {"api_put_reserved: copy", "a copy is the same message, and takes the place", a_copy_of_a_reservation},
    {"api_put_reserved: empty copy", "a body of no bytes is copied", a_copy_without_a_body},
    {"api_put_reserved: copy in parts", "a body in parts is copied into parts", a_copy_of_one_in_parts},
    {"api_put_reserved: no copy", "what cannot be copied stays as it is", no_copy},
    {"api_put_reserved: broken names", "names in parts that broke are not copied", no_copy_of_broken_parts},
    {"api_put_reserved: no malloc", "without memory of the process nothing is kept", no_memory_of_the_process},
    {"api_put: delayed, last cell", "a put that fails keeps the bound of its queue",
     a_delayed_put_that_loses_the_last_cell},
    {"api_put: reserved, last cell", "... and so does a reservation", a_delayed_reservation_that_loses_the_last_cell},
};
SUBJECT(CASES)
