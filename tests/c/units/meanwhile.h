// SPDX-License-Identifier: Apache-2.0
/* Lets a case act inside a function of the core, for another process: at a given operation on a given word. Only in a
 * build whose atomic operations are calls (SB_TEST_HOOKS). */
#ifndef MEANWHILE_H
#define MEANWHILE_H

#include <stdbool.h>

typedef enum { BEFORE_LOAD, AFTER_LOAD, BEFORE_CAS, BEFORE_STORE, BEFORE_CHANGE } meanwhile_when;

/* At the n-th operation of that kind on the word the case acts, once. One word is watched at a time. */
void meanwhile(const volatile void *word, meanwhile_when when, unsigned nth, void (*act)(void));
/* True if the case acted, as it must in a build with steps; no word is watched afterwards. */
bool has_acted(void);
/* The order of the next store to the word, once it happened; -1: there was none. */
void note_order(const volatile void *word);
int noted_order(void);

#endif
