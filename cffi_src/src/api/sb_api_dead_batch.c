// SPDX-License-Identifier: Apache-2.0
/* Public calls: the housekeeper's program carries many dead messages of a queue out in one commit.
 *
 * A batch has messages that the connection took. Those that Python would give the same plan are of one *kind*: they died
 * for the same reason, have the same exchange, routing key and priority, and the same past (sb_deaths.h). So Python makes
 * one plan for a kind, and the copies are made here. A message that this file cannot rewrite is *apart*: the batch does
 * not hold it, and Python carries it out by sb_dead_take. */
#include <stdlib.h>
#include <string.h>

#include "sb_agenda.h"
#include "sb_api.h"
#include "sb_deaths.h"
#include "sb_hash.h"
#include "sb_schedule.h"

#define MOST_BYTES (UINT64_C(4) << 20) /* of bodies: the copies need that memory until the messages end */
#define MOST_PROPERTIES 32768u         /* a message with longer ones may have no room for its death */
#define MOST_LIKENESS 2048u

/* ---- kinds ---- */

typedef struct {
  uint8_t bytes[MOST_LIKENESS];
  uint32_t used;
  bool fits;
} likeness;

static void add(likeness *l, const void *bytes, uint64_t count) {
  uint32_t length = (uint32_t)count;
  l->fits = l->fits && count <= MOST_LIKENESS - sizeof length - l->used;
  if (!l->fits) return;
  memcpy(l->bytes + l->used, &length, sizeof length);
  if (count > 0) memcpy(l->bytes + l->used + sizeof length, bytes, count);
  l->used += (uint32_t)sizeof length + length;
}

static const uint8_t *names_of(const sb_taken *t) { return (const uint8_t *)(t->message + 1); }
static const uint8_t *properties_of(const sb_taken *t) {
  return names_of(t) + t->message->exchange_length + t->message->key_length;
}

/* Collects what the messages of a kind have in common. `exact`: also all properties. False: the message is apart. */
static bool describe(const sb_taken *t, bool exact, likeness *l) {
  const sb_message_shm *m = t->message;
  sb_death_past past;
  if ((m->flags & SB_MESSAGE_IN_PARTS) != 0 || m->properties_length > MOST_PROPERTIES ||
      !sb_deaths_read(properties_of(t), m->properties_length, &past)) {
    return false;
  }
  uint8_t first[] = {(uint8_t)sb_side_why_of(t->side), m->priority, past.has_first};
  const uint8_t *p = properties_of(t);
  l->used = 0;
  l->fits = true;
  add(l, first, sizeof first);
  add(l, names_of(t), m->exchange_length);
  add(l, names_of(t) + m->exchange_length, m->key_length);
  if (exact) add(l, p, m->properties_length);
  if (!exact) add(l, p + past.deaths.at, past.deaths.bytes);
  if (!exact) add(l, p + past.copies.at, past.copies.bytes);
  if (!exact) add(l, p + past.expiration.at, past.expiration.bytes);
  return l->fits;
}

/* True if both messages have the same head, bit by bit, and died for the same reason. */
static bool same_head(const sb_taken *a, const sb_taken *b) {
  const sb_message_shm *m = a->message, *n = b->message;
  return sb_side_why_of(a->side) == sb_side_why_of(b->side) && m->priority == n->priority &&
         m->exchange_length == n->exchange_length && m->key_length == n->key_length &&
         m->properties_length == n->properties_length && ((m->flags | n->flags) & SB_MESSAGE_IN_PARTS) == 0 &&
         memcmp(names_of(a), names_of(b), sb_api_names(m)) == 0;
}

static uint32_t kind_of(sb_dead_batch *batch, const sb_taken *t, bool exact) {
  likeness l;
  if (!describe(t, exact, &l)) {
    return SB_DEAD_MOST;
  }
  sb_hash hash = sb_hash_of(l.bytes, l.used, 0, exact);
  for (uint32_t k = batch->kinds; k > 0; k--) {
    if (batch->kind[k - 1].low == hash.low && batch->kind[k - 1].high == hash.high) return k - 1;
  }
  batch->kind[batch->kinds] = (sb_dead_kind){hash.low, hash.high, batch->count};
  return batch->kinds++;
}

/* ---- taking ---- */

