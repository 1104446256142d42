// SPDX-License-Identifier: Apache-2.0
/* Which faults of the mutated core are in force, and which were reached.
 *
 * The build includes this before each file of the mutated core. SB_MUTANT="17 40" chooses two faults, SB_MUTANT="" none.
 * SB_MUTANT_SEEN=file names a file with one byte per fault: all processes of a run set there what they reach. */
#ifndef SB_MUTANT_H
#define SB_MUTANT_H

extern __attribute__((visibility("default"))) unsigned char *sb_mutant_chosen; // by number
extern __attribute__((visibility("default"))) unsigned char *sb_mutant_seen;

static inline __attribute__((unused)) _Bool sb_mutant(unsigned number) {
  sb_mutant_seen[number] = 1;
  return sb_mutant_chosen[number];
}

static inline __attribute__((unused)) _Bool sb_chosen(unsigned number) { return sb_mutant_chosen[number]; }

/* Reached is what gives another value. */
static inline __attribute__((unused)) void sb_differs(unsigned number, _Bool differs) {
  if (differs) sb_mutant_seen[number] = 1;
}

#endif
