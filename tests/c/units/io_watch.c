// SPDX-License-Identifier: Apache-2.0
/* sb_io: the process that looks often, the start of a housekeeper if it is missing or stopped, and visits of all
 * queues. */
#include <unistd.h>

#include "halted.h"
#include "io_thread.h"
#include "sb_directory.h"
#include "sb_io.h"

#define NOW (1000000 * MILLISECONDS) /* the time of answer_for_the_system */
#define HALTED 9u                    /* process slots */
#define DEAD 10u
#define THEIRS 77u /* a connection of a process that is stopped */

static sb_connection *c;
static sb_header_shm *header;
static test_broker second; /* the same broker, attached once more: this process is in slot 1, too */

static uint32_t beat(uint64_t ns) { return (uint32_t)(ns >> 20); }
static void set_watches(uint32_t process, bool watches) {
  SB_STORE(&t.b->processes[process].flags, watches ? SB_PROC_WATCHES : 0u, SB_RELAXED);
}
static void begin_lowest(void) {
  c = t.c;
  header = t.b->header;
}
/* The connection of slot 1; slot 0 looks often. */
static void begin_second(void) {
  begin_lowest();
  second = t;
  attach(&second);
  second.c = connect_to(&second);
  c = second.c;
  expect_is(second.b->process, 1, "the process slot of what attached later");
  set_watches(0, true);
}
static sb_status run_on(unsigned sleeps, void (*during)(unsigned sleep)) {
  SB_STORE(&c->closed, 0u, SB_RELAXED);
  return run_io(c, sleeps, during);
}
/* The first run of a thread. */
static sb_status run(unsigned sleeps, void (*during)(unsigned sleep)) {
  c->lookout = (sb_lookout){.looked = 0};
  return run_on(sleeps, during);
}
static unsigned proc_state(uint32_t i) { return (unsigned)(SB_LOAD(&t.b->processes[i].word, SB_RELAXED) & 3u); }
static void make_dead(void) { take_process_slot(DEAD, ended_process(), 0); }

/* ---- the lowest process ---- */

static void expect_lowest(bool should, const char *what) {
  SB_STORE(&header->watched, 7u, SB_RELAXED);
  expect_is(run(1, NULL), SB_CLOSED, "the status");
  expect_is(slept_ns[1], should ? LOWEST_SLEEP : LONG_SLEEP, what);
  expect_is(SB_LOAD(&header->watched, SB_RELAXED), should ? beat(NOW) : 7, what);
  expect((SB_LOAD(&t.b->processes[1].flags, SB_RELAXED) & SB_PROC_WATCHES) != 0, "it does not say that it watches");
}
static void the_lowest_that_runs(void) {
  begin_second();
  expect_lowest(false, "beside one in slot 0");
  set_watches(0, false);
  expect_lowest(true, "beside one without an IO thread");
  set_watches(0, true);
  uint64_t word = SB_LOAD(&t.b->processes[0].word, SB_RELAXED);
  SB_STORE(&t.b->processes[0].word, word & ~UINT64_C(3), SB_RELAXED);
  expect_lowest(true, "beside one that has detached");
  SB_STORE(&t.b->processes[0].word, word, SB_RELAXED);
  sb_unlock_byte(t.b->lock_fd, SB_LOCK_PROCESS);
  expect_lowest(true, "beside one that died");
  int lock = hold_byte(SB_LOCK_PROCESS);
  expect_lowest(false, "beside one that lives");
  pid_t stopped = start_stopped();
  take_process_slot(0, stopped, SB_PROC_WATCHES);
  expect_lowest(true, "beside one that is stopped");
  end_stopped(stopped);
  close(lock);
  set_watches(0, false);
  take_process_slot(2, getpid(), SB_PROC_WATCHES);
  lock = hold_byte(SB_LOCK_PROCESS + 2);
  expect_lowest(true, "beside one in a higher slot");
  close(lock);
}
static void nobody_watches(unsigned sleep) {
  (void)sleep;
  set_watches(1, false);
}
/* Where the table ends the connections begin: they are no processes. */
static void no_process_that_watches(void) {
  begin_second();
  SB_STORE(&second.b->keeps_house, 1u, SB_RELAXED);
  set_watches(0, false);
  SB_STORE(&t.b->connections[0], SB_PROC_LIVE, SB_RELAXED);
  (void)SB_OR(&t.b->connections[1], SB_FIELD(SB_PROC_WATCHES, 32), SB_RELAXED);
  int lock = hold_byte(SB_LOCK_PROCESS + SB_MAX_PROCESSES);
  expect_is(run(2, nobody_watches), SB_CLOSED, "the status");
  expect_is(slept_ns[2], LOWEST_SLEEP, "the sleep when nobody says that he watches");
  close(lock);
}

