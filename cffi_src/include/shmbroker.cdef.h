// SPDX-License-Identifier: Apache-2.0
/* The public face of the C core. cffi reads this file verbatim; shmbroker.h includes it: one declaration serves both.
   Times are nanoseconds of CLOCK_MONOTONIC (deadline UINT64_MAX = for ever). Functions that return int64_t give a
   length or count >= 0, or minus a status. All of them may return SB_FORKED, SB_CLOSED, SB_GROW. */

typedef enum {
  SB_OK = 0,
  SB_EMPTY = 1,
  SB_FULL = 2,
  SB_NO_MEMORY = 3,
  SB_GROW = 4, /* a segment must be added, then the call repeated */
  SB_NOT_FOUND = 5,
  SB_DELETED = 6,
  SB_EXISTS = 7,
  SB_CORRUPT = 8,
  SB_FORKED = 9,
  SB_CLOSED = 10,
  SB_TIMEOUT = 11,
  SB_INVALID = 12,
  SB_TOO_LARGE = 13,
  SB_SETTLED = 14, /* the message was settled already */
  SB_LAYOUT = 15,
  SB_SYSTEM = 16, /* see errno */
  SB_IN_USE = 17,
  SB_NOT_EMPTY = 18,
  SB_INTERRUPTED = 19,
  SB_LIMIT = 20,
  SB_DONE = 21,
  SB_CLOSED_CELL = 22,
  SB_ADDRESS_SPACE = 23,
  SB_ACCESS = 24,
  SB_NO_CREDIT = 25,
  SB_STOPPING = 26,
  SB_NO_HOUSEKEEPER = 27,
  SB_TICK = 28,
  SB_READY = 29 /* a channel is to be handed over, see sb_next_ready */
} sb_status;

/* The layout of the shared memory that this core reads. */
enum { SB_LAYOUT_MAJOR = 1, SB_LAYOUT_MINOR = 6 };

/* The address of a body that cannot be read in place. */
enum { SB_IN_PARTS = 1 };

typedef struct sb_broker sb_broker;
typedef struct sb_connection sb_connection;
typedef struct sb_queue sb_queue;
typedef struct sb_consumer sb_consumer;
typedef struct sb_channel sb_channel;
typedef struct sb_watch sb_watch;

/* What keeps chunks of 2 MiB: slots of one size, or (slot_bytes 0) bodies that have chunks to themselves. */
enum { SB_KEPT_FACTS = 64 };
typedef struct {
  uint64_t slot_bytes;
  uint64_t slots, used; /* that there are, and those in use */
  uint64_t held;        /* by messages of one queue, which has most */
  uint32_t queue;       /* its slot; 0: no queue has any */
  uint32_t whole;       /* 0: that queue has more messages than were looked at */
  uint32_t chunks;
  uint32_t kind; /* of the broker's own objects; 0 = messages */
} sb_kept_facts;

/* What a get writes in front of exchange, key, properties and body. 64 bytes. */
typedef struct {
  uint64_t tag; /* holding token, consumer's place << 40 */
  uint64_t sequence;
  uint64_t body_length;
  uint64_t body_address; /* 0: the body follows; else it lies in shared memory */
  uint64_t timestamp_ns; /* CLOCK_REALTIME */
  uint64_t expires_ns;
  uint32_t properties_length;
  uint32_t key_length;
  uint16_t delivery_count;
  uint8_t redelivered;
  uint8_t priority;
  uint16_t subscription;
  uint8_t exchange_length; /* exchange, key, properties and body follow in this order */
  uint8_t settled;         /* of a channel: 1 = acknowledged when it was given */
} sb_record;

