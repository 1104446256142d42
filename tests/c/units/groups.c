// SPDX-License-Identifier: Apache-2.0
/* sb_groups: buckets of message groups, claims, what is passed meanwhile, and the end of claims. The consumers 1 and 2 are
 * of the connection `t.c`; another connection has the claim ELSEWHERE. */
#include "sb_groups.h"

#include <string.h>

#include "cells.h"
#include "ranked.h"
#include "sb_choice.h"
#include "sb_handles.h"
#include "sb_release.h"

#define ELSEWHERE UINT64_C(0x7077)
#define PASSED (UINT64_C(1) << 63)
#define GROUPED(how, buckets) \
  {{-1, -1, -1, 0, -1, -1, [SB_SETTING_MESSAGE_GROUPS] = (how), [SB_SETTING_GROUP_BUCKETS] = (buckets)}, 0}

static sb_queue *q;
static sb_groups *g;
static const uint64_t none[SB_GROUPS_BITS];

static void begin_with(unsigned how, int64_t buckets) {
  sb_settings settings = GROUPED(how, buckets);
  q = begin_queue("q", settings, 5);
  g = q->groups;
  if (g == NULL || sb_groups_find(q) != SB_OK) die("groups", 0);
}
static void begin(void) { begin_with(SB_GROUPS_SHARED, 4); }
static uint64_t claim_of(unsigned bucket) { return SB_LOAD(&g->shm->claims[bucket], SB_RELAXED); }
static void set_claim(unsigned bucket, uint64_t to) { SB_STORE(&g->shm->claims[bucket], to, SB_RELAXED); }
static bool is_freed(unsigned bucket) {
  return (SB_LOAD(&g->shm->freed[bucket / 64], SB_RELAXED) >> bucket % 64 & 1) != 0;
}
static void set_freed(unsigned bucket) {
  SB_STORE(&g->shm->freed[bucket / 64], UINT64_C(1) << bucket % 64, SB_RELAXED);
}
static unsigned told;
static void tell(sb_queue *of) { told += of == q; }
static void count_tells(void) {
  told = 0;
  g->tell = tell;
}
/* A claim of consumer 1 from which it has taken one message, behind which it searches on at number 1. */
static void hold_one(unsigned bucket) {
  sb_group_verdict verdict = sb_groups_admits(q, 1, bucket, at(0), true);
  expect_is(verdict, SB_GROUP_CLAIMED, "the verdict on a free bucket");
  sb_groups_took(q, bucket, at(1), true);
}

/* ---- buckets ---- */

static void bits_of_buckets(void) {
  uint64_t bits[SB_GROUPS_BITS] = {0};
  expect_is(sb_groups_next_bit(bits, 0), SB_NO_BUCKET, "the first of none");
  for (unsigned b = 0; b < SB_BUCKETS; b++) {
    memset(bits, 0, sizeof bits);
    bits[b / 64] = UINT64_C(1) << b % 64;
    expect_is(sb_groups_next_bit(bits, 0), b, "the first one");
    expect_is(sb_groups_next_bit(bits, b), b, "the first one from itself on");
    expect_is(sb_groups_next_bit(bits, b + 1), SB_NO_BUCKET, "the first one behind it");
    expect(sb_groups_has(bits, b) && !sb_groups_has(bits, b ^ 1u), "it is another one's bit");
  }
}
static void buckets_of_messages(void) {
  begin_with(SB_GROUPS_SHARED, 7);
  sb_message_shm m = {.group_hash = 16};
  expect_is(sb_groups_bucket(q, &m), 2, "the bucket of a group");
  m.group_hash = 0;
  expect_is(sb_groups_bucket(q, &m), 0, "the bucket of a message without a group");
  SB_STORE(&q->shm->settings[SB_SETTING_MESSAGE_GROUPS], SB_GROUPS_STICKY, SB_RELAXED);
  expect_is(sb_groups_bucket(q, &m), SB_NO_BUCKET, "the same with sticky groups");
  m.group_hash = 300;
  const int64_t damaged[] = {0, -1, SB_BUCKETS + 1};
  for (unsigned i = 0; i < 3; i++) {
    SB_STORE(&q->shm->settings[SB_SETTING_GROUP_BUCKETS], damaged[i], SB_RELAXED);
    expect_is(sb_groups_bucket(q, &m), 300 % SB_BUCKETS, "the bucket beside a damaged setting");
  }
}
/* FNV-1a of 32 bits. */
static void the_group_that_a_header_names(void) {
  static const char properties[] = "\x20\x00\x00\x00\x00\x12\x0bJMSXGroupIDS\x00\x00\x00\x01"
                                   "a";
  static const char last[] = "\x20\x00\x00\x00\x00\x24\x0bJMSXGroupIDS\x00\x00\x00\x01"
                             "a"
                             "\x0cJMSXGroupSeqI\xff\xff\xff\xff";
  sb_message_shm m = {0};
  sb_groups_describe(&m, properties, sizeof properties - 1);
  expect_is(m.group_hash, 0xe40c292c, "the hash of a group");
  expect_is(m.flags, 0, "the flags of a message in the middle of its group");
  sb_groups_describe(&m, last, sizeof last - 1);
  expect_is(m.flags, SB_MESSAGE_LAST, "the flags of the last one of its group");
  sb_message_shm none = {0};
  sb_groups_describe(&none, properties, 0);
  sb_groups_describe(&none, properties, 12);
  sb_groups_describe(&none, "\x00\x00", 2);
  expect(none.group_hash == 0 && none.flags == 0, "a message without the header has a group");
}

