// SPDX-License-Identifier: Apache-2.0
/* Helpers of all programs of tests/c: report of the first failure, a process for each trial, and the choice of
 * trials. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdbool.h>
#include <stddef.h>

extern char complaint[600]; /* the first thing that is wrong, or nothing */

/* Only the first complaint counts. */
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

/* Runs it in a separate process, for at most this many seconds: a crash or a hang there is a failure like others, since
 * the watchdog is a signal without a handler. Returns what it returned, or -1 if a signal ended it, whose number it
 * stores; then the broker of that process is removed, too. */
int apart(const char *program, unsigned seconds, int (*what)(void *how), void *how, int *signal_number);
/* How that process calls its broker. */
void name_apart(char *name, size_t size, const char *program);

/* Is it among those that were named, or was none named? */
bool asked_for(const char *name, int count, char **names);

#endif
