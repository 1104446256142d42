// SPDX-License-Identifier: Apache-2.0
#include "sb_mutant.h"
#include "sb_mutants.h" // how many there are

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

unsigned sb_mutant_chosen;
static unsigned char unseen[SB_MUTANTS + 1];
unsigned char *sb_mutant_seen = unseen;

__attribute__((constructor)) static void choose(void) {
  const char *number = getenv("SB_MUTANT"), *name = getenv("SB_MUTANT_SEEN");
  if (number != NULL) sb_mutant_chosen = (unsigned)strtoul(number, NULL, 10);
  if (name == NULL) return;
  int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, SB_MUTANTS + 1) != 0) {
    perror(name);
    abort();
  }
  void *map = mmap(NULL, SB_MUTANTS + 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) {
    perror(name);
    abort();
  }
  sb_mutant_seen = map;
  close(fd);
}
