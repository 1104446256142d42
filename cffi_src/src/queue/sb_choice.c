// SPDX-License-Identifier: Apache-2.0
#include "sb_choice.h"

#include "sb_closing.h"
#include "sb_wait.h"

#define AGAIN SB_DONE /* of the functions below: the search begins again (I95 of sb_groups.h) */

/* A message that a search looks at. If its slot was reused meanwhile, this may be wrong, but then the cell has changed,
 * too, and taking the message fails. */
typedef struct {
  sb_group_verdict verdict; /* PASSED: the consumer may not have it */
  unsigned bucket;
} looked;

static bool selects(const sb_queue *q, sb_wish *wish, uint32_t slot, const sb_message_shm *m) {
  return wish == NULL || sb_selector_message(q->c->b, &wish->program, slot, m, wish->memory) == SB_SELECTED_YES;
}

static bool rival_wants(const sb_queue *q, const sb_rivals *rivals, uint32_t slot, const sb_message_shm *m) {
  for (uint32_t i = 0; i < rivals->count; i++) {
    const sb_rival *r = &rivals->list[i];
    if (!(r->no_local && m->publisher == r->connection) && selects(q, r->wish, slot, m)) return true;
  }
  return false;
}

bool sb_choice_wants(const sb_queue *q, const sb_choice *choice, uint32_t slot, const sb_message_shm *m) {
  return !(choice->no_local && m->publisher == q->c->id) && selects(q, choice->wish, slot, m) &&
         !rival_wants(q, &choice->rivals, slot, m); /* I107 of sb_rivals.h */
}

static bool is_wanted(const sb_queue *q, const void *choice, uint32_t slot, const sb_message_shm *m) {
  return sb_choice_wants(q, choice, slot, m);
}

/* `word`: the value of an AVAILABLE cell. `by_cursor`: as for sb_groups_admits. */
static looked look_at(sb_queue *q, const sb_choice *choice, uint64_t word, uint64_t position, bool by_cursor) {
  uint32_t slot = sb_cell_slot(word);
  looked l = {SB_GROUP_MINE, SB_NO_BUCKET};
  if (sb_slot_in_range(q->c->b, slot) && sb_slot_ready(q->c->b, slot)) {
    sb_message_shm m = sb_peek_message(q->c->b, slot);
    if (!sb_choice_wants(q, choice, slot, &m)) {
      l.verdict = SB_GROUP_PASSED;
    } else if (q->groups != NULL) {
      l.bucket = sb_groups_bucket(q, &m);
      l.verdict = sb_groups_admits(q, choice->consumer, l.bucket, position, by_cursor);
    }
  }
  return l;
}

/* The word of an AVAILABLE cell; 0: the cell is in another state. */
static uint64_t available(const sb_leaf_ref *leaf, uint64_t position) {
  uint64_t word = SB_LOAD(&sb_leaf_cell(leaf, position)->word, SB_SEQ_CST);
  return sb_cell_of(word, leaf->gen) && sb_cell_state(word) == SB_CELL_AVAILABLE ? word : 0;
}

static void took(sb_queue *q, const looked *l, uint64_t next) {
  if (q->groups != NULL) sb_groups_took(q, l->bucket, next);
}

/* Takes the first message of bucket `b` before `before` that the consumer, or others, passed while another consumer had
 * the bucket. The consumer has the claim. */
static sb_status take_behind_in(sb_queue *q, const sb_lane *lane, const sb_choice *choice, unsigned b, uint64_t before,
                                uint64_t token, sb_taken *t) {
  sb_groups *g = q->groups;
  sb_leaf_ref leaf;
  uint64_t end = g->end[b] < before ? g->end[b] : before, at = g->next[b];
  if (at >= end) {
    return SB_EMPTY;
  }
  while (at < end && sb_ring_next_leaf(q->c->b, &lane->ring, at, &leaf, &at) && at < end) {
    for (; at < end && sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = available(&leaf, at);
      uint32_t slot = sb_cell_slot(word);
      if (word == 0 || !sb_slot_in_range(q->c->b, slot) || !sb_slot_ready(q->c->b, slot)) continue;
      sb_message_shm m = sb_peek_message(q->c->b, slot);
      if (sb_groups_bucket(q, &m) != b || !sb_choice_wants(q, choice, slot, &m)) continue;
      if (sb_take_for_consumer_at(q, at, false, token, t) == SB_OK) {
        took(q, &(looked){SB_GROUP_MINE, b}, at + 1);
        return SB_OK;
      }
    }
    g->next[b] = at;
  }
  g->next[b] = end;
  return SB_EMPTY;
}

