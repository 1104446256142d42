// SPDX-License-Identifier: Apache-2.0
/* sb_directory, sb_topology: queues by name, the topology lock, and what its next holder finishes. */
#include "sb_directory.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "sb_queue.h"
#include "sb_settings.h"
#include "sb_slab.h"
#include "sb_topology.h"
#include "sb_wait.h"
#include "waiting.h"

#define FREE_SETTINGS ((sb_settings)FREELY)
#define LONG_AGO UINT64_C(1)

static uint32_t create(const char *name, const sb_settings *s) {
  uint32_t slot = 0;
  expect_is(sb_directory_create(t.c, name, (uint32_t)strlen(name), s, &slot), SB_OK, "the status of a new queue");
  return slot;
}
static uint32_t find(const char *name) { return sb_directory_find(t.b, name, (uint32_t)strlen(name)); }
static sb_queue_shm *at(uint32_t slot) { return sb_slot_at(t.b, slot); }
static uint32_t index_of(uint32_t slot, unsigned state) {
  for (uint32_t i = 0; i < SB_DIRECTORY_SIZE; i++) {
    uint64_t entry = SB_LOAD(&t.b->directory[i], SB_RELAXED);
    if (SB_BITS(entry, 0, 2) == state && SB_BITS(entry, 2, 28) == slot) return i;
  }
  return UINT32_MAX;
}
static uint64_t entry(uint32_t i) { return SB_LOAD(&t.b->directory[i % SB_DIRECTORY_SIZE], SB_RELAXED); }
static void set_entry(uint32_t i, uint64_t word) { SB_STORE(&t.b->directory[i % SB_DIRECTORY_SIZE], word, SB_RELAXED); }
static void set_state(uint32_t slot, unsigned state) {
  SB_STORE(&at(slot)->state, (SB_LOAD(&at(slot)->state, SB_RELAXED) & ~UINT64_C(3)) | state, SB_RELAXED);
}

/* ---- names ---- */

