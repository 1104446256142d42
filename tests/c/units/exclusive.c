// SPDX-License-Identifier: Apache-2.0
/* sb_exclusive: exclusive consumers, and the single active one of several consumers. */
#include "sb_exclusive.h"

#include <string.h>

#include "calls.h"
#include "dead.h"
#include "meanwhile.h"

#define TENTATIVE (UINT64_C(1) << 31)
#define MANY 100000u
#define STRANGER 99u /* the number of a connection */
#define CONSUMER (SB_NODE_DIRECT | SB_NODE_COUNTED)
#define EXCLUSIVE (CONSUMER | SB_NODE_EXCLUSIVE)
#define STANDBY (CONSUMER | SB_NODE_STANDBY)

static sb_queue *q;
static sb_queue_shm *shm;

static void begin(uint32_t flags) {
  begin_dead();
  if (declare(&t, "q", (sb_settings){{-1, -1, -1, 0, -1, -1}, flags}) != SB_OK) die("declare", 0);
  q = open_queue(&t, "q");
  shm = q->shm;
}
static uint32_t consumer_of(sb_connection *c, uint32_t flags, int32_t priority) {
  uint32_t node;
  uint64_t token;
  if (sb_node_create(c, q->slot, priority, flags, 0, 1, &node, &token) != SB_OK) die("sb_node_create", 0);
  return node;
}
static uint32_t consumer(uint32_t flags) { return consumer_of(t.c, flags, 0); }
static sb_node_shm *node_at(uint32_t node) { return sb_slot_at(t.b, node); }
static uint64_t claim_of(uint32_t node) { return node | SB_FIELD(node_at(node)->registration, 32); }
static void set_claim(uint64_t claim) { SB_STORE(&shm->exclusive, claim, SB_RELAXED); }
static uint64_t stale(uint32_t node, unsigned by) { return claim_of(node) + SB_FIELD(by, 32); }
static void set_connection(uint32_t node, unsigned connection) {
  uint64_t word = node_at(node)->word;
  SB_STORE(&node_at(node)->word, sb_node_word(sb_node_state(word), connection, sb_node_epoch(word)), SB_RELAXED);
}
static void remove_node(uint32_t node) { (void)sb_node_move(t.c, node, SB_ANY_STATE, SB_NODE_REMOVED); }
static void expect_entry(uint32_t node, sb_status should, uint64_t claim, const char *what) {
  sb_status status = sb_exclusive_enter(t.c, q->slot, node);
  expect(status == should, "%s: the status is %d, not %d", what, (int)status, (int)should);
  expect(shm->exclusive == claim, "%s: the claim is %llx, not %llx", what, (unsigned long long)shm->exclusive,
         (unsigned long long)claim);
}

/* ---- exclusive consumers ---- */

static void an_exclusive_consumer(void) {
  begin(0);
  (void)consumer(SB_NODE_DIRECT); /* a call that waits is no rival */
  uint32_t node = consumer(EXCLUSIVE), other = consumer(EXCLUSIVE), ordinary = consumer(CONSUMER);
  expect_entry(node, SB_ACCESS, 0, "beside an ordinary consumer");
  remove_node(ordinary);
  expect_entry(node, SB_OK, claim_of(node), "alone");
  expect_entry(other, SB_ACCESS, claim_of(node), "beside an exclusive one");
  ordinary = consumer(CONSUMER);
  expect_entry(ordinary, SB_ACCESS, claim_of(node), "an ordinary one beside an exclusive one");
  set_claim(claim_of(node) | TENTATIVE);
  expect_entry(other, SB_ACCESS, claim_of(node) | TENTATIVE, "beside one that is about to be");
  expect_entry(ordinary, SB_OK, 0, "an ordinary one beside one that is about to be");
  expect_entry(ordinary, SB_OK, 0, "an ordinary one");
}
static void a_queue_with_an_active_consumer_has_no_exclusive_one(void) {
  begin(SB_QUEUE_SINGLE_ACTIVE);
  uint32_t node = consumer(EXCLUSIVE);
  expect_entry(node, SB_ACCESS, 0, "an exclusive consumer");
  expect_is(sb_exclusive_flags(shm), SB_NODE_STANDBY, "the flags of a new node");
  begin_dead();
  if (declare(&t, "other", (sb_settings)FREELY) != SB_OK) die("declare", 0);
  expect_is(sb_exclusive_flags(open_queue(&t, "other")->shm), 0, "the flags of a new node of another queue");
}

