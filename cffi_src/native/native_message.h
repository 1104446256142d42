// SPDX-License-Identifier: Apache-2.0
/* Messages as Python objects: put, take and acknowledge one message or many, each in one call. A call keeps the GIL,
 * unless it waits, or handles a batch that may be long.
 *
 * What: `Record` is the base of `shmbroker.Message`: a record of the core, its source, and whether it is settled.
 * `Batch` is the base of `shmbroker.MessageBatch`. `Receiver` takes messages from a queue, a consumer or a channel, and
 * creates a `Record` of each; only the Receiver of a queue also creates a `Batch`. `Messages` iterates over a consumer.
 * `QueueCalls` is the base of `shmbroker.Queue`: put, reserve, get and get_nowait. `Reserving` is what reserve returns.
 * `Sender` puts bodies that are `bytes` into a queue, with options, or many in one call. `ChannelCalls` is the base of
 * `shmbroker.Channel`: basic_publish; `ConsumerCalls` is that of `shmbroker.Consumer`: get. `Publisher` publishes by the
 * routes that it knows. `Properties` is the base of `shmbroker.BasicProperties`. `View` is a body that is read in place.
 * `Finalized` is the base of classes with a finalizer. Code that does not run for every message is Python
 * (shmbroker/message.py). docs/adr/0010 has the reasons against cffi here.
 *
 * A record or a batch is FRESH until it has reached the caller. With auto_ack it is SETTLED from the start, unless a
 * channel gave it as SB_GIVEN_UNREAD (shmbroker.cdef.h): then it is FRESH until its body was read. A record that
 * `Messages` takes is OPEN from the start. One that `QueueCalls` or `ConsumerCalls` returns is OPEN and `unseen`, until
 * its body is read: if Python frees it while an exception is set, that is treated as FRESH (docs/adr/0025). If an
 * interrupt raises an exception before a FRESH object has reached the caller, the object is freed, and gives its messages
 * back. A message that a get took returns to its position in its queue. A message of a consumer that still exists becomes
 * the next one that the consumer or the channel gives. So no FRESH message is lost between taking and handing over.
 */
#ifndef NATIVE_MESSAGE_H
#define NATIVE_MESSAGE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "shmbroker.h"

enum { OPEN = 0, SETTLED = 1, BROWSED = 2, FRESH = 3 };
enum { OF_QUEUE = 0, OF_CONSUMER = 1, OF_CHANNEL = 2 }; /* the kind of a handle */
#define RECORD_BYTES (sizeof(sb_record) + SB_MAX_PREFIX + SB_INLINE_BODY)
#define MOST_MESSAGES 65536 /* of a batch */
#define MOST_QUEUES 128     /* of a route: C keeps the GIL for a publish, and more queues would take too long */
#define LONGEST_EXPIRATION_MS 315360000000L /* ten years */
#define PROPERTIES_BYTES 4096               /* room for properties that sb_properties_encode encodes */
enum { NAMES = 0, CALLBACK = 1 };           /* fields of a Subscription, see shmbroker/channel/deliveries.py */

typedef struct {
  PyObject_HEAD PyObject *source; /* the queue, consumer or channel; it keeps `handle` valid */
  PyObject *body;                 /* `bytes`, or a memoryview of a browsed body; NULL: the body is not in the record */
  PyObject *rest;                 /* what else the record has behind its header, as `bytes`; NULL: nothing */
  PyObject *view;                 /* memoryview of a long body: from its first use on; with auto_ack from the start */
  PyObject *header;               /* the decoded header, which the Python part caches here */
  PyObject *consumer;             /* `names` of the Subscription to which a channel delivered the message; else NULL */
  PyObject *weak_references;
  void *handle;
  unsigned long long tag;
  char state, kind;
  bool unseen;     /* a get handed the message out, and its body was not read yet */
  sb_record fixed; /* the header of the record of the core */
} Record;

typedef struct {
  PyObject_HEAD void *handle; /* the owner of the Receiver keeps it valid */
  PyTypeObject *type;         /* of the messages */
  PyTypeObject *batches;
  allocfunc allocate; /* NULL: the garbage collector does not track messages of this type */
  /* Shared by all Receivers: its content is valid only until other Python code may run, in another thread or in a
   * finalizer. */
  char *buffer;
  char *many;                   /* like `buffer`, but for batches of this Receiver; NULL before the first batch */
  int status;                   /* why the last take found no message */
  unsigned long long polled_ns; /* when `status` last became SB_TICK, see sb_note_poll */
  Py_ssize_t delivered;
  char kind;
} Receiver;

