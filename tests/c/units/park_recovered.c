// SPDX-License-Identifier: Apache-2.0
/* sb_park, after a death: what the reaper does with the intent PARK, with cells that the dead connection held, and with
 * its commits. */
#include "sb_park.h"

#include "calls.h"
#include "dead.h"
#include "sb_recover.h"
#include "sb_release.h"
#include "sb_transaction.h"
#include "sb_wait.h"
#include "surroundings.h"

#define DEADLY ((sb_settings){{-1, -1, -1, 0, -1, -1}, SB_QUEUE_DEAD_LETTERS})
#define ATTEMPTS(n, flags) ((sb_settings){{-1, -1, -1, 0, -1, -1, 0, (n), 0, 1000, -1}, (flags)})
#define BYTES 64u
#define BESIDE (d.c->id + 1) /* another connection */
#define BEFORE 100u          /* what the counter said before the intent */

static sb_queue *q;
static uint32_t slot;
static uint64_t gen; /* of the slot */
static char buffer[BUFFER];

static void begin(sb_settings settings) {
  begin_dead();
  q = queue_of_dead("q", settings);
  slot = put_by_dead(q, BYTES);
  (void)put_by_dead(q, BYTES);
  gen = sb_slot_gen(slot_word(slot));
}
static uint64_t side(void) { return SB_LOAD(&cell_in(q, 0)->side, SB_RELAXED); }
static uint64_t in_schedule(void) { return q->shm->schedule.tail; }
static sb_queue_facts facts(void) {
  sb_queue_facts f;
  if (sb_queue_describe(t.c, q->slot, &f) != SB_OK) die("sb_queue_describe", 0);
  return f;
}
static void expect_counts(uint64_t ready, uint64_t delivering, uint64_t scheduled, const char *what) {
  sb_queue_facts f = facts();
  expect(f.ready == ready && f.delivering == delivering && f.scheduled == scheduled,
         "%s: %d ready, %d delivering, %d scheduled", what, (int)f.ready, (int)f.delivering, (int)f.scheduled);
}
static void expect_nothing_found(void) {
  const char *trouble = findings(t.c);
  expect(trouble == NULL, "%s", trouble);
}

/* ---- the intent ---- */

static void judge(uint64_t word, uint64_t position, uint64_t counter) {
  sb_ledger_shm *l = q->ledger;
  SB_STORE(&l->counters[SB_COUNT_SCHEDULED], BEFORE, SB_RELAXED);
  SB_STORE(&q->shm->timers_lost, 0, SB_RELAXED);
  set_word_in(q, 0, word);
  sb_ledger_begin_intent(l, SB_INTENT_PARK, SB_COUNT_SCHEDULED, position, slot, 0, 0);
  SB_STORE(&l->counters[SB_COUNT_SCHEDULED], counter, SB_RELAXED);
  sb_intent_resolve(&w, sb_holding_what(SB_HOLD_LEDGER, q->slot, 0), sb_slot_of(t.b, l));
  expect_is(word_in(q, 0), word, "the word of the cell");
  expect_is(l->kind & 0xffff, SB_INTENT_NONE, "the intent");
}
static void expect_judged(bool counted, int lost, const char *what) {
  uint64_t is = q->ledger->counters[SB_COUNT_SCHEDULED];
  expect(is == BEFORE + counted, "%s: %d are scheduled", what, (int)(is - BEFORE));
  expect(q->shm->timers_lost == lost, "%s: %d timers are lost", what, (int)q->shm->timers_lost);
}
static void intents_before_the_flip(void) {
  begin(DEADLY);
  uint64_t of = leaf_in(q, 0).gen;
  judge(sb_cell_owned(SB_CELL_ACQUIRED, slot, 0, d.c->id, of), q->base, BEFORE);
  expect_judged(false, 0, "acquired");
  judge(sb_cell_owned(SB_CELL_REMOVING, slot, 0, d.c->id, of), q->base, BEFORE);
  expect_judged(false, 0, "being removed");
}
static void intents_after_the_flip(void) {
  begin(DEADLY);
  uint64_t of = leaf_in(q, 0).gen;
  judge(sb_cell_open(SB_CELL_SCHEDULED, slot, 0, of), q->base, BEFORE);
  expect_judged(true, 1, "scheduled");
  judge(sb_cell_open(SB_CELL_SCHEDULED, slot, 0, of), q->base, BEFORE + 1);
  expect_judged(true, 1, "scheduled, and counted");
  judge(sb_cell_owned(SB_CELL_REMOVING, slot, 0, BESIDE, of), q->base, BEFORE);
  expect_judged(true, 1, "being carried out");
  judge(sb_cell_owned(SB_CELL_ACQUIRED, slot, 0, BESIDE, of), q->base, BEFORE);
  expect_judged(true, 1, "acquired by another connection");
  judge(sb_cell_open(SB_CELL_AVAILABLE, slot, 0, of), q->base, BEFORE);
  expect_judged(true, 1, "ready again");
  judge(sb_cell_bare(SB_CELL_TOMBSTONE, of), q->base, BEFORE);
  expect_judged(true, 1, "at its end");
  judge(sb_cell_owned(SB_CELL_ACQUIRED, slot, 0, d.c->id, of + 1), q->base, BEFORE);
  expect_judged(true, 0, "on a page that is gone");
  judge(sb_cell_open(SB_CELL_SCHEDULED, slot, 0, of), q->base + 64 * 64, BEFORE);
  expect_judged(true, 0, "on no page");
}

