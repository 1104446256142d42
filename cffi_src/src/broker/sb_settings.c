// SPDX-License-Identifier: Apache-2.0
#include "sb_settings.h"

#include "sb_consumer.h"

void sb_directory_apply(sb_queue_shm *q, const sb_settings *s) {
  SB_STORE(&q->max_length, s->max_length, SB_RELAXED);
  SB_STORE(&q->max_bytes, s->max_bytes, SB_RELAXED);
  SB_STORE(&q->overflow, s->overflow, SB_RELAXED);
  SB_STORE(&q->message_ttl_ms, s->message_ttl_ms, SB_RELAXED);
  SB_STORE(&q->expires_ms, s->expires_ms, SB_RELAXED);
  SB_STORE(&q->flags, s->flags, SB_RELEASE); /* after the times that two of them switch on */
  SB_STORE(&q->ring_size, s->ring_size, SB_RELEASE);
}

void sb_directory_configure(sb_queue *q, const sb_settings *s, bool trim) {
  sb_header_shm *h = q->c->b->header;
  const uint64_t words[8] = {(uint64_t)s->ring_size,
                             (uint64_t)s->max_length,
                             (uint64_t)s->max_bytes,
                             s->overflow,
                             s->flags,
                             trim,
                             s->message_ttl_ms,
                             s->expires_ms};
  for (unsigned i = 0; i < 8; i++) {
    SB_STORE(&h->new_settings[i], words[i], SB_RELAXED);
  }
  SB_STORE(&h->topology_intent, sb_topology_word(SB_CHANGE_CONFIGURE, q->slot), SB_RELEASE);
  SB_CRASHPOINT("directory.configure.announced");
  bool limits = s->ring_size >= 0 || s->max_length >= 0 || s->max_bytes >= 0;
  bool other_ring = s->ring_size >= 0 && s->ring_size != SB_LOAD(&q->shm->ring_size, SB_RELAXED);
  bool unknown = SB_LOAD(&q->shm->bound, SB_RELAXED) == INT64_MAX; /* a process was killed after the step below */
  if (limits && !sb_queue_tracks(q->shm)) {                        /* first the hints, then the limits that use them */
    SB_STORE(&q->shm->tracking, 1, SB_SEQ_CST);
    sb_upkeep_start_tracking(q->c->b, q->shm);
  }
  if (other_ring) SB_STORE(&q->shm->bound, INT64_MAX, SB_SEQ_CST); /* until the bound is known, nothing is evicted */
  sb_directory_apply(q->shm, s);
  if (s->ring_size >= 0 && (other_ring || unknown || trim)) sb_limits_set_bound(q, trim);
  if (trim) (void)sb_limits_enforce(q);
  sb_consumer_backlog_arrived(q);      /* it may have been paused */
  sb_consumer_wake_all(q->c, q->slot); /* there may be room now, or a waiting message may be too large now */
}
