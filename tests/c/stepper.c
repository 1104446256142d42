// SPDX-License-Identifier: Apache-2.0
#include "stepper.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096u
#define OPEN_PAGES 8u
#define MAPPINGS 64u
#define PLACES (1u << 16)
#define STRING_STEPS 512u /* a longer string instruction is followed so far */
#define LINE_WORDS 8u     /* in which a change must happen again */

/* ---- a stopped child ---- */

static void fail(const char *what) {
  fprintf(stderr, "stepper: %s: %s\n", what, strerror(errno));
  abort();
}

static long trace(enum __ptrace_request request, pid_t pid, uintptr_t address, uintptr_t data) {
  errno = 0;
  long result = ptrace(request, pid, (void *)address, (void *)data);
  if (result == -1 && errno != 0) fail("ptrace");
  return result;
}

/* Lets the child run, for one instruction or until something happens; the signal that stopped it. */
static int resume(enum __ptrace_request how, pid_t pid) {
  int status;
  trace(how, pid, 0, 0);
  if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) fail("the child is gone");
  return WSTOPSIG(status);
}

static uintptr_t pc_of(pid_t pid) {
  return (uintptr_t)trace(PTRACE_PEEKUSER, pid, offsetof(struct user_regs_struct, rip), 0);
}
static void set_pc(pid_t pid, uintptr_t pc) { trace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, rip), pc); }

static void step(pid_t pid) {
  if (resume(PTRACE_SINGLESTEP, pid) != SIGTRAP) fail("a signal");
}

/* Runs on until the child comes to an address: the code there is replaced by a breakpoint for as long. */
static void run_to(pid_t pid, uintptr_t pc) {
  uintptr_t code = (uintptr_t)trace(PTRACE_PEEKTEXT, pid, pc, 0);
  trace(PTRACE_POKETEXT, pid, pc, (code & ~(uintptr_t)0xff) | 0xcc);
  if (resume(PTRACE_CONT, pid) != SIGTRAP || pc_of(pid) != pc + 1) fail("a place that is not reached");
  trace(PTRACE_POKETEXT, pid, pc, code);
  set_pc(pid, pc);
}

/* The code of the child is ours, too. */
static const uint8_t *code_at(uintptr_t pc) { return (const uint8_t *)pc; }
static bool is_system_call(uintptr_t pc) { return code_at(pc)[0] == 0x0f && code_at(pc)[1] == 0x05; }

/* The length of a string instruction that repeats itself; 0: it is none. */
static uintptr_t repeated_length(uintptr_t pc) {
  const uint8_t *code = code_at(pc);
  uintptr_t prefix = code[1] == 0x48 ? 2 : 1;
  uint8_t operation = code[prefix];
  bool string = operation == 0xa4 || operation == 0xa5 || operation == 0xaa || operation == 0xab;
  return code[0] == 0xf3 && string ? prefix + 1 : 0;
}

/* ---- system calls in the child's name ---- */

__asm__(".pushsection .text\n.globl stepper_gate\nstepper_gate: syscall\nint3\n.popsection");
extern const char stepper_gate[];

static void protect(pid_t pid, uintptr_t address, size_t bytes, int protection) {
  struct user_regs_struct before, call;
  trace(PTRACE_GETREGS, pid, 0, (uintptr_t)&before);
  call = before;
  call.rip = (uintptr_t)stepper_gate;
  call.rax = SYS_mprotect;
  call.orig_rax = UINT64_MAX; /* no call of its own is to be restarted */
  call.rdi = address;
  call.rsi = bytes;
  call.rdx = (uint64_t)protection;
  trace(PTRACE_SETREGS, pid, 0, (uintptr_t)&call);
  step(pid);
  trace(PTRACE_GETREGS, pid, 0, (uintptr_t)&call);
  if (call.rax != 0) fail("mprotect in the child");
  trace(PTRACE_SETREGS, pid, 0, (uintptr_t)&before);
}

/* ---- the memory of the broker ---- */

typedef struct {
  uintptr_t start, end;
  const uint8_t *ours; /* the same memory, mapped here */
} mapping;

static struct {
  pid_t pid;
  const char *prefix;
  mapping mappings[MAPPINGS];
  uint32_t count;
  struct {
    uintptr_t page; /* 0: none */
    const uint8_t *ours;
    uint8_t before[PAGE];
  } open[OPEN_PAGES];
  uint32_t next; /* to be closed for another one */
} memory;

static const mapping *mapping_of(uintptr_t address) {
  for (uint32_t i = 0; i < memory.count; i++) {
    if (memory.mappings[i].start <= address && address < memory.mappings[i].end) return &memory.mappings[i];
  }
  return NULL;
}

