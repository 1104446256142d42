// SPDX-License-Identifier: Apache-2.0
/* Reserving: what `Queue.reserve` returns, a context manager whose block writes a body in place. See native_message.h.
 *
 * C does what nearly all reservations need. The rest does a `Reserved` of Python (shmbroker/_core/reservation.py): one
 * that does not begin at once, for instance since the queue is full; or one that does not end with a plain publish,
 * since the block raised, a view was kept, or the core refused. It takes over what C has begun. */
#include "native_message.h"

#include <string.h>

/* Up to this size the core is called with the GIL: it needs about as long as a put. */
#define SHORT_RESERVATION (UINT64_C(1) << 20)

typedef struct {
  PyObject_HEAD PyObject *queue; /* a Queue; it keeps `handle` valid */
  PyObject *connection;          /* an InFlight; from begin to end this counts as a call in flight */
  PyObject *key, *priority, *properties;
  PyObject *writable, *memory; /* what the block writes into, and its memoryview; NULL unless begun */
  PyObject *slow;              /* the `Reserved` of Python; NULL: C does it */
  sb_queue *handle;
  sb_reservation r;
  uint64_t size, until;
  bool entered, begun, waits; /* waits: the end of the block waits for the store */
} Reserving;

PyTypeObject *sb_reserving_type, *sb_writable_type;

enum { RESERVE_SLOWLY, TAKE_OVER, ENTER, EXIT, RELEASE, ENTERED, NAME_COUNT };
static const char *const TEXTS[NAME_COUNT] = {"_reserve_slowly", "_take_over", "__enter__",
                                              "__exit__",        "release",    "_entered"};
static PyObject *known[NAME_COUNT]; /* interned strings */

bool sb_reserve_names(void) { return sb_intern(TEXTS, known, NAME_COUNT); }

PyObject *sb_reserving(PyObject *queue, PyObject *connection, void *handle, uint64_t size, const PutArguments *given) {
  Reserving *self = (Reserving *)((allocfunc)PyType_GetSlot(sb_reserving_type, Py_tp_alloc))(sb_reserving_type, 0);
  if (self != NULL) {
    self->queue = Py_NewRef(queue);
    self->connection = Py_NewRef(connection);
    /* 0: the end of the block does not wait for the store, either */
    self->until = sb_is_zero(given->timeout) ? 0 : sb_deadline_of(given->timeout);
    self->key = Py_NewRef(given->key);
    self->priority = Py_NewRef(given->priority);
    self->properties = Py_NewRef(given->properties);
    self->handle = handle;
    self->size = size;
  }
  return (PyObject *)self;
}

bool sb_reserves_at_once(PyObject *size, uint64_t *bytes) {
  int beyond = 0;
  long long number = PyLong_CheckExact(size) ? PyLong_AsLongLongAndOverflow(size, &beyond) : -1;
  *bytes = (uint64_t)number;
  return number >= 0 && (uint64_t)number <= SHORT_RESERVATION;
}

/* Reserves, and makes the memoryview. False: Python must do it, or an exception is set. */
static bool begin(Reserving *self) {
  const PutArguments given = {NULL, Py_None, self->key, self->priority, self->properties, Py_None, Py_None, false};
  sb_put_options options;
  char buffer[PROPERTIES_BYTES];
  if (((InFlight *)self->connection)->closed || !sb_read_options(&options, buffer, &given) ||
      sb_reservation_begin(self->handle, self->size, &options, &self->r) != SB_OK) {
    return false;
  }
  sb_in_flight_begin(self->connection);
  self->begun = true;
  self->waits = sb_put_waits_for_store(self->handle, &options);
  self->writable = sb_writable(self->r.body, (Py_ssize_t)self->size);
  self->memory = self->writable != NULL ? PyMemoryView_FromObject(self->writable) : NULL;
  return self->memory != NULL;
}

static PyObject *reserving_enter(PyObject *object, PyObject *unused) {
  Reserving *self = (Reserving *)object;
  (void)unused;
  if (self->entered || self->queue == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "a reservation can be entered only once");
    return NULL;
  }
  self->entered = true;
  if (begin(self)) {
    return Py_NewRef(self->memory);
  }
  if (self->begun || PyErr_Occurred() != NULL) {
    return NULL; /* no memory for the view: the reservation ends with this object */
  }
  PyObject *size = PyLong_FromUnsignedLongLong(self->size), *until = PyLong_FromUnsignedLongLong(self->until);
  if (size != NULL && until != NULL) {
    self->slow = PyObject_CallMethodObjArgs(self->queue, known[RESERVE_SLOWLY], size, until, self->key, self->priority,
                                            self->properties, NULL);
  }
  Py_XDECREF(size);
  Py_XDECREF(until);
  return self->slow != NULL ? PyObject_CallMethodObjArgs(self->slow, known[ENTER], NULL) : NULL;
}

