// SPDX-License-Identifier: Apache-2.0
/* A producer and a consumer that work while another process is stopped inside an operation.
 *
 * What must hold beside a stopped process:
 *  - No process treats it as dead: reaping leaves it alone.
 *  - The consumer takes all ready messages, as it would without the stopped process. Then a thousand messages pass,
 *    one after the other: each put returns, and the next get delivers exactly this message.
 *  - A queue that is being deleted may be gone. Then each put and get reports that, from one moment on for ever, and
 *    the rest of the messages pass through the other queue.
 *  - The consumer returns the messages that it holds to their positions, so that the operation finds, when it
 *    continues, the messages that it has not handled yet. No message may be lost, or delivered twice, because the
 *    consumer held it in between. A ring that is smaller by then keeps the newest messages.
 *  - The housekeeper's look at the queue returns, too.
 */
#ifndef BYSTANDERS_H
#define BYSTANDERS_H

#include <sys/types.h>

#include "trial.h"

void bystanders_work(const trial *t, pid_t stopped);

#endif