/* ---- claims ---- */

static void a_bucket_is_claimed(void) {
  begin();
  SB_STORE(&g->shm->low[3], at(1), SB_RELAXED);
  SB_STORE(&g->shm->high[3], at(2), SB_RELAXED);
  set_freed(3);
  expect_is(sb_groups_admits(q, 1, SB_NO_BUCKET, at(0), true), SB_GROUP_MINE, "the verdict on what has no group");
  expect_is(sb_groups_admits(q, 1, 3, at(2), true), SB_GROUP_CLAIMED, "the verdict on a free bucket");
  expect_is(claim_of(3), g->claim, "the claim");
  expect(!is_freed(3), "a claimed bucket counts as free");
  expect_is(g->claim & 0xfff, t.c->id, "the connection of the claim");
  expect_is(sb_groups_admits(q, 1, 3, at(2), true), SB_GROUP_MINE, "the verdict on an own bucket");
  expect_is(sb_groups_behind(q, 1, 0, at(9)), 3, "where it searches behind its cursor");
  expect_is(sb_groups_behind(q, 2, 0, at(9)), SB_NO_BUCKET, "where another consumer does");
  expect_is(sb_groups_behind(q, 1, 0, at(1)), SB_NO_BUCKET, "where it does before the cursor is there");
  g->next[3] = at(2);
  expect_is(sb_groups_behind(q, 1, 0, at(9)), SB_NO_BUCKET, "where it does when it has searched");
}
static void a_bucket_of_others_is_passed(void) {
  begin();
  set_claim(2, ELSEWHERE);
  expect_is(sb_groups_admits(q, 1, 2, at(3), false), SB_GROUP_PASSED, "the verdict on what returned");
  expect_is(SB_LOAD(&g->shm->high[2], SB_RELAXED), q->base, "the mark of what has bits");
  expect_is(claim_of(2), ELSEWHERE | PASSED, "the claim of another");
  expect_is(sb_groups_admits(q, 1, 2, at(3), true), SB_GROUP_PASSED, "the verdict on a bucket of others");
  expect_is(SB_LOAD(&g->shm->high[2], SB_RELAXED), at(4), "how far it was passed");
  expect_is(sb_groups_admits(q, 1, 2, at(1), true), SB_GROUP_PASSED, "the verdict on an earlier one");
  expect_is(SB_LOAD(&g->shm->high[2], SB_RELAXED), at(4), "how far it was passed then");
}
static void the_consumers_of_a_connection_have_their_own(void) {
  begin();
  hold_one(1);
  expect_is(sb_groups_admits(q, 2, 1, at(1), true), SB_GROUP_PASSED, "the verdict for another consumer");
  expect_is(claim_of(1), g->claim | PASSED, "the claim");
  (void)sb_groups_begin(q, 2, false, none);
  expect_is(g->consumer[1], 1, "the consumer of the claim");
}
static void what_is_free_is_claimed_first(void) {
  begin();
  set_freed(1);
  (void)sb_groups_begin(q, 1, false, none);
  expect(claim_of(1) == g->claim && !is_freed(1), "a free bucket is not claimed");
  sb_groups_end(q, true);
  expect_is(claim_of(1), 0, "the claim after a search that found nothing");
  set_claim(2, ELSEWHERE);
  set_freed(2);
  (void)sb_groups_begin(q, 1, false, none);
  expect(claim_of(2) == ELSEWHERE && is_freed(2), "a bucket of others is claimed");
}