static void queues_are_found_by_name(void) {
  char longest[SB_NAME_MAX + 2];
  memset(longest, 'n', sizeof longest);
  longest[SB_NAME_MAX] = 0;
  uint32_t a = create("a", &FREE_SETTINGS), ab = create("ab", &FREE_SETTINGS), l = create(longest, &FREE_SETTINGS);
  expect(a != ab && ab != l, "two queues are one");
  expect_is(find("a"), a, "the shortest name");
  expect_is(find("ab"), ab, "a longer one that begins so");
  expect_is(find(longest), l, "the longest name");
  expect_is(find("b"), 0, "a name of nobody");
  expect_is(sb_directory_find(t.b, "ab", 1), a, "the first byte of a name");
  expect_is(t.b->header->queue_count, 3, "the number of queues");
  expect(index_of(a, SB_DIR_LIVE) != index_of(ab, SB_DIR_LIVE), "two names have one place");
}
/* The place and the hash of a name belong to the layout: processes of another version look for it there. */
static void the_place_of_a_name(void) {
  uint32_t a = create("a", &FREE_SETTINGS);
  expect_is(index_of(a, SB_DIR_LIVE), 0x30c0, "the place of a name");
  expect_is(entry(0x30c0) >> 30, 0x296230c0, "the hash of a name");
}
/* A name belongs to a queue that is open, has just that name, and whose entry has its hash. */
static void what_is_not_found(void) {
  uint32_t a = create("a", &FREE_SETTINGS), i = index_of(a, SB_DIR_LIVE);
  uint64_t was = entry(i);
  set_state(a, SB_QUEUE_CLOSED);
  expect_is(find("a"), 0, "a queue that is closed");
  set_state(a, SB_QUEUE_OPEN);
  SB_STORE(&at(a)->name_length, 2u, SB_RELAXED);
  expect_is(find("a"), 0, "a longer name");
  SB_STORE(&at(a)->name_length, 1u, SB_RELAXED);
  at(a)->name[0] = 'b';
  expect_is(find("a"), 0, "another name");
  at(a)->name[0] = 'a';
  const uint64_t words[] = {was ^ UINT64_C(1) << 30, (was & ~UINT64_C(3)) | SB_DIR_CLOSED,
                            (was & ~UINT64_C(3)) | SB_DIR_DEAD,
                            (was & ~SB_FIELD((1u << 28) - 1, 2)) | SB_FIELD(sb_slot_of(t.b, t.c->shm), 2)};
  for (unsigned k = 0; k < 4; k++) {
    set_entry(i, words[k]);
    expect_is(find("a"), 0, "an entry that is none of it");
  }
  set_entry(i, was);
  expect_is(find("a"), a, "what was put right");
}
/* Entries of others in between are passed over; an EMPTY one ends the search. The table has no end. */
static void entries_in_between(void) {
  uint32_t a = create("a", &FREE_SETTINGS), b = create("b", &FREE_SETTINGS), i = index_of(a, SB_DIR_LIVE);
  uint64_t word = entry(i), another = entry(index_of(b, SB_DIR_LIVE));
  set_entry(i, another);
  set_entry(i + 1, (another & ~UINT64_C(3)) | SB_DIR_DEAD);
  set_entry(i + 2, word);
  expect_is(find("a"), a, "a queue behind two others");
  expect(sb_directory_links(t.b, a), "its entry is not found");
  set_entry(i + 1, 0);
  expect_is(find("a"), 0, "a queue behind an EMPTY entry");
  expect(!sb_directory_links(t.b, a), "its entry is found");
  for (uint32_t k = 0; k < SB_DIRECTORY_SIZE; k++) set_entry(k, another);
  expect_is(find("a"), 0, "a name in a full table");
  expect(!sb_directory_links(t.b, a), "an entry in a full table");
  set_entry(i + SB_DIRECTORY_SIZE - 1, word); /* the last place of its search */
  expect_is(find("a"), a, "a queue in the last place");
  expect(sb_directory_links(t.b, a), "its entry in the last place");
}
static void a_new_entry_takes_the_first_place(void) {
  uint32_t a = create("a", &FREE_SETTINGS), i = index_of(a, SB_DIR_LIVE);
  uint64_t word = entry(i);
  set_entry(i, (word & ~UINT64_C(3)) | SB_DIR_CLOSED);
  set_entry(i + 1, (word & ~UINT64_C(3)) | SB_DIR_DEAD);
  uint32_t again = create("a", &FREE_SETTINGS);
  expect_is(index_of(again, SB_DIR_LIVE), i + 1, "the place of an entry that is DEAD");
  expect_is(entry(i) & 3, SB_DIR_CLOSED, "an entry that is CLOSED");
  for (uint32_t k = 0; k < SB_DIRECTORY_SIZE; k++) set_entry(k, word);
  set_entry(i + SB_DIRECTORY_SIZE - 1, 0);
  uint32_t last = create("a", &FREE_SETTINGS);
  expect_is(index_of(last, SB_DIR_LIVE), (i + SB_DIRECTORY_SIZE - 1) % SB_DIRECTORY_SIZE, "the last place");
}

/* ---- queues ---- */

