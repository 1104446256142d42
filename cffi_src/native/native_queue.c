// SPDX-License-Identifier: Apache-2.0
/* The calls that applications make for each message: put, get and get_nowait of a queue. See native_message.h. */
#include "native_message.h"

#include <structmember.h>

typedef struct {
  PyObject_HEAD Receiver *taker;
  PyObject *connection; /* an InFlight */
  void *handle;         /* the subclass in Python keeps it valid */
  char closed;          /* set by Python: the application has closed the handle */
} QueueCalls;

/* Also true for an object whose constructor did not run: then the method of Python says what is missing. */
static bool is_closed(const QueueCalls *self) { return self->closed || self->taker == NULL; }

/* The names of keywords and methods that these calls use. */
enum { TIMEOUT, AUTO_ACK, PUT_WITH, PUT_SLOWLY, GET_SLOWLY, GET_NOWAIT_SLOWLY, RESERVE_WITH, NAME_COUNT };
static const char *const TEXTS[NAME_COUNT] = {"timeout",     "auto_ack",           "_put_with",    "_put_slowly",
                                              "_get_slowly", "_get_nowait_slowly", "_reserve_with"};
static PyObject *known[NAME_COUNT]; /* interned strings */
PyObject *sb_empty_error;

bool sb_queue_names(void) {
  PyObject *module = PyImport_ImportModule("queue");
  sb_empty_error = module != NULL ? PyObject_GetAttrString(module, "Empty") : NULL;
  Py_XDECREF(module);
  return sb_empty_error != NULL && sb_intern(TEXTS, known, NAME_COUNT);
}

static bool is_name(PyObject *given, int name) {
  return given == known[name] || PyUnicode_Compare(given, known[name]) == 0;
}

/* ---- putting ---- */

/* Calls a method of Python: it reports options that are wrong, and waits for room. */
static PyObject *put_in_python(PyObject *object, int method, const char *first, const PutArguments *given,
                               PyObject *const *values, PyObject *names) {
  PyObject *options = sb_given_options(first, values, names), *result = NULL;
  if (options != NULL) {
    result = PyObject_CallMethodObjArgs(object, known[method], given->first, given->timeout, options, NULL);
  }
  Py_XDECREF(options);
  return result;
}

static PyObject *put_plain(PyObject *object, PyObject *body, PyObject *timeout) {
  const QueueCalls *self = (const QueueCalls *)object;
  if (!sb_is_good_timeout(timeout)) {
    return NULL;
  }
  int status = is_closed(self) ? SB_CLOSED : sb_put_at_once(self->handle, body, NULL);
  if (status == SB_OK) {
    Py_RETURN_NONE;
  }
  PyObject *number = PyLong_FromLong(status), *result = NULL;
  if (number != NULL) result = PyObject_CallMethodObjArgs(object, known[PUT_SLOWLY], body, timeout, number, NULL);
  Py_XDECREF(number);
  return result;
}

static PyObject *queue_put(PyObject *object, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
  const QueueCalls *self = (const QueueCalls *)object;
  if (count == 1 && names == NULL) {
    return put_plain(object, arguments[0], Py_None);
  }
  PutArguments given;
  if (!sb_read_put(&given, "put", "body", arguments, count, names)) {
    return NULL;
  }
  sb_put_options options;
  char buffer[PROPERTIES_BYTES];
  bool timed = given.ttl != Py_None || given.delay != Py_None;
  if (!given.more && !timed && given.key == Py_None && given.priority == Py_None && given.properties == Py_None) {
    return put_plain(object, given.first, given.timeout);
  }
  if (!given.more && !is_closed(self) && sb_read_options(&options, buffer, &given)) {
    if (!sb_is_good_timeout(given.timeout)) {
      return NULL;
    }
    if (sb_put_at_once(self->handle, given.first, &options) == SB_OK) {
      Py_RETURN_NONE;
    }
  }
  return put_in_python(object, PUT_WITH, "body", &given, arguments + count, names);
}