/* ---- ends ---- */

static void a_shared_claim_ends_with_its_messages(void) {
  begin();
  count_tells();
  hold_one(1);
  sb_groups_took(q, 1, at(3), true);
  sb_groups_ended(q, 1);
  expect_is(claim_of(1), g->claim, "the claim beside a message");
  sb_groups_ended(q, 1);
  expect_is(claim_of(1), 0, "the claim after the last message");
  expect_is(SB_LOAD(&g->shm->low[1], SB_RELAXED), at(3), "where the next one begins");
  expect(told == 0 && !is_freed(1), "others are told of nothing");
  sb_groups_ended(q, 1);
  expect_is(claim_of(1), 0, "the claim after a message that nobody counted");
}
static void what_was_passed_is_announced(void) {
  begin();
  count_tells();
  hold_one(1);
  (void)sb_groups_admits(q, 2, 1, at(4), false);
  sb_groups_ended(q, 1);
  expect(told == 1 && is_freed(1), "what was passed by its bits is not announced");
}
static void what_was_passed_before_is_announced(void) {
  begin();
  count_tells();
  SB_STORE(&g->shm->high[1], at(3), SB_RELAXED);
  hold_one(1);
  sb_groups_ended(q, 1);
  expect(told == 1 && is_freed(1), "what was passed in an earlier claim is not announced");
}
static void a_sticky_claim_stays(void) {
  begin_with(SB_GROUPS_STICKY, 4);
  hold_one(1);
  sb_groups_ended(q, 1);
  expect_is(claim_of(1), g->claim, "the claim without messages");
  sb_groups_end(q, true);
  expect_is(claim_of(1), g->claim, "the claim after a search");
  sb_groups_took(q, 1, at(2), true);
  sb_groups_ended(q, 1 | SB_GROUP_LAST);
  expect_is(claim_of(1), 0, "the claim after the last message of the group");
  (void)sb_groups_admits(q, SB_GROUPS_GETS, 2, at(0), true);
  sb_groups_took(q, 2, at(1), true);
  sb_groups_ended(q, 2);
  expect_is(claim_of(2), 0, "the claim of a get");
}
/* All five messages are of one group; those before `live` have expired. */
static sb_status take_behind_expired(unsigned live, sb_taken *taken) {
  sb_choice choice = {.consumer = 1};
  begin_with(SB_GROUPS_STICKY, 4);
  for (unsigned n = 0; n < 5; n++) {
    message_of(n)->group_hash = 2;
    message_of(n)->expires_ns = n < live ? 1 : 0;
  }
  return sb_choice_take(q, &choice, new_token(), taken);
}
static void what_expires_claims_nothing(void) {
  sb_taken taken;
  expect_is(take_behind_expired(5, &taken), SB_EMPTY, "the status");
  expect_is(claim_of(2), 0, "the claim");
}
static void what_comes_behind_is_the_first(void) {
  sb_taken taken;
  expect_is(take_behind_expired(4, &taken), SB_OK, "the status");
  expect_is(taken.position, at(4), "what was taken");
  expect_is(claim_of(2), g->claim, "the claim");
  expect((taken.side & SB_SIDE_GROUP_FIRST) != 0, "it is not the first one of its group");
}
/* It waits for its next delivery. */
static void what_is_delayed_closes_nothing(void) {
  begin_with(SB_GROUPS_STICKY, 4);
  SB_STORE(&q->shm->settings[SB_SETTING_REDELIVERY_DELAY_MS], 3600000, SB_RELAXED);
  SB_STORE(&q->shm->settings[SB_SETTING_REDELIVERY_MULTIPLIER], 1000, SB_RELAXED);
  SB_STORE(&q->shm->settings[SB_SETTING_MAX_REDELIVERY_DELAY_MS], -1, SB_RELAXED);
  message_of(0)->group_hash = 1;
  message_of(0)->flags |= SB_MESSAGE_LAST;
  uint64_t token;
  sb_taken taken;
  if (sb_holding_take(t.c, &token) != SB_OK) die("sb_holding_take", 0);
  expect_is(sb_groups_admits(q, 1, 1, at(0), true), SB_GROUP_CLAIMED, "the verdict on a free bucket");
  expect_is(sb_take_for_consumer_at(q, &SB_NO_LEAF, at(0), false, token, &taken), SB_OK, "the status of a take");
  sb_groups_took(q, 1, at(1), true);
  expect_is(sb_release_message(q, token, SB_REQUEUE), SB_OK, "the status of a return");
  expect_is(sb_cell_state(SB_LOAD(&sb_leaf_cell(&q->lanes[0].tail_leaf, at(0))->word, SB_RELAXED)), SB_CELL_SCHEDULED,
            "its state");
  expect_is(claim_of(1), g->claim, "the claim after the return of the last message of its group");
}
/* When another consumer came: half of four claims. */
static void a_share_is_kept(void) {
  begin_with(SB_GROUPS_STICKY, 4);
  for (unsigned bucket = 0; bucket < 4; bucket++) {
    hold_one(bucket);
    sb_groups_ended(q, bucket);
  }
  SB_STORE(&q->shm->consumers, 2, SB_RELAXED);
  (void)SB_ADD(&g->shm->joins, 1, SB_RELAXED);
  uint64_t passed[SB_GROUPS_BITS] = {0};
  (void)sb_groups_begin(q, 1, false, passed);
  unsigned kept = 0;
  for (unsigned bucket = 0; bucket < 4; bucket++) kept += claim_of(bucket) != 0;
  expect_is(kept, 2, "how many claims of four one of two consumers keeps");
}
static void patience_ends_when_there_are_no_others(void) {
  begin_with(SB_GROUPS_STICKY, 4);
  SB_STORE(&q->shm->non_acquiring, 2, SB_RELAXED);
  hold_one(1);
  expect_is(sb_groups_admits(q, 1, 2, at(1), true), SB_GROUP_PASSED, "the verdict on a bucket for others");
  expect(sb_groups_searches_again(q), "the consumer does not search again");
  SB_STORE(&q->shm->non_acquiring, 1, SB_RELAXED);
  g->left_some = false; /* the next search begins */
  expect_is(sb_groups_admits(q, 1, 2, at(1), true), SB_GROUP_CLAIMED, "the verdict on it without others");
  expect(!sb_groups_searches_again(q), "the consumer searches again, although it left nothing");
}
/* A message that was found by its bits lies anywhere. */
static void a_search_does_not_go_back(void) {
  begin();
  hold_one(1);
  sb_groups_took(q, 1, 0, true);
  sb_groups_ended(q, 1);
  sb_groups_ended(q, 1);
  expect_is(SB_LOAD(&g->shm->low[1], SB_RELAXED), at(1), "where the next claimant begins");
}
static void who_leaves_hands_over(void) {
  begin_with(SB_GROUPS_STICKY, 4);
  hold_one(1);
  hold_one(2);
  sb_groups_ended(q, 2);
  sb_groups_leave(q, 2);
  expect(claim_of(1) != 0 && claim_of(2) != 0, "another consumer's claims ended");
  sb_groups_leave(q, 1);
  expect(claim_of(1) == g->claim && claim_of(2) == 0, "not the claims without messages ended");
  expect_is(sb_groups_admits(q, 1, 1, at(1), true), SB_GROUP_PASSED, "the verdict on what is handed over");
  sb_groups_ended(q, 1);
  expect_is(claim_of(1), 0, "the claim after its last message");
  hold_one(3);
  sb_groups_leave_all(q);
  expect_is(claim_of(3), 0, "the claim of a connection that left");
}
static void claims_of_the_dead_end(void) {
  begin();
  uint64_t dead = OTHER | SB_FIELD(sb_conn_epoch(SB_LOAD(&t.b->connections[OTHER], SB_RELAXED)), 12);
  set_claim(0, dead);
  set_claim(1, dead | PASSED);
  set_claim(2, ELSEWHERE);
  set_claim(3, dead + (UINT64_C(1) << 12)); /* a later connection of that id */
  sb_groups_end_dead(t.b, q->shm, OTHER);
  expect(claim_of(0) == 0 && claim_of(1) == 0, "a claim of the dead is left");
  expect(claim_of(2) == ELSEWHERE && claim_of(3) != 0, "a claim of the living ended");
  expect(is_freed(0) && is_freed(1) && !is_freed(2) && is_freed(4), "not the free buckets are announced");
}

