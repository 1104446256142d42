// SPDX-License-Identifier: Apache-2.0
/* The public functions of the C core. cffi reads this file verbatim, and shmbroker.h includes it.
   Points in time are nanoseconds of CLOCK_MONOTONIC (deadline UINT64_MAX = for ever). Three are of CLOCK_REALTIME:
   `created_ns`, `timestamp_ns`, and `timestamp_us`, which is in microseconds. Functions that return int64_t return a
   length or count >= 0, or minus a status. Every function that returns a status may return SB_FORKED (the caller is a
   forked child), SB_CLOSED, SB_STOPPING (the broker is being purged; from sb_housekeeper_wait also: the housekeeper
   must end) or SB_GROW.
   A body is long if it has more than SB_INLINE_BODY bytes. A view keeps the slot of a body until sb_view_end, also
   after the message was settled. */

typedef enum {
  SB_OK = 0,
  SB_EMPTY = 1,
  SB_FULL = 2,
  SB_NO_MEMORY = 3,
  SB_GROW = 4, /* the caller must load messages (sb_store_wanting) or add a segment, then repeat the call */
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
  SB_READY = 29,     /* a channel is ready, see sb_connection_next_ready */
  SB_REJECTED = 30,  /* the queue has no room, and rejects the message: waiting does not help */
  SB_UNLOCKED = 31,  /* the caller must take the topology lock (sb_topology_begin), then repeat the call */
  SB_NO_SEAT = 32,   /* the queue has as many consumers as max_consumers allows, or more than its new value */
  SB_DUPLICATE = 33, /* the queue knows the id of the message; only of a commit with SB_DUPLICATES_FAIL */
  SB_UNDECIDED = 34, /* another process is putting a message of the same id: see sb_queue_wait_for_id */
  SB_STAYS = 35,     /* the queue is non-destructive: consumers and browsers read its messages, and nobody gets one */
  SB_PAGED = 36,     /* inside the core: the messages are in the store, and not in the memory */
  SB_STORE_FULL = 37 /* the disk of the store is full: see sb_store_await_room */
} sb_status;

/* The version of the layout of shared memory that this core reads. */
enum { SB_LAYOUT_MAJOR = 1, SB_LAYOUT_MINOR = 23 };

/* Offsets of two bytes of the lock file. A process locks SUCCESSOR while it waits to replace an automatic housekeeper,
 * one that a client started. A client locks STARTING before it starts one. The housekeeper inherits this lock, and
 * releases it when it serves. */
enum { SB_LOCK_SUCCESSOR = 3, SB_LOCK_STARTING = 4 };
/* The byte of the lock file that the storekeeper locks. */
enum { SB_LOCK_STOREKEEPER = 5 };

/* The limits of a broker. */
enum {
  SB_MAX_CONNECTIONS = 4096, /* includes id 0, which names no connection */
  SB_MAX_PROCESSES = 4096,
  SB_MAX_QUEUES = 49152,
  SB_MAX_SEGMENTS = 255, /* not counting segment 0; these hold the arena: the memory for bodies and structures */
  SB_MAX_CHUNKS = 32768,
  SB_CHUNK_BYTES = 2 << 20,
  SB_NAME_MAX = 255,     /* bytes of the name of a queue, an exchange or a connection */
  SB_MAX_PREFIX = 65536, /* bytes of message header, exchange, key and properties together */
  SB_MAX_BODY = 1 << 30,
  SB_INLINE_BODY = 4096 /* a get copies bodies up to so many bytes into the record; longer ones are read in place */
};

/* ---- selectors: programs that the package compiles, and that the core runs over the properties of messages ----
 * sb_program.h describes the format of a program, sb_operators.h what each instruction computes. */
enum {
  SB_PROGRAM_VERSION = 1,     /* the first byte of a program */
  SB_PROGRAM_BYTES = 65535,   /* the most bytes of a program */
  SB_PROGRAM_DEPTH = 32,      /* the most values that a program keeps at a time */
  SB_PATTERN_BYTES = 1024,    /* the most bytes of a pattern of LIKE */
  SB_PATTERN_ANY = 255,       /* in a pattern: any number of characters. UTF-8 never has this byte, nor the next one */
  SB_PATTERN_CHARACTER = 254, /* in a pattern: one character */
  SB_MOST_DECIMAL_SCALE = 22  /* the most digits behind the point of a header of type decimal that is a number */
};
/* The instructions of a program. The name says the operands that follow in the program, numbers with their lowest byte
 * first: U8, U16, I64, F64, or TEXT8 and TEXT16: a text behind its length in one or two bytes. */
typedef enum {
  SB_OP_TRUE = 1,
  SB_OP_FALSE,
  SB_OP_INTEGER_I64,
  SB_OP_DOUBLE_F64,
  SB_OP_STRING_TEXT16,
  SB_OP_PROPERTY_U8, /* SB_PROPERTY_... */
  SB_OP_HEADER_TEXT8,
  SB_OP_NEGATE,
  SB_OP_ADD,
  SB_OP_SUBTRACT,
  SB_OP_MULTIPLY,
  SB_OP_DIVIDE,
  SB_OP_EQUAL,
  SB_OP_NOT_EQUAL,
  SB_OP_LESS,
  SB_OP_LESS_OR_EQUAL,
  SB_OP_GREATER,
  SB_OP_GREATER_OR_EQUAL,
  SB_OP_BETWEEN,
  SB_OP_IN_U16, /* as many bytes of constants follow: instructions SB_OP_INTEGER, SB_OP_DOUBLE and SB_OP_STRING */
  SB_OP_LIKE_TEXT16,
  SB_OP_IS_NULL,
  SB_OP_NOT,
  SB_OP_AND,
  SB_OP_OR,
  SB_OP_SKIP_IF_FALSE_U16, /* as many bytes of the program are skipped if the value is false, which then stays */
  SB_OP_SKIP_IF_TRUE_U16
} sb_opcode;
/* What SB_OP_PROPERTY reads. The first fourteen are AMQP's properties, in the order of their flags. HEADERS has no
 * value in a program. PRIORITY is that of the message, also if the properties have none. */
enum {
  SB_PROPERTY_CONTENT_TYPE,
  SB_PROPERTY_CONTENT_ENCODING,
  SB_PROPERTY_HEADERS,
  SB_PROPERTY_DELIVERY_MODE,
  SB_PROPERTY_PRIORITY,
  SB_PROPERTY_CORRELATION_ID,
  SB_PROPERTY_REPLY_TO,
  SB_PROPERTY_EXPIRATION,
  SB_PROPERTY_MESSAGE_ID,
  SB_PROPERTY_TIMESTAMP,
  SB_PROPERTY_TYPE,
  SB_PROPERTY_USER_ID,
  SB_PROPERTY_APP_ID,
  SB_PROPERTY_CLUSTER_ID,
  SB_PROPERTY_JMS_TIMESTAMP,     /* milliseconds: of the property timestamp, else of the publish */
  SB_PROPERTY_JMS_DELIVERY_MODE, /* 'PERSISTENT' if the property delivery_mode is 2, else 'NON_PERSISTENT' */
  SB_PROPERTIES
};
/* Which messages to select, and what to write down about them. */
typedef struct {
  const char *selector; /* a program; length 0: all messages are selected */
  const char *group;    /* a program, whose value is written for each message; length 0: nothing is written */
  char *values;         /* the values, encoded as values of an AMQP table; an array, a table or NULL as the letter V */
  char *memory;         /* SB_MAX_PREFIX bytes, for the properties of a message whose body is in parts */
  uint64_t room, used;  /* bytes of `values`; bytes that the call wrote there */
  uint32_t selector_length, group_length;
} sb_selection;

/* Where a message can be in a queue: bits, of which a call gets those of the messages that it looks at. */
enum {
  SB_STATE_READY = 1,
  SB_STATE_SCHEDULED = 2,  /* it becomes ready at a time */
  SB_STATE_DELIVERING = 4, /* a connection holds it */
  SB_STATE_DEAD = 8        /* it waits to go to the dead-letter exchange */
};
typedef struct {
  uint64_t due_ns;     /* of a SCHEDULED message: when it becomes ready */
  uint32_t state;      /* SB_STATE_... */
  uint32_t connection; /* the id of the connection that holds a DELIVERING message */
} sb_whereabouts;

/* Replaces the address of a body that lies in several parts. Such a body cannot be read in place, only copied. */
enum { SB_IN_PARTS = 1 };

typedef struct sb_broker sb_broker;
typedef struct sb_connection sb_connection;
typedef struct sb_queue sb_queue;
typedef struct sb_consumer sb_consumer;
typedef struct sb_channel sb_channel;
typedef struct sb_watch sb_watch;

/* Kinds of slots. All slots of one class have the same kind and the same size. Messages have a class for each of
 * several sizes. Each other kind has one class; the numbers of these classes follow those of the message classes. */
enum {
  SB_KIND_MESSAGE = 0,
  SB_KIND_LEAF,
  SB_KIND_INNER,
  SB_KIND_QUEUE,
  SB_KIND_NODE,
  SB_KIND_CONSUMER_LEVEL,
  SB_KIND_LEDGER,
  SB_KIND_CONNECTION,
  SB_KIND_HOLDINGS,
  SB_KIND_LONG_LEAF,
  SB_KIND_LONG_QUEUE,
  SB_KIND_LANE,
  SB_KIND_GROUPS,
  SB_KIND_VALUE_NODE,
  SB_KIND_IDS,
  /* The number of kinds. A slot id is an offset. If no slot begins there, the doctor reports this number as the
   * kind. */
  SB_KIND_COUNT
};

/* Facts of one class of slots: its chunks (of 2 MiB), and the use of its slots. sb_broker_describe_chunks fills in an
 * array of these structs. Its element 0 (slot_bytes 0) is about bodies that have whole chunks to themselves: those that
 * are too long for any class, unless they lie in parts. */
