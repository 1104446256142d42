// SPDX-License-Identifier: Apache-2.0
// A library for LD_PRELOAD: notes each change that a process makes to the files of one folder, and each sync of them.
//
// WRITE_RECORDER_FOLDER is the absolute path of the folder, WRITE_RECORDER_JOURNAL that of the journal, which exists. A
// record is appended in one write after the change was made. So the order of the journal is the order of the changes, and
// a sync is noted only when it has ended. Clients append marks (tests/power_loss/journal.py has the format).
//
// WRITE_RECORDER_KILL_AFTER is a number of records. A storekeeper ends with SIGKILL after that many, and up to as many
// more, depending on its pid. A kill from outside could fall between a change and its record.
//
// A writable shared mapping of a file is noted as well: what is written through it is not seen.

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN = 1, WRITE, TRUNCATE, ALLOCATE, SYNC, RENAME, UNLINK, MAP, KILLED, UNKNOWN };
enum { CREATED = 1, EMPTIED = 2, SYNCED = 4, A_FOLDER = 8 }; // of an OPEN; SYNCED also of a WRITE
enum { MOST_FILES = 65536, MAGIC = 0x4a505753 };

struct record {
  uint32_t magic, kind;
  uint64_t file; // the opening: a file that is opened twice has two numbers
  uint64_t offset, value;
  uint64_t length; // of what follows
};

static char folder[PATH_MAX];
static size_t folder_length;
static int journal = -1;
static pid_t self;
static _Atomic uint64_t openings, records_left = UINT64_MAX;
static _Atomic uint64_t files[MOST_FILES]; // by descriptor: the opening; 0: not of the folder
static _Atomic bool synced_writes[MOST_FILES];

static bool is_storekeeper(void) {
  char line[4096];
  int found = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);
  long length = syscall(SYS_read, found, line, sizeof line);
  syscall(SYS_close, found);
  static const char PROGRAM[] = "shmbroker._storekeeper";
  return length > 0 && memmem(line, (size_t)length, PROGRAM, sizeof PROGRAM - 1);
}

__attribute__((constructor)) static void begin(void) {
  const char *where = getenv("WRITE_RECORDER_FOLDER"), *to = getenv("WRITE_RECORDER_JOURNAL"),
             *most = getenv("WRITE_RECORDER_KILL_AFTER");
  if (!where || !to || strlen(where) >= sizeof folder) return;
  strcpy(folder, where);
  folder_length = strlen(folder);
  self = getpid();
  journal = (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
  if (journal < 0) abort();
  if (most && is_storekeeper()) {
    uint64_t least = strtoull(most, NULL, 10);
    records_left = least + (uint64_t)getpid() * 7919 % (least + 1);
  }
}

static void append(struct record record, const struct iovec *parts, int count) {
  struct iovec all[IOV_MAX + 1];
  if (count > IOV_MAX) abort();
  record.magic = MAGIC;
  all[0] = (struct iovec){&record, sizeof record};
  record.length = 0;
  for (int at = 0; at < count; at++) {
    all[at + 1] = parts[at];
    record.length += parts[at].iov_len;
  }
  // IOV_MAX parts and a head are one more than the kernel takes: the head and the first part become one.
  char joined[sizeof record + 4096];
  struct iovec *from = all;
  int used = count + 1;
  if (used > IOV_MAX) {
    if (all[1].iov_len > 4096) abort();
    memcpy(joined, &record, sizeof record);
    memcpy(joined + sizeof record, all[1].iov_base, all[1].iov_len);
    all[1] = (struct iovec){joined, sizeof record + all[1].iov_len};
    from++;
    used--;
  }
  int kept = errno;
  if (syscall(SYS_writev, journal, from, used) != (long)(sizeof record + record.length)) abort();
  errno = kept;
}

static void note(struct record record, const struct iovec *parts, int count) {
  append(record, parts, count);
  if (atomic_fetch_sub_explicit(&records_left, 1, memory_order_relaxed) == 1) {
    append((struct record){.kind = KILLED, .value = (uint64_t)getpid()}, NULL, 0);
    kill(getpid(), SIGKILL);
  }
}

static void note_text(struct record record, const char *text, size_t length) {
  struct iovec part = {(void *)text, length};
  note(record, &part, 1);
}

// The path below the folder, "." for the folder itself; NULL: it is elsewhere.
static const char *below(const char *path) {
  if (journal < 0 || !path || strncmp(path, folder, folder_length) != 0) return NULL;
  if (path[folder_length] == '\0' || strcmp(path + folder_length, "/") == 0) return ".";
  return path[folder_length] == '/' ? path + folder_length + 1 : NULL;
}

static uint64_t file_of(int descriptor) {
  if (descriptor < 0 || descriptor >= MOST_FILES) return 0;
  return atomic_load_explicit(&files[descriptor], memory_order_relaxed);
}

// ---- opening and closing ----

static int note_opened(const char *path, int flags, bool was_there, int descriptor) {
  const char *name = below(path);
  if (descriptor < 0 || descriptor >= MOST_FILES) return descriptor;
  if (!name || (flags & O_PATH)) {
    atomic_store_explicit(&files[descriptor], 0, memory_order_relaxed);
    return descriptor;
  }
  struct stat found;
  if (fstat(descriptor, &found) != 0) abort();
  uint64_t value = (was_there ? 0 : CREATED) | (flags & O_TRUNC ? EMPTIED : 0) | (flags & O_DSYNC ? SYNCED : 0) |
                   (S_ISDIR(found.st_mode) ? A_FOLDER : 0);
  uint64_t file = (uint64_t)getpid() << 32 | (atomic_fetch_add_explicit(&openings, 1, memory_order_relaxed) + 1);
  atomic_store_explicit(&synced_writes[descriptor], (flags & O_DSYNC) != 0, memory_order_relaxed);
  atomic_store_explicit(&files[descriptor], file, memory_order_relaxed);
  note_text((struct record){.kind = OPEN, .file = file, .value = value}, name, strlen(name));
  return descriptor;
}

static int opened(int at, const char *path, int flags, mode_t mode) {
  bool was_there = below(path) && access(path, F_OK) == 0;
  return note_opened(path, flags, was_there, (int)syscall(SYS_openat, at, path, flags, mode));
}

static mode_t mode_in(int flags, va_list given) { return flags & (O_CREAT | __O_TMPFILE) ? va_arg(given, mode_t) : 0; }

int open(const char *path, int flags, ...) {
  va_list given;
  va_start(given, flags);
  mode_t mode = mode_in(flags, given);
  va_end(given);
  return opened(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  va_list given;
  va_start(given, flags);
  mode_t mode = mode_in(flags, given);
  va_end(given);
  return opened(AT_FDCWD, path, flags, mode);
}

int openat(int at, const char *path, int flags, ...) {
  va_list given;
  va_start(given, flags);
  mode_t mode = mode_in(flags, given);
  va_end(given);
  return opened(at, path, flags, mode);
}

int openat64(int at, const char *path, int flags, ...) {
  va_list given;
  va_start(given, flags);
  mode_t mode = mode_in(flags, given);
  va_end(given);
  return opened(at, path, flags, mode);
}

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);

int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }

