// SPDX-License-Identifier: Apache-2.0
/* kept_files of the tests themselves: what a trial gets in the place of a new file. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"
#include "kept_files.h"

#define BYTES 10000u /* no whole number of pages */

static void write_segment(const char *name) {
  char bytes[BYTES] = {0};
  bytes[0] = bytes[4095] = bytes[4096] = bytes[BYTES - 1] = 1;
  int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, bytes, BYTES) != BYTES) die("writing a segment", fd);
  close(fd);
}

static unsigned bytes_set(const char *name) {
  char bytes[BYTES];
  unsigned set = 0;
  int fd = open(name, O_RDONLY | O_CLOEXEC);
  expect(fd >= 0 && pread(fd, bytes, BYTES, 0) == BYTES, "the file is not there, or shorter");
  close(fd);
  for (unsigned i = 0; i < BYTES; i++) set += bytes[i] != 0;
  return set;
}

static void kept_files_are_zeros(void) {
  char path[40], name[160], other[160];
  snprintf(path, sizeof path, "/shmbroker-kept-case-%d", (int)getpid());
  file_name(name, sizeof name, path, "2");
  file_name(other, sizeof other, path, "3");
  kept_files_end(); /* the cases before this one keep files */
  expect(!kept_files_give("2", BYTES, name), "a file though none are kept");
  kept_files_begin();
  write_segment(name);
  kept_files_take(path);
  expect(access(name, F_OK) != 0, "the broker's file is still there");
  expect(!kept_files_give("1", BYTES, name), "the file of another segment");
  expect(!kept_files_give("2", BYTES - 1, other), "a file of another length");
  expect(kept_files_give("2", BYTES, other), "no file");
  expect_is(bytes_set(other), 0, "bytes that are not 0");
  expect(!kept_files_give("2", BYTES, name), "the same file a second time");
  kept_files_take(path);
  kept_files_end();
  expect(!kept_files_give("3", BYTES, name), "a file after the end");
}

static const test_case CASES[] = {
    {"kept: zeros", "a kept file is given once, for its segment, and all its bytes are 0", kept_files_are_zeros},
};
SUBJECT(CASES)
