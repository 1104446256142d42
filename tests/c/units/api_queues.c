// SPDX-License-Identifier: Apache-2.0
/* sb_api_queues: names, handles and settings of queues, and the topology lock. The content of a queue:
 * api_queues_facts.c. Moves: api_queues_moved.c. */
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "meanwhile.h"
#include "queues.h"
#include "sb_api.h"
#include "sb_topology.h"

static uint32_t slot_of(const char *name) {
  uint32_t slot = 77;
  if (sb_queue_find(t.c, name, (uint32_t)strlen(name), &slot) != SB_OK) return 0;
  return slot;
}
static sb_status declare_now(const char *name, uint64_t deadline_ns, uint32_t *slot, int32_t *holder) {
  const sb_settings free_settings = FREELY;
  return sb_queue_declare(t.c, name, (uint32_t)strlen(name), &free_settings, deadline_ns, slot, holder);
}
/* As a process leaves it that was killed in the middle of a change of settings. */
static void leave_configuring(const sb_queue *q, int64_t ring_size) {
  const sb_settings announced = {{ring_size, -1, -1, 0, -1, -1}, 0};
  announce_settings(&announced, false);
  SB_STORE(&t.b->header->topology_intent, sb_topology_word(SB_CHANGE_CONFIGURE, q->slot), SB_SEQ_CST);
}

/* ---- names ---- */

static void a_name_is_looked_up(void) {
  uint32_t slot = 77;
  sb_queue *q = open_new("a", UNLIMITED);
  expect_is(sb_queue_find(t.c, "a", 1, &slot), SB_OK, "the status of a name");
  expect_is(slot, q->slot, "its slot");
  expect_is(sb_queue_find(t.c, "b", 1, &slot), SB_NOT_FOUND, "the status of a name that no queue has");
  expect_is(slot, 0, "its slot");
  for (unsigned i = 0; i < REFUSALS; i++) {
    slot = 77;
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_queue_find(t.c, "a", 1, &slot), REFUSAL[i], "the status of a refusal");
    expect_is(slot, 77, "the slot when it was refused");
  }
}
static void queues_are_listed(void) {
  uint32_t index = 0;
  sb_queue *q = open_new("a", UNLIMITED);
  expect_is(sb_queue_next(t.c, &index), q->slot, "the first queue");
  expect_is(sb_queue_next(t.c, &index), 0, "what follows the last one");
  for (unsigned i = 0; i < REFUSALS; i++) {
    index = 0;
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_queue_next(t.c, &index), 0, "the first queue when it was refused");
    expect_is(index, 0, "the index when it was refused");
  }
}

/* ---- declaring ---- */