static void a_handle_that_is_left_leaves_its_claims(void) {
  begin_with(SB_GROUPS_STICKY, 4);
  hold_one(2);
  sb_groups_shm *s = g->shm;
  sb_handle_leave(q);
  expect_is(SB_LOAD(&s->claims[2], SB_RELAXED), 0, "the claim of a handle that was left");
}

/* A table, a line or two for each. */
/* clang-format off */
/* A consumer passed messages of a bucket that another one had, the last but one while it was STAGED: its bits lead there. */
static void what_was_staged_comes_in_its_place(void) {
  sb_choice choice = {.consumer = 1};
  sb_taken taken;
  begin();
  for (unsigned n = 0; n < 5; n++) message_of(n)->group_hash = 2;
  set_claim(2, ELSEWHERE);
  set_cell(3, SB_CELL_STAGED, OTHER);
  SB_STORE(&q->shm->staged, 1, SB_RELAXED);
  expect_is(sb_choice_take(q, &choice, new_token(), &taken), SB_EMPTY, "the status while another one has the bucket");
  expect_is(choice.cursor, at(5), "the cursor");
  set_cell(3, SB_CELL_AVAILABLE, 0);
  set_claim(2, 0);
  set_freed(2);
  for (unsigned n = 0; n < 5; n++) {
    expect_is(sb_choice_take(q, &choice, new_token(), &taken), SB_OK, "the status");
    expect_is(taken.position, at(n), "what was taken");
  }
}