enum { SB_CHUNK_FACTS = 64 };
typedef struct {
  uint64_t slot_bytes;
  uint64_t slots, used; /* slots that exist, and slots in use */
  uint64_t held;        /* slots of this class that the messages of `queue` occupy */
  uint32_t queue;       /* slot id of the queue whose messages occupy the most of these slots; 0 = none */
  uint32_t whole;       /* 0: not all messages of `queue` were read, so `held` may be too low */
  uint32_t chunks;
  uint32_t kind; /* SB_KIND_...: what the slots hold */
} sb_chunk_facts;

/* `settled` in the record of a message that a channel gives to an auto_ack consumer or get. 1: the channel acknowledged
   the message. 2: the channel did not, since the body is long, and the channel got no view to keep it. The caller reads
   the body first, and then acknowledges the message by its delivery tag. */
enum { SB_GIVEN_SETTLED = 1, SB_GIVEN_UNREAD = 2 };
/* Bits of `marks` of a record: the message was delivered before; it is the first one of its group that its consumer got. */
enum { SB_MARK_REDELIVERED = 1, SB_MARK_GROUP_FIRST = 2 };
/* The record of a message, as a get, a consumer, a channel or a browse writes it: this struct (64 bytes), then
   exchange, key, properties and body. */
typedef struct {
  /* From a channel: the delivery tag. From a browse: 0. From a queue or a consumer with auto_ack, if the body is long:
     the view that keeps the body. Else in the low 40 bits the token of the connection's entry for the message, and
     above them, from a consumer, the index in its table of unacked messages. */
  uint64_t tag;
  uint64_t sequence;
  uint64_t body_length;
  /* 0: the record contains the body, or it is of sb_queue_browse_place, which writes no body; else the body's address
     in this process, or SB_IN_PARTS */
  uint64_t body_address;
  uint64_t timestamp_ns; /* CLOCK_REALTIME */
  uint64_t expires_ns;
  uint32_t properties_length;
  uint32_t key_length;
  uint16_t delivery_count;
  uint8_t marks; /* SB_MARK_... */
  uint8_t priority;
  uint16_t subscription;
  uint8_t exchange_length; /* after this struct: exchange, key, properties, body, in this order */
  uint8_t settled;         /* from a channel: SB_GIVEN_..., or 0: the caller settles the message. Else always 0 */
} sb_record;

/* The settings of a queue that are numbers. The rows of shmbroker/settings.py name them. Puts and gets read the first
 * four often, so sb_layout.h keeps these four in one cache line. */
enum {
  SB_SETTING_RING_SIZE,
  SB_SETTING_MAX_LENGTH,
  SB_SETTING_MAX_BYTES,
  SB_SETTING_OVERFLOW, /* SB_OVERFLOW_... */
  SB_SETTING_MESSAGE_TTL_MS,
  SB_SETTING_EXPIRES_MS,
  SB_SETTING_MAX_PRIORITY, /* the highest priority of a message; 0 = the queue has no priorities */
  SB_SETTING_MAX_DELIVERY_ATTEMPTS,
  SB_SETTING_REDELIVERY_DELAY_MS,   /* 0 = none */
  SB_SETTING_REDELIVERY_MULTIPLIER, /* in thousandths */
  SB_SETTING_MAX_REDELIVERY_DELAY_MS,
  SB_SETTING_MESSAGE_GROUPS, /* SB_GROUPS_... */
  SB_SETTING_GROUP_BUCKETS,
  SB_SETTING_REDELIVERY_COLLISION,      /* in thousandths */
  SB_SETTING_SEATS,                     /* the most consumers, plus one; 0 = no limit */
  SB_SETTING_CONSUMERS_BEFORE_DISPATCH, /* 0 and 1: any consumer */
  SB_SETTING_DELAY_BEFORE_DISPATCH_MS,  /* 0 = none */
  SB_SETTING_DUPLICATE_IDS,             /* how many ids the queue remembers; 0 = none */
  SB_SETTING_EXPIRY_DELAY_MS,           /* 0 = none, as of the next two */
  SB_SETTING_MIN_EXPIRY_DELAY_MS,
  SB_SETTING_MAX_EXPIRY_DELAY_MS,
  SB_SETTING_RESUME_AT, /* percent; 0 and 100: a producer that waits continues when there is room (sb_limits.h) */
  SB_SETTINGS_GIVEN, /* no setting: which settings were given for the queue (_core/settings.py); the core only stores it */
  SB_SETTINGS_BIRTH, /* no setting: a random number, which the queue keeps when it is made again from the store */
  SB_SETTINGS
};
/* When a consumer that has a message group gives it up: when it leaves, or when it holds none of its messages. */
enum { SB_GROUPS_NONE = 0, SB_GROUPS_STICKY = 1, SB_GROUPS_SHARED = 2 };
enum { SB_TEXTS_MAX = 1532 }; /* the most bytes that all text settings of a queue have together */
/* What happens to a message for which a queue has no room. For the core, both REJECT_PUBLISH are the same: the caller
 * of a put that returned SB_REJECTED puts the message again, as a dead one (`dead` of sb_put_options), if the overflow is
 * REJECT_PUBLISH_DLX. */
enum {
  SB_OVERFLOW_BLOCK = 0,
  SB_OVERFLOW_DROP = 1,
  SB_OVERFLOW_DROP_HEAD = 2,
  SB_OVERFLOW_REJECT_PUBLISH = 3,
  SB_OVERFLOW_REJECT_PUBLISH_DLX = 4,
  SB_OVERFLOW_PAGE = 5, /* of a queue without limits: what has no room in the memory goes to the store */
  SB_OVERFLOWS
};
typedef struct {
  int64_t values[SB_SETTINGS]; /* -1 = none */
  uint32_t flags;              /* SB_QUEUE_... */
  uint32_t texts_length;       /* the number of bytes of the text settings */
  /* Encoded text settings. sb_queue_declare stores them, sb_queue_configure does not. sb_queue_describe fills in only
     texts_length (sb_texts returns the bytes). */
  const char *texts;
} sb_settings;
/* Flags of a queue. The core derives TTL, EXPIRES, LANES, GROUPS, SEATS, GATED and IDS from the settings. */
enum {
  SB_QUEUE_PAUSED = 1,
  SB_QUEUE_DURABLE = 2,
  SB_QUEUE_EXCLUSIVE = 4,
  SB_QUEUE_AUTO_DELETE = 8,
  SB_QUEUE_SINGLE_ACTIVE = 16,
  SB_QUEUE_TTL = 32,
  SB_QUEUE_EXPIRES = 64,
  SB_QUEUE_KEEPS = 128,  /* ready messages do not expire in it; a message moved into it keeps its sequence number */
  SB_QUEUE_NOTES = 256,  /* holds messages of the broker itself, so puts may use the reserve (sb_reserve.h) */
  SB_QUEUE_STAGE = 512,  /* holds messages until a commit publishes them: puts may use most of the reserve */
  SB_QUEUE_LANES = 1024, /* its messages have priorities (sb_lanes.h) */
  SB_QUEUE_DEAD_LETTERS = 2048,      /* dead messages wait to go to its dead-letter exchange (sb_park.h) */
  SB_QUEUE_AUTO_CREATED = 4096,      /* a publish or a consume made it: the housekeeper may delete it */
  SB_QUEUE_GROUPS = 8192,            /* a message group goes to one consumer at a time (sb_groups.h) */
  SB_QUEUE_IDS = 16384,              /* it remembers the ids of its last messages (sb_duplicates.h) */
  SB_QUEUE_LAST_VALUE = 131072,      /* of the messages with one key only the newest stays (sb_values.h) */
  SB_QUEUE_NON_DESTRUCTIVE = 262144, /* its messages stay when consumers have acknowledged them (sb_following.h) */
  SB_QUEUE_SORTED = 524288,          /* it delivers its messages in the order of a header (sb_sorted.h) */
  SB_QUEUE_SEATS = 32768, /* max_consumers limits its consumers: they attach under the topology lock (sb_admission.h) */
  SB_QUEUE_GATED = 65536, /* its consumers wait for others, or for a time, before they get messages (sb_dispatch.h) */
  SB_QUEUE_NO_EXPIRY = 2097152,     /* messages that are put never expire (sb_life.h) */
  SB_QUEUE_DROPS_EXPIRED = 4194304, /* an expired message ends, wherever other dead ones go */
  SB_QUEUE_EXPIRY_LETTERS =
      1048576,             /* expired messages go to an exchange of their own, as other dead ones (sb_park.h) */
  SB_QUEUE_PAGES = 8388608 /* its messages may leave the memory, though they are not durable (sb_departure.h) */
};

/* What happens to a message whose id a target knows. SKIP: this target does not get it, and the call succeeds. FAIL: the
 * commit fails with SB_DUPLICATE. IGNORE: its id is neither looked up nor remembered. Only a commit reads this; a put of
 * one message skips. */
enum { SB_DUPLICATES_SKIP = 0, SB_DUPLICATES_FAIL = 1, SB_DUPLICATES_IGNORE = 2 };

/* A life of 0: the message is for a consumer that waits for it now (sb_life.h). */
enum { SB_TTL_NOW = 1 };
typedef struct {
  uint64_t ttl_ns, delay_ns; /* 0 = none */
  const char *key;
  const char *properties;
  const char *exchange;
  uint32_t key_length, properties_length;
  uint8_t exchange_length;
  uint8_t priority;
  uint8_t dead; /* 1: the queue rejected the message, and only sends it to its dead-letter exchange, full or not */
  uint8_t duplicates; /* SB_DUPLICATES_... */
} sb_put_options;

/* A body to put. */
typedef struct {
  const char *data;
  uint64_t length;
} sb_piece;

/* The place of a message, from a browse or from sb_view_place. Every process of the broker may use it, while the
 * message exists. A slot id has SB_SLOT_BITS bits, the generation of a slot SB_GENERATION_BITS. */
enum { SB_SLOT_BITS = 28, SB_GENERATION_BITS = 38 };
typedef struct {
  uint64_t generation;
  uint64_t length; /* of the body */
  uint32_t slot;
  uint32_t reserved;
} sb_place;

