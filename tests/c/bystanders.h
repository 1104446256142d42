// SPDX-License-Identifier: Apache-2.0
/* A producer and a consumer who do their work while somebody else is stopped in the middle of an operation.
 *
 * What must hold beside a stopped process:
 *  - Nobody calls it dead: reaping leaves it alone.
 *  - The consumer takes all that lies there into its hands, as it would if nobody else were there. Then a thousand messages
 *    pass, one after the other: each put returns, and the next get delivers just this message.
 *  - A queue that is being deleted may be gone: then each put and get says so, from one moment on for good, and the rest
 *    of the messages pass through the other queue.
 *  - What the consumer had in its hands goes back to its place, so that the operation, when it goes on, finds the messages
 *    that it has not dealt with. That others had them meanwhile is no reason to lose one, or to deliver it twice. A ring
 *    that is smaller by then keeps the newest.
 *  - The housekeeper's look at the queue comes back, too.
 */
#ifndef BYSTANDERS_H
#define BYSTANDERS_H

#include <sys/types.h>

#include "trial.h"

void bystanders_work(const trial *t, pid_t stopped);

#endif