int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }

int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

int creat64(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode); }

int close(int descriptor) {
  // A child of vfork has the memory of its parent, whose descriptors stay open.
  if (file_of(descriptor) && getpid() == self) atomic_store_explicit(&files[descriptor], 0, memory_order_relaxed);
  return (int)syscall(SYS_close, descriptor);
}

// ---- changes of a file ----

static ssize_t note_written(int descriptor, off_t offset, const struct iovec *parts, int count, ssize_t done) {
  uint64_t file = file_of(descriptor);
  if (!file || done <= 0) return done;
  struct iovec written[IOV_MAX];
  size_t left = (size_t)done;
  int used = 0;
  for (; left > 0 && used < count && used < IOV_MAX; used++) {
    written[used] = parts[used];
    if (written[used].iov_len > left) written[used].iov_len = left;
    left -= written[used].iov_len;
  }
  if (left > 0) abort();
  uint64_t synced = atomic_load_explicit(&synced_writes[descriptor], memory_order_relaxed) ? SYNCED : 0;
  note((struct record){.kind = WRITE, .file = file, .offset = (uint64_t)offset, .value = synced}, written, used);
  return done;
}

// Where a write without an offset goes.
static off_t place_of(int descriptor) {
  struct stat found;
  if (!file_of(descriptor)) return 0;
  if (fcntl(descriptor, F_GETFL) & O_APPEND) return fstat(descriptor, &found) == 0 ? found.st_size : 0;
  return lseek(descriptor, 0, SEEK_CUR);
}

ssize_t write(int descriptor, const void *bytes, size_t length) {
  off_t offset = place_of(descriptor);
  struct iovec part = {(void *)bytes, length};
  return note_written(descriptor, offset, &part, 1, syscall(SYS_write, descriptor, bytes, length));
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
  off_t offset = place_of(descriptor);
  return note_written(descriptor, offset, parts, count, syscall(SYS_writev, descriptor, parts, count));
}

ssize_t pwrite(int descriptor, const void *bytes, size_t length, off_t offset) {
  struct iovec part = {(void *)bytes, length};
  return note_written(descriptor, offset, &part, 1, syscall(SYS_pwrite64, descriptor, bytes, length, offset));
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t length, off64_t offset) {
  struct iovec part = {(void *)bytes, length};
  return note_written(descriptor, offset, &part, 1, syscall(SYS_pwrite64, descriptor, bytes, length, offset));
}

ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t offset) {
  return note_written(descriptor, offset, parts, count, syscall(SYS_pwritev, descriptor, parts, count, offset, 0));
}

ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t offset) {
  return note_written(descriptor, offset, parts, count, syscall(SYS_pwritev, descriptor, parts, count, offset, 0));
}