static void a_new_queue(void) {
  uint32_t slot = create("first", &FREE_SETTINGS);
  sb_queue_shm *s = at(slot), before;
  uint64_t state = SB_LOAD(&s->state, SB_RELAXED);
  expect_is(state & 3, SB_QUEUE_OPEN, "its state");
  expect_is(sb_slot_state(SB_LOAD(sb_slot_header(t.b, slot), SB_RELAXED)), SB_SLOT_PUBLISHED, "its slot");
  /* its next life, with all that the last one left behind but the places of its rings */
  SB_STORE(&s->base, 5 * SB_PAGE_CELLS, SB_RELAXED);
  SB_STORE(&s->admitted, 1, SB_RELAXED);
  s->ledgers = s->consumer_levels = 1;
  s->bytes_in = s->bound = s->taken = s->bytes_out = s->requeued = s->last_take = 1;
  s->interested = s->notified = s->not_interested = s->non_acquiring = s->consumers = s->room_waiting = 1;
  s->timers_lost = s->tracking = 1;
  s->rescues = s->exclusive = s->created_ns = s->used_ns = 1;
  s->had_consumer = s->room_watched = 1;
  s->lanes = s->groups = s->value_index = s->values_lost = s->ids = 1;
  s->tickets = s->open_before = s->id_tags = s->id_floor = s->duplicates = 2;
  s->id_numbers = 7;
  s->turn_until_ns = s->turn_needs = s->came = s->ready[0] = s->ready[SB_LANES / 64 - 1] = 1;
  s->owner_connection = 9;
  memset(s->name, 'x', sizeof s->name);
  SB_STORE(sb_slot_header(t.b, slot), sb_slot_word(SB_SLOT_FREE, 0, 99), SB_RELAXED);
  sb_slab_return_cache(t.c);
  sb_chunk_hint_set(t.b, sb_class_of_kind(t.b, SB_KIND_QUEUE), slot / SB_CHUNK_UNITS, slot % SB_CHUNK_UNITS / 3 / 64,
                    UINT64_C(1) << slot % SB_CHUNK_UNITS / 3 % 64);
  for (uint32_t i = 0; i < 200 && create("q", &FREE_SETTINGS) != slot; i++) {
  }
  before = *s;
  expect_is(before.state, SB_QUEUE_OPEN | SB_FIELD((state >> 2) + 1, 2), "its state in the next life");
  expect_is(before.admitted, 5 * SB_PAGE_CELLS, "its places");
  expect_is(before.ledgers | before.consumer_levels, 0, "its accounts and levels");
  expect_is(before.bytes_in | before.bound | before.taken | before.bytes_out, 0, "its hints");
  expect_is(before.requeued | before.last_take | before.rescues | before.exclusive, 0, "its marks");
  expect_is(before.interested | before.notified | before.not_interested | before.non_acquiring, 0, "its counts");
  expect_is(before.consumers | before.room_waiting | before.timers_lost | before.tracking, 0, "its other counts");
  expect_is(before.had_consumer | before.room_watched, 0, "what it had");
  expect_is(before.lanes | before.groups | before.ready[0] | before.ready[SB_LANES / 64 - 1], 0,
            "its lanes and groups");
  expect_is(before.came, 5 * SB_PAGE_CELLS, "where a search for what came begins");
  expect_is(before.value_index | before.values_lost, 0, "its last values");
  expect_is(before.tickets | before.open_before, 0, "its gate");
  expect_is(before.ids | before.id_tags | before.id_floor | before.duplicates, 0, "its ids");
  expect_is(before.id_numbers, 1, "the number of its latest id");
  expect_is(before.turn_until_ns | before.turn_needs, 0, "its turn");
  expect(before.created_ns > 1 && before.used_ns > 1, "its times are those of before");
  expect(before.name[0] == 'q' && before.name[1] == 0 && before.name[SB_NAME_MAX] == 0, "its name is longer");
}
static void settings_of_a_queue(void) {
  const sb_settings all = {{7, 8, 9, SB_OVERFLOW_BLOCK, 11, 12}, 0};
  sb_queue_shm *s = at(create("all", &all));
  expect_is(s->settings[SB_SETTING_RING_SIZE], 7, "ring_size");
  expect_is(s->settings[SB_SETTING_MAX_LENGTH], 8, "max_length");
  expect_is(s->settings[SB_SETTING_MAX_BYTES], 9, "max_bytes");
  expect_is(s->settings[SB_SETTING_OVERFLOW], SB_OVERFLOW_BLOCK, "overflow");
  expect_is(s->flags, SB_QUEUE_TTL | SB_QUEUE_EXPIRES, "flags");
  expect_is(s->settings[SB_SETTING_MESSAGE_TTL_MS], 11, "message_ttl");
  expect_is(s->settings[SB_SETTING_EXPIRES_MS], 12, "expires");
  const sb_settings limits[] = {{{0, -1, -1, 0, -1, -1}, 0}, {{-1, 0, -1, 0, -1, -1}, 0}, {{-1, -1, 0, 0, -1, -1}, 0}};
  for (unsigned i = 0; i < 3; i++) expect_is(at(create("limit", &limits[i]))->tracking, 1, "whether a limit is kept");
}
static void no_more_queues(void) {
  uint32_t slot = 7;
  uint64_t closed = (entry(index_of(create("a", &FREE_SETTINGS), SB_DIR_LIVE)) & ~UINT64_C(3)) | SB_DIR_CLOSED;
  for (uint32_t k = 0; k < SB_DIRECTORY_SIZE; k++) set_entry(k, closed);
  uint64_t rest = next_holding();
  expect_is(sb_directory_create(t.c, "q", 1, &FREE_SETTINGS, &slot), SB_LIMIT, "the status where no entry is free");
  expect_is(next_holding(), rest, "the next holding after that");
  set_entry(5, SB_DIR_DEAD);
  expect_is(sb_directory_create(t.c, "q", 1, &FREE_SETTINGS, &slot), SB_OK, "the status where one entry is free");
  expect_is(entry(5) & 3, SB_DIR_LIVE, "the entry of the new queue");
  for (uint32_t k = 0; k < SB_DIRECTORY_SIZE; k++) set_entry(k, 0);
  slot = 7;
  SB_STORE(&t.b->header->queue_count, SB_MAX_QUEUES, SB_RELAXED);
  expect_is(sb_directory_create(t.c, "q", 1, &FREE_SETTINGS, &slot), SB_LIMIT, "the status of one too many");
  expect_is(find("q"), 0, "one too many");
  SB_STORE(&t.b->header->queue_count, SB_MAX_QUEUES - 1, SB_RELAXED);
  expect_is(sb_directory_create(t.c, "q", 1, &FREE_SETTINGS, &slot), SB_OK, "the status of the last one");
  SB_STORE(&t.b->header->queue_count, 0u, SB_RELAXED);
  grow_to(BROKER_CHUNKS - 1);
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    if (sb_chunk_state(SB_LOAD(&t.b->chunks[i], SB_RELAXED)) == SB_CHUNK_FREE)
      SB_STORE(&t.b->chunks[i], sb_chunk_word(SB_CHUNK_CLAIMED, 0, 0, 0), SB_RELAXED);
  }
  while (sb_directory_create(t.c, "many", 4, &FREE_SETTINGS, &slot) == SB_OK) {
  }
  uint32_t count = SB_LOAD(&t.b->header->queue_count, SB_RELAXED);
  expect_is(sb_directory_create(t.c, "no", 2, &FREE_SETTINGS, &slot), SB_NO_MEMORY, "the status without memory");
  expect_is(find("no"), 0, "a queue without memory");
  expect_is(t.b->header->queue_count, count, "the number of queues");
}
static void a_name_is_removed(void) {
  uint32_t a = create("a", &FREE_SETTINGS), i = index_of(a, SB_DIR_LIVE), closed = t.b->header->queues_closed;
  uint64_t was = entry(i);
  sb_directory_remove(t.b, a);
  expect_is(entry(i), (was & ~UINT64_C(3)) | SB_DIR_CLOSED, "its entry");
  expect_is(t.b->header->queue_count, 0, "the number of queues");
  expect_is(t.b->header->queues_closed, closed + 1, "how many were closed");
  SB_STORE(&t.b->header->queue_count, 5u, SB_RELAXED);
  sb_directory_remove(t.b, a); /* by who goes on after a kill */
  expect_is(t.b->header->queue_count, 5, "the number of queues, when there is no entry");
  expect_is(t.b->header->queues_closed, closed + 2, "how many were closed, told again");
  set_entry(i, was);
  SB_STORE(&t.b->header->queue_count, 0u, SB_RELAXED);
  sb_directory_remove(t.b, a);
  expect_is(t.b->header->queue_count, 0, "the number of queues when it was 0");
}
/* Those of that state, one after the other; what is no queue is passed over. */
static void queues_in_turn(void) {
  uint32_t a = create("a", &FREE_SETTINGS), b = create("b", &FREE_SETTINGS), index = 0;
  uint64_t word_a = entry(index_of(a, SB_DIR_LIVE)), word_b = entry(index_of(b, SB_DIR_LIVE));
  set_entry(index_of(a, SB_DIR_LIVE), 0);
  set_entry(index_of(b, SB_DIR_LIVE), 0);
  set_entry(0, word_a);
  set_entry(4, (word_a & ~SB_FIELD((1u << 28) - 1, 2)) | SB_FIELD(sb_slot_of(t.b, t.c->shm), 2));
  set_entry(5, (word_b & ~UINT64_C(3)) | SB_DIR_CLOSED);
  set_entry(SB_DIRECTORY_SIZE - 1, word_b);
  expect_is(sb_directory_next(t.b, &index, false), a, "the first queue");
  expect_is(index, 1, "where to go on");
  expect_is(sb_directory_next(t.b, &index, false), b, "the second queue");
  expect_is(index, SB_DIRECTORY_SIZE, "where to go on behind the last");
  expect_is(sb_directory_next(t.b, &index, false), 0, "a third queue");
  index = 0;
  expect_is(sb_directory_next(t.b, &index, true), b, "the queue that is closed");
  expect_is(index, 6, "where to go on behind it");
  expect_is(sb_directory_next(t.b, &index, true), 0, "another one that is closed");
  index = 1;
  expect_is(sb_directory_next_before(t.b, &index, SB_DIRECTORY_SIZE - 1, false), 0, "a queue before the last entry");
  expect_is(index, SB_DIRECTORY_SIZE - 1, "where it ended");
  index = 0;
  expect_is(sb_directory_next_before(t.b, &index, 1, false), a, "a queue in the last entry that is looked at");
}

