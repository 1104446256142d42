// SPDX-License-Identifier: Apache-2.0
/* Cases of judgements: a consumer, or a second reaper, works while the reaper judges what a dead connection left. */
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "cases.h"
#include "plan.h"
#include "sb_intent.h"

/* ---- cells: the reaper `one` returns message 1, which `two` holds; `three` has passed it ---- */

static sb_reap_context walk;
static uint64_t held, token; /* its position, and the holding that names it */

static void hold_first(void) {
  for (uint64_t id = 1; id <= 3; id++) put_by(&one, id);
  expect(get(&t, two.q, held_a, false) == 1, "message 1 was not next");
  token = ((const sb_record *)(const void *)held_a)->tag;
  expect(take(&three) == 2, "message 2 was not next");
  walk = (sb_reap_context){one.c, t.b, two.c->id, false};
  held = one.q->base;
  sb_ledger_hold(two.q->ledger, -1); /* the reaper clears that of the dead */
}
static void judge_first(void) {
  sb_intent_release_cell(&walk, one.q->slot, held);
  afterwards();
  sb_holding_give(two.c, token);
}
static void take_it(void) { got = take(&three); }
static void taken_at_once(void) {
  hold_first();
  meanwhile("recover.cell.released", take_it);
  judge_first();
  expect(got == 1, "the consumer got %d, not 1, when the cell was ready", (int)got);
  expect(!sb_requeued_is_marked(t.b, &one.q->lanes[0].ring, held), "a cell that was taken is marked");
  expect_left(3);
}
/* A search cleared a bit above the cell before the cell was ready, and was killed before its second look. */
static void clear_the_bit(void) {
  sb_leaf_ref leaf;
  (void)sb_ring_locate(t.b, NULL, &one.q->lanes[0].ring, held, &leaf);
  sb_requeued_clear(t.b, &leaf, held);
}
static void marked_again(void) {
  hold_first();
  meanwhile("recover.cell.released", clear_the_bit);
  judge_first();
  expect(sb_requeued_is_marked(t.b, &one.q->lanes[0].ring, held), "no bit leads to the cell");
  expect(take(&three) == 1, "the consumer that had passed it does not get it");
  expect_left(3);
}

/* ---- intents: a process is killed; `one` judges its intent, and meanwhile `keeper` does all that a reaper does ---- */