/* The same in all buckets that the consumer has. */
static sb_status take_behind(sb_queue *q, const sb_lane *lane, const sb_choice *choice, uint64_t token, sb_taken *t) {
  for (unsigned b = 0; (b = sb_groups_behind(q, choice->consumer, b, choice->cursor)) != SB_NO_BUCKET; b++) {
    sb_status status = take_behind_in(q, lane, choice, b, choice->cursor, token, t);
    if (status != SB_EMPTY) return status;
  }
  return SB_EMPTY;
}

static sb_status take_returned(sb_queue *q, sb_lane *lane, const sb_choice *choice, uint64_t before, uint64_t token,
                               sb_taken *t) {
  uint64_t from = 0, position;
  sb_leaf_ref leaf;
  while (SB_LOAD(lane->ring.requeued, SB_SEQ_CST) != 0 &&
         sb_requeued_next_near(q->c->b, lane, from, &leaf, &position) && position < before) {
    uint64_t word = available(&leaf, position);
    if (word != 0) {
      looked l = look_at(q, choice, word, position, false);
      if (l.verdict == SB_GROUP_CLAIMED) {
        return AGAIN;
      }
      if (l.verdict == SB_GROUP_MINE && l.bucket != SB_NO_BUCKET) {
        /* it may never have been taken: the bits of a message that was STAGED. Older ones of its bucket come first */
        sb_status status = take_behind_in(q, lane, choice, l.bucket, position, token, t);
        if (status != SB_EMPTY) return status;
      }
      if (l.verdict == SB_GROUP_MINE && sb_take_for_consumer_at(q, position, true, token, t) == SB_OK) {
        took(q, &l, 0);
        return SB_OK;
      }
    }
    from = position + 1;
  }
  return SB_EMPTY;
}

static sb_status take_next(sb_queue *q, sb_lane *lane, sb_choice *choice, uint64_t token, sb_taken *t) {
  uint64_t base = SB_LOAD(lane->ring.base, SB_RELAXED), at = choice->cursor > base ? choice->cursor : base;
  sb_leaf_ref leaf = lane->head_leaf;
  unsigned retries = 0, passed = 0;
  while (sb_leaf_covers(&leaf, at) || sb_ring_next_leaf(q->c->b, &lane->ring, at, &leaf, &at)) {
    lane->head_leaf = leaf;
    while (sb_leaf_covers(&leaf, at)) {
      uint64_t word =
          SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST); /* P1, P2: acquire; P3: the consumer's look */
      unsigned state = sb_cell_state(word);
      choice->cursor = at;
      if (!sb_cell_of(word, leaf.gen)) { /* the page was reused: find the leaf again */
        leaf = lane->head_leaf = SB_NO_LEAF;
        if (++retries > SB_MAX_RETRIES) return SB_CORRUPT;
        break;
      }
      if (state == SB_CELL_FREE) {
        return SB_EMPTY;
      }
      if (state == SB_CELL_CLOSING) {
        if (!sb_closing_resolve(q->c->b, q->c, q->shm, &lane->ring, at) || ++retries > SB_MAX_RETRIES)
          return SB_CORRUPT;
        continue;
      }
      if (state == SB_CELL_CLOSED) {
        return SB_DELETED;
      }
      if (state == SB_CELL_STAGED) {
        sb_take_pass_staged(q, at);
      }
      if (state == SB_CELL_AVAILABLE) {
        looked l = look_at(q, choice, word, at, true);
        if (l.verdict == SB_GROUP_CLAIMED) {
          return AGAIN;
        }
        if (l.verdict == SB_GROUP_MINE) {
          if (sb_take_passed_some(q, lane)) { /* I53 */
            sb_status status = take_returned(q, lane, choice, at, token, t);
            if (status != SB_EMPTY) return status;
          }
          if (sb_take_for_consumer_at(q, at, false, token, t) == SB_OK) {
            took(q, &l, at + 1);
            choice->cursor = at + 1;
            return SB_OK;
          }
          if (SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST) == word && ++retries > SB_MAX_RETRIES) {
            return SB_CORRUPT;
          }
          continue; /* another process was faster */
        }
        passed++;
      }
      choice->cursor = ++at;
      if (passed == SB_CHOICE_LOOKS) {
        choice->unfinished = true;
        return SB_EMPTY;
      }
    }
  }
  return SB_EMPTY;
}