/* A column of texts, which lie in `bytes` one after the other. ends[0] is the start of the first text, ends[i + 1] the
 * end of text i. room: the size of `bytes`; needed: the size that the texts so far and the next one need. */
typedef struct {
  int32_t *ends; /* NULL: a browse omits this column; a put takes its texts as empty */
  char *bytes;
  uint64_t room, needed;
} sb_column;

/* Messages by column, in the form of Arrow's arrays. NULL: the caller does not want that column. `redelivered` and
 * `has_key` have a bit for each row. */
typedef struct {
  sb_column key, properties, body;
  int64_t *sequence, *timestamp_us;
  sb_place *place;
  uint8_t *redelivered, *has_key;
} sb_columns;

/* A body, and the queues that get it. All handles in `targets` belong to the connection that commits. */
typedef struct {
  const char *body;
  uint64_t length;
  const sb_put_options *options; /* NULL = none */
  sb_queue **targets;
  uint32_t target_count;
} sb_publication;

/* What becomes of a message that was delivered. */
typedef enum {
  SB_ACK = 0,       /* it is done with, and removed */
  SB_REQUEUE = 1,   /* it returns to its position, marked redelivered */
  SB_REJECT = 2,    /* it is removed, and counts as dropped */
  SB_UNDELIVER = 3, /* the application never saw it: its open consumer or channel gives it again as the next message. If
                    * a get took it, if the consumer ended, or in a commit: as SB_REQUEUE, but the delivery does not
                    * count */
  /* Only in a commit, of a message that sb_dead_take returned. CARRIED_OUT: the commit publishes it to the queues of the
   * dead-letter exchange. GIVEN_UP: there is none; it counts as dropped. */
  SB_CARRIED_OUT = 4,
  SB_GIVEN_UP = 5,
  SB_TRANSFER = 6 /* only in a commit, which publishes the message elsewhere: it counts as moved */
} sb_disposition;

/* What sb_queue_manage does with a message. */
typedef enum {
  SB_MANAGE_MOVE = 0,    /* it goes to `target` */
  SB_MANAGE_REMOVE = 1,  /* it ends, as by a purge */
  SB_MANAGE_EXPIRE = 2,  /* it ends as expired, now */
  SB_MANAGE_DELIVER = 3, /* it was scheduled, and becomes ready now, at its position */
  SB_MANAGE_LIMIT = 4    /* it lives no longer than `life_ns` from its publish: it ends as expired if that is over */
} sb_manage_action;
/* What to do with which messages. */
typedef struct {
  sb_manage_action action;
  uint32_t selector_length;
  const char *selector; /* a program; length 0: all messages are selected */
  sb_queue *target;     /* only to MOVE */
  uint64_t position;    /* the sequence number from which to go on; 0 = from the beginning */
  uint64_t end;         /* only messages with lower sequence numbers */
  uint64_t limit;       /* the most messages */
  uint64_t bytes;       /* to MOVE: as of sb_queue_move */
  char *memory;         /* SB_MAX_PREFIX bytes */
  uint64_t life_ns;     /* only to LIMIT */
  bool scheduled;       /* to REMOVE or EXPIRE: the scheduled messages, not the ready ones */
} sb_manage;

/* How to settle a message that the connection holds. token: `tag` of the record that a queue or a consumer returned
 * (sb_channel_collect fills it in for a channel). delivery_tag: the message's tag on its channel; a commit does not
 * read it. */
typedef struct {
  sb_queue *queue;
  uint64_t token;
  sb_disposition disposition;
  uint64_t delivery_tag;
} sb_settlement;

typedef struct {
  uint64_t token, gen, size;
  uint32_t slot;
  bool scattered; /* the message will lie in parts: `body` is private memory, and publishing copies it into the parts */
  bool admitted;  /* the queue keeps room for the message; false after a publish, copy or abandon of the reservation */
  bool kept;      /* the slot belongs to the reservation; publishing passes the slot on to the message */
  void *body;
  uint64_t id_low, id_high; /* what stands for the message's id (sb_duplicates.h); 0 = it has none */
} sb_reservation;

/* One wait, which may take several calls. deadline_ns: the time at which the wait ends. look_ns: the time at which a
 * call returns SB_TICK, so that the caller can look for signals and call again (UINT64_MAX = never). Between the calls,
 * `node` (0 = none yet) keeps the caller's place among the waiting calls; sb_queue_end_wait gives up that place. */
typedef struct {
  uint64_t deadline_ns, look_ns, token;
  uint32_t node;
} sb_wait;

/* WARNING: the memory in use reaches `memory_warning`. BLOCKED: a put gets no further chunk of memory, since the memory in
 * use reaches `memory_high_watermark`, or what the broker keeps for the calls that drain it. */
typedef enum { SB_MEMORY_NORMAL = 0, SB_MEMORY_WARNING = 1, SB_MEMORY_BLOCKED = 2 } sb_memory_state;

typedef struct {
  char name[128];
  uint64_t memory_limit, memory_used, memory_structures, memory_bodies; /* bytes; the last two count whole chunks */
  uint64_t memory_room;                                                 /* bytes of the longest body that has room */
  uint64_t instance, created_ns, rescues, stopped_rescues, reaped, ticks;
  uint32_t repairs[6], explained_repairs[6]; /* number of each SB_REPAIR_... (sb_repairs.h): unexplained, explained */
  uint32_t segments, segments_limit, chunks_per_segment, queues, stopped, connections, processes, housekeeper_pid,
      closing, mode, housekeeper_stopped;
  uint32_t memory_high_watermark, memory_warning; /* in thousandths of the limit; 0 = none */
  uint32_t memory_state;                          /* SB_MEMORY_... */
  uint32_t stalled;                               /* consumers that make no progress, and were told of (sb_waits.h) */
} sb_broker_facts;

typedef struct {
  char name[256];
  uint32_t name_length, slot;
  sb_settings settings;
  uint64_t incarnation; /* tells the queues apart that have this slot one after the other; it only rises */
  uint64_t ready, delivering, scheduled, bytes;
  uint64_t added, acked, expired, killed, replaced, dropped, dead_lettered, moved, redelivered, delivered;
  uint64_t duplicates; /* messages that were not stored, since the queue knew their ids */
  uint64_t reading;    /* what the consumers of a non-destructive queue have; these messages are in `ready` as well */
  uint64_t stops;      /* how often the full queue stopped its producers (sb_resume.h) */
  uint64_t rescues, tail, created_ns;
  uint64_t used_ns; /* CLOCK_MONOTONIC: at least the creation of the queue, and the last end of a consumer */
  /* owner: id of the connection that owns an exclusive queue, 0 = none. locked: 1 if that is a living connection other
   * than the caller's */
  uint32_t owner, locked, had_consumer; /* had_consumer: 1 if any consumer was ever registered */
  int32_t consumers, interested, notified, not_interested, non_acquiring, room_waiting;
  uint64_t misses; /* how often a get or a consumer needed a message that was in the store only */
} sb_queue_facts;

/* Bytes of bodies of a stored queue in the memory (sb_regions.h). */
typedef struct {
  uint64_t direct, head, pending, acquired, scheduled;
  uint64_t watermark; /* the sequence number of the first message that is in the store only; if has_watermark is 1 */
  uint32_t has_watermark;
  /* of a walk that goes on */
  uint32_t gap;
  uint64_t incarnation, at, run;
} sb_regions;

typedef struct {
  char name[256];
  uint32_t id, pid, consumers, channels;
  uint64_t created_ns, holding;
  /* With `pid`, these identify the process: field 22 of /proc/pid/stat, and the inode of its namespace. 0 = unknown. */
  uint64_t start_ticks, pid_namespace;
} sb_connection_facts;

/* The states of a node. A node stands for a consumer, a watch or a waiting call at one queue (sb_nodes.h). */
enum {
  SB_NODE_REMOVED = 0,
  SB_NODE_NOT_INTERESTED = 1,
  SB_NODE_INTERESTED = 2,
  SB_NODE_NOTIFIED = 3,
  SB_NODE_NON_ACQUIRING = 4
};
/* What a consumer waits for (sb_waits.h): its application, messages, a message that is in the store only, its turn. */
typedef enum { SB_WAITS_CONSUMER = 0, SB_WAITS_PRODUCER = 1, SB_WAITS_LOAD = 2, SB_WAITS_DISPATCH = 3 } sb_waits_for;
/* Flags of a node. sb_layout.h has those that only the core uses. */
enum {
  SB_NODE_COUNTED = 1, /* sb_queue_facts counts the node in `consumers` */
  SB_NODE_DIRECT = 2   /* its thread sleeps on the node's own wake word; other nodes wake the connection's IO thread */
};
typedef struct {
  uint32_t connection, pid, state, flags, prefetch, unacked, channel; /* channel: its number, 0 = none */
  int32_t priority;
  uint64_t delivered, wakes, prefetch_bytes; /* prefetch_bytes: 0 = any number */
  /* What it waits for (sb_waits.h). reached, watermark: sequence numbers; of the message that it looks at next, and of the
   * first one from there on that is in the store only. UINT64_MAX: not known, or none. lag: how many positions there are
   * from `reached` on. still_ns: since when it makes no progress (CLOCK_MONOTONIC), 0 = it does. told: the housekeeper
   * has told of that */
  uint64_t reached, watermark, lag, still_ns;
  uint32_t waits_for; /* SB_WAITS_... */
  uint32_t told;
} sb_consumer_facts;

/* The `code` of a finding. findings.py has one or several sentences for each code; the member `which` of the finding
   selects one of several. "of: X" in a comment below means: the member `of` of such a finding holds X. */
