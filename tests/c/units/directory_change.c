// SPDX-License-Identifier: Apache-2.0
/* sb_topology, sb_settings, sb_directory: waits for the topology lock, settings that are changed step by step, and
 * entries that change or are damaged. */
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "meanwhile.h"
#include "proc.h"
#include "queues.h"
#include "sb_directory.h"
#include "sb_limits.h"
#include "sb_settings.h"
#include "sb_topology.h"
#include "sb_wait.h"
#include "system.h"

#define A_MILLISECOND UINT64_C(1000000)

static sb_queue *q;
static sb_header_shm *h;

static void begin(sb_settings settings, unsigned messages) {
  h = t.b->header;
  if (declare(&t, "q", settings) != SB_OK) die("declare", 0);
  q = open_queue(&t, "q");
  for (unsigned i = 0; i < messages; i++) {
    if (put(&t, q, i + 1) != SB_OK) die("put", 0);
  }
}
static uint32_t find(const char *name) { return sb_directory_find(t.b, name, (uint32_t)strlen(name)); }
static uint32_t index_of(uint32_t slot) {
  for (uint32_t i = 0; i < SB_DIRECTORY_SIZE; i++) {
    uint64_t entry = SB_LOAD(&t.b->directory[i], SB_RELAXED);
    if ((entry & 3) != SB_DIR_EMPTY && SB_BITS(entry, 2, 28) == slot) return i;
  }
  return UINT32_MAX;
}
static uint64_t next_holding(void) {
  uint64_t next;
  if (sb_holding_take(t.c, &next) != SB_OK) die("sb_holding_take", 0);
  sb_holding_give(t.c, next);
  return next;
}

/* ---- the lock of the topology ---- */

/* A thread of this process has it: its file description would get the byte, too. */
static void another_thread_has_it(void) {
  int32_t holder;
  answer_for_the_system();
  pthread_mutex_lock(&sb_topology_mutex);
  expect_is(sb_topology_lock(t.b, says.now_ns, &holder), SB_TIMEOUT, "the status");
  pthread_mutex_unlock(&sb_topology_mutex);
  expect_is(sb_topology_lock(t.b, says.now_ns, &holder), SB_OK, "the status when the thread let it go");
  sb_topology_unlock(t.b, false);
}
static void no_holder_is_seen_later(void) {
  if (says.looks == 2) SB_STORE(&t.b->header->topology_pid, 0u, SB_RELAXED);
}
static void another_process_has_it(void) {
  int32_t holder = 9;
  answer_for_the_system();
  int fd = hold_byte(SB_LOCK_TOPOLOGY);
  SB_STORE(&t.b->header->topology_pid, 77u, SB_RELAXED);
  says.looked = no_holder_is_seen_later;
  expect_is(sb_topology_lock(t.b, says.now_ns + 3 * A_MILLISECOND, &holder), SB_TIMEOUT, "the status");
  expect_is(holder, 77, "the holder that was seen last");
  expect_is(says.naps, 3, "how often it waited");
  expect_is(says.nap_ns, A_MILLISECOND, "how long");
  expect(pthread_mutex_trylock(&sb_topology_mutex) == 0, "the other threads of the process are locked out");
  pthread_mutex_unlock(&sb_topology_mutex);
  close(fd);
  expect_is(sb_topology_lock(t.b, says.now_ns, &holder), SB_OK, "the status when the process let it go");
  expect_is(holder, 0, "the holder when it was not waited for");
  sb_topology_unlock(t.b, false);
}

/* ---- settings ---- */