/* Lock held. Takes the message at `position`. SB_DONE: there is no dead message. */
static sb_status take(sb_queue *q, uint64_t position, sb_taken *t) {
  uint64_t token;
  sb_status status = sb_holding_take(q->c, &token);
  if (status != SB_OK) {
    return status;
  }
  if (!sb_schedule_take(q, position, SB_CELL_SCHEDULED, token, t)) {
    sb_holding_give(q->c, token);
    return SB_DONE;
  }
  if (sb_side_why_of(t->side) == SB_WHY_ALIVE) { /* it was carried out, and the cell of another one has this position */
    sb_schedule_make_ready(q, token);
    return SB_DONE;
  }
  if (!sb_api_plausible(q->c->b, t)) {
    (void)sb_api_drop_corrupt(q, token);
    return SB_DONE;
  }
  return SB_OK;
}

/* Lock held. Takes the first dead messages that wait, until the batch is full. */
static sb_status take_all(sb_queue *q, const sb_agenda *a, bool exact, sb_dead_batch *batch) {
  const uint64_t *positions = sb_agenda_dead(a);
  uint64_t bytes = 0;
  sb_taken taken[2], *t = &taken[0], *last = NULL; /* the last one that is held */
  for (; batch->count < SB_DEAD_MOST && batch->count < a->dead_count && bytes < MOST_BYTES; batch->count++) {
    sb_dead_message *m = &batch->messages[batch->count];
    *m = (sb_dead_message){.position = positions[batch->count], .state = SB_DEAD_GONE};
    sb_status status = take(q, m->position, t);
    if (status == SB_DONE) {
      continue;
    }
    if (status != SB_OK) {
      return status;
    }
    bool same = last != NULL && same_head(t, last);
    m->kind = same ? batch->messages[batch->last].kind : kind_of(batch, t, exact);
    if (m->kind == SB_DEAD_MOST) {
      m->state = SB_DEAD_APART;
      batch->apart++;
      (void)sb_park_again(q, t->token, sb_side_why_of(t->side));
      continue;
    }
    m->state = SB_DEAD_HELD;
    m->token = t->token;
    bytes += t->message->body_length;
    batch->last = batch->count;
    last = t;
    t = &taken[last == &taken[0]];
  }
  return SB_OK;
}

sb_status sb_dead_take_batch(sb_queue *q, const sb_queue_memory *memory, bool exact, sb_dead_batch *batch) {
  batch->count = batch->kinds = batch->last = batch->apart = 0;
  if (memory->agenda == NULL) {
    return SB_OK;
  }
  sb_status status = sb_api_enter(q->c);
  if (status == SB_OK) {
    status = sb_queue_is_open(q) ? take_all(q, memory->agenda, exact, batch) : SB_DELETED;
    sb_api_leave(q->c);
  }
  return status;
}

int64_t sb_dead_record(sb_queue *q, const sb_dead_message *message, char *buffer, uint32_t *why) {
  sb_taken t;
  sb_leaf_ref leaf;
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  int64_t length = -(int64_t)SB_SETTLED;
  if (sb_settle_find(q->c, message->token, &t, &leaf)) {
    *why = (uint32_t)sb_side_why_of(t.side);
    length = sb_api_record(q, &t, message->token, 0, buffer);
  }
  sb_api_leave(q->c);
  return length;
}

/* ---- carrying out ---- */

/* The arguments of a commit, in one allocation. */
typedef struct {
  sb_publication *publications;
  sb_settlement *settlements;
  sb_put_options *options;
  uint8_t *properties;
  uint32_t count, ends;
} load;

static bool goes(const sb_dead_message *m, const sb_dead_plan *const *plans) {
  return m->state == SB_DEAD_HELD && plans[m->kind] != NULL;
}

/* Allocates what the messages need. False: this process has no memory. */
static bool prepare(sb_queue *q, const sb_dead_batch *batch, const sb_dead_plan *const *plans, uint32_t from,
                    uint32_t to, load *l) {
  uint64_t publications = 0, ends = 0, bytes = 0;
  for (uint32_t i = from; i < to; i++) {
    const sb_dead_message *m = &batch->messages[i];
    sb_taken t;
    sb_leaf_ref leaf;
    if (!goes(m, plans) || !sb_settle_find(q->c, m->token, &t, &leaf)) continue;
    publications += plans[m->kind]->part_count;
    bytes += t.message->properties_length + (uint64_t)plans[m->kind]->headers_length + SB_DEATHS_MORE;
    ends++;
  }
  size_t per = sizeof *l->publications + sizeof *l->options;
  *l = (load){.publications = malloc(publications * per + ends * sizeof *l->settlements + bytes + 1)};
  if (l->publications == NULL) {
    return false;
  }
  l->options = (sb_put_options *)(void *)(l->publications + publications);
  l->settlements = (sb_settlement *)(void *)(l->options + publications);
  l->properties = (uint8_t *)(l->settlements + ends);
  return true;
}