typedef enum {
  SB_NOT_CHECKED = 1,  /* the doctor could check nothing; `found` is the status that stopped it */
  SB_BAD_HEADER,       /* a field of the broker's header */
  SB_BAD_CLASS,        /* a class of slots */
  SB_BAD_CHUNK,        /* a chunk word */
  SB_BAD_SLOT,         /* a slot header in an impossible state; of: the kind */
  SB_BAD_OWNER,        /* a slot, chunk or cell of a connection that does not exist; of: the kind of the slot, else 0 */
  SB_UNLISTED,         /* a slot that its owner's holdings do not list: lost if the owner dies; of: the kind */
  SB_LEAKED_SLOT,      /* a slot that nothing refers to, or a reference that no cell and no view has; of: the kind */
  SB_BAD_CONNECTION,   /* a connection word or record */
  SB_BAD_HOLDING,      /* an entry of the holdings */
  SB_BAD_DIRECTORY,    /* a directory entry */
  SB_BAD_QUEUE,        /* a field of a queue object */
  SB_BAD_CHAIN,        /* the ledgers or the levels of a queue */
  SB_BAD_LEDGER,       /* a ledger */
  SB_BAD_PAGE,         /* a page or a link to one; of: the ring */
  SB_BAD_CELL,         /* a cell word; of: the ring */
  SB_BAD_TAIL,         /* a hole in a ring, a hint beyond its end, or an impossible `base`; of: the ring */
  SB_LOST_BODY,        /* a cell names a slot that does not have the cell's message */
  SB_SHARED_REFERENCE, /* two cells, or a cell and a view, have the same reference */
  SB_BAD_MESSAGE,      /* a message header that does not fit its slot */
  SB_HIDDEN_CELL,      /* a ready message before `head` that no take finds, since no `requeued` bits lead to it */
  SB_BAD_COUNT,        /* counters differ from the cells */
  SB_BAD_HINT,         /* `taken`, `admitted` ... differ from the cells, or a queue with limits has no such hints */
  SB_BAD_LIST,         /* `interested`, `room_waiting` ... differ from the lists of consumers and waiting producers */
  SB_BAD_ENTRY,        /* an entry of a list of nodes; of: the ring */
  SB_LOST_NODE,        /* a node (of a consumer, watch or waiting call) not in its lists, or with a bad word */
  SB_BAD_TIMER,        /* an entry of the schedule */
  SB_UNREAPED,         /* a dead process that is not reaped: may explain other findings */
  SB_BAD_GROUP,        /* the message groups of a queue */
  SB_BAD_VALUE,        /* the index of a queue with last values */
  SB_BAD_DISPATCH,     /* which consumers a queue admits, and which of them get messages */
  SB_BAD_ID            /* the ids that a queue remembers */
} sb_trouble;

/* The rings. A level (the consumers of one priority) has INTERESTED and NOTIFIED, the broker has MEMORY, a lane (the
 * messages of one priority) has LANE, a queue has all others. */
enum {
  SB_RING_CELLS = 0,
  SB_RING_ALL,
  SB_RING_NON_ACQUIRING,
  SB_RING_NOT_INTERESTED,
  SB_RING_ROOM,
  SB_RING_SCHEDULE,
  SB_RING_INTERESTED,
  SB_RING_NOTIFIED,
  SB_RING_MEMORY,
  SB_RING_LANE
};

typedef struct {
  uint32_t code, queue, slot, which, of;
  uint64_t where, found, expected;
} sb_finding;

/* ---- broker ---- */
uint64_t sb_broker_segment_bytes(uint32_t number, uint32_t chunks_per_segment);
sb_status sb_broker_format(void *memory, uint64_t bytes, const char *name, uint64_t memory_limit,
                           uint32_t chunks_per_segment, uint32_t mode, uint64_t instance);
sb_broker *sb_broker_attach(const char *path, sb_status *status, uint32_t *major, uint32_t *minor);
void sb_broker_detach(sb_broker *b);
/* Like sb_broker_attach, but returns the status, and stores the handle in *handle. So a caller that an exception
 * interrupts just after the call does not lose the handle. */
sb_status sb_broker_attach_at(const char *path, sb_broker **handle, uint32_t *major, uint32_t *minor);
/* Maps segment `number`, whose file the caller has made or found, and announces it to all processes. If the call
 * fails, for example since the file is another user's or damaged, the broker has as many segments as before. */
sb_status sb_broker_grown(sb_broker *b, uint32_t number);
void sb_broker_grow_again(sb_broker *b, uint64_t not_before_ns);
void sb_broker_describe(sb_broker *b, sb_broker_facts *facts, bool in_full);
bool sb_broker_is_closing(sb_broker *b);
void sb_broker_set_closing(sb_broker *b, uint32_t closing);
void sb_broker_set_stopped(sb_broker *b, uint32_t stopped);
/* Sets the marks of memory, in thousandths of the limit; 0 = none. Puts that wait for memory look again soon. */
void sb_broker_set_memory_marks(sb_broker *b, uint32_t high_watermark, uint32_t warning);

/* ---- connection ---- */
sb_connection *sb_connection_open(sb_broker *b, const char *name, uint32_t length, sb_status *status);
sb_status sb_connection_open_at(sb_broker *b, const char *name, uint32_t length, sb_connection **handle);
/* Closes and releases a connection, unless that was done before, frees its handle, and sets *handle to NULL. While
 * views of its messages exist, or slots of its reservations that the application may still write into, it does not free
 * the handle, and leaves *handle as it is. */
void sb_connection_discard(sb_connection **handle);
sb_status sb_connection_close(sb_connection *c);
bool sb_connection_release(sb_connection *c);
void sb_connection_free(sb_connection *c);
uint32_t sb_connection_id(sb_connection *c);
sb_status sb_connection_run_io(sb_connection *c);
/* Stores the number of open channels, for sb_connection_describe in other processes. */
void sb_connection_set_channels(sb_connection *c, uint32_t count);
sb_status sb_connection_describe(sb_broker *b, uint32_t id, sb_connection_facts *facts);

/* ---- topology: several changes under one lock, and the journal of exchanges and bindings ---- */
/* *holder, here and below: after SB_TIMEOUT the pid of the process that holds the topology lock, 0 = unknown. */
sb_status sb_topology_begin(sb_connection *c, uint64_t deadline_ns, int32_t *holder);
void sb_topology_end(sb_connection *c);
/* Says that the caller, which has deleted a queue and still holds the lock, has removed the bindings to that queue.
 * Without this call, sb_topology_queues_ended rises: when the caller releases the lock, or, if the caller was killed,
 * when the next process takes the lock. */
void sb_topology_unbound(sb_connection *c);
/* The journal word: in the high 16 bits the number of the journal's file, in the low 48 bits the number of valid bytes
 * in that file. Only the holder of the topology lock may change the word. */
uint64_t sb_topology_journal(sb_connection *c);
void sb_topology_journal_commit(sb_connection *c, uint64_t word);
/* A number that changes with every change of the topology. While it stays the same, everything that a caller derived
 * from the topology stays valid. */
uint64_t sb_topology_version(sb_connection *c);

/* A number that rises when a queue ended whose bindings may be left: the queue ended by itself (auto-delete, expired,
 * exclusive), or its deleter did not remove the bindings. One queue may raise the number more than once. */
uint32_t sb_topology_queues_ended(sb_connection *c);

/* ---- queues ---- */
sb_status sb_queue_find(sb_connection *c, const char *name, uint32_t length, uint32_t *slot);
sb_status sb_queue_declare(sb_connection *c, const char *name, uint32_t length, const sb_settings *settings,
                           uint64_t deadline_ns, uint32_t *slot, int32_t *holder);
/* Restarts the time after which the queue expires unused. Called for each declare, also a passive one, of a queue that
 * exists. The writer of a stage (SB_QUEUE_STAGE) calls it, too, since a put alone does not restart that time. */
void sb_queue_touch(sb_connection *c, uint32_t slot);
sb_queue *sb_queue_open(sb_connection *c, uint32_t slot, sb_status *status);
bool sb_queue_close(sb_queue *q);
void sb_queue_free(sb_queue *q);
/* SB_NO_SEAT: the queue has more consumers than the new settings allow; nothing changed. */
sb_status sb_queue_configure(sb_queue *q, const sb_settings *settings, bool trim, uint64_t deadline_ns,
                             int32_t *holder);
sb_status sb_queue_delete(sb_queue *q, bool if_unused, bool if_empty, uint64_t deadline_ns, int32_t *holder,
                          uint64_t *removed);
/* Deletes a queue that has no consumer and no message, also none that a connection holds. SB_IN_USE, SB_NOT_EMPTY: it
 * stays. */
sb_status sb_queue_delete_idle(sb_queue *q, uint64_t deadline_ns, int32_t *holder);
sb_status sb_queue_describe(sb_connection *c, uint32_t slot, sb_queue_facts *facts);
/* Copies the encoded text settings of a queue to `texts`, which has room for SB_TEXTS_MAX bytes. Returns their length;
 * 0: there are none, or they cannot be read. */
uint32_t sb_texts(sb_connection *c, uint32_t slot, char *texts);
uint32_t sb_queue_next(sb_connection *c, uint32_t *index);
/* Fills in the array `facts`, which has SB_CHUNK_FACTS elements: one for each class. looks: how many cells and parts of
 * messages the call may read in all queues together; it reads at least a few of each queue. */
sb_status sb_broker_describe_chunks(sb_connection *c, uint64_t looks, sb_chunk_facts *facts);
int64_t sb_queue_length(sb_queue *q);
/* Removes the messages that are ready when the call begins. Adds their number to *removed, also before a failure: the
 * caller can then call again for the rest. SB_GROW, SB_NO_MEMORY: there is no memory for the connection's entry
 * (holding, sb_holdings.h) by which it takes the next message. */
sb_status sb_queue_purge(sb_queue *q, uint64_t *removed);
/* Evicts up to `most` messages that exceed the limits of the queue; *removed: how many. SB_OK, and fewer than `most`: it
 * keeps its limits. SB_GROW: the next one is in the store, and not in the memory; the caller loads it, and calls again. */