/* ---- cells ---- */

static void release(unsigned state, unsigned count, uint64_t flags) {
  set_word_in(q, 0, owned_in(q, 0, state, d.c->id));
  SB_STORE(&cell_in(q, 0)->side, sb_side_word(gen, count, flags), SB_RELAXED);
  SB_STORE(&q->ledger->counters[SB_COUNT_SCHEDULED], 0, SB_RELAXED);
  sb_intent_release_cell(&w, q->slot, q->base);
}
static void expect_parked(unsigned count, uint64_t flags, const char *what) {
  expect(word_in(q, 0) == sb_cell_open(SB_CELL_SCHEDULED, slot, 0, leaf_in(q, 0).gen), "%s: its cell is another", what);
  expect(side() == sb_side_word(gen, count, flags), "%s: its side record is %llx", what, (unsigned long long)side());
  expect(q->ledger->counters[SB_COUNT_SCHEDULED] == 1, "%s: it is not counted", what);
  expect((q->ledger->kind & 0xff) == SB_INTENT_NONE, "%s: the intent is there", what);
}
static void expect_ready(unsigned count, uint64_t flags, const char *what) {
  expect(word_in(q, 0) == sb_cell_open(SB_CELL_AVAILABLE, slot, 0, leaf_in(q, 0).gen), "%s: its cell is another", what);
  expect(side() == sb_side_word(gen, count, flags), "%s: its side record is %llx", what, (unsigned long long)side());
  expect(q->ledger->counters[SB_COUNT_SCHEDULED] == 0, "%s: it is counted", what);
}
#define AGAIN SB_SIDE_REDELIVERED
static void cells_that_say_why(void) {
  begin(DEADLY);
  uint64_t entries = in_schedule();
  release(SB_CELL_REMOVING, 2, sb_side_why(SB_WHY_EXPIRED));
  expect_parked(2, sb_side_why(SB_WHY_EXPIRED), "one that was carried out");
  expect_is(in_schedule(), entries + 1, "the entries of the schedule");
  release(SB_CELL_ACQUIRED, 2, sb_side_why(SB_WHY_REJECTED));
  expect_parked(2, AGAIN | sb_side_why(SB_WHY_REJECTED), "one that was rejected");
  release(SB_CELL_ACQUIRED, 2, AGAIN | SB_SIDE_DELAYED);
  expect_parked(2, AGAIN | SB_SIDE_DELAYED, "one that was delayed");
  release(SB_CELL_REMOVING, 2, AGAIN | SB_SIDE_DELAYED);
  expect_parked(2, AGAIN | SB_SIDE_DELAYED, "one that was due");
  release(SB_CELL_REMOVING, 2, 0);
  expect_ready(2, 0, "one that was removed");
}
static void cells_of_a_closed_queue(void) {
  begin(ATTEMPTS(2, SB_QUEUE_DEAD_LETTERS));
  mark_closed(q);
  release(SB_CELL_REMOVING, 2, sb_side_why(SB_WHY_EXPIRED));
  expect_ready(2, sb_side_why(SB_WHY_EXPIRED), "one that was carried out");
  release(SB_CELL_ACQUIRED, 2, 0);
  expect_ready(2, AGAIN | sb_side_why(SB_WHY_DELIVERY_LIMIT), "one at its last delivery");
}
static void the_last_delivery(void) {
  begin(ATTEMPTS(2, SB_QUEUE_DEAD_LETTERS));
  release(SB_CELL_ACQUIRED, 1, 0);
  expect_ready(1, AGAIN, "one delivery is left");
  release(SB_CELL_ACQUIRED, 2, 0);
  expect_parked(2, AGAIN | sb_side_why(SB_WHY_DELIVERY_LIMIT), "no delivery is left");
  release(SB_CELL_REMOVING, 2, 0);
  expect_ready(2, 0, "no consumer had it");
}
static void one_reason_is_enough(void) {
  begin(ATTEMPTS(2, SB_QUEUE_DEAD_LETTERS));
  for (unsigned why = SB_WHY_REJECTED; why <= SB_WHY_DELIVERY_LIMIT; why++) {
    release(SB_CELL_ACQUIRED, 2, sb_side_why((sb_why)why));
    expect_parked(2, AGAIN | sb_side_why((sb_why)why), "no delivery is left, and it was rejected");
  }
}
static void the_housekeeper_is_rung(void) {
  begin(DEADLY);
  uint32_t keeper = wait_at(make_queue("elsewhere", (sb_settings)FREELY), FOR_ROOM, 0);
  sb_half *wake = &((sb_node_shm *)sb_slot_at(t.b, keeper))->wake;
  SB_STORE(&t.b->header->housekeeper_waiter, keeper, SB_RELAXED);
  uint32_t armed = sb_wake_arm(wake);
  release(SB_CELL_REMOVING, 2, sb_side_why(SB_WHY_EXPIRED));
  expect(*wake != armed, "the housekeeper is not told");
}