typedef struct {
  int64_t ring_size, max_length, max_bytes;
  uint32_t overflow, flags;            /* SB_QUEUE_... */
  uint64_t message_ttl_ms, expires_ms; /* count if their flags are set */
} sb_settings;                         /* the first three: -1 = none */
/* Flags of a queue. */
enum {
  SB_QUEUE_PAUSED = 1,
  SB_QUEUE_DURABLE = 2,
  SB_QUEUE_EXCLUSIVE = 4,
  SB_QUEUE_AUTO_DELETE = 8,
  SB_QUEUE_SINGLE_ACTIVE = 16,
  SB_QUEUE_TTL = 32,
  SB_QUEUE_EXPIRES = 64,
  SB_QUEUE_KEEPS = 128, /* its messages do not expire as long as they are in it, and keep their sequence */
  SB_QUEUE_NOTES = 256, /* the broker's own notes: puts may use the reserve of memory */
  SB_QUEUE_STAGE = 512  /* what is staged: puts may use the reserve, except its last part */
};

typedef struct {
  uint64_t ttl_ns, delay_ns; /* 0 = none */
  const char *key;
  const char *properties;
  const char *exchange;
  uint32_t key_length, properties_length;
  uint8_t exchange_length;
  uint8_t priority;
} sb_put_options;

/* A body to put. */
typedef struct {
  const char *data;
  uint64_t length;
} sb_piece;

/* Where a message that was browsed lies: of use to every process of the broker, as long as the message is there. */
typedef struct {
  uint64_t generation;
  uint64_t length; /* of the body */
  uint32_t slot;
  uint32_t reserved;
} sb_place;

/* Texts that lie behind each other: `ends` has one more than there are, and begins with where the first one does. */
typedef struct {
  int32_t *ends; /* NULL: this column is not wanted */
  char *bytes;
  uint64_t room, needed;
} sb_column;

/* Messages by column, in the form of Arrow's arrays. NULL: not wanted. The last two are a bit for each row. */
typedef struct {
  sb_column key, properties, body;
  int64_t *sequence, *timestamp_us;
  sb_place *place;
  uint8_t *redelivered, *has_key;
} sb_columns;

/* A body that goes to several queues, whose handles are of the same connection. */
typedef struct {
  const char *body;
  uint64_t length;
  const sb_put_options *options; /* NULL = none */
  sb_queue **targets;
  uint32_t target_count;
} sb_publication;

/* A message that the connection holds; token: that of its record's tag, how: as in sb_settle; delivery_tag: that of the
 * channel it was found in, which a commit does not look at. */
typedef struct {
  sb_queue *queue;
  uint64_t token;
  uint32_t how;
  uint64_t delivery_tag;
} sb_settlement;

typedef struct {
  uint64_t token, gen, size;
  uint32_t slot;
  bool scattered; /* there is no such piece: the body goes into several, and to write it there is private memory */
  bool placed;    /* it has a place in the queue; from its commit on, or when it was abandoned, no more */
  bool kept;      /* it has its slot: from its commit on that is the message's */
  void *body;
} sb_reservation;

/* A call that waits: until when, and when it lets its caller look around (SB_TICK; UINT64_MAX = never). Between two
   looks it keeps its place among those who wait (node, 0 = none yet); sb_end_wait gives that up. */
typedef struct {
  uint64_t deadline_ns, look_ns, token;
  uint32_t node;
} sb_wait;

typedef struct {
  char name[128];
  uint64_t memory_limit, memory_used, memory_structures, memory_bodies; /* the last two: whole chunks */
  uint64_t memory_room;                                                 /* the longest body that would find room now */
  uint64_t instance, created_ns, rescues, stopped_rescues, reaped, ticks;
  uint32_t repairs[6], explained_repairs[6]; /* by kind: notifications, room, counts, accounts, marks, ends */
  uint32_t segments, segments_limit, chunks_per_segment, queues, stopped, connections, processes, housekeeper_pid,
      closing, mode, housekeeper_stopped;
} sb_broker_facts;