static void a_queue_is_declared(void) {
  uint32_t slot = 77, again = 77;
  int32_t holder = 5;
  uint64_t epoch = t.b->header->topology_epoch;
  sb_queue *other = open_new("other", UNLIMITED);
  leave_configuring(other, 7);
  begin_watching(t.c);
  expect_is(declare_now("a", AT_ONCE, &slot, &holder), SB_OK, "the status");
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect_is(holder, 0, "who has the lock of the topology");
  expect_is(slot, slot_of("a"), "its slot");
  expect_is(other->shm->settings[SB_SETTING_RING_SIZE], 7, "what a killed process had announced");
  expect_is(t.c->use, SB_USE_DRAIN, "what memory is taken for afterwards");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock of the connection");
  expect_is(t.b->header->topology_pid, 0, "who has the lock afterwards");
  expect_is(t.b->header->topology_epoch, epoch + 2, "the epoch");
  expect_is(declare_now("a", AT_ONCE, &again, &holder), SB_EXISTS, "the status of a name that is taken");
  expect_is(again, slot, "the slot of a name that is taken");
  expect_is(t.b->header->queue_count, 2, "how many queues there are");
}
static void who_cannot_declare(void) {
  uint32_t slot = 77;
  int32_t holder = 0;
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(declare_now("a", AT_ONCE, &slot, &holder), REFUSAL[i], "the status of a refusal");
    expect_untouched(t.c, "a refused declaration");
    expect_is(slot, 77, "the slot when it was refused");
  }
  refuse(t.c, SB_OK);
  int fd = hold_byte(SB_LOCK_TOPOLOGY);
  SB_STORE(&t.b->header->topology_pid, 78u, SB_RELAXED);
  expect_is(declare_now("a", AT_ONCE, &slot, &holder), SB_TIMEOUT, "the status while another process has the lock");
  expect_is(holder, 78, "who has it");
  expect_untouched(t.c, "a declaration without the lock of the topology");
  close(fd);
  expect_is(slot_of("a"), 0, "a queue that was not declared");
}
/* The last chunk is left to calls that drain the broker. */
static void a_queue_takes_no_last_chunk(void) {
  uint32_t slot = 77;
  int32_t holder;
  leave_free(1);
  expect_is(declare_now("a", AT_ONCE, &slot, &holder), SB_NO_MEMORY, "the status with one chunk left");
  expect_is(sb_chunk_spare(t.b), 1, "the chunks that are left");
  expect_is(t.c->use, SB_USE_DRAIN, "what memory is taken for afterwards");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock of the connection");
  for (uint32_t i = 0; i < BROKER_CHUNKS; i++) {
    if (SB_LOAD(&t.b->chunks[i], SB_RELAXED) != sb_chunk_word(SB_CHUNK_TAIL, 0, 0, 1)) continue;
    SB_STORE(&t.b->chunks[i], 0, SB_RELAXED);
    break;
  }
  expect_is(declare_now("a", AT_ONCE, &slot, &holder), SB_OK, "the status with two chunks left");
}
static void a_queue_takes_the_slot_of_a_deleted_one(void) {
  uint32_t slot = 77;
  int32_t holder;
  uint64_t removed;
  sb_queue *q = open_new("a", UNLIMITED);
  uint32_t was = q->slot, chunk = was / SB_CHUNK_UNITS;
  put(&t, q, 1); /* the deletion needs no more memory than the page of that one */
  leave_free(0);
  sb_slab_return_cache(t.c);
  use_up(chunk);
  expect_is(sb_queue_delete(q, false, false, AT_ONCE, &holder, &removed), SB_OK, "the status of the deletion");
  expect(sb_queue_close(q), "the handle of a deleted queue stays");
  expect_is(declare_now("b", AT_ONCE, &slot, &holder), SB_OK, "the status");
  expect_is(slot, was, "its slot");
  expect_is(t.c->use, SB_USE_DRAIN, "what memory is taken for afterwards");
}

/* ---- the lock of the topology, and what moves on with it ---- */

