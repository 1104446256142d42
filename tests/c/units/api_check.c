// SPDX-License-Identifier: Apache-2.0
/* sb_api_check: findings of the doctor in the header and the directory. The broker has two queues. A case damages one
 * word, and restores it. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "sb_directory.h"
#include "sb_queue.h"
#include "sb_slab.h"

enum { MAGIC, LAYOUT, LIMITS, SEGMENTS, MAPPING, QUEUES, HOUSEKEEPER };
enum { NO_QUEUE, TWICE, CLOSED_QUEUE, NAME, LOST };
#define ROOM 16u

static sb_finding found[ROOM];
static uint32_t count;
static sb_queue *q;
static uint32_t other; /* the slot of the other queue */

static void begin(void) {
  if (declare(&t, "q", (sb_settings)FREELY) != SB_OK || declare(&t, "other", (sb_settings)FREELY) != SB_OK)
    die("declare", 0);
  q = open_queue(&t, "q");
  other = sb_directory_find(t.b, "other", 5);
}
static void look(void) {
  memset(found, 0, sizeof found);
  count = sb_broker_check(t.c, found, ROOM);
}
static void expect_sound(const char *what) {
  look();
  if (count > 0)
    complain("%s: %u findings, the first of code %u, slot %u, which %u", what, count, found[0].code, found[0].slot,
             found[0].which);
}
/* Just one finding; others may follow from it if `first` is set. */
static void expect_finding(sb_finding should, bool first, const char *what) {
  look();
  expect(first ? count > 0 : count == 1, "%s: %u findings", what, count);
  const sb_finding *is = &found[0];
  expect(is->code == should.code && is->which == should.which, "%s: code %u, which %u", what, is->code, is->which);
  expect_is(is->queue, should.queue, what);
  expect_is(is->slot, should.slot, what);
  expect_is(is->where, should.where, what);
  expect_is(is->found, should.found, what);
  expect_is(is->expected, should.expected, what);
}
static void expect_header(unsigned which, uint64_t where, uint64_t is, uint64_t should, const char *what) {
  expect_finding((sb_finding){SB_BAD_HEADER, 0, 0, which, 0, where, is, should}, false, what);
}

/* ---- the header ---- */

