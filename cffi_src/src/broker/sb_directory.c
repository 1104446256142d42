// SPDX-License-Identifier: Apache-2.0
#include "sb_directory.h"

#include <string.h>

#include "sb_disposal.h"
#include "sb_settings.h"
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

static bool named(sb_broker *b, uint32_t slot, const char *name, uint32_t length) {
  sb_queue_shm *q = sb_slab_queue(b, slot);
  return q != NULL && sb_queue_state(SB_LOAD(&q->state, SB_ACQUIRE)) == SB_QUEUE_OPEN &&
         SB_LOAD(&q->name_length, SB_RELAXED) == length && length <= SB_NAME_MAX && memcmp(q->name, name, length) == 0;
}

uint32_t sb_directory_find(sb_broker *b, const char *name, uint32_t length) {
  uint64_t hash = hash_of(name, length);
  for (uint32_t i = 0; i < SB_DIRECTORY_SIZE; i++) {
    sb_word *word = &b->directory[(hash + i) % SB_DIRECTORY_SIZE];
    uint64_t entry = SB_LOAD(word, SB_ACQUIRE); /* P10 acquire */
    if (sb_dir_state(entry) == SB_DIR_EMPTY) {
      return 0;
    }
    if (sb_dir_state(entry) == SB_DIR_LIVE && sb_dir_hash(entry) == hash &&
        named(b, sb_dir_slot(entry), name, length) && SB_LOAD(word, SB_ACQUIRE) == entry) {
      return sb_dir_slot(entry);
    }
  }
  return 0;
}

static void start_texts(sb_long_queue_shm *q, const sb_settings *settings) {
  SB_STORE(&q->texts_length, settings->texts_length, SB_RELAXED);
  memcpy(q->texts, settings->texts, settings->texts_length);
}

static void start(sb_connection *c, sb_queue_shm *q, const char *name, uint32_t length, const sb_settings *settings) {
  uint64_t base = SB_LOAD(&q->base, SB_RELAXED); /* I4 of sb_layout.h: after the positions of the previous queue */
  sb_settings_apply(q, settings);
  if (settings->values[SB_SETTING_MESSAGE_GROUPS] > SB_GROUPS_NONE) SB_STORE(&c->b->header->grouped, 1u, SB_SEQ_CST);
  sb_lifetime_own(q, c);
  SB_STORE(&q->tracking, sb_settings_limit(settings), SB_RELAXED);
  SB_STORE(&q->ledgers, 0u, SB_RELAXED);
  SB_STORE(&q->consumer_levels, 0u, SB_RELAXED);
  SB_STORE(&q->admitted, base, SB_RELAXED);
  SB_STORE(&q->bytes_in, 0, SB_RELAXED);
  SB_STORE(&q->bound, 0, SB_RELAXED);
  SB_STORE(&q->taken, 0, SB_RELAXED);
  SB_STORE(&q->bytes_out, 0, SB_RELAXED);
  SB_STORE(&q->requeued, 0, SB_RELAXED);
  SB_STORE(&q->changed, 0, SB_RELAXED);
  SB_STORE(&q->stored, base, SB_RELAXED);
  SB_STORE(&q->from, base, SB_RELAXED);
  for (unsigned w = 0; w < SB_LANES / 64; w++) SB_STORE(&q->ready[w], 0, SB_RELAXED);
  SB_STORE(&q->came, base, SB_RELAXED);
  SB_STORE(&q->closing, sb_closing_word(SB_ASKED_NOT, 0, sb_closing_number(SB_LOAD(&q->closing, SB_RELAXED)) + 1),
           SB_RELAXED);
  SB_STORE(&q->lanes, 0u, SB_RELAXED);
  SB_STORE(&q->groups, 0u, SB_RELAXED);
  SB_STORE(&q->value_index, 0u, SB_RELAXED);
  SB_STORE(&q->values_lost, 0u, SB_RELAXED);
  SB_STORE(&q->tickets, 0, SB_RELAXED);
  SB_STORE(&q->open_before, 0, SB_RELAXED);
  SB_STORE(&q->ids, 0u, SB_RELAXED);
  SB_STORE(&q->id_numbers, 1, SB_RELAXED); /* a number that a reaper may give, and that is above `id_floor` */
  SB_STORE(&q->id_tags, 0, SB_RELAXED);
  SB_STORE(&q->id_floor, 0, SB_RELAXED);
  SB_STORE(&q->duplicates, 0, SB_RELAXED);
  SB_STORE(&q->early, 0, SB_RELAXED);
  SB_STORE(&q->wanted, 0, SB_RELAXED);
  SB_STORE(&q->misses, 0, SB_RELAXED);
  SB_STORE(&q->last_take, 0, SB_RELAXED);
  SB_STORE(&q->interested, 0, SB_RELAXED);
  SB_STORE(&q->notified, 0, SB_RELAXED);
  SB_STORE(&q->not_interested, 0, SB_RELAXED);
  SB_STORE(&q->non_acquiring, 0, SB_RELAXED);
  SB_STORE(&q->consumers, 0, SB_RELAXED);
  SB_STORE(&q->room_waiting, 0, SB_RELAXED);
  SB_STORE(&q->turn_until_ns, 0, SB_RELAXED);
  SB_STORE(&q->turn_needs, 0, SB_RELAXED);
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
  SB_STORE(&q->state, sb_queue_word(SB_QUEUE_OPEN, sb_queue_incarnation(state) + 1), SB_RELEASE);
}

