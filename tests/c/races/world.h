// SPDX-License-Identifier: Apache-2.0
/* All memory that a run may change, and its return to the state before.
 *
 * A region is write-protected; the first write to a page saves a copy of it. The return copies the pages that any run
 * wrote so far, about sixty, which takes a few microseconds. So a run can be repeated a million times.
 */
#ifndef WORLD_H
#define WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory that is part of the world: for what the core allocates, and for what a scenario must not remember. Each user has
 * memory of its own, so that it gets the same in whichever order they ask. */
void *world_allocate(unsigned user, size_t bytes);
void world_add(void *start, size_t bytes);
bool world_contains(const volatile void *address);
/* From here on changes are noted. */
void world_keep(void);
bool world_is_kept(void);
/* A number that tells the present state from others. */
uint64_t world_state(void);
/* Everything is as it was when world_keep was called. */
void world_go_back(void);

#endif
