// SPDX-License-Identifier: Apache-2.0
/* Messages as Python objects: putting, taking and acknowledging one, each in one call that keeps the GIL.
 *
 * What: `Record` is the base of `shmbroker.Message`: a record of the core, where it came from, and whether it is
 * settled. `Taker` makes them out of a queue or a consumer; `Messages` iterates over a consumer; `Putter` puts what is short and plain. Everything that is not
 * on the way of every message is Python (shmbroker/message.py). Why not cffi here: docs/adr/0010.
 *
 * A record is FRESH until it has reached the caller: an exception that an interrupt raises on the way drops the object,
 * and a FRESH record that goes away puts its message back to its place. So nothing gets lost between taking and handing over.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <time.h>

#include "shmbroker.h"

enum { OPEN = 0, SETTLED = 1, BROWSED = 2, FRESH = 3 };
enum { ACK = 0, RETURN = 3 };
#define RECORD_BYTES (64 + 65536 + 4096)

/* ---- Record ---- */

typedef struct {
  PyObject_HEAD PyObject *source; /* the queue or consumer; it keeps the handle */
  PyObject *data;                 /* bytes */
  PyObject *view, *front;         /* of the Python part */
  PyObject *weak_references;
  void *handle;
  unsigned long long tag;
  char state, of_consumer;
} Record;

static PyTypeObject *record_type;

static sb_status settle(Record *self, uint32_t how) {
  const char *record = PyBytes_AsString(self->data);
  return self->of_consumer ? sb_consumer_settle(self->handle, record, how) : sb_settle(self->handle, record, how);
}

