// SPDX-License-Identifier: Apache-2.0
/* Public calls: browsing. The messages stay where they are; a call copies one as a record, or many as columns, or counts
 * them. */
#include <string.h>

#include "sb_api.h"
#include "sb_paged.h"
#include "sb_schedule.h"

/* The position of a browser, and what it saw there. A browser holds the connection's lock only in `begin` and `finish`.
 * Without the lock no gate (sb_grace.h) protects its reads: pages may be retired meanwhile, and their memory may hold
 * bodies. What was seen is true if afterwards the cell and the generation in the slot's header are unchanged, and the
 * cell's page was not freed (I43 of sb_peek.h). */
typedef struct {
  sb_queue *queue;
  sb_lanes_walk lanes; /* the lanes that follow */
  sb_ring ring;
  sb_leaf_ref leaf;
  bool in_leaf, keeps, sound;
  uint64_t at; /* position */
  sb_cell_shm *cell;
  uint64_t word, gen;
  sb_taken taken;
  sb_message_shm message;
  sb_program selector;  /* none: every message is selected */
  char *memory;         /* for sb_selector_message */
  uint32_t states;      /* which messages are looked at: SB_STATE_... */
  uint64_t end;         /* the browser ends at this sequence number; SB_ANY_POSITION: at the end of the queue */
  sb_whereabouts where; /* of the message that was seen */
} sight;

/* Finds the lane of a sequence number, and the position of the number. If there is no such lane, the browser has come to
 * the end. False: the queue has no lane at all, so its memory is damaged. */
static bool go_to(sight *s, uint64_t sequence) {
  unsigned number = sb_position_lane(sequence);
  uint64_t base = 0;
  bool found = false;
  while (!found && sb_lanes_next(&s->lanes, &s->ring)) {
    base = SB_LOAD(s->ring.base, SB_RELAXED);
    found = sb_position_lane(base) >= number;
  }
  if (s->ring.base == NULL) {
    return false;
  }
  if (!found) {
    s->at = sb_ring_exact_tail(s->queue->c->b, &s->ring);
  } else {
    s->at = sb_position_lane(base) == number ? base + sb_position_place(sequence) : base;
  }
  return true;
}

static uint64_t sequence_at(const sight *s) {
  uint64_t base = SB_LOAD(s->ring.base, SB_RELAXED);
  return sb_position_in(sb_position_lane(base), s->at - base);
}

static sb_status begin(sight *s, sb_queue *q, uint64_t position) {
  sb_status status = sb_api_enter(q->c);
  if (status != SB_OK) {
    return status;
  }
  if (sb_queue_is_open(q)) {
    *s = (sight){.queue = q, .lanes = sb_lanes_of(q->c->b, q->slot), .states = SB_STATE_READY, .end = SB_ANY_POSITION};
    if (!go_to(s, position)) status = SB_CORRUPT;
    s->keeps = (SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_KEEPS) != 0;
    if (status == SB_OK && position == 0 && !sb_api_look_at_bound(q)) status = SB_CLOSED;
    q->busy += status == SB_OK; /* I60 of sb_handles.h: the handle stays attached while the browser has no lock */
  } else {
    status = SB_DELETED;
  }
  sb_api_leave(q->c);
  return status;
}

/* Ends a browse after `begin` returned SB_OK. */
static void finish(const sight *s) {
  sb_connection *c = s->queue->c;
  sb_lock(c);
  s->queue->busy--;
  sb_unlock(c);
}

/* True if the page was not freed; called after the reads of the page. All messages of a freed page are gone. */
static bool leaf_is_there(const sight *s) {
  return sb_slot_gen(SB_LOAD(sb_slot_header(s->queue->c->b, s->leaf.slot), SB_SEQ_CST)) == s->leaf.gen;
}

/* Describes where the message is that was seen in a cell with a state. */
static sb_whereabouts where_of(const sight *s, uint32_t state) {
  sb_whereabouts w = {.state = SB_STATE_READY};
  if (state == SB_CELL_ACQUIRED) {
    w.state = SB_STATE_DELIVERING;
    w.connection = sb_cell_owner(s->word);
  } else if (state == SB_CELL_SCHEDULED && sb_park_why(s->taken.side, s->message.flags) != SB_WHY_ALIVE) {
    w.state = SB_STATE_DEAD;
  } else if (state == SB_CELL_SCHEDULED) {
    w.state = SB_STATE_SCHEDULED;
    w.due_ns = sb_schedule_due(s->taken.side, &s->message);
  }
  return w;
}

