// SPDX-License-Identifier: Apache-2.0
/* Wait and wake: one futex word for each waiter.
 *
 * What: a waiter (an IO thread, or a thread inside get or put) arms its word, looks once more at the condition it waits
 * for, and sleeps. A notifier that finds the word ARMED marks it PENDING, wakes the waiter, and marks the word
 * NOTIFIED. While the word is RUN, neither side makes a system call.
 *
 * Layout: 2 bits state, 30 bits sequence. Each arming increments the sequence.
 *
 * Invariants:
 *  I7 only notifiers change the word from ARMED to PENDING, and from PENDING to NOTIFIED. Only the waiter arms the
 *      word, and changes it back to RUN.
 *
 * Ordering pairs:
 *  P6 the waiter arms (seq_cst), then looks a second time; the notifier publishes (seq_cst), then reads the word. At
 *     least one of the two sees the other.
 *
 * Death (killed after -> what is left -> who repairs it):
 *  a notifier marked the word PENDING -> the waiter sleeps -> the next notifier finds PENDING and wakes the waiter;
 *   besides, every sleep has a deadline.
 *  the notifier made the system call -> the waiter runs, and the word is still PENDING -> the waiter changes the word
 *   back to RUN.
 * A notifier that was only stopped after it marked the word PENDING, and continues during a later sleep of the waiter,
 * does not change the word: its CAS to NOTIFIED expects the sequence of the earlier sleep.
 *
 * Concurrency: only the waiter arms, disarms and sleeps; any thread rings.
 */
#ifndef SB_WAIT_H
#define SB_WAIT_H

#include "sb_layout.h"
#include "sb_status.h"

uint64_t sb_now_ns(void);         /* CLOCK_MONOTONIC */
uint64_t sb_wall_ns(void);        /* CLOCK_REALTIME, to a few milliseconds */
uint32_t sb_wake_arm(sb_half *w); /* returns the armed word, which sb_wake_sleep expects */
void sb_wake_disarm(sb_half *w);
/* Sleeps while the word equals `armed`. False if the deadline passed, or if a signal arrived; *interrupted: true only
 * for a signal. */
bool sb_wake_sleep(sb_half *w, uint32_t armed, uint64_t deadline_ns, bool *interrupted);
/* Wakes the waiter. True if the waiter slept, or was about to sleep; also if another notifier has just woken it. */
bool sb_wake_ring(sb_half *w);
/* When sb_wake_ring, called by this thread, last woke a thread that slept; 0: never. */
uint64_t sb_wake_woke_ns(void);
/* Wakes all threads that sleep on a word which is not a wake word: its value has changed. */
void sb_wake_all(sb_half *w);
void sb_pause(void);

#endif