static void a_change_of_the_dead_is_finished_first(void) {
  int32_t holder = 5;
  sb_queue *q = open_new("a", UNLIMITED);
  leave_configuring(q, 7);
  expect_is(sb_topology_begin(t.c, AT_ONCE, &holder), SB_OK, "the status");
  expect_is(q->shm->settings[SB_SETTING_RING_SIZE], 7, "what a killed process had announced");
  sb_topology_end(t.c);
}
static void several_changes_under_one_lock(void) {
  int32_t holder = 5;
  uint64_t epoch = t.b->header->topology_epoch;
  expect_is(sb_topology_begin(t.c, AT_ONCE, &holder), SB_OK, "the status");
  expect_is(holder, 0, "who has the lock");
  expect_is(t.b->header->topology_pid, (uint32_t)getpid(), "who says to have it");
  refuse(t.c, SB_FORKED);
  sb_topology_end(t.c);
  expect_is(t.b->header->topology_pid, (uint32_t)getpid(), "who says to have it when a child ended it");
  refuse(t.c, SB_CLOSED);
  sb_topology_end(t.c);
  expect_is(t.b->header->topology_pid, 0, "who says to have it at the end");
  expect_is(t.b->header->topology_epoch, epoch + 1, "the epoch");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_topology_begin(t.c, AT_ONCE, &holder), REFUSAL[i], "the status of a refusal");
    expect_is(t.b->header->topology_pid, 0, "who says to have it when it was refused");
  }
  refuse(t.c, SB_OK);
  int fd = hold_byte(SB_LOCK_TOPOLOGY);
  expect_is(sb_topology_begin(t.c, AT_ONCE, &holder), SB_TIMEOUT, "the status while another process has the lock");
  close(fd);
}
static void what_moves_on(void) {
  SB_STORE(&t.b->header->topology_epoch, 40, SB_RELAXED);
  sb_topology_journal_commit(t.c, 5);
  SB_STORE(&t.b->header->queues_ended, 3u, SB_RELAXED);
  expect_is(sb_topology_journal(t.c), 5, "the journal");
  expect_is(sb_topology_version(t.c), 45, "the version");
  expect_is(sb_topology_queues_ended(t.c), 3, "how many queues ended");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_topology_queues_ended(t.c), 0, "how many queues ended when it was refused");
    expect_is(sb_topology_version(t.c), REFUSAL[i] == SB_CLOSED ? 0 : 45, "the version when it was refused");
  }
}
static void a_queue_is_used(void) {
  sb_queue *q = open_new("a", UNLIMITED);
  SB_STORE(&q->shm->flags, (uint32_t)SB_QUEUE_EXPIRES, SB_RELAXED);
  SB_STORE(&q->shm->used_ns, 0, SB_RELAXED);
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    sb_queue_touch(t.c, q->slot);
    expect_is(q->shm->used_ns, 0, "when it was used, of a touch that was refused");
    expect_untouched(t.c, "a refused touch");
  }
  refuse(t.c, SB_OK);
  sb_queue_touch(t.c, q->slot);
  expect(q->shm->used_ns != 0, "it was not used");
  expect_is(times_locked(), 1, "how often the lock was taken");
  sb_queue_touch(t.c, q->slot + 1); /* in the middle of it */
  sb_queue_touch(t.c, 0);
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock after a touch of what is no queue");
}

/* ---- handles ---- */

