// SPDX-License-Identifier: Apache-2.0
#include "sb_directory.h"

#include <string.h>
#include <time.h>

#include "sb_disposal.h"
#include "sb_liveness.h"
#include "sb_slab.h"
#include "sb_wait.h"

static uint64_t hash_of(const char *name, uint32_t length) {
  uint64_t h = UINT64_C(14695981039346656037);
  for (uint32_t i = 0; i < length; i++) {
    h = (h ^ (uint8_t)name[i]) * UINT64_C(1099511628211);
  }
  h ^= h >> 32;
  return h & ((UINT64_C(1) << 34) - 1);
}
static unsigned entry_state(uint64_t e) { return (unsigned)SB_BITS(e, 0, 2); }
static uint32_t entry_slot(uint64_t e) { return (uint32_t)SB_BITS(e, 2, 28); }
static uint64_t entry_word(uint32_t slot, uint64_t hash) { return SB_DIR_LIVE | SB_PUT(slot, 2) | SB_PUT(hash, 30); }

/* The broker whose lock this thread holds, and how many times: a change may be made of several. */
static _Thread_local sb_broker *locked_broker;
static _Thread_local unsigned locked_depth;

sb_status sb_topology_lock(sb_broker *b, uint64_t deadline_ns, int32_t *holder) {
  *holder = 0;
  if (locked_broker == b && locked_depth > 0) {
    locked_depth++;
    return SB_OK;
  }
  for (;;) {
    if (pthread_mutex_trylock(&sb_topology_mutex) == 0) {
      if (sb_lock_byte(b->topology_fd, SB_LOCK_TOPOLOGY)) {
        break;
      }
      pthread_mutex_unlock(&sb_topology_mutex);
    }
    int32_t pid = (int32_t)SB_LOAD(&b->header->topology_pid, SB_RELAXED); /* relaxed: only told to people */
    if (pid != 0) *holder = pid; /* between two holders it is 0: then the last one that was seen */
    if (sb_now_ns() >= deadline_ns) {
      return SB_TIMEOUT;
    }
    struct timespec pause = {0, 1000000};
    nanosleep(&pause, NULL);
  }
  SB_STORE(&b->header->topology_pid, (uint32_t)SB_LOAD(&b->processes[b->process].pid, SB_RELAXED), SB_RELAXED);
  locked_broker = b;
  locked_depth = 1;
  return SB_OK;
}

void sb_topology_finish(sb_connection *c) {
  sb_broker *b = c->b;
  sb_header_shm *h = b->header;
  uint64_t intent = SB_LOAD(&h->topology_intent, SB_ACQUIRE);
  uint32_t slot = (uint32_t)intent;
  sb_queue_shm *shm = sb_slab_object(b, slot, SB_KIND_QUEUE);
  sb_queue q;
  if (shm != NULL && intent >> 32 == SB_CHANGE_DELETE &&
      SB_BITS(SB_LOAD(&shm->state, SB_ACQUIRE), 0, 2) == SB_QUEUE_CLOSED) {
    sb_directory_remove(b, slot); /* killed between closing the queue and removing its name */
  } else if (shm != NULL && intent >> 32 == SB_CHANGE_CONFIGURE && sb_queue_open(c, slot, &q, false) == SB_OK) {
    sb_settings settings = {(int64_t)SB_LOAD(&h->new_settings[0], SB_RELAXED),
                            (int64_t)SB_LOAD(&h->new_settings[1], SB_RELAXED),
                            (int64_t)SB_LOAD(&h->new_settings[2], SB_RELAXED),
                            (uint32_t)SB_LOAD(&h->new_settings[3], SB_RELAXED),
                            (uint32_t)SB_LOAD(&h->new_settings[4], SB_RELAXED),
                            SB_LOAD(&h->new_settings[6], SB_RELAXED),
                            SB_LOAD(&h->new_settings[7], SB_RELAXED)};
    sb_directory_configure(&q, &settings, SB_LOAD(&h->new_settings[5], SB_RELAXED) != 0);
    sb_queue_leave(&q);
  }
  SB_STORE(&h->topology_intent, 0, SB_RELEASE);
}