/* True if the browser looks at messages in cells with this state. Whether a scheduled one is dead, its side record says. */
static bool may_see(const sight *s, uint32_t state) {
  switch (state) {
    case SB_CELL_AVAILABLE: return (s->states & SB_STATE_READY) != 0;
    case SB_CELL_ACQUIRED: return (s->states & SB_STATE_DELIVERING) != 0;
    case SB_CELL_SCHEDULED: return (s->states & (SB_STATE_SCHEDULED | SB_STATE_DEAD)) != 0;
    default: return false;
  }
}

/* The first look in a lane: finds the next message in one of the browser's states, from the position on. SB_EMPTY: there
 * is none. */
static sb_status look_in_lane(sight *s) {
  sb_broker *b = s->queue->c->b;
  unsigned retries = 0;
  for (;;) {
    while (!s->in_leaf || !sb_leaf_covers(&s->leaf, s->at)) {
      sb_status status = sb_ring_find_leaf(b, &s->ring, s->at, &s->leaf, &s->at);
      s->in_leaf = status == SB_OK;
      if (status == SB_PAGED && !(s->end != SB_ANY_POSITION && sequence_at(s) >= s->end))
        return sb_paged_want(s->queue->c, &s->ring, s->at);
      if (!s->in_leaf) return SB_EMPTY;
    }
    if (s->end != SB_ANY_POSITION && sequence_at(s) >= s->end) return SB_EMPTY;
    s->cell = sb_leaf_cell(&s->leaf, s->at);
    s->word = sb_paged_word(b, &s->ring, &s->leaf, s->at);
    uint32_t state = sb_cell_state(s->word), slot = sb_cell_slot(s->word);
    bool of_leaf = sb_cell_of(s->word, s->leaf.gen), ends = state == SB_CELL_FREE || state == SB_CELL_CLOSED;
    if ((!of_leaf || ends) && leaf_is_there(s)) return SB_EMPTY;
    if (!of_leaf || ends || state == SB_CELL_FROZEN) { /* the leaf is gone, or has left the memory: look for it again */
      s->in_leaf = false;
      if (++retries > SB_MAX_RETRIES) return SB_CORRUPT;
      continue;
    }
    retries = 0;
    if (!may_see(s, state) || !sb_slot_ready(b, slot)) {
      s->at++;
      continue;
    }
    s->taken = (sb_taken){.position = s->at, .slot = slot, .side = SB_LOAD(&s->cell->side, SB_ACQUIRE)};
    s->gen = sb_slot_gen(SB_LOAD(sb_slot_header(b, slot), SB_ACQUIRE));
    s->message = sb_peek_message(b, slot);
    s->taken.message = &s->message;
    s->sound = sb_api_plausible(b, &s->taken);
    s->where = where_of(s, state);
    if ((s->where.state & s->states) != 0) return SB_OK;
    s->at++;
  }
}

/* The first look: finds the next ready message, from the position on, in this lane or a later one. */
static sb_status look(sight *s) {
  sb_ring next;
  sb_status status;
  while ((status = look_in_lane(s)) == SB_EMPTY && sb_lanes_next(&s->lanes, &next)) {
    s->ring = next;
    s->at = SB_LOAD(next.base, SB_RELAXED);
    s->in_leaf = false;
  }
  return status;
}

/* The second look, after everything was copied. True: the message is unchanged, so the copy is valid. False: the caller
 * repeats the first look, which also finds the page of the position again, since another page may have replaced it. */
static bool still_there(sight *s) {
  uint64_t header = SB_LOAD(sb_slot_header(s->queue->c->b, s->taken.slot), SB_SEQ_CST);
  s->in_leaf = SB_LOAD(&s->cell->word, SB_SEQ_CST) == s->word && sb_slot_gen(header) == s->gen && leaf_is_there(s);
  return s->in_leaf;
}

