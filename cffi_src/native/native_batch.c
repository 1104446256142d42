// SPDX-License-Identifier: Apache-2.0
/* Taking many messages in one call: Batch, the base of shmbroker.MessageBatch. See native_message.h. */
#include "native_message.h"

#include <string.h>
#include <structmember.h>

#define BATCH_BYTES (1u << 20)
#define LONG_BATCH 1024 /* messages; the Python part settles a longer batch, without the GIL */

typedef struct {
  PyObject_HEAD PyObject *source; /* the queue; it keeps the handle */
  PyObject *receiver;
  PyObject *made;  /* NULL, or a dict of the Python part: {index: message that the application took out} */
  PyObject *views; /* NULL, or of an auto-acked batch: {index: memoryview of a body that is not in its record} */
  char *records;
  uint32_t *index; /* three offsets in `records` for each message: its record, its body, the end of both */
  uint32_t count;
  char state, auto_acked;
} Batch;

PyTypeObject *sb_batch_type;

static sb_status settle_all(Batch *self, sb_disposition disposition) {
  return sb_queue_settle_many(((Receiver *)self->receiver)->handle, self->records, self->index, 3, self->count,
                              disposition);
}

static void batch_dealloc(PyObject *object) {
  Batch *self = (Batch *)object;
  PyTypeObject *type = Py_TYPE(object);
  if (self->state == FRESH) (void)settle_all(self, SB_UNDELIVER);
  PyMem_Free(self->records);
  PyMem_Free(self->index);
  Py_XDECREF(self->made);
  Py_XDECREF(self->views);
  Py_XDECREF(self->receiver);
  Py_XDECREF(self->source);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
  Py_DECREF(type);
}

static PyObject *batch_ack(PyObject *object, PyObject *unused) {
  Batch *self = (Batch *)object;
  (void)unused;
  if (self->state != OPEN || self->made != NULL || self->count > LONG_BATCH) {
    return PyObject_CallMethod(object, "_end", "i", SB_ACK);
  }
  self->state = SETTLED;
  sb_status status = settle_all(self, SB_ACK);
  if (status != SB_OK) {
    return PyObject_CallMethod(object, "_failed", "i", (int)status);
  }
  Py_RETURN_NONE;
}

/* _settle(disposition, skip): settles the messages whose indexes are not in the frozenset `skip`, without the GIL.
 * Returns the status. */
static PyObject *batch_settle(PyObject *object, PyObject *arguments) {
  Batch *self = (Batch *)object;
  unsigned int disposition;
  PyObject *skip;
  uint32_t left = 0;
  if (!PyArg_ParseTuple(arguments, "IO!", &disposition, &PyFrozenSet_Type, &skip)) {
    return NULL;
  }
  uint32_t *starts = PyMem_Malloc((self->count + 1) * sizeof *starts);
  if (starts == NULL) {
    return PyErr_NoMemory();
  }
  for (uint32_t i = 0; i < self->count; i++) {
    PyObject *number = PySet_Size(skip) > 0 ? PyLong_FromUnsignedLong(i) : NULL;
    int skipped = number != NULL ? PySet_Contains(skip, number) : PyErr_Occurred() == NULL ? 0 : -1;
    Py_XDECREF(number);
    if (skipped < 0) {
      PyMem_Free(starts);
      return NULL;
    }
    if (!skipped) starts[left++] = self->index[3 * (uint64_t)i];
  }
  PyThreadState *others = PyEval_SaveThread();
  sb_status status = sb_queue_settle_many(((Receiver *)self->receiver)->handle, self->records, starts, 1, left,
                                          (sb_disposition)disposition);
  PyEval_RestoreThread(others);
  PyMem_Free(starts);
  return PyLong_FromLong((long)status);
}

static PyObject *batch_record(PyObject *object, PyObject *number) {
  Batch *self = (Batch *)object;
  unsigned long at = PyLong_AsUnsignedLong(number);
  if (PyErr_Occurred() != NULL || at >= self->count) {
    if (PyErr_Occurred() == NULL) PyErr_SetString(PyExc_IndexError, "there is no such record");
    return NULL;
  }
  const uint32_t *index = self->index + 3 * at;
  return PyBytes_FromStringAndSize(self->records + index[0], (Py_ssize_t)(index[2] - index[0]));
}