/* A claim in force is that of a node that is registered, whose connection and process live. */
static void claims_that_are_not_in_force(void) {
  begin(0);
  uint32_t node = consumer(EXCLUSIVE), ordinary = consumer(CONSUMER), gone = consumer(EXCLUSIVE);
  uint32_t of_dead = consumer_of(d.c, EXCLUSIVE, 0), of_nobody = consumer(EXCLUSIVE);
  process_is_gone();
  set_connection(of_nobody, STRANGER);
  SB_STORE(&t.b->connections[STRANGER], sb_conn_word(SB_CONN_FREE, t.b->process, 0, 1), SB_RELAXED);
  uint64_t removed = claim_of(gone);
  remove_node(gone);
  const uint64_t claims[] = {removed, stale(node, 1), claim_of(of_dead), claim_of(of_nobody),
                             sb_cell_slot(0) | SB_FIELD(1, 32)};
  for (unsigned i = 0; i < 5; i++) {
    set_claim(claims[i]);
    expect_entry(ordinary, SB_OK, claims[i], "an ordinary consumer beside a claim of nobody");
    set_claim(claims[i] | TENTATIVE);
    expect_entry(ordinary, SB_OK, claims[i] | TENTATIVE, "an ordinary consumer beside a claim of nobody that began");
  }
  remove_node(ordinary);
  for (unsigned i = 0; i < 5; i++) {
    set_claim(claims[i]);
    expect_entry(node, SB_OK, claim_of(node), "an exclusive consumer beside a claim of nobody");
  }
}
static void consumers_that_are_no_rivals(void) {
  begin(0);
  uint32_t node = consumer(EXCLUSIVE);
  (void)consumer_of(d.c, CONSUMER, 0);
  expect_entry(node, SB_ACCESS, 0, "beside a consumer of another connection");
  process_is_gone();
  expect_entry(node, SB_OK, claim_of(node), "beside a consumer of a dead process");
  uint32_t of_nobody = consumer(CONSUMER);
  set_claim(0);
  set_connection(of_nobody, STRANGER);
  SB_STORE(&t.b->connections[STRANGER], sb_conn_word(SB_CONN_FREE, t.b->process, 0, 1), SB_RELAXED);
  expect_entry(node, SB_OK, claim_of(node), "beside a consumer of a connection that is gone");
}

/* ---- races ---- */

