// SPDX-License-Identifier: Apache-2.0
/* sb_api_check: directory entries that do not match their queues, the limits of its tables, and the memory of the check
 * itself. */
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calls.h"
#include "heap.h"
#include "sb_check.h"
#include "sb_directory.h"
#include "system.h"

enum { NAME = 3 };        /* SB_BAD_DIRECTORY */
enum { HOUSEKEEPER = 6 }; /* SB_BAD_HEADER */
enum { OVERFLOW = 3 };    /* SB_BAD_QUEUE */
#define ROOM 16u
#define PAGE 4096u

static sb_finding found[ROOM];
static uint32_t count;
static sb_queue *q;

static void begin(void) {
  if (declare(&t, "q", UNLIMITED) != SB_OK) die("declare", 0);
  q = open_queue(&t, "q");
}
static void look(void) {
  memset(found, 0, sizeof found);
  count = sb_broker_check(t.c, found, ROOM);
}
static void expect_sound(const char *what) {
  look();
  expect(count == 0, "%s: %u findings, the first of code %u, which %u", what, count, found[0].code, found[0].which);
}
static void expect_first(unsigned code, unsigned which, const char *what) {
  look();
  expect(count > 0 && found[0].code == code && found[0].which == which,
         "%s: %u findings, the first of code %u, which %u", what, count, found[0].code, found[0].which);
}
static sb_word *entry_of_q(void) {
  for (uint32_t i = 0; i < SB_DIRECTORY_SIZE; i++) {
    uint64_t entry = SB_LOAD(&t.b->directory[i], SB_RELAXED);
    if ((entry & 3) == SB_DIR_LIVE && SB_BITS(entry, 2, 28) == q->slot) return &t.b->directory[i];
  }
  die("entry_of_q", (int)q->slot);
}
static void set_state(unsigned state) { SB_STORE(&q->shm->state, (q->state & ~UINT64_C(3)) | state, SB_RELAXED); }

/* ---- entries and their queues ---- */

static void the_longest_name(void) {
  char name[SB_NAME_MAX + 1];
  memset(name, 'n', SB_NAME_MAX);
  name[SB_NAME_MAX] = 0;
  if (declare(&t, name, UNLIMITED) != SB_OK) die("declare", 0);
  expect_sound("the longest name");
}
/* A sweep that was killed leaves the old entry of a slot that is used again. */
static void an_old_entry_of_a_queue(void) {
  begin();
  expect(SB_LOAD(&t.b->directory[0], SB_RELAXED) == 0, "the first place is taken");
  SB_STORE(&t.b->directory[0], SB_DIR_CLOSED | SB_FIELD(q->slot, 2), SB_RELAXED);
  expect_sound("an old entry");
}
/* One that may end by itself has a name as long as it is open. */
static void a_queue_that_may_end(void) {
  begin();
  SB_STORE(&q->shm->flags, SB_LOAD(&q->shm->flags, SB_RELAXED) | SB_QUEUE_AUTO_DELETE, SB_RELAXED);
  expect_sound("a queue that may end by itself");
  SB_STORE(&q->shm->name_length, 9u, SB_RELAXED);
  expect_first(SB_BAD_DIRECTORY, NAME, "its broken name");
  set_state(SB_QUEUE_CLOSED);
  SB_STORE(&q->shm->settings[SB_SETTING_OVERFLOW], 99u, SB_RELAXED);
  expect_sound("a queue that ended by itself, whose name and settings do not matter");
}
static void settings_of_a_queue(void) {
  begin();
  SB_STORE(&q->shm->settings[SB_SETTING_OVERFLOW], 99u, SB_RELAXED);
  expect_first(SB_BAD_QUEUE, OVERFLOW, "the settings of an open queue");
}
static void a_queue_that_was_deleted(void) {
  begin();
  sb_word *entry = entry_of_q();
  set_state(SB_QUEUE_CLOSED);
  SB_STORE(entry, (SB_LOAD(entry, SB_RELAXED) & ~UINT64_C(3)) | SB_DIR_CLOSED, SB_RELAXED);
  SB_STORE(&t.b->header->queue_count, 0u, SB_RELAXED);
  expect_sound("a queue that was deleted");
  SB_STORE(&q->shm->name_length, 9u, SB_RELAXED);
  SB_STORE(&q->shm->settings[SB_SETTING_OVERFLOW], 99u, SB_RELAXED);
  expect_sound("its name and its settings, which do not matter");
}

/* ---- the ends of tables ---- */

/* A copy that ends where nothing may be read. */
static void *before_a_hole(const void *from, size_t bytes) {
  size_t room = (bytes + PAGE - 1) / PAGE * PAGE;
  char *copy = mmap(NULL, room + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED || mprotect(copy + room, PAGE, PROT_NONE) != 0) die("mmap", 0);
  return memcpy(copy + room - bytes, from, bytes);
}
static void the_end_of_the_directory(void) {
  begin();
  t.b->directory = before_a_hole((const void *)t.b->directory, SB_DIRECTORY_SIZE * sizeof *t.b->directory);
  expect_sound("a directory of which only its entries can be read");
}
static void the_end_of_the_processes(void) {
  begin();
  SB_STORE(&t.b->header->queue_count, 5u, SB_RELAXED); /* a finding, which is to be explained */
  t.b->processes = before_a_hole(t.b->processes, SB_MAX_PROCESSES * sizeof *t.b->processes);
  look();
  expect_is(count, 1, "the findings, if only processes can be read");
}

/* ---- memory ---- */

static void without_memory_for_the_look(void) {
  begin();
  SB_STORE(&t.b->header->housekeeper_waiter, q->slot, SB_RELAXED);
  expect_first(SB_BAD_HEADER, HOUSEKEEPER, "the node of the housekeeper");
  for (unsigned nth = 1; nth <= 3; nth++) {
    fail_allocation(nth);
    expect_first(SB_NOT_CHECKED, 0, "a look without memory");
    expect_is(count, 1, "the findings of a look without memory");
    expect_is(found[0].found, SB_SYSTEM, "why there was no look");
  }
  expect_first(SB_BAD_HEADER, HOUSEKEEPER, "the node of the housekeeper once more");
}
static void a_look_keeps_no_memory(void) {
  begin();
  expect_is(heap_kept_by(look), 0, "the bytes that a look keeps");
}

static const test_case CASES[] = {
    {"api_check_entries: name", "a name may have 255 bytes", the_longest_name},
    {"api_check_entries: old", "an old entry of a slot that is used again is none", an_old_entry_of_a_queue},
    {"api_check_entries: ended", "a queue that ended by itself needs no name", a_queue_that_may_end},
    {"api_check_entries: settings", "the settings of an open queue are looked at", settings_of_a_queue},
    {"api_check_entries: deleted", "a queue that was deleted needs no name", a_queue_that_was_deleted},
    {"api_check_entries: directory", "no entry behind the last is looked at", the_end_of_the_directory},
    {"api_check_entries: processes", "no process behind the last is looked at", the_end_of_the_processes},
    {"api_check_entries: memory", "without memory nothing is said to be sound", without_memory_for_the_look},
    {"api_check_entries: kept", "a look gives its memory back", a_look_keeps_no_memory},
};
SUBJECT(CASES)
