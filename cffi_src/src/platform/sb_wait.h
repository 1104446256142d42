// SPDX-License-Identifier: Apache-2.0
/* Wait and wake: one futex word for each waiter.
 *
 * What: a waiter (an IO thread, or a thread inside get or put) arms its word, looks once more at what it waits for, and
 * sleeps. A notifier that finds it ARMED marks it PENDING, wakes it and marks it NOTIFIED. Nobody makes a system call
 * while the word is RUN.
 *
 * Layout: 2 bits state, 30 bits sequence; the sequence moves on at each arming.
 *
 * Invariants: I7 only the owner leaves PENDING or NOTIFIED (to RUN); only notifiers enter them, from ARMED.
 *
 * Ordering pairs:
 *  P6 arming (seq_cst) comes before the waiter's second look; a notifier's publication (seq_cst) comes before it
 *     reads the word: at least one of the two sees the other.
 *
 * Death: killed after ARMED->PENDING, before the kernel wake: another notifier that finds PENDING wakes too, and every
 *  sleep is bounded. Killed after the wake: the owner is running. A notifier that stops there and goes on in the next
 *  sleep cannot mark it: its CAS carries the old sequence.
 *
 * Concurrency: arm/disarm/sleep by the owner alone; ring by anybody.
 */
#ifndef SB_WAIT_H
#define SB_WAIT_H

#include "sb_layout.h"
#include "sb_status.h"

uint64_t sb_now_ns(void);         /* CLOCK_MONOTONIC */
uint64_t sb_wall_ns(void);        /* CLOCK_REALTIME, coarse: a few milliseconds */
uint32_t sb_wake_arm(sb_half *w); /* returns the armed word, to be slept on */
void sb_wake_disarm(sb_half *w);
/* Sleeps while the word is `armed`; false when the deadline passed or a signal came. */
bool sb_wake_sleep(sb_half *w, uint32_t armed, uint64_t deadline_ns, bool *interrupted);
/* True if the waiter was found sleeping (or about to). */
bool sb_wake_ring(sb_half *w);
void sb_pause(void);

#endif