typedef struct {
  char name[256];
  uint32_t name_length, slot;
  sb_settings settings;
  uint64_t incarnation;
  uint64_t ready, delivering, scheduled, bytes;
  uint64_t added, acked, expired, killed, replaced, dropped, dead_lettered, moved, redelivered, delivered;
  uint64_t rescues, tail, created_ns;
  uint32_t owner, locked; /* of an exclusive queue: the connection, 0 = none; 1: it is another one than the caller's */
  int32_t consumers, interested, notified, not_interested, non_acquiring, room_waiting;
} sb_queue_facts;

typedef struct {
  char name[256];
  uint32_t id, pid, consumers, channels;
  uint64_t created_ns, holding;
} sb_connection_facts;

typedef struct {
  uint32_t connection, pid, state, flags, prefetch, unacked, channel; /* channel: its number, 0 = of none */
  int32_t priority;
  uint64_t delivered, wakes;
} sb_consumer_facts;

/* What a check finds; wording.py has a sentence for each code, and for each `which` of those that have several. */
typedef enum {
  SB_NOT_CHECKED = 1,  /* nothing was looked at: `found` is the status */
  SB_BAD_HEADER,       /* a field of the broker's header */
  SB_BAD_CLASS,        /* a class of slots */
  SB_BAD_CHUNK,        /* a chunk word */
  SB_BAD_SLOT,         /* a slot header in an impossible state; of: the kind */
  SB_BAD_OWNER,        /* a slot or cell of a connection that does not exist */
  SB_UNLISTED,         /* a slot whose owner does not know it: it would be lost with its owner; of: the kind */
  SB_LEAKED_SLOT,      /* a slot that nothing refers to; of: the kind */
  SB_BAD_CONNECTION,   /* a connection word or record */
  SB_BAD_HOLDING,      /* an entry of a table of holdings */
  SB_BAD_DIRECTORY,    /* a directory entry */
  SB_BAD_QUEUE,        /* a field of a queue object */
  SB_BAD_CHAIN,        /* the ledgers or the levels of a queue */
  SB_BAD_LEDGER,       /* a ledger */
  SB_BAD_PAGE,         /* a page or a link to one; of: the ring */
  SB_BAD_CELL,         /* a cell word; of: the ring */
  SB_BAD_TAIL,         /* a hole in a ring, or a hint beyond its end; of: the ring */
  SB_LOST_BODY,        /* a cell names a slot that does not hold its message */
  SB_SHARED_REFERENCE, /* two cells hold the same reference */
  SB_BAD_MESSAGE,      /* a message header that does not fit its slot */
  SB_HIDDEN_CELL,      /* a ready message before the head that no bit leads to */
  SB_BAD_COUNT,        /* counters differ from the cells */
  SB_BAD_HINT,         /* `taken`, `admitted` ... differ from the cells */
  SB_BAD_LIST,         /* interested, notified ... differ from the lists */
  SB_BAD_ENTRY,        /* an entry of a consumer list; of: the ring */
  SB_LOST_NODE,        /* a consumer that is not in its list */
  SB_BAD_TIMER,        /* an entry of the schedule */
  SB_UNREAPED          /* somebody died and is not cleared up after: may explain the others */
} sb_trouble;

typedef struct {
  uint32_t code, queue, slot, which, of;
  uint64_t where, found, expected;
} sb_finding;

/* ---- broker ---- */
uint64_t sb_segment_bytes(uint32_t number, uint32_t chunks_per_segment);
sb_status sb_broker_format(void *memory, uint64_t bytes, const char *name, uint64_t memory_limit,
                           uint32_t chunks_per_segment, uint32_t mode, uint64_t instance);
sb_broker *sb_broker_attach(const char *path, sb_status *status, uint32_t *major, uint32_t *minor);
void sb_broker_detach(sb_broker *b);
/* As above; the handle lies in *place when the call ends: whoever is interrupted after it finds it there. */
sb_status sb_broker_attach_at(const char *path, sb_broker **place, uint32_t *major, uint32_t *minor);
sb_status sb_broker_grown(sb_broker *b, uint32_t number);
void sb_broker_grow_again(sb_broker *b, uint64_t not_before_ns);
void sb_broker_describe(sb_broker *b, sb_broker_facts *facts, bool in_full);
bool sb_broker_is_closing(sb_broker *b);
void sb_broker_set_closing(sb_broker *b, uint32_t closing);
void sb_broker_set_stopped(sb_broker *b, uint32_t stopped);
uint64_t sb_layout_hash(void);

