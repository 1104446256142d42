// SPDX-License-Identifier: Apache-2.0
#include "sb_choice.h"

#include <string.h>

#include "sb_closing.h"
#include "sb_paged.h"
#include "sb_wait.h"

#define AGAIN SB_DONE /* of the functions below: the search begins again (I95 of sb_groups.h) */

/* A message that a search looks at. If its slot was reused meanwhile, this may be wrong, but then the cell has changed,
 * too, and taking the message fails. */
typedef struct {
  sb_group_verdict verdict; /* PASSED: the consumer may not have it */
  unsigned bucket;
  bool held_back; /* I118 of sb_window.h: MINE without a claim, since the message does not fit */
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

static bool is_too_large(const sb_queue *q, void *choice, uint32_t slot) {
  return sb_choice_holds_back(q, choice, slot);
}

static bool is_picky(const sb_choice *choice) {
  return choice->wish != NULL || choice->no_local || choice->rivals.count > 0;
}

/* It claims no bucket before it has looked at a message of it: the message may not be for it, or not fit (I118 of sb_window.h). */
static bool claims_late(const sb_choice *choice) { return is_picky(choice) || choice->window != NULL; }

/* I113 of sb_groups.h. */
static bool walks_again(const sb_queue *q, const sb_choice *choice) {
  return q->groups != NULL && (sb_queue_has_lanes(q) || claims_late(choice));
}

static uint64_t *cursor_in(sb_choice *choice, unsigned lane) {
  return lane == 0 ? &choice->cursor : &choice->others[(lane - 1) % SB_CHOICE_OTHERS];
}

/* True if the consumer wants the message in a slot that is ready; *bucket: of the message, in a queue with groups. */
static bool looks_at(const sb_queue *q, const sb_choice *choice, uint32_t slot, unsigned *bucket) {
  uint32_t hash;
  if (is_picky(choice)) {
    sb_message_shm m = sb_peek_message(q->c->b, slot);
    if (!sb_choice_wants(q, choice, slot, &m)) {
      return false;
    }
    hash = m.group_hash;
  } else {
    hash = sb_peek_group(q->c->b, slot); /* it wants any message */
  }
  *bucket = q->groups != NULL ? sb_groups_bucket_of(q->shm, hash) : SB_NO_BUCKET;
  return true;
}

/* `word`: the value of an AVAILABLE cell. `by_cursor`: as for sb_groups_admits. */
SB_HOT looked look_at(sb_queue *q, sb_choice *choice, uint64_t word, uint64_t position, bool by_cursor) {
  uint32_t slot = sb_cell_slot(word);
  looked l = {SB_GROUP_MINE, SB_NO_BUCKET, false};
  if (sb_slot_in_range(q->c->b, slot) && sb_slot_ready(q->c->b, slot)) {
    if (!looks_at(q, choice, slot, &l.bucket)) {
      l.verdict = SB_GROUP_PASSED;
    } else if (l.bucket != SB_NO_BUCKET && choice->window != NULL &&
               sb_groups_would_claim(q, choice->consumer, l.bucket) && sb_choice_holds_back(q, choice, slot)) {
      l.held_back = true;
    } else if (l.bucket != SB_NO_BUCKET) {
      l.verdict = sb_groups_admits(q, choice->consumer, l.bucket, position, by_cursor);
    }
  }
  return l;
}

/* The word of an AVAILABLE cell; 0: the cell is in another state. */
static uint64_t available(const sb_queue *q, const sb_ring *r, const sb_leaf_ref *leaf, uint64_t position) {
  uint64_t word = sb_paged_word(q->c->b, r, leaf, position);
  return sb_cell_of(word, leaf->gen) && sb_cell_state(word) == SB_CELL_AVAILABLE ? word : 0;
}

static bool has_expired(const sb_taken *t) {
  return t->message->expires_ns != 0 && t->message->expires_ns <= sb_now_ns();
}

/* Takes a message that the consumer may have, and that `word` names. SB_NO_CREDIT: it does not fit. */
SB_HOT sb_status take_at(sb_queue *q, sb_choice *choice, const looked *l, const sb_leaf_ref *leaf, uint64_t word,
                         uint64_t position, bool requeued, uint64_t token, sb_taken *t) {
  if (l->held_back || sb_choice_holds_back(q, choice, sb_cell_slot(word))) {
    return SB_NO_CREDIT;
  }
  sb_status status = sb_take_for_consumer_at(q, leaf, position, requeued, token, t);
  if (status == SB_OK && l->bucket != SB_NO_BUCKET) {
    bool delivers = !has_expired(t);
    sb_groups_took(q, l->bucket, requeued || walks_again(q, choice) ? 0 : position + 1, delivers);
    if (delivers && sb_groups_first(q, t->message)) sb_take_mark(leaf, SB_SIDE_GROUP_FIRST, t);
  }
  return status;
}

/* Takes the first message of bucket `b` before `before` that the consumer, or others, passed while another consumer had
 * the bucket. The consumer has the claim, and is not picky. */
static sb_status take_behind_in(sb_queue *q, const sb_lane *lane, sb_choice *choice, unsigned b, uint64_t before,
                                uint64_t token, sb_taken *t) {
  sb_groups *g = q->groups;
  sb_leaf_ref leaf;
  uint64_t end = g->end[b] < before ? g->end[b] : before, at = g->next[b];
  if (at >= end) {
    return SB_EMPTY;
  }
  while (at < end && sb_ring_next_leaf(q->c->b, &lane->ring, at, &leaf, &at) && at < end) {
    for (; at < end && sb_leaf_covers(&leaf, at); at++) {
      uint64_t word = available(q, &lane->ring, &leaf, at);
      uint32_t slot = sb_cell_slot(word);
      looked l = {SB_GROUP_MINE, b, false};
      if (word == 0 || !sb_slot_in_range(q->c->b, slot) || !sb_slot_ready(q->c->b, slot) ||
          sb_groups_bucket_of(q->shm, sb_peek_group(q->c->b, slot)) != b)
        continue;
      sb_status status = take_at(q, choice, &l, &leaf, word, at, false, token, t);
      if (status != SB_EMPTY) return status;
    }
    g->next[b] = at;
  }
  g->next[b] = end;
  return SB_EMPTY;
}

/* The same in all buckets that the consumer has. */
static sb_status take_behind(sb_queue *q, const sb_lane *lane, sb_choice *choice, uint64_t token, sb_taken *t) {
  for (unsigned b = 0; (b = sb_groups_behind(q, choice->consumer, b, choice->cursor)) != SB_NO_BUCKET; b++) {
    sb_status status = take_behind_in(q, lane, choice, b, choice->cursor, token, t);
    if (status != SB_EMPTY) return status;
  }
  return SB_EMPTY;
}

/* The search needs a message that has left the memory. Counts one miss for each message that the consumer takes. */
static sb_status needs(sb_queue *q, const sb_lane *lane, sb_choice *choice, uint64_t position) {
  if (!choice->missed) (void)SB_ADD(&q->shm->misses, 1, SB_RELAXED); /* relaxed: a statistic */
  choice->missed = true;
  choice->away = position + 1;
  return sb_paged_want(q->c, &lane->ring, position);
}

static sb_status take_returned(sb_queue *q, sb_lane *lane, sb_choice *choice, uint64_t before, uint64_t token,
                               sb_taken *t) {
  uint64_t from = 0, position;
  sb_leaf_ref leaf;
  while (SB_LOAD(lane->ring.requeued, SB_SEQ_CST) != 0 &&
         sb_requeued_next_near(q->c->b, lane, from, &leaf, &position) && position < before) {
    if (leaf.leaf == NULL) {
      return needs(q, lane, choice, position);
    }
    uint64_t word = available(q, &lane->ring, &leaf, position);
    if (word != 0) {
      looked l = look_at(q, choice, word, position, false);
      if (l.verdict == SB_GROUP_CLAIMED) {
        return AGAIN;
      }
      if (l.verdict == SB_GROUP_MINE && l.bucket != SB_NO_BUCKET && !walks_again(q, choice)) {
        /* it may never have been taken: the bits of a message that was STAGED. Older ones of its bucket come first */
        sb_status status = take_behind_in(q, lane, choice, l.bucket, position, token, t);
        if (status != SB_EMPTY) return status;
      }
      if (l.verdict == SB_GROUP_MINE) {
        sb_status status = take_at(q, choice, &l, &leaf, word, position, true, token, t);
        if (status != SB_EMPTY) return status;
      }
    }
    from = position + 1;
  }
  return SB_EMPTY;
}

/* I95 of sb_groups.h: the consumer has claimed a bucket just now. True if no older message of the bucket can be ready, so that the search
 * need not begin again: no message returned, and none was passed. */
static bool may_go_on(sb_queue *q, const sb_lane *lane, const sb_choice *choice, unsigned bucket) {
  return !walks_again(q, choice) && !sb_groups_has(q->groups->behind, bucket) &&
         SB_LOAD(lane->ring.requeued, SB_SEQ_CST) == 0;
}

/* The cursor has passed a message. */
static void passed_one(const sb_queue *q, sb_choice *choice, unsigned bucket) {
  if (bucket != SB_NO_BUCKET && walks_again(q, choice)) choice->passed[bucket / 64] |= UINT64_C(1) << bucket % 64;
}

static sb_status take_next(sb_queue *q, sb_lane *lane, sb_choice *choice, uint64_t *cursor, uint64_t token,
                           sb_taken *t) {
  uint64_t base = SB_LOAD(lane->ring.base, SB_RELAXED), at = *cursor > base ? *cursor : base;
  bool by_cursor = !sb_queue_has_lanes(q), limited = q->last_lane <= SB_CHOICE_OTHERS;
  sb_leaf_ref leaf = lane->head_leaf;
  unsigned retries = 0, passed = 0;
  sb_status found;
  while ((found = sb_leaf_covers(&leaf, at) ? SB_OK : sb_ring_find_leaf(q->c->b, &lane->ring, at, &leaf, &at)) ==
         SB_OK) {
    lane->head_leaf = leaf;
    while (sb_leaf_covers(&leaf, at)) {
      uint64_t word =
          SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST); /* P1, P2: acquire; P3: the consumer's look */
      unsigned state = sb_cell_state(word);
      *cursor = at;
      if (!sb_cell_of(word, leaf.gen)) { /* the page was reused: find the leaf again */
        leaf = lane->head_leaf = SB_NO_LEAF;
        if (++retries > SB_MAX_RETRIES) return SB_CORRUPT;
        break;
      }
      if (state == SB_CELL_FREE) {
        return SB_EMPTY;
      }
      if (state == SB_CELL_FROZEN) { /* I127 of sb_paged.h */
        bool stays = sb_paged_stay(q->c->b, &lane->ring, &leaf);
        if (!stays) leaf = lane->head_leaf = SB_NO_LEAF;
        if (++retries > SB_MAX_RETRIES) return SB_CORRUPT;
        if (!stays) break;
        continue;
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
        looked l = look_at(q, choice, word, at, by_cursor);
        if (l.verdict == SB_GROUP_CLAIMED) {
          if (!may_go_on(q, lane, choice, l.bucket)) return AGAIN;
          l.verdict = SB_GROUP_MINE;
        }
        if (l.verdict == SB_GROUP_MINE) {
          if (sb_take_passed_some(q, lane)) { /* I53 */
            sb_status status = take_returned(q, lane, choice, at, token, t);
            if (status != SB_EMPTY) return status;
          }
          sb_status status = take_at(q, choice, &l, &leaf, word, at, false, token, t);
          if (status == SB_OK) *cursor = at + 1;
          if (status != SB_EMPTY) return status;
          if (SB_LOAD(&sb_leaf_cell(&leaf, at)->word, SB_SEQ_CST) == word && ++retries > SB_MAX_RETRIES) {
            return SB_CORRUPT;
          }
          continue; /* another process was faster */
        }
        passed_one(q, choice, l.bucket);
        passed++;
      }
      *cursor = ++at;
      if (passed == SB_CHOICE_LOOKS && limited) {
        choice->unfinished = true;
        return SB_EMPTY;
      }
    }
  }
  if (found == SB_PAGED) *cursor = at;
  return found == SB_PAGED ? needs(q, lane, choice, at) : SB_EMPTY;
}