static const char *death;
static void die_here(void) { _exit(0); }
static void killed_at(const char *where, void (*what)(actor *)) {
  death = where;
  pid_t pid = fork();
  if (pid == 0) {
    actor other = {0};
    attach(&t);
    join(&other);
    what(&other);
    _exit(1);
  }
  int status;
  (void)waitpid(pid, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s was not reached", where);
}
static void puts_one(actor *a) {
  plan.depth = 0;
  meanwhile(death, die_here);
  put_by(a, 7);
}
static void settles_one(actor *a) {
  (void)get(&t, a->q, held_a, false);
  plan.depth = 0;
  meanwhile(death, die_here);
  (void)sb_queue_settle(a->q, held_a, SB_ACK);
}

static void holds_one(actor *a) {
  (void)get(&t, a->q, held_a, false);
  _exit(0);
}

static void reap_and_take(void) {
  (void)sb_housekeeper_reap(keeper.c);
  got = left();
}
/* The account of the dead connection. */
static sb_ledger_shm *account(void) {
  for (uint32_t at = keeper.q->shm->ledgers; at != 0; at = sb_ledger_at(t.b, at)->next) {
    sb_ledger_shm *l = sb_ledger_at(t.b, at);
    if ((l->kind & 0xffu) != SB_INTENT_NONE) return l;
  }
  die("an intent", 0);
}
static void judge_beside_another(uint64_t put, uint64_t should) {
  sb_ledger_shm *l = account();
  sb_queue_facts f;
  walk = (sb_reap_context){one.c, t.b, (unsigned)SB_BITS(l->owner, 0, 12), false};
  meanwhile("sb_intent.c", reap_and_take);
  sb_intent_resolve(&walk, sb_holding_what(SB_HOLD_LEDGER, keeper.q->slot, 0), sb_slot_of(t.b, l));
  afterwards();
  expect(got == should, "left are %d, not %d", (int)got, (int)should);
  (void)sb_queue_describe(keeper.c, keeper.q->slot, &f);
  expect(f.added == put, "%d were added, not %d", (int)f.added, (int)put);
  expect(f.acked == put && f.ready == 0, "%d are acknowledged, and %d are ready", (int)f.acked, (int)f.ready);
}
/* The consumer settles the message while the reaper looks for it: the put happened. */
static void take_what_is_left(void) { got = left(); }
static void put_consumed(void) {
  put_by(&one, 1);
  killed_at("ring.append.done", puts_one);
  sb_ledger_shm *l = account();
  sb_queue_facts f;
  walk = (sb_reap_context){one.c, t.b, (unsigned)SB_BITS(l->owner, 0, 12), false};
  meanwhile("sb_intent.c", take_what_is_left);
  sb_intent_resolve(&walk, sb_holding_what(SB_HOLD_LEDGER, keeper.q->slot, 0), sb_slot_of(t.b, l));
  afterwards();
  (void)sb_housekeeper_reap(keeper.c);
  expect(got == 17, "left are %d, not 17", (int)got);
  (void)sb_queue_describe(keeper.c, keeper.q->slot, &f);
  expect(f.added == 2 && f.acked == 2, "%d were added, and %d acknowledged", (int)f.added, (int)f.acked);
}
static void put_not_begun(void) {
  put_by(&one, 1);
  killed_at("queue.enqueue.published", puts_one);
  judge_beside_another(1, 1);
}
static void put_done(void) {
  put_by(&one, 1);
  killed_at("ring.append.done", puts_one);
  judge_beside_another(2, 17);
}
static void settlement_not_begun(void) {
  put_by(&one, 1);
  killed_at("queue.settle.announced", settles_one);
  judge_beside_another(1, 1);
}
static void settlement_done(void) {
  put_by(&one, 1);
  put_by(&one, 2);
  killed_at("queue.settle.dropped", settles_one);
  judge_beside_another(2, 2);
}

/* Both reapers find the cell held; the hints fall once. */
static void judge_too(void) {
  sb_intent_release_cell(&(sb_reap_context){keeper.c, t.b, walk.id, false}, keeper.q->slot, held);
}
static void held_by_the_dead(void) {
  put_by(&one, 1);
  put_by(&one, 2);
  killed_at("its end", holds_one);
  held = keeper.q->base;
  sb_leaf_ref leaf;
  (void)sb_ring_locate(t.b, NULL, &keeper.q->lanes[0].ring, held, &leaf);
  walk = (sb_reap_context){one.c, t.b, sb_cell_owner(sb_leaf_cell(&leaf, held)->word), false};
  meanwhile("sb_intent.c", judge_too);
  sb_intent_release_cell(&walk, keeper.q->slot, held);
  afterwards();
  expect(keeper.q->shm->taken == 0, "%d are taken, not 0", (int)keeper.q->shm->taken);
  expect(keeper.q->shm->bytes_out == 0, "%d bytes are out, not 0", (int)keeper.q->shm->bytes_out);
  reap_and_take();
  expect(got == 12, "left are %d, not 12", (int)got);
  expect(keeper.q->shm->taken == 2, "%d are taken, not 2", (int)keeper.q->shm->taken);
  expect(keeper.q->shm->bytes_out == 128, "%d bytes are out", (int)keeper.q->shm->bytes_out);
}

/* A ring of one message: the second put removed the first one, and was killed before it counted that. */
static void reap_only(void) { (void)sb_housekeeper_reap(keeper.c); }
static void ring_counted(void) {
  put_by(&one, 1);
  killed_at("limits.evict.paid", puts_one);
  sb_queue_facts f;
  meanwhile("sb_ledger.c", reap_only);
  (void)sb_queue_describe(one.c, one.q->slot, &f);
  afterwards();
  expect(f.ready <= 1, "%d are ready in a ring of one", (int)f.ready);
}

/* How many messages are ready, by the cells. */
static unsigned ready_cells(void) {
  const sb_ring *r = &one.q->lanes[0].ring;
  uint64_t at = SB_LOAD(r->base, SB_RELAXED);
  unsigned n = 0;
  sb_leaf_ref leaf;
  while (sb_ring_next_leaf(t.b, r, at, &leaf, &at)) {
    for (; sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST);
      n += sb_cell_of(word, leaf.gen) && sb_cell_state(word) == SB_CELL_AVAILABLE;
    }
  }
  return n;
}
/* A ring of two: the producer of a third message paid for the eviction of the first one, and was killed. */
static void hide_a_third(void) {
  put_by(&one, 1);
  put_by(&one, 2);
  killed_at("limits.evict.paid", puts_one);
}
/* True if the keeper has begun to evict with a ledger that it inherited. */
static bool keeper_evicts(void) {
  for (uint32_t at = one.q->shm->ledgers; at != 0; at = sb_ledger_at(t.b, at)->next) {
    sb_ledger_shm *l = sb_ledger_at(t.b, at);
    if (SB_BITS(l->owner, 0, 12) == keeper.c->id && (l->hinting & SB_HINTING_DEPTH) != 0) return true;
  }
  return false;
}
static void put_one_more(void) {
  one.q->reap_again_ns = 0;
  put_by(&one, 3);
  expect(one.q->reap_again_ns != 0 || keeper_evicts() || ready_cells() <= 2, "a put that did not wait left %d",
         (int)ready_cells());
}
static void ring_put_beside(void) {
  hide_a_third();
  meanwhile("sb_hints.c", put_one_more);
  reap_only();
  afterwards();
  expect(ready_cells() <= 2, "%d are ready in a ring of two", (int)ready_cells());
}
/* A process that reaps is killed at any step of its correction of the hints. */
static bool killed_while_it_reaps(void) {
  pid_t pid = fork();
  if (pid == 0) {
    actor other = {0};
    attach(&t);
    join(&other);
    plan.depth = 0;
    meanwhile("sb_hints.c", die_here);
    (void)sb_housekeeper_reap(other.c);
    _exit(1);
  }
  int status;
  (void)waitpid(pid, &status, 0);
  expect(WIFEXITED(status) && WEXITSTATUS(status) <= 1, "the reaper ended with %d", status);
  return WEXITSTATUS(status) == 0;
}
static void ring_reaper_killed(void) {
  hide_a_third();
  plan.depth = 1;
  plan.anywhere[0] = true;
  plan.sites[0] = "the reaper's end";
  plan.reached[0] = killed_while_it_reaps();
  put_by(&one, 3);
  expect(ready_cells() <= 2, "%d are ready in a ring of two", (int)ready_cells());
  reap_only();
}

