// SPDX-License-Identifier: Apache-2.0
/* What a killed process may leave, and what it must not leave.
 *
 * The survivor reaps, and does the work of a housekeeper. Then the doctor must find nothing; every message must exist
 * exactly as often as the operation allows; the limits of the queue must hold exactly; put, get, delete and declare
 * must work; all memory must be free again, and usable.
 */
#ifndef AFTERMATH_H
#define AFTERMATH_H

#include "harness.h"
#include "operations.h"

/* The work of a housekeeper while no other process works: hints are right after that, or never. */
void housekeep(test_broker *t);

/* done: the operation came back, so what it says must hold. memory: bytes that were in use before there was any queue. */
void verify(test_broker *t, const operation *o, bool done, uint64_t memory);

#endif