/* ---- a whole recovery ---- */

static void get_by_dead(void) {
  if (sb_queue_get(q, buffer, false) <= 0) die("sb_queue_get", 0);
}
static void held_at_the_last_delivery(sb_settings settings) {
  begin(settings);
  get_by_dead();
  get_by_dead();
  expect_counts(0, 2, 0, "before the death");
  recover_dead();
  expect_counts(0, 0, 2, "after the death");
  for (unsigned i = 0; i < 2; i++) {
    uint64_t s = SB_LOAD(&cell_in(q, i)->side, SB_RELAXED);
    expect_is(sb_side_why_of(s), SB_WHY_DELIVERY_LIMIT, "why it is dead");
    expect_is(sb_side_count(s), 1, "its deliveries");
  }
  expect_nothing_found();
}
static void killed_with_messages(void) { held_at_the_last_delivery(ATTEMPTS(1, SB_QUEUE_DEAD_LETTERS)); }
static void killed_without_dead_letters(void) { held_at_the_last_delivery(ATTEMPTS(1, 0)); }
static void closed_with_messages(void) {
  begin(ATTEMPTS(1, SB_QUEUE_DEAD_LETTERS));
  get_by_dead();
  expect_is(sb_connection_close(d.c), SB_OK, "the status of a close");
  expect_counts(2, 0, 0, "after a close");
  expect_is(side(), sb_side_word(gen, 0, SB_SIDE_REDELIVERED), "the side record: the delivery does not count");
  expect_nothing_found();
}