static void a_queue_is_opened(void) {
  sb_status status = SB_SYSTEM;
  sb_queue *first = open_new("a", UNLIMITED);
  uint32_t handles = t.c->handles, slot = first->slot;
  expect_locked_in(t.c, "sb_api_queues.c");
  sb_queue *q = sb_queue_open(t.c, slot, &status);
  was_locked("while a handle is added");
  expect_is(status, SB_OK, "the status");
  expect(q != NULL && q->slot == slot && q->c == t.c && q->ledger != NULL, "it is no handle");
  expect(t.c->queues == q && q->next == first, "the connection does not know the handle");
  expect_is(t.c->handles, handles + 1, "how many handles the connection has");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  for (unsigned i = 0; i < SB_MAX_CLASSES; i++) expect_is(t.c->cache[i].mask, 0, "hints that the connection keeps");
  expect_is(sb_queue_open(t.c, slot, &status) != NULL, 1, "whether it is opened once more");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    status = SB_OK;
    expect(sb_queue_open(t.c, slot, &status) == NULL, "a handle was opened in state %u", i);
    expect_is(status, REFUSAL[i], "the status of a refusal");
    expect_untouched(t.c, "a refused handle");
  }
  expect_is(t.c->handle_count, 3, "how many queues are open");
}
/* Another process deletes the queue as the call that opens it leaves, and the next call looks at its handles. */
static sb_queue *seen_before;
static void deleted_as_it_is_opened(void) {
  close_by_hand(seen_before);
  (void)SB_ADD(&t.b->header->queues_closed, 1u, SB_SEQ_CST);
  sb_handles_look_at_all(t.c);
}
static void a_new_handle_is_looked_at(void) {
  sb_status status = SB_SYSTEM;
  seen_before = open_new("a", UNLIMITED);
  meanwhile(&t.c->lock, BEFORE_STORE, 1, deleted_as_it_is_opened);
  sb_queue *q = sb_queue_open(t.c, seen_before->slot, &status);
  if (!has_acted()) return;
  expect(status == SB_OK && q != NULL, "it was not opened");
  expect(q->ledger == NULL || sb_handles_stir(t.c), "the next call does not look at the new handle");
}
static uint32_t wanted_slot;
static void open_without_memory(void) {
  sb_status status = SB_OK;
  expect(sb_queue_open(t.c, wanted_slot, &status) == NULL, "a handle was opened without memory");
  expect_is(status, SB_SYSTEM, "the status without memory");
  expect_untouched(t.c, "a handle without memory");
}
static void a_queue_that_is_gone_is_not_opened(void) {
  sb_status status = SB_OK;
  sb_queue *q = open_new("a", UNLIMITED);
  close_by_hand(q);
  uint64_t before = 0;
  for (unsigned i = 0; i < 40; i++) {
    if (i == 20) before = allocated_bytes(); /* the first ones fill lists of malloc */
    expect(sb_queue_open(t.c, q->slot, &status) == NULL, "a deleted queue was opened");
    expect_is(status, SB_DELETED, "the status of a deleted queue");
  }
  expect_is(allocated_bytes(), before, "the bytes that failed calls keep");
  expect_is(t.c->handle_count, 1, "how many queues are open");
  SB_STORE(&q->shm->state, q->state, SB_SEQ_CST);
  wanted_slot = q->slot;
  begin_watching(t.c);
  without_memory(open_without_memory);
}
static void a_handle_is_left(void) {
  char record[4096];
  sb_queue *q = open_new("a", UNLIMITED);
  put(&t, q, 1);
  (void)get(&t, q, record, false);
  expect(!sb_queue_close(q), "a handle was left whose message is held");
  expect(q->ledger != NULL && t.c->queues == q, "a handle whose message is held is gone");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
  expect_is(sb_queue_settle(q, record, SB_ACK), SB_OK, "the status of the settlement");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect(sb_queue_close(q), "a handle is in use in state %u", i);
    expect(q->ledger != NULL, "a handle was left in state %u", i);
    expect_untouched(t.c, "a refused end of a handle");
  }
  refuse(t.c, SB_OK);
  expect(sb_queue_close(q), "an idle handle is in use");
  expect(q->ledger == NULL && t.c->queues == NULL, "an idle handle was not left");
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect(sb_queue_close(q), "a handle that was left is in use");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock after a handle that was left");
  refuse(t.c, SB_CLOSED);
  expect(sb_queue_close(q), "a handle that was left is in use when the connection is closed");
}
/* Otherwise no process would end it in time (I73). */
static void a_handle_of_an_exclusive_queue_stays(void) {
  sb_queue *q = open_new("own", ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_EXCLUSIVE}));
  expect(!sb_queue_close(q), "the owner left it");
  expect(q->ledger != NULL && t.c->queues == q, "the handle is gone");
  sb_word *owner = &q->shm->owner_epoch;
  uint64_t epoch = SB_LOAD(owner, SB_RELAXED);
  SB_STORE(owner, epoch + 1, SB_RELAXED);
  sb_queue *others = open_new("other", ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_EXCLUSIVE}));
  SB_STORE(&others->shm->owner_connection, t.c->id + 1, SB_RELAXED);
  expect(sb_queue_close(q), "a handle of an earlier connection's queue stays");
  expect(sb_queue_close(others), "a handle of somebody else's queue stays");
  sb_queue *deleted = open_new("deleted", ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_EXCLUSIVE}));
  close_by_hand(deleted);
  expect(sb_queue_close(deleted), "a handle of a deleted queue stays");
}
static sb_queue *without_its_owner(const char *name) {
  sb_queue *q = open_new(name, ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_EXCLUSIVE}));
  SB_STORE(&q->shm->owner_epoch, SB_LOAD(&q->shm->owner_epoch, SB_RELAXED) + 1, SB_RELAXED);
  return q;
}
static void a_queue_without_its_owner_is_not_opened(void) {
  sb_status status = SB_OK;
  sb_queue *q = without_its_owner("a");
  sb_queue_shm *shm = q->shm;
  uint32_t ended = t.b->header->queues_ended;
  put(&t, q, 1);
  expect(sb_queue_open(t.c, q->slot, &status) == NULL, "it was opened");
  expect_is(status, SB_DELETED, "the status");
  expect(!sb_queue_is_open(q), "it has not ended");
  expect_is(t.b->header->queues_ended, ended + 1, "how many queues ended");
  expect_is(t.c->handle_count, 1, "how many queues are open");
  expect(sb_queue_close(q), "the handle that was open stays");
  expect(!sb_ledger_owned(t.b, shm), "somebody has it open");
  expect_is(slot_of("a"), 0, "the queue that is found by the name");
  q = without_its_owner("b");
  for (uint64_t i = 0; i < SB_PAGE_CELLS; i++) put(&t, q, 1);
  use_all_slots(SB_KIND_INNER); /* of which its closing cell needs one */
  expect(sb_queue_open(t.c, q->slot, &status) == NULL, "it was opened without memory");
  expect_is(status, SB_NO_MEMORY, "the status without memory");
  expect(sb_queue_is_open(q), "it has ended without memory");
  expect_is(t.c->handle_count, 1, "how many queues are open");
}