sb_status sb_queue_trim(sb_queue *q, uint64_t most, uint64_t *removed);
/* Moves messages that are ready when the call begins from `q` to `target`, until it has moved `limit` messages, or
 * *bytes bytes of bodies; the last message may exceed *bytes. Lowers *bytes by the bytes moved, at most to 0. Returns
 * the number of messages moved. *status: why the next one was not moved; SB_OK also if none of these messages is
 * left. */
int64_t sb_queue_move(sb_queue *q, sb_queue *target, uint64_t limit, uint64_t *bytes, sb_status *status);
/* Does something with the messages that a program selects, one at a time, in the order of their sequence numbers: with
 * the ready ones, or, to DELIVER and with `scheduled`, with the scheduled ones, that are there when the call comes to their priority. Returns
 * how many it dealt with, and lowers `limit` by that. After SB_GROW the caller calls again with the same struct, which
 * says where to go on. SB_INVALID: `selector` is no valid program. SB_CORRUPT: a message is damaged, or its properties
 * are, as far as the program reads them; the messages before it are dealt with. SB_FULL: `target` has no room. */
int64_t sb_queue_manage(sb_queue *q, sb_manage *work, sb_status *status);
/* Takes the ready message with a sequence number, and writes its record. The caller commits its end, or calls
 * sb_queue_put_back. If the caller is killed, the message is ready again, as if it had not been taken. SB_EMPTY: no
 * ready message has this number. */
int64_t sb_queue_take(sb_queue *q, uint64_t sequence, char *buffer);
void sb_queue_put_back(sb_queue *q, const char *record);
int64_t sb_queue_consumers(sb_connection *c, uint32_t slot, sb_consumer_facts *facts, uint32_t room);
/* Adds up the bytes of a stored queue, step by step: the caller sets *facts to 0, and calls until it returns false. Then
 * facts->incarnation is 0 if the queue is not stored, or is gone. */
bool sb_queue_regions(sb_connection *c, uint32_t slot, sb_regions *facts);

/* ---- messages ---- */
sb_status sb_queue_put(sb_queue *q, const char *body, uint64_t length);
sb_status sb_queue_put_with(sb_queue *q, const char *body, uint64_t length, const sb_put_options *options);
/* Returns the number of messages put. *status: why the next one was not put; SB_OK: all were put. */
int64_t sb_queue_put_many(sb_queue *q, const sb_piece *pieces, uint32_t count, const sb_put_options *options,
                          sb_status *status);
/* Puts `count` rows from `row` on, with the columns `body`, `key` and `properties`. The result and *status are those of
 * sb_queue_put_many. */
int64_t sb_queue_put_columns(sb_queue *q, const sb_columns *columns, uint32_t row, uint32_t count, sb_status *status);
sb_status sb_reservation_begin(sb_queue *q, uint64_t length, const sb_put_options *options, sb_reservation *r);
sb_status sb_reservation_publish(sb_queue *q, sb_reservation *r);
/* Copies a reservation whose memory the application still has a view of. The copy takes over the room in the queue, and
 * the caller publishes the copy. */
sb_status sb_reservation_copy(sb_queue *q, sb_reservation *r, sb_reservation *copy);
/* Gives up a reservation. viewed: the application still has a view of the slot, so the slot stays until
   sb_reservation_end_view frees it. Each function does only what is left to do, and after a publish nothing. So a
   caller that was interrupted may call both without knowing how far it came. */
void sb_reservation_abandon(sb_queue *q, sb_reservation *r, bool viewed);
void sb_reservation_end_view(sb_connection *c, sb_reservation *r);
sb_status sb_queue_wait_for_room(sb_queue *q, bool memory, uint64_t bytes, uint64_t deadline_ns);
/* Waits for room in the queue for `count` messages, `bytes` bytes in total, at the same time: for a commit. SB_OK:
   there may be room, so the caller tries the commit again. */
sb_status sb_queue_wait_for_batch(sb_queue *q, uint32_t count, uint64_t bytes, uint64_t deadline_ns);
/* Called after a put or a commit returned SB_UNDECIDED for this queue: waits until the commit of another process that has
 * claimed the id is decided or given back, and reaps that process if it was killed. The caller then puts again.
 * SB_TIMEOUT: neither happened until `deadline_ns`; *pid: that process, 0 = unknown. */
sb_status sb_queue_wait_for_id(sb_queue *q, uint64_t deadline_ns, int32_t *pid);
int64_t sb_queue_get(sb_queue *q, char *buffer, bool auto_ack);
int64_t sb_queue_get_spin(sb_queue *q, uint64_t limit_ns, char *buffer, bool auto_ack);
int64_t sb_queue_get_wait(sb_queue *q, char *buffer, bool auto_ack, sb_wait *wait);
void sb_queue_end_wait(sb_queue *q, sb_wait *wait);
int64_t sb_queue_get_many(sb_queue *q, uint32_t count, bool auto_ack, char *buffer, uint64_t size, uint32_t *index,
                          uint64_t *used);
int64_t sb_queue_get_many_wait(sb_queue *q, uint32_t count, bool auto_ack, char *buffer, uint64_t size, uint32_t *index,
                               uint64_t *used, sb_wait *wait);
sb_status sb_queue_settle(sb_queue *q, const char *record, sb_disposition disposition);
/* Settles `count` messages, whose records begin at records[index[0]], records[index[stride]], ... SB_OK also if some of
   them were settled before. */
sb_status sb_queue_settle_many(sb_queue *q, const char *records, const uint32_t *index, uint32_t stride, uint32_t count,
                               sb_disposition disposition);
sb_status sb_view_begin(sb_connection *c, uint64_t tag, uint64_t sequence, uint64_t address, uint64_t *view);
/* Stores where the body of a held message is, for a caller to which sb_view_begin gives no view. The caller then copies
 * the body by sb_place_copy_body. */
sb_status sb_view_place(sb_connection *c, uint64_t tag, uint64_t sequence, uint64_t address, sb_place *place);
/* Copies the body of a view whose address is SB_IN_PARTS. length: that of the whole body. */
sb_status sb_view_copy(sb_connection *c, uint64_t view, char *to, uint64_t length);
/* Ends a view. True if the connection is closed: the caller then calls sb_connection_release again, which may have
 * failed because of this view. */
bool sb_view_end(sb_connection *c, uint64_t view);
int64_t sb_queue_browse(sb_queue *q, uint64_t *position, char *buffer, uint64_t size);
/* Copies up to `count` ready messages from *position on. Moves *position behind the last one, and returns their number.
   *status SB_EMPTY: there are no more. SB_FULL: a column has no room for the next message; `needed` of each
   column is then the room for the copied messages and that one. */
int64_t sb_queue_browse_columns(sb_queue *q, uint64_t *position, uint32_t count, sb_columns *columns,
                                sb_status *status);
/* The same as sb_queue_browse, of the messages that a program selects. SB_INVALID: it is no valid program. SB_CORRUPT:
   a message is damaged, or its properties are, as far as the program reads them. */
int64_t sb_queue_browse_selected(sb_queue *q, uint64_t *position, const char *selector, uint32_t selector_length,
                                 char *buffer, uint64_t size);
/* The same, of the messages in any of `states`, SB_STATE_..., with sequence numbers below `end`, also without a selector
   (length 0). Stores in *where the state of the message that it copied. body: whether to copy the body. */
int64_t sb_queue_browse_states(sb_queue *q, uint64_t *position, uint64_t end, uint32_t states, const char *selector,
                               uint32_t selector_length, bool body, char *buffer, uint64_t size, sb_whereabouts *where);
/* Looks at up to `count` ready messages from *position on, moves *position behind the last one, and returns the number
   of selected messages. *status SB_OK: there may be more messages. SB_EMPTY: there are no more. SB_FULL: `values` has no
   room for the value of the next message. Errors: as sb_queue_browse_selected. */
int64_t sb_queue_select(sb_queue *q, uint64_t *position, uint64_t count, sb_selection *selection, sb_status *status);

/* Whether a program selects a message with these encoded properties, which is not stored yet. False also if they are
 * damaged, as far as the program reads them, and if it is no valid program. */
bool sb_selector_selects(const char *selector, uint32_t selector_length, const char *properties,
                         uint32_t properties_length, uint8_t priority, uint64_t timestamp_ns);

/* ---- reading a body in place without holding its message ---- */
/* The same as sb_queue_browse, without the body; *place: where the message is. */
int64_t sb_queue_browse_place(sb_queue *q, uint64_t *position, char *buffer, uint64_t size, sb_place *place);
/* Begins a view, which keeps the body at *address until sb_view_end. SB_SETTLED: the slot has another message, or none.
   SB_IN_USE: the caller must copy the body: it is short, in parts, in many queues, or kept by another such view. */
sb_status sb_place_begin_view(sb_connection *c, const sb_place *place, uint64_t *view, uint64_t *address);
/* Copies the body, place->length bytes. SB_SETTLED: as above; the copy is not usable. */
sb_status sb_place_copy_body(sb_connection *c, const sb_place *place, char *to);

/* ---- publishing to several queues, transactions ---- */
/* Publishes and settles everything, or nothing, whichever process is killed. A body is stored once for all its queues,
   of which there may be 4,096 (else SB_LIMIT). A deleted queue is skipped, and so is a full queue with overflow=drop.
   Any status but SB_OK means that nothing happened. *failed_publication is then the index of the publication that
   caused the status, and *failed_target the index of the queue in its `targets`; UINT32_MAX: none. SB_FULL: the caller
   waits for room in that queue, and calls again. SB_SETTLED: a message is not held any more. A publication may name a
   queue only once. */
sb_status sb_transaction_commit(sb_connection *c, const sb_publication *publications, uint32_t count,
                                const sb_settlement *settlements, uint32_t settlement_count,
                                uint32_t *failed_publication, uint32_t *failed_target);

/* ---- consumers ---- */
/* SB_UNLOCKED: a queue limits its consumers, and the calling thread has not the topology lock. SB_NO_SEAT: the queue has
   as many consumers as it allows. SB_ACCESS: another consumer uses it exclusively. */