/* What a connection of Python (shmbroker/_core/calls.py) and the compiled calls that drop the GIL share. */
typedef struct {
  PyObject_HEAD int calls; /* the number of calls in flight: while there are any, the connection is not released */
  char closed;             /* the connection was closed */
  char has_io;             /* an IO thread was ever started; every poll and every wait checks this */
} InFlight;

/* The memory for taken messages. index NULL: `buffer` has room for one record; else for up to `count` records. */
typedef struct {
  sb_queue *queue; /* the queue that a channel gets from; NULL: the handle is itself a queue */
  char *buffer;
  uint32_t *index;
  uint64_t size, used;
  uint32_t count;
} Room;

extern PyTypeObject *sb_batch_type, *sb_in_flight_type, *sb_properties_type, *sb_publisher_type, *sb_record_type,
    *sb_receiver_type, *sb_reserving_type, *sb_view_type, *sb_writable_type;
extern PyType_Spec sb_batch_spec, sb_channel_calls_spec, sb_consumer_calls_spec, sb_finalized_spec, sb_in_flight_spec,
    sb_messages_spec, sb_properties_spec, sb_publisher_spec, sb_queue_calls_spec, sb_sender_spec, sb_record_spec,
    sb_route_spec, sb_receiver_spec, sb_view_spec, sb_reserving_spec, sb_writable_spec;

void sb_know_routes(PyTypeObject *type);
/* Counts a call that will drop the GIL. The caller ends it with sb_in_flight_end. */
void sb_in_flight_begin(PyObject *connection);
/* Ends a counted call, and returns its result; the last call after a close releases the connection. NULL, with an
 * exception: the release failed, or `result` is NULL. */
PyObject *sb_in_flight_end(PyObject *connection, PyObject *result);
/* The function untracked_type(name) of Python. */
PyObject *sb_untracked_type(PyObject *module, PyObject *name);

/* The arguments of a put or a reserve. */
typedef struct {
  PyObject *first;                                               /* the body, or the size; NULL: it is not given */
  PyObject *timeout, *key, *priority, *properties, *ttl, *delay; /* None: not given */
  bool more;                                                     /* there are further options */
} PutArguments;

/* Called once, before sb_read_put. False: an exception is set. */
bool sb_put_names(void);
/* The number of names of keywords in the tuple `names`, NULL = 0. */
Py_ssize_t sb_count_names(PyObject *names);
/* Reads the arguments of `Queue.<call>`, whose first parameter is called `first`. False: an exception is set. */
bool sb_read_put(PutArguments *to, const char *call, const char *first, PyObject *const *arguments, Py_ssize_t count,
                 PyObject *names);
/* Reads the options; the buffer, of PROPERTIES_BYTES, is for the properties. False: Python must read them, since one
 * is not of its usual type, or is wrong. */
bool sb_read_options(sb_put_options *to, char *buffer, const PutArguments *given);
/* A dict of the options in `names`, for a method of Python. NULL: an exception is set. */
PyObject *sb_given_options(const char *first, PyObject *const *values, PyObject *names);
/* Called once, before sb_reserving. False: an exception is set. */
bool sb_reserve_names(void);
/* True if the size is a plain int, and small enough to reserve it with the GIL. */
bool sb_reserves_at_once(PyObject *size, uint64_t *bytes);
/* The context manager of a reservation that has not begun yet. */
PyObject *sb_reserving(PyObject *queue, PyObject *connection, void *handle, uint64_t size, const PutArguments *given);
/* Memory that the application writes into, and the number of its views. */
PyObject *sb_writable(void *address, Py_ssize_t length);
Py_ssize_t sb_writable_views(PyObject *writable);
/* True if the number of arguments is right; else raises TypeError. */
int sb_expect(Py_ssize_t count, Py_ssize_t wanted);
/* True if the object is a timeout: None, or seconds >= 0; else raises ValueError. */
int sb_is_timeout(PyObject *timeout);
extern PyObject *sb_good_timeout; /* the timeout that was accepted last; most callers pass the same object again */
static inline bool sb_is_good_timeout(PyObject *timeout) {
  return timeout == Py_None || timeout == sb_good_timeout || sb_is_timeout(timeout);
}
/* True if there are `wanted` arguments, or one more that is a timeout; else raises. The C function that takes this
 * timeout does not wait. It only checks the timeout for its Python caller, which may wait afterwards. */