/* The first entry that a queue of this hash may have; NULL: there is none. */
static sb_word *room_for(sb_broker *b, uint64_t hash) {
  for (uint32_t i = 0; i < SB_DIRECTORY_SIZE; i++) {
    sb_word *word = &b->directory[(hash + i) % SB_DIRECTORY_SIZE];
    unsigned state = sb_dir_state(SB_LOAD(word, SB_RELAXED));
    if (state == SB_DIR_EMPTY || state == SB_DIR_DEAD) {
      return word;
    }
  }
  return NULL;
}

sb_status sb_directory_create(sb_connection *c, const char *name, uint32_t length, const sb_settings *settings,
                              uint32_t *slot) {
  sb_broker *b = c->b;
  uint64_t token, gen, hash = hash_of(name, length);
  /* may be NULL before `queue_count` reaches SB_MAX_QUEUES, since `queue_count` does not count CLOSED entries */
  sb_word *entry = room_for(b, hash);
  if (SB_LOAD(&b->header->queue_count, SB_RELAXED) >= SB_MAX_QUEUES || entry == NULL) {
    return SB_LIMIT;
  }
  unsigned kind = settings->texts_length == 0 ? SB_KIND_QUEUE : SB_KIND_LONG_QUEUE;
  sb_status status = sb_holding_object(c, kind, &token, slot, &gen);
  if (status != SB_OK) {
    return status;
  }
  if (kind == SB_KIND_LONG_QUEUE) start_texts(sb_slot_at(b, *slot), settings);
  start(c, sb_slot_at(b, *slot), name, length, settings);
  SB_CRASHPOINT("directory.queue.ready");
  SB_STORE(entry, sb_dir_word(SB_DIR_LIVE, *slot, hash), SB_RELEASE); /* P10 release */
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
    if (sb_dir_state(entry) == SB_DIR_EMPTY) {
      return NULL;
    }
    if (sb_dir_state(entry) == state && sb_dir_slot(entry) == slot) {
      return word;
    }
  }
  return NULL;
}

bool sb_directory_links(sb_broker *b, uint32_t slot) { return entry_of(b, slot, SB_DIR_LIVE) != NULL; }

void sb_directory_remove(sb_broker *b, uint32_t slot) {
  sb_word *word = entry_of(b, slot, SB_DIR_LIVE);
  (void)SB_ADD(
      &b->header->queues_closed, 1u,
      SB_RELEASE);    /* P17 of sb_handles.h. After a kill here, another process removes the name, and adds 1 again */
  if (word != NULL) { /* lookups skip a CLOSED entry; the sweep finds the queue object through it */
    uint64_t entry = SB_LOAD(word, SB_RELAXED);
    SB_STORE(word, sb_dir_word(SB_DIR_CLOSED, sb_dir_slot(entry), sb_dir_hash(entry)), SB_RELEASE);
    uint32_t count = SB_LOAD(&b->header->queue_count, SB_RELAXED);
    SB_STORE(&b->header->queue_count, count > 0 ? count - 1 : 0, SB_RELAXED); /* a hint: the sweep counts again */
  }
}

uint32_t sb_directory_next(sb_broker *b, uint32_t *index, bool closed) {
  return sb_directory_next_before(b, index, SB_DIRECTORY_SIZE, closed);
}