/* ---- sweeps ---- */

static void what_a_sweep_frees(void) {
  uint32_t a = create("a", &FREE_SETTINGS), b = create("b", &FREE_SETTINGS), c = create("c", &FREE_SETTINGS);
  SB_STORE(&t.b->header->queue_count, 9u, SB_RELAXED);
  expect_is(sb_directory_sweep(t.c), 0, "what is left where nothing ended");
  expect_is(t.b->header->queue_count, 3, "the number of queues");
  set_state(a, SB_QUEUE_CLOSED); /* the process that closed it was killed */
  sb_queue *held = open_queue(&t, "b");
  set_state(b, SB_QUEUE_CLOSED);
  expect_is(sb_directory_sweep(t.c), 1, "what is left: one that somebody has open");
  expect_is(t.b->header->queue_count, 1, "the number of queues that are open");
  expect_is(t.b->header->queues_ended, 2, "how many queues ended");
  expect(index_of(a, SB_DIR_LIVE) == UINT32_MAX && index_of(a, SB_DIR_CLOSED) == UINT32_MAX, "the name is there");
  expect_is(sb_slot_state(SB_LOAD(sb_slot_header(t.b, a), SB_RELAXED)), SB_SLOT_FREE, "the slot of what was freed");
  expect(index_of(b, SB_DIR_CLOSED) != UINT32_MAX, "what somebody has open has no entry");
  (void)sb_queue_close(held);
  (void)sb_directory_sweep(t.c);
  expect(index_of(b, SB_DIR_CLOSED) == UINT32_MAX, "what was left has an entry");
  expect_is(find("c"), c, "another queue");
}
/* An entry that is gone is EMPTY if the next one is, and so are those that are DEAD before it. */
static void entries_are_buried(void) {
  uint32_t a = create("a", &FREE_SETTINGS), b = create("b", &FREE_SETTINGS);
  uint32_t i = index_of(a, SB_DIR_LIVE), k = index_of(b, SB_DIR_LIVE);
  uint64_t dead = SB_DIR_DEAD;
  set_entry(i - 1, dead);
  set_entry(i - 2, dead);
  set_entry(i - 4, dead);
  set_entry(k + 1, dead);
  set_state(a, SB_QUEUE_CLOSED);
  set_state(b, SB_QUEUE_CLOSED);
  expect_is(sb_directory_sweep(t.c), 0, "what is left");
  expect_is(entry(i), 0, "an entry before an EMPTY one");
  expect_is(entry(i - 1) | entry(i - 2), 0, "those that are DEAD before it");
  expect_is(entry(i - 4), dead, "one behind an EMPTY one");
  expect_is(entry(k), dead, "an entry before one that is DEAD");
}
/* A sweep that was killed after it freed the queue left the entry; its slot may be used again. */
static void an_entry_of_a_slot_that_is_used_again(void) {
  uint32_t a = create("a", &FREE_SETTINGS), i = index_of(a, SB_DIR_LIVE);
  uint64_t word = entry(i);
  set_entry(i + 7, (word & ~UINT64_C(3)) | SB_DIR_CLOSED);
  expect_is(sb_directory_sweep(t.c), 0, "what is left");
  expect_is(entry(i + 7), 0, "the entry that was left");
  expect_is(find("a"), a, "the queue that is there now");
}
/* By now the chunk of that slot may serve another purpose. */
static void an_entry_of_a_slot_that_is_no_queue(void) {
  uint32_t a = create("a", &FREE_SETTINGS), i = index_of(a, SB_DIR_LIVE);
  uint64_t closed = (entry(i) & ~UINT64_C(3)) | SB_DIR_CLOSED;
  const uint32_t slots[] = {0, sb_slot_of(t.b, sb_connection_record(t.b, t.c->id)), BROKER_CHUNKS * SB_CHUNK_UNITS};
  for (unsigned k = 0; k < 3; k++) {
    set_entry(i + 7, sb_dir_word(SB_DIR_CLOSED, slots[k], sb_dir_hash(closed)));
    expect_is(sb_directory_sweep(t.c), 0, "what is left");
    expect_is(entry(i + 7), 0, "the entry that was left");
  }
  uint64_t unmapped = sb_dir_word(SB_DIR_CLOSED, (BROKER_CHUNKS - 1) * SB_CHUNK_UNITS, sb_dir_hash(closed));
  set_entry(i + 7, unmapped);
  expect_is(sb_directory_sweep(t.c), 1, "what is left in a segment that is not mapped");
  expect_is(entry(i + 7), unmapped, "an entry of a segment that is not mapped");
  expect_is(find("a"), a, "another queue");
}