/* Searches one lane. The consumer has one cursor, so in a lane that the cursor is not in, the search begins at the
 * lane's head. */
static sb_status take_in_lane(sb_queue *q, sb_lane *lane, sb_choice *choice, uint64_t token, sb_taken *t) {
  uint64_t head = SB_LOAD(lane->ring.head, SB_ACQUIRE);
  if (sb_position_lane(choice->cursor) != sb_position_lane(head)) choice->cursor = head;
  sb_status status = take_returned(q, lane, choice, choice->cursor, token, t);
  if (status == SB_EMPTY && q->groups != NULL) status = take_behind(q, lane, choice, token, t);
  return status == SB_EMPTY ? take_next(q, lane, choice, token, t) : status;
}

/* Searches the lanes by ascending number. Clears no ready bit: a lane may have messages for other consumers only. */
static sb_status take_in_lanes(sb_queue *q, sb_choice *choice, uint64_t token, sb_taken *t) {
  sb_status status = SB_EMPTY;
  unsigned number = 0;
  while (status == SB_EMPTY && (number = sb_lanes_next_ready(q->shm, number, false)) <= q->last_lane) {
    status = take_in_lane(q, sb_queue_lane_of(q, number++), choice, token, t);
  }
  return status;
}

/* Each search that begins again has claimed a bucket, so there are at most SB_BUCKETS of them. */
static sb_status search(sb_queue *q, sb_choice *choice, uint64_t token, sb_taken *t) {
  sb_status status;
  if (sb_queue_is_sorted(q)) {
    bool any = choice->wish == NULL && !choice->no_local && choice->rivals.count == 0;
    return sb_sorted_take(q, &choice->sorted, any ? NULL : is_wanted, choice, token, t);
  }
  do {
    if (q->groups != NULL) sb_groups_begin(q, choice->consumer);
    status =
        sb_queue_has_lanes(q) ? take_in_lanes(q, choice, token, t) : take_in_lane(q, &q->lanes[0], choice, token, t);
  } while (status == AGAIN);
  return status;
}

sb_status sb_choice_take(sb_queue *q, sb_choice *choice, uint64_t token, sb_taken *t) {
  sb_status status = SB_OK;
  choice->unfinished = false;
  if (q->groups != NULL && (status = sb_groups_find(q)) != SB_OK) {
    return status;
  }
  for (;;) {
    if (!sb_queue_is_open(q)) {
      status = SB_DELETED;
      break;
    }
    if ((SB_LOAD(&q->shm->flags, SB_RELAXED) & SB_QUEUE_PAUSED) != 0) {
      status = SB_EMPTY;
      break;
    }
    status = search(q, choice, token, t);
    if (status != SB_OK || t->message->expires_ns == 0 || t->message->expires_ns > sb_now_ns()) {
      break;
    }
    (void)sb_dispose(q, token, SB_REASON_EXPIRED); /* frees the holding `token` */
    status = sb_holding_take(q->c, &token);        /* gets the same holding: the one freed last is taken first */
    if (status != SB_OK) {
      break;
    }
  }
  if (q->groups != NULL) sb_groups_end(q);
  return status;
}

static sb_status get_sorted(sb_queue *q, uint64_t token, sb_taken *t) {
  sb_choice choice = {.sorted = q->sorted};
  sb_status status = sb_choice_take(q, &choice, token, t);
  q->sorted = choice.sorted;
  return status;
}

static sb_status get_in_groups(sb_queue *q, uint64_t token, sb_taken *t) {
  sb_choice choice = {.cursor = q->groups->get_cursor, .consumer = SB_GROUPS_GETS};
  sb_status status;
  do {
    status = sb_choice_take(q, &choice, token, t);
  } while (status == SB_EMPTY && choice.unfinished);
  q->groups->get_cursor = choice.cursor;
  return status;
}

sb_status sb_choice_get_chosen(sb_queue *q, uint64_t token, sb_taken *t) {
  return sb_queue_is_sorted(q) ? get_sorted(q, token, t) : get_in_groups(q, token, t);
}
