// SPDX-License-Identifier: Apache-2.0
#include "sb_mutant.h"
#include "sb_mutants.h" // how many there are

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned char chosen[SB_MUTANTS + 1], unseen[SB_MUTANTS + 1];
unsigned char *sb_mutant_chosen = chosen;
unsigned char *sb_mutant_seen = unseen;

__attribute__((constructor)) static void choose(void) {
  const char *numbers = getenv("SB_MUTANT"), *name = getenv("SB_MUTANT_SEEN");
  for (char *end; numbers != NULL && *numbers != '\0'; numbers = end) {
    unsigned long number = strtoul(numbers, &end, 10);
    if (number == 0 || number > SB_MUTANTS) {
      fprintf(stderr, "SB_MUTANT: there is no fault %s\n", numbers);
      abort();
    }
    chosen[number] = 1;
  }
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