void sb_topology_unlock(sb_broker *b, bool changed) {
  SB_STORE(&b->header->topology_intent, 0, SB_RELEASE);
  if (--locked_depth > 0) {
    return;
  }
  locked_broker = NULL;
  SB_STORE(&b->header->topology_pid, 0u, SB_RELAXED);
  if (changed) (void)SB_ADD(&b->header->topology_epoch, 1, SB_ACQ_REL);
  sb_unlock_byte(b->topology_fd, SB_LOCK_TOPOLOGY);
  pthread_mutex_unlock(&sb_topology_mutex);
}

static bool named(sb_broker *b, uint32_t slot, const char *name, uint32_t length) {
  sb_queue_shm *q = sb_slab_object(b, slot, SB_KIND_QUEUE);
  return q != NULL && SB_BITS(SB_LOAD(&q->state, SB_ACQUIRE), 0, 2) == SB_QUEUE_OPEN &&
         SB_LOAD(&q->name_length, SB_RELAXED) == length && length <= SB_NAME_MAX && memcmp(q->name, name, length) == 0;
}

uint32_t sb_directory_find(sb_broker *b, const char *name, uint32_t length) {
  uint64_t hash = hash_of(name, length);
  for (uint32_t i = 0; i < SB_DIRECTORY_SIZE; i++) {
    sb_word *word = &b->directory[(hash + i) % SB_DIRECTORY_SIZE];
    uint64_t entry = SB_LOAD(word, SB_ACQUIRE); /* P10 acquire */
    if (entry_state(entry) == SB_DIR_EMPTY) {
      return 0;
    }
    if (entry_state(entry) == SB_DIR_LIVE && entry >> 30 == hash && named(b, entry_slot(entry), name, length) &&
        SB_LOAD(word, SB_ACQUIRE) == entry) {
      return entry_slot(entry);
    }
  }
  return 0;
}

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
  bool unknown = SB_LOAD(&q->shm->bound, SB_RELAXED) == INT64_MAX; /* somebody was killed after the step below */
  if (limits && !sb_queue_tracks(q->shm)) { /* first the hints, then the limits that believe them */
    SB_STORE(&q->shm->tracking, 1, SB_SEQ_CST);
    sb_upkeep_start_tracking(q->c->b, q->shm);
  }
  if (other_ring) SB_STORE(&q->shm->bound, INT64_MAX, SB_SEQ_CST); /* until the bound is known, nothing is evicted */
  sb_directory_apply(q->shm, s);
  if (s->ring_size >= 0 && (other_ring || unknown || trim)) sb_limits_set_bound(q, trim);
  if (trim) (void)sb_limits_enforce(q);
  sb_consumer_backlog_arrived(q);      /* it may have been paused */
  sb_consumer_wake_all(q->c, q->slot); /* there may be room now, or what somebody waits with is too large now */
}

static void start(sb_connection *c, sb_queue_shm *q, const char *name, uint32_t length, const sb_settings *settings) {
  uint64_t base = SB_LOAD(&q->base, SB_RELAXED); /* of this object: positions go on where its last life ended (I4) */
  sb_directory_apply(q, settings);
  sb_lifetime_own(q, c);
  SB_STORE(&q->tracking, settings->ring_size >= 0 || settings->max_length >= 0 || settings->max_bytes >= 0, SB_RELAXED);
  SB_STORE(&q->ledgers, 0u, SB_RELAXED);
  SB_STORE(&q->levels, 0u, SB_RELAXED);
  SB_STORE(&q->admitted, base, SB_RELAXED);
  SB_STORE(&q->bytes_in, 0, SB_RELAXED);
  SB_STORE(&q->bound, 0, SB_RELAXED);
  SB_STORE(&q->taken, 0, SB_RELAXED);
  SB_STORE(&q->bytes_out, 0, SB_RELAXED);
  SB_STORE(&q->returned, 0, SB_RELAXED);
  SB_STORE(&q->last_take, 0, SB_RELAXED);
  SB_STORE(&q->interested, 0, SB_RELAXED);
  SB_STORE(&q->notified, 0, SB_RELAXED);
  SB_STORE(&q->not_interested, 0, SB_RELAXED);
  SB_STORE(&q->non_acquiring, 0, SB_RELAXED);
  SB_STORE(&q->consumers, 0, SB_RELAXED);
  SB_STORE(&q->room_waiting, 0, SB_RELAXED);
  SB_STORE(&q->timers_lost, 0, SB_RELAXED);
  SB_STORE(&q->rescues, 0, SB_RELAXED);
  SB_STORE(&q->exclusive, 0, SB_RELAXED);
  SB_STORE(&q->created_ns, sb_wall_ns(), SB_RELAXED);
  SB_STORE(&q->used_ns, sb_now_ns(), SB_RELAXED);
  SB_STORE(&q->had_consumer, 0u, SB_RELAXED);
  SB_STORE(&q->room_watched, 0u, SB_RELAXED);
  memset(q->name, 0, sizeof q->name);
  memcpy(q->name, name, length);
  SB_STORE(&q->name_length, length, SB_RELAXED);
  uint64_t state = SB_LOAD(&q->state, SB_RELAXED);
  SB_STORE(&q->state, SB_QUEUE_OPEN | SB_PUT((state >> 2) + 1, 2), SB_RELEASE);
}

