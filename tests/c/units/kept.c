// SPDX-License-Identifier: Apache-2.0
/* kept_files of the tests themselves: what a trial gets in the place of a new file. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"
#include "kept_files.h"
#include "sb_segment.h"

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

static void write_byte(int fd, uint64_t at) {
  if (pwrite(fd, "1", 1, (off_t)at) != 1) die("writing a byte", fd);
}
static unsigned byte_at(int fd, uint64_t at) {
  char byte = 0;
  if (pread(fd, &byte, 1, (off_t)at) != 1) die("reading a byte", fd);
  return (unsigned char)byte;
}
/* Two chunks; the second one was opened. */
static void kept_segments_are_zeros(void) {
  const uint64_t metadata = 2 * SB_CHUNK_META_BYTES, end = metadata + 2 * SB_CHUNK_BYTES;
  const uint64_t opened = SB_CHUNK_META_BYTES + offsetof(sb_chunk_meta_shm, written);
  const uint64_t used[] = {0, opened, metadata - 1, metadata + SB_CHUNK_BYTES, end - 1};
  char path[40], name[160], other[160];
  snprintf(path, sizeof path, "/shmbroker-kept-case-%d", (int)getpid());
  file_name(name, sizeof name, path, "2");
  file_name(other, sizeof other, path, "3");
  int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, (off_t)end) != 0) die("making a segment", fd);
  for (unsigned i = 0; i < 5; i++) write_byte(fd, used[i]);
  kept_files_end();
  kept_files_begin();
  kept_files_take(path);
  expect(kept_files_give("2", end, other), "no file");
  for (unsigned i = 0; i < 5; i++) expect(byte_at(fd, used[i]) == 0, "byte %u is not 0", i);
  close(fd);
  kept_files_take(path);
  kept_files_end();
}

static const test_case CASES[] = {
    {"kept: zeros", "a kept file is given once, for its segment, and all its bytes are 0", kept_files_are_zeros},
    {"kept: segment", "in a kept segment all bytes of opened chunks are 0", kept_segments_are_zeros},
};
SUBJECT(CASES)
