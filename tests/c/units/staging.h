// SPDX-License-Identifier: Apache-2.0
/* A commit of this connection that a case stops between its steps, and another connection that is its reaper. */
#ifndef STAGING_H
#define STAGING_H

#include "committing.h"
#include "sb_transaction.h"

#define DONE SB_COUNT_ACKED

extern sb_transaction_plan plan;
extern sb_transaction_body bodies[2];
extern sb_transaction_cell cells[3];
extern sb_transaction_end finish[2];
extern sb_connection *reaper;
extern sb_reap_context walk; /* of the reaper through the holdings of `t.c` */
extern const sb_put_options NONE, LATE, EXPIRING;
extern const sb_settings LIMITED, EVICTING;

/* One body for this many queues, which is filled in and listed. Each queue has one message before it. */
void begin_commit(unsigned count, sb_settings settings, const sb_put_options *o);
void stage_all(void);
/* The reaper visits each holding of `t.c`. */
void each_holding(void (*visit)(sb_reap_context *w, uint64_t what, uint64_t where));

/* Of the staged cell in queue i. */
sb_word *staged_word(unsigned i);
unsigned staged_state(unsigned i);
uint64_t body_header(unsigned i);
int64_t taken_in(unsigned i);

/* The cell at `base` + n of queue i; the others are of queue 0. */
sb_leaf_ref staged_leaf(unsigned i, uint64_t n);
sb_word *staged_cell(unsigned i, uint64_t n);
void set_bare(uint64_t n, unsigned state, uint64_t conditions);
bool is_finished(uint64_t n);

#endif
