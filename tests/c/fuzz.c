// SPDX-License-Identifier: Apache-2.0
/* Damages a broker at random, and calls the core: each call must return a status or a right result. It must never crash
 * or hang.
 *
 * For each seed the program restores the image of fuzz_image.h. A child attaches, takes messages, and damages words
 * that are in use. Then it attaches a second time, and calls all functions, in random order, on both attachments. A
 * child that is built with sanitizers dies of what they find. The limit of a child is processor time, so a busy machine
 * is no failure; an alarm ends a child that sleeps for ever. Damage of the files themselves is tried once, at the
 * start.
 *
 *   fuzz [-v] [-seed N | [-from N] [-count N]]
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz_work.h"
#include "sb_slab.h"

#define PROCESSOR_SECONDS 20
#define WATCHDOG_SECONDS 200
#define STEPS_EACH 60
#define STEPS_BETWEEN 10 /* one damage and the next one */
#define DAMAGES_SHOWN 16
#define MOST_REGIONS 4096

/* What the child was doing, for the one who reads about its end. */
typedef struct {
  const char *step;
  unsigned steps, old;
  unsigned damages;
  struct {
    uint64_t segment, offset, before, after;
    const char *kind;
  } damage[DAMAGES_SHOWN];
} account;

static account *shared;
static test_broker broker;
static bool verbose;

const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_leaks=0:abort_on_error=1"; }
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) { return "print_stacktrace=1"; }

/* ---- words that are in use ---- */

typedef struct {
  const char *kind;
  uint32_t segment;
  uint64_t first, words;
} region;

static region regions[MOST_REGIONS];
static size_t region_count;

static void add_region(const char *kind, uint32_t segment, uint64_t first, uint64_t bytes) {
  if (region_count == MOST_REGIONS) die("too many regions", MOST_REGIONS);
  regions[region_count++] = (region){kind, segment, first, bytes / 8};
}

static uint64_t word_at(uint32_t segment, uint64_t offset) {
  uint64_t word;
  memcpy(&word, segments[segment].memory + offset, sizeof word);
  return word;
}

/* Those of a table that are not zero, each a region of its own; neighbours of them are mostly never read. */
static void add_used(const char *kind, uint64_t first, uint64_t count, uint64_t bytes) {
  for (uint64_t i = 0; i < count; i++) {
    bool used = false;
    for (uint64_t at = 0; at < bytes; at += 8) used = used || word_at(0, first + i * bytes + at) != 0;
    if (used) add_region(kind, 0, first + i * bytes, bytes);
  }
}

static const char *const KIND_NAMES[SB_KIND_COUNT] = {"message",    "leaf",   "inner page", "queue",      "node",
                                                      "level",      "ledger", "connection", "holdings",   "long leaf",
                                                      "long queue", "lane",   "groups",     "value node", "ids"};

static void add_slots(uint32_t chunk, uint64_t word) {
  uint32_t segment = 1 + chunk / CHUNKS_PER_SEGMENT, within = chunk % CHUNKS_PER_SEGMENT;
  uint64_t meta = within * SB_CHUNK_META_BYTES;
  uint64_t bodies = CHUNKS_PER_SEGMENT * SB_CHUNK_META_BYTES + within * SB_CHUNK_BYTES;
  bool run = sb_chunk_state(word) == SB_CHUNK_RUN;
  unsigned cls = sb_chunk_class(word), kind = run || cls <= SB_MESSAGE_CLASSES ? 0 : cls - SB_MESSAGE_CLASSES;
  unsigned units = run ? SB_CHUNK_UNITS : sb_class_units(cls);
  add_region("hints", segment, meta + offsetof(sb_chunk_meta_shm, hints), 64);
  add_region("hints", segment, meta + offsetof(sb_chunk_meta_shm, summary), 16);
  for (uint32_t unit = 0; unit + units <= SB_CHUNK_UNITS; unit += units) {
    if (sb_slot_state(word_at(segment, meta + unit * 8)) == SB_SLOT_FREE) continue;
    add_region("slot header", segment, meta + unit * 8, 8);
    uint64_t bytes = kind == 0 ? sizeof(sb_message_shm) : kind == SB_KIND_HOLDINGS ? 1024 : units * SB_UNIT;
    for (uint32_t at = 64; kind == SB_KIND_IDS && at < bytes; at += 24) { /* the entries that are used: few of many */
      uint64_t first = bodies + (uint64_t)unit * SB_UNIT + at;
      if (word_at(segment, first) != 0) add_region("id", segment, first, 24);
    }
    if (kind == SB_KIND_IDS) bytes = 64;
    add_region(KIND_NAMES[kind], segment, bodies + (uint64_t)unit * SB_UNIT, bytes);
    if (sb_slot_in_parts(word_at(segment, meta + unit * 8)))
      add_region("parts", segment, bodies + (uint64_t)(unit + units) * SB_UNIT - sizeof(sb_parts_shm),
                 sizeof(sb_parts_shm));
  }
}