/* ---- the lock ---- */

static bool another_holds_it(void) {
  int32_t holder;
  pid_t pid = fork();
  int status;
  if (pid == 0) {
    attach(&t);
    _exit(sb_topology_lock(t.b, LONG_AGO, &holder) == SB_TIMEOUT && holder == (int32_t)getppid() ? 1 : 0);
  }
  (void)waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}
static void the_lock_of_the_topology(void) {
  int32_t holder = 5;
  sb_header_shm *h = t.b->header;
  uint64_t epoch = h->topology_epoch;
  expect_is(sb_topology_lock(t.b, LONG_AGO, &holder), SB_OK, "the status");
  expect_is(holder, 0, "who has it");
  expect_is(h->topology_pid, (uint32_t)getpid(), "who says to have it");
  expect(another_holds_it(), "another process took it");
  expect_is(sb_topology_lock(t.b, LONG_AGO, &holder), SB_OK, "the status of who has it");
  SB_STORE(&h->topology_intent, 77, SB_RELAXED);
  sb_topology_unlock(t.b, true);
  expect_is(h->topology_intent, 77, "the intent before the last unlock");
  expect(another_holds_it(), "another process took it after the first of two unlocks");
  expect_is(h->topology_epoch, epoch, "the epoch before the last unlock");
  sb_topology_unlock(t.b, true);
  expect_is(h->topology_intent, 0, "the intent");
  expect_is(h->queues_ended, 0, "how often others are asked to remove bindings");
  expect_is(h->topology_epoch, epoch + 1, "the epoch");
  expect_is(h->topology_pid, 0, "who says to have it, when it is free");
  expect(!another_holds_it(), "nobody else can take it");
  expect_is(sb_topology_lock(t.b, LONG_AGO, &holder), SB_OK, "the status of the next one");
  sb_topology_unlock(t.b, false);
  expect_is(h->topology_epoch, epoch + 2, "the epoch after a holder that ended with the lock");
  expect_is(sb_topology_lock(t.b, LONG_AGO, &holder), SB_OK, "the status of the one after that");
  sb_topology_unlock(t.b, false);
  expect_is(h->topology_epoch, epoch + 2, "the epoch when nothing changed");
}