/* Finds what the child has mapped. */
static void find_mappings(void) {
  char path[64], line[512], name[256], access[8];
  unsigned long start, end, offset;
  snprintf(path, sizeof path, "/proc/%d/maps", (int)memory.pid);
  FILE *maps = fopen(path, "re");
  if (maps == NULL) fail("maps");
  while (memory.count > 0) {
    const mapping *gone = &memory.mappings[--memory.count];
    munmap((void *)(uintptr_t)gone->ours, gone->end - gone->start);
  }
  while (fgets(line, sizeof line, maps) != NULL) {
    if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %255s", &start, &end, access, &offset, name) != 5 ||
        strncmp(name, memory.prefix, strlen(memory.prefix)) != 0 || strncmp(access, "rw", 2) != 0) {
      continue;
    }
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    const uint8_t *ours = mmap(NULL, end - start, PROT_READ, MAP_SHARED, fd, (off_t)offset);
    if (ours == MAP_FAILED || memory.count == MAPPINGS) fail("a mapping of the broker");
    close(fd);
    memory.mappings[memory.count++] = (mapping){start, end, ours};
  }
  fclose(maps);
}

static void open_all(void) {
  for (uint32_t i = 0; i < memory.count; i++)
    protect(memory.pid, memory.mappings[i].start, memory.mappings[i].end - memory.mappings[i].start,
            PROT_READ | PROT_WRITE);
  for (uint32_t i = 0; i < OPEN_PAGES; i++) memory.open[i].page = 0;
}
static void close_all(void) {
  for (uint32_t i = 0; i < memory.count; i++)
    protect(memory.pid, memory.mappings[i].start, memory.mappings[i].end - memory.mappings[i].start, PROT_READ);
}

/* The instruction that the child stands before wants to write there. */
static void open_page(uintptr_t address) {
  const mapping *in = mapping_of(address);
  uint32_t i = memory.next++ % OPEN_PAGES;
  uintptr_t page = address & ~(uintptr_t)(PAGE - 1);
  if (in == NULL) fail("the child crashed");
  if (memory.open[i].page != 0) protect(memory.pid, memory.open[i].page, PAGE, PROT_READ);
  memory.open[i].page = page;
  memory.open[i].ours = in->ours + (page - in->start);
  memcpy(memory.open[i].before, memory.open[i].ours, PAGE);
  protect(memory.pid, page, PAGE, PROT_READ | PROT_WRITE);
}

/* Where memory is another one than at the last look, 0: nowhere. */
static uintptr_t changed(void) {
  uintptr_t where = 0;
  for (uint32_t i = 0; i < OPEN_PAGES; i++) {
    if (memory.open[i].page == 0 || memcmp(memory.open[i].before, memory.open[i].ours, PAGE) == 0) continue;
    uintptr_t at = 0;
    while (memory.open[i].before[at] == memory.open[i].ours[at]) at++;
    memcpy(memory.open[i].before, memory.open[i].ours, PAGE);
    where = memory.open[i].page + at;
  }
  return where;
}

/* One instruction, system calls included; where it changed memory. */
static uintptr_t watched_step(uintptr_t pc) {
  if (is_system_call(pc)) {
    long number = trace(PTRACE_PEEKUSER, memory.pid, offsetof(struct user_regs_struct, rax), 0);
    open_all();
    step(memory.pid);
    if (number == SYS_mmap || number == SYS_munmap || number == SYS_mremap) find_mappings();
    close_all();
    return 0;
  }
  int signal;
  while ((signal = resume(PTRACE_SINGLESTEP, memory.pid)) == SIGSEGV) {
    siginfo_t about;
    trace(PTRACE_GETSIGINFO, memory.pid, 0, (uintptr_t)&about);
    open_page((uintptr_t)about.si_addr);
  }
  if (signal != SIGTRAP) fail("a signal");
  return changed();
}

/* ---- the survey ---- */

typedef struct {
  uintptr_t pc;
  uint32_t visits, changes;
} place;

static place *place_of(place *places, uintptr_t pc) {
  size_t at = (pc * UINT64_C(0x9e3779b97f4a7c15)) >> 48;
  for (size_t tries = 0; places[at].pc != 0 && places[at].pc != pc; tries++) {
    if (tries == PLACES) fail("too much code");
    at = (at + 1) % PLACES;
  }
  places[at].pc = pc;
  return &places[at];
}

static void note(stepper_survey *found, stepper_state state) {
  if (found->count == STEPPER_STATES) fail("too many states");
  found->states[found->count++] = state;
}

