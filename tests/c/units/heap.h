// SPDX-License-Identifier: Apache-2.0
/* The heap of the process: how much of it is in use, and what the core does when it is exhausted. */
#ifndef HEAP_H
#define HEAP_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes in use by each round of something that is done again and again: 0 unless it keeps what it allocates. */
size_t heap_kept_by(void (*round)(void));
/* Bytes in use. What was freed last may count, too, unless it was large. */
size_t heap_in_use(void);
/* The process may map this many bytes more. False: a sanitizer keeps the heap, which then has no limit. */
bool heap_limit(size_t more);
void heap_unlimit(void);
/* Every allocation fails, until it is relieved. False: as above. */
bool heap_exhaust(void);
void heap_relieve(void);

#endif