static void find_regions(void) {
  add_region("header", 0, 0, sizeof(sb_header_shm));
  add_used("class", SB_OFF_CLASSES, SB_MAX_CLASSES, sizeof(sb_class_shm));
  add_used("process", SB_OFF_PROCESSES, SB_MAX_PROCESSES, sizeof(sb_process_shm));
  add_used("connection word", SB_OFF_CONNECTIONS, SB_MAX_CONNECTIONS, 8);
  add_used("chunk", SB_OFF_CHUNKS, SB_MAX_CHUNKS, 8);
  add_used("directory", SB_OFF_DIRECTORY, SB_DIRECTORY_SIZE, 8);
  for (uint32_t chunk = 0; chunk < (segment_count - 1) * CHUNKS_PER_SEGMENT; chunk++) {
    uint64_t word = word_at(0, SB_OFF_CHUNKS + chunk * 8);
    if (sb_chunk_state(word) == SB_CHUNK_CLASS || sb_chunk_state(word) == SB_CHUNK_RUN) add_slots(chunk, word);
  }
}

/* A kind first, so that the few headers are hit as often as the many cells. */
static const region *choose_region(const char *kind) {
  const char *kinds[32];
  size_t count = 0;
  for (size_t i = 0; i < region_count; i++) {
    size_t k = 0;
    while (k < count && strcmp(kinds[k], regions[i].kind) != 0) k++;
    if (k == count) kinds[count++] = regions[i].kind;
  }
  if (kind == NULL) kind = kinds[choose(count)];
  for (;;) {
    const region *r = &regions[choose(region_count)];
    if (strcmp(r->kind, kind) == 0) return r;
  }
}

/* Of that kind, or of any (NULL), which it tells. */
static uint64_t choose_used_word(uint64_t *offset, uint32_t *segment, const char **kind) {
  const char *wanted = *kind;
  uint64_t word = 0;
  for (int tries = 0; tries < 8 && word == 0; tries++) { /* a word that is zero may be in use; one that is not, is */
    const region *r = choose_region(wanted);
    *kind = r->kind;
    *segment = r->segment;
    *offset = r->first + choose(r->words) * 8;
    word = word_at(*segment, *offset);
    if (choose(4) == 0) break;
  }
  return word;
}

static uint64_t damaged(uint64_t word, const char *kind) {
  uint64_t offset, other;
  uint32_t segment;
  const char *any_kind = NULL;
  unsigned shift = (unsigned)choose(8) * 8, bits = (unsigned)choose(64);
  switch (choose(14)) {
    case 0:
    case 1:
    case 2: return word ^ UINT64_C(1) << choose(64);
    case 3: return (word & ~(UINT64_C(0xff) << shift)) | choose(256) << shift;
    case 4: return 0;
    case 5: return UINT64_MAX;
    case 6: return word + 1;
    case 7: return word - 1;
    case 8: return choose_used_word(&offset, &segment, &any_kind); /* such as the header of another slot */
    case 9:
    case 10: return choose_used_word(&offset, &segment, &kind); /* such as a link that leads elsewhere */
    case 11:                                                    /* a field of it */
      other = choose_used_word(&offset, &segment, &kind);
      return word ^ ((word ^ other) & (UINT64_MAX << bits));
    case 12: return (word & UINT64_C(0xffffffff00000000)) | choose(UINT64_C(1) << 31);
    default: return word ^ (choose(UINT64_C(1) << 31) << choose(33)); /* an index far out of range */
  }
}