/* A copy of the body of message `at`. If the body is not in the record, a message object reads it. */
static PyObject *body_of(Batch *self, uint32_t at) {
  const uint32_t *index = self->index + 3 * (uint64_t)at;
  const sb_record *record = (const sb_record *)(const void *)(self->records + index[0]);
  if (record->body_address == 0) {
    return PyBytes_FromStringAndSize(self->records + index[1], (Py_ssize_t)(index[2] - index[1]));
  }
  PyObject *message = PySequence_GetItem((PyObject *)self, (Py_ssize_t)at);
  PyObject *body = message != NULL ? PyObject_Bytes(message) : NULL;
  Py_XDECREF(message);
  return body;
}

static PyObject *batch_bodies(PyObject *object, PyObject *unused) {
  Batch *self = (Batch *)object;
  PyObject *bodies = PyList_New((Py_ssize_t)self->count);
  (void)unused;
  for (uint32_t i = 0; bodies != NULL && i < self->count; i++) {
    PyObject *body = body_of(self, i);
    if (body == NULL || PyList_SetItem(bodies, (Py_ssize_t)i, body) < 0) {
      Py_CLEAR(bodies);
    }
  }
  return bodies;
}

static Py_ssize_t batch_length(PyObject *object) { return (Py_ssize_t)((Batch *)object)->count; }

