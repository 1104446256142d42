// SPDX-License-Identifier: Apache-2.0
#include "sb_groups.h"

#include "sb_properties.h"
#include "sb_slab.h"
#include "sb_wait.h"

#define PASSED (UINT64_C(1) << 63)

static void set_bit(uint64_t *bits, unsigned bucket) { bits[bucket / 64] |= UINT64_C(1) << bucket % 64; }
static void set_counted(uint64_t *bits, uint32_t *count, unsigned bucket) {
  *count += !sb_groups_has(bits, bucket);
  set_bit(bits, bucket);
}
static void clear_counted(uint64_t *bits, uint32_t *count, unsigned bucket) {
  *count -= sb_groups_has(bits, bucket);
  bits[bucket / 64] &= ~(UINT64_C(1) << bucket % 64);
}

unsigned sb_groups_next_bit(const uint64_t *bits, unsigned from) {
  for (unsigned w = from / 64; w < SB_GROUPS_BITS; w++) {
    uint64_t left = w == from / 64 ? bits[w] & ~UINT64_C(0) << from % 64 : bits[w];
    if (left != 0) return w * 64 + (unsigned)__builtin_ctzll(left);
  }
  return SB_NO_BUCKET;
}

/* ---- the object ---- */

sb_groups_shm *sb_groups_at(sb_broker *b, uint32_t slot) { return sb_slab_object(b, slot, SB_KIND_GROUPS); }

bool sb_groups_links(sb_broker *b, uint32_t slot) {
  const sb_groups_shm *g = sb_slot_at(b, slot);
  const sb_queue_shm *q = sb_slab_queue(b, SB_LOAD(&g->queue, SB_RELAXED));
  return q != NULL && SB_LOAD(&q->groups, SB_ACQUIRE) == slot;
}

static void start(sb_groups_shm *g, uint32_t queue, uint64_t base) {
  SB_STORE(&g->queue, queue, SB_RELAXED);
  for (unsigned w = 0; w < SB_GROUPS_BITS; w++) SB_STORE(&g->freed[w], 0, SB_RELAXED);
  for (unsigned n = 0; n < SB_BUCKETS; n++) {
    SB_STORE(&g->claims[n], 0, SB_RELAXED);
    SB_STORE(&g->low[n], base, SB_RELAXED);
    SB_STORE(&g->high[n], base, SB_RELAXED);
  }
}

static sb_status make(sb_queue *q, uint32_t *slot) {
  sb_connection *c = q->c;
  sb_broker *b = c->b;
  uint64_t token = 0, gen = 0;
  uint32_t fresh = 0;
  sb_status status = sb_holding_object(c, SB_KIND_GROUPS, &token, &fresh, &gen);
  sb_slab_return_class(c, sb_class_of_kind(b, SB_KIND_GROUPS)); /* cached slots would lie idle: groups are made once */
  if (status != SB_OK) {
    return status;
  }
  start(sb_slot_at(b, fresh), q->slot, q->base);
  *slot = 0;
  if (SB_CAS(&q->shm->groups, slot, fresh, SB_SEQ_CST)) {
    SB_CRASHPOINT("groups.linked");
    uint64_t mine = sb_slot_word(SB_SLOT_ALLOC, c->id, gen);
    (void)SB_CAS(sb_slot_header(b, fresh), &mine, sb_slot_word(SB_SLOT_PUBLISHED, 1, gen), SB_ACQ_REL);
    *slot = fresh;
  } else {
    (void)sb_slab_free_gen(b, fresh, gen); /* another process was faster */
  }
  sb_holding_give(c, token);
  return SB_OK;
}

sb_status sb_groups_find(sb_queue *q) {
  sb_groups *g = q->groups;
  if (g->shm != NULL) {
    return SB_OK;
  }
  sb_broker *b = q->c->b;
  uint32_t slot = SB_LOAD(&q->shm->groups, SB_ACQUIRE);
  sb_status status = slot == 0 ? make(q, &slot) : SB_OK;
  if (status == SB_OK) {
    g->shm = sb_groups_at(b, slot);
    g->claim = q->c->id | SB_FIELD(sb_conn_epoch(SB_LOAD(&b->connections[q->c->id], SB_RELAXED)), 12);
  }
  return status == SB_OK && g->shm == NULL ? SB_CORRUPT : status;
}