static PyObject *queue_reserve(PyObject *object, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
  const QueueCalls *self = (const QueueCalls *)object;
  PutArguments given;
  uint64_t size;
  if (!sb_read_put(&given, "reserve", "size", arguments, count, names)) {
    return NULL;
  }
  bool timed = given.ttl != Py_None || given.delay != Py_None;
  if (given.more || timed || is_closed(self) || !sb_reserves_at_once(given.first, &size)) {
    return put_in_python(object, RESERVE_WITH, "size", &given, arguments + count, names);
  }
  return sb_is_good_timeout(given.timeout) ? sb_reserving(object, self->connection, self->handle, size, &given) : NULL;
}

/* ---- getting ---- */

typedef struct {
  PyObject *timeout; /* NULL: the call has no such keyword */
  int auto_ack;
} GetKeywords;

/* False: an exception is set. */
static bool read_keywords(GetKeywords *to, const char *what, PyObject *const *values, Py_ssize_t count,
                          PyObject *names) {
  if (count > 0) {
    PyErr_Format(PyExc_TypeError, "Queue.%s() takes 1 positional argument but %zd were given", what, count + 1);
    return false;
  }
  for (Py_ssize_t i = 0; i < sb_count_names(names); i++) {
    PyObject *name = PyTuple_GetItem(names, i);
    if (is_name(name, AUTO_ACK)) {
      to->auto_ack = PyObject_IsTrue(values[i]);
      if (to->auto_ack < 0) return false;
    } else if (to->timeout != NULL && is_name(name, TIMEOUT)) {
      to->timeout = values[i];
    } else {
      PyErr_Format(PyExc_TypeError, "Queue.%s() got an unexpected keyword argument '%U'", what, name);
      return false;
    }
  }
  return to->timeout == NULL || sb_is_good_timeout(to->timeout);
}

/* Calls the method `name` of Python, which waits for a message or raises, with the status of the attempt. */
static PyObject *get_slowly(PyObject *object, int name, int status, const GetKeywords *given) {
  PyObject *auto_ack = given->auto_ack ? Py_True : Py_False, *number = PyLong_FromLong(status), *message = NULL;
  if (number != NULL) {
    message = PyObject_CallMethodObjArgs(object, known[name], number, auto_ack, given->timeout, NULL);
  }
  Py_XDECREF(number);
  return message;
}

/* The message that a get returns; `message` is what the first attempt found. An interrupt may raise an exception just
 * after the message was returned: then Python drops the message while the exception is set, and record_dealloc gives it
 * back. */
static PyObject *hand_out(PyObject *object, PyObject *message, int slowly, const GetKeywords *given) {
  const QueueCalls *self = (const QueueCalls *)object;
  if (message == Py_None) {
    int status = is_closed(self) ? SB_CLOSED : self->taker->status;
    Py_DECREF(message);
    message = NULL;
    if (status == SB_EMPTY && given->timeout == NULL) {
      PyErr_SetNone(sb_empty_error);
    } else {
      message = get_slowly(object, slowly, status, given);
    }
  }
  if (message != NULL && PyObject_TypeCheck(message, sb_record_type)) sb_record_hand_out(message);
  return message;
}

/* Continues a wait in Python until `until`: for instance memory must be added first. */
static PyObject *wait_in_python(PyObject *object, int status, uint64_t until, const GetKeywords *given) {
  uint64_t now = sb_clock_ns();
  double left = until > now ? (double)(until - now) / 1e9 : 0;
  PyObject *timeout = until == UINT64_MAX ? Py_NewRef(Py_None) : PyFloat_FromDouble(left), *message = NULL;
  GetKeywords rest = {timeout, given->auto_ack};
  if (timeout != NULL) message = get_slowly(object, GET_SLOWLY, status, &rest);
  Py_XDECREF(timeout);
  return message;
}

