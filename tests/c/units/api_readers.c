// SPDX-License-Identifier: Apache-2.0
/* sb_api_readers: reads of a body by an actor that knows its place and does not hold its message. */
#include <string.h>

#include "calls.h"
#include "sb_api.h"
#include "surroundings.h"

#define LONG (SB_INLINE_BODY + 8u)

static sb_queue *q;
static sb_place place;
static uint64_t view, address;
static char copy[LONG];

static void begin(void) {
  char record[256];
  uint64_t position = 0;
  const sb_put_options none = {0};
  q = make_queue("q", UNLIMITED);
  expect_is(put_sized(&t, q, 5, LONG, &none), SB_OK, "the status of a put");
  expect(sb_queue_browse_place(q, &position, record, sizeof record, &place) > 0, "there is no message");
  note_rest(q);
}
static void a_body_is_read(void) {
  begin();
  expect_is(sb_place_begin_view(t.c, &place, &view, &address), SB_OK, "the status");
  expect_is(id_at((const char *)(uintptr_t)address, LONG), 5, "the body");
  expect_is(sb_slot_state(SB_LOAD(sb_slot_header(t.b, place.slot), SB_RELAXED)), SB_SLOT_READ, "the slot");
  expect(!sb_view_end(t.c, view), "the connection seems to be closed");
  expect_is(sb_place_copy_body(t.c, &place, copy), SB_OK, "the status of a copy");
  expect_is(id_at(copy, LONG), 5, "the copy");
  expect_rest("a body that was read");
}
/* What the place says must be true: else there is no view. */
static void another_body(void) {
  begin();
  sb_message_shm *m = sb_slot_at(t.b, place.slot);
  place.length--;
  expect_is(sb_place_begin_view(t.c, &place, &view, &address), SB_SETTLED, "the status of another length");
  expect_is(sb_place_copy_body(t.c, &place, copy), SB_SETTLED, "the status of a copy of another length");
  place.length++;
  m->key_length = SB_MAX_PREFIX;
  expect_is(sb_place_begin_view(t.c, &place, &view, &address), SB_SETTLED, "the status of a damaged message");
  m->key_length = 0;
  place.generation++;
  expect_is(sb_place_begin_view(t.c, &place, &view, &address), SB_SETTLED, "the status of another message");
  place.generation--;
  expect_rest("bodies that could not be read");
  expect_is(sb_place_begin_view(t.c, &place, &view, &address), SB_OK, "the status at last");
}
static void readers_that_are_refused(void) {
  begin();
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_place_begin_view(t.c, &place, &view, &address), REFUSAL[i], "the status");
    expect_is(sb_place_copy_body(t.c, &place, copy), REFUSAL[i], "the status of a copy");
    expect_untouched(t.c, "a reader that is refused");
  }
  expect_is(copy[0], 0, "what was copied");
}

static const test_case CASES[] = {
    {"api_readers: read", "a body is read in place, or copied", a_body_is_read},
    {"api_readers: another", "what is not the body of that place is not read", another_body},
    {"api_readers: refused", "a connection that cannot be used reads nothing", readers_that_are_refused},
};
SUBJECT(CASES)