/* The rest of a repeated string instruction in one go, when enough of it has been seen. It may have changed memory. */
static void finish_string(uintptr_t pc, place *next, stepper_survey *found) {
  uint64_t left = (uint64_t)trace(PTRACE_PEEKUSER, memory.pid, offsetof(struct user_regs_struct, rcx), 0);
  open_all();
  run_to(memory.pid, pc + repeated_length(pc));
  close_all();
  found->instructions += left;
  found->left_out += left;
  note(found, (stepper_state){found->instructions, next->pc, next->visits + 1, 0, 0});
}

void stepper_look(pid_t pid, uintptr_t end, const char *prefix, stepper_survey *found) {
  place *places = calloc(PLACES, sizeof *places);
  uintptr_t pc = pc_of(pid), before = 0;
  uint32_t steps = 0;
  memset(&memory, 0, sizeof memory);
  memory.pid = pid;
  memory.prefix = prefix;
  find_mappings();
  close_all();
  found->instructions = found->left_out = found->count = 0;
  note(found, (stepper_state){.pc = pc, .visit = 1});
  while (pc != end) {
    place *here = place_of(places, pc);
    if (pc != before) here->visits++;
    steps = pc != before ? 1 : steps + 1;
    bool call = is_system_call(pc);
    uintptr_t where = watched_step(pc);
    if ((where != 0 || call) && ++here->changes > STEPPER_VISITS) {
      found->left_out++;
    } else if (where != 0 || call) {
      note(found, (stepper_state){found->instructions, pc, here->visits, steps, where});
    }
    found->instructions++;
    before = pc;
    pc = pc_of(pid);
    bool enough = here->changes > STEPPER_VISITS || steps > STRING_STEPS;
    if (pc == before && enough && repeated_length(pc) != 0) {
      finish_string(pc, place_of(places, pc + repeated_length(pc)), found);
      pc = pc_of(pid);
    }
  }
  note(found, (stepper_state){.instruction = found->instructions, .pc = end, .visit = 1});
  free(places);
}

/* ---- going there ---- */

typedef struct {
  long words[LINE_WORDS];
} line;

static line line_at(pid_t pid, uintptr_t address) {
  line found = {{0}}; /* not mapped yet: as empty memory */
  for (uintptr_t i = 0; i < LINE_WORDS; i++) {
    errno = 0;
    long word = ptrace(PTRACE_PEEKDATA, pid, (void *)(address / sizeof found * sizeof found + i * sizeof word), NULL);
    if (errno == 0) found.words[i] = word;
  }
  return found;
}

static bool step_at(pid_t pid, uintptr_t pc) {
  bool there = pc_of(pid) == pc;
  if (there) step(pid);
  return there;
}

stepper_result stepper_go(pid_t pid, const stepper_state *to, bool early) {
  for (uint32_t visit = pc_of(pid) == to->pc; visit < to->visit; visit++) {
    while (visit > 0 && step_at(pid, to->pc)) {
    }
    run_to(pid, to->pc);
  }
  for (uint32_t i = 1; i < to->steps; i++) {
    if (!step_at(pid, to->pc)) return STEPPER_ELSEWHERE;
  }
  if (early || to->steps == 0) {
    return STEPPER_THERE;
  }
  line before = line_at(pid, to->where), after;
  if (!step_at(pid, to->pc)) return STEPPER_ELSEWHERE;
  after = line_at(pid, to->where);
  return to->where == 0 || memcmp(&before, &after, sizeof before) != 0 ? STEPPER_THERE : STEPPER_ELSEWHERE;
}

bool stepper_count(pid_t pid, uint64_t instructions, uintptr_t end) {
  for (uint64_t i = 0; i < instructions; i++) {
    if (pc_of(pid) == end) return false;
    step(pid);
  }
  return true;
}

/* ---- beginning and end ---- */

void stepper_stay_here(void) {
  cpu_set_t here;
  int processor = sched_getcpu();
  if (processor < 0) return;
  CPU_ZERO(&here);
  CPU_SET(processor, &here);
  (void)sched_setaffinity(0, sizeof here, &here); /* where that is not permitted, it only takes longer */
}

void stepper_offer(void) {
  if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) fail("PTRACE_TRACEME");
  raise(SIGSTOP);
}

bool stepper_permitted(void) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0) raise(SIGSTOP);
    _exit(0);
  }
  bool stopped = pid > 0 && waitpid(pid, &status, 0) == pid && WIFSTOPPED(status);
  bool permitted = stopped && ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0;
  if (stopped) {
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
    }
  }
  return permitted;
}

void stepper_take(pid_t pid, uintptr_t start) {
  int status;
  if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP) fail("no child");
  trace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_EXITKILL);
  run_to(pid, start);
}

void stepper_leave_stopped(pid_t pid) {
  int status;
  trace(PTRACE_DETACH, pid, 0, SIGSTOP);
  if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) fail("the child does not stop");
}