/* Searches one lane. Where the consumer does not know its cursor of the lane, the search begins at the lane's head. */
static sb_status take_in_lane(sb_queue *q, sb_lane *lane, sb_choice *choice, uint64_t token, sb_taken *t) {
  uint64_t head = SB_LOAD(lane->ring.head, SB_ACQUIRE), *cursor = cursor_in(choice, sb_position_lane(head));
  sb_status status = SB_EMPTY;
  if (sb_position_lane(*cursor) != sb_position_lane(head)) *cursor = head;
  if (SB_LOAD(lane->ring.requeued, SB_SEQ_CST) != 0) status = take_returned(q, lane, choice, *cursor, token, t);
  if (status == SB_EMPTY && q->groups != NULL && q->groups->behind_count != 0 && !walks_again(q, choice))
    status = take_behind(q, lane, choice, token, t);
  if (status == SB_EMPTY) status = take_next(q, lane, choice, cursor, token, t);
  choice->reached = *cursor + 1;
  return status;
}

/* Searches the lanes by ascending number. Clears no ready bit: a lane may have messages for other consumers only. */
static sb_status take_in_lanes(sb_queue *q, sb_choice *choice, uint64_t token, sb_taken *t) {
  sb_status status = SB_EMPTY;
  unsigned number = 0;
  while (status == SB_EMPTY && !choice->unfinished &&
         (number = sb_lanes_next_ready(q->shm, number, false)) <= q->last_lane) {
    status = take_in_lane(q, sb_queue_lane_of(q, number++), choice, token, t);
  }
  return status;
}