static int note_if_done(int status, int descriptor, enum kind kind, uint64_t offset, uint64_t value) {
  uint64_t file = file_of(descriptor);
  if (file && status == 0) note((struct record){.kind = kind, .file = file, .offset = offset, .value = value}, NULL, 0);
  return status;
}

int ftruncate(int descriptor, off_t length) {
  return note_if_done((int)syscall(SYS_ftruncate, descriptor, length), descriptor, TRUNCATE, (uint64_t)length, 0);
}

int ftruncate64(int descriptor, off64_t length) {
  return note_if_done((int)syscall(SYS_ftruncate, descriptor, length), descriptor, TRUNCATE, (uint64_t)length, 0);
}

int fallocate(int descriptor, int mode, off_t offset, off_t length) {
  int status = (int)syscall(SYS_fallocate, descriptor, mode, offset, length);
  return note_if_done(status, descriptor, mode ? UNKNOWN : ALLOCATE, (uint64_t)offset, (uint64_t)length);
}

int posix_fallocate(int descriptor, off_t offset, off_t length) {
  int status = syscall(SYS_fallocate, descriptor, 0, offset, length) == 0 ? 0 : errno;
  return note_if_done(status, descriptor, ALLOCATE, (uint64_t)offset, (uint64_t)length);
}

int posix_fallocate64(int descriptor, off64_t offset, off64_t length) {
  int status = syscall(SYS_fallocate, descriptor, 0, offset, length) == 0 ? 0 : errno;
  return note_if_done(status, descriptor, ALLOCATE, (uint64_t)offset, (uint64_t)length);
}

static void *note_mapped(void *mapped, int protection, int flags, int descriptor) {
  bool writes = (protection & PROT_WRITE) && (flags & MAP_SHARED) && !(flags & MAP_ANONYMOUS);
  if (mapped != MAP_FAILED && writes) note_if_done(0, descriptor, MAP, 0, 0);
  return mapped;
}

void *mmap(void *at, size_t length, int protection, int flags, int descriptor, off_t offset) {
  void *mapped = (void *)syscall(SYS_mmap, at, length, protection, flags, descriptor, offset);
  return note_mapped(mapped, protection, flags, descriptor);
}

void *mmap64(void *at, size_t length, int protection, int flags, int descriptor, off64_t offset) {
  return mmap(at, length, protection, flags, descriptor, offset);
}

// ---- syncs ----

int fsync(int descriptor) { return note_if_done((int)syscall(SYS_fsync, descriptor), descriptor, SYNC, 0, 0); }

int fdatasync(int descriptor) { return note_if_done((int)syscall(SYS_fdatasync, descriptor), descriptor, SYNC, 0, 0); }

// ---- changes of the folder ----

static int unlinked(int at, const char *path, int flags) {
  int status = (int)syscall(SYS_unlinkat, at, path, flags);
  const char *name = below(path);
  if (status == 0 && name) note_text((struct record){.kind = UNLINK}, name, strlen(name));
  return status;
}

int unlink(const char *path) { return unlinked(AT_FDCWD, path, 0); }

int unlinkat(int at, const char *path, int flags) { return unlinked(at, path, flags); }

int remove(const char *path) {
  int status = unlinked(AT_FDCWD, path, 0);
  return status != 0 && errno == EISDIR ? (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR) : status;
}

static int renamed(int from_folder, const char *old, int to_folder, const char *now) {
  int status = (int)syscall(SYS_renameat2, from_folder, old, to_folder, now, 0);
  const char *from = below(old), *to = below(now);
  if (status != 0 || (!from && !to)) return status;
  if (!from || !to) {
    note((struct record){.kind = UNKNOWN}, NULL, 0);
    return status;
  }
  struct iovec parts[] = {{(void *)from, strlen(from) + 1}, {(void *)to, strlen(to)}};
  note((struct record){.kind = RENAME}, parts, 2);
  return status;
}

int rename(const char *old, const char *now) { return renamed(AT_FDCWD, old, AT_FDCWD, now); }

int renameat(int from_folder, const char *old, int to_folder, const char *now) {
  return renamed(from_folder, old, to_folder, now);
}

int link(const char *old, const char *now) {
  int status = (int)syscall(SYS_linkat, AT_FDCWD, old, AT_FDCWD, now, 0);
  if (status == 0 && below(now)) note((struct record){.kind = UNKNOWN}, NULL, 0);
  return status;
}

int truncate(const char *path, off_t length) {
  int status = (int)syscall(SYS_truncate, path, length);
  if (status == 0 && below(path)) note((struct record){.kind = UNKNOWN}, NULL, 0);
  return status;
}