static inline int sb_expect_timeout(PyObject *const *arguments, Py_ssize_t count, Py_ssize_t wanted) {
  return count == wanted + 1 ? sb_is_good_timeout(arguments[wanted]) : sb_expect(count, wanted);
}
/* CLOCK_MONOTONIC. */
uint64_t sb_clock_ns(void);
/* True if a good timeout means: do not wait. */
bool sb_is_zero(PyObject *timeout);
/* Converts a good timeout to a time of that clock; UINT64_MAX: never. */
uint64_t sb_deadline_of(PyObject *timeout);
/* Makes an interned string of each text. False: an exception is set. */
bool sb_intern(const char *const *texts, PyObject **names, int count);
/* The index of the name, a string, among the names; -1: it is none of them. */
int sb_index_of(PyObject *name, PyObject *const *names, int count);
/* Undoes the delivery of the message of a record that cannot be handed over. A message that a get took returns to its
 * position in its queue. So does a message whose consumer has ended. Any other one becomes the next message that its
 * consumer or channel gives. With auto_ack the message stays settled, and only the view that keeps its long body
 * ends: `view`, as sb_tag_of returns it. */
void sb_give_back(Receiver *self, PyObject *source, const sb_record *record, uint64_t view, int auto_ack);
/* Waits for messages without the GIL, until the time `until`. Signal handlers run from time to time, and an exception
 * of theirs ends the wait. Returns the length of the record, or with an `index` the number of records; minus a status;
 * 0: an exception is set. */
int64_t sb_wait_for(Receiver *self, Room *room, int auto_ack, uint64_t until);
/* Creates a Python message of the record in the buffer, in `state`, or SETTLED if auto_ack. NULL: an exception is set;
 * unless auto_ack, the delivery was undone as by sb_give_back. */
PyObject *sb_hand_over(Receiver *self, PyObject *source, const char *buffer, int64_t length, int auto_ack, char state);
/* Takes a message without waiting. None: there is none, and `status` has the reason. */
PyObject *sb_take_message(Receiver *self, PyObject *source, int auto_ack, char state);
/* Tries for a moment to take a message, of a queue, and keeps the GIL meanwhile: to drop the GIL and take it again would
 * cost more, and much more if another thread is busy. Returns what sb_take_message returns. */
PyObject *sb_await_message(Receiver *self, PyObject *source, int auto_ack);
/* Called when the application has looked, and does not wait. If the queue was empty, makes the status SB_TICK at the first
 * poll, and then at most every 100 ms: the caller must then tell the connection that the application polls. */
void sb_note_poll(Receiver *self);
/* Like sb_take_message, for an application that polls (sb_note_poll). */
PyObject *sb_poll_message(Receiver *self, PyObject *source, int auto_ack);
/* Makes a FRESH message OPEN, and marks it as `unseen`. */
void sb_record_hand_out(PyObject *message);
/* For a message with a long body that was settled when it was taken: takes over the view that its record names. The body
 * then exists as long as the message, or a memoryview of it, exists. False: an exception is set, and the view has
 * ended. */
bool sb_record_take_over_view(PyObject *message);
/* Settles, or returns, the message of a record that a handle of that kind gave. */
sb_status sb_settle_record(int kind, void *handle, const sb_record *record, sb_disposition disposition);
static inline const sb_record *sb_header_of(const char *record) { return (const sb_record *)(const void *)record; }
/* Puts a short body of type `bytes`; `options` NULL: without any. Returns a status. -1: the body is longer, or not
 * `bytes`. */
int sb_put_at_once(void *handle, PyObject *body, const sb_put_options *options);
extern PyObject *sb_empty_error; /* queue.Empty */
/* Called once, before a queue's put or get, or a consumer's get. False: an exception is set. */
bool sb_queue_names(void);
bool sb_consumer_names(void);
/* Publishes without waiting, by a route that the Publisher knows. Returns a status. -1: Python must publish. */
int sb_publish(PyObject *publisher, PyObject *exchange, PyObject *key, PyObject *body, PyObject *properties);
/* Called once, before a channel's basic_publish. False: an exception is set. */
bool sb_channel_names(void);
/* Encodes properties into the buffer, of PROPERTIES_BYTES, and stores in the options where they are, the priority
 * and the time to live. False: Python must encode them, and the options are of no use. */