static bool expired(const sight *s) {
  return s->message.expires_ns != 0 && s->message.expires_ns <= sb_now_ns() && !s->keeps &&
         (s->where.state & (SB_STATE_READY | SB_STATE_SCHEDULED)) != 0; /* not before what holds it has settled it */
}

/* The first look that passes over messages which the selector does not select. Its result is a guess, as all that the
 * first look found; so it passes over a message only after the second look. SB_CORRUPT: the properties are damaged. */
static sb_status look_for_selected(sight *s) {
  sb_status status;
  while ((status = look(s)) == SB_OK && s->selector.code != NULL && s->sound) {
    sb_selected selected = sb_selector_message(s->queue->c->b, &s->selector, s->taken.slot, &s->message, s->memory);
    if (selected == SB_SELECTED_YES) break;
    if (!still_there(s)) continue;
    if (selected == SB_SELECTED_DAMAGED && !expired(s)) return SB_CORRUPT;
    s->at++;
  }
  return status;
}

static uint64_t sequence_of(const sight *s) {
  sb_queue *q = s->queue;
  return s->keeps ? sb_ring_sequence(q->c->b, &s->ring, &s->leaf, s->at) : sequence_at(s);
}

static sb_place place_of(const sight *s) {
  return (sb_place){.generation = s->gen, .length = s->message.body_length, .slot = s->taken.slot};
}

/* Copies `length` bytes: exchange, key and properties, then the wanted part of the body. The first look found the
 * message undamaged. So if a copy from parts fails, the message is gone, and the second look finds that it is. */
static __attribute__((noinline)) void copy(const sight *s, char *to, uint64_t length) {
  sb_broker *b = s->queue->c->b;
  const sb_message_shm *m = &s->message;
  const uint8_t *slot = sb_slot_at(b, s->taken.slot);
  uint64_t names = sb_api_names(m);
  if ((m->flags & SB_MESSAGE_IN_PARTS) != 0) {
    (void)sb_parts_copy(b, s->taken.slot, 0, to, length);
    return;
  }
  sb_peek_bytes(to, slot + sizeof *m, names);
  sb_peek_bytes(to + names, slot + m->body_offset, length - names);
}

sb_status sb_api_find_selected(sb_queue *q, const sb_sought *sought, uint64_t *sequence, uint64_t *found) {
  sight s;
  sb_status status = begin(&s, q, *sequence);
  if (status != SB_OK) {
    return status;
  }
  s.selector = sought->selector;
  s.memory = sought->memory;
  s.states = sought->states;
  s.end = sought->end;
  while ((status = look_for_selected(&s)) == SB_OK) {
    if (!still_there(&s)) continue;
    if (!s.sound) status = SB_CORRUPT;
    if (!s.sound || !expired(&s)) break;
    s.at++;
  }
  *found = s.at;
  *sequence = sequence_at(&s) + (status == SB_OK);
  finish(&s);
  return status;
}

/* Copies the next ready message at or after *position into `buffer`. If `place` is not NULL, stores the place of the
 * body in *place, and copies no body. Returns the length of the record, and sets *position to the position after the
 * message; or returns minus a status. SB_FULL: *position is that of the message, and the first 8 bytes of the buffer
 * have the size that the record needs. */
static int64_t browse_on(sight *s, uint64_t *position, char *buffer, uint64_t size, sb_place *place) {
  sb_status status;
  while ((status = look_for_selected(s)) == SB_OK) {
    const sb_message_shm *m = &s->message;
    uint64_t prefix = (uint64_t)m->exchange_length + m->key_length + m->properties_length,
             copied = place == NULL ? m->body_length : 0, need = sizeof(sb_record) + prefix + copied;
    if (s->sound && need <= size) {
      sb_record record = {.sequence = sequence_of(s),
                          .body_length = m->body_length,
                          .timestamp_ns = m->timestamp_ns,
                          .expires_ns = m->expires_ns,
                          .properties_length = m->properties_length,
                          .key_length = m->key_length,
                          .exchange_length = (uint8_t)m->exchange_length,
                          .priority = m->priority,
                          .marks = (s->taken.side & SB_SIDE_REDELIVERED) != 0 ? SB_MARK_REDELIVERED : 0};
      if (s->where.state == SB_STATE_DELIVERING) record.delivery_count = (uint16_t)sb_side_count(s->taken.side);
      memcpy(buffer, &record, sizeof record);
      copy(s, buffer + sizeof record, prefix + copied);
    }
    if (!still_there(s)) continue; /* the message changed during the copy: look at this position again */
    if (!s->sound) return -(int64_t)SB_CORRUPT;
    if (expired(s)) {
      s->at++;
      continue;
    }
    if (place != NULL) *place = place_of(s);
    *position = sequence_at(s) + (need <= size);
    if (need <= size) return (int64_t)need;
    memcpy(buffer, &need, sizeof need);
    return -(int64_t)SB_FULL;
  }
  *position = sequence_at(s);
  return -(int64_t)status;
}