static void record_dealloc(PyObject *object) {
  Record *self = (Record *)object;
  PyTypeObject *type = Py_TYPE(object);
  if (self->weak_references != NULL) PyObject_ClearWeakRefs(object);
  if (self->state == FRESH) (void)settle(self, RETURN);
  Py_XDECREF(self->view);
  Py_XDECREF(self->front);
  Py_XDECREF(self->data);
  Py_XDECREF(self->source);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyObject *record_ack(PyObject *object, PyObject *unused) {
  Record *self = (Record *)object;
  (void)unused;
  if (self->state != OPEN || self->view != NULL) {
    return PyObject_CallMethod(object, "_end", "i", ACK);
  }
  self->state = SETTLED;
  sb_status status = settle(self, ACK);
  if (status != SB_OK) {
    return PyObject_CallMethod(object, "_failed", "i", (int)status);
  }
  Py_RETURN_NONE;
}

static const sb_record *front_of(const Record *self) {
  return (const sb_record *)(const void *)PyBytes_AsString(self->data);
}

/* The body, copied. A short one lies in the record, behind key and properties. */
static PyObject *record_bytes(PyObject *object, PyObject *unused) {
  const Record *self = (const Record *)object;
  const sb_record *front = front_of(self);
  uint64_t end = (uint64_t)PyBytes_Size(self->data);
  (void)unused;
  if (front->body_address != 0 || front->body_length > end - sizeof *front) {
    return PyObject_CallMethod(object, "_long_bytes", NULL);
  }
  return PyBytes_FromStringAndSize((const char *)front + end - front->body_length, (Py_ssize_t)front->body_length);
}

static Py_ssize_t record_length(PyObject *object) { return (Py_ssize_t)front_of((const Record *)object)->body_length; }

static PyMethodDef record_methods[] = {
    {"__bytes__", record_bytes, METH_NOARGS, "The body, copied."},
    {"ack", record_ack, METH_NOARGS,
     "ack()\n--\n\nAcknowledges: the message is done with.\n\nRaises:\n    MessageSettled: it was settled already."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef record_members[] = {
    {"_source", T_OBJECT, offsetof(Record, source), READONLY, NULL},
    {"_record", T_OBJECT, offsetof(Record, data), READONLY, NULL},
    {"_view", T_OBJECT, offsetof(Record, view), 0, NULL},
    {"_front", T_OBJECT, offsetof(Record, front), 0, NULL},
    {"_tag", T_ULONGLONG, offsetof(Record, tag), 0, NULL},
    {"_state", T_BYTE, offsetof(Record, state), 0, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Record, weak_references), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot record_slots[] = {
    {Py_tp_dealloc, (void *)record_dealloc},
    {Py_tp_methods, record_methods},
    {Py_tp_members, record_members},
    {Py_sq_length, (void *)record_length},
    {Py_tp_doc, (void *)"A message of the core, made by a Taker."},
    {0, NULL},
};
static PyType_Spec record_spec = {"shmbroker._native_message.Record", sizeof(Record), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  record_slots};

/* ---- Taker ---- */

typedef struct {
  PyObject_HEAD void *handle; /* the owner of the Taker keeps it */
  PyTypeObject *type;         /* of the messages */
  allocfunc allocate;
  char *buffer; /* used under the GIL only, and never across a point where it is dropped */
  char of_consumer;
} Taker;

static PyObject *new_record(Taker *self, PyObject *source, PyObject *data, char state) {
  Record *record = (Record *)self->allocate(self->type, 0);
  if (record == NULL) {
    return NULL;
  }
  record->source = Py_NewRef(source);
  record->data = Py_NewRef(data);
  record->handle = self->handle;
  record->of_consumer = self->of_consumer;
  record->state = state;
  return (PyObject *)record;
}

static void give_back(Taker *self, const char *record) {
  if (self->of_consumer) {
    (void)sb_consumer_settle(self->handle, record, RETURN);
  } else {
    (void)sb_settle(self->handle, record, RETURN);
  }
}

/* The message whose record is in the buffer; without memory for it, it goes back to its place. */
static PyObject *hand_over(Taker *self, PyObject *source, const char *buffer, int64_t length, int auto_ack,
                           char state) {
  PyObject *data = PyBytes_FromStringAndSize(buffer, (Py_ssize_t)length);
  PyObject *message = data != NULL ? new_record(self, source, data, auto_ack ? SETTLED : state) : NULL;
  Py_XDECREF(data);
  if (message == NULL && !auto_ack) {
    give_back(self, buffer);
  } else if (message != NULL && auto_ack && ((const sb_record *)(const void *)buffer)->body_address != 0) {
    PyObject *viewed = PyObject_CallMethod(message, "_auto_acknowledged", NULL);
    Py_XDECREF(viewed);
    if (viewed == NULL) Py_CLEAR(message);
  }
  return message;
}

static PyObject *take(Taker *self, PyObject *source, int auto_ack, char state) {
  int64_t length = self->of_consumer ? sb_consumer_next(self->handle, self->buffer, auto_ack)
                                     : sb_get(self->handle, self->buffer, auto_ack);
  return length < 0 ? PyLong_FromLongLong(-length) : hand_over(self, source, self->buffer, length, auto_ack, state);
}

static int expect(Py_ssize_t count, Py_ssize_t wanted) {
  if (count != wanted) PyErr_Format(PyExc_TypeError, "%zd arguments are needed, %zd were given", wanted, count);
  return count == wanted;
}

static PyObject *taker_take(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  int auto_ack = expect(count, 2) ? PyObject_IsTrue(arguments[1]) : -1;
  return auto_ack < 0 ? NULL : take((Taker *)object, arguments[0], auto_ack, FRESH);
}

/* A signal that came just before the sleep does not end it, so the first look around comes soon. */
#define FIRST_LOOK_NS 10000000u
#define LATER_LOOKS_NS 1000000000u

/* Waits without the GIL; handlers of signals run in between, and what they raise ends the wait. Length, or minus a status;
 * 0: an exception is set. */
static int64_t wait_for_one(Taker *self, char *buffer, int auto_ack, uint64_t until) {
  sb_wait wait = {until, 0, 0, 0};
  struct timespec now;
  uint64_t pause = FIRST_LOOK_NS;
  for (;;) {
    clock_gettime(CLOCK_MONOTONIC, &now);
    wait.look_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec + pause;
    PyThreadState *others = PyEval_SaveThread();
    int64_t length = sb_get_wait(self->handle, buffer, auto_ack, &wait);
    PyEval_RestoreThread(others);
    if (length != -(int64_t)SB_TICK && length != -(int64_t)SB_INTERRUPTED) {
      return length;
    }
    if (PyErr_CheckSignals() < 0) {
      sb_end_wait(self->handle, &wait);
      return 0;
    }
    pause = LATER_LOOKS_NS;
  }
}

static PyObject *taker_wait(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  Taker *self = (Taker *)object;
  int auto_ack = expect(count, 3) ? PyObject_IsTrue(arguments[1]) : -1;
  unsigned long long until = auto_ack < 0 ? 0 : PyLong_AsUnsignedLongLong(arguments[2]);
  char *buffer = PyErr_Occurred() == NULL ? PyMem_Malloc(RECORD_BYTES) : NULL;
  if (buffer == NULL) {
    return PyErr_Occurred() == NULL ? PyErr_NoMemory() : NULL;
  }
  int64_t length = wait_for_one(self, buffer, auto_ack, until);
  PyObject *result = length == 0  ? NULL
                     : length < 0 ? PyLong_FromLongLong(-length)
                                  : hand_over(self, arguments[0], buffer, length, auto_ack, FRESH);
  PyMem_Free(buffer);
  return result;
}

static PyObject *taker_message(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  long state = expect(count, 3) ? PyLong_AsLong(arguments[2]) : -1;
  if (state == -1 && PyErr_Occurred() != NULL) {
    return NULL;
  }
  if (!PyBytes_Check(arguments[1]) || PyBytes_Size(arguments[1]) < (Py_ssize_t)sizeof(sb_record)) {
    PyErr_SetString(PyExc_TypeError, "a record is bytes, at least 64 of them");
    return NULL;
  }
  return new_record((Taker *)object, arguments[0], arguments[1], (char)state);
}

static PyObject *taker_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  unsigned long long address;
  int of_consumer;
  PyTypeObject *messages;
  if (keywords != NULL && PyDict_Size(keywords) != 0) {
    PyErr_SetString(PyExc_TypeError, "no keywords are taken");
    return NULL;
  }
  if (!PyArg_ParseTuple(arguments, "KpO!", &address, &of_consumer, &PyType_Type, &messages)) {
    return NULL;
  }
  if (address == 0 || !PyType_IsSubtype(messages, record_type)) {
    PyErr_SetString(PyExc_TypeError, "a handle and a subclass of Record are needed");
    return NULL;
  }
  Taker *self = (Taker *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  char *buffer = self != NULL ? PyMem_Malloc(RECORD_BYTES) : NULL;
  if (buffer == NULL) {
    Py_XDECREF((PyObject *)self);
    return PyErr_NoMemory();
  }
  self->buffer = buffer;
  self->handle = (void *)(uintptr_t)address;
  self->of_consumer = (char)of_consumer;
  self->type = (PyTypeObject *)Py_NewRef((PyObject *)messages);
  self->allocate = (allocfunc)PyType_GetSlot(messages, Py_tp_alloc);
  return (PyObject *)self;
}

static void taker_dealloc(PyObject *object) {
  Taker *self = (Taker *)object;
  PyTypeObject *type = Py_TYPE(object);
  PyMem_Free(self->buffer);
  Py_XDECREF((PyObject *)self->type);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyMethodDef taker_methods[] = {
    {"take", (PyCFunction)(void (*)(void))taker_take, METH_FASTCALL, "take(source, auto_ack, /)\n--\n\n"},
    {"wait", (PyCFunction)(void (*)(void))taker_wait, METH_FASTCALL, "wait(source, auto_ack, until, /)\n--\n\n"},
    {"message", (PyCFunction)(void (*)(void))taker_message, METH_FASTCALL, "message(source, record, state, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot taker_slots[] = {
    {Py_tp_new, (void *)taker_new},
    {Py_tp_dealloc, (void *)taker_dealloc},
    {Py_tp_methods, taker_methods},
    {Py_tp_doc, (void *)"Takes messages out of a queue or a consumer of the core, given by its address."},
    {0, NULL},
};
static PyType_Spec taker_spec = {"shmbroker._native_message.Taker", sizeof(Taker), 0, Py_TPFLAGS_DEFAULT, taker_slots};

/* ---- Messages ---- */

typedef struct {
  PyObject_HEAD PyObject *taker, *consumer;
  int auto_ack;
} Messages;

static PyTypeObject *taker_type;

static PyObject *messages_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  PyObject *taker, *consumer;
  int auto_ack;
  (void)keywords;
  if (!PyArg_ParseTuple(arguments, "O!Op", taker_type, &taker, &consumer, &auto_ack)) {
    return NULL;
  }
  Messages *self = (Messages *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self != NULL) {
    self->taker = Py_NewRef(taker);
    self->consumer = Py_NewRef(consumer);
    self->auto_ack = auto_ack;
  }
  return (PyObject *)self;
}

static void messages_dealloc(PyObject *object) {
  Messages *self = (Messages *)object;
  PyTypeObject *type = Py_TYPE(object);
  Py_XDECREF(self->taker);
  Py_XDECREF(self->consumer);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

/* What is there at once; the consumer itself knows how to wait, and when it is over. */
static PyObject *messages_next(PyObject *object) {
  Messages *self = (Messages *)object;
  PyObject *message = take((Taker *)self->taker, self->consumer, self->auto_ack, OPEN);
  if (message == NULL || !PyLong_Check(message)) {
    return message;
  }
  Py_DECREF(message);
  return PyObject_CallMethod(self->consumer, "__next__", NULL);
}

static PyObject *self_iter(PyObject *object) { return Py_NewRef(object); }

static PyType_Slot messages_slots[] = {
    {Py_tp_new, (void *)messages_new},
    {Py_tp_dealloc, (void *)messages_dealloc},
    {Py_tp_iter, (void *)self_iter},
    {Py_tp_iternext, (void *)messages_next},
    {Py_tp_doc, (void *)"Iterates over a consumer."},
    {0, NULL},
};
static PyType_Spec messages_spec = {"shmbroker._native_message.Messages", sizeof(Messages), 0, Py_TPFLAGS_DEFAULT,
                                    messages_slots};

/* ---- Putter ---- */

typedef struct {
  PyObject_HEAD void *handle;
} Putter;
#define SHORT_BODY 16384 /* longer ones are copied without the GIL */

/* The status of the put; -1 for anything but bytes of a short body. */
static PyObject *putter_put(PyObject *object, PyObject *body) {
  if (!PyBytes_CheckExact(body) || PyBytes_Size(body) > SHORT_BODY) {
    return PyLong_FromLong(-1);
  }
  return PyLong_FromLong(
      (long)sb_put(((Putter *)object)->handle, PyBytes_AsString(body), (uint64_t)PyBytes_Size(body)));
}

static PyObject *putter_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  unsigned long long address;
  (void)keywords;
  if (!PyArg_ParseTuple(arguments, "K", &address)) {
    return NULL;
  }
  Putter *self = (Putter *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self != NULL) self->handle = (void *)(uintptr_t)address;
  return (PyObject *)self;
}

static void putter_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyMethodDef putter_methods[] = {
    {"put", putter_put, METH_O, "put(body, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot putter_slots[] = {
    {Py_tp_new, (void *)putter_new},
    {Py_tp_dealloc, (void *)putter_dealloc},
    {Py_tp_methods, putter_methods},
    {Py_tp_doc, (void *)"Puts short bodies into a queue of the core, given by its address."},
    {0, NULL},
};
static PyType_Spec putter_spec = {"shmbroker._native_message.Putter", sizeof(Putter), 0, Py_TPFLAGS_DEFAULT,
                                  putter_slots};

/* ---- module ---- */

static int add(PyObject *module, const char *name, PyType_Spec *spec, PyTypeObject **type) {
  *type = (PyTypeObject *)PyType_FromSpec(spec);
  return *type != NULL && PyModule_AddObjectRef(module, name, (PyObject *)*type) == 0;
}

static int execute(PyObject *module) {
  PyTypeObject *messages_type, *putter_type;
  bool good = add(module, "Record", &record_spec, &record_type) && add(module, "Taker", &taker_spec, &taker_type) &&
              add(module, "Messages", &messages_spec, &messages_type) &&
              add(module, "Putter", &putter_spec, &putter_type);
  return good ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)execute}, {0, NULL}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "shmbroker._native_message", .m_slots = slots};

PyMODINIT_FUNC PyInit__native_message(void) { return PyModuleDef_Init(&definition); }
