// SPDX-License-Identifier: Apache-2.0
#include "sb_settings.h"

#include "sb_consumer.h"
#include "sb_duplicates.h"
#include "sb_wait.h"

#define DERIVED \
  ((uint32_t)(SB_QUEUE_TTL | SB_QUEUE_EXPIRES | SB_QUEUE_LANES | SB_QUEUE_GROUPS | SB_QUEUE_SEATS | SB_QUEUE_GATED | \
              SB_QUEUE_IDS | SB_QUEUE_PAGES))

/* Returns the flags of a queue with the settings `s`. The lives of messages, `expires`, the highest priority, message groups, the
 * most consumers, duplicate ids, paging, and what a queue waits for before it dispatches have a flag each, in a cache line that
 * every put and get reads anyway: so a put or get reads the value of such a setting only if its flag is set. */
static uint32_t flags_of(const sb_settings *s) {
  uint32_t flags = s->flags & ~DERIVED;
  if (s->values[SB_SETTING_MESSAGE_TTL_MS] >= 0 || s->values[SB_SETTING_EXPIRY_DELAY_MS] > 0 ||
      s->values[SB_SETTING_MIN_EXPIRY_DELAY_MS] > 0 || s->values[SB_SETTING_MAX_EXPIRY_DELAY_MS] > 0 ||
      (flags & SB_QUEUE_NO_EXPIRY) != 0)
    flags |= SB_QUEUE_TTL;
  if (s->values[SB_SETTING_EXPIRES_MS] >= 0) flags |= SB_QUEUE_EXPIRES;
  if (s->values[SB_SETTING_MAX_PRIORITY] > 0) flags |= SB_QUEUE_LANES;
  if (s->values[SB_SETTING_MESSAGE_GROUPS] > SB_GROUPS_NONE) flags |= SB_QUEUE_GROUPS;
  if (s->values[SB_SETTING_SEATS] > 0) flags |= SB_QUEUE_SEATS;
  if (s->values[SB_SETTING_CONSUMERS_BEFORE_DISPATCH] > 1 || s->values[SB_SETTING_DELAY_BEFORE_DISPATCH_MS] > 0)
    flags |= SB_QUEUE_GATED;
  if (s->values[SB_SETTING_DUPLICATE_IDS] > 0) flags |= SB_QUEUE_IDS;
  if (s->values[SB_SETTING_OVERFLOW] == SB_OVERFLOW_PAGE) flags |= SB_QUEUE_PAGES;
  return flags;
}

void sb_settings_apply(sb_queue_shm *q, const sb_settings *s) {
  SB_STORE(&q->settings[SB_SETTING_OVERFLOW], s->values[SB_SETTING_OVERFLOW], SB_RELEASE);
  for (unsigned i = 0; i < SB_SETTINGS; i++) {
    if (i != SB_SETTING_RING_SIZE && i != SB_SETTING_OVERFLOW)
      SB_STORE(&q->settings[i], s->values[i], SB_RELEASE); /* P22: a limit that falls is stored after the overflow */
  }
  SB_STORE(&q->flags, flags_of(s), SB_RELEASE); /* release: the times are stored before the flags TTL and EXPIRES */
  SB_STORE(&q->settings[SB_SETTING_RING_SIZE], s->values[SB_SETTING_RING_SIZE], SB_RELEASE);
}

/* P22: stores the new max_length or max_bytes if it allows more than the old one. Afterwards sb_settings_apply changes
 * the overflow, then the limits that allow less. So the queue never has a new low limit with the old overflow, or an
 * old low limit with the new overflow: a put would then evict or drop a message that both the old and the new settings
 * keep. */
static void loosen_limits(sb_queue_shm *q, const sb_settings *s) {
  static const unsigned limits[] = {SB_SETTING_MAX_LENGTH, SB_SETTING_MAX_BYTES};
  for (unsigned i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    int64_t new = s->values[limits[i]], old = sb_setting(q, limits[i]);
    if (old >= 0 && (new < 0 || new > old)) SB_STORE(&q->settings[limits[i]], new, SB_RELAXED);
  }
}

