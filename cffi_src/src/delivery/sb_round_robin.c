// SPDX-License-Identifier: Apache-2.0
#include "sb_round_robin.h"

#include <stdlib.h>

static sb_round_robin **deal_of(sb_connection *c, uint32_t queue) {
  /* A slot number counts units, and a queue has at least 3 units. So the quotient still differs from queue to queue. */
  sb_round_robin **link = &c->round_robins[queue / 3 % SB_ROUND_ROBINS];
  while (*link != NULL && (*link)->queue != queue) link = &(*link)->next;
  return link;
}

static sb_round_robin_rank **rank_of(sb_round_robin *deal, int32_t priority) {
  sb_round_robin_rank **link = &deal->ranks;
  while (*link != NULL && (*link)->priority > priority) link = &(*link)->lower;
  return link;
}

static sb_round_robin_rank *new_rank(sb_round_robin *deal, int32_t priority) {
  sb_round_robin_rank **link = rank_of(deal, priority), *rank = *link;
  if (rank == NULL || rank->priority != priority) {
    rank = calloc(1, sizeof *rank);
    if (rank != NULL) {
      *rank = (sb_round_robin_rank){.lower = *link, .deal = deal, .priority = priority};
      *link = rank;
    }
  }
  return rank;
}

static void forget_if_unused(sb_connection *c, sb_round_robin *deal) {
  if (deal->ranks == NULL) {
    *deal_of(c, deal->queue) = deal->next;
    free(deal);
  }
}

bool sb_round_robin_join(sb_member *m) {
  sb_connection *c = m->s.q->c;
  sb_round_robin **link = deal_of(c, m->s.q->slot), *deal = *link;
  if (deal == NULL) {
    deal = calloc(1, sizeof *deal);
    if (deal == NULL) {
      return false;
    }
    *deal = (sb_round_robin){.queue = m->s.q->slot};
    *link = deal;
  }
  m->rank = new_rank(deal, m->s.priority);
  if (m->rank == NULL) {
    forget_if_unused(c, deal);
    return false;
  }
  m->rank->members++;
  return true;
}

void sb_round_robin_leave(sb_member *m) {
  sb_round_robin_rank *rank = m->rank;
  sb_round_robin_willing(m, false);
  m->rank = NULL;
  if (--rank->members == 0) {
    sb_round_robin *deal = rank->deal;
    *rank_of(deal, rank->priority) = rank->lower;
    free(rank);
    forget_if_unused(m->s.q->c, deal);
  }
}

static void enter(sb_round_robin_rank *rank, sb_member *m) {
  m->previous = rank->last;
  m->next = NULL;
  if (rank->last != NULL) {
    rank->last->next = m;
  } else {
    rank->first = m;
  }
  rank->last = m;
}

static void leave(sb_round_robin_rank *rank, sb_member *m) {
  if (m->previous != NULL) {
    m->previous->next = m->next;
  } else {
    rank->first = m->next;
  }
  if (m->next != NULL) {
    m->next->previous = m->previous;
  } else {
    rank->last = m->previous;
  }
}

void sb_round_robin_willing(sb_member *m, bool willing) {
  if (willing != m->willing) {
    m->willing = willing;
    if (m->s.choosy) {
      return;
    }
    if (willing) {
      enter(m->rank, m);
    } else {
      leave(m->rank, m);
    }
  }
}

void sb_round_robin_served(sb_member *m) {
  if (m->willing && !m->s.choosy && m->next != NULL) {
    leave(m->rank, m);
    enter(m->rank, m);
  }
}

sb_member *sb_round_robin_next(const sb_round_robin *deal) {
  const sb_round_robin_rank *rank = deal->ranks;
  while (rank != NULL && rank->first == NULL) rank = rank->lower;
  return rank != NULL ? rank->first : NULL;
}