static int64_t browse(sb_queue *q, uint64_t *position, char *buffer, uint64_t size, sb_place *place) {
  sight s;
  sb_status status = begin(&s, q, *position);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  int64_t length = browse_on(&s, position, buffer, size, place);
  finish(&s);
  return length;
}

int64_t sb_queue_browse(sb_queue *q, uint64_t *position, char *buffer, uint64_t size) {
  return browse(q, position, buffer, size, NULL);
}

int64_t sb_queue_browse_states(sb_queue *q, uint64_t *position, uint64_t end, uint32_t states, const char *selector,
                               uint32_t selector_length, bool body, char *buffer, uint64_t size,
                               sb_whereabouts *where) {
  sight s;
  sb_program program;
  sb_place place;
  if (!sb_program_open(selector, selector_length, &program)) {
    return -(int64_t)SB_INVALID;
  }
  sb_status status = begin(&s, q, *position);
  if (status != SB_OK) {
    return -(int64_t)status;
  }
  s.selector = program;
  s.memory = buffer; /* what the selector leaves there is overwritten by the record */
  s.states = states;
  s.end = end;
  int64_t length = -(int64_t)SB_INVALID;
  if (size >= SB_MAX_PREFIX) length = browse_on(&s, position, buffer, size, body ? NULL : &place);
  *where = s.where;
  finish(&s);
  return length;
}

int64_t sb_queue_browse_selected(sb_queue *q, uint64_t *position, const char *selector, uint32_t selector_length,
                                 char *buffer, uint64_t size) {
  sb_whereabouts where;
  return sb_queue_browse_states(q, position, SB_ANY_POSITION, SB_STATE_READY, selector, selector_length, true, buffer,
                                size, &where);
}

int64_t sb_queue_browse_place(sb_queue *q, uint64_t *position, char *buffer, uint64_t size, sb_place *place) {
  return browse(q, position, buffer, size, place);
}

static bool fits(sb_column *column, uint32_t row, uint64_t length) {
  if (column->ends == NULL) return true;
  column->needed = (uint64_t)(uint32_t)column->ends[row] + length;
  return column->needed <= column->room;
}

/* Copies a text of a message into a column. `at`: the address of the text, if one slot has the whole message; `from`:
 * the offset of the text in the parts, if the message has parts. */
SB_HOT void fill(const sight *s, sb_column *column, uint32_t row, const uint8_t *at, uint64_t from, uint64_t length) {
  if (column->ends == NULL) return;
  if ((s->message.flags & SB_MESSAGE_IN_PARTS) != 0) {
    (void)sb_parts_copy(s->queue->c->b, s->taken.slot, from, column->bytes + column->ends[row], length);
  } else {
    sb_peek_bytes(column->bytes + column->ends[row], at, length);
  }
  column->ends[row + 1] = (int32_t)column->needed;
}

static void set_bit(uint8_t *bits, uint32_t row, bool value) {
  if (bits == NULL) return;
  uint8_t bit = (uint8_t)(1u << (row & 7));
  bits[row >> 3] = (uint8_t)(value ? bits[row >> 3] | bit : bits[row >> 3] & ~bit);
}