/* ---- what the next holder finishes ---- */

static void a_deletion_is_finished(void) {
  uint32_t a = create("a", &FREE_SETTINGS);
  sb_header_shm *h = t.b->header;
  SB_STORE(&h->topology_intent, sb_topology_word(SB_CHANGE_DELETE, a), SB_RELAXED);
  sb_topology_finish(t.c);
  expect_is(h->topology_intent, 0, "the intent");
  expect_is(find("a"), a, "a queue that was not closed yet");
  set_state(a, SB_QUEUE_CLOSED);
  sb_topology_finish(t.c);
  expect(index_of(a, SB_DIR_LIVE) != UINT32_MAX, "a name was removed without an intent");
  SB_STORE(&h->topology_intent, sb_topology_word(SB_CHANGE_CONFIGURE, a), SB_RELAXED);
  sb_topology_finish(t.c);
  expect(index_of(a, SB_DIR_LIVE) != UINT32_MAX, "a name was removed by a change of settings");
  expect_is(h->queues_ended, 0, "how many queues ended before");
  SB_STORE(&h->topology_intent, sb_topology_word(SB_CHANGE_DELETE, a), SB_RELAXED);
  sb_topology_finish(t.c);
  expect(index_of(a, SB_DIR_LIVE) == UINT32_MAX, "the name is still there");
  expect_is(h->queues_ended, 1, "how many queues ended");
  SB_STORE(&h->topology_intent, sb_topology_word(SB_CHANGE_DELETE, a + 1), SB_RELAXED);
  sb_topology_finish(t.c);
  expect_is(h->topology_intent, 0, "the intent of what is no queue");
}
static void new_settings_are_finished(void) {
  uint32_t a = create("a", &FREE_SETTINGS);
  sb_header_shm *h = t.b->header;
  const sb_settings announced = {{7, 8, 9, SB_OVERFLOW_BLOCK, 11, 12}, SB_QUEUE_DURABLE};
  announce_settings(&announced, false);
  SB_STORE(&h->topology_intent, sb_topology_word(SB_CHANGE_DELETE, a), SB_RELAXED);
  sb_topology_finish(t.c);
  expect_is(at(a)->settings[SB_SETTING_RING_SIZE], -1, "ring_size after another intent");
  SB_STORE(&h->topology_intent, sb_topology_word(SB_CHANGE_CONFIGURE, a), SB_RELAXED);
  sb_topology_finish(t.c);
  expect_is(at(a)->settings[SB_SETTING_RING_SIZE], 7, "ring_size");
  expect_is(at(a)->settings[SB_SETTING_MAX_LENGTH], 8, "max_length");
  expect_is(at(a)->settings[SB_SETTING_MAX_BYTES], 9, "max_bytes");
  expect_is(at(a)->settings[SB_SETTING_OVERFLOW], SB_OVERFLOW_BLOCK, "overflow");
  expect_is(at(a)->flags, SB_QUEUE_DURABLE | SB_QUEUE_TTL | SB_QUEUE_EXPIRES, "flags");
  expect_is(at(a)->settings[SB_SETTING_MESSAGE_TTL_MS], 11, "message_ttl");
  expect_is(at(a)->settings[SB_SETTING_EXPIRES_MS], 12, "expires");
  expect_is(at(a)->tracking, 1, "whether limits are kept");
  expect_is(h->topology_intent, 0, "the intent");
}
/* What is announced can be carried out by another one. */
static void settings_are_announced(void) {
  const sb_settings s = {{-1, 5, -1, SB_OVERFLOW_DROP, -1, 12}, SB_QUEUE_DURABLE};
  if (declare(&t, "q", FREE_SETTINGS) != SB_OK) die("declare", 0);
  sb_queue *q = open_queue(&t, "q");
  sb_word *behind = (sb_word *)((char *)t.b->header + sizeof *t.b->header);
  SB_STORE(behind, 99, SB_RELAXED);
  sb_settings_configure(q, &s, true);
  for (unsigned i = 0; i < SB_SETTINGS; i++) {
    expect_is(t.b->header->new_settings[i], s.values[i], "a setting that is announced");
  }
  expect_is(t.b->header->new_flags, SB_QUEUE_DURABLE, "the flags that are announced");
  expect_is(t.b->header->new_trim, 1, "whether to trim");
  expect_is(SB_LOAD(behind, SB_RELAXED), 99, "what lies behind");
  expect_is(t.b->header->topology_intent, sb_topology_word(SB_CHANGE_CONFIGURE, q->slot), "the intent");
  expect_is(q->shm->tracking, 1, "whether a limit is kept");
}
static void bounds_of_a_ring(void) {
  if (declare(&t, "q", FREE_SETTINGS) != SB_OK) die("declare", 0);
  sb_queue *q = open_queue(&t, "q");
  for (uint64_t i = 1; i <= 5; i++) put(&t, q, i);
  sb_settings_configure(q, &(sb_settings){{3, -1, -1, 0, -1, -1}, 0}, false);
  expect(q->shm->bound != INT64_MAX, "the bound is not known");
  uint64_t bound = q->shm->bound;
  expect(bound >= 5, "the bound of a ring that was not trimmed is %llu", (unsigned long long)bound);
  SB_STORE(&q->shm->bound, 4, SB_RELAXED);
  sb_settings_configure(q, &(sb_settings){{3, -1, -1, 0, -1, -1}, 0}, false);
  expect_is(q->shm->bound, 4, "the bound of a ring that stays as it is");
  SB_STORE(&q->shm->bound, INT64_MAX, SB_RELAXED); /* a process was killed in the middle */
  sb_settings_configure(q, &(sb_settings){{3, -1, -1, 0, -1, -1}, 0}, false);
  expect(q->shm->bound != INT64_MAX, "the bound that somebody left is not known");
  sb_settings_configure(q, &(sb_settings){{3, -1, -1, 0, -1, -1}, 0}, true);
  expect_is(q->shm->bound, 0, "the bound of a ring that was trimmed: its size alone");
  SB_STORE(&q->shm->bound, 4, SB_RELAXED);
  sb_settings_configure(q, &(sb_settings){{-1, -1, -1, 0, -1, -1}, 0}, true);
  expect_is(q->shm->bound, 4, "the bound of what is no ring any more");
}