static void close_open(sb_connection *one) {
  SB_STORE(&one->closed, 0u, SB_RELAXED); /* run() closed it */
  expect_is(sb_connection_close(one), SB_OK, "closing");
}
static bool says_that_it_watches(void) {
  return (SB_LOAD(&t.b->processes[t.b->process].flags, SB_RELAXED) & SB_PROC_WATCHES) != 0;
}
/* Two connections of the process had an IO thread, a third one has none. */
static void watching_ends_with_the_last_thread(void) {
  begin_lowest();
  sb_connection *first = t.c, *last = connect_to(&t), *idle = connect_to(&t);
  expect(!says_that_it_watches(), "it watches without a thread");
  expect_is(run(1, NULL), SB_CLOSED, "the status");
  c = last;
  expect_is(run(1, NULL), SB_CLOSED, "the status");
  expect_is(run(1, NULL), SB_CLOSED, "the status of another run");
  close_open(first);
  expect(says_that_it_watches(), "it does not watch, though one has a thread");
  close_open(idle);
  expect(says_that_it_watches(), "it does not watch since one without a thread closed");
  close_open(last);
  expect(!says_that_it_watches(), "it watches, though no thread is left");
  c->lookout = (sb_lookout){.looked = 0}; /* the thread begins only now */
  expect_is(sb_io_run(c), SB_CLOSED, "the status of a closed connection");
  expect(!says_that_it_watches(), "it watches after the close");
}

/* ---- a housekeeper that is missing ---- */

static void the_lowest_asks_for_a_housekeeper(void) {
  begin_lowest();
  make_dead();
  expect_is(run(3, NULL), SB_NO_HOUSEKEEPER, "the status");
  expect_is(says.sleeps, 1, "the sleeps");
  expect_is(proc_state(DEAD), SB_PROC_FREE, "the slot of a process that died");
  SB_STORE(&header->stopped, 1u, SB_RELAXED);
  make_dead();
  expect_is(run(3, NULL), SB_CLOSED, "the status where no housekeeper is wanted");
  expect_is(proc_state(DEAD), SB_PROC_FREE, "the slot of a process that died where no housekeeper is wanted");
}
static void watched_is_fresh(unsigned sleep) {
  (void)sleep;
  SB_STORE(&header->watched, beat(says.until_ns), SB_RELAXED);
}
/* The others leave it to the lowest for as long as one of their sleeps. */
static void the_others_wait_a_while(void) {
  begin_second();
  expect_is(run(9, watched_is_fresh), SB_NO_HOUSEKEEPER, "the status");
  expect_is(says.sleeps, 2, "the sleeps");
}
static void the_housekeeper_goes(unsigned sleep) { SB_STORE(&second.b->keeps_house, sleep < 3, SB_RELAXED); }
static void the_others_wait_since_it_was_there(void) {
  begin_second();
  expect_is(run(9, the_housekeeper_goes), SB_NO_HOUSEKEEPER, "the status");
  expect_is(says.sleeps, 4, "the sleeps");
}