static void damage(void) {
  uint64_t count = choose(3) != 0 ? 1 : 1 + choose(8);
  for (uint64_t i = 0; i < count; i++) {
    uint64_t offset, before, after;
    uint32_t segment;
    const char *kind = NULL;
    (void)choose_used_word(&offset, &segment, &kind);
    memcpy(&before, segments[segment].memory + offset, sizeof before);
    after = damaged(before, kind);
    memcpy(segments[segment].memory + offset, &after, sizeof after);
    if (shared->damages < DAMAGES_SHOWN) {
      shared->damage[shared->damages].segment = segment;
      shared->damage[shared->damages].offset = offset;
      shared->damage[shared->damages].before = before;
      shared->damage[shared->damages].after = after;
      shared->damage[shared->damages].kind = kind;
    }
    shared->damages++;
  }
}

/* ---- one seed ---- */

static void step(session *s, unsigned old, const char *name, void (*what)(session *)) {
  shared->step = name;
  shared->old = old;
  shared->steps++;
  what(s);
}

static void arrive(session *s) {
  sb_status status;
  uint32_t major, minor;
  s->t = broker;
  s->held = malloc(RECORD_BYTES);
  if ((s->t.b = sb_broker_attach(broker.path, &status, &major, &minor)) == NULL) return;
  if ((s->t.c = sb_connection_open(s->t.b, "fresh", 5, &status)) != NULL) open_all(s);
}

static void finish(session *s) {
  disconnect(s->t.c);
  sb_broker_detach(s->t.b);
}

static void run_seed(uint64_t seed) {
  struct rlimit processor = {PROCESSOR_SECONDS, PROCESSOR_SECONDS};
  session sessions[2] = {{.t = broker}, {.t = broker}};
  setrlimit(RLIMIT_CPU, &processor);
  alarm(WATCHDOG_SECONDS);
  random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
  step(&sessions[0], 1, "before the damage", enter);
  take_in_hand(&sessions[0], 1);
  find_regions();
  damage();
  if (choose(4) != 0) step(&sessions[1], 0, "attach", arrive);
  for (int n = 0; n < STEPS_EACH; n++) {
    unsigned fresh = sessions[1].t.c != NULL && choose(2) == 0;
    size_t i = choose(STEP_COUNT);
    if (choose(STEPS_BETWEEN) == 0) damage();
    step(&sessions[fresh], !fresh, STEPS[i].name, STEPS[i].step);
  }
  step(&sessions[0], 1, "check", check);
  if (sessions[1].t.c != NULL) step(&sessions[1], 0, "end", finish);
  step(&sessions[0], 1, "end", finish);
  _exit(0);
}

static void explain(uint64_t seed, int status) {
  printf("FAIL seed %llu: %s %d in step %u, %s, of the %s attachment\n", (unsigned long long)seed,
         WIFSIGNALED(status) ? "signal" : "exit status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
         shared->steps, shared->step, shared->old != 0 ? "old" : "fresh");
  for (unsigned i = 0; i < shared->damages && i < DAMAGES_SHOWN; i++)
    printf("  %s: segment %llu offset %llu: %016llx became %016llx\n", shared->damage[i].kind,
           (unsigned long long)shared->damage[i].segment, (unsigned long long)shared->damage[i].offset,
           (unsigned long long)shared->damage[i].before, (unsigned long long)shared->damage[i].after);
  fflush(stdout);
}

static bool in_a_child(void (*run)(uint64_t), uint64_t seed) {
  int status;
  memset(shared, 0, sizeof *shared);
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) run(seed);
  (void)waitpid(pid, &status, 0);
  bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!good) explain(seed, status);
  return good;
}

/* ---- the files ---- */

static void expect_refused(uint64_t which) {
  sb_status status = SB_OK;
  uint32_t major, minor;
  (void)which;
  alarm(WATCHDOG_SECONDS);
  sb_broker *b = sb_broker_attach(broker.path, &status, &major, &minor);
  _exit(b != NULL || status == SB_OK);
}

static void name_of(char *out, size_t size, const char *suffix) { file_name(out, size, broker.path, suffix); }