static PyMethodDef batch_methods[] = {
    {"ack", batch_ack, METH_NOARGS,
     "ack()\n--\n\nAcknowledges them all.\n\nRaises:\n    MessageSettled: they were settled already."},
    {"bodies", batch_bodies, METH_NOARGS, "bodies()\n--\n\nThe bodies, copied."},
    {"_record", batch_record, METH_O, NULL},
    {"_settle", batch_settle, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef batch_members[] = {
    {"_source", T_OBJECT, offsetof(Batch, source), READONLY, NULL},
    {"_made", T_OBJECT, offsetof(Batch, made), 0, NULL},
    {"_state", T_BYTE, offsetof(Batch, state), 0, NULL},
    {"_auto_acked", T_BOOL, offsetof(Batch, auto_acked), READONLY, NULL},
    {"_views", T_OBJECT, offsetof(Batch, views), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot batch_slots[] = {
    {Py_tp_dealloc, (void *)batch_dealloc},
    {Py_tp_methods, batch_methods},
    {Py_tp_members, batch_members},
    {Py_sq_length, (void *)batch_length},
    {Py_tp_doc, (void *)"Messages of the core that were taken together, by a Receiver."},
    {0, NULL},
};
PyType_Spec sb_batch_spec = {"shmbroker._native_message.Batch", sizeof(Batch), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, batch_slots};

/* ---- taking ---- */

/* Gives back `count` messages, whose records a call of the core wrote. */
static void give_back(Receiver *self, PyObject *source, const char *records, const uint32_t *index, int64_t count,
                      int auto_ack) {
  for (int64_t i = 0; i < count; i++) {
    const sb_record *record = (const sb_record *)(const void *)(records + index[3 * i]);
    sb_give_back(self, source, record, record->tag, auto_ack);
  }
}

/* Takes over the view that the record of message `at` names, if its body is long. False: an exception is set, and the
 * view has ended. */
static bool take_over_view(Batch *self, PyObject *connection, uint32_t at) {
  const sb_record *record = (const sb_record *)(const void *)(self->records + self->index[3 * (uint64_t)at]);
  if (record->body_address == 0) {
    return true;
  }
  PyObject *view = sb_view_memory(connection, record->tag, record->body_address, record->body_length);
  PyObject *number = view != NULL ? PyLong_FromUnsignedLong(at) : NULL;
  bool taken = number != NULL && PyDict_SetItem(self->views, number, view) == 0;
  Py_XDECREF(number);
  Py_XDECREF(view);
  return taken;
}

/* Takes over the views of all long bodies: the batch keeps a memoryview of each body, and each view ends with the last
 * memoryview of its body. False: an exception is set. The views that the batch took over end when the caller frees it;
 * all others have ended. */
static bool take_over_views(Batch *self) {
  PyObject *connection = sb_connection_of(self->source);
  uint32_t at = 0;
  self->views = connection != NULL ? PyDict_New() : NULL;
  while (self->views != NULL && at < self->count && take_over_view(self, connection, at)) at++;
  bool all = self->views != NULL && at == self->count;
  if (!all) {
    uint32_t left = self->views != NULL ? at + 1 : 0; /* the first message whose view was not looked at */
    give_back((Receiver *)self->receiver, self->source, self->records, self->index + 3 * (uint64_t)left,
              (int64_t)self->count - left, true);
  }
  Py_XDECREF(connection);
  return all;
}

/* Creates a batch from the `got` messages in `room`; the batch takes over room->index. NULL: an exception is set;
 * unless auto_ack, the messages returned to their positions. */
static PyObject *hand_over(Receiver *self, PyObject *source, Room *room, int64_t got, int auto_ack) {
  char *records = PyMem_Malloc((size_t)room->used);
  if (records == NULL) {
    PyErr_NoMemory();
    give_back(self, source, room->buffer, room->index, got, auto_ack);
    return NULL;
  }
  /* Copied before the allocation of the batch: that may run the garbage collector, and with it code that fills the
   * buffer of this Receiver again. */
  memcpy(records, room->buffer, (size_t)room->used);
  Batch *batch = (Batch *)((allocfunc)PyType_GetSlot(self->batches, Py_tp_alloc))(self->batches, 0);
  if (batch == NULL) {
    give_back(self, source, records, room->index, got, auto_ack);
    PyMem_Free(records);
    return NULL;
  }
  bool has_long_bodies = room->index[3 * (uint64_t)room->count] > 0;
  batch->source = Py_NewRef(source);
  batch->receiver = Py_NewRef((PyObject *)self);
  batch->records = records;
  batch->index = room->index;
  batch->count = (uint32_t)got;
  batch->state = auto_ack ? SETTLED : FRESH;
  batch->auto_acked = (char)auto_ack;
  room->index = NULL;
  if (auto_ack && has_long_bodies && !take_over_views(batch)) Py_CLEAR(batch);
  return (PyObject *)batch;
}

static bool make_room(Room *room, PyObject *count) {
  unsigned long wanted = PyLong_AsUnsignedLong(count);
  if (PyErr_Occurred() == NULL && wanted - 1 >= MOST_MESSAGES)
    PyErr_Format(PyExc_ValueError, "1 to %d messages", MOST_MESSAGES);
  if (PyErr_Occurred() != NULL) {
    return false;
  }
  *room = (Room){.count = (uint32_t)wanted, .size = BATCH_BYTES, .index = PyMem_Malloc((3 * wanted + 1) * 4)};
  if (room->index == NULL) PyErr_NoMemory();
  return room->index != NULL;
}

static PyObject *finish(Receiver *self, PyObject *source, Room *room, int64_t got, int auto_ack) {
  PyObject *result = got == 0  ? NULL
                     : got < 0 ? PyLong_FromLongLong(-got)
                               : hand_over(self, source, room, got, auto_ack);
  PyMem_Free(room->index);
  return result;
}

/* take_many(source, count, auto_ack[, timeout]): takes up to `count` messages without waiting. Returns a batch, or the
 * status if it took none. */
PyObject *sb_take_many(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  Receiver *self = (Receiver *)object;
  int auto_ack = sb_expect_timeout(arguments, count, 3) ? PyObject_IsTrue(arguments[2]) : -1;
  Room room;
  if (auto_ack < 0 || !make_room(&room, arguments[1])) {
    return NULL;
  }
  if (self->many == NULL) self->many = PyMem_Malloc(BATCH_BYTES);
  if ((room.buffer = self->many) == NULL) {
    PyMem_Free(room.index);
    return PyErr_NoMemory();
  }
  int64_t got = sb_queue_get_many(self->handle, room.count, auto_ack, room.buffer, room.size, room.index, &room.used);
  return finish(self, arguments[0], &room, got, auto_ack);
}

PyObject *sb_wait_many(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  Receiver *self = (Receiver *)object;
  int auto_ack = sb_expect(count, 4) ? PyObject_IsTrue(arguments[2]) : -1;
  unsigned long long until = auto_ack < 0 ? 0 : PyLong_AsUnsignedLongLong(arguments[3]);
  Room room;
  if (PyErr_Occurred() != NULL || !make_room(&room, arguments[1])) {
    return NULL;
  }
  if ((room.buffer = PyMem_Malloc(BATCH_BYTES)) == NULL) { /* other threads may fill self->many meanwhile */
    PyMem_Free(room.index);
    return PyErr_NoMemory();
  }
  int64_t got = sb_wait_for(self, &room, auto_ack, until);
  PyObject *result = finish(self, arguments[0], &room, got, auto_ack);
  PyMem_Free(room.buffer);
  return result;
}
