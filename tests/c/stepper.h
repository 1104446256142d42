// SPDX-License-Identifier: Apache-2.0
/* Runs a child instruction by instruction, with ptrace, on x86-64 Linux.
 *
 * What: a *survey* steps a child from one place in the code to another one. It notes each system call, and each
 * instruction after which the memory of the broker differs from before. `stepper_go` brings another child that does the
 * same to the point just behind such an instruction.
 *
 * Why that is every state: a killed process leaves the shared memory, and what the kernel holds for it. An instruction
 * that stores nothing new there, and is no system call, leaves the same as the instruction before. So a kill after each
 * noted instruction covers a kill after every instruction.
 *
 * How a change is seen: the child's mappings of the broker's files are write-protected. A store faults; its page is
 * opened, and all open pages are compared after each instruction, until the page is closed for another one. Around a
 * system call all pages are open: the kernel may write, too, and each call counts in any case. New mappings of the
 * child are protected as well. The program decodes no instruction, except to recognise a system call.
 *
 * How a state is found again: by the address of the instruction, and the number of times that the child has reached it.
 * The number of the instruction would change when a clock is read twice, or a number in a path is longer. All children
 * are forks of one process, so the addresses are the same. The last step must change memory in the same place as in the
 * survey. If it does not, the child took another path; that is no result, and the caller tries again.
 *
 * Loops: an instruction is followed for its first STEPPER_VISITS changes, so the copy of a body is not followed to its
 * end. A long string instruction is followed for a while, and then executed as a whole. The survey counts what it left
 * out.
 */
#ifndef STEPPER_H
#define STEPPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define STEPPER_VISITS 16u
#define STEPPER_STATES 8192u

typedef struct {
  uint64_t instruction; /* number of instructions executed before it, in the survey */
  uintptr_t pc;         /* of the instruction */
  uint32_t visit;       /* so often it was come to */
  uint32_t steps;       /* how often it was executed in a row: string instructions repeat; 0: not yet */
  uintptr_t where;      /* address of the change, 0: a system call, or nothing */
} stepper_state;

typedef struct {
  uint64_t instructions;
  uint64_t left_out; /* changes in loops, beyond those that were followed */
  uint32_t count;
  stepper_state states[STEPPER_STATES]; /* the first: nothing was executed; the last: it is over */
} stepper_survey;

typedef enum { STEPPER_THERE, STEPPER_ELSEWHERE } stepper_result;

/* Is ptrace permitted here? Finds out by doing it. */
bool stepper_permitted(void);

/* Keeps this process, and the children that it starts from now on, on the processor that runs it. A tracer and its child
 * take turns: on one processor a turn is a switch, on two it is an interrupt of the other processor, which takes five
 * times as long. */
void stepper_stay_here(void);
/* The child: from here on it is traced, and stopped. */
void stepper_offer(void);
/* The tracer: takes up such a child, which then stands before the instruction at `start`. */
void stepper_take(pid_t pid, uintptr_t start);

/* Steps on until `end`. prefix: how the names of the broker's files begin. */
void stepper_look(pid_t pid, uintptr_t end, const char *prefix, stepper_survey *found);
/* early: to just before the instruction instead. */
stepper_result stepper_go(pid_t pid, const stepper_state *to, bool early);
/* So many instructions, without looking at anything; false: `end` comes before. */
bool stepper_count(pid_t pid, uint64_t instructions, uintptr_t end);

/* Lets it go as a stopped process: SIGSTOP, and no tracer. */
void stepper_leave_stopped(pid_t pid);

#endif
