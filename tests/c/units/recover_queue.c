// SPDX-License-Identifier: Apache-2.0
/* sb_recover: what the reaper does in the queues that a dead connection had open. */
#include "sb_recover.h"

#include "calls.h"
#include "dead.h"
#include "sb_exclusive.h"
#include "sb_lifetime.h"
#include "system.h"

#define FREE ((sb_settings)FREELY)
#define A_SECOND UINT64_C(1000000000)

static sb_queue *q;

static uint32_t waits(uint32_t flags) {
  uint32_t node;
  uint64_t token;
  if (sb_node_create(t.c, q->slot, 0, SB_NODE_DIRECT | flags, 0, 1, &node, &token) != SB_OK) die("sb_node_create", 0);
  (void)sb_node_move(t.c, node, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED);
  return node;
}
static void expect_notified(uint32_t node, const char *what) {
  expect(node_state(node) == SB_NODE_NOTIFIED, "%s: the state of the node is %u", what, node_state(node));
}
static uint64_t cell_state(uint64_t n) { return sb_cell_state(word_in(q, n)); }

static void begin_queue_of_two(sb_settings settings) {
  begin_dead();
  q = queue_of_dead("q", settings);
  (void)put_by_dead(q, 64);
  (void)put_by_dead(q, 64);
}
static void close_cell(uint64_t flags) { set_word_in(q, 2, sb_cell_bare(SB_CELL_CLOSING, leaf_in(q, 0).gen) | flags); }
static unsigned queue_state(void) { return (unsigned)(q->shm->state & 3u); }