/* Ends this object's view. False: other views remain, or an exception is set. */
static bool release(Reserving *self) {
  PyObject *released = PyObject_CallMethodObjArgs(self->memory, known[RELEASE], NULL);
  if (released == NULL && PyErr_ExceptionMatches(PyExc_BufferError)) PyErr_Clear();
  Py_XDECREF(released);
  return released != NULL && sb_writable_views(self->writable) == 0;
}

/* Makes a `Reserved` of Python that goes on where C has come to. NULL: an exception is set. */
static PyObject *taken_over(Reserving *self) {
  PyObject *record = PyBytes_FromStringAndSize((const char *)&self->r, sizeof self->r), *slow = NULL;
  PyObject *until = PyLong_FromUnsignedLongLong(self->until);
  if (record != NULL && until != NULL) {
    slow = PyObject_CallMethodObjArgs(self->queue, known[TAKE_OVER], record, until,
                                      self->writable != NULL ? self->writable : Py_None,
                                      self->waits ? Py_True : Py_False, NULL);
  }
  Py_XDECREF(record);
  Py_XDECREF(until);
  /* No signal's handler can run between these two: it ends the reservation, or this object does. */
  if (slow != NULL && PyObject_SetAttr(slow, known[ENTERED], Py_True) < 0) Py_CLEAR(slow);
  if (slow != NULL) self->begun = false;
  return slow;
}

static PyObject *reserving_exit(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  Reserving *self = (Reserving *)object;
  if (!sb_expect(count, 3)) {
    return NULL;
  }
  if (self->begun) {
    bool alone = release(self);
    if (PyErr_Occurred() != NULL) {
      return NULL;
    }
    Py_CLEAR(self->memory);
    if (arguments[0] == Py_None && alone && !self->waits && sb_reservation_publish(self->handle, &self->r) == SB_OK) {
      self->begun = false;
      Py_CLEAR(self->writable);
      return sb_in_flight_end(self->connection, Py_NewRef(Py_None));
    }
    self->slow = taken_over(self);
  }
  if (self->slow == NULL) {
    if (PyErr_Occurred() == NULL) PyErr_SetString(PyExc_RuntimeError, "the reservation has not begun");
    return NULL;
  }
  PyObject *slow = self->slow;
  self->slow = NULL;
  PyObject *result = PyObject_CallMethodObjArgs(slow, known[EXIT], arguments[0], arguments[1], arguments[2], NULL);
  Py_DECREF(slow);
  return result;
}

/* Ends a reservation whose block was never entered, or whose end a signal's handler prevented. */
static void reserving_finalize(PyObject *object) {
  Reserving *self = (Reserving *)object;
  if (!self->begun) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  if (self->memory != NULL) (void)release(self);
  Py_CLEAR(self->memory);
  PyErr_Clear();
  PyObject *slow = taken_over(self);
  if (slow == NULL) PyErr_WriteUnraisable(self->queue);
  Py_XDECREF(slow); /* its finalizer ends the reservation */
  PyErr_Restore(type, value, trace);
}

/* An application may keep the object where its queue refers to it. */
static int reserving_traverse(PyObject *object, visitproc visit, void *arg) {
  Reserving *self = (Reserving *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->queue);
  Py_VISIT(self->connection);
  Py_VISIT(self->key);
  Py_VISIT(self->priority);
  Py_VISIT(self->properties);
  Py_VISIT(self->writable);
  Py_VISIT(self->memory);
  Py_VISIT(self->slow);
  return 0;
}

static int reserving_clear(PyObject *object) {
  Reserving *self = (Reserving *)object;
  Py_CLEAR(self->slow);
  Py_CLEAR(self->memory);
  Py_CLEAR(self->writable);
  Py_CLEAR(self->properties);
  Py_CLEAR(self->priority);
  Py_CLEAR(self->key);
  Py_CLEAR(self->connection);
  Py_CLEAR(self->queue);
  return 0;
}

static void reserving_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  if (PyObject_CallFinalizerFromDealloc(object) < 0) return;
  PyObject_GC_UnTrack(object);
  (void)reserving_clear(object);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyMethodDef reserving_methods[] = {
    {"__enter__", reserving_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nReserves; returns a memoryview."},
    {"__exit__", (PyCFunction)(void (*)(void))reserving_exit, METH_FASTCALL,
     "__exit__($self, kind, error, trace, /)\n--\n\nPublishes what was written, or drops it if the block raised."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot reserving_slots[] = {
    {Py_tp_finalize, (void *)reserving_finalize},
    {Py_tp_traverse, (void *)reserving_traverse},
    {Py_tp_clear, (void *)reserving_clear},
    {Py_tp_dealloc, (void *)reserving_dealloc},
    {Py_tp_methods, reserving_methods},
    {Py_tp_doc, (void *)"A body that the block of a `with` statement writes in place."},
    {0, NULL},
};
PyType_Spec sb_reserving_spec = {"shmbroker._native_message.Reserving", sizeof(Reserving), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 reserving_slots};
