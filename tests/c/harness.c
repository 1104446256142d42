// SPDX-License-Identifier: Apache-2.0
#include "harness.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker_fixture.h"

char complaint[600];

void complain(const char *format, ...) {
  if (complaint[0] == 0) {
    va_list list;
    va_start(list, format);
    (void)vsnprintf(complaint, sizeof complaint, format, list);
    va_end(list);
  }
}

static void name_of(char *name, size_t size, const char *program, pid_t pid) {
  snprintf(name, size, "%s-%d", program, (int)pid);
}
void name_apart(char *name, size_t size, const char *program) { name_of(name, size, program, getpid()); }

int apart(const char *program, unsigned seconds, int (*what)(void *), void *how, int *signal_number) {
  int status;
  char name[64];
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    alarm(seconds);
    int result = what(how);
    fflush(stdout);
    _exit(result);
  }
  (void)waitpid(pid, &status, 0);
  *signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (*signal_number != 0) {
    name_of(name, sizeof name, program, pid);
    remove_broker(name);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool asked_for(const char *name, int count, char **names) {
  for (int i = 0; i < count; i++) {
    if (strcmp(names[i], name) == 0) return true;
  }
  return count == 0;
}