sb_consumer *sb_consumer_open(sb_connection *c, sb_queue **queues, uint32_t count, uint32_t prefetch, int32_t priority,
                              uint32_t ack_batch, uint64_t ack_interval_ns, sb_status *status);
/* How a consumer, or one of a channel, consumes. AUTO_ACK: of a channel only. */
enum { SB_CONSUME_AUTO_ACK = 1, SB_CONSUME_NO_LOCAL = 2, SB_CONSUME_EXCLUSIVE = 4 };
typedef struct {
  uint32_t prefetch; /* messages that it holds at most; at least 1 */
  uint32_t ack_batch;
  uint64_t ack_interval_ns;
  uint64_t prefetch_bytes; /* bytes of bodies that it holds at most, unless it holds one message only; 0 = any number */
  int32_t priority;
  uint32_t flags; /* SB_CONSUME_... */
  uint32_t selector_length;
  const char *selector; /* compiled: it gets only the messages that the selector selects. Length 0: it has none */
} sb_consumer_options;
/* The same with all options. SB_INVALID: the selector is no valid program. */
sb_consumer *sb_consumer_open_with(sb_connection *c, sb_queue **queues, uint32_t count,
                                   const sb_consumer_options *options, sb_status *status);
void sb_consumer_cancel(sb_consumer *k, bool return_everything);
void sb_consumer_free(sb_consumer *k);
int64_t sb_consumer_next(sb_consumer *k, char *buffer, bool auto_ack);
sb_status sb_consumer_wait(sb_consumer *k, uint64_t deadline_ns);
sb_status sb_consumer_settle(sb_consumer *k, const char *record, sb_disposition disposition);
void sb_consumer_send_acks(sb_consumer *k);
void sb_consumer_suspend(sb_consumer *k, bool suspended);
uint32_t sb_consumer_unacked(sb_consumer *k);
uint32_t sb_consumer_waiting(sb_consumer *k);
uint64_t sb_consumer_delivered(sb_consumer *k);
void sb_consumer_set_event(sb_consumer *k, int event_fd);
bool sb_consumer_arm_event(sb_consumer *k);

/* ---- channels: consumers that share one sequence of delivery tags ----
   The tag of a record that a channel gives is the delivery tag (1, 2, 3 ...). If the body is in shared memory, 8 more
   bytes follow where a short body would. They are the tag that sb_view_begin takes; for a message that was acknowledged
   when it was given (SB_GIVEN_SETTLED), they are a view, which sb_view_end takes. */
enum { SB_BY_GET = 65535 }; /* `subscription` in the record of a message that sb_channel_get took */

/* number: the number of the channel, which sb_connection_next_ready returns and sb_queue_consumers shows; not 0. */
sb_channel *sb_channel_open(sb_connection *c, uint64_t number, sb_status *status);
/* Ends the consumers of the channel, returns the messages that it holds, and ends its waiting calls with SB_CLOSED. Any
   thread may call it, and more than once. */
void sb_channel_close(sb_channel *ch);
void sb_channel_free(sb_channel *ch);
/* SB_UNLOCKED, SB_NO_SEAT, SB_ACCESS: as sb_consumer_open. */
sb_status sb_channel_consume(sb_channel *ch, sb_queue *q, uint32_t prefetch, int32_t priority, uint32_t flags,
                             uint32_t *subscription);
/* The same for a consumer with a selector, as in sb_consumer_options. */
sb_status sb_channel_consume_selected(sb_channel *ch, sb_queue *q, uint32_t prefetch, int32_t priority, uint32_t flags,
                                      const char *selector, uint32_t selector_length, uint32_t *subscription);
/* Ends a consumer. Messages that were pulled for the consumer, and not given to the application yet, return to their
 * queue. Messages that were given to the application stay unacked. SB_NOT_FOUND: there is no such consumer. */
sb_status sb_channel_cancel(sb_channel *ch, uint32_t subscription);
/* Limits how many unacked messages all consumers of a channel, or of all channels of a connection, may have together;
 * 0 = no limit. */
sb_status sb_channel_set_prefetch(sb_channel *ch, uint32_t prefetch);
sb_status sb_connection_set_prefetch(sb_connection *c, uint32_t prefetch);
/* Writes the record of the next delivery of any consumer of the channel, and returns the record's length. If no message
   waits in the channel, the call first takes messages from the queues. */
int64_t sb_channel_next(sb_channel *ch, char *buffer);
/* Reports a consumer that ended because its queue was deleted. Each such consumer is reported once. False: there is
 * none to report. */
bool sb_channel_next_cancelled(sb_channel *ch, uint32_t *subscription);
int64_t sb_channel_get(sb_channel *ch, sb_queue *q, char *buffer, bool auto_ack);
int64_t sb_channel_get_wait(sb_channel *ch, sb_queue *q, char *buffer, bool auto_ack, sb_wait *wait);
/* Settles the delivery with that tag. multiple: settles also all unsettled deliveries before it; with tag 0 all
   unsettled deliveries. SB_SETTLED: no unsettled delivery has that tag. With SB_UNDELIVER the channel delivers the
   message again as its next one; a message that a get took, or whose consumer ended, returns to its queue instead. In
   both cases the channel gives the tag again if it was the highest that the channel gave. */
sb_status sb_channel_settle(sb_channel *ch, uint64_t delivery_tag, bool multiple, sb_disposition disposition);
/* Lists the deliveries that sb_channel_settle would settle, and settles none. Writes at most `room` settlements, and
   returns the number of all these deliveries, also if it is greater than `room`. */
int64_t sb_channel_collect(sb_channel *ch, uint64_t delivery_tag, bool multiple, sb_disposition disposition,
                           sb_settlement *settlements, uint32_t room);
/* Removes the deliveries that sb_channel_settle would settle, after a commit settled their messages. Some of them may
   have been removed before. */
void sb_channel_forget(sb_channel *ch, uint64_t delivery_tag, bool multiple);
uint32_t sb_channel_unacked(sb_channel *ch); /* messages given to the application and not settled */
uint32_t sb_channel_waiting(sb_channel *ch); /* messages taken from the queues and not yet given to the application */
uint64_t sb_channel_delivered(sb_channel *ch);
/* Arms the channel: when a message, or the report of an ended consumer, comes, sb_connection_next_ready returns the
 * channel's number once. True: the channel was not armed, since a message or a report is there already, or since the
 * channel is not usable. */
bool sb_channel_arm(sb_channel *ch);
/* The `number` of the next ready channel, 0 = none. sb_connection_run_io returns SB_READY if there is one, and SB_GROW
 * if a channel or a consumer cannot take its next message before the caller adds a segment. */
uint64_t sb_connection_next_ready(sb_connection *c);

/* ---- watches: waiting without a thread ----
   The core writes to `event_fd` when there may be a message; with `room`, when the queue may have room for a body of
   `bytes` bytes. The caller arms the watch, tries to get or put once more, and then waits. A watch does not tell of
   memory of the broker: after SB_NO_MEMORY the caller tries again by time. */
sb_watch *sb_watch_open(sb_queue *q, bool room, int event_fd, sb_status *status);
sb_status sb_watch_arm(sb_watch *w, uint64_t bytes);
void sb_watch_disarm(sb_watch *w);
void sb_watch_close(sb_watch *w);
void sb_watch_free(sb_watch *w);

/* ---- store ---- */
/* Whether a broker has a store. RESTORING: its queues are being made again from the store, so clients wait. UNVERIFIED: only
 * the storekeeper reads the store, since its pages are still being verified. DAMAGED: nobody reads or writes it. */
enum {
  SB_STORES_NONE = 0,
  SB_STORES_RESTORING = 1,
  SB_STORES_READY = 2,
  SB_STORES_UNVERIFIED = 3,
  SB_STORES_DAMAGED = 4
};
enum { SB_DATA_DIR_MAX = 1023 };
/* What a publisher to a stored queue waits for. ALWAYS: its message is in the store, and synced. INTERVAL, NONE: nothing. With
 * NONE the storekeeper does not sync, either. */
enum { SB_SYNC_ALWAYS = 0, SB_SYNC_INTERVAL = 1, SB_SYNC_NONE = 2 };
/* Writes the folder of the store into a formatted segment 0 that has no name yet; the broker is then RESTORING. SB_INVALID:
 * the path is too long. refuses: whether a put into a stored queue is refused while the disk is full; else it waits. */
sb_status sb_broker_format_store(void *memory, const char *data_dir, uint32_t sync, bool refuses);
void sb_broker_set_stores(sb_broker *b, uint32_t stores);
uint32_t sb_broker_stores(sb_broker *b);
/* A random number that was made with the store; 0 = not known yet. The storekeeper sets it before clients are admitted. */
void sb_broker_set_store_id(sb_broker *b, uint64_t id);
uint64_t sb_broker_store_id(sb_broker *b);
/* The folder of the store, at most SB_DATA_DIR_MAX bytes; valid as long as the attachment. */
const char *sb_broker_data_dir(sb_broker *b);
uint32_t sb_broker_sync(sb_broker *b);
bool sb_broker_store_refuses(sb_broker *b);
/* True if the storekeeper writes the messages of the queue into the store. */
bool sb_queue_is_stored(const sb_queue *q);
/* The same, and publishers wait for that. */
bool sb_queue_waits_for_store(const sb_queue *q);
/* Whether a publisher waits until the store has a message with these options. NULL: it has none. One that is transient, since
 * its delivery_mode is 1, is not waited for. */
bool sb_put_waits_for_store(const sb_queue *q, const sb_put_options *options);
/* sb_store_ask returns the number of a turn of the storekeeper that has all changes which the caller has made; when that
 * turn is done they are in the store, and synced. sb_store_await waits until it is. SB_TIMEOUT, SB_INTERRUPTED,
 * SB_STOPPING: why it ended earlier. */
uint32_t sb_store_ask(sb_connection *c);
sb_status sb_store_await(sb_connection *c, uint32_t turn, uint64_t deadline_ns);
/* Whether the disk of the store is full. While it is, each call that adds a message to a stored queue returns
 * SB_STORE_FULL, and adds nothing; a move returns SB_FULL. The storekeeper sets it before the disk has no room left.
 * sb_store_await_room waits until it is not. SB_TIMEOUT, SB_INTERRUPTED, SB_STOPPING: why it ended earlier. */
