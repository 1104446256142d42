// SPDX-License-Identifier: Apache-2.0
/* What single functions of the core guarantee, at their limits and where they refuse: cases of one process and one
 * thread, without steps. Each file of the core has a file of cases with its name. A case has a new broker, `t`, which
 * no other process knows.
 *
 * What several actors do to each other belongs to `interleavings`, what a death leaves to `kill_at_step`.
 */
#ifndef CASES_H
#define CASES_H

#include "../broker_fixture.h"
#include "../harness.h"
#include "sb_connection.h"

typedef struct {
  const char *name, *holds;
  void (*run)(void);
} test_case;

typedef struct subject {
  const test_case *cases;
  unsigned count;
  struct subject *next;
} subject;

void add_subject(subject *s);
/* At the end of a file: its cases are among those that are run. */
#define SUBJECT(CASES) \
  static subject subject_of_file = {CASES, sizeof(CASES) / sizeof((CASES)[0]), NULL}; \
  __attribute__((constructor)) static void add_this_file(void) { add_subject(&subject_of_file); }

#define BROKER_CHUNKS 48u

extern test_broker t; /* attached, with one connection */

/* As a drainer does: the next call of the connection forgets what its handles remember of pages. */
static inline void ask_to_forget(sb_connection *c) { (void)SB_ADD(&c->gate->asked, 1, SB_SEQ_CST); }
static inline bool is_asked(const sb_connection *c) { return SB_LOAD(&c->gate->asked, SB_SEQ_CST) != c->answered; }
static inline void answer(sb_connection *c) { c->answered = SB_LOAD(&c->gate->asked, SB_SEQ_CST); }

/* As a process leaves the header that announced a change of settings. The case stores the intent. */
static inline void announce_settings(const sb_settings *s, bool trim) {
  for (unsigned i = 0; i < SB_SETTINGS; i++) SB_STORE(&t.b->header->new_settings[i], s->values[i], SB_RELAXED);
  SB_STORE(&t.b->header->new_flags, s->flags, SB_RELAXED);
  SB_STORE(&t.b->header->new_trim, trim, SB_RELAXED);
}

#define expect(holds, ...) \
  do { \
    if (!(holds)) complain(__VA_ARGS__); \
  } while (0)
/* They are the same number; what it is of goes into the complaint. */
#define expect_is(is, should, what) \
  do { \
    unsigned long long is_ = (unsigned long long)(is), should_ = (unsigned long long)(should); \
    if (is_ != should_) complain("%s:%d: %s is %llu, not %llu", __FILE__, __LINE__, what, is_, should_); \
  } while (0)

/* The next chunk of the arena; segments are made as they are needed. */
void grow_to(uint32_t chunk);

#endif