/* A consumer with more than its share leaves a bucket to others; when another one has it, it waits no longer. */
static void patience_ends_with_what_was_left(void) {
  sb_choice choice = {.consumer = 1};
  sb_taken taken;
  begin_with(SB_GROUPS_STICKY, 4);
  count_tells();
  SB_STORE(&q->shm->non_acquiring, 2, SB_RELAXED);
  hold_one(1);
  for (unsigned n = 0; n < 5; n++) message_of(n)->group_hash = 2;
  g->patient_until_ns = UINT64_MAX;
  g->patient = 1;
  expect_is(sb_choice_take(q, &choice, new_token(), &taken), SB_EMPTY, "the status of what is left to others");
  expect(sb_groups_searches_again(q) && is_freed(2), "a consumer that left a bucket does not search again");
  expect_is(sb_choice_take(q, &choice, new_token(), &taken), SB_EMPTY, "the status of what is still left to others");
  expect_is(told, 1, "how often the others are told of it, whenever the consumer looks");
  set_claim(2, ELSEWHERE);
  expect_is(sb_choice_take(q, &choice, new_token(), &taken), SB_EMPTY, "the status of what another one has");
  expect(!sb_groups_searches_again(q), "a consumer searches again for ever");
  expect_is(g->patient_until_ns, 0, "the end of its patience");
}

/* ---- arrivals ---- */

