// SPDX-License-Identifier: Apache-2.0
#include "sb_liveness.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sb_wait.h"

/* The brokers that are attached in this process, linked through `next_attached`. A forked child closes their
 * descriptors. The forking thread holds the mutex during the fork, so no other thread has opened a descriptor that the
 * list does not name yet. */
static pthread_mutex_t attached_mutex = PTHREAD_MUTEX_INITIALIZER;
static sb_broker *attached;
pthread_mutex_t sb_topology_mutex = PTHREAD_MUTEX_INITIALIZER, sb_connect_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void close_locks(sb_broker *b) {
  if (b->lock_fd >= 0) close(b->lock_fd);
  if (b->topology_fd >= 0) close(b->topology_fd);
  b->lock_fd = b->topology_fd = -1;
}

static void before_fork(void) { pthread_mutex_lock(&attached_mutex); }
static void after_fork_in_parent(void) { pthread_mutex_unlock(&attached_mutex); }
static void after_fork_in_child(void) {
  pthread_mutex_init(&attached_mutex, NULL);
  pthread_mutex_init(&sb_topology_mutex, NULL); /* at the fork, a thread of the parent may have held the mutexes */
  pthread_mutex_init(&sb_connect_mutex, NULL);
  for (sb_broker *b = attached; b != NULL; b = b->next_attached) {
    close_locks(b);
    pthread_mutex_init(&b->map_lock, NULL);
    pthread_mutex_init(&b->reap_lock, NULL);
  }
}
static void install_fork_handler(void) { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

static struct flock byte_range(short type, long byte) {
  struct flock range;
  memset(&range, 0, sizeof range);
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = byte;
  range.l_len = 1;
  return range;
}
bool sb_lock_byte(int fd, long byte) {
  struct flock range = byte_range(F_WRLCK, byte);
  return fcntl(fd, F_OFD_SETLK, &range) == 0;
}
void sb_unlock_byte(int fd, long byte) {
  struct flock range = byte_range(F_UNLCK, byte);
  (void)fcntl(fd, F_OFD_SETLK, &range);
}
int32_t sb_byte_holder(int fd, long byte) {
  struct flock range = byte_range(F_WRLCK, byte);
  if (fcntl(fd, F_OFD_GETLK, &range) != 0) {
    return 1; /* unknown: never a reason to count a process as dead */
  }
  return range.l_type == F_UNLCK ? 0 : 1;
}

bool sb_liveness_has_housekeeper(sb_broker *b) {
  return SB_LOAD(&b->keeps_house, SB_RELAXED) != 0 || sb_byte_holder(b->lock_fd, SB_LOCK_HOUSEKEEPER) != 0;
}

#define PATH_BYTES 48u

/* Writes "/proc/", the pid, and `what`. */
static void path_of(int32_t pid, const char *what, char path[PATH_BYTES]) {
  char digits[12];
  size_t n = sizeof "/proc/" - 1;
  int k = 0;
  memcpy(path, "/proc/", n);
  for (int32_t rest = pid; rest > 0; rest /= 10) digits[k++] = (char)('0' + rest % 10);
  while (k > 0) path[n++] = digits[--k];
  memcpy(path + n, what, strlen(what) + 1);
}

/* Reads a `stat` file. Returns its fields from the state on, or NULL. */
static const char *read_stat(int folder, const char *path, char *text, size_t room) {
  int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return NULL;
  }
  ssize_t got = read(fd, text, room - 1);
  close(fd);
  if (got <= 0) {
    return NULL;
  }
  text[got] = 0;
  const char *at = strrchr(text, ')'); /* the command may contain anything, parentheses too */
  return at == NULL || at[1] != ' ' ? NULL : at + 2;
}

sb_process_facts sb_process_look(int32_t pid) {
  sb_process_facts facts = {0, 0, 0};
  char path[PATH_BYTES], text[1024];
  path_of(pid, "/stat", path);
  const char *at = read_stat(AT_FDCWD, path, text, sizeof text);
  if (at == NULL) {
    return facts;
  }
  facts.state = *at;
  for (int field = 3; field <= 28 && at != NULL; field++) {
    if (field == 22) facts.start_ticks = strtoull(at, NULL, 10);
    if (field == 28) facts.stack = strtoull(at, NULL, 10);
    at = strchr(at + 1, ' ');
  }
  return facts;
}

/* A directory entry as the kernel returns it. */
typedef struct {
  uint64_t inode;
  int64_t next;
  uint16_t bytes;
  uint8_t type;
  char name[];
} entry;