/* Waits for a message, for a moment with the GIL, then without. */
static PyObject *wait_for_message(PyObject *object, const GetKeywords *given) {
  QueueCalls *self = (QueueCalls *)object;
  uint64_t until = sb_deadline_of(given->timeout);
  PyObject *message = sb_await_message(self->taker, object, given->auto_ack);
  if (message != Py_None) {
    return message;
  }
  Py_DECREF(message);
  int status = self->taker->status;
  const InFlight *connection = (const InFlight *)self->connection;
  if (status != SB_EMPTY || connection->closed || !connection->has_io) {
    return wait_in_python(object, status, until, given);
  }
  Room room = {.buffer = PyMem_Malloc(RECORD_BYTES)};
  if (room.buffer == NULL) {
    return PyErr_NoMemory();
  }
  PyObject *counted = Py_NewRef(self->connection);
  sb_in_flight_begin(counted);
  int64_t length = sb_wait_for(self->taker, &room, given->auto_ack, until);
  message = length > 0 ? sb_hand_over(self->taker, object, room.buffer, length, given->auto_ack, FRESH) : NULL;
  PyMem_Free(room.buffer);
  message = sb_in_flight_end(counted, message);
  Py_DECREF(counted);
  if (length >= 0 || PyErr_Occurred() != NULL) {
    return message;
  }
  if (length == -(int64_t)SB_TIMEOUT) {
    PyErr_SetNone(sb_empty_error);
    return NULL;
  }
  return wait_in_python(object, (int)-length, until, given);
}

static PyObject *queue_get(PyObject *object, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
  const QueueCalls *self = (const QueueCalls *)object;
  GetKeywords given = {.timeout = Py_None};
  if (!read_keywords(&given, "get", arguments, count, names)) {
    return NULL;
  }
  PyObject *message =
      is_closed(self) ? Py_NewRef(Py_None) : sb_take_message(self->taker, object, given.auto_ack, FRESH);
  if (message != NULL && message != Py_None) {
    sb_record_hand_out(message);
    return message;
  }
  if (message == NULL || is_closed(self) || self->taker->status != SB_EMPTY) {
    return hand_out(object, message, GET_SLOWLY, &given);
  }
  if (sb_is_zero(given.timeout)) { /* as get_nowait, from here on */
    given.timeout = NULL;
    sb_note_poll(self->taker);
    return hand_out(object, message, GET_NOWAIT_SLOWLY, &given);
  }
  Py_DECREF(message);
  return hand_out(object, wait_for_message(object, &given), GET_SLOWLY, &given);
}

static PyObject *queue_get_nowait(PyObject *object, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
  const QueueCalls *self = (const QueueCalls *)object;
  GetKeywords given = {NULL, 0};
  if (!read_keywords(&given, "get_nowait", arguments, count, names)) {
    return NULL;
  }
  PyObject *message = is_closed(self) ? Py_NewRef(Py_None) : sb_poll_message(self->taker, object, given.auto_ack);
  return hand_out(object, message, GET_NOWAIT_SLOWLY, &given);
}

/* ---- the type ---- */

static int queue_init(PyObject *object, PyObject *arguments, PyObject *keywords) {
  QueueCalls *self = (QueueCalls *)object;
  unsigned long long address;
  PyObject *taker, *connection;
  (void)keywords;
  if (!PyArg_ParseTuple(arguments, "KO!O!", &address, sb_receiver_type, &taker, sb_in_flight_type, &connection)) {
    return -1;
  }
  PyObject *before[2] = {(PyObject *)self->taker, self->connection};
  self->taker = (Receiver *)Py_NewRef(taker);
  self->connection = Py_NewRef(connection);
  self->handle = (void *)(uintptr_t)address;
  Py_XDECREF(before[0]);
  Py_XDECREF(before[1]);
  return 0;
}

/* A connection may refer to its queues, so the garbage collector must see what a queue refers to. */
static int queue_traverse(PyObject *object, visitproc visit, void *arg) {
  QueueCalls *self = (QueueCalls *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)self->taker);
  Py_VISIT(self->connection);
  return 0;
}

static int queue_clear(PyObject *object) {
  QueueCalls *self = (QueueCalls *)object;
  Py_CLEAR(self->taker); /* so the handle counts as closed */
  Py_CLEAR(self->connection);
  return 0;
}

static void queue_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  (void)queue_clear(object);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