static const test_case CASES[] = {
    {"directory: names", "a queue is found by its name", queues_are_found_by_name},
    {"directory: layout", "a name has the same place and hash in each version", the_place_of_a_name},
    {"directory: no name", "what is closed, or has another name, is not found", what_is_not_found},
    {"directory: between", "entries of others are passed over", entries_in_between},
    {"directory: place", "a new entry takes the first place that is free", a_new_entry_takes_the_first_place},
    {"directory: queue", "a new queue has nothing of the last life but its places", a_new_queue},
    {"directory: settings", "a new queue has its settings", settings_of_a_queue},
    {"directory: no more", "a queue too many is refused", no_more_queues},
    {"directory: removed", "a name that is removed is counted once", a_name_is_removed},
    {"directory: turn", "queues come one after the other", queues_in_turn},
    {"directory: no queue", "an entry of a slot that is no queue by now is gone", an_entry_of_a_slot_that_is_no_queue},
    {"directory: sweep", "a sweep frees what ended, and counts what is left", what_a_sweep_frees},
    {"directory: buried", "entries that are gone do not make searches longer", entries_are_buried},
    {"directory: again", "an entry of a slot that is used again goes", an_entry_of_a_slot_that_is_used_again},
    {"directory: lock", "the lock is one process's, as often as it takes it", the_lock_of_the_topology},
    {"directory: deletion", "a deletion that was begun is finished", a_deletion_is_finished},
    {"directory: configured", "settings that were announced are finished", new_settings_are_finished},
    {"directory: announced", "settings are announced before they are stored", settings_are_announced},
    {"directory: ring", "the bound of a ring is found when it changes", bounds_of_a_ring},
};
SUBJECT(CASES)