static void the_claimant_is_told_alone(void) {
  begin();
  expect_is(sb_groups_claimant(t.b, q->shm, 2), 0, "the claimant of a bucket without a claim");
  expect(!sb_groups_pass_for_others(t.b, q->shm, 2, OTHER), "a message without a claim is passed");
  set_claim(2, ELSEWHERE);
  expect_is(sb_groups_claimant(t.b, q->shm, 2), ELSEWHERE & 0xfff, "the claimant");
  expect(!sb_groups_pass_for_others(t.b, q->shm, 2, t.c->id), "a message is passed for an earlier claimant");
  expect_is(claim_of(2), ELSEWHERE, "the claim of another one than was told");
  for (unsigned i = 0; i < 2; i++) {
    expect(sb_groups_pass_for_others(t.b, q->shm, 2, ELSEWHERE & 0xfff), "a message is not passed");
    expect_is(claim_of(2), ELSEWHERE | PASSED, "the claim after it was passed");
  }
  SB_STORE(&q->shm->settings[SB_SETTING_MESSAGE_GROUPS], SB_GROUPS_STICKY, SB_RELAXED);
  expect_is(sb_groups_claimant(t.b, q->shm, 0), 0, "the claimant of a message without a group");
  SB_STORE(&q->shm->groups, 0u, SB_RELAXED);
  expect_is(sb_groups_claimant(t.b, q->shm, 2), 0, "the claimant where there are no claims");
}

/* ---- messages of several priorities, or for picky consumers ---- */

static void what_a_picky_consumer_passed_is_found_again(void) {
  sb_choice picky = {.consumer = 1, .no_local = true}, other = {.consumer = 2};
  sb_taken taken;
  begin();
  for (unsigned n = 0; n < 5; n++) message_of(n)->group_hash = 2;
  message_of(1)->publisher = message_of(3)->publisher = OTHER;
  set_claim(2, ELSEWHERE);
  expect_is(sb_choice_take(q, &picky, new_token(), &taken), SB_EMPTY, "the status while another one has the bucket");
  expect_is(sb_choice_take(q, &other, new_token(), &taken), SB_EMPTY, "the same for a consumer that wants all");
  set_claim(2, 0);
  set_freed(2);
  expect_is(sb_choice_take(q, &picky, new_token(), &taken), SB_OK, "the status of what it passed");
  expect_is(taken.position, at(1), "the first one that it wants");
  expect((taken.side & SB_SIDE_GROUP_FIRST) != 0, "it is not the first one of its group");
  expect_is(sb_dispose(q, taken.token, SB_REASON_ACKED), SB_OK, "its end");
  expect(is_freed(2), "what it did not want is not announced");
  for (unsigned n = 0; n < 5; n += n == 0 ? 2 : 1) {
    expect_is(sb_choice_take(q, &other, new_token(), &taken), SB_OK, "the status of what the picky one left");
    expect_is(taken.position, at(n), "what it left");
  }
}

static void begin_ranked(unsigned how) {
  static const unsigned PRIORITY[] = {0, 2, 1, 2};
  sb_settings settings = GROUPED(how, 4);
  settings.values[SB_SETTING_MAX_PRIORITY] = 2;
  q = begin_queue("q", settings, 0);
  g = q->groups;
  if (g == NULL || sb_groups_find(q) != SB_OK) die("groups", 0);
  for (unsigned i = 0; i < 4; i++) {
    if (put_ranked(q, PRIORITY[i], i + 1) != SB_OK) die("put", 0);
  }
}
static void take_id(sb_choice *choice, uint64_t id) {
  sb_taken taken;
  expect_is(sb_choice_take(q, choice, new_token(), &taken), SB_OK, "the status");
  expect_is(id_of(&taken), id, "the message");
}
/* The messages have no group; where groups are shared these are one group, in bucket 0. */
static void what_was_passed_comes_by_priority(void) {
  sb_choice choice = {.consumer = 1};
  sb_taken taken;
  begin_ranked(SB_GROUPS_SHARED);
  set_claim(0, ELSEWHERE);
  expect_is(sb_choice_take(q, &choice, new_token(), &taken), SB_EMPTY, "the status while another one has the bucket");
  expect_is(choice.passed[0], 1, "the buckets that it passed");
  expect_is(claim_of(0), ELSEWHERE | PASSED, "the claim");
  set_claim(0, 0);
  set_freed(0);
  const uint64_t ids[] = {2, 4, 3, 1};
  for (unsigned i = 0; i < 4; i++) take_id(&choice, ids[i]);
  expect_is(choice.passed[0], 0, "the buckets that it passed, after it walked again");
}
/* Consumer 2 passed what consumer 1 takes one by one: each end tells it, until nothing is left. */
static void a_claim_hands_on_that_messages_were_passed(void) {
  sb_choice one = {.consumer = 1}, two = {.consumer = 2};
  sb_taken taken;
  begin_ranked(SB_GROUPS_SHARED);
  count_tells();
  set_claim(0, ELSEWHERE);
  expect_is(sb_choice_take(q, &two, new_token(), &taken), SB_EMPTY, "the status while another one has the bucket");
  set_claim(0, 0);
  set_freed(0);
  for (unsigned n = 1; n <= 4; n++) {
    expect_is(sb_choice_take(q, &one, new_token(), &taken), SB_OK, "the status");
    expect(!is_freed(0), "the claim did not take the bit over");
    expect_is(sb_dispose(q, taken.token, SB_REASON_ACKED), SB_OK, "its end");
    expect(told == n && is_freed(0), "the end of claim %u told of nothing", n);
  }
  expect_is(sb_choice_take(q, &one, new_token(), &taken), SB_EMPTY, "the status when nothing is left");
  expect(told == 4 && !is_freed(0), "a search that found nothing told of something");
}
static void a_late_bit_is_seen(void) {
  begin_ranked(SB_GROUPS_SHARED);
  count_tells();
  hold_one(1);
  set_freed(1); /* by an earlier claimant, whose claim ended before this one began */
  sb_groups_ended(q, 1);
  expect(told == 1 && is_freed(1), "the end of a claim does not see the bit of an earlier one");
}