static bool refused(const char *what) {
  bool good = in_a_child(expect_refused, 0);
  if (!good) printf("FAIL attaching: %s\n", what);
  return good;
}

static bool refused_with(const char *what, uint64_t offset, uint64_t bytes, uint64_t value) {
  memcpy(segments[0].memory + offset, &value, bytes);
  bool good = refused(what);
  restore(&broker);
  return good;
}

static bool refused_cut(const char *suffix, uint64_t bytes) {
  char name[160], aside[180], what[64];
  name_of(name, sizeof name, suffix);
  snprintf(aside, sizeof aside, "%s.aside", name);
  snprintf(what, sizeof what, "file %s of %llu bytes", suffix, (unsigned long long)bytes);
  if (rename(name, aside) != 0) die("rename", 0);
  if (bytes != UINT64_MAX) {
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) die("a short file", fd);
    close(fd);
  } else {
    snprintf(what, sizeof what, "no file %s", suffix);
  }
  bool good = refused(what);
  if (rename(aside, name) != 0) die("rename", 0);
  return good;
}

static bool front(void) {
  bool good = refused_with("magic", offsetof(sb_header_shm, magic), 8, 1);
  good = refused_with("major version", offsetof(sb_header_shm, layout_major), 4, SB_LAYOUT_MAJOR + 1) && good;
  good = refused_with("layout", offsetof(sb_header_shm, layout_hash), 8, 1) && good;
  good = refused_with("limit", offsetof(sb_header_shm, memory_limit), 8, UINT64_MAX) && good;
  good = refused_with("no chunks", offsetof(sb_header_shm, chunk_limit), 4, 0) && good;
  good = refused_with("chunks", offsetof(sb_header_shm, chunk_limit), 4, UINT32_MAX) && good;
  good = refused_with("no chunks a segment", offsetof(sb_header_shm, chunks_per_segment), 4, 0) && good;
  good = refused_with("chunks a segment", offsetof(sb_header_shm, chunks_per_segment), 4, UINT32_MAX) && good;
  good = refused_with("segments", offsetof(sb_header_shm, segments), 4, UINT32_MAX) && good;
  good = refused_with("a segment that is missing", offsetof(sb_header_shm, segments), 4, segment_count) && good;
  static const uint64_t sizes[] = {0, 1, 4096, 1u << 20, UINT64_MAX};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    good = refused_cut("0", sizes[i]) && good;
    good = refused_cut("1", sizes[i]) && good;
    good = refused_cut("2", sizes[i]) && good;
  }
  return refused_cut("lock", UINT64_MAX) && good;
}

/* ---- all of it ---- */

static uint64_t number(int *count, char ***arguments) {
  if (*count < 2) die("usage: fuzz [-v] [-seed N | [-from N] [-count N]], arguments", *count);
  --*count;
  ++*arguments;
  return strtoull(**arguments, NULL, 10);
}

int main(int count, char **arguments) {
  char name[64];
  uint64_t from = 1, seeds = 300, failed = 0;
  for (count--, arguments++; count > 0; count--, arguments++) {
    if (strcmp(*arguments, "-v") == 0) {
      verbose = true;
    } else if (strcmp(*arguments, "-seed") == 0) {
      from = number(&count, &arguments);
      seeds = 1;
    } else if (strcmp(*arguments, "-from") == 0) {
      from = number(&count, &arguments);
    } else {
      seeds = number(&count, &arguments);
    }
  }
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  records = malloc(RECORD_BYTES);
  snprintf(name, sizeof name, "fuzz-%d", (int)getpid());
  make_image(&broker, name);
  bool fronts = front();
  for (uint64_t seed = from; seed < from + seeds; seed++) {
    failed += !in_a_child(run_seed, seed);
    restore(&broker);
    if (verbose && seed % 100 == 0)
      printf("up to %llu: %llu failed\n", (unsigned long long)seed, (unsigned long long)failed);
  }
  drop_image(&broker);
  printf("%llu seeds, %llu failed; files %s\n", (unsigned long long)seeds, (unsigned long long)failed,
         fronts ? "passed" : "failed");
  return failed != 0 || !fronts;
}