static void damaged_headers(void) {
  begin();
  sb_header_shm *h = t.b->header;
  expect_sound("a broker");
  uint64_t hash = h->layout_hash, limit = h->memory_limit;
  SB_STORE(&h->magic, 5, SB_RELAXED);
  expect_header(MAGIC, 0, 5, SB_MAGIC, "another magic");
  SB_STORE(&h->magic, SB_MAGIC, SB_RELAXED);
  SB_STORE(&h->layout_hash, hash + 1, SB_RELAXED);
  expect_header(LAYOUT, 0, hash + 1, hash, "another layout");
  SB_STORE(&h->layout_hash, hash, SB_RELAXED);
  SB_STORE(&h->layout_major, SB_LAYOUT_MAJOR + 1, SB_RELAXED);
  expect_header(LAYOUT, 0, SB_LAYOUT_MAJOR + 1, SB_LAYOUT_MAJOR, "another version");
  SB_STORE(&h->layout_major, SB_LAYOUT_MAJOR, SB_RELAXED);
  SB_STORE(&h->memory_limit, limit + 1, SB_RELAXED);
  expect_header(LIMITS, 0, limit + 1, limit, "another limit of bytes");
  SB_STORE(&h->memory_limit, limit, SB_RELAXED);
  SB_STORE(&h->chunk_limit, BROKER_CHUNKS + 1, SB_RELAXED);
  SB_STORE(&h->memory_limit, limit + SB_CHUNK_BYTES, SB_RELAXED);
  expect_header(LIMITS, 0, limit + SB_CHUNK_BYTES, limit, "another limit of chunks");
  SB_STORE(&h->chunk_limit, BROKER_CHUNKS, SB_RELAXED);
  SB_STORE(&h->memory_limit, limit, SB_RELAXED);
  SB_STORE(&h->chunks_per_segment, CHUNKS_PER_SEGMENT + 1, SB_RELAXED);
  expect_header(LIMITS, 1, CHUNKS_PER_SEGMENT + 1, CHUNKS_PER_SEGMENT, "segments of another size");
  SB_STORE(&h->chunks_per_segment, CHUNKS_PER_SEGMENT, SB_RELAXED);
  expect_sound("what was put right");
}
/* As many segments as the limit needs, and not fewer than are mapped. */
static void segments_that_cannot_be(void) {
  begin();
  sb_header_shm *h = t.b->header;
  uint32_t most = BROKER_CHUNKS / CHUNKS_PER_SEGMENT, mapped = t.b->mapped_segments;
  SB_STORE(&h->segments, mapped - 1, SB_RELAXED);
  expect_header(SEGMENTS, 0, mapped - 1, most, "fewer segments than are mapped");
  SB_STORE(&h->segments, most + 1, SB_RELAXED);
  expect_header(SEGMENTS, 0, most + 1, most, "more segments than there may be");
  SB_STORE(&h->segments, mapped + 1, SB_RELAXED);
  look();
  expect(count == 1 && found[0].code == SB_BAD_HEADER && found[0].which == MAPPING,
         "a segment that was not made is there");
  expect_is(found[0].where, mapped + 1, "which segment");
  SB_STORE(&h->segments, mapped, SB_RELAXED);
  grow_to(BROKER_CHUNKS - 1);
  expect_sound("all segments");
}
static void the_last_segment_is_shorter(void) {
  begin();
  sb_header_shm *h = t.b->header;
  t.b->chunk_limit = 2 * CHUNKS_PER_SEGMENT + 1;
  SB_STORE(&h->chunk_limit, t.b->chunk_limit, SB_RELAXED);
  SB_STORE(&h->memory_limit, t.b->chunk_limit * SB_CHUNK_BYTES, SB_RELAXED);
  SB_STORE(&h->segments, 4u, SB_RELAXED);
  expect_header(SEGMENTS, 0, 4, 3, "more segments than the limit needs");
}
static void the_housekeeper_s_node(void) {
  begin();
  sb_header_shm *h = t.b->header;
  SB_STORE(&h->housekeeper_waiter, q->slot, SB_RELAXED);
  expect_header(HOUSEKEEPER, 0, q->slot, 0, "a housekeeper without a node");
  SB_STORE(&h->housekeeper_waiter, 0u, SB_RELAXED);
  uint32_t queues = h->queue_count;
  expect_is(queues, 2, "the number of queues");
  SB_STORE(&h->queue_count, 3u, SB_RELAXED);
  expect_header(QUEUES, 0, 3, 2, "another number of queues");
}

/* ---- the directory ---- */