/* I113 of sb_groups.h: a bucket of which the consumer passed messages is free: all searches begin at the heads again. */
static void walk_again(const sb_queue *q, sb_choice *choice) {
  choice->cursor = SB_LOAD(&q->shm->head, SB_ACQUIRE);
  memset(choice->others, 0, sizeof choice->others);
  memset(choice->passed, 0, sizeof choice->passed);
}

/* Each search that begins again has claimed a bucket, so there are at most SB_BUCKETS of them. */
static sb_status search(sb_queue *q, sb_choice *choice, uint64_t token, sb_taken *t) {
  sb_status status;
  if (sb_queue_is_sorted(q)) {
    choice->unfinished = false;
    const sb_sorted_reader reader = {is_picky(choice) ? is_wanted : NULL, choice->window != NULL ? is_too_large : NULL,
                                     choice};
    return sb_sorted_take(q, &choice->sorted, &reader, token, t);
  }
  do {
    choice->unfinished = false;
    if (q->groups != NULL && sb_groups_begin(q, choice->consumer, claims_late(choice), choice->passed))
      walk_again(q, choice);
    status =
        sb_queue_has_lanes(q) ? take_in_lanes(q, choice, token, t) : take_in_lane(q, &q->lanes[0], choice, token, t);
  } while (status == AGAIN);
  return status;
}