static const test_case CASES[] = {
    {"judged, taken", "a consumer finds a cell as soon as the reaper has made it ready", FREELY, taken_at_once},
    {"judged, cleared", "the reaper marks a cell again whose bit was cleared meanwhile", FREELY, marked_again},
    {"judged, consumed", "the reaper counts a put whose message is settled while it looks", FREELY, put_consumed},
    {"judged twice, held", "two reapers return a cell once", {{-1, 5, -1, 0, -1, -1}, 0}, held_by_the_dead},
    {"judged twice, no put", "two reapers take back a put without a cell once", FREELY, put_not_begun},
    {"judged twice, put", "two reapers count a put once, although its message is consumed meanwhile", FREELY, put_done},
    {"judged twice, not settled", "two reapers leave a message that is settled by another consumer", FREELY,
     settlement_not_begun},
    {"judged, counted", "the statistics of a ring hold its bound while a reaper counts", RING(1), ring_counted},
    {"judged, ring", "a put beside a reaper that corrects hints keeps the bound of a ring, or waited for the reaper",
     RING(2), ring_put_beside},
    {"judged, killed", "a put after a reaper was killed that corrected hints keeps the bound of a ring", RING(2),
     ring_reaper_killed},
    {"judged twice, settled", "two reapers count a settlement once", FREELY, settlement_done},
};
const subject JUDGE_CASES = {CASES, sizeof CASES / sizeof CASES[0]};
