// SPDX-License-Identifier: Apache-2.0
/* Putting messages. See native_message.h. */
#include "native_message.h"

typedef struct {
  PyObject_HEAD void *handle;
} Sender;
#define SHORT_BODY 131072 /* bytes; longer bodies take tens of microseconds to copy: Python puts them without the GIL */
#define SHORT_BATCH 131072
#define PIECES 256

/* None if the message was put; else the status. */
static PyObject *outcome(sb_status status) {
  return status == SB_OK ? Py_NewRef(Py_None) : PyLong_FromLong((long)status);
}

int sb_put_at_once(void *handle, PyObject *body, const sb_put_options *options) {
  char *bytes;
  Py_ssize_t length;
  if (!PyBytes_CheckExact(body) || PyBytes_AsStringAndSize(body, &bytes, &length) < 0 || length > SHORT_BODY ||
      sb_put_waits_for_store(handle, options)) { /* Python waits for the store */
    return -1;
  }
  return (int)(options == NULL ? sb_queue_put(handle, bytes, (uint64_t)length)
                               : sb_queue_put_with(handle, bytes, (uint64_t)length, options));
}

/* put_with(body, (ttl, delay, priority, key, properties)[, timeout]): puts without waiting. Returns None, or the status;
 * -1: Python must put, since the body is not bytes, or is too long, or the caller waits for the store. Times are in seconds, 0 = none. */
static PyObject *sender_put_with(PyObject *object, PyObject *const *arguments, Py_ssize_t given) {
  if (!sb_expect_timeout(arguments, given, 2)) {
    return NULL;
  }
  PyObject *body = arguments[0], *key, *properties;
  double ttl, delay;
  unsigned char priority;
  if (!PyBytes_CheckExact(body) || PyBytes_Size(body) > SHORT_BODY) {
    return PyLong_FromLong(-1);
  }
  if (!PyArg_ParseTuple(arguments[1], "ddbSS", &ttl, &delay, &priority, &key, &properties)) {
    return NULL;
  }
  sb_put_options options = {.ttl_ns = (uint64_t)(ttl * 1e9),
                            .delay_ns = (uint64_t)(delay * 1e9),
                            .priority = priority,
                            .key = PyBytes_AsString(key),
                            .key_length = (uint32_t)PyBytes_Size(key),
                            .properties = PyBytes_AsString(properties),
                            .properties_length = (uint32_t)PyBytes_Size(properties)};
  if (sb_put_waits_for_store(((Sender *)object)->handle, &options)) {
    return PyLong_FromLong(-1);
  }
  return outcome(
      sb_queue_put_with(((Sender *)object)->handle, PyBytes_AsString(body), (uint64_t)PyBytes_Size(body), &options));
}

/* Describes `count` bodies of the tuple, from `first` on, in `pieces`: their addresses and lengths. Copies no body.
 * *total: the sum of the lengths. False: a body is not bytes. */
static bool describe(PyObject *bodies, Py_ssize_t first, Py_ssize_t count, sb_piece *pieces, uint64_t *total) {
  *total = 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *body = PyTuple_GetItem(bodies, first + i);
    if (!PyBytes_CheckExact(body)) {
      return false;
    }
    pieces[i] = (sb_piece){PyBytes_AsString(body), (uint64_t)PyBytes_Size(body)};
    *total += pieces[i].length;
  }
  return true;
}

static bool all_bytes(PyObject *bodies) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(bodies); i++) {
    if (!PyBytes_CheckExact(PyTuple_GetItem(bodies, i))) return false;
  }
  return true;
}

/* put_many(bodies, first, options, drop): puts the bodies of a tuple from `first` on. `options` is the address of
 * sb_put_options. `drop` allows the call to drop the GIL. The caller must then call inside `with connection.call()`
 * (shmbroker/_core/calls.py), so that the connection is not released meanwhile. Returns the number of bodies put | the
 * last status << 32. -1: none was put, since a body is not bytes, or since the bodies are too long to keep the GIL. */
static PyObject *sender_put_many(PyObject *object, PyObject *const *arguments, Py_ssize_t given) {
  if (!sb_expect(given, 4)) {
    return NULL;
  }
  PyObject *bodies = arguments[0];
  Py_ssize_t at = PyLong_AsSsize_t(arguments[1]), first = at;
  const sb_put_options *options = PyLong_AsVoidPtr(arguments[2]);
  int drop = PyObject_IsTrue(arguments[3]);
  if (PyErr_Occurred() != NULL || !PyTuple_Check(bodies) || at < 0 || drop < 0) {
    if (PyErr_Occurred() == NULL) PyErr_SetString(PyExc_TypeError, "put_many(tuple, int, int, bool)");
    return NULL;
  }
  void *handle = ((Sender *)object)->handle;
  sb_status status = SB_OK;
  sb_piece pieces[PIECES];
  if (at == 0 && !all_bytes(bodies)) {
    return PyLong_FromLong(-1);
  }
  while (status == SB_OK && at < PyTuple_Size(bodies)) {
    Py_ssize_t count = PyTuple_Size(bodies) - at;
    uint64_t total;
    if (count > PIECES) count = PIECES;
    if (!describe(bodies, at, count, pieces, &total) || (total > SHORT_BATCH && !drop)) {
      if (at == first) {
        return PyLong_FromLong(-1);
      }
      break; /* the caller calls again for the rest */
    }
    PyThreadState *others = drop ? PyEval_SaveThread() : NULL; /* the tuple keeps the bodies */
    at += (Py_ssize_t)sb_queue_put_many(handle, pieces, (uint32_t)count, options, &status);
    if (others != NULL) PyEval_RestoreThread(others);
  }
  return PyLong_FromUnsignedLongLong((unsigned long long)(at - first) | (unsigned long long)status << 32);
}

static PyObject *sender_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  unsigned long long address;
  (void)keywords;
  if (!PyArg_ParseTuple(arguments, "K", &address)) {
    return NULL;
  }
  Sender *self = (Sender *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
  if (self != NULL) self->handle = (void *)(uintptr_t)address;
  return (PyObject *)self;
}

static void sender_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyMethodDef sender_methods[] = {
    {"put_with", (PyCFunction)(void (*)(void))sender_put_with, METH_FASTCALL,
     "put_with(body, options, timeout=None, /)\n--\n\n"},
    {"put_many", (PyCFunction)(void (*)(void))sender_put_many, METH_FASTCALL,
     "put_many(bodies, first, options, drop, /)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot sender_slots[] = {
    {Py_tp_new, (void *)sender_new},
    {Py_tp_dealloc, (void *)sender_dealloc},
    {Py_tp_methods, sender_methods},
    {Py_tp_doc, (void *)"Puts bodies into a queue of the core, given by its address."},
    {0, NULL},
};
PyType_Spec sb_sender_spec = {"shmbroker._native_message.Sender", sizeof(Sender), 0, Py_TPFLAGS_DEFAULT, sender_slots};
