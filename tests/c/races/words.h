// SPDX-License-Identifier: Apache-2.0
/* The words that several actors use, at least one of them writing: only there a preemption can make a difference.
 *
 * They are found while schedules are tried. A round uses the words that were known when it began, so that each of its
 * schedules can be repeated, and is repeated if it found more words.
 */
#ifndef WORDS_H
#define WORDS_H

#include <stdbool.h>

void words_forget(void);
void words_begin_round(void);
/* An actor reads or writes there: is the word shared, as far as this round knows? */
bool words_note(const volatile void *address, unsigned actor, bool write);
bool words_is_shared(const volatile void *address);
/* Since the round began. */
bool words_found_more(void);
unsigned words_shared(void);

#endif