/* The dead connection has taken a dead message, to carry it out. */
static void carry_out_and(bool close) {
  uint32_t why;
  begin(DEADLY);
  get_by_dead();
  expect_is(sb_queue_settle(q, buffer, SB_REJECT), SB_OK, "the status of a rejection");
  expect(sb_dead_take(q, q->base, buffer, &why) > 0, "there is no dead message");
  expect_counts(1, 1, 0, "before the end");
  if (close) expect_is(sb_connection_close(d.c), SB_OK, "the status of a close");
  if (!close) recover_dead();
  expect_counts(1, 0, 1, "after the end");
  expect_is(sb_side_why_of(side()), SB_WHY_REJECTED, "why it is dead");
  expect_nothing_found();
}
static void killed_with_a_dead_message(void) { carry_out_and(false); }
static void closed_with_a_dead_message(void) { carry_out_and(true); }
static void killed_with_a_delayed_message(void) {
  begin(DEADLY);
  get_by_dead();
  expect_is(sb_park_delayed(q, ((sb_record *)(void *)buffer)->tag, 1, FOREVER / 2), SB_OK, "the status of a delay");
  uint64_t token;
  sb_taken taken;
  if (sb_holding_take(d.c, &token) != SB_OK) die("sb_holding_take", 0);
  uint64_t was = side(), scheduled = facts().scheduled;
  expect_is(sb_take_at(q, q->base, SB_CELL_SCHEDULED, token, &taken), SB_OK, "the status of a take");
  SB_STORE(&cell_in(q, 0)->side, was, SB_RELAXED); /* killed between the two steps of the take */
  sb_ledger_hold(q->ledger, -1);
  sb_ledger_begin_intent(q->ledger, SB_INTENT_DUE, SB_COUNT_UNSCHEDULED, q->base, 0, 0, 0);
  recover_dead();
  expect_counts(1, 0, scheduled, "after the death");
  expect_is(side(), was, "the side record");
  expect_nothing_found();
}

/* ---- commits ---- */