sb_status sb_choice_take(sb_queue *q, sb_choice *choice, uint64_t token, sb_taken *t) {
  sb_status status = SB_OK;
  choice->away = 0;
  if (q->groups != NULL) q->groups->left_some = false;
  if (q->groups != NULL && q->groups->shm == NULL && (status = sb_groups_find(q)) != SB_OK) {
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
    if (status != SB_OK || !has_expired(t)) {
      break;
    }
    (void)sb_dispose(q, token, SB_REASON_EXPIRED); /* frees the holding `token` */
    q->ended_some = true;
    status = sb_holding_take(q->c, &token); /* gets the same holding: the one freed last is taken first */
    if (status != SB_OK) {
      break;
    }
  }
  if (q->groups != NULL && q->groups->patient_until_ns != 0) sb_groups_ends_patience(q, choice->consumer);
  if (q->groups != NULL && q->groups->unused_count != 0)
    sb_groups_end(q, status == SB_EMPTY && !choice->unfinished && !claims_late(choice));
  if (status == SB_OK) choice->missed = false;
  return status;
}

static sb_status get_sorted(sb_queue *q, uint64_t token, sb_taken *t) {
  sb_choice choice = {.sorted = q->sorted};
  sb_status status = sb_choice_take(q, &choice, token, t);
  q->sorted = choice.sorted;
  return status;
}

static sb_status get_in_groups(sb_queue *q, uint64_t token, sb_taken *t) {
  sb_status status;
  do {
    status = sb_choice_take(q, q->groups->get, token, t);
  } while (status == SB_EMPTY && q->groups->get->unfinished);
  return status;
}

sb_status sb_choice_get_chosen(sb_queue *q, uint64_t token, sb_taken *t) {
  return sb_queue_is_sorted(q) ? get_sorted(q, token, t) : get_in_groups(q, token, t);
}
