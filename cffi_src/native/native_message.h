// SPDX-License-Identifier: Apache-2.0
/* Messages as Python objects: putting, taking and acknowledging, one or many, each in one call that keeps the GIL.
 *
 * What: `Record` is the base of `shmbroker.Message`: a record of the core, where it came from, and whether it is
 * settled; `Batch` that of `shmbroker.MessageBatch`. `Taker` makes them out of a queue, a consumer or a channel; `Messages`
 * iterates over a consumer; `Putter` puts what is plain, `Publisher` knows where it goes; `View` is a body that is read in
 * place. Everything that is not on the way of every message is Python
 * (shmbroker/message.py). Why not cffi here: docs/adr/0010.
 *
 * A record or a batch is FRESH until it has reached the caller: an exception that an interrupt raises on the way drops
 * the object, and a FRESH one that goes away puts its messages back to their places. So nothing gets lost between taking
 * and handing over.
 */
#ifndef NATIVE_MESSAGE_H
#define NATIVE_MESSAGE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "shmbroker.h"

enum { OPEN = 0, SETTLED = 1, BROWSED = 2, FRESH = 3 };
enum { ACK = 0, RETURN = 3 };
enum { OF_QUEUE = 0, OF_CONSUMER = 1, OF_CHANNEL = 2 }; /* what a handle is */
#define RECORD_BYTES (64 + 65536 + 4096)

typedef struct {
  PyObject_HEAD PyObject *source; /* the queue, consumer or channel; it keeps the handle */
  PyObject *data;                 /* bytes */
  PyObject *view;                 /* a memoryview, once somebody looked at a body that is read in place */
  PyObject *front;                /* of the Python part */
  PyObject *consumer;             /* of a channel: the names of the consumer it was delivered to */
  PyObject *weak_references;
  void *handle;
  unsigned long long tag;
  char state, kind;
} Record;

typedef struct {
  PyObject_HEAD void *handle; /* the owner of the Taker keeps it */
  PyTypeObject *type;         /* of the messages */
  PyTypeObject *batches;
  allocfunc allocate;
  char *buffer; /* of all Takers: used under the GIL only, and never across a point where it is dropped */
  char *many;   /* the same for a batch; NULL until there is one */
  int status;   /* why the last take brought nothing */
  unsigned long long polled_ns; /* when it told last that its queue was empty, see taker_take */
  Py_ssize_t delivered;
  char kind;
} Taker;

/* Where what is taken goes to: one record, or with an `index` up to `count` of them. */
typedef struct {
  sb_queue *queue; /* of a get by a channel; else NULL */
  char *buffer;
  uint32_t *index;
  uint64_t size, used;
  uint32_t count;
} Room;

extern PyTypeObject *sb_batch_type, *sb_record_type, *sb_taker_type, *sb_view_type;
extern PyType_Spec sb_batch_spec, sb_messages_spec, sb_publisher_spec, sb_putter_spec, sb_record_spec, sb_route_spec,
    sb_taker_spec, sb_view_spec;

void sb_know_routes(PyTypeObject *type);

/* Raises TypeError for another number of arguments. */
int sb_expect(Py_ssize_t count, Py_ssize_t wanted);
/* Whether that is a timeout: None, or seconds >= 0. Raises ValueError. */
int sb_is_timeout(PyObject *timeout);
extern PyObject *sb_good_timeout; /* the number that was found good last: most callers pass the same again */
/* So many arguments, and perhaps a timeout behind them, which is checked for calls that may have to wait afterwards. */
static inline int sb_expect_timeout(PyObject *const *arguments, Py_ssize_t count, Py_ssize_t wanted) {
  return count == wanted + 1
             ? arguments[wanted] == Py_None || arguments[wanted] == sb_good_timeout || sb_is_timeout(arguments[wanted])
             : sb_expect(count, wanted);
}
/* A record that was taken goes back to its place. */
void sb_give_back(Taker *self, const char *record);
/* Waits without the GIL; handlers of signals run in between, and what they raise ends the wait. Length, or number of
 * records; minus a status; 0: an exception is set. */
int64_t sb_wait_for(Taker *self, Room *room, int auto_ack, uint64_t until);
/* A message of a record in the buffer; without memory for it, it goes back to its place. */
PyObject *sb_hand_over(Taker *self, PyObject *source, const char *buffer, int64_t length, int auto_ack, char state);
/* The body, copied. */
PyObject *sb_record_bytes(PyObject *record, PyObject *unused);
/* A memoryview on the body of a message that is held under that tag: it keeps the slot, whatever becomes of the message. */
PyObject *sb_view_of(PyObject *connection, const sb_record *front, uint64_t tag);
/* The same with a reference that was taken already. */
PyObject *sb_view_memory(PyObject *connection, uint64_t token, uint64_t address, uint64_t length);
/* read_in_place(connection, slot, generation, length): a memoryview of a body whose message nobody here holds; or a status. */
PyObject *sb_read_in_place(PyObject *module, PyObject *const *arguments, Py_ssize_t count);
PyObject *sb_take_many(PyObject *taker, PyObject *const *arguments, Py_ssize_t count);
/* Of a channel: get(source, queue, auto_ack), get_wait(source, queue, auto_ack, until). */
PyObject *sb_channel_taker_get(PyObject *taker, PyObject *const *arguments, Py_ssize_t count);
PyObject *sb_channel_taker_get_wait(PyObject *taker, PyObject *const *arguments, Py_ssize_t count);
PyObject *sb_channel_taker_deliver(PyObject *taker, PyObject *const *arguments, Py_ssize_t count);
PyObject *sb_channel_taker_settle(PyObject *taker, PyObject *const *arguments, Py_ssize_t count);
PyObject *sb_wait_many(PyObject *taker, PyObject *const *arguments, Py_ssize_t count);

#endif