/* ---- connection ---- */
sb_connection *sb_connect(sb_broker *b, const char *name, uint32_t length, sb_status *status);
sb_status sb_connect_at(sb_broker *b, const char *name, uint32_t length, sb_connection **place);
/* The end of what nobody refers to any more: closes and forgets it, unless that was done, and gives back the handle. */
void sb_connection_dropped(sb_connection **place);
sb_status sb_disconnect(sb_connection *c);
bool sb_forget(sb_connection *c);
void sb_free_connection(sb_connection *c);
uint32_t sb_connection_id(sb_connection *c);
sb_status sb_connection_run_io(sb_connection *c);
void sb_connection_wake(sb_connection *c);
/* Says how many channels are open: for sb_connection_describe, which others call. */
void sb_connection_channels(sb_connection *c, uint32_t count);
sb_status sb_connection_describe(sb_broker *b, uint32_t id, sb_connection_facts *facts);

/* ---- topology: several changes under one lock, and the journal of exchanges and bindings ---- */
sb_status sb_topology_begin(sb_connection *c, uint64_t deadline_ns, int32_t *holder);
void sb_topology_end(sb_connection *c);
/* 16 number of the file | 48 bytes of it that count; to be changed under the lock only. */
uint64_t sb_journal(sb_connection *c);
void sb_journal_commit(sb_connection *c, uint64_t word);
/* Moves on with every change of the topology: what was derived from it holds as long as this stays the same. */
uint64_t sb_topology_version(sb_connection *c);

/* How many queues ended by themselves so far: then there may be bindings to remove. */
uint32_t sb_queues_ended(sb_connection *c);

/* ---- queues ---- */
sb_status sb_find(sb_connection *c, const char *name, uint32_t length, uint32_t *slot);
sb_status sb_declare(sb_connection *c, const char *name, uint32_t length, const sb_settings *settings,
                     uint64_t deadline_ns, uint32_t *slot, int32_t *holder);
/* It is declared once more, perhaps passively: one that expires lives on. */
void sb_touch(sb_connection *c, uint32_t slot);
sb_queue *sb_open(sb_connection *c, uint32_t slot, sb_status *status);
bool sb_leave(sb_queue *q);
void sb_free_queue(sb_queue *q);
sb_status sb_configure(sb_queue *q, const sb_settings *settings, bool trim, uint64_t deadline_ns, int32_t *holder);
sb_status sb_delete(sb_queue *q, bool if_unused, bool if_empty, uint64_t deadline_ns, int32_t *holder,
                    uint64_t *removed);
sb_status sb_describe(sb_connection *c, uint32_t slot, sb_queue_facts *facts);
uint32_t sb_next_queue(sb_connection *c, uint32_t *index);
/* Fills SB_KEPT_FACTS of them. */
sb_status sb_kept(sb_connection *c, uint64_t looks, sb_kept_facts *facts);
int64_t sb_length(sb_queue *q);
int64_t sb_purge(sb_queue *q);
/* At most `limit` messages, and none after the one with which *bytes are reached; *bytes is lowered by what was moved. */
int64_t sb_move(sb_queue *q, sb_queue *target, uint64_t limit, uint64_t *bytes, sb_status *status);
int64_t sb_consumers_of(sb_connection *c, uint32_t slot, sb_consumer_facts *facts, uint32_t room);

/* ---- messages ---- */
sb_status sb_put(sb_queue *q, const char *body, uint64_t length);
sb_status sb_put_with(sb_queue *q, const char *body, uint64_t length, const sb_put_options *options);
/* How many went, before the status that stopped the others. */
int64_t sb_put_many(sb_queue *q, const sb_piece *pieces, uint32_t count, const sb_put_options *options,
                    sb_status *status);