sb_status sb_directory_create(sb_connection *c, const char *name, uint32_t length, const sb_settings *settings,
                              uint32_t *slot) {
  sb_broker *b = c->b;
  uint64_t token, gen, hash = hash_of(name, length);
  if (SB_LOAD(&b->header->queue_count, SB_RELAXED) >= SB_MAX_QUEUES) {
    return SB_LIMIT;
  }
  sb_status status = sb_holding_object(c, SB_KIND_QUEUE, &token, slot, &gen);
  if (status != SB_OK) {
    return status;
  }
  start(c, sb_slot_at(b, *slot), name, length, settings);
  SB_CRASHPOINT("directory.queue.ready");
  for (uint32_t i = 0; i < SB_DIRECTORY_SIZE; i++) {
    sb_word *word = &b->directory[(hash + i) % SB_DIRECTORY_SIZE];
    unsigned state = entry_state(SB_LOAD(word, SB_RELAXED));
    if (state == SB_DIR_EMPTY || state == SB_DIR_DEAD) {
      SB_STORE(word, entry_word(*slot, hash), SB_RELEASE); /* P10 release */
      break;
    }
  }
  SB_CRASHPOINT("directory.linked");
  uint64_t mine = sb_slot_word(SB_SLOT_ALLOC, c->id, gen);
  (void)SB_CAS(sb_slot_header(b, *slot), &mine, sb_slot_word(SB_SLOT_PUBLISHED, 1, gen), SB_ACQ_REL);
  sb_holding_give(c, token);
  (void)SB_ADD(&b->header->queue_count, 1u, SB_RELAXED);
  return SB_OK;
}

static sb_word *entry_of(sb_broker *b, uint32_t slot, unsigned state) {
  sb_queue_shm *q = sb_slot_at(b, slot);
  uint32_t length = SB_LOAD(&q->name_length, SB_RELAXED);
  uint64_t hash = hash_of(q->name, length <= SB_NAME_MAX ? length : 0);
  for (uint32_t i = 0; i < SB_DIRECTORY_SIZE; i++) {
    sb_word *word = &b->directory[(hash + i) % SB_DIRECTORY_SIZE];
    uint64_t entry = SB_LOAD(word, SB_ACQUIRE);
    if (entry_state(entry) == SB_DIR_EMPTY) {
      return NULL;
    }
    if (entry_state(entry) == state && entry_slot(entry) == slot) {
      return word;
    }
  }
  return NULL;
}

bool sb_directory_links(sb_broker *b, uint32_t slot) { return entry_of(b, slot, SB_DIR_LIVE) != NULL; }

void sb_directory_remove(sb_broker *b, uint32_t slot) {
  sb_word *word = entry_of(b, slot, SB_DIR_LIVE);
  (void)SB_ADD(&b->header->queues_closed, 1u, SB_RELEASE); /* P17 release: again by who goes on after a kill */
  if (word != NULL) { /* the name is gone; the entry still leads the sweep to the object */
    SB_STORE(word, (SB_LOAD(word, SB_RELAXED) & ~UINT64_C(3)) | SB_DIR_CLOSED, SB_RELEASE);
    uint32_t count = SB_LOAD(&b->header->queue_count, SB_RELAXED);
    SB_STORE(&b->header->queue_count, count > 0 ? count - 1 : 0, SB_RELAXED); /* a hint: the sweep counts anew */
  }
}