void sb_store_set_full(sb_connection *c, bool full);
bool sb_store_is_full(sb_broker *b);
sb_status sb_store_await_room(sb_connection *c, uint64_t deadline_ns);
/* Makes the caller the storekeeper. SB_EXISTS: there is one. */
sb_status sb_store_begin(sb_connection *c);
void sb_store_end(sb_connection *c);
/* The process of the storekeeper; 0: there is none. */
int32_t sb_store_keeper(sb_broker *b);
uint32_t sb_store_turn_begin(sb_connection *c);
void sb_store_turn_end(sb_connection *c, uint32_t turn);
/* Commits of several stored messages (sb_turns.h): how many have begun; the same after a wait until none is being carried
 * out, which ends after 20 ms at the latest; whether those that are not decided yet are held back, for 20 ms at the latest. */
uint32_t sb_store_commits(sb_connection *c);
uint32_t sb_store_await_commits(sb_connection *c);
void sb_store_hold_commits(sb_connection *c, bool held);
/* Waits until a connection asks for a turn. SB_TIMEOUT, SB_INTERRUPTED; SB_STOPPING: the broker is stopped or purged. */
/* Notes how long the sync of a turn took, and how many messages it had; for sb_store_describe. */
void sb_store_report(sb_connection *c, uint64_t sync_ns, uint64_t messages);
/* What the storekeeper has done. sync_ns, messages: averages over its last turns that wrote messages. left, came_back: leaves
 * of up to 64 messages that have left the memory, and that have come back. */
typedef struct {
  uint64_t sync_ns, messages, came_back;
  uint32_t turns, left;
  int32_t keeper; /* its pid; 0 = there is none */
} sb_store_facts;
void sb_store_describe(sb_broker *b, sb_store_facts *facts);
sb_status sb_store_rest(sb_connection *c, uint64_t deadline_ns);
/* Finds the stored queues that have something to store: messages that were appended, or bits of what changed. Returns how
 * many there are; the first `most` are in `found`. *all: a number that is another one if other stored queues exist. */
typedef struct {
  uint64_t incarnation;
  uint32_t slot, reserved;
} sb_store_work;
uint32_t sb_store_look(sb_connection *c, sb_store_work *found, uint32_t most, uint64_t *all);
/* A lane of a queue, as sequence numbers: what was appended before `stored` is in the store, or has ended. */
typedef struct {
  uint64_t stored, tail;
  uint64_t head; /* hint: what lies before it has been taken, or has returned */
} sb_store_lane;
/* Fills in the lanes by ascending number; returns how many there are, at most `most`. */
uint32_t sb_store_lanes(sb_queue *q, sb_store_lane *lanes, uint32_t most);
/* Sets `stored` of the lane of a sequence number. */
void sb_store_advance(sb_queue *q, uint64_t sequence);
/* A duplicate id: a hash that stands for it, and its number in its queue, by age. */
typedef struct {
  uint64_t low, high, number;
} sb_store_id;
/* Which messages a row gets: those that survive the loss of the memory, those that do not since their delivery_mode is 1, or
 * both. */
enum { SB_STORE_DURABLE, SB_STORE_TRANSIENT, SB_STORE_ALL };
/* A row of the store (sb_row.h). The caller gives the buffers, their sizes and `which`. `ids`: room for 64, or NULL. */
typedef struct {
  char *heads, *bodies;
  uint64_t heads_size, bodies_size;
  uint64_t heads_length, bodies_length;
  uint64_t first;     /* the sequence number at which the row begins: that of the call, unless which is TRANSIENT */
  uint64_t staged;    /* bit i: the message at first + i belongs to a commit that is not carried out */
  uint64_t transient; /* bit i: that message does not survive, whether the row has it or not */
  uint32_t which;
  uint32_t count, damaged; /* messages in the row, and damaged ones that are not; count 0: there is no row */
  sb_store_id *ids;        /* the ids of messages in the row, without their numbers, if the queue remembers ids */
  uint32_t id_count;
} sb_store_row;
/* Copies messages from *sequence on into a row, of one leaf at most, and advances *sequence; `end`: at most the tail. With
 * SB_STORE_TRANSIENT it passes leaves that have no such message. SB_FULL: the sizes are now those that the next message
 * needs. SB_CORRUPT. */
sb_status sb_store_gather(sb_queue *q, uint64_t *sequence, uint64_t end, sb_store_row *row);
/* What changed in a queue: `span` sequence numbers from `first` on. whole: all their messages ended. Else bit i of `ended`:
 * that of first + i did; bit i of `live`: it is there, and no commit is about to bring it; bit i of `returned`: that, and it
 * has a delivery count or a state. */
typedef struct {
  uint64_t first, span, ended, live, returned;
  uint32_t whole;
} sb_store_change;
/* Collects what changed in a lane since the last call; `all`: everything counts as changed. `lane`: a sequence number of
 * it. False: there is more, so the caller calls again. */
bool sb_store_changes(sb_queue *q, uint64_t lane, bool all, sb_store_change *changes, uint32_t most, uint32_t *count);
/* The ids that a stored queue remembers (sb_duplicates.h). sb_store_id_numbers: the latest number, and the latest one that is
 * forgotten; false: the queue has never had an id. sb_store_ids lists the ids with a number from `from` on, and those that
 * are claimed, whose number is 0; returns how many there are, of which the first `most` are in `ids`. What it does not list gets
 * a number that is not lower than the latest one before the call. sb_store_knows looks for an id, and sets its number; 0: its
 * commit is decided, and it has none yet. */
bool sb_store_id_numbers(sb_queue *q, uint64_t *latest, uint64_t *forgotten);
uint32_t sb_store_ids(sb_queue *q, uint64_t from, sb_store_id *ids, uint32_t most);
bool sb_store_knows(sb_queue *q, sb_store_id *id);
/* Makes a stored queue again, which was declared and not used yet. First sb_store_resume for each lane: it begins at a
 * sequence number. Then sb_store_restore for each row, by ascending sequence number; *done: how many messages of the row
 * are done, 0 at first; after SB_GROW the caller lets the broker grow, and calls again. sb_store_skip ends all positions
 * up to a sequence number, exclusive. At last sb_store_resumed. */
typedef struct {
  const char *heads, *bodies;
  uint64_t heads_length, bodies_length;
  uint64_t ended; /* bit i: the message at the row's first sequence number plus i has ended */
} sb_stored_row;
sb_status sb_store_resume(sb_queue *q, uint64_t sequence);
sb_status sb_store_skip(sb_queue *q, uint64_t sequence);
sb_status sb_store_restore(sb_queue *q, const sb_stored_row *row, uint32_t *done);
/* Restores leaves of a queue for which sb_store_may_leave is true, without their messages; in the place of sb_store_restore,
 * for leaves all of whose 64 sequence numbers were used, and of which no message is delayed or dead. They come by ascending
 * sequence number, that of the first message of the leaf. `messages`, `bytes` of bodies: what the store has of it. The
 * messages come back when they are needed. *done: how many leaves are restored; the next call continues there. */
typedef struct {
  uint64_t sequence, messages, bytes;
} sb_absent_leaf;
sb_status sb_store_restore_absent(sb_queue *q, const sb_absent_leaf *leaves, uint32_t count, uint32_t *done);
/* Gives the queue the ids that the store has, by ascending number, before sb_store_resumed. *done: as of sb_store_restore. */
sb_status sb_store_restore_ids(sb_queue *q, const sb_store_id *ids, uint32_t count, uint32_t *done);
void sb_store_resumed(sb_queue *q);

/* ---- messages that are in the store, and not in the memory (sb_departure.h) ---- */

/* The storekeeper. sb_store_may_leave: whether messages of the queue may leave the memory. sb_store_leave lets up to `most`
 * leaves of a lane leave, the newest ones first, of those that end at or before the sequence number `end`, and none of
 * the first `ahead` messages after the head. Everything that the storekeeper has collected must be committed, and the
 * transient messages before `end` as well. Returns how many have left. *expiring: those of them that have messages which
 * expire, *count of them, in the room for `most`; may be NULL. Nobody else knows their timers: the storekeeper lets such a
 * leaf come back when one of its messages has expired. */
typedef struct {
  uint64_t sequence;   /* the first one of the leaf */
  uint64_t expires_ns; /* when the first of its messages expires, of the monotonic clock */
} sb_expiring;
bool sb_store_may_leave(sb_queue *q);
/* A leaf whose bodies have more bytes than this share of the memory stays: it could not come back. */
enum { SB_LEAF_SHARE = 8 };
uint32_t sb_store_leave(sb_queue *q, uint64_t end, uint64_t ahead, uint32_t most, sb_expiring *expiring,
                        uint32_t *count);
/* A call that needs a message which is not in the memory returns SB_GROW. sb_store_wanting finds the queue and the sequence
 * number that such a call of this process needed last; asked again, it finds none. */
bool sb_store_wanting(sb_broker *b, uint32_t *slot, uint64_t *sequence);
/* Finds the first leaf, from a sequence number on and before `end`, that is not in the memory. *sequence: the first one of
 * it; *link: what sb_store_come_back expects. The caller reads the store after this call, then calls sb_store_come_back
 * with all rows of the leaf: at most the 64 sequence numbers that one leaf has. SB_EMPTY: there is no such leaf. */
sb_status sb_store_absent(sb_queue *q, uint64_t *sequence, uint64_t end, uint64_t *link);
/* A process that must not or cannot read the store wishes for the leaf of a sequence number (sb_wishes.h), and asks for a
 * turn. The storekeeper, when sb_store_wishes has changed, takes the wish of each queue; false: the queue has none. */