/* Deliveries end a run before it sleeps for long, or at all: when it is time, the next one looks first. */
static void runs_that_end_early(void) {
  begin_lowest();
  (void)run(1, NULL);
  c->lookout.looked = NOW - LOWEST_SLEEP - 1;
  expect_is(run_on(9, NULL), SB_NO_HOUSEKEEPER, "the status");
  expect_is(says.sleeps, 0, "the sleeps before a look that is due");
  expect_is(c->lookout.looked, NOW, "when it looked");
  c->lookout.looked = NOW - LOWEST_SLEEP / 3;
  expect_is(run_on(9, NULL), SB_NO_HOUSEKEEPER, "the status");
  expect_is(says.sleeps, 1, "the sleeps before a look that is not due yet");
  expect_is(c->lookout.looked, NOW + LOWEST_SLEEP - LOWEST_SLEEP / 3, "when it looked then");
}
#define MANY_TURNS 100u
static void time_goes_by(fake_target *f) {
  says.now_ns += LOWEST_SLEEP / 4 + 1;
  f->more = f->turns < MANY_TURNS;
  if (!f->more) SB_STORE(&c->closed, 1u, SB_SEQ_CST);
}
static void turns_without_end(void) {
  begin_lowest();
  fake_target *busy = add_fake(c);
  busy->in_turn = time_goes_by;
  tell(c, busy->as_consumer.target.number);
  expect_is(run(1, NULL), SB_NO_HOUSEKEEPER, "the status");
  expect(busy->turns < MANY_TURNS, "%u turns were taken before it looked", busy->turns);
  SB_STORE(&t.b->keeps_house, 1u, SB_RELAXED);
  expect_is(run_on(1, NULL), SB_CLOSED, "the status beside a housekeeper");
  expect_is(busy->turns, MANY_TURNS, "the turns beside a housekeeper");
  expect(c->lookout.looked > NOW + 10 * LOWEST_SLEEP, "it did not look again");
  expect_is(says.sleeps, 0, "the sleeps while there is more to do");
}

/* ---- a housekeeper that is there ---- */

static void the_lowest_leaves_its_beat(void) {
  begin_lowest();
  SB_STORE(&t.b->keeps_house, 1u, SB_RELAXED);
  expect_is(run(3, NULL), SB_CLOSED, "the status");
  expect_is(SB_LOAD(&header->watched, SB_RELAXED), beat(NOW + 2 * LOWEST_SLEEP), "the beat of the last look");
}
/* The lowest is gone since, but its beat was fresh until the second look. */
static void the_beat_gets_old(unsigned sleep) {
  set_watches(0, false);
  SB_STORE(&header->watched, beat(says.until_ns) - (sleep == 1 ? 1023u : 1024u), SB_RELAXED);
}
static void a_fresh_beat_is_believed(void) {
  begin_second();
  SB_STORE(&second.b->keeps_house, 1u, SB_RELAXED);
  expect_is(run(3, the_beat_gets_old), SB_CLOSED, "the status");
  expect_is(slept_ns[2], LONG_SLEEP, "the sleep after a beat of less than a second");
  expect_is(slept_ns[3], LOWEST_SLEEP, "the sleep after a beat of a second");
}

/* ---- a housekeeper that is stopped ---- */

static pid_t halted;
static int housekeeper_byte, process_byte;
static uint32_t parked, runs; /* nodes of a queue that has a message: of the process that is stopped, and of ours */