static void a_deletion_is_finished(void) {
  begin_queue_of_two(FREE);
  uint32_t node = waits(0);
  uint64_t wakes = node_wakes(node);
  close_cell(0);
  sb_recover_queue(t.c, q->slot);
  expect_is(cell_state(2), SB_CELL_CLOSED, "the state of the last cell");
  expect_is(queue_state(), SB_QUEUE_CLOSED, "the state of the queue");
  expect_is(cell_state(0), SB_CELL_TOMBSTONE, "the state of a cell that had a message");
  expect(node_wakes(node) > wakes, "the consumer was not woken");
}
static void a_deletion_is_refused(void) {
  begin_queue_of_two(FREE);
  close_cell(SB_CLOSING_IF_EMPTY);
  sb_recover_queue(t.c, q->slot);
  expect_is(cell_state(2), SB_CELL_TOMBSTONE, "the state of the last cell");
  expect_is(queue_state(), SB_QUEUE_OPEN, "the state of the queue");
  expect_is(cell_state(0), SB_CELL_AVAILABLE, "the state of a cell with a message");
  expect_is(q->shm->tail, q->base + 3, "the tail");
}
static void a_closed_queue_is_emptied(void) {
  begin_queue_of_two(FREE);
  uint32_t ended = t.b->header->queues_ended;
  SB_STORE(&q->shm->flags, SB_QUEUE_EXCLUSIVE, SB_RELAXED); /* without an owner: it would end if it was open */
  SB_STORE(&q->shm->owner_connection, 0u, SB_RELAXED);
  SB_STORE(&q->shm->state, q->state - SB_QUEUE_OPEN + SB_QUEUE_CLOSED, SB_RELAXED);
  sb_recover_queue(t.c, q->slot);
  expect_is(cell_state(0), SB_CELL_TOMBSTONE, "the state of a cell that had a message");
  expect_is(cell_state(2), SB_CELL_FREE, "the state of the cell behind");
  expect_is(t.b->header->queues_ended, ended, "how many queues ended");
}
static void limits_are_enforced(void) {
  begin_queue_of_two((sb_settings){{5, -1, -1, 0, -1, -1}, 0});
  SB_STORE(&q->shm->settings[SB_SETTING_RING_SIZE], 1, SB_RELAXED);
  SB_STORE(&q->shm->bound, 1, SB_RELAXED);
  sb_recover_queue(t.c, q->slot);
  expect_is(cell_state(0), SB_CELL_TOMBSTONE, "the state of the oldest cell");
  expect_is(cell_state(1), SB_CELL_AVAILABLE, "the state of the newest cell");
}
static void consumers_are_told(void) {
  begin_queue_of_two(FREE);
  uint32_t node = waits(0);
  SB_STORE(&q->shm->interested, 0, SB_RELAXED);
  sb_recover_queue(t.c, q->slot);
  expect_notified(node, "a consumer of a queue that counted too few");
  expect_is(q->shm->interested, 0, "how many are interested");
  expect_is(q->shm->notified, 1, "how many are notified");
}
static void producers_are_told(void) {
  begin_dead();
  q = queue_of_dead("q", (sb_settings){{-1, 1, -1, 0, -1, -1}, 0});
  uint32_t node = waits(SB_NODE_ROOM);
  sb_recover_queue(t.c, q->slot);
  expect_notified(node, "a producer beside room");
}
/* It waited in a get, or its watch was armed, for longer than the queue lives without a use. */
static void a_process_that_waited_was_killed(void) {
  begin_queue_of_two((sb_settings){{-1, -1, -1, 0, -1, 1000}, SB_QUEUE_EXPIRES});
  uint32_t node;
  uint64_t token;
  if (sb_node_create(d.c, q->slot, 0, SB_NODE_DIRECT, 0, 1, &node, &token) != SB_OK) die("sb_node_create", 0);
  (void)sb_node_move(d.c, node, SB_IN(SB_NODE_NOT_INTERESTED), SB_NODE_INTERESTED);
  answer_for_the_system();
  SB_STORE(&q->shm->used_ns, says.now_ns - 360 * A_SECOND, SB_RELAXED);
  recover_dead();
  expect_is(queue_state(), SB_QUEUE_OPEN, "the state of the queue");
  expect_is(cell_state(0), SB_CELL_AVAILABLE, "the state of a cell with a message");
  expect_is(q->shm->used_ns, says.now_ns, "the last use of the queue");
  says.now_ns += A_SECOND;
  sb_recover_queue(t.c, q->slot);
  expect_is(queue_state(), SB_QUEUE_CLOSED, "the state of the queue when its time has come");
}
static void the_reaper_leaves_the_queue(void) {
  begin_queue_of_two(FREE);
  sb_recover_queue(t.c, q->slot);
  expect(sb_ledger_of(t.b, q->shm, t.c->id) == NULL, "the reaper has an account with the queue");
  sb_recover_queue(t.c, sb_cell_slot(word_in(q, 0)));
  expect_is(cell_state(0), SB_CELL_AVAILABLE, "the state of a cell when a message was named as a queue");
}
static void a_queue_ends_with_its_owner(void) {
  begin_queue_of_two(FREE);
  uint32_t ended = t.b->header->queues_ended;
  SB_STORE(&q->shm->flags, SB_QUEUE_EXCLUSIVE, SB_RELAXED);
  sb_lifetime_own(q->shm, d.c);
  recover_dead();
  expect_is(queue_state(), SB_QUEUE_CLOSED, "the state of the queue");
  expect_is(t.b->header->queues_ended, ended + 1, "how many queues ended");
}

/* ---- accounts ---- */