void sb_store_wish(sb_queue *q, uint64_t sequence);
uint32_t sb_store_wishes(sb_broker *b);
bool sb_store_take_wish(sb_queue *q, uint64_t *sequence);
/* SB_DONE: another process was faster. SB_CORRUPT: the rows contradict each other, or have no message. */
sb_status sb_store_come_back(sb_queue *q, uint64_t sequence, uint64_t link, const sb_stored_row *rows, uint32_t count);
/* The same, but leaves the reserve (sb_reserve.h) to the calls that make room. */
sb_status sb_store_come_back_if_spare(sb_queue *q, uint64_t sequence, uint64_t link, const sb_stored_row *rows,
                                      uint32_t count);

/* ---- housekeeper ---- */
sb_status sb_housekeeper_begin(sb_connection *c);
void sb_housekeeper_end(sb_connection *c);
/* Makes the caller stand in for a housekeeper whose process is stopped. When the housekeeper continues or is gone
 * (sb_housekeeper_is_relieved), the caller calls sb_housekeeper_step_down. SB_EXISTS: no housekeeper is stopped, or
 * another process stands in. */
sb_status sb_housekeeper_stand_in(sb_connection *c);
bool sb_housekeeper_is_relieved(sb_connection *c);
void sb_housekeeper_step_down(sb_connection *c);
bool sb_housekeeper_stopped(sb_broker *b);
/* True if another process waits for the place of the housekeeper: it holds a lock on the byte SB_LOCK_SUCCESSOR. */
bool sb_housekeeper_is_awaited(sb_broker *b);
/* Arms the housekeeper's wake word: work that comes from now on wakes it. After this call the caller looks for work
 * that came earlier, then passes the returned word to sb_housekeeper_wait. */
uint32_t sb_housekeeper_arm(sb_connection *c);
sb_status sb_housekeeper_wait(sb_connection *c, uint32_t armed, uint64_t deadline_ns);
void sb_housekeeper_next_due(sb_connection *c, uint64_t due_ns);
/* What the housekeeper remembers of a queue from tick to tick. The caller keeps the struct, and sets it to zero before
 * the first tick. */
typedef struct {
  uint64_t last_take, came, quiet_ticks, wrong_ticks;
  uint64_t cursors[3]; /* where the next sb_housekeeper_run_timers continues, see sb_housekeeping_timers */
  uint64_t new_timers; /* 1: the queue has entries of the schedule list that no sb_housekeeper_run_timers has read */
  /* tail, at the last tick that looked for a sleeper, of the first lane that had a ready message. Only messages before it prove a missed notification: the
   * producer of a later one may not have notified a node yet */
  uint64_t known_tail;
  uint64_t sleeper; /* list entry of a node that slept at that tick although a message was ready; 0 = none */
  /* number of reaped processes when the queue was last found consistent. If more are reaped by now, that explains any
   * repair of the queue (sb_repairs.h). SB_DEATHS_UNKNOWN: the housekeeper itself may have set a count wrong, which
   * explains any repair, too */
  uint64_t deaths;
  uint64_t values_lost; /* of the queue, when the keys of all its messages were last settled (sb_values.h) */
  uint64_t still_ns;    /* since when a consumer that was not told of is still (sb_waits.h); 0: there is none */
  uint32_t still, told; /* consumers that wait for a load or for their turn; those that are still, and were told of */
  struct sb_agenda *agenda; /* when to look at which message, and which are dead (sb_agenda.h); NULL: nothing to do */
} sb_queue_memory;
void sb_housekeeper_tick(sb_connection *c, uint32_t slot, sb_queue_memory *memory);
uint32_t sb_housekeeper_ticks(sb_connection *c, sb_queue *const *queues, sb_queue_memory *memories, uint32_t count);
/* Sets `new_timers` in the memory of each queue. memories[i] belongs to queues[i]. Returns the number of queues that
 * have new timers. */
uint32_t sb_housekeeper_new_timers(sb_queue *const *queues, sb_queue_memory *memories, uint32_t count);
uint64_t sb_housekeeper_changes(sb_connection *c);
/* Looks at the messages with a timer that are new since the last call, and at those that are due at `due_ns`: makes them
 * ready, removes them, or notes that they are dead. Begins with queue number `first`, and ends after about `nanoseconds`,
 * even if some are left. Returns the number of queues whose dead messages wait to be carried out. */
uint32_t sb_housekeeper_run_timers(sb_queue *const *queues, sb_queue_memory *memories, uint32_t count, uint32_t first,
                                   uint64_t due_ns, uint64_t nanoseconds);
/* The time at which sb_housekeeper_run_timers is needed next; UINT64_MAX: it is not. */
uint64_t sb_housekeeper_due(const sb_queue_memory *memories, uint32_t count);
/* Writes the numbers of the queues, at most `room`, whose dead messages wait, and returns how many it wrote. */
uint32_t sb_housekeeper_with_dead(const sb_queue_memory *memories, uint32_t count, uint32_t *indexes, uint32_t room);
/* Writes the numbers of the queues, at most `room`, of which a consumer is still since `until_ns`, and was not told of;
 * returns how many it wrote. */
uint32_t sb_housekeeper_with_still(const sb_queue_memory *memories, uint32_t count, uint64_t until_ns,
                                   uint32_t *indexes, uint32_t room);
/* Finds such a consumer, marks it as told, and describes it. False: there is none. */
bool sb_housekeeper_tell_still(sb_connection *c, uint32_t slot, uint64_t until_ns, sb_consumer_facts *facts);
/* The number of looks that are noted for a queue. */
uint64_t sb_housekeeper_looks(const sb_queue_memory *memory);
/* Frees what a memory refers to. For each one that is not used any more. */
void sb_housekeeper_forget(sb_queue_memory *memory);
/* The time of the next look at the message, 0 = never. UINT64_MAX: the message is dead, and the caller carries it out. */
uint64_t sb_housekeeper_look_at(sb_queue *q, uint64_t position);

/* Dead messages of a queue that the housekeeper's program carries out together. `kind`: messages of one kind have the
 * same plan. `low` and `high` stand for all that they have in common. */
enum { SB_DEAD_MOST = 256 };
enum {
  SB_DEAD_HELD = 0,
  SB_DEAD_DONE = 1, /* it was carried out */
  SB_DEAD_GONE = 2, /* there is no dead message at the position */
  SB_DEAD_APART =
      3, /* the batch does not hold it: the caller carries it out by sb_dead_take, and stores SB_DEAD_DONE */
};
typedef struct {
  uint64_t position, token;
  uint32_t kind;
  uint32_t state; /* SB_DEAD_... */
} sb_dead_message;
typedef struct {
  uint64_t low, high;
  uint32_t first; /* the number of a message of this kind */
} sb_dead_kind;
typedef struct {
  uint32_t count, kinds;
  uint32_t last;  /* the number of the last message that is held */
  uint32_t apart; /* how many messages are apart */
  sb_dead_message messages[SB_DEAD_MOST];
  sb_dead_kind kind[SB_DEAD_MOST];
} sb_dead_batch;
/* Where messages of one kind go. All copies of a message have the same exchange, routing key and headers. */
typedef struct {
  sb_queue **targets;
  uint32_t target_count;
} sb_dead_part;
typedef struct {
  const char *exchange, *key, *headers; /* headers: those that tell of the death, encoded as in a table */
  uint32_t exchange_length, key_length, headers_length;
  uint32_t drops_copies; /* 1: the copies have no header CC */
  uint32_t part_count;   /* 0: the messages end, and go nowhere */
  const sb_dead_part *parts;
} sb_dead_plan;
/* Takes the first dead messages of a queue, of those that sb_housekeeper_run_timers found. `exact`: messages of one kind
 * have equal properties, all of them, since the routes depend on them. Another status than SB_OK: the batch has the
 * messages that were taken before. The caller ends each batch. */
sb_status sb_dead_take_batch(sb_queue *q, const sb_queue_memory *memory, bool exact, sb_dead_batch *batch);
/* Writes the record of a message that a batch holds, as sb_dead_take does. */
int64_t sb_dead_record(sb_queue *q, const sb_dead_message *message, char *buffer, uint32_t *why);
/* Carries out, in one commit, the messages `from` to `to` - 1 that the batch holds and whose kind has a plan. Any status
 * but SB_OK: as of sb_transaction_commit; none was carried out. SB_SYSTEM: this process has no memory. */
sb_status sb_dead_carry_out(sb_queue *q, sb_dead_batch *batch, const sb_dead_plan *const *plans, uint32_t from,
                            uint32_t to);
/* Gives back the messages that the batch still holds. They wait as before, in front of those behind the batch, and so do
 * those that are apart. Returns how many wait. */
uint32_t sb_dead_end_batch(sb_queue *q, sb_queue_memory *memory, sb_dead_batch *batch);
/* Takes the dead message at `position`: writes its record to `buffer`, and to *why the number of the reason: 1 rejected,
 * 2 expired, 3 the queue was full, 4 delivered too often. The caller commits its end (SB_CARRIED_OUT, SB_GIVEN_UP), or
 * calls sb_dead_return. Returns the length of the record, or minus a status; SB_EMPTY: there is no dead message. */
int64_t sb_dead_take(sb_queue *q, uint64_t position, char *buffer, uint32_t *why);
void sb_dead_return(sb_queue *q, const char *record, uint32_t why);
void sb_housekeeper_trim(sb_queue *q);
uint32_t sb_housekeeper_sweep(sb_connection *c, uint64_t deadline_ns);
bool sb_housekeeper_reclaim(sb_connection *c);
void sb_connection_reclaim(sb_connection *c);
bool sb_housekeeper_missing(sb_broker *b);
uint32_t sb_housekeeper_reap(sb_connection *c);
bool sb_housekeeper_reap_one(sb_connection *c, uint32_t process);
uint32_t sb_broker_attach_count(sb_broker *b);
uint32_t sb_broker_pids(sb_broker *b, int32_t *pids, uint32_t room);

/* ---- doctor: only reads. Returns the number of findings, of which it writes at most `room` ---- */
uint32_t sb_broker_check(sb_connection *c, sb_finding *findings, uint32_t room);