static uint32_t index_of(uint32_t slot) {
  for (uint32_t i = 0; i < SB_DIRECTORY_SIZE; i++) {
    uint64_t entry = SB_LOAD(&t.b->directory[i], SB_RELAXED);
    if (SB_BITS(entry, 0, 2) == SB_DIR_LIVE && SB_BITS(entry, 2, 28) == slot) return i;
  }
  die("index_of", (int)slot);
}
static void set_entry(uint32_t i, unsigned state, uint32_t slot) {
  uint64_t was = SB_LOAD(&t.b->directory[i], SB_RELAXED) >> 30 << 30;
  SB_STORE(&t.b->directory[i], was | SB_FIELD(slot, 2) | state, SB_RELAXED);
}
static void set_state(sb_queue_shm *s, unsigned state) {
  SB_STORE(&s->state, (SB_LOAD(&s->state, SB_RELAXED) & ~UINT64_C(3)) | state, SB_RELAXED);
}
static void expect_entry(unsigned which, uint32_t slot, uint64_t is, uint64_t should, bool first, const char *what) {
  expect_finding(
      (sb_finding){SB_BAD_DIRECTORY, which == NO_QUEUE ? 0 : slot, slot, which, 0, index_of(slot), is, should}, first,
      what);
}
static void entries_without_a_queue(void) {
  begin();
  uint32_t i = index_of(other), ledger = sb_slot_of(t.b, q->ledger);
  set_entry(i, SB_DIR_LIVE, ledger);
  expect_entry(NO_QUEUE, ledger, SB_KIND_LEDGER, SB_KIND_QUEUE, true, "an entry of an account");
  set_entry(i, SB_DIR_CLOSED, ledger);
  look();
  for (uint32_t k = 0; k < count; k++)
    expect(found[k].code != SB_BAD_DIRECTORY, "a closed entry of an account is a finding");
  set_entry(i, SB_DIR_LIVE, q->slot);
  look();
  bool twice = false;
  for (uint32_t k = 0; k < count; k++)
    twice |= found[k].code == SB_BAD_DIRECTORY && found[k].which == TWICE && found[k].queue == q->slot;
  expect(twice, "two entries of a queue were not found");
  set_entry(i, SB_DIR_LIVE, other);
  expect_sound("what was put right");
}
static void entries_of_queues_that_are_closed(void) {
  begin();
  uint32_t i = index_of(other);
  sb_queue_shm *s = sb_slot_at(t.b, other);
  set_state(s, SB_QUEUE_CLOSED);
  expect_entry(CLOSED_QUEUE, other, SB_QUEUE_CLOSED, SB_QUEUE_OPEN, false, "a live entry of a closed queue");
  SB_STORE(&s->flags, SB_LOAD(&s->flags, SB_RELAXED) | SB_QUEUE_AUTO_DELETE, SB_RELAXED);
  expect_sound("a live entry of a queue that has ended by itself");
  SB_STORE(&s->name_length, 0u, SB_RELAXED);
  expect_sound("the name of a queue that has ended by itself");
  SB_STORE(&s->name_length, 5u, SB_RELAXED);
  set_entry(i, SB_DIR_CLOSED, other);
  expect_header(QUEUES, 0, 2, 1, "a closed entry, which does not count");
  SB_STORE(&t.b->header->queue_count, 1u, SB_RELAXED);
  expect_sound("a closed entry of a closed queue");
  set_state(s, SB_QUEUE_OPEN);
  look();
  for (uint32_t k = 0; k < count; k++)
    expect(found[k].code != SB_BAD_DIRECTORY, "a slot that is used again is a finding");
}
static void names_of_queues(void) {
  begin();
  sb_queue_shm *s = sb_slot_at(t.b, other);
  const uint32_t lengths[] = {0, 4, 6, SB_NAME_MAX + 1};
  for (unsigned k = 0; k < 4; k++) {
    SB_STORE(&s->name_length, lengths[k], SB_RELAXED);
    expect_entry(NAME, other, lengths[k], 5, false, "the length of a name");
  }
  memset(s->name, 'x', sizeof s->name);
  SB_STORE(&s->name_length, (uint32_t)sizeof s->name, SB_RELAXED);
  expect_entry(NAME, other, sizeof s->name, sizeof s->name, false, "a name that is too long");
  memset(s->name, 0, sizeof s->name);
  SB_STORE(&s->name_length, 0u, SB_RELAXED);
  expect_entry(NAME, other, 0, 0, false, "a name of no bytes");
  memcpy(s->name, "q", 2);
  SB_STORE(&s->name_length, 1u, SB_RELAXED);
  look();
  bool lost = false;
  for (uint32_t k = 0; k < count; k++)
    lost |= found[k].code == SB_BAD_DIRECTORY && found[k].which == LOST && found[k].queue == other;
  expect(lost, "a queue that its name does not lead to was not found");
}
static void where_an_entry_stands(void) {
  begin();
  uint32_t i = index_of(other);
  uint64_t entry = SB_LOAD(&t.b->directory[i], SB_RELAXED);
  SB_STORE(&t.b->directory[i], 0, SB_RELAXED);
  uint32_t last = SB_DIRECTORY_SIZE - 1;
  expect(SB_LOAD(&t.b->directory[last], SB_RELAXED) == 0, "the last place is taken");
  SB_STORE(&t.b->directory[last], entry, SB_RELAXED);
  expect_entry(LOST, other, 0, other, false, "an entry where nobody looks");
}

/* ---- all of it ---- */