/* True if a thread of process `pid`, other than the calling thread, runs, or waits for a processor or a disk. */
static bool is_awake(int32_t pid) {
  char path[PATH_BYTES], text[1024];
  _Alignas(8) char entries[2048];
  bool awake = false, ours = pid == getpid();
  long got = 0, us = syscall(SYS_gettid);
  path_of(pid, "/task", path);
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (folder >= 0 && !awake && (got = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
    for (long at = 0; at < got && !awake; at += ((const entry *)(entries + at))->bytes) {
      const char *name = ((const entry *)(entries + at))->name;
      size_t length = strlen(name);
      if (name[0] == '.' || length + sizeof "/stat" > sizeof path) {
        continue;
      }
      if (ours && strtol(name, NULL, 10) == us) {
        continue;
      }
      memcpy(path, name, length);
      memcpy(path + length, "/stat", sizeof "/stat");
      const char *state = read_stat(folder, path, text, sizeof text);
      awake = state != NULL && (*state == 'R' || *state == 'D');
    }
  }
  if (folder >= 0) close(folder);
  return awake;
}

static uint64_t own_pid_namespace(void) {
  struct stat st;
  return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* Opens the lock file, and takes a FREE process slot for this process. The caller holds attached_mutex. */
static sb_status attach(sb_broker *b) {
  sb_status opened = sb_segment_open(b->path, ".lock", 0, &b->lock_fd);
  if (opened == SB_OK) opened = sb_segment_open(b->path, ".lock", 0, &b->topology_fd);
  if (opened != SB_OK) {
    return opened;
  }
  void *guard = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (guard == MAP_FAILED) {
    return SB_SYSTEM;
  }
  b->guard = guard;
  if (madvise(b->guard, 4096, MADV_WIPEONFORK) != 0) {
    return SB_SYSTEM;
  }
  SB_STORE(b->guard, 1u, SB_RELAXED);
  b->pid_namespace = own_pid_namespace(); /* a process never changes its namespace */
  uint32_t start = SB_LOAD(&b->header->next_process, SB_RELAXED);
  for (uint32_t k = 0; k < SB_MAX_PROCESSES; k++) {
    uint32_t i = (start + k) % SB_MAX_PROCESSES;
    sb_process_shm *p = &b->processes[i];
    uint64_t word = SB_LOAD(&p->word, SB_ACQUIRE);
    if (sb_proc_state(word) != SB_PROC_FREE || !sb_lock_byte(b->lock_fd, SB_LOCK_PROCESS + (long)i)) {
      continue;
    }
    word = SB_LOAD(&p->word, SB_ACQUIRE);
    /* between the two loads another process took the slot, and died: leave the slot to its reaper */
    if (sb_proc_state(word) != SB_PROC_FREE) {
      sb_unlock_byte(b->lock_fd, SB_LOCK_PROCESS + (long)i);
      continue;
    }
    SB_STORE(&p->pid, (int32_t)getpid(), SB_RELAXED);
    sb_process_facts us = sb_process_look((int32_t)getpid());
    SB_STORE(&p->start_ticks, us.start_ticks, SB_RELAXED);
    SB_STORE(&p->stack, us.stack, SB_RELAXED);
    SB_STORE(&p->pid_namespace, b->pid_namespace, SB_RELAXED);
    SB_STORE(&p->attached_ns, sb_wall_ns(), SB_RELAXED);
    SB_STORE(&p->flags, 0u, SB_RELAXED);
    SB_STORE(&p->word, sb_proc_word(SB_PROC_LIVE, sb_proc_epoch(word) + 1), SB_RELEASE);
    /* The housekeeper looks for new processes when next_process changes, so the slot becomes LIVE before the change. */
    (void)SB_ADD(&b->header->next_process, 1u, SB_RELEASE);
    b->process = i;
    b->next_attached = attached;
    attached = b;
    return SB_OK;
  }
  return SB_LIMIT;
}

sb_status sb_liveness_attach(sb_broker *b) {
  pthread_once(&fork_once, install_fork_handler);
  pthread_mutex_lock(&attached_mutex);
  sb_status status = attach(b);
  pthread_mutex_unlock(&attached_mutex);
  return status;
}

void sb_liveness_detach(sb_broker *b) {
  pthread_mutex_lock(&attached_mutex);
  sb_broker **link = &attached;
  while (*link != NULL && *link != b) link = &(*link)->next_attached;
  if (*link == b) *link = b->next_attached;
  if (b->lock_fd >= 0 && b->guard != NULL && !sb_forked(b) && b->process < SB_MAX_PROCESSES) {
    sb_process_shm *p = &b->processes[b->process];
    uint64_t word = SB_LOAD(&p->word, SB_RELAXED);
    SB_STORE(&p->word, sb_proc_word(SB_PROC_FREE, sb_proc_epoch(word)), SB_RELEASE);
  }
  close_locks(b);
  pthread_mutex_unlock(&attached_mutex);
  if (b->guard != NULL) munmap(b->guard, 4096);
  b->guard = NULL;
}

static bool proc_shows(const sb_broker *b, const sb_process_shm *p) {
  if (SB_LOAD(&p->pid_namespace, SB_RELAXED) != b->pid_namespace) {
    return false; /* our /proc does not show a process of another namespace: only its lock decides */
  }
  sb_process_facts now = sb_process_look(SB_LOAD(&p->pid, SB_RELAXED));
  uint64_t stack = SB_LOAD(&p->stack, SB_RELAXED);
  bool another_program =
      stack != 0 && now.stack != 0 && stack != now.stack; /* an exec keeps the pid, and ends the attached program */
  return now.start_ticks != 0 && now.start_ticks == SB_LOAD(&p->start_ticks, SB_RELAXED) && now.state != 'Z' &&
         now.state != 'X' && !another_program;
}

static bool is_another(const sb_broker *b, uint32_t process) {
  return process != b->process && sb_proc_state(SB_LOAD(&b->processes[process].word, SB_ACQUIRE)) == SB_PROC_LIVE;
}

static bool is_unlocked(const sb_broker *b, uint32_t process) {
  return sb_byte_holder(b->lock_fd, SB_LOCK_PROCESS + (long)process) == 0;
}

bool sb_liveness_is_dead(sb_broker *b, uint32_t process) {
  return is_another(b, process) && is_unlocked(b, process) && !proc_shows(b, &b->processes[process]);
}

bool sb_liveness_is_gone(sb_broker *b, uint32_t process) {
  const sb_process_shm *p = &b->processes[process];
  bool ours = SB_LOAD(&p->pid_namespace, SB_RELAXED) == b->pid_namespace; /* else only the lock decides */
  return is_another(b, process) && (ours || is_unlocked(b, process)) && !proc_shows(b, p);
}

/* The state of another process (R, S, T ...) by /proc. 0: unknown, since the process is the caller's, is not attached,
 * or is not shown by /proc. */
static char state_of_other(sb_broker *b, uint32_t process) {
  if (process >= SB_MAX_PROCESSES || process == b->process) {
    return 0;
  }
  const sb_process_shm *p = &b->processes[process];
  if (sb_proc_state(SB_LOAD(&p->word, SB_ACQUIRE)) != SB_PROC_LIVE ||
      SB_LOAD(&p->pid_namespace, SB_RELAXED) != b->pid_namespace) {
    return 0;
  }
  sb_process_facts now = sb_process_look(SB_LOAD(&p->pid, SB_RELAXED));
  return now.start_ticks == SB_LOAD(&p->start_ticks, SB_RELAXED) ? now.state : 0;
}

bool sb_liveness_is_stopped(sb_broker *b, uint32_t process) {
  char state = state_of_other(b, process);
  return state == 'T' || state == 't';
}

bool sb_liveness_is_awake(sb_broker *b, uint32_t process) {
  return process < SB_MAX_PROCESSES && ((process != b->process && state_of_other(b, process) == 0) ||
                                        is_awake(SB_LOAD(&b->processes[process].pid, SB_RELAXED)));
}

bool sb_liveness_housekeeper_stopped(sb_broker *b) {
  uint32_t process = SB_LOAD(&b->header->housekeeper_process, SB_RELAXED);
  return process != 0 && sb_liveness_is_stopped(b, process - 1) && sb_byte_holder(b->lock_fd, SB_LOCK_HOUSEKEEPER) != 0;
}

bool sb_liveness_begin_reaping(sb_broker *b, uint32_t process) {
  if (pthread_mutex_trylock(&b->reap_lock) != 0) {
    return false; /* another thread of this process is reaping */
  }
  if (process != b->process && sb_lock_byte(b->lock_fd, SB_LOCK_PROCESS + (long)process)) {
    sb_process_shm *p = &b->processes[process];
    if (sb_proc_state(SB_LOAD(&p->word, SB_ACQUIRE)) == SB_PROC_LIVE && !proc_shows(b, p)) {
      return true;
    }
    sb_unlock_byte(b->lock_fd, SB_LOCK_PROCESS + (long)process);
  }
  pthread_mutex_unlock(&b->reap_lock);
  return false;
}

void sb_liveness_end_reaping(sb_broker *b, uint32_t process, bool reaped) {
  sb_process_shm *p = &b->processes[process];
  if (reaped) {
    uint64_t word = SB_LOAD(&p->word, SB_RELAXED);
    SB_STORE(&p->word, sb_proc_word(SB_PROC_FREE, sb_proc_epoch(word)), SB_RELEASE);
  }
  sb_unlock_byte(b->lock_fd, SB_LOCK_PROCESS + (long)process);
  pthread_mutex_unlock(&b->reap_lock);
}