/* ---- settings, and the end ---- */

static sb_status configure(sb_queue *q, int64_t ring_size, int32_t *holder) {
  const sb_settings s = {{ring_size, -1, -1, 0, -1, -1}, 0};
  return sb_queue_configure(q, &s, false, AT_ONCE, holder);
}
static void a_queue_is_configured(void) {
  int32_t holder = 5;
  sb_queue *other = open_new("other", UNLIMITED), *q = open_new("a", UNLIMITED);
  uint64_t epoch = t.b->header->topology_epoch;
  leave_configuring(other, 7);
  begin_watching(t.c);
  expect_is(configure(q, 3, &holder), SB_OK, "the status");
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect_is(q->shm->settings[SB_SETTING_RING_SIZE], 3, "its size");
  expect_is(other->shm->settings[SB_SETTING_RING_SIZE], 7, "what a killed process had announced");
  expect_is(t.b->header->topology_epoch, epoch + 1, "the epoch");
  expect_is(t.b->header->topology_pid, 0, "who has the lock afterwards");
  for (unsigned i = 0; i < REFUSALS; i++) {
    refuse(t.c, REFUSAL[i]);
    expect_is(configure(q, 4, &holder), REFUSAL[i], "the status of a refusal");
    expect_untouched(t.c, "refused settings");
  }
  refuse(t.c, SB_OK);
  int fd = hold_byte(SB_LOCK_TOPOLOGY);
  expect_is(configure(q, 4, &holder), SB_TIMEOUT, "the status while another process has the lock");
  expect_untouched(t.c, "settings without the lock of the topology");
  close(fd);
  close_by_hand(q);
  expect_is(configure(q, 4, &holder), SB_DELETED, "the status of a deleted queue");
  expect_is(q->shm->settings[SB_SETTING_RING_SIZE], 3, "the size after all refusals");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
}
static void who_cannot_delete(void) {
  int32_t holder = 5;
  sb_queue *q = open_new("a", UNLIMITED);
  for (unsigned i = 0; i < REFUSALS; i++) {
    uint64_t removed = 77;
    refuse(t.c, REFUSAL[i]);
    expect_is(sb_queue_delete(q, false, false, AT_ONCE, &holder, &removed), REFUSAL[i], "the status of a refusal");
    expect_is(removed, 0, "how many messages a refusal removed");
    expect_untouched(t.c, "a refused deletion");
  }
  refuse(t.c, SB_OK);
  int fd = hold_byte(SB_LOCK_TOPOLOGY);
  uint64_t removed = 77;
  expect_is(sb_queue_delete(q, false, false, AT_ONCE, &holder, &removed), SB_TIMEOUT,
            "the status while another process has the lock");
  expect_is(removed, 0, "how many messages were removed without the lock");
  expect_untouched(t.c, "a deletion without the lock of the topology");
  close(fd);
  expect_is(slot_of("a"), q->slot, "a queue that was not deleted");
  close_by_hand(q);
  expect_is(sb_queue_delete(q, false, false, AT_ONCE, &holder, &removed), SB_DELETED, "the status of a deleted queue");
}
/* Killed between the end of the queue and that of its name, the next holder of the lock finds what was announced. */
static uint64_t announced;
static void look_at_intent(const char *site) {
  if (strcmp(site, "api.delete.closed") == 0)
    announced = atomic_load_explicit(&t.b->header->topology_intent, memory_order_relaxed);
}
static void a_queue_is_deleted(void) {
  int32_t holder = 5;
  uint64_t removed = 77;
  sb_queue *other = open_new("other", UNLIMITED), *q = open_new("a", UNLIMITED);
  uint64_t epoch = t.b->header->topology_epoch;
  put(&t, q, 1);
  put(&t, q, 2);
  leave_configuring(other, 7);
  begin_watching(t.c);
  at_step = look_at_intent;
  expect_is(sb_queue_delete(q, false, false, AT_ONCE, &holder, &removed), SB_OK, "the status");
  at_step = NULL;
  expect_is(times_locked(), 1, "how often the lock was taken");
  expect_is(removed, 2, "how many messages were removed");
  expect_is(other->shm->settings[SB_SETTING_RING_SIZE], 7, "what a killed process had announced");
  if (has_steps()) expect_is(announced, sb_topology_word(SB_CHANGE_DELETE, q->slot), "what is announced");
  expect_is(t.b->header->topology_intent, 0, "what is announced afterwards");
  expect_is(t.b->header->queues_ended, 1, "how often others are asked to remove bindings");
  expect_is(slot_of("a"), 0, "a queue that was deleted");
  expect_is(t.b->header->topology_epoch, epoch + 1, "the epoch");
  expect_is(t.b->header->topology_pid, 0, "who has the lock afterwards");
  expect_is(SB_LOAD(&t.c->lock, SB_RELAXED), 0, "the lock");
}
/* Who has the lock removes the bindings, too, and says so. If it does not, or is killed before, others are asked. */
static void the_bindings_of_a_deleted_queue(void) {
  int32_t holder = 5;
  uint64_t removed;
  sb_header_shm *h = t.b->header;
  const struct {
    bool says_so, is_killed;
    uint32_t asked;
  } cases[] = {{true, false, 0}, {false, false, 1}, {false, true, 1}};
  for (unsigned i = 0; i < 3; i++) {
    sb_queue *q = open_new("a", UNLIMITED);
    SB_STORE(&h->queues_ended, 0u, SB_RELAXED);
    expect_is(sb_topology_begin(t.c, AT_ONCE, &holder), SB_OK, "the status of the lock");
    expect_is(sb_queue_delete(q, false, false, AT_ONCE, &holder, &removed), SB_OK, "the status of a deletion");
    expect_is(h->topology_intent, sb_topology_word(SB_CHANGE_UNBIND, q->slot), "what is announced");
    expect_is(sb_topology_begin(t.c, AT_ONCE, &holder), SB_OK, "the status of the lock, once more");
    sb_topology_end(t.c);
    expect_is(h->topology_intent, sb_topology_word(SB_CHANGE_UNBIND, q->slot), "what is announced meanwhile");
    expect_is(h->queues_ended, 0, "how often others are asked while the holder may do it");
    if (cases[i].says_so) sb_topology_unbound(t.c);
    if (cases[i].is_killed) { /* the next holder does this first */
      sb_lock(t.c);
      sb_topology_finish(t.c);
      sb_unlock(t.c);
      expect_is(h->queues_ended, 1, "how often the next holder asks others");
    }
    sb_topology_end(t.c);
    expect_is(h->topology_intent, 0, "what is announced afterwards");
    expect_is(h->queues_ended, cases[i].asked, "how often others were asked");
  }
}
static void a_queue_that_stays_keeps_its_bindings(void) {
  int32_t holder = 5;
  uint64_t removed;
  sb_queue *q = open_new("a", UNLIMITED);
  put(&t, q, 1);
  expect_is(sb_queue_delete(q, false, true, AT_ONCE, &holder, &removed), SB_NOT_EMPTY, "the status");
  expect_is(t.b->header->topology_intent, 0, "what is announced");
  expect_is(t.b->header->queues_ended, 0, "how often others are asked to remove bindings");
}