static void expect_code(unsigned code, const char *what) {
  look();
  expect(count > 0, "%s was not found", what);
  expect_is(found[0].code, code, what);
}
/* Each part of the doctor has its turn. */
static void all_parts_are_looked_at(void) {
  begin();
  uint32_t units = t.b->classes[1].units;
  SB_STORE(&t.b->classes[1].units, 99u, SB_RELAXED);
  expect_code(SB_BAD_CLASS, "a class");
  SB_STORE(&t.b->classes[1].units, units, SB_RELAXED);
  SB_STORE(&t.b->header->memory_waiting, 3u, SB_RELAXED);
  expect_code(SB_BAD_LIST, "the list of memory");
  SB_STORE(&t.b->header->memory_waiting, 0u, SB_RELAXED);
  SB_STORE(&t.b->chunks[SB_MAX_CHUNKS - 1], sb_chunk_word(SB_CHUNK_CLASS, 0, 4, 0), SB_RELAXED);
  expect_code(SB_BAD_CHUNK, "a chunk");
  SB_STORE(&t.b->chunks[SB_MAX_CHUNKS - 1], 0, SB_RELAXED);
  char *buffer = malloc(BUFFER);
  if (buffer == NULL || put(&t, q, 7) != SB_OK) die("put", 0);
  expect_is(get(&t, q, buffer, false), 7, "the message that is held");
  const sb_record *r = (const sb_record *)(const void *)buffer;
  sb_holding_shm *h = sb_holding_at(t.b, r->tag);
  uint64_t what = SB_LOAD(&h->what, SB_RELAXED);
  SB_STORE(&h->what, SB_HOLD_NONE, SB_RELAXED);
  expect_code(SB_BAD_HOLDING, "a cell that nobody names");
  SB_STORE(&h->what, what, SB_RELAXED);
  expect_sound("what was put right");
  free(buffer);
}
static void what_explains_a_finding(void) {
  begin();
  pid_t pid = fork();
  if (pid == 0) {
    attach(&t);
    connect_to(&t);
    _exit(0);
  }
  (void)waitpid(pid, NULL, 0);
  expect_sound("a broker of which a process died");
  SB_STORE(&t.b->header->queue_count, 3u, SB_RELAXED);
  look();
  expect_is(count, 2, "the findings");
  expect(found[1].code == SB_UNREAPED, "nobody is said to have died");
  expect_is(found[1].found, (uint64_t)pid, "who died");
}
static void no_room_for_findings(void) {
  begin();
  SB_STORE(&t.b->header->magic, 5, SB_RELAXED);
  SB_STORE(&t.b->header->layout_hash, 5, SB_RELAXED);
  found[1].code = 77;
  count = sb_broker_check(t.c, found, 1);
  expect_is(count, 2, "how many were found");
  expect_is(found[0].code, SB_BAD_HEADER, "the first one");
  expect_is(found[1].code, 77, "what lies behind the room");
}
static void who_cannot_look(void) {
  begin();
  (void)sb_connection_close(t.c);
  look();
  expect_is(count, 1, "the findings of a connection that is closed");
  expect(found[0].code == SB_NOT_CHECKED, "nothing was found by one who did not look");
  expect_is(found[0].found, SB_CLOSED, "why");
}

static const test_case CASES[] = {
    {"api_check: header", "each number of the header that was damaged is found", damaged_headers},
    {"api_check: segments", "there are as many segments as there may be, and all are there", segments_that_cannot_be},
    {"api_check: last segment", "the last segment may be shorter", the_last_segment_is_shorter},
    {"api_check: housekeeper", "the housekeeper has a node, and queues are counted", the_housekeeper_s_node},
    {"api_check: entries", "an entry is of a queue, and of one that has no other", entries_without_a_queue},
    {"api_check: closed", "a live entry is of a queue that is open, or has ended by itself",
     entries_of_queues_that_are_closed},
    {"api_check: names", "a queue has a name that leads to it", names_of_queues},
    {"api_check: lost", "an entry stands where it is looked for", where_an_entry_stands},
    {"api_check: parts", "classes, lists, chunks and holdings are looked at", all_parts_are_looked_at},
    {"api_check: explained", "who died and was not reaped is told beside what was found", what_explains_a_finding},
    {"api_check: room", "what has no room is counted", no_room_for_findings},
    {"api_check: not checked", "who cannot look does not say that nothing was found", who_cannot_look},
};
SUBJECT(CASES)