static void begin_halted(void) {
  halted = start_stopped();
  take_process_slot(HALTED, halted, 0);
  process_byte = hold_byte(SB_LOCK_PROCESS + (long)HALTED);
  take_connection(THEIRS, HALTED);
  put_some(0, 1, 1);
  parked = make_node(queues[0]->slot, 0, SB_NODE_DIRECT, 0, SB_NODE_INTERESTED);
  runs = make_node(queues[0]->slot, 0, SB_NODE_DIRECT, 0, SB_NODE_INTERESTED);
  give_node_to(parked, THEIRS);
}
static void begin_with_a_halted_housekeeper(void) {
  begin_halted();
  housekeeper_byte = hold_byte(SB_LOCK_HOUSEKEEPER);
  SB_STORE(&header->housekeeper_process, HALTED + 1, SB_RELAXED);
  make_dead();
}
static void end_halted(void) {
  close(process_byte);
  end_stopped(halted);
}
static void nothing_is_done_yet(unsigned sleep) {
  (void)sleep;
  expect_is(proc_state(DEAD), SB_PROC_LIVE, "the slot of a process that died, before");
  expect_is(node_state(parked), SB_NODE_INTERESTED, "the state of a consumer that is stopped, before");
}
static void somebody_stands_in(void) {
  begin_lowest();
  begin_with_a_halted_housekeeper();
  expect_is(run(9, nothing_is_done_yet), SB_NO_HOUSEKEEPER, "the status");
  expect_is(says.sleeps, 1, "the sleeps until the first look");
  expect_is(proc_state(DEAD), SB_PROC_FREE, "the slot of a process that died");
  expect_is(node_state(parked), SB_NODE_NOT_INTERESTED, "the state of a consumer that is stopped");
  expect_is(node_state(runs), SB_NODE_NOTIFIED, "the state of a consumer that runs");
  expect_is(c->stand_in_asked_ns, NOW + LOWEST_SLEEP, "when it asked");
  end_halted();
}
static void a_turn_is_taken(unsigned sleep) {
  if (sleep <= 2) (void)SB_ADD(&header->housekeeper_ticks, 1, SB_RELAXED);
}
/* Only then is its state asked for; what it did before the first run is no turn. */
static void who_takes_turns_runs(void) {
  begin_lowest();
  begin_with_a_halted_housekeeper();
  SB_STORE(&header->housekeeper_ticks, 5u, SB_RELAXED);
  expect_is(run(9, a_turn_is_taken), SB_NO_HOUSEKEEPER, "the status");
  expect_is(says.sleeps, 3, "the sleeps until a look that finds no turn since the last one");
  c->stand_in_asked_ns = 0;
  expect_is(run(9, NULL), SB_NO_HOUSEKEEPER, "the status of a thread that begins");
  expect_is(says.sleeps, 1, "the sleeps of a thread that begins");
  end_halted();
}
static void nobody_stands_in_without_need(void) {
  begin_second();
  begin_with_a_halted_housekeeper();
  expect_is(run(6, nothing_is_done_yet), SB_CLOSED, "the status of one that is not the lowest");
  c = t.c;
  SB_STORE(&header->housekeeper_process, 0u, SB_RELAXED);
  expect_is(run(8, nothing_is_done_yet), SB_CLOSED, "the status while it rests");
  nothing_is_done_yet(0);
  end_halted();
}
/* What cannot wait is done all the same. */
static void expect_only_help(const char *what) {
  set_node_state(parked, SB_NODE_INTERESTED);
  make_dead();
  expect_is(run(5, NULL), SB_CLOSED, what);
  expect_is(proc_state(DEAD), SB_PROC_FREE, what);
  expect_is(node_state(parked), SB_NODE_NOT_INTERESTED, what);
}
static void nobody_is_asked_again(void) {
  begin_lowest();
  begin_with_a_halted_housekeeper();
  SB_STORE(&header->stopped, 1u, SB_RELAXED);
  expect_only_help("the status where no housekeeper is wanted");
  SB_STORE(&header->stopped, 0u, SB_RELAXED);
  int stands_in = hold_byte(SB_LOCK_STAND_IN);
  expect_only_help("the status while somebody stands in");
  close(stands_in);
  c->stand_in_asked_ns = NOW + 2 * LOWEST_SLEEP - LONG_SLEEP + 1;
  expect_is(run(9, NULL), SB_NO_HOUSEKEEPER, "the status after a while");
  expect_is(says.sleeps, 3, "the sleeps until it asks again");
  c->stand_in_asked_ns = NOW + 2 * LOWEST_SLEEP - LONG_SLEEP;
  expect_is(run(9, NULL), SB_NO_HOUSEKEEPER, "the status after exactly so long");
  expect_is(says.sleeps, 2, "the sleeps until it asks again after exactly so long");
  end_halted();
}

/* ---- visits ---- */