bool sb_properties_encode(PyObject *properties, char *buffer, sb_put_options *options);
/* True if properties that sb_properties_encode has encoded have headers. */
bool sb_properties_have_headers(PyObject *properties);
/* True if such properties, or None, have the delivery_mode 1. */
bool sb_mode_is_transient(PyObject *properties);
/* Called once, after sb_properties_type was set. False: an exception is set. */
bool sb_properties_names(void);
/* Only for a record that does not contain its body. Returns the tag that sb_view_begin takes (shmbroker.cdef.h); if the
 * message was settled when it was taken, returns the view of its body. Until a memoryview owns this view, no object
 * ends it: a caller that fails before that ends it by sb_give_back. */
uint64_t sb_tag_of(int kind, const char *record, Py_ssize_t length);
/* The body as `bytes`: of a short body, the copy that the message has. */
PyObject *sb_record_bytes(PyObject *record, PyObject *unused);
/* The body; the message keeps it for the next access. It is read in place, or with `may_copy` copied if the core has no
 * view left, or no memory for one. */
PyObject *sb_record_body(PyObject *record, bool may_copy);
/* A memoryview of the body of a message that is held under `tag`. The memoryview keeps the slot, also after the message
 * was settled. If the body lies in parts, it is a memoryview of a copy, and keeps no slot. With `may_copy` it is
 * that of a copy, too, if the core has no view left, or no memory for one. */
PyObject *sb_view_of(PyObject *connection, const sb_record *header, uint64_t tag, bool may_copy);
/* Calls a finalizer, a callable without arguments, from a place where no exception can be raised. Calls it again if it
 * raised, until it returns, at most 100 times. If an exception of a signal handler came in the main thread, Python
 * raises it there afterwards; any other exception is printed. Keeps the exception that was set before. */
void sb_finalize(PyObject *finalizer);
/* Called once, before an object of the type Finalized is made. False: an exception is set. */
bool sb_finalizer_name(void);
/* The function run_finalizer(finalizer, pointer) of Python, for the finalizers of cffi, which get a pointer. */
PyObject *sb_run_finalizer(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
/* A new reference to the object of Python (`_core_connection`) that has the handle of the connection through which
 * `source` takes messages. NULL: an exception is set. */
PyObject *sb_connection_of(PyObject *source);
/* Ends a view of the core that has no memoryview. Keeps the exception that is set. Needs no memory, unless the
 * connection was closed meanwhile: Python may then release it. */
void sb_end_view_of(PyObject *source, uint64_t token);
/* Called once, before all other functions of views. False: an exception is set. */
bool sb_view_names(void);
/* Like sb_view_of, for a caller that has taken a view of the core, `token`, already. That view ends when the memoryview
 * is freed. It ends within this call if the call fails, or if it copies a body that lies in parts. */
PyObject *sb_view_memory(PyObject *connection, uint64_t token, uint64_t address, uint64_t length);
/* The function read_in_place(connection, slot, generation, length) of Python: returns a memoryview of the body in that
 * slot, or the number of a status. The caller need not hold the message: the memoryview keeps the slot. */
PyObject *sb_read_in_place(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *sb_take_many(PyObject *receiver, PyObject *const *arguments, Py_ssize_t count);
/* Gets of a channel: get(source, queue, auto_ack), get_wait(source, queue, auto_ack, until). `queue` is the address of
 * the queue's handle. Both return a message or a status. */
PyObject *sb_channel_receiver_get(PyObject *receiver, PyObject *const *arguments, Py_ssize_t count);
PyObject *sb_channel_receiver_get_wait(PyObject *receiver, PyObject *const *arguments, Py_ssize_t count);
PyObject *sb_channel_receiver_deliver(PyObject *receiver, PyObject *const *arguments, Py_ssize_t count);
PyObject *sb_channel_receiver_settle(PyObject *receiver, PyObject *const *arguments, Py_ssize_t count);
PyObject *sb_wait_many(PyObject *receiver, PyObject *const *arguments, Py_ssize_t count);

#endif