uint32_t sb_directory_next(sb_broker *b, uint32_t *index, bool closed) {
  return sb_directory_next_before(b, index, SB_DIRECTORY_SIZE, closed);
}

/* The first entry of that state, or `end`. A housekeeper looks at all 65,536 in each of its rounds: most are empty. */
static uint32_t next_of(const sb_word *directory, uint32_t index, uint32_t end, unsigned state) {
  while (index < end && entry_state(SB_LOAD(&directory[index], SB_RELAXED)) != state) index++; /* relaxed: a guess */
  return index;
}

uint32_t sb_directory_next_before(sb_broker *b, uint32_t *index, uint32_t end, bool closed) {
  unsigned wanted = closed ? SB_DIR_CLOSED : SB_DIR_LIVE;
  uint32_t found = 0;
  while (found == 0 && (*index = next_of(b->directory, *index, end, wanted)) < end) {
    uint64_t entry = SB_LOAD(&b->directory[(*index)++], SB_ACQUIRE);
    if (entry_state(entry) == wanted && sb_slab_object(b, entry_slot(entry), SB_KIND_QUEUE) != NULL) {
      found = entry_slot(entry);
    }
  }
  return found;
}

static unsigned queue_state(sb_broker *b, uint32_t slot) {
  return (unsigned)SB_BITS(SB_LOAD(&((sb_queue_shm *)sb_slot_at(b, slot))->state, SB_ACQUIRE), 0, 2);
}

/* Nothing is found by that entry any more. One before an EMPTY entry is EMPTY too, and so are those before it: names that
 * are gone do not make searches longer. A search that passed it looks at the next one, which was EMPTY before. */
static void bury(sb_broker *b, uint32_t index) {
  if (entry_state(SB_LOAD(&b->directory[(index + 1) % SB_DIRECTORY_SIZE], SB_RELAXED)) != SB_DIR_EMPTY) {
    return;
  }
  for (uint32_t n = 0; n < SB_DIRECTORY_SIZE; n++) {
    sb_word *word = &b->directory[(index - n) % SB_DIRECTORY_SIZE];
    if (entry_state(SB_LOAD(word, SB_RELAXED)) != SB_DIR_DEAD) {
      return;
    }
    SB_STORE(word, (uint64_t)SB_DIR_EMPTY, SB_RELEASE);
    SB_CRASHPOINT("directory.buried");
  }
}

uint32_t sb_directory_sweep(sb_connection *c) {
  uint32_t left = 0, index = 0, slot, live = 0;
  while ((slot = sb_directory_next(c->b, &index, false)) != 0) {
    live++;
    if (queue_state(c->b, slot) == SB_QUEUE_CLOSED) { /* closed by somebody whose deleter died: its name goes now */
      sb_directory_remove(c->b, slot);
      live--;
    }
  }
  SB_STORE(&c->b->header->queue_count, live, SB_RELAXED);
  index = 0;
  while ((slot = sb_directory_next(c->b, &index, true)) != 0) {
    sb_queue q;
    if (queue_state(c->b, slot) != SB_QUEUE_CLOSED) { /* freed already by a sweep that was killed; maybe used again */
      SB_STORE(&c->b->directory[index - 1], (uint64_t)SB_DIR_DEAD, SB_RELEASE);
      bury(c->b, index - 1);
      continue;
    }
    if (sb_queue_open(c, slot, &q, true) == SB_OK) {
      (void)sb_upkeep_dispose(&q);
      sb_queue_leave(&q);
    }
    sb_word *word = entry_of(c->b, slot, SB_DIR_CLOSED);
    uint64_t entry = word != NULL ? SB_LOAD(word, SB_RELAXED) : 0;
    if (word != NULL && sb_upkeep_free(c, slot)) {
      SB_CRASHPOINT("directory.freed");
      (void)SB_CAS(word, &entry, (uint64_t)SB_DIR_DEAD, SB_RELEASE);
      bury(c->b, (uint32_t)(word - c->b->directory));
    } else {
      left++;
    }
  }
  return left;
}