static void an_account_is_left(void) {
  begin_queue_of_two(FREE);
  sb_ledger_shm *l = q->ledger;
  uint64_t raised = l->hinting >> 32, epoch = l->owner >> 12;
  sb_ledger_hold(l, 5);
  sb_ledger_hinting(l, 1);
  recover_dead();
  expect_is(l->hinting, SB_FIELD(raised + 2, 32), "`hinting`: raised by the dead connection and by the reaper");
  expect_is((uint32_t)l->holding, 0, "how many cells the account holds");
  expect_is(l->owner, SB_FIELD(epoch + 1, 12), "its owner");
}
/* Without memory for a holding the reaper does not take the account over. */
static void an_account_is_disowned(void) {
  begin_queue_of_two(FREE);
  sb_ledger_shm *l = q->ledger;
  uint64_t epoch = l->owner >> 12;
  sb_ledger_hold(l, 5);
  sb_ledger_hinting(l, 1);
  t.c->free_holding = UINT64_MAX / 32;
  recover_dead();
  expect_is(l->hinting & SB_HINTING_DEPTH, 0, "how deep `hinting` is");
  expect_is((uint32_t)l->holding, 0, "how many cells the account holds");
  expect_is(l->owner, SB_FIELD(epoch, 12), "its owner");
}
/* Another reaper of the queue has its mark: the hints are corrected after it is gone. */
static sb_ledger_shm *others;
static void end_other(const char *site) {
  if (strcmp(site, "recover.hints.corrected") != 0) return;
  at_step = NULL;
  expect_is(q->shm->taken, 2, "what is taken beside another reaper");
  sb_ledger_hinting(others, -1);
}
static void two_reapers_correct_a_queue(void) {
  if (!has_steps()) return;
  begin_queue_of_two(((sb_settings){{10, -1, -1, 0, -1, -1}, 0}));
  sb_queue *mine = open_queue(&t, "q");
  others = mine->ledger;
  sb_ledger_hinting(others, 1);
  sb_ledger_hinting(q->ledger, 1);
  (void)SB_ADD(&q->shm->taken, 2, SB_SEQ_CST);
  at_step = end_other;
  recover_dead();
  expect(at_step == NULL, "the hints were not looked at while the ledger was marked");
  expect_is(q->shm->taken, 0, "what is taken after the other reaper ended");
}
/* ... and looks after the queue all the same: none of this needs memory. */
static uint32_t consumes(sb_connection *c) {
  uint32_t node;
  uint64_t token;
  if (sb_node_create(c, q->slot, 0, SB_NODE_DIRECT | SB_NODE_COUNTED | SB_NODE_STANDBY, 0, 1, &node, &token) != SB_OK)
    die("sb_node_create", 0);
  sb_exclusive_succeed(c, q->slot);
  return node;
}
static void nobody_waits_for_memory_of_the_reaper(void) {
  begin_queue_of_two((sb_settings){{-1, 2, -1, SB_OVERFLOW_BLOCK, -1, -1}, SB_QUEUE_SINGLE_ACTIVE});
  uint32_t active = consumes(d.c), standby = consumes(t.c), waiter = waits(0);
  uint64_t wakes = node_wakes(standby), wakes_of_waiter = node_wakes(waiter);
  expect_is(q->shm->exclusive & 0xfffffff, active, "the active consumer");
  set_word_in(q, 0, owned_in(q, 0, SB_CELL_ACQUIRED, d.c->id));
  (void)hold(sb_holding_what(SB_HOLD_CELL, q->slot, 0), q->base);
  SB_STORE(&q->shm->admitted, q->base + 77, SB_RELAXED);
  SB_STORE(&q->shm->interested, 0, SB_RELAXED);
  uint64_t found = t.c->free_holding;
  t.c->free_holding = UINT64_MAX / 32;
  recover_dead();
  t.c->free_holding = found;
  expect_is(q->shm->exclusive & 0xfffffff, standby, "the active consumer after the death of the first");
  expect(node_wakes(standby) > wakes, "the consumer that stood by was not told");
  expect(node_wakes(waiter) > wakes_of_waiter, "a call that waits beside a ready message was not told");
  expect_is(q->shm->admitted, q->base + 2, "the places that are taken");
  expect_is(q->ledger->owner & 0xfff, 0, "the owner of the account");
}
static void a_closed_queue_tells_without_memory(void) {
  begin_queue_of_two(FREE);
  uint32_t node = waits(0);
  uint64_t wakes = node_wakes(node), found = t.c->free_holding;
  close_cell(0);
  t.c->free_holding = UINT64_MAX / 32;
  sb_recover_queue(t.c, q->slot);
  t.c->free_holding = found;
  expect_is(queue_state(), SB_QUEUE_CLOSED, "the state of the queue");
  expect(node_wakes(node) > wakes, "the consumer was not woken");
  expect_is(cell_state(0), SB_CELL_AVAILABLE, "the state of a cell with a message, which the sweep will remove");
}
/* The holding of another kind names the position. */
static void a_cell_that_no_cell_holding_names(void) {
  begin_queue_of_two(FREE);
  uint64_t first = owned_in(q, 0, SB_CELL_ACQUIRED, d.c->id), second = owned_in(q, 1, SB_CELL_ACQUIRED, d.c->id);
  set_word_in(q, 0, first);
  set_word_in(q, 1, second);
  (void)hold(sb_holding_what(SB_HOLD_PAGE, q->slot, 0), q->base);
  (void)hold(sb_holding_what(SB_HOLD_CELL, q->slot, 0), q->base + 1);
  recover_dead();
  expect_is(word_in(q, 0), first, "the word of the cell that is not listed");
  expect_is(cell_state(1), SB_CELL_AVAILABLE, "the state of the cell that is listed");
}

