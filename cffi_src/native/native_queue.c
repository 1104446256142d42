// SPDX-License-Identifier: Apache-2.0
/* The calls that applications make for each message: put, get and get_nowait of a queue. See native_message.h. */
#include "native_message.h"

#include <structmember.h>

typedef struct {
  PyObject_HEAD Receiver *taker;
  void *handle; /* the subclass in Python keeps it valid */
  char closed;  /* set by Python: the application has closed the handle */
} QueueCalls;

static PyObject *timeout_name, *auto_ack_name;

bool sb_queue_names(void) {
  timeout_name = PyUnicode_InternFromString("timeout");
  auto_ack_name = PyUnicode_InternFromString("auto_ack");
  return timeout_name != NULL && auto_ack_name != NULL;
}

static bool is_name(PyObject *given, PyObject *name) { return given == name || PyUnicode_Compare(given, name) == 0; }

/* ---- putting ---- */

/* Calls the method `_put_with` of Python with the same arguments. */
static PyObject *put_in_python(PyObject *object, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
  PyObject *function = PyObject_GetAttrString(object, "_put_with"), *positional = PyTuple_New(count),
           *named = PyDict_New(), *result = NULL;
  bool good = function != NULL && positional != NULL && named != NULL;
  for (Py_ssize_t i = 0; good && i < count; i++) {
    good = PyTuple_SetItem(positional, i, Py_NewRef(arguments[i])) == 0;
  }
  for (Py_ssize_t i = 0; good && names != NULL && i < PyTuple_Size(names); i++) {
    good = PyDict_SetItem(named, PyTuple_GetItem(names, i), arguments[count + i]) == 0;
  }
  if (good) result = PyObject_Call(function, positional, named);
  Py_XDECREF(function);
  Py_XDECREF(positional);
  Py_XDECREF(named);
  return result;
}

static PyObject *queue_put(PyObject *object, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
  const QueueCalls *self = (const QueueCalls *)object;
  PyObject *timeout = Py_None;
  if (names != NULL && PyTuple_Size(names) == 1 && is_name(PyTuple_GetItem(names, 0), timeout_name)) {
    timeout = arguments[count];
    names = NULL;
  }
  if (count != 1 || (names != NULL && PyTuple_Size(names) > 0)) {
    return put_in_python(object, arguments, count, names);
  }
  if (!sb_is_good_timeout(timeout)) {
    return NULL;
  }
  int status = self->closed ? SB_CLOSED : sb_put_at_once(self->handle, arguments[0]);
  if (status == SB_OK) {
    Py_RETURN_NONE;
  }
  return PyObject_CallMethod(object, "_put_slowly", "OOi", arguments[0], timeout, status);
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
  for (Py_ssize_t i = 0; names != NULL && i < PyTuple_Size(names); i++) {
    PyObject *name = PyTuple_GetItem(names, i);
    if (is_name(name, auto_ack_name)) {
      to->auto_ack = PyObject_IsTrue(values[i]);
    } else if (to->timeout != NULL && is_name(name, timeout_name)) {
      to->timeout = values[i];
    } else {
      PyErr_Format(PyExc_TypeError, "Queue.%s() got an unexpected keyword argument '%U'", what, name);
      return false;
    }
  }
  return to->auto_ack >= 0 && (to->timeout == NULL || sb_is_good_timeout(to->timeout));
}

/* The message that a get returns. If `message` is not a message, calls the method `slowly` of Python, which waits for one
 * or raises. An interrupt may raise an exception just after the message was returned: then Python drops the message
 * while the exception is set, and record_dealloc gives it back. */
static PyObject *hand_out(PyObject *object, PyObject *message, const char *slowly, const GetKeywords *given) {
  const QueueCalls *self = (const QueueCalls *)object;
  if (message == Py_None) {
    int status = self->closed ? SB_CLOSED : self->taker->status;
    PyObject *auto_ack = given->auto_ack ? Py_True : Py_False, *timeout = given->timeout;
    Py_DECREF(message);
    message = timeout != NULL ? PyObject_CallMethod(object, slowly, "iOO", status, auto_ack, timeout)
                              : PyObject_CallMethod(object, slowly, "iO", status, auto_ack);
  }
  if (message != NULL) sb_record_hand_out(message);
  return message;
}

static PyObject *queue_get(PyObject *object, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
  const QueueCalls *self = (const QueueCalls *)object;
  GetKeywords given = {.timeout = Py_None};
  if (!read_keywords(&given, "get", arguments, count, names)) {
    return NULL;
  }
  PyObject *message = self->closed ? Py_NewRef(Py_None) : sb_take_message(self->taker, object, given.auto_ack, FRESH);
  return hand_out(object, message, "_get_slowly", &given);
}

static PyObject *queue_get_nowait(PyObject *object, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
  const QueueCalls *self = (const QueueCalls *)object;
  GetKeywords given = {NULL, 0};
  if (!read_keywords(&given, "get_nowait", arguments, count, names)) {
    return NULL;
  }
  PyObject *message = self->closed ? Py_NewRef(Py_None) : sb_poll_message(self->taker, object, given.auto_ack);
  return hand_out(object, message, "_get_nowait_slowly", &given);
}

/* ---- the type ---- */

static int queue_init(PyObject *object, PyObject *arguments, PyObject *keywords) {
  QueueCalls *self = (QueueCalls *)object;
  unsigned long long address;
  PyObject *taker;
  (void)keywords;
  if (!PyArg_ParseTuple(arguments, "KO!", &address, sb_receiver_type, &taker)) {
    return -1;
  }
  Receiver *before = self->taker;
  self->taker = (Receiver *)Py_NewRef(taker);
  self->handle = (void *)(uintptr_t)address;
  Py_XDECREF((PyObject *)before);
  return 0;
}

static void queue_dealloc(PyObject *object) {
  QueueCalls *self = (QueueCalls *)object;
  PyTypeObject *type = Py_TYPE(object);
  Py_XDECREF((PyObject *)self->taker);
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
     "    PreconditionFailed: the expiration in ``properties`` is not allowed."},
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
    {"_calls_closed", T_BOOL, offsetof(QueueCalls, closed), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot queue_slots[] = {
    {Py_tp_init, (void *)queue_init},
    {Py_tp_dealloc, (void *)queue_dealloc},
    {Py_tp_methods, queue_methods},
    {Py_tp_members, queue_members},
    {Py_tp_doc, (void *)"The calls of a queue's handle for single messages; the base of shmbroker.Queue."},
    {0, NULL},
};
PyType_Spec sb_queue_calls_spec = {"shmbroker._native_message.QueueCalls", sizeof(QueueCalls), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, queue_slots};