#define NAME "JMSXGroupID"
#define NUMBER "JMSXGroupSeq"

static bool read_header(sb_properties *p, const char *name, sb_value *v) {
  return sb_properties_header(p, (const uint8_t *)name, (unsigned)strlen(name), v);
}

void sb_groups_describe(sb_message_shm *m, const char *properties, uint32_t length) {
  sb_properties p = {.at = (const uint8_t *)properties, .length = length};
  sb_value v;
  if (length == 0 || !read_header(&p, NAME, &v) || v.kind != SB_VALUE_STRING) {
    return;
  }
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (uint32_t i = 0; i < v.length; i++) hash = (hash ^ v.at[i]) * 16777619u;
  m->group_hash = hash != 0 ? hash : 1;
  if (read_header(&p, NUMBER, &v) && v.kind == SB_VALUE_INTEGER && v.is.integer == -1) m->flags |= SB_MESSAGE_LAST;
}

/* ---- claims ---- */

static bool is_freed(const sb_groups_shm *s, unsigned bucket) {
  return (SB_LOAD(&s->freed[bucket / 64], SB_SEQ_CST) >> bucket % 64 & 1) != 0;
}

static void raise(sb_word *word, uint64_t to) {
  uint64_t is = SB_LOAD(word, SB_SEQ_CST);
  while (is < to && !SB_CAS(word, &is, to, SB_SEQ_CST)) {
  }
}

/* True if a claim of the connection has ended, and consumers may have passed messages of the bucket. `inherited`: the
 * claimant knows of such messages (I113); used in a queue with priorities only. */
static bool others_passed(const sb_queue *q, unsigned bucket, uint64_t next, bool inherited) {
  const sb_groups_shm *s = q->groups->shm;
  return sb_queue_has_lanes(q) ? inherited || is_freed(s, bucket) : SB_LOAD(&s->high[bucket], SB_SEQ_CST) > next;
}

/* Ends a claim of the connection (P24). */
static void end_claim(sb_queue *q, unsigned bucket) {
  sb_groups *g = q->groups;
  sb_groups_shm *s = g->shm;
  uint64_t next = g->next[bucket];
  bool inherited = sb_groups_has(g->behind, bucket);
  g->number[bucket] = 0;
  g->mine[bucket / 64] &= ~(UINT64_C(1) << bucket % 64);
  g->leaving[bucket / 64] &= ~(UINT64_C(1) << bucket % 64);
  clear_counted(g->unused, &g->unused_count, bucket);
  clear_counted(g->behind, &g->behind_count, bucket);
  SB_STORE(&s->low[bucket], next, SB_SEQ_CST);
  SB_CRASHPOINT("groups.end.low");
  uint64_t had = SB_SWAP(&s->claims[bucket], 0, SB_SEQ_CST); /* P24, P36 */
  SB_CRASHPOINT("groups.end.swapped");
  if ((had & PASSED) != 0 || others_passed(q, bucket, next, inherited)) {
    (void)SB_OR(&s->freed[bucket / 64], UINT64_C(1) << bucket % 64, SB_SEQ_CST); /* P25 */
    SB_CRASHPOINT("groups.end.freed");
    g->tell(q);
  }
}

static bool claim(sb_queue *q, uint32_t consumer, unsigned bucket) {
  sb_groups *g = q->groups;
  sb_groups_shm *s = g->shm;
  uint64_t none = 0;
  if (!SB_CAS(&s->claims[bucket], &none, g->claim, SB_SEQ_CST)) {
    return false;
  }
  SB_CRASHPOINT("groups.claimed");
  uint64_t freed = SB_AND(&s->freed[bucket / 64], ~(UINT64_C(1) << bucket % 64), SB_SEQ_CST);
  g->consumer[bucket] = consumer;
  g->claim_count += g->claim_count == UINT32_MAX ? 2 : 1;
  g->number[bucket] = g->claim_count;
  g->held[bucket] = 0;
  g->next[bucket] = SB_LOAD(&s->low[bucket], SB_SEQ_CST);
  g->end[bucket] = SB_LOAD(&s->high[bucket], SB_SEQ_CST);
  set_bit(g->mine, bucket);
  set_counted(g->unused, &g->unused_count, bucket);
  if (sb_queue_has_lanes(q) ? (freed >> bucket % 64 & 1) != 0 : g->next[bucket] < g->end[bucket])
    set_counted(g->behind, &g->behind_count, bucket);
  return true;
}

