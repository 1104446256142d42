// SPDX-License-Identifier: Apache-2.0
/* The store buffer of an actor's processor: what it stored and other actors do not see yet, oldest first.
 *
 * As on x86, other actors see stores in their order. Every read-modify-write operation, and a seq_cst store, waits
 * until all stores are visible. A load sees the stores of its actor. A buffer that may hold a store beyond a switch to
 * another actor may also hold it for a shorter time: the moment when stores become visible is chosen where an actor
 * gives way.
 */
#ifndef STORE_BUFFER_H
#define STORE_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#define DELAYED_MAX 24u

unsigned delayed_count(unsigned actor);
/* The moment of the i-th, from the oldest. */
uint64_t delayed_since(unsigned actor, unsigned i);
/* Others see all but the newest `keep`. */
void delayed_write(unsigned actor, unsigned keep);

#endif