/* ---- commits ---- */

static void stage_both(void) {
  for (unsigned i = 0; i < 2; i++) {
    set_word_in(q, i, owned_in(q, i, SB_CELL_STAGED, d.c->id));
    (void)hold(sb_holding_what(SB_HOLD_STAGED, q->slot, leaf_in(q, 0).slot), q->base + i);
  }
}
static void a_commit_that_was_decided(void) {
  begin_queue_of_two(FREE);
  stage_both();
  SB_STORE(&d.c->shm->commit, 1, SB_RELAXED);
  recover_dead();
  expect_is(cell_state(0), SB_CELL_AVAILABLE, "the state of the first cell");
  expect_is(cell_state(1), SB_CELL_AVAILABLE, "the state of the second cell");
}
static void a_commit_that_was_not_decided(void) {
  begin_queue_of_two(FREE);
  stage_both();
  uint32_t body = sb_cell_slot(word_in(q, 0));
  uint64_t gen = sb_slot_gen(slot_word(body));
  (void)hold(sb_holding_what(SB_HOLD_PUBLICATION, body, gen), 0);
  recover_dead();
  expect_is(cell_state(0), SB_CELL_TOMBSTONE, "the state of the first cell");
  expect_is(cell_state(1), SB_CELL_TOMBSTONE, "the state of the second cell");
  expect_is(slot_word(body), sb_slot_word(SB_SLOT_FREE, 0, gen + 1), "the header of the body");
}

static const test_case CASES[] = {
    {"recover: deleted", "the reaper finishes the deletion of a queue", a_deletion_is_finished},
    {"recover: not deleted", "the reaper refuses a deletion whose condition does not hold", a_deletion_is_refused},
    {"recover: closed", "the reaper removes what is left in a closed queue", a_closed_queue_is_emptied},
    {"recover: limits", "the reaper evicts what a dead producer owed", limits_are_enforced},
    {"recover: consumers", "the reaper counts consumers anew and tells one of a ready message", consumers_are_told},
    {"recover: producers", "the reaper tells a producer of room", producers_are_told},
    {"recover: waited", "a queue that expires lives on when a process is killed that waited for a message",
     a_process_that_waited_was_killed},
    {"recover: leaves", "the reaper keeps no account with a queue that it recovered", the_reaper_leaves_the_queue},
    {"recover: owner", "the reaper ends a queue that was the dead connection's own", a_queue_ends_with_its_owner},
    {"recover: account", "the reaper takes an account over and leaves it", an_account_is_left},
    {"recover: no account", "the reaper without memory leaves the account to others", an_account_is_disowned},
    {"recover: two reapers", "the later of two reapers of a queue corrects its hints", two_reapers_correct_a_queue},
    {"recover: no memory", "the reaper without memory tells all who wait", nobody_waits_for_memory_of_the_reaper},
    {"recover: closed, no memory", "the reaper without memory tells of the end of a queue",
     a_closed_queue_tells_without_memory},
    {"recover: cells", "the reaper returns cells that a holding of kind CELL names", a_cell_that_no_cell_holding_names},
    {"recover: decided", "the reaper carries a commit out that was decided", a_commit_that_was_decided},
    {"recover: undecided", "the reaper undoes a commit that was not decided", a_commit_that_was_not_decided},
};
SUBJECT(CASES)
