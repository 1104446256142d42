// SPDX-License-Identifier: Apache-2.0
/* Window: the most bytes of messages that a consumer holds (Qpid Broker-J: the byte credit of a consumer; Artemis:
 * consumerWindowSize).
 *
 * What: a consumer with prefetch_bytes looks at the next message before it takes it (sb_choice.h). A message *fits* if
 * its body is no longer than what the bodies that the consumer holds leave of the window; an empty body always does, and
 * so does any body while the consumer holds none. A message that does not fit *holds* the consumer *back*: it stays
 * where it is, the consumer passes none, and its node becomes NOT_INTERESTED, so that the message goes to another
 * consumer. The consumer goes on when it has returned enough bytes, which only its own process sees, or when the queue
 * may have another next message for it: when any message left the queue's ready ones, or when one came that is not
 * behind all others.
 *
 * Nobody wakes a consumer that is held back for a message behind the next one. The baton (I31 of sb_notify.h) does not let
 * it look again either: it passes the baton on when it is held back, and a baton that was on its way to it then says
 * nothing about the next message. Else two consumers for which the next message is too large would wake each other for
 * ever: each would become INTERESTED again, and get the baton of the other.
 *
 * Layout: `held_back` of the queue: 1 = a consumer may be held back. The flag SB_NODE_HELD_BACK of its node: nobody has told
 * it yet that it may look again.
 *
 * Invariants:
 *  I117 while a consumer is held back, and its node has the flag, its next message is the one that it looked at last, and
 *       this does not fit; or a process that has changed `held_back` to 0 is about to remove the flag.
 *
 *  I118 a consumer that is held back by a message of a group that no consumer has does not claim the group. Else the end of
 *       that claim would notify the other consumers, and two of them that are held back would wake each other for ever.
 *
 * Ordering pairs:
 *  P39 a consumer sets the flag of its node, then `held_back` to 1, then looks at the next message a second time (all
 *      seq_cst). Whoever took a message, or made one ready that may come first, did so by a seq_cst operation, then loads
 *      `held_back`; if it is 1, it changes `held_back` to 0, then removes the flag of each node that has it, and notifies
 *      the node. So the second look sees the change, or the other process sees `held_back`.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  of the consumer: the flag of its node, or `held_back`, was set -> at most one needless walk over the queue's nodes.
 *  of the other: a message was taken, or made ready; or `held_back` became 0; or a flag was removed -> consumers that
 *   were not told -> the reaper of the connection tells all of them. One that sees `held_back` 0, or its node without the
 *   flag, looks again by itself when its bounded sleep ends.
 *
 * Concurrency: the functions under the lock of the consumer's connection, beside all other operations.
 */
#ifndef SB_WINDOW_H
#define SB_WINDOW_H

#include "sb_queue.h"

typedef struct {
  uint64_t limit; /* bytes; 0 = none */
  uint64_t used;  /* of the messages that the consumer holds */
} sb_window;

bool sb_window_fits(const sb_window *w, uint64_t length);
/* The length of the body in `slot`, which is ready, if it does not fit; else 0. A message that has expired fits: taking it
 * ends it. If another process takes the message meanwhile, the length may be wrong. */
uint64_t sb_window_refuses(const sb_queue *q, const sb_window *w, uint32_t slot);
/* Says that the consumer of `node` is held back; the caller then looks at the next message a second time (P39). */
void sb_window_hold_back(sb_queue *q, uint32_t node);
/* Says that it is held back no longer. */
void sb_window_go_on(sb_queue *q, uint32_t node);

#endif