/* Returns the index of the first entry in `state`, from `index` on; returns `end` if there is none before `end`. Must
 * be fast: the housekeeper looks at all 65,536 entries after each change of the topology, and at least in every eighth
 * turn. Most of them are EMPTY. */
static uint32_t next_of(const sb_word *directory, uint32_t index, uint32_t end, unsigned state) {
  while ((index = sb_skip_zeros(directory, index, end)) < end &&
         sb_dir_state(SB_LOAD(&directory[index], SB_RELAXED)) != state) { /* relaxed: a hint */
    index++;
  }
  return index;
}

uint32_t sb_directory_next_before(sb_broker *b, uint32_t *index, uint32_t end, bool closed) {
  unsigned wanted = closed ? SB_DIR_CLOSED : SB_DIR_LIVE;
  uint32_t found = 0;
  while (found == 0 && (*index = next_of(b->directory, *index, end, wanted)) < end) {
    uint64_t entry = SB_LOAD(&b->directory[(*index)++], SB_ACQUIRE);
    if (sb_dir_state(entry) == wanted && sb_slab_queue(b, sb_dir_slot(entry)) != NULL) {
      found = sb_dir_slot(entry);
    }
  }
  return found;
}

static bool is_deleted(sb_broker *b, uint32_t slot) {
  return sb_queue_is_deleted(SB_LOAD(&((sb_queue_shm *)sb_slot_at(b, slot))->state, SB_ACQUIRE));
}

/* Makes the DEAD entry `index` EMPTY, then the DEAD entries directly before it, if the entry after `index` is EMPTY. So
 * removed names do not lengthen searches for ever. A search that passed one of these entries while it was DEAD misses
 * no queue: it meets only DEAD entries until it ends at an EMPTY one. */
static void bury(sb_broker *b, uint32_t index) {
  if (sb_dir_state(SB_LOAD(&b->directory[(index + 1) % SB_DIRECTORY_SIZE], SB_RELAXED)) != SB_DIR_EMPTY) {
    return;
  }
  for (uint32_t n = 0; n < SB_DIRECTORY_SIZE; n++) {
    sb_word *word = &b->directory[(index - n) % SB_DIRECTORY_SIZE];
    if (sb_dir_state(SB_LOAD(word, SB_RELAXED)) != SB_DIR_DEAD) {
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
    if (is_deleted(c->b, slot)) { /* the queue ended by itself (I44), or its deleter was killed: remove its name now */
      sb_directory_remove(c->b, slot);
      /* makes the next change of the topology look for bindings to queues that are gone: the process that closed the
       * queue may have been killed before it raised `queues_ended`, or before it removed the bindings */
      (void)SB_ADD(&c->b->header->queues_ended, 1u, SB_ACQ_REL);
      live--;
    }
  }
  SB_STORE(&c->b->header->queue_count, live, SB_RELAXED);
  for (index = 0; (index = next_of(c->b->directory, index, SB_DIRECTORY_SIZE, SB_DIR_CLOSED)) < SB_DIRECTORY_SIZE;
       index++) {
    sb_queue q;
    slot = sb_dir_slot(SB_LOAD(&c->b->directory[index], SB_ACQUIRE));
    if (slot / SB_CHUNK_UNITS < c->b->chunk_limit && !sb_slot_ready(c->b, slot)) {
      left++; /* this process cannot map the queue's segment now */
      continue;
    }
    if (sb_slab_queue(c->b, slot) == NULL || !is_deleted(c->b, slot)) {
      /* a killed sweep freed the slot; a new queue, or anything else, may have it now */
      SB_STORE(&c->b->directory[index], (uint64_t)SB_DIR_DEAD, SB_RELEASE);
      bury(c->b, index);
      continue;
    }
    if (sb_queue_attach(c, slot, &q, true) == SB_OK) {
      (void)sb_disposal_empty(&q);
      sb_queue_detach(&q);
    }
    sb_word *word = entry_of(c->b, slot, SB_DIR_CLOSED);
    uint64_t entry = word != NULL ? SB_LOAD(word, SB_RELAXED) : 0;
    if (word != NULL && sb_disposal_free(c, slot)) {
      SB_CRASHPOINT("directory.freed");
      (void)SB_CAS(word, &entry, (uint64_t)SB_DIR_DEAD, SB_RELEASE);
      bury(c->b, (uint32_t)(word - c->b->directory));
    } else {
      left++;
    }
  }
  return left;
}
