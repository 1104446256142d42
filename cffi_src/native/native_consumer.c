// SPDX-License-Identifier: Apache-2.0
/* The call of a consumer that applications make for each message: get. Iteration is that of Messages. See
 * native_message.h. */
#include "native_message.h"

typedef struct {
  PyObject_HEAD Receiver *taker;
  char auto_ack;
  char acks_at_once; /* no acknowledgement ever waits for its batch */
} ConsumerCalls;

static PyObject *timeout_name, *get_slowly; /* interned strings */

bool sb_consumer_names(void) {
  timeout_name = PyUnicode_InternFromString("timeout");
  get_slowly = PyUnicode_InternFromString("_get_slowly");
  return timeout_name != NULL && get_slowly != NULL;
}

/* The argument of a get; NULL: an exception is set. */
static PyObject *timeout_of(PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
  Py_ssize_t named = sb_count_names(names);
  if (count > 1) {
    PyErr_Format(PyExc_TypeError, "Consumer.get() takes at most 2 positional arguments but %zd were given", count + 1);
    return NULL;
  }
  for (Py_ssize_t i = 0; i < named; i++) {
    PyObject *name = PyTuple_GetItem(names, i);
    if (PyUnicode_Compare(name, timeout_name) != 0) {
      PyErr_Format(PyExc_TypeError, "Consumer.get() got an unexpected keyword argument '%U'", name);
      return NULL;
    }
  }
  if (count + named > 1) {
    PyErr_SetString(PyExc_TypeError, "Consumer.get() got multiple values for argument 'timeout'");
    return NULL;
  }
  PyObject *timeout = count + named == 1 ? arguments[0] : Py_None;
  return sb_is_good_timeout(timeout) ? timeout : NULL;
}

/* True if the take found the queues empty, and nothing is left to try. An acknowledgement that waits for its batch would
 * be sent first, since it may make room. */
static bool is_over(const ConsumerCalls *self, PyObject *timeout) {
  return self->taker != NULL && self->taker->status == SB_EMPTY && self->acks_at_once && sb_is_zero(timeout);
}

static PyObject *consumer_get(PyObject *object, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
  const ConsumerCalls *self = (const ConsumerCalls *)object;
  PyObject *timeout = timeout_of(arguments, count, names);
  if (timeout == NULL) {
    return NULL;
  }
  PyObject *message =
      self->taker != NULL ? sb_take_message(self->taker, object, self->auto_ack, FRESH) : Py_NewRef(Py_None);
  if (message == Py_None) {
    Py_DECREF(message);
    if (is_over(self, timeout)) {
      PyErr_SetNone(sb_empty_error);
      return NULL;
    }
    message = PyObject_CallMethodObjArgs(object, get_slowly, timeout, NULL);
  }
  if (message != NULL && PyObject_TypeCheck(message, sb_record_type)) sb_record_hand_out(message);
  return message;
}

/* ---- the type ---- */

static int consumer_init(PyObject *object, PyObject *arguments, PyObject *keywords) {
  ConsumerCalls *self = (ConsumerCalls *)object;
  int auto_ack, acks_at_once;
  PyObject *taker;
  (void)keywords;
  if (!PyArg_ParseTuple(arguments, "O!pp", sb_receiver_type, &taker, &auto_ack, &acks_at_once)) {
    return -1;
  }
  Receiver *before = self->taker;
  self->taker = (Receiver *)Py_NewRef(taker);
  self->auto_ack = (char)auto_ack;
  self->acks_at_once = (char)acks_at_once;
  Py_XDECREF((PyObject *)before);
  return 0;
}

static int consumer_traverse(PyObject *object, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)((ConsumerCalls *)object)->taker);
  return 0;
}

static int consumer_clear(PyObject *object) {
  Py_CLEAR(((ConsumerCalls *)object)->taker);
  return 0;
}

static void consumer_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  (void)consumer_clear(object);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyMethodDef consumer_methods[] = {
    {"get", (PyCFunction)(void (*)(void))consumer_get, METH_FASTCALL | METH_KEYWORDS,
     "get($self, timeout=None)\n--\n\n"
     "Takes the next message, and waits for it if none is ready.\n\n"
     "Args:\n"
     "    timeout: seconds to wait for a message; ``None`` = for ever, 0 = not at all.\n\n"
     "Raises:\n"
     "    queue.Empty: no message came in time.\n"
     "    NotFound: all queues of the consumer were deleted.\n"
     "    OutOfMemory: a message is ready, but the broker has no memory to record that this connection holds it.\n"
     "    ConnectionClosed: the consumer or its connection is closed."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot consumer_slots[] = {
    {Py_tp_init, (void *)consumer_init},
    {Py_tp_traverse, (void *)consumer_traverse},
    {Py_tp_clear, (void *)consumer_clear},
    {Py_tp_dealloc, (void *)consumer_dealloc},
    {Py_tp_methods, consumer_methods},
    {Py_tp_doc, (void *)"The call of a consumer for single messages; the base of shmbroker.Consumer."},
    {0, NULL},
};
PyType_Spec sb_consumer_calls_spec = {"shmbroker._native_message.ConsumerCalls", sizeof(ConsumerCalls), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, consumer_slots};
