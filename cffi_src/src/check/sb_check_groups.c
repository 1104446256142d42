// SPDX-License-Identifier: Apache-2.0
/* The doctor's check of the message groups of a queue: the object, its claims, and its bits of buckets that are free. */
#include "sb_check.h"
#include "sb_groups.h"

enum { OBJECT, CLAIM, SETTING, HIDDEN }; /* `which` of SB_BAD_GROUP */

static void trouble(sb_checkup *k, uint32_t queue, unsigned which, uint64_t where, uint64_t found, uint64_t expected) {
  sb_check_found(k, (sb_finding){SB_BAD_GROUP, queue, 0, which, 0, where, found, expected});
}

static void check_bucket(sb_checkup *k, uint32_t queue, sb_groups_shm *g, unsigned bucket) {
  uint64_t word = SB_LOAD(&g->claims[bucket], SB_SEQ_CST);
  unsigned owner = (unsigned)SB_BITS(word, 0, 12);
  bool freed = (SB_LOAD(&g->freed[bucket / 64], SB_SEQ_CST) >> bucket % 64 & 1) != 0;
  uint64_t low = SB_LOAD(&g->low[bucket], SB_SEQ_CST), high = SB_LOAD(&g->high[bucket], SB_SEQ_CST);
  if (word != 0 && !sb_check_lives(k, owner)) {
    trouble(k, queue, CLAIM, bucket, owner, 0);
  } else if (word == 0 && high > low && !freed) { /* I94 of sb_groups.h */
    trouble(k, queue, HIDDEN, bucket, low, high);
  }
}

void sb_check_groups(sb_checkup *k, uint32_t slot) {
  sb_queue_shm *q = sb_slot_at(k->b, slot);
  uint32_t at = SB_LOAD(&q->groups, SB_ACQUIRE);
  int64_t groups = sb_setting(q, SB_SETTING_MESSAGE_GROUPS), buckets = sb_setting(q, SB_SETTING_GROUP_BUCKETS);
  bool grouped = (SB_LOAD(&q->flags, SB_RELAXED) & SB_QUEUE_GROUPS) != 0;
  if (groups > SB_GROUPS_SHARED || (groups > SB_GROUPS_NONE) != grouped ||
      (grouped && (buckets < 1 || buckets > (int64_t)SB_BUCKETS)))
    trouble(k, slot, SETTING, (uint64_t)buckets, (uint64_t)groups, SB_BUCKETS);
  if (at == 0) {
    return;
  }
  sb_groups_shm *g = sb_check_is(k, at, SB_KIND_GROUPS) ? sb_slot_at(k->b, at) : NULL;
  if (g == NULL || SB_LOAD(&g->queue, SB_RELAXED) != slot || (k->seen[at] & 1u) != 0) {
    sb_check_found(k, (sb_finding){SB_BAD_GROUP, slot, at, OBJECT, 0, 0, sb_check_kind(k, at), SB_KIND_GROUPS});
    return;
  }
  k->seen[at] |= 1u;
  for (unsigned n = 0; n < SB_BUCKETS; n++) check_bucket(k, slot, g, n);
}