/* The rows of columns `body`, and `key` and `properties` where they are wanted, from one on; how many went. */
int64_t sb_put_columns(sb_queue *q, const sb_columns *columns, uint32_t row, uint32_t count, sb_status *status);
sb_status sb_reserve(sb_queue *q, uint64_t length, const sb_put_options *options, sb_reservation *r);
sb_status sb_commit(sb_queue *q, sb_reservation *r);
/* Somebody kept a view to write with: the copy is what is committed, in place of the reservation, and has its place. */
sb_status sb_reserve_copy(sb_queue *q, sb_reservation *r, sb_reservation *copy);
/* viewed: the slot stays until sb_end_reserved_view. What was committed, or abandoned before, stays as it is: who was
   interrupted may call either without knowing how far it went. */
void sb_abandon(sb_queue *q, sb_reservation *r, bool viewed);
void sb_end_reserved_view(sb_connection *c, sb_reservation *r);
sb_status sb_wait_for_room(sb_queue *q, bool memory, uint64_t bytes, uint64_t deadline_ns);
int64_t sb_get(sb_queue *q, char *buffer, bool auto_ack);
int64_t sb_get_soon(sb_queue *q, uint64_t limit_ns, char *buffer, bool auto_ack);
int64_t sb_get_wait(sb_queue *q, char *buffer, bool auto_ack, sb_wait *wait);
void sb_end_wait(sb_queue *q, sb_wait *wait);
int64_t sb_get_many(sb_queue *q, uint32_t count, bool auto_ack, char *buffer, uint64_t size, uint32_t *index,
                    uint64_t *used);
int64_t sb_get_many_wait(sb_queue *q, uint32_t count, bool auto_ack, char *buffer, uint64_t size, uint32_t *index,
                         uint64_t *used, sb_wait *wait);
sb_status sb_settle(sb_queue *q, const char *record, uint32_t how);
/* Of the records that begin at index[0], index[stride], ... */
sb_status sb_settle_many(sb_queue *q, const char *records, const uint32_t *index, uint32_t stride, uint32_t count,
                         uint32_t how);
sb_status sb_begin_view(sb_connection *c, uint64_t tag, uint64_t sequence, uint64_t address, uint64_t *view);
/* The body of a view whose address is SB_IN_PARTS: it lies in several pieces, and is copied. */
sb_status sb_copy_view(sb_connection *c, uint64_t view, char *to, uint64_t length);
/* True: the connection is closed, and may be forgotten now. */
bool sb_end_view(sb_connection *c, uint64_t view);
int64_t sb_browse(sb_queue *q, uint64_t *position, char *buffer, uint64_t size);
/* Up to `count` ready messages from a position on, which is moved behind the last; how many there were. SB_EMPTY: there were
   no more; SB_FULL: some column has no room for the next one, and says what it would have needed. */
int64_t sb_browse_columns(sb_queue *q, uint64_t *position, uint32_t count, sb_columns *columns, sb_status *status);

/* ---- bodies that are read in place without holding their message ---- */
/* As sb_browse, without the body. */
int64_t sb_browse_place(sb_queue *q, uint64_t *position, char *buffer, uint64_t size, sb_place *place);
/* Keeps the body until sb_end_view. SB_SETTLED: there is another message, or none. SB_IN_USE: it is to be copied, since it
   is short, in many queues, or being read. */
sb_status sb_begin_reading(sb_connection *c, const sb_place *place, uint64_t *view, uint64_t *address);
/* SB_SETTLED: as above; what was written is of no use. */
sb_status sb_copy_body(sb_connection *c, const sb_place *place, char *to);

/* ---- publishing to several queues, transactions ---- */
/* All of it happens, or nothing does, whoever is killed. A body is stored once, whatever number of queues it goes to. A queue
   that was deleted is passed over, and so is a full one that drops what is new; any other status than SB_OK means that
   nothing happened, and the failed ones say which publication, and which of its queues (UINT32_MAX: none), is to blame.
   SB_FULL: wait for room in that queue, and call again. SB_SETTLED: a message is not held any more. A queue may be among
   the targets of a publication once. */