/* ---- shares ---- */

static unsigned count_claims(sb_groups_shm *s) {
  unsigned n = 0;
  for (unsigned b = 0; b < SB_BUCKETS; b++) n += SB_LOAD(&s->claims[b], SB_RELAXED) != 0;
  return n;
}

static unsigned count_own(const sb_groups *g, uint32_t consumer) {
  unsigned n = 0;
  for (unsigned b = 0; (b = sb_groups_next_bit(g->mine, b)) != SB_NO_BUCKET; b++)
    n += g->consumer[b] == consumer && !sb_groups_has(g->leaving, b);
  return n;
}

static bool is_sticky(const sb_queue *q) { return sb_setting(q->shm, SB_SETTING_MESSAGE_GROUPS) == SB_GROUPS_STICKY; }

/* True if the consumer leaves an unclaimed bucket to others: it has more than its share, and others have credit. */
static bool leaves_to_others(sb_queue *q, uint32_t consumer) {
  sb_groups *g = q->groups;
  int32_t willing = SB_LOAD(&q->shm->non_acquiring, SB_SEQ_CST);
  if (consumer == SB_GROUPS_GETS || willing < 2 || !is_sticky(q) ||
      count_own(g, consumer) * (unsigned)willing <= count_claims(g->shm)) {
    g->patient_until_ns = 0;
    return false;
  }
  uint64_t now = sb_now_ns();
  if (g->patient_until_ns == 0) {
    g->patient_until_ns = now + SB_GROUPS_PATIENCE_NS;
    g->patient = consumer;
  }
  if (now < g->patient_until_ns) {
    g->left_some = true;
    return true;
  }
  g->patient_until_ns = 0;
  return false;
}

bool sb_groups_searches_again(const sb_queue *q) { return q->groups->left_some; }

void sb_groups_ends_patience(sb_queue *q, uint32_t consumer) {
  sb_groups *g = q->groups;
  if (!g->left_some && g->patient == consumer) g->patient_until_ns = 0; /* another consumer has what it left */
}

/* A consumer came: each consumer of the connection gives up what is more than its share. */
static void share_out(sb_queue *q) {
  sb_groups *g = q->groups;
  int32_t consumers = SB_LOAD(&q->shm->consumers, SB_SEQ_CST);
  uint32_t joins = SB_LOAD(&g->shm->joins, SB_SEQ_CST);
  if (joins == g->joins || consumers < 2 || !is_sticky(q)) {
    return;
  }
  g->joins = joins;
  unsigned share = (count_claims(g->shm) + (unsigned)consumers - 1) / (unsigned)consumers;
  for (unsigned b = 0; (b = sb_groups_next_bit(g->mine, b)) != SB_NO_BUCKET; b++) {
    if (sb_groups_has(g->leaving, b) || g->consumer[b] == SB_GROUPS_GETS) continue;
    unsigned more = 0; /* claims of this consumer behind the bucket, which it keeps */
    for (unsigned o = b + 1; (o = sb_groups_next_bit(g->mine, o)) != SB_NO_BUCKET; o++)
      more += g->consumer[o] == g->consumer[b];
    if (more < share) continue;
    set_bit(g->leaving, b);
    if (g->held[b] == 0) end_claim(q, b);
  }
}

uint32_t sb_groups_join(sb_queue *q) {
  sb_groups *g = q->groups;
  if (sb_groups_find(q) == SB_OK) {
    (void)SB_ADD(&g->shm->joins, 1, SB_SEQ_CST);
    g->tell(q);
  }
  return ++g->consumers; /* SB_GROUPS_GETS is none of these */
}

/* ---- the search ---- */

bool sb_groups_begin(sb_queue *q, uint32_t consumer, bool picky, const uint64_t *passed) {
  sb_groups_shm *s = q->groups->shm;
  bool again = false;
  if (SB_LOAD(&s->joins, SB_RELAXED) != q->groups->joins) share_out(q);
  for (unsigned w = 0; w < SB_GROUPS_BITS; w++) {
    for (uint64_t bits = SB_LOAD(&s->freed[w], SB_SEQ_CST); bits != 0; bits &= bits - 1) {
      unsigned bucket = w * 64 + (unsigned)__builtin_ctzll(bits);
      if (SB_LOAD(&s->claims[bucket], SB_SEQ_CST) != 0) continue;
      again = again || sb_groups_has(passed, bucket);
      if (!picky && !leaves_to_others(q, consumer)) (void)claim(q, consumer, bucket);
    }
  }
  for (unsigned w = 0; q->groups->unused_count != 0 && w < SB_GROUPS_BITS; w++)
    again = again || (q->groups->unused[w] & passed[w]) != 0;
  return again;
}