static const test_case CASES[] = {
    {"groups: patience", "a consumer waits no longer for what another one has", patience_ends_with_what_was_left},
    {"groups: arrival", "a message of a claimed bucket is the claimant's", the_claimant_is_told_alone},
    {"groups: picky", "what a picky consumer passed, or does not want, is found",
     what_a_picky_consumer_passed_is_found_again},
    {"groups: ranked", "what was passed comes by priority", what_was_passed_comes_by_priority},
    {"groups: handed on", "a claim hands on that messages were passed", a_claim_hands_on_that_messages_were_passed},
    {"groups: late bit", "the end of a claim sees the bit of an earlier one", a_late_bit_is_seen},
    {"groups: bits", "the next bucket of a bitmap is found", bits_of_buckets},
    {"groups: buckets", "a message has the bucket of its group", buckets_of_messages},
    {"groups: header", "a header names the group", the_group_that_a_header_names},
    {"groups: claim", "a free bucket is claimed once", a_bucket_is_claimed},
    {"groups: passed", "a bucket of others is passed, and it says so", a_bucket_of_others_is_passed},
    {"groups: consumers", "each consumer of a connection has its own", the_consumers_of_a_connection_have_their_own},
    {"groups: freed", "a search begins with what is free", what_is_free_is_claimed_first},
    {"groups: shared", "a shared claim ends with its messages", a_shared_claim_ends_with_its_messages},
    {"groups: announced", "what was passed is announced", what_was_passed_is_announced},
    {"groups: announced later", "what was passed in an earlier claim is announced", what_was_passed_before_is_announced},
    {"groups: sticky", "a sticky claim stays until its group ends", a_sticky_claim_stays},
    {"groups: expired", "a message that expires claims no bucket", what_expires_claims_nothing},
    {"groups: behind expired", "a message that expires is not the first one of its group", what_comes_behind_is_the_first},
    {"groups: delayed", "a last message that is delayed closes nothing", what_is_delayed_closes_nothing},
    {"groups: share", "a consumer keeps its share when another one comes", a_share_is_kept},
    {"groups: patience ends", "a consumer leaves nothing to others that are gone", patience_ends_when_there_are_no_others},
    {"groups: by bits", "what was found by its bits does not lead a search back", a_search_does_not_go_back},
    {"groups: leave", "a consumer that leaves hands over", who_leaves_hands_over},
    {"groups: handle", "a handle that is left leaves no claim", a_handle_that_is_left_leaves_its_claims},
    {"groups: dead", "claims of the dead end", claims_of_the_dead_end},
    {"groups: staged", "what was staged while it was passed comes after what lies before it",
     what_was_staged_comes_in_its_place},
};
/* clang-format on */
SUBJECT(CASES)