sb_status sb_commit_all(sb_connection *c, const sb_publication *publications, uint32_t count,
                        const sb_settlement *settlements, uint32_t settlement_count, uint32_t *failed_publication,
                        uint32_t *failed_target);

/* ---- consumers ---- */
sb_consumer *sb_consume(sb_connection *c, sb_queue **queues, uint32_t count, uint32_t prefetch, int32_t priority,
                        uint32_t ack_batch, uint64_t ack_interval_ns, sb_status *status);
void sb_consumer_cancel(sb_consumer *k, bool return_everything);
void sb_free_consumer(sb_consumer *k);
int64_t sb_consumer_next(sb_consumer *k, char *buffer, bool auto_ack);
sb_status sb_consumer_wait(sb_consumer *k, uint64_t deadline_ns);
sb_status sb_consumer_settle(sb_consumer *k, const char *record, uint32_t how);
void sb_consumer_send_acks(sb_consumer *k);
void sb_consumer_suspend(sb_consumer *k, bool suspended);
uint32_t sb_consumer_unacked(sb_consumer *k);
uint32_t sb_consumer_waiting(sb_consumer *k);
uint64_t sb_consumer_delivered(sb_consumer *k);
void sb_consumer_event(sb_consumer *k, int event_fd);
bool sb_consumer_arm_event(sb_consumer *k);

/* ---- channels: consumers that come and go, in one order ----
   What a channel gives has a delivery tag (1, 2, 3 ...) as its tag. If its body lies in shared memory, 8 more bytes follow
   where a short body would: the tag that sb_begin_view takes; or, of one that is settled, the view itself. */
enum { SB_CONSUME_AUTO_ACK = 1, SB_CONSUME_NO_LOCAL = 2, SB_CONSUME_EXCLUSIVE = 4 };
enum { SB_BY_GET = 65535 }; /* the subscription of what a get took */

/* user: the channel's number, which sb_next_ready gives and sb_consumers_of shows; not 0. */
sb_channel *sb_channel_open(sb_connection *c, uint64_t user, sb_status *status);
/* From any thread, and again: its consumers end, what it holds goes back, calls that wait on it end with SB_CLOSED. */
void sb_channel_close(sb_channel *ch);
void sb_free_channel(sb_channel *ch);
sb_status sb_channel_consume(sb_channel *ch, sb_queue *q, uint32_t prefetch, int32_t priority, uint32_t flags,
                             uint32_t *subscription);
/* What was pulled for it and not given goes back; what was given stays unacked. SB_NOT_FOUND: there is none. */
sb_status sb_channel_cancel(sb_channel *ch, uint32_t subscription);
/* How many messages of consumers may be unacked, in the channel or in all of them; 0 = as many as there are. */
sb_status sb_channel_limit(sb_channel *ch, uint32_t prefetch);
sb_status sb_connection_limit(sb_connection *c, uint32_t prefetch);
/* The next delivery of any of its consumers; pulls itself when none waits. */
int64_t sb_channel_next(sb_channel *ch, char *buffer);
/* A consumer that ended because its queue was deleted; each is told once. */
bool sb_channel_next_cancelled(sb_channel *ch, uint32_t *subscription);
int64_t sb_channel_get(sb_channel *ch, sb_queue *q, char *buffer, bool auto_ack);
int64_t sb_channel_get_wait(sb_channel *ch, sb_queue *q, char *buffer, bool auto_ack, sb_wait *wait);
/* how: 0 ack, 1 requeue, 2 reject, 3: the application never saw it, it is the next one again (the last one keeps its tag).
   multiple: that one and all before it; tag 0: all. SB_SETTLED: there is no such delivery. */