/* Adds a message: its copies in all parts of its plan, and its end. */
static void add_message(sb_queue *q, const sb_taken *t, const sb_dead_plan *plan, load *l) {
  const sb_message_shm *m = t->message;
  sb_death_past past;
  uint32_t length = 0;
  (void)sb_deaths_read(properties_of(t), m->properties_length, &past); /* it could be read when the batch took it */
  if (plan->part_count > 0)
    length = sb_deaths_write(&past, plan->headers, plan->headers_length, plan->drops_copies != 0, l->properties);
  for (uint32_t i = 0; i < plan->part_count; i++) {
    const sb_dead_part *part = &plan->parts[i];
    sb_put_options *o = &l->options[l->count];
    *o = (sb_put_options){.key = plan->key,
                          .properties = (const char *)l->properties,
                          .exchange = plan->exchange,
                          .key_length = plan->key_length,
                          .properties_length = length,
                          .exchange_length = (uint8_t)plan->exchange_length,
                          .priority = m->priority};
    l->publications[l->count++] = (sb_publication){.body = (const char *)m + m->body_offset,
                                                   .length = m->body_length,
                                                   .options = o,
                                                   .targets = part->targets,
                                                   .target_count = part->target_count};
  }
  l->properties += length;
  sb_disposition end = plan->part_count > 0 ? SB_CARRIED_OUT : SB_GIVEN_UP;
  l->settlements[l->ends++] = (sb_settlement){.queue = q, .token = t->token, .disposition = end};
}

static void fill(sb_queue *q, const sb_dead_batch *batch, const sb_dead_plan *const *plans, uint32_t from, uint32_t to,
                 load *l) {
  for (uint32_t i = from; i < to; i++) {
    const sb_dead_message *m = &batch->messages[i];
    sb_taken t;
    sb_leaf_ref leaf;
    if (goes(m, plans) && sb_settle_find(q->c, m->token, &t, &leaf)) add_message(q, &t, plans[m->kind], l);
  }
}

sb_status sb_dead_carry_out(sb_queue *q, sb_dead_batch *batch, const sb_dead_plan *const *plans, uint32_t from,
                            uint32_t to) {
  load l;
  uint32_t failed[2];
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return status;
  }
  bool prepared = prepare(q, batch, plans, from, to, &l);
  if (prepared) fill(q, batch, plans, from, to, &l);
  sb_api_leave(q->c);
  if (!prepared) {
    return SB_SYSTEM;
  }
  /* the connection holds the messages, so the bodies stay where they are; one that lost a message since: SB_SETTLED */
  if (l.ends > 0)
    status = sb_transaction_commit(q->c, l.publications, l.count, l.settlements, l.ends, &failed[0], &failed[1]);
  free(l.publications);
  for (uint32_t i = from; status == SB_OK && i < to; i++) {
    if (goes(&batch->messages[i], plans)) batch->messages[i].state = SB_DEAD_DONE;
  }
  return status;
}

/* ---- the end of a batch ---- */

/* Lock held. Parks a message again that was not carried out. True: it waits on. */
static bool park(sb_queue *q, const sb_dead_message *m) {
  sb_taken t;
  sb_leaf_ref leaf;
  if (m->state == SB_DEAD_APART) {
    return true;
  }
  if (m->state != SB_DEAD_HELD || !sb_settle_find(q->c, m->token, &t, &leaf)) {
    return false;
  }
  bool open = sb_queue_is_open(q);
  sb_status status =
      open ? sb_park_again(q, m->token, sb_side_why_of(t.side)) : sb_dispose(q, m->token, SB_REASON_KILLED);
  return status == SB_OK && open;
}

uint32_t sb_dead_end_batch(sb_queue *q, sb_queue_memory *memory, sb_dead_batch *batch) {
  uint64_t kept[SB_DEAD_MOST];
  uint32_t waits = 0;
  if (memory->agenda == NULL) {
    return 0;
  }
  if (q->ledger != NULL && sb_api_enter(q->c) == SB_OK) {
    for (uint32_t i = 0; i < batch->count; i++) {
      if (park(q, &batch->messages[i])) kept[waits++] = batch->messages[i].position;
    }
    sb_api_leave(q->c);
  }
  sb_agenda_remove_dead(memory->agenda, batch->count, kept, waits);
  for (uint32_t i = 0; i < batch->count; i++) {
    if (batch->messages[i].state == SB_DEAD_GONE && !sb_agenda_note(memory->agenda, 0, batch->messages[i].position))
      (void)SB_ADD(&q->shm->timers_lost, 1, SB_RELEASE);
  }
  batch->count = 0;
  return waits;
}