static unsigned holds;
static void count_holds(const char *site) {
  static bool held;
  (void)site;
  bool now = atomic_load_explicit(&c->lock, memory_order_relaxed) != 0; /* which is no step itself */
  holds += now && !held;
  held = now;
}
/* So many entries of the directory, from that one on, are a queue; there are no others. */
static void fill_directory(uint32_t first, uint32_t count) {
  uint64_t entry = 0;
  for (uint32_t i = 0; i < SB_DIRECTORY_SIZE && entry == 0; i++) entry = SB_LOAD(&t.b->directory[i], SB_RELAXED);
  for (uint32_t i = 0; i < SB_DIRECTORY_SIZE; i++)
    SB_STORE(&t.b->directory[i], i >= first && i < first + count ? entry : 0, SB_RELAXED);
}
static unsigned holds_of_a_visit(uint32_t first, uint32_t count) {
  fill_directory(first, count);
  holds = 0;
  at_step = count_holds;
  sb_io_visit_stopped(c);
  at_step = NULL;
  return holds;
}
static void visits_hold_the_lock_for_a_while(void) {
  begin_lowest();
  (void)queue_number(0);
  if (!has_steps()) return;
  unsigned blocks = SB_DIRECTORY_SIZE / 1024;
  expect_is(holds_of_a_visit(5, 15), blocks, "the holds for 15 queues in one part of the directory");
  expect_is(holds_of_a_visit(5, 16), blocks + 1, "the holds for 16 queues in one part of the directory");
  expect_is(holds_of_a_visit(SB_DIRECTORY_SIZE - 100, 16), blocks + 1, "the holds for 16 queues in the last part");
}
static void visits_park_who_is_stopped(void) {
  begin_lowest();
  begin_halted();
  fill_directory(0, 1);
  SB_STORE(&c->closed, 1u, SB_RELAXED);
  sb_io_visit_stopped(c);
  expect_is(node_state(parked), SB_NODE_INTERESTED, "the state after a visit of a closed connection");
  SB_STORE(&c->closed, 0u, SB_RELAXED);
  sb_io_visit_stopped(c);
  expect_is(node_state(parked), SB_NODE_NOT_INTERESTED, "the state after a visit");
  expect_is(node_state(runs), SB_NODE_NOTIFIED, "the state of a consumer that runs");
  expect_is(SB_LOAD(&c->lock, SB_RELAXED), 0, "the lock");
  end_halted();
}

static const test_case CASES[] = {
    {"io_watch: lowest", "the lowest process that runs looks often", the_lowest_that_runs},
    {"io_watch: none", "where no process watches, each looks often", no_process_that_watches},
    {"io_watch: ended", "a process watches until its last connection with an IO thread closes",
     watching_ends_with_the_last_thread},
    {"io_watch: missing", "the lowest reaps the dead and asks for a housekeeper", the_lowest_asks_for_a_housekeeper},
    {"io_watch: others", "the others ask for a housekeeper when nobody did for a while", the_others_wait_a_while},
    {"io_watch: since", "the others count from the last look that found one", the_others_wait_since_it_was_there},
    {"io_watch: runs", "a look that is due begins the next run", runs_that_end_early},
    {"io_watch: turns", "who is busy without end looks, too", turns_without_end},
    {"io_watch: beat", "the lowest leaves a beat at each look", the_lowest_leaves_its_beat},
    {"io_watch: fresh", "who sees a beat of less than a second asks no further", a_fresh_beat_is_believed},
    {"io_watch: stopped", "the lowest does the work of a stopped housekeeper, and asks for a stand-in",
     somebody_stands_in},
    {"io_watch: takes turns", "a housekeeper that took a turn since the last look is not asked about",
     who_takes_turns_runs},
    {"io_watch: no need", "nobody but the lowest stands in, and only for one that is there",
     nobody_stands_in_without_need},
    {"io_watch: asked", "a stand-in is asked for once in a while, where one is wanted", nobody_is_asked_again},
    {"io_watch: visits", "a visit holds the lock for a few queues at a time", visits_hold_the_lock_for_a_while},
    {"io_watch: parked", "a visit parks the consumers of stopped processes", visits_park_who_is_stopped},
};
SUBJECT(CASES)