void sb_settings_read(const sb_queue_shm *q, sb_settings *s) {
  for (unsigned i = 0; i < SB_SETTINGS; i++) {
    s->values[i] = sb_setting(q, i);
  }
  s->flags = SB_LOAD(&q->flags, SB_RELAXED);
  s->texts_length = 0;
  s->texts = NULL;
}

bool sb_settings_limit(const sb_settings *s) {
  return s->values[SB_SETTING_RING_SIZE] >= 0 || s->values[SB_SETTING_MAX_LENGTH] >= 0 ||
         s->values[SB_SETTING_MAX_BYTES] >= 0;
}

void sb_settings_configure(sb_queue *q, const sb_settings *s, bool trim) {
  sb_header_shm *h = q->c->b->header;
  for (unsigned i = 0; i < SB_SETTINGS; i++) {
    SB_STORE(&h->new_settings[i], s->values[i], SB_RELAXED);
  }
  SB_STORE(&h->new_flags, s->flags, SB_RELAXED);
  SB_STORE(&h->new_trim, trim, SB_RELAXED);
  SB_STORE(&h->topology_intent, sb_topology_word(SB_CHANGE_CONFIGURE, q->slot), SB_RELEASE);
  SB_CRASHPOINT("directory.configure.announced");
  int64_t ring_size = s->values[SB_SETTING_RING_SIZE];
  bool other_ring = ring_size >= 0 && ring_size != sb_setting(q->shm, SB_SETTING_RING_SIZE);
  bool unknown = SB_LOAD(&q->shm->bound, SB_RELAXED) == INT64_MAX; /* true: a process died before it set the bound */
  if (sb_settings_limit(s)) sb_hints_start_tracking(q);            /* first the hints, then the limits that use them */
  if (other_ring) SB_STORE(&q->shm->bound, INT64_MAX, SB_SEQ_CST); /* ring_size trims nothing until the bound is set */
  loosen_limits(q->shm, s);
  /* Without the flag EXPIRES, a get does not restart the time of the queue. So the time begins with this change. */
  if (s->values[SB_SETTING_EXPIRES_MS] >= 0 && (SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_EXPIRES) == 0)
    SB_STORE(&q->shm->used_ns, sb_now_ns(), SB_RELAXED); /* relaxed: the flag EXPIRES is stored with release later */
  if (s->values[SB_SETTING_DUPLICATE_IDS] != sb_setting(q->shm, SB_SETTING_DUPLICATE_IDS)) sb_duplicates_forget(q->shm);
  sb_settings_apply(q->shm, s);
  if (!sb_dispatch_gated(q->shm)) {
    sb_dispatch_open(q->shm); /* if the queue is gated again, its consumers need not wait */
  } else {
    (void)sb_dispatch_look(q->c, q->slot); /* fewer may be enough now, and some may leave before another one looks */
  }
  if (ring_size >= 0 && (other_ring || unknown || trim)) sb_limits_set_bound(q, trim);
  if (trim && q->ledger != NULL) (void)sb_limits_enforce(q); /* without a ledger, the next put does it */
  sb_notify_backlog_arrived(q);                              /* the queue may have been paused before */
  sb_notify_wake_all(q->c, q->slot); /* there may be room now, or a waiting message may be too large now */
}

void sb_settings_finish(sb_queue *q) {
  const sb_header_shm *h = q->c->b->header;
  sb_settings s = {.flags = SB_LOAD(&h->new_flags, SB_RELAXED)};
  for (unsigned i = 0; i < SB_SETTINGS; i++) {
    s.values[i] = SB_LOAD(&h->new_settings[i], SB_RELAXED);
  }
  sb_settings_configure(q, &s, SB_LOAD(&h->new_trim, SB_RELAXED) != 0);
}