/* The broker ends a queue by itself only if no message can return to it. */
static void an_idle_queue_is_deleted(void) {
  int32_t holder = 5;
  char record[4096];
  sb_queue *q = open_new("a", UNLIMITED);
  put(&t, q, 1);
  expect_is(sb_queue_delete_idle(q, AT_ONCE, &holder), SB_NOT_EMPTY, "the status beside a ready message");
  (void)get(&t, q, record, false);
  expect_is(sb_queue_delete_idle(q, AT_ONCE, &holder), SB_NOT_EMPTY, "the status beside a message that is held");
  expect_is(sb_queue_settle(q, record, SB_ACK), SB_OK, "the status of the ack");
  SB_STORE(&q->shm->consumers, 1, SB_RELAXED);
  expect_is(sb_queue_delete_idle(q, AT_ONCE, &holder), SB_IN_USE, "the status beside a consumer");
  SB_STORE(&q->shm->consumers, 0, SB_RELAXED);
  expect_is(sb_queue_delete_idle(q, AT_ONCE, &holder), SB_OK, "the status of an idle queue");
  expect_is(sb_queue_delete_idle(q, AT_ONCE, &holder), SB_DELETED, "the status of a deleted queue");
}

static const test_case CASES[] = {
    {"api_queues: bindings", "bindings of a deleted queue are removed by its deleter, or by others",
     the_bindings_of_a_deleted_queue},
    {"api_queues: stays", "nobody removes bindings of a queue that stays", a_queue_that_stays_keeps_its_bindings},
    {"api_queues: idle", "a queue is idle without consumers and without messages, also such that are held",
     an_idle_queue_is_deleted},
    {"api_queues: find", "a name is found, or it is not; a refusal says so", a_name_is_looked_up},
    {"api_queues: next", "queues are listed, but not to a connection that is refused", queues_are_listed},
    {"api_queues: declare", "a declaration finishes the last change, and makes a queue once", a_queue_is_declared},
    {"api_queues: no declare", "a declaration without the lock of the topology changes nothing", who_cannot_declare},
    {"api_queues: last chunk", "a new queue leaves the last chunk to others", a_queue_takes_no_last_chunk},
    {"api_queues: swept", "without memory a new queue takes the slot of a deleted one",
     a_queue_takes_the_slot_of_a_deleted_one},
    {"api_queues: finish", "who takes the lock finishes the change of a killed process",
     a_change_of_the_dead_is_finished_first},
    {"api_queues: topology", "a connection holds the lock of the topology over several calls",
     several_changes_under_one_lock},
    {"api_queues: version", "the version moves on with the epoch and the journal", what_moves_on},
    {"api_queues: touch", "a declared queue counts as used", a_queue_is_used},
    {"api_queues: open", "the connection knows each handle, and keeps no slots for it", a_queue_is_opened},
    {"api_queues: opened meanwhile", "each look at the handles sees a handle that a call has opened",
     a_new_handle_is_looked_at},
    {"api_queues: no open", "a queue that is gone has no handle, and a failed call keeps no memory",
     a_queue_that_is_gone_is_not_opened},
    {"api_queues: leave", "a handle is left when nothing of it is held", a_handle_is_left},
    {"api_queues: exclusive", "a handle of an exclusive queue stays with its owner",
     a_handle_of_an_exclusive_queue_stays},
    {"api_queues: orphan", "who would open a queue whose owner is gone ends it",
     a_queue_without_its_owner_is_not_opened},
    {"api_queues: configure", "settings change under the lock of the topology, or not at all", a_queue_is_configured},
    {"api_queues: no delete", "a deletion that is refused changes nothing", who_cannot_delete},
    {"api_queues: delete", "a deletion is announced, and the name ends with the queue", a_queue_is_deleted},
};
SUBJECT(CASES)