/* True if the consumer has the claim, and does not give it up. */
static bool takes_of(const sb_groups *g, uint32_t consumer, unsigned bucket) {
  return sb_groups_has(g->mine, bucket) && g->consumer[bucket] == consumer && !sb_groups_has(g->leaving, bucket);
}

bool sb_groups_would_claim(sb_queue *q, uint32_t consumer, unsigned bucket) {
  /* relaxed: a hint. sb_groups_admits decides by a CAS */
  return !takes_of(q->groups, consumer, bucket) && SB_LOAD(&q->groups->shm->claims[bucket], SB_RELAXED) == 0 &&
         !leaves_to_others(q, consumer);
}

sb_group_verdict sb_groups_admits(sb_queue *q, uint32_t consumer, unsigned bucket, uint64_t position, bool by_cursor) {
  sb_groups *g = q->groups;
  sb_groups_shm *s = g->shm;
  if (bucket == SB_NO_BUCKET || takes_of(g, consumer, bucket)) {
    return SB_GROUP_MINE;
  }
  for (;;) {
    uint64_t word = SB_LOAD(&s->claims[bucket], SB_SEQ_CST);
    if (word == 0 && leaves_to_others(q, consumer)) {
      if (by_cursor) raise(&s->high[bucket], position + 1);
      uint64_t bit = UINT64_C(1) << bucket % 64;
      /* P25. Whoever set the bit tells all, or its reaper does: to tell them again at each look would keep them awake */
      if ((SB_OR(&s->freed[bucket / 64], bit, SB_SEQ_CST) & bit) == 0) g->tell(q);
      return SB_GROUP_PASSED;
    }
    if (word == 0) {
      if (claim(q, consumer, bucket)) return SB_GROUP_CLAIMED;
      continue;
    }
    if (by_cursor) raise(&s->high[bucket], position + 1);
    SB_CRASHPOINT("groups.raised");
    if ((word & PASSED) != 0 ? SB_LOAD(&s->claims[bucket], SB_SEQ_CST) == word
                             : SB_CAS(&s->claims[bucket], &word, word | PASSED, SB_SEQ_CST)) { /* P24 */
      return SB_GROUP_PASSED;
    }
  }
}

/* The claim on the bucket of `hash`; NULL: the message has no bucket, or the queue no claims. */
static sb_word *claim_word(sb_broker *b, const sb_queue_shm *q, uint32_t hash) {
  unsigned bucket = sb_groups_bucket_of(q, hash);
  uint32_t slot = bucket != SB_NO_BUCKET ? SB_LOAD(&q->groups, SB_ACQUIRE) : 0;
  sb_groups_shm *s = slot != 0 ? sb_groups_at(b, slot) : NULL;
  return s != NULL ? &s->claims[bucket] : NULL;
}

unsigned sb_groups_claimant(sb_broker *b, const sb_queue_shm *q, uint32_t hash) {
  sb_word *claim_of = claim_word(b, q, hash);
  return claim_of != NULL ? (unsigned)SB_BITS(SB_LOAD(claim_of, SB_SEQ_CST), 0, 12) : 0;
}

bool sb_groups_pass_for_others(sb_broker *b, const sb_queue_shm *q, uint32_t hash, unsigned claimant) {
  sb_word *claim_of = claim_word(b, q, hash);
  uint64_t word = claim_of != NULL ? SB_LOAD(claim_of, SB_SEQ_CST) : 0;
  while (word != 0 && SB_BITS(word, 0, 12) == claimant) {
    /* P36: after the append. A claim that has the bit already ends after this load */
    if ((word & PASSED) != 0 || SB_CAS(claim_of, &word, word | PASSED, SB_SEQ_CST)) {
      return true;
    }
  }
  return false;
}

