// SPDX-License-Identifier: Apache-2.0
/* What the system tells the core about processes and memory, while a case answers in its place. */
#ifndef PROC_H
#define PROC_H

#include <stdbool.h>
#include <sys/types.h>

#define TEXTS 2u
/* What is read, one after the other, and the last one again and again; "": nothing, and `nothing_read` is returned. */
extern const char *texts[TEXTS];
extern unsigned text_count; /* 0: what there is */
extern unsigned reads;      /* how often something was read of these */
extern ssize_t nothing_read;
extern size_t read_size;                     /* how much was asked for the last time */
extern bool no_mapping, no_advice, no_facts; /* mmap, madvise or stat fails */
extern unsigned opens_to_fail;               /* number of calls of open that fail */
extern unsigned yields;                      /* how often sched_yield was called */

#endif
