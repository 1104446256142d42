// SPDX-License-Identifier: Apache-2.0
/* A private broker for a C test: its files, an attachment, and calls that grow the arena if necessary.
 *
 * The number at the start of its body identifies a message; the rest of the body repeats the number.
 */
#ifndef BROKER_FIXTURE_H
#define BROKER_FIXTURE_H

#include "shmbroker.h"

#define FOREVER UINT64_MAX
#define CHUNKS_PER_SEGMENT 12u
#define BUFFER (1u << 17)
#define FREELY {{-1, -1, -1, 0, -1, -1}, 0} /* settings without any limit */

typedef struct {
  char path[96];
  sb_broker *b;
  sb_connection *c;
} test_broker;

/* The test itself cannot go on. */
_Noreturn void die(const char *what, int status);

/* ---- files ---- */

void file_name(char *out, size_t size, const char *path, const char *suffix);
/* Also what a process left that was killed while it made a file. */
void remove_files(const char *path);
void remove_broker(const char *name);
void make_broker(test_broker *t, const char *name, uint32_t chunks);
/* False: there are as many segments as there may be. */
bool grow(sb_broker *b, const char *path);

/* ---- calls ---- */

void attach(test_broker *t);
sb_connection *connect_to(test_broker *t);
/* Disconnects and detaches. */
void leave_broker(test_broker *t);
sb_status declare(test_broker *t, const char *name, sb_settings settings);
/* NULL: there is no such queue. */
sb_queue *open_queue(test_broker *t, const char *name);
sb_status put_sized(test_broker *t, sb_queue *q, uint64_t id, uint64_t bytes, const sb_put_options *options);
sb_status put(test_broker *t, sb_queue *q, uint64_t id);
/* Loads what a call needs that returned SB_GROW, if it needs messages of the store. NULL: the test has no store. */
extern bool (*load_wanted)(test_broker *t, sb_queue *q);
/* The id of the next message, 0 when there is none; UINT64_MAX if its body does not say the same everywhere. */
uint64_t get(test_broker *t, sb_queue *q, char *buffer, bool auto_ack);
/* Takes the oldest message of a non-destructive queue, which gives none to a get: it is held, until sb_queue_put_back.
 * Returns its id; 0: there is none. */
uint64_t take_out(test_broker *t, sb_queue *q, char *buffer);
/* The same, and ends it. */
uint64_t take_away(test_broker *t, sb_queue *q, char *buffer);
/* How many messages a purge removes; minus its status if it fails. */
int64_t purge_count(sb_queue *q);

/* The body of a message that was got, of which the call said that length: in the record, or where it lies. */
const char *body_of(const char *record, int64_t length);
/* A body repeats its id. It is written and compared in blocks of bytes, since kill_at_instruction steps through that. */
void fill_body(void *body, uint64_t bytes, uint64_t id);
/* The id that a body repeats, UINT64_MAX if it is not the same everywhere. */
uint64_t id_at(const char *body, uint64_t bytes);
/* How often upkeep has mended something, explained or not; rescues too. */
uint64_t repairs_of(sb_broker *b);
/* What the doctor finds, as text: how much, and the first of it; NULL when it finds nothing. */
const char *findings(sb_connection *c);

#endif