sb_status sb_channel_settle(sb_channel *ch, uint64_t delivery_tag, bool multiple, uint32_t how);
sb_status sb_channel_recover(sb_channel *ch);
/* What sb_channel_settle would settle; how many there are, of which `room` are written. */
int64_t sb_channel_collect(sb_channel *ch, uint64_t delivery_tag, bool multiple, uint32_t how,
                           sb_settlement *settlements, uint32_t room);
/* They were settled; of those before the tag some may have been forgotten, and that one too. */
void sb_channel_forget(sb_channel *ch, uint64_t delivery_tag, bool multiple);
uint32_t sb_channel_unacked(sb_channel *ch); /* given, and not settled */
uint32_t sb_channel_waiting(sb_channel *ch); /* pulled, and not given */
uint64_t sb_channel_delivered(sb_channel *ch);
/* Asks to be handed over, once, when something comes; true: something is there, and nothing was asked for. */
bool sb_channel_arm(sb_channel *ch);
/* The `user` of the next channel that is to be handed over, 0 = none. sb_connection_run_io returns SB_READY when there is one,
   and SB_GROW when there is no room for what a channel is to pull. */
uint64_t sb_next_ready(sb_connection *c);

/* ---- watches: waiting without a thread ----
   The descriptor is written when a message, or room, may be there. After arming one tries once more before one waits. */
sb_watch *sb_watch_open(sb_queue *q, bool room, int event_fd, sb_status *status);
sb_status sb_watch_arm(sb_watch *w, uint64_t bytes);
void sb_watch_disarm(sb_watch *w);
void sb_watch_close(sb_watch *w);
void sb_free_watch(sb_watch *w);

/* ---- housekeeper ---- */
sb_status sb_housekeeper_begin(sb_connection *c);
void sb_housekeeper_end(sb_connection *c);
/* Does its work beside one that is stopped, until that one is relieved: goes on, or is gone. */
sb_status sb_housekeeper_stand_in(sb_connection *c);
bool sb_housekeeper_is_relieved(sb_connection *c);
void sb_housekeeper_step_down(sb_connection *c);
bool sb_housekeeper_stopped(sb_broker *b);
/* From here on it is woken; what came before is looked for between this and the wait, which takes the word. */
uint32_t sb_housekeeper_arm(sb_connection *c);
sb_status sb_housekeeper_wait(sb_connection *c, uint32_t armed, uint64_t deadline_ns);
void sb_housekeeper_next_due(sb_connection *c, uint64_t due_ns);
/* `memory`: SB_MEMORY_WORDS for each queue, zero at first. */
enum { SB_MEMORY_WORDS = 11 };
void sb_housekeeper_tick(sb_connection *c, uint32_t slot, uint64_t *memory);
uint32_t sb_housekeeper_ticks(sb_connection *c, sb_queue *const *queues, uint64_t *memories, uint32_t count);
uint32_t sb_housekeeper_new_timers(sb_queue *const *queues, uint64_t *memories, uint32_t count);
uint64_t sb_housekeeper_changes(sb_connection *c);
int64_t sb_housekeeper_timers(sb_queue *q, uint64_t *cursor, uint64_t *positions, uint32_t room);
uint64_t sb_housekeeper_look_at(sb_queue *q, uint64_t position);
void sb_housekeeper_trim(sb_queue *q);
uint32_t sb_housekeeper_sweep(sb_connection *c, uint64_t deadline_ns);
bool sb_housekeeper_reclaim(sb_connection *c);
void sb_reclaim(sb_connection *c);
bool sb_housekeeper_missing(sb_broker *b);
uint32_t sb_recover(sb_connection *c);
bool sb_recover_one(sb_connection *c, uint32_t process);
uint32_t sb_process_attaches(sb_broker *b);
uint32_t sb_process_pids(sb_broker *b, int32_t *pids, uint32_t room);

/* ---- doctor: reads only; returns how many findings there are, of which `room` fit ---- */
uint32_t sb_check(sb_connection *c, sb_finding *findings, uint32_t room);