static void configure(sb_settings settings, bool trim) { sb_settings_configure(q, &settings, trim); }
static void limits_are_kept_from_zero(void) {
  const sb_settings k[] = {
      {{0, -1, -1, 0, -1, -1}, 0}, {{-1, 0, -1, 0, -1, -1}, 0}, {{-1, -1, 0, 0, -1, -1}, 0}, FREELY};
  begin(UNLIMITED, 0);
  for (unsigned i = 0; i < 4; i++) {
    SB_STORE(&q->shm->tracking, 0, SB_RELAXED);
    configure(k[i], false);
    expect(SB_LOAD(&q->shm->tracking, SB_RELAXED) == (i < 3), "%u: whether limits are kept", i);
  }
}
static void hints_of_a_queue_that_tracks(void) {
  begin((sb_settings){{-1, 5, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}, 0);
  SB_STORE(&q->shm->taken, 77, SB_RELAXED);
  configure((sb_settings){{-1, 6, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}, false);
  expect_is(q->shm->taken, 77, "what was taken");
}
/* A get stores the time of its use only if the queue expires. So the time before the change says nothing. */
static void a_queue_that_begins_to_expire(void) {
  begin(UNLIMITED, 0);
  SB_STORE(&q->shm->used_ns, 1, SB_RELAXED);
  configure((sb_settings){{-1, -1, -1, 0, -1, 1}, 0}, false);
  uint64_t begun = SB_LOAD(&q->shm->used_ns, SB_RELAXED);
  expect(begun > 1, "a queue expires by a time from before it could");
  SB_STORE(&q->shm->used_ns, 7, SB_RELAXED);
  configure((sb_settings){{-1, -1, -1, 0, -1, 2}, 0}, false);
  expect_is(q->shm->used_ns, 7, "the time of the last use of a queue that expires");
}
/* A process is killed between the first store and the hints: whoever makes the change again begins with the hints. */
static void hints_of_one_who_died(void) {
  begin(UNLIMITED, 5);
  SB_STORE(&q->shm->taken, 77, SB_RELAXED);
  SB_STORE(&q->shm->tracking, SB_TRACKING_UNSURE, SB_RELAXED);
  configure((sb_settings){{-1, 6, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}, false);
  expect_is(q->shm->taken, 0, "what was taken");
  expect_is(q->shm->tracking, SB_TRACKING_SURE, "whether the hints are sure");
}
static int32_t tracking_meanwhile;
static void note_tracking(void) { tracking_meanwhile = SB_LOAD(&q->shm->tracking, SB_RELAXED); }
static void hints_are_unsure_meanwhile(void) {
  begin(UNLIMITED, 5);
  meanwhile(&q->shm->taken, BEFORE_LOAD, 1, note_tracking);
  configure((sb_settings){{-1, 6, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}, false);
  if (has_acted()) expect_is(tracking_meanwhile, SB_TRACKING_UNSURE, "whether they were sure while they were counted");
}
/* The hints come before the limits that believe them: other processes see them in this order. */
static int64_t length_before;
static void note_the_length(void) { length_before = SB_LOAD(&q->shm->settings[SB_SETTING_MAX_LENGTH], SB_RELAXED); }
static void hints_come_before_limits(void) {
  begin(UNLIMITED, 0);
  meanwhile(&q->shm->tracking, BEFORE_STORE, 1, note_the_length);
  note_order(&q->shm->tracking);
  configure((sb_settings){{-1, 6, -1, SB_OVERFLOW_BLOCK, -1, -1}, 0}, false);
  if (!has_acted()) return;
  expect(length_before == -1, "the limit came first");
  expect_is(noted_order(), SB_SEQ_CST, "the order of the store");
}
static uint64_t bound_meanwhile;
static void note_the_bound(void) { bound_meanwhile = SB_LOAD(&q->shm->bound, SB_RELAXED); }
/* While the size is another one already and the bound is not known, nothing is evicted. */
static void a_bound_that_is_not_known(void) {
  begin(UNLIMITED, 5);
  meanwhile(&q->shm->settings[SB_SETTING_RING_SIZE], BEFORE_STORE, 1, note_the_bound);
  note_order(&q->shm->bound);
  configure((sb_settings){{0, -1, -1, 0, -1, -1}, 0}, false);
  expect_is(q->shm->bound, 5, "the bound of a ring of no message, which is not trimmed");
  if (!has_acted()) return;
  expect_is(bound_meanwhile, INT64_MAX, "the bound meanwhile");
  expect_is(noted_order(), SB_SEQ_CST, "the order of the store");
  SB_STORE(&q->shm->bound, INT64_MAX, SB_RELAXED);
  configure((sb_settings){{0, -1, -1, 0, -1, -1}, 0}, false);
  expect_is(q->shm->bound, 5, "the bound that another process left");
}
/* A change of the limits and of the overflow: meanwhile no put meets the limits of the one with the overflow of the
 * other. The process that makes the change may be stopped or killed between its steps. */
static uint64_t ready_meanwhile, refused_meanwhile;
static sb_status put_meanwhile;
static void put_one_meanwhile(void) {
  put_meanwhile = put(&t, q, 9);
  ready_meanwhile = (uint64_t)sb_queue_ready(t.b, q->shm);
  refused_meanwhile = SB_LOAD(&q->ledger->counters[SB_COUNT_REFUSED], SB_RELAXED);
}
typedef struct {
  unsigned before; /* the store of this setting */
  sb_status status;
  uint64_t ready;
} meeting;
static void change_of_limits(sb_settings from, sb_settings to, const meeting *m) {
  uint64_t removed;
  int32_t holder;
  begin(from, 5);
  meanwhile(&q->shm->settings[m->before], BEFORE_STORE, 1, put_one_meanwhile);
  configure(to, false);
  for (unsigned i = 0; i < SB_SETTINGS; i++) expect_is(q->shm->settings[i], to.values[i], "a setting afterwards");
  if (has_acted()) {
    expect_is(put_meanwhile, m->status, "the status of a put meanwhile");
    expect_is(ready_meanwhile, m->ready, "how many are ready then");
    expect_is(refused_meanwhile, 0, "how many were dropped");
  }
  if (sb_queue_delete(q, false, false, FOREVER, &holder, &removed) != SB_OK) die("sb_queue_delete", 0);
}
static void limits_change_with_the_overflow(void) {
  const sb_settings many_head = {{-1, 1000, 100000, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0},
                    many_new = {{-1, 1000, 100000, SB_OVERFLOW_DROP, -1, -1}, 0},
                    five_head = {{-1, 5, 5 * A_MESSAGE, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0},
                    two = {{-1, 2, 2 * A_MESSAGE, SB_OVERFLOW_BLOCK, -1, -1}, 0},
                    any = {{-1, -1, -1, SB_OVERFLOW_DROP, -1, -1}, 0};
  /* limits that fall, from evictions to refusals: the lower limits evict nothing */
  change_of_limits(many_head, two, &(meeting){SB_SETTING_OVERFLOW, SB_OK, 6});
  change_of_limits(many_head, two, &(meeting){SB_SETTING_MAX_LENGTH, SB_OK, 6});
  change_of_limits(many_head, two, &(meeting){SB_SETTING_MAX_BYTES, SB_FULL, 5});
  /* ... from refusals to evictions: the lower limits drop no new message */
  change_of_limits(many_new, five_head, &(meeting){SB_SETTING_OVERFLOW, SB_OK, 6});
  change_of_limits(many_new, five_head, &(meeting){SB_SETTING_MAX_LENGTH, SB_OK, 6});
  change_of_limits(many_new, five_head, &(meeting){SB_SETTING_MAX_BYTES, SB_OK, 5});
  /* limits that rise: the old limits drop no new message */
  change_of_limits(five_head, any, &(meeting){SB_SETTING_MAX_LENGTH, SB_OK, 5});
  change_of_limits(five_head, any, &(meeting){SB_SETTING_MAX_BYTES, SB_OK, 5});
  change_of_limits(five_head, any, &(meeting){SB_SETTING_OVERFLOW, SB_OK, 6});
  change_of_limits(five_head, many_new, &(meeting){SB_SETTING_MAX_LENGTH, SB_OK, 5});
  change_of_limits(five_head, many_new, &(meeting){SB_SETTING_OVERFLOW, SB_OK, 6});
  /* limits where there were none: the old overflow does not meet them */
  change_of_limits(any, five_head, &(meeting){SB_SETTING_OVERFLOW, SB_OK, 6});
}
static void a_queue_is_trimmed_when_asked(void) {
  begin(UNLIMITED, 5);
  const sb_settings two = {{-1, 2, -1, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0};
  configure(two, false);
  expect_is(sb_queue_ready(t.b, q->shm), 5, "how many are ready");
  configure(two, true);
  expect_is(sb_queue_ready(t.b, q->shm), 2, "how many are ready when it was trimmed");
}
/* The next holder of the lock trims as it was announced, and keeps no ledger. */
static void a_trim_is_finished(void) {
  begin(UNLIMITED, 5);
  const sb_settings announced = {{-1, 2, -1, SB_OVERFLOW_DROP_HEAD, -1, -1}, 0};
  for (unsigned trim = 0; trim < 2; trim++) {
    announce_settings(&announced, trim != 0);
    SB_STORE(&h->topology_intent, sb_topology_word(SB_CHANGE_CONFIGURE, q->slot), SB_RELAXED);
    uint64_t next = next_holding();
    sb_topology_finish(t.c);
    expect_is(next_holding(), next, "the next holding");
    expect_is(sb_queue_ready(t.b, q->shm), trim != 0 ? 2 : 5, "how many are ready");
    for (sb_ledger_shm *l = sb_ledger_at(t.b, q->shm->ledgers); l != NULL; l = sb_ledger_at(t.b, l->next))
      expect(l == q->ledger || (l->owner & 0xfff) == 0, "a ledger was kept");
  }
}

/* Without memory for a ledger the next holder makes the change all the same, and evicts nothing: the next put does. */
static void a_change_is_finished_without_memory(void) {
  const sb_settings announced = {{2, 3, 100000, SB_OVERFLOW_DROP_HEAD, 7, -1}, SB_QUEUE_PAUSED};
  begin(UNLIMITED, 5);
  leave_holdings(0);
  announce_settings(&announced, true);
  SB_STORE(&h->topology_intent, sb_topology_word(SB_CHANGE_CONFIGURE, q->slot), SB_RELAXED);
  sb_topology_finish(t.c);
  expect_is(h->topology_intent, 0, "the intent");
  for (unsigned i = 0; i < SB_SETTINGS; i++) expect_is(q->shm->settings[i], announced.values[i], "a setting");
  expect_is(q->shm->flags, SB_QUEUE_PAUSED | SB_QUEUE_TTL, "the flags");
  expect_is(q->shm->bound, 0, "the bound");
  expect_is(q->shm->tracking, SB_TRACKING_SURE, "whether limits are kept");
  expect_is(sb_queue_ready(t.b, q->shm), 5, "how many are ready");
}
/* The queue of the change may lie in the segment that this process cannot map. */
static void a_change_that_cannot_be_looked_at(void) {
  const sb_settings announced = {{-1, 3, -1, 0, -1, -1}, 0};
  const uint64_t intent = sb_topology_word(SB_CHANGE_CONFIGURE, 5);
  int32_t holder;
  begin(UNLIMITED, 0);
  grow_to(CHUNKS_PER_SEGMENT + 1);
  announce_settings(&announced, false);
  SB_STORE(&h->topology_intent, intent, SB_RELAXED);
  SB_STORE(&h->topology_pid, 77u, SB_RELAXED);
  t.b->mapped_segments = 1;
  t.b->mapped_chunks = CHUNKS_PER_SEGMENT;
  opens_to_fail = 1;
  expect_is(sb_topology_lock(t.b, FOREVER, &holder), SB_SYSTEM, "the status");
  expect_is(opens_to_fail, 0, "how many files were not opened");
  expect_is(h->topology_intent, intent, "the intent");
  expect_is(h->topology_pid, 77, "the holder that was killed");
  expect(pthread_mutex_trylock(&sb_topology_mutex) == 0, "the other threads of the process are locked out");
  pthread_mutex_unlock(&sb_topology_mutex);
  int fd = hold_byte(SB_LOCK_TOPOLOGY);
  close(fd);
  expect_is(sb_topology_lock(t.b, FOREVER, &holder), SB_OK, "the status when the memory can be read");
  sb_topology_unlock(t.b, false);
}

/* ---- entries ---- */

static void the_owner_of_a_queue(void) {
  begin(UNLIMITED, 0);
  expect_is(q->shm->owner_connection, t.c->id, "the connection of the owner");
  expect_is(q->shm->owner_epoch, sb_conn_epoch(SB_LOAD(&t.b->connections[t.c->id], SB_RELAXED)), "its epoch");
}
static void names_of_any_length(void) {
  char longest[SB_NAME_MAX + 1];
  uint32_t slot, nameless;
  const sb_settings s = FREELY;
  memset(longest, 'n', sizeof longest);
  begin(UNLIMITED, 0);
  expect_is(sb_directory_create(t.c, longest, SB_NAME_MAX, &s, &slot), SB_OK, "the status of the longest name");
  expect(sb_directory_links(t.b, slot), "the longest name has no entry");
  expect_is(sb_directory_create(t.c, longest, SB_NAME_MAX + 1, &s, &slot), SB_OK, "the status of a longer one");
  expect_is(sb_directory_find(t.b, longest, SB_NAME_MAX + 1), 0, "a name that is too long");
  expect_is(sb_directory_create(t.c, "", 0, &s, &nameless), SB_OK, "the status of no name");
  SB_STORE(&((sb_queue_shm *)sb_slot_at(t.b, nameless))->name_length, SB_NAME_MAX + 1u, SB_RELAXED);
  expect(sb_directory_links(t.b, nameless), "the entry of a queue with a broken name is not found");
}
static uint32_t changing;
static void remove_the_entry(void) {
  sb_word *word = &t.b->directory[changing];
  SB_STORE(word, (SB_LOAD(word, SB_RELAXED) & ~UINT64_C(3)) | SB_DIR_DEAD, SB_RELAXED);
}
static void an_entry_that_changes(void) {
  begin(UNLIMITED, 0);
  changing = index_of(q->slot);
  uint64_t entry = SB_LOAD(&t.b->directory[changing], SB_RELAXED);
  meanwhile(&t.b->directory[changing], AFTER_LOAD, 1, remove_the_entry);
  uint32_t found = find("q");
  if (has_acted()) expect_is(found, 0, "a queue whose entry went meanwhile");
  SB_STORE(&t.b->directory[changing], entry, SB_RELAXED);
  uint32_t index = 0;
  meanwhile(&t.b->directory[changing], AFTER_LOAD, 1, remove_the_entry);
  found = sb_directory_next(t.b, &index, false);
  if (has_acted()) expect_is(found, 0, "the next queue, whose entry went meanwhile");
}
static void the_end_of_a_look_around(void) {
  begin(UNLIMITED, 0);
  uint32_t index = 0, end = index_of(q->slot);
  expect_is(sb_directory_next_before(t.b, &index, end, false), 0, "the queue before that entry");
  expect_is(index, end, "where the look ended");
  index = end + 1;
  expect_is(sb_directory_next_before(t.b, &index, end + 5, false), 0, "the queue behind that entry");
  expect_is(index, end + 5, "where the look ended");
}

/* ---- sweeps ---- */

static void close_and_remove(void) {
  SB_STORE(&q->shm->state, q->state + SB_QUEUE_CLOSED - SB_QUEUE_OPEN, SB_RELAXED);
  sb_directory_remove(t.b, q->slot);
}
static void messages_go_with_their_queue(void) {
  begin(UNLIMITED, 3);
  sb_queue_detach(q);
  close_and_remove();
  expect_is(sb_directory_sweep(t.c), 0, "how many are left");
  expect_is(q->shm->state & 3, SB_QUEUE_NONE, "the state of the queue");
}
/* It stays, with its messages, until its ledgers can be read. */
static void a_queue_with_broken_ledgers(void) {
  begin(UNLIMITED, 3);
  sb_queue_detach(q);
  uint32_t ledgers = SB_LOAD(&q->shm->ledgers, SB_RELAXED);
  SB_STORE(&q->shm->ledgers, q->slot, SB_RELAXED); /* which is no ledger */
  close_and_remove();
  expect_is(sb_directory_sweep(t.c), 1, "how many are left");
  SB_STORE(&q->shm->ledgers, ledgers, SB_RELAXED);
  expect_is(sb_directory_sweep(t.c), 0, "how many are left when it can be read");
}
static void a_queue_whose_name_is_broken(void) {
  begin(UNLIMITED, 0);
  sb_queue_detach(q);
  close_and_remove();
  q->shm->name[0] = 'r';
  expect_is(sb_directory_sweep(t.c), 1, "how many are left");
  expect_is(q->shm->state & 3, SB_QUEUE_CLOSED, "the state of the queue");
}

static const test_case CASES[] = {
    {"directory_change: thread", "the lock is one thread's", another_thread_has_it},
    {"directory_change: process", "who waits for the lock is told its holder", another_process_has_it},
    {"directory_change: limits", "a limit of 0 is a limit", limits_are_kept_from_zero},
    {"directory_change: tracks", "hints of a queue that tracks stay", hints_of_a_queue_that_tracks},
    {"settings: expires", "the time of a queue that begins to expire begins with the change",
     a_queue_that_begins_to_expire},
    {"settings: hints of the dead", "a change that is made again begins with the hints", hints_of_one_who_died},
    {"settings: hints unsure", "hints are not sure before they are counted", hints_are_unsure_meanwhile},
    {"directory_change: first", "hints come before the limits", hints_come_before_limits},
    {"directory_change: bound", "while its bound is not known a ring evicts nothing", a_bound_that_is_not_known},
    {"settings: both limits", "limits and overflow of different settings never meet", limits_change_with_the_overflow},
    {"directory_change: trim", "a queue is trimmed when that was asked for", a_queue_is_trimmed_when_asked},
    {"directory_change: finished", "a trim that was announced is finished", a_trim_is_finished},
    {"topology: no memory", "a change is finished without memory", a_change_is_finished_without_memory},
    {"topology: unmapped", "a change in a segment that cannot be mapped stays announced",
     a_change_that_cannot_be_looked_at},
    {"directory_change: owner", "a queue knows the connection that made it", the_owner_of_a_queue},
    {"directory_change: lengths", "a name has up to 255 bytes", names_of_any_length},
    {"directory_change: changed", "an entry that went is not believed", an_entry_that_changes},
    {"directory_change: end", "a look around ends where it should", the_end_of_a_look_around},
    {"directory_change: messages", "messages go with their queue", messages_go_with_their_queue},
    {"directory_change: ledgers", "a queue with broken ledgers stays", a_queue_with_broken_ledgers},
    {"directory_change: name", "a queue with a broken name stays", a_queue_whose_name_is_broken},
};
SUBJECT(CASES)
