// SPDX-License-Identifier: Apache-2.0
/* The linker puts these calls in the place of those of the core (--wrap). */
#include "proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

const char *texts[TEXTS];
unsigned text_count, reads;
ssize_t nothing_read;
size_t read_size;
bool no_mapping, no_advice, no_facts;
unsigned opens_to_fail, yields;

ssize_t __real_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size);
ssize_t __wrap_read(int fd, void *to, size_t size) {
  if (text_count == 0) return __real_read(fd, to, size);
  const char *text = texts[reads < text_count ? reads : text_count - 1];
  size_t length = strlen(text);
  reads++;
  read_size = size;
  if (length == 0) return nothing_read;
  memcpy(to, text, length < size ? length : size);
  return (ssize_t)(length < size ? length : size);
}
void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
  return no_mapping ? MAP_FAILED : __real_mmap(at, size, protection, flags, fd, offset);
}
int __real_madvise(void *at, size_t size, int advice);
int __wrap_madvise(void *at, size_t size, int advice);
int __wrap_madvise(void *at, size_t size, int advice) { return no_advice ? -1 : __real_madvise(at, size, advice); }
int __real_stat(const char *path, struct stat *facts);
int __wrap_stat(const char *path, struct stat *facts);
int __wrap_stat(const char *path, struct stat *facts) {
  if (!no_facts) return __real_stat(path, facts);
  memset(facts, 0x55, sizeof *facts); /* which mean nothing */
  return -1;
}
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  if (opens_to_fail == 0) return __real_open(path, flags, mode);
  opens_to_fail--;
  errno = EMFILE;
  return -1;
}
int __real_sched_yield(void);
int __wrap_sched_yield(void);
int __wrap_sched_yield(void) {
  yields++;
  return __real_sched_yield();
}