static uint32_t first, second;
static void remove_second(void) { remove_node(second); }
static void use_again(void) { SB_STORE(&node_at(first)->registration, node_at(first)->registration + 1, SB_RELAXED); }
static void drop_claim(void) { set_claim(0); }
static void leave_stale_claim(void) { set_claim(stale(second, 7)); }
static void begin_race(uint32_t flags) {
  begin(0);
  first = consumer(EXCLUSIVE);
  second = consumer(flags);
}
static void a_consumer_leaves_meanwhile(void) {
  begin_race(CONSUMER);
  meanwhile(&node_at(second)->flags, AFTER_LOAD, 1, remove_second);
  sb_status status = sb_exclusive_enter(t.c, q->slot, first);
  bool acted = has_acted();
  expect_is(status, acted ? SB_OK : SB_ACCESS, "the status beside a consumer that leaves");
}
static void a_node_is_used_again(void) {
  begin_race(CONSUMER);
  set_claim(claim_of(first));
  meanwhile(&node_at(first)->registration, AFTER_LOAD, 1, use_again);
  sb_status status = sb_exclusive_enter(t.c, q->slot, second);
  bool acted = has_acted();
  expect_is(status, acted ? SB_OK : SB_ACCESS, "the status beside a claim whose node is used again");
}
static void a_claim_is_dropped_meanwhile(void) {
  begin_race(EXCLUSIVE);
  meanwhile(&shm->exclusive, BEFORE_CAS, 2, drop_claim);
  sb_status status = sb_exclusive_enter(t.c, q->slot, first);
  if (has_acted()) {
    expect_is(status, SB_ACCESS, "the status of a claimant whose claim was dropped");
    expect_is(shm->exclusive, 0, "the claim");
  }
}
static void a_claim_changes_meanwhile(void) {
  begin_race(EXCLUSIVE);
  meanwhile(&shm->exclusive, BEFORE_CAS, 1, leave_stale_claim);
  expect_entry(first, SB_OK, claim_of(first), "a claimant beside a claim that changed, and is not in force");
  (void)has_acted();
}

/* ---- claims that change for ever ---- */

static const char *turn; /* a place of sb_exclusive.c to which the core comes once in each turn */
static unsigned places, turns;
static uint64_t claims_in_turn[2];
static void change_claim(const char *site) {
  if (strstr(site, "sb_exclusive.c") == NULL) return;
  if (--places == 0) turn = site;
  if (turn == NULL || strcmp(site, turn) != 0) return;
  turns++;
  atomic_store_explicit(&shm->exclusive, claims_in_turn[turns % 2], memory_order_relaxed);
}
/* The place is the one to which the core comes as the nth. */
static void begin_turns(unsigned nth, uint64_t a, uint64_t b) {
  claims_in_turn[0] = a;
  claims_in_turn[1] = b;
  turn = NULL;
  places = nth;
  turns = 0;
  set_claim(a);
  at_step = change_claim;
}
static void claims_that_change_for_ever(void) {
  begin(0);
  uint32_t a = consumer(EXCLUSIVE), b = consumer(EXCLUSIVE), ordinary = consumer(CONSUMER);
  begin_turns(4, claim_of(a) | TENTATIVE, claim_of(b) | TENTATIVE);
  sb_status status = sb_exclusive_enter(t.c, q->slot, ordinary);
  at_step = NULL;
  if (has_steps()) expect_is(turns, MANY + 1, "how often the claim was looked at");
  expect_is(status, SB_OK, "the status");
}
static void successors_that_change_for_ever(void) {
  begin(SB_QUEUE_SINGLE_ACTIVE);
  uint32_t node = consumer(STANDBY);
  begin_turns(2, stale(node, 1), stale(node, 2));
  sb_exclusive_succeed(t.c, q->slot);
  at_step = NULL;
  if (has_steps()) expect_is(turns, MANY + 1, "how often the flags were looked at");
}

/* ---- a single active consumer ---- */