unsigned sb_groups_behind(sb_queue *q, uint32_t consumer, unsigned from, uint64_t cursor) {
  sb_groups *g = q->groups;
  unsigned bucket = g->behind_count != 0 ? from : SB_NO_BUCKET;
  while ((bucket = sb_groups_next_bit(g->behind, bucket)) != SB_NO_BUCKET) {
    if (g->next[bucket] >= g->end[bucket]) {
      clear_counted(g->behind, &g->behind_count, bucket);
    } else if (takes_of(g, consumer, bucket) && g->next[bucket] < cursor) {
      return bucket;
    }
    bucket++;
  }
  return SB_NO_BUCKET;
}

void sb_groups_took(sb_queue *q, unsigned bucket, uint64_t next, bool delivers) {
  sb_groups *g = q->groups;
  if (bucket != SB_NO_BUCKET) {
    g->held[bucket]++;
    if (delivers) clear_counted(g->unused, &g->unused_count, bucket);
    if (next > g->next[bucket]) g->next[bucket] = next;
  }
}

void sb_groups_end(sb_queue *q, bool searched_all) {
  sb_groups *g = q->groups;
  for (unsigned b = 0; g->unused_count != 0 && (b = sb_groups_next_bit(g->unused, b)) != SB_NO_BUCKET; b++) {
    if (searched_all) clear_counted(g->behind, &g->behind_count, b); /* I113 */
    end_claim(q, b);
  }
}

bool sb_groups_first(sb_queue *q, const sb_message_shm *m) {
  sb_groups *g = q->groups;
  if (m->group_hash == 0) {
    return false;
  }
  bool first = sb_firsts_add(&g->firsts, m->group_hash, (sb_firsts_claims){g->number, sb_groups_buckets(q->shm)});
  if ((m->flags & SB_MESSAGE_LAST) != 0) sb_firsts_forget(&g->firsts, m->group_hash);
  return first;
}

static bool ends_when_idle(const sb_queue *q, unsigned bucket) {
  return sb_setting(q->shm, SB_SETTING_MESSAGE_GROUPS) == SB_GROUPS_SHARED ||
         q->groups->consumer[bucket] == SB_GROUPS_GETS || sb_groups_has(q->groups->leaving, bucket);
}

void sb_groups_ended(sb_queue *q, unsigned ending) {
  sb_groups *g = q->groups;
  unsigned bucket = ending & ~SB_GROUP_LAST;
  if (bucket == SB_NO_BUCKET || !sb_groups_has(g->mine, bucket) || g->held[bucket] == 0) {
    return; /* the connection took the message in another way, such as a lease */
  }
  g->held[bucket]--;
  if ((ending & SB_GROUP_LAST) != 0) set_bit(g->leaving, bucket);
  if (g->held[bucket] == 0 && ends_when_idle(q, bucket)) end_claim(q, bucket);
}

void sb_groups_leave(sb_queue *q, uint32_t consumer) {
  sb_groups *g = q->groups;
  for (unsigned b = 0; (b = sb_groups_next_bit(g->mine, b)) != SB_NO_BUCKET; b++) {
    if (g->consumer[b] != consumer) continue;
    set_bit(g->leaving, b);
    if (g->held[b] == 0) end_claim(q, b);
  }
}

void sb_groups_leave_all(sb_queue *q) {
  for (unsigned b = 0; (b = sb_groups_next_bit(q->groups->mine, b)) != SB_NO_BUCKET; b++) end_claim(q, b);
}

void sb_groups_end_dead(sb_broker *b, const sb_queue_shm *q, unsigned id) {
  uint32_t slot = SB_LOAD(&q->groups, SB_ACQUIRE);
  sb_groups_shm *s = slot != 0 ? sb_groups_at(b, slot) : NULL;
  uint64_t dead = id | SB_FIELD(sb_conn_epoch(SB_LOAD(&b->connections[id], SB_RELAXED)), 12);
  for (unsigned n = 0; s != NULL && n < SB_BUCKETS; n++) {
    uint64_t word = SB_LOAD(&s->claims[n], SB_SEQ_CST);
    while ((word & ~PASSED) == dead && !SB_CAS(&s->claims[n], &word, 0, SB_SEQ_CST)) {
    }
    SB_CRASHPOINT("groups.dead.ended");
    if ((word & ~PASSED) == dead || word == 0)
      (void)SB_OR(&s->freed[n / 64], UINT64_C(1) << n % 64, SB_SEQ_CST); /* P25 */
  }
}