#define CALL(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS
static PyMethodDef queue_methods[] = {
    {"put", CALL(queue_put),
     "put($self, body, *, timeout=None, **options)\n--\n\n"
     "Puts a message at the end of the queue, and waits for room.\n\n"
     "Args:\n"
     "    body: bytes-like, up to 1 GiB.\n"
     "    timeout: seconds to wait for room in the queue and in memory; ``None`` = for ever, 0 = not at all.\n"
     "    options: These keywords:\n\n"
     "        - ``priority``: 0 to 255; kept with the message.\n"
     "        - ``ttl``: seconds after which the message expires.\n"
     "        - ``delay``: seconds before the message may be delivered.\n"
     "        - ``group``: the name of the message's group, kept as the header JMSXGroupID.\n"
     "        - ``duplicate_id``: a string or bytes, up to 255 bytes, kept as the header x-duplicate-id. A queue with\n"
     "          ``duplicate_ids`` that knows it stores nothing, and the call returns.\n"
     "        - ``key``: up to 255 bytes of UTF-8, kept with the message.\n"
     "        - ``headers``: AMQP headers; they replace those of ``properties``.\n"
     "        - ``properties``: AMQP properties; the keywords above take precedence.\n\n"
     "Raises:\n"
     "    queue.Full: no room in time (overflow=\"block\").\n"
     "    OutOfMemory: no memory in time.\n"
     "    NeverFits: the message can never fit. If the memory is what is too small, it is also an ``OutOfMemory``.\n"
     "    NotFound: the queue was deleted.\n"
     "    TypeError: the body is a ``str`` or not bytes-like, or a keyword is not one of the above, or has a wrong\n"
     "        type.\n"
     "    ValueError: the value of a keyword is out of range, or too long.\n"
     "    PreconditionFailed: the expiration in ``properties`` is not allowed.\n"
     "    Timeout: another process is putting a message with the same ``duplicate_id``, and is stopped."},
    {"reserve", CALL(queue_reserve),
     "reserve($self, size, *, timeout=None, **options)\n--\n\n"
     "Reserves memory for a body of ``size`` bytes; ``with`` gives a writable memoryview to write the body into.\n\n"
     "The memoryview is of shared memory. If the body must lie in several parts, it is of private memory, and the end\n"
     "of the block copies the body into the parts.\n\n"
     "The message is published when the block ends, and dropped when the block raises. If a slice of the memoryview,\n"
     "or an array made from it, still exists when the block ends, a copy is published: the application could still\n"
     "write into the original. Delete such objects before the block ends to avoid the copy.\n\n"
     "A signal handler may raise after the block has ended. If the message was published before, it stays "
     "published.\n\n"
     "Args:\n"
     "    size: 0 to 1 GiB.\n"
     "    timeout: as for :meth:`put`.\n"
     "    options: as for :meth:`put`.\n\n"
     "Raises:\n"
     "    queue.Full: no room in time (overflow=\"block\" or \"drop\").\n"
     "    OutOfMemory: no memory in time; at the end of the block: none for the copy, or none in time for the place "
     "in\n"
     "        the queue.\n"
     "    NeverFits: the body can never fit. If the memory is what is too small, it is also an ``OutOfMemory``."},
    {"get", CALL(queue_get),
     "get($self, *, timeout=None, auto_ack=False)\n--\n\n"
     "Takes the oldest ready message.\n\n"
     "Args:\n"
     "    timeout: seconds to wait for a message; ``None`` = for ever, 0 = not at all.\n"
     "    auto_ack: settle the message when it is taken.\n\n"
     "Raises:\n"
     "    queue.Empty: no message came in time.\n"
     "    NotFound: the queue was deleted."},
    {"get_nowait", CALL(queue_get_nowait),
     "get_nowait($self, *, auto_ack=False)\n--\n\n"
     "Takes the oldest ready message as :meth:`get` does, without waiting."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef queue_members[] = {
    {"_taker", T_OBJECT, offsetof(QueueCalls, taker), READONLY, NULL},
    {"_core_connection", T_OBJECT, offsetof(QueueCalls, connection), READONLY, NULL},
    {"_calls_closed", T_BOOL, offsetof(QueueCalls, closed), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot queue_slots[] = {
    {Py_tp_init, (void *)queue_init},
    {Py_tp_traverse, (void *)queue_traverse},
    {Py_tp_clear, (void *)queue_clear},
    {Py_tp_dealloc, (void *)queue_dealloc},
    {Py_tp_methods, queue_methods},
    {Py_tp_members, queue_members},
    {Py_tp_doc, (void *)"The calls of a queue's handle for single messages; the base of shmbroker.Queue."},
    {0, NULL},
};
PyType_Spec sb_queue_calls_spec = {"shmbroker._native_message.QueueCalls", sizeof(QueueCalls), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, queue_slots};
