// SPDX-License-Identifier: Apache-2.0
/* Regions: how many bytes of a stored queue are in the memory, and what for.
 *
 * What: a walk over the ring adds up the bodies of the messages in the memory. A message that somebody holds counts as
 * `acquired`, one that is delayed or waits as dead as `scheduled`. A ready one counts as `direct` if a consumer that is
 * there comes to it without a load: no leaf between the consumer and the message has left the memory. Else it counts as
 * `head` if no leaf before it has left: it stays for consumers that come. Any other one is `pending`: of the newest ones,
 * or loaded for a search. What these five lack to the bytes of the queue is in the store only.
 *
 * Layout: nothing shared. sb_regions_walk has the place at which the walk goes on.
 *
 * Invariants: none. Each message that stays in its place during the walk counts once; beside traffic the sums are of no
 *  one moment.
 *
 * Ordering pairs: none here.
 *
 * Death: a walk changes nothing.
 *
 * Concurrency: beside all traffic. The caller is inside (sb_grace.h) during a step; between two steps it lets others use
 *  the connection.
 */
#ifndef SB_REGIONS_H
#define SB_REGIONS_H

#include "sb_waits.h"

/* The next step of a walk. `f` is all 0 before the first one. False: it was the last one; or the queue is not stored
 * (f->incarnation is 0 then), is gone, or another one has its slot now. */
bool sb_regions_step(sb_connection *c, uint32_t queue, sb_regions *f);

#endif