static uint64_t what_of(unsigned counter) {
  return sb_holding_what(SB_HOLD_SETTLING, q->slot, (uint64_t)leaf_in(q, 0).slot | SB_FIELD(counter, 28));
}
static void roll(bool forward, unsigned state, uint64_t flags, unsigned counter) {
  set_word_in(q, 0, owned_in(q, 0, state, d.c->id));
  SB_STORE(&cell_in(q, 0)->side, sb_side_word(gen, 1, flags), SB_RELAXED);
  if (forward) sb_transaction_roll_forward(&w, what_of(counter), q->base);
  if (!forward) sb_transaction_roll_back(&w, what_of(counter), q->base);
}
static void expect_ended(unsigned counter, const char *what) {
  expect(word_in(q, 0) == sb_cell_bare(SB_CELL_TOMBSTONE, leaf_in(q, 0).gen), "%s: it is there", what);
  expect(q->ledger->counters[counter] == 1, "%s: it is not counted", what);
  expect(q->ledger->counters[SB_COUNT_REMOVED_BYTES] == BYTES, "%s: its bytes are there", what);
  expect(q->ledger->counters[SB_COUNT_SCHEDULED] == 0, "%s: it was parked", what);
  expect_nothing_found();
}
static void a_rejection_is_decided(void) {
  begin(DEADLY);
  roll(true, SB_CELL_ACQUIRED, 0, SB_COUNT_DEAD_LETTERED);
  expect_parked(1, AGAIN | sb_side_why(SB_WHY_REJECTED), "a rejection");
  expect_is(q->ledger->counters[SB_COUNT_DEAD_LETTERED], 0, "what was carried out");
  roll(true, SB_CELL_ACQUIRED, sb_side_why(SB_WHY_REJECTED), SB_COUNT_DEAD_LETTERED);
  expect_is(word_in(q, 0), sb_cell_open(SB_CELL_SCHEDULED, slot, 0, leaf_in(q, 0).gen),
            "the cell that an earlier reaper was about to park");
  uint64_t parked = word_in(q, 0);
  sb_transaction_roll_forward(&w, what_of(SB_COUNT_DEAD_LETTERED), q->base);
  expect_is(word_in(q, 0), parked, "the cell at the next reaper");
}
/* The reason is the one that the commit was asked for. */
static void a_rejection_at_the_last_delivery(void) {
  begin(ATTEMPTS(1, SB_QUEUE_DEAD_LETTERS));
  roll(true, SB_CELL_ACQUIRED, 0, SB_COUNT_DEAD_LETTERED);
  expect_parked(1, AGAIN | sb_side_why(SB_WHY_REJECTED), "a rejection at the last delivery");
}
static void carried_out(void) {
  begin(DEADLY);
  roll(true, SB_CELL_REMOVING, sb_side_why(SB_WHY_EXPIRED), SB_COUNT_DEAD_LETTERED);
  expect_ended(SB_COUNT_DEAD_LETTERED, "one that was carried out");
}
static void given_up(void) {
  begin(DEADLY);
  roll(true, SB_CELL_REMOVING, sb_side_why(SB_WHY_EXPIRED), SB_COUNT_DROPPED);
  expect_ended(SB_COUNT_DROPPED, "one that was given up");
}
static void rejected_without_dead_letters(void) {
  begin((sb_settings)FREELY);
  roll(true, SB_CELL_ACQUIRED, 0, SB_COUNT_DROPPED);
  expect_ended(SB_COUNT_DROPPED, "a rejection");
}
static void not_decided(void) {
  begin(DEADLY);
  roll(false, SB_CELL_REMOVING, sb_side_why(SB_WHY_EXPIRED), SB_COUNT_DEAD_LETTERED);
  expect_parked(1, sb_side_why(SB_WHY_EXPIRED), "one that was not carried out");
}

static const test_case CASES[] = {
    {"park: intent before", "a message whose cell did not change is not counted", intents_before_the_flip},
    {"park: intent after", "one whose cell changed is counted once, and looked for", intents_after_the_flip},
    {"park: released", "a dead connection's cell that says why is parked", cells_that_say_why},
    {"park: released, closed", "in a queue that was deleted it is released", cells_of_a_closed_queue},
    {"park: released, last delivery", "a consumer's death at the last delivery ends the message", the_last_delivery},
    {"park: released, one reason", "a message that died before has its reason still", one_reason_is_enough},
    {"park: released, housekeeper", "a reaper tells the housekeeper", the_housekeeper_is_rung},
    {"park: killed consumer", "messages at their last delivery are dead", killed_with_messages},
    {"park: killed consumer, no dead letters", "without dead letters, too: the housekeeper drops them",
     killed_without_dead_letters},
    {"park: closed consumer", "a connection that closes gives the deliveries back", closed_with_messages},
    {"park: killed housekeeper", "a message that was carried out is dead again", killed_with_a_dead_message},
    {"park: closed housekeeper", "so it is when the connection closes", closed_with_a_dead_message},
    {"park: killed at a take", "a delayed message waits as before", killed_with_a_delayed_message},
    {"park: commit, rejection", "a rejection of a decided commit is parked", a_rejection_is_decided},
    {"park: commit, last rejection", "at its last delivery it was rejected", a_rejection_at_the_last_delivery},
    {"park: commit, carried out", "what a decided commit has carried out ends", carried_out},
    {"park: commit, given up", "what a decided commit gave up ends as dropped", given_up},
    {"park: commit, no dead letters", "without dead letters, a rejection ends", rejected_without_dead_letters},
    {"park: commit, undecided", "what an undecided commit carries out is dead again", not_decided},
};
SUBJECT(CASES)