static void expect_active(uint32_t node, unsigned wakes, const char *what) {
  sb_exclusive_succeed(t.c, q->slot);
  expect(shm->exclusive == claim_of(node), "%s: the claim is %llx", what, (unsigned long long)shm->exclusive);
  expect(node_wakes(node) == wakes, "%s: it was told %u times", what, (unsigned)node_wakes(node));
}
/* The highest priority first, then the first one. */
static void who_is_active(void) {
  begin(SB_QUEUE_SINGLE_ACTIVE);
  (void)consumer_of(t.c, SB_NODE_DIRECT, 9);
  sb_exclusive_succeed(t.c, q->slot);
  expect_is(shm->exclusive, 0, "the claim without a consumer");
  set_claim(7);
  sb_exclusive_succeed(t.c, q->slot);
  expect_is(shm->exclusive, 7, "the claim of a consumer that is gone, without another one");
  uint32_t low = consumer_of(t.c, STANDBY, -5);
  expect_active(low, 1, "the only one");
  uint32_t one = consumer_of(t.c, STANDBY, 1), three = consumer_of(t.c, STANDBY, 3), two = consumer_of(t.c, STANDBY, 2),
           also = consumer_of(t.c, STANDBY, 3);
  expect_active(low, 2, "the active one beside better ones");
  expect_is(node_wakes(three), 0, "how often a better one was told");
  remove_node(low);
  expect_active(three, 1, "the best one");
  expect(sb_exclusive_activate(t.b, three), "the best one is not active");
  expect_active(three, 1, "the active one, which knows");
  remove_node(three);
  expect_active(also, 1, "the second one of the best");
  remove_node(also);
  expect_active(two, 1, "the next one");
  expect_is(node_wakes(one), 0, "how often the last one was told");
}
static void a_consumer_of_an_ordinary_queue(void) {
  begin(0);
  uint32_t node = consumer(STANDBY);
  sb_exclusive_succeed(t.c, q->slot);
  expect_is(shm->exclusive, 0, "the claim");
  expect_is(node_wakes(node), 0, "how often it was told");
}
static void a_consumer_enters(void) {
  begin(SB_QUEUE_SINGLE_ACTIVE);
  uint32_t node = consumer(STANDBY), other = consumer(STANDBY);
  expect_entry(node, SB_OK, claim_of(node), "the first one");
  expect_entry(other, SB_OK, claim_of(node), "the second one");
}
static void a_consumer_is_activated(void) {
  begin(SB_QUEUE_SINGLE_ACTIVE);
  uint32_t node = consumer(STANDBY), other = consumer(STANDBY);
  set_claim(claim_of(node));
  expect(!sb_exclusive_activate(t.b, other), "another one is active");
  expect_is(node_at(other)->flags, STANDBY, "the flags of another one");
  expect(sb_exclusive_activate(t.b, node), "it is not active");
  expect_is(node_at(node)->flags, CONSUMER, "its flags");
  SB_STORE(&node_at(node)->flags, STANDBY, SB_RELAXED);
  set_claim(stale(node, 1));
  expect(!sb_exclusive_activate(t.b, node), "an earlier consumer in its place is active");
  set_claim(claim_of(node));
  SB_STORE(&node_at(node)->queue, node, SB_RELAXED);
  expect(!sb_exclusive_activate(t.b, node), "a consumer of no queue is active");
}

static const test_case CASES[] = {
    {"exclusive: exclusive", "an exclusive consumer is the only one", an_exclusive_consumer},
    {"exclusive: kinds", "a queue with a single active consumer has no exclusive one",
     a_queue_with_an_active_consumer_has_no_exclusive_one},
    {"exclusive: not in force", "a claim of a consumer that is gone keeps nobody out", claims_that_are_not_in_force},
    {"exclusive: no rivals", "a consumer of a connection that is gone is no rival", consumers_that_are_no_rivals},
    {"exclusive: left", "a consumer that leaves meanwhile is no rival", a_consumer_leaves_meanwhile},
    {"exclusive: used again", "a node that is used again meanwhile has no claim", a_node_is_used_again},
    {"exclusive: dropped", "a claimant whose claim was dropped gives up", a_claim_is_dropped_meanwhile},
    {"exclusive: changed", "a claimant tries again when the claim changed", a_claim_changes_meanwhile},
    {"exclusive: for ever", "an ordinary consumer does not try for ever", claims_that_change_for_ever},
    {"exclusive: successor for ever", "nobody looks for a successor for ever", successors_that_change_for_ever},
    {"exclusive: active", "the best of those that stand by is active", who_is_active},
    {"exclusive: ordinary", "a queue without a single active consumer names none", a_consumer_of_an_ordinary_queue},
    {"exclusive: enters", "a consumer that enters is active if there was none", a_consumer_enters},
    {"exclusive: activated", "a consumer that is active stands by no more", a_consumer_is_activated},
};
SUBJECT(CASES)
