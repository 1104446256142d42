// SPDX-License-Identifier: Apache-2.0
/* What an actor stored and others do not see yet, oldest first: the store buffer of its processor.
 *
 * As on x86: stores are seen by others in their order; every changing operation, and a seq_cst store, waits until all
 * are seen; a load sees the actor's own. Whatever the buffers hold for longer than a switch to somebody else, they also
 * hold for less: when stores are seen is chosen where an actor makes way.
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