/* Copies the message that was seen into a row. False: a column has no room for it. */
static bool to_row(const sight *s, sb_columns *c, uint32_t row) {
  const sb_message_shm *m = &s->message;
  const uint8_t *slot = sb_slot_at(s->queue->c->b, s->taken.slot), *names = slot + sizeof *m;
  uint64_t properties = (uint64_t)m->exchange_length + m->key_length;
  bool key_fits = fits(&c->key, row, m->key_length), properties_fit = fits(&c->properties, row, m->properties_length);
  if (!fits(&c->body, row, m->body_length) || !key_fits || !properties_fit) {
    return false;
  }
  fill(s, &c->key, row, names + m->exchange_length, m->exchange_length, m->key_length);
  fill(s, &c->properties, row, names + properties, properties, m->properties_length);
  fill(s, &c->body, row, slot + m->body_offset, sb_api_names(m), m->body_length);
  if (c->sequence != NULL) c->sequence[row] = (int64_t)sequence_of(s);
  if (c->timestamp_us != NULL) c->timestamp_us[row] = (int64_t)(m->timestamp_ns / 1000);
  if (c->place != NULL) c->place[row] = place_of(s);
  set_bit(c->redelivered, row, (s->taken.side & SB_SIDE_REDELIVERED) != 0);
  set_bit(c->has_key, row, m->key_length != 0);
  return true;
}

int64_t sb_queue_browse_columns(sb_queue *q, uint64_t *position, uint32_t count, sb_columns *columns,
                                sb_status *status) {
  sight s;
  uint32_t row = 0;
  *status = begin(&s, q, *position);
  if (*status != SB_OK) {
    return 0;
  }
  while (row < count && (*status = look(&s)) == SB_OK) {
    bool has_room = s.sound && to_row(&s, columns, row), counts = !expired(&s);
    if (!still_there(&s)) continue;
    if (!s.sound || (counts && !has_room)) {
      *status = s.sound ? SB_FULL : SB_CORRUPT;
      break;
    }
    row += counts;
    s.at++;
  }
  finish(&s);
  *position = sequence_at(&s);
  return row;
}

/* Writes the value of a program for the message that was seen, encoded as a value of an AMQP table. False: there is no
 * room for it. *sound: whether the properties could be read. */
static bool write_value(const sight *s, const sb_program *group, sb_selection *selection, bool *sound) {
  sb_properties p;
  sb_value v;
  sb_broker *b = s->queue->c->b;
  *sound = sb_selector_properties(b, s->taken.slot, &s->message, s->memory, &p) && sb_selector_value(group, &p, &v);
  return !*sound || sb_selector_encode(&v, selection->values, selection->room, &selection->used);
}

/* Looks at one message. Returns SB_OK with *selected; or SB_EMPTY, SB_FULL, SB_CORRUPT. */
static sb_status select_next(sight *s, const sb_program *group, sb_selection *selection, bool *selected) {
  sb_status status;
  while ((status = look(s)) == SB_OK) {
    uint64_t used = selection->used;
    sb_selected result = !s->sound
                             ? SB_SELECTED_DAMAGED
                             : sb_selector_message(s->queue->c->b, &s->selector, s->taken.slot, &s->message, s->memory);
    bool sound = result != SB_SELECTED_DAMAGED, fits = true;
    if (result == SB_SELECTED_YES && group->code != NULL) fits = write_value(s, group, selection, &sound);
    bool there = still_there(s), counts = there && result == SB_SELECTED_YES && !expired(s);
    if (!counts || !sound || !fits) selection->used = used;
    if (!there) continue;
    if (!sound && !expired(s)) return SB_CORRUPT;
    if (counts && !fits) return SB_FULL;
    *selected = counts;
    s->at++;
    return SB_OK;
  }
  return status;
}

int64_t sb_queue_select(sb_queue *q, uint64_t *position, uint64_t count, sb_selection *selection, sb_status *status) {
  sight s;
  sb_program selector, group;
  int64_t found = 0;
  bool selected = false;
  selection->used = 0;
  *status = sb_program_open(selection->selector, selection->selector_length, &selector) &&
                    sb_program_open(selection->group, selection->group_length, &group)
                ? begin(&s, q, *position)
                : SB_INVALID;
  if (*status != SB_OK) {
    return 0;
  }
  s.selector = selector;
  s.memory = selection->memory;
  for (uint64_t i = 0; i < count && (*status = select_next(&s, &group, selection, &selected)) == SB_OK; i++) {
    found += selected;
  }
  finish(&s);
  *position = sequence_at(&s);
  return found;
}
